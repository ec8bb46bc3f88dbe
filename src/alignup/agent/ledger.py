"""Decides who gets what of a machine, for many users: requests in, decisions and journal entries out.

A state machine without clocks, files, sockets and processes, so that every state can be tested. A lease is made in two
steps: `ask` sets everything aside, and `keep` makes it a lease, once the device plugins have agreed; `free` undoes
either. The rules of placing are those of `alignup.leases.lease_node`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from alignup.agent.asked import Asked, Question
from alignup.agent.entries import Entry, Freed, Given, Joined, Left
from alignup.agent.users import Holdings, Limits, Users
from alignup.agent.waiting_line import WaitingLine
from alignup.errors import AllocationError, InputError
from alignup.kubernetes.versions import NEWEST
from alignup.leases.lease_node import LeaseNode, Tenant
from alignup.leases.record import LeaseRecord, LeaseTable, Waiter, holders
from alignup.machine.cpuset import CPUSet
from alignup.machine.device_inventory import Device

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from alignup.kubernetes.versions import KubeletVersion
    from alignup.leases.device_answer import DeviceAnswer
    from alignup.leases.local_machine import Site

__all__ = ["Ledger"]

_NOBODY: Final = "alignup.invalid/none"
"""The name of no resource: a node has a device provider only if it is made with some."""


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
        self._node = self._empty_node()
        self._leases: dict[str, LeaseRecord] = {}
        self._pending: set[str] = set()
        self._users = Users(limits)
        self._line = WaitingLine()
        self._waiting_users: dict[str, int] = {}
        self._entries: list[Entry] = []
        self._with_preferences: set[str] = set()
        self._advice: Mapping[Question, tuple[str, ...] | str] = {}
        self._questions: list[Question] = []

    @property
    def leases(self) -> Mapping[str, LeaseRecord]:
        """The leases by id, those included whose plugins have not agreed yet."""
        return self._leases

    @property
    def node(self) -> LeaseNode:
        """The node that they are of, to be looked at."""
        return self._node

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._line)

    def table(self) -> LeaseTable:
        """Return the leases and those who wait, as they are to be kept."""
        kept = tuple(lease for lease in self._leases.values() if lease.id not in self._pending)
        return LeaseTable(self._site.identity, kept, tuple(self._line))

    def take_entries(self) -> list[Entry]:
        """Return the journal entries since the last call."""
        entries, self._entries = self._entries, []
        return entries

    def restore(
        self, leases: Iterable[LeaseRecord], waiting: Iterable[Waiter] = (), *, are_new: bool = False
    ) -> list[str]:
        """Take over leases, and those who wait, from before; return sentences about what the machine lacks of them.

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
                self._node.adopt(lease, f"user {self.owner_of(lease)}")
            except AllocationError as error:
                raise InputError(f"expected leases that share nothing, got {lease.name!r}: {error}") from None
            self._note(lease)
            if are_new:
                self._entries.append(Given(lease))
        for waiter in waiting:
            self._line.join(waiter)
        return notices

    def update(self, resource: str, devices: Sequence[Device], *, has_preferences: bool) -> None:
        """Take over the devices of a resource as its plugin reports them; holdings stay.

        Raises:
            InputError: a device id comes twice; nothing changed.
        """
        self._node.update(resource, devices, lambda *question: self._prefer(resource, *question))
        if has_preferences:
            self._with_preferences.add(resource)
        else:
            self._with_preferences.discard(resource)

    def ask(self, asked: Asked) -> LeaseRecord | Question:
        """Set aside what a request gets, until `keep` or `free`; or return what a plugin is to be asked before.

        The same request gets the same lease again.

        Raises:
            AllocationError: it cannot be had now; nothing has changed.
            InputError: it can never be had.
        """
        known = self._leases.get(asked.lease_id)
        if known is not None:
            if self.owner_of(known) != asked.uid:
                raise InputError("expected the id of a new lease, got that of another user's")
            return known
        for resource, _ in asked.request.devices:
            if resource not in self._node.inventory or resource == _NOBODY:
                there = ", ".join(sorted(set(self._node.inventory) - {_NOBODY})) or "none"
                raise InputError.at(
                    "the devices of this machine", f"a resource that it has ({there})", resource
                )
        ahead = self._line.ahead_of(asked.waiter)
        if ahead:
            pids = ", ".join(f"pid {one.process.pid}" for one in ahead)
            raise AllocationError(f"expected nobody to wait for the same, got others before this: {pids}")
        name = _free_name(self._users.of(asked.uid), asked.request.name, asked.stem)
        return self._place(
            asked, Tenant(asked.lease_id, name, asked.holder, asked.command, f"user {asked.uid}")
        )

    def keep(self, lease_id: str, answer: DeviceAnswer | None = None, cgroup: str = "") -> LeaseRecord:
        """Make a lease of what was set aside, with the answer of its device plugins and the cgroup of its command."""
        lease = self._leases[lease_id]
        if lease_id not in self._pending:
            return lease
        if answer is not None or cgroup:
            lease = msgspec.structs.replace(lease, answer=answer, cgroup=cgroup)
            self._leases[lease_id] = lease
            self._users.add(self.owner_of(lease), lease)
        self._pending.discard(lease_id)
        self.leave(lease_id)
        self._entries.append(Given(lease))
        return lease

    def free(self, lease_id: str) -> LeaseRecord | None:
        """Take a lease back, or what was set aside; return it, None if there is none of that id."""
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

    def join(self, asked: Asked) -> None:
        """Put a request at the end of the line, if it is not in it yet.

        Raises:
            AllocationError: the user has too many there, or the request could not be met if nobody held anything.
        """
        if asked.lease_id in self._line:
            self._waiting_users.setdefault(asked.lease_id, asked.uid)
            return
        self._check_possible(asked)
        self._users.join(asked.uid, asked.lease_id)
        self._waiting_users[asked.lease_id] = asked.uid
        self._line.join(asked.waiter)
        self._entries.append(Joined(asked.waiter))

    def leave(self, lease_id: str) -> None:
        """Take a request out of the line, if it is in it."""
        if self._line.leave(lease_id):
            uid = self._waiting_users.pop(lease_id, None)
            if uid is not None:
                self._users.leave(uid, lease_id)
            self._entries.append(Left(lease_id))

    def heads(self) -> list[str]:
        """Return the ids of the requests that wait behind nobody, in the order in which they came."""
        return [one.id for one in self._line.heads()]

    def waiters(self) -> tuple[Waiter, ...]:
        """Return those who wait, in the order in which they came."""
        return tuple(self._line)

    def named(self, name: str, uid: int) -> LeaseRecord | None:
        """Return the lease of a user by its name; root, and whose agent it is, finds those of others too."""
        own = self._users.of(uid)
        if name in own.names:
            return own.leases[own.names[name]]
        if not self.is_admin(uid):
            return None
        return next((lease for lease in self._leases.values() if lease.name == name), None)

    def is_admin(self, uid: int) -> bool:
        """Return whether a user may release and see everything."""
        return uid in {0, self._owner}

    def owner_of(self, lease: LeaseRecord) -> int:
        """Return the user whose lease it is."""
        return self._owner if lease.uid is None else lease.uid

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

    def _empty_node(self) -> LeaseNode:
        """Return the node as it is while nobody holds anything."""
        site = replace(self._site, inventory={**self._site.inventory, _NOBODY: ()})
        has_memory = any(node.memory > 1 << 16 for node in site.machine.numa_nodes)
        return LeaseNode(site, site.inventory, has_memory=has_memory, version=self._version)

    def _know_devices(self, lease: LeaseRecord) -> None:
        """Make the devices of a lease known, as unhealthy ones, where they are not yet."""
        for resource, ids in lease.devices.items():
            there = tuple(self._node.inventory.get(resource, ()))
            missing = set(ids) - {device.id for device in there}
            if missing:
                more = tuple(Device(one, None, healthy=False) for one in sorted(missing))
                self.update(resource, (*there, *more), has_preferences=False)

    def _place(self, asked: Asked, tenant: Tenant) -> LeaseRecord | Question:
        """Set aside what the node decides on."""
        if asked.request.memory and self._node.node.memory is None:
            raise InputError.at(
                "memory", "a machine with memory that this process may use", asked.request.memory
            )
        self._advice, self._questions = asked.advice, []
        try:
            lease = self._node.place(
                asked.request, tenant, self._leases.values() if asked.request.part else ()
            )
        except AllocationError as error:
            if self._questions:
                return self._questions[0]
            raise AllocationError(f"{error.detail}{self._held_now(asked.uid)}", error.reason) from None
        if self._questions:
            self._node.release(lease.id)
            return self._questions[0]
        lease = msgspec.structs.replace(lease, keeper=asked.keeper, uid=asked.uid)
        try:
            self._users.check(asked.uid, lease)
        except AllocationError:
            self._node.release(lease.id)
            raise
        self._pending.add(lease.id)
        self._note(lease)
        return lease

    def _note(self, lease: LeaseRecord) -> None:
        """Write a lease into the books."""
        self._leases[lease.id] = lease
        self._users.add(self.owner_of(lease), lease)

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

    def _check_possible(self, asked: Asked) -> None:
        """Refuse what could not be had if nobody held anything and all devices were well: one would wait for ever.

        Raises:
            AllocationError: it is so.
        """
        node = self._empty_node()
        for resource, devices in self._node.inventory.items():
            node.update(resource, [replace(device, healthy=True) for device in devices], lambda *_: ())
        lease = node.place(asked.request, Tenant("", "", asked.holder, ""))
        self._users.check(asked.uid, lease, alone=True)

    def _held_now(self, uid: int) -> str:
        """Return words about who holds something: a user's own leases by name, those of others by number."""
        if not self._leases:
            return ""
        if self.is_admin(uid):
            return f"; held now: {holders(tuple(self._leases.values()))}"
        own = self._users.of(uid).leases
        others = len(self._leases) - len(own)
        words = [holders(tuple(own.values()))] if own else []
        words += [f"{others} lease{'s' if others > 1 else ''} of other users"] if others else []
        return f"; held now: {', '.join(words)}"


def _free_name(held: Holdings, wanted: str, made_up: str) -> str:
    """Return a name that no lease of the user has.

    Raises:
        AllocationError: the wanted one is in use.
    """
    names = held.names
    if wanted:
        if wanted in names:
            other = held.leases[names[wanted]]
            raise AllocationError(
                f"expected a name that is not in use, got {wanted!r}, held by pid {other.process.pid}"
            )
        return wanted
    name, number = made_up, 1
    while name in names:
        number += 1
        name = f"{made_up}-{number}"
    return name
