"""`alignup node`: the subcommands about the node of a kubelet, one module each, imported when it is called."""

from __future__ import annotations

import click

from alignup.cli.program import LazyGroup

SUBCOMMANDS = {
    "collect": "Pack a kubelet's node into an archive, to be looked at elsewhere.",
    "show": "Show who holds what, as tables, JSON or pictures.",
    "export": "Print a NodeResourceTopology object, or metrics for Prometheus.",
    "verify": "Verify that running processes sit where the node's state says.",
    "publish": "Keep the NodeResourceTopology object of this node current.",
    "check": "Check the state files of a kubelet against each other, the machine and the pods.",
}
"""Name and first line of help of each; its module is `node_` and the name."""


class NodeGroup(LazyGroup):
    """The group of these subcommands."""

    subcommands = SUBCOMMANDS
    prefix = "alignup.cli.node_"


@click.group(name="node", cls=NodeGroup, epilog="Exit status: that of the subcommand; 2 bad usage or bad input.")
def command() -> None:
    """Read the node that a kubelet runs: its machine, configuration, state files and pods."""
