"""Binding to CPUs and memory, on the machine at hand."""

from __future__ import annotations

import errno
import os
import threading

import pytest

from alignup.errors import AllocationError
from alignup.host.processes import binding
from alignup.host.processes.binding import bind, bind_threads, restore, set_memory
from alignup.machine.cpuset import CPUSet


@pytest.fixture
def calls(monkeypatch):
    """The memory policies that would be set; `fail` maps a mode to an error number."""
    made = []
    made_failing = {}

    def set_policy(mode, mask):
        made.append((mode, mask))
        return made_failing.get(mode, 0)

    monkeypatch.setattr(binding, "_set_memory_policy", set_policy)
    monkeypatch.setattr(binding, "_memory_policy", lambda: (0, 0))
    return made, made_failing


def test_cpus_are_bound_and_set_free_again():
    """For the calling thread."""
    before = os.sched_getaffinity(0)
    cpu = min(before)
    earlier, trouble = bind(CPUSet([cpu]), (), strict=False)
    try:
        assert os.sched_getaffinity(0) == {cpu}
        assert trouble == ""
    finally:
        restore(earlier)
    assert os.sched_getaffinity(0) == before


def test_cpus_that_are_not_there_are_refused():
    """And nothing has changed."""
    before = os.sched_getaffinity(0)
    with pytest.raises(
        AllocationError, match="cannot bind this process to CPUs 60000: invalid argument"
    ):
        bind(CPUSet([60000]), (0,), strict=True)
    assert os.sched_getaffinity(0) == before


def test_a_thread_is_freed_by_another_one():
    """Its CPUs; its memory policy is its own. One that ended needs nothing."""
    results = {}
    go, done = threading.Event(), threading.Event()

    def work():
        results["binding"] = bind(CPUSet([min(os.sched_getaffinity(0))]), (), strict=False)[0]
        done.set()
        go.wait()
        results["after"] = os.sched_getaffinity(0)

    before = os.sched_getaffinity(0)
    thread = threading.Thread(target=work)
    thread.start()
    done.wait()
    restore(results["binding"])
    go.set()
    thread.join()
    assert results["after"] == before
    restore(results["binding"])


def test_freeing_can_fail(monkeypatch):
    """The kernel may have taken CPUs away meanwhile."""
    earlier, _ = bind(CPUSet(), (), strict=False)

    def refused(_thread, _cpus):
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "sched_setaffinity", refused)
    with pytest.raises(AllocationError, match=r"this process to CPUs .*: invalid argument"):
        restore(earlier)


def test_memory_is_bound_or_preferred(calls):
    """The modes of set_mempolicy(2)."""
    made, _ = calls
    assert set_memory((0, 3), "bind") == ""
    assert set_memory((2,), "preferred") == ""
    assert set_memory((0, 3), "preferred") == ""
    assert made == [(2, 0b1001), (1, 0b100), (5, 0b1001)]


def test_old_kernels_prefer_the_first_node(calls):
    """They know one preferred node only, and the first is the nearest."""
    made, fail = calls
    fail[5] = errno.EINVAL
    assert set_memory((3, 1), "preferred") == ""
    assert made == [(5, 0b1010), (1, 0b1000)]


@pytest.mark.parametrize(
    ("mode", "expected_call"),
    [("interleave", (3, 0b110)), ("weighted-interleave", (6, 0b110)), ("local", (4, 0))],
)
def test_memory_is_dealt_out_or_local(calls, mode, expected_call):
    """The other modes of set_mempolicy(2)."""
    recorded_calls, _ = calls
    assert set_memory((1, 2), mode) == ""
    assert recorded_calls == [expected_call]


def test_threads_that_are_there_already_are_bound_too():
    """And the calling one."""
    go, done = threading.Event(), threading.Event()
    results = {}

    def work():
        results["thread"] = threading.get_native_id()
        done.set()
        go.wait()

    before = os.sched_getaffinity(0)
    thread = threading.Thread(target=work)
    thread.start()
    done.wait()
    try:
        bind_threads(CPUSet([min(before)]))
        assert os.sched_getaffinity(0) == os.sched_getaffinity(results["thread"]) == {min(before)}
    finally:
        bind_threads(CPUSet(before))
        go.set()
        thread.join()


def test_what_is_not_permitted_is_said(calls):
    """In a sentence, not as an error; and there is nothing to restore then."""
    _, fail = calls
    fail[2] = errno.EPERM
    earlier, trouble = bind(CPUSet(), (0, 1), strict=True)
    assert trouble == "memory is not bound to NUMA nodes 0,1: operation not permitted"
    assert earlier.memory is None


def test_the_memory_policy_is_restored(calls):
    """To what it was."""
    made, _ = calls
    earlier, _ = bind(CPUSet(), (1,), strict=True)
    restore(earlier)
    assert made == [(2, 0b10), (0, 0)]


def test_the_kernel_is_really_asked():
    """Node 0 is there on every machine that has a policy at all; some containers forbid it."""
    before = binding._memory_policy()
    trouble = set_memory((0,), "bind")
    if trouble:
        pytest.skip(trouble)
    assert binding._memory_policy() == (2, 1)
    assert binding._set_memory_policy(*before) == 0
    assert binding._memory_policy() == before
    assert "invalid argument" in set_memory((1000,), "bind")


def test_unknown_architectures_bind_no_memory(monkeypatch):
    """System calls have other numbers there."""
    monkeypatch.setattr(binding, "_NUMBERS", {})
    assert "function not implemented" in set_memory((0,), "bind")
    assert binding._memory_policy() is None


def test_kernels_that_tell_no_policy(monkeypatch):
    """There is nothing to restore then."""
    monkeypatch.setattr(binding, "_call", lambda *_arguments: errno.EPERM)
    assert binding._memory_policy() is None
