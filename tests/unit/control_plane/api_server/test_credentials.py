"""Whatever is wrong with credentials is one line that names their file.

A token is shown to nobody.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import subprocess
import sys
from typing import Any

import pytest

from alignup.control_plane.api_server.api_client import NODES, Api
from alignup.control_plane.api_server.credentials import ConfigException, errors_of
from alignup.errors import InputError
from fakes.api_server import ApiStub, served

TEXT = base64.b64encode(b"hello").decode()


def kubeconfig(
    server: Any = "https://127.0.0.1:9", user: Any = None, **cluster: Any
) -> dict[str, Any]:
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": {"token": "t"} if user is None else user}],
    }


async def connect(path: str | None) -> None:
    await (await Api.connect(path)).close()


def refusal(path: object) -> str:
    """Return what is said of a file; it is one line, and begins as all do."""
    with pytest.raises(InputError) as caught:
        asyncio.run(connect(str(path)))
    said = str(caught.value)
    assert said.startswith(f"cannot use the credentials in {path}: ")
    assert "\n" not in said
    return said.removeprefix(f"cannot use the credentials in {path}: ")


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            kubeconfig(**{"certificate-authority-data": TEXT}),
            "a certificate or a key that cannot be read",
        ),
        (kubeconfig(**{"certificate-authority-data": "a"}), "base64"),
        (kubeconfig(**{"certificate-authority": "/no/such/ca"}), "/no/such/ca"),
        (
            kubeconfig(user={"client-certificate-data": TEXT}),
            "a certificate or a key that cannot be read",
        ),
        (kubeconfig(5), "expected a string, got 5 at clusters[0].cluster.server"),
        (kubeconfig("nowhere"), "expected a URL of http or https, got 'nowhere'"),
        (kubeconfig("http://["), "expected a URL of http or https"),
        (kubeconfig("file:///etc"), "expected a URL of http or https"),
        (
            kubeconfig(**{"tls-server-name": 5}),
            "expected a string, got 5 at clusters[0].cluster.tls-server-name",
        ),
        (
            kubeconfig(**{"proxy-url": []}),
            "expected a string, got [] at clusters[0].cluster.proxy-url",
        ),
        (
            kubeconfig(**{"insecure-skip-tls-verify": "false"}),
            "expected true or false, got 'false' at clusters[0].cluster.insecure-skip-tls-verify",
        ),
        (kubeconfig(user={"token": "se\ncret"}), "the token has letters that no header can have"),
        (
            kubeconfig(user={"tokenFile": "/no/such/token"}),
            "No such file or directory '/no/such/token'",
        ),
        (
            kubeconfig(user={"exec": {"command": "/no/such/program", "apiVersion": "v1"}}),
            "/no/such/program",
        ),
        ({**kubeconfig(), "clusters": None}, "clusters"),
        ({**kubeconfig(), "contexts": 5}, "a document of another form"),
        ({"current-context": "c"}, "contexts"),
        ([], "a document of another form"),
        (5, "a document of another form"),
        ("", "a document of another form"),
    ],
)
def test_what_is_wrong_with_a_kubeconfig_is_said(tmp_path, document, said) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(document))
    message = refusal(path)
    assert said in message
    assert "cret" not in message


@pytest.mark.parametrize("text", [b"", b"[", b"\xff", b"[" * 1000, b"\x00"])
def test_what_is_no_document_is_said(tmp_path, text) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(text)
    refusal(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"x" * (2 << 20), "more than 1048576 bytes"),
        (b'{"a":' * 50_000, "nested more than 200 deep"),
        (b"a: 1\na: 2\n", "the key 'a' a second time at line 2"),
        (
            b"- &a [1]\n"
            + b"".join(b"- &%c [*%c,*%c]\n" % (n + 1, n, n) for n in b"abcdefghijklmnopqrstuvwxy"),
            "aliases",
        ),
    ],
    ids=["large", "deep", "twice", "aliases"],
)
def test_what_the_library_would_read_for_minutes_is_refused_at_once(tmp_path, text, said) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(text)
    assert said in refusal(path)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TimeoutError(), "TimeoutError"),
        (OSError("no more of them"), "no more of them"),
        (ssl.SSLError(), "a certificate or a key that cannot be read: SSLError"),
        (ConfigException(), "ConfigException"),
        (PermissionError(13, "Permission denied", "token"), "Permission denied 'token'"),
    ],
)
def test_what_the_library_raises_has_a_reason(error, said) -> None:
    with pytest.raises(InputError) as caught, errors_of("file"):
        raise error
    assert str(caught.value) == f"cannot use the credentials in file: {said}"


def test_a_missing_file_is_said_to_be_missing(tmp_path) -> None:
    assert refusal(tmp_path / "no") == "no such file"
    assert refusal(f"{tmp_path / 'no'}:{tmp_path / 'neither'}") == "no such file"


def test_what_could_be_read_for_ever_is_refused(tmp_path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, tmp_path, "/dev/zero"):
        assert refusal(path) == "not a regular file"
        config = tmp_path / "kubeconfig"
        config.write_text(json.dumps(kubeconfig(user={"tokenFile": str(path)})))
        assert refusal(config) == "not a regular file"


def test_a_pipe_of_a_shell_is_read() -> None:
    """As in `--kubeconfig <(command)`."""
    source, sink = os.pipe()
    with os.fdopen(sink, "w") as file:
        json.dump(kubeconfig(), file)
    try:
        asyncio.run(connect(f"/dev/fd/{source}"))
    finally:
        os.close(source)


def test_the_newline_at_the_end_of_a_file_is_no_part_of_its_token(tmp_path) -> None:
    authorizations: list[str] = []

    class Listening(ApiStub):
        async def handle(self, request):
            authorizations.append(request.headers["Authorization"])
            return await super().handle(request)

    async def scenario() -> None:
        async with served(Listening()) as server:
            (tmp_path / "token").write_text("secret\n")
            path = tmp_path / "kubeconfig"
            path.write_text(
                json.dumps(kubeconfig(server._configuration.host, {"tokenFile": "token"}))
            )
            api = await Api.connect(str(path))
            await api.request("GET", NODES)
            await api.close()

    asyncio.run(scenario())
    assert authorizations == ["Bearer secret"]


def said_by(program: str) -> list[str]:
    """Return the words that a program prints, in a process of its own."""
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603  # ours
    return result.stdout.split()


OURS = "import sys; from alignup.control_plane.api_server import api_client, credentials;"
THEIRS = "import kubernetes_asyncio;"


def test_models_of_the_library_are_not_imported() -> None:
    assert said_by(f"{OURS} print([m for m in sys.modules if 'kubernetes_asyncio' in m])") == ["[]"]


@pytest.mark.parametrize(("first", "second"), [(OURS, THEIRS), (THEIRS, OURS)])
def test_who_imports_the_library_gets_a_whole_one(first, second) -> None:
    """Whatever was imported first; names are those that users of the library know."""
    names = (
        "client.CoreV1Api",
        "client.rest.RESTClientObject",
        "client.models.V1Pod",
        "config.load_kube_config",
        "config.kube_config.KubeConfigLoader",
        "watch.Watch",
    )
    values = ", ".join(f"kubernetes_asyncio.{name}.__name__" for name in names)
    words = said_by(f"{first} {second} print({values}, credentials.Configuration.__name__)")
    assert words == [*(name.rpartition(".")[2] for name in names), "Configuration"]
