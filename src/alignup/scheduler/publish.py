"""Publishes the node of a running kubelet: its NodeResourceTopology object, with what its pods hold.

The node is read by `alignup.kubelet`; it is read again and again, and written when it has changed. Needs the extra
`cluster`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from alignup.errors import AlignupError
from alignup.machine.device_inventory import inventory_to_dict
from alignup.node_resource_topology.write import kubelet_topology_object
from alignup.scheduler.api_client import TOPOLOGIES, Api, write_object
from alignup.scheduler.report import HOLDINGS, NODE, holdings_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from alignup.kubelet.read import KubeletNode

__all__ = ["described", "publish_node", "published_object"]

_FIELDS: Final = (
    "topologyManagerPolicy",
    "topologyManagerScope",
    "topologyManagerPolicyOptions",
    "cpuManagerPolicy",
    "cpuManagerPolicyOptions",
    "memoryManagerPolicy",
    "reservedSystemCPUs",
    "reservedMemory",
    "systemReserved",
    "kubeReserved",
    "evictionHard",
    "featureGates",
)
"""The fields of a KubeletConfiguration that decide; the others are nobody's concern outside the node."""
_SETTLED: Final = 0.05


def described(found: KubeletNode) -> dict[str, Any]:
    """Return the node as a line of `alignup rank --nodes` has it, without name and pods."""
    node = found.node
    pools = {} if node.devices is None else node.devices.pools
    fields = found.records.configuration.fields
    return {
        "machine": node.machine.to_dict(),
        "kubelet": {name: fields[name] for name in _FIELDS if fields.get(name) is not None},
        "devices": inventory_to_dict({resource: pool.devices for resource, pool in pools.items()}),
        "kubeletVersion": str(node.config.version),
    }


def published_object(name: str, found: KubeletNode) -> dict[str, Any]:
    """Return the NodeResourceTopology object of a kubelet's node.

    Args:
        name: of the Node object.
        found: the node.
    """
    made = kubelet_topology_object(name, found)
    made["metadata"]["annotations"] = {
        NODE: msgspec.json.encode(described(found)).decode(),
        HOLDINGS: msgspec.json.encode(holdings_of(found.node)).decode(),
    }
    return made


async def publish_node(
    api: Api,
    name: str,
    read: Callable[[], KubeletNode],
    *,
    interval: float,
    complain: Callable[[str], None],
    once: bool = False,
) -> None:
    """Publish a node, and again whenever it has changed, until cancelled.

    The state files of a kubelet are written one after another: a change is published when it is read twice alike.

    Args:
        api: the API server.
        name: of the Node object.
        read: reads the node.
        interval: seconds between looks.
        complain: called with what went wrong, in one line.
        once: return after the node was published.
    """
    last = b""
    while True:
        try:
            seen = _encoded(name, read)
            if seen != last:
                await asyncio.sleep(_SETTLED)
                if _encoded(name, read) == seen:
                    await write_object(api, TOPOLOGIES, name, seen)
                    last = seen
                    if once:
                        return
        except AlignupError as error:
            complain(str(error))
            if once:
                raise
        await asyncio.sleep(interval)


def _encoded(name: str, read: Callable[[], KubeletNode]) -> bytes:
    return msgspec.json.encode(published_object(name, read()))
