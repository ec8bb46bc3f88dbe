"""What would be: trying a pod, copying a node, and what a refusal leaves behind."""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from alignup import read_pod
from alignup.errors import ConfigError, InputError, PodExistsError
from alignup.node import Node
from fakes.hint_providers import Licences, Saying, Wrapped
from inputs.cluster_nodes import node_of, pod_of
from inputs.machines import machine_of
from inputs.strategies import seeds

if TYPE_CHECKING:
    from alignup.kubernetes.pod import Pod
    from alignup.topology_manager.admission import Admission

KUBELET = {
    "topologyManagerPolicy": "best-effort",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
}
DEVICES = {"example.com/gpu": [{"id": "g0", "numa": [1]}]}


def state_of(node: Node) -> dict[str, Any]:
    """Return all that decides on later pods, and what the pods hold."""
    state: dict[str, Any] = {
        "pods": [pod.uid for pod in node.pods],
        "held": {
            (pod.uid, container.name): node.allocation(pod.uid, container.name)
            for pod in node.pods
            for container in pod.all_containers
        },
        "occupancy": node.occupancy,
    }
    if node.cpu:
        ledger = node.cpu.ledger
        state["cpu"] = (ledger.given, ledger.free_by_node(), node.shared_cpus)

    if node.memory:
        memory = node.memory.ledger
        state["memory"] = (memory.free, memory.groups, memory.alone, memory.unused)

    if node.devices:
        state["devices"] = {
            resource: pool.ledger.given for resource, pool in node.devices.pools.items()
        }

    return state


def answer_of(admission: Admission) -> tuple[Any, ...]:
    """Return what an admission says."""
    return (
        admission.admitted,
        admission.reason,
        admission.message,
        dict(admission.containers),
        admission.exact,
    )


def attempt(node: Node, pod: Pod, how: str = "admit") -> tuple[Any, ...]:
    """Return what a node answers, as values."""
    try:
        return answer_of(getattr(node, how)(pod))
    except ConfigError as error:  # the pod's own policy does not go with so many NUMA nodes
        return ("no such policy", str(error))


def cases(seed: int, count: int) -> list[tuple[Random, dict[str, Any], Node]]:
    """Return nodes of every kind in every state, each with its own source of pods."""
    random = Random(seed)
    return [(Random(number), *node_of(random)) for number in range(count)]


def pod_for(random: Random, scenario: dict[str, Any], uid: str) -> Pod:
    return read_pod(pod_of(random, uid, scenario["machine"], scenario["devices"]))


def pod(uid: str, *containers: dict[str, str]) -> dict[str, Any]:
    """Return a Guaranteed pod of containers with these limits."""
    return {
        "metadata": {"name": uid, "uid": uid},
        "spec": {
            "containers": [
                {
                    "name": f"c{index}",
                    "image": "i",
                    "resources": {"limits": {"memory": "1Gi", **limits}},
                }
                for index, limits in enumerate(containers)
            ]
        },
    }


@pytest.mark.parametrize("seed", seeds(1, 8))
def test_trying_changes_nothing_and_foretells_what_admit_gives(seed: int) -> None:
    """Verdict, reason, message and what is given are those of the admission that follows."""
    admitted = refused = 0
    for random, scenario, node in cases(seed, 30):
        for number in range(5):
            wish = pod_for(random, scenario, f"new-{number}")
            before = state_of(node)
            tried = attempt(node, wish, "try_admit")
            assert state_of(node) == before
            assert attempt(node, wish, "try_admit") == tried
            assert attempt(node, wish) == tried
            admitted += tried[0] is True
            refused += tried[0] is False

    assert admitted > 30
    assert refused > 30


def test_a_pod_that_is_there_cannot_be_tried() -> None:
    node = Node(machine_of(2, 4), KUBELET)
    assert node.admit(pod("a", {"cpu": "2"})).admitted
    before = state_of(node)
    with pytest.raises(PodExistsError):
        node.try_admit(pod("a", {"cpu": "2"}))
    with pytest.raises(InputError):
        node.try_admit({"kind": "Pod"})
    assert state_of(node) == before


def test_a_users_provider_gets_back_what_it_gave_on_trial() -> None:
    """It is asked to allocate and to release, also where it fails."""
    licences = Licences([1, 1])
    node = Node(machine_of(2, 4), KUBELET, providers=[licences])
    for fails_for in (None, "c1"):
        licences.fails_for = fails_for
        tried = node.try_admit(pod("a", {"cpu": "1"}, {"cpu": "1"}))
        assert tried.admitted is (fails_for is None)
        assert licences.free == [1, 1]
        assert licences.held == {}
        assert node.pods == ()

    licences.error = OSError("the licence server is down")
    before = state_of(node)
    with pytest.raises(OSError, match="licence server"):
        node.try_admit(pod("a", {"cpu": "1"}, {"cpu": "1"}))

    assert state_of(node) == before
    assert licences.free == [1, 1]


class Told:
    """An observer that remembers what it was told."""

    def __init__(self) -> None:
        self.verdicts: list[bool] = []

    def admission(self, _seconds: float, admitted: bool) -> None:
        self.verdicts.append(admitted)


def test_observers_are_not_told_of_trials() -> None:
    """Neither of the admission nor of the refusal, nor of what a copy does."""
    observer = Told()
    node = Node(machine_of(2, 4), KUBELET, observer=observer)
    assert node.try_admit(pod("a", {"cpu": "2"})).admitted
    assert not node.try_admit(pod("a", {"cpu": "200"})).admitted
    assert node.copy().admit(pod("a", {"cpu": "2"})).admitted
    assert observer.verdicts == []
    assert node.admit(pod("a", {"cpu": "2"})).admitted
    assert observer.verdicts == [True]


@pytest.mark.parametrize("seed", seeds(1, 6))
def test_a_copy_goes_its_own_way(seed: int) -> None:
    """What is admitted and removed on either is unseen by the other.

    Both answer alike from the same state.
    """
    for random, scenario, node in cases(100 + seed, 30):
        before = state_of(node)
        copied = node.copy()
        assert state_of(copied) == before
        wishes = [pod_for(random, scenario, f"new-{number}") for number in range(4)]
        answers = [attempt(copied, wish) for wish in wishes]
        for admitted in copied.pods[:2]:
            copied.remove(admitted.uid)
        assert state_of(node) == before

        changed = state_of(copied)
        assert [attempt(node, wish) for wish in wishes] == answers
        assert state_of(copied) == changed
        for admitted in node.pods:
            node.remove(admitted.uid)
        assert state_of(copied) == changed
        for admitted in copied.pods:
            copied.remove(admitted.uid)
        assert state_of(copied) == state_of(node)


def test_a_copy_of_a_copy_is_as_good() -> None:
    """Refusals, pods with policies of their own and devices that are gone included."""
    for random, scenario, node in cases(7, 40):
        last = node
        for _ in range(3):
            last = last.copy()
        wish = pod_for(random, scenario, "new")
        assert attempt(last, wish) == attempt(node, wish)
        assert state_of(last) == state_of(node)


def test_the_standard_library_copies_a_node_the_same_way() -> None:
    """Two nodes that share their books would spoil them."""
    node = Node(machine_of(2, 4), KUBELET)
    assert copy(node).admit(pod("a", {"cpu": "2"}))
    assert not node.pods


def test_copying_needs_providers_that_can_be_copied() -> None:
    """Those of users, and those that are wrapped.

    With a method `copy` they take part in the copy.
    """

    class Copied(Licences):
        def copy(self) -> Copied:
            return Copied(list(self.free), held=dict(self.held))

    for more in ({"providers": [Saying(None)]}, {"wrap": Wrapped}):
        with pytest.raises(TypeError, match=r"method copy\(\)"):
            Node(machine_of(2, 4), KUBELET, **more).copy()

    licences = Copied([1, 1])
    node = Node(machine_of(2, 4), KUBELET, providers=[licences])
    copied = node.copy()
    assert copied.admit(pod("a", {"cpu": "1"})).admitted
    assert licences.free == [1, 1]
    copied.remove("a")
    assert copied.admit(pod("a", {"cpu": "1"})).admitted


HALFWAY = pod("halfway", {"cpu": "1", "example.com/gpu": "1"}, {"cpu": "1", "example.com/gpu": "1"})
"""Its first container takes the only device and sits alone on node 1, near to it.

Its second is refused.
"""


def group_of_both(*, keep: bool) -> Node:
    """Return a node whose memory is in use as a group of both NUMA nodes."""
    node = Node.from_dict(
        {
            "machine": machine_of(2, 4),
            "kubelet": KUBELET,
            "devices": DEVICES,
            "keepRefusedBindings": keep,
        }
    )
    assert node.admit(pod("group", {"cpu": "2", "memory": "40Gi"})).admitted
    assert node.memory.ledger.groups == (0b11,)
    return node


def bound_by_a_refused_pod(*, keep: bool) -> Node:
    """Return such a node after a pod that was refused halfway."""
    node = group_of_both(keep=keep)
    assert node.admit(HALFWAY).reason == "UnexpectedAdmissionError"
    return node


def test_a_refusal_leaves_a_binding_as_in_the_kubelet() -> None:
    """Node 1 stays out of the group, so the next pod may sit there alone."""
    node = bound_by_a_refused_pod(keep=True)
    assert node.memory.ledger.groups == ()
    assert node.memory.ledger.alone == 0b10
    hint = node.admit(pod("next", {"cpu": "1"})).containers["c0"].affinity
    assert (int(hint.affinity), hint.preferred) == (0b10, True)


def test_a_refusal_leaves_nothing_where_that_is_wanted() -> None:
    """The node is exactly as it was before the refused pod came."""
    node = bound_by_a_refused_pod(keep=False)
    assert node.memory.ledger.groups == (0b11,)
    assert node.memory.ledger.alone == 0
    hint = node.admit(pod("next", {"cpu": "1"})).containers["c0"].affinity
    assert not hint.preferred


def test_trying_leaves_no_binding_in_either_case() -> None:
    """Nor is the pod admitted by halves: it is refused again when it comes."""
    for keep in (True, False):
        node = group_of_both(keep=keep)
        before = state_of(node)
        assert node.try_admit(HALFWAY).reason == "UnexpectedAdmissionError"
        assert state_of(node) == before
        assert node.copy().admit(HALFWAY).reason == "UnexpectedAdmissionError"
        assert state_of(node) == before


@pytest.mark.parametrize("seed", seeds(1, 4))
def test_refusals_change_nothing_without_kept_bindings(seed: int) -> None:
    """On every kind of node, in every state."""
    refusals = 0
    for random, scenario, _ in cases(200 + seed, 30):
        node = Node.from_dict({**scenario, "keepRefusedBindings": False})
        for number in range(8):
            wish = pod_for(random, scenario, f"new-{number}")
            before = state_of(node)
            with suppress(ConfigError):
                if not node.admit(wish).admitted:
                    refusals += 1
                    assert state_of(node) == before
    assert refusals > 30
