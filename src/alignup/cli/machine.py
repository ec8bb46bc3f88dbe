"""`alignup machine`: shows a machine as tables, as JSON or as a picture, or packs its kernel files into an archive."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from alignup.cli.inputs import kubelet_node_option, machine_option, near_cpus_option
from alignup.cli.options import device_resource_option
from alignup.cli.output_files import html_option, svg_option, write_text
from alignup.errors import InputError
from alignup.machine.load import HERE

if TYPE_CHECKING:
    from alignup.machine.loaded import LoadedMachine
    from alignup.machine.machine import Machine

__all__ = ["command"]


@click.command(name="machine")
@machine_option
@kubelet_node_option
@click.option("--root", metavar="DIR", help="The root of a sysfs tree; the same as --machine DIR.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object, which --machine takes, and nothing else."
)
@click.option(
    "--snapshot", metavar="FILE", help="Pack the kernel files that describe it: .tar.xz, .tar.gz or .tgz."
)
@svg_option
@html_option
@device_resource_option
@click.option("--nvidia", is_flag=True, help="Ask NVIDIA's driver on this machine for its GPUs.")
@near_cpus_option
def command(
    machine: str,
    kubelet_node: str | None,
    root: str | None,
    as_json: bool,
    snapshot: str | None,
    svg: str | None,
    html: str | None,
    selectors: tuple[str, ...],
    nvidia: bool,
    near_cpus: bool,
) -> None:
    """Show a machine at a glance: NUMA nodes, CPUs, memory, devices and distances.

    A picture shows sockets, NUMA nodes, L3 caches, cores, CPUs, memory, and devices at their nodes.

    With --json, `devices`, `preferredSets` and `kubelet` are further keys of the object: what came with the
    machine, and the devices that an option asks for. A snapshot holds no host names, serial numbers or MAC addresses.
    """
    from alignup.machine.with_devices import load_with_devices

    if sum((root is not None, machine != HERE, kubelet_node is not None)) > 1:
        raise click.UsageError("--root, --machine and --node exclude each other")
    source = (kubelet_node or machine) if root is None else root
    if nvidia and (root is not None or source != HERE):
        raise InputError.at("--nvidia", "this machine, the only one whose driver can be asked", source)
    loaded = load_with_devices(
        source_of(machine, kubelet_node, root),
        selectors=selectors,
        nvidia="always" if nvidia else "never",
        near_cpus=near_cpus,
    )
    title = "this machine" if source == HERE else source
    if snapshot is not None:
        pack(source, snapshot)
    if svg is not None or html is not None:
        draw(title, loaded, svg, html)
    if "-" in (svg, html):
        return
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(loaded.to_dict()))
        return
    from alignup.cli.machine_view import show_machine

    show_machine(title, loaded)


def draw(title: str, loaded: LoadedMachine, svg: str | None, html: str | None) -> None:
    """Write the picture of a machine, and its page.

    Raises:
        InputError: a file cannot be written.
    """
    from alignup.node.pictures.picture import Scene, drawing_of, machine_page

    scene = Scene(title, loaded.machine, loaded.devices)
    if svg is not None:
        write_text(svg, drawing_of(scene))
    if html is not None:
        write_text(html, machine_page(scene))


def source_of(machine: str, kubelet_node: str | None, root: str | None) -> str | Machine | LoadedMachine:
    """Return the machine that one of the options names, in a form that `load_with_devices` takes."""
    from alignup.machine.sysfs.machine import read_machine

    if kubelet_node is not None:
        return machine_with_kubelet(kubelet_node)
    return machine if root is None else read_machine(root)


def machine_with_kubelet(root: str) -> LoadedMachine:
    """Return the machine of a kubelet's node, with the devices and the configuration that the kubelet has.

    Raises:
        InputError: a file is damaged, or there is none of a kubelet.
    """
    from alignup.kubelet.read import read_kubelet_node
    from alignup.machine.loaded import LoadedMachine

    found = read_kubelet_node(root)
    pools = found.node.devices.pools if found.node.devices else {}
    return LoadedMachine(
        found.node.machine,
        {resource: pool.reported for resource, pool in pools.items()},
        kubelet=found.records.configuration.fields,
    )


def pack(source: str, target: str) -> None:
    """Write the snapshot of a sysfs tree.

    Raises:
        InputError: the machine does not come from such a tree, or the snapshot cannot be written.
    """
    from alignup.machine.snapshot import take_snapshot

    if not Path(source).is_dir():
        raise InputError.at("--snapshot", "a machine that is read from sysfs", source)
    count = take_snapshot(source, target)
    click.echo(f"alignup: packed {count} kernel files of {source} into {target}", err=True)
