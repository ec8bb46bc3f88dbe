"""Serves the agent on a unix socket: knows who calls, frames and bounds messages, and waits for nobody.

What is asked for is carried out by `alignup.host.agent.service`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
from collections import Counter
from typing import TYPE_CHECKING, Final

from alignup.errors import InputError, system_errors, system_reason
from alignup.host.leases.agent_messages import HEADER, LARGEST_REQUEST, Failed, Reply, decode_request, frame, length_of
from alignup.host.processes.callers import Caller
from alignup.host.trusted_files import check_free, make_folders

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from alignup.host.agent.service import Service

_LOG: Final = logging.getLogger(__name__)
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
        self._listening: socket.socket | None = None
        self._connections: set[_Connection] = set()
        self._beginning: set[asyncio.Task[None]] = set()
        self._of_user = Counter[int]()
        # Connections by user that were refused since that was logged last.
        self._refused = Counter[int]()

    async def start(self) -> None:
        """Serve from now on.

        Raises:
            InputError: the socket cannot be made, or there is something else, or somebody serves it.
        """
        with system_errors("cannot serve a socket", self._path, LookupError):
            self._listening = self._listen()
        asyncio.get_running_loop().add_reader(self._listening, self._accept, self._listening)

    async def stop(self) -> None:
        """Serve no longer; the socket stays, so that commands know that there is an agent, which does not answer."""
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)

    def _accept(self, listening: socket.socket) -> None:
        """Take connections: so few in one turn of the loop that a flood of them keeps nobody else waiting for long.

        Who is over a limit is turned away before anything is made for them.
        """
        loop = asyncio.get_running_loop()
        for _ in range(_AT_ONCE):
            try:
                connection, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptors are left
                _LOG.error("no connection can be taken: %s", system_reason(error))  # a sentence is enough
                loop.remove_reader(listening)
                loop.call_later(_LOGGED_EVERY, self._accept_again)
                return
            caller = Caller(connection)
            if not self._admits(caller.uid):
                connection.close()
                continue
            connection.setblocking(False)
            made = _Connection(self, self._service, caller)
            self._connections.add(made)
            self._of_user[caller.uid] += 1
            beginning = loop.create_task(self._begin(made, connection))
            self._beginning.add(beginning)
            beginning.add_done_callback(self._beginning.discard)

    async def _begin(self, made: _Connection, connection: socket.socket) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(lambda: made, connection)

    def _accept_again(self) -> None:
        if self._listening is not None:
            asyncio.get_running_loop().add_reader(self._listening, self._accept, self._listening)

    def _admits(self, uid: int) -> bool:
        """Return whether a user may have one more connection; root and the agent's own user always may."""
        is_full = len(self._connections) >= _MOST_CONNECTIONS or self._of_user[uid] >= _MOST_OF_A_USER
        if is_full and uid not in {0, os.geteuid()}:
            if not self._refused:
                asyncio.get_running_loop().call_later(_LOGGED_EVERY, self._log_refused)
            self._refused[uid] += 1
            return False
        return True

    def _log_refused(self) -> None:
        refused, self._refused = self._refused, Counter()
        words = ", ".join(f"{count} of user {uid}" for uid, count in refused.most_common(8))
        _LOG.warning("connections were refused, since there are too many: %s", words)

    def forget(self, connection: _Connection) -> None:
        """Count a connection no longer."""
        if connection in self._connections:
            self._connections.discard(connection)
            self._of_user -= Counter([connection.uid])  # which leaves no zeros

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
        listening.setblocking(False)
        return listening


def make_folder(path: Path, group: str) -> None:
    """Make the folder of a socket, if it is not there; one that a group may use has to let it through.

    Raises:
        OSError: it cannot be made.
    """
    make_folders(path.parent, 0o711 if group else 0o700)


class _Connection(asyncio.Protocol):
    """One user's connection: one request at a time, the next is read when the reply has been taken.

    Each request has a turn of the event loop of its own, so that others come in between.
    """

    def __init__(self, server: AgentServer, service: Service, caller: Caller) -> None:
        self._server = server
        self._service = service
        self._buffer = bytearray()
        self._transport: asyncio.Transport
        # A request is carried out, or waits for the next turn of the event loop.
        self._is_busy = False
        # What has been sent is not taken.
        self._is_unread = False
        self._is_lost = False
        self._give_up: Callable[[], object] | None = None
        # They end the connection if a message does not become whole (`reading`), or replies are not taken.
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._caller = caller
        self.uid = caller.uid

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  # of a stream
        self._transport = transport
        # one reply is kept for whoever does not read, and no second one is made
        transport.set_write_buffer_limits(high=0)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio's signature
        self._is_lost = True
        self._server.forget(self)
        self._stop_timer("reading")
        self._stop_timer("writing")
        if self._give_up is not None:
            self._give_up()

    def pause_writing(self) -> None:
        self._is_unread = True
        self._start_timer("writing")

    def resume_writing(self) -> None:
        self._is_unread = False
        self._stop_timer("writing")
        self._go_on()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        # abort, and do not buffer without bound; a paused reader would not see the end of the connection
        if self._holds_too_much():
            self._transport.abort()
        elif not self._is_busy and not self._is_unread:
            self._next_request()

    def abort(self) -> None:
        """End the connection at once."""
        self._transport.abort()

    def _holds_too_much(self) -> bool:
        """Return whether there is more than the request that is carried out, and another one."""
        end = self._end_of_message(0)
        if not (self._is_busy or self._is_unread):
            end = self._end_of_message(end)
        return len(self._buffer) > end

    def _end_of_message(self, start: int) -> int:
        """Return where a message in the buffer ends at the latest."""
        header = self._buffer[start : start + HEADER]
        length = int.from_bytes(header, "big") if len(header) == HEADER else LARGEST_REQUEST
        return start + HEADER + min(length, LARGEST_REQUEST)

    def _next_request(self) -> None:
        """Carry out a request, if a whole one is there."""
        self._is_busy = False
        if self._is_lost or len(self._buffer) < HEADER:
            self._expect_the_rest()
            return
        try:
            length = length_of(self._buffer, LARGEST_REQUEST)
        except InputError as error:
            self._buffer.clear()
            self._transport.write(frame(Failed(str(error))))
            self._transport.close()
            return
        if len(self._buffer) < HEADER + length:
            self._expect_the_rest()
            return
        text = bytes(self._buffer[HEADER : HEADER + length])
        del self._buffer[: HEADER + length]
        self._stop_timer("reading")
        self._is_busy = True
        self._carry_out(text)

    def _carry_out(self, text: bytes) -> None:
        try:
            request = decode_request(text)
        except InputError as error:
            self._reply(Failed(str(error)))
            return
        give_up = self._service.handle(request, self._caller, self._reply)
        if self._is_busy:
            self._give_up = give_up

    def _reply(self, reply: Reply) -> None:
        """Send a reply, and go on with the next request."""
        self._give_up = None
        self._is_busy = False
        if self._is_lost:
            return
        try:
            message = frame(reply)
        except InputError as error:  # it names what no message can hold
            message = frame(Failed(str(error)))
        self._transport.write(message)
        self._go_on()

    def _go_on(self) -> None:
        """Look at the next request in the next turn of the event loop, unless there is none or it has to wait."""
        if self._buffer and not self._is_busy and not self._is_unread:
            self._is_busy = True
            asyncio.get_running_loop().call_soon(self._next_request)

    def _expect_the_rest(self) -> None:
        """Give whoever has begun a message some time for the rest of it."""
        if self._buffer and "reading" not in self._timers and not self._is_lost:
            self._start_timer("reading")

    def _start_timer(self, what: str) -> None:
        self._timers[what] = asyncio.get_running_loop().call_later(_PATIENCE, self._transport.abort)

    def _stop_timer(self, what: str) -> None:
        if what in self._timers:
            self._timers.pop(what).cancel()
