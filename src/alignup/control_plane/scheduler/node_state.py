"""One watched node each: the last report, and on top of it the pods that were bound since.

`ExactMember` is a node that publishes what its pods hold. It keeps a `Node` as far as the kubelet
is, or soon will be: pods that were bound since the report are admitted in the order of their
binding, as the kubelet will; a pod that ends keeps what it holds until a report says otherwise. A
kubelet gives to one container after another, and is read meanwhile: a pod of which a report lists
only a part counts as bound since.

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
    holdings_of,
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

    Raises:
        AlignupError: the report does not fit the node.
    """

    __slots__ = ("_doubted", "_leaving", "_reported", "name", "node", "pods", "reports", "template")

    def __init__(
        self, name: str, template: Node, pods: Iterable[WatchedPod], holdings: Holdings | None
    ) -> None:
        self.name, self.template = name, template
        # By uid, in the order of their binding; those that the report still lists although they are
        # gone, too.
        self.pods: dict[str, WatchedPod] = {one.pod.uid: one for one in pods}
        # Whether the node says what its pods hold.
        self.reports = holdings is not None
        self._leaving: dict[str, float] = {}
        # By uid, pods that were admitted here beside one that is gone: whether there, too, is
        # unknown.
        self._doubted: dict[str, float] = {}
        self._reported = _NOBODY  # no pod was in a report before the first
        self._reported = self._whole(holdings or _NOBODY, {})
        self.node = self._rebuilt()

    @property
    def pending(self) -> tuple[str, ...]:
        """The uids of pods that are bound, hold something, and are in no report yet."""
        return tuple(filter(self.node.manager.has_pod, self.unsettled))

    @property
    def unsettled(self) -> tuple[str, ...]:
        """The uids of pods that are bound, in no report yet, and hold something or were refused."""
        listed = self._listed()
        fresh = [uid for uid in self.pods if uid not in listed]
        there = {pod.uid: pod for pod in self.node.pods} if fresh else {}
        return tuple(
            [
                uid
                for uid in fresh
                if uid not in there or pod_holding(self.node, there[uid]).containers
            ]
        )

    @property
    def is_uncertain(self) -> bool:
        """Whether a pod's end may come before or after the admission of another, so that its place is not known."""
        is_doubted = self._doubted and not self._doubted.keys().isdisjoint(self.unsettled)
        return bool(is_doubted or (self._leaving and self.pending))

    def bind(self, bound: WatchedPod, now: float) -> bool:
        """Count a pod that was bound to this node, or that changed since; return whether the node was asked."""
        uid = bound.pod.uid
        asks = uid not in self.pods and not self.node.manager.has_pod(uid)
        self.pods[uid] = bound
        if asks:
            _admit(self.node, bound.pod)
        if bound.is_leaving and self.reports:
            self._leaving.setdefault(uid, now)
        return asks

    def gone(self, uid: str, now: float) -> bool:
        """Remove a pod that has ended, or was deleted, or was never bound after all; return whether that frees any.

        What it held stays taken until a report leaves it out, if a report has listed it.
        """
        if uid in self.pods and self.reports and uid in self._listed():
            self._leaving.setdefault(uid, now)
            return False
        if uid in self.pods and self.reports:
            behind = list(self.pods)[list(self.pods).index(uid) + 1 :]
            self._doubted |= dict.fromkeys(set(behind).intersection(self.unsettled), now)
        return self._forget(uid)

    def _forget(self, uid: str) -> bool:
        """Free what a pod holds; return whether that was anything."""
        self.pods.pop(uid, None)
        self._leaving.pop(uid, None)
        if found := self.node.manager.has_pod(uid):
            self.node.remove(uid)
        return found

    def report(self, holdings: Holdings) -> bool:
        """Take in what the node says of its pods; return whether it made a difference for what can be admitted.

        Raises:
            AlignupError: the report does not fit the node; nothing changed.
        """
        before = self._reported
        did_report = self.reports
        if did_report and holdings == before:  # as most reports are: without a look at the node
            return False

        was_uncertain = self.is_uncertain
        mine = {held.uid: held for held in holdings_of(self.node).pods}
        holdings = self._whole(holdings, mine)
        if did_report and holdings == before:
            return False

        listed = {held.uid for held in holdings.pods}
        ended = [held.uid for held in before.pods if held.uid not in listed]
        agrees = not ended and all(mine.get(held.uid) == held for held in holdings.pods)
        kept = self.pods
        self._reported = holdings
        self.pods = {uid: one for uid, one in kept.items() if uid not in ended}
        if did_report and agrees:
            return was_uncertain and not self.is_uncertain

        try:
            self.node = self._rebuilt()
        except Exception:
            self._reported, self.pods = before, kept
            raise

        self.reports = True
        self._leaving = {uid: since for uid, since in self._leaving.items() if uid in self.pods}
        return True

    def expire(self, before: float) -> bool:
        """Free what pods hold that left before a moment, though no report says so; return whether there were any."""
        overdue = [uid for uid, since in self._leaving.items() if since < before]
        self._reported = Holdings([held for held in self._reported.pods if held.uid not in overdue])
        for uid in overdue:
            self._forget(uid)
        doubted = len(self._doubted)
        self._doubted = {uid: since for uid, since in self._doubted.items() if since >= before}
        return bool(overdue) or len(self._doubted) < doubted

    def _whole(self, holdings: Holdings, mine: Mapping[str, PodHolding]) -> Holdings:
        """Return a report without the pods that the kubelet was still giving to while it was read.

        Args:
            holdings: the report.
            mine: what pods hold here, by uid.
        """
        listed = self._listed()
        whole = [
            held
            for held in holdings.pods
            if held.uid in listed or self._is_whole(held, mine.get(held.uid))
        ]
        pods = [
            (self.pods[held.uid].pod if held.uid in self.pods else held, held.containers)
            for held in whole
        ]
        return Holdings(
            [PodHolding(one.uid, one.name, one.namespace, containers) for one, containers in pods]
        )

    def _is_whole(self, held: PodHolding, mine: PodHolding | None) -> bool:
        """Return whether each container holds something of every kind that it asks for.

        But for the memory of init containers: the memory manager gives it back when the next
        container starts.
        """
        bound = self.pods.get(held.uid)
        if held == mine or bound is None:  # what an unknown pod asks for is unknown
            return True

        pod = bound.pod
        if pod.readings is None and not any(
            one.exclusive_cpus or one.memory or one.devices for one in pod.all_containers
        ):
            return True

        passing = {one.name for one in pod.init_containers if not one.is_sidecar}
        most = {
            (one.name, kind)
            for one in pod.all_containers
            for kind, amount in (("cpu", one.exclusive_cpus), *one.memory, *one.devices)
            if amount and not (one.name in passing and (kind, amount) in one.memory)
        }
        if pod.readings is None and most <= _kinds(held):  # no node gives it more than it asks for
            return True
        if mine is None or not mine.containers:
            # it was refused here, and would have a place on the empty node
            empty = self.template.copy()
            _admit(empty, pod)
            mine = pod_holding(empty, pod)

        return _kinds(mine, without_memory=passing) <= _kinds(held)

    def _listed(self) -> set[str]:
        return {held.uid for held in self._reported.pods}

    def _rebuilt(self) -> Node:
        """Return the node as the report says, with the pods that were bound since."""
        known: dict[str, Pod] = {uid: one.pod for uid, one in self.pods.items()}
        node = restored_node(self.template, self._reported, known)
        for uid, pod in known.items():
            if not node.manager.has_pod(uid):
                _admit(node, pod)
        return node


def _kinds(held: PodHolding, without_memory: Container[str] = ()) -> set[tuple[str, str]]:
    """Return of which kinds of resources the containers of a pod hold something."""
    return {
        (name, kind)
        for name, one in held.containers.items()
        for kind in (
            *(["cpu"] if one.cpus else []),
            *(() if name in without_memory else one.memory),
            *one.devices,
        )
    }


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
        self.name, self.topology = name, topology
        self.pods: dict[str, WatchedPod] = {one.pod.uid: one for one in pods}
        self._pending: dict[str, tuple[int, float]] = {}
        self.amounts = topology.amounts

    @property
    def pending(self) -> tuple[str, ...]:
        """The uids of pods that are bound and that the object does not know yet."""
        return tuple(self._pending)

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

    def gone(self, uid: str, _now: float = 0.0) -> bool:
        """Forget a pod that has ended; return whether that frees any.

        What the object counted for it stays taken until the object changes.
        """
        self.pods.pop(uid, None)
        if found := self._pending.pop(uid, None) is not None:
            self._count()
        return found

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
        pending = list(self._pending)
        others = [
            (one.pod.namespace, one.pod.name)
            for uid, one in self.pods.items()
            if uid not in self._pending
        ]
        for known in range(len(pending), -1, -1):
            some = [self.pods[uid].pod for uid in pending[:known]]
            if fingerprint([*others, *[(pod.namespace, pod.name) for pod in some]]) == signature:
                return pending[:known]

        return []

    def older_than(self, moment: float) -> list[str]:
        """Return the uids of pods that were bound before a moment and are not known to the object."""
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
    wanted = {"cpu": pod.exclusive_cpus, **dict(pod.memory), **dict(pod.devices)}

    def less(name: str, _there: _Amounts, free: _Amounts) -> _Amounts:
        left, lacking = list(free), wanted.get(name, 0)
        for position in order:
            given = min(left[position], lacking)
            left[position] -= given
            lacking -= given

        return tuple(left)

    return _with_free(amounts, less)


def emptied(amounts: NodeAmounts) -> NodeAmounts:
    """Return the amounts of the same node without pods."""
    return _with_free(amounts, lambda _name, there, _free: there)


_Amounts = tuple[int, ...]


def _with_free(
    amounts: NodeAmounts, left: Callable[[str, _Amounts, _Amounts], _Amounts]
) -> NodeAmounts:
    """Return amounts of which something else is free: of each resource what a function of its amounts says."""
    found = {
        name: (whole, there, left(name, there, free))
        for name, (whole, there, free) in amounts.resources.items()
    }
    return replace(amounts, resources=found)
