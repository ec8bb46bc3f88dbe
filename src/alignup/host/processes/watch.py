"""Watches groups of processes, such as those of leases.

The kernel signals a descriptor of each when it ends. Where none of a group is left, its cgroup is
watched, if it has one: until that is empty too. A process is checked before it may be in a group:
it must run, be the one that is meant, and be the user's own.
"""

from __future__ import annotations

import asyncio
import os
import resource
import select
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from alignup.errors import InputError
from alignup.host.processes.identity import (
    EVENTS,
    Liveness,
    ProcessIdentity,
    identify,
    joint_liveness,
    runs_here,
    shows_processes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from alignup.host.processes.callers import Caller

# Seconds between looks at what cannot be watched: processes that have no descriptor, as with a
# kernel before 5.3, of another container or where a quarter of the descriptors is in use, and
# cgroups that cannot be read now.
_LOOK: Final = 5.0


class Group(Protocol):
    """Processes that are watched together, such as those of a lease."""

    @property
    def id(self) -> str:
        """Unique among the groups that are watched."""

    @property
    def processes(self) -> tuple[ProcessIdentity, ...]:
        """The processes; those that end last stand last."""

    @property
    def cgroup(self) -> str:
        """The folder of the cgroup of all that they start; empty: there is none."""


class ProcessWatch:
    """Tells of leases whose processes have all ended, and whose cgroups are empty.

    Args:
        ended: called with the id of such a lease, once, from the event loop.
        leases: those to watch from the beginning.
    """

    def __init__(self, ended: Callable[[str], None], leases: Iterable[Group] = ()) -> None:
        self._ended = ended
        self._me = identify(os.getpid())
        self._loop = asyncio.get_running_loop()

        # That of a process is readable once the process has ended. The file of a cgroup is readable
        # all the time; its event is an urgent one (EPOLLPRI), which the loop itself does not know.
        self._events = select.epoll()
        self._loop.add_reader(self._events.fileno(), self._take_events)
        self._descriptors: dict[str, int] = {}
        self._most_descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4
        self._watched: dict[int, Group] = {}

        # Those that cannot be watched, with what was seen of them last.
        self._looked_at: dict[str, tuple[Group, Liveness]] = {}
        self._timer: asyncio.TimerHandle | None = None
        # The leases that are about to be told of.
        self._gone: dict[str, asyncio.Handle] = {}

        for lease in leases:
            self.watch(lease)

    def __len__(self) -> int:
        return len(self._descriptors) + len(self._looked_at)

    def is_foreign(self, process: ProcessIdentity) -> bool:
        """Return whether a process is of another PID namespace, or of another host.

        Then it has its number there.
        """
        is_of_this_host = process.boot_id == self._me.boot_id
        return process.pid_namespace != self._me.pid_namespace or not is_of_this_host

    def is_elsewhere(self, process: ProcessIdentity, caller: Caller) -> bool:
        """Return whether a caller calls a process by a number of another PID namespace, or host."""
        return self.is_foreign(process) or caller.is_elsewhere()

    def checked(self, process: ProcessIdentity, caller: Caller) -> ProcessIdentity:
        """Return a process that may hold a lease of a user, by its number here.

        It is as this process sees it: nothing else of what the caller says of it is kept.

        Raises:
            InputError: it does not run, is another user's, or is one that the agent cannot see.
        """
        uid = caller.uid
        if self.is_elsewhere(process, caller):
            own_process = caller.own_process(process.pid)
            if own_process is None:
                raise InputError(
                    "expected a process of the agent's own PID namespace, or from one below it "
                    "the process that asks, "
                    f"or one that this has started, got pid {process.pid} of another container or "
                    "host"
                )

            process = own_process

        if not runs_here(process):
            raise InputError(f"process {process.pid} has ended")

        try:
            owner = os.stat(f"/proc/{process.pid}").st_uid  # noqa: PTH116  # many times a second
        except FileNotFoundError:
            owner = uid  # it has just ended, and so will its lease

        if uid not in {0, owner}:
            raise InputError(f"process {process.pid} belongs to user {owner}, not to user {uid}")

        # it runs, and began when it was said to: all else is as for every process of this namespace
        return msgspec.structs.replace(self._me, pid=process.pid, start_time=process.start_time)

    def state_of(self, lease_id: str) -> Liveness:
        """Return whether a process of a lease still runs, as far as is known already.

        Nothing is looked at for it.
        """
        if lease_id in self._gone:
            return Liveness.GONE
        if lease_id in self._looked_at:
            _, state = self._looked_at[lease_id]
            return state

        # one that is not watched yet is just being made
        return Liveness.RUNNING

    def watch(self, lease: Group) -> None:
        """Watch the processes of a lease from now on.

        A lease that is watched already is looked at anew.
        """
        self.forget(lease.id)
        for process in reversed(lease.processes):  # the keeper outlives the command
            if self.is_foreign(process) or len(self._descriptors) >= self._most_descriptors:
                continue
            with suppress(OSError):
                descriptor = os.pidfd_open(process.pid)
                if self._follow(lease, descriptor, select.EPOLLIN, partial(runs_here, process)):
                    return

        state = joint_liveness(lease.processes)
        if state is Liveness.GONE:
            with suppress(OSError):  # whether its cgroup is empty cannot be known now
                if not self._follow_cgroup(lease):
                    self._gone[lease.id] = self._loop.call_soon(self._tell, lease.id)
                return

            state = Liveness.UNKNOWN

        self._looked_at[lease.id] = lease, state
        if self._timer is None:
            self._timer = self._loop.call_later(_LOOK, self._look_at_all)

    def forget(self, lease_id: str) -> None:
        """Watch a lease no longer, and do not tell of it any more."""
        self._looked_at.pop(lease_id, None)
        telling = self._gone.pop(lease_id, None)
        if telling is not None:
            telling.cancel()

        descriptor = self._descriptors.pop(lease_id, None)
        if descriptor is not None:
            del self._watched[descriptor]
            self._events.unregister(descriptor)
            os.close(descriptor)

    def close(self) -> None:
        """Watch nothing any more."""
        self._loop.remove_reader(self._events.fileno())
        for lease_id in [*self._descriptors, *self._looked_at, *self._gone]:
            self.forget(lease_id)

        self._events.close()
        if self._timer is not None:
            self._timer.cancel()

    def _follow_cgroup(self, lease: Group) -> bool:
        """Watch the cgroup of a lease whose known processes have ended.

        The keeper may have been killed, and what the command left behind may live on. Return False
        if the cgroup is empty, or there is none.

        Raises:
            OSError: whether it is empty cannot be known now.
        """
        if not lease.cgroup:
            return False

        try:
            events = os.open(f"{lease.cgroup}/{EVENTS}", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False

        return self._follow(lease, events, select.EPOLLPRI, partial(shows_processes, events))

    def _follow(self, lease: Group, descriptor: int, event: int, lasts: Callable[[], bool]) -> bool:
        """Watch a lease by a descriptor.

        If what that stands for does not last, close it, and return False.
        """
        try:
            self._events.register(descriptor, event)
            # looked at only now: what happens from now on is told, and no process can get the
            # number of another
            if lasts():
                self._descriptors[lease.id] = descriptor
                self._watched[descriptor] = lease
        finally:
            is_followed = descriptor in self._watched
            if not is_followed:
                os.close(descriptor)

        return is_followed

    def _take_events(self) -> None:
        """Go on with the next process of a lease.

        One of its processes has ended, or its cgroup may be empty.
        """
        for descriptor, event in self._events.poll(0):
            lease = self._watched.get(descriptor)
            if lease is None:
                continue

            if event & select.EPOLLPRI:
                # reading it is what makes the kernel tell of the next change
                with suppress(OSError):
                    if shows_processes(descriptor):
                        continue

            self.watch(lease)

    def _tell(self, lease_id: str) -> None:
        del self._gone[lease_id]
        self._ended(lease_id)

    def _look_at_all(self) -> None:
        self._timer = None
        leases, self._looked_at = self._looked_at, {}
        for lease, _ in leases.values():
            self.watch(lease)
