"""A device plugin in this process that does as a test tells it."""

from __future__ import annotations

import queue
import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc

from alignup.host.device_plugins import device_plugin_pb2 as wire
from alignup.host.device_plugins.device_plugin_pb2_grpc import (
    DevicePluginServicer,
    RegistrationStub,
    add_DevicePluginServicer_to_server,
)
from alignup.host.device_plugins.plugins import SOCKET_NAME

NIC = "example.com/nic"
LONG = 60.0
"""Seconds that nothing takes unless something is broken."""


@contextmanager
def short_folder():
    """Make a folder with a path that is short enough for a unix socket."""
    folder = Path(tempfile.mkdtemp(prefix="dp-", dir="/tmp"))  # pytest's are too long
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def report(*ids, healthy=True, nodes=None):
    """Return the report of devices, each near to one NUMA node, in turn, or all near to `nodes`."""
    health = "Healthy" if healthy else "Unhealthy"
    devices = []
    for index, identity in enumerate(ids):
        near = [index % 2] if nodes is None else nodes
        topology = wire.TopologyInfo(nodes=[wire.NUMANode(ID=node) for node in near])
        devices.append(wire.Device(ID=identity, health=health, topology=topology))

    return wire.ListAndWatchResponse(devices=devices)


GPU = "nvidia.com/gpu"


class FakePlugin(DevicePluginServicer):
    """A plugin; `calls` has what it was asked."""

    def __init__(self, folder, resource=NIC, *, preferred=False, pre_start=False, endpoint=None):
        self.folder, self.resource = folder, resource
        self.endpoint = endpoint or resource.replace("/", "_") + ".sock"
        self.options = wire.DevicePluginOptions(
            pre_start_required=pre_start, get_preferred_allocation_available=preferred
        )

        self.calls = []
        self.reports = queue.SimpleQueue()
        self.hangs = set()
        """The names of calls that are not answered."""

        self.preference = lambda request: list(request.available_deviceIDs)[
            -request.allocation_size :
        ]
        self.answer = lambda ids: wire.AllocateResponse(
            container_responses=[wire.ContainerAllocateResponse(envs={"NICS": ",".join(ids)})]
        )
        self._server = None

    def serve(self):
        """Start to serve; return the plugin."""
        self._server = grpc.server(ThreadPoolExecutor(4))
        add_DevicePluginServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.folder / self.endpoint}")
        self._server.start()
        return self

    def register(self, *, waits=True, **changes):
        """Register, by default as it is; if it `waits`, also where nobody listens yet."""
        request = {
            "version": "v1beta1",
            "endpoint": self.endpoint,
            "resource_name": self.resource,
            "options": self.options,
        }
        with grpc.insecure_channel(f"unix:{self.folder / SOCKET_NAME}") as channel:
            RegistrationStub(channel).Register(
                wire.RegisterRequest(**{**request, **changes}), timeout=LONG, wait_for_ready=waits
            )
        return self

    def die(self):
        """End at once."""
        self.reports.put(None)
        if self._server is not None:
            self._server.stop(grace=None).wait()
            self._server = None

    def end_abruptly(self):
        """End as a process that is killed: its streams have no end of their own."""
        self._server.stop(grace=None).wait()
        self._server = None

    def GetDevicePluginOptions(self, request, context):  # noqa: ARG002, N802
        self._note("GetDevicePluginOptions", context)
        return self.options

    def ListAndWatch(self, request, context):  # noqa: ARG002, N802
        context.add_callback(lambda: self.reports.put(None))
        while (message := self.reports.get()) is not None:
            if isinstance(message, grpc.StatusCode):
                context.abort(message, "")
            yield message

    def GetPreferredAllocation(self, request, context):  # noqa: N802
        (container_request,) = request.container_requests
        self._note("GetPreferredAllocation", context, container_request)
        return wire.PreferredAllocationResponse(
            container_responses=[
                wire.ContainerPreferredAllocationResponse(
                    deviceIDs=self.preference(container_request)
                )
            ]
        )

    def Allocate(self, request, context):  # noqa: N802
        ids = tuple(request.container_requests[0].devices_ids)
        self._note("Allocate", context, ids)
        return self.answer(ids)

    def PreStartContainer(self, request, context):  # noqa: N802
        self._note("PreStartContainer", context, tuple(request.devices_ids))
        return wire.PreStartContainerResponse()

    def _note(self, name, context, *details):
        self.calls.append((name, *details))
        if name in self.hangs:
            given_up = threading.Event()
            context.add_callback(given_up.set)
            given_up.wait(LONG)


class WatchingPlugin(FakePlugin):
    """A plugin that behaves as that of NVIDIA does; a context manager.

    It watches the folder: a while after the socket of the registration is made, and whenever that
    is made anew, it serves and registers. A GPU that several may use has an id `UUID::N` for each,
    and the answer to Allocate names each UUID once.
    """

    def __init__(self, folder, uuids, *, resource=GPU, slices=1, delay=0.2, devices=()):
        super().__init__(folder, resource, preferred=True)
        self.delay = delay
        self.ids = list(uuids)
        if slices > 1:
            self.ids = [f"{uuid}::{number}" for uuid in uuids for number in range(slices)]

        def answer(ids):
            unique_uuids = dict.fromkeys(device_id.partition("::")[0] for device_id in ids)
            files = [
                wire.DeviceSpec(container_path=path, host_path=path, permissions="rw")
                for path in devices
            ]
            container_answer = wire.ContainerAllocateResponse(
                envs={"NVIDIA_VISIBLE_DEVICES": ",".join(unique_uuids)}, devices=files
            )
            return wire.AllocateResponse(container_responses=[container_answer])

        self.answer = answer
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_ended.set()
        self._thread.join(LONG)
        self.die()

    def ListAndWatch(self, request, context):  # noqa: ARG002, N802
        is_cancelled = threading.Event()
        context.add_callback(is_cancelled.set)
        yield report(*self.ids)
        while not (is_cancelled.is_set() or self._is_ended.wait(0.05)):
            pass

    def _watch(self):
        registered_at = None
        while not self._is_ended.wait(0.02):
            try:
                status = (self.folder / SOCKET_NAME).stat()
            except FileNotFoundError:
                continue

            made_at = (status.st_ino, status.st_mtime_ns)
            if made_at != registered_at and not self._is_ended.wait(self.delay):
                self.die()
                self.serve()
                # the agent may have ended meanwhile
                with suppress(grpc.RpcError):
                    self.register(waits=False)
                    registered_at = made_at
