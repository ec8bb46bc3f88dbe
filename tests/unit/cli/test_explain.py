"""`alignup explain`: one JSON object a line, statuses 0, 1 and 2, and which pods are explained."""

from __future__ import annotations

import asyncio
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from alignup import Node, read_machine
from alignup.cli.explain import Question, answer_question
from alignup.cli.program import program
from alignup.control_plane.api_server.api_client import TOPOLOGIES, Api
from alignup.control_plane.scheduler import ask as asking
from alignup.errors import InputError
from fakes.api_server import NODES, PODS
from fakes.published_nodes import published_nodes
from inputs.cluster_files import node_line
from inputs.kernel_trees import server
from inputs.kubelet_files import CONFIG, EXAMPLE, guaranteed, write_node, write_root
from inputs.watched_objects import pod_object, topology

SCHEMA = Path(__file__).parents[3] / "docs" / "explanation.schema.json"
GPU = "nvidia.com/gpu"
HEAD_OF_REFUSAL = "✗ default/w refused: TopologyAffinityError (single-numa-node, scope container)"


def pod(name: str, **limits: str) -> dict[str, Any]:
    resources = {"limits": {"memory": "1Gi", **limits}}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "uid": name},
        "spec": {"containers": [{"name": "main", "resources": resources}]},
    }


def run(*arguments: str) -> Any:
    return CliRunner().invoke(program, ["explain", "-m", "align-up-article", *arguments])


def test_json_is_one_object_a_line(conflict: str) -> None:
    done = run("--json", conflict)
    answers = [json.loads(line) for line in done.stdout.splitlines()]

    assert [answer["admitted"] for answer in answers] == [True, True, False]
    assert answers[-1]["suggestions"][0]["try"] == {"remove": ["trainer"]}
    assert "product" not in answers[-1]["steps"][0]
    with_rows = json.loads(run("--json", "--product").stdout)
    assert with_rows["steps"][0]["product"]["count"] == 27


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


def test_hints_of_1_38_have_scores() -> None:
    """In JSON, in the table of an admission, and in the cross product of an explanation."""
    arguments = ["admit", "-m", "align-up-article", "--kubelet-version", "1.38", "--hints"]
    answer = json.loads(CliRunner().invoke(program, [*arguments, "--json"]).stdout)
    first = answer["containers"]["numa-aligned-container0"]["hints"]
    assert first["cpu"]["cpu"] == [
        {"numaNodes": [0], "preferred": True, "score": 1},
        {"numaNodes": [1], "preferred": True, "score": 1},
        {"numaNodes": [0, 1], "preferred": False, "score": 1},
    ]

    table = CliRunner().invoke(program, arguments).stdout
    assert "scores" in table
    assert "0: 1, 1: 1, 0+1: 1" in table

    done = run("--kubelet-version", "1.38", "--json", "--product")
    explanation = json.loads(done.stdout)
    Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(explanation)
    step = explanation["steps"][0]
    assert step["best"] == {"numaNodes": [0], "preferred": True, "score": 1}
    assert step["product"]["rows"][0]["score"] == 1
    assert "NUMA node 0 (score 1)" in run("--kubelet-version", "1.38", "--product").stdout
    assert "score" not in run("--product").stdout
    assert "score" not in run("--json", "--product").stdout


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


@pytest.mark.parametrize("option", ["--svg", "--html"])
def test_a_pod_that_is_on_the_node_already_is_said_and_not_drawn(
    alignup, tmp_path, write, option
) -> None:
    root = write_root(tmp_path / "root", server(cores=4, nodes=2))
    node = Node(read_machine(root), CONFIG)
    there = guaranteed("there", (2, 1, 0))
    there["metadata"]["uid"] = "there"
    assert node.admit(there)
    write_node(root, node, [there])
    picture = tmp_path / "picture"

    ended = alignup("explain", "--node", root, write("there.json", there), option, picture)

    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith("default/there: it is on the node already\n")
    assert not picture.exists()


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


def test_of_a_resource_that_is_not_known_here_there_may_be_room_or_not(tmp_path: Path) -> None:
    manifest = dead("db", "2")
    limits = manifest["spec"]["containers"][0]["resources"]["limits"]
    limits["example.com/fuse"] = "1"
    file = tmp_path / "dead.json"
    file.write_text(json.dumps(manifest))
    done = run(str(file))
    assert "Whether there is room now is not known: nothing here tells of example.com/fuse" in (
        done.stdout
    )
    assert "There is room now" not in done.stdout


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
    items = [pod(f"p{number}", cpu=str(count)) for number, count in enumerate(cpus)]
    for number in dead_at & set(range(len(cpus))):
        items[number] = dead(f"p{number}", str(cpus[number]))

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


def test_without_pods_the_command_that_packs_them_is_named(alignup, tmp_path) -> None:
    root = tmp_path / "root"
    with tarfile.open(EXAMPLE / "root.tar.xz") as archive:
        archive.extractall(root, filter="data")
    (root / "pods.json").unlink()
    assert alignup("explain", "--node", root).complains(
        "has no list of pods (pods.json); name a POD.yaml, or an archive with pods",
        "`alignup node collect FILE --pods PODS.json` packs one",
    )


@pytest.mark.parametrize(
    ("pod", "node_name", "cpus", "status", "head", "end"),
    [
        (
            "default/w",
            None,
            4,
            1,
            "default/w: 0 of 3 nodes would admit it",
            "With 1 eviction it has a place on a: default/y on a (see `alignup rebalance`)",
        ),
        ("default/w", None, 2, 0, "default/w: 3 of 3 nodes would admit it", "yes"),
        ("default/w", "b", 4, 1, HEAD_OF_REFUSAL, "Node b, of which all holdings are known."),
        (
            "default/w",
            "amounts",
            4,
            1,
            HEAD_OF_REFUSAL,
            "Node amounts, of which only amounts are known.",
        ),
        (
            "default/rejected",
            None,
            4,
            1,
            "default/rejected was rejected: SMTAlignmentError (no)",
            "Node a, of",
        ),
        ("default/rejected", "b", 4, 1, "✗ default/rejected refused", "Node b, of"),
        ("default/x", None, 4, 0, "default/x is on node a, Running", ""),
        ("default/x", "b", 4, 1, "✗ default/x refused", "Node b, of"),
        ("default/ended", None, 4, 1, "✗ default/ended refused", "Node a, of"),
    ],
)
def test_why_in_words(pod, node_name, cpus, status, head, end, monkeypatch, capsys) -> None:
    """What is said first of a pod of a cluster, and last, before what is not looked at."""

    async def scenario() -> int:
        async with published_nodes(a=(("x", 3), ("y", 2)), b=(("z", 3), ("u", 2))) as (stub, api):
            await stub.put(NODES, {"metadata": {"name": "amounts"}})
            await stub.put(TOPOLOGIES, topology("amounts", cpu=[0, 2]))
            await stub.put(PODS, pod_object("w", cpu=cpus))

            rejected = pod_object("rejected", "a", cpu=4)
            rejected["status"] = {
                "phase": "Failed",
                "reason": "SMTAlignmentError",
                "message": "Pod was rejected: no",
            }
            await stub.put(PODS, rejected)
            ended = pod_object("ended", "a", cpu=4)
            ended["status"] = {"phase": "Succeeded"}
            await stub.put(PODS, ended)

            async def connect(*_: object) -> Api:
                return Api(api._configuration)

            monkeypatch.setattr(asking.api_client.Api, "connect", connect)
            question = Question(pod=pod, node_name=node_name)
            return await asyncio.to_thread(answer_question, question)

    assert asyncio.run(scenario()) == status
    out = capsys.readouterr().out.strip()
    before, _, not_known = out.partition("From what nodes publish. Not looked at: taints, ")
    assert out.startswith(head)
    assert end in before.strip().splitlines()[-1]
    assert bool(not_known) is (out != head)


@pytest.mark.parametrize("has_places", [True, False])
@pytest.mark.parametrize("as_json", [True, False])
def test_why_a_rejected_pod_without_the_gate(has_places, as_json, monkeypatch, capsys) -> None:
    """It is told where others have places from the keeper of the gates."""

    async def scenario() -> None:
        async with published_nodes(a=(("x", 3),)) as (stub, api):
            rejected = pod_object("rejected", "a", cpu=4)
            rejected["status"] = {"phase": "Failed", "reason": "TopologyAffinityError"}
            await stub.put(PODS, rejected)
            placed = pod_object("placed", "")
            if has_places:
                placed["metadata"]["annotations"] = {"alignup.dev/place": "a"}
            await stub.put(PODS, placed)

            async def connect(*_: object) -> Api:
                return Api(api._configuration)

            monkeypatch.setattr(asking.api_client.Api, "connect", connect)
            question = Question(pod="default/rejected", as_json=as_json)
            await asyncio.to_thread(answer_question, question)

    asyncio.run(scenario())
    out = capsys.readouterr().out
    words = "default/rejected came to its node without the gate alignup.dev/room: "
    if as_json:
        assert json.loads(out).get("standing", "").startswith(words) == has_places
        assert ("standing" in json.loads(out)) == has_places
    else:
        assert (words in out) == has_places


def member(name: str, cpu: str, size: int = 4, group: str = "train") -> dict[str, Any]:
    manifest = pod(name, cpu=cpu)
    manifest["metadata"] |= {
        "labels": {"alignup.dev/group": group},
        "annotations": {"alignup.dev/group-size": str(size)},
    }
    return manifest


def explained_groups(tmp_path: Path, *manifests: dict[str, Any]) -> tuple[str, list[dict]]:
    """Return what is said in words, and the groups of the answers in JSON."""
    path = tmp_path / "pods.yaml"
    path.write_text("\n---\n".join(map(json.dumps, manifests)))
    answers = [json.loads(line) for line in run("--json", str(path)).stdout.splitlines()]
    validator = Draft202012Validator(json.loads(SCHEMA.read_text()))
    for answer in answers:
        validator.validate(answer)
    return run("--tables", "none", str(path)).stdout, [
        answer["group"] for answer in answers if "group" in answer
    ]


def test_three_of_four_members_fit(tmp_path: Path) -> None:
    """The answer is on the line of the last member; what comes between counts as well."""
    pods = [member(f"m{number}", "2") for number in range(3)]
    text, (group,) = explained_groups(tmp_path, *pods, pod("other", cpu="1"), member("m3", "2"))
    reason = group.pop("reason")
    assert group == {
        "name": "default/train",
        "kind": "alignup",
        "members": 4,
        "needed": 4,
        "fitting": 3,
    }
    assert reason.startswith("3 of 4 members fit; m3 lacks a place: not enough cpu is free: ")
    assert f"\nGroup default/train: {reason}" in text

    text, groups = explained_groups(tmp_path, *pods, member("m3", "1"), pod("alone", cpu="1"))
    assert [group["reason"] for group in groups] == ["4 of 4 members fit"]
    assert "\nGroup default/train: 4 of 4 members fit\n" in text


def test_members_that_are_not_in_the_input_and_numbers_that_cannot_be_read(tmp_path: Path) -> None:
    unreadable = member("u", "1", group="other")
    del unreadable["metadata"]["annotations"]
    _, groups = explained_groups(tmp_path, member("m0", "1", size=3), unreadable, pod("p", cpu="1"))
    assert [group["name"] for group in groups] == ["default/train", "default/other"]
    assert groups[0]["reason"] == "1 of 3 members are there; 1 of 1 members fit"
    assert "how many members the group has" in groups[1]["reason"]


def test_an_object_of_the_input_says_how_many_members_there_are(tmp_path: Path) -> None:
    manifests = []
    for number in range(2):
        manifest = pod(f"m{number}", cpu="1")
        manifest["spec"]["schedulingGroup"] = {"podGroupName": "gang"}
        manifests.append(manifest)

    _, (group,) = explained_groups(tmp_path, *manifests)
    assert (group["needed"], group["reason"]) == (2, "2 of 2 members fit")
    gang = {
        "kind": "PodGroup",
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "metadata": {"name": "gang"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
    }
    _, (group,) = explained_groups(tmp_path, gang, *manifests)
    assert group["reason"] == "2 of 3 members are there; 2 of 2 members fit"


def test_one_chosen_pod_tells_nothing_of_its_group(tmp_path: Path) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text("\n---\n".join(json.dumps(member(f"m{number}", "2")) for number in range(2)))
    assert "Group" not in run("--pod", "default/m1", str(path)).stdout
