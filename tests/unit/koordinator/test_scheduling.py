"""A pod past a node under either profile, and the doors for JSON cases.

Below: even splits, and the sets of NUMA nodes over which they work.
"""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import InputError
from alignup.koordinator.effective import NUMA_TOPOLOGY_SPEC, SUCCESS, Occupancy
from alignup.koordinator.scheduling import (
    Demand,
    DocumentProfile,
    NodeView,
    evaluate,
    masks_by_size,
    offered_hints,
    split,
    utilisations,
)
from replays.koordinator_answers import filter_case, merge_case

SINGLE = json.dumps({"numaTopologyPolicy": "SingleNUMANode"})

AMOUNTS = st.lists(st.integers(0, 50), min_size=1, max_size=6)


def case(pod_spec=None, cpus=6, nodes=4, **changed):
    """A node of NUMA nodes with 4 CPUs and 16 MiB each; the pod asks for CPUs alone."""
    made = {
        "node_label": None,
        "kubelet_policies": [],
        "numa": [{"cpus": 4, "memory_mib": 16}] * nodes,
        "pods": [],
        "pod": {"numa_spec": pod_spec, "cpu_milli": cpus * 1000, "memory_mib": 0},
    }
    return made | changed


def spec(policy, exclusive=""):
    return json.dumps({"numaTopologyPolicy": policy, "singleNUMANodeExclusive": exclusive})


def resident(node, cpus=1, pod_spec=SINGLE):
    """A pod with a CPU set in one NUMA node."""
    used = [{"node": node, "cpu_milli": cpus * 1000, "memory_mib": 0}]
    return {"cpuset": f"{4 * node}-{4 * node + cpus - 1}", "numa": used, "numa_spec": pod_spec}


def masks(answer):
    return [hint["nodes"] for hint in answer["hints"]["cpu"]]


def test_the_document_does_not_offer_mixed_hints_when_required():
    answer = filter_case(case(spec("Restricted"), nodes=3, pods=[resident(0)]), "document")
    assert masks(answer) == [[1, 2]]
    assert answer["affinity"]["nodes"] == [1, 2]
    assert answer["node_states"] == ["single", "idle", "idle"]


def test_the_document_refuses_when_nothing_else_is_left():
    answer = filter_case(case(spec("Restricted"), nodes=2, pods=[resident(0)]), "document")
    reason = "exclusivity (singleNUMANodeExclusive Required) keeps it away from the pods there"
    assert answer["filter"] == {"code": "Unschedulable", "reasons": [reason]}


@pytest.mark.parametrize("profile", ["document", "scheduler"])
def test_a_pod_that_asks_for_nothing_is_passed_over(profile):
    answer = filter_case(case(spec("Restricted"), cpus=0), profile)
    assert (answer["prefilter"]["code"], answer["filter"]) == ("Skip", None)


def test_the_document_refuses_a_mix_under_best_effort_too():
    """It ends with all NUMA nodes when nothing else is left, and Required is not a preference."""
    question = case(spec("BestEffort", "Required"), nodes=2, pods=[resident(0)])
    answer = filter_case(question, "document")
    assert answer["reserve"]["code"] == "Unschedulable"
    assert "exclusivity" in answer["reserve"]["reasons"][0]
    assert answer["affinity"] is None
    assert filter_case(question, "scheduler")["reserve"]["code"] == "Success"
    assert filter_case(case(spec("BestEffort"), nodes=3, pods=[resident(0)]), "document")[
        "affinity"
    ]["nodes"] == [1, 2]


def across(*nodes):
    """A pod with a CPU in each of these NUMA nodes."""
    cpus = ",".join(str(4 * node) for node in nodes)
    return {"cpuset": cpus, "numa": [{"node": node, "cpu_milli": 1000} for node in nodes]}


def test_the_document_keeps_single_node_pods_from_pods_across_nodes():
    """Required leaves out their nodes, Preferred scores them 0; the scheduler demotes them."""
    question = case(SINGLE, 1, nodes=3, pods=[across(0, 1)])
    answer = filter_case(question, "document")
    assert masks(answer)[0] == [2]
    assert answer["affinity"]["nodes"] == [2]
    preferred = filter_case(
        question | {"pod": question["pod"] | {"numa_spec": spec("SingleNUMANode", "Preferred")}},
        "document",
    )
    scores = {tuple(hint["nodes"]): hint["score"] for hint in preferred["hints"]["cpu"]}
    assert scores[0,] == scores[1,] == 0
    assert preferred["affinity"]["nodes"] == [2]
    full = case(SINGLE, 1, nodes=2, pods=[across(0, 1)])
    assert "exclusivity" in filter_case(full, "document")["filter"]["reasons"][0]


def test_the_document_brings_single_node_pods_together():
    """The fuller node scores higher, so that whole nodes remain for pods across them."""
    answer = filter_case(case(SINGLE, 1, pods=[resident(2)]), "document")
    assert answer["affinity"]["nodes"] == [2]


def test_a_refusal_names_the_pods_that_are_in_the_way():
    """With what the caller knows of them, and the kernel's ids of NUMA nodes."""
    demands = [Demand("cpu", (4, 4), (3, 4), 6)]
    occupancy = Occupancy(single=0b01)
    node = NodeView("", 2, occupancy, {"default/a": occupancy, "default/b": Occupancy()}, (0, 8))
    verdict = evaluate({NUMA_TOPOLOGY_SPEC: spec("Restricted")}, demands, node, DocumentProfile())
    assert verdict.status.code == "Unschedulable"
    (reason,) = verdict.status.reasons
    assert reason.endswith("keeps it away from pod 'default/a' on NUMA node 0 under SingleNUMANode")
    free = evaluate(
        {NUMA_TOPOLOGY_SPEC: spec("Restricted")}, demands, node, DocumentProfile(), "Preferred"
    )
    assert free.status is SUCCESS


def test_the_document_scores_mixed_hints_zero_when_preferred():
    """Of four nodes one holds a single-node pod.

    No pair with it is taken, though its mask may be smaller.
    """
    question = case(spec("Restricted", "Preferred"), pods=[resident(2)])
    answer = filter_case(question, "document")
    scores = {tuple(hint["nodes"]): hint["score"] for hint in answer["hints"]["cpu"]}
    assert scores[1, 2] == 0
    assert scores[0, 1] == 80 + 10 * (6 / 8 + 0) / 2
    assert answer["affinity"]["nodes"] == [0, 1]
    alone = filter_case(
        case(spec("Restricted", "Preferred"), nodes=2, pods=[resident(0)]), "document"
    )
    assert alone["affinity"]["nodes"] == [0, 1]


def test_the_documents_best_pair_wins_wherever_it_stands():
    """Nodes 0 and 3 are the fullest that fit.

    The plain order would give them away to a smaller mask.
    """
    pods = [resident(0, 1, None), resident(3, 1, None)]
    answer = filter_case(case(spec("Restricted"), pods=pods), "document")
    assert answer["affinity"]["nodes"] == [0, 3]


def test_the_document_counts_policies_and_the_scheduler_cpu_sets():
    """Only the scheduler protects a pod that did not ask for SingleNUMANode.

    It is in one NUMA node all the same.
    """
    question = case(spec("Restricted"), nodes=2, pods=[resident(0, 1, None)])
    assert filter_case(question, "document")["node_states"] == ["idle", "idle"]
    assert filter_case(question, "scheduler")["node_states"] == ["single", "idle"]
    assert filter_case(question, "document")["filter"]["code"] == "Success"
    assert filter_case(question, "scheduler")["filter"]["code"] == "Unschedulable"


def test_a_pod_across_nodes_is_shared_in_both():
    used = [{"node": node, "cpu_milli": 1000} for node in (0, 1)]
    question = case(SINGLE, 1, pods=[{"cpuset": "0,4", "numa": used}])
    for profile in ("document", "scheduler"):
        assert filter_case(question, profile)["node_states"] == ["shared", "shared", "idle", "idle"]


def test_a_mismatch_names_both_policies_in_the_document_profile():
    question = case(spec("Restricted"), node_label="BestEffort")
    answer = filter_case(question, "document")["filter"]
    assert answer["code"] == "UnschedulableAndUnresolvable"
    assert "Restricted" in answer["reasons"][0]
    assert "BestEffort" in answer["reasons"][0]
    assert filter_case(question)["filter"]["reasons"] == ["node(s) NUMA Topology policy not match"]


def test_an_unknown_policy_never_crashes():
    """The released scheduler does when pod and node agree on a policy that does not exist."""
    with pytest.raises(InputError, match="got 'Bogus' at policy"):
        filter_case(case(spec("Bogus")))
    answer = filter_case(case(spec("Bogus")), "document")
    assert answer["prefilter"]["code"] == "Error"
    assert "Bogus" in answer["prefilter"]["reasons"][0]
    with pytest.raises(InputError, match=r"got 'Bogus' at metadata.labels"):
        filter_case(case(node_label="Bogus"), "document")


def test_released_pods_hold_nothing():
    answer = filter_case(case(spec("Restricted"), nodes=2, pods=[resident(0)], released=[0]))
    assert answer["node_states"] == ["idle", "idle"]
    assert answer["filter"]["code"] == "Success"


def test_best_effort_splits_over_the_machine_in_reserve_or_refuses():
    answer = filter_case(case(spec("BestEffort"), 9, nodes=2))
    assert answer["filter"]["code"] == "Success"
    assert answer["reserve"] == {"code": "Unschedulable", "reasons": ["Insufficient NUMA cpu"]}


def test_a_node_without_memory_or_cpus_has_no_score():
    question = case(spec("Restricted"), 0, numa=[{"cpus": 0, "memory_mib": 0}], pods=[])
    question["pod"]["memory_mib"] = 1
    assert filter_case(question)["filter"]["reasons"] == ["Unsatisfied NUMA memory"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (case() | {"numa": None}, r"Expected `array`, got `null` - at `\$\.numa`"),
        (case(pods=[resident(7)]), r"a node below 4, got 7"),
        (case(nodes=17, pod_spec=SINGLE), "at most 16 NUMA nodes, got 17"),
    ],
)
def test_wrong_filter_cases_are_clear_errors(wrong, message):
    with pytest.raises(InputError, match=message):
        filter_case(wrong)


def test_an_unknown_profile_is_an_error():
    with pytest.raises(
        InputError, match="one of document, scheduler, got 'kubelet' at the profile"
    ):
        filter_case(case(), "kubelet")


def merge_of(**changed):
    made = {
        "policy": "Restricted",
        "numa_nodes": [0, 1],
        "exclusive": "Required",
        "node_states": ["single", "idle"],
        "providers": [None, {}, {"gpu": None, "cpu": [{"nodes": [0, 1], "preferred": True}]}],
    }
    return merge_case(made | changed)


def test_merge_demotes_a_mixed_result():
    assert not merge_of()["admit"]
    assert merge_of(exclusive="Preferred")["admit"]
    single = [{"cpu": [{"nodes": [1], "preferred": True}]}]
    assert not merge_of(node_states=["idle", "shared"], providers=single)["admit"]


def test_a_machine_with_fewer_states_than_ids_is_an_error():
    with pytest.raises(InputError, match="a state for each NUMA node id up to 5"):
        merge_of(numa_nodes=[0, 5])


def test_masks_come_by_size_then_in_lexicographic_order():
    assert list(masks_by_size(3)) == [0b001, 0b010, 0b100, 0b011, 0b101, 0b110, 0b111]


def test_too_many_nodes_are_refused():
    with pytest.raises(InputError, match="at most 16 NUMA nodes, got 17"):
        list(masks_by_size(17))


def test_the_emptiest_of_free_nodes_goes_first_and_the_rest_take_more():
    demand = Demand("cpu", (10, 10, 10), (1, 10, 6), 12)
    assert split([demand], 0b111).amounts == {0: {"cpu": 1}, 1: {"cpu": 6}, 2: {"cpu": 5}}


@given(AMOUNTS, st.integers(0, 300))
def test_a_split_gives_what_was_asked_or_says_that_it_does_not(free, request):
    """No node gives more than it has; the parts make the request unless the resource is named."""
    made = split([Demand("cpu", tuple(free), tuple(free), request)], (1 << len(free)) - 1)
    given_amounts = [amounts["cpu"] for amounts in made.amounts.values()]
    assert all(amounts["cpu"] <= free[node] for node, amounts in made.amounts.items())
    assert (sum(given_amounts) == request) == (made.insufficient == ())
    assert sum(given_amounts) <= request


def test_utilisation_leaves_out_what_the_nodes_do_not_have():
    demands = [Demand("cpu", (8, 8), (8, 4), 2), Demand("memory", (0, 0), (0, 0), 0)]
    assert utilisations(demands, 0b11) == [(6, 16)]


def offers(demands, nodes, *, skips=lambda _mask: False, all_preferred=False):
    profile = SimpleNamespace(score=lambda *_: 7, excludes=lambda mask, _: skips(mask))
    return offered_hints(demands, nodes, profile, None, all_preferred=all_preferred)


def test_a_node_without_the_resource_is_in_no_hint():
    hints_by_resource = offers(
        [Demand("cpu", (4, 4), (4, 0), 2), Demand("memory", (9, 9), (9, 9), 0)], 2
    )
    assert {
        resource: [hint.mask for hint in hints] for resource, hints in hints_by_resource.items()
    } == {"cpu": [1]}


def test_the_smallest_size_is_preferred():
    demand = Demand("cpu", (4, 4, 4), (4, 4, 4), 8)
    hints = offers([demand], 3)["cpu"]
    assert [(hint.mask, hint.preferred) for hint in hints] == [
        (3, True),
        (5, True),
        (6, True),
        (7, False),
    ]
    assert all(hint.preferred for hint in offers([demand], 3, all_preferred=True)["cpu"])
    assert [
        hint.mask for hint in offers([demand], 3, skips=lambda mask: bool(mask & 1))["cpu"]
    ] == [6]


def test_a_request_that_fits_nowhere_has_no_hints():
    assert offers([Demand("cpu", (4,), (1,), 2)], 1) == {"cpu": []}
