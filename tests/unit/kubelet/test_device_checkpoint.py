"""kubelet_internal_checkpoint."""

from __future__ import annotations

import json

import pytest

from alignup.errors import InputError
from alignup.kubelet.checkpoints import read_device_checkpoint


def text(entry=None, **fields):
    entries = []
    if entry:
        names = {"PodUID": "u", "ContainerName": "c", "ResourceName": "r"}
        entries.append({**names, "AllocResp": "Cg==", **entry})

    data = {"PodDeviceEntries": entries, "RegisteredDevices": {"r": ["b", "a"], "s": None}}
    return json.dumps({"Data": data, "Checksum": 1, **fields}).encode()


def test_devices_are_grouped_by_numa_node():
    """A device near several nodes is in several groups, and counts once."""
    checkpoint = read_device_checkpoint(
        text({"DeviceIDs": {"0": ["b", "a"], "1": ["a"], "-1": None}})
    )
    (entry,) = checkpoint.entries
    assert entry.devices == {0: ("b", "a"), 1: ("a",), -1: ()}
    assert (entry.ids, entry.response) == (("a", "b"), b"\n")
    assert checkpoint.registered == {"r": ("b", "a"), "s": ()}
    assert not checkpoint.is_intact


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"{}", "the field 'Data', which is missing"),
        (text({"DeviceIDs": {"x": []}}), "ids of NUMA nodes, got 'x'"),
        (text({"DeviceIDs": ["a"]}), "DeviceIDs"),
        (text({"AllocResp": "=="}), "in kubelet_internal_checkpoint"),
    ],
)
def test_damage_is_one_line(data, message):
    with pytest.raises(InputError, match=message) as caught:
        read_device_checkpoint(data)
    assert "\n" not in str(caught.value)
