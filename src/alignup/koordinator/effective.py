"""Reads the NUMA topology policies that pods and nodes declare, and decides which one a pod runs under on a node.

They are declared in annotations, by a node's label, or by its kubelet. The matrix of the two is the design document's,
and the released scheduler agrees with it: a pod that names a policy runs under it, on nodes that have the same one or
none; a pod that names none runs under the node's. Up to `pod_policy`, policies have Koordinator's names; from there on
the kubelet's, as in the rest of alignup.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from alignup.errors import InputError, warn
from alignup.records import Record, replace
from alignup.text.json_text import decode_json
from alignup.text.known_keys import misspelt_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from alignup.kubernetes.kubelet_config import KubeletConfig
    from alignup.kubernetes.pod import Pod

# The pod annotation that Koordinator's scheduler reads.
NUMA_TOPOLOGY_SPEC: Final = "scheduling.koordinator.sh/numa-topology-spec"

# The pod annotation that the design document names.
RESOURCE_SPEC: Final = "scheduling.koordinator.sh/resource-spec"

# The node label that overrides the policy of the node's kubelet.
NODE_LABEL: Final = "node.koordinator.sh/numa-topology-policy"

BEST_EFFORT: Final = "BestEffort"
RESTRICTED: Final = "Restricted"
SINGLE_NUMA_NODE: Final = "SingleNUMANode"
POLICIES: Final = ("", SINGLE_NUMA_NODE, RESTRICTED, BEST_EFFORT)

REQUIRED: Final = "Required"
PREFERRED: Final = "Preferred"
EXCLUSIVES: Final = ("", REQUIRED, PREFERRED)

_POLICY_FIELD: Final = "numaTopologyPolicy"
_EXCLUSIVE_FIELD: Final = "singleNUMANodeExclusive"
# The fields of `resource-spec` that say nothing of NUMA nodes.
_OTHER_FIELDS: Final = ("preferredCPUBindPolicy", "requiredCPUBindPolicy", "preferredCPUExclusivePolicy")
_DECODE: Final = msgspec.json.Decoder(dict[str, object] | None).decode


class StatusCode(StrEnum):
    """The codes with which a step of a scheduler judges a pod and a node; names are the framework's.

    Attributes:
        UNSCHEDULABLE: not now; it may help when another pod leaves.
        UNRESOLVABLE: not with this pod and this node, whichever other pods leave.
    """

    SUCCESS = "Success"
    SKIP = "Skip"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"


class Status(Record):
    """A verdict; `reasons` are sorted."""

    code: StatusCode
    reasons: tuple[str, ...] = ()


SUCCESS = Status(StatusCode.SUCCESS)


class NumaTopologySpec(Record):
    """The fields of an annotation, in Koordinator's words and unchecked; "" where a field is missing."""

    policy: str = ""
    exclusive: str = ""


def decode_spec(annotations: Mapping[str, str], keys: Iterable[str]) -> NumaTopologySpec:
    """Return the fields of the first of the annotations `keys` that is present; values are not checked.

    Names of fields are compared without regard to case, other fields are ignored (misspelt ones with a warning) and
    null is a missing field, as for Go's decoder: an annotation that Koordinator accepts is accepted here.

    Args:
        annotations: the pod's annotations, by name.
        keys: the names to look for.

    Raises:
        InputError: the annotation is not JSON, no object, or a field is not a string.
    """
    key = next((key for key in keys if key in annotations), None)
    if key is None:
        return NumaTopologySpec()
    where = _place(key)
    fields = decode_json(annotations[key], "a JSON object", where, decode=_DECODE) or {}
    said = {_POLICY_FIELD.casefold(): "", _EXCLUSIVE_FIELD.casefold(): ""}
    known = {*said, *(name.casefold() for name in _OTHER_FIELDS)}
    strange = [name for name in fields if name.casefold() not in known]
    for name, meant in misspelt_keys(strange, (_POLICY_FIELD, _EXCLUSIVE_FIELD)):
        warn(f"the field {name} at {where} is unknown and ignored; did you mean {meant!r}?")
    for name, value in fields.items():
        folded = name.casefold()
        if folded not in said or value is None:
            continue
        if not isinstance(value, str):
            raise InputError.at(f"{where}.{name}", "a string", value)
        said[folded] = value
    return NumaTopologySpec(*said.values())


def checked_spec(annotations: Mapping[str, str]) -> NumaTopologySpec:
    """Return what the first of `ANNOTATIONS` that is present says, if every value in it is known; case matters.

    Raises:
        InputError: it cannot be read, or a value is none of those that the design document lists.
    """
    spec = decode_spec(annotations, ANNOTATIONS)
    where = next((_place(key) for key in ANNOTATIONS if key in annotations), "metadata.annotations")
    check_policy(spec.policy, f"{where}.{_POLICY_FIELD}")
    if spec.exclusive not in EXCLUSIVES:
        raise InputError.at(f"{where}.{_EXCLUSIVE_FIELD}", f"one of {_listed(EXCLUSIVES)}", spec.exclusive)
    return spec


def check_policy(policy: str, where: str) -> str:
    """Return `policy` if it is one of Koordinator's.

    Raises:
        InputError: it is not.
    """
    if policy not in POLICIES:
        raise InputError.at(where, f"one of {_listed(POLICIES)}", policy)
    return policy


def check_default_exclusive(exclusive: object, where: str) -> None:
    """Refuse what a scheduler cannot be configured with as its default exclusivity.

    Raises:
        InputError: it is neither `Required` nor `Preferred`.
    """
    if exclusive not in (REQUIRED, PREFERRED):
        raise InputError.at(where, f"{REQUIRED!r} or {PREFERRED!r}", exclusive)


def _place(key: str) -> str:
    return f'metadata.annotations["{key}"]'


def _listed(values: Iterable[str]) -> str:
    return ", ".join(map(repr, values))


# Koordinator's names of the policies, and the kubelet's.
KUBELET_NAMES: Final = {
    "": "none",
    SINGLE_NUMA_NODE: "single-numa-node",
    RESTRICTED: "restricted",
    BEST_EFFORT: "best-effort",
}

# The annotations that may carry a pod's policy; the first that is present counts alone, the scheduler's own first.
ANNOTATIONS: Final = (NUMA_TOPOLOGY_SPEC, RESOURCE_SPEC)


class PodPolicy(Record):
    """A pod's policy by the kubelet's name (`none`: no opinion), and its exclusivity.

    `exclusive` is `Required`, `Preferred` or "" (no exclusivity), with the default already in place.
    """

    policy: str
    exclusive: str


def pod_policy(pod: Pod, default: str = REQUIRED) -> PodPolicy | None:
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
    spec = checked_spec(annotations)
    if not spec.policy and not spec.exclusive:
        return None
    return PodPolicy(KUBELET_NAMES[spec.policy], default_exclusive(spec.policy, spec.exclusive, default))


def labelled_config(config: KubeletConfig, labels: Mapping[str, str]) -> KubeletConfig:
    """Return the configuration with the topology policy that the node's label names, if it names another one.

    Koordinator judges a pod as a whole under such a policy, so the scope becomes `pod`.

    Raises:
        InputError: the label holds a policy that does not exist.
    """
    policy = KUBELET_NAMES[check_policy(labels.get(NODE_LABEL, ""), f'metadata.labels["{NODE_LABEL}"]')]
    if policy in ("none", config.topology_manager_policy):
        return config
    return replace(config, topology_manager_policy=policy, topology_manager_scope="pod")


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
