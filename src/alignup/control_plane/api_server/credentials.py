"""Reads who asks an API server, and where it is: a kubeconfig, or the service account of a pod.

kubernetes_asyncio reads them; what it does not look at is checked here, and whatever is wrong
becomes an error of one line that names the file. Needs the extra `cluster`.

The library is imported here for all of this package: without its generated models, which take half
of the time to import and are not used (`_without_models`).
"""

from __future__ import annotations

import logging
import os
import ssl
import stat
import sys
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml
from yarl import URL

from alignup.errors import InputError, text_of
from alignup.text.documents import read_documents
from alignup.text.typed import decode

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIBRARY: Final = "kubernetes_asyncio"


@contextmanager
def _without_models() -> Iterator[ModuleType]:
    """Let parts of the library be imported in a block without the models that come with all of it.

    The packages around these parts are empty meanwhile; the one of clients is yielded, for names
    that other parts look for in it. Behind the block nothing of that is left: whoever imports the
    library then gets a whole one.
    """
    library, client = ModuleType(_LIBRARY), ModuleType(f"{_LIBRARY}.client")
    spec = None if _LIBRARY in sys.modules else find_spec(_LIBRARY)
    if spec is None:
        yield client
        return

    folders = list(spec.submodule_search_locations or ())
    library.__path__ = folders
    client.__path__ = [str(Path(folder) / "client") for folder in folders]

    sys.modules |= {library.__name__: library, client.__name__: client}
    try:
        yield client
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == _LIBRARY]:
            del sys.modules[name]


with _without_models() as client_package:
    from kubernetes_asyncio.client.configuration import Configuration
    from kubernetes_asyncio.client.rest import RESTClientObject

    # who makes clients is not asked here
    vars(client_package).update(Configuration=Configuration, ApiClient=None)
    from kubernetes_asyncio.config import ConfigException, load_incluster_config
    from kubernetes_asyncio.config.kube_config import (
        ENV_KUBECONFIG_PATH_SEPARATOR,
        KubeConfigLoader,
        KubeConfigMerger,
    )

__all__ = [
    "ConfigException",
    "Configuration",
    "RESTClientObject",
    "errors_of",
    "read_credentials",
    "usual_kubeconfig",
]

# Bytes of a kubeconfig, or of a token.
_LARGEST_FILE: Final = 1 << 20
_TOKEN: Final = "BearerToken"  # noqa: S105  # what the library calls it, and no secret
_SCHEMES: Final = frozenset({"http", "https"})

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
        # errors that do not come from OpenSSL have no reason
        reason = getattr(error, "reason", None) or error.strerror or type(error).__name__
        return f"a certificate or a key that cannot be read: {reason}"
    if isinstance(error, OSError):
        reason = error.strerror or text_of(error)
        return f"{reason} {error.filename!r}" if error.filename else reason
    if isinstance(error, RecursionError):
        return "values that are nested too deeply"
    if isinstance(error, ConfigException | yaml.YAMLError | ValueError | RuntimeError):
        return " ".join(text_of(error).split())
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
