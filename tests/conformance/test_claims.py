"""The scheduler's own answers about claims and selectors.

Tests/vectors/claims/README.md says where they are from.
"""

from __future__ import annotations

import gzip
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from alignup.claims.question import AllocationError, Question, in_use
from alignup.claims.read import read_claim, read_class, read_slice
from alignup.claims.scenarios import answer_scenario, answer_selector
from alignup.claims.scheduler_gates import gates_of
from alignup.claims.search_tables import SearchTables
from alignup.core.claims.search import search
from alignup.kubernetes.node_fit import node_object
from alignup.kubernetes.quantity import parse_quantity
from checks.many_cases import check_each
from inputs.small_claims import scenario
from models.claims import TooLongError, plain_search
from replays.extended_resources import answers as extended_answers

VECTORS = Path(__file__).parents[1] / "vectors" / "claims"
KEYS = ("name", "node", "slices", "classes", "claims", "allocated", "release", "features")


@cache
def lines(name: str) -> list[dict[str, Any]]:
    with gzip.open(VECTORS / name) as file:
        return [msgspec.json.decode(line) for line in file]


def devices(result: list[dict[str, Any]] | None) -> object:
    """Return a result with quantities as numbers, since releases write them differently."""
    if result is None:
        return None

    return [
        [
            {
                **device,
                "consumedCapacity": {
                    name: parse_quantity(amount)
                    for name, amount in device.get("consumedCapacity", {}).items()
                },
            }
            for device in claim["devices"]
        ]
        for claim in result
    ]


def check_answers(cases: list[tuple[dict[str, Any], dict[str, Any], str]]) -> None:
    """Check recorded scenarios: each a line, what is expected of it, and the release.

    Without google-re2 those that need it say so, and the others are checked all the same.
    """
    unanswered = []

    def check_answer(line: dict[str, Any], expected: dict[str, Any], release: str) -> None:
        question = {**{key: line[key] for key in KEYS}, "release": release}
        answer = answer_scenario(question, "the vector")
        if "alignup[claims]" in (answer.get("error") or ""):
            assert find_spec("re2") is None
            unanswered.append(line["name"])
            return

        by_construction = expected.get("by") == "construction"
        assert answer.get("class") == (None if by_construction else expected.get("class"))
        assert devices(answer["result"]) == devices(expected["result"])
        if answer["result"] is not None:
            selectors = [claim.get("nodeSelector") for claim in answer["result"]]
            assert selectors == [claim.get("nodeSelector") for claim in expected["result"]]

    check_each(check_answer, [(case[0]["name"], case) for case in cases])
    if unanswered:
        pytest.skip(
            f"google-re2 is not installed, which {len(unanswered)} of {len(cases)} scenarios need"
        )


def test_devices_are_the_schedulers() -> None:
    recorded = lines("dra.jsonl.gz")
    assert len(recorded) >= 252
    check_answers(
        [
            (line, line["expect"], line["release"])
            for line in recorded
            if line["expect"]["result"] != "unknown"
        ]
    )


def test_devices_are_those_of_the_scheduler_of_1_36() -> None:
    compared = [
        (line, line["expect"] if line["expect_1.36"] == "same" else line["expect_1.36"], "1.36")
        for line in lines("dra.jsonl.gz")
        if line.get("expect_1.36") not in (None, "unsupported")
    ]
    assert len(compared) > 200
    check_answers(compared)


def test_devices_are_those_of_the_scheduler_of_1_38() -> None:
    recorded = lines("dra-1.38.jsonl.gz")
    assert len(recorded) >= 90
    check_answers([(line, line["expect"], line["release"]) for line in recorded])


def kind_of(answer: dict[str, Any]) -> object:
    return next(
        (answer[key] if key == "match" else key)
        for key in ("match", "error", "compileError", "notUnderstood")
        if key in answer
    )


@pytest.mark.parametrize("name", ["cel.jsonl.gz", "cel-fresh.jsonl.gz"])
def test_selectors_say_and_cost_what_they_do_in_the_scheduler(name) -> None:
    """Each of them is answered alike.

    Where a map is walked until something is found, the cost is that of one of its orders.
    """
    random = Random(0)
    for line in lines(name):
        expected = kind_of(line["expect"]), line["expect"].get("cost")
        for _ in range(300):
            answer = answer_selector(line, "the vector")
            if "alignup[claims]" in answer.get("notUnderstood", ""):
                # a wheel is tested where there is no google-re2
                assert find_spec("re2") is None
                break

            if (kind_of(answer), answer.get("cost")) == expected:
                break
            assert kind_of(answer) == expected[0], line["expression"]
            assert re.search(r"(?:attributes|\])\.exists\(", line["expression"])
            for values in (
                line["device"].get("attributes", {}),
                line["device"].get("capacity", {}),
            ):
                pairs = random.sample(list(values.items()), len(values))
                values.clear()
                values.update(pairs)
        else:
            pytest.fail(f"another cost: {line['expression']}")


def compare(seeds: range) -> int:
    """Compare the search with the plain walk, and return how many cases were searched."""
    searched = 0
    for seed in seeds:
        random = Random(seed)
        line = scenario(
            random, f"case-{seed}", release=random.choice(("1.37", "1.37", "1.36", "1.35"))
        )
        gates = gates_of(line["release"], line["features"])
        allocated = [read_claim(claim, "allocated") for claim in line["allocated"]]
        try:
            tables = SearchTables(
                Question(
                    node_object({"kind": "Node", **line["node"]}),
                    [read_slice(resource_slice, "slices") for resource_slice in line["slices"]],
                    [read_class(device_class, "classes") for device_class in line["classes"]],
                    tuple(read_claim(claim, "claims") for claim in line["claims"]),
                    in_use(allocated, gates),
                    gates,
                )
            )
            expected = plain_search(tables)
        except (AllocationError, TooLongError):
            continue

        for prune in (True, False):
            outcome, pairs, _ = search(tables, prune=prune, easy_steps=seed % 2 * 100)
            assert (outcome, pairs) == expected, seed

        searched += 1

    return searched


def test_the_search_leaves_out_nothing_that_the_plain_walk_finds() -> None:
    assert compare(range(200)) > 125


@pytest.mark.slow
def test_the_search_leaves_out_nothing_in_thousands_of_cases() -> None:
    assert compare(range(200, 8400)) > 5000


@pytest.mark.parametrize(
    ("requests", "error"),
    [
        (
            {"r": [33]},
            (
                "request r: adding 33 devices exceeds the claim limit of 32, with 0 already "
                "accounted for"
            ),
        ),
        (
            {"a": [20], "b": [20]},
            (
                "request b: adding 20 devices exceeds the claim limit of 32, with 20 already "
                "accounted for"
            ),
        ),
        (
            {"a": [1], "b": [2**63 - 1]},
            f"request b: adding {2**63 - 1} devices exceeds the claim limit of 32, with 1",
        ),
        (
            {"a": [40, 33]},
            (
                "request a: adding 33 devices exceeds the claim limit of 32, with 0 already "
                "accounted for"
            ),
        ),
        ({"r": [32]}, None),
        ({"a": [33, 2]}, None),
        ({"a": [20], "b": [13, 12]}, None),
    ],
)
def test_a_claim_has_32_devices_at_most_in_the_words_of_1_37_2(requests, error) -> None:
    request = {"deviceClassName": "c", "allocationMode": "ExactCount"}
    listed: list[dict[str, Any]] = []
    for name, counts in requests.items():
        if len(counts) == 1:
            listed.append({"name": name, "exactly": {**request, "count": counts[0]}})
        else:
            ways = [{**request, "name": f"s{count}", "count": count} for count in counts]
            listed.append({"name": name, "firstAvailable": ways})

    devices = [{"name": f"d{number}"} for number in range(40)]
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    line = {
        "name": "n",
        "release": "1.37",
        "features": {},
        "node": {"metadata": {"name": "n"}},
        "slices": [
            {
                "metadata": {"name": "s"},
                "spec": {"driver": "d.e", "nodeName": "n", "pool": pool, "devices": devices},
            }
        ],
        "classes": [{"metadata": {"name": "c"}, "spec": {}}],
        "claims": [
            {"metadata": {"name": "c", "namespace": "n"}, "spec": {"devices": {"requests": listed}}}
        ],
        "allocated": [],
    }

    answer = answer_scenario(line, "line")
    assert answer.get("error", "").startswith(f"claim n/c, {error}" if error else "")
    assert (answer["result"] is None) is (error is not None)


@pytest.mark.parametrize(
    ("release", "first", "devices"),
    [
        ("1.36", "b.example", ["plain", "plain"]),
        ("1.36", "a.example", ["d0", "d1"]),
        ("1.37", "b.example", ["plain", "d0"]),
    ],
)
def test_in_1_36_a_pool_whose_counters_are_overdrawn_takes_those_of_its_name_with_it(
    release, first, devices
) -> None:
    """Its allocator looks at the counters of the pool that it comes to first.

    It does so for all pools of that name.
    """
    line = two_pools_of_one_name(first) | {"release": release}
    answer = answer_scenario(line, "line")
    assert "error" not in answer
    assert [result["device"] for result in answer["result"][0]["devices"]] == devices


def two_pools_of_one_name(first: str) -> dict[str, Any]:
    """Return a question about two drivers.

    `b.example` has given out more than it has of a counter.

    The first request is for the driver `first`, the second for `a.example`; both have a device
    without counters.
    """
    slices = []
    for driver, scarce in (("a.example", "4"), ("b.example", "1")):
        devices = [
            {
                "name": name,
                "consumesCounters": [{"counterSet": "s", "counters": {counter: {"value": "1"}}}],
            }
            for name, counter in (("d0", "plenty"), ("d1", "scarce"), ("d2", "scarce"))
        ]
        pool = {"name": "n", "generation": 1, "resourceSliceCount": 2}
        spec = {"driver": driver, "nodeName": "n", "pool": pool}
        counters = [
            {"name": "s", "counters": {"plenty": {"value": "4"}, "scarce": {"value": scarce}}}
        ]
        slices += [
            {
                "metadata": {"name": driver},
                "spec": {**spec, "devices": [*devices, {"name": "plain"}]},
            },
            {
                "metadata": {"name": f"{driver}-counters"},
                "spec": {**spec, "sharedCounters": counters},
            },
        ]

    results = [
        {"request": "r", "driver": "b.example", "pool": "n", "device": name}
        for name in ("d1", "d2")
    ]
    requests = [
        {"name": name, "exactly": {"deviceClassName": driver, "count": count}}
        for name, driver, count in (("r0", first, 1), ("r1", "a.example", 1))
    ]
    holder = {
        "metadata": {"name": "held", "namespace": "n"},
        "status": {"allocation": {"devices": {"results": results}}},
    }
    return {
        "name": "two",
        "features": {},
        "node": {"metadata": {"name": "n"}},
        "slices": slices,
        "classes": [
            {
                "metadata": {"name": driver},
                "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]},
            }
            for driver in ("a.example", "b.example")
        ],
        "claims": [
            {
                "metadata": {"name": "c", "namespace": "n"},
                "spec": {"devices": {"requests": requests}},
            }
        ],
        "allocated": [holder],
    }


def test_devices_that_have_to_go_together_are_the_schedulers() -> None:
    recorded = lines("groups.jsonl.gz")
    assert {line["release"] for line in recorded} == {"1.37", "1.38"}
    check_answers([(line, line["expect"], line["release"]) for line in recorded])


def test_claims_for_extended_resources_are_the_schedulers() -> None:
    """Of kube-scheduler 1.37.2, asked of pods one after another."""
    recorded = lines("extended.jsonl.gz")
    pods = [expect for line in recorded for expect in line["expect"]]
    assert len(pods) >= 500
    assert sum("requests" in expect for expect in pods) >= 150
    assert {"refused": "binding"} in pods
    check_each(_assert_extended, [(line["name"], (line,)) for line in recorded])


def _assert_extended(line: dict[str, Any]) -> None:
    assert extended_answers(line) == line["expect"]
