"""What `alignup explain` prints for a person: the picture, the help and the tables."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from alignup.cli.explain_view import product_cells
from alignup.cli.program import program
from alignup.explanations.product import Choice, Row
from alignup.machine.load import catalog_entries
from alignup.records import replace
from inputs.refusals import GPU, wish
from running.terminals import COLOURS, on_terminal


def run(*arguments: str) -> Any:
    return CliRunner().invoke(program, ["explain", "-m", "align-up-article", *arguments])


def test_the_verdict_the_cause_the_picture_and_the_help_come_first(conflict: str) -> None:
    done = run(conflict)
    refused = done.stdout.removeprefix("✗ ").splitlines()

    assert done.exit_code == 1
    assert refused[:12] == [
        "default/new refused: TopologyAffinityError (single-numa-node, scope container)",
        (
            f"  {GPU} fits only on NUMA node 1, cpu only on NUMA node 0; "
            "single-numa-node needs both on one NUMA node"
        ),
        "",
        "■ used □ free    asked   NUMA node 0   NUMA node 1   held by",
        "─" * 83,
        "cpu                  2   ■□□□     3    ■■■■     0    default/trainer, default/batch",
        "nvidia.com/gpu       1   ■        0    □        1    default/trainer",
        "",
        "what would help (each was tried):",
        f"  1. remove pod default/trainer, which holds 1 {GPU} and 1 CPU",
        *refused[10:12],
    ]
    assert refused[-4:-2] == [
        "✓ default/trainer admitted (single-numa-node, scope container)",
        "✓ default/batch admitted (single-numa-node, scope container)",
    ]


def test_tables_are_shown_as_asked(conflict: str) -> None:
    """All in a file or pipe; short ones lack what does not bear on the verdict, and count it."""
    assert run(conflict).stdout == run("--tables", "all", conflict).stdout
    texts = {
        choice: run("--tables", choice, conflict).stdout for choice in ("none", "short", "all")
    }

    assert "offered" not in texts["none"]
    assert "and 1 more resource\n" in texts["short"]  # memory
    assert "and 2 more containers on the node\n" in texts["short"]
    assert "admitted already" not in texts["short"]
    assert "admitted already" in texts["all"]
    lengths = [len(text.splitlines()) for text in texts.values()]
    assert lengths == sorted(set(lengths))


@given(st.data())
def test_the_help_is_on_the_first_screen(data: Any) -> None:
    """Of a refusal for three resources on two NUMA nodes it begins by line 12.

    Two lines more for each further one.
    """
    others = [
        f"example.com/{name}" for name in ("nic", "fpga", "dsp")[: data.draw(st.integers(0, 3))]
    ]
    resources = {name: str(data.draw(st.integers(1, 3))) for name in (GPU, *others)}
    inventory = {
        name: [
            {"id": f"{name}-{number}", "numa": number % 2}
            for number in range(data.draw(st.integers(1, 4)))
        ]
        for name in resources
    }
    limits = {"cpu": str(data.draw(st.integers(1, 9))), **resources}
    columns = data.draw(st.sampled_from([80, 100, 120]))
    with TemporaryDirectory() as folder:
        devices, manifest = Path(folder, "devices.json"), Path(folder, "pod.json")
        devices.write_text(json.dumps(inventory))
        manifest.write_text(json.dumps(wish("new", **limits)))
        arguments = [
            "explain",
            "-m",
            "align-up-article",
            "--devices",
            devices,
            "--tables",
            "short",
            manifest,
        ]
        done = CliRunner(env={"COLUMNS": str(columns)}).invoke(program, list(map(str, arguments)))

    lines = done.stdout.splitlines()

    assert done.exit_code in {0, 1}
    assert max(map(len, lines[1:-1])) <= columns
    if done.exit_code and any(line.startswith("what would help") for line in lines):
        place = next(
            number for number, line in enumerate(lines, 1) if line.startswith("what would help")
        )
        assert place < 12 + 2 * max(0, len(limits) - 3)


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_changes_of_several_containers_are_a_line_each(tmp_path: Path, columns: int) -> None:
    large = wish("large", cpu="6", **{GPU: "3"})
    large["spec"]["containers"].append(
        {"name": "beside", "resources": {"limits": {"cpu": "5", "memory": "1Gi", GPU: "2"}}}
    )
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(large))
    arguments = ["explain", "-m", "align-up-article", "--tables", "none", str(path)]
    lines = CliRunner(env={"COLUMNS": str(columns)}).invoke(program, arguments).stdout.splitlines()

    place = lines.index("  1. ask for less, all of these:")
    assert lines[place + 1 : place + 3] == [
        f"       container 'main': cpu 6 -> 4, {GPU} 3 -> 1",
        f"       container 'beside': cpu 5 -> 4, {GPU} 2 -> 1",
    ]
    [answer] = map(json.loads, run("--json", str(path)).stdout.splitlines())
    assert answer["suggestions"][0]["text"].startswith(
        "ask for all of these: 4 cpu instead of 6 and 1 nvidia.com/gpu"
    )


def test_a_pod_to_remove_is_named_before_others(tmp_path: Path) -> None:
    """In the picture and in the tables, which name few."""
    pods = [wish(f"p{number}", cpu="1") for number in range(4)] + [
        wish("z", cpu="3"),
        wish("new", cpu="2"),
    ]
    path, config = tmp_path / "pods.json", tmp_path / "kubelet.json"
    path.write_text(json.dumps({"kind": "List", "items": pods}))
    config.write_text(json.dumps({"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}))
    shown = (
        CliRunner()
        .invoke(program, ["explain", "-m", "align-up-article", "-c", str(config), str(path)])
        .stdout
    )
    refused = shown.removeprefix("✗ ").splitlines()

    assert "  1. remove pod default/z, which holds 3 CPUs" in refused
    [picture] = [line for line in refused if line.startswith("cpu") and "■" in line]
    assert "default/z, default/p0 and 3 more" in picture


@pytest.mark.parametrize("machine", list(catalog_entries()))
def test_pods_that_every_catalog_machine_refuses_are_drawn(machine: str, tmp_path: Path) -> None:
    """Also where NUMA nodes have memory and no CPUs."""
    entry = catalog_entries()[machine]
    path, config = tmp_path / "pod.json", tmp_path / "kubelet.json"

    limits = dict.fromkeys(entry.devices, "99")
    path.write_text(json.dumps(wish("large", cpu="9999", **(limits | {"memory": "99Ti"}))))

    first = entry.machine.numa_nodes[0].id
    kubelet = {
        "topologyManagerPolicy": "restricted",
        "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "64"},
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
        "memoryManagerPolicy": "Static",
        "systemReserved": {"memory": "924Mi"},
        "reservedMemory": [{"numaNode": first, "limits": {"memory": "1Gi"}}],
    }
    config.write_text(json.dumps(kubelet))

    for columns in ("80", "120"):
        arguments = ["explain", "-m", machine, "-c", str(config), str(path)]
        done = CliRunner(env={"COLUMNS": columns}).invoke(program, arguments)
        assert done.exit_code == 1, done.output
        assert "never fits this node: " in done.stdout
        assert "9999 cpu asked, the machine has" in " ".join(done.stdout.split())


def test_a_narrow_table_is_whole_and_says_below_it_who_holds_what(
    conflict: str, monkeypatch
) -> None:
    monkeypatch.setenv("COLUMNS", "75")
    lines = [" ".join(line.split()) for line in run(conflict).stdout.splitlines()]

    start = lines.index("resource asked offered NUMA node there free")
    assert lines[start + 2] == "cpu 2 0; 0+1 (not preferred) 0 4 3"
    assert "held, cpu, NUMA node 0: default/trainer/main 1" in lines[start:]


def test_the_example_of_the_article_has_27_rows() -> None:
    done = run("--product")

    assert done.exit_code == 0
    assert "\n27 rows; single-numa-node leaves out rows" in done.stdout
    assert "\n27 rows" not in run().stdout


def test_wide_machines_and_many_pods_are_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "pods.json"
    path.write_text(
        json.dumps({"kind": "List", "items": [wish(f"p{number}", cpu="1") for number in range(26)]})
    )
    done = CliRunner().invoke(program, ["explain", "-m", "dgx-h100", str(path)])

    assert "and 5 more containers" in done.stdout


def test_a_numa_node_without_a_resource_is_passed_over_in_its_row(tmp_path: Path) -> None:
    devices = tmp_path / "devices.json"
    devices.write_text(json.dumps({GPU: [{"id": "gpu0", "numa": 1}]}))
    pod = tmp_path / "pod.json"
    pod.write_text(json.dumps(wish("new", cpu="2", **{GPU: "2"})))
    lines = run("--devices", str(devices), str(pod)).stdout.splitlines()
    row = next(line for line in lines if line.startswith(f"{GPU} "))
    assert row.split() == [GPU, "2", "-", "□", "1"]


def test_memory_groups_and_shared_pools_are_told(tmp_path: Path) -> None:
    config = tmp_path / "kubelet.json"
    config.write_text(
        json.dumps(
            {
                "topologyManagerPolicy": "best-effort",
                "cpuManagerPolicy": "static",
                "reservedSystemCPUs": "0",
                "memoryManagerPolicy": "Static",
                "systemReserved": {"memory": "924Mi"},
                "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
            }
        )
    )
    pods = tmp_path / "pods.json"
    wide = wish("wide", cpu="1")
    wide["spec"]["containers"][0]["resources"]["limits"]["memory"] = "20Gi"
    burst = wish("burst", cpu="1")
    burst["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "500m"}
    pods.write_text(json.dumps({"kind": "List", "items": [wide, wish("small", cpu="1"), burst]}))
    done = run("-c", str(config), str(pods))

    assert done.exit_code == 0
    assert (
        "NUMA nodes 0+1 supply memory only together, because of the memory of default/wide"
        in done.stdout
    )
    assert "only together" not in done.stdout.partition("default/burst")[2]
    assert "container 'main' requests less cpu than its limit" in done.stdout
    assert "(each was tried)" in done.stdout


NODE = str(Path(__file__).parents[2] / "kubelet_node" / "root.tar.xz")
POD = "default/p51-02-node-real"


@pytest.mark.parametrize("columns", [80, 200])
def test_one_pod_of_a_real_node_fits_on_a_screen(columns: int) -> None:
    """With what is said of the node, on standard error too, and with the tables that have room."""
    text = on_terminal(columns, "explain", "--node", NODE, "--pod", POD)
    assert len(text.splitlines()) <= 40
    assert "--tables all shows" in text


def test_on_a_terminal_lines_are_broken_between_words() -> None:
    """What a wide terminal has in a line, a narrow one has in the same words."""
    arguments = ("explain", "--node", NODE, "--pod", POD, "--tables", "all")
    wide, narrow = (COLOURS.sub("", on_terminal(columns, *arguments)) for columns in (3_000, 80))

    assert max(map(len, narrow.splitlines())) <= 80
    assert max(map(len, wide.splitlines())) > 120
    # what a narrow one says of a long cause
    words = {*re.findall(r"\w+", wide), "another", "cause", "more", "below"}
    prose = [line for line in narrow.splitlines() if "  " not in line.strip() and "─" not in line]
    assert len(prose) > 20
    for line in prose:
        assert words.issuperset(re.findall(r"\w+", line)), line


def test_refused_pods_come_first_and_admitted_ones_are_a_line_each(tmp_path: Path) -> None:
    """In whatever order they are asked for; JSON keeps that order."""
    path, config = tmp_path / "pods.json", tmp_path / "kubelet.json"
    config.write_text(json.dumps({"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}))
    generator = random.Random(63)
    for _ in range(5):
        sizes = [1, 2, 99, 1, 77]
        generator.shuffle(sizes)
        pods = [wish(f"p{number}", cpu=str(size)) for number, size in enumerate(sizes)]
        path.write_text(json.dumps({"kind": "List", "items": pods}))
        shown = run("-c", str(config), str(path)).stdout
        heads = [line for line in shown.splitlines() if line.startswith(("✓", "✗"))]
        answers = run("-c", str(config), "--json", str(path)).stdout.splitlines()

        refused = [f"p{number}" for number, size in enumerate(sizes) if size > 8]
        admitted = [f"p{number}" for number, size in enumerate(sizes) if size < 8]
        names = [line.split()[1].removeprefix("default/") for line in heads]
        assert names == refused + admitted
        assert "\n".join(heads[-3:]) in shown
        assert [json.loads(answer)["pod"] for answer in answers] == [
            f"default/p{number}" for number in range(5)
        ]


def test_pods_that_are_all_admitted_are_explained_in_full(tmp_path: Path) -> None:
    path = tmp_path / "pods.json"
    path.write_text(json.dumps({"kind": "List", "items": [wish("a", cpu="1"), wish("b", cpu="1")]}))
    assert run(str(path)).stdout.count("the pod is Guaranteed") == 2


@pytest.mark.parametrize(("environment", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_help_stands_out_and_what_is_short_is_red(
    environment: dict[str, str], *, is_coloured: bool
) -> None:
    arguments = ("explain", "-m", "align-up-article", "--replicas", "2")
    text = on_terminal(100, *arguments, **environment)
    assert ("\x1b" in text) == is_coloured
    assert ("\x1b[1mwhat would help\x1b[0m" in text) == is_coloured
    assert ("\x1b[31m0\x1b[0m" in text) == is_coloured
    assert ("\x1b[1;31mnvidia.com/gpu\x1b[0m" in text) == is_coloured


@pytest.mark.parametrize(
    ("numa_nodes", "preferred", "verdicts"),
    [
        ([(0,), (0,)], [True, True], ("no, left out", "yes")),
        ([(0,), None], [True, True], ("no, left out", "yes")),
        ([(0,), None], [True, False], ("no, left out", "no")),
        ([(0,), (0, 1)], [True, True], ("no, left out", "yes, left out")),
        ([None, (0, 1)], [True, False], ("no, left out", "")),
    ],
)
def test_what_the_documents_make_of_a_row_is_told_where_it_differs(
    numa_nodes, preferred, verdicts
) -> None:
    """By them a row counts by its NUMA nodes alone, and is preferred if all its hints are."""
    hints = tuple(map(Choice, numa_nodes, preferred))
    row = Row(hints, (0,), preferred=False, considered=False)
    assert product_cells(row)[-2:] == verdicts
    assert product_cells(replace(row, considered=True))[-2:] == (
        "no",
        "yes" if all(preferred) else "",
    )
