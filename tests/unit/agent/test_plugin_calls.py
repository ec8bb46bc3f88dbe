"""The devices of plugins reach the ledger in its event loop, and their answers the service."""

from __future__ import annotations

import asyncio
import threading

import pytest

import leasing
from alignup.agent.asked import Question
from alignup.agent.ledger import Ledger
from alignup.agent.plugin_calls import PluginDevices, void
from alignup.agent.service import PluginCalls
from alignup.agent.users import Limits
from alignup.device_plugins.messages import DevicePluginError
from alignup.errors import AllocationError
from alignup.leases.device_answer import DeviceAnswer
from alignup.machine.device_inventory import Device
from alignup.machine.machine import Machine

NIC = "example.com/nic"


class Plugins:
    """Plugins that are told what to report."""

    def __init__(self):
        self.calls = []
        self.listener = None

    def listen(self, listener):
        self.listener = listener

    def has_preferences(self, _resource):
        return True

    def preference(self, resource):
        return lambda *question: self.calls.append(("prefer", resource, *question)) or ("b",)

    def allocate(self, devices):
        self.calls.append(("allocate", devices))
        return DeviceAnswer({"A": "1"})

    def pre_start(self, devices):
        self.calls.append(("pre-start", devices))


class Service:
    """Counts changes."""

    def __init__(self):
        self.threads = []

    def changed(self):
        self.threads.append(threading.current_thread())


def test_devices_are_taken_over_in_the_event_loop():
    """And those who wait look again."""
    plugins, service = Plugins(), Service()
    ledger = Ledger(leasing.site(), Limits(), 0)
    calls = PluginDevices(plugins, leasing.machine())

    async def work():
        calls.feed(ledger, service, asyncio.get_running_loop())
        report = threading.Thread(target=plugins.listener, args=(NIC, (Device("a", (0,)), Device("b", (1,)))))
        report.start()
        await asyncio.to_thread(report.join)
        await asyncio.sleep(0)

    assert not calls.has(NIC)
    asyncio.run(work())
    assert service.threads == [threading.current_thread()]
    assert [device.id for device in ledger.node.inventory[NIC]] == ["a", "b"]
    assert (calls.has(NIC), calls.has("x/y")) == (True, False)


def test_devices_near_nodes_without_cpus_count_as_near_the_closest_ones():
    """As those of an inventory do."""
    nodes = [
        {"id": 0, "memory": 1, "distances": [10, 20, 12], "cores": [{"cpus": [0], "socket": 0}]},
        {"id": 1, "memory": 1, "distances": [20, 10, 30], "cores": [{"cpus": [1], "socket": 0}]},
        {"id": 2, "memory": 1, "distances": [12, 30, 10], "cores": []},
    ]
    machine = Machine.from_dict({"numaNodes": nodes})
    plugins, ledger = Plugins(), Ledger(leasing.site(machine, {}), Limits(), 0)

    async def work():
        calls = PluginDevices(plugins, machine)
        calls.feed(ledger, Service(), asyncio.get_running_loop())
        plugins.listener(NIC, (Device("a", (2,)),))
        await asyncio.sleep(0.01)

    asyncio.run(work())
    (device,) = ledger.node.inventory[NIC]
    assert device.numa_nodes == (0,)


def test_plugins_allocate_and_then_prepare():
    plugins = Plugins()
    calls = PluginDevices(plugins, leasing.machine())
    assert calls.allocate({NIC: ("a",)}) == DeviceAnswer({"A": "1"})
    assert calls.prefer(Question(NIC, ("a", "b"), ("a",), 2)) == ("b",)
    assert plugins.calls == [
        ("allocate", {NIC: ("a",)}),
        ("pre-start", {NIC: ("a",)}),
        ("prefer", NIC, ("a", "b"), ("a",), 2),
    ]


def test_a_plugin_that_fails_to_prepare_allocates_nothing():
    plugins = Plugins()

    def fail(_devices):
        raise DevicePluginError(NIC, "failed")

    plugins.pre_start = fail
    with pytest.raises(AllocationError, match="failed"):
        PluginDevices(plugins, leasing.machine()).allocate({NIC: ("a",)})


def test_without_plugins_nobody_has_anything():
    calls = PluginCalls()
    assert not calls.has(NIC)
    assert calls.prefer(Question(NIC, ("a",), (), 1)) == ()
    with pytest.raises(NotImplementedError):
        calls.allocate({NIC: ("a",)})
    assert void(1) is None
