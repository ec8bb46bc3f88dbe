"""Reads the conformance vectors.

Those of $ALIGNUP_VECTORS when set, else the copies beside this file.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parents[1] / "vectors"


def vectors_file(name: str) -> Path:
    """Return the file of that name, such as `merge` or `koordinator/filter`."""
    return Path(os.environ.get("ALIGNUP_VECTORS") or HERE) / f"{name}.jsonl.gz"


def vectors(name: str, *, own: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the cases of a file, one a line.

    With `own` those of the copy here where the folder lacks the file.
    """
    path = vectors_file(name)
    if own and not path.exists():
        path = HERE / f"{name}.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(_of_release, lines)


def corner_cases() -> Iterator[dict[str, Any]]:
    """Yield the corner scenarios of the folder `corner`.

    Where that is missing, those of its copy here.
    """
    folder = Path(os.environ.get("ALIGNUP_VECTORS") or HERE) / "corner"
    if not folder.is_dir():
        folder = HERE / "corner"
    for path in sorted([*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz")]):
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        yield from map(_of_release, text.splitlines())


def _of_release(line: str | bytes) -> dict[str, Any]:
    """Return the case of a line; scenarios that name no release are the kubelet 1.36.3's."""
    case: dict[str, Any] = msgspec.json.decode(line)
    if "kubelet" in case:
        return {"kubeletVersion": "1.36", **case}
    return case
