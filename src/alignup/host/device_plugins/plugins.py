"""Brings the device plugins of a machine together: who registered, and which devices there are.

    with DevicePlugins(folder) as plugins:
        plugins.wait_for(["example.com/nic"], seconds=10)
        node = Node(machine, config, plugins.inventory())
        plugins.feed(node)  # from now on it has the devices that there are
        admission = node.admit(pod)
        answer = plugins.allocate(admission.containers["c"].devices)
        plugins.pre_start(admission.containers["c"].devices)

Deciding which devices a container gets is left to the device provider of the node. A program that
forks should have GRPC_ENABLE_FORK_SUPPORT=false in its environment before grpc is imported, or
children may be aborted.
"""

from __future__ import annotations

import logging
import re
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, Self

import grpc

from alignup.core.amounts.changes import ManagerLock
from alignup.errors import InputError, system_errors
from alignup.host.device_plugins import device_plugin_pb2 as wire
from alignup.host.device_plugins.answer import DeviceAnswer, join_answers
from alignup.host.device_plugins.connection import (
    DevicePluginError,
    Limits,
    PluginConnection,
    without_unknown_nodes,
)
from alignup.host.device_plugins.device_plugin_pb2_grpc import (
    RegistrationServicer,
    add_RegistrationServicer_to_server,
)
from alignup.host.trusted_files import (
    LONGEST_PATH,
    check_free,
    make_folders,
    mode_of_new_files,
    remove,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from alignup.machine.device_inventory import Device
    from alignup.node import Node


_LOG: Final = logging.getLogger(__name__)
# Each takes a thread.
_MOST_RESOURCES: Final = 256
_DEFAULT_LIMITS: Final = Limits()


class DevicePlugins:
    """The device plugins that register in a folder; a context manager, and safe for threads.

    Args:
        folder: where plugins and the registration have their sockets, such as the kubelet's
            /var/lib/kubelet/device-plugins; a short path.
        limits: how long a plugin may take.
        numa_nodes: ids of the machine's NUMA nodes; others that plugins report are ignored. None:
            none is.

    Examples:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, DevicePlugins(Path(folder)) as plugins:
        ...     plugins.inventory()  # no plugin has registered yet
        {}
    """

    def __init__(
        self,
        folder: Path,
        limits: Limits = _DEFAULT_LIMITS,
        numa_nodes: Collection[int] | None = None,
    ) -> None:
        self._folder = folder.absolute()
        self._numa_nodes = numa_nodes
        self._limits = limits
        self._server = RegistrationServer(self._folder, self._accept)

        # Taken so that an exception of a signal's handler leaves none of them taken.
        self._lock = ManagerLock()
        self._reporting = ManagerLock()
        # Of those who wait for reports: something is put into each when a plugin has reported.
        self._waiting: list[SimpleQueue[None]] = []
        # Those of it have been started, and begin no more once this has ended.
        self._connections: dict[str, PluginConnection] = {}
        self._has_ended = False
        # Never changed, but replaced by another one.
        self._inventory: dict[str, tuple[Device, ...]] = {}
        self._listeners: list[Callable[[str, tuple[Device, ...]], object]] = []

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()
        with self._lock.guard() as guard, guard.take():
            self._has_ended = True  # a registration may still be in a thread of the server
            connections = list(self._connections.values())

        for connection in connections:
            connection.stop()
        for connection in connections:
            connection.join()

    def inventory(self) -> dict[str, tuple[Device, ...]]:
        """Return the devices by resource, as they were reported last.

        Those of a plugin that is lost are unhealthy.
        """
        return dict(self._inventory)

    def listen(self, listener: Callable[[str, tuple[Device, ...]], object]) -> None:
        """Call a function with a resource and its devices, now and whenever they change.

        It is called from threads of this object, one call at a time.
        """
        with self._reporting.guard() as guard, guard.take():
            self._listeners.append(listener)
            for resource, devices in self.inventory().items():
                listener(resource, devices)

    def feed(self, node: Node) -> None:
        """Let a node have the devices that there are, now and whenever they change.

        The node also asks for the plugins' preferences.

        Raises:
            InputError: the node has no device provider; one that is made with an inventory has,
                even if that lists no device of its resources.
        """
        provider = node.devices
        if provider is None:
            raise InputError("the node has no device provider: it was made without an inventory")

        def update(resource: str, devices: tuple[Device, ...]) -> None:
            known_devices, _ = without_unknown_nodes(devices, node.machine.numa_node_ids)
            with node.manager.lock.guard() as guard, guard.take():
                provider.update(resource, known_devices, self.preference(resource))

        self.listen(update)

    def wait_for(self, resources: Iterable[str], seconds: float) -> None:
        """Wait until the plugins of some resources have reported their devices.

        Raises:
            DevicePluginError: one of them has not within that time.
        """
        names = tuple(resources)
        end = time.monotonic() + seconds
        reports = SimpleQueue[None]()  # no signal leaves it locked, as it may leave a condition
        self._waiting.append(reports)
        try:
            while missing := [name for name in names if name not in self._inventory]:
                patience = end - time.monotonic()
                if patience <= 0:
                    trouble = f"has not reported devices within {seconds:g} s"
                    raise DevicePluginError(", ".join(missing), trouble)
                with suppress(Empty):
                    reports.get(timeout=patience)
        finally:
            self._waiting.remove(reports)

    def preference(
        self, resource: str
    ) -> Callable[[Sequence[str], Sequence[str], int], Sequence[str]]:
        """Return the function to ask which devices of a resource go well together.

        A device provider calls it. It returns none where the plugin has no preference, and raises
        DevicePluginError if the plugin fails.
        """
        return lambda *question: self._connection(resource).preferred(*question)

    def trouble(self, resource: str) -> str:
        """Return why devices are not as the plugin of a resource has them, after its name.

        It is empty while all is well, or where no plugin has registered.
        """
        connection = self._connections.get(resource)
        return "" if connection is None else connection.trouble

    def has_preferences(self, resource: str) -> bool:
        """Return whether the plugin of a resource offers GetPreferredAllocation."""
        connection = self._connections.get(resource)
        return connection is not None and connection.has_preferences

    def allocate(self, devices: Mapping[str, Sequence[str]]) -> DeviceAnswer:
        """Tell the plugins which devices, by resource, a container gets.

        Resources that no plugin has registered are ignored: their devices are known from elsewhere.

        Returns:
            What the container needs to use them.

        Raises:
            DevicePluginError: a plugin failed. Devices have no way back: to allocate them again
                later is enough.
        """
        return join_answers(
            connection.allocate(ids) for connection, ids in self._ids_by_plugin(devices)
        )

    def pre_start(self, devices: Mapping[str, Sequence[str]]) -> None:
        """Let the plugins that want to prepare devices, by resource, for a container.

        It is about to start.

        Raises:
            DevicePluginError: a plugin failed.
        """
        for connection, ids in self._ids_by_plugin(devices):
            connection.pre_start(ids)

    def _ids_by_plugin(
        self, devices: Mapping[str, Sequence[str]]
    ) -> list[tuple[PluginConnection, Sequence[str]]]:
        """Return the plugins of some resources, in the order of these, each with its ids."""
        return [
            (self._connections[resource], ids)
            for resource, ids in sorted(devices.items())
            if ids and resource in self._connections
        ]

    def _connection(self, resource: str) -> PluginConnection:
        """Return the connection to the plugin of a resource.

        Raises:
            DevicePluginError: there is none.
        """
        connection = self._connections.get(resource)
        if connection is None:
            raise DevicePluginError(resource, "has not registered")
        return connection

    def _accept(self, registration: wire.RegisterRequest) -> None:
        """Connect to a plugin, in the place of an earlier one of the same resource.

        Raises:
            InputError: there are too many, or plugins are served no more.
        """
        resource = registration.resource_name
        with self._lock.guard() as guard, guard.take():
            if self._has_ended:
                raise InputError("device plugins are served no more")

            if resource not in self._connections and len(self._connections) >= _MOST_RESOURCES:
                raise InputError.at(
                    "the registration", f"up to {_MOST_RESOURCES} resources", resource
                )

            earlier = self._connections.get(resource)
            connection = PluginConnection(
                resource,
                self._folder / registration.endpoint,
                self._changed,
                self._limits,
                self._numa_nodes,
            )
            self._connections[resource] = connection
            _LOG.info("a device plugin of %s has registered at %s", resource, registration.endpoint)
            connection.start()

        if earlier is not None:
            earlier.stop()

    def _changed(self, connection: PluginConnection) -> None:
        """Take over what a connection reports, unless another one has taken its place."""
        resource = connection.resource
        # not under the lock: a node asks for preferences while it is locked, and listeners wait for
        # nodes
        with self._reporting.guard() as guard, guard.take():
            if self._connections.get(resource) is not connection:
                return

            devices = connection.devices
            for listener in self._listeners:
                try:
                    listener(resource, devices)
                except Exception:  # noqa: BLE001  # one listener's failure is not the plugin's
                    _LOG.exception("the devices of %s were not taken over", resource)

            self._inventory = {**self._inventory, resource: devices}
            for reports in tuple(self._waiting):
                reports.put(None)


VERSION: Final = "v1beta1"
# Plugins know the socket of the registration by this name, and watch it.
SOCKET_NAME: Final = "kubelet.sock"
_ENDPOINT: Final = re.compile(r"[A-Za-z0-9_.:@+-]{1,100}")
# An extended resource: a DNS name and a name below it.
_RESOURCE: Final = re.compile(
    r"(?=[^/]{1,253}/)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
    r"/[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
)
_NATIVE: Final = ("kubernetes.io", "requests.")
_THREADS: Final = 4
_LARGEST_REQUEST: Final = 1 << 16


class RegistrationServer(RegistrationServicer):
    """The registration socket of a folder.

    Args:
        folder: where plugins have their sockets; made if it is not there.
        accept: called, from a thread of the server, with each registration; raises InputError to
            refuse it.
    """

    def __init__(self, folder: Path, accept: Callable[[wire.RegisterRequest], None]) -> None:
        self._accept = accept
        self._socket = folder / SOCKET_NAME
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS, thread_name_prefix="registration"),
            options=(
                ("grpc.max_receive_message_length", _LARGEST_REQUEST),
                ("grpc.so_reuseport", 0),
            ),
            maximum_concurrent_rpcs=4 * _THREADS,
        )
        add_RegistrationServicer_to_server(self, self._server)

    def start(self) -> None:
        """Serve, and thereby let the plugins of the folder register again.

        Its old sockets are removed before.

        Raises:
            InputError: the folder cannot be used, or a kubelet or another agent serves it.
        """
        folder = self._socket.parent
        if len(bytes(self._socket)) > LONGEST_PATH:
            raise InputError.at(
                "the folder of device plugins", "a path of up to 94 bytes", str(folder)
            )

        with system_errors("cannot serve device plugins", folder, RuntimeError):
            make_folders(folder)
            check_free(self._socket, "the folder of device plugins")
            for path in folder.iterdir():
                if stat.S_ISSOCK(path.lstat().st_mode):
                    path.unlink()

            with mode_of_new_files(0o600):
                self._server.add_insecure_port(f"unix:{self._socket}")
            self._server.start()

    def stop(self) -> None:
        """Serve no longer, and remove the socket."""
        self._server.stop(grace=None).wait()
        remove(self._socket)

    # the protocol's name
    def Register(  # noqa: N802
        self, request: wire.RegisterRequest, context: grpc.ServicerContext
    ) -> wire.Empty:
        """Take a registration, or refuse it with a reason."""
        try:
            check_registration(request)
            self._accept(request)
        except InputError as error:
            _LOG.warning("the registration of a device plugin is refused: %s", error)
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

        return wire.Empty()


def check_registration(message: wire.RegisterRequest) -> None:
    """Refuse a registration that cannot be.

    Raises:
        InputError: its version, its resource or its socket cannot be; the sentences are the
            kubelet's where it has one.
    """
    if message.version != VERSION:
        raise InputError(
            f'requested API version "{message.version[:80]}" is not supported by kubelet. '
            f'Supported version is ["{VERSION}"]'
        )

    resource = message.resource_name
    domain, _, _ = resource.partition("/")
    is_native = (
        domain == _NATIVE[0] or domain.endswith(f".{_NATIVE[0]}") or domain.startswith(_NATIVE[1])
    )
    if is_native or not _RESOURCE.fullmatch(resource):
        raise InputError(f'the ResourceName "{resource[:80]}" is invalid')

    if not _ENDPOINT.fullmatch(message.endpoint) or message.endpoint in {".", "..", SOCKET_NAME}:
        raise InputError.at(
            "the endpoint", "the name of a socket in the shared folder", message.endpoint
        )
