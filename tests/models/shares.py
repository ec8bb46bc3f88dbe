"""The share of the CPUs that each device of a machine has, in plain words.

For devices that are near one node each, or near none at all, and cores of one size.
"""

from __future__ import annotations


def shares(machine, devices):
    """Return the CPUs of each device's share, by its id."""
    shares_of_devices = {}
    for device in devices:
        rivals = [rival for rival in devices if rival.numa_nodes == device.numa_nodes]
        place = rivals.index(device)
        cores = [
            core.cpus
            for node in machine.numa_nodes
            for core in node.cores
            if device.numa_nodes is None or node.id in device.numa_nodes
        ]
        shares_of_devices[device.id] = share(sorted(cores), place, len(rivals))

    return shares_of_devices


def share(cores, place, count):
    """Return the CPUs of the `place`-th of `count` shares of some cores.

    With fewer cores than shares, they are so many CPUs of any cores; with fewer CPUs, each is
    several devices' own.
    """
    core_count = len(cores) // count
    if core_count:
        return {cpu for core in cores[place * core_count :][:core_count] for cpu in core}

    cpus = sorted(cpu for core in cores for cpu in core)
    cpu_count = max(1, len(cpus) // count)
    return {cpus[(place * cpu_count + number) % len(cpus)] for number in range(cpu_count)}
