"""Allocates devices to the claims of one pod on one node, as the scheduler does."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace as changed

from alignup.claims.objects import Allocated, Amount, Claim, NodeSelector, Requirement, Term
from alignup.claims.problem import AllocationError, Candidate, Problem, Question
from alignup.core.claims.search import search

MOST_STEPS: Final = 20_000_000
"""The bound of one search, in steps: some seconds."""


def allocate(question: Question, most_steps: int = MOST_STEPS) -> tuple[Claim, ...] | None:
    """Return what the scheduler allocates to a pod's claims on a node; None: they cannot be allocated there.

    Args:
        question: with the claims.
        most_steps: the bound of the search.

    Raises:
        AllocationError: the scheduler would fail, for this node or for the pod; or the bound was hit; or a selector was
            not understood.
        InputError: there are more claims than a pod may have, or amounts that cannot be compared.
    """
    problem = Problem(question)
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


def results_of(problem: Problem, node: str, pairs: list[tuple[int, int]] | None) -> tuple[Claim, ...] | None:
    """Return the claims with their devices in the scheduler's order, and the nodes that can use these."""
    if pairs is None:
        return None
    found: list[list[Allocated]] = [[] for _ in problem.claims]
    candidates: list[list[Candidate]] = [[] for _ in problem.claims]
    for number, index in pairs:
        way, candidate = problem.ways[number], problem.devices[index]
        is_shared = problem.is_shareable[index]
        amounts = (problem.amounts[number][index] or {}) if is_shared else {}
        candidates[way.claim].append(candidate)
        found[way.claim].append(
            Allocated(
                *candidate.id,
                way.name,
                way.is_admin,
                str(candidate.id) if is_shared else None,
                {name: Amount(amount) for name, amount in amounts.items()} or None,
                (candidate.device.binding_conditions or ()) if problem.gates.binding_conditions else (),
            )
        )
    return tuple(
        changed(claim, allocated=tuple(devices), allocated_nodes=_nodes(chosen, node))
        for claim, devices, chosen in zip(problem.claims, found, candidates, strict=True)
    )


def _nodes(chosen: list[Candidate], node: str) -> NodeSelector | None:
    """Return which nodes can use the devices of a claim; None: all. Source: `createNodeSelector`."""
    expressions: dict[object, Requirement] = {}
    fields: dict[object, Requirement] = {}
    for candidate in chosen:
        owner = candidate.device if candidate.slice.per_device_node_selection else candidate.slice
        if owner.node_name or candidate.device.binds_to_node:
            return NodeSelector((Term(match_fields=(Requirement("metadata.name", "In", (node,)),)),))
        selector: NodeSelector | None = owner.node_selector
        for term in selector.node_selector_terms[:1] if selector is not None else ():
            for listed, known in ((term.match_fields, fields), (term.match_expressions, expressions)):
                for one in listed:
                    known.setdefault((one.key, one.operator, frozenset(one.values)), one)
    if not expressions and not fields:
        return None
    return NodeSelector((Term(tuple(expressions.values()), tuple(fields.values())),))
