"""Lets the agent use device plugins: their devices for the ledger, and their answers for the service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alignup.agent.service import PluginCalls
from alignup.machine.device_inventory import near_cpu_nodes

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

    from alignup.agent.asked import Question
    from alignup.agent.ledger import Ledger
    from alignup.agent.service import Service
    from alignup.device_plugins.plugins import DevicePlugins
    from alignup.leases.device_answer import DeviceAnswer
    from alignup.machine.device_inventory import Device
    from alignup.machine.machine import Machine

__all__ = ["PluginDevices"]


class PluginDevices(PluginCalls):
    """The device plugins of the agent.

    Args:
        plugins: those that register.
        machine: the machine; a device near NUMA nodes without CPUs counts as near the closest ones with CPUs.
    """

    def __init__(self, plugins: DevicePlugins, machine: Machine) -> None:
        self._plugins = plugins
        self._machine = machine
        self._resources: set[str] = set()

    def feed(self, ledger: Ledger, service: Service, loop: asyncio.AbstractEventLoop) -> None:
        """Let a ledger have the devices that there are, now and whenever they change, in its event loop."""

        def update(resource: str, devices: tuple[Device, ...]) -> None:
            self._resources.add(resource)
            placed = near_cpu_nodes(self._machine, {resource: devices})[resource]
            ledger.update(resource, placed, has_preferences=self._plugins.has_preferences(resource))
            service.changed()

        self._plugins.listen(lambda *report: void(loop.call_soon_threadsafe(update, *report)))

    def has(self, resource: str) -> bool:
        """See `PluginCalls`."""
        return resource in self._resources

    def prefer(self, question: Question) -> Sequence[str]:
        """See `PluginCalls`."""
        preference = self._plugins.preference(question.resource)
        return preference(question.available, question.must_include, question.size)

    def allocate(self, devices: Mapping[str, Sequence[str]]) -> DeviceAnswer:
        """See `PluginCalls`."""
        answer = self._plugins.allocate(devices)
        self._plugins.pre_start(devices)
        return answer


def void(_: object) -> None:
    """Return nothing."""
