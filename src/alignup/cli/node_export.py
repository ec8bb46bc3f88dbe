"""`alignup node export`: prints a kubelet's node as a NodeResourceTopology object, or as metrics for Prometheus."""

from __future__ import annotations

import json
import platform
from typing import TYPE_CHECKING

import click

from alignup.cli.options import kubelet_node_options

if TYPE_CHECKING:
    from alignup.cli.options import KubeletSource


@click.command(name="export")
@kubelet_node_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["nrt", "prometheus"]),
    default="nrt",
    show_default=True,
    help="A NodeResourceTopology object (JSON), or Prometheus' text.",
)
@click.option("--node-name", metavar="NAME", help="The node's name.  [default: that of the Node, else this host's]")
def command(source: KubeletSource, form: str, node_name: str | None) -> None:
    """Print a kubelet's node as a NodeResourceTopology object, or what is free and held as metrics."""
    found = source.read()
    if form == "prometheus":
        from alignup.kubelet.node_metrics import prometheus_text

        click.echo(prometheus_text(found), nl=False)
        return
    from alignup.node_resource_topology.write import kubelet_topology_object

    told = found.records.node_object.name if found.records.node_object else ""
    hostname = found.records.configuration.kubelet.hostname if found.records.configuration.kubelet else ""
    bound = next((one.node_name for one in found.records.pods or () if one.node_name), "")
    name = node_name or told or hostname or bound or platform.node().lower()
    click.echo(json.dumps(kubelet_topology_object(name, found), indent=1))
