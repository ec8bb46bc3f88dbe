"""What `--near` names, and where leases near it are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import AllocationError, InputError
from alignup.host.leases.near import NearNodes, near_of
from alignup.host.leases.record import Near
from alignup.host.leases.request import make_request
from alignup.host.processes.identity import identify
from alignup.machine.cpuset import CPUSet
from alignup.machine.load import load_with_devices
from alignup.machine.sysfs.machine import read_sysfs
from inputs import kernel_trees, leasing
from inputs.leasing import Placer
from inputs.strategies import examples

ME = identify(1)
DGX = load_with_devices("dgx-h100")


def lease(site, near, held=(), **wishes):
    request = make_request(near=near, **wishes)
    return Placer(site, request).place(ME, "new", "a command", tuple(held))


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("numa:1", (1,)),
        ("nic7", (1,)),
        ("gpu0", (0,)),
        ("0000:18:00.0", (0,)),
        ("18:00.0", (0,)),
        ("00000000:18:00.0", (0,)),
        ("0000:1B:00.0", (0,)),
    ],
)
def test_numa_nodes_devices_and_pci_addresses_are_found(text, nodes):
    near = near_of(text, DGX.machine, DGX.devices, is_here=False)
    assert near == Near(text, nodes)


@pytest.mark.parametrize(
    "text", ["", "numa:2", "numa:", "numa:-1", "NUMA:1", "nic8", "0001:18:00.0", "../x", "eth0"]
)
def test_what_is_not_there_is_an_error_that_names_what_is(text):
    with pytest.raises(InputError, match=r"--near.*|.*numa:0, numa:1, gpu0.*") as error:
        near_of(text, DGX.machine, DGX.devices, is_here=False)
    assert str(error.value).startswith(
        "expected numa:N, a PCI address, or a device (numa:0, numa:1"
    )
    assert f"got {text!r}" in str(error.value)


@pytest.fixture
def tree(tmp_path):
    """A server of two NUMA nodes with NICs, a bond, a VLAN on it and a device of nowhere."""
    files = kernel_trees.server()
    places = {"0000:17:00.0": "0", "0000:98:00.0": "1", "0000:99:00.0": "-1"}
    for address, numa in places.items():
        files |= kernel_trees.pci(address, class_="0x020000", numa_node=numa)
    kernel_trees.write(tmp_path, files)

    folders = {
        "eth0": "pci0000:16/0000:16:01.0/0000:17:00.0/net/eth0",
        "eth1": "pci0000:97/0000:98:00.0/virtio3/net/eth1",
        "eth2": "pci0000:97/0000:99:00.0/net/eth2",
        "bond0": "virtual/net/bond0",
        "bond0.7": "virtual/net/bond0.7",
        "br0": "virtual/net/br0",
        "lo": "virtual/net/lo",
    }
    classes = tmp_path / "sys/class/net"
    classes.mkdir(parents=True)
    for name, folder in folders.items():
        target = tmp_path / "sys/devices" / folder
        target.mkdir(parents=True)
        (classes / name).symlink_to(target)

    for upper, lower in (
        ("bond0", "eth0"),
        ("bond0", "eth1"),
        ("bond0.7", "bond0"),
        ("br0", "br0"),
    ):
        link = tmp_path / "sys/devices" / folders[upper] / f"lower_{lower}"
        link.symlink_to(tmp_path / "sys/devices" / folders[lower])

    disks = tmp_path / "sys/class/nvme"
    disks.mkdir()
    disk = tmp_path / "sys/devices/pci0000:97/0000:98:00.0/nvme/nvme0"
    disk.mkdir(parents=True)
    (disks / "nvme0").symlink_to(disk)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("eth0", (0,)),
        ("eth1", (1,)),
        ("nvme0", (1,)),
        ("bond0", (0, 1)),
        ("bond0.7", (0, 1)),
    ],
)
def test_interfaces_and_what_is_made_of_them_are_found_by_the_kernels_name(tree, name, nodes):
    near = near_of(name, read_sysfs(tree), {}, is_here=True, root=str(tree))
    assert near == Near(name, nodes)


@pytest.mark.parametrize("name", ["lo", "eth2", "br0"])
def test_what_is_near_nothing_is_an_error_of_its_own(tree, name):
    with pytest.raises(InputError, match=f"--near {name}: nothing tells which NUMA node"):
        near_of(name, read_sysfs(tree), {}, is_here=True, root=str(tree))


def test_on_one_numa_node_all_that_is_there_is_near_it(tree):
    machine = leasing.machine(nodes=1)
    assert near_of("eth2", machine, {}, is_here=True, root=str(tree)).numa_nodes == (0,)


def test_interfaces_of_this_machine_are_not_those_of_another(tree):
    with pytest.raises(InputError, match=r"\(numa:0, numa:1\), got 'eth0'"):
        near_of("eth0", read_sysfs(tree), {}, is_here=False, root=str(tree))
    with pytest.raises(InputError, match=r"\(numa:0, numa:1, eth0, eth1, eth2\), got 'eth9'"):
        near_of("eth9", read_sysfs(tree), {}, is_here=True, root=str(tree))


def test_a_node_without_cpus_stands_for_the_nearest_with_some():
    """As one of CXL, or of a GPU's memory."""
    gb200 = load_with_devices("gb200").machine
    bare = next(
        node.id for node, cpus in zip(gb200.numa_nodes, gb200.node_cpus, strict=True) if not cpus
    )
    nodes = near_of(f"numa:{bare}", gb200, {}, is_here=False).numa_nodes
    assert nodes
    assert all(gb200.node_cpus[gb200.position(node)] for node in nodes)


SITE = leasing.site(leasing.machine(nodes=4, cores=4, threads=1))


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
@pytest.mark.parametrize("node", range(4))
def test_cpus_memory_and_devices_are_near_it(policy, node):
    got = lease(SITE, Near("x", (node,)), cpus=2, memory="1Gi", policy=policy)
    assert got.numa_nodes == (node,)
    assert [share.numa_node for share in got.memory] == [node]

    gpus = lease(leasing.site(), Near("x", (1,)), devices={leasing.GPU: 1}, policy=policy)
    assert gpus.devices == {leasing.GPU: ("gpu2",)}


def test_memory_alone_is_near_it_too():
    got = lease(SITE, Near("x", (2,)), memory="1Gi")
    assert [share.numa_node for share in got.memory] == [2]


def test_strict_policies_refuse_what_does_not_fit_there():
    held = [leasing.record("holder", cpus=CPUSet.parse("8-10"))]
    near = Near("eth1", (2,))
    for policy in ("restricted", "single-numa-node"):
        with pytest.raises(AllocationError, match="near eth1"):
            lease(SITE, near, held, cpus=2, policy=policy)

    assert lease(SITE, near, held, cpus=2).numa_nodes == (1,)
    assert lease(SITE, near, held, cpus=1).numa_nodes == (2,)


def test_more_cpus_than_a_node_has_are_on_it_and_others():
    for node in range(4):
        got = lease(SITE, Near("x", (node,)), cpus=6, policy="restricted")
        assert node in got.numa_nodes
        assert len(got.numa_nodes) == 2


@given(data=st.data())
@examples(60)
def test_the_nearest_node_where_the_request_fits_is_taken(data):
    """A plain model: by distance, then by number."""
    count = data.draw(st.integers(2, 6))
    machine = leasing.machine(nodes=count, cores=4, threads=1)
    taken = data.draw(st.sets(st.integers(0, 4 * count - 1)))
    cpus = data.draw(st.integers(1, 4))
    node = data.draw(st.integers(0, count - 1))
    site = leasing.site(machine, {})
    held = [leasing.record("holder", cpus=CPUSet(taken))] if taken else []

    row = machine.numa_nodes[node].distances
    fits = [
        index for index in range(count) if len(set(range(4 * index, 4 * index + 4)) - taken) >= cpus
    ]
    if fits:
        nearest = min(fits, key=lambda index: (row[index], index))
        assert lease(site, Near("x", (node,)), held, cpus=cpus).numa_nodes == (nearest,)
    elif 4 * count - len(taken) >= cpus:
        assert len(lease(site, Near("x", (node,)), held, cpus=cpus).cpus) == cpus


def test_rings_are_by_distance_and_of_nodes_with_cpus():
    machine = leasing.machine(nodes=4)
    assert NearNodes(machine).rings([1]) == [0b0010, 0b0101, 0b1000]
    assert NearNodes(machine).rings([0, 3]) == [0b1001, 0b0110]
    assert NearNodes(machine).rings([77]) == [0b1111]


@pytest.mark.parametrize(
    ("wishes", "why"),
    [
        ({}, "some CPUs, memory or devices"),
        ({"cpus": 1, "policy": "none"}, "policy none"),
    ],
)
def test_a_request_that_can_be_near_nothing_is_an_error(wishes, why):
    with pytest.raises(InputError, match=why):
        make_request(near=Near("numa:0", (0,)), **wishes)


def test_nobody_sends_an_agent_more_than_it_reads_soon():
    for near in (Near("x" * 301, (0,)), Near("x", tuple(range(1025)))):
        with pytest.raises(InputError, match="near"):
            make_request(cpus=1, near=near)
