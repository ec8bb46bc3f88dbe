"""Ranks of a real Slurm on loopback.

Each binds itself to its part of what the step was granted.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
PATIENCE = 60
CPUS = sorted(os.sched_getaffinity(0))
RANK = """
import json, os, warnings
import alignup

with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    try:
        part = alignup.bind()
        answer = {"cpus": sorted(part.cpus), "bound": sorted(os.sched_getaffinity(0))}
    except alignup.errors.InputError as error:
        answer = {"error": str(error)}
messages = [str(warning.message) for warning in warned]
print(json.dumps({"rank": int(os.environ["SLURM_PROCID"]), "warnings": messages, **answer}))
"""

GPUS = 4
GPU_RANK = """
import json, os, sys
from alignup.host.parts.visible_devices import HostFiles, Rank, sight
from alignup.machine.device_inventory import LoadedMachine
from alignup.machine.load import load_machine
from alignup.machine.machine import PciDevice
from alignup.machine.pci_devices import devices_from_pci, usual_selectors
from alignup.records import replace

gpus = [PciDevice(f"0000:0{place}:00.0", "0302", "10de", "2330", 0) for place in range(4)]
machine = replace(load_machine("xeon-2s").machine, pci_devices=tuple(gpus))
devices = devices_from_pci(machine, usual_selectors(machine, "nvidia.com/gpu"))
local, ranks, count, root = int(os.environ["SLURM_LOCALID"]), *map(int, sys.argv[1:3]), sys.argv[3]
view = sight(
    LoadedMachine(machine, devices),
    "nvidia.com/gpu",
    os.environ,
    Rank(local, ranks, count),
    HostFiles(root),
)
seen = [view.devices.index(device) for device in view.seen]
listed = os.environ["CUDA_VISIBLE_DEVICES"]
print(json.dumps({"rank": local, "seen": seen, "notes": view.notes, "listed": listed}))
"""


def why_not() -> str:
    """Return why Slurm cannot be started here; empty: it can."""
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        return f"Slurm is not installed: no {', '.join(missing)}"
    if os.geteuid() != 0:
        return "Slurm's daemons are started by root"
    if len(CPUS) < 2:
        return "there is one CPU, of which no two parts can be cut"
    return ""


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can be started"),
]


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for listener in sockets:
        listener.bind(("127.0.0.1", 0))
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


def has_cpusets() -> bool:
    """Whether there is a hierarchy of cgroups v1 in which CPUs are granted."""
    return Path("/sys/fs/cgroup/cpuset/cpuset.cpus").exists()


def make_gpus(folder: Path) -> bool:
    """Make device files as NVIDIA's driver has; return whether this process may."""
    (folder / "dev").mkdir()
    try:
        for number in range(GPUS):
            os.mknod(folder / f"dev/nvidia{number}", 0o666 | stat.S_IFCHR, os.makedev(195, number))
    except OSError:
        return False
    return True


class Slurm:
    """A controller and a node on loopback, and munge between them.

    Args:
        folder: for their files.
        task_plugins: what confines steps.
    """

    def __init__(self, folder: Path, task_plugins: str) -> None:
        host = socket.gethostname().partition(".")[0]
        self.folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.environment = {
            **os.environ,
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PYTHONWARNINGS": "default",
        }
        for name in ("state", "spool"):
            (folder / name).mkdir()

        (folder / "munge.key").write_bytes(secrets.token_bytes(1024))
        (folder / "munge.key").chmod(0o400)
        controller_port, node_port = free_ports(2)
        self.has_gpus = make_gpus(folder)
        gres = ""
        if self.has_gpus:
            gres = f"Gres=gpu:{GPUS} "
            files = f"{folder}/dev/nvidia[0-{GPUS - 1}]"
            (folder / "gres.conf").write_text(f"NodeName={host} Name=gpu File={files}\n")

        tracking = "proctrack/linuxproc"
        if "cgroup" in task_plugins:
            tracking = "proctrack/cgroup"

        settings = {
            "ClusterName": "alignup",
            "SlurmctldHost": f"{host}(127.0.0.1)",
            "SlurmUser": "root",
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={folder}/munge.socket",
            "SlurmctldPort": controller_port,
            "SlurmdPort": node_port,
            "SlurmctldPidFile": f"{folder}/slurmctld.pid",
            "SlurmdPidFile": f"{folder}/slurmd.pid",
            "StateSaveLocation": f"{folder}/state",
            "SlurmdSpoolDir": f"{folder}/spool",
            "ProctrackType": tracking,
            "TaskPlugin": task_plugins,
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_CPU",
            "GresTypes": "gpu",
            "ReturnToService": 2,
            "NodeName": f"{host} NodeAddr=127.0.0.1 CPUs={len(CPUS)} {gres}State=UNKNOWN",
            "PartitionName": "all Nodes=ALL Default=YES State=UP",
        }
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        (folder / "slurm.conf").write_text(text)
        confined = "CgroupPlugin=cgroup/v1\nConstrainCores=yes\n"
        if Path("/sys/fs/cgroup/devices").is_dir():
            confined += "ConstrainDevices=yes\n"
        (folder / "cgroup.conf").write_text(confined)
        munge_files = [
            f"--{kind}-file={folder}/munge.{kind}" for kind in ("key", "pid", "log", "seed")
        ]
        self._start(
            "munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *munge_files
        )
        self._start("slurmctld", "-D", "-c", "-f", folder / "slurm.conf")
        self._start("slurmd", "-D", "-c", "-f", folder / "slurm.conf")

    def _start(self, name: str, *options: str | Path) -> None:
        with (self.folder / f"{name}.out").open("wb") as log:
            command = [shutil.which(name) or name, *map(str, options)]
            process = subprocess.Popen(  # noqa: S603  # ours
                command, stdout=log, stderr=log, env=self.environment
            )

        self._processes.append(process)

    def _asked(self, name: str, *options: str) -> str:
        command = [shutil.which(name) or name, *options]
        done = subprocess.run(  # noqa: S603  # ours
            command,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE * 4,
            check=name == "srun",
        )
        return done.stdout

    def close(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
            process.wait(PATIENCE)

    def wait_until_up(self) -> str:
        """Return an empty text once the node takes work.

        Or return what its daemon says of why it does not.
        """
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and all(process.poll() is None for process in self._processes):
            state = self._asked("sinfo", "-h", "-o", "%T")
            if state.strip() == "idle":
                return ""
            time.sleep(0.5)
        return (self.folder / "slurmd.out").read_text()[-500:]

    def ranks(
        self, *options: str, program: str = RANK, arguments: tuple[str, ...] = ()
    ) -> list[dict[str, Any]]:
        """Return what each rank of a step says, in their order."""
        output = self._asked("srun", *options, sys.executable, "-c", program, *arguments)
        return sorted(map(json.loads, output.splitlines()), key=lambda answer: int(answer["rank"]))


@pytest.fixture(scope="module", params=["task/affinity", "task/affinity,task/cgroup"])
def slurm(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Slurm]:
    if "cgroup" in request.param and not has_cpusets():
        pytest.skip(
            "there is no cgroup v1 hierarchy of cpusets, with which Slurm 22.05 confines steps"
        )
    cluster = Slurm(tmp_path_factory.mktemp("slurm"), request.param)
    try:
        if trouble := cluster.wait_until_up():
            pytest.skip(f"Slurm's node does not come up with {request.param}: {trouble}")
        yield cluster
    finally:
        cluster.close()


def test_two_ranks_share_what_the_step_was_granted(slurm) -> None:
    ranks = slurm.ranks("-n2", "--cpu-bind=none")
    assert [rank["warnings"] for rank in ranks] == [[], []]
    assert [rank["bound"] == rank["cpus"] != [] for rank in ranks] == [True, True]
    first, second = (set(rank["cpus"]) for rank in ranks)
    assert not first & second
    assert first | second <= set(CPUS)


def test_four_ranks_share_what_the_step_was_granted(slurm) -> None:
    # with -c1 on fewer CPUs than ranks, Slurm 26.05.5 waits for more
    share = len(CPUS) // 4
    each = [f"-c{share}"] if share > 1 else []
    ranks = slurm.ranks("-n4", "--overcommit", "--cpu-bind=none", *each)
    if len(CPUS) >= 4:
        parts = [set(rank["cpus"]) for rank in ranks]
        assert all(parts)
        assert len(set.union(*parts)) == sum(map(len, parts))
        return
    # there are fewer CPUs than ranks: all say so, and none that another option of srun would give
    # more
    assert all("parts are too many for the" in rank["error"] for rank in ranks)
    assert not any("start the ranks with" in rank["error"] for rank in ranks)


def test_ranks_that_slurm_has_bound_are_told_the_option(slurm) -> None:
    for rank in slurm.ranks("-n2"):
        assert "start the ranks with srun --cpu-bind=none" in rank["error"]


def test_a_rank_that_has_all_of_its_step_is_told_nothing(slurm) -> None:
    (rank,) = slurm.ranks("-n1", "--cpu-bind=none")
    assert rank["warnings"] == []
    assert len(rank["cpus"]) == 1


@pytest.mark.parametrize(
    ("options", "count", "expected"),
    [
        (("-n2", "--gpus-per-task=1"), 1, [[0], [1]]),
        (("-n2", "--gpus-per-task=2"), 2, [[0, 1], [2, 3]]),
        (("-n2", "--gpus-per-task=1", "--gpu-bind=map_gpu:1,0"), 1, [[1], [0]]),
        (("-n2", "--gpus=2"), 1, [[0, 1], [0, 1]]),
    ],
)
def test_each_task_sees_its_own_gpus(slurm, options, count, expected) -> None:
    """Made-up device files in gres.conf, hidden by the device cgroup where there is one.

    There each task counts its own from 0, in SLURM_STEP_GPUS too.
    """
    if not slurm.has_gpus:
        pytest.skip("device files cannot be made here")
    arguments = ("2", str(count), str(slurm.folder))
    ranks = slurm.ranks(*options, "--cpu-bind=none", program=GPU_RANK, arguments=arguments)
    assert [rank["seen"] for rank in ranks] == expected
    assert [rank["notes"] for rank in ranks] == [[], []]
