"""What is recognized as a documented deviation, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from inputs.vectors import corner_cases
from replays.deviations import until_reserved_cpus_are_shared
from replays.kubelet_answers import check_case
from rig.managers import compacted

NAMES = ("hand-strict-reserved-cpu-leaks", "smtmix-20002", "uneven-32577")
CASES = {case["name"]: case for case in corner_cases() if case["name"] in NAMES}


def vector_of(name: str) -> dict[str, Any]:
    scenario = {**CASES[name]["scenario"], "kubeletVersion": "1.36"}
    vector = compacted(scenario, [{"expect": CASES[name]["expect"]}])
    assert vector is not None
    return vector


@pytest.mark.parametrize("name", NAMES)
def test_reserved_cpus_in_the_shared_pool_are_the_deviation_strict(name: str) -> None:
    vector = vector_of(name)
    with pytest.raises(AssertionError):
        check_case(vector)

    documented = until_reserved_cpus_are_shared(vector)
    assert documented is not None
    check_case(documented)


@pytest.mark.parametrize("name", NAMES)
def test_what_differs_before_is_not_a_deviation(name: str) -> None:
    vector = vector_of(name)
    documented = until_reserved_cpus_are_shared(vector)
    assert documented is not None
    first = documented["expect"][0]
    changed = {**first, "admitted": not first["admitted"]}
    with pytest.raises(AssertionError):
        check_case({**documented, "expect": [changed, *documented["expect"][1:]]})


def test_without_the_option_nothing_is_left_out() -> None:
    vector = vector_of(NAMES[0])
    kubelet = {**vector["kubelet"], "cpuManagerPolicyOptions": {}}
    assert until_reserved_cpus_are_shared({**vector, "kubelet": kubelet}) is None


def test_a_pool_without_reserved_cpus_is_compared_to_its_end() -> None:
    vector = vector_of(NAMES[0])
    expect = [{**answer, "sharedCpus": "1,3"} for answer in vector["expect"]]
    assert until_reserved_cpus_are_shared({**vector, "expect": expect}) is None
