"""What the allocator refuses of a claim at once, before it looks at a device.

Its checks come request by request, in the order in which it makes them, since the first that fails
is the scheduler's error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.claims.question import AllocationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alignup.claims.objects import Claim, DeviceClass, Request, Subrequest
    from alignup.claims.scheduler_gates import Gates

_NO_CLASS: Final = "missing device class name (unsupported request type?)"


def subrequests_of(claim: Claim, request: Request, gates: Gates) -> tuple[Subrequest, ...]:
    """Return the ways to serve a request: its alternatives, or the request itself.

    Raises:
        AllocationError: there are none, or the scheduler does not know what they ask for.
    """
    where = f"claim {claim}, request {request.name}"
    alternatives = request.first_available
    if alternatives and not gates.prioritized_list:
        raise AllocationError(
            f"{where}: has subrequests, but the DRAPrioritizedList feature is disabled"
        )

    subrequests = alternatives
    if not alternatives and request.exactly is not None:
        subrequests = (request.exactly,)
    if not subrequests:
        raise AllocationError(f"{where}: {_NO_CLASS}")

    if not gates.consumable_capacity and not gates.is_simple:
        for subrequest in subrequests:
            if subrequest.capacity is not None:
                if alternatives:
                    where = f"claim {claim}, subrequest {subrequest.name}"

                problem = "has capacity requests, but the DRAConsumableCapacity feature"
                raise AllocationError(f"{where}: {problem} is disabled")

    return subrequests


def check_subrequest(
    subrequest: Subrequest, where: str, gates: Gates, *, is_alternative: bool
) -> None:
    """Refuse what the scheduler does not know of a way to serve a request.

    Args:
        subrequest: the way.
        where: its place in errors.
        gates: of the scheduler.
        is_alternative: whether it is one of several.

    Raises:
        AllocationError: it asks for such a thing.
    """
    if subrequest.derived_attributes:
        raise AllocationError(
            f"{where}: cannot handle request with derived attributes, the feature is disabled"
        )

    for index, selector in enumerate(subrequest.selectors):
        if selector.cel is None:
            raise AllocationError(
                f"{where}, selector #{index}: CEL expression empty (unsupported selector type?)"
            )

    asks_for_admin = subrequest.admin_access is not None and not is_alternative
    if asks_for_admin and not gates.admin_access:
        raise AllocationError(f"{where}: admin access is requested, but the feature is disabled")


def class_of(subrequest: Subrequest, where: str, classes: Mapping[str, DeviceClass]) -> DeviceClass:
    """Return the device class of a way to serve a request.

    Raises:
        AllocationError: it names none, or one that is not there.
    """
    name = subrequest.device_class_name
    if not name:
        raise AllocationError(f"{where}: {_NO_CLASS}")
    if name not in classes:
        problem = f'deviceclass.resource.k8s.io "{name}" not found'
        raise AllocationError(f"{where}: could not retrieve device class {name}: {problem}")

    return classes[name]


def check_constraints(claim: Claim, gates: Gates) -> None:
    """Refuse a constraint that says nothing to the scheduler.

    Raises:
        AllocationError: a claim has one.
    """
    knows_distinct = not gates.is_simple
    for index, constraint in enumerate(claim.constraints):
        has_distinct = knows_distinct and constraint.distinct_attribute is not None
        if constraint.match_attribute is None and not has_distinct:
            where = f"claim {claim}, constraint #{index}"
            raise AllocationError(f"{where}: empty constraint (unsupported constraint type?)")
