"""A user sees all of their own leases, and of others' what they hold.

But not whose they are beyond a number.
"""

from __future__ import annotations

import os

import msgspec

from alignup.host.agent.service import shown
from alignup.host.device_plugins.answer import DeviceAnswer
from alignup.host.leases.ledger import Ledger
from alignup.host.leases.request import LeaseRequest, make_request
from alignup.host.leases.users import Limits
from alignup.host.processes.identity import Liveness, identify
from inputs import leasing


def me():
    return identify(os.getpid())


def running(_lease_id):
    return Liveness.RUNNING


def test_users_see_what_they_may():
    ledger = Ledger(leasing.site(), Limits(), 500)
    for lease_id, uid in (("a", 1000), ("b", 1001)):
        ledger.keep(
            ledger.ask(
                LeaseRequest(
                    make_request(cpus=2, name=lease_id),
                    me(),
                    command="secret",
                    name="x",
                    id=lease_id,
                    uid=uid,
                )
            ).id
        )

    own, hidden = (shown_lease.lease for shown_lease in shown(ledger, 1000, running).leases)
    assert (own.name, own.command, own.process) == ("a", "secret", me())
    assert (hidden.name, hidden.command, hidden.process.pid, hidden.id) == (
        "(user 1001)",
        "",
        0,
        "",
    )
    assert len(hidden.cpus) == 2
    assert [shown_lease.lease.name for shown_lease in shown(ledger, 0, running).leases] == [
        "a",
        "b",
    ]


def test_nothing_of_a_lease_is_left_that_says_who_it_is():
    """Every field is either what is held, or is not shown."""
    ledger = Ledger(leasing.site(), Limits(), 500)
    ledger.ask(
        LeaseRequest(
            make_request(cpus=2, name="secret"),
            me(),
            command="secret",
            name="x",
            keeper=me(),
            id="secret",
            uid=1000,
        )
    )
    ledger.keep("secret", DeviceAnswer({"TOKEN": "secret"}), "/secret")

    (shown_lease,) = shown(ledger, 1001, running).leases
    assert shown_lease.state == "running"
    assert (
        "secret" not in msgspec.json.encode(msgspec.to_builtins(shown_lease, enc_hook=str)).decode()
    )
    assert shown_lease.lease.keeper is None
    assert shown_lease.lease.uid == 1000


def test_an_end_is_shown_to_whose_it_is():
    """Others see it until it is taken back."""
    ledger = Ledger(leasing.site(), Limits(), 500)
    ledger.keep(
        ledger.ask(
            LeaseRequest(make_request(cpus=2), me(), command="", name="x", id="a", uid=1000)
        ).id
    )
    states = [
        shown(ledger, uid, {"a": Liveness.GONE}.get).leases[0].state for uid in (0, 500, 1000, 1001)
    ]
    assert states == ["gone"] * 3 + ["running"]
