"""Sets up the log of the agent: lines for people, JSON objects for machines, and priorities for systemd's journal."""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import Final

import msgspec

_EXTRAS: Final = ("lease", "uid", "resource", "seconds")
"""What may come with a record beside its message."""
_PRIORITIES: Final = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (0, 7))
"""The least levels of syslog's priorities."""


class JSONFormatter(logging.Formatter):
    """Writes a record as a JSON object: time (UTC), level, logger, message, and what came with it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{stamp}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update({name: getattr(record, name) for name in _EXTRAS if hasattr(record, name)})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class JournalFormatter(logging.Formatter):
    """Writes a record as another formatter does, and before each line its priority as systemd reads it (sd-daemon(3)).

    Args:
        inner: the other one.
    """

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        priority = next(number for level, number in _PRIORITIES if record.levelno >= level)
        return "\n".join(f"<{priority}>{line}" for line in self._inner.format(record).split("\n"))


def start_logging(*, as_json: bool, level: int = logging.INFO) -> None:
    """Let the package log to standard error, warnings of Python included."""
    handler = logging.StreamHandler()
    formatter = JSONFormatter() if as_json else logging.Formatter("%(levelname)s %(message)s")
    handler.setFormatter(JournalFormatter(formatter) if _is_journal() else formatter)
    logging.captureWarnings(True)
    for name in ("alignup", "py.warnings"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False


def _is_journal() -> bool:
    """Return whether standard error is read by systemd's journal, which says which file that is."""
    try:
        found = os.fstat(sys.stderr.fileno())
    except (OSError, AttributeError, ValueError):
        return False  # closed, or none at all
    return os.environ.get("JOURNAL_STREAM", "") == f"{found.st_dev}:{found.st_ino}"
