"""Serves PodResources (v1) as a kubelet does, so that exporters and topology updaters can read who holds what.

What is told comes as records of `alignup.kubelet.pod_resources`. Needs grpcio and protobuf.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc

from alignup.errors import system_errors
from alignup.host.trusted_files import clear, make_folders, mode_of_new_files, remove
from alignup.kubelet import pod_resources_pb2 as wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from alignup.kubelet.pod_resources import Allocatable, ContainerResources, PodResources
    from alignup.machine.device_inventory import Device
    from alignup.topology_manager.admission import MemoryBlock

# The pods, and the allocatable resources with all devices, also those that are not healthy.
Told: TypeAlias = "tuple[Sequence[PodResources], Allocatable]"

_SERVICE: Final = "v1.PodResourcesLister"
_THREADS: Final = 2
# Seconds for the event loop to say how things are.
_PATIENCE: Final = 5.0


def serve_pod_resources(
    tell: Mapping[Path, Callable[[], Told]], loop: asyncio.AbstractEventLoop, option: str
) -> Callable[[], None]:
    """Serve PodResources on unix sockets, in the place of what was left there; return how to end that.

    Args:
        tell: by socket, which is for this process's own user only, what is told there.
        loop: the event loop in which that changes; it must not wait for the end.
        option: what names the sockets, for errors.

    Raises:
        InputError: a socket cannot be made, or there is something else, or somebody serves it.
    """
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="pod-resources")
    with ExitStack() as stack:
        for path, told in tell.items():
            server = grpc.server(pool, maximum_concurrent_rpcs=16)
            server.add_generic_rpc_handlers((_handlers(told, loop),))
            with system_errors("cannot serve PodResources", path, RuntimeError):
                make_folders(path.parent)
                clear(path, option)
                with mode_of_new_files(0o600):
                    server.add_insecure_port(f"unix:{path}")
                server.start()

            stack.callback(_end, server, path)

        return stack.pop_all().close


def _end(server: grpc.Server, path: Path) -> None:
    server.stop(grace=None).wait()
    remove(path)


def _handlers(tell: Callable[[], Told], loop: asyncio.AbstractEventLoop) -> grpc.GenericRpcHandler:
    """Return what the service does with its calls, each from within the event loop."""

    def told(context: grpc.ServicerContext) -> Told:
        async def within() -> Told:
            return tell()

        try:
            return asyncio.run_coroutine_threadsafe(within(), loop).result(_PATIENCE)
        except LateError:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the event loop is busy")

    def listed(_: wire.Nothing, context: grpc.ServicerContext) -> wire.ListAnswer:
        pods, there = told(context)
        return wire.ListAnswer(pod_resources=[_pod(pod, there.devices) for pod in pods])

    def get(question: wire.PodQuestion, context: grpc.ServicerContext) -> wire.PodAnswer:
        namespace, name = question.pod_namespace, question.pod_name
        pods, there = told(context)
        found = next((pod for pod in pods if (pod.namespace, pod.name) == (namespace, name)), None)
        if found is None:  # the kubelet's words and code
            context.abort(grpc.StatusCode.UNKNOWN, f"pod {name} in namespace {namespace} not found")
        return wire.PodAnswer(pod_resources=_pod(found, there.devices))

    def allocatable(_: wire.Nothing, context: grpc.ServicerContext) -> wire.AllocatableAnswer:
        there = told(context)[1]
        devices = [
            _device(name, one)
            for name, some in sorted(there.devices.items())
            for one in some
            if one.healthy
        ]
        return wire.AllocatableAnswer(
            devices=devices, cpu_ids=there.cpus, memory=_memory(there.memory)
        )

    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "List": grpc.unary_unary_rpc_method_handler(
            listed, wire.Nothing.FromString, wire.ListAnswer.SerializeToString
        ),
        "GetAllocatableResources": grpc.unary_unary_rpc_method_handler(
            allocatable, wire.Nothing.FromString, wire.AllocatableAnswer.SerializeToString
        ),
        "Get": grpc.unary_unary_rpc_method_handler(
            get, wire.PodQuestion.FromString, wire.PodAnswer.SerializeToString
        ),
    }
    return grpc.method_handlers_generic_handler(_SERVICE, handlers)


def _pod(pod: PodResources, devices: Mapping[str, Iterable[Device]]) -> wire.PodResources:
    containers, memory = [_container(one, devices) for one in pod.containers], _memory(pod.memory)
    return wire.PodResources(
        name=pod.name,
        namespace=pod.namespace,
        containers=containers,
        cpu_ids=pod.cpus,
        memory=memory,
    )


def _container(
    one: ContainerResources, devices: Mapping[str, Iterable[Device]]
) -> wire.ContainerResources:
    held = [
        _device(resource, device)
        for resource, ids in sorted(one.devices.items())
        for device in devices.get(resource, ())
        if device.id in ids
    ]
    return wire.ContainerResources(
        name=one.name, devices=held, cpu_ids=one.cpus, memory=_memory(one.memory)
    )


def _memory(blocks: Iterable[MemoryBlock]) -> list[wire.ContainerMemory]:
    return [
        wire.ContainerMemory(
            memory_type=one.type, size=one.size, topology=_topology(one.numa_nodes)
        )
        for one in blocks
    ]


def _device(resource: str, device: Device) -> wire.ContainerDevices:
    """Return the message of one device; as in the kubelet, one without topology has none."""
    topology = None if device.numa_nodes is None else _topology(device.numa_nodes)
    return wire.ContainerDevices(resource_name=resource, device_ids=[device.id], topology=topology)


def _topology(numa_nodes: Iterable[int]) -> wire.Topology:
    return wire.Topology(nodes=[wire.NumaNode(ID=node) for node in numa_nodes])
