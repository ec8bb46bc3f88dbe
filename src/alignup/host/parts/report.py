"""Says in a line where a process was bound, as `mpirun --report-bindings` does: CPUs as cores.

Cores are numbered through the machine, socket by socket, and the hardware threads (hwt) of a core
by CPU, as hwloc and Open MPI number them.
"""

from __future__ import annotations

import os
import sys

from alignup.machine.bits import ids_of, overlapping
from alignup.machine.cpuset import CPUSet
from alignup.text.counting import named

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Final

    from alignup.machine.machine import Machine

# Set to anything but nothing or 0, it asks for the line.
VARIABLE: Final = "ALIGNUP_REPORT_BINDINGS"


def is_wanted() -> bool:
    """Return whether the environment asks for the line."""
    return os.environ.get(VARIABLE, "0") not in {"", "0"}


def say_binding(
    who: str,
    cpus: CPUSet,
    devices: Mapping[str, Sequence[str]],
    *,
    pid: int = 0,
    machine: Machine | None = None,
    verb: str = "bound to",
) -> None:
    """Write where a process is bound to standard error, if there is one.

    Args:
        who: `rank 3 of 8`.
        cpus: what it is bound to.
        devices: ids by resource, which it has.
        pid: of the process; 0: of this one.
        machine: of the CPUs; None: the one at hand.
        verb: what is said of the CPUs.
    """
    if machine is None:
        from alignup.machine.sysfs.machine import read_sysfs  # noqa: PLC0415  # startup counts

        machine = read_sysfs("/")

    place = f"[{os.uname().nodename}:{pid or os.getpid()}]"
    line = f"{place} {who} {verb} {cores_text(machine, cpus)}"
    for resource, ids in sorted(devices.items()):
        line += f"; {resource} {', '.join(ids)}"

    if sys.stderr is not None:
        try:
            # in one piece, as other ranks write to the same file
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
        except OSError:
            pass


def cores_text(machine: Machine, cpus: CPUSet) -> str:
    """Return CPUs as sockets, cores and hardware threads, with their numbers and NUMA nodes.

    Examples:
        >>> from alignup import read_machine
        >>> cores_text(read_machine("xeon-2s"), CPUSet.parse("0-3,64-66"))
        'socket 0[core 0-2[hwt 0-1], core 3[hwt 0]] (CPUs 0-3,64-66), NUMA node 0'
        >>> cores_text(read_machine("xeon-2s"), CPUSet())
        'no CPUs'
    """
    if not cpus:
        return "no CPUs"

    cores = [core for node in machine.numa_nodes for core in node.cores]
    cores += machine.unassigned_cores
    # a core that several nodes list is one core
    unique_cores = {core.cpus: core for core in cores}
    ordered = sorted(unique_cores.values(), key=lambda core: (core.socket, core.cpus))

    # by socket, the cores that have the same of their threads in the set
    numbers_by_socket: dict[int, dict[str, list[int]]] = {}
    for number, core in enumerate(ordered):
        bound = [thread for thread, cpu in enumerate(core.cpus) if cpu in cpus]
        if bound:
            threads = f"[hwt {CPUSet(bound)}]" if len(core.cpus) > 1 else ""
            numbers = numbers_by_socket.setdefault(core.socket, {})
            numbers.setdefault(threads, []).append(number)

    sockets = []
    for socket, numbers in sorted(numbers_by_socket.items()):
        parts = [f"core {CPUSet(cores)}{threads}" for threads, cores in numbers.items()]
        sockets.append(f"socket {socket}[{', '.join(parts)}]")

    node_ids = ids_of(overlapping(machine.node_cpus, int(cpus)), machine.numa_node_ids)
    text = f"{', '.join(sockets) or 'no core that is known'} (CPUs {cpus})"
    return f"{text}, {named('NUMA node', node_ids, ',')}" if node_ids else text
