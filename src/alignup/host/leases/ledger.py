"""Decides who gets what of a machine, for one user or many.

Requests come in, decisions and journal entries go out. It is a state machine without clocks, files,
sockets and processes, so that every state can be tested. The file of leases is such a ledger,
loaded, asked and stored under a lock; the agent has one for as long as it runs. A lease is made in
two steps: `ask` sets everything aside, and `keep` makes it a lease, once the device plugins have
agreed; `free` undoes either. The rules of placing are those of `alignup.host.leases.lease_node`.

Who waits, and who may pass them, is in `alignup.host.leases.wait_queue`.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from itertools import chain, count
from typing import TYPE_CHECKING, Final

import msgspec

from alignup.errors import AlignupError, AllocationError, InputError
from alignup.host.leases.lease_node import LeaseNode
from alignup.host.leases.record import (
    Entry,
    Freed,
    Given,
    Joined,
    LeaseRecord,
    LeaseTable,
    Left,
    Waiter,
    holders,
)
from alignup.host.leases.request import CLAIM, LeaseRequest, Question, without_devices
from alignup.host.leases.users import Limits, UserHoldings, Users
from alignup.host.leases.wait_queue import Queue, Snapshot
from alignup.kubernetes.versions import NEWEST, KubeletVersion
from alignup.machine.cpuset import CPUSet
from alignup.machine.device_inventory import Device
from alignup.records import replace
from alignup.text.counting import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from alignup.host.device_plugins.answer import DeviceAnswer
    from alignup.host.leases.local_machine import Site
    from alignup.machine.machine import Machine

# How many of those behind others are looked at when something is free.
_PASSING: Final = 16


class Ledger:
    """The leases of a machine.

    Args:
        site: the machine, with the devices that no plugin reports.
        limits: for each user but root.
        owner: the user whose leases say no other: those of the lease file that was adopted.
        version: the release of the kubelet whose managers decide.
    """

    def __init__(
        self, site: Site, limits: Limits, owner: int, version: KubeletVersion = NEWEST
    ) -> None:
        self._site = site
        self._version = version
        self._owner = owner

        # To be looked at by others, and changed here only; leases whose plugins have not agreed yet
        # are among them.
        self.node = LeaseNode(site, version)
        self.leases: dict[str, LeaseRecord] = {}
        self._pending: set[str] = set()
        self.users = Users(limits, owner)
        self._queue = Queue()

        # Called with each entry for the journal, as it happens.
        self.record: Callable[[Entry], object] = lambda _entry: None

        self._with_preferences: set[str] = set()
        # What is wrong with the plugins of resources, in words after `the device plugin of x`.
        self._troubles: dict[str, str] = {}
        self._advice: Mapping[Question, tuple[str, ...] | str] = {}
        self._questions: list[Question] = []

        # Counts changes of devices.
        self._reports = 0
        # Why nothing is given at all; empty: leases are given.
        self.closed = ""

        # Whether device plugins may yet register that had before the agent was started again.
        self._awaits_plugins = False
        # Resources of which nothing is known but what leases hold.
        self._unreported: set[str] = set()

    @property
    def waiting(self) -> tuple[Waiter, ...]:
        """The queue, in order of arrival."""
        return tuple(self._queue)

    def table(self) -> LeaseTable:
        """Return the leases and the queue, as they are to be kept."""
        kept = tuple(lease for lease in self.leases.values() if lease.id not in self._pending)
        return LeaseTable(self._site.identity, kept, self.waiting)

    def restore(
        self,
        leases: Iterable[LeaseRecord],
        waiting: Iterable[Waiter] = (),
        *,
        are_new: bool = False,
    ) -> list[str]:
        """Take over leases and a queue from before.

        Devices that nobody has reported yet are kept as unhealthy ones, so that they are not given
        to others when they are. `are_new`: they are not in the journal yet.

        Returns:
            Sentences about CPUs that the machine lacks now.

        Raises:
            InputError: something is held twice.
        """
        notices = []
        machine_cpus = CPUSet.from_int(self._site.machine.cpus)
        for lease in leases:
            for resource, ids in lease.devices.items():
                if resource.startswith(CLAIM):
                    continue
                devices = self.node.inventory.get(resource, ())
                if not {device.id for device in devices}.issuperset(ids):
                    all_devices = self._with_unhealthy(resource, devices, ids)
                    # or they have the names of a plugin, other than those that the driver knows
                    is_unreported = not devices or lease.answer is not None
                    is_unreported = is_unreported or resource in self._unreported
                    self.update(resource, all_devices, has_preferences=False)
                    if is_unreported:
                        self._unreported.add(resource)

            missing_cpus = lease.cpus - machine_cpus
            if missing_cpus:
                notices.append(
                    f"lease {lease.name!r} has CPUs {missing_cpus}, which this machine lacks now"
                )

            try:
                self.node.adopt(lease)
            except AllocationError as error:
                raise InputError(
                    f"lease {lease.name!r} conflicts with another lease, or with itself: {error}"
                ) from None

            self._note(lease)
            if are_new:
                self.record(Given(lease))

        for waiter in waiting:
            self._queue.join(waiter)

        return notices

    def update(
        self,
        resource: str,
        devices: Sequence[Device],
        *,
        has_preferences: bool,
        trouble: str = "",
    ) -> None:
        """Take over the devices of a resource as its plugin reports them; holdings stay.

        Devices that leases have are kept as unhealthy ones if they are reported no longer.

        Args:
            resource: what its plugin has devices of.
            devices: all of them.
            has_preferences: whether the plugin is to be asked which of them it prefers.
            trouble: why they are not as the plugin has them, in words after its name.

        Raises:
            InputError: a device id comes twice; nothing changed.
        """
        held_ids = chain.from_iterable(
            lease.devices.get(resource, ()) for lease in self.leases.values()
        )
        all_devices = self._with_unhealthy(resource, devices, held_ids)
        self.node.update(resource, all_devices, lambda *question: self._prefer(resource, *question))
        self._reports += 1
        self._unreported.discard(resource)
        self._troubles[resource] = trouble
        if has_preferences:
            self._with_preferences.add(resource)
        else:
            self._with_preferences.discard(resource)

    def await_plugins(self, *, awaits: bool) -> None:
        """Begin or end to let requests wait for a resource that no plugin has registered.

        Those that are queued by the end go on waiting, and hold up nobody.
        """
        self._awaits_plugins = awaits
        self._reports += 1

    def ask(self, request: LeaseRequest) -> LeaseRecord | Question:
        """Set aside what a request gets, until `keep` or `free`.

        Or return what a plugin is to be asked before. The same request gets the same lease again.

        Raises:
            AllocationError: it cannot be had now; nothing has changed.
            InputError: it can never be had.
        """
        lease = self.leases.get(request.id)
        if lease is not None:
            if self.users.owner_of(lease) != request.uid:
                raise InputError("the id of the lease is in use by another user")
            return lease

        if self.closed:
            raise AllocationError(self.closed)

        self._check_resources(request)
        ahead: list[Waiter] = []
        if len(self._queue):
            ahead = self._queue.ahead_of(request.waiter(), self._now())

        name = _free_name(self.users.of(request.uid), request.demand.name, request.name)
        try:
            outcome = self._place(request, name)
        except AllocationError:
            if ahead:
                raise self._behind(ahead, request.uid) from None
            raise

        if ahead and isinstance(outcome, LeaseRecord) and not self._may_pass(outcome, ahead):
            raise self._behind(ahead, request.uid)

        return outcome

    def keep(
        self, lease_id: str, answer: DeviceAnswer | None = None, cgroup: str = ""
    ) -> LeaseRecord:
        """Make a lease of what was set aside, and return it.

        It has the answer of its device plugins and the cgroup of its command.
        """
        lease = self.leases[lease_id]
        if lease_id not in self._pending:
            return lease

        if answer is not None or cgroup:
            lease = msgspec.structs.replace(lease, answer=answer, cgroup=cgroup)
            self._note(lease)

        self._pending.discard(lease_id)
        self.leave(lease_id)
        self.record(Given(lease))
        return lease

    def free(self, lease_id: str) -> LeaseRecord | None:
        """Release and return a lease, or what was set aside; None if there is none of that id."""
        lease = self.leases.pop(lease_id, None)
        if lease is None:
            return None

        self.node.release(lease_id)
        self.users.remove(self.users.owner_of(lease), lease)
        if lease_id in self._pending:
            self._pending.discard(lease_id)
        else:
            self.record(Freed(lease_id))

        return lease

    def join(self, request: LeaseRequest) -> None:
        """Append a request to the queue, unless it is queued.

        Raises:
            AllocationError: the user has too many there, or the request could not be met if nobody
                held anything.
        """
        if request.id in self._queue:
            return

        self._check_possible(request)
        queued = [waiter for waiter in self._queue if self.users.owner_of(waiter) == request.uid]
        self.users.check_waiting(request.uid, len(queued))
        waiter = request.waiter()
        self._queue.join(waiter)
        self.record(Joined(waiter))

    def leave(self, lease_id: str) -> bool:
        """Remove a request from the queue; return whether it was queued."""
        is_queued = self._queue.leave(lease_id)
        if is_queued:
            self.record(Left(lease_id))
        return is_queued

    def heads(self) -> list[str]:
        """Return the ids of queued requests to try now, in order of arrival.

        They are the first ones, and some behind them.
        """
        now = self._now()
        ids = []
        behind = 0
        for waiter in self._queue:
            if self._queue.ahead_of(waiter, now):
                behind += 1
                if behind > _PASSING:
                    continue
            ids.append(waiter.id)

        return ids

    def named(self, name: str, uid: int) -> LeaseRecord | None:
        """Return the lease of a user by its name.

        Root and the owner of the ledger find those of others too.
        """
        holdings = self.users.of(uid)
        if name in holdings.names:
            return holdings.leases[holdings.names[name]]
        if not self.users.is_admin(uid):
            return None
        return next((lease for lease in self.leases.values() if lease.name == name), None)

    def amounts(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Return by NUMA node (its id) and resource how much is free, and how much is held.

        A lease that has memory of several nodes has so much of each. A device near several nodes
        counts with all of them, as in `0+1`; one near none with the empty name.
        """
        leased_cpus = CPUSet()
        leased_memory = Counter[int]()
        leased_devices = Counter[tuple[str, str]]()
        for lease in self.leases.values():
            leased_cpus |= lease.cpus
            for share in lease.memory:
                leased_memory[share.numa_node] += share.size
            for resource, ids in lease.devices.items():
                leased_devices.update((resource, device_id) for device_id in ids)

        amounts: dict[tuple[str, str], tuple[int, int]] = {}
        machine = self._site.machine
        for node, node_cpus in zip(machine.numa_nodes, machine.node_cpus, strict=True):
            cpu_count = (node_cpus & int(leased_cpus)).bit_count()
            size = leased_memory[node.id]
            amounts[str(node.id), "cpu"] = node_cpus.bit_count() - cpu_count, cpu_count
            amounts[str(node.id), "memory"] = node.memory - size, size

        for resource, devices in self.node.inventory.items():
            for device in devices:
                near = "+".join(map(str, device.numa_nodes or ()))
                free_count, leased_count = amounts.get((near, resource), (0, 0))
                times_leased = leased_devices[resource, device.id]
                if device.healthy and not times_leased:
                    free_count += 1
                amounts[near, resource] = free_count, leased_count + times_leased

        return amounts

    def _missing_resource(self, resource: str) -> InputError:
        """Return the error that says that there is no such resource, and how there can be."""
        # an error only
        from alignup.machine.pci_devices import usual_selectors  # noqa: PLC0415

        names = ", ".join(sorted(self.node.resources)) or "none: no device plugin has registered"
        selectors = usual_selectors(self._site.machine, resource)
        options = " ".join(selector.option for selector in selectors) or "--device-resource"
        return InputError.at(
            "the devices of this machine",
            f"a resource that it has ({names}), or one that {options} of `alignup agent` describes",
            resource,
        )

    def _troubles_of(self, resources: Iterable[str]) -> str:
        """Return words about the plugins of some resources that are gone, or make no sense."""
        words = ""
        for resource in resources:
            trouble = self._troubles.get(resource, "")
            if resource in self._unreported:
                trouble = "has not registered since the agent was started"
            if trouble:
                words += f"; the device plugin of {resource} {trouble}"
        return words

    def _now(self) -> Snapshot:
        """Return what decides who may pass whom."""
        site = self._site_with(self.node.inventory)
        awaited: set[str] = set()
        if self._awaits_plugins:
            awaited.update(*(self._awaited(waiter.devices) for waiter in self._queue))
        return Snapshot(
            site, self._version, self.leases, self.users, self._reports, frozenset(awaited)
        )

    def _awaited(self, resources: Iterable[str]) -> set[str]:
        """Return those of some resources whose plugin may yet register."""
        if not self._awaits_plugins:
            return set()

        missing = set(resources) - self.node.resources
        plugin_resources = {
            resource for resource in missing if "/" in resource and not resource.startswith(CLAIM)
        }
        return plugin_resources | self._unreported.intersection(resources)

    def _check_resources(self, request: LeaseRequest) -> None:
        """Reject a request for a resource of which no devices are known.

        Raises:
            AllocationError: a plugin may yet register, or the request waits for one.
            InputError: there is no such resource.
        """
        offered = self.node.resources
        missing = self._awaited(request.demand.devices)
        for resource in request.demand.devices:
            if resource in offered or resource in missing:
                continue
            if request.id in self._queue:
                missing.add(resource)
                continue

            raise self._missing_resource(resource)

        if missing:
            raise AllocationError(
                f"no device plugin of {', '.join(sorted(missing))} has registered yet"
            )

    def _site_with(self, inventory: Mapping[str, Sequence[Device]]) -> Site:
        """Return the machine with other devices, whose plugins are not asked."""
        return replace(self._site, inventory=inventory, preferred_sets={})

    def _site_of_all(self, machine: Machine) -> Site:
        """Return a machine with the devices of now, as if all of them were well."""
        well = {
            name: [replace(device, healthy=True) for device in devices]
            for name, devices in self.node.inventory.items()
        }
        return replace(self._site_with(well), machine=machine)

    def _with_unhealthy(
        self, resource: str, devices: Sequence[Device], held_ids: Iterable[str]
    ) -> tuple[Device, ...]:
        """Return devices and those that are held and not among them, as unhealthy ones.

        These are near the NUMA nodes that are known of them.
        """
        missing_ids = set(held_ids) - {device.id for device in devices}
        if not missing_ids:
            return tuple(devices)

        known_devices = self.node.inventory.get(resource, ())
        numa_nodes = {device.id: device.numa_nodes for device in known_devices}
        unhealthy = [
            Device(device_id, numa_nodes.get(device_id), healthy=False)
            for device_id in sorted(missing_ids)
        ]
        return (*devices, *unhealthy)

    def _place(self, request: LeaseRequest, name: str) -> LeaseRecord | Question:
        """Set aside what the node decides on."""
        demand = request.demand
        if demand.memory and not self.node.has_memory:
            raise InputError.at(
                "memory", "a machine with memory that this process may use", demand.memory
            )

        self._advice = request.advice
        self._questions = []
        try:
            lease = self.node.place(request, self.leases.values() if demand.part else ())
        except AllocationError as error:
            if self._questions:
                return self._questions[0]
            detail = self._named(error.detail, request.uid)
            detail += self._troubles_of(demand.devices)
            detail += self._held_now(request.uid)
            detail += self._limit(request)
            raise AllocationError(detail, error.reason) from None

        if self._questions:
            self.node.release(lease.id)
            return self._questions[0]

        excess = self.users.excess(request.uid, lease)
        if excess:
            self.node.release(lease.id)
            raise AllocationError(excess)

        # None stands for the owner of the ledger, as in a file, which has one user
        uid = None if request.uid == self._owner else request.uid
        lease = msgspec.structs.replace(lease, name=name, uid=uid)
        self._pending.add(lease.id)
        self._note(lease)
        return lease

    def _note(self, lease: LeaseRecord) -> None:
        """Record a lease, or one that has changed."""
        self.leases[lease.id] = lease
        self.users.add(self.users.owner_of(lease), lease)

    def _may_pass(self, lease: LeaseRecord, ahead: Iterable[Waiter]) -> bool:
        """Return whether a lease that was set aside delays none of those ahead.

        If it does, or on an error, it is freed.
        """
        now = self._now()
        may_pass = False
        try:
            may_pass = not any(self._queue.delays(lease, waiter, now) for waiter in ahead)
        finally:
            if not may_pass:
                self.free(lease.id)

        return may_pass

    def _prefer(
        self, resource: str, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> Sequence[str]:
        """Return what the plugin of a resource has answered, or note that it is to be asked.

        Raises:
            AllocationError: it failed.
        """
        if resource not in self._with_preferences:
            return ()

        question = Question(resource, tuple(available), tuple(must_include), size)
        answer = self._advice.get(question)
        if answer is None:
            self._questions.append(question)
            return ()
        if isinstance(answer, str):
            raise AllocationError(answer)

        return answer

    def _check_possible(self, request: LeaseRequest) -> None:
        """Reject what could not be had if nobody held anything and all devices were well.

        It would wait for ever.

        Raises:
            AllocationError: it is so.
        """
        known_request = without_devices(request, self._awaited(request.demand.devices))
        try:
            node = LeaseNode(self._site_of_all(self._site.machine), self._version)
            lease = node.place(known_request)
        except AllocationError as error:
            detail = f"{error.detail}{self._limit(request)}"
            if self.leases:
                detail += "; that is without any lease: waiting would not help"
            raise AllocationError(detail, error.reason) from None

        excess = self.users.excess(request.uid, lease, alone=True)
        if excess:
            raise AllocationError(excess)

    def _behind(self, ahead: Sequence[Waiter], uid: int) -> AllocationError:
        """Return the refusal of a request that others came before."""
        visible = ahead
        if not self.users.is_admin(uid):
            visible = [waiter for waiter in ahead if self.users.owner_of(waiter) == uid]

        descriptions = [f"pid {waiter.process.pid}" for waiter in visible]
        others = len(ahead) - len(visible)
        if others:
            descriptions.append(f"{counted(others, 'request')} of other users")
        return AllocationError(
            f"earlier requests are waiting for the same resources: {', '.join(descriptions)}"
        )

    def _limit(self, request: LeaseRequest) -> str:
        """Return words about the CPUs that this process may use.

        There are none if the whole machine would not have enough either.
        """
        whole = self._site.whole
        if whole is None:
            return ""

        with suppress(AlignupError):
            LeaseNode(self._site_of_all(whole), self._version).place(request)
            return f"; {self._site.limit}"

        return ""

    def _held_now(self, uid: int) -> str:
        """Return words about who holds something.

        They name a user's own leases, and count those of others.
        """
        if not self.leases:
            return ""
        if self.users.is_admin(uid):
            return f"; held now: {holders(self.leases.values())}"

        descriptions = []
        own_leases = self.users.of(uid).leases
        if own_leases:
            descriptions.append(holders(own_leases.values()))
        others = len(self.leases) - len(own_leases)
        if others:
            descriptions.append(f"{counted(others, 'lease')} of other users")
        return f"; held now: {', '.join(descriptions)}"

    def _named(self, detail: str, uid: int) -> str:
        """Return a sentence of the node with names for the ids of leases.

        The leases of others are called by their user.
        """

        def name(match: re.Match[str]) -> str:
            lease = self.leases.get(match[1])
            if lease is None:
                return match[0]

            owner = self.users.owner_of(lease)
            if owner == uid or self.users.is_admin(uid):
                return lease.name
            return f"user {owner}"

        return re.sub(r"\{([^{}]*)\}", name, detail)


def _free_name(holdings: UserHoldings, name: str, made_up: str) -> str:
    """Return a name that no lease of the user has: `name`, or one like the one made up.

    Raises:
        AllocationError: `name` is in use.
    """
    names = holdings.names
    if name:
        if name in names:
            lease = holdings.leases[names[name]]
            raise AllocationError(f"the name {name!r} is in use by process {lease.process.pid}")
        return name

    candidates = chain([made_up], (f"{made_up}-{number}" for number in count(2)))
    return next(candidate for candidate in candidates if candidate not in names)
