"""Keepers of small clusters, and what they and their pods look like."""

from __future__ import annotations

import json

from alignup.control_plane.gates.decisions import Label, Release
from alignup.control_plane.gates.keeper import Keeper
from alignup.control_plane.gates.node_affinity import pinned
from alignup.control_plane.gates.waiting_pods import PLACE, PLACE_LABEL
from alignup.control_plane.scheduler.cluster_state import ClusterState
from alignup.kubelet.node_resource_topology.report import Description
from alignup.kubernetes.node_fit import NodeObject
from inputs.waiting_pods import GATED_READER, gated_object, member
from inputs.watched_objects import description, pod_object, report

EMPTY = Description().template(json.dumps(description()), {})


GIBI = 1 << 30


ROOM = {"cpu": 7000, "memory": 15 * GIBI, "pods": 110, "example.com/gpu": 2}


TAINT = {"key": "example.com/broken", "effect": "NoSchedule"}


SPREAD = {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}


def node(name, **fields):
    return NodeObject(name, allocatable=ROOM, **fields)


def exact(name, holdings=EMPTY):
    return report(name, described=description(), holdings=holdings)


def keeper_of(*names, **options):
    """Return a keeper of empty nodes with 3 and 4 CPUs on two NUMA nodes, single-numa-node."""
    keeper = Keeper(ClusterState(), **options)
    keeper.pods_listed([], 0)
    keeper.nodes_listed([node(name) for name in names], 0)
    for name in names:
        keeper.state.report_seen(exact(name), 0)
    return keeper


def bound(name, where, **fields):
    return GATED_READER.decode(json.dumps(pod_object(name, where, **fields)).encode())


def grouped_pod(name, size=4, cpu=4):
    """Return the record of a gated member of the group `g`."""
    return GATED_READER.decode(json.dumps(member(name, size, cpu=cpu)).encode())


def let_go(name, names, *, refused=False, version="2", **fields):
    """Return a gated pod as the API server has it after the keeper's patch."""
    pod = gated_object(name, **fields)
    label = f"{PLACE_LABEL}uid-{name}"
    pod["spec"] |= {"schedulingGates": None, "affinity": pinned(None, names, label)}
    pod["metadata"] |= {"annotations": {PLACE: ",".join(names)}, "resourceVersion": version}
    if refused:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        pod["status"] = {"conditions": [condition]}
    return GATED_READER.decode(json.dumps(pod).encode())


def given(decisions):
    """Return the places that decisions give, by the name of the pod."""
    return {
        decision.pod.watched.pod.name: decision.nodes
        for decision in decisions
        if isinstance(decision, Release)
    }


def labels(decisions):
    return [
        (decision.node, decision.key.rpartition("-")[2], decision.is_set)
        for decision in decisions
        if isinstance(decision, Label)
    ]
