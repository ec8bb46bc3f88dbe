"""One plugin is followed and called; whatever goes wrong is its own, in one sentence."""

from __future__ import annotations

import queue

import grpc
import pytest

from alignup.host.device_plugins import device_plugin_pb2 as wire
from alignup.host.device_plugins.answer import DeviceAnswer
from alignup.host.device_plugins.connection import DevicePluginError, Limits, PluginConnection
from alignup.machine.device_inventory import Device
from fakes.device_plugins import LONG, NIC, FakePlugin, report, short_folder
from running.agents import eventually

LIMITS = Limits(LONG, LONG, LONG, LONG, between_reports=0.001)


@pytest.fixture
def folder():
    with short_folder() as made:
        yield made


@pytest.fixture
def plugin(folder):
    made = FakePlugin(folder, preferred=True, pre_start=True).serve()
    yield made
    made.die()


@pytest.fixture
def reports():
    return queue.SimpleQueue()


@pytest.fixture
def follow(plugin, reports):
    """Follow the plugin, and return the connection once it has reported."""
    connections = []

    def begin(limits=LIMITS):
        connection = PluginConnection(
            NIC,
            plugin.folder / plugin.endpoint,
            lambda it: reports.put((it.devices, it.trouble, it.is_lost)),
            limits,
        )
        connections.append(connection)
        connection.start()
        return connection

    yield begin
    for followed in connections:
        followed.stop()
        followed.join()


def test_devices_are_as_reported_last(plugin, follow, reports):
    follow()
    for ids in (("a", "b"), ("b",), ()):
        plugin.reports.put(report(*ids, nodes=[1]))
        assert reports.get(timeout=LONG) == (
            tuple(Device(device_id, (1,)) for device_id in ids),
            "",
            False,
        )


def test_the_end_of_a_plugin_leaves_its_devices_ill(plugin, follow, reports):
    connection = follow()
    plugin.reports.put(report("a"))
    reports.get(timeout=LONG)

    plugin.reports.put(None)
    (device,), trouble, is_lost = reports.get(timeout=LONG)
    assert (device.id, device.healthy, trouble, is_lost) == (
        "a",
        False,
        "ended its list of devices",
        True,
    )

    for call in (
        lambda: connection.allocate(["a"]),
        lambda: connection.preferred(["a", "b"], [], 1),
    ):
        with pytest.raises(DevicePluginError, match="cannot be asked: ended its list of devices"):
            call()


def test_a_plugin_that_ends_has_disconnected(plugin, follow, reports):
    """Once it has reported devices; before, it has not answered."""
    connection = follow()
    plugin.reports.put(report("a"))
    reports.get(timeout=LONG)
    plugin.end_abruptly()
    (device,), trouble, is_lost = reports.get(timeout=LONG)
    assert (device.healthy, trouble, is_lost) == (False, "has disconnected", True)
    with pytest.raises(DevicePluginError, match="cannot be asked: has disconnected"):
        connection.allocate(["a"])


def test_a_plugin_that_ends_before_it_reports_has_not_answered(plugin, follow, reports):
    follow()
    eventually(lambda: plugin.calls)
    plugin.end_abruptly()
    trouble = "disconnected before it answered ListAndWatch"
    assert reports.get(timeout=LONG) == ((), trouble, True)


def test_a_plugin_that_stops_in_order_has_disconnected_too(plugin, follow, reports):
    """Its server cancels the calls that it answers, if the connection lasts so long."""
    follow()
    plugin.reports.put(report("a"))
    reports.get(timeout=LONG)
    plugin.reports.put(grpc.StatusCode.CANCELLED)
    (device,), trouble, is_lost = reports.get(timeout=LONG)
    assert (device.healthy, trouble, is_lost) == (False, "has disconnected", True)


def test_a_list_that_makes_no_sense_is_no_end(plugin, follow, reports):
    follow()
    plugin.reports.put(report("a"))
    reports.get(timeout=LONG)
    plugin.reports.put(wire.ListAndWatchResponse(devices=[wire.Device(ID="")]))
    (device,), trouble, is_lost = reports.get(timeout=LONG)
    assert (device.healthy, is_lost) == (False, False)
    assert trouble.startswith("sent a list of devices that makes no sense: ")
    plugin.reports.put(report("a"))
    assert reports.get(timeout=LONG) == ((Device("a", (0,)),), "", False)


def test_calls_are_answered(plugin, follow, reports):
    connection = follow()
    plugin.reports.put(report("a", "b"))
    reports.get(timeout=LONG)
    assert connection.preferred(["a", "b"], [], 1) == ("b",)
    assert connection.allocate(["a"]) == DeviceAnswer({"NICS": "a"})
    connection.pre_start(["a"])
    assert [call[0] for call in plugin.calls] == [
        "GetDevicePluginOptions",
        "GetPreferredAllocation",
        "Allocate",
        "PreStartContainer",
    ]


def test_what_a_plugin_does_not_offer_is_not_asked(folder, reports):
    plugin = FakePlugin(folder).serve()
    connection = PluginConnection(NIC, folder / plugin.endpoint, lambda _: reports.put(1), LIMITS)
    connection.start()
    plugin.reports.put(report("a", "b"))
    reports.get(timeout=LONG)
    assert connection.preferred(["a", "b"], [], 1) == ()
    connection.pre_start(["a"])
    assert [call[0] for call in plugin.calls] == ["GetDevicePluginOptions"]
    connection.stop()
    connection.join()
    plugin.die()


@pytest.mark.parametrize("name", ["Allocate", "GetPreferredAllocation", "PreStartContainer"])
def test_a_call_that_hangs_has_an_end(plugin, follow, reports, name):
    plugin.hangs.add(name)
    connection = follow(Limits(LONG, 0.1, 0.1, 0.1))
    plugin.reports.put(report("a", "b"))
    reports.get(timeout=LONG)
    calls = {
        "Allocate": lambda: connection.allocate(["a"]),
        "GetPreferredAllocation": lambda: connection.preferred(["a", "b"], [], 1),
        "PreStartContainer": lambda: connection.pre_start(["a"]),
    }
    with pytest.raises(DevicePluginError, match=rf"{NIC} did not answer {name} within 0\.1 s"):
        calls[name]()


def test_a_plugin_that_hangs_before_it_says_its_options_is_lost(plugin, follow, reports):
    plugin.hangs.add("GetDevicePluginOptions")
    follow(Limits(connect=0.1))
    assert reports.get(timeout=LONG) == ((), "did not answer ListAndWatch within 0.1 s", True)


def test_a_connection_that_was_let_go_reports_nothing(plugin, follow, reports):
    connection = follow()
    plugin.reports.put(report("a"))
    reports.get(timeout=LONG)
    connection.stop()
    connection.join()
    assert reports.empty()
    with pytest.raises(DevicePluginError, match="disconnected before it answered Allocate"):
        connection.allocate(["a"])


@pytest.mark.parametrize("strange", [99, -5, 1 << 62])
def test_unknown_numa_nodes_are_ignored_and_named_once(plugin, reports, caplog, strange):
    """As in a kubelet: such a device is near none."""
    connection = PluginConnection(
        NIC,
        plugin.folder / plugin.endpoint,
        lambda it: reports.put(it.devices),
        LIMITS,
        frozenset({0, 1}),
    )
    connection.start()
    try:
        for _ in range(2):
            plugin.reports.put(report("a", nodes=[strange, 1]))
            assert reports.get(timeout=LONG) == (Device("a", (1,)),)

        plugin.reports.put(report("a", nodes=[strange]))
        assert reports.get(timeout=LONG) == (Device("a", ()),)
    finally:
        connection.stop()
        connection.join()

    message = (
        f"the device plugin of {NIC} reports NUMA nodes that this machine lacks, which are "
        f"ignored: {strange}"
    )
    assert caplog.text.count(message) == 1
