"""Writes amounts of bytes with the suffixes Ki, Mi, Gi and Ti. Quantities are read by `alignup.kubernetes.quantity`."""

from __future__ import annotations

from typing import Final

__all__ = ["BYTE_SUFFIXES", "format_bytes", "short_bytes"]

BYTE_SUFFIXES: Final = (("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10))
"""Suffixes, the largest first, and the power of two that each stands for."""

_MANY: Final = 10_000


def format_bytes(amount: int) -> str:
    """Return an amount exactly, as Kubernetes writes it: with the largest suffix that leaves it whole.

    >>> format_bytes(3 << 29), format_bytes(1000)
    ('1536Mi', '1000')
    """
    for suffix, shift in BYTE_SUFFIXES:
        if amount and not amount & ((1 << shift) - 1):
            return f"{amount >> shift}{suffix}"
    return str(amount)


def short_bytes(amount: int) -> str:
    """Return an amount for people: exactly where that takes up to four digits, or else to one decimal.

    >>> short_bytes(3 << 29), short_bytes(1000), short_bytes((1 << 40) - 1)
    ('1536Mi', '1000', '1024.0Gi')
    """
    for suffix, shift in (*BYTE_SUFFIXES, ("", 0)):
        if amount >> shift and not amount & ((1 << shift) - 1) and amount >> shift < _MANY:
            return f"{amount >> shift}{suffix}"
    for suffix, shift in BYTE_SUFFIXES:
        if amount >> shift:
            return f"{amount / (1 << shift):.1f}{suffix}"
    return str(amount)
