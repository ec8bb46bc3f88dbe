"""`alignup agent` runs until it is told to end, and gives the leases back when it is told to."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from alignup.cli.agent import Serving, default_socket, limits_of
from alignup.errors import InputError
from alignup.host.leases.file import LeaseFile
from alignup.host.leases.source import AgentSource
from alignup.host.leases.users import Limits
from alignup.machine.cpuset import CPUSet
from fakes.device_plugins import LONG, short_folder
from running.forked import alignup

ALIGNUP = (sys.executable, "-c", "from alignup.cli import main; main()")


@pytest.fixture
def folder():
    with short_folder() as made:
        yield made


def started(folder, *options, machine="dgx-h100"):
    """Start an agent, and return it when it serves."""
    arguments = [
        "agent",
        "--state",
        folder / "s.json",
        "--socket",
        folder / "a.sock",
        "--machine",
        machine,
    ]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(folder / "notify"))
        notify.settimeout(3 * LONG)
        agent = subprocess.Popen(  # noqa: S603  # ours
            [*ALIGNUP, *map(str, arguments), *options],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "NOTIFY_SOCKET": str(folder / "notify")},
        )
        assert notify.recv(100).startswith(b"READY=1")

    (folder / "notify").unlink()
    return agent


def test_commands_use_the_agent_and_the_file_again_after_it(folder):
    """What they print is the same."""
    state = str(folder / "s.json")
    arguments = (
        "run",
        "--state",
        state,
        "--no-bind",
        "--cpus",
        "2",
        "--",
        "sh",
        "-c",
        "echo $ALIGNUP_CPUS",
    )

    agent = started(folder, "--no-device-plugins", "--log-format", "json")
    assert alignup(*arguments).stdout == "0,112\n"

    refused = alignup("run", "--state", state, "--no-bind", "--cpus", "999", "true")
    assert (
        refused.returncode,
        refused.stderr.startswith("alignup: refused: too few CPUs are free: 999 asked, 224 free"),
    ) == (125, True)
    assert "use --no-bind" in alignup("run", "--state", state, "--cpus", "1", "true").stderr

    refused = alignup("run", "--state", state, "--machine", "dgx-h100", "--no-bind", "true")
    assert "--machine is for the agent at" in refused.stderr

    assert alignup("ps", "--state", state).stdout == "no leases\n"
    assert alignup("release", "--state", state, "x").returncode == 1

    agent.send_signal(signal.SIGTERM)
    _, log = agent.communicate(timeout=3 * LONG)
    assert agent.returncode == 0
    assert '"message":"serving' in log

    back = alignup("agent", "--state", state, "--hand-back")
    assert (back.returncode, back.stdout, back.stderr) == (0, f"0 leases are in {state}\n", "")
    handed_back = alignup("agent", "--state", state, "--hand-back", "--json")
    assert json.loads(handed_back.stdout) == {"leases": 0, "file": str(state)}

    again = alignup("agent", "--state", state, "--hand-back")
    assert f"no agent kept the leases of {state}; --state names the file" in again.stderr
    assert alignup("ps", "--state", state).stdout == "no leases\n"
    assert alignup(*arguments[:3], "--machine", "dgx-h100", *arguments[3:]).stdout == "0,112\n"


def test_a_command_outlives_the_agent_and_keeps_its_lease(folder):
    state = str(folder / "s.json")
    agent = started(folder, "--no-device-plugins")
    command = subprocess.Popen(  # noqa: S603  # ours
        [
            *ALIGNUP,
            "run",
            "--state",
            state,
            "--no-bind",
            "--cpus",
            "200",
            "--",
            "sh",
            "-c",
            "echo; read x",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    command.stdout.readline()
    agent.kill()
    agent.wait()
    agent.stderr.close()

    waiting = subprocess.Popen(  # noqa: S603  # ours
        [*ALIGNUP, "run", "--state", state, "--no-bind", "--wait", "--cpus", "100", "true"],
        stderr=subprocess.DEVNULL,
    )

    again = started(folder, "--no-device-plugins")
    lease, *waiters = map(json.loads, alignup("ps", "--state", state, "--json").stdout.splitlines())
    assert all(waiter["waiting"] for waiter in waiters)
    assert (lease["command"], len(CPUSet.parse(lease["cpus"]))) == ("sh -c echo; read x", 200)

    assert waiting.poll() is None
    command.communicate(b"\n", timeout=3 * LONG)
    assert command.returncode == 0
    assert waiting.wait(timeout=3 * LONG) == 0

    again.terminate()
    again.communicate(timeout=3 * LONG)


@contextmanager
def holder(folder, name):
    """Run a command with a lease of two CPUs of the agent.

    Return the processes of `alignup run` and of the command.
    """
    arguments = (
        "run",
        "--state",
        str(folder / "s.json"),
        "--no-bind",
        "--cpus",
        "2",
        "--name",
        name,
    )

    command = subprocess.Popen(  # noqa: S603  # ours
        [*ALIGNUP, *arguments, "--", "sh", "-c", "echo $$; read x"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield command.pid, int(command.stdout.readline())
    finally:
        command.communicate("", timeout=3 * LONG)


def names(folder):
    return {
        json.loads(line)["name"]
        for line in alignup("ps", "--state", folder / "s.json", "--json").stdout.split("\n")[:-1]
    }


def test_a_file_that_is_removed_while_the_agent_is_down_forgets_nothing(folder, monkeypatch):
    """Commands wait for the agent, and are given nothing beside it."""
    agent = started(folder, "--no-device-plugins")
    with holder(folder, "kept"):
        agent.kill()
        agent.communicate()
        (folder / "s.json").unlink()
        with monkeypatch.context() as impatient:
            impatient.setattr(AgentSource.__init__, "__defaults__", (0.2,))
            refused = alignup(
                "run", "--state", str(folder / "s.json"), "--no-bind", "--cpus", "1", "true"
            )

        assert refused.returncode == 125
        assert f"does not answer at {folder / 'a.sock'}" in refused.stderr
        again = started(folder, "--no-device-plugins")
        assert names(folder) == {"kept"}

    again.terminate()
    again.communicate(timeout=3 * LONG)


def test_an_operator_repairs_a_damaged_journal(folder):
    """First looks, then does it; until then an agent serves, and gives nothing."""
    state, journal = str(folder / "s.json"), folder / "s.json.journal"
    agent = started(folder, "--no-device-plugins")
    with holder(folder, "kept"):
        with holder(folder, "lost") as pids:
            agent.kill()
            agent.communicate()
            for pid in pids:  # one that lives would wait for the agent
                os.kill(pid, signal.SIGKILL)

        # no agent can serve there
        alone = alignup("agent", "--state", state, "--socket", "/", "--yes")
        assert (alone.returncode, "--yes needs --repair" in alone.stderr) == (2, True)
        whole = alignup("agent", "--state", state, "--repair")
        assert (
            whole.returncode,
            "all leases are known" in whole.stdout,
            "kept" in whole.stdout,
        ) == (0, True, True)
        lines = journal.read_bytes().split(b"\n")
        (bad,) = (
            i for i, line in enumerate(lines) if b'"given"' in line and b'"name":"lost"' in line
        )
        lines[bad] = lines[bad].replace(b'"id":"', b'"id":#', 1)
        journal.write_bytes(damaged := b"\n".join(lines))

        repair = json.loads(alignup("agent", "--state", state, "--repair", "--json").stdout)
        assert (
            [lease["name"] for lease in repair["leases"]],
            repair["repaired"],
            bool(repair["lost"]),
        ) == (
            ["kept"],
            False,
            True,
        )
        assert alignup("agent", "--state", state, "--json").returncode == 2
        looked = alignup("agent", "--state", state, "--repair")
        assert (
            looked.returncode,
            "kept" in looked.stdout,
            "With --yes the agent keeps only these leases" in looked.stdout,
        ) == (0, True, True)
        assert (
            f"line {bad + 1} of the journal cannot be read, and may have recorded a lease"
            in looked.stdout
        )
        assert (journal.read_bytes(), list(folder.glob("*.damaged-*"))) == (damaged, [])

        closed = started(folder, "--no-device-plugins")
        refused = alignup("run", "--state", state, "--no-bind", "--cpus", "1", "true")
        assert (
            refused.returncode,
            "nothing is given until `alignup agent --repair`" in refused.stderr,
        ) == (125, True)
        assert names(folder) == {"kept"}
        closed.terminate()
        closed.communicate(timeout=3 * LONG)
        back = alignup("agent", "--state", state, "--hand-back")
        assert (back.returncode, "see `alignup agent --repair`" in back.stderr) == (2, True)

        done = alignup("agent", "--state", state, "--repair", "--yes")
        assert (done.returncode, "keeps these leases" in done.stdout, "kept" in done.stdout) == (
            0,
            True,
            True,
        )
        assert [path.read_bytes() for path in folder.glob("*.damaged-*")] == [damaged]
        again = started(folder, "--no-device-plugins")
        assert alignup("run", "--state", state, "--no-bind", "--cpus", "1", "true").returncode == 0
        assert names(folder) == {"kept"}

    again.terminate()
    again.communicate(timeout=3 * LONG)


def test_the_machine_at_hand_needs_no_library_for_gpus_that_it_lacks(folder):
    agent = started(folder, "--no-device-plugins", machine="/")
    done = alignup(
        "run",
        "--state",
        str(folder / "s.json"),
        "--cpus",
        "1",
        "--",
        "sh",
        "-c",
        "echo $ALIGNUP_CPUS",
    )

    assert (done.returncode, done.stdout.strip().isdigit()) == (0, True), done
    agent.terminate()
    agent.communicate(timeout=3 * LONG)
    assert agent.returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("--cgroup", "/proc/typo"),
        ("--metrics", "no port"),
        ("--metrics", __file__),
        ("--podresources", __file__),
        ("--socket", f"/proc/{'x' * 120}"),
        ("--socket", __file__),
        ("--socket", "/"),
    ],
)
def test_an_agent_that_cannot_start_takes_no_leases(folder, arguments):
    """Commands go on to use the file, and would wait for it otherwise."""
    state = str(folder / "s.json")
    file = LeaseFile(folder / "s.json", pytest.fail)
    with file.change():
        pass
    socket = () if "--socket" in arguments else ("--socket", str(folder / "a.sock"))
    always = ("agent", "--state", state, "--machine", "dgx-h100", "--no-device-plugins")
    assert alignup(*always, *socket, *arguments).returncode == 2
    assert Path(__file__).is_file()
    assert file.agent() == ""
    assert not (folder / "s.json.journal").exists()


def test_the_leases_of_an_agent_wait_for_one_that_can_start(folder):
    """It is to be started again, as systemd does; nothing is given beside it meanwhile."""
    state = str(folder / "s.json")
    agent = started(folder, "--no-device-plugins")

    agent.terminate()
    agent.communicate(timeout=3 * LONG)

    always = (
        "agent",
        "--state",
        state,
        "--machine",
        "dgx-h100",
        "--socket",
        str(folder / "a.sock"),
    )

    assert alignup(*always, "--no-device-plugins", "--cgroup", "/proc/typo").returncode == 2
    assert LeaseFile(folder / "s.json", pytest.fail).agent() == str(folder / "a.sock")


def test_of_two_agents_the_first_keeps_the_socket(folder):
    """The second one leaves its own leases in their file."""
    agent = started(folder, "--no-device-plugins")
    arguments = (
        "agent",
        "--state",
        str(folder / "other.json"),
        "--machine",
        "dgx-h100",
        "--no-device-plugins",
    )

    second = alignup(*arguments, "--socket", str(folder / "a.sock"))
    assert (second.returncode, "somebody serves the socket" in second.stderr) == (2, True)
    assert LeaseFile(folder / "other.json", pytest.fail).agent() == ""
    assert alignup("ps", "--state", str(folder / "s.json")).returncode == 0

    agent.terminate()
    agent.communicate(timeout=3 * LONG)


def test_leases_are_handed_back_beside_what_is_at_the_socket_now(folder):
    agent = started(folder, "--no-device-plugins")
    agent.terminate()
    agent.communicate(timeout=3 * LONG)
    (folder / "a.sock").unlink()
    (folder / "a.sock").write_text("precious")
    assert alignup("agent", "--state", str(folder / "s.json"), "--hand-back").returncode == 0
    assert (folder / "a.sock").read_text() == "precious"


@pytest.mark.parametrize("option", ["--state", "--socket", "--cgroup"])
def test_paths_are_text(folder, option):
    """They are written down in leases, and sent to those who have one."""
    paths = {
        "--state": folder / "s.json",
        "--socket": folder / "a.sock",
        option: f"{folder}/\udcff",
    }
    done = alignup(
        "agent", "--machine", "dgx-h100", *(str(word) for pair in paths.items() for word in pair)
    )
    assert (done.returncode, f"at {option}" in done.stderr) == (2, True)
    assert "expected a path of UTF-8" in done.stderr
    assert [path.name for path in folder.iterdir()] in ([], ["s.json.agent"])


def options(**settings):
    return Serving(socket=Path("a.sock"), **settings).options(None)


def test_paths_that_outlive_the_agent_are_absolute(tmp_path, monkeypatch):
    """The next one may be started in another folder, and looks at the cgroups of its leases."""
    monkeypatch.chdir(tmp_path)
    made = options(cgroup=Path("leases"))
    assert (made.socket, made.cgroup) == (tmp_path / "a.sock", tmp_path / "leases")
    assert options().cgroup is None


def test_options_that_exclude_each_other_are_bad_usage():
    bad = alignup("agent", "--cgroup", "/sys/fs/cgroup/x", "--no-cgroups")
    assert (bad.returncode, "--cgroup and --no-cgroups exclude each other" in bad.stderr) == (
        2,
        True,
    )


def test_limits_are_read():
    assert limits_of(("cpus=4", "memory=1Gi", "leases=1", "waiting=2", "a/b=3")) == Limits(
        1, 2, 4, 1 << 30, {"a/b": 3}
    )
    for wrong in ("cpus", "cpus=x", "=4", "cores=4", "memory=much"):
        with pytest.raises(InputError):
            limits_of((wrong,))

    many = "9" * 5_000  # more than Python makes a number of
    with pytest.raises(InputError, match=r"at most 9223372036854775807, got .* at --limit cpus"):
        limits_of((f"cpus={many}",))
    with pytest.raises(InputError, match=r"at --limit a/b"):
        limits_of((f"a/b={many}",))


def test_the_socket_is_the_systems_or_ones_own(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert str(default_socket()) == "/run/alignup/agent.sock"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    assert str(default_socket()) == "/run/user/1000/alignup/agent.sock"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    with pytest.raises(InputError, match="give --socket: XDG_RUNTIME_DIR is not set"):
        default_socket()


def test_what_cannot_be_is_said_in_a_line(folder):
    bad = alignup(
        "agent",
        "--state",
        str(folder / "s"),
        "--machine",
        "dgx-h100",
        "--socket",
        str(folder / ("x" * 100)),
    )
    assert (bad.returncode, "a path of up to 107 bytes" in bad.stderr) == (2, True)
