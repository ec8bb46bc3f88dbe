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

    if not own_terms:
        terms = [{"matchFields": [_is_named(name)]} for name in names]
        if label:
            terms.append({"matchExpressions": [_exists(label)]})
    elif label:
        terms = [narrowed(term, "matchExpressions", _exists(label)) for term in own_terms]
    else:
        terms = [narrowed(term, "matchFields", _is_named(names[0])) for term in own_terms]

    return _with_terms(affinity, terms)


def unpinned(affinity: Mapping[str, Any] | None, label: str) -> Mapping[str, Any] | None:
    """Return a pod's `spec.affinity` as it was before `pinned` let the pod go by a label.

    One without the label is returned as it is.
    """
    terms = required_terms(affinity)
    if not any(has_label(term, label) for term in terms):
        return affinity

    own_terms = [_without_label(term, label) for term in terms]
    # a term of the label alone stands beside names: one that was narrowed by it has more
    if any(has_label(term, label) and not own for term, own in zip(terms, own_terms, strict=True)):
        own_terms = []
    return _with_terms(affinity, own_terms) or None


def has_label(term: Mapping[str, Any], label: str) -> bool:
    """Return whether a term asks for nodes that have a label, whatever its value."""
    return any(_asks_for(expression, label) for expression in term.get("matchExpressions") or ())


def _asks_for(expression: Mapping[str, Any], label: str) -> bool:
    return expression.get("key") == label and expression.get("operator") == "Exists"


def _without_label(term: Mapping[str, Any], label: str) -> dict[str, Any]:
    """Return what else a term asks for; nothing of it stays empty."""
    own = {
        kind: [
            requirement for requirement in term.get(kind) or () if not _asks_for(requirement, label)
        ]
        for kind in ("matchExpressions", "matchFields")
    }
    return {kind: requirements for kind, requirements in own.items() if requirements}


def _with_terms(
    affinity: Mapping[str, Any] | None, terms: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return a `spec.affinity` with other required terms of nodes, or without any."""
    node_affinity = dict((affinity or {}).get("nodeAffinity") or {})
    required = node_affinity.pop(REQUIRED, None) or {}
    if terms:
        node_affinity[REQUIRED] = {**required, NODE_SELECTOR_TERMS: terms}

    others = {kind: rules for kind, rules in (affinity or {}).items() if kind != "nodeAffinity"}
    return {**others, "nodeAffinity": node_affinity} if node_affinity else others


def _is_named(name: str) -> dict[str, Any]:
    return {"key": FIELD_NAME, "operator": "In", "values": [name]}


def _exists(label: str) -> dict[str, Any]:
    return {"key": label, "operator": "Exists"}


def narrowed(term: Mapping[str, Any], kind: str, requirement: dict[str, Any]) -> dict[str, Any]:
    """Return a term with one requirement more; one that matches no node as it is."""
    if not term.get("matchExpressions") and not term.get("matchFields"):
        return dict(term)
    return {**term, kind: [*(term.get(kind) or ()), requirement]}
