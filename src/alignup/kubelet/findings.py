"""Declares findings about a kubelet's files, and says of each kind what the kubelet does about it, and the repair.

The effects were seen with a kubelet 1.36 that was started on such files (`tests/rig/test_faults.py`). Words in
quotation marks are its own, from its log. What is found is decided in `alignup.kubelet.check` and modules beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_DRAIN: Final = "drain the node, stop the kubelet, delete the file, and start the kubelet"
_DEVICES_FORGOTTEN: Final = (
    'the kubelet starts ("Continue after failing to read checkpoint file. Device allocation info may NOT be '
    'up-to-date"), writes a new file, and gives devices that pods use to others'
)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in the files of a kubelet that is not as it should be."""

    kind: str
    file: str
    """Where it is."""
    text: str
    """The fault, in words."""
    effect: str
    """The way the kubelet deals with it at its next start."""
    repair: str
    """How to mend it."""

    def to_dict(self) -> dict[str, str]:
        """Return the finding in JSON's types."""
        return {"kind": self.kind, "file": self.file, "text": self.text, "effect": self.effect, "repair": self.repair}


_STOPS: Final = "the kubelet does not start: "
_KINDS: Final[dict[str, tuple[str, str]]] = {
    "configuration": (f"{_STOPS}it refuses the configuration", "correct the configuration"),
    "no-state": (
        (
            "the kubelet starts as on an empty node, and gives running pods other CPUs than they use, and devices that "
            "pods use to others"
        ),
        "drain the node before the kubelet starts again",
    ),
    "cpu-file-missing": (
        "the kubelet starts, writes a new file, and gives running pods other CPUs than they use",
        "drain the node, or restart the pods with CPUs of their own after the kubelet",
    ),
    "memory-file-missing": (
        (
            "the kubelet starts, writes a new file, and works out again on which NUMA nodes the memory of running pods "
            "is counted"
        ),
        "drain the node, or restart the pods with memory of their own after the kubelet",
    ),
    "device-file-missing": (
        (
            'the kubelet starts ("Failed to read data from checkpoint" err="checkpoint is not found"), writes a new '
            "file, and gives devices that pods use to others"
        ),
        "drain the node, or restart the pods with devices after the kubelet",
    ),
    "cpu-file-damaged": (f'{_STOPS}"could not restore state from checkpoint"', _DRAIN),
    "memory-file-damaged": (f'{_STOPS}"could not restore state from checkpoint"', _DRAIN),
    "device-file-damaged": (_DEVICES_FORGOTTEN, "drain the node, or restart the pods with devices after the kubelet"),
    "cpu-checksum": (f'{_STOPS}"could not restore state from checkpoint"', _DRAIN),
    "memory-checksum": (f'{_STOPS}"could not restore state from checkpoint: checkpoint is corrupted"', _DRAIN),
    "device-checksum": (
        f'{_DEVICES_FORGOTTEN} (err="checkpoint is corrupted")',
        "drain the node, or restart the pods with devices after the kubelet",
    ),
    "newer-format": (
        f'{_STOPS}"could not restore state from checkpoint"',
        f"turn the feature gate PodLevelResourceManagers on again, or {_DRAIN}",
    ),
    "owner": (
        "none, as long as the kubelet runs as root; its next write makes the file root's again",
        "chown root:root the file; chmod 600",
    ),
    "cpu-policy": ("", _DRAIN),
    "memory-policy": ("", _DRAIN),
    "reserved-cpus": ("", f"set the reserved CPUs back, or {_DRAIN}"),
    "cpu-overlap": ("", _DRAIN),
    "cpus-given-twice": ("the kubelet starts, and both containers keep the CPUs", "remove one of the pods"),
    "cpus-changed": ("", f"bring the CPUs back, or {_DRAIN}"),
    "memory-changed": (
        f'{_STOPS}"[memorymanager] the expected machine state is different from the real one"',
        f"set the reservations and hugepages back, or {_DRAIN}",
    ),
    "memory-books": (f'{_STOPS}"[memorymanager] the expected machine state is different from the real one"', _DRAIN),
    "memory-unknown": ("", _DRAIN),
    "device-gone": (
        (
            "the kubelet starts, and the container keeps the entry; a pod that has to be admitted again is refused: "
            '"previously allocated devices are no longer healthy"'
        ),
        "bring the device back, or remove the pod",
    ),
    "device-given-twice": ("the kubelet starts, and both containers keep the device", "remove one of the pods"),
    "resource-gone": (
        "the kubelet starts, and refuses pods that ask for the resource until its plugin registers",
        "start the device plugin",
    ),
    "stale-cpus": ("the kubelet starts, and frees the CPUs within cpuManagerReconcilePeriod", "none is needed"),
    "stale-memory": (
        "the kubelet starts, and frees the memory at the next admission of a pod",
        "none is needed; any new pod will do",
    ),
    "stale-devices": (
        "the kubelet starts, and frees the devices at the next admission of a pod, or when PodResources is asked",
        "none is needed; any new pod will do",
    ),
    "pod-without-cpus": (
        "the kubelet gives the pod CPUs when it takes it up again, which may be others than it uses",
        "remove the pod, and let it be made anew",
    ),
    "pod-without-memory": (
        "the kubelet gives the pod memory when it takes it up again, on NUMA nodes which may be others than it uses",
        "remove the pod, and let it be made anew",
    ),
    "pod-without-devices": (
        "the kubelet gives the pod devices when it takes it up again, which may be others than it uses",
        "remove the pod, and let it be made anew",
    ),
}


def finding(kind: str, file: str, text: str, message: str = "") -> Finding:
    """Return a finding of a known kind.

    Args:
        kind: one of those that this module knows.
        file: where it is.
        text: what it is.
        message: the kubelet's own words, where it does not start and says what it has found.
    """
    effect, repair = _KINDS[kind]
    return Finding(kind, file, text, effect or f"{_STOPS}{quoted(message)}", repair)


def quoted(message: str) -> str:
    """Return a message in quotation marks, as a kubelet's log has it without the escapes."""
    return f'"{message}"'
