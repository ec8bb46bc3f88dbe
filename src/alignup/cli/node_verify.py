"""`alignup node verify`: checks that running processes are placed as the state of their node, or their lease, says."""

from __future__ import annotations

import os
from pathlib import Path

import click

from alignup.cli import options
from alignup.cli.failures import complain
from alignup.cli.inputs import KubeletSource
from alignup.cli.terminal import nodes_text, print_json
from alignup.errors import InputError, one_line
from alignup.records import json_fields


@options.subcommand("verify", "0 all processes are placed as recorded; 1 one is not")
def command(
    *,
    source: KubeletSource = options.all_of(KubeletSource),
    leases: bool = options.flag("Verify the processes of leases, not those of a kubelet's containers."),
    is_self: bool = options.flag(
        "Verify the process that asks: is it bound to one NUMA node, and are its devices there? From inside a "
        "container, without privileges. Status 2 also means that the answer is unknown.",
        "--self",
    ),
    state: Path | None = options.state,
    as_json: bool = options.json("a finding"),
    pids: tuple[int, ...] = options.argument("[PID]...", nargs=-1, type=click.IntRange(1)),
) -> int:
    """Verify that running processes are placed as recorded: affinity, memory, device files.

    All processes of the node's containers, or those that are named; with --leases those of `alignup run` and what they
    have started.
    """
    from alignup.kubelet.processes import all_processes
    from alignup.kubelet.verify import placements_of_kubelet, placements_of_leases, verify

    if is_self:
        return verify_self(Path(source.root), as_json=as_json)
    if not Path(source.root).is_dir():
        raise InputError.at("--node", "the root of a machine, whose processes can be looked at", source.root)
    running = list(all_processes(Path(source.root)))
    if leases:
        from alignup.host.leases.file import LeaseFile

        placements = placements_of_leases(LeaseFile(state, complain).read().leases, running)
    else:
        placements = placements_of_kubelet(source.read(), running)
    found = verify(Path(source.root), placements, running, pids)
    for one in found:
        if as_json:
            print_json(json_fields(one))
        else:
            click.echo(one_line(f"{one.name}: {one.text}"))
    if not found and not as_json:
        checked = len(pids) or len(placements.keys() & {one.pid for one in running})
        click.echo(f"{checked} process{'' if checked == 1 else 'es'} checked: all are placed as recorded")
    return 1 if found else 0


def verify_self(root: Path, *, as_json: bool) -> int:
    """Print what this process is bound to, and whether its devices are there; return the exit status."""
    from alignup.kubelet.verify import look_at_self

    found = look_at_self(root, os.environ)
    if as_json:
        print_json(found)
    else:
        click.echo(f"CPUs {found['cpus']}, NUMA nodes {nodes_text(found['numaNodes'])}")
        for one in found["devices"]:
            near = "unknown" if one["numaNode"] is None else one["numaNode"]
            click.echo(one_line(f"{one['address']} ({one['from']}): NUMA node {near}"))
        click.echo(found["text"])
    return {True: 0, False: 1, None: 2}[found["aligned"]]
