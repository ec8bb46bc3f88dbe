"""The kubelet's checksums, against files that a kubelet has written."""

from __future__ import annotations

import json

import pytest

from alignup.kubelet.checkpoints import (
    checksum_of,
    go_text,
    read_cpu_state,
    read_device_checkpoint,
    read_memory_state,
)
from alignup.kubelet.layout import CPU_STATE, DEVICE_CHECKPOINT, MEMORY_STATE, ArchiveFiles
from inputs.kubelet_files import EXAMPLE

FILES = ArchiveFiles(EXAMPLE / "root.tar.xz")


@pytest.mark.parametrize(
    ("text", "expected"), [("", 0x811C9DC5), ("a", 0xE40C292C), ("foobar", 0xBF9CF968)]
)
def test_fnv_1a_of_known_texts(text, expected):
    """The vectors of the algorithm's authors."""
    assert checksum_of(text) == expected


def test_maps_are_sorted_and_nil_is_told_apart():
    assert go_text({10: "b", 9: "a"}) == "map[9:a 10:b]"
    assert go_text({}) == "map[]"
    assert go_text(None) == "<nil>"
    assert go_text([1, 2]) == "[1 2]"


@pytest.mark.parametrize(
    ("path", "read"),
    [
        (CPU_STATE, read_cpu_state),
        (MEMORY_STATE, read_memory_state),
        (DEVICE_CHECKPOINT, read_device_checkpoint),
    ],
)
def test_files_of_a_kubelet_are_intact_and_any_change_is_seen(path, read):
    data = FILES.read(path)
    assert read(data).is_intact
    document = json.loads(data)
    key = "Checksum" if "Checksum" in document else "checksum"
    document[key] += 1
    assert not read(json.dumps(document).encode()).is_intact


def test_devices_that_no_pod_holds_are_nil_in_the_sum():
    """A kubelet without pods writes null, which Go prints unlike an empty list."""
    empty, null = (
        read_device_checkpoint(
            json.dumps(
                {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 0}
            ).encode()
        )
        for entries in ([], None)
    )
    assert empty.expected_checksum != null.expected_checksum
