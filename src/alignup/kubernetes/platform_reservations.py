"""Tells what a platform reserves itself of a node, where its configuration leaves that out.

What a platform is given, such as OpenShift's KubeletConfig, is a part of a kubelet's configuration:
the platform writes the rest. `platform_reservations.json` has by platform what it reserves, and
where that is said:

- `cpu`: thousandths of a CPU; `cpuSteps` where it depends on the node: of so many CPUs the
  thousandths of each, and so on; null is of all others, and without it nothing is known of them;
- `leastCpu`: the least of such a sum;
- `memory`, `memorySteps`: the same in MiB and shares; a third number is what a whole step counts;
- `isWhole`: a map of the file takes the place of the platform's; else it has the parts that the map
  lacks;
- `reservesMemory`: the platform writes `reservedMemory` for the Static memory manager, too;
- `evictionShare`: the share of memory that it sets as the eviction threshold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import ConfigError, warn
from alignup.kubernetes.quantity import eviction_memory, parse_quantity, whole_units
from alignup.kubernetes.versions import read_table
from alignup.text.counting import short_bytes

if TYPE_CHECKING:
    from alignup.machine.machine import Machine

_MEBIBYTE: Final = 1 << 20
_EVICTION: Final = "100Mi"
_RESERVED: Final = ("kubeReserved", "systemReserved")


def with_platform_reservation(
    fields: Mapping[str, Any],
    platform: str,
    source: str,
    machine: Machine | None,
    *,
    lenient: bool = False,
) -> Mapping[str, Any]:
    """Return the fields of a configuration with what its platform reserves itself.

    CPUs where the static policy of the CPU manager needs them and nobody has reserved them, and
    memory with them or where the Static memory manager counts it. What is added is warned of.

    Args:
        fields: those that a text has.
        platform: where the text is a part only, the platform that completes it; empty: none does.
        source: what the text is called in the warning.
        machine: the node's; None: not known.
        lenient: only warn of what is not known, as without a machine.

    Raises:
        ConfigError: the platform reserves CPUs, but how many is not known.
    """
    if not platform or not _are_maps(fields):
        return fields

    row = read_table("platform_reservations").get(platform, {})
    completed = dict(fields)
    additions = []
    if row:
        additions += _add_reservation(completed, row, machine)
    if _lacks_cpus(completed, *_RESERVED) and not row.get("isWhole"):
        _miss(platform, is_error=machine is not None and not lenient)
    if row.get("reservesMemory"):
        additions += _add_reserved_memory(completed, row, machine)

    if additions:
        warn(
            f"{source} is a part of a configuration: {platform} itself reserves "
            f"{_in_words(additions)} ({row['source']}); --reserved-cpus gives other CPUs"
        )

    return completed


def _in_words(additions: list[str]) -> str:
    *first, last = additions
    return f"{', '.join(first)} and {last}" if first else last


def _are_maps(fields: Mapping[str, Any]) -> bool:
    """Return whether the fields that matter here are maps; others are refused later."""
    names = (*_RESERVED, "evictionHard")
    return all(isinstance(fields.get(name), Mapping | None) for name in names)


def _miss(platform: str, *, is_error: bool) -> None:
    """Say that CPUs are reserved, but not how many.

    Raises:
        ConfigError: it is an error.
    """
    sentence = (
        f"the reservation of CPUs is missing: {platform} makes it itself, and how large it is on "
        "such a machine is not known here; --reserved-cpus CPUS gives it"
    )
    if is_error:
        raise ConfigError(sentence)
    warn(sentence)


def _lacks_cpus(fields: Mapping[str, Any], *parts: str) -> bool:
    """Return whether the static policy needs CPUs that none of these maps names."""
    if fields.get("cpuManagerPolicy") != "static" or fields.get("reservedSystemCPUs"):
        return False
    return all("cpu" not in (fields.get(part) or {}) for part in parts)


def _add_reservation(
    fields: dict[str, Any], row: Mapping[str, Any], machine: Machine | None
) -> list[str]:
    """Add what the map of the platform lacks, and return that in words."""
    part = row["field"]
    given = fields.get(part) or {}
    needs_cpus = _lacks_cpus(fields, part)
    needs_memory = "memory" not in given and (needs_cpus or _manages_memory(fields))
    if row.get("isWhole") and given:
        return []

    added: dict[str, str] = {}
    words = []
    if needs_cpus and (cpu := _thousandths(row, machine)) is not None:
        added["cpu"] = f"{cpu}m"
        words.append(f"{cpu}m CPU")

    if needs_memory and (added or not needs_cpus):
        memory = _memory(fields, row, machine)
        if memory is None:
            words.append("memory that is not counted here")
        else:
            added["memory"] = str(memory)
            words.append(f"{short_bytes(memory)} of memory")

    fields[part] = {**added, **given}
    if not fields[part]:
        del fields[part]
    return words


def _manages_memory(fields: Mapping[str, Any]) -> bool:
    return fields.get("memoryManagerPolicy") == "Static"


def _thousandths(row: Mapping[str, Any], machine: Machine | None) -> int | None:
    """Return the reserved thousandths of a CPU; None: not known for such a machine."""
    if "cpu" in row:
        return int(row["cpu"])
    if machine is None:
        return None

    cpu = _sum_of_steps(row["cpuSteps"], machine.cpu_count)
    return None if cpu is None else int(max(cpu, row.get("leastCpu", 0)))


def _memory(
    fields: Mapping[str, Any], row: Mapping[str, Any], machine: Machine | None
) -> int | None:
    """Return the reserved bytes; None: not known.

    Where the file has `reservedMemory`, they are what it implies: it must add up to the sum of all
    that is reserved, or the kubelet would not start.
    """
    if "memory" in row:
        return _whole(row["memory"], "memory")
    if "memorySteps" in row and machine is not None and machine.knows_memory:
        mebibytes = _sum_of_steps(row["memorySteps"], machine.memory // _MEBIBYTE)
        return int((mebibytes or 0) * _MEBIBYTE)

    reserved = fields.get("reservedMemory")
    if not (reserved and _manages_memory(fields) and isinstance(reserved, list)):
        return None

    total = 0
    for index, entry in enumerate(reserved):
        limits = entry.get("limits") if isinstance(entry, Mapping) else None
        if isinstance(limits, Mapping):
            total += _whole(limits.get("memory", 0), f'reservedMemory[{index}].limits["memory"]')

    return max(0, total - _counted(fields, machine))


def _counted(fields: Mapping[str, Any], machine: Machine | None) -> int:
    """Return the bytes that a configuration reserves of a node, with the eviction threshold."""
    total = 0 if machine is None else machine.memory
    eviction = str((fields.get("evictionHard") or {}).get("memory.available", _EVICTION))
    reserved = 0
    for part in _RESERVED:
        reserved += _whole((fields.get(part) or {}).get("memory", 0), f'{part}["memory"]')

    return eviction_memory(eviction, total) + reserved


def _sum_of_steps(steps: list[list[float | None]], amount: float) -> float | None:
    """Return what the steps say of an amount; None: they do not go as far."""
    total = 0.0
    remaining = amount
    for length, share, *whole in steps:
        if length is None or remaining <= length:
            return total + remaining * (share or 0)

        total += whole[0] or 0 if whole else length * (share or 0)
        remaining -= length

    return None


def _add_reserved_memory(
    fields: dict[str, Any], row: Mapping[str, Any], machine: Machine | None
) -> list[str]:
    """Add `reservedMemory` where the Static memory manager lacks it: all on the first NUMA node.

    Return that in words.
    """
    if not _manages_memory(fields) or fields.get("reservedMemory"):
        return []

    share = row.get("evictionShare")
    if share and not fields.get("evictionHard") and machine is not None and machine.knows_memory:
        fields["evictionHard"] = {"memory.available": str(int(machine.memory * share))}

    total = _counted(fields, machine)
    numa_node = 0 if machine is None else machine.numa_nodes[0].id
    fields["reservedMemory"] = [{"numaNode": numa_node, "limits": {"memory": str(total)}}]
    return [f"{short_bytes(total)} on NUMA node {numa_node} for the memory manager"]


def _whole(amount: object, where: str) -> int:
    return whole_units(parse_quantity(amount, where))
