"""The real controllers of JobSets, LeaderWorkerSets and Kueue's queues, with their webhooks.

kube-controller-manager makes the pods of the Jobs and StatefulSets that they make.
"""

from __future__ import annotations

import base64
import json
import subprocess
from functools import partial
from typing import TYPE_CHECKING, Any

import yaml

from rig.control_plane import free_address, says_ok
from rig.programs import BIN
from rig.topology_kind import PATH as KINDS

if TYPE_CHECKING:
    from pathlib import Path

    from rig.control_plane import ControlPlane

__all__ = ["CONTROLLERS", "KUEUE", "start_controllers", "start_kueue"]

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

KUEUE = "kueue"
KUEUE_HOOKS = ("-v1-pod", "-batch-v1-job", "-kueue-x-k8s-io-")
MOUNT = """
folder=$1; shift
mount -t tmpfs tmpfs /etc
mkdir -p /etc/kueue/metrics/certs
cp "$folder"/tls.* /etc/kueue/metrics/certs
exec "$@"
"""


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
        "internalCertManagement": {"enable": False},
        **common_configuration(health, webhook, folder),
    }
    (folder / "configuration.yaml").write_text(json.dumps(configuration))
    create_kinds(plane, name)

    command = [BIN / name, f"--config={folder / 'configuration.yaml'}"]
    command += [f"--kubeconfig={plane.kubeconfig}"]
    plane.processes.start(name, command)
    plane.processes.wait_for(name, "it is ready", lambda: says_ok(f"http://{health}/readyz"))

    create_webhooks(plane, name, webhook, folder)
    start_controller_manager(plane)


def start_kueue(plane: ControlPlane, **configuration: Any) -> None:
    """Start Kueue for pods and Jobs, and what makes the pods of Jobs.

    It reads the certificate of its metrics from a folder of its own below /etc, which is made in a
    mount namespace: that takes root.

    Args:
        plane: the control plane.
        configuration: further fields of Kueue's Configuration.
    """
    folder = plane.folder / KUEUE
    folder.mkdir()
    certificate(folder)
    health, webhook = free_address(), free_address()
    whole = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": ["batch/job", "pod"]},
        "featureGates": {"VisibilityOnDemand": False},
        **common_configuration(health, webhook, folder),
        **configuration,
    }
    (folder / "configuration.yaml").write_text(json.dumps(whole))
    create_kinds(plane, KUEUE)

    command = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", MOUNT, "mount"]
    command += [folder, BIN / KUEUE, f"--config={folder / 'configuration.yaml'}"]
    command += [f"--kubeconfig={plane.kubeconfig}"]
    plane.processes.start(KUEUE, command)
    plane.processes.wait_for(KUEUE, "it is ready", lambda: says_ok(f"http://{health}/readyz"))

    create_webhooks(plane, KUEUE, webhook, folder, KUEUE_HOOKS)
    start_controller_manager(plane)


def common_configuration(health: str, webhook: str, folder: Path) -> dict[str, Any]:
    """Return what the configurations of all controllers say alike."""
    return {
        "health": {"healthProbeBindAddress": health},
        "metrics": {"bindAddress": "0"},
        "webhook": {
            "host": "127.0.0.1",
            "port": int(webhook.rpartition(":")[2]),
            "certDir": str(folder),
        },
        "leaderElection": {"leaderElect": False},
    }


def create_kinds(plane: ControlPlane, name: str) -> None:
    """Create the kinds of a controller, and wait until they are served."""
    for kind in yaml.safe_load_all((BIN / f"{name}-objects/kind.yaml").read_text()):
        made(plane, KINDS, kind)
        spec = kind["spec"]
        for version in spec["versions"]:
            if version["served"]:
                listed = partial(
                    is_listed, plane, f"{spec['group']}/{version['name']}", spec["names"]["plural"]
                )
                plane.processes.wait_for("kube-apiserver", "the kind is listed", listed)


def is_listed(plane: ControlPlane, version: str, plural: str) -> bool:
    """Return whether who asks what an API server serves is told of a kind."""
    status, answer = plane.client.request("GET", f"/apis/{version}")
    return status == 200 and plural in {resource["name"] for resource in answer["resources"]}


def create_webhooks(
    plane: ControlPlane, name: str, address: str, folder: Path, paths: tuple[str, ...] = ("",)
) -> None:
    """Let the API server ask a controller.

    Args:
        plane: the control plane.
        name: that of the program.
        address: where its webhooks listen.
        folder: of its certificate.
        paths: parts of the paths of those webhooks that it has.
    """
    authority = base64.b64encode((folder / "tls.crt").read_bytes()).decode()
    for document in yaml.safe_load_all((BIN / f"{name}-objects/webhooks.yaml").read_text()):
        document["metadata"]["name"] = f"{name}-{document['metadata']['name']}"
        hooks = []
        for hook in document["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            if not any(part in path for part in paths):
                continue

            hook["clientConfig"] = {"url": f"https://{address}{path}", "caBundle": authority}
            if path.endswith("-v1-pod") and name in CONTROLLERS:
                member = {"key": CONTROLLERS[name], "operator": "Exists"}
                hook["objectSelector"] = {"matchExpressions": [member]}
            hooks.append(hook)

        made(plane, f"{ADMISSION}/{WEBHOOKS[document['kind']]}", {**document, "webhooks": hooks})


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
