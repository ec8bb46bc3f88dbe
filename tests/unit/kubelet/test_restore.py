"""What state files say is put into a node's providers as they say it."""

from __future__ import annotations

import json

import pytest

from alignup.kubelet.checkpoints import read_memory_state
from alignup.kubelet.read import restored_memory

GI = 1 << 30


def block(size: int, *nodes: int) -> dict[str, object]:
    return {"numaAffinity": list(nodes), "type": "memory", "size": size}


@pytest.mark.parametrize("order", [("wide", "one"), ("one", "wide")])
def test_memory_of_one_node_is_dealt_out_before_that_of_several(order):
    """Only the first tells where its bytes are.

    The others have what is left there, whatever the order in the file.
    """
    table = {"total": 8 * GI, "systemReserved": 0, "allocatable": 8 * GI}
    blocks = {"wide": [block(2 * GI, 0, 1)], "one": [block(2 * GI, 0)]}
    wire = {
        "policyName": "Static",
        "machineState": {
            str(node): {
                "numberOfAssignments": count,
                "memoryMap": {
                    "memory": {**table, "reserved": reserved * GI, "free": (8 - reserved) * GI}
                },
                "cells": [0, 1],
            }
            for node, (count, reserved) in enumerate(((2, 3), (1, 1)))
        },
        "entries": {"u": {name: blocks[name] for name in order}},
    }

    restored = restored_memory(read_memory_state(json.dumps(wire).encode()), (0, 1), {})
    assert restored.holdings == {
        ("u", "one"): {"memory": {0: 2 * GI}},
        ("u", "wide"): {"memory": {0: GI, 1: GI}},
    }


def test_a_pod_that_has_memory_as_a_whole_is_one_holding():
    """Its containers' blocks are parts of it, and not counted on their own."""
    table = {
        "total": 8 * GI,
        "systemReserved": 0,
        "allocatable": 8 * GI,
        "reserved": 3 * GI,
        "free": 5 * GI,
    }
    data = {
        "policyName": "Static",
        "machineState": {
            "0": {"numberOfAssignments": 1, "memoryMap": {"memory": table}, "cells": [0]}
        },
        "entries": {"u": {"a": [block(GI, 0)], "b": [block(2 * GI, 0)]}},
        "podEntries": {"u": {"memoryBlocks": [block(3 * GI, 0)]}},
    }

    restored = restored_memory(read_memory_state(json.dumps(data).encode()), (0,), {})
    assert restored.holdings == {("u", ""): {"memory": {0: 3 * GI}}}
    assert restored.more_users == [0]
