"""`alignup node`: the subcommands about the node of a kubelet, one module each, imported when it is called."""

from __future__ import annotations

from importlib import import_module

import click

__all__ = ["command"]

SUBCOMMANDS = {
    "collect": "Pack a kubelet's node into an archive, to be looked at elsewhere.",
    "show": "Show who holds what, as tables, JSON or pictures.",
    "export": "Print a NodeResourceTopology object, or metrics for Prometheus.",
    "verify": "Verify that running processes sit where the node's state says.",
    "publish": "Keep the NodeResourceTopology object of this node current.",
    "check": "Check the state files of a kubelet against each other, the machine and the pods.",
}
"""Name and first line of help of each; its module is `node_` and the name."""


class NodeGroup(click.Group):
    """A group that knows its subcommands' names and imports them when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in the order of `SUBCOMMANDS`."""
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        """Import and return a subcommand."""
        if cmd_name not in SUBCOMMANDS:
            return None
        found: click.Command = import_module(f"alignup.cli.node_{cmd_name}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """List the subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SUBCOMMANDS.items()))


@click.group(name="node", cls=NodeGroup)
def command() -> None:
    """Read the node that a kubelet runs: its machine, configuration, state files and pods."""
