"""The followers that feed a cluster's state, and what they tell of themselves."""

from __future__ import annotations

import asyncio

from alignup.control_plane.api_server import objects
from alignup.control_plane.api_server.api_client import TOPOLOGIES
from alignup.control_plane.api_server.watch import Calls
from alignup.control_plane.scheduler.cluster_state import ClusterState
from alignup.control_plane.scheduler.cluster_watch import ClusterWatch, Feed
from fakes.api_server import NODES, PODS, ApiStub, running, served, until
from inputs.watched_objects import description, pod_object, topology

BOUND = {"fieldSelector": "spec.nodeName!="}


def watching(api, state, order):
    """Return a watch that notes in which order kinds were listed."""

    def nodes_listed(nodes) -> None:
        order.append("nodes")
        state.nodes_listed({node.metadata.name: {} for node in nodes})

    pods = Calls(lambda pods: order.append(f"{len(pods)} pods"), order.append, order.append)
    return ClusterWatch(
        api,
        state,
        nodes=Feed(
            objects.decode_node,
            Calls(nodes_listed, order.append, order.append),
            objects.NodeObject,
        ),
        pods=Feed(
            objects.decode_pod, pods, objects.PodObject, {"fieldSelector": "spec.nodeName!="}
        ),
    )


def test_reports_are_listed_when_pods_are() -> None:
    asyncio.run(reports_after_pods())


async def reports_after_pods() -> None:
    """Follow two pods, one of them bound, a node, and its report."""
    stub = ApiStub()
    await stub.put(NODES, {"metadata": {"name": "a"}})
    await stub.put(PODS, pod_object("p", "a"))
    await stub.put(PODS, pod_object("unbound"))
    await stub.put(TOPOLOGIES, topology("a", described=description()))

    async with served(stub) as api:
        state = ClusterState()
        order = []
        watch = watching(api, state, order)
        reports_listed = state.reports_listed
        state.reports_listed = lambda *args: (order.append("reports"), reports_listed(*args))
        assert not watch.is_synced

        async with running(watch.run()), asyncio.timeout(30):
            await watch.synced()
            assert watch.is_synced
            assert watch.lists == 6
            assert order.index("1 pods") < order.index("reports")
            assert set(state.members) == {"a"}

            await stub.delete(TOPOLOGIES, "a")
            await until(lambda: not state.members)
