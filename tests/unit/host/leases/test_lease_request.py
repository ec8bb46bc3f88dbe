"""A request says what kinds of things it is about, and has its place in the queue."""

from __future__ import annotations

import os

import pytest

from alignup.host.leases.record import PartOf, Waiter
from alignup.host.leases.request import LeaseRequest, Question, make_request, request_of
from alignup.host.processes.identity import identify
from inputs import leasing

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
    demand = make_request(**wishes)
    waiter = LeaseRequest(demand, ME, command="c", name="s", id="x", uid=0).waiter()
    assert (waiter.id, waiter.process, waiter.kinds, waiter.uid) == ("x", ME, kinds, 0)
    tried = request_of(waiter)
    tried_demand = {name: getattr(tried.demand, name) for name in demand.__struct_fields__}
    assert make_request(**tried_demand | {"name": demand.name}) == demand
    assert (tried.holder, tried.id) == (ME, "trial x")
    assert request_of(Waiter("x", ME, kinds)) is None


def test_answers_of_plugins_belong_to_one_request():
    """Found by the question, whoever puts it together again."""
    first, second = (LeaseRequest(make_request(), ME, command="", name="") for _ in range(2))
    first.advice[Question("r", ("a", "b"), (), 1)] = ("b",)
    assert first.advice == {Question("r", ("a", "b"), (), 1): ("b",)}
    assert second.advice == {}
