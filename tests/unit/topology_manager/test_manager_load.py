"""One node under load: many threads at once, and very many admissions one after another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random
from threading import Barrier, Lock, Thread
from typing import TYPE_CHECKING, Any

import pytest

from inputs.machines import busy_node, manifest

if TYPE_CHECKING:
    from alignup.node import Node

TESTS = Path(__file__).parents[2]

LEAK = """
import gc, sys
from pathlib import Path
sys.path.insert(0, {path!r})
from inputs.machines import busy_node, manifest
from alignup import read_pod
from alignup import Pod

def resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

node = busy_node(2, 4)
fits, refused = read_pod(manifest("fits", 2, 1, 1)), read_pod(manifest("refused", 2, 1, 9))

def come_and_go(times):
    for _ in range(times):
        assert node.admit(fits).admitted
        assert not node.admit(refused).admitted
        node.remove("fits")

come_and_go(1000)
before = resident()
come_and_go({times})
print(resident() - before)
"""


def state(node: Node) -> tuple[Any, ...]:
    """Return what is free now."""
    assert node.devices is not None
    return str(node.shared_cpus), node.devices.free, node.devices.given, node.pods


class Tenant(Thread):
    """Admits and removes pods of its own, and checks that nobody else has what it gets."""

    def __init__(
        self, node: Node, number: int, held: set[Any], lock: Lock, start_line: Barrier
    ) -> None:
        super().__init__()
        self.node, self.number, self.held, self.lock, self.start_line = (
            node,
            number,
            held,
            lock,
            start_line,
        )
        self.admitted = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.start_line.wait()
            self.come_and_go(Random(self.number))
        except BaseException as error:  # noqa: BLE001 - the test raises it in its own thread
            self.failure = error

    def come_and_go(self, random: Random) -> None:
        mine: dict[str, set[Any]] = {}
        for round_ in range(150):
            uid = f"{self.number}-{round_}"
            admission = self.node.admit(
                manifest(uid, random.randint(1, 6), random.randint(1, 8), random.randint(1, 2))
            )
            if admission.admitted:
                mine[uid] = self.claim(admission.containers["c0"])
                self.admitted += 1

            if mine and (not admission.admitted or random.random() < 0.4):
                leaving = random.choice(sorted(mine))
                with self.lock:
                    self.held -= mine.pop(leaving)
                self.node.remove(leaving)

        for uid, things in mine.items():
            with self.lock:
                self.held -= things
            self.node.remove(uid)

    def claim(self, got: Any) -> set[Any]:
        things = {*got.cpus, *(device for ids in got.devices.values() for device in ids)}
        with self.lock:
            assert not things & self.held, "given twice"
            self.held |= things
        return things


def test_threads_share_a_node() -> None:
    """Eight threads admit and remove at once.

    Nothing is given twice, and in the end all is free again.
    """
    node = busy_node()
    before = state(node)
    allocated: set[Any] = set()
    lock, start_line = Lock(), Barrier(8)
    tenants = [Tenant(node, number, allocated, lock, start_line) for number in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for tenant in tenants:
            tenant.start()
        for tenant in tenants:
            tenant.join()
    finally:
        sys.setswitchinterval(interval)

    assert [tenant.failure for tenant in tenants] == [None] * 8
    assert sum(tenant.admitted for tenant in tenants) > 100
    assert state(node) == before
    assert not allocated


def growth(times: int) -> int:
    """Return by how many bytes a fresh interpreter grows over `times` rounds.

    In each round one pod is admitted, one refused, and the first removed.
    """
    code = LEAK.format(path=str(TESTS), times=times)
    command = [sys.executable, "-c", code]
    process = subprocess.run(  # noqa: S603 - our own
        command, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr

    return int(process.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/statm")
def test_memory_stays_where_it_was() -> None:
    """Admitting and removing 10,000 times leaves only noise behind.

    A leak of 50 bytes a time would show.
    """
    assert growth(10_000) < 512 * 1024


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/statm")
def test_memory_stays_where_it_was_for_long() -> None:
    """The same for 100,000 admissions and removals: a leak of 5 bytes a time would show."""
    assert growth(100_000) < 512 * 1024
