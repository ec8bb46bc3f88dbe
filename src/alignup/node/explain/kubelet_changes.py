"""Finds changes to the kubelet's configuration under which a pod would be admitted, and what alignment they cost.

Each is tried on a new node of the same machine and devices, to which the present pods are admitted in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES
from alignup.kubernetes.pod_requests import is_pinned_memory
from alignup.kubernetes.policy_options import set_options
from alignup.node.explain.explanation import Suggestion
from alignup.node.explain.missed import numa_nodes_of, places_in_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from alignup.node.explain.attempts import Attempts
    from alignup.node.holdings import Holdings
    from alignup.topology_manager.admission import Admission

Option = tuple[float, Suggestion]
"""How much alignment it costs, from 0 to 1, and the suggestion."""

MOST_FOUND: Final = 2
COSTS: Final = {"single-numa-node": 0.0, "restricted": 0.2, "best-effort": 0.5, "none": 0.8}
NOT_PREFERRED: Final = 0.3


def options(attempts: Attempts, holdings: Holdings, blamed: Sequence[str]) -> Iterator[Option]:
    """Yield configurations under which the pod would be admitted, those that cost least alignment first.

    Args:
        attempts: the node and the pod.
        holdings: what there is on the node.
        blamed: the resources to blame for the refusal.
    """
    found = 0
    for cost, fields, name in sorted(_candidates(attempts, blamed), key=lambda one: one[0]):
        admission = attempts.with_kubelet(fields)
        if admission is None or (attempts.aims_higher and not _is_gain(admission, holdings)):
            continue
        lost, words = _alignment(admission, holdings)
        yield (cost + lost, Suggestion("kubelet", f"configure the kubelet with {name}: {words}", {"kubelet": fields}))
        found += 1
        if found == MOST_FOUND:
            return


def _candidates(attempts: Attempts, blamed: Sequence[str]) -> Iterator[tuple[float, dict[str, Any], str]]:
    """Yield what may be tried: what alignment it costs, the fields, and their names in words."""
    config = attempts.node.config
    policy = config.topology_manager_policy
    if policy == "none":
        if attempts.aims_higher:
            fields = {"topologyManagerPolicy": "best-effort", "topologyManagerPolicyOptions": None}
            yield 0.0, fields, "topologyManagerPolicy best-effort"
    else:
        scope = "pod" if config.topology_manager_scope == "container" else "container"
        yield 0.05, {"topologyManagerScope": scope}, f"topologyManagerScope {scope}"
    for weaker in TOPOLOGY_POLICIES[: TOPOLOGY_POLICIES.index(policy)]:
        yield COSTS[weaker], {"topologyManagerPolicy": weaker}, f"topologyManagerPolicy {weaker}"
    set_cpu = set_options(config.cpu_manager_policy_options)
    if "cpu" in blamed:
        for option in set_cpu:
            rest = {name: value for name, value in set_cpu.items() if name != option}
            yield 0.1, {"cpuManagerPolicyOptions": rest or None}, f"cpuManagerPolicyOptions without {option}"
    if attempts.node.memory is not None and any(map(is_pinned_memory, blamed)):
        yield 0.4, {"memoryManagerPolicy": "None"}, "memoryManagerPolicy None, which pins no memory"


def _is_gain(admission: Admission, holdings: Holdings) -> bool:
    """Return whether anything of the pod would be aligned to NUMA nodes."""
    return any(numa_nodes_of(holdings, got) for got in admission.containers.values())


def more_pods(attempts: Attempts, count: int) -> Iterator[Suggestion]:
    """Yield the number of pods that a kubelet would have to take."""
    fields = {"maxPods": count, "podsPerCore": None}
    if attempts.with_kubelet(fields) is not None:
        yield Suggestion("kubelet", f"configure the kubelet with maxPods {count}", {"kubelet": fields})


def _alignment(admission: Admission, holdings: Holdings) -> tuple[float, str]:
    """Return what alignment an admission has lost, as a number and in words."""
    where = places_in_words(holdings, admission.containers)
    placed = f"it would run {where}" if where else "it would be admitted"
    hints = [got.affinity for got in admission.containers.values()]
    if not where or all(hint is None for hint in hints):
        return 0.0, f"{placed}, with nothing aligned"
    if all(hint is not None and hint.preferred for hint in hints):
        return 0.0, f"{placed}, where every resource prefers to be"
    return NOT_PREFERRED, f"{placed}, where not every resource prefers to be"
