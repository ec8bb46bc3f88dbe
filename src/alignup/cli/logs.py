"""Logs to standard error, by the standard library: as lines of text, as JSON, and as systemd's journal reads them.

Modules log to the logger of their name. What was lost or refused is a warning, what an operator asks for afterwards is
info, and a line a pod is debug.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import Final

import msgspec

from alignup.errors import one_line

_LOG: Final = logging.getLogger(__name__)
_EXTRAS: Final = ("lease", "uid", "resource", "seconds")
"""What may come with a record beside its message."""
_PRIORITIES: Final = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (0, 7))
"""The least levels of syslog's priorities."""


class JSONFormatter(logging.Formatter):
    """Writes a record as a JSON object: time (UTC), level, logger, message, and what came with it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line: dict[str, object] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z",
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


class _WithoutTraceback(logging.Filter):
    """Puts what a client did wrong into one line: the HTTP server logs it with a traceback of its own code."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            told = f"{record.getMessage()}: {type(error).__name__}: {error}"
            record.msg, record.args, record.exc_info = one_line(told), (), None
        return True


def start_logging(form: str, level: str) -> None:
    """Let the package and its HTTP server log to standard error, warnings of Python included.

    Args:
        form: `text` or `json`.
        level: the least that is logged: `debug`, `info`, `warning` or `error`.
    """
    handler = logging.StreamHandler()
    formatter = JSONFormatter() if form == "json" else logging.Formatter("%(levelname)s %(message)s")
    handler.setFormatter(JournalFormatter(formatter) if _is_journal() else formatter)
    for name in ("alignup", "aiohttp", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level.upper() if name == "alignup" else logging.WARNING)
        logger.propagate = False
    logging.getLogger("aiohttp.server").filters = [_WithoutTraceback()]
    warnings.showwarning = lambda message, *_args, **_more: _LOG.warning("%s", one_line(str(message)))


def logged(form: str, level: str) -> Callable[[str], None]:
    """Start to log, and return what logs a warning."""
    start_logging(form, level)
    return lambda sentence: _LOG.warning("%s", one_line(sentence))


def _is_journal() -> bool:
    """Return whether standard error is read by systemd's journal, which says which file that is."""
    try:
        found = os.fstat(sys.stderr.fileno())
    except (OSError, AttributeError, ValueError):
        return False  # closed, or none at all
    return os.environ.get("JOURNAL_STREAM", "") == f"{found.st_dev}:{found.st_ino}"
