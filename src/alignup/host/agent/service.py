"""Carries out what users ask the agent for.

The ledger decides, plugins agree, the journal is written, then users hear. Connections are left to
`server` beside this module. Each request is a task of its own, so that only its sender waits for
plugins and for others' leases; what needs neither is decided in one step.
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
from alignup.host.leases.lease_node import cut, hidden_ids
from alignup.host.leases.record import DEFAULT_POLICY, LeaseRecord, Request, Seen, Waiter
from alignup.host.leases.request import LeaseRequest, Question, check_name, make_request
from alignup.host.processes.identity import Liveness, ProcessIdentity, ancestors
from alignup.host.processes.watch import ProcessWatch
from alignup.machine.device_inventory import Device, near_cpu_nodes
from alignup.records import replace

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
# A request whose plugins are asked more often meets a machine that changes all the time.
_MOST_QUESTIONS: Final = 16
# Of the devices of a resource that a process sees: more would take long to look for.
_MOST_NAMES: Final = 512
# See `Ask.id`.
_ID_LENGTH: Final = 16
_T = TypeVar("_T")
_Record = TypeVar("_Record", "LeaseRecord", "Waiter")


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
        """Let a ledger have the devices that there are, now and whenever they change.

        The function is called afterwards.
        """


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

        ledger = self._ledger
        uid = caller.uid
        if isinstance(request, messages.GiveBack):
            lease = ledger.leases.get(request.id)
            users = ledger.users
            if lease is None or not (users.is_admin(uid) or users.owner_of(lease) == uid):
                return messages.Done()
            return await self._end(lease)

        if isinstance(request, messages.Release):
            named = ledger.named(request.name, uid)
            lease, _ = check_release(named, request.name, force=request.force)
            return await self._end(lease)

        if isinstance(request, messages.List):
            return shown(ledger, uid, self.watch.state_of)

        _check_names(request.seen)
        parts = cut(
            replace(self._site, seen=request.seen),
            ledger.node.inventory,
            request.parts,
            request.cpus_per_part,
            request.devices,
        )
        return messages.Parts(tuple(map(messages.KnownPart.of, parts)))

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

    def end_grace(self) -> None:
        """Drop waiters that did not reconnect after a restart of the agent.

        Nobody keeps a place any more because of a device plugin that did not register again.
        """
        self._ledger.await_plugins(awaits=False)
        for waiter in self._ledger.waiting:
            if waiter.id not in self._turns:
                self._ledger.leave(waiter.id)

        self.changed()

    def adopt(self, lease: LeaseRecord, level: int, origin: str) -> None:
        """Keep a lease that was given beside the agent, unless it is known.

        Args:
            lease: the lease.
            level: how grave that is, as `logging` says it.
            origin: words for the log: how the lease came to be.
        """
        if lease.id in self._ledger.leases:
            return

        _LOG.log(level, "lease %s %s", lease.name, origin)
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
            AllocationError: as `_waited_for`.
            InputError: the request is invalid, or as there.
        """
        start = time.perf_counter()
        wait = request.wait
        lease_request = self._checked(request, caller)
        try:
            grant = await self._waited_for(lease_request, wait)
        except AllocationError as error:
            self._observer.refused(error.reason, time.perf_counter() - start)
            waited = f" (waited for {wait:g} s)" if wait > 0 else ""
            raise AllocationError(f"{error.detail}{waited}", error.reason) from None

        seconds = time.perf_counter() - start
        with self._freed_on_error(grant.lease.id):
            if wait:
                self._observer.waited(seconds)
            self._observer.admitted(grant.lease, seconds)

        await self._journal.written()
        return grant

    def _encloses(self, request: LeaseRequest) -> bool:
        """Return whether a request is for a command that is to have a cgroup.

        Not for a process that asks for itself: it may have several leases, and does other things
        beside them.
        """
        return request.keeper is not None and self._enclosures.takes(
            in_container=request.in_container
        )

    def _checked(self, request: messages.Ask, caller: Caller) -> LeaseRequest:
        """Return a request, checked.

        Raises:
            InputError: the request is invalid.
        """
        is_plain = request.id.isascii() and request.id.isalnum()
        if len(request.id) != _ID_LENGTH or not is_plain:
            raise InputError.at(
                "the request", f"an id of {_ID_LENGTH} letters and digits", request.id
            )

        check_name(request.stem, "stem")
        _check_names(request.seen)
        holder = self.watch.checked(request.holder, caller)
        keeper = None
        if request.keeper is not None:
            keeper = self.watch.checked(request.keeper, caller)

        fields = {name: getattr(request, name) for name in Request.__struct_fields__}
        demand = make_request(**fields | {"policy": request.policy or DEFAULT_POLICY})
        version = str(self._ledger.node.node.config.version)
        if demand.kubelet_version not in {"", version}:
            raise InputError.at(
                "--kubelet-version",
                f"{version}, as which the agent decides",
                request.kubelet_version,
            )

        return LeaseRequest(
            demand,
            holder,
            command=request.command[:100],
            name=request.stem[:80],
            keeper=keeper,
            id=request.id,
            uid=caller.uid,
            ancestors=ancestors(holder.pid) if request.wait else (),
            in_container=self.watch.is_elsewhere(request.holder, caller),
        )

    async def _waited_for(self, request: LeaseRequest, wait: float) -> messages.Grant:
        """Return the lease when it can be had; below 0 seconds, wait as long as it takes.

        Raises:
            AllocationError: it cannot be had, or not in time.
            InputError: as `_lease_made`.
        """
        end = None if wait < 0 else time.monotonic() + wait
        is_queued = False
        try:
            while True:
                turn = self._turns[request.id] = asyncio.Event()
                try:
                    return await self._lease_made(request)
                except AllocationError as refusal:
                    remaining = None if end is None else end - time.monotonic()
                    if remaining is not None and remaining <= 0:
                        raise

                    self._ledger.join(request)
                    is_queued = True
                    try:
                        await asyncio.wait_for(turn.wait(), remaining)
                    except TimeoutError:
                        raise refusal from None

        finally:
            self._turns.pop(request.id, None)
            if not self.is_closing and (self._ledger.leave(request.id) or is_queued):
                self.changed()

    async def _lease_made(self, request: LeaseRequest) -> messages.Grant:
        """Return a lease that the plugins of its devices have agreed to.

        Its command is in a cgroup then if it gets one.

        Raises:
            AllocationError: there is none now, or a plugin failed.
            InputError: its holder cannot be told what it needs to know.
        """
        reserved = await self._set_aside(request)
        ids_of_plugins = {
            resource: ids
            for resource, ids in reserved.devices.items()
            if self._plugins.has(resource)
        }
        answer: DeviceAnswer | None = None
        cgroup = ""
        with self._freed_on_error(reserved.id):
            if ids_of_plugins:
                answer = await self._plugins.allocate(ids_of_plugins)
            if self._encloses(request) and not reserved.cgroup:
                cgroup = await self._enclosures.enclose(request.id, request.holder)
            if reserved.id not in self._ledger.leases:
                self._enclosures.discard(cgroup)
                raise AllocationError("the process exited before its lease was granted")

            lease = self._ledger.keep(reserved.id, answer, cgroup)
            _LOG.debug("lease %r has CPUs %s", lease.name, lease.cpus, extra={"lease": lease.id})
            self.watch.watch(lease)
            inventory = self._ledger.node.inventory
            grant = self._site.grant(lease, inventory, self._state)
            return msgspec.structs.replace(grant, notes=tuple(_untold(request, inventory)))

    async def _set_aside(self, request: LeaseRequest) -> LeaseRecord:
        """Return what a request gets once its plugins agree.

        They are asked first which devices they prefer.

        Raises:
            AllocationError: there is nothing for it now, or a plugin failed.
        """
        request.advice.clear()
        for _ in range(_MOST_QUESTIONS):
            outcome = self._ledger.ask(request)
            if not isinstance(outcome, Question):
                return outcome

            try:
                request.advice[outcome] = tuple(await self._plugins.prefer(outcome))
            except AllocationError as error:
                request.advice[outcome] = error.detail

        raise AllocationError("the device list kept changing")

    @contextmanager
    def _freed_on_error(self, lease_id: str) -> Iterator[None]:
        """Take a lease back, or what was set aside for one, if its holder will not hear of it."""
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
    """Return leases and queue as a user may see them.

    Of other users there is what they have and ask for, but not who they are.

    Args:
        ledger: the leases.
        uid: the user.
        state_of: says of an id whether a process of that lease runs.
    """

    def sees(record: LeaseRecord | Waiter) -> bool:
        return ledger.users.is_admin(uid) or ledger.users.owner_of(record) == uid

    def hidden(record: _Record, **changes: str | None) -> _Record:
        name = f"(user {ledger.users.owner_of(record)})"
        return msgspec.structs.replace(
            record, id="", name=name, process=_NOBODY, command="", **changes
        )

    leases = []
    for lease in ledger.leases.values():
        if sees(lease):
            leases.append(messages.KnownLease(lease, state_of(lease.id).value))
        else:
            anonymous = hidden(lease, keeper=None, answer=None, cgroup="")
            leases.append(messages.KnownLease(anonymous, Liveness.RUNNING.value))

    waiting = []
    for waiter in ledger.waiting:
        visible = waiter if sees(waiter) else hidden(waiter)
        waiting.append(msgspec.structs.replace(visible, ancestors=(), seen={}))

    return messages.Leases(tuple(leases), tuple(waiting))


def _check_names(seen: Mapping[str, Seen]) -> None:
    """Refuse more names of devices than can be looked for soon.

    Raises:
        InputError: there are.
    """
    for resource, view in seen.items():
        if len(view.names) > _MOST_NAMES:
            raise InputError.at(
                f"the request, seen[{resource!r}]",
                f"up to {_MOST_NAMES} names of devices",
                len(view.names),
            )


def _untold(request: LeaseRequest, inventory: Mapping[str, Sequence[Device]]) -> Iterator[str]:
    """Yield a sentence for each resource of which it cannot be told what a process sees."""
    demand = request.demand
    hidden = hidden_ids(demand.seen, inventory)
    for resource, view in demand.seen.items():
        if resource in demand.devices and resource not in hidden:
            yield (
                f"the agent chose among all devices of {resource}, though {view.reason}: their "
                "names tell no device that this process sees"
            )


class PluginDevices(PluginCalls):
    """The device plugins of the agent.

    The ledger gets their devices, and the service their answers. Each plugin has threads of its
    own, so that one that hangs keeps nobody else waiting. Reports are taken over one at a time, the
    latest of each plugin, and with pauses four times as long as that took.

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
                inventory = {resource: self._reports.pop(resource)}
                devices = near_cpu_nodes(self._machine, inventory)[resource]
                has_preferences = self._plugins.has_preferences(resource)
                trouble = self._plugins.trouble(resource)
                ledger.update(resource, devices, has_preferences=has_preferences, trouble=trouble)
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
        arguments = (question.available, question.must_include, question.size)
        return await self._called(question.resource, preference, *arguments)

    async def allocate(self, devices: Mapping[str, Sequence[str]]) -> DeviceAnswer:
        """See `PluginCalls`; several plugins are asked one after the other."""
        ids_by_resource = sorted(devices.items())
        answers = [
            await self._called(resource, self._plugins.allocate, {resource: ids})
            for resource, ids in ids_by_resource
        ]
        for resource, ids in ids_by_resource:
            await self._called(resource, self._plugins.pre_start, {resource: ids})
        return join_answers(answers)

    def close(self) -> None:
        """Begin no more calls."""
        for threads, _ in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)

    async def _called(self, resource: str, function: Callable[..., _T], *arguments: object) -> _T:
        """Return what a function returns.

        Of one plugin, two are called at a time, and a bounded number waits behind them.

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
