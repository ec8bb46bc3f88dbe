"""Pins a gated pod to nodes by its required node affinity.

What an API server lets one change of a pod that has a gate (`validateNodeAffinityMutation`, 1.37):
without required terms, any; with some, requirements may be added behind those of a term, and the
number of terms stays. A term that is empty matches no node, and stays empty. A field selector takes
`metadata.name` with one value (`ValidateNodeFieldSelectorRequirement`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from alignup.kubernetes.node_fit import FIELD_NAME
from alignup.kubernetes.pod import NODE_SELECTOR_TERMS, REQUIRED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The scheduling gate behind which pods wait for a place.
GATE: Final = "alignup.dev/room"

# The label of namespaces whose new pods get the gate once the policy is installed, and its value.
NAMESPACE_LABEL: Final = "alignup.dev/gates"
LABEL_VALUE: Final = "enabled"


def required_terms(affinity: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Return the required terms of the node affinity in a pod's `spec.affinity`."""
    node_affinity = (affinity or {}).get("nodeAffinity") or {}
    return list((node_affinity.get(REQUIRED) or {}).get(NODE_SELECTOR_TERMS) or ())


def pinned(
    affinity: Mapping[str, Any] | None, names: Sequence[str], label: str = ""
) -> dict[str, Any]:
    """Return a pod's `spec.affinity` with which the pod goes to certain nodes only.

    Without required terms of its own these are the nodes of the names, and those that have the
    label. With such terms, which can only become narrower, it is one node, or the nodes that have
    the label: `label` wins there, and the names do not count.

    kube-scheduler looks at the named nodes only where each term names one, and at all nodes where
    there is a label (`NodeAffinity.PreFilter`).

    Args:
        affinity: `spec.affinity` as it is; nothing else in it changes.
        names: the nodes, by name.
        label: the key of a label of nodes; empty: none.

    Raises:
        ValueError: there is no node to go to, or the pod has required terms and several nodes are
            named without a label.
    """
    if not names and not label:
        raise ValueError("a pod needs a node, or the label of some, to be pinned to")

    own_terms = required_terms(affinity)
    if own_terms and not label and len(names) > 1:
        raise ValueError("terms of a pod's own can be pinned to one node by name, or to a label")

    has_label = {"key": label, "operator": "Exists"}
    if not own_terms:
        terms = [{"matchFields": [_is_named(name)]} for name in names]
        if label:
            terms.append({"matchExpressions": [has_label]})
    elif label:
        terms = [narrowed(term, "matchExpressions", has_label) for term in own_terms]
    else:
        terms = [narrowed(term, "matchFields", _is_named(names[0])) for term in own_terms]

    node_affinity = (affinity or {}).get("nodeAffinity") or {}
    required = {**(node_affinity.get(REQUIRED) or {}), NODE_SELECTOR_TERMS: terms}
    return {**(affinity or {}), "nodeAffinity": {**node_affinity, REQUIRED: required}}


def _is_named(name: str) -> dict[str, Any]:
    return {"key": FIELD_NAME, "operator": "In", "values": [name]}


def narrowed(term: Mapping[str, Any], kind: str, requirement: dict[str, Any]) -> dict[str, Any]:
    """Return a term with one requirement more; one that matches no node as it is."""
    if not term.get("matchExpressions") and not term.get("matchFields"):
        return dict(term)
    return {**term, kind: [*(term.get(kind) or ()), requirement]}
