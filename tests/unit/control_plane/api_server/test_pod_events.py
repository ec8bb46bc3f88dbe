"""Events stand where people look for them, in bounded length, and once where that is asked for."""

from __future__ import annotations

import asyncio
from typing import Any

from alignup.control_plane.api_server.pod_events import write_event
from alignup.kubernetes.wire import Metadata
from fakes.api_server import EVENTS, ApiStub, served

POD = Metadata(name="p", namespace="default", uid="uid-p")


def written(*messages: str, **options: bool) -> list[dict[str, Any]]:
    """Return the Events of a server after a program has written these messages about a pod."""

    async def scenario() -> list[dict[str, Any]]:
        stub = ApiStub()
        async with served(stub) as api:
            for message in messages:
                await write_event(api, POD, "WhyRejected", message, "alignup-test", **options)

        return list(stub.objects[EVENTS].values())

    return asyncio.run(scenario())


def test_an_event_is_a_warning_about_its_pod() -> None:
    (event,) = written("no room")
    assert event["type"] == "Warning"
    assert event["reason"] == "WhyRejected"
    assert event["message"] == "no room"
    assert event["source"] == {"component": "alignup-test"}
    assert event["firstTimestamp"] == event["lastTimestamp"]

    assert event["involvedObject"] == {
        "kind": "Pod",
        "apiVersion": "v1",
        "namespace": "default",
        "name": "p",
        "uid": "uid-p",
    }

    assert event["metadata"]["generateName"] == "p."


def test_a_long_message_is_cut() -> None:
    (event,) = written("a" * 5000)
    assert event["message"] == "a" * 1024


def test_an_event_that_is_written_once_is_not_written_again() -> None:
    (event,) = written("first", "second", once=True)
    assert event["message"] == "first"
    assert event["metadata"]["name"] == "whyrejected.uid-p"


def test_an_event_is_written_each_time_where_nothing_else_is_asked_for() -> None:
    assert [event["message"] for event in written("first", "second")] == ["first", "second"]
