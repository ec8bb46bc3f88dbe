"""The kind NodeResourceTopology (topology.node.k8s.io/v1alpha2), as an API server is told of it."""

from __future__ import annotations

from typing import Any

__all__ = ["DEFINITION", "PATH"]

TEXT = {"type": "string"}
QUANTITY = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}

PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def listed(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the schema of a list of objects; what it does not name is dropped."""
    item = {
        "type": "object",
        "required": list(required),
        "properties": {**required, **(optional or {})},
    }
    return {"type": "array", "items": item}


ATTRIBUTES = listed({"name": TEXT, "value": TEXT})
RESOURCES = listed(
    {"name": TEXT, "capacity": QUANTITY, "allocatable": QUANTITY, "available": QUANTITY}
)
COSTS = listed({"name": TEXT, "value": {"type": "integer", "format": "int64"}})
ZONES = listed(
    {"name": TEXT, "type": TEXT},
    {"parent": TEXT, "costs": COSTS, "attributes": ATTRIBUTES, "resources": RESOURCES},
)
SCHEMA = {
    "type": "object",
    "required": ["zones"],
    "properties": {
        "apiVersion": TEXT,
        "kind": TEXT,
        "metadata": {"type": "object"},
        "topologyPolicies": {"type": "array", "items": TEXT},
        "attributes": ATTRIBUTES,
        "zones": ZONES,
    },
}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "noderesourcetopologies.topology.node.k8s.io",
        # groups below k8s.io need one
        "annotations": {
            "api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870"
        },
    },
    "spec": {
        "group": "topology.node.k8s.io",
        "scope": "Cluster",
        "names": {
            "kind": "NodeResourceTopology",
            "listKind": "NodeResourceTopologyList",
            "plural": "noderesourcetopologies",
            "singular": "noderesourcetopology",
        },
        "versions": [
            {
                "name": "v1alpha2",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": SCHEMA},
            }
        ],
    },
}
