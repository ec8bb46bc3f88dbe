"""Records of which one field is there at once, and the others when somebody reads one."""

from __future__ import annotations

import gc
import weakref

import pytest

from alignup.core.late_record import LateRecord
from alignup.records import Record


class Verdict(Record, LateRecord):
    is_good: bool
    reason: str = ""
    weight: int = 0


class Maker:
    """Makes verdicts, and counts how often."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __call__(self, *arguments: object) -> Verdict:
        self.calls.append(arguments)
        return Verdict(True, *arguments)


def test_what_is_given_at_once_is_read_without_making_the_rest() -> None:
    make = Maker()
    verdict = Verdict.later("is_good", True, make, "fine", 3)

    assert verdict.is_good is True
    assert make.calls == []


def test_the_rest_is_made_once() -> None:
    """With the arguments that were given; whichever field is read first, all are there."""
    make = Maker()
    verdict = Verdict.later("is_good", True, make, "fine", 3)

    assert (verdict.weight, verdict.reason, verdict.is_good) == (3, "fine", True)
    assert make.calls == [("fine", 3)]
    assert verdict == Verdict(True, "fine", 3)
    assert hash(verdict) == hash(Verdict(True, "fine", 3))


def test_two_records_equal_each_other_though_neither_was_read() -> None:
    make = Maker()
    verdicts = [Verdict.later("is_good", True, make, "fine", 3) for _ in range(2)]

    assert verdicts[0] == verdicts[1]
    assert verdicts[0] != Verdict.later("is_good", True, make, "fine", 4)


def test_what_is_no_field_is_not_made() -> None:
    make = Maker()
    verdict = Verdict.later("is_good", True, make, "fine")

    with pytest.raises(AttributeError, match="colour"):
        _ = verdict.colour
    assert make.calls == []


def test_an_error_comes_through_and_the_next_reading_tries_again() -> None:
    """A record is never made by halves."""
    answers = [OSError("not now"), Verdict(True, "fine", 3)]

    def make() -> Verdict:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    verdict = Verdict.later("is_good", True, make)
    with pytest.raises(OSError, match="not now"):
        _ = verdict.reason

    assert (verdict.is_good, verdict.reason, verdict.weight) == (True, "fine", 3)


def test_a_record_that_was_made_as_ever_has_nothing_to_make() -> None:
    verdict = Verdict(False, "too wide")

    assert (verdict.is_good, verdict.reason, verdict.weight) == (False, "too wide", 0)
    with pytest.raises(AttributeError, match="colour"):
        _ = verdict.colour


def test_what_a_record_is_made_from_is_let_go_once_it_is_made() -> None:
    """It may be a whole node."""

    class Source:
        pass

    source = Source()
    reference = weakref.ref(source)
    verdict = Verdict.later("is_good", True, lambda _: Verdict(True, "fine"), source)
    del source
    assert reference() is not None
    assert verdict.reason == "fine"

    gc.collect()
    assert reference() is None
