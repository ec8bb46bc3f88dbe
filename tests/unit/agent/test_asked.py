"""A request says what kinds of things it is about, and has its place in the line."""

from __future__ import annotations

import os

import pytest

import leasing
from alignup.agent.asked import Asked, Question, kinds_of
from alignup.leases.process import identify
from alignup.leases.record import Waiter
from alignup.leases.request import PartOf, make_request

ME = identify(os.getpid())


@pytest.mark.parametrize(
    ("wishes", "kinds"),
    [
        ({}, ()),
        ({"cpus": 1}, ("cpu",)),
        ({"part": PartOf(0, 2)}, ("cpu",)),
        ({"memory": "1Gi"}, ("memory",)),
        ({"devices": {leasing.GPU: 1, "a/b": 0}}, (leasing.GPU,)),
        ({"cpus": 1, "memory": 1, "devices": {leasing.GPU: 1}}, (leasing.GPU, "cpu", "memory")),
    ],
)
def test_the_kinds_are_what_is_asked_for(wishes, kinds):
    request = make_request(**wishes)
    assert kinds_of(request) == kinds
    assert Asked(request, "x", 0, ME, "c", "s").waiter == Waiter("x", ME, kinds)


def test_answers_of_plugins_belong_to_one_request():
    """Found by the question, whoever puts it together again."""
    first, second = (Asked(make_request(), str(number), 0, ME, "", "") for number in range(2))
    first.advice[Question("r", ("a", "b"), (), 1)] = ("b",)
    assert first.advice == {Question("r", ("a", "b"), (), 1): ("b",)}
    assert second.advice == {}
