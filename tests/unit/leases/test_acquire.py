"""Getting a lease and giving it back."""

from __future__ import annotations

import os

import msgspec
import pytest

import leasing
from alignup.errors import AllocationError
from alignup.leases.acquire import acquire, give_back
from alignup.leases.process import identify
from alignup.leases.request import make_request
from alignup.leases.store import LeaseFile


@pytest.fixture
def file(tmp_path):
    return LeaseFile(tmp_path / "leases.json", pytest.fail)


def get(file, request, **fields):
    return acquire(
        file, leasing.site(), request, identify(os.getpid()), **{"command": "c", "name": "n", **fields}
    )


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
    with pytest.raises(AllocationError, match=f"got 'mine', held by pid {os.getpid()}"):
        get(file, make_request(name="mine"))


def test_a_dead_process_is_in_nobodys_way(file):
    """Neither its CPUs nor its name."""
    lease = get(file, make_request(cpus=16, name="mine"))
    dead = msgspec.structs.replace(lease, process=msgspec.structs.replace(lease.process, start_time=1))
    with file.change() as change:
        change.leases[:] = [dead]
    assert get(file, make_request(cpus=16, name="mine")).cpus == lease.cpus
    assert len(file.read().leases) == 1


def test_a_refusal_leaves_the_file_as_it_was(file):
    """Nothing is half given."""
    lease = get(file, make_request(cpus=10))
    with pytest.raises(AllocationError):
        get(file, make_request(cpus=7))
    assert file.read().leases == (lease,)
