"""The manager admits a pod, or leaves everything as it was."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from random import Random
from threading import Barrier, Lock, Thread
from typing import TYPE_CHECKING, Any

import pytest

import machines
from alignup.errors import InputError, PodExistsError, UnknownPodError
from alignup.hints import TopologyHint
from alignup.manager import TopologyManager
from alignup.policy import POLICY_NAMES, make_policy
from alignup.scope import ContainerScope
from fakes import Licences, Saying, hint, pod_of
from machines import busy_node, manifest

if TYPE_CHECKING:
    from alignup.node import Node

UNDECIDED = TopologyHint(None, False)
RESTRICTED = make_policy("restricted", 2)


def manager_of(
    *providers: Any, policy: str = "restricted", scope: Any = "container", **options: Any
) -> TopologyManager:
    return TopologyManager(make_policy(policy, 2), scope, providers, **options)


class Notes:
    """An observer that keeps what it was told."""

    def __init__(self) -> None:
        self.verdicts: list[bool] = []
        self.seconds: list[float] = []

    def admission(self, seconds: float, admitted: bool) -> None:
        self.verdicts.append(admitted)
        self.seconds.append(seconds)


@pytest.mark.parametrize("scope", ["container", "pod", ContainerScope()])
def test_an_admitted_pod_has_affinities(scope: Any) -> None:
    """The admission names them by container, and so does the manager until the pod is removed."""
    manager = manager_of(Licences([0, 2]), scope=scope)
    pod = pod_of("p", "a", "b")
    admission = manager.admit(pod)

    assert (admission.admitted, admission.reason, admission.message) == (True, "", "")
    assert {name: got.affinity for name, got in admission.containers.items()} == {
        "a": hint(True, 1),
        "b": hint(True, 1),
    }
    assert manager.affinity("p", "a") == hint(True, 1)
    assert manager.pods == (pod,)
    assert manager.remove("p") is pod
    assert manager.affinity("p", "a") == UNDECIDED
    assert manager.pods == ()


def test_a_manifest_is_as_good_as_a_pod() -> None:
    """What is no pod is refused before anything happens."""
    manager = manager_of(Licences([0, 2]))

    assert manager.admit(manifest("p", 1, 1, 0)).containers["c0"].affinity == hint(True, 1)
    assert manager.remove("p").uid == "p"
    with pytest.raises(InputError, match="metadata"):
        manager.admit({"spec": {}})


def test_an_admission_says_whether_its_hints_are_exact() -> None:
    """Up to 8 nodes they are; a pod without a decision has nothing that could be better."""
    assert manager_of(Licences([1, 0])).admit(pod_of("p")).exact
    assert manager_of(Saying({"cpu": []})).admit(pod_of("p")).exact
    assert manager_of(policy="none").admit(pod_of("p")).exact


def test_policy_none_decides_no_affinity() -> None:
    manager = manager_of(Licences([1, 1]), policy="none")

    assert manager.admit(pod_of("p")).admitted
    assert manager.affinity("p", "c0") == UNDECIDED


@pytest.mark.parametrize("nothing", [None, {}, {"licences": None}])
@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_no_preference_is_no_obstacle(policy: str, nothing: Any) -> None:
    """None, an empty mapping and a resource without hints all leave the choice to others."""
    assert manager_of(Saying(nothing), Licences([0, 1]), policy=policy).admit(pod_of("p")).admitted


@pytest.mark.parametrize("impossible", [{"gpu": []}, {"gpu": ()}])
@pytest.mark.parametrize(
    ("policy", "admitted"), [*zip(POLICY_NAMES, (True, True, False, False), strict=True)]
)
def test_an_empty_list_cannot_be_satisfied(policy: str, admitted: bool, impossible: Any) -> None:
    """An empty list is not the same as none: policies that insist on alignment refuse."""
    assert (
        manager_of(Saying(impossible), Licences([0, 1]), policy=policy).admit(pod_of("p")).admitted
        is admitted
    )


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_a_refused_pod_leaves_everything_as_it_was(scope: str) -> None:
    """What earlier containers got is given back, in the opposite order, by every provider."""
    first, second = Licences([3, 3], name="first"), Licences([3, 3], name="second", fails_for="b")
    second.log = first.log
    manager = manager_of(first, second, scope=scope)
    before = copy.deepcopy((first.free, second.free))
    admission = manager.admit(pod_of("p", "a", "b", "c"))

    assert not admission.admitted
    assert admission.containers == {}
    assert (admission.reason, admission.message) == (
        "UnexpectedAdmissionError",
        "container 'b': the licence server is down",
    )
    assert (first.free, second.free) == before
    assert [entry for entry in first.log if entry[0] == "release"] == [
        ("release", provider, name) for name in "cba" for provider in ("second", "first")
    ]
    assert manager.pods == ()
    assert manager.affinity("p", "a") == UNDECIDED
    second.fails_for = None
    assert manager.admit(pod_of("p", "a", "b", "c")).admitted


def test_a_policy_refusal_gives_back_too() -> None:
    """The second container finds nothing left near one node; the first one's share returns."""
    provider = Licences([1, 0])
    manager = manager_of(provider)
    admission = manager.admit(pod_of("p", "a", "b"))

    assert (admission.admitted, admission.reason) == (False, "TopologyAffinityError")
    assert "'b'" in admission.message
    assert provider.free == [1, 0]
    assert provider.held == {}


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("a bug"), KeyboardInterrupt()], ids=lambda error: type(error).__name__
)
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_an_exception_in_a_provider_leaves_everything_as_it_was(scope: str, error: BaseException) -> None:
    """A bug in somebody's provider reaches the caller, and costs no licence."""
    first, second = Licences([3, 3]), Licences([3, 3], fails_for="b", error=error)
    manager = manager_of(first, second, scope=scope)
    with pytest.raises(type(error)):
        manager.admit(pod_of("p", "a", "b"))

    assert (first.free, first.held, second.free, second.held) == ([3, 3], {}, [3, 3], {})
    assert manager.pods == ()
    assert manager.affinity("p", "a") == UNDECIDED


def test_an_exception_while_asking_leaves_everything_as_it_was() -> None:
    """Hints that are none are found out before this container gets anything; what others got is undone."""
    provider = Licences([3, 3])

    class Wrong(Saying):
        def topology_hints(self, pod: Any, container: Any) -> Any:  # noqa: ARG002 - the protocol's
            return {"cpu": ["0-3"]} if container.name == "b" else None

    manager = manager_of(provider, Wrong(None))
    with pytest.raises(TypeError, match="expected TopologyHint objects"):
        manager.admit(pod_of("p", "a", "b"))

    assert (provider.free, provider.held) == ([3, 3], {})


class Stubborn(Licences):
    """Fails to take back."""

    def release(self, pod_uid: str, container_name: str) -> None:
        super().release(pod_uid, container_name)
        raise RuntimeError(container_name)


def test_a_failing_release_keeps_nobody_else_from_it() -> None:
    """All providers take back all containers; then the first error is raised, and the pod is gone."""
    first, last = Licences([2, 2]), Licences([2, 2])
    manager = manager_of(first, Stubborn([2, 2]), last)
    assert manager.admit(pod_of("p", "a", "b")).admitted
    with pytest.raises(RuntimeError, match="b"):
        manager.remove("p")

    assert (first.free, last.free) == ([2, 2], [2, 2])
    assert manager.pods == ()


def test_a_pod_is_admitted_once() -> None:
    """The second time is an error that takes nothing from the pod."""
    provider = Licences([2, 2])
    manager = manager_of(provider)
    manager.admit(pod_of("p"))
    with pytest.raises(PodExistsError, match="got uid 'p' a second time"):
        manager.admit(pod_of("p"))

    assert provider.free == [1, 2]
    assert manager.affinity("p", "c0") == hint(True, 0)


@pytest.mark.parametrize("uid", ["", "never"])
def test_an_unknown_uid_cannot_be_removed(uid: str) -> None:
    with pytest.raises(UnknownPodError, match=f"expected the uid of an admitted pod, got '{uid}'"):
        manager_of().remove(uid)


def test_a_refused_pod_is_not_there_to_be_removed() -> None:
    manager = manager_of(Saying({"cpu": []}))
    assert not manager.admit(pod_of("p")).admitted
    with pytest.raises(UnknownPodError):
        manager.remove("p")


def test_a_provider_can_be_added_later() -> None:
    """Pods that are here already are none of its business; later ones are."""
    manager = manager_of()
    manager.admit(pod_of("early"))
    late = Licences([0, 1])
    manager.add_provider(late)
    manager.admit(pod_of("p"))

    assert manager.providers == (late,)
    assert manager.affinity("early", "c0") == hint(True, 0, 1)
    assert manager.affinity("p", "c0") == hint(True, 1)
    manager.remove("early")
    assert late.free == [0, 0]


def test_an_affinity_outlives_a_restart() -> None:
    """A container's affinity goes with the last id that stands for it; what it holds stays with the pod."""
    provider = Licences([1, 0])
    manager = manager_of(provider)
    pod = pod_of("p", "a")
    manager.admit(pod)
    manager.add_container(pod, "a", "first")
    manager.add_container(pod, "a", "second")

    manager.remove_container("first")
    assert manager.affinity("p", "a") == hint(True, 0)
    manager.remove_container("second")
    manager.remove_container("unknown")
    assert manager.affinity("p", "a") == UNDECIDED
    assert provider.free == [0, 0]


def test_an_observer_is_told_each_verdict() -> None:
    """Admissions and refusals, with how long they took."""
    notes = Notes()
    manager = manager_of(Licences([1, 0]), observer=notes)
    manager.admit(pod_of("p"))
    manager.admit(pod_of("q"))

    assert notes.verdicts == [True, False]
    assert all(0 <= seconds < 60 for seconds in notes.seconds)


def test_a_policy_with_a_wrong_scope_is_no_manager() -> None:
    with pytest.raises(ValueError, match="topologyManagerScope"):
        TopologyManager(RESTRICTED, "node")


# ---- one node, many threads ----


def state(node: Node) -> tuple[Any, ...]:
    """Return what is free now."""
    assert node.devices is not None
    return str(node.shared_cpus), node.devices.free, node.devices.given, node.pods


class Tenant(Thread):
    """Admits and removes pods of its own, and checks that nobody else has what it gets."""

    def __init__(self, node: Node, number: int, held: set[Any], lock: Lock, start_line: Barrier) -> None:
        super().__init__()
        self.node, self.number, self.held, self.lock, self.start_line = node, number, held, lock, start_line
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
    """Eight threads admit and remove at once: nothing is given twice, and in the end all is free again."""
    node = busy_node()
    before = state(node)
    held: set[Any] = set()
    lock, start_line = Lock(), Barrier(8)
    tenants = [Tenant(node, number, held, lock, start_line) for number in range(8)]
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
    assert not held


LEAK = """
import gc, sys
from pathlib import Path
sys.path.insert(0, {path!r})
from machines import busy_node, manifest
from alignup import Pod

def resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

node = busy_node(2, 4)
fits, refused = Pod.from_manifest(manifest("fits", 2, 1, 1)), Pod.from_manifest(manifest("refused", 2, 1, 9))

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


def growth(times: int) -> int:
    """Return by how many bytes a fresh interpreter grows over so many admissions, refusals and removals."""
    code = LEAK.format(path=str(Path(machines.__file__).parent), times=times)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603 - our own
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/statm")
def test_memory_stays_where_it_was() -> None:
    """Admitting and removing 10,000 times leaves only noise behind: a leak of 50 bytes a time would show."""
    assert growth(10_000) < 512 * 1024


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/statm")
def test_memory_stays_where_it_was_for_long() -> None:
    """The same for 100,000 admissions and removals: a leak of 5 bytes a time would show."""
    assert growth(100_000) < 512 * 1024


def test_what_is_no_policy_scope_or_provider_is_refused() -> None:
    """A wrong argument is named when it is given, not when it is used."""
    policy = make_policy("none", 1)

    with pytest.raises(TypeError, match="got 'restricted'"):
        TopologyManager("restricted")
    with pytest.raises(TypeError, match="got None"):
        TopologyManager(policy, None)
    with pytest.raises(TypeError, match="without topology_hints, pod_topology_hints, allocate, release"):
        TopologyManager(policy).add_provider(3)
