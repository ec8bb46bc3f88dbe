"""Serves health and metrics over HTTP, and nothing else.

A web server of a library would take longer to import than the keeper takes for a hundred pods. This
one reads the first line of a request of bounded size, answers, and closes the connection.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from alignup.errors import InputError, text_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

_LONGEST_REQUEST: Final = 16 << 10
_REQUEST_SECONDS: Final = 5.0
_MOST_CONNECTIONS: Final = 64
_END_OF_HEAD: Final = b"\r\n\r\n"

# By path, the status and the text of the answer.
Pages = dict[str, "Callable[[], tuple[HTTPStatus, str]]"]


class _Answers:
    """Answers one connection after another.

    Of too many that have sent no request yet, the oldest is closed: whoever opens connections does
    not keep a kubelet from asking for health, which would restart the keeper.
    """

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        # Those that have sent no request yet, the oldest first.
        self._silent: dict[asyncio.StreamWriter, None] = {}

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._silent[writer] = None
        if len(self._silent) > _MOST_CONNECTIONS:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.close()

        try:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_REQUEST_SECONDS):
                    status, text = await self._answer(reader, writer)
                    body = text.encode()
                    head = (
                        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
                        "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                    )
                    writer.write(head.encode() + body)
                    await writer.drain()
        finally:
            self._silent.pop(writer, None)
            writer.close()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[HTTPStatus, str]:
        try:
            head = await reader.readuntil(_END_OF_HEAD)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return HTTPStatus.BAD_REQUEST, "no request of HTTP\n"

        self._silent.pop(writer, None)
        words = head.partition(b"\r\n")[0].decode(errors="replace").split(" ")
        if len(words) != len(("method", "path", "version")):
            return HTTPStatus.BAD_REQUEST, "no request of HTTP\n"
        if words[0] != "GET":
            return HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered\n"

        page = self._pages.get(words[1].partition("?")[0])
        return page() if page else (HTTPStatus.NOT_FOUND, "no such page\n")


@asynccontextmanager
async def serving(where: tuple[str, int], pages: Pages) -> AsyncIterator[int]:
    """Serve some pages while a block runs; yield the port.

    Args:
        where: host and port; 0: any free one.
        pages: what makes the answer, by path.

    Raises:
        InputError: the address cannot be had.
    """
    try:
        server = await asyncio.start_server(_Answers(pages), *where, limit=_LONGEST_REQUEST)
    except (OSError, UnicodeError) as error:
        raise InputError(f"cannot listen on {where[0]}:{where[1]}: {text_of(error)}") from error

    async with server:
        yield int(server.sockets[0].getsockname()[1])


def metrics_text(metrics: Mapping[str, tuple[str, str, float | Mapping[str, float]]]) -> str:
    """Return metrics in the text format of Prometheus.

    Args:
        metrics: by name, the type (`counter`, `gauge`, `histogram`), what it means, and the value;
            or several values, by what follows the name: labels, or a suffix and labels.
    """
    lines = []
    for name, (kind, meaning, value) in metrics.items():
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
        samples = {"": value} if isinstance(value, int | float) else value
        lines += [f"{name}{suffix} {number!r}" for suffix, number in samples.items()]

    return "\n".join([*lines, ""])
