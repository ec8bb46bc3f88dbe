"""Exceptions from outside: the node is as before the call that they end, or as after it.

A trace function raises at every line, call and return of the package, one after the other; signal handlers raise at
random moments.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from alignup.cluster.cluster import Cluster
from alignup.node import Node
from alignup.node.holdings import holdings_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

# Python itself drops what is raised while a generator is closed or memory is collected
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

GPU = "example.com/gpu"
GIB = "1Gi"


class Interrupted(BaseException):
    """What nobody catches."""


def node_of(**more: Any) -> Node:
    kubelet = {
        "topologyManagerPolicy": "restricted",
        "cpuManagerPolicy": "static",
        "memoryManagerPolicy": "Static",
        "reservedSystemCPUs": "0-1",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": GIB}}],
        **more.pop("kubelet", {}),
    }
    devices = {GPU: [{"id": f"g{i}", "numa": i % 2} for i in range(8)]}
    return Node.from_dict({"machine": "xeon-2s", "kubelet": kubelet, "devices": devices, **more})


def container(name: str, cpu: str = "2", memory: str = GIB, gpus: int = 1) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": memory} | ({GPU: str(gpus)} if gpus else {})
    return {"name": name, "resources": {"limits": amounts, "requests": amounts}}


def pod(uid: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    metadata = {"name": uid, "uid": uid, **spec.pop("metadata", {})}
    return {"metadata": metadata, "spec": {"containers": list(containers or (container("c"),)), **spec}}


def state(node: Node) -> tuple[object, ...]:
    """Return all that can be seen of a node, and what its ledgers and managers keep."""
    ledger = None if node.memory is None else node.memory.ledger
    return (
        node.pods,
        holdings_of(node),
        str(node.shared_cpus),
        node.cpu and node.cpu.ledger.given,
        {resource: pool.ledger.given for resource, pool in node.pools.items()},
        ledger and (ledger.free, ledger.groups, ledger.alone, ledger.unused),
        {one.uid: dict(node.manager.affinities(one.uid)) for one in node.pods},
        {one.uid: [node.allocation(one.uid, each.name) for each in one.all_containers] for one in node.pods},
        node.occupancy,
    )


def interrupted(moment: int, do: Callable[[], object]) -> bool:
    """Do something until an exception is raised at a moment inside the package; return whether it came to that."""
    left, was = moment, sys.gettrace()

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal left
        if "alignup" not in frame.f_code.co_filename:
            return None
        if event in ("line", "call", "return"):
            left -= 1
            if not left:
                sys.settrace(None)
                raise Interrupted
        return trace

    sys.settrace(trace)
    try:
        do()
    except Interrupted:
        pass
    finally:
        sys.settrace(was)
    return left <= 0


def is_free(node: Node) -> bool:
    """Return whether another thread gets the node's lock."""
    got: list[bool] = []

    def look() -> None:
        with node.manager.lock:
            got.append(True)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(10)
    return bool(got)


SHARED = {
    "kubelet": {
        "topologyManagerScope": "pod",
        "featureGates": {"PodLevelResources": True, "PodLevelResourceManagers": True},
    }
}
INIT = {"initContainers": [container("first", "4", "2Gi", 2), container("second", "2")]}
WHOLE = pod("x", container("c"), container("d", "1", gpus=0), resources={"limits": {"cpu": "6", "memory": "4Gi"}})
TOO_MUCH = pod("x", container("c", gpus=9))
SECOND_TOO_LARGE = pod("x", container("c"), container("d", "200", gpus=0))
POLICY = "scheduling.koordinator.sh/numa-topology-spec"
EXCLUSIVE = {"metadata": {"annotations": {POLICY: '{"numaTopologyPolicy": "Restricted"}'}}}
OPERATIONS: dict[str, tuple[dict[str, Any], list[dict[str, Any]], Callable[[Node], object]]] = {
    "admit": ({}, [], lambda node: node.admit(pod("x"))),
    "admit beside another": ({}, [pod("y")], lambda node: node.admit(pod("x"))),
    "admit with init containers": ({}, [], lambda node: node.admit(pod("x", **INIT))),
    "admit across NUMA nodes": ({}, [], lambda node: node.admit(pod("x", container("c", "80", "1Gi", 0)))),
    "admit a pod with resources": (SHARED, [], lambda node: node.admit(WHOLE)),
    "admit without traces": ({"keepRefusedBindings": False}, [], lambda node: node.admit(TOO_MUCH)),
    "admit with a whole verdict": ({"wholeVerdict": True}, [pod("y")], lambda node: node.admit(pod("x"))),
    "preempt": (
        {"wholeVerdict": True},
        [pod(f"low{i}", container("c", "20"), priority=0) for i in range(6)],
        lambda node: node.admit(pod("x", container("c", "20", gpus=0), priority=2_000_001_000)),
    ),
    "refuse": ({}, [], lambda node: node.admit(TOO_MUCH)),
    "refuse the second": ({}, [], lambda node: node.admit(SECOND_TOO_LARGE)),
    "distribute": (
        {"kubelet": {"cpuManagerPolicyOptions": {"distribute-cpus-across-numa": "true"}}},
        [],
        lambda node: node.admit(pod("x", container("c", "80", "1Gi", 0))),
    ),
    "admit under a policy of its own": (
        {"kubelet": {"topologyManagerPolicy": "none"}}, [], lambda node: node.admit(pod("x", **EXCLUSIVE))
    ),
    "remove": ({}, [pod("y"), pod("z")], lambda node: node.remove("y")),
    "remove after init containers": ({}, [pod("y", **INIT), pod("z")], lambda node: node.remove("y")),
    "remove a pod with resources": (SHARED, [WHOLE], lambda node: node.remove("x")),
    "remove under a policy of its own": (
        {"kubelet": {"topologyManagerPolicy": "none"}}, [pod("y", **EXCLUSIVE)], lambda node: node.remove("y")
    ),
    "try": ({"wholeVerdict": True}, [pod("y")], lambda node: node.try_admit(pod("x"))),
    "try what is refused": ({}, [pod("y")], lambda node: node.try_admit(SECOND_TOO_LARGE)),
    "preview": ({}, [pod("y")], lambda node: node.try_admit(pod("x"))),
    "resize": (
        {
            "kubelet": {
                "memoryManagerPolicy": "None",
                "featureGates": {"InPlacePodVerticalScalingExclusiveCPUs": True},
            },
            "kubeletVersion": "1.33",
        },
        [pod("y", container("c", "1500m", gpus=0))],
        lambda node: node.resize("y", {"c": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}}),
    ),
}  # fmt: skip


def made(operation: str) -> tuple[Node, Callable[[Node], object]]:
    more, pods, do = OPERATIONS[operation]
    node = node_of(**{key: dict(value) if isinstance(value, dict) else value for key, value in more.items()})
    for one in pods:
        assert node.admit(one).admitted
    return node, do


def interrupt_everywhere(operation: str, *, first: int = 1, step: int = 1) -> None:
    """Raise at lines, calls and returns; what was there can then be removed, and leaves nothing."""
    whole, do = made(operation)
    before, node = state(whole), whole.copy()
    do(node)
    after = state(node)
    for moment in count(first, step):
        node = whole.copy()
        if not interrupted(moment, partial(do, node)):
            break
        assert state(node) in (before, after), moment
        for one in node.pods:
            node.remove(one.uid)
        assert node.cpu is not None
        assert node.cpu.ledger.given == 0
        assert not any(pool.ledger.given for pool in node.pools.values())
        assert moment % 40 or is_free(node)
    assert moment > 20


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_exception_at_any_line_leaves_the_node_before_or_after(operation: str) -> None:
    """One line of three, others in each run."""
    interrupt_everywhere(operation, first=random.SystemRandom().randint(1, 3), step=3)


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_exception_at_each_line_leaves_the_node_before_or_after(operation: str) -> None:
    interrupt_everywhere(operation)


def test_an_update_of_a_cluster_is_whole() -> None:
    """The rows that are judged are those of the nodes that it has."""
    moment, empty, full = 0, node_of(), node_of()
    full.admit(pod("y", container("c", "60", gpus=4), container("d", "60", gpus=4)))
    while True:
        moment += 1
        cluster = Cluster.from_nodes({"a": empty.copy(), "b": empty.copy()})
        if not interrupted(moment, partial(cluster.update, "a", full.copy())):
            break
        node = cluster.nodes[0]
        assert cluster.free("cpu")[0].sum() == len(node.cpu.free_cpus)
        assert bool(cluster.evaluate(pod("x")).admitted[0]) == node.try_admit(pod("x")).admitted
    assert moment > 10


@pytest.mark.parametrize("seed", range(4))
def test_signal_handlers_that_raise_at_random_leak_nothing(seed: int) -> None:
    """The handler raises in what is under way; nobody loses anything, and the node goes on.

    In a process of its own, where no hook of pytest's is interrupted.
    """
    done = subprocess.run([sys.executable, __file__, str(seed)], check=False, capture_output=True, text=True)  # noqa: S603  # ours
    assert done.returncode == 0, done.stderr[-2000:]


def interrupt_at_random(seed: int) -> None:
    """Raise in thousands of operations on a node, and look after each what is held."""
    draw, node = random.Random(seed), node_of()
    fresh = state(node)

    def handle(_: int, frame: FrameType | None) -> None:
        while frame is not None:  # only in what is tried, however late it comes
            if frame.f_code is operate.__code__:
                raise Interrupted
            frame = frame.f_back

    def operate(uid: str, there: list[str]) -> None:
        if there and draw.random() < 0.4:
            node.remove(draw.choice(there))
            return
        asked = pod(uid, container("c", draw.choice(["1", "2", "4", "70"]), gpus=draw.choice([0, 1, 2])))
        (node.try_admit if draw.random() < 0.2 else node.admit)(asked)

    was = signal.signal(signal.SIGALRM, handle)
    interruptions = 0
    try:
        for number in range(5000):
            there = [one.uid for one in node.pods]
            try:
                # once, or again and again while what the first one interrupted is being undone
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-6, 4e-4), draw.choice([0, 0, 0, 5e-5]))
                operate(f"p{number}", there)
            except Interrupted:
                interruptions += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert {one.uid for one in node.pods} - {f"p{number}"} <= set(there)
            if number % 50 == 49:
                for one in node.pods:
                    node.remove(one.uid)
                assert state(node)[1:6] == fresh[1:6]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, was)
    assert interruptions


if __name__ == "__main__":
    interrupt_at_random(int(sys.argv[1]))
