"""A pod's claims on a node.

The devices, whether CPUs and memory are aligned with them, what helps, and hints.
"""

from __future__ import annotations

import warnings
from itertools import combinations
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from alignup import explain, read_pod
from alignup.claims.allocation import solve
from alignup.claims.objects import Device
from alignup.claims.on_node import ClaimProvider, numa_nodes_of
from alignup.claims.preview import preview_claims
from alignup.claims.question import AllocationError, question_of
from alignup.claims.read import claims_of_pod, resources_of
from alignup.claims.scheduler_gates import gates_of
from alignup.claims.search_tables import SearchTables
from alignup.errors import InputError
from alignup.machine.machine import Machine
from alignup.node import Node
from alignup.text.typed import decode
from alignup.topology_manager.hints import TopologyHint
from inputs.small_claims import DRIVER, NUMA, claim_named, class_of, slice_of, template
from inputs.strategies import seeds

if TYPE_CHECKING:
    from alignup.kubernetes.pod import Pod


def pod(
    name: str = "p", *, cpu: int = 2, memory: str = "1Gi", reference: dict[str, str] | None = None
) -> Pod:
    spec = {
        "resourceClaims": [{"name": "c", **(reference or {"resourceClaimTemplateName": "t"})}],
        "containers": [
            {
                "name": "main",
                "resources": {"claims": [{"name": "c"}], "limits": {"cpu": cpu, "memory": memory}},
            }
        ],
    }

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read_pod({"metadata": {"name": name}, "spec": spec})


def node(
    resources: list[dict[str, Any]], *, hints: bool = False, policy: str = "single-numa-node"
) -> Node:
    return Node.from_dict(
        {
            "machine": "xeon-2s",
            "kubelet": {
                "cpuManagerPolicy": "static",
                "topologyManagerPolicy": policy,
                "reservedSystemCPUs": "0",
            },
            "devices": {},
            "resources": resources,
            "draHints": hints,
        }
    )


def cpu_slice(*, grouped: bool) -> dict[str, Any]:
    """Return what a driver of CPUs publishes: a device for each CPU, or for each NUMA node."""
    if not grouped:
        return slice_of([0, 0, 0, 1, 1, 1], driver="dra.cpu")

    published = slice_of([0, 1], driver="dra.cpu")
    for device in published["spec"]["devices"]:
        device |= {"allowMultipleAllocations": True, "capacity": {"dra.cpu/cpu": {"value": "32"}}}

    return published


@pytest.mark.parametrize("grouped", [False, True])
def test_the_driver_of_cpus_helps_where_it_has_enough_on_one_node(grouped: bool) -> None:
    at = node(
        [slice_of([1]), class_of(), class_of("dra.cpu"), cpu_slice(grouped=grouped), template()]
    )
    preview = preview_claims(at, pod(cpu=2))
    assert preview is not None
    (line,) = (advice for advice in preview.helps if "dra.cpu" in advice)
    amount = "a device with capacity dra.cpu/cpu of 2" if grouped else "2 devices"
    assert (
        f"request for {amount} of class dra.cpu and the constraint matchAttribute {NUMA} in "
        "default/p-c"
    ) in line
    asking = template(1 if grouped else 2, "dra.cpu", name="t")["spec"]["spec"]["devices"][
        "requests"
    ][0]
    if grouped:
        asking["exactly"]["capacity"] = {"requests": {"dra.cpu/cpu": "2"}}

    helped = template()
    helped["spec"]["spec"]["devices"]["requests"].append({**asking, "name": "cpus"})
    helped["spec"]["spec"]["devices"]["constraints"] = [{"matchAttribute": NUMA}]
    improved = node(
        [slice_of([1]), class_of(), class_of("dra.cpu"), cpu_slice(grouped=grouped), helped]
    )
    bare = preview_claims(improved, pod(cpu=2))
    assert bare is not None
    assert {device.numa_nodes for device in bare.devices} == {(1,)}


def test_the_driver_of_cpus_is_no_help_where_it_has_too_few() -> None:
    at = node(
        [slice_of([1]), class_of(), class_of("dra.cpu"), cpu_slice(grouped=False), template()]
    )
    preview = preview_claims(at, pod(cpu=4))
    assert preview is not None
    assert preview.meet is False
    assert not [advice for advice in preview.helps if "dra.cpu" in advice]


def ids(at: Node, uid: str) -> list[str]:
    assert at.claims is not None
    return [device.id.device for device in at.claims.devices(uid)]


def test_devices_are_the_schedulers_and_held_until_the_pod_goes() -> None:
    at = node([slice_of([1, 0, 1]), class_of(), template()])
    assert [bool(at.admit(pod(f"p{number}"))) for number in range(3)] == [True] * 3
    assert [ids(at, f"default/p{number}") for number in range(3)] == [["d0"], ["d1"], ["d2"]]
    refused = at.try_admit(pod("p3"))
    assert (refused.reason, "cannot allocate all claims" in refused.message) == (
        "Unschedulable",
        True,
    )
    at.remove("default/p1")
    assert at.admit(pod("p3"))
    assert ids(at, "default/p3") == ["d1"]


def test_a_pod_that_comes_back_under_its_name_has_devices_of_its_own() -> None:
    at = node([slice_of([1, 0]), class_of(), template()])
    for uid in ("old", "new"):
        assert at.admit(pod().renamed(uid=uid))
    assert (ids(at, "old"), ids(at, "new")) == (["d0"], ["d1"])


def test_a_claim_that_is_there_by_itself_is_shared_by_the_pods_that_name_it() -> None:
    at = node([slice_of([1, 0]), class_of(), claim_named("mine")])
    for name in ("a", "b"):
        assert at.admit(pod(name, reference={"resourceClaimName": "mine"}))
    assert ids(at, "default/a") == ids(at, "default/b") == ["d0"]
    at.remove("default/a")
    assert at.admit(pod("c", reference={"resourceClaimName": "mine"}))
    assert ids(at, "default/c") == ["d0"]


def test_a_misalignment_is_foretold_and_each_help_helps() -> None:
    resources = [slice_of([1, 0]), class_of(), template()]
    at = node(resources)
    preview = preview_claims(at, pod())
    assert preview is not None
    assert ([device.numa_nodes for device in preview.devices], preview.meet) == ([(1,)], False)
    selector = 'device.attributes["resource.kubernetes.io"].numaNode == 0'
    assert any(selector in advice for advice in preview.helps)
    assert any("draHints" in advice for advice in preview.helps)
    assert not at.pods  # nothing has changed

    helped = [*resources[:2], template(selectors=[{"cel": {"expression": selector}}])]
    better = preview_claims(node(helped), pod())
    assert better is not None
    assert (better.meet, better.helps) == (True, ())

    hinted = preview_claims(node(resources, hints=True), pod())
    assert hinted is not None
    assert hinted.meet is True


def test_a_smaller_request_may_help() -> None:
    preview = preview_claims(node([slice_of([0, 1]), class_of(), template(2)]), pod())
    assert preview is not None
    assert preview.meet is False
    assert any(advice.startswith("ask for at most 1 devices") for advice in preview.helps)


def test_constraints_join_devices_of_several_drivers() -> None:
    nic = "nic.example.com"
    resources = [
        slice_of([0]),
        slice_of([1, 0], driver=nic),
        class_of(),
        class_of(nic),
        template(1, DRIVER, nic),
    ]
    preview = preview_claims(node(resources), pod())
    assert preview is not None
    assert preview.meet is False
    assert any(f"matchAttribute {NUMA}" in advice for advice in preview.helps)


def test_where_nothing_is_exclusive_it_cannot_be_told() -> None:
    shared = pod(cpu=2).renamed(uid="x")
    resources = [slice_of([1]), class_of(), template()]
    at = Node.from_dict(
        {"machine": "xeon-2s", "kubelet": {}, "devices": {}, "resources": resources}
    )
    preview = preview_claims(at, shared)
    assert preview is not None
    assert preview.meet is None
    unknown = preview_claims(node([slice_of([None]), class_of(), template()]), pod())
    assert unknown is not None
    assert unknown.meet is None


def test_a_refusal_says_what_was_free() -> None:
    preview = preview_claims(node([slice_of([0]), class_of(), template(2)]), pod())
    assert preview is not None
    assert "of 1 devices: 1 free" in preview.refusal
    assert "ask for 1" in preview.refusal


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
    message = node([devices, class_of(), claim_template]).try_admit(pod()).message
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
    claimant = pod()
    occupied = set()
    if 0 < taken <= len(nodes):
        before = resources_of([slice_of(nodes), class_of(), template(taken)], "test")
        provider.resources = before
        first = pod("first")
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
            at = node([slice_of(nodes), class_of(), *templates], hints=hints)
            for number, count in enumerate(counts):
                claimant = pod(
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


def test_a_bound_that_is_hit_is_said() -> None:
    resources = resources_of([slice_of([0] * 8 + [1] * 8), class_of(), template(8)], "test")
    question = question_of(
        resources.only_node, resources, claims_of_pod(pod(), resources), gates_of()
    )
    tables = SearchTables(question)
    assert solve(tables) is not None
    with pytest.raises(AllocationError, match="given up after 3 steps") as error:
        solve(tables, 3)
    assert error.value.kind == "timeout"


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
        node([slice_of([0]), slice_of([0], node="other"), class_of(), template()])


def test_copies_are_independent() -> None:
    at = node([slice_of([1, 0]), class_of(), template()])
    copied = at.copy()
    assert copied.admit(pod())
    assert ids(copied, "default/p") == ["d0"]
    assert ids(at, "default/p") == []
    assert explain(at, pod()).admitted
