"""`alignup release`: frees a lease whose process is gone, or, if forced, one whose process cannot be seen from here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from alignup.cli.options import say, state_option

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["command"]


@click.command(name="release")
@click.argument("name")
@state_option
@click.option("--force", is_flag=True, help="Free it even if its process runs, which goes on where it is.")
@click.pass_context
def command(ctx: click.Context, name: str, state: Path | None, force: bool) -> None:
    """Free the lease NAME, as `alignup ps` shows it.

    A lease whose process runs is refused, exit status 1, unless forced. The process is not ended, and stays
    bound to CPUs that others can then get.
    """
    from alignup.leases.process import Liveness, joint_liveness  # startup counts
    from alignup.leases.store import LeaseFile  # startup counts

    with LeaseFile(state, say).change() as change:
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
    if refusal:
        say(refusal)
        ctx.exit(1)


def _words(alive: str) -> str:
    return "running" if alive == "running" else "on another host or in another container"
