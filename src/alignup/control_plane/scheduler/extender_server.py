"""Serves the scheduler extender over HTTP.

The paths are `/filter`, `/prioritize`, `/preempt`, `/evaluate`, `/bind`, `/healthz` and `/metrics`.
Answers come from `extender_answers` beside this module, JSON from `extender_wire`. A body that
cannot be read gets a status of 4xx. A question that cannot be answered now gets an answer with an
error, which the scheduler shows in the pod's condition. `docs/security.md` says who is believed.
Needs the extra `cluster`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import asynccontextmanager
from functools import partial
from io import BytesIO
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from alignup.control_plane.scheduler import extender_wire as wire
from alignup.control_plane.scheduler.cluster_watch import NOT_LISTED
from alignup.control_plane.scheduler.node_state import ExactMember
from alignup.control_plane.serving import ABOUT
from alignup.errors import AlignupError, InputError, sentence_of

if TYPE_CHECKING:
    from alignup.control_plane.scheduler.extender_service import Extender

_Args = TypeVar("_Args")

_LOG: Final = logging.getLogger(__name__)
# Bytes: 10,000 nodes need 3 MiB by name, and 60 MiB where the scheduler sends them whole, without
# their images.
LARGEST_QUESTION: Final = 64 << 20
# Bytes of all questions that are being received or answered.
_LARGEST_IN_SUM: Final = 4 * LARGEST_QUESTION
# Bytes from which on questions are decoded in a process of its own, and answered one at a time.
_LARGE: Final = 256 << 10
# Bytes that this process may have.
_MOST_MEMORY: Final = 3 << 29
# Nodes whose victims are found before other questions, such as /healthz, are answered.
_NODES_AT_ONCE: Final = 10
# Turns of the event loop between two parts of an answer.
_TURNS: Final = 8
_BODY_SECONDS: Final = 10.0
_SLOW_SECONDS: Final = 1.0
_JSON: Final = "application/json"
_NO_BINDING: Final = (
    "binding is for callers with a certificate: see --client-ca and --insecure-bind"
)
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
        refused = Counter(
            "alignup_extender_refused_nodes",
            "Nodes refused for a pod.",
            ["resolvable"],
            registry=self.registry,
        )
        # made now: Prometheus sees no increase in a series that begins with 1
        self.resolvable = refused.labels("yes")
        self.unresolvable = refused.labels("no")
        self.errors = Counter(
            "alignup_extender_errors", "Questions without answer.", ["verb"], registry=self.registry
        )

        gauge = partial(Gauge, registry=self.registry)
        self.nodes = gauge("alignup_extender_nodes", "Nodes known.", ["known_by"])
        self.pods = gauge("alignup_extender_pods", "Bound pods known.")
        self.waiting = gauge("alignup_extender_waiting_pods", "Pods that no node could take.")
        self.ends = gauge(
            "alignup_extender_certificate_end_seconds",
            "When a certificate ends, in seconds since 1970.",
            ["of"],
        )
        self.lists = gauge("alignup_extender_lists", "Lists of all objects so far.")


class _Handlers:
    """Answers requests."""

    def __init__(
        self,
        extender: Extender,
        *,
        needs_certificate: bool,
        binds: bool,
        ends: Callable[[], Mapping[str, float]],
    ) -> None:
        self._extender = extender
        self._answers = extender.answers

        self._needs_certificate = needs_certificate
        self._binds = binds
        self._ends = ends
        self._counts = _Counts()
        self._bodies = _Bodies()
        self._reader = _Reader()
        self._evaluating = asyncio.Lock()

    async def filter(self, args: wire.ExtenderArgs) -> bytes:
        """Answer `/filter`."""
        pod = self._extender.read(args.pod)
        filtered = self._answers.filter(pod, args.names, self._extender.clock())
        self._extender.tell(args.pod.metadata, filtered)
        _LOG.debug(
            "pod %s: %d nodes of %d",
            args.pod.metadata.namespaced_name,
            len(filtered.passed),
            len(args.names),
        )
        self._counts.resolvable.inc(len(filtered.failed))
        self._counts.unresolvable.inc(len(filtered.unresolvable))
        if args.node_names is None:
            await _let_others()  # whole nodes take as long to write

        return wire.encode_filtered(filtered, args)

    async def prioritize(self, args: wire.ExtenderArgs) -> bytes:
        """Answer `/prioritize`."""
        names = args.names
        scores = self._answers.prioritize(self._extender.read(args.pod), names)
        return wire.encode_scores(names, scores)

    async def preempt(self, args: wire.PreemptionArgs) -> bytes:
        """Answer `/preempt`."""
        budgets = await self._extender.budgets()
        pod = self._extender.read(args.pod)
        nodes = list(args.by_node.items())
        victims_of_nodes: dict[str, Any] = {}
        for start in range(0, len(nodes), _NODES_AT_ONCE):
            part = dict(nodes[start : start + _NODES_AT_ONCE])
            proposed = {name: victims.uids for name, victims in part.items()}
            chosen = self._answers.preempt(pod, proposed, budgets)
            victims_of_nodes |= wire.victims_as_json(chosen, part)
            await _let_others()

        return wire.encode_preemption(victims_of_nodes)

    async def evaluate(self, args: wire.Batch) -> bytes:
        """Answer `/evaluate`."""
        async with self._evaluating:
            known_nodes = self._answers.known_nodes()
            text = BytesIO()
            text.write(msgspec.json.encode(known_nodes)[:-1] + b',"pods":[')
            for number, pod_object in enumerate(args.pods):
                if number > 0:
                    text.write(b",")
                pod = self._extender.read(pod_object).pod
                evaluation = self._answers.evaluate(pod, known_nodes["nodes"])
                text.write(msgspec.json.encode(evaluation))
                await _let_others()

            text.write(b"]}")
            return text.getvalue()

    async def bind(self, args: wire.Binding) -> bytes:
        """Answer `/bind`."""
        return wire.encode_error(await self._extender.bind(args))

    async def health(self, _request: web.Request) -> web.Response:
        """Answer `/healthz`: whether the whole cluster has been seen, be it as a standby."""
        if self._extender.watch.is_synced:
            return web.Response(text="ok")
        return web.Response(text=NOT_LISTED, status=503)

    async def metrics(self, _request: web.Request) -> web.Response:
        """Answer `/metrics`."""
        state = self._extender.state
        counts = self._counts
        exact = sum(isinstance(member, ExactMember) for member in state.members.values())
        counts.nodes.labels("holdings").set(exact)
        counts.nodes.labels("amounts").set(len(state.members) - exact)
        for of, moment in self._ends().items():
            counts.ends.labels(of).set(moment)

        counts.pods.set(len(state.pods))
        counts.waiting.set(len(self._answers.waiting))
        counts.lists.set(self._extender.watch.lists)
        return web.Response(body=generate_latest(counts.registry), content_type="text/plain")

    async def close(self, _app: web.Application) -> None:
        """End what the answers needed."""
        self._reader.close()

    def handler(
        self,
        verb: str,
        decode: Callable[[bytes], _Args],
        answer: Callable[[_Args], Awaitable[bytes]],
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """Return a handler of aiohttp for one verb.

        The caller is checked, then the question, then what is known.
        """
        # shown from the start: the first question would be no increase otherwise
        seconds = self._counts.seconds.labels(verb)
        errors = self._counts.errors.labels(verb)

        async def handle(request: web.Request) -> web.Response:
            try:
                self._check_caller(request)
                async with self._bodies.of(request) as body:
                    start = time.perf_counter()
                    args = await self._reader.read(decode, body)
                    ABOUT.get({}).update(wire.about(args))
                    text = await self._answered(verb, args, answer)
            except web.HTTPException:
                errors.inc()
                raise

            duration = time.perf_counter() - start
            seconds.observe(duration)
            if duration >= _SLOW_SECONDS:
                _LOG.warning(
                    "a question of %d bytes to /%s took %.3f seconds", len(body), verb, duration
                )

            content = text if len(text) < _LARGE else _in_pieces(text)
            return web.Response(body=content, content_type=_JSON)

        return handle

    async def _answered(
        self, verb: str, args: _Args, answer: Callable[[_Args], Awaitable[bytes]]
    ) -> bytes:
        """Return the answer to a question.

        An error that is said in it is an attribute of its span too.

        Raises:
            HTTPException: the error cannot be said in an answer of this verb.
        """
        try:
            if verb == "bind" and not self._binds:
                raise web.HTTPForbidden(text=_NO_BINDING)

            self._extender.check_ready()
            return await answer(args)
        except AlignupError as error:
            # their answers have no place for an error
            if verb in {"prioritize", "preempt", "evaluate"}:
                if isinstance(error, InputError):
                    raise web.HTTPBadRequest(text=str(error)) from error
                raise web.HTTPServiceUnavailable(text=str(error)) from error

            self._counts.errors.labels(verb).inc()
            ABOUT.get({}).update({"error.type": type(error).__name__, "error.message": str(error)})
            return wire.encode_error(str(error))

    def _check_caller(self, request: web.Request) -> None:
        """Check that the caller has shown a certificate, where one is needed.

        TLS has verified it.
        """
        transport = request.transport
        if self._needs_certificate and not (transport and transport.get_extra_info("peercert")):
            raise web.HTTPForbidden(text="a client certificate is needed")


async def _let_others() -> None:
    """Let others be answered: one who has just connected needs some turns of the loop."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def _in_pieces(text: bytes) -> AsyncIterator[bytes]:
    """Yield an answer piece by piece.

    A client that reads as fast as it comes must not keep the process.
    """
    for start in range(0, len(text), _LARGE):
        yield text[start : start + _LARGE]
        await _let_others()


class _Reader:
    """Decodes questions.

    Large ones are decoded in a process of its own, since each takes the interpreter for up to
    seconds.
    """

    def __init__(self) -> None:
        self._process: ProcessPoolExecutor | None = None

    async def read(self, decode: Callable[[bytes], _Args], body: bytes) -> _Args:
        """Return a question.

        Raises:
            HTTPException: it cannot be read.
        """
        try:
            if len(body) < _LARGE:
                return decode(body)

            if self._process is None:
                self._process = ProcessPoolExecutor(
                    1, get_context("spawn"), wire.begin_process, (_MOST_MEMORY,)
                )

            return await asyncio.get_running_loop().run_in_executor(self._process, decode, body)
        except InputError as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        except MemoryError as error:
            raise _too_long(len(body)) from error
        except BrokenProcessPool as error:
            self.close()
            raise web.HTTPServiceUnavailable(
                text="the process that reads large questions has ended"
            ) from error

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.shutdown(wait=False, cancel_futures=True)
            self._process = None


class _Bodies:
    """Receives bodies within bounds of size, in one and in total, and of time."""

    def __init__(self) -> None:
        self._held = 0
        self._large = asyncio.Lock()

    @asynccontextmanager
    async def of(self, request: web.Request) -> AsyncIterator[bytes]:
        """Yield the body of a request.

        Raises:
            HTTPException: it is packed, too long, too slow, ends too early, or others leave no room
                for it.
        """
        encoding = request.headers.get("Content-Encoding", "identity")
        # no scheduler packs its questions, and a small packed body can be a huge one
        if encoding != "identity":
            raise web.HTTPUnsupportedMediaType(
                text=sentence_of(f"Content-Encoding {encoding} is not supported")
            )

        if (request.content_length or 0) > LARGEST_QUESTION:
            raise _too_long(request.content_length or 0)

        received = BytesIO()
        try:
            await self._receive(request, received)
            body = received.getvalue()
            if len(body) < _LARGE:
                yield body
            else:
                async with self._large:
                    yield body
        finally:
            self._held -= received.tell()

    async def _receive(self, request: web.Request, received: BytesIO) -> None:
        """Receive a body.

        Raises:
            HTTPException: as for `of`.
        """
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                async for part in request.content.iter_any():
                    self._held += received.write(part)
                    if received.tell() > LARGEST_QUESTION:
                        raise _too_long(received.tell())

                    if self._held > _LARGEST_IN_SUM:
                        raise web.HTTPServiceUnavailable(
                            text="other questions leave no room for this one"
                        )
        except TimeoutError as error:
            raise web.HTTPRequestTimeout(
                text=f"the body was not whole within {_BODY_SECONDS:g} seconds",
                headers={"Connection": "close"},
            ) from error
        except (ConnectionError, web.RequestPayloadError) as error:
            raise web.HTTPBadRequest(text="the body ended early") from error


def _too_long(length: int) -> web.HTTPException:
    return web.HTTPRequestEntityTooLarge(
        LARGEST_QUESTION,
        length,
        text=f"the body has {length} bytes or more: at most {LARGEST_QUESTION} are read",
    )


def make_app(
    extender: Extender,
    *,
    needs_certificate: bool = False,
    binds: bool = True,
    ends: Callable[[], Mapping[str, float]] = dict,
) -> web.Application:
    """Return the application that serves an extender.

    Args:
        extender: the extender.
        needs_certificate: answer questions only over connections on which TLS has verified the
            client.
        binds: answer `/bind`.
        ends: says when certificates end, for `/metrics`.
    """
    handlers = _Handlers(extender, needs_certificate=needs_certificate, binds=binds, ends=ends)
    app = web.Application(client_max_size=LARGEST_QUESTION)

    def add(
        verb: str, decode: Callable[[bytes], _Args], answer: Callable[[_Args], Awaitable[bytes]]
    ) -> None:
        app.router.add_post(f"/{verb}", handlers.handler(verb, decode, answer))

    add("filter", wire.decode_args, handlers.filter)
    add("prioritize", wire.decode_args, handlers.prioritize)
    add("preempt", wire.decode_preemption, handlers.preempt)
    add("evaluate", wire.decode_batch, handlers.evaluate)
    add("bind", wire.decode_binding, handlers.bind)
    app.router.add_get("/healthz", handlers.health)
    app.router.add_get("/metrics", handlers.metrics)
    app.on_cleanup.append(handlers.close)
    return app
