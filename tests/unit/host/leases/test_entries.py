"""The journal's entries keep their form.

An agent of a later release reads those of an earlier one.
"""

from __future__ import annotations

import os

import msgspec
import pytest

from alignup.host.leases.record import (
    Entry,
    Freed,
    Given,
    Joined,
    LeaseRecord,
    Left,
    Waiter,
    encode_leases,
    lease_decoder,
)
from alignup.host.processes.identity import ProcessIdentity
from alignup.machine.cpuset import CPUSet
from inputs import leasing

SOMEBODY = ProcessIdentity(7, 8, "boot", 9)
PROCESS = (
    '{"pid":7,"startTime":8,"bootId":"boot","pidNamespace":9,'
    '"host":"","hostName":"","timeNamespace":0}'
)
WRITTEN = [
    (Freed("x"), '{"type":"freed","id":"x"}'),
    (Left("x"), '{"type":"left","id":"x"}'),
    (
        Joined(Waiter("x", SOMEBODY, ("cpu",))),
        f'{{"type":"joined","waiter":{{"id":"x","process":{PROCESS},"kinds":["cpu"]}}}}',
    ),
    (
        Given(LeaseRecord("x", "n", SOMEBODY, cpus=CPUSet([0, 1]), uid=5, cgroup="/c")),
        (
            '{"type":"given","lease":{"id":"x","name":"n",'
            f'"process":{PROCESS},"cpus":"0-1","uid":5,"cgroup":"/c"}}}}'
        ),
    ),
]


@pytest.mark.parametrize(("entry", "text"), WRITTEN)
def test_the_form_of_an_entry_stays(entry, text):
    assert encode_leases(entry).decode() == text
    assert lease_decoder(Entry).decode(text) == entry


def test_leases_of_before_there_were_cgroups_have_none():
    lease = leasing.record(pid=os.getpid())
    text = encode_leases(Given(lease))
    assert b"cgroup" not in text
    assert lease_decoder(Entry).decode(text).lease.cgroup == ""


def test_another_kind_of_entry_is_none():
    with pytest.raises(msgspec.ValidationError):
        lease_decoder(Entry).decode(b'{"type":"lost","id":"x"}')
