"""Scopes: what is asked, decided and allocated together.

The Store keeps the affinity of each container for as long as something stands for it.
"""

from __future__ import annotations

import pytest

from alignup.errors import AllocationError, ConfigError
from alignup.topology_manager.hints import TopologyHint
from alignup.topology_manager.policy import make_policy
from alignup.topology_manager.scope import (
    TOPOLOGY_AFFINITY_ERROR,
    ContainerScope,
    NoneScope,
    PodScope,
    Scope,
    Store,
    make_scope,
)
from fakes.hint_providers import Licences, Saying, hint, pod_of

UNDECIDED = TopologyHint(None, False)


RESTRICTED = make_policy("restricted", 2)
BEST_EFFORT = make_policy("best-effort", 2)


@pytest.mark.parametrize(
    ("name", "policy", "expected"),
    [
        ("container", "restricted", ContainerScope),
        ("pod", "single-numa-node", PodScope),
        ("container", "none", NoneScope),
        ("pod", "none", NoneScope),
    ],
)
def test_the_scope_follows_from_name_and_policy(
    name: str, policy: str, expected: type[Scope]
) -> None:
    """Without alignment there is nothing that a scope could tell apart."""
    assert type(make_scope(name, make_policy(policy, 2))) is expected


@pytest.mark.parametrize("policy", ["none", "restricted"])
def test_an_unknown_scope_is_refused(policy: str) -> None:
    with pytest.raises(
        ConfigError, match="one of container, pod, got 'node' at topologyManagerScope"
    ):
        make_scope("node", make_policy(policy, 2))


def test_container_scope_goes_container_by_container() -> None:
    """Init containers first.

    Each is asked for when the one before has its share, with its own affinity.
    """
    provider, store = Licences([1, 2]), Store()
    pod = pod_of("p", "a", "b", init=["i"])

    assert ContainerScope().admit(pod, RESTRICTED, [provider], store) is None
    assert provider.log == [
        (step, "licences", name) for name in ("i", "a", "b") for step in ("hints", "allocate")
    ]  # fmt: skip
    assert dict(store.pod_affinities("p")) == {
        "i": hint(True, 0),
        "a": hint(True, 1),
        "b": hint(True, 1),
    }


def test_pod_scope_decides_once_for_all() -> None:
    """Hints are asked for the pod as a whole, and every container gets the same affinity."""
    provider, store = Licences([2, 0]), Store()

    assert PodScope().admit(pod_of("p", "a", "b"), RESTRICTED, [provider], store) is None
    assert provider.log == [
        ("pod hints", "licences"),
        ("allocate", "licences", "a"),
        ("allocate", "licences", "b"),
    ]
    assert dict(store.pod_affinities("p")) == {"a": hint(True, 0), "b": hint(True, 0)}


def test_no_scope_asks_for_nothing() -> None:
    """Containers get what there is from anywhere, and no affinity is kept."""
    provider, store = Licences([0, 1]), Store()

    assert NoneScope().admit(pod_of("p", "a"), make_policy("none", 2), [provider], store) is None
    assert provider.log == [("allocate", "licences", "a")]
    assert store.pod_affinities("p") == {}


def test_every_provider_is_asked_before_any_allocates() -> None:
    first, second = Licences([1, 1]), Licences([1, 1])
    second.log = first.log
    second.name = "other"
    ContainerScope().admit(pod_of("p", "a"), RESTRICTED, [first, second], Store())

    assert [entry[:2] for entry in first.log] == [
        ("hints", "licences"),
        ("hints", "other"),
        ("allocate", "licences"),
        ("allocate", "other"),
    ]


@pytest.mark.parametrize(
    ("scope", "names", "container"),
    [(ContainerScope(), ("b",), "b"), (PodScope(), ("a", "b"), None)],
)
def test_a_refusal_carries_the_facts(
    scope: Scope, names: tuple[str, ...], container: str | None
) -> None:
    """Policy, container, best hint and what was offered, so that somebody can explain it later."""
    offered = {"cpu": [hint(True, 0)]}
    taken = {"gpu": [hint(True, 1)]}
    refusal = scope.admit(
        pod_of("p", *names), RESTRICTED, [Saying(offered), Saying(taken), Saying(None)], Store()
    )

    assert refusal is not None
    assert (refusal.reason, refusal.detail) == (TOPOLOGY_AFFINITY_ERROR, "")
    assert (refusal.container, refusal.policy) == (container, "restricted")
    assert refusal.best == hint(False, 0, 1)
    assert refusal.hints == (offered, taken, None)


@pytest.mark.parametrize(
    "scope", [NoneScope(), ContainerScope(), PodScope()], ids=lambda scope: scope.name
)
def test_a_provider_that_cannot_give_refuses(scope: Scope) -> None:
    """Its reason and sentence come with the container and the affinity that it had been given."""
    provider = Licences([2, 2], fails_for="b", error=AllocationError("no licence", "LicenceError"))
    refusal = scope.admit(pod_of("p", "a", "b"), BEST_EFFORT, [provider], Store())

    assert refusal is not None
    assert (refusal.reason, refusal.detail, refusal.container) == (
        "LicenceError",
        "no licence",
        "b",
    )
    assert refusal.best == (TopologyHint(None, False) if scope.name == "none" else hint(True, 0))


def store_of(**affinities: TopologyHint) -> Store:
    store = Store()
    for name, affinity in affinities.items():
        store.set("pod", name, affinity)
    return store


def test_what_was_set_is_found() -> None:
    """By pod and container; the last word counts."""
    store = store_of(a=hint(True, 0), b=hint(False, 1))
    store.set("pod", "b", hint(True, 2))

    assert store.affinity("pod", "a") == hint(True, 0)
    assert store.pod_affinities("pod") == {"a": hint(True, 0), "b": hint(True, 2)}


def test_nothing_is_known_of_others() -> None:
    """Unknown pods and containers have no mask and no preference."""
    store = store_of(a=hint(True, 0))

    assert store.affinity("pod", "b") == UNDECIDED
    assert store.affinity("other", "a") == UNDECIDED
    assert store.pod_affinities("other") == {}


def test_a_copy_is_independent() -> None:
    """What comes to it or goes from it leaves the first as it was."""
    store = store_of(a=hint(True, 0))
    store.add_container("pod", "a", "id")
    copy = store.copy()
    copy.set("pod", "b", hint(True, 1))
    copy.remove_container("id")

    assert store.pod_affinities("pod") == {"a": hint(True, 0)}
    assert copy.pod_affinities("pod") == {"b": hint(True, 1)}


def test_a_forgotten_pod_is_gone_with_its_ids() -> None:
    """Other pods keep what they have; an id of the forgotten pod stands for nothing any more."""
    store = store_of(a=hint(True, 0))
    store.set("other", "a", hint(True, 1))
    store.add_container("pod", "a", "id-1")
    store.add_container("other", "a", "id-2")

    store.forget_pod("pod")
    store.forget_pod("pod")
    store.remove_container("id-1")

    assert store.affinity("pod", "a") == UNDECIDED
    assert store.affinity("other", "a") == hint(True, 1)

    store.remove_container("id-2")
    assert store.affinity("other", "a") == UNDECIDED


def test_an_affinity_goes_with_the_last_id() -> None:
    """A restarted container has its new id before the old one is removed."""
    store = store_of(a=hint(True, 0), b=hint(True, 1))
    store.add_container("pod", "a", "first")
    store.add_container("pod", "a", "second")

    store.remove_container("first")
    assert store.affinity("pod", "a") == hint(True, 0)

    store.remove_container("second")
    assert store.affinity("pod", "a") == UNDECIDED
    assert store.affinity("pod", "b") == hint(True, 1)


def test_a_pod_goes_with_its_last_container() -> None:
    store = store_of(a=hint(True, 0))
    store.add_container("pod", "a", "id")
    store.remove_container("id")

    assert store.pod_affinities("pod") == {}


def test_unknown_ids_are_no_error() -> None:
    """Removing an id twice, or one that never was, changes nothing."""
    store = store_of(a=hint(True, 0))
    store.remove_container("never")
    store.add_container("nobody", "a", "id")
    store.remove_container("id")
    store.remove_container("id")

    assert store.affinity("pod", "a") == hint(True, 0)
