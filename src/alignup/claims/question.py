"""What the allocator is asked: devices for the claims of a pod, beside what other claims hold."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from alignup.records import Record, field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.claims import objects
    from alignup.claims.read import Resources
    from alignup.claims.scheduler_gates import Gates
    from alignup.kubernetes.node_fit import NodeObject


# What selectors may cost: a million for a device, as for the scheduler, which gives a node up after
# ten seconds. Those that are in use cost some tens.
MOST_COST: Final = 20_000_000

# The bound of one search, in steps, and of all searches for a question.
MOST_STEPS: Final = 20_000_000
_MOST_STEPS_IN_ALL: Final = 5 * MOST_STEPS


class AllocationError(Exception):
    """The scheduler ends with an error: for this node, or for the pod altogether."""

    def __init__(self, text: str, kind: str = "fatal") -> None:
        super().__init__(text)
        # `fatal`, `node`, `timeout` (a bound was hit) or `notUnderstood`.
        self.kind = kind


class Effort:
    """What may still be spent on a question, with what else is asked to answer it.

    Such as the same claims beside other ones, or on other nodes.

    Attributes:
        cost: of selectors, in the scheduler's units: some seconds.
        steps: of searches: some seconds.
        answers: what selectors have said of devices, by what it depends on, each with its device.
    """

    __slots__ = ("answers", "cost", "steps")

    def __init__(self, cost: int = MOST_COST, steps: int = _MOST_STEPS_IN_ALL) -> None:
        self.cost = cost
        self.steps = steps
        self.answers: dict[object, tuple[objects.Device, bool | Exception]] = {}


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
        effort: what may be spent on it, and on what is asked to answer it.
    """

    node: NodeObject
    slices: Sequence[objects.Slice]
    classes: Sequence[objects.DeviceClass]
    claims: tuple[objects.Claim, ...]
    used: InUse
    gates: Gates
    excluded: frozenset[objects.DeviceId] = frozenset()
    effort: Effort = field(default_factory=Effort, compare=False)


def question_of(
    node: NodeObject, resources: Resources, claims: Sequence[objects.Claim], gates: Gates
) -> Question:
    """Return what is asked for a pod's claims, where the resources' claims hold what they have."""
    waiting = tuple(claim for claim in claims if claim.allocated is None)
    used = in_use(resources.claims, gates)
    return Question(node, resources.slices, resources.classes, waiting, used, gates)
