"""The readers of what others wrote, each as a function of a text, with the expressions it uses.

    python -m checks.readers NAME < SHAPES.json

Reads texts of the shapes on standard input, each of several lengths, between two marks that
valgrind's callgrind is told to look for.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from alignup.claims.selectors import syntax
from alignup.claims.selectors.syntax import CompileError, parse
from alignup.errors import AlignupError
from alignup.kubelet import log, messages
from alignup.kubelet.log import read_log
from alignup.kubelet.node_resource_topology.report import decode_report
from alignup.kubernetes import config_documents, pod_documents, quantity, recognition
from alignup.kubernetes.config_documents import read_configuration
from alignup.kubernetes.pod_documents import read_pod_documents
from alignup.kubernetes.quantity import parse_quantity
from alignup.machine import cpuset, hwloc_xml, load, pci_devices
from alignup.machine.cpuset import CPUSet
from alignup.machine.hwloc_xml import machine_from_hwloc_xml
from alignup.machine.pasted import devices, read
from alignup.machine.pasted.read import read_pasted
from alignup.machine.pci_devices import PciSelector
from alignup.text import documents, json_text, yaml_reader
from checks.repeated_text import Shape, shapes_of_module

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

LENGTHS = (1 << 14, 1 << 16, 1 << 17)


class Reader(NamedTuple):
    """A reader of texts."""

    read: Callable[[str], object]
    modules: tuple[ModuleType, ...]
    own_shapes: tuple[Shape, ...] = ()
    """What its grammar repeats beyond what expressions tell."""

    def shapes(self) -> list[Shape]:
        """Return all shapes of its texts."""
        found = [shape for module in self.modules for shape in shapes_of_module(module)]
        return list(dict.fromkeys((*self.own_shapes, *found)))


def _log(text: str) -> object:
    return read_log([line.encode() for line in text.splitlines()], "a log")


_YAML = (
    Shape("", "a: b\n---\n"),
    Shape("", "- "),
    Shape("", "- a\n"),
    Shape("", "? "),
    Shape("", "["),
    Shape("", "{a: "),
    Shape("a: '", "''"),
    Shape('a: "', "\\n"),
    Shape("a: |\n", " b\n"),
    Shape("a: ", "b "),
    Shape("# ", "c"),
    Shape("a: &a b\nc: [", "*a, "),
    Shape("a: ", "1"),
    Shape("a: ", "1:"),
    Shape("a: ", "1_"),
    Shape("", "a\n"),
)
_JSON = (
    Shape("[", "1,"),
    Shape('{"kind": "List", "items": [', '{"kind": "Pod"},'),
    Shape("[", "["),
    Shape('{"a": "', "\\u0041"),
    Shape("", '{"kind": "Pod"}\n'),
    Shape("[", "1e"),
)
_HINTS = "{NUMANodeAffinity:01 Preferred:true} "
_LINE = (
    "I1127 10:00:00.000000       1 topology_manager.go:100] "
    '"TopologyHints" pod="a/b" containerName="c" '
)
_LOG = (
    Shape(f'{_LINE}hints="map[cpu:[', _HINTS),
    Shape(f"{_LINE}hints=", '{"cpu":[]}'),
    Shape(f"{_LINE}hints=", "a"),
    Shape(f'{_LINE}hints="map[', "cpu:[] "),
    Shape(_LINE, "a=b "),
    Shape(_LINE, 'a="b" '),
    Shape("", f'{_LINE}hints="map[cpu:[{_HINTS}]]"\n'),
    Shape("", 'E1127 10:00:00.000000       1 kubelet.go:1] "command failed" err="a"\n'),
)
_PASTED = (
    Shape("", "\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-3\t0\n"),
    Shape("\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n", "GPU0\t X \tSYS\t0-3\t0\n"),
    Shape("", "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"),
    Shape("Machine (1GB total)\n", "  PU L#0 (P#0)\n"),
    Shape("Machine (1GB total)\n", "  Package L#0 + NUMANode L#0 (P#0 1GB)\n"),
    Shape("available: 2 nodes (0-1)\nnode 0 cpus: ", "1 "),
    Shape("available: 2 nodes (0-1)\nnode 0 cpus: 0\n", "1 2\n"),
    Shape("node distances:\nnode ", "  0 "),
    Shape("NUMA node0 CPU(s): ", "1,"),
    Shape("CPU(s): ", "9"),
)
_CEL = (
    Shape("a", " && a"),
    Shape("", "("),
    Shape("", "!"),
    Shape("", "-"),
    Shape("a", ".b"),
    Shape("a", "[0]"),
    Shape("[", "a,"),
    Shape("{", '"a":1,'),
    Shape('"', "a"),
    Shape("'", "\\n"),
    Shape("", "1"),
    Shape("a ? ", "a : a ? "),
    Shape("a", ".all(b, b"),
    Shape("//", "a"),
)


READERS = {
    "log": Reader(_log, (log, messages), _LOG),
    "pasted": Reader(lambda text: read_pasted(text, "a text"), (read, devices), _PASTED),
    "manifest": Reader(
        lambda text: read_pod_documents(text, "a text"),
        (recognition, pod_documents, documents, yaml_reader, json_text),
        (*_YAML, *_JSON),
    ),
    "configuration": Reader(
        lambda text: read_configuration(text, "a text"),
        (config_documents, recognition),
        (
            *_YAML,
            Shape("[settings.kubernetes]\n", "a = 1\n"),
            Shape("[", "a."),
            Shape("kind: KubeletConfiguration\nreservedSystemCPUs: ", "1,"),
        ),
    ),
    "report": Reader(lambda text: decode_report(text.encode()), (json_text,), _JSON),
    "selector": Reader(parse, (syntax,), _CEL),
    "cpus": Reader(CPUSet.parse, (cpuset,), (Shape("1", ",2"), Shape("", "1"), Shape("0", "-1"))),
    "quantity": Reader(
        lambda text: parse_quantity(text, "a"), (quantity,), (Shape("", "1"), Shape("1.", "0"))
    ),
    "devices": Reader(PciSelector.parse, (pci_devices,), (Shape("a=10de:", "0"),)),
    "hwloc": Reader(
        lambda text: machine_from_hwloc_xml(text.encode()),
        (hwloc_xml, load),
        (
            Shape('<topology version="2.0">', '<object type="PU" os_index="0"/>'),
            Shape('<topology version="2.0">', '<object type="Group">'),
            Shape('<topology version="2.0"><object type="Machine" cpuset="', "0x00000001,"),
        ),
    ),
}


def main(name: str) -> None:
    """Read texts of the shapes on standard input, each between two marks."""
    reader = READERS[name]
    warnings.simplefilter("ignore")
    gc.disable()  # whose passes do not follow the length of a text
    for shape in (Shape(*parts) for parts in json.load(sys.stdin)):
        # what is imported and compiled once is so now
        _read(reader, shape.text(LENGTHS[0]))
        for length in LENGTHS:
            text = shape.text(length)
            os.getppid()
            _read(reader, text)
            os.getppid()


def _read(reader: Reader, text: str) -> None:
    with suppress(AlignupError, CompileError):
        reader.read(text)


if __name__ == "__main__":
    main(sys.argv[1])
