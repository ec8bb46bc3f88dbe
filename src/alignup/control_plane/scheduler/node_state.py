"""One watched node each: the last report, and on top of it the pods that were bound since.

`ExactMember` is a node that publishes what its pods hold. It keeps a `Node` as far as the kubelet
is, or soon will be: pods that were bound since the report are admitted in the order of their
binding, as the kubelet will; a pod that ends keeps what it holds until a report says otherwise. A
kubelet gives to one container after another, and is read meanwhile: a pod of which a report lists
only a part counts as bound since. A pod that is seen no longer may run all the same: what it holds
is free once a report leaves it out, or once it is sure to have ended and no report came for long.

`AmountsMember` is a node of which only a NodeResourceTopology object is known. A pod that was bound
since is subtracted where the kubelet would most likely place it, until the object catches up: its
fingerprint says of which pods it knows.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from alignup.errors import AlignupError
from alignup.kubelet.node_resource_topology.report import (
    Holdings,
    PodHolding,
    pod_holding,
    restored_node,
)
from alignup.kubelet.node_resource_topology.write import fingerprint
from alignup.records import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from alignup.cluster.cluster import NodeAmounts
    from alignup.control_plane.api_server.objects import WatchedPod
    from alignup.kubelet.node_resource_topology.read import Topology
    from alignup.kubernetes.pod import Pod
    from alignup.node import Node

_NOBODY = Holdings([])


class ExactMember:
    """A node, its last report, and the pods that are bound to it.

    Args:
        name: the name of the node.
        template: the node without pods.
        pods: the pods that are bound to it, in the order of their binding.
        holdings: what it reports; None: it reports nothing, so that only the order of pods is
            known.
        now: seconds on any clock that never goes back.

    Raises:
        AlignupError: the report does not fit the node.
    """

    __slots__ = (
        "_doubted",
        "_ended",
        "_leaving",
        "_reported",
        "_written_off",
        "name",
        "node",
        "pods",
        "reports",
        "template",
    )

    def __init__(
        self,
        name: str,
        template: Node,
        pods: Iterable[WatchedPod],
        holdings: Holdings | None,
        now: float = 0.0,
    ) -> None:
        self.name = name
        self.template = template

        # By uid, in the order of their binding; those that the report still lists although they are
        # gone, too.
        self.pods: dict[str, WatchedPod] = {pod.pod.uid: pod for pod in pods}
        # Whether the node says what its pods hold.
        self.reports = holdings is not None
        # By uid, since when a pod is leaving, or not seen any more.
        self._leaving: dict[str, float] = {}
        # By uid, since when a pod that the report lists is known to have ended.
        self._ended: dict[str, float] = {}
        # By uid, what the report lists and is not believed any more: the pod ended long ago.
        self._written_off: dict[str, PodHolding] = {}
        # By uid, pods that were refused here, or admitted beside one that is gone: whether there,
        # too, is unknown.
        self._doubted: dict[str, float] = {}

        self._reported = _NOBODY  # no pod was in a report before the first
        self.node = template
        self._reported = self._whole(holdings or _NOBODY)
        self.node = self._rebuilt()
        self._doubt_refused(now)

    @property
    def pending(self) -> tuple[str, ...]:
        """The uids of pods that are bound, hold something, and are in no report yet."""
        return tuple(filter(self.node.manager.has_pod, self.unsettled))

    @property
    def unsettled(self) -> tuple[str, ...]:
        """The uids of pods that are bound, in no report yet, and hold something or were refused."""
        listed = self._listed()
        unreported = [uid for uid in self.pods if uid not in listed]
        if not unreported:
            return ()

        pods = {pod.uid: pod for pod in self.node.pods}
        return tuple(
            [
                uid
                for uid in unreported
                if uid not in pods or pod_holding(self.node, pods[uid]).containers
            ]
        )

    @property
    def is_uncertain(self) -> bool:
        """Whether a pod's end may come before or after the admission of another.

        Then the place of the other one is not known.
        """
        if self._doubted and not self._doubted.keys().isdisjoint(self.unsettled):
            return True

        # one that is seen no longer has no other in its way but those that are
        return bool(self._leaving) and any(
            uid not in self._leaving or self.pods[uid].is_leaving for uid in self.unsettled
        )

    def bind(self, bound: WatchedPod, now: float) -> bool:
        """Count a pod that was bound to this node, that changed since, or that is seen again.

        Return whether the node holds something else now.
        """
        uid = bound.pod.uid
        self._ended.pop(uid, None)
        if bound.is_leaving and self.reports:
            self._leaving.setdefault(uid, now)
        else:
            self._leaving.pop(uid, None)

        asks = uid not in self.pods and not self.node.manager.has_pod(uid)
        self.pods[uid] = bound
        if asks and uid in self._written_off:
            holding = self._written_off.pop(uid)
            self._reported = Holdings([*self._reported.pods, holding])
            self.node = self._rebuilt()
        elif asks:
            _admit(self.node, bound.pod)
            if not self.node.manager.has_pod(uid):
                self._doubt_refused(now)
        return asks

    def _doubt_refused(self, now: float) -> None:
        """Note which pods were refused here.

        Their kubelet takes them all the same where another pod that is in their way here is gone.
        """
        if self.reports:
            for uid in self.pods:
                if not self.node.manager.has_pod(uid):
                    self._doubted.setdefault(uid, now)

    def vanish(self, uid: str, now: float) -> None:
        """Note that a pod is seen no longer.

        Its kubelet may run it all the same, so it counts until `gone`, or until a report that
        listed it leaves it out.
        """
        if uid in self.pods and self.reports:
            self._leaving.setdefault(uid, now)

    def lists(self, uid: str) -> bool:
        """Return whether the last report says what a pod holds."""
        return uid in self._listed()

    def may_hold(self, uid: str) -> bool:
        """Return whether a pod holds anything: by the report, by its place here, or elsewhere.

        Its kubelet may have taken one that was refused here.
        """
        if uid in self._listed():
            return True
        if uid not in self.pods:
            return False
        if not self.node.manager.has_pod(uid):
            return True
        return bool(pod_holding(self.node, self.pods[uid].pod).containers)

    def gone(self, uid: str, now: float) -> bool:
        """Remove a pod that has ended, or was never bound after all.

        Return whether that frees anything. What it held stays taken until a report leaves it out,
        if a report has listed it.
        """
        if uid in self.pods and self.reports and uid in self._listed():
            self._leaving.setdefault(uid, now)
            self._ended.setdefault(uid, now)
            return False

        if uid in self.pods and self.reports:
            uids = list(self.pods)
            bound_later = uids[uids.index(uid) + 1 :]
            self._doubted |= dict.fromkeys(set(bound_later).intersection(self.unsettled), now)

        return self._forget(uid)

    def take_back(self, uid: str) -> None:
        """Remove a pod that only counted as bound: its kubelet never saw it."""
        is_last = uid == next(reversed(self.pods), None)
        if self._forget(uid) and not is_last:
            self.node = self._rebuilt()

    def _forget(self, uid: str) -> bool:
        """Free what a pod holds; return whether that was anything."""
        self.pods.pop(uid, None)
        self._leaving.pop(uid, None)
        self._ended.pop(uid, None)

        is_present = self.node.manager.has_pod(uid)
        if is_present:
            self.node.remove(uid)
        return is_present

    def report(self, holdings: Holdings, now: float = 0.0) -> bool:
        """Take in what the node says of its pods, at a moment of the clock of the pods.

        Return whether it made a difference for what can be admitted.

        Raises:
            AlignupError: the report does not fit the node; nothing changed.
        """
        before = self._reported
        did_report = self.reports
        if did_report and holdings == before:  # as most reports are: without a look at the node
            return False

        was_uncertain = self.is_uncertain
        holdings = self._whole(holdings)
        if did_report and holdings == before:
            return False

        listed = {holding.uid for holding in holdings.pods}
        ended = [holding.uid for holding in before.pods if holding.uid not in listed]
        agrees = did_report and self._agrees(holdings)
        pods_before = self.pods
        self._reported = holdings
        self.pods = {uid: pod for uid, pod in pods_before.items() if uid not in ended}
        written_off = self._written_off
        self._written_off = {}  # what the node says now counts

        if agrees and not ended:
            return was_uncertain and not self.is_uncertain

        if agrees and not self.unsettled:
            # no pod is here whose place may be another one without those that have ended
            for uid in ended:
                self.node.remove(uid)
        else:
            try:
                self.node = self._rebuilt()
            except Exception:
                self._reported = before
                self.pods = pods_before
                self._written_off = written_off
                raise

        self.reports = True
        self._leaving = {uid: since for uid, since in self._leaving.items() if uid in self.pods}
        self._ended = {uid: since for uid, since in self._ended.items() if uid in self.pods}
        self._doubt_refused(now)
        return True

    def expire(self, moment: float) -> bool:
        """Free what pods hold that ended before a moment, though no report says so.

        A kubelet may take as long as their grace period to end them. Return whether anything is
        known better than before.
        """
        overdue = self._since_before(moment, self._ended)
        if overdue:
            holdings = self._reported.pods
            self._reported = Holdings([pod for pod in holdings if pod.uid not in overdue])
            self._written_off |= {pod.uid: pod for pod in holdings if pod.uid in overdue}
            for uid in overdue:
                self._forget(uid)

        uncertain = len(self._doubted) + len(self._leaving)
        self._doubted = {uid: since for uid, since in self._doubted.items() if since >= moment}
        for uid in self._since_before(moment, self._leaving):
            del self._leaving[uid]
        return bool(overdue) or len(self._doubted) + len(self._leaving) < uncertain

    def _since_before(self, moment: float, moments: Mapping[str, float]) -> set[str]:
        """Return the pods whose grace period, if it began at their moment, was over before one."""
        return {uid for uid, since in moments.items() if since + self.pods[uid].grace < moment}

    def _agrees(self, holdings: Holdings) -> bool:
        """Return whether pods hold here what a report says of them."""
        before = {holding.uid: holding for holding in self._reported.pods}
        return all(
            holding == before.get(holding.uid) or holding == self._own_holding(holding.uid)
            for holding in holdings.pods
        )

    def _own_holding(self, uid: str) -> PodHolding | None:
        """Return what a pod holds here; None: it was refused, or is unknown."""
        manager = self.node.manager
        return pod_holding(self.node, manager.pod(uid)) if manager.has_pod(uid) else None

    def _whole(self, holdings: Holdings) -> Holdings:
        """Return a report without the pods that the kubelet still gave to while it was read."""
        listed = self._listed()
        whole = []
        for holding in holdings.pods:
            if holding.uid not in listed and not self._is_whole(holding):
                continue

            name = holding.name
            namespace = holding.namespace
            bound = self.pods.get(holding.uid)
            if bound is not None:
                name = bound.pod.name
                namespace = bound.pod.namespace
            whole.append(PodHolding(holding.uid, name, namespace, holding.containers))

        return Holdings(whole)

    def _is_whole(self, holding: PodHolding) -> bool:
        """Return whether each container holds something of every kind that it asks for.

        But for the memory of init containers: the memory manager gives it back when the next
        container starts.
        """
        bound = self.pods.get(holding.uid)
        if bound is None:  # what an unknown pod asks for is unknown
            return True

        own_holding = self._own_holding(holding.uid)
        if holding == own_holding:
            return True

        pod = bound.pod
        if pod.readings is None and not any(
            container.exclusive_cpus or container.memory or container.devices
            for container in pod.all_containers
        ):
            return True

        passing = {container.name for container in pod.init_containers if not container.is_sidecar}
        requested_kinds = set()
        for container in pod.all_containers:
            if container.exclusive_cpus:
                requested_kinds.add((container.name, "cpu"))
            requested_kinds.update(
                (container.name, kind) for kind, amount in container.devices if amount
            )
            if container.name not in passing:
                requested_kinds.update(
                    (container.name, kind) for kind, amount in container.memory if amount
                )

        # no node gives it more than it asks for
        if pod.readings is None and requested_kinds <= _kinds(holding):
            return True

        if own_holding is None or not own_holding.containers:
            # it was refused here, and would have a place on the empty node
            empty = self.template.copy()
            _admit(empty, pod)
            own_holding = pod_holding(empty, pod)

        return _kinds(own_holding, without_memory=passing) <= _kinds(holding)

    def _listed(self) -> set[str]:
        return {holding.uid for holding in self._reported.pods}

    def _rebuilt(self) -> Node:
        """Return the node as the report says, with the pods that were bound since."""
        bound_pods: dict[str, Pod] = {uid: bound.pod for uid, bound in self.pods.items()}
        node = restored_node(self.template, self._reported, bound_pods)
        for uid, pod in bound_pods.items():
            if not node.manager.has_pod(uid):
                _admit(node, pod)

        return node


def _kinds(holding: PodHolding, without_memory: Container[str] = ()) -> set[tuple[str, str]]:
    """Return of which kinds of resources the containers of a pod hold something."""
    kinds = set()
    for name, container in holding.containers.items():
        if container.cpus:
            kinds.add((name, "cpu"))
        if name not in without_memory:
            kinds.update((name, kind) for kind in container.memory)
        kinds.update((name, kind) for kind in container.devices)

    return kinds


def _admit(node: Node, pod: Pod) -> None:
    """Admit a bound pod; if the node refuses it, so will the kubelet, and it holds nothing."""
    with suppress(AlignupError):  # the pod's own policy may be unreadable
        node.admit(pod)


class AmountsMember:
    """The amounts that an object reports, and the pods that are bound to the node.

    Args:
        name: the name of the node.
        topology: what the object says.
        pods: the pods that are bound to the node; the object is taken to know them.
    """

    __slots__ = ("_pending", "amounts", "name", "pods", "topology")

    def __init__(self, name: str, topology: Topology, pods: Iterable[WatchedPod]) -> None:
        self.name = name
        self.topology = topology
        self.pods: dict[str, WatchedPod] = {pod.pod.uid: pod for pod in pods}
        # By uid, the NUMA nodes where a pod would be placed, and when it was bound.
        self._pending: dict[str, tuple[int, float]] = {}
        self.amounts = topology.amounts

    @property
    def pending(self) -> tuple[str, ...]:
        """The uids of pods that are bound and that the object does not know yet."""
        return tuple(self._pending)

    @property
    def unsettled(self) -> tuple[str, ...]:
        """The same: which of them hold nothing, amounts do not tell."""
        return self.pending

    def bind(self, bound: WatchedPod, mask: int, now: float) -> None:
        """Count a pod that was bound to the node.

        Args:
            bound: the pod.
            mask: the NUMA nodes where it would be placed, bit i for the i-th zone; 0: anywhere.
            now: seconds on any clock that never goes back.
        """
        uid = bound.pod.uid
        if uid not in self.pods:
            self._pending[uid] = mask, now
        self.pods[uid] = bound
        self._count()

    def vanish(self, uid: str, _now: float) -> None:
        """Note that a pod is seen no longer: it counts until `gone`."""

    def lists(self, uid: str) -> bool:
        """Return whether the object knows of a pod."""
        return uid not in self._pending

    def may_hold(self, uid: str) -> bool:
        """Return whether a pod is counted beside the object."""
        return uid in self._pending

    def gone(self, uid: str, _now: float = 0.0) -> bool:
        """Forget a pod that has ended; return whether that frees any.

        What the object counted for it stays taken until the object changes.
        """
        self.pods.pop(uid, None)
        was_pending = self._pending.pop(uid, None) is not None
        if was_pending:
            self._count()
        return was_pending

    def take_back(self, uid: str) -> None:
        """Remove a pod that only counted as bound."""
        self.gone(uid)

    def report(self, topology: Topology, covered: Iterable[str]) -> None:
        """Take in what another object says.

        Args:
            topology: what it says.
            covered: the uids of the bound pods that it knows of.
        """
        for uid in covered:
            self._pending.pop(uid, None)

        self.topology = topology
        self._count()

    def known_to(self, signature: str) -> list[str]:
        """Return the uids of pending pods that a report with this fingerprint knows of.

        A report knows pods in the order in which they were bound. If it matches no such set of
        pods, none of the pending pods is taken to be in it.
        """
        names = {uid: (bound.pod.namespace, bound.pod.name) for uid, bound in self.pods.items()}
        pending = list(self._pending)
        settled = [name for uid, name in names.items() if uid not in self._pending]
        for count in range(len(pending), -1, -1):
            reported = pending[:count]
            if fingerprint([*settled, *[names[uid] for uid in reported]]) == signature:
                return reported

        return []

    def older_than(self, moment: float) -> list[str]:
        """Return the uids of pods bound before a moment that are not known to the object."""
        return [uid for uid, (_, since) in self._pending.items() if since < moment]

    def _count(self) -> None:
        """Subtract the pods that the object does not know."""
        self.amounts = self.topology.amounts
        for uid, (mask, _) in self._pending.items():
            self.amounts = taken_by(self.amounts, self.pods[uid].pod, mask)


def taken_by(amounts: NodeAmounts, pod: Pod, mask: int) -> NodeAmounts:
    """Return what is left when a pod has taken what it asks for.

    Args:
        amounts: what there is.
        pod: the pod.
        mask: the NUMA nodes to take from first, the lowest first; the others give what these lack.
    """
    order = sorted(
        range(amounts.numa_nodes), key=lambda position: (not mask >> position & 1, position)
    )
    requests = {"cpu": pod.exclusive_cpus, **dict(pod.memory), **dict(pod.devices)}

    def less(name: str, _allocatable: _Amounts, free: _Amounts) -> _Amounts:
        remaining = list(free)
        lacking = requests.get(name, 0)
        for position in order:
            share = min(remaining[position], lacking)
            remaining[position] -= share
            lacking -= share

        return tuple(remaining)

    return _with_free(amounts, less)


def emptied(amounts: NodeAmounts) -> NodeAmounts:
    """Return the amounts of the same node without pods."""
    return _with_free(amounts, lambda _name, allocatable, _free: allocatable)


_Amounts = tuple[int, ...]


def _with_free(
    amounts: NodeAmounts, free_of: Callable[[str, _Amounts, _Amounts], _Amounts]
) -> NodeAmounts:
    """Return amounts of which something else is free.

    Of each resource that is what a function of its amounts says.
    """
    resources = {
        name: (whole, allocatable, free_of(name, allocatable, free))
        for name, (whole, allocatable, free) in amounts.resources.items()
    }
    return replace(amounts, resources=resources)
