"""One simulated kubelet: admits pods exactly as a kubelet would, and writes the objects that a kubelet writes.

Pure: what goes to the API server is returned; `alignup.scheduler.fleet` sends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from alignup.errors import AlignupError
from alignup.kubelet.pod_resources import Allocatable, ContainerResources, PodResources
from alignup.kubernetes.node_fit import node_limits
from alignup.kubernetes.pod_requests import CONFIG_SOURCE
from alignup.machine.cpuset import CPUSet
from alignup.node_resource_topology.write import topology_object
from alignup.records import Record
from alignup.scheduler.report import Holdings, annotations_of, restored_node
from alignup.topology_manager.admission import MemoryBlock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alignup.kubernetes.pod import Container, Pod
    from alignup.node import Node
    from alignup.scheduler.objects import PodObject
    from alignup.topology_manager.admission import Admission

_LOCALITY: Final = "Resources cannot be allocated with Topology locality"


class Rejection(Record):
    """Why a kubelet rejects a pod, in its own words."""

    reason: str
    message: str


class FleetNode:
    """A node without a machine.

    Args:
        name: the name of the Node object.
        node: the node, without pods.
        description: what the node publishes about itself, as JSON; see `alignup.scheduler.report`.
    """

    __slots__ = ("_template", "allocatable", "capacity", "description", "name", "node")

    def __init__(self, name: str, node: Node, description: str) -> None:
        self.name, self.description = name, description
        node.whole_verdict = True
        self.node = self._template = node
        machine, pools = node.machine, node.devices.pools if node.devices else {}
        healthy = {resource: pool.healthy.bit_count() for resource, pool in pools.items()}
        self.allocatable = node_limits(machine, node.config, healthy).allocatable
        self.capacity = {
            "cpu": 1000 * machine.cpu_count,
            **machine.memory_by_type,
            "memory": sum(one.memory for one in machine.numa_nodes),
            "pods": self.allocatable["pods"],
            **{resource: len(pool.devices) for resource, pool in pools.items()},
        }

    def restore(self, holdings: Holdings) -> None:
        """Take over what an earlier process of this fleet reported for the node.

        Raises:
            AlignupError: the holdings do not fit the node.
        """
        self.node = restored_node(self._template, holdings, {})

    def has(self, uid: str) -> bool:
        """Return whether a pod is admitted."""
        return any(one.uid == uid for one in self.node.pods)

    def admit(self, pod: Pod) -> Rejection | None:
        """Admit a pod, or say why it is rejected."""
        # nobody is preempted for what says that it is a static pod: a fleet has none
        annotations = {key: value for key, value in pod.annotations.items() if key != CONFIG_SOURCE}
        try:
            admission = self.node.admit(pod.renamed(annotations=annotations))
        except AlignupError as error:
            return Rejection("UnexpectedAdmissionError", f"Allocate failed due to {error}, which is unexpected")
        return None if admission else _rejection(admission)

    def end(self, uid: str) -> bool:
        """Free what a pod holds; return whether it was here."""
        if not self.has(uid):
            return False
        self.node.remove(uid)
        return True

    def report(self, *, with_holdings: bool) -> dict[str, Any]:
        """Return the NodeResourceTopology object of the node as it is now."""
        found = topology_object(self.name, self.node)
        if with_holdings:
            found["metadata"]["annotations"] = annotations_of(self.description, self.node)
        return found

    def pod_resources(self) -> tuple[list[PodResources], Allocatable]:
        """Return what PodResources tells: the pods, and what there is to give, with all devices."""
        node, nothing = self.node, CPUSet()
        memory = {} if node.memory is None else node.memory.allocatable
        ids = node.machine.numa_node_ids
        blocks = [
            MemoryBlock((ids[at],), kind, size) for kind, by in memory.items() for at, size in enumerate(by) if size
        ]
        pools = {} if node.devices is None else node.devices.pools
        devices = {resource: pool.devices for resource, pool in pools.items()}
        allocatable = Allocatable(nothing if node.cpu is None else node.cpu.allocatable_cpus, tuple(blocks), devices)
        pods = [
            PodResources(
                pod.namespace,
                pod.name,
                tuple([_resources(node, pod.uid, one.name) for one in pod.all_containers if _is_told(one)]),
                (node.cpu and node.cpu.pod_cpus(pod.uid)) or nothing,
                node.memory.pod_blocks(pod.uid) if node.memory else (),
            )
            for pod in node.pods
        ]
        return pods, allocatable

    def node_object(self, labels: Mapping[str, str]) -> dict[str, Any]:
        """Return the Node object, without its status."""
        common = {"kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux", "alignup.dev/fleet": "true"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": {**common, **self.node.labels, **labels}},
        }

    def node_status(self, moment: str) -> dict[str, Any]:
        """Return the status of the Node object: a kubelet that is ready.

        Args:
            moment: now, in the form of the API.
        """
        return {
            "capacity": _quantities(self.capacity),
            "allocatable": _quantities(self.allocatable),
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "message": "alignup fleet is posting ready status",
                    "lastHeartbeatTime": moment,
                    "lastTransitionTime": moment,
                }
            ],
            "addresses": [{"type": "Hostname", "address": self.name}],
            "nodeInfo": _node_info(f"v{self.node.config.version}.0"),
        }


def _is_told(container: Container) -> bool:
    return container.is_sidecar or not container.is_init


def _resources(node: Node, uid: str, name: str) -> ContainerResources:
    return ContainerResources(
        name,
        (node.cpu and node.cpu.cpus(uid, name)) or CPUSet(),
        node.memory.blocks(uid, name) if node.memory else (),
        node.devices.devices(uid, name) if node.devices else {},
    )


def _rejection(admission: Admission) -> Rejection:
    """Return a refusal in the kubelet's words; of errors within the managers the last words are ours."""
    if admission.reason == "TopologyAffinityError":
        return Rejection(admission.reason, _LOCALITY)
    detail = (admission.refusal.detail if admission.refusal else "") or admission.message
    if admission.reason == "UnexpectedAdmissionError":
        return Rejection(admission.reason, f"Allocate failed due to {detail}, which is unexpected")
    return Rejection(admission.reason, detail)


def _quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in amounts.items()}


def _node_info(version: str) -> dict[str, str]:
    """Return the fields that a NodeSystemInfo must have."""
    names = ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "kubeProxyVersion")
    fixed = {
        "architecture": "amd64",
        "operatingSystem": "linux",
        "containerRuntimeVersion": "alignup://fleet",
        "kubeletVersion": version,
    }
    return {**dict.fromkeys(names, ""), **fixed}


def rejected_status(rejection: Rejection, moment: str) -> dict[str, Any]:
    """Return the status of a pod that its kubelet rejected."""
    return {
        "phase": "Failed",
        "reason": rejection.reason,
        "message": f"Pod was rejected: {rejection.message}",
        "startTime": moment,
    }


def running_status(pod: PodObject, moment: str) -> dict[str, Any]:
    """Return the status of a pod whose containers run."""
    types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "startTime": moment,
        "conditions": [{"type": one, "status": "True", "lastTransitionTime": moment} for one in types],
        "containerStatuses": [
            {
                "name": one.name,
                "state": {"running": {"startedAt": moment}},
                "ready": True,
                "started": True,
                "restartCount": 0,
                "image": "none",
                "imageID": "",
            }
            for one in pod.spec.containers
        ],
    }


def ended_status(phase: str, moment: str) -> dict[str, Any]:
    """Return the status of a pod whose containers have ended, as `Succeeded` or `Failed`."""
    types = ("Ready", "ContainersReady")
    conditions = [
        {"type": one, "status": "False", "reason": "PodCompleted", "lastTransitionTime": moment} for one in types
    ]
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": moment}
    return {"phase": phase, "conditions": [*conditions, scheduled]}
