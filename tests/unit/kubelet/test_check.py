"""Findings about a kubelet's files, and what a restart does to the pods that run.

`tests/rig/test_faults.py` compares them with what a kubelet does.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket

import pytest

from alignup import Node, read_kubelet_node, read_machine
from alignup.errors import AlignupWarning, InputError
from alignup.kubelet.check import check_node, foretell, refused_configuration
from alignup.kubelet.checkpoints import checksum_of
from alignup.kubelet.layout import FolderFiles, open_node
from alignup.machine.device_inventory import Device
from alignup.node.restart import restarted
from alignup.records import json_fields
from inputs.kernel_trees import server
from inputs.kubelet_faults import CPU, FAULTS, MEMORY, Place, mixed_groups, newer_format
from inputs.kubelet_files import CONFIG, EXAMPLE, gib, guaranteed, write_node, write_root

GPUS = {"nvidia.com/gpu": [Device(f"gpu{i}", (i % 2,)) for i in range(4)]}

PODS = (guaranteed("a", (2, 2, 1)), guaranteed("b", (3, 4)), guaranteed("c", (2, 1, 1)))


@pytest.fixture
def place(tmp_path):
    root = write_root(tmp_path / "root", server(sockets=2, cores=8, nodes=2, memory=16 << 20))
    node = Node(read_machine(root), CONFIG, GPUS)
    for manifest in PODS:
        assert node.admit(manifest)
    write_node(root, node, PODS)
    state = root / "var/lib/kubelet"
    return Place(root, state, state / "config.yaml")


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_and_named(place, name):
    spoil, kinds, starts = FAULTS[name]
    if name == "foreign owner" and os.geteuid():
        pytest.skip("needs root")
    spoil(place)
    # the effects are those that were seen with a kubelet 1.36
    findings = check_node(FolderFiles(place.root), {"kubelet_version": "1.36"})
    assert {finding.kind for finding in findings} == kinds
    assert any("does not start" in finding.effect for finding in findings) is not starts
    for finding in findings:
        assert all(json_fields(finding).values())
        assert "\n" not in json.dumps(json_fields(finding))


@pytest.mark.parametrize("limit", [0, 1, 200])
def test_where_the_order_of_containers_decides_the_kubelet_may_not_start(place, limit):
    """Blocks on one NUMA node are in several groups.

    A start takes them in no order, and the last says the group.
    """
    mixed_groups(place, random.randint(limit // 2, limit))
    findings = {finding.kind: finding for finding in check_node(FolderFiles(place.root), {})}
    assert set(findings) == {"memory-groups", "stale-memory"}
    assert (
        findings["memory-groups"].text == "NUMA node 0 is in the group 0, and a block on it in 0,1"
    )
    assert findings["memory-groups"].effect.startswith(
        "at some starts the kubelet does not start: "
    )


def test_a_newer_kubelet_takes_the_format_of_a_gate_that_is_off(place):
    newer_format(place)
    assert check_node(FolderFiles(place.root), {"kubelet_version": "1.37"}) == []


def test_of_a_pod_with_memory_as_a_whole_the_parts_of_its_containers_do_not_count(place):
    def change(document):
        (uid, containers), *_ = document["entries"].items()
        blocks = [block for blocks in containers.values() for block in blocks]
        document["podEntries"] = {uid: {"memoryBlocks": [dict(block) for block in blocks]}}
        for block in blocks:
            block["size"] -= 4096

    place.edit(MEMORY, change)
    assert check_node(FolderFiles(place.root), {"kubelet_version": "1.37"}) == []


def test_what_a_kubelet_wrote_has_no_findings():
    assert check_node(open_node(EXAMPLE / "root.tar.xz"), {}) == []


@pytest.fixture
def running_place(place):
    """Return the files of a kubelet that runs, which is told by its socket."""
    path = place.state / "pod-resources/kubelet.sock"
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        folder = os.open(path.parent, os.O_RDONLY)  # a socket's path is short
        try:
            listener.bind(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
        yield place


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_for_a_moment_while_a_kubelet_runs_is_no_finding(
    running_place, tmp_path, monkeypatch, name
):
    """As the CPUs that it has taken out of the pool, and not noted for their container yet."""
    shutil.copytree(
        running_place.root,
        tmp_path / "intact",
        symlinks=True,
        ignore=shutil.ignore_patterns("kubelet.sock"),
    )
    pauses = []

    def write_on(seconds):
        pauses.append(seconds)
        if len(pauses) == 2:
            shutil.rmtree(running_place.root)
            shutil.copytree(tmp_path / "intact", running_place.root, symlinks=True)

    monkeypatch.setattr("alignup.kubelet.check.time.sleep", write_on)
    spoil, kinds, _ = FAULTS[name]
    if name == "foreign owner" and os.geteuid():
        pytest.skip("needs root")
    spoil(running_place)
    assert check_node(FolderFiles(running_place.root), {"kubelet_version": "1.36"}) == []
    assert len(pauses) == (2 if kinds else 0)


@pytest.mark.parametrize("name", FAULTS)
def test_what_stays_wrong_while_a_kubelet_runs_is_a_finding(running_place, monkeypatch, name):
    pauses = []
    monkeypatch.setattr("alignup.kubelet.check.time.sleep", pauses.append)
    spoil, kinds, _ = FAULTS[name]
    if name == "foreign owner" and os.geteuid():
        pytest.skip("needs root")
    spoil(running_place)
    findings = check_node(FolderFiles(running_place.root), {"kubelet_version": "1.36"})
    assert {problem.kind for problem in findings} == kinds
    assert len(pauses) == (2 if kinds else 0)


def test_files_without_a_kubelet_are_read_once(place, monkeypatch):
    monkeypatch.setattr("alignup.kubelet.check.time.sleep", pytest.fail)
    without_cpus = next(spoil for spoil, kinds, _ in FAULTS.values() if kinds == {"cpus-changed"})
    without_cpus(place)
    assert check_node(FolderFiles(place.root), {"kubelet_version": "1.36"})


def test_a_configuration_that_a_kubelet_refuses_is_a_finding(place):
    place.configure(topologyManagerPolicy="best")
    (finding,) = check_node(FolderFiles(place.root), {})
    assert finding.kind == "configuration"
    assert "best" in finding.text


def test_a_resource_without_healthy_devices_is_a_finding(place):
    path = place.root / "podresources/allocatable.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "devices": []}))
    assert {finding.kind for finding in check_node(FolderFiles(place.root), {})} == {
        "resource-gone",
        "device-gone",
    }


def test_cpus_of_two_pods_are_a_finding(place):
    def change(document):
        first, second = list(document["entries"].values())[:2]
        second["c0"] = f"{second['c0']},{first['c0']}"

    place.edit("cpu_manager_state", change)
    assert {finding.kind for finding in check_node(FolderFiles(place.root), {})} == {
        "cpus-given-twice"
    }


def test_pods_that_run_and_hold_nothing_are_findings(place):
    pods = json.loads((place.root / "pods.json").read_text())
    pods["items"].append(guaranteed("d", (1, 1, 1)))
    (place.root / "pods.json").write_text(json.dumps(pods))
    kinds = {finding.kind for finding in check_node(FolderFiles(place.root), {})}
    assert kinds == {"pod-without-cpus", "pod-without-memory", "pod-without-devices"}


def test_without_a_machine_the_rest_is_checked(place):
    (place.root / "sys").rename(place.root / "elsewhere")
    assert check_node(FolderFiles(place.root), {}) == []
    FAULTS["CPUs in the pool and a container"][0](place)
    assert {finding.kind for finding in check_node(FolderFiles(place.root), {})} == {"cpu-overlap"}


def test_no_file_of_a_kubelet_is_bad_input(tmp_path):
    with pytest.raises(InputError, match="files of a kubelet"):
        check_node(FolderFiles(tmp_path), {})


def test_of_a_release_that_is_not_known_one_warning_says_what_is_not(place):
    """And findings about formats say as whom the file was read."""
    (place.root / "node.json").write_text(
        '{"kind": "Node", "status": {"nodeInfo": {"kubeletVersion": "v1.99.1-eks"}}}'
    )
    with pytest.warns(AlignupWarning) as caught:
        assert check_node(FolderFiles(place.root), {}) == []

    sentence = (
        "kubelet 1.99 is newer than those known, and is judged as 1.38 (a "
        "preview: 1.38.0-beta.0); not known are its "
        "rules, feature gates"
    )
    assert [sentence in str(warning.message) for warning in caught] == [True]

    for name, kind in (
        ("wrong checksum of memory", "memory-checksum"),
        ("torn file of CPUs", "cpu-file-damaged"),
    ):
        FAULTS[name][0](place)
        with pytest.warns(AlignupWarning, match=r"1\.99"):
            findings = check_node(FolderFiles(place.root), {})
        (text,) = [finding.text for finding in findings if finding.kind == kind]
        assert text.endswith(
            "(as kubelet 1.38 (a preview: 1.38.0-beta.0) reads it; what 1.99 reads is not known)"
        )


@pytest.mark.parametrize(("name", "key"), [(CPU, "defaultCpuSet"), (MEMORY, "entries")])
def test_an_edit_beside_the_text_that_counts_is_told_and_changes_nothing(place, name, key):
    """A kubelet 1.37 reads the text in `data`; what it gives is what that says."""
    path = place.state / name
    written = json.loads(path.read_text())
    text = json.dumps({item: value for item, value in written.items() if item != "checksum"})
    written = {**written, "data": text, "dataChecksum": checksum_of(f"(string){text}")}
    path.write_text(json.dumps(written))
    files = FolderFiles(place.root)
    newer, older = {"kubelet_version": "1.37"}, {"kubelet_version": "1.36"}
    assert check_node(files, newer) == check_node(files, older) == []

    path.write_text(json.dumps({**written, key: "1" if name == CPU else {}}))
    [told] = check_node(files, newer)
    assert (told.kind, told.file, told.stops) == ("beside-data", str(path), False)
    assert told.text == f"{key} beside data is not what data says, and data counts"
    assert "dataChecksum" in told.repair

    # an older kubelet reads what was edited, and its checksum is wrong
    kinds = {problem.kind for problem in check_node(files, older)}
    assert f"{'cpu' if name == CPU else 'memory'}-checksum" in kinds


def place_with(root, *pods, **config):
    """Return the files of a node on which pods run.

    It has two NUMA nodes, 16 CPUs each in cores of two.
    """
    write_root(root, server(sockets=2, cores=8, nodes=2, memory=16 << 20))
    place = Place(root, root / "var/lib/kubelet", root / "var/lib/kubelet/config.yaml")
    place.configure(**config)
    node = Node(read_machine(root), json.loads(place.config.read_text()), GPUS)
    for manifest in pods:
        assert node.admit(manifest)
    write_node(root, node, pods)
    return place


def outcomes(place, **options):
    """Return by pod whether it keeps what it has, or the reason why it is refused."""
    restart = foretell(FolderFiles(place.root), options)
    assert not restart.faults

    by_pod = {}
    for outcome in restart.outcomes:
        by_pod[outcome.pod.name] = outcome.keeps
        if outcome.refusal is not None:
            by_pod[outcome.pod.name] = outcome.refusal.reason

    return by_pod


@pytest.mark.filterwarnings("ignore:no .*_manager_state")
@pytest.mark.parametrize("name", FAULTS)
def test_the_kubelet_starts_where_a_real_one_did(tmp_path, name):
    place = place_with(
        tmp_path / "root",
        guaranteed("a", (2, 2, 1)),
        guaranteed("b", (3, 4)),
        guaranteed("c", (2, 1, 1)),
    )
    spoil, _, starts = FAULTS[name]
    if name == "foreign owner" and os.geteuid():
        pytest.skip("needs root")
    spoil(place)
    assert (foretell(FolderFiles(place.root), {"kubelet_version": "1.36"}).faults == ()) is starts


def test_a_configuration_is_refused_before_any_file_is_read(place):
    """A kubelet of another release ends with the first gate that it does not know."""
    place.configure(featureGates={"NodeSwap": True})
    FAULTS["torn file of CPUs"][0](place)
    files = FolderFiles(place.root)
    assert [finding.kind for finding in foretell(files, {"kubelet_version": "1.37"}).faults] == [
        "cpu-file-damaged"
    ]
    [finding] = foretell(files, {"kubelet_version": "1.38"}).faults
    assert finding.kind == "configuration"
    assert finding.text.startswith("unrecognized feature gate: NodeSwap (featureGates of")


@pytest.mark.parametrize(
    ("reported", "version", "is_refused"),
    [
        (None, "1.37", False),
        (None, "1.38", True),
        ("v1.37.2", "1.38", True),
        ("v1.38.0-beta.0", "1.38", False),
        ("v1.99.0", "1.38", True),
    ],
)
@pytest.mark.filterwarnings("ignore:kubelet 1.99")
def test_the_release_that_a_node_reports_starts(place, reported, version, is_refused):
    """It runs, whatever gates its vendor has given it."""
    place.configure(featureGates={"NodeSwap": True})
    node = {"kind": "Node", "status": {"nodeInfo": {"kubeletVersion": reported}}}
    (place.root / "node.json").write_text(json.dumps(node))
    refusal = refused_configuration(FolderFiles(place.root), {"kubelet_version": version})
    assert bool(refusal) is is_refused


def test_without_another_machine_no_cpus_are_elsewhere_after_a_restart(place):
    """Also where the kernel lists CPUs in two NUMA nodes: here each belongs to one."""
    cpus = place.root / "sys/devices/system/node/node1/cpumap"
    cpus.write_text("ffffffff\n")
    outcomes = foretell(FolderFiles(place.root), {}).outcomes
    assert any(holding.cpus for outcome in outcomes for holding in outcome.holds)
    assert [outcome.moved for outcome in outcomes] == [""] * len(outcomes)


def test_what_a_kubelet_wrote_stays():
    restart = foretell(open_node(EXAMPLE / "root.tar.xz"), {})
    assert restart.keeps_all
    assert len(restart.outcomes) == 7


def test_after_a_boot_pods_with_devices_come_before_their_plugins(place):
    restart = foretell(FolderFiles(place.root), {}, after_boot=True)
    refused = {
        outcome.pod.name: (outcome.refusal.reason, outcome.refusal.message, outcome.again.admitted)
        for outcome in restart.outcomes
        if outcome.refusal is not None
    }
    message = (
        "container 'c0': no healthy devices present; cannot allocate unhealthy devices "
        "nvidia.com/gpu"
    )
    assert refused == dict.fromkeys("ac", ("UnexpectedAdmissionError", message, True))
    assert restart.awaited == ("nvidia.com/gpu",)
    document = restart.to_dict()
    assert (document["starts"], document["reboot"]) == (True, True)
    assert document["awaited"] == ["nvidia.com/gpu"]
    for answer in document["pods"]:
        admitted = answer["name"] not in refused
        assert answer["admitted"] is admitted
        assert (answer["reason"], answer["message"]) == refused.get(answer["name"], ("", ""))[:2]
        assert admitted or answer["again"]["admitted"] is True
    assert [finding.kind for finding in restart.risks] == ["cpus-changed", "memory-changed"]
    assert all("nothing is to be drained" in finding.repair for finding in restart.risks)
    assert foretell(FolderFiles(place.root), {}).risks == ()


def test_a_boot_refuses_who_a_restart_refuses_and_who_names_devices(tmp_path):
    chance = random.Random(56)
    seen = set()
    for number in range(12):
        pods = []
        for name in "abcd":
            devices = chance.choice([(), (1,)])
            pods.append(guaranteed(name, (chance.choice([1, 2, 3]), 1, *devices)))

        place = place_with(tmp_path / str(number), *pods)
        policy = chance.choice(["none", "best-effort", "restricted"])
        full_cores = chance.choice(["true", "false"])
        place.configure(
            topologyManagerPolicy=policy, cpuManagerPolicyOptions={"full-pcpus-only": full_cores}
        )
        options = {"kubelet_version": chance.choice(["1.29", "1.36", "1.38"])}
        restart = foretell(FolderFiles(place.root), options)
        boot = foretell(FolderFiles(place.root), options, after_boot=True)
        for outcome, after_boot in zip(restart.outcomes, boot.outcomes, strict=True):
            names_devices = bool(outcome.pod.devices)
            assert (after_boot.refusal is None) == (outcome.refusal is None and not names_devices)
            seen.add((outcome.refusal is None, names_devices))

    assert len(seen) == 4


def test_a_machine_that_comes_up_otherwise(place, tmp_path):
    """A kubelet 1.38 did so: `tests/rig/test_restart.py`."""
    files = server(sockets=2, cores=8, nodes=2, memory=16 << 20)
    less = {
        path: text.replace(str(16 << 20), str((16 << 20) - 4096)) for path, text in files.items()
    }
    machine = read_machine(write_root(tmp_path / "less", less))
    restart = foretell(FolderFiles(place.root), {"machine": machine}, after_boot=True)
    assert {finding.kind for finding in restart.faults} == {"memory-changed"}
    assert all("nothing is to be drained" in finding.repair for finding in restart.faults)
    assert restart.after_boot

    first, second = (f"sys/devices/system/node/node{number}/cpumap" for number in (0, 1))
    swapped = {**files, first: files[second], second: files[first]}
    machine = read_machine(write_root(tmp_path / "swapped", swapped))
    place.configure(topologyManagerPolicy="best-effort")
    restart = foretell(FolderFiles(place.root), {"machine": machine}, after_boot=True)
    [outcome] = [outcome for outcome in restart.outcomes if outcome.pod.name == "b"]
    cpus = outcome.holds[0].cpus
    assert outcome.moved in {
        f"container c0 keeps CPUs {cpus}, which are on NUMA node {now} now, and were on NUMA node "
        f"{1 - now}"
        for now in (0, 1)
    }
    assert not outcome.keeps
    place.configure(topologyManagerPolicy="single-numa-node")
    assert outcomes(place, machine=machine)["b"] == "TopologyAffinityError"
    assert restart.risks == ()


def test_a_pod_with_few_whole_cores_left_is_refused_up_to_1_36(tmp_path):
    """`Allocate` looks for free cores before it looks into its state."""
    place = place_with(
        tmp_path / "root",
        guaranteed("most", (20, 1)),
        cpuManagerPolicyOptions={"full-pcpus-only": "true"},
    )
    assert outcomes(place, kubelet_version="1.36") == {"most": "SMTAlignmentError"}
    assert outcomes(place, kubelet_version="1.37") == {"most": True}


def test_an_option_that_is_set_later_refuses_pods_it_would_not_have_admitted(tmp_path):
    place = place_with(tmp_path / "root", guaranteed("odd", (3, 1)), guaranteed("even", (2, 1)))
    place.configure(cpuManagerPolicyOptions={"full-pcpus-only": "true"})
    assert outcomes(place, kubelet_version="1.36") == {"odd": "SMTAlignmentError", "even": True}
    assert outcomes(place, kubelet_version="1.37") == {"odd": True, "even": True}


def test_a_stricter_policy_refuses_a_pod_that_lies_on_two_numa_nodes(tmp_path):
    place = place_with(tmp_path / "root", guaranteed("small", (2, 1)), guaranteed("wide", (20, 1)))
    place.configure(topologyManagerPolicy="single-numa-node")
    restart = foretell(FolderFiles(place.root), {})
    small, wide = restart.outcomes
    assert (wide.refusal.reason, wide.again.reason) == (
        "TopologyAffinityError",
        "TopologyAffinityError",
    )
    assert small.keeps
    assert not restart.keeps_all
    assert restart.node.pods == (small.pod,)


def test_nothing_is_given_back_before_all_pods_have_been_seen(tmp_path):
    """Stale state goes once all sources are ready.

    That is after the pods have been admitted again.
    """
    options = {"full-pcpus-only": "true"}
    pods = (guaranteed("first", (14, 1)), guaranteed("second", (12, 1)))
    place = place_with(tmp_path / "root", *pods, cpuManagerPolicyOptions=options)
    # four CPUs in whole cores are free; if the first pod gave its 14 back, the second would find
    # enough
    assert outcomes(place, kubelet_version="1.36") == {
        "first": "SMTAlignmentError",
        "second": "SMTAlignmentError",
    }


@pytest.mark.parametrize("after_boot", [False, True])
def test_what_a_pod_that_is_gone_held_is_not_free_before_all_pods_have_been_seen(
    tmp_path, after_boot
):
    """Its entries are in the state files until the sources of pods are ready."""
    options = {"full-pcpus-only": "true"}
    stays, goes = guaranteed("stays", (12, 1)), guaranteed("goes", (10, 1, 2))
    place = place_with(tmp_path / "root", stays, goes, cpuManagerPolicyOptions=options)
    pods = place.root / "pods.json"
    document = json.loads(pods.read_text())
    listed = place.root / "podresources/list.json"
    answer = json.loads(listed.read_text())
    assert outcomes(place, kubelet_version="1.36")["stays"] == "SMTAlignmentError"

    document["items"] = [pod for pod in document["items"] if pod["metadata"]["name"] == "stays"]
    pods.write_text(json.dumps(document))
    answer["pod_resources"] = [pod for pod in answer["pod_resources"] if pod["name"] == "stays"]
    listed.write_text(json.dumps(answer))

    files = FolderFiles(place.root)
    restart = foretell(files, {"kubelet_version": "1.36"}, after_boot=after_boot)
    (outcome,) = restart.outcomes
    assert outcome.refusal.reason == "SMTAlignmentError"
    assert outcome.again.admitted  # everything is free by then
    assert restart.node.pods == ()
    assert len(restart.node.cpu.free_cpus) == 31


@pytest.mark.parametrize("after_boot", [False, True])
def test_a_container_that_its_pod_does_not_have_holds_nothing_after_a_start(tmp_path, after_boot):
    """`removeStaleState` looks at containers: one that is gone may be of a pod that stays."""
    stays = guaranteed("stays", (2, 1), (2, 2), (3, 3, 1))
    place = place_with(tmp_path / "root", stays)
    pods = place.root / "pods.json"
    document = json.loads(pods.read_text())
    (pod,) = document["items"]
    del pod["spec"]["containers"][0]
    pods.write_text(json.dumps(document))

    options = {"kubelet_version": "1.37"}
    restart = foretell(FolderFiles(place.root), options, after_boot=after_boot)
    node = restart.node
    (outcome,) = restart.outcomes
    assert (outcome.refusal is None) is not after_boot  # it has a device, and comes before plugins
    held = 0 if after_boot else 5
    assert len(node.cpu.free_cpus) == 31 - held
    taken = 0 if after_boot else gib(5)
    free, allocatable = node.memory.free["memory"], node.memory.allocatable["memory"]
    assert sum(allocatable) - sum(free) == taken
    assert not after_boot or not any(node.devices.given.values())


GONE_ENTRIES = {
    "CPUs that the machine does not have": (CPU, {"c0": "900-905"}, ["cpus-changed"]),
    "CPUs of the shared pool": (CPU, {"c0": "30-31"}, ["cpu-overlap"]),
    "no CPUs": (CPU, {"c0": ""}, []),
    "no containers": (CPU, {}, []),
    "memory of a NUMA node that is not there": (
        MEMORY,
        {"c0": [{"numaAffinity": [7], "type": "memory", "size": 4096}]},
        ["memory-unknown"],
    ),
    "memory of a type that is not there": (
        MEMORY,
        {"c0": [{"numaAffinity": [0], "type": "hugepages-1Gi", "size": 1 << 30}]},
        ["memory-unknown"],
    ),
    "more memory than there is": (
        MEMORY,
        {"c0": [{"numaAffinity": [0, 1], "type": "memory", "size": 1 << 54}]},
        ["memory-books", "memory-books"],  # of each of the two NUMA nodes
    ),
    "memory of no NUMA node": (
        MEMORY,
        {"c0": [{"numaAffinity": [], "type": "memory", "size": 4096}]},
        [],
    ),
    "memory whose NUMA nodes are null, of a type that is not there": (
        MEMORY,
        {"c0": [{"numaAffinity": None, "type": "hugepages-1Gi", "size": 1 << 30}]},
        [],
    ),
    "no memory": (MEMORY, {"c0": []}, []),
}


@pytest.mark.parametrize("name", GONE_ENTRIES)
def test_what_is_written_of_a_pod_that_is_gone_is_a_fault_or_does_no_harm(tmp_path, name):
    file, containers, faults = GONE_ENTRIES[name]
    place = place_with(tmp_path / "root", guaranteed("stays", (4, 2, 1)))
    place.edit(file, lambda document: document["entries"].update(gone=containers))
    restart = foretell(FolderFiles(place.root), {"kubelet_version": "1.37"})
    assert [fault.kind for fault in restart.faults] == faults
    assert [outcome.keeps for outcome in restart.outcomes] == [True] * (not faults)
    assert faults or len(restart.node.cpu.free_cpus) == 27


def test_devices_give_no_hints_since_their_plugins_register_later(tmp_path):
    memory = {"memoryManagerPolicy": "None", "reservedMemory": []}
    place = place_with(tmp_path / "root", guaranteed("wide", (2, 1, 3)), **memory)
    place.configure(topologyManagerPolicy="single-numa-node")
    assert outcomes(place) == {"wide": True}


@pytest.mark.parametrize("damage", ["torn", "checksum", "empty"])
def test_a_damaged_checkpoint_of_devices_is_passed_over(tmp_path, damage):
    """The kubelet goes on without it, and containers that run are not asked for devices again."""
    place = place_with(
        tmp_path / "root", guaranteed("with", (2, 1, 2)), guaranteed("without", (2, 1))
    )
    path = place.root / "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
    document = json.loads(path.read_text())
    changed = json.dumps({**document, "Checksum": document["Checksum"] + 1})
    kind = "device-file-damaged"
    if damage == "checksum":
        kind = "device-checksum"

    path.write_text({"torn": path.read_text()[:99], "checksum": changed, "empty": ""}[damage])

    restart = foretell(FolderFiles(place.root), {})
    assert restart.faults == ()
    assert [finding.kind for finding in restart.damaged] == [kind]
    assert {
        outcome.pod.name: (outcome.keeps, outcome.forgotten) for outcome in restart.outcomes
    } == {"with": (False, ("nvidia.com/gpu",)), "without": (True, ())}
    assert not restart.keeps_all
    assert restart.node.pools["nvidia.com/gpu"].ledger.given == 0  # two of them are in use


def test_fewer_pods_than_run_refuse_the_last(tmp_path):
    place = place_with(tmp_path / "root", guaranteed("a", (2, 1)), guaranteed("b", (2, 1)))
    place.configure(maxPods=1)
    assert outcomes(place) == {"a": True, "b": "OutOfpods"}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"reservedSystemCPUs": "0,99"},
            "reserved-cpus: 0,99 is not a subset of online-cpus: 0-31",
        ),
        (
            {"reservedSystemCPUs": None},
            "the static policy requires systemreserved.cpu + kubereserved.cpu",
        ),
        (
            {"systemReserved": None},
            'total amount "1Gi" of type "memory" is not equal to the value "100Mi"',
        ),
        (
            {"reservedMemory": [{"numaNode": 7, "limits": {"memory": "1Gi"}}]},
            (
                "the reserved memory configuration references a NUMA node 7 that does not exist on "
                "this machine"
            ),
        ),
        (
            {
                "reservedMemory": [
                    {"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-2Mi": "10Mi"}}
                ]
            },
            'the total amount "10Mi" of type "hugepages-2Mi" is not equal to the value "0"',
        ),
        (
            {"memoryManagerPolicy": "None", "kubeReserved": {"memory": "1Ti"}},
            'Resource "memory" has a reservation of',
        ),
    ],
)
def test_reservations_with_which_a_kubelet_does_not_start(tmp_path, fields, sentence):
    place = place_with(tmp_path / "root")
    place.configure(**fields)
    [effect] = [
        finding.effect
        for finding in foretell(FolderFiles(place.root), {}).faults
        if finding.kind == "reservations"
    ]
    assert sentence in effect


def test_up_to_1_31_the_memory_of_each_numa_node_is_compared(tmp_path):
    """Later ones compare the sums of a group."""
    place = place_with(tmp_path / "root", guaranteed("wide", (2, 17)))

    def change(document):
        first, second = (document["machineState"][node]["memoryMap"]["memory"] for node in "01")
        for table, amount in ((first, -4096), (second, 4096)):
            table["reserved"] += amount
            table["free"] -= amount

    place.edit(MEMORY, change)
    kinds = {
        release: [
            finding.kind
            for finding in foretell(FolderFiles(place.root), {"kubelet_version": release}).faults
        ]
        for release in ("1.31", "1.32")
    }
    assert kinds == {"1.31": ["memory-books", "memory-books"], "1.32": []}


@pytest.mark.parametrize(
    ("phase", "reason"), [("Running", "UnexpectedAdmissionError"), ("Pending", True)]
)
def test_init_containers_with_devices_that_have_ended_refuse_their_pod(tmp_path, phase, reason):
    """No device is healthy before its plugin has registered again; a container that runs keeps its.

    So did kubelet 1.38.0-beta.0, three restarts of four.
    """
    pod = guaranteed("first", (2, 1, 1), init=[(2, 1, 1)])
    pod["status"] = {"phase": phase}
    place = place_with(tmp_path / "root", pod, guaranteed("other", (2, 1, 1)))
    assert outcomes(place) == {"first": reason, "other": True}

    # a node that is read knows it too, so that what is suggested for after a restart holds
    node = read_kubelet_node(place.root)
    assert list(restarted(node, node.config).refused) == ["uid-first"] * (phase == "Running")


@pytest.mark.parametrize("strict", [True, False])
def test_an_empty_shared_pool_is_told_with_what_keeps_cpus_in_it(tmp_path, strict):
    root = write_root(tmp_path / "root", server(sockets=1, cores=8, nodes=1, memory=16 << 20))
    options = {"strict-cpu-reservation": "true"} if strict else {}
    config = {
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
        "cpuManagerPolicyOptions": options,
    }
    node = Node(read_machine(root), config)
    manifest = guaranteed("big", (15 if strict else 14, 1))
    assert node.admit(manifest)
    write_node(root, node, [manifest])
    Place(root, root / "var/lib/kubelet", root / "var/lib/kubelet/config.yaml").configure(**config)

    findings = check_node(FolderFiles(root), {"kubelet_version": "1.36"})
    empty = [finding for finding in findings if finding.kind == "empty-pool"]
    assert bool(empty) is strict
    for finding in empty:
        assert "run on all CPUs" in finding.text
        assert "default cpuset cannot be empty" in finding.effect
        assert "without strict-cpu-reservation" in finding.repair


DELETE = "drain the node, stop the kubelet, delete the file, and start the kubelet"
STRICT_OPTIONS = {"strict-cpu-reservation": "true"}


def repairs_of(place, kind, version="1.36"):
    findings = check_node(FolderFiles(place.root), {"kubelet_version": version})
    repairs = {finding.repair for finding in findings if finding.kind == kind}
    assert all(repair.endswith(DELETE) for repair in repairs)
    return {repair.removesuffix(DELETE).removesuffix(", or ") for repair in repairs}


@pytest.mark.parametrize(
    ("name", "kind", "repair"),
    [
        ("more reserved CPUs", "reserved-cpus", "set the reserved CPUs back (they were among 0,4"),
        ("strict reservation", "reserved-cpus", "turn strict-cpu-reservation off again"),
        ("strict reservation", "cpus-changed", "turn strict-cpu-reservation off again"),
        ("offline CPU", "cpus-changed", "bring CPUs 15 back"),
        ("leaked CPU", "cpus-changed", ""),
        ("other reserved memory", "memory-changed", "set reservedMemory back, with the reserv"),
        ("less memory", "memory-changed", "bring the memory of NUMA node 1 back"),
        ("other hugepages", "memory-changed", "set the hugepages back"),
    ],
)
def test_a_repair_is_offered_where_it_mends_the_state(place, name, kind, repair):
    FAULTS[name][0](place)
    (offered,) = repairs_of(place, kind)
    assert offered.startswith(repair)
    assert bool(offered) is bool(repair)


@pytest.fixture
def strict_place(tmp_path):
    """Return a node whose state was written with strict-cpu-reservation."""
    root = write_root(tmp_path / "strict", server(sockets=2, cores=8, nodes=2, memory=16 << 20))
    config = {**CONFIG, "cpuManagerPolicyOptions": STRICT_OPTIONS}
    node = Node(read_machine(root), config, GPUS)
    for manifest in PODS:
        assert node.admit(manifest)

    write_node(root, node, PODS)
    state = root / "var/lib/kubelet"
    return Place(root, state, state / "config.yaml")


def test_the_option_is_to_be_turned_on_again_where_the_state_was_written_with_it(strict_place):
    strict_place.configure(cpuManagerPolicyOptions={})
    assert repairs_of(strict_place, "reserved-cpus") == {"turn strict-cpu-reservation on again"}
    assert repairs_of(strict_place, "cpus-changed") == {"turn strict-cpu-reservation on again"}
    # a release that does not know the option
    assert repairs_of(strict_place, "cpus-changed", "1.31") == {""}

    findings = check_node(FolderFiles(strict_place.root), {"kubelet_version": "1.36"})
    texts = {finding.kind: finding.text for finding in findings}
    assert texts["reserved-cpus"] == "CPUs 0 are reserved, and the file has them nowhere"


def test_reserved_cpus_are_told_as_they_were_under_the_option(strict_place):
    fields = {"cpuManagerPolicyOptions": STRICT_OPTIONS}
    strict_place.configure(reservedSystemCPUs="0", **fields)
    assert repairs_of(strict_place, "cpus-changed") == set()
    strict_place.configure(reservedSystemCPUs="0-1", **fields)
    assert repairs_of(strict_place, "cpus-changed") == {"set the reserved CPUs back to 0"}


@pytest.mark.parametrize("difference", [-64 << 20, 64 << 20])
def test_memory_that_drifts_at_a_reboot_cannot_be_set_back(place, difference):
    path = next(place.root.glob("sys/devices/system/node/node1/meminfo"))
    path.write_text(path.read_text().replace("16777216", str(16777216 + (difference >> 10))))
    assert repairs_of(place, "memory-changed") == {""}
    findings = check_node(FolderFiles(place.root), {"kubelet_version": "1.36"})
    (text,) = [finding.text for finding in findings if finding.kind == "memory-changed"]
    assert "what the kernel keeps for itself differs a little from boot to boot" in text


def test_drift_and_another_reservation_are_mended_by_no_setting(place):
    FAULTS["other reserved memory"][0](place)
    path = next(place.root.glob("sys/devices/system/node/node1/meminfo"))
    path.write_text(path.read_text().replace("16777216", "16777000"))
    assert repairs_of(place, "memory-changed") == {""}
