"""A publisher among servers that lie and damaged files.

It waits, says what and where, and publishes nothing untrue.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import socket
import tempfile
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from alignup import Node, read_machine
from alignup.control_plane.api_server import api_client, watch
from alignup.control_plane.api_server.api_client import TOPOLOGIES, Pauses
from alignup.control_plane.process import run_until_told
from alignup.control_plane.publishers.publish import publish_node, published_object, read_running
from alignup.errors import InputError
from alignup.kubelet import pod_resources_client
from alignup.kubelet.node_resource_topology.report import HOLDINGS, NODE
from alignup.machine.device_inventory import Device
from fakes.api_server import REAL_SLEEP, ApiStub, Clock, served
from inputs.kernel_trees import server
from inputs.kubelet_files import CONFIG, guaranteed, write_node, write_root

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from alignup.kubelet.read import KubeletNode

GPUS = {"nvidia.com/gpu": [Device("g0", (0,)), Device("g1", (1,))]}
PODS = (guaranteed("a", (1, 1, 1)), guaranteed("b", (2, 1)))
STATE = "var/lib/kubelet"
CPU, MEMORY = f"{STATE}/cpu_manager_state", f"{STATE}/memory_manager_state"
DEVICES = f"{STATE}/device-plugins/kubelet_internal_checkpoint"
LIST, ALLOCATABLE = "podresources/list.json", "podresources/allocatable.json"

HERE = f"{TOPOLOGIES}/n"
OTHER = {"metadata": {"name": "other", "annotations": {NODE: "{}", HOLDINGS: '{"pods":[]}'}}}

PROSE = {
    "kind": "Status",
    "message": "metadata.annotations: Too long:\nmay not be more than 262144 bytes\x1b[2J",
}


@pytest.fixture(autouse=True)
def no_alarm() -> Iterator[None]:
    """SIGTERM sets one, which ends a process whatever is under way."""
    yield
    signal.alarm(0)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """The files of a node with two pods, for copies."""
    root = write_root(
        tmp_path_factory.mktemp("node") / "root", server(cores=4, nodes=2, memory=8 << 20)
    )
    node = Node(read_machine(root), CONFIG, GPUS)
    for manifest in PODS:
        assert node.admit(manifest)
    return write_node(root, node, PODS)


@pytest.fixture
def root(files, tmp_path) -> Path:
    """The files of a node with two pods; the kernel's are shared."""
    root = shutil.copytree(
        files, tmp_path / "root", ignore=lambda *_: {"sys"}, copy_function=shutil.copyfile
    )
    (root / "sys").symlink_to(files / "sys")
    return root


def says(
    status: int, body: Any = b"", **headers: str
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return a server that answers each write alike."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    all_headers = {
        "Content-Type": "application/json",
        **{name.replace("_", "-"): text for name, text in headers.items()},
    }

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, body=data, headers=all_headers)

    return answer


def cut(
    begun: bool, *, length: int = 100
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Return a server that resets the connection, before its answer or within it."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(length)})
        if begun:
            await response.prepare(request)
            await response.write(b'{"metadata"')

        assert request.transport is not None
        request.transport.abort()
        return response

    return answer


def sends(part: bytes, seconds: float) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Return a server whose answer never ends."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with suppress(ConnectionError):
            while True:
                await response.write(part)
                await REAL_SLEEP(seconds)
        return response

    return answer


async def silent(_: web.Request) -> web.Response:
    await REAL_SLEEP(9)
    return web.Response()


async def no_http(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.write(b"\x16\x03\x01 SSH-2.0\r\n\x00\r\n\r\n")
    request.transport.close()
    return web.Response()


async def one_that_is_there(request: web.Request) -> web.Response:
    status = 409
    if request.method == "PATCH":
        status = 404
    return ApiStub.status(status, "one word for each")


async def forgets(request: web.Request) -> web.Response:
    body = json.loads(await request.read())
    body["metadata"]["annotations"] = {}
    return web.json_response(body)


async def stale(request: web.Request) -> web.Response:
    body = json.loads(await request.read())
    body["metadata"]["annotations"][HOLDINGS] = '{"pods":[]}'
    return web.json_response(body)


SERVERS: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
    "401": says(401, {"message": "Unauthorized"}),
    "403": says(403, {"message": "forbidden"}),
    "404 of the kind": says(404, b"404 page not found\n"),
    "409 for ever": says(409, {"message": "the object has been modified"}),
    "404 for PATCH and 409 for POST": one_that_is_there,
    "413": says(413, b"<html>"),
    "422 in several lines": says(422, PROSE),
    "429": says(429),
    "429 with Retry-After": says(429, Retry_After="1"),
    "429 with a huge Retry-After": says(429, Retry_After="9" * 300),
    "429 with a Retry-After below 0": says(429, Retry_After="-1"),
    "500": says(500, {"message": "etcdserver: request timed out"}),
    "500 with a long message": says(500, {"message": "x" * (1 << 19)}),
    "502 with HTML": says(502, b"<html>\n<h1>Bad Gateway</h1>\n"),
    "503 with a List": says(503, []),
    "504 that is no UTF-8": says(504, b"\xff\xfe\n"),
    "599": says(599),
    "a body that is cut off": cut(begun=True),
    "a body that is cut off by a wrong length": cut(begun=True, length=11 << 60),
    "a reset": cut(begun=False),
    "no HTTP": no_http,
    "silence": silent,
    "a slow drip": sends(b" ", 0.01),
    "an endless answer": sends(bytes(1 << 18), 0),
    "a packed answer": says(200, b"\x1f\x8b", Content_Encoding="gzip"),
    "302 to a page of a login": says(302, Location="/login"),
    "303 to itself": says(303, Location=HERE),
    "301 to a page of a login": says(301, Location="/login"),
    "307 for ever": says(307, Location=HERE),
    "308 to another machine": says(308, Location="http://127.0.0.1:9/"),
    "302 without a place": says(302),
    "304": says(304),
    "200 and nothing": says(200),
    "204": says(204),
    "200 and HTML": says(200, b"<html>"),
    "200 and half an object": says(200, b'{"metadata":{"name":"n"'),
    "200 and a List": says(200, {"kind": "List", "metadata": {}, "items": [OTHER]}),
    "200 and an array": says(200, [OTHER]),
    "200 and another kind": says(200, {"kind": "Pod", "metadata": {"name": "n"}}),
    "200 and another node": says(200, OTHER),
    "200 and a Status of failure": says(200, {"kind": "Status", "status": "Failure", "code": 500}),
    "200 and depths": says(200, b'{"a":' * 9_000),
    "200 and NUL bytes": says(200, bytes(5000)),
    "200 and no annotations": forgets,
    "200 and older annotations": stale,
}


@pytest.mark.parametrize("manner", SERVERS)
def test_a_bad_server_is_asked_less_often_and_told_about_and_gets_the_node_in_the_end(
    manner, files, monkeypatch, caplog
) -> None:
    """In 120 seconds of pauses of 0.1 to 10 seconds, though the node is looked at each 50 ms.

    SIGTERM ends it.
    """
    clock = Clock()
    writes: list[tuple[str, str]] = []
    said: list[str] = []
    node = read_running(os.fspath(files))
    caplog.set_level(logging.INFO, "alignup")
    monkeypatch.setattr(api_client, "_PATIENCE", 0.002)
    monkeypatch.setattr(api_client, "_LARGEST_ANSWER", 1 << 20)

    async def scenario() -> None:
        stub, good = ApiStub(), False
        real = stub.handle

        async def handle(request: web.Request) -> web.StreamResponse:
            if request.path == "/login":
                return web.Response(text="<html>", content_type="text/html")
            if good or (request.method == "GET" and request.path == TOPOLOGIES):
                return await real(request)
            writes.append((request.method, request.path))
            return await SERVERS[manner](request)

        stub.handle = handle  # type: ignore[method-assign]
        async with served(stub, said.append, Pauses()) as api:
            monkeypatch.setattr(watch.asyncio, "sleep", clock.sleep)
            work = publish_node(api, "n", lambda: node, interval=0.05, writes_events=False)
            task = asyncio.create_task(run_until_told(work))
            while clock.now < 120 and len(writes) < 500:
                await REAL_SLEEP(0.001)
            assert not [
                complaint for complaint in caplog.messages if complaint.startswith("published")
            ]
            good = True
            monkeypatch.setattr(api_client, "_PATIENCE", 30.0)
            while TOPOLOGIES not in stub.objects:
                await REAL_SLEEP(0.001)
            annotations = stub.get(TOPOLOGIES, "n")["metadata"]["annotations"]
            assert annotations == published_object("n", node)["metadata"]["annotations"]
            os.kill(os.getpid(), signal.SIGTERM)
            await task
            monkeypatch.undo()

    asyncio.run(scenario())
    assert len(writes) <= 2 * 22, f"{len(writes)} writes in 120 seconds"
    assert said
    assert all(
        TOPOLOGIES in complaint and complaint.isprintable() and len(complaint) < 700
        for complaint in said
    )


def torn(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def elsewhere(path: Path) -> None:
    """Beyond the root, where the very same file is."""
    outside = Path(os.fspath(path).partition("/root/")[0], f"outside-{path.name}")
    path.rename(outside)
    path.symlink_to(outside)


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def plug(path: Path) -> None:
    """A socket that nobody hears."""
    path.unlink()
    parent = os.open(path.parent, os.O_RDONLY)  # names of sockets are short
    with closing(socket.socket(socket.AF_UNIX)) as unheard:
        unheard.bind(f"/proc/self/fd/{parent}/{path.name}")
    os.close(parent)


def huge(path: Path) -> None:
    os.truncate(path, 40 << 20)


def holes(path: Path) -> None:
    """As after a power cut: the size is right, the content is not."""
    size = path.stat().st_size
    path.write_bytes(bytes(size))


def one_zero(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def no_text(path: Path) -> None:
    path.write_bytes(b"\xff\xfe" + path.read_bytes())


def deep(path: Path) -> None:
    path.write_bytes(b'{"a":' * 5000)


def twice(path: Path) -> None:
    path.write_bytes(path.read_bytes() * 2)


def a_number(path: Path) -> None:
    path.write_text("1e999")


def null(path: Path) -> None:
    path.write_text("null")


def array(path: Path) -> None:
    path.write_text(f"[{path.read_text()}]")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def gone(path: Path) -> None:
    path.unlink()


def other_sum(path: Path) -> None:
    document = json.loads(path.read_bytes())
    key = "Checksum" if "Checksum" in document else "checksum"
    path.write_text(json.dumps({**document, key: document[key] ^ 1}))


def of_the_future(path: Path) -> None:
    """A version of the file that nobody knows: everything is elsewhere."""
    document = json.loads(path.read_bytes())
    path.write_text(json.dumps({"version": "v99", "checksum": 1, "state": document}))


ALL = (
    torn,
    folder,
    elsewhere,
    loop,
    dangling,
    pipe,
    plug,
    huge,
    holes,
    one_zero,
    no_text,
    deep,
    twice,
    a_number,
    null,
)
ALL += (array, empty, gone)
SUMS = (other_sum, of_the_future)
FAULTS = {
    **dict.fromkeys((CPU, MEMORY, DEVICES), (*ALL, *SUMS)),
    **dict.fromkeys((LIST, ALLOCATABLE), ALL),
    f"{STATE}/config.yaml": (torn, folder, elsewhere, loop, pipe, huge, holes, no_text, gone),
}


def mend(path: Path, whole: Path) -> None:
    """Put the file there again, whatever is in its place."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    path.with_name("new").write_bytes(whole.read_bytes())
    path.with_name("new").replace(path)


def check_words(said: list[str], fault: Callable[[Path], None], path: Path) -> None:
    """The last complaint names the file, or what is missing, and where."""
    name = path.stem
    if fault in {gone, dangling}:
        name = {
            "list": "PodResources",
            "allocatable": "PodResources",
            "config": "configuration",
        }.get(name, name)
    assert name in said[-1], fault
    assert os.fspath(path).partition("/root/")[0] + "/root" in said[-1], fault
    assert all(complaint.isprintable() and len(complaint) < 700 for complaint in said), fault


@pytest.mark.filterwarnings("ignore::alignup.errors.AlignupWarning")
@pytest.mark.parametrize("path", FAULTS, ids=lambda path: path.rpartition("/")[2])
def test_a_damaged_file_is_told_about_and_what_was_published_stays(
    path, files, root, monkeypatch
) -> None:
    """Once, until it is whole again; SIGTERM ends it beside the last fault."""
    said: list[str] = []
    looks = 0
    faults = FAULTS[path]

    def read() -> KubeletNode:
        nonlocal looks
        looks += 1
        return read_running(os.fspath(root))

    async def scenario() -> None:
        stub = ApiStub()

        def writes() -> int:
            return sum(method != "GET" for method, _ in stub.requests)

        async with served(stub, said.append, Pauses()) as api:
            monkeypatch.setattr(watch.asyncio, "sleep", lambda _: REAL_SLEEP(0.002))
            work = publish_node(api, "n", read, interval=0.05, writes_events=False)
            task = asyncio.create_task(run_until_told(work))
            while TOPOLOGIES not in stub.objects or not stub.watches:
                await REAL_SLEEP(0.001)

            # the first list may have begun before the object was there
            looks_before = looks
            while looks < looks_before + 4:
                await REAL_SLEEP(0.001)

            for fault in faults:
                published = stub.get(TOPOLOGIES, "n")
                writes_before = writes()
                said_before = len(said)
                looks_before = looks
                fault(root / path)
                while looks < looks_before + 4:
                    await REAL_SLEEP(0.001)
                    assert stub.get(TOPOLOGIES, "n") == published, fault
                    assert not task.done(), fault

                assert writes() == writes_before, fault
                # not at each look; a fault of two steps may be seen at its first
                assert len(said) - said_before == len(set(said[said_before:])) <= 2, fault
                check_words(said, fault, root / path)
                if fault is faults[-1]:
                    os.kill(os.getpid(), signal.SIGTERM)
                    await task
                    break

                mend(root / path, files / path)
                # it is written again, as nobody knows what happened meanwhile
                while writes() == writes_before:
                    await REAL_SLEEP(0.001)
                assert (
                    stub.get(TOPOLOGIES, "n")["metadata"]["annotations"]
                    == published["metadata"]["annotations"]
                ), fault

            monkeypatch.undo()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_kubelet_that_hangs_keeps_nothing_else_waiting(root) -> None:
    """The watch goes on, and SIGTERM is heard, while a look takes its seconds."""
    hangs, begun = threading.Event(), threading.Event()

    def read() -> KubeletNode:
        begun.set()
        assert hangs.wait(30)
        return read_running(os.fspath(root))

    async def scenario() -> None:
        stub = ApiStub()
        async with served(stub, pytest.fail, Pauses()) as api:
            work = publish_node(api, "n", read, interval=0.05, writes_events=False)
            task = asyncio.create_task(run_until_told(work))
            while not (begun.is_set() and stub.watches):
                await REAL_SLEEP(0.001)
            os.kill(os.getpid(), signal.SIGTERM)
            await task
            hangs.set()

    try:
        asyncio.run(asyncio.wait_for(scenario(), 5))
    finally:
        hangs.set()


def closes(connection: socket.socket) -> None:
    connection.close()


def babbles(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + bytes(2000))
    connection.close()


def hangs(_: socket.socket) -> None:
    """Hear, and say nothing."""


@pytest.mark.filterwarnings("ignore::alignup.errors.AlignupWarning")
@pytest.mark.parametrize(
    "manner",
    [None, gone, pipe, closes, babbles, hangs],
    ids=lambda manner: getattr(manner, "__name__", "deaf"),
)
def test_a_kubelet_that_does_not_answer_publishes_nothing(manner, root, monkeypatch) -> None:
    """Its state files alone do not tell enough.

    Near which NUMA nodes devices are is missing, and which pods are gone.
    """
    monkeypatch.setattr(pod_resources_client.ask_kubelet, "__defaults__", (0.05,))
    for path in (LIST, ALLOCATABLE):
        (root / path).unlink()

    with (
        tempfile.TemporaryDirectory(prefix="a") as short,
        closing(socket.socket(socket.AF_UNIX)) as door,
    ):
        short_root = Path(short, "r")  # names of sockets are short
        short_root.symlink_to(root)
        path = short_root / pod_resources_client.SOCKET
        path.parent.mkdir()
        door.bind(os.fspath(path))
        connections = []

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connections.append(door.accept()[0])
                    manner(connections[-1])

        thread = threading.Thread(target=serve)
        if manner in {gone, pipe}:
            manner(path)
        elif manner is not None:
            door.listen()
            thread.start()

        try:
            with pytest.raises(InputError, match=r"no PodResources answers at .*not published"):
                read_running(os.fspath(short_root))
        finally:
            if thread.ident is not None:
                door.shutdown(socket.SHUT_RDWR)
                thread.join()

            for connection in connections:
                connection.close()
