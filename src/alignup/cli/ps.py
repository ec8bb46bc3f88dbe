"""`alignup ps` and `release`.

They list leases and the processes that hold them, and free those whose processes are gone.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from alignup.cli import options
from alignup.cli.failures import complain
from alignup.cli.terminal import devices_text, nodes_text, print_json, print_table
from alignup.machine.bits import bit_set, ids_of, overlapping
from alignup.text.counting import counted, short_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from alignup.host.leases.agent_messages import KnownLease  # startup counts
    from alignup.host.leases.record import LeaseRecord, Waiter  # startup counts
    from alignup.host.processes.affinity import Affinity  # startup counts
    from alignup.machine.machine import Machine  # startup counts


# The most lines about processes that alignup did not start, for people and for programs.
_SHOWN_GROUPS: Final = 40
_LISTED_GROUPS: Final = 1000


@options.subcommand("ps")
def ps(
    *,
    state: Path | None = options.state,
    show_all: bool = options.flag(
        "Show too on which CPUs processes may run that alignup did not start.", "--all"
    ),
    as_json: bool = options.json("lease"),
) -> None:
    """List leases: who holds which CPUs, memory and devices, for how long, and who waits for some.

        alignup ps
        alignup ps --all

    A lease whose process is gone holds nothing: the next request takes what it had. The state of a
    lease from another container or host is unknown, and the lease stays until `alignup release
    --force`.

    A lease with a cgroup lasts until every process that its command started has ended. Any other
    lease lasts as long as the command and its keeper process, which sees most of these processes.

    With --all there is a line for each process group or command that was not started under a lease
    and may run on some CPUs only, and one for all others. No lease keeps them off its CPUs.
    Processes that the kernel does not show to this user are left out. With --json each line has
    `unleased`.
    """
    from alignup.host.leases.source import open_source  # startup counts

    if state is not None and not state.parent.exists():
        complain(f"there is no folder {str(state.parent)!r}, and so no file of leases in it")

    overview = open_source(state, complain).overview()
    if as_json:
        print_json(*(lease_dict(listed.lease, listed.state) for listed in overview.leases))
        print_json(*map(waiter_dict, overview.waiting))
        if show_all:
            machine = read_here()
            groups = unleased(overview.leases)
            print_json(*(group_dict(group, machine) for group in groups[:_LISTED_GROUPS]))
        return

    show_leases(overview.leases)
    if overview.waiting:
        click.echo()
        _show_waiting(overview.waiting)
    if show_all:
        click.echo()
        _show_unleased(unleased(overview.leases), read_here())


def read_here() -> Machine:
    """Return this machine."""
    from alignup.machine.sysfs.machine import read_sysfs  # few need it

    return read_sysfs("/")


def unleased(leases: Iterable[KnownLease]) -> list[Affinity]:
    """Return where processes may run that no command with a lease has started, nor this one."""
    # few need it
    from alignup.host.processes.affinity import affinities
    from alignup.host.processes.identity import runs_here

    leased = [
        process.pid for listed in leases for process in listed.lease.processes if runs_here(process)
    ]
    return affinities({*leased, os.getpid()})


def group_dict(group: Affinity, machine: Machine) -> dict[str, Any]:
    """Return a group of processes in JSON's types."""
    return {
        "unleased": True,
        "pids": list(group.pids),
        "processes": group.processes,
        "threads": group.threads,
        "pinnedThreads": group.pinned,
        "command": group.command,
        "cpus": str(group.cpus),
        "numaNodes": _numa_nodes(group, machine),
        "mayUseAllCpus": _may_use_all(group, machine),
    }


def _numa_nodes(group: Affinity, machine: Machine) -> list[int]:
    """Return the kernel ids of the nodes whose CPUs some processes may run on."""
    return list(ids_of(overlapping(machine.node_cpus, int(group.cpus)), machine.numa_node_ids))


def _may_use_all(group: Affinity, machine: Machine) -> bool:
    """Return whether processes may run on all CPUs of a machine that are not isolated."""
    isolated = bit_set(machine.isolated_cpus)
    return not machine.cpus & ~isolated & ~int(group.cpus)


def _show_unleased(groups: Sequence[Affinity], machine: Machine) -> None:
    """Print a table of groups that may run on some CPUs only; count the processes of others."""
    bound = [group for group in groups if not _may_use_all(group, machine)]
    bound.sort(key=lambda group: (len(nodes := _numa_nodes(group, machine)), nodes))
    rows = [
        (
            nodes_text(_numa_nodes(group, machine)) or "-",
            str(group.cpus),
            str(group.processes),
            f"{group.threads} ({group.pinned} pinned)" if group.pinned else str(group.threads),
            str(group.pids[0]),
            group.command,
        )
        for group in bound[:_SHOWN_GROUPS]
    ]
    if rows:
        click.echo("not started by alignup, and bound to some CPUs:")
        print_table(("NUMA nodes", "CPUs", "processes", "threads", "pid", "command"), rows)
    if len(bound) > len(rows):
        click.echo(f"... and {counted(len(bound) - len(rows), 'more group')}: see --json")

    free_count = sum(group.processes for group in groups if _may_use_all(group, machine))
    click.echo(f"other processes, which may run on any CPU: {free_count}")


def lease_dict(lease: LeaseRecord, state: str) -> dict[str, Any]:
    """Return a lease in JSON's types."""
    return {
        "name": lease.name,
        "pid": lease.process.pid,
        "state": state,
        "command": lease.command,
        "policy": lease.policy,
        "takenAt": _time_text(lease.taken_at) or None,
        "cpus": str(lease.cpus),
        "numaNodes": list(lease.numa_nodes),
        "memory": [msgspec.to_builtins(share) for share in lease.memory if share.size],
        "devices": {resource: list(ids) for resource, ids in sorted(lease.devices.items())},
        "cgroup": lease.cgroup or None,
    }


def waiter_dict(waiter: Waiter) -> dict[str, Any]:
    """Return a request that waits in JSON's types; it holds nothing, and so has no `cpus`."""
    return {
        "waiting": True,
        "name": waiter.name,
        "pid": waiter.process.pid,
        "command": waiter.command,
        "policy": waiter.policy,
        "since": _time_text(waiter.since) or None,
        "asks": {
            "cpu": waiter.cpus,
            "memory": waiter.memory,
            "devices": dict(sorted(waiter.devices.items())),
            "part": _part_text(waiter),
        },
    }


def _part_text(waiter: Waiter) -> str | None:
    """Return the part of the machine that a request asks for; None: it asks for none."""
    if waiter.part is None:
        return None
    return f"{waiter.part[0]}/{waiter.part[1]}"


def _show_waiting(waiting: Sequence[Waiter]) -> None:
    """Print a table of the queue, in order of arrival."""
    rows = []
    for waiter in waiting:
        part = _part_text(waiter)
        devices = " ".join(
            f"{resource}={count}" for resource, count in sorted(waiter.devices.items())
        )
        rows.append(
            (
                waiter.name or "-",
                str(waiter.process.pid or "-"),
                age(waiter.since, time.time()),
                str(waiter.cpus or "-") if part is None else f"part {part}",
                short_bytes(waiter.memory) if waiter.memory else "-",
                devices or "-",
                waiter.command,
            )
        )

    print_table(("waits", "pid", "for", "CPUs", "memory", "devices", "command"), rows)


def show_leases(leases: Sequence[KnownLease]) -> None:
    """Print a table."""
    if not leases:
        click.echo("no leases")
        return

    headings = ["name", "pid", "state", "age", "NUMA nodes", "CPUs", "memory", "devices", "command"]
    rows = []
    for listed in leases:
        lease = listed.lease
        age_text = age(lease.taken_at, time.time())
        identity = [lease.name, str(lease.process.pid or "-"), listed.state, age_text]
        holdings = ("-",) * 4 if listed.state == "gone" else _holding_cells(lease)
        rows.append([*identity, *holdings, lease.command])

    # leases of a file have no cgroups, and need no column for that
    if any(listed.lease.cgroup for listed in leases):
        position = headings.index("NUMA nodes")
        headings.insert(position, "ends with")
        for row, listed in zip(rows, leases, strict=True):
            row.insert(position, "cgroup" if listed.lease.cgroup else "processes")

    print_table(headings, rows)


def _holding_cells(lease: LeaseRecord) -> tuple[str, ...]:
    """Return the cells of what a lease has."""
    memory = " ".join(short_bytes(size) for size in lease.memory_sizes.values())
    return (
        nodes_text(lease.numa_nodes) or "-",
        str(lease.cpus) or "-",
        memory or "-",
        devices_text(lease.devices),
    )


def age(since: int, now: float) -> str:
    """Return how long ago something was, in its largest unit but one, as `ps` and `kubectl` do.

    It is `-` where that is not known.
    """
    if not since:
        return "-"

    seconds = max(0, int(now) - since)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"

    return f"{seconds}s"


def _time_text(since: int) -> str:
    """Return a time as RFC 3339 writes it.

    It is empty where it is not known, or of a year that a clock was wrong about.
    """
    if not 0 < since < 1 << 37:
        return ""
    return datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@options.subcommand("release", "0 freed; 1 a lease does not exist, or its process runs")
def release(
    *,
    names: tuple[str, ...] = options.argument(
        "NAME...", nargs=-1, required=True, shell_complete=options.complete_leases
    ),
    state: Path | None = options.state,
    force: bool = options.flag(
        "Free the lease even if its process runs. The process is not stopped."
    ),
    as_json: bool = options.flag("Print each freed lease like `alignup ps --json`.", "--json"),
) -> int:
    """Free the leases with these names, which `alignup ps` shows.

        alignup release training

    A lease whose process runs is freed with --force only, else the exit status is 1; the other
    leases are freed anyway. --force does not end the process. It stays bound to CPUs that others
    can then get.
    """
    from alignup.errors import AllocationError
    from alignup.host.leases.source import open_source  # startup counts

    source = open_source(state, complain)
    status = 0
    for name in dict.fromkeys(names):
        try:
            freed = source.release(name, force=force)
        except AllocationError as refusal:
            complain(refusal.detail)
            status = 1
        else:
            if as_json:
                print_json(lease_dict(freed.lease, freed.state))

    return status
