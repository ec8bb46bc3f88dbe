"""One agent has the leases of a file, in a journal that counts only once the file says so.

It can give them back.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from alignup.errors import InputError
from alignup.host.agent import ownership as module
from alignup.host.agent.journal import Reading, line_of, read_entries, write_journal
from alignup.host.agent.ownership import Ownership
from alignup.host.leases.evidence import evidence_file, evidence_of, show_evidence
from alignup.host.leases.file import AgentOwnsError, LeaseFile, encode_table
from alignup.host.leases.record import Freed, Given, LeaseTable, MachineIdentity, Waiter
from alignup.host.processes.identity import identify
from alignup.machine.cpuset import CPUSet
from inputs import leasing

MACHINE = MachineIdentity("m", "a machine")
GONE = msgspec.structs.replace(identify(os.getpid()), start_time=1)


@pytest.fixture
def file(tmp_path):
    return LeaseFile(tmp_path / "leases.json", pytest.fail)


@pytest.fixture
def socket(tmp_path):
    return tmp_path / "agent.sock"


@pytest.fixture
def ownership(file):
    made = Ownership(file)
    yield made
    made.close()


def put(file, *leases, waiting=()):
    leasing.put(file, *leases, waiting=waiting, machine=MACHINE)


def dead(name):
    return msgspec.structs.replace(leasing.record(name), process=GONE)


def test_leases_and_waiters_are_taken_over(file, socket, ownership):
    """Those whose processes run; the file says who has them, and lets nobody else."""
    me = Waiter("1", identify(os.getpid()), ("cpu",))
    put(file, leasing.record("one"), dead("gone"), waiting=(me, Waiter("2", GONE, ("cpu",))))
    said = []
    table = ownership.take_over(MACHINE, socket, said.append)
    assert (table.leases, table.waiting) == ((leasing.record("one"),), (me,))
    assert said == ["1 lease ended while no agent ran"]
    assert read_entries(ownership.journal.read_bytes(), "j") == Reading(table)
    assert file.read().leases == ()
    assert file.agent() == str(socket)
    with pytest.raises(AgentOwnsError), file.change():
        pass


def test_a_later_agent_goes_on_with_the_journal(file, socket):
    first = Ownership(file)
    table = first.take_over(MACHINE, socket, pytest.fail)
    write_journal(first.journal, LeaseTable(table.machine, (leasing.record("one"), dead("gone"))))
    first.close()
    second, said = Ownership(file), []
    assert second.take_over(MACHINE, socket, said.append).leases == (leasing.record("one"),)
    assert said == ["1 lease ended while no agent ran"]
    second.close()


def test_leases_of_an_earlier_boot_are_told_of_as_such(file, socket, ownership):
    before = msgspec.structs.replace(GONE, boot_id="earlier")
    put(
        file,
        *(msgspec.structs.replace(leasing.record(name), process=before) for name in "ab"),
        dead("c"),
    )
    said = []
    assert ownership.take_over(MACHINE, socket, said.append).leases == ()
    assert said == [
        "2 leases ended with an earlier boot of this machine",
        "1 lease ended while no agent ran",
    ]


def test_a_journal_that_was_written_before_the_file_said_so_does_not_count(file, socket, ownership):
    """An agent was killed in between: the file has the leases."""
    put(file, leasing.record("one"))
    write_journal(ownership.journal, LeaseTable(MACHINE, (leasing.record("old"),)))
    assert ownership.take_over(MACHINE, socket, pytest.fail).leases == (leasing.record("one"),)


@pytest.mark.parametrize(
    "damage", [Path.unlink, lambda journal: journal.write_bytes(b"")], ids=["gone", "empty"]
)
def test_without_its_journal_an_agent_knows_what_processes_show(file, socket, damage):
    """Its file is as it was, and says that an agent has the leases."""
    lease = leasing.record("shown")
    first = Ownership(file)
    first.take_over(MACHINE, socket, pytest.fail)
    damage(first.journal)
    first.close()
    descriptor = evidence_file()
    show_evidence(evidence_of(lease, MACHINE, file.path), descriptor)
    second, said = Ownership(file), []
    assert second.take_over(MACHINE, socket, said.append).leases == (lease,)
    assert str(first.journal) in said[0]
    assert "line 1 of the journal cannot be read; " in said[0]
    assert "found again from running processes: shown (pid" in said[0]
    os.close(descriptor)
    second.close()


def test_as_many_leases_as_there_were_need_not_be_the_same(file, socket):
    """What was cut off has freed one lease, and given another one."""
    first = Ownership(file)
    first.take_over(MACHINE, socket, pytest.fail)
    size = write_journal(first.journal, LeaseTable(MACHINE, (leasing.record("one"),)))
    one, two = leasing.record("one"), leasing.record("two")
    with first.journal.open("ab") as journal:
        journal.write(line_of(Freed(one.id)) + line_of(Given(two)))
        journal.flush()
        first.wrote(journal.fileno(), 1)
    os.truncate(first.journal, size)
    first.close()

    second, said = Ownership(file), []
    second.take_over(MACHINE, socket, said.append)
    assert "line 2 of the journal cannot be read, and may have recorded a lease" in second.lost
    second.close()


def test_a_journal_of_any_size_is_not_read(file, socket, monkeypatch):
    first = Ownership(file)
    first.take_over(MACHINE, socket, pytest.fail)
    first.close()
    monkeypatch.setattr(module, "_LARGEST", first.journal.stat().st_size - 1)
    second = Ownership(file)
    with pytest.raises(
        InputError, match=r"the journal .*\.journal is larger than .*: move it away"
    ):
        second.take_over(MACHINE, socket, pytest.fail)
    second.close()


def test_one_agent_only(file, ownership):
    with pytest.raises(InputError, match=rf"pid {os.getpid()} is the agent of {file.path} already"):
        Ownership(file)
    ownership.close()
    again = Ownership(file)
    again.close()
    ownership.__init__(file)  # for the fixture to close


def test_leases_of_another_machine_stay_where_they_are(file, socket, ownership):
    put(file, leasing.record("one"))
    with pytest.raises(
        InputError, match=r"the leases are not of this machine \(b\) but of another one"
    ):
        ownership.take_over(MachineIdentity("other", "b"), socket, pytest.fail)
    assert [lease.name for lease in file.read().leases] == ["one"]
    assert file.agent() == ""


def test_leases_are_handed_back_once(file, socket, ownership):
    put(file, leasing.record("one"))
    ownership.take_over(MACHINE, socket, pytest.fail)
    for _ in range(2):
        assert [lease.name for lease in ownership.hand_back(pytest.fail).leases] == ["one"]
    assert not ownership.journal.exists()
    assert [lease.name for lease in file.read().leases] == ["one"]
    with file.change() as change:
        assert change.table.machine == MACHINE


def test_cgroups_of_leases_that_had_ended_before_go_with_an_agent_that_hands_back(
    tmp_path, file, socket, ownership
):
    cgroup = tmp_path / "alignup-1"
    cgroup.mkdir()
    put(file, msgspec.structs.replace(dead("gone"), cgroup=str(cgroup)))
    ownership.take_over(MACHINE, socket, lambda _: None)
    assert cgroup.exists()
    ownership.hand_back(pytest.fail)
    assert not cgroup.exists()


def test_the_file_says_so_again_if_somebody_removes_it(file, socket, ownership):
    """Nothing is given beside the agent meanwhile."""
    file.tell = lambda _: None
    ownership.take_over(MACHINE, socket, pytest.fail)
    assert ownership.look() == ()
    file.path.unlink()
    with pytest.raises(AgentOwnsError):
        put(file, leasing.record("beside"))
    assert ownership.look() == ()
    assert file.read().agent == str(socket)


def test_what_was_given_from_a_removed_file_is_the_agents(file, socket, ownership):
    """Nothing told of an agent: its journal was removed too.

    What the dead had may be others' by now.
    """
    ownership.take_over(MACHINE, socket, pytest.fail)
    file.path.unlink()
    ownership.journal.unlink()
    put(file, leasing.record("beside"), dead("ended"))
    assert [lease.name for lease in ownership.look()] == ["beside"]
    assert file.agent() == str(socket)
    assert ownership.look() == ()


def old_copy(file):
    file.path.write_bytes(encode_table(LeaseTable(MACHINE)))


def nothing_known_of_the_agent(file):
    file.path.unlink()
    file.agent_lock.unlink()


@pytest.mark.parametrize(
    "harm",
    [
        lambda file: file.path.unlink(),
        lambda file: file.path.write_bytes(b""),
        lambda file: file.path.write_bytes(file.path.read_bytes()[:-20]),
        old_copy,
        nothing_known_of_the_agent,
    ],
    ids=["removed", "emptied", "torn", "replaced", "removed with the lock"],
)
@pytest.mark.parametrize("is_kept", [True, False], ids=["", "without the file's lock"])
def test_a_file_that_is_lost_while_the_agent_is_down_costs_nobody_a_lease(
    file, socket, harm, is_kept
):
    """Its journal is there: neither a command nor the next agent gives what it has."""
    kept = leasing.record("kept", cpus=CPUSet([1]))
    file.tell = lambda _: None
    first = Ownership(file)
    table = first.take_over(MACHINE, socket, pytest.fail)
    write_journal(first.journal, LeaseTable(table.machine, (kept,)))
    first.close()
    harm(file)
    if not is_kept:
        file.path.with_name("leases.json.lock").unlink()

    is_known = harm is not nothing_known_of_the_agent
    assert file.agent() == (str(socket) if is_known else "a socket that is not known")
    with pytest.raises(AgentOwnsError):
        put(file, leasing.record("beside", cpus=CPUSet([1])))

    second = Ownership(file)
    assert second.take_over(MACHINE, socket, lambda _: None).leases == (kept,)
    assert file.read().agent == str(socket)
    second.close()


def test_without_its_lock_an_agent_has_no_right(file, socket, ownership):
    ownership.take_over(MACHINE, socket, pytest.fail)
    file.path.with_name("leases.json.agent").unlink()
    with pytest.raises(InputError, match="the lock file was removed"):
        ownership.look()


def test_what_cannot_be_locked_or_written_is_said(tmp_path, file, socket, ownership, monkeypatch):
    (tmp_path / "folder.agent").mkdir()
    with pytest.raises(InputError, match="cannot lock a file: is a directory"):
        Ownership(LeaseFile(tmp_path / "folder", pytest.fail))
    put(file, leasing.record("one"))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("alignup.host.agent.ownership.write_journal", full)
    with pytest.raises(InputError, match="cannot write the journal: no space left on device"):
        ownership.take_over(MACHINE, socket, pytest.fail)
    assert [lease.name for lease in file.read().leases] == ["one"]


def test_an_agent_that_cannot_note_what_it_promises_does_not_begin(
    file, socket, ownership, monkeypatch
):
    """The next one would miss the note, and give nothing, although nothing is lost."""
    put(file, leasing.record("one"))
    real = os.pwrite

    def without_notes(descriptor, data, place):
        is_note = place == 0 and os.path.samestat(os.fstat(descriptor), file.agent_lock.stat())
        if is_note:
            raise OSError(28, "No space left on device")
        return real(descriptor, data, place)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", without_notes)
        with pytest.raises(InputError, match=r"cannot write a file: no space .*\.agent"):
            ownership.take_over(MACHINE, socket, pytest.fail)
        assert file.agent() == ""

    assert [lease.name for lease in ownership.take_over(MACHINE, socket, pytest.fail).leases]
    ownership.close()
    ownership.__init__(file)
    ownership.take_over(MACHINE, socket, pytest.fail)
    assert not ownership.lost


def test_agents_that_are_killed_while_the_disk_is_waited_for_lose_nothing(
    file, socket, monkeypatch
):
    """A journal often has the inode of the one before the last, whose note is not about it."""
    put(file, leasing.record("one"))
    first = Ownership(file)
    first.take_over(MACHINE, socket, pytest.fail)
    noted = []
    real = os.fsync

    def killed(descriptor):
        if os.path.samestat(os.fstat(descriptor), file.path.parent.stat()):
            noted.append(file.agent_lock.read_text().split()[2:4])
            status = file.journal.stat()
            assert noted[-1] == [str(status.st_ino), str(status.st_size)]
            raise KeyboardInterrupt
        real(descriptor)

    first.close()
    for _ in range(2):
        agent = Ownership(file)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", killed)
            with pytest.raises(KeyboardInterrupt):
                agent.take_over(MACHINE, socket, pytest.fail)
        agent.close()

    last = Ownership(file)
    last.take_over(MACHINE, socket, pytest.fail)
    assert (len(noted), last.lost) == (2, "")
    last.close()


def damage(ownership, *leases, line=1):
    """Let an agent have some leases, and a bit of its journal be wrong."""
    text = ownership.journal.read_bytes() + b"".join(line_of(Given(lease)) for lease in leases)
    lines = text.split(b"\n")
    lines[line] = lines[line].replace(b'"name"', b'"nam%"')
    ownership.journal.write_bytes(b"\n".join(lines))
    with ownership.journal.open("rb") as journal:
        ownership.wrote(journal.fileno(), len(leases))


def test_what_may_be_missing_is_given_to_nobody_until_an_operator_says_so(file, socket):
    """Whatever agents come and go; the damaged file is kept."""
    first = Ownership(file)
    first.take_over(MACHINE, socket, pytest.fail)
    damage(first, leasing.record("lost"), leasing.record("kept"))
    damaged = first.journal.read_bytes()
    first.close()
    for number in range(2):
        agent, said = Ownership(file), []
        table = agent.take_over(MACHINE, socket, said.append)
        assert [lease.name for lease in table.leases] == ["kept"]
        damage_message = "line 2 of the journal cannot be read, and may have recorded a lease"
        assert (
            agent.lost
            == f"{damage_message}: nothing is given until `alignup agent --repair` has been used"
        )
        assert agent.lost in said
        assert any("is now" in message for message in said) == (number == 0)
        with pytest.raises(InputError, match="see `alignup agent --repair`"):
            agent.hand_back(said.append)
        agent.close()

    (aside,) = file.path.parent.glob("*.damaged-*")
    assert aside.read_bytes() == damaged
    for writes, is_lost in ((False, True), (True, True), (False, False)):
        agent = Ownership(file)
        repaired = agent.repair(said.append, writes=writes)
        assert [lease.name for lease in repaired.table.leases] == ["kept"]
        assert bool(repaired.lost) == is_lost
        agent.close()

    agent = Ownership(file)
    assert [lease.name for lease in agent.take_over(MACHINE, socket, pytest.fail).leases] == [
        "kept"
    ]
    assert agent.lost == ""
    agent.close()


def test_a_repair_keeps_the_damaged_journal(file, socket):
    first = Ownership(file)
    first.take_over(MACHINE, socket, pytest.fail)
    damage(first, leasing.record("lost"))
    damaged = first.journal.read_bytes()
    assert first.repair(lambda _: None, writes=False).lost
    assert first.journal.read_bytes() == damaged
    first.repair(lambda _: None, writes=True)
    assert [path.read_bytes() for path in file.path.parent.glob("*.damaged-*")] == [damaged]
    assert not first.repair(pytest.fail, writes=False).lost
    first.close()


def test_without_an_agent_there_is_nothing_to_repair(ownership):
    with pytest.raises(InputError, match="no agent keeps the leases"):
        ownership.repair(pytest.fail, writes=True)


def test_a_journal_that_is_cut_off_at_the_end_of_a_line_is_missed(file, socket):
    """It was longer when it was promised."""
    first = Ownership(file)
    first.take_over(MACHINE, socket, pytest.fail)
    whole = first.journal.read_bytes()
    with first.journal.open("ab") as journal:
        journal.write(line_of(Given(leasing.record("lost"))))
        journal.flush()
        first.wrote(journal.fileno(), 1)

    os.truncate(first.journal, len(whole))
    first.close()
    second = Ownership(file)
    second.take_over(MACHINE, socket, lambda _: None)
    assert "line 2 of the journal cannot be read" in second.lost
    second.close()


def no_note(lock):
    lock.write_bytes(b"")


def note_of_zeros(lock):
    lock.write_bytes(bytes(121) + lock.read_bytes()[121:])


def torn_note(lock):
    os.truncate(lock, 40)


@pytest.mark.parametrize("harm", [no_note, note_of_zeros, torn_note, Path.unlink])
def test_without_the_note_an_end_of_the_journal_may_be_missing(file, socket, harm):
    """Whatever agents ended before they had looked at the journal."""
    file.tell = lambda _: None
    kept, shown, lost = (
        leasing.record(name, cpus=CPUSet([cpu]))
        for cpu, name in enumerate(["kept", "shown", "lost"])
    )
    first = Ownership(file)
    first.take_over(MACHINE, socket, pytest.fail)
    with first.journal.open("ab") as journal:
        journal.write(line_of(Given(kept)))
        journal.flush()
        first.wrote(journal.fileno(), 1)
        size = journal.tell()
        journal.write(line_of(Given(shown)) + line_of(Given(lost)))
        journal.flush()
        first.wrote(journal.fileno(), 3)

    os.truncate(first.journal, size)
    first.close()
    harm(file.agent_lock)
    for _ in range(2):
        Ownership(file).close()

    descriptor = evidence_file()
    show_evidence(evidence_of(shown, MACHINE, file.path), descriptor)
    said = []
    for number in range(2):
        agent = Ownership(file)
        assert agent.take_over(MACHINE, socket, said.append).leases == (kept, shown)
        assert agent.lost == (
            "the lock file no longer says how long the journal was, and an end that recorded a "
            "lease may be missing: nothing is given until `alignup agent --repair` has been used"
        )
        assert len(list(file.path.parent.glob("*.damaged-*"))) == 1
        agent.close()
        if not number:
            assert "found again from running processes: shown (pid" in said[0]

    os.close(descriptor)
    agent = Ownership(file)
    agent.repair(said.append, writes=True)
    agent.close()
    agent = Ownership(file)
    agent.take_over(MACHINE, socket, pytest.fail)
    assert agent.lost == ""
    agent.close()


@pytest.mark.parametrize("note", ["17\n", f"{17:<120}\n"])
def test_an_agent_of_a_release_that_noted_no_length_may_have_been_there(file, socket, note):
    first = Ownership(file)
    table = first.take_over(MACHINE, socket, pytest.fail)
    kept = leasing.record("kept")
    write_journal(first.journal, msgspec.structs.replace(table, leases=(kept,)))
    first.close()
    file.agent_lock.write_text(note)
    second = Ownership(file)
    assert second.take_over(MACHINE, socket, pytest.fail).leases == (kept,)
    assert second.lost == ""
    second.close()


@pytest.mark.parametrize(
    ("wrong", "filling"), [(2, b"zz"), (4, b"\0"), (20, b"}"), (200, b"\0"), (1000, b"x")]
)
def test_an_end_that_is_written_over_was_promised_all_the_same(file, socket, wrong, filling):
    """Its newline is gone, as that of a line that was not written whole."""
    first = Ownership(file)
    first.take_over(MACHINE, socket, pytest.fail)
    with first.journal.open("ab") as journal:
        journal.write(line_of(Given(leasing.record("before"))) * 4)
        journal.write(line_of(Given(leasing.record("lost"))))
        journal.flush()
        first.wrote(journal.fileno(), 2)

    size = first.journal.stat().st_size
    with first.journal.open("r+b") as journal:
        journal.seek(size - wrong)
        journal.write((filling * wrong)[:wrong])

    first.close()
    second = Ownership(file)
    second.take_over(MACHINE, socket, lambda _: None)
    assert "of the journal cannot be read, and may have recorded a lease" in second.lost
    second.close()


@pytest.mark.parametrize("torn", [b"x", line_of(Freed("x"))[:-2], b"\0" * 300])
def test_what_was_never_promised_may_be_torn(file, socket, torn):
    first = Ownership(file)
    first.take_over(MACHINE, socket, pytest.fail)
    with first.journal.open("ab") as journal:
        journal.write(line_of(Given(leasing.record("kept"))))
        journal.flush()
        first.wrote(journal.fileno(), 1)
        journal.write(torn)

    first.close()
    second = Ownership(file)
    table = second.take_over(MACHINE, socket, lambda _: None)
    assert ([lease.name for lease in table.leases], second.lost) == (["kept"], "")
    second.close()


def test_with_the_boot_all_that_is_missing_has_ended(file, socket):
    first = Ownership(file)
    first.take_over(MACHINE, socket, pytest.fail)
    damage(first, leasing.record("lost"))
    first._boot_id = "earlier"
    with first.journal.open("ab") as journal:
        first.wrote(journal.fileno(), 1)
    first.close()
    second = Ownership(file)
    second.take_over(MACHINE, socket, lambda _: None)
    assert second.lost == ""
    second.close()


def test_what_processes_showed_beside_the_journal_is_kept(file, socket):
    """The file of an agent was removed, and made again of what processes show.

    Those leases count too.
    """
    first = Ownership(file)
    first.take_over(MACHINE, socket, pytest.fail)
    first.close()
    beside = leasing.record("beside")
    with file.change(by_agent=True) as change:
        change.table = msgspec.structs.replace(change.table, leases=(beside,))
    second = Ownership(file)
    assert second.take_over(MACHINE, socket, pytest.fail).leases == (beside,)
    second.close()


def test_what_both_the_journal_and_the_file_have_is_one_lease(file, socket):
    first = Ownership(file)
    table = first.take_over(MACHINE, socket, pytest.fail)
    both = leasing.record("both")
    write_journal(first.journal, msgspec.structs.replace(table, leases=(both,)))
    first.close()
    with file.change(by_agent=True) as change:
        change.table = msgspec.structs.replace(change.table, leases=(both,))
    second = Ownership(file)
    assert second.take_over(MACHINE, socket, pytest.fail).leases == (both,)
    second.close()


def test_a_file_in_a_folder_of_others_has_no_agent(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(InputError, match="is not trusted: other users may write to"):
        Ownership(LeaseFile(tmp_path / "open" / "leases.json", pytest.fail))
