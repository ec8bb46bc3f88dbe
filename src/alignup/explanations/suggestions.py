"""Collects the changes that would help, each of which was tried, the best first."""

from __future__ import annotations

from itertools import islice, product
from typing import TYPE_CHECKING, Any, Final

from alignup.explanations.attempts import Attempts
from alignup.explanations.cause import MOST_SHOWN, numa_nodes_of, places_in_words, spare_caches
from alignup.explanations.explanation import Suggestion
from alignup.explanations.manifests import asked_by, changed, manifest_of
from alignup.explanations.pod_changes import (
    node_reductions,
    pinned_shape,
    reductions,
    shapes,
    shared_container,
)
from alignup.explanations.removals import removal
from alignup.explanations.trial import has_users_providers
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES
from alignup.kubernetes.pod import is_pinned_memory
from alignup.kubernetes.policy_options import set_options
from alignup.machine.bits import union
from alignup.machine.cpuset import CPUSet
from alignup.records import replace
from alignup.text.counting import some_of
from alignup.topology_manager.refusal_account import MemoryAccount

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from alignup.explanations.cause import Cause
    from alignup.explanations.trial import Trial
    from alignup.machine.machine import Machine
    from alignup.node.holdings import Holdings
    from alignup.node.node import Node
    from alignup.providers.cpu.provider import CpuProvider
    from alignup.topology_manager.admission import Admission, ContainerAllocation

# How much is given up, from 0 to 1, and the suggestion.
Option = tuple[float, Suggestion]

MOST_SUGGESTIONS: Final = 5

MOST_FOUND: Final = 2

# Of the CPU manager: its state file leaves out the reserved CPUs then, and no kubelet starts on it
# once these change.
STRICT: Final = "strict-cpu-reservation"

COSTS: Final = {"single-numa-node": 0.0, "restricted": 0.2, "best-effort": 0.5, "none": 0.8}
NOT_PREFERRED: Final = 0.3


def suggestions_for(
    node: Node,
    trial: Trial,
    causes: Sequence[Cause],
    blamed: Sequence[str],
    manifest: Mapping[str, Any] | None,
) -> tuple[Suggestion, ...]:
    """Return what would help, the best first, each confirmed by trying it; the node stays as it is.

    For a refused pod these are changes under which it would be admitted; for one that missed a
    better placement, changes under which every container gets what it prefers, or CPUs of its own.

    Args:
        node: the node.
        trial: what the pod came upon there.
        causes: those that are told.
        blamed: the resources to blame for a refusal.
        manifest: the pod's manifest, if there is one.
    """
    attempts = _attempts(node, trial, manifest)
    found = (
        _for_admitted(attempts, trial, causes)
        if trial.admission
        else _for_refused(attempts, trial, causes, blamed)
    )
    return tuple(one for _, one in sorted(found, key=lambda one: one[0])[:MOST_SUGGESTIONS])


def _attempts(node: Node, trial: Trial, manifest: Mapping[str, Any] | None) -> Attempts:
    """Return the node and the pod to try changes on."""
    try:
        subject, is_copy = node.copy(), True
        if subject.memory is not None:
            subject.memory.says_why = False
    except TypeError:  # a user's provider has no copy()
        subject, is_copy = node, False
    written = manifest_of(trial.pod, manifest) or {}
    return Attempts(
        subject, trial.pod, written, is_copy, must_be_preferred=trial.admission.admitted
    )


def _for_admitted(attempts: Attempts, trial: Trial, causes: Sequence[Cause]) -> Iterator[Option]:
    """Yield changes under which every container gets what it prefers, or CPUs of its own."""
    if not all(got.affinity is not None and got.affinity.preferred for got in trial.got.values()):
        yield from _for_refused(attempts, trial, causes, ())

    attempts.must_be_preferred = False
    if any(int(trial.before.reserved_cpus) & int(got.cpus or 0) for got in trial.got.values()):
        for cost, one in kubelet_changes(attempts, trial.before, ("cpu",)):
            if "reservedSystemCPUs" in one.attempt["kubelet"]:
                yield cost, one

    if attempts.manifest and (spread := _nodes_of(trial.before, trial.got)):
        for one, admission in shared_container(attempts):
            if _nodes_of(trial.before, admission.containers) < spread:
                yield 0.1, one
                break

    if attempts.manifest:
        yield from ((0.0, one) for one in _in_one_cache(attempts, trial))
        yield from ((0.0, one) for one in pinned_shape(attempts))


def _in_one_cache(attempts: Attempts, trial: Trial) -> Iterator[Suggestion]:
    """Yield a few CPUs more for a container whose CPUs are in more L3 caches than they need, and then are not."""
    for one in trial.pod.all_containers:
        if one.name not in trial.got or not spare_caches(trial.l3_groups, trial.got[one.name]):
            continue
        own = one.exclusive_cpus
        for count in range(own + 1, own + trial.cpus_per_core + 1):
            manifest = changed(attempts.manifest, {(one.name, "cpu"): count})
            admission = attempts.with_pod(manifest)
            if admission and not spare_caches(trial.l3_groups, admission.containers[one.name]):
                text = (
                    f"ask for {count} cpu instead of {own} in container {one.name!r}, which "
                    "share caches"
                )
                yield Suggestion("pod", text, {"pod": manifest})
                break


def _nodes_of(holdings: Holdings, containers: Mapping[str, ContainerAllocation]) -> set[int]:
    """Return the ids of the NUMA nodes that a pod lies in."""
    return set().union(*(numa_nodes_of(holdings, got) for got in containers.values()))


def _for_refused(
    attempts: Attempts, trial: Trial, causes: Sequence[Cause], blamed: Sequence[str]
) -> Iterator[Option]:
    """Yield changes, each with a number: the lower, the less is given up."""
    refusal, whole = trial.admission.refusal, trial.limits is not None
    if attempts.manifest and whole:
        yield from ((0.2 + 0.6 * lost, one) for lost, one in node_reductions(attempts, blamed))
    elif attempts.manifest:
        container = refusal.container if refusal else None
        yield from shapes(attempts, container)
        if "cpu" in blamed:
            yield from ((0.25, one) for one, _ in islice(shared_container(attempts), 1))
        resources = blamed or tuple(
            dict.fromkeys(name for one in trial.pod.all_containers for name in asked_by(one))
        )
        yield from (
            (0.2 + 0.6 * lost, one)
            for lost, one in reductions(attempts, causes, resources, container)
        )

    accounts = trial.questions[-1].accounts.values() if trial.questions else ()
    ties = [tie for one in accounts if isinstance(one, MemoryAccount) for tie in one.ties()]
    tying = {name for _, names in ties for name in names}
    removed = removal(attempts, trial.before, blamed, as_whole=whole, tying=tying)
    if removed is not None:
        yield 0.35 + min(0.4, 0.05 * len(removed.attempt["remove"])), removed

    if not whole:
        yield from ((0.9, one) for one in _plugin_changes(attempts, trial.before))

    if whole and "pods" in blamed:
        fields: dict[str, Any] = {"maxPods": len(trial.others) + 1, "podsPerCore": None}
        if attempts.with_kubelet(fields) is not None:
            text = f"configure the kubelet with maxPods {fields['maxPods']}"
            yield 0.1, Suggestion("kubelet", text, {"kubelet": fields}, after="restart")
    elif not whole and not has_users_providers(attempts.node):
        changes = islice(kubelet_changes(attempts, trial.before, blamed), MOST_FOUND)
        # those that hold as the node is go first
        yield from ((0.15 + 0.6 * lost + (one.after == "drain"), one) for lost, one in changes)


def _plugin_changes(attempts: Attempts, holdings: Holdings) -> Iterator[Suggestion]:
    """Yield the resource whose plugin would do better to report no NUMA nodes."""
    for resource, _ in attempts.pod.devices:
        admission = attempts.without_topology(resource)
        if admission is not None:
            others = {
                name: replace(
                    got, devices={one: ids for one, ids in got.devices.items() if one != resource}
                )
                for name, got in admission.containers.items()
            }
            where = places_in_words(holdings, others)
            text = (
                f"let the device plugin of {resource} report no NUMA nodes (excludeTopology): it "
                "would run "
                f"{where or 'anywhere'}, with {resource} from anywhere"
            )
            yield Suggestion("plugin", text, {"excludeTopology": [resource]})
            return


def kubelet_changes(
    attempts: Attempts, holdings: Holdings, blamed: Sequence[str]
) -> Iterator[Option]:
    """Yield configurations under which the pod would be admitted, those that cost least alignment first.

    Those that hold after a restart of the kubelet, on its state files, come before those that need
    a drain.

    Args:
        attempts: the node and the pod.
        holdings: what there is on the node.
        blamed: the resources to blame for the refusal.
    """
    candidates = sorted(_candidates(attempts, blamed), key=lambda one: one[0])
    found: set[str] = set()
    for after, (cost, fields, name, stale) in product(("restart", "drain"), candidates):
        if name in found or (stale and after == "restart"):
            continue
        admission = attempts.with_kubelet(fields, drained=after == "drain")
        if admission is None:
            continue
        if attempts.must_be_preferred and not any(
            numa_nodes_of(holdings, got) for got in admission.containers.values()
        ):
            continue  # nothing of the pod would be aligned

        found.add(name)
        lost, words = _alignment(admission, holdings)
        deleted = f" and deleting /var/lib/kubelet/{stale}_manager_state" if stale else ""
        first = f"after draining the node{deleted}: " if after == "drain" else ""
        text = f"{first}configure the kubelet with {name}: {words}"
        yield cost + lost, Suggestion("kubelet", text, {"kubelet": fields}, after=after)


def _candidates(
    attempts: Attempts, blamed: Sequence[str]
) -> Iterator[tuple[float, dict[str, Any], str, str]]:
    """Yield what may be tried: what alignment it costs, the fields, their names, and whose state file is in the way."""
    config = attempts.node.config
    policy = config.topology_manager_policy
    if policy != "none" and len(attempts.pod.all_containers) > 1:
        scope = "pod" if config.topology_manager_scope == "container" else "container"
        yield 0.05, {"topologyManagerScope": scope}, f"topologyManagerScope {scope}", ""

    if len(attempts.node.machine.numa_nodes) > 1:  # on a single one all policies decide alike
        if policy == "none" and attempts.must_be_preferred:
            fields = {"topologyManagerPolicy": "best-effort", "topologyManagerPolicyOptions": None}
            yield 0.0, fields, "topologyManagerPolicy best-effort", ""

        for weaker in TOPOLOGY_POLICIES[: TOPOLOGY_POLICIES.index(policy)]:
            yield (
                COSTS[weaker],
                {"topologyManagerPolicy": weaker},
                f"topologyManagerPolicy {weaker}",
                "",
            )

    set_cpu = set_options(config.cpu_manager_policy_options)
    if "cpu" in blamed:
        for option in set_cpu:
            rest = {name: value for name, value in set_cpu.items() if name != option}
            stale = "cpu" if option == STRICT else ""
            yield (
                0.1,
                {"cpuManagerPolicyOptions": rest or None},
                f"cpuManagerPolicyOptions without {option}",
                stale,
            )

        if attempts.node.cpu is not None and (
            whole := _whole_cores(attempts.node.machine, attempts.node.cpu)
        ):
            stale = "cpu" if STRICT in set_cpu else ""
            yield (
                0.0,
                {"reservedSystemCPUs": f"{whole}"},
                f"whole cores reserved: reservedSystemCPUs {whole}",
                stale,
            )

    if attempts.node.memory is not None and any(map(is_pinned_memory, blamed)):
        yield (
            0.4,
            {"memoryManagerPolicy": "None"},
            "memoryManagerPolicy None, which pins no memory",
            "memory",
        )


def _whole_cores(machine: Machine, manager: CpuProvider) -> CPUSet | None:
    """Return whole cores to reserve in place of parts, on each NUMA node as many; None: no core is split."""
    capacity, found = manager.ledger.capacity, 0
    for node in machine.numa_nodes:
        cores = [core.bits for core in node.cores if core.bits & capacity.reserved_cores]
        cores.sort(key=lambda one: (one & capacity.allocatable).bit_count())  # whole ones stay
        count = sum((one & ~capacity.allocatable).bit_count() for one in cores)
        found |= union(cores[: -(-count // capacity.topology.cpus_per_core)])
    return CPUSet.from_int(found) if capacity.reserved_cores & capacity.allocatable else None


def _alignment(admission: Admission, holdings: Holdings) -> tuple[float, str]:
    """Return what alignment an admission has lost, as a number and in words."""
    where = places_in_words(holdings, admission.containers)
    placed = f"it would run {where}" if where else "it would be admitted"
    hints = [got.affinity for got in admission.containers.values()]
    if not where or all(hint is None for hint in hints):
        return 0.0, f"{placed}, with nothing aligned"
    if all(hint is not None and hint.preferred for hint in hints):
        return 0.0, f"{placed}, fully aligned"

    worse = [
        name
        for name, got in admission.containers.items()
        if not (got.affinity and got.affinity.preferred)
    ]
    which = f"with {some_of(worse, MOST_SHOWN)} " if len(admission.containers) > 1 else ""
    return NOT_PREFERRED, f"{placed}, {which}misaligned"
