"""`--node` of `admit` and `machine`: the node of a kubelet, with the pods it has."""

from __future__ import annotations

import json
import re
import tarfile
from typing import Any

import pytest

from inputs.kubelet_files import EXAMPLE

ARCHIVE = EXAMPLE / "root.tar.xz"


def test_pods_are_admitted_after_those_of_the_kubelet(alignup, tmp_path):
    """The verdicts are the kubelet's own on the same pods."""
    manifests = (EXAMPLE / "next.jsonl").read_text().splitlines()
    (tmp_path / "pods.yaml").write_text("".join(f"---\n{line}\n" for line in manifests))
    ended = alignup("admit", "--node", ARCHIVE, "--json", tmp_path / "pods.yaml")
    verdicts = [json.loads(line) for line in (EXAMPLE / "verdicts.jsonl").read_text().splitlines()]
    assert [(answer["admitted"], answer["reason"] or None) for answer in ended.lines] == [
        (verdict["admitted"], verdict.get("reason")) for verdict in verdicts
    ]
    assert ended.status == 1
    assert "KubeletConfiguration" not in ended.err


def test_devices_and_release_can_be_given(alignup, tmp_path):
    (tmp_path / "pod.yaml").write_text((EXAMPLE / "next.jsonl").read_text().splitlines()[0])

    devices = {
        "nvidia.com/gpu": [{"id": "g", "numa": 2}],
        "example.com/nic": [{"id": "n", "numa": 2}],
    }
    (tmp_path / "devices.json").write_text(json.dumps(devices))

    arguments = (
        "--node",
        ARCHIVE,
        "--devices",
        tmp_path / "devices.json",
        "--kubelet-version",
        "1.33",
        "--json",
    )

    ended = alignup("admit", *arguments, tmp_path / "pod.yaml")
    assert ended.status == 0
    assert ended.lines[0]["containers"]["c0"]["devices"] == {
        "example.com/nic": ["n"],
        "nvidia.com/gpu": ["g"],
    }


def test_options_that_do_not_go_together_are_wrong_usage(alignup):
    ended = alignup("admit", "--node", ARCHIVE, "--near-cpus", "x.yaml")
    assert ended.status == 2
    assert "--near-cpus cannot be used with --node" in ended.err
    assert alignup("machine", "--node", ARCHIVE, "--machine", "dgx-h100").status == 2


def test_the_machine_of_a_node_comes_with_its_devices_and_configuration(alignup):
    (line,) = alignup("machine", "--node", ARCHIVE, "--json").lines
    assert len(line["numaNodes"]) == 4
    assert {device["id"] for device in line["devices"]["example.com/nic"]} == {
        "nic0",
        "nic1",
        "nic2",
    }
    assert line["kubelet"]["topologyManagerPolicy"] == "restricted"


def test_a_node_without_files_is_one_line(alignup, tmp_path):
    assert alignup("machine", "--node", tmp_path).complains("no files of a kubelet")


def node_pods() -> dict[str, Any]:
    """The pods of the archive, as kubectl prints them."""
    with tarfile.open(ARCHIVE) as archive:
        file = next(member for member in archive.getmembers() if member.name.endswith("pods.json"))
        return json.load(archive.extractfile(file))


def pending(name: str, cpus: str = "1") -> dict[str, Any]:
    resources = {"limits": {"cpu": cpus, "memory": "1Gi"}}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "uid": f"u-{name}"},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
        "status": {"phase": "Pending"},
    }


def test_pods_that_are_there_already_are_told_apart(alignup, write):
    """The very list of the node's pods, with one that is pending."""
    listed = node_pods()
    running = [
        pod["metadata"]["name"] for pod in listed["items"] if pod["status"]["phase"] == "Running"
    ]
    listed["items"].append(pending("new"))
    file = write("pods.json", listed)
    ended = alignup("admit", "--node", ARCHIVE, "--json", file)

    assert ended.status == 0
    assert [answer["pod"] for answer in ended.lines if answer.get("isThere")] == running
    assert [answer["pod"] for answer in ended.lines if not answer.get("isThere")] == ["new"]
    pending_answer = next(answer for answer in ended.lines if answer["pod"] == "p51-04-node-real")
    assert (pending_answer["admitted"], pending_answer["containers"]["c0"]["cpus"]) == (True, "5")
    assert (
        "pod default/p51-02-node-real has ended (Failed, TopologyAffinityError) and is ignored"
        in ended.err
    )

    shown = alignup("admit", "--node", ARCHIVE, file).out
    assert shown.index("default/p51-04-node-real/c0") < shown.index("✓ default/new admitted")
    explained = alignup("explain", "--node", ARCHIVE, "--json", file)
    assert explained.status == 1  # for the rejected one
    assert [answer["pod"] for answer in explained.lines] == [
        *(f"default/{name}" for name in running),
        "default/new",
        "default/p51-02-node-real",
    ]


def test_the_rejected_pods_of_a_node_are_explained_newest_first(alignup, tmp_path):
    """Each as of now."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")

    listed = node_pods()
    for name, cpus, started in (
        ("old", "1", "2026-01-01T00:00:00Z"),
        ("big", "40", "2099-01-01T00:00:00Z"),
    ):
        dead = pending(name, cpus)
        dead["spec"]["nodeName"] = "node-real"
        dead["status"] = {
            "phase": "Failed",
            "reason": "TopologyAffinityError",
            "message": "why",
            "startTime": started,
        }
        listed["items"].append(dead)

    (tmp_path / "pods.json").write_text(json.dumps(listed))
    ended = alignup("explain", "--node", tmp_path, "--json")
    assert ended.status == 1
    assert [
        (answer["pod"], answer["admitted"])
        for answer in ended.lines
        if answer["uid"].startswith("u-")
    ] == [
        ("default/big", False),
        ("default/old", True),
    ]
    assert ended.lines[0]["pod"] == "default/big"
    assert all(answer["was"]["reason"] == "TopologyAffinityError" for answer in ended.lines)

    explained = alignup("explain", "--node", tmp_path, "--json", "--pod", "default/old")
    assert (explained.status, [line["uid"] for line in explained.lines]) == (0, ["u-old"])
    wrong = alignup("explain", "--node", tmp_path, "--pod", "default/none")
    assert wrong.complains(
        "no rejected pod 'default/none' is in the input, which has", "default/old"
    )
    assert "There is room now" in alignup("explain", "--node", tmp_path, "--pod", "old").out

    listed["items"] = [pod for pod in listed["items"] if pod["status"]["phase"] == "Running"]
    (tmp_path / "pods.json").write_text(json.dumps(listed))
    assert alignup("explain", "--node", tmp_path).complains("no pod of", "was rejected")


@pytest.mark.parametrize("columns", ["80", "100", ""])
def test_tables_of_explanations_fit(alignup, monkeypatch, columns):
    """A terminal of 80 or 100 columns, and a pipe.

    No row is wider, and no name is broken in two.
    """
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    out = alignup("explain", "--node", ARCHIVE).out
    rows = [line.rstrip() for line in out.splitlines() if "  " in line.strip() or "\u2500" in line]
    assert max(map(len, rows)) <= int(columns or 170)
    assert "default/p51-05-node-real/c0" in out
    assert out.count("p51-01-node-real/c0") >= 2


def wanted(name: str, **requests: str) -> dict[str, Any]:
    """A pod of the archive with other requests, and limits of as much where it has limits."""
    manifest = next(pod for pod in node_pods()["items"] if pod["metadata"]["name"] == name)
    for amounts in manifest["spec"]["containers"][0]["resources"].values():
        amounts.update(requests)
    return manifest


def test_resizes_in_place_are_asked_of_a_live_node(alignup, write):
    """The pods are there, with the resources that are wanted.

    Status 0 only if all are allocated.
    """
    same, more = wanted("p51-04-node-real"), wanted("p51-04-node-real", cpu="2")
    ended = alignup("admit", "--node", ARCHIVE, "--resize", "--json", write("same.json", same))
    assert (ended.status, ended.lines[0]["admitted"], ended.lines[0]["reason"]) == (
        0,
        True,
        "allocated",
    )

    ended = alignup("admit", "--node", ARCHIVE, "--resize", "--json", write("more.json", more))
    (line,) = ended.lines
    assert (ended.status, line["admitted"], line["reason"]) == (1, False, "Infeasible")
    assert line["message"].endswith('alongside CPU Manager policy "static"')
    assert line["containers"]["c0"]["cpus"] == "5"

    shown = alignup("admit", "--node", ARCHIVE, "--resize", write("more.json", more))
    assert "default/p51-04-node-real resize: Infeasible" in shown.out
    assert re.search(r"^container +NUMA nodes .*\n.*\nc0 +any +- +5 ", shown.out, re.MULTILINE)


def test_pods_to_resize_may_be_written_as_of_several_nodes(alignup, write):
    """The node has their uids or names, and what else the files say does not count."""
    names = ["p51-04-node-real", "p51-05-node-real"]
    pods = [wanted(name) for name in names]
    for number, pod in enumerate(pods):
        pod["spec"]["nodeName"] = f"n{number}"
    items = {"kind": "List", "items": pods}
    ended = alignup("admit", "--node", ARCHIVE, "--resize", "--json", write("pods.json", items))
    assert [line["pod"] for line in ended.lines] == names


@pytest.mark.parametrize(
    ("count", "words"),
    [(8, "p0, default/p1, .*, default/p7$"), (9, "p0, default/p1, .*, default/p7 and 1 more$")],
)
def test_of_pods_that_are_there_up_to_eight_are_named(alignup, write, count, words):
    items = [pending(f"p{number}") for number in range(count)]
    file = write("pods.json", {"kind": "List", "items": items})
    ended = alignup("explain", "--node", ARCHIVE, file, "--pod", "none")
    assert ended.status == 2
    assert re.search(
        f"no pod 'none' is in the input, which has default/{words}", ended.err, re.MULTILINE
    )


def test_a_resize_is_explained(alignup, write):
    file = write("more.json", wanted("p51-04-node-real", cpu="2"))
    ended = alignup("explain", "--node", ARCHIVE, "--resize", "--json", file)
    (line,) = ended.lines
    assert (ended.status, line["reason"]) == (1, "Infeasible")
    # with the feature gate the resize would be allocated, and the container keep its CPU
    assert [suggestion["kind"] for suggestion in line["suggestions"]] == ["pod"]
    shown = alignup("explain", "--node", ARCHIVE, "--resize", file)
    assert "would help: delete the pod and create it with these resources" in shown.out


def test_what_stays_though_a_resize_is_allocated_is_said(alignup, write):
    with tarfile.open(ARCHIVE) as archive:
        member = archive.extractfile("./var/lib/kubelet/config.yaml")
        assert member is not None
        kubelet = json.load(member)

    kubelet["featureGates"] = {"InPlacePodVerticalScalingExclusiveCPUs": True}
    source = ("--node", ARCHIVE, "--config", write("kubelet.json", kubelet))
    source += ("--kubelet-version", "1.37")
    file = write("more.json", wanted("p51-04-node-real", cpu="2"))
    words = "but c0 keeps its 1 exclusive CPU (5), and does not get the 2 it asks for"
    for name in ("admit", "explain"):
        shown = alignup(name, *source, "--resize", file)
        assert (shown.status, words in shown.out) == (0, True), shown.err


def test_who_is_not_there_cannot_be_resized(alignup, write):
    file = write("new.json", pending("new"))
    assert alignup("admit", "--node", ARCHIVE, "--resize", file).complains(
        "on the node, got 'default/new'"
    )
    assert alignup("admit", "--resize", file).status == 2
    assert alignup("admit", "--node", ARCHIVE, "--resize").status == 2
