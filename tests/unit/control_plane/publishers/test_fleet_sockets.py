"""PodResources of simulated kubelets tells what a real kubelet with the same pods told."""

from __future__ import annotations

import asyncio
import json
import stat
import tarfile
from pathlib import Path

import pytest

from alignup.cli.cluster import sockets_of
from alignup.control_plane.publishers.fleet import FleetNode
from alignup.errors import InputError
from alignup.kubelet.pod_resources import allocatable_from_wire, plain_answer, pods_from_wire
from alignup.kubelet.pod_resources_client import ask_kubelet
from alignup.kubelet.pod_resources_server import serve_pod_resources
from alignup.kubelet.read import read_kubelet
from alignup.node import Node
from fakes.device_plugins import short_folder
from inputs.watched_objects import description, watched

RECORDED = Path(__file__).parents[3] / "kubelet_node" / "root.tar.xz"


def answers_of(*nodes):
    """Return what clients of the nodes' sockets are told: List and GetAllocatableResources."""

    async def ask():
        with short_folder() as folder:
            sockets = sockets_of(nodes, folder)
            tell = {path: node.pod_resources for path, node in sockets.items()}
            stop = serve_pod_resources(tell, asyncio.get_running_loop(), "--podresources-dir")
            assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in sockets)
            answers = [await asyncio.to_thread(ask_kubelet, path) for path in sockets]
            await asyncio.to_thread(stop)
            assert list(folder.iterdir()) == []
            return [
                (pods_from_wire(listed), allocatable_from_wire(allocatable))
                for listed, allocatable in answers
            ]

    return asyncio.run(ask())


def test_the_answers_are_those_of_the_real_kubelet() -> None:
    recorded = read_kubelet(RECORDED)
    (answers,) = answers_of(FleetNode("n", recorded.node, ""))
    with tarfile.open(RECORDED) as archive:
        listed, allocatable = (
            plain_answer(json.load(archive.extractfile(f"./podresources/{name}.json")))
            for name in ("list", "allocatable")
        )
    assert sorted(answers[0], key=lambda pod: pod.name) == sorted(
        pods_from_wire(listed), key=lambda pod: pod.name
    )
    assert answers[1] == allocatable_from_wire(allocatable)


def test_each_node_has_a_socket_of_its_own() -> None:
    nodes = [FleetNode(name, Node.from_dict(description()), "") for name in ("a", "b.example")]
    nodes[1].admit(watched("p", cpu=2, gpu=1).pod)
    (nothing, _), (pods, allocatable) = answers_of(*nodes)
    assert nothing == ()
    assert [(pod.name, [str(container.cpus) for container in pod.containers]) for pod in pods] == [
        ("p", ["1-2"])
    ]
    assert (str(allocatable.cpus), [block.size >> 30 for block in allocatable.memory]) == (
        "1-7",
        [7, 8],
    )


@pytest.mark.parametrize(
    ("name", "refusal"), [("x" * 200, "of up to 107 bytes"), ("../x", "without a slash")]
)
def test_a_name_that_no_socket_can_have_is_refused(name, refusal) -> None:
    with pytest.raises(InputError, match=refusal):
        sockets_of([FleetNode(name, Node.from_dict(description()), "")], Path("/run/x"))
