"""Reads and writes what a node publishes about itself: its NodeResourceTopology object, with two annotations.

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
from alignup.kubelet.node_resource_topology.read import Attribute, Topology, read_topology
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


class _Object(msgspec.Struct, gc=False):
    metadata: Metadata
    attributes: list[Attribute] | None = None


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


def decode_report(data: bytes | msgspec.Raw) -> Report:
    """Return a NodeResourceTopology object that an API server sent.

    Raises:
        InputError: it is no object with metadata.
    """
    found = decode_json(data, "a NodeResourceTopology", kind=_Object)
    metadata, annotations = found.metadata, found.metadata.annotations or {}
    attributes = {one.name: one.value for one in found.attributes or ()}
    # other methods leave out pods, and which is not told
    method = attributes.get(METHOD_ATTRIBUTE, METHOD)
    signature = attributes.get(ATTRIBUTE, "") if method == METHOD else ""
    description = annotations.get(NODE)
    text = bytes(data) if description is None else b""
    # machines are alike, so their descriptions are kept once
    return Report(
        metadata.name,
        description and sys.intern(description),
        annotations.get(HOLDINGS),
        text,
        signature,
    )


class Description:
    """Makes empty nodes from their descriptions; the parts that nodes have in common are read once."""

    def __init__(self) -> None:
        self._reader = NodeReader()
        self._templates: dict[tuple[str, tuple[tuple[str, str], ...]], Node] = {}

    def template(self, text: str, labels: Mapping[str, str]) -> Node:
        """Return the empty node that a description stands for; it is shared, so copy it before pods come.

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
            described = decode_json(
                text, "a node as a JSON object", f"the annotation {NODE}", dict[str, msgspec.Raw]
            )
            line = msgspec.json.encode({**described, "name": "node"})
            self._templates[key] = self._reader.empty_node(line, labels)[1]

        return self._templates[key]


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
    found = {one.name: _container_holding(node, pod.uid, one.name) for one in pod.all_containers}
    whole = None if node.cpu is None else node.cpu.pod_cpus(pod.uid)
    sums: dict[str, dict[str, int]] = {}
    if node.memory is not None and node.memory.pod_blocks(pod.uid):
        for name in ("", *found):
            for kind, given in node.memory.shares(pod.uid, name).items():
                places = sums.setdefault(kind, {})
                places |= {
                    str(numa): places.get(str(numa), 0) + size for numa, size in given.items()
                }

    found[""] = ContainerHolding("" if whole is None else str(whole), sums)
    nothing = ContainerHolding()
    return PodHolding(
        pod.uid,
        pod.name,
        pod.namespace,
        {name: one for name, one in found.items() if one != nothing},
    )


def _container_holding(node: Node, uid: str, name: str) -> ContainerHolding:
    cpus = None if node.cpu is None else node.cpu.cpus(uid, name)
    shares = {} if node.memory is None else node.memory.shares(uid, name)
    devices = {} if node.devices is None else node.devices.devices(uid, name)
    return ContainerHolding(
        "" if cpus is None else str(cpus),
        {kind: {str(numa): size for numa, size in given.items()} for kind, given in shares.items()},
        {resource: list(ids) for resource, ids in devices.items()},
    )


def restored_node(template: Node, holdings: Holdings, known: Mapping[str, Pod]) -> Node:
    """Return a node whose pods hold what a report says.

    Args:
        template: the node without pods.
        holdings: the report.
        known: pods by uid; of others there is only what the report says.

    Raises:
        AlignupError: the holdings do not fit the node, or each other.
    """
    node = template.copy()
    pods = []
    for held in holdings.pods:
        found = known.get(held.uid)
        if found is None:
            names = [name for name in held.containers if name or len(held.containers) == 1]
            found = Pod(
                held.uid, held.name, held.namespace, containers=tuple(map(Container, names))
            )

        pods.append(found)

    node.manager.restore(pods)
    # most hold nothing
    for pod, held in [both for both in zip(pods, holdings.pods, strict=True) if both[1].containers]:
        given = 0  # init containers hand CPUs and devices on to those after them
        handed: set[tuple[str, str]] = set()
        for name, one in _adopt_whole(node, pod, held).items():
            if one.cpus and node.cpu is not None:
                cpus = int(CPUSet.parse(one.cpus)) & ~given
                given |= cpus
                node.cpu.adopt(held.uid, name, cpus)

            if one.memory and node.memory is not None:
                node.memory.adopt(
                    held.uid, name, {kind: _by_id(taken) for kind, taken in one.memory.items()}
                )

            if one.devices and node.devices is not None:
                own = {
                    kind: [device for device in ids if (kind, device) not in handed]
                    for kind, ids in one.devices.items()
                }
                node.devices.adopt(held.uid, name, {kind: ids for kind, ids in own.items() if ids})
                handed |= {(kind, device) for kind, ids in own.items() for device in ids}

    for pod in pods:
        ruling = node.pod_policies.ruling(pod) if has_policy(pod) else None
        if isinstance(ruling, ExclusiveScope):  # under it the pod came to hold what it holds
            node.pod_policies.admitted(pod, ruling.ruled.name)

    return node


def _adopt_whole(node: Node, pod: Pod, held: PodHolding) -> dict[str, ContainerHolding]:
    """Let a pod hold what it has as a whole, and return what its containers hold beside that."""
    whole = held.containers.get("")
    if whole is None:
        return held.containers

    others = {name: one for name, one in held.containers.items() if name}
    if whole.cpus and node.cpu is not None:
        parts = {name: int(CPUSet.parse(one.cpus)) for name, one in others.items() if one.cpus}
        node.cpu.adopt_pod(held.uid, int(CPUSet.parse(whole.cpus)), parts)

    if whole.memory and node.memory is not None:
        node.memory.adopt_pod(pod, {kind: _by_id(taken) for kind, taken in whole.memory.items()})

    return {
        name: ContainerHolding(
            "" if whole.cpus else one.cpus, {} if whole.memory else one.memory, one.devices
        )
        for name, one in others.items()
    }


def _by_id(shares: Mapping[str, int]) -> dict[int, int]:
    try:
        return {int(numa): size for numa, size in shares.items()}
    except ValueError as error:
        raise InputError.at("memory", "bytes by NUMA node id", shares) from error
