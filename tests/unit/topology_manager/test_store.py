"""The Store keeps the affinity of each container for as long as something stands for it."""

from __future__ import annotations

from alignup.topology_manager.hints import TopologyHint
from alignup.topology_manager.scope import Store
from fakes.hint_providers import hint

UNDECIDED = TopologyHint(None, False)


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
