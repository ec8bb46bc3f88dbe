"""Finds the NUMA nodes that what a container was given lies in, with the ids that the kernel gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from alignup.node.holdings import Holdings
    from alignup.topology_manager.admission import ContainerAllocation

__all__ = ["nodes_in_words", "numa_nodes_of"]


def numa_nodes_of(there: Holdings, got: ContainerAllocation) -> set[int]:
    """Return the ids of the NUMA nodes that a container's CPUs, memory and devices lie in.

    A device that is near to several NUMA nodes lies in none of them alone, and does not count.
    """
    found = {node for block in got.memory if block.size for node in block.numa_nodes}
    cpus = int(got.cpus or 0)
    found |= {node for node, bits in there.node_cpus.items() if bits & cpus}
    for resource, ids in got.devices.items():
        amounts = there.amounts(resource)
        places = {} if amounts is None else amounts.devices
        found |= {nodes[0] for one in ids if len(nodes := places.get(one, ())) == 1}
    return found


def nodes_in_words(numa_nodes: Iterable[int]) -> str:
    """Return a set of NUMA nodes in words."""
    ids = sorted(numa_nodes)
    return f"NUMA node{'' if len(ids) == 1 else 's'} {'+'.join(map(str, ids))}"
