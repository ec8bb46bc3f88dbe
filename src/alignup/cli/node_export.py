"""`alignup node export`: prints a kubelet's node as a NodeResourceTopology object, or as metrics for Prometheus."""

from __future__ import annotations

import json
import platform

import click

from alignup.cli import options
from alignup.cli.inputs import KubeletSource


@options.subcommand("export")
def command(
    *,
    source: KubeletSource = options.all_of(KubeletSource),
    form: str = options.value(
        "A NodeResourceTopology object (JSON), or Prometheus' text.",
        "--format",
        type=click.Choice(["nrt", "prometheus"]),
        default="nrt",
    ),
) -> None:
    """Print a kubelet's node as a NodeResourceTopology object, or what is free and held as metrics."""
    found = source.read()
    if form == "prometheus":
        from alignup.kubelet.node_metrics import prometheus_text

        click.echo(prometheus_text(found), nl=False)
        return
    from alignup.kubelet.node_resource_topology.write import kubelet_topology_object

    told = found.records.node_object.name if found.records.node_object else ""
    hostname = found.records.configuration.kubelet.flags.hostname if found.records.configuration.kubelet else ""
    bound = next((one.node_name for one in found.records.pods or () if one.node_name), "")
    name = source.node_name or told or hostname or bound or platform.node().lower()
    click.echo(json.dumps(kubelet_topology_object(name, found), indent=1))
