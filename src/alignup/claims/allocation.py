"""Allocates devices to the claims of a pod on a node, as the scheduler does.

The tables of a question are searched, and what is found becomes the allocations of the claims.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace as changed

from alignup.claims.objects import Allocated, Amount, Claim, NodeSelector, Requirement, Term
from alignup.claims.question import MOST_STEPS, AllocationError
from alignup.claims.search_tables import SearchTables
from alignup.core.claims.search import search

if TYPE_CHECKING:
    from collections.abc import Iterable

    from alignup.claims.question import Question
    from alignup.claims.selector_answers import Candidate


def allocate(question: Question) -> tuple[Claim, ...] | None:
    """Return what the scheduler allocates to a pod's claims on a node; None: it cannot.

    Args:
        question: with the claims.

    Raises:
        AllocationError: the scheduler would fail, for this node or for the pod; or the bound was
            hit; or a selector was not understood.
        InputError: as `SearchTables`.
    """
    tables = SearchTables(question)
    return results_of(tables, question.node.name, solve(tables))


def solve(tables: SearchTables, most_steps: int = MOST_STEPS) -> list[tuple[int, int]] | None:
    """Return ways and devices in order; None: there is no solution.

    Args:
        tables: of the question.
        most_steps: the bound of the search, beside that of all that is asked for the question.

    Raises:
        AllocationError: as in `allocate`.
    """
    solutions = []
    problem: AllocationError | None = None
    for choice in tables.choices():
        try:
            pairs = _solved(choice, most_steps)
        except AllocationError as error:
            problem = problem or error
        else:
            if pairs is not None:
                solutions.append(pairs)

    if solutions:
        return min(solutions)
    if problem is not None:
        raise problem
    if any(pool.invalid for pool in tables.pools):
        raise AllocationError("invalid resource pools were encountered", "node")

    return None


def _solved(tables: SearchTables, most_steps: int) -> list[tuple[int, int]] | None:
    """Return ways and devices in order; None: there is no solution.

    Raises:
        AllocationError: as in `allocate`.
    """
    most_steps = max(0, min(most_steps, tables.effort.steps))
    outcome, pairs, steps = search(tables, most_steps=most_steps)
    tables.effort.steps -= steps
    if outcome == "found":
        return pairs
    if outcome == "error":
        raise tables.errors[pairs[0][0]]
    if outcome == "constraint":
        way = tables.ways[pairs[0][0]]
        candidate = tables.devices[pairs[0][1]]
        problem = f"cannot add device {candidate.id} because a claim constraint would not"
        raise AllocationError(f"{way.where}: {problem} be satisfied")

    if outcome == "limit":
        raise AllocationError(f"the search was given up after {most_steps} steps", "timeout")

    return None


def results_of(
    tables: SearchTables, node: str, pairs: list[tuple[int, int]] | None
) -> tuple[Claim, ...] | None:
    """Return the claims with their devices in the scheduler's order, and the nodes to use them."""
    if pairs is None:
        return None

    devices: list[list[Allocated]] = [[] for _ in tables.claims]
    candidates: list[list[Candidate]] = [[] for _ in tables.claims]
    for number, index in pairs:
        claim = tables.ways[number].claim
        devices[claim].append(_allocated(tables, number, index))
        candidates[claim].append(tables.devices[index])

    return tuple(
        changed(
            claim, allocated=tuple(claim_devices), allocated_nodes=_nodes(claim_candidates, node)
        )
        for claim, claim_devices, claim_candidates in zip(
            tables.claims, devices, candidates, strict=True
        )
    )


def _allocated(tables: SearchTables, number: int, index: int) -> Allocated:
    """Return a device as the result of a way."""
    way = tables.ways[number]
    candidate = tables.devices[index]
    share: str | None = None
    capacity: dict[str, Amount] | None = None
    if tables.is_shareable[index]:
        share = str(candidate.id)
        amounts = tables.amounts[number][index] or {}
        capacity = {name: Amount(amount) for name, amount in amounts.items()} or None

    conditions: tuple[str, ...] = ()
    if tables.gates.binding_conditions:
        conditions = candidate.device.binding_conditions or ()

    return Allocated(*candidate.id, way.name, way.is_admin, share, capacity, conditions)


def _nodes(candidates: list[Candidate], node: str) -> NodeSelector | None:
    """Return which nodes can use the devices of a claim; None: all.

    Source: `createNodeSelector`.
    """
    expressions: dict[object, Requirement] = {}
    fields: dict[object, Requirement] = {}
    for candidate in candidates:
        owner = candidate.device if candidate.slice.per_device_node_selection else candidate.slice
        if owner.node_name or candidate.device.binds_to_node:
            name = Requirement("metadata.name", "In", (node,))
            return NodeSelector((Term(match_fields=(name,)),))

        selector: NodeSelector | None = owner.node_selector
        if selector is not None and selector.node_selector_terms:
            term = selector.node_selector_terms[0]
            _add(fields, term.match_fields)
            _add(expressions, term.match_expressions)

    if not expressions and not fields:
        return None

    return NodeSelector((Term(tuple(expressions.values()), tuple(fields.values())),))


def _add(requirements: dict[object, Requirement], further: Iterable[Requirement]) -> None:
    """Add requirements to those that are there, each once."""
    for requirement in further:
        key = (requirement.key, requirement.operator, frozenset(requirement.values))
        requirements.setdefault(key, requirement)
