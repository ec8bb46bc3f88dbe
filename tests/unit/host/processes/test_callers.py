"""Clients in containers call their processes by other numbers.

The agent knows which are meant, and no others.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from alignup.errors import InputError
from alignup.host.leases.agent_messages import Ask, Failed, decode_reply, frame
from alignup.host.leases.request import LeaseRequest, make_request
from alignup.host.processes import callers as module
from alignup.host.processes.callers import Caller, descendant
from alignup.host.processes.identity import identify
from fakes.device_plugins import short_folder
from running.agents import LONG, client, eventually, running_agent
from running.pid_namespaces import UNSHARE, needs_namespaces
from running.real_cgroups import made_cgroup, members

LISTS_CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children").exists()
pytestmark = pytest.mark.skipif(
    not LISTS_CHILDREN, reason="the kernel does not list children (CONFIG_PROC_CHILDREN)"
)

RUN = (
    sys.executable,
    "-m",
    "alignup",
    "run",
    "--cpus",
    "2",
    "--no-bind",
    "--",
    "sh",
    "-c",
    "echo $$; cat",
)
"""Says the number of its process, and lasts until its input ends."""

LIAR = """
import os, socket, subprocess, sys
import msgspec
from alignup.host.leases.agent_messages import *
from alignup.host.processes.identity import identify
def exchange(request):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        connection.sendall(frame(request))
        stream = connection.makefile("rb")
        return decode_reply(stream.read(int.from_bytes(stream.read(4), "big")))
child = subprocess.Popen(["sleep", "600"])
holder, keeper = identify(child.pid), identify(os.getpid())
lease = exchange(Ask("a" * 16, holder, "", "x", keeper, cpus=1)).lease
exchange(GiveBack(lease.id))
print(lease.process.pid, lease.keeper.pid)
print(type(exchange(Ask("b" * 16, lease.process, "", "x", lease.keeper, cpus=1))).__name__)
pid, start_time = map(int, sys.argv[2:4])
neighbour = msgspec.structs.replace(lease.process, pid=pid, start_time=start_time)
print(type(exchange(Ask("c" * 16, neighbour, "", "x", cpus=1))).__name__, flush=True)
input()
"""
"""Says of itself what the reply to its first request says."""


@pytest.fixture
def folder(monkeypatch):
    monkeypatch.delenv("ALIGNUP_AGENT", raising=False)
    monkeypatch.delenv("ALIGNUP_STATE", raising=False)
    with short_folder() as made:
        yield made


@contextmanager
def container(*words, agent=None, **pipes):
    """Run a command as process 1 of a PID namespace of its own."""
    environment = {**os.environ, "ALIGNUP_AGENT": str(agent)} if agent else None

    process = subprocess.Popen(  # noqa: S603  # a test
        [*UNSHARE, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        **pipes,
    )

    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def connected(process):
    """Return what a client is to us that is said to be a process."""

    class Connection:
        def getsockopt(self, _level, option, _size):
            if option == socket.SO_PEERCRED:
                return struct.Struct("3i").pack(process, 0, 0)
            return os.pidfd_open(process).to_bytes(4, sys.byteorder)

    return Caller(Connection())


def children(process):
    return module._children(process, iter(range(9)))


def test_the_process_at_the_other_end_is_known():
    """By its own number, and its children's."""
    near_end, far_end = socket.socketpair()
    child = subprocess.Popen(["sleep", "600"])  # noqa: S607  # a test
    with near_end, far_end:
        caller = Caller(near_end)
        assert caller.uid == os.geteuid()
        assert caller.own_process(os.getpid()) == identify(os.getpid())
        assert caller.own_process(child.pid) == identify(child.pid)
        assert caller.own_process(os.getppid()) is None
        child.kill()
        child.wait()
        assert caller.own_process(child.pid) is None


@pytest.mark.parametrize("is_new", [True, False])
def test_kernels_without_descriptors_of_the_other_end_tell_its_number(monkeypatch, is_new):
    near_end, far_end = socket.socketpair()
    if not is_new:
        monkeypatch.setattr(module, "_SO_PEERPIDFD", 9999)
    with near_end, far_end:
        assert Caller(near_end).own_process(os.getpid()) == identify(os.getpid())
        monkeypatch.setattr(module, "_MACHINES", ())
        assert Caller(near_end).own_process(os.getpid()) == identify(os.getpid())


def test_one_that_has_ended_has_no_processes():
    gone = subprocess.Popen(["sleep", "600"])  # noqa: S607  # a test
    caller, descriptor = connected(gone.pid), os.pidfd_open(gone.pid)
    gone.kill()
    gone.wait()
    caller._connection.getsockopt = lambda *_: os.dup(descriptor).to_bytes(4, sys.byteorder)
    assert caller.own_process(gone.pid) is None
    os.close(descriptor)


def files_read(monkeypatch, pid):
    """Return how many files are read for a process that is not there, and what is found for one."""
    read = []

    text = module.start_of
    monkeypatch.setattr(module, "start_of", lambda *what: read.append(what) or text(*what))
    missing, count = descendant(os.getpid(), 1 << 30), len(read)
    assert missing is None
    return count, descendant(os.getpid(), pid)


def test_little_is_read_for_who_has_many_threads_and_processes(monkeypatch):
    """Everybody else waits meanwhile.

    Who asks is found all the same, and what its main thread has started first.
    """
    monkeypatch.setattr(module, "_MOST", 20)
    goes_on = threading.Event()
    threads = [threading.Thread(target=goes_on.wait) for _ in range(60)]
    for thread in threads:
        thread.start()

    started = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]  # noqa: S607  # a test
    try:
        count, process_identity = files_read(monkeypatch, os.getpid())
        assert process_identity == identify(os.getpid())
        assert count <= 22
    finally:
        goes_on.set()
        for thread in threads:
            thread.join()
        for process in started:
            process.kill()
            process.wait()


def test_a_long_list_of_processes_is_not_read_to_its_end(monkeypatch):
    before = set(children(os.getpid()))  # what other tests have left
    monkeypatch.setattr(module, "_LONGEST_LIST", 12)
    started = [subprocess.Popen(["sleep", "600"]) for _ in range(4)]  # noqa: S607  # a test
    try:
        pids = children(os.getpid())
        assert len(pids) < 4
        assert set(pids) <= before | {process.pid for process in started}
    finally:
        for process in started:
            process.kill()
            process.wait()


@needs_namespaces
def test_numbers_of_a_namespace_below_are_found():
    """Of the one that asks, what it has started, and what that has started.

    Not of a namespace further below.
    """
    script = """
sh -c 'sleep 600 & echo inner $!; wait' &
unshare --pid --fork sleep 600 &
echo outer $!
wait
"""
    with container("sh", "-c", script) as process:
        numbers = dict(process.stdout.readline().split() for _ in range(2))
        (init,) = children(process.pid)
        assert descendant(init, 1) == identify(init)
        for number in map(int, numbers.values()):
            identity = descendant(init, number)
            assert module._numbers(identity.pid)[-1] == number

        assert descendant(init, 999) is None
        # that one is called 1 as well, in its own namespace
        eventually(
            lambda: any(len(module._numbers(pid)) == 3 for pid in module._with_children(init))
        )
        (below,) = [pid for pid in module._with_children(init) if len(module._numbers(pid)) == 3]
        assert (module._numbers(below)[-1], descendant(init, 1).pid) == (1, init)
        (above,) = [pid for pid in module._with_children(init) if children(pid) == [below]]
        assert descendant(above, 1) is None


@needs_namespaces
def test_a_command_in_a_container_gets_a_lease(folder):
    """Its lease names its processes by their numbers here, and ends with them.

    It stays in its own cgroup.
    """
    with made_cgroup() as base, running_agent(folder, cgroup=base):
        with container(*RUN, agent=folder / "agent.sock") as process:
            inner = int(process.stdout.readline())
            (known_lease,) = client(folder).overview().leases
            assert known_lease.state == "running"
            assert module._numbers(known_lease.lease.process.pid)[-1] == inner
            assert known_lease.lease.process.pid_namespace == identify(os.getpid()).pid_namespace
            assert known_lease.lease.cgroup == ""
            process.communicate("")
            assert process.returncode == 0
            assert client(folder).overview().leases == ()

        with container(*RUN, agent=folder / "agent.sock") as process:
            process.stdout.readline()
            (known_lease,) = client(folder).overview().leases
            for member in reversed(known_lease.lease.processes):
                os.kill(member.pid, signal.SIGKILL)
            eventually(lambda: not client(folder).overview().leases)


@needs_namespaces
def test_a_command_in_a_container_gets_a_cgroup_below_its_own(folder):
    with made_cgroup() as base, running_agent(folder, cgroups=True):
        enter = ("sh", "-c", f'echo $$ > {base}/cgroup.procs; exec "$0" "$@"', *RUN)
        with container(*enter, agent=folder / "agent.sock") as process:
            process.stdout.readline()
            (known_lease,) = client(folder).overview().leases
            assert known_lease.lease.cgroup == f"{base}/alignup-{known_lease.lease.id}"
            assert known_lease.lease.process.pid in members(known_lease.lease.cgroup)
        eventually(lambda: not client(folder).overview().leases)


@needs_namespaces
def test_a_program_in_a_container_gets_and_gives_back_a_lease(folder):
    script = """
import alignup, json, os
with alignup.lease(cpus=2, bind=False) as lease:
    print(json.dumps([os.getpid(), list(lease.cpus)]), flush=True)
    input()
print("given back", flush=True)
input()
"""
    with (
        running_agent(folder),
        container(sys.executable, "-c", script, agent=folder / "agent.sock") as process,
    ):
        pid, cpus = json.loads(process.stdout.readline())
        (known_lease,) = client(folder).overview().leases
        assert (list(known_lease.lease.cpus), pid) == (cpus, 1)
        assert known_lease.lease.process.pid != 1
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "given back\n"
        assert client(folder).overview().leases == ()


@needs_namespaces
def test_nobody_names_the_processes_of_others(folder):
    """Such as process 1 of the container, from a command that it has started."""
    script = f"""
import socket, sys
from alignup.host.leases.agent_messages import *
from alignup.host.processes.identity import identify
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect({str(folder / "agent.sock")!r})
    connection.sendall(frame(Ask("a" * 16, identify(1), "", "x", cpus=1)))
    stream = connection.makefile("rb")
    print(stream.read(int.from_bytes(stream.read(4), "big")).decode())
"""
    command = ("sh", "-c", '"$0" -c "$1"; true', sys.executable, script)
    with running_agent(folder), container(*command) as process:
        out, _ = process.communicate(timeout=LONG)
        reply = decode_reply(out.strip().encode())
        assert isinstance(reply, Failed)
        assert "or one that this has started, got pid 1 of another container" in reply.detail
        assert client(folder).overview().leases == ()


@needs_namespaces
def test_who_says_to_be_outside_of_its_container_stays_in_it(folder):
    """In its cgroup, and among its own processes.

    Whatever it says, the kernel knows where it is.
    """
    me = identify(os.getpid())
    command = (
        sys.executable,
        "-c",
        LIAR,
        str(folder / "agent.sock"),
        str(me.pid),
        str(me.start_time),
    )

    with made_cgroup() as base, running_agent(folder, cgroup=base), container(*command) as process:
        numbers = [int(text) for text in process.stdout.readline().split()]
        assert [process.stdout.readline().strip() for _ in range(2)] == ["Failed", "Failed"]

        cgroups = [Path(f"/proc/{number}/cgroup").read_text() for number in numbers]
        assert not [text for text in cgroups if base.name in text]
        assert list(base.glob("alignup-*")) == []
        assert client(folder).overview().leases == ()


def test_whether_somebody_is_elsewhere_the_kernel_says():
    """Whoever has ended is not to be seen any more."""
    near_end, far_end = socket.socketpair()
    with near_end, far_end:
        assert not Caller(near_end).is_elsewhere()
    gone = subprocess.Popen(["true"])  # noqa: S607  # a test
    caller, descriptor = connected(gone.pid), os.pidfd_open(gone.pid)
    gone.wait()
    caller._connection.getsockopt = lambda *_: os.dup(descriptor).to_bytes(4, sys.byteorder)
    assert caller.is_elsewhere()
    os.close(descriptor)


def test_without_a_free_descriptor_nobody_is_taken_for_one_of_the_host(monkeypatch):
    """A container may have brought that about."""

    def refuse(*_, **_more):
        raise OSError(24, "too many open files")

    near_end, far_end = socket.socketpair()
    with near_end, far_end:
        caller = Caller(near_end)
        caller._connection = type("Connection", (), {"getsockopt": refuse})()
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", refuse)
            assert caller.is_elsewhere()


def test_a_kernel_without_pid_namespaces_has_nobody_elsewhere(monkeypatch):
    monkeypatch.setattr(module, "_NAMESPACE", "/proc/self/ns/none")
    monkeypatch.setattr(module, "_MACHINES", ())
    near_end, far_end = socket.socketpair()
    with near_end, far_end:
        assert not Caller(near_end).is_elsewhere()


@needs_namespaces
def test_one_in_a_namespace_below_is_elsewhere():
    with container("cat") as process:
        eventually(lambda: children(process.pid))
        (init,) = children(process.pid)
        assert connected(init).is_elsewhere()


@needs_namespaces
def test_an_agent_in_a_container_does_not_see_who_is_outside(folder):
    arguments = (
        "agent",
        "--machine",
        "dgx-h100",
        "--no-device-plugins",
        "--state",
        str(folder / "leases.json"),
    )

    with container(
        *(sys.executable, "-m", "alignup", *arguments, "--socket", str(folder / "agent.sock")),
        stderr=subprocess.DEVNULL,
    ):
        request = LeaseRequest(make_request(cpus=1), identify(os.getpid()), command="", name="x")
        with pytest.raises(InputError, match=r"got pid \d+ of another container or host"):
            client(folder).acquire(request)


def test_another_host_is_not_seen(folder):
    """One whose requests somebody passes on."""
    stranger = msgspec.structs.replace(identify(os.getppid()), boot_id="x")
    with running_agent(folder), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(folder / "agent.sock"))
        connection.sendall(frame(Ask("a" * 16, stranger, "", "x", cpus=1)))
        stream = connection.makefile("rb")
        reply = decode_reply(stream.read(int.from_bytes(stream.read(4), "big")))
        assert "of another container or host" in reply.detail
