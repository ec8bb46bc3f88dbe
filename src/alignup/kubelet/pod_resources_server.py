"""Serves PodResources (v1) as a kubelet does.

So exporters and topology updaters can read who holds what. What is told comes as records of
`alignup.kubelet.pod_resources`. Needs grpcio and protobuf.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc

from alignup.errors import system_errors
from alignup.host.trusted_files import clear, make_folders, mode_of_new_files, remove
from alignup.kubelet import pod_resources_pb2 as wire

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from alignup.kubelet.pod_resources import Allocatable, ContainerResources, PodResources
    from alignup.machine.device_inventory import Device
    from alignup.topology_manager.admission import MemoryBlock

# The pods, and the allocatable resources with all devices, also those that are not healthy.
Answers: TypeAlias = "tuple[Sequence[PodResources], Allocatable]"

_SERVICE: Final = "v1.PodResourcesLister"
_THREADS: Final = 2
# Seconds for the event loop to say how things are.
_PATIENCE: Final = 5.0


def serve_pod_resources(
    answers: Mapping[Path, Callable[[], Answers]], loop: asyncio.AbstractEventLoop, option: str
) -> Callable[[], None]:
    """Serve PodResources on unix sockets, and return how to end that.

    What was left in their places is removed.

    Args:
        answers: by socket, which is for this process's own user only, what is told there.
        loop: the event loop in which that changes; it must not wait for the end.
        option: what names the sockets, for errors.

    Raises:
        InputError: a socket cannot be made, or there is something else, or somebody serves it.
    """
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="pod-resources")
    with ExitStack() as stack:
        for path, answers_there in answers.items():
            server = grpc.server(pool, maximum_concurrent_rpcs=16)
            server.add_generic_rpc_handlers((_handlers(answers_there, loop),))

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


def _handlers(
    answers: Callable[[], Answers], loop: asyncio.AbstractEventLoop
) -> grpc.GenericRpcHandler:
    """Return what the service does with its calls, each from within the event loop."""

    def from_loop(context: grpc.ServicerContext) -> Answers:
        answer: Future[Answers] = Future()

        def tell() -> None:
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(answers())
                except Exception as error:  # noqa: BLE001  # it is raised below
                    answer.set_exception(error)

        try:
            loop.call_soon_threadsafe(tell)
            return answer.result(_PATIENCE)
        except LateError:
            # a loop that ends meanwhile has nothing left to do for it
            answer.cancel()
            context.abort(grpc.StatusCode.UNAVAILABLE, "the event loop is busy")

    def list_all(_: wire.Nothing, context: grpc.ServicerContext) -> wire.ListAnswer:
        pods, allocatable = from_loop(context)
        return wire.ListAnswer(pod_resources=[_pod(pod, allocatable.devices) for pod in pods])

    def get(question: wire.PodQuestion, context: grpc.ServicerContext) -> wire.PodAnswer:
        namespace, name = question.pod_namespace, question.pod_name
        pods, allocatable = from_loop(context)
        pod = next((pod for pod in pods if (pod.namespace, pod.name) == (namespace, name)), None)
        if pod is None:  # the kubelet's words and code
            context.abort(grpc.StatusCode.UNKNOWN, f"pod {name} in namespace {namespace} not found")

        return wire.PodAnswer(pod_resources=_pod(pod, allocatable.devices))

    def get_allocatable(_: wire.Nothing, context: grpc.ServicerContext) -> wire.AllocatableAnswer:
        allocatable = from_loop(context)[1]
        healthy = [
            _device(resource, device)
            for resource, devices in sorted(allocatable.devices.items())
            for device in devices
            if device.healthy
        ]
        return wire.AllocatableAnswer(
            devices=healthy, cpu_ids=allocatable.cpus, memory=_memory(allocatable.memory)
        )

    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "List": grpc.unary_unary_rpc_method_handler(
            list_all, wire.Nothing.FromString, wire.ListAnswer.SerializeToString
        ),
        "GetAllocatableResources": grpc.unary_unary_rpc_method_handler(
            get_allocatable, wire.Nothing.FromString, wire.AllocatableAnswer.SerializeToString
        ),
        "Get": grpc.unary_unary_rpc_method_handler(
            get, wire.PodQuestion.FromString, wire.PodAnswer.SerializeToString
        ),
    }
    return grpc.method_handlers_generic_handler(_SERVICE, handlers)


def _pod(pod: PodResources, devices: Mapping[str, Iterable[Device]]) -> wire.PodResources:
    return wire.PodResources(
        name=pod.name,
        namespace=pod.namespace,
        containers=[_container(container, devices) for container in pod.containers],
        cpu_ids=pod.cpus,
        memory=_memory(pod.memory),
    )


def _container(
    container: ContainerResources, devices: Mapping[str, Iterable[Device]]
) -> wire.ContainerResources:
    messages = [
        _device(resource, device)
        for resource, ids in sorted(container.devices.items())
        for device in devices.get(resource, ())
        if device.id in ids
    ]

    return wire.ContainerResources(
        name=container.name,
        devices=messages,
        cpu_ids=container.cpus,
        memory=_memory(container.memory),
    )


def _memory(blocks: Iterable[MemoryBlock]) -> list[wire.ContainerMemory]:
    return [
        wire.ContainerMemory(
            memory_type=block.type, size=block.size, topology=_topology(block.numa_nodes)
        )
        for block in blocks
    ]


def _device(resource: str, device: Device) -> wire.ContainerDevices:
    """Return the message of one device; as in the kubelet, one without topology has none."""
    topology = None if device.numa_nodes is None else _topology(device.numa_nodes)
    return wire.ContainerDevices(resource_name=resource, device_ids=[device.id], topology=topology)


def _topology(numa_nodes: Iterable[int]) -> wire.Topology:
    return wire.Topology(nodes=[wire.NumaNode(ID=node) for node in numa_nodes])
