"""Which devices a process sees, by the word of whoever chose them, and how its children are told.

A runtime numbers the devices that it may open, and shows those of them that its variables list.
What it may open is told by its driver, by the launcher's variables, or by the device files, in this
order. `VARIABLES` is the whole table of what the runtimes read.

Nothing of it was tried on hardware but CUDA_VISIBLE_DEVICES, on one H200; the other rows are by the
documents and sources that stand beside them in `docs/questions/ranks.md`.
"""

from __future__ import annotations

import os
import re

from alignup.errors import InputError
from alignup.machine.device_inventory import partitions_of
from alignup.machine.machine import pci_place
from alignup.machine.sysfs.tree import PCI_FOLDER, DirectoryTree
from alignup.records import Record

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Final

    from alignup.machine.device_inventory import Device, LoadedMachine
    from alignup.machine.machine import Machine

# compiled when it is needed: startup counts
_PCI_ADDRESS: Final = (
    r"(?P<domain>[0-9a-fA-F]{4,8}):(?P<slot>[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])(?P<part>/\d+)?"
)
_UUID_PREFIXES: Final = ("GPU-", "MIG-")
_PREFIX_LENGTH: Final = 4
# Between the UUID of a GPU and the number of one of those that share it, in the ids of NVIDIA's
# device plugin.
_REPLICA: Final = "::"
_NVIDIA: Final = "nvidia.com/gpu"
_AMD: Final = "amd.com/gpu"
_GAUDI: Final = "habana.ai/gaudi"
_INTEL: Final = ("gpu.intel.com/i915", "gpu.intel.com/xe")

# By resource, the variable by which a runtime is told which GPUs it may see.
VISIBLE: Final = {_NVIDIA: "CUDA_VISIBLE_DEVICES", _AMD: "ROCR_VISIBLE_DEVICES"}
# By resource, the variables that its runtimes read, in the order in which they apply: each lists
# devices among those that the one before it has left. Of those in one group the first that is set,
# and not empty, counts.
VARIABLES: Final = {
    _NVIDIA: (("CUDA_VISIBLE_DEVICES",),),
    _AMD: (("ROCR_VISIBLE_DEVICES",), ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")),
    _GAUDI: (("HABANA_VISIBLE_MODULES",),),
    **dict.fromkeys(_INTEL, (("ZE_AFFINITY_MASK",),)),
}
# Those of runtimes of which no device is known here.
UNREAD: Final = ("ASCEND_RT_VISIBLE_DEVICES", "NEURON_RT_VISIBLE_CORES", "TPU_VISIBLE_CHIPS")
_GRANTS: Final = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
# What NVIDIA's container toolkit gave a container, which counts its GPUs from 0.
_CONTAINER: Final = "NVIDIA_VISIBLE_DEVICES"
_HIERARCHY: Final = "ZE_FLAT_DEVICE_HIERARCHY"
# What CUDA counts GPUs by: without it, by their speed (CUDA C++ Programming Guide 13).
_ORDER: Final = "CUDA_DEVICE_ORDER"
_BUS_ORDER: Final = "PCI_BUS_ID"
# What some variables say for all devices.
_ALL: Final = {"HABANA_VISIBLE_MODULES": ("all",), "ZE_AFFINITY_MASK": ("",)}
# A larger number is none of a device.
_LARGEST: Final = 999_999_999
_NVIDIA_FOLDER: Final = "proc/driver/nvidia/gpus"
# The first render node of the kernel's DRM.
_FIRST_RENDER_NODE: Final = 128


class Sight(Record):
    """The devices of a resource, and those of them that a process sees.

    Attributes:
        devices: all of the machine, in the order of the bus.
        seen: those that the process sees, in the order in which it sees them.
        reason: what hides the others, in words; empty: nothing does.
        numbered: the ids of those that its runtime numbers, before it reads its variables; empty:
            all, in their order.
        notes: what may surprise the user, in a sentence each.
        names: the ids, PCI addresses and UUIDs of those that it sees; empty: it sees all.
    """

    devices: tuple[Device, ...]
    seen: tuple[Device, ...]
    reason: str = ""
    numbered: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether the process sees all of them."""
        return len(self.seen) == len(self.devices)

    def is_one_rank_s(self, count: int) -> bool:
        """Return whether a launcher has left each rank just the devices that it asks for."""
        return len(self.seen) == count and not self.is_whole


class Rank(Record):
    """Which of how many ranks asks, and for how many devices; no rank: 0 of none.

    Attributes:
        is_certain: which devices it may use has to be certain.
    """

    rank: int = 0
    ranks: int = 0
    count: int = 1
    is_certain: bool = True


def launched_rank(environment: Mapping[str, str]) -> Rank:
    """Return which of how many ranks a process is, as its launcher says."""
    from alignup.host.launchers import local_rank  # noqa: PLC0415  # startup counts

    try:
        local = local_rank(environment)
    except InputError:  # no launcher
        return Rank()
    return Rank(local.rank, local.ranks)


class HostFiles:
    """The kernel's files about devices, and the device files, beneath a root."""

    def __init__(self, root: str = "/") -> None:
        self._tree = DirectoryTree(root)
        self._root = root

    def read(self, path: str) -> str:
        """Return the text of a file; empty: there is none."""
        return (self._tree.read(path) or "").strip()

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; none if there is no such folder."""
        return sorted(self._tree.names(path))

    def opens(self, path: str) -> bool:
        """Return whether this process may open a device file.

        The kernel asks the device cgroup too. To open it would start the device.
        """
        return os.access(os.path.join(self._root, path), os.R_OK | os.W_OK)  # noqa: PTH118


def runtime_resource(resource: str) -> str:
    """Return the resource of `VARIABLES` that has the same devices; empty: there is none.

    NVIDIA's device plugin has further names for them, such as nvidia.com/gpu.shared and
    nvidia.com/mig-1g.10gb.
    """
    if resource in VARIABLES:
        return resource
    return _NVIDIA if resource.startswith("nvidia.com/") else ""


def listed_devices(
    resource: str, environment: Mapping[str, str]
) -> tuple[tuple[str, ...] | None, str]:
    """Return what can be told of variables where no device is known.

    Returns:
        The UUIDs that are listed, none if all devices are hidden; or None: nothing can be told, or
        nothing is listed. And the variable with what it says; empty: none is set.
    """
    for group in VARIABLES.get(resource, ()):
        for variable in group:
            text = environment.get(variable)
            if text is None or (not text and len(group) > 1):
                continue
            if text.strip().lower() in _ALL.get(variable, ()):
                continue

            words = f"{variable} ({text!r:.80})"
            entries = text.split(",")
            if not entries[0].strip() or entries[0].strip().startswith("-"):
                return (), f"{words} hides all"
            if is_uuid(text):
                uuids = [entry for entry in entries if is_uuid(entry)]
                return tuple(uuids), f"{words} lists no others"
            return None, words

    return None, ""


def choice_of(devices: Iterable[Device], names: Iterable[str]) -> set[str] | None:
    """Return the ids of those of some devices that names name.

    None: the names are of other kinds, so that it cannot be told. `UUID::N` is a share of the GPU
    of this UUID, and a UUID may be cut short.
    """
    wanted = set(names)
    uuids = {
        prefix: tuple(whole_gpu(name) for name in wanted if name.startswith(prefix))
        for prefix in _UUID_PREFIXES
    }
    has_addresses = any(map(is_pci, wanted))
    cards_of_parts = {name.partition("/")[0] for name in wanted if "/" in name}
    chosen: set[str] = set()
    can_tell = False
    for device in devices:
        address = _address(device)
        same_kind = uuids.get(device.id[:_PREFIX_LENGTH])
        if device.id in wanted:
            is_named = True
        elif same_kind:
            is_named = device.id.startswith(same_kind)
        elif address and has_addresses:
            # of a card of which partitions are named, no others are
            is_other_part = "/" in device.id and address in cards_of_parts
            is_named = address in wanted and not is_other_part
        else:
            continue

        can_tell = True
        if is_named:
            chosen.add(device.id)

    return chosen if can_tell else None


def unread_variables(environment: Mapping[str, str]) -> list[str]:
    """Return a sentence for each variable that chooses devices and is not read."""
    return [
        f"{name} ({environment[name]!r:.80}) is not read: CPUs may be far from the devices that it "
        "lists"
        for name in UNREAD
        if name in environment
    ]


def sight(
    loaded: LoadedMachine,
    resource: str,
    environment: Mapping[str, str],
    rank: Rank = Rank(),  # noqa: B008  # immutable
    files: HostFiles | None = None,
) -> Sight:
    """Return the devices of a resource, and those that a process sees.

    Args:
        loaded: the machine with its devices, as this process knows them.
        resource: the resource.
        environment: of the process.
        rank: which rank asks.
        files: the kernel's files of the machine at hand; None: it is another machine, of which a
            process sees what the variables list.

    Raises:
        InputError: nothing tells which of the machine's GPUs the process may use.
    """
    return _Seer(loaded, resource, environment, rank, files).sight()


class _Seer:
    """Looks for the devices of one resource; see `sight` for the arguments."""

    def __init__(
        self,
        loaded: LoadedMachine,
        resource: str,
        environment: Mapping[str, str],
        rank: Rank,
        files: HostFiles | None,
    ) -> None:
        self._resource = resource
        self._environment = environment
        self._rank = rank
        self._files = files
        self._notes: list[str] = []
        # by PCI address, what `_information` has read
        self._information: dict[str, dict[str, str]] = {}

        # by PCI address, the PCI ids of the models
        self._models = {device.address: device.device for device in loaded.machine.pci_devices}

        driver_devices = tuple(loaded.devices.get(resource, ()))
        self._by_driver = not all(is_pci(device.id) for device in driver_devices)
        self._driver_devices = driver_devices
        self._devices = driver_devices
        if files is not None:
            self._devices = _with_hidden(driver_devices, loaded.machine, resource)
        if files is not None and resource in _INTEL:
            self._devices = self._tiles(self._devices, files)

    def sight(self) -> Sight:
        """Return what the process sees."""
        numbered, reason = self._numbered()
        seen = numbered
        for group in VARIABLES.get(self._resource, ()):
            variable = self._set_variable(group)
            if variable is None:
                continue

            before = seen
            text = self._environment[variable]
            seen, trouble = self._listed(variable, text, before, reason)
            if trouble or len(seen) < len(before):
                reason = f"{variable} ({text!r:.80}) {trouble or 'lists no others'}"

        numbered_ids = tuple(device.id for device in numbered)
        names = () if len(seen) == len(self._devices) else self._names(seen)
        return Sight(self._devices, tuple(seen), reason, numbered_ids, tuple(self._notes), names)

    def _names(self, devices: Iterable[Device]) -> tuple[str, ...]:
        """Return all names of some devices; a card of which a tile is seen is seen."""
        names: dict[str, None] = {}
        for device in devices:
            card, _, _ = device.id.partition("/")
            names |= dict.fromkeys((device.id, card, _address(device), self._uuid(device)))

        return tuple(name for name in names if name)

    def _set_variable(self, group: Sequence[str]) -> str | None:
        """Return the variable of a group that counts: an empty one hides all where it is alone."""
        for variable in group:
            if self._environment.get(variable) or (
                len(group) == 1 and variable in self._environment
            ):
                return variable

        return None

    def _listed(
        self, variable: str, text: str, devices: Sequence[Device], reason: str
    ) -> tuple[list[Device], str]:
        """Return the devices that a variable lists, and what is wrong where these are none.

        Args:
            variable: its name.
            text: what it says.
            devices: those that it chooses among.
            reason: what hides the others, in words; empty: nothing does.
        """
        if variable == "HABANA_VISIBLE_MODULES":
            return self._by_module(text, devices)
        if variable == "ZE_AFFINITY_MASK":
            return _by_mask(text, devices, self._environment.get(_HIERARCHY, ""))

        if self._resource == _NVIDIA and not is_uuid(text):
            # a number is a GPU's, or the first instance's of a GPU with MIG
            devices = list({device.pci or device.id: device for device in devices[::-1]}.values())
            devices.reverse()

        uuids = {device.id: self._uuid(device) for device in devices}
        readers: Mapping[str, _Reader] = {
            "ROCR_VISIBLE_DEVICES": _rocr_numbers,
            "HIP_VISIBLE_DEVICES": _hip_numbers,
        }
        reader = readers.get(variable, _hip_numbers if self._resource == _AMD else _cuda_numbers)
        numbers = reader(text, [uuids[device.id] for device in devices])
        listed = [devices[number] for number in numbers]
        if listed:
            if self._resource == _NVIDIA and not is_uuid(text):
                self._note_of_order(variable, text, devices)
            return listed, ""

        trouble = self._trouble(text, [uuid for uuid in uuids.values() if uuid])
        if trouble:
            return [], trouble
        if not reason:
            return [], f"begins with none of the {len(devices)} of the machine"
        return [], f"begins with none of the {len(devices)} that are left to it: {reason}"

    def _trouble(self, text: str, uuids: Sequence[str]) -> str:
        """Return in words why a list names no device; empty: it begins with one of no device."""
        name = text.partition(",")[0].strip()
        if not name or name.startswith("-"):
            return "hides all"
        if is_uuid(name) and not uuids:
            if self._resource == _AMD:
                return "names a UUID, and the kernel tells no unique_id: list numbers"
            return (
                "names a UUID, which only the driver can tell: install the extra `nvidia` "
                "(nvidia-ml-py), or list numbers"
            )

        names = [entry.strip() for entry in text.split(",")]
        if self._resource == _NVIDIA and len(set(names)) < len(names):
            return "names a device twice, and the driver then shows none"
        return ""

    def _uuid(self, device: Device) -> str:
        """Return the name by which a runtime knows a device besides its number; empty: unknown."""
        if is_uuid(device.id):
            return device.id
        if self._files is None:
            return ""

        address = _address(device)
        if self._resource == _AMD:
            unique_id = self._files.read(f"{PCI_FOLDER}/{address}/unique_id")
            return f"GPU-{unique_id}" if unique_id else ""

        return self._driver_line(self._files, address, "GPU UUID")

    def _numbered(self) -> tuple[list[Device], str]:
        """Return the devices that the runtime numbers, and what hides the others.

        Raises:
            InputError: nothing tells.
        """
        devices = list(self._devices)
        driver_devices = list(self._driver_devices)
        if self._by_driver or self._files is None or not devices:
            reason = "the driver lists no others" if len(driver_devices) < len(devices) else ""
            return driver_devices, reason

        if self._resource == _GAUDI:
            devices.sort(key=lambda device: self._module(device) or 0)

        opened = [device for device in devices if self._opens(device)]
        if 0 < len(opened) < len(devices):
            return opened, "it may open the device files of no others"

        grants = self._grants()
        if opened and (self._own_numbers() or not grants):
            return opened, ""
        if grants:
            return self._of_grants(grants)

        contained = self._of_container()
        if contained:
            return (
                contained,
                f"{_CONTAINER} ({self._environment[_CONTAINER]!r:.80}) names no others",
            )

        is_listed = any(self._set_variable(group) for group in VARIABLES.get(self._resource, ()))
        is_certain = is_listed or len(devices) <= self._rank.count or not self._rank.is_certain
        if self._resource == _NVIDIA and not is_certain:
            raise InputError(
                f"this machine has {len(devices)} {self._resource}, and nothing tells which of "
                "them this process may use: install the extra `nvidia` (nvidia-ml-py), which asks "
                f"the driver, or set CUDA_VISIBLE_DEVICES (looked for it, {' and '.join(_GRANTS)}, "
                "and /dev/nvidia0 to open)"
            )

        self._note_of_cgroup()
        return devices, ""

    def _note_of_cgroup(self) -> None:
        """Note that Slurm may have numbered the devices of a cgroup, and nothing tells."""
        is_slurm = any(name.startswith("SLURM_") for name in self._environment)
        own_numbers = self._own_numbers()
        if is_slurm and _is_first(own_numbers) and len(own_numbers) < len(self._devices):
            self._notes.append(
                f"{self._resource} {own_numbers} may be numbers within a device cgroup of Slurm, "
                "and nothing tells of which GPUs: the extra `nvidia` asks the driver"
            )

    def _note_of_order(self, variable: str, text: str, devices: Sequence[Device]) -> None:
        """Note that CUDA may count GPUs of several models otherwise than they are counted here."""
        is_by_bus = self._environment.get(_ORDER) == _BUS_ORDER
        models = {self._models.get(_address(device)) for device in devices} - {None}
        if self._files is not None and len(models) > 1 and not is_by_bus:
            self._notes.append(
                f"{variable} ({text!r:.80}) is read in the order of the PCI bus, and CUDA counts "
                f"GPUs of several models by their speed unless {_ORDER}={_BUS_ORDER}: CPUs may be "
                "far from the GPUs that it means"
            )

    def _own_numbers(self) -> list[int]:
        """Return the numbers that the first variable lists; none where it has other names."""
        variable = VARIABLES[self._resource][0][0]
        text = self._environment.get(variable, "")
        numbers = [_whole_number(name.strip()) for name in text.split(",")]
        return [] if None in numbers else [number for number in numbers if number is not None]

    def _of_container(self) -> list[Device]:
        """Return the GPUs that a container was given; none where that is not told one by one."""
        names = self._environment.get(_CONTAINER, "").split(",")
        if self._resource != _NVIDIA:
            return []

        uuids = [self._uuid(device) for device in self._devices]
        numbers = [_whole_number(name) for name in names]
        if None in numbers:
            numbers = [_number_of_uuid(name, uuids) for name in names]
        if not all(number is not None and number < len(uuids) for number in numbers):
            return []

        own_numbers = self._own_numbers()
        if any(number >= len(numbers) for number in own_numbers):
            return []  # the machine's numbers, outside of a container
        return [device for place, device in enumerate(self._devices) if place in numbers]

    def _grants(self) -> dict[str, list[Device]]:
        """Return by variable of Slurm the devices that it names by the numbers of their files."""
        if self._resource not in VISIBLE:
            return {}

        by_minor = {self._minor(device): device for device in self._devices}
        grants = {}
        for variable in _GRANTS:
            names = self._environment.get(variable, "").split(",")
            numbers = list(dict.fromkeys(map(_whole_number, names)))
            if all(number in by_minor for number in numbers):
                grants[variable] = [by_minor[number or 0] for number in numbers]

        return grants

    def _of_grants(self, grants: Mapping[str, list[Device]]) -> tuple[list[Device], str]:
        """Return the devices that a task of Slurm numbers, of those that its tasks have.

        Where a cgroup hides devices, the task counts its own from 0: with --gpus-per-task each has
        the next ones. Slurm may count those of a grant from 0 too, which then tells nothing.
        """
        own_numbers = self._own_numbers()
        if not own_numbers:
            variable, granted = next(iter(grants.items()))
            return granted, f"{variable} ({self._environment[variable]!r:.80}) names no others"
        if not _is_first(own_numbers):
            return list(self._devices), ""

        count = self._rank.count
        for variable, granted in grants.items():
            if {self._minor(device) for device in granted} == set(own_numbers):
                continue

            reason = f"{variable} ({self._environment[variable]!r:.80}) names no others"
            if len(own_numbers) == len(granted):
                return sorted(granted, key=self._devices.index), reason

            is_in_turn = len(own_numbers) == count and len(granted) == count * self._rank.ranks
            bind = self._environment.get("SLURM_GPU_BIND", "")
            if is_in_turn and not any(word in bind for word in ("map", "mask", "closest")):
                start = self._rank.rank * count
                return granted[start : start + count], reason

        self._note_of_cgroup()
        return list(self._devices), ""

    def _minor(self, device: Device) -> int:
        """Return the number of a GPU's device file; where the driver does not say, its place."""
        place = self._devices.index(device)
        if self._files is None or self._resource != _NVIDIA:
            return place

        minor = _whole_number(self._driver_line(self._files, _address(device), "Device Minor"))
        return place if minor is None else minor

    def _driver_line(self, files: HostFiles, address: str, name: str) -> str:
        """Return what NVIDIA's driver says of a GPU in a line; empty: nothing."""
        if address not in self._information:
            self._information[address] = _information(files, address)
        return self._information[address].get(name, "")

    def _opens(self, device: Device) -> bool:
        """Return whether this process may open a device."""
        files = self._files
        if files is None:
            return False
        if self._resource == _NVIDIA:
            return files.opens(f"dev/nvidia{self._minor(device)}")

        folder, beginning, kind = "dev/dri", "renderD", "drm"
        if self._resource == _GAUDI:
            folder, beginning, kind = "dev/accel", "accel", "accel"

        names = files.names(f"{PCI_FOLDER}/{_address(device)}/{kind}")
        return any(files.opens(f"{folder}/{name}") for name in names if name.startswith(beginning))

    def _module(self, device: Device) -> int | None:
        """Return the number of the module of a Gaudi; None: its driver does not say."""
        if self._files is None:
            return None

        return _whole_number(self._files.read(f"{PCI_FOLDER}/{_address(device)}/module_id"))

    def _by_module(self, text: str, devices: Sequence[Device]) -> tuple[list[Device], str]:
        """Return the devices of some modules of a machine with Gaudis."""
        if text.strip().lower() in _ALL["HABANA_VISIBLE_MODULES"]:
            return list(devices), ""

        modules = {self._module(device): device for device in devices}
        if None in modules:
            modules = dict(enumerate(devices))
            self._notes.append(
                "HABANA_VISIBLE_MODULES is read in the order of the PCI bus, since the driver does "
                "not tell the modules"
            )

        listed = []
        for name in text.split(","):
            number = _whole_number(name.strip())
            if number is None or number not in modules:
                break
            listed.append(modules[number])

        listed = list(dict.fromkeys(listed))
        return listed, "" if listed else "names no module of the machine"

    def _tiles(self, devices: Iterable[Device], files: HostFiles) -> tuple[Device, ...]:
        """Return the devices of Intel as Level Zero numbers them: cards, or the tiles of cards."""
        hierarchy = self._environment.get(_HIERARCHY, "").upper()
        tiles: list[Device] = []
        for device in devices:
            names = files.names(f"{PCI_FOLDER}/{_address(device)}")
            count = sum(bool(re.fullmatch(r"tile\d+", name)) for name in names)
            if hierarchy == "COMPOSITE" or count < 2:  # noqa: PLR2004
                tiles.append(device)
            else:
                tiles += partitions_of(device, count)

        return tuple(tiles)


def is_pci(text: str) -> bool:
    """Return whether a text is a PCI address, perhaps with the number of a partition."""
    return re.fullmatch(_PCI_ADDRESS, text) is not None


def is_uuid(text: str) -> bool:
    """Return whether a text is a UUID as drivers of GPUs write it, perhaps cut short."""
    return text.startswith(_UUID_PREFIXES)


def whole_gpu(device_id: str) -> str:
    """Return the UUID of the GPU of which a device is a share."""
    return device_id.partition(_REPLICA)[0]


def _address(device: Device) -> str:
    """Return the PCI address of a device as sysfs writes it; empty: not known."""
    address = re.fullmatch(_PCI_ADDRESS, device.pci or device.id)
    return _sysfs_address(address) if address else ""


def _sysfs_address(address: re.Match[str]) -> str:
    """Return a PCI address as sysfs writes it.

    NVIDIA's tools write the domain in eight digits and capitals.
    """
    return f"{int(address['domain'], 16):04x}:{address['slot'].lower()}"


def _with_hidden(devices: Sequence[Device], machine: Machine, resource: str) -> tuple[Device, ...]:
    """Return the devices that a driver lists, with those that sysfs has besides.

    A driver does not list what a cgroup hides, and sysfs is the same in every cgroup.
    """
    from alignup.machine.pci_devices import (  # noqa: PLC0415  # seldom used
        devices_from_pci,
        usual_selectors,
    )

    addresses = {_address(device) for device in devices}
    if "" in addresses:
        return tuple(devices)

    on_bus = devices_from_pci(machine, usual_selectors(machine, resource)).get(resource, ())
    hidden = [device for device in on_bus if _address(device) not in addresses]
    return tuple(sorted((*devices, *hidden), key=lambda device: pci_place(_address(device))))


def _information(files: HostFiles, address: str) -> dict[str, str]:
    """Return what NVIDIA's driver says of a GPU in a file, by the name of each line."""
    lines = files.read(f"{_NVIDIA_FOLDER}/{address}/information").splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _whole_number(text: str) -> int | None:
    """Return the number that a text of digits is; None: it is none, or one of no device."""
    from alignup.text.digits import number_of  # noqa: PLC0415  # startup counts

    return number_of(text, _LARGEST)


def _is_first(numbers: Sequence[int]) -> bool:
    """Return whether numbers are those that a cgroup with so many devices has: from 0 on."""
    return bool(numbers) and sorted(numbers) == list(range(len(numbers)))


def _cuda_numbers(text: str, uuids: Sequence[str]) -> list[int]:
    """Return the numbers of the devices that CUDA_VISIBLE_DEVICES lists.

    As the driver has it: a number is the digits that an entry begins with, a UUID may be cut short,
    and a list is of one kind, up to the first entry of no device. A device that comes twice hides
    all.
    """
    numbers: list[int] = []
    prefix = next((prefix for prefix in _UUID_PREFIXES if text.startswith(prefix)), "")
    for name in text.split(","):
        if prefix:
            number = _number_of_uuid(name, uuids) if name.startswith(prefix) else None
        else:
            digits = re.match(r"\s*\+?([0-9]+)", name)
            number = _whole_number(digits[1]) if digits else None

        if number is None or number >= len(uuids):
            break
        if number in numbers:
            return []
        numbers.append(number)

    return numbers


def _number_of_uuid(name: str, uuids: Sequence[str]) -> int | None:
    """Return the number of the only device whose UUID begins like a name; None: there is none.

    What follows the hexadecimal digits is ignored, as `::0` of a shared GPU. A GPU may be named as
    its own MIG device.
    """
    if name in _UUID_PREFIXES or not is_uuid(name):
        return None

    exact = [number for number, uuid in enumerate(uuids) if uuid.startswith(name)]
    if len(exact) == 1:
        return exact[0]

    digits = re.match(r"(?:GPU|MIG)-([0-9a-fA-F-]+)", name)
    if digits is None:
        return None

    wanted_digits = digits[1].lower()
    numbers = [
        number
        for number, uuid in enumerate(uuids)
        if is_uuid(uuid)
        and uuid[4:].lower().startswith(wanted_digits)
        and (uuid[:4] == name[:4] or name.startswith("MIG-"))
    ]
    return numbers[0] if len(numbers) == 1 else None


def _rocr_numbers(text: str, uuids: Sequence[str]) -> list[int]:
    """Return the numbers of the devices that ROCR_VISIBLE_DEVICES lists, up to a wrong entry."""
    numbers: list[int] = []
    for entry in text.split(","):
        name = entry.strip().upper()
        if name.startswith("G"):
            named = [number for number, uuid in enumerate(uuids) if uuid.upper().startswith(name)]
            number = named[0] if len(named) == 1 and len(name) > len("GPU-") else None
        else:
            number = _whole_number(name)

        if number is None or number >= len(uuids) or number in numbers:
            break
        numbers.append(number)

    return numbers


def _hip_numbers(text: str, uuids: Sequence[str]) -> list[int]:
    """Return the numbers of the devices that HIP_VISIBLE_DEVICES lists, up to a wrong entry.

    A device that comes twice is seen once.
    """
    numbers: list[int] = []
    for name in text.split(","):
        number = _whole_number(name)
        if name.startswith("GPU-"):
            named = [place for place, uuid in enumerate(uuids) if name in uuid]
            number = named[0] if named else None
        elif number is not None and str(number) != name:
            number = None

        if number is None or number >= len(uuids):
            break
        if number not in numbers:
            numbers.append(number)

    return numbers


def _by_mask(text: str, devices: Sequence[Device], hierarchy: str) -> tuple[list[Device], str]:
    """Return the devices that ZE_AFFINITY_MASK leaves, in their own order.

    It lists devices, or `device.tile` where ZE_FLAT_DEVICE_HIERARCHY is COMPOSITE; else tiles are
    devices.
    """
    if text.strip() in _ALL["ZE_AFFINITY_MASK"]:
        return list(devices), ""

    numbers = set()
    for entry in text.split(","):
        name = entry.strip()
        if hierarchy.upper() == "COMPOSITE":
            name, _, _ = name.partition(".")

        number = _whole_number(name)
        if number is not None and number < len(devices):
            numbers.add(number)

    return [devices[number] for number in sorted(numbers)], "" if numbers else "names no device"


def visible_variables(
    devices: Mapping[str, Sequence[str]],
    inventory: Mapping[str, Sequence[Device]],
    machine: Machine,
    numbered: Mapping[str, Sequence[str]] | None = None,
    environment: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the variables that make CUDA or ROCm see some GPUs only.

    There are none where there is no GPU among the devices. Both take UUIDs, and numbers: of PCI
    addresses, the position among the machine's GPUs of that vendor in the order of the bus; of
    names that mean nothing to them, the position in the inventory.

    Args:
        devices: ids by resource.
        inventory: all devices of the machine.
        machine: the machine.
        numbered: by resource, the ids of those that the runtime numbers, where these are fewer.
        environment: that the variables are added to: what it chooses among ROCm's GPUs is chosen
            among those that are left.

    Raises:
        InputError: there is a GPU that has no number, such as a PCI address of no GPU.
    """
    variables: dict[str, str] = {}
    for resource, variable in VISIBLE.items():
        ids = devices.get(resource, ())
        if not ids:
            continue

        if all(map(is_uuid, ids)):
            variables[variable] = ",".join(ids)
            continue

        numbers = _gpu_numbers(resource, ids, inventory, machine, (numbered or {}).get(resource))
        if variable == "CUDA_VISIBLE_DEVICES":
            variables[_ORDER] = _BUS_ORDER
        variables[variable] = ",".join(map(str, sorted(numbers)))

        for group in VARIABLES[resource][1:]:
            for name in group:
                if (environment or {}).get(name):
                    variables[name] = ",".join(map(str, range(len(ids))))

    return variables


def _gpu_numbers(
    resource: str,
    ids: Sequence[str],
    inventory: Mapping[str, Sequence[Device]],
    machine: Machine,
    numbered: Sequence[str] | None,
) -> list[int]:
    """Return the numbers by which a runtime knows some GPUs.

    Raises:
        InputError: one of them has none.
    """
    names = list(ids)
    order = list(numbered or (device.id for device in inventory.get(resource, ())))
    matches = [re.fullmatch(_PCI_ADDRESS, device_id) for device_id in ids]
    addresses = [address for address in matches if address is not None]
    if len(addresses) == len(ids):
        # startup counts
        from alignup.machine.pci_devices import (  # noqa: PLC0415
            devices_from_pci,
            usual_selectors,
        )

        names = [_sysfs_address(address) + (address["part"] or "") for address in addresses]
        if not numbered:
            gpus = devices_from_pci(machine, usual_selectors(machine, resource))
            order = [device.id for device in gpus.get(resource, ())]

    for device_id, name in zip(ids, names, strict=True):
        if name not in order:  # left out, it would be held and never seen
            runtime, _, _ = VISIBLE[resource].partition("_")
            raise InputError.at(
                f"the devices of {resource}", f"a GPU that {runtime} can number", device_id
            )

    return [order.index(name) for name in names]


if TYPE_CHECKING:
    _Reader = Callable[[str, Sequence[str]], list[int]]
