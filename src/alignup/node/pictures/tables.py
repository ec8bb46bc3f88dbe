"""Makes tables of what the containers of a pod got, and of what those on a node hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alignup.node.pictures.page import Table
from alignup.text.byte_sizes import short_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alignup.node.holdings import Holdings
    from alignup.node.pictures.signs import Sign

__all__ = ["containers_table", "holders_table"]


def containers_table(containers: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return what each container got.

    Args:
        containers: by name, as `Admission.to_dict` has them.
    """
    rows = [_container_row(name, got) for name, got in containers.items()]
    return Table(("container", "NUMA nodes", "preferred", "CPUs", "memory", "devices"), rows)


def _container_row(name: str, got: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a container got, as cells."""
    affinity = got["affinity"]
    nodes = None if affinity is None else affinity["numaNodes"]
    blocks = [
        f"{one['type']} {short_bytes(one['size'])} @ {', '.join(map(str, one['numaNodes']))}"
        for one in got["memory"]
        if one["size"]
    ]
    devices = [f"{resource} {', '.join(ids)}" for resource, ids in got["devices"].items() if ids]
    return (
        name,
        "any" if nodes is None else ", ".join(map(str, nodes)),
        "-" if affinity is None else "yes" if affinity["preferred"] else "no",
        (got["cpus"] or "shared").replace(",", ", "),
        "; ".join(blocks) or "-",
        "; ".join(devices) or "-",
    )


def holders_table(holdings: Holdings, signs: Mapping[str, Sign]) -> Table:
    """Return what each container on a node holds, with the sign of its pod in the picture, by uid."""
    rows = []
    for one in holdings.containers:
        memory = [
            f"{kind} {short_bytes(size)} @ {node}"
            for kind, shares in one.memory.items()
            for node, size in shares.items()
            if size
        ]
        devices = [f"{resource} {', '.join(ids)}" for resource, ids in one.devices.items() if ids]
        rows.append(
            (
                signs[one.pod_uid].text if one.pod_uid in signs else "-",
                one.pod,
                one.container,
                "shared" if one.cpus is None else str(one.cpus).replace(",", ", "),
                "; ".join(memory) or "-",
                "; ".join(devices) or "-",
            )
        )
    return Table(("sign", "pod", "container", "CPUs", "memory", "devices"), rows)
