"""What is served as PodResources is what a client is told, by sockets that go when it ends."""

from __future__ import annotations

import asyncio
import gc
import socket
import stat
import threading
from contextlib import ExitStack

import grpc
import pytest

from alignup.errors import InputError
from alignup.kubelet import pod_resources_pb2 as wire
from alignup.kubelet import pod_resources_server
from alignup.kubelet.pod_resources import (
    Allocatable,
    ContainerResources,
    PodResources,
    allocatable_from_wire,
    pods_from_wire,
)
from alignup.kubelet.pod_resources_client import ask_kubelet
from alignup.kubelet.pod_resources_server import serve_pod_resources
from alignup.machine.cpuset import CPUSet
from alignup.machine.device_inventory import Device
from alignup.records import replace
from alignup.topology_manager.admission import MemoryBlock
from fakes.device_plugins import short_folder

NEAR, FAR, ILL = Device("near", (0, 1)), Device("far", None), Device("ill", (1,), healthy=False)
BLOCK = MemoryBlock((0,), "memory", 1 << 40)

CONTAINER = ContainerResources("c", CPUSet([1, 2]), (BLOCK,), {"x/nic": ("ill", "near")})
SIDECAR = ContainerResources("s", CPUSet(), (), {})
PODS = (
    PodResources("shop", "web", (CONTAINER, SIDECAR)),
    PodResources("default", "web", (), cpus=CPUSet([3]), memory=(BLOCK,)),
)
ALLOCATABLE = Allocatable(
    CPUSet(range(1, 8)), (BLOCK,), {"x/nic": (FAR, ILL, NEAR), "x/gone": (ILL,)}
)


def tell():
    return PODS, ALLOCATABLE


@pytest.fixture
def folder():
    with short_folder() as path:
        yield path


@pytest.fixture
def loop():
    """An event loop that runs, in a thread of its own."""
    running = asyncio.new_event_loop()
    thread = threading.Thread(target=running.run_forever)
    thread.start()
    yield running
    running.call_soon_threadsafe(running.stop)
    thread.join()
    running.close()


@pytest.fixture
def serve(loop):
    """Return a function that serves answers by socket until the test ends.

    It returns how to end that earlier.
    """
    with ExitStack() as stack:

        def start(answers):
            stop = serve_pod_resources(answers, loop, "--podresources")
            stack.callback(stop)
            return stop

        yield start


@pytest.fixture
def path(folder, serve):
    """The socket at which pods and allocatable resources are told."""
    path = folder / "deep" / "kubelet.sock"
    serve({path: tell})
    return path


def get(path, namespace, name):
    with grpc.insecure_channel(f"unix:{path}") as channel:
        method = channel.unary_unary(
            "/v1.PodResourcesLister/Get",
            wire.PodQuestion.SerializeToString,
            wire.PodAnswer.FromString,
        )
        question = wire.PodQuestion(pod_namespace=namespace, pod_name=name)
        return method(question, timeout=60).pod_resources


async def this_thread():
    return threading.current_thread()


def test_a_client_is_told_the_records(path):
    """Devices that are ill are held still, and cannot be given."""
    listed, allocatable = ask_kubelet(path)

    assert pods_from_wire(listed) == PODS
    assert allocatable_from_wire(allocatable) == replace(
        ALLOCATABLE, devices={"x/nic": (FAR, NEAR)}
    )


def test_only_a_device_with_a_topology_has_one_on_the_wire(path):
    _, allocatable = ask_kubelet(path)
    topologies = {entry["device_ids"][0]: entry.get("topology") for entry in allocatable["devices"]}
    # NUMA node 0 is left out by protobuf
    assert topologies == {"near": {"nodes": [{}, {"ID": "1"}]}, "far": None}


def test_a_pod_is_found_by_namespace_and_name(path):
    assert [container.name for container in get(path, "shop", "web").containers] == ["c", "s"]
    assert get(path, "default", "web").cpu_ids == [3]


def test_a_pod_that_is_not_there_is_missed_in_the_kubelets_words(path):
    with pytest.raises(grpc.RpcError) as caught:
        get(path, "shop", "none")
    assert caught.value.code() is grpc.StatusCode.UNKNOWN
    assert caught.value.details() == "pod none in namespace shop not found"


def test_answers_are_made_in_the_event_loop_for_each_question(folder, serve, loop):
    path = folder / "kubelet.sock"
    threads = []

    def answers():
        threads.append(threading.current_thread())
        return PODS[: len(threads)], ALLOCATABLE

    serve({path: answers})
    listed, _ = ask_kubelet(path)  # and GetAllocatableResources after it
    assert pods_from_wire(listed) == PODS[:1]
    listed, _ = ask_kubelet(path)
    assert pods_from_wire(listed) == PODS

    (thread,) = set(threads)
    assert asyncio.run_coroutine_threadsafe(this_thread(), loop).result() is thread


def test_a_loop_that_is_busy_is_said(path, loop, monkeypatch):
    monkeypatch.setattr(pod_resources_server, "_PATIENCE", 0.05)
    is_over = threading.Event()
    loop.call_soon_threadsafe(is_over.wait)
    try:
        with pytest.raises(InputError, match="List failed: unavailable: the event loop is busy"):
            ask_kubelet(path)
    finally:
        is_over.set()


def test_a_loop_that_ends_while_it_is_asked_leaves_nothing_behind(folder, monkeypatch):
    """A task of it that is pending would be told of by whichever test runs next."""
    monkeypatch.setattr(pod_resources_server, "_PATIENCE", 0.05)
    path = folder / "kubelet.sock"
    loop = asyncio.new_event_loop()  # nobody runs it
    stop = pod_resources_server.serve_pod_resources({path: tell}, loop, "--podresources")
    with pytest.raises(InputError, match="the event loop is busy"):
        ask_kubelet(path)

    stop()
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    gc.collect()


def test_sockets_are_for_the_own_user_and_go_when_it_ends(folder, serve):
    paths = [folder / name for name in ("a", "b")]
    stop = serve(dict.fromkeys(paths, tell))
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}
    stop()
    assert list(folder.iterdir()) == []


def test_what_was_left_of_a_socket_is_replaced_and_another_file_is_not(folder, serve):
    path = folder / "kubelet.sock"
    with socket.socket(socket.AF_UNIX) as abandoned:
        abandoned.bind(str(path))

    serve({path: tell})
    assert pods_from_wire(ask_kubelet(path)[0]) == PODS

    other_path = folder / "file"
    other_path.write_text("mine")
    with pytest.raises(InputError, match="--podresources"):
        serve({other_path: tell})
    assert other_path.read_text() == "mine"


def test_a_socket_that_somebody_serves_stays_theirs(path, serve):
    with pytest.raises(InputError, match="--podresources"):
        serve({path: tell})
    assert pods_from_wire(ask_kubelet(path)[0]) == PODS


def test_where_one_socket_cannot_be_none_is_served(folder, serve):
    (folder / "file").touch()
    served, impossible = folder / "kubelet.sock", folder / "file" / "kubelet.sock"

    with pytest.raises(InputError, match="cannot serve PodResources"):
        serve(dict.fromkeys([served, impossible], tell))
    assert not served.exists()
