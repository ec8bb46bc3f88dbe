"""Speaks to an API server: connections by kubernetes_asyncio, bodies as bytes.

The library keeps tokens fresh. Its generated models are not used: objects are decoded by the
modules that need their fields. Needs the extra `cluster`.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from urllib.parse import quote
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from yarl import URL

from alignup.control_plane.api_server.credentials import (
    ConfigException,
    RESTClientObject,
    errors_of,
    read_credentials,
)
from alignup.errors import AlignupError, text_of
from alignup.records import Record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from alignup.control_plane.api_server.credentials import Configuration


_T = TypeVar("_T")
_JSON: Final = "application/json"
_MERGE: Final = "application/merge-patch+json"

NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/pods"
BUDGETS: Final = "/apis/policy/v1/poddisruptionbudgets"
TOPOLOGIES: Final = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
# The path of the objects by which devices are claimed.
CLAIMS: Final = "/apis/resource.k8s.io/v1"
BINDING: Final = "binding"

FORBIDDEN: Final = 403
MISSING: Final = 404
CONFLICT: Final = 409
GONE: Final = 410
# a redirection is an answer of another server than was asked
_REDIRECTED: Final = 300
_FAILED: Final = 400
_TOO_MANY: Final = 429
_FAILING: Final = 500
# How such an answer begins where a webhook failed (`ErrCallingWebhook` of apiserver): the request
# is over, and nothing of it was stored.
_WEBHOOK_FAILED: Final = "Internal error occurred: failed calling webhook "

# Seconds within which an answer is whole.
_PATIENCE: Final = 30.0
_MOST_CONNECTIONS: Final = 96
# Bytes: a page of 500 objects of half a MiB each.
_LARGEST_ANSWER: Final = 256 << 20
_SHOWN_LETTERS: Final = 300


class ApiError(AlignupError):
    """Raised when the API server refuses a request, or does not answer.

    Attributes:
        status: that of the answer; 0: it did not answer.
        is_webhooks: a webhook failed that the server asks before it stores anything.
    """

    def __init__(self, message: str, status: int = 0, *, is_webhooks: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.is_webhooks = is_webhooks

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed later.

        That is so without an answer, after a conflict or too many requests, or if the server fails.
        """
        return self.status in {0, CONFLICT, _TOO_MANY} or self.status >= _FAILING

    @property
    def is_refusal(self) -> bool:
        """Whether the server has not done what was asked, and will not.

        Otherwise it may have done so, or still do so.
        """
        return 0 < self.status < _FAILING or self.is_webhooks


class Status(msgspec.Struct):
    """The answer to a request that failed."""

    message: str = ""
    code: int = 0


def object_path(collection: str, name: str, *parts: str) -> str:
    """Return the path of an object, or of one of its subresources.

    Args:
        collection: the path of the objects of its kind, such as `NODES`.
        name: any text; what has a meaning in paths is escaped.
        parts: the subresource.

    Raises:
        ApiError: no object can have the name, and in a path it would mean another one.
    """
    if name in {"", ".", ".."}:
        raise ApiError(f"{name!r} cannot be the name of an object in {collection}", _FAILED)
    return "/".join((collection, quote(name, safe="", errors="surrogateescape"), *parts))


def pod_path(namespace: str, name: str, *parts: str) -> str:
    """Return the path of a pod, or of one of its subresources.

    Raises:
        ApiError: as `object_path`.
    """
    return object_path(object_path("/api/v1/namespaces", namespace, "pods"), name, *parts)


class Pauses(Record):
    """Seconds between attempts.

    Attributes:
        resync: between a list and the next, though nothing seems to be wrong.
    """

    first: float = 0.1
    longest: float = 10.0
    resync: float = 600.0


class Api:
    """Connections to one API server.

    Args:
        configuration: where it is, and who asks.
        namespace: that of the context.

    Attributes:
        pauses: between attempts to reach the server, for those who try again.
        complain: called with what went wrong meanwhile, in one line; nobody is told at first.
    """

    def __init__(self, configuration: Configuration, namespace: str = "default") -> None:
        self.namespace = namespace
        self.pauses = Pauses()
        self.complain: Callable[[str], None] = lambda _: None

        configuration.connection_pool_maxsize = _MOST_CONNECTIONS
        self._configuration = configuration
        self._rest = RESTClientObject(configuration)

        url = URL(str(configuration.host))
        if not self._rest.proxy and url.host and not proxy_bypass(url.authority):
            self._rest.proxy = getproxies().get(url.scheme, "")

        # the library's own session looks for proxies and .netrc at each request, in two threads
        session = aiohttp.ClientSession(connector=self._rest.pool_manager.connector)
        self._rest.pool_manager.detach()
        self._rest.pool_manager = session

    @classmethod
    async def connect(cls, kubeconfig: str | None, context: str | None = None) -> Self:
        """Return connections as a kubeconfig file says, or the service account of this pod.

        Nothing is sent yet.

        Args:
            kubeconfig: a file, or several in the manner of $KUBECONFIG.
            context: of the file; None: its current one.

        Raises:
            InputError: the file, or the service account, cannot be read.
        """
        with errors_of(kubeconfig):
            return cls(*await read_credentials(kubeconfig, context))

    async def close(self) -> None:
        """Close all connections."""
        await self._rest.close()

    @contextmanager
    def complaining(self, before: str = "") -> Iterator[None]:
        """End a block at an error of this package, and go on behind it.

        The error is said after the words `before`.
        """
        try:
            yield
        except AlignupError as error:
            self.complain(f"{before}{error}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        seconds: float | None = None,
    ) -> bytes:
        """Return the body of the answer to a request; give up after so many seconds, None: 30.

        A body is JSON as bytes, or what JSON is made of; that of PATCH is merged into the object.

        Raises:
            ApiError: the server refuses, or does not answer.
        """
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        limits = aiohttp.ClientTimeout(total=seconds or _PATIENCE)
        async with self.open(method, path, data, query, limits) as response:
            return await _bounded(response, f"{method} {path}")

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        body: bytes | None,
        query: Mapping[str, str] | None,
        limits: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; the caller reads the answer.

        Errors of reading are raised as those of sending.

        Raises:
            ApiError: the server refuses, or does not answer.
        """
        request_name = f"{method} {path}"
        headers = {
            **await self._credentials(),
            "Accept": _JSON,
            "Accept-Encoding": "identity",
            "Content-Type": _MERGE if method == "PATCH" else _JSON,
        }
        options: dict[str, Any] = {}
        if self._rest.server_hostname:
            options["server_hostname"] = self._rest.server_hostname

        if self._rest.proxy:
            options["proxy"] = self._rest.proxy

        url = str(self._configuration.host).rstrip("/") + path
        try:
            async with self._rest.pool_manager.request(
                method,
                url,
                data=body,
                params=query,
                headers=headers,
                timeout=limits,
                allow_redirects=False,
                **options,
            ) as response:
                # nobody asked for it, and a small answer can be a huge one
                if "Content-Encoding" in response.headers:
                    raise ApiError(
                        f"{request_name}: the answer is compressed, although this was not asked for"
                    )

                if response.status >= _REDIRECTED:
                    answer = await _bounded(response, request_name)
                    message = _message_of(answer)[:_SHOWN_LETTERS] or response.reason
                    is_webhooks = message is not None and message.startswith(_WEBHOOK_FAILED)
                    raise ApiError(
                        f"{request_name}: {response.status}: {message}",
                        response.status,
                        is_webhooks=is_webhooks and response.status == _FAILING,
                    )

                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(f"{request_name}: no answer: {text_of(error)}") from error

    async def _credentials(self) -> dict[str, str]:
        """Return the headers that say who asks; the file of a token is read again now and then.

        Raises:
            ApiError: there is no token for the moment.
        """
        try:
            settings: dict[str, Any] = await self._configuration.auth_settings()
        except (ConfigException, OSError, ValueError) as error:
            raise ApiError(f"cannot read the token: {text_of(error)}") from error

        # files of tokens end in newlines, which are no part of them
        return {
            setting["key"]: setting["value"].strip()
            for setting in settings.values()
            if setting.get("in") == "header"
        }


def _message_of(answer: bytes) -> str:
    """Return the server's own words, or the whole answer where it is no `Status`."""
    try:
        return msgspec.json.decode(answer, type=Status).message
    except (msgspec.DecodeError, UnicodeDecodeError):
        return answer.decode(errors="replace")


def with_api(
    kubeconfig: str | None,
    work: Callable[[Api], Awaitable[_T]],
    context: str | None = None,
    complain: Callable[[str], None] = lambda _: None,
    new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> _T:
    """Return what some work with an API server returns.

    The other arguments are those of `Api.connect`, what is to be `Api.complain`, and what makes the
    event loop that it is done in (None: as usual).

    Raises:
        InputError: as `Api.connect`.
    """

    async def connected() -> _T:
        async with await Api.connect(kubeconfig, context) as api:
            api.complain = complain
            return await work(api)

    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(connected())
    finally:
        signal.alarm(0)  # of `end_on_signals`


@contextmanager
def accepting(*statuses: int) -> Iterator[None]:
    """End a block, without an error, at an answer with one of these statuses."""
    try:
        yield
    except ApiError as error:
        if error.status not in statuses:
            raise


async def write_object(api: Api, collection: str, name: str, body: object) -> bytes:
    """Merge an object into the one of its name, or create it; return what the server answers.

    Raises:
        ApiError: the server refuses, or does not answer.
    """
    with accepting(MISSING):
        return await api.request("PATCH", object_path(collection, name), body)
    return await api.request("POST", collection, body)


async def evict(api: Api, namespace: str, name: str, uid: str) -> None:
    """Ask for a pod to be evicted, within disruption budgets and in its own time.

    Raises:
        ApiError: the server refuses, as where a budget forbids it or another pod has the name, or
            does not answer.
    """
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
    await api.request("POST", pod_path(namespace, name, "eviction"), body)


def now(*, precise: bool = False) -> str:
    """Return this moment in the form of the API; `precise`: with microseconds, as leases are."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ" if precise else "%Y-%m-%dT%H:%M:%SZ")


async def _bounded(response: aiohttp.ClientResponse, question: str) -> bytes:
    """Return the body of an answer.

    Raises:
        ApiError: it is larger than any that a server should send.
    """
    received = BytesIO()
    async for part in response.content.iter_any():
        if received.tell() + len(part) > _LARGEST_ANSWER:
            raise ApiError(f"{question}: an answer of more than {_LARGEST_ANSWER} bytes")
        received.write(part)

    return received.getvalue()
