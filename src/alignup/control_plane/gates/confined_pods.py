"""Makes pods that may do nothing, which also a strict Pod Security Standard lets pass.

Their image is in no registry, so that their containers never run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def confined_pod(
    metadata: Mapping[str, Any], resources: Mapping[str, Any], **spec: Any
) -> dict[str, Any]:
    """Return the manifest of a pod with one container.

    Args:
        metadata: of the pod.
        resources: of the container.
        spec: further fields of the pod's spec.
    """
    container = {
        "name": "main",
        "image": "none.invalid/none",
        "resources": resources,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security = {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": dict(metadata),
        "spec": {
            "containers": [container],
            "securityContext": security,
            "automountServiceAccountToken": False,
            **spec,
        },
    }
