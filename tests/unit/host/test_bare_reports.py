"""What people reported of machines without a kubelet, rebuilt small in `tests/reports/bare`.

Tests name the threads.

What each machine should give was written down by hand, before the rules.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from alignup import split
from alignup.errors import AllocationError, InputError
from alignup.host.leases.file import LeaseFile
from alignup.host.leases.local_machine import load_site
from alignup.host.leases.record import LeaseTable, PartOf
from alignup.host.leases.request import LeaseRequest, make_request
from alignup.host.leases.source import FileSource
from alignup.host.parts.usable import MemoryRule
from alignup.host.processes.identity import identify
from alignup.kubernetes.policy_options import CpuOptions
from alignup.machine.cpuset import CPUSet
from alignup.machine.load import read_machine
from alignup.machine.machine import summary
from inputs import leasing

REPORTS = Path(__file__).parents[2] / "reports" / "bare"
GI = leasing.GI
GPU = leasing.GPU
GPUS = {"resources": [GPU], "selectors": [f"{GPU}=10de:*"]}
FULL = {"cpu_options": CpuOptions(full_pcpus_only=True)}
SAME_L3 = {"cpu_options": CpuOptions(prefer_align_cpus_by_uncorecache=True)}


def report(name):
    return str(next(REPORTS.glob(f"{name}-*")))


class Machine:
    """A machine of a report on which leases are taken one after the other, and parts are cut."""

    def __init__(self, name, folder, **rules):
        self.told = []
        self.site = load_site(report(name), tell=self.told.append, **rules)
        self.file = LeaseFile(folder / "leases.json", self.told.append)

    def lease(self, **wishes):
        """Return CPUs and [(node, GiB)] of a lease."""
        request, count = make_request(**wishes), len(self.file.read().leases)
        lease_request = LeaseRequest(request, identify(os.getpid()), command="", name=f"n{count}")
        record = FileSource(self.file, lambda _: self.site).acquire(lease_request).lease
        return str(record.cpus), [
            (share.numa_node, round(share.size / GI)) for share in record.memory
        ]

    def split(self, parts, cpus=0, **devices):
        return FileSource(self.file, lambda _: self.site).parts(parts, cpus, devices)

    def empty(self):
        with self.file.change() as change:
            change.table = LeaseTable(self.site.identity)


@pytest.fixture
def on(tmp_path):
    """Return a function that makes a machine of a report."""
    return lambda name, **rules: Machine(name, tmp_path, **rules)


def shared_cores(machine, parts):
    cores = [core.bits for node in machine.numa_nodes for core in node.cores]
    return [core for core in cores if sum(bool(core & int(part.cpus)) for part in parts) > 1]


def test_01_nodes_without_memory_borrow_from_the_nearest(on):
    """numactl#165, hwloc#430, ompi#7368: CPUs of nodes 0 and 3 have no memory of their own."""
    machine = on("01")
    cpus, memory = machine.lease(part=PartOf(0, 4), memory="4Gi")
    assert cpus == "0-5,24-29"
    assert memory in ([(1, 4)], [(2, 4)])
    parts = machine.split(4)
    assert [[node for node, _ in part.memory] for part in parts] == [[1, 2], [1], [2], [1, 2]]
    dealt_bytes = {node: sum(dict(part.memory).get(node, 0) for part in parts) for node in (1, 2)}
    node_bytes = {node.id: node.memory for node in machine.site.machine.numa_nodes}
    assert all(
        node_bytes[node] - 16 < dealt_bytes[node] <= node_bytes[node] for node in dealt_bytes
    )


def test_02_memory_spills_within_the_socket(on):
    """ompi#11357: GPUs on nodes 3,3,1,1,7,7,5,5; a lease on node 7 had its memory on node 0."""
    parts = on("02", **GPUS).split(8, 16, **{GPU: 1})
    assert [part.numa_nodes for part in parts] == [(3,), (3,), (1,), (1,), (7,), (7,), (5,), (5,)]
    order = sorted(part.devices[GPU] for part in parts)
    assert [part.devices[GPU] for part in parts] == order
    cpus, memory = on("02").lease(part=PartOf(7, 8), memory="200Gi")
    assert memory in ([(7, 128), (node, 72)] for node in (4, 5, 6))
    machine = on("02")
    machine.empty()
    machine.lease(cpus=224)
    cpus, memory = machine.lease(cpus=32, memory="200Gi")
    assert cpus == "112-127,240-255"
    assert memory in ([(7, 128), (node, 72)] for node in (4, 5, 6))


def test_02_parts_keep_their_gpu_and_their_cache(on):
    """An L3 cache of 8 CPUs, or two of them, on the node of rank i's GPU i.

    The GPUs are in the order of the bus.
    """
    machine = on("02", **GPUS, **SAME_L3)
    l3_of = {
        cpu: core.l3
        for node in machine.site.machine.numa_nodes
        for core in node.cores
        for cpu in core.cpus
    }

    for cpus, caches in ((8, 1), (16, 2)):
        parts = machine.split(8, cpus, **{GPU: 1})
        assert [part.numa_nodes for part in parts] == [
            (3,),
            (3,),
            (1,),
            (1,),
            (7,),
            (7,),
            (5,),
            (5,),
        ]
        assert [len({l3_of[cpu] for cpu in part.cpus}) for part in parts] == [caches] * 8
        assert [part.devices[GPU] for part in parts] == sorted(part.devices[GPU] for part in parts)


def test_02_a_resource_that_is_there_is_refused_with_its_option(on):
    with pytest.raises(
        InputError, match=r"--device-resource nvidia\.com/gpu=10de:\* or --devices describes"
    ):
        on("02", resources=[GPU])


def test_04_memory_of_gpus_is_no_place_for_parts(on):
    """vllm#39361: the memory of four GPUs are NUMA nodes of their own."""
    machine = on("04", **GPUS)
    parts = machine.split(4, **{GPU: 1})
    assert [part.numa_nodes for part in parts] == [(0,), (0,), (1,), (1,)]
    assert "NUMA nodes 2,10,18,26 have memory and no CPUs" in machine.told[0]


def test_05_isolated_cpus_are_left_alone(on):
    """numactl#175, risu#182, netdata#6741: isolcpus=17-22."""
    isolated = CPUSet.parse("17-22")
    machine = read_machine(report("05"))
    assert (CPUSet(machine.isolated_cpus), CPUSet(machine.nohz_full_cpus)) == (isolated, isolated)
    parts = on("05").split(2)
    assert not any(part.cpus & isolated for part in parts)
    assert {len(part.cpus) for part in parts} == {13}
    assert CPUSet(cpu for part in on("05", isolated=True).split(2) for cpu in part.cpus) == isolated
    assert [str(part.cpus) for part in split(report("05"), 2)] == [str(part.cpus) for part in parts]
    assert on("05").lease(cpus=26)[0] == "0-16,23-31"


def test_07_threads_that_are_called_siblings_of_a_package_are_cores(on):
    """util-linux#698."""
    assert summary(on("07").site.machine).startswith("1 NUMA node, 10 sockets, 10 cores, 80 CPUs")


def test_08_a_core_of_which_a_sibling_is_offline_is_a_core(on):
    """hwloc#522: CPU 1 of core {1,49} is offline."""
    machine = on("08")
    for parts in (machine.split(4, 22), on("08", **FULL).split(4), machine.split(4)):
        assert shared_cores(machine.site.machine, parts) == []
        assert max(len(part.cpus) for part in parts) - min(len(part.cpus) for part in parts) <= 1
    assert all(len(part.cpus) == 22 and 49 not in part.cpus for part in machine.split(4, 22))
    full = on("08", **FULL)
    with pytest.raises(AllocationError, match="3 CPUs are not a multiple of the 2 CPUs of a core"):
        full.lease(cpus=3)
    assert full.lease(cpus=46)[0] == "0,2-23,48,50-71"


def test_10_hbm_can_be_had_and_is_nearer_than_the_other_socket(on):
    """xFasterTransformer#403: HBM of nodes 2 and 3 at distance 13, the other socket at 21."""
    machine = on("10")
    assert machine.lease(cpus=4, memory="140Gi") == ("0-1,104-105", [(0, 125), (2, 15)])

    machine.empty()
    assert [machine.lease(part=PartOf(rank, 2), memory="140Gi")[1] for rank in (0, 1)] == [
        [(0, 125), (2, 15)],
        [(1, 126), (3, 14)],
    ]
    machine.empty()
    machine.split(2)
    assert machine.told == [
        (
            "NUMA nodes 2-3 have memory and no CPUs, and no part has any of it: --memory-kind any "
            "shares it out"
        )
    ]

    shares = on("10", memory_rule=MemoryRule.parse(None, "any")).split(2)
    assert [[node for node, _ in part.memory] for part in shares] == [[0, 2], [1, 3]]

    only = on("10", memory_rule=MemoryRule.parse("2,3", None))
    assert only.lease(cpus=4, memory="70Gi")[1] == [(2, 64), (3, 6)]
    with pytest.raises(AllocationError, match="on the NUMA nodes of its CPUs"):
        on("10", memory_rule=MemoryRule.parse("cpus", None)).lease(cpus=4, memory="130Gi")


def test_12_unequal_caches_hold_a_part_each(on):
    """Azure HBv3: L3 caches of 6, 8, 8 and 8 CPUs, nodes of 30."""
    machine = on("12", **SAME_L3)
    l3_of = {
        cpu: core.l3
        for node in machine.site.machine.numa_nodes
        for core in node.cores
        for cpu in core.cpus
    }

    for cpus in (6, 0):
        parts = machine.split(16, cpus)
        assert [len({l3_of[cpu] for cpu in part.cpus}) for part in parts] == [1] * 16
        assert [part.numa_nodes for part in parts] == [
            (node,) for node in range(4) for _ in range(4)
        ]
        assert {len(part.cpus) for part in parts} == {6}
        assert len({part.memory[0][1] for part in parts}) == 1


def test_13_six_gpus_on_nodes_with_gaps(on):
    """picongpu#3071, legion#1338: nodes 0, 8 and 250-255."""
    parts = on("13", **GPUS).split(6, **{GPU: 1})
    assert [(part.numa_nodes, len(part.cpus)) for part in parts] == [((0,), 28)] * 3 + [
        ((8,), 28)
    ] * 3


def test_15_four_gpus_of_eight_nodes(on):
    """open_clip#98: GPUs on nodes 3, 1, 7, 5, each with its HCA."""
    hca = "example.com/hca"
    selectors = [f"{GPU}=10de:*", f"{hca}=15b3:*"]
    parts = on("15", resources=[GPU, hca], selectors=selectors, pair=(f"{GPU},{hca}",)).split(
        4, **{GPU: 1, hca: 1}
    )
    assert [part.numa_nodes for part in parts] == [(2, 3), (0, 1), (6, 7), (4, 5)]
    assert [part.devices[GPU][0][:7] == part.devices[hca][0][:7] for part in parts]


def test_15_more_parts_than_cores_are_said(on):
    machine = on("15")
    assert len(shared_cores(machine.site.machine, machine.split(49))) == 1
    assert "are of cores that several parts have" in machine.told[0]
    with pytest.raises(InputError, match="49 parts are not whole cores"):
        on("15", **FULL).split(49)


def test_16_cpus_of_no_node_are_told_of(on):
    """hwloc#430: half of the CPUs."""
    assert on("16").told == [
        "CPUs 6-11,18-23,30-35,42-47 are in no NUMA node: nothing is placed on them"
    ]


def test_17_two_servers_leave_each_other_alone(on):
    """vllm#43240, vllm#35789, vllm#17930."""
    machine = on("17", idle_siblings=True)
    request = {"cpus": 60, "policy": "single-numa-node"}
    bound_cpus = [machine.site.bound(CPUSet.parse(machine.lease(**request)[0])) for _ in range(2)]
    assert list(map(str, bound_cpus)) == ["0-59", "60-119"]
    with pytest.raises(AllocationError, match="not enough cpu is free: 120 asked, 0 free"):
        machine.lease(**request)


def test_19_memory_spills_to_the_nearest(on):
    """The smallest case: two sockets of two nodes."""
    machine = on("19")
    assert machine.lease(part=PartOf(3, 4), memory="80Gi") == ("12-15", [(3, 64), (2, 16)])
    machine.empty()
    with pytest.raises(
        AllocationError, match=r"on the NUMA nodes of its CPUs \(3\), and policy restricted"
    ):
        machine.lease(part=PartOf(3, 4), memory="80Gi", policy="restricted")
    # as a kubelet would
    assert on("19", as_kubelet=True).lease(part=PartOf(3, 4), memory="80Gi") == (
        "12-15",
        [(0, 64), (3, 16)],
    )


def test_22_what_an_xml_disallows_is_left_out(on):
    """prrte#1947, chapel#24371: written in a cpuset of CPUs 0-7 and nodes 0-1."""
    machine = on("22")
    assert [str(part.cpus) for part in machine.split(4)] == ["0-1", "2-3", "4-5", "6-7"]
    assert [bool(node.memory) for node in machine.site.machine.numa_nodes] == [
        True,
        True,
        False,
        False,
    ]
