"""Reads the conformance vectors: those of $ALIGNUP_VECTORS when set, else the copies beside this file."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent / "vectors"


def vectors_file(name: str) -> Path:
    """Return the file of that name, such as `merge` or `koordinator/filter`."""
    return Path(os.environ.get("ALIGNUP_VECTORS") or HERE) / f"{name}.jsonl.gz"


def vectors(name: str) -> Iterator[dict[str, Any]]:
    """Yield the cases of a file, one a line."""
    with gzip.open(vectors_file(name), "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
