"""Holds the version of this package, which the build reads from here, and where its documents are.

To ask installed metadata is slow.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DOCUMENTATION", "VERSION"]

VERSION: Final = "0.1.0"

# The address of the documents of what was built, which `.ci/address` writes here; empty: not known.
DOCUMENTATION: Final = ""
