"""Devices of two resources that are chosen together, beside a plain model."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup import Node
from alignup.errors import InputError
from alignup.machine.device_inventory import Device
from alignup.machine.load import catalog_entries
from alignup.machine.pci_devices import PHB, SYS
from alignup.providers.devices.pairs import Choice, Pair, assignment, choose_together, read_pairs
from alignup.records import replace

GPU, NIC, SSD = "nvidia.com/gpu", "example.com/nic", "example.com/ssd"


@given(
    st.integers(1, 5).flatmap(
        lambda n: st.lists(
            st.lists(st.integers(0, 9), min_size=n, max_size=n), min_size=n, max_size=n
        )
    )
)
def test_an_assignment_costs_the_least(costs) -> None:
    """Of all permutations."""
    columns = assignment(costs)
    assert sorted(columns) == list(range(len(costs)))
    least = min(
        sum(costs[row][column] for row, column in enumerate(permutation))
        for permutation in permutations(range(len(costs)))
    )
    assert sum(costs[row][column] for row, column in enumerate(columns)) == least


def model(first, second, steps, required):
    """Return how many pairs are at each distance, nearest first.

    They are those of the best of all choices and matchings.
    """

    def ways(choice):
        more = choice.size - len(choice.forced)
        return [[*choice.forced, *chosen] for chosen in combinations(choice.others, more)]

    def worth(pairs):
        counts = [
            sum(steps[first.id, second.id] == step for first, second in pairs)
            for step in range(SYS + 1)
        ]
        return (sum(counts[: PHB + 1]) if required else 0, *counts)

    best = ()
    for first_devices in ways(first):
        for second_devices in ways(second):
            few, many = sorted((first_devices, second_devices), key=len)
            for chosen in permutations(many, len(few)):
                pairs = list(zip(few, chosen, strict=True))
                if few is not first_devices:
                    pairs = [(first, second) for second, first in pairs]

                best = max(best, worth(pairs))

    return best, worth


@st.composite
def choices(draw, name):
    devices = [Device(f"{name}{number}", None) for number in range(draw(st.integers(1, 4)))]
    forced = draw(st.integers(0, len(devices)))
    size = draw(st.integers(max(1, forced), len(devices)))
    return Choice(devices[:forced], devices[forced:], size)


@given(choices("a"), choices("b"), st.data(), st.booleans())
def test_pairs_are_as_near_as_any_can_be(first, second, data, required) -> None:
    """With what must be chosen among them, and no device twice."""
    every_pair = [
        (device.id, partner.id)
        for device in (*first.forced, *first.others)
        for partner in (*second.forced, *second.others)
    ]
    steps = {pair: data.draw(st.integers(1, SYS)) for pair in every_pair}

    joined, *alone = choose_together(
        first, second, lambda device, partner: steps[device.id, partner.id], required=required
    )

    for choice, ids in (
        (first, [a for a, _ in joined] + alone[0]),
        (second, [b for _, b in joined] + alone[1]),
    ):
        assert len(set(ids)) == len(ids) == choice.size
        assert set(choice.forced) <= set(ids)

    best, worth = model(first, second, steps, required)
    assert worth(joined) == best


def test_the_first_of_equally_near_devices_are_chosen() -> None:
    first, second = ([Device(f"{name}{number}", None) for number in range(4)] for name in "ab")
    joined, alone, _ = choose_together(
        Choice((), first, 3), Choice((), second, 2), lambda _device, _partner: SYS
    )
    paired_ids = {device.id for pair in joined for device in pair}
    alone_ids = {device.id for device in alone}
    assert paired_ids | alone_ids == {"a0", "a1", "a2", "b0", "b1"}


@pytest.mark.parametrize("pair", [["a.b/c", "a.b/d"], ("a.b/c", "a.b/d"), "a.b/c,a.b/d"])
def test_pairs_are_read(pair) -> None:
    assert read_pairs([pair]) == (Pair("a.b/c", "a.b/d"),)


@pytest.mark.parametrize(
    "pair", ["a", "a,a", "a,", "a,b,c:required", "a,b:preferred", ["a"], ["a", "b", "always"]]
)
def test_other_words_are_no_pairs(pair) -> None:
    with pytest.raises(InputError, match="RESOURCE,RESOURCE"):
        read_pairs([pair])


def node(**options) -> Node:
    entry = catalog_entries()["dgx-h100"]
    return Node(entry.machine, {"topologyManagerPolicy": "best-effort"}, entry.devices, **options)


def asking(name: str, gpus: int, nics: int):
    limits = {GPU: str(gpus), NIC: str(nics)}
    container = {
        "name": "c",
        "image": "x",
        "resources": {"limits": {key: count for key, count in limits.items() if count != "0"}},
    }
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "uid": name},
        "spec": {"containers": [container]},
    }


def test_a_node_gives_devices_of_one_switch() -> None:
    """Where a kubelet would give the first ones.

    What is tried is what is given, and a copy pairs too.
    """
    plain, paired = node(), node(pair=[[GPU, NIC]])
    for node_variant in (plain, paired):
        node_variant.admit(asking("before", 0, 2))
    assert plain.admit(asking("pod", 1, 1)).containers["c"].devices == {
        GPU: ("gpu0",),
        NIC: ("nic2",),
    }
    expected = {GPU: ("gpu2",), NIC: ("nic2",)}
    assert paired.try_admit(asking("pod", 1, 1)).containers["c"].devices == expected
    assert paired.copy().admit(asking("pod", 1, 1)).containers["c"].devices == expected
    assert paired.admit(asking("pod", 1, 1)).containers["c"].devices == expected


@pytest.mark.parametrize(
    ("pairs", "gpu"),
    [
        ([[GPU, NIC]], "gpu2"),
        ([[GPU, SSD]], "gpu0"),
        ([[GPU, NIC], [GPU, SSD]], "gpu2"),
        ([[NIC, GPU], [SSD, GPU]], "gpu2"),
        ([[GPU, SSD], [GPU, NIC]], "gpu0"),
    ],
)
def test_what_an_earlier_pair_has_chosen_stays(pairs, gpu) -> None:
    """The only SSD is at the switch of the first GPU, whose NIC is taken."""
    entry = catalog_entries()["dgx-h100"]
    ssd = replace(entry.devices[NIC][0], id="ssd0")
    inventory = {**entry.devices, SSD: (ssd,)}
    paired = Node(entry.machine, {"topologyManagerPolicy": "best-effort"}, inventory, pair=pairs)
    paired.admit(asking("before", 0, 2))

    pod = asking("pod", 1, 1)
    pod["spec"]["containers"][0]["resources"]["limits"][SSD] = "1"
    assert paired.admit(pod).containers["c"].devices[GPU] == (gpu,)


def test_pairs_that_have_to_be_on_one_root_are_refused_elsewhere() -> None:
    """The hints are the kubelet's, so that it is the allocation that fails."""
    full = node(pair=[[GPU, NIC, "required"]])
    full.admit(asking("nics", 0, 4))
    full.admit(asking("more", 0, 3))
    admission = full.admit(asking("pod", 2, 1))
    assert (admission.admitted, admission.reason) == (True, "")
    refused = full.admit(asking("late", 1, 1))
    assert (refused.admitted, refused.reason) == (False, "UnexpectedAdmissionError")
