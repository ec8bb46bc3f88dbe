"""A keeper of gated pods in the cluster of `models.watched_kubelets`.

Pods are made with the gate, some with terms of their own. What the keeper decides is written some
time later, or refused; a scheduler binds what was let go to one of its nodes. A new leader knows
what is listed, and writes into all pods that wait first, and into nodes where pods follow a label,
as `alignup.control_plane.gates.keeper_service` does, so that patches of the one before come too
late. What is checked is the same.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from alignup.control_plane.gates.decisions import Label, Release, patch_of
from alignup.control_plane.gates.keeper import Keeper
from alignup.control_plane.gates.node_affinity import required_terms
from alignup.control_plane.gates.scheduler_rules import NodeLoad
from alignup.control_plane.gates.waiting_pods import PLACE_LABEL, WaitingPod
from alignup.control_plane.scheduler.cluster_state import ClusterState
from alignup.kubernetes.node_fit import NodeObject
from alignup.records import replace
from inputs.waiting_pods import GATED_READER, gated_object
from inputs.watched_objects import GIBI
from models.watched_kubelets import GRACE, SIZES, WatchedKubelets

if TYPE_CHECKING:
    from collections.abc import Sized

    from alignup.control_plane.api_server.objects import WatchedPod
    from alignup.kubelet.node_resource_topology.report import Report

TERM = {"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}
OWN_TERMS = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}
        }
    }
}
ROOM = {"cpu": 7000, "memory": 15 * GIBI, "pods": 110, "example.com/gpu": 2}
MOST_WAITING = 10


class GatedKubelets(WatchedKubelets):
    """One run.

    Args:
        args: as for `WatchedKubelets`.
        terms: whether every second pod has required terms of its own.
        binding: seconds at most until a scheduler first looks at a pod that was let go.
        checks_news: see whether nothing else is decided after what the keeper says is no news; for
            that, all is decided before it.
        options: as for `WatchedKubelets`.
    """

    def __init__(
        self,
        *args: Any,
        terms: bool = False,
        binding: float = 3.0,
        checks_news: bool = False,
        **options: Any,
    ) -> None:
        self._binding = binding
        # What the API server has: pods that are not bound, what labels nodes have, how often each
        # has changed, and which are cordoned.
        self.waiting: dict[str, WaitingPod] = {}
        self.labels: dict[str, set[str]] = {}
        self.versions: Counter[str] = Counter()
        self.cordoned: set[str] = set()
        # By uid of a pod that was let go, the nodes that it may go to by name, and whether to any.
        self._open: dict[str, tuple[tuple[str, ...], bool]] = {}
        self._decides_soon = False
        self._checks_news = checks_news
        self._learnt = 0.0
        super().__init__(*args, **options)
        self._gated_templates = [
            self._gated_template(f"g{number}", size)
            for number, size in enumerate(options.get("sizes", SIZES))
        ]
        if terms:
            self._gated_templates += [
                self._gated_template(f"t{number}", size, OWN_TERMS)
                for number, size in enumerate(options.get("sizes", SIZES))
            ]

    @staticmethod
    def _gated_template(
        name: str, size: dict[str, object], spec: dict[str, Any] | None = None
    ) -> WaitingPod:
        grace = {"terminationGracePeriodSeconds": GRACE}
        made = gated_object(name, spec={**grace, **(spec or {})}, **size)
        pod = GATED_READER.decode(json.dumps(made).encode())
        assert isinstance(pod, WaitingPod)
        return pod

    def follow(self) -> None:
        """Let another keeper lead, which knows what is listed."""
        self.keeper = Keeper(ClusterState())
        self.state = self.keeper.state
        self.told.clear()
        self._events = [
            event for event in self._events if not event[2].func.__name__.startswith("_learn")
        ]
        self.reported = {name: set() for name in self.kubelets}
        self.keeper.nodes_listed([self._node(name) for name in self.kubelets], self.now)
        self._list(is_cached=False)
        for name in self.kubelets:
            self._learn_report(self._report(name), name)
        self._begin_term()

    def _begin_term(self) -> None:
        """Begin to lead: what was sent before and is still on its way comes to nothing."""
        self._list(is_cached=False)
        self.keeper.begin_term(self.now)
        for pod in self.keeper.pods.gated:
            newest = self.waiting.get(pod.uid)
            if newest is not None:
                self._change_waiting(_written(newest))
        self._list(is_cached=False)
        if self.keeper.giver.pods_for_late_labels():
            self._list_nodes(self.keeper)
            self.versions.update(self.keeper.nodes_for_late_labels())
            self._list_nodes(self.keeper)

    def _list_nodes(self, keeper: Keeper) -> None:
        keeper.nodes_listed([self._node(name) for name in self.kubelets], self.now)

    def _collections(self) -> tuple[Sized, ...]:
        keeper = self.keeper
        parts = (
            *(keeper.nodes, keeper.labels, keeper.places, keeper.unadmitted, keeper.kept),
            *(keeper.pods, keeper.group_places),
        )
        tables = [
            table
            for part in parts
            for table in vars(part).values()
            if isinstance(table, dict | set)
        ]
        entries = [
            entry
            for table in tables
            if isinstance(table, dict)
            for entry in table.values()
            if isinstance(entry, dict | set)
        ]
        return (list(keeper.queue), *tables, *entries)

    def _actions(self) -> list[Any]:
        actions = [*super()._actions(), (1, self._delete_waiting)]
        if self.leaves:
            actions.append((0.03, self._begin_term))
        return actions

    def check(self) -> None:
        """Check what always holds, and that the sums are those of all pods that count as bound."""
        super().check()
        for name in self.kubelets:
            load = NodeLoad()
            for watched in self.state.by_node.get(name, {}).values():
                load.add(watched.pod)
            kept = self.keeper.nodes.load(name)
            assert (+kept.amounts, kept.pods) == (+load.amounts, load.pods), (self.now, name)

    # What the keeper learns.

    def _node(self, name: str) -> NodeObject:
        return NodeObject(
            name,
            labels=dict.fromkeys(self.labels.get(name, ()), "true"),
            allocatable=ROOM,
            is_unschedulable=name in self.cordoned,
            version=str(self.versions[name]),
        )

    def _learn_node(self, name: str, *, is_there: bool) -> None:
        if is_there:
            self.keeper.node_seen(self._node(name), self.now)
        else:
            self.labels.pop(name, None)
            self.cordoned.discard(name)
            self.versions[name] += 1
            self.keeper.node_gone(name)
        self._wake()

    def _learn(self, kind: str, pod: WatchedPod | WaitingPod) -> None:
        keeper = self.keeper
        if kind == "seen":
            is_news = keeper.is_news(pod)
            if not is_news:
                self._decide_before_check()
            keeper.pod_seen(pod, self.now)
            if not isinstance(pod, WaitingPod):
                self._tell(pod.pod.uid, pod)
            if not is_news:
                self._expect_no_decision("a pod that is seen again")
        elif isinstance(pod, WaitingPod):
            keeper.pod_gone(pod.uid, self.now)
        elif pod.has_ended:
            keeper.pod_gone(pod.pod.uid, self.now)
        else:
            uid = pod.pod.uid
            keeper.pod_vanished(uid, self.now)
            if self.state.is_vanished(uid):
                self._later(0.0, 1.0, partial(self._learn_lookup, uid))
        self._wake()

    def _learn_lookup(self, uid: str) -> None:
        if self.state.is_vanished(uid):
            if uid in self.bound:
                self._learn("seen", self.bound[uid])
            elif uid in self.ended:
                self.keeper.pod_gone(uid, self.now)
            self.state.pod_missing(uid, self.now)
        self._wake()

    def _learn_report(self, report: Report, name: str) -> None:
        self._decide_before_check()
        super()._learn_report(report, name)
        if not self.keeper.reported([name]):
            self._expect_no_decision("an expected report")
        self._wake()

    def _list(self, *, is_cached: bool) -> None:
        """List all pods, in full or as the server remembers them, which is not older than seen."""
        pods: dict[str, Any] = {**self.bound, **self.waiting}
        if is_cached and self.faults:
            self._prune()
            newer = [kept for at, kept in self.snapshots if at >= self._learnt]
            pods = self.random.choice(newer) if newer else pods
        if not is_cached:
            self.full_list = self.now
            self._learnt = self.now
        listed = list(pods.values())
        self.keeper.pods_listed(listed, self.now, self.now, is_cached=is_cached)
        for uid, pod in pods.items():
            if not isinstance(pod, WaitingPod):
                self._tell(uid, pod)
        self._wake()

    def _event(self, kind: str, pod: Any, name: str = "pods") -> None:
        super()._event(kind, pod, name)
        self._push(0.0, 1.0, partial(self._note_learnt, self.now))

    def _note_learnt(self, moment: float) -> None:
        self._learnt = max(self._learnt, moment)

    def _changed_bound(self) -> None:
        super()._changed_bound()
        self.snapshots[-1] = self.now, {**self.bound, **self.waiting}

    # What happens to pods that are not bound.

    def _change_waiting(self, pod: WaitingPod) -> None:
        self.waiting[pod.uid] = pod
        self._changed_bound()
        self._event("seen", pod)

    def _schedule(self) -> None:
        """Make a pod with the gate."""
        if len(self.waiting) < MOST_WAITING and self._gated_templates:
            template = self.random.choice(self._gated_templates)
            uid = f"p{next(self._numbers)}"
            pod = template.watched.pod.renamed(uid=uid, name=uid)
            watched = replace(template.watched, pod=pod)
            self._change_waiting(replace(template, watched=watched))

    def _delete_waiting(self) -> None:
        if self.waiting:
            uid = self.random.choice(sorted(self.waiting))
            pod = self.waiting.pop(uid)
            self._changed_bound()
            self._event("gone", pod)

    # What the keeper decides.

    def _wake(self) -> None:
        if not self._decides_soon:
            self._decides_soon = True
            self._later(0.0, 0.5, self._decide)

    def _tick(self) -> None:
        super()._tick()
        self._wake()

    def _decide_before_check(self) -> None:
        if self._checks_news:
            self._decide()

    def _expect_no_decision(self, event: str) -> None:
        """Check that there is nothing to decide after an event, before which all was decided."""
        if self._checks_news:
            self.outcomes[event] += 1
            assert not self.keeper.decide(self.now), (self.now, event)

    def _decide(self) -> None:
        self._decides_soon = False
        for decision in self.keeper.decide(self.now):
            if isinstance(decision, Label):
                self._later(0.0, 0.5, partial(self._write_label, self.keeper, decision))
            else:
                self._later(0.0, 0.5, partial(self._let_go, self.keeper, decision))

    def _write_label(self, keeper: Keeper, label: Label) -> None:
        if label.node not in self.kubelets or self.random.random() < 0.05:
            keeper.label_refused(label)
            return

        if not self._takes(keeper, label):
            keeper.label_refused(label, is_outdated=True)
            if keeper is self.keeper:
                self._wake()
            return

        keys = self.labels.setdefault(label.node, set())
        if label.is_set:
            keys.add(label.key)
            # a scheduler hears of it
            self._later(0.0, 0.5, partial(self._try_to_bind, label.key.removeprefix(PLACE_LABEL)))
        else:
            keys.discard(label.key)
        self._change_node(label.node)

    def _takes(self, _keeper: Keeper, label: Label) -> bool:
        """Return whether an API server takes a label, by the version that it names."""
        return label.version == str(self.versions[label.node])

    def _change_node(self, name: str) -> None:
        self.versions[name] += 1
        self._later(0.0, 0.5, partial(self._learn_label, name), f"node {name}")

    def _learn_label(self, name: str) -> None:
        if name in self.kubelets:
            self._learn_node(name, is_there=True)

    def _let_go(self, keeper: Keeper, release: Release) -> None:
        """Take a patch of a keeper, who may have been replaced meanwhile."""
        pod = release.pod
        if self.random.random() < 0.02:
            keeper.refused(pod, self.now, for_good=True)
            return

        if keeper.has_other_label(release):
            keeper.refused(pod, self.now)
            return

        newest = self.waiting.get(pod.uid)
        if newest is None or newest.version != pod.version:
            self._look_again(keeper, pod)
            return

        self.outcomes["let go"] += 1
        affinity = newest.affinity
        named = () if required_terms(affinity) else release.nodes
        if release.nodes:
            affinity = patch_of(release)["spec"]["affinity"]
        written = replace(newest, is_gated=False, place=release.nodes, affinity=affinity)
        self._change_waiting(_written(written))
        self._open[pod.uid] = named, not release.nodes
        self._later(0.0, self._binding, partial(self._bind, pod.uid))
        if self.random.random() < 0.05:  # the answer was lost, and it is sent again
            self._later(0.0, 3.0, partial(self._look_again, keeper, pod))

    def _look_again(self, keeper: Keeper, pod: WaitingPod) -> None:
        """Let a keeper learn, some time later, what has become of a pod."""
        newest = self.bound.get(pod.uid) or self.waiting.get(pod.uid)
        self._later(0.0, 1.0, partial(self._looked_again, keeper, pod, newest))

    def _looked_again(
        self, keeper: Keeper, pod: WaitingPod, newest: WatchedPod | WaitingPod | None
    ) -> None:
        if newest is None:
            keeper.pod_vanished(pod.uid, self.now)
            keeper.state.pod_missing(pod.uid, self.now)
            return

        keeper.pod_seen(newest, self.now)
        if keeper is self.keeper and not isinstance(newest, WaitingPod):
            self._tell(pod.uid, newest)
        if isinstance(newest, WaitingPod) and newest.is_gated:
            keeper.refused(pod, self.now)

    def _bind(self, uid: str) -> None:
        """Bind a pod that was let go, as its scheduler does, now or later."""
        if uid not in self.waiting:
            self._open.pop(uid, None)
        elif self.random.random() < 0.1 or not self._try_to_bind(uid):
            self._later(1.0, 10.0, partial(self._bind, uid))

    def _try_to_bind(self, uid: str) -> bool:
        """Bind a pod that was let go to one of its nodes; return whether there is one."""
        pod = self.waiting.get(uid)
        if pod is None or pod.is_gated:
            return False

        names, is_free = self._open[uid]
        label = PLACE_LABEL + uid
        places = [
            name
            for name in self.kubelets
            if name not in self.cordoned
            and (is_free or name in names or label in self.labels.get(name, ()))
        ]
        if not places:
            return False

        del self.waiting[uid], self._open[uid]
        self.outcomes["bound"] += 1
        placed = replace(pod.watched, node=self.random.choice(places))
        self._put(placed)
        self._later(0.0, 3.0, partial(self._admit, placed), placed.node)
        return True


def _written(pod: WaitingPod) -> WaitingPod:
    """Return a pod as it is after a change."""
    return replace(pod, version=str(int(pod.version) + 1))
