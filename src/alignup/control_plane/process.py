"""What a program of the control plane is told: where to listen, and when to end.

Apart from what serves, whose library takes long to import.
"""

from __future__ import annotations

import asyncio
import signal
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_HIGHEST_PORT: Final = 65535

# Seconds from a signal to the end, whatever is under way; Kubernetes gives a pod 30.
GRACE: Final = 20


def address(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`; an IPv6 host is in brackets; port 0 is any free one.

    Raises:
        InputError: it is no such text.
    """
    host, _, port = text.rpartition(":")
    # without which the empty name would be all addresses
    host = host.removeprefix("[").removesuffix("]")
    # more digits than the highest port has can be more than Python makes a number of
    is_port = port.isdecimal() and port.isascii() and len(port) <= len(str(_HIGHEST_PORT))
    if not host or not is_port or int(port) > _HIGHEST_PORT:
        raise InputError.at("--listen", "HOST:PORT", text)

    return host, int(port)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def end_on_signals(end: Callable[[], object]) -> None:
    """Call a function at SIGTERM or SIGINT.

    When that has not ended the process in time, the kernel does (SIGALRM).
    """

    def told() -> None:
        signal.alarm(GRACE)
        end()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told)


async def run_until_told(
    work: Coroutine[Any, Any, None], started: Callable[[], None] = lambda: None
) -> None:
    """Run until the work ends, or the process gets SIGTERM or SIGINT, which end it in order.

    Args:
        work: runs for ever, or raises.
        started: called once signals are heard.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(work)
    end_on_signals(task.cancel)
    started()

    try:
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
