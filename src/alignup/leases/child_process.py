"""Runs a command that waits for its lease: makes the process first, then lets it bind itself and execute.

The process exists before its lease, so that the lease can name it: whoever kills whatever afterwards, the
lease lasts as long as the command and no longer. The process that waits passes signals on and returns the
command's status. It is not the command's guardian: should it be killed, the command runs on, and keeps what
it has.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["CANNOT_EXECUTE", "NOT_FOUND", "REFUSED", "Start", "WaitingCommand"]

REFUSED: Final = 1
CANNOT_EXECUTE: Final = 126
NOT_FOUND: Final = 127
_BY_SIGNAL: Final = 128
_FORWARDED: Final = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_CHUNK: Final = 65536


class Start(msgspec.Struct, frozen=True):
    """What the process is to do before it executes its command."""

    environment: dict[str, str]
    """Variables to set."""
    cpus: str = ""
    """A CPU list; empty: no binding."""
    numa_nodes: tuple[int, ...] = ()
    """Kernel ids of the nodes to have memory of; none: no binding."""
    strict: bool = False
    """From these nodes only; else from these first."""


class WaitingCommand:
    """A process that executes a command when it is told so, and ends if it is not.

    To be used by a process with one thread, which has made no other children.

    Args:
        words: the command's name and its arguments.
    """

    __slots__ = ("_pipe", "pid")

    def __init__(self, words: Sequence[str]) -> None:
        # with SIGCHLD ignored, as some have it, there would be no status to wait for
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _be_the_child(words, reading, writing)
        os.close(reading)
        self._pipe = writing

    def abandon(self) -> None:
        """Let the process end without executing anything, and wait for that."""
        os.close(self._pipe)
        os.waitpid(self.pid, 0)

    def run(self, start: Start) -> int:
        """Let the process execute its command, and wait for it.

        Signals that are sent to this process are passed on. Those from a terminal are not: the command gets
        them from there itself.

        Returns:
            Its exit status; 128 and the signal's number if a signal ended it.
        """
        waited_for = {*_FORWARDED, signal.SIGCHLD}
        earlier = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
        try:
            # it may have been killed meanwhile
            with suppress(BrokenPipeError):
                _write(self._pipe, msgspec.json.encode(start))
            os.close(self._pipe)
            return self._wait(waited_for)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, earlier)

    def _wait(self, waited_for: set[signal.Signals]) -> int:
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else _BY_SIGNAL - code
            came = signal.sigwaitinfo(waited_for)
            # positive codes are the kernel's: from a terminal, to the whole foreground group
            if came.si_signo != signal.SIGCHLD and came.si_code <= 0:
                with suppress(ProcessLookupError):
                    os.kill(self.pid, came.si_signo)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _be_the_child(words: Sequence[str], reading: int, writing: int) -> NoReturn:
    """Wait for the word, then become the command. Never returns, whatever happens."""
    try:
        os.close(writing)
        _restore_signals()
        data = b""
        while chunk := os.read(reading, _CHUNK):
            data += chunk
        if not data:  # no lease, or nobody there any more
            os._exit(REFUSED)
        _execute(words, msgspec.json.decode(data, type=Start))
    except BaseException as error:  # noqa: BLE001  # a copy of the parent must not live on
        _say(f"{type(error).__name__}: {error}")
    finally:
        os._exit(REFUSED)


def _restore_signals() -> None:
    """Undo what Python does to signals when it starts."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _execute(words: Sequence[str], start: Start) -> None:
    """Bind this process and execute the command in it; returns only never, by an exit or an execution."""
    if start.cpus or start.numa_nodes:
        # ctypes is imported by the process that needs it, while the other one already waits
        from alignup.errors import AllocationError  # noqa: PLC0415
        from alignup.leases.binding import bind_cpus, bind_memory  # noqa: PLC0415
        from alignup.machine.cpuset import CPUSet  # noqa: PLC0415

        try:
            bind_cpus(CPUSet.parse(start.cpus))
        except AllocationError as error:
            _say(f"refused: {error}")
            os._exit(REFUSED)
        trouble = bind_memory(start.numa_nodes, strict=start.strict) if start.numa_nodes else ""
        if trouble:
            _say(f"{trouble}; going on with CPUs {start.cpus}")
    _replace(words, {**os.environ, **start.environment})


def _replace(words: Sequence[str], environment: Mapping[str, str]) -> None:
    """Execute the command; exit as shells do if that cannot be."""
    try:
        os.execvpe(words[0], list(words), environment)  # noqa: S606  # the user's own command
    except FileNotFoundError:
        _say(f"{words[0]}: command not found")
        os._exit(NOT_FOUND)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        _say(f"{words[0]}: {(why or 'cannot be executed').lower()}")
        os._exit(CANNOT_EXECUTE)


def _say(sentence: str) -> None:
    """Tell people; `sys.stderr` has the parent's buffer."""
    with suppress(OSError):
        os.write(2, f"alignup: {sentence}\n".encode(errors="replace"))
