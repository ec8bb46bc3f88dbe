"""Declares subcommands and their options: an option is the default value of a parameter, and named after it.

Options that several subcommands take are declared once, here. Their values complete in a shell; the scripts that ask
for completions are click's; see docs/reference/command-line.md.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from click.shell_completion import CompletionItem

    from alignup.kubernetes.versions import KubeletVersion

Complete: TypeAlias = "Callable[[click.Context, click.Parameter, str], list[CompletionItem]]"

# Those of `alignup.cluster`, which is not imported for a help text.
STRATEGIES: Final = ("least-numa-nodes", "least-allocated", "most-allocated", "balanced-allocation", "document")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOG_FORMATS: Final = ("text", "json")
POLICIES: Final = ("none", "best-effort", "restricted", "single-numa-node")


# ---- how a subcommand is declared


class Declared(NamedTuple):
    """An option or argument of a subcommand."""

    kind: type[click.Parameter]
    names: tuple[str, ...]
    how: Mapping[str, Any]

    def words(self, parameter: str) -> tuple[str, ...]:
        """Return the names of an option on the command line; its parameter is this one."""
        return self.names or (f"--{parameter.replace('_', '-')}",)

    def made(self, parameter: str) -> click.Parameter:
        """Return the option or argument of a parameter."""
        return self.kind([*(() if self.kind is click.Argument else self.words(parameter)), parameter], **self.how)


def value(text: str, *names: str, **how: Any) -> Any:
    """Declare an option; it is `--parameter` unless it has other names. A default that says something is shown.

    Args:
        text: of the help.
        names: of the option, such as `--json`.
        how: what `click.Option` takes.
    """
    return Declared(click.Option, names, {"help": text, "show_default": bool(how.get("default")), **how})


def flag(text: str, *names: str) -> Any:
    """Declare an option without a value."""
    return value(text, *names, is_flag=True)


def file(text: str, *names: str, metavar: str = "FILE", **how: Any) -> Any:
    """Declare an option whose value is a path."""
    return value(text, *names, metavar=metavar, shell_complete=complete_files, **how)


class PathType(click.Path):
    """A path, as a `Path`."""

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path.

        Raises:
            BadParameter: it is not of the kind that is asked for.
        """
        from pathlib import Path  # startup counts

        return Path(os.fsdecode(super().convert(value, param, ctx)))


def path(text: str, **how: Any) -> Any:
    """Declare an option whose value is a `Path`."""
    return value(text, type=PathType(), **how)


def seconds(text: str, *, least: float = 0, **how: Any) -> Any:
    """Declare an option of a time."""
    return value(text, type=click.FloatRange(min=least), metavar="SECONDS", **how)


def word(text: str, values: Iterable[str], *names: str, **how: Any) -> Any:
    """Declare an option of one of some words; its reader says which are right."""
    words = tuple(values)
    return value(text, *names, metavar=f"[{'|'.join(words)}]", shell_complete=one_of(*words), **how)


def argument(metavar: str, **how: Any) -> Any:
    """Declare an argument."""
    return Declared(click.Argument, (), {"metavar": metavar, **how})


def files(metavar: str, **how: Any) -> Any:
    """Declare any number of files."""
    return argument(metavar, nargs=-1, shell_complete=complete_files, **how)


class Gathered:
    """Options that belong together: the attributes of a subclass. A parameter that has it as default gets a record."""

    def __init__(self, **values: Any) -> None:
        for name, declared in self.declared().items():
            setattr(
                self, name, values.get(name, declared.how.get("default", () if "multiple" in declared.how else None))
            )

    @classmethod
    def declared(cls) -> dict[str, Declared]:
        """Return the options by attribute."""
        own = [vars(base).items() for base in reversed(cls.__mro__)]
        return {name: value for items in own for name, value in items if isinstance(value, Declared)}


def all_of(record: type[Gathered]) -> Any:
    """Declare all options of a record."""
    return record


def subcommand(
    name: str, exits: str = "0 done", *, whole: bool = False, cls: type[click.Command] = click.Command, **how: Any
) -> Callable[[Callable[..., int | None]], click.Command]:
    """Return a decorator that makes a subcommand of a function: keyword parameters are options, its result the status.

    Args:
        name: the last word of the subcommand.
        exits: what the exit status means, without that of bad usage and bad input.
        whole: `exits` tells that too.
        cls: its class.
        how: what `click.Command` takes.
    """
    epilog = f"Exit status: {exits}{'.' if whole else '; 2 bad usage or bad input.'}"

    def decorate(function: Callable[..., int | None]) -> click.Command:
        given = function.__kwdefaults__ or {}
        records: dict[str, type[Gathered]] = {key: value for key, value in given.items() if isinstance(value, type)}
        parameters: dict[str, Declared] = {}
        for key, value in given.items():
            parameters.update(records[key].declared() if key in records else {key: value})

        def call(**values: Any) -> None:
            for key, record in records.items():
                values[key] = record(**{field: values.pop(field) for field in record.declared()})
            if status := function(**values):
                click.get_current_context().exit(status)

        made = [one.made(key) for key, one in parameters.items()]
        return cls(name, callback=call, params=made, help=function.__doc__, epilog=epilog, **how)

    return decorate


# ---- values, and their completion


def completed(values: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Return those of some values that begin so; of a list with commas, the last one counts."""
    from click.shell_completion import CompletionItem  # only a shell asks

    before, comma, last = incomplete.rpartition(",")
    return [CompletionItem(f"{before}{comma}{value}") for value in values if value.startswith(last)]


def complete_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's
    """Return that the shell shall complete a file."""
    from click.shell_completion import CompletionItem  # only a shell asks

    return [CompletionItem(incomplete, type="file")]


def complete_machines(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the machines of the catalog that begin so; where none does, that the shell shall complete a file."""
    from alignup.machine.load import catalog_entries

    return completed(catalog_entries(), incomplete) or complete_files(ctx, param, incomplete)


def one_of(*values: str) -> Complete:
    """Return a function that completes one of some words; which of them are right is said by their reader."""
    return lambda _ctx, _param, incomplete: completed(values, incomplete)


def complete_versions(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the kubelet releases that begin so."""
    from alignup.kubernetes.versions import KNOWN_VERSIONS

    return completed(map(str, KNOWN_VERSIONS), incomplete)


def complete_leases(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of leases that begin so."""
    from alignup.errors import AlignupError
    from alignup.host.leases.source import open_source

    try:
        leases = open_source(ctx.params.get("state"), lambda _: None).overview().leases
    except AlignupError:
        return []
    return completed([known.lease.name for known in leases], incomplete)


# ---- a machine and its devices


def a_machine(text: str, metavar: str = "NAME|FILE|ROOT", **how: Any) -> Any:
    """Declare an option of a machine."""
    return value(text, "--machine", "-m", metavar=metavar, shell_complete=complete_machines, **how)


machine: Final = a_machine(
    "A catalog name; a file of JSON, hwloc's XML or what lscpu and numactl print; an archive, or a sysfs tree.",
    default="/",
    show_default="this machine",
)
devices: Final = value(
    "Devices: as in nvidia.com/gpu=1; or by a claim of --resources: as in resourceclaim/NAME=1.",
    *("--device", "-d"),
    multiple=True,
    metavar="RESOURCE=N",
)
selectors: Final = value(
    "PCI devices that are a resource, by VENDOR:DEVICE, class=CLASS or both: as in nvidia.com/gpu=10de:*, "
    "example.com/nic=15b3:*,class=0200. For nvidia.com/gpu, class=03 (display controllers) if not given.",
    "--device-resource",
    multiple=True,
    metavar="RESOURCE=SELECTOR",
)
inventory: Final = file(
    "Device inventory, in place of the machine's: YAML or JSON, as in "
    '{"nvidia.com/gpu": [{"id": "gpu0", "numa": 0}, {"id": "gpu1", "numa": [1]}]}.',
    "--devices",
)
near_cpus: Final = flag("Devices on NUMA nodes without CPUs count as near the closest ones with CPUs (GB200).")


# ---- a kubelet: its release, its configuration, the node that it runs


def _one_version(ctx: click.Context, option: click.Parameter, text: str | None) -> KubeletVersion | None:
    """Return the release that an option names."""
    versions = _versions(ctx, option, text)
    if len(versions) > 1:
        raise click.BadParameter("give one version here")
    return versions[0] if versions else None


def _versions(_ctx: click.Context, _option: click.Parameter, text: str | None) -> tuple[KubeletVersion, ...]:
    """Return the releases that an option names."""
    if text is None:
        return ()
    from alignup.kubernetes.versions import parse_versions

    return parse_versions(text, "--kubelet-version")


def _version(more: str, metavar: str, callback: Callable[..., Any]) -> Any:
    """Declare an option of releases, of which there is more to be said."""
    text = f"Decide as this kubelet does, as in 1.33; {more} [default: the newest known]"
    return value(text, "--kubelet-version", metavar=metavar, callback=callback, shell_complete=complete_versions)


kubelet_version: Final = _version("overrides a `kubeletVersion` of the input.", "VERSION", _one_version)
kubelet_versions: Final = _version(
    "of several (1.36,1.37), compare what they decide.", "VERSION[,VERSION...]", _versions
)
config: Final = file("A KubeletConfiguration, or what has one in it, such as /configz or flags.", "--config", "-c")
kubelet_node: Final = file(
    "The node that a kubelet runs, with the pods it has: / for this machine, the root of a copy, or an archive, as of "
    "`alignup node collect`, must-gather or sosreport.",
    "--node",
    metavar="ROOT|ARCHIVE",
)
node: Final = file(
    "The root of a machine or of a copy, or an archive, as of `alignup node collect`.",
    "--node",
    metavar="ROOT|ARCHIVE",
    default="/",
    show_default="this machine",
)
kubelet_dir: Final = file("The kubelet's folder.  [default: var/lib/kubelet beneath the root]", metavar="DIR")


# ---- pods, clusters and services


nodes_or_cluster: Final = file(
    "Nodes as JSON lines, or NodeResourceTopology objects in YAML or JSON; Node objects beside them tell the "
    "kubelets' releases. In place of --kubeconfig.",
    *("--nodes", "-n"),
)
strategy: Final = word(
    "How placements are scored, higher for better: few NUMA nodes, much or little left on them, the parts of "
    "CPU, memory and devices in balance, or as Koordinator's design document does.",
    STRATEGIES,
    *("--strategy", "-s"),
    default="least-numa-nodes",
)
_PROFILE: Final = "Filter and score as Koordinator's scheduler: `document` (its design) or `scheduler` (as released)."
koordinator_profile: Final = word(_PROFILE, ("document", "scheduler"))
asked_kubeconfig: Final = file(
    "Ask the cluster of this file.  [default: as kubectl, $KUBECONFIG or ~/.kube/config; in a pod its service account]"
)
resources: Final = file(
    "ResourceSlices, DeviceClasses, ResourceClaims and their templates, in YAML or JSON as kubectl prints them; "
    "repeatable. Claims in it that have an allocation hold their devices.",
    *("--resources", "-r"),
    multiple=True,
)
require_dra_alignment: Final = flag(
    "Refuse nodes where the devices of claims would not be near the pod's CPUs and memory; else they come last."
)
kubeconfig: Final = file("How to reach the API server.  [default: the service account of this pod]")
state: Final = value(
    "The file of leases; by default alignup/leases.json in $XDG_STATE_HOME or ~/.local/state.",
    type=PathType(dir_okay=False, readable=False),
    envvar="ALIGNUP_STATE",
)


# ---- the output

reading: Final = value(
    "Decide as kubelets do, or as the design documents are written where kubelets have gone on since (see "
    "docs/documents.md).",
    type=click.Choice(("kubelet", "documents")),
    default="kubelet",
)
product: Final = flag("Show the cross product of the hints, row by row, up to 200 rows.")


class Logs(Gathered):
    """What a program that runs on logs to standard error, and how."""

    log_level: str = word(
        "The least that is logged; debug has a line for each pod.",
        LOG_LEVELS,
        default="info",
        type=click.Choice(LOG_LEVELS),
    )
    log_format: str = word(
        "Log lines of text, or JSON objects.", LOG_FORMATS, default="text", type=click.Choice(LOG_FORMATS)
    )


def json(each: str = "") -> Any:
    """Declare the option of output for programs; `each` is the thing that has an object, where there are several."""
    return flag(f"Print one JSON object{f' {each}' if each else ''}, and nothing else.", "--json")


svg: Final = file("Draw it into an SVG file (`-`: standard output).", "--svg")
html: Final = file("Write a page of one self-contained HTML file (`-`: standard output).", "--html")
