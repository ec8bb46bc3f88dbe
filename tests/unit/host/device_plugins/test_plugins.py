"""Plugins in this process register, report, answer, hang, lie and die.

Their sockets are in a folder with a short path.
"""

from __future__ import annotations

import gc
import queue
import socket
import sys
import threading
import time
from contextlib import suppress
from types import SimpleNamespace

import grpc
import pytest

from alignup.errors import InputError
from alignup.host.device_plugins import device_plugin_pb2 as wire
from alignup.host.device_plugins.connection import DevicePluginError, Limits, PluginConnection
from alignup.host.device_plugins.plugins import SOCKET_NAME, DevicePlugins
from alignup.kubernetes.pod import Container, Pod
from alignup.machine.device_inventory import Device
from alignup.node import Node
from fakes.device_plugins import LONG, NIC, FakePlugin, report, short_folder
from inputs.leasing import machine
from running.interrupting import Interrupted

PATIENT = Limits(LONG, LONG, LONG, LONG, between_reports=0.001)
HASTY = Limits(LONG, 0.2, 0.2, 0.2)


@pytest.fixture
def folder():
    with short_folder() as made:
        yield made


@pytest.fixture
def plugins(folder):
    with DevicePlugins(folder, PATIENT) as serving:
        yield serving


@pytest.fixture
def fake(folder, plugins):
    """Make plugins that serve and register; they end with the test."""
    made = []

    def make(*ids, resource=NIC, **options):
        plugin = FakePlugin(folder, resource, **options).serve()
        made.append(plugin)
        if ids:
            plugin.reports.put(report(*ids))
        plugin.register()
        if ids:
            plugins.wait_for([resource], LONG)
        return plugin

    yield make
    for plugin in made:
        plugin.die()


@pytest.fixture
def changes(plugins):
    """Return a function that waits for the next change that is as wanted."""
    seen = queue.SimpleQueue()
    plugins.listen(lambda resource, devices: seen.put((resource, devices)))

    def wait(holds, resource=NIC):
        while True:
            changed_resource, devices = seen.get(timeout=LONG)
            if changed_resource == resource and holds(devices):
                return devices

    return wait


def node_with(plugins, policy="best-effort"):
    node = Node(machine(), {"cpuManagerPolicy": "none", "topologyManagerPolicy": policy}, {NIC: ()})
    plugins.feed(node)
    return node


def pod(count, uid="pod", resource=NIC):
    devices = ((resource, count),)
    return Pod(uid=uid, name=uid, containers=(Container("c", devices=devices),), devices=devices)


def test_a_plugin_that_registers_feeds_a_node(plugins, fake):
    node = node_with(plugins)
    plugin = fake("nic0", "nic1")
    admission = node.admit(pod(2))
    assert admission.containers["c"].devices == {NIC: ("nic0", "nic1")}
    answer = plugins.allocate(admission.containers["c"].devices)
    assert answer.environment == {"NICS": "nic0,nic1"}
    assert plugins.inventory() == {NIC: (Device("nic0", (0,)), Device("nic1", (1,)))}
    assert plugin.calls == [("GetDevicePluginOptions",), ("Allocate", ("nic0", "nic1"))]


def test_devices_come_go_and_fall_ill(plugins, fake, changes):
    node = node_with(plugins)
    plugin = fake("nic0", "nic1")
    plugin.reports.put(report("nic0", "nic1", "nic2"))
    changes(lambda devices: len(devices) == 3)
    assert node.devices.free == {NIC: ("nic0", "nic1", "nic2")}
    plugin.reports.put(report("nic1", healthy=False))
    changes(lambda devices: devices == (Device("nic1", (0,), healthy=False),))
    assert node.devices.free == {NIC: ()}


def test_without_topology_a_device_is_near_no_node(plugins):
    plugin = FakePlugin(plugins._folder).serve()
    plugin.reports.put(wire.ListAndWatchResponse(devices=[wire.Device(ID="a", health="Healthy")]))
    plugin.register()
    plugins.wait_for([NIC], LONG)
    assert plugins.inventory()[NIC] == (Device("a", None),)
    plugin.die()


def trouble_of(plugins):
    """Return why the devices are not as their plugin has them."""
    return plugins._connections[NIC].trouble


def test_a_plugin_that_dies_has_no_healthy_devices_until_it_comes_back(plugins, fake, changes):
    plugin = fake("nic0", "nic1")
    plugin.die()
    lost = changes(lambda devices: not any(device.healthy for device in devices))
    assert [device.id for device in lost] == ["nic0", "nic1"]
    assert "disconnected" in trouble_of(plugins) or "ended" in trouble_of(plugins)
    with pytest.raises(DevicePluginError, match=f"the device plugin of {NIC} cannot be asked"):
        plugins.allocate({NIC: ("nic0",)})
    plugin.reports = queue.SimpleQueue()
    plugin.serve().reports.put(report("nic0"))
    plugin.register()
    changes(lambda devices: devices == (Device("nic0", (0,)),))
    assert trouble_of(plugins) == ""


def test_the_newest_plugin_of_a_resource_has_it(plugins, fake, changes):
    fake("old")
    fake("new", endpoint="other.sock")
    changes(lambda devices: devices == (Device("new", (0,)),))
    assert plugins.allocate({NIC: ("new",)}).environment == {"NICS": "new"}


def test_what_a_replaced_plugin_reported_last_is_not_taken_over(plugins, fake):
    """Its report waits for a listener while another plugin takes its place."""
    goes_on, has_begun, seen = threading.Event(), threading.Event(), []

    def listener(resource, devices):
        seen.append((resource, devices))
        if resource == "example.com/slow":
            has_begun.set()
            goes_on.wait(LONG)

    plugins.listen(listener)
    fake(resource="example.com/slow").reports.put(report("s"))
    assert has_begun.wait(LONG)
    old = fake()
    connection = plugins._connection(NIC)
    old.reports.put(report("old"))
    while not connection.devices:
        time.sleep(0.001)

    fake(endpoint="other.sock")
    goes_on.set()
    connection.join()
    assert NIC not in plugins.inventory()
    assert [resource for resource, _ in seen] == ["example.com/slow"]


def test_a_replaced_plugin_is_followed_no_longer(plugins, fake, changes):
    """Its list of devices is given up, and not left open until this process ends."""
    fake("old")
    old = plugins._connection(NIC)
    fake("new", endpoint="other.sock")
    changes(lambda devices: devices == (Device("new", (0,)),))
    joining = threading.Thread(target=old.join, daemon=True)
    joining.start()
    joining.join(10)
    assert not joining.is_alive()


def test_the_preference_is_asked_only_where_there_is_a_choice(plugins, fake):
    node = node_with(plugins)
    plugin = fake("nic0", "nic1", "nic2", "nic3", preferred=True)
    assert node.admit(pod(1)).containers["c"].devices == {NIC: ("nic2",)}
    ((_, container_request),) = plugin.calls[1:]
    assert (container_request.available_deviceIDs, container_request.must_include_deviceIDs) == (
        ["nic0", "nic2"],
        [],
    )
    assert container_request.allocation_size == 1
    plugin.calls.clear()
    assert node.admit(pod(1, "rest")).containers["c"].devices == {NIC: ("nic0",)}
    assert plugin.calls == []


def test_without_the_option_there_is_no_preference(plugins, fake):
    node = node_with(plugins)
    plugin = fake("nic0", "nic1", "nic2", "nic3")
    assert node.admit(pod(1)).containers["c"].devices == {NIC: ("nic0",)}
    assert plugin.calls == [("GetDevicePluginOptions",)]


@pytest.mark.parametrize(
    "lie",
    [["never"], ["nic0", "nic0"], [], ["nic0", "nic1", "nic2", "nic3"]],
    ids=["strange", "twice", "none", "too many"],
)
def test_a_preference_that_makes_no_sense_is_passed_over(plugins, fake, lie):
    node = node_with(plugins)
    fake("nic0", "nic1", "nic2", "nic3", preferred=True).preference = lambda _: lie
    assert node.admit(pod(1)).containers["c"].devices == {NIC: ("nic0",)}


def test_a_plugin_that_hangs_costs_its_own_resource_only(plugins, fake):
    node = node_with(plugins)
    hanging = fake("nic0", "nic1", "nic2", "nic3", preferred=True)
    answering = fake("a", "b", resource="example.com/other")
    hanging.hangs |= {"GetPreferredAllocation", "Allocate"}
    plugins._connections[NIC]._limits = HASTY
    refused = node.admit(pod(1))
    assert "did not answer GetPreferredAllocation within 0.2 s" in refused.message
    with pytest.raises(
        DevicePluginError, match=r"example.com/nic did not answer Allocate within 0.2 s"
    ):
        plugins.allocate({NIC: ("nic0",)})

    devices = node.admit(pod(1, "else", "example.com/other")).containers["c"].devices
    assert plugins.allocate(devices).environment == {"NICS": "a"}
    assert ("Allocate", ("a",)) in answering.calls


def test_pre_start_is_called_where_it_is_wanted(plugins, fake):
    plugin = fake("nic0", pre_start=True)
    plugins.pre_start({NIC: ("nic0",)})
    assert plugin.calls[-1] == ("PreStartContainer", ("nic0",))
    plugin.hangs.add("PreStartContainer")
    plugins._connections[NIC]._limits = HASTY
    with pytest.raises(DevicePluginError, match="did not answer PreStartContainer"):
        plugins.pre_start({NIC: ("nic0",)})
    second_plugin = fake("nic1", resource="example.com/other")
    plugins.pre_start({"example.com/other": ("nic1",)})
    assert second_plugin.calls == [("GetDevicePluginOptions",)]


def test_what_no_plugin_has_is_passed_over(plugins):
    assert not plugins.allocate({"nvidia.com/gpu": ("gpu0",)})
    plugins.pre_start({"nvidia.com/gpu": ("gpu0",)})


def test_an_answer_that_makes_no_sense_is_an_error(plugins, fake):
    plugin = fake("nic0")
    plugin.answer = lambda _: wire.AllocateResponse()
    with pytest.raises(DevicePluginError, match="makes no sense: expected one answer, got 0"):
        plugins.allocate({NIC: ("nic0",)})


def test_an_error_of_a_plugin_is_passed_on_in_one_line(plugins, fake):
    def fail(_ids):
        raise ValueError("burnt\ndown")

    fake("nic0").answer = fail
    with pytest.raises(DevicePluginError, match=r"failed Allocate: unknown: .*burnt\\ndown"):
        plugins.allocate({NIC: ("nic0",)})


def test_a_list_that_makes_no_sense_makes_its_devices_unhealthy(plugins, fake, changes):
    plugin = fake("nic0")
    plugin.reports.put(wire.ListAndWatchResponse(devices=[wire.Device(ID="", health="Healthy")]))
    changes(lambda devices: devices == (Device("nic0", (0,), healthy=False),))
    assert "makes no sense" in trouble_of(plugins)
    plugin.reports.put(report("nic0"))
    changes(lambda devices: devices == (Device("nic0", (0,)),))


def test_a_socket_that_speaks_another_language_is_no_plugin(folder):
    with (
        socket.socket(socket.AF_UNIX) as listening,
        DevicePlugins(folder, Limits(connect=0.5)) as plugins,
    ):
        listening.bind(str(folder / "garbage.sock"))
        listening.listen()
        FakePlugin(folder).register(endpoint="garbage.sock")
        connection, _ = listening.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 100)
            plugins.wait_for([NIC], LONG)
        assert plugins.inventory() == {NIC: ()}
        assert trouble_of(plugins)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"version": "v1alpha1"}, 'requested API version "v1alpha1" is not supported by kubelet'),
        ({"resource_name": "cpu"}, 'the ResourceName "cpu" is invalid'),
        ({"resource_name": "kubernetes.io/nic"}, 'the ResourceName "kubernetes.io/nic" is invalid'),
        ({"endpoint": "../nic.sock"}, "expected the name of a socket in the shared folder"),
        ({"endpoint": ""}, "expected the name of a socket in the shared folder"),
    ],
)
def test_a_registration_that_cannot_be_is_refused(folder, plugins, changed, reason):
    with pytest.raises(grpc.RpcError) as caught:
        FakePlugin(folder).register(**changed)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert reason in caught.value.details()
    assert plugins._connections == {}


def test_who_never_comes_is_named(plugins):
    with pytest.raises(
        DevicePluginError, match=r"example.com/nic has not reported devices within 0.01 s"
    ):
        plugins.wait_for([NIC], 0.01)
    with pytest.raises(DevicePluginError, match="has not registered"):
        plugins.preference(NIC)(["a"], [], 1)


def test_a_plugin_that_is_not_there_is_lost(folder):
    limits = Limits(connect=0.2)
    with DevicePlugins(folder, limits) as plugins:
        FakePlugin(folder).register()
        plugins.wait_for([NIC], LONG)
        assert plugins.inventory() == {NIC: ()}
        assert trouble_of(plugins)


def test_a_plugin_that_registers_at_the_end_is_let_go_like_the_others(folder, monkeypatch):
    """Its connection is started by a thread of the server, while another one ends all."""
    is_registering, has_ended = threading.Event(), threading.Event()
    start = PluginConnection.start

    def start_late(connection):
        is_registering.set()
        has_ended.wait(0.3)
        start(connection)

    monkeypatch.setattr(PluginConnection, "start", start_late)
    registration = wire.RegisterRequest(version="v1beta1", endpoint="p.sock", resource_name=NIC)
    with DevicePlugins(folder) as plugins:
        thread = threading.Thread(target=plugins._accept, args=(registration,))
        thread.start()
        assert is_registering.wait(LONG)

    has_ended.set()
    thread.join(LONG)
    assert not plugins._connection(NIC)._thread.is_alive()
    with pytest.raises(InputError, match="device plugins are served no more"):
        plugins._accept(registration)


def test_old_sockets_are_removed_and_other_files_stay(folder):
    for name in ("old.sock", SOCKET_NAME):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(folder / name))
    (folder / "kubelet_internal_checkpoint").write_text("{}")
    with DevicePlugins(folder):
        assert {path.name for path in folder.iterdir()} == {
            SOCKET_NAME,
            "kubelet_internal_checkpoint",
        }
    assert {path.name for path in folder.iterdir()} == {"kubelet_internal_checkpoint"}


@pytest.mark.usefixtures("plugins")
def test_a_folder_that_somebody_serves_is_left_alone(folder):
    with pytest.raises(InputError, match="somebody serves the socket"), DevicePlugins(folder):
        pass
    assert (folder / SOCKET_NAME).exists()


def test_a_folder_that_cannot_be_is_an_error(folder):
    (folder / "file").touch()
    with (
        pytest.raises(InputError, match="cannot serve device plugins: file exists"),
        DevicePlugins(folder / "file"),
    ):
        pass
    with (
        pytest.raises(InputError, match="a path of up to 94 bytes"),
        DevicePlugins(folder / ("x" * 100)),
    ):
        pass


def test_only_a_node_with_a_device_provider_can_be_fed(plugins):
    with pytest.raises(InputError, match="the node has no device provider"):
        plugins.feed(SimpleNamespace(devices=None))


def test_a_listener_that_fails_is_its_own_trouble(plugins, fake, caplog):
    def fail(_resource, _devices):
        raise ValueError

    plugins.listen(fail)
    fake("nic0")
    assert plugins.inventory()[NIC] == (Device("nic0", (0,)),)
    assert "were not taken over" in caplog.text


def interrupted(moment, do):
    """Do something that an exception interrupts at a moment; return whether it came so far."""
    moments = 0

    def trace(_frame, event, _argument):
        nonlocal moments
        moments += event != "call"
        if moments == moment:
            raise Interrupted
        return trace

    earlier = sys.gettrace()
    gc.disable()  # its callbacks are not what is interrupted
    sys.settrace(trace)
    try:
        with suppress(DevicePluginError):
            do()
    except Interrupted:
        return True
    finally:
        sys.settrace(earlier)
        gc.enable()
    return False


@pytest.mark.parametrize(
    "do",
    [
        lambda plugins: plugins.inventory(),
        lambda plugins: plugins.listen(lambda *_: None),
        lambda plugins: plugins.wait_for(["example.com/none"], 0.01),
    ],
    ids=["inventory", "listen", "wait_for"],
)
def test_a_signal_leaves_nothing_locked_for_the_plugins(folder, do):
    """Whatever its handler interrupts: what plugins report is taken over as before."""
    moment = 1
    while True:
        plugins = DevicePlugins(folder)
        connection = SimpleNamespace(resource=NIC, devices=(Device("0", ()),))
        plugins._connections[NIC] = connection
        was_interrupted = interrupted(moment, lambda plugins=plugins: do(plugins))
        reporting = threading.Thread(target=plugins._changed, args=[connection], daemon=True)
        reporting.start()
        reporting.join(10)
        assert not reporting.is_alive()
        assert plugins.inventory() == {NIC: (Device("0", ()),)}
        if not was_interrupted:
            break
        moment += 1

    assert moment > 1
