"""Small sites, requests and leases for the tests of leases."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from alignup.host.leases.file import LeaseFile
from alignup.host.leases.local_machine import Site
from alignup.host.leases.record import LeaseRecord, LeaseTable, MachineIdentity
from alignup.host.leases.request import LeaseRequest
from alignup.host.leases.source import FileSource
from alignup.host.processes.identity import identify
from alignup.machine.device_inventory import decode_inventory
from alignup.machine.machine import Machine

GI = 1 << 30
GPU = "nvidia.com/gpu"
GPUS = {GPU: [{"id": f"gpu{i}", "numa": [i // 2]} for i in range(4)]}


def machine(nodes=2, cores=4, threads=2, memory=16 * GI, ids=None):
    """Return a machine whose CPUs are numbered as on a server.

    First threads of all cores, then second ones.
    """
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
                            "cpus": [
                                i * cores + core + total * thread for thread in range(threads)
                            ],
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
    return LeaseRecord(
        id=f"id of {name}", name=name, process=identify(pid or os.getpid()), **fields
    )


def put(file, *leases, waiting=(), machine=None):
    """Add leases and waiters to a file."""
    with file.change() as change:
        table = change.table
        change.table = LeaseTable(
            machine or table.machine, (*table.leases, *leases), (*table.waiting, *waiting)
        )


@cache
def placing_folder():
    """Return the folder of the one file for all.

    Where there is none yet, all processes are asked for their leases.
    """
    return TemporaryDirectory()


class Placer:
    """Places one request as a command without an agent does: in a file of leases."""

    def __init__(self, site, request):
        self.site = site
        self.request = request

    def place(self, holder, name, command, leases):
        file = LeaseFile(Path(placing_folder().name) / "leases.json", pytest.fail)
        with file.change() as change:
            change.table = LeaseTable(self.site.identity, tuple(leases))
        request = LeaseRequest(self.request, holder, command=command, name=name)
        return FileSource(file, lambda _: self.site).acquire(request).lease
