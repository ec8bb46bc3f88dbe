"""Reads the NUMA topology policies that pods and nodes declare: annotations, a label, kubelet policies.

Which policy follows from those of a pod and a node is decided in `alignup.koordinator.effective`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from alignup.errors import InputError
from alignup.text.json_text import decode_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "BEST_EFFORT",
    "NODE_LABEL",
    "NUMA_TOPOLOGY_SPEC",
    "PREFERRED",
    "REQUIRED",
    "RESOURCE_SPEC",
    "RESTRICTED",
    "SINGLE_NUMA_NODE",
    "NumaTopologySpec",
    "check_default_exclusive",
    "check_policy",
    "check_spec",
    "declared_node_policy",
    "decode_spec",
]

NUMA_TOPOLOGY_SPEC: Final = "scheduling.koordinator.sh/numa-topology-spec"
"""The pod annotation that Koordinator's scheduler reads."""

RESOURCE_SPEC: Final = "scheduling.koordinator.sh/resource-spec"
"""The pod annotation that the design document names."""

NODE_LABEL: Final = "node.koordinator.sh/numa-topology-policy"
"""The node label that overrides the policy of the node's kubelet."""

BEST_EFFORT: Final = "BestEffort"
RESTRICTED: Final = "Restricted"
SINGLE_NUMA_NODE: Final = "SingleNUMANode"
POLICIES: Final = ("", SINGLE_NUMA_NODE, RESTRICTED, BEST_EFFORT)

REQUIRED: Final = "Required"
PREFERRED: Final = "Preferred"
EXCLUSIVES: Final = ("", REQUIRED, PREFERRED)

KUBELET_POLICIES: Final = {
    "BestEffort": BEST_EFFORT,
    "Restricted": RESTRICTED,
    "SingleNUMANodePodLevel": SINGLE_NUMA_NODE,
}
"""The entries of a reported kubelet policy list that count; the scheduler passes over all others."""

_POLICY_FIELD: Final = "numaTopologyPolicy"
_EXCLUSIVE_FIELD: Final = "singleNUMANodeExclusive"
_DECODE: Final = msgspec.json.Decoder(dict[str, object] | None).decode


@dataclass(frozen=True, slots=True)
class NumaTopologySpec:
    """The fields of an annotation, in Koordinator's words and unchecked; "" where a field is missing."""

    policy: str = ""
    exclusive: str = ""


def decode_spec(annotations: Mapping[str, str], keys: Iterable[str]) -> NumaTopologySpec:
    """Return the fields of the first of the annotations `keys` that is present; values are not checked.

    Names of fields are compared without regard to case, other fields are passed over and null is a missing field, as
    for Go's decoder: an annotation that Koordinator accepts is accepted here.

    Args:
        annotations: the pod's annotations, by name.
        keys: the names to look for.

    Raises:
        InputError: the annotation is not JSON, no object, or a field is not a string.
    """
    for key in keys:
        text = annotations.get(key)
        if text is not None:
            return _decoded(text, _place(key))
    return NumaTopologySpec()


def check_spec(spec: NumaTopologySpec, where: str) -> NumaTopologySpec:
    """Return `spec` if every value in it is known.

    Raises:
        InputError: a value is none of those that the design document lists; case matters.
    """
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


def check_default_exclusive(exclusive: object, where: str) -> str:
    """Return `exclusive` if a scheduler can be configured with it as its default.

    Raises:
        InputError: it is neither `Required` nor `Preferred`.
    """
    if exclusive not in (REQUIRED, PREFERRED):
        raise InputError.at(where, f"{REQUIRED!r} or {PREFERRED!r}", exclusive)
    return str(exclusive)


def declared_node_policy(labels: Mapping[str, str], kubelet_policies: Iterable[str] = ()) -> str:
    """Return the node's policy in Koordinator's words, unchecked: its label, else its kubelet's.

    Args:
        labels: the node's labels, by name; an empty label is no label.
        kubelet_policies: the topology policies that the node reports, as a NodeResourceTopology object lists
            them; the first that is `BestEffort`, `Restricted` or `SingleNUMANodePodLevel` counts.
    """
    label = labels.get(NODE_LABEL, "")
    if label:
        return label
    for name in kubelet_policies:
        if name in KUBELET_POLICIES:
            return KUBELET_POLICIES[name]
    return ""


def present_place(annotations: Mapping[str, str], keys: Iterable[str]) -> str:
    """Return the place, for an error message, of the first of the annotations `keys` that is present."""
    return next((_place(key) for key in keys if key in annotations), "metadata.annotations")


def _place(key: str) -> str:
    return f'metadata.annotations["{key}"]'


def _decoded(text: str, where: str) -> NumaTopologySpec:
    """Return the fields in the text of an annotation."""
    fields = decode_json(text, "a JSON object", where, _DECODE)
    said = {_POLICY_FIELD.casefold(): "", _EXCLUSIVE_FIELD.casefold(): ""}
    for name, value in (fields or {}).items():
        folded = name.casefold()
        if folded not in said or value is None:
            continue
        if not isinstance(value, str):
            raise InputError.at(f"{where}.{name}", "a string", value)
        said[folded] = value
    return NumaTopologySpec(*said.values())


def _listed(values: Iterable[str]) -> str:
    return ", ".join(map(repr, values))
