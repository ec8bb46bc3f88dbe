"""Finds the known faults of kubelets that an admission comes upon.

There may be no answer, a panic, CPUs that are given twice, or too few of them. Which release has
which is in the files of `alignup.kubernetes.releases`; a node itself answers as if there were none.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING, Final

from alignup.kubernetes.pod import Container, Pod, is_pinned_memory
from alignup.kubernetes.versions import release_of
from alignup.providers.cpu.provider import CpuProvider
from alignup.records import Record
from alignup.topology_manager.hints import HintList, TopologyHint
from alignup.topology_manager.provider import HintProvider, RecordingProvider

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from alignup.node.node import Node
    from alignup.topology_manager.provider import ResourceHints

# A walk over all sets of more NUMA nodes takes minutes, and twice as long with each more.
MOST_WALKED: Final = 20
# A kubelet merges two to four and a half million combinations of hints a second: with more it can
# take over a minute.
MOST_MERGED: Final = 130_000_000


class Fault(Record):
    """A fault of a kubelet.

    Attributes:
        does: `does not answer`, `panics`, `gives CPUs twice`, or `gives fewer CPUs`.
        text: what it comes upon.
    """

    does: str
    text: str


def known_faults(node: Node, pod: Pod) -> tuple[Fault, ...]:
    """Return the known faults that the node's kubelet comes upon when it admits a pod.

    The node stays as it is.

    Raises:
        PodExistsError: a pod of this uid is admitted already.
    """
    faults_of_release = release_of(node.config.version).faults
    faults = dict(_of_node(node, pod))
    merges = node.manager.policy.name in ("best-effort", "restricted")
    may_merge_long = merges and _most_combinations(node, pod) > MOST_MERGED
    has_exclusive_cpus = node.cpu is not None and any(
        container.exclusive_cpus for container in pod.all_containers
    )
    if may_merge_long or has_exclusive_cpus:
        recorders = _tried(node, pod, faults)
        if merges:
            faults |= _merge_fault(node, pod, recorders)

    return tuple(fault for name, fault in faults.items() if name in faults_of_release)


def _most_combinations(node: Node, pod: Pod) -> int:
    """Return how many combinations of hints there are if each list has a hint for each mask."""
    list_count = len(pod.devices) + len(pod.memory) + bool(pod.exclusive_cpus)
    return (1 << len(node.machine.numa_nodes) * list_count) * len(pod.all_containers)


def _tried(node: Node, pod: Pod, faults: dict[str, Fault]) -> list[RecordingProvider]:
    """Try an admission, add the faults of the CPU manager, and return what the providers offer."""
    recorders: list[RecordingProvider] = []
    wrap = partial(_watched, faults=faults, recorders=recorders)
    with node.manager.lock.guard() as guard, guard.take(), node.scratch(wrap) as scratch:
        scratch.whole_verdict = False
        if scratch.admit(pod):
            scratch.remove(pod.uid)

    return recorders


def _of_node(node: Node, pod: Pod) -> Iterator[tuple[str, Fault]]:
    """Yield by name the faults that follow from the node and the requests alone."""
    ids = node.machine.numa_node_ids
    options = node.config.topology_manager_policy_options
    if node.manager.policy.name != "none":
        pools = node.pools
        aligned_resources = [
            name
            for name, _ in pod.devices
            if name in pools and pools[name].ledger.inventory.is_aligned
        ]
        if aligned_resources and len(ids) > MOST_WALKED:
            text = (
                f"it walks all 2^{len(ids)} sets of NUMA nodes for the hints of "
                f"{aligned_resources[0]}"
            )
            yield "walks_all_masks", Fault("does not answer", text)

        if options.prefer_closest_numa_nodes and ids[-1] >= len(ids):
            text = (
                "prefer-closest-numa-nodes takes ids of NUMA nodes "
                f"({', '.join(map(str, ids))}) for places"
            )
            yield "panics_on_sparse_ids", Fault("panics", text)

    memory_types = node.machine.memory_by_type
    missing_types = [
        kind
        for kind, amount in pod.memory
        if amount and is_pinned_memory(kind) and kind not in memory_types
    ]
    if node.memory is not None and missing_types:
        text = f"{missing_types[0]} is requested, of which the machine has no pages at all"
        yield "panics_on_missing_hugepages", Fault("panics", text)


def _merge_fault(
    node: Node, pod: Pod, recorders: Sequence[RecordingProvider]
) -> Iterator[tuple[str, Fault]]:
    """Yield by name the fault of merges of more hints than can be looked at in a minute.

    Where preferred hints are combined first, and one of these combinations is the best, nothing
    else is combined, and only the hints themselves are gone through.
    """
    prefers_first = node.config.profile.preferred_merges_searched_first
    combinations = 0
    lone_hints = 0
    for offers in _merged_offers(pod, recorders):
        sizes = [
            _size(hints)
            for resource_hints in offers
            for hints in (resource_hints or {}).values()
            if hints
        ]
        if prefers_first and node.manager.policy.merge(offers)[0].preferred:
            lone_hints += sum(sizes)
        else:
            combinations += prod(sizes)

    if combinations > MOST_MERGED:
        text = f"it merges all {combinations:.1e} combinations of hints"
        yield "merges_all_combinations", Fault("does not answer", text)
    elif lone_hints > MOST_MERGED:
        text = f"it goes through all {lone_hints:.1e} hints"
        yield "merges_all_combinations", Fault("does not answer", text)


def _merged_offers(
    pod: Pod, recorders: Sequence[RecordingProvider]
) -> Iterator[list[ResourceHints]]:
    """Yield what the providers offered for each merge: for the pod as a whole, or a container."""
    yield [recorder.by_pod for recorder in recorders]
    for container in pod.all_containers:
        yield [recorder.by_container.get(container.name) for recorder in recorders]


def _size(hints: Sequence[TopologyHint] | HintList) -> int:
    """Return how many hints there are; of more than can be counted, more than a kubelet merges."""
    count = hints.total() if isinstance(hints, HintList) else len(hints)
    return MOST_MERGED + 1 if count is None else count


class _Watched(RecordingProvider):
    """The CPU manager, of whose allocations faults are noted."""

    __slots__ = ("faults",)

    def __init__(self, provider: CpuProvider, faults: dict[str, Fault]) -> None:
        super().__init__(provider)
        self.faults = faults

    def allocate(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        """Note the faults, and let the provider allocate."""
        assert isinstance(self.provider, CpuProvider)  # noqa: S101  # for the type checker
        for name, cpus in self.provider.known_faults(pod, container, affinity):
            if name == "distribution_never_ends":
                text = (
                    "full-pcpus-only with distribute-cpus-across-numa waits for a whole core "
                    f"where halves are left (container {container.name!r})"
                )
                self.faults[name] = Fault("does not answer", text)
            elif name == "l3_groups_counted_twice":
                text = (
                    f"container {container.name!r} gets only CPUs {cpus} of the "
                    f"{container.exclusive_cpus} that it asks for, as an L3 cache of several NUMA "
                    "nodes is counted twice"
                )
                self.faults[name] = Fault("gives fewer CPUs", text)
            else:
                text = (
                    f"container {container.name!r} gets CPUs {cpus}, which are reserved or "
                    "another container's"
                )
                self.faults[name] = Fault("gives CPUs twice", text)

        self.provider.allocate(pod, container, affinity)


def _watched(
    provider: HintProvider, faults: dict[str, Fault], recorders: list[RecordingProvider]
) -> HintProvider:
    """Return a provider that records what it offers, after it is added to `recorders`."""
    if isinstance(provider, CpuProvider):
        recorder: RecordingProvider = _Watched(provider, faults)
    else:
        recorder = RecordingProvider(provider)

    recorders.append(recorder)
    return recorder
