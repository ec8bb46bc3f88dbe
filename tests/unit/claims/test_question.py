"""What other claims hold is set against what a pod's claims ask for."""

from __future__ import annotations

import pytest

from alignup.claims.objects import DeviceId
from alignup.claims.question import AllocationError, InUse, in_use
from alignup.claims.read import read_claim
from alignup.claims.scheduler_gates import gates_of
from inputs.claim_questions import claim, devices_of, holder, question, request
from inputs.small_claims import DRIVER

GATES = gates_of()
SHARED = {"shareID": "1", "consumedCapacity": {"memory": "1Gi"}}


def ids(*names: str) -> frozenset[DeviceId]:
    return frozenset(DeviceId(DRIVER, "n", name) for name in names)


def test_a_device_is_held_whole_or_by_shares_that_add_up() -> None:
    holders = [holder("d0"), holder("d1", **SHARED), holder("d1", "d2", **SHARED)]
    used = in_use([read_claim(document, "c") for document in holders], GATES)

    gibibyte = 2**30 * 10**9
    [first, second] = sorted(ids("d1", "d2"))
    assert used.devices == ids("d0")
    assert used.shared == ids("d1", "d2")
    assert used.capacity == {first: {"memory": 2 * gibibyte}, second: {"memory": gibibyte}}


def test_admin_access_holds_nothing() -> None:
    assert in_use([read_claim(holder("d0", adminAccess=True), "c")], GATES) == InUse()


def test_a_claim_without_an_allocation_holds_nothing() -> None:
    assert in_use([read_claim(claim(request()), "c")], GATES) == InUse()


def test_a_share_without_a_capacity_is_a_share() -> None:
    used = in_use([read_claim(holder("d0", shareID="1"), "c")], GATES)
    assert used == InUse(shared=ids("d0"))


def test_without_the_gate_a_share_is_the_whole_device() -> None:
    gates = gates_of("1.37", {"DRAConsumableCapacity": False})
    used = in_use([read_claim(holder("d0", **SHARED), "c")], gates)
    assert used == InUse(devices=ids("d0"))


def test_only_claims_that_wait_are_asked_for() -> None:
    waiting = claim(request(), name="waiting")
    asked_for = question(
        [devices_of({"name": "d0"})], [holder("d0"), waiting], holders=[holder("d1")]
    )
    assert [str(waiting_claim) for waiting_claim in asked_for.claims] == ["default/waiting"]
    assert asked_for.used.devices == ids("d1")
    assert asked_for.excluded == frozenset()


@pytest.mark.parametrize(("args", "kind"), [(("no",), "fatal"), (("no", "node"), "node")])
def test_an_error_is_of_a_kind(args, kind: str) -> None:
    error = AllocationError(*args)
    assert (str(error), error.kind) == ("no", kind)
