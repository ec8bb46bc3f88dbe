"""Serves PodResources (v1) as a kubelet does, so that exporters and topology updaters can read the agent's leases.

A lease is a pod of its name, in a namespace of its user (`user-1000`), with one container, `command`. Needs grpcio and
protobuf.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from typing import TYPE_CHECKING, Any, Final, TypeVar

import grpc

from alignup.kubelet import pod_resources_pb2 as wire
from alignup.trusted_files import clear, make_folders, mode_of_new_files, remove, system_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from alignup.leases.ledger import Ledger
    from alignup.leases.record import LeaseRecord
    from alignup.machine.device_inventory import Device
    from alignup.machine.machine import Machine

_T = TypeVar("_T")
_SERVICE: Final = "v1.PodResourcesLister"
_CONTAINER: Final = "command"
_THREADS: Final = 2
_PATIENCE: Final = 5.0
"""Seconds for the event loop to say how things are."""


class PodResourcesView:
    """The leases of an agent, in the messages of PodResources.

    Args:
        ledger: the leases.
        machine: the machine that they are of.
    """

    def __init__(self, ledger: Ledger, machine: Machine) -> None:
        self._ledger = ledger
        self._machine = machine

    def listed(self) -> wire.ListAnswer:
        """Return all leases as pods."""
        return wire.ListAnswer(pod_resources=[self._pod(lease) for lease in self._ledger.leases.values()])

    def one(self, namespace: str, name: str) -> wire.PodAnswer | None:
        """Return one lease as a pod; None if there is none."""
        for lease in self._ledger.leases.values():
            if lease.name == name and self._namespace(lease) == namespace:
                return wire.PodAnswer(pod_resources=self._pod(lease))
        return None

    def allocatable(self) -> wire.AllocatableAnswer:
        """Return the allocatable resources: of devices, the healthy ones."""
        return wire.AllocatableAnswer(
            devices=[
                _device(resource, device)
                for resource, devices in sorted(self._ledger.node.inventory.items())
                for device in devices
                if device.healthy
            ],
            cpu_ids=[cpu for node in self._machine.numa_nodes for core in node.cores for cpu in core.cpus],
            memory=[
                wire.ContainerMemory(memory_type="memory", size=node.memory, topology=_topology([node.id]))
                for node in self._machine.numa_nodes
                if node.memory
            ],
        )

    def _namespace(self, lease: LeaseRecord) -> str:
        return f"user-{self._ledger.owner_of(lease)}"

    def _pod(self, lease: LeaseRecord) -> wire.PodResources:
        known = self._ledger.node.inventory
        container = wire.ContainerResources(
            name=_CONTAINER,
            devices=[
                _device(resource, device)
                for resource, ids in sorted(lease.devices.items())
                for device in known.get(resource, ())
                if device.id in ids
            ],
            cpu_ids=list(lease.cpus),
            memory=[
                wire.ContainerMemory(memory_type=kind, size=sum(shares.values()), topology=_topology(sorted(shares)))
                for kind, shares in lease.memory_by_node.items()
            ],
        )
        return wire.PodResources(name=lease.name, namespace=self._namespace(lease), containers=[container])


def serve_pod_resources(path: Path, view: PodResourcesView, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
    """Serve PodResources on a unix socket, in the place of what was left there; return how to end that.

    Args:
        path: the socket, for the agent's own user only.
        view: what is told.
        loop: the event loop in which leases change.

    Raises:
        InputError: the socket cannot be made, or there is something else, or somebody serves it.
    """
    server = grpc.server(ThreadPoolExecutor(_THREADS, thread_name_prefix="pod-resources"), maximum_concurrent_rpcs=16)
    server.add_generic_rpc_handlers((_handlers(view, loop),))
    with system_errors("cannot serve PodResources", path, RuntimeError):
        make_folders(path.parent)
        clear(path, "--podresources")
        with mode_of_new_files(0o600):
            server.add_insecure_port(f"unix:{path}")
        server.start()

    def stop() -> None:
        server.stop(grace=None).wait()
        remove(path)

    return stop


def _handlers(view: PodResourcesView, loop: asyncio.AbstractEventLoop) -> grpc.GenericRpcHandler:
    """Return what the service does with its calls, each from within the event loop."""

    def answer(work: Callable[[], _T], context: grpc.ServicerContext) -> _T:
        async def within() -> _T:
            return work()

        try:
            return asyncio.run_coroutine_threadsafe(within(), loop).result(_PATIENCE)
        except LateError:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the agent is busy")

    def get(question: wire.PodQuestion, context: grpc.ServicerContext) -> wire.PodAnswer:
        namespace, name = question.pod_namespace, question.pod_name
        found = answer(lambda: view.one(namespace, name), context)
        if found is None:  # the kubelet's words and code
            context.abort(grpc.StatusCode.UNKNOWN, f"pod {name} in namespace {namespace} not found")
        return found

    nothing = wire.Nothing.FromString
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "List": grpc.unary_unary_rpc_method_handler(
            lambda _, context: answer(view.listed, context), nothing, wire.ListAnswer.SerializeToString
        ),
        "GetAllocatableResources": grpc.unary_unary_rpc_method_handler(
            lambda _, context: answer(view.allocatable, context), nothing, wire.AllocatableAnswer.SerializeToString
        ),
        "Get": grpc.unary_unary_rpc_method_handler(get, wire.PodQuestion.FromString, wire.PodAnswer.SerializeToString),
    }
    return grpc.method_handlers_generic_handler(_SERVICE, handlers)


def _device(resource: str, device: Device) -> wire.ContainerDevices:
    """Return the message of one device; as in the kubelet, one without topology has none."""
    topology = None if device.numa_nodes is None else _topology(device.numa_nodes)
    return wire.ContainerDevices(resource_name=resource, device_ids=[device.id], topology=topology)


def _topology(numa_nodes: Iterable[int]) -> wire.Topology:
    return wire.Topology(nodes=[wire.NumaNode(ID=node) for node in numa_nodes])
