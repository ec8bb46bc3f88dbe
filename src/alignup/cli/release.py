"""`alignup release`: frees a lease whose process is gone, or, if forced, one whose process cannot be seen from here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from alignup.cli.failures import complain
from alignup.cli.options import state_option

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["command"]


@click.command(
    name="release",
    epilog="Exit status: 0 freed; 1 there is no such lease, or its process runs; 2 bad usage or bad input.",
)
@click.argument("name")
@state_option
@click.option("--force", is_flag=True, help="Free it even if its process runs, which goes on where it is.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the lease that was freed as `alignup ps --json` does."
)
@click.pass_context
def command(ctx: click.Context, name: str, state: Path | None, force: bool, as_json: bool) -> None:
    """Free the lease NAME, as `alignup ps` shows it.

    A lease whose process runs is refused, exit status 1, unless forced. The process is not ended, and stays
    bound to CPUs that others can then get.
    """
    from alignup.leases.process import Liveness, joint_liveness  # startup counts
    from alignup.leases.store import LeaseFile  # startup counts

    with LeaseFile(state, complain).change() as change:
        lease = change.named(name)
        if lease is None:
            refusal = f"expected the name of a lease, got {name!r}: see `alignup ps`"
        else:
            alive = joint_liveness(lease.processes)
            holder = f"pid {lease.process.pid}, which is {_words(alive)}"
            refusal = f"lease {name!r} is held by {holder}; --force frees it"
            if force or alive is Liveness.GONE:
                change.drop(lease.id)
                refusal = ""
    if refusal or lease is None:
        complain(refusal)
        ctx.exit(1)
    if as_json:
        from alignup.cli.ps import lease_dict  # startup counts

        click.echo(json.dumps(lease_dict(lease, alive), separators=(",", ":")))


def _words(alive: str) -> str:
    return "running" if alive == "running" else "on another host or in another container"
