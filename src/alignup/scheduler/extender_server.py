"""Serves the scheduler extender over HTTP: `/filter`, `/prioritize`, `/preempt`, `/bind`, `/healthz`, `/metrics`.

Answers come from `extender_answers` beside this module, JSON from `extender_wire`. A question that cannot be answered
gets an answer with an error, which the scheduler shows in the pod's condition. Needs the extra `cluster`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from alignup.errors import AlignupError, InputError, one_line
from alignup.scheduler.extender_wire import (
    decode_args,
    decode_binding,
    decode_preemption,
    encode_bound,
    encode_error,
    encode_filtered,
    encode_preemption,
    encode_scores,
)
from alignup.scheduler.members import ExactMember

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from alignup.scheduler.extender_service import Extender
    from alignup.scheduler.objects import PodObject, WatchedPod

__all__ = ["make_app"]

_LARGEST_QUESTION: Final = 512 << 20
"""Bytes; five thousand whole nodes are about a hundred MiB."""
_SHOWN_LETTERS: Final = 80
_JSON: Final = "application/json"
_NOT_READY: Final = "alignup has not seen the whole cluster yet"
_BUCKETS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0)


class _Counts:
    """What `/metrics` shows."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.seconds = Histogram(
            "alignup_extender_request_seconds",
            "Time to answer.",
            ["verb"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.refused = Counter(
            "alignup_extender_refused_nodes",
            "Nodes refused for a pod.",
            ["resolvable"],
            registry=self.registry,
        )
        self.errors = Counter(
            "alignup_extender_errors", "Questions without answer.", ["verb"], registry=self.registry
        )
        self.nodes = Gauge("alignup_extender_nodes", "Nodes known.", ["known_by"], registry=self.registry)
        self.pods = Gauge("alignup_extender_pods", "Bound pods known.", registry=self.registry)
        self.waiting = Gauge(
            "alignup_extender_waiting_pods", "Pods that no node could take.", registry=self.registry
        )
        self.lists = Gauge("alignup_extender_lists", "Lists of all objects so far.", registry=self.registry)


class _Handlers:
    """Answers requests."""

    def __init__(self, extender: Extender) -> None:
        self._extender, self._answers = extender, extender.answers
        self._counts = _Counts()

    async def filter(self, body: bytes) -> bytes:
        """Answer `/filter`."""
        args = decode_args(body)
        self._check_synced()
        found = self._answers.filter(self._read(args.pod), args.names, self._extender.clock())
        self._counts.refused.labels("yes").inc(len(found.failed))
        self._counts.refused.labels("no").inc(len(found.unresolvable))
        return encode_filtered(found, args)

    async def prioritize(self, body: bytes) -> bytes:
        """Answer `/prioritize`."""
        args = decode_args(body)
        names = args.names
        return encode_scores(names, self._answers.prioritize(self._read(args.pod), names))

    async def preempt(self, body: bytes) -> bytes:
        """Answer `/preempt`."""
        args = decode_preemption(body)
        found = self._answers.preempt(self._read(args.pod), args.victims)
        return encode_preemption(found, args.violations)

    async def bind(self, body: bytes) -> bytes:
        """Answer `/bind`."""
        return encode_bound(await self._extender.bind(decode_binding(body)))

    async def health(self, _request: web.Request) -> web.Response:
        """Answer `/healthz`: whether the whole cluster has been seen."""
        ready = self._extender.is_synced
        return web.Response(text="ok" if ready else _NOT_READY, status=200 if ready else 503)

    async def metrics(self, _request: web.Request) -> web.Response:
        """Answer `/metrics`."""
        state, counts = self._extender.state, self._counts
        exact = sum(isinstance(one, ExactMember) for one in state.members.values())
        counts.nodes.labels("holdings").set(exact)
        counts.nodes.labels("amounts").set(len(state.members) - exact)
        counts.pods.set(state.pod_count)
        counts.waiting.set(len(self._answers.waiting))
        counts.lists.set(sum(follower.lists for follower in self._extender.followers))
        return web.Response(body=generate_latest(counts.registry), content_type="text/plain")

    def handler(
        self, verb: str, answer: Callable[[bytes], Awaitable[bytes]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """Return a handler of aiohttp for one verb."""

        async def handle(request: web.Request) -> web.Response:
            try:
                body = await _body(request)
            except web.HTTPException:
                self._counts.errors.labels(verb).inc()
                raise
            start = time.perf_counter()
            try:
                text = await answer(body)
            except AlignupError as error:
                self._counts.errors.labels(verb).inc()
                text = encode_error(str(error))
                if verb == "prioritize":  # its answer is a list, with no place for an error
                    return web.Response(text=str(error), status=400 if isinstance(error, InputError) else 503)
            self._counts.seconds.labels(verb).observe(time.perf_counter() - start)
            return web.Response(body=text, content_type=_JSON)

        return handle

    def _read(self, pod: PodObject) -> WatchedPod:
        return self._extender.read(pod)

    def _check_synced(self) -> None:
        if not self._extender.is_synced and not self._answers.fails_open:
            raise AlignupError(_NOT_READY)


async def _body(request: web.Request) -> bytes:
    """Return the body of a request.

    Raises:
        HTTPException: it is packed, too long, or ends too early.
    """
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding != "identity":  # no scheduler packs its questions, and a small packed body can be a huge one
        raise web.HTTPUnsupportedMediaType(
            text=f"expected a body without Content-Encoding, got {one_line(encoding[:_SHOWN_LETTERS])}"
        )
    try:
        return await request.read()
    except (ConnectionError, web.RequestPayloadError) as error:
        raise web.HTTPBadRequest(text="expected a whole body, got a part of it") from error


def make_app(extender: Extender) -> web.Application:
    """Return the application that serves an extender."""
    handlers = _Handlers(extender)
    app = web.Application(client_max_size=_LARGEST_QUESTION)
    for verb in ("filter", "prioritize", "preempt", "bind"):
        app.router.add_post(f"/{verb}", handlers.handler(verb, getattr(handlers, verb)))
    app.router.add_get("/healthz", handlers.health)
    app.router.add_get("/metrics", handlers.metrics)
    return app
