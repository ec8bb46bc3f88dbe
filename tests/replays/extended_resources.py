"""What becomes of pods that ask for extended resources which classes of devices serve."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

from alignup import Node
from alignup.kubernetes.manifest import IGNORED_CLAIMS, read_pod
from alignup.kubernetes.node_fit import requests_of, without_claimed

GIBI = 1 << 30
MOST = 200
MACHINE = {
    "numaNodes": [
        {
            "id": 0,
            "memory": 64 * GIBI,
            "cores": [{"cpus": [cpu], "socket": 0} for cpu in range(64)],
            "distances": [10],
        }
    ]
}


def answers(line: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what we say of the pods of a scenario, in the form of `tests/vectors/claims`.

    The scheduler's own check of resources comes first; a node of ours has no such check, and
    devices of plugins for all.
    """
    allocatable = line["node"]["status"]["allocatable"]
    plugins = {name: int(count) for name, count in allocatable.items() if "/" in name}
    devices = {
        resource: [{"id": f"{resource}-{number}"} for number in range(MOST)] for resource in plugins
    }
    node = Node.from_dict(
        {
            "machine": MACHINE,
            "devices": devices,
            "nodeObject": line["node"],
            "resources": [*line["slices"], *line["classes"], *line["claims"]],
        }
    )
    return [_answer(node, pod, plugins) for pod in line["pods"]]


def _answer(node: Node, manifest: dict[str, Any], plugins: dict[str, int]) -> dict[str, Any]:
    assert node.claims is not None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", IGNORED_CLAIMS)  # this node heeds them
        pod = node.read(read_pod(manifest))

    used = Counter[str]()
    for admitted in (*node.pods, pod):
        used.update(requests_of(without_claimed(admitted)))

    if any(used[resource] > count for resource, count in plugins.items()):
        return {"refused": "resources"}
    admission = node.admit(pod)
    if not admission:
        return {"refused": "binding" if "mappings" in admission.message else "claims"}

    claims = node.claims.claims(pod)
    answer: dict[str, Any] = {"devices": {}}
    for pod_claim in pod.constraints.claims:
        claim = claims[pod_claim.name]
        name = "" if pod_claim.is_extended else claim.name
        answer["devices"][name] = [[device.request, *device.id] for device in claim.allocated or ()]
        if pod_claim.is_extended:
            answer["requests"] = [
                [request.name, request.exactly.device_class_name, request.exactly.count]
                for request in claim.requests
                if request.exactly is not None
            ]
            answer["uses"] = sorted(
                [container, resource, request]
                for container, resource, request in node.claims.extended.uses(pod)
            )

    return answer
