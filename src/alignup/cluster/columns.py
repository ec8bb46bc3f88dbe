"""Lays shapes and rows out as arrays, one line a node, for the compiled kernel to run over.

All nodes of a cluster share the columns: as many NUMA nodes as the widest machine has, every type of memory, and for
each device resource as many places as any machine has. What a node lacks is 0.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from alignup.core.amounts.board import SHAPE_FIELDS, Board
from alignup.errors import InputError
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from alignup.cluster.shape import Row, Shape

__all__ = ["Arrays"]

_NARROW = 8
_WORD = 64
_SIZES = np.array([mask.bit_count() for mask in range(1 << _NARROW)])


class Arrays:
    """The arrays of a cluster; every one is public in numpy's manner, and only `write` changes it.

    Args:
        shapes: The shape of each node.
        rows: What is free on each node; read once, so a generator will do.

    Raises:
        InputError: There are more resources than a word has bits.
    """

    __slots__ = (
        "board", "bound", "cpu", "devices", "exclusive", "fixed", "kinds", "memory", "resources", "shape_of", "shapes",
        "starts", "used", "whole_cpus", "width",
    )  # fmt: skip

    def __init__(self, shapes: Sequence[Shape], rows: Iterable[Row]) -> None:
        numbers: dict[Shape, int] = {}
        self.shape_of = np.array([numbers.setdefault(shape, len(numbers)) for shape in shapes], np.int32)
        self.shapes = tuple(numbers)
        self.kinds = tuple(sorted({kind for shape in self.shapes for kind, _ in shape.memory or ()}))
        self.width = max((shape.numa_nodes for shape in self.shapes), default=1)
        places = _most_places(self.shapes)
        self.resources = tuple(places)
        self.starts = np.array([0, *accumulate(places.values())], np.int64)
        for known, what in ((self.kinds, "types of memory"), (self.resources, "device resources")):
            if len(known) > _WORD:
                raise InputError.at("the cluster", f"at most {_WORD} {what}", len(known))
        nodes, columns = len(self.shape_of), int(self.starts[-1])
        self.cpu = np.zeros((nodes, self.width), np.int64)
        self.whole_cpus = np.zeros(nodes, np.int64)
        self.memory = np.zeros((nodes, len(self.kinds), self.width), np.int64)
        self.bound = np.zeros((nodes, self.width), np.uint64)
        self.used = np.zeros(nodes, np.uint64)
        self.devices = np.zeros((nodes, columns), np.int64)
        self.exclusive = np.zeros(nodes, np.uint64)
        self.fixed = self._fixed()
        for index, row in enumerate(rows):
            self.write(index, row)
        self.board = Board(
            starts=self.starts, **self.fixed, shape_of=self.shape_of, cpu=self.cpu, whole=self.whole_cpus,
            memory=self.memory, bound=self.bound, used=self.used, devices=self.devices,
            exclusive=self.exclusive,
        )  # fmt: skip

    def write(self, index: int, row: Row) -> None:
        """Replace what is free on a node."""
        shape = self.shapes[self.shape_of[index]]
        self.whole_cpus[index] = row.whole_cpus
        self.exclusive[index] = row.exclusive
        if row.cpu:
            self.cpu[index, : len(row.cpu)] = row.cpu
        for (kind, _), amounts in zip(shape.memory or (), row.memory, strict=True):
            self.memory[index, self.kinds.index(kind), : len(amounts)] = amounts
        if row.bound:
            self.bound[index, : len(row.bound)] = row.bound
            self.used[index] = row.used
        for resource, counts in row.devices.items():
            start = self.starts[self.resources.index(resource)]
            self.devices[index, start : start + len(counts)] = counts

    def columns(self, resource: str) -> slice:
        """Return the columns of a device resource."""
        number = self.resources.index(resource)
        return slice(int(self.starts[number]), int(self.starts[number + 1]))

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays together."""
        own: tuple[np.ndarray[Any, Any], ...] = (
            self.shape_of,
            self.cpu,
            self.whole_cpus,
            self.memory,
            self.bound,
            self.used,
            self.devices,
        )
        return sum(array.nbytes for array in (*own, *self.fixed.values()))

    def _fixed(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays with a line for each shape."""
        count, columns = len(self.shapes), int(self.starts[-1])
        tables: dict[tuple[tuple[int, ...], ...], int] = {}
        fixed: dict[str, np.ndarray[Any, Any]] = {
            "cpu_capacity": np.zeros((count, self.width), np.int64),
            "cpu_allocatable": np.zeros((count, self.width), np.int64),
            "socket_nodes": np.zeros((count, self.width), np.uint64),
            "memory_allocatable": np.zeros((count, len(self.kinds), self.width), np.int64),
            "places": np.zeros((count, columns), np.uint64),
            "totals": np.zeros((count, columns), np.int64),
        }
        scalars = np.zeros((count, len(SHAPE_FIELDS)), np.int64)
        for number, shape in enumerate(self.shapes):
            self._fill(fixed, number, shape)
            table = -1
            if shape.distances and shape.numa_nodes <= _NARROW:
                table = tables.setdefault(shape.distances, len(tables))
            fields = self._fields(shape, table)
            scalars[number] = [_signed(fields[name]) for name in SHAPE_FIELDS]
        fixed["scalars"] = scalars
        fixed["sums"], fixed["nearest"] = _distance_tables(tables)
        return fixed

    def _fill(self, fixed: Mapping[str, np.ndarray[Any, Any]], number: int, shape: Shape) -> None:
        """Write a shape's lines."""
        if shape.cpu:
            fixed["cpu_capacity"][number, : shape.numa_nodes] = shape.cpu.capacity
            fixed["cpu_allocatable"][number, : shape.numa_nodes] = shape.cpu.allocatable
            fixed["socket_nodes"][number, : len(shape.cpu.sockets)] = shape.cpu.sockets
        for kind, amounts in shape.memory or ():
            fixed["memory_allocatable"][number, self.kinds.index(kind), : shape.numa_nodes] = amounts
        for resource, devices in shape.devices:
            start = self.starts[self.resources.index(resource)]
            fixed["places"][number, start : start + len(devices.places)] = devices.places
            fixed["totals"][number, start : start + len(devices.places)] = devices.totals

    def _fields(self, shape: Shape, table: int) -> dict[str, int]:
        """Return a shape's scalar fields by the kernel's names."""
        cpu = shape.cpu
        bits = {resource: 1 << number for number, resource in enumerate(self.resources)}
        kinds = {kind for kind, _ in shape.memory or ()}
        return {
            "numa_nodes": shape.numa_nodes,
            "policy": TOPOLOGY_POLICIES.index(shape.policy),
            "pod_scope": shape.scope == "pod",
            "has_cpu": cpu is not None,
            "has_memory": shape.memory is not None,
            "foreign": shape.foreign,
            "irregular": cpu is not None and cpu.irregular,
            "full_pcpus_only": cpu is not None and cpu.full_pcpus_only,
            "distributes": cpu is not None and cpu.distributes,
            "by_socket": cpu is not None and bool(cpu.sockets),
            "cpus_per_core": cpu.cpus_per_core if cpu else 1,
            "split_cpus": cpu.split_cpus if cpu else 0,
            "sockets": len(cpu.sockets) if cpu else 0,
            "memory_kinds": sum(1 << number for number, kind in enumerate(self.kinds) if kind in kinds),
            "resources": sum(bits[resource] for resource, _ in shape.devices),
            "healthy": sum(bits[resource] for resource, devices in shape.devices if devices.healthy),
            "ordered": sum(bits[resource] for resource, devices in shape.devices if devices.ordered),
            "distances": table,
            "closest": shape.closest,
        }


def _most_places(shapes: Iterable[Shape]) -> dict[str, int]:
    """Return the device resources by name, and the most places that a machine has of each."""
    most: dict[str, int] = {}
    for shape in shapes:
        for resource, devices in shape.devices:
            most[resource] = max(most.get(resource, 0), len(devices.places))
    return dict(sorted(most.items()))


def _signed(bits: int) -> int:
    """Return a word of 64 bits as numpy's signed integers have it."""
    return bits - (1 << 64) if bits >= 1 << 63 else int(bits)


def _distance_tables(
    tables: Mapping[tuple[tuple[int, ...], ...], int],
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return for each matrix the sum of the distances within every mask, and the least sum of each size."""
    sums = np.zeros((len(tables), 1 << _NARROW), np.int64)
    nearest = np.zeros((len(tables), 65), np.int64)
    members = (np.arange(1 << _NARROW)[:, None] >> np.arange(_NARROW)) & 1
    for rows, number in tables.items():
        nodes = len(rows)
        inside = members[: 1 << nodes, :nodes]
        sums[number, : 1 << nodes] = np.einsum("mi,ij,mj->m", inside, np.array(rows), inside)
        for size in range(1, nodes + 1):
            nearest[number, size] = sums[number, : 1 << nodes][_SIZES[: 1 << nodes] == size].min()
    return sums, nearest
