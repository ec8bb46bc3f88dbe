"""Reads where an API server is and who asks it: kubeconfig files, or the service account of a pod.

kubernetes_asyncio reads both; what it does not look at is checked here, and whatever is wrong becomes an error of one
line that names the file. Needs the extra `cluster`.
"""

from __future__ import annotations

import logging
import ssl
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, load_incluster_config
from kubernetes_asyncio.config.kube_config import (
    ENV_KUBECONFIG_PATH_SEPARATOR,
    KubeConfigLoader,
    KubeConfigMerger,
)
from yarl import URL

from alignup.errors import InputError
from alignup.text.typed import decode

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["bearer_header", "errors_of", "read_credentials"]

# it logs some errors before it raises them, and they would be said twice
logging.getLogger("kubernetes_asyncio").addHandler(logging.NullHandler())
_TOKEN: Final = "BearerToken"  # noqa: S105  # what the library calls it, and no secret
_SCHEMES: Final = frozenset({"http", "https"})


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


@contextmanager
def errors_of(kubeconfig: str | None) -> Iterator[None]:
    """Make any error of reading or using credentials an `InputError` that names their place.

    Args:
        kubeconfig: the file; None: the service account of a pod.

    Raises:
        InputError: of whatever the block raises.
    """
    where = kubeconfig or "a pod's service account; outside a pod give --kubeconfig"
    try:
        yield
    except Exception as error:  # of a wrong file the library raises what its code just meets
        raise InputError(f"expected credentials in {where}, got: {_words(error)}") from error


def _words(error: Exception) -> str:
    """Return what an error of the library says of a file."""
    if isinstance(error, ssl.SSLError):
        return f"a certificate or a key that cannot be read: {error.reason or error.strerror}"
    if isinstance(error, OSError):
        return " ".join(filter(None, (error.strerror, error.filename and repr(error.filename))))
    if isinstance(error, RecursionError):
        return "values that are nested too deeply"
    if isinstance(error, ConfigException | yaml.YAMLError | ValueError | RuntimeError):
        return str(error)
    return "a document of another form"


async def read_credentials(kubeconfig: str | None) -> Configuration:
    """Return where the server is, and who asks.

    Args:
        kubeconfig: a file, or several in the manner of $KUBECONFIG; None: the service account of this pod.

    Raises:
        InputError: a value is not what it should be.
        Exception: whatever the library raises; see `errors_of`.
    """
    configuration = Configuration()
    if kubeconfig is None:
        load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    else:
        _check_files(kubeconfig)
        merged = KubeConfigMerger(kubeconfig)
        document: Any = merged.config and merged.config.value
        for index, one in enumerate(document["clusters"]):
            decode(one.value, _NamedCluster, f"clusters[{index}]")
        # relative names of files are meant from where the kubeconfig is
        await KubeConfigLoader(merged.config, config_base_path=None).load_and_set(configuration)
    _check_server(configuration.host)
    token = bearer_header(configuration.api_key.get(_TOKEN, ""))
    if not token.isprintable():  # which nobody shall see
        raise InputError("expected a token of one line, got one with letters that no header can have")
    return configuration


def bearer_header(value: str) -> str:
    """Return the value of a header with a token; files of tokens end in newlines, which are no part of them."""
    return value.strip()


def _check_files(kubeconfig: str) -> None:
    """Check that at least one of the files is there, and that none can be read for ever.

    Raises:
        InputError: there is none, or one is no file.
    """
    paths = [Path(one).expanduser() for one in kubeconfig.split(ENV_KUBECONFIG_PATH_SEPARATOR) if one]
    there = [path for path in paths if path.exists()]
    if not there:
        raise InputError("no such file")
    for path in there:
        mode = path.stat().st_mode
        # a pipe that a shell has made has no name, and somebody writes to it
        is_open_pipe = stat.S_ISFIFO(mode) and not path.resolve().exists()
        if not stat.S_ISREG(mode) and not is_open_pipe:
            raise InputError("something that is no file")


def _check_server(server: object) -> None:
    try:
        url = URL(str(server))
        is_one = url.scheme in _SCHEMES and bool(url.host)
    except ValueError:
        is_one = False
    if not is_one:
        raise InputError.at("clusters, server", "a URL of http or https", server)
