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

# What means the same to Python and whose matching is bounded: characters and classes, up to two of
# them repeated.
_PLAIN_PATTERN: Final = re.compile(
    r"\^?(?:(?:[\w /:@,;=_-]|\\[dws.\-+*?()\[\]{}|^$/\\]|\.|\[\^?[\w.:/ -]+\])(?P<repeat>[+*])?\??)*\$?",
    re.ASCII,
)

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
_SUPERSCRIPT: Final = str.maketrans("0123456789+-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻")

# no digits at all mean zero to apimachinery
_QUANTITY: Final = re.compile(
    r"(?=.)([+-]?)0*([0-9]*)(?:\.([0-9]*))?(?:([KMGTPE])i|([numkMGTPE])|[eE]([+-]?[0-9]{1,4}))?",
    re.ASCII,
)

_INT64: Final = 2**63
_LARGEST: Final = (_INT64 - 1) * 10**9
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
        if not _PLAIN_PATTERN.fullmatch(pattern) or pattern.count("+") + pattern.count("*") > 2:  # noqa: PLR2004
            raise NotUnderstood(
                f"the regular expression {pattern!r} without alignup[claims] (google-re2)"
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
    """Return what a pattern matches, one behind the other; nothing empty right behind a match, as in Go."""
    try:
        compiled = pattern_of(pattern)
    except ValueError as error:
        raise EvaluationError(f"error parsing regexp: {error}") from error
    start, behind = 0, -1
    while start <= len(text) and (match := compiled.search(text, start)) is not None:
        if match.end() > match.start() or match.start() != behind:
            yield match[0]
        behind = match.end()
        start = behind + (match.end() == match.start())


def matches(text: str, pattern: str) -> bool:
    """Return whether a regular expression matches anywhere in a text."""
    return any(True for _ in _found_in(pattern, text))


def find(text: str, pattern: str) -> str:
    """Return what a regular expression matches first; empty: nothing."""
    return next(_found_in(pattern, text), "")


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """Return what a regular expression matches, so often at most; below zero: always."""
    return list(islice(_found_in(pattern, text), None if limit < 0 else limit))


# numbers and time as text


def number_text(value: float) -> str:
    """Return a double as Go's `%g` writes it: the shortest digits, with an exponent below -4 and from 6."""
    if not math.isfinite(value):
        return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")
    number = Decimal(repr(value)).normalize()
    _, digits, exponent = number.as_tuple()
    power = len(digits) - 1 + int(exponent)
    if not value or (-4 <= power < 21 and power < 6):  # noqa: PLR2004
        return f"{number:f}"
    return f"{number:e}" if abs(power) >= 10 else re.sub(r"e([+-])", r"e\g<1>0", f"{number:e}")  # noqa: PLR2004


def to_duration(text: str) -> Duration:
    """Return a duration in the form of Go's `time.ParseDuration`."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    total, at = 0, 0
    while at < len(rest):
        match = _PIECE.match(rest, at)
        if match is None or not (match[1] or match[3]):
            break
        unit = _UNITS.get(match[4], 3600 * _SECOND)
        total += int(match[1] or 0) * unit
        if match[3]:
            # digits that an int64 no longer holds are dropped, and the fraction is rounded as a
            # double
            digits = match[3][:18]
            total += int(float(int(digits)) * (float(unit) / float(10 ** len(digits))))

        at = match.end()

    if rest == "0":
        return Duration(0)
    if not rest or at < len(rest) or total > 2**63 or (total == 2**63 and sign > 0):
        raise EvaluationError("type conversion error from 'string' to 'google.protobuf.Duration'")

    return Duration(sign * total)


def to_timestamp(value: Any) -> Timestamp:
    """Return a moment in the form of RFC 3339, as Go reads it, or in seconds since 1970."""
    if isinstance(value, int):
        return cel.moment_at(value * _SECOND)

    wrong = EvaluationError("type conversion error from 'string' to 'google.protobuf.Timestamp'")
    match = _MOMENT.fullmatch(value)
    if match is None or int(match[9] or 0) > 24 or int(match[10] or 0) > 60:  # noqa: PLR2004  # as Go compares them
        raise wrong

    east = (int(match[9] or 0) * 3600 + int(match[10] or 0) * 60) * (-1 if match[8] == "-" else 1)
    try:
        year, month, day, hour, minute, second = map(int, match.groups()[:6])
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError as error:
        raise wrong from error

    nanoseconds = int((match[7] or "")[:9].ljust(9, "0"))
    return cel.moment_at(
        ((moment - _EPOCH) // timedelta(seconds=1) - east) * _SECOND + nanoseconds, east
    )


def _duration_text(value: Duration) -> str:
    # in seconds, in the floating point of Go's `Seconds`
    whole, rest = divmod(abs(value.nanoseconds), _SECOND)
    seconds = Decimal(
        repr(math.copysign(whole + rest / _SECOND, value.nanoseconds or 1))
    ).normalize()
    return f"{seconds:f}s"


def _moment_text(value: Timestamp) -> str:
    seconds, nanoseconds = divmod(value.nanoseconds, _SECOND)
    minutes = abs(value.offset) // 60
    zone = (
        f"{'-' if value.offset < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"
        if value.offset
        else "Z"
    )
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
    match = re.fullmatch(r"([+-]?\d+):([+-]?\d+)", zone)
    try:
        at = _EPOCH + timedelta(microseconds=moment.nanoseconds // 1000)
        if match is not None:
            return at + timedelta(
                minutes=int(match[1]) * 60 + int(match[2]) * (-1 if zone.startswith("-") else 1)
            )

        return at if zone in ("", "UTC", "Local") else at.astimezone(ZoneInfo(zone))
    except (ValueError, OSError, OverflowError, LookupError) as error:
        raise EvaluationError(f"unknown time zone {zone}") from error


def moment_part(code: str, unit: str, first: str, moment: Timestamp, zone: str = "") -> int:
    """Return a part of a moment by Python's code for it, in units of it; the `first` of them counts as zero."""
    return int(_local(moment, zone).strftime(code)) // int(unit) - int(first)


def duration_part(unit: str, value: Duration) -> int:
    """Return a duration in whole units of so many nanoseconds."""
    return abs(value.nanoseconds) // int(unit) * (-1 if value.nanoseconds < 0 else 1)


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
    found = list(_CLAUSE.finditer(text))
    if any(match["wrong"] for match in found):
        raise EvaluationError("could not parse formatting clause")
    return [match["clause"] for match in found if match["clause"]]


def takes(clause: str, kind: str) -> bool:
    """Return whether a clause of `format()` takes values of a type, named."""
    return kind in cel.environment()["clauses"][clause]


def format_text(text: str, values: list[Any]) -> str:
    """Return a text with values in place of its clauses."""
    if len(format_clauses(text)) > len(values):
        raise EvaluationError(f"index {len(values)} out of range")
    ahead = iter(values)
    return _CLAUSE.sub(lambda match: _filled_in(match, ahead) if match["clause"] else "%", text)


def _filled_in(match: re.Match[str], ahead: Iterator[Any]) -> str:
    value, clause, precision = next(ahead), match["clause"], int((match["precision"] or ".6")[1:])
    if not takes(clause, kind_of(value)) or (
        clause in "fe" and isinstance(value, str) and value not in _NOT_FINITE
    ):
        raise EvaluationError(
            f"error during formatting: clause {clause}, was given {kind_of(value)}"
        )

    if precision > _MOST_DIGITS:
        raise NotUnderstood(f"a precision of {precision}")
    if clause == "s":
        return _shown(value)
    if clause in "fe":
        return _localized(
            _NOT_FINITE[value] if isinstance(value, str) else value or 0.0, clause, precision
        )

    if isinstance(value, str | bytes):
        digits = (value.encode() if isinstance(value, str) else value).hex()
        return digits.upper() if clause == "X" else digits

    return format(int(value), clause)


def _localized(number: float, clause: str, precision: int) -> str:
    """Return a double as Go's printer of messages in English writes it; of `e`, cel-go takes the precision as width."""
    if not math.isfinite(number):
        text = "NaN" if math.isnan(number) else "∞" if number > 0 else "-∞"
    elif clause == "f":
        text = f"{number:,.{precision}f}"
    else:
        mantissa, exponent = f"{number:.6e}".split("e")
        text = f"{mantissa}\N{MULTIPLICATION SIGN}10{exponent.removeprefix('+').translate(_SUPERSCRIPT)}"
    return text if clause == "f" else text.rjust(precision)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_shown_within, value))}]"
    if isinstance(value, dict):
        if any(not isinstance(key, str | int) for key in value):
            raise EvaluationError("no formatting function for map key")
        pairs = sorted((_shown_within(key), _shown_within(one)) for key, one in value.items())
        return f"{{{', '.join(f'{key}:{one}' for key, one in pairs)}}}"
    return "null" if value is None else to_string(value)


def _shown_within(value: Any) -> str:
    """Return a value in a list or a map, where text is quoted."""
    if not takes("s", kind_of(value)):
        raise EvaluationError(
            f"error during formatting: no formatting function for {kind_of(value)}"
        )
    if isinstance(value, float):
        return f"{value:.6f}" if math.isfinite(value) else f'"{number_text(value)}"'
    if isinstance(value, str | bytes):
        return (
            "b" if isinstance(value, bytes) else ""
        ) + f'"{"".join(map(_quoted, to_string(value)))}"'
    name = {Duration: "duration", Timestamp: "timestamp"}.get(type(value))
    return f'{name}("{to_string(value)}")' if name else _shown(value)


def quote(text: str) -> str:
    """Return a text in quotation marks, with escapes."""
    return f'"{"".join(_CONTROLS.get(letter, letter) for letter in text)}"'


def _quoted(letter: str) -> str:
    code = ord(letter)
    if letter in _CONTROLS or letter.isprintable():
        return _CONTROLS.get(letter, letter)
    return (
        f"\\x{code:02x}"
        if code < 0x80  # noqa: PLR2004
        else f"\\u{code:04x}"
        if code < 0x10000  # noqa: PLR2004
        else f"\\U{code:08x}"
    )


# quantities: `k8s.io/apimachinery/pkg/api/resource`

_POWERS: Final = {letter: 3 * power for power, letter in enumerate((*"num", "", *"kMGTPE"), -3)}


def to_quantity(text: str) -> Quantity:
    """Return a quantity, with the number that is written where apimachinery holds one in 64 bits."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        form = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
        raise EvaluationError(f"quantities must match the regular expression '{form}'")

    sign, whole, fraction, binary, decimal, exponent = match.groups("")
    power = 10 * (1 + "KMGTPE".index(binary)) if binary else 0
    scale = (int(exponent) if exponent else 0 if binary else _POWERS[decimal]) - len(fraction)
    # the digits that fit for sure: of 18, or of 15 less those of the suffix
    spare = (14 - int(power * 3 / 10) if binary else 18) - len(whole or "0") - len(fraction)
    value = int((whole or "0") + fraction) << power
    amount = value * 10 ** (scale + 9) if scale >= -9 else -(-value // 10 ** (-scale - 9))  # noqa: PLR2004
    amount = min(amount, _LARGEST) if binary else amount
    is_short = spare >= 0 and scale >= -9 and value < _INT64 and not (binary and fraction)  # noqa: PLR2004
    direction = -1 if sign == "-" else 1
    if is_short:
        return Quantity(direction * amount, direction * value, scale)

    return Quantity(direction * amount, None, 0 if binary and amount == _LARGEST else -9)


def sign(quantity: Quantity) -> int:
    """Return -1, 0 or 1, as a quantity is below, at or above zero."""
    return (quantity.amount > 0) - (quantity.amount < 0)


def as_integer(quantity: Quantity) -> int:
    """Return a quantity as int, which its notation must allow: `1000m` is none."""
    found = (
        _INT64
        if quantity.value is None or quantity.scale < 0
        else quantity.value * 10**quantity.scale
    )
    if not -_INT64 <= found < _INT64:
        raise EvaluationError("cannot convert value to integer")
    return found


def as_float(quantity: Quantity) -> float:
    """Return a quantity as double, calculated as apimachinery does."""
    digits = (
        quantity.amount // 10 ** (quantity.scale + 9) if quantity.value is None else quantity.value
    )
    return float(digits) * float(f"1e{quantity.scale}") if quantity.scale else float(digits)


def sum_of_quantities(sign: str, one: Quantity, other: Quantity | int) -> Quantity:
    """Return a sum of quantities, with `-1` a difference, held in 64 bits where apimachinery does."""
    if not isinstance(other, Quantity):
        other = Quantity(other * 10**9, other)
    value = None if other.value is None else int(sign) * other.value
    amount, scale = one.amount + int(sign) * other.amount, min(one.scale, other.scale)
    if one.value is None or value is None:
        return Quantity(amount, None, scale, is_result=True)
    if not one.value or not value:
        kept, scale = (one.value, one.scale) if not value else (value, other.scale)
        return Quantity(amount, kept, scale, is_result=True)
    values = [one.value * 10 ** (one.scale - scale), value * 10 ** (other.scale - scale)]
    is_short = all(-_INT64 <= value < _INT64 for value in (*values, sum(values)))
    return Quantity(amount, sum(values) if is_short else None, scale, is_result=True)


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
    if match is None or max(map(int, match.groups()[:3])) >= 2**64:
        wrong = f"Invalid semantic version {text!r}"
        raise EvaluationError(
            "No Major.Minor.Patch elements found" if text.count(".") < 2 else wrong  # noqa: PLR2004
        )

    identifiers = match[4].split(".") if match[4] else []
    return cel.Semver(
        (int(match[1]), int(match[2]), int(match[3])),
        not identifiers,
        tuple((0, int(one), "") if one.isdigit() else (1, 0, one) for one in identifiers),
    )


def _stripped(part: str) -> str:
    """Return a number without the zeros before it."""
    if len(part) < 2:  # noqa: PLR2004  # a zero alone stays
        return part
    rest = part.lstrip("0")
    return rest if rest[:1].isdigit() else f"0{rest}"


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
    return (to_ip(address) if isinstance(address, str) else address) in network.network


def contains_cidr(outer: Any, inner: Any) -> bool:
    """Return whether a network has another."""
    network = (to_cidr(inner) if isinstance(inner, str) else inner).network
    return bool(network.version == outer.version and network.subnet_of(outer.network))


def masked(network: Any) -> Any:
    """Return a network with its first address."""
    return ipaddress.ip_interface(network.network)


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

    scheme, rest, query = (match[1] or "").lower(), match[2], match[3] or ""
    host, user, path = "", "", rest
    if text != "*" and not rest.startswith("/"):
        if scheme:
            return cel.Url(scheme, "", "", "", "", query[1:], (scheme, rest, query, fragment))
        if is_request or ":" in rest.split("/")[0]:
            raise wrong

    if rest.startswith("//") and (scheme or (not is_request and not rest.startswith("///"))):
        authority, slash, path = rest[2:].partition("/")
        path = slash + path
        user, _, host = authority.rpartition("@")
        if not _USER.fullmatch(user) or _BAD_ESCAPE.search(user):
            raise wrong
        host = _host(host, scheme, wrong)

    if _BAD_ESCAPE.search(path):
        raise wrong
    if not re.fullmatch(r"[A-Za-z0-9\-_.~$&+,/:;=@!'()*\[\]%]*", path):
        path = escaped(unquote_to_bytes(path), safe="$&+,/:;=@~")

    name, port = host, ""
    if (ported := re.fullmatch("(.*):([0-9]*)", host, re.DOTALL)) is not None:
        name, port = ported.groups()

    name = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    return cel.Url(
        scheme, host, name, port, path, query[1:], (scheme, user, host, path, query, fragment)
    )


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
    found: dict[str, list[str]] = {}
    for pair in url.query.split("&"):
        if pair and ";" not in pair and not _BAD_ESCAPE.search(pair):
            plain = [unquote_to_bytes(part.replace("+", " ")) for part in pair.split("=", 1)]
            key, value, *_ = (*(part.decode("utf-8", "replace") for part in plain), "")
            found.setdefault(key, []).append(value)
    return found


# named formats: `k8s.io/apimachinery/pkg/api/validation` and
# `k8s.io/kube-openapi/pkg/validation/strfmt`


def _violations(wanted: Mapping[str, Any], text: str) -> list[str]:
    """Return what is wrong with a text that has a form and at most so many bytes."""
    most, form = wanted.get("most", math.inf), wanted["form"]
    found = [f"must be no more than {most} {wanted['unit']}"] if len(text.encode()) > most else []
    if not re.fullmatch(form, text):
        shown = ",  or ".join(f"'{one}'" for one in wanted.get("examples", ()))
        example = f" (e.g. {shown}, regex used for validation is '{form}')" if shown else ""
        found.append(wanted["told"] + example)
    return found


def _label(wanted: Mapping[str, Any], text: str) -> list[str]:
    found, other = _violations(wanted, text), cel.environment()["formats"]["dns1123Subdomain"]
    return (
        [*found[:-1], "must not contain dots"]
        if "." in text and re.fullmatch(other["form"], text)
        else found
    )


def _qualified_name(wanted: Mapping[str, Any], text: str) -> list[str]:
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        whole = f"a valid label key {_violations(wanted, '/')[0]}"
        return [
            f"{whole} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    empty = "must be non-empty"
    subdomain = {**cel.environment()["formats"]["dns1123Subdomain"], "unit": "bytes"}
    found = _violations(subdomain, prefix) if prefix else [empty]
    parts = [*([] if name else [empty]), *_violations(wanted, name)]
    return [f"prefix part {one}" for one in found if slash] + [f"name part {one}" for one in parts]


def _date(wanted: Mapping[str, Any], text: str) -> list[str]:
    is_one = re.fullmatch(r"[0-9]{4}(-[0-9]{2}){2}", text) and succeeds(
        "to_timestamp",
        f"{text.replace('0000', '2000', 1) if text.startswith('0000') else text}T00:00:00Z",
    )
    return [] if is_one else [wanted["told"]]


def _datetime(wanted: Mapping[str, Any], text: str) -> list[str]:
    day, _, clock = text.lower().partition("t")
    match = re.fullmatch(wanted["form"], clock.split("t")[0])
    is_one = match is not None and match[1] <= "23" and match[2] <= "59" and match[3] <= "59"
    return _date(wanted, day) if is_one else [wanted["told"]]


def _uri(wanted: Mapping[str, Any], text: str) -> list[str]:
    return [] if succeeds("check_url", text) else [wanted["told"]]


_CHECKS: Final = {
    "label": _label,
    "qualified_name": _qualified_name,
    "date": _date,
    "datetime": _datetime,
    "uri": _uri,
}


def format_named(name: str) -> cel.Format:
    """Return a format by its name, which must be one."""
    return cel.Format(
        name, cel.environment()["formats"][name.removesuffix("Prefix")]["patternSize"]
    )


def find_format(name: str) -> Optional:
    """Return a format by its name, if there is one."""
    is_one = name != "named" and any(
        row[0] == f"format.{name}" for row in cel.environment()["functions"]
    )
    return Optional(has_value=True, value=format_named(name)) if is_one else cel.NONE


def validate(form: cel.Format, text: str) -> Optional:
    """Return what is wrong with a text by a format; none: nothing is."""
    wanted = cel.environment()["formats"][form.name.removesuffix("Prefix")]
    if form.name.endswith("Prefix") and len(text) > 1 and text.endswith("-"):
        # something is appended to it
        text = f"{text[:-2]}a"
    found = _CHECKS.get(wanted.get("check", ""), _violations)(wanted, text)
    return Optional(has_value=True, value=found) if found else cel.NONE


# messages: the well-known types of protobuf


def message_of(name: str, fields: Mapping[str, Any]) -> Any:
    """Return the value that a message of a well-known type is.

    Raises:
        EvaluationError: it is out of the bounds of that type.
    """
    if "seconds" in cel.environment()["messages"][name]["fields"]:
        nanoseconds = fields.get("seconds", 0) * _SECOND + fields.get("nanos", 0)
        return Duration(nanoseconds) if name.endswith("Duration") else cel.moment_at(nanoseconds)

    kind = cel.environment()["messages"][name]["type"]
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
    if "32" in name and not (0 if kind == "uint" else -(2**31)) <= value < (
        2**32 if kind == "uint" else 2**31
    ):
        raise EvaluationError("integer overflow")

    return struct.unpack("f", struct.pack("f", value))[0] if name.endswith("FloatValue") else value
