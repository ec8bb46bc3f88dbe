"""Declares subcommands and their options.

An option is the default value of a parameter, and named after it. Options that several subcommands
take are declared once, here. Their values complete in a shell; the scripts that ask for completions
are click's; see docs/reference/command-line.md.
"""

from __future__ import annotations

import os
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from click.shell_completion import CompletionItem

    from alignup.kubernetes.versions import KubeletVersion

Complete: TypeAlias = "Callable[[click.Context, click.Parameter, str], list[CompletionItem]]"

# Those of `alignup.cluster`, which is not imported for a help text.
STRATEGIES: Final = (
    "least-numa-nodes",
    "least-allocated",
    "most-allocated",
    "balanced-allocation",
    "document",
)
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
POLICIES: Final = ("none", "best-effort", "restricted", "single-numa-node")

# The sections of a help text in order, and the options in each; all others are in "Options".
SECTIONS: Final = {
    "Request": "--cpus --cpus-per-part --device --memory --near --part --policy --wait",
    "Options": "",
    "Input": (
        "--generate --log --pod --pods --replicas --resize --resources --scenarios --selectors"
    ),
    "Node": (
        "--config --device-resource --devices --kubelet-dir --kubelet-version --machine "
        "--near-cpus --node --node-name --node-object --nvidia --reserved-cpus --root"
    ),
    "Cluster": "--context --kubeconfig --namespace --nodes",
    "Rules": (
        "--as-kubelet --attempts --beyond-kubelet --blind --dra-hints --exact --feature-gate "
        "--full-cores --idle-siblings --ignore-unknown --isolated --koordinator-profile --layout "
        "--lenient --managers-only --memory-from --memory-kind --pair --reading --rebalance "
        "--release --require-dra-alignment --reserve --same-l3 --same-socket --seed --spread "
        "--strategy --threads"
    ),
    "Output": (
        "--distances --env --format --hints --html --json --json-fd --log-format --log-level "
        "--product --report --snapshot --summary --svg --tables --top --watch"
    ),
    "Help": "--help --help-all",
}
# What `--help` leaves out, of all commands or of one.
RARE: Final = frozenset(
    """
    --all-devices --as-kubelet --beyond-kubelet --cgroup --device-plugins --device-resource
    --dra-hints --idle-siblings --ignore-unknown --insecure-bind --isolated --koordinator-profile
    --layout --lease --lenient --managers-only --memory-from --memory-kind --near-cpus --no-bind
    --no-cgroups --no-device-plugins --no-events --no-fsync --no-mounts --pair --podresources
    --product --reading --require-dra-alignment --reserve --reserved-cpus --resize
    --same-l3 --same-socket --scenarios --seed --selectors --spread --threads
    admit:--kubeconfig admit:--node-name admit:--resources agent:--devices
    agent:--kubelet-version agent:--resources agent:--state explain:--kubeconfig
    explain:--node-name explain:--nodes explain:--replicas explain:--resources extender:--pod
    gates:--final gates:--listen gates:--patience gates:--placeholders gates:--scheduler-name
    gates:--uninstall rank:--exact rank:--resources run:--devices
    run:--full-cores run:--kubelet-version run:--name run:--resources
    run:--state simulate:--attempts simulate:--resources split:--devices split:--resources
    """.split()  # noqa: SIM905  # as in `SECTIONS`
)
HELP_NAMES: Final = ("-h", "--help")
# In the context of a command that shows its whole help.
_WHOLE: Final = "alignup.help"

# Seconds: 31 years; clocks of the system cannot wait as long as numbers can say.
_LONGEST: Final = 1e9

# ---- how a subcommand is declared, and its help

_PROFILE: Final = (
    "Filter and score as Koordinator's scheduler: `document` (its design) or `scheduler` (as "
    "released)."
)

_READING: Final = (
    "Decide like released kubelets, or like the design documents where the two differ "
    "(docs/documents.md)."
)


class Seconds(click.FloatRange):
    """A range without what is no number, or too long for clocks."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number that a word says."""
        duration: float = super().convert(value, param, ctx)
        if not duration < _LONGEST:
            self.fail(f"{value!r} is no time to wait.", param, ctx)

        return duration


class HelpWithSections(click.Command):
    """A command whose help has a summary and examples first, and options by section.

    Its help text has paragraphs: a summary, examples, and the description. `--help` leaves out all
    but the first paragraph of the description, and rare options; `--help-all` shows all of it.
    """

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options and arguments, and those that show help."""
        text = "Show the whole description and all options"
        rare_options = [option for option in self.params if not self.is_common(option)]
        if rare_options and _WHOLE not in ctx.meta:
            text += f" ({len(rare_options)} more)"

        help_all = click.Option(
            ["--help-all"],
            help=f"{text}.",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_all,
        )
        return [*super().get_params(ctx), help_all]

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the summary, the examples and the description."""
        summary, examples, *description = help_paragraphs(self)
        if _WHOLE not in ctx.meta:
            description = description[:1]

        with formatter.indentation():
            for paragraph in (summary, f"\b\n{examples}", *description):
                formatter.write_paragraph()
                formatter.write_text(paragraph)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by section."""
        records: dict[str, list[tuple[str, str]]] = {section: [] for section in SECTIONS}
        for option in self.get_params(ctx):
            is_shown = _WHOLE in ctx.meta or self.is_common(option)
            if not is_shown or not isinstance(option, click.Option):
                continue

            record = option.get_help_record(ctx)
            if record:
                records[section_of(option)].append(record)

        for section, section_records in records.items():
            if section_records:
                with formatter.section(section):
                    formatter.write_dl(section_records)

    def is_common(self, option: click.Parameter) -> bool:
        """Return whether `--help` shows an option."""
        names_of_command = (f"{self.name}:{name}" for name in option.opts)
        return RARE.isdisjoint((*option.opts, *names_of_command))


def help_paragraphs(command: click.Command) -> list[str]:
    """Return the paragraphs of a command's help.

    They are its summary, its examples, indented, and its description.
    """
    summary, examples, *description = cleandoc(command.help or "").split("\n\n")
    return [summary, "    " + cleandoc(examples).replace("\n", "\n    "), *description]


def section_of(option: click.Option) -> str:
    """Return the section of the help where an option is."""
    for section, names in SECTIONS.items():
        if not set(names.split()).isdisjoint(option.opts):
            return section

    return "Options"


def _show_all(ctx: click.Context, _option: click.Parameter, is_asked: bool) -> None:
    """Show the whole help and end."""
    if is_asked and not ctx.resilient_parsing:
        ctx.meta[_WHOLE] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


class Declared(NamedTuple):
    """An option or argument of a subcommand."""

    kind: type[click.Parameter]
    names: tuple[str, ...]
    settings: Mapping[str, Any]

    def option_names(self, parameter: str) -> tuple[str, ...]:
        """Return the names of an option on the command line; its parameter is this one."""
        return self.names or (f"--{parameter.replace('_', '-')}",)

    def for_click(self, parameter: str) -> click.Parameter:
        """Return the option or argument of a parameter."""
        if self.kind is click.Argument:
            return self.kind([parameter], **self.settings)
        return self.kind([*self.option_names(parameter), parameter], **self.settings)


def value(text: str, *names: str, **settings: Any) -> Any:
    """Declare an option; it is `--parameter` unless it has other names.

    A default that says something is shown.

    Args:
        text: of the help.
        names: of the option, such as `--json`.
        settings: what `click.Option` takes.
    """
    shows_default = bool(settings.get("default"))
    return Declared(click.Option, names, {"help": text, "show_default": shows_default, **settings})


def number(text: str, minimum: int = 1, maximum: int | None = None, **settings: Any) -> Any:
    """Declare an option of a whole number."""
    return value(text, type=click.IntRange(minimum, maximum), metavar="N", **settings)


def several(text: str, metavar: str, *names: str, **settings: Any) -> Any:
    """Declare an option that can be given again and again, as its help says then."""
    return value(f"{text} Repeatable.", *names, multiple=True, metavar=metavar, **settings)


def choice(text: str, values: Iterable[str], *names: str, **settings: Any) -> Any:
    """Declare an option of one of some words, and of no other."""
    return value(text, *names, type=click.Choice(tuple(values)), **settings)


def flag(text: str, *names: str) -> Any:
    """Declare an option without a value."""
    return value(text, *names, is_flag=True)


def file(text: str, *names: str, metavar: str = "FILE", **settings: Any) -> Any:
    """Declare an option whose value is a path."""
    return value(text, *names, metavar=metavar, shell_complete=complete_files, **settings)


class PathType(click.Path):
    """A path, as a `Path`."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Path:
        """Return the path.

        Raises:
            BadParameter: it is not of the kind that is asked for.
        """
        from pathlib import Path  # startup counts

        return Path(os.fsdecode(super().convert(value, param, ctx)))


def path(text: str, **settings: Any) -> Any:
    """Declare an option whose value is a `Path`."""
    return value(text, type=PathType(), **settings)


def seconds(text: str, *, minimum: float = 0, **settings: Any) -> Any:
    """Declare an option of a time."""
    return value(text, type=Seconds(minimum), metavar="SECONDS", **settings)


def word(text: str, values: Iterable[str], *names: str, **settings: Any) -> Any:
    """Declare an option of one of some words; its reader says which are right."""
    choices = tuple(values)
    metavar = f"[{'|'.join(choices)}]"
    return value(text, *names, metavar=metavar, shell_complete=one_of(*choices), **settings)


def argument(metavar: str, **settings: Any) -> Any:
    """Declare an argument."""
    return Declared(click.Argument, (), {"metavar": metavar, **settings})


def files(metavar: str, **settings: Any) -> Any:
    """Declare any number of files."""
    return argument(metavar, nargs=-1, shell_complete=complete_files, **settings)


class Gathered:
    """Options that belong together: the attributes of a subclass.

    A parameter that has the subclass as default gets a record.
    """

    def __init__(self, **values: Any) -> None:
        for name, declared in self.declared().items():
            default = () if "multiple" in declared.settings else None
            default = declared.settings.get("default", default)
            setattr(self, name, values.get(name, default))

    @classmethod
    def declared(cls) -> dict[str, Declared]:
        """Return the options by attribute."""
        attributes: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            attributes.update(vars(base))

        return {name: value for name, value in attributes.items() if isinstance(value, Declared)}


def all_of(record: type[Gathered]) -> Any:
    """Declare all options of a record."""
    return record


def subcommand(
    command_name: str,
    exits: str = "0 done",
    *,
    whole: bool = False,
    cls: type[click.Command] = HelpWithSections,
    **settings: Any,
) -> Callable[[Callable[..., int | None]], click.Command]:
    """Return a decorator that makes a subcommand of a function.

    Keyword parameters of the function are options, and its result is the exit status.

    Args:
        command_name: the last word of the subcommand.
        exits: what the exit status means, without that of bad usage and bad input.
        whole: `exits` tells that too.
        cls: its class.
        settings: what `click.Command` takes.
    """
    if not whole:
        exits += "; 2 bad usage or bad input"

    def decorate(function: Callable[..., int | None]) -> click.Command:
        records: dict[str, type[Gathered]] = {}
        parameters: dict[str, Declared] = {}
        for name, default in (function.__kwdefaults__ or {}).items():
            if isinstance(default, type) and issubclass(default, Gathered):
                records[name] = default
                parameters.update(default.declared())
            else:
                parameters[name] = default

        def call(**values: Any) -> None:
            for name, record in records.items():
                values[name] = record(**{field: values.pop(field) for field in record.declared()})

            status = function(**values)
            if status:
                click.get_current_context().exit(status)

        # one that is called by itself has no group to say so
        context_settings = {"help_option_names": HELP_NAMES, **settings.pop("context_settings", {})}
        return cls(
            command_name,
            callback=call,
            params=[declared.for_click(name) for name, declared in parameters.items()],
            help=function.__doc__,
            epilog=f"Exit status: {exits}.",
            context_settings=context_settings,
            **settings,
        )

    return decorate


# ---- values, and their completion


def completed(values: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Return those of some values that begin so; of a list with commas, the last one counts."""
    from click.shell_completion import CompletionItem  # only a shell asks

    before, comma, last = incomplete.rpartition(",")
    return [CompletionItem(f"{before}{comma}{value}") for value in values if value.startswith(last)]


def complete_files(
    ctx: click.Context,  # noqa: ARG001 - click's
    param: click.Parameter,  # noqa: ARG001 - click's
    incomplete: str,
) -> list[CompletionItem]:
    """Return that the shell shall complete a file."""
    from click.shell_completion import CompletionItem  # only a shell asks

    return [CompletionItem(incomplete, type="file")]


def complete_machines(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the machines of the catalog that begin so.

    Where none does, the shell shall complete a file.
    """
    from alignup.machine.load import catalog_entries

    return completed(catalog_entries(), incomplete) or complete_files(ctx, param, incomplete)


def one_of(*values: str) -> Complete:
    """Return a function that completes one of some words.

    Which of them are right is said by their reader.
    """
    return lambda _ctx, _param, incomplete: completed(values, incomplete)


def complete_versions(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the kubelet releases that begin so."""
    from alignup.kubernetes.versions import KNOWN_VERSIONS

    return completed(map(str, KNOWN_VERSIONS), incomplete)


def complete_leases(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the names of leases that begin so."""
    from alignup.errors import AlignupError
    from alignup.host.leases.source import open_source

    try:
        leases = open_source(ctx.params.get("state"), lambda _: None).overview().leases
    except AlignupError:
        return []

    return completed([listed.lease.name for listed in leases], incomplete)


# ---- a machine and its devices


def a_machine(text: str, metavar: str = "NAME|FILE|ROOT", **settings: Any) -> Any:
    """Declare an option of a machine."""
    names = ("--machine", "-m")
    return value(text, *names, metavar=metavar, shell_complete=complete_machines, **settings)


machine: Final = a_machine(
    "A catalog name, a file (JSON, hwloc's XML, output of lscpu and numactl), an archive or a "
    "sysfs tree.",
    default="/",
    show_default="this machine",
)
devices: Final = several(
    "Devices, such as nvidia.com/gpu=1, or those of a claim in --resources: resourceclaim/NAME=1.",
    *("RESOURCE=N", "--device", "-d"),
)
selectors: Final = several(
    "Treat PCI devices as a resource. SELECTOR is VENDOR:DEVICE, class=CLASS or both: "
    "nvidia.com/gpu=10de:*, example.com/nic=15b3:*,class=0200. The default class of "
    "nvidia.com/gpu is 03 (display controllers).",
    *("RESOURCE=SELECTOR", "--device-resource"),
)
inventory: Final = file(
    'Devices in place of the machine\'s, as YAML or JSON: {"nvidia.com/gpu": [{"id": "gpu0", '
    '"numa": 0}]}.',
    "--devices",
)
all_devices: Final = flag(
    "Choose among all devices of the machine, whatever CUDA_VISIBLE_DEVICES, other such variables "
    "and device files leave to this process."
)
near_cpus: Final = flag(
    "Count devices on NUMA nodes without CPUs as near the closest nodes with CPUs (GB200)."
)


# ---- a kubelet: its release, its configuration, the node that it runs


def _one_version(
    ctx: click.Context, option: click.Parameter, text: str | None
) -> KubeletVersion | None:
    """Return the release that an option names."""
    versions = _versions(ctx, option, text)
    if len(versions) > 1:
        raise click.BadParameter("give one version here")

    return versions[0] if versions else None


def _versions(
    _ctx: click.Context, _option: click.Parameter, text: str | None
) -> tuple[KubeletVersion, ...]:
    """Return the releases that an option names."""
    if text is None:
        return ()

    from alignup.kubernetes.versions import parse_versions

    return parse_versions(text, "--kubelet-version")


def _version(addition: str, metavar: str, callback: Callable[..., Any]) -> Any:
    """Declare an option of releases, of which there is more to be said."""
    text = (
        f"Decide as this kubelet release, such as 1.33; {addition}  [default: the newest that is "
        "out]"
    )
    return value(
        text,
        "--kubelet-version",
        metavar=metavar,
        callback=callback,
        shell_complete=complete_versions,
    )


kubelet_version: Final = _version(
    "overrides `kubeletVersion` in the input.", "VERSION", _one_version
)
kubelet_versions: Final = _version(
    "with several (1.36,1.37), compare their decisions.", "VERSION[,VERSION...]", _versions
)
config: Final = file(
    "A KubeletConfiguration, or a file with one (/configz, flags, a platform's object).",
    "--config",
    "-c",
)
reserved_cpus: Final = value(
    "Reserve these CPUs (0-1,8) for the system, whatever --config says, as the kubelet's own flag "
    "does; for a platform's configuration, which leaves out what the platform reserves itself.",
    "--reserved-cpus",
    default="",
    metavar="CPUS",
)
kubelet_node: Final = file(
    "A kubelet's node with its pods: / for this machine, the root of a copy, or an archive of "
    "`alignup node collect`, must-gather or sosreport.",
    "--node",
    metavar="ROOT|ARCHIVE",
)
node: Final = file(
    "The root of a machine or of a copy, or an archive of `alignup node collect`.",
    "--node",
    metavar="ROOT|ARCHIVE",
    default="/",
    show_default="this machine",
)
kubelet_dir: Final = file(
    "The kubelet's folder.  [default: var/lib/kubelet beneath the root]", metavar="DIR"
)


# ---- pods, clusters and services


nodes_or_cluster: Final = file(
    "Read nodes from a file, not from a cluster: JSON lines, or NodeResourceTopology objects in "
    "YAML or JSON. Node objects among them tell the kubelets' releases.",
    *("--nodes", "-n"),
)
strategy: Final = word(
    "What makes a node better: fewer NUMA nodes used, more or less left free, CPU, memory and "
    "devices in balance, or the rule of Koordinator's design document.",
    STRATEGIES,
    *("--strategy", "-s"),
    default="least-numa-nodes",
)
koordinator_profile: Final = word(_PROFILE, ("document", "scheduler"))
asked_kubeconfig: Final = file(
    "Ask this cluster.  [default: like kubectl, $KUBECONFIG or ~/.kube/config; in a pod, its "
    "service account]"
)
resources: Final = file(
    "ResourceSlices, DeviceClasses, ResourceClaims and ResourceClaimTemplates, as kubectl prints "
    "them. Allocated claims hold their devices. Repeatable.",
    *("--resources", "-r"),
    multiple=True,
)
require_dra_alignment: Final = flag(
    "Refuse nodes where devices of claims would be far from the pod's CPUs and memory. By default "
    "they come last."
)
kubeconfig: Final = file("How to reach the API server.  [default: the service account of this pod]")
state: Final = value(
    "The file of leases.  [default: alignup/leases.json in $XDG_STATE_HOME or ~/.local/state]",
    type=PathType(dir_okay=False, readable=False),
    envvar="ALIGNUP_STATE",
)


# ---- the output

reading: Final = choice(_READING, ("kubelet", "documents"), default="kubelet")
product: Final = flag("Show how hints were merged: the cross product, up to 200 rows.")


class Logs(Gathered):
    """What a program that runs on logs to standard error, and how."""

    log_level: str = choice(
        "Log messages of this level and above; debug logs each pod.", LOG_LEVELS, default="info"
    )
    log_format: str = choice("Log lines of text or of JSON.", ("text", "json"), default="text")


def json(each: str = "") -> Any:
    """Declare the option of output for programs.

    `each` says per what there is an object, where there are several.
    """
    objects = f"a JSON object per {each}, one a line" if each else "one JSON object"
    return flag(f"Print {objects}, and nothing else.", "--json")


svg: Final = file("Draw an SVG picture (`-`: standard output).", "--svg")
html: Final = file("Write an HTML page (`-`: standard output).", "--html")
