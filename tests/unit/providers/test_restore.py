"""Providers that take over the state of a kubelet."""

from __future__ import annotations

import pytest

from alignup.errors import AllocationError, PodExistsError
from alignup.kubernetes.kubelet_config import ReservedMemory
from alignup.kubernetes.pod import Pod
from alignup.kubernetes.policy_options import CpuOptions
from alignup.machine.device_inventory import Device, decode_inventory
from alignup.providers.cpu.provider import CpuProvider
from alignup.providers.devices.provider import DeviceProvider
from alignup.providers.memory.provider import MemoryProvider, RestoredMemory
from alignup.topology_manager.manager import TopologyManager
from alignup.topology_manager.policy import make_policy
from inputs import leasing

MACHINE = leasing.machine()
NODES = len(MACHINE.numa_nodes)


def test_cpus_outside_the_shared_pool_are_given_even_if_nobody_has_them():
    """And those that an init container shares with a container stay until both are released."""
    provider = CpuProvider(MACHINE, 0b1, CpuOptions())
    provider.restore({"p": {"i": 0b0110, "c": 0b0010}}, MACHINE.cpus & ~0b1110)
    assert not set(provider.free_cpus) & {0, 1, 2, 3}
    provider.release("p", "i")
    assert 2 in provider.free_cpus
    assert 1 not in provider.free_cpus
    provider.release("p", "c")
    assert 1 in provider.free_cpus
    assert 3 not in provider.free_cpus


def test_devices_of_one_pod_may_overlap_and_gone_ones_stay_held():
    provider = DeviceProvider(MACHINE, decode_inventory(leasing.GPUS, MACHINE))
    resource, devices = next(iter(provider.free.items()))
    holdings = {
        "p": {"i": {resource: devices[:2]}, "c": {resource: devices[:1]}},
        "q": {"c": {resource: ["old"]}},
    }
    provider.restore(holdings, {resource: [Device("old", (0,))]})
    assert set(provider.given[resource]) == {*devices[:2], "old"}
    provider.release("p", "i")
    assert devices[1] in provider.free[resource]
    assert devices[0] not in provider.free[resource]
    provider.release("q", "c")
    assert "old" not in provider.free[resource]


def test_devices_that_nobody_reports_and_nobody_told_of_are_refused():
    provider = DeviceProvider(MACHINE, {})
    with pytest.raises(AllocationError, match="the inventory has no"):
        provider.restore({"p": {"c": {"r": ["a"]}}}, {})


def memory(free, holdings, bound, more_users=(0,) * NODES):
    provider = MemoryProvider(MACHINE, [ReservedMemory(0, (("memory", 4096),))])
    names = dict.fromkeys(("p", "q"), "default/p")
    provider.restore(
        RestoredMemory(
            {"memory": (100,) * NODES}, {"memory": free}, holdings, bound, more_users, names
        )
    )
    return provider


def test_memory_is_free_as_told_and_groups_are_bound():
    shares = {("p", "c"): {"memory": {0: 30, 1: 20}}}
    provider = memory((70, 80), shares, [0b11, 0b11])
    assert provider.free == {"memory": (70, 80)}
    assert provider.ledger.groups == (0b11,)
    assert provider.ledger.alone == 0
    assert [(b.numa_nodes, b.size) for b in provider.blocks("p", "c")] == [((0, 1), 50)]
    provider.release("p", "c")
    assert provider.free == provider.allocatable == {"memory": (100, 100)}
    assert provider.ledger.unused == 0b11


def test_a_node_that_was_alone_in_a_group_stays_bound_to_itself():
    shares = {("p", "c"): {"memory": {0: 30, 1: 20}}}
    provider = memory((70, 80), shares, [0b01, 0b11])
    assert provider.ledger.groups == ()
    assert provider.ledger.alone == 0b01


def test_users_that_nobody_knows_keep_a_node_in_use():
    provider = memory((70, 100), {("p", "c"): {"memory": {0: 30}}}, [0b01, 0b10], (1, 0))
    provider.release("p", "c")
    assert provider.ledger.unused == 0b10


def test_what_comes_back_never_exceeds_what_there_is():
    """The books of a kubelet can count another container's bytes as free."""
    provider = memory(
        (100, 70), {("p", "c"): {"memory": {0: 30}}, ("q", "c"): {"memory": {1: 30}}}, [1, 2]
    )
    provider.release("p", "c")
    provider.release("q", "c")
    assert provider.free == {"memory": (100, 100)}


def test_a_manager_counts_restored_pods_as_admitted_once():
    manager = TopologyManager(make_policy("none", 1))
    manager.restore([Pod("u", "a"), Pod("v", "b")])
    assert [pod.uid for pod in manager.pods] == ["u", "v"]
    with pytest.raises(PodExistsError, match="'u' is admitted already"):
        manager.restore([Pod("w", "c"), Pod("u", "a")])
    assert len(manager.pods) == 2
