"""Returns what a pod or container asks a node for, in the form in which the compiled rows are asked.

Whether a node can give it is decided in `alignup.core.amounts`.
"""

from __future__ import annotations

from alignup.kubernetes.pod import Container, Pod
from alignup.kubernetes.quantity import LARGEST

__all__ = ["Request", "request_of"]

Request = tuple[int, tuple[tuple[str, int], ...], tuple[tuple[str, int], ...], bool]
"""Exclusive CPUs, (type, bytes) of memory, (resource, count) of devices, and whether all of it is handed on."""


def request_of(one: Pod | Container) -> Request:
    """Return what a pod or container asks for.

    Memory that is no whole number of bytes offers no hints and fails to allocate, as the largest amount does.
    """
    if isinstance(one, Container):
        fractional, hands_on = bool(one.fractional_memory), one.is_init and not one.is_sidecar
    else:
        fractional, hands_on = any(each.fractional_memory for each in one.all_containers), False
    memory = tuple((kind, LARGEST) for kind, _ in one.memory) if fractional else one.memory
    return one.exclusive_cpus, memory, one.devices, hands_on
