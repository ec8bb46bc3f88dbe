"""Keeps what another leader sends from counting, and tells where another one leads.

**A late patch of a leader that was stopped** would let a pod go to a node that a later leader has
given to another one. So every patch names the version of its object that was read, and a new leader
first writes an annotation into each object that such a patch could change: what was sent before is
then refused by the server, however late it comes.

The annotation also tells a process whose clock stood still that another one has begun to lead.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from alignup.control_plane.api_server import api_client
from alignup.control_plane.api_server.watch import Backoff
from alignup.control_plane.gates.waiting_pods import SEEN_BY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from alignup.control_plane.api_server.leader import Leader
    from alignup.control_plane.gates.patches import Patches

_LOG: Final = logging.getLogger(__name__)

# Answers that can be about one object, and the same for good: what it says is refused, or somebody
# who is asked about it does not answer the server.
_OF_OBJECTS: Final = frozenset({400, 409, 413, 422, 500})

# What no leader is called is not asked about, and of other names so many are remembered.
_LONGEST_LEADER: Final = 512
_MOST_LEADERS: Final = 1_000


class Fence:
    """What one leader writes into objects, and what it reads there of others.

    Args:
        api: the API server.
        leader: of this process.
        patches: send what is written.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        api: api_client.Api,
        leader: Leader,
        patches: Patches,
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._leader = leader
        self._patches = patches
        self._clock = clock
        # What earlier leaders have written into objects, as it was when this term began.
        self._earlier: set[str] = set()
        # What another process has written so since: it leads, if the lease says so.
        self._doubts: set[str] = set()

    def seen(self, seen_by: str) -> None:
        """Doubt that this process leads where another one has written into an object in its term.

        The clock of a machine that is paused stands still, so that the process goes on as if it
        led, with pods and nodes as the next leader has left them.

        Args:
            seen_by: the annotation of a pod, or a node; empty: there is none.
        """
        if not seen_by:
            return
        is_own = seen_by.startswith(f"{self._leader.identity}/")
        is_leader = not is_own and len(seen_by) <= _LONGEST_LEADER
        if is_leader and seen_by not in self._earlier:
            self._doubts.add(seen_by)

    def begin(self, seen_by: Iterable[str]) -> None:
        """Take what stands in objects when a term begins to be from earlier leaders."""
        self._earlier = set(seen_by)

    async def confirm(self) -> None:
        """Let the lease say whether this process leads, where that is in doubt.

        What it clears up is not asked again.
        """
        if not self._doubts:
            return

        doubts, self._doubts = self._doubts, set()
        await self._leader.confirm()
        if self._leader.leads and len(self._earlier) + len(doubts) <= _MOST_LEADERS:
            self._earlier |= doubts

    async def write_into(self, kind: str, objects: Mapping[str, Iterable[str]]) -> None:
        """Write into objects, so that a patch which names an older version is refused.

        One into which the server lets nobody write stops no other: a patch of an earlier leader
        would be one more.

        Args:
            kind: what they are, in words.
            objects: by their paths, the annotations that each is to have no more.

        Raises:
            ApiError: the server takes it from this process for none of them, or this one leads no
                more.
        """
        term = self._leader.term
        said: set[int] = set()
        answers = await asyncio.gather(
            *(self._touch(path, removed, term, said) for path, removed in objects.items())
        )
        if not self._leads_in(term):
            raise api_client.ApiError("this process did not lead for long enough to begin")

        refusals = [answer for answer in answers if answer is not None]
        _LOG.info(
            "%d %s were written into, as a new leader does", len(answers) - len(refusals), kind
        )
        if not refusals:
            return

        if len(refusals) == len(answers) and any(
            error.status not in _OF_OBJECTS for error in refusals
        ):
            raise refusals[0]
        self._api.complain(
            f"{len(refusals)} of {len(answers)} {kind} cannot be written into: {refusals[0]}"
        )

    async def _touch(
        self, path: str, removed: Iterable[str], term: int, said: set[int]
    ) -> api_client.ApiError | None:
        """Write into an object, until the server takes or refuses it.

        Return the refusal; None: it was taken, or this process leads no more.

        Args:
            path: that of the object.
            removed: the annotations that it is to have no more.
            term: in which it is written.
            said: the statuses of passing errors that were complained of.
        """
        annotations = {**dict.fromkeys(removed), SEEN_BY: f"{self._leader.identity}/{term}"}
        until = float("inf")
        backoff = Backoff(self._api.pauses)
        while self._leads_in(term):
            try:
                async with self._patches.turns:
                    # from its first turn on: of many objects some wait long for theirs
                    until = min(until, self._clock() + self._leader.terms.lease)
                    with api_client.accepting(api_client.MISSING):
                        await self._patches.send_once(
                            path, {"metadata": {"annotations": annotations}}
                        )
            except api_client.ApiError as error:
                is_late = self._clock() >= until and error.status in _OF_OBJECTS
                if is_late or not error.is_passing:
                    return error
                if error.status not in said:
                    said.add(error.status)
                    self._api.complain(str(error))
                await backoff.pause()
            else:
                break

        return None

    def _leads_in(self, term: int) -> bool:
        return self._leader.leads and self._leader.term == term
