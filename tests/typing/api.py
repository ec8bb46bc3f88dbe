"""Calls that only the type checker runs: it fails when the public types move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alignup import (
    Admission,
    AllocationError,
    BitMask,
    Cluster,
    Container,
    ContainerAllocation,
    CPUSet,
    Evaluation,
    HintList,
    HintProvider,
    KubeletConfig,
    Machine,
    Node,
    Pod,
    TopologyHint,
    TopologyManager,
    make_policy,
    read_pod,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Licenses:
    """A provider as a user writes one; it looks at nothing."""

    def topology_hints(
        self,
        pod: Pod,  # noqa: ARG002
        container: Container,  # noqa: ARG002
    ) -> Mapping[str, Sequence[TopologyHint] | None] | None:
        """Prefer nothing."""
        return {"example.com/license": None}

    def pod_topology_hints(self, pod: Pod) -> None:
        """Prefer nothing."""

    def allocate(
        self,
        pod: Pod,  # noqa: ARG002
        container: Container,  # noqa: ARG002
        affinity: TopologyHint,
    ) -> None:
        """Refuse."""
        raise AllocationError(f"no license near {affinity.affinity}")

    def release(self, pod_uid: str, container_name: str) -> None:
        """Have nothing to take back."""


def masks() -> tuple[BitMask, int, bool, str]:
    """Masks are sets of ints."""
    mask: BitMask = BitMask([0, 1]) | BitMask.from_int(4)
    return mask & mask, int(mask), 1 in mask and mask.is_narrower_than(mask), str(mask)


def merging() -> tuple[TopologyHint, bool]:
    """Policies merge packed lists and plain ones."""
    hints = HintList([TopologyHint(BitMask([0]), True), TopologyHint(None, False)])
    first: TopologyHint = hints[0]
    policy = make_policy("restricted", numa_nodes=2, distances=[[10, 20], [20, 10]], options={})
    return policy.merge([{"cpu": hints, "gpu": [first], "nic": None}, None])


def admitting(machine: Machine, manifest: dict[str, object]) -> CPUSet | None:
    """Nodes take pods and manifests, and providers of a user's own."""
    provider: HintProvider = Licenses()
    node = Node(machine, KubeletConfig(), providers=[provider])
    pod: Pod = read_pod(manifest)
    admission: Admission = node.admit(pod)
    node.remove(pod.uid)
    manager = TopologyManager(make_policy("none", 1), "container", [provider])
    verdict: bool = manager.admit(manifest).admitted
    return admission.containers["c0"].cpus if verdict else None


def many(nodes: list[Node], pod: Pod) -> bool:
    """Clusters judge many nodes at once."""
    answer: Evaluation = Cluster.from_nodes(nodes).evaluate(pod)
    return bool(answer.admitted.any())


def verdicts(node: Node, pod: Pod) -> dict[str, ContainerAllocation] | None:
    """An admission is its verdict."""
    admission = node.admit(pod)
    return dict(admission.containers) if admission else None
