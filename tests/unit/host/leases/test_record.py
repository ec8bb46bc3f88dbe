"""The record of a lease, and the journal's entries about it.

Entries keep their form: an agent of a later release reads those of an earlier one.
"""

from __future__ import annotations

import os

import msgspec
import pytest

from alignup.errors import InputError
from alignup.host.leases.record import (
    Entry,
    Freed,
    Given,
    Joined,
    LeaseRecord,
    Left,
    MemoryShare,
    Waiter,
    check_amounts,
    encode_leases,
    holders,
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


def test_a_record_survives_json():
    """What is written is what is read."""
    lease = leasing.record(
        cpus=CPUSet.parse("0-3,8"),
        numa_nodes=(0, 1),
        memory=(
            MemoryShare(0, "memory", 5),
            MemoryShare(1, "memory", 0),
            MemoryShare(1, "hugepages-2Mi", 2),
        ),
        devices={"a/b": ("x",)},
    )

    assert lease_decoder(LeaseRecord).decode(encode_leases(lease)) == lease
    assert msgspec.json.decode(encode_leases(lease))["cpus"] == "0-3,8"
    assert list(lease.cpus) == [0, 1, 2, 3, 8]
    assert lease.memory_sizes == {"memory": 5, "hugepages-2Mi": 2}
    assert lease.memory_by_node == {"memory": {0: 5, 1: 0}, "hugepages-2Mi": {1: 2}}


@pytest.mark.parametrize("text", ["x", "3-1", 5, None])
def test_cpus_that_are_no_list_are_refused(text):
    """A record that was read can be used."""
    record = msgspec.json.decode(encode_leases(leasing.record())) | {"cpus": text}
    with pytest.raises(msgspec.ValidationError, match=r"\$.cpus"):
        lease_decoder(LeaseRecord).decode(msgspec.json.encode(record))


def test_many_holders_are_cut_short():
    """A sentence names four."""
    text = holders(leasing.record(f"l{i}") for i in range(6))

    assert text.startswith("l0 (pid ")
    assert "l3" in text
    assert text.endswith(" and 2 more")


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


@pytest.mark.parametrize(
    ("largest", "too_large"),
    [
        ({"cpus": CPUSet.from_int(1 << (1 << 20) - 1)}, {"cpus": CPUSet.from_int(1 << (1 << 20))}),
        ({"numa_nodes": (0, 65535)}, {"numa_nodes": (0, 65536)}),
        (
            {"memory": (MemoryShare(65535, "memory", 0),)},
            {"memory": (MemoryShare(-1, "memory", 0),)},
        ),
        (
            {"memory": (MemoryShare(0, "memory", (1 << 60) - 1),)},
            {"memory": (MemoryShare(0, "memory", 1 << 60),)},
        ),
        (
            {
                "memory": (
                    MemoryShare(0, "memory", 1 << 59),
                    MemoryShare(1, "memory", (1 << 59) - 1),
                )
            },
            {"memory": (MemoryShare(0, "memory", 1 << 59), MemoryShare(1, "memory", 1 << 59))},
        ),
        ({}, {"memory": (MemoryShare(0, "memory", -1), MemoryShare(1, "memory", 5))}),
    ],
)
def test_amounts_are_those_that_a_machine_can_have(largest, too_large) -> None:
    check_amounts([leasing.record(**largest)], "the file", (65535,))
    with pytest.raises(InputError, match="the amounts of lease 'one' are impossible, at the file"):
        check_amounts([leasing.record(), leasing.record(**too_large)], "the file")


def test_nodes_to_bind_memory_to_are_those_that_a_machine_can_have() -> None:
    with pytest.raises(InputError, match="impossible"):
        check_amounts([leasing.record()], "the file", (65536,))
