"""One of several candidates leads, never two, and none whose clock says that another one may."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
from aiohttp import web

from alignup.control_plane.api_server.api_client import ApiError
from alignup.control_plane.api_server.leader import LEADER, Leader, Terms, label_leader
from alignup.control_plane.scheduler.cluster_state import ClusterState
from alignup.control_plane.scheduler.extender_answers import Answers
from alignup.control_plane.scheduler.extender_server import make_app
from alignup.control_plane.scheduler.extender_service import Extender
from alignup.control_plane.scheduler.extender_wire import Binding
from alignup.control_plane.serving import serve
from alignup.errors import AlignupError
from alignup.kubelet.node_resource_topology.report import Description
from fakes.api_server import LEASES, NODES, PODS, TOPOLOGIES, ApiStub, running, served, until
from inputs.watched_objects import description, pod_object, topology

FAST = Terms(lease=1, renew=0.7, retry=0.05)
LONG = Terms(lease=60, renew=40, retry=0.05)
"""For leaders that no load may keep from renewing."""


class Line:
    """A connection that can be cut, and a clock that can be put forward."""

    def __init__(self, api) -> None:
        self.api, self.complain, self.complaining = api, api.complain, api.complaining
        self.is_cut, self.ahead = False, 0.0

    async def request(self, *args, **options):
        if self.is_cut:
            raise ApiError("no answer")
        return await self.api.request(*args, **options)

    def clock(self) -> float:
        return asyncio.get_running_loop().time() + self.ahead


def candidate(api, name: str, terms: Terms = FAST) -> tuple[Leader, Line]:
    line = Line(api)
    return Leader(line, "ns", "extender", name, terms=terms, clock=line.clock), line


@asynccontextmanager
async def two():
    """Two candidates, the first of which leads, and what both said at each look."""
    looks: list[tuple[bool, bool]] = []
    stub = ApiStub()
    async with served(stub) as api:
        (first, line), (second, _) = candidate(api, "first"), candidate(api, "second")

        async def look() -> None:
            while True:
                looks.append((first.leads, second.leads))
                await asyncio.sleep(0.002)

        async with running(look()), running(first.run()):
            await until(lambda: first.leads)
            async with running(second.run()):
                yield stub, first, second, line

    assert (True, True) not in looks


def test_a_leader_renews_and_others_stand_by(caplog) -> None:
    async def scenario() -> None:
        async with two() as (stub, first, second, _):
            before = stub.get(LEASES, "extender", "ns")["spec"]
            await until(
                lambda: (
                    stub.get(LEASES, "extender", "ns")["spec"]["renewTime"] != before["renewTime"]
                )
            )
            now = stub.get(LEASES, "extender", "ns")["spec"]
            assert (now["holderIdentity"], now["acquireTime"]) == ("first", before["acquireTime"])
            await until(lambda: second.holder == "first")
            assert (first.term, second.term, second.leads) == (1, 0, False)

    with caplog.at_level("INFO", "alignup"):
        asyncio.run(scenario())

    said = [message for message in caplog.messages if message.startswith("lease")]
    assert said == [
        "lease extender: first leads now, in its term 1",
        "lease extender: first leads",
        "lease extender: this process gives it back",
    ]


def test_a_leader_that_is_cut_off_stops_before_another_begins() -> None:
    async def scenario() -> None:
        async with two() as (stub, first, second, line):
            line.is_cut = True
            await until(lambda: second.leads)
            assert not first.leads
            assert stub.get(LEASES, "extender", "ns")["spec"]["leaseTransitions"] == 1
            line.is_cut = False
            await until(lambda: first.holder == "second")
            assert not first.leads

    asyncio.run(scenario())


def test_a_leader_that_was_stopped_knows_at_once_that_it_leads_no_longer() -> None:
    """As after SIGSTOP: no code of it has run meanwhile."""

    async def scenario() -> None:
        async with two() as (_, first, _, line):
            line.ahead += FAST.renew
            assert not first.leads

    asyncio.run(scenario())


def test_a_leader_whose_clock_stood_still_leads_no_more_once_it_reads_the_lease() -> None:
    """As that of a machine that was paused: by it, nothing has passed since it was renewed."""

    async def scenario() -> None:
        stub = ApiStub()
        async with served(stub) as api:
            first = Leader(api, "ns", "extender", "first", terms=LONG, clock=lambda: 1000.0)
            async with running(first.run()):
                await until(lambda: first.leads)
                await first.confirm()
                assert first.leads
                lease = stub.get(LEASES, "extender", "ns")
                lease["spec"]["holderIdentity"] = "second"
                await stub.put(LEASES, lease)
                await until(lambda: not first.leads)
                assert first.holder == "second"

    asyncio.run(scenario())


@pytest.mark.parametrize("trouble", ["another holds it", "cut off", "gone"])
def test_a_leader_that_doubts_leads_on_only_where_the_lease_is_its_own(trouble) -> None:
    async def scenario() -> None:
        stub = ApiStub()
        async with served(stub) as api:
            terms = Terms(lease=200, renew=150, retry=0.3)
            first, line = candidate(api, "first", terms)
            await first._try()
            await first.confirm()
            assert first.leads
            if trouble == "cut off":
                line.is_cut = True
            elif trouble == "gone":
                await stub.delete(LEASES, "extender", "ns")
            else:
                lease = stub.get(LEASES, "extender", "ns")
                lease["spec"]["holderIdentity"] = "second"
                await stub.put(LEASES, lease)

            await first.confirm()
            assert not first.leads

    asyncio.run(scenario())


def test_a_leader_that_ends_in_order_lets_another_one_lead_at_once() -> None:
    async def scenario() -> None:
        stub = ApiStub()
        async with served(stub) as api:
            (first, _), (second, _) = candidate(api, "first"), candidate(api, "second")
            async with running(first.run()):
                await until(lambda: first.leads)
            assert not first.leads
            assert stub.get(LEASES, "extender", "ns")["spec"].get("holderIdentity", "") == ""
            async with running(second.run()):
                await until(lambda: second.leads)

    asyncio.run(scenario())


def test_a_term_begins_before_the_question_and_not_with_its_answer() -> None:
    """The server may have counted from the beginning."""

    class SlowLine(Line):
        async def request(self, method, *args, **options):
            answer = await super().request(method, *args, **options)
            if method != "GET":
                self.ahead += FAST.renew
            return answer

    async def scenario() -> None:
        async with served(ApiStub()) as api:
            line = SlowLine(api)
            leader = Leader(line, "ns", "extender", "slow", terms=FAST, clock=line.clock)
            looks: list[bool] = []

            def looked() -> bool:
                looks.append(leader.leads)
                return leader.term > 2 or True in looks

            async with running(leader.run()):
                await until(looked)
            assert True not in looks

    asyncio.run(scenario())


def test_a_lease_lasts_as_long_as_it_says() -> None:
    """Another candidate may have other terms."""

    async def scenario() -> None:
        stub = ApiStub()
        spec = {"holderIdentity": "other", "leaseDurationSeconds": 60}
        await stub.put(LEASES, {"metadata": {"name": "extender", "namespace": "ns"}, "spec": spec})
        async with served(stub) as api:
            leader, line = candidate(api, "first")
            async with running(leader.run()):
                await until(lambda: leader.holder == "other")
                line.ahead += 30
                requests_before = len(stub.requests)
                await until(lambda: len(stub.requests) > requests_before + 2)
                assert (leader.leads, leader.term) == (False, 0)
                line.ahead += 30
                await until(lambda: leader.leads)

    asyncio.run(scenario())


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_lease_that_somebody_takes_from_its_holder_is_not_free_at_once(is_deleted) -> None:
    """As by `kubectl delete lease`, or `kubectl edit`: who led has not read it yet."""

    async def scenario() -> None:
        async with two() as (stub, first, second, line):
            await until(lambda: second.holder == "first")
            line.is_cut = True
            if is_deleted:
                await stub.delete(LEASES, "extender", "ns")
            else:
                lease = stub.get(LEASES, "extender", "ns")
                lease["spec"]["holderIdentity"] = ""
                await stub.put(LEASES, lease)
            await until(lambda: second.leads)
            assert (first.leads, second.was_handed_over) == (False, False)

    asyncio.run(scenario())


@pytest.mark.parametrize("duration", [{}, {"leaseDurationSeconds": 1}])
def test_a_lease_that_somebody_makes_shorter_lasts_as_long_as_one_of_those_who_wait(
    duration,
) -> None:
    async def scenario() -> None:
        stub = ApiStub()
        async with served(stub) as api:
            (first, _), (second, line) = candidate(api, "first", LONG), candidate(api, "b", LONG)
            await first._try()
            lease = stub.get(LEASES, "extender", "ns")
            del lease["spec"]["leaseDurationSeconds"]
            lease["spec"] |= duration
            await stub.put(LEASES, lease)
            for ahead, leads in ((0, False), (59, False), (61, True)):
                line.ahead = ahead
                await second._try()
                assert second.leads is leads

    asyncio.run(scenario())


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_leader_whose_lease_is_free_takes_it_in_a_term_of_its_own(is_deleted) -> None:
    """As one whose clock stood still while another one led, which gave the lease back."""

    async def scenario() -> None:
        stub = ApiStub()
        async with served(stub) as api:
            first = Leader(api, "ns", "extender", "first", terms=LONG, clock=lambda: 1000.0)
            await first._try()
            assert (first.leads, first.term) == (True, 1)
            if is_deleted:
                await stub.delete(LEASES, "extender", "ns")
            else:
                second, _ = candidate(api, "second", LONG)
                lease = stub.get(LEASES, "extender", "ns")
                lease["spec"] |= {"holderIdentity": "second"}
                await stub.put(LEASES, lease)
                await second._give_back()
            await first._try()
            assert (first.leads, first.term) == (True, 2)
            assert first.was_handed_over is not is_deleted

    asyncio.run(scenario())


@pytest.mark.parametrize("duration", [2**31 - 1, 10**400], ids=["longest", "beyond"])
def test_a_lease_of_any_length_is_waited_for(duration) -> None:
    async def scenario() -> None:
        stub = ApiStub()
        spec = {"holderIdentity": "other", "leaseDurationSeconds": duration}
        await stub.put(LEASES, {"metadata": {"name": "extender", "namespace": "ns"}, "spec": spec})
        async with served(stub) as api:
            leader, _ = candidate(api, "first")
            async with running(leader.run()):
                await until(lambda: leader.holder == "other")
                await stub.delete(LEASES, "extender", "ns")
                await until(lambda: leader.leads)

    asyncio.run(scenario())


def test_the_holder_is_told_in_one_short_line_whatever_it_is_called(caplog) -> None:
    async def scenario() -> None:
        stub = ApiStub()
        spec = {"holderIdentity": "x\nWARNING y" + "z" * (1 << 20), "leaseDurationSeconds": 60}
        await stub.put(LEASES, {"metadata": {"name": "extender", "namespace": "ns"}, "spec": spec})
        async with served(stub) as api:
            leader, _ = candidate(api, "first")
            await leader._try()
            assert leader.holder.startswith("x\\nWARNING yz")
            assert len(leader.holder) < 3000

    with caplog.at_level("INFO", "alignup"):
        asyncio.run(scenario())
    assert [len(message) < 3000 for message in caplog.messages] == [True]
    assert caplog.messages[0].isprintable()


@pytest.mark.parametrize("answer", ["{}", "<html></html>", '{"metadata": {}}'])
def test_an_answer_that_is_not_the_lease_that_was_written_lets_nobody_lead(answer) -> None:
    """As that of a proxy in between, with the status 200."""
    said: list[str] = []

    class Stub(ApiStub):
        async def handle(self, request):
            if request.method == "GET" or self.refusals:
                return await super().handle(request)
            return web.Response(text=answer)

    async def scenario() -> None:
        async with served(Stub(), said.append) as api:
            leader, _ = candidate(api, "first")
            async with running(leader.run()):
                await asyncio.sleep(0.3)
                assert not leader.leads

    asyncio.run(scenario())
    assert len(said) == (answer != '{"metadata": {}}')


def test_a_lease_is_given_back_though_a_renewal_comes_in_between() -> None:
    async def scenario() -> None:
        stub = ApiStub()
        async with served(stub) as api:
            leader, _ = candidate(api, "first", LONG)
            async with running(leader.run()):
                await until(lambda: leader.leads)
                stub.refused_writes[LEASES] = [409]
            assert stub.refused_writes[LEASES] == []
            assert stub.get(LEASES, "extender", "ns")["spec"].get("holderIdentity", "") == ""

    asyncio.run(scenario())


def test_the_same_error_is_said_once_until_a_try_ends_in_another_way() -> None:
    said: list[str] = []

    async def scenario() -> None:
        stub = ApiStub()
        async with served(stub, said.append) as api:
            leader, _ = candidate(api, "first", LONG)
            stub.refusals = [503, 503, 503, 403]
            async with running(leader.run()):
                await until(lambda: leader.leads)
                stub.refusals = [503, 503]
                await until(lambda: not stub.refusals)
                await asyncio.sleep(0.2)

    asyncio.run(scenario())
    assert [message.split(": ")[2] for message in said] == ["503", "403", "503"]


def test_of_many_that_want_the_same_version_one_gets_it() -> None:
    async def scenario() -> None:
        stub = ApiStub()
        async with served(stub) as api:
            leaders = [candidate(api, f"c{number}")[0] for number in range(8)]
            tasks = [asyncio.ensure_future(leader.run()) for leader in leaders]
            await until(lambda: any(leader.leads for leader in leaders))
            assert sum(leader.leads for leader in leaders) == 1
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task

    asyncio.run(scenario())


def test_errors_are_said_and_a_foreign_object_is_no_lease() -> None:
    said: list[str] = []

    async def scenario() -> None:
        stub = ApiStub()
        await stub.put(
            LEASES,
            {"metadata": {"name": "extender", "namespace": "ns"}, "spec": {"holderIdentity": 3}},
        )
        async with served(stub, said.append) as api:
            leader, _ = candidate(api, "first")
            async with running(leader.run()):
                await until(lambda: said)
            assert not leader.leads

    asyncio.run(scenario())
    assert "lease extender: expected a Lease, got" in said[0]


def test_a_server_that_takes_too_long_is_said_to_give_no_answer() -> None:
    """Time that is up is an error without a text."""
    said: list[str] = []

    class SilentLine(Line):
        async def request(self, *_args, **_options):
            await asyncio.sleep(3600)

    async def scenario() -> None:
        async with served(ApiStub(), said.append) as api:
            line = SilentLine(api)
            terms = Terms(lease=1, renew=0.05, retry=0.05)
            leader = Leader(line, "ns", "extender", "first", terms=terms, clock=line.clock)
            async with running(leader.run()):
                await until(lambda: said)

    asyncio.run(scenario())
    assert said[0] == "lease extender: no answer"


def test_the_pod_that_leads_is_labelled_and_no_other() -> None:
    async def scenario() -> None:
        stub = ApiStub()
        for name, labels in (
            ("new", {}),
            ("old", {LEADER: "true", "app": "x"}),
            ("other", {"app": "x"}),
        ):
            pod = pod_object(name)
            pod["metadata"] |= {"namespace": "ns", "labels": labels}
            await stub.put(PODS, pod)

        async with served(stub) as api:
            await label_leader(api, "ns", "new")

        labels = {
            name: stub.get(PODS, name, "ns")["metadata"]["labels"]
            for name in ("new", "old", "other")
        }
        assert labels == {"new": {LEADER: "true"}, "old": {"app": "x"}, "other": {"app": "x"}}

    asyncio.run(scenario())


@pytest.mark.parametrize("fault", ["refused", "no answer"])
def test_a_leader_is_announced_once_the_server_lets_it_be(fault) -> None:
    """Else no Service selects it, for as long as it leads."""
    calls: list[int] = []
    said: list[str] = []

    async def announce() -> None:
        calls.append(1)
        if len(calls) < 3 and fault == "refused":
            raise ApiError("refused as the test wants it", 503)
        if len(calls) < 3:
            await asyncio.sleep(3600)

    async def scenario() -> None:
        async with served(ApiStub(), said.append) as api:
            terms = Terms(lease=60, renew=59.9, retry=0.05)
            leader = Leader(api, "ns", "extender", "first", terms=terms)
            extender = Extender(api, Answers(ClusterState()), leader=leader, led=announce)
            async with running(extender.run()):
                await until(lambda: len(calls) == 3)
                await asyncio.sleep(0.2)

    asyncio.run(scenario())
    assert len(calls) == 3
    assert len(said) == 2
    assert all(said)


def test_a_standby_answers_an_error_until_it_leads_and_has_listed_the_last_bindings() -> None:
    """A pod that the last leader bound counts in the first answer.

    No watch has told of it.
    """

    async def scenario() -> None:
        stub = ApiStub()
        empty = Description().template(json.dumps(description()), {})
        await stub.put(NODES, {"metadata": {"name": "a"}})
        await stub.put(TOPOLOGIES, topology("a", described=description(), holdings=empty))
        led: list[int] = []

        async def announce() -> None:
            led.append(1)

        async with served(stub) as api, aiohttp.ClientSession() as session:
            (first, _), (leader, line) = candidate(api, "first"), candidate(api, "second")
            extender = Extender(api, Answers(ClusterState()), leader=leader, led=announce)
            runner, port = await serve(make_app(extender), ("127.0.0.1", 0))
            url = f"http://127.0.0.1:{port}"

            async def filtered(name: str, cpu: int) -> dict:
                question = {"Pod": pod_object(name, cpu=cpu), "NodeNames": ["a"]}
                async with session.post(f"{url}/filter", json=question) as response:
                    return await response.json()

            async def bound(name: str) -> str:
                question = {
                    "PodName": name,
                    "PodNamespace": "default",
                    "PodUID": f"uid-{name}",
                    "Node": "a",
                }
                async with session.post(f"{url}/bind", json=question) as response:
                    return (await response.json())["Error"]

            leading = asyncio.ensure_future(first.run())
            await until(lambda: first.leads)
            async with running(extender.run()):
                await until(lambda: extender.watch.is_synced and leader.holder)
                async with session.get(f"{url}/healthz") as response:
                    assert response.status == 200  # it is warm, and a rollout goes on
                assert (await filtered("p", 4))["Error"] == "this extender stands by: first leads"
                await stub.put(PODS, pod_object("p"))
                assert "stands by" in await bound("p")
                await stub.put(PODS, pod_object("last", "a", cpu=4), silently=True)
                leading.cancel()
                with suppress(asyncio.CancelledError):
                    await leading
                answer = await filtered("p", 4)
                while answer["Error"]:
                    answer = await filtered("p", 4)
                assert list(answer["FailedNodes"]) == ["a"]
                assert led == [1]
                line.ahead += FAST.lease  # stopped for longer than the lease
                assert "stands by" in await bound("p")
                assert "nodeName" not in stub.get(PODS, "p", "default")["spec"]

            await runner.cleanup()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("is_answered", "terms", "holder"), [(True, LONG, ""), (False, FAST, "first")]
)
def test_a_leader_gives_its_lease_back_when_all_its_bindings_are_answered(
    is_answered, terms, holder
) -> None:
    """The next leader lists what is bound at once.

    A binding that is still under way would be missing there.
    """

    async def scenario() -> None:
        stub = ApiStub()
        empty = Description().template(json.dumps(description()), {})
        await stub.put(NODES, {"metadata": {"name": "a"}})
        await stub.put(TOPOLOGIES, topology("a", described=description(), holdings=empty))
        await stub.put(PODS, pod_object("p", cpu=4))
        stub.held["p"] = asyncio.Event()
        async with served(stub) as api:
            leader, _ = candidate(api, "first", terms)
            extender = Extender(api, Answers(ClusterState()), leader=leader)
            work = asyncio.ensure_future(extender.run())
            while extender.state.pods.get("uid-p") is None:
                await asyncio.sleep(0.01)
                with suppress(AlignupError):
                    extender.check_ready()
                    binding = asyncio.ensure_future(
                        extender.bind(Binding("p", "default", "uid-p", "a"))
                    )
                    await until(lambda: extender.state.pods.get("uid-p"))

            work.cancel()
            await until(lambda: not leader.leads)
            assert stub.get(LEASES, "extender", "ns")["spec"]["holderIdentity"] == "first"
            if is_answered:
                stub.held["p"].set()
                assert await binding == ""

            with suppress(asyncio.CancelledError):
                await work
            assert stub.get(LEASES, "extender", "ns")["spec"].get("holderIdentity", "") == holder
            stub.held["p"].set()
            await binding

    asyncio.run(scenario())
