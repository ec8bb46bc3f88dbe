"""Says why claims cannot be allocated, and what would help.

The scheduler says "cannot allocate all claims" only. Here it is told which request or constraint is
to blame, and what was free: the question is asked again with less in it: one request alone, a claim
without one constraint, the claims before. Every suggestion was tried.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec.structs import replace as changed

from alignup.claims.allocation import solve
from alignup.claims.objects import (
    ALL,
    STANDARD_NUMA_NODE,
    Claim,
    Constraint,
    Request,
    Subrequest,
    Toleration,
    attribute_of,
)
from alignup.claims.pools import without_groups
from alignup.claims.question import AllocationError, InUse, Question
from alignup.claims.scheduler_gates import gates_to_turn_on
from alignup.claims.search_tables import MOST_RESULTS, SearchTables
from alignup.records import Record, replace

# The bound of each question that is asked again.
_STEPS: Final = 2_000_000
_MOST_SHOWN: Final = 6
# What a device is for a request, in the order in which they are counted up.
_FREE: Final = "free"
_HELD: Final = "in use"
_BLOCKED: Final = "tainted or out of counters"
_TOO_SMALL: Final = "without the capacity"
_NO_MATCH: Final = "not matching"
_STATES: Final = (_FREE, _HELD, _BLOCKED, _TOO_SMALL, _NO_MATCH)


class Refusal(Record):
    """Why claims cannot be allocated.

    Attributes:
        request: empty: several together.
        constraint: empty: none is to blame.
        helps: what would make it possible; each was tried.
    """

    claim: str
    request: str
    constraint: str
    text: str
    helps: tuple[str, ...]

    @property
    def where(self) -> str:
        """The claim and the request to blame, in words."""
        if not self.request:
            return f"claim {self.claim}"

        return f"claim {self.claim}, request {self.request}"


def _works(question: Question, **changes: Any) -> bool:
    """Return whether devices can be allocated if some of a question is otherwise."""
    try:
        return solve(SearchTables(replace(question, **changes)), _STEPS) is not None
    except AllocationError:
        return False


def why_not(question: Question) -> Refusal:
    """Return why the claims cannot be allocated.

    Args:
        question: one whose answer is that they cannot.
    """
    refusal = _why_not(question)
    if question.gates.compatibility_groups:
        ungrouped = without_groups(question.slices)
        if _works(question, slices=ungrouped):
            text = f"{refusal.text}; were it not for compatibility groups, there would be devices"
            refusal = replace(refusal, text=text)

    return replace(refusal, helps=(*refusal.helps, *helpful_gates(question)))


def helpful_gates(question: Question) -> tuple[str, ...]:
    """Return which gates of the cluster would make it possible; each was tried.

    Args:
        question: one whose answer is an error, or that the claims cannot be allocated.
    """
    helpful: list[tuple[str, ...]] = []
    for names, gates in gates_to_turn_on(question.gates):
        is_more_than_needed = any(set(fewer) <= set(names) for fewer in helpful)
        if not is_more_than_needed and _works(question, gates=gates):
            helpful.append(names)

    return tuple(
        f"turn on the feature gate {' and '.join(names)} of kube-apiserver and kube-scheduler"
        for names in helpful
    )


def _why_not(question: Question) -> Refusal:
    for number, claim in enumerate(question.claims):
        if _works(question, claims=question.claims[: number + 1]):
            continue

        before = question.claims[:number]
        refusal = _request(question, claim, before) or _constraint(question, claim, before)
        if refusal is not None:
            return refusal
        if before and _works(question, claims=(claim,)):
            names = ", ".join(map(str, before))
            text = f"its devices and those of {names} cannot be had together"
            return Refusal(str(claim), "", "", text, _if_released(question))

        names = ", ".join(request.name for request in claim.requests)
        text = f"each of the requests {names} can be served alone, but not all of them together"
        helps = (*_fewer(question, claim, before), *_if_released(question))
        return Refusal(str(claim), "", "", text, helps)

    return Refusal("", "", "", "the search was given up before all was tried", ())


def _request(question: Question, claim: Claim, before: tuple[Claim, ...]) -> Refusal | None:
    """Return a refusal where one request cannot be served alone."""
    for request in claim.requests:
        alone = changed(claim, requests=(request,), constraints=())
        if _works(question, claims=(*before, alone)):
            continue

        if before and _works(question, claims=(alone,)):
            names = ", ".join(map(str, before))
            text = f"earlier claims of the pod take what it asks for: {names}"
            return Refusal(str(claim), request.name, "", text, _if_released(question))

        tables = SearchTables(replace(question, claims=(alone,)))
        text = "; ".join(_state(tables, number) for number in range(len(tables.ways)))
        helps = (
            *_tolerations(question, claim, request, before),
            *_fewer(question, alone, before),
            *_if_released(question),
        )
        return Refusal(str(claim), request.name, "", text, helps)

    return None


def _state(tables: SearchTables, number: int) -> str:
    """Return what there is for one way to serve a request."""
    way = tables.ways[number]
    request = f"{way.name} asks for {way.count} of class {way.device_class.name}"
    if way.subrequest.allocation_mode == ALL:
        request = f"{way.name} asks for all devices"

    if not tables.devices:
        broken = []
        for pool in tables.pools:
            if pool.invalid:
                broken.append(f"{pool} is invalid")
            elif pool.is_incomplete:
                broken.append(f"{pool} is incomplete")

        why = f" ({', '.join(broken)})" if broken else ""
        return f"{request}: the node reaches no devices{why}"

    counts = dict.fromkeys(_STATES, 0)
    for index in range(len(tables.devices)):
        counts[_device_state(tables, number, index)] += 1

    listed = ", ".join(
        f"{count} {state}" for state, count in counts.items() if count or state == _FREE
    )
    return f"{request}; of {len(tables.devices)} devices: {listed}"


def _device_state(tables: SearchTables, number: int, index: int) -> str:
    """Return what a device is for a way: one of `_STATES`."""
    way = tables.ways[number]
    if tables.taken[index] and not way.is_admin:
        return _HELD
    if tables.matches[number][index] != 1:
        return _TOO_SMALL if tables.amounts[number][index] is None else _NO_MATCH

    is_short = any(amount > tables.counters[counter] for counter, amount in tables.uses[index])
    if tables.blocked[number][index] or is_short:
        return _BLOCKED

    return _FREE


def _constraint(question: Question, claim: Claim, before: tuple[Claim, ...]) -> Refusal | None:
    """Return a refusal where the claim would be served without one constraint."""
    for number, constraint in enumerate(claim.constraints):
        others = claim.constraints[:number] + claim.constraints[number + 1 :]
        if not _works(question, claims=(*before, changed(claim, constraints=others))):
            continue

        name = _attribute_of(constraint)
        kind = "matchAttribute" if constraint.match_attribute else "distinctAttribute"
        tables = SearchTables(replace(question, claims=(*before, claim)))
        text = (
            f"without the constraint {kind} {name} there would be devices; "
            f"{_values(tables, claim, constraint)}"
        )
        helps = (
            f"leave out {kind} {name}",
            *_fewer(question, claim, before),
            *_if_released(question),
        )
        return Refusal(str(claim), "", f"{kind} {name}", text, helps)

    return None


def _attribute_of(constraint: Constraint) -> str:
    return constraint.match_attribute or constraint.distinct_attribute or ""


def _values(tables: SearchTables, claim: Claim, constraint: Constraint) -> str:
    """Return how many free devices each request has by value of the constraint's attribute."""
    number = max(
        place
        for place, (owner, claim_constraint) in enumerate(tables.constraints)
        if tables.claims[owner] is claim and claim_constraint is constraint
    )
    masks = tables.values[number]
    lines = []
    for bit in range(max(masks, default=0).bit_length()):
        counts = []
        for place, way in enumerate(tables.ways):
            if tables.covers[number][place]:
                free = sum(
                    mask >> bit & tables.is_free(place, index) for index, mask in enumerate(masks)
                )
                counts.append(f"{way.name} {free} of {way.count}")

        example = next(index for index, mask in enumerate(masks) if mask >> bit & 1)
        lines.append(f"{_value_text(tables, number, example, bit)}: {', '.join(counts)}")

    missing = sum(not mask for mask in masks)
    lacking = f"; {missing} devices lack it" if missing else ""
    if not lines:
        return f"no device has it{lacking}"

    listed = "; ".join(lines[:_MOST_SHOWN])
    if len(lines) > _MOST_SHOWN:
        listed += f", and {len(lines) - _MOST_SHOWN} more values"

    note = ""
    if _has_lists_of_numa_nodes(tables, constraint):
        note = "; a list has, of a socket, only the NUMA nodes at the least distance"

    return f"free by value: {listed}{lacking}{note}"


def _has_lists_of_numa_nodes(tables: SearchTables, constraint: Constraint) -> bool:
    """Return whether a constraint is about lists of NUMA nodes.

    Source: `deviceattribute/numa_linux.go` of `k8s.io/dynamic-resource-allocation` 0.37.
    """
    if constraint.match_attribute != STANDARD_NUMA_NODE:
        return False

    values = (
        attribute_of(candidate.device, candidate.id.driver, STANDARD_NUMA_NODE)
        for candidate in tables.devices
    )
    return any(value is not None and value.is_list for value in values)


def _value_text(tables: SearchTables, number: int, index: int, bit: int) -> str:
    """Return the value that a bit stands for, as far as a device tells."""
    _, constraint = tables.constraints[number]
    candidate = tables.devices[index]
    value = attribute_of(candidate.device, candidate.id.driver, _attribute_of(constraint))
    if value is None or value.is_list:
        return tables.value_names[number][bit]

    return str(value.values[0])


def _tolerations(
    question: Question, claim: Claim, request: Request, before: tuple[Claim, ...]
) -> tuple[str, ...]:
    """Return whether it would help to tolerate the taints of devices."""
    tolerations = (Toleration(operator="Exists"),)
    tolerant = all_ways(request, partial(changed, tolerations=tolerations))
    alone = changed(claim, requests=(tolerant,), constraints=())
    if not _works(question, claims=(*before, alone)):
        return ()

    return ("tolerate the taints of the devices",)


def all_ways(request: Request, change: Callable[[Subrequest], Subrequest]) -> Request:
    """Return a request with each way to serve it changed."""
    exactly = None if request.exactly is None else change(request.exactly)
    alternatives = tuple(change(subrequest) for subrequest in request.first_available)
    return changed(request, exactly=exactly, first_available=alternatives)


def _fewer(question: Question, claim: Claim, before: tuple[Claim, ...]) -> tuple[str, ...]:
    """Return the largest smaller count of one request with which the claim would be served."""
    for place, request in enumerate(claim.requests):
        exactly = request.exactly
        if exactly is None or exactly.allocation_mode == ALL:
            continue

        for count in range(min(exactly.device_count, MOST_RESULTS) - 1, 0, -1):
            fewer = all_ways(request, partial(changed, count=count))
            requests = (*claim.requests[:place], fewer, *claim.requests[place + 1 :])
            if _works(question, claims=(*before, changed(claim, requests=requests))):
                return (f"ask for {count} in request {request.name}",)

    return ()


def _if_released(question: Question) -> tuple[str, ...]:
    """Return whether it would help if other claims gave back what they hold."""
    if not (question.used.devices or question.used.shared):
        return ()
    if not _works(question, used=InUse()):
        return ()

    return ("wait until other claims release devices",)
