"""Small machines in the shapes of real ones.

They are facts from which both kernel files and what they mean are written.

The kernel says the same in many ways: lists or masks only, NUL bytes at the end, folders of nodes
that are offline, system-wide pages only. Each shape has one real machine's way, with a handful of
CPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from inputs.kernel_trees import CPU, NODE, cpulist, mask, pci

KIB = 1 << 10


@dataclass(frozen=True)
class Shape:
    """Facts of a machine, and the way its kernel tells them."""

    cores: list[tuple[list[int], int]]
    """The online CPUs of each core, and its package."""
    nodes: dict[int, list[int]]
    """The CPUs that each node lists; empty: one node that has no folder."""
    memory: dict[int, int] = field(default_factory=dict)
    """KiB by node; 1 GiB where it is missing."""
    distances: list[list[int]] = field(default_factory=list)
    l3: list[list[int]] = field(default_factory=list)
    hugepages: dict[int, dict[int, int]] = field(default_factory=dict)
    """Pages by node and size in KiB."""
    system_hugepages: dict[int, int] = field(default_factory=dict)
    offline: list[int] = field(default_factory=list)
    core_ids: list[int] = field(default_factory=list)
    """In the order of the cores; by default all different."""
    pci: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By address: `near` (CPUs) or `node`, and the `class` without 0x."""
    lists: bool = True
    """False: a kernel so old that it has masks only, and no `online`."""
    nul: bool = False
    """Texts end in a NUL byte."""

    def files(self) -> dict[str, str]:
        """Return the kernel's files."""
        files = {"proc/meminfo": f"MemTotal: {sum(map(self.kib, self.ids))} kB\n"}
        files |= self.cpu_files()
        for position, (node, cpus) in enumerate(self.nodes.items()):
            folder = f"{NODE}/node{node}"
            files |= self.told(f"{folder}/cpu", cpus, "map", "list")
            files[f"{folder}/meminfo"] = f"Node {node} MemTotal:       {self.kib(node)} kB\n"
            if self.distances:
                files[f"{folder}/distance"] = " ".join(map(str, self.distances[position])) + "\n"
            for size, count in self.hugepages.get(node, {}).items():
                files[f"{folder}/hugepages/hugepages-{size}kB/nr_hugepages"] = f"{count}\n"

        for size, count in self.system_hugepages.items():
            files[f"sys/kernel/mm/hugepages/hugepages-{size}kB/nr_hugepages"] = f"{count}\n"

        if self.lists:
            files[f"{CPU}/online"] = cpulist(self.online)
            if self.nodes:
                files[f"{NODE}/online"] = cpulist(self.nodes)

        for address, facts in self.pci.items():
            near = (
                {"numa_node": facts["node"]}
                if "node" in facts
                else {"local_cpus": mask(facts["near"]).strip()}
            )
            files |= pci(address, f"0x{facts['class']}00", **near)

        return (
            {path: text.rstrip("\n") + "\n\0" for path, text in files.items()}
            if self.nul
            else files
        )

    def cpu_files(self) -> dict[str, str]:
        """Return the files of the CPUs."""
        files: dict[str, str] = {f"{CPU}/cpu{cpu}/online": "0\n" for cpu in self.offline}
        for number, (cpus, package) in enumerate(self.cores):
            together = self.packages[package]
            for cpu in cpus:
                topology = f"{CPU}/cpu{cpu}/topology"
                files |= self.told(f"{topology}/thread_siblings", cpus, "", "_list")
                files |= self.told(f"{topology}/core_siblings", together, "", "_list")
                files[f"{topology}/physical_package_id"] = f"{package}\n"
                files[f"{topology}/core_id"] = (
                    f"{(self.core_ids or range(len(self.cores)))[number]}\n"
                )
                for shared in self.l3:
                    if cpu in shared:
                        cache = f"{CPU}/cpu{cpu}/cache/index3"
                        files |= self.told(f"{cache}/shared_cpu_", shared, "map", "list")
                        files |= {
                            f"{cache}/level": "3\n",
                            f"{cache}/type": "Unified\n",
                            f"{cache}/size": "8K\n",
                        }

        return files

    def told(self, path: str, cpus: list[int], as_mask: str, as_list: str) -> dict[str, str]:
        """Return a set of CPUs as a mask, and as a list where this kernel has lists."""
        files = {path + as_mask: mask(cpus)}
        if self.lists:
            files[path + as_list] = cpulist(cpus)
        return files

    def expected(self) -> dict[str, Any]:
        """Return what an observer finds.

        It has the fields that the snapshots of real machines come with.
        """
        nodes = self.nodes or {0: self.online}
        pages = self.hugepages if self.nodes else {0: self.system_hugepages}

        return {
            "numa_nodes": [
                {
                    "os_index": node,
                    "cpus": sorted(set(cpus) & set(self.online)),
                    "memory_bytes": self.kib(node) * KIB,
                    "hugepages": {
                        str(size * KIB): count for size, count in pages.get(node, {}).items()
                    },
                }
                for node, cpus in nodes.items()
            ],
            "distances": {"matrix": self.distances},
            "cores": [{"cpus": cpus} for cpus, _ in self.cores],
            "packages": [
                {"os_index": package, "cpus": cpus} for package, cpus in self.packages.items()
            ],
            "l3": [{"cpus": cpus} for cpus in self.l3],
            "cpus_offline": self.offline,
            "pci": [
                {
                    "busid": address,
                    "class": facts["class"],
                    "vendor": "10de",
                    "device": "2330",
                    "local_numa_nodes": [facts["home"]],
                }
                for address, facts in self.pci.items()
            ],
        }

    def kib(self, node: int) -> int:
        """Return the KiB of memory of a node."""
        return self.memory.get(node, 1 << 20)

    @property
    def ids(self) -> list[int]:
        """The ids of the nodes; one where there are no folders."""
        return list(self.nodes) or [0]

    @property
    def online(self) -> list[int]:
        """All CPUs that run."""
        return sorted(cpu for cpus, _ in self.cores for cpu in cpus)

    @property
    def packages(self) -> dict[int, list[int]]:
        """The CPUs of each package."""
        packages: dict[int, list[int]] = {}
        for cpus, package in self.cores:
            packages[package] = sorted([*packages.get(package, []), *cpus])
        return packages


def rows(count: int, near: int = 1, far: int = 21) -> list[list[int]]:
    """Return distances: 10 to itself, 11 within groups of `near` nodes, else `far`."""

    def distance(a: int, b: int) -> int:
        if a == b:
            return 10
        if a // near == b // near:
            return 11
        return far

    return [[distance(a, b) for b in range(count)] for a in range(count)]


SHAPES = {
    "no node folder, pages system-wide": Shape(
        cores=[([0, 1], 0)],
        nodes={},
        memory={0: 400 << 30},
        system_hugepages={2048: 3, 16 << 20: 1},
    ),
    "CPU numbers interleaved over nodes, L3 across two": Shape(
        cores=[([cpu, cpu + 8], cpu % 2) for cpu in range(8)],
        nodes={node: [cpu for cpu in range(16) if cpu % 4 == node] for node in range(4)},
        distances=[[10, 21, 11, 21], [21, 10, 21, 11], [11, 21, 10, 21], [21, 11, 21, 10]],
        l3=[[cpu for cpu in range(16) if cpu % 2 == side] for side in (0, 1)],
    ),
    "sparse node ids past 63, core ids that repeat": Shape(
        cores=[([cpu], cpu // 4) for cpu in range(16)],
        nodes={node: [2 * k, 2 * k + 1] for k, node in enumerate((0, 1, 2, 33, 34, 45, 72, 73))},
        memory={0: 2 << 20, 72: 3 << 20, 73: 7},
        distances=rows(8, near=2, far=22),
        l3=[[2 * k, 2 * k + 1] for k in range(8)],
        core_ids=[cpu % 2 for cpu in range(16)],
    ),
    "64 nodes, masks only, large package ids": Shape(
        cores=[([cpu], 32259 - cpu // 2) for cpu in range(128)],
        nodes={node: [2 * node, 2 * node + 1] for node in range(64)},
        distances=rows(64, near=4, far=34),
        lists=False,
    ),
    "GPU memory as nodes, GPUs with local CPUs only": Shape(
        cores=[(list(range(first, first + 4)), first // 88) for first in (0, 4, 88, 92)],
        nodes={0: list(range(8)), 8: list(range(88, 96)), **{node: [] for node in range(250, 256)}},
        memory=dict.fromkeys(range(250, 256), 15 << 20),
        distances=rows(8, near=1, far=80),
        l3=[list(range(first, first + 4)) for first in (0, 4, 88, 92)],
        pci={
            f"000{bus}:01:00.0": {
                "class": "0302",
                "near": list(range(first, first + 8)),
                "home": home,
            }
            for bus, first, home in ((4, 0, 0), (5, 88, 8))
        },
    ),
    "four page sizes, texts that end in a NUL": Shape(
        cores=[([cpu], 36 if cpu < 4 else 8442) for cpu in range(8)],
        nodes={node: [2 * node, 2 * node + 1] for node in range(4)},
        distances=rows(4, near=2, far=20),
        memory={0: 4 << 20},
        hugepages={
            0: {64: 0, 2048: 5, 32768: 0, 1 << 20: 2},
            3: {64: 7, 2048: 0, 32768: 1, 1 << 20: 0},
        },
        nul=True,
    ),
    "node 0 and its CPUs offline, CPUs with no node": Shape(
        cores=[([cpu], cpu // 8) for cpu in (4, 5, 8, 9, 10)],
        nodes={1: [8, 9, 10, 11]},
        offline=[0, 1, 11],
        l3=[[4, 5], [8, 9, 10]],
    ),
    "pages by node, devices on node 0": Shape(
        cores=[([cpu, cpu + 4], cpu // 2) for cpu in range(4)],
        nodes={0: [0, 1, 4, 5], 1: [2, 3, 6, 7]},
        distances=rows(2),
        l3=[[0, 1, 4, 5], [2, 3, 6, 7]],
        memory={0: 8 << 20, 1: 8 << 20},
        hugepages={node: {2048: 2048, 1 << 20: 0} for node in (0, 1)},
        pci={f"0000:{bus:02x}:00.0": {"class": "0200", "node": 0, "home": 0} for bus in range(28)},
    ),
    "memory nodes without CPUs between others": Shape(
        cores=[([cpu], 0) for cpu in range(6)],
        nodes={0: [0, 1], 1: [2, 3], 2: [4, 5], 4: [], 6: [], 8: [], 9: []},
        distances=rows(7, near=1, far=17),
        memory={8: 0},
    ),
    "two nodes a socket, pages system-wide": Shape(
        cores=[([cpu], cpu // 4) for cpu in range(16)],
        nodes={node: [2 * node, 2 * node + 1] for node in range(8)},
        distances=rows(8, near=2, far=22),
        l3=[[2 * node, 2 * node + 1] for node in range(8)],
        system_hugepages={2048: 16},
    ),
}
