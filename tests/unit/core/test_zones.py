"""The usual form of zones is read, and anything else is left to the careful reader."""

from __future__ import annotations

import pytest

from alignup.core.zones import plain_zones

LARGEST = (1 << 31) - 1


def zone(number, **changes):
    made = {
        "name": f"node-{number}",
        "type": "Node",
        "costs": [{"name": "node-0", "value": 10 + number}, {"name": "node-10", "value": 21 - number}],
        "resources": [{"name": "cpu", "capacity": "8", "allocatable": "6", "available": "3"}],
    }
    return {**made, **changes}


def read(zones):
    return plain_zones(zones, frozenset({"storage"}), LARGEST, 255)


def test_columns_and_costs_are_in_the_order_of_numbers():
    count, columns, costs = read([zone(10), zone(2), zone(0)])
    assert count == 3
    assert columns == {"cpu": ((8, 8, 8), (6, 6, 6), (3, 3, 3))}
    assert costs == ((10, 255, 21), (12, 255, 19), (20, 255, 11))


def test_what_is_left_out_is_what_the_next_larger_amount_says():
    resources = [
        {"name": "a", "capacity": "8"},
        {"name": "b", "capacity": 8, "allocatable": "7"},
        {"name": "c", "available": "5"},
        {"name": "d", "allocatable": "4", "capacity": None},
        {"name": "e"},
        {"name": "f", "capacity": "9", "available": "2"},
        {"name": "storage", "capacity": "strange"},
    ]
    count, columns, costs = read(
        [zone(0, resources=resources, costs=None), zone(1, resources=None, costs=[])]
    )
    assert (count, costs) == (2, None)
    assert {name: tuple(amounts[0] for amounts in column) for name, column in columns.items()} == {
        "a": (8, 8, 8),
        "b": (8, 7, 7),
        "c": (5, 5, 5),
        "d": (4, 4, 4),
        "e": (0, 0, 0),
        "f": (9, 9, 2),
    }
    assert all(amounts[1] == 0 for column in columns.values() for amounts in column)


def test_zones_of_other_types_are_passed_over():
    count, _, costs = read([{"name": "socket", "type": "Socket", "resources": 7}, zone(0)])
    assert (count, costs) == (1, ((10,),))


@pytest.mark.parametrize(
    "zones",
    [
        [],
        [7],
        [zone(0, name="zone")],
        [zone(0, name="node-é0")],
        [zone(0, name="node-1234567890")],
        [zone(0, name=None)],
        [zone(0, type=1)],
        [zone(0), zone(0, name="other-0")],
        [zone(number) for number in range(65)],
        [zone(0, resources={})],
        [zone(0, resources=[7])],
        [zone(0, resources=[{"capacity": "8"}])],
        *(
            [zone(0, resources=[{"name": "cpu", "capacity": value}])]
            for value in ("", "1Gi", "-1", "+1", "1.5", "9" * 17, "٣", 1.5, True, -1, 10**16, [])
        ),
        [zone(0, resources=[{"name": "cpu", "capacity": "8", "available": "1k"}])],
        [zone(0, costs={})],
        [zone(0, costs=[7])],
        [zone(0, costs=[{"value": 10}])],
        *([zone(0, costs=[{"name": "node-0", "value": value}])] for value in (-1, LARGEST + 1, 1 << 70, "10", True)),
    ],
)  # fmt: skip
def test_anything_else_is_left_to_others(zones):
    assert read(zones) is None
