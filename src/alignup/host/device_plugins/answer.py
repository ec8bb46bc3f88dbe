"""Holds the record of what device plugins answer to Allocate.

It is what a command needs, besides ids, to use its devices. Answers are read off the wire in
`alignup.host.device_plugins`; here they are joined and told to a command.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Mount(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A file or folder of the host that a container is to see."""

    container_path: str
    host_path: str
    read_only: bool = False


class DeviceNode(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A device file of the host that a container is to see.

    Attributes:
        permissions: some of r, w and m (to make device nodes).
    """

    container_path: str
    host_path: str
    permissions: str = ""


class DeviceAnswer(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What plugins answered when devices were allocated.

    Attributes:
        cdi_devices: names in full, such as `vendor.com/gpu=gpu0`.
    """

    environment: dict[str, str] = msgspec.field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceNode, ...] = ()
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self != _NOTHING


_NOTHING = DeviceAnswer()


def join_answers(answers: Iterable[DeviceAnswer]) -> DeviceAnswer:
    """Return the answers of several plugins as one, in this order.

    As in the kubelet, of two values of a variable or an annotation the later one counts, and of two
    mounts or devices at one path in the container the earlier one; a CDI device is named once.
    """
    environment: dict[str, str] = {}
    mounts: dict[str, Mount] = {}
    devices: dict[str, DeviceNode] = {}
    annotations: dict[str, str] = {}
    names: dict[str, None] = {}
    for answer in answers:
        environment.update(answer.environment)
        annotations.update(answer.annotations)
        names.update(dict.fromkeys(answer.cdi_devices))
        for mount in answer.mounts:
            mounts.setdefault(mount.container_path, mount)
        for device in answer.devices:
            devices.setdefault(device.container_path, device)

    return DeviceAnswer(
        environment, tuple(mounts.values()), tuple(devices.values()), annotations, tuple(names)
    )
