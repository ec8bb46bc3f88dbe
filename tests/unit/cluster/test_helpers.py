"""Ranges shared among threads: each is done once, whoever does it, and errors come out."""

from __future__ import annotations

import os
import threading

import pytest

from alignup.cluster.cluster import Helpers


def nothing(start, stop):
    """Do a range of nothing."""


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(("length", "part"), [(0, 4), (1, 4), (4, 4), (5, 4), (1000, 7)])
def test_every_element_is_done_once(length, part, threads):
    helpers, done = Helpers(), []
    for _ in range(3):
        done.clear()
        helpers.share(lambda start, stop: done.extend(range(start, stop)), length, part, threads)
        assert sorted(done) == list(range(length))


def test_helpers_stay():
    """The second run starts no thread."""
    helpers, seen = Helpers(), []
    barrier = threading.Barrier(2, timeout=60)

    def both(start, stop):  # noqa: ARG001  # a range
        barrier.wait()
        seen.append(threading.current_thread().name)

    for _ in range(3):
        helpers.share(both, 2, 1, 2)
    assert len(seen) == 6
    assert len(set(seen)) == 2


def test_a_helper_that_has_not_begun_is_not_waited_for():
    """The only helper is busy elsewhere, so the caller does everything."""
    helpers, release, done = Helpers(), threading.Event(), []
    helpers.share(nothing, 2, 1, 2)  # the pool is there
    busy = helpers._pool.submit(release.wait, 10)
    try:
        helpers.share(lambda start, stop: done.append((start, stop)), 3, 1, 2)
        assert done == [(0, 1), (1, 2), (2, 3)]
    finally:
        release.set()
        busy.result()


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_is_raised(threads):
    def fail(start, stop):
        if start == 40:
            raise ValueError(f"expected better, got {start} to {stop}")

    with pytest.raises(ValueError, match="got 40 to 50"):
        Helpers().share(fail, 100, 10, threads)


def test_a_forked_process_starts_threads_of_its_own(monkeypatch):
    helpers = Helpers()
    helpers.share(nothing, 4, 1, 2)
    first = helpers._pool
    monkeypatch.setattr(os, "getpid", lambda: -1)
    helpers.share(nothing, 4, 1, 2)
    assert helpers._pool is not first
