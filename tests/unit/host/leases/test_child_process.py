"""A command that waits for its lease."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from alignup.errors import AllocationError, one_line
from alignup.host.leases import child_process as module
from alignup.host.leases.child_process import Start, WaitingCommand


class Replaced(BaseException):
    """Instead of an execution or an exit."""


@pytest.fixture(autouse=True)
def restored_signals():
    """What the tests change of this process."""
    numbers = (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT)
    before = [(number, signal.getsignal(number)) for number in numbers]
    yield
    for number, handler in before:
        signal.signal(number, handler)


def run(script, start=None):
    return WaitingCommand(["sh", "-c", script]).run(start or Start({}))


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -9 $$", 137)],
)
def test_the_status_is_the_commands(script, status):
    """128 and the signal's number, if one ended it."""
    assert run(script) == status


def test_the_environment_is_added_to(monkeypatch):
    """What was there stays."""
    monkeypatch.setenv("OLD", "old")
    assert run('test "$OLD $NEW" = "old new"', Start({"NEW": b"new"})) == 0


def test_the_process_is_the_one_that_was_known_before():
    """Its number is in the lease."""
    waiting = WaitingCommand(["sh", "-c", 'test $$ = "$PID"'])
    assert waiting.run(Start({"PID": str(waiting.pid).encode()})) == 0


def test_an_abandoned_process_executes_nothing(tmp_path):
    """It ends."""
    waiting = WaitingCommand(["touch", str(tmp_path / "file")])
    waiting.abandon()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(waiting.pid, 0)


def test_a_process_that_was_killed_while_it_waited():
    """The status says so."""
    waiting = WaitingCommand(["true"])
    os.kill(waiting.pid, signal.SIGKILL)
    while os.path.exists(f"/proc/{waiting.pid}"):  # noqa: PTH110  # until the keeper has seen it
        time.sleep(0.005)
    assert waiting.run(Start({})) == 137


def test_cpus_are_bound_before_the_execution():
    """And only there."""
    cpu = min(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    assert run(f'grep -q "^Cpus_allowed_list:.{cpu}$" /proc/$$/status', Start({}, str(cpu))) == 0
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("no-such-command", 127),
        ("/etc/passwd", 126),
        ("a\0b", 126),
        ("\x1b[2J", 127),
        ("x" * 70_000, 126),
    ],
    ids=["missing", "no program", "NUL", "a terminal's", "long"],
)
def test_what_cannot_be_executed_ends_as_in_a_shell(word, status, capfd):
    """With a sentence that is a line."""
    assert WaitingCommand([word]).run(Start({})) == status
    said = capfd.readouterr().err
    assert said.startswith(f"alignup: {one_line(word)[:900]}")
    assert said[:-1].isprintable()
    assert len(said) < 2100


def test_signals_are_passed_on(tmp_path):
    """Those that somebody sends to the process that waits."""
    ready = tmp_path / "ready"

    def send():
        deadline = time.monotonic() + 60
        while not ready.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    sender = threading.Thread(target=send)
    # the new thread must not be the one that gets the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        sender.start()
        status = run(f'trap "exit 9" TERM; touch {ready}; while :; do sleep 0.01; done')
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    sender.join()
    assert status == 9


def test_python_s_own_signal_handling_is_undone():
    """A command must die of a broken pipe."""
    assert run("yes | head -1 > /dev/null; kill -PIPE $$") == 128 + signal.SIGPIPE


def test_what_a_command_leaves_behind_is_known(tmp_path):
    """The status comes at once; the keeper waits, whatever the others do to get away."""
    pids = tmp_path / "pids"
    script = (
        f"env -i setsid sh -c '(sleep 60 & echo $! > {pids}) > /dev/null 2>&1 3<&-' & wait; exit 3"
    )
    waiting = WaitingCommand(["sh", "-c", script])
    assert waiting.run(Start({})) == 3
    left = int(pids.read_text())
    assert not waiting.is_over
    assert os.waitpid(waiting.keeper, os.WNOHANG) == (0, 0)
    os.kill(left, signal.SIGKILL)
    assert os.waitpid(waiting.keeper, 0)[0] == waiting.keeper


def test_without_anything_left_it_is_over():
    """What the command waited for itself included."""
    waiting = WaitingCommand(["sh", "-c", "true & wait"])
    assert waiting.run(Start({})) == 0
    assert waiting.is_over
    with pytest.raises(ChildProcessError):
        os.waitpid(waiting.keeper, os.WNOHANG)


def test_a_keeper_is_in_nobodys_way():
    """It holds no files and no folder, and no pipe that somebody reads to its end."""
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    waiting = WaitingCommand(["sh", "-c", "exec sleep 60"], kept=())
    os.close(writing)
    try:
        until(lambda: os.readlink(f"/proc/{waiting.keeper}/cwd") == "/")  # noqa: PTH115
        until(lambda: len(os.listdir(f"/proc/{waiting.keeper}/fd")) <= 5)  # noqa: PTH208
    finally:
        waiting.abandon()
    assert os.read(reading, 1) == b""
    os.close(reading)


def test_a_keeper_s_standard_files_lead_nowhere():
    """Each stays open, so that no other file gets its number."""
    waiting = WaitingCommand(["true"])
    files = f"/proc/{waiting.keeper}"
    try:
        until(lambda: os.readlink(f"{files}/cwd") == "/")  # noqa: PTH115  # the last that it does
        leads_to = [os.readlink(f"{files}/fd/{number}") for number in range(3)]  # noqa: PTH115
    finally:
        waiting.abandon()
    assert leads_to == ["/dev/null"] * 3


def test_a_killed_keeper_leaves_the_command_alone(tmp_path):
    """It is started and runs on; that it is over is not said."""
    proof = tmp_path / "proof"
    waiting = WaitingCommand(["sh", "-c", f"echo > {proof}; exec sleep 60"])
    os.kill(waiting.keeper, signal.SIGKILL)
    assert waiting.run(Start({})) == 137
    assert not waiting.is_over
    until(proof.exists)
    os.kill(waiting.pid, signal.SIGKILL)


def until(happened):
    """Wait until something has happened."""
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# what follows runs in a copy of the process otherwise, where nobody sees it


@pytest.fixture
def seen(monkeypatch):
    """Executions, sentences and exits, in the order in which they come."""
    events = []

    def leave(status):
        events.append(("exit", status))
        raise Replaced

    def execute(file, arguments, environment):
        events.append(("execute", file, arguments, environment.get(b"NEW", b"").decode() or None))
        raise Replaced

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(os, "execvpe", execute)
    monkeypatch.setattr(module, "_say", lambda sentence: events.append(("say", sentence)))
    monkeypatch.setattr(
        "alignup.host.processes.binding.bind_cpus", lambda cpus: events.append(("cpus", str(cpus)))
    )
    return events


def execute(start, arguments=("c", "x")):
    with pytest.raises(Replaced):
        module._execute(arguments, start)


def test_binding_comes_before_the_execution(seen, monkeypatch):
    """CPUs, then memory."""
    monkeypatch.setattr(
        "alignup.host.processes.binding.set_memory",
        lambda nodes, mode: seen.append(("memory", nodes, mode)) or "",
    )
    execute(Start({"NEW": b"n"}, "0-1", (0,), strict=True))
    assert seen == [("cpus", "0-1"), ("memory", (0,), "bind"), ("execute", "c", ["c", "x"], "n")]


def test_memory_that_cannot_be_bound_is_said_once(seen, monkeypatch):
    """And the command runs."""
    monkeypatch.setattr(
        "alignup.host.processes.binding.set_memory", lambda _nodes, mode: f"not bound {mode}"
    )
    execute(Start({}, "3", (0,)))
    assert seen[1:] == [
        ("say", "not bound preferred; going on with CPUs 3"),
        ("execute", "c", ["c", "x"], None),
    ]


def test_cpus_that_cannot_be_bound_are_a_refusal(seen, monkeypatch):
    """The command does not run elsewhere."""

    def refused(_cpus):
        raise AllocationError("no")

    monkeypatch.setattr("alignup.host.processes.binding.bind_cpus", refused)
    execute(Start({}, "3"))
    assert seen == [("say", "refused: no"), ("exit", 125)]


@pytest.mark.parametrize(
    ("error", "said", "status"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file"), "c: command not found", 127),
        (PermissionError(errno.EACCES, "Permission denied"), "c: permission denied", 126),
        (ValueError("embedded null byte"), "c: embedded null byte", 126),
        (OSError(), "c: cannot be executed", 126),
    ],
)
def test_failed_executions_are_said(seen, monkeypatch, error, said, status):
    """As a shell would."""

    def fail(*_arguments):
        raise error

    monkeypatch.setattr(os, "execvpe", fail)
    execute(Start({}))
    assert seen == [("say", said), ("exit", status)]


def child(seen, data):
    reading, writing = os.pipe()
    extra = os.dup(writing)
    os.write(writing, data)
    os.close(writing)
    with pytest.raises(Replaced):
        module._run_child(["c"], reading, extra)
    os.close(reading)
    return seen


def test_no_word_is_an_end(seen):
    """The process that waits is gone, or has no lease."""
    assert child(seen, b"")[0] == ("exit", 125)


def test_half_a_word_is_an_end(seen):
    """It was killed while it wrote."""
    events = child(seen, b'{"environment":{')
    assert events[0][0] == "say"
    assert events[-1] == ("exit", 125)


@pytest.mark.usefixtures("interruptible")
def test_a_word_is_an_execution(seen):
    """After signals are as they were.

    A shell that runs tests in the background lets them ignore this one.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert child(seen, b'{"environment":{"NEW":"bg=="}}')[0] == ("execute", "c", ["c"], "n")
    assert signal.getsignal(signal.SIGPIPE) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL


def test_an_ignored_interrupt_stays_ignored():
    """As of commands that a shell starts in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    module._restore_signals()
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


def test_sentences_go_to_standard_error(capfd):
    """Past Python's buffers."""
    module._say("ä sentence")
    assert capfd.readouterr().err == "alignup: ä sentence\n"


@pytest.mark.parametrize("failing", [1, 2])
def test_no_room_for_a_process_is_said_in_a_line(failing):
    """Neither for the keeper nor for the command.

    Nothing is left open, and nobody is left behind.
    """
    code = f"""
import os, sys
from alignup.errors import InputError
from alignup.host.leases.child_process import WaitingCommand
real, calls = os.fork, [0]
def fork():
    calls[0] += 1
    if calls[0] == {failing}:
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return real()
os.fork = fork
before = len(os.listdir("/proc/self/fd"))
try:
    WaitingCommand(["true"])
except InputError as error:
    print(error, len(os.listdir("/proc/self/fd")) - before)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert (done.stdout, done.stderr) == (
        "cannot start a process: resource temporarily unavailable 0\n",
        "",
    )
