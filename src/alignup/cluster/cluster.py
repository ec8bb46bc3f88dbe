"""A cluster: many nodes, and what each of them would say to a pod.

Answers are arrays with one element a node. The judging is compiled (`alignup.core.amounts.board`).
What it judges are rows: of nodes, whose ledgers they share, or of amounts; and the requests of a
pod. The other modules of this package read nodes, and use the answers.
"""

from __future__ import annotations

import os
from _thread import start_new_thread
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial, reduce
from itertools import count
from operator import or_
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from alignup.core.amounts.board import LIMITS, Board, Distances, Job, Row
from alignup.core.amounts.changes import ManagerLock
from alignup.core.amounts.cpu_ledger import CpuCapacity, CpuLedger
from alignup.core.amounts.device_ledger import DeviceInventory, DeviceLedger
from alignup.core.amounts.memory_ledger import MemoryCapacity, MemoryLedger
from alignup.errors import ConfigError, InputError
from alignup.koordinator.effective import pod_policy
from alignup.kubernetes.kubelet_config import KUBELET, TOPOLOGY_POLICIES
from alignup.kubernetes.manifest import read_pod
from alignup.kubernetes.pod import Container, Pod, QOSClass, is_pinned_memory
from alignup.kubernetes.quantity import LARGEST
from alignup.kubernetes.versions import KubeletVersion, PodReading, VersionProfile
from alignup.machine.bits import bit_numbers
from alignup.node import Node
from alignup.records import Record, field

if TYPE_CHECKING:
    import numpy.typing as npt

Ints: TypeAlias = "npt.NDArray[np.int64]"
Bools: TypeAlias = "npt.NDArray[np.bool_]"
Truths: TypeAlias = "npt.NDArray[np.bool_]"


_shared_distances = lru_cache(maxsize=1024)(Distances)
_counted_cpus = lru_cache(maxsize=1024)(
    lambda capacity, allocatable: CpuCapacity.from_counts(list(capacity), list(allocatable))
)
_counted_memory = lru_cache(maxsize=1024)(
    lambda allocatable, checks_groups: MemoryCapacity(
        dict(allocatable), checks_groups=checks_groups
    )
)
_counted_devices = lru_cache(maxsize=1024)(
    lambda totals, over_all_nodes: DeviceInventory.from_counts(
        list(totals), over_all_nodes=over_all_nodes
    )
)
_NEWEST_PROFILE = VersionProfile()
# Capacity, allocatable and available amounts of a resource, one for each NUMA node.
Amounts = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]

# The ways to score placements; see `Cluster.evaluate`.
STRATEGIES: Final = (
    "least-numa-nodes",
    "least-allocated",
    "most-allocated",
    "balanced-allocation",
    "document",
)

# The meaning of the codes in `Evaluation.reason`: the words that a kubelet puts into a pod's
# status, Koordinator's for a pod that brings another policy than the node has, and the scheduler's
# for claims that cannot be allocated.
REASONS: Final = (
    "",
    "TopologyAffinityError",
    "UnexpectedAdmissionError",
    "SMTAlignmentError",
    "UnschedulableAndUnresolvable",
    "EmptyPodSharedPoolError",
    "Unschedulable",
)

AMOUNTS_ONLY: Final = (
    "the cluster was made from NodeResourceTopology objects, which have amounts "
    "only: make it from nodes, as JSON lines describe them"
)

_MOST_THREADS: Final = 256
_NO_IDS: Final[Mapping[int, tuple[int, ...]]] = {}

# The fewest containers to judge, over all nodes, for which a thread is used: two milliseconds of
# work.
_WORTH_A_THREAD: Final = 1 << 15

# The number of parts that the nodes are divided into; each thread takes one part after another.
_SHARES: Final = 16

# Of a node with which the pod's own policy does not go.
MISMATCHED: Final = REASONS.index("UnschedulableAndUnresolvable")
_OTHER: Final = REASONS.index("UnexpectedAdmissionError")


def row_of_node(node: Node) -> Row:
    """Return what a cluster sees of a node: what the node admits and removes is seen there at once.

    A node asks itself where a provider of a user, a wrapped provider or a device plugin takes part,
    and where it goes beyond kubelets: devices that are chosen in pairs, policies of containers.
    """
    config = node.config
    machine = node.machine

    built_in = tuple(
        provider for provider in (node.devices, node.cpu, node.memory) if provider is not None
    )
    plugins = any(pool.preference is not None for pool in node.pools.values())
    beyond_kubelet = node.beyond_kubelet or (node.devices is not None and node.devices.has_pairs)
    # what judges rows merges as a kubelet does
    as_kubelet = config.reading == KUBELET and not beyond_kubelet
    needs_node = plugins or node.manager.providers != built_in or not as_kubelet

    distances = machine.distance_matrix
    return Row(
        numa_nodes=len(machine.numa_nodes),
        policy=TOPOLOGY_POLICIES.index(config.topology_manager_policy),
        pod_scope=config.topology_manager_scope == "pod",
        cpu=node.cpu.ledger if node.cpu else None,
        memory=node.memory.ledger if node.memory else None,
        devices={resource: pool.ledger for resource, pool in node.pools.items()},
        distances=None if distances is None else _shared_distances(distances),
        prefer_closest=config.topology_manager_policy_options.prefer_closest_numa_nodes,
        needs_node=needs_node,
        changes=node.manager.lock.changes,
    )


class NodeAmounts(Record):
    """The facts about a node of which only amounts are known.

    Each amount comes once for each NUMA node.

    Attributes:
        resources: capacity, allocatable and available CPUs, bytes of each type, and devices; what
            is missing is not aligned.
    """

    numa_nodes: int
    policy: str = "none"
    scope: str = "container"
    resources: Mapping[str, Amounts] = field(default_factory=dict)
    distances: tuple[tuple[int, ...], ...] | None = None

    @property
    def cpus(self) -> Amounts | None:
        """The amounts of CPUs; None: they are not aligned.

        Where the kubelet's CPU manager hands out none, the topology updater of
        node-feature-discovery (0.18.3) writes zones with CPUs of which none is allocatable.
        """
        cpus = self.resources.get("cpu")
        return cpus if cpus and any(cpus[1]) else None

    @property
    def memory(self) -> dict[str, Amounts]:
        """The amounts of each type of memory."""
        return {name: amounts for name, amounts in self.resources.items() if is_pinned_memory(name)}

    @property
    def devices(self) -> dict[str, Amounts]:
        """The amounts of each resource of devices."""
        return {
            name: amounts
            for name, amounts in self.resources.items()
            if name != "cpu" and not is_pinned_memory(name)
        }


def row_of_amounts(amounts: NodeAmounts, profile: VersionProfile = _NEWEST_PROFILE) -> Row:
    """Return the row of a node of which only amounts are known: its admissions are an upper bound.

    Args:
        amounts: what is known.
        profile: what the kubelet's release does where releases differ.
    """
    cpu = None
    memory = None
    devices = {}
    pinned = []
    free = {}
    for name, (capacity, allocatable, available) in amounts.resources.items():
        if name == "cpu":
            if amounts.cpus:
                cpu = CpuLedger.from_counts(_counted_cpus(capacity, allocatable), list(available))
        elif is_pinned_memory(name):
            pinned.append((name, allocatable))
            free[name] = available
        else:
            inventory = _counted_devices(allocatable, profile.device_hints_over_all_nodes)
            devices[name] = DeviceLedger.from_counts(inventory, list(available))

    if pinned:
        capacity_of_memory = _counted_memory(tuple(sorted(pinned)), profile.memory_groups_checked)
        memory = MemoryLedger.from_counts(capacity_of_memory, free)

    return Row(
        numa_nodes=amounts.numa_nodes,
        policy=TOPOLOGY_POLICIES.index(amounts.policy),
        pod_scope=amounts.scope == "pod",
        cpu=cpu,
        memory=memory,
        devices=devices,
        distances=None if amounts.distances is None else _shared_distances(amounts.distances),
        upper_bound=True,
    )


def one_default(defaults: Sequence[str]) -> str:
    """Return the default of exclusivity that all nodes share; `Required` if there is no node.

    Raises:
        InputError: they differ.
    """
    values = sorted(set(defaults))
    if len(values) > 1:
        raise InputError.at(
            "singleNUMANodeExclusive", "the same value for every node of a cluster", values
        )
    return values[0] if values else "Required"


# Exclusive CPUs, (type, bytes) of memory, (resource, count) of devices, and whether all of it is
# handed on.
Request = tuple[int, tuple[tuple[str, int], ...], tuple[tuple[str, int], ...], bool]


def request_of(unit: Pod | Container) -> Request:
    """Return what a pod or container asks for.

    Memory that is no whole number of bytes offers no hints and fails to allocate, as the largest
    amount does.
    """
    if isinstance(unit, Container):
        is_fractional = bool(unit.fractional_memory)
        is_reusable = unit.is_init and not unit.is_sidecar
    else:
        is_fractional = any(container.fractional_memory for container in unit.all_containers)
        is_reusable = False

    memory = unit.memory
    if is_fractional:
        memory = tuple((kind, LARGEST) for kind, _ in memory)

    return unit.exclusive_cpus, memory, unit.devices, is_reusable


def requests_of(pod: Pod, resources: Collection[str]) -> list[Request]:
    """Return what a pod asks for as a whole, then what each of its containers does.

    Args:
        pod: the pod; one without containers asks for nothing in the place of one.
        resources: the device resources that some node has.

    Raises:
        InputError: it asks for more types of memory, or for more of these resources, than a
            compiled row holds.
    """
    units: list[Pod | Container] = [pod, *pod.all_containers]
    most_types, most_devices = LIMITS
    types = {kind for unit in units for kind, _ in unit.memory}
    if len(types) > most_types:
        raise InputError.at("the pod", f"at most {most_types} types of memory", len(types))

    requested_devices = {resource for unit in units for resource, _ in unit.devices}
    devices = requested_devices.intersection(resources)
    if len(devices) > most_devices:
        raise InputError.at("the pod", f"at most {most_devices} device resources", len(devices))

    requests = [request_of(unit) for unit in units]
    if len(requests) == 1:
        requests.append((0, (), (), False))
    return requests


class Evaluation(Record, eq=False):
    """The answer of each node of a cluster to a pod.

    Attributes:
        reason: an index into `REASONS`; 0 where the pod is admitted.
        affinity: the NUMA nodes of all containers together, bit i for position i; 0: none was
            decided, or refused.
        preferred: whether every container's affinity is preferred; False where refused, and under
            policy none.
        score: higher is better; minus infinity where refused.
        exact: False where amounts could not tell: the node may refuse the pod all the same.
            Refusals are certain, save for devices near no NUMA node: they are in no zone of a
            NodeResourceTopology object, and so count as not there.
        names: the names of the nodes.
        numa_ids: by index, the kernel's ids of the NUMA nodes of a node by position, where these
            are not 0, 1, 2 and so on.

    Examples:
        >>> container = {"name": "c", "image": "i"}
        >>> pod = read_pod({"metadata": {"name": "p"}, "spec": {"containers": [container]}})
        >>> Cluster.from_nodes({"a": Node(read_machine("xeon-2s"))}).evaluate(pod).admitted.tolist()
        [True]
    """

    admitted: Truths
    reason: npt.NDArray[np.uint8]
    affinity: npt.NDArray[np.uint64]
    preferred: Truths
    score: npt.NDArray[np.float64]
    exact: Truths
    names: tuple[str, ...] = ()
    numa_ids: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def empty(
        cls,
        count: int,
        names: tuple[str, ...] = (),
        numa_ids: Mapping[int, tuple[int, ...]] = _NO_IDS,
    ) -> Evaluation:
        """Return an answer of so many nodes that says no everywhere."""
        admitted, preferred = np.zeros((2, count), np.bool_)
        return cls(
            admitted=admitted,
            reason=np.zeros(count, np.uint8),
            affinity=np.zeros(count, np.uint64),
            preferred=preferred,
            score=np.full(count, -np.inf),
            exact=np.ones(count, np.bool_),
            names=names,
            numa_ids=numa_ids,
        )

    def __len__(self) -> int:
        return len(self.admitted)

    def best(self, count: int | None = None) -> npt.NDArray[np.intp]:
        """Return the indices of the nodes that admit the pod, best score first.

        Those of equal scores come in the cluster's order.

        Args:
            count: At most so many; None: all.
        """
        indices = np.flatnonzero(self.admitted)
        scores = self.score[indices]
        if count is not None and count < len(indices):
            # no node below the score of the last one wanted can be among them
            lowest_score: Any = np.inf
            if count:
                last = len(indices) - count
                lowest_score = np.partition(scores, last)[last]

            is_candidate = scores >= lowest_score
            indices = indices[is_candidate]
            scores = scores[is_candidate]

        order: npt.NDArray[Any] = np.argsort(-scores, kind="stable")
        best: npt.NDArray[np.intp] = indices[order[:count]]
        return best

    def to_dict(self) -> dict[str, list[Any]]:
        """Return a column for each fact, with a row for each node, which data frames take as it is.

        The columns are `node` (its name, or its number where it has none), `admitted`, `reason`
        (empty: admitted), `numaNodes` (a list of the kernel's ids, or of positions where only
        amounts are known), `preferred`, `score` (None: refused) and `exact`.

        Examples:
            >>> container = {"name": "c", "image": "i"}
            >>> pod = read_pod({"metadata": {"name": "p"}, "spec": {"containers": [container]}})
            >>> answer = Cluster.from_nodes({"a": Node(read_machine("xeon-2s"))}).evaluate(pod)
            >>> {name: column[0] for name, column in answer.to_dict().items()}
            {'node': 'a', 'admitted': True, 'reason': '', 'numaNodes': [], ...}
        """
        numa_nodes = []
        for index, mask in enumerate(self.affinity.tolist()):
            ids = self.numa_ids.get(index)
            positions = bit_numbers(mask)
            numa_nodes.append([*positions] if ids is None else [ids[place] for place in positions])

        admitted = self.admitted.tolist()
        scores = self.score.tolist()
        return {
            "node": list(self.names) or list(range(len(self))),
            "admitted": admitted,
            "reason": [REASONS[reason] for reason in self.reason.tolist()],
            "numaNodes": numa_nodes,
            "preferred": self.preferred.tolist(),
            "score": [
                score if is_admitted else None
                for score, is_admitted in zip(scores, admitted, strict=True)
            ],
            "exact": self.exact.tolist(),
        }

    def refusals(self) -> dict[str, int]:
        """Return how many nodes refuse the pod for each reason that occurs."""
        counts = np.bincount(self.reason, minlength=len(REASONS))
        return {
            name: int(count) for name, count in zip(REASONS, counts, strict=True) if name and count
        }


def _flat_views(answer: Evaluation) -> list[npt.NDArray[Any]]:
    """Return the arrays of an answer as the compiled board writes them.

    It writes whole numbers for truth values.
    """
    arrays = (
        answer.admitted,
        answer.reason,
        answer.affinity,
        answer.preferred,
        answer.score,
        answer.exact,
    )
    return [array.view(np.uint8) if array.dtype == np.bool_ else array for array in arrays]


class Cluster:
    """Thousands of nodes, judged at once.

    Make one with `from_nodes`, `from_json_lines` or `read_node_resource_topologies`. A cluster made
    from nodes keeps them, and sees at once what is admitted and removed there. After a change of
    another kind (an inventory of devices, a further provider) call `update` with the node.

    Args:
        names: the names of the nodes, each once.
        rows: what is known of each.
        nodes: the nodes, if there are any; of those beyond their number only amounts are known.
        profiles: how the kubelet of each node decides, where only amounts are known; none: as the
            newest one.

    Raises:
        InputError: a name comes twice.

    Examples:
        >>> nodes = {name: Node(read_machine("xeon-2s")) for name in ("a", "b")}
        >>> cluster = Cluster.from_nodes(nodes)
        >>> container = {"name": "c", "image": "i"}
        >>> pod = read_pod({"metadata": {"name": "p"}, "spec": {"containers": [container]}})
        >>> [cluster.names[index] for index in cluster.evaluate(pod).best(2)]
        ['a', 'b']
    """

    def __init__(
        self,
        names: Sequence[str],
        rows: Iterable[Row],
        nodes: Sequence[Node] = (),
        profiles: Sequence[VersionProfile] = (),
    ) -> None:
        self.names = tuple(names)
        self._members = list(nodes)
        # Of those of which only amounts are known.
        self._profiles = list(profiles) or [VersionProfile()] * len(self.names)
        self._nodes: tuple[Node, ...] | None = None
        # By index, those of nodes whose kernels do not number their NUMA nodes one after the other.
        self._numa_ids: Mapping[int, tuple[int, ...]] = {
            index: node.machine.numa_node_ids
            for index, node in enumerate(self._members)
            if not _are_in_turn(node.machine.numa_node_ids)
        }

        self._indices = {name: index for index, name in enumerate(self.names)}
        if len(self._indices) != len(self.names):
            twice = next(
                name for index, name in enumerate(self.names) if self._indices[name] != index
            )
            raise InputError.at("the cluster", "a name that no other node has", twice)

        self._default_exclusive = one_default(
            [node.single_numa_node_exclusive for node in self._members]
        )
        self._board = Board(rows)
        self._widest = 0  # not known
        self._lock = ManagerLock()
        self._helpers = Helpers()

    @classmethod
    def from_nodes(cls, nodes: Iterable[Node] | Mapping[str, Node]) -> Cluster:
        """Return the cluster of these nodes, with the pods that are on them.

        Args:
            nodes: by name, or in order: then they are called `node-0`, `node-1` and so on.

        Raises:
            InputError: the nodes differ in `single_numa_node_exclusive`, which is one scheduler's
                for all of them.
        """
        if not isinstance(nodes, Mapping):
            nodes = {f"node-{i}": node for i, node in enumerate(nodes)}
        return cls(tuple(nodes), map(row_of_node, nodes.values()), tuple(nodes.values()))

    @classmethod
    def from_json_lines(
        cls,
        lines: str | bytes | Iterable[str | bytes],
        source: str = "nodes",
        *,
        skip_bad: bool = False,
        kubelet_version: KubeletVersion | str | None = None,
    ) -> Cluster:
        """Return the cluster that a text describes, one node a line.

        A line is a JSON object with the keys of `Node.from_dict`, `name`, and perhaps `pods`:
        manifests of pods that are on the node already, in the order in which they came.

        Args:
            lines: The text, or its lines.
            source: What an error calls the text.
            skip_bad: warn of a line that is no node, and go on with the others.
            kubelet_version: the release of all kubelets, in place of the keys `kubeletVersion`.

        Raises:
            InputError: a line is not of this form, or a node refuses one of its pods.
            ConfigError: a kubelet would refuse to start on one of the nodes.
        """
        # only who reads text pays for it
        from alignup.cluster.json_lines import read_nodes  # noqa: PLC0415

        return cls.from_nodes(
            read_nodes(lines, source, skip_bad=skip_bad, kubelet_version=kubelet_version)
        )

    def update(self, name: str, node: Node | NodeAmounts) -> None:
        """Put another node, or other amounts where only amounts are known, in a node's place.

        Raises:
            InputError: there is no node of that name, the cluster is made from nodes and amounts
                are given, or the other way round, or nodes would differ in
                `single_numa_node_exclusive`.
        """
        index = self.index(name)
        has_nodes = index < len(self._members)
        if not isinstance(node, Node if has_nodes else NodeAmounts):
            expected = "a Node"
            if not has_nodes:
                expected = "the amounts of a NodeResourceTopology object (read_amounts)"
            raise InputError.at(f"update of {name!r}", expected, node)

        if isinstance(node, Node):
            if len(self) > 1:
                one_default([self._default_exclusive, node.single_numa_node_exclusive])
            row = row_of_node(node)
        else:
            row = row_of_amounts(node, self._profiles[index])

        self._lock.settle(self._replace, index, row, node)

    def _replace(self, index: int, row: Row, node: Node | NodeAmounts) -> None:
        self._board.replace(index, row)
        self._widest = 0
        if isinstance(node, Node):
            self._members[index], self._nodes = node, None
            self._note_ids(index, node.machine.numa_node_ids)
            self._default_exclusive = node.single_numa_node_exclusive

    def _note_ids(self, index: int, ids: tuple[int, ...]) -> None:
        """Note the ids of a node's NUMA nodes; answers keep those that they were given with."""
        before = self._numa_ids.get(index)
        if _are_in_turn(ids) and before is not None:
            others = self._numa_ids.items()
            self._numa_ids = {other: ids for other, ids in others if other != index}
        elif not _are_in_turn(ids) and before != ids:
            self._numa_ids = {**self._numa_ids, index: ids}

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes, in order; not those, after them, of which only amounts are known."""
        # made when it is asked for, so that an update costs the same in a cluster of any size
        if self._nodes is None:
            self._nodes = tuple(self._members)
        return self._nodes

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"<Cluster of {len(self)} nodes: {', '.join(self.resources)}>"

    @property
    def resources(self) -> tuple[str, ...]:
        """The resources that are counted by NUMA node: CPUs, memory types, then devices by name."""
        cpu = ("cpu",) if any(row.cpu for row in self._board.parts) else ()
        return (*cpu, *self._board.types, *self._board.resources)

    @property
    def rows(self) -> Sequence[Row]:
        """The facts about each node: its policy, and the ledgers of its providers."""
        return self._board.parts

    def index(self, name: str) -> int:
        """Return the index of a node.

        Raises:
            InputError: there is no node of that name.
        """
        if name not in self._indices:
            raise InputError.at("the cluster", "the name of one of its nodes", name)
        return self._indices[name]

    def free(self, resource: str) -> Ints:
        """Return what is free of a resource, by node and NUMA node.

        A device counts at each NUMA node that it is near to.

        Raises:
            InputError: no node has the resource.
        """
        return self._amounts(resource, allocatable=False)

    def allocatable(self, resource: str) -> Ints:
        """Return what is allocatable of a resource, in the manner of `free`.

        Raises:
            InputError: no node has the resource.
        """
        return self._amounts(resource, allocatable=True)

    def nodes_with(
        self, resource: str, amounts: Sequence[int], indices: Ints, out: Ints | None = None
    ) -> Ints:
        """Return the masks of the NUMA nodes that have enough free: by node, then by amount.

        The 64th NUMA node is left out. It is minus 1 where all of them together have too little.

        Args:
            resource: a resource.
            amounts: what is asked for, in the units of `free`.
            indices: of the nodes that are asked about.
            out: where to write; None: a new array.

        Raises:
            InputError: no node has the resource.
        """
        masks = np.empty((len(indices), len(amounts)), np.int64) if out is None else out
        with self._lock.guard() as guard, guard.take():  # as in `judge`
            self._check_resource(resource)
            self._board.nodes_with(resource, np.array(amounts, np.int64), indices, masks)

        return masks

    def _check_resource(self, resource: str) -> None:
        if resource not in self.resources:
            raise InputError.at("the cluster", f"one of {', '.join(self.resources)}", resource)

    def _amounts(self, resource: str, *, allocatable: bool) -> Ints:
        with self._lock.guard() as guard, guard.take():  # as in `judge`
            self._check_resource(resource)
            self._widest = self._widest or max(row.numa_nodes for row in self._board.parts)
            amounts = np.zeros((len(self), self._widest), np.int64)
            self._board.free(resource, amounts, allocatable)
        return amounts

    def job(self, pod: Pod) -> Job:
        """Return a pod, prepared for being judged by `judge` again and again.

        Raises:
            InputError: it asks for too many resources, or its annotation of a NUMA policy cannot be
                read.
        """
        # kubelets that read it otherwise are judged again
        if pod.readings is not None and self.names:
            pod = pod.read_as(self._reading(0))
        return self._job(pod)

    def _job(self, pod: Pod) -> Job:
        own_policy = pod_policy(pod, self._default_exclusive)
        policy = -1 if own_policy is None else TOPOLOGY_POLICIES.index(own_policy.policy)
        return Job(self._board, requests_of(pod, self._board.resources), policy)

    def judge(
        self,
        job: Job,
        pod: Pod,
        strategy: str,
        into: Evaluation,
        start: int,
        stop: int,
        nodes: Ints | None = None,
    ) -> None:
        """Judge some nodes and write the answers in their places.

        Args:
            job: from `job`.
            pod: what it was made from.
            strategy: one of `STRATEGIES`.
            into: where to write; made by `Evaluation.empty`.
            start: the first node, or element of `nodes`.
            stop: the end.
            nodes: indices of nodes; None: all in order.

        Raises:
            InputError: there is no such strategy.
        """
        _check_strategy(strategy)

        with self._lock.guard() as guard, guard.take():  # an update moves what the board judges
            self._run(job, strategy, _flat_views(into), start, stop, nodes)
            where = slice(start, stop) if nodes is None else nodes[start:stop]
            if (
                job.policy >= 0
                or pod.readings is not None
                or _is_beyond_amounts(pod)
                or not into.exact[where].all()
            ):
                indices = np.arange(start, stop) if nodes is None else nodes[start:stop]
                self._ask(job, pod, strategy, into, indices)

    def judge_on_node(
        self, index: int, jobs: Iterable[tuple[Job, Pod]], strategy: str, into: Evaluation
    ) -> list[bool]:
        """Return which of several pods one node admits, each as if the others were not there.

        Args:
            index: that of the node.
            jobs: from `job`, and what they were made from.
            strategy: one of `STRATEGIES`.
            into: where answers are written, one over another; made by `Evaluation.empty`.

        Raises:
            InputError: there is no such strategy.
        """
        _check_strategy(strategy)
        nodes = np.array([index], np.int64)
        views = _flat_views(into)
        admitted = []
        with self._lock.guard() as guard, guard.take():  # as in `judge`
            for job, pod in jobs:
                self._run(job, strategy, views, 0, 1, nodes)
                if (
                    job.policy >= 0
                    or pod.readings is not None
                    or _is_beyond_amounts(pod)
                    or not into.exact[index]
                ):
                    self._ask(job, pod, strategy, into, nodes)
                admitted.append(bool(into.admitted[index]))

        return admitted

    def _run(
        self,
        job: Job,
        strategy: str,
        views: list[npt.NDArray[Any]],
        start: int,
        stop: int,
        nodes: Ints | None = None,
    ) -> None:
        """Judge from the amounts of the nodes."""
        number = STRATEGIES.index(strategy)
        for index in self._board.judge(job, number, start, stop, nodes, *views):
            # it changed meanwhile; answers are those between two operations
            with self._members[index].manager.lock.guard() as guard, guard.take():
                self._board.judge(job, number, 0, 1, np.array([index]), *views, locks_held=True)

    def _ask(self, job: Job, pod: Pod, strategy: str, into: Evaluation, indices: Ints) -> None:
        """Judge once more where the kubelet reads the pod otherwise.

        Ask nodes of which amounts could not tell. Where pods bring policies of their own, nodes
        know who shares a NUMA node with whom, and amounts do not: then every node that has pods is
        asked.
        """
        shared: list[int] = []
        jobs: dict[int, Job] = {}
        first = pod.read_as(self._reading(0)) if self.names else pod
        for read, where in self._readings(pod, indices):
            if read != first:
                nodes = np.array(where, np.int64)
                own_job = self._job(read)
                jobs |= dict.fromkeys(where, own_job)
                self._run(own_job, strategy, _flat_views(into), 0, len(where), nodes)

            if _is_beyond_amounts(read):
                shared += (index for index in where if index < len(self._members))

        indices = indices[indices < len(self._members)]
        unsure = indices[~into.exact[indices]].tolist()
        if job.policy >= 0:
            unsure += [index for index in indices.tolist() if self._members[index].manager.has_pods]
        if job.policy >= 0 or shared:
            unsure = sorted({*unsure, *shared})

        for index in unsure:
            self._ask_node(jobs.get(index, job), pod, strategy, into, index)

    def _ask_node(self, job: Job, pod: Pod, strategy: str, into: Evaluation, index: int) -> None:
        """Ask one node itself, and write its answer in its place.

        The job is that of the pod as the node's kubelet reads it.
        """
        try:
            admission = self._members[index].try_admit(pod)
        except ConfigError:  # the pod's own policy does not go with so many NUMA nodes
            into.exact[index] = True
            _write_refusal(into, index, MISMATCHED)
            return

        into.exact[index] = admission.exact
        if not admission.admitted:
            # a user's provider may refuse with a word of its own
            is_known = admission.reason in REASONS
            _write_refusal(into, index, REASONS.index(admission.reason) if is_known else _OTHER)
            return

        hints = [admission.containers[container.name].affinity for container in pod.all_containers]
        masks = [
            None if hint is None or hint.affinity is None else int(hint.affinity) for hint in hints
        ]
        affinity = reduce(or_, [mask or 0 for mask in masks], 0)
        is_preferred = all(hint is not None and hint.preferred for hint in hints)
        into.admitted[index] = True
        into.reason[index] = 0
        into.affinity[index] = affinity
        into.preferred[index] = bool(hints) and is_preferred

        number = STRATEGIES.index(strategy)
        into.score[index] = self._board.score(job, index, number, masks or [None])
        if strategy == "document" and job.policy >= 0:
            policies = self._members[index].pod_policies
            if policies.mixes_unwillingly(pod, affinity):
                into.score[index] = 0.0

    def _readings(self, pod: Pod, indices: Ints) -> Iterator[tuple[Pod, list[int]]]:
        """Yield each reading of a pod with the indices of the nodes whose kubelets read it so.

        Few pods are read in several ways: those with resources of their own, or with a status.
        """
        if pod.readings is None or not self.names:
            yield pod, indices.tolist() if _is_beyond_amounts(pod) else []
            return

        groups: dict[PodReading, list[int]] = {}
        for index in indices.tolist():
            groups.setdefault(self._reading(index), []).append(index)

        for reading, node_indices in groups.items():
            yield pod.read_as(reading), node_indices

    def _reading(self, index: int) -> PodReading:
        """Return how the kubelet of a node reads pods."""
        if index < len(self._members):
            return self._members[index].config.profile.pods
        return self._profiles[index].pods

    def evaluate(
        self,
        pod: Pod | Mapping[str, Any],
        strategy: str = "least-numa-nodes",
        *,
        threads: int = 1,
        exact: bool = False,
    ) -> Evaluation:
        """Return what each node would say to a pod, without changing any node.

        For a cluster made from nodes it is what `node.admit` would say, for every policy, scope,
        option and pod; the managers' answer alone, also where the node has `whole_verdict`.
        NodeResourceTopology objects carry amounts and no ids: an admission by one of them is an
        upper bound.

        The strategies, each higher for better:

        - `least-numa-nodes`: 100 less 12 for each NUMA node, and 6 more if no set of so many is
          nearer to each other.
        - `least-allocated`, `most-allocated`: the mean over the resources asked for of what would
          be left, or taken, of what is free on the NUMA nodes of the placement, in hundredths.
        - `balanced-allocation`: 100 x (1 - the variance of the parts that would be taken of each
          resource).
        - `document`: (100 - 10 x NUMA nodes) + 10 x the mean part of what there is that would then
          be in use; 0 where a pod would mix with others although its annotation prefers that it
          does not.

        The first four are those of the scheduler plugin for NodeResourceTopology
        (sigs.k8s.io/scheduler-plugins), which does not know the placement and looks at each NUMA
        node by itself; the last is that of Koordinator's design document. A pod that asks for
        nothing that is aligned scores 100 everywhere under all but the last.

        Args:
            pod: a `Pod`, or a manifest.
            strategy: one of `STRATEGIES`.
            threads: how many threads share the nodes at most; for little work the caller's own does
                all.
            exact: refuse to answer with upper bounds.

        Raises:
            InputError: the strategy is not known, `threads` is not a sensible number, the manifest
                is not one of a pod or asks for too many resources, or `exact` is wanted of a
                cluster of amounts only.
        """
        if not 1 <= threads <= _MOST_THREADS:
            raise InputError.at("threads", f"1 to {_MOST_THREADS} threads", threads)
        if exact and len(self._members) < len(self):
            raise InputError(AMOUNTS_ONLY)

        _check_strategy(strategy)
        parsed = pod if isinstance(pod, Pod) else read_pod(pod)
        answer = Evaluation.empty(len(self), self.names, self._numa_ids)
        with self._lock.guard() as guard, guard.take():
            # an update can bring resources that a job made before would not ask for
            job = self.job(parsed)
            run = partial(self._run, job, strategy, _flat_views(answer))
            if threads == 1 or len(self) * len(parsed.all_containers) < _WORTH_A_THREAD:
                run(0, len(self))
            else:
                part = -(-len(self) // max(_SHARES, 4 * threads))
                self._helpers.share(run, len(self), part, threads)

            self._ask(job, parsed, strategy, answer, np.arange(len(self)))

        return answer


def _are_in_turn(ids: tuple[int, ...]) -> bool:
    """Return whether ascending ids are 0, 1, 2 and so on."""
    return ids[-1:] == (len(ids) - 1,)


def _is_beyond_amounts(pod: Pod) -> bool:
    """Return whether rows of amounts cannot tell what a pod gets.

    They know nothing of what containers of one pod share, nor of devices of a claim that stand for
    a plugin's, nor of kubelets that find a place for containers that request no memory
    (`MemoryProvider`).
    """
    if pod.has_shared_pool or pod.constraints.claimed_devices:
        return True
    if not pod.pod_level.allows_bare_containers or pod.qos is not QOSClass.GUARANTEED:
        return False
    return not all(container.memory for container in pod.all_containers)


def _check_strategy(strategy: str) -> None:
    if strategy not in STRATEGIES:
        raise InputError.at("the strategy", f"one of {', '.join(STRATEGIES)}", strategy)


def _write_refusal(answer: Evaluation, index: int, reason: int) -> None:
    """Write that a node refuses."""
    answer.admitted[index] = False
    answer.reason[index] = reason
    answer.affinity[index] = 0
    answer.preferred[index] = False
    answer.score[index] = -np.inf


class SharedWork:
    """Ranges that several threads do, each of which takes one after another.

    An exception can come at any moment to the thread whose work it is (`ManagerLock` says how), so
    nothing here is a lock that it could leave taken. A list grows by one step that cannot be parted
    or not at all, and a message to a `SimpleQueue` is sent or not.
    """

    def __init__(self, run: Callable[[int, int], None], length: int, part: int) -> None:
        self.errors: list[BaseException] = []
        self._run = run
        self._length = length
        self._part = part
        self._starts = count(0, part)  # the next number goes to one thread only
        self._is_over = False
        self._begun: list[None] = []
        self._ended: list[None] = []
        self._ends: SimpleQueue[None] = SimpleQueue()

    def take_shares(self) -> None:
        """Do ranges until none is left, or it is over."""
        for start in self._starts:
            if start >= self._length or self._is_over:
                return
            self._run(start, min(start + self._part, self._length))

    def help(self) -> None:
        """Do the same in a helper, whose error is kept."""
        self._begun.append(None)
        try:
            self.take_shares()
        except BaseException as error:  # noqa: BLE001  # the caller raises it
            self.errors.append(error)
        finally:
            self._ended.append(None)
            self._ends.put(None)

    def end(self) -> None:
        """Let no helper begin a range, and wait for those that are in one.

        What helpers read may change after that. It may be called again, as often as it is
        interrupted: who has not ended yet sends one more message.
        """
        self._is_over = True
        while len(self._ended) < len(self._begun):
            self._ends.get()


Queue: TypeAlias = "SimpleQueue[SharedWork | None]"


def help_with(queue: Queue) -> None:
    """Help with each work of a queue, until None comes: for every helper that has this queue."""
    while (work := queue.get()) is not None:
        work.help()
        del work  # it knows the cluster, which would be kept

    queue.put(None)


class Helpers:
    """Threads that help the caller's own; they are started when there is work for them, and stay.

    The caller takes shares like everybody else and never waits for a helper that has not begun: on
    a machine whose other cores are busy it does all the work itself.

    Whatever exception comes to the caller, at whatever moment, no range is being done when `share`
    is over. The helpers are then let go, and the next call starts new ones. They are no threads of
    `threading`, whose start takes locks in Python code, and Python does not wait for them when it
    exits.
    """

    def __init__(self) -> None:
        self._lock = ManagerLock()
        self._queue: Queue | None = None
        self._size = 0  # how many threads have this queue
        self._pid = 0

    def __del__(self) -> None:
        self._let_go()

    def share(self, run: Callable[[int, int], None], length: int, part: int, threads: int) -> None:
        """Call `run(start, stop)` for ranges that together are 0 to `length`.

        It returns when all are done.

        Args:
            run: does a range; its error is raised here.
            length: how many elements there are.
            part: how many of them a thread takes at a time.
            threads: how many threads take part at most, the caller's own included.
        """
        helper_count = min(threads, -(-length // part)) - 1
        self._lock.attempt(self._do, self._abandon, SharedWork(run, length, part), helper_count)

    def _do(self, work: SharedWork, helper_count: int) -> None:
        if helper_count > 0:
            queue = self._queue_of(helper_count)
            for _ in range(helper_count):
                queue.put(work)

        work.take_shares()
        work.end()
        if work.errors:
            raise work.errors[0]

    def _abandon(self, work: SharedWork, _helper_count: int) -> None:
        """Have nobody do any more of it; how far starting helpers has come is not known."""
        self._let_go()
        work.end()

    def _queue_of(self, size: int) -> Queue:
        """Return the queue of so many threads; a forked process has none of its parent's."""
        if self._queue is None or self._pid != os.getpid():
            self._queue = SimpleQueue()
            self._size = 0
            self._pid = os.getpid()

        while self._size < size:
            start_new_thread(help_with, (self._queue,))
            self._size += 1

        return self._queue

    def _let_go(self) -> None:
        """Have the helpers end when they have done what they do."""
        if self._queue is not None:
            self._queue.put(None)
            self._queue = None
