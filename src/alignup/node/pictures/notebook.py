"""Shows machines, nodes and admissions in notebooks; the records' methods `_repr_svg_` and `_repr_html_` call this."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alignup.node.holdings import holdings_of
from alignup.node.pictures.machine_picture import Scene, drawing_of
from alignup.node.pictures.page import fragment, paragraph
from alignup.node.pictures.tables import containers_table
from alignup.text.wording import counted

if TYPE_CHECKING:
    from alignup.machine.machine import Machine
    from alignup.node.node import Node
    from alignup.topology_manager.admission import Admission

__all__ = ["admission_html", "machine_svg", "node_scene", "node_svg"]


def machine_svg(machine: Machine) -> str:
    """Return the picture of a machine."""
    return drawing_of(Scene("Machine", machine))


def node_scene(node: Node) -> Scene:
    """Return the scene of a node with what its containers hold."""
    devices = (
        {} if node.devices is None else {name: pool.devices for name, pool in node.devices.pools.items()}
    )
    title = f"Node: policy {node.manager.policy.name}, {counted(len(node.pods), 'pod')}"
    return Scene(title, node.machine, devices, holdings_of(node))


def node_svg(node: Node) -> str:
    """Return the picture of a node and of what its containers hold."""
    return drawing_of(node_scene(node))


def admission_html(admission: Admission) -> str:
    """Return the verdict, and what each container got or why the pod was refused."""
    if not admission.admitted:
        return fragment([paragraph(f"✗ refused: {admission.reason}"), paragraph(admission.message)])
    table = containers_table(admission.to_dict()["containers"])
    return fragment([paragraph("✓ admitted"), table.element()])
