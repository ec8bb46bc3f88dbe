"""Says why claims cannot be allocated: which request, which constraint, what was free, and what would help.

The scheduler says "cannot allocate all claims" only. Here the question is asked again with less in
it: one request alone, a claim without one constraint, the claims before. Every suggestion was
tried.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec.structs import replace as changed

from alignup.claims.objects import ALL, Claim, Constraint, Request, Subrequest, Toleration
from alignup.claims.problem import AllocationError, InUse, Problem, Question, attribute_of, solve
from alignup.records import Record, replace

# The bound of each question that is asked again.
_STEPS: Final = 2_000_000
_MOST_SHOWN: Final = 6


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
        return f"claim {self.claim}" + (f", request {self.request}" if self.request else "")


def _works(question: Question, **changes: Any) -> bool:
    """Return whether devices can be allocated if some of a question is otherwise."""
    try:
        return solve(Problem(replace(question, **changes)), _STEPS) is not None
    except AllocationError:
        return False


def why_not(question: Question) -> Refusal:
    """Return why the claims cannot be allocated.

    Args:
        question: one whose answer is that they cannot.
    """
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
        return Refusal(
            str(claim), "", "", text, (*_fewer(question, claim, before), *_if_released(question))
        )

    return Refusal("", "", "", "the search was given up before all was tried", ())


def _request(question: Question, claim: Claim, before: tuple[Claim, ...]) -> Refusal | None:
    """Return a refusal where one request cannot be served alone."""
    for request in claim.requests:
        alone = changed(claim, requests=(request,), constraints=())
        if _works(question, claims=(*before, alone)):
            continue
        if before and _works(question, claims=(alone,)):
            text = f"earlier claims of the pod take what it asks for: {', '.join(map(str, before))}"
            return Refusal(str(claim), request.name, "", text, _if_released(question))

        problem = Problem(replace(question, claims=(alone,)))
        text = "; ".join(_state(problem, way) for way in range(len(problem.ways)))
        helps = (
            *_tolerations(question, claim, request, before),
            *_fewer(question, alone, before),
            *_if_released(question),
        )
        return Refusal(str(claim), request.name, "", text, helps)

    return None


def _state(problem: Problem, number: int) -> str:
    """Return what there is for one way to serve a request."""
    way = problem.ways[number]
    asks = (
        "all devices"
        if way.wanted.allocation_mode == ALL
        else f"{way.count} of class {way.device_class.name}"
    )
    if not problem.devices:
        broken = [pool for pool in problem.pools if pool.invalid or pool.is_incomplete]
        listed = ", ".join(
            f"{pool} is {'invalid' if pool.invalid else 'incomplete'}" for pool in broken
        )
        why = f" ({listed})" if broken else ""
        return f"{way.name} asks for {asks}: the node reaches no devices{why}"

    counts = dict.fromkeys(
        ("free", "in use", "tainted or out of counters", "without the capacity", "not matching"), 0
    )
    for index in range(len(problem.devices)):
        is_short = any(amount > problem.counters[one] for one, amount in problem.uses[index])
        if problem.taken[index] and not way.is_admin:
            counts["in use"] += 1
        elif problem.matches[number][index] != 1:
            lacks = problem.amounts[number][index] is None
            counts["without the capacity" if lacks else "not matching"] += 1
        elif problem.blocked[number][index] or is_short:
            counts["tainted or out of counters"] += 1
        else:
            counts["free"] += 1

    told = ", ".join(f"{count} {what}" for what, count in counts.items() if count or what == "free")
    return f"{way.name} asks for {asks}; of {len(problem.devices)} devices: {told}"


def _constraint(question: Question, claim: Claim, before: tuple[Claim, ...]) -> Refusal | None:
    """Return a refusal where the claim would be served without one constraint."""
    for number, constraint in enumerate(claim.constraints):
        others = claim.constraints[:number] + claim.constraints[number + 1 :]
        if not _works(question, claims=(*before, changed(claim, constraints=others))):
            continue
        name = constraint.match_attribute or constraint.distinct_attribute or ""
        kind = "matchAttribute" if constraint.match_attribute else "distinctAttribute"
        problem = Problem(replace(question, claims=(*before, claim)))
        text = (
            f"without the constraint {kind} {name} there would be devices; "
            f"{_values(problem, claim, constraint)}"
        )
        helps = (
            f"leave out {kind} {name}",
            *_fewer(question, claim, before),
            *_if_released(question),
        )
        return Refusal(str(claim), "", f"{kind} {name}", text, helps)

    return None


def _values(problem: Problem, claim: Claim, constraint: Constraint) -> str:
    """Return how many free devices each request has by value of the constraint's attribute."""
    known = [
        (problem.claims[owner] is claim, one is constraint) for owner, one in problem.constraints
    ]
    number = max(place for place, same in enumerate(known) if all(same))
    masks = problem.values[number]
    told = []
    for bit in range(max(masks, default=0).bit_length()):
        counts = []
        for place, way in enumerate(problem.ways):
            if not problem.covers[number][place]:
                continue
            free = sum(
                mask >> bit & problem.is_free(place, index) for index, mask in enumerate(masks)
            )
            counts.append(f"{way.name} {free} of {way.count}")

        example = next(index for index, mask in enumerate(masks) if mask >> bit & 1)
        told.append(f"{_shown(problem, number, example, bit)}: {', '.join(counts)}")

    missing = sum(not mask for mask in masks)
    more = f", and {len(told) - _MOST_SHOWN} more values" if len(told) > _MOST_SHOWN else ""
    lacking = f"; {missing} devices lack it" if missing else ""
    return (
        "free by value: " + "; ".join(told[:_MOST_SHOWN]) + more + lacking
        if told
        else f"no device has it{lacking}"
    )


def _shown(problem: Problem, number: int, index: int, bit: int) -> str:
    """Return the value that a bit stands for, as far as a device tells."""
    constraint, candidate = problem.constraints[number][1], problem.devices[index]
    name = constraint.match_attribute or constraint.distinct_attribute or ""
    value = attribute_of(candidate.device, candidate.id.driver, name)
    return f"value {bit + 1}" if value is None or value.is_list else str(value.values[0])


def _tolerations(
    question: Question, claim: Claim, request: Request, before: tuple[Claim, ...]
) -> tuple[str, ...]:
    """Return whether it would help to tolerate the taints of devices."""
    tolerant = all_ways(
        request, lambda one: changed(one, tolerations=(Toleration(operator="Exists"),))
    )
    alone = changed(claim, requests=(tolerant,), constraints=())
    return (
        ("tolerate the taints of the devices",) if _works(question, claims=(*before, alone)) else ()
    )


def all_ways(request: Request, change: Callable[[Subrequest], Subrequest]) -> Request:
    """Return a request with each way to serve it changed."""
    exactly = None if request.exactly is None else change(request.exactly)
    return changed(
        request,
        exactly=exactly,
        first_available=tuple(change(one) for one in request.first_available),
    )


def _fewer(question: Question, claim: Claim, before: tuple[Claim, ...]) -> tuple[str, ...]:
    """Return the largest smaller count of one request with which the claim would be served."""
    for place, request in enumerate(claim.requests):
        wanted = request.exactly
        if wanted is None or wanted.allocation_mode == ALL:
            continue
        for count in range(min(wanted.wanted, 32) - 1, 0, -1):
            fewer = all_ways(request, partial(changed, count=count))
            requests = (*claim.requests[:place], fewer, *claim.requests[place + 1 :])
            if _works(question, claims=(*before, changed(claim, requests=requests))):
                return (f"ask for {count} in request {request.name}",)
    return ()


def _if_released(question: Question) -> tuple[str, ...]:
    """Return whether it would help if other claims gave back what they hold."""
    if not (question.used.devices or question.used.shared):
        return ()
    return ("wait until other claims release devices",) if _works(question, used=InUse()) else ()
