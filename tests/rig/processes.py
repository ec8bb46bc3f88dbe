"""Programs that run in the background until they are ended."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["Processes", "RigError"]

_Found = TypeVar("_Found")


class RigError(Exception):
    """A program of the rig does not do what it is there for; the message has the end of its log."""


class Processes:
    """Programs by name, each with a log in one folder.

    Args:
        logs: the folder; it is made.
    """

    def __init__(self, logs: Path) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self._logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: list[object], folder: Path | None = None) -> None:
        """Start a program, in a folder, and end the one of that name that runs.

        Its log begins anew.
        """
        self.stop(name)
        with self.log_of(name).open("wb") as log:
            self._running[name] = subprocess.Popen(  # noqa: S603  # of the rig
                list(map(str, command)),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def stop(self, name: str, *, kill: bool = False) -> None:
        """End a program; kill it at once, or if it has not ended after 15 seconds."""
        process = self._running.pop(name, None)
        if process is None:
            return
        if not kill:
            process.terminate()
        try:
            process.wait(0 if kill else 15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def stop_all(self) -> None:
        """End all programs, the last that was started first."""
        for name in reversed(list(self._running)):
            self.stop(name)

    def is_running(self, name: str) -> bool:
        """Return whether a program was started, and has not ended."""
        return name in self._running and self._running[name].poll() is None

    @property
    def pids(self) -> dict[str, int]:
        """The process ids of the programs that run, by name."""
        return {
            name: process.pid for name, process in self._running.items() if process.poll() is None
        }

    def log_of(self, name: str) -> Path:
        """Return the file of what a program has said since it was started last."""
        return self._logs / f"{name}.log"

    def wait_for(
        self, name: str, event: str, probe: Callable[[], _Found], seconds: float = 60
    ) -> _Found:
        """Return what a probe finds, once that is true; an OSError is nothing.

        Raises:
            RigError: the program ended before, or the time is up.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                value = probe()
            except OSError:
                pass
            else:
                if value:
                    return value

            if not self.is_running(name) or time.monotonic() > deadline:
                end = self.log_of(name).read_text(errors="replace")[-3000:]
                failure = "ended"
                if self.is_running(name):
                    failure = "took too long"
                raise RigError(f"{name} {failure} before {event}:\n{end}")

            time.sleep(0.1)
