"""Policies: what each makes of the same hints, and which configurations a kubelet refuses."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from alignup.errors import ConfigError
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES
from alignup.kubernetes.policy_options import TopologyOptions
from alignup.topology_manager.hints import HintList, TopologyHint
from alignup.topology_manager.policy import flatten, make_policy
from alignup.topology_manager.provider import HintProvider
from checks.many_cases import check_each
from fakes.hint_providers import Licences, Saying, hint
from models import topology_manager as model

ANY = TopologyHint(None, True)
UNKNOWN_NUMA_NODE = TopologyHint(None, False)

# What is offered on 2 nodes, and the best hint (mask, preferred) under best-effort and restricted.
# A third pair is what comes of it under single-numa-node, where that differs.
SHARED: dict[str, tuple[Any, ...]] = {
    "no providers": ([], (3, True), (None, True)),
    "a provider without hints": ([None], (3, True), (None, True)),
    "an empty mapping": ([{}], (3, True), (None, True)),
    "a resource without a preference": ([{"cpu": None}], (3, True), (None, True)),
    "a resource that cannot be had": ([{"cpu": []}], (3, False), (None, False)),
    "an empty tuple": ([{"cpu": ()}], (3, False), (None, False)),
    "an empty packed list": ([{"cpu": HintList.empty()}], (3, False), (None, False)),
    "no preference and no provider": ([None, {"cpu": None}, {}], (3, True), (None, True)),
    "no preference joins a node": ([None, {"cpu": [hint(True, 1)]}], (2, True)),
    "impossible spoils a node": (
        [{"gpu": []}, {"cpu": [hint(True, 1)]}],
        (2, False),
        (None, False),
    ),
    "one node of two": ([{"cpu": [hint(True, 0), hint(True, 1), hint(False, 0, 1)]}], (1, True)),
    "the node that both prefer": (
        [{"cpu": [hint(True, 0), hint(True, 1)]}, {"gpu": [hint(True, 1)]}],
        (2, True),
    ),
    "two resources of one provider": (
        [{"cpu": [hint(True, 0), hint(True, 1)], "gpu": [hint(True, 1), hint(False, 0, 1)]}],
        (2, True),
    ),
    "nothing in common": (
        [{"cpu": [hint(True, 0)]}, {"gpu": [hint(True, 1)]}],
        (3, False),
        (None, False),
    ),
    "a node and both nodes": (
        [{"cpu": [hint(True, 0)]}, {"gpu": [hint(True, 0, 1)]}],
        (1, False),
        (None, False),
    ),
    "both nodes preferred": (
        [{"cpu": [hint(True, 0, 1)]}, {"gpu": [hint(True, 0, 1)]}],
        (3, True),
        (None, False),
    ),
    "preferred beats narrower": (
        [{"cpu": [hint(False, 0), hint(True, 0, 1)]}],
        (3, True),
        (None, False),
    ),
    "as wide as the neediest": (
        [{"cpu": [hint(False, 0), hint(False, 0, 1)]}, {"gpu": [hint(False, 0, 1)]}],
        (3, False),
        (None, False),
    ),
    "any node beside a mask": (
        [{"cpu": [ANY, hint(False, 1)]}, {"gpu": [hint(True, 1)]}],
        (2, True),
    ),
    "any node alone": ([{"cpu": [ANY]}], (3, True), (None, True)),
    "any node, not preferred": ([{"cpu": [UNKNOWN_NUMA_NODE]}], (3, False), (None, False)),
    "an empty mask": ([{"cpu": [model.hint_list([(0, True)])[0]]}], (3, False), (None, False)),
    "a mask of other nodes": ([{"cpu": [hint(True, 5)]}], (3, False), (None, False)),
}

NEAR_IN_PAIRS = [[10, 21, 12, 21], [21, 10, 21, 12], [12, 21, 10, 21], [21, 12, 21, 10]]


@pytest.mark.parametrize("policy", TOPOLOGY_POLICIES[1:])
def test_each_policy_on_the_same_hints(policy: str) -> None:
    """The table above holds, the model says the same, and admission follows from preference."""

    def merges(
        providers: Any,
        best: tuple[int | None, bool],
        single_node_best: tuple[int | None, bool] | None = None,
    ) -> None:
        if policy == "single-numa-node":
            best = single_node_best or best
        assert model.merged(policy, 2, providers) == (*best, best[1] or policy == "best-effort")

    check_each(merges, SHARED.items())


def test_policy_none_admits_everything() -> None:
    """No hint is looked at."""

    def admits(providers: Any, *_: object) -> None:
        assert make_policy("none", 2).merge(providers) == (TopologyHint(None, False), True)

    check_each(admits, SHARED.items())


def test_single_numa_node_drops_a_mask_that_names_every_node() -> None:
    """On a machine of one node a mask constrains nothing, so none is kept.

    Elsewhere one node is kept.
    """
    assert model.merged("single-numa-node", 1, [{"cpu": [hint(True, 0)]}]) == (None, True, True)
    assert model.merged("restricted", 1, [{"cpu": [hint(True, 0)]}]) == (1, True, True)


PAIRS = [{"cpu": [hint(True, *pair) for pair in combinations(range(4), 2)]}]


@pytest.mark.parametrize("policy", ["best-effort", "restricted"])
@pytest.mark.parametrize("value", ["true", "True", "1", "t"])
def test_prefer_closest_takes_nodes_near_each_other(policy: str, value: str) -> None:
    """Of masks of one size the nearest wins; without the option, the lowest."""
    closest = {"prefer-closest-numa-nodes": value}

    assert make_policy(policy, 4, NEAR_IN_PAIRS, closest).merge(PAIRS)[0] == hint(True, 0, 2)
    assert make_policy(policy, 4, NEAR_IN_PAIRS, {"prefer-closest-numa-nodes": "false"}).merge(
        PAIRS
    )[0] == hint(True, 0, 1)
    assert make_policy(policy, 4).merge(PAIRS)[0] == hint(True, 0, 1)
    assert model.merged(policy, 4, PAIRS, NEAR_IN_PAIRS) == (5, True, True)


@pytest.mark.parametrize("name", TOPOLOGY_POLICIES)
def test_a_policy_knows_its_name(name: str) -> None:
    assert make_policy(name, 2).name == name


@pytest.mark.parametrize("name", ["", "Restricted", "static"])
def test_an_unknown_policy_is_refused(name: str) -> None:
    """The error lists those that there are."""
    with pytest.raises(
        ConfigError,
        match=r"one of none, best-effort, restricted, single-numa-node, "
        r"got .* at topologyManagerPolicy",
    ):
        make_policy(name, 2)


@pytest.mark.parametrize(
    ("numa_nodes", "options", "most"),
    [
        (9, {}, 8),
        (0, {}, 8),
        (12, {"max-allowable-numa-nodes": "11"}, 11),
        (65, {"max-allowable-numa-nodes": "100"}, 64),
    ],
)
def test_more_nodes_than_allowed_are_refused(
    numa_nodes: int, options: dict[str, str], most: int
) -> None:
    """The error says how many are allowed, and which option allows more."""
    with pytest.raises(
        ConfigError,
        match=f"expected 1 to {most} NUMA nodes .* got {numa_nodes}; max-allowable-numa-nodes ",
    ):
        make_policy("best-effort", numa_nodes, options=options)
    make_policy("none", numa_nodes, options=options)


@pytest.mark.parametrize("numa_nodes", [9, 64])
def test_more_nodes_are_allowed_by_option(numa_nodes: int) -> None:
    """Options may be strings as in a KubeletConfiguration, or parsed."""
    for options in (
        {"max-allowable-numa-nodes": "64"},
        TopologyOptions(max_allowable_numa_nodes=64),
    ):
        assert make_policy("restricted", numa_nodes, options=options).merge([])[0] == hint(
            True, *range(numa_nodes)
        )


@pytest.mark.parametrize(
    "distances", [None, [], [[10, 20]], [[10, 20], [20]], [[10, 20, 30], [20, 10, 30], [1, 2, 3]]]
)
def test_prefer_closest_needs_all_distances(distances: Any) -> None:
    """A machine that does not say how far its nodes are apart cannot have the option."""
    with pytest.raises(
        ConfigError, match=r'distances between all 2 NUMA nodes .*"prefer-closest-numa-nodes"'
    ):
        make_policy("best-effort", 2, distances, {"prefer-closest-numa-nodes": "true"})


@pytest.mark.parametrize(
    "options",
    [
        {"unknown": "true"},
        {"prefer-closest-numa-nodes": "maybe"},
        {"max-allowable-numa-nodes": "7"},
    ],
)
def test_wrong_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="topologyManagerPolicyOptions"):
        make_policy("best-effort", 2, options=options)


def test_hints_are_packed_once() -> None:
    """Packed lists are passed on as they are; others are packed."""
    packed = HintList([hint(True, 0)])

    assert flatten([{"a": packed}])[0] is packed
    assert flatten([{"a": [hint(True, 0)], "b": iter([hint(True, 0)])}]) == [packed, packed]
    assert [
        hints.pairs() for hints in flatten([None, {}, {"a": None, "b": [], "c": iter(())}])
    ] == [
        [(None, True)],
        [(None, True)],
        [(None, True)],
        [(None, False)],
        [(None, False)],
    ]


def test_what_is_no_hint_is_refused() -> None:
    with pytest.raises(TypeError, match="expected TopologyHint objects, got 3"):
        make_policy("restricted", 2).merge([{"cpu": [3]}])


def test_any_object_with_the_four_methods_is_a_provider() -> None:
    """There is nothing to inherit from."""
    assert isinstance(Saying(None), HintProvider)
    assert isinstance(Licences([1]), HintProvider)
    assert not isinstance(object(), HintProvider)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([5], "got 5 from a provider"),
        ([{"gpu": 5}], "as hints of 'gpu'"),
        ([{"gpu": [7]}], "as hints of 'gpu'"),
    ],
)
def test_answers_that_are_no_hints_are_refused_by_name(answers: list[object], message: str) -> None:
    """A user's provider that answers nonsense is told what was expected, and for which resource."""
    with pytest.raises(TypeError, match=message):
        make_policy("restricted", 2).merge(answers)


def test_a_number_of_nodes_is_a_number() -> None:
    with pytest.raises(TypeError, match="got '2'"):
        make_policy("restricted", "2")


def test_every_policy_of_the_configuration_can_be_made():
    """Under the name that it has there."""
    assert [make_policy(name, 2).name for name in TOPOLOGY_POLICIES] == list(TOPOLOGY_POLICIES)
