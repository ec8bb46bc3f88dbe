"""Machines with GPUs, and what jobs of them see, drawn at random."""

from __future__ import annotations

from alignup.machine.device_inventory import Device
from alignup.machine.machine import Core, Machine, NumaNode

GI = 1 << 30


def gpu_machine(random, *, even=False):
    """Return a machine and its GPUs.

    Where it is `even`, cores are of one size, and all GPUs are near one node each, or near none.
    """
    threads = random.choice((1, 2, 2, 4))
    node_count = random.choice((1, 2, 2, 3, 4, 8))
    ids = sorted(random.sample(range(20), node_count))
    interleaved = random.random() < 0.5
    core_counts = [random.randint(0 if position else 1, 9) for position in range(node_count)]
    total = sum(core_counts)
    nodes, number = [], 0
    for position, core_count in enumerate(core_counts):
        cores = []
        for _ in range(core_count):
            cpus = [number + thread * total for thread in range(threads)]
            if not interleaved:
                cpus = [number * threads + thread for thread in range(threads)]
            if not even and random.random() < 0.2:
                cpus = cpus[: random.randint(1, threads)]
            cores.append(Core(tuple(cpus), position))
            number += 1

        rows = tuple(
            10 if position == other else 20 + abs(position - other) for other in range(node_count)
        )
        nodes.append(NumaNode(ids[position], 32 * GI, tuple(cores), (), rows))

    machine = Machine(tuple(nodes))
    homes = [node.id for node in nodes if node.cores]
    nowhere = random.random() < 0.2
    devices = []
    for index in range(random.choice((1, 2, 4, 4, 8, 8, 16))):
        near = (random.choice(homes),)
        if not even and random.random() < 0.2:
            near = tuple(sorted(random.sample(homes, random.randint(1, len(homes)))))
        if nowhere if even else random.random() < 0.1:
            near = None
        devices.append(Device(f"gpu{index}", near))

    return machine, tuple(devices)


def has_cpus_near(machine, device):
    """Return whether a node that a GPU is near to has CPUs."""
    return any(
        node.cores and (device.numa_nodes is None or node.id in device.numa_nodes)
        for node in machine.numa_nodes
    )


def has_a_core_for_each(machine, devices):
    """Return whether every GPU has a node, and every node a core for each GPU that it is near."""
    if not all(has_cpus_near(machine, device) for device in devices):
        return False

    for node in machine.numa_nodes:
        near = [
            device
            for device in devices
            if device.numa_nodes is None or node.id in device.numa_nodes
        ]
        if node.cores and len(near) > len(node.cores):
            return False

    return True
