"""Deletes pods that their nodes rejected and that a controller has replaced, which would stay for ever.

A controller that waits for the old pod to be gone would create the next pod at once, to be rejected
too: so deletions for each controller are spaced further and further apart, and their number is
limited.
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
    write_event,
)
from alignup.control_plane.api_server.objects import PodObject, decode_pod
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
        clock: seconds that never go back.
        writes_events: write an Event on each pod before: the cause, and what would help.
    """

    def __init__(
        self,
        api: Api,
        rules: Rules,
        *,
        say: Callable[[str], None],
        dry: bool = False,
        clock: Callable[[], float] = time.monotonic,
        writes_events: bool = True,
    ) -> None:
        self._writes_events = writes_events
        self._api, self._rules, self._say, self._dry = api, rules, say, dry
        self._clock = clock
        # By the uid of a controller, when pods are deleted.
        self._due: dict[str, list[float]] = {}
        self._known: dict[str, asyncio.Task[None] | None] = {}
        self._follower = Follower(api, PODS, decode_pod, self, query=FAILED_PODS)

    def delay(self, owner: str, now: float) -> float | None:
        """Return the seconds to wait before a pod of a controller is deleted, and count it; None: it stays.

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
        due.append(
            max([now, *due])
            + min(self._rules.first * 2.0 ** min(len(due), 60), self._rules.longest)
        )
        return due[-1] - now

    async def run(self) -> None:
        """Follow failed pods until cancelled."""
        try:
            await self._follower.run()
        finally:
            for uid in list(self._known):
                self._forget(uid)

    def listed(self, found: list[PodObject]) -> None:
        """Take in all failed pods."""
        there = {one.metadata.uid for one in found}
        for uid in [uid for uid in self._known if uid not in there]:
            self._forget(uid)
        for one in found:
            self.changed(one)

    def changed(self, found: PodObject) -> None:
        """Take in a failed pod: delete it some time, if a controller replaces it."""
        metadata = found.metadata
        if metadata.uid in self._known or found.status.reason not in self._rules.reasons:
            return

        owner = next((one for one in metadata.owner_references or () if one.controller), None)
        if owner is None:
            return

        delay = self.delay(owner.uid, self._clock())
        if delay is None:
            self._known[metadata.uid] = None
            deleted = (
                f"{self._rules.limit} pods of {owner.kind} {owner.name} were deleted within an hour"
            )
            self._api.complain(f"pod {metadata.namespaced_name} stays: {deleted}")
            return

        self._known[metadata.uid] = asyncio.create_task(self._delete(found, delay))

    def gone(self, found: PodObject) -> None:
        """Take in that a failed pod was deleted."""
        self._forget(found.metadata.uid)

    def _forget(self, uid: str) -> None:
        task = self._known.pop(uid, None)
        if task is not None:
            task.cancel()

    async def _delete(self, found: PodObject, delay: float) -> None:
        metadata = found.metadata
        if self._writes_events:
            with self._api.complaining():
                message = await why_rejected(self._api, found)
                await write_event(
                    self._api, metadata, WHY_REJECTED, message, "alignup-reconcile", once=True
                )

        _LOG.debug("pod %s is deleted in %.0f seconds", metadata.namespaced_name, delay)
        await asyncio.sleep(delay)
        self._say(
            f"{'would delete' if self._dry else 'delete'} {metadata.namespaced_name}: "
            f"{found.status.reason}"
        )
        if self._dry:
            return

        body = {"preconditions": {"uid": metadata.uid}}
        try:
            await self._api.request("DELETE", pod_path(metadata.namespace, metadata.name), body)
        except ApiError as error:
            if error.status not in {MISSING, CONFLICT}:
                self._api.complain(str(error))
                self._known.pop(metadata.uid, None)  # the next list tries it again
