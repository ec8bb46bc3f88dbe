"""Nodes as JSON lines, with the pods that are on them."""

from __future__ import annotations

import json

import pytest

from alignup.cluster import Cluster
from alignup.cluster.json_lines import NodeReader, TooManyPodsError, read_nodes
from alignup.errors import AlignupWarning, ConfigError, InputError
from alignup.kubernetes.versions import parse_version
from inputs.cluster_files import node_line, pod_manifest


def cluster_of(*lines):
    return Cluster.from_json_lines("\n".join(lines))


def test_an_error_names_its_line():
    good = node_line("a")
    for line, message in (
        ("[]", r"nodes:2: expected a node as a JSON object"),
        ('{"name": "b"}', r"nodes:2: .*machine"),
        (node_line("a"), r"nodes:2: expected a name that no other node has"),
        (
            node_line("b", pods=[pod_manifest("p", cpus=9)]),
            r"nodes:2: .*TopologyAffinityError.* at pods\[0\]",
        ),
        (node_line("b", preferredSets={"example.com/gpu": [["x"]]}), r"nodes:2: .*device ids"),
    ):
        with pytest.raises(InputError, match=message):
            cluster_of(good, line)

    with pytest.raises(InputError, match="no nodes in"):
        cluster_of("", " ")

    with pytest.raises(ConfigError, match="nodes:1"):
        cluster_of(
            node_line("b", kubelet={"topologyManagerPolicy": "restricted", "cpuManagerPolicy": "x"})
        )


def test_any_lines_are_taken():
    """Bytes, and lines one by one; devices can be missing."""
    line = json.loads(node_line("a"))
    del line["devices"]
    cluster = Cluster.from_json_lines([json.dumps(line).encode(), b"", node_line("b").encode()])
    assert cluster.names == ("a", "b")
    assert cluster.nodes[0].devices is None


def test_a_line_has_its_pods_on_its_node():
    pods = [pod_manifest("first", cpus=3), pod_manifest("second", cpus=4)]
    [(name, node)] = read_nodes(node_line("a", pods=pods), "nodes").items()
    assert name == "a"
    assert [pod.uid for pod in node.pods] == ["first", "second"]
    assert len(node.cpu.free_cpus) == 16 - 1 - 3 - 4


def test_an_empty_node_has_none_of_its_pods_and_the_labels_that_come_first():
    line = node_line("a", pods=[pod_manifest("p")], labels={"zone": "x", "pool": "y"})
    wire, node = NodeReader().empty_node(line, {"zone": "z"})
    assert [json.loads(bytes(manifest))["metadata"]["name"] for manifest in wire.pods] == ["p"]
    assert node.pods == ()
    assert node.labels == {"zone": "z", "pool": "y"}


@pytest.mark.parametrize(("keeps", "alone"), [(True, 0b10), (False, 0)])
def test_a_refusal_leaves_what_the_line_says(keeps, alone):
    """A container that was alone on a NUMA node binds it, though its pod is refused."""
    devices = {"example.com/gpu": [{"id": "g0", "numa": [1]}]}
    pods = [pod_manifest("both", memory="40Gi")]
    changes = {"policy": "best-effort", "devices": devices, "pods": pods}
    (node,) = cluster_of(node_line("a", **changes, keepRefusedBindings=keeps)).nodes
    assert node.memory.ledger.groups == (0b11,)

    halfway = pod_manifest("halfway", cpus=1, gpu=1)
    (container,) = halfway["spec"]["containers"]
    halfway["spec"]["containers"].append({**container, "name": "c1"})
    assert not node.admit(halfway).admitted
    assert node.memory.ledger.alone == alone


def test_equal_machines_are_read_once_and_others_are_not_mistaken_for_them():
    reader = NodeReader()
    nodes = {}
    for name, more in (
        ("a", {}),
        ("b", {}),
        ("large", {"cores": 8}),
        ("loose", {"policy": "none"}),
        ("old", {"kubeletVersion": "1.31"}),
    ):
        nodes[name] = reader.node(node_line(name, **more))[1]

    assert nodes["a"].machine is nodes["b"].machine
    assert nodes["a"].config is nodes["b"].config
    assert len(nodes["large"].cpu.free_cpus) == 31
    assert len(nodes["a"].cpu.free_cpus) == 15
    assert nodes["loose"].config != nodes["a"].config
    assert str(nodes["old"].config.version) == "1.31"

    nodes["a"].admit(pod_manifest("p"))
    assert nodes["b"].pods == ()


def test_bad_lines_are_left_out_with_a_warning_where_that_is_asked_for():
    lines = [node_line("a"), "{", node_line("a"), node_line("b")]
    with pytest.warns(AlignupWarning) as caught:
        assert list(read_nodes(lines, "nodes", skip_bad=True)) == ["a", "b"]

    first, second = (str(warning.message) for warning in caught)
    assert first.startswith("a node is ignored: nodes:2: expected a node as a JSON object")
    assert second.startswith("a node is ignored: nodes:3: expected a name that no other node has")


def test_nothing_but_bad_lines_is_the_error_of_the_first():
    with pytest.raises(InputError, match="nodes:1: expected a node as a JSON object"):
        read_nodes(["{", "[]"], "nodes", skip_bad=True)


@pytest.mark.parametrize("version", ["1.32", parse_version("1.32")])
def test_one_release_may_be_taken_for_all(version):
    lines = [node_line("a"), node_line("b", kubeletVersion="1.31")]
    nodes = read_nodes(lines, "nodes", kubelet_version=version)
    assert [str(node.config.version) for node in nodes.values()] == ["1.32", "1.32"]


def test_keys_that_nobody_knows_are_warned_of():
    with pytest.warns(AlignupWarning, match="machines"):
        read_nodes(node_line("a", machines=[]), "nodes")


def test_pods_that_differ_have_a_limit_and_equal_ones_count_once() -> None:
    def lines(differs):
        for number in range(40):
            pod = pod_manifest(f"p{number}")
            pod["spec"]["nodeSelector"] = {"zone": str(number + 1 if differs else 1)}
            yield json.dumps({"name": f"n{number}", "machine": "xeon-2s", "pods": [pod]})

    assert len(read_nodes(lines(False), "nodes", most_different=700)) == 40
    assert len(read_nodes(lines(True), "nodes")) == 40
    for skip_bad in (True, False):
        with pytest.raises(TooManyPodsError, match="names have more than 700 bytes"):
            read_nodes(lines(True), "nodes", skip_bad=skip_bad, most_different=700)
