"""Steps are read strictly, and what is wrong is named."""

from __future__ import annotations

import pytest

from alignup.errors import InputError
from alignup.replay.scenario import Remove, Start, read_step, read_steps, steps_of


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ({}, "either"),
        ([], "either"),
        ({"admit": {}, "remove": "x"}, "either"),
        ({"remove": 3}, "the uid of a pod"),
        ({"start": "x"}, "the name of a container"),
        ({"admit": {"spec": 1}}, "expected"),
    ],
)
def test_a_malformed_step_is_refused(step, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        read_step(step)


def test_the_step_is_named() -> None:
    with pytest.raises(InputError, match=r"^steps\[1\]: expected either"):
        read_steps({"steps": [{"remove": "x"}, {}]})


def test_steps_are_a_list() -> None:
    assert steps_of({}) == []
    with pytest.raises(InputError, match="a list of steps"):
        steps_of({"steps": "admit"})


def test_steps_are_records() -> None:
    assert read_steps({"steps": [{"start": "x", "container": "c"}, {"remove": "x"}]}) == [
        Start("x", "c"),
        Remove("x"),
    ]
