"""Carries out what users ask the agent for: the ledger decides, plugins agree, the journal is written, then they hear.

Connections are left to `server` beside this module. Each request is a task of its own, so that only
its sender waits for plugins and for others' leases; what needs neither is decided in one step.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from alignup.errors import AlignupError, AllocationError, InputError, system_reason
from alignup.host.device_plugins.answer import DeviceAnswer, join_answers
from alignup.host.leases import agent_messages as messages
from alignup.host.leases.evidence import check_release
from alignup.host.leases.lease_node import cut
from alignup.host.leases.record import DEFAULT_POLICY, LeaseRecord, Request, Waiter
from alignup.host.leases.request import LeaseRequest, Question, check_name, make_request
from alignup.host.processes.identity import Liveness, ProcessIdentity, ancestors
from alignup.host.processes.watch import ProcessWatch
from alignup.machine.device_inventory import Device, near_cpu_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from alignup.host.agent.journal import Journal
    from alignup.host.device_plugins.plugins import DevicePlugins
    from alignup.host.leases.ledger import Ledger
    from alignup.host.leases.local_machine import Site
    from alignup.host.processes.callers import Caller
    from alignup.host.processes.cgroups import Enclosures
    from alignup.machine.machine import Machine

_LOG: Final = logging.getLogger(__name__)
_OWN_FAILURE: Final = "the agent failed: see its log"
_NOBODY: Final = ProcessIdentity(0, 0, "", 0)
_THREADS: Final = 2
# Of one plugin, under way or waiting.
_MOST_CALLS: Final = 64
# Seconds between two reports that are taken over, at least.
_PAUSE: Final = 0.02
_T = TypeVar("_T")
_Held = TypeVar("_Held", "LeaseRecord", "Waiter")
# A request whose plugins are asked more often meets a machine that changes all the time.
_MOST_QUESTIONS: Final = 16


class Observer:
    """Is told about requests; this one does nothing with it."""

    def admitted(self, lease: LeaseRecord, seconds: float) -> None:
        """Record a request that got a lease, and how long it took from its arrival."""

    def refused(self, reason: str, seconds: float) -> None:
        """Record a request that got none."""

    def waited(self, seconds: float) -> None:
        """Record how long a request that was willing to wait had to."""


class PluginCalls:
    """What the service asks of device plugins; this one has none."""

    def has(self, resource: str) -> bool:  # noqa: ARG002
        """Return whether a plugin has the devices of a resource."""
        return False

    async def prefer(self, question: Question) -> Sequence[str]:  # noqa: ARG002
        """Return the ids that a plugin prefers; may raise AllocationError."""
        return ()

    async def allocate(self, devices: Mapping[str, Sequence[str]]) -> DeviceAnswer:
        """Let plugins allocate and prepare devices; may raise AllocationError."""
        raise NotImplementedError

    def feed(self, ledger: Ledger, changed: Callable[[], object]) -> None:
        """Let a ledger have the devices that there are, now and whenever they change; call a function afterwards."""


class Service:
    """The agent, without its sockets.

    Args:
        ledger: decides.
        journal: remembers.
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
        self._turns: dict[str, asyncio.Event] = {}
        # Those who wait keep their places, for when the agent is there again.
        self.is_closing = False
        self.watch = ProcessWatch(self.ended, ledger.leases.values())

    async def handle(self, request: messages.AnyRequest, caller: Caller) -> messages.Reply:
        """Carry out a request, and return the reply; cancelled if its user has gone away."""
        try:
            return await self._done(request, caller)
        except AllocationError as error:
            return messages.Refused(error.detail, error.reason)
        except AlignupError as error:
            return messages.Failed(str(error))
        except OSError as error:  # such as too many open files
            _LOG.error("a request of user %s failed: %s", caller.uid, error)
            return messages.Failed(f"the agent failed: {system_reason(error)}")
        except Exception:  # noqa: BLE001  # one request's failure is not to be the others'
            _LOG.exception("a request of user %s failed", caller.uid)
            return messages.Failed(_OWN_FAILURE)

    async def _done(self, request: messages.AnyRequest, caller: Caller) -> messages.Reply:
        if isinstance(request, messages.Ask):
            return await self._ask(request, caller)

        uid, users = caller.uid, self._ledger.users
        if isinstance(request, messages.GiveBack):
            lease = self._ledger.leases.get(request.id)
            if lease is None or not (users.is_admin(uid) or users.owner_of(lease) == uid):
                return messages.Done()
            return await self._end(lease)

        if isinstance(request, messages.Release):
            named = self._ledger.named(request.name, uid)
            return await self._end(check_release(named, request.name, force=request.force)[0])
        if isinstance(request, messages.List):
            return shown(self._ledger, uid, self.watch.state_of)

        found = cut(
            self._site,
            self._ledger.node.inventory,
            request.parts,
            request.cpus_per_part,
            request.devices,
        )
        return messages.Parts(tuple(map(messages.KnownPart.of, found)))

    def ended(self, lease_id: str) -> None:
        """Free a lease whose processes have ended."""
        lease = self._ledger.leases.get(lease_id)
        if lease is not None:
            _LOG.info(
                "lease %s has ended with its processes", lease.name, extra={"lease": lease.id}
            )
            self._free(lease)

    def changed(self) -> None:
        """Let those who wait look again: there may be more to have."""
        for lease_id in self._ledger.heads():
            turn = self._turns.get(lease_id)
            if turn is not None:
                turn.set()

    def drop_waiters(self) -> None:
        """Drop waiters that did not reconnect after a restart of the agent."""
        for waiter in self._ledger.waiting:
            if waiter.id not in self._turns:
                self._ledger.leave(waiter.id)
        self.changed()

    def adopt(self, lease: LeaseRecord, level: int, words: str) -> None:
        """Keep a lease that was given beside the agent, unless it is known; the words for the log say how that was."""
        if lease.id in self._ledger.leases:
            return
        _LOG.log(level, "lease %s %s", lease.name, words)
        try:
            self._ledger.restore([lease], are_new=True)
        except InputError as error:
            # there is no way to take it from its process
            _LOG.error("the lease was not taken over: %s", error)  # a sentence is enough
        else:
            self.watch.watch(lease)

    async def _ask(self, request: messages.Ask, caller: Caller) -> messages.Grant:
        """Return a lease, once it is in the journal.

        Raises:
            AllocationError: it cannot be had, or not in time.
            InputError: the request is invalid, or its holder cannot be told what it needs to know.
        """
        start, wait = time.perf_counter(), request.wait
        asked = self._checked(request, caller)
        try:
            granted = await self._waited_for(asked, wait)
        except AllocationError as error:
            self._observer.refused(error.reason, time.perf_counter() - start)
            waited = f" (waited for {wait:g} s)" if wait > 0 else ""
            raise AllocationError(f"{error.detail}{waited}", error.reason) from None

        seconds = time.perf_counter() - start
        with self._freed_on_error(granted.lease.id):
            if wait:
                self._observer.waited(seconds)
            self._observer.admitted(granted.lease, seconds)

        await self._journal.written()
        return granted

    def _encloses(self, asked: LeaseRequest) -> bool:
        """Return whether a request is for a command that is to have a cgroup.

        Not for a process that asks for itself: it may have several leases, and does other things
        beside them.
        """
        return asked.keeper is not None and self._enclosures.takes(in_container=asked.in_container)

    def _checked(self, request: messages.Ask, caller: Caller) -> LeaseRequest:
        """Return a request, checked.

        Raises:
            InputError: the request is invalid.
        """
        if len(request.id) != 16 or not (request.id.isascii() and request.id.isalnum()):  # noqa: PLR2004  # see Ask.id
            raise InputError.at("the request", "an id of 16 letters and digits", request.id)

        check_name(request.stem, "stem")
        holder = self.watch.checked(request.holder, caller)
        keeper = None if request.keeper is None else self.watch.checked(request.keeper, caller)
        asked = {name: getattr(request, name) for name in Request.__struct_fields__}
        wishes = make_request(**asked | {"policy": request.policy or DEFAULT_POLICY})
        own = str(self._ledger.node.node.config.version)
        if wishes.kubelet_version not in {"", own}:
            raise InputError.at(
                "--kubelet-version", f"{own}, as which the agent decides", request.kubelet_version
            )

        return LeaseRequest(
            wishes,
            holder,
            command=request.command[:100],
            name=request.stem[:80],
            keeper=keeper,
            id=request.id,
            uid=caller.uid,
            ancestors=ancestors(holder.pid) if request.wait else (),
            in_container=self.watch.is_elsewhere(request.holder, caller),
        )

    async def _waited_for(self, asked: LeaseRequest, wait: float) -> messages.Grant:
        """Return the lease when it can be had; below 0 seconds, wait as long as it takes.

        Raises:
            AllocationError: it cannot be had, or not in time.
            InputError: its holder cannot be told what it needs to know.
        """
        end = None if wait < 0 else time.monotonic() + wait
        is_queued = False
        try:
            while True:
                turn = self._turns[asked.id] = asyncio.Event()
                try:
                    return await self._lease_made(asked)
                except AllocationError as refusal:
                    left = None if end is None else end - time.monotonic()
                    if left is not None and left <= 0:
                        raise
                    self._ledger.join(asked)
                    is_queued = True
                    try:
                        await asyncio.wait_for(turn.wait(), left)
                    except TimeoutError:
                        raise refusal from None
        finally:
            self._turns.pop(asked.id, None)
            if not self.is_closing and (self._ledger.leave(asked.id) or is_queued):
                self.changed()

    async def _lease_made(self, asked: LeaseRequest) -> messages.Grant:
        """Return a lease that the plugins of its devices have agreed to, with its command in a cgroup if it gets one.

        Raises:
            AllocationError: there is none now, or a plugin failed.
            InputError: its holder cannot be told what it needs to know.
        """
        found = await self._set_aside(asked)
        ids = {
            resource: ids for resource, ids in found.devices.items() if self._plugins.has(resource)
        }
        cgroup = ""
        with self._freed_on_error(found.id):
            answer = await self._plugins.allocate(ids) if ids else None
            if self._encloses(asked) and not found.cgroup:
                cgroup = await self._enclosures.enclose(asked.id, asked.holder)
            if found.id not in self._ledger.leases:
                self._enclosures.discard(cgroup)
                raise AllocationError("the process exited before its lease was granted")

            lease = self._ledger.keep(found.id, answer, cgroup)
            _LOG.debug("lease %r has CPUs %s", lease.name, lease.cpus, extra={"lease": lease.id})
            self.watch.watch(lease)
            return self._site.grant(lease, self._ledger.node.inventory, self._state)

    async def _set_aside(self, asked: LeaseRequest) -> LeaseRecord:
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
                asked.advice[found] = tuple(await self._plugins.prefer(found))
            except AllocationError as error:
                asked.advice[found] = error.detail

        raise AllocationError("the device list kept changing")

    @contextmanager
    def _freed_on_error(self, lease_id: str) -> Iterator[None]:
        """Take a lease back, or what was set aside for one, if its holder will not be told of it."""
        try:
            yield
        except BaseException:
            lease = self._ledger.leases.get(lease_id)
            if lease is not None:
                self._free(lease)
            raise

    async def _end(self, lease: LeaseRecord) -> messages.Done:
        """Free a lease whose processes may run; return when that is in the journal."""
        self._free(lease)
        await self._journal.written()
        return messages.Done(lease)

    def _free(self, lease: LeaseRecord) -> None:
        self.watch.forget(lease.id)
        self._ledger.free(lease.id)
        self.changed()
        self._enclosures.discard(lease.cgroup)


def shown(ledger: Ledger, uid: int, state_of: Callable[[str], Liveness]) -> messages.Leases:
    """Return leases and queue as a user may see them: of other users, what they have and ask for, but not who they are.

    Args:
        ledger: the leases.
        uid: the user.
        state_of: says of an id whether a process of that lease runs.
    """

    def sees(one: LeaseRecord | Waiter) -> bool:
        return ledger.users.is_admin(uid) or ledger.users.owner_of(one) == uid

    def hidden(one: _Held, **more: str | None) -> _Held:
        name = f"(user {ledger.users.owner_of(one)})"
        return msgspec.structs.replace(one, id="", name=name, process=_NOBODY, command="", **more)

    leases = tuple(
        messages.KnownLease(lease, state_of(lease.id).value)
        if sees(lease)
        else messages.KnownLease(
            hidden(lease, keeper=None, answer=None, cgroup=""), Liveness.RUNNING.value
        )
        for lease in ledger.leases.values()
    )
    waiting = (one if sees(one) else hidden(one) for one in ledger.waiting)
    return messages.Leases(
        leases, tuple(msgspec.structs.replace(one, ancestors=()) for one in waiting)
    )


class PluginDevices(PluginCalls):
    """The device plugins of the agent: their devices for the ledger, and their answers for the service.

    Each plugin has threads of its own, so that one that hangs keeps nobody else waiting. Reports
    are taken over one at a time, the latest of each plugin, and with pauses four times as long as
    that took.

    Args:
        plugins: those that register.
        machine: the machine; a device near NUMA nodes without CPUs counts as near the closest ones
            with CPUs.
    """

    def __init__(self, plugins: DevicePlugins, machine: Machine) -> None:
        self._plugins = plugins
        self._machine = machine
        self._resources: set[str] = set()
        # By resource, the threads of its plugin, and how many more calls may wait for them.
        self._threads: dict[str, tuple[ThreadPoolExecutor, threading.Semaphore]] = {}
        # What is to be taken over, by resource.
        self._reports: dict[str, tuple[Device, ...]] = {}
        self._timer: asyncio.Handle | None = None

    def feed(self, ledger: Ledger, changed: Callable[[], object]) -> None:
        """See `PluginCalls`; called in the event loop of the ledger."""
        loop = asyncio.get_running_loop()

        def reported(resource: str, devices: tuple[Device, ...]) -> None:
            self._reports[resource] = devices
            if self._timer is None:
                self._timer = loop.call_soon(take_over)

        def take_over() -> None:
            self._timer = None
            if not self._reports:
                return

            start = loop.time()
            resource = next(iter(self._reports))
            try:
                self._resources.add(resource)
                placed = near_cpu_nodes(self._machine, {resource: self._reports.pop(resource)})[
                    resource
                ]
                ledger.update(
                    resource, placed, has_preferences=self._plugins.has_preferences(resource)
                )
                changed()
            except AlignupError as error:
                _LOG.warning("the devices of %s were not taken over: %s", resource, error)

            self._timer = loop.call_later(max(_PAUSE, 4 * (loop.time() - start)), take_over)

        self._plugins.listen(lambda *report: loop.call_soon_threadsafe(reported, *report))

    def has(self, resource: str) -> bool:
        """See `PluginCalls`."""
        return resource in self._resources

    async def prefer(self, question: Question) -> Sequence[str]:
        """See `PluginCalls`."""
        preference = self._plugins.preference(question.resource)
        asked = (question.available, question.must_include, question.size)
        return await self._called(question.resource, preference, *asked)

    async def allocate(self, devices: Mapping[str, Sequence[str]]) -> DeviceAnswer:
        """See `PluginCalls`; several plugins are asked one after the other."""
        asked = sorted(devices.items())
        answers = [
            await self._called(resource, self._plugins.allocate, {resource: ids})
            for resource, ids in asked
        ]
        for resource, ids in asked:
            await self._called(resource, self._plugins.pre_start, {resource: ids})
        return join_answers(answers)

    def close(self) -> None:
        """Begin no more calls."""
        for threads, _ in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)

    async def _called(self, resource: str, function: Callable[..., _T], *arguments: object) -> _T:
        """Return what a function returns: of one plugin, two at a time, and a bounded number behind them.

        Raises:
            AllocationError: too many calls wait already, or the function raises one.
        """
        if resource not in self._threads:
            self._threads[resource] = (
                ThreadPoolExecutor(_THREADS, "plugin"),
                threading.Semaphore(_MOST_CALLS),
            )

        threads, free = self._threads[resource]
        if not free.acquire(blocking=False):
            raise AllocationError(
                f"the device plugin of {resource} is busy: {_MOST_CALLS} calls wait for it"
            )

        calling = threads.submit(function, *arguments)
        calling.add_done_callback(lambda _: free.release())
        return await asyncio.wrap_future(calling)
