"""A kubelet's node, read from its files."""

from __future__ import annotations

import json
import shutil

import pytest

from alignup import Node, read_kubelet_node, read_machine
from alignup.errors import AlignupWarning, ConfigError, InputError
from alignup.kubelet.checkpoints import (
    CpuState,
    DeviceCheckpoint,
    DeviceEntry,
    KubeletState,
    MemoryState,
    checksum_of,
    read_memory_state,
)
from alignup.kubelet.pod_resources import ContainerResources, PodResources
from alignup.kubelet.read import (
    allocated_containers,
    pods_by_uid,
    read_allocated,
    read_kubelet,
    read_node_object,
    read_node_pods,
    restored_memory,
    with_allocated,
)
from alignup.machine.cpuset import CPUSet
from alignup.machine.device_inventory import Device
from alignup.records import replace
from alignup.topology_manager.admission import MemoryBlock
from alignup.topology_manager.hints import BitMask
from inputs.kernel_trees import server, write
from inputs.kubelet_files import CONFIG, EXAMPLE, gib, guaranteed, signed, write_node, write_root

GPUS = {
    "nvidia.com/gpu": [
        Device("g0", (0,)),
        Device("g1", (0,)),
        Device("g2", (1,)),
        Device("g3", None),
    ]
}

PODS = (
    guaranteed("a", (1, 1, 1), (1, 2)),
    guaranteed("b", (2, 3), init=[(3, 4)]),
    guaranteed("c", (1, 10)),
)

GIB_BLOCK = MemoryBlock((0,), "memory", 2**30)

GI = 1 << 30


@pytest.fixture
def written(tmp_path):
    """A node of ours with three pods, and its files."""
    root = write_root(tmp_path / "root", server(cores=4, nodes=4, memory=8 << 20))
    node = Node(read_machine(root), CONFIG, GPUS)
    for manifest in PODS:
        assert node.admit(manifest)
    node.started("uid-b", "c0")  # the memory of its init container is free
    return write_node(root, node, PODS), node


def holdings(node):
    return {
        (pod.uid, container.name): (
            node.allocation(pod.uid, container.name).cpus,
            node.allocation(pod.uid, container.name).memory,
            dict(node.allocation(pod.uid, container.name).devices),
        )
        for pod in node.pods
        for container in pod.all_containers
    }


def books(node):
    return (
        node.cpu.shared_cpus,
        node.memory.free,
        node.memory.ledger.groups,
        node.memory.ledger.alone,
        node.devices.free,
    )


def counts(devices):
    """Return how many devices of each resource there are."""
    return {resource: len(ids) for resource, ids in devices.items()}


def test_a_kubelets_verdicts_follow():
    """Twelve pods admitted in their order on a node that a kubelet wrote.

    Verdicts, reasons, CPUs and memory.
    """
    node = read_kubelet_node(EXAMPLE / "root.tar.xz")
    verdicts = [json.loads(line) for line in (EXAMPLE / "verdicts.jsonl").read_text().splitlines()]
    manifests = [json.loads(line) for line in (EXAMPLE / "next.jsonl").read_text().splitlines()]

    for manifest, verdict in zip(manifests, verdicts, strict=True):
        answer = node.admit(manifest)
        assert (answer.admitted, answer.reason) == (verdict["admitted"], verdict.get("reason", ""))

        for name, expected in (verdict.get("containers") or {}).items():
            assignment = answer.containers[name]
            assert list(assignment.cpus or ()) == expected["cpus"]
            blocks = [
                {"type": block.type, "size": block.size, "numa": list(block.numa_nodes)}
                for block in assignment.memory
            ]
            assert blocks == expected["memory"]
            assert counts(assignment.devices) == counts(expected["devices"])


def test_a_node_is_what_was_written(written):
    root, node = written
    read = read_kubelet_node(root)
    assert holdings(read) == holdings(node)
    assert books(read) == books(node)
    assert [pod.uid for pod in read.pods] == [pod.uid for pod in node.pods]


def test_pods_can_be_removed_tried_and_copied(written):
    root, node = written
    read = read_kubelet_node(root)
    for uid in ("uid-c", "uid-a", "uid-b"):
        read.remove(uid)
        node.remove(uid)
        assert books(read) == books(node)
        assert books(read.copy()) == books(node)
    assert read.cpu.free_cpus == read.cpu.allocatable_cpus
    assert read.memory.free == read.memory.allocatable


def test_entries_of_pods_that_are_gone_are_dropped(written):
    """As a kubelet does before each admission; CPUs that others of the pod use stay theirs."""
    root, node = written
    (root / "pods.json").write_text(json.dumps({"items": [PODS[0]]}))
    read = read_kubelet(root)
    assert read.stale.containers == {"uid-b": ["i0", "c0"], "uid-c": ["c0"]}
    node.remove("uid-b")
    node.remove("uid-c")
    assert books(read.node) == books(node)


def test_pods_of_a_node_have_what_is_allocated_while_a_resize_waits(written):
    """An entry of another shape is passed over, and the other pods are as they are listed."""
    root, node = written
    resized = guaranteed("c", (2, 10))
    (root / "pods.json").write_text(json.dumps({"items": [*PODS[:2], resized]}))
    amounts = {"cpu": "1", "memory": "10Gi"}
    entry = {"ContainerResources": {"c0": {"requests": amounts, "limits": amounts}}}
    write_allocated(root, {"uid-a": {}, "uid-b": {"ContainerResources": 5}, "uid-c": entry})
    pods = read_kubelet(root).node.pods
    assert [pod.containers[0].requests["cpu"] for pod in pods] == [1000, 2000, 1000]
    assert [pod.uid for pod in pods] == [pod.uid for pod in node.pods]


def test_a_pod_that_fails_holds_what_it_has_until_it_is_terminated(written):
    """A kubelet that restarts before its plugins refuses pods that have run.

    PodResources says how long they hold.
    """
    root, node = written
    failed = {**PODS[2], "status": {"phase": "Failed"}}
    (root / "pods.json").write_text(json.dumps({"items": [*PODS[:2], failed]}))
    assert books(read_kubelet_node(root)) == books(node)

    # of a pod whose init containers alone hold something
    listed = json.loads((root / "podresources/list.json").read_text())
    listed["pod_resources"][2]["containers"] = []
    (root / "podresources/list.json").write_text(json.dumps(listed))
    assert read_kubelet(root).stale.containers == {}

    # this release lists pods that have ended too
    (root / "node.json").write_text('{"status": {"nodeInfo": {"kubeletVersion": "v1.33.1"}}}')
    assert read_kubelet(root).stale.containers == {"uid-c": ["c0"]}

    (root / "node.json").unlink()
    listed["pod_resources"].pop()
    (root / "podresources/list.json").write_text(json.dumps(listed))
    assert read_kubelet(root).stale.containers == {"uid-c": ["c0"]}


def test_without_pods_they_are_known_by_what_they_hold(written):
    """PodResources answers have names and no uids."""
    root, node = written
    (root / "pods.json").unlink()
    read = read_kubelet(root)
    assert {(pod.uid, f"{pod.namespace}/{pod.name}") for pod in read.node.pods} == {
        (f"uid-{name}", f"default/{name}") for name in "abc"
    }
    assert books(read.node) == books(node)
    listed = json.loads((root / "podresources/list.json").read_text())
    listed["pod_resources"].pop()
    (root / "podresources/list.json").write_text(json.dumps(listed))
    assert read_kubelet(root).stale.containers == {"uid-c": ["c0"]}


def list_silent_pod(root):
    """Add a pod whose container holds nothing to the answer to List."""
    path = root / "podresources/list.json"
    listed = json.loads(path.read_text())
    silent = {"namespace": "default", "name": "new", "containers": [{"name": "app"}]}
    path.write_text(json.dumps({"pod_resources": [*listed["pod_resources"], silent]}))


def test_without_pods_an_init_container_counts_whose_pod_is_not_known(written):
    """It may be of a pod that has nothing else.

    A container of a name that is told would be told with what it has.
    """
    root, _ = written
    (root / "pods.json").unlink()
    path = root / "var/lib/kubelet/cpu_manager_state"
    cpus = json.loads(path.read_text())
    cpus["entries"] |= {"new": {"init": "14"}, "old": {"c0": "15"}}
    cpus["defaultCpuSet"] = str(CPUSet(CPUSet.parse(cpus["defaultCpuSet"]) - {14, 15}))
    path.write_text(signed(cpus, "cpu"))
    list_silent_pod(root)

    read = read_kubelet(root)
    assert read.stale.containers == {"old": ["c0"]}
    assert "new" in {pod.uid for pod in read.node.pods}


def write_allocated(root, entries):
    """Write which pods the kubelet has admitted, as it does where it resizes pods."""
    data = json.dumps({"entries": entries})
    allocated = {"data": data, "checksum": checksum_of(f"(string){data}")}
    (root / "var/lib/kubelet/allocated_pods_state").write_text(json.dumps(allocated))


@pytest.mark.parametrize(
    "knows", ["nothing else", "a pod that holds nothing", "which pods were admitted"]
)
def test_without_pods_one_that_is_gone_is_dropped_whatever_its_containers_are_called(
    written, knows
):
    """PodResources lists every active pod.

    A kubelet that resizes pods writes down which it has admitted.
    """
    root, _ = written
    (root / "pods.json").unlink()
    path = root / "podresources/list.json"
    listed = json.loads(path.read_text())
    dropped = listed["pod_resources"].pop()

    for kind in ("cpu", "memory"):  # no pod that is left has a container of this name
        state = root / f"var/lib/kubelet/{kind}_manager_state"
        document = json.loads(state.read_text())
        if "uid-c" in document["entries"]:
            document["entries"]["uid-c"] = {"like-no-other": document["entries"]["uid-c"].pop("c0")}
        state.write_text(signed(document, kind))

    devices = root / "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
    checkpoint = json.loads(devices.read_text())
    for entry in checkpoint["Data"]["PodDeviceEntries"] or ():
        if entry["PodUID"] == "uid-c":
            entry["ContainerName"] = "like-no-other"

    devices.write_text(signed(checkpoint, "devices"))
    if knows != "nothing else":
        listed["pod_resources"].append(
            {"namespace": "kube-system", "name": "proxy", "containers": [{"name": "p"}]}
        )

    path.write_text(json.dumps(listed))
    if knows == "which pods were admitted":
        write_allocated(root, {uid: {} for uid in ("uid-a", "uid-b", "uid-proxy")})

    assert dropped
    stale = read_kubelet(root).stale.containers
    if knows == "a pod that holds nothing":
        assert stale == {}
    else:
        assert stale == {"uid-c": ["like-no-other"]}


@pytest.mark.parametrize("shape", ["ContainerResources", "1.32"])
def test_without_pods_one_whose_init_containers_hold_something_is_known_by_its_containers(
    written, shape
):
    """A kubelet writes down admitted pods when the next one comes.

    Until then those that are gone are in its file.
    """
    root, _ = written
    (root / "pods.json").unlink()
    path = root / "var/lib/kubelet/cpu_manager_state"
    cpus = json.loads(path.read_text())
    cpus["entries"] |= {
        "new": {"c0": "14"},
        "gone": {"like-no-other": "15"},
        "other": {"app": "13"},
    }
    cpus["defaultCpuSet"] = str(CPUSet(CPUSet.parse(cpus["defaultCpuSet"]) - {13, 14, 15}))
    path.write_text(signed(cpus, "cpu"))
    list_silent_pod(root)

    names_by_uid = {
        "uid-a": ["c0"],
        "uid-b": ["c0"],
        "uid-c": ["c0"],
        "new": ["app"],
        "gone": ["main"],
        "other": ["app"],
    }
    entries = {}
    for uid, names in names_by_uid.items():
        containers = {name: {} for name in names}
        entries[uid] = containers if shape == "1.32" else {"ContainerResources": containers}

    entries |= {"odd": 5, "odder": {"ContainerResources": 5}}
    write_allocated(root, entries)

    read = read_kubelet(root)
    assert read.stale.containers == {"gone": ["like-no-other"], "other": ["app"]}
    # though another pod has a container of this name
    assert "new" in {pod.uid for pod in read.node.pods}


def test_without_any_names_the_files_hold_and_it_is_said(written):
    root, node = written
    (root / "pods.json").unlink()
    shutil.rmtree(root / "podresources")
    with pytest.warns(AlignupWarning) as caught:
        read = read_kubelet_node(root)

    messages = [str(warning.message) for warning in caught]
    unknown = "the NUMA nodes of 3 devices that nobody holds are not known"
    assert any(unknown in message for message in messages)
    assert any("uids stand for names" in message for message in messages)
    assert read.cpu.shared_cpus == node.cpu.shared_cpus
    assert {pod.name for pod in read.pods} == {"uid-a", "uid-b", "uid-c"}


def test_devices_that_are_gone_stay_held(written):
    root, _ = written
    answer = json.loads((root / "podresources/allocatable.json").read_text())
    device_id = next(iter(read_kubelet_node(root).devices.devices("uid-a", "c0")["nvidia.com/gpu"]))
    answer["devices"] = [entry for entry in answer["devices"] if entry["device_ids"] != [device_id]]
    (root / "podresources/allocatable.json").write_text(json.dumps(answer))
    node = read_kubelet_node(root)
    assert node.devices.given == {"nvidia.com/gpu": (device_id,)}
    node.remove("uid-a")
    assert device_id not in node.devices.free["nvidia.com/gpu"]


def test_the_release_comes_from_the_node_or_an_option(written):
    root, _ = written
    assert read_kubelet_node(root, kubelet_version="1.33").config.version.minor == 33
    (root / "node.json").write_text(
        '{"kind": "Node", "status": {"nodeInfo": {"kubeletVersion": "v1.32.1"}}}'
    )
    assert read_kubelet_node(root).config.version.minor == 32
    assert read_kubelet_node(root, kubelet_version="1.33").config.version.minor == 33


def test_reserved_cpus_that_are_given_are_those_of_the_node(written):
    root, _ = written
    (root / "var/lib/kubelet/cpu_manager_state").unlink()
    (root / "pods.json").write_text(json.dumps({"items": []}))
    with pytest.warns(AlignupWarning, match="no cpu_manager_state"):
        node = read_kubelet_node(root, reserved_cpus="0-1")
    assert str(CPUSet(node.cpu.allocatable_cpus)) == "2-15"


def test_pods_of_other_nodes_are_passed_over_by_the_nodes_name(written):
    root, node = written
    foreign = guaranteed("x", (1, 1), node_name="node-b")
    (root / "pods.json").write_text(json.dumps({"items": [*PODS, foreign]}))
    with pytest.raises(InputError, match="pods of one node"):
        read_kubelet_node(root)
    (root / "node.json").write_text('{"kind": "Node", "metadata": {"name": "node-a"}}')
    assert len(read_kubelet_node(root).pods) == len(node.pods)


def test_a_wrong_checksum_is_refused_with_the_way_on(written):
    root, _ = written
    path = root / "var/lib/kubelet/cpu_manager_state"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "checksum": document["checksum"] ^ 1}))
    with pytest.raises(InputError, match=r"the checksum in the file is .* alignup node check"):
        read_kubelet_node(root)


def test_a_state_of_another_policy_or_machine_is_refused(written):
    root, _ = written
    state = root / "var/lib/kubelet"
    memory = json.loads((state / "memory_manager_state").read_text())
    memory["machineState"]["7"] = memory["machineState"].pop("1")
    (state / "memory_manager_state").write_text(signed(memory, "memory"))
    with pytest.raises(InputError, match="the machine's NUMA nodes"):
        read_kubelet_node(root)

    (state / "cpu_manager_state").write_text(
        signed({"policyName": "none", "defaultCpuSet": ""}, "cpu")
    )
    with pytest.raises(
        ConfigError, match=f"of the configuration, got 'none' at {state}/cpu_manager_state"
    ):
        read_kubelet_node(root)


def test_memory_that_changed_since_the_kubelet_started_is_what_it_was(written):
    """A kubelet looks at the machine when it starts; from then on its state counts."""
    root, node = written
    meminfo = root / "sys/devices/system/node/node1/meminfo"
    meminfo.write_text(meminfo.read_text().replace(str(8 << 20), str(4 << 20)))
    read = read_kubelet_node(root)
    assert read.memory.allocatable == node.memory.allocatable
    assert read.memory.free == node.memory.free


def test_uneven_books_of_a_group_are_kept(written):
    """A kubelet gives memory of a group back to its lowest node.

    So what is free there is not what holdings leave.
    """
    root, node = written
    path = root / "var/lib/kubelet/memory_manager_state"
    memory = json.loads(path.read_text())
    (group,) = node.memory.ledger.groups
    low, high = BitMask.from_int(group)
    for position, moved in ((low, gib(1)), (high, -gib(1))):
        table = memory["machineState"][str(position)]["memoryMap"]["memory"]
        table["free"] += moved
        table["reserved"] -= moved

    path.write_text(signed(memory, "memory"))
    read = read_kubelet_node(root)
    expected = list(node.memory.free["memory"])
    expected[low] += gib(1)
    expected[high] -= gib(1)
    assert list(read.memory.free["memory"]) == expected
    assert holdings(read) == holdings(node)
    for uid in ("uid-a", "uid-b", "uid-c"):
        read.remove(uid)

    assert read.memory.free == read.memory.allocatable


def test_without_a_configuration_the_state_names_the_policies(written):
    root, node = written
    (root / "var/lib/kubelet/config.yaml").unlink()
    with pytest.warns(AlignupWarning, match="no configuration of the kubelet"):
        read = read_kubelet_node(root)
    assert (read.config.topology_manager_policy, read.scope_name) == ("none", "none")
    assert read.cpu.free_cpus == node.cpu.free_cpus
    assert read.memory.free == node.memory.free


def test_missing_state_files_are_said(written):
    root, _ = written
    (root / "var/lib/kubelet/cpu_manager_state").unlink()
    with pytest.warns(AlignupWarning, match="no cpu_manager_state"):
        read = read_kubelet_node(root)
    assert read.cpu.free_cpus == read.cpu.allocatable_cpus


def test_no_file_of_a_kubelet_is_bad_input(tmp_path):
    write(tmp_path, server())
    with pytest.raises(InputError, match="no files of a kubelet at"):
        read_kubelet_node(tmp_path)


def test_no_machine_is_bad_input_unless_it_is_given(written):
    root, node = written
    shutil.rmtree(root / "sys")
    with pytest.raises(InputError, match="no folder sys, which describes the machine"):
        read_kubelet_node(root)
    assert holdings(read_kubelet_node(root, machine=node.machine)) == holdings(node)


def test_a_kubelet_that_runs_tells_where_its_files_are_and_its_flags_count(written):
    root, node = written
    (root / "data").mkdir()
    (root / "var/lib/kubelet").rename(root / "data/kubelet")
    (root / "data/kubelet/config.yaml").rename(root / "k.yaml")
    (root / "proc/70").mkdir(parents=True)
    (root / "proc/70/comm").write_text("kubelet\n")

    arguments = (
        "kubelet",
        "--config=/k.yaml",
        "--root-dir=/data/kubelet",
        "--topology-manager-policy=restricted",
    )
    (root / "proc/70/cmdline").write_text("".join(f"{argument}\0" for argument in arguments))

    read = read_kubelet_node(root)
    assert holdings(read) == holdings(node)
    assert read.config.topology_manager_policy == "restricted"


def listed_pod(name, cpus="", memory=(), devices=(), container="c"):
    devices_by_resource = {}
    if devices:
        devices_by_resource["r"] = tuple(devices)

    resources = ContainerResources(
        container, CPUSet.parse(cpus), tuple(memory), devices_by_resource
    )
    return PodResources("n", name, (resources,))


def state_of(cpus=(), memory=(), devices=()):
    return KubeletState(
        CpuState(
            "static", CPUSet(), {uid: {"c": CPUSet.parse(text)} for uid, text in dict(cpus).items()}
        ),
        MemoryState("Static", {}, {uid: {"c": blocks} for uid, blocks in dict(memory).items()}),
        DeviceCheckpoint(
            tuple(DeviceEntry(uid, "c", "r", {0: ids}, b"") for uid, ids in dict(devices).items()),
            {},
        ),
    )


def pod_names(*arguments, **files):
    return {
        uid: pod_resources.name
        for uid, pod_resources in pods_by_uid(state_of(**files), arguments).items()
    }


def test_cpus_and_devices_tell_pods_apart():
    names_by_uid = pod_names(
        listed_pod("a", "1-2"),
        listed_pod("b", "3"),
        listed_pod("c", devices=("x",)),
        cpus={"1": "3", "2": "1-2"},
        devices={"3": ("x",)},
    )
    assert names_by_uid == {"1": "b", "2": "a", "3": "c"}


def test_pods_that_hold_the_same_memory_are_dealt_out():
    names_by_uid = pod_names(
        listed_pod("a", memory=[GIB_BLOCK]),
        listed_pod("b", memory=[GIB_BLOCK]),
        memory={"1": (GIB_BLOCK,), "2": (GIB_BLOCK,)},
    )
    assert sorted(names_by_uid.values()) == ["a", "b"]


@pytest.mark.parametrize(
    ("first", "names_by_uid"),
    [((), {"1": "a", "2": "b"}), (("2",), {"1": "b", "2": "a"}), (("1",), {"1": "a", "2": "b"})],
)
def test_pods_that_hold_the_same_memory_go_to_the_first_uids(first, names_by_uid):
    files = state_of(memory={"1": (GIB_BLOCK,), "2": (GIB_BLOCK,)})
    listed = [listed_pod(name, memory=[GIB_BLOCK]) for name in ("a", "b")]
    pods = pods_by_uid(files, listed, first)
    assert {uid: pod_resources.name for uid, pod_resources in pods.items()} == names_by_uid


@pytest.mark.parametrize("first", ["a pod as a whole", "its containers"])
def test_a_pod_that_has_memory_as_a_whole_is_looked_for_as_such_first(first):
    """Though another pod holds as a container what one of its containers does."""
    whole_uid, other_uid = ("1", "2") if first == "a pod as a whole" else ("2", "1")
    whole_blocks = (MemoryBlock((0,), "memory", 2 * GIB_BLOCK.size),)
    entries = {uid: {"c": (GIB_BLOCK,)} for uid in ("1", "2")}
    memory = MemoryState("Static", {}, entries, {whole_uid: whole_blocks})
    files = KubeletState(CpuState("static", CPUSet(), {}), memory, DeviceCheckpoint((), {}))
    whole = replace(listed_pod("whole", memory=[GIB_BLOCK]), memory=whole_blocks)
    pods = pods_by_uid(files, [listed_pod("other", memory=[GIB_BLOCK]), whole])
    assert {uid: pod_resources.name for uid, pod_resources in pods.items()} == {
        whole_uid: "whole",
        other_uid: "other",
    }


def test_another_container_or_amount_is_another_pod():
    assert (
        pod_names(
            listed_pod("a", "1", container="d"),
            listed_pod("b", "1-2"),
            listed_pod("c"),
            cpus={"1": "1"},
        )
        == {}
    )


def test_init_containers_are_in_the_files_only():
    files = state_of(cpus={"1": "1"})
    entries = {"1": {"c": CPUSet.parse("1"), "init": CPUSet.parse("1-4")}}
    files = KubeletState(CpuState("static", CPUSet(), entries), files.memory, files.devices)
    assert pods_by_uid(files, [listed_pod("a", "1")])["1"].name == "a"


def read_items(*items):
    return read_node_pods(json.dumps({"kind": "PodList", "items": list(items)}).encode())


def test_pods_are_read_with_their_containers_ids():
    manifest = guaranteed("a", (1, 1))
    manifest["status"]["containerStatuses"] = [
        {"name": "c0", "containerID": "containerd://abc"},
        {"name": "c1"},
    ]
    (document,) = read_items(manifest)
    assert (document.pod.uid, document.phase, document.node_name) == ("uid-a", "Running", "node-a")
    assert (document.container_ids, document.has_ended) == ({"abc": "c0"}, False)
    assert document.started


def test_a_static_pod_has_the_uid_that_its_kubelet_knows():
    """The API server's copy has another one."""
    manifest = guaranteed("a", (1, 1))
    manifest["metadata"]["annotations"] = {"kubernetes.io/config.hash": "0123"}
    assert read_items(manifest)[0].pod.uid == "0123"


@pytest.mark.parametrize(
    ("phase", "ended"), [("Failed", True), ("Succeeded", True), ("Pending", False)]
)
def test_pods_that_have_ended_hold_nothing(phase, ended):
    manifest = guaranteed("a", (1, 1))
    manifest["status"] = {"phase": phase}
    assert read_items(manifest)[0].has_ended is ended


def test_a_list_may_be_empty_or_one_pod():
    assert read_node_pods(b'{"kind": "PodList", "metadata": {}}') == ()
    assert len(read_node_pods(json.dumps(guaranteed("a", (1, 1))).encode())) == 1


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"items": 1}', b'{"items": [3]}', b'{"items": [{"spec": {}}]}']
)
def test_damaged_pods_are_one_line(data):
    with pytest.raises(InputError, match=r"pods\.json") as caught:
        read_node_pods(data)
    assert "\n" not in str(caught.value)


def test_a_node_tells_its_kubelets_release():
    node = {
        "kind": "Node",
        "metadata": {"name": "a"},
        "status": {"nodeInfo": {"kubeletVersion": "v1.33.4"}},
    }
    for document in (node, {"kind": "List", "items": [node]}):
        node_object = read_node_object(json.dumps(document).encode())
        assert (node_object.name, node_object.kubelet_version) == ("a", "v1.33.4")

    assert read_node_object(b'{"kind": "Node"}').kubelet_version is None
    for data in (b"{", b"[]", b'{"kind": "Pod"}'):
        with pytest.raises(InputError, match=r"node\.json"):
            read_node_object(data)


def allocations(entries, checksum=None):
    """`allocated_pods_state` as a kubelet writes it."""
    data = json.dumps({"entries": entries})
    if checksum is None:
        checksum = checksum_of(f"(string){data}")
    return json.dumps({"data": data, "checksum": checksum}).encode()


def test_a_resize_that_waits_has_not_happened():
    """The API server has what is wanted, the kubelet's own file what it has allocated."""
    documents = read_items(guaranteed("a", (3, 2)), guaranteed("b", (1, 1)))
    amounts = {"cpu": "2", "memory": "1Gi"}
    entry = {
        "ContainerResources": {"c0": {"requests": amounts, "limits": amounts}},
        "PodLevelResources": None,
    }
    allocated = read_allocated(allocations({"uid-a": entry}))
    resized, unchanged = (
        with_allocated(document.pod, allocated.get(document.pod.uid)) for document in documents
    )
    assert resized.containers[0].requests == {"cpu": 2000, "memory": 1 << 30}
    assert resized.containers[0].exclusive_cpus == 2
    assert unchanged is documents[1].pod


def test_what_kubelet_1_38_has_allocated_is_read_by_its_entries():
    """It lists all containers, ephemeral ones too, beside whole pods that are not read."""
    [document] = read_items(guaranteed("a", (3, 2)))
    amounts = {"cpu": "2", "memory": "1Gi"}
    entry = {
        "ContainerResources": {
            "c0": {"requests": amounts, "limits": amounts},
            "debugger": {},
        },
        "PodLevelResources": None,
        "EmptyDirVolumeLimits": None,
    }
    data = json.dumps({"podList": "CgA=", "entries": {"uid-a": entry}})
    file = {"version": "v2", "data": data, "checksum": checksum_of(f"(string){data}")}
    allocated = read_allocated(json.dumps(file).encode())
    pod = with_allocated(document.pod, allocated["uid-a"])
    assert pod.containers[0].exclusive_cpus == 2
    assert allocated_containers(allocated["uid-a"]) == {"c0", "debugger"}


def test_what_is_allocated_in_a_version_that_is_not_known_is_told():
    file = {"version": "v3", "data": "{}", "checksum": checksum_of("(string){}")}
    with pytest.raises(InputError, match="expected no version or v2, got 'v3' at version in allo"):
        read_allocated(json.dumps(file).encode())


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", allocations({}, 1), allocations([])])
def test_allocations_that_are_damaged_are_told(data):
    with pytest.raises(InputError, match="allocated_pods_state"):
        read_allocated(data)


def block(size: int, *nodes: int) -> dict[str, object]:
    return {"numaAffinity": list(nodes), "type": "memory", "size": size}


@pytest.mark.parametrize("order", [("wide", "one"), ("one", "wide")])
def test_memory_of_one_node_is_dealt_out_before_that_of_several(order):
    """Only the first tells where its bytes are.

    The others have what is left there, whatever the order in the file.
    """
    table = {"total": 8 * GI, "systemReserved": 0, "allocatable": 8 * GI}
    blocks = {"wide": [block(2 * GI, 0, 1)], "one": [block(2 * GI, 0)]}
    wire = {
        "policyName": "Static",
        "machineState": {
            str(node): {
                "numberOfAssignments": count,
                "memoryMap": {
                    "memory": {**table, "reserved": reserved * GI, "free": (8 - reserved) * GI}
                },
                "cells": [0, 1],
            }
            for node, (count, reserved) in enumerate(((2, 3), (1, 1)))
        },
        "entries": {"u": {name: blocks[name] for name in order}},
    }

    restored = restored_memory(read_memory_state(json.dumps(wire).encode()), (0, 1), {})
    assert restored.holdings == {
        ("u", "one"): {"memory": {0: 2 * GI}},
        ("u", "wide"): {"memory": {0: GI, 1: GI}},
    }


def test_a_pod_that_has_memory_as_a_whole_is_one_holding():
    """Its containers' blocks are parts of it, and not counted on their own."""
    table = {
        "total": 8 * GI,
        "systemReserved": 0,
        "allocatable": 8 * GI,
        "reserved": 3 * GI,
        "free": 5 * GI,
    }
    data = {
        "policyName": "Static",
        "machineState": {
            "0": {"numberOfAssignments": 1, "memoryMap": {"memory": table}, "cells": [0]}
        },
        "entries": {"u": {"a": [block(GI, 0)], "b": [block(2 * GI, 0)]}},
        "podEntries": {"u": {"memoryBlocks": [block(3 * GI, 0)]}},
    }

    restored = restored_memory(read_memory_state(json.dumps(data).encode()), (0,), {})
    assert restored.holdings == {("u", ""): {"memory": {0: 3 * GI}}}
    assert restored.more_users == [0]
