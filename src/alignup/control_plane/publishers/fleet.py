"""Simulated kubelets for schedulers and planners.

It registers nodes, and runs the pods that are bound to them. A `FleetNode` admits pods exactly as a
kubelet would, and makes the objects that a kubelet writes; a `Fleet` sends them, and follows pods.
Containers do not run: a pod ends when it is deleted, when its annotation says so, or when its time
is up. The nodes come from JSON lines as for `alignup rank --nodes`, or from the catalog; what they
hold is shown over HTTP. Needs the extra `cluster`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import msgspec
from aiohttp import web

from alignup.control_plane.api_server import api_client
from alignup.control_plane.api_server.objects import PodObject, PodReader, decode_pod
from alignup.control_plane.api_server.watch import Backoff, Follower, list_objects
from alignup.errors import AlignupError, InputError, errors_at, warn
from alignup.kubelet.node_resource_topology import report as reports
from alignup.kubelet.node_resource_topology.write import topology_object
from alignup.kubelet.pod_resources import Allocatable, ContainerResources, PodResources
from alignup.kubernetes.node_fit import node_limits
from alignup.kubernetes.pod import CONFIG_SOURCE, Pod
from alignup.machine.cpuset import CPUSet
from alignup.records import Record
from alignup.text.json_text import decode_json, numbered_lines
from alignup.topology_manager.admission import MemoryBlock
from alignup.topology_manager.scope import TOPOLOGY_AFFINITY_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from alignup.node import Node


_LOG: Final = logging.getLogger(__name__)

# The annotation of a pod that says for how many seconds it runs.
DURATION: Final = "alignup.dev/duration"

# The annotation of a pod that ends it: `Succeeded` or `Failed`.
END: Final = "alignup.dev/end"

_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_AT_ONCE: Final = 32
_LEASE_SECONDS: Final = 40

# Leases are renewed so many times before the status of a node is; a kubelet does so every five
# minutes.
_STATUS_EVERY: Final = 30

_NAMED: Final = "a node as a JSON object with a name"
_NULL: Final = msgspec.Raw(b"null")


class Rejection(Record):
    """Why a kubelet rejects a pod, in its own words."""

    reason: str
    message: str


class FleetNode:
    """A node without a machine.

    Args:
        name: the name of the Node object.
        node: the node, without pods.
        description: what the node publishes about itself, as JSON; see
            `alignup.kubelet.node_resource_topology.report`.
    """

    __slots__ = ("_template", "allocatable", "capacity", "description", "name", "node")

    def __init__(self, name: str, node: Node, description: str) -> None:
        self.name = name
        self.description = description
        node.whole_verdict = True
        self._template = node
        self.node = node

        machine = node.machine
        healthy = {resource: pool.healthy.bit_count() for resource, pool in node.pools.items()}
        self.allocatable = node_limits(machine, node.config, healthy).allocatable
        self.capacity = {
            "cpu": 1000 * machine.cpu_count,
            **machine.memory_by_type,
            "memory": machine.memory,
            "pods": self.allocatable["pods"],
            **{resource: len(devices) for resource, devices in node.inventory.items()},
        }

    def restore(self, holdings: reports.Holdings) -> None:
        """Take over what an earlier process of this fleet reported for the node.

        Raises:
            AlignupError: the holdings do not fit the node.
        """
        self.node = reports.restored_node(self._template, holdings, {})

    def admit(self, pod: Pod) -> Rejection | None:
        """Admit a pod, or say why it is rejected."""
        # nobody is preempted for what says that it is a static pod: a fleet has none
        annotations = {key: value for key, value in pod.annotations.items() if key != CONFIG_SOURCE}
        try:
            admission = self.node.admit(pod.renamed(annotations=annotations))
        except AlignupError as error:
            return _rejection("UnexpectedAdmissionError", str(error))

        if admission:
            return None

        detail = admission.refusal.detail if admission.refusal else ""
        return _rejection(admission.reason, detail or admission.message)

    def end(self, uid: str) -> bool:
        """Free what a pod holds; return whether it was here."""
        is_here = self.node.manager.has_pod(uid)
        if is_here:
            self.node.remove(uid)
        return is_here

    def report(self, *, with_holdings: bool) -> dict[str, Any]:
        """Return the NodeResourceTopology object of the node as it is now."""
        topology = topology_object(self.name, self.node)
        if with_holdings:
            topology["metadata"]["annotations"] = reports.annotations_of(
                self.description, self.node
            )
        return topology

    def pod_resources(self) -> tuple[list[PodResources], Allocatable]:
        """Return what PodResources tells: the pods, and what is allocatable, with all devices."""
        node = self.node
        blocks = []
        if node.memory is not None:
            for kind, sizes in node.memory.allocatable.items():
                for numa_id, size in zip(node.machine.numa_node_ids, sizes, strict=True):
                    if size:
                        blocks.append(MemoryBlock((numa_id,), kind, size))

        pods = []
        for pod in node.pods:
            cpus = (node.cpu and node.cpu.pod_cpus(pod.uid)) or CPUSet()
            pod_blocks = node.memory.pod_blocks(pod.uid) if node.memory else ()
            containers = tuple(_resources(node, pod))
            pods.append(PodResources(pod.namespace, pod.name, containers, cpus, pod_blocks))

        allocatable_cpus = CPUSet() if node.cpu is None else node.cpu.allocatable_cpus
        return pods, Allocatable(allocatable_cpus, tuple(blocks), node.inventory)

    def node_object(self, labels: Mapping[str, str]) -> dict[str, Any]:
        """Return the Node object, without its status."""
        common = {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "alignup.dev/fleet": "true",
        }
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
        conditions = _conditions("ready", moment)
        for condition in conditions:
            condition["lastHeartbeatTime"] = moment

        version = f"v{self.node.config.version}.0"
        return {
            "capacity": _quantities(self.capacity),
            "allocatable": _quantities(self.allocatable),
            "conditions": conditions,
            "addresses": [{"type": "Hostname", "address": self.name}],
            "nodeInfo": {**_shapes()["nodeInfo"], "kubeletVersion": version},
        }


@cache
def _shapes() -> Mapping[str, Any]:
    """Return what is the same in every status."""
    shapes: Mapping[str, Any] = msgspec.json.decode(
        Path(__file__).with_name("fleet.json").read_bytes()
    )
    return shapes


def _conditions(name: str, moment: str) -> list[dict[str, str]]:
    return [{**condition, "lastTransitionTime": moment} for condition in _shapes()[name]]


def _resources(node: Node, pod: Pod) -> Iterator[ContainerResources]:
    for container in pod.all_containers:
        if container.is_sidecar or not container.is_init:
            allocation = node.allocation(pod.uid, container.name)
            cpus = allocation.cpus or CPUSet()
            yield ContainerResources(container.name, cpus, allocation.memory, allocation.devices)


def _rejection(reason: str, detail: str) -> Rejection:
    """Return a refusal in the kubelet's words.

    Of errors within the managers the last words are ours.
    """
    message = detail
    if reason == "TopologyAffinityError":
        message = TOPOLOGY_AFFINITY_MESSAGE
    elif reason == "UnexpectedAdmissionError":
        message = f"Allocate failed due to {detail}, which is unexpected"

    return Rejection(reason, message)


def _quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    return {
        name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in amounts.items()
    }


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
    return {
        "phase": "Running",
        "startTime": moment,
        "conditions": _conditions("running", moment),
        "containerStatuses": [
            {
                "name": container.name,
                "state": {"running": {"startedAt": moment}},
                **_shapes()["container"],
            }
            for container in pod.spec.containers
        ],
    }


def ended_status(phase: str, moment: str) -> dict[str, Any]:
    """Return the status of a pod whose containers have ended, as `Succeeded` or `Failed`."""
    return {"phase": phase, "conditions": _conditions("ended", moment)}


class Fleet:
    """Many simulated kubelets on one API server.

    Args:
        api: the server.
        nodes: the nodes.
        labels: further labels of all Node objects.
        duration: seconds after which pods without an annotation end; None: they run until they are
            deleted.
        with_holdings: publish what pods hold, and not only amounts.
        renew: seconds between renewals of a lease.
    """

    def __init__(
        self,
        api: api_client.Api,
        nodes: Iterable[FleetNode],
        *,
        labels: Mapping[str, str] | None = None,
        duration: float | None = None,
        with_holdings: bool = True,
        renew: float = 10.0,
    ) -> None:
        self.nodes = {node.name: node for node in nodes}
        self._api = api
        self._labels = dict(labels or {})
        self._duration = duration
        self._with_holdings = with_holdings
        self._renew_every = renew
        self._reader = PodReader()

        # By uid, the pods that run, and when those end that have a duration.
        self._pods: dict[str, PodObject] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

        # Names of nodes whose report is to be written.
        self._changed: set[str] = set()
        # What is written under one key is written in turn.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: asyncio.TaskGroup
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._lease_slots = asyncio.Semaphore(_AT_ONCE)
        self._renewing: set[str] = set()

        query = {"fieldSelector": "spec.nodeName!="}
        self._follower = Follower(api, api_client.PODS, decode_pod, self, query=query)

    @property
    def is_synced(self) -> bool:
        """Whether all nodes are registered and the pods on them are known."""
        return self._follower.synced.is_set()

    async def run(self) -> None:
        """Register all nodes, and be their kubelets until cancelled."""
        await self._restore()
        async with asyncio.TaskGroup() as tasks:
            for node in self.nodes.values():
                tasks.create_task(self._written(node.name, partial(self._register, node)))

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follower.run())
            tasks.create_task(self._renew_leases(tasks))
            self._tasks = tasks
            try:
                await asyncio.get_running_loop().create_future()
            finally:  # whoever ends from now on is not written
                for timer in self._timers.values():
                    timer.cancel()

    # What happens to pods.

    def listed(self, pod_objects: list[PodObject]) -> None:
        """Take in all bound pods, those that were here first before the others."""
        bound_pods = {
            pod_object.metadata.uid: pod_object
            for pod_object in pod_objects
            if pod_object.spec.node_name in self.nodes
        }
        for node in self.nodes.values():
            for pod in node.node.pods:
                if pod.uid not in bound_pods:
                    self._free(node, pod.uid)

        for uid in [uid for uid in self._pods if uid not in bound_pods]:
            self._forget(uid)

        for pod_object in sorted(
            bound_pods.values(), key=lambda bound_pod: bound_pod.status.start_time or "9"
        ):
            self.changed(pod_object)

    def changed(self, pod_object: PodObject) -> None:
        """Take in a bound pod: admit a new one, end one that shall end."""
        node = self.nodes.get(pod_object.spec.node_name)
        if node is None:
            return

        uid = pod_object.metadata.uid
        if pod_object.metadata.deletion_timestamp is not None:
            self._free(node, uid)
            self._forget(uid)
            self._write(uid, lambda: self._delete(pod_object))
        elif pod_object.has_ended:
            self.gone(pod_object)
        elif uid not in self._pods:
            self._start(node, pod_object)
        elif END in (pod_object.metadata.annotations or {}):
            self._end(node, pod_object)

    def gone(self, pod_object: PodObject) -> None:
        """Take in that a pod was deleted."""
        node = self.nodes.get(pod_object.spec.node_name)
        if node is not None:
            self._free(node, pod_object.metadata.uid)

        self._forget(pod_object.metadata.uid)

    def _start(self, node: FleetNode, pod_object: PodObject) -> None:
        """Admit a pod, or reject it; one that runs already was admitted by an earlier process."""
        uid = pod_object.metadata.uid
        now = api_client.now()
        self._pods[uid] = pod_object
        if not node.node.manager.has_pod(uid):
            try:
                rejection = node.admit(self._reader.read(pod_object).pod)
            except AlignupError as error:
                self._api.complain(f"pod {pod_object.metadata.namespaced_name}: {error}")
                return

            _LOG.debug(
                "pod %s: %s %s",
                pod_object.metadata.namespaced_name,
                "rejected by" if rejection else "on",
                node.name,
            )
            if rejection is not None:
                self._write(
                    uid, lambda: self._set_status(pod_object, rejected_status(rejection, now))
                )
                return

            self._report(node)

        if pod_object.status.phase != "Running":
            self._write(uid, lambda: self._set_status(pod_object, running_status(pod_object, now)))

        annotations = pod_object.metadata.annotations or {}
        duration = self._duration
        if DURATION in annotations:
            duration = seconds_of(annotations[DURATION])

        if END in annotations:
            self._end(node, pod_object)
        elif duration is not None:
            self._timers[uid] = asyncio.get_running_loop().call_later(
                duration, self._end, node, pod_object
            )

    def _end(self, node: FleetNode, pod_object: PodObject) -> None:
        """End a pod whose time is up."""
        phase = (pod_object.metadata.annotations or {}).get(END, "Succeeded")
        if phase not in {"Succeeded", "Failed"}:
            phase = "Succeeded"

        uid = pod_object.metadata.uid
        self._free(node, uid)
        self._timers.pop(uid, None)
        self._write(
            uid, lambda: self._set_status(pod_object, ended_status(phase, api_client.now()))
        )

    def _free(self, node: FleetNode, uid: str) -> None:
        if node.end(uid):
            self._report(node)

    def _forget(self, uid: str) -> None:
        self._pods.pop(uid, None)
        timer = self._timers.pop(uid, None)
        if timer is not None:
            timer.cancel()

    # What is written.

    def _report(self, node: FleetNode) -> None:
        """Publish a node soon; what changes until then is published with it."""
        if node.name not in self._changed:
            self._changed.add(node.name)
            self._write(f"node {node.name}", lambda: self._publish(node))

    def _write(self, key: str, write: Callable[[], Awaitable[object]]) -> None:
        """Write something soon, after what was to be written earlier under the same key."""
        self._tasks.create_task(self._written(key, write))

    async def _written(self, key: str, write: Callable[[], Awaitable[object]]) -> None:
        turn = self._turns.setdefault(key, asyncio.Lock())
        async with turn, self._slots:
            await self._try(write)

    async def _try(self, write: Callable[[], Awaitable[object]]) -> None:
        """Write until the server has taken it or refused it for good.

        An object that is gone needs nothing.
        """
        backoff = Backoff(self._api.pauses)
        while True:
            try:
                await write()
            except api_client.ApiError as error:
                if error.status == api_client.MISSING:
                    return

                self._api.complain(str(error))
                if not error.is_passing:
                    return

                await backoff.pause()
            else:
                return

    async def _publish(self, node: FleetNode) -> None:
        self._changed.discard(node.name)
        body = node.report(with_holdings=self._with_holdings)
        try:
            await api_client.write_object(self._api, api_client.TOPOLOGIES, node.name, body)
        except api_client.ApiError as error:
            if error.is_passing:  # this write is tried again, with what changes until then
                self._changed.add(node.name)
            raise

    async def _set_status(self, pod_object: PodObject, status: Mapping[str, Any]) -> None:
        metadata = pod_object.metadata
        # the uid lets the server refuse a status that is meant for an earlier pod of the name
        body = {"metadata": {"uid": metadata.uid}, "status": status}
        path = api_client.pod_path(metadata.namespace, metadata.name, "status")
        accepted = () if metadata.uid in self._pods else (api_client.CONFLICT,)
        with api_client.accepting(*accepted):
            await self._api.request("PATCH", path, body)

    async def _delete(self, pod_object: PodObject) -> None:
        metadata = pod_object.metadata
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata.uid}}
        path = api_client.pod_path(metadata.namespace, metadata.name)
        # the pod is gone, and another one has its name
        with api_client.accepting(api_client.CONFLICT):
            await self._api.request("DELETE", path, body)

    # Nodes.

    async def _restore(self) -> None:
        """Take over what an earlier process of this fleet published."""
        # with an error of the server nothing was published
        with self._api.complaining(f"{api_client.TOPOLOGIES}: "), suppress(api_client.ApiError):
            async for item in list_objects(self._api, api_client.TOPOLOGIES):
                self._restore_node(item)

    def _restore_node(self, item: msgspec.Raw) -> None:
        """Take over what a node reported, if it is one of this fleet."""
        name = "an earlier report"
        try:
            report = reports.decode_report(item)
            if report.name in self.nodes and report.holdings is not None:
                name = f"the earlier report of node {report.name}"
                self.nodes[report.name].restore(reports.decode_holdings(report.holdings))
        except AlignupError as error:
            self._api.complain(f"{name} is ignored: {error}")

    async def _register(self, node: FleetNode) -> None:
        """Make the Node, its lease and its report, or take over those of an earlier process."""
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": node.name, "namespace": "kube-node-lease"},
            "spec": _lease(node.name),
        }
        node_object = node.node_object(self._labels)
        node_object["status"] = node.node_status(api_client.now())
        if not await self._made(api_client.NODES, node_object):
            await self._renew_status(node)

        await self._made(_LEASES, lease)

        report = node.report(with_holdings=self._with_holdings)
        if not await self._made(api_client.TOPOLOGIES, report):
            await self._publish(node)

    async def _made(self, path: str, body: Mapping[str, Any]) -> bool:
        """Make an object; return whether there was none of its name."""
        with api_client.accepting(api_client.CONFLICT):
            await self._api.request("POST", path, body)
            return True

        return False

    async def _renew_status(self, node: FleetNode) -> None:
        path = api_client.object_path(api_client.NODES, node.name, "status")
        await self._api.request("PATCH", path, {"status": node.node_status(api_client.now())})

    async def _renew_leases(self, tasks: asyncio.TaskGroup) -> None:
        """Renew all leases, evenly over the time between two renewals.

        They do not wait behind what pods need: a node whose lease is old is taken to be dead.
        """
        rounds = 0
        while True:
            rounds += 1
            for node in self.nodes.values():
                if node.name not in self._renewing:
                    self._renewing.add(node.name)
                    tasks.create_task(self._renew(node, with_status=rounds % _STATUS_EVERY == 0))
                await asyncio.sleep(self._renew_every / len(self.nodes))

    async def _renew(self, node: FleetNode, *, with_status: bool) -> None:
        async with self._lease_slots:
            lease = api_client.object_path(_LEASES, node.name)
            await self._try(lambda: self._api.request("PATCH", lease, {"spec": _lease(node.name)}))
            if with_status:
                await self._try(lambda: self._renew_status(node))

        self._renewing.discard(node.name)


def _lease(name: str) -> dict[str, Any]:
    return {
        "holderIdentity": name,
        "leaseDurationSeconds": _LEASE_SECONDS,
        "renewTime": api_client.now(precise=True),
    }


def seconds_of(text: str) -> float | None:
    """Return a number of seconds, with or without a final `s`.

    None: it is none, as that of an endless pod.
    """
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        return None

    return seconds if 0 <= seconds < float("inf") else None


def read_fleet(text: bytes, source: str) -> list[FleetNode]:
    """Return the nodes in a text, one a line.

    Args:
        text: JSON lines; the key `pods` is ignored with a warning.
        source: what an error calls the text.

    Raises:
        InputError: a line is no node, a name comes twice, or there is no line.
        ConfigError: a kubelet would refuse to start on one of the nodes.
    """
    nodes = list(_made(numbered_lines(text, source)))
    if not nodes:
        raise InputError(f"no nodes in {source}")

    return nodes


def catalog_nodes(machine: str, count: int) -> list[FleetNode]:
    """Return nodes of one machine of the catalog, called as it is, with a number.

    Raises:
        InputError: there is no such machine.
    """
    lines = (
        msgspec.json.encode({"name": f"{machine}-{number}", "machine": machine})
        for number in range(count)
    )
    return list(_made((f"--machine {machine}", line) for line in lines))


def _made(lines: Iterable[tuple[str, str | bytes]]) -> Iterator[FleetNode]:
    descriptions = reports.Description()
    names: set[str] = set()
    for where, line in lines:
        with errors_at(where):
            fields = decode_json(line, _NAMED, kind=dict[str, msgspec.Raw])
            name: object = decode_json(fields.pop("name", _NULL), "a name")
            if not isinstance(name, str):
                raise InputError.at("name", _NAMED, name)
            if name in names:
                raise InputError.at("name", "a name that no other node has", name)
            names.add(name)
            if decode_json(fields.pop("pods", _NULL), "pods"):
                warn(
                    f"the pods of node {name} are ignored: pods of a fleet come from the API server"
                )

            text = msgspec.json.encode(fields).decode()
            try:
                node = descriptions.template(text, {})
            except AlignupError as error:
                raise InputError(f"node {name}: {error}") from error

        yield FleetNode(name, node.copy(), text)


def make_app(fleet: Fleet) -> web.Application:
    """Return the application that shows a fleet."""

    async def health(_request: web.Request) -> web.Response:
        if fleet.is_synced:
            return web.Response(text="ok")
        return web.Response(text="nodes are being registered", status=503)

    async def all_nodes(_request: web.Request) -> web.Response:
        nodes = [{"name": node.name, "pods": len(node.node.pods)} for node in fleet.nodes.values()]
        return _json({"nodes": nodes})

    async def single_node(request: web.Request) -> web.Response:
        node = fleet.nodes.get(request.match_info["name"])
        if node is None:
            raise web.HTTPNotFound(text="no such node")

        content = {
            "name": node.name,
            "description": msgspec.Raw(node.description.encode()),
            "holdings": reports.holdings_of(node.node),
        }
        return _json(content)

    app = web.Application()
    app.router.add_get("/healthz", health)
    app.router.add_get("/nodes", all_nodes)
    app.router.add_get("/nodes/{name}", single_node)
    return app


def _json(content: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(content), content_type="application/json")
