"""A gated pod is pinned to nodes in the two ways that an API server lets one change it."""

from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.control_plane.gates.node_affinity import pinned, required_terms, unpinned
from alignup.kubernetes.manifest import read_pod
from alignup.kubernetes.node_fit import NodeObject, selects

LABEL = "alignup.dev/place-of-a"
NAMES = ("a", "b", "c")
ZONES = ("east", "west")

EXPRESSIONS = st.one_of(
    st.builds(
        lambda operator, zone: {"key": "zone", "operator": operator, "values": [zone]},
        st.sampled_from(["In", "NotIn"]),
        st.sampled_from(ZONES),
    ),
    st.builds(
        lambda operator: {"key": "disk", "operator": operator},
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
)
FIELDS = st.builds(
    lambda operator, name: {"key": "metadata.name", "operator": operator, "values": [name]},
    st.sampled_from(["In", "NotIn"]),
    st.sampled_from(NAMES),
)
TERMS = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.lists(EXPRESSIONS, max_size=2),
        "matchFields": st.lists(FIELDS, max_size=2),
    },
)
NODES = st.builds(
    NodeObject,
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from(["disk", LABEL]), st.just(""), max_size=2).flatmap(
        lambda labels: st.sampled_from(ZONES).map(lambda zone: {**labels, "zone": zone})
    ),
)


def affinity_of(terms):
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


def selected(affinity, node):
    """Return whether the affinity of a pod matches a node."""
    container = {"name": "c", "resources": {}}
    spec = {"containers": [container], "affinity": affinity}
    return selects(read_pod({"metadata": {"name": "p"}, "spec": spec}), node)


def is_taken_by_the_server(affinity, changed):
    """Return whether an API server takes a change of a gated pod, by the words of its rules."""
    terms = required_terms(affinity)
    changed_terms = required_terms(changed)
    if not terms:
        return True
    if len(terms) != len(changed_terms):
        return False

    for term, changed_term in zip(terms, changed_terms, strict=True):
        is_empty = not term.get("matchExpressions") and not term.get("matchFields")
        for kind in ("matchExpressions", "matchFields"):
            before = term.get(kind) or []
            after = changed_term.get(kind) or []
            if after[: len(before)] != before or (is_empty and after):
                return False

    return True


@given(st.lists(TERMS, min_size=1, max_size=3), st.sampled_from(NAMES), NODES)
def test_terms_of_its_own_become_narrower(terms, name, node) -> None:
    affinity = affinity_of(terms)
    by_name = pinned(affinity, [name])
    by_label = pinned(affinity, [name], LABEL)

    for changed in (by_name, by_label):
        assert is_taken_by_the_server(affinity, changed)

    was_selected = selected(affinity, node)
    assert selected(by_name, node) == (was_selected and node.name == name)
    assert selected(by_label, node) == (was_selected and LABEL in node.labels)


@given(st.lists(st.sampled_from(NAMES), unique=True), st.sampled_from(["", LABEL]), NODES)
def test_without_terms_of_its_own_names_and_a_label_are_alternatives(names, label, node) -> None:
    if not names and not label:
        with pytest.raises(ValueError, match="needs a node"):
            pinned(None, names)
        return

    expected = node.name in names or (bool(label) and label in node.labels)
    assert selected(pinned(None, names, label), node) == expected


def test_all_else_in_an_affinity_stays_and_nothing_is_changed_in_place() -> None:
    preferred = [{"weight": 1, "preference": {"matchExpressions": []}}]
    affinity = {
        "podAffinity": {"a": 1},
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred},
    }
    before = deepcopy(affinity)
    changed = pinned(affinity, ["a"])

    assert affinity == before
    assert changed["podAffinity"] == {"a": 1}
    assert changed["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] == preferred
    assert len(required_terms(changed)) == 1


def test_several_names_do_not_go_into_terms_of_its_own() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    with pytest.raises(ValueError, match="one node by name"):
        pinned(affinity_of([term]), ["a", "b"])

    changed = pinned(affinity_of([term]), ["a", "b"], LABEL)
    assert required_terms(changed)[0]["matchExpressions"][-1]["key"] == LABEL


@given(
    st.lists(TERMS, max_size=3),
    st.lists(st.sampled_from(NAMES), min_size=1, unique=True),
    st.booleans(),
    NODES,
)
def test_what_was_pinned_by_a_label_is_as_it_was_before(terms, names, has_more, node) -> None:
    """Nodes that have the label are taken or not as all were before."""
    affinity = affinity_of(terms) if terms else None
    if has_more:
        affinity = {**(affinity or {}), "podAffinity": {"a": 1}}

    before = unpinned(pinned(affinity, names, LABEL), LABEL)
    assert unpinned(before, LABEL) == before
    assert selected(before, node) == selected(affinity, node)
    assert (before or {}).get("podAffinity") == (affinity or {}).get("podAffinity")
    if not terms:
        assert before == affinity


@given(st.lists(TERMS, min_size=1, max_size=3))
def test_without_the_label_nothing_is_taken_away(terms) -> None:
    by_name = pinned(affinity_of(terms), ["a"])
    for affinity in (None, {}, affinity_of(terms), by_name):
        assert unpinned(affinity, LABEL) is affinity
