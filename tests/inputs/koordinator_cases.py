"""The JSON shapes of Koordinator's conformance cases, as records.

`replays.koordinator_answers` answers them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec

from alignup.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FilterCase", "HintCase", "MergeCase", "PodOnNode", "decoded"]

NodeId = Annotated[int, msgspec.Meta(ge=0, le=63)]
"""A NUMA node id that has a bit in a mask of 64."""

Amount = Annotated[int, msgspec.Meta(ge=0)]

Case = TypeVar("Case")


class HintCase(msgspec.Struct, frozen=True):
    """A hint: NUMA node ids (None: any), and Koordinator's marks."""

    nodes: tuple[NodeId, ...] | None
    preferred: bool
    unsatisfied: bool = False
    score: int = 0


class MergeCase(msgspec.Struct, frozen=True):
    """One merge: the policy, the machine, who is on it, and what the providers offer."""

    policy: str
    numa_nodes: tuple[NodeId, ...]
    exclusive: str
    node_states: tuple[str, ...]
    providers: tuple[dict[str, tuple[HintCase, ...] | None] | None, ...]


class NumaCase(msgspec.Struct, frozen=True):
    """A NUMA node: how many CPUs and how much memory."""

    cpus: Amount
    memory_mib: Amount


class Used(msgspec.Struct, frozen=True):
    """What a pod has of a NUMA node."""

    node: NodeId
    cpu_milli: Amount = 0
    memory_mib: Amount = 0


class PodOnNode(msgspec.Struct, frozen=True):
    """A pod that is on the node; its own `numa_spec` matters to the document's profile alone."""

    cpuset: str
    numa: tuple[Used, ...]
    numa_spec: str | None = None


class NewPod(msgspec.Struct, frozen=True):
    """The pod to be scheduled: its annotation (None: it has none) and its requests (0: none)."""

    numa_spec: str | None = None
    cpu_milli: Amount = 0
    memory_mib: Amount = 0


class FilterCase(msgspec.Struct, frozen=True):
    """One pod and one node, on which pods came and went."""

    numa: tuple[NumaCase, ...]
    pod: NewPod
    node_label: str | None = None
    kubelet_policies: tuple[str, ...] = ()
    pods: tuple[PodOnNode, ...] = ()
    released: tuple[int, ...] = ()


def decoded(case: Mapping[str, object], shape: type[Case]) -> Case:
    """Return the record of a case given as decoded JSON.

    Keys that the shape does not have are passed over.

    Raises:
        InputError: Something is missing or of the wrong type; the message has its path.
    """
    try:
        return msgspec.convert(case, shape)
    except msgspec.ValidationError as error:
        raise InputError(
            f"expected a case as the conformance vectors have them: {error}"
        ) from error
