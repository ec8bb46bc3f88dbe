"""Holds the version of this package, which the build reads from here.

To ask installed metadata is slow.
"""

from __future__ import annotations

from typing import Final

__all__ = ["VERSION"]

VERSION: Final = "0.1.0"
