"""A real etcd, kube-apiserver and kube-scheduler on free ports of loopback.

There is no controller manager: nobody evicts, taints, recreates or collects garbage, and nodes
stay as their kubelets have left them.
"""

from __future__ import annotations

import json
import secrets
import socket
import ssl
import subprocess
import urllib.request
from contextlib import suppress
from pathlib import Path
from random import randrange
from typing import Any

from rig.api_client import ApiClient
from rig.processes import Processes
from rig.programs import BIN
from rig.topology_kind import DEFINITION, PATH

__all__ = ["ControlPlane", "free_address"]

VERBS = ("filter", "prioritize", "preempt", "bind")


def free_address() -> str:
    """Return an address of this machine where nobody listens.

    The kernel takes no such port for a connection, or for a listener that names none, before the
    program that is told of it listens there.
    """
    first_of_kernel = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = randrange(first_of_kernel // 2, first_of_kernel)
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return f"127.0.0.1:{port}"


def says_ok(url: str) -> bool:
    """Return whether a server of ours says that it is ready."""
    context = ssl._create_unverified_context()  # noqa: S323  # its certificate is its own
    with urllib.request.urlopen(url, timeout=5, context=context) as answer:  # noqa: S310  # ours
        return answer.status == 200


class ControlPlane:
    """A control plane that keeps everything in one folder.

    Args:
        folder: an empty one.
        scheduler: another program than the rig's kube-scheduler.
    """

    def __init__(self, folder: Path, scheduler: Path = BIN / "kube-scheduler") -> None:
        self.folder = folder
        self.kubeconfig = str(folder / "kubeconfig")
        self.processes = Processes(folder / "log")
        self._scheduler = scheduler
        self._etcd, self._peers, self._server, self.scheduler_address = (
            free_address() for _ in range(4)
        )
        self._overlay: dict[str, Any] = {}
        self.gates: dict[str, bool] = {}
        """Feature gates of the scheduler, from its next start on."""
        self.served: dict[str, str] = {}
        """Further options of the API server, from its next start on."""
        self._prepare()

    def _prepare(self) -> None:
        """Write what the programs read."""
        token = secrets.token_hex(16)
        (self.folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
        key = ["openssl", "genrsa", "-out", self.folder / "accounts.key", "2048"]
        subprocess.run(key, check=True, capture_output=True)  # noqa: S603  # for service accounts

        certificate = str(self.folder / "certificates/apiserver.crt")
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "rig",
            "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": "admin"}}],
            "clusters": [
                {
                    "name": "rig",
                    "cluster": {
                        "server": f"https://{self._server}",
                        "certificate-authority": certificate,
                    },
                }
            ],
            "users": [{"name": "admin", "user": {"token": token}}],
        }
        (self.folder / "kubeconfig").write_text(json.dumps(config))
        self.client = ApiClient(self.kubeconfig)

    def up(self) -> None:
        """Start what does not run."""
        if not self.processes.is_running("etcd"):
            self.processes.stop("kube-apiserver")  # it would not come back to another etcd
            self._start_etcd()
        if not self.processes.is_running("kube-apiserver"):
            self._start_apiserver()
        if not self.processes.is_running("kube-scheduler"):
            self._start_scheduler()

    def down(self) -> None:
        """End all programs."""
        self.processes.stop_all()

    def end(self, name: str) -> None:
        """Let one program crash; `up` starts it again."""
        self.processes.stop(name, kill=True)

    def schedule(self, overlay: dict[str, Any]) -> None:
        """Start the scheduler anew, with some fields of its configuration."""
        self._overlay = overlay
        self.processes.stop("kube-scheduler")
        self._start_scheduler()

    def schedule_with(self, address: str | None) -> None:
        """Start the scheduler anew, with an extender at an address or without one."""
        extender = {
            "urlPrefix": f"http://{address}",
            **{f"{verb}Verb": verb for verb in VERBS},
            "weight": 5,
            "httpTimeout": "10s",
            "nodeCacheCapable": True,
        }
        overlay = {}
        if address is not None:
            overlay = {"extenders": [extender], "percentageOfNodesToScore": 100}
        self.schedule(overlay)

    def add_topology_kind(self) -> None:
        """Let the API server serve NodeResourceTopology objects."""
        status, answer = self.client.request("POST", PATH, DEFINITION)
        assert status == 201, answer
        served = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
        self.processes.wait_for(
            "kube-apiserver", "the kind is served", lambda: self.client.get(served)
        )

    def _start_etcd(self) -> None:
        clients, peers = f"http://{self._etcd}", f"http://{self._peers}"
        options = {
            "name": "rig",
            "data-dir": self.folder / "etcd",
            "listen-client-urls": clients,
            "advertise-client-urls": clients,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"rig={peers}",
            "unsafe-no-fsync": "true",  # the folder goes with the machine
            "log-level": "warn",
        }

        self._start(BIN / "etcd", options)
        self.processes.wait_for("etcd", "it is healthy", lambda: says_ok(f"{clients}/health"))

    def _start_apiserver(self) -> None:
        key, port = self.folder / "accounts.key", self._server.rpartition(":")[2]
        options = {
            "etcd-servers": f"http://{self._etcd}",
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "secure-port": port,
            "cert-dir": self.folder / "certificates",
            "token-auth-file": self.folder / "tokens.csv",
            "authorization-mode": "RBAC",
            "service-account-issuer": "https://rig.invalid",
            "service-account-key-file": key,
            "service-account-signing-key-file": key,
            "service-cluster-ip-range": "10.255.0.0/24",
            "endpoint-reconciler-type": "none",
            # a controller manager would make the accounts, and take the taints off
            "disable-admission-plugins": "ServiceAccount,TaintNodesByCondition",
            **self.served,
        }

        self._start(BIN / "kube-apiserver", options)
        self.processes.wait_for(
            "kube-apiserver", "it is ready", lambda: says_ok(f"https://{self._server}/readyz")
        )

        namespace = "/api/v1/namespaces/default"  # which it makes itself, a moment later
        self.processes.wait_for(
            "kube-apiserver", "it has a namespace", lambda: self.client.get(namespace)
        )

    def _start_scheduler(self) -> None:
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": self.kubeconfig},
            "leaderElection": {"leaderElect": False},
            # pods that were refused are tried again soon
            "podInitialBackoffSeconds": 1,
            "podMaxBackoffSeconds": 2,
            **self._overlay,
        }
        (self.folder / "scheduler.json").write_text(json.dumps(config))
        options = {
            "config": self.folder / "scheduler.json",
            "bind-address": "127.0.0.1",
            "secure-port": self.scheduler_address.rpartition(":")[2],
            "cert-dir": self.folder / "scheduler-certificates",
            "authorization-always-allow-paths": "/healthz,/readyz,/livez,/metrics",
            "v": 2,
        }
        if self.gates:
            options["feature-gates"] = ",".join(
                f"{name}={str(is_on).lower()}" for name, is_on in self.gates.items()
            )

        self._start(self._scheduler, options, "kube-scheduler")
        url = f"https://{self.scheduler_address}/readyz"
        self.processes.wait_for("kube-scheduler", "it is ready", lambda: says_ok(url))

    def _start(self, program: Path, values: dict[str, Any], name: str = "") -> None:
        options = [f"--{option}={value}" for option, value in values.items()]
        self.processes.start(name or program.name, [program, *options])
