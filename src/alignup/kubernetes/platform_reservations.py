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
from alignup.kubernetes.quantity import parse_quantity, whole_units
from alignup.kubernetes.versions import read_table
from alignup.text.counting import format_bytes

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

    Where the CPU manager's static policy needs CPUs that nobody has reserved, and where the
    platform writes what the Static memory manager needs. What is added is warned of.

    Args:
        fields: those that a text has.
        platform: where the text is a part only, the platform that completes it; empty: none does.
        source: what the text is called in the warning.
        machine: the node's; None: not known.
        lenient: only warn of what is not known, as without a machine.

    Raises:
        ConfigError: the platform reserves CPUs, but how many is not known.
    """
    if not platform:
        return fields

    row = read_table("platform_reservations").get(platform, {})
    completed = dict(fields)
    additions: list[str] = []
    part = row.get("field")
    if _lacks_cpus(fields, *([part] if part else _RESERVED)):
        added = _reservation(row, machine)
        if added:
            given = fields.get(part) or {}
            completed[part] = given if row.get("isWhole") and given else {**added, **given}
            if completed[part] is not given:
                additions.append(_in_words(added))
        elif _lacks_cpus(fields, *_RESERVED):
            _miss(platform, is_error=machine is not None and not lenient)

    if row.get("reservesMemory"):
        additions += _add_reserved_memory(completed, row, machine)

    if additions:
        warn(
            f"{source} is a part of a configuration: {platform} itself reserves "
            f"{' and '.join(additions)} ({row['source']}); --reserved-cpus gives other CPUs"
        )

    return completed


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

    maps = [fields.get(part) or {} for part in parts]
    return all(isinstance(reserved, Mapping) and "cpu" not in reserved for reserved in maps)


def _reservation(row: Mapping[str, Any], machine: Machine | None) -> dict[str, str]:
    """Return what is reserved; empty: it is not known for such a machine."""
    cpu = row.get("cpu")
    if cpu is None and "cpuSteps" in row and machine is not None:
        cpu = _sum_of_steps(row["cpuSteps"], machine.cpu_count)

    if cpu is None:
        return {}

    added = {"cpu": f"{int(max(cpu, row.get('leastCpu', 0)))}m"}
    if "memory" in row:
        added["memory"] = row["memory"]
    elif "memorySteps" in row and machine is not None and machine.knows_memory:
        mebibytes = _sum_of_steps(row["memorySteps"], _bytes_of(machine) // _MEBIBYTE)
        added["memory"] = str(int((mebibytes or 0) * _MEBIBYTE))

    return added


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


def _bytes_of(machine: Machine) -> int:
    return sum(node.memory for node in machine.numa_nodes)


def _in_words(added: Mapping[str, str]) -> str:
    if "memory" not in added:
        return f"{added['cpu']} CPU, and memory that is not counted here"
    return f"{added['cpu']} CPU, {format_bytes(_whole(added['memory']))} of memory"


def _add_reserved_memory(
    fields: dict[str, Any], row: Mapping[str, Any], machine: Machine | None
) -> list[str]:
    """Add `reservedMemory` where the Static memory manager lacks it: all on the first NUMA node.

    Return that in words.
    """
    if fields.get("memoryManagerPolicy") != "Static" or fields.get("reservedMemory"):
        return []

    share = row.get("evictionShare")
    if share and not fields.get("evictionHard") and machine is not None and machine.knows_memory:
        fields["evictionHard"] = {"memory.available": str(int(_bytes_of(machine) * share))}

    eviction = (fields.get("evictionHard") or {}).get("memory.available", _EVICTION)
    amounts = [eviction, *((fields.get(part) or {}).get("memory", 0) for part in _RESERVED)]
    total = sum(map(_whole, amounts))
    numa_node = 0 if machine is None else machine.numa_nodes[0].id
    fields["reservedMemory"] = [{"numaNode": numa_node, "limits": {"memory": str(total)}}]
    return [f"{format_bytes(total)} on NUMA node {numa_node} for the memory manager"]


def _whole(amount: object) -> int:
    return whole_units(parse_quantity(amount, "the reserved memory"))
