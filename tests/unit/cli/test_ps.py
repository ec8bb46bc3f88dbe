"""`alignup ps`: who holds what; and `release`, which frees what nobody needs any more."""

from __future__ import annotations

import json
import os

import msgspec
import pytest
from click.testing import CliRunner

from alignup.cli import ps as ps_module
from alignup.cli.ps import age
from alignup.cli.ps import ps as command
from alignup.cli.ps import release as release_command
from alignup.host.leases.file import LeaseFile
from alignup.host.leases.record import MachineIdentity, MemoryShare, Waiter
from alignup.host.processes import affinity as affinity_module
from alignup.host.processes.affinity import Affinity
from alignup.machine.cpuset import CPUSet
from inputs import leasing


@pytest.fixture
def state(tmp_path):
    """Three leases: of this process, of one that is gone, of another host."""
    path = tmp_path / "leases.json"
    mine = leasing.record(
        "mine",
        command="train [x]",
        policy="restricted",
        taken_at=86400,
        cpus=CPUSet.parse("0-3"),
        numa_nodes=(0,),
        memory=(MemoryShare(0, "memory", 3 << 29), MemoryShare(1, "memory", 0)),
        devices={leasing.GPU: ("gpu0", "gpu1")},
    )

    gone = msgspec.structs.replace(
        leasing.record("gone"), process=msgspec.structs.replace(mine.process, start_time=1)
    )

    foreign = msgspec.structs.replace(
        leasing.record("other"),
        process=msgspec.structs.replace(mine.process, boot_id="x", host="x"),
    )

    leasing.put(
        LeaseFile(path, pytest.fail), mine, gone, foreign, machine=MachineIdentity("m", "m")
    )
    return path


def test_a_table_for_people(state):
    """What is written in brackets is no colour."""
    done = CliRunner().invoke(command, ["--state", str(state)])
    assert done.exit_code == 0
    assert "mine" in done.output
    for cell in (
        "running",
        "gone",
        "unknown",
        "0-3",
        "1536Mi",
        "nvidia.com/gpu=gpu0,gpu1",
        "train [x]",
    ):
        assert cell in done.output


@pytest.mark.parametrize("moment", [-1, -(10**12), 253_402_300_800, 10**14, 1 << 62])
def test_a_clock_that_was_wrong_costs_nothing_but_the_time(tmp_path, moment):
    path = tmp_path / "leases.json"
    leasing.put(LeaseFile(path, pytest.fail), leasing.record("mine", taken_at=moment))
    for options in ([], ["--json"]):
        done = CliRunner().invoke(command, [*options, "--state", str(path)])
        assert (done.exit_code, done.exception) == (0, None)
    assert json.loads(done.output)["takenAt"] is None


def test_lines_for_programs(state):
    """One JSON object a lease, and nothing else."""
    done = CliRunner().invoke(command, ["--json"], env={"ALIGNUP_STATE": str(state)})
    mine, gone, foreign = map(json.loads, done.output.splitlines())

    assert mine.pop("pid") > 0
    assert mine.pop("takenAt") == "1970-01-02T00:00:00Z"
    assert mine == {
        "name": "mine",
        "state": "running",
        "command": "train [x]",
        "policy": "restricted",
        "cpus": "0-3",
        "numaNodes": [0],
        "memory": [{"numaNode": 0, "type": "memory", "size": 3 << 29}],
        "devices": {leasing.GPU: ["gpu0", "gpu1"]},
        "cgroup": None,
    }

    assert (gone["state"], foreign["state"]) == ("gone", "unknown")
    assert gone["takenAt"] is None


def test_what_a_lease_ends_with_is_said_where_there_are_cgroups(state):
    assert "ends with" not in CliRunner().invoke(command, ["--state", str(state)]).output
    with LeaseFile(state, pytest.fail).change() as change:
        first, *rest = change.table.leases
        first = msgspec.structs.replace(first, cgroup="/sys/fs/cgroup/x/lease-1")
        change.table = msgspec.structs.replace(change.table, leases=(first, *rest))
    shown = CliRunner().invoke(command, ["--state", str(state)], env={"COLUMNS": "200"}).output
    for phrase in ("ends with", "cgroup", "processes"):
        assert phrase in shown
    done = CliRunner().invoke(command, ["--json", "--state", str(state)])
    assert json.loads(done.output.splitlines()[0])["cgroup"] == "/sys/fs/cgroup/x/lease-1"


def test_nobody_holds_anything(tmp_path):
    """And looking makes no file."""
    done = CliRunner().invoke(command, ["--state", str(tmp_path / "none.json")])
    assert done.output == "no leases\n"
    assert list(tmp_path.iterdir()) == []
    assert (
        CliRunner().invoke(command, ["--json", "--state", str(tmp_path / "none.json")]).output == ""
    )


def test_a_damaged_file_is_said_and_left_as_it_is(tmp_path):
    """The next change sets it aside."""
    path = tmp_path / "leases.json"
    path.write_text('{"version":1,"checksum":"')
    done = CliRunner().invoke(command, ["--state", str(path)])
    assert done.exit_code == 0
    assert "the file of leases is damaged" in done.output
    assert [file.name for file in tmp_path.iterdir()] == ["leases.json"]


def test_a_file_that_may_not_be_read_is_no_bad_usage(tmp_path, monkeypatch):
    """Whether it can be read is seen when it is; before that, it may come and go."""
    path = tmp_path / "leases.json"
    path.touch()
    monkeypatch.setattr("os.access", lambda *_arguments, **_options: False)
    assert CliRunner().invoke(command, ["--state", str(path)]).exit_code == 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172800, "2d")],
)
def test_ages_are_short(seconds, text):
    assert age(1000, 1000 + seconds) == text
    assert age(0, 1000 + seconds) == "-"


def test_a_lease_that_is_gone_holds_nothing(state):
    with LeaseFile(state, pytest.fail).change() as change:
        first, second, *rest = change.table.leases
        second = msgspec.structs.replace(second, cpus=CPUSet.parse("7-9"))
        change.table = msgspec.structs.replace(change.table, leases=(first, second, *rest))
    assert "7-9" not in CliRunner().invoke(command, ["--state", str(state)]).output


def test_a_folder_that_is_not_there_is_said(tmp_path):
    done = CliRunner().invoke(command, ["--state", str(tmp_path / "none" / "leases.json")])
    assert done.exit_code == 0
    assert "there is no folder" in done.output


def test_who_waits_is_shown_with_what_they_ask_for(state):
    """Below the leases; for programs without `cpus`, since they hold none."""
    me = leasing.record().process
    waiter = Waiter(
        "1",
        me,
        ("cpu", leasing.GPU),
        name="next",
        command="train",
        cpus=4,
        memory=1 << 30,
        devices={leasing.GPU: 2},
        policy="restricted",
        since=1_000_000_000,
    )
    gone = msgspec.structs.replace(
        waiter, id="2", process=msgspec.structs.replace(me, start_time=1)
    )
    foreign = Waiter(
        "3", msgspec.structs.replace(me, pid=0, boot_id="x", host="x"), name="(user 7)"
    )
    leasing.put(LeaseFile(state, pytest.fail), waiting=(waiter, gone, foreign))
    shown = CliRunner().invoke(command, ["--state", str(state)], env={"COLUMNS": "200"}).output
    first, second = shown.splitlines()[-2:]
    assert first.split()[:2] == ["next", str(me.pid)]
    for word in ("4", "1Gi", "nvidia.com/gpu=2", "train"):
        assert word in first.split()

    assert second.split()[:4] == ["(user", "7)", "-", "-"]
    lines = CliRunner().invoke(command, ["--state", str(state), "--json"]).output.splitlines()
    waiters = [line for line in map(json.loads, lines) if line.get("waiting")]
    assert len(lines) == 5
    assert all("cpus" not in line for line in waiters)
    assert waiters[0] == {
        "waiting": True,
        "name": "next",
        "pid": me.pid,
        "command": "train",
        "policy": "restricted",
        "since": "2001-09-09T01:46:40Z",
        "asks": {"cpu": 4, "memory": 1 << 30, "devices": {leasing.GPU: 2}, "part": None},
    }


# ---- release


@pytest.fixture
def file(tmp_path):
    return LeaseFile(tmp_path / "leases.json", pytest.fail)


def hold(file, **process):
    lease = leasing.record("mine", cpus=CPUSet.parse("0"))
    leasing.put(
        file,
        msgspec.structs.replace(lease, process=msgspec.structs.replace(lease.process, **process)),
    )


def release(file, *arguments):
    return CliRunner().invoke(release_command, ["--state", str(file.path), *arguments])


def test_the_lease_of_a_process_that_is_gone_is_freed(file):
    """Without a word."""
    hold(file, start_time=1)
    done = release(file, "mine")
    assert (done.exit_code, done.output) == (0, "")
    assert file.read().leases == ()


def test_the_lease_that_was_freed_can_be_had_as_json(file):
    """As `alignup ps --json` prints it."""
    hold(file, start_time=1)
    done = release(file, "mine", "--json")
    assert (done.exit_code, done.output.count("\n")) == (0, 1)
    assert json.loads(done.output)["name"] == "mine"
    assert json.loads(done.output)["cpus"] == "0"


@pytest.mark.parametrize(
    ("process", "complaint"),
    [({}, "which is running"), ({"pid_namespace": 1}, "on another host or in another container")],
)
def test_a_lease_that_may_be_in_use_is_freed_only_by_force(file, process, complaint):
    """The refusal says by whom."""
    hold(file, **process)
    refused = release(file, "mine")
    assert refused.exit_code == 1
    assert "lease 'mine' is held by pid" in refused.output
    assert complaint in refused.output
    assert len(file.read().leases) == 1
    assert release(file, "mine", "--force").exit_code == 0
    assert file.read().leases == ()


def test_a_name_that_nobody_has_is_refused(file):
    """Force does not help."""
    done = release(file, "mine", "--force")
    assert done.exit_code == 1
    assert "no lease has the name 'mine'" in done.output


def test_several_are_freed_at_once_and_each_that_is_not_is_named(file):
    hold(file, start_time=1)
    done = release(file, "nobody", "mine", "--json")
    assert done.exit_code == 1
    assert "name 'nobody'" in done.output
    assert '"name":"mine"' in done.output
    assert file.read().leases == ()


@pytest.fixture
def on_two_nodes(monkeypatch):
    """This machine has two NUMA nodes of eight CPUs, and these processes of others."""
    groups = [
        Affinity((7,), 1, 1, 0, CPUSet([12]), "numad"),
        Affinity((100, 101), 2, 8, 6, CPUSet.parse("0-1"), "python \x1b[31m[train].py"),
        Affinity((200,), 1, 4, 0, CPUSet.parse("3-4"), "both"),
        Affinity((1, 2, 3), 3, 5, 0, CPUSet.parse("0-15"), "init"),
    ]
    left_out = []
    monkeypatch.setattr(
        affinity_module, "affinities", lambda pids: left_out.append(set(pids)) or groups
    )
    monkeypatch.setattr(ps_module, "read_here", leasing.machine)
    return left_out


def test_all_shows_where_others_may_run_by_numa_node(state, on_two_nodes):
    done = CliRunner().invoke(command, ["--state", str(state), "--all"])
    assert done.exit_code == 0
    lines = done.output.splitlines()
    (start,) = (i for i, line in enumerate(lines) if line.startswith("not started by alignup"))
    rows = [line.split() for line in lines[start + 3 : -1]]
    assert [row[:2] for row in rows] == [["0", "0-1"], ["1", "12"], ["0,1", "3-4"]]
    assert "8 (6 pinned)" in done.output
    assert "\x1b" not in done.output
    assert lines[-1] == "other processes, which may run on any CPU: 3"
    # the process of a lease that runs, not those of one that is gone or of another host
    assert on_two_nodes == [{os.getpid()}]


def test_json_has_every_group(state, on_two_nodes):  # noqa: ARG001
    plain = CliRunner().invoke(command, ["--state", str(state), "--json"]).output
    output = CliRunner().invoke(command, ["--state", str(state), "--all", "--json"]).output
    assert output.startswith(plain)
    groups = [json.loads(line) for line in output[len(plain) :].splitlines()]
    assert [group["pids"] for group in groups] == [[7], [100, 101], [200], [1, 2, 3]]
    assert groups[2] == {
        "unleased": True,
        "pids": [200],
        "processes": 1,
        "threads": 4,
        "pinnedThreads": 0,
        "command": "both",
        "cpus": "3-4",
        "numaNodes": [0, 1],
        "mayUseAllCpus": False,
    }
    assert [group["mayUseAllCpus"] for group in groups] == [False, False, False, True]


def test_the_table_has_an_end(state, monkeypatch, on_two_nodes):  # noqa: ARG001
    many = [Affinity((pid,), 1, 1, 0, CPUSet([pid % 8]), f"c{pid}") for pid in range(1, 2001)]
    monkeypatch.setattr(affinity_module, "affinities", lambda _: many)
    done = CliRunner().invoke(command, ["--state", str(state), "--all"])
    assert "... and 1960 more groups: see --json" in done.output
    assert done.output.endswith("which may run on any CPU: 0\n")

    listed = CliRunner().invoke(command, ["--state", str(state), "--all", "--json"]).output
    assert listed.count('"unleased":true') == 1000
