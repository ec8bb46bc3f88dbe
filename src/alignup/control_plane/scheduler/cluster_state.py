"""The state of a watched cluster.

It takes in what happened to nodes and pods, and judges a pod on all nodes at once. Pure and
synchronous: events come as calls, time as an argument; nothing here reads a clock or a socket.
`View` keeps two clusters in step with the members: of nodes that are known exactly, and of nodes
that are known by amounts. Questions about the state are answered in
`alignup.control_plane.scheduler.extender_answers`.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import compress, repeat
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec
import numpy as np

from alignup.claims.extended_resources import ExtendedResources
from alignup.claims.on_node import ClaimProvider
from alignup.claims.read import Resources
from alignup.claims.scheduler_gates import gates_of
from alignup.cluster.cluster import Cluster, Evaluation, NodeAmounts, row_of_amounts, row_of_node
from alignup.cluster.koordinator import judge_nodes
from alignup.cluster.node_totals import demand_key
from alignup.cluster.ranking import Layouts, layouts_of, refusal_texts, short_cause
from alignup.control_plane.api_server.objects import Memo
from alignup.control_plane.scheduler.node_state import AmountsMember, ExactMember, emptied
from alignup.errors import AlignupError, warn
from alignup.koordinator.effective import NODE_LABEL, pod_policy
from alignup.koordinator.scheduling import make_profile
from alignup.kubelet.node_resource_topology.report import Description, Report, decode_holdings
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES
from alignup.kubernetes.node_fit import NodeObject
from alignup.node import Node
from alignup.records import Record, replace
from alignup.topology_manager.hints import TopologyHint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy.typing as npt

    from alignup.claims.objects import Claim, DeviceClass, Slice
    from alignup.claims.question import Effort
    from alignup.control_plane.api_server.objects import WatchedPod
    from alignup.core.amounts.board import Job, Row
    from alignup.kubernetes.pod import Pod

_T = TypeVar("_T")
# Seconds after which a pod that is gone, or bound, is taken to be in what its node reports,
# whatever that says.
SLOWEST_REPORT: Final = 60.0


# Seconds after which a request to bind a pod has been answered or given up: requests wait for 30.
LONGEST_BINDING: Final = 60.0
# Seconds after which a pod that was bound is in what its node reports, where no fingerprint tells.
REPORT_DELAY: Final = 10.0

_KEY: Final = msgspec.json.Encoder(order="sorted")

# Kinds of pods of which a member keeps the words of its refusal.
_MOST_KINDS: Final = 250

# Kinds of pods of which it is kept what all members say; where an eighth of these changed, all are
# judged anew.
_MOST_JUDGED: Final = 64

# Kinds of pods that are kept as they were prepared for being judged.
_MOST_JOBS: Final = 5_000

_MOST_CHANGED: Final = 8
_UNASKED: Final = "NUMA: the node refuses the pod, and others take it"


class _Vanished(Record):
    """A pod that is seen no longer.

    Attributes:
        since: when that was noticed.
        was_bound: whether it was seen bound, and did not only count as that.
        missing_since: when it was looked for later and was not there, for the first time; None: it
            was not looked for yet.
    """

    pod: WatchedPod
    since: float
    was_bound: bool
    missing_since: float | None = None


class ClusterState:
    """The nodes that report, and the pods that are bound to them.

    Args:
        strategy: the strategy by which an amounts-only node's placement of a pod is guessed.
        profile: of Koordinator's scheduler: it refuses nodes too, and scores in place of the
            strategy; empty: none.

    Raises:
        InputError: there is no such profile.
    """

    def __init__(self, strategy: str = "least-numa-nodes", profile: str = "") -> None:
        self.strategy = strategy
        self.view = View(profile)
        # By name, the nodes of which something is known.
        self.members: Mapping[str, Member] = self.view.members
        # Names of the nodes on which more may fit than before; cleared once they are dealt with.
        self.changed: set[str] = set()
        self.claims = WatchedClaims(self.changed.update)
        # Names of the nodes where the place of the last pods is not known.
        self.uncertain: set[str] = set()

        self._descriptions = Description()
        self._reports: dict[str, Report] = {}
        self._labels: dict[str, Mapping[str, str]] = {}
        # Names of the nodes that reported and do not any more.
        self._silent: set[str] = set()

        # By uid, the pods that are bound.
        self.pods: dict[str, WatchedPod] = {}
        # By the name of a node, the pods that are bound to it, by uid, in the order of their
        # binding.
        self.by_node: dict[str, dict[str, WatchedPod]] = {}
        # By uid, of pods that count as bound and were not seen so: a list begun later has them, or
        # they are gone.
        self.assumed: dict[str, float] = {}
        # By uid, pods that are seen no longer, though nobody says that they have ended: what they
        # held stays taken.
        self._vanished: dict[str, _Vanished] = {}
        # By uid, since when bound pods are known that may be in no report yet.
        self._unreported: dict[str, float] = {}
        # By node, the uids of pods whose order of binding is unknown, and since when they are
        # known.
        self._unordered: dict[str, tuple[set[str], float]] = {}

    # Pods.

    def pod_seen(self, pod: WatchedPod, now: float) -> None:
        """Take in a pod that is bound to a node and has not ended.

        It is new, changed, or learned of again.
        """
        uid = pod.pod.uid
        before = self.pods.get(uid)
        if before is not None and before.node != pod.node:
            self._end(pod=before, now=now)

        self.assumed.pop(uid, None)
        self._count(pod, now)

    def pod_gone(self, uid: str, now: float) -> None:
        """Take in that a pod has ended, or was never bound; an unknown one is no error.

        Of a static pod only its copy on the API server is gone, which says nothing.
        """
        pod = self.pods.get(uid)
        if pod is not None and pod.is_copy:
            self.pod_vanished(uid, now)
            return

        vanished = self._vanished.get(uid)
        if pod is None and vanished is not None and not vanished.pod.is_copy:
            pod = vanished.pod

        self.assumed.pop(uid, None)
        if pod is not None:
            self._end(pod, now)

    def pod_vanished(self, uid: str, now: float) -> None:
        """Take in that a pod is seen no longer; an unknown one is no error.

        It was deleted, and its kubelet may still be at it; or an API server is behind, or a static
        pod lost its copy, and it will be seen again. What it holds stays taken until a report that
        listed it leaves it out, or until it was looked for later and was not there either.
        """
        pod = self.pods.get(uid)
        if pod is None:
            return

        member = self.members.get(pod.node)
        may_hold = pod.node in self._silent if member is None else member.may_hold(uid)
        if not may_hold:
            self._end(pod, now)
            return

        was_bound = uid not in self.assumed
        self._forget(uid)
        self._vanished[uid] = _Vanished(pod, now, was_bound)
        if member is not None:
            member.vanish(uid, now)
            self._doubt(member)

    def pod_missing(self, uid: str, now: float) -> None:
        """Take in that a pod was looked for after it had vanished, and that there is none."""
        vanished = self._vanished.get(uid)
        if vanished is not None and vanished.missing_since is None:
            self._vanished[uid] = replace(vanished, missing_since=now)

    def was_bound(self, uid: str) -> bool:
        """Return whether a pod counts as bound, or was bound and is seen no longer."""
        vanished = self._vanished.get(uid)
        return uid in self.pods or (vanished is not None and vanished.was_bound)

    def is_vanished(self, uid: str) -> bool:
        """Return whether a pod that vanished holds what no report lists."""
        vanished = self._vanished.get(uid)
        return vanished is not None and not self._is_listed(vanished.pod)

    def _is_listed(self, pod: WatchedPod) -> bool:
        member = self.members.get(pod.node)
        return member is not None and member.lists(pod.pod.uid)

    def _forget(self, uid: str) -> WatchedPod | None:
        """Take a pod from those that are bound, and return it."""
        self.assumed.pop(uid, None)
        pod = self.pods.pop(uid, None)
        if pod is None:
            return None

        node_pods = self.by_node[pod.node]
        node_pods.pop(uid, None)
        if not node_pods:
            del self.by_node[pod.node]
        return pod

    def _end(self, pod: WatchedPod, now: float) -> None:
        """Free what a pod holds, now or with a report."""
        uid = pod.pod.uid
        self._forget(uid)
        self._vanished.pop(uid, None)
        self._unreported.pop(uid, None)

        member = self.members.get(pod.node)
        if member is not None and member.gone(uid, now):
            self._note(member)
        elif member is not None:
            # answers still hold: a scheduler asks for all that wait, before a report comes
            self._doubt(member)

    def assume(self, pod: WatchedPod, now: float) -> None:
        """Count a pod as bound before the API server says so."""
        self.assumed[pod.pod.uid] = now + LONGEST_BINDING
        self._count(pod, now)

    def assumed_wrongly(self, uid: str) -> None:
        """Take in that a pod, which counts as bound, was not bound and will not be there.

        No kubelet has seen it: the pods that were admitted on top of it never were beside it. Where
        a report lists it, somebody else has bound it there: it stays, and a list will tell.
        """
        pod = self.pods.get(uid)
        if pod is None or uid not in self.assumed:
            return
        if isinstance(self.members.get(pod.node), ExactMember) and self._is_listed(pod):
            return

        self._forget(uid)

        member = self.members.get(pod.node)
        if member is not None:
            member.take_back(uid)
            self._note(member)

    def assumed_rightly(self, uid: str, now: float) -> None:
        """Take in that the API server has bound a pod, which was not seen so yet."""
        if uid in self.assumed:
            self.assumed[uid] = now

    def is_overdue(self, now: float) -> bool:
        """Return whether some pod counts as bound for so long that a list should tell of it.

        It was not seen meanwhile, or not any more.
        """
        moment = now - REPORT_DELAY
        return any(since < moment for since in self.assumed.values()) or any(
            vanished.missing_since is None and self._waited_long(vanished, now)
            for vanished in self._vanished.values()
        )

    def has_unreported(self, now: float) -> bool:
        """Return whether some bound pod holds what no report lists, though one should by now.

        If such a pod goes and no event says so, only a list does.
        """
        names = {self.pods[uid].node for uid in self._unreported if uid in self.pods}
        unsettled: set[str] = set()
        for name in names:
            member = self.members.get(name)
            if member is not None:
                unsettled.update(member.unsettled)

        self._unreported = {
            uid: since for uid, since in self._unreported.items() if uid in unsettled
        }
        moment = now - REPORT_DELAY
        return any(since <= moment for since in self._unreported.values())

    def pods_listed(
        self,
        pods: Iterable[WatchedPod],
        now: float,
        began: float | None = None,
        *,
        is_cached: bool = False,
    ) -> None:
        """Take in all bound pods at one moment: those that are not among them have vanished.

        In which order new ones were bound is not known; where two of a node are not in its report
        yet, that matters.

        Args:
            pods: the bound pods.
            now: seconds on any clock that never goes back.
            began: when the list began: a pod that counts as bound may be missing in one that began
                before its binding; None: now.
            is_cached: whether it is what the API server remembers, and may be behind: a pod that
                counts as bound and was not seen yet may be missing, too.
        """
        listed_pods = {pod.pod.uid: pod for pod in pods}
        for uid in listed_pods:
            self.assumed.pop(uid, None)

        if began is None:
            began = now

        self._end_unlisted(listed_pods, now, began, is_cached=is_cached)

        new_uids: dict[str, set[str]] = {}
        for pod in sorted(listed_pods.values(), key=lambda listed_pod: listed_pod.since):
            uid = pod.pod.uid
            before = self.pods.get(uid)
            if before is None and uid not in self._vanished:
                new_uids.setdefault(pod.node, set()).add(uid)
            if before != pod:
                self.pod_seen(pod, now)

        for name, uids in new_uids.items():
            unordered, _ = self._unordered.get(name, (set(), 0.0))
            self._unordered[name] = uids | unordered, now
            if name in self.members:
                self._doubt(self.members[name])

    def _end_unlisted(
        self, listed_pods: Mapping[str, WatchedPod], now: float, began: float, *, is_cached: bool
    ) -> None:
        """Take in that other pods than these are not there; arguments as for `pods_listed`."""
        for uid in [uid for uid in self.pods if uid not in listed_pods]:
            if uid not in self.assumed:
                self.pod_vanished(uid, now)
            elif self.assumed[uid] < began and not is_cached:
                self.pod_gone(uid, now)

        if is_cached:
            return

        # a list may be behind for a while; one that is begun later has all that was bound before
        for uid, vanished in list(self._vanished.items()):
            if uid not in listed_pods and vanished.since < began - REPORT_DELAY:
                self.pod_missing(uid, began)

    def _count(self, pod: WatchedPod, now: float) -> None:
        uid = pod.pod.uid
        is_new = self.pods.get(uid) is None
        vanished = self._vanished.pop(uid, None)
        if vanished is not None and vanished.pod.node != pod.node:
            self._end(vanished.pod, now)
        self.pods[uid] = pod
        self.by_node.setdefault(pod.node, {})[uid] = pod
        if is_new:
            self._unreported.setdefault(uid, now)

        member = self.members.get(pod.node)
        if isinstance(member, ExactMember):
            node = member.node
            # a pod that is not among a node's any more was said by a report to hold nothing, and
            # only a static pod may come again under its uid
            may_hold = is_new or uid in member.pods or pod.is_copy
            if may_hold and member.bind(pod, now):
                self.view.touch(member.name)
            if member.node is not node:
                self.view.refresh(member)
            self._doubt(member)
        elif member is not None:
            mask = 0  # where it would place the pod: unknown
            with suppress(AlignupError):
                mask = self.view.affinity(pod.pod, pod.node, self.strategy)
            member.bind(pod, mask, now)
            self.view.refresh(member)

    # Claims.

    def meet(self, pod: Pod, name: str, effort: Effort) -> bool | None:
        """Return what `WatchedClaims.meet` says of a node; None also where claims are refused."""
        member = self.members.get(name)
        if not isinstance(member, ExactMember):
            return None

        node_object = NodeObject(name, self._labels.get(name, {}))
        try:
            return self.claims.meet(pod, member.node, node_object, effort)
        except AlignupError:
            # a claim that was not seen yet, or that the scheduler allocates otherwise
            return None

    # Nodes, and what they report.

    def node_seen(self, name: str, labels: Mapping[str, str]) -> None:
        """Take in a Node object.

        Of its labels Koordinator's counts, and those by which it reaches devices.
        """
        before = _own_labels(self._labels.get(name, {}))
        self._labels[name] = labels
        if name in self._reports and (_own_labels(labels) != before or name not in self.members):
            self.report_seen(self._reports.pop(name), 0.0)  # as one that is new

    def node_gone(self, name: str) -> None:
        """Take in that a Node object was deleted."""
        self._labels.pop(name, None)
        self._drop(name)
        self._silent.discard(name)
        for uid in [uid for uid, lost in self._vanished.items() if lost.pod.node == name]:
            del self._vanished[uid]

    def nodes_listed(self, nodes: Mapping[str, Mapping[str, str]]) -> None:
        """Take in all Node objects at one moment, labels by name."""
        for name in [name for name in self._labels if name not in nodes]:
            self.node_gone(name)

        for name, labels in nodes.items():
            self.node_seen(name, labels)

    def report_seen(self, report: Report, now: float) -> None:
        """Take in a NodeResourceTopology object that is new or changed.

        One that cannot be read is warned of.
        """
        before = self._reports.get(report.name)
        member = self.members.get(report.name)
        self._reports[report.name] = report

        try:
            if before is None or member is None or before.description != report.description:
                self._make(report, now)
            elif before == report:
                return
            elif isinstance(member, ExactMember):
                self._update_exact(member, report, now)
            else:
                self._update_amounts(member, report, now)
        except AlignupError as error:  # nothing is known of the node then
            warn(f"what node {report.name} reports is ignored: {error}")
            self._drop(report.name)

    def report_gone(self, name: str) -> None:
        """Take in that a NodeResourceTopology object was deleted.

        Nothing is known of the node any more.
        """
        self._reports.pop(name, None)
        self._drop(name)

    def reports_listed(self, reports: Iterable[Report], now: float) -> None:
        """Take in all NodeResourceTopology objects at one moment."""
        names = set()
        for report in reports:
            names.add(report.name)
            self.report_seen(report, now)

        for name in [name for name in self._reports if name not in names]:
            self.report_gone(name)

    def tick(self, now: float) -> None:
        """Give up waiting for reports that should have come long ago."""
        moment = now - SLOWEST_REPORT
        for vanished in list(self._vanished.values()):
            if vanished.missing_since is not None and self._waited_long(vanished, now):
                self._end(vanished.pod, vanished.missing_since)

        for name in [name for name, (_, since) in self._unordered.items() if since < moment]:
            del self._unordered[name]
            if name in self.members:
                self._doubt(self.members[name])

        for member in self.members.values():
            if isinstance(member, ExactMember):
                if member.expire(moment):
                    self._note(member)
                continue

            overdue = member.older_than(moment)
            if overdue:
                member.report(member.topology, overdue)
                self._note(member)

    def _waited_long(self, vanished: _Vanished, now: float) -> bool:
        """Return whether a report should have told of a pod that vanished.

        A kubelet to which it had come by then would have reported it by now. One that has reported
        it has its grace period to end it, which may have begun right before it was looked for: when
        it was deleted is not known. It runs a static pod as long as it likes, with or without a
        copy on the API server.
        """
        if not self._is_listed(vanished.pod):
            return vanished.since < now - REPORT_DELAY
        if vanished.pod.is_copy:
            return False

        begin = vanished.since if vanished.missing_since is None else vanished.missing_since
        return begin + vanished.pod.grace < now - SLOWEST_REPORT

    def _drop(self, name: str) -> None:
        if name in self.members:
            self._silent.add(name)
        self.view.drop(name)
        self.uncertain.discard(name)

    def _make(self, report: Report, now: float) -> None:
        """Make the member for a node anew, by all that is known of it."""
        name = report.name
        vanished = [lost for lost in self._vanished.values() if lost.pod.node == name]
        pods = [lost.pod for lost in vanished]
        pods += self.by_node.get(name, {}).values()
        for uid in self.by_node.get(name, ()):
            self._unreported.setdefault(uid, now)
        member: Member
        if report.description is None:
            member = AmountsMember(name, report.topology(), pods)
        else:
            labels = _own_labels(self._labels.get(name, {}))
            template = self._descriptions.template(report.description, labels)
            holdings = None if report.holdings is None else decode_holdings(report.holdings)
            member = ExactMember(name, template, pods, holdings, now)

        for lost in vanished:
            member.vanish(lost.pod.pod.uid, lost.since)
        self._silent.discard(name)
        self.view.put(member)
        self.changed.add(name)
        self._doubt(member)

    def _update_exact(self, member: ExactMember, report: Report, now: float) -> None:
        if report.holdings is None:
            return

        pods = member.pods
        if member.report(decode_holdings(report.holdings), now):
            self.changed.add(member.name)
            self.view.refresh(member)
        for uid in pods.keys() - member.pods.keys():
            self._vanished.pop(uid, None)
        self._doubt(member)

    def _update_amounts(self, member: AmountsMember, report: Report, now: float) -> None:
        fingerprint = report.fingerprint
        overdue = member.older_than(now - REPORT_DELAY)
        covered = member.known_to(fingerprint) if fingerprint else overdue
        member.report(report.topology(), covered)
        self._note(member)

    def _note(self, member: Member) -> None:
        """Let the view see a member that changed, and remember that more may fit there."""
        self.changed.add(member.name)
        self._doubt(member)
        self.view.refresh(member)

    def _doubt(self, member: Member) -> None:
        """Note whether the place of the last pods of a member is known."""
        name = member.name
        if isinstance(member, ExactMember) and (
            member.is_uncertain or self._still_unordered(member)
        ):
            self.uncertain.add(name)
        elif name in self.uncertain:
            self.uncertain.remove(name)
            self.changed.add(name)

    def _still_unordered(self, member: ExactMember) -> bool:
        """Forget the pods that are in a report by now.

        Return whether two are left whose order is unknown.
        """
        uids, since = self._unordered.get(member.name, (set(), 0.0))
        if uids and member.reports:
            unsettled = uids.intersection(member.unsettled)
            if len(unsettled) > 1:
                self._unordered[member.name] = unsettled, since
                return True

        self._unordered.pop(member.name, None)
        return False


def _own_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a Node object that change what its kubelet decides."""
    if NODE_LABEL not in labels:
        return {}
    return {NODE_LABEL: labels[NODE_LABEL]}


class ObjectStore(Generic[_T]):
    """The watched objects of one kind, by namespace and name; a `Sink`.

    Args:
        freed: called with an object as it was before it changed or went.
    """

    def __init__(self, freed: Callable[[_T], None]) -> None:
        self.objects: dict[tuple[str, str], _T] = {}
        self.version = 0
        self._freed = freed

    def listed(self, items: list[_T]) -> None:
        """See `Sink`."""
        listed = {_key_of(item): item for item in items}
        for before in [item for key, item in self.objects.items() if listed.get(key) != item]:
            self._freed(before)

        self.objects = listed
        self.version += 1

    def changed(self, item: _T) -> None:
        """See `Sink`."""
        key = _key_of(item)
        before = self.objects.get(key)
        if before == item:
            return

        self.objects[key] = item
        self.version += 1
        if before is not None:
            self._freed(before)

    def gone(self, item: _T) -> None:
        """See `Sink`."""
        self._freed(item)
        self.objects.pop(_key_of(item), None)
        self.version += 1


def _key_of(item: Any) -> tuple[str, str]:
    return getattr(item, "namespace", ""), item.name


class WatchedClaims:
    """The slices, classes and claims of a cluster, and what they come to for a pod on a node.

    Gates are those of the newest release.

    Args:
        freed: called with the names of nodes of which some device was freed, or became another one.
    """

    def __init__(self, freed: Callable[[Iterable[str]], None]) -> None:
        self.slices: ObjectStore[Slice] = ObjectStore(lambda item: freed([item.node_name]))
        self.classes: ObjectStore[DeviceClass] = ObjectStore(lambda _: None)
        self.claims: ObjectStore[Claim] = ObjectStore(lambda claim: freed(self._nodes_of(claim)))

        # The versions of the stores that what follows was made from.
        self._slices_version = -1
        self._classes_version = -1
        self._claims_version = -1
        self._extended = ExtendedResources()
        self._published = Resources()
        self._providers: dict[str, tuple[object, NodeObject, ClaimProvider]] = {}
        self._by_pool: dict[tuple[str, str], list[Claim]] = {}

    @property
    def version(self) -> tuple[int, int, int]:
        """Changes when an object does."""
        return self.slices.version, self.classes.version, self.claims.version

    @property
    def extended(self) -> ExtendedResources:
        """The extended resources that the classes serve."""
        if self._classes_version != self.classes.version:
            self._classes_version = self.classes.version
            self._extended = ExtendedResources.of(tuple(self.classes.objects.values()), gates_of())

        return self._extended

    def concern(self, pod: Pod) -> bool:
        """Return whether a pod has claims, or has one made for it on some node."""
        return bool(pod.constraints.claims) or self.extended.are_asked_by(pod)

    def meet(self, pod: Pod, node: Node, node_object: NodeObject, effort: Effort) -> bool | None:
        """Return whether a node would place a pod near the devices of its claims.

        None: that cannot be told. A pod that needs no claim there is near all that it has.

        Args:
            pod: the pod.
            node: the node.
            node_object: its name and labels.
            effort: what may be spent on it; less is left afterwards.

        Raises:
            AlignupError: the pod or its claims are refused, or a claim is not there.
        """
        pod = self.extended.on_node(node.read(pod), node.offered)
        if not pod.constraints.claims:
            return True

        admission = node.try_admit(pod)
        if not admission:
            return None

        provider = self._provider(node, node_object)
        claims = self._claims_on(provider)
        for reference in pod.constraints.claims:
            claim = self.claims.objects.get((pod.namespace, reference.claim))
            if claim is not None:
                claims[id(claim)] = claim

        classes = tuple(self.classes.objects.values())
        provider = provider.copy(Resources(classes=classes, claims=tuple(claims.values())))
        provider.effort = effort
        provider.allocate(pod, pod.all_containers[0], TopologyHint(None, preferred=True))
        return provider.are_aligned(pod, admission.containers)

    def _claims_on(self, provider: ClaimProvider) -> dict[int, Claim]:
        """Return the claims, by identity, that have devices of the pools that a node reaches."""
        if self._claims_version != self.claims.version:
            self._claims_version = self.claims.version
            self._by_pool = {}
            for claim in self.claims.objects.values():
                for pool in {(device.driver, device.pool) for device in claim.allocated or ()}:
                    self._by_pool.setdefault(pool, []).append(claim)

        claims: dict[int, Claim] = {}
        for pool in {(device.driver, device.pool) for device in provider.near}:
            claims |= {id(claim): claim for claim in self._by_pool.get(pool, ())}

        return claims

    def _provider(self, node: Node, node_object: NodeObject) -> ClaimProvider:
        """Return what gives devices on a node where nobody has any."""
        if self._slices_version != self.slices.version:
            self._slices_version = self.slices.version
            self._providers = {}
            self._published = Resources(tuple(self.slices.objects.values()))

        kept_provider = self._providers.get(node_object.name)
        if (
            kept_provider is None
            or kept_provider[0] is not node.machine
            or kept_provider[1] != node_object
        ):
            kept_provider = (
                node.machine,
                node_object,
                ClaimProvider(node.machine, self._published, node_object),
            )
            self._providers[node_object.name] = kept_provider

        return kept_provider[2]

    def _nodes_of(self, claim: Claim) -> set[str]:
        """Return the nodes of the devices that a claim has, as far as they are of one node each."""
        pools = {(device.driver, device.pool) for device in claim.allocated or ()}
        if not pools:
            return set()

        return {
            device_slice.node_name
            for device_slice in self.slices.objects.values()
            if (device_slice.driver, device_slice.pool.name) in pools
        }


Member = ExactMember | AmountsMember
_Source = Node | NodeAmounts


def _source(member: Member) -> _Source:
    """Return what a cluster judges."""
    if isinstance(member, ExactMember):
        return member.node
    return member.amounts


def _row(source: _Source) -> Row:
    if isinstance(source, Node):
        return row_of_node(source)
    return row_of_amounts(source)


class View:
    """All members, numbered: first those that are known exactly.

    The argument is that of `ClusterState`.
    """

    def __init__(self, profile: str = "") -> None:
        if profile:
            make_profile(profile)

        self._profile = profile
        self.members: dict[str, Member] = {}

        self._cluster = Cluster((), ())
        # Of members that are not in the cluster as they are now.
        self._rows: dict[str, Row] = {}
        self._is_stale = True
        self._layouts: Layouts | None = None
        # By what a pod asks for and the strategy, which nodes would take it without other pods.
        self._without_pods: Memo[object, npt.NDArray[np.bool_]] = Memo(_MOST_KINDS)
        # By member and by what a pod asks for, why the member refuses it as it is now.
        self._causes: dict[str, Memo[object, str]] = {}
        # The same of the profile, with whether it does and the score; of empty nodes by the names
        # that they have here.
        self._profiled: dict[str, Memo[object, tuple[bool, float, str]]] = {}

        # Counts changes: what was judged under the same number still holds.
        self.version = 0
        # Counts how often members came, went or were made anew: nodes without pods are the same
        # under the same number.
        self.generation = 0
        # By member, the version when it changed last, the newest at the end.
        self._changed_at: dict[str, int] = {}
        # By what a pod asks for and the strategy, what all members say, and as of which version.
        self._judgements: Memo[object, tuple[Evaluation | None, int]] = Memo(_MOST_JUDGED)
        # Where answers about a few members are written, and pods as they were prepared for these.
        self._few = Evaluation.empty(0)
        self._jobs: Memo[object, Job] = Memo(_MOST_JOBS)
        self._resources_of_jobs: tuple[str, ...] = ()

    def touch(self, name: str) -> None:
        """Note that what a member has to give changed."""
        self.version += 1
        self._changed_at.pop(name, None)
        self._changed_at[name] = self.version
        self._causes.pop(name, None)
        self._profiled.pop(name, None)

    def put(self, member: Member) -> None:
        """Add a member, or put it in the place of the one of its name."""
        self.members[member.name] = member
        self._rows[member.name] = _row(_source(member))
        self._is_stale = True
        self.generation += 1
        self.touch(member.name)

    def drop(self, name: str) -> None:
        """Forget a member; an unknown name is no error."""
        if self.members.pop(name, None) is not None:
            self._rows.pop(name, None)
            self._is_stale = True
            self.generation += 1
            self.touch(name)

    def refresh(self, member: Member) -> None:
        """Note that a member has other amounts, or another node object, than before."""
        self.touch(member.name)
        if self._is_stale:
            self._rows[member.name] = _row(_source(member))
        else:
            self._cluster.update(member.name, _source(member))

    @property
    def cluster(self) -> Cluster:
        """All members as a cluster, until the next change; the nodes are those known exactly."""
        self._settle()
        return self._cluster

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all members, by their numbers."""
        self._settle()
        return self._cluster.names

    def numbers(self, names: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return the number of each node; -1 for one that is not known."""
        self._settle()
        return np.fromiter(map(self._index.get, names, repeat(-1)), np.int64, len(names))

    def judge(self, pod: Pod, strategy: str) -> Evaluation:
        """Return what each node says to a pod, by the numbers of the nodes.

        Raises:
            InputError: as `Answers.filter`.
        """
        self._settle()
        return self._judged(self._cluster, pod, strategy)

    def verdicts(self, pod: Pod, strategy: str) -> Evaluation:
        """Return what `judge` does, which holds until the next change.

        A scheduler asks twice for each pod, and again and again for those that wait: only the nodes
        that changed meanwhile are then judged.

        Raises:
            InputError: as `judge`.
        """
        self._settle()
        key = demand_key(pod), strategy
        answer, version = self._judgements.get(key, (None, self.version))
        changed = []
        for name, changed_at in reversed(self._changed_at.items()):
            if changed_at <= version:
                break
            changed.append(name)

        if (
            answer is None
            or _MOST_CHANGED * len(changed) > len(self.members)
            or (changed and self._profile)
        ):
            answer = self.judge(pod, strategy)
        elif changed:
            job = self._cluster.job(pod)
            self._cluster.judge(job, pod, strategy, answer, 0, len(changed), self.numbers(changed))

        self._judgements[key] = answer, self.version
        return answer

    def judge_on(self, pod: Pod, names: Sequence[str], strategy: str) -> dict[str, float]:
        """Return which of a few members take a pod, with their scores.

        Raises:
            InputError: as `judge`.
        """
        self._settle()
        numbers = self.numbers(names)
        if self._profile:
            answer = self.verdicts(pod, strategy)
        else:
            answer = self._few
            job = self._cluster.job(pod)
            self._cluster.judge(job, pod, strategy, answer, 0, len(numbers), numbers)

        return {
            name: float(answer.score[number])
            for name, number in zip(names, numbers.tolist(), strict=True)
            if answer.admitted[number]
        }

    def taken_by_one(self, name: str, pods: Mapping[_T, Pod], strategy: str) -> list[_T]:
        """Return which of several pods a member takes, each as if the others were not there.

        It takes none that asks for more than anything can be judged by.

        Args:
            name: that of the member.
            pods: by what they are known by; equal keys are of pods with equal requests, always.
            strategy: as for `judge`.
        """
        self._settle()
        if self._profile:
            return [key for key, pod in pods.items() if self._is_taken(pod, name, strategy)]

        cluster = self._cluster
        resources = cluster.resources
        if resources != self._resources_of_jobs:
            self._resources_of_jobs = resources
            self._jobs.clear()

        keys = []
        jobs = []
        for key, pod in pods.items():
            job = self._jobs.get(key)
            if job is None:
                try:
                    job = self._jobs[key] = cluster.job(pod)
                except AlignupError:
                    continue

            keys.append(key)
            jobs.append((job, pod))

        admitted = cluster.judge_on_node(cluster.index(name), jobs, strategy, self._few)
        return list(compress(keys, admitted))

    def _is_taken(self, pod: Pod, name: str, strategy: str) -> bool:
        try:
            return bool(self.judge_on(pod, [name], strategy))
        except AlignupError:
            return False

    def _judged(self, cluster: Cluster, pod: Pod, strategy: str) -> Evaluation:
        answer = cluster.evaluate(pod, strategy)
        if self._profile:
            verdicts = self._profile_verdicts(cluster, pod, cluster.names)
            admitted = [is_admitted for is_admitted, _, _ in verdicts]
            answer.admitted[:] &= np.array(admitted, np.bool_)
            answer.score[:] = [score for _, score, _ in verdicts]
        return answer

    def _profile_verdicts(
        self, cluster: Cluster, pod: Pod, names: Sequence[str]
    ) -> list[tuple[bool, float, str]]:
        """Return what the profile says of some nodes.

        That takes long: it is asked where something changed.
        """
        kind = demand_key(pod)
        verdicts_of_nodes = [self._profiled.setdefault(name, Memo(_MOST_KINDS)) for name in names]
        stale = [
            name
            for name, verdicts in zip(names, verdicts_of_nodes, strict=True)
            if kind not in verdicts
        ]
        if stale:
            for verdict in judge_nodes(cluster, pod, self._profile, *stale):
                verdicts = self._profiled[verdict.node]
                verdicts[kind] = verdict.admitted, verdict.score, verdict.message

        return [verdicts[kind] for verdicts in verdicts_of_nodes]

    def refusals(self, pod: Pod, names: Sequence[str]) -> dict[str, str]:
        """Return which of some members the profile refuses, and why."""
        self._settle()
        if not self._profile:
            return {}

        verdicts = self._profile_verdicts(self._cluster, pod, names)
        return {
            name: f"NUMA: {message}"
            for name, (is_admitted, _, message) in zip(names, verdicts, strict=True)
            if not is_admitted
        }

    def affinity(self, pod: Pod, name: str, strategy: str) -> int:
        """Return the NUMA nodes where a member would place a pod; 0: anywhere, or nowhere.

        Raises:
            InputError: as `judge`.
        """
        return int(self.verdicts(pod, strategy).affinity[self.numbers([name])[0]])

    def admitting(self, pod: Pod, names: Sequence[str], strategy: str) -> list[str]:
        """Return which of some members take a pod.

        Raises:
            InputError: as `judge`.
        """
        admitted = self.verdicts(pod, strategy).admitted[self.numbers(names)]
        return list(compress(names, admitted.tolist()))

    def texts(
        self,
        pod: Pod,
        judged: Evaluation,
        numbers: npt.NDArray[np.int64],
        *,
        asks_nodes: bool = True,
    ) -> list[str]:
        """Return why each of some nodes, all of which refuse the pod, does so.

        Without `asks_nodes` only a profile is asked: a scheduler drops the words where some node
        takes the pod.
        """
        names = [self._cluster.names[number] for number in numbers]
        texts = [_UNASKED] * len(numbers)
        if asks_nodes:
            policy = -1
            own_policy = pod_policy(pod)
            if own_policy is not None and own_policy.policy != "none":
                policy = TOPOLOGY_POLICIES.index(own_policy.policy)

            self._layouts = self._layouts or layouts_of(self._cluster)
            cause = partial(self._short_cause, demand_key(pod))
            texts = refusal_texts(
                self._cluster, self._layouts, pod, judged, numbers, policy, cause_of=cause
            )

        refusals = self.refusals(pod, names)
        if not refusals:
            return texts
        return [refusals.get(name, text) for name, text in zip(names, texts, strict=True)]

    def _short_cause(self, kind: object, number: int, pod: Pod) -> str:
        """Return what `short_cause` does.

        Pods of a kind that wait ask often, and few nodes change between.
        """
        causes = self._causes.setdefault(self._cluster.names[number], Memo(_MOST_KINDS))
        if kind not in causes:
            causes[kind] = short_cause(self._cluster.nodes[number], pod)

        return causes[kind]

    def empty_admits(self, pod: Pod, strategy: str) -> npt.NDArray[np.bool_]:
        """Return which nodes would admit the pod if no other pod were there.

        None would, where it asks for more than anything can be judged by.
        """
        self._settle()
        key = demand_key(pod), strategy
        if key not in self._without_pods:
            try:
                admitted = self._judged(self._empties, pod, strategy).admitted
            except AlignupError:
                admitted = np.zeros(len(self._empties), np.bool_)
            self._without_pods[key] = admitted[self._kinds]

        return self._without_pods[key]

    def _settle(self) -> None:
        """Build the clusters anew after nodes came or went."""
        if not self._is_stale:
            return

        members = sorted(
            self.members.values(), key=lambda member: isinstance(member, AmountsMember)
        )
        names = [member.name for member in members]
        nodes = [member.node for member in members if isinstance(member, ExactMember)]
        rows = dict(zip(self._cluster.names, self._cluster.rows, strict=True)) | self._rows
        self._cluster = Cluster(names, [rows[name] for name in names], nodes)
        self._index = {name: number for number, name in enumerate(names)}

        self._rows = {}
        self._without_pods = Memo(_MOST_KINDS)
        self._profiled = {}
        self._judgements = Memo(_MOST_JUDGED)
        self._few = Evaluation.empty(len(names))
        self._jobs.clear()
        self._changed_at = {}
        self._layouts = None

        self._settle_empties(members)
        self._is_stale = False

    def _settle_empties(self, members: Sequence[Member]) -> None:
        """Build the cluster of nodes without pods, in which equal nodes are judged once."""
        number_of: dict[int | bytes, int] = {}
        empties: list[_Source] = []
        numbers = []
        for member in members:
            empty: _Source
            key: int | bytes
            if isinstance(member, ExactMember):
                empty = member.template
                key = id(empty)
            else:
                empty = emptied(member.topology.amounts)
                key = _KEY.encode(empty)

            if key not in number_of:
                number_of[key] = len(empties)
                empties.append(empty)
            numbers.append(number_of[key])

        self._kinds = np.array(numbers, np.intp)
        names = [f"kind-{number}" for number in range(len(empties))]
        nodes = [empty for empty in empties if isinstance(empty, Node)]
        self._empties = Cluster(names, map(_row, empties), nodes)
