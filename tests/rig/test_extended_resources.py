"""Extended resources that classes of devices serve, asked of a real kube-scheduler.

`ALIGNUP_RIG_RECORD=FILE` writes the scenarios with its answers, a line each.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from inputs.extended_resources import scenario
from replays.extended_resources import answers
from rig.servers import Server, control_plane

pytestmark = [pytest.mark.slow, pytest.mark.rig]

SCENARIOS = int(os.environ.get("ALIGNUP_RIG_PODS") or 60) // 2
SEED = int(os.environ.get("ALIGNUP_RIG_SEED") or 1)
GROUP = "/apis/resource.k8s.io/v1"
NAMESPACED = "namespaces/default"
PATHS = {
    "Node": "/api/v1/nodes",
    "Pod": f"/api/v1/{NAMESPACED}/pods",
    "ResourceSlice": f"{GROUP}/resourceslices",
    "DeviceClass": f"{GROUP}/deviceclasses",
    "ResourceClaim": f"{GROUP}/{NAMESPACED}/resourceclaims",
}
PATIENCE = 30


def create(server: Server, document: dict[str, Any]) -> dict[str, Any]:
    """Create an object, and return it as the server keeps it."""
    status, answer = server.asked("POST", PATHS[document["kind"]], document)
    assert status == 201, answer
    return answer


def asked(server: Server, line: dict[str, Any], random: Random) -> dict[str, Any]:
    """Return a scenario with what the scheduler does with its pods."""
    create(server, line["node"])
    for document in (*line["slices"], *line["claims"]):
        create(server, document)

    for device_class in line["classes"]:
        metadata = create(server, device_class)["metadata"]
        device_class["metadata"]["creationTimestamp"] = metadata["creationTimestamp"]
        if random.random() < 0.3:
            time.sleep(1.1)

    time.sleep(1)  # until the scheduler knows
    expected = []
    for pod in line["pods"]:
        answer = decided(server, pod)
        if answer == {"refused": "time"}:
            break

        expected.append(answer)
        if answer == {"refused": "binding"}:
            break  # it may leave a claim of its own allocated

    return {**line, "pods": line["pods"][: len(expected)], "expect": expected}


def decided(server: Server, manifest: dict[str, Any]) -> dict[str, Any]:
    """Return what becomes of a pod."""
    path = f"{PATHS['Pod']}/{create(server, manifest)['metadata']['name']}"
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        pod = server.get(path)
        if pod["spec"].get("nodeName"):
            return allocated(server, pod)

        for condition in pod["status"].get("conditions", ()):
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                assert server.ask("DELETE", path, {"gracePeriodSeconds": 0}) == 200
                return {"refused": kind_of(condition["message"])}

        time.sleep(0.05)

    raise AssertionError(f"nothing became of {path}")


def kind_of(message: str) -> str:
    """Return for want of what a pod is refused."""
    kinds = {
        "Insufficient": "resources",
        "empty request mappings": "binding",
        "timed out": "time",
        "claim": "claims",
    }
    return next(kind for words, kind in kinds.items() if words in message)


def allocated(server: Server, pod: dict[str, Any]) -> dict[str, Any]:
    """Return the devices of the claims of a pod that is bound, and what was asked for."""
    answer: dict[str, Any] = {"devices": {}}
    for pod_claim in pod["spec"].get("resourceClaims", ()):
        name = pod_claim["resourceClaimName"]
        answer["devices"][name] = results(server.get(f"{PATHS['ResourceClaim']}/{name}"))

    status = pod["status"].get("extendedResourceClaimStatus")
    if status:
        claim = server.get(f"{PATHS['ResourceClaim']}/{status['resourceClaimName']}")
        answer["devices"][""] = results(claim)
        answer["requests"] = [
            [request["name"], request["exactly"]["deviceClassName"], request["exactly"]["count"]]
            for request in claim["spec"]["devices"]["requests"]
        ]
        answer["uses"] = sorted(
            [use["containerName"], use["resourceName"], use["requestName"]]
            for use in status["requestMappings"]
        )

    return answer


def results(claim: dict[str, Any]) -> list[list[str]]:
    """Return the devices of a claim."""
    return [
        [result["request"], result["driver"], result["pool"], result["device"]]
        for result in claim["status"]["allocation"]["devices"]["results"]
    ]


def test_claims_are_those_of_the_scheduler() -> None:
    lines = [scenario(Random(SEED * 10_000 + number), f"s{number}") for number in range(SCENARIOS)]
    with control_plane() as plane, ThreadPoolExecutor(6) as workers:
        server = Server(plane.kubeconfig)
        recorded = list(workers.map(lambda line: asked(server, line, Random(line["name"])), lines))

    file = os.environ.get("ALIGNUP_RIG_RECORD")
    if file:
        Path(file).write_text("".join(f"{json.dumps(line)}\n" for line in recorded))

    wrong = [line["name"] for line in recorded if answers(line) != line["expect"]]
    expected = [expect for line in recorded for expect in line["expect"]]
    sys.stdout.write(
        f"\n{len(expected)} pods, {sum('requests' in expect for expect in expected)} with a claim "
        f"for extended resources, {sum('refused' in expect for expect in expected)} refused; of "
        f"{len(recorded)} scenarios {len(wrong)} differ\n"
    )
    assert wrong == []
