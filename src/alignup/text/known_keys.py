"""Finds keys of a document that nobody reads, and what was probably meant by them.

Which keys there are is said by the module that reads the document; what to do about others, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Final

_ALIKE: Final = 0.75
# More unknown keys of one mapping than anybody misspells: others are not compared.
_MOST_COMPARED: Final = 1000


def unknown_keys(keys: Iterable[object], known_keys: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield each key that is not known, and the known one that it resembles most; empty: none."""
    names = tuple(known_keys)
    unknown = (key for key in keys if key not in known_keys)
    for count, key in enumerate(unknown):
        yield str(key), _nearest(str(key), names) if count < _MOST_COMPARED else ""


def misspelt_keys(keys: Iterable[object], known_keys: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield those of `unknown_keys` that resemble a known one or begin with it.

    Others are the writer's own notes.
    """
    for key, nearest in unknown_keys(keys, known_keys):
        if meant := nearest or _beginning(key, tuple(known_keys)):
            yield key, meant


# All lines of a file have the same keys; few are kept, since keys can be long.
@lru_cache(maxsize=32)
def _nearest(text: str, known_keys: tuple[str, ...]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415  # most documents have no such key

    plain = {_plain(name): name for name in known_keys}
    close = get_close_matches(_plain(text), plain, n=1, cutoff=_ALIKE)
    return plain[close[0]] if close else ""


@lru_cache(maxsize=32)
def _beginning(text: str, known_keys: tuple[str, ...]) -> str:
    return next((name for name in known_keys if _plain(text).startswith(_plain(name))), "")


def _plain(name: str) -> str:
    """Return a name without what people spell differently: capitals, hyphens and underscores."""
    return name.replace("_", "").replace("-", "").casefold()
