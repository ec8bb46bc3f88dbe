"""`alignup release`: frees leases whose processes are gone, or, if forced, any others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alignup.cli import options
from alignup.cli.failures import complain
from alignup.cli.terminal import print_json

if TYPE_CHECKING:
    from pathlib import Path


@options.subcommand("release", "0 freed; 1 a lease does not exist, or its process runs")
def command(
    *,
    names: tuple[str, ...] = options.argument(
        "NAME...", nargs=-1, required=True, shell_complete=options.complete_leases
    ),
    state: Path | None = options.state,
    force: bool = options.flag("Free it even if its process runs, which goes on where it is."),
    as_json: bool = options.flag("Print each lease that was freed as `alignup ps --json` does.", "--json"),
) -> int:
    """Free the leases of these names, as `alignup ps` shows them.

    A lease whose process runs is refused, exit status 1, unless forced; the others are freed all the same. The
    process is not ended, and stays bound to CPUs that others can then get.
    """
    from alignup.cli.ps import lease_dict  # startup counts
    from alignup.errors import AllocationError
    from alignup.host.leases.source import open_source  # startup counts

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
                print_json(lease_dict(freed.lease, freed.state))
    return 1 if refused else 0
