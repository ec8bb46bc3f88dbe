"""Decides who gets what of a machine, for one user or many: claims in, decisions and journal entries out.

A state machine without clocks, files, sockets and processes, so that every state can be tested. The file of leases is
such a ledger, loaded, asked and stored under a lock; the agent has one for as long as it runs. A lease is made in two
steps: `ask` sets everything aside, and `keep` makes it a lease, once the device plugins have agreed; `free` undoes
either. The rules of placing are those of `alignup.host.leases.lease_node`.

Who waits, and who may pass them, is in `alignup.host.leases.wait_queue`.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from alignup.errors import AlignupError, AllocationError, InputError
from alignup.host.leases.lease_node import LeaseNode, Tenant
from alignup.host.leases.record import Entry, Freed, Given, Joined, LeaseRecord, LeaseTable, Left, Waiter, holders
from alignup.host.leases.request import CLAIM, Claim, Question
from alignup.host.leases.wait_queue import PassingRules, Queue
from alignup.kubernetes.versions import NEWEST, KubeletVersion
from alignup.machine.cpuset import CPUSet
from alignup.machine.device_inventory import Device
from alignup.records import Record, field, replace
from alignup.text.counting import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from alignup.host.device_plugins.answer import DeviceAnswer
    from alignup.host.leases.local_machine import Site

_NO_RESOURCE: Final = "alignup.invalid/none"
"""A node has a device provider only if it is made with some resource."""
_ROOT: Final = 0
_PASSING: Final = 16
"""How many of those behind others are looked at when something is free."""


class Limits(Record):
    """The most that each user but root may hold; None: no limit."""

    leases: int | None = 4096
    waiting: int | None = 256
    cpus: int | None = None
    memory: int | None = None
    """Bytes."""
    devices: Mapping[str, int] = field(default_factory=dict)
    """By resource; one that is missing has no limit."""


class _Holdings(Record, frozen=False):
    """What one user holds and waits for."""

    leases: dict[str, LeaseRecord] = field(default_factory=dict)
    """By id."""
    names: dict[str, str] = field(default_factory=dict)
    """Ids by name."""
    waiting: set[str] = field(default_factory=set)
    cpus: int = 0
    memory: int = 0
    devices: dict[str, int] = field(default_factory=dict)

    def count(self, lease: LeaseRecord, sign: int) -> None:
        """Add the amounts of a lease, or with a sign of -1, subtract them."""
        self.cpus += sign * len(lease.cpus)
        self.memory += sign * sum(lease.memory_sizes.values())
        for resource, ids in lease.devices.items():
            self.devices[resource] = self.devices.get(resource, 0) + sign * len(ids)


_NOTHING: Final = _Holdings()


class Users:
    """The holdings of each user, and their limits."""

    __slots__ = ("_holdings", "_limits")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._holdings: dict[int, _Holdings] = {}

    def of(self, uid: int) -> _Holdings:
        """Return the holdings of a user; not to be changed."""
        return self._holdings.get(uid, _NOTHING)

    def add(self, uid: int, lease: LeaseRecord) -> None:
        """Add a lease, or replace one that has changed."""
        held = self._holdings.setdefault(uid, _Holdings())
        if lease.id not in held.leases:
            held.count(lease, 1)
        held.leases[lease.id] = lease
        held.names[lease.name] = lease.id

    def remove(self, uid: int, lease: LeaseRecord) -> None:
        """Remove a lease."""
        held = self._holdings[uid]
        held.count(lease, -1)
        del held.leases[lease.id]
        held.names.pop(lease.name, None)
        self._forget_idle(uid)

    def join(self, uid: int, lease_id: str, *, checks: bool = True) -> None:
        """Add a waiting request.

        Raises:
            AllocationError: the user has too many.
        """
        held = self._holdings.setdefault(uid, _Holdings())
        most = self._limits.waiting
        if checks and uid != _ROOT and most is not None and len(held.waiting - {lease_id}) >= most:
            raise AllocationError(f"too many waiting requests of one user: the limit is {most}")
        held.waiting.add(lease_id)

    def leave(self, uid: int, lease_id: str) -> None:
        """Remove a waiting request."""
        if uid in self._holdings:
            self._holdings[uid].waiting.discard(lease_id)
            self._forget_idle(uid)

    def excess(self, uid: int, lease: LeaseRecord, *, alone: bool = False) -> str:
        """Return which limit a user would exceed by a lease, as a sentence; empty: none. Root has no limits.

        Args:
            uid: the user.
            lease: one that has not been added.
            alone: as if the user held nothing else.
        """
        if uid == _ROOT:
            return ""
        limits, held = self._limits, _NOTHING if alone else self.of(uid)
        wanted: list[tuple[str, int, int | None]] = [
            ("leases", len(held.leases) + 1, limits.leases),
            ("CPUs", held.cpus + len(lease.cpus), limits.cpus),
            ("bytes of memory", held.memory + sum(lease.memory_sizes.values()), limits.memory),
        ]
        wanted += [
            (f"devices of {resource}", held.devices.get(resource, 0) + len(ids), limits.devices.get(resource))
            for resource, ids in lease.devices.items()
        ]
        for what, amount, most in wanted:
            if most is not None and amount > most:
                return f"{amount} {what} are more than the {most} that one user may have"
        return ""

    def _forget_idle(self, uid: int) -> None:
        held = self._holdings[uid]
        if not (held.leases or held.waiting):
            del self._holdings[uid]


class Ledger:
    """The leases of a machine.

    Args:
        site: the machine, with the devices that no plugin reports.
        limits: for each user but root.
        owner: the user whose leases say no other: those of the lease file that was adopted.
        version: the release of the kubelet whose managers decide.
    """

    def __init__(self, site: Site, limits: Limits, owner: int, version: KubeletVersion = NEWEST) -> None:
        self._site = site
        self._version = version
        self._owner = owner
        self._node = self._empty_node(site)
        self._leases: dict[str, LeaseRecord] = {}
        self._pending: set[str] = set()
        self._users = Users(limits)
        self._queue = Queue()
        self._passing = PassingRules(self._leases, lambda: self._trial_node(site), self._limits_of)
        self._entries: list[Entry] = []
        self._with_preferences: set[str] = set()
        self._advice: Mapping[Question, tuple[str, ...] | str] = {}
        self._questions: list[Question] = []
        self._reports = 0
        """Counts changes of devices."""
        self.closed = ""
        """Why nothing is given at all; empty: leases are given."""

    @property
    def leases(self) -> Mapping[str, LeaseRecord]:
        """The leases by id, including those whose plugins have not agreed yet."""
        return self._leases

    @property
    def node(self) -> LeaseNode:
        """The node that they are of, to be looked at."""
        return self._node

    @property
    def waiting(self) -> tuple[Waiter, ...]:
        """The queue, in order of arrival."""
        return tuple(self._queue)

    def table(self) -> LeaseTable:
        """Return the leases and the queue, as they are to be kept."""
        kept = tuple(lease for lease in self._leases.values() if lease.id not in self._pending)
        return LeaseTable(self._site.identity, kept, self.waiting)

    def take_entries(self) -> list[Entry]:
        """Return the journal entries since the last call."""
        entries, self._entries = self._entries, []
        return entries

    def restore(
        self, leases: Iterable[LeaseRecord], waiting: Iterable[Waiter] = (), *, are_new: bool = False
    ) -> list[str]:
        """Take over leases and a queue from before; return sentences about CPUs that the machine lacks now.

        Devices that nobody has reported yet are kept as unhealthy ones, so that they are not given to others
        when they are. `are_new`: they are not in the journal yet.

        Raises:
            InputError: something is held twice.
        """
        notices = []
        there = self._site.machine.cpus
        for lease in leases:
            self._know_devices(lease)
            missing = lease.cpus - CPUSet.from_int(there)
            if missing:
                notices.append(f"lease {lease.name!r} has CPUs {missing}, which this machine lacks now")
            try:
                self._node.adopt(lease)
            except AllocationError as error:
                raise InputError(f"lease {lease.name!r} conflicts with another lease: {error}") from None
            self._note(lease)
            if are_new:
                self._entries.append(Given(lease))
        for waiter in waiting:
            if self._queue.join(waiter):
                self._users.join(self.owner_of(waiter), waiter.id, checks=False)
        return notices

    def update(self, resource: str, devices: Sequence[Device], *, has_preferences: bool) -> None:
        """Take over the devices of a resource as its plugin reports them; holdings stay.

        Devices that leases have are kept as unhealthy ones if they are reported no longer.

        Raises:
            InputError: a device id comes twice; nothing changed.
        """
        held = (one for lease in self._leases.values() for one in lease.devices.get(resource, ()))
        known = self._with_unhealthy(resource, devices, held)
        self._node.update(resource, known, lambda *question: self._prefer(resource, *question))
        self._reports += 1
        if has_preferences:
            self._with_preferences.add(resource)
        else:
            self._with_preferences.discard(resource)

    def ask(self, claim: Claim) -> LeaseRecord | Question:
        """Set aside what a claim gets, until `keep` or `free`; or return what a plugin is to be asked before.

        The same claim gets the same lease again.

        Raises:
            AllocationError: it cannot be had now; nothing has changed.
            InputError: it can never be had.
        """
        known = self._leases.get(claim.id)
        if known is not None:
            if self.owner_of(known) != claim.uid:
                raise InputError("the id of the lease is in use by another user")
            return known
        if self.closed:
            raise AllocationError(self.closed)
        for resource, _ in claim.request.devices:
            offered = self._node.resources - {_NO_RESOURCE}
            if resource not in offered:
                there = ", ".join(sorted(offered)) or "none: no device plugin has registered"
                raise InputError.at("the devices of this machine", f"a resource that it has ({there})", resource)
        ahead = self._queue.ahead_of(claim.waiter(), self._passing.blocks) if len(self._queue) else []
        name = _free_name(self._users.of(claim.uid), claim.request.name, claim.name)
        try:
            found = self._place(claim, name)
        except AllocationError:
            if ahead:
                raise self._behind(ahead, claim.uid) from None
            raise
        if ahead and isinstance(found, LeaseRecord) and not self._may_pass(found, ahead):
            raise self._behind(ahead, claim.uid)
        return found

    def keep(self, lease_id: str, answer: DeviceAnswer | None = None, cgroup: str = "") -> LeaseRecord:
        """Make a lease of what was set aside, with the answer of its device plugins and the cgroup of its command."""
        lease = self._leases[lease_id]
        if lease_id not in self._pending:
            return lease
        if answer is not None or cgroup:
            lease = msgspec.structs.replace(lease, answer=answer, cgroup=cgroup)
            self._note(lease)
        self._pending.discard(lease_id)
        self.leave(lease_id)
        self._entries.append(Given(lease))
        return lease

    def free(self, lease_id: str) -> LeaseRecord | None:
        """Release and return a lease, or what was set aside; None if there is none of that id."""
        lease = self._leases.pop(lease_id, None)
        if lease is None:
            return None
        self._node.release(lease_id)
        self._users.remove(self.owner_of(lease), lease)
        if lease_id in self._pending:
            self._pending.discard(lease_id)
        else:
            self._entries.append(Freed(lease_id))
        return lease

    def join(self, claim: Claim) -> None:
        """Append a claim to the queue, unless it is queued.

        Raises:
            AllocationError: the user has too many there, or the claim could not be met if nobody held anything.
        """
        if claim.id in self._queue:
            return
        self._check_possible(claim)
        self._users.join(claim.uid, claim.id)
        waiter = claim.waiter()
        self._queue.join(waiter)
        self._entries.append(Joined(waiter))

    def leave(self, lease_id: str) -> None:
        """Remove a claim from the queue, if it is queued."""
        waiter = self._queue.leave(lease_id)
        if waiter is not None:
            self._passing.forget(lease_id)
            self._users.leave(self.owner_of(waiter), lease_id)
            self._entries.append(Left(lease_id))

    def heads(self) -> list[str]:
        """Return the ids of the queued claims to try now, in order of arrival: the first ones, and some behind them."""
        found, behind = [], 0
        for waiter in self._queue:
            if self._queue.ahead_of(waiter, self._passing.blocks):
                behind += 1
                if behind > _PASSING:
                    continue
            found.append(waiter.id)
        return found

    def named(self, name: str, uid: int) -> LeaseRecord | None:
        """Return the lease of a user by its name; root and the owner of the ledger find those of others too."""
        own = self._users.of(uid)
        if name in own.names:
            return own.leases[own.names[name]]
        if not self.is_admin(uid):
            return None
        return next((lease for lease in self._leases.values() if lease.name == name), None)

    def is_admin(self, uid: int) -> bool:
        """Return whether a user may release and see everything."""
        return uid in {_ROOT, self._owner}

    def owner_of(self, held: LeaseRecord | Waiter) -> int:
        """Return the user whose lease or request it is."""
        return self._owner if held.uid is None else held.uid

    def amounts(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Return by NUMA node (its id) and resource how much is free, and how much is held.

        A lease that has memory of several nodes has so much of each. A device near several nodes counts with all of
        them, as in `0+1`; one near none with the empty name.
        """
        machine, cpus, memory, devices = self._site.machine, CPUSet(), Counter[int](), Counter[str]()
        for lease in self._leases.values():
            cpus |= lease.cpus
            for share in lease.memory:
                memory[share.numa_node] += share.size
            devices.update(f"{name}\0{one}" for name, ids in lease.devices.items() for one in ids)
        found: dict[tuple[str, str], tuple[int, int]] = {}
        for node, there in zip(machine.numa_nodes, machine.node_cpus, strict=True):
            held = (there & int(cpus)).bit_count()
            found[str(node.id), "cpu"] = there.bit_count() - held, held
            found[str(node.id), "memory"] = node.memory - memory[node.id], memory[node.id]
        for resource, listed in self._node.inventory.items():
            for device in listed:
                near = "+".join(map(str, device.numa_nodes or ()))
                is_held = devices[f"{resource}\0{device.id}"]
                is_free = int(device.healthy and not is_held)
                free, held = found.get((near, resource), (0, 0))
                found[near, resource] = free + is_free, held + is_held
        return found

    def _empty_node(self, site: Site) -> LeaseNode:
        """Return the node as it is while nobody holds anything."""
        site = replace(site, inventory={**site.inventory, _NO_RESOURCE: ()})
        has_memory = any(node.memory > 1 << 16 for node in site.machine.numa_nodes)
        return LeaseNode(site, site.inventory, has_memory=has_memory, version=self._version)

    def _trial_node(self, site: Site, *, all_healthy: bool = False) -> LeaseNode:
        """Return an empty node with the devices of today, whose plugins are not asked."""
        node = self._empty_node(site)
        for resource, devices in self._node.inventory.items():
            known = [replace(device, healthy=True) for device in devices] if all_healthy else devices
            node.update(resource, known, lambda *_: ())
        return node

    def _know_devices(self, lease: LeaseRecord) -> None:
        """Make the devices of a lease known, as unhealthy ones, where they are not yet."""
        for resource, ids in lease.devices.items():
            if resource.startswith(CLAIM):
                continue
            there = self._node.inventory.get(resource, ())
            known = self._with_unhealthy(resource, there, ids)
            if len(known) > len(there):
                self.update(resource, known, has_preferences=False)

    def _with_unhealthy(self, resource: str, devices: Sequence[Device], held: Iterable[str]) -> tuple[Device, ...]:
        """Return devices and, as unhealthy ones near the NUMA nodes that are known, those held that are not listed."""
        missing = set(held) - {device.id for device in devices}
        near = {device.id: device.numa_nodes for device in self._node.inventory.get(resource, ()) if missing}
        return (*devices, *(Device(one, near.get(one), healthy=False) for one in sorted(missing)))

    def _place(self, claim: Claim, name: str) -> LeaseRecord | Question:
        """Set aside what the node decides on."""
        request = claim.request
        if request.memory and not self._node.has_memory:
            raise InputError.at("memory", "a machine with memory that this process may use", request.memory)
        self._advice, self._questions = claim.advice, []
        tenant = Tenant(claim.id, name, claim.holder, claim.command)
        try:
            lease = self._node.place(request, tenant, self._leases.values() if request.part else ())
        except AllocationError as error:
            if self._questions:
                return self._questions[0]
            detail = self._named(error.detail, claim.uid)
            raise AllocationError(f"{detail}{self._held_now(claim.uid)}{self._limit(claim)}", error.reason) from None
        if self._questions:
            self._node.release(lease.id)
            return self._questions[0]
        # None stands for the owner of the ledger, as in a file, which has one user
        uid = None if claim.uid == self._owner else claim.uid
        lease = msgspec.structs.replace(lease, keeper=claim.keeper, uid=uid)
        if excess := self._users.excess(claim.uid, lease):
            self._node.release(lease.id)
            raise AllocationError(excess)
        self._pending.add(lease.id)
        self._note(lease)
        return lease

    def _note(self, lease: LeaseRecord) -> None:
        """Record a lease, or one that has changed."""
        self._leases[lease.id] = lease
        self._users.add(self.owner_of(lease), lease)

    def _may_pass(self, lease: LeaseRecord, ahead: Iterable[Waiter]) -> bool:
        """Return whether a lease that was set aside delays none of those ahead; else, or on an error, free it."""
        may_pass = False
        try:
            may_pass = not any(self._passing.delays(lease, first) for first in ahead)
        finally:
            if not may_pass:
                self.free(lease.id)
        return may_pass

    def _prefer(self, resource: str, available: Sequence[str], must_include: Sequence[str], size: int) -> Sequence[str]:
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

    def _check_possible(self, claim: Claim) -> None:
        """Reject what could not be had if nobody held anything and all devices were well: it would wait for ever.

        Raises:
            AllocationError: it is so.
        """
        node = self._trial_node(self._site, all_healthy=True)
        try:
            lease = node.place(claim.request, Tenant("", "", claim.holder, ""))
        except AllocationError as error:
            raise AllocationError(f"{error.detail}{self._limit(claim)}", error.reason) from None
        if excess := self._users.excess(claim.uid, lease, alone=True):
            raise AllocationError(excess)

    def _limits_of(self, waiter: Waiter) -> tuple[object, Callable[[LeaseRecord], bool]]:
        """Return what decides on a waiter beside the leases, and whether a lease is within its user's limits."""
        uid = self.owner_of(waiter)
        held = self._users.of(uid)
        state = (len(held.leases), held.cpus, held.memory, dict(held.devices), self._reports)
        return state, lambda lease: not self._users.excess(uid, lease)

    def _behind(self, ahead: Sequence[Waiter], uid: int) -> AllocationError:
        """Return the refusal of a request that others came before."""
        visible = [one for one in ahead if self.is_admin(uid) or self.owner_of(one) == uid]
        words = [f"pid {one.process.pid}" for one in visible]
        others = len(ahead) - len(visible)
        words += [f"{counted(others, 'request')} of other users"] if others else []
        return AllocationError(f"earlier requests are waiting for the same resources: {', '.join(words)}")

    def _limit(self, claim: Claim) -> str:
        """Return words about the CPUs that this process may use, if the whole machine would have enough."""
        whole = self._site.whole
        if whole is None:
            return ""
        node = self._trial_node(replace(self._site, machine=whole), all_healthy=True)
        try:
            node.place(claim.request, Tenant("", "", claim.holder, ""))
        except AlignupError:
            return ""
        return f"; {self._site.limit}"

    def _held_now(self, uid: int) -> str:
        """Return words about who holds something: a user's own leases by name, those of others by number."""
        if not self._leases:
            return ""
        if self.is_admin(uid):
            return f"; held now: {holders(tuple(self._leases.values()))}"
        own = self._users.of(uid).leases
        others = len(self._leases) - len(own)
        words = [holders(tuple(own.values()))] if own else []
        words += [f"{counted(others, 'lease')} of other users"] if others else []
        return f"; held now: {', '.join(words)}"

    def _named(self, detail: str, uid: int) -> str:
        """Return a sentence of the node with names for the ids of leases, or with the user for those of others."""

        def name(found: re.Match[str]) -> str:
            lease = self._leases.get(found[1])
            if lease is None:
                return found[0]
            of = self.owner_of(lease)
            return lease.name if of == uid or self.is_admin(uid) else f"user {of}"

        return re.sub(r"\{([^{}]*)\}", name, detail)


def _free_name(held: _Holdings, wanted: str, made_up: str) -> str:
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
    name, number = made_up, 1
    while name in names:
        number += 1
        name = f"{made_up}-{number}"
    return name
