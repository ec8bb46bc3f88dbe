"""Serves the agent on a unix socket.

It knows who calls, frames and bounds messages, and waits for nobody. What is asked for is carried
out by `alignup.host.agent.service`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import shutil
import socket
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from alignup.errors import InputError, system_errors
from alignup.host.leases.agent_messages import (
    HEADER,
    LARGEST_REQUEST,
    Failed,
    decode_request,
    frame,
    length_of,
)
from alignup.host.processes.callers import Caller
from alignup.host.trusted_files import check_free, make_folders

if TYPE_CHECKING:
    from pathlib import Path

    from alignup.host.agent.service import Service

_LOG: Final = logging.getLogger(__name__)
# Of all users but root; with few descriptors a quarter of these. Root's own end at half.
_MOST_CONNECTIONS: Final = 4096
_MOST_OF_A_USER: Final = 512
# Seconds for the rest of a message, and for a reply to be taken.
_PATIENCE: Final = 5.0
_BACKLOG: Final = 64
_AT_ONCE: Final = 16
_LOGGED_EVERY: Final = 1.0
_MODE: Final = 0o660


class AgentServer:
    """The socket of the agent.

    Args:
        path: the socket; what is left of an earlier one is replaced, and nothing else.
        group: the group that may connect, by name; empty: that of the process.
        service: carries out requests.
    """

    def __init__(self, path: Path, group: str, service: Service) -> None:
        self._path = path
        self._group = group
        self._service = service
        self._server: asyncio.Server
        self._connections: set[_Connection] = set()
        self._of_user = Counter[int]()
        self._last = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        # Connections by user that were refused since that was logged last.
        self._refused = Counter[int]()

    async def start(self) -> None:
        """Serve from now on.

        Few connections are taken in one turn of the loop, so that a flood keeps nobody else
        waiting.

        Raises:
            InputError: the socket cannot be made, or there is something else, or somebody serves
                it.
        """
        with system_errors("cannot serve a socket", self._path, LookupError):
            listening = self._listen()

        make_connection = partial(_Connection, self, self._service)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(make_connection, sock=listening, backlog=_AT_ONCE)
        listening.listen(_BACKLOG)

    async def stop(self) -> None:
        """Serve no longer.

        The socket stays, so that commands know that there is an agent, which does not answer.
        """
        self._server.close()
        self._service.is_closing = True
        await asyncio.gather(*(connection.end() for connection in list(self._connections)))

    def admit(self, connection: _Connection) -> bool:
        """Count a connection; return False if its user may have no more.

        Root and the agent's own user are refused last.
        """
        uid = connection.caller.uid
        is_ours = uid in {0, os.geteuid()}
        if is_ours:
            is_full = len(self._connections) >= self._last
        else:
            limit = min(_MOST_CONNECTIONS, self._last // 2)
            is_full = len(self._connections) >= limit or self._of_user[uid] >= _MOST_OF_A_USER

        if is_full:
            if not self._refused:
                asyncio.get_running_loop().call_later(_LOGGED_EVERY, self._log_refused)
            self._refused[uid] += 1
            return False

        self._connections.add(connection)
        self._of_user[uid] += 1
        return True

    def _log_refused(self) -> None:
        refused, self._refused = self._refused, Counter()
        counts = ", ".join(f"{count} of user {uid}" for uid, count in refused.most_common(8))
        _LOG.warning("connections were refused, since there are too many: %s", counts)

    def forget(self, connection: _Connection) -> None:
        """Count a connection no longer."""
        if connection in self._connections:
            self._connections.discard(connection)
            self._of_user -= Counter([connection.caller.uid])  # which leaves no zeros

    def _listen(self) -> socket.socket:
        """Return a socket that listens at the path, in the place of one that was left there."""
        check_free(self._path, "--socket")
        make_folder(self._path, self._group)
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(str(draft))
            if self._group:
                shutil.chown(draft, group=self._group)
            draft.chmod(_MODE)
            listening.listen(_BACKLOG)
            # in one step: no command finds no socket
            draft.replace(self._path)
        except BaseException:
            listening.close()
            draft.unlink(missing_ok=True)
            raise

        return listening


def make_folder(path: Path, group: str) -> None:
    """Make the folder of a socket, if it is not there.

    A folder that a group may use has to let it through.

    Raises:
        OSError: it cannot be made.
    """
    make_folders(path.parent, 0o711 if group else 0o700)


class _Connection(asyncio.Protocol):
    """One user's connection: one request at a time.

    The next is carried out when the reply has been taken.
    """

    def __init__(self, server: AgentServer, service: Service) -> None:
        self._server = server
        self._service = service
        self._buffer = bytearray()
        self._transport: asyncio.Transport
        # It carries out a request.
        self._work: asyncio.Task[None] | None = None
        # What has been sent is not taken.
        self._is_unread = False
        # They end the connection if a message does not become whole (`reading`), or replies are not
        # taken.
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.caller: Caller

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  # of a stream
        self._transport = transport
        self.caller = Caller(transport.get_extra_info("socket"))
        if not self._server.admit(self):
            transport.abort()

        # one reply is kept for whoever does not read, and no second one is made
        transport.set_write_buffer_limits(high=0)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio's signature
        self._server.forget(self)
        self._stop_timer("reading")
        self._stop_timer("writing")
        if self._work is not None:
            self._work.cancel()

    def pause_writing(self) -> None:
        self._is_unread = True
        self._start_timer("writing")

    def resume_writing(self) -> None:
        self._is_unread = False
        self._stop_timer("writing")
        self._next_request()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        # abort, and do not buffer without bound; a paused reader would not see the end of the
        # connection
        if self._holds_too_much():
            self._transport.abort()
        else:
            self._next_request()

    async def end(self) -> None:
        """End the connection at once, and what is carried out for it."""
        self._transport.abort()
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait([self._work])

    def _holds_too_much(self) -> bool:
        """Return whether there is more than the request that is carried out, and another one."""
        end = self._end_of_message(0)
        if self._work is None and not self._is_unread:
            end = self._end_of_message(end)
        return len(self._buffer) > end

    def _end_of_message(self, start: int) -> int:
        """Return where a message in the buffer ends at the latest."""
        header = self._buffer[start : start + HEADER]
        length = int.from_bytes(header, "big") if len(header) == HEADER else LARGEST_REQUEST
        return start + HEADER + min(length, LARGEST_REQUEST)

    def _next_request(self) -> None:
        """Carry out a request, in a turn of its own.

        Do nothing if no whole one is there, or something else is under way.
        """
        if self._work is not None or self._is_unread or not self._buffer:
            return

        length = LARGEST_REQUEST
        try:
            if len(self._buffer) >= HEADER:
                length = length_of(self._buffer, LARGEST_REQUEST)
        except InputError as error:
            self._buffer.clear()
            self._transport.write(frame(Failed(str(error))))
            self._transport.close()
            return

        if len(self._buffer) >= HEADER + length:
            text = bytes(self._buffer[HEADER : HEADER + length])
            del self._buffer[: HEADER + length]
            self._stop_timer("reading")
            self._work = asyncio.get_running_loop().create_task(self._carry_out(text))
        elif "reading" not in self._timers and not self._transport.is_closing():
            self._start_timer("reading")

    async def _carry_out(self, text: bytes) -> None:
        """Answer a request, and go on with the next one."""
        try:
            message = frame(await self._service.handle(decode_request(text), self.caller))
        except InputError as error:  # it is no request, or the reply has what no message can hold
            message = frame(Failed(str(error)))

        self._work = None
        self._transport.write(message)
        self._next_request()

    def _start_timer(self, name: str) -> None:
        self._timers[name] = asyncio.get_running_loop().call_later(_PATIENCE, self._transport.abort)

    def _stop_timer(self, name: str) -> None:
        if name in self._timers:
            self._timers.pop(name).cancel()
