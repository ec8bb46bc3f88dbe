"""An API server of our own on loopback.

Lists in pages, watches, patches and binds, and fails in chosen ways.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from aiohttp import web

from alignup.control_plane.api_server.api_client import CLAIMS, TOPOLOGIES, Api, Pauses
from alignup.control_plane.api_server.credentials import Configuration

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
EVENTS = "/api/v1/events"
BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
LEASES = "/apis/coordination.k8s.io/v1/leases"
KINDS = {
    "/api/v1": ("pods", "nodes", "events"),
    "/apis/coordination.k8s.io/v1": ("leases",),
    "/apis/policy/v1": ("poddisruptionbudgets",),
    TOPOLOGIES.rpartition("/")[0]: ("noderesourcetopologies",),
    CLAIMS: ("resourceslices", "deviceclasses", "resourceclaims", "resourceclaimtemplates"),
    "/apis/scheduling.k8s.io/v1beta1": ("podgroups",),
}

REAL_SLEEP = asyncio.sleep
FAST = Pauses(first=0.01, longest=0.05)


def merge(target: Any, patch: Any) -> Any:
    """Return a JSON merge patch applied (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def selected(stored: dict[str, Any], selector: str) -> bool:
    """Return whether an object matches a field selector."""
    for part in filter(None, selector.split(",")):
        field, negated, value = part.partition("!=")
        if not negated:
            field, _, value = part.partition("=")
        at: Any = stored
        for name in field.split("."):
            at = at.get(name) or "" if isinstance(at, dict) else ""
        if (at == value) is bool(negated):
            return False
    return True


class Clock:
    """Time that goes on only in pauses."""

    def __init__(self) -> None:
        self.now = 0.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await REAL_SLEEP(0)


class ApiStub:
    """Objects by kind, every change of them in order, and the faults that are asked for."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
        self.version = 10
        self.events: list[tuple[int, str, str, dict[str, Any], dict[str, Any] | None]] = []
        self.compacted = 0
        self.changed = asyncio.Condition()
        self.swallowed: set[int] = set()

        self.refusals: list[int] = []
        self.forbidden: set[str] = set()
        """Kinds of which no object may be read or written."""
        self.refused_writes: dict[str, list[int]] = {}
        """By kind, the status of each of the next writes."""

        self.behind: tuple[int, dict[tuple[str, str], dict[str, Any]]] | None = None
        """The version and the pods of lists that ask for what the server remembers."""

        self.requests: list[tuple[str, str]] = []
        self.lists: list[dict[str, str]] = []
        """What each list asked for."""
        self.watches = 0
        self.page = 500
        self.generation = 0

        self.binds_then_fails = False
        self.protected: set[str] = set()
        """Names of pods that the Eviction API does not evict."""
        self.evicted: list[str] = []
        self.held: dict[str, asyncio.Event] = {}
        """By name, pods that are bound, or whose status is written, only once the event is set."""
        self.written: dict[str, str] = {}
        """By text, JSON that is sent in its place in lists and events.

        Such as what no library writes.
        """

    # What tests do to the cluster.

    async def put(
        self, kind: str, stored: dict[str, Any], *, silently: bool = False
    ) -> dict[str, Any]:
        """Create or replace an object; silently: no watch is told."""
        metadata = stored.setdefault("metadata", {})
        key = metadata.get("namespace", ""), metadata["name"]
        objects = self.objects.setdefault(kind, {})
        before = objects.get(key)
        async with self.changed:
            self.version += 1
            metadata["resourceVersion"] = str(self.version)
            objects[key] = stored
            word = "ADDED" if before is None else "MODIFIED"
            self.events.append((self.version, kind, word, deepcopy(stored), before))
            if silently:
                self.swallowed.add(self.version)
            self.changed.notify_all()

        return stored

    async def delete(
        self, kind: str, name: str, namespace: str = "", *, silently: bool = False
    ) -> None:
        """Delete an object."""
        async with self.changed:
            deleted = self.objects[kind].pop((namespace, name))
            self.version += 1
            deleted = merge(deleted, {"metadata": {"resourceVersion": str(self.version)}})
            self.events.append((self.version, kind, "DELETED", deleted, deleted))
            if silently:
                self.swallowed.add(self.version)
            self.changed.notify_all()

    async def compact(self) -> None:
        """Forget all events: every watch ends with 410 Gone."""
        async with self.changed:
            self.version += 1
            self.compacted = self.version
            self.changed.notify_all()

    async def hang_up(self) -> None:
        """Drop all watches without a word."""
        async with self.changed:
            self.generation += 1
            self.changed.notify_all()

    def get(self, kind: str, name: str, namespace: str = "") -> dict[str, Any]:
        """Return an object."""
        return self.objects[kind][namespace, name]

    # HTTP.

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer any request."""
        path = request.rel_url.raw_path
        self.requests.append((request.method, path))
        if self.refusals:
            return self.status(self.refusals.pop(0), "refused as the test wants it")

        prefix = next((prefix for prefix in KINDS if path.startswith(f"{prefix}/")), "")
        parts = [unquote(part) for part in path.removeprefix(f"{prefix}/").split("/")]
        namespace = ""
        if parts[0] == "namespaces":
            namespace, parts = parts[1], parts[2:]

        kind = f"{prefix}/{parts[0]}"
        code = self.refusal(request.method, prefix, parts[0])
        if code is not None:
            return self.status(code, "no such kind, or refused as the test wants it")

        if len(parts) == 1 and request.method == "GET":
            answer = self.watch if "watch" in request.query else self.list
            return await answer(request, kind)

        body = json.loads(await request.read() or b"null")
        if len(parts) == 1:
            if namespace:
                body["metadata"].setdefault("namespace", namespace)
            if "generateName" in body["metadata"]:
                body["metadata"]["name"] = f"{body['metadata']['generateName']}{self.version}"
            key = namespace, body["metadata"]["name"]
            if key in self.objects.get(kind, {}):
                return self.status(409, "there is one already")
            body["metadata"].setdefault("uid", f"uid-{body['metadata']['name']}")
            return web.json_response(await self.put(kind, body), status=201)

        return await self.one(request.method, kind, (namespace, parts[1]), parts[2:], body)

    def refusal(self, method: str, prefix: str, resource: str) -> int | None:
        """Return the status of a request that is refused whatever it says, else None."""
        kind = f"{prefix}/{resource}"
        refusals = self.refused_writes.get(kind)
        if refusals and method != "GET":
            return refusals.pop(0)
        if kind in self.forbidden:
            return 403
        return None if resource in KINDS.get(prefix, ()) else 404

    async def one(
        self, method: str, kind: str, key: tuple[str, str], sub: list[str], body: Any
    ) -> web.StreamResponse:
        """Answer a request about one object."""
        stored = self.objects.get(kind, {}).get(key)
        if stored is None:
            return self.status(404, f"{key[1]} not found")
        if sub and key[1] in self.held:
            await self.held[key[1]].wait()

        change = {"binding": self.bind, "eviction": self.evict}.get("/".join(sub))
        if change is not None:
            return await change(kind, key, stored, body)

        if method in {"PATCH", "PUT"}:
            changed = merge(stored, body) if method == "PATCH" else body
            if changed["metadata"].get("resourceVersion") not in {
                None,
                stored["metadata"]["resourceVersion"],
            }:
                return self.status(409, "the object has been modified")

            return web.json_response(await self.put(kind, changed))

        if method == "DELETE":
            expected_uid = ((body or {}).get("preconditions") or {}).get(
                "uid", stored["metadata"].get("uid")
            )
            if expected_uid != stored["metadata"].get("uid"):
                return self.status(409, "the uid in the precondition is not that of the object")
            await self.delete(kind, key[1], key[0])

        return web.json_response(stored)

    async def bind(
        self, kind: str, key: tuple[str, str], pod: dict[str, Any], body: Any
    ) -> web.Response:
        """Bind a pod."""
        if pod["spec"].get("nodeName"):
            return self.status(409, f"pod {key[1]} is already assigned to node")
        await self.put(kind, merge(pod, {"spec": {"nodeName": body["target"]["name"]}}))
        return self.status(500 if self.binds_then_fails else 201, "")

    async def evict(
        self, kind: str, key: tuple[str, str], pod: dict[str, Any], body: Any
    ) -> web.Response:
        """Evict a pod, unless it is protected."""
        if key[1] in self.protected:
            return self.status(
                429, "Cannot evict pod as it would violate the pod's disruption budget."
            )
        assert body["deleteOptions"]["preconditions"]["uid"] == pod["metadata"]["uid"]
        self.evicted.append(key[1])
        await self.delete(kind, key[1], key[0])
        return self.status(201, "")

    async def list(self, request: web.Request, kind: str) -> web.Response:
        """Answer with one page of a list."""
        selector = request.query.get("fieldSelector", "")
        key, _, value = request.query.get("labelSelector", "").partition("=")
        self.lists.append(dict(request.query))
        if "continue" in request.query and "resourceVersion" in request.query:
            return self.status(400, "a version is not allowed when using continue")

        version, objects = self.version, self.objects.get(kind, {})
        if self.behind is not None and kind == PODS and request.query.get("resourceVersion") == "0":
            version, objects = self.behind
        items = [
            stored
            for stored in objects.values()
            if selected(stored, selector)
            and (not key or (stored["metadata"].get("labels") or {}).get(key) == value)
        ]

        start = int(request.query.get("continue") or 0)
        stop = start + min(self.page, int(request.query.get("limit") or self.page))
        metadata = {
            "resourceVersion": str(version),
            "continue": str(stop) if stop < len(items) else "",
        }

        page = {"kind": "List", "metadata": metadata, "items": items[start:stop]}
        return web.json_response(text=self.encoded(page))

    async def watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        """Answer with events until the client goes, the history is gone, or the test hangs up."""
        seen = int(request.query.get("resourceVersion", self.compacted))
        selector = request.query.get("fieldSelector", "")
        generation = self.generation
        self.watches += 1
        response = web.StreamResponse()
        await response.prepare(request)
        while generation == self.generation:
            if seen < self.compacted:
                error = {
                    "type": "ERROR",
                    "object": {"kind": "Status", "code": 410, "message": "too old"},
                }
                await response.write(json.dumps(error).encode() + b"\n")
                return response

            for version, of, word, stored, before in list(self.events):
                if version > seen:
                    seen = version
                    if of == kind and version not in self.swallowed:
                        await self.tell(response, word, stored, before, selector)

            async with self.changed:
                if self.version == seen and generation == self.generation:
                    await self.changed.wait()

            if seen >= self.compacted and not self.pending(seen):
                seen = max(seen, self.version)

        if request.transport is not None:
            request.transport.close()

        return response

    def pending(self, seen: int) -> bool:
        """Return whether there are events after a version."""
        return any(version > seen for version, *_ in self.events) or self.compacted > seen

    async def tell(
        self, response: web.StreamResponse, word: str, stored: Any, before: Any, selector: str
    ) -> None:
        """Send one event, as a client with this selector sees it."""
        was = before is not None and selected(before, selector)
        now = word != "DELETED" and selected(stored, selector)
        kind = {(False, True): "ADDED", (True, True): "MODIFIED", (True, False): "DELETED"}.get(
            (was, now)
        )
        if kind == "DELETED" and word != "DELETED":  # as it was before, under the new version
            version = {"resourceVersion": stored["metadata"]["resourceVersion"]}
            stored = merge(before, {"metadata": version})
        if kind is not None:
            await response.write(self.encoded({"type": kind, "object": stored}).encode() + b"\n")

    def encoded(self, answer: Any) -> str:
        """Return the JSON of an answer."""
        text = json.dumps(answer)
        for placeholder, json_text in self.written.items():
            text = text.replace(json.dumps(placeholder), json_text)
        return text

    @staticmethod
    def status(code: int, message: str) -> web.Response:
        """Return a Status object."""
        return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)


@asynccontextmanager
async def served(
    stub: ApiStub, complain: Callable[[str], None] = lambda _: None, pauses: Pauses = FAST
) -> AsyncIterator[Api]:
    """Serve a stub on a free port, and yield a client of it."""
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{any:.*}", stub.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()

    port = runner.addresses[0][1]
    api = Api(Configuration(host=f"http://127.0.0.1:{port}"))
    api.pauses, api.complain = pauses, complain
    try:
        yield api
    finally:
        await api.close()
        await stub.hang_up()
        await runner.cleanup()


@asynccontextmanager
async def running(work: Awaitable[None]) -> AsyncIterator[None]:
    """Run something in the background for a while."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(holds: Callable[[], object]) -> None:
    """Wait until something holds; a test that waits for ever is ended from outside."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  # anything may be waited for
            await asyncio.sleep(0.005)
