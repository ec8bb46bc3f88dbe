"""Requests are carried out step by step.

Nobody is told before it is written, and who fails leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from alignup.errors import AllocationError
from alignup.host.agent.service import Observer, PluginCalls, Service
from alignup.host.device_plugins.answer import DeviceAnswer
from alignup.host.leases.agent_messages import (
    Ask,
    Cut,
    Done,
    Failed,
    GiveBack,
    Grant,
    Leases,
    List,
    Parts,
    Refused,
    Release,
)
from alignup.host.leases.ledger import Ledger
from alignup.host.leases.record import PartOf
from alignup.host.leases.request import Question
from alignup.host.leases.users import Limits
from alignup.host.processes.cgroups import Enclosures
from alignup.host.processes.identity import identify
from alignup.machine.device_inventory import Device
from fakes.device_plugins import LONG
from inputs import leasing

NIC = "example.com/nic"
ANN, BOB = 1000, 1001
ME = identify(os.getpid())


class Journal:
    """Writes when it is told to."""

    def __init__(self):
        self.entries = []
        self.is_slow = False
        self.turn = asyncio.Event()

    def append(self, *entries):
        self.entries += entries

    async def written(self):
        if self.is_slow:
            await self.turn.wait()

    async def write(self):
        self.turn.set()
        self.turn = asyncio.Event()
        await turns()

    def kinds(self):
        return [type(entry).__name__ for entry in self.entries]


class Plugins(PluginCalls):
    """Plugins whose calls take until they are let go."""

    def __init__(self):
        self.calls = []
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.failure = None
        self.answers = iter(())

    def has(self, resource):
        return resource == NIC

    async def prefer(self, question):
        self.calls.append(question)
        return next(self.answers, question.available[-question.size :])

    async def allocate(self, devices):
        self.calls.append(dict(devices))
        assert await asyncio.to_thread(self.goes_on.wait, LONG)
        if self.failure is not None:
            raise self.failure
        return DeviceAnswer({"NICS": ",".join(devices[NIC])})


class Measured(Observer):
    """Keeps what it is told."""

    def __init__(self):
        self.told = []

    def admitted(self, lease, seconds):  # noqa: ARG002
        self.told.append(("admitted", lease.id))

    def refused(self, reason, seconds):  # noqa: ARG002
        self.told.append(("refused", reason))

    def waited(self, seconds):  # noqa: ARG002
        self.told.append(("waited",))


class Caller:
    def __init__(self, uid):
        self.uid = uid

    def is_elsewhere(self):
        return False


class Agent:
    """A service with everything that it needs."""

    def __init__(self, site=None):
        self.ledger = Ledger(site or leasing.site(), Limits(), 500)
        self.journal, self.plugins, self.observer = Journal(), Plugins(), Measured()
        self.enclosures = Enclosures(None)
        self.work = []

        self.ledger.record = self.journal.append
        self.service = Service(
            self.ledger,
            self.journal,
            site or leasing.site(),
            Path("/leases.json"),
            self.plugins,
            self.observer,
            self.enclosures,
        )

    def nics(self, *ids, has_preferences=False):
        devices = [Device(device_id, (index % 2,)) for index, device_id in enumerate(ids)]
        self.ledger.update(NIC, devices, has_preferences=has_preferences)

    async def send(self, request, uid=0):
        """Begin to carry out a request.

        Return its replies, which come into the list, and how to give it up.
        """
        replies = []

        def keep_reply(done):
            if not done.cancelled():
                replies.append(done.result())

        work = asyncio.create_task(self.service.handle(request, Caller(uid)))
        work.add_done_callback(keep_reply)
        self.work.append(work)
        await turns()
        return replies, work.cancel

    async def end(self):
        """End all requests, as the server does when the agent ends."""
        self.service.is_closing = True
        for work in self.work:
            work.cancel()
        await asyncio.gather(*self.work, return_exceptions=True)


async def turns():
    """Let the event loop have some turns, as many as what waits for nothing takes."""
    for _ in range(5):
        await asyncio.sleep(0)


@asynccontextmanager
async def running_agent(site=None):
    made = Agent(site)
    try:
        yield made
    finally:
        await made.end()
        made.service.watch.close()
        made.enclosures.close()


async def until(holds):
    for _ in range(int(LONG * 1000)):
        if holds():
            return
        await asyncio.sleep(0.001)
    pytest.fail("it never came")


def ask(number=0, **wishes):
    return Ask(f"{number:016}", ME, "c", "stem", **wishes)


def test_nobody_is_told_before_it_is_written():
    async def work():
        async with running_agent() as agent:
            agent.journal.is_slow = True
            granted, _ = await agent.send(ask(cpus=2))
            assert (granted, agent.journal.kinds()) == ([], ["Given"])
            await agent.journal.write()
            assert isinstance(granted[0], Grant)
            back, _ = await agent.send(GiveBack(f"{0:016}"))
            assert (back, agent.journal.kinds()) == ([], ["Given", "Freed"])
            await agent.journal.write()
            assert back[0].lease.id == granted[0].lease.id
            assert agent.observer.told == [("admitted", granted[0].lease.id)]

    asyncio.run(work())


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"part": PartOf(9, 3)}, "part"),
        ({"part": PartOf(-1, 8)}, "part"),
        ({"stem": "a\n\x1b[2Jb"}, "stem"),
        ({"stem": ""}, "stem"),
        ({"id": 16 * "é"}, "the request"),
    ],
)
def test_what_no_command_asks_for_is_refused_in_words(wrong, place, caplog):
    async def work():
        async with running_agent() as agent:
            (failed,) = (await agent.send(msgspec.structs.replace(ask(cpus=1), **wrong)))[0]
            assert isinstance(failed, Failed)
            assert failed.detail.endswith(f" at {place}")
            (failed,) = (await agent.send(Cut(2, cpus_per_part=-7)))[0]
            assert "got -7 at the split" in failed.detail
            assert agent.ledger.leases == {}

    asyncio.run(work())
    assert caplog.text == ""


@pytest.mark.parametrize(("cpus", "answer"), [(2, Grant), (999, Refused)])
def test_an_answer_is_measured_from_its_question(cpus, answer):
    async def work():
        async with running_agent() as agent:
            measured = []
            agent.observer.admitted = lambda _, seconds: measured.append((Grant, seconds))
            agent.observer.refused = lambda _, seconds: measured.append((Refused, seconds))
            before = time.perf_counter()
            (reply,) = (await agent.send(ask(cpus=cpus)))[0]
            [(kind, seconds)] = measured
            assert kind is type(reply) is answer
            assert 0 <= seconds <= time.perf_counter() - before

    asyncio.run(work())


def test_users_give_back_and_release_what_is_theirs():
    async def work():
        async with running_agent() as agent:
            await agent.send(ask(1, cpus=2, name="n"))
            for request in (GiveBack(f"{1:016}"), GiveBack("none")):
                assert (await agent.send(request, ANN))[0] == [Done()]
            (refused,) = (await agent.send(Release("n", force=True), ANN))[0]
            assert "no lease has the name 'n'" in refused.detail
            (refused,) = (await agent.send(Release("n")))[0]
            assert f"held by pid {os.getpid()}, which is running; --force" in refused.detail
            assert [type(reply) for reply in (await agent.send(List(), ANN))[0]] == [Leases]
            assert (await agent.send(Release("n", force=True)))[0][0].lease.name == "n"
            assert agent.ledger.leases == {}

    asyncio.run(work())


def test_the_machine_is_cut():
    async def work():
        async with running_agent() as agent:
            (parts,) = (await agent.send(Cut(2)))[0]
            assert isinstance(parts, Parts)
            assert [part.rank for part in parts.parts] == [0, 1]
            assert isinstance((await agent.send(Cut(1000)))[0][0], Failed)

    asyncio.run(work())


def test_plugins_are_asked_what_they_prefer_until_they_have_said_it():
    async def work():
        async with running_agent() as agent:
            agent.nics("a", "b", "c", "d", has_preferences=True)
            replies, _ = await agent.send(ask(devices={NIC: 1}))
            await until(lambda: replies)
            (question, allocated) = agent.plugins.calls
            assert isinstance(question, Question)
            assert allocated == {NIC: (question.available[-1],)}
            assert replies[0].lease.devices == allocated
            assert replies[0].lease.answer == DeviceAnswer({"NICS": question.available[-1]})

    asyncio.run(work())


def test_a_plugin_that_is_asked_for_ever_refuses():
    """Its devices change at each look."""

    async def work():
        async with running_agent() as agent:
            names = "abcd"
            agent.nics(*names, has_preferences=True)
            real = agent.plugins.prefer

            async def changing(question):
                number = len(agent.plugins.calls)
                agent.nics(*(f"{name}{number}" for name in names), has_preferences=True)
                return await real(question)

            agent.plugins.prefer = changing
            replies, _ = await agent.send(ask(devices={NIC: 1}))
            await until(lambda: replies)
            assert len(agent.plugins.calls) == 16
            assert "the device list kept changing" in replies[0].detail
            assert agent.ledger.leases == {}

    asyncio.run(work())


def test_a_plugin_that_fails_leaves_nothing_behind():
    async def work():
        async with running_agent() as agent:
            agent.nics("a")
            agent.plugins.failure = AllocationError("the plugin has no mind to")
            replies, _ = await agent.send(ask(devices={NIC: 1}, cpus=16))
            await until(lambda: replies)
            assert replies == [Refused("the plugin has no mind to", "UnexpectedAdmissionError")]
            assert (agent.ledger.leases, agent.journal.entries) == ({}, [])
            assert isinstance((await agent.send(ask(1, cpus=16)))[0][0], Grant)

    asyncio.run(work())


def test_nobody_waits_for_a_plugin_but_who_asks_for_its_devices():
    """What is set aside for them is not given to others meanwhile."""

    async def work():
        async with running_agent() as agent:
            agent.nics("a", "b")
            agent.plugins.goes_on.clear()
            slow, _ = await agent.send(ask(0, devices={NIC: 1}, cpus=8))
            await until(lambda: agent.plugins.calls)
            assert isinstance((await agent.send(ask(1, cpus=8)))[0][0], Grant)
            assert isinstance((await agent.send(ask(2, cpus=1)))[0][0], Refused)
            assert slow == []
            agent.plugins.goes_on.set()
            await until(lambda: slow)
            assert isinstance(slow[0], Grant)

    asyncio.run(work())


def test_who_goes_away_while_a_plugin_allocates_gets_nothing():
    async def work():
        async with running_agent() as agent:
            agent.nics("a")
            agent.plugins.goes_on.clear()
            replies, give_up = await agent.send(ask(devices={NIC: 1}, cpus=16))
            await until(lambda: agent.plugins.calls)
            give_up()
            await until(lambda: not agent.ledger.leases)
            agent.plugins.goes_on.set()
            assert (replies, agent.journal.kinds()) == ([], [])
            assert isinstance((await agent.send(ask(1, cpus=16)))[0][0], Grant)

    asyncio.run(work())


def test_a_lease_that_is_given_back_while_a_plugin_allocates_is_not_made():
    async def work():
        async with running_agent() as agent:
            agent.nics("a")
            agent.plugins.goes_on.clear()
            replies, _ = await agent.send(ask(devices={NIC: 1}))
            await until(lambda: agent.plugins.calls)

            await agent.send(GiveBack(f"{0:016}"))
            agent.plugins.goes_on.set()

            await until(lambda: replies)
            assert "the process exited before its lease was granted" in replies[0].detail
            assert agent.ledger.leases == {}

    asyncio.run(work())


def test_those_who_wait_are_served_in_order_and_told_how_long():
    async def work():
        async with running_agent() as agent:
            await agent.send(ask(0, cpus=16))
            first, _ = await agent.send(ask(1, cpus=16, wait=-1.0))
            second, _ = await agent.send(ask(2, cpus=1, wait=LONG))
            hasty, _ = await agent.send(ask(3, cpus=1, wait=0.01))
            await until(lambda: hasty)
            assert "(waited for 0.01 s)" in hasty[0].detail
            assert len(agent.ledger.waiting) == 2
            await agent.send(GiveBack(f"{0:016}"))
            await until(lambda: first)
            assert (second, len(agent.ledger.waiting)) == ([], 1)
            await agent.send(GiveBack(f"{1:016}"))
            await until(lambda: second)
            assert agent.ledger.waiting == ()
            assert ("waited",) in agent.observer.told
            # on a busy machine the hasty one need not get as far as the queue
            assert agent.journal.kinds().count("Joined") == agent.journal.kinds().count("Left") >= 2

    asyncio.run(work())


def test_the_end_of_an_agent_keeps_the_places_of_those_who_wait():
    """The next one gives them a while to come back."""

    async def work():
        async with running_agent() as agent:
            await agent.send(ask(0, cpus=16))
            await agent.send(ask(1, cpus=1, wait=-1.0))
            await until(lambda: agent.ledger.waiting)
            await agent.end()
            agent.service.is_closing = False
            assert "Left" not in agent.journal.kinds()
            agent.service._turns.clear()
            agent.service.end_grace()
            assert agent.journal.kinds()[-1] == "Left"
            assert agent.ledger.waiting == ()

    asyncio.run(work())


def test_what_ends_with_the_agent_is_written_down():
    """Its cgroup stays for the next one, which cannot be removed any more."""

    async def work():
        async with running_agent() as agent:
            lease = (await agent.send(ask(cpus=2)))[0][0].lease
            agent.ledger.leases[lease.id] = msgspec.structs.replace(lease, cgroup="/no/such")
            agent.enclosures.close()
            agent.enclosures = Enclosures(None)  # to be closed
            agent.service.ended(lease.id)
            assert agent.journal.kinds() == ["Given", "Freed"]

    asyncio.run(work())


def test_an_end_is_written_down_before_its_cgroup_is_touched():
    async def work():
        async with running_agent() as agent:
            seen = []
            agent.enclosures.discard = lambda _cgroup: seen.append(agent.journal.kinds()[-1])
            for number in range(2):
                await agent.send(ask(number, cpus=2))
            agent.service.ended(f"{0:016}")
            await agent.send(GiveBack(f"{1:016}"))
            assert seen == ["Freed", "Freed"]

    asyncio.run(work())


@pytest.mark.parametrize("wishes", [{}, {"wait": LONG}, {"keeper": ME}])
def test_a_lease_whose_holder_cannot_be_told_is_not_given(wishes):
    """As where CUDA has no number for its GPU: nothing stays held, and there is a reply."""
    site = leasing.site(devices={leasing.GPU: [{"id": "0000:ff:00.0", "numa": [0]}]})

    async def enclose(*_):
        return "its cgroup"

    async def work():
        async with running_agent(site) as agent:
            discarded = []
            agent.enclosures.takes = lambda **_: True
            agent.enclosures.enclose, agent.enclosures.discard = enclose, discarded.append
            replies, _ = await agent.send(ask(devices={leasing.GPU: 1}, cpus=16, **wishes))
            await until(lambda: replies)
            assert [type(reply) for reply in replies] == [Failed]
            assert "a GPU that CUDA can number, got '0000:ff:00.0'" in replies[0].detail
            assert (agent.ledger.leases, len(agent.service.watch), agent.observer.told) == (
                {},
                0,
                [],
            )
            assert ("its cgroup" in discarded) == ("keeper" in wishes)
            assert isinstance((await agent.send(ask(1, cpus=16)))[0][0], Grant)

    asyncio.run(work())


@pytest.mark.parametrize("wait", [0.0, LONG])
def test_a_lease_that_cannot_be_told_of_ends(wait, caplog):
    """The journal says so, whichever step failed.

    One that was never in it is none to the next agent.
    """

    async def work():
        async with running_agent() as agent:
            agent.observer.admitted = lambda *_: 1 / 0
            replies, _ = await agent.send(ask(cpus=16, wait=wait))
            await until(lambda: replies)
            assert [type(reply) for reply in replies] == [Failed]
            assert (agent.ledger.leases, len(agent.service.watch)) == ({}, 0)
            assert agent.journal.kinds() == ["Given", "Freed"]

    asyncio.run(work())
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("wait", [0.0, LONG])
def test_a_mistake_of_ours_is_one_requests_only(monkeypatch, caplog, wait):
    async def work():
        async with running_agent() as agent:
            with monkeypatch.context() as patched:
                patched.setattr(Ledger, "ask", lambda *_: 1 / 0)
                replies, _ = await agent.send(ask(cpus=1, wait=wait, devices={}))
                await until(lambda: replies)
            assert "the agent failed: see its log" in replies[0].detail
            assert isinstance((await agent.send(ask(1, cpus=16)))[0][0], Grant)

    asyncio.run(work())
    assert "ZeroDivisionError" in caplog.text


def test_what_the_system_refuses_is_said_in_one_line(monkeypatch, caplog):
    def refuse(*_):
        raise OSError(24, "Too many open files", "/proc/self/fdinfo/11")

    async def work():
        async with running_agent() as agent:
            monkeypatch.setattr(Ledger, "ask", refuse)
            replies, _ = await agent.send(ask(cpus=1))
            await until(lambda: replies)
        assert replies[0].detail == "the agent failed: too many open files"

    asyncio.run(work())
    assert "/proc/self/fdinfo/11" in caplog.text
    assert "Traceback" not in caplog.text


def test_whole_cores_are_held_for_commands_that_run_on_one_cpu_of_each():
    async def work():
        async with running_agent(replace(leasing.site(), idle_siblings=True)) as agent:
            granted, _ = await agent.send(ask(cpus=2))
            assert (str(granted[0].lease.cpus), str(agent.ledger.leases[f"{0:016}"].cpus)) == (
                "0-1",
                "0-1,8-9",
            )
            cut, _ = await agent.send(Cut(4))
            assert [str(part.cpus) for part in cut[0].parts] == ["0-1", "2-3", "4-5", "6-7"]
            rest, _ = await agent.send(ask(1, part=PartOf(3, 4), wait=0.0))
            assert str(rest[0].lease.cpus) == "6-7"

    asyncio.run(work())


def test_the_agent_lays_out_parts_as_it_was_told():
    async def work():
        async with running_agent(replace(leasing.site(), layout="numa")) as agent:
            cut, _ = await agent.send(Cut(4))
            assert [part.numa_nodes for part in cut[0].parts] == [(0,), (1,), (0,), (1,)]

    asyncio.run(work())
