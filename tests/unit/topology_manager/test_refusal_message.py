"""A refusal is explained by what was offered: as data, and in one sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from alignup.topology_manager.hints import BitMask, HintList, TopologyHint, feasible_hints
from alignup.topology_manager.policy import make_policy
from alignup.topology_manager.refusal_message import (
    Amounts,
    refusal_dict,
    refusal_message,
    too_little,
    view_of,
)
from alignup.topology_manager.scope import Refusal, Store, make_scope
from fakes.hint_providers import Saying, hint, pod_of

ANY = TopologyHint(None, True)
UNKNOWN_NUMA_NODE = TopologyHint(None, False)


def refusal_of(
    policy: str, *providers: Any, numa_nodes: int = 2, scope: str = "container"
) -> Refusal:
    """Return the refusal of a pod by providers that offer these hints."""
    chosen = make_policy(policy, numa_nodes)
    refusal = make_scope(scope, chosen).admit(
        pod_of("p", "app"), chosen, [Saying(hints) for hints in providers], Store()
    )
    assert refusal is not None
    return refusal


@pytest.mark.parametrize(
    ("policy", "providers", "sentence"),
    [
        pytest.param(
            "restricted",
            [{"gpu": []}, {"cpu": [hint(True, 0)]}],
            "not enough gpu is free",
            id="too little",
        ),
        pytest.param(
            "restricted",
            [{"gpu": [], "nic": [UNKNOWN_NUMA_NODE]}],
            "not enough gpu is free; not enough nic is free",
            id="too little of two",
        ),
        pytest.param(
            "restricted",
            [{"gpu": [hint(True, 0)]}, {"nic": [hint(True, 1)]}, {"cpu": [ANY]}],
            "gpu prefers NUMA node 0, nic prefers NUMA node 8; restricted needs both on the same "
            "NUMA nodes",
            id="nothing in common",
        ),
        pytest.param(
            "restricted",
            [{"cpu": [hint(False, 0, 1)]}, {"nic": [hint(True, 1)]}],
            "cpu can now come only from NUMA nodes 0+8; restricted refuses a pod that would span "
            "more NUMA nodes than it needs on an empty machine",
            id="fragmented",
        ),
        pytest.param(
            "single-numa-node",
            [{"cpu": [hint(True, 0, 1)]}, {"nic": [hint(True, 1)]}],
            "cpu does not fit into one NUMA node (it would take NUMA nodes 0+8); single-numa-node "
            "needs one NUMA node "
            "for all",
            id="too big for a node",
        ),
        pytest.param(
            "single-numa-node",
            [{"cpu": [hint(False, 0, 1)]}],
            "cpu does not fit into one NUMA node (it would take NUMA nodes 0+8); single-numa-node "
            "needs one NUMA node "
            "for all",
            id="too big for a node now",
        ),
        pytest.param(
            "single-numa-node",
            [{"cpu": [hint(True, 0), hint(False, 0, 1)]}, {"nic": [hint(True, 1)]}],
            "cpu fits only on NUMA node 0, nic only on NUMA node 8; single-numa-node needs both "
            "on one NUMA node",
            id="no node has both",
        ),
    ],
)
def test_the_sentence_names_resources_and_nodes(policy: str, providers: Any, sentence: str) -> None:
    """Nodes have the kernel's ids, here 0 and 8; the container and the policy come first."""
    expected = f"container 'app' refused by policy {policy!r}: {sentence}"

    assert refusal_message(refusal_of(policy, *providers), (0, 8)) == expected


def test_the_order_of_resources_does_not_matter() -> None:
    first = refusal_of("restricted", {"a": [hint(True, 0)], "b": [hint(True, 1)]})
    second = refusal_of("restricted", {"b": [hint(True, 1)], "a": [hint(True, 0)]})

    assert refusal_message(first) == refusal_message(second)


def test_a_pod_judged_as_a_whole_is_called_so() -> None:
    assert refusal_message(refusal_of("restricted", {"cpu": []}, scope="pod")).startswith(
        "pod refused by policy"
    )


def test_positions_are_shown_when_ids_are_not_known() -> None:
    """And the nodes of the machine are then not listed."""
    assert refusal_message(refusal_of("restricted", {"cpu": []})) == (
        "container 'app' refused by policy 'restricted': not enough cpu is free"
    )
    assert "b prefers NUMA node 1" in refusal_message(
        refusal_of("restricted", {"a": [hint(True, 0)], "b": [hint(True, 1)]})
    )


def test_a_providers_own_words_are_kept() -> None:
    """Where allocation failed the provider has said why."""
    assert (
        refusal_message(Refusal("SMTAlignmentError", "asked for 3 CPUs", "app"))
        == "container 'app': asked for 3 CPUs"
    )


def test_long_lists_are_cut_with_their_number() -> None:
    """A sentence lists four sets, and counts the others."""
    singles = [hint(True, node) for node in range(7)]
    refusal = refusal_of("single-numa-node", {"a": singles}, {"b": [hint(True, 7)]}, numa_nodes=8)

    sentence = "a fits only on NUMA node 0, 1, 2, 3 or 3 others, b only on NUMA node 7"
    assert sentence in refusal_message(refusal)


def test_lists_that_nobody_can_walk_are_sampled() -> None:
    """On 40 nodes an explanation is still made of the narrowest sets."""
    many = feasible_hints(40, [(None, [1] * 40, 2)], universe=(1 << 40) - 1, preferred_size=1)
    best = TopologyHint(None, False)
    refusal = Refusal("TopologyAffinityError", "", "app", "restricted", best, ({"cpu": many},))

    assert "cpu can now come only from NUMA nodes 0+1, 0+2" in refusal_message(refusal)


def test_an_explanation_is_data() -> None:
    """All that was offered, as sets of node ids, in a form that JSON can hold."""
    hints = HintList([hint(False, 0, 1), hint(True, 1), ANY])
    explanation = refusal_dict(
        refusal_of("restricted", {"cpu": hints}, {"gpu": []}, {"nic": None}, None), (0, 8)
    )

    assert json.loads(json.dumps(explanation)) == {
        "reason": "TopologyAffinityError",
        "policy": "restricted",
        "container": "app",
        "detail": "",
        "resources": [
            view("cpu", [[8]], [[0, 8]], anywhere=True),
            view("gpu", [], [], anywhere=False),
            view("nic", [], [], anywhere=True),
        ],
    }


def view(
    resource: str, preferred: list[list[int]], unpreferred: list[list[int]], *, anywhere: bool
) -> dict[str, object]:
    """Return a view as JSON holds it."""
    return {
        "resource": resource,
        "preferred": preferred,
        "other": unpreferred,
        "anywhere": anywhere,
        "preferredCount": len(preferred),
        "otherCount": len(unpreferred),
        "account": "",
    }


def test_an_any_node_hint_that_is_not_preferred_is_no_freedom() -> None:
    """It says that nothing will do, so the resource counts as impossible."""
    assert view_of("cpu", [UNKNOWN_NUMA_NODE], None).is_impossible


def test_nodes_that_the_machine_lacks_are_not_named() -> None:
    """A provider of somebody's own may offer what does not exist; that is as good as nothing."""
    refusal = refusal_of(
        "restricted",
        {"cpu": [hint(True, 5), hint(True, 1, 5), TopologyHint(BitMask(), True)]},
        {"gpu": [hint(True, 0)]},
    )

    assert (
        refusal_message(refusal, (0, 8))
        .partition(": ")[2]
        .startswith("cpu prefers NUMA node 8, gpu prefers NUMA node 0;")
    )


def test_what_was_asked_and_free_is_told() -> None:
    """Where a provider says what was asked for and what was free, the sentence does too."""
    refusal = Refusal(
        "TopologyAffinityError",
        "",
        None,
        "restricted",
        TopologyHint(None, False),
        ({"cpu": []},),
        {"cpu": lambda: "4 asked, 2 free: 2 on NUMA node 0"},
    )

    assert refusal_message(refusal).endswith(
        "not enough cpu is free: 4 asked, 2 free: 2 on NUMA node 0"
    )


def test_a_list_of_exactly_as_many_as_are_shown_ends_there() -> None:
    """Not in "or 0 more"."""
    singles = [hint(True, node) for node in range(4)]
    refusal = refusal_of("single-numa-node", {"a": singles}, {"b": [hint(True, 7)]}, numa_nodes=8)

    assert "a fits only on NUMA node 0, 1, 2 or 3, b only" in refusal_message(refusal)


def test_where_more_was_offered_than_was_looked_at_what_can_be_anywhere_is_not_named() -> None:
    """Nobody knows then which resources could be left out."""
    many = feasible_hints(14, [(None, [1] * 14, 1)], universe=(1 << 13) - 1, preferred_size=1)
    refusal = Refusal(
        "TopologyAffinityError",
        "",
        "app",
        "restricted",
        TopologyHint(None, False),
        ({"cpu": many}, {"gpu": [hint(True, 13)]}, {"memory": None}),
    )

    assert refusal_message(refusal).endswith(
        "or others, gpu prefers NUMA node 13; restricted needs both on the same NUMA nodes"
    )


@pytest.mark.parametrize(
    ("allocatable", "sentence"),
    [
        (2, "4 cpu asked, the machine has 2"),
        (3, "not enough cpu is free: 4 asked, 2 free"),
    ],
)
def test_what_the_machine_never_had_is_not_called_taken(allocatable: int, sentence: str) -> None:
    amounts = Amounts(requested=4, free=2, on_one_node=2, allocatable=allocatable)
    assert too_little(["cpu"], {}, {"cpu": amounts}) == sentence


def test_what_is_reserved_is_part_of_what_the_machine_has() -> None:
    cpus = Amounts(requested=9, free=6, on_one_node=6, allocatable=6, reserved=2)
    sentence = "9 cpu asked, the machine has 6 (8 less 2 reserved)"
    assert too_little(["cpu"], {}, {"cpu": cpus}) == sentence
