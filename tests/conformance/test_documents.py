"""What the design documents say, from their own figures.

And where the kubelet does otherwise, which one is followed.

Each test pins a line of docs/documents.md.
"""

from __future__ import annotations

from itertools import product
from math import prod

import pytest

from alignup import explain, read_pod
from alignup.errors import ConfigError, InputError
from alignup.kubernetes.kubelet_config import KubeletConfig
from alignup.kubernetes.node_fit import requests_of
from alignup.machine.load import load_machine
from alignup.node import Node
from alignup.topology_manager.hints import BitMask, HintList, TopologyHint
from alignup.topology_manager.policy import make_policy
from inputs.machines import machine_of
from models.topology_manager import merged_permutation, pair

CPU = (("01", True), ("10", True), ("11", False))
GPU = NIC = (("01", True), ("10", True))
"""The hints of the article's Container0, as it prints them."""

TWELVE_ROWS = [
    ("01", "01", "01", "01", True),
    ("01", "01", "10", "00", False),
    ("01", "10", "01", "00", False),
    ("01", "10", "10", "00", False),
    ("10", "01", "01", "00", False),
    ("10", "01", "10", "00", False),
    ("10", "10", "01", "00", False),
    ("10", "10", "10", "10", True),  # the article prints 01 as the result, a misprint
    ("11", "01", "01", "01", False),
    ("11", "01", "10", "00", False),
    ("11", "10", "01", "00", False),
    ("11", "10", "10", "10", False),
]
"""The article's cross product: the hints of CPU, GPU and NIC, and the merged hint."""

ALIGNING = ["best-effort", "restricted", "single-numa-node"]

SINGLE = '{"numaTopologyPolicy": "SingleNUMANode"}'


def hints(pairs):
    """Return hints from masks as the documents print them, the lowest NUMA node last.

    None: no mask.
    """
    return [
        TopologyHint(None if mask is None else BitMask.from_int(int(mask, 2)), preferred)
        for mask, preferred in pairs
    ]


def merged(policy, *lists, numa_nodes=2):
    """Return (mask as printed, preferred, admitted) of one list of hints for each resource."""
    offered = {f"r{number}": hints(pairs) for number, pairs in enumerate(lists)}
    best, admit = make_policy(policy, numa_nodes).merge([offered])
    mask = None
    if best.affinity is not None:
        mask = f"{int(best.affinity):0{numa_nodes}b}"

    return mask, best.preferred, admit


def test_the_articles_cross_product_has_its_twelve_rows():
    rows = []
    for cpu, gpu, nic in product(CPU, GPU, NIC):
        mask, preferred = merged_permutation(
            [(int(mask, 2), is_best) for mask, is_best in (cpu, gpu, nic)], 0b11
        )
        rows.append((cpu[0], gpu[0], nic[0], f"{mask:02b}", preferred and mask != 0))
    assert rows == TWELVE_ROWS


@pytest.mark.parametrize("policy", ALIGNING)
def test_all_policies_admit_the_articles_example(policy):
    """In the example, the pod would be admitted by all policies with a hint of {01: True}."""
    assert merged(policy, CPU, GPU, NIC) == ("01", True, True)


def test_the_kubelets_hints_of_the_article_make_27_rows():
    """Its device manager offers {11, False} too.

    That follows the article's own rule of one hint for every possible mask.
    """
    loaded = load_machine("align-up-article")
    node = Node(
        loaded.machine, {**loaded.kubelet, "topologyManagerPolicy": "restricted"}, loaded.devices
    )
    pod = read_pod(loaded.pods[0])

    lists = [
        offered
        for provider in node.manager.providers
        for offered in (provider.topology_hints(pod, pod.containers[0]) or {}).values()
    ]
    assert [[pair(hint) for hint in hints] for hints in lists] == [
        [(1, True), (2, True), (3, False)]
    ] * 3
    assert prod(len(hints) for hints in lists) == 27
    best, admit = make_policy("restricted", 2).merge(
        [{str(i): hints for i, hints in enumerate(lists)}]
    )
    assert (pair(best), admit) == ((1, True), True)


def test_the_article_allocates_container_by_container():
    """Container0 gets {cpu: {0, 1}, gpu: 0, nic: 0}, Container1 {cpu: {4, 5}, gpu: 1, nic: 1}."""
    loaded = load_machine("align-up-article")
    admission = Node(loaded.machine, loaded.kubelet, loaded.devices).admit(loaded.pods[0])
    got = [
        (str(allocation.cpus), *(ids for (ids,) in allocation.devices.values()))
        for allocation in admission.containers.values()
    ]
    assert got == [("0-1", "nic0", "gpu0"), ("4-5", "nic1", "gpu1")]


@pytest.mark.parametrize(("policy", "admitted"), [("best-effort", True), ("restricted", False)])
def test_preferred_hints_of_different_masks_merge_to_one_that_is_not(policy, admitted):
    """{01: True} x {11: True}: preferred by article and KEP, since all hints are.

    Not so for the kubelet.
    """
    assert merged(policy, [("01", True)], [("11", True)]) == ("01", False, admitted)


def test_the_default_hint_of_single_numa_node_has_no_mask():
    """The KEP says all NUMA nodes, the kubelet none; not preferred and refused for both."""
    assert merged("single-numa-node", [("11", True)]) == (None, False, False)
    assert merged("restricted", []) == ("11", False, False)


def test_single_numa_node_drops_a_mask_of_all_nodes():
    """On a machine of one NUMA node, and for a pod without any preference.

    Admitted, and bound to nothing.
    """
    assert merged("single-numa-node", [("1", True)], numa_nodes=1) == (None, True, True)
    assert merged("single-numa-node", [(None, True)]) == (None, True, True)
    assert merged("restricted", [(None, True)]) == ("11", True, True)


def test_of_hints_that_are_not_preferred_the_narrowest_is_not_always_best():
    """The article takes the narrowest.

    The kubelet one as wide as the resource that needs most, if there is one.
    """
    lists = [("0011", False), ("0110", False)], [("0011", False), ("0010", False)]
    assert merged("best-effort", *lists, numa_nodes=4) == ("0011", False, True)


def test_an_empty_mask_is_never_the_best_hint():
    """{01: True} x {10: True} is {00: False} in the article; the default hint beats it."""
    assert merged("best-effort", [("01", True)], [("10", True)]) == ("11", False, True)
    assert merged("restricted", [("01", True)], [("10", True)]) == ("11", False, False)


def test_packed_lists_say_the_same():
    """Whether hints come as plain sequences or packed changes nothing."""
    best, _ = make_policy("restricted", 2).merge([{"cpu": HintList(hints(CPU)), "gpu": hints(GPU)}])
    assert pair(best) == (1, True)


def article_pod(requests, limits=None, annotation=None, devices=None):
    """Return a pod of one container."""
    resources = {
        "requests": {**requests, **(devices or {})},
        "limits": {**(limits or {}), **(devices or {})},
    }
    metadata = {"name": "p"}
    if annotation is not None:
        metadata["annotations"] = {"scheduling.koordinator.sh/numa-topology-spec": annotation}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c", "resources": resources}]}}


@pytest.mark.parametrize(
    ("release", "not_preferred"),
    [("1.29", 3), ("1.35", 3), ("1.36", 0)],
    ids=["1.29", "1.35", "1.36"],
)
def test_the_articles_four_hints_by_release(release, not_preferred):
    node = Node.from_dict(
        {
            "machine": machine_of(4, 2),
            "kubelet": {"topologyManagerPolicy": "best-effort"},
            "devices": {"a/b": [{"id": "x", "numa": 0}, {"id": "y", "numa": 1}]},
            "kubeletVersion": release,
        }
    )
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"a/b": "2"}}}]},
    }

    [part] = explain(node, pod, suggest=False).resources
    assert part.offered.preferred == ((0, 1),)
    assert part.offered.other == ((0, 1, 2), (0, 1, 3), (0, 1, 2, 3))[:not_preferred]


def test_the_keps_example_has_no_limits_and_so_no_cpus_of_its_own():
    def container(name, cpu, memory):
        return {"name": name, "resources": {"requests": {"cpu": cpu, "memory": memory}}}

    spec = {
        "containers": [container("appContainer1", 2, "1G"), container("appContainer2", 1, "1G")],
        "initContainers": [
            container("initContainer1", 2, "1G"),
            container("initContainer2", 2, "3G"),
        ],
    }
    pod = read_pod({"metadata": {"name": "example"}, "spec": spec})
    assert requests_of(pod) == {"cpu": 3000, "memory": 3 * 10**9}
    assert (pod.qos, pod.exclusive_cpus, pod.memory) == ("Burstable", 0, ())


def test_one_provider_is_enough_to_refuse():
    kubelet = {"topologyManagerPolicy": "single-numa-node", "cpuManagerPolicy": "static"}
    node = Node.from_dict(
        {"machine": machine_of(2, 2), "kubelet": {**kubelet, "reservedSystemCPUs": "0"}}
    )
    amounts = {"cpu": "5", "memory": "1Gi"}
    assert node.admit(article_pod(amounts, amounts)).reason == "TopologyAffinityError"


@pytest.mark.parametrize("release", ["1.29", "1.36"])
def test_there_is_no_gate_topology_manager(release):
    with pytest.raises(ConfigError, match="unrecognized feature gate: TopologyManager"):
        KubeletConfig.from_dict(
            {"featureGates": {"TopologyManager": True}}, version=release, option_gates_on=False
        )


def test_a_cpu_that_two_numa_nodes_list_belongs_to_the_first():
    described = machine_of(2, 1)
    described["numaNodes"][1]["cores"].append(described["numaNodes"][0]["cores"][0])
    described["overlappingCpus"] = described["numaNodes"][0]["cores"][0]["cpus"]
    node = Node(described)
    assert [bits.bit_count() for bits in node.machine.node_cpus] == [2, 2]


def koordinated():
    loaded = load_machine("align-up-article")
    kubelet = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
    return Node(loaded.machine, kubelet, loaded.devices)


def test_koordinators_first_example_has_no_memory_and_so_no_cpu_of_its_own():
    [got] = koordinated().admit(article_pod({"cpu": 1}, {"cpu": 1}, SINGLE)).containers.values()
    assert got.cpus is None
    whole = {"cpu": 1, "memory": "1Gi"}
    [got] = koordinated().admit(article_pod(whole, whole, SINGLE)).containers.values()
    assert len(got.cpus) == 1


def test_koordinators_third_example_aligns_its_gpu_only():
    gpu = {"nvidia.com/gpu": 1}
    [got] = (
        koordinated().admit(article_pod({"cpu": 1}, {"cpu": 1}, SINGLE, gpu)).containers.values()
    )
    assert (got.cpus, len(got.devices["nvidia.com/gpu"])) == (None, 1)
    assert got.affinity.affinity.count() == 1


def test_koordinators_trailing_comma_is_an_error():
    with pytest.raises(InputError, match="trailing comma"):
        koordinated().admit(
            article_pod({"cpu": 1}, {"cpu": 1}, '{"numaTopologyPolicy": "SingleNUMANode",}')
        )
