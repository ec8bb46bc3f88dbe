"""Puts the commands of leases into cgroups beside the event loop, and removes these once they are empty.

Moving a process into a cgroup may take the kernel many milliseconds, for which no other request is to wait. A lease
whose command cannot be put into one ends with its processes, as if there were no cgroups.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from alignup.agent.cgroup_watch import CgroupWatch
from alignup.agent.cgroups import remove_cgroup
from alignup.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future

    from alignup.agent.asked import Asked
    from alignup.agent.cgroups import Cgroups

__all__ = ["Enclosures"]

_LOG: Final = logging.getLogger(__name__)
_TRIES: Final = 3


class Enclosures:
    """The cgroups of leases, as the agent has them; to be made and used within an event loop.

    Args:
        cgroups: makes them; None: there are none, but those of an earlier agent are removed.
    """

    def __init__(self, cgroups: Cgroups | None) -> None:
        self._cgroups = cgroups
        self._loop = asyncio.get_running_loop()
        self._watch = CgroupWatch()
        # one thread: what is done to one cgroup is done in order
        self._thread = ThreadPoolExecutor(1, "cgroups")
        self._is_closed = False

    def wants(self, asked: Asked) -> bool:
        """Return whether what is asked for is for a command that is to have a cgroup.

        Not for a process that asks for itself: it may have several leases, and does other things beside them. Nor for
        one of a container, if that were to let it out.
        """
        cgroups = self._cgroups
        if cgroups is None or asked.keeper is None:
            return False
        return cgroups.base is None or not asked.in_container

    async def enclose(self, asked: Asked) -> str:
        """Return the cgroup that the command is in from now on; empty if it cannot be put into one."""
        assert self._cgroups is not None  # noqa: S101  # it is wanted
        making = self._thread.submit(self._cgroups.enclose, asked.lease_id, asked.holder, self.discard)
        try:
            return await asyncio.shield(asyncio.wrap_future(making))
        except OSError as error:
            why = (error.strerror or "it has ended").lower()
        except InputError as error:
            why = str(error)
        except asyncio.CancelledError:
            making.add_done_callback(self._unwanted)
            raise
        _LOG.warning("the command of pid %d has no cgroup: %s", asked.holder.pid, why)
        return ""

    def discard(self, cgroup: str, tries: int = _TRIES) -> None:
        """Remove a cgroup, once there are no processes in it any more; nothing if the text is empty.

        From any thread. When this is closed already, it stays.
        """
        if not cgroup:
            return
        with suppress(RuntimeError):  # closed
            removing = self._thread.submit(remove_cgroup, cgroup)
            removing.add_done_callback(lambda future: self._removed(future, cgroup, tries))

    def sweep(self, known: frozenset[str], left: Iterable[str] = ()) -> None:
        """Remove the cgroups of leases that are not known: an agent made them, and was killed.

        Args:
            known: those of leases that last.
            left: those of leases that ended while there was no agent.
        """
        strays = () if self._cgroups is None else self._cgroups.strays(known)
        for cgroup in {*strays, *left} - known:
            self.discard(cgroup)

    def close(self) -> None:
        """Do what has been begun, and no more."""
        self._is_closed = True
        self._thread.shutdown()
        self._watch.close()

    def _unwanted(self, made: Future[str]) -> None:
        """Remove a cgroup that was about to be made when nobody wanted it any more."""
        if made.exception() is None:
            self.discard(made.result())

    def _removed(self, future: Future[bool], cgroup: str, tries: int) -> None:
        """Go on in the event loop, if it is still there and there is more to do; called in the thread."""
        if not future.result() and not self._loop.is_closed():
            with suppress(RuntimeError):  # it has been closed since
                self._loop.call_soon_threadsafe(self._remove_when_empty, cgroup, tries)

    def _remove_when_empty(self, cgroup: str, tries: int) -> None:
        """Remove a cgroup when it is empty."""
        if self._is_closed:
            return
        with suppress(OSError):  # whether it is empty cannot be known now
            if self._watch.watch(cgroup, lambda: self.discard(cgroup)):
                return
        if tries > 1:
            self.discard(cgroup, tries - 1)
        else:
            _LOG.warning("an empty cgroup cannot be removed: %s", cgroup)
