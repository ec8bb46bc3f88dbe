"""Tells when cgroups are empty, by the event that the kernel gives their files, within an event loop.

Which cgroups there are, and what their end means, is left to others.
"""

from __future__ import annotations

import asyncio
import os
import select
from contextlib import suppress
from typing import TYPE_CHECKING

from alignup.leases.lease_liveness import EVENTS, shows_processes

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CgroupWatch"]


class CgroupWatch:
    """Cgroups that are waited for until they are empty; to be made and used within an event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # such a file is always readable, which the loop would take for news: its event is an urgent one (EPOLLPRI)
        self._events = select.epoll()
        self._watched: dict[int, tuple[str, Callable[[], None]]] = {}
        self._descriptors: dict[str, int] = {}
        self._loop.add_reader(self._events.fileno(), self._look)

    def __len__(self) -> int:
        return len(self._watched)

    def watch(self, cgroup: str, look: Callable[[], None]) -> bool:
        """Call a function once a cgroup is empty or removed; return False, and do not call it, if it is so already.

        It is called too if the cgroup cannot be watched any more, and is to look again. A cgroup that is watched
        already is watched for this function only from now on.

        Raises:
            OSError: whether it is empty cannot be known now.
        """
        self.forget(cgroup)
        try:
            descriptor = os.open(f"{cgroup}/{EVENTS}", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            self._events.register(descriptor, select.EPOLLPRI)
            # read after that: what happens from now on is told
            is_populated = shows_processes(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        if not is_populated:
            os.close(descriptor)
            return False
        self._watched[descriptor] = cgroup, look
        self._descriptors[cgroup] = descriptor
        return True

    def forget(self, cgroup: str) -> None:
        """Watch a cgroup no longer, if it is watched."""
        descriptor = self._descriptors.pop(cgroup, None)
        if descriptor is not None:
            del self._watched[descriptor]
            self._events.unregister(descriptor)
            os.close(descriptor)

    def close(self) -> None:
        """Watch nothing any more."""
        self._loop.remove_reader(self._events.fileno())
        for cgroup in list(self._descriptors):
            self.forget(cgroup)
        self._events.close()

    def _look(self) -> None:
        for descriptor, _ in self._events.poll(0):
            watched = self._watched.get(descriptor)
            if watched is None:
                continue
            # reading it is what makes the kernel tell of the next change
            with suppress(OSError):
                if shows_processes(descriptor):
                    continue
            cgroup, look = watched
            self.forget(cgroup)
            look()
