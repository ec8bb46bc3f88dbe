"""Carries out what users ask the agent for: the ledger decides, plugins agree, the journal is written, then they hear.

Connections are left to `alignup.agent.server`. A request that needs neither a plugin nor patience is decided at
once, within the call; any other is a task of its own, so that nobody waits for it but who sent it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from alignup.agent.asked import Asked, Question
from alignup.agent.shown import leases_shown, machine_shown
from alignup.errors import AlignupError, AllocationError, InputError
from alignup.leases.agent_messages import (
    Ask,
    Done,
    Failed,
    GiveBack,
    Granted,
    Leases,
    List,
    Refused,
    Release,
)
from alignup.leases.binding import memory_nodes
from alignup.leases.environment import cuda_variables
from alignup.leases.lease_liveness import lease_liveness
from alignup.leases.process import Liveness
from alignup.leases.request import PartOf, check_name, make_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from alignup.agent.callers import Caller
    from alignup.agent.enclosures import Enclosures
    from alignup.agent.journal import Journal
    from alignup.agent.ledger import Ledger
    from alignup.agent.observer import Observer
    from alignup.agent.process_watch import ProcessWatch
    from alignup.leases.agent_messages import Reply, Request
    from alignup.leases.device_answer import DeviceAnswer
    from alignup.leases.local_machine import Site
    from alignup.leases.record import LeaseRecord

__all__ = ["PluginCalls", "Service"]

_LOG: Final = logging.getLogger(__name__)
_OWN_FAILURE: Final = (
    "expected a request that the agent can carry out, got a failure of the agent: see its log"
)
_MOST_QUESTIONS: Final = 16
"""A request whose plugins are asked more often meets a machine that changes all the time."""


class PluginCalls:
    """What the service asks of device plugins; this one has none."""

    def has(self, resource: str) -> bool:  # noqa: ARG002
        """Return whether a plugin has the devices of a resource."""
        return False

    def prefer(self, question: Question) -> Sequence[str]:  # noqa: ARG002
        """Return the ids that a plugin prefers; called in a thread, and may raise AllocationError."""
        return ()

    def allocate(self, devices: Mapping[str, Sequence[str]]) -> DeviceAnswer:
        """Let plugins allocate and prepare devices; called in a thread, and may raise AllocationError."""
        raise NotImplementedError


class Service:
    """The agent, without its sockets.

    Args:
        ledger: decides.
        journal: remembers.
        watch: knows when processes end; its `ended` is to be `Service.ended`.
        site: the machine.
        state: the lease file that the agent has taken over.
        plugins: device plugins.
        observer: told what happens.
        enclosures: puts commands into cgroups.
    """

    def __init__(
        self,
        ledger: Ledger,
        journal: Journal,
        site: Site,
        state: Path,
        plugins: PluginCalls,
        observer: Observer,
        enclosures: Enclosures,
    ) -> None:
        self._ledger = ledger
        self._enclosures = enclosures
        self._journal = journal
        self._site = site
        self._state = state
        self._plugins = plugins
        self._observer = observer
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns: dict[str, asyncio.Event] = {}
        self._is_closing = False
        self.watch: ProcessWatch
        """Set before the first request."""

    def handle(
        self, request: Request, caller: Caller, reply: Callable[[Reply], None]
    ) -> Callable[[], object] | None:
        """Carry out a request; `reply` is called once, now or later, unless the returned function is called before.

        That function is for a user who has gone away.
        """
        uid = caller.uid
        try:
            if isinstance(request, Ask):
                return self._ask(request, caller, reply)
            if isinstance(request, GiveBack):
                self._give_back(request, uid, reply)
            elif isinstance(request, Release):
                self._release(request, uid, reply)
            elif isinstance(request, List):
                reply(Leases(leases_shown(self._ledger, uid, self.watch.state_of)))
            else:
                reply(machine_shown(request, self._ledger, self._site))
        except AllocationError as error:
            reply(Refused(error.detail, error.reason))
        except AlignupError as error:
            reply(Failed(str(error)))
        except Exception:  # noqa: BLE001  # one request's failure is not to be the others'
            _LOG.exception("a request of user %s failed", uid)
            reply(Failed(_OWN_FAILURE))
        return None

    def ended(self, lease_id: str) -> None:
        """Take back a lease whose processes have ended."""
        lease = self._ledger.free(lease_id)
        if lease is not None:
            _LOG.info("lease %s has ended with its processes", lease.name, extra={"lease": lease.id})
            self._freed(lambda: None)
            self._enclosures.discard(lease.cgroup)

    def changed(self) -> None:
        """Let those who wait look again: there may be more to have."""
        for lease_id in self._ledger.heads():
            turn = self._turns.get(lease_id)
            if turn is not None:
                turn.set()

    def drop_waiters(self) -> None:
        """Take those out of the line who have not come back after a restart of the agent."""
        for waiter in self._ledger.waiters():
            if waiter.id not in self._turns:
                self._ledger.leave(waiter.id)
        self._journal.append(self._ledger.take_entries(), self.changed)

    async def close(self) -> None:
        """Give up what is under way; those who wait keep their places, for when the agent is there again."""
        self._is_closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ask(
        self, request: Ask, caller: Caller, reply: Callable[[Reply], None]
    ) -> Callable[[], object] | None:
        start = time.perf_counter()
        asked = self._asked(request, caller)
        if not (
            self._enclosures.wants(asked) or any(self._plugins.has(resource) for resource in request.devices)
        ):
            try:
                lease = self._ledger.ask(asked)
            except AllocationError as refusal:
                if not request.wait:
                    self._observer.refused(refusal.reason, time.perf_counter() - start)
                    raise
            else:
                assert not isinstance(lease, Question)  # noqa: S101  # no plugin, no question
                with self._freed_on_error(lease.id):
                    self._tell(self._kept(lease.id), time.perf_counter() - start, reply)
                return None
        task = asyncio.get_running_loop().create_task(self._ask_patiently(asked, request.wait, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task.cancel

    def _asked(self, request: Ask, caller: Caller) -> Asked:
        """Return the request, checked.

        Raises:
            InputError: it cannot be.
        """
        if len(request.id) != 16 or not (request.id.isascii() and request.id.isalnum()):  # noqa: PLR2004  # see Ask.id
            raise InputError.at("the request", "an id of 16 letters and digits", request.id)
        check_name(request.stem, "stem")
        holder = self.watch.checked(request.holder, caller)
        keeper = None if request.keeper is None else self.watch.checked(request.keeper, caller)
        wishes = make_request(
            cpus=request.cpus,
            memory=request.memory,
            devices=request.devices,
            policy=request.policy,
            name=request.name,
            part=None if request.part is None else PartOf(*request.part),
            kubelet_version=request.kubelet_version or None,
        )
        own = self._ledger.node.node.config.version
        if wishes.kubelet_version not in {None, own}:
            raise InputError.at(
                "--kubelet-version", f"{own}, as which the agent decides", request.kubelet_version
            )
        return Asked(
            wishes,
            request.id,
            caller.uid,
            holder,
            request.command[:100],
            request.stem[:80],
            keeper,
            in_container=self.watch.is_elsewhere(request.holder, caller),
        )

    async def _ask_patiently(self, asked: Asked, wait: float, reply: Callable[[Reply], None]) -> None:
        """Ask for a lease with plugins to be asked too, for a command that gets a cgroup, or with patience."""
        start = time.monotonic()
        try:
            granted = await self._waited_for(asked, wait)
            with self._freed_on_error(granted.lease.id):
                if wait:
                    self._observer.waited(time.monotonic() - start)
                self._tell(granted, time.monotonic() - start, reply)
        except AllocationError as refusal:
            waited = f" (waited for {wait:g} s)" if wait > 0 else ""
            self._observer.refused(refusal.reason, time.monotonic() - start)
            reply(Refused(f"{refusal.detail}{waited}", refusal.reason))
        except AlignupError as error:
            reply(Failed(str(error)))
        except Exception:  # noqa: BLE001  # as above
            _LOG.exception("a request of user %s failed", asked.uid)
            reply(Failed(_OWN_FAILURE))
        finally:
            self._turns.pop(asked.lease_id, None)
            if not self._is_closing:
                self._ledger.leave(asked.lease_id)
                self._journal.append(self._ledger.take_entries(), self.changed)

    async def _waited_for(self, asked: Asked, wait: float) -> Granted:
        """Return the lease when it can be had.

        Raises:
            AllocationError: it cannot be had, or not in time.
            InputError: its holder cannot be told what it needs to know.
        """
        end = None if wait < 0 else time.monotonic() + wait
        while True:
            turn = self._turns[asked.lease_id] = asyncio.Event()
            try:
                return await self._lease_made(asked)
            except AllocationError as refusal:
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    raise
                self._ledger.join(asked)
                self._journal.append(self._ledger.take_entries(), lambda: None)
                try:
                    await asyncio.wait_for(turn.wait(), left)
                except TimeoutError:
                    raise refusal from None

    async def _lease_made(self, asked: Asked) -> Granted:
        """Return a lease that the plugins of its devices have agreed to, with its command in a cgroup if it gets one.

        Raises:
            AllocationError: there is none now, or a plugin failed.
            InputError: its holder cannot be told what it needs to know.
        """
        found = await self._set_aside(asked)
        ids = {resource: ids for resource, ids in found.devices.items() if self._plugins.has(resource)}
        encloses, cgroup = self._enclosures.wants(asked) and not found.cgroup, ""
        with self._freed_on_error(found.id):
            answer = await asyncio.to_thread(self._plugins.allocate, ids) if ids else None
            if encloses:
                cgroup = await self._enclosures.enclose(asked)
            try:
                return self._kept(found.id, answer, cgroup)
            except BaseException:
                self._enclosures.discard(cgroup)
                raise

    async def _set_aside(self, asked: Asked) -> LeaseRecord:
        """Return what a request gets once its plugins agree, after asking them which devices they prefer.

        Raises:
            AllocationError: there is nothing for it now, or a plugin failed.
        """
        asked.advice.clear()
        for _ in range(_MOST_QUESTIONS):
            found = self._ledger.ask(asked)
            if not isinstance(found, Question):
                return found
            try:
                asked.advice[found] = tuple(await asyncio.to_thread(self._plugins.prefer, found))
            except AllocationError as error:
                asked.advice[found] = error.detail
        raise AllocationError("expected devices that stay the same for a moment, got others at each look")

    def _kept(self, lease_id: str, answer: DeviceAnswer | None = None, cgroup: str = "") -> Granted:
        """Make a lease of what was set aside; return what its holder is to be told, once it is in the journal.

        Raises:
            AllocationError: it has been taken back meanwhile.
            InputError: its holder cannot be told what it needs to know.
        """
        found = self._ledger.leases.get(lease_id)
        if found is None:
            raise AllocationError(
                "expected a process that runs until it has its lease, got one that ended before"
            )
        machine, cuda = self._site.machine, {}
        if found.devices:
            cuda = cuda_variables(found.devices, self._ledger.node.inventory, machine)
        nodes = memory_nodes(found, machine)
        lease = self._ledger.keep(lease_id, answer, cgroup)
        self.watch.watch(lease)
        return Granted(lease, self._site.identity, str(self._state), nodes, self._site.is_here, cuda)

    def _tell(self, granted: Granted, seconds: float, reply: Callable[[Reply], None]) -> None:
        """Tell of a lease when it is in the journal; it took so many seconds."""
        self._observer.admitted(granted.lease, seconds)
        self._journal.append(self._ledger.take_entries(), lambda: reply(granted))

    @contextmanager
    def _freed_on_error(self, lease_id: str) -> Iterator[None]:
        """Take a lease back, or what was set aside for one, if its holder will not be told of it."""
        try:
            yield
        except BaseException:
            lease = self._ledger.leases.get(lease_id)
            if lease is not None:
                self._end(lease, lambda: None)
            raise

    def _give_back(self, request: GiveBack, uid: int, reply: Callable[[Reply], None]) -> None:
        lease = self._ledger.leases.get(request.id)
        if lease is not None and not (self._ledger.owner_of(lease) == uid or self._ledger.is_admin(uid)):
            lease = None
        if lease is None:
            reply(Done())
            return
        self._end(lease, lambda: reply(Done(lease)))

    def _release(self, request: Release, uid: int, reply: Callable[[Reply], None]) -> None:
        lease = self._ledger.named(request.name, uid)
        if lease is None:
            reply(Refused(f"expected the name of a lease, got {request.name!r}: see `alignup ps`"))
            return
        alive = lease_liveness(lease)
        if not request.force and alive is not Liveness.GONE:
            state = (
                "running"
                if alive is Liveness.RUNNING
                else "on another host or in another container, or cannot be looked at now"
            )
            holder = f"pid {lease.process.pid}, which is {state}"
            reply(Refused(f"lease {request.name!r} is held by {holder}; --force frees it"))
            return
        self._end(lease, lambda: reply(Done(lease)))

    def _end(self, lease: LeaseRecord, tell: Callable[[], None]) -> None:
        """Take a lease back whose processes may run."""
        self.watch.forget(lease.id)
        self._ledger.free(lease.id)
        self._freed(tell)
        self._enclosures.discard(lease.cgroup)

    def _freed(self, tell: Callable[[], None]) -> None:
        """Write down that something is free, and let others have it."""
        self._journal.append(self._ledger.take_entries(), tell)
        self.changed()
