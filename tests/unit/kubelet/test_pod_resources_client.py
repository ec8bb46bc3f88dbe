"""A kubelet's PodResources over its socket.

A server of ours with the kubelet's messages on the wire plays it.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from concurrent import futures
from pathlib import Path

import grpc
import pytest
from google.protobuf.json_format import ParseDict

from alignup import read_kubelet_node
from alignup.errors import AlignupWarning, InputError
from alignup.kubelet import pod_resources_pb2 as wire
from alignup.kubelet.layout import ArchiveFiles
from alignup.kubelet.pod_resources import plain_answer, pods_from_wire, read_answer
from alignup.kubelet.pod_resources_client import ask_kubelet
from inputs.kubelet_files import EXAMPLE

FILES = ArchiveFiles(EXAMPLE / "root.tar.xz")
PATHS = {"List": ("podresources/list.json", wire.ListAnswer)}
PATHS["GetAllocatableResources"] = ("podresources/allocatable.json", wire.AllocatableAnswer)


def answer(call):
    path, kind = PATHS[call]
    recorded = json.loads(FILES.read(path))
    return ParseDict(recorded, kind(), ignore_unknown_fields=True).SerializeToString()


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="k") as made:  # a socket's path is short
        (Path(made) / "pod-resources").mkdir()
        yield Path(made)


@pytest.fixture
def serve(folder):
    """Return a function that starts a server with handlers by call, and returns its socket."""
    started = []

    def start(**handlers):
        server = grpc.server(futures.ThreadPoolExecutor(2))
        methods = {
            name: grpc.unary_unary_rpc_method_handler(handler) for name, handler in handlers.items()
        }
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("v1.PodResourcesLister", methods)]
        )
        socket = folder / "pod-resources/kubelet.sock"
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        started.append(server)
        return socket

    yield start
    for server in started:
        server.stop(None).wait()


@pytest.fixture
def kubelet(serve):
    return serve(**{call: lambda _, __, call=call: answer(call) for call in PATHS})


def test_answers_are_those_that_were_recorded(kubelet):
    listed, _ = ask_kubelet(kubelet)
    assert pods_from_wire(plain_answer(listed)) == pods_from_wire(
        read_answer(FILES, PATHS["List"][0])
    )


def test_a_node_is_read_with_the_answers_of_a_running_kubelet(kubelet, tmp_path):
    with tarfile.open(EXAMPLE / "root.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    recorded = read_kubelet_node(tmp_path)
    for path, _ in PATHS.values():
        (tmp_path / path).unlink()
    state = tmp_path / "var/lib/kubelet"
    for path in state.iterdir():
        path.rename(kubelet.parents[1] / path.name)
    live = read_kubelet_node(tmp_path, kubelet_dir=kubelet.parents[1])
    assert live.devices.free == recorded.devices.free
    assert live.cpu.shared_cpus == recorded.cpu.shared_cpus


def test_a_kubelet_that_fails_is_one_line(serve):
    def fail(_, context):
        context.abort(grpc.StatusCode.INTERNAL, "no\nway")

    socket = serve(List=fail)
    with pytest.raises(InputError, match=r"List failed: internal: no\\nway") as caught:
        ask_kubelet(socket)
    assert "\n" not in str(caught.value)


def test_a_kubelet_that_fails_without_a_word_gives_no_reason(serve):
    def fail(_request, context):
        context.abort(grpc.StatusCode.INTERNAL, "")

    socket = serve(List=fail)
    with pytest.raises(InputError, match=r"List failed: internal: no reason given at "):
        ask_kubelet(socket)


def refusing(words, times):
    """Return a handler of List that refuses so many questions, and a list with an item for each."""
    questions = []

    def handler(_request, context):
        questions.append(1)
        if len(questions) <= times:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, words)
        return answer("List")

    return handler, questions


@pytest.mark.parametrize("times", [1, 2, 7])
def test_a_kubelet_that_is_asked_by_too_many_is_asked_again(serve, times):
    """It answers a hundred questions a second of all who ask; so does 1.38.0-beta.0."""
    handler, questions = refusing("rejected by rate limit", times)
    allocatable = answer("GetAllocatableResources")
    socket = serve(List=handler, GetAllocatableResources=lambda _request, _context: allocatable)
    listed, _ = ask_kubelet(socket)
    assert listed["pod_resources"]
    assert len(questions) == times + 1


def test_a_kubelet_that_refuses_all_questions_is_an_error_in_time(serve):
    handler, questions = refusing("rejected by rate limit", 1000)
    socket = serve(List=handler)
    with pytest.raises(InputError, match="List failed: resource_exhausted: rejected by rate limit"):
        ask_kubelet(socket, seconds=0.3)
    assert 1 < len(questions) < 10


def test_an_answer_that_is_refused_for_another_reason_is_asked_for_once(serve):
    handler, questions = refusing("received message larger than max", 1000)
    with pytest.raises(InputError, match="larger than max"):
        ask_kubelet(serve(List=handler))
    assert len(questions) == 1


def test_nobody_behind_the_socket_is_one_line(folder):
    with pytest.raises(InputError, match="List failed"):
        ask_kubelet(folder / "kubelet.sock", seconds=0.5)


def test_a_missing_extra_says_which(monkeypatch, folder):
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(InputError, match=r"pip install 'alignup\[kubelet\]'"):
        ask_kubelet(folder / "x")


def test_a_missing_extra_costs_names_and_topology_only(monkeypatch, kubelet, tmp_path):
    with tarfile.open(EXAMPLE / "root.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")

    for path, _ in PATHS.values():
        (tmp_path / path).unlink()

    for path in (tmp_path / "var/lib/kubelet").iterdir():
        path.rename(kubelet.parents[1] / path.name)

    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.warns(AlignupWarning) as caught:
        node = read_kubelet_node(tmp_path, kubelet_dir=kubelet.parents[1])

    assert any(
        "no PodResources answers: to ask a kubelet" in str(warning.message) for warning in caught
    )
    assert any(
        "takes grpcio with protobuf, which is not installed" in str(warning.message)
        for warning in caught
    )
    assert len(node.pods) == 7
