"""Gates on a real API server: who gets one when it is made, and how a gated pod can be changed."""

from __future__ import annotations

import itertools
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from alignup.control_plane.api_server.api_client import with_api
from alignup.control_plane.gates.installation import (
    GATE,
    admission_objects,
    install,
    uninstall,
)
from alignup.control_plane.gates.node_affinity import NAMESPACE_LABEL, pinned, required_terms
from alignup.control_plane.gates.waiting_pods import PLACE, PLACE_LABEL, GatedPodReader
from rig.servers import Server, control_plane

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.rig]

NAMESPACE = "/api/v1/namespaces/default"
PODS = f"{NAMESPACE}/pods"
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
AMOUNTS = {"cpu": "1", "memory": "1Gi"}
DAEMON_SET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1"}


def pod(*resources: dict[str, Any], metadata: Any = None, **spec: Any) -> dict[str, Any]:
    """Return a pod with a container for each of some resources; `init`: those of its first."""
    init = [
        {"name": "init", "image": "x", "resources": amounts} for amounts in spec.pop("init", ())
    ]
    containers = [
        {"name": f"c{number}", "image": "x", "resources": amounts}
        for number, amounts in enumerate(resources)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "p-", **(metadata or {})},
        "spec": {"containers": containers, "initContainers": init, **spec},
    }


GUARANTEED = {"limits": AMOUNTS}
GATED = {
    "guaranteed": pod(GUARANTEED),
    "the same in other units": pod(
        {"limits": AMOUNTS, "requests": {"cpu": "1000m", "memory": "1024Mi"}}
    ),
    "with an init container": pod(GUARANTEED, init=[GUARANTEED]),
    "of a fraction of a CPU": pod({"limits": {"cpu": "500m", "memory": "1Gi"}}),
    "a device": pod({"limits": {"nvidia.com/gpu": "1"}}),
    "a device of an init container": pod({}, init=[{"limits": {"nvidia.com/gpu": "1"}}]),
    "as a whole": pod({}, resources={"limits": AMOUNTS}),
    "as a whole, requests too": pod({}, resources={"limits": AMOUNTS, "requests": AMOUNTS}),
    "with the gate of another": pod(GUARANTEED, schedulingGates=[{"name": "example.com/x"}]),
    "with the gate already": pod(GUARANTEED, schedulingGates=[{"name": GATE}]),
}
UNGATED = {
    "burstable": pod({"requests": AMOUNTS}),
    "best effort": pod({}),
    "one container is not": pod(GUARANTEED, {}),
    "its init container is not": pod(GUARANTEED, init=[{}]),
    "no memory": pod({"limits": {"cpu": "1"}}),
    "zero": pod({"limits": {"cpu": "1", "memory": "0"}}),
    "no device": pod({"limits": {"nvidia.com/gpu": "0"}}),
    "hugepages alone": pod({"limits": {"hugepages-2Mi": "2Mi", "cpu": "1"}}),
    "as a whole burstable": pod(
        GUARANTEED,
        resources={
            "limits": {"cpu": "2", "memory": "2Gi"},
            "requests": {"cpu": "1", "memory": "2Gi"},
        },
    ),
    "bound": pod(GUARANTEED, nodeName="a"),
    "of another scheduler": pod(GUARANTEED, schedulerName="other"),
    "of a DaemonSet": pod(GUARANTEED, metadata={"ownerReferences": [DAEMON_SET]}),
}


@pytest.fixture(scope="module")
def plane() -> Iterator[Any]:
    with control_plane() as plane:
        yield plane


@pytest.fixture
def server(plane) -> Server:
    return Server(plane.kubeconfig)


def gates_of(answer: dict[str, Any]) -> list[str]:
    return [gate["name"] for gate in answer.get("spec", {}).get("schedulingGates", [])]


def made(server: Server, manifest: dict[str, Any]) -> dict[str, Any]:
    """Return what a pod would be made, in a namespace that has the label."""
    status, answer = server.asked("POST", f"{PODS}?dryRun=All", manifest)
    assert status == 201, answer
    return answer


@pytest.fixture
def _installed(plane, server) -> Iterator[None]:
    """Install the policy for the default namespace, and wait until it is in force."""
    lines: list[str] = []
    with_api(plane.kubeconfig, lambda api: install(api, lines.append))
    assert any(line.startswith("installed") for line in lines), lines

    labelled = {"metadata": {"labels": {NAMESPACE_LABEL: "enabled"}}}
    assert server.ask("PATCH", NAMESPACE, labelled) == 200
    end = time.monotonic() + 20
    while GATE not in gates_of(made(server, GATED["guaranteed"])):
        assert time.monotonic() < end, "the policy is not in force"
        time.sleep(0.1)

    yield
    with_api(plane.kubeconfig, lambda api: uninstall(api, lines.append))
    assert server.get(POLICIES)["items"] == []


@pytest.mark.usefixtures("_installed")
def test_pods_that_need_a_place_of_their_own_get_the_gate(server) -> None:
    missing = [
        name for name, manifest in GATED.items() if GATE not in gates_of(made(server, manifest))
    ]
    wrong = [name for name, manifest in UNGATED.items() if gates_of(made(server, manifest))]
    assert (missing, wrong) == ([], [])

    others = made(server, GATED["with the gate of another"])
    assert gates_of(others) == ["example.com/x", GATE]

    without = {"metadata": {"labels": {NAMESPACE_LABEL: None}}}
    assert server.ask("PATCH", NAMESPACE, without) == 200
    end = time.monotonic() + 20
    while gates_of(made(server, GATED["guaranteed"])):
        assert time.monotonic() < end, "a namespace without the label gets gates"
        time.sleep(0.1)


def test_a_policy_that_gives_no_gate_is_not_installed(plane, server, monkeypatch) -> None:
    policy, binding = admission_objects()
    policy["spec"]["matchConditions"].append({"name": "never", "expression": "false"})
    monkeypatch.setattr(
        "alignup.control_plane.gates.installation.admission_objects", lambda: (policy, binding)
    )
    monkeypatch.setattr("alignup.control_plane.gates.installation._LONGEST_TRIAL", 3.0)
    with pytest.raises(Exception, match="gave no pod the gate"):
        with_api(plane.kubeconfig, lambda api: install(api, print))

    assert server.get(POLICIES)["items"] == []


EXPRESSION = {"key": "zone", "operator": "In", "values": ["east"]}
FIELD = {"key": "metadata.name", "operator": "NotIn", "values": ["z"]}
TERMS: list[list[dict[str, Any]]] = [
    [],
    [{"matchExpressions": [EXPRESSION]}],
    [{"matchFields": [FIELD]}],
    [
        {"matchExpressions": [EXPRESSION], "matchFields": [FIELD]},
        {"matchExpressions": [EXPRESSION]},
    ],
    [{}, {"matchExpressions": [EXPRESSION]}],
]


@pytest.mark.parametrize(
    ("terms", "names", "label"),
    [
        (terms, names, label)
        for terms, names, label in itertools.product(
            TERMS, (["a"], ["a", "b"]), ("", "alignup.dev/place")
        )
        if not terms or label or len(names) == 1
    ],
)
def test_a_gated_pod_is_let_go_and_pinned_in_one_patch(server, terms, names, label) -> None:
    affinity: dict[str, Any] = {"podAntiAffinity": {}}
    if terms:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        affinity["nodeAffinity"] = required

    manifest = pod(GUARANTEED, schedulingGates=[{"name": GATE}], affinity=affinity)
    status, waiting = server.asked("POST", PODS, manifest)
    assert status == 201, waiting

    metadata = waiting["metadata"]
    change = {
        "metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
        "spec": {
            "schedulingGates": None,
            "affinity": pinned(waiting["spec"]["affinity"], names, label),
        },
    }
    path = f"{PODS}/{metadata['name']}"
    status, free = server.asked("PATCH", path, change)
    assert status == 200, free
    assert gates_of(free) == []
    assert required_terms(free["spec"]["affinity"]) == required_terms(change["spec"]["affinity"])

    # a patch that was made for the pod as it was comes too late
    assert server.ask("PATCH", path, change) == 409


def test_who_makes_a_pod_cannot_say_that_it_was_let_go(server) -> None:
    """The server sets uid and generation, by which the keeper tells its own patch."""
    forged = {"generation": 7, "uid": "0" * 36, "annotations": {PLACE: "a"}}
    affinity = pinned(None, ["a"], f"{PLACE_LABEL}{'0' * 36}")
    manifest = pod(GUARANTEED, metadata=forged, affinity=affinity)
    status, free = server.asked("POST", PODS, manifest)
    assert status == 201, free
    assert free["metadata"]["generation"] == 1
    assert free["metadata"]["uid"] != "0" * 36
    assert GatedPodReader().decode(json.dumps(free).encode()).place == ()

    manifest = pod(GUARANTEED, schedulingGates=[{"name": GATE}])
    status, waiting = server.asked("POST", PODS, manifest)
    assert status == 201, waiting
    path = f"{PODS}/{waiting['metadata']['name']}"
    annotated = {"metadata": {"annotations": {PLACE: "a"}}}
    assert server.asked("PATCH", path, annotated)[1]["metadata"]["generation"] == 1

    label = PLACE_LABEL + waiting["metadata"]["uid"]
    change = {"spec": {"schedulingGates": None, "affinity": pinned(None, ["a"], label)}}
    status, free = server.asked("PATCH", path, change)
    assert status == 200, free
    assert free["metadata"]["generation"] == 2
    assert GatedPodReader().decode(json.dumps(free).encode()).place == ("a",)
