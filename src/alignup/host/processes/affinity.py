"""Reads on which CPUs the processes of this machine may run, a line for those that belong together.

Where a process may run is what the kernel says of each of its threads; no right is needed for that,
and those that `/proc` hides (`hidepid`, another PID namespace) are not seen.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from alignup.errors import one_line
from alignup.host.proc_files import FLAGS, GROUP, PARENT, PROC, start_of, stat_fields
from alignup.machine.cpuset import CPUSet
from alignup.records import Record, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from collections.abc import Set as AbstractSet

# Of one machine, and of one process; those beyond are counted as if they were not there.
_MOST_PROCESSES: Final = 1 << 16
_MOST_THREADS: Final = 1 << 12
_LONGEST: Final = 1 << 12
_SHOWN: Final = 100
_SHOWN_PIDS: Final = 64
# Of the flags.
_KERNEL_THREAD: Final = 0x00200000


class Affinity(Record):
    """Processes of one process group, or of one command, that may run on the same CPUs.

    Attributes:
        pids: the lowest ones, ascending.
        processes: how many there are.
        threads: how many they have.
        pinned: how many of these may run on fewer CPUs than their process as a whole.
        cpus: those that a process may run on, all its threads together.
        command: of the process with the lowest id.
    """

    pids: tuple[int, ...]
    processes: int
    threads: int
    pinned: int
    cpus: CPUSet
    command: str


class _Seen(Record):
    """A process: its parent and its process group, and the CPUs of its threads."""

    pid: int
    parent: int
    group: int
    threads: int
    pinned: int
    cpus: CPUSet


def affinities(
    left_out: Collection[int] = (),
    proc: str = PROC,
    allowed: Callable[[int], AbstractSet[int]] = os.sched_getaffinity,
) -> list[Affinity]:
    """Return where the processes of this machine may run, those on the fewest CPUs first.

    Threads of the kernel are left out.

    Args:
        left_out: the ids of processes that do not matter, nor what they have started.
        proc: the folder of the kernel's files.
        allowed: returns the CPUs of a thread.
    """
    processes = {process.pid: process for process in _processes(proc, allowed)}
    unwanted = _with_children(set(left_out), processes.values())

    groups: dict[tuple[int, CPUSet], list[_Seen]] = {}
    for process in processes.values():
        if process.pid not in unwanted:
            groups.setdefault((process.group, process.cpus), []).append(process)

    by_command: dict[tuple[str, CPUSet], Affinity] = {}
    for (_, cpus), members in sorted(groups.items(), key=lambda item: item[0][0]):
        affinity = Affinity(
            tuple(process.pid for process in members),
            len(members),
            sum(process.threads for process in members),
            sum(process.pinned for process in members),
            cpus,
            _command(proc, members[0].pid),
        )
        key = affinity.command, cpus
        by_command[key] = _joined(by_command[key], affinity) if key in by_command else affinity

    listed = (
        replace(affinity, pids=tuple(sorted(affinity.pids))[:_SHOWN_PIDS])
        for affinity in by_command.values()
    )
    return sorted(listed, key=lambda affinity: (len(affinity.cpus), *affinity.cpus, *affinity.pids))


def _joined(first: Affinity, second: Affinity) -> Affinity:
    """Return two groups of processes as one."""
    return replace(
        first,
        pids=first.pids + second.pids,
        processes=first.processes + second.processes,
        threads=first.threads + second.threads,
        pinned=first.pinned + second.pinned,
    )


def _processes(proc: str, allowed: Callable[[int], AbstractSet[int]]) -> Iterable[_Seen]:
    """Yield the processes of a machine by id."""
    with suppress(OSError):
        names = os.listdir(proc)  # noqa: PTH208  # names are wanted, not paths
        pids = sorted(int(name) for name in names if name.isascii() and name.isdigit())
        for pid in pids[:_MOST_PROCESSES]:
            with suppress(OSError, ValueError, IndexError):  # it has ended, or is out of sight
                process = _process(proc, pid, allowed)
                if process is not None:
                    yield process


def _process(proc: str, pid: int, allowed: Callable[[int], AbstractSet[int]]) -> _Seen | None:
    """Return a process; None: it is a thread of the kernel, or has ended.

    Raises:
        OSError: it has ended, or is out of sight.
    """
    fields = stat_fields(pid, proc)
    if fields is None or int(fields[FLAGS]) & _KERNEL_THREAD:
        return None

    sets = []
    for thread in os.listdir(f"{proc}/{pid}/task")[:_MOST_THREADS]:  # noqa: PTH208
        with suppress(OSError):
            sets.append(CPUSet(allowed(int(thread))))
    if not sets:
        return None

    cpus = sets[0]
    for thread_cpus in sets:
        cpus |= thread_cpus
    pinned = sum(thread_cpus != cpus for thread_cpus in sets)
    return _Seen(pid, int(fields[PARENT]), int(fields[GROUP]), len(sets), pinned, cpus)


def _with_children(pids: set[int], processes: Iterable[_Seen]) -> set[int]:
    """Return some processes and all that they and their children have started."""
    children: dict[int, list[int]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process.pid)

    reached: set[int] = set()
    waiting = list(pids)
    while waiting:
        pid = waiting.pop()
        if pid not in reached:
            reached.add(pid)
            waiting += children.get(pid, ())

    return reached


def _command(proc: str, pid: int) -> str:
    """Return the command line of a process, or its name in brackets, as `ps` does."""
    with suppress(OSError):
        words = start_of(f"{proc}/{pid}/cmdline", _LONGEST).split(b"\0")
        text = b" ".join(words).strip()
        if not text:
            text = b"[%b]" % start_of(f"{proc}/{pid}/comm", _LONGEST).strip()
        return one_line(text.decode("utf-8", "replace"))[:_SHOWN]
    return ""
