"""Random tables of questions about claims, in the form of `SearchTables`.

Denser than what manifests come to.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

KINDS = 3


def random_tables(random: Random) -> SimpleNamespace:
    """Return what the search reads of `SearchTables`.

    `alignup.claims.search_tables` says what each of these is.

    Devices are of few kinds, so that many are interchangeable.
    """
    kinds = [random.randrange(KINDS) for _ in range(random.randint(2, 8))]
    tables = SimpleNamespace(devices=kinds, errors=[], **_requests(random, len(kinds)))
    number = len(tables.ways)
    shareable = [random.random() < 0.2 for _ in range(KINDS)]
    capacities = [
        [random.randint(1, 4) for _ in range(random.randint(0, 2) * shareable[kind])]
        for kind in range(KINDS)
    ]

    def by_kind(values: list[Any]) -> list[Any]:
        return [values[kind] for kind in kinds]

    def by_way_and_kind(draw: Any) -> list[Any]:
        return [by_kind([draw(kind) for kind in range(KINDS)]) for _ in range(number)]

    tables.is_shareable, tables.room = by_kind(shareable), by_kind(capacities)
    tables.taken = [random.random() < 0.1 for _ in kinds]
    tables.is_shared = [
        is_shareable and random.random() < 0.2 for is_shareable in tables.is_shareable
    ]
    tables.matches = by_way_and_kind(lambda _: int(random.random() < 0.7))
    for way, row in zip(tables.ways, tables.matches, strict=True):
        for device in way.everything or ():
            row[device] = 1

    tables.blocked = by_way_and_kind(lambda _: random.random() < 0.05)
    tables.amounts = by_way_and_kind(
        lambda kind: None if shareable[kind] and random.random() < 0.1 else {}
    )
    tables.needs = by_way_and_kind(
        lambda kind: tuple(random.randint(0, 2) for _ in capacities[kind])
    )
    counters = random.choice((0, 0, 2, 3))
    tables.counters = [random.randint(0, 9) for _ in range(counters)]
    tables.families = [counter // 2 for counter in range(counters)]
    tables.uses = by_kind(
        [
            [
                (counter, random.randint(0, 3))
                for counter in sorted(random.sample(range(counters), min(counters, 2)))
            ]
            for _ in range(KINDS)
        ]
    )
    _add_constraints(random, tables)
    _number_classes(tables)
    return tables


def _requests(random: Random, devices: int) -> dict[str, Any]:
    first_request, first_way, ways = [0], [0], []
    has_alternatives: list[bool] = []
    claims = random.choice((1, 1, 2, 3))
    for claim in range(claims):
        for _ in range(random.randint(1, 3)):
            choices = random.choice((1, 1, 2, 3))
            for _ in range(choices):
                everything = sorted(random.sample(range(devices), random.randint(0, 2)))
                is_all = random.random() < 0.05
                ways.append(
                    SimpleNamespace(
                        claim=claim,
                        request=len(has_alternatives),
                        count=len(everything) if is_all else random.randint(1, 4),
                        everything=everything if is_all else None,
                        is_admin=random.random() < 0.08,
                    )
                )

            has_alternatives.append(choices > 1)
            first_way.append(len(ways))

        first_request.append(len(has_alternatives))

    return {
        "claims": [None] * claims,
        "ways": ways,
        "first_way": first_way,
        "first_request": first_request,
        "has_alternatives": has_alternatives,
    }


def _add_constraints(random: Random, tables: Any) -> None:
    owners = sorted(
        random.randrange(len(tables.claims)) for _ in range(random.choice((0, 0, 1, 2)))
    )
    highest = random.choice((2, 4, 70))

    kinds = [[1 << random.randrange(highest) for _ in range(KINDS)] for _ in owners]

    tables.constraints = [(owner, None) for owner in owners]
    tables.is_distinct = [random.random() < 0.4 for _ in owners]
    tables.covers = [
        [way.claim == owner and random.random() < 0.8 for way in tables.ways] for owner in owners
    ]
    tables.values = [
        [
            random.choice((row[kind], row[kind], row[kind] | 1 << random.randrange(highest), 0))
            for kind in tables.devices
        ]
        for row in kinds
    ]
    tables.is_alone = [[random.random() < 0.05 for _ in tables.devices] for _ in owners]
    tables.faults = [[0] * len(tables.devices) for _ in owners]
    if random.random() < 0.1:
        for row in tables.faults:
            row[random.randrange(len(row))] = -1

        tables.errors = ["an attribute that cannot be read"]
    tables.forgets = random.random() < 0.1


def _number_classes(tables: Any) -> None:
    """Give devices that nothing tells apart one number."""
    by_device = [tables.taken, tables.is_shareable, tables.is_shared, tables.room, tables.uses]
    for table in (
        tables.matches,
        tables.blocked,
        tables.amounts,
        tables.needs,
        tables.values,
        tables.is_alone,
        tables.faults,
    ):
        by_device += table

    for way in tables.ways:
        # their order decides between an error and a refusal
        everything = way.everything or []
        by_device.append(
            [device if device in everything else None for device in range(len(tables.devices))]
        )

    numbers: dict[str, int] = {}
    tables.classes = [
        numbers.setdefault(repr(key), len(numbers)) for key in zip(*by_device, strict=True)
    ]
