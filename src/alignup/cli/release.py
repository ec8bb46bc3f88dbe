"""`alignup release`: frees leases whose processes are gone, or, if forced, any others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from alignup.cli.failures import complain
from alignup.cli.options import state_option

if TYPE_CHECKING:
    from pathlib import Path

    from alignup.leases.process import Liveness
    from alignup.leases.record import LeaseRecord

__all__ = ["command"]


@click.command(
    name="release",
    epilog="Exit status: 0 freed; 1 for one there is no such lease, or its process runs; 2 bad usage or bad input.",
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@state_option
@click.option("--force", is_flag=True, help="Free it even if its process runs, which goes on where it is.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print each lease that was freed as `alignup ps --json` does."
)
@click.pass_context
def command(
    ctx: click.Context, names: tuple[str, ...], state: Path | None, force: bool, as_json: bool
) -> None:
    """Free the leases of these names, as `alignup ps` shows them.

    A lease whose process runs is refused, exit status 1, unless forced; the others are freed all the same. The
    process is not ended, and stays bound to CPUs that others can then get.
    """
    from alignup.cli.ps import lease_dict  # startup counts
    from alignup.leases.process import joint_liveness  # startup counts
    from alignup.leases.store import LeaseFile  # startup counts

    refusals, freed = [], []
    with LeaseFile(state, complain).change() as change:
        for name in dict.fromkeys(names):
            lease = change.named(name)
            alive = None if lease is None else joint_liveness(lease.processes)
            refusal = _refusal(name, lease, alive, force=force)
            if refusal or lease is None or alive is None:
                refusals.append(refusal)
            else:
                change.drop(lease.id)
                freed.append(lease_dict(lease, alive))
    for refusal in refusals:
        complain(refusal)
    for one in freed if as_json else ():
        click.echo(json.dumps(one, separators=(",", ":")))
    ctx.exit(1 if refusals else 0)


def _refusal(name: str, lease: LeaseRecord | None, alive: Liveness | None, *, force: bool) -> str:
    """Return why a lease of this name is not freed; empty if it is."""
    if lease is None or alive is None:
        return f"expected the name of a lease, got {name!r}: see `alignup ps`"
    if force or alive == "gone":
        return ""
    return f"lease {name!r} is held by pid {lease.process.pid}, which is {_words(alive)}; --force frees it"


def _words(alive: str) -> str:
    return "running" if alive == "running" else "on another host or in another container"
