"""The manager admits a pod, or leaves everything as it was."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from alignup.errors import AlignupWarning, InputError, PodExistsError, UnknownPodError
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES
from alignup.topology_manager.hints import TopologyHint
from alignup.topology_manager.manager import TopologyManager
from alignup.topology_manager.policy import make_policy
from alignup.topology_manager.scope import ContainerScope
from fakes.hint_providers import Licences, Saying, hint, pod_of
from inputs.machines import manifest

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
@pytest.mark.parametrize("policy", TOPOLOGY_POLICIES)
def test_no_preference_is_no_obstacle(policy: str, nothing: Any) -> None:
    """None, an empty mapping and a resource without hints all leave the choice to others."""
    assert manager_of(Saying(nothing), Licences([0, 1]), policy=policy).admit(pod_of("p")).admitted


@pytest.mark.parametrize("impossible", [{"gpu": []}, {"gpu": ()}])
@pytest.mark.parametrize(
    ("policy", "admitted"), [*zip(TOPOLOGY_POLICIES, (True, True, False, False), strict=True)]
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
    "error",
    [ZeroDivisionError("a bug"), KeyboardInterrupt()],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_an_exception_in_a_provider_leaves_everything_as_it_was(
    scope: str, error: BaseException
) -> None:
    """A bug in somebody's provider reaches the caller, and costs no licence."""
    first, second = Licences([3, 3]), Licences([3, 3], fails_for="b", error=error)
    manager = manager_of(first, second, scope=scope)
    with pytest.raises(type(error)):
        manager.admit(pod_of("p", "a", "b"))

    assert (first.free, first.held, second.free, second.held) == ([3, 3], {}, [3, 3], {})
    assert manager.pods == ()
    assert manager.affinity("p", "a") == UNDECIDED


def test_an_exception_while_asking_leaves_everything_as_it_was() -> None:
    """Hints that are none are found out before this container gets anything.

    What others got is undone.
    """
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
    """All providers take back all containers.

    Then the first error is raised, and the pod is gone.
    """
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
    with pytest.raises(PodExistsError, match="uid 'p' is admitted already"):
        manager.admit(pod_of("p"))

    assert provider.free == [1, 2]
    assert manager.affinity("p", "c0") == hint(True, 0)


@pytest.mark.parametrize("uid", ["", "never"])
def test_an_unknown_uid_cannot_be_removed(uid: str) -> None:
    with pytest.raises(UnknownPodError, match=f"no pod of uid '{uid}' is admitted"):
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
    """A container's affinity goes with the last id that stands for it.

    What it holds stays with the pod.
    """
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


def test_what_is_no_policy_scope_or_provider_is_refused() -> None:
    """A wrong argument is named when it is given, not when it is used."""
    policy = make_policy("none", 1)

    with pytest.raises(TypeError, match="got 'restricted'"):
        TopologyManager("restricted")
    with pytest.raises(TypeError, match="got None"):
        TopologyManager(policy, None)
    with pytest.raises(
        TypeError, match="without topology_hints, pod_topology_hints, allocate, release"
    ):
        TopologyManager(policy).add_provider(3)


def test_a_method_that_is_none_is_missing() -> None:
    class Half(Licences):
        allocate = None

    with pytest.raises(TypeError, match=r"without allocate$"):
        manager_of(Half([1, 1]))


@pytest.mark.parametrize(("in_pod_order", "names"), [(True, ["a", "b"]), (False, ["b", "a"])])
def test_a_copy_releases_containers_in_the_order_of_the_first(
    in_pod_order: bool, names: list[str]
) -> None:
    manager, provider = manager_of(Licences([2, 2]), in_pod_order=in_pod_order), Licences([2, 2])
    manager.admit(pod_of("p", "a", "b"))
    manager.copy((provider,)).remove("p")

    assert provider.log == [("release", provider.name, name) for name in names]


@pytest.mark.parametrize("observer", [3, "notes", Notes])
def test_an_observer_is_checked_when_it_is_given(observer: Any) -> None:
    """A class has the method too, and is not what would be called."""
    with pytest.raises(
        TypeError, match=r"^expected an observer with a method admission\(seconds, admitted\), got"
    ):
        manager_of(Licences([2, 2]), observer=observer)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ZeroDivisionError("no metrics"), "ZeroDivisionError: no metrics"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_an_observer_that_fails_is_warned_of(error: Exception, said: str) -> None:
    """The pod has its answer all the same."""

    class Broken:
        def admission(self, *_: Any) -> None:
            raise error

    manager = manager_of(Licences([2, 2]), observer=Broken())
    with pytest.warns(AlignupWarning, match=f"^the observer .* failed: {said}$"):
        assert manager.admit(pod_of("a")).admitted
    assert [pod.uid for pod in manager.pods] == ["a"]
