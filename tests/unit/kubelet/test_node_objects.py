"""Pods and Nodes of the API."""

from __future__ import annotations

import json

import pytest

from alignup.errors import InputError
from alignup.kubelet.checkpoints import checksum_of
from alignup.kubelet.read import read_allocated, read_node_object, read_node_pods, with_allocated
from inputs.kubelet_files import guaranteed


def pods(*items):
    return read_node_pods(json.dumps({"kind": "PodList", "items": list(items)}).encode())


def test_pods_are_read_with_their_containers_ids():
    manifest = guaranteed("a", (1, 1))
    manifest["status"]["containerStatuses"] = [
        {"name": "c0", "containerID": "containerd://abc"},
        {"name": "c1"},
    ]
    (document,) = pods(manifest)
    assert (document.pod.uid, document.phase, document.node_name) == ("uid-a", "Running", "node-a")
    assert (document.container_ids, document.has_ended) == ({"abc": "c0"}, False)
    assert document.started


def test_a_static_pod_has_the_uid_that_its_kubelet_knows():
    """The API server's copy has another one."""
    manifest = guaranteed("a", (1, 1))
    manifest["metadata"]["annotations"] = {"kubernetes.io/config.hash": "0123"}
    assert pods(manifest)[0].pod.uid == "0123"


@pytest.mark.parametrize(
    ("phase", "ended"), [("Failed", True), ("Succeeded", True), ("Pending", False)]
)
def test_pods_that_have_ended_hold_nothing(phase, ended):
    manifest = guaranteed("a", (1, 1))
    manifest["status"] = {"phase": phase}
    assert pods(manifest)[0].has_ended is ended


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
    documents = pods(guaranteed("a", (3, 2)), guaranteed("b", (1, 1)))
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


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", allocations({}, 1), allocations([])])
def test_allocations_that_are_damaged_are_told(data):
    with pytest.raises(InputError, match="allocated_pods_state"):
        read_allocated(data)
