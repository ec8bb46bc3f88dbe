"""Parts and leases of random machines.

Odd cores, unequal caches and nodes, nodes of CPUs or of memory only.

What always holds: no CPU is given twice, no core is shared where whole cores are promised, all
parts have as many cores, nobody's memory is farther than need be. A night tries 10,000 of them.
"""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest

from alignup.errors import AllocationError, InputError
from alignup.host.leases.lease_node import LeaseNode
from alignup.host.leases.local_machine import Site
from alignup.host.leases.record import MachineIdentity
from alignup.host.leases.request import LeaseRequest, make_request
from alignup.host.parts.cut import LAYOUTS, shared_cores, split_machine
from alignup.host.parts.usable import MemoryRule, distance
from alignup.host.processes.identity import identify
from alignup.kubernetes.policy_options import CpuOptions
from alignup.machine.machine import Core, Machine, NumaNode
from inputs.strategies import seeds

GI = 1 << 30

HOLDER = identify(os.getpid())


def random_machine(random):
    """Return a machine of 1 to 8 nodes that somebody might have."""
    count = random.choice((1, 2, 2, 3, 4, 4, 8))
    ids = sorted(random.sample(range(20), count))
    threads, l3, first = random.choice((1, 2, 2, 2, 4)), 0, 0
    odd = random.choice((0, 0, 0.1, 0.5))
    nodes = []
    for position in range(count):
        groups = []
        if not position or random.random() < 0.8:
            groups = [random.randint(1, 6) for _ in range(random.randint(1, 3))]

        cores = []
        for group in groups:
            l3 += 1
            for _ in range(group):
                thread_count = threads
                if random.random() < odd:
                    thread_count = random.randint(1, threads)
                cores.append(Core(tuple(range(first, first + thread_count)), position, l3))
                first += threads

        if cores:
            memory, kind = random.choice((0, 16, 64, 64)) * GI, ""
        else:
            memory, kind = 32 * GI, random.choice(("", "hbm", "far", "gpu"))
        nodes.append((ids[position], memory, tuple(cores), kind))

    rows = [[random.choice((12, 16, 21, 32)) for _ in ids] for _ in ids]
    has_distances = random.random() < 0.9
    return Machine(
        tuple(
            NumaNode(
                numa_id,
                memory,
                cores,
                (),
                tuple(10 if i == j else rows[i][j] for j in range(count)) if has_distances else (),
                kind,
            )
            for i, (numa_id, memory, cores, kind) in enumerate(nodes)
        )
    )


def cores_of(machine):
    return [core for node in machine.numa_nodes for core in node.cores]


def check_parts(machine, parts, cpus, *, layout, same_l3):
    """What a split promises."""
    assert sum(len(part.cpus) for part in parts) == len(
        {cpu for part in parts for cpu in part.cpus}
    )
    assert {len(part.cpus) for part in parts} == {cpus} or not cpus
    whole = [
        {core.cpus for core in cores_of(machine) if set(core.cpus) & set(part.cpus)}
        for part in parts
    ]
    shared = shared_cores(machine, (int(part.cpus) for part in parts))
    if not cpus and len(parts) <= len(cores_of(machine)):
        assert not shared
        assert len({len(cores) for cores in whole}) == 1
        nodes = () if layout or same_l3 else machine.numa_nodes
        for node in nodes:
            alone = [
                cores
                for cores, part in zip(whole, parts, strict=True)
                if part.numa_nodes == (node.id,)
            ]
            for size in {len(core.cpus) for core in node.cores}:
                each = [sum(len(core) == size for core in cores) for cores in alone]
                assert not each or max(each) - min(each) <= 1

    if cpus and not layout:
        for size in {len(core.cpus) for core in cores_of(machine)}:
            fitting = [core for core in cores_of(machine) if len(core.cpus) >= size]
            if -(-cpus // size) * len(parts) <= len(fitting):
                assert not shared

    for node in machine.numa_nodes:
        assert sum(dict(part.memory).get(node.id, 0) for part in parts) <= node.memory

    assert all(size for part in parts for _, size in part.memory)
    if any(node.memory and node.memory_kind != "gpu" for node in machine.numa_nodes):
        assert all(part.memory for part in parts)


def check_caches(machine, parts, cores):
    """One L3 each, where there are as many parts as caches, each with room for its share."""
    caches = Counter(core.l3 for core in cores_of(machine))
    l3_of = {cpu: core.l3 for core in cores_of(machine) for cpu in core.cpus}
    if not cores and len(caches) <= len(parts) <= len(cores_of(machine)):
        assert [len({l3_of[cpu] for cpu in part.cpus}) for part in parts] == [1] * len(parts)


def check_lease(machine, lease, free, policy, rule):
    """Memory: all that was asked for, nearest first.

    Before it was taken nothing nearer was left.
    """
    home = [i for i, own in enumerate(machine.node_cpus) if own & int(lease.cpus)]
    taken = {machine.position(share.numa_node): share.size for share in lease.memory}
    places = [i for i in range(len(free)) if rule.open_nodes(machine) >> i & 1]
    assert set(taken) <= set(places)
    if not home:
        return

    def rank(i):
        if i in home:
            return 0
        return min(distance(machine, h, i) for h in home)

    for i in taken:
        assert all(taken.get(j, 0) == free[j] for j in places if rank(j) < rank(i))

    if policy in {"restricted", "single-numa-node"}:
        assert set(taken) <= set(home)


def try_machine(seed):
    random = Random(seed)
    machine = random_machine(random)
    total, cores = machine.cpu_count, len(cores_of(machine))
    for _ in range(4):
        parts = random.randint(1, max(1, min(24, random.choice((cores, total)))))
        cpus = random.choice((0, 0, random.randint(1, max(1, total // parts))))
        layout = random.choice((*LAYOUTS, *[""] * 8))
        same_l3 = not layout and random.random() < 0.4
        full = random.random() < 0.3
        try:
            made = split_machine(
                machine, parts, cpus_per_part=cpus, layout=layout, same_l3=same_l3, full_cores=full
            )
        except InputError as error:
            assert layout or (full and "whole cores" in str(error))  # noqa: PT017
            continue

        check_parts(machine, made, cpus, layout=layout, same_l3=same_l3)
        if full:
            assert not shared_cores(machine, (int(part.cpus) for part in made))
        if same_l3:
            check_caches(machine, made, cpus)

    try_leases(random, machine)


def try_leases(random, machine):
    """Take and release leases, all of whole cores or none."""
    full = random.random() < 0.5
    rule = MemoryRule.parse(random.choice((None, "near")), random.choice((None, None, "any")))
    site = Site(
        machine,
        MachineIdentity("x", "x"),
        is_here=False,
        cpu_options=CpuOptions(full_pcpus_only=full),
        memory_rule=rule,
    )
    has_memory = machine.knows_memory and bool(rule.open_nodes(machine))
    node = LeaseNode(site)
    leases = {}
    for number in range(12):
        if leases and random.random() < 0.3:
            lease = leases.pop(random.choice(sorted(leases)))
            node.release(lease.id)
            continue

        policy = random.choice(("none", "best-effort", "restricted", "single-numa-node"))
        memory = random.randint(0, 80) * GI if has_memory else 0
        taken_bytes = Counter()
        for lease in leases.values():
            taken_bytes.update({share.numa_node: share.size for share in lease.memory})
        free = [numa.memory - taken_bytes[numa.id] for numa in machine.numa_nodes]
        request = make_request(cpus=random.randint(0, 8), memory=memory, policy=policy)
        try:
            lease = node.place(LeaseRequest(request, HOLDER, command="", name="", id=f"l{number}"))
        except AllocationError:
            continue

        assert sum(share.size for share in lease.memory) == memory
        check_lease(machine, lease, free, policy, rule)
        leases[lease.id] = lease
        assert sum(len(lease.cpus) for lease in leases.values()) == len(
            {cpu for lease in leases.values() for cpu in lease.cpus}
        )
        if full:
            assert not shared_cores(machine, (int(lease.cpus) for lease in leases.values()))


@pytest.mark.parametrize("batch", seeds(1, 100))
def test_random_machines(batch):
    for seed in range(100 * batch, 100 * batch + 100):
        try_machine(seed)
