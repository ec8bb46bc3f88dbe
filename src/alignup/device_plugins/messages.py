"""Checks what device plugins send and turns it into records: registrations, lists of devices, answers to Allocate.

Plugins are other people's programs: whatever they send is looked at before anything is done with it. Calling them is
left to `alignup.device_plugins.connection`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from alignup.device_plugins.answer import DeviceAnswer, DeviceNode, Mount
from alignup.errors import AllocationError, InputError
from alignup.machine.device_inventory import Device
from alignup.records import Record, replace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from alignup.device_plugins import device_plugin_pb2 as wire

VERSION: Final = "v1beta1"
SOCKET_NAME: Final = "kubelet.sock"
"""Plugins know the socket of the registration by this name, and watch it."""
_HEALTHY: Final = "Healthy"
_MOST_DEVICES: Final = 1 << 14
_LONGEST_ID: Final = 1024
_LONGEST_VALUE: Final = 120_000
"""Linux hands on no string of more than 128 KiB to a program."""
_MOST_VARIABLES: Final = 256
_ENDPOINT: Final = re.compile(r"[A-Za-z0-9_.:@+-]{1,100}")
_RESOURCE: Final = re.compile(
    r"(?=[^/]{1,253}/)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
    r"/[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
)
"""An extended resource: a DNS name and a name below it."""
_NATIVE: Final = ("kubernetes.io", "requests.")


class DevicePluginError(AllocationError):
    """Raised when a device plugin fails: it hangs, is gone, refuses, or answers what makes no sense."""

    def __init__(self, resource: str, detail: str) -> None:
        super().__init__(f"the device plugin of {resource} {detail}")
        self.resource = resource


class Registration(Record):
    """The request of a plugin to be connected to."""

    resource: str
    endpoint: str
    """The name of its socket in the shared folder."""


def registration_of(message: wire.RegisterRequest) -> Registration:
    """Return a plugin's registration.

    Raises:
        InputError: its version, its resource or its socket cannot be; the sentences are the kubelet's where it has one.
    """
    if message.version != VERSION:
        raise InputError(
            f'requested API version "{message.version[:80]}" is not supported by kubelet. '
            f'Supported version is ["{VERSION}"]'
        )
    resource = message.resource_name
    domain = resource.partition("/")[0]
    native = domain == _NATIVE[0] or domain.endswith(f".{_NATIVE[0]}") or domain.startswith(_NATIVE[1])
    if native or not _RESOURCE.fullmatch(resource):
        raise InputError(f'the ResourceName "{resource[:80]}" is invalid')
    if not _ENDPOINT.fullmatch(message.endpoint) or message.endpoint in {".", "..", SOCKET_NAME}:
        raise InputError.at("the endpoint", "the name of a socket in the shared folder", message.endpoint)
    return Registration(resource, message.endpoint)


def devices_of(message: wire.ListAndWatchResponse) -> tuple[Device, ...]:
    """Return the devices of a plugin's report; of two with one id, as in a kubelet, the last.

    Raises:
        InputError: there are too many, or an id cannot be.
    """
    if len(message.devices) > _MOST_DEVICES:
        raise InputError.at("the list of devices", f"up to {_MOST_DEVICES} devices", len(message.devices))
    found: dict[str, Device] = {}
    for index, device in enumerate(message.devices):
        if not 0 < len(device.ID) <= _LONGEST_ID or "\0" in device.ID:
            raise InputError.at(f"devices[{index}].ID", f"an id of up to {_LONGEST_ID} letters", device.ID)
        nodes = tuple(dict.fromkeys(node.ID for node in device.topology.nodes)) if device.HasField("topology") else None
        found[device.ID] = Device(device.ID, nodes, device.health == _HEALTHY)
    return tuple(found.values())


def without_unknown_nodes(
    devices: Iterable[Device], numa_nodes: Collection[int]
) -> tuple[tuple[Device, ...], frozenset[int]]:
    """Return devices without NUMA nodes that the machine lacks, and these nodes.

    As in a kubelet, a device of unknown nodes only is near none, unlike one that names no nodes at all.
    """
    strange = frozenset(node for device in devices for node in device.numa_nodes or () if node not in numa_nodes)
    if not strange:
        return tuple(devices), strange
    return tuple(
        device
        if device.numa_nodes is None
        else replace(device, numa_nodes=tuple(node for node in device.numa_nodes if node not in strange))
        for device in devices
    ), strange


def preferred_of(
    message: wire.PreferredAllocationResponse, available: Iterable[str], must_include: Iterable[str], size: int
) -> tuple[str, ...]:
    """Return the ids that a plugin prefers; none if it has no preference.

    Raises:
        InputError: they are not `size` of the available ones with those that must be included.
    """
    answers = message.container_responses
    if not answers or not answers[0].deviceIDs:
        return ()
    ids = tuple(answers[0].deviceIDs)
    strange = sorted(set(ids) - set(available))
    if strange:
        raise InputError.at("deviceIDs", "ids of the available devices", strange)
    missing = sorted(set(must_include) - set(ids))
    if missing:
        raise InputError.at("deviceIDs", f"the ids that must be included ({', '.join(missing)[:200]})", ids)
    if len(set(ids)) != size or len(ids) != size:
        raise InputError.at("deviceIDs", f"{size} different ids", ids)
    return ids


def answer_of(message: wire.AllocateResponse) -> DeviceAnswer:
    """Return what a plugin says about the devices of one container.

    Raises:
        InputError: there is not one answer for the one container, or a variable or path cannot be.
    """
    if len(message.container_responses) != 1:
        raise InputError.at("container_responses", "one answer", len(message.container_responses))
    found = message.container_responses[0]
    environment = dict(sorted(found.envs.items()))
    _check_variables(environment)
    answer = DeviceAnswer(
        environment,
        tuple(
            Mount(_path(one.container_path, "mounts"), _path(one.host_path, "mounts"), one.read_only)
            for one in found.mounts
        ),
        tuple(
            DeviceNode(
                _path(one.container_path, "devices"), _path(one.host_path, "devices"), _permissions(one.permissions)
            )
            for one in found.devices
        ),
        dict(sorted(found.annotations.items())),
        _names([one.name for one in found.cdi_devices]),
    )
    # a command is told all but the variables in one variable
    size = len(msgspec.json.encode(answer)) - len(msgspec.json.encode(environment))
    if size > _LONGEST_VALUE:
        raise InputError.at("the answer", f"up to {_LONGEST_VALUE} bytes beside its variables", size)
    return answer


def _check_variables(environment: dict[str, str]) -> None:
    """Refuse what no program can be started with.

    Raises:
        InputError: a name or a value cannot be, or there are too many.
    """
    if len(environment) > _MOST_VARIABLES:
        raise InputError.at("envs", f"up to {_MOST_VARIABLES} variables", len(environment))
    for name, value in environment.items():
        if not name or "=" in name or "\0" in name + value:
            raise InputError.at("envs", "a name and a value that a program can be started with", f"{name}={value}")
    size = sum(len(name.encode()) + len(value.encode()) for name, value in environment.items())
    if size > _LONGEST_VALUE:
        raise InputError.at("envs", f"up to {_LONGEST_VALUE} bytes", size)


def _path(path: str, where: str) -> str:
    """Return a path if it is an absolute one.

    Raises:
        InputError: it is not.
    """
    if not path.startswith("/") or "\0" in path:
        raise InputError.at(where, "an absolute path", path)
    return path


def _permissions(letters: str) -> str:
    """Return the permissions of a device if they are some of r, w and m.

    Raises:
        InputError: they are not.
    """
    if set(letters) - set("rwm"):
        raise InputError.at("devices.permissions", "some of r, w and m", letters)
    return letters


def _names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of CDI devices if each has a kind and a device.

    Raises:
        InputError: one of them has not.
    """
    for name in names:
        kind, found, device = name.partition("=")
        if not (found and device and "/" in kind):
            raise InputError.at("cdi_devices", "names such as vendor.com/gpu=gpu0", name)
    return tuple(names)
