"""`alignup node verify`: checks that running processes sit where the state of their node, or their lease, says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from alignup.cli import options
from alignup.cli.failures import complain
from alignup.cli.inputs import KubeletSource
from alignup.errors import InputError, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alignup.kubelet.processes import Process
    from alignup.kubelet.verify import Seat


@options.subcommand("verify", "0 all sit where they should; 1 one does not")
def command(
    *,
    source: KubeletSource = options.all_of(KubeletSource),
    leases: bool = options.flag("Verify the processes of leases, not those of a kubelet's containers."),
    state: Path | None = options.state,
    as_json: bool = options.json("a finding"),
    pids: tuple[int, ...] = options.argument("[PID]...", nargs=-1, type=click.IntRange(1)),
) -> int:
    """Verify that running processes sit where they should: affinity, memory, device files.

    All processes of the node's containers, or those that are named; with --leases those of `alignup run` and what they
    have started.
    """
    from alignup.kubelet.processes import all_processes
    from alignup.kubelet.verify import seats_of_kubelet, verify

    if not Path(source.root).is_dir():
        raise InputError.at("--node", "the root of a machine, whose processes can be looked at", source.root)
    running = list(all_processes(Path(source.root)))
    seats = lease_seats(state, running) if leases else seats_of_kubelet(source.read(), running)
    found = verify(Path(source.root), seats, running, pids)
    for one in found:
        click.echo(json.dumps(one.to_dict(), separators=(",", ":")) if as_json else one_line(f"{one.name}: {one.text}"))
    if not found and not as_json:
        looked_at = len(pids) or len(seats.keys() & {one.pid for one in running})
        click.echo(f"{looked_at} process{'' if looked_at == 1 else 'es'} looked at: all sit where they should")
    return 1 if found else 0


def lease_seats(state: Path | None, running: Sequence[Process]) -> dict[int, Seat]:
    """Return the seats of the processes of leases.

    Raises:
        InputError: the file of leases cannot be read.
    """
    from alignup.kubelet.verify import seats_of_leases
    from alignup.leases.file import LeaseFile

    return seats_of_leases(LeaseFile(state, complain).read().leases, running)
