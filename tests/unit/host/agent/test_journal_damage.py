"""Whatever bit of a journal is wrong, no lease that was promised is given again.

And none is forgotten in silence.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from random import Random

import pytest

from alignup.errors import AllocationError, InputError
from alignup.host.agent import journal as module
from alignup.host.agent.journal import Began, line_of, read_entries, settled
from alignup.host.leases.evidence import evidence_of, overlap
from alignup.host.leases.ledger import Ledger
from alignup.host.leases.record import Freed, Given, LeaseRecord, LeaseTable
from alignup.host.leases.request import LeaseRequest, make_request
from alignup.host.leases.users import Limits
from alignup.host.processes.identity import ProcessIdentity
from alignup.machine.cpuset import CPUSet
from inputs import leasing

ENTRIES = 40
SLICES = [1, *(pytest.param(number, marks=pytest.mark.slow) for number in range(41) if number != 1)]
"""Every 41st bit, so that each slice has each bit of a byte; all together have all bits."""
ME = ProcessIdentity(1, 1, "b", 1)
STATE = leasing.site().identity
STATE_FILE = Path("/leases.json")


def request_for(chance, number, **wishes):
    wishes = wishes or {
        "cpus": chance.randint(1, 4),
        "devices": {leasing.GPU: chance.randint(0, 1)},
    }
    return LeaseRequest(
        make_request(**wishes), ME, command="a command", name="x", id=f"{number:016x}"
    )


@cache
def by_id():
    """Return all leases that there ever were."""
    return {
        entry.lease.id: entry.lease
        for line in history()[1]
        if isinstance(entry := module._entry_of(line[:-1]), Given)
    }


@cache
def history(seed=1):
    """Return the text of a journal of what a ledger did, and of each line of it.

    And the leases at the end.
    """
    chance = Random(seed)
    ledger = Ledger(leasing.site(), Limits(), os.geteuid())
    entries = []
    ledger.record = entries.append
    for number in range(10_000):
        ids = list(ledger.leases)
        if ids and chance.random() < 0.4:
            ledger.free(chance.choice(ids))
        else:
            request = request_for(chance, number)
            try:
                ledger.keep(ledger.ask(request).id)
            except AllocationError:
                ledger.join(request)
                ledger.leave(request.id)

        if len(entries) >= ENTRIES and ledger.leases:
            break

    lines = [line_of(Began(1, LeaseTable(STATE))), *map(line_of, entries)]
    return b"".join(lines), lines, tuple(ledger.leases.values())


def bits(number):
    """Return a slice of the positions of all bits of the journal."""
    text, _, _ = history()
    return range(number, 8 * len(text), len(SLICES))


@pytest.fixture
def fast(monkeypatch):
    """All lines but one are those of the flip before."""
    monkeypatch.setattr(module, "_entry_of", cache(module._entry_of))


def check(text, shown, promised=None):
    """Look what an agent would make of a journal."""
    _, _, leases = history()
    try:
        reading = read_entries(text, "j")
        table, message, lost = settled(reading, shown, promised)
    except InputError:
        return  # it does not start, and says why

    restored_leases = {lease.id: lease for lease in table.leases}
    missing = [lease for lease in leases if restored_leases.get(lease.id) != lease]
    assert not missing or lost, "a lease is forgotten, and its CPUs may be given again"
    assert message or set(restored_leases) == {lease.id for lease in leases}, (
        "something is not as it was, and nobody is told"
    )
    if all(by_id().get(lease.id) == lease for lease in table.leases):
        restored(
            tuple(lease.id for lease in table.leases), bool(lost) and "it may have recorded a lease"
        )
    else:
        raise AssertionError("a lease is another than it was")


@cache
def restored(lease_ids, lost):
    """Make sure that a ledger takes the leases over, and gives nothing more if some may be lost."""
    ledger = Ledger(leasing.site(), Limits(), os.geteuid())
    ledger.restore(by_id()[lease_id] for lease_id in lease_ids)  # nothing is held twice
    ledger.closed = lost or ""
    if lost:
        with pytest.raises(AllocationError, match="may have recorded a lease"):
            ledger.ask(request_for(Random(0), 1 << 40, cpus=1))


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("number", SLICES)
def test_a_flipped_bit_costs_nobody_a_lease(number):
    """Processes show nothing: what cannot be known is given to nobody."""
    text, _, _ = history()
    for bit in bits(number):
        damaged = bytearray(text)
        damaged[bit // 8] ^= 1 << bit % 8
        check(bytes(damaged), ())


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("number", SLICES)
def test_with_what_processes_show_all_is_known_again(number):
    """And the number of leases that was written down beside the journal."""
    text, lines, leases = history()
    shown = [evidence_of(lease, STATE, STATE_FILE) for lease in leases]
    for bit in bits(number)[number % 5 :: 5]:
        damaged = bytearray(text)
        damaged[bit // 8] ^= 1 << bit % 8
        check(bytes(damaged), shown)
        if bit // 8 >= len(lines[0]):
            table, _, lost = settled(read_entries(bytes(damaged), "j"), shown, len(leases))
            assert not lost
            assert {lease.id for lease in leases} <= {lease.id for lease in table.leases}


@pytest.mark.usefixtures("fast")
def test_a_cut_within_what_no_fsync_promised_costs_nothing():
    """At every byte after each entry: all before it are known, and nobody is stopped."""
    _, lines, _ = history()
    begun = b""
    for line, after in zip(lines, [*lines[1:], line_of(Freed("x"))], strict=True):
        begun += line
        whole = read_entries(begun, "j")
        for end in range(len(after)):
            reading = read_entries(begun + after[:end], "j")
            assert not reading.damage
            if end < len(after) - 1:
                assert reading.table == whole.table
                assert bool(reading.torn) == bool(end)


def test_a_line_that_ends_in_a_newline_is_not_torn():
    """Another lease may have been in it."""
    _, lines, _ = history()
    entry = line_of(Given(leasing.record("last")))
    for damaged in (entry[:-2] + b"\n", b"x" + entry[1:], entry[: len(entry) // 2] + b"\n"):
        reading = read_entries(b"".join(lines) + damaged, "j")
        assert [damaged_line.line for damaged_line in reading.damage] == [len(lines) + 1]
        where = f"line {len(lines) + 1} of the journal cannot be read"
        assert settled(reading, ())[2] == f"{where}, and may have recorded a lease"


@pytest.mark.parametrize("damaged", [b"", b"\0" * 3000 + b"\n", b"garbage\n" * 100])
def test_of_a_lost_journal_nothing_is_known_but_what_processes_show(damaged):
    _, _, leases = history()
    shown = [evidence_of(lease, STATE, STATE_FILE) for lease in leases]
    table, message, lost = settled(read_entries(damaged, "j"), shown, len(leases))
    assert {lease.id for lease in table.leases} == {lease.id for lease in leases}
    assert "found again from running processes" in message
    if not damaged:
        assert not lost
        assert settled(read_entries(damaged, "j"), shown[1:], len(leases))[2]


def test_two_damaged_lines_hide_a_lease_behind_one_that_ended():
    """The number of leases says nothing then.

    One is known that has ended, and one is not that has not.
    """
    first, second = leasing.record("one"), leasing.record("two")
    lines = [
        line_of(Began(1, LeaseTable(STATE, (first,)))),
        line_of(Freed(first.id)),
        line_of(Given(second)),
    ]
    lines = [lines[0], b"x" + lines[1][1:], line_of(Freed("y")), b"x" + lines[2][1:]]
    table, _, lost = settled(read_entries(b"".join(lines), "j"), (), 1)
    assert (table.leases, bool(lost)) == ((first,), True)


@pytest.mark.parametrize("length", [2, 6, 20, 60])
def test_damage_that_goes_from_one_line_into_the_next_may_hide_a_lease(length):
    """Behind one that ended, too, wherever it begins, and with a newline within it or not."""
    first, second = leasing.record("one"), leasing.record("two")
    began = line_of(Began(1, LeaseTable(STATE, (first,))))
    freed, given = line_of(Freed(first.id)), line_of(Given(second))
    text, border = freed + given, len(freed)
    for start in range(max(0, border - length), border):
        for filling in (b"z" * length, b"z" * (border - 1 - start) + b"\n" + b"z" * length):
            written = text[:start] + filling[:length] + text[start + length :]
            reading = read_entries(began + written, "j")
            table, _, lost = settled(reading, (), 1)
            assert second in table.leases or lost


def test_a_lease_that_was_given_back_is_not_missed():
    """Nobody had a lease when the journal was written last."""
    lease = LeaseRecord(id="0123456789abcdef", name="n", process=ME, command="c" * 200)
    lines = [line_of(Began(1, LeaseTable(STATE))), line_of(Given(lease)), line_of(Freed(lease.id))]
    lines[1] = lines[1][:60] + b"!" + lines[1][61:]
    assert settled(read_entries(b"".join(lines), "j"), (), 0)[2] == ""
    assert settled(read_entries(b"".join(lines[:2]), "j"), (), 1)[2] != ""


def test_what_a_later_lease_has_an_earlier_one_had_given_back():
    """Nothing is given twice: the line that said so cannot be read."""
    ledger, entries = Ledger(leasing.site(), Limits(), os.geteuid()), []
    ledger.record = entries.append
    first = ledger.keep(ledger.ask(request_for(Random(0), 1, cpus=16)).id)
    ledger.free(first.id)
    second = ledger.keep(ledger.ask(request_for(Random(0), 2, cpus=16)).id)
    lines = [line_of(Began(1, LeaseTable(STATE))), *map(line_of, entries)]
    lines[2] = lines[2].replace(b"freed", b"freeX")
    table, message, lost = settled(read_entries(b"".join(lines), "j"), (), 1)
    assert (table.leases, lost) == ((second,), "")
    assert message.startswith("line 3 of the journal cannot be read")


@pytest.mark.parametrize("seed", range(40))
def test_what_is_given_ends_the_leases_that_have_some_of_it(seed):
    """As a plain model has it, which compares each lease with each."""
    random = Random(seed)
    expected: dict[str, LeaseRecord] = {}
    lines = [line_of(Began(1, LeaseTable(STATE))), b"not an entry\n"]
    for _ in range(random.randrange(60)):
        lease_id = f"l{random.randrange(30)}"
        if random.random() < 0.2:
            lines.append(line_of(Freed(lease_id)))
            expected.pop(lease_id, None)
            continue

        lease = LeaseRecord(
            lease_id,
            "x",
            ME,
            cpus=CPUSet(random.sample(range(40), random.randrange(4))),
            devices={
                resource: tuple(random.sample("0123456", random.randrange(3)))
                for resource in random.sample(["x/a", "x/b"], random.randrange(3))
            },
        )
        lines.append(line_of(Given(lease)))
        others = {name: other for name, other in expected.items() if not overlap(other, lease)}
        expected = {**others, lease_id: lease}

    table = read_entries(b"".join(lines), "j").table
    assert {lease.id: lease for lease in table.leases} == expected
