"""What a process sees of a machine's devices, and what its children are told of them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from alignup.errors import InputError
from alignup.host.parts.visible_devices import (
    HostFiles,
    Rank,
    choice_of,
    launched_rank,
    listed_devices,
    runtime_resource,
    sight,
    unread_variables,
    visible_variables,
)
from alignup.machine.device_inventory import Device, LoadedMachine
from alignup.machine.machine import PciDevice
from alignup.machine.pci_devices import devices_from_pci, usual_selectors
from inputs import leasing
from inputs.cuda_visible_devices import forms

GPU = "nvidia.com/gpu"
AMD = "amd.com/gpu"
GAUDI = "habana.ai/gaudi"
INTEL = "gpu.intel.com/xe"
KINDS = {
    GPU: ("10de", "0302"),
    AMD: ("1002", "1200"),
    GAUDI: ("1da3", "1200"),
    INTEL: ("8086", "0380"),
}
UUID = "GPU-deadbeef-0123-4567-89ab-cdef01234567"


def address(number):
    return f"0000:{number + 1:02x}:00.0"


def on_bus(resource, count=8, driver=None):
    """Return a machine with so many devices on its bus, of which a driver lists some by UUID."""
    vendor, class_ = KINDS[resource]
    pci_devices = tuple(
        PciDevice(address(number), class_, vendor, "2330", number % 2) for number in range(count)
    )
    machine = replace(leasing.machine(), pci_devices=pci_devices)
    devices = devices_from_pci(machine, usual_selectors(machine, resource))
    if driver is not None:
        devices = {
            resource: tuple(
                Device(f"GPU-0000000{number}", (0,), pci=address(number)) for number in driver
            )
        }
    return LoadedMachine(machine, devices)


def seen(loaded, resource, environment, rank=(0, 1, 1), root=None):
    """Return the places on the bus of the devices that a process sees, and its whole sight."""
    files = None if root is None else HostFiles(str(root))
    view = sight(loaded, resource, environment, Rank(*rank), files)
    places = {device.id: place for place, device in enumerate(view.devices)}
    return [places[device.id] for device in view.seen], view


@pytest.fixture
def root(tmp_path):
    """An empty root folder of a machine."""
    return tmp_path


def write(root, path, text=""):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(f"{text}\n")


FORMS = forms(UUID)


@pytest.mark.parametrize("text", FORMS, ids=lambda text: repr(text)[:24])
def test_cuda_s_variable_is_read_as_the_driver_does(text):
    loaded = LoadedMachine(leasing.machine(), {GPU: (Device(UUID, (0,)),)})
    listed, view = seen(loaded, GPU, {"CUDA_VISIBLE_DEVICES": text})
    assert len(listed) == FORMS[text]
    assert bool(view.reason) == (not listed)


def test_an_entry_of_no_device_ends_the_list_and_uuids_need_be_unique():
    loaded = LoadedMachine(
        leasing.machine(), {GPU: tuple(Device(f"GPU-{name}", None) for name in ("aa", "ab", "cc"))}
    )
    for text, expected in {
        "1, 9,0": [1],
        "2,GPU-aa": [2],
        "GPU-c": [2],
        "GPU-a": [],
        "GPU-cc,GPU-aa,MIG-ab": [2, 0],
        "2,0": [2, 0],
    }.items():
        assert seen(loaded, GPU, {"CUDA_VISIBLE_DEVICES": text})[0] == expected, text
    assert seen(loaded, GPU, {})[0] == [0, 1, 2]
    assert seen(loaded, "example.com/nic", {"CUDA_VISIBLE_DEVICES": ""})[0] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"CUDA_VISIBLE_DEVICES \(''\) hides all"),
        ("-1", r"\('-1'\) hides all"),
        ("8,0", "begins with none of the 8 of the machine"),
        ("3,3", "names a device twice"),
        ("GPU-aa", r"names a UUID, which only the driver .* extra `nvidia`"),
        ("4,5", "lists no others"),
    ],
)
def test_what_hides_devices_is_named(text, words, root):
    _, view = seen(on_bus(GPU), GPU, {"CUDA_VISIBLE_DEVICES": text}, root=root)
    assert re.search(words, view.reason)


@pytest.mark.parametrize(
    ("resource", "environment", "driver", "words"),
    [
        (
            AMD,
            {"ROCR_VISIBLE_DEVICES": "5", "HIP_VISIBLE_DEVICES": "5"},
            None,
            r"HIP_.* begins with none of the 1 that are left to it: ROCR_.* lists no others",
        ),
        (
            GPU,
            {"CUDA_VISIBLE_DEVICES": "5"},
            [5],
            "none of the 1 that are left to it: the driver lists no others",
        ),
        (AMD, {"ROCR_VISIBLE_DEVICES": "GPU-7"}, None, "the kernel tells no unique_id"),
        (AMD, {"ROCR_VISIBLE_DEVICES": "9,9"}, None, "with none of the 8 of the machine"),
    ],
)
def test_a_number_counts_among_those_that_are_left(resource, environment, driver, words, root):
    """A number of the machine is none of these; to say that the machine lacks it would be wrong."""
    listed, view = seen(on_bus(resource, driver=driver), resource, environment, root=root)
    assert (listed, view.is_whole) == ([], False)
    assert re.search(words, view.reason)


@pytest.mark.parametrize(
    ("environment", "models", "is_noted"),
    [
        ({"CUDA_VISIBLE_DEVICES": "1"}, ("2330", "20b5"), True),
        ({"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, ("1", "2"), True),
        ({"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, ("1", "2"), False),
        ({"CUDA_VISIBLE_DEVICES": "1"}, ("2330", "2330"), False),
        ({"CUDA_VISIBLE_DEVICES": "GPU-00000001"}, ("2330", "20b5"), False),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, ("2330", "20b5"), False),
    ],
)
def test_cuda_may_count_gpus_of_several_models_by_their_speed(environment, models, is_noted, root):
    loaded = on_bus(GPU, 2, driver=[0, 1])
    gpus = zip(loaded.machine.pci_devices, models, strict=True)
    pci_devices = tuple(replace(device, device=model) for device, model in gpus)
    loaded = replace(loaded, machine=replace(loaded.machine, pci_devices=pci_devices))
    _, view = seen(loaded, GPU, environment, root=root)
    assert bool(view.notes) == is_noted
    assert all("unless CUDA_DEVICE_ORDER=PCI_BUS_ID" in note for note in view.notes)


def test_a_device_that_is_named_twice_is_one(root):
    """Two ranks would have it."""
    twice = {"HABANA_VISIBLE_MODULES": "1,1,2"}
    assert seen(on_bus(GAUDI), GAUDI, twice, root=root)[0] == [1, 2]
    assert seen(on_bus(GPU), GPU, {"SLURM_STEP_GPUS": "3,3"}, root=root)[0] == [3]


def test_a_task_that_a_driver_shows_one_gpu_has_it_among_those_of_the_bus(root):
    """Slurm's --gpus-per-task with ConstrainDevices: every task counts its own from 0."""
    for rank in range(8):
        places, view = seen(
            on_bus(GPU, driver=[rank]), GPU, {"CUDA_VISIBLE_DEVICES": "0"}, (rank, 8, 1), root
        )
        assert places == [rank]
        assert len(view.devices) == 8


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4"}, Rank(2, 4)),
        ({}, Rank()),
        ({"LOCAL_RANK": "2"}, Rank()),
    ],
)
def test_a_launcher_says_which_rank_a_process_is(environment, rank):
    assert launched_rank(environment) == rank


STEP = {"SLURM_STEP_GPUS": "0,1,2,3,4,5,6,7"}


@pytest.mark.parametrize(
    ("environment", "rank", "expected"),
    [
        # constrained: each task counts from 0
        ({"CUDA_VISIBLE_DEVICES": "0", **STEP}, (5, 8, 1), [5]),
        ({"CUDA_VISIBLE_DEVICES": "0,1", **STEP}, (2, 4, 2), [4, 5]),
        ({"CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_GPUS": "6"}, (0, 1, 1), [6]),
        ({"CUDA_VISIBLE_DEVICES": "0", "SLURM_STEP_GPUS": "3,7"}, (1, 2, 1), [7]),
        ({"CUDA_VISIBLE_DEVICES": "1,0", "SLURM_STEP_GPUS": "5,3"}, (0, 2, 1), [5, 3]),
        # not constrained: numbers are the machine's
        ({"CUDA_VISIBLE_DEVICES": "5", **STEP}, (5, 8, 1), [5]),
        ({"CUDA_VISIBLE_DEVICES": "3,7", "SLURM_STEP_GPUS": "3,7"}, (1, 2, 1), [3, 7]),
        # the job's numbers are the machine's where the step's are a cgroup's
        (
            {"CUDA_VISIBLE_DEVICES": "0", "SLURM_STEP_GPUS": "0", "SLURM_JOB_GPUS": "4,5,6,7"},
            (2, 4, 1),
            [6],
        ),
        # Slurm alone
        ({"SLURM_STEP_GPUS": "6,2"}, (0, 2, 1), [6, 2]),
        # no numbers of devices
        ({"CUDA_VISIBLE_DEVICES": "4", "SLURM_STEP_GPUS": "a"}, (0, 1, 1), [4]),
        ({"CUDA_VISIBLE_DEVICES": "4", "SLURM_STEP_GPUS": "9"}, (0, 1, 1), [4]),
        ({"CUDA_VISIBLE_DEVICES": "4", "SLURM_STEP_GPUS": "9" * 5000}, (0, 1, 1), [4]),
    ],
)
def test_slurm_tells_which_gpus_a_task_has(environment, rank, expected, root):
    assert seen(on_bus(GPU), GPU, environment, rank, root)[0] == expected


@pytest.mark.parametrize(
    "environment",
    [
        {"CUDA_VISIBLE_DEVICES": "0", "SLURM_STEP_GPUS": "4,5"},  # more tasks than GPUs
        {"CUDA_VISIBLE_DEVICES": "0", "SLURM_STEP_GPUS": "0"},  # within a cgroup, perhaps
        {"CUDA_VISIBLE_DEVICES": "0", "SLURM_LOCALID": "1"},
        {"CUDA_VISIBLE_DEVICES": "0", "SLURM_GPU_BIND": "map_gpu:1,0", **STEP},
    ],
)
def test_what_slurm_leaves_open_is_said(environment, root):
    places, view = seen(on_bus(GPU), GPU, environment, (1, 8, 1), root)
    assert places == [0]
    assert "numbers within a device cgroup of Slurm" in view.notes[0]


def test_without_slurm_a_first_gpu_is_the_machine_s(root):
    assert seen(on_bus(GPU), GPU, {"CUDA_VISIBLE_DEVICES": "0"}, (0, 8, 1), root)[1].notes == ()
    all_of_them = {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7", **STEP}
    assert seen(on_bus(GPU), GPU, all_of_them, (0, 8, 1), root)[1].notes == ()


def test_slurm_as_it_was_seen_with_a_device_cgroup(root):
    """Slurm 22.05 counts SLURM_STEP_GPUS from 0 in each task too: only the files tell."""
    write(root, "dev/nvidia3")
    environment = {"CUDA_VISIBLE_DEVICES": "0", "SLURM_STEP_GPUS": "0"}
    assert seen(on_bus(GPU), GPU, environment, (3, 4, 1), root)[0] == [3]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"NVIDIA_VISIBLE_DEVICES": "5"}, [5]),
        ({"NVIDIA_VISIBLE_DEVICES": "6,5", "CUDA_VISIBLE_DEVICES": "1"}, [6]),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-00000003"}, [3]),
        ({"NVIDIA_VISIBLE_DEVICES": "6,5", "CUDA_VISIBLE_DEVICES": "4"}, [4]),
        ({"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VISIBLE_DEVICES": "4"}, [4]),
        ({"NVIDIA_VISIBLE_DEVICES": "9,0", "CUDA_VISIBLE_DEVICES": "4"}, [4]),
    ],
)
def test_a_container_is_told_which_gpus_it_was_given(environment, expected, root):
    """Where its device files do not tell."""
    for number in range(8):
        information(root, number, number)
    assert seen(on_bus(GPU), GPU, environment, root=root)[0] == expected
    with pytest.raises(InputError, match="nothing tells"):
        seen(on_bus(GPU), GPU, {"NVIDIA_VISIBLE_DEVICES": "void"}, root=root)


def information(root, number, minor):
    text = f"Model: \t NVIDIA H100\nGPU UUID: \t GPU-0000000{number}\nDevice Minor: \t {minor}"
    write(root, f"proc/driver/nvidia/gpus/{address(number)}/information", text)


def test_device_files_tell_which_gpus_a_container_was_given(root):
    """By the number that the driver has for them: here the other way around."""
    for number in range(8):
        information(root, number, 7 - number)
    write(root, "dev/nvidia2")
    write(root, "dev/nvidiactl")
    places, view = seen(on_bus(GPU), GPU, {}, root=root)
    assert places == [5]
    assert view.reason == "it may open the device files of no others"
    assert view.numbered == (address(5),)
    assert seen(on_bus(GPU), GPU, {"CUDA_VISIBLE_DEVICES": "0"}, root=root)[0] == [5]

    # which are more telling than a launcher's list
    assert seen(on_bus(GPU), GPU, STEP, (1, 8, 1), root)[0] == [5]
    # the driver's files have UUIDs too
    assert seen(on_bus(GPU), GPU, {"CUDA_VISIBLE_DEVICES": "GPU-00000005"}, root=root)[0] == [5]


def test_what_the_driver_says_of_a_gpu_is_read_once(root, monkeypatch):
    for number in range(8):
        information(root, number, number)
        write(root, f"dev/nvidia{number}")

    paths = []
    read = HostFiles.read

    def counted_read(files, path):
        paths.append(path)
        return read(files, path)

    monkeypatch.setattr(HostFiles, "read", counted_read)
    environment = {"CUDA_VISIBLE_DEVICES": "GPU-00000003"}
    assert seen(on_bus(GPU), GPU, environment, root=root)[0] == [3]
    assert len(paths) == len(set(paths)) == 8


def test_without_the_driver_s_files_numbers_follow_the_bus(root):
    write(root, "dev/nvidia5")
    assert seen(on_bus(GPU), GPU, {}, root=root)[0] == [5]
    for number in range(8):
        write(root, f"dev/nvidia{number}")
    places, view = seen(on_bus(GPU), GPU, {}, root=root)
    assert (places, view.reason) == (list(range(8)), "")


def test_where_nothing_tells_the_error_says_what_would(root):
    with pytest.raises(
        InputError, match=r"8 nvidia\.com/gpu, and nothing tells .* `nvidia` .* SLURM_STEP_GPUS and"
    ):
        seen(on_bus(GPU), GPU, {}, root=root)

    assert seen(on_bus(GPU, 1), GPU, {}, root=root)[0] == [0]  # there is no other
    assert seen(on_bus(GPU), GPU, {"CUDA_VISIBLE_DEVICES": "6"}, root=root)[0] == [6]
    assert seen(on_bus(AMD), AMD, {}, root=root)[0] == list(range(8))


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"ROCR_VISIBLE_DEVICES": "4,5"}, [4, 5]),
        ({"HIP_VISIBLE_DEVICES": "4"}, [4]),
        ({"CUDA_VISIBLE_DEVICES": "4"}, [4]),
        # ROCr's first, and HIP's among what that leaves
        ({"ROCR_VISIBLE_DEVICES": "4,5,6", "HIP_VISIBLE_DEVICES": "2,0"}, [6, 4]),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "2"}, [1]),
        ({"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "2"}, [2]),
        ({"HIP_VISIBLE_DEVICES": ""}, list(range(8))),
        ({"ROCR_VISIBLE_DEVICES": ""}, []),
        ({"ROCR_VISIBLE_DEVICES": " 3 ,2,2,1"}, [3, 2]),
        ({"HIP_VISIBLE_DEVICES": "3,3,2, 1"}, [3, 2]),
        ({"ROCR_VISIBLE_DEVICES": "gpu-00000000000000a5,x"}, [5]),
        ({"HIP_VISIBLE_DEVICES": "GPU-00000000000000a6"}, [6]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-0"}, []),
        ({"HIP_VISIBLE_DEVICES": "9"}, []),
    ],
)
def test_rocm_has_two_variables(environment, expected, root):
    for number in range(8):
        write(root, f"sys/bus/pci/devices/{address(number)}/unique_id", f"00000000000000a{number}")
    assert seen(on_bus(AMD), AMD, environment, root=root)[0] == expected


def test_a_container_with_some_render_nodes_sees_these(root):
    for number in range(8):
        write(root, f"sys/bus/pci/devices/{address(number)}/drm/renderD{128 + number}/dev")
    write(root, "dev/dri/renderD133")
    assert seen(on_bus(AMD), AMD, {}, root=root)[0] == [5]


def test_modules_of_gaudi_are_no_places_on_the_bus(root):
    listed = {"HABANA_VISIBLE_MODULES": "4,0"}
    places, view = seen(on_bus(GAUDI), GAUDI, listed, root=root)
    assert places == [4, 0]
    assert "HABANA_VISIBLE_MODULES is read in the order of the PCI bus" in view.notes[0]

    for number in range(8):
        write(root, f"sys/bus/pci/devices/{address(number)}/module_id", number ^ 7)
    assert seen(on_bus(GAUDI), GAUDI, listed, root=root)[0] == [3, 7]
    assert seen(on_bus(GAUDI), GAUDI, {}, root=root)[0] == [7, 6, 5, 4, 3, 2, 1, 0]
    assert len(seen(on_bus(GAUDI), GAUDI, {"HABANA_VISIBLE_MODULES": "all"}, root=root)[0]) == 8
    _, view = seen(on_bus(GAUDI), GAUDI, {"HABANA_VISIBLE_MODULES": "x"}, root=root)
    assert "names no module" in view.reason


def test_level_zero_numbers_tiles_or_cards(root):
    """In order: a mask chooses, and does not sort."""
    for number in range(2):
        for tile in range(2):
            write(root, f"sys/bus/pci/devices/{address(number)}/tile{tile}/id")
    loaded = on_bus(INTEL, 2)
    mask = {"ZE_AFFINITY_MASK": "3,1"}
    places, view = seen(loaded, INTEL, mask, root=root)
    assert places == [1, 3]
    assert [device.id for device in view.seen] == [f"{address(0)}/1", f"{address(1)}/1"]
    assert {device.pci for device in view.devices} == {address(0), address(1)}

    composite = {"ZE_FLAT_DEVICE_HIERARCHY": "composite", "ZE_AFFINITY_MASK": "1.0,1.1"}
    places, view = seen(loaded, INTEL, composite, root=root)
    assert (places, view.seen[0].id) == ([1], address(1))
    assert seen(loaded, INTEL, {"ZE_AFFINITY_MASK": ""}, root=root)[0] == [0, 1, 2, 3]
    assert "names no device" in seen(loaded, INTEL, {"ZE_AFFINITY_MASK": "8"}, root=root)[1].reason


PARTITIONS = [Device(f"{address(0)}/{number}", None, pci=address(0)) for number in range(2)]
INSTANCES = [Device(f"MIG-{letter}", None, pci=address(0)) for letter in "ab"]
UUID_GPUS = [Device(f"GPU-{letter * 8}", None) for letter in "abc"]


@pytest.mark.parametrize(
    ("devices", "names", "expected"),
    [
        (UUID_GPUS, ["GPU-bbbbbbbb", "0000:02:00.0"], {"GPU-bbbbbbbb"}),
        (UUID_GPUS, ["GPU-bb", "GPU-c"], {"GPU-bbbbbbbb", "GPU-cccccccc"}),
        (UUID_GPUS, ["GPU-bb::1"], {"GPU-bbbbbbbb"}),
        (UUID_GPUS, ["GPU-dddddddd"], set()),
        # shares of a GPU
        ([Device("GPU-aa::0", None), Device("GPU-bb::0", None)], ["GPU-bb"], {"GPU-bb::0"}),
        # another kind of names: nothing can be told
        (UUID_GPUS, ["0000:02:00.0", "gpu1"], None),
        ([Device("gpu0", None), Device("gpu1", None)], ["GPU-bb", "0000:02:00.0"], None),
        ([], ["GPU-bb"], None),
        ([Device("gpu0", None), Device("gpu1", None)], ["gpu1"], {"gpu1"}),
        ([Device("gpu0", None, pci=address(1))], [address(1)], {"gpu0"}),
        ([Device("gpu0", None, pci=address(1))], [address(2)], set()),
        ([Device(address(0), None), Device(address(1), None)], [address(1)], {address(1)}),
        # partitions of a card: those that are named, or all where the card is
        (PARTITIONS, [f"{address(0)}/1", address(0)], {f"{address(0)}/1"}),
        (PARTITIONS, [address(0)], {f"{address(0)}/0", f"{address(0)}/1"}),
        (PARTITIONS, [f"{address(1)}/0", address(1)], set()),
        # instances of MIG on one card
        (INSTANCES, ["MIG-b", address(0)], {"MIG-b"}),
        (INSTANCES, ["GPU-a", address(0)], {"MIG-a", "MIG-b"}),
        ([Device("MIG-a", None)], ["GPU-a", address(0)], None),
    ],
)
def test_an_agent_knows_the_devices_of_a_client_by_their_names(devices, names, expected):
    assert choice_of(devices, names) == expected


@pytest.mark.parametrize(
    ("resource", "environment", "expected"),
    [
        (GPU, {}, (None, "")),
        (GPU, {"CUDA_VISIBLE_DEVICES": ""}, ((), "CUDA_VISIBLE_DEVICES ('') hides all")),
        (GPU, {"CUDA_VISIBLE_DEVICES": " -1,0"}, ((), "CUDA_VISIBLE_DEVICES (' -1,0') hides all")),
        (GPU, {"CUDA_VISIBLE_DEVICES": "1"}, (None, "CUDA_VISIBLE_DEVICES ('1')")),
        (
            GPU,
            {"CUDA_VISIBLE_DEVICES": "GPU-1,2,MIG-3"},
            (("GPU-1", "MIG-3"), "CUDA_VISIBLE_DEVICES ('GPU-1,2,MIG-3') lists no others"),
        ),
        # an empty one of two says nothing
        (AMD, {"HIP_VISIBLE_DEVICES": ""}, (None, "")),
        (AMD, {"CUDA_VISIBLE_DEVICES": "-1"}, ((), "CUDA_VISIBLE_DEVICES ('-1') hides all")),
        (AMD, {"ROCR_VISIBLE_DEVICES": ""}, ((), "ROCR_VISIBLE_DEVICES ('') hides all")),
        ("example.com/nic", {"CUDA_VISIBLE_DEVICES": "-1"}, (None, "")),
        # all devices
        (INTEL, {"ZE_AFFINITY_MASK": " "}, (None, "")),
        (GAUDI, {"HABANA_VISIBLE_MODULES": "all"}, (None, "")),
    ],
)
def test_what_variables_tell_where_no_device_is_known(resource, environment, expected):
    assert listed_devices(resource, environment) == expected


def test_all_names_of_a_device_that_is_seen_are_known(root):
    """The UUID is the driver's, or that of the kernel's files; a card is seen where a tile is."""
    information(root, 1, 0)
    _, view = seen(on_bus(GPU), GPU, {"CUDA_VISIBLE_DEVICES": "1"}, root=root)
    assert view.names == (address(1), "GPU-00000001")
    _, view = seen(on_bus(GPU, driver=range(8)), GPU, {"CUDA_VISIBLE_DEVICES": "1"}, root=root)
    assert view.names == ("GPU-00000001", address(1))
    assert seen(on_bus(GPU, driver=range(8)), GPU, {}, root=root)[1].names == ()


@pytest.mark.parametrize(
    ("resource", "expected"),
    [(AMD, AMD), ("nvidia.com/gpu.shared", GPU), ("nvidia.com/mig-1g.5gb", GPU), ("a.b/gpu", "")],
)
def test_shared_gpus_are_gpus(resource, expected):
    assert runtime_resource(resource) == expected


def test_variables_of_other_runtimes_are_named():
    (sentence,) = unread_variables({"TPU_VISIBLE_CHIPS": "0,1", "CUDA_VISIBLE_DEVICES": "1"})
    assert sentence.startswith("TPU_VISIBLE_CHIPS ('0,1') is not read")


def variables_of(site, devices):
    return visible_variables(devices, site.inventory, site.machine)


def pci(address, vendor="10de", class_="0302"):
    return PciDevice(address, class_, vendor, "2330", 0)


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (("GPU-1", "MIG-2"), {"CUDA_VISIBLE_DEVICES": "GPU-1,MIG-2"}),
        (("gpu2", "gpu3"), {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "2,3"}),
        (("00000000:2A:00.0",), {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1"}),
        (("0000:2a:00.0",), {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1"}),
    ],
)
def test_cuda_is_told_in_its_own_terms(ids, expected):
    """UUIDs as they are; addresses by their position among NVIDIA's GPUs.

    Its bridges and other people's GPUs do not count.
    """
    devices = (
        pci("0000:01:00.0", vendor="1002"),
        pci("0000:02:00.0", class_="0680"),
        pci("0000:2a:00.0"),
        pci("0000:09:00.0"),
    )
    site = leasing.site(replace(leasing.machine(), pci_devices=devices))

    environment = variables_of(site, {leasing.GPU: ids})

    assert {name: value for name, value in environment.items() if "CUDA" in name} == expected


def test_a_gpu_that_cuda_has_no_number_for_is_an_error():
    """Left out, it would be held by somebody who never sees it."""
    devices = (pci("0000:02:00.0", class_="0680"), pci("0000:2a:00.0"))
    site = leasing.site(replace(leasing.machine(), pci_devices=devices))

    with pytest.raises(InputError, match=r"a GPU that CUDA can number, got '0000:02:00\.0'"):
        variables_of(site, {leasing.GPU: ("0000:02:00.0", "0000:2a:00.0")})


def test_gpus_of_amd_are_numbered_for_rocm():
    """By their place in the inventory; no order of CUDA is set for them."""
    inventory = {"amd.com/gpu": [Device(name, None) for name in ("card0", "card1", "card2")]}
    chosen = {"amd.com/gpu": ("card2", "card0")}
    assert visible_variables(chosen, inventory, leasing.machine()) == {
        "ROCR_VISIBLE_DEVICES": "0,2"
    }
    assert visible_variables({"amd.com/gpu": ()}, inventory, leasing.machine()) == {}
    with pytest.raises(InputError, match="a GPU that ROCR can number, got 'card9'"):
        visible_variables({"amd.com/gpu": ("card9",)}, inventory, leasing.machine())


def test_children_are_told_the_numbers_of_what_the_driver_lists():
    """Within a cgroup they are counted from 0, and HIP counts what ROCr leaves."""
    loaded = on_bus(GPU)
    numbered = {GPU: [address(5), address(6)]}
    told = visible_variables({GPU: [address(6)]}, loaded.devices, loaded.machine, numbered)
    assert told["CUDA_VISIBLE_DEVICES"] == "1"

    loaded = on_bus(AMD)
    ids = {AMD: [address(5), address(6)]}
    environment = {"HIP_VISIBLE_DEVICES": "5,6"}
    told = visible_variables(ids, loaded.devices, loaded.machine, environment=environment)
    assert told == {"ROCR_VISIBLE_DEVICES": "5,6", "HIP_VISIBLE_DEVICES": "0,1"}


def test_instances_of_mig_are_devices_by_their_uuid():
    """A number is a GPU's, which has its first instance."""
    instances = [Device(f"MIG-a{number}", (0,), pci=address(1)) for number in range(2)]
    gpus = (Device("GPU-0", (0,), pci=address(0)), *instances)
    loaded = LoadedMachine(leasing.machine(), {GPU: gpus})
    assert seen(loaded, GPU, {"CUDA_VISIBLE_DEVICES": "MIG-a1"})[0] == [2]
    assert seen(loaded, GPU, {"CUDA_VISIBLE_DEVICES": "MIG-a1,MIG-a0,GPU-0"})[0] == [2, 1]
    assert seen(loaded, GPU, {"CUDA_VISIBLE_DEVICES": "1"})[0] == [1]
    assert seen(loaded, GPU, {})[0] == [0, 1, 2]


def test_partitions_are_numbered_one_after_the_other(root):
    """Of four MI300A in CPX, those of the second are 6 to 11."""
    machine = replace(
        leasing.machine(),
        pci_devices=tuple(
            PciDevice(address(number), "1200", "1002", "74a0", number % 2, partitions=6)
            for number in range(4)
        ),
    )
    devices = devices_from_pci(machine, usual_selectors(machine, AMD))
    loaded = LoadedMachine(machine, devices)
    _, view = seen(loaded, AMD, {"ROCR_VISIBLE_DEVICES": "0,7"}, root=root)
    assert [device.id for device in view.seen] == [f"{address(0)}/0", f"{address(1)}/1"]
    assert visible_variables({AMD: [view.seen[1].id]}, devices, machine) == {
        "ROCR_VISIBLE_DEVICES": "7"
    }
