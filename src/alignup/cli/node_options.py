"""Declares the options that the subcommands of `alignup node` share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from alignup.cli.completion import files, machines
from alignup.cli.inputs import config_option
from alignup.cli.options import FC, kubelet_version_option

if TYPE_CHECKING:
    from alignup.kubelet.read import KubeletNode
    from alignup.kubernetes.versions import KubeletVersion
    from alignup.machine.machine import Machine

__all__ = [
    "kubelet_dir_option",
    "kubelet_node_options",
    "machine_of_option",
    "node_machine_option",
    "node_option",
    "read_node",
]

node_option = click.option(
    "--node",
    "root",
    metavar="ROOT|ARCHIVE",
    default="/",
    show_default="this machine",
    shell_complete=files,
    help="The root of a machine or of a copy, or an archive of `alignup node collect`.",
)
kubelet_dir_option = click.option(
    "--kubelet-dir",
    metavar="DIR",
    shell_complete=files,
    help="The kubelet's folder.  [default: var/lib/kubelet beneath the root]",
)
node_machine_option = click.option(
    "--machine",
    "-m",
    metavar="NAME|FILE|ROOT",
    shell_complete=machines,
    help="The machine, in place of the one beneath the root.",
)


def kubelet_node_options(command: FC) -> FC:
    """Put the options on a command by which `read_node` finds a node: root, folder, configuration, machine, release."""
    for option in (
        kubelet_version_option,
        node_machine_option,
        config_option,
        kubelet_dir_option,
        node_option,
    ):
        command = option(command)
    return command


def read_node(
    root: str,
    kubelet_dir: str | None,
    config: str | None,
    machine: str | None,
    version: KubeletVersion | None,
) -> KubeletNode:
    """Return the node that the options name.

    Raises:
        InputError: a file is damaged, or there is none of a kubelet.
    """
    from alignup.kubelet.read import read_kubelet_node

    return read_kubelet_node(
        root,
        kubelet_dir=kubelet_dir,
        config=config,
        machine=machine_of_option(machine),
        kubelet_version=version,
    )


def machine_of_option(source: str | None) -> Machine | None:
    """Return the machine that `--machine` names; None: it is not given.

    Raises:
        InputError: there is no such machine, or it cannot be read.
    """
    if source is None:
        return None
    from alignup.machine.load import load_machine

    return load_machine(source).machine
