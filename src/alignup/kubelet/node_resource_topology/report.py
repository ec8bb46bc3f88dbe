"""Reads and writes what a node publishes about itself.

That is its NodeResourceTopology object, with two annotations.

`alignup.dev/node` describes the node as a line of `alignup rank --nodes` does: machine,
configuration, devices. It changes when a kubelet starts anew. `alignup.dev/holdings` lists which
CPUs, memory and devices each container holds. A node that publishes both can be judged exactly; one
without them by the amounts of its zones.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from alignup.cluster.json_lines import NodeReader
from alignup.errors import InputError
from alignup.koordinator.node_policies import ExclusiveScope
from alignup.kubelet.node_resource_topology.read import (
    GROUP,
    KIND,
    Attribute,
    Topology,
    read_topology,
)
from alignup.kubelet.node_resource_topology.write import ATTRIBUTE, METHOD, METHOD_ATTRIBUTE
from alignup.kubernetes.pod import Container, Pod
from alignup.kubernetes.wire import Metadata  # noqa: TC001  # msgspec reads annotations
from alignup.machine.cpuset import CPUSet
from alignup.machine.machine import MEMORY_LIMIT
from alignup.node.inputs import has_policy
from alignup.text.json_text import decode_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alignup.node import Node

NODE: Final = "alignup.dev/node"
HOLDINGS: Final = "alignup.dev/holdings"
# Letters of descriptions that are kept read. What is made of one takes some ten times its size.
_MOST_DESCRIBED: Final = 16 << 20
_Bytes = Annotated[int, msgspec.Meta(ge=0, le=MEMORY_LIMIT)]


class ContainerHolding(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """What one container holds.

    Attributes:
        cpus: CPUs of its own, in the kernel's list format.
        memory: type -> kernel node id -> bytes.
        devices: resource -> ids.
    """

    cpus: str = ""
    memory: dict[str, dict[str, _Bytes]] = {}
    devices: dict[str, list[str]] = {}


class PodHolding(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """What the containers of one pod hold; those that hold nothing are left out.

    Attributes:
        containers: under the empty name, what a pod holds as a whole (PodLevelResourceManagers),
            which its containers divide.
    """

    uid: str
    name: str
    namespace: str = "default"
    containers: dict[str, ContainerHolding] = {}


class Holdings(msgspec.Struct, rename="camel", frozen=True):
    """All pods that a node has admitted, in the order of their admission."""

    pods: list[PodHolding]


class ReportObject(msgspec.Struct, rename="camel", gc=False):
    """A NodeResourceTopology object on the wire; what few of its readers need is text still."""

    metadata: Metadata
    kind: str = KIND
    api_version: str = GROUP
    attributes: list[Attribute] | None = None
    topology_policies: msgspec.Raw = msgspec.Raw(b"null")
    zones: msgspec.Raw = msgspec.Raw(b"null")


class Report(msgspec.Struct, frozen=True):
    """A NodeResourceTopology object on the wire, not read further than its annotations.

    Attributes:
        description: the annotation `alignup.dev/node`.
        holdings: the annotation `alignup.dev/holdings`.
        text: the object, of one without a description: nothing else of the others is read.
        fingerprint: of all pods that the object knows of; empty: it does not say.
    """

    name: str
    description: str | None
    holdings: str | None
    text: bytes
    fingerprint: str = ""

    def topology(self) -> Topology:
        """Return the amounts of the zones.

        Raises:
            InputError: it is no NodeResourceTopology object of version v1alpha2.
        """
        return read_topology(msgspec.Raw(self.text), self.name)


def decode_report(data: bytes | msgspec.Raw | ReportObject) -> Report:
    """Return a NodeResourceTopology object that an API server sent, also if it is decoded already.

    Raises:
        InputError: it is no object with metadata.
    """
    wire = data
    if not isinstance(wire, ReportObject):
        wire = decode_json(wire, "a NodeResourceTopology", kind=ReportObject)

    attributes = {attribute.name: attribute.value for attribute in wire.attributes or ()}
    # other methods leave out pods, and which is not told
    fingerprint = ""
    if attributes.get(METHOD_ATTRIBUTE, METHOD) == METHOD:
        fingerprint = attributes.get(ATTRIBUTE, "")

    annotations = wire.metadata.annotations or {}
    description = annotations.get(NODE)
    return Report(
        wire.metadata.name,
        # machines are alike, so their descriptions are kept once
        description and sys.intern(description),
        annotations.get(HOLDINGS),
        text=msgspec.json.encode(wire) if description is None else b"",
        fingerprint=fingerprint,
    )


class Description:
    """Makes empty nodes from their descriptions.

    The parts that nodes have in common are read once, until there are too many to keep: a node may
    describe itself otherwise again and again.
    """

    def __init__(self) -> None:
        self._reader = NodeReader()
        self._templates: dict[tuple[str, tuple[tuple[str, str], ...]], Node] = {}
        self._letters = 0

    def template(self, text: str, labels: Mapping[str, str]) -> Node:
        """Return the empty node that a description stands for.

        It is shared, so copy it before pods come.

        Args:
            text: the annotation.
            labels: those of the Node object that matter here; they go before labels in the
                description.

        Raises:
            InputError: it is no description of a node.
            ConfigError: a kubelet would refuse to start there.
        """
        key = text, tuple(sorted(labels.items()))
        if key not in self._templates:
            self._make_room(len(text))
            described = decode_json(
                text, "a node as a JSON object", f"the annotation {NODE}", dict[str, msgspec.Raw]
            )
            line = msgspec.json.encode({**described, "name": "node"})
            self._templates[key] = self._reader.empty_node(line, labels)[1]

        return self._templates[key]

    def _make_room(self, letters: int) -> None:
        """Forget all if there would be too much with a text of so many letters."""
        if self._letters + letters > _MOST_DESCRIBED:
            self._reader = NodeReader()
            self._templates = {}
            self._letters = 0
        self._letters += letters


def decode_holdings(text: str) -> Holdings:
    """Return the holdings in an annotation.

    Raises:
        InputError: they are of another form.
    """
    return decode_json(text, "holdings", f"the annotation {HOLDINGS}", Holdings)


def annotations_of(description: str, node: Node) -> dict[str, str]:
    """Return the two annotations of a node."""
    return {NODE: description, HOLDINGS: msgspec.json.encode(holdings_of(node)).decode()}


def holdings_of(node: Node) -> Holdings:
    """Return what the pods of a node hold."""
    return Holdings([pod_holding(node, pod) for pod in node.pods])


def pod_holding(node: Node, pod: Pod) -> PodHolding:
    """Return what a pod holds on a node."""
    containers = {
        container.name: _container_holding(node, pod.uid, container.name)
        for container in pod.all_containers
    }

    sums: dict[str, dict[str, int]] = {}
    if node.memory is not None and node.memory.pod_blocks(pod.uid):
        for name in ("", *containers):
            for kind, shares in node.memory.shares(pod.uid, name).items():
                sizes = sums.setdefault(kind, {})
                for numa_id, size in shares.items():
                    sizes[str(numa_id)] = sizes.get(str(numa_id), 0) + size

    cpus = None
    if node.cpu is not None:
        cpus = node.cpu.pod_cpus(pod.uid)
    containers[""] = ContainerHolding("" if cpus is None else str(cpus), sums)

    nothing = ContainerHolding()
    return PodHolding(
        pod.uid,
        pod.name,
        pod.namespace,
        {name: holding for name, holding in containers.items() if holding != nothing},
    )


def _container_holding(node: Node, uid: str, name: str) -> ContainerHolding:
    cpus = None
    if node.cpu is not None:
        cpus = node.cpu.cpus(uid, name)

    memory: dict[str, dict[str, int]] = {}
    if node.memory is not None:
        for kind, shares in node.memory.shares(uid, name).items():
            memory[kind] = {str(numa_id): size for numa_id, size in shares.items()}

    devices: dict[str, list[str]] = {}
    if node.devices is not None:
        for resource, ids in node.devices.devices(uid, name).items():
            devices[resource] = list(ids)

    return ContainerHolding("" if cpus is None else str(cpus), memory, devices)


def restored_node(template: Node, holdings: Holdings, known_pods: Mapping[str, Pod]) -> Node:
    """Return a node whose pods hold what a report says.

    Args:
        template: the node without pods.
        holdings: the report.
        known_pods: pods by uid; of others there is only what the report says.

    Raises:
        AlignupError: the holdings do not fit the node, or each other.
    """
    node = template.copy()
    pods = [known_pods.get(holding.uid) or _pod_of(holding) for holding in holdings.pods]

    node.manager.restore(pods)
    for pod, holding in zip(pods, holdings.pods, strict=True):
        if holding.containers:  # most hold nothing
            _adopt(node, pod, holding)

    for pod in pods:
        ruling = node.pod_policies.ruling(pod) if has_policy(pod) else None
        if isinstance(ruling, ExclusiveScope):  # under it the pod came to hold what it holds
            node.pod_policies.admitted(pod, ruling.ruled.name)

    return node


def _pod_of(holding: PodHolding) -> Pod:
    """Return a pod of which there is only what a report says."""
    names = [name for name in holding.containers if name or len(holding.containers) == 1]
    containers = tuple(map(Container, names))
    return Pod(holding.uid, holding.name, holding.namespace, containers=containers)


def _adopt(node: Node, pod: Pod, pod_holding: PodHolding) -> None:
    """Let a pod hold what a report says."""
    uid = pod_holding.uid
    # init containers hand CPUs and devices on to those after them
    adopted_cpus = 0
    adopted_devices: set[tuple[str, str]] = set()
    for name, holding in _adopt_whole(node, pod, pod_holding).items():
        if holding.cpus and node.cpu is not None:
            cpus = int(CPUSet.parse(holding.cpus)) & ~adopted_cpus
            adopted_cpus |= cpus
            node.cpu.adopt(uid, name, cpus)

        if holding.memory and node.memory is not None:
            node.memory.adopt(uid, name, _memory_by_id(holding), pod.namespaced_name)

        if holding.devices and node.devices is not None:
            new_ids: dict[str, list[str]] = {}
            for resource, ids in holding.devices.items():
                for device in ids:
                    if (resource, device) not in adopted_devices:
                        new_ids.setdefault(resource, []).append(device)
                        adopted_devices.add((resource, device))

            node.devices.adopt(uid, name, new_ids)


def _adopt_whole(node: Node, pod: Pod, pod_holding: PodHolding) -> dict[str, ContainerHolding]:
    """Let a pod hold what it has as a whole, and return what its containers hold beside that."""
    whole = pod_holding.containers.get("")
    if whole is None:
        return pod_holding.containers

    containers = {name: holding for name, holding in pod_holding.containers.items() if name}
    if whole.cpus and node.cpu is not None:
        parts = {
            name: int(CPUSet.parse(holding.cpus))
            for name, holding in containers.items()
            if holding.cpus
        }
        node.cpu.adopt_pod(pod_holding.uid, int(CPUSet.parse(whole.cpus)), parts)

    if whole.memory and node.memory is not None:
        node.memory.adopt_pod(pod, _memory_by_id(whole))

    return {
        name: ContainerHolding(
            cpus="" if whole.cpus else holding.cpus,
            memory={} if whole.memory else holding.memory,
            devices=holding.devices,
        )
        for name, holding in containers.items()
    }


def _memory_by_id(holding: ContainerHolding) -> dict[str, dict[int, int]]:
    """Return the memory of a container by type and kernel node id."""
    memory = {}
    for kind, shares in holding.memory.items():
        try:
            memory[kind] = {int(numa_id): size for numa_id, size in shares.items()}
        except ValueError as error:
            raise InputError.at("memory", "bytes by NUMA node id", shares) from error

    return memory
