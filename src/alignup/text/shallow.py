"""Cuts what is nested too deeply out of JSON text, so that the rest of the text can be decoded.

A decoder gives up a whole text for one value of thousands of levels, also where nobody wants to know that value.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["without_depths"]

# a string, to its end or that of the text; or a bracket
_TOKENS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


def without_depths(text: bytes, levels: int) -> bytes:
    """Return a JSON text with null in the place of each list and object below so many others.

    >>> without_depths(b'{"a": [[1], 2], "b": 3}', 2)
    b'{"a": [null, 2], "b": 3}'
    """
    kept: list[bytes] = []
    depth = start = 0
    for token in _TOKENS.finditer(text):
        if token[0] in {b"[", b"{"}:
            if depth == levels:
                kept += [text[start : token.start()], b"null"]
            depth += 1
        elif token[0] in {b"]", b"}"}:
            depth -= 1
            if depth == levels:
                start = token.end()
    if depth <= levels:  # else the text ends within what is cut out
        kept.append(text[start:])
    return b"".join(kept)
