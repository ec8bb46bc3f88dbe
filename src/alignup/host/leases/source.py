"""Gives leases from wherever they are kept: from the agent of this machine where there is one, else from a file.

A file is a ledger (`ledger` beside this module) that is loaded, asked and stored under a lock, so that both give the
same and say the same. Where an agent keeps the leases, nothing is ever given beside it, whether it runs or not.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from alignup.errors import AlignupError, AllocationError, InputError, errors_at
from alignup.host.leases.agent_messages import AGENT_VARIABLE, Grant, KnownLease, KnownPart, Leases
from alignup.host.leases.evidence import check_release, lease_liveness, living
from alignup.host.leases.file import AgentOwnsError, LeaseFile, check_machine
from alignup.host.leases.request import CLAIM
from alignup.records import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from alignup.host.leases.agent_client import AgentSource
    from alignup.host.leases.local_machine import Site
    from alignup.host.leases.record import LeaseRecord, Request
    from alignup.host.leases.request import LeaseRequest

_STATE_VARIABLE: Final = "ALIGNUP_STATE"
# Where the agent of all users serves: who names no file of leases asks it, as soon as it is there.
SYSTEM_SOCKET: Final = Path("/run/alignup/agent.sock")
# Seconds between looks at whether the file has changed.
_LOOK: Final = 0.05
# Seconds between tries without a change: the end of a process that was killed changes no file.
_TRY: Final = 1.0


class FileSource:
    """Leases in a file.

    Args:
        file: the file.
        load_site: returns the machine, with the devices of some resources; not called before it is needed.
        successor: the socket of the agent that takes the place of the file as soon as it is there; None: none does.
    """

    def __init__(self, file: LeaseFile, load_site: Callable[[list[str]], Site], successor: Path | None = None) -> None:
        self._file = file
        self._successor = successor
        self._load_site = load_site
        self._site: Site | None = None

    def prepare(self, wanted: Request, *, binds: bool) -> None:
        """Do what can be done for a request before its process is there.

        Raises:
            InputError: the request is invalid, or processes are to be bound to another machine than that at hand.
        """
        self._site = self._load_site(list(wanted.devices))
        if binds and not self._site.is_here:
            raise InputError("processes can be bound to this machine only: --machine needs --no-bind")

    def acquire(self, request: LeaseRequest, wait: float | None = None) -> Grant:
        """Return what is requested; it is on record when this returns.

        Args:
            request: what is wanted, and by which process.
            wait: how many seconds to wait at most until it can be had, in order of arrival; None: not at all.

        Raises:
            AllocationError: it cannot be had now, or not within that time.
            InputError: whoever keeps leases cannot be used, or the request is invalid.
        """
        from alignup.host.parts.part import visible_variables  # noqa: PLC0415  # startup counts

        site = self._site or self._load_site(list(request.wanted.devices))
        try:
            lease = self._attempt(site, request) if wait is None else self._waited_for(site, request, wait)
        except AgentOwnsError as error:
            return self._agent(error).acquire(request, wait)
        try:
            cuda = visible_variables(lease.devices, site.inventory, site.machine)
        except InputError:
            self._drop(lease)
            raise
        nodes = site.memory_nodes(lease)
        return Grant(site.shown(lease), site.identity, str(self._file.path), nodes, site.is_here, cuda)

    def _waited_for(self, site: Site, request: LeaseRequest, wait: float) -> LeaseRecord:
        """Return the lease of a request when it can be had; it is in the file when this returns.

        Raises:
            AgentOwnsError: as `_attempt`.
            AllocationError: it cannot be had within `wait` seconds, or not at all.
        """
        from alignup.host.processes.identity import ancestors  # noqa: PLC0415  # startup counts

        request = replace(request, ancestors=ancestors(request.holder.pid))
        path, deadline = self._file.path, time.monotonic() + wait
        try:
            while True:
                stamp = _stamp(path)
                try:
                    return self._attempt(site, request, queues=True)
                except _QueuedError as refusal:
                    if time.monotonic() >= deadline:
                        raise AllocationError(f"{refusal.detail} (waited for {wait:g} s)", refusal.reason) from None
                look_again = min(deadline, time.monotonic() + _TRY)
                while _stamp(path) == stamp and (left := look_again - time.monotonic()) > 0:
                    time.sleep(min(left, _LOOK))
        except BaseException:
            with suppress(AlignupError), self._file.change() as change:
                change.leave(request.id)
            raise

    def _attempt(self, site: Site, request: LeaseRequest, *, queues: bool = False) -> LeaseRecord:
        """Return a lease; those of processes that are gone are reclaimed on the way.

        Raises:
            AgentOwnsError: an agent keeps the leases of the file, or takes its place.
            AllocationError: there is none now; a `_QueuedError` if it `queues`, and the request is in the queue.
            InputError: the file cannot be used or has leases of another machine, or the machine has no such part.
        """
        from alignup.host.leases.ledger import Ledger  # noqa: PLC0415  # startup counts
        from alignup.host.leases.users import Limits  # noqa: PLC0415  # as above
        from alignup.kubernetes.versions import NEWEST, parse_version  # noqa: PLC0415  # as above

        file, wanted = self._file, request.wanted
        # before the lock, which others wait for; a user has no limits on the own machine
        version = parse_version(wanted.kubelet_version, "kubelet_version") if wanted.kubelet_version else NEWEST
        ledger = Ledger(site, Limits(leases=None, waiting=None), request.uid, version)
        if wanted.part is not None:
            ledger.node.part_of(wanted)
        refused: AllocationError | None = None
        with file.change() as change:
            table, _ = living(change.table)
            check_machine(table, site.identity, file.path)
            _check_names(site, request, table.leases)
            ledger.restore(table.leases, table.waiting)
            try:
                ledger.ask(request)  # no plugin, no question
                lease = ledger.keep(request.id)
            except AllocationError as error:
                refused = error
                if queues:
                    ledger.join(request)
                    refused = _QueuedError(error.detail, error.reason)
            change.table = ledger.table()
            if refused is None and request.show is not None:
                request.show(lease, site.identity, file.path)
            # checked last: an agent looks for the leases that processes show once it serves, so that one of the two
            # sees the other
            if self._successor is not None and self._successor.exists():
                raise AgentOwnsError(str(file.path), str(self._successor))
        if refused is not None:
            raise refused
        return lease

    def give_back(self, lease: LeaseRecord) -> None:
        """End a lease, if it is still there; an agent may have taken over the file since it was given.

        Raises:
            InputError: that cannot be now; the lease ends with its processes.
        """
        try:
            self._drop(lease)
        except AgentOwnsError as error:
            self._agent(error).give_back(lease)
            return
        if self._successor is not None and self._successor.exists():
            # it has taken over what running processes had; if it has not, or cannot be asked, nothing is lost
            with suppress(AlignupError):
                self._agent(AgentOwnsError(str(self._file.path), str(self._successor))).give_back(lease)

    def _drop(self, lease: LeaseRecord) -> None:
        with self._file.change() as change:
            change.drop(lease.id)

    def overview(self) -> Leases:
        """Return all leases, and the queue.

        Raises:
            InputError: whoever keeps them cannot be asked.
        """
        table = self._file.read()
        known = tuple(KnownLease(lease, lease_liveness(lease).value) for lease in table.leases)
        return Leases(known, living(table)[0].waiting)

    def release(self, name: str, *, force: bool) -> KnownLease:
        """End a lease by its name, and return it as it was.

        Raises:
            AllocationError: there is none, or its process runs and `force` is not given.
            InputError: whoever keeps leases cannot be used.
        """
        with self._file.change() as change:
            found = next((lease for lease in change.table.leases if lease.name == name), None)
            lease, alive = check_release(found, name, force=force)
            change.drop(lease.id)
        return KnownLease(lease, alive.value)

    def parts(self, count: int, cpus_per_part: int, devices: Mapping[str, int]) -> tuple[KnownPart, ...]:
        """Return the machine, cut into equal parts.

        Raises:
            InputError: it cannot be cut so; the sentence says if this process may use only some of its CPUs.
        """
        from alignup.host.leases.lease_node import cut, notes  # noqa: PLC0415  # startup counts

        site = self._load_site([resource for resource, wanted in devices.items() if wanted])
        with errors_at(site.limit, "{error}; {where}" if site.limit else "{error}"):
            parts = cut(site, site.inventory, count, cpus_per_part, devices)
        for note in notes(site, parts):
            self._file.tell(note)
        return parts

    def _agent(self, error: AgentOwnsError) -> AgentSource:
        """Return the agent that has taken over the file."""
        from alignup.host.leases.agent_client import AgentSource  # noqa: PLC0415  # only where there is one

        return AgentSource(Path(error.socket), self._file.tell)


class _QueuedError(AllocationError):
    """Raised when a request cannot be met now, and is in the queue."""


def _check_names(site: Site, request: LeaseRequest, leases: Iterable[LeaseRecord]) -> None:
    """Reject other names for devices than those that leases have: one device may then go by two.

    Raises:
        InputError: a lease has a device of a resource that is asked for, and that is not among those known.
    """
    for resource in [one for one in request.wanted.devices if not one.startswith(CLAIM)]:
        known = {device.id for device in site.inventory.get(resource, ())}
        for lease in leases:
            strange = set(lease.devices.get(resource, ())) - known
            if strange:
                raise InputError(
                    f"expected devices of {resource} by the names under which lease {lease.name!r} has them "
                    f"({', '.join(sorted(strange))}), got others: use the same --device-resource or --devices"
                )


def _stamp(path: Path) -> tuple[int, int]:
    """Return what changes whenever the file does."""
    try:
        found = path.lstat()
    except OSError:
        return 0, 0
    return found.st_ino, found.st_mtime_ns


def _no_site(_resources: list[str]) -> Site:
    """Stand for a machine where none is needed."""
    raise NotImplementedError


def open_source(
    state: Path | None, tell: Callable[[str], None], load_site: Callable[[list[str]], Site] = _no_site, told: str = ""
) -> FileSource | AgentSource:
    """Return whoever keeps the leases.

    The agent that ALIGNUP_AGENT names, unless another file is asked for; for the default file that of the system; or
    the one that has taken over the file; or else the file.

    Args:
        state: the file of leases that was asked for; None: none was.
        tell: called with a sentence when something takes long, or a file is damaged.
        load_site: returns the machine, with the devices of some resources, where no agent has them.
        told: the options that say something about the machine or its devices, which an agent knows itself.

    Raises:
        InputError: the file cannot be read or trusted, or an agent is told about its machine.
    """
    named = os.environ.get(AGENT_VARIABLE)
    is_named = named is not None and (state is None or str(state) == os.environ.get(_STATE_VARIABLE))
    if is_named:
        socket = named or ""
    elif state is None and SYSTEM_SOCKET.exists():
        socket = str(SYSTEM_SOCKET)
    else:
        socket = LeaseFile(state, tell).agent()
    if not socket:
        return FileSource(LeaseFile(state, tell), load_site, SYSTEM_SOCKET if state is None else None)
    from alignup.host.leases.agent_client import AgentSource  # noqa: PLC0415  # only where there is one

    if told:
        raise InputError(f"{told} is for the agent at {socket}: start it again with that option")
    return AgentSource(Path(socket), tell, is_named=is_named)
