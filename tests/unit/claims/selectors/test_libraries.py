"""Functions of libraries do what those of cel-go and of the API server do.

They are about regular expressions, time, quantities, versions, addresses and formats.
"""

from __future__ import annotations

import ipaddress
import math
from importlib.util import find_spec

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from alignup.claims.selectors import libraries
from alignup.claims.selectors.syntax import NotUnderstood
from alignup.claims.selectors.values import NONE, Duration, EvaluationError, Quantity, Timestamp

# more digits than Python makes a number of
MANY = "9" * 5_000

SECOND = 10**9

NEEDS_RE2 = pytest.mark.skipif(find_spec("re2") is None, reason="google-re2 is not installed")


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1h2m3s", 3723 * SECOND),
        ("-1.5s", -1_500_000_000),
        ("+1ms", 10**6),
        ("1us1µs1μs", 3000),
        ("0", 0),
        ("-0", 0),
        (".5m", 30 * SECOND),
        ("1h1h", 7200 * SECOND),
        ("-9223372036854775808ns", -(2**63)),
    ],
)
def test_durations_have_the_form_of_go(text: str, nanoseconds: int) -> None:
    assert libraries.to_duration(text) == Duration(nanoseconds)


@pytest.mark.parametrize(
    "text", ["", "1", "1d", "s", "1s ", "--1s", "9223372036854775808ns", "1 s", f"{MANY}s"]
)
def test_other_durations_are_errors(text: str) -> None:
    assert not libraries.succeeds("to_duration", text)


@given(st.integers(-(10**6), 10**6))
def test_a_duration_is_written_and_read_in_seconds(seconds: int) -> None:
    text = libraries.to_string(Duration(seconds * SECOND))
    assert text == f"{seconds}s"
    assert libraries.to_duration(text) == Duration(seconds * SECOND)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1970-01-01T00:00:01Z", Timestamp(SECOND)),
        ("1970-01-01T01:00:00+01:00", Timestamp(0, 3600)),
        ("1969-12-31T23:59:59.5Z", Timestamp(-SECOND // 2)),
        ("2020-02-29T00:00:00Z", Timestamp(1582934400 * SECOND)),
    ],
)
def test_moments_have_the_form_of_rfc_3339(text: str, moment: Timestamp) -> None:
    read = libraries.to_timestamp(text)
    assert (read, read.offset) == (moment, moment.offset)
    assert libraries.to_string(read) == text


@pytest.mark.parametrize(
    "text", ["2021-02-29T00:00:00Z", "1970-01-01", "1970-01-01T00:00:00", "1970-01-01 00:00:00Z"]
)
def test_other_moments_are_errors(text: str) -> None:
    assert not libraries.succeeds("to_timestamp", text)


def test_parts_of_a_moment_are_of_a_zone() -> None:
    moment = Timestamp(0)
    assert libraries.moment_part("%H", "1", "0", moment) == 0
    assert libraries.moment_part("%H", "1", "0", moment, "+02:30") == 2
    assert libraries.moment_part("%d", "1", "1", moment, "-00:01") == 30
    with pytest.raises(EvaluationError, match="unknown time zone Mars"):
        libraries.moment_part("%H", "1", "0", moment, "Mars")
    with pytest.raises(EvaluationError, match="unknown time zone"):
        # digits of another script, which Go reads no number of
        libraries.moment_part("%H", "1", "0", moment, "\u0663:00")
    assert libraries.duration_part(str(SECOND), Duration(-1_999_999_999)) == -1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (1e6, "1e+06"),
        (123456.0, "123456"),
        (1e-5, "1e-05"),
        (0.0001, "0.0001"),
        (1.5e300, "1.5e+300"),
        (math.inf, "+Inf"),
        (math.nan, "NaN"),
        (-0.0, "-0"),
        (True, "true"),
        (b"a", "a"),
        (7, "7"),
    ],
)
def test_values_are_written_as_go_does(value: object, text: str) -> None:
    assert libraries.to_string(value) == text


@pytest.mark.parametrize(
    ("text", "amount", "value", "scale"),
    [
        ("1", SECOND, 1, 0),
        ("1500m", 1_500_000_000, 1500, -3),
        ("1Ki", 1024 * SECOND, 1024, 0),
        ("1.5", 1_500_000_000, 15, -1),
        ("1e3", 1000 * SECOND, 1, 3),
        ("-2k", -2000 * SECOND, -2, 3),
        ("1.5Ki", 1536 * SECOND, None, -9),
        ("0.1n", 1, None, -9),
        ("Gi", 0, 0, 0),
    ],
)
def test_quantities_are_held_as_in_apimachinery(text: str, amount, value, scale) -> None:
    quantity = libraries.to_quantity(text)
    assert (quantity.amount, quantity.value, quantity.scale) == (amount, value, scale)


@pytest.mark.parametrize(
    ("suffix", "most_digits"), [("Ki", 11), ("Mi", 8), ("Gi", 5), ("Ti", 2), ("Pi", 0), ("Ei", 0)]
)
def test_a_quantity_of_bytes_is_an_integer_up_to_as_many_digits_as_surely_fit(
    suffix: str, most_digits: int
) -> None:
    """Fourteen, less three for each ten bits of the suffix, as apimachinery counts."""
    for count in range(1, 14):
        quantity = libraries.to_quantity("1" * count + suffix)
        assert (quantity.value is not None) is (count <= most_digits), count


@pytest.mark.parametrize("text", ["", "1 Gi", "1GiB", "1e", "--1", "1.2.3"])
def test_other_quantities_are_errors(text: str) -> None:
    with pytest.raises(EvaluationError, match="quantities must match"):
        libraries.to_quantity(text)


@pytest.mark.parametrize("text", [MANY, f"1.{MANY}", f"-{MANY}Ki", f"{MANY}e3"])
def test_a_quantity_of_more_digits_than_are_read_is_not_understood(text: str) -> None:
    with pytest.raises(NotUnderstood, match=r"a quantity of 500\d digits"):
        libraries.to_quantity(text)
    assert libraries.to_quantity("0" * 5_000 + "7").amount == 7 * SECOND


@given(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9))
def test_quantities_are_added_and_subtracted(left: int, right: int) -> None:
    quantities = libraries.to_quantity(f"{left}m"), libraries.to_quantity(f"{right}")
    total = libraries.sum_of_quantities("1", *quantities)
    assert total.amount == left * 10**6 + right * SECOND
    assert total.is_result
    difference = libraries.sum_of_quantities("-1", *quantities)
    assert difference.amount == left * 10**6 - right * SECOND
    assert libraries.sign(difference) == (difference.amount > 0) - (difference.amount < 0)


def test_a_quantity_is_an_integer_where_its_notation_allows() -> None:
    assert libraries.as_integer(libraries.to_quantity("2k")) == 2000
    for text in ("2000m", "1.0", "10E"):
        assert not libraries.succeeds("as_integer", libraries.to_quantity(text))
    assert libraries.as_float(libraries.to_quantity("1500m")) == 1.5
    assert libraries.sum_of_quantities("1", Quantity(SECOND, 1), 2).amount == 3 * SECOND


def test_versions_are_in_the_order_of_their_specification() -> None:
    """Its own example."""
    ordered = "1.0.0-alpha 1.0.0-alpha.1 1.0.0-alpha.beta 1.0.0-beta 1.0.0-beta.2 1.0.0-beta.11"
    versions = [libraries.to_semver(text) for text in [*ordered.split(), "1.0.0-rc.1", "1.0.0"]]
    assert versions == sorted(versions)
    assert len(set(versions)) == len(versions)
    assert libraries.to_semver("1.2.3+build") == libraries.to_semver("1.2.3")


def test_numbers_of_a_version_are_those_of_64_bits() -> None:
    """Without a sign there, and with one in CEL."""
    version = libraries.to_semver(f"1.{2**63 - 1}.{2**64 - 1}")
    assert [libraries.version_part(place, version) for place in "012"] == [1, 2**63 - 1, -1]
    for text in (f"1.2.{2**64}", f"1.{MANY}.3", f"1.2.3-{2**64}", f"1.2.3-rc.{MANY}"):
        assert not libraries.succeeds("to_semver", text)
    assert libraries.to_semver(f"1.2.3-{2**64 - 1}") < libraries.to_semver("1.2.3-a")


@pytest.mark.parametrize(
    ("text", "normalized"), [("v1", "1.0.0"), ("01.2", "1.2.0"), ("1.2.3-rc.1", "1.2.3-rc.1")]
)
def test_versions_are_normalized_on_request_only(text: str, normalized: str) -> None:
    assert libraries.to_semver(text, True) == libraries.to_semver(normalized)
    if text != normalized:
        assert not libraries.succeeds("to_semver", text)


@pytest.mark.parametrize("text", ["", "1.2", "1.2.x", "01.2.3", "1.2.3-", "v1.2-rc"])
def test_other_versions_are_errors(text: str) -> None:
    assert not libraries.succeeds("to_semver", text)
    assert not libraries.succeeds("to_semver", "v1.2-rc", True)


@pytest.mark.parametrize("text", ["::ffff:10.0.0.1", "fe80::1%eth0", "10.0.0", "010.0.0.1", ""])
def test_addresses_have_one_form_each(text: str) -> None:
    assert not libraries.succeeds("to_ip", text)
    assert libraries.to_ip("10.0.0.1") == ipaddress.ip_address("10.0.0.1")
    assert libraries.is_canonical("fd00::1")
    assert not libraries.is_canonical("FD00::1")


@pytest.mark.parametrize(
    ("address", "is_global", "is_local_group"),
    [
        ("10.0.0.1", True, False),
        ("127.0.0.1", False, False),
        ("169.254.0.1", False, False),
        ("224.0.0.1", False, True),
        ("ff12::1", False, True),
        ("ff15::1", False, False),
        ("255.255.255.255", False, False),
    ],
)
def test_addresses_are_of_hosts_or_groups(address: str, is_global, is_local_group) -> None:
    read = libraries.to_ip(address)
    assert libraries.is_global_unicast(read) is is_global
    assert libraries.is_link_local_multicast(read) is is_local_group


def test_networks_have_addresses_and_networks() -> None:
    network = libraries.to_cidr("10.1.2.3/8")
    assert str(libraries.masked(network)) == "10.0.0.0/8"
    assert libraries.contains_ip(network, "10.9.9.9")
    assert not libraries.contains_ip(network, "11.0.0.1")
    assert libraries.contains_cidr(network, "10.2.0.0/16")
    assert not libraries.contains_cidr(network, "0.0.0.0/0")
    assert not libraries.contains_cidr(network, "fd00::/8")
    for text in ("10.0.0.0", "10.0.0.0/33", "10.0.0.0/08", "10.0.0.0/"):
        assert not libraries.succeeds("to_cidr", text)


def test_urls_are_taken_apart() -> None:
    url = libraries.to_url("https://user@a.b:80/c%20d?e=f&e=g")
    assert (url.scheme, url.host, url.hostname, url.port) == ("https", "a.b:80", "a.b", "80")
    assert url.path == "/c%20d"
    assert libraries.query(url) == {"e": ["f", "g"]}
    assert libraries.to_url("/a:b/c").path == "/a:b/c"
    for text in ("a b", "a/b:c", "relative", "http://[::1", "http://a/%zz"):
        assert not libraries.succeeds("to_url", text)


def test_patterns_match_what_they_do_in_go() -> None:
    assert libraries.matches("abc", "^a.c$")
    assert not libraries.matches("abc", "^b")
    assert libraries.find("a1b22", "[0-9]+") == "1"
    assert libraries.find("abc", "[0-9]") == ""
    assert libraries.find_all("a1b22", "[0-9]+") == ["1", "22"]
    assert libraries.find_all("a1b22", "[0-9]+", 1) == ["1"]


def test_clauses_are_filled_in() -> None:
    assert libraries.format_clauses("%s and %.2f, %% of %x") == ["s", "f", "x"]
    assert libraries.format_text("%s=%d%%", ["a", 5]) == "a=5%"
    assert libraries.format_text("%x %X %b %o", ["hi", b"\xab", 5, 8]) == "6869 AB 101 10"
    assert libraries.format_text("%.1f", [2.25]) == "2.2"
    assert libraries.takes("d", "int")
    assert not libraries.takes("d", "string")


@pytest.mark.parametrize(
    ("text", "values"), [("%s", []), ("%q", [1]), ("%d", ["a"]), ("%", []), ("%f", ["x"])]
)
def test_clauses_that_cannot_be_are_errors(text: str, values: list[object]) -> None:
    assert not libraries.succeeds("format_text", text, values)


@pytest.mark.parametrize("digits", ["10001", MANY])
def test_a_precision_has_a_bound(digits: str) -> None:
    with pytest.raises(NotUnderstood, match=f"a precision of {digits[:40]}$"):
        libraries.format_text(f"%.{digits}f", [1.0])
    assert libraries.format_text("%.0000000000001f", [1.0]) == "1.0"


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("dns1123Label", "a-1", "A"),
        ("dns1123Subdomain", "a.b", "a..b"),
        ("qualifiedName", "a.b/c", "a/b/c"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123"),
        ("date", "2020-02-29", "2021-02-29"),
        ("datetime", "2020-02-29T00:00:00Z", "2020-02-29"),
        ("datetime", "2020-02-29T23:59:59Z", "2020-02-29T24:00:00Z"),
        ("datetime", "2020-02-29T00:59:00Z", "2020-02-29T00:60:00Z"),
        ("uri", "http://a/b", "a b"),
        ("byte", "YWJj", "Y"),
    ],
)
def test_formats_find_what_is_wrong(name: str, good: str, bad: str) -> None:
    form = libraries.find_format(name)
    assert form.has_value
    assert libraries.validate(form.value, good) is NONE
    assert libraries.validate(form.value, bad).value
    assert libraries.find_format("none") is libraries.find_format("named") is NONE


@pytest.mark.parametrize(
    ("name", "fields", "value"),
    [
        ("google.protobuf.Int32Value", {"value": 7}, 7),
        ("google.protobuf.Int32Value", {}, 0),
        ("google.protobuf.FloatValue", {"value": 0.1}, 0.10000000149011612),
        ("google.protobuf.Duration", {"seconds": 1, "nanos": 2}, Duration(SECOND + 2)),
        ("google.protobuf.Timestamp", {"seconds": 1}, Timestamp(SECOND)),
    ],
)
def test_messages_are_the_values_that_they_hold(name: str, fields, value: object) -> None:
    assert libraries.message_of(name, fields) == value


@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    [("Int32Value", -(2**31), 2**31 - 1), ("UInt32Value", 0, 2**32 - 1)],
)
def test_a_message_of_32_bits_has_bounds(name: str, lowest: int, highest: int) -> None:
    message = f"google.protobuf.{name}"
    assert libraries.message_of(message, {"value": lowest}) == lowest
    assert libraries.message_of(message, {"value": highest}) == highest
    for value in (lowest - 1, highest + 1):
        with pytest.raises(EvaluationError, match="integer overflow"):
            libraries.message_of(message, {"value": value})


class _Encoding:
    """A regular expression of RE2, whose search encodes the whole text each time."""

    def __init__(self, compiled) -> None:
        self.finditer = compiled.finditer


@NEEDS_RE2
def test_all_matches_are_found_by_one_iterator(monkeypatch) -> None:
    """Searching anew for each took 20 seconds for a selector within the limit of its cost."""
    compiled = libraries.pattern_of("a|b*")
    monkeypatch.setattr(libraries, "pattern_of", lambda _: _Encoding(compiled))
    assert libraries.find_all("aabbccb", "a|b*") == ["a", "a", "bb", "", "b"]


@NEEDS_RE2
@given(
    st.lists(
        st.sampled_from(["a", "b", "é", "a*", "b+", "|", "(", "a?", ")", "^", "$", "\\b", "a*?"]),
        min_size=1,
        max_size=5,
    ).map("".join),
    st.text("abé x\n", max_size=9),
)
def test_matches_are_those_of_a_search_behind_each(pattern: str, text: str) -> None:
    try:
        compiled = libraries.pattern_of(pattern)
    except ValueError:
        assume(condition=False)

    start, behind = 0, -1
    expected = []
    while start <= len(text) and (match := compiled.search(text, start)):
        if match[0] or match.start() != behind:
            expected.append(match[0])
        behind = match.end()
        start = behind + (not match[0])

    assert libraries.find_all(text, pattern) == expected
