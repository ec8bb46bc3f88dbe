"""Leases that can be read off the processes that hold them."""

from __future__ import annotations

import os

import leasing
from alignup.leases.record import MachineIdentity
from alignup.leases.recovery import VARIABLE, Evidence, evidence_text, find_evidence, show_evidence
from alignup.machine.cpuset import CPUSet

MACHINE = MachineIdentity("m", "a machine")


def test_a_process_that_shows_it_is_found(tmp_path):
    """For the file that it names, and as long as it shows it."""
    state = tmp_path / "leases.json"
    evidence = Evidence(str(state), MACHINE, leasing.record(cpus=CPUSet.parse("3")))
    descriptor = show_evidence(evidence)
    try:
        assert find_evidence(state) == (evidence,)
        assert find_evidence(tmp_path / "other.json") == ()
    finally:
        os.close(descriptor)
    assert find_evidence(state) == ()


def test_a_child_that_inherited_it_is_not_a_holder(tmp_path):
    """Its number is another."""
    state = tmp_path / "leases.json"
    evidence = Evidence(str(state), MACHINE, leasing.record(pid=os.getppid()))
    descriptor = show_evidence(evidence)
    try:
        assert find_evidence(state) == ()
    finally:
        os.close(descriptor)


def fake_process(folder, pid, environment):
    (folder / str(pid)).mkdir(parents=True)
    (folder / str(pid) / "environ").write_bytes(environment)


def test_what_is_no_evidence_is_passed_over(tmp_path):
    """Other variables, other people's processes, nonsense."""
    proc = tmp_path / "proc"
    name = VARIABLE.encode()
    fake_process(proc, 1, b"A=B\0" + name + b"=junk\0" + name + b"X={}\0")
    fake_process(proc, 2, name + b"=" + evidence_text(Evidence("/x", MACHINE, leasing.record())).encode())
    (proc / "3").mkdir()
    (proc / "self").mkdir()
    folder = proc / "4" / "fd"
    folder.mkdir(parents=True)
    (folder / "0").write_text("no link")
    (folder / "1").symlink_to("/memfd:other (deleted)")

    assert find_evidence(tmp_path / "leases.json", str(proc)) == ()


def test_systems_without_files_in_memory_show_nothing(tmp_path, monkeypatch):
    """That is no reason to refuse a lease."""

    def missing(_name, _flags):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "memfd_create", missing)
    assert show_evidence(Evidence(str(tmp_path), MACHINE, leasing.record())) is None
