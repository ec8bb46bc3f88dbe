"""`--node` of `admit` and `machine`: the node of a kubelet, with the pods it has."""

from __future__ import annotations

import json

from kubelet_files import EXAMPLE

ARCHIVE = EXAMPLE / "root.tar.xz"


def test_pods_are_admitted_after_those_of_the_kubelet(alignup, tmp_path):
    """The verdicts are the kubelet's own on the same pods."""
    manifests = (EXAMPLE / "next.jsonl").read_text().splitlines()
    (tmp_path / "pods.yaml").write_text("".join(f"---\n{line}\n" for line in manifests))
    ended = alignup("admit", "--node", ARCHIVE, "--json", tmp_path / "pods.yaml")
    verdicts = [json.loads(line) for line in (EXAMPLE / "verdicts.jsonl").read_text().splitlines()]
    assert [(one["admitted"], one["reason"] or None) for one in ended.lines] == [
        (one["admitted"], one.get("reason")) for one in verdicts
    ]
    assert ended.status == 1
    assert "KubeletConfiguration" not in ended.err


def test_devices_and_release_can_be_given(alignup, tmp_path):
    (tmp_path / "pod.yaml").write_text((EXAMPLE / "next.jsonl").read_text().splitlines()[0])
    devices = {"nvidia.com/gpu": [{"id": "g", "numa": 2}], "example.com/nic": [{"id": "n", "numa": 2}]}
    (tmp_path / "devices.json").write_text(json.dumps(devices))
    words = ("--node", ARCHIVE, "--devices", tmp_path / "devices.json", "--kubelet-version", "1.33", "--json")
    ended = alignup("admit", *words, tmp_path / "pod.yaml")
    assert ended.status == 0
    assert ended.lines[0]["containers"]["c0"]["devices"] == {
        "example.com/nic": ["n"],
        "nvidia.com/gpu": ["g"],
    }


def test_options_that_do_not_go_together_are_wrong_usage(alignup):
    ended = alignup("admit", "--node", ARCHIVE, "--near-cpus", "x.yaml")
    assert ended.status == 2
    assert "--near-cpus do not go with it" in ended.err
    assert alignup("machine", "--node", ARCHIVE, "--machine", "dgx-h100").status == 2


def test_the_machine_of_a_node_comes_with_its_devices_and_configuration(alignup):
    (line,) = alignup("machine", "--node", ARCHIVE, "--json").lines
    assert len(line["numaNodes"]) == 4
    assert {one["id"] for one in line["devices"]["example.com/nic"]} == {"nic0", "nic1", "nic2"}
    assert line["kubelet"]["topologyManagerPolicy"] == "restricted"


def test_a_node_without_files_is_one_line(alignup, tmp_path):
    assert alignup("machine", "--node", tmp_path).complains("expected files of a kubelet")
