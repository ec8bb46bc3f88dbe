"""Small sites, requests and leases for the tests of leases."""

from __future__ import annotations

import os

from alignup.leases.local_machine import Site
from alignup.leases.process import identify
from alignup.leases.record import LeaseRecord, MachineIdentity
from alignup.machine.device_inventory import decode_inventory
from alignup.machine.machine import Machine

GI = 1 << 30
GPU = "nvidia.com/gpu"
GPUS = {GPU: [{"id": f"gpu{i}", "numa": [i // 2]} for i in range(4)]}


def machine(nodes=2, cores=4, threads=2, memory=16 * GI, ids=None):
    """Return a machine whose CPUs are numbered as on a server: first threads of all cores, then second ones."""
    ids = ids or range(nodes)
    total = nodes * cores
    return Machine.from_dict(
        {
            "numaNodes": [
                {
                    "id": numa_id,
                    "memory": memory,
                    "distances": [10 if i == k else 20 + abs(i - k) for k in range(nodes)],
                    "cores": [
                        {
                            "cpus": [i * cores + core + total * thread for thread in range(threads)],
                            "socket": i,
                        }
                        for core in range(cores)
                    ],
                }
                for i, numa_id in enumerate(ids)
            ]
        }
    )


def site(made=None, devices=GPUS, *, preferred_sets=None, is_here=False):
    """Return a site of that machine."""
    made = made or machine()
    return Site(
        made,
        MachineIdentity("test", f"{made.cpu_count} CPUs"),
        is_here,
        decode_inventory(devices, made),
        preferred_sets or {},
    )


def record(name="one", *, pid=None, **fields):
    """Return a lease of this process, or of another."""
    return LeaseRecord(id=f"id of {name}", name=name, process=identify(pid or os.getpid()), **fields)
