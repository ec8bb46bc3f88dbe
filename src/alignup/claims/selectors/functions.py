"""What the standard functions and operators of CEL do.

cel-go's extensions for strings, lists, sets and optionals are here too.

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
from alignup.text.digits import number_of

# Beyond what any device needs, and what memory bears.
_LARGEST: Final = 20_000_000
_LONGEST_RANGE: Final = 1_000_000

_DIGITS: Final = "[0-9](?:_?[0-9])*+"
_HEX_DIGITS: Final = "[0-9a-fA-F](?:_?[0-9a-fA-F])*+"

_DOUBLE: Final = re.compile(
    rf"[+-]?(?:(?P<decimal>(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?)"
    rf"|0[xX]_?(?:{_HEX_DIGITS}\.?(?:{_HEX_DIGITS})?|\.{_HEX_DIGITS})[pP][+-]?{_DIGITS}"
    r"|(?P<special>(?i:inf(?:inity)?|nan)))"
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


def _calculated(calculate: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Return a result of two numbers of one type."""
    if type(left) is not type(right) or cel.kind_of(left) not in cel.NUMBERS:
        raise cel.no_overload()

    result = calculate(left, right)
    if isinstance(left, float):
        return result

    return integer(result, left)


# operators


def are_unequal(left: Any, right: Any) -> bool:
    """Return whether two values are unequal; what cannot be compared is."""
    return not are_equal(left, right)


def in_order(test: str, left: Any, right: Any) -> bool:
    """Return whether two values are in an order; `test` is one of Python's operators, by name."""
    return bool(getattr(operator, test)(compare(left, right), 0))


def added(left: Any, right: Any) -> Any:
    """Return a sum of numbers or times, or texts, bytes and lists one behind the other."""
    if isinstance(left, Duration | Timestamp):
        return _added_time(left, right)
    if isinstance(left, cel.Growing) and isinstance(right, list):
        left.extend(right)
        return left
    if type(left) is type(right) and isinstance(left, str | bytes | list):
        _bound(len(left) + len(right))
        return left + right

    return _calculated(operator.add, left, right)


def _added_time(left: Duration | Timestamp, right: Any) -> Duration | Timestamp:
    """Return a sum of two durations, or of a moment and a duration in either order."""
    if not isinstance(right, Duration | Timestamp):
        raise cel.no_overload()

    total = left.nanoseconds + right.nanoseconds
    if isinstance(left, Timestamp):
        if isinstance(right, Timestamp):
            raise cel.no_overload()

        return cel.moment_at(total, left.offset)
    if isinstance(right, Timestamp):
        return cel.moment_at(total, right.offset)

    return Duration(integer(total))


def subtracted(left: Any, right: Any) -> Any:
    """Return a difference of numbers or times."""
    if isinstance(left, Timestamp) and isinstance(right, Timestamp):
        # seconds times 10^9 must not overflow, the nanoseconds between them apart
        seconds = left.nanoseconds // 10**9 - right.nanoseconds // 10**9
        integer(seconds * 10**9)
        return Duration(integer(left.nanoseconds - right.nanoseconds))
    if isinstance(left, Duration | Timestamp) and isinstance(right, Duration):
        total = left.nanoseconds - right.nanoseconds
        if isinstance(left, Duration):
            return Duration(integer(total))

        integer(-right.nanoseconds)
        return cel.moment_at(total, left.offset)

    return _calculated(operator.sub, left, right)


def calculated(name: str, left: Any, right: Any) -> Any:
    """Return a product, quotient or remainder of two numbers of one type; `name` says which."""
    calculations = {"mul": operator.mul, "div": _quotient, "mod": _remainder}
    return _calculated(calculations[name], left, right)


def _quotient(left: Any, right: Any) -> Any:
    if isinstance(left, float):
        if right:
            return left / right
        if left == 0 or math.isnan(left):
            return math.nan

        return math.copysign(math.inf, left) * math.copysign(1, right)

    if right == 0:
        raise EvaluationError("division by zero")

    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: Any, right: Any) -> Any:
    if right == 0:
        raise EvaluationError("modulus by zero")
    if (left, right) == (-(2**63), -1):
        raise EvaluationError("integer overflow")

    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder


def negative(value: Any) -> Any:
    """Return a number or duration with the other sign."""
    if isinstance(value, Duration):
        return Duration(integer(-value.nanoseconds))
    if type(value) not in (int, float):
        raise cel.no_overload()
    if isinstance(value, float):
        return -value

    return integer(-value)


def is_in(value: object, container: Any) -> bool:
    """Return whether a list has an element, or a map a key."""
    if isinstance(container, dict):
        return cel.entry(container, value) is not cel.ABSENT
    if not isinstance(container, list):
        raise cel.no_overload()
    return contains_element(container, value)


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
    """Return a number, a text, a duration in nanoseconds or a moment in seconds as int."""
    if isinstance(value, Duration):
        return value.nanoseconds
    if isinstance(value, Timestamp):
        return value.nanoseconds // 10**9

    return _to_integer(value, 0, "[+-]?[0-9]+", math.nextafter(-(2.0**63), 0), 2.0**63)


def to_uint(value: Any) -> int:
    """Return a number or a text as uint."""
    return _to_integer(value, Uint(), "[0-9]+", 0.0, 2.0**64)


def _to_integer(value: Any, like: int, form: str, lower: float, upper: float) -> int:
    """Return a number or a text as an integer of the type of another."""
    if isinstance(value, float) and not lower <= value < upper:
        raise EvaluationError("integer overflow")
    if isinstance(value, str) and not re.fullmatch(form, value):
        raise _no_conversion(value, cel.kind_of(like))
    if not isinstance(value, str):
        return integer(int(value), like)

    number = number_of(value.lstrip("+-"), 2**64)
    if number is None:
        number = 2**64
    return integer(-number if value.startswith("-") else number, like)


def to_double(value: Any) -> float:
    """Return a number or a text as double; a text in the forms of Go's `strconv.ParseFloat`."""
    if not isinstance(value, str):
        return float(value)

    match = _DOUBLE.fullmatch(value)
    if match is None or value in ("+nan", "-nan"):
        raise _no_conversion(value, "double")

    read = float if match["decimal"] or match["special"] else float.fromhex
    try:
        number = read(value.replace("_", ""))
    except OverflowError:
        number = math.inf

    if math.isinf(number) and not match["special"]:
        raise _no_conversion(value, "double")

    return number


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
    if not part:
        return min(start, len(text))

    return text.find(part, start)


def last_index_of(text: str, part: str, start: int | None = None) -> int:
    """Return the last place of a part, up to a place; -1: there is none."""
    if start is None:
        return text.rfind(part)
    if start < 0:
        raise EvaluationError(f"index out of range: {start}")
    if not part:
        return min(start, len(text))
    if start >= len(text):
        return -1

    return text.rfind(part, 0, start + len(part))


def in_ascii(method: str, text: str) -> str:
    """Return a text whose letters of ASCII, and no others, are as a method of `str` makes them."""
    return re.sub("[A-Za-z]+", lambda match: str(getattr(match[0], method)()), text)


def trim(text: str) -> str:
    """Return a text without the white space around it."""
    return text.strip(_SPACES)


def _bound(length: int) -> None:
    if length > _LARGEST:
        raise NotUnderstood(f"a value of more than {_LARGEST} elements")


def replace(text: str, old: str, new: str, count: int = -1) -> str:
    """Return a text with another in place of a part, so many times at most; below zero: always."""
    places = text.count(old) if old else len(text) + 1
    _bound(len(text) + places * len(new))
    return text.replace(old, new, count)


def split(text: str, separator: str, count: int = -1) -> list[str]:
    """Return the parts of a text, so many at most; below zero: all."""
    if count == 0:
        return []
    if count == 1:
        return [text]
    if separator:
        return text.split(separator, max(-1, count - 1))

    letters = list(text)
    if count < 0 or len(letters) <= count:
        return letters

    return [*letters[: count - 1], "".join(letters[count - 1 :])]


def substring(text: str, start: int, end: int | None = None) -> str:
    """Return the characters from a place on, up to another."""
    if end is None:
        end = len(text)
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


def contains_element(elements: list[Any], value: object) -> bool:
    """Return whether a list has an element that is equal to a value."""
    if value is None:
        return any(element is None for element in elements)

    return any(element is not None and are_equal(value, element) for element in elements)


def includes(value: Any, element: object) -> bool:
    """Return whether a list has an element; of another value, whether that is equal to it."""
    if isinstance(value, list):
        return any(are_equal(member, element) for member in value)

    return are_equal(value, element)


def contains_all(elements: list[Any], values: list[Any]) -> bool:
    """Return whether a list has each element of another."""
    return all(contains_element(elements, value) for value in values)


def are_equivalent(left: list[Any], right: list[Any]) -> bool:
    """Return whether two lists have the same elements, however often and in whatever order."""
    return contains_all(left, right) and contains_all(right, left)


def intersect(left: list[Any], right: list[Any]) -> bool:
    """Return whether two lists have an element in common."""
    return any(contains_element(right, element) for element in left)


def index_of_element(elements: list[Any], value: object) -> int:
    """Return the first place of an element; -1: there is none."""
    return next((place for place, element in enumerate(elements) if are_equal(element, value)), -1)


def last_index_of_element(elements: list[Any], value: object) -> int:
    """Return the last place of an element; -1: there is none."""
    place = index_of_element(elements[::-1], value)
    if place < 0:
        return place

    return len(elements) - 1 - place


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

    flat: list[object] = []
    for element in elements:
        if isinstance(element, list) and depth:
            flat.extend(flatten(element, depth - 1))
        else:
            flat.append(element)

    return flat


def sort_by(elements: Any, keys: Any = None) -> list[Any]:
    """Return a list in the order of keys, one for each element, or of the elements themselves."""
    if keys is None:
        keys = elements
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

    order = cmp_to_key(_order)
    pairs = sorted(zip(keys, elements, strict=True), key=lambda pair: order(pair[0]))
    return [element for _, element in pairs]


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
    different: list[Any] = []
    for element in elements:
        if not any(are_equal(element, earlier) for earlier in different):
            different.append(element)

    return different


def is_sorted(elements: list[Any]) -> bool:
    """Return whether a list is in order."""
    if not all(map(_has_order, elements)):
        raise cel.no_overload()

    return all(_order(element, following) <= 0 for element, following in pairwise(elements))


def _order(left: Any, right: Any) -> int:
    """Return how two values are in order; those that are in none count as equal."""
    try:
        return compare(left, right)
    except EvaluationError:
        return 0


def extreme(name: str, elements: list[Any]) -> Any:
    """Return the least element of a list (`min`), or the greatest (`max`)."""
    if not all(map(_has_order, elements)):
        raise cel.no_overload()
    if not elements:
        raise EvaluationError(f"{name} called on empty list")

    order = cmp_to_key(_order)
    if name == "min":
        return min(elements, key=order)

    return max(elements, key=order)


def sum_of(elements: list[Any]) -> Any:
    """Return the sum of numbers; of none, zero."""
    if not elements:
        return 0

    zero = type(elements[0])(0)
    return reduce(added, elements, zero)


def sum_of_durations(elements: list[Any]) -> Any:
    """Return the sum of durations."""
    return reduce(added, elements, Duration(0))


def inserted(entries: dict[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    """Return a map with an entry more."""
    if cel.entry(entries, key) is not cel.ABSENT:
        raise EvaluationError(f"insert failed: key {key} already exists")

    if isinstance(entries, cel.GrowingMap):
        entries[key] = value
        return entries

    return {**entries, key: value}


def inserted_all(entries: dict[Any, Any], more: dict[Any, Any]) -> dict[Any, Any]:
    """Return a map with the entries of another."""
    for key, value in more.items():
        entries = inserted(entries, key, value)

    return entries


# optional values


def optional_of(value: object) -> Optional:
    """Return a value as an optional one."""
    return Optional(has_value=True, value=value)


def optional_of_non_zero(value: Any) -> Optional:
    """Return a value as an optional one; none if it is empty or zero."""
    if value in (Duration(0), Timestamp(-62135596800 * 10**9)):
        return cel.NONE

    has_zero = value is None or isinstance(value, bool | int | float | str | bytes | list | dict)
    if has_zero and not value:
        return cel.NONE

    return optional_of(value)


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
    if not all(isinstance(optional, Optional) for optional in elements):
        raise EvaluationError("value is not optional")

    return [optional.value for optional in elements if optional.has_value]


def compared(left: Any, right: Any) -> int:
    """Return how two quantities, or two versions, are in order."""
    return int(left > right) - int(left < right)
