"""`alignup claims`: devices of claims, and why there are none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from alignup.cli.program import program
from alignup.errors import InputError

NUMA, BUS = "resource.kubernetes.io/numaNode", "resource.kubernetes.io/pciBusID"

KUBELET = {
    "cpuManagerPolicy": "static",
    "topologyManagerPolicy": "single-numa-node",
    "reservedSystemCPUs": "0",
}


def device(name: str, numa: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "attributes": {NUMA: {"int": numa}}, **more}


def resources(*devices: dict[str, Any], driver: str = "gpu.example.com") -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"slice-{driver}"},
            "spec": {
                "driver": driver,
                "nodeName": "node-a",
                "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 1},
                "devices": list(devices),
            },
        },
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": driver},
            "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]},
        },
    ]


def claim(*requests: tuple[str, str, int], name: str = "c", **more: Any) -> dict[str, Any]:
    asked = [
        {"name": one, "exactly": {"deviceClassName": cls, "count": count}}
        for one, cls, count in requests
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": asked, **more}},
    }


@pytest.fixture
def run(tmp_path):
    def call(
        known: list[dict[str, Any]], *asked: dict[str, Any], options: tuple[str, ...] = ()
    ) -> tuple[int, str]:
        (tmp_path / "resources.json").write_text(json.dumps({"kind": "List", "items": known}))
        (tmp_path / "asked.json").write_text(json.dumps({"kind": "List", "items": asked}))
        files = ["--resources", str(tmp_path / "resources.json"), str(tmp_path / "asked.json")]
        found = CliRunner().invoke(program, ["claims", *options, *files])
        return found.exit_code, found.output

    return call


GPU, NIC = "gpu.example.com", "nic.example.com"


def test_devices_are_told_with_their_numa_nodes(run) -> None:
    known = [*resources(device("g0", 0), device("g1", 1)), *resources(device("n0", 1), driver=NIC)]
    asked = claim(("gpu", GPU, 1), ("nic", NIC, 1), constraints=[{"matchAttribute": NUMA}])
    status, output = run(known, asked)
    assert status == 0
    assert "gpu: gpu.example.com/node-a/g1, NUMA node 1" in output
    status, output = run(known, asked, options=("--json",))
    assert [one["device"] for one in json.loads(output)["result"][0]["devices"]] == ["g1", "n0"]


def test_a_constraint_is_named(run) -> None:
    known = [*resources(device("g0", 0), device("g1", 0)), *resources(device("n0", 1), driver=NIC)]
    status, output = run(
        known,
        claim(("gpu", GPU, 1), ("nic", NIC, 1), constraints=[{"matchAttribute": NUMA}]),
        options=("--json",),
    )
    told = json.loads(output)
    assert status == 1
    assert told["constraint"] == f"matchAttribute {NUMA}"
    assert "0: gpu 2 of 1, nic 0 of 1; 1: gpu 0 of 1, nic 1 of 1" in told["reason"]
    assert told["helps"] == [f"leave out matchAttribute {NUMA}"]


def test_a_request_is_named_and_what_was_free(run) -> None:
    held = {
        **claim(("r", GPU, 1), name="held"),
        "status": {
            "allocation": {
                "devices": {
                    "results": [{"request": "r", "driver": GPU, "pool": "node-a", "device": "g0"}]
                }
            }
        },
    }
    known = [
        *resources(
            device("g0", 0),
            device("g1", 0, taints=[{"key": "k", "effect": "NoExecute"}]),
            device("g2", 1),
        ),
        held,
    ]
    status, output = run(known, claim(("gpu", GPU, 2)), options=("--json",))
    told = json.loads(output)
    assert (status, told["request"]) == (1, "gpu")
    assert "of 3 devices: 1 free, 1 in use, 1 tainted or out of counters" in told["reason"]
    assert told["helps"] == [
        "tolerate the taints of the devices",
        "ask for 1 in request gpu",
        "wait until other claims release devices",
    ]


def test_claims_of_a_pod_that_cannot_be_had_together(run) -> None:
    known = [
        *resources(device("g0", 0), device("g1", 0)),
        claim(("a", GPU, 1), name="one"),
        claim(("b", GPU, 2), name="two"),
    ]
    references = [{"name": name, "resourceClaimName": name} for name in ("one", "two")]
    pod = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "p"},
        "spec": {"resourceClaims": references, "containers": [{"name": "c"}]},
    }
    for one in known[2:]:
        del one["metadata"]["namespace"]

    status, output = run(known, pod)
    assert status == 1
    assert "claim two, request b: earlier claims of the pod take what it asks for: one" in output


def test_requests_that_cannot_all_be_served(run) -> None:
    status, output = run(
        resources(device("g0", 0), device("g1", 0)), claim(("a", GPU, 1), ("b", GPU, 2))
    )
    assert status == 1
    assert "each of the requests a, b can be served alone, but not all of them together" in output
    assert "would help: ask for 1 in request b" in output


def test_errors_of_the_allocator_are_told(run) -> None:
    status, output = run(resources(device("g0", 0)), claim(("a", "no-such-class", 1)))
    assert status == 1
    assert "could not retrieve device class no-such-class" in output
    selectors = [{"cel": {"expression": "device.nothing"}}]
    asked = claim(("a", GPU, 1))
    asked["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = selectors
    status, output = run(resources(device("g0", 0)), asked, options=("--json",))
    assert (status, json.loads(output)["class"]) == (1, "fatal")


def test_the_node_is_needed_where_slices_are_of_several(run, tmp_path) -> None:
    known = resources(device("g0", 0))
    other = json.loads(json.dumps(known[0]).replace("node-a", "node-b").replace("slice-", "other-"))
    status, output = run([*known, other], claim(("a", GPU, 1)))
    assert status == 2
    assert "--node-object" in output
    node = tmp_path / "node.yaml"
    node.write_text("kind: Node\nmetadata: {name: node-b}\n")
    status, output = run(
        [*known, other], claim(("a", GPU, 1)), options=("--node-object", str(node))
    )
    assert (status, "node-b: claim default/c: allocated" in output) == (0, True)


def lines(tmp_path, option: str, *questions: Any) -> tuple[int, list[Any]]:
    file = tmp_path / "lines.jsonl"
    file.write_text(
        "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in questions)
    )
    found = CliRunner().invoke(
        program, ["claims", option, str(file), "--json"], catch_exceptions=False
    )
    return found.exit_code, [json.loads(one) for one in found.stdout.splitlines()]


def scenario(**more: Any) -> dict[str, Any]:
    known = resources(device("g0", 0))
    return {
        "name": "s",
        "node": {"metadata": {"name": "node-a"}},
        "slices": known[:1],
        "classes": known[1:],
        "claims": [claim(("gpu", GPU, 1))],
        **more,
    }


def test_scenarios_are_answered_in_the_oracles_form(tmp_path) -> None:
    status, told = lines(
        tmp_path,
        "--scenarios",
        scenario(),
        scenario(claims=[claim(("x", "none", 1))]),
        scenario(claims=[claim(("g", GPU, 2))]),
    )
    assert status == 0
    assert [sorted(one) for one in told] == [
        ["ms", "name", "result"],
        ["class", "error", "ms", "name", "result"],
        ["ms", "name", "result"],
    ]
    assert told[0]["result"][0]["devices"] == [
        {"request": "gpu", "driver": GPU, "pool": "node-a", "device": "g0"}
    ]
    assert told[1]["result"] is told[2]["result"] is None


def test_selectors_are_answered_in_order(tmp_path) -> None:
    questions = [
        {"name": str(number), "expression": expression, "driver": GPU, "device": {"attributes": {}}}
        for number, expression in enumerate(
            ("true", "device.a", "1 / 0 == 1", "google.protobuf.Empty{} == 1")
        )
    ]
    status, told = lines(tmp_path, "--selectors", *questions)
    assert status == 0
    assert [list(one) for one in told] == [
        ["name", "match", "cost"],
        ["name", "compileError"],
        ["name", "error", "cost"],
        ["name", "notUnderstood"],
    ]


@pytest.mark.parametrize(
    "question",
    [
        "{",
        "[]",
        "3",
        "{}",
        "[" * 10_000,
        scenario(node=3),
        scenario(slices=[3]),
        scenario(release="2.0"),
        scenario(features={"DRADerivedAttributes": True}),
        scenario(
            claims=[{"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": 3}]}}}]
        ),
        scenario(claims=[claim(("gpu", GPU, 1))] * 100),
        scenario(slices=resources(device("g", 0, capacity={"m": {"value": "1e99999"}}))[:1]),
    ],
)
def test_hostile_lines_are_refused_in_one_line(tmp_path, question) -> None:
    with pytest.raises(InputError) as error:
        lines(tmp_path, "--scenarios", question)
    assert "\n" not in str(error.value)


def test_options_that_contradict_each_other() -> None:
    for options in (
        [],
        ["--scenarios", "a"],
        ["--scenarios", "a", "--selectors", "b", "--json"],
        ["--resources", "a"],
    ):
        assert CliRunner().invoke(program, ["claims", *options]).exit_code == 2


def template(name: str = "t") -> dict[str, Any]:
    found = claim(("gpu", GPU, 1), name=name)
    return {**found, "kind": "ResourceClaimTemplate", "spec": {"spec": found["spec"]}}


def pod(name: str = "p", *, cpu: int = 2) -> dict[str, Any]:
    limits = {"cpu": cpu, "memory": "1Gi"}
    container = {"name": "main", "resources": {"claims": [{"name": "c"}], "limits": limits}}
    claims = [{"name": "c", "resourceClaimTemplateName": "t"}]
    metadata = {"name": name, "namespace": "default"}
    return {
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"resourceClaims": claims, "containers": [container]},
    }


def of_node(objects: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return the same objects for a node of another name."""
    found: list[dict[str, Any]] = json.loads(json.dumps(objects).replace("node-a", name))
    for one in found:
        if one["kind"] == "ResourceSlice":
            one["metadata"]["name"] += name
    return found


@pytest.fixture
def files(write):
    """Return files of a pod, of the objects of claims, and of three nodes.

    One meets, one does not, one has none.
    """
    far, near = resources(device("g0", 1)), of_node(resources(device("g0", 0)), "node-b")
    nodes = [
        {"name": f"node-{one}", "machine": "xeon-2s", "kubelet": KUBELET, "devices": {}}
        for one in "cab"
    ]
    return {
        "pod": write("pod.json", pod()),
        "resources": write("far.json", {"kind": "List", "items": [*far, template()]}),
        "more": write("near.json", {"kind": "List", "items": near[:1]}),
        "nodes": write("nodes.jsonl", "".join(json.dumps(one) + "\n" for one in nodes)),
        "config": write("kubelet.json", {"kind": "KubeletConfiguration", **KUBELET}),
    }


def test_admit_and_explain_say_where_the_devices_of_claims_are(alignup, files) -> None:
    words = (
        "--machine",
        "xeon-2s",
        "--config",
        files["config"],
        "--resources",
        files["resources"],
        files["pod"],
    )
    for command in ("admit", "explain"):
        ended = alignup(command, *words)
        assert (ended.status, "are ignored" in ended.err) == (0, False)
        assert "claim default/p-c: gpu: gpu.example.com/node-a/g0, NUMA node 1" in ended.out
        assert "the devices are not aligned with the pod's CPUs and memory" in ended.out
        assert "let claims give hints" in ended.out
        told = json.loads(alignup(command, "--json", *words).out)["claims"]
        assert (told["meet"], [one["numaNodes"] for one in told["devices"]]) == (False, [[1]])
        hinted = json.loads(alignup(command, "--json", "--dra-hints", *words).out)["claims"]
        assert (hinted["meet"], hinted["helps"]) == (True, [])

    assert "are ignored" in alignup("admit", "--machine", "xeon-2s", files["pod"]).err


def test_another_node_where_they_meet_is_named(alignup, files) -> None:
    words = (
        "explain",
        "--machine",
        "xeon-2s",
        "--config",
        files["config"],
        "--node-name",
        "node-a",
    )
    known = ("--resources", files["resources"], "--resources", files["more"])
    told = alignup(*words, *known, "--nodes", files["nodes"], files["pod"]).out
    assert (
        "node-b (near the devices of its claims), node-a (far from the devices of its claims)"
        in told
    )


def test_a_pod_whose_claims_cannot_be_allocated_is_refused(alignup, files, write) -> None:
    empty = write("none.json", {"kind": "List", "items": [*resources(), template()]})
    ended = alignup(
        "admit",
        "--machine",
        "xeon-2s",
        "--config",
        files["config"],
        "--resources",
        empty,
        files["pod"],
    )
    assert ended.status == 1
    assert "refused: Unschedulable" in ended.out
    assert "claim default/p-c, request gpu" in ended.out


def test_rank_prefers_nodes_where_they_meet_and_can_refuse_others(alignup, files) -> None:
    words = (
        "rank",
        "--nodes",
        files["nodes"],
        "--resources",
        files["resources"],
        "--resources",
        files["more"],
    )
    told = json.loads(alignup(*words, "--json", files["pod"]).out)
    assert [(one["node"], one["draAligned"]) for one in told["best"]] == [
        ("node-b", True),
        ("node-a", False),
    ]
    assert [(one["node"], one["reason"]) for one in told["refused"]] == [
        ("node-c", "Unschedulable")
    ]
    strict = json.loads(alignup(*words, "--require-dra-alignment", "--json", files["pod"]).out)
    assert [one["node"] for one in strict["best"]] == ["node-b"]
    assert sorted(one["node"] for one in strict["refused"]) == ["node-a", "node-c"]
    assert "near its claims' devices" in alignup(*words, files["pod"]).out


def test_simulate_counts_pods_whose_devices_are_elsewhere(alignup, files, write) -> None:
    trace = [{"time": number, "admit": pod(f"p{number}"), "duration": 2.5} for number in range(4)]
    pods = write("trace.jsonl", "".join(json.dumps(one) + "\n" for one in trace))
    words = ("simulate", "--nodes", files["nodes"], "--pods", pods, "--json")
    assert "misaligned" not in json.loads(alignup(*words).out)
    known = ("--resources", files["resources"], "--resources", files["more"])
    told = json.loads(alignup(*words, *known).out)
    assert (told["placed"] + told["refused"] + told["noAlignment"], told["arrivals"]) == (4, 4)
    assert told["placed"] >= 2
    assert 0 < told["misaligned"] < told["placed"]


def test_amounts_alone_do_not_tell_where_devices_are(alignup, files, write) -> None:
    topology = {
        "kind": "NodeResourceTopology",
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "metadata": {"name": "node-a"},
        "zones": [{"name": "node-0", "type": "Node", "resources": []}],
    }
    nodes = write("topologies.json", {"kind": "List", "items": [topology]})
    ended = alignup("rank", "--nodes", nodes, "--resources", files["resources"], files["pod"])
    assert (ended.status, "--resources" in ended.err) == (2, True)


def test_a_node_line_and_a_scenario_may_bring_their_own_objects(alignup, write) -> None:
    own = {
        "resources": [*resources(device("g0", 1), device("g1", 0)), template()],
        "draHints": True,
    }
    line = {"name": "node-a", "machine": "xeon-2s", "kubelet": KUBELET, "devices": {}, **own}
    told = json.loads(
        alignup("rank", "--nodes", write("n.jsonl", line), "--json", write("p.json", pod())).out
    )
    assert told["best"][0]["draAligned"] is True
    scenario = {**line, "name": "s", "steps": [{"admit": pod()}]}
    answer = json.loads(alignup("replay", "--json", write("s.jsonl", scenario)).out)
    assert answer["steps"][0]["claims"]["devices"][0]["device"] == "g1"


@pytest.mark.parametrize(
    ("gates", "amounts"), [((), None), (("DRANodeAllocatableResources=true",), ["5", "1536"])]
)
def test_what_a_claim_counts_as_on_the_node_is_told(run, gates, amounts) -> None:
    counts = {
        "cpu": {"mapping": {"deviceMultiplier": "2500m"}},
        "memory": {"overhead": {"perPod": "512", "perContainer": "256"}},
    }
    known = resources(
        device("g0", 0, nodeAllocatableResources=counts),
        device("g1", 0, nodeAllocatableResources=counts),
    )
    containers = [{"name": "main", "resources": {"claims": [{"name": "own"}]}}]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {
            "resourceClaims": [{"name": "own", "resourceClaimName": "c"}],
            "containers": containers,
        },
    }
    options = [word for gate in gates for word in ("--feature-gate", gate)]
    status, output = run(known, claim(("gpu", GPU, 2)), pod, options=(*options, "--json"))
    assert status == 0
    told = json.loads(output)["result"][0].get("nodeAllocatableResources")
    assert told == (None if amounts is None else dict(zip(("cpu", "memory"), amounts, strict=True)))
    status, output = run(known, claim(("gpu", GPU, 2)), pod, options=tuple(options))
    assert ("counts on the node as cpu 5, memory 1536" in output) is (amounts is not None)
