"""The program: its subcommands, listed without being imported; each is imported when it is called.

Exit status: 0 done and admitted; 1 refused; 2 bad usage or bad input (125 for failures of `run`
itself); 130 interrupted; 141 nobody read the output. Warnings of the library go to standard error.
"""

from __future__ import annotations

import gc
import io
import os
import sys
import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar, TypeAlias

import click

from alignup.cli.failures import CLOSED_PIPE, complain, forget_output, status_of
from alignup.cli.options import HELP_NAMES, HelpWithSections
from alignup.errors import AlignupWarning
from alignup.version import VERSION

# A file of many bad lines has no more warnings than a person reads.
MOST_SAID = 50

# Name and first line of help of each subcommand; its module has the same name.
SUBCOMMANDS = {
    "admit": "Admit pods on a machine, or say why not.",
    "explain": "Say why pods are admitted or refused on a machine, and what would help.",
    "why": "Say why a pod of a cluster is refused, and what would help.",
    "claims": "Say which devices the scheduler allocates to claims, or why none.",
    "machine": "Show a machine: NUMA nodes, CPUs, memory, devices, distances.",
    "node": "Read, check, show and export the node that a kubelet runs.",
    "replay": "Replay scenarios of pods that come and go.",
    "rank": "Rank the nodes of a cluster for a pod.",
    "rebalance": "Plan the fewest evictions that make room for waiting pods.",
    "simulate": "Play a trace of pods on a cluster with a NUMA-aware or blind scheduler.",
    "run": "Run a command on CPUs, memory and devices of its own.",
    "ps": "List who holds what on this machine.",
    "release": "Free leases by name.",
    "extender": "Serve kube-scheduler as a NUMA-aware extender.",
    "gates": "Keep gated pods until a node has an aligned place for them.",
    "reconcile": "Delete pods that nodes rejected, so that controllers replace them.",
    "fleet": "Simulate kubelets on a real API server.",
    "split": "Cut a machine into equal, aligned parts.",
    "agent": "Place work on this machine for all its users.",
}
# The same of `alignup node`, whose functions they are in the module `node`.
NODE_SUBCOMMANDS = {
    "collect": "Pack a kubelet's node into an archive.",
    "show": "Show who holds what, as tables, JSON or pictures.",
    "export": "Print a NodeResourceTopology object, or metrics for Prometheus.",
    "verify": "Verify that running processes are placed as the node's state says.",
    "publish": "Keep the NodeResourceTopology object of this node up to date.",
    "check": "Check a kubelet's state files against each other, the machine and the pods.",
    "restart": "Say what a restart or upgrade of the kubelet does to running pods.",
}
# The modules of subcommands that are functions of their names there.
_IN_CLUSTER = dict.fromkeys(("extender", "fleet", "reconcile", "rebalance"), "cluster")
HOMES = {"ps": "ps", "release": "ps", "simulate": "rank", "why": "explain", **_IN_CLUSTER}
# The name of a subcommand, the subcommand, and the words after it.
_Resolved: TypeAlias = tuple[str | None, click.Command | None, list[str]]


class LazyGroup(HelpWithSections, click.Group):
    """A group that knows its subcommands' names and imports them when they are called.

    Attributes:
        subcommands: name and first line of help of each, in the order in which they are listed.
    """

    subcommands: ClassVar[Mapping[str, str]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in the order in which they are listed."""
        return list(self.subcommands)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        """Import and return a subcommand."""
        if cmd_name not in self.subcommands:
            return None
        return node if cmd_name == "node" else self.imported(cmd_name)

    def imported(self, name: str) -> click.Command:
        """Import and return a subcommand.

        It is `command` of the module of its name, or the function of its name in one of `HOMES`.
        """
        module_name, function_name = name, "command"
        if name in HOMES:
            module_name, function_name = HOMES[name], name

        command: click.Command = getattr(import_module(f"alignup.cli.{module_name}"), function_name)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> _Resolved:
        """Find a subcommand by the first word; a misspelt one is answered with the closest name."""
        if args[0] not in self.subcommands:
            from difflib import get_close_matches

            for name in get_close_matches(args[0], self.subcommands, 1):
                ctx.fail(f"No such command '{args[0]}'. Did you mean '{name}'?")

        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, and the subcommands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """List the subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.subcommands.items()))


class ProgramGroup(LazyGroup):
    """The group of all subcommands.

    `help` shows the help of what comes after it, or of the program.
    """

    subcommands = SUBCOMMANDS

    def resolve_command(self, ctx: click.Context, args: list[str]) -> _Resolved:
        """Find a subcommand; see the class and `LazyGroup`."""
        if args[0] == "help":
            args = [*args[1:], "--help"]

        if args[0] == "--help":
            click.echo(ctx.get_help())
            ctx.exit()

        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the subcommand and write all its output.

        A closed pipe has a status of its own; click's would be 1.
        """
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            forget_output()
            ctx.exit(CLOSED_PIPE)


class NodeGroup(LazyGroup):
    """The group of the subcommands about the node of a kubelet."""

    subcommands = NODE_SUBCOMMANDS

    def imported(self, name: str) -> click.Command:
        """Import and return a subcommand."""
        command: click.Command = getattr(import_module("alignup.cli.node"), name)
        return command


@click.group(
    name="node",
    cls=NodeGroup,
    epilog="Exit status: that of the subcommand; 2 bad usage or bad input.",
)
def node() -> None:
    """Read the node that a kubelet runs: its machine, configuration, state files and pods.

    alignup node collect node1.tar.xz --pods pods.json
    alignup node show --node node1.tar.xz
    """


@click.group(
    cls=ProgramGroup,
    context_settings={"help_option_names": HELP_NAMES},
    epilog="Exit status: 0 done and admitted; 1 refused, or findings; 2 bad usage or bad input; "
    "130 interrupted; 141 output closed early. Each command's help has its own.",
)
@click.version_option(
    VERSION, "--version", "-V", message=f"alignup {VERSION}", help="Show the version."
)
def program() -> None:
    """Decide as a kubelet which NUMA nodes, CPUs, memory and devices a workload gets, or why not.

    kubectl alignup why ml/trainer-0
    alignup explain --machine align-up-article --replicas 2
    alignup run --cpus 8 -- python train.py
    """


def run_program() -> None:
    """Run the program; what a user can cause ends in one line and exit status 2."""
    open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        let_write_anything(stream)

    status = exit_status(program)
    try:
        sys.stderr.flush()
    except OSError:
        # the interpreter would make the status 120
        forget_output(sys.stderr)

    gc.freeze()  # the interpreter's last search for garbage would take a tenth of a short run
    sys.exit(status)


def open_standard_streams() -> None:
    """Open the standard streams that were closed, so that no other file takes their numbers.

    A stream that was closed stays closed for those who use it: reading and writing fail, and
    children find it closed. Complaints go nowhere.
    """
    streams = (
        ("stdin", "r", os.O_WRONLY),
        ("stdout", "w", os.O_RDONLY),
        ("stderr", "w", os.O_WRONLY),
    )
    for number, (name, mode, flags) in enumerate(streams):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, flags | os.O_CLOEXEC)
            if descriptor != number:
                os.dup2(descriptor, number, inheritable=False)
                os.close(descriptor)

            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def let_write_anything(stream: object) -> None:
    """Let a text stream write a question mark for what its encoding lacks.

    It would raise an error otherwise.
    """
    # what took a stream's place need not have an encoding, and pythonw has no streams at all
    if isinstance(stream, io.TextIOWrapper) and stream.errors in {"strict", "surrogateescape"}:
        stream.reconfigure(errors="replace")


def exit_status(command: click.Command) -> int:
    """Run a command with the words of the command line, and return the exit status.

    Click's own ending of a program would be 1 after Ctrl-C and for some bad input, and 1 means
    refused here.
    """

    def work() -> int:
        with warnings.catch_warnings():
            say_warnings()
            # the status that a command exits with; None from one that just returns
            return int(command.main(standalone_mode=False) or 0)

    return status_of(work)


def say_warnings() -> None:
    """Say each of the library's warnings once, in one line, up to `MOST_SAID`.

    `warnings.catch_warnings` ends that.
    """
    sentences: set[str] = set()
    show = warnings.showwarning

    def say_once(
        message: Warning | str, category: type[Warning], *place: Any, **settings: Any
    ) -> None:
        if not issubclass(category, AlignupWarning):
            show(message, category, *place, **settings)
            return

        sentence = str(message)
        if sentence in sentences or len(sentences) >= MOST_SAID:
            return

        sentences.add(sentence)
        if len(sentences) == MOST_SAID:
            sentence = "more was ignored than is said here"

        complain(sentence)

    warnings.simplefilter("always", AlignupWarning)
    warnings.showwarning = say_once
