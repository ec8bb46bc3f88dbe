"""The real controllers of JobSets and LeaderWorkerSets, with their webhooks, on a control plane.

kube-controller-manager makes the pods of the Jobs and StatefulSets that they make.
"""

from __future__ import annotations

import base64
import json
import subprocess
from typing import TYPE_CHECKING, Any

import yaml

from rig.control_plane import free_address, says_ok
from rig.programs import BIN
from rig.topology_kind import PATH as KINDS

if TYPE_CHECKING:
    from rig.control_plane import ControlPlane

__all__ = ["CONTROLLERS", "start_controllers"]

CONTROLLERS = {
    "jobset": "jobset.sigs.k8s.io/jobset-name",
    "lws": "leaderworkerset.sigs.k8s.io/name",
}
"""By the program of a controller, the label of its pods."""

WEBHOOKS = {
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}
ADMISSION = "/apis/admissionregistration.k8s.io/v1"


def start_controllers(plane: ControlPlane, name: str) -> None:
    """Start a controller of groups, and what makes the pods of its Jobs and StatefulSets.

    Their kinds and webhooks lie beside the program, where `build` has put them.
    """
    folder = plane.folder / name
    folder.mkdir()
    certificate(folder)
    health, webhook = free_address(), free_address()
    configuration = {
        "apiVersion": f"config.{api_group(name)}/v1alpha1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": health},
        "metrics": {"bindAddress": "0"},
        "webhook": {
            "host": "127.0.0.1",
            "port": int(webhook.rpartition(":")[2]),
            "certDir": str(folder),
        },
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
    }
    (folder / "configuration.yaml").write_text(json.dumps(configuration))

    objects = BIN / f"{name}-objects"
    kind = yaml.safe_load((objects / "kind.yaml").read_text())
    made(plane, KINDS, kind)
    names = kind["spec"]["names"]
    served = (
        f"/apis/{kind['spec']['group']}/{kind['spec']['versions'][0]['name']}/{names['plural']}"
    )
    plane.processes.wait_for(
        "kube-apiserver", "the kind is served", lambda: plane.client.get(served)
    )

    command = [BIN / name, f"--config={folder / 'configuration.yaml'}"]
    command += [f"--kubeconfig={plane.kubeconfig}"]
    plane.processes.start(name, command)
    plane.processes.wait_for(name, "it is ready", lambda: says_ok(f"http://{health}/readyz"))

    authority = base64.b64encode((folder / "tls.crt").read_bytes()).decode()
    for document in yaml.safe_load_all((objects / "webhooks.yaml").read_text()):
        document["metadata"]["name"] = f"{name}-{document['metadata']['name']}"
        for hook in document["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            hook["clientConfig"] = {"url": f"https://{webhook}{path}", "caBundle": authority}
            if path.endswith("-v1-pod"):
                member = {"key": CONTROLLERS[name], "operator": "Exists"}
                hook["objectSelector"] = {"matchExpressions": [member]}
        made(plane, f"{ADMISSION}/{WEBHOOKS[document['kind']]}", document)

    start_controller_manager(plane)


def start_controller_manager(plane: ControlPlane) -> None:
    """Start the controllers of Jobs and StatefulSets alone."""
    address = free_address()
    options = {
        "kubeconfig": plane.kubeconfig,
        "authentication-kubeconfig": plane.kubeconfig,
        "authorization-kubeconfig": plane.kubeconfig,
        "controllers": "job-controller,statefulset-controller",
        "leader-elect": "false",
        "bind-address": "127.0.0.1",
        "secure-port": address.rpartition(":")[2],
        "cert-dir": plane.folder / "controller-certificates",
        "authorization-always-allow-paths": "/healthz",
    }
    command = [BIN / "kube-controller-manager"]
    command += [f"--{option}={value}" for option, value in options.items()]
    plane.processes.start("kube-controller-manager", command)
    plane.processes.wait_for(
        "kube-controller-manager", "it is healthy", lambda: says_ok(f"https://{address}/healthz")
    )


def api_group(name: str) -> str:
    """Return the last part of the API group of a controller's configuration."""
    return {"jobset": "jobset.x-k8s.io", "lws": "lws.x-k8s.io"}[name]


def made(plane: ControlPlane, path: str, document: dict[str, Any]) -> None:
    """Create an object."""
    status, answer = plane.client.request("POST", path, document)
    assert status == 201, answer


def certificate(folder: Any) -> None:
    """Write the certificate of webhooks on loopback, which is its own authority."""
    subject = ["-subj", "/CN=webhooks", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", folder / "tls.key", "-out", folder / "tls.crt"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run([*command, *subject, *files], check=True, capture_output=True)  # noqa: S603  # ours
