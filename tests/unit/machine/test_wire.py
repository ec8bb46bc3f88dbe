"""The types that a machine's JSON is decoded to: names, defaults and bounds."""

from __future__ import annotations

import msgspec
import pytest

from alignup.machine.cpuset import CPU_LIMIT
from alignup.machine.wire import CoreWire, MachineWire, NumaNodeWire, PciDeviceWire

CORE = {"cpus": [0], "socket": 0}
NODE = {"id": 0, "memory": 0, "cores": [CORE]}


def test_keys_are_in_camel_case_and_class_is_no_attribute():
    machine = msgspec.convert(
        {
            "numaNodes": [{**NODE, "cores": [{**CORE, "uncoreCache": 7}], "memoryKind": "hbm"}],
            "pciDevices": [{"address": "0000:01:00.0", "class": "0302", "numaNode": 3}],
            "isolatedCpus": [1],
            "nohzFullCpus": [2],
        },
        MachineWire,
    )

    assert machine.numa_nodes[0].cores[0].uncore_cache == 7
    assert machine.numa_nodes[0].memory_kind == "hbm"
    assert (machine.pci_devices[0].class_, machine.pci_devices[0].numa_node) == ("0302", 3)
    assert (machine.isolated_cpus, machine.nohz_full_cpus) == ([1], [2])


def test_what_is_left_out_is_empty_and_no_default_is_shared():
    node = msgspec.convert(NODE, NumaNodeWire)
    assert (node.hugepages, node.distances, node.memory_kind) == ({}, [], "")
    assert (node.cores[0].l3, node.cores[0].uncore_cache) == (None, None)

    device = msgspec.convert({"address": "0000:01:00.0"}, PciDeviceWire)
    assert (device.class_, device.vendor, device.device) == ("", "", "")
    assert (device.numa_node, device.buses, device.link) == (None, None, None)

    node.distances.append(10)
    assert msgspec.convert(NODE, NumaNodeWire).distances == []


@pytest.mark.parametrize(
    ("wire", "document", "key", "most"),
    [
        (CoreWire, CORE, "socket", (1 << 31) - 1),
        (CoreWire, CORE, "l3", (1 << 31) - 1),
        (CoreWire, CORE, "uncoreCache", (1 << 62) - 1),
        (NumaNodeWire, NODE, "id", (1 << 31) - 1),
        (NumaNodeWire, NODE, "memory", (1 << 62) - 1),
    ],
)
def test_numbers_have_bounds(wire, document, key, most):
    """From zero up to what the kernels count in."""
    for number in (0, most):
        msgspec.convert({**document, key: number}, wire)
    for number in (-1, most + 1, 0.5, "1", True):
        with pytest.raises(msgspec.ValidationError, match=rf"at `\$\.{key}`"):
            msgspec.convert({**document, key: number}, wire)


@pytest.mark.parametrize("key", ["offlineCpus", "overlappingCpus", "isolatedCpus", "nohzFullCpus"])
def test_cpus_are_below_the_limit(key):
    document = {"numaNodes": [NODE]}
    msgspec.convert({**document, key: [0, CPU_LIMIT - 1]}, MachineWire)
    for number in (-1, CPU_LIMIT):
        with pytest.raises(msgspec.ValidationError, match=rf"at `\$\.{key}\[1\]`"):
            msgspec.convert({**document, key: [0, number]}, MachineWire)


@pytest.mark.parametrize(
    ("wire", "document", "message"),
    [
        (MachineWire, {}, "required field `numaNodes`"),
        (NumaNodeWire, {"id": 0, "memory": 0}, "required field `cores`"),
        (CoreWire, {"cpus": [0]}, "required field `socket`"),
        (PciDeviceWire, {}, "required field `address`"),
        (NumaNodeWire, {**NODE, "memoryKind": "nvram"}, "Invalid enum value 'nvram'"),
        (NumaNodeWire, {**NODE, "hugepages": {"2Mi": -1}}, ">= 0"),
        (PciDeviceWire, {"address": "a", "buses": [1]}, "length 2"),
    ],
)
def test_what_is_missing_or_of_another_shape_is_refused(wire, document, message):
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert(document, wire)
