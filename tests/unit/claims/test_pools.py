"""Which nodes a slice or a device is for."""

from __future__ import annotations

import pytest

from alignup.claims.objects import CounterSet, Device, NodeSelector, Pool, Slice
from alignup.claims.pools import gather_pools, selects
from alignup.claims.scheduler_gates import gates_of
from alignup.kubernetes.node_fit import NodeObject
from alignup.text.typed import decode

BEYOND_STABLE = (
    "DRADeviceBindingConditions",
    "DRAConsumableCapacity",
    "DRAFractionalCapacityRange",
    "DRAListTypeAttributes",
    "DRADeviceCompatibilityGroups",
)

HERE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
ELSEWHERE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
BY_NAME = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}


@pytest.mark.parametrize(
    ("terms", "is_selected"),
    [
        ([], False),
        ([{}], False),
        ([{}, HERE], True),
        ([ELSEWHERE, HERE], True),
        ([{**ELSEWHERE, **BY_NAME}], False),
        ([{**HERE, **BY_NAME}], True),
    ],
)
def test_a_selector_is_for_the_nodes_of_any_term_and_an_empty_term_for_none(
    terms, is_selected
) -> None:
    selector = decode({"nodeSelectorTerms": terms}, NodeSelector, "a selector")
    assert selects(selector, NodeObject("n", {"zone": "a"})) is is_selected


def test_an_older_generation_of_a_pool_hides_no_other_pool() -> None:
    slices = [
        Slice(name, "gpu.example.com", Pool(pool, generation, 1), all_nodes=True)
        for name, pool, generation in (("a", "p", 2), ("b", "p", 1), ("c", "q", 1))
    ]
    pools = gather_pools(slices, NodeObject("n"), gates_of())
    assert [pool.name for pool in pools] == ["p", "q"]


@pytest.mark.parametrize(
    ("gates", "names"),
    [
        (gates_of("1.38"), ["a", "c", "b"]),
        (gates_of("1.37"), ["a", "c", "b"]),
        (gates_of("1.37", dict.fromkeys(BEYOND_STABLE, False)), ["b", "c", "a"]),
    ],
)
def test_pools_that_bind_come_last_but_in_the_stable_allocator_of_1_37(gates, names) -> None:
    """It takes them as they come."""
    slices = [
        Slice(
            name,
            "gpu.example.com",
            Pool(name, 1, 1),
            all_nodes=True,
            devices=(Device("d", binding_conditions=("ready",) if name == "b" else None),),
        )
        for name in "bca"
    ]
    pools = gather_pools(slices, NodeObject("n"), gates)
    assert [pool.name for pool in pools] == names


@pytest.mark.parametrize(
    ("release", "names"),
    [("1.36", []), ("1.37", ["d"]), ("1.38", ["d"])],
)
def test_shared_counters_of_another_node_are_near_only_up_to_1_36(release, names) -> None:
    """There a newer generation of counters takes the place of the node's own devices."""
    slices = [
        Slice("d", "gpu.example.com", Pool("p", 1, 1), node_name="n", devices=(Device("d"),)),
        Slice(
            "c",
            "gpu.example.com",
            Pool("p", 2, 1),
            node_name="m",
            shared_counters=(CounterSet("s"),),
        ),
    ]
    gates = gates_of(release, {"DRAPartitionableDevices": True})
    [pool] = gather_pools(slices, NodeObject("n"), gates)
    assert [part.name for part in pool.slices] == names
