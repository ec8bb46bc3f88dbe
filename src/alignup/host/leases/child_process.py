"""Runs a command that waits for its lease.

The process is made first, and then binds itself and executes the command. It exists before its
lease, so that the lease can name it: whoever kills whatever afterwards, the lease lasts as long as
the command. Its parent is a keeper, a process that does nothing but wait until the command and all
that it started have ended: the kernel hands it those whose own parents are gone, in whatever
session or process group they are, and whichever files they closed. The lease names it too, and so
lasts as long as they.

The process that waits for the command passes signals on and returns the command's status. It is not
the command's guardian: should it be killed, the command runs on, and keeps what it has. Should the
keeper be killed, the lease lasts as long as the command only.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, NoReturn

import msgspec

from alignup.errors import InputError, sentence_of, system_reason, typed_text_of
from alignup.host.device_plugins.answer import Mount  # noqa: TC001  # msgspec reads annotations

# The status of a command that was not started, by whatever hindered that; as of env, nohup and
# timeout.
OWN_FAILURE: Final = 125
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
_PR_SET_CHILD_SUBREAPER: Final = 36


class Start(msgspec.Struct, frozen=True):
    """The steps that the process takes before it executes its command.

    Attributes:
        environment: variables to set; bytes, since paths need not be UTF-8.
        cpus: a CPU list; empty: no binding.
        numa_nodes: kernel ids of the nodes to have memory of; none: no binding.
        strict: from these nodes only; else from these first.
        mounts: what is to be seen elsewhere than on the host, by this process and those that it
            starts.
    """

    environment: dict[str, bytes]
    cpus: str = ""
    numa_nodes: tuple[int, ...] = ()
    strict: bool = False
    mounts: tuple[Mount, ...] = ()


class _Report(msgspec.Struct, frozen=True):
    """A report of a keeper.

    The first one tells of the command's beginning, the last one of its end.

    Attributes:
        pid: the process of the command; 0: it cannot be made.
        error: the number of the error why not.
        status: its exit status; 128 and the signal's number if a signal ended it.
        alone: it has ended, and nothing that it started is left.
    """

    pid: int = 0
    error: int = 0
    status: int = 0
    alone: bool = False


class WaitingCommand:
    """A process that executes a command when it is told so, and ends if it is not; and its keeper.

    To be used by a process with one thread, which has made no other children.

    Args:
        command: its name and its arguments.
        kept: descriptors that the keeper has open as long as it runs; it closes all others.

    Raises:
        InputError: the system has no room for another process.
    """

    __slots__ = ("_pipe", "_reports", "is_over", "keeper", "pid")

    def __init__(self, command: Sequence[str], kept: Sequence[int] = ()) -> None:
        # with SIGCHLD ignored, as some have it, there would be no status to wait for
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        reading, self._pipe = os.pipe()
        self._reports, reporting = os.pipe()
        try:
            self.keeper = os.fork()  # its process id
        except OSError as error:
            for descriptor in (reading, self._pipe, self._reports, reporting):
                os.close(descriptor)
            raise _no_process(error.errno) from None

        if self.keeper == 0:
            os.close(self._reports)
            _run_keeper(command, (reading, self._pipe), reporting, kept)

        os.close(reading)
        os.close(reporting)
        # True once neither the command nor anything that it started is left, as far as is known.
        self.is_over = False

        line = self._line()
        report = msgspec.json.decode(line, type=_Report) if line else _Report()
        # The process id of the command.
        self.pid = report.pid
        if not self.pid:
            self.abandon()
            raise _no_process(report.error)

    def abandon(self) -> None:
        """Let the process end without executing anything, and wait for that."""
        os.close(self._pipe)
        os.waitpid(self.keeper, 0)
        os.close(self._reports)
        self.is_over = True

    def run(self, start: Start) -> int:
        """Let the process execute its command, and wait until that ends.

        Signals that are sent to this process are passed on. Those from a terminal are not: the
        command gets them from there itself.

        Returns:
            Its exit status; 128 and the signal's number if a signal ended it, or the keeper.
        """
        waited_for = {*_FORWARDED, signal.SIGCHLD}
        earlier = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
        try:
            self._line()  # the keeper is ready for what the command leaves behind
            # it may have been killed meanwhile
            with suppress(BrokenPipeError):
                _write(self._pipe, msgspec.json.encode(start))

            os.close(self._pipe)
            return self._wait(waited_for)
        finally:
            os.close(self._reports)
            signal.pthread_sigmask(signal.SIG_SETMASK, earlier)

    def _wait(self, waited_for: set[signal.Signals]) -> int:
        os.set_blocking(self._reports, False)
        while True:
            pid, status = os.waitpid(self.keeper, os.WNOHANG)
            line = self._line()
            if line:
                report = msgspec.json.decode(line, type=_Report)
                if report.alone and not pid:
                    os.waitpid(self.keeper, 0)
                self.is_over = report.alone
                return report.status

            if pid and os.WIFSIGNALED(status):
                return _BY_SIGNAL + os.WTERMSIG(status)
            if pid:
                return OWN_FAILURE

            signalled = signal.sigwaitinfo(waited_for)
            # positive codes are the kernel's: from a terminal, to the whole foreground group
            if signalled.si_signo != signal.SIGCHLD and signalled.si_code <= 0:
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signalled.si_signo)

    def _line(self) -> bytes:
        """Return the keeper's next report; nothing if there is none yet, or will be none."""
        line = b""
        with suppress(BlockingIOError):
            # each is short, and so written at once
            while not line.endswith(b"\n") and (byte := os.read(self._reports, 1)):
                line += byte

        return line


def _run_keeper(
    command: Sequence[str], pipe: tuple[int, int], reporting: int, kept: Sequence[int]
) -> NoReturn:
    """Make the process of the command, and wait until it and all that it starts are gone.

    Never returns.
    """
    try:
        waiting_pid = os.getppid()
        try:
            pid = os.fork()
        except OSError as error:
            _tell(reporting, error=error.errno or 0)
            raise

        if pid == 0:
            os.close(reporting)
            _run_child(command, *pipe)

        _tell(reporting, pid=pid)
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        _let_go_of_everything({reporting, *kept})
        _adopt_orphans()
        _write(reporting, b"\n")
        _keep(pid, waiting_pid, reporting)
    finally:
        os._exit(OWN_FAILURE)


def _no_process(number: int | None) -> InputError:
    """Return the error that says that a process cannot be made."""
    reason = "its keeper ended"
    if number:
        reason = os.strerror(number).lower()
    return InputError(f"cannot start a process: {reason}")


def _keep(command_pid: int, waiting_pid: int, reporting: int) -> None:
    """Wait for everybody; report how the command ended to the process that waits for that."""
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid != command_pid:
                continue

            code = os.waitstatus_to_exitcode(status)
            if code < 0:
                code = _BY_SIGNAL - code
            alone = not _has_children()
            with suppress(BrokenPipeError):
                _tell(reporting, status=code, alone=alone)
            if os.getppid() == waiting_pid and not alone:
                os.kill(waiting_pid, signal.SIGCHLD)


def _has_children() -> bool:
    """Return whether this process has children that have not ended.

    Those that have are done with.
    """
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _let_go_of_everything(kept: set[int]) -> None:
    """Close all files but some, and leave the folder.

    A keeper must hold up no pipe and no unmounting.
    """
    standard = {0, 1, 2} - kept
    for descriptor in sorted(standard):  # first, in case that no more files may be opened
        with suppress(OSError):
            os.close(descriptor)

    for _ in standard:
        os.open(os.devnull, os.O_RDWR)

    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  # names are wanted
        descriptor = int(name)
        if descriptor not in kept | standard:
            with suppress(OSError):
                os.close(descriptor)

    os.chdir("/")


def _adopt_orphans() -> None:
    """Become the parent of every process below this one whose own parent ends."""
    # by the process that needs it, while the other one already gets the lease
    import ctypes  # noqa: PLC0415

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _tell(reporting: int, **report: int) -> None:
    """Write a line of a keeper's report."""
    _write(reporting, msgspec.json.encode(report) + b"\n")


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _run_child(command: Sequence[str], reading: int, writing: int) -> NoReturn:
    """Wait for the word, then become the command. Never returns, whatever happens."""
    try:
        os.close(writing)
        _restore_signals()
        data = b""
        while chunk := os.read(reading, _CHUNK):
            data += chunk
        if not data:  # no lease, or nobody there any more
            os._exit(OWN_FAILURE)

        _execute(command, msgspec.json.decode(data, type=Start))
    except BaseException as error:  # noqa: BLE001  # a copy of the parent must not live on
        _say(typed_text_of(error))
    finally:
        os._exit(OWN_FAILURE)


def _restore_signals() -> None:
    """Undo what Python does to signals when it starts."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _execute(command: Sequence[str], start: Start) -> None:
    """Bind this process and execute the command in it.

    Never returns: the process exits, or becomes the command.
    """
    if start.cpus or start.numa_nodes:
        # ctypes is imported by the process that needs it, while the other one already waits
        from alignup.errors import AllocationError  # noqa: PLC0415
        from alignup.host.processes.binding import bind_cpus, set_memory  # noqa: PLC0415
        from alignup.machine.cpuset import CPUSet  # noqa: PLC0415

        try:
            bind_cpus(CPUSet.parse(start.cpus))
        except AllocationError as error:
            _say(f"refused: {error}")
            os._exit(OWN_FAILURE)

        mode = "bind" if start.strict else "preferred"
        trouble = set_memory(start.numa_nodes, mode) if start.numa_nodes else ""
        if trouble:
            _say(f"{trouble}; going on with CPUs {start.cpus}")

    if start.mounts:
        _mount(start.mounts)

    environment = dict(os.environb)
    for name, value in start.environment.items():
        environment[os.fsencode(name)] = value
    _replace(command, environment)


def _mount(mounts: Sequence[Mount]) -> None:
    """Give this process the mounts.

    Exit if that cannot be, for the command would miss its devices or take others.
    """
    # few commands need it
    from alignup.host.leases.private_mounts import mount_privately  # noqa: PLC0415

    try:
        mount_privately(mounts)
    except InputError as error:
        trouble = str(error)
    except OSError as error:
        trouble = (
            f"cannot mount what a device plugin asks for: {system_reason(error)} at "
            f"{error.filename}"
        )
    else:
        return

    _say(f"refused: {trouble}; --no-mounts leaves it to the command")
    os._exit(OWN_FAILURE)


def _replace(command: Sequence[str], environment: Mapping[bytes, bytes]) -> None:
    """Execute the command; exit as shells do if that cannot be."""
    try:
        os.execvpe(command[0], list(command), environment)  # noqa: S606  # the user's own command
    except FileNotFoundError:
        _say(f"{command[0]}: command not found")
        os._exit(NOT_FOUND)
    except OSError as error:
        _exit_unexecuted(command[0], error.strerror)
    except ValueError as error:
        _exit_unexecuted(command[0], str(error))


def _exit_unexecuted(name: str, trouble: str | None) -> NoReturn:
    """Say why a command cannot be executed, and exit."""
    _say(f"{name}: {(trouble or 'cannot be executed').lower()}")
    os._exit(CANNOT_EXECUTE)


def _say(sentence: str) -> None:
    """Write a line to standard error, directly: `sys.stderr` has the parent's buffer."""
    with suppress(OSError):
        os.write(2, f"alignup: {sentence_of(sentence)}\n".encode(errors="replace"))
