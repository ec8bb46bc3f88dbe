"""`alignup release`: frees leases whose processes are gone, or, if forced, any others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from alignup.cli.failures import complain
from alignup.cli.options import state_option

if TYPE_CHECKING:
    from pathlib import Path


@click.command(
    name="release",
    epilog="Exit status: 0 freed; 1 a lease does not exist, or its process runs; 2 bad usage or bad input.",
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@state_option
@click.option("--force", is_flag=True, help="Free it even if its process runs, which goes on where it is.")
@click.option("--json", "as_json", is_flag=True, help="Print each lease that was freed as `alignup ps --json` does.")
@click.pass_context
def command(ctx: click.Context, names: tuple[str, ...], state: Path | None, force: bool, as_json: bool) -> None:
    """Free the leases of these names, as `alignup ps` shows them.

    A lease whose process runs is refused, exit status 1, unless forced; the others are freed all the same. The
    process is not ended, and stays bound to CPUs that others can then get.
    """
    from alignup.cli.ps import lease_dict  # startup counts
    from alignup.errors import AllocationError
    from alignup.leases.source import open_source  # startup counts

    source = open_source(state, complain)
    refused = False
    for name in dict.fromkeys(names):
        try:
            freed = source.release(name, force=force)
        except AllocationError as refusal:
            complain(refusal.detail)
            refused = True
        else:
            if as_json:
                click.echo(json.dumps(lease_dict(freed.lease, freed.state), separators=(",", ":")))
    ctx.exit(1 if refused else 0)
