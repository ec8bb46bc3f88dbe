"""An API server whose nodes publish what their pods hold."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from alignup.control_plane.api_server.api_client import TOPOLOGIES, Api
from alignup.kubelet.node_resource_topology.report import Description
from fakes.api_server import NODES, PODS, ApiStub, served
from inputs.watched_objects import description, pod_object, topology, watched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OWNER = {"kind": "ReplicaSet", "name": "rs", "uid": "uid-rs", "controller": True}


def node_with(*names_and_cpus: tuple[str, int], name: str) -> Any:
    """Return a node with pods that have so many CPUs."""
    node = Description().template(json.dumps(description()), {}).copy()
    for pod_name, cpus in names_and_cpus:
        assert node.admit(watched(pod_name, name, cpu=cpus).pod)
    return node


@asynccontextmanager
async def published_nodes(
    **pods: tuple[tuple[str, int], ...],
) -> AsyncIterator[tuple[ApiStub, Api]]:
    """Serve nodes that publish what their pods hold."""
    stub = ApiStub()
    for name, names_and_cpus in pods.items():
        await stub.put(NODES, {"metadata": {"name": name}})
        await stub.put(
            TOPOLOGIES,
            topology(name, described=description(), holdings=node_with(*names_and_cpus, name=name)),
        )
        for pod_name, cpus in names_and_cpus:
            pod = pod_object(pod_name, name, cpu=cpus)
            pod["metadata"]["ownerReferences"] = [OWNER]
            pod["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
            await stub.put(PODS, pod)

    async with served(stub) as api:
        yield stub, api
