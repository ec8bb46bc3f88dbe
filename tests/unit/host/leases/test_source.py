"""Getting a lease and giving it back."""

from __future__ import annotations

import math
import os
import subprocess
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import msgspec
import pytest

from alignup.errors import AllocationError, InputError
from alignup.host.leases.file import LeaseFile
from alignup.host.leases.record import PartOf, Waiter
from alignup.host.leases.request import LeaseRequest, make_request
from alignup.host.leases.source import FileSource
from alignup.host.parts.usable import reachable
from alignup.host.processes.identity import identify
from inputs import leasing


@pytest.fixture
def file(tmp_path):
    return LeaseFile(tmp_path / "leases.json", pytest.fail)


@pytest.fixture
def another_process():
    """A process that this one does not wait for."""
    process = subprocess.Popen(["sleep", "1000"])  # noqa: S607  # a test
    yield identify(process.pid)
    process.kill()
    process.wait()


def get(file, demand, wait=None, where=None, process=None, **fields):
    request = LeaseRequest(
        demand, process or identify(os.getpid()), **{"command": "c", "name": "n", **fields}
    )
    return FileSource(file, lambda _: where or leasing.site()).acquire(request, wait).lease


def give_back(file, lease):
    FileSource(file, pytest.fail).give_back(lease)


def test_a_lease_is_in_the_file_until_it_is_given_back(file):
    """Giving back twice is no error."""
    lease = get(file, make_request(cpus=1))
    assert file.read().leases == (lease,)
    give_back(file, lease)
    give_back(file, lease)
    assert file.read().leases == ()


def test_names_are_unique(file):
    """A number makes them so; a wish that cannot be granted is refused."""
    assert [get(file, make_request()).name for _ in range(3)] == ["n", "n-2", "n-3"]
    assert get(file, make_request(name="mine")).name == "mine"
    with pytest.raises(
        AllocationError, match=f"the name 'mine' is in use by process {os.getpid()}"
    ):
        get(file, make_request(name="mine"))


def test_a_dead_process_is_in_nobodys_way(file):
    """Neither its CPUs nor its name."""
    lease = get(file, make_request(cpus=16, name="mine"))
    dead = msgspec.structs.replace(
        lease, process=msgspec.structs.replace(lease.process, start_time=1)
    )
    with file.change() as change:
        change.table = msgspec.structs.replace(change.table, leases=(dead,))
    assert get(file, make_request(cpus=16, name="mine")).cpus == lease.cpus
    assert len(file.read().leases) == 1


def test_a_refusal_leaves_the_file_as_it_was(file):
    """Nothing is half given."""
    lease = get(file, make_request(cpus=10))
    with pytest.raises(AllocationError):
        get(file, make_request(cpus=7))
    assert file.read().leases == (lease,)


def test_the_lease_is_shown_before_it_is_in_the_file(file):
    """Else it could be lost with the file in between."""
    seen = []
    lease = get(
        file, make_request(cpus=1), show=lambda lease, *_: seen.append((lease, file.read().leases))
    )
    assert seen == [(lease, ())]


def test_one_who_waits_gets_it_when_it_is_free(file):
    """And not before."""
    holder = get(file, make_request(cpus=16))
    got = []
    thread = threading.Thread(target=lambda: got.append(get(file, make_request(cpus=2), wait=60)))
    thread.start()
    until(lambda: len(file.read().waiting) == 1)
    assert not got
    give_back(file, holder)
    thread.join()
    assert file.read().leases == tuple(got)
    assert file.read().waiting == ()


def test_nobody_gets_past_one_who_waits_for_the_same(file, another_process):
    """Who came first is served first, and who asks for something else is not kept waiting."""
    holder = get(file, make_request(cpus=10), process=another_process)
    order = []
    threads = []
    for number, cpus in enumerate((16, 1, 15)):
        threads.append(
            threading.Thread(
                target=lambda cpus=cpus: order.append(get(file, make_request(cpus=cpus), wait=60)),
                daemon=True,
            )
        )
        threads[-1].start()
        until(lambda number=number: len(file.read().waiting) == number + 1)

    with pytest.raises(
        AllocationError,
        match=f"earlier requests are waiting for the same resources: pid {os.getpid()}",
    ):
        get(file, make_request(cpus=1))

    give_back(file, get(file, make_request(memory="1Gi")))
    give_back(file, get(file, make_request(devices={leasing.GPU: 1})))
    give_back(file, holder)
    until(lambda: len(order) == 1)
    give_back(file, order[0])  # the first has all
    for thread in threads:
        thread.join()

    assert [len(lease.cpus) for lease in order][:1] == [16]
    assert {len(lease.cpus) for lease in order[1:]} == {1, 15}


def test_one_who_waits_gives_up_in_time(file):
    """And leaves the queue."""
    get(file, make_request(cpus=16))
    with pytest.raises(
        AllocationError, match=r"too few CPUs are free: 1 asked, 0 free.* \(waited for 0.1 s\)"
    ):
        get(file, make_request(cpus=1), wait=0.1)
    assert file.read().waiting == ()


def test_nobody_waits_for_what_can_never_be_had(file):
    """The refusal comes at once."""
    with pytest.raises(AllocationError, match="too few CPUs are free: 17 asked, 16 free"):
        get(file, make_request(cpus=17), wait=math.inf)
    assert file.read().waiting == ()


def test_what_would_be_free_without_any_lease_is_said_to_be_that(file):
    """Somebody has 10 of the 16 CPUs, so that 6 are free."""
    get(file, make_request(cpus=10))
    with pytest.raises(AllocationError, match=r"17 asked, 6 free.*; held now") as refused:
        get(file, make_request(cpus=17))
    assert "waiting" not in str(refused.value)
    with pytest.raises(AllocationError, match=r"17 asked, 16 free.*; that is without any lease"):
        get(file, make_request(cpus=17), wait=math.inf)


def test_an_affinity_mask_that_is_the_limit_is_named(file, monkeypatch):
    """It is not to be seen from the numbers."""
    whole = leasing.machine()
    with monkeypatch.context() as patched:
        patched.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
        cut = reachable(whole)

    where = replace(leasing.site(cut), whole=whole)
    with pytest.raises(
        AllocationError, match=r"may use only CPUs 0-3 of 0-15, by its affinity mask"
    ):
        get(file, make_request(cpus=5), where=where)
    with pytest.raises(AllocationError) as refused:
        get(file, make_request(cpus=17), where=where)
    assert "affinity" not in str(refused.value)
    with pytest.raises(InputError, match=r"5 parts are too many .* may use only CPUs 0-3 of 0-15"):
        get(file, make_request(part=PartOf(0, 5)), where=where)


def until(happened):
    """Wait until something has happened."""
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@contextmanager
def one_who_waits(file, request):
    """Somebody waits for what is not free, until all is given back."""
    waiting = threading.Thread(target=get, args=(file, request, 60))
    waiting.start()
    until(lambda: len(file.read().waiting) == 1)
    yield
    with file.change() as change:
        change.table = msgspec.structs.replace(change.table, leases=())
    waiting.join()


def test_who_holds_what_it_waits_for_is_in_nobodys_way(file):
    """Its own lease does not end while it waits."""
    get(file, make_request(cpus=1))
    with one_who_waits(file, make_request(cpus=16)):
        (waiter,) = file.read().waiting
        assert (waiter.cpus, waiter.name, waiter.policy) == (16, "n", "best-effort")
        assert (os.getpid(), identify(os.getpid()).start_time) in waiter.ancestors
        assert len(get(file, make_request(cpus=15)).cpus) == 15


def test_one_who_passes_does_not_delay_the_first(file, another_process):
    """Whoever ends first."""
    get(file, make_request(cpus=12), process=another_process)
    with one_who_waits(file, make_request(cpus=10)):
        with pytest.raises(AllocationError, match="earlier requests are waiting"):
            get(file, make_request(cpus=7))
        assert len(get(file, make_request(cpus=2)).cpus) == 2


def test_a_queue_of_an_earlier_release_is_not_passed(file):
    """It does not say what is asked for."""
    leasing.put(file, waiting=[Waiter("1", identify(os.getpid()), ("cpu",))])
    with pytest.raises(AllocationError, match=f"waiting for the same resources: pid {os.getpid()}"):
        get(file, make_request(cpus=1))
    get(file, make_request(memory="1Gi"))
