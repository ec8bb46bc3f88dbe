"""Decides who gets what of a machine, for one user or many: requests in, decisions and journal entries out.

A state machine without clocks, files, sockets and processes, so that every state can be tested. The
file of leases is such a ledger, loaded, asked and stored under a lock; the agent has one for as
long as it runs. A lease is made in two steps: `ask` sets everything aside, and `keep` makes it a
lease, once the device plugins have agreed; `free` undoes either. The rules of placing are those of
`alignup.host.leases.lease_node`.

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
from alignup.host.leases.request import CLAIM, LeaseRequest, Question
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
        self._advice: Mapping[Question, tuple[str, ...] | str] = {}
        self._questions: list[Question] = []
        # Counts changes of devices.
        self._reports = 0
        # Why nothing is given at all; empty: leases are given.
        self.closed = ""

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
        """Take over leases and a queue from before; return sentences about CPUs that the machine lacks now.

        Devices that nobody has reported yet are kept as unhealthy ones, so that they are not given
        to others when they are. `are_new`: they are not in the journal yet.

        Raises:
            InputError: something is held twice.
        """
        notices = []
        there = self._site.machine.cpus
        for lease in leases:
            for resource, ids in lease.devices.items():
                known = self.node.inventory.get(resource, ())
                if not (resource.startswith(CLAIM) or {one.id for one in known}.issuperset(ids)):
                    self.update(
                        resource, self._with_unhealthy(resource, known, ids), has_preferences=False
                    )

            missing = lease.cpus - CPUSet.from_int(there)
            if missing:
                notices.append(
                    f"lease {lease.name!r} has CPUs {missing}, which this machine lacks now"
                )

            try:
                self.node.adopt(lease)
            except AllocationError as error:
                raise InputError(
                    f"lease {lease.name!r} conflicts with another lease: {error}"
                ) from None

            self._note(lease)
            if are_new:
                self.record(Given(lease))

        for waiter in waiting:
            self._queue.join(waiter)

        return notices

    def update(self, resource: str, devices: Sequence[Device], *, has_preferences: bool) -> None:
        """Take over the devices of a resource as its plugin reports them; holdings stay.

        Devices that leases have are kept as unhealthy ones if they are reported no longer.

        Raises:
            InputError: a device id comes twice; nothing changed.
        """
        held = (one for lease in self.leases.values() for one in lease.devices.get(resource, ()))
        known = self._with_unhealthy(resource, devices, held)
        self.node.update(resource, known, lambda *question: self._prefer(resource, *question))
        self._reports += 1
        if has_preferences:
            self._with_preferences.add(resource)
        else:
            self._with_preferences.discard(resource)

    def ask(self, request: LeaseRequest) -> LeaseRecord | Question:
        """Set aside what a request gets, until `keep` or `free`; or return what a plugin is to be asked before.

        The same request gets the same lease again.

        Raises:
            AllocationError: it cannot be had now; nothing has changed.
            InputError: it can never be had.
        """
        known = self.leases.get(request.id)
        if known is not None:
            if self.users.owner_of(known) != request.uid:
                raise InputError("the id of the lease is in use by another user")
            return known

        if self.closed:
            raise AllocationError(self.closed)

        for resource in request.wanted.devices:
            offered = self.node.resources
            if resource not in offered:
                there = ", ".join(sorted(offered)) or "none: no device plugin has registered"
                raise InputError.at(
                    "the devices of this machine", f"a resource that it has ({there})", resource
                )

        ahead = self._queue.ahead_of(request.waiter(), self._now()) if len(self._queue) else []
        name = _free_name(self.users.of(request.uid), request.wanted.name, request.name)
        try:
            found = self._place(request, name)
        except AllocationError:
            if ahead:
                raise self._behind(ahead, request.uid) from None
            raise

        if ahead and isinstance(found, LeaseRecord) and not self._may_pass(found, ahead):
            raise self._behind(ahead, request.uid)

        return found

    def keep(
        self, lease_id: str, answer: DeviceAnswer | None = None, cgroup: str = ""
    ) -> LeaseRecord:
        """Make a lease of what was set aside, with the answer of its device plugins and the cgroup of its command."""
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
        waiter = request.waiter()
        self.users.check_waiting(
            request.uid, sum(self.users.owner_of(one) == request.uid for one in self._queue)
        )
        self._queue.join(waiter)
        self.record(Joined(waiter))

    def leave(self, lease_id: str) -> bool:
        """Remove a request from the queue; return whether it was queued."""
        is_queued = self._queue.leave(lease_id)
        if is_queued:
            self.record(Left(lease_id))
        return is_queued

    def heads(self) -> list[str]:
        """Return the ids of queued requests to try now, in order of arrival: the first ones, and some behind them."""
        found, behind, now = [], 0, self._now()
        for waiter in self._queue:
            if self._queue.ahead_of(waiter, now):
                behind += 1
                if behind > _PASSING:
                    continue
            found.append(waiter.id)
        return found

    def named(self, name: str, uid: int) -> LeaseRecord | None:
        """Return the lease of a user by its name; root and the owner of the ledger find those of others too."""
        own = self.users.of(uid)
        if name in own.names:
            return own.leases[own.names[name]]
        if not self.users.is_admin(uid):
            return None
        return next((lease for lease in self.leases.values() if lease.name == name), None)

    def amounts(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Return by NUMA node (its id) and resource how much is free, and how much is held.

        A lease that has memory of several nodes has so much of each. A device near several nodes
        counts with all of them, as in `0+1`; one near none with the empty name.
        """
        machine, cpus, memory, devices = (
            self._site.machine,
            CPUSet(),
            Counter[int](),
            Counter[str](),
        )
        for lease in self.leases.values():
            cpus |= lease.cpus
            for share in lease.memory:
                memory[share.numa_node] += share.size
            devices.update(f"{name}\0{one}" for name, ids in lease.devices.items() for one in ids)

        found: dict[tuple[str, str], tuple[int, int]] = {}
        for node, there in zip(machine.numa_nodes, machine.node_cpus, strict=True):
            held = (there & int(cpus)).bit_count()
            found[str(node.id), "cpu"] = there.bit_count() - held, held
            found[str(node.id), "memory"] = node.memory - memory[node.id], memory[node.id]

        for resource, listed in self.node.inventory.items():
            for device in listed:
                near = "+".join(map(str, device.numa_nodes or ()))
                is_held = devices[f"{resource}\0{device.id}"]
                is_free = int(device.healthy and not is_held)
                free, held = found.get((near, resource), (0, 0))
                found[near, resource] = free + is_free, held + is_held

        return found

    def _now(self) -> Snapshot:
        """Return what decides who may pass whom."""
        site = self._site_with(self.node.inventory)
        return Snapshot(site, self._version, self.leases, self.users, self._reports)

    def _site_with(self, inventory: Mapping[str, Sequence[Device]]) -> Site:
        """Return the machine with other devices, whose plugins are not asked."""
        return replace(self._site, inventory=inventory, preferred_sets={})

    def _site_of_all(self, machine: Machine) -> Site:
        """Return a machine with the devices of now, as if all of them were well."""
        well = {
            name: [replace(one, healthy=True) for one in some]
            for name, some in self.node.inventory.items()
        }
        return replace(self._site_with(well), machine=machine)

    def _with_unhealthy(
        self, resource: str, devices: Sequence[Device], held: Iterable[str]
    ) -> tuple[Device, ...]:
        """Return devices and, as unhealthy ones near the NUMA nodes that are known, those held that are not listed."""
        missing = set(held) - {device.id for device in devices}
        near = {
            device.id: device.numa_nodes
            for device in self.node.inventory.get(resource, ())
            if missing
        }
        return (*devices, *(Device(one, near.get(one), healthy=False) for one in sorted(missing)))

    def _place(self, request: LeaseRequest, name: str) -> LeaseRecord | Question:
        """Set aside what the node decides on."""
        wanted = request.wanted
        if wanted.memory and not self.node.has_memory:
            raise InputError.at(
                "memory", "a machine with memory that this process may use", wanted.memory
            )

        self._advice, self._questions = request.advice, []
        try:
            lease = self.node.place(request, self.leases.values() if wanted.part else ())
        except AllocationError as error:
            if self._questions:
                return self._questions[0]
            detail = f"{self._named(error.detail, request.uid)}{self._held_now(request.uid)}{self._limit(request)}"
            raise AllocationError(detail, error.reason) from None

        if self._questions:
            self.node.release(lease.id)
            return self._questions[0]
        if excess := self.users.excess(request.uid, lease):
            self.node.release(lease.id)
            raise AllocationError(excess)

        # None stands for the owner of the ledger, as in a file, which has one user
        lease = msgspec.structs.replace(
            lease, name=name, uid=None if request.uid == self._owner else request.uid
        )
        self._pending.add(lease.id)
        self._note(lease)
        return lease

    def _note(self, lease: LeaseRecord) -> None:
        """Record a lease, or one that has changed."""
        self.leases[lease.id] = lease
        self.users.add(self.users.owner_of(lease), lease)

    def _may_pass(self, lease: LeaseRecord, ahead: Iterable[Waiter]) -> bool:
        """Return whether a lease that was set aside delays none of those ahead; else, or on an error, free it."""
        now, may_pass = self._now(), False
        try:
            may_pass = not any(self._queue.delays(lease, first, now) for first in ahead)
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
        """Reject what could not be had if nobody held anything and all devices were well: it would wait for ever.

        Raises:
            AllocationError: it is so.
        """
        try:
            lease = LeaseNode(self._site_of_all(self._site.machine), self._version).place(request)
        except AllocationError as error:
            raise AllocationError(f"{error.detail}{self._limit(request)}", error.reason) from None
        if excess := self.users.excess(request.uid, lease, alone=True):
            raise AllocationError(excess)

    def _behind(self, ahead: Sequence[Waiter], uid: int) -> AllocationError:
        """Return the refusal of a request that others came before."""
        visible = [
            one for one in ahead if self.users.is_admin(uid) or self.users.owner_of(one) == uid
        ]
        words = [f"pid {one.process.pid}" for one in visible]
        others = len(ahead) - len(visible)
        words += [f"{counted(others, 'request')} of other users"] if others else []
        return AllocationError(
            f"earlier requests are waiting for the same resources: {', '.join(words)}"
        )

    def _limit(self, request: LeaseRequest) -> str:
        """Return words about the CPUs that this process may use, if the whole machine would have enough."""
        whole = self._site.whole
        if whole is None:
            return ""
        with suppress(AlignupError):
            LeaseNode(self._site_of_all(whole), self._version).place(request)
            return f"; {self._site.limit}"
        return ""

    def _held_now(self, uid: int) -> str:
        """Return words about who holds something: a user's own leases by name, those of others by number."""
        if not self.leases:
            return ""
        if self.users.is_admin(uid):
            return f"; held now: {holders(tuple(self.leases.values()))}"
        own = self.users.of(uid).leases
        others = len(self.leases) - len(own)
        words = [holders(tuple(own.values()))] if own else []
        words += [f"{counted(others, 'lease')} of other users"] if others else []
        return f"; held now: {', '.join(words)}"

    def _named(self, detail: str, uid: int) -> str:
        """Return a sentence of the node with names for the ids of leases, or with the user for those of others."""

        def name(found: re.Match[str]) -> str:
            lease = self.leases.get(found[1])
            if lease is None:
                return found[0]
            of = self.users.owner_of(lease)
            return lease.name if of == uid or self.users.is_admin(uid) else f"user {of}"

        return re.sub(r"\{([^{}]*)\}", name, detail)


def _free_name(held: UserHoldings, wanted: str, made_up: str) -> str:
    """Return a name that no lease of the user has.

    Raises:
        AllocationError: the wanted one is in use.
    """
    names = held.names
    if wanted:
        if wanted in names:
            other = held.leases[names[wanted]]
            raise AllocationError(f"the name {wanted!r} is in use by process {other.process.pid}")
        return wanted
    free = chain([made_up], (f"{made_up}-{number}" for number in count(2)))
    return next(name for name in free if name not in names)
