"""Reads numbers that others wrote in decimal digits.

`int` takes digits of every script, underscores and spaces, and refuses more than 4,300 digits with
an error of Python's own. Here each number has a bound, and the bound is looked at before the number
is made. Signs are left to the caller, and quantities to `alignup.kubernetes.quantity`.
"""

from __future__ import annotations

from alignup.errors import InputError


def number_of(text: str, most: int) -> int | None:
    """Return the number that a text of digits is; None: it is none, or is above `most`.

    Examples:
        >>> number_of("0042", 99), number_of("100", 99), number_of("-1", 99), number_of("", 99)
        (42, None, None, None)
    """
    if not (text.isascii() and text.isdigit()):
        return None

    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(most)):
        return None

    number = int(digits)
    return number if number <= most else None


def read_number(text: str, where: str, most: int) -> int:
    """Return the number that a text of digits is.

    Raises:
        InputError: it is none, or is above `most`.
    """
    number = number_of(text, most)
    if number is None:
        raise InputError.at(where, f"a whole number of at most {most}", text)
    return number
