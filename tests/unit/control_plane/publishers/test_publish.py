"""A kubelet's node is published so that a reader has the same node.

It is published again when it has changed.
"""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from alignup.control_plane.api_server.api_client import TOPOLOGIES
from alignup.control_plane.api_server.objects import decode_pod
from alignup.control_plane.api_server.pod_events import write_event
from alignup.control_plane.api_server.watch import Backoff
from alignup.control_plane.publishers import publish
from alignup.control_plane.publishers.publish import publish_node, published_object
from alignup.control_plane.scheduler.ask import WHY_REJECTED
from alignup.errors import InputError
from alignup.kubelet.node_resource_topology.report import (
    Description,
    decode_holdings,
    decode_report,
    restored_node,
)
from alignup.node import Node
from fakes.api_server import EVENTS, PODS, ApiStub, running, served, until
from inputs.watched_objects import description, pod_object, watched


def kubelet_with(node: Node):
    """What `read_kubelet` returns, as far as it matters here."""
    fields = {**description()["kubelet"], "clusterDomain": "cluster.local", "featureGates": None}
    records = SimpleNamespace(configuration=SimpleNamespace(fields=fields), listed=None)
    return SimpleNamespace(node=node, records=records)


def test_a_reader_has_the_node_with_what_its_pods_hold() -> None:
    node = Node.from_dict(description())
    for name, limits in (("a", {"cpu": 2, "gpu": 1}), ("b", {"cpu": 3, "memory": "3Gi"})):
        node.admit(watched(name, **limits).pod)
    node.remove("uid-a")
    report = decode_report(json.dumps(published_object("n", kubelet_with(node))).encode())
    template = Description().template(report.description, {})
    restored = restored_node(template, decode_holdings(report.holdings), {})
    assert restored.cpu.free_cpus == node.cpu.free_cpus
    assert restored.memory.free == node.memory.free
    assert restored.devices.free == node.devices.free
    assert restored.config == node.config
    assert "clusterDomain" not in report.description


def test_changes_are_published_and_damaged_files_are_said_and_waited_for() -> None:
    said: list[str] = []

    async def scenario() -> None:
        stub, node, broken = ApiStub(), Node.from_dict(description()), []

        def read():
            if broken:
                raise InputError("expected a state file, got half of one")
            return kubelet_with(node)

        def names() -> list[str]:
            published = stub.objects.get(TOPOLOGIES, {}).get(("", "n"))
            if published is None:
                return []
            holdings = published["metadata"]["annotations"]["alignup.dev/holdings"]
            return [pod["name"] for pod in json.loads(holdings)["pods"]]

        async with (
            served(stub, said.append) as api,
            running(publish_node(api, "n", read, interval=0.01)),
        ):
            await until(lambda: TOPOLOGIES in stub.objects)
            node.admit(watched("a").pod)
            await until(lambda: names() == ["a"])
            broken.append(True)
            await until(lambda: said)
            broken.clear()
            node.admit(watched("b").pod)
            await until(lambda: names() == ["a", "b"])
            quiet = [request for request in stub.requests if request[0] != "GET"]
            await asyncio.sleep(0.05)
            assert [request for request in stub.requests if request[0] != "GET"] == quiet

    asyncio.run(scenario())
    assert said[0] == "expected a state file, got half of one"


@pytest.mark.parametrize("annotation", ["alignup.dev/holdings", "alignup.dev/node"])
def test_an_object_that_was_deleted_or_forged_is_published_again(annotation) -> None:
    """Though nothing has changed on the node."""

    async def scenario() -> None:
        node = Node.from_dict(description())
        node.admit(watched("a").pod)

        def annotations() -> dict[str, str]:
            published = stub.objects.get(TOPOLOGIES, {}).get(("", "n"))
            return (published or {}).get("metadata", {}).get("annotations", {})

        work = publish_node(api, "n", lambda: kubelet_with(node), interval=0.01)
        async with running(work):
            await until(annotations)
            right = dict(annotations())
            await stub.delete(TOPOLOGIES, "n")
            await until(lambda: annotations() == right)
            for forged in ('{"pods": []}', "garbage", '{"a":' * 5000):
                topology = stub.get(TOPOLOGIES, "n")
                metadata = {**topology["metadata"], "annotations": {**right, annotation: forged}}
                await stub.put(TOPOLOGIES, {**topology, "metadata": metadata})
                await until(lambda: annotations() == right)

            await stub.delete(TOPOLOGIES, "n", silently=True)
            await stub.compact()  # the watch ends, and a list tells
            await until(lambda: annotations() == right)
            await asyncio.sleep(0.05)
            quiet = [request for request in stub.requests if request[0] != "GET"]
            await asyncio.sleep(0.05)
            assert [request for request in stub.requests if request[0] != "GET"] == quiet

    async def served_scenario() -> None:
        nonlocal api, stub
        stub = ApiStub()
        async with served(stub) as api:
            await scenario()

    api = stub = None
    asyncio.run(served_scenario())


def test_a_pod_that_the_kubelet_rejects_gets_one_event_with_the_cause_and_what_would_help() -> None:
    """Not those that were rejected before, nor those that failed otherwise.

    Nor a second one beside reconcile's.
    """

    def failed(name: str, reason: str, node: str = "n") -> dict[str, Any]:
        return pod_object(name, node, cpu=5) | {"status": {"phase": "Failed", "reason": reason}}

    async def scenario() -> None:
        stub, node = ApiStub(), Node.from_dict(description())
        node.admit(watched("x", cpu=2).pod)
        await stub.put(PODS, failed("earlier", "TopologyAffinityError"))
        said: list[str] = []
        async with served(stub, said.append) as api:
            work = publish_node(api, "n", lambda: kubelet_with(node), interval=0.01)
            async with running(work):
                await until(lambda: stub.watches == 2)
                for name, *how in (
                    ("evicted", "Evicted"),
                    ("far", "TopologyAffinityError", "other"),
                ):
                    await stub.put(PODS, failed(name, *how))

                for name in ("new", "newer"):
                    await stub.put(PODS, failed(name, "TopologyAffinityError"))
                await until(lambda: len(stub.objects.get(EVENTS, ())) == 2)
                await stub.compact()  # everything is listed again
                await asyncio.sleep(0.5)
                events = list(stub.objects[EVENTS].values())
                about = decode_pod(json.dumps(failed("new", "")).encode()).metadata
                await write_event(api, about, WHY_REJECTED, "again", "alignup-reconcile", once=True)

        assert len(stub.objects[EVENTS]) == 2
        assert [event["involvedObject"]["name"] for event in events] == ["new", "newer"]
        assert all(
            "cpu" in event["message"] and "what would help: " in event["message"]
            for event in events
        )

    asyncio.run(scenario())


def test_once_ends_after_the_first_and_fails_with_what_is_wrong() -> None:
    async def scenario() -> None:
        stub = ApiStub()

        def fails():
            raise InputError("no kubelet")

        async with served(stub) as api:
            node = kubelet_with(Node.from_dict(description()))
            await publish_node(api, "n", lambda: node, interval=9, once=True)
            with pytest.raises(InputError, match="no kubelet"):
                await publish_node(api, "n", fails, interval=9, once=True)

        assert ("", "n") in stub.objects[TOPOLOGIES]

    asyncio.run(scenario())


def test_pauses_grow_while_the_server_fails_and_begin_anew_once_it_takes_a_node(
    monkeypatch,
) -> None:
    calls: list[str] = []

    class Recorded(Backoff):
        def reset(self) -> None:
            calls.append("reset")
            super().reset()

        async def pause(self) -> None:
            calls.append("pause")
            await super().pause()

    monkeypatch.setattr(publish, "Backoff", Recorded)

    async def scenario() -> None:
        stub, node = ApiStub(), Node.from_dict(description())
        stub.refused_writes[TOPOLOGIES] = [500, 500]
        async with (
            served(stub) as api,
            running(publish_node(api, "n", lambda: kubelet_with(node), interval=0.01)),
        ):
            await until(lambda: calls.count("reset") == 2)
            stub.refused_writes[TOPOLOGIES] = [500]
            node.admit(watched("a").pod)
            await until(lambda: calls.count("reset") == 3)

    asyncio.run(scenario())
    assert calls == ["reset", "pause", "pause", "reset", "pause", "reset"]
