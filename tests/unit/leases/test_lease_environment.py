"""What follows from a lease."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import leasing
from alignup.leases.lease_environment import is_strict, lease_variables, memory_nodes
from alignup.leases.record import MemoryShare
from alignup.leases.recovery import Evidence

SHARES = (MemoryShare(0, "memory", 0), MemoryShare(1, "memory", 5))


@pytest.mark.parametrize(
    ("policy", "strict"),
    [("none", False), ("best-effort", False), ("restricted", True), ("single-numa-node", True)],
)
def test_strict_policies_bind_strictly(policy, strict):
    """Others prefer."""
    assert is_strict(leasing.record(policy=policy)) is strict


@pytest.mark.parametrize(
    ("fields", "nodes"),
    [
        ({"cpu_list": "0", "memory": SHARES, "policy": "none"}, (1,)),
        ({"cpu_list": "0,4", "policy": "restricted"}, (0, 1)),
        ({"cpu_list": "0,4", "policy": "none"}, ()),
        ({}, ()),
    ],
)
def test_memory_follows_what_was_asked_for_and_else_the_cpus(fields, nodes):
    """Under policy none it follows nothing."""
    assert memory_nodes(leasing.record(**fields), leasing.site()) == nodes


def test_nodes_without_memory_are_not_bound_to():
    """The kernel would refuse."""
    site = leasing.site(leasing.machine(memory=0), {})
    assert memory_nodes(leasing.record(cpu_list="0"), site) == ()


def test_a_command_is_told_its_name_its_file_and_what_it_has():
    """And carries the lease with it."""
    lease = leasing.record("n", cpu_list="0", memory=SHARES)
    found = lease_variables(lease, leasing.site(), Path("/s.json"))
    evidence = msgspec.json.decode(found.pop("ALIGNUP_LEASE"), type=Evidence)
    assert (evidence.lease, evidence.state) == (lease, "/s.json")
    assert found == {
        "ALIGNUP_NAME": "n",
        "ALIGNUP_STATE": "/s.json",
        "ALIGNUP_CPUS": "0",
        "ALIGNUP_MEMORY": "5",
    }
