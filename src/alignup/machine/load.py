"""Reads the machine that a user names by `--machine`, and its devices.

The name is one of the catalog, or that of a folder or a file. `LoadedMachine`
(`device_inventory.py`) has both. Each other kind of source has a module that reads it, which is
imported when it is needed: a command on this machine should start at once. Devices come from the
same source, an inventory, PCI devices or NVIDIA's driver; here it is decided which of them counts
where several describe a resource.

The catalog comes with the package: `catalog_data/<name>.json`. An entry has the keys of a scenario
(`machine`, `devices`, `preferredSets`, `kubelet`), and maybe `pods`; for readers of the file a
`description`, and `pcieTree`: who published where the devices are in the PCIe tree, or that nobody
has. `devicesVary`: servers of this kind have other cards, too.
"""

from __future__ import annotations

import os  # evaluated by whoever asks for the types of the options
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping  # as above
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from alignup.errors import InputError, system_reason
from alignup.machine.device_inventory import LoadedMachine, decode_inventory, near_cpu_nodes
from alignup.machine.machine import Machine, machine_from_dict
from alignup.records import replace

if TYPE_CHECKING:
    from pathlib import Path

# The source that is the machine at hand.
HERE: Final = "/"

_MAX_FILE: Final = 16 << 20
# Of a text with what programs print, which is looked at line by line for many forms.
_MAX_PASTED: Final = 4 << 20
_HEAD: Final = 512
# The start of JSON; that of `lscpu -J` is a text as lscpu prints it, and a prompt can start with a
# bracket.
_JSON: Final = re.compile(rb'\s*(?:\{(?!\s*"(?:lscpu|cpus)")|\[\s*[\[{"\d\]])')
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"

_SUFFIX: Final = ".json"

# importlib.resources and pathlib take longer to import than everything here takes
_FOLDER: Final = os.path.join(os.path.dirname(__file__), "catalog_data")  # noqa: PTH118, PTH120


def read_machine(source: str | os.PathLike[str]) -> Machine:
    """Return the machine that a name, a folder or a file describes: what `--machine` takes.

    Devices and a configuration that came with it are not part of the record; `Node.from_dict` keeps
    them. A `Node` of the record that is given no devices warns of those that pods ask for, where
    the source tells of none, or of others (`Machine.knows_devices`).

    Args:
        source: the name of a machine of the catalog, the root of a sysfs tree (`/`: this machine),
            or a file: a snapshot, hwloc's XML, or JSON as `alignup machine --json` prints it.

    Raises:
        InputError: there is no such machine, or it cannot be read.

    Examples:
        >>> from alignup import read_machine
        >>> read_machine("dgx-h100")
        <Machine of 2 NUMA nodes, 224 CPUs, 2097152 MiB>
    """
    loaded = load_machine(str(source))
    if loaded.devices:
        return replace(loaded.machine, knows_devices=False)
    return loaded.machine


def machines() -> tuple[str, ...]:
    """Return the names of the machines in the catalog, which `read_machine` takes.

    Examples:
        >>> "dgx-h100" in machines()
        True
    """
    return tuple(catalog_entries())


def load_machine(source: str, node_name: str | None = None) -> LoadedMachine:
    """Return the machine that `source` names, with what came with it.

    It is, in this order: the name of a machine of the catalog (`./name` is a file), a directory
    with `sys` and `proc` in it, or a file: a snapshot, hwloc's XML, JSON, which is a machine as
    `alignup machine --json` prints it, or anything that has one under the key `machine`, such as a
    scenario, or a text with what programs print of a machine (`alignup.machine.pasted`).
    `node_name` chooses one of several in an archive.

    Raises:
        InputError: there is no such machine, or it cannot be read.
    """
    if os.sep not in source and source in catalog_entries():
        entry = catalog_entries()[source]
        if entry.devices_vary:
            return replace(entry, machine=replace(entry.machine, knows_devices=False))
        return entry

    from pathlib import Path  # noqa: PLC0415  # slow to import

    path = Path(source)
    if path.is_dir() and (path / "sys").is_dir():
        from alignup.machine.sysfs.machine import read_sysfs  # noqa: PLC0415  # see the module

        return LoadedMachine(read_sysfs(path))

    if not path.exists():
        raise _unknown_machine(source, "a file, a directory or one of")

    if path.is_dir():
        return _load_archive(path, node_name)
    return _load_file(path, source, node_name)


def _unknown_machine(name: str, expected: str, where: str = "") -> InputError:
    """Return the error that no machine has this name, which may be meant for one of the catalog."""
    from alignup.text.known_keys import unknown_keys  # noqa: PLC0415  # an error only

    entries = catalog_entries()
    longer = [entry for entry in entries if name and entry.startswith(name)]
    if longer:
        nearest = longer[0]
    else:
        _, nearest = next(unknown_keys([name], entries))

    message = f"unknown machine {name!r:.80}{where}: expected {expected} {', '.join(entries)}"
    if nearest:
        message += f"; did you mean {nearest}?"
    return InputError(message)


def _load_archive(path: Path, node_name: str | None) -> LoadedMachine:
    from alignup.machine.archive import load_snapshot  # noqa: PLC0415  # see the module
    from alignup.machine.sysfs.machine import describe  # noqa: PLC0415  # see the module

    return LoadedMachine(describe(load_snapshot(path, node_name)))


def _load_file(path: Path, source: str, node_name: str | None) -> LoadedMachine:
    """Return the machine in a file, by what its content looks like."""
    try:
        with path.open("rb") as file:
            # a device such as /dev/zero has no size, and no end
            data = file.read(_MAX_FILE + 1)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise InputError(f"cannot read the machine at {source}: {system_reason(error)}") from error

    from alignup.machine.archive import is_archive  # noqa: PLC0415  # see the module

    if is_archive(data[:_HEAD]):
        return _load_archive(path, node_name)
    if len(data) > _MAX_FILE:
        raise InputError.at(source, f"a machine of up to {_MAX_FILE} bytes", max(size, len(data)))

    from alignup.text.documents import utf8_of  # noqa: PLC0415  # a file only

    text = utf8_of(data).removeprefix(_BYTE_ORDER_MARK)
    if text.lstrip()[:1] == b"<":
        # see the module
        from alignup.machine.hwloc_xml import machine_from_hwloc_xml  # noqa: PLC0415

        machine = machine_from_hwloc_xml(text, source)
        return LoadedMachine(replace(machine, knows_devices=False))

    if _JSON.match(text):
        return _load_json(text, source)

    from alignup.machine.pasted.read import read_pasted  # noqa: PLC0415  # see the module

    if len(text) > _MAX_PASTED:
        raise InputError.at(source, f"what programs print in up to {_MAX_PASTED} bytes", len(text))
    return read_pasted(text.decode("utf-8", "replace"), source)


def _load_json(text: bytes, source: str) -> LoadedMachine:
    """Return the machine in a JSON document, and its devices."""
    from alignup.text.json_text import decode_json  # noqa: PLC0415  # see the module

    document: Any = decode_json(text, "the JSON of a machine", source)
    if not isinstance(document, dict) or not {"machine", "numaNodes"} & document.keys():
        actual = reprlib.repr(document)[:40]
        if isinstance(document, dict):
            keys = ", ".join(map(repr, list(document)[:5]))
            actual = f"one with {keys or 'nothing in it'}"
        raise InputError(
            f"expected a mapping with 'numaNodes' or 'machine', got {actual} at {source}"
        )

    if "numaNodes" in document:
        return described_machine(document, source)
    return machine_with_devices_from_dict(document, source)


def described_machine(described: object, where: str = "machine") -> LoadedMachine:
    """Return the machine that a name of the catalog or a machine object describes.

    Args:
        described: a name, or an object as `Machine.from_dict` takes it, with any of `EXTRA_KEYS`.
        where: the name of the machine in errors.

    Raises:
        InputError: there is no machine of that name, or the object is not of its form.
    """
    if isinstance(described, str):
        if described not in catalog_entries():
            raise _unknown_machine(
                described, "a machine object, or one of the catalog:", f" at {where}"
            )

        return catalog_entries()[described]

    if not isinstance(described, Mapping):
        raise InputError.at(where, "a mapping", described)

    return LoadedMachine(machine_from_dict(described, where)).completed(described, f"{where}.")


def machine_with_devices_from_dict(data: Mapping[str, Any], source: str = "") -> LoadedMachine:
    """Return the machine under `machine`, with what is beside it.

    That is `devices`, `preferredSets`, `kubelet` and `pods`. All but `machine` may be missing or
    null. The first three are then those that come with the machine; devices of their own bring
    their own preferred sets, or none.

    Args:
        data: a decoded document; other keys are ignored.
        source: the name of the document in errors; empty: they name the place in it only.

    Raises:
        InputError: one of the parts is not of its form; see `described_machine`, `decode_inventory`
            and `decode_preferred_sets`.
    """
    prefix = f"{source}: " if source else ""
    loaded = described_machine(data["machine"], f"{prefix}machine").completed(data, prefix)
    if data.get("pods"):
        return replace(loaded, pods=tuple(data["pods"]))
    return loaded


# When NVIDIA's driver is asked for GPUs: never, only if nothing else describes them, or even then.
# "if there" is "if missing" for callers that did not ask for GPUs: if the machine has none, or its
# driver does not answer, the result has no GPUs, and that is no error.
AskDriver = Literal["never", "if there", "if missing", "always"]


def load_with_devices(
    source: str | Machine | LoadedMachine,
    *,
    devices: object = None,
    where: str = "devices",
    selectors: Iterable[str] = (),
    nvidia: AskDriver = "never",
    near_cpus: bool = False,
    node_name: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> LoadedMachine:
    """Return a machine with its devices.

    An inventory takes the place of all devices that come with the machine. Then PCI devices, and
    then the driver's GPUs, take the place of the devices of the same resource. The preferred sets
    of devices that are replaced are dropped.

    Args:
        source: a machine as `load_machine` takes it, or its record, with devices or without.
        devices: an inventory as `decode_inventory` takes it; None: the devices that come with the
            machine.
        where: the name of the inventory in errors.
        selectors: PCI devices of resources, as `PciSelector.parse` takes them.
        nvidia: whether to ask NVIDIA's driver, which knows the GPUs of the machine at hand only.
        near_cpus: whether devices near nodes without CPUs count as near the closest nodes with
            CPUs.
        node_name: the machine's, where an archive has several.
        tell: called with a sentence about GPUs that are left out; see "if there" of `AskDriver`.

    Raises:
        InputError: there is no such machine, a device is described wrongly, a selector selects
            nothing, or the driver does not answer.
    """
    if isinstance(source, str):
        loaded = load_machine(source, node_name)
    elif isinstance(source, Machine):
        loaded = LoadedMachine(source)
    else:
        loaded = source

    machine = loaded.machine
    if devices is not None:
        machine = replace(machine, knows_devices=True)
        loaded = replace(
            loaded,
            machine=machine,
            devices=decode_inventory(devices, machine, where),
            preferred_sets={},
        )

    pci_selectors = list(selectors)
    if pci_selectors:
        # seldom used
        from alignup.machine.pci_devices import PciSelector, devices_from_pci  # noqa: PLC0415

        loaded = loaded.with_devices(
            devices_from_pci(machine, map(PciSelector.parse, pci_selectors))
        )

    if nvidia != "never":
        loaded = _with_gpus(loaded, nvidia, tell)

    if near_cpus and loaded.devices:
        loaded = replace(loaded, devices=near_cpu_nodes(machine, loaded.devices))

    return loaded


def with_usual_devices(
    loaded: LoadedMachine, resources: Iterable[str], *, is_here: bool
) -> LoadedMachine:
    """Return a machine with the devices that a device plugin would offer there as some resources.

    Devices that it comes with stay. On the machine at hand NVIDIA's driver is asked for its GPUs,
    if it answers; other devices, and those of other machines, are PCI devices. Those near nodes
    without CPUs count as near the closest with.
    """
    # seldom used
    from alignup.machine.nvidia import GPU_RESOURCE  # noqa: PLC0415
    from alignup.machine.pci_devices import devices_from_pci, usual_selectors  # noqa: PLC0415

    names = list(resources)
    if is_here and GPU_RESOURCE in names:
        loaded = _with_gpus(loaded, "if there", lambda _: None)

    selectors = []
    for name in names:
        if name not in loaded.devices:
            selectors += usual_selectors(loaded.machine, name)

    loaded = loaded.with_devices(devices_from_pci(loaded.machine, selectors))
    return replace(loaded, devices=near_cpu_nodes(loaded.machine, loaded.devices))


def _with_gpus(loaded: LoadedMachine, ask: AskDriver, tell: Callable[[str], None]) -> LoadedMachine:
    """Return a machine with the GPUs that the driver knows, where it is to be asked for them."""
    # seldom used
    from alignup.machine.nvidia import GPU_RESOURCE, has_gpus, read_gpus  # noqa: PLC0415

    if ask != "always" and GPU_RESOURCE in loaded.devices:
        return loaded
    if ask == "if there" and not has_gpus(loaded.machine):
        return loaded

    try:
        gpus = read_gpus(loaded.machine)
    except InputError as error:
        if ask != "if there":
            raise
        tell(f"the NVIDIA GPUs of this machine are left out: {error}")
        return loaded

    return loaded.with_devices(gpus.devices, gpus.preferred_sets)


class _Catalog(Mapping[str, LoadedMachine]):
    """Machines by name, each read when it is looked up."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)

    def __repr__(self) -> str:
        return f"<catalog of machines: {', '.join(self)}>"

    def __getitem__(self, name: str) -> LoadedMachine:
        if name not in self._names:
            raise KeyError(name)
        return _read_entry(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@cache
def _read_entry(name: str) -> LoadedMachine:
    """Return the entry of a name that there is."""
    import msgspec  # noqa: PLC0415  # slow to import, and not needed for the names

    # see `_FOLDER`
    with open(os.path.join(_FOLDER, name + _SUFFIX), "rb") as file:  # noqa: PTH118, PTH123
        entry = msgspec.json.decode(file.read())

    loaded = machine_with_devices_from_dict(entry, name)
    return replace(loaded, devices_vary=bool(entry.get("devicesVary")))


@cache
def catalog_entries() -> Mapping[str, LoadedMachine]:
    """Return the catalog, sorted by name; to look up a name that is not there is a `KeyError`."""
    files = sorted(os.listdir(_FOLDER))  # noqa: PTH208  # see `_FOLDER`
    return _Catalog(name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX))
