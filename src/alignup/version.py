"""Holds the version of this package, which the build reads from here: installed metadata is slow to ask."""

from __future__ import annotations

from typing import Final

__all__ = ["VERSION"]

VERSION: Final = "0.1.0"
