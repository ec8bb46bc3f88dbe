"""A user sees all of their own leases, and of others' what they hold, but not whose they are beyond a number."""

from __future__ import annotations

import os

import msgspec

import leasing
from alignup.agent.asked import Asked
from alignup.agent.ledger import Ledger
from alignup.agent.shown import leases_shown
from alignup.agent.users import Limits
from alignup.leases.device_answer import DeviceAnswer
from alignup.leases.process import Liveness, identify
from alignup.leases.request import make_request


def me():
    return identify(os.getpid())


def running(_lease_id):
    return Liveness.RUNNING


def test_users_see_what_they_may():
    ledger = Ledger(leasing.site(), Limits(), 500)
    for lease_id, uid in (("a", 1000), ("b", 1001)):
        ledger.keep(
            ledger.ask(Asked(make_request(cpus=2, name=lease_id), lease_id, uid, me(), "secret", "x")).id
        )
    own, other = (one.lease for one in leases_shown(ledger, 1000, running))
    assert (own.name, own.command, own.process) == ("a", "secret", me())
    assert (other.name, other.command, other.process.pid, other.id) == ("(user 1001)", "", 0, "")
    assert len(other.cpus) == 2
    assert [one.lease.name for one in leases_shown(ledger, 0, running)] == ["a", "b"]


def test_nothing_of_a_lease_is_left_that_says_who_it_is():
    """Every field is either what is held, or is not shown."""
    ledger = Ledger(leasing.site(), Limits(), 500)
    ledger.ask(Asked(make_request(cpus=2, name="secret"), "secret", 1000, me(), "secret", "x", me()))
    ledger.keep("secret", DeviceAnswer({"TOKEN": "secret"}), "/secret")
    (other,) = leases_shown(ledger, 1001, running)
    assert other.state == "running"
    assert "secret" not in msgspec.json.encode(msgspec.to_builtins(other, enc_hook=str)).decode()
    assert other.lease.keeper is None
    assert other.lease.uid == 1000


def test_an_end_is_shown_to_whose_it_is():
    """Others see it until it is taken back."""
    ledger = Ledger(leasing.site(), Limits(), 500)
    ledger.keep(ledger.ask(Asked(make_request(cpus=2), "a", 1000, me(), "", "x")).id)
    states = [leases_shown(ledger, uid, {"a": Liveness.GONE}.get)[0].state for uid in (0, 500, 1000, 1001)]
    assert states == ["gone"] * 3 + ["running"]
