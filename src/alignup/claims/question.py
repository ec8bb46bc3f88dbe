"""What the allocator is asked: devices for the claims of a pod, beside what other claims hold."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from alignup.records import Record, field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.claims import objects
    from alignup.claims.read import Resources
    from alignup.claims.scheduler_gates import Gates
    from alignup.kubernetes.node_fit import NodeObject


class AllocationError(Exception):
    """The scheduler ends with an error: for this node, or for the pod altogether."""

    def __init__(self, text: str, kind: str = "fatal") -> None:
        super().__init__(text)
        # `fatal`, `node`, `timeout` (a bound was hit) or `notUnderstood`.
        self.kind = kind


class InUse(Record):
    """What allocated claims hold.

    Attributes:
        shared: devices that some have shares of.
        capacity: what these shares take.
    """

    devices: frozenset[objects.DeviceId] = frozenset()
    shared: frozenset[objects.DeviceId] = frozenset()
    capacity: Mapping[objects.DeviceId, Mapping[str, int]] = field(default_factory=dict)


def in_use(claims: Sequence[objects.Claim], gates: Gates) -> InUse:
    """Return what claims with an allocation hold.

    Source: `dynamicresources/allocateddevices.go`.
    """
    devices = set()
    shared = set()
    capacity: dict[objects.DeviceId, Counter[str]] = {}
    for claim in claims:
        for allocated in claim.allocated or ():
            if allocated.admin_access:
                continue
            if not gates.consumable_capacity or allocated.share_id is None:
                devices.add(allocated.id)
                continue

            shared.add(allocated.id)
            if allocated.consumed_capacity is not None:
                amounts = capacity.setdefault(allocated.id, Counter())
                amounts.update(allocated.consumed_capacity)

    return InUse(frozenset(devices), frozenset(shared), capacity)


class Question(Record):
    """What is asked of the allocator: devices for the claims of a pod on a node.

    Attributes:
        slices: those of the cluster.
        claims: those of the pod without an allocation, in its order.
        gates: of the scheduler.
        excluded: devices that nobody uses and that shall not be given.
    """

    node: NodeObject
    slices: Sequence[objects.Slice]
    classes: Sequence[objects.DeviceClass]
    claims: tuple[objects.Claim, ...]
    used: InUse
    gates: Gates
    excluded: frozenset[objects.DeviceId] = frozenset()


def question_of(
    node: NodeObject, resources: Resources, claims: Sequence[objects.Claim], gates: Gates
) -> Question:
    """Return what is asked for a pod's claims, where the resources' claims hold what they have."""
    waiting = tuple(claim for claim in claims if claim.allocated is None)
    used = in_use(resources.claims, gates)
    return Question(node, resources.slices, resources.classes, waiting, used, gates)
