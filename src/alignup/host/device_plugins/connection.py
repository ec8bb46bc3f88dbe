"""Follows one device plugin, whose devices come and go, and calls it.

Every call has a time limit, and whatever goes wrong is the plugin's: an error that names its
resource, or devices that count as unhealthy until it reports again. Plugins are other people's
programs: whatever they send is looked at before anything is done with it. Which plugin has a
resource is decided in `alignup.host.device_plugins.plugins`.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import grpc
import msgspec

from alignup.errors import AllocationError, InputError
from alignup.host.device_plugins import device_plugin_pb2 as wire
from alignup.host.device_plugins.answer import DeviceAnswer, DeviceNode, Mount
from alignup.host.device_plugins.device_plugin_pb2_grpc import DevicePluginStub
from alignup.machine.device_inventory import Device
from alignup.records import Record, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from pathlib import Path


_LOG: Final = logging.getLogger(__name__)
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 4 << 20),
    ("grpc.enable_retries", 0),
    # the next attempt to connect comes soon: the other end is on this machine
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
_LONGEST_DETAIL: Final = 300
# A server that stops cancels the calls that it answers, if the connection lasts so long.
_GONE: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
# A plugin's reports are read in a fifth of the time at most; it waits meanwhile, and nothing is
# lost.
_REST: Final = 4

_HEALTHY: Final = "Healthy"
_MOST_DEVICES: Final = 1 << 14
_LONGEST_ID: Final = 1024

# Linux hands on no string of more than 128 KiB to a program.
_LONGEST_VALUE: Final = 120_000

_MOST_VARIABLES: Final = 256


class Limits(Record):
    """Seconds that a plugin has for a call.

    Attributes:
        connect: to be there, and say its options; as in the kubelet.
        pre_start: as in the kubelet, which sets no limit to the two before.
        between_reports: a plugin that reports more often is read more slowly, at no loss.
    """

    connect: float = 10.0
    preferred: float = 5.0
    allocate: float = 30.0
    pre_start: float = 30.0
    between_reports: float = 0.02


class PluginConnection:
    """The connection to one plugin, from its registration until it is lost or replaced.

    Args:
        resource: what it has devices of.
        socket: where it serves.
        report: called, from a thread of the connection, whenever `devices` or `trouble` have
            changed.
        limits: how long it may take.
        numa_nodes: ids of the machine's NUMA nodes; others that it reports are ignored. None: none
            is.
    """

    def __init__(
        self,
        resource: str,
        socket: Path,
        report: Callable[[PluginConnection], None],
        limits: Limits,
        numa_nodes: Collection[int] | None = None,
    ) -> None:
        self.resource = resource
        self.socket = socket
        self._report = report
        self._limits = limits
        self._numa_nodes = numa_nodes
        self._unknown_nodes: frozenset[int] = frozenset()

        # As reported last; none of them is healthy once the plugin is lost, or if its report made
        # no sense.
        self.devices: tuple[Device, ...] = ()
        # Why they are not as the plugin has them; empty while all is well.
        self.trouble = ""
        self.is_lost = False
        self._has_reported = False
        self.has_preferences = False
        self._needs_pre_start = False

        self._stopped = threading.Event()
        self._channel = grpc.insecure_channel(f"unix:{socket}", options=_OPTIONS)
        self._stub = DevicePluginStub(self._channel)
        self._thread = threading.Thread(
            target=self._follow, name=f"plugin of {resource}", daemon=True
        )

    def start(self) -> None:
        """Begin to follow the plugin's devices."""
        self._thread.start()

    def stop(self) -> None:
        """Let go of the plugin; `report` is called no more for it."""
        self._stopped.set()
        self._channel.close()

    def join(self) -> None:
        """Wait until a stopped connection's thread has ended; not from that thread."""
        self._thread.join(timeout=self._limits.connect)

    def preferred(
        self, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> tuple[str, ...]:
        """Return the ids that the plugin would have together.

        There are none if it has no preference, or none that makes sense.

        Raises:
            DevicePluginError: it did not answer in time, or failed.
        """
        if not self.has_preferences:
            return ()

        container_request = wire.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size
        )
        request = wire.PreferredAllocationRequest(container_requests=[container_request])
        answer = self._call("GetPreferredAllocation", request, self._limits.preferred)
        try:
            return preferred_of(answer, available, must_include, size)
        except InputError as error:
            # the kubelet ignores such an answer too
            _LOG.warning(
                "the preferred allocation of %s makes no sense and is ignored: %s",
                self.resource,
                error,
            )
            return ()

    def allocate(self, ids: Sequence[str]) -> DeviceAnswer:
        """Tell the plugin which devices a container gets.

        Returns:
            What the container needs to use them.

        Raises:
            DevicePluginError: it did not answer in time, failed, or its answer makes no sense.
        """
        container_request = wire.ContainerAllocateRequest(devices_ids=ids)
        request = wire.AllocateRequest(container_requests=[container_request])
        answer = self._call("Allocate", request, self._limits.allocate)
        try:
            return answer_of(answer)
        except InputError as error:
            raise DevicePluginError(
                self.resource, f"gave an answer to Allocate that makes no sense: {error}"
            ) from None

    def pre_start(self, ids: Sequence[str]) -> None:
        """Let the plugin prepare devices for the start of a container, if it wants to.

        Raises:
            DevicePluginError: it did not answer in time, or failed.
        """
        if self._needs_pre_start:
            request = wire.PreStartContainerRequest(devices_ids=ids)
            self._call("PreStartContainer", request, self._limits.pre_start)

    def _call(self, name: str, request: Any, limit: float) -> Any:
        """Return the plugin's answer to a call.

        Raises:
            DevicePluginError: there was none.
        """
        if self.is_lost:
            raise DevicePluginError(self.resource, f"cannot be asked: {self.trouble}")

        try:
            return getattr(self._stub, name)(request, timeout=limit)
        except grpc.RpcError as error:
            raise DevicePluginError(self.resource, _failure(name, error, limit)) from None
        except ValueError as error:  # the channel was closed meanwhile
            raise DevicePluginError(
                self.resource, f"disconnected before it answered {name}"
            ) from error

    def _follow(self) -> None:
        """Read the plugin's reports until there are no more."""
        try:
            trouble = self._read_reports()
        except grpc.RpcError as error:
            trouble = self._end_of_reports(error)
        except ValueError:  # the channel was closed
            trouble = "is gone"
        except Exception:  # noqa: BLE001  # somebody else's program, and nobody is above
            _LOG.exception("the device plugin of %s is given up", self.resource)
            trouble = "sent what could not be read"

        self._note(trouble, is_lost=True)

    def _end_of_reports(self, error: grpc.RpcError) -> str:
        """Return in words how the plugin's reports ended, or why there were none."""
        has_gone = isinstance(error, grpc.Call) and error.code() in _GONE
        if self._has_reported and has_gone:
            return "has disconnected"
        return _failure("ListAndWatch", error, self._limits.connect)

    def _read_reports(self) -> str:
        """Read the plugin's options and reports; return why they ended.

        Raises:
            grpc.RpcError: the plugin cannot be reached, or ended.
        """
        options = self._stub.GetDevicePluginOptions(
            wire.Empty(), self._limits.connect, wait_for_ready=True
        )
        self.has_preferences = options.get_preferred_allocation_available
        self._needs_pre_start = options.pre_start_required
        for message in self._stub.ListAndWatch(wire.Empty()):
            start = time.monotonic()
            self._has_reported = True
            trouble = ""
            try:
                self.devices = self._without_unknown_nodes(devices_of(message))
            except InputError as error:
                trouble = f"sent a list of devices that makes no sense: {error}"

            self._note(trouble)
            pause = max(self._limits.between_reports, _REST * (time.monotonic() - start))
            if self._stopped.wait(pause):
                return "was replaced"

        return "ended its list of devices"

    def _without_unknown_nodes(self, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        """Return devices without NUMA nodes that the machine lacks.

        These nodes are named in the log once.
        """
        if self._numa_nodes is None:
            return devices

        known_devices, unknown_nodes = without_unknown_nodes(devices, self._numa_nodes)
        if unknown_nodes - self._unknown_nodes:
            _LOG.warning(
                "the device plugin of %s reports NUMA nodes that this machine lacks, which "
                "are ignored: %s",
                self.resource,
                ", ".join(map(str, sorted(unknown_nodes)[:8])),
            )
        self._unknown_nodes = unknown_nodes
        return known_devices

    def _note(self, trouble: str, *, is_lost: bool = False) -> None:
        """Tell of new devices, or of a trouble that makes them unhealthy."""
        if self._stopped.is_set():
            return

        self.trouble = trouble
        self.is_lost = is_lost
        if trouble:
            _LOG.warning("the device plugin of %s %s", self.resource, trouble)
            self.devices = tuple(replace(device, healthy=False) for device in self.devices)

        self._report(self)


def _failure(name: str, error: grpc.RpcError, limit: float) -> str:
    """Return in words why a call failed."""
    # the errors of a stub's methods are also calls, which the types of grpc do not say
    code = grpc.StatusCode.UNKNOWN
    detail: str | None = str(error)
    if isinstance(error, grpc.Call):
        code = error.code()
        detail = error.details()

    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"did not answer {name} within {limit:g} s"
    if code in _GONE:
        return f"disconnected before it answered {name}"

    status = code.name.lower().replace("_", " ")
    return f"failed {name}: {status}: {(detail or 'no reason given')[:_LONGEST_DETAIL]}"


class DevicePluginError(AllocationError):
    """Raised when a device plugin fails.

    It hangs, is gone, refuses, or answers what makes no sense.
    """

    def __init__(self, resource: str, detail: str) -> None:
        super().__init__(f"the device plugin of {resource} {detail}")
        self.resource = resource


def devices_of(message: wire.ListAndWatchResponse) -> tuple[Device, ...]:
    """Return the devices of a plugin's report; of two with one id, as in a kubelet, the last.

    Raises:
        InputError: there are too many, or an id cannot be.
    """
    if len(message.devices) > _MOST_DEVICES:
        raise InputError.at(
            "the list of devices", f"up to {_MOST_DEVICES} devices", len(message.devices)
        )

    devices: dict[str, Device] = {}
    for index, device in enumerate(message.devices):
        if not 0 < len(device.ID) <= _LONGEST_ID or "\0" in device.ID:
            raise InputError.at(
                f"devices[{index}].ID", f"an id of up to {_LONGEST_ID} letters", device.ID
            )

        nodes: tuple[int, ...] | None = None
        if device.HasField("topology"):
            nodes = tuple(dict.fromkeys(node.ID for node in device.topology.nodes))
        devices[device.ID] = Device(device.ID, nodes, device.health == _HEALTHY)

    return tuple(devices.values())


def without_unknown_nodes(
    devices: Iterable[Device], numa_nodes: Collection[int]
) -> tuple[tuple[Device, ...], frozenset[int]]:
    """Return devices without NUMA nodes that the machine lacks, and these nodes.

    As in a kubelet, a device of unknown nodes only is near none, unlike one that names no nodes at
    all.
    """
    devices = tuple(devices)
    unknown_nodes = frozenset(
        node for device in devices for node in device.numa_nodes or () if node not in numa_nodes
    )
    if not unknown_nodes:
        return devices, unknown_nodes

    known_devices = []
    for device in devices:
        if device.numa_nodes is None:
            known_devices.append(device)
        else:
            device_nodes = tuple(node for node in device.numa_nodes if node not in unknown_nodes)
            known_devices.append(replace(device, numa_nodes=device_nodes))

    return tuple(known_devices), unknown_nodes


def preferred_of(
    message: wire.PreferredAllocationResponse,
    available: Iterable[str],
    must_include: Iterable[str],
    size: int,
) -> tuple[str, ...]:
    """Return the ids that a plugin prefers; none if it has no preference.

    Raises:
        InputError: they are not `size` of the available ones with those that must be included.
    """
    answers = message.container_responses
    if not answers or not answers[0].deviceIDs:
        return ()

    ids = tuple(answers[0].deviceIDs)
    foreign_ids = sorted(set(ids) - set(available))
    if foreign_ids:
        raise InputError.at("deviceIDs", "ids of the available devices", foreign_ids)

    missing_ids = sorted(set(must_include) - set(ids))
    if missing_ids:
        raise InputError.at(
            "deviceIDs", f"the ids that must be included ({', '.join(missing_ids)[:200]})", ids
        )

    if len(set(ids)) != size or len(ids) != size:
        raise InputError.at("deviceIDs", f"{size} different ids", ids)

    return ids


def answer_of(message: wire.AllocateResponse) -> DeviceAnswer:
    """Return what a plugin says about the devices of one container.

    Raises:
        InputError: there is not one answer for the one container, or a variable or path cannot be.
    """
    if len(message.container_responses) != 1:
        raise InputError.at("container_responses", "one answer", len(message.container_responses))

    response = message.container_responses[0]
    environment = dict(sorted(response.envs.items()))
    _check_variables(environment)

    mounts = tuple(
        Mount(mount.container_path, mount.host_path, mount.read_only) for mount in response.mounts
    )
    for mount in mounts:
        _check_paths("mounts", mount)

    devices = tuple(
        DeviceNode(device.container_path, device.host_path, device.permissions)
        for device in response.devices
    )
    for device in devices:
        _check_paths("devices", device)
    for device in devices:
        if set(device.permissions) - set("rwm"):
            raise InputError.at("devices.permissions", "some of r, w and m", device.permissions)

    names = tuple(cdi_device.name for cdi_device in response.cdi_devices)
    for name in names:
        kind, _, device_name = name.partition("=")
        if not (device_name and "/" in kind):
            raise InputError.at("cdi_devices", "names such as vendor.com/gpu=gpu0", name)

    annotations = dict(sorted(response.annotations.items()))
    answer = DeviceAnswer(environment, mounts, devices, annotations, names)
    # a command is told all but the variables in one variable
    size = len(msgspec.json.encode(answer)) - len(msgspec.json.encode(environment))
    if size > _LONGEST_VALUE:
        raise InputError.at(
            "the answer", f"up to {_LONGEST_VALUE} bytes beside its variables", size
        )

    return answer


def _check_paths(where: str, mount: Mount | DeviceNode) -> None:
    """Refuse a mount or device of which a path is not absolute.

    Raises:
        InputError: one is not.
    """
    for path in (mount.container_path, mount.host_path):
        if not path.startswith("/") or "\0" in path:
            raise InputError.at(where, "an absolute path", path)


def _check_variables(environment: dict[str, str]) -> None:
    """Refuse what no program can be started with.

    Raises:
        InputError: a name or a value cannot be, or there are too many.
    """
    if len(environment) > _MOST_VARIABLES:
        raise InputError.at("envs", f"up to {_MOST_VARIABLES} variables", len(environment))

    for name, value in environment.items():
        if not name or "=" in name or "\0" in name + value:
            raise InputError.at(
                "envs", "a name and a value that a program can be started with", f"{name}={value}"
            )

    size = sum(len(name.encode()) + len(value.encode()) for name, value in environment.items())
    if size > _LONGEST_VALUE:
        raise InputError.at("envs", f"up to {_LONGEST_VALUE} bytes", size)
