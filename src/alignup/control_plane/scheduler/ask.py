"""Asks a cluster once: its nodes as they publish themselves, its pods, and its budgets.

It only reads. The same state as the extender's is filled from lists, without a watch. Needs the
extra `cluster`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from alignup.cluster.cluster import Cluster
from alignup.control_plane.api_server import api_client, objects
from alignup.control_plane.api_server.credentials import usual_kubeconfig
from alignup.control_plane.api_server.watch import list_objects
from alignup.control_plane.scheduler.cluster_state import ClusterState
from alignup.control_plane.scheduler.node_state import ExactMember
from alignup.errors import InputError, warn
from alignup.explanations.why import explain
from alignup.kubelet.node_resource_topology.read import node_of
from alignup.kubelet.node_resource_topology.report import (
    Description,
    decode_holdings,
    decode_report,
    restored_node,
)
from alignup.kubernetes.pod_documents import PodDocument, pod_document
from alignup.records import Record, replace
from alignup.text.json_text import decode_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    import msgspec

    from alignup.cluster.evictions import Rules
    from alignup.node import Node

ALIVE: Final = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}

# The reason of Events on rejected pods.
WHY_REJECTED: Final = "WhyRejected"

_T = TypeVar("_T")


class AskedCluster(Record):
    """What a cluster said at one moment.

    Attributes:
        nodes: by name; those of which only amounts are known are made up of these.
        by_amounts: the names of these: what they admit is an upper bound.
        unknown: nodes that publish nothing, or nothing that can be read.
        waiting: pods that are bound to no node.
        rules: who may go for whom.
        has_places: whether some pod has a place from the keeper of the gates.
    """

    nodes: Mapping[str, Node]
    by_amounts: frozenset[str]
    unknown: tuple[str, ...]
    waiting: tuple[objects.WatchedPod, ...]
    rules: Rules
    has_places: bool = False

    def cluster(self) -> Cluster:
        """Return the nodes as a cluster.

        Raises:
            InputError: no node publishes anything.
        """
        if not self.nodes:
            raise InputError(
                "no node publishes a NodeResourceTopology object that can be read: see "
                "docs/cluster.md"
            )
        return Cluster.from_nodes(self.nodes)

    def node(self, name: str) -> Node:
        """Return a node.

        Raises:
            InputError: it publishes nothing, or there is none of this name.
        """
        if name not in self.nodes:
            state = "publishes nothing that can be read" if name in self.unknown else "is not there"
            raise InputError(f"node {name} {state}: see docs/cluster.md")

        return self.nodes[name]


async def read_cluster(api: api_client.Api) -> AskedCluster:
    """Return what a cluster says now.

    Raises:
        AlignupError: the server refuses, or does not answer.
    """
    state = ClusterState()
    reader = objects.PodReader()
    placed: list[str] = []

    def decode_pod(item: msgspec.Raw) -> objects.WatchedPod:
        pod_object = objects.decode_pod(item)
        if objects.PLACE in (pod_object.metadata.annotations or {}):
            placed.append(pod_object.metadata.uid)
        return reader.read(pod_object)

    async def read(path: str, decode: Callable[[msgspec.Raw], Any]) -> list[Any]:
        decoded = []
        query = ALIVE if path == api_client.PODS else None
        try:
            async for item in list_objects(api, path, query):
                try:
                    decoded.append(decode(item))
                except InputError as error:
                    warn(f"{path}: an object is ignored: {error}")
        except api_client.ApiError as error:
            if path != api_client.BUDGETS:
                raise
            warn(str(error))

        return decoded

    nodes, pods, reports, budgets = await asyncio.gather(
        read(api_client.NODES, objects.decode_node),
        read(api_client.PODS, decode_pod),
        read(api_client.TOPOLOGIES, decode_report),
        read(api_client.BUDGETS, objects.decode_budget),
    )
    labels = {node.metadata.name: node.metadata.labels or {} for node in nodes}
    state.nodes_listed(labels)
    state.pods_listed([pod for pod in pods if pod.node], 0.0)
    state.reports_listed([report for report in reports if report.name in labels], 0.0)

    nodes_by_name: dict[str, Node] = {}
    by_amounts = set()
    for name, member in state.members.items():
        if isinstance(member, ExactMember):
            nodes_by_name[name] = member.node
        else:
            nodes_by_name[name] = node_of(replace(member.topology, amounts=member.amounts))
            by_amounts.add(name)

    return AskedCluster(
        nodes_by_name,
        frozenset(by_amounts),
        tuple(sorted(labels.keys() - nodes_by_name.keys())),
        tuple([pod for pod in pods if not pod.node and not pod.is_leaving]),
        objects.rules_of(pods, budgets),
        has_places=bool(placed),
    )


async def read_pod(
    api: api_client.Api, namespace: str, name: str
) -> tuple[dict[str, Any], PodDocument]:
    """Return a pod's manifest, and what it says.

    Raises:
        AlignupError: there is no such pod, the server refuses, or does not answer.
    """
    try:
        text = await api.request("GET", api_client.pod_path(namespace, name))
    except api_client.ApiError as error:
        if error.status != api_client.MISSING:
            raise
        raise InputError(f"there is no pod {namespace}/{name}") from error

    manifest: Any = decode_json(text, "a Pod")
    return manifest, pod_document(manifest, f"pod {namespace}/{name}")


async def why_rejected(api: api_client.Api, pod_object: objects.PodObject) -> str:
    """Return why the node of a rejected pod refuses it now, and the best change that would help.

    It is a sentence each.

    Raises:
        AlignupError: the node publishes no holdings, or the server does not answer.
    """
    name = pod_object.spec.node_name
    path = api_client.object_path(api_client.TOPOLOGIES, name)
    report = decode_report(await api.request("GET", path))
    if report.description is None or report.holdings is None:
        raise InputError(
            f"node {name} publishes no holdings, so it is unknown why it rejected the pod"
        )

    template = Description().template(report.description, {})
    return why_refused(restored_node(template, decode_holdings(report.holdings), {}), pod_object)


def why_refused(node: Node, pod_object: objects.PodObject) -> str:
    """Return why a node refuses a rejected pod now, and the best change that would help.

    It is a sentence each.

    Raises:
        InputError: the pod cannot be read.
    """
    pod = objects.PodReader().read(pod_object).pod
    explanation = explain(node, pod.renamed(uid=f"{pod.uid}/again"))
    if explanation.admitted:
        return f"node {pod_object.spec.node_name} would admit the pod now"

    if not explanation.suggestions:
        return explanation.cause
    return f"{explanation.cause}; what would help: {explanation.suggestions[0].text}"


def ask(
    kubeconfig: str | None,
    read: Callable[[api_client.Api], Awaitable[_T]],
    context: str | None = None,
) -> _T:
    """Return what a cluster answers.

    Args:
        kubeconfig: how to reach it; None: the file that kubectl would take, or the service account
            of this pod.
        read: asks it.
        context: of the file; None: its current one.

    Raises:
        AlignupError: it cannot be asked.
    """
    return api_client.with_api(kubeconfig or usual_kubeconfig(), read, context)
