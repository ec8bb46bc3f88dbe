"""A node is a machine and a configuration, wired.

Who is asked, in which order, and what is refused.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from alignup import explain, read_machine, read_pod
from alignup.errors import AlignupWarning, ConfigError, InputError, PodExistsError, UnknownPodError
from alignup.kubernetes.kubelet_config import KubeletConfig
from alignup.machine.cpuset import CPUSet
from alignup.machine.load import catalog_entries
from alignup.machine.machine import Machine
from alignup.node import Node
from alignup.replay import RecordingProvider
from alignup.topology_manager.hints import BitMask, HintList, TopologyHint
from alignup.topology_manager.provider import HintProvider
from fakes.hint_providers import Licences, hint
from inputs.machines import GIBI, busy_node, machine_of, manifest

KUBELET = {
    "topologyManagerPolicy": "restricted",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
}
DEVICES = {
    "a/gpu": [{"id": "gpu0", "numa": [0]}, {"id": "gpu1", "numa": [1]}, {"id": "gpu2", "numa": [1]}]
}


def description(**changes: Any) -> dict[str, Any]:
    """Return what `Node.from_dict` takes."""
    return {"machine": machine_of(2, 2), "kubelet": KUBELET, "devices": DEVICES, **changes}


def pod(uid: str = "p", **limits: str) -> dict[str, Any]:
    resources = {"limits": {"cpu": "1", "memory": "1Gi", **limits}}
    return {
        "metadata": {"name": uid, "uid": uid},
        "spec": {"containers": [{"name": "c0", "image": "i", "resources": resources}]},
    }


def test_the_articles_example() -> None:
    """Two containers side by side on a NUMA node each; a third one does not fit."""
    entry = catalog_entries()["align-up-article"]
    node = Node.from_dict(
        {"machine": entry.machine.to_dict(), "kubelet": entry.kubelet, "devices": entry.devices}
    )
    [example] = entry.pods

    admission = node.admit(example)

    first, second = admission.containers.values()
    assert (str(first.cpus), first.affinity) == ("0-1", hint(True, 0))
    assert first.devices == {"example.com/nic": ("nic0",), "nvidia.com/gpu": ("gpu0",)}
    assert (str(second.cpus), second.affinity) == ("4-5", hint(True, 1))
    assert second.devices == {"example.com/nic": ("nic1",), "nvidia.com/gpu": ("gpu1",)}
    third = {
        "metadata": {"name": "third"},
        "spec": {"containers": [{**example["spec"]["containers"][0], "name": "third"}]},
    }
    refused = node.admit(third)
    assert (refused.admitted, refused.reason) == (False, "TopologyAffinityError")
    assert "'third'" in refused.message
    assert "nvidia.com/gpu" in refused.message
    assert str(node.shared_cpus) == "2-3,6-7"
    node.remove(node.pods[0].uid)
    assert node.admit(third).containers["third"] == first


def test_without_a_configuration_nothing_is_aligned() -> None:
    """The kubelet's defaults: no static CPUs, no pinned memory, policy none."""
    node = Node(Machine.from_dict(machine_of(2, 2)))
    got = node.admit(pod()).containers["c0"]

    assert node.config == KubeletConfig()
    assert (node.cpu, node.memory, node.devices) == (None, None, None)
    assert (node.scope_name, node.shared_cpus) == ("none", None)
    assert (got.affinity, got.cpus, got.memory, got.devices) == (None, None, (), {})


def test_built_in_providers_come_first_and_in_the_kubelets_order() -> None:
    """Devices, CPUs, memory, and then those of the user."""
    licences = Licences([1, 1])
    node = Node.from_dict(description(), providers=[licences])

    assert [provider.name for provider in node.manager.providers] == [
        "devices",
        "cpu",
        "memory",
        "licences",
    ]
    assert isinstance(licences, HintProvider)


def test_a_users_provider_takes_part() -> None:
    """It narrows the alignment, allocates, refuses, and gets back what it gave."""
    licences = Licences([0, 1])
    node = Node.from_dict(description(), providers=[licences])

    admission = node.admit(pod())

    assert admission.containers["c0"].affinity == hint(True, 1)
    assert CPUSet.parse("2-3,6-7") >= admission.containers["c0"].cpus
    refused = node.admit(pod("q"))
    assert (refused.admitted, refused.reason) == (False, "TopologyAffinityError")
    assert "licences" in refused.message
    node.remove("p")
    assert licences.free == [0, 1]


def test_a_users_provider_can_fail_to_allocate() -> None:
    """What the others gave is taken back."""
    node = Node.from_dict(description(), providers=[Licences([1, 1], fails_for="c0")])
    before = node.cpu.free_cpus, node.memory.free, node.devices.free
    refused = node.admit(pod(**{"a/gpu": "1"}))

    assert (refused.admitted, refused.reason) == (False, "UnexpectedAdmissionError")
    assert refused.message == "container 'c0': the licence server is down"
    assert before == (node.cpu.free_cpus, node.memory.free, node.devices.free)
    assert node.pods == ()


def test_wrapped_providers_are_asked_instead() -> None:
    """Each built-in one, once; the user's own are left alone."""
    wrapped = []

    def wrap(provider: HintProvider) -> HintProvider:
        wrapped.append(RecordingProvider(provider))
        return wrapped[-1]

    node = Node.from_dict(description(), providers=[Licences([1, 1])], wrap=wrap)
    assert node.admit(pod(**{"a/gpu": "1"})).admitted

    assert [recorder.provider for recorder in wrapped] == [node.devices, node.cpu, node.memory]
    assert list(node.manager.providers[:3]) == wrapped
    assert list(wrapped[0].by_container["c0"]) == ["a/gpu"]


def test_plugins_choose_devices() -> None:
    """Those of `preferredSets` before those of the user."""
    calls = []

    class Last:
        def preferred_allocation(
            self, available: list[str], must_include: list[str], size: int
        ) -> list[str]:
            calls.append((sorted(available), list(must_include), size))
            return sorted(available)[-size:]

    with_plugin = Node.from_dict(description(), plugins={"a/gpu": Last()})
    with_sets = Node.from_dict(
        description(preferredSets={"a/gpu": [["gpu1"]]}), plugins={"a/gpu": Last()}
    )
    wish = pod(**{"a/gpu": "1", "cpu": "4"})

    assert with_plugin.admit(wish).containers["c0"].devices == {"a/gpu": ("gpu2",)}
    assert calls == [(["gpu1", "gpu2"], [], 1)]
    assert with_sets.admit(wish).containers["c0"].devices == {"a/gpu": ("gpu1",)}


def test_an_observer_is_told() -> None:
    """Also of pods with a policy of their own."""
    verdicts = []

    class Observer:
        def admission(self, seconds: float, admitted: bool) -> None:
            assert seconds >= 0
            verdicts.append(admitted)

    node = Node.from_dict(description(), observer=Observer())
    node.admit(pod("p"))
    node.admit(pod("q", cpu="9"))

    assert verdicts == [True, False]


def test_pods_come_and_go() -> None:
    """In order; a uid is here once; unknown ones are errors; a record is as good as a manifest."""
    node = Node.from_dict(description())
    node.admit(read_pod(pod("p")))
    node.admit(pod("q"))
    assert [listed.uid for listed in node.pods] == ["p", "q"]
    allocation = node.allocation("p", "c0")

    with pytest.raises(PodExistsError, match="'p'"):
        node.admit(pod("p", cpu="2"))

    assert node.allocation("p", "c0") == allocation
    assert node.allocation("p", "bogus").affinity is None
    assert node.allocation("bogus", "c0").cpus is None
    node.remove("p")
    assert [listed.uid for listed in node.pods] == ["q"]
    for uid in ("p", "bogus", ""):
        with pytest.raises(UnknownPodError):
            node.remove(uid)


def test_a_refused_pod_can_come_again() -> None:
    node = Node.from_dict(description())
    assert not node.admit(pod("p", cpu="9")).admitted
    assert node.admit(pod("p")).admitted


def test_an_admission_names_all_containers() -> None:
    """Init containers too, with what they hold."""
    wish = pod()
    wish["spec"]["initContainers"] = [{**wish["spec"]["containers"][0], "name": "init"}]
    containers = Node.from_dict(description()).admit(wish).containers

    assert list(containers) == ["init", "c0"]
    assert containers["init"].cpus == containers["c0"].cpus == CPUSet([4])
    assert [block.size for block in containers["c0"].memory] == [GIBI]


def test_a_cpu_that_two_nodes_list_is_placed_once() -> None:
    """As with emulated nodes: the first node that lists it has it."""
    described = machine_of(2, 2)
    described["numaNodes"][1]["cores"] += described["numaNodes"][0]["cores"]
    described["overlappingCpus"] = [0, 1, 4, 5]
    node = Node.from_dict(description(machine=described))

    assert node.machine.node_cpus == (0b110011, 0b11001100)
    assert not node.machine.overlapping_cpus


def test_a_number_of_reserved_cpus_is_enough() -> None:
    """The kubelet chooses which, when only the amount is given."""
    kubelet = {"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "1500m"}}
    node = Node.from_dict(description(kubelet=kubelet))

    assert len(node.cpu.allocatable_cpus) == 6
    assert CPUSet([0, 4]).isdisjoint(node.cpu.allocatable_cpus)


def test_more_nodes_than_the_kubelet_allows() -> None:
    """Nine need an option by the kubelet's own name."""
    machine = machine_of(9, 1)
    aligned = {"topologyManagerPolicy": "best-effort"}
    with pytest.raises(ConfigError, match=r"1 to 8 NUMA nodes.*got 9.*max-allowable-numa-nodes"):
        Node.from_dict({"machine": machine, "kubelet": aligned})

    options = {"topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "9"}}
    node = Node.from_dict({"machine": machine, "kubelet": {**aligned, **options}})
    assert node.admit(pod()).containers["c0"].affinity.affinity == BitMask(range(9))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, r'an object with "machine", got None'),
        ([], r'an object with "machine"'),
        ({}, r'an object with "machine"'),
        ({"machine": 3}, r"a mapping, got 3 at machine"),
        ({"machine": {"numaNodes": []}}, r"no CPUs at machine.numaNodes"),
        (description(kubelet=[1]), r"a mapping, got \[1\] at kubelet"),
        (description(kubelet={"topologyManagerPolicy": 3}), r"got 3 at topologyManagerPolicy"),
        (description(devices=3), r"a mapping, got 3 at devices"),
        (
            description(devices={"a/b": [{"id": "x", "numa": ["7"]}]}),
            r"a NUMA node id, got '7' at devices\['a/b'\]\[0\].numa",
        ),
        (
            description(devices={"a/b": [{"id": "x"}, {"id": "x"}]}),
            r"got 'x' at devices\['a/b'\]\[1\].id",
        ),
        (description(preferredSets=3), r"a mapping, got 3 at preferredSets"),
        (
            description(preferredSets={"a/gpu": 3}),
            r"a list of lists.*got 3 at preferredSets\['a/gpu'\]",
        ),
        (
            description(preferredSets={"a/gpu": [["x"]]}),
            r"'a/gpu' \(gpu0, gpu1, gpu2\), got \['x'\] at preferredSets",
        ),
        (description(preferredSets={"a/gpu": [[["x"]]]}), r"got \[\[.*\]\] at preferredSets"),
        (description(preferredSets={"a/nic": [["x"]]}), r"'a/nic' \(\), got \['x'\]"),
    ],
    ids=range(15),
)
def test_descriptions_that_cannot_be(data: Any, expected: str) -> None:
    """One line: what was expected, what came, where."""
    with pytest.raises(InputError, match=expected) as caught:
        Node.from_dict(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kubelet", "expected"),
    [
        ({"topologyManagerPolicy": "bogus"}, "got 'bogus' at topologyManagerPolicy"),
        ({"topologyManagerScope": "bogus"}, "got 'bogus' at topologyManagerScope"),
        (
            {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0,99"},
            r"CPUs of this machine \(0-7\), got '0,99'",
        ),
        ({"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "99"}}, "at most 8 CPUs"),
        ({"memoryManagerPolicy": "Static"}, "reservedMemory"),
        (
            {
                "topologyManagerPolicy": "restricted",
                "topologyManagerPolicyOptions": {"bogus": "true"},
            },
            "got 'bogus' at topologyManagerPolicyOptions",
        ),
    ],
)
def test_configurations_with_which_a_kubelet_would_not_start(
    kubelet: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected):
        Node.from_dict(description(kubelet=kubelet))


def test_manifests_that_are_none_change_nothing() -> None:
    node = busy_node()
    assert node.admit(manifest("p", 2, 1, 1)).admitted
    before = node.cpu.free_cpus, node.memory.free, node.devices.free, node.pods
    for wrong in (None, [], {}, {"kind": "Service"}, pod(cpu="two"), pod(memory="-1"), pod("p")):
        with pytest.raises((InputError, PodExistsError)):
            node.admit(wrong)

    assert before == (node.cpu.free_cpus, node.memory.free, node.devices.free, node.pods)


def test_hints_of_a_users_own_kind_are_fine() -> None:
    """Plain lists and packed ones; any node and none."""

    class Anything(Licences):
        def hints(self) -> Any:
            return {"a": None, "b": [TopologyHint(None, True)], "c": HintList([hint(True, 1)])}

    node = Node.from_dict(description(), providers=[Anything([9, 9])])

    assert node.admit(pod()).containers["c0"].affinity == hint(True, 1)


def test_plain_mappings_make_a_node() -> None:
    """Machine and configuration may be given as they stand in JSON."""
    machine = {"numaNodes": [{"id": 0, "memory": 1 << 30, "cores": [{"cpus": [0], "socket": 0}]}]}

    node = Node(machine, {"topologyManagerPolicy": "restricted"})

    assert node.manager.policy.name == "restricted"
    with pytest.raises(ConfigError):
        Node(machine, {"topologyManagerPolicy": "strict"})


def test_a_machine_of_the_catalog_brings_its_devices_and_configuration() -> None:
    """And what stands beside it wins."""
    node = Node.from_dict({"machine": "dgx-h100"})
    assert len(node.devices.free["nvidia.com/gpu"]) == 8
    assert node.config.topology_manager_policy == "restricted"

    own = Node.from_dict({"machine": "dgx-h100", "devices": {}, "kubelet": {}})
    assert own.devices is None
    assert own.config == KubeletConfig()


@pytest.mark.parametrize("key", ["kublet", "Devices", "preferred_sets", "kubeletConfiguration"])
def test_a_misspelt_key_is_warned_of(key: str) -> None:
    with pytest.warns(
        AlignupWarning, match=f"the key '{key}' of a node is unknown and ignored; did you mean '.*'"
    ):
        Node.from_dict({"machine": "xeon-2s", key: {}})


def test_notes_beside_a_scenario_are_nobody_elses_concern() -> None:
    """Vectors carry what recorded them, and that is no mistake."""
    Node.from_dict({"machine": "xeon-2s", "expect": [], "cause": "", "seed": 3})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("xeon-2s",), "expected a Machine, .* got 'xeon-2s'; read_machine takes names and files"),
        ((3,), "expected a Machine, .* got 3$"),
        ((machine_of(1, 1), "k.yaml"), "expected a KubeletConfig, .* got 'k.yaml'; load_config"),
    ],
    ids=["name", "number", "file"],
)
def test_arguments_of_another_type(arguments: tuple[Any, ...], expected: str) -> None:
    with pytest.raises(TypeError, match=expected):
        Node(*arguments)


def test_what_comes_with_a_machine_is_not_dropped_in_silence() -> None:
    """The constructor takes the machine alone."""
    machine = {**machine_of(1, 1), "devices": {"a/b": [{"id": "x"}]}}
    with pytest.warns(AlignupWarning, match="devices of the machine ignored: Node.from_dict keeps"):
        assert Node(machine).devices is None


def test_a_node_prints_in_one_short_line() -> None:
    node = Node.from_dict({"machine": "xeon-2s"})
    assert repr(node) == "<Node of 2 NUMA nodes, 128 CPUs: policy restricted, 0 pods>"
    node.admit(pod())
    assert repr(node).endswith("1 pod>")


def pod_with_init(uid: str, *init: tuple[str, str], memory: str = "1Gi") -> dict[str, Any]:
    """Return a pod with init containers of so much memory each.

    A name that starts with `side` is a sidecar.
    """
    described = pod(uid, memory=memory)
    containers = described["spec"]["initContainers"] = []
    for name, size in init:
        limits = {"cpu": "1", "memory": size}
        containers.append({"name": name, "resources": {"limits": limits}})
        if name.startswith("side"):
            containers[-1]["restartPolicy"] = "Always"

    return described


def free_memory(node: Node) -> int:
    assert node.memory is not None
    return sum(node.memory.free["memory"]) >> 30


def test_a_started_container_frees_the_memory_of_the_init_containers_before_it() -> None:
    """Sidecars keep theirs, and so do those that come later."""
    kubelet = {**KUBELET, "topologyManagerPolicy": "none"}
    node = Node.from_dict(description(machine=machine_of(2, 8), kubelet=kubelet, devices={}))
    everything = free_memory(node)
    assert node.admit(pod_with_init("p", ("i0", "9Gi"), ("side", "2Gi"), ("i1", "3Gi"))).admitted
    before = free_memory(node)
    copied = node.copy()

    node.started("p", "i0")
    assert free_memory(node) == before
    node.started("p", "side")
    after_first = free_memory(node)
    assert before < after_first
    assert node.allocation("p", "i0").memory == ()
    node.started("p", "c0")
    node.started("p", "c0")
    assert after_first <= free_memory(node) == everything - 3
    assert node.allocation("p", "side").memory != ()

    assert free_memory(copied) == before
    node.remove("p")
    copied.remove("p")
    assert free_memory(node) == free_memory(copied) == everything


def test_only_a_container_of_an_admitted_pod_starts() -> None:
    node = Node.from_dict(description())
    node.admit(pod())

    with pytest.raises(UnknownPodError, match="no pod of uid 'q' is admitted"):
        node.started("q", "c0")
    with pytest.raises(InputError, match=r"a container of the pod \(c0\), got 'c9' at container"):
        node.started("p", "c9")


def test_without_a_memory_manager_a_started_container_changes_nothing() -> None:
    node = Node(Machine.from_dict(machine_of(2, 2)))
    node.admit(pod_with_init("p", ("i0", "1Gi")))

    node.started("p", "c0")


def test_memory_that_is_no_whole_number_of_bytes_is_refused_under_static() -> None:
    """Once it is to be allocated, as in the kubelet.

    The hints of a Topology Manager do not see it.
    """
    node = Node.from_dict(description())
    refused = node.admit(pod(memory="512m"))

    assert (refused.admitted, refused.reason) == (False, "UnexpectedAdmissionError")
    assert "memory is requested with a fraction of a byte: 1 bytes, rounded up" in refused.message
    assert node.admit(pod("q", memory="1000m")).admitted
    burstable = pod("r", memory="1500m")
    burstable["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1", "memory": "1"}
    assert node.admit(burstable).admitted


@pytest.mark.parametrize("devices", [4, "a", {"id": "a"}])
def test_devices_that_are_no_list_are_refused_by_name(devices: Any) -> None:
    with pytest.raises(
        InputError,
        match=r'a list of devices such as \{"id": "gpu0", "numa": 0\}, got .* at devices\["x"\]',
    ):
        Node(machine_of(2, 2), devices={"x": devices})


# ---- devices of which nothing is known


def gpu_pod(uid: str, **limits: int) -> dict[str, Any]:
    return pod(uid, **{"nvidia.com/gpu": "2", **{name: str(n) for name, n in limits.items()}})


def test_devices_of_which_nothing_is_known_are_warned_of_once() -> None:
    """In a node and its copies, however it is asked."""
    node = Node(read_machine("xeon-2s"), {"cpuManagerPolicy": "static"})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(3):
            assert node.admit(gpu_pod(f"a{number}")).admitted

        node.try_admit(gpu_pod("b"))
        node.copy().admit(gpu_pod("c"))
        node.emptied(node.config).admit(gpu_pod("d"))
        explain(node, gpu_pod("e"))
        node.admit(gpu_pod("f", **{"a.b/c": 1}))

    assert [str(warning.message).partition(", which")[0] for warning in caught] == [
        "unknown here: nvidia.com/gpu",
        "unknown here: a.b/c",
    ]


def test_what_is_unknown_is_told_by_resource() -> None:
    node = Node(read_machine("xeon-2s"))
    assert node.unknown_requests(gpu_pod("a", **{"a.b/c": 3})) == {"a.b/c": 3, "nvidia.com/gpu": 2}
    assert node.unknown_requests(pod("b")) == {}
    assert node.leaves_open({"nvidia.com/gpu": 2})
    assert not node.leaves_open({})
    assert not node.leaves_open({"memory": 1})

    with pytest.warns(AlignupWarning, match="unknown here"):
        explanation = explain(node, gpu_pod("c"))

    assert explanation.to_dict()["unknown"] == {"nvidia.com/gpu": 2}
    assert explanation.cause == (
        "admitted, as far as CPUs and memory go; 2 nvidia.com/gpu unknown here; policy none aligns "
        "nothing"
    )


@pytest.mark.parametrize(
    "node",
    [
        Node(read_machine("xeon-2s"), devices={}),
        Node(read_machine("xeon-2s").to_dict()),
        Node.from_dict({"machine": "xeon-2s"}),
        Node.from_dict({"machine": machine_of(2, 2)}),
    ],
)
def test_given_devices_are_all_that_there_are(node: Node) -> None:
    """A scenario's, a node line's and those of the argument; others are ignored."""
    assert node.admit(gpu_pod("a")).admitted
    assert node.unknown_requests(gpu_pod("b")) == {}


def test_a_provider_of_the_users_may_serve_what_no_inventory_lists() -> None:
    node = Node(read_machine("xeon-2s"), providers=[Licences([1, 1])])
    assert node.admit(gpu_pod("a")).admitted
    assert node.unknown_requests(gpu_pod("b")) == {}


def test_a_machine_without_the_devices_that_it_comes_with_does_not_know_them() -> None:
    """`read_machine` returns the machine alone."""
    assert not read_machine("dgx-h100").knows_devices
    with pytest.warns(AlignupWarning, match="unknown here: nvidia.com/gpu"):
        Node(read_machine("dgx-h100")).admit(gpu_pod("a"))


def test_devices_of_claims_stand_for_extended_resources() -> None:
    """A pod that has been given such devices requests nothing that is unknown."""
    manifest = gpu_pod("a")
    manifest["status"] = {
        "extendedResourceClaimStatus": {
            "resourceClaimName": "a-gpus",
            "requestMappings": [
                {"containerName": "c0", "resourceName": "nvidia.com/gpu", "requestName": "r"}
            ],
        }
    }
    assert Node(read_machine("xeon-2s")).unknown_requests(manifest) == {}
