"""A machine with its devices."""

from __future__ import annotations

from dataclasses import replace

from alignup.machine.device_inventory import Device, LoadedMachine
from alignup.machine.machine import Core, Machine, NumaNode

MACHINE = Machine((NumaNode(0, 1, (Core((0,), 0),)),))


def test_sets_go_with_their_devices():
    """Those of other resources are kept."""
    loaded = LoadedMachine(MACHINE, {"a": (), "b": ()}, {"a": ((),), "b": ((),)})
    assert loaded.with_devices({"a": ()}).preferred_sets == {"b": ((),)}
    assert replace(loaded, devices={}).with_devices({"c": ()}, {"c": ()}).preferred_sets == {
        "a": ((),),
        "b": ((),),
        "c": (),
    }


def test_a_document_completes_what_it_says_itself():
    """Devices without sets drop those of the machine's devices; what is null or missing is kept."""
    loaded = LoadedMachine(
        MACHINE, {"a": (Device("x", None),)}, {"a": (("x",),)}, {"cpuManagerPolicy": "none"}
    )
    assert loaded.completed({"devices": None, "other": 3}) == loaded
    own = loaded.completed({"devices": {"b": [{"id": "y"}]}})
    assert own == replace(loaded, devices={"b": (Device("y", None),)}, preferred_sets={})
    assert loaded.completed({"preferredSets": {}, "kubelet": {}}) == replace(
        loaded, preferred_sets={}, kubelet={}
    )
