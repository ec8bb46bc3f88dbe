"""Pods that may do nothing."""

from __future__ import annotations

from alignup.control_plane.gates.confined_pods import confined_pod
from alignup.kubernetes.manifest import read_pod


def test_what_a_restricted_namespace_asks_of_a_pod() -> None:
    """The fields of the Pod Security Standard `restricted` (Kubernetes 1.37)."""
    amounts = {"cpu": "1", "memory": "64Mi"}
    manifest = confined_pod(
        {"name": "p", "namespace": "n"}, {"requests": amounts}, priorityClassName="low"
    )
    spec = manifest["spec"]
    (container,) = spec["containers"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    assert spec["priorityClassName"] == "low"
    assert read_pod(manifest).namespaced_name == "n/p"
