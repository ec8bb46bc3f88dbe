"""Exceptions from outside: the node is as before the call that they end, or as after it.

A trace function raises at every line, call and return of the package, one after the other; signal
handlers raise at random moments.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from alignup.cluster.cluster import Cluster
from running import interrupting
from running.interrupting import Interrupted, container, node_of, pod, state

if TYPE_CHECKING:
    from collections.abc import Callable

    from alignup.node import Node

# Python itself drops what is raised while a generator is closed or memory is collected
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SHARED = {
    "kubelet": {
        "topologyManagerScope": "pod",
        "featureGates": {"PodLevelResources": True, "PodLevelResourceManagers": True},
    }
}

INIT = {"initContainers": [container("first", "4", "2Gi", 2), container("second", "2")]}

WHOLE = pod(
    "x",
    container("c"),
    container("d", "1", gpus=0),
    resources={"limits": {"cpu": "6", "memory": "4Gi"}},
)

TOO_MUCH = pod("x", container("c", gpus=9))
SECOND_TOO_LARGE = pod("x", container("c"), container("d", "200", gpus=0))
POLICY = "scheduling.koordinator.sh/numa-topology-spec"
EXCLUSIVE = {"metadata": {"annotations": {POLICY: '{"numaTopologyPolicy": "Restricted"}'}}}


def interrupted(moment: int, do: Callable[[], object]) -> bool:
    """Do something until an exception is raised at a moment inside the package.

    Return whether it came to that.
    """
    remaining = moment
    previous = sys.gettrace()

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal remaining
        if "alignup" not in frame.f_code.co_filename:
            return None
        if event in ("line", "call", "return"):
            remaining -= 1
            if not remaining:
                sys.settrace(None)
                raise Interrupted

        return trace

    sys.settrace(trace)
    try:
        do()
    except Interrupted:
        pass
    finally:
        sys.settrace(previous)

    return remaining <= 0


def is_free(node: Node) -> bool:
    """Return whether another thread gets the node's lock."""
    got: list[bool] = []

    def look() -> None:
        with node.manager.lock.guard() as guard, guard.take():
            got.append(True)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(10)
    return bool(got)


OPERATIONS: dict[str, tuple[dict[str, Any], list[dict[str, Any]], Callable[[Node], object]]] = {
    "admit": ({}, [], lambda node: node.admit(pod("x"))),
    "admit beside another": ({}, [pod("y")], lambda node: node.admit(pod("x"))),
    "admit with init containers": ({}, [], lambda node: node.admit(pod("x", **INIT))),
    ("admit across NUMA "
    "nodes"): ({}, [], lambda node: node.admit(pod("x", container("c", "80", "1Gi", 0)))),
    "admit a pod with resources": (SHARED, [], lambda node: node.admit(WHOLE)),
    "admit without traces": ({"keepRefusedBindings": False}, [], lambda node: node.admit(TOO_MUCH)),
    ("admit with a whole "
    "verdict"): ({"wholeVerdict": True}, [pod("y")], lambda node: node.admit(pod("x"))),
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
        {"kubelet": {"topologyManagerPolicy": "none"}},
        [],
        lambda node: node.admit(pod("x", **EXCLUSIVE)),
    ),
    "remove": ({}, [pod("y"), pod("z")], lambda node: node.remove("y")),
    ("remove after init "
    "containers"): ({}, [pod("y", **INIT), pod("z")], lambda node: node.remove("y")),
    "remove a pod with resources": (SHARED, [WHOLE], lambda node: node.remove("x")),
    "remove under a policy of its own": (
        {"kubelet": {"topologyManagerPolicy": "none"}},
        [pod("y", **EXCLUSIVE)],
        lambda node: node.remove("y"),
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
    node = node_of(
        **{key: dict(value) if isinstance(value, dict) else value for key, value in more.items()}
    )
    for manifest in pods:
        assert node.admit(manifest).admitted
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
        for admitted_pod in node.pods:
            node.remove(admitted_pod.uid)
        assert node.cpu is not None
        assert node.cpu.ledger.given == 0
        assert not any(pool.ledger.given for pool in node.pools.values())
        assert moment % 40 or is_free(node)

    assert moment > 20


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_exception_at_any_line_leaves_the_node_before_or_after(operation: str) -> None:
    """One line of five, others in each run."""
    interrupt_everywhere(operation, first=random.SystemRandom().randint(1, 5), step=5)


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
    command = [sys.executable, interrupting.__file__, str(seed)]
    process = subprocess.run(  # noqa: S603  # ours
        command, check=False, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr[-2000:]
