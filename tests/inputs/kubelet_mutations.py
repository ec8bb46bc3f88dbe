"""Makes mutated files of a kubelet's node, and reads them."""

from __future__ import annotations

import contextlib
import json

from alignup.errors import InputError
from alignup.kubelet.check import check_node
from alignup.kubelet.layout import (
    ALLOCATABLE,
    CONFIG,
    CPU_STATE,
    DEVICE_CHECKPOINT,
    LIST,
    MEMORY_STATE,
    NODE,
    PODS,
    ArchiveFiles,
)
from alignup.kubelet.read import machine_of, make_node, read_records
from inputs.kubelet_files import EXAMPLE, guaranteed, signed
from inputs.mutation import as_json, mutated_bytes, mutated_document

__all__ = ["a_kubelet_node", "read_node"]

FILES = ArchiveFiles(EXAMPLE / "root.tar.xz")
MACHINE = machine_of(FILES)
STATE = {CPU_STATE: "cpu", MEMORY_STATE: "memory", DEVICE_CHECKPOINT: "devices"}
PATHS = (*STATE, *STATE, CONFIG, LIST, ALLOCATABLE, PODS, NODE)
NODE_OBJECT = {
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"nodeInfo": {"kubeletVersion": "v1.36.3"}},
}


class HeldFiles:
    """The example's files, some of them changed."""

    source = "t"
    kernel = FILES.kernel
    kubelet = None

    def __init__(self, changed):
        self.changed = changed

    def read(self, path):
        if path in self.changed:
            return self.changed[path]
        return FILES.read(path)

    def names(self, _path):
        return ()

    def place(self, path):
        return path


def a_kubelet_node(rng):
    """Return the files of a node, one to three of which are mutated.

    Most checkpoints have a checksum that fits.
    """
    changed = {}
    for path in rng.sample(PATHS, rng.randint(1, 3)):
        data = FILES.read(path)
        if rng.random() < 0.05:
            changed[path] = None
        elif rng.random() < 0.15 and data:
            changed[path] = mutated_bytes(data, rng)
        else:
            document = mutated_document(NODE_OBJECT if path == NODE else json.loads(data), rng)
            changed[path] = as_json(document, rng)
            if path in STATE and rng.random() < 0.8 and isinstance(document, dict):
                with contextlib.suppress(InputError, ValueError):
                    changed[path] = signed(document, STATE[path]).encode()

    return HeldFiles(changed)


def read_node(files):
    """Check the node, read it, admit a pod, and remove all."""
    check_node(files, {})
    node = make_node(read_records(files, {}), MACHINE).node
    node.admit(guaranteed("new", (1, 1)))
    for pod in node.pods:
        node.remove(pod.uid)
