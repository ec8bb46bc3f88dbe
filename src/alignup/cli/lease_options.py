"""What the subcommands for the machine at hand have in common: options, and the words for tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from alignup.cli.inputs import read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "device_option",
    "device_resource_option",
    "devices_option",
    "devices_text",
    "print_table",
    "read_devices",
    "say",
    "size_text",
    "state_option",
]

_WIDEST: Final = 10_000
_UNITS: Final = (("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10))

device_option = click.option(
    "--device", "-d", "devices", multiple=True, metavar="RESOURCE=N", help="Devices: as in nvidia.com/gpu=1."
)
device_resource_option = click.option(
    "--device-resource",
    "selectors",
    multiple=True,
    metavar="RESOURCE=SELECTOR",
    help="PCI devices that are a resource: as in nvidia.com/gpu=10de:* or example.com/nic=class=0200.",
)
devices_option = click.option(
    "--devices", "inventory", metavar="FILE", help="Device inventory: YAML or JSON, resource -> [{id, numa}]."
)
state_option = click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="ALIGNUP_STATE",
    help="The file of leases; by default alignup/leases.json in $XDG_STATE_HOME or ~/.local/state.",
)


def read_devices(name: str | None) -> Any:
    """Return the inventory in a file as plain data; None without a file.

    Raises:
        InputError: it cannot be read, or is no YAML or JSON.
    """
    if name is None:
        return None
    from alignup.documents import read_documents  # startup counts

    documents = [document for document in read_documents(read_bytes(name), name) if document is not None]
    return documents[0] if len(documents) == 1 else documents


def say(sentence: str) -> None:
    """Tell people something, on standard error."""
    click.echo(f"alignup: {sentence}", err=True)


def devices_text(devices: Mapping[str, Sequence[str]]) -> str:
    """Return devices in a cell of a table."""
    return " ".join(f"{resource}={','.join(ids)}" for resource, ids in sorted(devices.items())) or "-"


def print_table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a table: as wide as the terminal, or as it needs to be where there is none."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    width = None if sys.stdout.isatty() else _WIDEST
    Console(highlight=False, soft_wrap=True, width=width).print(table)


def size_text(size: int) -> str:
    """Return bytes in the largest unit of which there is at least one, to one decimal."""
    for unit, shift in _UNITS:
        if size >= 1 << shift:
            return f"{size / (1 << shift):.1f}".removesuffix(".0") + unit
    return str(size)
