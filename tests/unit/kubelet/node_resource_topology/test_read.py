"""NodeResourceTopology objects as clusters, and as nodes made up from them."""

from __future__ import annotations

import json

import pytest
import yaml

from alignup import explain
from alignup.cluster import Cluster, read_node_resource_topologies
from alignup.cluster.cluster import NodeAmounts
from alignup.errors import AlignupWarning, InputError
from alignup.kubelet.node_resource_topology.read import node_of, nodes_of, read_topologies
from alignup.node.holdings import holdings_of
from inputs.cluster_files import TOPOLOGY, pod_manifest
from inputs.machines import manifest

GIBI = 1 << 30


def topology(**changes):
    return {**yaml.safe_load(TOPOLOGY)["items"][0], **changes}


def described(source):
    """Return what the reader makes of the first object."""
    return read_topologies(source)[0].amounts


def test_zones_become_numa_nodes():
    """Amounts that are missing are what the next larger one says; disks are not counted."""
    cluster = read_node_resource_topologies(TOPOLOGY.encode())

    assert cluster.names == ("worker-a",)
    assert cluster.resources == ("cpu", "memory", "example.com/gpu")
    assert cluster.free("cpu").tolist() == [[3, 9]]
    assert cluster.allocatable("cpu").tolist() == [[8, 10]]
    assert cluster.allocatable("memory").tolist() == [[15 * GIBI, 16 * GIBI]]
    assert cluster.free("example.com/gpu").tolist() == [[1, 2]]

    assert described(TOPOLOGY.encode()) == NodeAmounts(
        numa_nodes=2,
        policy="single-numa-node",
        scope="container",
        resources={
            "cpu": ((10, 10), (8, 10), (3, 9)),
            "example.com/gpu": ((2, 2), (2, 2), (1, 2)),
            "memory": ((16 * GIBI, 16 * GIBI), (15 * GIBI, 16 * GIBI), (15 * GIBI, 8 * GIBI)),
        },
        distances=((10, 20), (20, 10)),
    )


def test_where_no_cpus_are_reported_a_machine_has_one_that_nobody_needs():
    zones = [{**zone, "resources": zone["resources"][1:]} for zone in topology()["zones"]]
    assert [zone["resources"][0]["name"] for zone in topology()["zones"]] == ["cpu", "cpu"]
    [read] = read_topologies(json.dumps(topology(zones=zones)).encode())
    assert "cpu" not in read.amounts.resources
    node = node_of(read)
    assert [len(numa_node.cores) for numa_node in node.machine.numa_nodes] == [1, 0]
    assert node.try_admit(pod_manifest("new", cpus=4))


def test_answers_are_upper_bounds():
    answer = read_node_resource_topologies(TOPOLOGY.encode()).evaluate(pod_manifest("new", cpus=4))
    assert answer.affinity.tolist() == [2]
    assert not answer.exact[0]


@pytest.mark.parametrize(("later", "admitted", "exact"), [(1, True, False), (2, False, True)])
def test_devices_of_one_container_are_not_there_for_the_next(later, admitted, exact):
    """Node 1 has two, and node 0 another one: a refusal is certain, a yes is an upper bound."""
    pod = pod_manifest("new", gpu=2)
    pod["spec"]["containers"] += [
        {**pod_manifest("new", gpu=later)["spec"]["containers"][0], "name": "c1"}
    ]
    answer = read_node_resource_topologies(TOPOLOGY.encode()).evaluate(pod)
    assert (answer.admitted.tolist(), answer.exact.tolist()) == ([admitted], [exact])


@pytest.mark.parametrize("limits", [{"cpu": "500m", "example.com/gpu": "2"}, {"cpu": "9"}])
def test_what_an_init_container_had_serves_the_container_after_it(limits):
    """Node 1 has as much once, and node 0 less."""
    pod = pod_manifest("new")
    pod["spec"]["containers"][0]["resources"]["limits"] = {"memory": "1Gi", **limits}
    pod["spec"]["initContainers"] = [{**pod["spec"]["containers"][0], "name": "init"}]
    assert read_node_resource_topologies(TOPOLOGY.encode()).evaluate(pod).admitted.tolist() == [
        True
    ]


@pytest.mark.parametrize("source", ["yaml", "json", "one", "several", "list"])
def test_sources(tmp_path, source):
    """Paths, text, decoded objects, lists of them."""
    data = yaml.safe_load(TOPOLOGY)
    source_by_name = {
        "one": topology(),
        "several": [topology()],
        "list": data,
        "yaml": tmp_path / "topologies.yaml",
        "json": str(tmp_path / "topologies.json"),
    }[source]
    (tmp_path / "topologies.yaml").write_text(TOPOLOGY + "\n---\n")
    (tmp_path / "topologies.json").write_text(json.dumps(data, indent=2))
    assert read_node_resource_topologies(source_by_name).names == ("worker-a",)


def test_a_large_cluster_as_json():
    """A List of more bytes than a manifest may have, and more nodes than one."""
    topology_object = topology()
    items = [
        {**topology_object, "metadata": {"name": f"n{number}", "x": "x" * 9000}}
        for number in range(1000)
    ]
    cluster = read_node_resource_topologies(json.dumps({"kind": "List", "items": items}).encode())
    assert len(cluster) == 1000


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"topologyPolicies": ["BestEffortPodLevel"]}, ("best-effort", "pod")),
        ({"topologyPolicies": ["Restricted"]}, ("restricted", "container")),
        ({"topologyPolicies": None}, ("none", "container")),
        (
            {
                "attributes": [
                    {"name": "topologyManagerPolicy", "value": "restricted"},
                    {"name": "topologyManagerScope", "value": "pod"},
                    {"name": "other", "value": "x"},
                ]
            },
            ("restricted", "pod"),
        ),
    ],
)
def test_policy_and_scope(changes, expected):
    """Attributes win over the older field."""
    amounts = described(topology(**changes))
    assert (amounts.policy, amounts.scope) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"topologyPolicies": ["Unheard"]},
            "topology policy 'Unheard' of node .* is unknown and ignored; none is",
        ),
        (
            {"attributes": [{"name": "topologyManagerPolicy", "value": "single_numa"}]},
            (
                "topology policy 'single_numa' of node .* is unknown and ignored; single-numa-node "
                "is taken"
            ),
        ),
        (
            {"attributes": [{"name": "topologyManagerScope", "value": "unheard"}]},
            "topology scope 'unheard' of node .* is unknown and ignored; container is taken",
        ),
    ],
)
def test_unknown_words_are_warned_of(changes, message):
    """They count for nothing."""
    with pytest.warns(AlignupWarning, match=message):
        read_topologies(topology(**changes))


def test_a_bad_object_can_be_passed_over():
    """With its name; if all are bad, that is an error."""
    bad = topology(zones=[], metadata={"name": "worker-z"})
    with pytest.raises(
        InputError, match=r"1 to 64 zones of type Node, got 0 at document 1 \(worker-z\)"
    ):
        read_topologies([bad])
    with pytest.warns(
        AlignupWarning, match=r"an object is ignored: .* \(worker-z\) in the objects"
    ):
        topologies = read_topologies([bad, topology()], skip_bad=True)
    assert len(topologies) == 1
    with pytest.raises(InputError, match="1 to 64 zones"):
        read_topologies([bad], skip_bad=True)


def test_zones_go_by_number_and_type():
    """`node-10` comes after `node-9`, and zones of other types are left out.

    Without costs there are no distances.
    """
    zones = [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [{"name": "cpu", "capacity": str(number + 1)}],
        }
        for number in (10, 9)
    ]
    amounts = described(topology(zones=[*zones, {"name": "core-1", "type": "Core"}]))
    assert amounts.resources == {"cpu": ((10, 11),) * 3}
    assert amounts.distances is None
    assert amounts.memory == {}


def test_a_zone_that_lacks_a_cost_is_far():
    zones = topology()["zones"]
    zones[1]["costs"] = zones[1]["costs"][:1]
    assert described(topology(zones=zones)).distances == ((10, 20), (20, 255))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"kind: Pod\n", "document 1, kind"),
        (b"- 1\n", "NodeResourceTopology"),
        (b"kind: List\nitems: 3\n", "items"),
        (b"\n", "no NodeResourceTopology in"),
        ({"kind": "NodeResourceTopology", "apiVersion": "v1"}, "apiVersion"),
        ({"kind": "NodeResourceTopology", "metadata": {"name": "a"}}, "1 to 64 zones"),
        ({"kind": "NodeResourceTopology", "metadata": {}}, "a name"),
        ({"kind": "NodeResourceTopology", "metadata": 3}, "metadata"),
        ("/nonexistent/topologies", "cannot read"),
        (
            topology(zones=[{"name": "n", "resources": [{"name": "cpu", "capacity": "x"}]}]),
            "zone n, cpu",
        ),
    ],
)
def test_what_is_no_such_object(source, message):
    """The error is one line and says where."""
    with pytest.raises(InputError, match=message):
        read_topologies(source)


@pytest.mark.parametrize("cost", [10**40, 1 << 63, 1 << 31, -1])
def test_costs_that_cannot_be_are_refused(cost):
    """Arrays would not hold them."""
    zones = [
        {"name": f"node-{i}", "type": "Node", "costs": [{"name": "node-0", "value": cost}]}
        for i in range(2)
    ]
    with pytest.raises(InputError, match=r"cost|whole number|out of range|integer"):
        read_topologies({"kind": "NodeResourceTopology", "metadata": {"name": "n"}, "zones": zones})


def test_costs_from_none_to_the_largest_are_read():
    zones = [
        {
            "name": f"node-{zone}",
            "type": "Node",
            "costs": [{"name": "node-0", "value": 0}, {"name": "node-1", "value": (1 << 31) - 1}],
        }
        for zone in range(2)
    ]
    [read] = read_topologies(
        {"kind": "NodeResourceTopology", "metadata": {"name": "n"}, "zones": zones}
    )
    assert read.amounts.distances == ((0, (1 << 31) - 1),) * 2


@pytest.mark.parametrize("kind", ["List", "NodeResourceTopology"])
def test_a_letter_in_an_object_that_is_not_utf8_is_a_clear_error(kind):
    """Objects of a List are decoded one at a time; what is between them may be fine."""
    text = json.dumps(
        {"kind": kind, "items": [topology(metadata={"name": "@"})], "note": "@"}
    ).encode()
    with pytest.raises(InputError, match=r"(?i)utf-8"):
        read_node_resource_topologies(text.replace(b"@", b"\xff", 1))


def test_a_file_that_is_not_utf8_is_a_clear_error(tmp_path):
    """As of any other text."""
    path = tmp_path / "n.yaml"
    path.write_bytes(b'{"kind": "\xff"}')
    with pytest.raises(InputError, match="not UTF-8"):
        read_topologies(path)


@pytest.mark.parametrize("name", ["cpu", "memory", "example.com/gpu"])
def test_amounts_whose_sum_is_none_are_refused(name):
    """Arrays would not hold them."""
    zones = [
        {
            "name": f"node-{i}",
            "type": "Node",
            "resources": [{"name": name, "capacity": str((1 << 63) - 1)}],
        }
        for i in range(2)
    ]
    with pytest.raises(InputError, match=r"expected amounts of at most \d+"):
        read_topologies({"kind": "NodeResourceTopology", "metadata": {"name": "n"}, "zones": zones})


@pytest.fixture
def topologies():
    return read_topologies(TOPOLOGY.encode())


def test_what_is_free_is_free(topologies) -> None:
    """And policy, scope and distances are the object's."""
    cluster = Cluster.from_nodes(nodes_of(topologies))
    read_cluster = read_node_resource_topologies(TOPOLOGY.encode())

    assert cluster.names == read_cluster.names
    assert cluster.resources == read_cluster.resources
    for resource in read_cluster.resources:
        assert cluster.free(resource).tolist() == read_cluster.free(resource).tolist(), resource

    for row, read_row in zip(cluster.rows, read_cluster.rows, strict=True):
        assert (row.policy, row.pod_scope, row.distances) == (
            read_row.policy,
            read_row.pod_scope,
            read_row.distances,
        )


def test_of_two_objects_of_one_name_none_is_taken_in_silence(topologies) -> None:
    expected = f"a name that no other node has, got '{topologies[0].name}' at the cluster"
    with pytest.raises(InputError, match=expected):
        nodes_of([*topologies, topologies[0]])


def test_pods_can_be_admitted(topologies) -> None:
    node = node_of(topologies[0])
    assert node.admit(manifest("p", 3, 1, 0))
    assert not node.admit(manifest("q", 64, 1, 0))


def test_what_others_hold_is_not_called_a_limit_of_the_machine(topologies) -> None:
    """It counts as reserved, since nobody tells whose it is."""
    node = node_of(topologies[0])
    free = sum(place.free for place in holdings_of(node).amounts("cpu").places)
    explanation = explain(node, manifest("q", free + 1, 1, 0))

    assert not explanation.never_fits
    assert "the machine has" not in explanation.cause
    assert explanation.cause.startswith("not enough cpu is free")


def test_a_zone_of_nothing_is_a_node_that_aligns_nothing() -> None:
    bare = {
        "kind": "NodeResourceTopology",
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "metadata": {"name": "bare"},
        "zones": [{"name": f"node-{number}"} for number in range(9)],
        "topologyPolicies": ["Restricted"],
    }
    node = node_of(read_topologies(bare)[0])

    assert (node.cpu, node.memory, node.devices) == (None, None, None)
    assert len(node.machine.numa_nodes) == 9


@pytest.mark.parametrize(("allocatable", "is_aligned"), [([0, 0], False), ([0, 2], True)])
def test_cpus_of_which_none_is_allocatable_are_not_aligned(allocatable, is_aligned) -> None:
    """The zones of Node Feature Discovery 0.18.3 where the kubelet's CPU manager hands out none."""
    zones = [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [{"name": "cpu", "capacity": 8, "allocatable": count, "available": count}],
        }
        for number, count in enumerate(allocatable)
    ]
    cluster = read_node_resource_topologies(topology(zones=zones))
    pod = pod_manifest("new", cpus=4)
    pod["spec"]["containers"][0]["resources"]["limits"].pop("example.com/gpu", None)
    answer = cluster.evaluate(pod)

    assert ("cpu" in cluster.resources) == is_aligned
    assert (answer.admitted.tolist(), answer.exact.tolist()) == ([not is_aligned], [is_aligned])
    node = node_of(read_topologies(topology(zones=zones))[0])
    assert (node.cpu is not None) == is_aligned
