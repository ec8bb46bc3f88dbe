"""Says in a line of standard error why a subcommand failed, and returns its exit status.

`alignup.cli` runs the subcommands, and says which statuses there are.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import IO, TYPE_CHECKING

import click

from alignup.errors import AlignupError, one_line

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CLOSED_PIPE", "complain", "forget_output", "status_of"]

BAD_INPUT = 2
INTERRUPTED = 130
CLOSED_PIPE = 141
"""A shell's status for a program that SIGPIPE ended, as 130 is for SIGINT."""


def status_of(work: Callable[[], int], failed: int = BAD_INPUT) -> int:
    """Return the exit status that some work returns; of work that fails, say why in a line, and return `failed`."""
    try:
        return work()
    except click.ClickException as error:
        with suppress(OSError):
            error.show()
        return error.exit_code if error.exit_code > BAD_INPUT else failed
    except AlignupError as error:
        complain(str(error))
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except MemoryError:
        complain("expected input that fits into memory, got more")
    except RecursionError:
        complain("expected input with values of some ten levels, got far more")
    except ImportError as error:
        # a compiled module that cannot be opened, for one; a missing extra says itself which it is
        complain(str(error))
    except OSError as error:
        forget_output()
        complain(os.strerror(error.errno or 0).lower())
    return failed


def complain(sentence: str) -> None:
    """Say on standard error what is wrong, in one line; if that cannot be written, the exit status says enough."""
    with suppress(OSError):
        click.echo(f"alignup: {one_line(sentence)}", err=True)


def forget_output(stream: IO[str] | None = None) -> None:
    """Let what is still to be written to a stream, standard output by default, go nowhere."""
    with suppress(OSError):  # too many files may be open, which was said
        os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())
