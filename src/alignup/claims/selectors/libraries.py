"""What the functions do whose forms are those of Go or Kubernetes.

They are regular expressions, time, `format()`, quantities, versions, addresses, and named formats.

Each is called by its name in `environment.json`. Python's standard library is used where it agrees
with Go's: its `ipaddress` reads the same addresses, `datetime` has the same days; Go's durations,
times of RFC 3339, URLs and numbers have forms of their own, which are read here.
"""

from __future__ import annotations

import ipaddress
import math
import re
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from typing import Any, Final
from urllib.parse import quote as escaped
from urllib.parse import unquote_to_bytes
from zoneinfo import ZoneInfo

from alignup.claims.selectors import values as cel
from alignup.claims.selectors.syntax import NotUnderstood, Uint
from alignup.claims.selectors.values import (
    Duration,
    EvaluationError,
    Optional,
    Quantity,
    Timestamp,
    kind_of,
)
from alignup.text.digits import number_of

# What means the same to Python and whose matching is bounded: characters and classes, up to two of
# them repeated.
_PLAIN_PATTERN: Final = re.compile(
    r"\^?(?:(?:[\w /:@,;=_-]|\\[dws.\-+*?()\[\]{}|^$/\\]|\.|\[\^?[\w.:/ -]+\])"
    r"(?P<repeat>[+*])?\??)*\$?",
    re.ASCII,
)

# The first Python for which google-re2 has no wheel.
_NO_WHEEL: Final = (3, 15)

_SECOND: Final = 10**9

_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": _SECOND,
    "m": 60 * _SECOND,
}

_PIECE: Final = re.compile(r"(\d*)(?:(\.)(\d*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)

_MOMENT: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d?):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CLAUSE: Final = re.compile(r"%(?:%|(?P<precision>\.[0-9]+)?(?P<clause>[sdfebxXo]))|(?P<wrong>%)")
_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_MOST_DIGITS: Final = 10_000
_SHOWN: Final = 40
_SUPERSCRIPT: Final = str.maketrans("0123456789+-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻")

# no digits at all mean zero to apimachinery
_QUANTITY: Final = re.compile(
    r"(?=.)([+-]?)0*+([0-9]*)(?:\.([0-9]*))?(?:([KMGTPE])i|([numkMGTPE])|[eE]([+-]?[0-9]{1,4}))?",
    re.ASCII,
)

_INT64: Final = 2**63
_LARGEST: Final = (_INT64 - 1) * 10**9
# What Python makes a number of, in a time that does not matter.
_MOST_DIGITS_OF_QUANTITY: Final = 4_000
# Quantities are exact to billionths.
_SMALLEST_SCALE: Final = -9
_IDENTIFIER: Final = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"

_VERSION: Final = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    rf"(?:-({_IDENTIFIER}(?:\.{_IDENTIFIER})*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)

_URL: Final = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?([^?]*)(\?.*)?", re.DOTALL)
_HOST: Final = r"(?:[^\x00-\x20#%/?@\\^`{|}\x7f]|%25|%[89A-Fa-f][0-9A-Fa-f])*"
_BAD_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")
_USER: Final = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")


def succeeds(name: str, *arguments: object) -> bool:
    """Return whether a function of this module, named, takes values without an error."""
    call: Callable[..., object] = globals()[name]
    try:
        call(*arguments)
    except EvaluationError:
        return False

    return True


# regular expressions, which are RE2's


def _without_wheels() -> str:
    """Return words about the Python at hand, if there is no wheel of google-re2 for it."""
    major, minor = sys.version_info[:2]
    if (major, minor) < _NO_WHEEL:
        return ""
    return f", which has no wheel for Python {major}.{minor}: pip builds it with RE2 and Abseil"


@lru_cache(maxsize=256)
def pattern_of(pattern: str) -> Any:
    """Return a compiled regular expression.

    Raises:
        ValueError: it is none.
        NotUnderstood: it needs the library RE2, which is not installed.
    """
    try:
        import re2  # noqa: PLC0415  # an extra
    except ImportError as error:
        repeats = pattern.count("+") + pattern.count("*")
        if not _PLAIN_PATTERN.fullmatch(pattern) or repeats > 2:  # noqa: PLR2004
            raise NotUnderstood(
                f"the regular expression {pattern!r} without alignup[claims] (google-re2"
                f"{_without_wheels()})"
            ) from error

        return re.compile(re.sub(r"\$$", r"\\Z", pattern), re.ASCII)

    options = re2.Options()
    options.log_errors = False
    try:
        if re.search(r"(?<!\\)(?:\\\\)*\\C", pattern):
            raise ValueError("invalid escape sequence: `\\C`")

        return re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(f"{error}: {pattern!r}") from error


def _found_in(pattern: str, text: str) -> Iterator[str]:
    """Yield what a pattern matches; as in Go, nothing empty right behind a match."""
    try:
        compiled = pattern_of(pattern)
    except ValueError as error:
        raise EvaluationError(f"error parsing regexp: {error}") from error

    behind = -1  # the end of the match before
    for match in _searched(compiled, text):
        if match.end() != match.start() or match.start() != behind:
            yield match[0]

        behind = match.end()


def _searched(compiled: Any, text: str) -> Iterator[Any]:
    """Yield the matches from left to right, each searched for behind the one before.

    RE2's own iterator does that, and encodes the text once, where a search would do so each time.
    The iterator of `re` also yields what is not empty where something empty was matched.
    """
    if not isinstance(compiled, re.Pattern):
        yield from compiled.finditer(text)
        return

    start = 0
    while start <= len(text):
        match = compiled.search(text, start)
        if match is None:
            return

        yield match
        start = match.end() + (match.end() == match.start())


def matches(text: str, pattern: str) -> bool:
    """Return whether a regular expression matches anywhere in a text."""
    return any(True for _ in _found_in(pattern, text))


def find(text: str, pattern: str) -> str:
    """Return what a regular expression matches first; empty: nothing."""
    return next(_found_in(pattern, text), "")


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """Return what a regular expression matches, so often at most; below zero: always."""
    matched = _found_in(pattern, text)
    if limit < 0:
        return list(matched)

    return list(islice(matched, limit))


# numbers and time as text


def number_text(value: float) -> str:
    """Return a double as Go's `%g` writes it: the shortest digits.

    There is an exponent below -4 and from 6.
    """
    if not math.isfinite(value):
        return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")

    number = Decimal(repr(value)).normalize()
    _, digits, exponent = number.as_tuple()
    power = len(digits) - 1 + int(exponent)
    if not value or (-4 <= power < 21 and power < 6):  # noqa: PLR2004
        return f"{number:f}"

    text = f"{number:e}"
    if abs(power) >= 10:  # noqa: PLR2004  # else the exponent has one digit
        return text

    return re.sub(r"e([+-])", r"e\g<1>0", text)


def to_duration(text: str) -> Duration:
    """Return a duration in the form of Go's `time.ParseDuration`."""
    is_negative = text.startswith("-")
    unsigned = text[1:] if is_negative else text.removeprefix("+")
    total = 0
    at = 0
    while at < len(unsigned):
        match = _PIECE.match(unsigned, at)
        if match is None or not (match[1] or match[3]):
            break

        unit = _UNITS.get(match[4], 3600 * _SECOND)
        whole = number_of(match[1] or "0", 2**63)
        if whole is None:
            break

        total += whole * unit
        if match[3]:
            # digits that an int64 no longer holds are dropped, and the fraction is rounded as a
            # double
            digits = match[3][:18]
            total += int(float(int(digits)) * (float(unit) / float(10 ** len(digits))))

        at = match.end()

    if unsigned == "0":
        return Duration(0)

    is_too_long = total > 2**63 or (total == 2**63 and not is_negative)
    if not unsigned or at < len(unsigned) or is_too_long:
        raise EvaluationError("type conversion error from 'string' to 'google.protobuf.Duration'")

    return Duration(-total if is_negative else total)


def to_timestamp(value: Any) -> Timestamp:
    """Return a moment in the form of RFC 3339, as Go reads it, or in seconds since 1970."""
    if isinstance(value, int):
        return cel.moment_at(value * _SECOND)

    wrong = EvaluationError("type conversion error from 'string' to 'google.protobuf.Timestamp'")
    match = _MOMENT.fullmatch(value)
    if match is None:
        raise wrong

    zone_hours = int(match[9] or 0)
    zone_minutes = int(match[10] or 0)
    if zone_hours > 24 or zone_minutes > 60:  # noqa: PLR2004  # as Go compares them
        raise wrong

    offset = zone_hours * 3600 + zone_minutes * 60
    if match[8] == "-":
        offset = -offset

    try:
        year, month, day, hour, minute, second = map(int, match.groups()[:6])
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError as error:
        raise wrong from error

    seconds = (moment - _EPOCH) // timedelta(seconds=1) - offset
    nanoseconds = int((match[7] or "")[:9].ljust(9, "0"))
    return cel.moment_at(seconds * _SECOND + nanoseconds, offset)


def _duration_text(value: Duration) -> str:
    # in seconds, in the floating point of Go's `Seconds`
    whole, fraction = divmod(abs(value.nanoseconds), _SECOND)
    seconds = math.copysign(whole + fraction / _SECOND, value.nanoseconds or 1)
    return f"{Decimal(repr(seconds)).normalize():f}s"


def _moment_text(value: Timestamp) -> str:
    zone = "Z"
    if value.offset:
        direction = "-" if value.offset < 0 else "+"
        hours, minutes = divmod(abs(value.offset) // 60, 60)
        zone = f"{direction}{hours:02}:{minutes:02}"

    seconds, nanoseconds = divmod(value.nanoseconds, _SECOND)
    fraction = f".{nanoseconds:09}".rstrip("0").rstrip(".")
    try:
        moment = _EPOCH + timedelta(seconds=seconds + value.offset)
    except OverflowError as error:
        raise NotUnderstood("a time whose year in its zone is 0 or 10000") from error

    return f"{moment.replace(tzinfo=None).isoformat()}{fraction}{zone}"


def _local(moment: Timestamp, zone: str) -> datetime:
    """Return a moment in a zone, named or written as an offset.

    Raises:
        EvaluationError: there is no such zone.
    """
    match = re.fullmatch("([+-]?[0-9]+):([+-]?[0-9]+)", zone)
    try:
        at = _EPOCH + timedelta(microseconds=moment.nanoseconds // 1000)
        if match is not None:
            hours = int(match[1])
            minutes = int(match[2])
            if zone.startswith("-"):
                minutes = -minutes

            return at + timedelta(minutes=hours * 60 + minutes)

        return at if zone in ("", "UTC", "Local") else at.astimezone(ZoneInfo(zone))
    except (ValueError, OSError, OverflowError, LookupError) as error:
        raise EvaluationError(f"unknown time zone {zone}") from error


def moment_part(code: str, unit: str, first: str, moment: Timestamp, zone: str = "") -> int:
    """Return a part of a moment.

    Args:
        code: Python's for the part.
        unit: of the part, in which it is counted.
        first: the number that counts as zero.
        moment: the moment.
        zone: named or written as an offset.
    """
    return int(_local(moment, zone).strftime(code)) // int(unit) - int(first)


def duration_part(unit: str, value: Duration) -> int:
    """Return a duration in whole units of so many nanoseconds."""
    units = abs(value.nanoseconds) // int(unit)
    return -units if value.nanoseconds < 0 else units


def to_string(value: Any) -> str:
    """Return a value as text, numbers and times as Go writes them."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from error

    if isinstance(value, bool):
        return "true" if value else "false"

    writers: Mapping[type, Callable[[Any], str]] = {
        float: number_text,
        Duration: _duration_text,
        Timestamp: _moment_text,
        cel.Type: lambda kind: kind.name,
    }
    return writers.get(type(value), str)(value)


# format(): the clauses of cel-go's `ext/formatting.go`

_CONTROLS: Final = dict(
    zip('\a\b\f\n\r\t\v\\"', (f"\\{letter}" for letter in 'abfnrtv\\"'), strict=True)
)


def format_clauses(text: str) -> list[str]:
    """Return the clauses of a text that `format()` fills in.

    Raises:
        EvaluationError: it is malformed.
    """
    clauses = list(_CLAUSE.finditer(text))
    if any(clause["wrong"] for clause in clauses):
        raise EvaluationError("could not parse formatting clause")

    return [clause["clause"] for clause in clauses if clause["clause"]]


def takes(clause: str, kind: str) -> bool:
    """Return whether a clause of `format()` takes values of a type, named."""
    return kind in cel.environment()["clauses"][clause]


def format_text(text: str, values: list[Any]) -> str:
    """Return a text with values in place of its clauses."""
    if len(format_clauses(text)) > len(values):
        raise EvaluationError(f"index {len(values)} out of range")

    following = iter(values)
    return _CLAUSE.sub(
        lambda match: _filled_in(match, next(following)) if match["clause"] else "%", text
    )


def _filled_in(match: re.Match[str], value: Any) -> str:
    """Return a value as a clause writes it."""
    clause = match["clause"]
    is_number = clause in "fe"
    is_wrong_text = is_number and isinstance(value, str) and value not in _NOT_FINITE
    if is_wrong_text or not takes(clause, kind_of(value)):
        raise EvaluationError(
            f"error during formatting: clause {clause}, was given {kind_of(value)}"
        )

    digits = (match["precision"] or ".6")[1:]
    precision = number_of(digits, _MOST_DIGITS)
    if precision is None:
        raise NotUnderstood(f"a precision of {digits[:_SHOWN]}")
    if clause == "s":
        return _shown(value)
    if is_number:
        number = _NOT_FINITE[value] if isinstance(value, str) else value or 0.0
        return _localized(number, clause, precision)
    if isinstance(value, str | bytes):
        return _in_hexadecimal(value, clause)

    return format(int(value), clause)


def _in_hexadecimal(value: str | bytes, clause: str) -> str:
    if isinstance(value, str):
        value = value.encode()

    digits = value.hex()
    return digits.upper() if clause == "X" else digits


def _localized(number: float, clause: str, precision: int) -> str:
    """Return a double as Go's printer of messages in English writes it.

    Of the clause `e`, cel-go takes the precision as width.
    """
    if math.isnan(number):
        text = "NaN"
    elif math.isinf(number):
        text = "∞" if number > 0 else "-∞"
    elif clause == "f":
        text = f"{number:,.{precision}f}"
    else:
        mantissa, exponent = f"{number:.6e}".split("e")
        power = exponent.removeprefix("+").translate(_SUPERSCRIPT)
        text = f"{mantissa}\N{MULTIPLICATION SIGN}10{power}"

    return text if clause == "f" else text.rjust(precision)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_shown_within, value))}]"
    if isinstance(value, dict):
        if any(not isinstance(key, str | int) for key in value):
            raise EvaluationError("no formatting function for map key")

        entries = sorted((_shown_within(key), _shown_within(value[key])) for key in value)
        return "{" + ", ".join(f"{key}:{text}" for key, text in entries) + "}"
    if value is None:
        return "null"

    return to_string(value)


def _shown_within(value: Any) -> str:
    """Return a value in a list or a map, where text is quoted."""
    if not takes("s", kind_of(value)):
        raise EvaluationError(
            f"error during formatting: no formatting function for {kind_of(value)}"
        )
    if isinstance(value, float):
        return f"{value:.6f}" if math.isfinite(value) else f'"{number_text(value)}"'
    if isinstance(value, str | bytes):
        prefix = "b" if isinstance(value, bytes) else ""
        letters = "".join(map(_quoted, to_string(value)))
        return f'{prefix}"{letters}"'
    if isinstance(value, Duration):
        return f'duration("{to_string(value)}")'
    if isinstance(value, Timestamp):
        return f'timestamp("{to_string(value)}")'

    return _shown(value)


def quote(text: str) -> str:
    """Return a text in quotation marks, with escapes."""
    return f'"{"".join(_CONTROLS.get(letter, letter) for letter in text)}"'


def _quoted(letter: str) -> str:
    code = ord(letter)
    if letter in _CONTROLS or letter.isprintable():
        return _CONTROLS.get(letter, letter)
    if code < 0x80:  # noqa: PLR2004
        return f"\\x{code:02x}"
    if code < 0x10000:  # noqa: PLR2004
        return f"\\u{code:04x}"

    return f"\\U{code:08x}"


# quantities: `k8s.io/apimachinery/pkg/api/resource`

_POWERS: Final = {letter: 3 * power for power, letter in enumerate((*"num", "", *"kMGTPE"), -3)}


def to_quantity(text: str) -> Quantity:
    """Return a quantity.

    Its value is the number that is written, where apimachinery holds that in 64 bits.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        form = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
        raise EvaluationError(f"quantities must match the regular expression '{form}'")

    sign, whole, fraction, binary, decimal, exponent = match.groups("")
    digits = (whole or "0") + fraction
    if len(digits) > _MOST_DIGITS_OF_QUANTITY:
        raise NotUnderstood(f"a quantity of {len(digits)} digits")

    value = int(digits)
    scale = -len(fraction)
    most_digits = 18  # that fit for sure
    if binary:
        power = 10 * (1 + "KMGTPE".index(binary))
        most_digits = 14 - int(power * 3 / 10)
        value <<= power
    elif exponent:
        scale += int(exponent)
    else:
        scale += _POWERS[decimal]

    if scale >= _SMALLEST_SCALE:
        amount = value * 10 ** (scale - _SMALLEST_SCALE)
    else:
        amount = -(-value // 10 ** (_SMALLEST_SCALE - scale))  # rounded up
    if binary:
        amount = min(amount, _LARGEST)

    direction = -1 if sign == "-" else 1
    is_short = len(digits) <= most_digits and scale >= _SMALLEST_SCALE and value < _INT64
    if is_short and not (binary and fraction):
        return Quantity(direction * amount, direction * value, scale)

    scale = 0 if binary and amount == _LARGEST else _SMALLEST_SCALE
    return Quantity(direction * amount, None, scale)


def sign(quantity: Quantity) -> int:
    """Return -1, 0 or 1, as a quantity is below, at or above zero."""
    return (quantity.amount > 0) - (quantity.amount < 0)


def as_integer(quantity: Quantity) -> int:
    """Return a quantity as int, which its notation must allow: `1000m` is none."""
    if quantity.value is None or quantity.scale < 0:
        raise EvaluationError("cannot convert value to integer")

    integer: int = quantity.value * 10**quantity.scale
    if not -_INT64 <= integer < _INT64:
        raise EvaluationError("cannot convert value to integer")

    return integer


def as_float(quantity: Quantity) -> float:
    """Return a quantity as double, calculated as apimachinery does."""
    digits = quantity.value
    if digits is None:
        digits = quantity.amount // 10 ** (quantity.scale + 9)
    if not quantity.scale:
        return float(digits)

    return float(digits) * float(f"1e{quantity.scale}")


def sum_of_quantities(sign: str, left: Quantity, right: Quantity | int) -> Quantity:
    """Return a sum of quantities, with `-1` a difference.

    It is held in 64 bits where apimachinery does that.
    """
    if not isinstance(right, Quantity):
        right = Quantity(right * 10**9, right)

    amount = left.amount + int(sign) * right.amount
    scale = min(left.scale, right.scale)
    if left.value is None or right.value is None:
        return Quantity(amount, None, scale, is_result=True)

    right_value = int(sign) * right.value
    if not right_value:
        return Quantity(amount, left.value, left.scale, is_result=True)
    if not left.value:
        return Quantity(amount, right_value, right.scale, is_result=True)

    left_part = left.value * 10 ** (left.scale - scale)
    right_part = right_value * 10 ** (right.scale - scale)
    parts = (left_part, right_part, left_part + right_part)
    if not all(-_INT64 <= part < _INT64 for part in parts):
        return Quantity(amount, None, scale, is_result=True)

    return Quantity(amount, left_part + right_part, scale, is_result=True)


# versions, of github.com/blang/semver


# the second argument of `semver()`
def to_semver(text: str, normalize: bool = False) -> cel.Semver:
    """Return a version.

    Args:
        text: the version in its minimal form.
        normalize: it may begin with a v, have fewer than three numbers, and zeros before them.

    Raises:
        EvaluationError: it is none.
    """
    if normalize:
        parts = [_stripped(part) for part in text.removeprefix("v").split(".", 2)]
        if len(parts) < 3 and re.search("[+-]", parts[-1]):  # noqa: PLR2004  # x.y.z
            raise EvaluationError("short version cannot contain PreRelease/Build meta data")

        text = ".".join([*parts, "0", "0"][: max(3, len(parts))])

    match = _VERSION.fullmatch(text)
    if match is None:
        if text.count(".") < 2:  # noqa: PLR2004
            raise EvaluationError("No Major.Minor.Patch elements found")

        raise _wrong_version(text)

    numbers = (
        _version_number(match[1], text),
        _version_number(match[2], text),
        _version_number(match[3], text),
    )
    if not match[4]:
        return cel.Semver(numbers)

    # numbers come before names
    identifiers = tuple(
        (0, _version_number(identifier, text), "") if identifier.isdigit() else (1, 0, identifier)
        for identifier in match[4].split(".")
    )
    return cel.Semver(numbers, is_final=False, prerelease=identifiers)


def _version_number(digits: str, text: str) -> int:
    """Return a number of a version, which 64 bits hold."""
    number = number_of(digits, 2**64 - 1)
    if number is None:
        raise _wrong_version(text)
    return number


def _wrong_version(text: str) -> EvaluationError:
    return EvaluationError(f"Invalid semantic version {text!r}")


def _stripped(part: str) -> str:
    """Return a number without the zeros before it."""
    if len(part) < 2:  # noqa: PLR2004  # a zero alone stays
        return part

    stripped = part.lstrip("0")
    return stripped if stripped[:1].isdigit() else f"0{stripped}"


def version_part(place: str, version: cel.Semver) -> int:
    """Return a number of a version, by its place."""
    value = version.numbers[int(place)]
    return value if value < _INT64 else value - 2**64


# addresses: Go's `net/netip` and `net/url`


def to_ip(text: str) -> Any:
    """Return an address; one with a zone, or of IPv4 in IPv6, is none."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise EvaluationError(
            f"IP Address {text!r} parse error during conversion from string"
        ) from error

    if isinstance(address, ipaddress.IPv6Address) and (
        address.ipv4_mapped or address.scope_id is not None
    ):
        raise EvaluationError(f"IP Address {text!r} has a form that is not allowed")

    return address


def is_canonical(text: str) -> bool:
    """Return whether an address is written in the canonical way."""
    return str(to_ip(text)) == text


# of IPv6, whatever the flags
_LINK_LOCAL_MULTICAST: Final = [
    ipaddress.ip_network(text)
    for text in ("224.0.0.0/24", *(f"ff{flags:x}2::/16" for flags in range(16)))
]


def attribute(name: str, value: object) -> Any:
    """Return an attribute, by its dotted name in Python."""
    return attrgetter(name)(value)


def is_link_local_multicast(address: Any) -> bool:
    """Return whether an address is of a group on the link."""
    return any(
        address in network
        for network in _LINK_LOCAL_MULTICAST
        if network.version == address.version
    )


def is_global_unicast(address: Any) -> bool:
    """Return whether an address is one of a host, as Go's `IsGlobalUnicast` has it."""
    is_special = (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
    )
    return not is_special and str(address) != "255.255.255.255"


def to_cidr(text: str) -> Any:
    """Return an address with the length of its network's prefix."""
    address, _, length = text.rpartition("/")
    if not re.fullmatch("0|[1-9][0-9]{0,2}", length) or int(length) > to_ip(address).max_prefixlen:
        raise EvaluationError(
            f"network address parse error during conversion from string: {text!r}"
        )

    return ipaddress.ip_interface(text)


def contains_ip(network: Any, address: Any) -> bool:
    """Return whether a network has an address."""
    if isinstance(address, str):
        address = to_ip(address)

    return address in network.network


def contains_cidr(outer: Any, inner: Any) -> bool:
    """Return whether a network has another."""
    if isinstance(inner, str):
        inner = to_cidr(inner)

    return inner.version == outer.version and bool(inner.network.subnet_of(outer.network))


def masked(network: Any) -> Any:
    """Return a network with its first address."""
    return ipaddress.ip_interface(network.network)


def is_mask(network: Any) -> bool:
    """Return whether the address of a network is its first."""
    return bool(network.ip == network.network.network_address)


def _taken_apart(text: str, fragment: str = "", *, is_request: bool = False) -> cel.Url:
    """Return the parts of a URL, as Go's `parse` finds them.

    Args:
        text: the URL; of no request, without its fragment.
        fragment: that one.
        is_request: only an absolute URI or an absolute path will do.

    Raises:
        EvaluationError: it is none.
    """
    wrong = EvaluationError(f"URL parse error during conversion from string: {text!r}")
    match = _URL.fullmatch(text)
    if (
        re.search(r"[\x00-\x1f\x7f]", text)
        or (is_request and not text)
        or text.startswith(":")
        or match is None
    ):
        raise wrong

    scheme = (match[1] or "").lower()
    path = match[2]
    query = match[3] or ""
    if text != "*" and not path.startswith("/"):
        if scheme:
            return cel.Url(scheme, "", "", "", "", query[1:], (scheme, path, query, fragment))
        if is_request or ":" in path.split("/")[0]:
            raise wrong

    host = ""
    user = ""
    if path.startswith("//") and (scheme or (not is_request and not path.startswith("///"))):
        authority, slash, path = path[2:].partition("/")
        path = slash + path
        user, _, host = authority.rpartition("@")
        if not _USER.fullmatch(user) or _BAD_ESCAPE.search(user):
            raise wrong

        host = _host(host, scheme, wrong)

    if _BAD_ESCAPE.search(path):
        raise wrong
    if not re.fullmatch(r"[A-Za-z0-9\-_.~$&+,/:;=@!'()*\[\]%]*", path):
        path = escaped(unquote_to_bytes(path), safe="$&+,/:;=@~")

    name, port = _name_and_port(host)
    whole = (scheme, user, host, path, query, fragment)
    return cel.Url(scheme, host, name, port, path, query[1:], whole)


def _name_and_port(host: str) -> tuple[str, str]:
    """Return a host without its port and brackets, and the port, which may be empty."""
    name = host
    port = ""
    match = re.fullmatch("(.*):([0-9]*)", host, re.DOTALL)
    if match is not None:
        name, port = match.groups()
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1]

    return name, port


def _host(host: str, scheme: str, wrong: EvaluationError) -> str:
    """Return a host and its port without escapes."""
    literal = re.fullmatch(rf"\[({_HOST})\](:[0-9]*)?", host)
    if "[" in host:
        if literal is None:
            raise wrong
        zoned, _, zone = literal[1].partition("%25")
        try:
            ipaddress.IPv6Address("" if "%" in zoned else zoned)
        except ValueError as error:
            raise wrong from error

        if "%25" in literal[1] and not zone:
            raise wrong
    else:
        colon = host.find(":") if scheme in ("http", "https") else host.rfind(":")
        if not re.fullmatch(_HOST, host) or (
            colon >= 0 and not re.fullmatch(":[0-9]*", host[colon:])
        ):
            raise wrong

    return unquote_to_bytes(host).decode("utf-8", "replace")


def to_url(text: str) -> cel.Url:
    """Return a URL."""
    check_url(text)
    url, _, fragment = text.partition("#")
    if _BAD_ESCAPE.search(fragment):
        raise EvaluationError(f"URL parse error during conversion from string: {text!r}")
    return _taken_apart(url, fragment)


def check_url(text: str) -> cel.Url:
    """Return a URL that is one of a request.

    Raises:
        EvaluationError: it is none.
    """
    return _taken_apart(text, is_request=True)


def query(url: cel.Url) -> dict[str, list[str]]:
    """Return the values of a URL's query by name; what is malformed is left out."""
    values: dict[str, list[str]] = {}
    for pair in url.query.split("&"):
        if pair and ";" not in pair and not _BAD_ESCAPE.search(pair):
            key, _, value = pair.partition("=")
            values.setdefault(_unescaped(key), []).append(_unescaped(value))

    return values


def _unescaped(text: str) -> str:
    """Return a part of a query without escapes."""
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-8", "replace")


# named formats: `k8s.io/apimachinery/pkg/api/validation` and
# `k8s.io/kube-openapi/pkg/validation/strfmt`


def _violations(rules: Mapping[str, Any], text: str) -> list[str]:
    """Return what is wrong with a text that has a form and at most so many bytes."""
    violations = []
    limit = rules.get("most", math.inf)
    if len(text.encode()) > limit:
        violations.append(f"must be no more than {limit} {rules['unit']}")

    form = rules["form"]
    if not re.fullmatch(form, text):
        hint = ""
        if rules.get("examples"):
            examples = ",  or ".join(f"'{example}'" for example in rules["examples"])
            hint = f" (e.g. {examples}, regex used for validation is '{form}')"

        violations.append(rules["told"] + hint)

    return violations


def _label(rules: Mapping[str, Any], text: str) -> list[str]:
    violations = _violations(rules, text)
    subdomain = cel.environment()["formats"]["dns1123Subdomain"]
    if "." in text and re.fullmatch(subdomain["form"], text):
        return [*violations[:-1], "must not contain dots"]

    return violations


def _qualified_name(rules: Mapping[str, Any], text: str) -> list[str]:
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        problem = f"a valid label key {_violations(rules, '/')[0]}"
        hint = "an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"{problem} with {hint}"]

    problems = []
    if slash:
        if prefix:
            subdomain = {**cel.environment()["formats"]["dns1123Subdomain"], "unit": "bytes"}
            problems = [f"prefix part {problem}" for problem in _violations(subdomain, prefix)]
        else:
            problems = ["prefix part must be non-empty"]

    if not name:
        problems.append("name part must be non-empty")

    return problems + [f"name part {problem}" for problem in _violations(rules, name)]


def _date(rules: Mapping[str, Any], text: str) -> list[str]:
    # there is no year 0 in Python; it has the days of 2000
    day = text.replace("0000", "2000", 1) if text.startswith("0000") else text
    is_date = re.fullmatch(r"[0-9]{4}(-[0-9]{2}){2}", text)
    if is_date and succeeds("to_timestamp", f"{day}T00:00:00Z"):
        return []

    return [rules["told"]]


def _datetime(rules: Mapping[str, Any], text: str) -> list[str]:
    day, _, clock = text.lower().partition("t")
    match = re.fullmatch(rules["form"], clock.split("t")[0])
    if match is None or match[1] > "23" or match[2] > "59" or match[3] > "59":
        return [rules["told"]]

    return _date(rules, day)


def _uri(rules: Mapping[str, Any], text: str) -> list[str]:
    if succeeds("check_url", text):
        return []

    return [rules["told"]]


_CHECKS: Final = {
    "label": _label,
    "qualified_name": _qualified_name,
    "date": _date,
    "datetime": _datetime,
    "uri": _uri,
}


def format_named(name: str) -> cel.Format:
    """Return a format by its name, which must be one."""
    rules = cel.environment()["formats"][name.removesuffix("Prefix")]
    return cel.Format(name, rules["patternSize"])


def find_format(name: str) -> Optional:
    """Return a format by its name, if there is one."""
    names = {row[0] for row in cel.environment()["functions"]}
    if name == "named" or f"format.{name}" not in names:
        return cel.NONE

    return Optional(has_value=True, value=format_named(name))


def validate(form: cel.Format, text: str) -> Optional:
    """Return what is wrong with a text by a format; none: nothing is."""
    rules = cel.environment()["formats"][form.name.removesuffix("Prefix")]
    if form.name.endswith("Prefix") and len(text) > 1 and text.endswith("-"):
        # something is appended to it
        text = f"{text[:-2]}a"

    check = _CHECKS.get(rules.get("check", ""), _violations)
    violations = check(rules, text)
    if not violations:
        return cel.NONE

    return Optional(has_value=True, value=violations)


# messages: the well-known types of protobuf


def message_of(name: str, fields: Mapping[str, Any]) -> Any:
    """Return the value that a message of a well-known type is.

    Raises:
        EvaluationError: it is out of the bounds of that type.
    """
    message = cel.environment()["messages"][name]
    if "seconds" in message["fields"]:
        nanoseconds = fields.get("seconds", 0) * _SECOND + fields.get("nanos", 0)
        if name.endswith("Duration"):
            return Duration(nanoseconds)

        return cel.moment_at(nanoseconds)

    kind = message["type"]
    zeros = {
        "bool": False,
        "bytes": b"",
        "double": 0.0,
        "int": 0,
        "string": "",
        "uint": Uint(),
        "map": {},
        "list": [],
    }
    value: Any = next(iter(fields.values()), zeros.get(kind.partition("(")[0]))
    if "32" in name:
        lower, upper = (0, 2**32) if kind == "uint" else (-(2**31), 2**31)
        if not lower <= value < upper:
            raise EvaluationError("integer overflow")
    if name.endswith("FloatValue"):
        return struct.unpack("f", struct.pack("f", value))[0]

    return value
