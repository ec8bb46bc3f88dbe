"""A log line for machines is one JSON object."""

from __future__ import annotations

import json
import logging
import warnings

from alignup.leases.agent.logs import JSONFormatter, start_logging


def test_a_record_is_one_object():
    record = logging.LogRecord("alignup.x", logging.WARNING, "", 1, "a %s\nb", ("line",), None)
    record.created, record.msecs, record.lease = 0.25, 250.0, "id"
    assert json.loads(JSONFormatter().format(record)) == {
        "time": "1970-01-01T00:00:00.250Z",
        "level": "warning",
        "logger": "alignup.x",
        "message": "a line\nb",
        "lease": "id",
    }


def test_warnings_and_tracebacks_are_logged_too(capsys):
    names = ("alignup", "py.warnings")
    before = [(logging.getLogger(name), logging.getLogger(name).__dict__.copy()) for name in names]
    try:
        start_logging(as_json=True)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("odd", stacklevel=1)
        try:
            _ = 1 / 0
        except ZeroDivisionError:
            logging.getLogger("alignup.y").exception("failed")
    finally:
        logging.captureWarnings(False)
        for logger, state in before:
            logger.__dict__.update(state)
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert "odd" in first["message"]
    assert "ZeroDivisionError" in second["traceback"]
