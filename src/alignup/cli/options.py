"""Declares the options that several subcommands share, and prints their tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from alignup.cli.completion import files
from alignup.cli.terminal import make_console, make_table, print_whole, safe
from alignup.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from alignup.kubernetes.versions import KubeletVersion

__all__ = [
    "FC",
    "STRATEGIES",
    "WholeNumber",
    "device_option",
    "device_resource_option",
    "devices_option",
    "devices_text",
    "kubelet_version_option",
    "kubelet_versions_option",
    "lenient_option",
    "print_table",
    "replicas_option",
    "state_option",
    "told_options",
]

FC = TypeVar("FC", bound="Callable[..., Any] | click.Command")
"""What an option is put on."""

STRATEGIES: Final = (
    "least-numa-nodes",
    "least-allocated",
    "most-allocated",
    "balanced-allocation",
    "document",
)
"""Those of `alignup.cluster`, which is not imported for a help text."""


class WholeNumber(click.IntRange):
    """A whole number within bounds, with errors that say so."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number.

        Raises:
            BadParameter: it is none, or out of bounds.
        """
        try:
            number: int = super().convert(value, param, ctx)
        except click.BadParameter:
            most = "" if self.max is None else f" and at most {self.max}"
            self.fail(f"expected a whole number of at least {self.min or 0}{most}, got {value!r}", param, ctx)
        return number


device_option = click.option(
    "--device", "-d", "devices", multiple=True, metavar="RESOURCE=N", help="Devices: as in nvidia.com/gpu=1."
)
device_resource_option = click.option(
    "--device-resource",
    "selectors",
    multiple=True,
    metavar="RESOURCE=SELECTOR",
    help="PCI devices that are a resource, by VENDOR:DEVICE, class=CLASS or both: as in nvidia.com/gpu=10de:*, "
    "example.com/nic=15b3:*,class=0200. For nvidia.com/gpu, class=03 (display controllers) if not given.",
)
devices_option = click.option(
    "--devices",
    "inventory",
    metavar="FILE",
    shell_complete=files,
    help="Device inventory, in place of the machine's: YAML or JSON, as in "
    '{"nvidia.com/gpu": [{"id": "gpu0", "numa": 0}, {"id": "gpu1", "numa": [1]}]}.',
)


lenient_option = click.option(
    "--lenient",
    is_flag=True,
    help="Let options of the configuration pass whose feature gates are off by default, and say so.",
)


def replicas_option(verb: str) -> Callable[[FC], FC]:
    """Return the option of how often a pod is taken; `verb` is what is done with it."""
    return click.option(
        "--replicas",
        type=WholeNumber(1, 10_000),
        help=f"{verb} every pod so many times; by default as often as its Deployment, StatefulSet or Job says.",
    )


def _one_version(_ctx: click.Context, _option: click.Parameter, text: str | None) -> KubeletVersion | None:
    """Return the release that an option names."""
    versions = _versions(_ctx, _option, text)
    if len(versions) > 1:
        raise click.BadParameter("expected one version, got several")
    return versions[0] if versions else None


def _versions(_ctx: click.Context, _option: click.Parameter, text: str | None) -> tuple[KubeletVersion, ...]:
    """Return the releases that an option names."""
    from alignup.kubernetes.versions import parse_versions

    return () if text is None else parse_versions(text, "--kubelet-version")


kubelet_version_option = click.option(
    "--kubelet-version",
    "version",
    metavar="VERSION",
    callback=_one_version,
    help="Decide as this kubelet does, as in 1.33; before a `kubeletVersion` of the input. "
    "[default: the newest known]",
)
kubelet_versions_option = click.option(
    "--kubelet-version",
    "versions",
    metavar="VERSION[,VERSION...]",
    callback=_versions,
    help="Decide as this kubelet does, as in 1.33; of several (1.33,1.36), compare what they decide. "
    "[default: the newest known]",
)
state_option = click.option(
    "--state",
    type=click.Path(dir_okay=False, readable=False, path_type=Path),
    envvar="ALIGNUP_STATE",
    help="The file of leases; by default alignup/leases.json in $XDG_STATE_HOME or ~/.local/state.",
)


def told_options(machine: str, selectors: tuple[str, ...], inventory: str | None) -> str:
    """Return the options that say something about the machine or its devices, which an agent knows itself."""
    given = (("--machine", machine != "/"), ("--device-resource", selectors), ("--devices", inventory))
    return ", ".join(name for name, value in given if value)


def devices_text(devices: Mapping[str, Sequence[str]]) -> str:
    """Return devices in a cell of a table."""
    return (
        one_line(" ".join(f"{resource}={','.join(ids)}" for resource, ids in sorted(devices.items()))) or "-"
    )


def print_table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a table: as wide as the terminal, or as it needs to be where there is none."""
    table = make_table(*headings)
    for row in rows:
        table.add_row(*map(safe, row))
    print_whole(make_console(), table)
