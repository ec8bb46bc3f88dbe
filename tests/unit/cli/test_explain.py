"""`alignup explain`: verdict, cause, picture and help, then tables; one JSON object a line.

Statuses 0, 1 and 2.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from alignup.cli.program import program
from alignup.errors import InputError
from alignup.machine.load import catalog_entries
from inputs.cluster_files import node_line

SCHEMA = Path(__file__).parents[3] / "docs" / "explanation.schema.json"
GPU = "nvidia.com/gpu"


def pod(name: str, **limits: str) -> dict[str, Any]:
    resources = {"limits": {"memory": "1Gi", **limits}}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "uid": name},
        "spec": {"containers": [{"name": "main", "resources": resources}]},
    }


@pytest.fixture
def conflict(tmp_path: Path) -> str:
    """Three pods, of which the last is refused on the article's machine."""
    pods = [
        pod("trainer", cpu="1", **{GPU: "1"}),
        pod("batch", cpu="4"),
        pod("new", cpu="2", **{GPU: "1"}),
    ]
    path = tmp_path / "pods.json"
    path.write_text(json.dumps({"kind": "List", "items": pods}))
    return str(path)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(program, ["explain", "-m", "align-up-article", *arguments])


def test_the_verdict_the_cause_the_picture_and_the_help_come_first(conflict: str) -> None:
    done = run(conflict)
    refused = done.stdout.split("\n\n✗ ", 1)[1].splitlines()

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
    assert done.stdout.startswith(
        "✓ default/trainer admitted (single-numa-node, scope container)\n  aligned on NUMA node 0"
    )


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
        manifest.write_text(json.dumps(pod("new", **limits)))
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
    large = pod("large", cpu="6", **{GPU: "3"})
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
    pods = [pod(f"p{number}", cpu="1") for number in range(4)] + [
        pod("z", cpu="3"),
        pod("new", cpu="2"),
    ]
    path, config = tmp_path / "pods.json", tmp_path / "kubelet.json"
    path.write_text(json.dumps({"kind": "List", "items": pods}))
    config.write_text(json.dumps({"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}))
    shown = (
        CliRunner()
        .invoke(program, ["explain", "-m", "align-up-article", "-c", str(config), str(path)])
        .stdout
    )
    refused = shown.split("\n\n✗ ", 1)[1].splitlines()

    assert "  1. remove pod default/z, which holds 3 CPUs" in refused
    [picture] = [line for line in refused if line.startswith("cpu") and "■" in line]
    assert "default/z, default/p0 and 3 more" in picture


@pytest.mark.parametrize("machine", list(catalog_entries()))
def test_pods_that_every_catalog_machine_refuses_are_drawn(machine: str, tmp_path: Path) -> None:
    """Also where NUMA nodes have memory and no CPUs."""
    entry = catalog_entries()[machine]
    path, config = tmp_path / "pod.json", tmp_path / "kubelet.json"

    limits = dict.fromkeys(entry.devices, "99")
    path.write_text(json.dumps(pod("large", cpu="9999", **(limits | {"memory": "99Ti"}))))

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
    lines = [
        " ".join(line.split()) for line in run(conflict).stdout.split("\n\n✗ ", 1)[1].splitlines()
    ]

    start = lines.index("resource asked offered NUMA node there free")
    assert lines[start + 2] == "cpu 2 0; 0+1 (not preferred) 0 4 3"
    assert "held, cpu, NUMA node 0: default/trainer/main 1" in lines[start:]


def test_the_example_of_the_article_has_27_rows() -> None:
    done = run("--product")

    assert done.exit_code == 0
    assert "\n27 rows; single-numa-node leaves out rows" in done.stdout
    assert "\n27 rows" not in run().stdout


def test_json_is_one_object_a_line(conflict: str) -> None:
    done = run("--json", conflict)
    answers = [json.loads(line) for line in done.stdout.splitlines()]

    assert [answer["admitted"] for answer in answers] == [True, True, False]
    assert answers[-1]["suggestions"][0]["try"] == {"remove": ["trainer"]}
    assert "product" not in answers[-1]["steps"][0]
    with_rows = json.loads(run("--json", "--product").stdout)
    assert with_rows["steps"][0]["product"]["count"] == 27


def test_wide_machines_and_many_pods_are_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "pods.json"
    path.write_text(
        json.dumps({"kind": "List", "items": [pod(f"p{number}", cpu="1") for number in range(26)]})
    )
    done = CliRunner().invoke(program, ["explain", "-m", "dgx-h100", str(path)])

    assert "and 5 more containers" in done.stdout


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
    wide = pod("wide", cpu="1")
    wide["spec"]["containers"][0]["resources"]["limits"]["memory"] = "20Gi"
    burst = pod("burst", cpu="1")
    burst["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "500m"}
    pods.write_text(json.dumps({"kind": "List", "items": [wide, pod("small", cpu="1"), burst]}))
    done = run("-c", str(config), str(pods))

    assert done.exit_code == 0
    assert (
        "NUMA nodes 0+1 supply memory only together, because of the memory of default/wide"
        in done.stdout
    )
    assert "only together" not in done.stdout.partition("default/burst")[2]
    assert "container 'main' requests less cpu than its limit" in done.stdout
    assert "(each was tried)" in done.stdout


def test_bad_input_has_status_2(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("kind: Pod\nmetadata: {}\n")

    assert isinstance(run(str(path)).exception, InputError)  # which `main` makes 2
    assert CliRunner().invoke(program, ["explain", "--nonsense"]).exit_code == 2


def test_admit_shows_hints_too() -> None:
    done = CliRunner().invoke(program, ["admit", "-m", "align-up-article", "--hints"])

    assert done.exit_code == 0
    rows = [line.split("  ") for line in done.stdout.splitlines() if "nodes 0+1" in line]
    assert len(rows) == 6
    answer = json.loads(
        CliRunner().invoke(program, ["admit", "-m", "align-up-article", "--hints", "--json"]).stdout
    )
    first = answer["containers"]["numa-aligned-container0"]["hints"]
    assert first["cpu"]["cpu"][-1] == {"numaNodes": [0, 1], "preferred": False}
    arguments = ["admit", "-m", "align-up-article", "--hints", "--kubelet-version", "1.33,1.36"]
    assert CliRunner().invoke(program, arguments).exit_code == 2


def test_hints_of_a_replay_and_of_an_admission_are_the_same(tmp_path: Path) -> None:
    """Also where the pod is judged as a whole."""
    config = tmp_path / "kubelet.json"
    fields = {
        "topologyManagerPolicy": "restricted",
        "topologyManagerScope": "pod",
        "cpuManagerPolicy": "static",
    }
    config.write_text(json.dumps({**fields, "reservedSystemCPUs": "0"}))
    arguments = ["admit", "-m", "align-up-article", "--hints", "-c", str(config)]

    answer = json.loads(CliRunner().invoke(program, [*arguments, "--json"]).stdout)
    assert answer["podHints"]["cpu"]["cpu"] == [
        {"numaNodes": [1], "preferred": True},
        {"numaNodes": [0, 1], "preferred": False},
    ]
    assert "the whole pod" in CliRunner().invoke(program, arguments).stdout


def test_other_nodes_that_would_take_a_refused_pod(conflict: str, tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.jsonl"
    nodes.write_text(f"{node_line('empty')}\n{node_line('small', cores=1)}\n")
    refused = tmp_path / "refused.json"
    refused.write_text(json.dumps(pod("wide", cpu="5")))

    answer = json.loads(run("--json", "--nodes", str(nodes), str(refused)).stdout)
    Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(answer)

    assert (answer["admitted"], answer["cluster"]["nodes"], answer["cluster"]["admitting"]) == (
        False,
        2,
        1,
    )
    assert answer["cluster"]["best"][0]["node"] == "empty"
    assert (
        "1 of 2 other nodes would take it now: empty"
        in run("--nodes", str(nodes), str(refused)).stdout
    )
    assert "cluster" not in json.loads(
        run("--json", "--nodes", str(nodes), conflict).stdout.splitlines()[0]
    )


def test_what_is_ignored_is_said_as_by_admit(tmp_path: Path) -> None:
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(pod("x", cpu="1", **{"example.com/fpga": "1"})))

    assert (
        "example.com/fpga is not on this machine; ignored, as a kubelet does"
        in run(str(path)).stderr
    )


def test_pictures_and_pages_are_files(alignup, tmp_path) -> None:
    """The picture is that of the first pod that is refused; the page has all pods."""
    svg, html = tmp_path / "why.svg", tmp_path / "why.html"
    ended = alignup(
        "explain", "--machine", "align-up-article", "--replicas", 3, "--svg", svg, "--html", html
    )

    assert (ended.status, ended.err) == (1, "")
    assert ended.out
    assert "default/numa-aligned-1 refused: TopologyAffinityError" in svg.read_text()
    assert all(f"numa-aligned-{number}" in html.read_text() for number in range(3))


def test_a_picture_on_standard_output_is_alone(alignup) -> None:
    ended = alignup("explain", "--machine", "align-up-article", "--svg", "-")

    assert ended.status == 0
    assert ended.out.startswith("<svg ")
    assert "default/numa-aligned admitted" in ended.out
    assert ended.out.endswith("</svg>\n")


def dead(name: str, cpus: str, **status: str) -> dict[str, Any]:
    made = pod(name, cpu=cpus)
    made["spec"]["nodeName"] = "n1"
    kubelet_status = {
        "phase": "Failed",
        "reason": "TopologyAffinityError",
        "message": "Pod was rejected: why",
    }
    return {**made, "status": kubelet_status | status}


@pytest.mark.parametrize(
    ("cpus", "status", "sentence"),
    [
        ("6", 1, "It would be rejected again. As of now:"),
        ("2", 0, "There is room now: its replacement would be admitted."),
    ],
)
def test_a_pod_that_died_is_explained(
    tmp_path: Path, cpus: str, status: int, sentence: str
) -> None:
    """The first sentence of the README: why it was refused, and whether there is room now."""
    file = tmp_path / "dead.json"
    file.write_text(json.dumps(dead("db", cpus)))
    done = run(str(file))
    answered = run("--json", str(file))
    [line] = [json.loads(answer) for answer in answered.stdout.splitlines()]

    assert done.exit_code == answered.exit_code == status
    assert done.stdout.startswith(
        "default/db was rejected: TopologyAffinityError (why)\n" + sentence
    )
    assert {key: line[key] for key in ("pod", "namespace", "admitted")} == {
        "pod": "default/db",
        "namespace": "default",
        "admitted": not status,
    }
    assert line["was"] == {"reason": "TopologyAffinityError", "message": "Pod was rejected: why"}
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(line)


def test_a_pod_that_died_is_explained_after_those_that_live(tmp_path: Path) -> None:
    """And is not there afterwards."""
    items = [dead("dead", "2"), pod("alive", cpu="2"), dead("dead2", "2")]
    file = tmp_path / "l.json"
    file.write_text(json.dumps({"kind": "List", "items": items}))
    lines = [json.loads(answer) for answer in run("--json", str(file)).stdout.splitlines()]

    assert [(answer["pod"], answer["admitted"]) for answer in lines] == [
        ("default/alive", True),
        ("default/dead", True),
        ("default/dead2", True),
    ]
    chosen = run("--json", "--pod", "default/dead2", str(file))
    assert [json.loads(line)["pod"] for line in chosen.stdout.splitlines()] == ["default/dead2"]


@given(
    cpus=st.lists(st.integers(1, 8), min_size=1, max_size=6),
    dead_at=st.sets(st.integers(0, 5)),
    which=st.integers(0, 5),
)
def test_one_pod_is_explained_as_it_is_among_all(
    tmp_path_factory: pytest.TempPathFactory, cpus: list[int], dead_at: set[int], which: int
) -> None:
    """Pods of the input that are not asked about hold what they hold all the same.

    Those that ended are not told.
    """
    items = [
        dead(f"p{n}", str(count)) if n in dead_at else pod(f"p{n}", cpu=str(count))
        for n, count in enumerate(cpus)
    ]
    name = f"default/p{which % len(cpus)}"
    file = tmp_path_factory.mktemp("l") / "l.json"
    file.write_text(json.dumps({"kind": "List", "items": items}))
    among = [json.loads(line) for line in run("--json", str(file)).stdout.splitlines()]
    items.append(dead("over", "1", phase="Succeeded"))
    file.write_text(json.dumps({"kind": "List", "items": items}))
    alone = run("--json", "--pod", name, str(file))

    assert [json.loads(line) for line in alone.stdout.splitlines()] == [
        answer for answer in among if answer["pod"] == name
    ]
    assert alone.stderr == ""


def test_pods_that_ended_otherwise_are_said(alignup, write) -> None:
    items = [dead("a", "1", reason="Evicted"), dead("b", "1", phase="Succeeded")]
    ended = alignup(
        "explain", "-m", "align-up-article", write("l.json", {"kind": "List", "items": items})
    )

    assert (ended.status, ended.out) == (2, "")
    assert ended.err.splitlines() == [
        "alignup: pod default/a has ended (Failed, Evicted) and is ignored",
        "alignup: pod default/b has ended (Succeeded, TopologyAffinityError) and is ignored",
        "alignup: no pod is left",
    ]


class TestLog:
    """Refusals that a kubelet's log tells of."""

    LOG = Path(__file__).parents[2] / "logs/1.36-restricted.log"

    def test_json_is_a_line_a_pod(self, alignup):
        ended = alignup("explain", "--log", self.LOG, "--json", "--product")
        assert ended.status == 1
        assert [answer["pod"] for answer in ended.lines] == [
            f"default/{name}" for name in ("wide", "gpus", "mem", "cpus")
        ]
        for answer in ended.lines:
            Draft202012Validator(json.loads(SCHEMA.read_text())).validate(answer)
            assert answer["log"]["agrees"] is True

    @pytest.mark.parametrize("pod", ["default/gpus", "gpus"])
    def test_a_pod_is_picked(self, alignup, pod):
        ended = alignup("explain", "--log", self.LOG, "--pod", pod)
        assert ended.status == 1
        assert "not enough example.com/gpu is free: 3 asked, 1 free" in ended.out
        assert "wide" not in ended.out

    @pytest.mark.parametrize("packed", [False, True])
    def test_standard_input_is_read_gzipped_or_not(self, alignup, packed):
        data = self.LOG.read_bytes()
        ended = alignup("explain", "--log", "-", stdin=gzip.compress(data) if packed else data)
        assert (ended.status, ended.out) == (1, alignup("explain", "--log", self.LOG).out)

    def test_a_log_of_no_refusal_is_told_in_a_sentence(self, alignup):
        lines = [
            line
            for line in self.LOG.read_bytes().splitlines(keepends=True)
            if b"default/" not in line
        ]
        ended = alignup("explain", "--log", "-", stdin=b"".join(lines))
        assert (ended.status, ended.out) == (0, "the log tells of no refusal\n")
        ended = alignup("explain", "--log", self.LOG, "--pod", "default/a")
        assert (ended.status, ended.out) == (0, "the log tells of no refusal of default/a\n")

    def test_another_file_is_refused_with_the_command_that_gets_one(self, alignup, write):
        ended = alignup("explain", "--log", write("pod.json", {"kind": "Pod"}))
        assert ended.complains("is of a kubelet's log", "journalctl -u kubelet > kubelet.log")

    def test_a_log_goes_alone(self, alignup):
        ended = alignup("explain", "--log", self.LOG, "pod.yaml")
        assert (ended.status, ended.out) == (2, "")
        assert "--log goes without pods" in ended.err

    def test_lines_that_the_journal_left_out_are_told(self, alignup):
        omitted = b'{"__REALTIME_TIMESTAMP": "1", "MESSAGE": null}\n'
        assert (
            "journalctl -o json needs --all"
            in alignup("explain", "--log", "-", stdin=self.LOG.read_bytes() + omitted).err
        )
