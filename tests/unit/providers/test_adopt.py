"""Providers that take over what was given before they were made."""

from __future__ import annotations

import pytest

from alignup.errors import AllocationError
from alignup.kubernetes.kubelet_config import ReservedMemory
from alignup.kubernetes.pod import Container, Pod
from alignup.kubernetes.policy_options import CpuOptions
from alignup.machine.device_inventory import decode_inventory
from alignup.providers.cpu.provider import CpuProvider
from alignup.providers.devices.provider import DeviceProvider
from alignup.providers.memory.provider import MemoryProvider
from alignup.topology_manager.hints import BitMask, TopologyHint
from inputs import leasing

GI = leasing.GI
MACHINE = leasing.machine()


def cpu_provider():
    return CpuProvider(MACHINE, 0, CpuOptions())


def device_provider():
    return DeviceProvider(MACHINE, decode_inventory(leasing.GPUS, MACHINE))


def memory_provider():
    return MemoryProvider(MACHINE, [ReservedMemory(0, (("memory", 4096),))])


def test_cpus_are_taken_over_and_released():
    """As if the provider had given them itself; CPUs that are not there do no harm."""
    provider = cpu_provider()
    provider.adopt("p", "c", 0b11 | 1 << 99)
    assert list(provider.cpus("p", "c")) == [0, 1, 99]
    assert 0 not in provider.free_cpus
    provider.release("p", "c")
    assert len(provider.free_cpus) == 16


def test_no_cpu_is_taken_over_twice():
    """Neither by another container, nor by the same one."""
    provider = cpu_provider()
    provider.adopt("p", "c", 0b11)
    with pytest.raises(AllocationError, match="CPUs 1-2: 0-1 are given already"):
        provider.adopt("q", "c", 0b110)
    with pytest.raises(AllocationError, match="container 'c'"):
        provider.adopt("p", "c", 0b100)


def test_devices_are_taken_over_and_released():
    """By resource."""
    provider = device_provider()
    provider.adopt("p", "c", {leasing.GPU: ["gpu1"]})
    assert provider.devices("p", "c") == {leasing.GPU: ("gpu1",)}
    assert provider.free[leasing.GPU] == ("gpu0", "gpu2", "gpu3")
    provider.release("p", "c")
    assert len(provider.free[leasing.GPU]) == 4


def test_a_device_is_not_taken_over_twice_by_one_container():
    """It would count once where two were asked for."""
    provider = device_provider()
    with pytest.raises(AllocationError, match=r"named twice: gpu1$"):
        provider.adopt("p", "c", {leasing.GPU: ["gpu1", "gpu0", "gpu1"]})
    assert provider.devices("p", "c") == {}
    assert len(provider.free[leasing.GPU]) == 4


@pytest.mark.parametrize("ids", [{leasing.GPU: ["gpu0"]}, {leasing.GPU: ["gpu9"]}, {"other": []}])
def test_devices_that_are_given_or_unknown_are_not_taken_over(ids):
    """And nothing changes."""
    provider = device_provider()
    provider.adopt("p", "c", {leasing.GPU: ["gpu0"]})
    with pytest.raises(AllocationError, match=r"held already|the inventory has no"):
        provider.adopt("q", "c", ids)
    assert provider.devices("q", "c") == {}


def ask(provider, name, size, mask):
    container = Container("c", memory=(("memory", size),))
    provider.allocate(
        Pod(uid=name, name=name, containers=(container,)),
        container,
        TopologyHint(BitMask(mask), True),
    )
    return provider.shares(name, "c")


def test_memory_is_taken_over_as_it_was_given():
    """Node for node, with the group that it binds."""
    first = memory_provider()
    shares = ask(first, "p", 20 * GI, [0, 1])
    assert shares == {"memory": {0: 16 * GI - 4096, 1: 4 * GI + 4096}}

    second = memory_provider()
    second.adopt("p", "c", shares)

    assert second.free == first.free
    assert second.blocks("p", "c") == first.blocks("p", "c")
    assert second.shares("p", "c") == shares
    assert second.shares("nobody", "c") == {}
    second.release("p", "c")
    assert second.free == memory_provider().free


def test_memory_that_is_not_there_any_more_counts_as_full():
    """Hugepages can be set aside at any time; nodes can go."""
    provider = memory_provider()
    provider.adopt("p", "c", {"memory": {1: 99 * GI, 7: GI}, "hugepages-2Mi": {0: GI}})
    assert provider.free["memory"][1] == 0
    provider.adopt("q", "c", {"hugepages-2Mi": {0: GI}})
    assert provider.shares("q", "c") == {}
    with pytest.raises(AllocationError, match="holds memory already"):
        provider.adopt("p", "c", {"memory": {0: 1}})
    provider.release("p", "c")
    assert provider.free == memory_provider().free
