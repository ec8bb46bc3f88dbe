"""One node that publishes what its pods hold: keeps a `Node` that is as far as the kubelet is, or as it soon will be.

The last report says what the kubelet had given out. Pods that were bound since are admitted on top, in the order in
which they were bound, as the kubelet will. A pod that ends keeps what it holds until a report says otherwise.

A kubelet gives to one container after another, and its node is read meanwhile: a pod of which a report lists only a
part counts as one that was bound since.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from alignup.errors import AlignupError
from alignup.scheduler.report import Holdings, PodHolding, holdings_of, pod_holding, restored_node

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from alignup.kubernetes.pod import Pod
    from alignup.node import Node
    from alignup.scheduler.objects import WatchedPod

__all__ = ["ExactMember"]

_NOBODY = Holdings([])


class ExactMember:
    """A node, its last report, and the pods that are bound to it.

    Args:
        name: the name of the node.
        template: the node without pods.
        pods: the pods that are bound to it, in the order of their binding.
        holdings: what it reports; None: it reports nothing, so that only the order of pods is known.

    Raises:
        AlignupError: the report does not fit the node.
    """

    __slots__ = ("_leaving", "_reported", "name", "node", "pods", "template")

    def __init__(
        self, name: str, template: Node, pods: Iterable[WatchedPod], holdings: Holdings | None
    ) -> None:
        self.name, self.template = name, template
        self.pods: dict[str, WatchedPod] = {one.pod.uid: one for one in pods}
        """By uid, in the order of their binding; those that the report still lists although they are gone, too."""
        self._leaving: dict[str, float] | None = None if holdings is None else {}
        self._reported = _NOBODY  # no pod was in a report before the first
        self._reported = self._whole(holdings or _NOBODY, {})
        self.node = self._rebuilt()

    @property
    def reports(self) -> bool:
        """Whether the node says what its pods hold."""
        return self._leaving is not None

    @property
    def pending(self) -> tuple[str, ...]:
        """The uids of pods that are bound, hold something, and are in no report yet."""
        listed = self._listed()
        mine = {held.uid for held in holdings_of(self.node).pods if held.containers}
        return tuple([uid for uid in self.pods if uid in mine and uid not in listed])

    @property
    def unsettled(self) -> tuple[str, ...]:
        """The uids of pods that are bound, in no report yet, and hold something or were refused."""
        listed, held = self._listed(), {one.uid: bool(one.containers) for one in holdings_of(self.node).pods}
        return tuple([uid for uid in self.pods if uid not in listed and held.get(uid, True)])

    @property
    def is_uncertain(self) -> bool:
        """Whether a pod's end may come before or after the admission of another, so that its place is not known."""
        return bool(self._leaving) and bool(self.pending)

    def bind(self, bound: WatchedPod, now: float) -> None:
        """Count a pod that was bound to this node, or that changed since."""
        uid = bound.pod.uid
        is_new = uid not in self.pods
        self.pods[uid] = bound
        if is_new and uid not in {one.uid for one in self.node.pods}:
            _admit(self.node, bound.pod)
        if bound.is_leaving:
            self._leave(uid, now)

    def gone(self, uid: str, now: float) -> None:
        """Take a pod from the node that has ended, or was deleted, or was never bound after all.

        What it held stays taken until a report leaves it out, if a report has listed it.
        """
        if uid in self.pods and self.reports and uid in self._listed():
            self._leave(uid, now)
            return
        self.pods.pop(uid, None)
        if self._leaving:
            self._leaving.pop(uid, None)
        if any(one.uid == uid for one in self.node.pods):
            self.node.remove(uid)

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
        self._leaving = {uid: since for uid, since in (self._leaving or {}).items() if uid in self.pods}
        return True

    def expire(self, before: float) -> bool:
        """Free what pods hold that left before a moment, though no report says so; return whether there were any."""
        overdue = [uid for uid, since in (self._leaving or {}).items() if since < before]
        for uid in overdue:
            del self.pods[uid]
            self._leaving = {one: since for one, since in (self._leaving or {}).items() if one != uid}
            self._reported = Holdings([held for held in self._reported.pods if held.uid != uid])
            if any(one.uid == uid for one in self.node.pods):
                self.node.remove(uid)
        return bool(overdue)

    def _whole(self, holdings: Holdings, mine: Mapping[str, PodHolding]) -> Holdings:
        """Return a report without the pods that the kubelet was still giving to while it was read.

        Args:
            holdings: the report.
            mine: what pods hold here, by uid.
        """
        listed = self._listed()
        return Holdings(
            [held for held in holdings.pods if held.uid in listed or self._is_whole(held, mine.get(held.uid))]
        )

    def _is_whole(self, held: PodHolding, mine: PodHolding | None) -> bool:
        """Return whether each container holds something of every kind that it asks for.

        But for the memory of init containers: the memory manager gives it back when the next container starts.
        """
        bound = self.pods.get(held.uid)
        if held == mine or bound is None:  # of a pod that nobody knows, nobody knows what it asks for
            return True
        if mine is None or not mine.containers:
            # it was refused here, and would have a place on the empty node
            empty = self.template.copy()
            _admit(empty, bound.pod)
            mine = pod_holding(empty, bound.pod)
        passing = {one.name for one in bound.pod.init_containers if not one.is_sidecar}
        return _kinds(mine, without_memory=passing) <= _kinds(held)

    def _listed(self) -> set[str]:
        return {held.uid for held in self._reported.pods}

    def _leave(self, uid: str, now: float) -> None:
        if self._leaving is not None:
            self._leaving.setdefault(uid, now)

    def _rebuilt(self) -> Node:
        """Return the node as the report says, with the pods that were bound since."""
        known: dict[str, Pod] = {uid: one.pod for uid, one in self.pods.items()}
        node = restored_node(self.template, self._reported, known)
        there = {one.uid for one in node.pods}
        for uid, pod in known.items():
            if uid not in there:
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
    """Admit a pod that somebody bound; if the node refuses it, so will the kubelet, and it holds nothing."""
    with suppress(AlignupError):  # a pod's own policy can be one that nobody can read
        node.admit(pod)
