"""Lets one thread at a time use a Topology Manager, and refuses calls that would never end or change it half-way.

The manager and the node decide what is done under the lock.
"""

from __future__ import annotations

import os
from threading import RLock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["ManagerLock"]

_PATIENCE: Final = 1.0
"""Seconds in which other threads of a new process are done with their first look at the lock."""


class ManagerLock:
    """A lock that its thread can take again, and that knows whether a change is under way; a context manager.

    A process that is forked while another thread has the lock gets a copy that nobody will ever release, of a manager
    that is half changed. Taking it there is an error.
    """

    __slots__ = ("_is_changing", "_lock", "_pid")

    def __init__(self) -> None:
        self._lock = RLock()
        self._pid = os.getpid()
        self._is_changing = False

    def __enter__(self) -> None:
        if self._pid != os.getpid():
            self._look_after_fork()
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def begin_change(self) -> None:
        """Note that a change is under way; the lock must be held.

        Raises:
            RuntimeError: one is already, so that it is a provider that calls.
        """
        if self._is_changing:
            raise RuntimeError(
                "expected no call from within a provider, got one while a pod is admitted or removed"
            )
        self._is_changing = True

    def end_change(self) -> None:
        """Note that the change is over."""
        self._is_changing = False

    def _look_after_fork(self) -> None:
        if self._lock.acquire(timeout=_PATIENCE):
            self._pid = os.getpid()
            self._lock.release()
        elif self._pid != os.getpid():
            raise RuntimeError(
                "expected a manager that no other thread used when this process was forked, got one in mid-change"
            )
