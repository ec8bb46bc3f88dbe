"""A lease of a command ends with all that the command started, whatever that does to get away.

Its cgroup goes too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from alignup.errors import AllocationError
from alignup.host.agent.journal import read_entries
from alignup.host.agent.ownership import Ownership
from alignup.host.leases.evidence import living
from alignup.host.leases.file import LeaseFile
from alignup.host.leases.request import LeaseRequest, make_request
from alignup.host.processes.identity import identify
from fakes.device_plugins import short_folder
from running.agents import LONG, client, eventually, running_agent
from running.real_cgroups import made_cgroup, members

DAEMON = """
import os, subprocess
input()
if os.fork() == 0:
    os.setsid()
    null = subprocess.DEVNULL
    daemon = subprocess.Popen(["sleep", "600"], stdin=null, stdout=null)
    os.write(1, b"%d\\n" % daemon.pid)
    os._exit(0)
os.wait()
input()
"""


@pytest.fixture
def folder(monkeypatch):
    monkeypatch.delenv("ALIGNUP_AGENT", raising=False)
    monkeypatch.delenv("ALIGNUP_STATE", raising=False)
    with short_folder() as made:
        yield made


@pytest.fixture
def base():
    with made_cgroup() as made:
        yield made


class Command:
    """A command with a keeper, and a lease of both; it starts a daemon when it is told to."""

    def __init__(self, folder, **wishes):
        self.process = subprocess.Popen(  # noqa: S603  # ours
            [sys.executable, "-c", DAEMON], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.keeper = subprocess.Popen(["sleep", "600"])  # noqa: S607  # a test
        try:
            self.lease = client(folder).acquire(self.request_for(**wishes)).lease
        except BaseException:
            self.kill()
            raise

    def request_for(self, **wishes):
        """Return what it asks for."""
        process, keeper = identify(self.process.pid), identify(self.keeper.pid)
        return LeaseRequest(
            make_request(**wishes), process, command="c", name="made-up", keeper=keeper
        )

    def daemon(self):
        """Let it start one; return its process id."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def kill(self):
        """End the command and the keeper, but not the daemon."""
        for process in (self.process, self.keeper):
            process.kill()
            process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@contextmanager
def command(folder, **wishes):
    made = Command(folder, **wishes)
    try:
        yield made
    finally:
        made.kill()


def test_a_daemon_keeps_the_lease_and_nothing_else_does(folder, base):
    with running_agent(folder, cgroup=base), command(folder, cpus=16) as first:
        source, cgroup = client(folder), first.lease.cgroup
        assert members(cgroup) == [first.process.pid]
        assert Path(cgroup).parent == base
        daemon = first.daemon()
        first.kill()
        # the process between the command and the daemon is about to end
        eventually(lambda: members(cgroup) == [daemon])
        with pytest.raises(AllocationError):
            source.acquire(
                LeaseRequest(make_request(cpus=1), identify(os.getpid()), command="", name="x")
            )

        (known_lease,) = source.overview().leases
        assert (known_lease.lease.id, known_lease.state) == (first.lease.id, "running")
        with pytest.raises(AllocationError, match="which is running; --force frees it"):
            source.release(first.lease.name, force=False)
        os.kill(daemon, signal.SIGKILL)
        eventually(lambda: not source.overview().leases)
        eventually(lambda: not Path(cgroup).exists())


def test_a_lease_without_a_daemon_ends_at_once(folder, base):
    with running_agent(folder, cgroup=base), command(folder, cpus=2) as first:
        first.kill()
        eventually(lambda: not client(folder).overview().leases)
        eventually(lambda: not Path(first.lease.cgroup).exists())


def test_what_a_daemon_has_survives_the_agent(folder, base):
    """The end of the agent, and the end of the command while there is none."""
    with running_agent(folder, cgroup=base), command(folder, cpus=2) as first:
        daemon = first.daemon()
    with running_agent(folder, cgroup=base) as agent:
        assert [known_lease.lease.id for known_lease in client(folder).overview().leases] == [
            first.lease.id
        ]
        assert agent.said == []
    with running_agent(folder, cgroups=False):
        os.kill(daemon, signal.SIGKILL)
        eventually(lambda: not client(folder).overview().leases)
        eventually(lambda: not Path(first.lease.cgroup).exists())


def test_a_lease_that_is_freed_by_force_leaves_the_command_alone(folder, base):
    with running_agent(folder, cgroup=base), command(folder, cpus=16) as first:
        source = client(folder)
        source.release(first.lease.name, force=True)
        with command(folder, cpus=16) as second:
            assert second.lease.cgroup != first.lease.cgroup
            assert members(first.lease.cgroup) == [first.process.pid]
            first.kill()
            eventually(lambda: not Path(first.lease.cgroup).exists())
            assert [known_lease.lease.id for known_lease in source.overview().leases] == [
                second.lease.id
            ]


def test_a_process_that_asks_for_itself_stays_where_it_is(folder, base):
    with running_agent(folder, cgroup=base):
        request = LeaseRequest(make_request(cpus=1), identify(os.getpid()), command="", name="x")
        assert client(folder).acquire(request).lease.cgroup == ""
        assert list(base.glob("alignup-*")) == []


def test_a_refused_command_leaves_no_cgroup(folder, base):
    with running_agent(folder, cgroup=base):
        with pytest.raises(AllocationError, match="too few CPUs are free: 17 asked"):
            Command(folder, cpus=17)
        assert list(base.glob("alignup-*")) == []


def test_who_waits_gets_a_cgroup_too(folder, base):
    with (
        running_agent(folder, cgroup=base),
        command(folder, cpus=16) as first,
        command(folder) as second,
    ):
        first.kill()
        lease = client(folder).acquire(second.request_for(cpus=16), LONG).lease
        assert members(lease.cgroup) == [second.process.pid]


def test_without_a_cgroup_a_lease_ends_with_its_processes(folder, base, monkeypatch, caplog):
    """Which is said."""

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("alignup.host.processes.cgroups.Cgroups.enclose", refuse)
    with running_agent(folder, cgroup=base), command(folder, cpus=2) as first:
        assert first.lease.cgroup == ""
        message = f"the command of pid {first.process.pid} has no cgroup: permission denied"
        assert message in caplog.text
        first.kill()
        eventually(lambda: not client(folder).overview().leases)


def test_a_cgroup_that_could_not_be_used_is_removed_when_it_is_empty(folder, base, monkeypatch):
    """Somebody else's process is in it."""
    stranger = subprocess.Popen(["sleep", "600"])  # noqa: S607  # a test

    def put(_process, cgroup):
        (cgroup / "cgroup.procs").write_text(str(stranger.pid))
        raise ProcessLookupError

    monkeypatch.setattr("alignup.host.processes.cgroups._put", put)
    with running_agent(folder, cgroup=base), command(folder, cpus=2) as first:
        assert first.lease.cgroup == ""
        (left,) = base.glob("alignup-*")
        stranger.kill()
        stranger.wait()
        eventually(lambda: not left.exists())


def test_the_log_says_whether_there_are_cgroups(folder, base, caplog, monkeypatch):
    caplog.set_level("INFO")
    with running_agent(folder, cgroup=base):
        assert f"each lease of a command has a cgroup in {base}" in caplog.text
    monkeypatch.setattr("alignup.host.processes.cgroups.cgroup_of", lambda _: base)
    with running_agent(folder, cgroups=True):
        assert "each lease of a command has a cgroup below that of the command" in caplog.text
    monkeypatch.setattr("alignup.host.processes.cgroups.cgroup_of", lambda _: base / "no" / "such")
    with running_agent(folder, cgroups=True):
        assert "leases of commands have no cgroups" in caplog.text


def test_cgroups_that_a_killed_agent_left_are_removed(folder, base):
    (base / "alignup-0").mkdir()
    process = subprocess.Popen(["sleep", "600"])  # noqa: S607  # a test
    (base / "alignup-1").mkdir()
    (base / "alignup-1" / "cgroup.procs").write_text(str(process.pid))
    with running_agent(folder, cgroup=base):
        eventually(lambda: not (base / "alignup-0").exists())
        assert (base / "alignup-1").exists()
        process.kill()
        process.wait()
        eventually(lambda: not (base / "alignup-1").exists())


def ended_without_an_agent(folder, **options):
    """Return a command that had a lease of an agent, and has ended after it.

    Its cgroup is still there.
    """
    with running_agent(folder, **options):
        made = Command(folder, cpus=2)
    made.kill()
    assert members(made.lease.cgroup) == []
    return made


@pytest.mark.parametrize("makes_cgroups", [True, False])
def test_cgroups_of_leases_that_ended_without_an_agent_are_removed(
    folder, base, monkeypatch, makes_cgroups
):
    """Wherever they are: below those of the commands nobody looks for them."""
    monkeypatch.setattr("alignup.host.processes.cgroups.cgroup_of", lambda _: base)
    first = ended_without_an_agent(folder, cgroups=True)
    with running_agent(folder, cgroups=makes_cgroups) as agent:
        assert agent.said == ["1 lease ended while no agent ran"]
        eventually(lambda: not Path(first.lease.cgroup).exists())


def test_cgroups_of_ended_leases_go_when_the_others_are_handed_back(folder, base):
    first = ended_without_an_agent(folder, cgroup=base)
    ownership = Ownership(LeaseFile(folder / "leases.json", lambda _: None))
    assert ownership.hand_back(lambda _: None).leases == ()
    ownership.close()
    assert not Path(first.lease.cgroup).exists()


def test_leases_that_are_handed_back_last_as_long(folder, base):
    """`alignup agent --hand-back`: whoever reads the file looks at the cgroup too."""
    with running_agent(folder, cgroup=base), command(folder, cpus=2) as first:
        daemon = first.daemon()
    file = LeaseFile(folder / "leases.json", lambda _: None)
    ownership = Ownership(file)
    assert [lease.id for lease in ownership.hand_back(pytest.fail).leases] == [first.lease.id]
    ownership.close()
    assert living(file.read())[1] == []
    os.kill(daemon, signal.SIGKILL)
    eventually(lambda: [lease.id for lease in living(file.read())[1]] == [first.lease.id])


@pytest.mark.parametrize("is_one_for_all", [True, False])
def test_the_command_of_alignup_run_is_in_a_cgroup_from_its_first_step(
    folder, base, is_one_for_all
):
    """And what it leaves behind when its keeper is killed.

    By default below the cgroup that it is started in.
    """
    options = {"cgroup": base} if is_one_for_all else {"cgroups": True}
    script = (
        "grep ^0:: /proc/self/cgroup; kill -9 $(awk '/^PPid/ {print $2}' /proc/$$/status);"
        "(setsid sleep 600 >/dev/null 2>&1 &); exit 0"
    )
    environment = {**os.environ, "ALIGNUP_AGENT": str(folder / "agent.sock")}

    with running_agent(folder, **options):
        enter = f'echo $$ > {base}/cgroup.procs; exec "$0" "$@"'
        run = [
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
            script,
        ]

        command_line = ["sh", "-c", enter, *run]
        done = subprocess.run(  # noqa: S603
            command_line, env=environment, capture_output=True, text=True, check=False
        )

        (lease,) = read_entries((folder / "leases.json.journal").read_bytes(), "j")[0].leases
        assert done.stdout.strip().endswith(f"/{base.name}/alignup-{lease.id}"), done.stderr
        eventually(lambda: len(members(lease.cgroup)) == 1)
        assert [known_lease.state for known_lease in client(folder).overview().leases] == [
            "running"
        ]

        os.kill(members(lease.cgroup)[0], signal.SIGKILL)
        eventually(lambda: not client(folder).overview().leases)
