"""On a real API server with RBAC: what deploy/ allows goes through, what it does not is refused; one extender leads."""

from __future__ import annotations

import time
from typing import Any

import pytest

from alignup.control_plane.api_server.api_client import TOPOLOGIES
from alignup.control_plane.scheduler.extender_service import WOKEN
from rigged import Server, control_plane

pytestmark = [pytest.mark.slow, pytest.mark.rig]

NODES = "/api/v1/nodes"


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
