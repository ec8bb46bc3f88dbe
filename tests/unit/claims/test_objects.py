"""The objects of the API answer what the allocator asks of them."""

from __future__ import annotations

from typing import Any

import pytest

from alignup.claims.objects import (
    Allocated,
    Amount,
    AttributeValue,
    Claim,
    CounterUse,
    Device,
    DeviceId,
    NodeResource,
    Pool,
    Slice,
    Subrequest,
    Taint,
    Toleration,
    attribute_of,
)
from alignup.errors import InputError
from alignup.text.typed import decode

TAINT = Taint("bad", "hot", "NoSchedule")


@pytest.mark.parametrize(
    ("written", "billionths", "text"),
    [
        ("1Gi", 2**30 * 10**9, "1Gi"),
        ("100m", 10**8, "100m"),
        (3, 3 * 10**9, "3"),
        ("-1", -(10**9), "-1"),
        ("1n", 1, "1n"),
    ],
)
def test_an_amount_is_in_billionths_and_knows_its_text(written, billionths: int, text: str) -> None:
    amount = Amount.parse(written)
    assert (amount, amount.text) == (billionths, text)


@pytest.mark.parametrize("written", ["", " 1", "1GiB", None, [], "1e99"])
def test_what_is_no_quantity_is_refused(written: object) -> None:
    with pytest.raises(InputError):
        Amount.parse(written)


@pytest.mark.parametrize(
    ("document", "kind", "values"),
    [
        ({"int": 0}, "int", (0,)),
        ({"bool": False}, "bool", (False,)),
        ({"string": ""}, "string", ("",)),
        ({"version": "1.2.3"}, "version", ("1.2.3",)),
        ({"ints": [1, 2]}, "int", (1, 2)),
        ({"bools": [True]}, "bool", (True,)),
        ({"strings": []}, "string", ()),
        ({"versions": ["1.0.0"]}, "version", ("1.0.0",)),
        ({}, "", ()),
    ],
)
def test_an_attribute_has_a_kind_and_values(document: dict[str, Any], kind: str, values) -> None:
    value = decode(document, AttributeValue)
    assert (value.kind, value.values) == (kind, values)
    assert value.is_list is any(isinstance(field, list) for field in document.values())


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        (Toleration("bad", "Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration("bad", "Equal", "hot"), True),
        (Toleration("bad", "", "hot"), True),
        (Toleration("bad", "Equal", "cold"), False),
        (Toleration("good", "Exists"), False),
        (Toleration("bad", "Exists", effect="NoExecute"), False),
        (Toleration("bad", "Exists", effect="NoSchedule"), True),
        (Toleration("bad", "Unknown", "hot"), False),
    ],
)
def test_a_taint_is_tolerated(toleration: Toleration, is_tolerated: bool) -> None:
    assert toleration.tolerates(TAINT) is is_tolerated


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("d.example.com/model", "mine"),
        ("other.com/model", "theirs"),
        ("absent.com/model", None),
        ("model", "mine"),
        ("d.example.com/", None),
    ],
)
def test_an_attribute_of_the_drivers_domain_may_be_without_it(name: str, expected) -> None:
    attributes = {"model": {"string": "mine"}, "other.com/model": {"string": "theirs"}}
    device = decode({"name": "d", "attributes": attributes}, Device)
    value = attribute_of(device, "d.example.com", name)
    assert (value.values[0] if value else None) == expected


def test_the_full_name_comes_before_the_short_one() -> None:
    attributes = {"model": {"int": 1}, "d/model": {"int": 2}}
    value = attribute_of(decode({"name": "x", "attributes": attributes}, Device), "d", "d/model")
    assert value is not None
    assert value.values == (2,)


def test_names_are_those_of_messages() -> None:
    device = Allocated("d.example.com", "p", "gpu-0")
    assert device.id == DeviceId("d.example.com", "p", "gpu-0")
    assert str(device.id) == "d.example.com/p/gpu-0"
    assert (str(Claim("c", "n")), str(Claim("c"))) == ("n/c", "c")


def test_one_device_is_meant_where_no_number_is_written() -> None:
    assert [Subrequest(count=count).device_count for count in (0, 1, 3)] == [1, 1, 3]


def test_compatibility_groups_are_seen() -> None:
    def part(groups: tuple[str, ...] | None) -> Slice:
        use = CounterUse("card", {}, groups)
        return Slice(
            "s", "d", Pool("p"), devices=(Device("x"), Device("y", consumes_counters=(use,)))
        )

    assert [part(groups).uses_compatibility_groups for groups in (None, (), ("a",))] == [
        False,
        False,
        True,
    ]


def test_a_device_counts_once_by_its_capacity_and_not_by_itself() -> None:
    """Unless the driver says more."""
    plain = decode({"mapping": {"capacityKey": "d/x"}}, NodeResource)
    assert plain.mapping is not None
    assert plain.mapping.capacity_multiplier == Amount.parse("1")
    assert plain.mapping.device_multiplier == 0
    assert (plain.overhead.per_pod, plain.overhead.per_container) == (0, 0)
