"""Findings about a kubelet's files.

`tests/rig/test_faults.py` compares them with what a kubelet does.
"""

from __future__ import annotations

import json
import os
import random

import pytest

from alignup import Node, read_machine
from alignup.errors import AlignupWarning, InputError
from alignup.kubelet.check import check_node
from alignup.kubelet.layout import FolderFiles, open_node
from alignup.machine.device_inventory import Device
from alignup.records import json_fields
from inputs.kernel_trees import server
from inputs.kubelet_faults import FAULTS, MEMORY, Place, mixed_groups, newer_format
from inputs.kubelet_files import CONFIG, EXAMPLE, guaranteed, write_node, write_root

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
        "kubelet 1.99 is newer than those known, and is judged as 1.37; not known are its "
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
        assert text.endswith("(as kubelet 1.37 reads it; what 1.99 reads is not known)")
