"""Leases from Python."""

from __future__ import annotations

import os
import threading
import warnings

import pytest

import alignup
from alignup.errors import AllocationError, InputError
from alignup.host.leases import lease as module
from alignup.host.leases.evidence import find_evidence
from alignup.host.leases.file import LeaseFile
from inputs import leasing


@pytest.fixture
def state(tmp_path):
    return tmp_path / "leases.json"


def leases(state):
    return LeaseFile(state, pytest.fail).read().leases


def test_the_calling_thread_runs_on_its_cpus_for_the_while(state):
    """On this very machine; afterwards it runs where it did before."""
    before = os.sched_getaffinity(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # memory cannot be bound everywhere
        with alignup.lease(cpus=1, state=state, name="mine") as lease:
            assert os.sched_getaffinity(0) == set(lease.cpus)
            assert [listed.name for listed in leases(state)] == ["mine"] == [lease.name]
            lease.bind()
            child = {}
            thread = threading.Thread(target=lambda: child.update(cpus=os.sched_getaffinity(0)))
            thread.start()
            thread.join()
            assert child["cpus"] == set(lease.cpus)

    assert os.sched_getaffinity(0) == before
    assert leases(state) == ()


def take(state, **wishes):
    return alignup.lease(machine=leasing.machine(), inventory=leasing.GPUS, state=state, **wishes)


def test_a_lease_says_what_it_has(state):
    """On a machine that is not this one, nothing is bound."""
    before = os.sched_getaffinity(0)
    with take(state, cpus=2, memory="1Gi", devices={leasing.GPU: 1}) as lease:
        assert list(lease.cpus) == [0, 8]
        assert lease.numa_nodes == (0,)
        assert lease.memory == {0: leasing.GI}
        assert lease.devices == {leasing.GPU: ("gpu0",)}
        assert lease.environment()["ALIGNUP_DEVICE_NVIDIA_COM_GPU"] == "gpu0"
        assert "CPUs 0,8" in repr(lease)
        assert os.sched_getaffinity(0) == before
    lease.release()
    assert leases(state) == ()


def test_a_refusal_is_an_error_with_the_reason(state):
    """The same sentence that the command line prints."""
    with (
        take(state, cpus=16),
        pytest.raises(AllocationError, match="too few CPUs are free: 1 asked, 0 free"),
    ):
        take(state, cpus=1)
    with pytest.raises(InputError, match=r"got 'x' at policy$"):
        take(state, policy="x")


def test_a_child_does_not_give_back_its_parents_lease(state):
    """Only who took it can."""
    with take(state, cpus=1) as lease:
        pid = os.fork()
        if pid == 0:
            lease.release()
            os._exit(0)
        os.waitpid(pid, 0)
        assert len(leases(state)) == 1


def test_a_damaged_file_does_not_lose_it(state):
    """It is found in this process's memory, and there is a warning."""
    with take(state, cpus=1, name="mine"):
        state.write_bytes(state.read_bytes()[:-9])
        with (
            pytest.warns(RuntimeWarning, match="found again from running processes: mine"),
            take(state, cpus=1) as two,
        ):
            assert list(two.cpus) == [8]
    assert find_evidence(state) == ()
    assert leases(state) == ()


def test_memory_that_cannot_be_bound_is_a_warning(state, monkeypatch):
    """CPUs are bound all the same."""
    monkeypatch.setattr("alignup.host.processes.binding._set_memory_policy", lambda _mode, _mask: 1)
    with pytest.warns(RuntimeWarning, match="operation not permitted; going on with CPUs"):
        alignup.lease(cpus=1, state=state).release()


def test_a_lease_that_cannot_be_bound_is_given_back(state, monkeypatch):
    """Nobody has it then."""
    before = os.sched_getaffinity(0)

    def refused(_cpus):
        raise AllocationError("no")

    monkeypatch.setattr("alignup.host.processes.binding.bind_cpus", refused)
    with pytest.raises(AllocationError, match="no"):
        alignup.lease(cpus=1, state=state)
    assert leases(state) == ()
    assert os.sched_getaffinity(0) == before


def test_without_files_in_memory_it_works_too(state, monkeypatch):
    """Old kernels have none."""
    monkeypatch.setattr(module, "evidence_file", lambda: None)
    with take(state, cpus=1):
        assert len(leases(state)) == 1
    assert leases(state) == ()


def test_a_released_lease_stays_released(state):
    """It can neither be entered nor bound again."""
    with take(state, cpus=1, name="mine") as lease:
        pass
    with pytest.raises(AllocationError, match="lease 'mine' was released"):
        lease.__enter__()  # a with block would hide which line raises
    with pytest.raises(AllocationError, match="was released"):
        lease.bind()
    assert repr(lease) == "<Lease 'mine': released>"


def test_a_lease_that_nobody_released_is_warned_of(state):
    """As of files that nobody closed."""
    lease = take(state, cpus=1, name="mine")
    with pytest.warns(ResourceWarning, match="lease 'mine' was not released"):
        lease.__del__()  # at a known moment
    lease.release()


def test_errors_speak_of_arguments(state):
    """Not of the command line's options."""
    for wish, place in (
        ({"cpus": -1}, "cpus"),
        ({"memory": "x"}, "memory"),
        ({"devices": {"a/b": -1}}, "devices"),
    ):
        with pytest.raises(InputError, match=rf"at {place}"):
            take(state, **wish)


def test_one_can_wait(state):
    """For so many seconds."""
    with take(state, cpus=16), pytest.raises(AllocationError, match=r"waited for 0\.01 s"):
        take(state, cpus=1, wait=0.01)


def test_a_lease_is_of_devices_that_this_process_sees(state, monkeypatch):
    """Of a file too; an argument lifts it."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    devices = {leasing.GPU: [{"id": f"gpu{number}", "numa": None} for number in range(4)]}
    wishes = {"state": state, "inventory": devices, "devices": {leasing.GPU: 1}, "bind": False}
    with alignup.lease(**wishes) as lease:
        assert lease.devices == {leasing.GPU: ("gpu2",)}
    with alignup.lease(**wishes, all_devices=True) as lease:
        assert lease.devices == {leasing.GPU: ("gpu0",)}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(InputError, match=r"\(''\) hides all; all_devices=True lifts that"):
        alignup.lease(**wishes)
