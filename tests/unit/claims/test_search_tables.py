"""The tables say of each device what the search has to know; whole answers are tested elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from alignup.claims.allocation import allocate
from alignup.claims.question import AllocationError
from alignup.claims.search_tables import MOST_RESULTS, SearchTables
from alignup.errors import InputError
from inputs.claim_questions import claim, devices_of, holder, question, request
from inputs.small_claims import DRIVER, NUMA

PLAIN = devices_of({"name": "d0"}, {"name": "d1"})
SHAREABLE = {"allowMultipleAllocations": True}
SLOTS = [{"name": "card", "counters": {"slots": {"value": "8"}}}]


def tables(slices: list[Any], *claims: Any, **options: Any) -> SearchTables:
    return SearchTables(question(slices, claims, **options))


def test_ways_requests_and_claims_are_counted_through() -> None:
    ways = [{"name": name, **request(count=2)["exactly"]} for name in ("x", "y")]
    made = tables(
        [PLAIN], claim(request("a"), {"name": "b", "firstAvailable": ways}), claim(request("c"))
    )

    assert [way.name for way in made.ways] == ["a", "b/x", "b/y", "c"]
    assert [(way.claim, way.request, way.count) for way in made.ways] == [
        (0, 0, 1),
        (0, 1, 2),
        (0, 1, 2),
        (1, 2, 1),
    ]
    assert made.first_way == [0, 1, 3, 4]
    assert made.first_request == [0, 2, 3]
    assert made.has_alternatives == [False, True, False]


def test_devices_match_are_free_or_are_errors() -> None:
    devices = devices_of(
        {"name": "d0", "attributes": {"x": {"int": 1}}},
        {"name": "d1", "attributes": {"x": {"int": 2}}},
        {"name": "d2", "attributes": {"y": {"int": 1}}},
        {"name": "d3", "attributes": {"x": {"int": 1}}},
    )
    driver = devices["spec"]["driver"]
    expression = f"device.attributes['{driver}'].x == 1"
    made = tables(
        [devices],
        claim(request(selectors=[{"cel": {"expression": expression}}])),
        holders=[holder("d3")],
    )

    assert made.matches == [[1, 0, -1, 0]]
    assert made.taken == [False, False, False, True]
    assert [made.is_free(0, device) for device in range(4)] == [True, False, False, False]
    [error] = made.errors
    assert "no such key: x" in str(error)


def test_devices_of_pools_that_are_incomplete_are_left_out() -> None:
    part = devices_of({"name": "d0"}, pool="part", slices=2)
    made = tables([part, PLAIN], claim(request()))
    assert [str(candidate.id) for candidate in made.devices] == [
        f"{PLAIN['spec']['driver']}/n/{name}" for name in ("d0", "d1")
    ]
    assert [(str(pool)[-4:], pool.is_incomplete) for pool in made.pools if pool.name == "part"] == [
        ("part", True)
    ]


def test_tainted_devices_are_blocked_unless_they_are_tolerated() -> None:
    tainted = devices_of(
        {"name": "d0", "taints": [{"key": "bad", "effect": "NoSchedule"}]},
        {"name": "d1", "taints": [{"key": "bad", "effect": "None"}]},
    )
    tolerant = request(tolerations=[{"key": "bad", "operator": "Exists"}])
    made = tables([tainted], claim(request()), claim(tolerant))
    assert made.blocked == [[True, False], [False, False]]
    off = tables([tainted], claim(request()), DRADeviceTaints=False)
    assert off.blocked == [[False, False]]


def test_capacities_are_in_the_largest_common_unit() -> None:
    device = {"name": "d0", **SHAREABLE, "capacity": {"memory": {"value": "12Gi"}}}
    wishes = [
        request(name, capacity={"requests": {"memory": size}})
        for name, size in (("a", "4Gi"), ("b", "6Gi"), ("c", "16Gi"))
    ]
    made = tables([devices_of(device)], *(claim(wish) for wish in wishes))
    assert made.is_shareable == [True]
    assert made.room == [[6]]
    assert made.needs[:2] == [[(2,)], [(3,)]]
    assert made.matches == [[1], [1], [0]]
    assert made.amounts[2] == [None]


def test_shares_of_others_are_taken_off() -> None:
    device = {"name": "d0", **SHAREABLE, "capacity": {"memory": {"value": "12Gi"}}}
    share = holder("d0", shareID="1", consumedCapacity={"memory": "8Gi"})
    wish = request(capacity={"requests": {"memory": "4Gi"}})
    made = tables([devices_of(device)], claim(wish), holders=[share])
    assert (made.taken, made.is_shared) == ([False], [True])
    assert (made.room, made.needs) == ([[1]], [[(1,)]])


def test_devices_are_shareable_behind_a_gate() -> None:
    devices = devices_of({"name": "d0", **SHAREABLE}, {"name": "d1"})
    assert tables([devices], claim(request())).is_shareable == [True, False]
    off = tables([devices], claim(request()), DRAConsumableCapacity=False)
    assert off.is_shareable == [False, False]


@pytest.mark.parametrize(("release", "is_shared"), [("1.37", True), ("1.36", False)])
def test_a_share_without_amounts_is_one_since_1_37(release: str, is_shared: bool) -> None:
    devices = devices_of({"name": "d0", **SHAREABLE}, {"name": "d1", **SHAREABLE})
    share = holder("d0", shareID="1")
    made = tables([devices], claim(request()), holders=[share], release=release)
    assert made.is_shared == [is_shared, False]


def test_pools_of_one_name_share_counters_in_1_36() -> None:
    """Of the pool that the search comes to first."""

    def devices(driver: str) -> list[dict[str, Any]]:
        uses = [{"counterSet": "card", "counters": {"slots": {"value": "1"}}}]
        return [
            devices_of({"name": "d0", "consumesCounters": uses}, slices=2, driver=driver),
            devices_of(slices=2, driver=driver, devices=[], sharedCounters=SLOTS),
        ]

    slices = [*devices(DRIVER), *devices("other.example.com")]
    assert tables(slices, claim(request())).uses == [[(0, 1)], [(1, 1)]]
    assert tables(slices, claim(request()), release="1.36").uses == [[(0, 1)], [(0, 1)]]


def test_counters_are_what_devices_in_use_leave() -> None:
    def part(name: str, slots: int) -> dict[str, Any]:
        return {
            "name": name,
            "consumesCounters": [
                {"counterSet": "card", "counters": {"slots": {"value": str(slots)}}}
            ],
        }

    sets = [{"name": "card", "counters": {"slots": {"value": "8"}}}]
    slices = [
        devices_of(part("half", 4), part("third", 2), part("held", 2), slices=2),
        devices_of(slices=2, sharedCounters=sets, devices=[]),
    ]
    made = tables(slices, claim(request()), holders=[holder("held")])
    assert made.counters == [3]
    assert made.uses == [[(0, 2)], [(0, 1)], [(0, 1)]]
    assert made.families == [0]
    assert made.blocked == [[False, False, False]]

    overdrawn = tables(slices, claim(request()), holders=[holder("held", "half", "third", "held")])
    assert overdrawn.counters == [0]
    sets[0]["counters"]["slots"]["value"] = "1"
    assert tables(slices, claim(request()), holders=[holder("held")]).blocked == [[True] * 3]


def test_constraints_have_the_values_of_devices_as_bits() -> None:
    devices = devices_of(
        *(
            {"name": f"d{number}", "attributes": {NUMA: value} if value else {}}
            for number, value in enumerate(({"int": 0}, {"int": 1}, {"int": 0}, None))
        )
    )
    constraints = [
        {"matchAttribute": NUMA, "requests": ["a"]},
        {"distinctAttribute": NUMA},
    ]
    made = tables([devices], claim(request("a"), request("b"), constraints=constraints))

    assert made.is_distinct == [False, True]
    assert made.covers == [[True, False], [True, True]]
    assert made.values == [[1, 2, 1, 0]] * 2
    assert made.is_alone == [[False] * 4] * 2


@pytest.mark.parametrize(("is_on", "expected"), [(True, [3, 2]), (False, [1, 2])])
def test_a_list_is_a_set_of_values_or_stands_alone(is_on: bool, expected: list[int]) -> None:
    devices = devices_of(
        {"name": "d0", "attributes": {NUMA: {"ints": [0, 1]}}},
        {"name": "d1", "attributes": {NUMA: {"int": 1}}},
    )
    made = tables(
        [devices],
        claim(request(), constraints=[{"matchAttribute": NUMA}]),
        DRAListTypeAttributes=is_on,
    )
    assert [mask.bit_count() for mask in made.values[0]] == [mask.bit_count() for mask in expected]
    assert bool(made.values[0][0] & made.values[0][1]) is is_on
    assert made.is_alone == [[not is_on, False]]


VERSION = f"{DRIVER}/driverVersion"
SAME = [{"matchAttribute": VERSION}]
APART = [{"distinctAttribute": VERSION}]


def two_versions(first: Any, second: Any) -> dict[str, Any]:
    """Return a slice of two devices with these values of one attribute."""
    return devices_of(
        {"name": "d0", "attributes": {VERSION: first}},
        {"name": "d1", "attributes": {VERSION: second}},
    )


@pytest.mark.parametrize(("release", "are_equal"), [("1.37", False), ("1.38", True)])
def test_from_1_38_on_versions_are_equal_whatever_their_build(release, are_equal) -> None:
    slices = [two_versions({"version": "1.2.3+one"}, {"version": "1.2.3"})]
    together = question(slices, [claim(request(count=2), constraints=SAME)], release=release)
    apart = question(slices, [claim(request(count=2), constraints=APART)], release=release)
    assert (allocate(together) is not None) is are_equal
    assert (allocate(apart) is None) is are_equal


@pytest.mark.parametrize(
    "value",
    [
        {"strings": ["a"]},
        {"versions": ["1.0.0"]},
        {"version": "18446744073709551616.0.0"},
        {},
    ],
    ids=["strings", "versions", "no version", "unknown type"],
)
def test_from_1_38_on_a_constraint_fails_over_what_it_cannot_compare(value) -> None:
    slices = [two_versions({"version": "1.0.0"}, value)]
    both = claim(request(count=2), constraints=SAME)
    if "strings" in value:
        # before, a list could only come first
        assert allocate(question(slices, [both], release="1.37")) is None

    with pytest.raises(AllocationError, match=rf"d1: unsupported attribute value for {VERSION}"):
        allocate(question(slices, [both], release="1.38"))

    # it is looked at only where the search comes to it
    single = claim(request(), constraints=SAME)
    assert allocate(question(slices, [single], release="1.38")) is not None
    slices = [two_versions(value, {"version": "1.0.0"})]
    with pytest.raises(AllocationError, match="d0: unsupported"):
        allocate(question(slices, [single], release="1.38"))


def test_lists_are_compared_where_their_gate_is_on() -> None:
    slices = [two_versions({"versions": ["1.0.0+x", "2.0.0"]}, {"version": "1.0.0"})]
    both = claim(request(count=2), constraints=SAME)
    asked = question(slices, [both], release="1.38", DRAListTypeAttributes=True)
    assert allocate(asked) is not None

    empty = [two_versions({"versions": []}, {"version": "1.0.0"})]
    with pytest.raises(AllocationError, match="d0: unsupported"):
        allocate(question(empty, [both], release="1.38", DRAListTypeAttributes=True))


def test_from_1_38_on_capacities_that_are_used_count_by_either_name() -> None:
    room = {"name": "d", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "8"}}}
    full_name = f"{DRIVER}/memory"
    used = holder("d", shareID="s", consumedCapacity={full_name: "6"})
    asks = claim(request(capacity={"requests": {full_name: "4"}}))
    for release in ("1.37", "1.38"):
        asked = question([devices_of(room)], [asks], holders=[used], release=release)
        assert allocate(asked) is None

    asks = claim(request(capacity={"requests": {full_name: "2"}}))
    asked = question([devices_of(room)], [asks], holders=[used], release="1.38")
    [answer] = allocate(asked) or ()
    [device] = answer.allocated or ()
    assert device.consumed_capacity == {"memory": 2 * 10**9}


def test_what_nothing_tells_apart_is_of_one_class() -> None:
    devices = devices_of(
        {"name": "d0"},
        {"name": "d1"},
        {"name": "d2", "taints": [{"key": "bad", "effect": "NoSchedule"}]},
        {"name": "d3", "attributes": {NUMA: {"int": 0}}},
    )
    assert tables([devices], claim(request())).classes == [0, 0, 1, 0]
    constrained = claim(request(), constraints=[{"matchAttribute": NUMA}])
    assert tables([devices], constrained).classes == [0, 0, 1, 2]
    assert tables([devices], claim(request()), holders=[holder("d1")]).classes == [0, 1, 2, 0]


def test_all_devices_are_those_that_match() -> None:
    [way] = tables([PLAIN], claim(request(allocationMode="All")), holders=[holder("d1")]).ways
    assert (way.everything, way.count) == ([0, 1], 2)


@pytest.mark.parametrize(
    ("slices", "state"),
    [
        (devices_of({"name": "d"}, pool="p", slices=2), "being updated"),
        (devices_of({"name": "d"}, {"name": "d"}, pool="p"), "invalid"),
    ],
)
def test_all_devices_of_pools_that_are_not_whole_cannot_be_had(slices, state: str) -> None:
    with pytest.raises(
        AllocationError, match=rf"asks for all devices, but .*/p is currently {state}"
    ):
        tables([slices], claim(request(allocationMode="All")))


@pytest.mark.parametrize(("release", "kind"), [("1.37", "fatal"), ("1.38", "node")])
def test_from_1_38_on_only_the_node_is_refused_whose_pools_are_not_whole(release, kind) -> None:
    part = devices_of({"name": "d"}, pool="p", slices=2)
    with pytest.raises(AllocationError) as caught:
        allocate(question([part], [claim(request(allocationMode="All"))], release=release))
    assert caught.value.kind == kind


def test_a_mode_that_is_not_known_is_an_error() -> None:
    with pytest.raises(AllocationError, match="request r: unsupported count mode Some"):
        tables([PLAIN], claim(request(allocationMode="Some")))


def test_a_claim_has_so_many_devices_at_most() -> None:
    assert tables([PLAIN], claim(request(count=MOST_RESULTS))).ways[0].count == MOST_RESULTS
    with pytest.raises(AllocationError, match="adding 1 devices exceeds the claim limit of 32"):
        tables([PLAIN], claim(request("a", MOST_RESULTS), request("b")))
    with pytest.raises(AllocationError, match="number of requested devices 33 exceeds"):
        tables([PLAIN], claim(request("a", MOST_RESULTS), request("b")), release="1.36")


def test_a_pod_has_so_many_claims_at_most() -> None:
    claims = [claim(request(), name=f"c{number}") for number in range(61)]
    assert len(tables([PLAIN], *claims[:60]).ways) == 60
    with pytest.raises(InputError, match="expected at most 60 claims of a pod, got 61"):
        tables([PLAIN], *claims)


def test_amounts_that_64_bits_cannot_compare_are_refused() -> None:
    device = {"name": "d0", **SHAREABLE, "capacity": {"memory": {"value": "10000000000E"}}}
    wish = request(capacity={"requests": {"memory": "1n"}})
    with pytest.raises(InputError, match="expected amounts that 64 bits can compare"):
        tables([devices_of(device)], claim(wish))
