"""Why a pod is admitted or refused.

The sentence, what it rests on, and a node that stays as it is.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from alignup import explain, read_kubelet_node, read_machine, read_pod
from alignup.cluster.ranking import short_cause
from alignup.errors import AllocationError, InputError, PodExistsError
from alignup.machine.load import catalog_entries
from alignup.node import Node
from alignup.node.holdings import holdings_of
from fakes.hint_providers import Licences, Saying, hint
from inputs.claims_on_nodes import node_with_claims, pod_with_claim
from inputs.kernel_trees import server
from inputs.kubelet_files import CONFIG, guaranteed, write_node, write_root
from inputs.machines import busy_node, machine_of, manifest
from inputs.refusals import GPU, article, in_conflict, wish
from inputs.small_claims import class_of, slice_of, template


def test_what_was_asked_free_and_held_and_offered() -> None:
    explanation = explain(in_conflict(), wish("new", cpu="2", **{GPU: "1"}))
    [cpu] = [part for part in explanation.resources if part.resource == "cpu"]

    assert (cpu.asked, cpu.free, cpu.unit) == (2, 3, "CPUs")
    assert [(place.numa_nodes, place.free) for place in cpu.places] == [((0,), 3), ((1,), 0)]
    assert [(holder.pod, holder.container, holder.amount) for holder in cpu.places[1].holders] == [
        ("default/batch", "main", 4)
    ]
    assert cpu.offered.preferred == ((0,),)
    assert [neighbour.pod for neighbour in explanation.neighbours] == [
        "default/trainer",
        "default/batch",
    ]
    memory = next(part for part in explanation.resources if part.resource == "memory")
    assert (memory.provider, memory.offered, memory.places) == ("", None, ())


def test_earlier_containers_of_the_pod_count_as_holders() -> None:
    node = article()
    pod = wish("two", cpu="3")
    pod["spec"]["containers"] += [
        {**pod["spec"]["containers"][0], "name": "second"},
        {**pod["spec"]["containers"][0], "name": "third"},
    ]
    explanation = explain(node, pod)

    assert explanation.container == "third"
    assert explanation.cause == (
        "container 'third' never fits this node: 3 cpu asked, the machine has 8, of which the "
        "pod's other containers "
        "take 6"
    )
    cpu = explanation.resources[0]
    assert [holder.container for place in cpu.places for holder in place.holders] == [
        "main",
        "second",
    ]
    assert [
        str(container.got.cpus) if container.got else None for container in explanation.containers
    ] == [
        "0-2",
        "4-6",
        None,
    ]


def test_memory_groups_name_the_pods_that_tie_them() -> None:
    node = busy_node()
    node.admit(manifest("wide", 9, 40, 3))
    explanation = explain(node, manifest("x", 1, 1, 0))
    memory_groups = explanation.to_dict()["memoryGroups"]

    assert memory_groups == [{"numaNodes": [0, 1], "pods": ["default/wide"], "usable": True}]


def test_an_explanation_is_plain_json_with_the_promised_keys() -> None:
    facts = explain(in_conflict(), wish("new", cpu="2", **{GPU: "1"})).to_dict()

    assert json.loads(json.dumps(facts)) == facts
    promised = [
        "admitted",
        "reason",
        "cause",
        "container",
        "policy",
        "scope",
        "resources",
        "suggestions",
    ]
    assert facts["version"] == 1
    assert set(promised) <= facts.keys()
    assert "product" not in facts["steps"][0]


def test_the_node_stays_as_it_is() -> None:
    """Pods, holdings, and memory bindings that a refusal would leave."""
    node = busy_node()
    node.admit(manifest("wide", 9, 40, 3))
    before, groups = holdings_of(node), node.memory.ledger.groups
    for new_pod in (manifest("x", 3, 40, 1), manifest("y", 99, 99, 9), manifest("z", 1, 1, 1)):
        explain(node, new_pod)

    assert (holdings_of(node), node.memory.ledger.groups) == (before, groups)
    assert [pod.uid for pod in node.pods] == ["wide"]


def test_a_pod_is_taken_as_well_as_a_manifest() -> None:
    node, new_pod = in_conflict(), wish("new", cpu="2", **{GPU: "1"})

    assert explain(node, read_pod(new_pod)).to_dict() == explain(node, new_pod).to_dict()


def test_bad_input_is_refused_as_everywhere() -> None:
    node = in_conflict()
    with pytest.raises(PodExistsError):
        explain(node, wish("trainer", cpu="1"))
    with pytest.raises(InputError, match=r"spec\.containers"):
        explain(node, {"metadata": {"name": "x"}, "spec": {}})
    assert len(node.pods) == 2


def test_policy_none_and_no_managers() -> None:
    node = Node.from_dict({"machine": machine_of(2, 2), "kubelet": {}})
    explanation = explain(node, wish("x", cpu="2"))

    assert explanation.cause == "admitted; policy none aligns nothing"
    assert explanation.steps[0].best is None
    assert explanation.containers[0].shared_because == (
        "the CPU manager's policy is none, so no container gets CPUs of its own"
    )


class Seats:
    """Has no name of its own and no hints, and fails for want of the resources that it is told."""

    def __init__(self, resources: tuple[str, ...]) -> None:
        self.resources = resources

    def topology_hints(self, pod, container) -> None:
        """Prefer nothing."""

    def pod_topology_hints(self, pod) -> None:
        """Prefer nothing."""

    def allocate(self, pod, container, affinity) -> None:  # noqa: ARG002  # the protocol's
        if set(dict(container.devices)) & {"example.com/seat", "example.com/desk"}:
            raise AllocationError("the office is full", resources=self.resources)

    def release(self, pod_uid, container_name) -> None:
        """Hold nothing."""

    def copy(self) -> Seats:
        return self


@pytest.mark.parametrize("policy", ["none", "single-numa-node"])
@pytest.mark.parametrize(
    ("named", "blamed", "sentence"),
    [
        (("example.com/seat",), ("example.com/seat",), "too little seat is left to allocate"),
        (("example.com/seat", "example.com/desk"),) * 2
        + ("too little seat and desk is left to allocate",),
        ((), (), "too little is left to allocate"),
    ],
)
def test_the_resources_that_a_users_provider_names_are_blamed(
    policy, named, blamed, sentence
) -> None:
    """And what it does not name is no guess, nor taken for the policy that a pod brings."""
    node = Node.from_dict(
        {
            "machine": machine_of(2, 2),
            "kubelet": {
                "topologyManagerPolicy": policy,
                "cpuManagerPolicy": "static",
                "reservedSystemCPUs": "0",
            },
        },
        providers=[Seats(named)],
    )
    pod = read_pod(wish("x", cpu="1", **dict.fromkeys(blamed or ("example.com/desk",), "1")))

    assert explain(node, pod).blamed == blamed
    assert explain(node, pod).cause == "the office is full"
    assert short_cause(node, pod) == sentence
    assert node.try_admit(pod).refusal.provider == "Seats"


@pytest.mark.parametrize("copyable", [True, False])
def test_a_users_provider_takes_part(copyable: bool) -> None:
    """Where it has no copy, it is asked itself and gets back what it gave."""
    licences = Licences([0, 1])
    if copyable:
        licences.copy = lambda: Licences(list(licences.free))

    node = Node.from_dict(
        {
            "machine": machine_of(2, 2),
            "kubelet": {"topologyManagerPolicy": "single-numa-node", "cpuManagerPolicy": "static"},
        },
        providers=[licences],
    )
    node.cpu.ledger.give(0b11001100)  # all of node 1

    explanation = explain(node, wish("x", cpu="1"))

    assert not explanation.admitted
    assert explanation.cause == (
        "cpu fits only on NUMA node 0, licences only on NUMA node 1; single-numa-node needs both "
        "on one NUMA node"
    )
    assert licences.free == [0, 1]
    assert explain(node, wish("x")).admitted
    assert licences.free == [0, 1]


def test_a_users_provider_that_fails_to_allocate() -> None:
    node = Node.from_dict(
        {"machine": machine_of(2, 2), "kubelet": {"topologyManagerPolicy": "restricted"}},
        providers=[Licences([1, 1], fails_for="main"), Saying({"a": [hint(True, 0)]})],
    )
    explanation = explain(node, wish("x"))

    assert explanation.cause == "the licence server is down"
    assert explanation.reason == "UnexpectedAdmissionError"


def test_a_pods_own_policy() -> None:
    node = Node.from_dict(
        {
            "machine": machine_of(2, 2),
            "kubelet": {"topologyManagerPolicy": "restricted", "cpuManagerPolicy": "static"},
        }
    )
    manifest = wish("x", cpu="1")
    spec = '{"numaTopologyPolicy": "SingleNUMANode"}'
    manifest["metadata"]["annotations"] = {"scheduling.koordinator.sh/numa-topology-spec": spec}
    explanation = explain(node, manifest)

    assert explanation.cause_kind == "pod policy"
    assert explanation.cause == node.try_admit(manifest).message.partition(": ")[2]
    bare = Node.from_dict({"machine": machine_of(2, 2), "kubelet": {"cpuManagerPolicy": "static"}})
    explanation = explain(bare, {**manifest, "spec": wish("x", cpu="5")["spec"]})
    assert (explanation.policy, explanation.scope) == ("single-numa-node", "pod")
    assert "no NUMA node has 5 cpu (at most 4)" in explanation.cause


def test_more_than_eight_numa_nodes() -> None:
    options = {"max-allowable-numa-nodes": "34"}
    node = Node.from_dict(
        {
            "machine": machine_of(12, 2),
            "kubelet": {
                "topologyManagerPolicy": "single-numa-node",
                "topologyManagerPolicyOptions": options,
                "cpuManagerPolicy": "static",
            },
        }
    )
    explanation = explain(node, wish("x", cpu="5"))

    assert "no NUMA node has 5 cpu (at most 4)" in explanation.cause
    assert explanation.steps[-1].product.count > 200
    assert len(explanation.steps[-1].product.rows) == 200
    json.dumps(explanation.to_dict(product=True))


@pytest.mark.parametrize("version", ["1.30", "1.33", "1.36"])
def test_other_kubelets(version: str) -> None:
    """Which tell the devices near other nodes, and read other pods."""
    entry = catalog_entries()["align-up-article"]
    node = Node(entry.machine, entry.kubelet, entry.devices, kubelet_version=version)
    for resident in (wish("trainer", cpu="1", **{GPU: "1"}), wish("batch", cpu="4")):
        assert node.admit(resident)

    explanation = explain(node, wish("new", cpu="2", **{GPU: "1"}))

    assert explanation.cause.startswith(f"{GPU} fits only on NUMA node 1, cpu only on NUMA node 0")
    assert {suggestion.kind for suggestion in explanation.suggestions} == {
        "kubelet",
        "plugin",
        "remove",
        "request",
    }


def test_who_does_not_ask_pays_nothing() -> None:
    """An admission, a refusal and its sentence import nothing of this room."""
    program = (
        "import sys\n"
        "from alignup import Node, read_machine\n"
        "kubelet = {'topologyManagerPolicy': 'single-numa-node', 'cpuManagerPolicy': 'static'}\n"
        "node = Node(read_machine('xeon-2s'), kubelet)\n"
        "limits = {'cpu': '9999', 'memory': '1Gi'}\n"
        "spec = {'containers': [{'name': 'c', 'resources': {'limits': limits}}]}\n"
        "assert not node.admit({'metadata': {'name': 'p'}, 'spec': spec})\n"
        "assert node.try_admit({'metadata': {'name': 'p'}, 'spec': spec}).message\n"
        "print([name for name in sys.modules if name.startswith(('alignup.explanations', "
        "'alignup.node.holdings'))])"
    )

    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_the_node_of_a_kubelet(tmp_path) -> None:
    """Its pods are named as the kubelet's files name them.

    A new one is explained beside them.
    """
    root = write_root(tmp_path / "root", server(cores=4, nodes=4, memory=8 << 20))
    pods = (
        guaranteed("a", (1, 1), (1, 2)),
        guaranteed("b", (2, 3), init=[(3, 4)]),
        guaranteed("c", (1, 10)),
    )
    node = Node(read_machine(root), CONFIG)
    for resident in pods:
        assert node.admit(resident)

    read = read_kubelet_node(write_node(root, node, pods))
    explanation = explain(read, guaranteed("x", (99, 1)))

    assert explanation.cause.startswith("never fits this node: 99 cpu asked, the machine has 15")
    assert {neighbour.pod for neighbour in explanation.neighbours} == {
        "default/a",
        "default/b",
        "default/c",
    }
    assert [pod.uid for pod in read.pods] == ["uid-a", "uid-b", "uid-c"]


@pytest.mark.parametrize("policy", ["single-numa-node", "none"])
def test_a_pod_that_is_far_from_its_claims_is_not_told_as_aligned(policy: str) -> None:
    node = node_with_claims([slice_of([1, 1, 0]), class_of(), template()], policy=policy)
    far = explain(node, pod_with_claim("far", cpu=2))
    near_node = node_with_claims([slice_of([0]), class_of(), template()], policy=policy)
    near = explain(near_node, pod_with_claim("near", cpu=2))

    assert far.admitted
    assert "the devices of its claims are near NUMA node 1" in far.cause
    assert "claims" not in near.cause
    if policy == "none":
        return

    assert far.cause_kind == "missed"
    assert "not aligned with its claims: it is on NUMA node 0" in far.cause
    assert near.cause_kind == "aligned"
    hints = node_with_claims([slice_of([1]), class_of(), template()], hints=True)
    assert explain(hints, pod_with_claim(cpu=2)).cause == "admitted, aligned on NUMA node 1"
