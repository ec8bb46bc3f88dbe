"""The record of a lease."""

from __future__ import annotations

import msgspec
import pytest

from alignup.host.leases.record import (
    LeaseRecord,
    MemoryShare,
    encode_leases,
    holders,
    lease_decoder,
)
from alignup.machine.cpuset import CPUSet
from inputs import leasing


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
