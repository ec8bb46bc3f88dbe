"""A cluster: many nodes kept as arrays, and what each of them would say to a pod.

The judging is compiled (`alignup.core.amounts.board`); the other modules of this package read nodes, files and
NodeResourceTopology objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from alignup.cluster.columns import Arrays
from alignup.cluster.evaluation import REASONS, STRATEGIES, Evaluation
from alignup.cluster.node_amounts import NodeReader
from alignup.core.amounts.board import LIMITS, Job
from alignup.errors import InputError
from alignup.koordinator.effective import pod_policy
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES
from alignup.kubernetes.pod import Container, Pod

if TYPE_CHECKING:
    import os

    import numpy.typing as npt

    from alignup.cluster.shape import Row, Shape
    from alignup.node import Node

__all__ = ["Cluster"]

_MOST_THREADS = 256


class Cluster:
    """Thousands of nodes as numpy arrays: what each NUMA node has of each resource, and what is free.

    Make one with `from_nodes`, `from_json_lines` or `from_node_resource_topologies`. A cluster made from nodes keeps
    them; whoever admits or removes a pod on one of them calls `refresh` for it.

    Args:
        names: The names of the nodes, each once.
        shapes: The fixed part of each node.
        rows: What is free on each.
        upper_bound: Nothing that these nodes admit is certain, since the amounts are all that is known of them.

    Raises:
        InputError: a name comes twice, or there are more resources than a word has bits.
    """

    __slots__ = ("_arrays", "_default_exclusive", "_exact", "_indices", "_readers", "names", "nodes")

    def __init__(
        self, names: Sequence[str], shapes: Sequence[Shape], rows: Iterable[Row], *, upper_bound: bool = False
    ) -> None:
        self.names = tuple(names)
        self.nodes: tuple[Node, ...] = ()
        self._indices = {name: index for index, name in enumerate(self.names)}
        if len(self._indices) != len(self.names):
            twice = next(name for index, name in enumerate(self.names) if self._indices[name] != index)
            raise InputError.at("the cluster", "a name that no other node has", twice)
        self._arrays = Arrays(shapes, rows)
        self._readers: tuple[NodeReader, ...] = ()
        self._exact = not upper_bound
        self._default_exclusive = "Required"

    @classmethod
    def from_nodes(cls, nodes: Iterable[Node] | Mapping[str, Node]) -> Cluster:
        """Return the cluster of these nodes, with the pods that are on them now.

        Args:
            nodes: By name, or in order: then they are called `node-0`, `node-1` and so on.

        Raises:
            InputError: the nodes differ in `single_numa_node_exclusive`, which is one scheduler's for all of them.
        """
        by_name = nodes if isinstance(nodes, Mapping) else {f"node-{i}": node for i, node in enumerate(nodes)}
        readers = [NodeReader(node) for node in by_name.values()]
        cluster = cls(
            tuple(by_name), [reader.shape for reader in readers], (reader.row() for reader in readers)
        )
        cluster.nodes = tuple(by_name.values())
        cluster._readers = tuple(readers)
        cluster._default_exclusive = _one_default([node.single_numa_node_exclusive for node in cluster.nodes])
        return cluster

    @classmethod
    def from_json_lines(
        cls, lines: str | bytes | Iterable[str | bytes], source: str = "nodes", *, skip_bad: bool = False
    ) -> Cluster:
        """Return the cluster that a text describes, one node a line.

        A line is a JSON object with the keys of `Node.from_dict`, `name`, and perhaps `pods`: manifests of pods that
        are on the node already, in the order in which they came.

        Args:
            lines: The text, or its lines.
            source: What an error calls the text.
            skip_bad: warn of a line that is no node, and go on with the others.

        Raises:
            InputError: a line is not of this form, or a node refuses one of its pods.
            ConfigError: a kubelet would refuse to start on one of the nodes.
        """
        from alignup.cluster.json_lines import read_nodes  # noqa: PLC0415  # only who reads text pays for it

        return cls.from_nodes(read_nodes(lines, source, skip_bad=skip_bad))

    @classmethod
    def from_node_resource_topologies(
        cls,
        source: str | os.PathLike[str] | bytes | Mapping[str, Any] | Iterable[Mapping[str, Any]],
        *,
        skip_bad: bool = False,
    ) -> Cluster:
        """Return the cluster that NodeResourceTopology objects (`topology.node.k8s.io/v1alpha2`) describe.

        They know amounts and nothing else, so whatever is admitted is an upper bound (`Evaluation.exact`).

        Args:
            source: A path, the text of YAML or JSON as bytes, a decoded object (a List too), or several.
            skip_bad: warn of an object that is wrong, and go on with the others.

        Raises:
            InputError: something is no such object.
        """
        from alignup.cluster.node_resource_topology import read_topologies  # noqa: PLC0415  # as above

        found = read_topologies(source, skip_bad=skip_bad)
        return cls(
            [one.name for one in found],
            [one.shape for one in found],
            [one.row for one in found],
            upper_bound=True,
        )

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"<Cluster of {len(self)} nodes in {len(self._arrays.shapes)} shapes: {', '.join(self.resources)}>"

    @property
    def resources(self) -> tuple[str, ...]:
        """The resources that are counted by NUMA node: CPUs, types of memory, then devices by name."""
        cpu = ("cpu",) if any(shape.cpu for shape in self._arrays.shapes) else ()
        return (*cpu, *self._arrays.kinds, *self._arrays.resources)

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays together."""
        return self._arrays.nbytes

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The fixed part of each node: policy, scope, options, and what there is to give."""
        known = self._arrays.shapes
        return tuple([known[number] for number in self._arrays.shape_of])

    def index(self, name: str) -> int:
        """Return the index of a node.

        Raises:
            InputError: there is no node of that name.
        """
        if name not in self._indices:
            raise InputError.at("the cluster", "the name of one of its nodes", name)
        return self._indices[name]

    def free(self, resource: str) -> npt.NDArray[np.int64]:
        """Return what is free of a resource, by node and NUMA node; a device counts at each node it is near to.

        Raises:
            InputError: no node has the resource.
        """
        arrays = self._arrays
        if resource == "cpu":
            return arrays.cpu.copy()
        if resource in arrays.kinds:
            return arrays.memory[:, arrays.kinds.index(resource)].copy()
        columns = self._columns(resource)
        return _near(
            arrays.devices[:, columns], arrays.fixed["places"][arrays.shape_of, columns], arrays.width
        )

    def allocatable(self, resource: str) -> npt.NDArray[np.int64]:
        """Return what there is to give of a resource, in the manner of `free`.

        Raises:
            InputError: no node has the resource.
        """
        arrays, fixed = self._arrays, self._arrays.fixed
        if resource == "cpu":
            return np.asarray(fixed["cpu_allocatable"][arrays.shape_of])
        if resource in arrays.kinds:
            return np.asarray(fixed["memory_allocatable"][arrays.shape_of, arrays.kinds.index(resource)])
        columns = self._columns(resource)
        return _near(
            fixed["totals"][arrays.shape_of, columns], fixed["places"][arrays.shape_of, columns], arrays.width
        )

    def _columns(self, resource: str) -> slice:
        if resource not in self._arrays.resources:
            raise InputError.at("the cluster", f"one of {', '.join(self.resources)}", resource)
        return self._arrays.columns(resource)

    def refresh(self, index: int) -> None:
        """Read again what is free on a node, after a pod came or went there.

        Raises:
            InputError: the cluster was not made from nodes.
        """
        self._check_nodes()
        self._arrays.write(index, self._readers[index].row())

    def _check_nodes(self) -> None:
        if not self._readers:
            raise InputError("expected a cluster made from nodes, got one of amounts only")

    def job(self, pod: Pod) -> Job:
        """Return a pod, prepared for being judged by `judge` again and again.

        Raises:
            InputError: it asks for too many resources, or its annotation of a NUMA policy cannot be read.
        """
        wanted = pod_policy(pod, self._default_exclusive)
        demands = [_demand(self._arrays, pod)]
        demands += [_demand(self._arrays, container) for container in pod.all_containers]
        if wanted is None:
            return Job(self._arrays.board, demands)
        return Job(
            self._arrays.board, demands, TOPOLOGY_POLICIES.index(wanted.policy), bool(wanted.exclusive)
        )

    def empty_evaluation(self) -> Evaluation:
        """Return an answer that says no everywhere, to be filled in by `judge`."""
        count = len(self)
        return Evaluation(
            admitted=np.zeros(count, np.bool_),
            reason=np.zeros(count, np.uint8),
            affinity=np.zeros(count, np.uint64),
            preferred=np.zeros(count, np.bool_),
            score=np.full(count, -np.inf),
            exact=np.ones(count, np.bool_),
        )

    def judge(
        self,
        job: Job,
        strategy: str,
        into: Evaluation,
        start: int,
        stop: int,
        nodes: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Judge some nodes and write the answers in their places.

        Args:
            job: From `job`.
            strategy: One of `STRATEGIES`.
            into: Where to write.
            start: The first node, or element of `nodes`.
            stop: The end.
            nodes: Indices of nodes; None: all in order.

        Raises:
            InputError: there is no such strategy.
        """
        if strategy not in STRATEGIES:
            raise InputError.at("the strategy", f"one of {', '.join(STRATEGIES)}", strategy)
        views = [
            getattr(into, name) for name in ("admitted", "reason", "affinity", "preferred", "score", "exact")
        ]
        flat = [view.view(np.uint8) if view.dtype == np.bool_ else view for view in views]
        job.run(STRATEGIES.index(strategy), start, stop, nodes, *flat)
        if not self._exact:
            where = slice(start, stop) if nodes is None else nodes[start:stop]
            into.exact[where] &= ~into.admitted[where]

    def evaluate(
        self,
        pod: Pod | Mapping[str, Any],
        strategy: str = "least-numa-nodes",
        *,
        threads: int = 1,
        exact: bool = False,
    ) -> Evaluation:
        """Return what each node would say to a pod, from amounts, without placing it.

        Where a pod's exclusivity and the pods on a node decide, the node itself is asked: it admits the pod and removes
        it again.

        The strategies, each higher for better:

        - `least-numa-nodes`: 100 less 12 for each NUMA node, and 6 more if no set of so many is nearer to each other.
        - `least-allocated`, `most-allocated`: the mean over the resources asked for of what would be left, or taken,
          of what is free on the NUMA nodes of the placement, in hundredths.
        - `balanced-allocation`: 100 x (1 - the variance of the parts that would be taken of each resource).
        - `document`: (100 - 10 x NUMA nodes) + 10 x the mean part of what there is that would then be in use.

        The first four are those of the scheduler plugin for NodeResourceTopology (sigs.k8s.io/scheduler-plugins), which
        does not know the placement and looks at each NUMA node by itself; the last is that of Koordinator's design
        document. A pod that asks for nothing that is aligned scores 100 everywhere under all but the last.

        Args:
            pod: A `Pod`, or a manifest.
            strategy: One of `STRATEGIES`.
            threads: How many threads share the nodes.
            exact: Where amounts cannot tell, ask the node itself: it admits the pod and removes it again. Only
                a cluster made from nodes can do so.

        Raises:
            InputError: the strategy is not known, `threads` is not a sensible number, the manifest is not one of
                a pod or asks for too many resources, or `exact` is wanted of a cluster of amounts only.
        """
        if not 1 <= threads <= _MOST_THREADS:
            raise InputError.at("threads", f"1 to {_MOST_THREADS} threads", threads)
        if exact:
            self._check_nodes()
        parsed = pod if isinstance(pod, Pod) else Pod.from_manifest(pod)
        answer = self.empty_evaluation()
        job = self.job(parsed)
        if threads == 1:
            self.judge(job, strategy, answer, 0, len(self))
        else:
            bounds = list(pairwise(len(self) * part // threads for part in range(threads + 1)))
            with ThreadPoolExecutor(threads) as pool:
                for done in [pool.submit(self.judge, job, strategy, answer, *bound) for bound in bounds]:
                    done.result()
        unsure = self._exclusivity_decides(parsed, answer)
        answer.exact[unsure] = False
        self._ask_nodes(parsed, answer, ~answer.exact if exact else unsure)
        return answer

    def _exclusivity_decides(self, pod: Pod, answer: Evaluation) -> npt.NDArray[np.bool_]:
        """Return which nodes would admit the pod but for other pods that exclusivity may keep it away from.

        Amounts do not tell these nodes apart; a node that refuses anyway stays refused.
        """
        wanted = pod_policy(pod, self._default_exclusive)
        if wanted is None or not wanted.exclusive or not self.nodes:
            return np.zeros(len(self), np.bool_)
        return np.asarray(answer.admitted & (self._arrays.exclusive != 0))

    def _ask_nodes(self, pod: Pod, answer: Evaluation, asked: npt.NDArray[np.bool_]) -> None:
        """Replace the answers that amounts cannot give by the nodes' own."""
        for index in np.flatnonzero(asked).tolist():
            node = self.nodes[index]
            admission = node.admit(pod)
            hints = [got.affinity for got in admission.containers.values() if got.affinity is not None]
            answer.exact[index] = True
            answer.admitted[index] = admission.admitted
            answer.affinity[index] = 0
            answer.preferred[index] = bool(hints) and all(hint.preferred for hint in hints)
            if admission.admitted:
                for hint in hints:
                    answer.affinity[index] |= np.uint64(0 if hint.affinity is None else int(hint.affinity))
                node.remove(pod.uid)
            else:
                answer.reason[index] = REASONS.index(admission.reason)
                answer.score[index] = -np.inf
            self.refresh(index)


def _one_default(defaults: Sequence[str]) -> str:
    """Return the default of exclusivity that all nodes share; `Required` if there is no node."""
    found = sorted(set(defaults))
    if len(found) > 1:
        expected = "the same value for every node of a cluster"
        raise InputError.at("singleNUMANodeExclusive", expected, found)
    return found[0] if found else "Required"


def _demand(
    arrays: Arrays, wish: Pod | Container
) -> tuple[int, list[tuple[int, int]], list[tuple[int, int]], bool]:
    """Return what is asked for, by the numbers of the arrays; devices that no node has are nobody's business."""
    kinds = {kind: number for number, kind in enumerate(arrays.kinds)}
    numbers = {resource: number for number, resource in enumerate(arrays.resources)}
    memory = [(kinds.get(kind, -1), size) for kind, size in wish.memory]
    devices = [(numbers[resource], count) for resource, count in wish.devices if resource in numbers]
    for asked, most, what in (
        (memory, LIMITS[0], "types of memory"),
        (devices, LIMITS[1], "device resources"),
    ):
        if len(asked) > most:
            raise InputError.at("the pod", f"at most {most} {what}", len(asked))
    hands_on = isinstance(wish, Container) and wish.is_init and not wish.is_sidecar
    return wish.exclusive_cpus, memory, devices, hands_on


def _near(counts: npt.NDArray[np.int64], places: npt.NDArray[np.uint64], width: int) -> npt.NDArray[np.int64]:
    """Return the devices near to each NUMA node."""
    bits = (places[:, :, None] >> np.arange(width, dtype=np.uint64)) & np.uint64(1)
    near: npt.NDArray[np.int64] = np.einsum("nc,ncw->nw", counts, bits.astype(np.int64))
    return near
