"""Sums the resources of each node and the requests of its pods.

A scheduler without topology does no more. Fitting and scoring follow the default scheduler's
NodeResourcesFit and its balanced allocation, without its other plugins.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import numpy as np

from alignup.errors import InputError
from alignup.kubernetes.node_fit import node_limits, requests_of
from alignup.kubernetes.pod import Pod, PodSource, RawRequests, is_device, is_pinned_memory
from alignup.machine.machine import MEMORY_LIMIT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from alignup.cluster.cluster import Ints, Truths
    from alignup.node import Node

# The strategies that need no NUMA nodes.
BLIND_STRATEGIES: Final = ("least-allocated", "most-allocated", "balanced-allocation")

_SCORED: Final = ("cpu", "memory")
# More than any node has of anything; larger requests are clamped to it.
_MORE_THAN_ANY: Final = MEMORY_LIMIT + 1
# More of a pod's request is not counted as in use, so that the sum over a hundred pods is a number
# of 64 bits.
_MOST_COUNTED: Final = 1 << 56
_NOTHING_NEEDED: Final = np.iinfo(np.int64).min


class Totals:
    """Sums over whole nodes: `cpu` in thousandths, memory in bytes, devices in pieces; and pods.

    Attributes:
        pods_left: by node, how many more pods its kubelet may run.

    Args:
        nodes: The nodes, with the pods that they hold.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        allocatable_of_nodes = []
        most_pods = []
        for node in nodes:
            devices = {
                name: (pool.ledger.free | pool.ledger.given).bit_count()
                for name, pool in node.pools.items()
            }
            allocatable = node_limits(node.machine, node.config, devices).allocatable
            allocatable_of_nodes.append(counted_amounts(allocatable))
            object_amounts = node.node_object.allocatable if node.node_object else {}
            most_pods.append(object_amounts.get("pods", allocatable["pods"]))

        self.resources = tuple(
            sorted({name for amounts in allocatable_of_nodes for name in amounts})
        )
        self._numbers = {name: number for number, name in enumerate(self.resources)}
        self.allocatable = np.zeros((len(nodes), len(self.resources)), np.int64)
        for index, amounts in enumerate(allocatable_of_nodes):
            self.allocatable[index] = [amounts.get(name, 0) for name in self.resources]

        # By node and resource, whether it is known how much there is: of what is not, nothing is in
        # use, either.
        self._is_known = np.array(
            [[not _is_unknown(node, name) for name in self.resources] for node in nodes], np.bool_
        ).reshape(self.allocatable.shape)
        self.allocatable *= self._is_known
        self.used = np.zeros_like(self.allocatable)
        self.used_in_all = [0] * len(self.resources)
        # By node, the resources that no sum bounds: devices of a claim stand for some.
        self.unbounded = [
            claimed_resources(node).union(itertools.compress(self.resources, ~known))
            for node, known in zip(nodes, self._is_known, strict=True)
        ]
        # Whether a pod may request hugepages that no node has.
        self._hugepages_unknown = all(_is_unknown(node, "memory") for node in nodes)
        # What pods may request at most: a line for each resource, so that what one resource leaves
        # of the nodes lies together.
        self._most = self.allocatable.T.copy()
        for index, names in enumerate(self.unbounded):
            for name in names & self._numbers.keys():
                self._most[self._numbers[name], index] = _MORE_THAN_ANY

        self._left = self._most.copy()
        self._most_pods = np.array(most_pods, np.int64)
        self.pods_left = self._most_pods.copy()
        for index, node in enumerate(nodes):
            for pod in node.pods:
                self.add(index, self.held(pod))

    def request(self, pod: Pod) -> Ints | None:
        """Return what the pod requests, in the order of `resources`.

        That is what the default scheduler counts, fractions of CPUs too. None: it requests
        something that no node has.
        """
        amounts = counted_amounts(requests_of(pod))
        missing = amounts.keys() - self._numbers.keys()
        if self._hugepages_unknown:
            missing = {name for name in missing if not is_pinned_memory(name)}
        if not missing <= frozenset().union(*self.unbounded):
            return None
        return self._in_order(amounts)

    def held(self, pod: Pod) -> Ints:
        """Return what a pod counts with on its node, in the order of `resources`.

        A kubelet admits a pod that also requests something that no node has.
        """
        return self._in_order(counted_amounts(requests_of(pod)))

    def _in_order(self, amounts: Mapping[str, int]) -> Ints:
        clamped = [min(amounts.get(name, 0), _MORE_THAN_ANY) for name in self.resources]
        return np.array(clamped, np.int64)

    def add(self, index: int, request: Ints | None) -> None:
        """Count what a pod requests that came to a node."""
        if request is not None:
            self._change(index, np.minimum(request, _MOST_COUNTED), 1)

    def remove(self, index: int, request: Ints | None) -> None:
        """Subtract what a pod requests that left a node."""
        if request is not None:
            self._change(index, -np.minimum(request, _MOST_COUNTED), -1)

    def _change(self, index: int, amounts: Ints, pods: int) -> None:
        """Let a node have more pods, or fewer, and these request more, or less."""
        self.pods_left[index] -= pods
        amounts = amounts * self._is_known[index]
        self.used[index] += amounts
        self._left[:, index] -= amounts
        for number, amount in enumerate(amounts.tolist()):
            self.used_in_all[number] += amount

    @property
    def free(self) -> Ints:
        """The free amount of each resource, by node; never below 0."""
        amounts: Ints = np.maximum(self.allocatable - self.used, 0)
        return amounts

    @property
    def left(self) -> Ints:
        """What the pods leave of each resource, by node, as `fits` counts it; a copy."""
        left: Ints = self._left.T.copy()
        return left

    def fits(self, request: Ints | None, nodes: Ints | None = None) -> Truths:
        """Return which nodes have as much left as a pod requests; of some nodes, or of all."""
        where = slice(None) if nodes is None else nodes
        left = self._left if nodes is None else self._left.take(nodes, axis=1)
        return _suffices(left, request) & (self.pods_left[where] > 0)

    def could_fit(self, request: Ints | None) -> Truths:
        """Return which nodes would have as much as a pod requests if they held no pods."""
        return _suffices(self._most, request) & (self._most_pods > 0)

    def score(
        self, request: Ints | None, strategy: str, nodes: Ints | None = None
    ) -> npt.NDArray[np.float64]:
        """Return what nodes are worth, some or all.

        That follows from the parts of their CPUs and memory that would be in use.

        Raises:
            InputError: the strategy needs more than sums.
        """
        check_blind(strategy)
        columns = [self._numbers[name] for name in _SCORED if name in self._numbers]
        where = slice(None) if nodes is None else nodes
        used = self.used[where][:, columns]
        if request is not None:
            used = used + request[columns]

        parts = np.minimum(used / np.maximum(self.allocatable[where][:, columns], 1), 1.0)
        if strategy == "balanced-allocation":
            return np.asarray(100 * (1 - parts.std(axis=1)))

        mean = parts.mean(axis=1)
        if strategy == "most-allocated":
            return np.asarray(100 * mean)
        return np.asarray(100 * (1 - mean))

    def by_name(self, values: npt.NDArray[np.float64]) -> Mapping[str, float]:
        """Return one value for each resource that any node has."""
        is_present = np.asarray(self.allocatable.any(axis=0))
        return {
            name: float(value)
            for name, value, present in zip(self.resources, values, is_present, strict=True)
            if present
        }


def _suffices(amounts: Ints, request: Ints | None) -> Truths:
    """Return for each column of amounts whether it has what is requested.

    The amounts have a line for each resource.
    """
    if request is None:
        return np.zeros(amounts.shape[1], np.bool_)

    # a node may be overcommitted in what the pod does not request
    needed = np.where(request > 0, request, _NOTHING_NEEDED)
    enough: Truths = np.logical_and.reduce(amounts >= needed[:, None])
    return enough


def check_blind(strategy: str) -> None:
    """Check that a strategy needs no NUMA nodes.

    Raises:
        InputError: it does.
    """
    if strategy not in BLIND_STRATEGIES:
        expected = f"one of {', '.join(BLIND_STRATEGIES)} for a scheduler that sees totals only"
        raise InputError.at("the strategy", expected, strategy)


def demand_key(pod: Pod) -> object:
    """Return a key: of pods with equal keys every node says the same.

    It has all that a judgement reads, of the pod and of what its readings are made of. Left out are
    its uid and its name, and its namespace where that names no claim.
    """
    constraints = pod.constraints
    return (
        pod.namespace if constraints.claims else "",
        tuple(pod.annotations.items()),
        pod.init_containers,
        pod.containers,
        pod.qos,
        pod.exclusive_cpus,
        pod.memory,
        pod.devices,
        pod.pod_level,
        constraints,
        () if pod.made_of is None else _source_key(pod.made_of),
    )


def _source_key(source: PodSource) -> object:
    """Return the part of `demand_key` that tells how kubelets read a pod."""
    raw_pod = () if source.raw_pod is None else _raw_key(source.raw_pod)
    return (
        tuple(map(_raw_key, source.raw_init)),
        tuple(map(_raw_key, source.raw_containers)),
        raw_pod,
        tuple((name, *amounts.items()) for name, amounts in source.allocated.items()),
        source.constraints,
        source.stored_qos,
    )


def _raw_key(raw: RawRequests) -> object:
    return (
        raw.name,
        tuple(raw.requests.items()),
        tuple(raw.limits.items()),
        raw.is_init,
        raw.is_sidecar,
    )


def claimed_resources(node: Node) -> frozenset[str]:
    """Return the extended resources that devices of a claim would stand for on a node."""
    if node.claims is None:
        return frozenset()
    return node.claims.extended.left_to_claims(node.offered)


def _is_unknown(node: Node, resource: str) -> bool:
    """Return whether nothing tells how much of a resource a node has.

    Where no manager of the kubelet hands out CPUs or memory, exporters leave them out of the zones
    of their report (`NodeAmounts`), and a node that is made of it has hardly any.
    """
    if not node.counts_use_as_reserved:
        return False
    if resource == "cpu":
        return node.cpu is None
    return is_pinned_memory(resource) and node.memory is None


def counted_amounts(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return the amounts of CPUs, memory and devices; nodes are not described with disks."""
    counted = [
        name for name in amounts if is_pinned_memory(name) or name == "cpu" or is_device(name)
    ]
    return {name: amounts[name] for name in counted if name != "pods"}
