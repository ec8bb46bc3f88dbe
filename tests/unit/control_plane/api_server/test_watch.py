"""A follower of an API server loses nothing, whatever happens to its connections."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from alignup.control_plane.api_server import watch
from alignup.control_plane.api_server.api_client import Pauses
from alignup.control_plane.api_server.objects import PodObject, decode_pod
from alignup.control_plane.api_server.watch import Follower
from alignup.errors import InputError
from alignup.kubernetes.wire import NodeWire
from alignup.text.json_text import DEPTH_LIMIT
from fakes.api_server import NODES, PODS, ApiStub, running, served, until
from inputs.watched_objects import pod_object

KINDS = pytest.mark.parametrize("kind", [msgspec.Raw, PodObject])
ODD = {"metadata": {"name": "odd", "namespace": "default"}, "spec": 3}


class Names:
    """The names of the objects that are there now."""

    def __init__(self) -> None:
        self.versions: dict[str, str] = {}

    def listed(self, pods: list[PodObject]) -> None:
        self.versions = {pod.metadata.name: pod.metadata.resource_version for pod in pods}

    def changed(self, pod: PodObject) -> None:
        self.versions[pod.metadata.name] = pod.metadata.resource_version

    def gone(self, pod: PodObject) -> None:
        del self.versions[pod.metadata.name]


async def add(stub: ApiStub, name: str, **given: Any) -> None:
    await stub.put(PODS, pod_object(name), **given)


@asynccontextmanager
async def following(
    stub: ApiStub, query: dict[str, str] | None = None, kind: Any = msgspec.Raw, **options: Any
):
    """A follower of all pods that has listed them.

    Pages are read object by object, or in one step.
    """
    names = Names()
    async with served(stub, **options) as api:
        follower = Follower(api, PODS, decode_pod, names, query=query, kind=kind)
        async with running(follower.run()):
            await until(lambda: stub.watches)
            yield follower, names


def check(scenario) -> None:
    asyncio.run(scenario())


@KINDS
def test_what_is_there_is_listed_in_pages_and_what_changes_is_watched(kind) -> None:
    async def scenario() -> None:
        stub = ApiStub()
        stub.page = 3
        for number in range(10):
            await add(stub, f"p{number}")
        async with following(stub, kind=kind) as (_, names):
            assert len(names.versions) == 10
            await add(stub, "new")
            await stub.delete(PODS, "p0", "default")
            await until(lambda: "new" in names.versions and "p0" not in names.versions)

    check(scenario)


def test_a_selector_makes_objects_come_and_go() -> None:
    async def scenario() -> None:
        stub = ApiStub()
        async with following(
            stub, query={"fieldSelector": "spec.nodeName!=,status.phase!=Failed"}
        ) as (_, names):
            await add(stub, "unbound")
            bound = pod_object("bound", "n")
            await stub.put(PODS, bound)
            await until(lambda: list(names.versions) == ["bound"])
            await stub.put(PODS, {**bound, "status": {"phase": "Failed"}})
            await until(lambda: not names.versions)

    check(scenario)


def test_a_connection_that_drops_is_resumed_without_a_list() -> None:
    async def scenario() -> None:
        stub = ApiStub()
        async with following(stub) as (follower, names):
            for number in range(5):
                await stub.hang_up()
                await add(stub, f"p{number}")
                await until(lambda number=number: f"p{number}" in names.versions)
            assert follower.lists == 1

    check(scenario)


def test_a_watch_that_goes_on_though_it_was_to_end_is_given_up_and_resumed(monkeypatch) -> None:
    monkeypatch.setattr(watch, "_WATCH_SECONDS", 0)
    monkeypatch.setattr(watch, "_TOO_LATE", 0.1)
    said: list[str] = []

    async def scenario() -> None:
        stub = ApiStub()  # it ends no watch by itself
        async with following(stub, complain=said.append) as (follower, names):
            await until(lambda: stub.watches > 1)
            await add(stub, "p")
            await until(lambda: "p" in names.versions)
            assert follower.lists == 1

    check(scenario)
    assert f"GET {PODS}: no answer" in said[0]


def test_410_gone_leads_to_another_list(caplog) -> None:
    async def scenario() -> None:
        stub = ApiStub()
        async with following(stub) as (follower, names):
            await add(stub, "a")
            await until(lambda: "a" in names.versions)
            await stub.hang_up()
            await add(stub, "b", silently=True)
            await stub.delete(PODS, "a", "default", silently=True)
            await stub.compact()
            await until(lambda: list(names.versions) == ["b"])
            assert follower.lists > 1

    with caplog.at_level("INFO", "alignup"):
        check(scenario)

    assert [
        message
        for message in caplog.messages
        if message.startswith(f"a gap in the watch of {PODS}, which is listed again")
    ]
    assert [
        message
        for message in caplog.messages
        if message.startswith(f"listed {PODS}: 1 objects in ")
    ]


def test_events_that_get_lost_are_made_up_for_by_a_list_now_and_then() -> None:
    async def scenario() -> None:
        stub = ApiStub()
        async with following(stub, pauses=Pauses(first=0.01, longest=0.05, resync=0.1)) as (
            _,
            names,
        ):
            await add(stub, "lost", silently=True)
            await until(lambda: "lost" in names.versions)

    check(scenario)


def test_who_asks_for_a_list_while_one_is_under_way_waits_for_the_next() -> None:
    """The pages that have come already may be older than the question."""
    tasks: list[asyncio.Task[None]] = []
    lists_at_answer: list[int] = []

    async def scenario() -> None:
        stub = ApiStub()
        stub.page = 1
        for name in "abc":
            await add(stub, name)

        async with served(stub) as api:

            async def ask() -> None:
                await follower.list_again()
                lists_at_answer.append(follower.lists)

            def read(data: msgspec.Raw) -> PodObject:
                if not tasks:
                    tasks.append(asyncio.ensure_future(ask()))
                return decode_pod(data)

            follower = Follower(api, PODS, read, Names())
            async with running(follower.run()):
                await until(lambda: lists_at_answer)

    check(scenario)
    assert lists_at_answer == [2]


@pytest.mark.parametrize("status", [500, 429, 401])
def test_errors_are_said_and_tried_again(status) -> None:
    said: list[str] = []

    async def scenario() -> None:
        stub = ApiStub()
        stub.refusals = [status] * 4
        await add(stub, "a")
        async with following(stub, complain=said.append) as (_, names):
            assert "a" in names.versions

    check(scenario)
    assert len(said) == 4
    assert f"GET {PODS}: {status}: refused as the test wants it" in said[0]


def test_an_object_that_nobody_can_read_is_passed_over_until_it_changes() -> None:
    said: list[str] = []

    async def scenario() -> None:
        stub = ApiStub()
        async with following(stub, complain=said.append) as (follower, names):
            await stub.put(PODS, dict(ODD))
            await add(stub, "other")
            await until(lambda: "other" in names.versions)
            assert "odd" not in names.versions
            await add(stub, "odd")
            await until(lambda: "odd" in names.versions)
            assert follower.lists == 1

    check(scenario)
    assert len(said) == 1
    assert "the object default/odd is ignored: expected a Pod, got" in said[0]


@KINDS
def test_an_object_in_a_list_that_nobody_can_read_hides_no_other_and_is_said_once(kind) -> None:
    said: list[str] = []

    async def scenario() -> None:
        stub = ApiStub()
        await stub.put(PODS, dict(ODD))
        await add(stub, "other")
        options = {"pauses": Pauses(0.01, 0.05, resync=0.05), "complain": said.append, "kind": kind}
        async with following(stub, **options) as (follower, names):
            await until(lambda: follower.lists > 2)
            assert list(names.versions) == ["other"]

    check(scenario)
    assert len([complaint for complaint in said if "default/odd is ignored" in complaint]) == 1


def test_an_object_of_a_page_that_was_read_in_one_step_is_ignored_by_its_name() -> None:
    said: list[str] = []

    def read(pod: msgspec.Raw | PodObject) -> PodObject:
        assert isinstance(pod, PodObject)
        if pod.metadata.name == "odd":
            raise InputError("nobody can read it")
        return pod

    async def scenario() -> None:
        stub, names = ApiStub(), Names()
        for name in ("odd", "other"):
            await add(stub, name)
        async with (
            served(stub, complain=said.append) as api,
            running(Follower(api, PODS, read, names, kind=PodObject).run()),
        ):
            await until(lambda: stub.watches)
            assert list(names.versions) == ["other"]

    check(scenario)
    assert said == [f"{PODS}: the object default/odd is ignored: nobody can read it"]


def test_objects_that_lack_what_is_read_in_one_step_are_each_ignored_by_their_names() -> None:
    """As nodes, which have no namespace."""
    said: list[str] = []

    def read(_node: NodeWire) -> NodeWire:
        raise InputError("nobody can read it")

    async def scenario() -> None:
        stub = ApiStub()
        await stub.put(NODES, {"metadata": {"name": "listed"}})
        async with (
            served(stub, complain=said.append) as api,
            running(Follower(api, NODES, read, Names(), kind=NodeWire).run()),
        ):
            await until(lambda: stub.watches)
            await stub.put(NODES, {"metadata": {"name": "seen"}})
            await until(lambda: len(said) == 2)

    check(scenario)
    for name, complaint in zip(["listed", "seen"], said, strict=True):
        assert complaint == f"{NODES}: the object {name} is ignored: nobody can read it"


def test_a_deleted_object_that_nobody_can_read_leads_to_a_list() -> None:
    async def scenario() -> None:
        stub = ApiStub()
        async with following(stub) as (follower, names):
            await add(stub, "a")
            await until(lambda: "a" in names.versions)
            await stub.put(PODS, {**ODD, "metadata": {"name": "a", "namespace": "default"}})
            await stub.delete(PODS, "a", "default")
            await until(lambda: not names.versions)
            assert follower.lists == 2

    check(scenario)


@KINDS
@pytest.mark.parametrize("is_listed", [True, False])
def test_a_value_of_thousands_of_levels_hides_no_object(is_listed, kind) -> None:
    """Where nobody wants to know the value, not even its own."""

    async def scenario() -> None:
        stub = ApiStub()
        stub.written["DEEP"] = '{"a":' * 5000 + "1" + "}" * 5000
        strange = {**pod_object("strange"), "more": "DEEP"}
        unread = {**ODD, "spec": {"containers": "DEEP"}}
        if is_listed:
            await stub.put(PODS, strange)
            await stub.put(PODS, unread)

        async with following(stub, kind=kind) as (follower, names):
            if not is_listed:
                await stub.put(PODS, strange)
                await stub.put(PODS, unread)

            await add(stub, "other")
            await until(lambda: "other" in names.versions)
            assert sorted(names.versions) == ["other", "strange"]
            assert follower.lists == 1

    check(scenario)


@pytest.mark.parametrize("is_listed", [True, False])
def test_levels_are_counted_whatever_the_interpreter_could_bear(is_listed) -> None:
    """An object of as many levels as any text may have stays whole.

    Of one with more, what is deep is null.
    """
    text_by_name: dict[str, Any] = {}

    def read(data: msgspec.Raw) -> PodObject:
        pod = decode_pod(data)
        text_by_name[pod.metadata.name] = bytes(data)
        return pod

    async def scenario() -> None:
        stub = ApiStub()
        for name, levels in (("most", DEPTH_LIMIT - 1), ("more", DEPTH_LIMIT)):
            stub.written[name] = "[" * levels + "]" * levels

        async def put() -> None:
            for name in ("most", "more"):
                await stub.put(PODS, {**pod_object(f"pod-{name}"), "deep": name})

        if is_listed:
            await put()

        async with served(stub) as api:
            follower = Follower(api, PODS, read, Names())
            async with running(follower.run()):
                await until(lambda: stub.watches)
                if not is_listed:
                    await put()
                await until(lambda: len(text_by_name) == 2)

    check(scenario)
    assert b"[" * (DEPTH_LIMIT - 1) in text_by_name["pod-most"]
    assert b"[null]" in text_by_name["pod-more"]


def test_a_cached_list_asks_for_what_the_server_remembers_in_pages() -> None:
    async def scenario() -> None:
        stub = ApiStub()
        stub.page = 3
        for number in range(7):
            await add(stub, f"p{number}")
        async with following(stub) as (follower, names):
            await stub.delete(PODS, "p0", "default", silently=True)
            first = len(stub.lists)
            await follower.list_again(cached=True)
            assert follower.list_is_cached
            assert sorted(names.versions) == [f"p{number}" for number in range(1, 7)]
            versions = [query.get("resourceVersion") for query in stub.lists[first:]]
            assert versions == ["0", None]
            await follower.list_again()
            assert not follower.list_is_cached
            assert "resourceVersion" not in stub.lists[-1]

    check(scenario)


def test_a_cached_list_from_before_what_was_seen_is_not_believed() -> None:
    async def scenario() -> None:
        stub = ApiStub()
        await add(stub, "old")
        behind = stub.version, {key: dict(pod) for key, pod in stub.objects[PODS].items()}
        async with following(stub) as (follower, names):
            await add(stub, "new")
            await until(lambda: "new" in names.versions)
            stub.behind = behind
            await follower.list_again(cached=True)
            assert sorted(names.versions) == ["new", "old"]
            assert not follower.list_is_cached

            stub.behind = stub.version, behind[1]  # it is as new as it says
            await follower.list_again(cached=True)
            assert list(names.versions) == ["old"]

    check(scenario)


def test_who_waits_for_a_full_list_gets_one_beside_those_who_wait_for_a_cached_one() -> None:
    async def scenario() -> None:
        stub = ApiStub()
        await add(stub, "p")
        async with following(stub) as (follower, _):
            await asyncio.gather(follower.list_again(cached=True), follower.list_again())
            assert not follower.list_is_cached

    check(scenario)
