"""`alignup run`: a command on CPUs, memory and devices of its own."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

import alignup as alignup_package
from alignup.cli import run as module
from alignup.cli.run import command
from alignup.errors import InputError
from alignup.host.leases.file import LeaseFile
from alignup.host.leases.local_machine import load_site
from alignup.records import replace
from fakes.device_plugins import WatchingPlugin, short_folder
from running import forked
from running.agents import running_agent

ALIGNUP = (sys.executable, "-c", "from alignup.cli import main; main()")
DGX = ("--machine", "dgx-h100", "--no-bind")


@pytest.fixture
def state(tmp_path):
    return tmp_path / "leases.json"


def alignup(state, *arguments):
    return forked.alignup("run", "--state", state, *arguments)


def leases(state):
    return LeaseFile(state, pytest.fail).read().leases


def invoke(state, *arguments):
    """Run it in this process, which other tests of it have done before."""
    before = signal.getsignal(signal.SIGCHLD)
    try:
        return CliRunner().invoke(command, ["--state", str(state), *arguments])
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_command_runs_on_the_one_cpu_that_it_was_given(state):
    """On this very machine."""
    done = alignup(
        state, "--cpus", "1", "--", "python3", "-c", "import os; print(os.sched_getaffinity(0))"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout.replace("{", "[").replace("}", "]")) in [
        [cpu] for cpu in os.sched_getaffinity(0)
    ]
    assert leases(state) == ()


def test_only_cpus_that_this_process_may_use_are_given(state):
    """A batch system or a container may have cut them."""
    before = os.sched_getaffinity(0)
    last = max(before)
    try:
        os.sched_setaffinity(0, {last})
        done = alignup(state, "--cpus", "1", "--", "sh", "-c", "echo $ALIGNUP_CPUS")
        refused = alignup(state, "--cpus", "2", "--", "true")
    finally:
        os.sched_setaffinity(0, before)

    assert done.stdout == f"{last}\n"
    assert refused.returncode == 125
    assert refused.stderr.startswith("alignup: refused: too few CPUs are free: 2 asked, 1 free")
    if len(before) == os.cpu_count() > 1:
        assert f"this process may use only CPUs {last} of " in refused.stderr


def test_the_environment_says_what_it_got(state):
    """All of it, in words for people and for CUDA."""
    wish = ("--cpus", "4", "--memory", "8Gi", "--device", "nvidia.com/gpu=2", "--name", "n")
    done = alignup(state, *DGX, *wish, "env")
    environment = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert environment["ALIGNUP_NAME"] == "n"
    assert environment["ALIGNUP_CPUS"] == "0-1,112-113"
    assert environment["ALIGNUP_NUMA_NODES"] == "0"
    assert environment["ALIGNUP_MEMORY"] == str(8 << 30)
    assert environment["ALIGNUP_DEVICE_NVIDIA_COM_GPU"] == "gpu0,gpu1"
    assert environment["CUDA_VISIBLE_DEVICES"] == "0,1"


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        (("sh", "-c", "exit 7"), 7, ""),
        (("sh", "-c", "kill -TERM $$"), 143, ""),
        (("no-such-command",), 127, "alignup: no-such-command: command not found\n"),
        (("/etc/passwd",), 126, "alignup: /etc/passwd: permission denied\n"),
    ],
)
def test_the_status_is_the_commands(state, command, status, said):
    """And nothing is held afterwards."""
    done = alignup(state, "--", *command)
    assert (done.returncode, done.stderr) == (status, said)
    assert leases(state) == ()


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--cpus", "x", "true"),
        ("--cpus", "-1", "true"),
        ("--memory", "much", "true"),
        ("--device", "gpu", "true"),
        ("--policy", "strict", "true"),
        ("--part", "8/8", "true"),
        ("--machine", "nowhere", "true"),
        ("--machine", "dgx-h100", "true"),
        ("--device", "no.such/thing=1", "true"),
        ("--devices", "/no/such/file", "true"),
    ],
)
def test_bad_usage_is_said_before_anything_is_done(state, arguments):
    """With a status of its own, as of env and timeout."""
    assert invoke(state, *arguments).exit_code == 125
    assert not state.exists()


def test_bad_usage_has_status_125(state):
    """With one line and no traceback."""
    done = alignup(state, "--memory", "much", "true")
    assert done.returncode == 125
    assert done.stderr.startswith("alignup: expected a quantity")
    assert done.stderr.count("\n") == 1


def test_a_machine_that_is_not_this_one_needs_no_bind(state):
    """Nobody can be bound to its CPUs."""
    done = invoke(state, "--machine", "dgx-h100", "true")
    assert "needs --no-bind" in done.output


def test_what_runs_is_in_the_way_of_others(state):
    """Until it ends, whoever ends it; the refusal names it."""
    holder = subprocess.Popen(  # noqa: S603  # ours
        [
            *ALIGNUP,
            "run",
            "--state",
            str(state),
            *DGX,
            "--cpus",
            "224",
            "--name",
            "all",
            "--",
            "sleep",
            "600",
        ]
    )
    try:
        while not state.exists():
            assert holder.poll() is None
            time.sleep(0.02)

        (lease,) = leases(state)
        refused = invoke(state, *DGX, "--cpus", "1", "true")
        assert refused.exit_code == 125
        assert "refused: too few CPUs are free: 1 asked, 0 free" in refused.output
        assert f"held now: all (pid {lease.process.pid})" in refused.output
        holder.kill()
        holder.wait()
        still = invoke(state, *DGX, "--cpus", "1", "true")
        assert still.exit_code == 125, "the command runs on, and so does its lease"
    finally:
        holder.kill()
        holder.wait()
        for lease in leases(state) if state.exists() else ():
            os.kill(lease.process.pid, signal.SIGKILL)

    for _ in range(500):
        if invoke(state, *DGX, "--cpus", "224", "true").exit_code == 0:
            break
        time.sleep(0.01)

    assert invoke(state, *DGX, "--cpus", "224", "true").exit_code == 0
    assert leases(state) == ()


def test_a_part_is_taken_as_a_launcher_says(state, monkeypatch):
    """Rank 5 of 8 on a DGX has GPU 5."""
    monkeypatch.setenv("LOCAL_RANK", "5")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    seen = {}

    def run(self, start):
        seen.update(start.environment)
        self.abandon()
        return 0

    monkeypatch.setattr("alignup.host.leases.child_process.WaitingCommand.run", run)
    done = invoke(state, *DGX, "--part", "auto", "--device", "nvidia.com/gpu=1", "true")
    assert done.exit_code == 0
    assert (seen["ALIGNUP_CPUS"], seen["CUDA_VISIBLE_DEVICES"]) == (b"70-83,182-195", b"5")


def test_this_machine_is_bound(state, monkeypatch):
    """CPUs, and memory as the policy has it."""
    seen = []

    def run(self, start):
        seen.append(start)
        self.abandon()
        return 0

    monkeypatch.setattr("alignup.host.leases.child_process.WaitingCommand.run", run)
    for policy in ("best-effort", "single-numa-node"):
        assert invoke(state, "--cpus", "1", "--policy", policy, "true").exit_code == 0
    assert [start.strict for start in seen] == [False, True]
    assert all(start.cpus and start.numa_nodes for start in seen)


def test_names_are_made_of_the_command(state, monkeypatch):
    """As far as they can be."""
    names = []

    def run(self, start):
        names.append(start.environment["ALIGNUP_NAME"].decode())
        self.abandon()
        return 0

    monkeypatch.setattr("alignup.host.leases.child_process.WaitingCommand.run", run)
    for word in ("/usr/bin/python3.11", "ä"):
        invoke(state, word)
    assert [name.rpartition("-")[0] for name in names] == ["python3-11", "command"]


def test_an_inventory_can_be_in_a_file(state, tmp_path):
    """As for `alignup admit`."""
    path = tmp_path / "devices.yaml"
    path.write_text("x/y: [{id: a, numa: [1]}]\n")
    done = invoke(
        state, *DGX, "--devices", str(path), "--device", "x/y=1", "--", "test", "1", "=", "1"
    )
    assert done.exit_code == 0
    path.write_text("a: []\n---\nb: []\n")
    assert invoke(state, *DGX, "--devices", str(path), "--device", "x/y=1", "true").exit_code == 125


def test_an_interruption_leaves_nothing(state, monkeypatch):
    """The process that waits ends, and nothing is held."""

    def interrupted(*_arguments, **_fields):
        raise KeyboardInterrupt

    monkeypatch.setattr("alignup.host.leases.source.FileSource.acquire", interrupted)
    assert invoke(state, "--cpus", "1", "true").exit_code == 130
    assert not state.exists()


def test_a_lease_that_cannot_be_given_back_is_said(state, monkeypatch):
    """And the status is the command's."""

    def full(_source, _lease):
        raise InputError("the disk is full")

    monkeypatch.setattr("alignup.host.leases.source.FileSource.give_back", full)
    done = invoke(state, "--cpus", "1", "--name", "n", "--", "sh", "-c", "exit 3")
    assert done.exit_code == 3
    assert "the disk is full; lease 'n' is free all the same" in done.output
    assert module.command is command


def test_a_gpu_that_cuda_cannot_number_ends_it_before_the_command_starts(state, tmp_path):
    """And nothing is held."""
    devices, proof = tmp_path / "devices.json", tmp_path / "proof"
    devices.write_text('{"nvidia.com/gpu": [{"id": "0000:ff:1f.7", "numa": [0]}]}')

    done = alignup(
        state,
        *DGX,
        "--devices",
        str(devices),
        "--device",
        "nvidia.com/gpu=1",
        "--",
        "touch",
        str(proof),
    )

    assert done.returncode == 125
    assert done.stderr.splitlines() == [
        (
            "alignup: expected a GPU that CUDA can number, got '0000:ff:1f.7' at the devices of "
            "nvidia.com/gpu"
        )
    ]
    assert not proof.exists()
    assert leases(state) == ()


def test_what_the_command_leaves_running_keeps_the_lease(state):
    """Its status comes at once; who waits gets what it had when it ends."""
    wish = (*DGX, "--cpus", "224")
    done = alignup(
        state, *wish, "--name", "n", "--", "sh", "-c", "setsid sleep 60 >&- 2>&- & echo $!; exit 4"
    )
    assert done.returncode == 4
    left = int(done.stdout)
    try:
        assert [lease.name for lease in leases(state)] == ["n"]
        assert invoke(state, *DGX, "--cpus", "1", "true").exit_code == 125
    finally:
        os.kill(left, signal.SIGKILL)

    assert invoke(state, *wish, "--wait", "--", "true").exit_code == 0
    assert leases(state) == ()


def test_waiting_ends_in_time(state):
    """With the refusal that there would have been without."""
    holder = subprocess.Popen(  # noqa: S603  # ours
        [*ALIGNUP, "run", "--state", str(state), *DGX, "--cpus", "224", "--", "sleep", "600"]
    )
    try:
        while not state.exists():
            assert holder.poll() is None
            time.sleep(0.02)

        refused = invoke(state, *DGX, "--cpus", "1", "--wait", "0.1", "true")
        assert refused.exit_code == 125
        assert "(waited for 0.1 s)" in refused.output
    finally:
        holder.terminate()
        holder.wait()

    for wrong in ("soon", "nan", "-1"):
        assert invoke(state, "--wait", wrong, "true").exit_code == 125


def test_names_and_arguments_need_not_be_utf8(tmp_path):
    """They come from the file system."""
    state = os.fsencode(tmp_path) + b"/\xff.json"
    done = subprocess.run(  # noqa: S603  # ours
        [
            *ALIGNUP,
            "run",
            b"--state",
            state,
            *DGX,
            "--cpus",
            "1",
            "sh",
            "-c",
            b'printf %s "$ALIGNUP_STATE$0"',
            b"\xfe",
        ],
        capture_output=True,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, state + b"\xfe", b"")


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_closed_streams_change_nothing(state, closed):
    """The command finds them closed as well."""
    done = subprocess.run(  # noqa: S603  # ours
        [
            "/bin/sh",
            "-c",
            f'exec "$@" {closed}',
            "sh",
            *ALIGNUP,
            "run",
            "--state",
            str(state),
            *DGX,
            "--cpus",
            "1",
            "--",
            "sh",
            "-c",
            "exit 5",
        ],
        check=False,
    )

    assert done.returncode == 5


@pytest.mark.parametrize(
    ("version", "status", "complaint"),
    [
        ("v1.33.4-eks-1", 0, ""),
        ("1.29", 125, "expected 1 to 8 NUMA nodes"),
        ("1.12", 125, "expected kubelet 1.29 or later"),
        ("1.33,1.36", 125, "give one version here"),
    ],
)
def test_the_managers_of_a_release_decide(state, version, status, complaint):
    """Kubelets up to 1.30 know no option for more than 8 NUMA nodes."""
    done = alignup(
        state,
        "--machine",
        "gb200",
        "--no-bind",
        "--kubelet-version",
        version,
        "--cpus",
        "1",
        "--",
        "true",
    )

    assert done.returncode == status
    assert complaint in done.stderr


def test_siblings_stay_idle_and_are_nobody_elses(state):
    """The command sees the first CPU of each core; the lease holds whole cores."""
    arguments = (*DGX, "--cpus", "2", "--idle-siblings", "--", "sh", "-c")
    done = alignup(
        state,
        *arguments,
        f"echo $ALIGNUP_CPUS; {' '.join(ALIGNUP[:1])} -m alignup ps --json --state {state}",
    )
    first, *leases = done.stdout.splitlines()
    assert (first, json.loads(leases[0])["cpus"]) == ("0-1", "0-1,112-113")


def test_pairs_and_parts_by_layout(state):
    devices = ("--device", "nvidia.com/gpu=1", "--device", "example.com/nic=2")
    paired = alignup(
        state, *DGX, *devices, "--pair", "nvidia.com/gpu,example.com/nic:required", "--", "env"
    )
    assert "ALIGNUP_DEVICE_EXAMPLE_COM_NIC=nic0,nic1" in paired.stdout
    part = alignup(state, *DGX, "--part", "1/4", "--cpus", "4", "--layout", "numa", "--", "env")
    assert "ALIGNUP_CPUS=56-57,168-169" in part.stdout


@pytest.mark.parametrize("option", ["--pair=x", "--pair=a/b,c/d:always", "--spread=sockets"])
def test_rules_that_are_none(state, option):
    done = alignup(state, *DGX, "--cpus", "1", option, "--", "true")
    assert (done.returncode, done.stderr.count("\n")) == (125, 1)


def test_the_lease_is_written_to_a_descriptor(state):
    """As one line, as `alignup ps` has it.

    The command has not that descriptor, and its reader sees the end.
    """
    options = ("--cpus", "2", "--device", "nvidia.com/gpu=1", "--name", "n")
    script = (
        f"exec 7>{state.parent}/lease; "
        f"{shlex.join([*ALIGNUP, 'run', '--state', str(state), *DGX, *options])}"
    )
    script += " --json-fd 7 -- sh -c 'ls /proc/self/fd; cat " + f"{state.parent}/lease'"

    done = subprocess.run(  # noqa: S603  # ours
        ["sh", "-c", script],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    )

    *descriptors, line = done.stdout.splitlines()
    assert "7" not in descriptors
    lease = json.loads(line)
    assert (lease["name"], lease["cpus"], lease["numaNodes"]) == ("n", "0,112", [0])
    assert (lease["devices"], lease["state"]) == ({"nvidia.com/gpu": ["gpu0"]}, "running")


def test_the_lease_can_be_written_to_standard_error(state):
    """Which stays open, for the command too."""
    done = alignup(state, *DGX, "--cpus", "1", "--json-fd", "2", "--", "sh", "-c", "echo late >&2")
    line, late = done.stderr.splitlines()
    assert (done.returncode, json.loads(line)["cpus"], late) == (0, "0", "late")


@pytest.mark.parametrize("opened", ["", "7</dev/null"])
def test_a_descriptor_that_cannot_be_written_to_is_refused(state, opened):
    """Before anything is asked for."""
    command = [
        *ALIGNUP,
        "run",
        "--state",
        str(state),
        *DGX,
        "--cpus",
        "1",
        "--json-fd",
        "7",
        "--",
        "true",
    ]

    script = f"{shlex.join(command)} {opened}"
    done = subprocess.run(  # noqa: S603  # ours
        ["sh", "-c", script],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (125, "")
    assert (
        done.stderr == "alignup: --json-fd cannot write to descriptor: bad file descriptor at 7\n"
    )
    assert not state.exists()


GPUS = {"nvidia.com/gpu": [{"id": f"gpu{number}", "numa": None} for number in range(4)]}


@pytest.fixture
def four_gpus(tmp_path, monkeypatch):
    """Options for this machine with four GPUs, of which this process sees the last two."""
    (tmp_path / "devices.json").write_text(json.dumps(GPUS))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,2")
    return "--devices", str(tmp_path / "devices.json"), "--device", "nvidia.com/gpu=1"


def test_a_command_gets_only_gpus_that_this_process_sees(state, four_gpus):
    shown = ("--no-bind", "--", "printenv", "CUDA_VISIBLE_DEVICES")
    done = invoke(state, *four_gpus, *shown)
    assert "2 of the 4 nvidia.com/gpu are to choose from, since CUDA_VISIBLE_DEVICES" in done.stderr
    done = alignup(state, *four_gpus, *shown)
    assert done.stdout == "2\n"
    done = alignup(state, *four_gpus, "--all-devices", *shown)
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.fixture
def agent_with_gpus(monkeypatch):
    """An agent of this machine, with three GPUs that a stand-in for NVIDIA's plugin has."""
    with short_folder() as folder:
        site = replace(load_site("/"), inventory={})
        with (
            WatchingPlugin(folder / "p", ("GPU-11", "GPU-22", "GPU-33"), delay=0),
            running_agent(folder, site, device_plugins=folder / "p"),
        ):
            monkeypatch.setenv("ALIGNUP_AGENT", str(folder / "agent.sock"))
            yield folder


@pytest.mark.parametrize("options", [("--no-bind",), ("--no-bind", "--all-devices")])
@pytest.mark.parametrize("text", ["GPU-22", "GPU-22,GPU-33", "GPU-3,GPU-1", "-1", "", "1", None])
@pytest.mark.usefixtures("agent_with_gpus")
def test_an_agent_gives_only_gpus_that_this_process_sees(monkeypatch, text, options):
    """Where nothing here knows of a GPU, UUIDs still tell; the option lifts that."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if text is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", text)
    wish = ("--wait", "60", "--device", "nvidia.com/gpu=1")
    done = forked.alignup("run", *wish, *options, "--", "printenv", "CUDA_VISIBLE_DEVICES")

    is_lifted = "--all-devices" in options
    if text in {"-1", ""} and not is_lifted:
        assert (done.returncode, done.stdout) == (125, "")
        assert done.stderr == (
            f"alignup: this process sees no nvidia.com/gpu: CUDA_VISIBLE_DEVICES ({text!r}) hides "
            "all; --all-devices lifts that\n"
        )
        return

    assert done.returncode == 0
    names = tuple(text.split(",")) if text and "GPU" in text and not is_lifted else "GPU-"
    assert done.stdout.startswith(names)
    says = "among all devices of nvidia.com/gpu, whatever CUDA_VISIBLE_DEVICES ('1') lists"
    assert (says in done.stderr) == (text == "1" and not is_lifted)


@pytest.mark.usefixtures("agent_with_gpus")
def test_a_lease_of_an_agent_is_of_gpus_that_this_process_sees(monkeypatch):
    """The variables of this process are those of the lease that it takes for itself."""
    wishes = {"devices": {"nvidia.com/gpu": 1}, "bind": False, "wait": 60}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-33")
    with alignup_package.lease(**wishes) as lease:
        assert lease.devices == {"nvidia.com/gpu": ("GPU-33",)}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(InputError, match="hides all; all_devices=True lifts that"):
        alignup_package.lease(**wishes)
    with alignup_package.lease(**wishes, all_devices=True) as lease:
        assert len(lease.devices["nvidia.com/gpu"]) == 1


@pytest.mark.usefixtures("agent_with_gpus")
def test_split_shows_the_parts_of_an_agent_that_run_takes(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-33")
    forked.alignup("run", "--wait", "60", "--device", "nvidia.com/gpu=1", "--no-bind", "--", "true")
    done = forked.alignup("split", "1", "--device", "nvidia.com/gpu=1", "--json")
    assert json.loads(done.stdout)["devices"] == {"nvidia.com/gpu": ["GPU-33"]}
    done = forked.alignup("split", "1", "--device", "nvidia.com/gpu=1", "--json", "--all-devices")
    assert json.loads(done.stdout)["devices"] == {"nvidia.com/gpu": ["GPU-11"]}


@pytest.mark.parametrize(
    ("near", "cpus"), [("nic0", "0,112"), ("numa:1", "56,168"), ("40:00.0", "0,112")]
)
def test_cpus_are_near_what_is_not_leased(state, near, cpus):
    done = alignup(state, *DGX, "--cpus", "2", "--near", near, "--", "printenv", "ALIGNUP_CPUS")
    assert (done.stdout, done.stderr) == (f"{cpus}\n", "")


def test_what_is_not_there_is_an_error_that_says_what_is(state):
    done = alignup(state, *DGX, "--cpus", "2", "--near", "nic8", "--", "true")
    assert done.returncode == 125
    assert done.stderr.startswith("alignup: expected numa:N, a PCI address, or a device (numa:0, ")
    assert done.stderr.endswith("got 'nic8' at --near\n")


def test_near_needs_a_request_and_has_no_part(state):
    for options, why in (
        ((), "some CPUs, memory or devices"),
        (("--part", "0/2"), "--near cannot be used with --part"),
        (("--cpus", "1", "--policy", "none"), "policy none"),
    ):
        done = alignup(state, *DGX, "--near", "numa:0", *options, "--", "true")
        assert (done.returncode, why in done.stderr) == (125, True), done.stderr


@pytest.mark.parametrize("variable", [None, "0", "1"])
@pytest.mark.parametrize("options", [(), ("--report",)])
def test_a_line_says_which_cores_the_command_is_bound_to(state, monkeypatch, variable, options):
    if variable is not None:
        monkeypatch.setenv("ALIGNUP_REPORT_BINDINGS", variable)
    done = alignup(
        state, "--cpus", "1", "--name", "n", *options, "--", "sh", "-c", "echo $$ $ALIGNUP_CPUS"
    )
    pid, cpu = done.stdout.split()
    if options or variable == "1":
        start = rf"\[[^]]+:{pid}\] lease 'n' bound to socket \d+\[core \d+"
        assert re.match(start, done.stderr), done.stderr
        assert f"(CPUs {cpu})" in done.stderr
        assert done.stderr.count("\n") == 1
    else:
        assert done.stderr == ""


def test_what_is_not_bound_is_said_so(state):
    here = alignup(state, "--cpus", "1", "--no-bind", "--report", "--", "true")
    assert " not bound, has socket " in here.stderr
    other = alignup(state.with_name("b"), *DGX, "--cpus", "2", "--report", "--", "true")
    assert "has CPUs 0,112 of another machine" in other.stderr
