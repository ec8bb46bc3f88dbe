"""`alignup claims`: devices of claims, and why there are none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from alignup import read_machine
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
    request_objects = [
        {"name": request_name, "exactly": {"deviceClassName": cls, "count": count}}
        for request_name, cls, count in requests
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": request_objects, **more}},
    }


@pytest.fixture
def run(tmp_path):
    def call(
        objects: list[dict[str, Any]], *question: dict[str, Any], options: tuple[str, ...] = ()
    ) -> tuple[int, str]:
        (tmp_path / "resources.json").write_text(json.dumps({"kind": "List", "items": objects}))
        (tmp_path / "asked.json").write_text(json.dumps({"kind": "List", "items": question}))
        files = ["--resources", str(tmp_path / "resources.json"), str(tmp_path / "asked.json")]
        result = CliRunner().invoke(program, ["claims", *options, *files])
        return result.exit_code, result.output

    return call


GPU, NIC = "gpu.example.com", "nic.example.com"


def test_devices_are_told_with_their_numa_nodes(run) -> None:
    objects = [
        *resources(device("g0", 0), device("g1", 1)),
        *resources(device("n0", 1), driver=NIC),
    ]
    question = claim(("gpu", GPU, 1), ("nic", NIC, 1), constraints=[{"matchAttribute": NUMA}])
    status, output = run(objects, question)
    assert status == 0
    assert "gpu: gpu.example.com/node-a/g1, NUMA node 1" in output
    status, output = run(objects, question, options=("--json",))
    assert [allocated["device"] for allocated in json.loads(output)["result"][0]["devices"]] == [
        "g1",
        "n0",
    ]


def test_a_constraint_is_named(run) -> None:
    objects = [
        *resources(device("g0", 0), device("g1", 0)),
        *resources(device("n0", 1), driver=NIC),
    ]
    status, output = run(
        objects,
        claim(("gpu", GPU, 1), ("nic", NIC, 1), constraints=[{"matchAttribute": NUMA}]),
        options=("--json",),
    )

    answer = json.loads(output)
    assert status == 1
    assert answer["constraint"] == f"matchAttribute {NUMA}"
    assert "0: gpu 2 of 1, nic 0 of 1; 1: gpu 0 of 1, nic 1 of 1" in answer["reason"]
    assert answer["helps"] == [f"leave out matchAttribute {NUMA}"]


def test_a_request_is_named_and_what_was_free(run) -> None:
    allocated_claim = {
        **claim(("r", GPU, 1), name="held"),
        "status": {
            "allocation": {
                "devices": {
                    "results": [{"request": "r", "driver": GPU, "pool": "node-a", "device": "g0"}]
                }
            }
        },
    }

    objects = [
        *resources(
            device("g0", 0),
            device("g1", 0, taints=[{"key": "k", "effect": "NoExecute"}]),
            device("g2", 1),
        ),
        allocated_claim,
    ]

    status, output = run(objects, claim(("gpu", GPU, 2)), options=("--json",))
    answer = json.loads(output)
    assert (status, answer["request"]) == (1, "gpu")
    assert "of 3 devices: 1 free, 1 in use, 1 tainted or out of counters" in answer["reason"]
    assert answer["helps"] == [
        "tolerate the taints of the devices",
        "ask for 1 in request gpu",
        "wait until other claims release devices",
    ]


def test_claims_of_a_pod_that_cannot_be_had_together(run) -> None:
    objects = [
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
    for pod_claim in objects[2:]:
        del pod_claim["metadata"]["namespace"]

    status, output = run(objects, pod)
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
    question = claim(("a", GPU, 1))
    question["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = selectors
    status, output = run(resources(device("g0", 0)), question, options=("--json",))
    assert (status, json.loads(output)["class"]) == (1, "fatal")


def test_the_node_is_needed_where_slices_are_of_several(run, tmp_path) -> None:
    objects = resources(device("g0", 0))
    second_slice = json.loads(
        json.dumps(objects[0]).replace("node-a", "node-b").replace("slice-", "other-")
    )
    status, output = run([*objects, second_slice], claim(("a", GPU, 1)))
    assert status == 2
    assert "--node-object" in output
    node = tmp_path / "node.yaml"
    node.write_text("kind: Node\nmetadata: {name: node-b}\n")
    status, output = run(
        [*objects, second_slice], claim(("a", GPU, 1)), options=("--node-object", str(node))
    )
    assert (status, "node-b: claim default/c: allocated" in output) == (0, True)


def lines(tmp_path, option: str, *questions: Any) -> tuple[int, list[Any]]:
    file = tmp_path / "lines.jsonl"
    file.write_text(
        "".join(
            f"{question if isinstance(question, str) else json.dumps(question)}\n"
            for question in questions
        )
    )
    result = CliRunner().invoke(
        program, ["claims", option, str(file), "--json"], catch_exceptions=False
    )
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]


def scenario(**more: Any) -> dict[str, Any]:
    objects = resources(device("g0", 0))
    return {
        "name": "s",
        "node": {"metadata": {"name": "node-a"}},
        "slices": objects[:1],
        "classes": objects[1:],
        "claims": [claim(("gpu", GPU, 1))],
        **more,
    }


def test_scenarios_are_answered_in_the_oracles_form(tmp_path) -> None:
    status, answers = lines(
        tmp_path,
        "--scenarios",
        scenario(),
        scenario(claims=[claim(("x", "none", 1))]),
        scenario(claims=[claim(("g", GPU, 2))]),
    )

    assert status == 0
    assert [sorted(answer) for answer in answers] == [
        ["ms", "name", "result"],
        ["class", "error", "ms", "name", "result"],
        ["ms", "name", "result"],
    ]

    assert answers[0]["result"][0]["devices"] == [
        {"request": "gpu", "driver": GPU, "pool": "node-a", "device": "g0"}
    ]
    assert answers[1]["result"] is answers[2]["result"] is None


def test_selectors_are_answered_in_order(tmp_path) -> None:
    questions = [
        {"name": str(number), "expression": expression, "driver": GPU, "device": {"attributes": {}}}
        for number, expression in enumerate(
            ("true", "device.a", "1 / 0 == 1", "google.protobuf.Empty{} == 1")
        )
    ]

    status, answers = lines(tmp_path, "--selectors", *questions)
    assert status == 0
    assert [list(answer) for answer in answers] == [
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
    claim_object = claim(("gpu", GPU, 1), name=name)
    return {**claim_object, "kind": "ResourceClaimTemplate", "spec": {"spec": claim_object["spec"]}}


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
    renamed_objects: list[dict[str, Any]] = json.loads(json.dumps(objects).replace("node-a", name))
    for renamed in renamed_objects:
        if renamed["kind"] == "ResourceSlice":
            renamed["metadata"]["name"] += name
    return renamed_objects


@pytest.fixture
def files(write):
    """Return files of a pod, of the objects of claims, and of three nodes.

    One meets, one does not, one has none.
    """
    far, near = resources(device("g0", 1)), of_node(resources(device("g0", 0)), "node-b")
    nodes = [
        {"name": f"node-{letter}", "machine": "xeon-2s", "kubelet": KUBELET, "devices": {}}
        for letter in "cab"
    ]
    return {
        "pod": write("pod.json", pod()),
        "resources": write("far.json", {"kind": "List", "items": [*far, template()]}),
        "more": write("near.json", {"kind": "List", "items": near[:1]}),
        "nodes": write("nodes.jsonl", "".join(json.dumps(node) + "\n" for node in nodes)),
        "config": write("kubelet.json", {"kind": "KubeletConfiguration", **KUBELET}),
    }


def test_admit_and_explain_say_where_the_devices_of_claims_are(alignup, files) -> None:
    arguments = (
        "--machine",
        "xeon-2s",
        "--config",
        files["config"],
        "--resources",
        files["resources"],
        files["pod"],
    )
    for command in ("admit", "explain"):
        ended = alignup(command, *arguments)
        assert (ended.status, "are ignored" in ended.err) == (0, False)
        assert "claim default/p-c: gpu: gpu.example.com/node-a/g0, NUMA node 1" in ended.out
        assert "the devices are not aligned with the pod's CPUs and memory" in ended.out
        assert "let claims give hints" in ended.out
        answer = json.loads(alignup(command, "--json", *arguments).out)["claims"]
        assert (answer["meet"], [allocated["numaNodes"] for allocated in answer["devices"]]) == (
            False,
            [[1]],
        )
        hinted = json.loads(alignup(command, "--json", "--dra-hints", *arguments).out)["claims"]
        assert (hinted["meet"], hinted["helps"]) == (True, [])

    assert "are ignored" in alignup("admit", "--machine", "xeon-2s", files["pod"]).err


def test_another_node_where_they_meet_is_named(alignup, files) -> None:
    arguments = (
        "explain",
        "--machine",
        "xeon-2s",
        "--config",
        files["config"],
        "--node-name",
        "node-a",
    )

    resources = ("--resources", files["resources"], "--resources", files["more"])
    text = alignup(*arguments, *resources, "--nodes", files["nodes"], files["pod"]).out
    assert (
        "node-b (near the devices of its claims), node-a (far from the devices of its claims)"
        in text
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
    arguments = (
        "rank",
        "--nodes",
        files["nodes"],
        "--resources",
        files["resources"],
        "--resources",
        files["more"],
    )

    answer = json.loads(alignup(*arguments, "--json", files["pod"]).out)
    assert [(placement["node"], placement["draAligned"]) for placement in answer["best"]] == [
        ("node-b", True),
        ("node-a", False),
    ]
    assert [(refusal["node"], refusal["reason"]) for refusal in answer["refused"]] == [
        ("node-c", "Unschedulable")
    ]

    strict = json.loads(alignup(*arguments, "--require-dra-alignment", "--json", files["pod"]).out)
    assert [placement["node"] for placement in strict["best"]] == ["node-b"]
    assert sorted(refusal["node"] for refusal in strict["refused"]) == ["node-a", "node-c"]

    assert "near its claims' devices" in alignup(*arguments, files["pod"]).out


def test_simulate_counts_pods_whose_devices_are_elsewhere(alignup, files, write) -> None:
    trace = [{"time": number, "admit": pod(f"p{number}"), "duration": 2.5} for number in range(4)]
    pods = write("trace.jsonl", "".join(json.dumps(event) + "\n" for event in trace))
    arguments = ("simulate", "--nodes", files["nodes"], "--pods", pods, "--json")
    assert "misaligned" not in json.loads(alignup(*arguments).out)
    claim_options = ("--resources", files["resources"], "--resources", files["more"])
    report = json.loads(alignup(*arguments, *claim_options).out)
    assert (report["placed"] + report["refused"] + report["noAlignment"], report["arrivals"]) == (
        4,
        4,
    )
    assert report["placed"] >= 2
    assert 0 < report["misaligned"] < report["placed"]


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
    ranking = json.loads(
        alignup("rank", "--nodes", write("n.jsonl", line), "--json", write("p.json", pod())).out
    )
    assert ranking["best"][0]["draAligned"] is True
    scenario = {**line, "name": "s", "steps": [{"admit": pod()}]}
    answer = json.loads(alignup("replay", "--json", write("s.jsonl", scenario)).out)
    assert answer["steps"][0]["claims"]["devices"][0]["device"] == "g1"


@pytest.mark.parametrize(
    ("gates", "amounts"),
    [((), None), (("DRANodeAllocatableResources=true",), {"cpu": "5", "memory": "1536"})],
)
def test_what_a_claim_counts_as_on_the_node_is_told(run, gates, amounts) -> None:
    counts = {
        "cpu": {"mapping": {"deviceMultiplier": "2500m"}},
        "memory": {"overhead": {"perPod": "512", "perContainer": "256"}},
    }

    objects = resources(
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
    status, output = run(objects, claim(("gpu", GPU, 2)), pod, options=(*options, "--json"))
    assert status == 0
    node_amounts = json.loads(output)["result"][0].get("nodeAllocatableResources")
    assert node_amounts == amounts

    status, output = run(objects, claim(("gpu", GPU, 2)), pod, options=tuple(options))
    assert ("counts on the node as cpu 5, memory 1536" in output) is (amounts is not None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--feature-gate", "DRAListTypeAtributes=true"), "did you mean DRAListTypeAttributes?"),
        (("--release", "1.34", "--feature-gate", "DRAListTypeAttributes=true"), "1.36 has it"),
        (("--feature-gate", "DRAPrioritizedList=false"), "locked to true"),
        (("--feature-gate", "DRAListTypeAttributes=yes"), "NAME=true or NAME=false"),
    ],
)
def test_a_gate_that_the_scheduler_would_refuse_is_refused(tmp_path, options, words) -> None:
    items = [*resources(device("g0", 0)), claim(("gpu", GPU, 1))]
    file = tmp_path / "objects.json"
    file.write_text(json.dumps({"kind": "List", "items": items}))
    args = ["claims", *options, "--resources", str(file), str(file)]
    with pytest.raises(InputError) as error:
        CliRunner().invoke(program, args, catch_exceptions=False)
    assert words in str(error.value)


def test_a_gate_that_mends_an_error_is_told(run) -> None:
    objects = resources(
        device("g0", 0, capacity={"memory": {"value": "8Gi"}}, allowMultipleAllocations=True)
    )
    wish = claim(("gpu", GPU, 1))
    wish["spec"]["devices"]["requests"][0]["exactly"]["capacity"] = {"requests": {"memory": "1Gi"}}
    off = ("--feature-gate", "DRAConsumableCapacity=false")
    status, output = run(objects, wish, options=off)
    assert status == 1
    assert "  would help: turn on the feature gate DRAConsumableCapacity of kube-api" in output

    status, output = run(objects, wish, options=(*off, "--json"))
    assert len(json.loads(output)["helps"]) == 1
    assert run(objects, wish)[0] == 0


EXTENDED = "example.com/gpu"


def serving(*numa_nodes: int) -> list[dict[str, Any]]:
    """Return devices near some NUMA nodes, of a class that serves an extended resource."""
    objects = resources(*(device(f"g{place}", numa) for place, numa in enumerate(numa_nodes)))
    objects[1]["spec"]["extendedResourceName"] = EXTENDED
    return objects


def asking(count: int, **limits: str) -> dict[str, Any]:
    limits = {"cpu": "2", "memory": "1Gi", EXTENDED: str(count), **limits}
    container = {"name": "c", "image": "i", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [container]},
    }


def test_the_claim_for_extended_resources_is_allocated(run) -> None:
    objects = serving(0, 1)
    status, output = run(objects, asking(2))
    assert status == 0
    assert output.splitlines() == [
        "node-a: claim default/p-extended-resources: allocated",
        "  example.com/gpu of container c: gpu.example.com/node-a/g0, NUMA node 0",
        "  example.com/gpu of container c: gpu.example.com/node-a/g1, NUMA node 1",
    ]
    status, output = run(objects, asking(3))
    assert status == 1
    assert "of container c asks for 3 of class gpu.example.com; of 2 devices: 2 free" in output
    assert "would help: ask for 2 in request example.com/gpu of container c" in output

    answer = json.loads(run(objects, asking(2), options=("--json",))[1])
    assert answer["extendedResources"] == [
        {
            "containerName": "c",
            "resourceName": EXTENDED,
            "requestName": "container-0-request-1",
        }
    ]
    assert [given["device"] for given in answer["result"][0]["devices"]] == ["g0", "g1"]


def test_extended_resources_of_a_plugin_need_no_claim(run, tmp_path) -> None:
    node = {"kind": "Node", "metadata": {"name": "node-a"}, "status": {"allocatable": {}}}
    path = tmp_path / "node.json"
    options = ("--node-object", str(path))
    for offered, has_claim in ((0, True), (2, False)):
        node["status"]["allocatable"] = {EXTENDED: str(offered)}
        path.write_text(json.dumps(node))
        status, output = run(serving(0, 1), asking(1), options=options)
        assert status == 0
        assert ("g0" in output) is has_claim

    assert output == (
        "node-a: no claim is made: the node's device plugins offer 2 example.com/gpu\n"
    )
    with_own_claim = asking(1)
    with_own_claim["spec"]["resourceClaims"] = [{"name": "x", "resourceClaimName": "c"}]
    objects = [*serving(0, 1), claim(("r", GPU, 1))]
    status, output = run(objects, with_own_claim, options=options)
    assert status == 1
    assert output.startswith("node-a: no devices on this node: nil or empty request mappings")
    assert "would help" not in output


def test_a_scheduler_without_the_gate_leaves_them_to_plugins(run) -> None:
    status, output = run(serving(0), asking(1), options=("--release", "1.35"))
    assert status == 1
    assert "the gate DRAExtendedResource is off in kube-scheduler 1.35" in output
    assert "would help: turn on the feature gate DRAExtendedResource" in output
    on = ("--release", "1.35", "--feature-gate", "DRAExtendedResource=true")
    assert run(serving(0), asking(1), options=on)[0] == 0


def test_what_cannot_be_asked_of_extended_resources(alignup, write) -> None:
    pod = write("pod.json", asking(1))
    objects = write("served.json", {"kind": "List", "items": serving(0)})
    off = ("--feature-gate", "DRAExtendedResource=false")
    refused = alignup("claims", "--resources", objects, *off, pod)
    assert (refused.status, "feature is locked to true" in refused.err) == (2, True)

    others = write("others.json", {"kind": "List", "items": resources(device("g0", 0))})
    refused = alignup("claims", "--resources", others, pod)
    assert refused.status == 2
    assert "with extended resources that a DeviceClass serves" in refused.err


def test_admit_explain_and_rank_heed_extended_resources(alignup, write) -> None:
    objects = write("served.json", {"kind": "List", "items": serving(0, 1)})
    fits, large = write("fits.json", asking(1)), write("large.json", asking(3))
    config = write("kubelet.json", {**KUBELET, "kind": "KubeletConfiguration"})
    common = ("--machine", "xeon-2s", "--config", config, "--resources", objects)

    answer = alignup("admit", *common, fits)
    assert (answer.status, answer.err) == (0, "")
    assert f"{EXTENDED} of container c: gpu.example.com/node-a/g0, NUMA node 0" in answer.out
    assert "the devices are aligned with the pod's CPUs and memory" in answer.out

    answer = alignup("admit", *common, large)
    assert answer.status == 1
    assert "cannot allocate all claims" in answer.out
    explanation = alignup("explain", *common, large).out
    assert "ask for 2 example.com/gpu instead of 3" in explanation
    assert "devices of a claim" in explanation
    part = json.loads(alignup("explain", *common, "--json", large).out)
    providers = {resource["resource"]: resource["provider"] for resource in part["resources"]}
    assert providers[EXTENDED] == "claims"

    node = {"name": "node-a", "machine": read_machine("xeon-2s").to_dict(), "kubelet": KUBELET}
    rank = ("rank", "--nodes", write("node.jsonl", node), "--resources", objects, "--json")
    (placement,) = json.loads(alignup(*rank, fits).out)["best"]
    assert placement["draAligned"] is True
    (refusal,) = json.loads(alignup(*rank, large).out)["refused"]
    assert refusal["reason"] == "Unschedulable"


def test_lists_of_numa_nodes_may_match_for_devices_of_two(run) -> None:
    lists = {"g0": [0, 1], "g1": [1, 0], "g2": [2, 3]}
    objects = resources(
        *({"name": name, "attributes": {NUMA: {"ints": ids}}} for name, ids in lists.items())
    )
    gate = ("--feature-gate", "DRAListTypeAttributes=true")
    matching = claim(("r", GPU, 2), constraints=[{"matchAttribute": NUMA}])
    status, output = run(objects, matching, options=gate)
    assert status == 0
    assert output.splitlines()[-1] == (
        f"  matchAttribute {NUMA} holds, as the lists have a NUMA node in common; yet g0 near NUMA "
        "node 0 and g1 near NUMA node 1"
    )
    for constraints in ([{"matchAttribute": NUMA, "requests": ["s"]}], []):
        other = claim(("r", GPU, 2), ("s", GPU, 1), constraints=constraints)
        assert "in common" not in run(objects, other, options=gate)[1]


@pytest.mark.parametrize(
    ("release", "limits", "words"),
    [
        ("1.37", [{}, {}], "cpu and memory, which no container limits"),
        ("1.37", [{"memory": "1Gi"}, {}], "cpu, which no container limits"),
        ("1.37", [{"memory": "1Gi", "cpu": "1"}, {}], ""),
        ("1.38", [{"memory": "1Gi", "cpu": "1"}, {"cpu": "1"}], "memory, which not every"),
        ("1.38", [{"memory": "1Gi", "cpu": "1"}] * 2, ""),
    ],
)
def test_what_limits_of_a_pod_do_not_grow_by_is_told(run, release, limits, words) -> None:
    """Hugepages always count (`findings/dra-pod-limits.sh`)."""
    counts = {
        name: {"mapping": {"deviceMultiplier": amount}}
        for name, amount in (("cpu", "2"), ("memory", "1Gi"), ("hugepages-2Mi", "4Mi"))
    }
    objects = resources(device("g0", 0, nodeAllocatableResources=counts))
    containers = [
        {"name": f"c{number}", "image": "i", "resources": {"limits": amounts}}
        for number, amounts in enumerate(limits)
    ]
    containers[0]["resources"]["claims"] = [{"name": "own"}]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {
            "resourceClaims": [{"name": "own", "resourceClaimName": "c"}],
            "containers": containers,
        },
    }
    gate = ("--release", release, "--feature-gate", "DRANodeAllocatableResources=true")
    status, output = run(objects, claim(("gpu", GPU, 1)), pod, options=gate)
    assert status == 0
    assert ("the limits of the pod do not grow by" in output) is bool(words)
    assert words in output


def test_a_kubelet_without_the_gate_does_not_heed_the_claim(alignup, write) -> None:
    objects = write("served.json", {"kind": "List", "items": serving(0, 1)})
    common = ("--machine", "xeon-2s", "--resources", objects, write("pod.json", asking(1)))
    for release, is_said in (("1.35", True), ("1.36", False), ("1.37", False)):
        answer = alignup("admit", "--kubelet-version", release, *common)
        assert answer.status == 0
        assert ("containers start without its devices" in answer.err) is is_said
