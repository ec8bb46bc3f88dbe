"""The devices of plugins reach the ledger in its event loop, and their answers the service."""

from __future__ import annotations

import asyncio
import threading

import pytest

from alignup.errors import AllocationError
from alignup.host.agent.service import PluginCalls, PluginDevices
from alignup.host.device_plugins.answer import DeviceAnswer
from alignup.host.device_plugins.connection import DevicePluginError
from alignup.host.leases.ledger import Ledger
from alignup.host.leases.request import Question
from alignup.host.leases.users import Limits
from alignup.machine.device_inventory import Device
from alignup.machine.machine import Machine
from inputs import leasing

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

    def trouble(self, _resource):
        return ""

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
        calls.feed(ledger, service.changed)
        report = threading.Thread(
            target=plugins.listener, args=(NIC, (Device("a", (0,)), Device("b", (1,))))
        )
        report.start()
        await asyncio.to_thread(report.join)
        while not service.threads:  # noqa: ASYNC110  # no event tells of it
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
        calls.feed(ledger, Service().changed)
        plugins.listener(NIC, (Device("a", (2,)),))
        while not calls.has(NIC):  # noqa: ASYNC110  # no event tells of it
            await asyncio.sleep(0)

    asyncio.run(work())
    (device,) = ledger.node.inventory[NIC]
    assert device.numa_nodes == (0,)


def test_plugins_allocate_and_then_prepare():
    plugins = Plugins()
    calls = PluginDevices(plugins, leasing.machine())
    assert asyncio.run(calls.allocate({NIC: ("a",)})) == DeviceAnswer({"A": "1"})
    assert asyncio.run(calls.prefer(Question(NIC, ("a", "b"), ("a",), 2))) == ("b",)
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
        asyncio.run(PluginDevices(plugins, leasing.machine()).allocate({NIC: ("a",)}))


def test_without_plugins_nobody_has_anything():
    calls = PluginCalls()
    assert not calls.has(NIC)
    assert asyncio.run(calls.prefer(Question(NIC, ("a",), (), 1))) == ()
    with pytest.raises(NotImplementedError):
        asyncio.run(calls.allocate({NIC: ("a",)}))


def test_a_plugin_that_hangs_keeps_nobody_else_waiting():
    """Neither another plugin nor the event loop; more than some calls are refused."""
    goes_on, plugins = threading.Event(), Plugins()
    real = plugins.allocate
    plugins.allocate = lambda devices: (NIC not in devices or goes_on.wait(60)) and real(devices)

    async def work():
        calls = PluginDevices(plugins, leasing.machine())
        hanging = [asyncio.create_task(calls.allocate({NIC: ("a",)})) for _ in range(64)]
        await asyncio.sleep(0)
        assert await calls.allocate({"a.b/other": ("b",)}) == DeviceAnswer({"A": "1"})
        with pytest.raises(AllocationError, match=f"plugin of {NIC} is busy: 64 calls wait for it"):
            await calls.allocate({NIC: ("a",)})
        assert not any(call.done() for call in hanging)
        goes_on.set()
        await asyncio.gather(*hanging)
        assert await calls.allocate({NIC: ("a",)}) == DeviceAnswer({"A": "1"})
        calls.close()

    asyncio.run(work())


def test_of_many_reports_the_latest_is_taken_over():
    """The others would have been replaced at once."""
    plugins, service = Plugins(), Service()
    ledger, taken = Ledger(leasing.site(), Limits(), 0), []
    real = ledger.update
    ledger.update = lambda *report, **options: (taken.append(report), real(*report, **options))

    async def work():
        calls = PluginDevices(plugins, leasing.machine())
        calls.feed(ledger, service.changed)
        for number in range(1000):
            plugins.listener(NIC, (Device("a", (0,), healthy=bool(number % 2)),))
        plugins.listener("a.b/other", (Device("b", (0,)),))
        while not calls.has("a.b/other"):  # noqa: ASYNC110  # no event tells of it
            await asyncio.sleep(0)

    asyncio.run(work())
    assert taken == [(NIC, (Device("a", (0,)),)), ("a.b/other", (Device("b", (0,)),))]
