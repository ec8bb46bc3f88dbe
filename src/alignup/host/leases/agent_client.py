"""Asks the agent for leases, in the place of a file: the agent's side is `alignup.host.agent.server`.

While the agent is started again, its clients ask again and again; the same request gets the same lease.
"""

from __future__ import annotations

import math
import os
import socket
import struct
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from alignup.errors import AllocationError, InputError, system_reason
from alignup.host.leases import agent_messages as messages
from alignup.host.leases.evidence import lease_liveness
from alignup.host.leases.record import LeaseRecord, check_amounts
from alignup.host.trusted_files import check_path, check_trusted, peer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from alignup.host.leases.record import Request
    from alignup.host.leases.request import LeaseRequest

# Seconds for the agent to be there again; starting takes less than one.
_PATIENCE: Final = 5.0
_PAUSE: Final = 0.05
# Seconds for the answer to an ask, beyond those that it is willing to wait: device plugins may take some.
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
        patience: seconds to wait at least for an agent that is not there, and for answers that nothing but the agent
            takes time for; a request that would wait longer for a lease waits as long for the agent.
        is_named: the caller named this socket, and so believes whoever serves it; any other must be served by root or
            by this user, at a path where nobody else can put one.
    """

    def __init__(
        self, path: Path, tell: Callable[[str], None], patience: float = _PATIENCE, *, is_named: bool = False
    ) -> None:
        self._path = path
        self._is_named = is_named
        # The user who served the last exchange.
        self._server = os.geteuid()
        self._tell = tell
        self._patience = patience
        self._has_said = False

    def prepare(self, wanted: Request, *, binds: bool) -> None:
        """See `FileSource`; what the agent does about a request it does when it is asked."""

    def acquire(self, request: LeaseRequest, wait: float | None = None) -> messages.Grant:
        """See `FileSource`."""
        endless = wait is not None and math.isinf(wait)
        who = (request.id, request.holder, request.command, request.name, request.keeper)
        ask = messages.Ask(*who, wait=-1.0 if endless else wait or 0.0, **msgspec.structs.asdict(request.wanted))
        patience = math.inf if endless else wait or 0.0
        found = self._ask(ask, messages.Grant, None if endless else patience + _ANSWER, patience)
        check_amounts([found.lease], str(self._path), found.memory_nodes)
        if request.show is not None:
            request.show(found.lease, found.machine, Path(found.state))
        is_own = self._server == os.geteuid()
        return msgspec.structs.replace(
            found, agent=str(self._path), is_own=is_own, is_trusted=is_own or self._server == 0
        )

    def give_back(self, lease: LeaseRecord) -> None:
        """See `FileSource`."""
        self._ask(messages.GiveBack(lease.id), messages.Done, self._patience)

    def overview(self) -> messages.Leases:
        """Return all leases, and the queue; of other users what they hold and ask for, but not who they are."""
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

    def parts(self, count: int, cpus_per_part: int, devices: Mapping[str, int]) -> tuple[messages.KnownPart, ...]:
        """See `FileSource`."""
        return self._ask(messages.Cut(count, cpus_per_part, dict(devices)), messages.Parts, self._patience).parts

    def _ask(self, request: messages.AnyRequest, kind: type[_R], limit: float | None, patience: float = 0.0) -> _R:
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
                f"the agent at {self._path} answered with {type(reply).__name__}, which does not fit the request"
            )
        return reply

    def _exchange(self, request: messages.AnyRequest, limit: float | None, patience: float) -> messages.Reply:
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
            except (FileNotFoundError, ConnectionError, BlockingIOError):  # the last if too many others wait for it
                now = time.monotonic()
                if missing_since is None:
                    missing_since = now
                    self._tell(f"waiting for the agent at {self._path}, which does not answer")
                if now - missing_since > patience or now > end:
                    raise self._missing("does not answer") from None
            except TimeoutError:
                late = "does not answer" if missing_since is not None else f"did not answer within {limit or 0:g} s"
                raise self._missing(late) from None
            except OSError as error:
                raise InputError(f"cannot ask the agent: {system_reason(error)} at {self._path}") from None
            time.sleep(_PAUSE)

    def _exchange_once(self, request: messages.AnyRequest, end: float) -> messages.Reply:
        """Send a request and return the reply.

        Raises:
            OSError: the agent is not there, or has gone, or the time is over.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            self._send(connection, messages.frame(request), end)
            self._say_if_silent(connection, end)
            length = messages.length_of(_received(connection, messages.HEADER, end), messages.LARGEST_REPLY)
            return messages.decode_reply(_received(connection, length, end))

    def _send(self, connection: socket.socket, message: bytes, end: float) -> None:
        """Connect and send a message, which an agent that runs takes at once.

        Raises:
            InputError: it is not taken, or a user who is neither root nor this one serves a socket that nobody named.
            OSError: the agent is not there, or the time is over.
        """
        soon = time.monotonic() + self._patience
        try:
            left = _limit(connection, min(end, soon))
            # whoever finds many others before him waits in line with them, as only a call that blocks does
            connection.settimeout(None)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIME.pack(int(left), int(left % 1 * 1e6)))
            connection.connect(str(self._path))
            _limit(connection, min(end, soon))
            _, self._server = peer(connection)
            if not self._is_named and self._server not in {0, os.geteuid()}:
                trouble = f"the agent at {self._path} is not trusted: user {self._server} serves it; {_NAME_IT}"
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

    def _missing(self, what: str) -> InputError:
        return InputError(
            f"the agent that keeps the leases of this machine {what} at {self._path}: start it again, or take the "
            "leases back with `alignup agent --hand-back --state FILE`, the file that it was started with"
        )


def _received(connection: socket.socket, count: int, end: float) -> bytes:
    """Return so many bytes.

    Raises:
        OSError: the other end is gone, or the time is over.
    """
    data = bytearray()
    while len(data) < count:
        _limit(connection, end)
        part = connection.recv(min(count - len(data), 1 << 20))
        if not part:
            raise ConnectionResetError
        data += part
    return bytes(data)


def _limit(connection: socket.socket, end: float) -> float:
    """Let the next call on a connection fail at a time; return how many seconds are left.

    Raises:
        TimeoutError: it is over.
    """
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    connection.settimeout(None if left > _LONGEST else left)
    return min(left, _LONGEST)
