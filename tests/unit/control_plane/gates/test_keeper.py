"""Which pods get which places, after events in the order in which a test has them."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given as given_by_hypothesis
from hypothesis import strategies as st

from alignup.control_plane.gates.decisions import Release, patch_of
from alignup.control_plane.gates.keeper import Keeper
from alignup.control_plane.gates.kept_nodes import PATIENCE
from alignup.control_plane.gates.preemption import Preemption
from alignup.control_plane.gates.reasons import Reasons
from alignup.control_plane.gates.scheduler_rules import NodeLoad
from alignup.control_plane.gates.wait_reasons import WaitReasons
from alignup.control_plane.gates.waiting_pods import PLACE_LABEL
from alignup.control_plane.scheduler.cluster_state import SLOWEST_REPORT, ClusterState
from alignup.kubelet.node_resource_topology.report import Description
from alignup.kubernetes.node_fit import NodeObject
from alignup.records import replace
from fakes.api_server import merge
from inputs.keepers import EMPTY, ROOM, SPREAD, bound, exact, given, keeper_of, labels, let_go, node
from inputs.waiting_pods import GATED_READER, gated_object, member, waiting_pod
from inputs.watched_objects import description, pod_object, report


def test_a_node_that_is_gone_is_no_member_of_the_cluster_any_more() -> None:
    keeper = keeper_of("a", "b")
    keeper.node_gone("a")
    assert set(keeper.state.members) == {"b"}
    keeper.nodes_listed([node("a")], 2)
    assert set(keeper.state.members) <= {"a"}


def test_of_a_bound_pod_it_is_no_news_since_when_its_kubelet_runs_it() -> None:
    keeper = keeper_of("a")
    pod = bound("p", "a", cpu=4)
    assert keeper.is_news(pod)
    keeper.pod_seen(pod, 1)
    assert not keeper.is_news(replace(pod, since="2026-01-01T00:00:07Z"))
    changes = replace(pod, is_leaving=True), replace(pod, node="b"), bound("p", "a", cpu=3)
    assert all(map(keeper.is_news, changes))


def test_what_ends_a_place_is_news() -> None:
    keeper = keeper_of("a")
    waiting = waiting_pod("q", cpu=1)
    keeper.pod_seen(waiting, 2)
    assert given(keeper.decide(2)) == {"q": ("a",)}
    assert keeper.is_news(waiting)
    assert keeper.is_news(bound("q", "a", cpu=1))


@pytest.mark.parametrize("how", ["event", "list"])
@pytest.mark.parametrize("reported", [True, False])
def test_a_pod_that_is_seen_no_longer_keeps_what_it_holds_until_that_is_sure(how, reported) -> None:
    """Its kubelet may be at it still; its scheduler counts it no more."""
    keeper = keeper_of("a")
    pod = bound("p", "a", cpu=4)
    holder = EMPTY.copy()
    assert holder.admit(pod.pod)
    keeper.pod_seen(pod, 1)
    if reported:
        keeper.state.report_seen(exact("a", holder), 1)
    keeper.pod_seen(waiting_pod("q", cpu=4), 2)
    if how == "event":
        keeper.pod_vanished("uid-p", 3)
    else:
        keeper.pods_listed([waiting_pod("q", cpu=4)], 3, is_cached=True)
    assert keeper.nodes.load("a").amounts["cpu"] == 0
    keeper.state.tick(10)
    assert given(keeper.decide(10)) == {}

    if reported:
        keeper.state.report_seen(exact("a"), 11)
        keeper.reported(["a"])
    else:
        keeper.state.pod_missing("uid-p", 11)
        keeper.state.tick(14)
    assert given(keeper.decide(14)) == {"q": ("a",)}


def test_a_pod_that_was_deleted_holds_what_its_kubelet_may_still_give_it() -> None:
    """No report has listed it yet: only who looks for it knows that it is not there."""
    keeper = keeper_of("a")
    keeper.pod_seen(bound("p", "a", cpu=4), 1)
    keeper.pod_seen(waiting_pod("q", cpu=4), 1)
    keeper.pod_vanished("uid-p", 2)
    assert keeper.state.is_vanished("uid-p")
    assert given(keeper.decide(3)) == {}
    keeper.state.pod_missing("uid-p", 4)
    keeper.state.tick(60)
    assert given(keeper.decide(60)) == {"q": ("a",)}

    # of an end there is no doubt
    keeper.pod_seen(bound("q", "a", cpu=4), 61)
    keeper.pod_seen(waiting_pod("r", cpu=4), 61)
    keeper.pod_gone("uid-q", 62)
    assert given(keeper.decide(63)) == {"r": ("a",)}


@pytest.mark.parametrize("nodes_first", [False, True])
def test_a_keeper_that_starts_anew_knows_the_places_by_the_objects(nodes_first) -> None:
    keeper = Keeper(ClusterState())
    pods = [let_go("p", ["a"], cpu=4), waiting_pod("q", cpu=4), let_go("r", ["b"], cpu=4)]
    nodes = [
        node("a"),
        node("b", is_unschedulable=True),
        node(
            "c",
            labels={
                f"{PLACE_LABEL}uid-r": "true",
                f"{PLACE_LABEL}uid-old": "true",
            },
        ),
    ]
    if nodes_first:
        keeper.nodes_listed(nodes, 0)
        keeper.pods_listed(pods, 0)
    else:
        keeper.pods_listed(pods, 0)
        keeper.nodes_listed(nodes, 0)
    for name in ("a", "b", "c"):
        keeper.state.report_seen(exact(name), 0)

    decisions = keeper.decide(1)
    assert given(decisions) == {}
    assert labels(decisions) == [("c", "old", False)]
    assert keeper.places["uid-r"].nodes == ("b", "c")

    # another list does not take the places away, however old they are
    keeper.pods_listed(pods, 900, 899)
    assert {"uid-p", "uid-r", "uid-r@c"} == keeper.state.pods.keys()
    assert given(keeper.decide(901)) == {}
    keeper.pod_gone("uid-p", 902)
    assert given(keeper.decide(902)) == {"q": ("a",)}


def test_a_leader_that_begins_anew_forgets_what_it_asked_for() -> None:
    keeper = keeper_of("a")
    pod = waiting_pod("p", cpu=4)
    keeper.pod_seen(pod, 1)
    assert given(keeper.decide(1)) == {"p": ("a",)}
    assert [gated.uid for gated in keeper.pods.gated] == ["uid-p"]
    keeper.begin_term(2)
    keeper.pod_seen(replace(pod, version="5"), 2)
    (release,) = keeper.decide(2)
    assert release.pod.version == "5"


def test_a_keeper_that_stands_by_follows_the_one_that_leads() -> None:
    keeper = keeper_of("a", "b")
    keeper.pod_seen(waiting_pod("p", cpu=4), 1)
    assert given(keeper.decide(1)) == {"p": ("a",)}
    keeper.stand_by(4)

    # what this one has decided came to nothing
    keeper.pod_seen(let_go("p", ["b"], cpu=4), 2)
    assert keeper.places["uid-p"].nodes == ("b",)
    assert {pod.node for pod in keeper.state.pods.values()} == {"b"}
    keeper.node_seen(node("a", labels={f"{PLACE_LABEL}uid-p": "true"}), 3)
    assert keeper.places["uid-p"].nodes == ("b", "a")

    # a label that nobody wants is taken away by who leads
    keeper.begin_term(4)
    keeper.pod_seen(bound("p", "a", cpu=4), 4)
    assert labels(keeper.decide(4)) == [("a", "p", False)]


def test_what_a_keeper_did_not_write_in_one_term_is_no_place_in_the_next() -> None:
    """Another one led meanwhile, and has given that node to others."""
    keeper = keeper_of("a", "b")
    keeper.pod_seen(waiting_pod("p", cpu=4), 1)
    keeper.decide(1)
    keeper.pod_seen(let_go("p", ["a"], cpu=4), 2)
    keeper.node_seen(node("a", is_unschedulable=True), 2)
    assert labels(keeper.decide(2)) == [("b", "p", True)]
    assert keeper.places["uid-p"].nodes == ("a", "b")

    keeper.stand_by(3)
    keeper.node_seen(node("a"), 3)
    keeper.pod_seen(let_go("q", ["b"], cpu=4), 3)
    keeper.begin_term(4)
    assert keeper.places["uid-p"].nodes == ("a",)
    assert keeper.decide(4) == []


def test_a_label_that_a_pod_cannot_do_without_is_set_by_the_next_keeper() -> None:
    """The one before has let the pod go, and not set it."""
    term = {"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    made = gated_object("p", cpu=4, spec={"affinity": {"nodeAffinity": required}})
    pod = GATED_READER.decode(json.dumps(made).encode())
    written = merge(made, patch_of(Release(pod, ("a",), pod.label)))
    keeper = keeper_of("a", "b")
    keeper.pod_seen(GATED_READER.decode(json.dumps(written).encode()), 1)
    assert labels(keeper.decide(1)) == [("a", "p", True)]


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            (
                *("new", "new", "bound", "bound", "ended", "report", "cordon", "uncordon"),
                *("foreign", "let go", "refused", "time", "list", "node gone", "shared"),
                "away",
            )
        ),
        st.integers(0, 7),
    ),
    max_size=60,
)


class World:
    """A cluster as its API server and its kubelets have it, which tells a keeper of each change."""

    def __init__(self) -> None:
        self.names = ("a", "b", "c")
        self.keeper = keeper_of(*self.names)
        self.kubelets = {name: EMPTY.copy() for name in self.names}
        self.pods = {}
        self.given = {}
        self.now = 1.0
        self.count = 0

    def run(self, event, number) -> None:
        """Let something happen."""
        self.now += 0.1
        name = self.names[number % 3]
        getattr(self, event.replace(" ", "_"))(number, name)
        for decision in self.keeper.decide(self.now):
            if isinstance(decision, Release):
                self.given[decision.pod.uid] = decision

    def new(self, number, _name) -> None:
        self.count += 1
        spec = SPREAD if number == 7 else {}
        pod = waiting_pod(f"p{self.count}", cpu=1 + number % 4, priority=number % 2, spec=spec)
        self.keeper.pod_seen(pod, self.now)

    def bound(self, number, _name) -> None:
        """Bind one of those that were let go, as its scheduler does, to one of its nodes."""
        if not self.given:
            return
        uid = sorted(self.given)[number % len(self.given)]
        decision = self.given.pop(uid)
        self._bind(decision.pod, decision.nodes[number % len(decision.nodes)])

    def _bind(self, pod, name) -> None:
        plain = pod.watched.pod
        record = bound(plain.name, name, cpu=plain.exclusive_cpus)
        # the kubelet admits it at once, and reports it some time later
        assert self.kubelets[name].admit(record.pod), (plain.name, name)
        self.pods[pod.uid] = name
        self.keeper.pod_seen(record, self.now)

    def foreign(self, number, name) -> None:
        """Bind a pod that no keeper has placed, where there is room."""
        self.count += 1
        record = bound(f"f{self.count}", name, cpu=1 + number % 2)
        due = [uid for uid, decision in self.given.items() if name in decision.nodes]
        if not due and self.kubelets[name].admit(record.pod):
            self.pods[record.pod.uid] = name
            self.keeper.pod_seen(record, self.now)

    def shared(self, number, name) -> None:
        """Bind a pod that takes of the sums only."""
        self.count += 1
        pod = pod_object(f"s{self.count}", name)
        pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": f"{number}00m"}}
        self.keeper.pod_seen(GATED_READER.decode(json.dumps(pod).encode()), self.now)

    def let_go(self, number, _name) -> None:
        """Show that a gate is off."""
        if self.given:
            decision = self.given[sorted(self.given)[number % len(self.given)]]
            plain = decision.pod.watched.pod
            pod = let_go(plain.name, decision.nodes, cpu=plain.exclusive_cpus)
            self.keeper.pod_seen(pod, self.now)

    def refused(self, number, _name) -> None:
        """Let a patch come to nothing."""
        if self.given:
            uid = sorted(self.given)[number % len(self.given)]
            if not self.keeper.places[uid].is_open:
                self.keeper.refused(self.given.pop(uid).pod, self.now)

    def ended(self, number, _name) -> None:
        if self.pods:
            uid = sorted(self.pods)[number % len(self.pods)]
            self.kubelets[self.pods.pop(uid)].remove(uid)
            # a server says the one or the other, and who looks for it finds none
            if number % 2:
                self.keeper.pod_gone(uid, self.now)
            else:
                self.keeper.pod_vanished(uid, self.now)
                self.keeper.state.pod_missing(uid, self.now)

    def report(self, _number, name) -> None:
        self.keeper.state.report_seen(exact(name, self.kubelets[name]), self.now)
        self.keeper.reported([name])

    def cordon(self, _number, name) -> None:
        # a pod that was let go to it would have to move
        if not any(name in decision.nodes for decision in self.given.values()):
            self.keeper.node_seen(node(name, is_unschedulable=True), self.now)

    def uncordon(self, _number, name) -> None:
        self.keeper.node_seen(node(name), self.now)

    def node_gone(self, _number, name) -> None:
        # what nobody has reported of it is known again only when it reports
        if not any(name in decision.nodes for decision in self.given.values()):
            self.keeper.node_gone(name)
            self.report(0, name)

    def time(self, number, _name) -> None:
        self.now += (0.5, 2.0, 12.0, 40.0)[number % 4]
        self.keeper.state.tick(self.now)

    def list(self, _number, _name) -> None:
        """List what is bound and what waits."""
        pods = list(self.keeper.queue)
        pods += [place.newest for place in self.keeper.places]
        state = self.keeper.state
        pods += [pod for uid, pod in state.pods.items() if uid not in state.assumed]
        pods += [pod for pod, _ in self.keeper.pods._parked.values()]
        self.keeper.pods_listed(pods, self.now, self.now)

    def away(self, number, name) -> None:
        """Kill the keeper, and start another one ten minutes later, by what the objects say.

        Of the patches under way some have arrived. Meanwhile pods come, are bound, and end; what is
        told to the dead keeper then stands for the API server.
        """
        server = self.keeper
        lost = []
        for uid in sorted(self.given):
            number += 1
            assert uid in server.places
            if number % 2 and not server.places[uid].is_open:
                lost.append(self.given.pop(uid).pod)

        self.bound(number, name)
        self.ended(number, name)
        self.foreign(number, name)
        self.new(number, name)

        self.now += 600
        pods = [*lost, *server.queue, *(pod for pod, _ in server.pods._parked.values())]
        for decision in self.given.values():
            plain = decision.pod.watched.pod
            pods.append(let_go(plain.name, decision.nodes, cpu=plain.exclusive_cpus))

        state = server.state
        pods += [pod for uid, pod in state.pods.items() if uid not in state.assumed]

        self.keeper = Keeper(ClusterState())
        nodes = list(server.nodes.objects.values())
        listings = [
            lambda: self.keeper.nodes_listed(nodes, self.now),
            lambda: self.keeper.pods_listed(pods, self.now, self.now),
            *(lambda name=name: self.report(0, name) for name in self.names),
        ]
        # in any order
        for listing in listings[number % 5 :] + listings[: number % 5]:
            listing()


def check_all_moments(events) -> None:
    """Check after each event what always holds.

    Only what changed is asked: asked anew, all nodes refuse all that wait. Kubelets that admit pods
    at once reject none of those that were let go.
    """
    world = World()
    for event, number in events:
        world.run(event, number)
        keeper = world.keeper
        for pod in keeper.queue:
            assert keeper.choice.choose(pod, None, 1) == [], (event, pod.uid)

        # the sums are those of all pods that count as bound
        for name in world.names:
            load = NodeLoad()
            for watched in keeper.state.by_node.get(name, {}).values():
                load.add(watched.pod)
            kept = keeper.nodes.load(name)
            assert (+kept.amounts, kept.pods) == (+load.amounts, load.pods)


@given_by_hypothesis(EVENTS)
def test_nobody_waits_whom_a_node_would_take_and_no_kubelet_rejects_anybody(events) -> None:
    check_all_moments(events)


@pytest.mark.parametrize("seed", range(20))
def test_a_keeper_that_comes_back_after_ten_minutes_gives_nothing_twice(seed) -> None:
    """It goes again and again, in the middle of its patches, and pods come and end meanwhile."""
    random = Random(seed)
    often = ("new", "new", "bound", "ended", "report", "foreign", "let go", "away", "away")
    check_all_moments([(random.choice(often), random.randrange(8)) for _ in range(60)])


def crowded_pod(shape, name, *, in_group):
    """Return a pod that asks for more than any node can be judged by, by each of its amounts."""
    amounts = {
        "nothing of ten page sizes": {f"hugepages-{1 << size}Mi": "0" for size in range(10)},
        "ten page sizes": {f"hugepages-{1 << size}Mi": f"{1 << size}Mi" for size in range(10)},
        "thirty devices": {f"example.com/device-{number}": "1" for number in range(30)},
    }[shape]
    pod = member(name, 2, cpu=1, priority=3) if in_group else gated_object(name, cpu=1, priority=3)
    resources = pod["spec"]["containers"][0]["resources"]
    for amounts_of in resources.values():
        amounts_of.update(amounts)
    return GATED_READER.decode(json.dumps(pod).encode())


@pytest.mark.parametrize("in_group", [False, True])
@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize("shape", ["nothing of ten page sizes", "ten page sizes", "thirty devices"])
def test_a_pod_beyond_all_judgement_waits_and_others_get_their_places(
    shape, is_full, in_group
) -> None:
    devices = {f"example.com/device-{number}": [{"id": "x", "numa": 0}] for number in range(30)}
    described = description() | {"devices": devices}
    template = Description().template(json.dumps(described), {})
    room = {**ROOM, **dict.fromkeys(devices, 1)}
    keeper = Keeper(ClusterState())
    keeper.pods_listed([bound("old", "a", cpu=4)] if is_full else [], 0)
    for name in ("a", "b"):
        keeper.node_seen(NodeObject(name, allocatable=room), 0)
        keeper.state.report_seen(report(name, described=described, holdings=template), 0)

    for name in ("p", "q"):
        keeper.pod_seen(crowded_pod(shape, name, in_group=in_group), 1)

    # as long as it takes until nodes are kept, and until rejections and ends are forgotten
    for now in (1, 2, 2 + PATIENCE, 3 + 2 * PATIENCE, 4 + SLOWEST_REPORT):
        keeper.node_seen(NodeObject("a", allocatable=room, labels={"at": str(now)}), now)
        assert given(keeper.decide(now)) == {}
        assert Preemption(keeper).plan((), now) is None
        keeper.group_places.go_on(now)
        for pod, sentence in Reasons(keeper).due(now):
            assert pod.watched.pod.name in ("p", "q")
            assert sentence
        WaitReasons(keeper).look()

    now = 5 + SLOWEST_REPORT
    keeper.pod_seen(waiting_pod("other", cpu=2), now)
    assert given(keeper.decide(now)).keys() == {"other"}
    keeper.pod_gone("uid-old", now + 1)
    assert given(keeper.decide(now + 1)) == {}


def test_a_standby_keeps_nothing_of_pods_and_nodes_that_are_gone() -> None:
    """It may follow for weeks before it leads, and decides nothing meanwhile."""
    keeper = keeper_of("a", "b")
    for number in range(300):
        now = float(10 * number)
        name = f"n{number}"
        keeper.node_seen(node(name), now)
        keeper.state.report_seen(exact(name), now)
        for place in ("a", name):
            uid = f"p{number}{place}"
            keeper.pod_seen(bound(uid, place, cpu=1), now)
            keeper.pod_gone(f"uid-{uid}", now + 1)
        keeper.node_gone(name)
        keeper.state.report_gone(name)
        keeper.stand_by(now + 3)

    parts = keeper.unadmitted, keeper.nodes, keeper.places, keeper.state
    kept = {
        attribute: len(table) + sum(len(entry) for entry in _entries(table))
        for part in parts
        for attribute, table in vars(part).items()
        if isinstance(table, dict | set)
    }
    assert max(kept.values()) < 100, kept


def _entries(table):
    entries = table.values() if isinstance(table, dict) else ()
    return [entry for entry in entries if isinstance(entry, dict | set)]


def test_a_pod_that_a_list_says_is_bound_waits_no_more() -> None:
    keeper = keeper_of("a", "b")
    keeper.pod_seen(waiting_pod("p", cpu=3), 1)
    keeper.pods_listed([bound("p", "a", cpu=3)], 2)
    assert not list(keeper.queue)
    assert keeper.decide(3) == []
    assert [keeper.nodes.load(name).pods for name in ("a", "b")] == [1, 0]
