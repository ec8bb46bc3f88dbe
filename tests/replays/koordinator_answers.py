"""Answers Koordinator conformance cases.

A case as decoded JSON in, the answer in the shape of `expect` out.

`merge_case` is about the merging of hints, `filter_case` about the whole way of a pod past a node.
Nothing is decided here, but in `alignup.koordinator.merging` and `alignup.koordinator.scheduling`.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import InputError
from alignup.koordinator.effective import (
    BEST_EFFORT,
    NUMA_TOPOLOGY_SPEC,
    RESTRICTED,
    SINGLE_NUMA_NODE,
    Occupancy,
)
from alignup.koordinator.merging import ScoredHint, merge
from alignup.koordinator.scheduling import (
    Demand,
    Exclusivity,
    NodeView,
    PlacedPod,
    Profile,
    SchedulerProfile,
    evaluate,
    make_profile,
)
from alignup.machine.cpuset import CPUSet
from inputs.koordinator_cases import FilterCase, HintCase, MergeCase, PodOnNode, decoded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.koordinator.effective import Status

__all__ = ["filter_case", "merge_case"]

_MEBIBYTE: Final = 1 << 20


KUBELET_POLICIES = {
    "BestEffort": BEST_EFFORT,
    "Restricted": RESTRICTED,
    "SingleNUMANodePodLevel": SINGLE_NUMA_NODE,
}
"""The entries of a reported kubelet policy list that count.

Koordinator's scheduler ignores all others.
"""


def _occupancy(states: Sequence[str]) -> Occupancy:
    """Return the occupancy that Koordinator's words, one a NUMA node, describe."""
    for position, name in enumerate(states):
        if name not in ("idle", "single", "shared"):
            raise InputError.at(
                f"node_states[{position}]", "one of 'idle', 'single', 'shared'", name
            )
    single, multi = (
        sum(1 << i for i, state in enumerate(states) if state == word)
        for word in ("single", "shared")
    )
    return Occupancy(single, multi)


def _state(occupancy: Occupancy, position: int) -> str:
    """Return Koordinator's word for the pods in a NUMA node.

    Where both kinds of pods are, `shared` wins.
    """
    if occupancy.multi >> position & 1:
        return "shared"
    if occupancy.single >> position & 1:
        return "single"
    return "idle"


def merge_case(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to one case of `merge.jsonl.gz`, which is about the profile `scheduler`.

    Args:
        case: `policy`, `numa_nodes` (ids), `exclusive`, `node_states` (by node id), and
            `providers`: each null, {} or {resource: null | list of hints}; a hint is {`nodes` (ids
            or null), `preferred`, `unsatisfied`, `score`}.

    Returns:
        {`admit`, `hint`: {`nodes`, `preferred`, `unsatisfied`, `score`}, `reasons` (sorted),
        `status`}.

    Raises:
        InputError: The case is not of this shape, or the policy or a node state is unknown.
    """
    merge_request = decoded(case, MergeCase)
    all_nodes = _mask(merge_request.numa_nodes)
    if all_nodes.bit_length() > len(merge_request.node_states):
        expected = f"a state for each NUMA node id up to {all_nodes.bit_length() - 1}"
        raise InputError.at("node_states", expected, list(merge_request.node_states))

    exclusivity = Exclusivity(merge_request.exclusive, _occupancy(merge_request.node_states))
    providers = [None if hints is None else _scored(hints) for hints in merge_request.providers]
    profile = SchedulerProfile()
    merged = merge(
        merge_request.policy, providers, all_nodes, lambda mask: profile.violates(mask, exclusivity)
    )
    status = "Unschedulable"
    if merged.admitted:
        status = "Success"

    return {
        "admit": merged.admitted,
        "hint": _hint_json(merged.hint),
        "reasons": list(merged.reasons),
        "status": status if merge_request.policy else "-",
    }


def filter_case(case: Mapping[str, Any], profile: str = "scheduler") -> dict[str, Any]:
    """Return the answer to one case of `filter.jsonl.gz` or `matrix.jsonl.gz`.

    Args:
        case: `node_label`, `kubelet_policies`, `numa` (list of {`cpus`, `memory_mib`}), `pods` on
            the node ({`cpuset`, `numa`: list of {`node`, `cpu_milli`, `memory_mib`}}, and for the
            document's profile `numa_spec`), `released` (indexes of pods that are gone), `pod`
            ({`numa_spec`: text of the annotation or null, `cpu_milli`, `memory_mib`}).
        profile: `scheduler` or `document`.

    Returns:
        {`node_states`, `effective_policy`, `prefilter`, `filter` and `reserve` ({`code`, `reasons`}
        or null), `hints`, `affinity_after_filter`, `affinity`, `allocation`}.

    Raises:
        InputError: The case is not of this shape, there is no such profile, or the effective policy
            is one that does not exist (Koordinator's scheduler crashes on it).
    """
    rules = make_profile(profile)
    filter_request = decoded(case, FilterCase)
    present = [
        pod for index, pod in enumerate(filter_request.pods) if index not in filter_request.released
    ]
    occupancy = reduce(
        or_, (rules.holds(_placed(pod, filter_request, rules)) for pod in present), Occupancy()
    )

    reported = (
        KUBELET_POLICIES[name]
        for name in filter_request.kubelet_policies
        if name in KUBELET_POLICIES
    )
    policy = filter_request.node_label or next(reported, "")
    node = NodeView(policy, len(filter_request.numa), occupancy)
    annotations = (
        {}
        if filter_request.pod.numa_spec is None
        else {NUMA_TOPOLOGY_SPEC: filter_request.pod.numa_spec}
    )
    verdict = evaluate(annotations, _demands(filter_request, present), node, rules)

    return {
        "node_states": [
            _state(occupancy, position) for position in range(len(filter_request.numa))
        ],
        "effective_policy": verdict.policy,
        "prefilter": _status_json(verdict.prefilter),
        "filter": _status_json(verdict.filter),
        "reserve": _status_json(verdict.reserve),
        "hints": {
            resource: [_hint_json(hint) for hint in hints]
            for resource, hints in verdict.hints.items()
        },
        "affinity_after_filter": _hint_json(
            None if verdict.policy == BEST_EFFORT else verdict.affinity
        ),
        "affinity": _hint_json(verdict.affinity),
        "allocation": [
            {
                "node": node_id,
                "cpu_milli": amounts.get("cpu", 0),
                "memory_bytes": amounts.get("memory", 0),
            }
            for node_id, amounts in verdict.allocation.items()
        ],
    }


def _scored(hints: Mapping[str, tuple[HintCase, ...] | None]) -> dict[str, list[ScoredHint] | None]:
    return {
        resource: None if offered is None else [_scored_hint(hint) for hint in offered]
        for resource, offered in hints.items()
    }


def _scored_hint(hint: HintCase) -> ScoredHint:
    mask = None
    if hint.nodes is not None:
        mask = _mask(hint.nodes)

    return ScoredHint(mask, hint.preferred, hint.unsatisfied, hint.score)


def _placed(pod: PodOnNode, case: FilterCase, rules: Profile) -> PlacedPod:
    """Return a pod on the node, by the NUMA nodes it is in."""
    cpus = int(CPUSet.parse(pod.cpuset, "cpuset"))
    cpu_nodes = first = 0
    for position, numa in enumerate(case.numa):
        if cpus >> first & (1 << numa.cpus) - 1:
            cpu_nodes |= 1 << position
        first += numa.cpus
    annotations = {}
    if pod.numa_spec is not None:
        annotations = {NUMA_TOPOLOGY_SPEC: pod.numa_spec}

    used = _mask(tuple(used.node for used in pod.numa))
    return PlacedPod(cpu_nodes, used | cpu_nodes, rules.spec(annotations).policy)


def _demands(case: FilterCase, present: list[PodOnNode]) -> tuple[Demand, Demand]:
    """Return CPU in thousandths and memory in bytes.

    Capacity, what is free, and the new pod's request.
    """
    cpu_free = [numa.cpus * 1000 for numa in case.numa]
    memory_free = [numa.memory_mib * _MEBIBYTE for numa in case.numa]
    cpu_capacity, memory_capacity = tuple(cpu_free), tuple(memory_free)
    for used in (used for pod in present for used in pod.numa):
        if used.node >= len(case.numa):
            raise InputError.at("pods[].numa[].node", f"a node below {len(case.numa)}", used.node)
        cpu_free[used.node] -= used.cpu_milli
        memory_free[used.node] -= used.memory_mib * _MEBIBYTE

    return (
        Demand("cpu", cpu_capacity, _not_below_zero(cpu_free), case.pod.cpu_milli),
        Demand(
            "memory", memory_capacity, _not_below_zero(memory_free), case.pod.memory_mib * _MEBIBYTE
        ),
    )


def _not_below_zero(amounts: list[int]) -> tuple[int, ...]:
    return tuple(max(0, amount) for amount in amounts)


def _mask(nodes: tuple[int, ...]) -> int:
    return reduce(or_, (1 << node for node in nodes), 0)


def _hint_json(hint: ScoredHint | None) -> dict[str, Any] | None:
    if hint is None:
        return None
    mask = hint.mask
    nodes = None
    if mask is not None:
        nodes = [bit for bit in range(mask.bit_length()) if mask >> bit & 1]

    return {
        "nodes": nodes,
        "preferred": hint.preferred,
        "unsatisfied": hint.unsatisfied,
        "score": hint.score,
    }


def _status_json(status: Status | None) -> dict[str, Any] | None:
    if status is None:
        return None
    return {"code": status.code.value, "reasons": list(status.reasons)}
