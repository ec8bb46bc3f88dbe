"""A keeper in a world in which groups, and the pods of groups, change in whatever way they can.

The world has an API server, nodes with a kubelet each, and a scheduler.

- **Users** make pods: single ones, and members of a few groups, some of which ask for nothing
  exclusive. They let a pod come to another group or to none, say another size, select other nodes,
  delete pods, and write into them what means nothing. Strangers among them take gates off, and
  write plans that are no keeper's.
- **The keeper** learns of pods in the order in which they changed, some time later. What it decides
  is written later, in any order. The server refuses it where the pod has changed since, and now and
  then for no reason, or does it and the answer is lost. The keeper begins another term, or is
  followed by one that knows what is listed.
- **The scheduler** binds a pod without a gate to a node that the pod is pinned to, by its sums. The
  kubelet admits pods as they are bound, and reports now and then.
- **Nodes** are lost with all their pods, and come back empty. For pods that wait long, nodes come
  (`grows`), and less important pods go (`evicts`).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from random import Random
from typing import TYPE_CHECKING, Any

from alignup.control_plane.gates.decisions import Label, patch_of
from alignup.control_plane.gates.keeper import Keeper
from alignup.control_plane.gates.placeholders import KARPENTER, Placeholders
from alignup.control_plane.gates.preemption import Preemption
from alignup.control_plane.gates.waiting_pods import PLACE, PLACE_LABEL, GatedPodReader, WaitingPod
from alignup.control_plane.scheduler.cluster_state import ClusterState
from alignup.kubernetes.groups import GROUP_LABEL, SIZE_ANNOTATION
from alignup.kubernetes.node_fit import NodeObject, requests_of
from fakes.api_server import merge
from inputs.keepers import EMPTY, ROOM
from inputs.waiting_pods import gated_object, idle_member, member
from inputs.watched_objects import description, report
from models.waiting_in_vain import Room, membership_of, waiting_in_vain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from alignup.control_plane.api_server.objects import WatchedPod
    from alignup.control_plane.gates.decisions import Plan, Release

NAMES = "abcdefgh"
MOST_NODES_AT_FIRST = 5
MOST_PODS = 14
GROUPS = ("g", "h")
ZONES = ("east", "west")

# Rounds after which all has been tried again that was refused, and nothing is new to a node.
ROUNDS = 24
ROUND_SECONDS = 3.0

# How often an answer is lost, a patch is refused for no reason, and an event is the last for now.
LOST = 0.05
REFUSED = 0.03
LAST = 0.3


class ChangingGroups:
    """One run.

    Args:
        seed: of everything that is drawn.
        strangers: whether users take gates off, and write plans.
        evicts: whether less important pods go for others.
        grows: whether nodes come for pods that wait long.
        patience: seconds after which a node may be kept for a pod.

    Attributes:
        objects: by uid, the pods as the API server has them.
        kubelets: by the names of the nodes that there are.
        outcomes: how often something happened.
    """

    def __init__(
        self,
        seed: int,
        *,
        strangers: bool = True,
        evicts: bool = False,
        grows: bool = False,
        patience: float = 5.0,
    ) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.outcomes: Counter[str] = Counter()
        self.objects: dict[str, dict[str, Any]] = {}
        # pods go for others only where there are few nodes
        most = 2 if evicts else MOST_NODES_AT_FIRST
        names = NAMES[: self.random.randint(2, most)]
        self.kubelets = {name: EMPTY.copy() for name in names}
        self._labels: dict[str, set[str]] = {name: set() for name in names}
        self._lost: list[str] = []

        self._strangers = strangers
        self._evicts = evicts
        self._grows = grows
        self._patience = patience
        self._is_at_rest = False

        self._made = 0
        self._version = 1
        self._reader = GatedPodReader()
        # By uid, the records of the pods.
        self._records: dict[str, WatchedPod | WaitingPod] = {}
        # The nodes that hold something else than they have said.
        self._unreported: set[str] = set()
        # What the keeper has not learnt yet, and what it has decided and is not written yet.
        self._events: list[tuple[str, str, WatchedPod | WaitingPod]] = []
        self._patches: list[tuple[Keeper, Label | Plan | Release]] = []
        self._start()

    def _start(self) -> None:
        """Start a keeper that knows nothing."""
        self.keeper = Keeper(ClusterState(), patience=self._patience)
        self._preemption = Preemption(self.keeper)
        # only asked for whom it would make placeholders
        api: Any = None
        self._placeholders = Placeholders(
            api, self.keeper, lambda: self.now, autoscaler=KARPENTER, patience=self._patience
        )
        self._list()

    # What happens.

    def step(self) -> None:
        """Let something happen, and check what always holds."""
        actions = [
            (20, self._make),
            (15, self._change),
            (20, self._learn),
            (20, self._decide),
            (20, self._write),
            (10, self._schedule),
            (4, self._report_all),
            (1, self._list),
            (1, self._lose_node),
            (1, self._return_node),
            (0.4, self._begin_term),
            (0.4, self._follow),
        ]
        if self._evicts:
            actions.append((12, self._evict))
        if self._grows:
            actions.append((3, self._grow))

        self._draw(actions)()
        self.check()

    def _draw(self, weighted: list[tuple[float, Any]]) -> Any:
        weights = [weight for weight, _ in weighted]
        (choice,) = self.random.choices([choice for _, choice in weighted], weights)
        return choice

    def rest(self, *, pods_end: bool) -> None:
        """Let all that is under way come to an end, while users do nothing.

        Args:
            pods_end: whether pods without a gate end meanwhile.
        """
        self._is_at_rest = True
        for _ in range(ROUNDS):
            self.now += ROUND_SECONDS
            while self._events or self._patches:
                self._learn()
                self._write()
            for uid, pod in list(self.objects.items()):
                if pods_end and not pod["spec"].get("schedulingGates"):
                    self._delete(uid)
                else:
                    self._bind(uid)
            while self._events:
                self._learn()
            self._report(self._unreported)
            self._decide()
            self.check()

        self._is_at_rest = False

    def finish(self) -> None:
        """Let all pods go, and check that nothing is kept of them."""
        for uid in list(self.objects):
            self._delete(uid)
        self.rest(pods_end=True)
        assert not any(self._labels.values()), self._labels
        assert not dict(self._kept()), dict(self._kept())

    # Users.

    def _make(self) -> None:
        """Make a pod: mostly a member."""
        if len(self.objects) >= MOST_PODS:
            return

        self._made += 1
        name = f"p{self._made}"
        group = self.random.choice(GROUPS)
        size = self.random.choice([2, 2, 3, 4])
        limits = {"cpu": self.random.choice([1, 2, 4])}
        if self.random.random() < 0.1:
            limits["gpu"] = 1

        # no member goes for others
        singles = 14 if self._evicts else 3
        kind = self._draw([(3, "idle"), (14, "member"), (singles, "single")])
        if kind == "idle":
            pod = idle_member(name, size)
            pod["metadata"]["labels"][GROUP_LABEL] = group
        elif kind == "member":
            pod = member(name, size, group, **limits)
        else:
            pod = gated_object(name, **limits)

        least = 1 if self._evicts and kind != "single" else 0
        pod["spec"]["priority"] = self.random.choice([least, least, 5])
        self._put(pod)

    def _change(self) -> None:
        """Change a pod, or let it go."""
        if not self.objects:
            return

        changes: list[tuple[float, Callable[[str], Any]]] = [
            (1, self._join),
            (1, self._leave_group),
            (1, self._resize),
            (1, self._select),
            (1, self._note),
            (1, self._leave),
            (2, self._delete),
        ]
        if self._strangers:
            changes += [(1, self._take_gate_off), (1, self._plan)]
        self._draw(changes)(self.random.choice(sorted(self.objects)))

    def _join(self, uid: str) -> None:
        """Let a pod come to another group, or to one."""
        annotations = self.objects[uid]["metadata"].get("annotations", {})
        self._patch(
            uid,
            labels={GROUP_LABEL: self.random.choice([*GROUPS, "i"])},
            annotations={SIZE_ANNOTATION: annotations.get(SIZE_ANNOTATION, "2")},
        )

    def _leave_group(self, uid: str) -> None:
        self._patch(uid, labels={GROUP_LABEL: None})

    def _resize(self, uid: str) -> None:
        size = self.random.choice(["1", "2", "3", "4", "5", "many", None])
        self._patch(uid, annotations={SIZE_ANNOTATION: size})

    def _select(self, uid: str) -> None:
        """Let a pod select other nodes, as it may while it has a gate."""
        if self._is_gated(uid):
            zone = self.random.choice(ZONES)
            self._put(merge(self.objects[uid], {"spec": {"nodeSelector": {"zone": zone}}}))

    def _note(self, uid: str) -> None:
        self._patch(uid, annotations={"note": str(self._version)})

    def _leave(self, uid: str) -> None:
        """Let a pod begin to end."""
        self._patch(uid, deletionTimestamp="2026-01-01T00:00:00Z")

    def _delete(self, uid: str) -> None:
        name = _node_of(self.objects.pop(uid))
        self._events.append(("gone", uid, self._records.pop(uid)))
        kubelet = self.kubelets.get(name)
        if kubelet is not None and kubelet.manager.has_pod(uid):
            kubelet.remove(uid)
            self._unreported.add(name)

    def _take_gate_off(self, uid: str) -> None:
        if self._is_gated(uid):
            self._put(merge(self.objects[uid], {"spec": {"schedulingGates": None}}))

    def _plan(self, uid: str) -> None:
        """Write a plan that is no keeper's, or take one away."""
        if self._is_gated(uid):
            name = self.random.choice([*self.kubelets, "elsewhere", None])
            self._patch(uid, annotations={PLACE: name})

    def _is_gated(self, uid: str) -> bool:
        return bool(self.objects[uid]["spec"].get("schedulingGates"))

    def _patch(self, uid: str, **metadata: Any) -> None:
        self._put(merge(self.objects[uid], {"metadata": metadata}))

    def _put(self, pod: dict[str, Any]) -> None:
        self._version += 1
        pod = merge(pod, {"metadata": {"resourceVersion": str(self._version)}})
        uid = pod["metadata"]["uid"]
        self.objects[uid] = pod
        self._records[uid] = self._reader.decode(json.dumps(pod).encode())
        self._events.append(("seen", uid, self._records[uid]))

    # What the keeper learns.

    def _learn(self) -> None:
        """Let the keeper learn of some changes, in their order."""
        while self._events:
            kind, uid, record = self._events.pop(0)
            if kind == "seen":
                self.keeper.pod_seen(record, self.now)
            elif isinstance(record, WaitingPod):
                self.keeper.pod_gone(uid, self.now)
            else:
                self._miss(self.keeper, uid)
            if self.random.random() < LAST:
                break

    def _miss(self, keeper: Keeper, uid: str) -> None:
        """Let a keeper learn that a pod is not there, which it looked for."""
        keeper.pod_vanished(uid, self.now)
        keeper.state.pod_missing(uid, self.now)

    def _list(self) -> None:
        """Let the keeper list what there is; what is on its way is older than that."""
        self._events = []
        self.keeper.pods_listed(self._records.values(), self.now)
        self.keeper.nodes_listed([self._node(name) for name in self.kubelets], self.now)
        self._report(self.kubelets)

    def _report_all(self) -> None:
        self._report(self.kubelets)

    def _report(self, names: Iterable[str]) -> None:
        """Let nodes say what they hold."""
        names = sorted(names)
        for name in names:
            said = report(name, described=description(), holdings=self.kubelets[name])
            self.keeper.state.report_seen(said, self.now)
        self.keeper.reported(names)
        self._unreported.difference_update(names)

    def _node(self, name: str) -> NodeObject:
        zone = ZONES[NAMES.index(name) % len(ZONES)]
        labels = {"zone": zone, **dict.fromkeys(self._labels[name], "true")}
        return NodeObject(name, labels=labels, allocatable=ROOM)

    # What the keeper decides.

    def _decide(self) -> None:
        self.now += self.random.choice([0.01, 0.5, 1.5])
        if self.keeper.state.is_overdue(self.now):
            self._list()
        self.keeper.state.tick(self.now)
        self._patches += [(self.keeper, decision) for decision in self.keeper.decide(self.now)]
        self._check_plans()

    def _write(self) -> None:
        """Write some of what was decided, in any order."""
        while self._patches:
            index = self.random.randrange(len(self._patches))
            keeper, decision = self._patches.pop(index)
            if isinstance(decision, Label):
                self._write_label(keeper, decision)
            else:
                self._write_pod(keeper, decision)
            if self.random.random() < LAST:
                break

    def _write_label(self, keeper: Keeper, label: Label) -> None:
        keys = self._labels.get(label.node)
        if keys is None:
            keeper.label_refused(label)
        else:
            (keys.add if label.is_set else keys.discard)(label.key)
            self.keeper.node_seen(self._node(label.node), self.now)

    def _write_pod(self, keeper: Keeper, decision: Plan | Release) -> None:
        """Take a patch of a pod, perhaps of a keeper that leads no more."""
        if not self._is_at_rest and self.random.random() < REFUSED:
            keeper.refused(decision.pod, self.now, for_good=True)
            return

        patch = patch_of(decision)
        version = patch["metadata"].pop("resourceVersion")
        stored = self.objects.get(decision.pod.uid)
        if stored is None or stored["metadata"]["resourceVersion"] != version:
            self._look_again(keeper, decision.pod)
            return

        self._put(merge(stored, patch))
        self.outcomes[type(decision).__name__] += 1
        if not self._is_at_rest and self.random.random() < LOST:  # it is sent once more
            self._look_again(keeper, decision.pod)

    def _look_again(self, keeper: Keeper, pod: WaitingPod) -> None:
        """Let a keeper look at a pod that is not as it was decided about."""
        newest = self._records.get(pod.uid)
        if newest is None:
            self._miss(keeper, pod.uid)
            return

        keeper.pod_seen(newest, self.now)
        if isinstance(newest, WaitingPod) and newest.is_gated:
            keeper.refused(pod, self.now)

    def _begin_term(self) -> None:
        """Let the keeper begin to lead: it writes into all pods that wait, as its service does."""
        self._list()
        self.keeper.begin_term(self.now)
        for pod in self.keeper.pods.gated:
            self._note(pod.uid)
        self._list()

    def _follow(self) -> None:
        """Let another keeper lead; what the one before has sent is still on its way."""
        self._start()
        self._begin_term()

    # The scheduler and kubelets.

    def _schedule(self) -> None:
        for uid in self.random.sample(sorted(self.objects), len(self.objects)):
            self._bind(uid)
            if self.random.random() < LAST:
                break

    def _bind(self, uid: str) -> None:
        """Bind a pod, if it has no gate and there is a node for it."""
        pod = self._records[uid]
        if not isinstance(pod, WaitingPod) or pod.is_gated or pod.watched.is_leaving:
            return

        plain = pod.watched.pod
        needs = {**requests_of(plain), "pods": 1}
        selector = pod.kind.constrained.constraints.node_selector
        names = [
            name
            for name in self._reachable(pod)
            if selector.items() <= self._node(name).labels.items()
            and all(self._free(name)[resource] >= needs[resource] for resource in needs)
        ]
        if not names:
            return

        name = self.random.choice(names)
        self._put(merge(self.objects[uid], {"spec": {"nodeName": name}}))
        self.outcomes["bound"] += 1
        if not self.kubelets[name].admit(plain).admitted:
            assert self._strangers, f"{uid} is refused on {name}"
            self._delete(uid)
        else:
            self._unreported.add(name)

    def _reachable(self, pod: WaitingPod) -> list[str]:
        """Return the nodes that a pod is pinned to, or all where it is pinned to none."""
        label = PLACE_LABEL + pod.uid
        return [
            name
            for name in sorted(self.kubelets)
            if not pod.place or name in pod.place or label in self._labels[name]
        ]

    def _free(self, name: str) -> Counter[str]:
        """Return what the sums of the pods that are bound to a node leave."""
        free = Counter(ROOM)
        for pod in self._records.values():
            if not isinstance(pod, WaitingPod) and pod.node == name:
                free.subtract({**requests_of(pod.pod), "pods": 1})
        return free

    # Nodes.

    def _lose_node(self) -> None:
        if len(self.kubelets) < 2:
            return

        name = self.random.choice(sorted(self.kubelets))
        del self.kubelets[name], self._labels[name]
        self._unreported.discard(name)
        self._lost.append(name)
        self.keeper.node_gone(name)
        self.keeper.state.report_gone(name)
        for uid, pod in list(self.objects.items()):
            if _node_of(pod) == name:
                self._delete(uid)

    def _return_node(self) -> None:
        if self._lost:
            self._add_node(self._lost.pop())

    def _add_node(self, name: str) -> None:
        self.kubelets[name] = EMPTY.copy()
        self._labels[name] = set()
        self._unreported.add(name)
        self.keeper.node_seen(self._node(name), self.now)

    def _grow(self) -> None:
        """Add a node where pods wait for which there would be placeholders."""
        unused = [name for name in NAMES if name not in self.kubelets]
        if self._placeholders._wanted() and unused:
            self.outcomes["grown"] += 1
            self._add_node(unused[0])

    def _evict(self) -> None:
        """Let less important pods go for one that waits."""
        preemption = self._preemption
        if not preemption.has_candidates(self.now):
            return

        eviction = preemption.plan((), self.now)
        if eviction is None:
            return
        if self.random.random() < 0.1:
            preemption.failed(eviction, self.now)
            return

        for victim in eviction.victims:
            assert victim.membership is None
            assert victim.priority < eviction.pod.watched.priority
            if victim.pod.uid in self.objects:
                self.outcomes["evicted"] += 1
                (self._delete if self.random.random() < 0.5 else self._leave)(victim.pod.uid)

    # What is checked.

    def check(self) -> None:
        """Check what always holds."""
        self._check_sums()
        self._check_places()
        self._check_where_pods_stand()

    def _check_sums(self) -> None:
        """Check that the sums of each node are those of the pods that count there."""
        for name in self.kubelets:
            pods = [watched.pod for watched in self.keeper.state.by_node.get(name, {}).values()]
            amounts: Counter[str] = Counter()
            for pod in pods:
                amounts.update(requests_of(pod))
            load = self.keeper.nodes.load(name)
            assert (+load.amounts, load.pods) == (+amounts, len(pods)), name

    def _check_places(self) -> None:
        """Check that a pod counts on the nodes of its place, or on one node."""
        keeper = self.keeper
        counted = defaultdict(list)
        for name, pods in keeper.state.by_node.items():
            for uid in pods:
                counted[uid.partition("@")[0]].append(name)

        for uid, names in counted.items():
            place = keeper.places.get(uid)
            expected = sorted(place.nodes) if place is not None else names[:1]
            assert sorted(names) == expected, (uid, names, expected)
        for place in keeper.places:
            assert place.pod.uid in counted, place.pod.uid

    def _check_where_pods_stand(self) -> None:
        """Check that each pod stands in one place of those that `GatedPods` names."""
        pods = self.keeper.pods
        groups = self.keeper.groups
        stands = Counter(pods.uids)
        stands.subtract(groups.uids)
        stands.update(pod.uid for pod in groups.waiting)
        twice = [uid for uid, count in stands.items() if count > 1]
        assert not twice, twice

        for group in groups._groups.values():
            of_group = {uid for uid in groups.uids if groups.of(uid) is group}
            assert of_group == group.uids
            assert group.uids, group.membership
            assert group.waiting.keys() == group.since.keys()
            assert group.uids >= group.waiting.keys() | group.begun.keys() | group.releasing
            assert not group.waiting.keys() & group.begun.keys()
            assert not group.is_pending or group in list(groups)

    def _check_plans(self) -> None:
        """Check that those who are planned have places after each decision, or need none."""
        keeper = self.keeper
        for group in keeper.groups:
            for uid, name in group.plan.items():
                assert uid in (keeper.places.uids if name else keeper.pods._placeless), uid
                assert uid not in group.waiting, uid

    def check_at_rest(self) -> None:
        """Check what holds at rest: groups have their members, and nobody waits in vain.

        Nodes that are kept for somebody are left out, and so are those that pods are on their way
        to.
        """
        self._check_members()
        closed = {name for name, _ in self.keeper.kept.owners()}
        closed |= {name for place in self.keeper.places for name in place.nodes}
        rooms = [
            Room((kubelet, EMPTY), self._free(name), self._node(name).labels)
            for name, kubelet in sorted(self.kubelets.items())
            if name not in closed
        ]
        pods = self._records.values()
        self.outcomes["waiting"] += sum(isinstance(pod, WaitingPod) and pod.waits for pod in pods)
        in_vain = waiting_in_vain(pods, rooms)
        assert not in_vain, in_vain

    def _check_members(self) -> None:
        """Check that members say so, and that those that have begun are of the group they name."""
        groups = self.keeper.groups
        for uid in groups.uids:
            membership = membership_of(self._records[uid])
            group = groups.of(uid)
            assert membership is not None, uid
            assert group is not None, uid
            assert uid not in group.begun or group.membership.key == membership.key, uid

    def _kept(self) -> Iterator[tuple[str, object]]:
        """Yield what a keeper keeps of pods, by its name."""
        keeper = self.keeper
        parts = keeper.labels, keeper.places, keeper.unadmitted, keeper.kept
        for part in (*parts, keeper.pods, keeper.groups, keeper.group_places):
            for name, table in vars(part).items():
                is_of_others = name in {"object_kinds", "_pending", "_versions"}
                if isinstance(table, dict | set) and table and not is_of_others:
                    yield f"{type(part).__name__}.{name}", table
        for name in ("queue", "groups"):
            if kept := list(getattr(keeper, name)):
                yield name, kept
        if keeper.state.pods:
            yield "state", keeper.state.pods


def _node_of(pod: dict[str, Any]) -> str:
    """Return the name of the node that a pod is bound to; empty: it is not."""
    return str(pod["spec"].get("nodeName", ""))
