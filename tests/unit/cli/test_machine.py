"""`alignup machine`: at a glance, as JSON, as a snapshot."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from alignup import read_machine
from alignup.cli.machine import runs_of_alike, show_machine
from alignup.machine.device_inventory import LoadedMachine
from alignup.machine.load import catalog_entries
from alignup.machine.machine import Core, Machine, NumaNode, summary
from inputs import kernel_trees
from inputs.kernel_trees import pci, server


@pytest.fixture
def tree(tmp_path):
    """The root of a two-socket server with a GPU, a NIC near any node and a disk."""
    files = {
        **server(),
        **pci("0000:17:00.0", numa_node=1),
        **pci("0000:01:00.0", class_="0x020000", vendor="0x15b3", numa_node=-1),
        **pci("0000:02:00.0", class_="0x010802", vendor="0x0000", device="0x0000", numa_node=0),
        **pci("0000:03:00.0", class_="0x060400", numa_node=0),
    }
    root = tmp_path / "root"
    root.mkdir()
    return kernel_trees.write(root, files)


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("name", sorted(catalog_entries()))
@pytest.mark.parametrize("width", [80, 120])
def test_catalog_machines_fit_the_terminal(alignup, monkeypatch, name: str, width: int) -> None:
    """No line of a table is wider than the terminal, and no CPU is missing."""
    monkeypatch.setenv("COLUMNS", str(width))
    ended = alignup("machine", "--machine", name)

    assert (ended.status, ended.err) == (0, "")
    assert summary(read_machine(name)) in words(ended.out)
    assert max(map(len, ended.out.splitlines()[1:])) <= width
    for node in read_machine(name).numa_nodes:
        for core in node.cores[:1]:
            assert str(core.cpus[0]) in ended.out


def test_a_machine_at_a_glance(alignup, tree) -> None:
    """Nodes, PCI devices that matter, distances."""
    ended = alignup("machine", "--root", tree)
    text = words(ended.out)

    assert (ended.status, ended.err) == (0, "")
    assert "2 NUMA nodes, 2 sockets, 4 cores, 8 CPUs, 2 L3 caches, 16Gi memory" in text
    assert "0 0 2 4 0-1,4-5 8Gi 4 x 2Mi" in text
    assert "1 1 2 4 2-3,6-7 8Gi 4 x 2Mi" in text
    assert "GPU NVIDIA 10de:2330 1 1 0000:17:00.0" in text
    assert "network Mellanox 15b3:2330 any 1 0000:01:00.0" in text
    assert "NVMe - 0 1 0000:02:00.0" in text
    assert "0000:03:00.0" not in text
    assert text.endswith(
        "distance 0 1 ──────────────────── 0 10 21 1 21 10".replace("─" * 20, text.split()[-7])
    )


def test_pictures_and_pages_are_files(alignup, tree, tmp_path) -> None:
    """They show the machine and its devices; the tables are printed as ever."""
    svg, html = tmp_path / "machine.svg", tmp_path / "machine.html"
    ended = alignup("machine", "--root", tree, "--svg", svg, "--html", html)

    assert (ended.status, ended.err) == (0, "")
    assert "NUMA node" in ended.out
    assert svg.read_text().startswith("<svg ")
    assert "GPU 17:00.0" in svg.read_text()
    assert html.read_text().startswith("<!DOCTYPE html>")


def test_a_picture_on_standard_output_is_alone(alignup) -> None:
    ended = alignup("machine", "--machine", "gb200", "--svg", "-")

    assert ended.out.startswith("<svg ")
    assert ended.out.endswith("</svg>\n")


def test_a_picture_that_cannot_be_written_is_said(alignup, tmp_path) -> None:
    ended = alignup("machine", "--machine", "gb200", "--svg", tmp_path / "no" / "such.svg")

    assert ended.complains("cannot write", "no such file")


def test_json_is_the_machine_and_nothing_else(alignup, tree, write) -> None:
    """It is accepted as a machine again, and says the same."""
    ended = alignup("machine", "--root", tree, "--json")
    [described] = ended.lines

    assert (ended.status, ended.err) == (0, "")
    assert described == read_machine(tree).to_dict()
    assert described["offlineCpus"] == []
    assert described["pciDevices"][0] == {
        "address": "0000:01:00.0",
        "class": "0200",
        "vendor": "15b3",
        "device": "2330",
        "numaNode": None,
    }
    again = alignup("machine", "--machine", write("m.json", described), "--json")
    assert again.lines == [described]
    assert alignup("machine", "-m", tree, "--json").lines == [described]


def test_devices_of_an_option_are_a_key_of_the_machine(alignup, tree, write) -> None:
    """The whole object is what --machine takes as well, and the table names them.

    A bridge is no GPU.
    """
    selector = "nvidia.com/gpu=10de:*"
    [described] = alignup("machine", "--root", tree, "--device-resource", selector, "--json").lines

    assert set(described) == {"numaNodes", "offlineCpus", "pciDevices", "devices"}
    assert described["devices"] == {"nvidia.com/gpu": [{"id": "0000:17:00.0", "numa": [1]}]}
    shown = alignup("machine", "--machine", write("m.json", described))
    assert "nvidia.com/gpu 1 1 0000:17:00.0" in words(shown.out)


def test_snapshots_are_machines(alignup, tree, tmp_path) -> None:
    """What was packed is said on standard error, so that --json can be added."""
    packed = tmp_path / "packed.tar.gz"
    ended = alignup("machine", "--root", tree, "--snapshot", packed, "--json")

    assert ended.status == 0
    assert f"kernel files of {tree} into {packed}" in ended.err
    assert alignup("machine", "--machine", packed, "--json").lines == ended.lines


def test_only_sysfs_can_be_packed(alignup, tree, tmp_path) -> None:
    assert alignup("machine", "-m", "gb200", "--snapshot", tmp_path / "x.tar.xz").complains(
        "--snapshot", "gb200"
    )
    assert alignup("machine", "-m", tree, "--snapshot", tmp_path / "x.zip").complains(".tar.xz")
    assert alignup("machine", "-m", tree, "--snapshot", tmp_path / "no" / "x.tgz").complains(
        "write"
    )


def test_this_machine(alignup) -> None:
    """Memory aside: a virtual machine's can grow at any time."""
    ended = alignup("machine")
    [described] = alignup("machine", "--json").lines

    assert ended.status == 0
    assert ended.out.startswith("this machine: ")
    assert Machine.from_dict(described).node_cpus == read_machine("/").node_cpus


def test_one_machine_at_a_time(alignup, tree) -> None:
    ended = alignup("machine", "--root", tree, "--machine", "gb200")

    assert (ended.status, ended.out) == (2, "")
    assert "exclude each other" in ended.err


def test_what_is_no_machine(alignup, tmp_path, write) -> None:
    """A folder of something else, a file of something else, nothing."""
    assert alignup("machine", "--root", tmp_path).complains("CPUs", str(tmp_path))
    assert alignup("machine", "--root", tmp_path / "none").complains("none")
    assert alignup("machine", "--root", "align-up-article").complains("align-up-article")
    assert alignup("machine", "-m", write("m.json", '{"numaNodes": [')).complains("m.json")
    assert alignup("machine", "-m", write("m.json", b"\xff\xfe")).complains("m.json")
    devices = {
        "machine": read_machine("xeon-2s").to_dict(),
        "devices": {"a/b": [{"id": "d", "numa": ["7"]}]},
    }
    assert alignup("machine", "-m", write("m.json", devices)).complains("'a/b'", "7")
    assert alignup("machine", "-m", "xeon-2s", "--device-resource", "a/b=1234:*").complains(
        "1234:*"
    )


def test_nvidia_gpus_are_this_machines(alignup, monkeypatch) -> None:
    """Asked of the driver here only; without its library there is one sentence."""
    monkeypatch.setitem(sys.modules, "pynvml", None)

    assert alignup("machine", "--nvidia").complains("nvidia-ml-py")
    assert alignup("machine", "--nvidia", "-m", "gb200").complains("--nvidia", "gb200")
    assert alignup("machine", "--nvidia", "--root", "/").complains("--nvidia")


def test_what_the_driver_says_is_shown(alignup, monkeypatch) -> None:
    """UUIDs near their nodes, and how many sets go well together."""
    node = read_machine("/").numa_node_ids[0]
    library = ModuleType("pynvml")
    answers: dict[str, Any] = {
        "NVMLError": RuntimeError,
        "NVML_NVLINK_MAX_LINKS": 0,
        "NVML_P2P_CAPS_INDEX_NVLINK": 0,
        "NVML_P2P_STATUS_OK": 0,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda gpu: f"GPU-{gpu}",
        "nvmlDeviceGetNumaNodeId": lambda gpu: node,  # noqa: ARG005 - NVML's arguments
        "nvmlDeviceGetPciInfo": lambda gpu: type("Pci", (), {"busId": f"00000000:0{gpu}:00.0"}),
        "nvmlDeviceGetP2PStatus": lambda first, second, index: 0,  # noqa: ARG005
    }
    vars(library).update(answers)
    monkeypatch.setitem(sys.modules, "pynvml", library)

    shown = alignup("machine", "--nvidia").out
    assert f"nvidia.com/gpu {node} 2 GPU-0 GPU-1" in words(shown)
    assert "nvidia.com/gpu: 1 set of devices that go well together" in shown
    [described] = alignup("machine", "--nvidia", "--json").lines
    first = described["devices"]["nvidia.com/gpu"][0]
    assert {**first, "pci": ""} == {"id": "GPU-0", "numa": [node], "pci": ""}
    assert described["preferredSets"] == {"nvidia.com/gpu": [["GPU-0", "GPU-1"]]}


def test_devices_on_nodes_without_cpus_can_count_as_near(alignup, write) -> None:
    """--near-cpus moves them to the closest nodes that have CPUs."""
    catalog = read_machine("gb200").to_dict()
    scenario = {
        "machine": catalog,
        "devices": {"a/gpu": [{"id": "g", "numa": [10]}, {"id": "h", "numa": None}]},
    }
    file = write("m.json", scenario)

    assert "a/gpu 10 1 g" in words(alignup("machine", "-m", file).out)
    [described] = alignup("machine", "-m", file, "--near-cpus", "--json").lines
    assert described["devices"] == {"a/gpu": [{"id": "g", "numa": [0]}, {"id": "h", "numa": None}]}


def node(
    numa_id: int, *cpus: int, memory: int = 1 << 30, distances: tuple[int, ...] = ()
) -> NumaNode:
    return NumaNode(numa_id, memory, tuple(Core((cpu,), 0) for cpu in cpus), (), distances)


def test_nodes_that_are_alike_share_a_line(capsys) -> None:
    """Those without CPUs, with the same memory, one after the other."""
    machine = Machine(
        (node(0, 0), node(1), node(2), node(5, memory=0), node(7, memory=0), node(9, 1))
    )
    show_machine("m", LoadedMachine(machine))
    text = words(capsys.readouterr().out)

    assert "1-2 - - - - 1Gi each -" in text
    assert "5,7 - - - - - -" in text
    assert "distance" not in text


def test_what_is_unusual_is_said(capsys) -> None:
    """Offline CPUs, CPUs of no node or of several, and names that look like markup."""
    machine = replace(
        Machine((node(0, 0, 1), node(1, 1, 2))),
        offline_cpus=(5, 6),
        unassigned_cores=(Core((4,), 0),),
    )
    show_machine("[red]", LoadedMachine(machine))
    text = capsys.readouterr().out

    assert text.startswith("[red]: ")
    assert "offline: CPUs 5-6" in text
    assert "in no NUMA node, so nothing is placed on them: CPUs 4" in text
    assert "listed by several NUMA nodes, of which the first counts: CPUs 1" in text


def test_many_distances_are_shown_by_value(capsys, monkeypatch) -> None:
    """Where a matrix would be too wide: which nodes are how far.

    Nodes that stand alike share a line.
    """
    monkeypatch.setenv("COLUMNS", "80")
    near = [20] * 10
    far = [30] * 10
    rows = [near + far for _ in range(10)] + [far + near for _ in range(10)]
    for index, row in enumerate(rows):
        row[index] = 10

    nodes = tuple(node(i, i, distances=tuple(row)) for i, row in enumerate(rows))
    show_machine("m", LoadedMachine(Machine(nodes)))
    text = words(capsys.readouterr().out)

    assert "0-9 0-9 10-19 10-19 10-19 0-9" in text


@pytest.mark.parametrize(("width", "is_matrix"), [(200, True), (40, True), (39, False)])
def test_a_matrix_is_shown_where_it_has_room(width, is_matrix, capsys, monkeypatch) -> None:
    """A column for each NUMA node, and as much as two of them for the heading."""
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [[10 if row == column else 20 for column in range(6)] for row in range(6)]
    nodes = tuple(node(i, i, distances=tuple(row)) for i, row in enumerate(rows))
    show_machine("m", LoadedMachine(Machine(nodes)))

    assert ("5 20 20 20 20 20 10" in words(capsys.readouterr().out)) is is_matrix


def test_who_stands_alike() -> None:
    """Changing places changes no distance: neither to others, nor back, nor to itself."""
    assert list(runs_of_alike([[10, 20, 20], [20, 10, 20], [20, 20, 10]])) == [[0, 1, 2]]
    assert list(runs_of_alike([[10, 20, 20], [20, 10, 30], [20, 30, 10]])) == [[0], [1, 2]]
    assert list(runs_of_alike([[10, 20], [21, 10]])) == [[0], [1]]
    assert list(runs_of_alike([[10, 20], [20, 11]])) == [[0], [1]]
    assert list(runs_of_alike([[10, 20, 20], [20, 10, 20], [20, 21, 10]])) == [[0], [1], [2]]


def test_json_of_the_catalog_brings_devices_and_configuration(alignup, write) -> None:
    """As further keys of the machine, so that nothing is lost on the way through a file."""
    [described] = alignup("machine", "-m", "dgx-h100", "--json").lines
    entry = catalog_entries()["dgx-h100"]

    assert described == json.loads(json.dumps(entry.to_dict()))
    assert {"devices", "kubelet"} < set(described)
    file = write("m.json", described)
    assert alignup("machine", "-m", file, "--json").lines == [described]
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 2}}}]},
    }
    [admitted] = alignup("admit", "-m", file, "--json", write("pod.json", pod)).lines
    assert admitted["containers"]["c"]["devices"] == {"nvidia.com/gpu": ["gpu0", "gpu1"]}


def test_the_pcie_tree_is_drawn(alignup) -> None:
    """Ports that lead to one thing only are left out."""
    shown = alignup("machine", "-m", "dgx-h100").out
    lines = shown[shown.index("pci0000:15") :].splitlines()[:4]
    assert [line.split(",")[0] for line in lines] == [
        "pci0000:15",
        "└─ switch 0000:16:00.0",
        "   ├─ 0000:18:00.0 InfiniBand Mellanox 15b3:1021",
        "   └─ 0000:1b:00.0 GPU NVIDIA 10de:2330",
    ]
    assert "pci0000" not in alignup("machine", "-m", "align-up-article").out


def test_a_machine_whose_tree_nobody_published_is_said(alignup) -> None:
    name = "align-up-article"
    shown = alignup("machine", "-m", name, "--distances")
    assert (shown.status, shown.out, shown.err) == (
        0,
        "",
        f"alignup: no PCIe tree is published for {name}\n",
    )
    ended = alignup("machine", "-m", name, "--distances", "--json")
    assert (ended.lines, "no PCIe tree" in ended.err) == ([{"devices": []}], True)


def test_distances_are_those_of_nvidias_table(alignup) -> None:
    """On a DGX H100 each GPU has an adapter of its own, on a root of their own."""
    devices = alignup("machine", "-m", "dgx-h100", "--distances", "--json").lines[0]["devices"]
    first = {
        device["address"]: row for device, row in zip(devices, devices[1]["distances"], strict=True)
    }

    assert (devices[1]["kind"], devices[1]["numaNode"], devices[1]["cpus"]) == (
        "GPU",
        0,
        "0-55,112-167",
    )

    assert [first[f"0000:{bus}:00.0"] for bus in ("1b", "18", "40", "61", "9d")] == [
        "X",
        "PXB",
        "NODE",
        "NODE",
        "SYS",
    ]

    shown = alignup("machine", "-m", "dgx-h100", "--distances").out
    assert "2 NODE NODE X PXB NODE NODE NODE NODE" in words(shown)
    assert "SYS 0000:40:00.0 InfiniBand 0-55,112-167 0" in words(shown)
    assert "PHB: one host bridge (root)" in shown
