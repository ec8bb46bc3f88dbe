"""Each user's holdings are counted, and a lease that would be too much is refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import AllocationError
from alignup.host.leases.record import MemoryShare
from alignup.host.leases.users import Limits, Users
from alignup.machine.cpuset import CPUSet
from inputs import leasing

NIC = "example.com/nic"
OWNER = 500
LEASES = st.fixed_dictionaries(
    {
        "cpus": st.frozensets(st.integers(0, 9)).map(CPUSet),
        "memory": st.lists(st.integers(0, 5), max_size=2).map(
            lambda sizes: tuple(
                MemoryShare(node, "memory", size) for node, size in enumerate(sizes)
            )
        ),
        "devices": st.dictionaries(st.just(NIC), st.sampled_from([("a",), ("a", "b")])),
    }
)

GI = 1 << 30
ONE = {"cpus": CPUSet([0, 1]), "memory": (MemoryShare(0, "memory", GI),), "devices": {NIC: ("a",)}}


def lease(name="one", **fields):
    return leasing.record(name, **fields)


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "remove"]), st.integers(1, 2), st.integers(0, 4), LEASES)
    )
)
def test_what_is_counted_is_what_is_held(steps):
    """A lease that is written down again, with the answer of its plugins, counts once."""
    users, model = Users(Limits(), OWNER), {1: {}, 2: {}}
    for step, uid, number, fields in steps:
        name = f"{uid}-{number}"
        recorded = model[uid].get(name)
        if step == "add":
            record = lease(name, **fields)
            if recorded is not None:
                record = msgspec.structs.replace(recorded, policy="again")
            users.add(uid, record)
            model[uid][name] = record
        elif recorded is not None:
            users.remove(uid, recorded)
            del model[uid][name]

        for user, leases in model.items():
            holdings = users.of(user)
            assert holdings.leases == {f"id of {name}": record for name, record in leases.items()}
            assert holdings.names == {name: f"id of {name}" for name in leases}
            assert holdings.amounts["CPUs"] == sum(len(record.cpus) for record in leases.values())
            assert holdings.amounts["bytes of memory"] == sum(
                share.size for record in leases.values() for share in record.memory
            )
            devices = sum(len(record.devices.get(NIC, ())) for record in leases.values())
            assert (holdings.amounts[f"devices of {NIC}"], holdings.amounts["leases"]) == (
                devices,
                len(leases),
            )


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"leases": 1}, "2 leases are more than the 1 that one user may have"),
        ({"cpus": 3}, "4 CPUs are more than the 3 that one user may have"),
        ({"memory": GI}, f"{2 * GI} bytes of memory are more than the {GI} that one user may have"),
        ({"devices": {NIC: 1}}, f"2 devices of {NIC} are more than the 1 that one user may have"),
        ({"devices": {"example.com/gpu": 0}}, ""),
        ({"leases": None, "cpus": 4, "memory": 2 * GI, "devices": {NIC: 2}}, ""),
    ],
)
def test_a_lease_that_would_be_too_much_is_refused(limits, reason):
    """By what the user holds with it; never root's, and not alone."""
    users = Users(Limits(**limits), OWNER)
    for uid in (0, 1000):
        users.add(uid, lease("one", **ONE))
    more = lease("two", **ONE)
    assert users.excess(1000, more) == reason
    assert (
        users.excess(0, more)
        == users.excess(1001, more)
        == users.excess(1000, more, alone=True)
        == ""
    )


def test_a_user_waits_for_some_leases_only():
    """Root may wait for any number."""
    users = Users(Limits(waiting=1), OWNER)
    users.check_waiting(0, 5)
    users.check_waiting(1000, 0)
    with pytest.raises(
        AllocationError, match="too many waiting requests of one user: the limit is 1"
    ):
        users.check_waiting(1000, 1)


def test_who_holds_nothing_is_forgotten():
    """Users come and go for as long as the agent runs."""
    users = Users(Limits(), OWNER)
    users.add(1000, lease())
    users.remove(1000, lease())
    assert users._holdings == {}
    assert users.of(1000) == Users(Limits(), OWNER).of(1000)
