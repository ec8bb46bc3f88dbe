"""An extender over HTTP on loopback, beside an API server of our own."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp

from alignup.control_plane.api_server.api_client import TOPOLOGIES
from alignup.control_plane.scheduler.cluster_state import ClusterState
from alignup.control_plane.scheduler.extender_answers import Answers
from alignup.control_plane.scheduler.extender_server import make_app
from alignup.control_plane.scheduler.extender_service import Extender
from alignup.control_plane.serving import serve
from alignup.kubelet.node_resource_topology.report import Description
from fakes.api_server import NODES, ApiStub, running, served, until
from inputs.watched_objects import description, topology

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from aiohttp import web

EMPTY = Description().template(json.dumps(description()), {})


class Asked:
    """An extender that is served, the cluster behind it, and a client."""

    def __init__(
        self, stub: ApiStub, extender: Extender, url: str, session: aiohttp.ClientSession
    ) -> None:
        self.stub, self.extender, self.url, self.session = stub, extender, url, session

    async def ask(self, verb: str, **fields: Any) -> Any:
        """Ask as a scheduler does."""
        async with self.session.post(f"{self.url}/{verb}", json=fields) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def filter(self, pod: dict[str, Any], *names: str) -> dict[str, Any]:
        return await self.ask("filter", Pod=pod, Nodes=None, NodeNames=list(names))

    async def metrics(self) -> str:
        async with self.session.get(f"{self.url}/metrics") as response:
            return await response.text()

    async def bind(self, name: str, node: str) -> str:
        answer = await self.ask(
            "bind", PodName=name, PodNamespace="default", PodUID=f"uid-{name}", Node=node
        )
        return answer["Error"]


@asynccontextmanager
async def extender(
    *nodes: str,
    fails_open: bool = True,
    tls: ssl.SSLContext | None = None,
    prepare: Callable[[web.Application], None] = lambda _: None,
    **options: Any,
):
    """Serve an extender of some nodes that report their holdings."""
    stub = ApiStub()
    for name in nodes:
        await stub.put(NODES, {"metadata": {"name": name}})
        await stub.put(TOPOLOGIES, topology(name, described=description(), holdings=EMPTY))

    async with served(stub) as api, aiohttp.ClientSession() as session:
        made = Extender(api, Answers(ClusterState(), fails_open=fails_open))
        app = make_app(made, **options)
        prepare(app)
        runner, port = await serve(app, ("127.0.0.1", 0), tls)
        try:
            async with running(made.run()):
                await until(lambda: made.watch.is_synced)
                yield Asked(stub, made, f"http://127.0.0.1:{port}", session)
        finally:
            await runner.cleanup()
