"""Machines in texts that reports paste."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import AlignupWarning, InputError
from alignup.machine.cpuset import CPUSet
from alignup.machine.load import catalog_entries, load_machine
from alignup.machine.pasted import read
from alignup.machine.pasted.read import read_pasted
from alignup.machine.sysfs.machine import read_sysfs
from alignup.node import Node
from inputs.kernel_trees import server, write

FORMATS = Path(__file__).parents[3] / "reports" / "k8s" / "00-formats"
HWLOC = Path(__file__).parents[3] / "recorded" / "hwloc"
MACHINES = {name: entry.machine for name, entry in catalog_entries().items()}
QUIET = pytest.mark.filterwarnings(
    "ignore:(not known from|assumed, since):alignup.errors.AlignupWarning"
)

PROGRAMS = {
    "e": ("lscpu", "-s", "ROOT", "-e"),
    "p": ("lscpu", "-s", "ROOT", "-p"),
    "e -J": ("lscpu", "-s", "ROOT", "-e", "-J"),
    "plain": ("lscpu", "-s", "ROOT"),
    "-J": ("lscpu", "-s", "ROOT", "-J"),
    "lstopo": ("lstopo-no-graphics", "-i", "ROOT", "--if", "fsroot", "--of", "console"),
    "lstopo -p": ("lstopo-no-graphics", "-p", "-i", "ROOT", "--if", "fsroot", "--of", "console"),
}

FAR = "NUMA node0 CPU(s): 0-1,4-5\nNUMA node1 CPU(s): 2-3,6-7"

TREE = """Machine (16GB)
  NUMANode L#0 (P#0 8192MB)
    Socket L#0 + L3 L#0 (4096KB)
      L2 L#0 (256KB) + L1d L#0 (32KB) + Core L#0
        PU L#0 (P#0)
        PU L#1 (P#2)
  NUMANode L#1 (P#4 8192MB) + Socket L#1 + L3 L#1 (4096KB) + L2 L#1 (256KB) + Core L#1
    PU L#2 (P#1)
    PU L#3 (P#3)
  HostBridge L#0
    PCI 8086:1521
      Net L#0 "eth0"
"""

E = "CPU NODE SOCKET CORE\n0 0 0 0\n1 0 0 1\n"


def rows_of(machine):
    """Yield CPU, node, socket, core and L3 cache of each CPU."""
    cores = [(node, core) for node in machine.numa_nodes for core in node.cores]
    for number, (node, core) in enumerate(cores):
        for cpu in core.cpus:
            yield cpu, node.id, core.socket, number, core.l3


def lscpu_e(machine):
    lines = []
    for cpu, node, socket, core, l3 in sorted(rows_of(machine)):
        caches = f"{core}:{core}:{core}"
        if l3 is not None:
            caches += f":{l3}"
        lines.append(f"{cpu:3} {node:4} {socket:6} {core:4} {caches}  yes")

    return "\n".join(["CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE", *lines, ""])


def lscpu_p(machine):
    lines = []
    for cpu, node, socket, core, l3 in sorted(rows_of(machine)):
        line = f"{cpu},{core},{socket},{node},,{core},{core},{core},"
        if l3 is not None:
            line += str(l3)
        lines.append(line)

    return "\n".join(
        [
            "# The following is the parsable format",
            "# CPU,Core,Socket,Node,,L1d,L1i,L2,L3",
            *lines,
            "",
        ]
    )


def lscpu_plain(machine):
    threads = max(len(core.cpus) for node in machine.numa_nodes for core in node.cores)
    nodes = [
        f"  NUMA node{node.id} CPU(s):  {CPUSet.from_int(cpus)}"
        for node, cpus in zip(machine.numa_nodes, machine.node_cpus, strict=True)
    ]
    head = [
        f"CPU(s):  {machine.cpu_count}",
        f"Thread(s) per core: {threads}",
        f"Socket(s): {len(machine.sockets)}",
    ]
    return "\n".join(["Architecture:  x86_64", *head, *nodes, ""])


def numactl(machine):
    lines = [f"available: {len(machine.numa_nodes)} nodes"]
    for node, cpus in zip(machine.numa_nodes, machine.node_cpus, strict=True):
        lines += [f"node {node.id} cpus: {' '.join(map(str, CPUSet.from_int(cpus)))}"]
        lines += [f"node {node.id} size: {node.memory >> 20} MB", f"node {node.id} free: 1 MB"]

    if machine.distance_matrix:
        lines += [
            "node distances:",
            "node " + " ".join(f"{numa_id:3}" for numa_id in machine.numa_node_ids),
        ]
        lines += [
            f"{node.id:3}: " + " ".join(f"{distance:3}" for distance in node.distances)
            for node in machine.numa_nodes
        ]

    return "\n".join([*lines, ""])


def layout(machine):
    """Return what cores, sockets and L3 caches are made of, whatever their numbers."""

    def groups(key):
        cpus_by_key = {}
        for node in machine.numa_nodes:
            for core in node.cores:
                cpus_by_key[key(core)] = cpus_by_key.get(key(core), 0) | core.bits

        cpus_by_key.pop(None, None)
        return set(cpus_by_key.values())

    cores = {
        node.id: {core.cpus for core in node.cores} for node in machine.numa_nodes if node.cores
    }
    return cores, groups(lambda core: core.socket), groups(lambda core: core.l3)


DRESSES = {
    "bare": lambda text: text,
    "indented": lambda text: "".join(f"    {line}\n" for line in text.splitlines()),
    "in a fence": lambda text: f"It is this one:\n```console\n[root@host ~]# lscpu -e\n{text}```\n",
    "quoted": lambda text: "".join(f"> {line}\n" for line in text.splitlines()),
    "with carriage returns": lambda text: text.replace("\n", "\r\n"),
    "coloured": lambda text: "".join(f"\x1b[1m{line}\x1b[0m\n" for line in text.splitlines()),
}


@QUIET
@given(
    st.sampled_from(sorted(MACHINES)),
    st.permutations(["e", "numactl"])
    | st.permutations(["p", "numactl"])
    | st.permutations(["e", "plain", "numactl"]),
    st.sampled_from(sorted(DRESSES)),
)
def test_pieces_in_any_order_are_the_machine(name, pieces, dress):
    machine = MACHINES[name]
    writers = {"e": lscpu_e, "p": lscpu_p, "plain": lscpu_plain, "numactl": numactl}
    text = "\n".join(DRESSES[dress](writers[piece](machine)) for piece in pieces)
    pasted = read_pasted(text, "x").machine

    assert layout(pasted) == layout(machine)
    assert pasted.numa_node_ids == machine.numa_node_ids
    assert pasted.distance_matrix == machine.distance_matrix
    assert [node.memory for node in pasted.numa_nodes] == [
        node.memory >> 20 << 20 for node in machine.numa_nodes
    ]


@QUIET
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("shape", [(1, 4, 1), (2, 4, 2), (2, 2, 1)], ids=str)
def test_what_the_programs_print_is_what_sysfs_says(tmp_path, program, shape):
    """On the same kernel files."""
    command = [str(tmp_path) if argument == "ROOT" else argument for argument in PROGRAMS[program]]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")

    sockets, cores, threads = shape
    files = server(sockets=sockets, cores=cores, threads=threads)
    count = sockets * cores * threads
    files |= {
        f"sys/devices/system/cpu/{name}": f"0-{count - 1}\n"
        for name in ("online", "possible", "present")
    }
    files["sys/devices/system/cpu/kernel_max"] = "255\n"
    files["proc/cpuinfo"] = "".join(
        f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\n\n" for cpu in range(count)
    )
    # the names before Linux 5.3, which the programs read
    for new, old in (("core_cpus", "thread_siblings"), ("package_cpus", "core_siblings")):
        files |= {
            path.replace(new, old): text for path, text in files.items() if path.endswith(new)
        }

    write(tmp_path, files)
    ran = subprocess.run(  # noqa: S603 - a program of this test's list
        command, capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}
    )

    pasted = read_pasted(ran.stdout, "x").machine
    real = read_sysfs(tmp_path)

    assert layout(pasted)[:2] == layout(real)[:2]


@QUIET
@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("lscpu-e.txt", 1),
        ("lscpu-this.json", 1),
        ("lscpu.txt", 2),
        ("numactl-H.txt", 2),
        ("syn.txt", 2),
    ],
)
def test_the_reports_files(name, nodes):
    assert len(load_machine(str(FORMATS / name)).machine.numa_nodes) == nodes


@QUIET
def test_what_a_report_pastes_together():
    """The GPUs are near the nodes that NVIDIA's table names."""
    text = "".join(
        (FORMATS / name).read_text() for name in ("topo-m.txt", "numactl-H.txt", "lscpu.txt")
    )
    loaded = read_pasted(text, "x")

    assert layout(loaded.machine)[0] == {0: {(0, 4), (2, 6)}, 1: {(1, 5), (3, 7)}}
    assert [node.memory >> 20 for node in loaded.machine.numa_nodes] == [16000, 16384]
    assert [(gpu.id, gpu.numa_nodes) for gpu in loaded.devices["nvidia.com/gpu"]] == [
        ("GPU0", (0,)),
        ("GPU1", (1,)),
    ]


@QUIET
@pytest.mark.parametrize(
    ("row", "near"),
    [
        ("0,2 1 N/A", (1,)),
        ("N/A N/A N/A", None),
        ("1,3 N/A N/A", (1,)),
        ("0-7 0-1 N/A", (0, 1)),
    ],
)
def test_a_gpu_is_near_what_the_driver_says_or_else_near_its_cpus(row, near):
    text = (
        "\tGPU0\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X "
        f"\tSYS\t{row}\nNIC0\tSYS\t X \n"
    )
    loaded = read_pasted(text + (FORMATS / "lscpu.txt").read_text(), "x")
    assert [gpu.numa_nodes for gpu in loaded.devices["nvidia.com/gpu"]] == [near]


@QUIET
@pytest.mark.parametrize(
    ("text", "cores"),
    [
        # bare metal: first threads, then second ones
        (f"Thread(s) per core: 2\n{FAR}", {(0, 4), (1, 5), (2, 6), (3, 7)}),
        (FAR, {(0, 4), (1, 5), (2, 6), (3, 7)}),
        # a virtual machine with several nodes, and POWER
        (("Thread(s) per core: 2\nNUMA node0 CPU(s): 0-3\nNUMA node1 CPU(s): "
         "4-7"), {(0, 1), (2, 3), (4, 5), (6, 7)}),
        (("Architecture: ppc64le\nThread(s) per core: 4\nNUMA node0 CPU(s): "
         "0-7"), {(0, 1, 2, 3), (4, 5, 6, 7)}),
        ("Thread(s) per core: 2\nCPU(s): 4", {(0, 2), (1, 3)}),
        # unequal cores, of which nothing is told
        ("Thread(s) per core: 2\nNUMA node0 CPU(s): 0-2", {(0,), (1,), (2,)}),
        ("node 0 cpus: 0 2\nnode 1 cpus: 1 3", {(0,), (2,), (1,), (3,)}),
    ],
)  # fmt: skip
def test_siblings_are_assumed_as_they_are_mostly_numbered(text, cores):
    machine = read_pasted(text, "x").machine
    assert {core.cpus for node in machine.numa_nodes for core in node.cores} == cores


def test_what_is_assumed_and_what_is_not_known_are_said():
    with pytest.warns(AlignupWarning) as caught:
        read_pasted((FORMATS / "lscpu.txt").read_text(), "x")

    assert [str(warning.message) for warning in caught] == [
        (
            "assumed, since nothing in x tells it: that CPUs are numbered in the usual way "
            "(0,4 are a core, and so on); that sockets follow the order of NUMA nodes; `lscpu -e` "
            "does"
        ),
        (
            "not known from x: memory (not checked), distances between NUMA nodes, L3 caches, "
            "hugepages (taken as "
            "none); `lscpu -e; numactl -H` tells more"
        ),
    ]


@QUIET
def test_memory_that_is_not_known_refuses_nobody():
    """Neither by the memory manager nor by the sum of all pods; that it is not checked is said."""
    machine = read_pasted((FORMATS / "lscpu.txt").read_text(), "x").machine
    config = {
        "cpuManagerPolicy": "static",
        "topologyManagerPolicy": "single-numa-node",
        "reservedSystemCPUs": "0",
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    }
    with pytest.warns(
        AlignupWarning,
        match="memoryManagerPolicy Static is not followed: the memory of this machine",
    ):
        node = Node(machine, config, whole_verdict=True)

    resources = {"limits": {"cpu": "2", "memory": "64Gi"}}
    pod = {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
    }

    assert not machine.knows_memory
    assert node.admit(pod).admitted


@QUIET
def test_the_tree_of_an_old_lstopo():
    """In hwloc 1 cores are within NUMA nodes."""
    machine = read_pasted(f"$ lstopo\n{TREE}$ exit\n", "x").machine
    assert layout(machine) == ({0: {(0, 2)}, 4: {(1, 3)}}, {0b101, 0b1010}, {0b101, 0b1010})
    assert [node.memory for node in machine.numa_nodes] == [8 << 30, 8 << 30]


# What the recorded machines have by node; hwloc rounds, and shows megabytes below 10 gigabytes.
AMOUNTS = {
    "two-sockets": [64 << 30, 64 << 30],
    "slow-memory": [2 << 40, 9 << 30, 2 << 40, 9 << 30],
    "decimal": [60 << 30, 60 << 30],
    "large": [16 << 40],
}


@QUIET
@pytest.mark.parametrize("release", ["2.11.2", "3.0.1"])
@pytest.mark.parametrize("name", AMOUNTS)
def test_amounts_that_hwloc_2_and_3_print_are_powers_of_1024(name, release):
    text = (HWLOC / f"{name}-{release}.txt").read_text()
    unit = " KB|MB|GB|TB" if release.startswith("2") else "KiB|MiB|GiB|TiB"
    assert re.search(rf"\d({unit.strip()})\b", text)

    machine = read_pasted(text, "x").machine
    assert [node.memory for node in machine.numa_nodes] == AMOUNTS[name]
    assert machine.cpu_count == text.count("PU L#")


@QUIET
@pytest.mark.parametrize("name", AMOUNTS)
def test_amounts_of_a_verbose_lstopo_are_not_rounded(name):
    machine = read_pasted((HWLOC / f"{name}-2.11.2-verbose.txt").read_text(), "x").machine
    exact = {**AMOUNTS, "decimal": [62_500_000 << 10] * 2}
    assert [node.memory for node in machine.numa_nodes] == exact[name]


@QUIET
def test_units_of_1000_of_hwloc_3_cannot_be_told_from_those_of_hwloc_2():
    """They are taken for hwloc 2's, as formats.md says."""
    text = (HWLOC / "two-sockets-3.0.1-units-1000.txt").read_text()
    machine = read_pasted(text, "x").machine
    assert [node.memory for node in machine.numa_nodes] == [69 << 30, 69 << 30]


@pytest.mark.parametrize("amount", ["64 GiB", "64GiO", "64 Go", "64000000000", "64g"])
def test_an_amount_in_units_that_hwloc_does_not_have_leaves_memory_unknown(amount):
    text = (HWLOC / "two-sockets-2.11.2.txt").read_text().replace("P#1 64GB", f"P#1 {amount}")
    with pytest.warns(AlignupWarning, match="not known from x: memory"):
        machine = read_pasted(text, "x").machine

    assert not machine.knows_memory
    assert len(machine.numa_nodes) == 2


def test_a_tree_without_amounts_leaves_memory_unknown():
    text = (HWLOC / "two-sockets-3.0.1.txt").read_text()
    with pytest.warns(AlignupWarning, match="not known from x: memory"):
        machine = read_pasted(re.sub(r" \d+[A-Z]iB", "", text), "x").machine

    assert not machine.knows_memory


@QUIET
def test_nodes_of_which_hwloc_says_what_memory_they_are():
    text = (HWLOC / "subtype-2.11.2.txt").read_text()
    assert "    NUMANode(HBM) L#1 (P#1 9216MB)\n" in text

    machine = read_pasted(text, "x").machine
    assert [node.memory for node in machine.numa_nodes] == AMOUNTS["slow-memory"]
    assert [len(node.cores) for node in machine.numa_nodes] == [1, 0, 1, 0]


def test_rows_of_other_lengths_than_the_heading_will_do():
    """As of a CPU whose speed is not known, or with a column that the heading lacks."""
    rows = ("0 0 0 0 3000", "1 0 0 1", "2 1 1 2 3000 800", "3 1 1 3 3000")
    ragged = "\n".join(["CPU NODE SOCKET CORE MAXMHZ", *rows, ""])
    plain = "\n".join(["CPU NODE SOCKET CORE", *(row[:7] for row in rows), ""])
    with pytest.warns(AlignupWarning, match="not known from x: "):
        machines = [read_pasted(text, "x").machine for text in (ragged, plain)]
    assert machines[0] == machines[1]
    assert [str(CPUSet.from_int(cpus)) for cpus in machines[0].node_cpus] == ["0-1", "2-3"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"got '' in x; `\(lscpu -e; numactl -H\) > FILE` on the machine writes one"),
        ("hello", "got 'hello' in x"),
        ("GPU0 CPU Affinity\nGPU0 X 0-1\n", "got that of nvidia-smi topo -m only in x"),
        (f"{E}...\n", "the table of lscpu -e is cut off after 2 lines: give all of it in x"),
        (
            f"{E}\n{E.replace('1 0 0 1', '1 0 1 1')}",
            "the table of lscpu -e is there with different values",
        ),
        (
            f"{E}node 0 cpus: 0\nnode 1 cpus: 1",
            (
                "lscpu -e and numactl -H are of different machines: NUMA node 0 has CPUs 0-1 and "
                "CPUs 0 by them in x"
            ),
        ),
        (
            "node 0 cpus: 0 1 ...",
            "node 0 cpus is cut off, or no list of numbers: give all of it in x",
        ),
        ("node 0 cpus: 99999999999", "CPU numbers below 65536"),
        ("node 0 cpus: 65536", "CPU numbers below 65536"),
        ("node 0 cpus: 1 00000000065536", "CPU numbers below 65536"),
        ("node 0 cpus: 0\nnode 0 cpus: 1", "node 0 cpus is there with different values"),
        ("NUMA node0 CPU(s): 0-3,...", r"NUMA node0 CPU\(s\) is cut off"),
        ("NUMA node0 CPU(s): 0-x", "a CPU number or range"),
        ("GPU0 GPU1 CPU Affinity\nGPU0 X SYS 0-1\n", "cut off: it has no row of GPU1"),
        ("CPU NODE SOCKET CORE\n0 a 0 0", "expected numbers, got 'A' at the column NODE of lscpu"),
        ('{"lscpu": [', "the JSON of lscpu is cut off or damaged"),
        ("Machine (1GB)\n  PU L#0\n", "has logical numbers only: run it without -l"),
        (f"{TREE}{TREE}", "several trees of lstopo"),
        (TREE.replace("    PU L#3 (P#3)", "    [...]"), "the tree of lstopo is cut off"),
        (
            "Machine (1GB)\n"
            + "".join(f"{' ' * depth}Group0 L#{depth}\n" for depth in range(1, 300)),
            "100 levels",
        ),
    ],
)
def test_texts_of_no_machine_are_one_line(text, message):
    with pytest.raises(InputError, match=message) as caught:
        read_pasted(text, "x")
    assert "\n" not in str(caught.value)


@QUIET
@given(
    st.text(alphabet='0129-,:.#()GPUCNMnode cpus size\nMBL+{}"[]', max_size=200),
    st.integers(0, 400),
    st.booleans(),
)
def test_damaged_texts_are_a_machine_or_one_line(noise, place, cut):
    """Never another error."""
    text = (
        "".join(
            (FORMATS / name).read_text() for name in ("lscpu.txt", "numactl-H.txt", "topo-m.txt")
        )
        + TREE
        + E
    )
    damaged = text[:place] + noise
    if not cut:
        damaged += text[place:]

    try:
        read_pasted(damaged, "x")
    except InputError as error:
        message = str(error)
        assert message.isprintable()  # most of them are machines


# ---- texts that tell that they are cut off

NUMACTL = """\
available: 2 nodes (0-1)
node 0 cpus: 0 1 2 3 4 5 6 7
node 0 size: 100 MB
node 0 free: 10 MB
node 1 cpus: 8 9 10 11
node 1 size: 100 MB
node 1 free: 10 MB
node distances:
node   0   1
  0:  10  21
  1:  21  10
"""
LSCPU = """\
Architecture: x86_64
CPU(s): 64
On-line CPU(s) list: 0-63
Thread(s) per core: 2
Socket(s): 2
NUMA node(s): 2
NUMA node0 CPU(s): 0-15,32-47
NUMA node1 CPU(s): 16-31,48-63
"""
TABLE = """\
CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE
  0    0      0    0 0:0:0:0          yes
  1    1      1    1 1:1:1:1          yes
"""
PARSABLE = """\
# CPU,Core,Socket,Node,,L1d,L1i,L2,L3
0,0,0,0,,0,0,0,0
1,1,1,1,,1,1,1,1
"""


@QUIET
@pytest.mark.parametrize(
    ("text", "end", "message"),
    [
        (NUMACTL, "node 1 cpus", "of numactl is cut off: of 2 NUMA nodes it has the CPUs of 1"),
        (NUMACTL, " 11\n", "of numactl is cut off: node 1 size is missing"),
        (NUMACTL, "1\nnode 1 size", "node 1 cpus is cut off, or broken within a number"),
        (NUMACTL, "  0:  10", "the distances of numactl are cut off"),
        (NUMACTL, "  1:  21", "the distances of numactl are cut off"),
        (NUMACTL, "  10\n", "the distances of numactl are cut off"),
        (NUMACTL, "0\n", "the distances of numactl are cut off"),
        (LSCPU, "NUMA node0", "of lscpu is cut off: of 2 NUMA nodes it has the CPUs of 0"),
        (LSCPU, "NUMA node1", "of lscpu is cut off: of 2 NUMA nodes it has the CPUs of 1"),
        (LSCPU, "3\n", r"NUMA node1 CPU\(s\) is cut off"),
        (LSCPU, "63\n", r"NUMA node1 CPU\(s\) is cut off"),
        (LSCPU, "-63\n", r"NUMA node1 CPU\(s\) is cut off"),
        (LSCPU, "8-63\n", r"NUMA node1 CPU\(s\) is cut off"),
        (LSCPU, "48-63\n", r"NUMA node1 CPU\(s\) is cut off"),
        (LSCPU, ",48-63\n", r"NUMA node1 CPU\(s\) is cut off"),
        (LSCPU, "1,48-63\n", r"NUMA node1 CPU\(s\) is cut off"),
        (TABLE, " 1 1:1:1:1", "the table of lscpu -e is cut off in its last line"),
        (PARSABLE, ",1,1,1\n", "the table of lscpu -p is cut off in its last line"),
    ],
)
def test_a_text_that_tells_that_it_is_cut_off_is_refused(text, end, message):
    read_pasted(text, "x")
    begin = text[: text.rindex(end)]
    for cut in (begin, f"{begin}\n\n"):
        with pytest.raises(InputError, match=message):
            read_pasted(cut, "x")


@QUIET
@pytest.mark.parametrize(
    "count", ["", "On-line CPU(s) list: 0-63\n", "CPU(s): 64\n", "On-line CPU(s) list: 0-65\n"]
)
def test_cpus_of_no_numa_node_are_not_cut_off(count):
    """CPUs between those of the last NUMA node, or after it where other lines follow."""
    text = f"{count}NUMA node(s): 1\nNUMA node0 CPU(s): 0-15,17-63\n"
    if "65" in count:
        text += "Vulnerability Spectre v2: Mitigation\n"

    machine = read_pasted(text, "x").machine
    assert CPUSet.from_int(machine.node_cpus[0]) == CPUSet.parse("0-15,17-63", "")


@QUIET
@pytest.mark.parametrize("part", ["cpus", "size"])
def test_lines_that_somebody_has_picked_of_numactl_are_enough(part):
    text = "\n".join(line for line in NUMACTL.splitlines() if part in line)
    if part == "size":
        text += "\nCPU NODE\n0 0\n1 1\n"

    assert len(read_pasted(text, "x").machine.numa_nodes) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Thread(s) per core: 1\nCPU(s): 99999\n", "8192 CPUs, and this one has 99999"),
        ("NUMA node(s): 1\nNUMA node0 CPU(s): 0-65535\n", "8192 CPUs, and this one has 65536"),
        ("NUMA node{} CPU(s): 65535\n", "64 NUMA nodes"),
        ("node {0} cpus: 65535\nnode {0} size: 1 MB\n", "64 NUMA nodes"),
        ("node 0 cpus: 0\nnode {0} size: 1 MB\n", "64 NUMA nodes"),
        ("CPU NODE SOCKET CORE\n+{0} 0 0 {0}\n", "8192 CPUs"),
        ("# CPU,Core,Socket,Node\n+{0},{0},0,0\n", "8192 CPUs"),
        ("Machine\n+  PU L#{0} (P#{0})\n", "8192 CPUs"),
        ("Machine\n+  PU L#0 (P#8192)\n", "CPU numbers below 8192"),
        ("Machine\n  PU L#0 (P#0)\n+  NUMANode L#{0} (P#{0} 1GB)\n", "64 NUMA nodes"),
        ("Machine\n+  Misc{0}\n" + "  Misc\n" * 8, "lstopo has more than 65536 lines"),
    ],
    ids=lambda value: value[:40],
)
def test_more_than_a_machine_has_is_refused_before_the_work(text: str, expected: str) -> None:
    """99,999 CPUs in 36 letters took half a minute and two gigabytes."""
    before, _, repeated = text.rpartition("+")
    many = before + "".join(repeated.format(number) for number in range(9000))
    with pytest.raises(InputError, match=re.escape(expected)):
        read_pasted(many if "{" in text else text.replace("+", ""), "a text")


def test_a_deep_tree_of_many_cpus_is_read_in_time_in_proportion(monkeypatch) -> None:
    """Each object's CPUs are put together from those within it, once."""
    joined = []
    monkeypatch.setattr(read, "_as_hwloc_writes", lambda cpus: joined.append(cpus) or f"0x{cpus:x}")
    lines = ["Machine", *(" " * (level + 1) + "Group" for level in range(90))]
    lines += [f"{' ' * 92}PU L#{cpu} (P#{cpu})" for cpu in range(30)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert read_pasted("\n".join(lines), "a text").machine.cpu_count == 30
    assert len(joined) == 31
