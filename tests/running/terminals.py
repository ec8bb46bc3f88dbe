"""A program on a terminal of its own, of some width."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading

ROWS = 50
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def on_terminal(columns: int, *arguments: str, **environment: str) -> str:
    """Return what `alignup` writes on a terminal, standard error among it."""
    reader, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    parts: list[bytes] = []
    thread = threading.Thread(target=_read_all, args=(reader, parts))
    names = {"COLUMNS", "LINES", "NO_COLOR"}
    inherited = {name: value for name, value in os.environ.items() if name not in names}
    with subprocess.Popen(  # noqa: S603  # the tests' own words
        [sys.executable, "-m", "alignup", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        env={**inherited, "TERM": "xterm", **environment},
    ) as process:
        os.close(terminal)
        thread.start()
        process.wait(timeout=120)

    thread.join()
    os.close(reader)
    return b"".join(parts).decode().replace("\r\n", "\n")


def _read_all(reader: int, parts: list[bytes]) -> None:
    """Read until nobody has the terminal open."""
    while True:
        try:
            part = os.read(reader, 65_536)
        except OSError:  # Linux says so, and no empty part
            return
        if not part:
            return
        parts.append(part)
