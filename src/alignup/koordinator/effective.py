"""Reads the NUMA topology policies that pods and nodes declare.

It decides which one a pod runs under on a node. They are declared in annotations, by a node's
label, or by its kubelet. The matrix of the two is the design document's, and the released scheduler
agrees with it: a pod that names a policy runs under it, on nodes that have the same one or none; a
pod that names none runs under the node's. Up to `pod_policy`, policies have Koordinator's names;
from there on the kubelet's, as in the rest of alignup.

`Occupancy` counts which NUMA nodes pods under SingleNUMANode hold, and which pods across several;
exclusivity keeps them apart. The policies of one node apply that in
`alignup.koordinator.node_policies`, a scheduler in `alignup.koordinator.scheduling`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from alignup.errors import InputError, warn
from alignup.machine.bits import ids_of
from alignup.records import Record, replace
from alignup.text.counting import named, some_of
from alignup.text.json_text import decode_json
from alignup.text.known_keys import misspelt_keys

if TYPE_CHECKING:
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
_OTHER_FIELDS: Final = (
    "preferredCPUBindPolicy",
    "requiredCPUBindPolicy",
    "preferredCPUExclusivePolicy",
)
_DECODE: Final = msgspec.json.Decoder(dict[str, object] | None).decode

# Koordinator's names of the policies, and the kubelet's.
KUBELET_NAMES: Final = dict(
    zip(POLICIES, ("none", "single-numa-node", "restricted", "best-effort"), strict=True)
)

# The annotations that may carry a pod's policy; the first that is present counts alone, the
# scheduler's own first.
ANNOTATIONS: Final = (NUMA_TOPOLOGY_SPEC, RESOURCE_SPEC)

# The number of pods that a sentence names before it counts the rest.
MOST_NAMED: Final = 4


class StatusCode(StrEnum):
    """The codes with which a step of a scheduler judges a pod and a node.

    The names are the framework's.

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
    """The fields of an annotation, in Koordinator's words and unchecked; "" for a missing one."""

    policy: str = ""
    exclusive: str = ""


def decode_spec(annotations: Mapping[str, str], keys: Iterable[str]) -> NumaTopologySpec:
    """Return the fields of the first of the annotations `keys` that is present.

    Values are not checked. Names of fields are compared without regard to case, other fields are
    ignored (misspelt ones with a warning) and null is a missing field, as for Go's decoder: an
    annotation that Koordinator accepts is accepted here.

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
    values_of = {_POLICY_FIELD.casefold(): "", _EXCLUSIVE_FIELD.casefold(): ""}
    folded_names = {*values_of, *(name.casefold() for name in _OTHER_FIELDS)}
    unknown_names = [name for name in fields if name.casefold() not in folded_names]
    for name, meant in misspelt_keys(unknown_names, (_POLICY_FIELD, _EXCLUSIVE_FIELD)):
        warn(f"the field {name} at {where} is unknown and ignored; did you mean {meant!r}?")

    for name, value in fields.items():
        folded = name.casefold()
        if folded not in values_of or value is None:
            continue
        if not isinstance(value, str):
            raise InputError.at(f"{where}.{name}", "a string", value)
        values_of[folded] = value

    return NumaTopologySpec(*values_of.values())


def checked_spec(annotations: Mapping[str, str]) -> NumaTopologySpec:
    """Return what the first of `ANNOTATIONS` that is present says, if every value in it is known.

    Case matters.

    Raises:
        InputError: it cannot be read, or a value is none of those that the design document lists.
    """
    spec = decode_spec(annotations, ANNOTATIONS)
    where = next((_place(key) for key in ANNOTATIONS if key in annotations), "metadata.annotations")
    check_policy(spec.policy, f"{where}.{_POLICY_FIELD}")
    if spec.exclusive not in EXCLUSIVES:
        raise InputError.at(
            f"{where}.{_EXCLUSIVE_FIELD}", f"one of {_listed(EXCLUSIVES)}", spec.exclusive
        )
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


class PodPolicy(Record):
    """A pod's policy by the kubelet's name (`none`: no opinion), and its exclusivity.

    `exclusive` is `Required`, `Preferred` or "" (no exclusivity), with the default already in
    place.
    """

    policy: str
    exclusive: str


def pod_policy(pod: Pod, default: str = REQUIRED) -> PodPolicy | None:
    """Return what the pod's annotations ask for, None if they do not mention NUMA topology.

    Args:
        pod: the pod; `scheduling.koordinator.sh/numa-topology-spec` is read if it is there, else
            `scheduling.koordinator.sh/resource-spec`.
        default: the exclusivity of a pod that names a policy and no exclusivity; a scheduler's
            argument `singleNUMANodeExclusive`.

    Raises:
        InputError: the annotation is no JSON object, or holds a value that the design does not
            know.
    """
    annotations = pod.annotations
    if not annotations:
        return None

    spec = checked_spec(annotations)
    if not spec.policy and not spec.exclusive:
        return None

    return PodPolicy(
        KUBELET_NAMES[spec.policy], default_exclusive(spec.policy, spec.exclusive, default)
    )


def labelled_config(config: KubeletConfig, labels: Mapping[str, str]) -> KubeletConfig:
    """Return the configuration with the topology policy that the node's label names.

    Without a label, or with that of the same policy, it stays as it is. Koordinator judges a pod as
    a whole under another policy, so the scope becomes `pod`.

    Raises:
        InputError: the label holds a policy that does not exist.
    """
    label = check_policy(labels.get(NODE_LABEL, ""), f'metadata.labels["{NODE_LABEL}"]')
    policy = KUBELET_NAMES[label]
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
    if pod == none:
        return node
    return pod


def default_exclusive(policy: str, exclusive: str, default: str = REQUIRED) -> str:
    """Return how exclusive a pod is: what it says, else `default` if it names a policy (not "")."""
    if policy and not exclusive:
        return default
    return exclusive


def mismatch_sentence(pod: str, node: str) -> str:
    """Return why a pod's policy keeps it from a node, naming both."""
    rule = "a pod runs on nodes of its own policy and on nodes without one"
    return f"the pod asks for NUMA topology policy {pod}, the node has {node}: {rule}"


class Occupancy(Record):
    """Two masks of NUMA nodes: held by pods in a single node, held by pods across several.

    They may overlap. Bit i is NUMA node i, in whichever numbering the caller keeps.
    """

    single: int = 0
    multi: int = 0

    def __or__(self, other: Occupancy) -> Occupancy:
        return Occupancy(self.single | other.single, self.multi | other.multi)


NOTHING_HELD: Final = Occupancy()


def mixes(mask: int, occupancy: Occupancy, *, single: bool) -> bool:
    """Return whether a pod on these NUMA nodes would share one with a pod of the other kind.

    Args:
        mask: the NUMA nodes of a hint of the pod, or those that it holds.
        occupancy: what the other pods hold.
        single: the pod runs under SingleNUMANode, and keeps away from pods across NUMA nodes; else
            it keeps away from pods under SingleNUMANode where it spans several NUMA nodes itself.
    """
    if single:
        return bool(mask & occupancy.multi)
    return mask.bit_count() > 1 and bool(mask & occupancy.single)


def exclusivity_sentence(holders: Mapping[str, str]) -> str:
    """Return why exclusivity refuses a pod, naming the pods that it keeps away from.

    Args:
        holders: what each pod in the way is called, and the NUMA nodes that it holds, in words.
    """
    pods = some_of([f"pod {name!r} {where}" for name, where in holders.items()], MOST_NAMED)
    return (
        f"exclusivity (singleNUMANodeExclusive {REQUIRED}) keeps it away from "
        f"{pods or 'the pods there'}"
    )


def holding_words(occupancy: Occupancy, numa_ids: Sequence[int], *, single: bool) -> str:
    """Return in words the NUMA nodes that a pod holds under SingleNUMANode, or across them."""
    if single:
        nodes = named("NUMA node", ids_of(occupancy.single, numa_ids))
        return f"on {nodes} under SingleNUMANode"

    nodes = named("NUMA node", ids_of(occupancy.multi, numa_ids))
    return f"across {nodes}"


def document_score(numa_nodes: int, requested: float, allocatable: float) -> float:
    """Return the design document's score: (100 - 10 x NUMA nodes) + 10 x requested / allocated.

    The document explains the second term as utilisation, so `requested` includes what is already
    given away.

    Args:
        numa_nodes: how many NUMA nodes the placement spans.
        requested: what pods on these nodes ask for of a resource, the new one included.
        allocatable: how much of it these nodes have; without any, the term is 0.
    """
    utilisation = 0.0
    if allocatable:
        utilisation = requested / allocatable
    return 100 - 10 * numa_nodes + 10 * utilisation
