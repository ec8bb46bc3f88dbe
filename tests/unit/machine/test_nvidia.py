"""GPUs as the driver tells of them, by a module that answers like NVML."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from alignup.errors import InputError
from alignup.machine.device_inventory import Device
from alignup.machine.machine import Core, Machine, NumaNode, PciDevice
from alignup.machine.nvidia import read_gpus

MACHINE = Machine(
    (NumaNode(0, 1, (Core((0,), 0),)), NumaNode(1, 1, (Core((1,), 1),)), NumaNode(2, 1, ())),
    pci_devices=(
        PciDevice("0000:10:00.0", "0302", "10de", "2330", 0),
        PciDevice("0001:11:00.0", "0302", "10de", "2330", 1),
    ),
)


class NVMLError(Exception):
    pass


class Nvml:
    """As much of NVML as is asked; a GPU is its number."""

    NVMLError = NVMLError
    NVML_NVLINK_MAX_LINKS = 4
    NVML_P2P_CAPS_INDEX_NVLINK = 2
    NVML_P2P_STATUS_OK = 0

    def __init__(self, nodes=(0, 1), links=(), switched=(), fails=()):
        self.nodes = nodes
        self.links = links
        self.switched = switched
        self.fails = fails
        self.open = 0

    def check(self, name):
        if name in self.fails:
            raise NVMLError(f"{name} failed")

    def nvmlInit(self):  # noqa: N802  # NVML's name
        self.check("init")
        self.open += 1

    def nvmlShutdown(self):  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self):  # noqa: N802
        self.check("count")
        return len(self.nodes)

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return index

    def nvmlDeviceGetUUID(self, gpu):  # noqa: N802
        if gpu == 0:
            return "GPU-0"
        return f"GPU-{gpu}".encode()

    def nvmlDeviceGetPciInfo(self, gpu):  # noqa: N802
        return SimpleNamespace(busId=f"0000000{gpu}:1{gpu}:00.0".encode())

    def nvmlDeviceGetNumaNodeId(self, gpu):  # noqa: N802
        self.check("numa")
        return self.nodes[gpu]

    def nvmlDeviceGetNvLinkState(self, gpu, link):  # noqa: N802
        ends = [pair for pair in self.links if gpu in pair]
        if link >= len(ends):
            raise NVMLError("no such link")
        return int(ends[link][0] != ends[link][1])

    def nvmlDeviceGetNvLinkRemotePciInfo(self, gpu, link):  # noqa: N802
        ends = [pair for pair in self.links if gpu in pair]
        near_end, far_end = ends[link]
        peer = near_end
        if near_end == gpu:
            peer = far_end
        return SimpleNamespace(busId=f"0000000{peer}:1{peer}:00.0")

    def nvmlDeviceGetP2PStatus(self, gpu, peer, index):  # noqa: N802
        self.check("p2p")
        if index == 2 and {gpu, peer} <= set(self.switched):
            return 0
        return 5


def test_gpus_have_their_uuid_and_node():
    """In the driver's order; texts may be bytes."""
    nvml = Nvml((0, 2))
    loaded = read_gpus(MACHINE, nvml=nvml)

    assert loaded.devices == {
        "nvidia.com/gpu": tuple(
            Device(f"GPU-{gpu}", (node,), pci=pci)
            for gpu, node, pci in ((0, 0, "0000:10:00.0"), (1, 2, "0001:11:00.0"))
        )
    }
    assert loaded.preferred_sets == {}
    assert nvml.open == 0


@pytest.mark.parametrize(
    "nvml", [Nvml(fails=("numa",)), Nvml((0xFFFFFFFF, 0xFFFFFFFF)), Nvml((9, 9))]
)
def test_where_the_driver_names_no_node_sysfs_does(nvml):
    """It names none, or one that this machine lacks."""
    devices = read_gpus(MACHINE, nvml=nvml).devices["nvidia.com/gpu"]

    assert [device.numa_nodes for device in devices] == [(0,), (1,)]


def test_old_drivers_cannot_be_asked_for_the_node():
    nvml = Nvml()
    functions = {name: getattr(nvml, name) for name in dir(nvml) if name.lower().startswith("nvml")}
    del functions["nvmlDeviceGetNumaNodeId"]

    assert read_gpus(MACHINE, nvml=SimpleNamespace(**functions)).devices["nvidia.com/gpu"][
        1
    ].numa_nodes == (1,)


def test_a_gpu_that_nobody_knows_the_place_of_has_no_topology():
    bare = Machine(MACHINE.numa_nodes)

    assert (
        read_gpus(bare, nvml=Nvml(fails=("numa",))).devices["nvidia.com/gpu"][0].numa_nodes is None
    )


def test_pairs_with_the_most_links_come_first():
    """A link that is down, here to itself, is none."""
    nvml = Nvml((0, 0, 1, 1), links=[(0, 0), (0, 1), (2, 3), (2, 3), (1, 2)])

    assert read_gpus(MACHINE, nvml=nvml).preferred_sets == {
        "nvidia.com/gpu": (("GPU-2", "GPU-3"), ("GPU-0", "GPU-1"), ("GPU-1", "GPU-2"))
    }


def test_gpus_behind_a_switch_are_pairs_too():
    nvml = Nvml((0, 0, 1), switched=[0, 2])

    assert read_gpus(MACHINE, nvml=nvml).preferred_sets == {"nvidia.com/gpu": (("GPU-0", "GPU-2"),)}
    assert read_gpus(MACHINE, nvml=Nvml(fails=("p2p",))).preferred_sets == {}


def test_without_a_driver_there_is_a_clear_sentence():
    with pytest.raises(
        InputError, match="cannot use NVIDIA's driver: init failed; is it installed"
    ):
        read_gpus(MACHINE, nvml=Nvml(fails=("init",)))


def test_a_driver_that_fails_later_is_let_go():
    """The library is shut down all the same."""
    nvml = Nvml(fails=("count",))

    with pytest.raises(InputError, match="cannot describe its GPUs: count failed"):
        read_gpus(MACHINE, nvml=nvml)
    assert nvml.open == 0


def test_without_the_library_there_is_a_clear_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)

    with pytest.raises(InputError, match=r"pip install nvidia-ml-py"):
        read_gpus(MACHINE)


def test_the_library_is_imported_when_it_is_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())

    assert len(read_gpus(MACHINE).devices["nvidia.com/gpu"]) == 2


class MigNvml(Nvml):
    """A second GPU with MIG, of which the instances of numbers 0 and 2 are there."""

    def nvmlDeviceGetMigMode(self, gpu):  # noqa: N802
        return gpu, gpu

    def nvmlDeviceGetMaxMigDeviceCount(self, _gpu):  # noqa: N802
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu, index):  # noqa: N802
        if index not in {0, 2}:
            raise NVMLError("no such instance")
        return f"{gpu}.{index}"

    def nvmlDeviceGetUUID(self, gpu):  # noqa: N802
        if isinstance(gpu, str):
            return f"MIG-{gpu}"
        return super().nvmlDeviceGetUUID(gpu)


def test_instances_of_mig_take_the_place_of_their_gpu_near_its_node():
    loaded = read_gpus(MACHINE, nvml=MigNvml(links=((0, 1),)))
    assert loaded.devices["nvidia.com/gpu"] == (
        Device("GPU-0", (0,), pci="0000:10:00.0"),
        Device("MIG-1.0", (1,), pci="0001:11:00.0"),
        Device("MIG-1.2", (1,), pci="0001:11:00.0"),
    )
    assert loaded.preferred_sets == {}
