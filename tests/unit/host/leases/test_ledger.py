"""The ledger of the agent gives what a command without an agent would get.

To many users, in order, and only once.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from alignup.errors import AllocationError, InputError
from alignup.host.device_plugins.answer import DeviceAnswer
from alignup.host.leases.ledger import Ledger
from alignup.host.leases.record import Freed, Given, Joined, Left, PartOf
from alignup.host.leases.request import LeaseRequest, Question, make_request
from alignup.host.leases.users import Limits
from alignup.host.processes.identity import identify
from alignup.machine.cpuset import CPUSet
from alignup.machine.device_inventory import Device
from alignup.machine.machine import PciDevice
from inputs import leasing
from inputs.leasing import Placer
from inputs.strategies import examples

ME = identify(os.getpid())
OWNER, ANN, BOB = 500, 1000, 1001
NIC = "example.com/nic"
NICS = [Device(f"nic{i}", (i % 2,)) for i in range(4)]

WISHES = st.fixed_dictionaries(
    {
        "cpus": st.integers(0, 9),
        "memory": st.sampled_from([0, 0, leasing.GI, 5 * leasing.GI, 17 * leasing.GI]),
        "devices": st.dictionaries(st.sampled_from([leasing.GPU]), st.integers(1, 3)),
        "policy": st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]),
        "part": st.none() | st.none() | st.builds(PartOf, st.integers(0, 3), st.just(4)),
    }
)


def asked(lease_id="a", uid=ANN, **wishes):
    return LeaseRequest(
        make_request(**wishes), ME, command="a command", name="made-up", id=lease_id, uid=uid
    )


def ledger(limits=None, **options):
    made = Ledger(leasing.site(**options), limits or Limits(), OWNER)
    made.entries = []
    made.record = made.entries.append
    return made


def taken(books):
    """Return the entries for the journal since the last call."""
    entries, books.entries[:] = [*books.entries], []
    return entries


def keep(books, *arguments, **wishes):
    lease = books.ask(asked(*arguments, **wishes))
    return books.keep(lease.id)


def test_a_lease_is_set_aside_then_kept_then_freed():
    books = ledger()
    lease = books.ask(asked(cpus=2, memory="1Gi", devices={leasing.GPU: 1}))
    assert (str(lease.cpus), lease.devices, lease.uid, lease.name) == (
        "0,8",
        {leasing.GPU: ("gpu0",)},
        ANN,
        "made-up",
    )
    assert (taken(books), books.table().leases) == ([], ())

    kept = books.keep(lease.id, DeviceAnswer({"A": "1"}))
    assert kept.answer == DeviceAnswer({"A": "1"})
    assert books.table().leases == (kept,)

    assert books.free(lease.id) == kept
    assert taken(books) == [Given(kept), Freed("a")]
    assert books.free(lease.id) is None
    assert books.keep(books.ask(asked("b", cpus=16)).id).cpus == CPUSet(range(16))


def test_what_was_set_aside_and_not_kept_leaves_no_entry():
    books = ledger()
    books.ask(asked(cpus=16))
    with pytest.raises(AllocationError):
        books.ask(asked("b", cpus=1))
    books.free("a")
    assert taken(books) == []
    keep(books, "b", cpus=16)


def test_the_same_request_gets_the_same_lease():
    """Its first answer may have been lost."""
    books = ledger()
    lease = keep(books, cpus=2)
    assert books.ask(asked(cpus=2)) == lease
    assert books.keep("a") == lease
    assert len(taken(books)) == 1
    with pytest.raises(InputError, match="in use by another user"):
        books.ask(asked(cpus=2, uid=BOB))


def test_names_are_a_users_own():
    books = ledger()
    assert keep(books, "a", name="x").name == "x"
    with pytest.raises(AllocationError, match="the name 'x' is in use"):
        books.ask(asked("b", name="x"))
    assert keep(books, "b", BOB, name="x").name == "x"
    assert [keep(books, c).name for c in "cde"] == ["made-up", "made-up-2", "made-up-3"]
    assert (books.named("x", ANN).id, books.named("x", BOB).id) == ("a", "b")
    assert (books.named("made-up", BOB), books.named("made-up", 0).id) == (None, "c")
    assert books.named("made-up", OWNER).id == "c"


def test_refusals_name_a_users_own_leases_only():
    books = ledger()
    keep(books, "a", cpus=8, name="anns")
    keep(books, "b", BOB, cpus=8, name="bobs")
    with pytest.raises(
        AllocationError, match=r"; held now: anns \(pid \d+\), 1 lease of other users$"
    ):
        books.ask(asked("c", cpus=1))
    with pytest.raises(AllocationError, match=r"; held now: anns \(pid \d+\), bobs \(pid \d+\)$"):
        books.ask(asked("c", 0, cpus=1))


@pytest.mark.parametrize(
    ("limits", "wishes", "reason"),
    [
        (Limits(leases=1), {}, "2 leases are more than the 1 that one user"),
        (Limits(cpus=3), {"cpus": 2}, "4 CPUs are more than the 3 that one user"),
        (
            Limits(memory=100),
            {"memory": 60},
            "120 bytes of memory are more than the 100 that one user",
        ),
        (
            Limits(devices={leasing.GPU: 1}),
            {"devices": {leasing.GPU: 1}},
            "2 devices of nvidia.com/gpu are more than the 1",
        ),
    ],
)
def test_a_user_holds_no_more_than_they_may(limits, wishes, reason):
    books = ledger(limits)
    keep(books, "a", **wishes)
    with pytest.raises(AllocationError, match=reason):
        books.ask(asked("b", **wishes))
    keep(books, "b", BOB, **wishes)
    keep(books, "c", 0, **wishes)
    keep(books, "d", 0, **wishes)
    books.free("a")
    keep(books, "e", **wishes)


def test_who_waits_is_served_in_order():
    books = ledger()
    keep(books, "a", cpus=16)
    for lease_id, wishes in (
        ("b", {"cpus": 2}),
        ("c", {"devices": {leasing.GPU: 1}}),
        ("d", {"cpus": 1}),
    ):
        books.join(asked(lease_id, **wishes))

    assert books.heads() == ["b", "c", "d"]
    with pytest.raises(AllocationError, match="earlier requests are waiting"):
        books.ask(asked("e", cpus=1))

    with pytest.raises(AllocationError, match="earlier requests are waiting"):
        books.ask(asked("d", cpus=1))

    books.free("a")
    keep(books, "b", cpus=2)
    assert books.heads() == ["c", "d"]
    books.leave("c")
    keep(books, "d", cpus=1)
    assert (books.heads(), books.waiting) == ([], ())
    kinds = [type(entry) for entry in taken(books)]
    assert kinds == [Given, Joined, Joined, Joined, Freed, Left, Given, Left, Left, Given]


def test_nobody_waits_for_what_can_never_be():
    books = ledger(Limits(cpus=4, waiting=1))
    with pytest.raises(AllocationError, match="too few CPUs are free: 17 asked, 16 free"):
        books.join(asked(cpus=17))
    with pytest.raises(AllocationError, match="5 CPUs are more than the 4 that one user"):
        books.join(asked(cpus=5))
    books.join(asked(cpus=4))
    books.join(asked(cpus=4))
    with pytest.raises(
        AllocationError, match="too many waiting requests of one user: the limit is 1"
    ):
        books.join(asked("b", cpus=1))
    assert len(books.waiting) == 1


def test_a_plugin_is_asked_before_devices_are_given():
    books = ledger()
    books.update(NIC, NICS, has_preferences=True)
    first = asked(devices={NIC: 1})
    question = books.ask(first)
    assert question == Question(NIC, ("nic0", "nic2"), (), 1)
    assert not books.leases
    first.advice[question] = ("nic2",)
    assert books.ask(first).devices == {NIC: ("nic2",)}
    # no choice is left
    assert books.ask(asked("b", devices={NIC: 1})).devices == {NIC: ("nic0",)}


def test_a_plugin_that_failed_to_prefer_refuses():
    books = ledger()
    books.update(NIC, NICS, has_preferences=True)
    first = asked(devices={NIC: 1})
    first.advice[books.ask(first)] = "it hangs"
    with pytest.raises(AllocationError, match="it hangs"):
        books.ask(first)
    keep(books, "b", cpus=1)


def test_resources_that_nobody_has_are_refused():
    with pytest.raises(
        InputError, match=r"a resource that it has \(nvidia.com/gpu\), or .* got 'example.com/nic'"
    ):
        ledger().ask(asked(devices={NIC: 1}))
    with pytest.raises(InputError, match=r"\(none: no device plugin has registered\)") as error:
        ledger(devices={}).ask(asked(devices={NIC: 1}))
    assert "or one that --device-resource of `alignup agent` describes" in str(error.value)


def test_an_option_that_describes_a_resource_is_named():
    gpu = PciDevice("0000:01:00.0", "0302", "10de", "2330", 0)
    site = leasing.site(replace(leasing.machine(), pci_devices=(gpu,)), {})
    with pytest.raises(InputError, match=r"or one that --device-resource nvidia\.com/gpu=\S+ of"):
        Ledger(site, Limits(), OWNER).ask(asked(devices={leasing.GPU: 1}))


def test_a_refusal_says_what_is_wrong_with_a_plugin():
    books = ledger()
    ill = [Device(device.id, device.numa_nodes, healthy=False) for device in NICS]
    books.update(NIC, ill, has_preferences=False, trouble="has disconnected")
    refusal = f"no device of {NIC} is healthy.*; the device plugin of {NIC} has disconnected$"
    with pytest.raises(AllocationError, match=refusal):
        books.ask(asked(devices={NIC: 1}))

    books.update(NIC, ill, has_preferences=False)
    with pytest.raises(AllocationError, match=r"4 unhealthy$"):
        books.ask(asked(devices={NIC: 1}))


def test_a_refusal_says_that_a_plugin_has_not_come_back():
    books = ledger(devices={})
    books.update(NIC, NICS, has_preferences=False)
    keep(books, devices={NIC: 1})
    again = ledger(devices={})
    again.restore(books.table().leases)
    refusal = f"the device plugin of {NIC} has not registered since the agent was started; held now"
    with pytest.raises(AllocationError, match=refusal):
        again.ask(asked("b", devices={NIC: 1}))


def test_a_plugin_that_may_yet_register_is_waited_for():
    """But only by who is willing to, and for what the rest of the machine can give."""
    books = ledger()
    books.await_plugins(awaits=True)
    request = asked(cpus=12, devices={NIC: 1})
    for _ in range(2):
        with pytest.raises(AllocationError, match=f"no device plugin of {NIC} has registered yet"):
            books.ask(request)
        books.join(request)

    with pytest.raises(AllocationError, match="too few CPUs are free: 17 asked"):
        books.join(asked("b", cpus=17, devices={NIC: 1}))
    with pytest.raises(InputError, match="'resourceclaim/gpu'"):
        books.ask(asked("b", devices={"resourceclaim/gpu": 1}))
    with pytest.raises(InputError, match="'gpus'"):
        books.ask(asked("b", devices={"gpus": 1}))

    # it keeps its place
    with pytest.raises(AllocationError, match="earlier requests are waiting"):
        books.ask(asked("b", cpus=8))
    assert keep(books, "b", cpus=4).id == "b"

    books.update(NIC, NICS, has_preferences=False)
    assert books.heads() == ["a"]
    assert keep(books, cpus=12, devices={NIC: 1}).devices == {NIC: ("nic0",)}


def test_a_plugin_that_does_not_register_in_time_holds_up_nobody():
    """Those who wait for it go on waiting; who comes later is told that there is no such thing."""
    books = ledger()
    books.await_plugins(awaits=True)
    request = asked(cpus=12, devices={NIC: 1})
    books.join(request)
    part = asked("p", part=PartOf(0, 2), devices={NIC: 2})
    books.join(part)

    books.await_plugins(awaits=False)
    assert keep(books, "b", cpus=8).id == "b"
    with pytest.raises(InputError, match="a resource that it has"):
        books.ask(asked("c", devices={NIC: 1}))
    with pytest.raises(AllocationError, match="has registered yet"):
        books.ask(request)

    books.update(NIC, NICS, has_preferences=False)
    with pytest.raises(AllocationError, match="too few CPUs are free"):
        books.ask(request)
    books.free("b")
    assert keep(books, cpus=12, devices={NIC: 1}).id == "a"


@pytest.mark.parametrize("has_driver", [False, True])
def test_what_leases_hold_is_not_all_that_a_plugin_has(has_driver):
    """After a restart their devices alone are known, or those by the names of the driver."""
    books = ledger(devices={})
    books.update(leasing.GPU, [Device(f"u::{i}", (0,)) for i in range(3)], has_preferences=False)
    lease = books.ask(asked(devices={leasing.GPU: 1}))
    books.keep(lease.id, DeviceAnswer({"A": "1"}))
    second = asked("b", BOB, cpus=2, devices={leasing.GPU: 2})
    table = books.table()

    again = ledger(devices={leasing.GPU: [{"id": "u", "numa": [0]}]} if has_driver else {})
    again.await_plugins(awaits=True)
    again.restore(table.leases, [second.waiter()])
    third = asked("c", BOB, devices={leasing.GPU: 2})
    for request in (second, third):
        with pytest.raises(AllocationError, match="has registered yet"):
            again.ask(request)
        again.join(request)
    with pytest.raises(AllocationError, match="earlier requests are waiting"):
        again.ask(asked("d", cpus=16))

    again.update(leasing.GPU, [Device(f"u::{i}", (0,)) for i in range(3)], has_preferences=False)
    assert again.heads()[0] == "b"
    got = again.ask(second)
    assert got.devices == {leasing.GPU: ("u::1", "u::2")}


def test_a_restart_resumes_the_same_holdings_and_order():
    books = ledger()
    books.update(NIC, NICS, has_preferences=False)
    keep(books, "a", cpus=3, memory="3Gi", devices={NIC: 1, leasing.GPU: 2})
    keep(books, "b", BOB, cpus=2)
    books.join(asked("c", cpus=12))
    table = books.table()
    again = ledger()
    assert again.restore(table.leases, table.waiting) == []
    assert again.table() == table
    # the plugin has not registered yet; when it does, what is held is not free
    with pytest.raises(AllocationError):
        again.ask(asked("d", 0, devices={NIC: 1}))

    again.update(NIC, NICS, has_preferences=False)
    assert keep(again, "d", 0, devices={NIC: 3}).devices == {NIC: ("nic1", "nic2", "nic3")}
    again.join(asked("c", cpus=12))
    assert again.heads() == ["c"]
    again.free("a")
    assert keep(again, "c", cpus=12).id == "c"


def test_a_machine_that_has_changed_is_told_of():
    books = ledger()
    keep(books, "a", cpus=16, name="big")
    small = Ledger(leasing.site(leasing.machine(nodes=1), {}), Limits(), OWNER)
    (notice,) = small.restore(books.table().leases)
    assert notice == "lease 'big' has CPUs 8-15, which this machine lacks now"
    small.free("a")
    keep(small, "b", cpus=8)


def test_leases_that_share_something_are_not_taken_over():
    books = ledger()
    lease = keep(books, "a", cpus=2)
    twin = msgspec.structs.replace(lease, id="b", name="twin")
    with pytest.raises(InputError, match="lease 'twin' conflicts with another"):
        ledger().restore([lease, twin])


def test_leases_of_a_file_are_the_owners():
    books = ledger()
    books.restore([leasing.record("old")])
    (lease,) = books.leases.values()
    assert books.users.owner_of(lease) == OWNER
    assert books.named("old", OWNER) == lease
    assert books.free(lease.id) == lease


def test_parts_are_given_once():
    books = ledger()
    keep(books, "a", part=PartOf(0, 4), memory="1Gi", devices={leasing.GPU: 1})
    with pytest.raises(AllocationError, match=r"part 0 of the machine .* is not free"):
        books.ask(asked("b", part=PartOf(0, 4)))
    keep(books, "b", part=PartOf(1, 4), devices={leasing.GPU: 1})


def test_without_memory_there_is_none_to_have():
    books = ledger(made=leasing.machine(memory=0))
    keep(books, "a", cpus=1)
    with pytest.raises(InputError, match="a machine with memory"):
        books.ask(asked("b", memory=1))


def answer_of(place):
    """Return a lease, or why there is none."""
    try:
        return place(), ""
    except (AllocationError, InputError) as refusal:
        message = re.sub(r"while lease/.*? holds? ", "while somebody holds ", str(refusal))
        return None, f"{type(refusal).__name__} {message}"


class AsWithoutAnAgent(RuleBasedStateMachine):
    """Every request gets from the ledger what `Placer` finds for it.

    That starts from the leases each time.
    """

    lease_ids = Bundle("lease_ids")

    def __init__(self):
        super().__init__()
        self.site = leasing.site()
        self.ledger = Ledger(self.site, Limits(), OWNER)
        self.number = 0

    @rule(target=lease_ids, wishes=WISHES)
    def ask(self, wishes):
        request = make_request(**wishes)
        self.number += 1
        lease_id = str(self.number)
        expected, why = answer_of(
            lambda: Placer(self.site, request).place(
                ME, lease_id, "", tuple(self.ledger.leases.values())
            )
        )
        lease, refusal = answer_of(
            lambda: self.ledger.ask(
                LeaseRequest(request, ME, command="", name=lease_id, id=lease_id, uid=0)
            )
        )
        assert refusal == why
        if lease is None:
            return ""

        self.ledger.keep(lease_id)
        for name in ("cpus", "memory", "devices", "numa_nodes", "policy"):
            assert getattr(lease, name) == getattr(expected, name), name

        return lease_id

    @rule(lease_id=consumes(lease_ids))
    def free(self, lease_id):
        self.ledger.free(lease_id)

    @rule()
    def restart(self):
        """Replay what the journal would say."""
        table = self.ledger.table()
        self.ledger = Ledger(self.site, Limits(), OWNER)
        self.ledger.restore(table.leases, table.waiting)

    @invariant()
    def nothing_is_held_twice(self):
        cpus = [cpu for lease in self.ledger.leases.values() for cpu in lease.cpus]
        assert len(cpus) == len(set(cpus))


TestAsWithoutAnAgent = AsWithoutAnAgent.TestCase
TestAsWithoutAnAgent.settings = settings(examples(60), stateful_step_count=20)


class WithPluginsAndAQueue(RuleBasedStateMachine):
    """Whatever plugins report and whoever waits.

    What is not given is free, and nothing is given twice.
    """

    def __init__(self):
        super().__init__()
        self.ledger = ledger()
        self.given = {}
        self.waiting = {}
        self.number = 0
        self.ledger.update(NIC, NICS, has_preferences=False)

    def trial(self, request):
        try:
            lease = self.ledger.ask(request)
        except (AllocationError, InputError):
            return False
        self.given[request.id] = self.ledger.keep(lease.id)
        self.waiting.pop(request.id, None)
        return True

    @rule(
        cpus=st.integers(0, 12),
        memory=st.sampled_from([0, 0, leasing.GI]),
        nics=st.sampled_from([0, 0, 1, 2]),
        waits=st.booleans(),
    )
    def ask(self, cpus, memory, nics, waits):
        self.number += 1
        request = asked(
            f"{self.number:016}", cpus=cpus, memory=memory, devices={NIC: nics} if nics else {}
        )
        request = replace(request, holder=msgspec.structs.replace(ME, pid=70_000 + self.number))
        if not self.trial(request) and waits:
            with suppress(AllocationError, InputError):
                self.ledger.join(request)
                self.waiting[request.id] = request

    @rule(healthy=st.dictionaries(st.sampled_from([nic.id for nic in NICS]), st.booleans()))
    def report(self, healthy):
        devices = [replace(nic, healthy=healthy[nic.id]) for nic in NICS if nic.id in healthy]
        self.ledger.update(NIC, devices, has_preferences=False)

    @rule(data=st.data())
    def free(self, data):
        if self.given:
            lease_id = data.draw(st.sampled_from(sorted(self.given)))
            assert self.ledger.free(lease_id) == self.given.pop(lease_id)

    @rule()
    def try_again(self):
        for lease_id in self.ledger.heads():
            self.trial(self.waiting[lease_id])

    @rule(data=st.data())
    def leave(self, data):
        if self.waiting:
            lease_id = data.draw(st.sampled_from(sorted(self.waiting)))
            self.ledger.leave(lease_id)
            del self.waiting[lease_id]

    @invariant()
    def what_is_not_given_is_free(self):
        assert self.ledger.leases == self.given
        assert {waiter.id for waiter in self.ledger.waiting} == set(self.waiting)
        for amounts in (
            [cpu for lease in self.given.values() for cpu in lease.cpus],
            [nic for lease in self.given.values() for nic in lease.devices.get(NIC, ())],
        ):
            assert len(amounts) == len(set(amounts))


TestWithPluginsAndAQueue = WithPluginsAndAQueue.TestCase
TestWithPluginsAndAQueue.settings = settings(examples(100), stateful_step_count=40)


def waiting_for(books, lease_id, *, above=(), uid=ANN, **wishes):
    request = replace(
        asked(lease_id, uid, **wishes),
        ancestors=tuple((ancestor.pid, ancestor.start_time) for ancestor in above),
    )
    books.join(request)
    return request


def held_by(books, lease_id, process, uid=ANN, **wishes):
    return books.keep(books.ask(replace(asked(lease_id, uid, **wishes), holder=process)).id)


OUTER, OTHER = (msgspec.structs.replace(ME, pid=pid) for pid in (70_000, 70_001))


def test_what_can_never_be_blocks_nobody():
    """Who holds one CPU and waits for all: neither the process itself nor what it has started."""
    books = ledger()
    held_by(books, "a", OUTER, cpus=1)
    first = waiting_for(books, "b", above=[ME, OUTER], cpus=16)
    assert len(keep(books, "c", BOB, cpus=15).cpus) == 15
    books.free("c")
    books.free("a")
    with pytest.raises(
        AllocationError, match="waiting for the same resources: 1 request of other users"
    ):
        books.ask(asked("d", BOB, cpus=1))
    assert len(books.keep(books.ask(first).id).cpus) == 16


def test_a_lease_of_an_earlier_process_of_that_number_is_not_ones_own():
    """Numbers are used again: it may end while somebody waits."""
    books = ledger()
    earlier = msgspec.structs.replace(OUTER, start_time=OUTER.start_time - 1)
    held_by(books, "a", earlier, cpus=1)
    waiting_for(books, "b", above=[ME, OUTER], cpus=16)
    with pytest.raises(
        AllocationError, match="waiting for the same resources: 1 request of other users"
    ):
        books.ask(asked("c", BOB, cpus=15))


def test_who_is_at_a_limit_blocks_nobody():
    books = ledger(Limits(cpus=8))
    keep(books, "a", cpus=8)
    waiting_for(books, "b", cpus=1)
    keep(books, "c", BOB, cpus=8)
    books.free("a")
    assert books.heads() == ["b"]
    with pytest.raises(AllocationError, match="waiting for the same resources: pid"):
        books.ask(asked("d", 0, cpus=8))


def test_devices_that_are_ill_are_waited_for_by_who_needs_them_only():
    """They may never be well again."""
    books = ledger()
    books.update(
        NIC, [Device("nic0", (0,), healthy=False), Device("nic1", (0,))], has_preferences=False
    )
    waiting_for(books, "a", devices={NIC: 2})
    keep(books, "b", BOB, devices={NIC: 1})
    books.free("b")
    books.update(NIC, NICS, has_preferences=False)
    keep(books, "a", devices={NIC: 2})


def test_devices_that_are_reported_no_longer_stay_with_their_lease():
    books = ledger()
    books.update(NIC, NICS, has_preferences=False)
    held_by(books, "a", OTHER, cpus=9, devices={NIC: 1})
    waiting_for(books, "b", cpus=10)
    books.update(NIC, NICS[1:], has_preferences=False)
    assert Device("nic0", (0,), healthy=False) in books.node.inventory[NIC]
    assert keep(books, "c", BOB, cpus=6).cpus
    books.free("a")
    with pytest.raises(AllocationError):
        books.ask(asked("d", BOB, devices={NIC: 4}))
    books.update(NIC, NICS[1:], has_preferences=False)
    assert books.node.inventory[NIC] == tuple(NICS[1:])


def test_what_was_set_aside_is_free_again_if_it_cannot_be_judged_who_may_pass(monkeypatch):
    books = ledger()
    held_by(books, "a", OTHER, cpus=9)
    waiting_for(books, "b", cpus=10)

    def fails(*_):
        raise AllocationError("made to fail")

    monkeypatch.setattr("alignup.host.leases.wait_queue.Queue.delays", fails)
    with pytest.raises(AllocationError, match="made to fail"):
        books.ask(asked("c", BOB, cpus=6))
    assert list(books.leases) == ["a"]


def test_one_who_passes_never_delays_the_first():
    """Were any of the leases to end first."""
    books = ledger()
    held_by(books, "a", OTHER, cpus=9)
    held_by(books, "b", OTHER, cpus=1)
    waiting_for(books, "c", cpus=7)
    with pytest.raises(AllocationError, match="earlier requests are waiting"):
        books.ask(asked("d", BOB, cpus=1))  # the end of b alone is enough for the first

    books.free("b")
    books.leave("c")
    held_by(books, "b", OTHER, cpus=4)
    waiting_for(books, "e", cpus=6)
    assert len(keep(books, "f", BOB, cpus=1).cpus) == 1  # whichever ends, six are free
    with pytest.raises(AllocationError, match="earlier requests are waiting"):
        books.ask(asked("g", BOB, cpus=2))


def test_with_too_many_leases_to_tell_nobody_passes(monkeypatch):
    monkeypatch.setattr("alignup.host.leases.wait_queue._MOST_LEASES", 1)
    books = ledger()
    held_by(books, "a", OTHER, cpus=9)
    held_by(books, "b", OTHER, cpus=4)
    waiting_for(books, "e", cpus=6)
    with pytest.raises(AllocationError, match="earlier requests are waiting"):
        books.ask(asked("f", BOB, cpus=1))


def test_what_is_passed_on_trial_stays_as_it_was():
    books = ledger()
    held_by(books, "a", OTHER, cpus=12, memory="10Gi")
    waiting_for(books, "c", cpus=14)
    taken(books)
    before = (books.table(), books.amounts())
    with pytest.raises(AllocationError, match="earlier requests are waiting"):
        books.ask(asked("d", BOB, cpus=3))
    assert (books.table(), books.amounts(), taken(books)) == (*before, [])


def test_amounts_count_a_device_for_its_own_resource():
    """One lease has devices of several resources, which go by the same ids."""
    places = [{"id": "0", "numa": [0]}, {"id": "1", "numa": [0, 1]}, {"id": "2"}]
    books = ledger(devices={leasing.GPU: places, NIC: places})
    books.restore([leasing.record(devices={leasing.GPU: ("0", "1"), NIC: ("2",)})])
    amounts = books.amounts()

    by_place = {
        resource: [amounts[near, resource] for near in ("0", "0+1", "")]
        for resource in (leasing.GPU, NIC)
    }
    assert by_place == {leasing.GPU: [(0, 1), (0, 1), (1, 0)], NIC: [(1, 0), (1, 0), (0, 1)]}


def test_a_lease_that_lists_a_device_twice_is_refused():
    """Nothing that a command asks for has it twice, but a file that somebody wrote may."""
    books = ledger()
    with pytest.raises(InputError, match=r"or with itself: .* named twice: gpu0"):
        books.restore([leasing.record(devices={leasing.GPU: ("gpu0", "gpu0")})])


def test_users_hear_nothing_of_other_users_names():
    """Neither where a part is in use nor where memory is."""
    books = ledger()
    keep(books, "a", BOB, part=PartOf(0, 4), memory="9Gi", name="secret")
    for wishes in (
        {"part": PartOf(0, 4)},
        {"memory": "24Gi", "policy": "restricted"},
        {"cpus": 15},
    ):
        with pytest.raises(AllocationError) as refused:
            books.ask(asked("b", **wishes))
        assert "secret" not in str(refused.value)

    with pytest.raises(AllocationError, match="in use by 'user 1001'"):
        books.ask(asked("b", part=PartOf(0, 4)))

    with pytest.raises(AllocationError, match="in use by 'secret'"):
        books.ask(asked("b", 0, part=PartOf(0, 4)))


def test_a_closed_ledger_gives_nothing_new():
    books = ledger()
    lease = keep(books, "a", cpus=2)
    books.closed = "an operator has to look"
    assert books.ask(asked("a", cpus=2)) == lease
    with pytest.raises(AllocationError, match="an operator has to look"):
        books.ask(asked("b"))
    assert books.free("a") == lease


@examples(40)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.integers(2, 16),
    st.integers(1, 6),
    st.lists(st.randoms(use_true_random=False), min_size=1, max_size=1),
)
def test_the_first_starts_no_later_whoever_ends_first(sizes, first_cpus, passing_cpus, chances):
    """Compared with a ledger where nobody has passed, over all orders of ends."""
    books = ledger()
    ids = []
    for number, cpus in enumerate(sizes):
        try:
            ids.append(held_by(books, f"held{number}", OTHER, cpus=cpus, policy="none").id)
        except AllocationError:
            break

    first = asked("first", cpus=first_cpus, policy="none")
    try:
        books.ask(first)
    except AllocationError:
        pass
    else:
        return  # it does not wait

    books.join(first)
    try:
        keep(books, "passing", BOB, cpus=passing_cpus, policy="none")
    except AllocationError:
        return

    free = 16 - sum(sizes[: len(ids)])
    chances[0].shuffle(ids)
    for lease_id in ids:
        free += len(books.free(lease_id).cpus)
        if free >= first_cpus:
            assert len(books.ask(first).cpus) == first_cpus
            return
