"""Those who wait stand in the order in which they came, one line for each kind of thing."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from alignup.host.leases.record import Waiter
from alignup.host.leases.users import Limits, Users
from alignup.host.leases.wait_queue import Queue, Snapshot
from alignup.host.processes.identity import identify
from alignup.kubernetes.versions import NEWEST
from inputs import leasing

ME = identify(os.getpid())
NOW = Snapshot(leasing.site(), NEWEST, {}, Users(Limits(), 0), 0)
"""Nobody has anything; of waiters whose requests are not known, all block others."""


@given(
    st.lists(st.tuples(st.sampled_from("jl"), st.integers(0, 6), st.sets(st.sampled_from("xyz"))))
)
def test_the_line_is_as_one_would_write_it(steps):
    """Somebody is a head if nobody before them asks for the same."""
    line, model = Queue(), []
    for step, number, kinds in steps:
        if step == "j":
            waiter = Waiter(str(number), ME, tuple(sorted(kinds)))
            line.join(waiter)
            if all(earlier.id != waiter.id for earlier in model):
                model.append(waiter)
        else:
            is_in_line = any(waiter.id == str(number) for waiter in model)
            assert line.leave(str(number)) == is_in_line
            model = [waiter for waiter in model if waiter.id != str(number)]

        assert list(line) == model
        for waiter in (*model, Waiter("new", ME, tuple(sorted(kinds)))):
            before = model[: model.index(waiter)] if waiter in model else model
            firsts = [
                next((earlier for earlier in before if kind in earlier.kinds), None)
                for kind in waiter.kinds
            ]
            assert line.ahead_of(waiter, NOW) == list(
                {first.id: first for first in firsts if first}.values()
            )

        assert len(line) == len(model)
        assert all(waiter.id in line for waiter in model)


def test_who_asks_for_nothing_waits_for_nobody():
    line = Queue()
    line.join(Waiter("1", ME, ("cpu",)))
    line.join(Waiter("2", ME, ()))
    assert line.ahead_of(Waiter("2", ME, ()), NOW) == []
    assert [waiter.id for waiter in line.ahead_of(Waiter("3", ME, ("cpu",)), NOW)] == ["1"]
    assert not line.leave("3")


def test_who_blocks_nobody_is_not_ahead(monkeypatch):
    monkeypatch.setattr(Queue, "blocks", lambda _, waiter, now: waiter.id != "1" and now is NOW)
    line = Queue()
    for name in "123":
        line.join(Waiter(name, ME, ("cpu",)))
    assert [waiter.id for waiter in line.ahead_of(Waiter("4", ME, ("cpu",)), NOW)] == ["2"]
