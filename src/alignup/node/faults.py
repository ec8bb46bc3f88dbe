"""Finds the known faults of kubelets that an admission comes upon: no answer, a panic, CPUs that are given twice.

Which release has which is in the files of `alignup.kubernetes.releases`; a node itself answers as
if there were none.
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

# A walk over all sets of more NUMA nodes takes minutes, and twice as long with each more.
MOST_WALKED: Final = 20
# A kubelet merges two to four and a half million combinations of hints a second: with more it can
# take over a minute.
MOST_MERGED: Final = 130_000_000


class Fault(Record):
    """A fault of a kubelet.

    Attributes:
        does: `does not answer`, `panics`, or `gives CPUs twice`.
        text: what it comes upon.
    """

    does: str
    text: str


def known_faults(node: Node, pod: Pod) -> tuple[Fault, ...]:
    """Return the known faults that the node's kubelet comes upon when it admits a pod; the node stays as it is.

    Raises:
        PodExistsError: a pod of this uid is admitted already.
    """
    known = release_of(node.config.version).faults
    found = dict(_of_node(node, pod))
    lists = len(pod.devices) + len(pod.memory) + bool(pod.exclusive_cpus)
    merges = node.manager.policy.name in ("best-effort", "restricted")
    most = (1 << len(node.machine.numa_nodes)) ** lists * len(pod.all_containers)
    is_long = merges and most > MOST_MERGED
    if is_long or (node.cpu is not None and any(one.exclusive_cpus for one in pod.all_containers)):
        watched: list[RecordingProvider] = []
        with (
            node.manager.lock,
            node.scratch(partial(_watched, found=found, watched=watched)) as scratch,
        ):
            scratch.whole_verdict = False
            if scratch.admit(pod):
                scratch.remove(pod.uid)

        count = sum(_combinations(pod, watched)) if merges else 0
        if count > MOST_MERGED:
            text = f"it merges all {count:.1e} combinations of hints"
            found["merges_all_combinations"] = Fault("does not answer", text)

    return tuple(fault for name, fault in found.items() if name in known)


def _of_node(node: Node, pod: Pod) -> Iterator[tuple[str, Fault]]:
    """Yield by name the faults that follow from the node and the requests alone."""
    ids, options = node.machine.numa_node_ids, node.config.topology_manager_policy_options
    if node.manager.policy.name != "none":
        pools = node.pools
        walked = [
            name
            for name, _ in pod.devices
            if name in pools and pools[name].ledger.inventory.is_aligned
        ]
        if walked and len(ids) > MOST_WALKED:
            text = f"it walks all 2^{len(ids)} sets of NUMA nodes for the hints of {walked[0]}"
            yield "walks_all_masks", Fault("does not answer", text)

        if options.prefer_closest_numa_nodes and ids[-1] >= len(ids):
            text = (
                "prefer-closest-numa-nodes takes ids of NUMA nodes "
                f"({', '.join(map(str, ids))}) for places"
            )
            yield "panics_on_sparse_ids", Fault("panics", text)

    there = node.machine.memory_by_type
    lacking = [
        kind
        for kind, amount in pod.memory
        if amount and is_pinned_memory(kind) and kind not in there
    ]
    if node.memory is not None and lacking:
        text = f"{lacking[0]} is requested, of which the machine has no pages at all"
        yield "panics_on_missing_hugepages", Fault("panics", text)


def _combinations(pod: Pod, watched: Sequence[RecordingProvider]) -> Iterator[int]:
    """Yield from how many combinations of hints the best is chosen, for the pod and for each container."""
    for name in ("", *(one.name for one in pod.all_containers)):
        offered = [(one.by_container.get(name) if name else one.by_pod) or {} for one in watched]
        yield prod(_size(hints) for resources in offered for hints in resources.values() if hints)


def _size(hints: Sequence[TopologyHint] | HintList) -> int:
    """Return how many hints there are; of more than can be counted, more than a kubelet merges."""
    count = hints.total() if isinstance(hints, HintList) else len(hints)
    return MOST_MERGED + 1 if count is None else count


class _Watched(RecordingProvider):
    """The CPU manager, of whose allocations faults are noted."""

    __slots__ = ("found",)

    def __init__(self, provider: CpuProvider, found: dict[str, Fault]) -> None:
        super().__init__(provider)
        self.found = found

    def allocate(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        """Note the faults, and let the provider allocate."""
        assert isinstance(self.provider, CpuProvider)  # noqa: S101  # for the type checker
        for name, cpus in self.provider.known_faults(pod, container, affinity):
            if name == "distribution_never_ends":
                text = (
                    "full-pcpus-only with distribute-cpus-across-numa waits for a whole core "
                    "where halves are left"
                )
                self.found[name] = Fault(
                    "does not answer", f"{text} (container {container.name!r})"
                )
            else:
                text = (
                    f"container {container.name!r} gets CPUs {cpus}, which are reserved or "
                    "another container's"
                )
                self.found[name] = Fault("gives CPUs twice", text)

        self.provider.allocate(pod, container, affinity)


def _watched(
    provider: HintProvider, found: dict[str, Fault], watched: list[RecordingProvider]
) -> HintProvider:
    watched.append(
        _Watched(provider, found)
        if isinstance(provider, CpuProvider)
        else RecordingProvider(provider)
    )
    return watched[-1]
