"""Reads Kubernetes quantities, such as `500m`, `4Gi` or `1e3`, into exact integers.

They are rounded as the managers do.

A quantity is held in billionths of its unit, since the API keeps no finer ones (it rounds away from
zero there); so an int is exact, and comparing two of them is what `Quantity.Cmp` does. The meaning
of a quantity is left to `alignup.kubernetes.manifest`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from struct import pack, unpack
from typing import Final

from alignup.errors import ConfigError, InputError

# The largest amount, in whole units; of CPUs, in thousandths.
LARGEST: Final = 2**63 - 1

_ONE: Final = 10**9
_MULTIPLIERS: Final[dict[str, int]] = {
    **{
        suffix: 1000**power
        for power, suffix in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"))
    },
    **{f"{letter}i": 1024**power * _ONE for power, letter in enumerate("KMGTPE", 1)},
}
_LONGEST: Final = 120
# Numbers of fewer digits are below `LARGEST`.
_SHORT: Final = 19
# A percentage without its sign, as Go's `strconv.ParseFloat` reads decimal numbers.
_PERCENTAGE: Final = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_FAR_ABOVE: Final = 1000.0
# the digits are bounded so that a typing error cannot become a number of megabytes
_FORM: Final = (
    r"(?P<sign>[+-]?)(?=\.?[0-9])(?P<whole>[0-9]{0,40})(?:\.(?P<fraction>[0-9]{0,40}))?"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE]?)|[eE](?P<exponent>[+-]?[0-9]{1,4}))"
)
_EXPECTED: Final = "a quantity such as 2, 500m or 4Gi"


def parse_quantity(
    value: object, where: str = "a quantity", key: str | None = None, most: int = LARGEST
) -> int:
    """Return a quantity in billionths of its unit.

    Args:
        value: text, without white space as Go reads it, or a number as YAML and JSON have them; a
            float counts as its shortest decimal form.
        where: the place that an error names.
        key: the key in that place, if it is a mapping.
        most: the largest amount, in whole units.

    Raises:
        InputError: `value` is no quantity, or its amount is beyond `most`. Amounts with a binary
            suffix are cut to `LARGEST` instead, as the API server does.
    """
    billionths: int | None = None
    if type(value) is str:
        if value.isdigit() and value.isascii() and len(value) < _SHORT:
            return int(value) * _ONE
        if len(value) <= _LONGEST:
            billionths = _from_text(value)
    elif type(value) is int:
        billionths = value * _ONE
    elif type(value) is float:
        billionths = _from_text(repr(value))

    if billionths is None or not -most * _ONE <= billionths <= most * _ONE:
        expected = _EXPECTED if billionths is None else f"{_EXPECTED}, of at most {most}"
        raise InputError.at(where if key is None else f'{where}["{key}"]', expected, value)

    return billionths


def whole_units(billionths: int) -> int:
    """Return the amount in whole units, a fraction rounded up."""
    return -(-billionths // _ONE)


def is_whole(billionths: int) -> bool:
    """Return whether the amount is a whole number of units."""
    return not billionths % _ONE


def in_units(resource: str, billionths: int) -> int:
    """Return an amount as records have it: CPU in thousandths, all else in units, rounded up."""
    return -(-billionths // (10**6 if resource == "cpu" else _ONE))


def in_units_of_each(billionths: Mapping[str, int]) -> dict[str, int]:
    """Return the amounts of several resources as `in_units` does."""
    return {resource: in_units(resource, amount) for resource, amount in billionths.items()}


@cache
def _form() -> re.Pattern[str]:
    """Return the form of a quantity; to compile it would make the package slower to import."""
    return re.compile(_FORM)


def _from_text(text: str) -> int | None:
    """Return the billionths that `text` stands for; None: it is no quantity.

    Finer parts are rounded away from zero.
    """
    match = _form().fullmatch(text)
    if match is None:
        return None

    sign, whole, fraction, suffix, exponent = match.groups()
    fraction = fraction or ""
    divisor: int = 10 ** len(fraction)
    if exponent is None:
        multiplier = _MULTIPLIERS[suffix]
    else:
        power = int(exponent) + 9
        multiplier = 10 ** max(power, 0)
        divisor *= 10 ** max(-power, 0)

    billionths = -(-int(whole + fraction) * multiplier // divisor)
    if suffix and suffix[-1] == "i":
        billionths = min(billionths, LARGEST * _ONE)

    if sign == "-":
        return -billionths
    return billionths


def eviction_memory(threshold: str, total: int) -> int:
    """Return the bytes of `evictionHard`'s `memory.available`.

    It is a quantity, or a percentage of all memory.
    """
    if threshold.endswith("%"):
        return int(total * part_of_percentage(threshold, "evictionHard"))
    return whole_units(parse_quantity(threshold or 0, "evictionHard"))


def part_of_percentage(text: str, where: str) -> float:
    """Return the part that a percentage of `evictionHard` is, in the kubelet's single precision.

    Follows `parseThresholdStatement` (pkg/kubelet/eviction/helpers.go), which ignores 0% and 100%
    as they are written here: such a threshold keeps nothing.

    Raises:
        ConfigError: it is none, or one that a kubelet refuses.
    """
    if text in ("0%", "100%"):
        return 0.0

    number = text.rstrip("%")
    value = float(number) if re.fullmatch(_PERCENTAGE, number) else -1.0
    part = 2.0
    if 0 <= value < _FAR_ABOVE:
        part = _as_float32(_as_float32(value) / 100)
    if part > 1:
        raise ConfigError.at(where, "a quantity or a percentage of at most 100%", text)
    return part


def _as_float32(value: float) -> float:
    """Return the nearest number of single precision."""
    return float(unpack("f", pack("f", value))[0])
