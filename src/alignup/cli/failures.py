"""Says in a line of standard error why a subcommand failed, and returns its exit status.

`alignup.cli` runs the subcommands, and says which statuses there are.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import IO

import click

from alignup.errors import AlignupError, InputError, sentence_of, system_reason
from alignup.text.digits import number_of

BAD_INPUT = 2
# Columns of a terminal; more are a mistake.
WIDEST = 10_000
# Begins all lines but the first of a sentence on a terminal.
HANGING = "  "
INTERRUPTED = 130
_OF_WRITING = {errno.EBADF, errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO}
# In the sentence about what kubectl has printed for people (`alignup.kubernetes.recognition`).
_TOLD = "; it tells: "
# A shell's status for a program that SIGPIPE ended, as 130 is for SIGINT.
CLOSED_PIPE = 141

# The modules that each extra of the package brings; of a module in several, the first is the least.
EXTRAS = {
    "metrics": ("prometheus_client",),
    "nvidia": ("pynvml",),
    "kubelet": ("xxhash", "grpc", "google.protobuf"),
    "agent": ("grpc", "google.protobuf", "prometheus_client"),
    "cluster": ("aiohttp", "kubernetes_asyncio", "prometheus_client", "xxhash"),
}


def status_of(work: Callable[[], int], failed: int = BAD_INPUT) -> int:
    """Return the exit status that some work returns.

    Of work that fails, say why in a line, and return `failed`.
    """
    try:
        return work()
    except click.ClickException as error:
        # it may have a word of 128 KiB
        error.message = fitted(sentence_of(error.message))  # type: ignore[misc]
        with suppress(OSError):
            error.show()
        return error.exit_code if error.exit_code > BAD_INPUT else failed
    except AlignupError as error:
        complain(with_entries(str(error)))
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except MemoryError:
        complain("the input does not fit into memory")
    except RecursionError:
        complain("values of the input are nested too deeply")
    except ImportError as error:
        # also a compiled module that cannot be opened
        complain(missing_extra(error.name or "") or str(error))
    except OSError as error:
        forget_output()
        # what a command opens has a name, and what it writes elsewhere has a sentence
        place = error.filename
        if not place and error.errno in _OF_WRITING:
            place = "standard output"

        complain(f"{system_reason(error)} at {place}" if place else system_reason(error))

    return failed


def with_entries(sentence: str) -> str:
    """Return a sentence with the entries of the page Messages for what it quotes of a rejection."""
    if _TOLD not in sentence:
        return sentence

    from alignup.kubelet.messages import meanings_quoted  # startup counts

    anchors = [meaning.message.anchor for meaning in meanings_quoted(sentence)]
    return f"{sentence}; see Messages: {', '.join(anchors)}" if anchors else sentence


def complain(sentence: str) -> None:
    """Say on standard error what is wrong, in one line, which a terminal gets in parts.

    If that cannot be written, the exit status says enough.
    """
    with suppress(OSError):
        click.echo(fitted(f"alignup: {sentence_of(sentence)}"), err=True)


def fitted(line: str) -> str:
    """Return a line for standard error, on a terminal broken between words."""
    if not sys.stderr.isatty():
        return line

    import textwrap  # only people wait for it

    try:
        width = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return line

    width = number_of(os.environ.get("COLUMNS", ""), WIDEST) or width
    if width <= len(HANGING):
        return line
    return textwrap.fill(
        line,
        width,
        subsequent_indent=HANGING,
        break_long_words=False,
        break_on_hyphens=False,
    )


def forget_output(stream: IO[str] | None = None) -> None:
    """Let what is still to be written to a stream, standard output by default, go nowhere."""
    with suppress(OSError):  # too many files may be open, which was said
        os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())


def need_extra(extra: str) -> None:
    """Check that the libraries of an extra are installed, without importing them.

    Raises:
        InputError: one is missing.
    """
    for name in EXTRAS[extra]:
        try:
            spec = find_spec(name)
        except ImportError:  # of the package that it is in
            spec = None

        if spec is None:
            raise InputError(needs(extra, name))


def missing_extra(module: str) -> str:
    """Return a sentence about the extra that brings a module; empty: none does."""
    for extra, names in EXTRAS.items():
        for name in names:
            if module in {name, name.partition(".")[0]}:
                return needs(extra, name)

    return ""


def needs(extra: str, module: str) -> str:
    """Return a sentence about an extra of which a module is not installed."""
    return f"this needs the module {module}, which is not installed: pip install 'alignup[{extra}]'"


def need_text(option: str, word: str) -> None:
    """Check that a word of the command line is text, which an API server can be sent.

    Raises:
        InputError: its bytes are no UTF-8.
    """
    try:
        word.encode()
    except UnicodeEncodeError as error:
        raise InputError.at(option, "UTF-8", word) from error
