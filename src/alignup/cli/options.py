"""Declares the options that several subcommands take, each once, and completes their values in a shell.

The scripts that ask for completions are click's; see the README.
"""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.shell_completion import CompletionItem

    from alignup.kubelet.read import KubeletNode
    from alignup.kubernetes.versions import KubeletVersion
    from alignup.machine.machine import Machine

FC = TypeVar("FC", bound="Callable[..., Any] | click.Command")
"""What an option is put on."""

STRATEGIES: Final = ("least-numa-nodes", "least-allocated", "most-allocated", "balanced-allocation", "document")
"""Those of `alignup.cluster`, which is not imported for a help text."""


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's
    """Return that the shell shall complete a file."""
    from click.shell_completion import CompletionItem  # only a shell asks

    return [CompletionItem(incomplete, type="file")]


def machines(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the machines of the catalog that begin so; where none does, that the shell shall complete a file."""
    from click.shell_completion import CompletionItem

    from alignup.machine.catalog import catalog_entries

    names = [CompletionItem(name) for name in catalog_entries() if name.startswith(incomplete)]
    return names or files(ctx, param, incomplete)


def one_of(*values: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return a function that completes one of some words; which of them are right is said by their reader."""

    def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(value) for value in values if value.startswith(incomplete)]

    return complete


def known_versions(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the kubelet releases that begin so."""
    from click.shell_completion import CompletionItem

    from alignup.kubernetes.versions import KNOWN_VERSIONS

    return [CompletionItem(str(one)) for one in KNOWN_VERSIONS if str(one).startswith(incomplete)]


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


# ---- a machine and its devices

machine_option = click.option(
    "--machine",
    "-m",
    metavar="NAME|FILE|ROOT",
    default="/",
    show_default="this machine",
    shell_complete=machines,
    help="A catalog name, a JSON, snapshot or hwloc XML file, or the root of a sysfs tree.",
)
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
near_cpus_option = click.option(
    "--near-cpus",
    is_flag=True,
    help="Devices on NUMA nodes without CPUs count as near the closest ones with CPUs (GB200).",
)


def told_options(machine: str, selectors: tuple[str, ...], inventory: str | None) -> str:
    """Return the options that say something about the machine or its devices, which an agent knows itself."""
    given = (("--machine", machine != "/"), ("--device-resource", selectors), ("--devices", inventory))
    return ", ".join(name for name, value in given if value)


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


kubelet_version_option = click.option(
    "--kubelet-version",
    "version",
    metavar="VERSION",
    callback=_one_version,
    shell_complete=known_versions,
    help="Decide as this kubelet does, as in 1.33; overrides a `kubeletVersion` of the input. "
    "[default: the newest known]",
)
kubelet_versions_option = click.option(
    "--kubelet-version",
    "versions",
    metavar="VERSION[,VERSION...]",
    callback=_versions,
    shell_complete=known_versions,
    help="Decide as this kubelet does, as in 1.33; of several (1.36,1.37), compare what they decide. "
    "[default: the newest known]",
)
config_option = click.option(
    "--config", "-c", metavar="FILE", shell_complete=files, help="A KubeletConfiguration, YAML or JSON."
)
kubelet_node_option = click.option(
    "--node",
    "kubelet_node",
    metavar="ROOT|ARCHIVE",
    shell_complete=files,
    help="The node that a kubelet runs, with the pods it has: / for this machine, the root of a copy, or an archive of "
    "`alignup node collect`.",
)
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


class KubeletSource(NamedTuple):
    """What the subcommands of `alignup node` are told about where a kubelet's node is."""

    root: str
    kubelet_dir: str | None
    config: str | None
    machine: str | None
    version: KubeletVersion | None

    def read(self) -> KubeletNode:
        """Return the node.

        Raises:
            InputError: a file is damaged, or there is none of a kubelet.
        """
        from alignup.kubelet.read import read_kubelet_node

        return read_kubelet_node(
            self.root,
            kubelet_dir=self.kubelet_dir,
            config=self.config,
            machine=self.machine_record(),
            kubelet_version=self.version,
        )

    def machine_record(self) -> Machine | None:
        """Return the machine that `--machine` names; None: it is not given.

        Raises:
            InputError: there is no such machine, or it cannot be read.
        """
        if self.machine is None:
            return None
        from alignup.machine.load import load_machine

        return load_machine(self.machine).machine


def _gathered(
    options: tuple[Callable[[Any], Any], ...], record: Any, name: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that puts options on a command, which gets their values in one record, under a name."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def command(**values: Any) -> None:
            values[name] = record(**{field: values.pop(field) for field in record._fields})
            function(**values)

        for option in reversed(options):
            command = option(command)
        return command

    return decorate


kubelet_node_options = _gathered(
    (
        node_option,
        kubelet_dir_option,
        config_option,
        click.option(
            "--machine",
            "-m",
            metavar="NAME|FILE|ROOT",
            shell_complete=machines,
            help="The machine, in place of the one beneath the root.",
        ),
        kubelet_version_option,
    ),
    KubeletSource,
    "source",
)
"""The options by which the subcommands of `alignup node` find a node; they get a `KubeletSource`."""


class NodeSource(NamedTuple):
    """What `alignup admit` and `alignup explain` are told about the node and its pods."""

    machine: str = "/"
    kubelet_node: str | None = None
    config: str | None = None
    inventory: str | None = None
    selectors: tuple[str, ...] = ()
    near_cpus: bool = False
    lenient: bool = False
    replicas: int | None = None
    node_name: str | None = None
    managers_only: bool = False


node_source_options = _gathered(
    (
        machine_option,
        kubelet_node_option,
        config_option,
        devices_option,
        device_resource_option,
        near_cpus_option,
        click.option(
            "--lenient",
            is_flag=True,
            help="Accept options of the configuration whose feature gates are off by default, and say so.",
        ),
        click.option(
            "--managers-only",
            is_flag=True,
            help="Leave out what a kubelet checks beside its managers: sums of all pods, their number, node name, "
            "selector, taints, ports, operating system.",
        ),
        click.option(
            "--replicas",
            type=WholeNumber(1, 10_000),
            help="Take every pod so many times; by default as often as its Deployment, StatefulSet or Job says.",
        ),
        click.option(
            "--node-name",
            metavar="NAME",
            help="Take the pods of this node, and unbound ones; needed where pods are bound to several.",
        ),
    ),
    NodeSource,
    "source",
)
"""The options of a node with its configuration, devices and pods; the command gets a `NodeSource`."""


# ---- pods, clusters and services


nodes_option = click.option(
    "--nodes",
    "-n",
    required=True,
    metavar="FILE",
    shell_complete=files,
    help="Nodes as JSON lines, or NodeResourceTopology objects in YAML or JSON; Node objects beside them tell the "
    "kubelets' releases.",
)
strategy_option = click.option(
    "--strategy",
    "-s",
    default="least-numa-nodes",
    show_default=True,
    metavar=f"[{'|'.join(STRATEGIES)}]",
    shell_complete=one_of(*STRATEGIES),
    help="How placements are scored, higher for better: few NUMA nodes, much or little left on them, the parts of "
    "CPU, memory and devices in balance, or as Koordinator's design document does.",
)
kubeconfig_option = click.option(
    "--kubeconfig",
    metavar="FILE",
    shell_complete=files,
    help="How to reach the API server.  [default: the service account of this pod]",
)
listen_option = click.option(
    "--listen",
    default="127.0.0.1:8080",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to serve HTTP; port 0 is any free one.",
)
state_option = click.option(
    "--state",
    type=click.Path(dir_okay=False, readable=False, path_type=Path),
    envvar="ALIGNUP_STATE",
    help="The file of leases; by default alignup/leases.json in $XDG_STATE_HOME or ~/.local/state.",
)


# ---- the output


def json_option(each: str = "") -> Callable[[FC], FC]:
    """Return the option of output for programs; `each` is the thing that has an object, where there are several."""
    words = f"one JSON object {each}" if each else "one JSON object"
    return click.option("--json", "as_json", is_flag=True, help=f"Print {words}, and nothing else.")


svg_option = click.option(
    "--svg", metavar="FILE", shell_complete=files, help="Draw it into an SVG file (`-`: standard output)."
)
html_option = click.option(
    "--html",
    metavar="FILE",
    shell_complete=files,
    help="Write a page of one self-contained HTML file (`-`: standard output).",
)
