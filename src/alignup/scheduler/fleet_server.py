"""Serves the state of simulated kubelets over HTTP: `/healthz`, `/nodes`, and `/nodes/NAME` with what its pods hold.

Needs the extra `cluster`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from alignup.scheduler.report import holdings_of

if TYPE_CHECKING:
    from alignup.scheduler.fleet import Fleet

__all__ = ["make_app"]


def make_app(fleet: Fleet) -> web.Application:
    """Return the application that shows a fleet."""

    async def health(_request: web.Request) -> web.Response:
        ready = fleet.is_synced
        return web.Response(
            text="ok" if ready else "nodes are being registered", status=200 if ready else 503
        )

    async def names(_request: web.Request) -> web.Response:
        return _json(
            {"nodes": [{"name": one.name, "pods": len(one.node.pods)} for one in fleet.nodes.values()]}
        )

    async def one(request: web.Request) -> web.Response:
        node = fleet.nodes.get(request.match_info["name"])
        if node is None:
            raise web.HTTPNotFound(text="no such node")
        described = msgspec.Raw(node.description.encode())
        return _json({"name": node.name, "description": described, "holdings": holdings_of(node.node)})

    app = web.Application()
    app.router.add_get("/healthz", health)
    app.router.add_get("/nodes", names)
    app.router.add_get("/nodes/{name}", one)
    return app


def _json(found: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(found), content_type="application/json")
