"""Takes a lease of a machine and gives it back: places the request, and writes the lease into the file.

Those who wait for a lease stand in a queue in the file, in the order in which they came. Nobody gets past somebody who
asks for something of the same kind, whether they wait themselves or not.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from alignup.errors import AlignupError, AllocationError
from alignup.leases.placement import Placer
from alignup.leases.record import LeaseRecord, Waiter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from alignup.leases.local_machine import Site
    from alignup.leases.process import ProcessIdentity
    from alignup.leases.record import MachineIdentity
    from alignup.leases.request import Request
    from alignup.leases.store import LeaseChange, LeaseFile

__all__ = ["Claim", "acquire", "give_back"]

_LOOK: Final = 0.05
"""Seconds between looks at whether the file has changed."""
_TRY: Final = 1.0
"""Seconds between tries without a change: the end of a process that was killed changes no file."""


class Claim:
    """A request, and what else its lease will say.

    Args:
        request: what is asked for.
        holder: the process whose lease it will be: it ends with the process at the latest.
        command: what the process is, for people.
        name: the lease's name if the request has none; a number is added if it is in use.
        keeper: a process that outlives the holder if something that the holder started does; the lease then ends with
            the keeper.
        show: called with the lease, its machine and its file before anybody else knows of it, to leave evidence of it
            with the process.
    """

    __slots__ = ("_waiter", "command", "holder", "keeper", "request", "show", "stem")

    def __init__(
        self,
        request: Request,
        holder: ProcessIdentity,
        *,
        command: str,
        name: str,
        keeper: ProcessIdentity | None = None,
        show: Callable[[LeaseRecord, MachineIdentity, Path], None] | None = None,
    ) -> None:
        self.request = request
        self.holder = holder
        self.show = show
        self.command = command
        self.stem = name
        self.keeper = keeper
        kinds = [resource for resource, _ in request.devices]
        kinds += ["cpu"] if request.cpus or request.part else []
        kinds += ["memory"] if request.memory else []
        self._waiter = Waiter(os.urandom(8).hex(), holder, tuple(kinds))

    @property
    def waiter(self) -> Waiter:
        """Its place in the queue."""
        return self._waiter

    def place(self, placer: Placer, change: LeaseChange) -> LeaseRecord:
        """Return the lease that there is for it now.

        Raises:
            AllocationError: there is none, or its name is in use, or somebody came before.
        """
        ahead = change.ahead_of(self._waiter)
        if ahead:
            pids = ", ".join(f"pid {one.process.pid}" for one in ahead[:4])
            raise AllocationError(
                f"expected nobody to wait for the same, got {len(ahead)} before this: {pids}"
            )
        name = _free_name(change, self.request.name, self.stem)
        lease = placer.place(self.holder, name, self.command, tuple(change.leases))
        return msgspec.structs.replace(lease, keeper=self.keeper)


def acquire(file: LeaseFile, site: Site, claim: Claim, wait: float | None = None) -> LeaseRecord:
    """Return a lease of what is claimed; it is in the file when this returns.

    Leases of processes that are gone are reclaimed on the way.

    Args:
        file: where leases are kept.
        site: the machine.
        claim: what is asked for, and by which process.
        wait: how many seconds to wait at most until it can be had; None: not at all.

    Raises:
        AllocationError: the request cannot be met, or not within that time, or its name is in use.
        InputError: the file cannot be used, or has leases of another machine.
    """
    placer = Placer(site, claim.request)  # before the lock, which others wait for
    if wait is None:
        lease, refusal = _attempt(file, site, claim, placer, queues=False)
        if lease is None:
            raise _with_allowed_cpus(site, claim, refusal)
        return lease
    deadline = time.monotonic() + wait
    try:
        while True:
            stamp = _stamp(file.path)
            lease, refusal = _attempt(file, site, claim, placer, queues=True)
            if lease is not None:
                return lease
            _check_possible(site, claim)
            _check_time(deadline, wait, refusal)
            _sleep(file.path, stamp, deadline)
            placer = Placer(site, claim.request)
    except BaseException:
        with suppress(AlignupError), file.change() as change:
            change.leave(claim.waiter)
        raise


def give_back(file: LeaseFile, lease: LeaseRecord) -> None:
    """Drop a lease from the file, if it is still there.

    Raises:
        InputError: the file cannot be used; the lease will be reclaimed when its process is gone.
    """
    with file.change() as change:
        change.drop(lease.id)


def _attempt(
    file: LeaseFile, site: Site, claim: Claim, placer: Placer, *, queues: bool
) -> tuple[LeaseRecord | None, AllocationError]:
    """Return a lease, or else why there is none; who queues is in the queue then."""
    refusal = AllocationError("")
    with file.change() as change:
        change.reclaim()
        change.use_for(site.identity, str(file.path))
        try:
            lease = claim.place(placer, change)
        except AllocationError as error:
            refusal = error
            if queues:
                change.join(claim.waiter)
            return None, refusal
        change.leave(claim.waiter)
        change.leases.append(lease)
        if claim.show is not None:
            claim.show(lease, site.identity, file.path)
    return lease, refusal


def _check_possible(site: Site, claim: Claim) -> None:
    """Refuse what could not be had if nobody held anything: one would wait for ever.

    Raises:
        AllocationError: it is so.
    """
    try:
        Placer(site, claim.request).place(claim.holder, "", "", ())
    except AllocationError as refusal:
        raise _with_allowed_cpus(site, claim, refusal) from None


def _check_time(deadline: float, wait: float, refusal: AllocationError) -> None:
    """Give up if the time is over.

    Raises:
        AllocationError: it is.
    """
    if time.monotonic() >= deadline:
        raise AllocationError(f"{refusal} (waited for {wait:g} s)", refusal.reason)


def _with_allowed_cpus(site: Site, claim: Claim, refusal: AllocationError) -> AllocationError:
    """Return a refusal that names the CPUs that this process may use, if the whole machine would have enough."""
    whole = site.whole
    if whole is None:
        return refusal
    try:
        Placer(replace(site, machine=whole), claim.request).place(claim.holder, "", "", ())
    except AlignupError:
        return refusal
    return AllocationError(f"{refusal.detail}; {site.limit}", refusal.reason)


def _stamp(path: Path) -> tuple[int, int]:
    """Return what changes whenever the file does."""
    try:
        found = path.lstat()
    except OSError:
        return 0, 0
    return found.st_ino, found.st_mtime_ns


def _sleep(path: Path, stamp: tuple[int, int], deadline: float) -> None:
    """Sleep until the file is another than it was, or for a while."""
    end = min(deadline, time.monotonic() + _TRY)
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _LOOK))
        if _stamp(path) != stamp:
            return


def _free_name(change: LeaseChange, wanted: str, made_up: str) -> str:
    """Return a name that no lease has.

    Raises:
        AllocationError: the wanted one is in use.
    """
    if wanted:
        other = change.named(wanted)
        if other is not None:
            raise AllocationError(
                f"expected a name that is not in use, got {wanted!r}, held by pid {other.process.pid}"
            )
        return wanted
    name, number = made_up, 1
    while change.named(name) is not None:
        number += 1
        name = f"{made_up}-{number}"
    return name
