"""Collects the changes that would help, each of which was tried, the best first."""

from __future__ import annotations

from itertools import chain, islice, product
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from alignup.explanations.attempts import Attempts, gates_left
from alignup.explanations.cause import (
    MOST_SHOWN,
    cpu_nodes_of,
    numa_nodes_of,
    places_in_words,
    spare_caches,
)
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
from alignup.explanations.words import STRICT
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES
from alignup.kubernetes.pod import is_pinned_memory
from alignup.kubernetes.policy_options import set_options
from alignup.kubernetes.versions import KNOWN_VERSIONS
from alignup.machine.bits import union
from alignup.machine.cpuset import CPUSet
from alignup.node.faults import known_faults
from alignup.providers.cpu.provider import reserved_by
from alignup.records import replace
from alignup.text.counting import some_of
from alignup.topology_manager.refusal_account import MemoryAccount

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from alignup.explanations.cause import Cause
    from alignup.explanations.trial import Trial
    from alignup.kubernetes.kubelet_config import KubeletConfig
    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.versions import KubeletVersion
    from alignup.machine.machine import Machine
    from alignup.node.faults import Fault
    from alignup.node.holdings import Holdings
    from alignup.node.node import Node
    from alignup.providers.cpu.provider import CpuProvider
    from alignup.topology_manager.admission import Admission, ContainerAllocation

# How much is given up, from 0 to 1, and the suggestion.
Option = tuple[float, Suggestion]

MOST_SUGGESTIONS: Final = 5

MOST_FOUND: Final = 2
# Pods whose memory holds a NUMA node, of which the removal is tried.
MOST_TYING: Final = 16
# NUMA nodes to which the reserved CPUs may be moved.
MOST_RESERVATIONS: Final = 4


COSTS: Final = {"single-numa-node": 0.0, "restricted": 0.2, "best-effort": 0.5, "none": 0.8}
NOT_PREFERRED: Final = 0.3

# An update is more than a restart, and less than what gives up most of the alignment.
UPDATE_COST: Final = 0.45

# What a release does in place of a known fault.
_MENDED: Final = {
    "does not answer": "which answers",
    "panics": "which does not panic",
    "gives CPUs twice": "which gives no CPUs twice",
    "gives fewer CPUs": "which gives as many CPUs as are asked for",
}


class _Candidate(NamedTuple):
    """A configuration of the kubelet that may be tried.

    Attributes:
        cost: the alignment that it costs, from 0 to 1.
        name: what it sets, in words.
        stale: the manager whose state file is in the way; empty: none.
    """

    cost: float
    fields: dict[str, Any]
    name: str
    stale: str = ""


def suggestions_for(
    node: Node,
    trial: Trial,
    causes: Sequence[Cause],
    blamed: Sequence[str],
    manifest: Mapping[str, Any] | None,
) -> tuple[Suggestion, ...]:
    """Return what would help, the best first, each confirmed by trying it.

    The node stays as it is. For a refused pod these are changes under which it would be admitted;
    for one that missed a better placement, changes under which every container gets what it
    prefers, or CPUs of its own.

    Args:
        node: the node.
        trial: what the pod came upon there.
        causes: those that are told.
        blamed: the resources to blame for a refusal.
        manifest: the pod's manifest, if there is one.
    """
    attempts = _attempts(node, trial, manifest)
    if trial.admission:
        options = _for_admitted(attempts, trial, causes)
    else:
        options = _for_refused(attempts, trial, causes, blamed)

    updates = _updates(attempts, trial)
    best_first = sorted(chain(options, updates), key=lambda option: option[0])
    return tuple(suggestion for _, suggestion in best_first[:MOST_SUGGESTIONS])


def kinds_tried(node: Node, trial: Trial, manifest: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return which kinds of changes `suggestions_for` tries for a refused pod, in words."""
    attempts = _attempts(node, trial, manifest)
    kinds = []
    if attempts.manifest:
        kinds.append("smaller requests")
    if attempts.is_copy and trial.others:
        kinds.append("fewer pods")

    is_of_managers = attempts.is_copy and trial.limits is None
    if is_of_managers and not has_users_providers(attempts.node, but_claims=True):
        kinds.append("other settings of the kubelet")

    return tuple(kinds)


def _attempts(node: Node, trial: Trial, manifest: Mapping[str, Any] | None) -> Attempts:
    """Return the node and the pod to try changes on."""
    try:
        subject = node.copy()
        is_copy = True
        if subject.memory is not None:
            subject.memory.says_why = False
    except TypeError:  # a user's provider has no copy()
        subject = node
        is_copy = False

    return Attempts(
        subject,
        trial.pod,
        manifest_of(trial.pod, manifest) or {},
        is_copy,
        must_be_preferred=trial.admission.admitted,
    )


def _for_admitted(attempts: Attempts, trial: Trial, causes: Sequence[Cause]) -> Iterator[Option]:
    """Yield changes under which every container gets what it prefers, or CPUs of its own."""
    yield from _for_missed(attempts, trial, causes)
    allocations = trial.allocations
    reserved = int(trial.before.reserved_cpus)
    if any(reserved & int(allocation.cpus or 0) for allocation in allocations.values()):
        for cost, suggestion in kubelet_changes(attempts, trial.before, ("cpu",)):
            if "reservedSystemCPUs" in suggestion.attempt["kubelet"]:
                yield cost, suggestion

    if not attempts.manifest:
        return

    if spread := _nodes_of(trial.before, allocations):
        for suggestion, admission in shared_container(attempts):
            if _nodes_of(trial.before, admission.containers) < spread:
                yield 0.1, suggestion
                break

    for suggestion in chain(_in_one_cache(attempts, trial), pinned_shape(attempts)):
        yield 0.0, suggestion


def _for_missed(attempts: Attempts, trial: Trial, causes: Sequence[Cause]) -> Iterator[Option]:
    """Yield changes under which containers get what they prefer, or memory where their CPUs are.

    After it, attempts need not be preferred.
    """
    changes: list[Option] = []
    if not all(map(_is_preferred, trial.allocations.values())):
        changes += _for_refused(attempts, trial, causes, ())

    attempts.must_be_preferred = False
    if not any(suggestion.kind == "remove" for _, suggestion in changes):
        changes += _memory_with_cpus(attempts, trial)

    yield from changes


def _memory_with_cpus(attempts: Attempts, trial: Trial) -> Iterator[Option]:
    """Yield the pod without which memory lies on all NUMA nodes of the CPUs, and not on some.

    It is one whose own memory keeps the others of these NUMA nodes to itself.
    """
    holdings = trial.before
    apart = {name for name in trial.allocations if _is_apart(holdings, trial.allocations[name])}
    if not apart or not attempts.is_copy:
        return

    cpu_nodes = set().union(*(cpu_nodes_of(holdings, trial.allocations[name]) for name in apart))
    names = {
        name
        for group in holdings.memory_groups
        if cpu_nodes.intersection(group.numa_nodes)
        for name in group.pods
    }
    tying = [pod for pod in attempts.node.pods if pod.namespaced_name in names]
    for pod in tying[:MOST_TYING]:
        admission = attempts.without([pod.uid])
        if admission is None:
            continue
        if any(_is_apart(holdings, admission.containers[name]) for name in apart):
            continue

        places = places_in_words(holdings, {name: admission.containers[name] for name in apart})
        text = (
            f"remove pod {pod.namespaced_name}, whose memory keeps a NUMA node to itself: memory "
            f"and CPUs would both be {places}"
        )
        yield 0.3, Suggestion("remove", text, {"remove": [pod.uid]}, minimal=True)
        return


def _is_apart(holdings: Holdings, allocation: ContainerAllocation) -> bool:
    """Return whether a container's memory lies on some only of the NUMA nodes of its CPUs."""
    memory_nodes = {numa_id for block in allocation.memory for numa_id in block.numa_nodes}
    return bool(memory_nodes) and memory_nodes < cpu_nodes_of(holdings, allocation)


def _is_preferred(allocation: ContainerAllocation) -> bool:
    """Return whether a container gets what it prefers."""
    return allocation.affinity is not None and allocation.affinity.preferred


def _in_one_cache(attempts: Attempts, trial: Trial) -> Iterator[Suggestion]:
    """Yield a few CPUs more for a container, with which its CPUs are in no needless L3 caches."""
    for container in trial.pod.all_containers:
        name = container.name
        allocation = trial.allocations.get(name)
        if allocation is None or not spare_caches(trial.l3_groups, allocation):
            continue

        request = container.exclusive_cpus
        for count in range(request + 1, request + trial.cpus_per_core + 1):
            manifest = changed(attempts.manifest, {(name, "cpu"): count})
            admission = attempts.with_pod(manifest)
            if admission and not spare_caches(trial.l3_groups, admission.containers[name]):
                text = (
                    f"ask for {count} cpu instead of {request} in container {name!r}, which "
                    "share caches"
                )
                yield Suggestion("pod", text, {"pod": manifest})
                break


def _nodes_of(holdings: Holdings, containers: Mapping[str, ContainerAllocation]) -> set[int]:
    """Return the ids of the NUMA nodes that a pod lies in."""
    return set().union(*(numa_nodes_of(holdings, allocation) for allocation in containers.values()))


def _for_refused(
    attempts: Attempts, trial: Trial, causes: Sequence[Cause], blamed: Sequence[str]
) -> Iterator[Option]:
    """Yield changes, each with a number: the lower, the less is given up."""
    is_of_node = trial.limits is not None
    if attempts.manifest and is_of_node:
        for lost, suggestion in node_reductions(attempts, blamed):
            yield 0.2 + 0.6 * lost, suggestion
    elif attempts.manifest:
        yield from _pod_changes(attempts, trial, causes, blamed)

    accounts = trial.questions[-1].accounts.values() if trial.questions else ()
    tying = {
        name
        for account in accounts
        if isinstance(account, MemoryAccount)
        for _, names in account.ties()
        for name in names
    }
    removed = removal(attempts, trial.before, blamed, as_whole=is_of_node, tying=tying)
    if removed is not None:
        yield 0.35 + min(0.4, 0.05 * len(removed.attempt["remove"])), removed

    if is_of_node:
        if "pods" in blamed:
            yield from _more_pods(attempts, len(trial.others) + 1)
        return

    for suggestion in _plugin_changes(attempts, trial.before):
        yield 0.9, suggestion

    if not has_users_providers(attempts.node, but_claims=True):
        changes = kubelet_changes(attempts, trial.before, blamed)
        for lost, suggestion in islice(changes, MOST_FOUND):
            # those that hold as the node is go first
            drain_cost = 1 if suggestion.after == "drain" else 0
            yield 0.15 + 0.6 * lost + drain_cost, suggestion


def _updates(attempts: Attempts, trial: Trial) -> Iterator[Option]:
    """Yield the next release of the kubelet that helps, where the one in use is the cause.

    It is where it has a known fault that the pod comes upon, or where the pod would be admitted, or
    aligned better, on the next release, and not after a restart alone.
    """
    config = attempts.node.config
    releases = [version for version in KNOWN_VERSIONS if version > config.version]
    if not releases or not attempts.is_copy or has_users_providers(attempts.node, but_claims=True):
        return

    faults = known_faults(attempts.node, trial.pod)
    has_all = trial.policy.name == "none" or all(map(_is_preferred, trial.allocations.values()))
    if not faults and ((trial.admission and has_all) or trial.limits is not None):
        return

    attempts.must_be_preferred = bool(trial.admission) and not faults
    for version in releases:
        is_drained = False
        updated = attempts.on_release(version)
        if updated is None:  # not all pods stay
            is_drained = True
            updated = attempts.on_release(version, drained=True)

        admission = None if updated is None else attempts.on(updated)
        if updated is None or admission is None:
            continue
        if known_faults(updated, attempts.pod_on(updated)):
            continue

        if not faults:
            restarted = attempts.on_release(config.version, drained=is_drained)
            if restarted is not None and attempts.on(restarted):
                return  # the release is not the cause

        lost, outcome = _alignment(admission, trial.before)
        suggestion = _update(config, version, faults, outcome, is_drained=is_drained)
        yield UPDATE_COST + lost / 2 + is_drained, suggestion
        return


def _update(
    config: KubeletConfig,
    version: KubeletVersion,
    faults: Sequence[Fault],
    outcome: str,
    *,
    is_drained: bool,
) -> Suggestion:
    """Return the suggestion of another release of the kubelet.

    Args:
        config: of the kubelet in use.
        version: the release.
        faults: what the pod comes upon in the release in use.
        outcome: what becomes of the pod, in words.
        is_drained: the node has to be drained before.
    """
    remaining = gates_left(config, version)
    unknown = sorted(config.feature_gates.keys() - remaining.keys())
    attempt: dict[str, Any] = {"kubeletVersion": str(version)}
    text = f"update the kubelet to {version.title}"
    if unknown:
        attempt["kubelet"] = {"featureGates": remaining}
        text += f" without the feature gate{'s' * (len(unknown) > 1)} {', '.join(unknown)}"

    text += "".join(f", {_MENDED[does]}" for does in dict.fromkeys(fault.does for fault in faults))
    text = f"{text}: {outcome}"
    after = "restart"
    if is_drained:
        text = f"after draining the node: {text}"
        after = "drain"

    return Suggestion("update", text, attempt, after=after)


def _pod_changes(
    attempts: Attempts, trial: Trial, causes: Sequence[Cause], blamed: Sequence[str]
) -> Iterator[Option]:
    """Yield changes to the pod under which its managers would admit it."""
    refusal = trial.admission.refusal
    container = refusal.container if refusal else None
    yield from shapes(attempts, container)
    if "cpu" in blamed:
        for suggestion, _ in islice(shared_container(attempts), 1):
            yield 0.25, suggestion

    resources = blamed or tuple(
        dict.fromkeys(name for asking in trial.pod.all_containers for name in asked_by(asking))
    )
    for lost, suggestion in reductions(attempts, causes, resources, container):
        yield 0.2 + 0.6 * lost, suggestion


def _more_pods(attempts: Attempts, count: int) -> Iterator[Option]:
    """Yield the configuration that lets the node run so many pods."""
    fields: dict[str, Any] = {"maxPods": count, "podsPerCore": None}
    if attempts.with_kubelet(fields) is not None:
        text = f"configure the kubelet with maxPods {count}"
        yield 0.1, Suggestion("kubelet", text, {"kubelet": fields}, after="restart")


def _plugin_changes(attempts: Attempts, holdings: Holdings) -> Iterator[Suggestion]:
    """Yield the resource whose plugin would do better to report no NUMA nodes."""
    for resource, _ in attempts.pod.devices:
        admission = attempts.without_topology(resource)
        if admission is None:
            continue

        without_devices = {}
        for name, allocation in admission.containers.items():
            devices = {key: ids for key, ids in allocation.devices.items() if key != resource}
            without_devices[name] = replace(allocation, devices=devices)

        places = places_in_words(holdings, without_devices) or "anywhere"
        text = (
            f"let the device plugin of {resource} report no NUMA nodes (excludeTopology): it "
            f"would run {places}, with {resource} from anywhere"
        )
        yield Suggestion("plugin", text, {"excludeTopology": [resource]})
        return


def kubelet_changes(
    attempts: Attempts, holdings: Holdings, blamed: Sequence[str]
) -> Iterator[Option]:
    """Yield configurations under which the pod would be admitted.

    Those that cost the least alignment come first. Those that hold after a restart of the kubelet,
    on its state files, come before those that need a drain.

    Args:
        attempts: the node and the pod.
        holdings: what there is on the node.
        blamed: the resources to blame for the refusal.
    """
    candidates = sorted(_candidates(attempts, blamed), key=lambda candidate: candidate.cost)
    suggested: set[str] = set()
    for after, candidate in product(("restart", "drain"), candidates):
        is_drained = after == "drain"
        if candidate.name in suggested or (candidate.stale and not is_drained):
            continue

        admission = attempts.with_kubelet(candidate.fields, drained=is_drained)
        if admission is None:
            continue
        if attempts.must_be_preferred and not _nodes_of(holdings, admission.containers):
            continue  # nothing of the pod would be aligned

        suggested.add(candidate.name)
        lost, outcome = _alignment(admission, holdings)
        text = f"configure the kubelet with {candidate.name}: {outcome}"
        if is_drained and candidate.stale:
            state_file = f"/var/lib/kubelet/{candidate.stale}_manager_state"
            text = f"after draining the node and deleting {state_file}: {text}"
        elif is_drained:
            text = f"after draining the node: {text}"

        suggestion = Suggestion("kubelet", text, {"kubelet": candidate.fields}, after=after)
        yield candidate.cost + lost, suggestion


def reservations_near_claims(node: Node, pod: Pod) -> Iterator[str]:
    """Yield reservations with which the pod's CPUs and the devices of its claims are aligned.

    Each was tried. Those that hold after a restart of the kubelet come before those that need a
    drain.

    Args:
        node: the node, which stays as it is.
        pod: the pod, which is not there yet.
    """
    if node.cpu is None or not pod.exclusive_cpus or has_users_providers(node, but_claims=True):
        return

    attempts = Attempts(node.copy(), node.read(pod), {}, is_copy=True)
    stale = STRICT in set_options(node.config.cpu_manager_policy_options)
    for is_drained in (False, True):
        if stale and not is_drained:
            continue

        for cpus in islice(_reservations_elsewhere(node), MOST_RESERVATIONS):
            if attempts.meets_claims({"reservedSystemCPUs": str(cpus)}, drained=is_drained):
                text = f"configure the kubelet with other CPUs reserved: reservedSystemCPUs {cpus}"
                yield f"after draining the node: {text}" if is_drained else text
                return


def _candidates(attempts: Attempts, blamed: Sequence[str]) -> Iterator[_Candidate]:
    """Yield the configurations that may be tried."""
    node = attempts.node
    config = node.config
    policy = config.topology_manager_policy
    if policy != "none" and len(attempts.pod.all_containers) > 1:
        scope = "pod" if config.topology_manager_scope == "container" else "container"
        yield _Candidate(0.05, {"topologyManagerScope": scope}, f"topologyManagerScope {scope}")

    if len(node.machine.numa_nodes) > 1:  # on a single one all policies decide alike
        if policy == "none" and attempts.must_be_preferred:
            fields = {"topologyManagerPolicy": "best-effort", "topologyManagerPolicyOptions": None}
            yield _Candidate(0.0, fields, "topologyManagerPolicy best-effort")

        for weaker in TOPOLOGY_POLICIES[: TOPOLOGY_POLICIES.index(policy)]:
            yield _Candidate(
                COSTS[weaker], {"topologyManagerPolicy": weaker}, f"topologyManagerPolicy {weaker}"
            )

    if "cpu" in blamed:
        yield from _cpu_candidates(node)

    if node.memory is not None and any(map(is_pinned_memory, blamed)):
        yield _Candidate(
            0.4,
            {"memoryManagerPolicy": "None"},
            "memoryManagerPolicy None, which pins no memory",
            stale="memory",
        )


def _cpu_candidates(node: Node) -> Iterator[_Candidate]:
    """Yield the configurations of the CPU manager that may be tried."""
    options = set_options(node.config.cpu_manager_policy_options)
    for option in options:
        others = {name: value for name, value in options.items() if name != option}
        yield _Candidate(
            0.1,
            {"cpuManagerPolicyOptions": others or None},
            f"cpuManagerPolicyOptions without {option}",
            stale="cpu" if option == STRICT else "",
        )

    if node.cpu is None:
        return

    for cpus in islice(_reservations_elsewhere(node), MOST_RESERVATIONS):
        yield _Candidate(
            0.3,
            {"reservedSystemCPUs": str(cpus)},
            f"other CPUs reserved: reservedSystemCPUs {cpus}",
            stale="cpu" if STRICT in options else "",
        )

    if cores := _whole_cores(node.machine, node.cpu):
        yield _Candidate(
            0.0,
            {"reservedSystemCPUs": str(cores)},
            f"whole cores reserved: reservedSystemCPUs {cores}",
            stale="cpu" if STRICT in options else "",
        )


def _reservations_elsewhere(node: Node) -> Iterator[CPUSet]:
    """Yield as many CPUs as are reserved, of the first cores of each NUMA node.

    Those that are reserved already are left out.
    """
    reserved = reserved_by(node.config, node.machine)
    count = reserved.bit_count()
    for numa_node in node.machine.numa_nodes:
        cpus = 0
        for core in numa_node.cores:
            if cpus.bit_count() < count:
                cpus |= core.bits

        if cpus.bit_count() == count and cpus != reserved:
            yield CPUSet.from_int(cpus)


def _whole_cores(machine: Machine, manager: CpuProvider) -> CPUSet | None:
    """Return whole cores to reserve in place of parts, on each NUMA node as many.

    None: no core is split.
    """
    capacity = manager.ledger.capacity
    if not capacity.reserved_cores & capacity.allocatable:
        return None

    reserved = 0
    for node in machine.numa_nodes:
        cores = [core.bits for core in node.cores if core.bits & capacity.reserved_cores]
        cores.sort(key=lambda bits: (bits & capacity.allocatable).bit_count())  # whole ones stay
        count = sum((bits & ~capacity.allocatable).bit_count() for bits in cores)
        reserved |= union(cores[: -(-count // capacity.topology.cpus_per_core)])

    return CPUSet.from_int(reserved)


def _alignment(admission: Admission, holdings: Holdings) -> tuple[float, str]:
    """Return what alignment an admission has lost, as a number and in words."""
    places = places_in_words(holdings, admission.containers)
    placed = f"it would run {places}" if places else "it would be admitted"
    allocations = admission.containers
    if not places or all(allocation.affinity is None for allocation in allocations.values()):
        return 0.0, f"{placed}, with nothing aligned"

    misaligned = [name for name, allocation in allocations.items() if not _is_preferred(allocation)]
    if not misaligned:
        return 0.0, f"{placed}, fully aligned"

    subject = f"with {some_of(misaligned, MOST_SHOWN)} " if len(allocations) > 1 else ""
    return NOT_PREFERRED, f"{placed}, {subject}misaligned"
