"""Deletes pods that their nodes rejected and that a controller has replaced.

They would stay for ever. A controller that waits for the old pod to be gone would create the next
pod at once, to be rejected too: so deletions for each controller are spaced further and further
apart, and their number is limited.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from alignup.control_plane.api_server.api_client import (
    CONFLICT,
    MISSING,
    PODS,
    Api,
    ApiError,
    pod_path,
)
from alignup.control_plane.api_server.objects import PodObject, decode_pod
from alignup.control_plane.api_server.pod_events import write_event
from alignup.control_plane.api_server.watch import Follower
from alignup.control_plane.scheduler.ask import WHY_REJECTED, why_rejected
from alignup.records import Record

_LOG: Final = logging.getLogger(__name__)
FAILED_PODS: Final = {"fieldSelector": "status.phase=Failed"}
_QUIET: Final = 3600.0


class Rules(Record):
    """Which pods are deleted, and how fast.

    Attributes:
        first: seconds before the first deletion for a controller; each further one waits twice as
            long.
        longest: seconds that no deletion waits longer.
        limit: deletions for one controller within an hour; further pods stay.
    """

    reasons: frozenset[str] = frozenset({"TopologyAffinityError"})
    first: float = 10.0
    longest: float = 300.0
    limit: int = 20


class Reconciler:
    """Deletes failed pods as rules say.

    Args:
        api: the API server.
        rules: which pods, and how fast.
        say: called with each deletion, in one line.
        dry: delete nothing, and only say what would be.
        writes_events: write an Event on each pod before: the cause, and what would help.
    """

    def __init__(
        self,
        api: Api,
        rules: Rules,
        *,
        say: Callable[[str], None],
        dry: bool = False,
        writes_events: bool = True,
    ) -> None:
        self._api = api
        self._rules = rules
        self._say = say
        self._dry = dry
        self._writes_events = writes_events

        # By the uid of a controller, when pods are deleted.
        self._due: dict[str, list[float]] = {}
        # By uid, what deletes a failed pod; None: it stays.
        self._deletions: dict[str, asyncio.Task[None] | None] = {}
        self._follower = Follower(api, PODS, decode_pod, self, query=FAILED_PODS)

    def delay(self, owner: str, now: float) -> float | None:
        """Return the seconds to wait before a pod of a controller is deleted, and count it.

        None: the pod stays.

        Args:
            owner: the uid of the controller.
            now: seconds on any clock that never goes back.
        """
        of_hour = {
            uid: [moment for moment in due if moment > now - _QUIET]
            for uid, due in self._due.items()
        }
        self._due = {uid: due for uid, due in of_hour.items() if due}
        due = self._due.setdefault(owner, [])
        if len(due) >= self._rules.limit:
            return None

        # 2 ** 60 is longer than any pause, and a float holds it
        pause = min(self._rules.first * 2.0 ** min(len(due), 60), self._rules.longest)
        due.append(max([now, *due]) + pause)
        return due[-1] - now

    async def run(self) -> None:
        """Follow failed pods until cancelled."""
        try:
            await self._follower.run()
        finally:
            for uid in list(self._deletions):
                self._forget(uid)

    def listed(self, pods: list[PodObject]) -> None:
        """Take in all failed pods."""
        uids = {pod.metadata.uid for pod in pods}
        for uid in [uid for uid in self._deletions if uid not in uids]:
            self._forget(uid)

        for pod in pods:
            self.changed(pod)

    def changed(self, pod: PodObject) -> None:
        """Take in a failed pod: delete it some time, if a controller replaces it."""
        metadata = pod.metadata
        if metadata.uid in self._deletions or pod.status.reason not in self._rules.reasons:
            return

        controllers = [owner for owner in metadata.owner_references or () if owner.controller]
        if not controllers:
            return

        owner = controllers[0]

        delay = self.delay(owner.uid, time.monotonic())
        if delay is None:
            self._deletions[metadata.uid] = None
            reason = (
                f"{self._rules.limit} pods of {owner.kind} {owner.name} were deleted within an hour"
            )
            self._api.complain(f"pod {metadata.namespaced_name} stays: {reason}")
            return

        self._deletions[metadata.uid] = asyncio.create_task(self._delete(pod, delay))

    def gone(self, pod: PodObject) -> None:
        """Take in that a failed pod was deleted."""
        self._forget(pod.metadata.uid)

    def _forget(self, uid: str) -> None:
        task = self._deletions.pop(uid, None)
        if task is not None:
            task.cancel()

    async def _delete(self, pod: PodObject, delay: float) -> None:
        metadata = pod.metadata
        if self._writes_events:
            with self._api.complaining():
                message = await why_rejected(self._api, pod)
                await write_event(
                    self._api, metadata, WHY_REJECTED, message, "alignup-reconcile", once=True
                )

        _LOG.debug("pod %s is deleted in %.0f seconds", metadata.namespaced_name, delay)
        await asyncio.sleep(delay)
        verb = "would delete" if self._dry else "delete"
        self._say(f"{verb} {metadata.namespaced_name}: {pod.status.reason}")
        if self._dry:
            return

        body = {"preconditions": {"uid": metadata.uid}}
        try:
            await self._api.request("DELETE", pod_path(metadata.namespace, metadata.name), body)
        except ApiError as error:
            if error.status not in {MISSING, CONFLICT}:
                self._api.complain(str(error))
                self._deletions.pop(metadata.uid, None)  # the next list tries it again
