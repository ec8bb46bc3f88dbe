"""What Koordinator's released scheduler answered, case by case."""

from __future__ import annotations

import pytest

from inputs.vectors import vectors, vectors_file
from replays.koordinator_answers import filter_case, merge_case


def cases(name):
    if not vectors_file(name).exists():
        pytest.skip(f"no vectors at {vectors_file(name)}")
    return vectors(name)


def disagreements(name, answer):
    return [case["id"] for case in cases(name) if not answers_agree(answer(case), case["expect"])]


def answers_agree(answer, expected):
    """A decoder's message is its own: of a PreFilter error only the code is compared."""
    are_errors = (
        expected.get("prefilter", {}).get("code") == "Error"
        and answer["prefilter"]["code"] == "Error"
    )
    if are_errors:
        answer = answer | {"prefilter": expected["prefilter"]}
    return answer == expected


def test_merge_agrees_on_every_case():
    assert disagreements("koordinator/merge", merge_case) == []


@pytest.mark.parametrize("name", ["koordinator/matrix", "koordinator/filter"])
def test_filter_agrees_on_every_case(name):
    assert disagreements(name, filter_case) == []
