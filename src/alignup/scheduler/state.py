"""The state of a watched cluster: takes in what happened to nodes and pods, and keeps a member for each node.

Pure and synchronous: events come as calls, time as an argument; nothing here reads a clock or a socket. Questions about
the state are answered in `alignup.scheduler.extender_answers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.errors import AlignupError, warn
from alignup.koordinator.annotation import NODE_LABEL
from alignup.scheduler.amounts_member import AmountsMember
from alignup.scheduler.exact_member import ExactMember
from alignup.scheduler.report import Description, Report, decode_holdings
from alignup.scheduler.view import Member, View

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from alignup.scheduler.objects import WatchedPod

__all__ = ["ClusterState"]

SLOWEST_REPORT: Final = 60.0
"""Seconds after which a pod that is gone, or bound, is taken to be in what its node reports, whatever that says."""


REPORT_DELAY: Final = 10.0
"""Seconds after which a pod that was bound is in what its node reports, where no fingerprint tells."""


class ClusterState:
    """The nodes that report, and the pods that are bound to them.

    Args:
        strategy: the strategy by which an amounts-only node's placement of a pod is guessed.
    """

    def __init__(self, strategy: str = "least-numa-nodes") -> None:
        self.view = View()
        self.strategy = strategy
        self.changed: set[str] = set()
        """Names of the nodes on which more may fit than before; whoever has dealt with them clears it."""
        self.uncertain: set[str] = set()
        """Names of the nodes where the place of the last pods is not known."""
        self._descriptions = Description()
        self._reports: dict[str, Report] = {}
        self._labels: dict[str, dict[str, str]] = {}
        self._pods: dict[str, WatchedPod] = {}
        self._by_node: dict[str, dict[str, WatchedPod]] = {}
        self._assumed: set[str] = set()
        self._unordered: dict[str, tuple[set[str], float]] = {}
        """By node, the uids of pods that were bound in an order that nobody saw, and since when they are known."""

    @property
    def members(self) -> Mapping[str, Member]:
        """By name, the nodes of which something is known."""
        return self.view.members

    @property
    def pod_count(self) -> int:
        """How many pods are bound."""
        return len(self._pods)

    def bound(self, uid: str) -> WatchedPod | None:
        """Return a bound pod; None if there is none of this uid."""
        return self._pods.get(uid)

    def pods_of(self, node: str) -> Mapping[str, WatchedPod]:
        """Return the pods that are bound to a node, by uid, in the order of their binding."""
        return self._by_node.get(node, {})

    # Pods.

    def pod_seen(self, pod: WatchedPod, now: float) -> None:
        """Take in a pod that is bound to a node and has not ended: it is new, changed, or learned of again."""
        uid = pod.pod.uid
        before = self._pods.get(uid)
        if before is not None and before.node != pod.node:
            self.pod_gone(uid, now)
        self._assumed.discard(uid)
        self._count(pod, now)

    def pod_gone(self, uid: str, now: float) -> None:
        """Take in that a pod has ended or was deleted; one that nobody knew is no error."""
        pod = self._pods.pop(uid, None)
        self._assumed.discard(uid)
        if pod is None:
            return
        self._by_node[pod.node].pop(uid, None)
        member = self.members.get(pod.node)
        if isinstance(member, ExactMember):
            member.gone(uid, now)
        elif member is not None:
            member.gone(uid)
        if member is not None:
            self._note(member)

    def assume(self, pod: WatchedPod, now: float) -> None:
        """Count a pod as bound before the API server says so."""
        self._assumed.add(pod.pod.uid)
        self._count(pod, now)

    def is_assumed(self, uid: str) -> bool:
        """Return whether a pod counts as bound although the API server has not said so."""
        return uid in self._assumed

    def pods_listed(self, pods: Iterable[WatchedPod], now: float) -> None:
        """Take in all bound pods at one moment: those that are not among them are gone.

        In which order new ones were bound is not known; where two of a node are not in its report yet, that matters.
        """
        there = {one.pod.uid: one for one in pods}
        for uid in [uid for uid in self._pods if uid not in there and uid not in self._assumed]:
            self.pod_gone(uid, now)
        fresh: dict[str, set[str]] = {}
        for one in sorted(there.values(), key=lambda one: one.since):
            before = self._pods.get(one.pod.uid)
            if before is None:
                fresh.setdefault(one.node, set()).add(one.pod.uid)
            if before != one:
                self.pod_seen(one, now)
        for name, uids in fresh.items():
            self._unordered[name] = uids | self._unordered.get(name, (set(), 0.0))[0], now
            if name in self.members:
                self._doubt(self.members[name])

    def _count(self, pod: WatchedPod, now: float) -> None:
        uid = pod.pod.uid
        self._pods[uid] = pod
        self._by_node.setdefault(pod.node, {})[uid] = pod
        member = self.members.get(pod.node)
        if isinstance(member, ExactMember):
            member.bind(pod, now)
            self._doubt(member)
            self.view.touch()
        elif member is not None:
            member.bind(pod, self._mask(pod), now)
            self.view.refresh(member)

    def _mask(self, pod: WatchedPod) -> int:
        """Return where a node of which only amounts are known would place a pod; 0: nobody can tell."""
        try:
            return self.view.affinity(pod.pod, pod.node, self.strategy)
        except AlignupError:
            return 0

    # Nodes, and what they report.

    def node_seen(self, name: str, labels: Mapping[str, str]) -> None:
        """Take in a Node object; of its labels only Koordinator's counts."""
        kept = {NODE_LABEL: labels[NODE_LABEL]} if NODE_LABEL in labels else {}
        before = self._labels.get(name)
        self._labels[name] = kept
        if name in self._reports and (kept != (before or {}) or name not in self.members):
            self._try_to_make(self._reports[name])

    def node_gone(self, name: str) -> None:
        """Take in that a Node object was deleted."""
        self._labels.pop(name, None)
        self._drop(name)

    def nodes_listed(self, nodes: Mapping[str, Mapping[str, str]]) -> None:
        """Take in all Node objects at one moment, labels by name."""
        for name in [name for name in self._labels if name not in nodes]:
            self.node_gone(name)
        for name, labels in nodes.items():
            self.node_seen(name, labels)

    def report_seen(self, report: Report, now: float) -> None:
        """Take in a NodeResourceTopology object that is new or changed; one that cannot be read is warned of."""
        before, member = self._reports.get(report.name), self.members.get(report.name)
        self._reports[report.name] = report
        if before is None or member is None or before.description != report.description:
            self._try_to_make(report)
            return
        if before.text == report.text:
            return
        try:
            if isinstance(member, ExactMember):
                self._update_exact(member, report)
            else:
                self._update_amounts(member, report, now)
        except AlignupError as error:
            self._pass_over(report, error)

    def report_gone(self, name: str) -> None:
        """Take in that a NodeResourceTopology object was deleted: nothing is known of the node any more."""
        self._reports.pop(name, None)
        self._drop(name)

    def reports_listed(self, reports: Iterable[Report], now: float) -> None:
        """Take in all NodeResourceTopology objects at one moment."""
        there = set()
        for one in reports:
            there.add(one.name)
            self.report_seen(one, now)
        for name in [name for name in self._reports if name not in there]:
            self.report_gone(name)

    def tick(self, now: float) -> None:
        """Give up waiting for reports that should have come long ago."""
        for name in [name for name, (_, since) in self._unordered.items() if since < now - SLOWEST_REPORT]:
            del self._unordered[name]
            if name in self.members:
                self._doubt(self.members[name])
        for member in self.members.values():
            if isinstance(member, ExactMember):
                if member.expire(now - SLOWEST_REPORT):
                    self._note(member)
            elif overdue := member.older_than(now - SLOWEST_REPORT):
                member.report(member.topology, overdue)
                self._note(member)

    def _try_to_make(self, report: Report) -> None:
        try:
            self._make(report)
        except AlignupError as error:
            self._pass_over(report, error)

    def _pass_over(self, report: Report, error: AlignupError) -> None:
        """Warn of a report that cannot be read; nothing is known of its node then."""
        warn(f"what node {report.name} reports is passed over: {error}")
        self._drop(report.name)

    def _drop(self, name: str) -> None:
        self.view.drop(name)
        self.uncertain.discard(name)

    def _make(self, report: Report) -> None:
        """Make the member for a node anew, by all that is known of it."""
        name = report.name
        pods = list(self.pods_of(name).values())
        made: Member
        if report.description is None:
            made = AmountsMember(name, report.topology(), pods)
        else:
            template = self._descriptions.template(report.description, self._labels.get(name, {}))
            holdings = None if report.holdings is None else decode_holdings(report.holdings)
            made = ExactMember(name, template, pods, holdings)
        self.view.put(made)
        self.changed.add(name)
        self._doubt(made)

    def _update_exact(self, member: ExactMember, report: Report) -> None:
        if report.holdings is not None:
            node = member.node
            if member.report(decode_holdings(report.holdings)):
                self.changed.add(member.name)
            self._doubt(member)
            self.view.touch()
            if member.node is not node:
                self.view.refresh(member)

    def _update_amounts(self, member: AmountsMember, report: Report, now: float) -> None:
        signature = report.fingerprint
        covered = member.known_to(signature) if signature else member.older_than(now - REPORT_DELAY)
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
        if isinstance(member, ExactMember) and (member.is_uncertain or self._still_unordered(member)):
            self.uncertain.add(name)
        elif name in self.uncertain:
            self.uncertain.remove(name)
            self.changed.add(name)

    def _still_unordered(self, member: ExactMember) -> bool:
        """Forget the pods that are in a report by now; return whether two are left of whose order nobody knows."""
        uids, since = self._unordered.get(member.name, (set(), 0.0))
        left = uids.intersection(member.unsettled) if uids and member.reports else set()
        if len(left) > 1:
            self._unordered[member.name] = left, since
            return True
        self._unordered.pop(member.name, None)
        return False
