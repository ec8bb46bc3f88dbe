"""What a user can give as a machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from alignup import Cluster, Node, read_machine
from alignup.errors import InputError
from alignup.machine import load
from alignup.machine.archive import take_snapshot
from alignup.machine.device_inventory import Device
from alignup.machine.load import load_machine
from inputs.kernel_trees import server, write

XML = (
    '<?xml version="1.0"?><topology version="2.0"><object type="Machine" cpuset="0x1">'
    '<object type="NUMANode" os_index="0" cpuset="0x1" local_memory="1"/>'
    '<object type="PU" cpuset="0x1"/></object></topology>'
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_name_of_the_catalog():
    """Its devices come along."""
    loaded = load_machine("align-up-article")

    assert loaded.machine == read_machine("align-up-article")
    assert [device.id for device in loaded.devices["nvidia.com/gpu"]] == ["gpu0", "gpu1"]
    assert loaded.preferred_sets == {}


def test_a_name_of_the_catalog_wins_over_a_file(here):
    """`./name` is the file."""
    (here / "gb200").write_text(XML)

    assert len(load_machine("gb200").machine.numa_nodes) == 34
    assert len(load_machine("./gb200").machine.numa_nodes) == 1


def test_a_directory_and_a_snapshot_of_it(here):
    """Neither has devices."""
    write(here / "root", server())
    take_snapshot("root", "machine.tar.xz")

    assert load_machine("root") == load_machine("machine.tar.xz")
    assert load_machine("root").machine.cpu_count == 8
    assert load_machine("root").devices == {}


@pytest.mark.parametrize("start", ["", "\ufeff", " \n"])
def test_hwlocs_xml(here, start):
    (here / "machine").write_text(start + XML if start != " \n" else "\n" + XML.split("?>")[1])

    assert load_machine("machine").machine.cpus == 1


def test_json_of_a_machine_of_a_scenario_and_of_the_catalog(here):
    """`machine --json` prints the first; the others have it under a key, beside its devices."""
    machine = read_machine("xeon-2s")
    devices = {"a/b": [{"id": "x", "numa": [0]}]}
    (here / "plain.json").write_text(json.dumps(machine.to_dict()))
    scenario = {
        "machine": machine.to_dict(),
        "devices": devices,
        "preferredSets": {"a/b": [["x"]]},
        "kubelet": {},
    }
    (here / "scenario.json").write_text(json.dumps(scenario))
    (here / "bare.json").write_text(json.dumps({"machine": machine.to_dict(), "devices": None}))

    assert load_machine("plain.json").machine == machine
    assert load_machine("scenario.json").devices == {"a/b": (Device("x", (0,)),)}
    assert load_machine("scenario.json").preferred_sets == {"a/b": (("x",),)}
    assert load_machine("bare.json").devices == {}
    assert load_machine("bare.json").machine == machine


def test_what_does_not_exist_names_what_does():
    with pytest.raises(
        InputError,
        match=r"unknown machine 'align-up-articel': .* one of align-up-article, .*; did you mean align-up-article\?",
    ):
        load_machine("align-up-articel")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "got '' "),
        (
            b"numaNodes: []",
            "JSON, hwloc's XML, a snapshot, or the output of lscpu -e, .*, got 'numaNodes: \\[\\]'",
        ),
        (b"\xff\xfe\x00", "a snapshot, or the output of .*, got"),
        (b'{"a":' * 50_000, "levels deep"),
        (b"[1]", r"a mapping with 'numaNodes' or 'machine', got \[1\] at x"),
        (b"{}", "got one with nothing in it at x"),
        (b'{"a": 1, "b": 2}', "got one with 'a', 'b' at x"),
        (b'{"machine": 3}', "expected a mapping, got 3 at x: machine"),
        (b'{"numaNodes": [{"id": "a"}]}', r"'a' at x\.numaNodes\[0\]\.id"),
        (b"<html/>", "a topology with objects in it"),
        (b"\x1f\x8b\x00", "expected a snapshot"),
    ],
)
def test_files_of_no_kind_are_clear_errors(here, content, message):
    (here / "x").write_bytes(content)

    with pytest.raises(InputError, match=message) as caught:
        load_machine("x")
    assert "\n" not in str(caught.value)


def test_devices_must_be_a_mapping(here):
    machine = read_machine("align-up-article").to_dict()
    (here / "x").write_text(json.dumps({"machine": machine, "devices": [1]}))

    with pytest.raises(InputError, match=r"a mapping, got .*at x: devices"):
        load_machine("x")


def test_a_file_that_cannot_be_read_or_is_too_large(here, monkeypatch):
    (here / "x").write_text("{}")
    monkeypatch.setattr(load, "_MAX_FILE", 1)
    with pytest.raises(InputError, match="a machine of up to 1 bytes, got 2 at x"):
        load_machine("x")
    monkeypatch.setattr(
        Path, "open", lambda *_: (_ for _ in ()).throw(PermissionError(13, "denied"))
    )
    monkeypatch.setattr(load, "_MAX_FILE", 10)
    with pytest.raises(InputError, match="cannot read the machine at x: denied"):
        load_machine("x")


@pytest.mark.parametrize(
    ("name", "meant"), [("epyc", "epyc-2s-nps4"), ("dgx-h10", "dgx-h100"), ("xeon2s", "xeon-2s")]
)
def test_a_name_of_the_catalog_that_is_nearly_right_is_answered_with_it(name, meant):
    with pytest.raises(
        InputError, match=f"^unknown machine '{name}': .*; did you mean {meant}\\?$"
    ):
        load_machine(name)

    with pytest.raises(
        InputError, match=f"^unknown machine '{name}' at machine: .*; did you mean {meant}\\?$"
    ):
        Node.from_dict({"machine": name})

    line = json.dumps({"name": "n", "machine": name})
    with pytest.raises(
        InputError,
        match=f"nodes:1: unknown machine '{name}' at machine: .*; did you mean {meant}\\?$",
    ):
        Cluster.from_json_lines(line)


def test_the_public_door_takes_what_the_option_takes(here):
    """A name, a file or a folder; only the record of the machine is returned."""
    machine = read_machine("dgx-h100")
    (here / "x").write_text(json.dumps({**machine.to_dict(), "devices": {}}))

    assert read_machine("dgx-h100") == machine
    assert read_machine(here / "x") == machine
    with pytest.raises(InputError, match="a file, a directory or one of align-up-article"):
        read_machine("bogus")
