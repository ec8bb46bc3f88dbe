"""Gives leases from wherever they are kept: from the agent of this machine, or else from a file.

A file is a ledger (`ledger` beside this module) that is loaded, asked and stored under a lock, so
that both give the same and say the same. Where an agent keeps the leases, nothing is ever given
beside it, whether it runs or not: while it is started again, its clients ask again and again; the
same request gets the same lease. The agent's side is `alignup.host.agent.server`.
"""

from __future__ import annotations

import math
import os
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from alignup.errors import AlignupError, AllocationError, InputError, errors_at, system_reason
from alignup.host.leases import agent_messages as messages
from alignup.host.leases.evidence import check_release, lease_liveness, living
from alignup.host.leases.file import AgentOwnsError, LeaseFile, check_machine
from alignup.host.leases.record import LeaseRecord, Request, Seen, check_amounts
from alignup.host.leases.request import CLAIM, LeaseRequest
from alignup.host.parts.part import Part
from alignup.host.processes.identity import ancestors
from alignup.host.trusted_files import check_path, check_trusted, peer
from alignup.records import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager

    from alignup.host.leases.local_machine import Site

_STATE_VARIABLE: Final = "ALIGNUP_STATE"
# Where the agent of all users serves: who names no file of leases asks it, as soon as it is there.
SYSTEM_SOCKET: Final = Path("/run/alignup/agent.sock")
# Seconds between looks at whether the file has changed.
_LOOK: Final = 0.05
# Seconds between tries without a change: the end of a process that was killed changes no file.
_TRY: Final = 1.0
# Seconds for the agent to be there again; starting takes less than one.
_PATIENCE: Final = 5.0
_PAUSE: Final = 0.05
# Seconds for the answer to an ask, beyond those that it is willing to wait: device plugins may take
# some.
_ANSWER: Final = 120.0
# Seconds after which somebody at a terminal hears what is waited for.
_SILENCE: Final = 2.0
_NAME_IT: Final = f"to ask it all the same, name its socket in {messages.AGENT_VARIABLE}"
# Seconds; a socket knows no longer time than some centuries.
_LONGEST: Final = 1e8
# Seconds and microseconds.
_TIME: Final = struct.Struct("@ll")
_R = TypeVar("_R", bound="messages.Reply")


class AgentSource:
    """The leases that an agent keeps.

    Args:
        path: its socket.
        tell: called with a sentence if it is not there at once.
        patience: seconds to wait at least for an agent that is not there, and for answers that
            nothing but the agent takes time for; a request that would wait longer for a lease waits
            as long for the agent.
        is_named: the caller named this socket, and so believes whoever serves it; any other must be
            served by root or by this user, at a path where nobody else can put one.
    """

    def __init__(
        self,
        path: Path,
        tell: Callable[[str], None],
        patience: float = _PATIENCE,
        *,
        is_named: bool = False,
    ) -> None:
        self._path = path
        self._is_named = is_named
        self._tell = tell
        self._patience = patience
        self._has_said = False

        # The user who served the last exchange.
        self._server = os.geteuid()

    def prepare(self, request: Request, *, binds: bool) -> None:
        """See `FileSource`; what the agent does about a request it does when it is asked."""

    def acquire(self, request: LeaseRequest, wait: float | None = None) -> messages.Grant:
        """See `FileSource`."""
        seconds = wait or 0.0
        limit: float | None = seconds + _ANSWER
        patience = seconds
        if math.isinf(seconds):
            # as a message says it
            seconds = -1.0
            limit = None

        ask = messages.Ask(
            request.id,
            request.holder,
            request.command,
            request.name,
            request.keeper,
            wait=seconds,
            **msgspec.structs.asdict(request.demand),
        )
        grant = self._ask(ask, messages.Grant, limit, patience)
        check_amounts([grant.lease], str(self._path), grant.memory_nodes)
        if request.show is not None:
            request.show(grant.lease, grant.machine, Path(grant.state))
        for note in grant.notes:
            self._tell(note)

        is_own = self._server == os.geteuid()
        is_trusted = is_own or self._server == 0
        return msgspec.structs.replace(
            grant, agent=str(self._path), is_own=is_own, is_trusted=is_trusted
        )

    def give_back(self, lease: LeaseRecord) -> None:
        """See `FileSource`."""
        self._ask(messages.GiveBack(lease.id), messages.Done, self._patience)

    def overview(self) -> messages.Leases:
        """Return all leases, and the queue.

        Of other users it has what they hold and ask for, but not who they are.
        """
        return self._ask(messages.List(), messages.Leases, self._patience)

    def release(self, name: str, *, force: bool) -> messages.KnownLease:
        """See `FileSource`."""
        try:
            name.encode()
        except UnicodeEncodeError:  # no lease has such a name
            raise AllocationError(f"no lease has the name {name!r}: see `alignup ps`") from None

        lease = self._ask(messages.Release(name, force), messages.Done, self._patience).lease
        if lease is None:
            raise InputError("the agent did not say which lease was released")
        return messages.KnownLease(lease, lease_liveness(lease).value)

    def parts(
        self,
        count: int,
        cpus_per_part: int,
        devices: Mapping[str, int],
        seen: Mapping[str, Seen] | None = None,
    ) -> tuple[Part, ...]:
        """See `FileSource`; `seen` is `Request.seen`, which a file takes from its machine."""
        cut = messages.Cut(count, cpus_per_part, dict(devices), dict(seen or {}))
        parts = self._ask(cut, messages.Parts, self._patience).parts
        return tuple(
            Part(part.rank, part.cpus, part.numa_nodes, part.memory, part.devices, count, part.cuda)
            for part in parts
        )

    def _ask(
        self,
        request: messages.AnyRequest,
        kind: type[_R],
        limit: float | None,
        patience: float = 0.0,
    ) -> _R:
        """Return the agent's reply of a kind.

        Raises:
            AllocationError: it refuses.
            InputError: it is not there, does not answer, or says that the request cannot be.
        """
        reply = self._exchange(request, limit, max(patience, self._patience))
        if isinstance(reply, messages.Refused):
            raise AllocationError(reply.detail, reply.reason or "UnexpectedAdmissionError")
        if isinstance(reply, messages.Failed):
            raise InputError(reply.detail)
        if not isinstance(reply, kind):
            raise InputError(
                f"the agent at {self._path} answered with {type(reply).__name__}, which does not "
                "fit the request"
            )

        return reply

    def _exchange(
        self, request: messages.AnyRequest, limit: float | None, patience: float
    ) -> messages.Reply:
        """Send a request, again if the agent is started again meanwhile, and return the reply.

        Raises:
            InputError: there is none.
        """
        check_path(self._path, "the socket of the agent")
        if not self._is_named:
            check_trusted(self._path, "the agent's socket", f"; {_NAME_IT}")

        end = math.inf if limit is None else time.monotonic() + limit
        missing_since: float | None = None
        while True:
            try:
                return self._exchange_once(request, end)
            except (FileNotFoundError, ConnectionError, BlockingIOError):
                # the last if too many others wait for it
                now = time.monotonic()
                if missing_since is None:
                    missing_since = now
                    self._tell(f"waiting for the agent at {self._path}, which does not answer")

                if now - missing_since > patience or now > end:
                    raise self._missing("does not answer") from None
            except TimeoutError:
                trouble = "does not answer"
                if missing_since is None:
                    trouble = f"did not answer within {limit or 0:g} s"
                raise self._missing(trouble) from None
            except OSError as error:
                raise InputError(
                    f"cannot ask the agent: {system_reason(error)} at {self._path}"
                ) from None

            time.sleep(_PAUSE)

    def _exchange_once(self, request: messages.AnyRequest, end: float) -> messages.Reply:
        """Send a request and return the reply.

        Raises:
            OSError: the agent is not there, or has gone, or the time is over.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            self._send(connection, messages.frame(request), end)
            self._say_if_silent(connection, end)
            header = _received(connection, messages.HEADER, end)
            length = messages.length_of(header, messages.LARGEST_REPLY)
            return messages.decode_reply(_received(connection, length, end))

    def _send(self, connection: socket.socket, message: bytes, end: float) -> None:
        """Connect and send a message, which an agent that runs takes at once.

        Raises:
            InputError: it is not taken, or a user who is neither root nor this one serves a socket
                that nobody named.
            OSError: the agent is not there, or the time is over.
        """
        soon = time.monotonic() + self._patience
        try:
            seconds = _limit(connection, min(end, soon))
            # whoever finds many others before him waits in line with them, as only a call that
            # blocks does
            connection.settimeout(None)
            time_limit = _TIME.pack(int(seconds), int(seconds % 1 * 1e6))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, time_limit)
            connection.connect(str(self._path))

            _limit(connection, min(end, soon))
            _, self._server = peer(connection)
            if not self._is_named and self._server not in {0, os.geteuid()}:
                trouble = (
                    f"the agent at {self._path} is not trusted: user {self._server} serves "
                    f"it; {_NAME_IT}"
                )
                raise InputError(trouble)

            connection.sendall(message)
        except TimeoutError:
            if soon > end:
                raise
            raise self._missing(f"took no request within {self._patience:g} s") from None

    def _say_if_silent(self, connection: socket.socket, end: float) -> None:
        """Say at a terminal what is waited for if no answer comes soon.

        Raises:
            OSError: the agent has gone.
        """
        soon = time.monotonic() + _SILENCE
        if self._has_said or soon >= end or sys.stderr is None or not sys.stderr.isatty():
            return

        try:
            _limit(connection, soon)
            connection.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            self._has_said = True
            self._tell(f"waiting for the agent at {self._path} to answer")

    def _missing(self, trouble: str) -> InputError:
        return InputError(
            f"the agent that keeps the leases of this machine {trouble} at {self._path}: start it "
            "again, or take the "
            "leases back with `alignup agent --hand-back --state FILE`, the file that it was "
            "started with"
        )


def _received(connection: socket.socket, count: int, end: float) -> bytes:
    """Return so many bytes.

    Raises:
        OSError: the other end is gone, or the time is over.
    """
    data = bytearray()
    while len(data) < count:
        _limit(connection, end)
        chunk = connection.recv(min(count - len(data), 1 << 20))
        if not chunk:
            raise ConnectionResetError
        data += chunk

    return bytes(data)


def _limit(connection: socket.socket, end: float) -> float:
    """Let the next call on a connection fail at a time; return how many seconds that leaves.

    Raises:
        TimeoutError: it is over.
    """
    seconds = end - time.monotonic()
    if seconds <= 0:
        raise TimeoutError

    connection.settimeout(None if seconds > _LONGEST else seconds)
    return min(seconds, _LONGEST)


class FileSource:
    """Leases in a file.

    Args:
        file: the file.
        load_site: returns the machine, with the devices of some resources; not called before it is
            needed.
        successor: the socket of the agent that takes the place of the file as soon as it is there;
            None: none does.
    """

    def __init__(
        self, file: LeaseFile, load_site: Callable[[list[str]], Site], successor: Path | None = None
    ) -> None:
        self._file = file
        self._successor = successor
        self._load_site = load_site
        self._site: Site | None = None

    def prepare(self, request: Request, *, binds: bool) -> None:
        """Do what can be done for a request before its process is there.

        Raises:
            InputError: the request is invalid, or processes are to be bound to another machine than
                that at hand.
        """
        self._site = self._load_site(list(request.devices))
        if binds and not self._site.is_here:
            raise InputError(
                "processes can be bound to this machine only: --machine needs --no-bind"
            )

    def acquire(self, request: LeaseRequest, wait: float | None = None) -> messages.Grant:
        """Return what is requested; it is on record when this returns.

        Args:
            request: what is wanted, and by which process.
            wait: how many seconds to wait at most until it can be had, in order of arrival; None:
                not at all.

        Raises:
            AllocationError: it cannot be had now, or not within that time.
            InputError: whoever keeps leases cannot be used, or the request is invalid.
        """
        site = self._site or self._load_site(list(request.demand.devices))
        if site.seen:
            demand = msgspec.structs.replace(request.demand, seen=dict(site.seen))
            request = replace(request, demand=demand)
        try:
            lease = self._waited_for(site, request, wait)
        except AgentOwnsError as error:
            return self._agent(error).acquire(request, wait)

        try:
            return site.grant(lease, site.inventory, self._file.path)
        except InputError:
            self._drop(lease.id)
            raise

    def _waited_for(self, site: Site, request: LeaseRequest, wait: float | None) -> LeaseRecord:
        """Return the lease of a request when it can be had; it is in the file when this returns.

        Raises:
            AgentOwnsError: as `_attempt`.
            AllocationError: it cannot be had now, or not within `wait` seconds, or not at all.
        """
        if wait is None:
            return self._attempt(site, request)

        request = replace(request, ancestors=ancestors(request.holder.pid))
        path = self._file.path
        deadline = time.monotonic() + wait
        try:
            while True:
                stamp = _stamp(path)
                try:
                    return self._attempt(site, request, queues=True)
                except _QueuedError as refusal:
                    if time.monotonic() >= deadline:
                        raise AllocationError(
                            f"{refusal.detail} (waited for {wait:g} s)", refusal.reason
                        ) from None

                look_again = min(deadline, time.monotonic() + _TRY)
                while _stamp(path) == stamp and (pause := look_again - time.monotonic()) > 0:
                    time.sleep(min(pause, _LOOK))
        except BaseException:
            with suppress(AlignupError):
                self._drop(request.id)
            raise

    def _attempt(self, site: Site, request: LeaseRequest, *, queues: bool = False) -> LeaseRecord:
        """Return a lease; those of processes that are gone are reclaimed on the way.

        Raises:
            AgentOwnsError: an agent keeps the leases of the file, or takes its place.
            AllocationError: there is none now; a `_QueuedError` if it `queues`, and the request is
                in the queue.
            InputError: the file cannot be used or has leases of another machine, or the machine has
                no such part.
        """
        from alignup.host.leases.ledger import Ledger  # noqa: PLC0415  # startup counts
        from alignup.host.leases.users import Limits  # noqa: PLC0415  # as above
        from alignup.kubernetes.versions import NEWEST, parse_version  # noqa: PLC0415  # as above

        file = self._file
        demand = request.demand
        version = NEWEST
        if demand.kubelet_version:
            version = parse_version(demand.kubelet_version, "kubelet_version")

        # before the lock, which others wait for; a user has no limits on the own machine
        ledger = Ledger(site, Limits(leases=None, waiting=None), request.uid, version)
        if demand.part is not None:
            with _names_limit(site):
                ledger.node.part_of(demand)

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

            # checked last: an agent looks for the leases that processes show once it serves, so
            # that one of the two sees the other
            if self._successor is not None and self._successor.exists():
                raise AgentOwnsError(str(file.path), str(self._successor))

        if refused is not None:
            raise refused

        return lease

    def give_back(self, lease: LeaseRecord) -> None:
        """End a lease, if it is still there.

        An agent may have taken over the file since it was given.

        Raises:
            InputError: that cannot be now; the lease ends with its processes.
        """
        try:
            self._drop(lease.id)
        except AgentOwnsError as error:
            self._agent(error).give_back(lease)
            return

        if self._successor is not None and self._successor.exists():
            # it has taken over what running processes had; if it has not, or cannot be asked,
            # nothing is lost
            owner = AgentOwnsError(str(self._file.path), str(self._successor))
            with suppress(AlignupError):
                self._agent(owner).give_back(lease)

    def _drop(self, lease_id: str) -> None:
        with self._file.change() as change:
            change.drop(lease_id)

    def overview(self) -> messages.Leases:
        """Return all leases, and the queue.

        Raises:
            InputError: whoever keeps them cannot be asked.
        """
        table = self._file.read()
        leases = tuple(
            messages.KnownLease(lease, lease_liveness(lease).value) for lease in table.leases
        )
        return messages.Leases(leases, living(table)[0].waiting)

    def release(self, name: str, *, force: bool) -> messages.KnownLease:
        """End a lease by its name, and return it as it was.

        Raises:
            AllocationError: there is none, or its process runs and `force` is not given.
            InputError: whoever keeps leases cannot be used.
        """
        with self._file.change() as change:
            named = next((lease for lease in change.table.leases if lease.name == name), None)
            lease, alive = check_release(named, name, force=force)
            change.drop(lease.id)

        return messages.KnownLease(lease, alive.value)

    def parts(self, count: int, cpus_per_part: int, devices: Mapping[str, int]) -> tuple[Part, ...]:
        """Return the machine, cut into equal parts.

        Raises:
            InputError: it cannot be cut so; the sentence says if this process may use only some of
                its CPUs.
        """
        from alignup.host.leases.lease_node import cut, notes  # noqa: PLC0415  # startup counts

        site = self._load_site([resource for resource, number in devices.items() if number])
        with _names_limit(site):
            parts = cut(site, site.inventory, count, cpus_per_part, devices)

        for note in notes(site, parts):
            self._file.tell(note)

        return parts

    def _agent(self, error: AgentOwnsError) -> AgentSource:
        """Return the agent that has taken over the file."""
        return AgentSource(Path(error.socket), self._file.tell)


def _names_limit(site: Site) -> AbstractContextManager[None]:
    """Say behind an error which CPUs this process may use, if these are not all."""
    return errors_at(site.limit, "{error}; {where}" if site.limit else "{error}")


class _QueuedError(AllocationError):
    """Raised when a request cannot be met now, and is in the queue."""


def _check_names(site: Site, request: LeaseRequest, leases: Iterable[LeaseRecord]) -> None:
    """Reject other names for devices than those that leases have: one device may then go by two.

    Raises:
        InputError: a lease has a device of a resource that is asked for, and that is not among
            those known.
    """
    for resource in request.demand.devices:
        if resource.startswith(CLAIM):
            continue

        ids = {device.id for device in site.inventory.get(resource, ())}
        for lease in leases:
            strange_ids = set(lease.devices.get(resource, ())) - ids
            if strange_ids:
                raise InputError(
                    f"expected devices of {resource} by the names under which lease "
                    f"{lease.name!r} has them "
                    f"({', '.join(sorted(strange_ids))}), got others: use the same "
                    "--device-resource or --devices"
                )


def _stamp(path: Path) -> tuple[int, int]:
    """Return what changes whenever the file does."""
    try:
        status = path.lstat()
    except OSError:
        return 0, 0
    return status.st_ino, status.st_mtime_ns


def _no_site(_resources: list[str]) -> Site:
    """Stand for a machine where none is needed."""
    raise NotImplementedError


def open_source(
    state: Path | None,
    tell: Callable[[str], None],
    load_site: Callable[[list[str]], Site] = _no_site,
    machine_options: str = "",
) -> FileSource | AgentSource:
    """Return whoever keeps the leases.

    The agent that ALIGNUP_AGENT names, unless another file is asked for; for the default file that
    of the system; or the one that has taken over the file; or else the file.

    Args:
        state: the file of leases that was asked for; None: none was.
        tell: called with a sentence when something takes long, or a file is damaged.
        load_site: returns the machine, with the devices of some resources, where no agent has them.
        machine_options: the options that say something about the machine or its devices, which an
            agent knows itself.

    Raises:
        InputError: the file cannot be read or trusted, or an agent is told about its machine.
    """
    named_socket = os.environ.get(messages.AGENT_VARIABLE)
    is_named = named_socket is not None and (
        state is None or str(state) == os.environ.get(_STATE_VARIABLE)
    )
    if is_named:
        agent = named_socket or ""
    elif state is None and SYSTEM_SOCKET.exists():
        agent = str(SYSTEM_SOCKET)
    else:
        agent = LeaseFile(state, tell).agent()

    if not agent:
        successor = SYSTEM_SOCKET if state is None else None
        return FileSource(LeaseFile(state, tell), load_site, successor)

    if machine_options:
        raise InputError(
            f"{machine_options} is for the agent at {agent}: start it again with that option"
        )

    return AgentSource(Path(agent), tell, is_named=is_named)
