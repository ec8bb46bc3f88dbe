"""Paths name the object that is meant, and no other; requests go where they should."""

from __future__ import annotations

import asyncio
from urllib.parse import unquote

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from alignup.control_plane.api_server.api_client import NODES, Api, ApiError, object_path, pod_path
from alignup.control_plane.api_server.credentials import Configuration
from alignup.control_plane.serving import serve
from fakes.api_server import ApiStub, served

NAMES = st.text(min_size=1).filter(lambda name: name not in {".", ".."})


@given(NAMES, NAMES)
def test_a_server_finds_the_names_in_the_path(namespace, name) -> None:
    url = URL("http://server" + pod_path(namespace, name, "status"))
    *before, first, pods, second, last = url.raw_path.split("/")
    assert (before, pods, last) == (["", "api", "v1", "namespaces"], "pods", "status")
    assert (unquote(first), unquote(second)) == (namespace, name)
    assert not url.query_string


def test_usual_names_stay_as_they_are() -> None:
    assert object_path(NODES, "gpu-7.example.com") == "/api/v1/nodes/gpu-7.example.com"
    assert pod_path("default", "p-0") == "/api/v1/namespaces/default/pods/p-0"


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_what_would_mean_another_object_is_refused(name) -> None:
    """The path of a pod without a name is that of all pods, and they can be deleted at once."""
    for call in (
        lambda: object_path(NODES, name),
        lambda: pod_path("d", name),
        lambda: pod_path(name, "p"),
    ):
        with pytest.raises(ApiError, match="cannot be the name of an object") as caught:
            call()
        assert caught.value.status == 400


def test_proxies_are_looked_up_once_and_no_netrc_is_read(monkeypatch, tmp_path) -> None:
    """A name in .netrc made each request with a token fail, before.

    A header and credentials do not go together.
    """
    requests: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        requests.append(
            f"{request.method} {request.url.host} {request.headers.get('Authorization')}"
        )
        return web.Response(text="{}")

    async def scenario() -> None:
        app = web.Application()
        app.router.add_route("*", "/{any:.*}", answer)
        runner, port = await serve(app, ("127.0.0.1", 0))
        (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password secret\n")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        for name in ("no_proxy", "NO_PROXY", "http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.delenv(name, raising=False)

        token = {"api_key": {"BearerToken": "Bearer t"}}
        try:
            async with Api(Configuration(host=f"http://127.0.0.1:{port}", **token)) as api:
                await api.request("GET", "/version")
            monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
            async with Api(Configuration(host="http://api.invalid:80")) as api:
                monkeypatch.delenv("http_proxy")
                await api.request("GET", "/version")

            monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
            monkeypatch.setenv("no_proxy", "127.0.0.1")
            async with Api(Configuration(host=f"http://127.0.0.1:{port}")) as api:
                await api.request("GET", "/version")
        finally:
            await runner.cleanup()

    asyncio.run(scenario())
    assert requests == ["GET 127.0.0.1 Bearer t", "GET api.invalid None", "GET 127.0.0.1 None"]


def test_a_token_that_is_gone_for_the_moment_is_an_error_of_the_request() -> None:
    def gone(_configuration: Configuration) -> None:
        raise FileNotFoundError(2, "No such file or directory", "token")

    async def scenario() -> None:
        configuration = Configuration(host="http://127.0.0.1:9", api_key={"BearerToken": "t"})
        configuration.refresh_api_key_hook = gone
        api = Api(configuration)
        with pytest.raises(ApiError, match=r"cannot read the token: .*No such file or directory"):
            await api.request("GET", NODES)
        await api.close()

    asyncio.run(scenario())


def test_an_error_without_a_text_is_said_by_its_name(monkeypatch) -> None:
    """As aiohttp's errors of time are: no answer is never said to be for no reason."""

    async def scenario() -> str:
        async with Api(Configuration(host="http://127.0.0.1:9")) as api:

            def request(*_: object, **__: object) -> None:
                raise TimeoutError

            monkeypatch.setattr(api._rest.pool_manager, "request", request)
            with pytest.raises(ApiError) as caught:
                await api.request("GET", NODES)
        return str(caught.value)

    assert asyncio.run(scenario()) == f"GET {NODES}: no answer: TimeoutError"


def test_a_token_that_fails_without_a_text_is_said_by_the_name_of_its_error() -> None:
    def fail(_configuration: Configuration) -> None:
        raise TimeoutError

    async def scenario() -> None:
        configuration = Configuration(host="http://127.0.0.1:9", api_key={"BearerToken": "t"})
        configuration.refresh_api_key_hook = fail
        async with Api(configuration) as api:
            with pytest.raises(ApiError, match=r"^cannot read the token: TimeoutError$"):
                await api.request("GET", NODES)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("body", "reason", "message"),
    [
        (b'{"kind": "Status", "message": "pods is forbidden"}', None, "502: pods is forbidden"),
        (b"<html>no backend</html>", None, "502: <html>no backend</html>"),
        (b"\xff is no text", None, "502: \ufffd is no text"),
        (b'{"kind": "Status"}', "Bad Gateway", "502: Bad Gateway"),
        (b"", "Bad Gateway", "502: Bad Gateway"),
    ],
)
def test_a_refusal_has_the_servers_words_or_the_whole_answer(body, reason, message) -> None:
    class Refusing(ApiStub):
        async def handle(self, _request: web.Request) -> web.StreamResponse:
            return web.Response(status=502, reason=reason, body=body)

    async def scenario() -> None:
        async with served(Refusing()) as api:
            with pytest.raises(ApiError) as caught:
                await api.request("GET", NODES)
            assert str(caught.value).endswith(message)
            assert caught.value.status == 502

    asyncio.run(scenario())
