"""Where a pod goes whose resources are sums over NUMA nodes: what the merge of its hints says."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.core.amounts.board import Board, Distances, Job
from alignup.core.amounts.memory_ledger import MemoryCapacity, MemoryLedger
from inputs.boards import BEST_EFFORT, RESTRICTED, SINGLE, cpus, devices, judged, row
from inputs.strategies import examples
from models import topology_manager as model

POLICY_NAMES = {
    BEST_EFFORT: "best-effort",
    RESTRICTED: "restricted",
    SINGLE: "single-numa-node",
}


def offers_of(node, cpu_count, memory_size, gpus):
    """Return the hints for each resource that is asked for.

    Where nodes have too little memory its manager offers nothing, and refuses later.
    """
    offers = {}
    if cpu_count:
        offers["cpu"] = node.cpu.hints(cpu_count)
    if memory_size and (hints := node.memory.hints((("memory", memory_size),))):
        offers["memory"] = hints
    if gpus:
        offers["gpu"] = node.devices["gpu"].hints(gpus)

    return offers


def requests_of(cpu_count, memory_size, gpus):
    """Return the requests of a pod of one container, the pod's own first."""
    sizes = (("memory", memory_size),) if memory_size else ()
    counts = (("gpu", gpus),) if gpus else ()
    return [(cpu_count, sizes, counts, False)] * 2


def random_node(random: Random, nodes: int, policy: int, *, closest: bool):
    """Return a row with CPUs, memory and GPUs near to one node each, some of them in use."""
    memory = MemoryLedger(
        MemoryCapacity({"memory": [random.choice([0, 5, 9, 20]) for _ in range(nodes)]})
    )
    for _ in range(random.randint(0, 2)):
        mask = random.randrange(1, 1 << nodes)
        memory.allocate((("memory", random.randint(1, 12)),), (), mask, False)

    gpus = devices(nodes, [1 << random.randrange(nodes) for _ in range(5)])
    gpus.give(random.getrandbits(5) & random.getrandbits(5))
    distances = [
        [10 if near == far else random.choice([12, 20, 30]) for far in range(nodes)]
        for near in range(nodes)
    ]
    node = row(
        nodes,
        policy,
        cpu=cpus(*(random.randint(1, 8) for _ in range(nodes))),
        memory=memory,
        devices={"gpu": gpus},
        distances=Distances(tuple(map(tuple, distances))),
        prefer_closest=closest,
    )
    return node, distances if closest else None


@examples(150)
@given(st.integers(0, 2**32), st.integers(1, 6), st.sampled_from(list(POLICY_NAMES)), st.booleans())
def test_a_pod_goes_where_the_merge_of_its_hints_says(
    seed: int, nodes: int, policy: int, closest: bool
) -> None:
    """By each policy, with distances and without, on nodes that are partly in use."""
    random = Random(seed)
    node, distances = random_node(random, nodes, policy, closest=closest)
    board = Board([node])
    for _ in range(6):
        amounts = random.randint(0, 9), random.choice([0, 3, 8, 15]), random.randint(0, 3)
        offers = offers_of(node, *amounts)
        if not offers:
            continue

        mask, is_preferred, is_admitted = model.merge(
            POLICY_NAMES[policy], nodes, [offers], distances
        )
        admitted, reason, affinity, preferred, _, exact = judged(
            board, Job(board, requests_of(*amounts))
        )[0]

        assert exact
        if not is_admitted:
            assert (admitted, reason) == (0, 1)
        elif admitted:
            assert (affinity, bool(preferred)) == (mask or 0, is_preferred)
        else:
            assert reason == 2  # its memory is refused


@pytest.mark.parametrize(
    ("counts", "places", "request_counts", "affinity", "is_preferred"),
    [
        ((4, 4), (1, 1, 2, 2), (2, 1), 0b01, True),  # both prefer one node, the lowest has both
        ((1, 4), (1, 1, 2, 2), (2, 1), 0b10, True),
        (
            (4, 4),
            (1, 1, 2, 2),
            (2, 3),
            0b11,
            False,
        ),  # as wide as the GPUs need, though the CPUs fit on less
        ((4, 4), (1, 1, 2, 2), (6, 3), 0b11, True),
        ((4, 4, 4), (1, 1, 2, 4), (8, 3), 0b011, True),
        ((4, 4, 4), (2, 2, 4, 4), (8, 3), 0b110, True),
        ((4, 4, 4), (1, 1, 4, 4), (9, 2), 0b101, False),  # of all three nodes those that have GPUs
    ],
)
def test_sums_are_met_together_or_dealt_out(
    counts, places, request_counts, affinity, is_preferred
) -> None:
    """One set for both where both prefer its size, else what sets of theirs have in common."""
    cpu_count, gpus = request_counts
    node = row(
        len(counts),
        BEST_EFFORT,
        cpu=cpus(*counts),
        devices={"gpu": devices(len(counts), places)},
    )
    board = Board([node])
    answer = judged(board, Job(board, requests_of(cpu_count, 0, gpus)))[0]

    assert answer[:4] == (1, 0, affinity, is_preferred)


@pytest.mark.parametrize(
    ("near_pairs", "affinity"),
    [((), 0b0011), (((1, 3),), 0b1010), (((2, 3), (0, 2)), 0b0101)],
)
def test_of_sets_of_one_size_the_nearest_is_chosen_then_the_lowest(near_pairs, affinity) -> None:
    """Four nodes of four CPUs and one GPU: seven CPUs and two GPUs take two of them."""
    rows = [[10 if node == far else 20 for far in range(4)] for node in range(4)]
    for node, far in near_pairs:
        rows[node][far] = rows[far][node] = 12

    placed = row(
        4,
        RESTRICTED,
        cpu=cpus(4, 4, 4, 4),
        devices={"gpu": devices(4, (1, 2, 4, 8))},
        distances=Distances(tuple(map(tuple, rows))),
        prefer_closest=True,
    )
    board = Board([placed])

    assert judged(board, Job(board, requests_of(7, 0, 2)))[0][:4] == (1, 0, affinity, 1)
