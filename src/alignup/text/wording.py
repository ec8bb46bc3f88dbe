"""Puts numbers of things into words."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, noun: str) -> str:
    """Return a number of things in words.

    >>> counted(1, "core"), counted(8, "core")
    ('1 core', '8 cores')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"
