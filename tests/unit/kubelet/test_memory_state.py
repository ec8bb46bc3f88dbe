"""memory_manager_state in both versions."""

from __future__ import annotations

import json

import pytest

from alignup.errors import InputError
from alignup.kubelet.checkpoints import MemoryTable, read_memory_state
from alignup.topology_manager.admission import MemoryBlock

TABLE = {"total": 100, "systemReserved": 10, "allocatable": 90, "reserved": 30, "free": 60}
BLOCK = {"numaAffinity": [0, 1], "type": "memory", "size": 30}


def text(**fields):
    node = {"numberOfAssignments": 1, "memoryMap": {"memory": TABLE}, "cells": [0, 1]}
    document = {
        "policyName": "Static",
        "machineState": {"0": node, "1": node},
        "checksum": 0,
        **fields,
    }
    return json.dumps(document).encode()


def test_nodes_and_blocks_are_read():
    state = read_memory_state(text(entries={"u": {"c": [BLOCK]}}))
    assert state.nodes[1].table("memory") == MemoryTable(100, 10, 90, 30, 60)
    assert state.nodes[1].cells == (0, 1)
    assert state.nodes[1].table("hugepages-2Mi") == MemoryTable()
    assert state.entries == {"u": {"c": (MemoryBlock((0, 1), "memory", 30),)}}
    assert (state.types, state.version) == (("memory",), 1)


def test_version_2_has_memory_of_pods():
    fields = {"entries": {"u": {"c": [BLOCK]}}, "podEntries": {"u": {"memoryBlocks": [BLOCK]}}}
    state = read_memory_state(text(**fields))
    assert (state.version, state.pods) == (2, {"u": (MemoryBlock((0, 1), "memory", 30),)})
    assert read_memory_state(text(**fields, checksum=state.expected_checksum)).is_intact


def test_the_file_of_policy_none_has_no_nodes():
    assert read_memory_state(b'{"policyName":"None","machineState":{},"checksum":0}').nodes == {}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b" \n", "the file is empty"),
        (text()[:-20], "JSON of a memory manager's state"),
        (text(machineState={"one": {}}), "ids of NUMA nodes, got 'one'"),
        (text(machineState={"0": {"memoryMap": {"memory": {"free": -1}}}}), "free"),
        (text(entries={"u": {"c": [{"size": 2**64}]}}), "size"),
        (text(entries={"u": {"c": [{"numaAffinity": ["0"]}]}}), "numaAffinity"),
    ],
)
def test_damage_is_one_line(data, message):
    with pytest.raises(InputError, match=message) as caught:
        read_memory_state(data)
    assert "\n" not in str(caught.value)
