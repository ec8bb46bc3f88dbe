"""Makes traces: pods of a few sizes that come at random and stay for a while, enough of them to fill a cluster.

They suit the machines of the cluster: pods ask for parts of a NUMA node, for a whole one, or for several, and for the
devices that there are.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from alignup.cluster.trace import Arrival, Event
from alignup.kubernetes.manifest import pod_from_manifest
from alignup.kubernetes.pod import Pod
from alignup.kubernetes.pod_requests import is_pinned_memory

if TYPE_CHECKING:
    from alignup.cluster.cluster import Cluster

__all__ = ["synthetic_trace"]

_PARTS = ((1 / 8, 5), (1 / 4, 4), (1 / 2, 3), (3 / 4, 2), (1, 1), (2, 1))
"""Of the CPUs of a NUMA node, and how many of sixteen pods ask for so many."""

_MEAN_DURATION = 1000.0
_GIBIBYTE = 1 << 30


def synthetic_trace(cluster: Cluster, arrivals: int, seed: int = 0, load: float = 0.8) -> list[Event]:
    """Return a trace of so many arrivals.

    Args:
        cluster: What the pods are made for.
        arrivals: How many pods.
        seed: The same seed makes the same trace.
        load: About which part of the cluster's CPUs are asked for once as many pods come as go.
    """
    random = Random(seed)  # noqa: S311  # pods, not secrets
    templates = [_template(cluster, part) for part, _ in _PARTS]
    weights = [weight for _, weight in _PARTS]
    cpus = sum(pod.exclusive_cpus * weight for pod, weight in zip(_plain(templates), weights, strict=True))
    capacity = sum(node.machine.cpu_count for node in cluster.nodes)
    rate = load * capacity / (_MEAN_DURATION * cpus / sum(weights))
    time = 0.0
    events: list[Event] = []
    for number in range(arrivals):
        time += random.expovariate(rate)
        template = random.choice(random.choices(templates, weights)[0])
        pod = Pod(
            uid=f"synthetic-{number}",
            name=f"synthetic-{number}",
            containers=template.containers,
            qos=template.qos,
            exclusive_cpus=template.exclusive_cpus,
            memory=template.memory,
            devices=template.devices,
        )
        events.append(Arrival(time, pod, random.expovariate(1 / _MEAN_DURATION)))
    return events


def _plain(templates: list[list[Pod]]) -> list[Pod]:
    """Return the first pod of each size."""
    return [pods[0] for pods in templates]


def _template(cluster: Cluster, part: float) -> list[Pod]:
    """Return pods of one size: without devices, and with some of each resource."""
    nodes = [node for machine in cluster.nodes for node in machine.machine.numa_nodes if node.cores]
    smallest = min(nodes, key=lambda node: sum(len(core.cpus) for core in node.cores))
    cpus = max(1, round(part * sum(len(core.cpus) for core in smallest.cores)))
    memory = max(1, int(part * smallest.memory / _GIBIBYTE / 2))
    pods = [_pod(cpus, memory, {})]
    devices = [name for name in cluster.resources if name != "cpu" and not is_pinned_memory(name)]
    pods.extend(_pod(cpus, memory, {resource: max(1, int(part))}) for resource in devices)
    return pods


def _pod(cpus: int, gibibytes: int, devices: dict[str, int]) -> Pod:
    limits = {
        "cpu": str(cpus),
        "memory": f"{gibibytes}Gi",
        **{name: str(count) for name, count in devices.items()},
    }
    return pod_from_manifest(
        {
            "metadata": {"name": "synthetic", "uid": "synthetic"},
            "spec": {"containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}]},
        }
    )
