"""Decides which policy a pod runs under on a node, from the pod's policy and the node's.

The matrix is the design document's, and the released scheduler agrees with it: a pod that names a policy runs under
it, on nodes that have the same one or none; a pod that names none runs under the node's. Policies have the kubelet's
names here, as in the rest of alignup; `alignup.koordinator.annotation` reads them from annotations and labels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from alignup.errors import InputError
from alignup.koordinator.annotation import (
    BEST_EFFORT,
    NODE_LABEL,
    NUMA_TOPOLOGY_SPEC,
    REQUIRED,
    RESOURCE_SPEC,
    RESTRICTED,
    SINGLE_NUMA_NODE,
    check_policy,
    check_spec,
    declared_node_policy,
    decode_spec,
    present_place,
)
from alignup.koordinator.status import Status, StatusCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from alignup.kubernetes.kubelet_config import KubeletConfig

__all__ = [
    "Annotated",
    "EffectivePolicy",
    "PodPolicy",
    "PolicyMismatch",
    "default_exclusive",
    "effective_policy",
    "joined_policy",
    "labelled_config",
    "mismatch_sentence",
    "node_policy",
    "pod_policy",
]

KUBELET_NAMES: Final = {
    "": "none",
    SINGLE_NUMA_NODE: "single-numa-node",
    RESTRICTED: "restricted",
    BEST_EFFORT: "best-effort",
}
"""Koordinator's names of the policies, and the kubelet's."""

ANNOTATIONS: Final = (NUMA_TOPOLOGY_SPEC, RESOURCE_SPEC)
"""The annotations that may carry a pod's policy; the first that is present counts alone, the scheduler's own first."""


class Annotated(Protocol):
    """An object with annotations, such as an `alignup.kubernetes.pod.Pod`."""

    @property
    def annotations(self) -> Mapping[str, str]:
        """The annotations, by name."""


@dataclass(frozen=True, slots=True)
class PodPolicy:
    """A pod's policy by the kubelet's name (`none`: no opinion), and its exclusivity.

    `exclusive` is `Required`, `Preferred` or "" (no exclusivity), with the default already in place.
    """

    policy: str
    exclusive: str


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """The policy, by the kubelet's name, that a pod runs under on a node, and its exclusivity."""

    policy: str
    exclusive: str


@dataclass(frozen=True, slots=True)
class PolicyMismatch:
    """A pod and a node that name different policies (the kubelet's names): the pod can never run there."""

    pod_policy: str
    node_policy: str

    @property
    def reason(self) -> str:
        """The sentence that names both."""
        return mismatch_sentence(self.pod_policy, self.node_policy)

    @property
    def status(self) -> Status:
        """The verdict: UnschedulableAndUnresolvable."""
        return Status(StatusCode.UNRESOLVABLE, (self.reason,))


def pod_policy(pod: Annotated, default: str = REQUIRED) -> PodPolicy | None:
    """Return what the pod's annotations ask for, None if they do not mention NUMA topology.

    Args:
        pod: the pod; `scheduling.koordinator.sh/numa-topology-spec` is read if it is there, else
            `scheduling.koordinator.sh/resource-spec`.
        default: the exclusivity of a pod that names a policy and no exclusivity; a scheduler's argument
            `singleNUMANodeExclusive`.

    Raises:
        InputError: the annotation is no JSON object, or holds a value that the design does not know.
    """
    annotations = pod.annotations
    if not annotations:
        return None
    spec = decode_spec(annotations, ANNOTATIONS)
    check_spec(spec, present_place(annotations, ANNOTATIONS))
    if not spec.policy and not spec.exclusive:
        return None
    return PodPolicy(KUBELET_NAMES[spec.policy], default_exclusive(spec.policy, spec.exclusive, default))


def node_policy(labels: Mapping[str, str], kubelet_policies: Iterable[str] = ()) -> str:
    """Return the node's policy, by the kubelet's name: its label if it has one, else its kubelet's.

    Args:
        labels: the node's labels; `node.koordinator.sh/numa-topology-policy` is read.
        kubelet_policies: the policies that the node reports (see `declared_node_policy`).

    Raises:
        InputError: the label holds a policy that does not exist.
    """
    declared = declared_node_policy(labels, kubelet_policies)
    return KUBELET_NAMES[check_policy(declared, f'metadata.labels["{NODE_LABEL}"]')]


def labelled_config(config: KubeletConfig, labels: Mapping[str, str]) -> KubeletConfig:
    """Return the configuration with the topology policy that the node's label names, if it names another one.

    Koordinator judges a pod as a whole under such a policy, so the scope becomes `pod`.

    Raises:
        InputError: the label holds a policy that does not exist.
    """
    policy = node_policy(labels)
    if policy in ("none", config.topology_manager_policy):
        return config
    return replace(config, topology_manager_policy=policy, topology_manager_scope="pod")


def effective_policy(pod: PodPolicy | None, node: str) -> EffectivePolicy | PolicyMismatch:
    """Return the policy that a pod runs under on a node, or which two policies do not go together.

    Args:
        pod: the pod's policy; None: it has no annotation.
        node: the node's policy, by the kubelet's name.

    Raises:
        InputError: the node's policy is unknown.
    """
    if node not in KUBELET_NAMES.values():
        raise InputError.at("the node's policy", f"one of {', '.join(KUBELET_NAMES.values())}", node)
    if pod is None:
        return EffectivePolicy(node, "")
    policy = joined_policy(pod.policy, node, none="none")
    if policy is None:
        return PolicyMismatch(pod.policy, node)
    return EffectivePolicy(policy, pod.exclusive)


def joined_policy(pod: str, node: str, *, none: str = "") -> str | None:
    """Return the one policy that two make, None if they do not go together.

    Args:
        pod: the pod's policy.
        node: the node's policy.
        none: the word for having none.
    """
    if none not in (pod, node) and pod != node:
        return None
    return node if pod == none else pod


def default_exclusive(policy: str, exclusive: str, default: str = REQUIRED) -> str:
    """Return how exclusive a pod is: what it says, else `default` if it names a policy (not "")."""
    return default if policy and not exclusive else exclusive


def mismatch_sentence(pod: str, node: str) -> str:
    """Return why a pod's policy keeps it from a node, naming both."""
    return (
        f"the pod asks for NUMA topology policy {pod}, the node has {node}: "
        f"a pod runs on nodes of its own policy and on nodes without one"
    )
