"""On a real API server with RBAC: what deploy/ allows goes through, what it does not is refused; one extender leads."""

from __future__ import annotations

import json
import os
import signal
import ssl
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from alignup.scheduler.api_client import TOPOLOGIES
from alignup.scheduler.extender_service import WOKEN
from rigged import alignup, control_plane, free_address
from watched import description, pod_object

if TYPE_CHECKING:
    import subprocess

pytestmark = [pytest.mark.slow, pytest.mark.rig]

DEPLOY = Path(__file__).parents[2] / "deploy"
GROUPS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Namespace": "namespaces",
    "ServiceAccount": "serviceaccounts",
}
NODES = "/api/v1/nodes"
GAP = 20
"""Seconds without a leader at most, on a machine that is not busy."""


class Server:
    """Requests to an API server as its administrator, or as an account of deploy/."""

    def __init__(self, kubeconfig: str) -> None:
        found = yaml.safe_load(Path(kubeconfig).read_text())
        self.url = found["clusters"][0]["cluster"]["server"]
        self.token = found["users"][0]["user"]["token"]
        self.context = ssl._create_unverified_context()  # noqa: S323  # our own server on loopback

    def ask(self, method: str, path: str, body: Any = None, account: str = "", node: str = "") -> int:
        """Return the status of the answer."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        if account:
            headers["Impersonate-User"] = f"system:serviceaccount:alignup:{account}"
            headers["Impersonate-Group"] = "system:authenticated"
        if node:
            headers["Impersonate-Extra-authentication.kubernetes.io%2Fnode-name"] = node
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)  # noqa: S310  # ours
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=30) as response:  # noqa: S310  # ours
                return response.status
        except urllib.error.HTTPError as error:
            return error.code

    def apply(self, document: dict[str, Any]) -> None:
        """Create an object."""
        group, metadata = document["apiVersion"], document["metadata"]
        root = "/api/v1" if group == "v1" else f"/apis/{group}"
        place = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
        assert self.ask("POST", f"{root}{place}/{GROUPS[document['kind']]}", document) == 201

    def deployed(self) -> None:
        """Apply accounts, rights and policies of deploy/."""
        for name in ("namespace", "extender-rbac", "publish-rbac", "admission"):
            for document in yaml.safe_load_all((DEPLOY / f"{name}.yaml").read_text()):
                self.apply(document)


def report(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name},
        "zones": [],
    }


def test_accounts_may_do_what_they_need_and_nothing_else() -> None:
    publisher = {"account": "alignup-publish", "node": "a"}
    extender = {"account": "alignup-extender"}
    with control_plane() as plane:
        server = Server(plane.kubeconfig)
        server.deployed()
        for name in ("a", "b"):
            node = {"metadata": {"name": name, "labels": {"zone": "x"}, "annotations": {"kept": "1"}}}
            assert server.ask("POST", NODES, {"apiVersion": "v1", "kind": "Node", **node}) == 201
        deadline = time.monotonic() + 60  # policies take a moment to be seen
        while server.ask("POST", TOPOLOGIES, report("b"), **publisher) == 201:
            assert server.ask("DELETE", f"{TOPOLOGIES}/b") == 200
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert server.ask("POST", TOPOLOGIES, report("b")) == 201
        change = {"metadata": {"annotations": {"alignup.dev/holdings": "x"}}}
        statuses = {
            "own object": server.ask("POST", TOPOLOGIES, report("a"), **publisher),
            "own change": server.ask("PATCH", f"{TOPOLOGIES}/a", change, **publisher),
            "own look": server.ask("GET", f"{TOPOLOGIES}?fieldSelector=metadata.name%3Da", **publisher),
            "another's change": server.ask("PATCH", f"{TOPOLOGIES}/b", change, **publisher),
            "a token without a node": server.ask("PATCH", f"{TOPOLOGIES}/a", change, account="alignup-publish"),
            "deleting": server.ask("DELETE", f"{TOPOLOGIES}/a", **publisher),
            "a Node": server.ask("PATCH", f"{NODES}/a", change, **publisher),
        }
        assert statuses == {
            "own object": 201,
            "own change": 200,
            "own look": 200,
            "another's change": 422,
            "a token without a node": 422,
            "deleting": 403,
            "a Node": 403,
        }
        woken = {"metadata": {"annotations": {WOKEN: "now"}}}
        patches = {
            "waking": woken,
            "another annotation": {"metadata": {"annotations": {"x": "y"}}},
            "a changed annotation": {"metadata": {"annotations": {"kept": "2"}}},
            "no annotation": {"metadata": {"annotations": {"kept": None}}},
            "a label": {"metadata": {"labels": {"x": "y"}}},
            "no label": {"metadata": {"labels": None}},
            "a cordon": {"spec": {"unschedulable": True}},
            "a taint": {"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}},
        }
        found = {what: server.ask("PATCH", f"{NODES}/a", body, **extender) for what, body in patches.items()}
        assert found == {what: 200 if what == "waking" else 422 for what in patches}
        assert server.ask("PATCH", f"{NODES}/b", woken, **extender) == 200
        leases = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
        lease = {"metadata": {"name": "alignup-extender"}, "spec": {"holderIdentity": "x"}}
        assert server.ask("POST", leases.format("alignup"), lease, **extender) == 201
        assert server.ask("POST", leases.format("kube-system"), lease, **extender) == 403
        assert server.ask("GET", "/api/v1/secrets", **extender) == 403


def filtered(address: str) -> str:
    """Return the error in the answer to a question; empty: it was answered."""
    body = json.dumps({"Pod": pod_object("p", cpu=1), "NodeNames": ["n0"]}).encode()
    request = urllib.request.Request(f"http://{address}/filter", body)
    with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310  # our own server
        return json.load(response)["Error"]


def leading(addresses: list[str], seconds: float) -> str:
    """Return the address that answers, once one does."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for address in addresses:
            if not filtered(address):
                return address
        time.sleep(0.1)
    raise AssertionError(f"nobody leads after {seconds} seconds")


def bound(address: str, name: str) -> str:
    """Ask for a binding, and return its error."""
    question = {"PodName": name, "PodNamespace": "default", "PodUID": f"uid-{name}", "Node": "n0"}
    request = urllib.request.Request(f"http://{address}/bind", json.dumps(question).encode())
    with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310  # our own server
        return json.load(response)["Error"]


def test_one_extender_leads_and_another_takes_over(tmp_path) -> None:
    """Killed, and stopped for longer than its lease: it binds nothing when it wakes."""
    (tmp_path / "nodes.jsonl").write_text(json.dumps({"name": "n0", **description()}))
    with control_plane() as plane, ExitStack() as stack:
        server = Server(plane.kubeconfig)
        server.deployed()
        fleet = free_address()
        words = ("fleet", "--kubeconfig", plane.kubeconfig, "--nodes", tmp_path / "nodes.jsonl", "--listen", fleet)
        stack.enter_context(alignup(*words, ready=f"http://{fleet}/healthz"))
        processes: dict[str, subprocess.Popen[str]] = {}
        for _ in range(3):
            address = free_address()
            words = ("extender", "--kubeconfig", plane.kubeconfig, "--listen", address, "--leader-elect")
            processes[address] = stack.enter_context(alignup(*words, ready=f"http://{address}/healthz"))
        first = leading(list(processes), 60)
        others = [one for one in processes if one != first]
        assert all("stands by" in filtered(one) for one in others)
        os.kill(processes[first].pid, signal.SIGKILL)
        second = leading(others, GAP)
        (third,) = [one for one in others if one != second]
        os.kill(processes[second].pid, signal.SIGSTOP)
        try:
            assert leading([third], GAP) == third
            assert server.ask("POST", "/api/v1/namespaces/default/pods", pod_object("p", cpu=1)) == 201
        finally:
            os.kill(processes[second].pid, signal.SIGCONT)
        assert "stands by" in bound(second, "p")
        assert filtered(third) == ""
