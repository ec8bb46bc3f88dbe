"""`alignup release`: frees what nobody needs any more."""

from __future__ import annotations

import json

import msgspec
import pytest
from click.testing import CliRunner

from alignup.cli.ps import release as command
from alignup.host.leases.file import LeaseFile
from alignup.machine.cpuset import CPUSet
from inputs import leasing


@pytest.fixture
def file(tmp_path):
    return LeaseFile(tmp_path / "leases.json", pytest.fail)


def hold(file, **process):
    lease = leasing.record("mine", cpus=CPUSet.parse("0"))
    leasing.put(
        file,
        msgspec.structs.replace(lease, process=msgspec.structs.replace(lease.process, **process)),
    )


def release(file, *arguments):
    return CliRunner().invoke(command, ["--state", str(file.path), *arguments])


def test_the_lease_of_a_process_that_is_gone_is_freed(file):
    """Without a word."""
    hold(file, start_time=1)
    done = release(file, "mine")
    assert (done.exit_code, done.output) == (0, "")
    assert file.read().leases == ()


def test_the_lease_that_was_freed_can_be_had_as_json(file):
    """As `alignup ps --json` prints it."""
    hold(file, start_time=1)
    done = release(file, "mine", "--json")
    assert (done.exit_code, done.output.count("\n")) == (0, 1)
    assert json.loads(done.output)["name"] == "mine"
    assert json.loads(done.output)["cpus"] == "0"


@pytest.mark.parametrize(
    ("process", "complaint"),
    [({}, "which is running"), ({"pid_namespace": 1}, "on another host or in another container")],
)
def test_a_lease_that_may_be_in_use_is_freed_only_by_force(file, process, complaint):
    """The refusal says by whom."""
    hold(file, **process)
    refused = release(file, "mine")
    assert refused.exit_code == 1
    assert "lease 'mine' is held by pid" in refused.output
    assert complaint in refused.output
    assert len(file.read().leases) == 1
    assert release(file, "mine", "--force").exit_code == 0
    assert file.read().leases == ()


def test_a_name_that_nobody_has_is_refused(file):
    """Force does not help."""
    done = release(file, "mine", "--force")
    assert done.exit_code == 1
    assert "no lease has the name 'mine'" in done.output


def test_several_are_freed_at_once_and_each_that_is_not_is_named(file):
    hold(file, start_time=1)
    done = release(file, "nobody", "mine", "--json")
    assert done.exit_code == 1
    assert "name 'nobody'" in done.output
    assert '"name":"mine"' in done.output
    assert file.read().leases == ()
