"""The machine that work is placed on."""

from __future__ import annotations

import json
import os
import sys

import pytest

from alignup.errors import AllocationError, InputError
from alignup.host.leases import local_machine as module
from alignup.host.leases.file import LeaseFile
from alignup.host.leases.local_machine import (
    Hidden,
    fingerprint,
    load_site,
    only_seen,
    seen_by_client,
)
from alignup.host.leases.record import MemoryShare, Seen
from alignup.host.leases.request import LeaseRequest, make_request
from alignup.host.leases.source import FileSource
from alignup.host.parts.visible_devices import HostFiles, Rank
from alignup.host.processes.identity import identify
from alignup.machine import nvidia
from alignup.machine.cpuset import CPUSet
from alignup.machine.device_inventory import Device, LoadedMachine
from alignup.machine.machine import Machine, PciDevice
from alignup.records import replace
from inputs import leasing

DRIVER_GPU = Device("GPU-3", (1,), pci="0000:03:00.0")
SHARES = (MemoryShare(0, "memory", 0), MemoryShare(1, "memory", 5))


def test_the_machine_at_hand_is_cut_to_what_may_be_used():
    """A process that may use one CPU gets no other."""
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        site = load_site()
    finally:
        os.sched_setaffinity(0, before)
    assert site.is_here
    assert list(CPUSet.from_int(site.machine.cpus)) == [min(before)]


def test_a_catalog_machine_brings_its_devices():
    """It is not the machine at hand."""
    site = load_site("dgx-h100", resources=[leasing.GPU])
    assert not site.is_here
    assert [device.id for device in site.inventory[leasing.GPU]] == [f"gpu{i}" for i in range(8)]
    assert load_site("dgx-h100").inventory == {}


def test_a_record_is_a_machine():
    """With an inventory of one's own; two of these are equal only if they are."""
    machine = leasing.machine()
    site = load_site(machine, resources=[leasing.GPU], devices=leasing.GPUS)
    assert site.machine == machine
    assert len(site.inventory[leasing.GPU]) == 4
    assert site.identity == load_site(machine).identity
    assert site.identity.description == "16 CPUs, 2 NUMA nodes"
    assert site.identity.fingerprint != fingerprint(leasing.machine(cores=5), is_here=False)


def test_the_machine_at_hand_goes_by_its_host(monkeypatch):
    """CPUs come and go; without a host's identity it goes by its CPUs, not its memory."""
    machine, larger = leasing.machine(), leasing.machine(memory=17 * leasing.GI)
    monkeypatch.setattr(module, "host_identity", lambda: "h")
    assert fingerprint(machine, is_here=True) == "host h"
    monkeypatch.setattr(module, "host_identity", lambda: "")
    assert fingerprint(machine, is_here=True) == fingerprint(larger, is_here=True)
    assert fingerprint(machine, is_here=False) != fingerprint(larger, is_here=False)


def test_pci_devices_can_be_chosen():
    """By vendor and device."""
    data = leasing.machine().to_dict()
    data["pciDevices"] = [
        {
            "address": "0000:01:00.0",
            "class": "0302",
            "vendor": "10de",
            "device": "2330",
            "numaNode": 1,
        }
    ]

    site = load_site(Machine.from_dict(data), resources=["x/y"], selectors=["x/y=10de:*"])
    (device,) = site.inventory["x/y"]
    assert (device.id, device.numa_nodes) == ("0000:01:00.0", (1,))
    assert isinstance(site.machine.pci_devices[0], PciDevice)


def test_devices_on_nodes_without_cpus_are_near_the_closest_ones_with_cpus():
    """As on machines whose GPUs are nodes of their own."""
    data = leasing.machine(nodes=3).to_dict()
    data["numaNodes"][2]["cores"] = []
    devices = {"x/y": [{"id": "a", "numa": [2]}, {"id": "b", "numa": None}]}
    site = load_site(Machine.from_dict(data), resources=["x/y"], devices=devices)
    assert [device.numa_nodes for device in site.inventory["x/y"]] == [(1,), None]


def test_the_driver_is_asked_for_gpus_that_nobody_else_knows(monkeypatch):
    """On the machine at hand only, and only if they are wanted."""
    machines = []

    def read_gpus(machine):
        machines.append(machine)
        return LoadedMachine(
            machine, {leasing.GPU: (Device("GPU-1", None),)}, {leasing.GPU: (("GPU-1",),)}
        )

    monkeypatch.setattr(nvidia, "read_gpus", read_gpus)
    load_site()
    load_site(resources=[leasing.GPU], devices={leasing.GPU: []})
    assert not machines
    site = load_site(resources=[leasing.GPU])
    assert [device.id for device in site.inventory[leasing.GPU]] == ["GPU-1"]
    assert site.preferred_sets == {leasing.GPU: (("GPU-1",),)}


def test_all_resources_can_be_had_where_nvidias_library_is_not(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    messages = []
    inventory = load_site(all_resources=True, tell=messages.append).inventory
    assert leasing.GPU not in inventory


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"resources": ["x/y"]}, "one that --device-resource"),
        ({"resources": ["x/y"], "devices": {"a/b": []}}, "one of a/b, got 'x/y'"),
        ({"devices": [1]}, "a mapping of resources"),
    ],
)
def test_resources_that_are_not_there_are_refused(arguments, message):
    """The message says what there is."""
    with pytest.raises(InputError, match=message):
        load_site(leasing.machine(), **arguments)


def test_a_file_is_a_machine(tmp_path):
    """As with every other subcommand."""
    path = tmp_path / "m.json"
    path.write_text(json.dumps(leasing.machine().to_dict()))
    assert load_site(str(path)).machine == leasing.machine()


@pytest.mark.parametrize(
    ("policy", "strict"),
    [("none", False), ("best-effort", False), ("restricted", True), ("single-numa-node", True)],
)
def test_strict_policies_bind_strictly(policy, strict):
    """Others prefer."""
    assert leasing.record(policy=policy).is_strict is strict


@pytest.mark.parametrize(
    ("fields", "nodes"),
    [
        ({"cpus": CPUSet.parse("0"), "memory": SHARES, "policy": "none"}, (1,)),
        ({"cpus": CPUSet.parse("0,4"), "policy": "restricted"}, (0, 1)),
        ({"cpus": CPUSet.parse("0,4"), "policy": "none"}, ()),
        ({}, ()),
    ],
)
def test_memory_follows_what_was_asked_for_and_else_the_cpus(fields, nodes):
    """Under policy none it follows nothing."""
    assert leasing.site().memory_nodes(leasing.record(**fields)) == nodes


def test_nodes_without_memory_are_not_bound_to():
    """The kernel would refuse."""
    assert (
        leasing.site(leasing.machine(memory=0)).memory_nodes(leasing.record(cpus=CPUSet([0]))) == ()
    )


@pytest.mark.parametrize(
    ("devices", "variables"),
    [
        ({leasing.GPU: ("GPU-1::0",)}, {"CUDA_VISIBLE_DEVICES": "GPU-1"}),
        (
            {leasing.GPU: ("GPU-1::1", "GPU-2::0", "GPU-1::2")},
            {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2"},
        ),
        ({"nvidia.com/gpu.shared": ("GPU-1::2",)}, {"CUDA_VISIBLE_DEVICES": "GPU-1"}),
        ({"nvidia.com/mig-1g.10gb": ("MIG-1",)}, {"CUDA_VISIBLE_DEVICES": "MIG-1"}),
        (
            {
                "nvidia.com/mig-1g.10gb.shared": ("MIG-1::0", "MIG-1::1"),
                "nvidia.com/mig-2g.20gb": ("MIG-2",),
            },
            {"CUDA_VISIBLE_DEVICES": "MIG-1,MIG-2"},
        ),
        (
            {"amd.com/gpu": ("GPU-1",), "nvidia.com/gpu.shared": ("GPU-2::0",)},
            {"ROCR_VISIBLE_DEVICES": "GPU-1", "CUDA_VISIBLE_DEVICES": "GPU-2"},
        ),
        ({"example.com/nic": ("nic0",)}, {}),
        ({}, {}),
    ],
)
def test_a_command_sees_the_gpus_that_a_plugin_names_under_any_resource(devices, variables):
    """CUDA reads no number of a share behind a UUID, and no UUID twice."""
    assert leasing.site().visible(devices, {}) == variables


def test_devices_that_a_process_does_not_see_are_not_given_to_it(tmp_path):
    """Another machine is not the process's own."""
    site = leasing.site(is_here=True)
    listed = {"CUDA_VISIBLE_DEVICES": "3,1"}
    files = HostFiles(str(tmp_path))
    seen, hidden = only_seen(site, {leasing.GPU: 1}, listed, Rank(), files)
    reason = "CUDA_VISIBLE_DEVICES ('3,1') lists no others"
    assert seen.seen == {leasing.GPU: Seen(("gpu3", "gpu1"), reason)}
    assert seen.inventory == site.inventory
    assert hidden.notes == ()
    assert hidden.sentences == (
        f"2 of the 4 nvidia.com/gpu are to choose from, since {reason}; --all-devices lifts that",
    )
    assert only_seen(leasing.site(), {}, listed, Rank(), files) == (leasing.site(), Hidden())
    assert only_seen(site, {leasing.GPU: 1}, {}, Rank(), files)[1] == Hidden()
    with pytest.raises(InputError, match=r"sees no nvidia\.com/gpu: CUDA_VISIBLE_DEVICES \(''\)"):
        only_seen(site, {leasing.GPU: 1}, {"CUDA_VISIBLE_DEVICES": ""}, Rank(), files)


def test_a_refusal_says_what_hides_devices(tmp_path):
    """They are no unhealthy ones."""
    devices = [{"id": f"gpu{number}", "numa": [0], "healthy": number > 0} for number in range(4)]
    site = leasing.site(is_here=True, devices={leasing.GPU: devices})
    listed = {"CUDA_VISIBLE_DEVICES": "2,0"}
    seen, _ = only_seen(site, {leasing.GPU: 2}, listed, Rank(), HostFiles(str(tmp_path)))
    source = FileSource(LeaseFile(tmp_path / "leases.json", pytest.fail), lambda _: seen)
    request = LeaseRequest(
        make_request(devices={leasing.GPU: 2}), identify(os.getpid()), command="c", name="n"
    )
    with pytest.raises(AllocationError) as refused:
        source.acquire(request)
    assert refused.value.detail == (
        "too few devices of nvidia.com/gpu are free: 2 asked, 1 of 4 free, 1 unhealthy, "
        "2 hidden (CUDA_VISIBLE_DEVICES ('2,0') lists no others)"
    )


def test_a_client_that_cannot_read_its_machine_goes_by_the_variables(monkeypatch):
    """In a container that has no sysfs, say."""

    def fail(_source):
        raise InputError("there is no machine")

    monkeypatch.setattr("alignup.host.leases.local_machine.load_with_devices", fail)
    listed = {"CUDA_VISIBLE_DEVICES": "GPU-7"}
    seen, hidden = seen_by_client({leasing.GPU: 1}, listed, Rank())
    assert seen[leasing.GPU].names == ("GPU-7",)
    assert hidden == Hidden()
    assert seen_by_client({leasing.GPU: 1}, {}, Rank()) == ({}, Hidden())


GPU_BUS = tuple(
    PciDevice(f"0000:0{number}:00.0", "0302", "10de", "2330", number // 2) for number in range(4)
)
GPUS_OF_DRIVER = tuple(
    Device(f"GPU-{number}0", (number // 2,), pci=f"0000:0{number}:00.0") for number in range(4)
)


def client_of(environment, tmp_path, devices, resource=leasing.GPU):
    """Return what a client of an agent tells it, and what it says."""
    machine = replace(leasing.machine(), pci_devices=GPU_BUS if devices else ())
    loaded = LoadedMachine(machine, {leasing.GPU: devices} if devices else {})
    files = HostFiles(str(tmp_path))
    return seen_by_client({resource: 1}, environment, Rank(), files, loaded)


@pytest.mark.parametrize("resource", [leasing.GPU, "nvidia.com/gpu.shared", "nvidia.com/mig-1g"])
def test_a_client_tells_an_agent_by_all_names_what_it_sees(tmp_path, resource):
    listed = {"CUDA_VISIBLE_DEVICES": "2"}
    seen, hidden = client_of(listed, tmp_path, GPUS_OF_DRIVER, resource)
    reason = "CUDA_VISIBLE_DEVICES ('2') lists no others"
    assert seen == {resource: Seen(("GPU-20", "0000:02:00.0"), reason)}
    assert hidden.sentences == (
        f"1 of the 4 {resource} are to choose from, since {reason}; --all-devices lifts that",
    )
    assert client_of({}, tmp_path, GPUS_OF_DRIVER, resource) == ({}, Hidden())
    assert client_of(listed, tmp_path, GPUS_OF_DRIVER, "example.com/nic") == ({}, Hidden())


def test_a_client_asks_the_driver_of_its_machine_what_the_gpus_are_called(tmp_path, monkeypatch):
    machine = replace(leasing.machine(), pci_devices=GPU_BUS)
    by_driver = LoadedMachine(machine, {leasing.GPU: GPUS_OF_DRIVER})
    monkeypatch.setattr(
        "alignup.host.leases.local_machine.load_with_devices", lambda _: LoadedMachine(machine)
    )
    monkeypatch.setattr("alignup.machine.nvidia.has_gpus", lambda _: True)
    monkeypatch.setattr("alignup.machine.nvidia.read_gpus", lambda _: by_driver)
    listed = {"CUDA_VISIBLE_DEVICES": "2"}
    seen, _ = seen_by_client({leasing.GPU: 1}, listed, Rank(), HostFiles(str(tmp_path)))
    assert seen[leasing.GPU].names == ("GPU-20", "0000:02:00.0")


@pytest.mark.parametrize("devices", [(), GPUS_OF_DRIVER])
@pytest.mark.parametrize("text", ["", "-1", "-1,0"])
def test_a_client_that_sees_nothing_asks_no_agent(tmp_path, devices, text):
    with pytest.raises(InputError, match=r"sees no nvidia.com/gpu: CUDA_VISIBLE_DEVICES .* all; "):
        client_of({"CUDA_VISIBLE_DEVICES": text}, tmp_path, devices)


def test_without_a_gpu_here_uuids_tell_and_numbers_do_not(tmp_path):
    seen, hidden = client_of({"CUDA_VISIBLE_DEVICES": "GPU-7,GPU-8"}, tmp_path, ())
    assert seen[leasing.GPU].names == ("GPU-7", "GPU-8")
    assert hidden == Hidden()
    seen, hidden = client_of({"CUDA_VISIBLE_DEVICES": "1"}, tmp_path, ())
    assert seen == {}
    (note,) = hidden.notes
    assert note == (
        "the agent chooses among all devices of nvidia.com/gpu, whatever CUDA_VISIBLE_DEVICES "
        "('1') lists: nothing here tells which these are"
    )


def test_what_a_driver_does_not_list_is_nobody_s_and_counts_for_parts(tmp_path):
    """Within a cgroup: parts are those of the GPUs of the machine, and nothing is to be lifted."""
    address = "0000:0{}:00.0"
    gpus = tuple(PciDevice(address.format(i), "0302", "10de", "2330", i // 2) for i in range(4))
    made = replace(leasing.machine(), pci_devices=gpus)
    site = replace(leasing.site(made, is_here=True), inventory={leasing.GPU: (DRIVER_GPU,)})
    seen, hidden = only_seen(site, {leasing.GPU: 1}, {}, Rank(), HostFiles(str(tmp_path)))
    assert hidden == Hidden()
    assert seen.seen == {}
    assert len(seen.sights[leasing.GPU].devices) == 4
