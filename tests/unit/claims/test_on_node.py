"""A pod's claims on a node.

The devices, whether CPUs and memory are aligned with them, what helps, and hints.
"""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import TYPE_CHECKING

import pytest

from alignup import explain, read_pod
from alignup.claims.objects import Device
from alignup.claims.on_node import ClaimProvider, numa_nodes_of
from alignup.claims.read import resources_of
from alignup.errors import InputError
from alignup.machine.machine import Machine
from alignup.text.typed import decode
from alignup.topology_manager.hints import TopologyHint
from inputs.claims_on_nodes import node_with_claims, pod_with_claim
from inputs.small_claims import DRIVER, NUMA, claim_named, class_of, slice_of, template
from inputs.strategies import seeds

if TYPE_CHECKING:
    from alignup.kubernetes.pod import Pod
    from alignup.node import Node


def ids(at: Node, uid: str) -> list[str]:
    assert at.claims is not None
    return [device.id.device for device in at.claims.devices(uid)]


def test_devices_are_the_schedulers_and_held_until_the_pod_goes() -> None:
    at = node_with_claims([slice_of([1, 0, 1]), class_of(), template()])
    assert [bool(at.admit(pod_with_claim(f"p{number}"))) for number in range(3)] == [True] * 3
    assert [ids(at, f"default/p{number}") for number in range(3)] == [["d0"], ["d1"], ["d2"]]
    refused = at.try_admit(pod_with_claim("p3"))
    assert (refused.reason, "cannot allocate all claims" in refused.message) == (
        "Unschedulable",
        True,
    )
    at.remove("default/p1")
    assert at.admit(pod_with_claim("p3"))
    assert ids(at, "default/p3") == ["d1"]


def test_a_pod_that_comes_back_under_its_name_has_devices_of_its_own() -> None:
    at = node_with_claims([slice_of([1, 0]), class_of(), template()])
    for uid in ("old", "new"):
        assert at.admit(pod_with_claim().renamed(uid=uid))
    assert (ids(at, "old"), ids(at, "new")) == (["d0"], ["d1"])


def test_a_claim_that_is_there_by_itself_is_shared_by_the_pods_that_name_it() -> None:
    at = node_with_claims([slice_of([1, 0]), class_of(), claim_named("mine")])
    for name in ("a", "b"):
        assert at.admit(pod_with_claim(name, reference={"resourceClaimName": "mine"}))
    assert ids(at, "default/a") == ids(at, "default/b") == ["d0"]
    at.remove("default/a")
    assert at.admit(pod_with_claim("c", reference={"resourceClaimName": "mine"}))
    assert ids(at, "default/c") == ["d0"]


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        ({"exactly": {"deviceClassName": DRIVER}}, "gpu"),
        ({"firstAvailable": [{"name": "half", "deviceClassName": DRIVER}]}, "half"),
    ],
)
def test_a_capacity_that_cannot_be_is_told_of_the_request_or_its_alternative(
    request_, named: str
) -> None:
    """In the scheduler's words."""
    devices = slice_of([0])
    devices["spec"]["devices"][0] |= {
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "-1"}},
    }

    claim_template = template()
    claim_template["spec"]["spec"]["devices"]["requests"] = [{"name": "gpu", **request_}]
    message = (
        node_with_claims([devices, class_of(), claim_template]).try_admit(pod_with_claim()).message
    )
    assert message.endswith(
        f"claim default/p-c, request {named}: checking capacity for device {DRIVER}/n/d0: "
        'capacity "memory": capacity value is negative'
    )


def masks(provider: ClaimProvider, claimant: Pod) -> dict[int, bool] | None:
    hints = provider.pod_topology_hints(claimant)
    if hints is None:
        return None
    (listed,) = hints.values()
    return {
        int(hint.affinity): hint.preferred for hint in listed or () if hint.affinity is not None
    }


@pytest.mark.parametrize("seed", seeds(10, 30))
def test_hints_are_those_of_a_device_manager(seed) -> None:
    """A set of NUMA nodes is offered if enough free devices are near it.

    It is preferred if no smaller one could do.
    """
    random = Random(seed)
    machine = Machine.from_dict(
        {
            "numaNodes": [
                {"id": number, "memory": 2**30, "cores": [{"cpus": [number], "socket": 0}]}
                for number in range(4)
            ]
        }
    )
    nodes = [random.choice([0, 1, 2, 3, None]) for _ in range(random.randint(1, 7))]
    count = random.randint(1, 4)
    taken = random.randint(0, 2)
    resources = resources_of([slice_of(nodes), class_of(), template(count)], "test")
    provider = ClaimProvider(machine, resources, resources.only_node, gives_hints=True)
    claimant = pod_with_claim()
    occupied = set()
    if 0 < taken <= len(nodes):
        before = resources_of([slice_of(nodes), class_of(), template(taken)], "test")
        provider.resources = before
        first = pod_with_claim("first")
        provider.gives_hints = False
        provider.allocate(first, first.all_containers[0], TopologyHint(None, True))
        occupied = {int(device.id.device[1:]) for device in provider.devices(first.uid)}
        provider.gives_hints, provider.resources = True, resources

    def enough(mask: int, gone: set[int]) -> bool:
        near = [place for place, numa in enumerate(nodes) if numa is None or mask >> numa & 1]
        return len(set(near) - gone) >= count

    expected: dict[int, bool] | None = {}
    every = [
        sum(1 << bit for bit in chosen)
        for size in range(1, 5)
        for chosen in combinations(range(4), size)
    ]
    smallest = min((mask.bit_count() for mask in every if enough(mask, set())), default=0)
    expected = {mask: mask.bit_count() == smallest for mask in every if enough(mask, occupied)}
    if all(numa is None for numa in nodes):
        expected = None

    assert masks(provider, claimant) == expected


def test_with_hints_no_pod_is_misaligned_where_many_are_today() -> None:
    """Random nodes and pods are placed with hints and without.

    Today the scheduler's devices and the kubelet's CPUs meet by chance.
    """
    misaligned = {False: 0, True: 0}
    placed = {False: 0, True: 0}
    for seed in range(20):
        random = Random(seed)
        nodes = [random.randint(0, 1) for _ in range(8)]
        counts = [random.choice((1, 1, 2)) for _ in range(6)]
        for hints in (False, True):
            templates = [template(count, name=f"t{count}") for count in sorted(set(counts))]
            at = node_with_claims([slice_of(nodes), class_of(), *templates], hints=hints)
            for number, count in enumerate(counts):
                claimant = pod_with_claim(
                    f"p{number}", cpu=8, reference={"resourceClaimTemplateName": f"t{count}"}
                )
                admission = at.admit(claimant)
                if admission:
                    assert at.claims is not None
                    placed[hints] += 1
                    misaligned[hints] += (
                        at.claims.are_aligned(claimant, admission.containers) is False
                    )

    assert misaligned[True] == 0
    assert misaligned[False] > placed[False] / 5
    assert placed[True] > placed[False] * 0.7


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({NUMA: {"int": 1}}, (1,)),
        ({NUMA: {"ints": [1, 0]}}, (1, 0)),
        ({"dra.net/numaNode": {"int": 1}}, (1,)),
        ({"dra.cpu/numaNodeID": {"int": 1}}, (1,)),
        ({"numaNode": {"int": 1}}, (1,)),
        ({"resource.kubernetes.io/pciBusID": {"string": "0000:1A:00.0"}}, (1,)),
        ({"pciBusID": {"string": "1a:00.0"}}, (1,)),
        ({NUMA: {"int": 0}, "pciBusID": {"string": "1a:00.0"}}, (0,)),
        ({"pciBusID": {"string": "1b:00.0"}}, ()),
        ({}, ()),
    ],
)
def test_a_device_without_a_numa_node_is_looked_up_on_the_machine(attributes, expected) -> None:
    device = decode({"name": "d", "attributes": attributes}, Device)
    assert numa_nodes_of(DRIVER, device, {"0000:1a:00.0": 1}) == expected


def test_a_node_that_is_not_named_is_asked_for() -> None:
    with pytest.raises(InputError, match="name of a node"):
        node_with_claims([slice_of([0]), slice_of([0], node="other"), class_of(), template()])


def test_an_account_names_the_claims_of_who_asks_and_nothing_where_there_are_none() -> None:
    at = node_with_claims([slice_of([1, 0]), class_of(), template()], hints=True)
    assert at.claims is not None
    claimant = pod_with_claim()
    [container] = claimant.containers
    accounts = at.claims.account(claimant, container)
    assert {kind: account() for kind, account in accounts.items()} == {"claims": "devices of c"}

    plain = read_pod({"metadata": {"name": "q"}, "spec": {"containers": [{"name": "main"}]}})
    assert at.claims.account(plain, plain.containers[0]) == {}


def test_copies_are_independent() -> None:
    at = node_with_claims([slice_of([1, 0]), class_of(), template()])
    copied = at.copy()
    assert copied.admit(pod_with_claim())
    assert ids(copied, "default/p") == ["d0"]
    assert ids(at, "default/p") == []
    assert explain(at, pod_with_claim()).admitted


@pytest.mark.parametrize(
    ("ids", "listed", "near"),
    [
        ((0, 1, 2, 3), (2, 3), (2, 3)),
        ((0, 1, 2), (2, 0, 1), (2, 0, 1)),
        ((0, 8), (0, 1), (0,)),
        ((0, 8), (8,), (8,)),
    ],
)
def test_the_first_of_a_list_is_the_devices_own_numa_node(ids, listed, near) -> None:
    """The lists are what `k8s.io/dynamic-resource-allocation` 0.37.2 makes for such machines.

    `findings/dra-numa-list.sh` has them. One names a NUMA node that is not there.
    """
    machine = Machine.from_dict(
        {
            "numaNodes": [
                {"id": id_, "memory": 2**30, "cores": [{"cpus": [id_], "socket": 0}]} for id_ in ids
            ]
        }
    )
    part = slice_of([0])
    part["spec"]["devices"][0]["attributes"] = {NUMA: {"ints": list(listed)}}
    resources = resources_of([part, class_of()], "test")
    provider = ClaimProvider(machine, resources, resources.only_node)
    assert list(provider.near.values()) == [near]
