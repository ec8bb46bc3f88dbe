"""The command line: one module a subcommand, imported when it is called.

Exit status: 0 done and admitted; 1 refused; 2 bad usage or bad input; 130 interrupted; 141 nobody read the output.
"""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module

import click

from alignup.errors import AlignupError

__all__ = ["SUBCOMMANDS", "main", "program"]

BAD_INPUT = 2
INTERRUPTED = 130
CLOSED_PIPE = 141
"""The last two are what a shell says of a program that SIGINT or SIGPIPE ended."""

SUBCOMMANDS = {
    "admit": "Admit pods on a machine, or say why not.",
    "machine": "Show what a machine looks like.",
    "replay": "Replay scenarios of pods that come and go.",
    "rank": "Rank the nodes of a cluster for a pod.",
    "simulate": "Place a trace of pods on a cluster, with and without a view of NUMA nodes.",
    "run": "Run a command on CPUs, memory and devices of its own.",
    "ps": "List who holds what on this machine.",
    "release": "Free the lease of a command that is gone.",
    "split": "Cut a machine into equal, aligned parts.",
}
"""Name and first line of help of each subcommand; its module has the same name."""


class LazyGroup(click.Group):
    """A group that knows its subcommands' names and imports them when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in the order of `SUBCOMMANDS`."""
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        """Import and return a subcommand."""
        if cmd_name not in SUBCOMMANDS:
            return None
        command: click.Command = import_module(f"alignup.cli.{cmd_name}").command
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run the subcommand and write all its output; a closed pipe has a status of its own, and click's is 1."""
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            forget_output()
            ctx.exit(CLOSED_PIPE)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """List the subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SUBCOMMANDS.items()))


def show_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    """Print the version, looked up only now."""
    if wanted:
        from importlib import metadata

        click.echo(f"alignup {metadata.version('alignup')}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=show_version,
    help="Show the version.",
)
def program() -> None:
    """Decide which NUMA nodes, CPUs, memory and devices a workload gets, as a kubelet would, and say why not."""


def main() -> None:
    """Run the program; what a user can cause ends in one line and exit status 2, never in a traceback."""
    for stream in (sys.stdout, sys.stderr):
        let_write_anything(stream)
    sys.exit(exit_status(program))


def let_write_anything(stream: object) -> None:
    """Let a text stream write a question mark for what its encoding lacks, where it would raise an error."""
    # what took a stream's place need not have an encoding, and pythonw has no streams at all
    if isinstance(stream, io.TextIOWrapper) and stream.errors in {"strict", "surrogateescape"}:
        stream.reconfigure(errors="replace")


def exit_status(command: click.Command) -> int:
    """Run a command with the words of the command line, and return the exit status.

    Click's own ending of a program would be 1 after Ctrl-C and for some bad input, and 1 means refused here.
    """
    try:
        # the status that a command exits with; None from one that just returns
        status = command.main(standalone_mode=False) or 0
    except click.ClickException as error:
        error.show()
    except AlignupError as error:
        click.echo(f"alignup: {error}", err=True)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except MemoryError:
        click.echo("alignup: expected input that fits into memory, got more", err=True)
    except RecursionError:
        click.echo("alignup: expected input with values of some ten levels, got far more", err=True)
    except OSError as error:
        forget_output()
        click.echo(f"alignup: {os.strerror(error.errno or 0).lower()}", err=True)
    else:
        return int(status)
    return BAD_INPUT


def forget_output() -> None:
    """Let what is still to be written go nowhere, so that the interpreter can end in peace."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
