"""Computes the memory that a Static memory manager may give away on each NUMA node: all less the reservations.

Reads a machine and `reservedMemory`; refuses the combinations that cannot be. Giving it out is left to
`alignup.providers.memory.provider`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from alignup.core.amounts.memory_ledger import MemoryCapacity
from alignup.errors import ConfigError
from alignup.text.byte_sizes import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from alignup.kubernetes.kubelet_config import ReservedMemory
    from alignup.machine.machine import Machine

MEMORY: Final = "memory"


def allocatable_memory(machine: Machine, reserved: Iterable[ReservedMemory]) -> dict[str, tuple[int, ...]]:
    """Return the bytes of each type that pods can have, by position of the NUMA node.

    Memory that was set aside as hugepages is not there as `memory`. A page size that only some nodes have
    counts as nothing on the others.

    Args:
        machine: The machine whose nodes are meant.
        reserved: Bytes that are kept back, by kernel node id and type.

    Raises:
        ConfigError: No memory is reserved at all (the kubelet's static policy does not start then), or a
            reservation names a node or a type that the machine lacks, comes twice, or is larger than
            what the node has.
    """
    kept = _reservations(machine, reserved)
    if not any(kept.get((node.id, MEMORY)) for node in machine.numa_nodes):
        raise ConfigError.at("reservedMemory", "some memory reserved on a NUMA node", 0)
    types = dict.fromkeys(machine.memory_by_type, 0)
    present = [{**types, **node.memory_by_type} for node in machine.numa_nodes]
    for (node_id, kind), amount in kept.items():
        position = next(i for i, node in enumerate(machine.numa_nodes) if node.id == node_id)
        if kind not in present[position]:
            known = ", ".join(sorted(present[position]))
            raise ConfigError.at(f"reservedMemory, NUMA node {node_id}", f"one of {known}", kind)
        present[position][kind] -= amount
        if present[position][kind] < 0:
            most = format_bytes(present[position][kind] + amount)
            where = f"reservedMemory, NUMA node {node_id}, {kind}"
            raise ConfigError.at(where, f"at most the {most} bytes there", format_bytes(amount))
    return {kind: tuple(node[kind] for node in present) for kind in sorted(present[0])}


@lru_cache(maxsize=64)
def memory_capacity(
    machine: Machine, reserved: tuple[ReservedMemory, ...], *, checks_groups: bool = True
) -> MemoryCapacity:
    """Return the same as the core keeps it; nodes of the same machine and reservations share the answer.

    Args:
        machine: the machine whose nodes are meant.
        reserved: bytes that are kept back.
        checks_groups: as in `MemoryCapacity`.

    Raises:
        ConfigError: as `allocatable_memory`.
    """
    return MemoryCapacity(allocatable_memory(machine, reserved), checks_groups=checks_groups)


def _reservations(machine: Machine, reserved: Iterable[ReservedMemory]) -> dict[tuple[int, str], int]:
    """Return the reserved bytes by kernel node id and type."""
    ids = {node.id for node in machine.numa_nodes}
    kept: dict[tuple[int, str], int] = {}
    for reservation in reserved:
        node_id = reservation.numa_node
        if node_id not in ids:
            known = ", ".join(map(str, sorted(ids)))
            raise ConfigError.at("reservedMemory", f"a NUMA node of this machine ({known})", node_id)
        for kind, amount in reservation.limits:
            if (node_id, kind) in kept:
                raise ConfigError.at("reservedMemory", f"{kind} once for NUMA node {node_id}", "it twice")
            kept[node_id, kind] = amount
    return kept
