"""Where processes may run, from a made-up `/proc` and from that of this machine."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.host.processes.affinity import affinities
from alignup.machine.cpuset import CPUSet
from inputs.strategies import examples

KERNEL = 0x00200000


class Machine:
    """Processes as `/proc` shows them, and the CPUs of their threads."""

    def __init__(self, root):
        self.root = root
        self.allowed = {}

    def add(self, pid, cpus, *, parent=1, group=None, command=b"", name="a) b", flags=0):
        """Add a process whose threads have ids after its own."""
        folder = self.root / str(pid)
        for offset, thread_cpus in enumerate(cpus):
            (folder / "task" / str(pid + offset)).mkdir(parents=True)
            self.allowed[pid + offset] = thread_cpus
        text = f"{pid} ({name}) S {parent} {group or pid} 1 0 -1 {flags} 0 0"
        (folder / "stat").write_text(text, encoding="utf-8")
        (folder / "cmdline").write_bytes(command)
        (folder / "comm").write_text(f"{name}\n", encoding="utf-8")

    def affinities(self, *left_out):
        return affinities(left_out, str(self.root), self._of)

    def _of(self, thread):
        if thread not in self.allowed:
            raise ProcessLookupError
        return self.allowed[thread]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_line_is_of_a_process_group_on_the_same_cpus(machine):
    """Ranks of one launcher that are bound apart have a line each."""
    for rank in range(4):
        pid = 100 + 10 * rank
        machine.add(pid, [{rank // 2}] * 3, group=100, command=b"python\0train.py\0%d" % rank)

    first, second = machine.affinities()
    assert (first.pids, first.processes, first.threads) == ((100, 110), 2, 6)
    assert (str(first.cpus), first.command) == ("0", "python train.py 0")
    assert (second.pids, str(second.cpus)) == ((120, 130), "1")


def test_groups_of_one_command_on_the_same_cpus_are_joined(machine):
    for pid in (10, 20, 30):
        machine.add(pid, [{4, 5}], command=b"nginx: worker")
    machine.add(40, [{4}], command=b"nginx: worker")

    few, many = machine.affinities()
    assert (few.pids, str(few.cpus)) == ((40,), "4")
    assert (many.pids, many.processes, str(many.cpus)) == ((10, 20, 30), 3, "4-5")


def test_threads_that_are_pinned_are_one_process(machine):
    machine.add(7, [{0, 1, 2, 3}, {0}, {1}, {2}], command=b"./solver")
    (solver,) = machine.affinities()
    assert (str(solver.cpus), solver.threads, solver.pinned) == ("0-3", 4, 3)


def test_a_process_without_arguments_goes_by_its_name(machine):
    """So does a zombie; what cannot be printed is escaped."""
    machine.add(7, [{0}], name="x\x1b[31m) S")
    machine.add(8, [{1}], command=b"evil\x1b[2J\0" + b"x" * 5000)
    named, long = machine.affinities()
    assert named.command == r"[x\x1b[31m) S]"
    assert long.command.startswith(r"evil\x1b[2J xxx")
    assert len(long.command) == 100


def test_threads_of_the_kernel_and_what_has_ended_are_left_out(machine):
    machine.add(2, [{0}], flags=KERNEL | 64)
    machine.add(3, [{0}])
    del machine.allowed[3]
    (machine.root / "4").mkdir()
    (machine.root / "5" / "task").mkdir(parents=True)
    (machine.root / "5" / "stat").write_text("rubbish", encoding="utf-8")
    (machine.root / "self").mkdir()
    assert machine.affinities() == []
    assert affinities((), str(machine.root / "none")) == []


def test_what_a_lease_started_is_left_out_with_its_children(machine):
    machine.add(10, [{0}])
    machine.add(20, [{0}], parent=10)
    machine.add(30, [{0}], parent=20, group=20)
    machine.add(40, [{0}], command=b"other")
    assert [group.pids for group in machine.affinities(10, 99)] == [(40,)]
    assert [group.pids for group in machine.affinities(20)] == [(10,), (40,)]


@given(data=st.data())
@examples(60)
def test_each_process_is_in_one_line_with_its_cpus(tmp_path_factory, data):
    """A plain count beside the groups."""
    machine = Machine(tmp_path_factory.mktemp("proc"))
    sets = st.sets(st.integers(0, 3), min_size=1)
    wanted = {}
    for number in range(data.draw(st.integers(0, 8))):
        pid = 10 * (number + 1)
        cpus = data.draw(st.lists(sets, min_size=1, max_size=3))
        group = data.draw(st.sampled_from([10, 20, pid]))
        machine.add(pid, cpus, group=group, command=data.draw(st.sampled_from([b"a", b"b"])))
        wanted[pid] = (set().union(*cpus), len(cpus))

    groups = machine.affinities()
    listed = [pid for group in groups for pid in group.pids]
    assert sorted(listed) == sorted(wanted)
    for group in groups:
        assert group.processes == len(group.pids)
        assert group.threads == sum(wanted[pid][1] for pid in group.pids)
        assert all(wanted[pid][0] == set(group.cpus) for pid in group.pids)
    assert [len(group.cpus) for group in groups] == sorted(len(group.cpus) for group in groups)


def test_a_process_of_this_machine_is_found():
    cpu = min(os.sched_getaffinity(0))
    program = f"import os, sys; os.sched_setaffinity(0, {{{cpu}}}); print(1, flush=True); input()"
    started = subprocess.Popen(  # noqa: S603  # ours
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with started:
        assert started.stdout.readline() == b"1\n"
        mine = [group for group in affinities() if started.pid in group.pids]
        assert [group.cpus for group in mine] == [CPUSet([cpu])]
        assert "os.sched_setaffinity" in mine[0].command
        assert not [group for group in affinities({os.getpid()}) if started.pid in group.pids]
        started.communicate(b"\n")
