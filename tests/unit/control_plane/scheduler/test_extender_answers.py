"""Answers to a scheduler.

Which nodes pass, why the others do not, scores, evictions, and when to ask again.
"""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest

from alignup.claims.question import Effort
from alignup.claims.read import read_claim, read_class, read_slice
from alignup.cluster import Cluster
from alignup.cluster.koordinator import judge_nodes
from alignup.cluster.node_totals import demand_key
from alignup.cluster.ranking import short_cause
from alignup.control_plane.api_server.objects import (
    PodReader,
    WatchedPod,
    decode_budget,
    decode_pod,
)
from alignup.control_plane.publishers.fleet import FleetNode
from alignup.control_plane.scheduler import cluster_state, extender_answers
from alignup.control_plane.scheduler.cluster_state import SLOWEST_REPORT, ClusterState, View
from alignup.control_plane.scheduler.extender_answers import FAR, UNCERTAIN, UNKNOWN, Answers
from alignup.errors import InputError
from alignup.kubelet.node_resource_topology.report import Description, decode_report
from alignup.machine.device_inventory import Device
from alignup.node import Node
from alignup.records import replace as replaced
from inputs.small_claims import DRIVER, claim_named, class_of, slice_of
from inputs.strategies import counts
from inputs.watched_objects import description, pod_object, report, watched

SPEC = "scheduling.koordinator.sh/numa-topology-spec"
ALL = ["exact-a", "exact-b", "amounts"]


@pytest.fixture
def answers() -> Answers:
    """Three nodes: two that report all they hold, one that reports amounts."""
    state = ClusterState()
    for name in ("exact-a", "exact-b"):
        state.report_seen(report(name, described=description(), holdings=empty()), 0)
    state.report_seen(report("amounts"), 0)
    return Answers(state)


def empty():
    return Description().template(json.dumps(description()), {})


def test_nodes_with_room_pass(answers) -> None:
    answer = answers.filter(watched("p", cpu=3, gpu=1), ALL, 0)
    assert answer.passed == ALL
    assert not answer.failed
    assert not answer.unresolvable


def test_equal_pods_are_told_the_same_until_something_changes(answers, monkeypatch) -> None:
    judged: list[str] = []
    judge = View.judge
    monkeypatch.setattr(
        View, "judge", lambda view, pod, how: judged.append(pod.name) or judge(view, pod, how)
    )
    for name in "pqr":
        assert answers.filter(watched(name, cpu=4), ALL, 0).passed == ALL
        assert answers.prioritize(watched(name, cpu=4), ALL) == [8, 8, 8]

    assert judged == ["p"]
    assert answers.filter(watched("s", cpu=4), ["exact-a"], 0).passed == ["exact-a"]
    assert judged == ["p"]
    assert answers.filter(watched("t", cpu=5), ALL, 0).passed == []
    answers.filter(watched("u", cpu=5), ALL, 0)
    assert sorted(answers.waiting) == ["uid-t", "uid-u"]
    answers.state.pod_seen(watched("v", "exact-a", cpu=4), 0)
    assert answers.filter(watched("w", cpu=4), ALL, 0).passed == ["exact-b", "amounts"]
    assert judged[-1] == "w"


def test_a_pod_whose_end_frees_nothing_yet_leaves_answers_as_they_are(answers, monkeypatch) -> None:
    """A scheduler asks for all pods that wait when a pod ends or changes.

    Its node reports that only later.
    """
    state, old, kubelet = answers.state, watched("old", "exact-a", cpu=3), empty()
    kubelet.admit(old.pod)
    state.pod_seen(old, 0)
    state.report_seen(report("exact-a", described=description(), holdings=kubelet), 0)
    refused = answers.filter(watched("p", cpu=3, gpu=2), ["exact-a"], 0)
    assert not refused.passed
    judged: list[str] = []
    judge = View.judge
    monkeypatch.setattr(
        View, "judge", lambda view, pod, how: judged.append(pod.name) or judge(view, pod, how)
    )
    for change in (
        lambda: state.pod_seen(replaced(old, since="later"), 1),
        lambda: state.pod_gone("uid-old", 2),
    ):
        change()
        assert answers.filter(watched("p", cpu=3, gpu=2), ["exact-a"], 2) is refused

    assert not judged
    state.report_seen(report("exact-a", described=description(), holdings=empty()), 3)
    answers.filter(watched("p", cpu=3, gpu=2), ["exact-a"], 3)
    assert judged == ["p"]


def test_some_nodes_are_asked_as_all_are(answers) -> None:
    state = answers.state
    state.pod_seen(watched("a", "exact-b", cpu=4), 0)
    state.pod_seen(watched("b", "amounts", cpu=3), 0)
    for cpu in range(1, 6):
        pod = watched(f"p{cpu}", cpu=cpu, gpu=1).pod
        numbers = state.view.numbers(ALL)
        judged = state.view.judge(pod, state.strategy)
        passed = [
            name for name, number in zip(ALL, numbers, strict=True) if judged.admitted[number]
        ]

        assert state.view.admitting(pod, ALL, state.strategy) == passed
        assert state.view.admitting(pod, ["exact-b"], state.strategy) == [
            name for name in passed if name == "exact-b"
        ]


def test_what_was_judged_before_is_put_right_where_nodes_changed() -> None:
    """Of many nodes only those that changed are judged once more."""
    random, state = Random(11), ClusterState()
    names = [f"exact-{number}" for number in range(30)]
    for name in names:
        state.report_seen(report(name, described=description(), holdings=empty()), 0)

    state.report_seen(report("amounts"), 0)
    pods = [watched(f"asked-{cpu}", cpu=cpu, gpu=cpu % 2).pod for cpu in range(1, 5)]
    bound_uids: list[str] = []
    for step in range(200):
        for _ in range(random.choice([1, 1, 2, 9])):
            if bound_uids and random.random() < 0.5:
                state.pod_gone(bound_uids.pop(random.randrange(len(bound_uids))), 0)
            else:
                bound_uids.append(f"uid-{step}-{len(bound_uids)}")
                node = random.choice([*names, "amounts"])
                state.pod_seen(
                    watched(
                        bound_uids[-1][4:], node, cpu=random.randint(1, 3), gpu=random.randint(0, 1)
                    ),
                    0,
                )

        if step % 70 == 69:  # a node that comes lets all be numbered anew
            state.report_seen(report(f"new-{step}", described=description(), holdings=empty()), 0)
        pod = random.choice(pods)
        verdicts = state.view.verdicts(pod, state.strategy)
        anew = state.view.judge(pod, state.strategy)
        for field in ("admitted", "reason", "affinity", "preferred", "score", "exact"):
            assert (getattr(verdicts, field) == getattr(anew, field)).all(), field


def test_only_nodes_asked_for_are_answered(answers) -> None:
    assert answers.filter(watched("p"), ["exact-b"], 0).passed == ["exact-b"]


def test_a_refusal_that_evictions_could_end_is_failed_with_where_the_resources_are(answers) -> None:
    for node in ALL:
        answers.state.pod_seen(watched(f"gpu-{node}", node, cpu=1, gpu=1), 0)
        answers.state.pod_seen(watched(f"cpu-{node}", node, cpu=4), 0)
    answer = answers.filter(watched("p", cpu=2, gpu=1), ALL, 0)
    assert not answer.passed
    assert answer.failed == dict.fromkeys(
        ALL, "NUMA: gpu only on NUMA node 1, cpu only on NUMA node 0"
    )


def test_a_refusal_that_no_eviction_can_end_is_unresolvable(answers) -> None:
    answer = answers.filter(watched("p", cpu=5), ALL, 0)
    assert answer.unresolvable == dict.fromkeys(ALL, "NUMA: no NUMA node has enough cpu")


@pytest.mark.parametrize("steps", counts(200, 4000))
def test_each_node_says_why_it_refuses_a_pod_as_it_is_now(answers, steps: int) -> None:
    """Whatever came, went or was reported since it was asked for an equal pod."""
    random = Random(7)
    bound_uids: list[str] = []
    causes = set()
    for step in range(steps):
        node = random.choice(ALL[:2])
        if bound_uids and random.random() < 0.5:
            answers.state.pod_gone(bound_uids.pop(random.randrange(len(bound_uids))), 0)
            # the place of those behind it is doubted no longer
            answers.state.tick(2 * SLOWEST_REPORT)
        elif random.random() < 0.8:
            bound_uids.append(f"uid-{step}")
            answers.state.pod_seen(
                watched(f"{step}", node, cpu=random.randint(1, 3), gpu=random.randint(0, 1)), 0
            )
        else:
            answers.state.report_seen(report(node, described=description(), holdings=empty()), 0)

        pod = watched(f"asked-{step}", cpu=random.randint(3, 5), gpu=random.randint(0, 3))
        answer = answers.filter(pod, ALL[:2], 0)
        for name, cause in (answer.failed | answer.unresolvable).items():
            member = answers.state.members[name]
            if not answer.passed:
                assert cause == f"NUMA: {short_cause(member.node, pod.pod)}"
            causes.add(cause)

    assert len(causes) > 5


def test_too_little_on_the_whole_node_is_said(answers) -> None:
    answer = answers.filter(watched("p", cpu=1, gpu=3), ["exact-a"], 0)
    assert answer.unresolvable == {"exact-a": "NUMA: not enough gpu is free on the node"}


@pytest.mark.parametrize(
    ("opens", "passed", "unresolvable"),
    [(True, ["stranger"], {}), (False, [], {"stranger": UNKNOWN})],
)
def test_a_node_of_which_nothing_is_known_passes_or_not(
    answers, opens, passed, unresolvable
) -> None:
    answer = Answers(answers.state, fails_open=opens).filter(watched("p"), ["stranger"], 0)
    assert answer.passed == passed
    assert answer.unresolvable == unresolvable


def test_a_node_of_which_nothing_is_known_passes_unless_told_otherwise(answers) -> None:
    assert Answers(answers.state).filter(watched("p"), ["stranger"], 0).passed == ["stranger"]


def test_scores_go_from_0_to_10_and_prefer_few_numa_nodes(answers) -> None:
    state = answers.state
    two = description(topologyManagerPolicy="best-effort")
    state.report_seen(report("wide", described=two, holdings=empty()), 0)
    assert answers.prioritize(watched("p", cpu=3), ["exact-a", "stranger"]) == [8, 0]
    assert answers.prioritize(watched("p", cpu=4, gpu=2), ["wide", "exact-a"]) == [7, 0]


def test_the_victims_of_the_scheduler_are_kept_where_they_suffice(answers) -> None:
    state = answers.state
    state.pod_seen(watched("low", "exact-a", priority=1, cpu=4), 0)
    state.pod_seen(watched("other", "exact-a", priority=1, cpu=2), 0)
    assert evicted(answers, watched("p", priority=9, cpu=4), ["uid-low"]) == ["uid-low"]


def evicted(answers: Answers, pod, chosen: list[str], **budgets: int) -> list[str] | None:
    """Return the pods that go from a node.

    `budgets` are of the label `app`, with the disruptions that they allow.
    """
    decoded = []
    for app, allowed in budgets.items():
        expression = {"key": "app", "operator": "In", "values": [app]}
        budget = {
            "metadata": {"name": app, "namespace": "default"},
            "spec": {"selector": {"matchExpressions": [expression]}},
            "status": {"disruptionsAllowed": allowed},
        }
        decoded.append(decode_budget(json.dumps(budget).encode()))

    answer = answers.preempt(pod, {"exact-a": chosen}, decoded)
    return answer["exact-a"][0] if answer else None


def test_pods_whose_end_does_not_help_stay_and_others_go(answers) -> None:
    """Unless the scheduler may have chosen them for another reason than resources."""
    state = answers.state
    state.pod_seen(watched("low", "exact-a", priority=2, cpu=4), 0)
    state.pod_seen(watched("lower", "exact-a", priority=1, cpu=2), 0)
    preemptor = watched("p", priority=9, cpu=4)
    assert evicted(answers, preemptor, ["uid-lower"]) == ["uid-low"]
    particular = replace(preemptor, is_particular=True)
    assert evicted(answers, particular, ["uid-lower"]) == ["uid-lower", "uid-low"]


def test_as_few_pods_go_as_possible_and_budgets_are_kept_where_that_is_possible(answers) -> None:
    """As on a rig: 7 CPUs of two NUMA nodes, and four pods of which two are in the way."""
    state = answers.state
    for name, cpus, app in (("a", 1, "x"), ("b", 2, "x"), ("c", 2, "y"), ("d", 2, "y")):
        state.pod_seen(
            replace(watched(name, "exact-a", priority=1, cpu=cpus), labels={"app": app}), 0
        )

    state.pod_seen(watched("a", "exact-a", priority=1, cpu=1), 0)
    preemptor = watched("p", priority=9, cpu=3)
    everybody = ["uid-a", "uid-b", "uid-c", "uid-d"]
    assert len(evicted(answers, preemptor, everybody)) == 2
    assert evicted(answers, preemptor, everybody, x=0, y=2) == ["uid-c", "uid-d"]

    larger = watched("w", priority=9, cpu=4)
    _, violations = answers.preempt(larger, {"exact-a": everybody}, [])["exact-a"]
    assert violations == 0


@pytest.mark.parametrize("least", ["first", "second"])
def test_of_two_pods_that_would_each_do_the_less_important_one_is_evicted(answers, least) -> None:
    """Whichever came first."""
    priorities = {"first": 2, "second": 2, least: 1}
    for name, cpus in (("first", 4), ("second", 3)):
        pod = watched(name, "exact-a", priority=priorities[name], cpu=cpus)
        answers.state.pod_seen(pod, 0)

    assert evicted(answers, watched("p", priority=9, cpu=3), []) == [f"uid-{least}"]


def test_a_node_that_no_eviction_helps_is_left_out(answers) -> None:
    answers.state.pod_seen(watched("high", "exact-a", priority=9, cpu=4), 0)
    assert evicted(answers, watched("p", priority=5, cpu=4), []) is None


def last_pods_uncertain(state):
    """Let a pod be bound where one ends that the last report has.

    Return the node as it was reported.
    """
    kubelet = empty().copy()
    kubelet.admit(watched("old", "exact-a", cpu=2).pod)
    state.pod_seen(watched("old", "exact-a", cpu=2), 0)
    state.report_seen(report("exact-a", described=description(), holdings=kubelet), 0)
    state.pod_seen(watched("new", "exact-a", cpu=2), 0)
    state.pod_gone("uid-old", 0)
    return kubelet


def test_a_node_whose_last_pods_have_no_certain_place_is_left_out_for_a_moment(answers) -> None:
    state, kubelet = answers.state, last_pods_uncertain(answers.state)
    answer = answers.filter(watched("p", cpu=1), ["exact-a"], 0)
    assert answer.unresolvable == {"exact-a": UNCERTAIN}
    kubelet.remove("uid-old")
    kubelet.admit(watched("new", "exact-a", cpu=2).pod)
    state.report_seen(report("exact-a", described=description(), holdings=kubelet), 0)
    assert answers.filter(watched("p", cpu=1), ["exact-a"], 0).passed == ["exact-a"]


def test_a_waiting_pod_is_woken_once_when_a_node_can_take_it(answers) -> None:
    state = answers.state
    state.pod_seen(watched("a", "exact-a", cpu=3), 0)
    state.pod_seen(watched("b", "exact-a", cpu=4), 0)
    assert not answers.filter(watched("p", cpu=2), ["exact-a"], 0).passed
    state.changed.clear()
    state.pod_gone("uid-b", 1)
    assert answers.woken(1) == "exact-a"
    assert answers.woken(1) == ""


def test_nobody_is_woken_for_a_node_whose_last_pods_have_no_certain_place(answers) -> None:
    state, kubelet = answers.state, last_pods_uncertain(answers.state)
    assert not answers.filter(watched("p", cpu=1), ["exact-a"], 0).passed
    state.changed.intersection_update({"exact-a"})
    assert state.changed
    assert answers.woken(1) == ""
    kubelet.remove("uid-old")
    kubelet.admit(watched("new", "exact-a", cpu=2).pod)
    state.report_seen(report("exact-a", described=description(), holdings=kubelet), 0)
    assert answers.woken(1) == "exact-a"


def test_nobody_is_woken_by_a_change_that_lets_nobody_in(answers) -> None:
    state = answers.state
    state.pod_seen(watched("a", "exact-a", cpu=3), 0)
    state.pod_seen(watched("b", "exact-a", cpu=3), 0)
    assert not answers.filter(watched("p", cpu=4), ["exact-a"], 0).passed
    state.changed.clear()
    state.pod_gone("uid-a", 1)
    assert answers.woken(1) == ""


def test_a_pod_that_nobody_asks_for_any_more_waits_no_longer(answers) -> None:
    answers.filter(watched("p", cpu=5), ALL, 0)
    answers.state.changed.add("exact-a")
    answers.woken(10_000)
    assert not answers.waiting


def test_a_pod_that_was_seen_to_be_bound_goes_nowhere_else(answers) -> None:
    """Its scheduler is behind; no node is asked, which would know it already."""
    answers.state.pod_seen(watched("p", "exact-a", cpu=3, gpu=1), 0)
    answer = answers.filter(watched("p", cpu=9, gpu=1), ALL, 0)
    assert answer.passed == ["exact-a"]
    assert answer.unresolvable == dict.fromkeys(ALL[1:], "NUMA: the pod is bound to node exact-a")


def test_a_pod_that_is_asked_for_again_goes_where_it_may_be_bound_or_nowhere(answers) -> None:
    """Its scheduler has lost an answer, but the server has bound it, or may do so yet."""
    answers.state.assume(watched("p", "exact-a", cpu=3, gpu=1), 0)
    answer = answers.filter(watched("p", cpu=3, gpu=1), ALL, 0)
    assert answer.passed == ["exact-a"]
    assert answer.unresolvable == dict.fromkeys(
        ALL[1:], "NUMA: the pod may be bound to node exact-a"
    )
    assert answers.state.pods["uid-p"].node == "exact-a"


def test_an_annotation_that_nobody_can_read_is_an_error(answers) -> None:
    pod = watched("p")
    pod.pod.annotations["scheduling.koordinator.sh/numa-topology-spec"] = "{"
    with pytest.raises(InputError, match="numa-topology-spec"):
        answers.filter(pod, ALL, 0)


def test_a_yes_by_amounts_is_an_upper_bound() -> None:
    """Amounts do not tell that memory of a NUMA node is held by a pod that uses this one alone."""
    node_description = description(topologyManagerPolicy="best-effort")
    kubelet = FleetNode("n", Node.from_dict(node_description), json.dumps(node_description))
    assert kubelet.admit(watched("a", memory="1Gi").pod) is None
    state = ClusterState()
    state.report_seen(decode_report(json.dumps(kubelet.report(with_holdings=False)).encode()), 0)
    both = watched("b", memory="10Gi")
    assert Answers(state).filter(both, ["n"], 0).passed == ["n"]
    assert kubelet.admit(both.pod).reason == "UnexpectedAdmissionError"


def claiming(name: str, claim: str, *, is_made: bool = False, **limits) -> WatchedPod:
    """Return a pod with a claim, which is there by itself or was pod of a template."""
    pod = pod_object(name, **limits)
    how = {"resourceClaimTemplateName": "t"} if is_made else {"resourceClaimName": claim}
    pod["spec"]["resourceClaims"] = [{"name": "c", **how}]
    pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "c"}]
    pod["status"]["resourceClaimStatuses"] = [{"name": "c", "resourceClaimName": claim}]
    return PodReader().read(decode_pod(json.dumps(pod).encode()))


def allocated(name: str, node: str, device: str):
    """Return a claim that has a device."""
    result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": device}
    status = {"allocation": {"devices": {"results": [result]}}}
    return read_claim({**claim_named(name), "status": status}, "it")


@pytest.fixture
def with_claims(answers) -> Answers:
    """The same nodes: one with a device near each NUMA node, the farther first.

    One with the nearer one first.
    """
    claims = answers.state.claims
    claims.slices.listed(
        [
            read_slice(slice_of([1, 0], node="exact-a"), "it"),
            read_slice(slice_of([0, 1], node="exact-b"), "it"),
        ]
    )
    claims.classes.listed([read_class(class_of(), "it")])
    claims.claims.listed([read_claim(claim_named(name), "it") for name in "cd"])
    return answers


@pytest.mark.parametrize("is_made", [False, True])
def test_nodes_where_claims_would_be_near_come_first(with_claims, is_made) -> None:
    pod = claiming("p", "c", cpu=3, is_made=is_made)
    assert with_claims.filter(pod, ALL, 0).passed == ALL
    assert with_claims.prioritize(pod, ALL) == [1, 9, 5]
    assert with_claims.prioritize(watched("q", cpu=3), ALL) == [8, 8, 8]


def test_what_claims_cost_is_bounded_for_all_nodes_together(with_claims, monkeypatch) -> None:
    """Whoever writes a costly selector keeps no other pod waiting: of the rest nothing is told."""
    monkeypatch.setattr(extender_answers, "MOST_COST", 1)
    pod = claiming("p", "c", cpu=3)
    assert with_claims.filter(pod, ALL, 0).passed == ALL
    assert with_claims.prioritize(pod, ALL) == [1, 9, 5]  # one driver is asked once
    selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].?x == optional.none()'}}
    each = class_of()
    each["spec"]["selectors"] = [selector]
    with_claims.state.claims.classes.changed(read_class(each, "it"))
    assert with_claims.filter(pod, ALL, 0).passed == ALL
    assert with_claims.prioritize(pod, ALL) == [1, 5, 5]


def test_nodes_where_claims_would_be_far_are_refused_if_they_have_to_be_near(with_claims) -> None:
    with_claims.requires_near = True
    pod = claiming("p", "c", cpu=3)
    answer = with_claims.filter(pod, ALL, 0)
    assert (answer.passed, answer.unresolvable) == (["exact-b"], {"exact-a": FAR, "amounts": FAR})
    assert [with_claims.admits(pod, name) for name in ALL] == [False, True, False]
    assert with_claims.filter(watched("q", cpu=3), ALL, 0).passed == ALL


@pytest.mark.parametrize("order", [("default", "other"), ("other", "default")])
def test_copies_in_two_namespaces_are_told_of_their_own_claims(with_claims, order) -> None:
    """As of a chart that is installed twice: claims have the names of the other installation."""
    with_claims.requires_near = True
    free = claim_named("c")
    taken = {"request": "gpu", "driver": DRIVER, "pool": "exact-b", "device": "d1"}
    other = {
        **claim_named("c"),
        "status": {"allocation": {"devices": {"results": [taken]}}},
    }
    other["metadata"] = {**other["metadata"], "namespace": "other"}
    with_claims.state.claims.claims.listed([read_claim(free, "it"), read_claim(other, "it")])

    pods = {}
    for namespace in order:
        pod = claiming("p", "c", cpu=3)
        pods[namespace] = replaced(pod, pod=pod.pod.renamed(namespace=namespace, uid=namespace))
    for _ in range(2):
        for namespace, pod in pods.items():
            fresh = Answers(with_claims.state, requires_near=True)
            answer = with_claims.filter(pod, ALL, 0)
            assert answer == fresh.filter(pod, ALL, 0), namespace
            assert with_claims.prioritize(pod, ALL) == fresh.prioritize(pod, ALL)
    first, second = (with_claims.filter(pod, ALL, 0).passed for pod in pods.values())
    assert first != second

    # each of them is asked for when a node changes
    with_claims.state.changed.clear()
    waiting = pods["default"], pods["other"]
    with_claims.waiting.update({pod.pod.uid: (pod, 0.0) for pod in waiting})
    with_claims.state.changed.add("exact-b")
    assert with_claims.woken(0) == "exact-b"


@pytest.mark.parametrize("wide_first", [True, False])
def test_pods_that_differ_in_what_they_have_as_a_whole_are_told_apart(wide_first) -> None:
    """With PodLevelResourceManagers the node gives CPUs to the pod, whatever its containers ask."""
    gates = {"PodLevelResourceManagers": True}
    described = description(topologyManagerScope="pod", featureGates=gates)
    described["kubeletVersion"] = "1.37"
    state = ClusterState()
    empty_node = Description().template(json.dumps(described), {})
    state.report_seen(report("n", described=described, holdings=empty_node), 0)

    def asking(cpus: str) -> WatchedPod:
        pod = pod_object(f"p{cpus}", cpu=1, memory="256Mi")
        amounts = {"cpu": cpus, "memory": "1Gi"}
        pod["spec"]["resources"] = {"limits": amounts, "requests": amounts}
        return PodReader().read(decode_pod(json.dumps(pod).encode()))

    answers = Answers(state)
    passed = {cpus: ["n"] if cpus == "2" else [] for cpus in ("2", "200")}
    for cpus in sorted(passed, reverse=wide_first):
        assert answers.filter(asking(cpus), ["n"], 0).passed == passed[cpus]


def waking(answers: Answers, pod: WatchedPod) -> None:
    """Let a pod wait, and ask for a node that more fits on."""
    answers.waiting[pod.pod.uid] = pod, 0
    answers.state.changed.update(ALL)
    answers.woken(0)


@pytest.mark.parametrize(
    ("ask", "needs_near", "times"),
    [
        (lambda answers, pod: answers.filter(pod, ALL, 0), True, 2),
        (lambda answers, pod: answers.prioritize(pod, ALL), False, 1),
        (waking, True, 1),
    ],
    ids=["filter", "prioritize", "woken"],
)
def test_the_key_of_a_demand_is_made_for_each_question_and_not_for_each_node(
    with_claims, monkeypatch, ask, needs_near, times
) -> None:
    """`filter` makes one to find an answer that it has kept, too."""
    pods: list[str] = []

    def counted(pod) -> object:
        pods.append(pod.uid)
        return demand_key(pod)

    with_claims.requires_near = needs_near
    monkeypatch.setattr(extender_answers, "demand_key", counted)
    ask(with_claims, claiming("p", "c", cpu=3))
    assert pods == ["uid-p"] * times


def test_devices_that_other_claims_have_are_not_counted_on(with_claims) -> None:
    with_claims.requires_near = True
    claims = with_claims.state.claims.claims
    pod = claiming("p", "c", cpu=3)
    claims.changed(allocated("d", "exact-b", "d0"))
    claims.changed(allocated("e", "exact-a", "d0"))
    assert with_claims.filter(pod, ALL, 0).passed == ["exact-a"]
    claims.changed(allocated("f", "exact-a", "d1"))
    assert with_claims.filter(pod, ALL, 0).passed == []
    with_claims.woken(1)
    claims.gone(allocated("d", "exact-b", "d0"))
    assert with_claims.woken(2) == "exact-b"
    claims.changed(allocated("c", "exact-b", "d1"))  # as the scheduler decided, before it binds
    assert not with_claims.admits(pod, "exact-b")


def test_of_a_claim_that_was_not_seen_yet_nothing_can_be_told(with_claims) -> None:
    pod = claiming("p", "unseen", cpu=3)
    assert with_claims.prioritize(pod, ALL) == [5, 5, 5]
    assert [with_claims.state.meet(pod.pod, name, Effort()) for name in ALL] == [None] * 3


@pytest.fixture
def profiled():
    """Two equal nodes without policies, of which one has a pod across NUMA nodes.

    And a node known by amounts.
    """
    state = ClusterState(profile="document")
    for name in ("pair-0", "pair-1"):
        state.report_seen(
            report(name, described=description(topologyManagerPolicy="none"), holdings=empty()), 0
        )
    state.pod_seen(watched("across", "pair-0", cpu=5), 0)
    return Answers(state)


def alone(name: str, exclusive: str) -> WatchedPod:
    """Return a pod that wants, or has, to be alone on one NUMA node."""
    spec = {"numaTopologyPolicy": "SingleNUMANode", "singleNUMANodeExclusive": exclusive}
    pod = watched(name, cpu=1)
    return replace(pod, pod=pod.pod.renamed(annotations={SPEC: json.dumps(spec)}))


def test_a_profile_of_koordinator_refuses_and_scores_beside_what_kubelets_would(profiled) -> None:
    """Required keeps apart, Preferred comes last.

    As `alignup rank --koordinator-profile` has it.
    """
    state, pair = profiled.state, ["pair-0", "pair-1"]
    preferred, required = alone("p", "Preferred"), alone("r", "Required")
    assert profiled.filter(preferred, pair, 0).passed == pair

    mixed, apart = profiled.prioritize(preferred, pair)
    assert mixed == 0 < apart

    cluster = Cluster.from_nodes({name: state.members[name].node for name in pair})
    verdicts = {
        verdict.node: verdict for verdict in judge_nodes(cluster, preferred.pod, "document")
    }
    assert (mixed, apart) == tuple(int(verdicts[name].score // 10) for name in pair)

    state.report_seen(report("amounts"), 0)
    answer = profiled.filter(required, [*pair, "amounts", "stranger"], 0)
    assert answer.passed[0] == "pair-1"
    assert "exclusivity" in answer.failed["pair-0"]
    assert not profiled.admits(required, "pair-0")
    assert profiled.admits(required, "pair-1")

    state.pod_gone("uid-across", 0)
    assert profiled.filter(required, pair, 0).passed == pair


def test_what_the_profile_refuses_for_good_no_eviction_helps(profiled) -> None:
    state = profiled.state
    state.node_seen("pair-1", {"node.koordinator.sh/numa-topology-policy": "Restricted"})
    answer = profiled.filter(alone("r", "Required"), ["pair-1"], 0)
    assert answer.failed == {}
    assert "Restricted" in answer.unresolvable["pair-1"]


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(InputError, match="document"):
        ClusterState(profile="paper")


def test_a_pod_that_only_a_profile_refuses_is_woken_when_it_may_come(profiled) -> None:
    state = profiled.state
    assert profiled.filter(alone("r", "Required"), ["pair-0"], 0).passed == []
    state.changed.clear()
    state.changed.add("pair-0")
    assert profiled.woken(1) == ""
    state.pod_gone("uid-across", 2)
    assert profiled.woken(2) == "pair-0"


def test_copies_that_name_other_policies_do_not_keep_each_other_from_being_woken(profiled) -> None:
    """Their containers are equal: what does not let one in may let in the other."""
    state = profiled.state
    state.node_seen("pair-1", {"node.koordinator.sh/numa-topology-policy": "SingleNUMANode"})
    for name, cpus in (("a", 3), ("b", 4)):
        state.pod_seen(watched(name, "pair-1", cpu=cpus), 0)

    waits, barred = alone("r", "Required"), watched("s", cpu=1)
    other_policy = {SPEC: json.dumps({"numaTopologyPolicy": "Restricted"})}
    barred = replace(barred, pod=barred.pod.renamed(annotations=other_policy))
    assert barred.pod.all_containers is waits.pod.all_containers
    for pod in (waits, barred):
        assert profiled.filter(pod, ["pair-1"], 0).passed == []

    state.changed.clear()
    state.pod_gone("uid-b", 1)
    assert profiled.woken(1) == "pair-1"


def test_a_profile_is_asked_anew_of_nodes_that_changed_and_of_no_others(
    profiled, monkeypatch
) -> None:
    """What is kept of its answers is what it would say now, whatever came, went or was reported."""
    random = Random(5)
    state = profiled.state
    bound_uids = ["uid-across"]
    pair = ["pair-0", "pair-1"]
    judged_names: list[str] = []

    def judge(cluster, pod, profile, *names):
        judged_names.extend(names)
        return judge_nodes(cluster, pod, profile, *names)

    monkeypatch.setattr(cluster_state, "judge_nodes", judge)
    kinds = [
        alone("p", "Preferred"),
        alone("r", "Required"),
        watched("s", cpu=1),
        watched("t", cpu=3),
    ]
    # the answers, by pod and node, that have to be kept, and those that may be
    kept: set[tuple[str, str]] = set()
    may_be_kept: set[tuple[str, str]] = set()
    changed = set(pair)
    before: dict[str, list[str]] = {name: [] for name in pair}

    def on_both(pod):
        return {(pod.pod.name, name) for name in pair}

    for step in range(200):
        pod = random.choice(kinds)
        judged_names.clear()
        judged = state.view.judge(pod.pod, state.strategy)

        # a pod that a node does not have, as it was refused there, changes nothing when it goes
        now = {name: [pod.uid for pod in state.members[name].node.pods] for name in pair}
        kept = {(name, node) for name, node in kept if node not in changed}
        may_be_kept = {(name, node) for name, node in may_be_kept if now[node] == before[node]}
        fresh = {(pod.pod.name, node) for node in judged_names if node in pair}
        assert on_both(pod) - may_be_kept <= fresh <= on_both(pod) - kept
        kept |= on_both(pod)
        may_be_kept |= on_both(pod)
        before = now

        cluster = Cluster.from_nodes({name: state.members[name].node for name in pair})
        verdicts = judge_nodes(cluster, pod.pod, "document")
        assert [verdict.score for verdict in verdicts] == judged.score.tolist()
        assert not any(
            admitted and not verdict.admitted
            for admitted, verdict in zip(judged.admitted, verdicts, strict=True)
        )

        changed = set()
        name = random.choice(pair)
        if random.random() < 0.4:
            changed = {name}
            if bound_uids and random.random() < 0.5:
                uid = bound_uids.pop(random.randrange(len(bound_uids)))
                changed = {state.pods[uid].node}
                state.pod_gone(uid, 0)
            else:
                bound_uids.append(f"uid-{step}")
                state.pod_seen(watched(f"{step}", name, cpu=random.choice((1, 2, 5))), 0)


@pytest.fixture
def with_extended(with_claims) -> Answers:
    """The same nodes, whose class serves an extended resource."""
    serving_class = class_of()
    serving_class["spec"]["extendedResourceName"] = "example.com/served"
    with_claims.state.claims.classes.listed([read_class(serving_class, "it")])
    return with_claims


def test_nodes_are_told_apart_by_the_claim_for_extended_resources(with_extended) -> None:
    pod = watched("p", cpu=3, **{"example.com/served": 1})
    assert with_extended.filter(pod, ALL, 0).passed == ALL
    assert with_extended.prioritize(pod, ALL) == [1, 9, 5]


def test_nodes_far_from_the_devices_of_the_claim_are_refused_too(with_extended) -> None:
    with_extended.requires_near = True
    pod = watched("p", cpu=3, **{"example.com/served": 1})
    answer = with_extended.filter(pod, ALL, 0)
    assert (answer.passed, answer.unresolvable) == (["exact-b"], {"exact-a": FAR, "amounts": FAR})
    assert with_extended.filter(watched("q", cpu=3), ALL, 0).passed == ALL


def test_a_class_that_comes_later_counts(with_claims) -> None:
    pod = watched("p", cpu=3, **{"example.com/served": 1})
    assert with_claims.prioritize(pod, ALL) == [8, 8, 8]
    serving_class = class_of()
    serving_class["spec"]["extendedResourceName"] = "example.com/served"
    with_claims.state.claims.classes.changed(read_class(serving_class, "it"))
    assert with_claims.prioritize(pod, ALL) == [1, 9, 5]


def test_no_claim_is_made_where_a_plugin_offers_the_resource(with_extended) -> None:
    state = with_extended.state
    node = state.members["exact-a"].node
    node.devices.update("example.com/served", [Device("g0", (0,))])
    pod = watched("p", cpu=3, **{"example.com/served": 1}).pod
    assert state.meet(pod, "exact-a", Effort()) is True
    assert state.meet(pod, "exact-b", Effort()) is True
