"""Those who wait stand in the order in which they came, one line for each kind of thing."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from alignup.agent.waiting_line import WaitingLine
from alignup.leases.process import identify
from alignup.leases.record import Waiter

ME = identify(os.getpid())


@given(st.lists(st.tuples(st.sampled_from("jl"), st.integers(0, 6), st.sets(st.sampled_from("xyz")))))
def test_the_line_is_as_one_would_write_it(steps):
    """Somebody is a head if nobody before them asks for the same."""
    line, model = WaitingLine(), []
    for step, number, kinds in steps:
        if step == "j":
            waiter = Waiter(str(number), ME, tuple(sorted(kinds)))
            assert line.join(waiter) == all(one.id != waiter.id for one in model)
            if all(one.id != waiter.id for one in model):
                model.append(waiter)
        else:
            assert line.leave(str(number)) == any(one.id == str(number) for one in model)
            model = [one for one in model if one.id != str(number)]
        heads = [
            one
            for index, one in enumerate(model)
            if not any(set(other.kinds) & set(one.kinds) for other in model[:index])
        ]
        assert list(line) == model
        assert line.heads() == heads
        for one in (*model, Waiter("new", ME, tuple(sorted(kinds)))):
            before = model[: model.index(one)] if one in model else model
            firsts = [next((other for other in before if kind in other.kinds), None) for kind in one.kinds]
            assert line.ahead_of(one) == list(dict.fromkeys(first for first in firsts if first))
        assert len(line) == len(model)
        assert all(one.id in line for one in model)


def test_who_asks_for_nothing_waits_for_nobody():
    line = WaitingLine()
    line.join(Waiter("1", ME, ("cpu",)))
    line.join(Waiter("2", ME, ()))
    line.join(Waiter("3", ME, ("cpu",)))
    assert [one.id for one in line.heads()] == ["1", "2"]
    assert line.leave("1")
    assert [one.id for one in line.heads()] == ["2", "3"]
    assert not line.leave("1")
