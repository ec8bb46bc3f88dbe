"""The values of CEL in Python, their types, and what of them is equal, in order, and of which size.

`int`, `Uint`, `float`, `bool`, `str`, `bytes`, None, `list` and `dict` are what CEL calls int,
uint, double, bool, string, bytes, null, list and map; the others are here. Sources: the
specification of CEL, cel-go's `common/types`, and the types of `k8s.io/apiserver/pkg/cel`.
"""

from __future__ import annotations

import ipaddress
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from alignup.claims.selectors.syntax import Uint
from alignup.records import Record


class EvaluationError(Exception):
    """An error while an expression is evaluated; it is a value too, which `&&` and `||` may absorb.

    Attributes:
        cost: what the evaluation that it ended had cost.
    """

    cost: int = 0


class StoppedError(Exception):
    """The evaluation ends with an error that no operator absorbs: its cost is above the limit, or cel-go panics.

    Attributes:
        cost: what the evaluation had cost.
    """

    cost: int = 0


class Type(NamedTuple):
    """A type of CEL; a name of one letter in a declaration, or that begins with a tilde, is any type."""

    name: str
    parameters: tuple[Type, ...] = ()

    def __str__(self) -> str:
        return (
            f"{self.name}({', '.join(map(str, self.parameters))})" if self.parameters else self.name
        )

    @property
    def is_variable(self) -> bool:
        """Whether it stands for a type that is found by unification."""
        return len(self.name) == 1 or self.name[0] == "~"


DYN: Final = Type("dyn")
BOOL: Final = Type("bool")
INT: Final = Type("int")
QUANTITY: Final = Type("kubernetes.Quantity")
NUMBERS: Final = ("int", "uint", "double")


class Optional(Record):
    """A value or none."""

    has_value: bool = False
    value: Any = None


NONE: Final = Optional()
# What is not in a list or a map, where none is a value.
ABSENT: Final = object()


class Domains(dict[str, Any]):
    """Attributes or capacities by domain; a domain that is not there is an empty map."""


class Growing(list[Any]):
    """A list that a macro is making; it grows in place, and nothing else has it."""


class GrowingMap(dict[Any, Any]):
    """A map of that kind."""


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """A quantity as apimachinery's `resource.Quantity` holds it.

    Attributes:
        amount: in billionths of the unit.
        value: the number that is written, where it is held in 64 bits; None: it is held as a
            decimal number of any length, of which there is no integer to be had.
        scale: the power of ten that either is of.
        is_result: of a calculation, to which cel-go finds nothing equal but on its left.
    """

    amount: int
    value: int | None = field(default=None, compare=False)
    scale: int = field(default=0, compare=False)
    is_result: bool = field(default=False, compare=False)


class Semver(NamedTuple):
    """A semantic version, in the order of semver.org, 11; build metadata does not count."""

    numbers: tuple[int, int, int]
    is_final: bool = True
    prerelease: tuple[tuple[int, int, str], ...] = ()


class Duration(NamedTuple):
    """A number of nanoseconds."""

    nanoseconds: int


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A moment, in nanoseconds since 1970, and the seconds of the zone east of UTC that it is written in."""

    nanoseconds: int
    offset: int = field(default=0, compare=False)


class Url(Record):
    """An address of the web, in the parts that Go's `net/url` takes it apart into.

    Attributes:
        path: escaped.
        whole: what URLs that are equal have in common.
    """

    scheme: str
    host: str
    hostname: str
    port: str
    path: str
    query: str
    whole: tuple[str, ...]


class Format(Record):
    """A form that text may have.

    Attributes:
        pattern_size: of the regular expression, as it counts in costs.
    """

    name: str
    pattern_size: int


_TYPES: Final[Mapping[type, str]] = {
    type(None): "null_type",
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    Growing: "list",
    dict: "map",
    GrowingMap: "map",
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
    Format: "kubernetes.NamedFormat",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
}
_ORDERED: Final = (str, bytes, bool, Duration, Timestamp)
NETWORKS: Final = (ipaddress.IPv4Interface, ipaddress.IPv6Interface)
ADDRESSES: Final = (ipaddress.IPv4Address, ipaddress.IPv6Address)


def kind_of(value: object) -> str:
    """Return the name of the type of a value."""
    return _TYPES[type(value)]


def no_overload() -> EvaluationError:
    """Return the error of a function that does not take such values."""
    return EvaluationError("no such overload")


def fits(wanted: Type, value: Any) -> bool:
    """Return whether a parameter takes a value; of lists and maps the first element is looked at, as cel-go does."""
    if wanted == DYN or wanted.is_variable:
        return True
    if wanted.name != kind_of(value):
        return False
    if not value or not wanted.parameters or not isinstance(value, list | dict):
        return True
    first = next(iter(value))
    inner = wanted.parameters
    return fits(inner[0], first) and (isinstance(value, list) or fits(inner[1], value[first]))


def equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal; values of different types are not, numbers apart.

    Raises:
        EvaluationError: a quantity, version, address or format is compared with something else.
    """
    if one is None or other is None:
        return one is other

    kind, kind_of_other = kind_of(one), kind_of(other)
    if kind != kind_of_other:
        if kind.startswith(("kubernetes.", "net.")):
            raise no_overload()
        return kind in NUMBERS and kind_of_other in NUMBERS and _difference(one, other) == 0

    if kind == "list":
        return len(one) == len(other) and all(map(_may_equal, one, other))
    if kind == "map":
        return len(one) == len(other) and all(
            (there := entry(other, key)) is not ABSENT and _may_equal(one[key], there)
            for key in one
        )

    if kind == "optional_type":
        return one.has_value == other.has_value and (
            not one.has_value or equal(one.value, other.value)
        )

    if kind == QUANTITY.name and other.is_result:
        raise no_overload()

    return bool(one == other)


def _may_equal(one: object, other: object) -> bool:
    try:
        return equal(one, other)
    except EvaluationError:
        return True


def are_equal(one: object, other: object) -> bool:
    """Return whether two values are equal; an error means that they are not."""
    try:
        return equal(one, other)
    except EvaluationError:
        return False


def compare(one: Any, other: Any) -> int:
    """Return how two values are in order: below zero, zero, or above.

    Raises:
        EvaluationError: they are in none.
    """
    if kind_of(one) in NUMBERS and kind_of(other) in NUMBERS:
        if math.isnan(one) or math.isnan(other):
            raise EvaluationError("NaN values cannot be ordered")
        return int(_difference(one, other))
    if type(one) is not type(other) or not isinstance(one, _ORDERED):
        raise no_overload()
    return int(one > other) - int(one < other)


def _difference(one: Any, other: Any) -> float:
    """Return how two numbers are in order, beside a double as doubles; what is not a number is in none."""
    if isinstance(one, float) != isinstance(other, float):
        one, other = float(one), float(other)
    return math.nan if math.isnan(one) or math.isnan(other) else (one > other) - (one < other)


def entry(value: Any, key: Any) -> Any:
    """Return what a map has by a key, whose type counts, since true is no number; else `ABSENT`."""
    if not value or not isinstance(key, str | int | float):
        return ABSENT
    is_of_type = isinstance(key, str) or isinstance(key, bool) == isinstance(
        next(iter(value)), bool
    )
    return value.get(key, ABSENT) if is_of_type else ABSENT


def element(value: Any, key: Any) -> Any:
    """Return an element of a list, or what a map has by a key, else `ABSENT`.

    Raises:
        EvaluationError: it has no elements, or they have no such keys.
    """
    if not isinstance(key, str | int | float):
        raise EvaluationError(f"invalid qualifier type: {kind_of(key)}")
    if isinstance(value, dict):
        found = entry(value, key)
        return {} if found is ABSENT and isinstance(value, Domains) else found
    if not isinstance(value, list):
        return ABSENT
    if isinstance(key, str | bool):
        raise EvaluationError(f"unsupported index type '{kind_of(key)}' in list")
    if key != key // 1 or not -(2**63) <= key < 2**63:
        raise EvaluationError(f"unsupported index value {key} in list")

    return value[int(key)] if 0 <= key < len(value) else ABSENT


def size_of(value: Any) -> int:
    """Return the size that a value counts with in costs."""
    if isinstance(value, NETWORKS):
        return -(-value.network.prefixlen // 8)
    if isinstance(value, ADDRESSES):
        return value.max_prefixlen // 8
    return len(value) if isinstance(value, str | bytes | list | dict) else 1


def walked(size: float) -> int:
    """Return what it costs to walk through a text of a size, in the floating point that cel-go counts in."""
    return math.ceil(size * 0.1)


def first_of(values: Sequence[object]) -> Optional:
    """Return the first of values, if there is one."""
    return Optional(has_value=True, value=values[0]) if values else NONE


def moment_at(nanoseconds: int, offset: int = 0) -> Timestamp:
    """Return a moment.

    Raises:
        EvaluationError: it is not in the years 1 to 9999.
    """
    if not -62135596800 <= nanoseconds // 10**9 <= 253402300799:  # noqa: PLR2004  # in seconds since 1970
        raise EvaluationError("timestamp overflow")
    return Timestamp(nanoseconds, offset)


@cache
def environment() -> Mapping[str, Any]:
    """Return the table of the functions that the API server declares."""
    table: Mapping[str, Any] = json.loads(
        files(__package__).joinpath("environment.json").read_text()
    )
    return table
