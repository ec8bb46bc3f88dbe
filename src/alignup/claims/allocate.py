"""Allocates devices to the claims of one pod on one node, as the scheduler does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.claims.objects import NodeSelector, Requirement
from alignup.claims.problem import AllocationError, Candidate, Problem, Question, make_problem
from alignup.core.claims.search import search
from alignup.records import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alignup.claims.pools import DeviceId

MOST_STEPS: Final = 20_000_000
"""The bound of one search, in steps: some seconds."""


class DeviceResult(Record):
    """A device that a claim gets."""

    request: str
    """`request` or `request/alternative`."""
    id: DeviceId
    is_shared: bool = False
    admin_access: bool = False
    consumed_capacity: Mapping[str, int] | None = None
    """In billionths."""
    binding_conditions: tuple[str, ...] = ()


class ClaimResult(Record):
    """The devices of one claim, in the scheduler's order."""

    claim: str
    devices: tuple[DeviceResult, ...]
    node_terms: tuple[tuple[Requirement, ...], tuple[Requirement, ...]] | None
    """Expressions and fields that a node must satisfy to use them; None: every node can."""


def allocate(question: Question, most_steps: int = MOST_STEPS) -> tuple[ClaimResult, ...] | None:
    """Return what the scheduler allocates to a pod's claims on a node; None: they cannot be allocated there.

    Args:
        question: with the claims.
        most_steps: the bound of the search.

    Raises:
        AllocationError: the scheduler would fail, for this node or for the pod; or the bound was hit; or a selector was
            not understood.
        InputError: there are more claims than a pod may have, or amounts that cannot be compared.
    """
    problem = make_problem(question)
    return results_of(problem, question.node.name, solve(problem, most_steps))


def solve(problem: Problem, most_steps: int = MOST_STEPS, *, prune: bool = True) -> list[tuple[int, int]] | None:
    """Return ways and devices in order; None: there is no solution.

    Raises:
        AllocationError: as in `allocate`.
    """
    outcome, pairs, _ = search(problem, prune=prune, most_steps=most_steps)
    if outcome == "found":
        return pairs
    if outcome == "error":
        raise problem.errors[pairs[0][0]]
    if outcome == "constraint":
        way, device = pairs[0]
        raise problem.reason_of(problem.ways[way], device)
    if outcome == "limit":
        raise AllocationError(f"the search was given up after {most_steps} steps", "timeout")
    if any(pool.invalid for pool in problem.pools):
        raise AllocationError("invalid resource pools were encountered", "node")
    return None


def results_of(problem: Problem, node: str, pairs: list[tuple[int, int]] | None) -> tuple[ClaimResult, ...] | None:
    """Return the results of claims in the API's terms."""
    if pairs is None:
        return None
    found: list[list[DeviceResult]] = [[] for _ in problem.claims]
    candidates: list[list[Candidate]] = [[] for _ in problem.claims]
    for number, index in pairs:
        way, candidate = problem.ways[number], problem.devices[index]
        is_shared = problem.is_shareable[index]
        candidates[way.claim].append(candidate)
        found[way.claim].append(
            DeviceResult(
                way.name,
                candidate.id,
                is_shared,
                way.is_admin,
                (problem.amounts[number][index] or None) if is_shared else None,
                (candidate.device.binding_conditions or ()) if problem.gates.binding_conditions else (),
            )
        )
    return tuple(
        ClaimResult(str(claim), tuple(devices), _node_terms(chosen, node))
        for claim, devices, chosen in zip(problem.claims, found, candidates, strict=True)
    )


def _node_terms(chosen: list[Candidate], node: str) -> tuple[tuple[Requirement, ...], tuple[Requirement, ...]] | None:
    """Return which nodes can use the devices of a claim; source: `createNodeSelector`."""
    expressions: list[Requirement] = []
    fields: list[Requirement] = []
    for candidate in chosen:
        owner = candidate.device if candidate.slice.per_device_node_selection else candidate.slice
        if owner.node_name or candidate.device.binds_to_node:
            return (), (Requirement("metadata.name", "In", (node,)),)
        selector: NodeSelector | None = owner.node_selector
        for term in selector.node_selector_terms[:1] if selector is not None else ():
            _add(term.match_fields, fields)
            _add(term.match_expressions, expressions)
    return (tuple(expressions), tuple(fields)) if expressions or fields else None


def _add(requirements: tuple[Requirement, ...], known: list[Requirement]) -> None:
    for one in requirements:
        if not any(
            (one.key, one.operator, set(one.values)) == (other.key, other.operator, set(other.values))
            for other in known
        ):
            known.append(one)
