"""Makes the record of an admission of what a `Placer` gave: names and ids are put to it when somebody reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alignup.machine.bits import ids_of
from alignup.machine.cpuset import CPUSet
from alignup.topology_manager.admission import Admission, ContainerAllocation, MemoryBlock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.core.amounts.placer import Share
    from alignup.providers.devices.inventory import DevicePool


def admitted(shares: Sequence[Share], pools: Mapping[str, DevicePool], numa_node_ids: tuple[int, ...]) -> Admission:
    """Return the record of an admission of these shares, with the ids of devices in `pools`."""
    return Admission.later("admitted", True, _admitted, shares, pools, numa_node_ids)


def _admitted(shares: Sequence[Share], pools: Mapping[str, DevicePool], numa_node_ids: tuple[int, ...]) -> Admission:
    got = {}
    for one in shares:
        nodes = ids_of(one.memory_nodes, numa_node_ids)
        got[one.container.name] = ContainerAllocation(
            one.affinity,
            None if one.cpus is None else CPUSet.from_int(one.cpus),
            tuple([MemoryBlock(nodes, kind, size) for kind, size in one.sizes()]),
            {resource: pools[resource].sorted_ids(bits) for resource, bits in sorted((one.devices or {}).items())},
        )
    return Admission(True, containers=got, numa_node_ids=numa_node_ids)
