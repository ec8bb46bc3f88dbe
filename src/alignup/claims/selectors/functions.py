"""What the standard functions and operators of CEL do, with cel-go's extensions for strings, lists, sets and optionals.

Each is called by its name in `environment.json`, with values of the declared types; those that are
untyped there look at the types themselves. What Python's operators, strings and built-in functions
do in the same way is named there too.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from functools import cmp_to_key, reduce
from itertools import pairwise
from typing import Any, Final

from alignup.claims.selectors import values as cel
from alignup.claims.selectors.syntax import NotUnderstood, Uint
from alignup.claims.selectors.values import (
    Duration,
    EvaluationError,
    Optional,
    Timestamp,
    are_equal,
    compare,
)
from alignup.kubernetes.policy_options import GO_BOOLEANS

# Beyond what any device needs, and what memory bears.
_LARGEST: Final = 20_000_000
_LONGEST_RANGE: Final = 1_000_000

_DIGITS: Final = "[0-9](?:_?[0-9])*"
_HEX_DIGITS: Final = "[0-9a-fA-F](?:_?[0-9a-fA-F])*"

_DOUBLE: Final = re.compile(
    rf"[+-]?(?:(?P<decimal>(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?)"
    rf"|0[xX]_?(?:{_HEX_DIGITS}\.?(?:{_HEX_DIGITS})?|\.{_HEX_DIGITS})[pP][+-]?{_DIGITS}|(?P<special>(?i:inf(?:inity)?|nan)))"
)

_SPACES: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


def integer(value: int, like: int = 0) -> int:
    """Return a result as an integer of the type of another.

    Raises:
        EvaluationError: it is out of the bounds of that type.
    """
    if isinstance(like, Uint):
        if not 0 <= value < 2**64:
            raise EvaluationError("unsigned integer overflow")
        return Uint(value)
    if not -(2**63) <= value < 2**63:
        raise EvaluationError("integer overflow")
    return int(value)


def _calculated(calculate: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
    """Return a result of two numbers of one type."""
    if type(one) is not type(other) or cel.kind_of(one) not in cel.NUMBERS:
        raise cel.no_overload()
    found = calculate(one, other)
    return found if isinstance(one, float) else integer(found, one)


# operators


def are_unequal(one: Any, other: Any) -> bool:
    """Return whether two values are unequal; what cannot be compared is."""
    return not are_equal(one, other)


def in_order(test: str, one: Any, other: Any) -> bool:
    """Return whether two values are in an order; `test` is one of Python's operators, by name."""
    return bool(getattr(operator, test)(compare(one, other), 0))


def added(one: Any, other: Any) -> Any:
    """Return a sum of numbers or times, or texts, bytes and lists one behind the other."""
    if isinstance(one, Duration | Timestamp):
        if not isinstance(other, Duration | Timestamp) or (
            isinstance(one, Timestamp) and isinstance(other, Timestamp)
        ):
            raise cel.no_overload()

        total = one.nanoseconds + other.nanoseconds
        moment = one if isinstance(one, Timestamp) else other
        return (
            Duration(integer(total))
            if isinstance(moment, Duration)
            else cel.moment_at(total, moment.offset)
        )

    if isinstance(one, cel.Growing) and isinstance(other, list):
        one.extend(other)
        return one
    if type(one) is type(other) and isinstance(one, str | bytes | list):
        _bound(len(one) + len(other))
        return one + other

    return _calculated(operator.add, one, other)


def subtracted(one: Any, other: Any) -> Any:
    """Return a difference of numbers or times."""
    if isinstance(one, Timestamp) and isinstance(other, Timestamp):
        # seconds times 10^9 must not overflow, the nanoseconds between them apart
        seconds = one.nanoseconds // 10**9 - other.nanoseconds // 10**9
        integer(seconds * 10**9)
        return Duration(integer(one.nanoseconds - other.nanoseconds))
    if isinstance(one, Duration | Timestamp) and isinstance(other, Duration):
        total = one.nanoseconds - other.nanoseconds
        if isinstance(one, Duration):
            return Duration(integer(total))
        integer(-other.nanoseconds)
        return cel.moment_at(total, one.offset)
    return _calculated(operator.sub, one, other)


def calculated(name: str, one: Any, other: Any) -> Any:
    """Return a product, quotient or remainder of two numbers of one type; `name` says which."""
    return _calculated({"mul": operator.mul, "div": _quotient, "mod": _remainder}[name], one, other)


def _quotient(one: Any, other: Any) -> Any:
    if isinstance(one, float):
        if other:
            return one / other
        return (
            math.nan
            if one == 0 or math.isnan(one)
            else math.copysign(math.inf, one) * math.copysign(1, other)
        )
    if other == 0:
        raise EvaluationError("division by zero")
    return abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)


def _remainder(one: Any, other: Any) -> Any:
    if other == 0:
        raise EvaluationError("modulus by zero")
    if (one, other) == (-(2**63), -1):
        raise EvaluationError("integer overflow")
    return abs(one) % abs(other) * (-1 if one < 0 else 1)


def negative(value: Any) -> Any:
    """Return a number or duration with the other sign."""
    if isinstance(value, Duration):
        return Duration(integer(-value.nanoseconds))
    if type(value) not in (int, float):
        raise cel.no_overload()
    return -value if isinstance(value, float) else integer(-value)


def is_in(value: object, some: Any) -> bool:
    """Return whether a list has an element, or a map a key."""
    if isinstance(some, dict):
        return cel.entry(some, value) is not cel.ABSENT
    if not isinstance(some, list):
        raise cel.no_overload()
    return contains_element(some, value)


def same(value: Any) -> Any:
    """Return the value itself."""
    return value


def type_of(value: object) -> cel.Type:
    """Return the type of a value, which is a value too."""
    return cel.Type(cel.kind_of(value))


# conversions


def _no_conversion(value: object, name: str) -> EvaluationError:
    return EvaluationError(f"type conversion error from '{cel.kind_of(value)}' to '{name}'")


def to_int(value: Any) -> int:
    """Return a number or a text as int, a duration in nanoseconds, a moment in seconds since 1970."""
    if isinstance(value, Duration | Timestamp):
        return value.nanoseconds // (10**9 if isinstance(value, Timestamp) else 1)
    return _to_integer(value, 0, "[+-]?[0-9]+", math.nextafter(-(2.0**63), 0), 2.0**63)


def to_uint(value: Any) -> int:
    """Return a number or a text as uint."""
    return _to_integer(value, Uint(), "[0-9]+", 0.0, 2.0**64)


def _to_integer(value: Any, like: int, form: str, least: float, below: float) -> int:
    """Return a number or a text as an integer of the type of another."""
    if isinstance(value, float) and not least <= value < below:
        raise EvaluationError("integer overflow")
    if isinstance(value, str) and not re.fullmatch(form, value):
        raise _no_conversion(value, cel.kind_of(like))
    return integer(int(value), like)


def to_double(value: Any) -> float:
    """Return a number or a text as double; a text in the forms of Go's `strconv.ParseFloat`."""
    if not isinstance(value, str):
        return float(value)

    match = _DOUBLE.fullmatch(value)
    if match is None or value in ("+nan", "-nan"):
        raise _no_conversion(value, "double")

    try:
        digits = value.replace("_", "")
        found = float(digits) if match["decimal"] or match["special"] else float.fromhex(digits)
    except OverflowError:
        found = math.inf

    if math.isinf(found) and not match["special"]:
        raise _no_conversion(value, "double")

    return found


def to_bool(value: str) -> bool:
    """Return a text as bool, in the forms of Go's `strconv.ParseBool`."""
    if value not in GO_BOOLEANS:
        raise _no_conversion(value, "bool")
    return GO_BOOLEANS[value]


# strings


def _within(text: str, *places: int) -> None:
    for place in places:
        if not 0 <= place <= len(text):
            raise EvaluationError(f"index out of range: {place}")


def char_at(text: str, place: int) -> str:
    """Return the character at a place; behind the last there is an empty one."""
    _within(text, place)
    return text[place : place + 1]


def index_of(text: str, part: str, start: int = 0) -> int:
    """Return the first place of a part, from a place on; -1: there is none."""
    if start < 0:
        raise EvaluationError(f"index out of range: {start}")
    return text.find(part, start) if part else min(start, len(text))


def last_index_of(text: str, part: str, start: int | None = None) -> int:
    """Return the last place of a part, up to a place; -1: there is none."""
    if start is None:
        return text.rfind(part)
    if start < 0:
        raise EvaluationError(f"index out of range: {start}")
    if not part:
        return min(start, len(text))
    return text.rfind(part, 0, start + len(part)) if start < len(text) else -1


def in_ascii(method: str, text: str) -> str:
    """Return a text whose letters of ASCII, and no others, are as a method of Python's strings makes them."""
    return re.sub("[A-Za-z]+", lambda match: str(getattr(match[0], method)()), text)


def trim(text: str) -> str:
    """Return a text without the white space around it."""
    return text.strip(_SPACES)


def _bound(length: int) -> None:
    if length > _LARGEST:
        raise NotUnderstood(f"a value of more than {_LARGEST} elements")


def replace(text: str, old: str, new: str, count: int = -1) -> str:
    """Return a text with another in place of a part, so many times at most; below zero: always."""
    _bound(len(text) + (text.count(old) if old else len(text) + 1) * len(new))
    return text.replace(old, new, count)


def split(text: str, separator: str, count: int = -1) -> list[str]:
    """Return the parts of a text, so many at most; below zero: all."""
    if count in (0, 1):
        return [text] if count else []
    if separator:
        return text.split(separator, count - 1 if count > 0 else -1)
    letters = list(text)
    return (
        letters
        if count < 0 or len(letters) <= count
        else [*letters[: count - 1], "".join(letters[count - 1 :])]
    )


def substring(text: str, start: int, end: int | None = None) -> str:
    """Return the characters from a place on, up to another."""
    end = len(text) if end is None else end
    if end < start:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    _within(text, start, end)
    return text[start:end]


def join(parts: list[Any], separator: str = "") -> str:
    """Return texts one behind the other."""
    if not all(isinstance(part, str) for part in parts):
        raise EvaluationError("join: invalid input")
    _bound(sum(map(len, parts)) + len(parts) * len(separator))
    return separator.join(parts)


# lists, sets and maps


def contains_element(elements: list[Any], wanted: object) -> bool:
    """Return whether a list has an element that is equal to a value."""
    return any(
        wanted is None if one is None else wanted is not None and are_equal(wanted, one)
        for one in elements
    )


def includes(value: Any, wanted: object) -> bool:
    """Return whether a list has an element, or whether another value is equal."""
    if isinstance(value, list):
        return any(are_equal(one, wanted) for one in value)
    return are_equal(value, wanted)


def contains_all(elements: list[Any], wanted: list[Any]) -> bool:
    """Return whether a list has each element of another."""
    return all(contains_element(elements, one) for one in wanted)


def are_equivalent(one: list[Any], other: list[Any]) -> bool:
    """Return whether two lists have the same elements, however often and in whatever order."""
    return contains_all(one, other) and contains_all(other, one)


def intersect(one: list[Any], other: list[Any]) -> bool:
    """Return whether two lists have an element in common."""
    return any(contains_element(other, element) for element in one)


def index_of_element(elements: list[Any], wanted: object) -> int:
    """Return the first place of an element; -1: there is none."""
    return next((place for place, one in enumerate(elements) if are_equal(one, wanted)), -1)


def last_index_of_element(elements: list[Any], wanted: object) -> int:
    """Return the last place of an element; -1: there is none."""
    place = index_of_element(elements[::-1], wanted)
    return place if place < 0 else len(elements) - 1 - place


def slice_of(elements: list[Any], start: int, end: int) -> list[Any]:
    """Return the elements from a place on, up to another."""
    if not 0 <= start <= end <= len(elements):
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(elements)}")
    return elements[start:end]


def flatten(elements: object, depth: object = 1) -> list[Any]:
    """Return a list with the elements of lists in it, so many levels deep."""
    if not isinstance(elements, list) or type(depth) is not int:
        raise cel.no_overload()
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    found: list[object] = []
    for one in elements:
        found.extend(flatten(one, depth - 1) if isinstance(one, list) and depth else [one])
    return found


def sort_by(elements: Any, keys: Any = None) -> list[Any]:
    """Return a list in the order of keys, one for each element, or of the elements themselves."""
    keys = elements if keys is None else keys
    if not isinstance(elements, list) or not isinstance(keys, list):
        raise cel.no_overload()
    if len(elements) != len(keys):
        raise EvaluationError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list"
        )

    if len(keys) > 1 and len({type(key) for key in keys}) > 1:
        raise EvaluationError("list elements must have the same type")
    if keys and not _has_order(keys[0]):
        raise EvaluationError("list elements must be comparable")

    pairs = sorted(zip(keys, elements, strict=True), key=cmp_to_key(_in_turn))
    return [element for _, element in pairs]


def _in_turn(one: tuple[Any, Any], other: tuple[Any, Any]) -> int:
    return _order(one[0], other[0])


def _has_order(value: object) -> bool:
    return cel.kind_of(value) in cel.NUMBERS or isinstance(
        value, str | bytes | bool | Duration | Timestamp
    )


def range_of(count: int) -> list[int]:
    """Return the integers from zero on."""
    if count < 0:
        raise EvaluationError(f"lists.range: size must be non-negative, got {count}")
    if count > _LONGEST_RANGE:
        raise EvaluationError(
            f"lists.range: size {count} exceeds maximum allowed ({_LONGEST_RANGE})"
        )
    return list(range(count))


def reverse(elements: list[Any]) -> list[Any]:
    """Return a list from its end."""
    return elements[::-1]


def distinct(elements: list[Any]) -> list[Any]:
    """Return a list without what is in it before."""
    found: list[Any] = []
    for one in elements:
        if not any(are_equal(one, other) for other in found):
            found.append(one)
    return found


def is_sorted(elements: list[Any]) -> bool:
    """Return whether a list is in order."""
    if not all(map(_has_order, elements)):
        raise cel.no_overload()
    return all(_order(one, other) <= 0 for one, other in pairwise(elements))


def _order(one: Any, other: Any) -> int:
    """Return how two values are in order; those that are in none count as equal."""
    try:
        return compare(one, other)
    except EvaluationError:
        return 0


def extreme(name: str, elements: list[Any]) -> Any:
    """Return the least element of a list (`min`), or the greatest (`max`)."""
    if not all(map(_has_order, elements)):
        raise cel.no_overload()
    if not elements:
        raise EvaluationError(f"{name} called on empty list")
    preferred = 1 if name == "min" else -1
    return reduce(lambda one, other: other if _order(one, other) == preferred else one, elements)


def sum_of(elements: list[Any]) -> Any:
    """Return the sum of numbers; of none, zero."""
    return reduce(added, elements, type(elements[0])(0) if elements else 0)


def sum_of_durations(elements: list[Any]) -> Any:
    """Return the sum of durations."""
    return reduce(added, elements, Duration(0))


def inserted(known: dict[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    """Return a map with an entry more."""
    if cel.entry(known, key) is not cel.ABSENT:
        raise EvaluationError(f"insert failed: key {key} already exists")
    if isinstance(known, cel.GrowingMap):
        known[key] = value
        return known
    return {**known, key: value}


def inserted_all(known: dict[Any, Any], more: dict[Any, Any]) -> dict[Any, Any]:
    """Return a map with the entries of another."""
    return reduce(lambda found, key: inserted(found, key, more[key]), more, known)


# optional values


def optional_of(value: object) -> Optional:
    """Return a value as an optional one."""
    return Optional(has_value=True, value=value)


def optional_of_non_zero(value: Any) -> Optional:
    """Return a value as an optional one; none if it is empty or zero."""
    is_zero = value in (Duration(0), Timestamp(-62135596800 * 10**9))
    has_zero = value is None or isinstance(value, bool | int | float | str | bytes | list | dict)
    return cel.NONE if is_zero or (has_zero and not value) else optional_of(value)


def optional_value(optional: Optional) -> Any:
    """Return the value of an optional one."""
    if not optional.has_value:
        raise EvaluationError("optional.none() dereference")
    return optional.value


def last(elements: list[Any]) -> Optional:
    """Return the last element of a list, if there is one."""
    return cel.first_of(elements[::-1])


def unwrap(elements: list[Any]) -> list[Any]:
    """Return the values of optional ones that have some."""
    if not all(isinstance(one, Optional) for one in elements):
        raise EvaluationError("value is not optional")
    return [one.value for one in elements if one.has_value]


def compared(one: Any, other: Any) -> int:
    """Return how two quantities, or two versions, are in order."""
    return int(one > other) - int(one < other)
