"""The values and functions of CEL as the API server offers them to selectors: types, overloads, what a call costs.

Sources: the specification of CEL, `k8s.io/apiserver/pkg/cel/library` (quantity, semver, lists, regex, ip, cidr), and
cel-go's extensions strings, lists and sets. What is only named in `NOT_UNDERSTOOD` exists there, and is not modelled.
"""

from __future__ import annotations

import ipaddress
import math
import re
from dataclasses import dataclass
from functools import cmp_to_key, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from alignup.claims.cel_syntax import CompileError, NotUnderstood, Uint
from alignup.errors import InputError
from alignup.kubernetes.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "BOOL",
    "BYTES",
    "DOUBLE",
    "DYN",
    "FUNCTIONS",
    "INT",
    "NOT_UNDERSTOOD",
    "NULL",
    "QUANTITY",
    "SEMVER",
    "STRING",
    "UINT",
    "CostExceededError",
    "EvaluationError",
    "Optional",
    "Overload",
    "Quantity",
    "Semver",
    "Type",
    "check_pattern",
    "equal",
    "has_type",
    "list_of",
    "map_of",
    "optional_of",
    "size_of",
]


class EvaluationError(Exception):
    """An error while an expression is evaluated, which `&&` and `||` may absorb."""


class CostExceededError(Exception):
    """An expression costs more than the API server allows; no operator absorbs this."""


class Type(NamedTuple):
    """A type of CEL. A parameter of a generic overload has a name of one capital letter."""

    name: str
    parameters: tuple[Type, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.parameters))})" if self.parameters else self.name


DYN: Final = Type("dyn")
BOOL, INT, UINT, DOUBLE = Type("bool"), Type("int"), Type("uint"), Type("double")
STRING, BYTES, NULL = Type("string"), Type("bytes"), Type("null_type")
QUANTITY, SEMVER = Type("kubernetes.Quantity"), Type("kubernetes.Semver")
IP, CIDR = Type("net.IP"), Type("net.CIDR")
_A, _B = Type("A"), Type("B")


def list_of(element: Type) -> Type:
    """Return the type of a list."""
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """Return the type of a map."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """Return the type of an optional value."""
    return Type("optional_type", (value,))


@dataclass(frozen=True, slots=True)
class Quantity:
    """A quantity, in billionths of its unit."""

    amount: int


@dataclass(frozen=True, slots=True)
class Semver:
    """A semantic version; build metadata does not count."""

    numbers: tuple[int, int, int]
    prerelease: tuple[str, ...] = ()

    def compare(self, other: Semver) -> int:
        """Return -1, 0 or 1; source: semver.org, 11."""
        if self.numbers != other.numbers:
            return -1 if self.numbers < other.numbers else 1
        if not self.prerelease or not other.prerelease:
            return bool(other.prerelease) - bool(self.prerelease)
        ours, theirs = (
            [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in version.prerelease]
            for version in (self, other)
        )
        return (ours > theirs) - (ours < theirs)

    @classmethod
    def parse(cls, text: str) -> Semver:
        """Read a version in its minimal form.

        Raises:
            EvaluationError: it is none.
        """
        match = _VERSION.fullmatch(text)
        if match is None:
            if text.count(".") < 2:  # noqa: PLR2004  # x.y.z
                raise EvaluationError("No Major.Minor.Patch elements found")
            raise EvaluationError(f"Invalid semantic version {text!r}")
        numbers = int(match[1]), int(match[2]), int(match[3])
        if max(numbers) >= 2**64:
            raise EvaluationError(f"Invalid semantic version {text!r}")
        return cls(numbers, tuple(match[4].split(".")) if match[4] else ())

    @classmethod
    def normalized(cls, text: str) -> Semver:
        """Read a version that may begin with a v, have fewer than three numbers, and zeros before them."""
        match = re.fullmatch(r"\s*v?([0-9.]+)(.*?)\s*", text, re.DOTALL)
        if match is None:
            return cls.parse(text)
        numbers = match[1].split(".")
        if len(numbers) < 3 and match[2]:  # noqa: PLR2004  # x.y.z
            raise EvaluationError("Short version cannot contain PreRelease/Build meta data")
        numbers = [number.lstrip("0") or "0" if number else "" for number in numbers]
        return cls.parse(".".join([*numbers, "0", "0"][: max(3, len(numbers))]) + match[2])


_IDENTIFIER: Final = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION: Final = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    rf"(?:-({_IDENTIFIER}(?:\.{_IDENTIFIER})*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)


@dataclass(frozen=True, slots=True)
class Optional:
    """A value or none."""

    has_value: bool = False
    value: object = None


_IP: Final = (ipaddress.IPv4Address, ipaddress.IPv6Address)
_CIDR: Final = (ipaddress.IPv4Interface, ipaddress.IPv6Interface)
_CLASSES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "bool": bool,
    "uint": Uint,
    "double": float,
    "string": str,
    "bytes": bytes,
    "null_type": type(None),
    "list": list,
    "map": dict,
    "optional_type": Optional,
    "kubernetes.Quantity": Quantity,
    "kubernetes.Semver": Semver,
    "type": Type,
    "net.IP": _IP,
    "net.CIDR": _CIDR,
}


def has_type(value: object, wanted: Type) -> bool:
    """Return whether a value is of a type; what lists and maps contain is not looked at."""
    if wanted.name == "int":
        return type(value) is int
    if wanted.name == "net.IP":
        return isinstance(value, _IP) and not isinstance(value, _CIDR)
    found = _CLASSES.get(wanted.name)
    return found is None or isinstance(value, found)


def type_of(value: object) -> Type:
    """Return the type of a value, which is a value too."""
    if type(value) is int:
        return INT
    for name in _CLASSES:
        if has_type(value, Type(name)):
            return Type(name)
    raise NotUnderstood(f"the type of {value!r}")


def size_of(value: object) -> int:
    """Return the size that a value counts with in costs."""
    if isinstance(value, Optional):
        return size_of(value.value) if value.has_value else 1
    return len(value) if isinstance(value, str | bytes | list | dict) else 1


_NUMBERS: Final = (int, float)


def equal(one: object, other: object) -> bool:
    """Return whether two values are equal; values of different types are not, numbers apart.

    Raises:
        EvaluationError: a quantity, version or address is compared with something else.
    """
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, _NUMBERS) and isinstance(other, _NUMBERS):
        return one == other
    if isinstance(one, Semver) and isinstance(other, Semver):
        return one.compare(other) == 0
    if isinstance(one, Quantity | Semver | ipaddress._BaseAddress) and type(one) is not type(other):  # noqa: SLF001
        raise EvaluationError("no such overload")
    return type(one) is type(other) and _equal_parts(one, other)


def _equal_parts(one: Any, other: Any) -> bool:
    """Return whether two values of one type are equal."""
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict):
        return len(one) == len(other) and all(key in other and equal(one[key], other[key]) for key in one)
    if isinstance(one, Optional):
        return one.has_value == other.has_value and equal(one.value, other.value)
    return bool(one == other)


class Overload(NamedTuple):
    """One way to call a function."""

    parameters: tuple[Type, ...]
    """A method's target is the first."""
    result: Type
    call: Callable[..., Any]
    is_method: bool = False
    cost: Callable[..., int] | None = None
    """Of the arguments and the result; None: 1."""


def _tenth(size: int) -> int:
    """Return what it costs to walk a text."""
    return -(-size // 10)


def _walk(text: Any, *_: object) -> int:
    return _tenth(size_of(text))


def _walk_twice(text: Any, *_: object) -> int:
    return -(-size_of(text) // 5)


def _walk_argument(_: object, text: Any, *__: object) -> int:
    return _tenth(size_of(text))


def _walk_both(one: Any, other: Any, *_: object) -> int:
    return _tenth(size_of(one) + size_of(other))


def _walk_shorter(one: Any, other: Any, *_: object) -> int:
    if isinstance(one, Quantity | Semver | ipaddress._BaseAddress):  # noqa: SLF001
        return 1
    return _tenth(min(size_of(one), size_of(other)))


def _walk_pattern(text: Any, pattern: Any, *_: object) -> int:
    return _tenth(1 + size_of(text)) * -(-size_of(pattern) // 4)


def _walk_product(one: Any, other: Any, *_: object) -> int:
    return _tenth(size_of(one)) * _tenth(size_of(other))


def _walk_elements(elements: Any, *_: object) -> int:
    if isinstance(elements, str):
        return _tenth(len(elements))
    return sum(max(1, _tenth(size_of(one))) if isinstance(one, str | bytes) else 1 for one in elements)


def _whole(value: int, *, unsigned: bool = False) -> int:
    if unsigned:
        if not 0 <= value < 2**64:
            raise EvaluationError("unsigned integer overflow")
        return Uint(value)
    if not -(2**63) <= value < 2**63:
        raise EvaluationError("integer overflow")
    return int(value)


def _divide(one: int, other: int) -> int:
    if other == 0:
        raise EvaluationError("division by zero")
    quotient = abs(one) // abs(other)
    return _whole(quotient if (one < 0) == (other < 0) else -quotient, unsigned=isinstance(one, Uint))


def _remainder(one: int, other: int) -> int:
    if other == 0:
        raise EvaluationError("modulus by zero")
    rest = abs(one) % abs(other)
    return _whole(-rest if one < 0 else rest, unsigned=isinstance(one, Uint))


def _divide_doubles(one: float, other: float) -> float:
    if other == 0:
        if one == 0 or math.isnan(one):
            return math.nan
        return math.copysign(math.inf, one) * math.copysign(1, other)
    return one / other


def _times(one: float, other: float) -> float:
    try:
        return one * other
    except OverflowError:
        return math.inf


def _to_int(value: object) -> int:
    if isinstance(value, float):
        if not -(2.0**63) < value < 2.0**63:
            raise EvaluationError("integer overflow")
        return int(value)
    if isinstance(value, str):
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", value):
            raise EvaluationError(f"type conversion error from 'string' to 'int': {value!r}")
        return _whole(int(value))
    return _whole(int(value))  # type: ignore[call-overload]


def _to_uint(value: object) -> int:
    if isinstance(value, float):
        if not 0 <= value < 2.0**64:
            raise EvaluationError("unsigned integer overflow")
        return Uint(value)
    if isinstance(value, str) and not re.fullmatch(r"[0-9]{1,20}", value):
        raise EvaluationError(f"type conversion error from 'string' to 'uint': {value!r}")
    return _whole(int(value), unsigned=True)  # type: ignore[call-overload]


def _to_double(value: object) -> float:
    if isinstance(value, str) and not re.fullmatch(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", value):
        raise NotUnderstood(f"double({value!r})")
    return float(value)  # type: ignore[arg-type]


def _to_bool(value: str) -> bool:
    if value in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if value in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    raise EvaluationError(f"type conversion error from 'string' to 'bool': {value!r}")


def _to_string(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        raise NotUnderstood("string() of a double")
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from error
    return str(value)


def _quantity(text: str) -> Quantity:
    try:
        return Quantity(parse_quantity(text, most=10**40))
    except InputError as error:
        raise EvaluationError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ) from error


def _is_parsed(parse: Callable[..., object]) -> Callable[..., bool]:
    def test(*arguments: object) -> bool:
        try:
            parse(*arguments)
        except EvaluationError:
            return False
        return True

    return test


def _semver(text: str, normalize: bool = False) -> Semver:
    return Semver.normalized(text) if normalize else Semver.parse(text)


def _order(one: Any, other: Any) -> int:
    if isinstance(one, Semver) and isinstance(other, Semver):
        return one.compare(other)
    return int(one.amount > other.amount) - int(one.amount < other.amount)


def _as_integer(quantity: Quantity) -> int:
    if quantity.amount % 10**9 or abs(quantity.amount) >= 2**63 * 10**9:
        raise EvaluationError("cannot convert value to integer")
    return quantity.amount // 10**9


def check_pattern(pattern: str) -> None:
    """Make sure that a regular expression means in Python what it means in RE2, and that its matching is bounded.

    Raises:
        CompileError: it is no regular expression of RE2.
        NotUnderstood: it may be one, of which this cannot be said.
    """
    if re.search(r"\(\?(?:<?[=!]|>|#|\()|(?<!\\)(?:\\\\)*\\[1-9]|[*+?}]\+", pattern):
        raise CompileError(f"error parsing regexp: invalid or unsupported Perl syntax: {pattern!r}")
    if re.search(
        r"\(\?(?!:)|\[\[?:|\[[^\]]*(?:\[|&&|--|~~|\|\|)|\\[^dDwWsSntrf.\-+*?()\[\]{}|^$/\\bB]|[$^][*+?{]", pattern
    ):
        raise NotUnderstood(f"the regular expression {pattern!r}")
    # a group that repeats must be of one length, so that matching takes no exponential time
    for group in re.finditer(r"\)(?:[*+]|\{)", pattern):
        raise NotUnderstood(f"the repeated group of the regular expression {pattern!r} (character {group.start() + 1})")
    if re.search(r"[0-9]{4,}[,}]", pattern):
        raise NotUnderstood(f"so many repetitions in the regular expression {pattern!r}")
    try:
        _pattern(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise CompileError(f"error parsing regexp: {error}: {pattern!r}") from error


_MOST_EFFORT: Final = 10_000_000
"""The most steps that matching may take: some tenths of a second."""


@lru_cache(maxsize=256)
def _pattern(pattern: str) -> re.Pattern[str]:
    # RE2's $ is the end of the text, Python's also matches before a last newline; \d, \w and \s are ASCII there
    return re.compile(re.sub(r"(?<!\\)((?:\\\\)*)\$", r"\1\\Z", pattern), re.ASCII)


def _checked(text: str, pattern: str) -> re.Pattern[str]:
    """Return a pattern whose matching against a text is bounded.

    Raises:
        EvaluationError: it is no regular expression.
        NotUnderstood: it may be one, and its matching may take too long.
    """
    try:
        check_pattern(pattern)
    except CompileError as error:
        raise EvaluationError(str(error)) from error
    repeats = min(sum(map(pattern.count, "*+{")), 30)
    choices = min(sum(map(pattern.count, "?|")), 30)
    if (len(text) + 1) ** (repeats + 1) * 2**choices > _MOST_EFFORT:
        raise NotUnderstood(f"matching that may take long: {pattern!r} on {len(text)} characters")
    return _pattern(pattern)


def _find(text: str, pattern: str) -> str:
    match = _checked(text, pattern).search(text)
    return match[0] if match else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = [match[0] for match in _checked(text, pattern).finditer(text)]
    return found if limit < 0 else found[:limit]


def _within(text: Any, *places: int) -> None:
    for place in places:
        if not 0 <= place <= len(text):
            raise EvaluationError(f"index out of range: {place}")


def _char_at(text: str, place: int) -> str:
    _within(text, place)
    return text[place : place + 1]


def _substring(text: str, start: int, end: int | None = None) -> str:
    _within(text, start, *([] if end is None else [end]))
    if end is not None and end < start:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    return text[start:end]


def _index_in_text(text: str, part: str, start: int = 0) -> int:
    if not part:
        return start
    if not 0 <= start < len(text):
        if start == 0:
            return -1
        raise EvaluationError(f"index out of range: {start}")
    return text.find(part, start)


def _last_index_in_text(text: str, part: str, start: int | None = None) -> int:
    if start is None:
        return text.rfind(part)
    _within(text, start)
    return text.rfind(part, 0, start + len(part))


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    if (len(text) + 1) * len(new) > 100 * _MOST_ELEMENTS and text.count(old) * len(new) > 100 * _MOST_ELEMENTS:
        raise NotUnderstood("a value of a million elements")
    return text.replace(old, new, count)


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count in (0, 1):
        return [text] if count else []
    if separator:
        return text.split(separator, count - 1 if count > 0 else -1)
    letters = list(text)
    return letters if count < 0 or len(letters) <= count else [*letters[: count - 1], "".join(letters[count - 1 :])]


def _join(parts: list[object], separator: str = "") -> str:
    if not all(isinstance(part, str) for part in parts):
        raise EvaluationError("join: invalid input")
    return separator.join(parts)  # type: ignore[arg-type]


def _trim(text: str) -> str:
    return text.strip(
        " \t\n\v\f\r\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
    )


_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER: Final = {lower: upper for upper, lower in _LOWER.items()}


def _contains(elements: Any, wanted: object) -> bool:
    return any(_equal_or_not(one, wanted) for one in elements)


def _equal_or_not(one: object, other: object) -> bool:
    try:
        return equal(one, other)
    except EvaluationError:
        return False


def _index_in_list(elements: list[object], wanted: object) -> int:
    return next((place for place, one in enumerate(elements) if _equal_or_not(one, wanted)), -1)


def _last_index_in_list(elements: list[object], wanted: object) -> int:
    return next((place for place in reversed(range(len(elements))) if _equal_or_not(elements[place], wanted)), -1)


def _compare(one: Any, other: Any) -> int:
    if isinstance(one, Quantity | Semver | list | dict | Optional) or type(one) is not type(other):
        raise EvaluationError("no such overload")
    return int(one > other) - int(one < other)


def _sorted(elements: list[Any]) -> list[Any]:
    return sorted(elements, key=cmp_to_key(_compare))


def _is_sorted(elements: list[Any]) -> bool:
    return all(_compare(one, other) <= 0 for one, other in pairwise(elements))


def _extreme(sign: int, name: str) -> Callable[[list[Any]], object]:
    def call(elements: list[Any]) -> object:
        if not elements:
            raise EvaluationError(f"{name} called on empty list")
        best = elements[0]
        for one in elements[1:]:
            if _compare(one, best) == sign:
                best = one
        return best

    return call


def _sum(elements: list[Any]) -> object:
    if not elements:
        return 0
    if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in elements):
        raise EvaluationError("no such overload")
    total = sum(elements)
    return total if isinstance(elements[0], float) else _whole(total, unsigned=isinstance(elements[0], Uint))


def _slice(elements: list[object], start: int, end: int) -> list[object]:
    if start < 0 or end < 0 or end < start or end > len(elements):
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(elements)}")
    return elements[start:end]


def _flat(elements: list[object], depth: int = 1) -> list[object]:
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    found: list[object] = []
    for one in elements:
        found.extend(_flat(one, depth - 1) if isinstance(one, list) and depth else [one])
    return found


def _distinct(elements: list[object]) -> list[object]:
    found: list[object] = []
    for one in elements:
        if not _contains(found, one):
            found.append(one)
    return found


def _range(count: int) -> list[int]:
    if count > _MOST_ELEMENTS:
        raise NotUnderstood(f"a list of {count} elements")
    return list(range(count))


_MOST_ELEMENTS: Final = 10_000


def _repeated(parts: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return `+` of texts or lists, bounded."""

    def call(one: Any, other: Any) -> Any:
        if len(one) + len(other) > 100 * _MOST_ELEMENTS:
            raise NotUnderstood("a value of a million elements")
        return parts(one, other)

    return call


def _includes(elements: object, wanted: object) -> bool:
    if isinstance(elements, list):
        return _contains(elements, wanted)
    return equal(elements, wanted)


def _address(text: str) -> Any:
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise EvaluationError(f"IP Address {text!r} parse error during conversion from string") from error
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address.scope_id):
        raise EvaluationError(f"IP Address {text!r} has a form that is not allowed")
    return address


def _network(text: str) -> Any:
    if not re.fullmatch(r"[0-9a-fA-F.:]+/[0-9]{1,3}", text):
        raise EvaluationError(f"network address parse error during conversion from string: {text!r}")
    _address(text.partition("/")[0])
    try:
        return ipaddress.ip_interface(text)
    except ValueError as error:
        raise EvaluationError(f"network address parse error during conversion from string: {text!r}") from error


def _contains_network(outer: Any, inner: Any) -> bool:
    inner = _network(inner) if isinstance(inner, str) else inner
    return bool(inner.version == outer.version and inner.network.subnet_of(outer.network))


def _contains_address(outer: Any, inner: Any) -> bool:
    return (_address(inner) if isinstance(inner, str) else inner) in outer.network


def _of_non_zero(value: object) -> Optional:
    is_zero = value is None or (isinstance(value, int | float | str | bytes | list | dict) and not value)
    return Optional() if is_zero else Optional(has_value=True, value=value)


def _value_of(optional: Optional) -> object:
    if not optional.has_value:
        raise EvaluationError("optional.none() dereference")
    return optional.value


def _comparisons() -> dict[str, list[Overload]]:
    """Return `<` and the like, which compare numbers of any two types, and other values of one type."""
    tests: dict[str, Callable[[Any, Any], bool]] = {
        "_<_": lambda one, other: one < other,
        "_<=_": lambda one, other: one <= other,
        "_>_": lambda one, other: one > other,
        "_>=_": lambda one, other: one >= other,
    }
    numbers = (INT, UINT, DOUBLE)
    pairs = [(one, other) for one in numbers for other in numbers] + [(BOOL, BOOL)]
    return {
        name: [Overload(pair, BOOL, test) for pair in pairs]
        + [Overload((kind, kind), BOOL, test, cost=_walk_shorter) for kind in (STRING, BYTES)]
        for name, test in tests.items()
    }


def _arithmetic() -> dict[str, list[Overload]]:
    signed: dict[str, Callable[[int, int], int]] = {
        "_+_": lambda one, other: _whole(one + other, unsigned=isinstance(one, Uint)),
        "_-_": lambda one, other: _whole(one - other, unsigned=isinstance(one, Uint)),
        "_*_": lambda one, other: _whole(one * other, unsigned=isinstance(one, Uint)),
        "_/_": _divide,
        "_%_": _remainder,
    }
    found = {name: [Overload((kind, kind), kind, call) for kind in (INT, UINT)] for name, call in signed.items()}
    doubles: dict[str, Callable[[float, float], float]] = {
        "_+_": lambda one, other: one + other,
        "_-_": lambda one, other: one - other,
        "_*_": _times,
        "_/_": _divide_doubles,
    }
    for name, call in doubles.items():
        found[name].append(Overload((DOUBLE, DOUBLE), DOUBLE, call))
    plus = _repeated(lambda one, other: one + other)
    found["_+_"] += [Overload((kind, kind), kind, plus, cost=_walk_both) for kind in (STRING, BYTES)]
    found["_+_"].append(Overload((list_of(_A), list_of(_A)), list_of(_A), plus))
    found["-_"] = [Overload((INT,), INT, lambda one: _whole(-one)), Overload((DOUBLE,), DOUBLE, lambda one: -one)]
    return found


def _methods(
    *rows: tuple[str, tuple[Type, ...], Type, Callable[..., Any], Callable[..., int] | None],
) -> dict[str, list[Overload]]:
    found: dict[str, list[Overload]] = {}
    for name, parameters, result, call, cost in rows:
        found.setdefault(name, []).append(Overload(parameters, result, call, is_method=True, cost=cost))
    return found


def _functions(
    *rows: tuple[str, tuple[Type, ...], Type, Callable[..., Any], Callable[..., int] | None],
) -> dict[str, list[Overload]]:
    found: dict[str, list[Overload]] = {}
    for name, parameters, result, call, cost in rows:
        found.setdefault(name, []).append(Overload(parameters, result, call, cost=cost))
    return found


_LIST: Final = list_of(_A)
_TEXTS: Final = list_of(STRING)
_OPTION: Final = optional_of(_A)

_STRINGS: Final = _methods(
    ("contains", (STRING, STRING), BOOL, lambda text, part: part in text, _walk_product),
    ("startsWith", (STRING, STRING), BOOL, str.startswith, _walk_argument),
    ("endsWith", (STRING, STRING), BOOL, str.endswith, _walk_argument),
    (
        "matches",
        (STRING, STRING),
        BOOL,
        lambda text, pattern: _checked(text, pattern).search(text) is not None,
        _walk_pattern,
    ),
    ("find", (STRING, STRING), STRING, _find, _walk_pattern),
    ("findAll", (STRING, STRING), _TEXTS, _find_all, _walk_pattern),
    ("findAll", (STRING, STRING, INT), _TEXTS, _find_all, _walk_pattern),
    ("lowerAscii", (STRING,), STRING, lambda text: text.translate(_LOWER), _walk),
    ("upperAscii", (STRING,), STRING, lambda text: text.translate(_UPPER), _walk),
    ("charAt", (STRING, INT), STRING, _char_at, None),
    ("indexOf", (STRING, STRING), INT, _index_in_text, _walk),
    ("indexOf", (STRING, STRING, INT), INT, _index_in_text, _walk),
    ("lastIndexOf", (STRING, STRING), INT, _last_index_in_text, _walk),
    ("lastIndexOf", (STRING, STRING, INT), INT, _last_index_in_text, _walk),
    ("join", (_TEXTS,), STRING, _join, lambda _, result: _walk_twice(result)),
    ("join", (_TEXTS, STRING), STRING, _join, lambda _, __, result: _walk_twice(result)),
    ("replace", (STRING, STRING, STRING), STRING, _replace, _walk_twice),
    ("replace", (STRING, STRING, STRING, INT), STRING, _replace, _walk_twice),
    ("split", (STRING, STRING), _TEXTS, _split, _walk_twice),
    ("split", (STRING, STRING, INT), _TEXTS, _split, _walk_twice),
    ("substring", (STRING, INT), STRING, _substring, _walk),
    ("substring", (STRING, INT, INT), STRING, _substring, _walk),
    ("trim", (STRING,), STRING, _trim, _walk),
)

_LISTS: Final = _methods(
    ("indexOf", (_LIST, _A), INT, _index_in_list, _walk_elements),
    ("lastIndexOf", (_LIST, _A), INT, _last_index_in_list, _walk_elements),
    ("slice", (_LIST, INT, INT), _LIST, _slice, None),
    ("flatten", (list_of(list_of(_A)),), _LIST, _flat, _walk_elements),
    ("flatten", (list_of(DYN), INT), list_of(DYN), _flat, _walk_elements),
    ("distinct", (_LIST,), _LIST, _distinct, lambda elements, _: len(elements) ** 2),
    ("reverse", (_LIST,), _LIST, lambda elements: elements[::-1], _walk_elements),
    *[
        ("isSorted", (list_of(kind),), BOOL, _is_sorted, _walk_elements)
        for kind in (INT, UINT, DOUBLE, BOOL, STRING, BYTES)
    ],
    *[("sum", (list_of(kind),), kind, _sum, _walk_elements) for kind in (INT, UINT, DOUBLE)],
    *[
        ("min", (list_of(kind),), kind, _extreme(-1, "min"), _walk_elements)
        for kind in (INT, UINT, DOUBLE, BOOL, STRING, BYTES)
    ],
    *[
        ("max", (list_of(kind),), kind, _extreme(1, "max"), _walk_elements)
        for kind in (INT, UINT, DOUBLE, BOOL, STRING, BYTES)
    ],
    *[
        ("sort", (list_of(kind),), list_of(kind), _sorted, lambda elements, _: len(elements) ** 2)
        for kind in (INT, UINT, DOUBLE, BOOL, STRING, BYTES)
    ],
)

_KUBERNETES: Final = _methods(
    *[
        row
        for kind in (QUANTITY, SEMVER)
        for row in (
            ("isGreaterThan", (kind, kind), BOOL, lambda one, other: _order(one, other) > 0, None),
            ("isLessThan", (kind, kind), BOOL, lambda one, other: _order(one, other) < 0, None),
            ("compareTo", (kind, kind), INT, _order, None),
        )
    ],
    ("asApproximateFloat", (QUANTITY,), DOUBLE, lambda one: one.amount / 10**9, None),
    ("asInteger", (QUANTITY,), INT, _as_integer, None),
    ("isInteger", (QUANTITY,), BOOL, _is_parsed(_as_integer), None),
    ("add", (QUANTITY, QUANTITY), QUANTITY, lambda one, other: Quantity(one.amount + other.amount), None),
    ("add", (QUANTITY, INT), QUANTITY, lambda one, other: Quantity(one.amount + other * 10**9), None),
    ("sub", (QUANTITY, QUANTITY), QUANTITY, lambda one, other: Quantity(one.amount - other.amount), None),
    ("sub", (QUANTITY, INT), QUANTITY, lambda one, other: Quantity(one.amount - other * 10**9), None),
    *[
        (name, (SEMVER,), INT, lambda one, place=place: one.numbers[place], None)
        for place, name in enumerate(("major", "minor", "patch"))
    ],
    ("family", (IP,), INT, lambda one: one.version, None),
    ("isUnspecified", (IP,), BOOL, lambda one: one.is_unspecified, None),
    ("isLoopback", (IP,), BOOL, lambda one: one.is_loopback, None),
    ("containsIP", (CIDR, STRING), BOOL, _contains_address, None),
    ("containsIP", (CIDR, IP), BOOL, _contains_address, None),
    ("containsCIDR", (CIDR, STRING), BOOL, _contains_network, None),
    ("containsCIDR", (CIDR, CIDR), BOOL, _contains_network, None),
    ("ip", (CIDR,), IP, lambda one: one.ip, None),
    ("prefixLength", (CIDR,), INT, lambda one: one.network.prefixlen, None),
    ("masked", (CIDR,), CIDR, lambda one: ipaddress.ip_interface(one.network), None),
    ("hasValue", (_OPTION,), BOOL, lambda one: one.has_value, None),
    ("value", (_OPTION,), _A, _value_of, None),
    ("size", (STRING,), INT, len, None),
    ("size", (BYTES,), INT, len, None),
    ("size", (_LIST,), INT, len, None),
    ("size", (map_of(_A, _B),), INT, len, None),
)

_GLOBAL: Final = _functions(
    ("_==_", (_A, _A), BOOL, equal, _walk_shorter),
    ("_!=_", (_A, _A), BOOL, lambda one, other: not equal(one, other), _walk_shorter),
    ("!_", (BOOL,), BOOL, lambda one: not one, None),
    (
        "@in",
        (_A, list_of(_A)),
        BOOL,
        lambda one, elements: _contains(elements, one),
        lambda _, elements, __: len(elements),
    ),
    (
        "@in",
        (_A, map_of(_A, _B)),
        BOOL,
        lambda one, entries: isinstance(one, str | int | float) and one in entries,
        None,
    ),
    ("size", (STRING,), INT, len, None),
    ("size", (BYTES,), INT, len, None),
    ("size", (_LIST,), INT, len, None),
    ("size", (map_of(_A, _B),), INT, len, None),
    (
        "matches",
        (STRING, STRING),
        BOOL,
        lambda text, pattern: _checked(text, pattern).search(text) is not None,
        _walk_pattern,
    ),
    ("type", (_A,), Type("type", (_A,)), type_of, None),
    ("dyn", (_A,), DYN, lambda one: one, lambda *_: 0),
    *[("int", (kind,), INT, _to_int, None) for kind in (INT, UINT, DOUBLE, STRING)],
    *[("uint", (kind,), UINT, _to_uint, None) for kind in (INT, UINT, DOUBLE, STRING)],
    *[("double", (kind,), DOUBLE, _to_double, None) for kind in (INT, UINT, DOUBLE, STRING)],
    *[("string", (kind,), STRING, _to_string, None) for kind in (INT, UINT, DOUBLE, STRING, BOOL, IP, CIDR)],
    ("string", (BYTES,), STRING, _to_string, _walk),
    ("bytes", (BYTES,), BYTES, bytes, None),
    ("bytes", (STRING,), BYTES, str.encode, _walk),
    ("bool", (BOOL,), BOOL, bool, None),
    ("bool", (STRING,), BOOL, _to_bool, None),
    ("quantity", (STRING,), QUANTITY, _quantity, _walk),
    ("isQuantity", (STRING,), BOOL, _is_parsed(_quantity), _walk),
    ("sign", (QUANTITY,), INT, lambda one: (one.amount > 0) - (one.amount < 0), None),
    ("semver", (STRING,), SEMVER, _semver, _walk),
    ("semver", (STRING, BOOL), SEMVER, _semver, _walk),
    ("isSemver", (STRING,), BOOL, _is_parsed(_semver), _walk),
    ("isSemver", (STRING, BOOL), BOOL, _is_parsed(_semver), _walk),
    ("ip", (STRING,), IP, _address, _walk),
    ("isIP", (STRING,), BOOL, _is_parsed(_address), _walk),
    ("cidr", (STRING,), CIDR, _network, _walk),
    ("isCIDR", (STRING,), BOOL, _is_parsed(_network), _walk),
    (
        "sets.contains",
        (_LIST, _LIST),
        BOOL,
        lambda one, other: all(_contains(one, part) for part in other),
        lambda one, other, _: len(one) * len(other) + 1,
    ),
    (
        "sets.intersects",
        (_LIST, _LIST),
        BOOL,
        lambda one, other: any(_contains(one, part) for part in other),
        lambda one, other, _: len(one) * len(other) + 1,
    ),
    (
        "sets.equivalent",
        (_LIST, _LIST),
        BOOL,
        lambda one, other: all(_contains(one, part) for part in other) and all(_contains(other, part) for part in one),
        lambda one, other, _: 2 * len(one) * len(other) + 1,
    ),
    ("lists.range", (INT,), list_of(INT), _range, lambda count, _: max(count, 0) + 1),
    ("optional.none", (), optional_of(DYN), Optional, None),
    ("optional.of", (_A,), _OPTION, lambda one: Optional(has_value=True, value=one), None),
    ("optional.ofNonZeroValue", (_A,), _OPTION, _of_non_zero, None),
    ("includes", (DYN, DYN), BOOL, _includes, None),
)
_GLOBAL["includes"] = [
    overload._replace(is_method=True, cost=lambda one, *_: len(one) if isinstance(one, list) else 1)
    for overload in _GLOBAL["includes"]
]


def _merged(*tables: Mapping[str, list[Overload]]) -> dict[str, tuple[Overload, ...]]:
    found: dict[str, list[Overload]] = {}
    for table in tables:
        for name, overloads in table.items():
            found.setdefault(name, []).extend(overloads)
    return {name: tuple(overloads) for name, overloads in found.items()}


FUNCTIONS: Final = _merged(_GLOBAL, _comparisons(), _arithmetic(), _STRINGS, _LISTS, _KUBERNETES)
"""The overloads of each function, operators by CEL's names for them."""

NOT_UNDERSTOOD: Final = frozenset(
    """
    url isURL getScheme getHost getHostname getPort getEscapedPath getQuery validate format quote strings.quote
    timestamp duration getFullYear getMonth getDate getDayOfMonth getDayOfWeek getDayOfYear getHours getMinutes
    getSeconds getMilliseconds sortBy sortByAssociatedKeys isLinkLocalMulticast isLinkLocalUnicast isGlobalUnicast
    ip.isCanonical optional.unwrap unwrapOpt first last authorizer path group serviceAccount resource subresource
    namespace name check allowed reason error errored fieldSelector labelSelector cel.block cel.index
    jsonpatch.escapeKey
    """.split()  # noqa: SIM905  # so many names read better without quotes
)
"""Functions that the API server has and that are not modelled here; those of `format.` too."""
