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
    """The evaluation ends with an error that no operator absorbs.

    Its cost is above the limit, or cel-go panics.

    Attributes:
        cost: what the evaluation had cost.
    """

    cost: int = 0


class Type(NamedTuple):
    """A type of CEL.

    A name of one letter in a declaration, or one that begins with a tilde, is any type.
    """

    name: str
    parameters: tuple[Type, ...] = ()

    def __str__(self) -> str:
        if not self.parameters:
            return self.name

        return f"{self.name}({', '.join(map(str, self.parameters))})"

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
# An attribute of which the scheduler knows that it is there, and not what it says.
UNREADABLE: Final = object()


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
    """A moment, in nanoseconds since 1970.

    Attributes:
        offset: of the zone that it is written in, in seconds east of UTC.
    """

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


def fits(parameter: Type, value: Any) -> bool:
    """Return whether a parameter takes a value.

    Of lists and maps the first element is looked at, as cel-go does.
    """
    if parameter == DYN or parameter.is_variable:
        return True
    if parameter.name != kind_of(value):
        return False
    if not value or not parameter.parameters or not isinstance(value, list | dict):
        return True

    first = next(iter(value))
    inner = parameter.parameters
    if not fits(inner[0], first):
        return False

    return isinstance(value, list) or fits(inner[1], value[first])


def equal(left: Any, right: Any) -> bool:
    """Return whether two values are equal; values of different types are not, numbers apart.

    Raises:
        EvaluationError: a quantity, version, address or format is compared with something else.
    """
    if left is None or right is None:
        return left is right

    kind = kind_of(left)
    right_kind = kind_of(right)
    if kind != right_kind:
        if kind.startswith(("kubernetes.", "net.")):
            raise no_overload()

        return kind in NUMBERS and right_kind in NUMBERS and _difference(left, right) == 0

    if kind == "list":
        return len(left) == len(right) and all(map(_may_equal, left, right))
    if kind == "map":
        for key, part in left.items():
            if part is UNREADABLE:
                raise unreadable(key)

        return len(left) == len(right) and all(_is_entry(right, *item) for item in left.items())
    if kind == "optional_type":
        return left.has_value == right.has_value and (
            not left.has_value or equal(left.value, right.value)
        )

    if kind == QUANTITY.name and right.is_result:
        raise no_overload()

    return bool(left == right)


def _is_entry(entries: Any, key: object, value: object) -> bool:
    """Return whether a map has an entry, or one that cannot be compared with it."""
    entry_value = entry(entries, key)
    return entry_value is not ABSENT and _may_equal(value, entry_value)


def _may_equal(left: object, right: object) -> bool:
    try:
        return equal(left, right)
    except EvaluationError:
        return True


def are_equal(left: object, right: object) -> bool:
    """Return whether two values are equal; an error means that they are not."""
    try:
        return equal(left, right)
    except EvaluationError:
        return False


def compare(left: Any, right: Any) -> int:
    """Return how two values are in order: below zero, zero, or above.

    Raises:
        EvaluationError: they are in none.
    """
    if kind_of(left) in NUMBERS and kind_of(right) in NUMBERS:
        if math.isnan(left) or math.isnan(right):
            raise EvaluationError("NaN values cannot be ordered")

        return int(_difference(left, right))
    if type(left) is not type(right) or not isinstance(left, _ORDERED):
        raise no_overload()

    return int(left > right) - int(left < right)


def _difference(left: Any, right: Any) -> float:
    """Return how two numbers are in order, beside a double as doubles.

    What is not a number is in none.
    """
    if isinstance(left, float) != isinstance(right, float):
        left = float(left)
        right = float(right)
    if math.isnan(left) or math.isnan(right):
        return math.nan

    return int(left > right) - int(left < right)


def entry(value: Any, key: Any) -> Any:
    """Return what a map has by a key, whose type counts, since true is no number; else `ABSENT`."""
    if not value or not isinstance(key, str | int | float):
        return ABSENT

    if not isinstance(key, str):
        has_bool_keys = isinstance(next(iter(value)), bool)
        if isinstance(key, bool) != has_bool_keys:
            return ABSENT

    entry_value = value.get(key, ABSENT)
    return ABSENT if entry_value is UNREADABLE else entry_value


def unreadable(name: str) -> EvaluationError:
    """Return the error of an attribute that is there, and cannot be read."""
    problem = "value is invalid or its type is not supported by this version"
    return EvaluationError(f"attribute {name}: {problem}")


def element(value: Any, key: Any) -> Any:
    """Return an element of a list, or what a map has by a key, else `ABSENT`.

    Raises:
        EvaluationError: it has no elements, or they have no such keys, or it is unreadable.
    """
    if not isinstance(key, str | int | float):
        raise EvaluationError(f"invalid qualifier type: {kind_of(key)}")
    if isinstance(value, dict):
        if isinstance(key, str) and value.get(key) is UNREADABLE:
            raise unreadable(key)

        entry_value = entry(value, key)
        if entry_value is ABSENT and isinstance(value, Domains):
            return {}

        return entry_value
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
    if isinstance(value, str | bytes | list | dict):
        return len(value)

    return 1


def walked(size: float) -> int:
    """Return what it costs to walk through a text of a size, in cel-go's floating point."""
    return math.ceil(size * 0.1)


def first_of(values: Sequence[object]) -> Optional:
    """Return the first of values, if there is one."""
    return Optional(has_value=True, value=values[0]) if values else NONE


def moment_at(nanoseconds: int, offset: int = 0) -> Timestamp:
    """Return a moment.

    Raises:
        EvaluationError: it is not in the years 1 to 9999.
    """
    seconds = nanoseconds // 10**9
    if not -62135596800 <= seconds <= 253402300799:  # noqa: PLR2004  # since 1970
        raise EvaluationError("timestamp overflow")

    return Timestamp(nanoseconds, offset)


@cache
def environment() -> Mapping[str, Any]:
    """Return the table of the functions that the API server declares."""
    table: Mapping[str, Any] = json.loads(
        files(__package__).joinpath("environment.json").read_text()
    )
    return table
