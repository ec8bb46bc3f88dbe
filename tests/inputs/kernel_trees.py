"""Small sysfs trees for the tests of discovery.

Texts by path, to be changed at will before they are read.
"""

from __future__ import annotations

import os

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"


def mask(cpus):
    """Return a CPU mask as the kernel writes it: 32-bit words, most significant first."""
    bits = sum(1 << cpu for cpu in cpus)
    groups = []
    while bits or not groups:
        groups.append(f"{bits & 0xFFFFFFFF:08x}")
        bits >>= 32
    return ",".join(reversed(groups)) + "\n"


def cpulist(cpus):
    """Return a CPU list, without ranges."""
    return ",".join(map(str, sorted(cpus))) + "\n"


def server(sockets=2, cores=2, threads=2, nodes=None, memory=8 << 20):
    """Return the files of a plain server.

    Siblings far apart, an L3 a socket, `memory` KiB a node.
    """
    nodes = nodes or sockets
    total = sockets * cores
    files = {f"{CPU}/online": f"0-{total * threads - 1}\n", f"{NODE}/online": f"0-{nodes - 1}\n"}
    files["proc/meminfo"] = f"MemTotal: {memory * nodes} kB\n"
    by_socket = [
        [c + t * total for t in range(threads) for c in range(s * cores, (s + 1) * cores)]
        for s in range(sockets)
    ]
    for cpu in range(total * threads):
        core = cpu % total
        socket = core // cores
        topology = f"{CPU}/cpu{cpu}/topology"
        siblings = [core + t * total for t in range(threads)]
        files[f"{topology}/core_cpus"] = mask(siblings)
        files[f"{topology}/package_cpus"] = mask(by_socket[socket])
        files[f"{topology}/physical_package_id"] = f"{socket}\n"
        files[f"{topology}/core_id"] = f"{core % cores}\n"
        for index, level, kind, shared in (
            (0, 1, "Data", siblings),
            (1, 1, "Instruction", siblings),
            (3, 3, "Unified", by_socket[socket]),
        ):
            cache = f"{CPU}/cpu{cpu}/cache/index{index}"
            files[f"{cache}/level"] = f"{level}\n"
            files[f"{cache}/type"] = f"{kind}\n"
            files[f"{cache}/size"] = "32K\n"
            files[f"{cache}/shared_cpu_map"] = mask(shared)

    per = total // nodes
    for node in range(nodes):
        cpus = [c + t * total for t in range(threads) for c in range(node * per, (node + 1) * per)]
        folder = f"{NODE}/node{node}"
        files[f"{folder}/cpumap"] = mask(cpus)
        files[f"{folder}/meminfo"] = (
            f"Node {node} MemTotal:       {memory} kB\nNode {node} MemFree: 1 kB\n"
        )
        files[f"{folder}/distance"] = (
            " ".join("10" if neighbour == node else "21" for neighbour in range(nodes)) + "\n"
        )
        files[f"{folder}/hugepages/hugepages-2048kB/nr_hugepages"] = "4\n"

    return files


def pci(address, class_="0x030200", vendor="0x10de", device="0x2330", **files):
    """Return the files of a PCI device."""
    folder = f"sys/bus/pci/devices/{address}"
    named = {"class": class_, "vendor": vendor, "device": device, **files}
    return {f"{folder}/{name}": f"{text}\n" for name, text in named.items()}


def write(root, files):
    """Write `files` beneath the directory `root`, and return it."""
    for folder in {path.rpartition("/")[0] for path in files}:
        # a path a file makes the suite seconds slower
        os.makedirs(root / folder, exist_ok=True)  # noqa: PTH103
    for path, text in files.items():
        file = os.open(f"{root}/{path}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.write(file, text.encode())
        os.close(file)
    return root
