"""One agent has the leases of a file, in a journal that counts only once the file says so; it can give them back."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

import leasing
from alignup.agent.journal import read_journal, write_journal
from alignup.agent.ownership import Ownership
from alignup.errors import InputError
from alignup.leases.process import identify
from alignup.leases.record import LeaseTable, MachineIdentity, Waiter
from alignup.leases.recovery import evidence_file, evidence_of, show_evidence
from alignup.leases.store import AgentOwnsError, LeaseFile

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
    with file.change() as change:
        change.use_for(MACHINE, "")
        change.leases += leases
        change.waiting += waiting


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
    assert read_journal(ownership.journal) == (table, "")
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
    put(file, *(msgspec.structs.replace(leasing.record(name), process=before) for name in "ab"), dead("c"))
    said = []
    assert ownership.take_over(MACHINE, socket, said.append).leases == ()
    assert said == ["2 leases ended with an earlier boot of this machine", "1 lease ended while no agent ran"]


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
    assert "found again from running processes: shown (pid" in said[0]
    os.close(descriptor)
    second.close()


def test_one_agent_only(file, ownership):
    with pytest.raises(InputError, match=rf"one that pid {os.getpid()} has at {file.path}"):
        Ownership(file)
    ownership.close()
    again = Ownership(file)
    again.close()
    ownership.__init__(file)  # for the fixture to close


def test_leases_of_another_machine_stay_where_they_are(file, socket, ownership):
    put(file, leasing.record("one"))
    with pytest.raises(InputError, match=r"expected leases of this machine \(b\), got leases of another one"):
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
        assert change.machine == MACHINE


def test_the_file_says_so_again_if_somebody_removes_it(file, socket, ownership):
    """What was given from it meanwhile is the agent's."""
    ownership.take_over(MACHINE, socket, pytest.fail)
    assert ownership.look() == ()
    file.path.unlink()
    put(file, leasing.record("beside"))
    assert [lease.name for lease in ownership.look()] == ["beside"]
    assert file.agent() == str(socket)
    assert ownership.look() == ()


def test_without_its_lock_an_agent_has_no_right(file, socket, ownership):
    ownership.take_over(MACHINE, socket, pytest.fail)
    file.path.with_name("leases.json.agent").unlink()
    with pytest.raises(InputError, match="expected the lock file to stay, got it removed"):
        ownership.look()


def test_what_cannot_be_locked_or_written_is_said(tmp_path, file, socket, ownership, monkeypatch):
    (tmp_path / "folder.agent").mkdir()
    with pytest.raises(InputError, match="expected a file that can be locked, got 'is a directory'"):
        Ownership(LeaseFile(tmp_path / "folder", pytest.fail))
    put(file, leasing.record("one"))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("alignup.agent.ownership.write_journal", full)
    with pytest.raises(InputError, match="a journal that can be written, got 'no space left on device'"):
        ownership.take_over(MACHINE, socket, pytest.fail)
    assert [lease.name for lease in file.read().leases] == ["one"]
