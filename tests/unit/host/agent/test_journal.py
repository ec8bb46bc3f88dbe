"""What was written is read again, whatever moment the end came at.

What is damaged is not believed.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import zlib
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import InputError
from alignup.host.agent import journal as module
from alignup.host.agent.journal import (
    Began,
    Journal,
    line_of,
    read_entries,
    settled,
    write_journal,
)
from alignup.host.leases.record import (
    Freed,
    Given,
    Joined,
    LeaseTable,
    Left,
    MachineIdentity,
    Waiter,
)
from alignup.host.processes.identity import identify
from inputs import leasing

MACHINE = MachineIdentity("f", "a machine")
ME = identify(os.getpid())


def read_journal(path, shown=(), promised=None):
    """Return what is known of the leases, and whether some may be lost."""
    table, message, lost = settled(read_entries(path.read_bytes(), str(path)), shown, promised)
    return table, message if not lost else f"lost: {lost}"


def written(path, batches, *, durable=True, table=LeaseTable, broken=pytest.fail):
    """Write batches of entries, each after the one before.

    Return how often the disk was waited for.
    """
    successes, failed, waits = [], [], []

    async def tell(journal):
        try:
            await journal.written()
        except InputError as error:
            failed.append(str(error))
        else:
            successes.append(1)

    async def work():
        journal = Journal(path, table, broken, durable=durable, written=lambda *_: waits.append(1))
        async with asyncio.TaskGroup() as tasks:
            for batch in batches:
                journal.append(*batch)
                tasks.create_task(tell(journal))

        await journal.close()

    asyncio.run(work())
    return len(waits), len(successes), failed


@pytest.fixture
def path(tmp_path):
    journal = tmp_path / "journal"
    write_journal(journal, LeaseTable(MACHINE))
    return journal


@pytest.mark.parametrize("durable", [True, False])
def test_what_is_written_is_read(path, durable):
    first, second = leasing.record("one"), leasing.record("two")
    leaver, stayer = Waiter("w", ME, ("cpu",)), Waiter("x", ME)
    batches = [
        [Given(first), Joined(leaver)],
        [Given(second), Freed(first.id), Freed("unknown")],
        [Joined(stayer), Left("w")],
    ]
    _, written_count, _ = written(path, batches, durable=durable)
    assert written_count == 3
    assert read_journal(path) == (LeaseTable(MACHINE, (second,), (stayer,)), "")


def test_entries_that_come_together_are_written_together(path):
    commits, written_count, _ = written(path, [[Freed(str(number))] for number in range(100)])
    assert written_count == 100
    assert commits < 10


def test_a_large_journal_is_made_anew(path, monkeypatch):
    monkeypatch.setattr(module, "_LARGEST", 500)
    table = LeaseTable(MACHINE, (leasing.record("now"),))

    async def work():
        journal = Journal(path, lambda: table, pytest.fail, durable=False)
        for number in range(100):
            journal.append(Freed(str(number)))
            await journal.written()
        await journal.close()

    asyncio.run(work())
    assert path.stat().st_size < 3000
    assert read_journal(path) == (table, "")


@given(st.data())
def test_whatever_is_torn_off_was_promised_to_nobody(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("j") / "journal"
    write_journal(path, LeaseTable(MACHINE))
    leases = [leasing.record(str(number)) for number in range(3)]
    ends = [path.stat().st_size]
    for lease in leases:
        with path.open("ab") as file:
            file.write(line_of(Given(lease)))
        ends.append(path.stat().st_size)

    cut = data.draw(st.integers(ends[0], ends[-1]))
    os.truncate(path, cut)
    table, message = read_journal(path)
    assert table.leases == tuple(
        lease for lease, end in zip(leases, ends[1:], strict=True) if end - 1 <= cut
    )
    assert bool(message) == (not {cut, cut + 1} & {*ends})


FIRST, SECOND = (Given(leasing.record(name)) for name in ("first", "second"))


@pytest.mark.parametrize(
    ("behind", "names", "is_torn"),
    [
        (b"", ["first"], False),
        (b"?", ["first"], False),
        (b"?0", ["first"], True),
        (b"?" + line_of(SECOND)[:-3], ["first"], True),
        (b"?" + line_of(SECOND)[:-1], ["first", "second"], False),
        (b"?" + line_of(SECOND), ["first", "second"], False),
    ],
    ids=["no newline", "damaged", "a letter more", "torn", "no second newline", "a whole line"],
)
def test_a_line_whose_newline_is_damaged_is_read(path, behind, names, is_torn):
    """It was promised; what stands behind it is one entry more, or torn off."""
    content = path.read_bytes() + line_of(FIRST)[:-1] + behind
    reading = read_entries(content, "j")
    assert [lease.name for lease in reading.table.leases] == names
    assert (bool(reading.torn), reading.damage) == (is_torn, ())


def test_other_files_are_no_journals(path):
    path.write_bytes(line_of(module.Began(9, LeaseTable())))
    with pytest.raises(InputError, match="a journal in the form of version 1, got 9"):
        read_journal(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"\0" * 500, bytes(range(256)) * 20, line_of(Freed("x"))],
    ids=["empty", "a line's end", "zeros", "garbage", "only the end"],
)
def test_a_journal_without_its_table_is_damaged(path, content):
    """Its first line comes with the file, so that this is no torn end.

    It is not read as no leases.
    """
    path.write_bytes(content)
    reading = read_entries(content, "j")
    assert not reading.table.leases
    assert reading.damage or reading.torn
    assert read_journal(path)[1]


@pytest.mark.parametrize(
    "harm", [lambda path: os.truncate(path, 0), os.unlink, lambda path: path.rename(f"{path}-2")]
)
def test_a_journal_that_somebody_changes_is_made_anew_with_all_leases(path, harm):
    """At the next write: one that begins in its middle would have lost what stood before."""
    first, second = leasing.record("one"), leasing.record("two")

    async def work():
        leases = (first,)
        journal = Journal(path, lambda: LeaseTable(MACHINE, leases), pytest.fail)
        journal.append(Given(first))
        await journal.written()
        harm(path)
        leases = (first, second)
        journal.append(Given(second))
        await journal.written()
        await journal.close()

    asyncio.run(work())
    assert read_journal(path) == (LeaseTable(MACHINE, (first, second)), "")


@pytest.mark.parametrize("durable", [True, False])
def test_nothing_is_written_behind_what_was_written_in_part(path, monkeypatch, durable):
    """It could not be read again; those who asked hear why."""
    write = os.write

    def full(descriptor, data):
        monkeypatch.undo()
        write(descriptor, data[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    async def work():
        journal = Journal(path, LeaseTable, broken.append, durable=durable)
        for name in "abc":
            journal.append(Freed(name))
            with pytest.raises(InputError, match=f"^{message}$"):
                await journal.written()

        with pytest.raises(InputError, match=message):  # what was promised before may be lost too
            await journal.written()
        await journal.close()

    message = "cannot write the journal: no space left on device"
    monkeypatch.setattr(os, "write", full)
    broken = []
    asyncio.run(work())
    assert broken == [message]
    assert read_journal(path)[1].startswith("the journal ends with an incomplete entry")


def test_one_who_goes_away_keeps_nobody_else_from_it(path):
    async def work():
        journal = Journal(path, LeaseTable, pytest.fail)
        journal.append(Freed("a"))
        first, second = (asyncio.create_task(journal.written()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await second
        await journal.written()
        await journal.close()
        assert first.cancelled()

    asyncio.run(work())


def test_the_end_waits_for_what_is_being_written(path, monkeypatch):
    """Else it would go to a descriptor that is closed, or is another file's by then."""
    write, goes_on, begun = os.write, threading.Event(), threading.Event()

    def slow(descriptor, data):
        begun.set()
        assert goes_on.wait(60)
        return write(descriptor, data)

    async def work():
        journal = Journal(path, LeaseTable, pytest.fail)
        journal.append(Given(leasing.record("first")))
        await asyncio.to_thread(begun.wait, 60)
        journal.append(Given(leasing.record("second")))
        closing = asyncio.create_task(journal.close())
        await asyncio.sleep(0)
        assert not closing.done()
        goes_on.set()
        await closing

    monkeypatch.setattr(os, "write", slow)
    asyncio.run(work())
    assert [lease.name for lease in read_journal(path)[0].leases] == ["first", "second"]


def test_calls_that_hang_elsewhere_do_not_keep_the_disk_waiting(path):
    """As those of device plugins: they have other threads."""
    goes_on = threading.Event()

    async def work():
        loop = asyncio.get_running_loop()
        hanging = [loop.run_in_executor(None, goes_on.wait, 60) for _ in range(64)]
        journal = Journal(path, LeaseTable, pytest.fail)
        journal.append(Freed("a"))
        await journal.written()
        assert not any(call.done() for call in hanging)
        goes_on.set()
        await journal.close()

    asyncio.run(work())


def test_an_unexpected_error_is_one_for_those_who_asked(path, monkeypatch):
    """Nobody waits for ever."""

    def fail(*_):
        raise RuntimeError("who knows")

    monkeypatch.setattr(os, "fdatasync", fail)
    broken = []
    _, written_count, failed = written(path, [[Freed("a")]], broken=broken.append)
    assert (written_count, failed, broken) == (0, ["cannot write the journal: who knows"], failed)


def test_what_is_promised_is_noted_after_each_write(path):
    sizes = []

    async def work():
        journal = Journal(
            path,
            lambda: LeaseTable(leases=(leasing.record("a"),)),
            pytest.fail,
            written=lambda descriptor, leases: sizes.append((os.fstat(descriptor).st_size, leases)),
        )
        for name in "ab":
            journal.append(Freed(name))
            await journal.written()

        await journal.close()

    start = path.stat().st_size
    asyncio.run(work())
    length = len(line_of(Freed("a")))
    assert sizes == [(start + length, 1), (start + 2 * length, 1)]


@pytest.mark.parametrize(("size", "is_new"), [(499, False), (501, True)])
def test_the_file_is_made_anew_at_its_limit(path, monkeypatch, size, is_new):
    """Neither before nor ten times later."""
    monkeypatch.setattr(module, "_LARGEST", 500)
    line = line_of(Freed("x" * (size - path.stat().st_size - len(line_of(Freed(""))))))
    with path.open("ab") as file:
        file.write(line)

    inode = path.stat().st_ino

    async def work():
        journal = Journal(path, LeaseTable, pytest.fail)
        journal._first_size = 100
        journal.append(Freed("y"))
        await journal.close()

    asyncio.run(work())
    assert (path.stat().st_ino != inode) == is_new


@pytest.mark.parametrize("order", [(1, 2, 0), (0, 1, 2, 0), (0, 0, 1, 2)])
def test_a_table_elsewhere_than_in_the_first_line_is_damage(order):
    """A new file has a table, and no entry does: lines that are out of order lose no lease."""
    leases = (leasing.record("one"), leasing.record("two"))
    lines = [line_of(Began(1, LeaseTable(MACHINE))), *(line_of(Given(lease)) for lease in leases)]
    reading = read_entries(b"".join(lines[number] for number in order), "j")
    assert len(reading.damage) == 1
    assert reading.table.leases == leases
    assert settled(reading, ())[2]


def test_lines_that_follow_each_other_are_one_damage():
    text = b"".join(line_of(Given(leasing.record(str(number)))) for number in range(300))
    reading = read_entries(text.replace(b"\n", b"\r\n"), "j")
    (damage,) = reading.damage
    assert (damage.line, damage.end) == (1, 301)
    assert damage.text == text.replace(b"\n", b"\r\n")[:-1]


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("text", [b"}x00000000 {" * 1000, b"00000000 {" + b"}" * 10_000])
def test_damage_is_looked_through_a_few_times_only(monkeypatch, text, end):
    lengths = []

    def crc32(data, *start):
        lengths.append(len(data))
        return zlib.crc32(data, *start)

    monkeypatch.setattr(module, "zlib", SimpleNamespace(crc32=crc32))
    assert read_entries(text + end, "j").table == LeaseTable()
    assert sum(lengths) <= 3 * len(text)


def test_several_newlines_of_a_line_may_be_damaged():
    entries = [Given(leasing.record(str(number))) for number in range(5)]
    text = b"?".join(line_of(entry)[:-1] for entry in entries)
    began = line_of(Began(1, LeaseTable(MACHINE)))
    for end in (b"", b"\n"):
        reading = read_entries(began + text + end, "j")
        assert reading.table.leases == tuple(entry.lease for entry in entries)
        assert (reading.damage, reading.torn) == ((), b"")


@pytest.mark.parametrize("fill", [b"\0", b"x"])
def test_several_lines_that_are_written_over_may_have_given_a_lease(fill):
    """One of them may have freed another one, so that there are as many as before."""
    one, two = leasing.record("one"), leasing.record("two")
    lost = [line_of(Freed(one.id)), line_of(Given(two))]
    if fill == b"x":
        gone = b"".join(line.replace(b'"type"', b'"tipe"') for line in lost)
    else:
        gone = fill * (len(b"".join(lost)) - 1) + b"\n"
    text = line_of(Began(1, LeaseTable(MACHINE, (one,)))) + gone
    assert settled(read_entries(text, "j"), (), 1)[2]
