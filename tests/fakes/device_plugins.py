"""A device plugin in this process that does as a test tells it."""

from __future__ import annotations

import queue
import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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

    def register(self, **changes):
        """Register, by default as it is."""
        request = {
            "version": "v1beta1",
            "endpoint": self.endpoint,
            "resource_name": self.resource,
            "options": self.options,
        }
        with grpc.insecure_channel(f"unix:{self.folder / SOCKET_NAME}") as channel:
            RegistrationStub(channel).Register(
                wire.RegisterRequest(**{**request, **changes}), timeout=LONG, wait_for_ready=True
            )
        return self

    def die(self):
        """End at once."""
        self.reports.put(None)
        if self._server is not None:
            self._server.stop(grace=None).wait()
            self._server = None

    def GetDevicePluginOptions(self, request, context):  # noqa: ARG002, N802
        self._note("GetDevicePluginOptions", context)
        return self.options

    def ListAndWatch(self, request, context):  # noqa: ARG002, N802
        context.add_callback(lambda: self.reports.put(None))
        while (message := self.reports.get()) is not None:
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
