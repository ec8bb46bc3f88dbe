"""Devices that programs of vendors list, in texts that reports paste."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import AlignupWarning, InputError
from alignup.machine.load import load_machine
from alignup.machine.pasted.read import read_pasted
from alignup.node import Node
from models.device_tables import DeviceRow, npu_table, nvidia_table

LISTINGS = Path(__file__).parents[3] / "reports" / "listings"
GPU = "nvidia.com/gpu"
AMD = "amd.com/gpu"
NPU = "huawei.com/Ascend910"

pytestmark = pytest.mark.filterwarnings(
    "ignore:(not known from|assumed, since):alignup.errors.AlignupWarning"
)

# Four nodes of 16 CPUs, the last with gaps.
NODE_CPUS = ("0-15", "16-31", "32-47", "48-55,57-64")
LSCPU = "".join(f"NUMA node{node} CPU(s): {cpus}\n" for node, cpus in enumerate(NODE_CPUS))
# What a process that may use few CPUs sees of a node's.
NARROW_CPUS = ("3", "16-17", "32,34-35", "48-55,57-63")
TWO_NODES = "NUMA node0 CPU(s): 0-31\nNUMA node1 CPU(s): 32-63\n"

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
"""

CONFIG = {
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "topologyManagerPolicy": "single-numa-node",
}


def nodes_of(loaded, resource=GPU):
    """Return the NUMA nodes by the id of a device."""
    return {device.id: device.numa_nodes for device in loaded.devices.get(resource, ())}


def read(table, machine=LSCPU, resource=GPU):
    return nodes_of(read_pasted(f"{machine}\n{table}", "x"), resource)


def admits(name, resource, count):
    """Return whether a pod of some devices is admitted to the machine of a report."""
    loaded = load_machine(str(LISTINGS / name))
    node = Node(loaded.machine, CONFIG, devices=loaded.devices)
    limits = {"cpu": "8", "memory": "8Gi", resource: count}
    pod = {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    }
    return node.admit(pod).admitted


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("topo-slurm-cgroup.txt", [(3,), (3,)]),
        # as NVIDIA's program printed it, for a job that may use CPUs of node 0
        ("topo-slurm-narrow.txt", [(0, 1), (0, 1)]),
        ("topo-blank-affinity.txt", [(0,), (1,)]),
        ("topo-whole.txt", [(0,), (1,)]),
        ("topo-blank-zero.txt", [(0,), (0,), (1,), (1,)]),
        ("topo-glued-row.txt", [(0,), (0,), (1,), (1,)]),
        ("topo-escapes.txt", [(0,)]),
    ],
)
def test_gpus_of_reports(name, nodes):
    assert list(nodes_of(load_machine(str(LISTINGS / name))).values()) == nodes


@pytest.mark.parametrize(
    ("name", "resource"),
    [
        ("topo-blank-affinity.txt", GPU),
        ("topo-whole.txt", GPU),
        ("rocm-smi.txt", AMD),
        ("amd-smi.txt", AMD),
    ],
)
def test_pods_of_reports(name, resource):
    """A pod fits where its GPUs are on one NUMA node."""
    loaded = load_machine(str(LISTINGS / name))
    most = len(loaded.devices[resource]) // 2

    assert set(nodes_of(loaded, resource).values()) == {(0,), (1,)}
    assert admits(name, resource, most)
    assert not admits(name, resource, most + 1)


def test_a_tree_of_lstopo_that_somebody_shortened_is_refused():
    with pytest.raises(InputError, match="the tree of lstopo is cut off: give all of it"):
        load_machine(str(LISTINGS / "lstopo-elided.txt"))


names = st.sampled_from(("NIC{}", "mlx5_{}", "mlx5_bond_{}"))
links = st.sampled_from(("SYS", "NODE", "PHB", "PXB", "PIX", "NV1", "NV12", "NV18", "SOC"))


@st.composite
def tables(draw, fewest_columns=1, *, are_whole=False):
    """Draw the rows of a table, and the NUMA nodes that its GPUs are near, None: not known."""
    gpus = draw(st.integers(1, 9))
    nics = draw(st.integers(are_whole, 4))
    form = draw(names)
    devices = [f"GPU{number}" for number in range(gpus)] + [form.format(i) for i in range(nics)]
    columns = draw(st.integers(fewest_columns, 3))
    rows = []
    nodes = {}
    for place, name in enumerate(devices):
        relations = [draw(links) for _ in devices]
        relations[place] = "X"
        if not name.startswith("GPU"):
            rows.append(DeviceRow(name, relations))
            continue

        node = draw(st.integers(0, 3))
        blanks = () if are_whole else ("",)
        cpus = draw(st.sampled_from((NODE_CPUS[node], NARROW_CPUS[node], *blanks)))
        numa_nodes = ""
        if columns > 1:
            numa_nodes = draw(st.sampled_from((str(node), str(node), "N/A", *blanks)))

        rows.append(DeviceRow(name, relations, cpus, numa_nodes))
        is_near = cpus or numa_nodes not in {"N/A", ""}
        nodes[name] = (node,) if is_near else None

    return rows, columns, nodes


DRESSES = {
    "as it was printed": lambda line: line,
    "tabs turned into spaces": str.expandtabs,
    "indented": lambda line: f"    {line}",
    "turned into spaces and indented": lambda line: f"    {line.expandtabs()}",
    "quoted": lambda line: f"> {line}",
    "ended by a carriage return": lambda line: f"{line}\r",
}


@given(
    tables(),
    st.sampled_from(sorted(DRESSES)),
    st.sampled_from((("\x1b[4m", "\x1b[0m"), ("[4m", "[0m"), ("^[[4m", "^[[0m"), ("", ""))),
    st.booleans(),
)
def test_what_is_read_is_what_was_printed(table, dress, escapes, has_prompt):
    """All of it, or a refusal where blank cells at the end of a line were lost."""
    rows, columns, nodes = table
    lines = [DRESSES[dress](line) for line in nvidia_table(rows, columns, *escapes)]
    prompt = ["$ nvidia-smi topo -m"] if has_prompt else []
    text = "\n".join([*prompt, *lines, LEGEND])

    assert read(text) == nodes


@given(tables(3), st.booleans(), st.data())
def test_a_damaged_table_is_refused_or_read_rightly(table, has_tabs, data):
    """Where a space was lost, or lines were cut off at the right."""
    rows, columns, nodes = table
    lines = nvidia_table(rows, columns, "", "")
    if not has_tabs:
        lines = [line.expandtabs() for line in lines]

    place = data.draw(st.integers(0, len(nodes)), "line")
    line = lines[place]
    column = data.draw(st.integers(1, len(line) - 1), "column")
    damage = data.draw(st.sampled_from(("cut", "cut everywhere", "glued")), "damage")
    if damage == "glued":
        lines[place] = line[:column].rstrip() + line[column:].lstrip()
    elif damage == "cut":
        lines[place] = line[:column]
    else:
        lines = [line[:column] for line in lines]

    try:
        near = read("\n".join(lines))
    except InputError as error:
        assert "nvidia-smi topo -m" in str(error)  # noqa: PT017
        return

    # a header that is cut is none, and rows that end before a relation are no rows
    assert near in (nodes, {})
    assert near or damage == "cut everywhere"


@given(tables())
def test_a_table_whose_spaces_were_joined_is_refused_or_read_rightly(table):
    rows, columns, nodes = table
    lines = [" ".join(line.split()) for line in nvidia_table(rows, columns, "", "")]
    try:
        assert read("\n".join(lines)) == nodes
    except InputError as error:
        assert "nvidia-smi topo -m; give the table as it was printed" in str(error)  # noqa: PT017
        assert columns < 3 or not all(row.cpus and row.numa_nodes for row in rows[: len(nodes)])


@given(tables(are_whole=True), st.data())
def test_names_and_cells_that_lost_the_tab_between_two_columns(table, data):
    """As vllm-project/vllm#13855 has them: in the header and in all rows."""
    rows, columns, nodes = table
    lines = nvidia_table(rows, columns, "", "")
    place = data.draw(st.integers(2, len(rows)), "column")
    glued = []
    for line in lines:
        cells = line.split("\t")
        cells[place - 1 : place + 1] = ["".join(cells[place - 1 : place + 1])]
        glued.append("\t".join(cells))

    assert read("\n".join(glued)) == nodes


@pytest.mark.parametrize(
    ("table", "message"),
    [
        # a blank cell, and nothing to tell which
        (
            (
                "GPU0 GPU1 CPU Affinity NUMA Affinity GPU NUMA ID\nGPU0 X SYS 0-31 0 N/A\n"
                "GPU1 SYS X 1 N/A"
            ),
            (
                "expected lists of numbers or N/A below the last headers, got 1 N/A in the row "
                "'GPU1 SYS X 1 N/A' of nvidia-smi topo -m; give the table as it was printed, or "
                "leave it out and give the devices by --devices in x"
            ),
        ),
        # cut in the middle
        (
            "GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0 X SYS 0-31 0\nGPU1 SYS",
            (
                "expected 2 cells between GPU1 and CPU Affinity, as the header has devices, got 1 "
                "in the row 'GPU1 SYS'"
            ),
        ),
        (
            "GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0 X SYS 0-31 0\nGPU1 SYS X",
            "got a row that ends before them in the row 'GPU1 SYS X'",
        ),
        (
            "GPU0 GPU1 CPU Affinity\nGPU0 X SYS 0-31\nGPU1 SYS X 32-",
            "got 32- in the row 'GPU1 SYS X 32-'",
        ),
        # a long one
        (
            f"GPU0 GPU1 CPU Affinity\nGPU0 X SYS 0-31\nGPU1 SYS X 32-{'9' * 5000}-",
            f"got 32-{'9' * 57} ... {'9' * 59}- in the row 'GPU1 SYS X 32-",
        ),
        # a row that continues on the next line
        (
            "GPU0 GPU1 NIC0 CPU Affinity\nGPU0 X\nSYS SYS 0-31\nGPU1 SYS\nX SYS 0-31",
            "expected 3 cells between GPU0 and CPU Affinity",
        ),
        # a header that does
        (
            (
                "GPU0 GPU1\nNIC0 CPU Affinity NUMA Affinity\nGPU0 X SYS SYS 0-31 0\n"
                "GPU1 SYS X SYS 0-31 0\n"
            ),
            (
                "expected CPU Affinity and names of devices above it, got no header in the row "
                "'GPU0 X SYS SYS 0-31 0' of nvidia-smi topo -m"
            ),
        ),
        ("GPU0 X 0-31 0 N/A", "got no header"),
        # cells that ran together with what follows
        (
            "GPU0 GPU1 CPU Affinity\nGPU0 X SYS0-31\nGPU1 SYS X 0-31",
            "expected 2 cells between GPU0 and CPU Affinity",
        ),
        (
            "GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0 X SYS0 0\nGPU1 SYS X 0-31 0",
            "expected 2 cells between GPU0 and CPU Affinity",
        ),
        # a name too few, or cells in the wrong order
        (
            "GPU0 GPU1 CPU Affinity\nGPU0 X SYS SYS 0-31\nGPU1 SYS X SYS 0-31",
            "got SYS 0-31 in the row 'GPU0 X SYS SYS 0-31'",
        ),
        (
            "GPU0 GPU1 CPU Affinity\nGPU0 SYS X 0-31\nGPU1 SYS X 0-31",
            "expected X in the column of GPU0 only, got it in others, or nowhere in the row",
        ),
        (
            "GPU0 GPU1 CPU Affinity\nGPU0 X SYS 0-31\nGPU0 X SYS 0-31\nGPU1 SYS X 0-31",
            "expected a row for each device, got a second one",
        ),
        (
            "GPU0 GPU1 CPU Affinity\nGPU0 X SYS 0-31 0\nGPU1 SYS X 0-31 0",
            "got 0-31 0 in the row",
        ),
        # a header that was cut, so that 1 is the NUMA node, as its tabs say
        (
            "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tSYS\t0-31\t0\nGPU1\tSYS\t X \t\t1\n",
            "got 0-31 0 in the row",
        ),
        (
            "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tSYS\t0-31\nGPU1\tSYS\t X \t\t1\n",
            "got 1 in the row 'GPU1 SYS X 1'",
        ),
        ("GPU0 CPU Affinity\nGPU0 X 0-7:2", "got 0-7:2 in the row 'GPU0 X 0-7:2'"),
        (
            "GPU0 GPU1 CPU Affinity\nGPU0 X SYS 0-31\n...\nGPU3 SYS X 0-31",
            "has no row of GPU1; give all of it",
        ),
        # of another machine
        (
            "GPU0 CPU Affinity NUMA Affinity\nGPU0 X 128-191 2",
            (
                "GPU0 is near NUMA nodes 2 and CPUs 128-191 by nvidia-smi topo -m, and the machine "
                "has NUMA nodes 0-1: give outputs of one machine"
            ),
        ),
        (
            f"GPU0 GPU1 CPU Affinity\nGPU0 X {'SYS ' * 60} 0-31\nGPU1 SYS X 0-31",
            r"in the row 'GPU0 X SYS .* \.\.\. .*SYS 0-31'",
        ),
        # tables of others
        (
            "         GPU 0/0|GPU 1/0|CPU Affinity\nGPU 0/0 |S      |SYS    |0-31\n",
            r"a table of devices with the header 'GPU 0/0\|GPU 1/0\|CPU Affinity' is not read",
        ),
        ("DCU0 DCU1 CPU Affinity\nDCU0 X SYS 0-31\n", "header 'DCU0 DCU1 CPU Affinity'"),
        ("HCU[0]  : (Topology) Numa Node: 0\n", "the JSON or CSV of rocm-smi is not read"),
        ('{"card0": {"(Topology) Numa Node": "0"}}', "the JSON or CSV of rocm-smi is not read"),
        ("device,(Topology) Numa Node,(Topology) Numa Affinity\ncard0,0,0", "CSV of rocm-smi"),
        ('[{"gpu": 0,\n "numa": {\n "node": 0', "the JSON of amd-smi is not read"),
        ("gpu,numa_node,numa_affinity\n0,0,0", "the CSV of amd-smi is not read"),
        # lists of values
        ("GPU[0] : (Topology) Numa Node: 0\nGPU[2] : (Topology) Numa Node: 0", "NODE of GPU 1 is"),
        (
            (
                "GPU[0] : (Topology) Numa Node: 0\nGPU[0] : (Topology) Numa Affinity: 0\n"
                "GPU[1] : (Topology) Numa Node: 0"
            ),
            "rocm-smi --showtoponuma is cut off: AFFINITY of GPU 1 is missing; give all of it",
        ),
        ("GPU[0] : (Topology) Numa Node: 0\nGPU[0] : (Topology) Numa Node: 1", "different values"),
        ("GPU[0] : (Topology) Numa Node: x", "the number of a NUMA node, N/A or -1, got 'x' at"),
        ("GPU[0] : (Topology) Numa Node:", "the number of a NUMA node, N/A or -1, got '' at"),
        ("GPU: 0\n  NUMA:\n    NODE: 0\nGPU: 1\n  NUMA:", "NODE of GPU 1 is missing"),
        ("GPU: 0\n  NUMA:", "amd-smi static --numa is cut off"),
        (
            "GPU: 0\n NUMA:\n  AFFINITY: 1\nGPU[0] : (Topology) Numa Affinity: 0",
            (
                "rocm-smi --showtoponuma and amd-smi static --numa are of different machines: "
                "amd.com/gpu are not near the same NUMA nodes by them"
            ),
        ),
    ],
)
def test_what_cannot_be_told_is_refused(table, message):
    with pytest.raises(InputError, match=message) as caught:
        read(table, TWO_NODES)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "The CPU Affinity of these is set by hand.\nThe NUMA Affinity too.",
        "\tGPU0\tGPU1\n GPU0\tX\tGNS\n GPU1\tGNS\tX\n",
        "       GPU0         GPU1\nGPU0   0            XGMI\nGPU1   XGMI         0\n",
        "GPU: 0\n    BDF: 0000:01:00.0\n    UUID: 5aff74a0",
        "NCCL INFO Setting affinity for GPU 0 to ffff",
    ],
)
def test_what_lists_no_numa_nodes_is_passed_over(text):
    """Sentences, tables of peers and of links."""
    assert read_pasted(f"{TWO_NODES}\n{text}", "x").devices == {}


AMD_LISTS = {
    "rocm-smi": (
        "GPU[{0}]\t\t: (Topology) Numa Node: {1}\nGPU[{0}]\t\t: (Topology) Numa Affinity: {2}"
    ),
    "old rocm-smi": (
        "GPU {0}          : (Topology) Numa Node: {1}\n"
        "GPU {0}          : (Topology) Numa Affinity: {2}"
    ),
    "amd-smi": (
        "GPU: {0}\n    NUMA:\n        NODE: {1}\n        AFFINITY: {2}\n    VRAM:\n        NODE: 9"
    ),
    "amd-smi without indents": "GPU: {0}\nNUMA:\nNODE: {1}\nAFFINITY: {2}\nCPU_AFFINITY: N/A",
}


@pytest.mark.parametrize("form", sorted(AMD_LISTS))
@given(st.lists(st.integers(-1, 3), min_size=1, max_size=16), st.sampled_from(("-1", "NONE")))
def test_gpus_of_amd(form, places, no_node):
    """They are where the kernel has them, whatever AMD's driver takes in its place."""
    blocks = [
        AMD_LISTS[form].format(number, max(place, 0), place if place >= 0 else no_node)
        for number, place in enumerate(places)
    ]
    near = read("\n".join(blocks), resource=AMD)
    assert near == {
        f"GPU{number}": (place,) if place >= 0 else None for number, place in enumerate(places)
    }


def test_gpus_of_amd_without_affinity_are_near_their_node_or_their_cpus():
    """As old releases print them, and a driver that knows CPUs only; sockets do not count."""
    assert read("GPU[0] : (Topology) Numa Node: 1", resource=AMD) == {"GPU0": (1,)}

    sections = ["CPU_AFFINITY", "SOCKET_AFFINITY"]
    lists = [
        f"        {name}:\n            CPU_LIST_0:\n                BITMASK: FF\n"
        f"                CPU_CORES_AFFINITY: {cpus}"
        for name, cpus in zip(sections, ("32-47", "0-63"), strict=True)
    ]
    text = "\n".join(["GPU: 0", "    NUMA:", "        NODE: 0", "        AFFINITY: NONE", *lists])
    assert read(text, resource=AMD) == {"GPU0": (2,)}
    assert read(f"{text}\n{text}", resource=AMD) == {"GPU0": (2,)}


@given(st.lists(st.integers(0, 3), min_size=1, max_size=16), st.sampled_from(sorted(DRESSES)))
def test_npus(places, dress):
    """Each is near the NUMA nodes of its CPUs."""
    rows = []
    for number, place in enumerate(places):
        relations = ["HCCS"] * len(places)
        relations[number] = "X"
        rows.append(DeviceRow(f"NPU{number}", relations, NODE_CPUS[place]))

    text = "\n".join([*(DRESSES[dress](line) for line in npu_table(rows)), LEGEND])
    assert read(text, resource=NPU) == {
        f"NPU{number}": (place,) for number, place in enumerate(places)
    }


def test_the_resource_of_npus_is_assumed_aloud():
    rows = [DeviceRow("NPU0", ["X"], "0-31")]
    with pytest.warns(AlignupWarning, match="that the NPUs are huawei.com/Ascend910"):
        read("\n".join(npu_table(rows)), TWO_NODES, NPU)


def test_devices_of_two_vendors():
    text = "GPU0 CPU Affinity\nGPU0 X 0-31\n\nGPU[0] : (Topology) Numa Affinity: 1"
    loaded = read_pasted(f"{TWO_NODES}\n{text}", "x")
    assert nodes_of(loaded) == {"GPU0": (0,)}
    assert nodes_of(loaded, AMD) == {"GPU0": (1,)}
