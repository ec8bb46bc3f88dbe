"""What a user can give as a machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from alignup import Cluster, Node, read_machine
from alignup.errors import InputError
from alignup.machine import load, nvidia
from alignup.machine.archive import take_snapshot
from alignup.machine.device_inventory import Device, LoadedMachine
from alignup.machine.load import (
    catalog_entries,
    described_machine,
    load_machine,
    load_with_devices,
    machine_with_devices_from_dict,
)
from alignup.machine.machine import Core, Machine, NumaNode, PciDevice
from inputs.kernel_trees import server, write

XML = (
    '<?xml version="1.0"?><topology version="2.0"><object type="Machine" cpuset="0x1">'
    '<object type="NUMANode" os_index="0" cpuset="0x1" local_memory="1"/>'
    '<object type="PU" cpuset="0x1"/></object></topology>'
)

DGX = catalog_entries()["dgx-h100"]

GPU = nvidia.GPU_RESOURCE
MACHINE = Machine(
    (NumaNode(0, 1, (Core((0,), 0),)), NumaNode(1, 1, (Core((1,), 1),)), NumaNode(2, 1, ())),
    pci_devices=(PciDevice("0000:10:00.0", "0302", "10de", "2330", 1),),
)
DRIVER = (Device("GPU-1", (2,)),)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_name_of_the_catalog():
    """Its devices come along."""
    loaded = load_machine("align-up-article")

    assert loaded.machine == read_machine("align-up-article")
    assert [device.id for device in loaded.devices["nvidia.com/gpu"]] == ["gpu0", "gpu1"]
    assert loaded.preferred_sets == {}


def test_a_name_of_the_catalog_wins_over_a_file(folder):
    """`./name` is the file."""
    (folder / "gb200").write_text(XML)

    assert len(load_machine("gb200").machine.numa_nodes) == 34
    assert len(load_machine("./gb200").machine.numa_nodes) == 1


def test_a_directory_and_a_snapshot_of_it(folder):
    """Neither has devices."""
    write(folder / "root", server())
    take_snapshot("root", "machine.tar.xz")

    assert load_machine("root") == load_machine("machine.tar.xz")
    assert load_machine("root").machine.cpu_count == 8
    assert load_machine("root").devices == {}


@pytest.mark.parametrize("start", ["", "\ufeff", " \n"])
def test_hwlocs_xml(folder, start):
    document = start + XML
    if start == " \n":
        document = "\n" + XML.split("?>")[1]
    (folder / "machine").write_text(document)

    assert load_machine("machine").machine.cpus == 1


def test_json_of_a_machine_of_a_scenario_and_of_the_catalog(folder):
    """`machine --json` prints the first; the others have it under a key, beside its devices."""
    machine = read_machine("xeon-2s")
    devices = {"a/b": [{"id": "x", "numa": [0]}]}
    (folder / "plain.json").write_text(json.dumps(machine.to_dict()))
    scenario = {
        "machine": machine.to_dict(),
        "devices": devices,
        "preferredSets": {"a/b": [["x"]]},
        "kubelet": {},
    }
    (folder / "scenario.json").write_text(json.dumps(scenario))
    (folder / "bare.json").write_text(json.dumps({"machine": machine.to_dict(), "devices": None}))

    assert load_machine("plain.json").machine == machine
    assert load_machine("scenario.json").devices == {"a/b": (Device("x", (0,)),)}
    assert load_machine("scenario.json").preferred_sets == {"a/b": (("x",),)}
    assert load_machine("bare.json").devices == {}
    assert load_machine("bare.json").machine == machine


def test_what_does_not_exist_names_what_does():
    with pytest.raises(
        InputError,
        match=(
            r"unknown machine 'align-up-articel': .* one of align-up-article, .*; "
            r"did you mean align-up-article\?"
        ),
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
def test_files_of_no_kind_are_clear_errors(folder, content, message):
    (folder / "x").write_bytes(content)

    with pytest.raises(InputError, match=message) as caught:
        load_machine("x")
    assert "\n" not in str(caught.value)


def test_devices_must_be_a_mapping(folder):
    machine = read_machine("align-up-article").to_dict()
    (folder / "x").write_text(json.dumps({"machine": machine, "devices": [1]}))

    with pytest.raises(InputError, match=r"a mapping, got .*at x: devices"):
        load_machine("x")


def test_a_file_that_cannot_be_read_or_is_too_large(folder, monkeypatch):
    (folder / "x").write_text("{}")
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


def test_the_public_door_takes_what_the_option_takes(folder):
    """A name, a file or a folder; only the record of the machine is returned."""
    machine = read_machine("dgx-h100")
    (folder / "x").write_text(json.dumps({**machine.to_dict(), "devices": {}}))

    assert read_machine("dgx-h100") == machine
    assert read_machine(folder / "x") == machine
    with pytest.raises(InputError, match="a file, a directory or one of align-up-article"):
        read_machine("bogus")


def test_a_name_of_the_catalog_brings_its_devices_and_configuration():
    described = described_machine("dgx-h100")

    assert described.machine == DGX.machine
    assert (described.devices, described.kubelet) == (DGX.devices, DGX.kubelet)
    assert described.preferred_sets == DGX.preferred_sets


def test_the_round_trip_keeps_everything():
    """What is printed is read back."""
    described = described_machine("dgx-h100")

    assert described_machine(described.to_dict()) == described


def test_a_machine_of_nothing_else_has_no_extra_keys():
    plain = read_machine("xeon-2s").to_dict()

    assert described_machine(plain).to_dict() == plain


def test_own_keys_win():
    """Each by itself; devices come without the machine's preferred sets."""
    plain = described_machine("dgx-h100").to_dict()
    pair = {"example.com/nic": [[device.id for device in DGX.devices["example.com/nic"][:2]]]}
    machine = {**plain, "preferredSets": pair}
    document = machine_with_devices_from_dict({"machine": machine, "devices": {}, "kubelet": None})

    assert (document.devices, document.preferred_sets, document.kubelet) == ({}, {}, DGX.kubelet)
    assert machine_with_devices_from_dict({"machine": machine, "kubelet": {}}).kubelet == {}
    kept = machine_with_devices_from_dict({"machine": machine, "preferredSets": {}})
    assert (kept.devices, kept.preferred_sets) == (DGX.devices, {})
    assert described_machine(machine).to_dict() == machine


@pytest.mark.parametrize(
    ("described", "message"),
    [
        (
            "bogus",
            (
                r"unknown machine 'bogus' at machine: expected a machine object, "
                r"or one of the catalog: .*, xeon-2s$"
            ),
        ),
        ("", "xeon-2s$"),
        ("x" * 300, "^unknown machine 'x{79} at machine"),
        (3, "expected a mapping, got 3 at machine"),
        ({**DGX.machine.to_dict(), "devices": 3}, "expected a mapping, got 3 at machine.devices"),
    ],
)
def test_what_is_no_machine_says_so(described, message):
    with pytest.raises(InputError, match=message):
        described_machine(described)


@pytest.fixture
def driver_calls(monkeypatch):
    """The machines of which the driver was asked, which has a GPU on each."""
    calls = []

    def read_gpus(machine):
        calls.append(machine)
        return LoadedMachine(machine, {GPU: DRIVER}, {GPU: (("GPU-1",),)})

    monkeypatch.setattr(nvidia, "read_gpus", read_gpus)
    return calls


def test_a_machine_brings_its_devices(driver_calls):
    """A record brings none."""
    assert load_with_devices("dgx-h100") == load_machine("dgx-h100")
    assert load_with_devices(MACHINE) == LoadedMachine(MACHINE)
    assert not driver_calls


def test_an_inventory_replaces_all_of_them():
    """And the sets of what is replaced are no longer preferred."""
    loaded = load_with_devices("dgx-h100", devices={"x/y": [{"id": "a", "numa": [1]}]})
    assert loaded.devices == {"x/y": (Device("a", (1,)),)}
    assert loaded.preferred_sets == {}
    assert load_with_devices("dgx-h100", devices={}).devices == {}
    with pytest.raises(InputError, match=r"got 3 at FILE\['x/y'\]\[0\].id"):
        load_with_devices("dgx-h100", devices={"x/y": [{"id": 3}]}, where="FILE")


def test_pci_devices_replace_those_of_their_resource():
    """Others stay."""
    devices = {GPU: [{"id": "a"}], "x/y": [{"id": "b"}]}
    loaded = load_with_devices(MACHINE, devices=devices, selectors=[f"{GPU}=10de:*"])
    assert loaded.devices == {GPU: (Device("0000:10:00.0", (1,)),), "x/y": (Device("b", None),)}


def test_the_driver_is_asked_as_often_as_wanted(driver_calls):
    """Never, for GPUs that nothing else describes, or for all."""
    inventory = {GPU: [{"id": "a"}]}
    assert load_with_devices(MACHINE, devices=inventory, nvidia="if missing").devices == {
        GPU: (Device("a", None),)
    }
    assert not driver_calls
    for loaded in (
        load_with_devices(MACHINE, nvidia="if missing"),
        load_with_devices(MACHINE, devices=inventory, nvidia="always"),
    ):
        assert loaded.devices == {GPU: DRIVER}
        assert loaded.preferred_sets == {GPU: (("GPU-1",),)}


def test_gpus_that_nobody_asked_for_may_be_missing(driver_calls, monkeypatch):
    """A machine without GPUs of NVIDIA is no reason to ask.

    One whose driver does not answer goes on without them.
    """
    messages = []
    nvswitch = PciDevice("0000:11:00.0", "0680", "10de", "22a3", 1)
    without_gpus = Machine(MACHINE.numa_nodes, pci_devices=(nvswitch,))
    assert load_with_devices(
        without_gpus, nvidia="if there", tell=messages.append
    ) == LoadedMachine(without_gpus)
    assert not driver_calls
    assert load_with_devices(MACHINE, nvidia="if there", tell=messages.append).devices == {
        GPU: DRIVER
    }
    assert not messages

    def no_driver(_):
        raise InputError("expected a driver, got none")

    monkeypatch.setattr(nvidia, "read_gpus", no_driver)
    assert load_with_devices(MACHINE, nvidia="if there", tell=messages.append) == LoadedMachine(
        MACHINE
    )
    assert messages == ["the NVIDIA GPUs of this machine are left out: expected a driver, got none"]
    with pytest.raises(InputError, match="got none"):
        load_with_devices(MACHINE, nvidia="if missing")


@pytest.mark.usefixtures("driver_calls")
def test_devices_of_every_source_can_be_moved_to_cpus():
    """As the last step."""
    loaded = load_with_devices(MACHINE, nvidia="always", near_cpus=True)
    assert loaded.devices == {GPU: (Device("GPU-1", (0, 1)),)}


def test_a_text_of_programs_has_a_limit_of_its_own(tmp_path, monkeypatch):
    path = tmp_path / "x"
    path.write_text("word\n" * 10)
    monkeypatch.setattr(load, "_MAX_PASTED", 49)
    with pytest.raises(InputError, match="what programs print in up to 49 bytes, got 50 at"):
        load.load_machine(str(path))
