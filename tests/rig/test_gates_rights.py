"""The keeper with the token of its account, under the roles and policies of deploy/."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from alignup.control_plane.gates.node_affinity import GATE
from alignup.control_plane.gates.placeholders import NAMESPACE
from alignup.control_plane.gates.waiting_pods import PLACE, PLACE_LABEL, SEEN_BY
from rig.control_plane import free_address
from rig.servers import ALIGNUP, DEPLOY, Server, alignup, control_plane, wait_for
from rig.workload import single_numa_nodes, write_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rig.control_plane import ControlPlane

pytestmark = [pytest.mark.slow, pytest.mark.rig]

PODS = "/api/v1/namespaces/default/pods"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/alignup/leases/alignup-gates"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def gated(name: str, cpus: int = 6, **spec: Any) -> dict[str, Any]:
    """Return a pod that waits behind the gate."""
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    container = {"name": "a", "image": "none", "resources": {"limits": amounts}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"alignup.dev/duration": "60s"}},
        "spec": {
            "schedulingGates": [{"name": GATE}],
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            **spec,
        },
    }


def options() -> list[str]:
    """Return the options of the manifest but for the address."""
    (deployment,) = yaml.safe_load_all((DEPLOY / "gates.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    command, *words = container["args"]
    assert command == "gates"
    return [word for word in words if not word.startswith("--listen")]


@contextmanager
def keeper(plane: ControlPlane, server: Server, *more: str) -> Iterator[Path]:
    """Run the keeper as its Deployment does, with more options; yield the file of what it says."""
    config = json.loads(Path(plane.kubeconfig).read_text())
    config["users"][0]["user"] = {"token": server.token_of("alignup", "alignup-gates")}
    kubeconfig = plane.folder / "keeper"
    kubeconfig.write_text(json.dumps(config))

    address = free_address()
    output = plane.folder / "keeper.log"
    command = [*ALIGNUP, "gates", "--kubeconfig", str(kubeconfig), "--listen", address]
    with output.open("w+") as log:
        process = subprocess.Popen(  # noqa: S603  # our own program
            [*command, *options(), *more], stdout=log, stderr=log
        )
        try:
            wait_for(f"http://{address}/healthz", process, log, None)
            yield output
        finally:
            process.terminate()
            process.wait(60)


def until(server: Server, name: str, is_so: Any) -> dict[str, Any]:
    """Return a pod as soon as something is true of it."""
    deadline = time.monotonic() + 40
    while True:
        pod = server.get(f"{PODS}/{name}")
        if pod and is_so(pod):
            return dict(pod)
        assert time.monotonic() < deadline, json.dumps(pod)
        time.sleep(0.05)


def runs(pod: dict[str, Any]) -> bool:
    return bool(pod["status"]["phase"] == "Running")


def create(server: Server, *pods: dict[str, Any]) -> None:
    for pod in pods:
        status, answer = server.asked("POST", PODS, pod)
        assert status == 201, answer


@contextmanager
def deployed_rig(count: int) -> Iterator[tuple[ControlPlane, Server]]:
    """Run a control plane with deploy/ and nodes of two NUMA nodes, single-numa-node."""
    with control_plane() as plane:
        server = Server(plane.kubeconfig)
        server.deployed()
        nodes = single_numa_nodes(count)

        fleet = free_address()
        known = ("--kubeconfig", plane.kubeconfig, "--listen", fleet)
        path = write_nodes(plane.folder, nodes)
        with alignup("fleet", *known, "--nodes", path, ready=f"http://{fleet}/healthz"):
            yield plane, server


def check_words(output: Path) -> None:
    """Check that a keeper was refused nothing."""
    said = output.read_text()
    assert "forbidden" not in said
    assert "denied" not in said
    assert "Traceback" not in said


def test_all_that_the_keeper_does_is_within_its_rights() -> None:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}
    own_terms = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term, term]}}}
    with deployed_rig(4) as (plane, server):
        # they wait already, and so the leader writes into them first
        create(server, gated("plain"), gated("terms", affinity=own_terms))
        with keeper(plane, server) as output:
            plain, terms = (until(server, name, runs) for name in ("plain", "terms"))
            for pod in (plain, terms):
                annotations = pod["metadata"]["annotations"]
                assert annotations[PLACE] == pod["spec"]["nodeName"]
                assert annotations[SEEN_BY].endswith("/1")

            # its place turns out wrong
            plane.end("kube-scheduler")
            create(server, gated("moved"))
            place = until(server, "moved", lambda pod: PLACE in pod["metadata"]["annotations"])
            name = place["metadata"]["annotations"][PLACE]
            cordoned = {"spec": {"unschedulable": True}}
            assert server.ask("PATCH", f"/api/v1/nodes/{name}", cordoned) == 200
            time.sleep(1)
            plane.up()
            assert until(server, "moved", runs)["spec"]["nodeName"] != name

            deadline = time.monotonic() + 20
            while PLACE_LABEL in json.dumps(server.get("/api/v1/nodes")):
                assert time.monotonic() < deadline
                time.sleep(0.1)

            assert server.get(LEASE)["spec"]["holderIdentity"]

        check_words(output)


def test_less_important_pods_go_within_budgets_and_one_where_one_is_enough() -> None:
    """There is no controller of budgets here: what one allows is written by hand."""
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    protected = {
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "protected"}}},
    }
    with deployed_rig(1) as (plane, server), keeper(plane, server, "--evict") as output:
        status, answer = server.asked("POST", budgets, protected)
        assert status == 201, answer
        counted = {"status": {"disruptionsAllowed": 0, "observedGeneration": 1}}
        assert server.ask("PATCH", f"{budgets}/b/status", counted) == 200

        for name, value in (("mid", 1), ("equal", 1), ("high", 5), ("never", 3)):
            priority_class = {"metadata": {"name": name}, "value": value}
            if name == "never":
                priority_class["preemptionPolicy"] = "Never"
            assert server.ask("POST", CLASSES, priority_class) == 201

        for name, app, classes in (
            ("low", "protected", {}),
            ("mid", "free", {"priorityClassName": "mid"}),
        ):
            pod = gated(name, **classes)
            pod["metadata"]["labels"] = {"app": app}
            create(server, pod)
            until(server, name, runs)

        # of the two less important ones the first is protected; who may not evict waits
        for name in ("never", "equal"):
            create(server, gated(name, priorityClassName=name))
        time.sleep(3)
        assert runs(server.get(f"{PODS}/mid"))
        create(server, gated("high", priorityClassName="high"))
        high = until(server, "high", runs)
        assert not server.get(f"{PODS}/mid")
        assert runs(server.get(f"{PODS}/low"))
        for name in ("never", "equal"):
            assert server.get(f"{PODS}/{name}")["spec"]["schedulingGates"], name

        events = server.get("/api/v1/namespaces/default/events")["items"]
        (said,) = [event for event in events if event["reason"] == "Preempted"]
        assert said["involvedObject"]["name"] == "mid"
        assert "default/high" in said["message"]
        assert high["spec"]["nodeName"] in said["message"]
        check_words(output)


@pytest.mark.parametrize("autoscaler", ["karpenter", "cluster-autoscaler"])
def test_a_pod_that_waits_long_is_seen_by_an_autoscaler_and_gets_the_new_node(autoscaler) -> None:
    """The autoscaler is played: a node comes, on which the scheduler puts the placeholder."""
    options = (f"--placeholders={autoscaler}", "--patience=1")
    with deployed_rig(1) as (plane, server), keeper(plane, server, *options) as output:
        create(server, gated("large", cpus=20))
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        deadline = time.monotonic() + 30
        while not refused(server.get(path)["items"]):
            assert time.monotonic() < deadline
            time.sleep(0.1)

        new, known = free_address(), ("--kubeconfig", plane.kubeconfig, "--listen")
        machine = ("--machine", "dgx-h100")
        with alignup("fleet", *known, new, *machine, ready=f"http://{new}/healthz"):
            large = until(server, "large", runs)
            assert large["spec"]["nodeName"].startswith("dgx-h100")
            deadline = time.monotonic() + 30
            while server.get(path)["items"]:
                assert time.monotonic() < deadline
                time.sleep(0.1)

        check_words(output)


def refused(pods: list[dict[str, Any]]) -> bool:
    """Return whether there is a pod of which its scheduler has said that no node takes it."""
    return any(
        condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable"
        for pod in pods
        for condition in pod["status"].get("conditions", ())
    )
