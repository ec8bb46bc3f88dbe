"""What was written is read again, whatever moment the end came at; what is damaged is not believed."""

from __future__ import annotations

import asyncio
import errno
import os

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import leasing
from alignup.agent import journal as module
from alignup.agent.entries import Freed, Given, Joined, Left
from alignup.agent.journal import Journal, LostJournalError, read_journal, write_journal
from alignup.errors import InputError
from alignup.leases.process import identify
from alignup.leases.record import LeaseTable, MachineIdentity, Waiter

MACHINE = MachineIdentity("f", "a machine")
ME = identify(os.getpid())


def gone(name):
    """Return a lease of a process that is gone."""
    lease = leasing.record(name)
    return msgspec.structs.replace(lease, process=msgspec.structs.replace(ME, start_time=1))


def written(path, batches, *, durable=True, table=LeaseTable, failed=pytest.fail, more=()):
    """Write batches of entries, each after the one before; return how often somebody was told.

    Where writing fails, `more` comes after that.
    """
    told, failures = [], []

    def fail(error):
        failures.append(error)
        failed(error)

    async def work():
        journal = Journal(path, table, fail, durable=durable)
        writing = asyncio.create_task(journal.run())
        for batch in batches:
            journal.append(batch, lambda: told.append(1))
        for _ in range(60_000):
            if len(told) == len(batches) or failures:
                break
            await asyncio.sleep(0.001)
        for batch in more:
            journal.append(batch, lambda: told.append(1))
        writing.cancel()
        journal.close()
        return journal.commits

    return asyncio.run(work()), len(told)


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "journal"
    write_journal(found, LeaseTable(MACHINE))
    return found


@pytest.mark.parametrize("durable", [True, False])
def test_what_is_written_is_read(path, durable):
    one, two = leasing.record("one"), leasing.record("two")
    waiter, other = Waiter("w", ME, ("cpu",)), Waiter("x", ME)
    batches = [
        [Given(one), Joined(waiter)],
        [Given(two), Freed(one.id), Freed("unknown")],
        [Joined(other), Left("w")],
    ]
    _, told = written(path, batches, durable=durable)
    assert told == 3
    assert read_journal(path) == (LeaseTable(MACHINE, (two,), (other,)), "")


def test_entries_that_come_together_are_written_together(path):
    commits, told = written(path, [[Freed(str(number))] for number in range(100)])
    assert told == 100
    assert commits < 10


def test_a_large_journal_is_made_anew(path, monkeypatch):
    monkeypatch.setattr(module, "_LARGEST", 500)
    table = LeaseTable(MACHINE, (leasing.record("now"),))
    written(path, [[Freed(str(number))] for number in range(100)], table=lambda: table, durable=False)
    assert path.stat().st_size < 3000
    assert read_journal(path) == (table, "")


@given(st.data())
def test_whatever_is_torn_off_was_promised_to_nobody(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("j") / "journal"
    write_journal(path, LeaseTable(MACHINE))
    leases = [leasing.record(str(number)) for number in range(3)]
    ends = [path.stat().st_size]
    for lease in leases:
        written(path, [[Given(lease)]], durable=False)
        ends.append(path.stat().st_size)
    cut = data.draw(st.integers(ends[0], ends[-1]))
    os.truncate(path, cut)
    table, words = read_journal(path)
    assert table.leases == tuple(lease for lease, end in zip(leases, ends[1:], strict=True) if end - 1 <= cut)
    assert bool(words) == (not {cut, cut + 1} & {*ends})


def test_damage_in_the_middle_is_not_passed_over(path):
    written(path, [[Given(leasing.record("one"))], [Given(leasing.record("two"))]], durable=False)
    lines = path.read_bytes().split(b"\n")
    lines[1] = lines[1][:-1] + b"!"
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(InputError, match=r"a whole line, or all processes of the journal gone, .*journal:2"):
        read_journal(path)


def test_damage_is_of_no_matter_once_all_are_gone(path):
    """As after the power was cut: then nobody holds anything."""
    written(path, [[Given(gone("one"))], [Freed("x")], [Given(gone("two"))]], durable=False)
    lines = path.read_bytes().split(b"\n")
    lines[2] = b"\0" * len(lines[2])
    path.write_bytes(b"\n".join(lines))
    table, words = read_journal(path)
    assert [lease.name for lease in table.leases] == ["one"]
    assert "torn off" in words


def test_other_files_are_no_journals(path):
    whole = path.read_bytes()
    path.write_bytes(module._line(Freed("a")) + whole)
    with pytest.raises(InputError, match="a journal that starts with a table"):
        read_journal(path)
    path.write_bytes(module._line(module.Began(9, LeaseTable())))
    with pytest.raises(InputError, match="a journal in the form of version 1, got 9"):
        read_journal(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match="expected a journal that can be read"):
        read_journal(path)


@pytest.mark.parametrize(
    "found",
    [None, b"", b"\n", b"\0" * 500, bytes(range(256)) * 20],
    ids=["none", "empty", "a line's end", "zeros", "garbage"],
)
def test_a_journal_without_its_table_is_lost(path, found):
    """Its first line comes with the file, so that this is no torn end, and is not read as no leases."""
    path.unlink()
    if found is not None:
        path.write_bytes(found)
    with pytest.raises(LostJournalError, match=str(path)):
        read_journal(path)


@pytest.mark.parametrize("durable", [True, False])
def test_nothing_is_written_behind_what_was_written_in_part(path, monkeypatch, durable):
    """It could not be read again, and would be told all the same."""
    write = os.write

    def full(descriptor, data):
        monkeypatch.undo()
        write(descriptor, data[:20])
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "write", full)
    failures = []
    _, told = written(
        path, [[Freed("a")]], durable=durable, failed=failures.append, more=[[Freed("b")], [Freed("c")]]
    )
    assert (len(failures), told) == (1, 0)
    assert read_journal(path)[1].startswith("the journal's end was torn off")


def test_one_who_cannot_be_told_keeps_nobody_else_from_it(path):
    told, errors = [], []

    def fail():
        raise ValueError("no frame")

    async def work():
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: errors.append(context["exception"])
        )
        journal = Journal(path, LeaseTable, pytest.fail)
        writing = asyncio.create_task(journal.run())
        for name in ("b", "c"):
            is_told = asyncio.Event()
            journal.append([Freed("a")], fail)
            journal.append([Freed(name)], is_told.set)
            await is_told.wait()
            told.append(name)
        writing.cancel()
        journal.close()

    asyncio.run(work())
    assert told == ["b", "c"]
    assert [str(error) for error in errors] == ["no frame"] * 2


@pytest.mark.parametrize("durable", [True, False])
def test_a_disk_that_fails_ends_it_and_nobody_is_told(path, monkeypatch, durable):
    def full(*_):
        raise OSError(errno.ENOSPC, "no space")

    async def work():
        failures, told = [], []
        journal = Journal(path, LeaseTable, failures.append, durable=durable)
        monkeypatch.setattr(os, "write", full)
        writing = asyncio.create_task(journal.run())
        journal.append([Freed("a")], lambda: told.append(1))
        for _ in range(60_000):
            if failures:
                break
            await asyncio.sleep(0.001)
        writing.cancel()
        monkeypatch.undo()
        os.close(journal._descriptor)
        return failures, told

    failures, told = asyncio.run(work())
    assert (failures[0].errno, told) == (errno.ENOSPC, [])
