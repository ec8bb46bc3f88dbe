"""Finds keys of a document that nobody reads, and what was probably meant by them.

Which keys there are is said by the module that reads the document; what to do about others, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

_ALIKE: Final = 0.75


def unknown_keys(keys: Iterable[object], known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield each key that is not known, with the known one that it resembles most; empty: it resembles none."""
    strange = [str(key) for key in keys if key not in known]
    if not strange:
        return
    from difflib import get_close_matches  # noqa: PLC0415  # most documents have no such key

    plain = {_plain(name): name for name in known}
    for text in strange:
        close = get_close_matches(_plain(text), plain, n=1, cutoff=_ALIKE)
        yield text, plain[close[0]] if close else ""


def misspelt_keys(keys: Iterable[object], known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield those of `unknown_keys` that resemble a known one or begin with it; others are the writer's own notes."""
    for key, nearest in unknown_keys(keys, known):
        meant = nearest or next((name for name in known if _plain(key).startswith(_plain(name))), "")
        if meant:
            yield key, meant


def _plain(name: str) -> str:
    """Return a name without what people spell differently: capitals, hyphens and underscores."""
    return name.replace("_", "").replace("-", "").casefold()
