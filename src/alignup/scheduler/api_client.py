"""Speaks to an API server: credentials and connections by kubernetes_asyncio, bodies as bytes.

The library keeps credentials fresh, which `alignup.scheduler.credentials` reads. Its generated models are not
used: objects are decoded by the modules that need their fields. Needs the extra `cluster`.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import aiohttp
import msgspec
from kubernetes_asyncio.client.rest import RESTClientObject
from kubernetes_asyncio.config import ConfigException

from alignup.errors import AlignupError, one_line
from alignup.scheduler.credentials import bearer_header, errors_of, read_credentials

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from kubernetes_asyncio.client import Configuration

__all__ = [
    "BINDING",
    "GONE",
    "JSON",
    "MERGE",
    "NODES",
    "TOPOLOGIES",
    "Api",
    "ApiError",
    "object_path",
    "pod_path",
]

JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"
NODES: Final = "/api/v1/nodes"
TOPOLOGIES: Final = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
BINDING: Final = "binding"
GONE: Final = 410
_FAILED: Final = 400
_PATIENCE: Final = 30.0
_MOST_CONNECTIONS: Final = 96
_SHOWN_LETTERS: Final = 300


class ApiError(AlignupError):
    """Raised when the API server refuses a request, or does not answer; `status` 0: it did not answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_gone(self) -> bool:
        """Whether the version that was asked for is too old to be had."""
        return self.status == GONE


class _Status(msgspec.Struct):
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
        raise ApiError(f"expected the name of an object, got {name!r} in {collection}", _FAILED)
    return "/".join((collection, quote(name, safe="", errors="surrogateescape"), *parts))


def pod_path(namespace: str, name: str, *parts: str) -> str:
    """Return the path of a pod, or of one of its subresources.

    Raises:
        ApiError: as `object_path`.
    """
    return object_path(object_path("/api/v1/namespaces", namespace, "pods"), name, *parts)


class Api:
    """Connections to one API server.

    Args:
        configuration: where it is, and who asks.
    """

    def __init__(self, configuration: Configuration) -> None:
        configuration.connection_pool_maxsize = _MOST_CONNECTIONS
        self._configuration = configuration
        self._rest = RESTClientObject(configuration)

    @classmethod
    async def connect(cls, kubeconfig: str | None) -> Api:
        """Return connections as a kubeconfig file says, or, without one, as the service account of this pod.

        Nothing is sent yet.

        Raises:
            InputError: the file, or the service account, cannot be read.
        """
        with errors_of(kubeconfig):
            return cls(await read_credentials(kubeconfig))

    async def close(self) -> None:
        """Close all connections."""
        await self._rest.close()

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
    ) -> bytes:
        """Return the body of the answer to a request.

        Raises:
            ApiError: the server refuses, or does not answer.
        """
        limits = aiohttp.ClientTimeout(total=_PATIENCE)
        async with self.open(method, path, body, query, content_type, limits) as response:
            return await response.read()

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        body: bytes | None,
        query: Mapping[str, str] | None,
        content_type: str,
        limits: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; the answer is read by whoever asked, and errors of reading are raised as those of sending.

        Raises:
            ApiError: the server refuses, or does not answer.
        """
        headers = {**await self._credentials(), "Accept": JSON, "Content-Type": content_type}
        options: dict[str, Any] = {}
        if self._rest.server_hostname:
            options["server_hostname"] = self._rest.server_hostname
        if self._rest.proxy:
            options["proxy"] = self._rest.proxy
        url = str(self._configuration.host).rstrip("/") + path
        try:
            async with self._rest.pool_manager.request(
                method, url, data=body, params=query, headers=headers, timeout=limits, **options
            ) as response:
                if response.status >= _FAILED:
                    raise _refused(method, path, response.status, await response.read())
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(f"{method} {path}: no answer: {error or type(error).__name__}") from error

    async def _credentials(self) -> dict[str, str]:
        """Return the headers that say who asks; the file of a token is read again now and then.

        Raises:
            ApiError: there is no token for the moment.
        """
        try:
            settings: dict[str, Any] = await self._configuration.auth_settings()
        except (ConfigException, OSError, ValueError) as error:
            raise ApiError(f"expected a token, got: {error}") from error
        found = [one for one in settings.values() if one.get("in") == "header"]
        return {one["key"]: bearer_header(one["value"]) for one in found}


def _refused(method: str, path: str, status: int, body: bytes) -> ApiError:
    """Return the error that the server's own words make."""
    try:
        message = msgspec.json.decode(body, type=_Status).message
    except (msgspec.DecodeError, UnicodeDecodeError):
        message = body.decode(errors="replace")
    return ApiError(f"{method} {path}: {status}: {one_line(message[:_SHOWN_LETTERS])}", status)
