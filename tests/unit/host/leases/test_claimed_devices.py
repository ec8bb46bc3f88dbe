"""Leases with claims: near their CPUs, and given once.

And still there after the ledger was read again.
"""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random

import pytest

import alignup
from alignup.claims.read import resources_of
from alignup.errors import AllocationError, InputError
from alignup.host.leases.lease_node import cut
from alignup.host.leases.ledger import Ledger
from alignup.host.leases.record import PartOf
from alignup.host.leases.request import LeaseRequest, make_request
from alignup.host.leases.users import Limits
from alignup.host.processes.identity import identify
from inputs import leasing
from inputs.small_claims import DRIVER, claim_named, class_of, slice_of, template
from inputs.strategies import seeds

ME, OWNER = identify(os.getpid()), 500
ONE, TWO = "resourceclaim/one", "resourceclaim/two"


def site(nodes=(1, 0, 1, 0)):
    """Return a machine of two NUMA nodes with claims for one and for two devices.

    The devices are near these nodes.
    """
    objects = [slice_of(nodes), class_of(), claim_named("one"), template(2, name="two")]
    return replace(leasing.site(), claims=resources_of(objects, "it"))


def asked(lease_id, **wishes):
    wishes = {"policy": "single-numa-node", **wishes}
    return LeaseRequest(
        make_request(**wishes), ME, command="a command", name="made-up", id=lease_id, uid=OWNER
    )


def keep(books, lease_id, **wishes):
    return books.keep(books.ask(asked(lease_id, **wishes)).id)


def test_devices_of_claims_and_cpus_are_on_one_numa_node_and_given_once():
    ledger = Ledger(site(), Limits(), OWNER)
    leases = [keep(ledger, str(number), cpus=2, devices={ONE: 1}) for number in range(4)]
    near = {f"{DRIVER}/n/d{place}": (node,) for place, node in enumerate((1, 0, 1, 0))}
    assert sorted(lease.devices[ONE][0] for lease in leases) == sorted(near)
    assert [near[lease.devices[ONE][0]] for lease in leases] == [
        lease.numa_nodes for lease in leases
    ]
    with pytest.raises(AllocationError, match="devices of one/0"):
        ledger.ask(asked("x", devices={ONE: 1}))
    ledger.free("2")
    assert keep(ledger, "y", devices={ONE: 1}).devices == leases[2].devices


def test_a_claim_can_be_had_several_times_beside_other_claims_and_devices():
    lease = keep(
        Ledger(site(), Limits(), OWNER),
        "a",
        policy="none",
        devices={ONE: 2, TWO: 1, leasing.GPU: 1},
    )
    assert {name: len(ids) for name, ids in lease.devices.items()} == {
        ONE: 2,
        TWO: 2,
        leasing.GPU: 1,
    }
    assert len({*lease.devices[ONE], *lease.devices[TWO]}) == 4


def test_a_request_that_is_refused_for_its_claims_leaves_no_numa_node_to_others():
    """Its memory was set aside before, on one of two NUMA nodes that are used together."""
    books = Ledger(
        replace(site((0, 1, 0)), machine=leasing.machine(nodes=3), as_kubelet=True), Limits(), OWNER
    )
    keep(books, "claim", policy="restricted", devices={TWO: 1})
    assert keep(books, "wide", policy="best-effort", cpus=9, memory="1Gi").numa_nodes == (0, 1)
    with pytest.raises(AllocationError, match="cannot allocate all claims"):
        books.ask(asked("x", policy="best-effort", cpus=1, memory="1Gi", devices={TWO: 1}))
    assert keep(books, "y", memory="1Gi").numa_nodes == (2,)


def test_a_claim_that_is_not_known_is_named():
    with pytest.raises(InputError, match=r"resourceclaim/one.*resourceclaim/other"):
        Ledger(site(), Limits(), OWNER).ask(asked("a", devices={"resourceclaim/other": 1}))


@pytest.mark.parametrize("seed", seeds(3, 8))
def test_a_ledger_that_is_read_again_goes_on_as_the_first_would(seed):
    random = Random(seed)
    nodes = [random.randrange(2) for _ in range(6)]
    ledger = Ledger(site(nodes), Limits(), OWNER)
    for number in range(40):
        lease_ids = list(ledger.leases)
        if lease_ids and random.random() < 0.4:
            ledger.free(random.choice(lease_ids))
            continue

        wishes = {"cpus": random.randrange(3), "devices": {random.choice((ONE, TWO)): 1}}
        reread = Ledger(site(nodes), Limits(), OWNER)
        reread.restore(ledger.table().leases)
        outcomes = []
        for either in (ledger, reread):
            try:
                lease = keep(either, f"l{number}", **wishes)
                outcomes.append((lease.cpus, lease.devices))
            except AllocationError as error:
                outcomes.append(error.reason)

        assert outcomes[0] == outcomes[1]
        leased_devices = [
            device
            for lease in ledger.leases.values()
            for ids in lease.devices.values()
            for device in ids
        ]
        assert len(leased_devices) == len(set(leased_devices))


def test_leases_that_share_a_device_of_a_claim_are_refused():
    books = Ledger(site(), Limits(), OWNER)
    lease = keep(books, "a", devices={ONE: 1})
    twice = leasing.record("other", cpus=lease.cpus, devices={TWO: lease.devices[ONE]})
    with pytest.raises(InputError, match="conflicts with another lease"):
        books.restore([twice])


def test_parts_have_devices_of_claims_and_a_part_can_be_taken():
    parts = cut(site(), leasing.site().inventory, 2, 0, {ONE: 1})
    assert [(part.numa_nodes, part.devices) for part in parts] == [
        ((0,), {ONE: (f"{DRIVER}/n/d1",)}),
        ((1,), {ONE: (f"{DRIVER}/n/d0",)}),
    ]
    books = Ledger(site(), Limits(), OWNER)
    lease = keep(books, "a", part=PartOf(1, 2), devices={ONE: 1})
    assert (lease.cpus, lease.devices) == (parts[1].cpus, parts[1].devices)
    with pytest.raises(AllocationError):
        books.ask(asked("b", part=PartOf(1, 2), devices={ONE: 1}))


def test_a_process_takes_a_lease_with_a_claim(tmp_path, monkeypatch):
    """As `alignup run --resources` does.

    Beside an agent, which knows its own objects, that is refused.
    """
    objects = [slice_of((1, 0)), class_of(), claim_named("one")]
    options = {
        "machine": leasing.machine(),
        "inventory": {},
        "policy": "single-numa-node",
        "resources": objects,
    }
    state = tmp_path / "leases.json"
    with alignup.lease(cpus=2, devices={ONE: 1}, state=state, **options) as first:
        (device,) = first.devices[ONE]
        assert first.numa_nodes == {f"{DRIVER}/n/d0": (1,), f"{DRIVER}/n/d1": (0,)}[device]
        with alignup.lease(devices={ONE: 1}, state=state, **options) as second:
            assert second.devices[ONE] != first.devices[ONE]
            with pytest.raises(AllocationError, match="devices of one/0"):
                alignup.lease(devices={ONE: 1}, state=state, **options)

    with pytest.raises(InputError, match=r"at resources"):
        alignup.lease(
            devices={ONE: 1}, state=state, **{**options, "resources": [{"kind": "ResourceSlice"}]}
        )

    monkeypatch.setenv("ALIGNUP_AGENT", str(tmp_path / "agent.sock"))
    with pytest.raises(InputError, match="resources is for the agent at"):
        alignup.lease(devices={ONE: 1}, resources=objects)
