"""Asks NVIDIA's driver, through NVML, for GPUs: UUID, NUMA node, and which pairs NVLink joins.

NVML comes with the extra `nvidia` (nvidia-ml-py) and is imported when it is first needed. Which
GPUs a container gets is decided in `alignup.providers.devices.provider`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import combinations
from typing import Any, Final

from alignup.errors import InputError, needs_extra
from alignup.machine.device_inventory import Device, LoadedMachine
from alignup.machine.machine import Machine, pci_place

GPU_RESOURCE: Final = "nvidia.com/gpu"
# NVIDIA's number as a vendor of PCI devices.
_VENDOR: Final = "10de"
# The first digits of the PCI classes of GPUs; NVIDIA's switches, sound and network devices have
# others.
DISPLAY_CLASS: Final = "03"


def has_gpus(machine: Machine) -> bool:
    """Return whether any of the machine's PCI devices is a GPU of NVIDIA, whatever its driver."""
    return any(
        device.vendor == _VENDOR and device.class_.startswith(DISPLAY_CLASS)
        for device in machine.pci_devices
    )


def read_gpus(machine: Machine, *, nvml: Any = None) -> LoadedMachine:
    """Return the machine with its NVIDIA GPUs only: ids are UUIDs, in the driver's order.

    Of a GPU with MIG they are its instances, which are near its node.

    Preferred sets are the pairs that NVLink joins, those with the most links first.

    A GPU's node is the one that the driver names; where it names none, the one that sysfs has for
    its PCI address. On machines whose GPUs are NUMA nodes of their own (GB200) that node has no
    CPUs: see `near_cpu_nodes`.

    Args:
        machine: the machine that the driver runs on, for its NUMA nodes and PCI devices.
        nvml: a module with the functions of `pynvml`; by default that one.

    Raises:
        InputError: the library or the driver is missing, or the driver refuses to answer.
    """
    with _session(nvml) as library:
        try:
            handles = [
                library.nvmlDeviceGetHandleByIndex(index)
                for index in range(library.nvmlDeviceGetCount())
            ]
            uuids = [_text(library.nvmlDeviceGetUUID(handle)) for handle in handles]
            # the driver writes domains with eight digits, sysfs with four or more
            buses = [
                pci_place(_text(library.nvmlDeviceGetPciInfo(handle).busId)) for handle in handles
            ]
            driver_nodes = [_driver_node(library, handle) for handle in handles]
            instances = [_instances(library, handle) for handle in handles]
            pairs = [
                pair
                for pair in _nvlink_pairs(library, handles, buses, uuids)
                if not any(instances[uuids.index(uuid)] for uuid in pair)
            ]
        except library.NVMLError as error:
            raise InputError(f"NVIDIA's driver cannot describe its GPUs: {error}") from error

    pci_devices = {pci_place(device.address): device for device in machine.pci_devices}
    gpus = []
    for uuid, parts, numa_node, bus in zip(uuids, instances, driver_nodes, buses, strict=True):
        candidates = [numa_node]
        address = ""
        if bus in pci_devices:
            candidates.append(pci_devices[bus].numa_node)
            address = pci_devices[bus].address

        numa_nodes = next(
            ((numa_id,) for numa_id in candidates if numa_id in machine.numa_node_ids), None
        )
        gpus += [Device(part, numa_nodes, pci=address) for part in parts or [uuid]]

    preferred_sets = {GPU_RESOURCE: tuple(pairs)} if pairs else {}
    return LoadedMachine(machine, {GPU_RESOURCE: tuple(gpus)}, preferred_sets)


@contextmanager
def _session(library: Any) -> Iterator[Any]:
    """Keep the library, by default the one that is installed, initialised for a while."""
    if library is None:
        with needs_extra("NVIDIA GPUs need nvidia-ml-py", "nvidia-ml-py"):
            import pynvml  # type: ignore[import,unused-ignore]  # noqa: PLC0415  # an extra

            library = pynvml

    try:
        library.nvmlInit()
    except library.NVMLError as error:
        raise InputError(
            f"cannot use NVIDIA's driver: {error}; is it installed and loaded on this machine?"
        ) from error

    try:
        yield library
    finally:
        library.nvmlShutdown()


def _text(value: str | bytes) -> str:
    """Return a text that old releases of the library give as bytes."""
    return value.decode() if isinstance(value, bytes) else value


def _driver_node(library: Any, handle: Any) -> int | None:
    """Return the node that the driver names: mostly that of a GPU which is a node of its own."""
    with suppress(library.NVMLError, AttributeError):  # old releases of the library do not ask
        return int(library.nvmlDeviceGetNumaNodeId(handle))
    return None


def _instances(library: Any, handle: Any) -> list[str]:
    """Return the UUIDs of the MIG instances of a GPU; none where it has none."""
    uuids: list[str] = []
    # neither GPUs without MIG nor old releases of the library know of it
    with suppress(library.NVMLError, AttributeError):
        current, _ = library.nvmlDeviceGetMigMode(handle)
        if not current:
            return []

        for index in range(library.nvmlDeviceGetMaxMigDeviceCount(handle)):
            with suppress(library.NVMLError):  # no instance of this number
                instance = library.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
                uuids.append(_text(library.nvmlDeviceGetUUID(instance)))

    return uuids


def _nvlink_pairs(
    library: Any, handles: list[Any], buses: list[tuple[int, str]], uuids: list[str]
) -> tuple[tuple[str, ...], ...]:
    """Return the pairs that reach each other over NVLink, those with the most links first.

    GPUs behind an NVSwitch all reach each other and none has links of its own to another.
    """
    links = [_remote_addresses(library, handle) for handle in handles]
    ranked = []
    for first, second in combinations(range(len(handles)), 2):
        direct = links[first].count(buses[second])
        if direct or _reaches(library, handles[first], handles[second]):
            ranked.append((-direct, first, second))

    return tuple((uuids[first], uuids[second]) for _, first, second in sorted(ranked))


def _remote_addresses(library: Any, handle: Any) -> list[tuple[int, str]]:
    """Return the PCI address at the other end of each active NVLink of a GPU."""
    addresses = []
    for link in range(library.NVML_NVLINK_MAX_LINKS):
        # this GPU may have no such link, or the driver not know its other end
        with suppress(library.NVMLError):
            if library.nvmlDeviceGetNvLinkState(handle, link):
                remote = library.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)
                addresses.append(pci_place(_text(remote.busId)))

    return addresses


def _reaches(library: Any, handle: Any, remote_handle: Any) -> bool:
    """Return whether two GPUs reach each other over NVLink, perhaps through a switch."""
    with suppress(library.NVMLError):
        capability = library.NVML_P2P_CAPS_INDEX_NVLINK
        status = library.nvmlDeviceGetP2PStatus(handle, remote_handle, capability)
        return bool(status == library.NVML_P2P_STATUS_OK)
    return False
