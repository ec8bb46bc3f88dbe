"""Speaks to an API server: credentials and connections by kubernetes_asyncio, bodies as bytes.

The library reads kubeconfig files and service accounts, and keeps tokens fresh; what it does not
look at is checked here, and whatever is wrong becomes an error of one line that names the file. Its
generated models are not used: objects are decoded by the modules that need their fields. Needs the
extra `cluster`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import ssl
import stat
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from urllib.parse import quote
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.client.rest import RESTClientObject
from kubernetes_asyncio.config import ConfigException, load_incluster_config
from kubernetes_asyncio.config.kube_config import (
    ENV_KUBECONFIG_PATH_SEPARATOR,
    KubeConfigLoader,
    KubeConfigMerger,
)
from yarl import URL

from alignup.errors import AlignupError, InputError
from alignup.records import Record
from alignup.text.documents import read_documents
from alignup.text.typed import decode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from alignup.kubernetes.wire import Metadata


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
_PATIENCE: Final = 30.0
_MOST_CONNECTIONS: Final = 96
# Bytes of a kubeconfig, or of a token.
_LARGEST_FILE: Final = 1 << 20
# Bytes: a page of 500 objects of half a MiB each.
_LARGEST_ANSWER: Final = 256 << 20
_SHOWN_LETTERS: Final = 300
_LONGEST_EVENT: Final = 1024

# Seconds between two Events.
EVENT_SECONDS: Final = 0.2

# Events that wait to be written; further ones are dropped.
MOST_EVENTS: Final = 100

_TOKEN: Final = "BearerToken"  # noqa: S105  # what the library calls it, and no secret
_SCHEMES: Final = frozenset({"http", "https"})


class ApiError(AlignupError):
    """Raised when the API server refuses a request, or does not answer.

    Attributes:
        status: that of the answer; 0: it did not answer.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status

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
        return 0 < self.status < _FAILING


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
        pauses: between attempts to reach the server, for those who try again.
        complain: called with what went wrong meanwhile, in one line.
    """

    def __init__(
        self,
        configuration: Configuration,
        namespace: str = "default",
        pauses: Pauses | None = None,
        complain: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.namespace = namespace
        self.pauses = pauses or Pauses()
        self.complain = complain

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
                    raise ApiError(f"{request_name}: {response.status}: {message}", response.status)

                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(f"{request_name}: no answer: {error or type(error).__name__}") from error

    async def _credentials(self) -> dict[str, str]:
        """Return the headers that say who asks; the file of a token is read again now and then.

        Raises:
            ApiError: there is no token for the moment.
        """
        try:
            settings: dict[str, Any] = await self._configuration.auth_settings()
        except (ConfigException, OSError, ValueError) as error:
            raise ApiError(f"cannot read the token: {error}") from error

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
) -> _T:
    """Return what some work with an API server returns.

    The other arguments are those of `Api.connect` and `Api`.

    Raises:
        InputError: as `Api.connect`.
    """

    async def connected() -> _T:
        async with await Api.connect(kubeconfig, context) as api:
            api.complain = complain
            return await work(api)

    try:
        return asyncio.run(connected())
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


async def write_event(
    api: Api, about: Metadata, reason: str, message: str, component: str, *, once: bool = False
) -> None:
    """Write a warning about a pod, where people look for it: `kubectl describe pod`.

    With `once`, nothing is written where somebody has written one like that: it is named by the
    pod's uid.

    Raises:
        ApiError: the server refuses, or does not answer.
    """
    metadata = {"namespace": about.namespace}
    accepted: tuple[int, ...] = ()
    if once:
        metadata["name"] = f"{reason.lower()}.{about.uid}"
        accepted = (CONFLICT,)
    else:
        metadata["generateName"] = f"{about.name}."

    pod = {
        "kind": "Pod",
        "apiVersion": "v1",
        "namespace": about.namespace,
        "name": about.name,
        "uid": about.uid,
    }

    moment = now()
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": metadata,
        "involvedObject": pod,
        "reason": reason,
        "message": message[:_LONGEST_EVENT],
        "type": "Warning",
        "source": {"component": component},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }

    path = object_path("/api/v1/namespaces", about.namespace, "events")
    with accepting(*accepted):
        await api.request("POST", path, event)


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


# it logs some errors before it raises them, and they would be said twice
logging.getLogger("kubernetes_asyncio").addHandler(logging.NullHandler())


class _Cluster(msgspec.Struct, rename="kebab"):
    """Where a server is, as far as the library takes values of any type."""

    server: str | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None
    insecure_skip_tls_verify: bool | None = None


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: _Cluster


class _User(msgspec.Struct, rename="camel"):
    token_file: str | None = None


class _NamedUser(msgspec.Struct):
    user: _User | None = None


@contextmanager
def errors_of(kubeconfig: str | None) -> Iterator[None]:
    """Make any error of reading or using credentials an `InputError` that names their place.

    Args:
        kubeconfig: the file; None: the service account of a pod.

    Raises:
        InputError: of whatever the block raises.
    """
    where = f"the credentials in {kubeconfig or 'the service account of a pod'}"
    try:
        yield
    except Exception as error:  # of a wrong file the library raises what its code just meets
        if kubeconfig is None and "KUBERNETES_SERVICE_HOST" not in os.environ:
            raise InputError(
                "no cluster to ask: give --kubeconfig FILE, set $KUBECONFIG, or have a file "
                "~/.kube/config; only a pod "
                "has a service account instead"
            ) from error

        raise InputError(f"cannot use {where}: {_words(error)}") from error


def _words(error: Exception) -> str:
    """Return what an error of the library says of a file."""
    if isinstance(error, ssl.SSLError):
        return f"a certificate or a key that cannot be read: {error.reason or error.strerror}"
    if isinstance(error, OSError):
        return " ".join(filter(None, (error.strerror, error.filename and repr(error.filename))))
    if isinstance(error, RecursionError):
        return "values that are nested too deeply"
    if isinstance(error, ConfigException | yaml.YAMLError | ValueError | RuntimeError):
        return " ".join(str(error).split())
    return "a document of another form"


def usual_kubeconfig() -> str | None:
    """Return the file that kubectl would take; None: there is none.

    It is that of $KUBECONFIG, or that in the home folder.
    """
    named = os.environ.get("KUBECONFIG")
    if named:
        return named

    home = Path("~/.kube/config").expanduser()
    return str(home) if home.exists() else None


async def read_credentials(
    kubeconfig: str | None, context: str | None = None
) -> tuple[Configuration, str]:
    """Return where the server is, and who asks; and the namespace of the context.

    Args:
        kubeconfig: a file, or several in the manner of $KUBECONFIG; None: the service account of
            this pod.
        context: of the file; None: its current one.

    Raises:
        InputError: a value is not what it should be.
        Exception: whatever the library raises; see `errors_of`.
    """
    configuration = Configuration()
    namespace = None
    if kubeconfig is None:
        load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    else:
        _check_files(kubeconfig)
        merged = KubeConfigMerger(kubeconfig)
        _check_document(merged.config and merged.config.value)

        # relative names of files are meant from where the kubeconfig is
        loader = KubeConfigLoader(merged.config, active_context=context, config_base_path=None)
        await loader.load_and_set(configuration)
        named_context = loader.current_context or {}
        namespace = (named_context.get("context") or {}).get("namespace")

    _check_server(configuration.host)
    token = configuration.api_key.get(_TOKEN, "").strip()
    if not token.isprintable():  # which is secret, so that it is not shown
        raise InputError("the token has letters that no header can have")

    return configuration, namespace or "default"


def _check_document(document: Any) -> None:
    """Check what merged kubeconfig files say of clusters and users.

    Raises:
        InputError: a value is not what it should be, or a file of a token is not one.
    """
    for index, cluster in enumerate(document["clusters"]):
        decode(cluster.value, _NamedCluster, f"clusters[{index}]")

    for index, entry in enumerate(document.get("users") or ()):
        user = decode(entry.value, _NamedUser, f"users[{index}]").user
        if user is not None and user.token_file is not None:
            # relative names are meant from there
            _check_file(Path(entry.path).parent / user.token_file)


def _check_files(kubeconfig: str) -> None:
    """Check that at least one of the files is there, and that none can be read for ever.

    Raises:
        InputError: there is none, or one is no file.
    """
    paths = [
        Path(name).expanduser() for name in kubeconfig.split(ENV_KUBECONFIG_PATH_SEPARATOR) if name
    ]
    existing_paths = [path for path in paths if path.exists()]
    if not existing_paths:
        raise InputError("no such file")

    for path in existing_paths:
        _check_file(path)
        if path.is_file():  # the library takes minutes to see what is no kubeconfig
            read_documents(path.read_bytes(), str(path))


def _check_file(path: Path) -> None:
    """Check that a file can be read to its end, and soon.

    Raises:
        InputError: it is no file, or a large one.
        OSError: there is none.
    """
    state = path.stat()
    # a pipe that a shell has made has no name, and has a writer
    is_open_pipe = stat.S_ISFIFO(state.st_mode) and not path.resolve().exists()
    if not stat.S_ISREG(state.st_mode) and not is_open_pipe:
        raise InputError("not a regular file")

    if state.st_size > _LARGEST_FILE:
        raise InputError(f"more than {_LARGEST_FILE} bytes")


def _check_server(server: object) -> None:
    with suppress(ValueError):
        url = URL(str(server))
        if url.scheme in _SCHEMES and url.host:
            return
    raise InputError.at("clusters, server", "a URL of http or https", server)
