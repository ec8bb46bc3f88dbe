"""Declares what can be said about a kubelet's node beyond its root: the options of `Node.from_kubelet`."""

from __future__ import annotations

import os  # noqa: TC003  # evaluated by whoever asks for the types of the options
from collections.abc import Mapping, Sequence  # noqa: TC003  # as above
from typing import TypedDict

from alignup.kubernetes.versions import KubeletVersion  # noqa: TC001  # as above
from alignup.machine.device_inventory import Device  # noqa: TC001  # as above
from alignup.machine.machine import Machine  # noqa: TC001  # as above

__all__ = ["KubeletOptions"]


class KubeletOptions(TypedDict, total=False):
    """Replacements of things that are not in their place beneath the root; all may be missing."""

    kubelet_dir: str | os.PathLike[str] | None
    """The kubelet's folder where it is not `var/lib/kubelet` beneath the root."""
    config: str | os.PathLike[str] | None
    """The kubelet's configuration where it is elsewhere."""
    config_dir: str | os.PathLike[str] | None
    """The folder of its drop-ins where it is elsewhere."""
    machine: Machine | None
    """The machine, in place of the one that `sys` beneath the root describes."""
    devices: Mapping[str, Sequence[Device]] | None
    """By resource, the devices that plugins report, in place of those that the kubelet tells."""
    kubelet_version: KubeletVersion | str | None
    """The kubelet's release; None: what `node.json` says, or the newest known."""
