"""`--kubelet-version` of the subcommands: one release, or several that are compared."""

from __future__ import annotations

import json
from typing import Any

import pytest

from alignup import Node, read_machine
from alignup.kubernetes.versions import NEWEST, RELEASED
from inputs.kernel_trees import server
from inputs.kubelet_files import CONFIG, write_node, write_root

ARTICLE = ("admit", "--machine", "align-up-article")
STRICT = {
    "topologyManagerPolicy": "best-effort",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"},
}
ALPHA = {**STRICT, "cpuManagerPolicyOptions": {"align-by-socket": "true"}}
POD = {
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {
        "containers": [{"name": "c0", "resources": {"limits": {"cpu": "2", "memory": "1Mi"}}}]
    },
}
DEVICES = {"a/gpu": [{"id": "gpu0", "numa": [0]}, {"id": "gpu1", "numa": None}]}


def test_one_release_is_named_in_the_title(alignup) -> None:
    ended = alignup(*ARTICLE, "--kubelet-version", "v1.33.4+k3s1")

    assert (ended.status, ended.err) == (0, "")
    assert "kubelet 1.33" in ended.out


def test_releases_that_agree_are_one_line(alignup) -> None:
    ended = alignup(*ARTICLE, "--kubelet-version", "1.33,1.36")

    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith(
        "default/numa-aligned: 1.33, 1.36 agree: admitted, numa-aligned-container0: NUMA node 0, "
        "CPUs 0-1"
    )


def test_one_object_a_release(alignup, write) -> None:
    """A release that would not start says why; options have their stages."""
    config, pod = write("k.json", json.dumps(STRICT)), write("p.json", json.dumps(POD))

    ended = alignup(
        *ARTICLE, "--config", config, "--kubelet-version", "1.31,1.35,1.36", "--json", pod
    )

    assert ended.status == 1
    old, beta, new = ended.lines
    assert [answer["kubeletVersion"] for answer in ended.lines] == ["1.31", "1.35", "1.36"]
    assert old["configError"].startswith(
        'unknown CPU Manager Policy option: "strict-cpu-reservation"'
    )
    assert "pods" not in old
    assert [answer["options"]["strict-cpu-reservation"] for answer in ended.lines] == [
        None,
        "GA",
        "GA",
    ]
    assert beta["pods"] == new["pods"]
    assert new["pods"][0]["admitted"]


def test_people_see_what_differs(alignup, write) -> None:
    config, pod = write("k.json", json.dumps(STRICT)), write("p.json", json.dumps(POD))

    ended = alignup(*ARTICLE, "--config", config, "--kubelet-version", "1.31,1.34,1.36", pod)

    assert "kubelet 1.31 would not start: unknown CPU Manager Policy option" in ended.out
    assert "option strict-cpu-reservation:\n  1.31: unknown\n  1.34: beta\n  1.36: GA" in ended.out
    assert "default/web: 1.34, 1.36 agree: admitted, c0:" in ended.out


def test_the_only_release_that_starts_is_named(alignup, write) -> None:
    config, pod = write("k.json", json.dumps(STRICT)), write("p.json", json.dumps(POD))

    ended = alignup(*ARTICLE, "--config", config, "--kubelet-version", "1.31,1.34", pod)

    assert "kubelet 1.31 would not start" in ended.out
    assert "default/web:\n  1.34: admitted, c0:" in ended.out


def test_all_gates_that_stop_a_kubelet_are_said(alignup, write) -> None:
    gates = {"NodeSwap": True, "KubeletTracing": True}
    config, pod = write("k.json", json.dumps({"featureGates": gates})), write("p.json", POD)

    ended = alignup(*ARTICLE, "--config", config, "--kubelet-version", "1.37,1.38", pod)

    assert ended.status == 1
    assert (
        "kubelet 1.38 (a preview: 1.38.0-beta.0) would not start: unrecognized feature gate: "
        "KubeletTracing (featureGates of kubelet 1.38 (a preview: 1.38.0-beta.0), where it is on "
        "for good); nor does it know NodeSwap in "
    ) in ended.out
    assert "default/web:\n  1.37: admitted" in ended.out


def test_gates_of_a_node_stop_the_release_that_it_is_updated_to(alignup, write, tmp_path) -> None:
    """What runs may have gates of its vendor, and is taken as it is."""
    root = write_root(tmp_path / "root", server(cores=2, nodes=2))
    node = Node(read_machine(root), CONFIG)
    write_node(root, node, [])
    config = root / "var/lib/kubelet/config.yaml"
    gates = {"OfAVendor": True, "NodeSwap": True}
    config.write_text(json.dumps({**CONFIG, "featureGates": gates}))
    pod = write("p.json", POD)
    words = ("admit", "--node", root, "--kubelet-version")

    compared = alignup(*words, "1.37,1.38", pod)
    reported = {"kind": "Node", "status": {"nodeInfo": {"kubeletVersion": "v1.38.0-beta.0"}}}
    (root / "node.json").write_text(json.dumps(reported))
    updated = alignup(*words, "1.37,1.38", pod)

    assert compared.status == 1
    assert "would not start: unrecognized feature gate: NodeSwap (" in compared.out
    assert "; nor does it know OfAVendor" in compared.out
    assert "would not start" not in updated.out


def test_known_faults_that_end_are_said(alignup, write) -> None:
    machine = {
        "numaNodes": [
            {"id": node, "memory": 1 << 30, "cores": [{"id": 0, "socket": 0, "cpus": [node]}]}
            for node in range(24)
        ]
    }
    kubelet = {
        "topologyManagerPolicy": "best-effort",
        "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "24"},
        "featureGates": {"TopologyManagerPolicyBetaOptions": True},
        "systemReserved": {"cpu": "1"},
    }
    pod = {**POD, "spec": {"containers": [{"name": "c0", "resources": {"limits": {"a/gpu": "1"}}}]}}
    devices = write("d.json", {"a/gpu": [{"id": "gpu0", "numa": [0]}]})
    machine_file, config = write("m.json", machine), write("k.json", kubelet)
    words = ("admit", "-m", machine_file, "-c", config, "--devices", devices, "--kubelet-version")

    differing = alignup(*words, "1.35,1.36", write("p.json", pod))
    alike = alignup(*words, "1.34,1.35", write("p.json", pod))

    assert (
        "known faults with default/web:\n  1.35: the kubelet does not answer: it walks all 2^24 "
        "sets of NUMA nodes for the hints of a/gpu\n  1.36: none\n"
    ) in differing.out
    assert "known faults with" not in alike.out
    assert "default/web: 1.34, 1.35 agree: the kubelet does not answer" in alike.out


def test_a_configuration_has_the_default_gates_of_its_release(alignup, write) -> None:
    config, pod = write("k.json", json.dumps(ALPHA)), write("p.json", json.dumps(POD))

    refused = alignup(*ARTICLE, "--config", config, pod)
    let_pass = alignup(*ARTICLE, "--config", config, "--lenient", pod)

    assert refused.status == 2
    assert "CPU Manager Policy Alpha-level Options not enabled" in refused.err
    assert let_pass.status == 0
    assert f"accepted, although kubelet {NEWEST} rejects it by default" in let_pass.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1.28", "expected kubelet 1.29 or later"),
        ("new", "expected the version of a kubelet such as"),
        ("1.33,", "expected the version of a kubelet such as"),
    ],
)
def test_bad_versions(alignup, text, message) -> None:
    ended = alignup(*ARTICLE, "--kubelet-version", text)

    assert ended.status == 2
    assert message in ended.err


def scenario(**keys: Any) -> str:
    return json.dumps(
        {
            "name": "one",
            "machine": "align-up-article",
            "kubelet": STRICT,
            "devices": DEVICES,
            "steps": [{"admit": POD}],
            **keys,
        }
    )


def test_the_option_goes_before_the_key(alignup, write) -> None:
    file = write("s.jsonl", scenario(kubeletVersion="1.31"))

    assert "configError" in alignup("replay", "--json", file).lines[0]
    assert "steps" in alignup("replay", "--json", "--kubelet-version", "1.35", file).lines[0]


def test_a_replay_compares_the_releases_that_are_named_or_all(alignup, write) -> None:
    file = write("s.jsonl", scenario())

    named = alignup("replay", "--json", "--kubelet-version", "1.31,1.36", file).lines
    everything = alignup("replay", "--json", "--compare-versions", file).lines

    assert [answer["kubeletVersion"] for answer in named] == ["1.31", "1.36"]
    assert ["configError" in answer for answer in named] == [True, False]
    assert [answer["kubeletVersion"] for answer in everything] == list(map(str, RELEASED))
    two = alignup("replay", "--json", "--compare-versions", "1.36,v1.37.2", file).lines
    assert [answer["kubeletVersion"] for answer in two] == ["1.36", "1.37"]
    assert alignup("replay", "--compare-versions", "1.36,1.x", file).complains("1.36,1.x")
    shown = alignup("replay", "--compare-versions", file).out
    assert "kubelet 1.31 would not start: unknown" in shown
    assert "0: 1.32, 1.33, 1.34, 1.35, 1.36, 1.37 agree: admitted, c0:" in shown


def test_nodes_of_a_cluster_have_their_releases(alignup, write) -> None:
    nodes = "\n".join(
        json.dumps(
            {
                "name": name,
                "machine": "align-up-article",
                "kubelet": STRICT,
                "kubeletVersion": version,
            }
        )
        for name, version in (("old", "1.31"), ("new", "v1.35.2"))
    )
    file, pod = write("n.jsonl", nodes), write("p.json", json.dumps(POD))

    mixed = alignup("rank", "--nodes", file, "--json", pod)
    same = alignup("rank", "--nodes", file, "--kubelet-version", "1.36", "--json", pod)

    assert [placement["node"] for placement in mixed.lines[0]["best"]] == ["new"]
    assert "a node is ignored" in mixed.err
    assert len(same.lines[0]["best"]) == 2
    simulated = alignup(
        "simulate", "--nodes", file, "--generate", 3, "--kubelet-version", "1.36", "--json"
    )
    assert simulated.lines[0]["nodes"] == 2
    assert alignup("rank", "--nodes", file, "--kubelet-version", "1.35,1.36", pod).status == 2
