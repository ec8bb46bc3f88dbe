"""Connections are counted, messages framed and bounded, and nobody waits for anybody else."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import asynccontextmanager

import pytest

from alignup.errors import InputError
from alignup.host.agent import server as module
from alignup.host.agent.server import AgentServer
from alignup.host.leases.agent_messages import (
    HEADER,
    LARGEST_REQUEST,
    Cut,
    Done,
    Failed,
    List,
    decode_reply,
    frame,
)
from fakes.device_plugins import LONG, short_folder


class Service:
    """Answers a list at once, and a cut when it is told to."""

    def __init__(self):
        self.asked = []
        self.replies = []
        self.given_up = 0

    async def handle(self, request, caller):
        self.asked.append((request, caller.uid))
        if isinstance(request, List):
            return Done()
        reply = asyncio.get_running_loop().create_future()
        self.replies.append(reply.set_result)
        try:
            return await reply
        except asyncio.CancelledError:
            self.given_up += 1
            raise


@pytest.fixture
def path():
    with short_folder() as folder:
        yield folder / "a.sock"


@asynccontextmanager
async def serving(path, service):
    server = AgentServer(path, "", service)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def connected(path):
    return await asyncio.wait_for(asyncio.open_unix_connection(path), LONG)


async def answer(reader):
    header = await asyncio.wait_for(reader.readexactly(HEADER), LONG)
    return decode_reply(
        await asyncio.wait_for(reader.readexactly(int.from_bytes(header, "big")), LONG)
    )


async def is_closed(reader):
    try:
        return await asyncio.wait_for(reader.read(), LONG) == b""
    except ConnectionError:
        return True


async def until(holds):
    for _ in range(int(LONG * 1000)):
        if holds():
            return
        await asyncio.sleep(0.001)
    pytest.fail("it never came")


def test_one_request_of_a_connection_at_a_time(path):
    """The next one is carried out when the reply is out; those of others meanwhile."""

    async def work():
        service = Service()
        async with serving(path, service):
            reader, writer = await connected(path)
            writer.write(frame(Cut(1)) + frame(List()))
            await until(lambda: service.replies)

            second_reader, second_writer = await connected(path)
            second_writer.write(frame(List()))
            assert await answer(second_reader) == Done()
            assert [request for request, _ in service.asked] == [Cut(1), List()]

            service.replies[0](Failed("x"))
            assert [await answer(reader), await answer(reader)] == [Failed("x"), Done()]
            assert {uid for _, uid in service.asked} == {os.geteuid()}
            for stream in (writer, second_writer):
                stream.close()

    asyncio.run(work())


def test_a_request_may_come_in_pieces(path):
    async def work():
        async with serving(path, Service()):
            reader, writer = await connected(path)
            for byte in frame(List()):
                writer.write(bytes([byte]))
                await asyncio.sleep(0.001)
            assert await answer(reader) == Done()
            writer.close()

    asyncio.run(work())


@pytest.mark.parametrize("part", [1, HEADER + 2])
def test_a_message_that_is_never_whole_ends_its_connection(path, monkeypatch, part):
    monkeypatch.setattr(module, "_PATIENCE", 0.05)

    async def work():
        async with serving(path, Service()):
            reader, writer = await connected(path)
            writer.write(frame(List())[:part])
            assert await is_closed(reader)
            writer.close()

    asyncio.run(work())


def test_who_says_nothing_may_stay(path, monkeypatch):
    """Time counts only from the first byte of a message."""
    monkeypatch.setattr(module, "_PATIENCE", 0.02)

    async def work():
        async with serving(path, Service()):
            reader, writer = await connected(path)
            await asyncio.sleep(0.1)
            writer.write(frame(List()))
            assert await answer(reader) == Done()
            writer.close()

    asyncio.run(work())


def test_a_message_that_is_too_long_ends_its_connection_with_words(path):
    async def work():
        async with serving(path, Service()):
            reader, writer = await connected(path)
            writer.write((LARGEST_REQUEST + 1).to_bytes(HEADER, "big"))
            assert "expected up to 65536 bytes" in (await answer(reader)).detail
            assert await is_closed(reader)
            writer.close()

    asyncio.run(work())


def test_who_sends_far_more_than_the_next_request_loses_the_connection(path):
    """It would be kept in memory, or be left unread.

    Then so would be the end of the connection.
    """

    async def work():
        service = Service()
        async with serving(path, service) as server:
            reader, writer = await connected(path)
            writer.write(frame(Cut(1)))
            await until(lambda: service.replies)
            writer.write(b"x" * 10 * LARGEST_REQUEST)
            assert await is_closed(reader)
            await until(lambda: service.given_up)
            assert server._connections == set()
            writer.transport.abort()

    asyncio.run(work())


def test_others_have_their_turn_between_two_requests_of_one(path):
    """What is called soon comes before the second one."""

    class Noting(Service):
        async def handle(self, request, caller):
            asyncio.get_running_loop().call_soon(self.asked.append, "others")
            return await super().handle(request, caller)

    async def work():
        service = Noting()
        async with serving(path, service):
            reader, writer = await connected(path)
            writer.write(frame(List()) + frame(List()))
            assert [await answer(reader), await answer(reader)] == [Done(), Done()]
            assert [event == "others" for event in service.asked] == [False, True, False, True]
            writer.close()

    asyncio.run(work())


@pytest.mark.parametrize("count", [3, 10_000])
def test_who_sends_more_than_another_request_loses_the_connection(path, count):
    async def work():
        service = Service()
        async with serving(path, service):
            reader, writer = await connected(path)
            writer.write(count * frame(List()))
            assert await is_closed(reader)
            writer.transport.abort()
        assert len(service.asked) < count

    asyncio.run(work())


class Wordy(Service):
    """Answers with more than a socket holds."""

    async def handle(self, request, caller):
        self.asked.append((request, caller.uid))
        return Failed("x" * (4 << 20))


def test_who_does_not_read_has_no_second_request_and_loses_the_connection(path, monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE", 0.2)

    async def work():
        service = Wordy()
        async with serving(path, service) as server:
            with socket.socket(socket.AF_UNIX) as deaf:
                deaf.connect(str(path))
                deaf.sendall(2 * frame(List()))
                await until(lambda: service.asked)
                await until(lambda: not server._connections)
            assert len(service.asked) == 1

    asyncio.run(work())


def test_the_next_request_is_carried_out_when_the_reply_has_been_read(path):
    async def work():
        service = Wordy()
        async with serving(path, service):
            reader, writer = await connected(path)
            for _ in range(2):
                writer.write(2 * frame(List()))
                for _ in range(2):
                    assert len((await answer(reader)).detail) == 4 << 20
            writer.close()

    asyncio.run(work())


def test_a_reply_that_cannot_be_sent_is_said(path):
    """Whoever asked would wait for ever."""

    class Odd(Service):
        async def handle(self, _request, _caller):
            return Failed("\udcff")

    async def work():
        async with serving(path, Odd()):
            reader, writer = await connected(path)
            writer.write(frame(List()))
            assert "expected text of UTF-8" in (await answer(reader)).detail
            writer.close()

    asyncio.run(work())


def test_who_goes_away_is_given_up_and_hears_nothing(path):
    async def work():
        service = Service()
        async with serving(path, service) as server:
            _, writer = await connected(path)
            writer.write(frame(Cut(1)))
            await until(lambda: service.replies)
            writer.transport.abort()
            await until(lambda: service.given_up)
            assert server._connections == set()
            assert server._of_user == {}

    asyncio.run(work())


@pytest.mark.parametrize(("most", "of_a_user", "uid"), [(2, 512, 1000), (512, 2, 1000)])
def test_connections_have_a_largest_number(path, monkeypatch, caplog, most, of_a_user, uid):
    """All together, and each user's."""
    monkeypatch.setattr(module, "_LOGGED_EVERY", 0.01)
    monkeypatch.setattr(module, "_MOST_CONNECTIONS", most)
    monkeypatch.setattr(module, "_MOST_OF_A_USER", of_a_user)
    monkeypatch.setattr(module.Caller, "__init__", lambda self, _: setattr(self, "uid", uid))

    async def work():
        async with serving(path, Service()):
            made = [await connected(path) for _ in range(3)]
            assert await is_closed(made[2][0])
            made[0][1].write(frame(List()))
            assert await answer(made[0][0]) == Done()
            made[0][1].transport.abort()
            await asyncio.sleep(0.05)
            made.append(await connected(path))
            made[3][1].write(frame(List()))
            assert await answer(made[3][0]) == Done()
            for _, writer in made:
                writer.close()
            await until(lambda: caplog.text)

    with caplog.at_level(logging.WARNING):
        asyncio.run(work())

    assert f"connections were refused, since there are too many: 1 of user {uid}" in caplog.text


def test_few_descriptors_are_not_all_for_connections(path, monkeypatch):
    """A quarter of them; root and the agent's own user have as many more, and no more."""
    monkeypatch.setattr(module.resource, "getrlimit", lambda _: (8, 8))
    users = [1000, 1000, 1000, os.geteuid(), os.geteuid(), 0]
    monkeypatch.setattr(
        module.Caller, "__init__", lambda self, _: setattr(self, "uid", users.pop(0))
    )

    async def work():
        async with serving(path, Service()) as server:
            made = [await connected(path) for _ in range(6)]
            assert await is_closed(made[2][0])
            assert await is_closed(made[5][0])
            assert len(server._connections) == 4
            for _, writer in made:
                writer.close()

    asyncio.run(work())


def test_a_flood_is_one_line_a_second(path, monkeypatch, caplog):
    """And root and the agent's own user are let in beside it."""
    monkeypatch.setattr(module, "_MOST_CONNECTIONS", 1)
    users = [1000] * 30 + [0, os.geteuid()]
    monkeypatch.setattr(
        module.Caller, "__init__", lambda self, _: setattr(self, "uid", users.pop(0))
    )

    async def work():
        async with serving(path, Service()) as server:
            made = [await connected(path) for _ in range(30)]
            for reader, _ in made[1:]:
                assert await is_closed(reader)
            for _ in range(2):
                made.append(await connected(path))
                made[-1][1].write(frame(List()))
                assert await answer(made[-1][0]) == Done()

            assert caplog.text == ""
            server._log_refused()
            for _, writer in made:
                writer.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(work())

    assert caplog.text.count("WARNING") == 1
    assert "too many: 29 of user 1000" in caplog.text


def test_a_folder_that_is_made_lets_the_group_through(path):
    """The socket's own mode says who may ask."""
    for group, mode in (("", 0o700), ("root", 0o711)):
        new = path.parent / f"new-{group}" / "below" / "a.sock"
        module.make_folder(new, group)
        assert [folder.stat().st_mode & 0o777 for folder in (new.parent, new.parent.parent)] == [
            mode
        ] * 2


def test_the_socket_is_replaced_and_stays(path):
    """What an agent has left that was killed.

    Commands see by it that there is an agent, which does not answer.
    """
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))

    async def work():
        async with serving(path, Service()):
            assert path.stat().st_mode & 0o777 == 0o660
            reader, writer = await connected(path)
            writer.write(frame(List()))
            assert await answer(reader) == Done()
            writer.close()

    asyncio.run(work())
    assert path.is_socket()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_socket_that_somebody_serves_stays_theirs(path):
    async def work():
        async with serving(path, Service()):
            with pytest.raises(InputError, match="somebody serves the socket"):
                await AgentServer(path, "", Service()).start()
            reader, writer = await connected(path)
            writer.write(frame(List()))
            assert await answer(reader) == Done()
            writer.close()

    asyncio.run(work())


@pytest.mark.parametrize(
    ("name", "group", "reason"),
    [
        ("x" * 100, "", "expected a path of up to 107 bytes"),
        ("a.sock", "no-such-group", "cannot serve a socket:"),
        ("file/a.sock", "", "cannot serve a socket: not a directory"),
    ],
)
def test_a_socket_that_cannot_be_is_an_error(path, name, group, reason):
    (path.parent / "file").touch()

    async def work():
        with pytest.raises(InputError, match=reason):
            await AgentServer(path.parent / name, group, Service()).start()

    asyncio.run(work())
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]
