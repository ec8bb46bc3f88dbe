"""Sets up the log of the agent: lines for people, or one JSON object a line for machines."""

from __future__ import annotations

import logging
import time
from typing import Final

import msgspec

__all__ = ["JSONFormatter", "start_logging"]

_EXTRAS: Final = ("lease", "uid", "resource", "seconds")
"""What may come with a record beside its message."""


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


def start_logging(*, as_json: bool, level: int = logging.INFO) -> None:
    """Let the package log to standard error, warnings of Python included."""
    handler = logging.StreamHandler()
    handler.setFormatter(JSONFormatter() if as_json else logging.Formatter("%(levelname)s %(message)s"))
    logging.captureWarnings(True)
    for name in ("alignup", "py.warnings"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False
