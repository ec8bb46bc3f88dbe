"""The values and functions of CEL as the API server offers them to selectors: types, overloads, what a call costs.

Sources: the specification of CEL, `k8s.io/apiserver/pkg/cel/library` (quantity, semver, lists, regex, ip, cidr, url),
and cel-go's extensions strings, lists and sets. What is only named in `NOT_UNDERSTOOD` exists there, and is not
modelled.
"""

from __future__ import annotations

import ipaddress
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cmp_to_key, lru_cache
from itertools import islice, pairwise, product
from typing import Any, Final, NamedTuple, TypeAlias

from alignup.claims.cel_syntax import CompileError, NotUnderstood, Uint
from alignup.errors import InputError
from alignup.kubernetes.policy_options import GO_BOOLEANS
from alignup.kubernetes.quantity import parse_quantity
from alignup.records import Record


class EvaluationError(Exception):
    """An error while an expression is evaluated, which `&&` and `||` may absorb."""


class CostExceededError(Exception):
    """An expression costs more than the API server allows; no operator absorbs this."""


class Type(NamedTuple):
    """A type of CEL; in an overload, A or B may be any type."""

    name: str
    parameters: tuple[Type, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.parameters))})" if self.parameters else self.name


DYN: Final = Type("dyn")
BOOL: Final = Type("bool")
INT: Final = Type("int")
STRING: Final = Type("string")
QUANTITY: Final = Type("kubernetes.Quantity")
_FULL_NAMES: Final = {
    "Quantity": QUANTITY.name,
    "Semver": "kubernetes.Semver",
    "IP": "net.IP",
    "CIDR": "net.CIDR",
    "URL": "kubernetes.URL",
    "optional": "optional_type",
}
_NUMBERS: Final = ("int", "uint", "double")
_ORDERED: Final = (*_NUMBERS, "bool", "string", "bytes")
_NULLABLE: Final = frozenset(_FULL_NAMES.values())
# The types that letters in declarations stand for; A and B stand for any.
_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "N": _NUMBERS,
    "M": _NUMBERS,
    "I": ("int", "uint"),
    "T": ("string", "bytes"),
    "L": ("bool", "string", "bytes"),
    "O": _ORDERED,
    "C": ("int", "uint", "double", "string"),
    "S": ("string", "bytes", "list(A)", "map(A, B)"),
    "V": ("Quantity", "Semver"),
}
_ANY: Final = frozenset({"A", "B", "dyn"})


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """A quantity, in billionths of its unit."""

    amount: int


@dataclass(frozen=True, slots=True, order=True)
class Semver:
    """A semantic version, in the order of semver.org, 11; build metadata does not count."""

    numbers: tuple[int, int, int]
    is_final: bool = True
    prerelease: tuple[tuple[int, int, str], ...] = ()

    @classmethod
    def parse(cls, text: str, normalize: bool = False) -> Semver:
        """Read a version.

        Args:
            text: the version in its minimal form.
            normalize: it may begin with a v, have fewer than three numbers, and zeros before them.

        Raises:
            EvaluationError: it is none.
        """
        loose = re.fullmatch(r"\s*v?([0-9.]+)(.*?)\s*", text, re.DOTALL) if normalize else None
        if loose is not None:
            parts = [number.lstrip("0") or number[:1] for number in loose[1].split(".")]
            if len(parts) < 3 and loose[2]:  # noqa: PLR2004  # x.y.z
                raise EvaluationError("Short version cannot contain PreRelease/Build meta data")
            text = ".".join([*parts, "0", "0"][: max(3, len(parts))]) + loose[2]
        match = _VERSION.fullmatch(text)
        if match is None or max(map(int, match.groups()[:3])) >= 2**64:
            wrong = f"Invalid semantic version {text!r}"
            raise EvaluationError("No Major.Minor.Patch elements found" if text.count(".") < 2 else wrong)  # noqa: PLR2004
        identifiers = match[4].split(".") if match[4] else []
        return cls(
            (int(match[1]), int(match[2]), int(match[3])),
            not identifiers,
            tuple((0, int(one), "") if one.isdigit() else (1, 0, one) for one in identifiers),
        )


_IDENTIFIER: Final = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION: Final = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    rf"(?:-({_IDENTIFIER}(?:\.{_IDENTIFIER})*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)


class Url(Record):
    """An address of the web that has scheme, host, port and path at most."""

    parts: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> Url:
        """Read an address.

        Raises:
            NotUnderstood: it has more parts, or is none.
        """
        match = _URL.fullmatch(text)
        if match is None:
            raise NotUnderstood(f"the URL {text!r}")
        return cls(match.groupdict(""))


_URL: Final = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>(?P<name>[A-Za-z0-9.-]+)(?::(?P<port>[0-9]{1,5}))?)(?P<path>/[\w./~-]*)?",
    re.ASCII,
)


class Optional(Record):
    """A value or none."""

    has_value: bool = False
    value: object = None


class Domains(dict[str, Any]):
    """Attributes or capacities by domain; a domain that is not there is an empty map."""


_TYPES: Final[Mapping[type, str]] = {
    type(None): "null_type",
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    dict: "map",
    Domains: "map",
    Optional: "optional_type",
    Quantity: QUANTITY.name,
    Semver: "kubernetes.Semver",
    Type: "type",
    ipaddress.IPv4Address: "net.IP",
    ipaddress.IPv6Address: "net.IP",
    ipaddress.IPv4Interface: "net.CIDR",
    ipaddress.IPv6Interface: "net.CIDR",
    Url: "kubernetes.URL",
}
# The types that an expression may name.
TYPE_NAMES: Final[Mapping[str, Type]] = {
    name: Type(name, (DYN,) * parameters)
    for name, parameters in dict.fromkeys([*list(_TYPES.values())[:7], "dyn", "type"], 0).items()
} | {"list": Type("list", (DYN,)), "map": Type("map", (DYN, DYN))}


def type_of(value: object) -> Type:
    """Return the type of a value, which is a value too; what it contains is not looked at."""
    return Type(_TYPES[type(value)])


def is_assignable(wanted: Type, given: Type, bound: dict[str, Type]) -> bool:
    """Return whether a value of a type may be where another is wanted; `bound` gets what A and B are."""
    if DYN in (wanted, given):
        if wanted.name in _ANY:
            bound[wanted.name] = DYN
        return True
    if wanted.name in _ANY:
        known = bound.get(wanted.name, given)
        bound[wanted.name] = more_general(known, given)
        return is_assignable(known, given, {})
    names = {wanted.name, given.name}
    if "null_type" in names:
        return len(names) == 1 or not names.isdisjoint(_NULLABLE)
    return len(names) == 1 and all(
        is_assignable(one, other, bound) for one, other in zip(wanted.parameters, given.parameters, strict=False)
    )


def more_general(one: Type, other: Type) -> Type:
    """Return the type that values of both types have."""
    if one.name != other.name:
        return DYN if DYN in (one, other) else other if one.name == "null_type" else one
    return Type(one.name, tuple(map(more_general, one.parameters, other.parameters)))


def fits(parameters: Sequence[Type], values: Sequence[object]) -> bool:
    """Return whether an overload takes these values; what lists and maps contain is not looked at."""
    return all(
        one.name in _ANY or one.name == _TYPES[type(value)] for one, value in zip(parameters, values, strict=True)
    )


def equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal; values of different types are not, numbers apart.

    Raises:
        EvaluationError: a quantity, version or address is compared with something else.
    """
    kind, kind_of_other = _TYPES[type(one)], _TYPES[type(other)]
    if kind != kind_of_other:
        if "." in kind:
            raise EvaluationError("no such overload")
        return {kind, kind_of_other}.issubset(_NUMBERS) and bool(one == other)
    if kind == "list":
        return len(one) == len(other) and all(map(equal, one, other))
    if kind == "map":
        return len(one) == len(other) and all(key in other and equal(one[key], other[key]) for key in one)
    if kind == "optional_type":
        return one.has_value == other.has_value and equal(one.value, other.value)
    return bool(one == other)


def _are_equal(one: object, other: object) -> bool:
    try:
        return equal(one, other)
    except EvaluationError:
        return False


def _contains(elements: Any, wanted: object) -> bool:
    return any(_are_equal(one, wanted) for one in elements)


def _contains_all(elements: Any, wanted: Any) -> bool:
    return all(_contains(elements, one) for one in wanted)


def _contains_any(elements: Any, wanted: Any) -> bool:
    return any(_contains(elements, one) for one in wanted)


def _contain_each_other(one: Any, other: Any) -> bool:
    return _contains_all(one, other) and _contains_all(other, one)


def _compare(one: Any, other: Any) -> int:
    if type(one) is not type(other) or _TYPES[type(one)] not in _ORDERED:
        raise EvaluationError("no such overload")
    return int(one > other) - int(one < other)


def _integer(value: int, like: int = 0) -> int:
    """Return a result of arithmetic as an integer of the type of another."""
    if isinstance(like, Uint):
        if not 0 <= value < 2**64:
            raise EvaluationError("unsigned integer overflow")
        return Uint(value)
    if not -(2**63) <= value < 2**63:
        raise EvaluationError("integer overflow")
    return int(value)


def _arithmetic(calculate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return an operator of two numbers of one type."""

    def call(one: Any, other: Any) -> Any:
        found = calculate(one, other)
        return found if isinstance(one, float) else _integer(found, one)

    return call


def _quotient(one: Any, other: Any) -> Any:
    if isinstance(one, float):
        if other:
            return one / other
        return math.nan if one == 0 or math.isnan(one) else math.copysign(math.inf, one) * math.copysign(1, other)
    if other == 0:
        raise EvaluationError("division by zero")
    return abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)


def _remainder(one: int, other: int) -> int:
    if other == 0:
        raise EvaluationError("modulus by zero")
    return abs(one) % abs(other) * (-1 if one < 0 else 1)


_MOST_ELEMENTS: Final = 10_000
_LARGEST: Final = 100 * _MOST_ELEMENTS


def _joined(one: Any, other: Any) -> Any:
    if len(one) + len(other) > _LARGEST:
        raise NotUnderstood("a value of a million elements")
    return one + other


def _to_integer(like: int) -> Callable[[Any], int]:
    """Return the conversion to an integer of the type of another."""
    name, sign, below, above = "int", "[+-]?", -(2.0**63), 2.0**63
    if isinstance(like, Uint):
        name, sign, below, above = "uint", "", math.nextafter(0.0, -1.0), 2.0**64

    def call(value: Any) -> int:
        if isinstance(value, float) and not below < value < above:
            raise EvaluationError("integer overflow")
        if isinstance(value, str) and not re.fullmatch(sign + "[0-9]{1,20}", value):
            raise EvaluationError(f"type conversion error from 'string' to '{name}': {value!r}")
        return _integer(int(value), like)

    return call


def _to_double(value: Any) -> float:
    if isinstance(value, str) and not re.fullmatch(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", value):
        raise NotUnderstood(f"double({value!r})")
    return float(value)


def _to_bool(value: str) -> bool:
    if value not in GO_BOOLEANS:
        raise EvaluationError(f"type conversion error from 'string' to 'bool': {value!r}")
    return GO_BOOLEANS[value]


def _to_string(value: object) -> str:
    if isinstance(value, float):
        raise NotUnderstood("string() of a double")
    if not isinstance(value, bytes):
        return str(value).lower() if isinstance(value, bool) else str(value)
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from error


def _quantity(text: str) -> Quantity:
    try:
        return Quantity(parse_quantity(text, most=10**40))
    except InputError as error:
        raise EvaluationError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ) from error


def _as_integer(quantity: Quantity) -> int:
    if quantity.amount % 10**9 or abs(quantity.amount) >= 2**63 * 10**9:
        raise EvaluationError("cannot convert value to integer")
    return quantity.amount // 10**9


def _succeeds(call: Callable[..., object]) -> Callable[..., bool]:
    def test(*arguments: object) -> bool:
        try:
            call(*arguments)
        except EvaluationError:
            return False
        return True

    return test


def _address(text: str) -> Any:
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise EvaluationError(f"IP Address {text!r} parse error during conversion from string") from error
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address.scope_id):
        raise EvaluationError(f"IP Address {text!r} has a form that is not allowed")
    return address


def _network(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    address, _, length = value.partition("/")
    most = _address(address).max_prefixlen
    if not re.fullmatch("[0-9]{1,3}", length) or int(length) > most:
        raise EvaluationError(f"network address parse error during conversion from string: {value!r}")
    return ipaddress.ip_interface(value)


def _contains_network(outer: Any, inner: Any) -> bool:
    network = _network(inner).network
    return bool(network.version == outer.version and network.subnet_of(outer.network))


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


# The most steps that matching may take: some tenths of a second.
_MOST_EFFORT: Final = 10_000_000


@lru_cache(maxsize=256)
def _pattern(pattern: str) -> re.Pattern[str]:
    # RE2's $ is the end of the text, Python's also matches before a last newline; \d, \w and \s are ASCII there
    return re.compile(re.sub(r"(?<!\\)((?:\\\\)*)\$", r"\1\\Z", pattern), re.ASCII)


def _found(text: str, pattern: str, limit: int = -1) -> list[str]:
    """Return what a pattern matches in a text, whose matching must be bounded.

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
    return [match[0] for match in islice(_pattern(pattern).finditer(text), None if limit < 0 else limit)]


def _within(text: str, *places: int) -> None:
    for place in places:
        if not 0 <= place <= len(text):
            raise EvaluationError(f"index out of range: {place}")


def _character(text: str, place: int) -> str:
    _within(text, place)
    return text[place : place + 1]


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    _within(text, start, end)
    if end < start:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    return text[start:end]


def _index_in_text(text: str, part: str, start: int = 0) -> int:
    if not part or not start:
        return text.find(part) if part else start
    if not 0 <= start < len(text):
        raise EvaluationError(f"index out of range: {start}")
    return text.find(part, start)


def _last_index_in_text(text: str, part: str, start: int | None = None) -> int:
    if start is None:
        return text.rfind(part)
    _within(text, start)
    return text.rfind(part, 0, start + len(part))


def _replaced(text: str, old: str, new: str, count: int = -1) -> str:
    if (len(text) + 1) * len(new) > _LARGEST and text.count(old) * len(new) > _LARGEST:
        raise NotUnderstood("a value of a million elements")
    return text.replace(old, new, count)


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count in (0, 1):
        return [text] if count else []
    if separator:
        return text.split(separator, count - 1 if count > 0 else -1)
    letters = list(text)
    return letters if count < 0 or len(letters) <= count else [*letters[: count - 1], "".join(letters[count - 1 :])]


def _join(parts: list[Any], separator: str = "") -> str:
    if not all(isinstance(part, str) for part in parts):
        raise EvaluationError("join: invalid input")
    return separator.join(parts)


_SPACES: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


def _cased(change: Callable[[str], str]) -> Callable[[str], str]:
    """Return what changes the case of letters of ASCII only."""
    return lambda text: re.sub("[A-Za-z]+", lambda match: change(match[0]), text)


def _index_in_list(elements: Sequence[object], wanted: object) -> int:
    return next((place for place, one in enumerate(elements) if _are_equal(one, wanted)), -1)


def _last_index_in_list(elements: Sequence[object], wanted: object) -> int:
    place = _index_in_list(elements[::-1], wanted)
    return place if place < 0 else len(elements) - 1 - place


def _extreme(choose: Callable[..., object]) -> Callable[[list[Any]], object]:
    def call(elements: list[Any]) -> object:
        if not elements:
            raise EvaluationError(f"{choose.__name__} called on empty list")
        return choose(elements, key=cmp_to_key(_compare))

    return call


def _sum(elements: list[Any]) -> object:
    if any(_TYPES[type(one)] not in _NUMBERS for one in elements):
        raise EvaluationError("no such overload")
    total = sum(elements)
    return total if not elements or isinstance(elements[0], float) else _integer(total, elements[0])


def _slice(elements: list[object], start: int, end: int) -> list[object]:
    if not 0 <= start <= end <= len(elements):
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
    return [one for place, one in enumerate(elements) if not _contains(elements[:place], one)]


def _range(count: int) -> list[int]:
    if count > _MOST_ELEMENTS:
        raise NotUnderstood(f"a list of {count} elements")
    return list(range(count))


def _value_of(optional: Optional) -> object:
    if not optional.has_value:
        raise EvaluationError("optional.none() dereference")
    return optional.value


_Cost: TypeAlias = Callable[..., int]


def size_of(value: object) -> int:
    """Return the size that a value counts with in costs."""
    if isinstance(value, Optional):
        return size_of(value.value) if value.has_value else 1
    return len(value) if isinstance(value, str | bytes | list | dict) else 1


def _one(*_: object) -> int:
    return 1


def _walk(text: object, *_: object) -> int:
    return -(-size_of(text) // 10)


def _walk_twice(text: object, *_: object) -> int:
    return -(-size_of(text) // 5)


def _walk_argument(_: object, text: object, *__: object) -> int:
    return _walk(text)


def _walk_both(one: Any, other: Any, _: object) -> int:
    return -(-(size_of(one) + size_of(other)) // 10) if isinstance(one, str | bytes) else 1


def _walk_shorter(one: object, other: object, _: object) -> int:
    return 1 if "." in _TYPES[type(one)] else -(-min(size_of(one), size_of(other)) // 10)


def _walk_pattern(text: Any, pattern: Any, *_: object) -> int:
    return -(-(1 + len(text)) // 10) * -(-len(pattern) // 4)


def _walk_elements(elements: Any, *_: object) -> int:
    if isinstance(elements, str):
        return _walk(elements)
    return sum(max(1, _walk(one)) if isinstance(one, str | bytes) else 1 for one in elements)


def _squared(elements: Any, *_: object) -> int:
    return len(elements) ** 2


def _pairs(one: Any, other: Any, _: object) -> int:
    return len(one) * len(other) + 1


class Overload(NamedTuple):
    """One way to call a function.

    Attributes:
        parameters: a method's target is the first.
        cost: of the arguments and the result.
    """

    parameters: tuple[Type, ...]
    result: Type
    call: Callable[..., Any]
    cost: _Cost


_Row: TypeAlias = tuple[str, str, str, Callable[..., Any], _Cost]


def _types(text: str) -> tuple[Type, ...]:
    return tuple(
        Type(_FULL_NAMES.get(name, name), _types(inner))
        for name, inner in re.findall(r"(\w+)(?:\(((?:[^()]|\([^()]*\))*)\))?", text)
    )


def _declared(*rows: _Row) -> dict[str, tuple[Overload, ...]]:
    """Return overloads by name.

    Args:
        rows: names (of methods, with a dot), types of the arguments (a last one with ? may be left out), type of the
            result, the function, its cost. A letter is each of its types in turn.
    """
    found: dict[str, list[Overload]] = {}
    for names, parameters, result, call, cost in rows:
        letters = sorted(_VARIABLES.keys() & set(re.findall(r"\b[A-Z]\b", parameters)))
        for kinds in product(*(_VARIABLES[letter] for letter in letters)):
            concrete = dict(zip(letters, kinds, strict=True))
            wanted, (given,) = (
                _types(re.sub(r"\b[A-Z]\b", lambda letter: concrete.get(letter[0], letter[0]), text))  # noqa: B023
                for text in (parameters, result)
            )
            forms = (wanted[:-1], wanted) if parameters.endswith("?") else (wanted,)
            for name in names.split():
                found.setdefault(name, []).extend(Overload(form, given, call, cost) for form in forms)
    return {name: tuple(overloads) for name, overloads in found.items()}


# The overloads of each function, of methods with a dot before the name, operators by CEL's names for them.
FUNCTIONS: Final = _declared(
    ("_==_", "A, A", "bool", equal, _walk_shorter),
    ("_!=_", "A, A", "bool", lambda one, other: not equal(one, other), _walk_shorter),
    *(
        row
        for name, test in (("_<_", operator.lt), ("_<=_", operator.le), ("_>_", operator.gt), ("_>=_", operator.ge))
        for row in ((name, "N, M", "bool", test, _one), (name, "L, L", "bool", test, _walk_shorter))
    ),
    ("_+_", "N, N", "N", _arithmetic(operator.add), _one),
    ("_-_", "N, N", "N", _arithmetic(operator.sub), _one),
    ("_*_", "N, N", "N", _arithmetic(operator.mul), _one),
    ("_/_", "N, N", "N", _arithmetic(_quotient), _one),
    ("_%_", "I, I", "I", _arithmetic(_remainder), _one),
    ("_+_", "T, T", "T", _joined, _walk_both),
    ("_+_", "list(A), list(A)", "list(A)", _joined, _one),
    ("-_", "int", "int", lambda one: _integer(-one), _one),
    ("-_", "double", "double", operator.neg, _one),
    ("!_", "bool", "bool", operator.not_, _one),
    ("@in", "A, list(A)", "bool", lambda one, some: _contains(some, one), lambda _, some, *__: len(some)),
    ("@in", "A, map(A, B)", "bool", lambda key, entries: isinstance(key, str | int | float) and key in entries, _one),
    ("size .size", "S", "int", len, _one),
    ("type", "A", "type(A)", type_of, _one),
    ("dyn", "A", "dyn", lambda one: one, lambda *_: 0),
    ("int", "C", "int", _to_integer(0), _one),
    ("uint", "C", "uint", _to_integer(Uint()), _one),
    ("double", "C", "double", _to_double, _one),
    ("bool", "bool", "bool", bool, _one),
    ("bool", "string", "bool", _to_bool, _one),
    ("bytes", "bytes", "bytes", bytes, _one),
    ("bytes", "string", "bytes", str.encode, _walk),
    ("string", "bytes", "string", _to_string, _walk),
    *(("string", kind, "string", _to_string, _one) for kind in ("C", "bool", "IP", "CIDR")),
    # strings
    ("matches .matches", "string, string", "bool", lambda text, pattern: bool(_found(text, pattern, 1)), _walk_pattern),
    (".find", "string, string", "string", lambda text, pattern: "".join(_found(text, pattern, 1)), _walk_pattern),
    (".findAll", "string, string, int?", "list(string)", _found, _walk_pattern),
    (".contains", "string, string", "bool", operator.contains, lambda one, part, _: _walk(one) * _walk(part)),
    (".startsWith", "string, string", "bool", str.startswith, _walk_argument),
    (".endsWith", "string, string", "bool", str.endswith, _walk_argument),
    (".lowerAscii", "string", "string", _cased(str.lower), _walk),
    (".upperAscii", "string", "string", _cased(str.upper), _walk),
    (".charAt", "string, int", "string", _character, _one),
    (".indexOf", "string, string, int?", "int", _index_in_text, _walk),
    (".lastIndexOf", "string, string, int?", "int", _last_index_in_text, _walk),
    (".join", "list(string), string?", "string", _join, lambda *parts: _walk_twice(parts[-1])),
    (".replace", "string, string, string, int?", "string", _replaced, _walk_twice),
    (".split", "string, string, int?", "list(string)", _split, _walk_twice),
    (".substring", "string, int, int?", "string", _substring, _walk),
    (".trim", "string", "string", lambda text: text.strip(_SPACES), _walk),
    # lists and sets
    (".indexOf", "list(A), A", "int", _index_in_list, _walk_elements),
    (".lastIndexOf", "list(A), A", "int", _last_index_in_list, _walk_elements),
    (".slice", "list(A), int, int", "list(A)", _slice, _one),
    (".flatten", "list(list(A))", "list(A)", _flat, _walk_elements),
    (".flatten", "list(dyn), int", "list(dyn)", _flat, _walk_elements),
    (".distinct", "list(A)", "list(A)", _distinct, _squared),
    (".reverse", "list(A)", "list(A)", lambda elements: elements[::-1], _walk_elements),
    (".isSorted", "list(O)", "bool", lambda them: all(_compare(*pair) <= 0 for pair in pairwise(them)), _walk_elements),
    (".sort", "list(O)", "list(O)", lambda elements: sorted(elements, key=cmp_to_key(_compare)), _squared),
    (".min", "list(O)", "O", _extreme(min), _walk_elements),
    (".max", "list(O)", "O", _extreme(max), _walk_elements),
    (".sum", "list(N)", "N", _sum, _walk_elements),
    ("lists.range", "int", "list(int)", _range, lambda count, _: max(count, 0) + 1),
    (".includes", "list(dyn), dyn", "bool", _contains, lambda elements, *_: len(elements)),
    (".includes", "dyn, dyn", "bool", equal, _one),
    ("sets.contains", "list(A), list(A)", "bool", _contains_all, _pairs),
    ("sets.intersects", "list(A), list(A)", "bool", _contains_any, _pairs),
    ("sets.equivalent", "list(A), list(A)", "bool", _contain_each_other, lambda *lists: 2 * _pairs(*lists) - 1),
    # optional values
    ("optional.none", "", "optional(dyn)", Optional, _one),
    ("optional.of", "A", "optional(A)", lambda one: Optional(has_value=True, value=one), _one),
    ("optional.ofNonZeroValue", "A", "optional(A)", lambda one: Optional(bool(one), one or None), _one),
    (".hasValue", "optional(A)", "bool", lambda one: one.has_value, _one),
    (".value", "optional(A)", "A", _value_of, _one),
    # quantities and versions
    ("quantity", "string", "Quantity", _quantity, _walk),
    ("isQuantity", "string", "bool", _succeeds(_quantity), _walk),
    ("sign", "Quantity", "int", lambda one: (one.amount > 0) - (one.amount < 0), _one),
    (".asApproximateFloat", "Quantity", "double", lambda one: one.amount / 10**9, _one),
    (".asInteger", "Quantity", "int", _as_integer, _one),
    (".isInteger", "Quantity", "bool", _succeeds(_as_integer), _one),
    (".add", "Quantity, Quantity", "Quantity", lambda one, other: Quantity(one.amount + other.amount), _one),
    (".add", "Quantity, int", "Quantity", lambda one, other: Quantity(one.amount + other * 10**9), _one),
    (".sub", "Quantity, Quantity", "Quantity", lambda one, other: Quantity(one.amount - other.amount), _one),
    (".sub", "Quantity, int", "Quantity", lambda one, other: Quantity(one.amount - other * 10**9), _one),
    ("semver", "string, bool?", "Semver", Semver.parse, _walk),
    ("isSemver", "string, bool?", "bool", _succeeds(Semver.parse), _walk),
    (".major", "Semver", "int", lambda one: one.numbers[0], _one),
    (".minor", "Semver", "int", lambda one: one.numbers[1], _one),
    (".patch", "Semver", "int", lambda one: one.numbers[2], _one),
    (".isGreaterThan", "V, V", "bool", operator.gt, _one),
    (".isLessThan", "V, V", "bool", operator.lt, _one),
    (".compareTo", "V, V", "int", lambda one, other: int(one > other) - int(one < other), _one),
    # addresses
    ("ip", "string", "IP", _address, _walk),
    ("isIP", "string", "bool", _succeeds(_address), _walk),
    (".family", "IP", "int", lambda one: one.version, _one),
    (".isUnspecified", "IP", "bool", lambda one: one.is_unspecified, _one),
    (".isLoopback", "IP", "bool", lambda one: one.is_loopback, _one),
    ("cidr", "string", "CIDR", _network, _walk),
    ("isCIDR", "string", "bool", _succeeds(_network), _walk),
    (".containsIP", "CIDR, string", "bool", lambda outer, inner: _address(inner) in outer.network, _one),
    (".containsIP", "CIDR, IP", "bool", lambda outer, inner: inner in outer.network, _one),
    (".containsCIDR", "CIDR, string", "bool", _contains_network, _one),
    (".containsCIDR", "CIDR, CIDR", "bool", _contains_network, _one),
    (".ip", "CIDR", "IP", lambda one: one.ip, _one),
    (".prefixLength", "CIDR", "int", lambda one: one.network.prefixlen, _one),
    (".masked", "CIDR", "CIDR", lambda one: ipaddress.ip_interface(one.network), _one),
    ("url", "string", "URL", Url.parse, _walk),
    (".getScheme", "URL", "string", lambda url: url.parts["scheme"], _one),
    (".getHost", "URL", "string", lambda url: url.parts["host"], _one),
    (".getHostname", "URL", "string", lambda url: url.parts["name"], _one),
    (".getPort", "URL", "string", lambda url: url.parts["port"], _one),
    (".getEscapedPath", "URL", "string", lambda url: url.parts["path"], _one),
)

# Functions that the API server has and that are not modelled here; those of `format.` too.
NOT_UNDERSTOOD: Final = frozenset(
    """
    isURL getQuery validate format quote strings.quote
    timestamp duration getFullYear getMonth getDate getDayOfMonth getDayOfWeek getDayOfYear getHours getMinutes
    getSeconds getMilliseconds sortBy sortByAssociatedKeys isLinkLocalMulticast isLinkLocalUnicast isGlobalUnicast
    ip.isCanonical optional.unwrap unwrapOpt first last authorizer path group serviceAccount resource subresource
    namespace name check allowed reason error errored fieldSelector labelSelector cel.block cel.index
    jsonpatch.escapeKey
    """.split()  # noqa: SIM905  # so many names read better without quotes
)
