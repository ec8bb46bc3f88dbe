"""Pods with a policy of their own on one node: judged by it, kept apart, refused on a mismatch."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import ConfigError, InputError
from alignup.koordinator.effective import NOTHING_HELD, Occupancy, mixes
from alignup.koordinator.node_policies import ExclusivePolicy, PodPolicies, pod_occupancy
from alignup.kubernetes.pod import Pod
from alignup.node import Node
from alignup.topology_manager.hints import HintList
from alignup.topology_manager.policy import make_policy
from fakes.hint_providers import Saying, hint
from inputs.machines import machine_of

SPEC = "scheduling.koordinator.sh/numa-topology-spec"

STEPS = st.lists(
    st.tuples(
        st.integers(1, 9),
        st.sampled_from(["", "SingleNUMANode", "SingleNUMANode", "Restricted", "BestEffort"]),
        st.sampled_from(["", "Preferred"]),
        st.integers(0, 2),
        st.integers(-1, 4),
    ),
    max_size=12,
)

LABEL = "node.koordinator.sh/numa-topology-policy"


def node_of(policy: str = "none", numa_nodes: int = 2, **kubelet: Any) -> Node:
    """Return a node with four CPUs (two cores) and two GPUs in each NUMA node.

    All CPUs are to be given away.
    """
    return Node.from_dict(
        {
            "machine": machine_of(numa_nodes, 2),
            "kubelet": {"topologyManagerPolicy": policy, "cpuManagerPolicy": "static", **kubelet},
            "devices": {
                "a/gpu": [{"id": f"gpu{n}", "numa": [n // 2]} for n in range(2 * numa_nodes)]
            },
        }
    )


def pod(
    uid: str,
    cpus: int,
    policy: str = "",
    exclusive: str = "",
    text: str | None = None,
    gpus: int = 0,
) -> dict[str, Any]:
    """Return a Guaranteed pod.

    With a policy, or the text of an annotation, it has one of its own.
    """
    metadata: dict[str, Any] = {"name": uid, "uid": uid}
    if policy or exclusive or text is not None:
        spec = {"numaTopologyPolicy": policy, "singleNUMANodeExclusive": exclusive}
        metadata["annotations"] = {SPEC: json.dumps(spec) if text is None else text}

    limits = {"cpu": str(cpus), "memory": "1Mi"}
    if gpus:
        limits["a/gpu"] = str(gpus)

    container = {"name": "c0", "image": "i", "resources": {"limits": limits}}
    return {"metadata": metadata, "spec": {"containers": [container]}}


def got(admission: Any) -> list[int] | None:
    """Return the NUMA nodes of the only container; None if it was refused."""
    if not admission.admitted:
        return None
    return list(admission.containers["c0"].affinity.affinity)


def test_a_pod_brings_its_policy_to_a_node_without_one() -> None:
    """SingleNUMANode: one node or none; Restricted: as few as possible.

    BestEffort: whatever there is.
    """
    node = node_of()

    assert got(node.admit(pod("a", 3, "SingleNUMANode"))) == [0]
    assert node.admit(pod("b", 5, "SingleNUMANode")).reason == "TopologyAffinityError"
    assert got(node.admit(pod("c", 3, "SingleNUMANode"))) == [1]
    assert node.admit(pod("d", 2, "Restricted", "Preferred")).reason == "TopologyAffinityError"
    assert got(node.admit(pod("e", 2, "BestEffort", "Preferred"))) == [0, 1]


def test_a_silent_pod_is_judged_by_the_node() -> None:
    node = node_of()
    admission = node.admit(pod("a", 3))

    assert admission.admitted
    assert admission.containers["c0"].affinity is None
    assert node.admit(pod("b", 1, text="{}")).containers["c0"].affinity is None


def test_exclusivity_alone_is_no_policy() -> None:
    """A node without a policy has nothing to keep it with."""
    assert node_of().admit(pod("a", 1, exclusive="Required")).containers["c0"].affinity is None


def test_the_annotated_pod_is_judged_as_a_whole() -> None:
    """All containers share one affinity, as in pod scope."""
    wish = pod("a", 2, "SingleNUMANode")
    wish["spec"]["containers"].append({**wish["spec"]["containers"][0], "name": "c1"})
    admission = node_of().admit(wish)

    assert [allocation.affinity for allocation in admission.containers.values()] == [
        hint(True, 0)
    ] * 2
    wish["spec"]["containers"].append({**wish["spec"]["containers"][0], "name": "c2"})
    wish["metadata"]["uid"] = "b"
    refused = node_of().admit(wish)
    assert refused.message.startswith("pod refused by policy 'single-numa-node'")
    assert refused.refusal.container is None


def test_required_keeps_away_from_single_node_pods() -> None:
    """A pod across nodes does not mix with them, and comes when they are gone."""
    node = node_of()
    assert got(node.admit(pod("single", 1, "SingleNUMANode"))) == [0]

    refused = node.admit(pod("wide", 5, "Restricted", "Required"))

    assert (refused.admitted, refused.reason) == (False, "TopologyAffinityError")
    node.remove("single")
    assert got(node.admit(pod("wide", 5, "Restricted", "Required"))) == [0, 1]


def test_preferred_mixes_when_there_is_no_other_way() -> None:
    """First without nodes of SingleNUMANode pods, then with them."""
    node = node_of(numa_nodes=4)
    assert got(node.admit(pod("single", 1, "SingleNUMANode"))) == [0]

    assert got(node.admit(pod("apart", 5, "Restricted", "Preferred"))) == [1, 2]
    assert got(node.admit(pod("mixed", 9, "BestEffort", "Preferred"))) == [0, 2, 3]


def test_a_pod_is_gone_even_if_a_provider_fails_to_take_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error is raised, and the pod keeps no other from its nodes any more."""
    node = Node.from_dict(
        {"machine": machine_of(2, 2), "kubelet": {"cpuManagerPolicy": "static"}},
        providers=[Saying(None)],
    )
    node.admit(pod("single", 1, "SingleNUMANode"))
    with monkeypatch.context() as patch:
        patch.setattr(Saying, "release", failing)
        with pytest.raises(OSError, match="the licence server is down"):
            node.remove("single")

    assert node.pods == ()
    assert got(node.admit(pod("wide", 5, "BestEffort", "Required"))) == [0, 1]


def failing(*_: object) -> None:
    raise OSError("the licence server is down")


def test_a_removed_pod_protects_nothing() -> None:
    """Whether it was admitted under a policy of its own or not."""
    node = node_of()
    for _ in range(2):
        assert got(node.admit(pod("single", 1, "SingleNUMANode"))) == [0]
        assert not node.admit(pod("wide", 5, "BestEffort", "Required")).admitted
        node.remove("single")
        assert node.admit(pod("plain", 1)).admitted
        node.remove("plain")
    assert got(node.admit(pod("wide", 5, "Restricted"))) == [0, 1]


def test_a_refused_pod_protects_nothing() -> None:
    node = node_of()
    assert not node.admit(pod("single", 5, "SingleNUMANode")).admitted

    assert got(node.admit(pod("wide", 5, "Restricted", "Required"))) == [0, 1]


@pytest.mark.parametrize(
    ("policy", "own", "others"),
    [
        ("single-numa-node", "SingleNUMANode", ["Restricted", "BestEffort"]),
        ("restricted", "Restricted", ["SingleNUMANode", "BestEffort"]),
        ("best-effort", "BestEffort", ["SingleNUMANode", "Restricted"]),
    ],
)
def test_policies_that_do_not_go_together(policy: str, own: str, others: list[str]) -> None:
    """A node's own policy is fine; another is refused for good, and both are named."""
    node = node_of(policy)
    assert got(node.admit(pod("own", 1, own))) == [0]
    assert got(node.admit(pod("silent", 1))) == [0]
    before = node.cpu.free_cpus, node.pods
    for pod_policy in others:
        refused = node.admit(pod("other", 1, pod_policy))
        assert (refused.admitted, refused.reason) == (False, "UnschedulableAndUnresolvable")
        assert policy in refused.message
        assert "\n" not in refused.message
    assert before == (node.cpu.free_cpus, node.pods)


def test_the_nodes_own_scope_stays() -> None:
    """On a node of the same policy its containers are judged one by one, if the node does so."""
    wish = pod("a", 3, "SingleNUMANode")
    wish["spec"]["containers"].append({**wish["spec"]["containers"][0], "name": "c1"})
    admission = node_of("single-numa-node").admit(wish)

    assert [allocation.affinity for allocation in admission.containers.values()] == [
        hint(True, 0),
        hint(True, 1),
    ]
    assert not node_of("single-numa-node", topologyManagerScope="pod").admit(wish).admitted


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "3",
        '{"numaTopologyPolicy": "Bogus"}',
        '{"numaTopologyPolicy": 3}',
        '{"singleNUMANodeExclusive": "x"}',
    ],
)
def test_annotations_that_cannot_be_read_change_nothing(text: str) -> None:
    """An input error that names the annotation."""
    node = node_of()
    before = node.cpu.free_cpus, node.devices.free, node.pods

    with pytest.raises(InputError, match="numa-topology-spec"):
        node.admit(pod("a", 1, text=text))

    assert before == (node.cpu.free_cpus, node.devices.free, node.pods)


def test_a_machine_of_too_many_nodes_for_the_pods_policy() -> None:
    """The node's option for more nodes holds for the pods' policies as well.

    Without a policy it has no limit.
    """
    with pytest.raises(ConfigError, match="got 9"):
        node_of(numa_nodes=9).admit(pod("a", 1, "Restricted"))


def test_devices_are_aligned_too() -> None:
    admission = node_of().admit(pod("a", 4, "SingleNUMANode", gpus=2))

    assert admission.containers["c0"].devices == {"a/gpu": ("gpu0", "gpu1")}


def test_hints_that_mix_are_dropped_before_the_merge() -> None:
    """From packed lists and plain ones.

    A pod that is bound to no NUMA node keeps away from nobody.
    """
    policy = ExclusivePolicy(
        make_policy("best-effort", 2), "Required", Occupancy(single=0b01), 0b11
    )
    both = [hint(True, 0, 1)]

    assert policy.name == "best-effort"
    assert policy.merge([{"a": both}]) == (hint(False, 0, 1), False)
    assert policy.merge([{"a": HintList(both), "b": [hint(True, 0)]}])[1] is False
    assert policy.merge([{"a": [*both, hint(True, 1)], "b": None}, None]) == (hint(True, 1), True)
    assert policy.merge([None, {}, {"a": None}]) == (hint(True, 0, 1), True)


def test_a_resource_that_cannot_be_had_is_not_a_matter_of_exclusivity() -> None:
    """The allocation fails for want of it, and says so."""
    node = node_of()
    node.admit(pod("single", 1, "SingleNUMANode"))

    refused = node.admit(pod("huge", 9, "BestEffort", "Required"))

    assert refused.reason == "UnexpectedAdmissionError"
    assert "exclusivity" not in refused.message


def test_preferred_takes_what_does_not_mix_if_nothing_is_preferred() -> None:
    """Of results that are not preferred the one apart from SingleNUMANode pods is best."""
    offered = [
        {
            "a": [hint(True, 1), hint(False, 1, 2), hint(False, 0, 1)],
            "b": [hint(True, 2), hint(False, 1, 2)],
        }
    ]
    policy = ExclusivePolicy(
        make_policy("best-effort", 3), "Preferred", Occupancy(single=0b001), 0b111
    )

    assert policy.merge(offered) == (hint(False, 1), True)
    # nothing is left of `a` without mixing
    mixed = [{"a": [hint(False, 0, 1)], "b": [hint(True, 2), hint(False, 0, 2)]}]
    assert policy.merge(mixed) == (hint(False, 0), True)


def test_a_single_node_pod_keeps_away_from_pods_across_nodes() -> None:
    """The other direction: it does not go where a pod spans several NUMA nodes.

    It comes when that pod is gone.
    """
    node = node_of()
    assert got(node.admit(pod("wide", 5, "Restricted"))) == [0, 1]
    assert node.occupancy == Occupancy(multi=0b11)

    refused = node.admit(pod("single", 1, "SingleNUMANode"))

    assert (refused.admitted, refused.reason) == (False, "TopologyAffinityError")
    node.remove("wide")
    assert got(node.admit(pod("single", 1, "SingleNUMANode"))) == [0]


def test_a_single_node_pod_prefers_nodes_without_pods_across_nodes() -> None:
    """Required: only these; Preferred: these first, and the others where there is no room."""
    node = node_of(numa_nodes=3)
    assert got(node.admit(pod("wide", 5, "Restricted"))) == [0, 1]

    assert got(node.admit(pod("first", 3, "SingleNUMANode", "Preferred"))) == [2]
    assert got(node.admit(pod("second", 1, "SingleNUMANode", "Required"))) == [2]
    assert (
        node.admit(pod("third", 1, "SingleNUMANode", "Required")).reason == "TopologyAffinityError"
    )
    assert got(node.admit(pod("third", 1, "SingleNUMANode", "Preferred"))) == [1]


def test_pods_without_an_annotation_can_span_nodes_too() -> None:
    """What lies in several NUMA nodes crosses them, whoever asked for it."""
    node = node_of()
    assert node.admit(pod("silent", 5)).admitted

    assert node.occupancy == Occupancy(multi=0b11)
    assert (
        "'default/silent' across NUMA nodes 0+1"
        in node.admit(pod("single", 1, "SingleNUMANode")).message
    )
    node.remove("silent")
    assert node.occupancy == NOTHING_HELD


def test_devices_span_nodes_as_well() -> None:
    """Without a CPU manager too; a device near to both NUMA nodes lies in neither alone."""
    devices = {
        "a/gpu": [{"id": "g0", "numa": [0]}, {"id": "g1", "numa": [1]}],
        "a/nic": [{"id": "n0", "numa": [0, 1]}],
    }
    node = Node.from_dict({"machine": machine_of(2, 2), "devices": devices})
    near_both = pod("near-both", 1)
    near_both["spec"]["containers"][0]["resources"]["limits"]["a/nic"] = "1"
    assert node.admit(near_both).admitted
    assert node.occupancy == NOTHING_HELD
    assert got(node.admit(pod("wide", 1, "Restricted", gpus=2))) == [0, 1]

    assert node.occupancy == Occupancy(multi=0b11)
    assert node.numa_nodes("wide", "c0") == 0b11


def test_best_effort_keeps_away_as_well() -> None:
    """Required is not a preference: a pod that could only mix is refused."""
    node = node_of()
    node.admit(pod("single", 1, "SingleNUMANode"))

    refused = node.admit(pod("wide", 5, "BestEffort", "Required"))

    assert (refused.admitted, refused.reason) == (False, "TopologyAffinityError")
    assert got(node.admit(pod("narrow", 4, "BestEffort", "Required"))) == [1]


def test_best_effort_is_judged_by_what_it_got() -> None:
    """An affinity of one NUMA node does not hold CPUs that did not fit there."""
    node = node_of(numa_nodes=2)
    node.admit(pod("single", 2, "SingleNUMANode"))
    node.admit(pod("other", 3, "BestEffort", gpus=2))
    assert node.occupancy == Occupancy(single=0b01)

    before = node.cpu.free_cpus, node.devices.free
    refused = node.admit(pod("spread", 3, "BestEffort", "Required"))

    assert refused.reason == "TopologyAffinityError"
    assert "'default/single' on NUMA node 0 under SingleNUMANode" in refused.message
    assert before == (node.cpu.free_cpus, node.devices.free)


def test_a_pod_that_is_admitted_goes_back_if_what_it_got_mixes() -> None:
    """Its CPU and its GPU would lie on two NUMA nodes, on the second of which a pod is alone."""
    node = node_of(numa_nodes=3)
    assert node.admit(pod("wide", 6, gpus=2))
    assert node.admit(pod("single", 4, "SingleNUMANode", "Preferred"))
    assert node.occupancy == Occupancy(single=0b010, multi=0b101)

    before = node.cpu.free_cpus, node.devices.free
    refused = node.admit(pod("new", 1, "BestEffort", "Required", gpus=1))

    assert refused.reason == "TopologyAffinityError"
    assert "keeps it away from pod 'default/single' on NUMA node 1" in refused.message
    assert before == (node.cpu.free_cpus, node.devices.free)
    assert node.admit(pod("new", 1, "BestEffort", "Preferred", gpus=1))


@pytest.mark.parametrize(
    ("resident", "new", "where"),
    [
        (("a", 1, "SingleNUMANode"), ("b", 5, "Restricted"), "on NUMA node 0 under SingleNUMANode"),
        (("a", 5, "Restricted"), ("b", 1, "SingleNUMANode"), "across NUMA nodes 0+1"),
    ],
)
def test_a_refusal_names_exclusivity_and_the_pod(resident: Any, new: Any, where: str) -> None:
    node = node_of()
    node.admit(pod(*resident))

    assert node.admit(pod(*new)).message == (
        "pod: exclusivity (singleNUMANodeExclusive Required) keeps it away from pod 'default/a' "
        f"{where}"
    )


@given(STEPS, st.sampled_from(["none", "none", "single-numa-node", "restricted", "best-effort"]))
def test_no_pod_ever_mixes_that_must_not(steps: Any, policy: str) -> None:
    """Where every pod is Required; and if those that a refusal names are gone, the pod comes in."""
    node = node_of(policy, numa_nodes=3)
    for number, (cpus, pod_policy, exclusive, gpus, leaving) in enumerate(steps):
        if 0 <= leaving < len(node.pods):
            node.remove(node.pods[leaving].uid)
        before = node.occupancy
        new = pod(str(number), cpus, pod_policy, exclusive, gpus=gpus)
        admission = node.admit(new)
        single = pod_policy == "SingleNUMANode"
        if admission.admitted and pod_policy and not exclusive:
            node_now = node.numa_nodes(str(number), "c0")
            assert not mixes(node_now, before, single=single), admission

        if "exclusivity" in admission.message:
            assert exclusive == ""
            for name in re.findall(r"pod 'default/(\d+)'", admission.message):
                node.remove(name)
            assert "more" in admission.message or node.admit(new).admitted


def test_a_refusal_for_another_cause_does_not_name_exclusivity() -> None:
    node = node_of()
    node.admit(pod("single", 3, "SingleNUMANode"))

    assert "exclusivity" not in node.admit(pod("large", 5, "SingleNUMANode")).message


def test_single_node_pods_attract_each_other() -> None:
    """A node that such a pod holds comes before a lower one.

    So room remains for pods across nodes.
    """
    node = node_of(numa_nodes=4)
    for uid, cpus in (("filler", 4), ("single", 1)):
        node.admit(pod(uid, cpus, "SingleNUMANode"))
    node.remove("filler")
    assert node.occupancy == Occupancy(single=0b0010)

    for exclusive in ("Required", "Preferred"):
        assert got(node.admit(pod(exclusive, 1, "SingleNUMANode", exclusive))) == [1]
    assert got(node.admit(pod("large", 4, "SingleNUMANode"))) == [0]
    assert got(node.admit(pod("wide", 5, "Restricted"))) == [2, 3]


def test_a_pod_in_the_shared_pool_holds_nothing() -> None:
    """And is kept away from nobody: it is bound to no NUMA node."""
    shared = pod("shared", 1, "Restricted")
    shared["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": "1"},
        "limits": {"cpu": "2"},
    }
    node = node_of()

    assert node.admit(shared).admitted
    assert node.occupancy == NOTHING_HELD
    assert node.admit(pod("single", 1, "SingleNUMANode")).admitted
    shared["metadata"]["uid"] = "more"
    assert node.admit(shared).admitted


def test_a_pod_without_annotations_has_no_ruling() -> None:
    node = node_of()
    options = node.config.topology_manager_policy_options
    policies = PodPolicies(node.manager, node.machine, options, node.numa_nodes)

    assert policies.ruling(Pod("u", "p")) is None
    policies.removed("never there")


def labelled(label: str, policy: str = "none", **more: Any) -> Node:
    """Return a node of two NUMA nodes with a label of its policy."""
    kubelet = {"topologyManagerPolicy": policy, "cpuManagerPolicy": "static"}
    return Node.from_dict(
        {
            "machine": machine_of(2, 2),
            "kubelet": kubelet,
            "labels": {LABEL: label, "zone": "a"},
            **more,
        }
    )


def test_a_label_is_the_nodes_policy() -> None:
    """Silent pods run under it; pods of another policy are refused, those of the same come in."""
    node = labelled("SingleNUMANode")

    assert node.labels == {LABEL: "SingleNUMANode", "zone": "a"}
    assert got(node.admit(pod("silent", 3))) == [0]
    assert node.admit(pod("large", 5)).reason == "TopologyAffinityError"
    assert got(node.admit(pod("same", 3, "SingleNUMANode"))) == [1]
    refused = node.admit(pod("other", 1, "Restricted"))
    assert refused.reason == "UnschedulableAndUnresolvable"
    assert "the node has single-numa-node" in refused.message


@pytest.mark.parametrize(
    ("label", "kubelet", "policy", "scope"),
    [
        ("SingleNUMANode", "none", "single-numa-node", "pod"),
        ("Restricted", "single-numa-node", "restricted", "pod"),
        ("BestEffort", "none", "best-effort", "pod"),
        ("Restricted", "restricted", "restricted", "container"),
        ("", "restricted", "restricted", "container"),
        ("", "none", "none", "none"),
    ],
)
def test_a_label_overrides_the_kubelets_policy(
    label: str, kubelet: str, policy: str, scope: str
) -> None:
    """An empty label is none; under the policy of a label pods are judged as a whole."""
    node = labelled(label, kubelet)

    assert (node.manager.policy.name, node.scope_name) == (policy, scope)


@pytest.mark.parametrize("label", ["single-numa-node", "None", "Bogus"])
def test_an_unknown_label_is_an_error(label: str) -> None:
    with pytest.raises(InputError, match=rf'got {label!r} at metadata.labels\["{LABEL}"\]'):
        labelled(label)


def test_labels_are_strings() -> None:
    with pytest.raises(InputError, match=r'expected a string, got 3 at labels\["a"\]'):
        Node.from_dict({"machine": machine_of(2, 2), "labels": {"a": 3}})


def test_the_default_of_exclusivity_is_configurable() -> None:
    """It holds for pods that name a policy and no exclusivity.

    The argument of the scheduler does so, too.
    """
    for default, expected in (("Required", None), ("Preferred", [0, 1])):
        node = labelled("", singleNUMANodeExclusive=default)
        assert got(node.admit(pod("single", 1, "SingleNUMANode"))) == [0]
        assert got(node.admit(pod("wide", 5, "Restricted"))) == expected
        assert node.admit(pod("own", 5, "Restricted", "Required")).admitted is False


def test_an_unknown_default_of_exclusivity_is_an_error() -> None:
    with pytest.raises(
        InputError, match="expected 'Required' or 'Preferred', got 'Always' at singleNUMANodeEx"
    ):
        labelled("", singleNUMANodeExclusive="Always")


def test_an_unknown_default_of_exclusivity_is_an_error_without_labels_too() -> None:
    with pytest.raises(
        InputError, match="expected 'Required' or 'Preferred', got 'Always' at singleNUMANodeEx"
    ):
        Node(machine_of(2, 2), single_numa_node_exclusive="Always")


@pytest.mark.parametrize(
    ("policy", "containers", "expected"),
    [
        ("single-numa-node", [(0b01, hint(True, 0))], Occupancy(single=0b01)),
        (
            "single-numa-node",
            [(0b01, hint(True, 0)), (0b10, hint(True, 1))],
            Occupancy(single=0b11),
        ),
        ("single-numa-node", [(0, hint(True, 1))], Occupancy(single=0b10)),
        ("single-numa-node", [(0, hint(True))], NOTHING_HELD),
        ("restricted", [(0b011, hint(True, 0, 1))], Occupancy(multi=0b11)),
        ("restricted", [(0b001, hint(True, 0, 1))], Occupancy(multi=0b11)),
        ("restricted", [(0b01, hint(True, 0)), (0b10, hint(True, 1))], NOTHING_HELD),
        ("restricted", [(0, hint(True, 0, 1, 2))], NOTHING_HELD),
        ("restricted", [(0, hint(True, 0, 1))], Occupancy(multi=0b011)),
        ("best-effort", [(0b010, hint(False, 0, 1, 2))], NOTHING_HELD),
        ("best-effort", [(0b110, hint(False, 1))], Occupancy(multi=0b110)),
        ("none", [(0b01, None), (0b10, None)], Occupancy(multi=0b11)),
        ("none", [(0b01, None), (0b00, None)], NOTHING_HELD),
    ],
)
def test_what_a_pod_holds(policy, containers, expected):
    """By what its containers got, and by affinities that say so.

    A pod in one node by chance holds nothing.
    """
    assert pod_occupancy(policy, containers, 0b111) == expected
