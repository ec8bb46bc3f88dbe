"""`alignup split`: cuts a machine into equal, disjoint, aligned parts and prints them."""

from __future__ import annotations

import shlex
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from alignup.cli import options
from alignup.cli.failures import complain
from alignup.cli.inputs import SiteSource, seen_by_this_process
from alignup.cli.terminal import devices_text, nodes_text, print_json, print_table
from alignup.text.counting import short_bytes

if TYPE_CHECKING:
    from alignup.host.parts.part import Part  # startup counts


@options.subcommand("split")
def command(
    *,
    parts: int = options.argument("N", type=click.IntRange(min=1)),
    cpus_per_part: int = options.number(
        "CPUs of each part.  [default: as many as there are]", 0, default=0
    ),
    devices: tuple[str, ...] = options.devices,
    site: SiteSource = options.all_of(SiteSource),
    all_devices: bool = options.all_devices,
    as_json: bool = options.json("part"),
    as_env: bool = options.flag("Print a line of environment variables per part.", "--env"),
) -> None:
    """Cut a machine into N equal, disjoint, aligned parts: CPUs, memory and devices for N ranks.

        alignup split 8
        alignup split 4 --machine dgx-h100 --device nvidia.com/gpu=2

    All parts have the same number of cores and of devices. `alignup run --part` takes one of them.

    If there are enough cores, no core is in two parts. As many parts as possible lie on one NUMA
    node each, and the others on as few and as close nodes as possible. Each part gets the closest
    devices. Where CUDA_VISIBLE_DEVICES or its like lists some devices only, parts have these, and
    the CPUs near them that are their share.
    """
    from alignup.host.leases.file import LeaseFile  # startup counts
    from alignup.host.leases.request import parse_device_counts  # startup counts
    from alignup.host.leases.source import AgentSource, FileSource, open_source  # startup counts

    if as_json and as_env:
        raise click.UsageError("--json and --env exclude each other")

    counts = parse_device_counts(devices)
    load = site.load if all_devices else partial(site.load_seen, counts)
    source: FileSource | AgentSource
    if site.set_options:
        # with a machine of its own it asks nobody: nothing depends on what is in use
        source = FileSource(LeaseFile(None, complain), load)
    else:
        source = open_source(None, complain, load)

    if isinstance(source, AgentSource) and not all_devices:
        cut_parts = source.parts(parts, cpus_per_part, counts, seen_by_this_process(counts))
    else:
        cut_parts = source.parts(parts, cpus_per_part, counts)

    if as_json:
        print_json(*map(part_dict, cut_parts))
    elif as_env:
        for part in cut_parts:
            click.echo(env_line(part))
    else:
        headings = ("rank", "NUMA nodes", "CPUs", "count", "memory", "devices")
        print_table(headings, map(part_cells, cut_parts))


def part_cells(part: Part) -> tuple[str, ...]:
    """Return the cells of a part."""
    return (
        str(part.rank),
        nodes_text(part.numa_nodes),
        str(part.cpus),
        str(len(part.cpus)),
        " + ".join(f"{short_bytes(size)} @ {node}" for node, size in part.memory),
        devices_text(part.devices),
    )


def part_dict(part: Part) -> dict[str, Any]:
    """Return a part in JSON's types."""
    return {
        "rank": part.rank,
        "cpus": str(part.cpus),
        "numaNodes": list(part.numa_nodes),
        "memory": [
            {"numaNode": node, "type": "memory", "size": size} for node, size in part.memory
        ],
        "devices": {resource: list(ids) for resource, ids in sorted(part.devices.items())},
    }


def env_line(part: Part) -> str:
    """Return the variables of a part, quoted for a shell: `env $(sed -n 1p parts) COMMAND`."""
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in part.environment().items())
