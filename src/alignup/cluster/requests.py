"""Returns what a pod or container asks a node for, in the form in which the compiled rows are asked.

Whether a node can give it is decided in `alignup.core.amounts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alignup.core.amounts.board import LIMITS
from alignup.errors import InputError
from alignup.kubernetes.pod import Container, Pod
from alignup.kubernetes.quantity import LARGEST

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["Request", "request_of", "requests_of"]

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


def requests_of(pod: Pod, resources: Collection[str]) -> list[Request]:
    """Return what a pod asks for as a whole, then what each of its containers does.

    Args:
        pod: the pod; one without containers asks for nothing in the place of one.
        resources: the device resources that some node has.

    Raises:
        InputError: it asks for more types of memory, or for more of these resources, than a compiled row holds.
    """
    asking: list[Pod | Container] = [pod, *pod.all_containers]
    types = {kind for one in asking for kind, _ in one.memory}
    known = {resource for one in asking for resource, _ in one.devices}
    for asked, most, what in (
        (types, LIMITS[0], "types of memory"),
        (known.intersection(resources), LIMITS[1], "device resources"),
    ):
        if len(asked) > most:
            raise InputError.at("the pod", f"at most {most} {what}", len(asked))
    requests = [request_of(one) for one in asking]
    return requests if len(requests) > 1 else [*requests, (0, (), (), False)]
