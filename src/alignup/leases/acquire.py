"""Takes a lease of a machine and gives it back: places the request, and writes the lease into the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alignup.errors import AllocationError
from alignup.leases.placement import Placer

if TYPE_CHECKING:
    from alignup.leases.local_machine import Site
    from alignup.leases.process import ProcessIdentity
    from alignup.leases.record import LeaseRecord
    from alignup.leases.request import Request
    from alignup.leases.store import LeaseChange, LeaseFile

__all__ = ["acquire", "give_back"]


def acquire(
    file: LeaseFile, site: Site, request: Request, holder: ProcessIdentity, *, command: str, name: str
) -> LeaseRecord:
    """Return the lease that a request gets; it is in the file when this returns.

    Leases of processes that are gone are reclaimed on the way.

    Args:
        file: where leases are kept.
        site: the machine.
        request: what is asked for.
        holder: the process whose lease it will be: it ends with the process at the latest.
        command: the command line of the process, for people.
        name: the lease's name if the request has none; a number is added if it is in use.

    Raises:
        AllocationError: the request cannot be met, or its name is in use.
        InputError: the file cannot be used, or has leases of another machine.
    """
    placer = Placer(site, request)  # before the lock, which others wait for
    with file.change() as change:
        change.reclaim()
        change.use_for(site.identity, str(file.path))
        free_name = _free_name(change, request.name, name)
        lease = placer.place(holder, free_name, command, tuple(change.leases))
        change.leases.append(lease)
    return lease


def give_back(file: LeaseFile, lease: LeaseRecord) -> None:
    """Drop a lease from the file, if it is still there.

    Raises:
        InputError: the file cannot be used; the lease will be reclaimed when its process is gone.
    """
    with file.change() as change:
        change.drop(lease.id)


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
