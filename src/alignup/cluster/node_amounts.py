"""Reads a Node into amounts: its shape once, and what is free whenever something changed.

This is the one module that looks into the built-in providers' books; it changes nothing there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alignup.cluster.shape import CpuShape, DeviceShape, Row, Shape

if TYPE_CHECKING:
    from alignup.node import Node
    from alignup.providers.cpu.provider import CpuProvider
    from alignup.providers.cpu.topology import CpuGroup, CpuTopology
    from alignup.providers.devices.pool import DevicePool

__all__ = ["NodeReader"]

# The books are private to the providers; reading them here keeps the hot path of every admission free of a second,
# public form of the same numbers.
# ruff: noqa: SLF001


class NodeReader:
    """Reads one node again and again.

    Args:
        node: The node. Replacing a device inventory, or adding providers, makes it another node: read it anew.
    """

    __slots__ = ("_columns", "_cpu", "_kinds", "_memory", "_node_cpus", "node", "shape")

    def __init__(self, node: Node) -> None:
        self.node = node
        self._cpu = node.cpu
        self._node_cpus = node.cpu._topology.node_cpus if node.cpu else ()
        self._memory = node.memory._nodes if node.memory else None
        self._kinds = tuple(node.memory.allocatable) if node.memory else ()
        pools = node.devices._pools if node.devices else {}
        columns = [(resource, pool, _columns(pool)) for resource, pool in pools.items()]
        self._columns = tuple((resource, pool, members) for resource, pool, (_, members) in columns)
        self.shape = _shape(node, tuple((name, _device_shape(pool, *found)) for name, pool, found in columns))

    def row(self) -> Row:
        """Return what is free now."""
        cpu, memory = self._cpu, self._memory
        free = whole = 0
        if cpu is not None:
            free = cpu._allocatable & ~cpu._given
            whole = (cpu._pool & ~cpu._given & ~cpu._reserved_cores).bit_count()
        return Row(
            cpu=tuple([(free & cpus).bit_count() for cpus in self._node_cpus]),
            whole_cpus=whole,
            memory=() if memory is None else tuple([tuple(memory.free[kind]) for kind in self._kinds]),
            bound=() if memory is None else tuple(memory._bound),
            used=0 if memory is None else ((1 << len(memory._bound)) - 1) & ~memory.unbound,
            exclusive=_occupied(self.node),
            devices={resource: _counts(pool.free, members) for resource, pool, members in self._columns},
        )


def _occupied(node: Node) -> int:
    """Return the NUMA nodes of pods that exclusivity may keep others away from."""
    if not node.pods:
        return 0
    occupancy = node.occupancy
    return occupancy.single | occupancy.multi


def _counts(bits: int, members: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([(bits & near).bit_count() for near in members])


def _columns(pool: DevicePool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the places of the devices that are there, in the order of the inventory, and the devices of each."""
    found = dict(zip(pool._places, pool._members, strict=True))
    found[0] = pool._anywhere | pool._nowhere
    present = [(near & pool.present, place) for place, near in found.items() if near & pool.present]
    present.sort(key=lambda column: column[0] & -column[0])
    return tuple(place for _, place in present), tuple(near for near, _ in present)


def _device_shape(pool: DevicePool, places: tuple[int, ...], members: tuple[int, ...]) -> DeviceShape:
    in_runs = all(_is_run(near) for near in members)
    return DeviceShape(
        places=places,
        totals=tuple(near.bit_count() for near in members),
        ordered=in_runs and pool.preference is None and not pool._nowhere,
        healthy=pool.healthy != 0,
    )


def _is_run(bits: int) -> bool:
    """Whether the one bits are neighbours."""
    bits //= bits & -bits
    return bits & (bits + 1) == 0


def _shape(node: Node, devices: tuple[tuple[str, DeviceShape], ...]) -> Shape:
    """Return what of a node does not change."""
    config, machine = node.config, node.machine
    distances = machine.distance_matrix
    closest = config.topology_manager_policy_options.prefer_closest_numa_nodes
    wide = len(machine.numa_nodes) > 8  # noqa: PLR2004  # what the kernels enumerate
    # beyond 8 nodes nobody sums distances here; nodes equally near to themselves do not need it
    odd = wide and closest and distances is not None and len({row[i] for i, row in enumerate(distances)}) > 1
    built_in = sum(provider is not None for provider in (node.devices, node.cpu, node.memory))
    return Shape(
        numa_nodes=len(machine.numa_nodes),
        policy=config.topology_manager_policy,
        scope=config.topology_manager_scope,
        closest=closest and not wide,
        distances=distances,
        cpu=_cpu_shape(node.cpu) if node.cpu else None,
        memory=tuple(node.memory.allocatable.items()) if node.memory else None,
        devices=devices,
        foreign=odd or len(node.manager.providers) != built_in,
    )


def _cpu_shape(cpu: CpuProvider) -> CpuShape:
    topology, options = cpu._topology, cpu._options
    by_socket = options.align_by_socket
    return CpuShape(
        capacity=tuple(cpus.bit_count() for cpus in topology.node_cpus),
        allocatable=tuple((cpus & cpu._allocatable).bit_count() for cpus in topology.node_cpus),
        cpus_per_core=topology.cpus_per_core,
        split_cpus=(cpu._allocatable & cpu._reserved_cores).bit_count(),
        irregular=_is_irregular(topology, topology.cpus & ~cpu._allocatable)
        or (by_socket and _shares_nodes(cpu._socket_nodes)),
        full_pcpus_only=options.full_pcpus_only,
        distributes=options.distribute_cpus_across_numa,
        sockets=cpu._socket_nodes if by_socket else (),
    )


def _is_irregular(topology: CpuTopology, reserved: int) -> bool:
    """Whether a group can count as wholly free while some of its CPUs are not: see `CpuTopology.pack`.

    Those CPUs are reserved, or belong to another NUMA node than the others.
    """
    groups: list[CpuGroup] = list(topology.outer)
    while groups:
        group = groups.pop()
        if group.size > group.whole and (group.cpus & reserved or _spans(topology, group.cpus)):
            return True
        groups.extend(group.parts)
    return False


def _spans(topology: CpuTopology, cpus: int) -> bool:
    """Whether the CPUs lie in more than one NUMA node."""
    return not any(cpus & ~inside == 0 for inside in topology.node_cpus)


def _shares_nodes(sockets: tuple[int, ...]) -> bool:
    """Whether a NUMA node has CPUs of two sockets."""
    seen = 0
    for mask in sockets:
        if seen & mask:
            return True
        seen |= mask
    return False
