"""Many `alignup run` at once, some killed, their file removed or put back.

Nothing is ever held twice or leaks.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from alignup.host.leases.file import LeaseFile
from alignup.host.processes.identity import Liveness, joint_liveness, liveness
from running.forked import ForkedRun

MACHINE = "dgx-h100"
CPUS = 224
AT_ONCE = 20
FEW = 5
"""So many as programs that Python has to start first, where it must not take long."""

CLAIMANT = str(Path(__file__).with_name("claimant.py"))
ALIGNUP = (sys.executable, "-c", "from alignup.cli import main; main()")
ON_MACHINE = ("run", "--machine", MACHINE, "--no-bind")
LIMIT = 60


def started_run(arguments, said):
    """Start `alignup run` as anybody would."""
    return subprocess.Popen([*ALIGNUP, *arguments], stderr=said)  # noqa: S603  # ours


class Campaign:
    """Rounds of commands that claim what they were given.

    Each round starts them in one of two ways; forked ones begin so fast that they all meet at the
    lock.
    """

    def __init__(self, folder, seed):
        self.folder = folder
        self.state = folder / "leases.json"
        self.random = random.Random(seed)
        self.file = LeaseFile(self.state, self.note)
        self.earlier = []
        self.tampered = 0
        self.killed = 0
        self.statuses = []

    def note(self, sentence):
        """Take note of nothing but damage, which is this campaign's own."""
        assert "damaged" in sentence or "removed or replaced" in sentence, sentence

    def arguments(self, number):
        """Return the arguments of one command, with a request of its own."""
        cpus, gpus = self.random.choice([1, 2, 8, 24, 60]), self.random.choice([0, 0, 1, 2])
        wish = [
            "--cpus",
            str(cpus),
            "--device",
            f"nvidia.com/gpu={gpus}",
            "--state",
            str(self.state),
        ]
        if self.random.random() < 0.3:
            wish += ["--memory", f"{self.random.choice([1, 200, 900])}Gi"]

        wish += ["--policy", self.random.choice(["best-effort", "restricted", "single-numa-node"])]
        hold = str(self.random.uniform(0, 0.4))
        claim = [sys.executable, "-ISE", CLAIMANT, str(self.folder), hold]
        return [*ON_MACHINE, *wish, "--name", f"r{number}", "--", *claim]

    def kill(self, process):
        """Kill one with -9: the one that waits, the command itself, its keeper, or some of them."""
        victims = []
        if self.random.random() < 0.6:
            victims.append(process.pid)

        for lease in self.file.read().leases:
            if lease.keeper is not None and is_child(lease.keeper.pid, process.pid):
                running = [
                    holder.pid for holder in lease.processes if liveness(holder) is Liveness.RUNNING
                ]
                chance = 0.8
                if victims:
                    chance = 0.3
                victims += [pid for pid in running if self.random.random() < chance]
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
                self.killed += 1
            except ProcessLookupError:
                pass

    def tamper(self):
        """Remove the file, put back what it was earlier, or cut it short; or leave it alone."""
        self.tampered += 1
        change = self.random.choice(["remove", "put back", "cut", "keep", "keep"])
        if change == "keep":
            with suppress(FileNotFoundError):
                self.earlier.append(self.state.read_bytes())
            return

        if change == "remove" or not self.earlier:
            self.state.unlink(missing_ok=True)
            return

        text = self.random.choice(self.earlier[-50:])
        if change == "cut":
            text = text[: self.random.randint(30, len(text))]

        beside = self.folder / "beside"
        beside.write_bytes(text)
        beside.replace(self.state)

    def round(self, start, pause, at_once=AT_ONCE):
        """Start so many at once, kill some at any moment, and wait for the end of the others."""
        with (self.folder / "said").open("ab") as said:
            processes = [start(self.arguments(number), said) for number in range(at_once)]
        for process in self.random.sample(processes, 5):
            time.sleep(self.random.uniform(0, pause))
            self.tamper()
            self.kill(process)
            time.sleep(self.random.uniform(0, pause / 4))
            self.tamper()
        self.statuses += [process.wait(timeout=LIMIT) for process in processes]
        self.await_orphans()
        assert not (self.folder / "violations").exists(), (self.folder / "violations").read_text()

    def await_orphans(self):
        """Wait for the commands whose waiting processes were killed."""
        deadline = time.monotonic() + LIMIT
        while any(
            joint_liveness(lease.processes) is Liveness.RUNNING for lease in self.file.read().leases
        ):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def finish(self):
        """Show that everything is free again: one who wants it all gets it."""
        wish = ("--cpus", str(CPUS), "--device", "nvidia.com/gpu=8", "--memory", "2000Gi")
        done = subprocess.run(  # noqa: S603  # ours
            [*ALIGNUP, *ON_MACHINE, *wish, "--state", str(self.state), "--", "true"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert LeaseFile(self.state, pytest.fail).read().leases == ()
        names = {path.name for path in self.folder.glob("leases*") if ".damaged-" not in path.name}
        assert names == {"leases.json", "leases.json.lock"}


def is_child(pid, parent):
    """Return whether a process is another's child."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) == parent
    except (OSError, IndexError):
        return False


def campaign(folder, rounds, seed, forks=AT_ONCE, programs=AT_ONCE):
    """Run some rounds and show that nothing went wrong and something happened."""
    runs = Campaign(folder, seed)
    for number in range(rounds):
        if number % 10 == 1:
            runs.round(started_run, 0.6, programs)
        else:
            runs.round(ForkedRun, 0.12, forks)

    runs.finish()
    granted = len((folder / "granted").read_text().splitlines())
    usual = (": refused: ", "was damaged", "was removed or replaced", "waiting for the lock")
    strange_lines = [
        line
        for line in (folder / "said").read_text().splitlines()
        if not any(sentence in line for sentence in usual)
    ]
    assert not strange_lines, strange_lines[-20:]
    assert set(runs.statuses) <= {0, 125, -signal.SIGKILL, 128 + signal.SIGKILL}, sorted(
        set(runs.statuses)
    )
    refused = runs.statuses.count(125)
    counts = f"{granted} granted, {refused} refused, {runs.killed} killed"
    # shown with -s
    print(f"{rounds} rounds: {counts}, {runs.tampered} times tampered")  # noqa: T201
    assert granted


def test_a_few_rounds(tmp_path):
    """Two rounds, one of each kind."""
    campaign(tmp_path, 2, seed=1, forks=2 * FEW, programs=FEW)


@pytest.mark.slow
def test_two_hundred_rounds(tmp_path):
    """What the issue asks for."""
    campaign(tmp_path, 200, seed=2)
