"""Simulated kubelets beside an API server of our own.

Pods are admitted, rejected, ended, and reported.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import aiohttp
import pytest

from alignup.control_plane.api_server.api_client import TOPOLOGIES
from alignup.control_plane.publishers.fleet import (
    DURATION,
    END,
    Fleet,
    FleetNode,
    Rejection,
    catalog_nodes,
    make_app,
    read_fleet,
    rejected_status,
    seconds_of,
)
from alignup.control_plane.serving import serve
from alignup.errors import AlignupWarning, InputError
from alignup.kubelet.node_resource_topology.report import HOLDINGS, NODE, decode_holdings
from alignup.node import Node
from fakes.api_server import LEASES, NODES, PODS, ApiStub, running, served, until
from inputs.watched_objects import description, pod_object, watched


def lines(*names: str) -> bytes:
    return "\n".join(json.dumps({"name": name, **description()}) for name in names).encode()


@asynccontextmanager
async def fleet(stub: ApiStub, *names: str, complain=lambda _: None, **options):
    """A fleet of these nodes that has registered them."""
    async with served(stub, complain) as api:
        simulated = Fleet(api, read_fleet(lines(*names), "nodes"), **options)
        async with running(simulated.run()):
            await until(lambda: simulated.is_synced)
            yield simulated


def phase(stub: ApiStub, name: str) -> str:
    return stub.get(PODS, name, "default")["status"].get("phase", "")


def reported_uids(stub: ApiStub, node: str) -> list[str]:
    """The uids of the pods that a node reports."""
    annotations = stub.get(TOPOLOGIES, node)["metadata"].get("annotations", {})
    return [pod.uid for pod in decode_holdings(annotations[HOLDINGS]).pods]


def simulated_node(**kubelet) -> FleetNode:
    node_description = description(**kubelet)
    return FleetNode("n", Node.from_dict(node_description), json.dumps(node_description))


def check(scenario) -> None:
    asyncio.run(scenario())


def test_nodes_are_registered_with_leases_and_reports() -> None:
    async def scenario() -> None:
        stub = ApiStub()
        async with fleet(stub, "a", "b", labels={"pool": "x"}, renew=0.05):
            node = stub.get(NODES, "a")
            assert node["metadata"]["labels"]["pool"] == "x"
            assert node["status"]["allocatable"]["cpu"] == "7000m"
            assert (
                json.loads(stub.get(TOPOLOGIES, "b")["metadata"]["annotations"][NODE])
                == description()
            )
            first = stub.get(LEASES, "a", "kube-node-lease")["spec"]["renewTime"]
            await until(
                lambda: stub.get(LEASES, "a", "kube-node-lease")["spec"]["renewTime"] != first
            )

    check(scenario)


def test_leases_do_not_wait_behind_pods() -> None:
    """A node whose lease is old is taken to be dead."""

    async def scenario() -> None:
        stub = ApiStub()
        free = asyncio.Event()
        async with fleet(stub, "a", renew=0.05):
            for number in range(50):
                stub.held[f"p{number}"] = free
                await stub.put(PODS, pod_object(f"p{number}", "a", cpu="100m", memory=0))

            await until(lambda: sum(path.endswith("/status") for _, path in stub.requests) > 30)
            first = stub.get(LEASES, "a", "kube-node-lease")["spec"]["renewTime"]
            await until(
                lambda: stub.get(LEASES, "a", "kube-node-lease")["spec"]["renewTime"] != first
            )
            assert phase(stub, "p0") == "Pending"
            free.set()
            await until(lambda: phase(stub, "p49") == "Running")

    check(scenario)


def test_pods_run_or_are_rejected_as_a_kubelet_would() -> None:
    async def scenario() -> None:
        stub = ApiStub()
        async with fleet(stub, "a"):
            for number in range(3):
                await stub.put(PODS, pod_object(f"p{number}", "a", cpu=3))
            await stub.put(PODS, pod_object("elsewhere", "other", cpu=3))
            await until(lambda: phase(stub, "p2") == "Failed")
            assert stub.get(PODS, "p2", "default")["status"]["reason"] == "TopologyAffinityError"
            await until(lambda: [phase(stub, "p0"), phase(stub, "p1")] == ["Running"] * 2)
            await until(lambda: reported_uids(stub, "a") == ["uid-p0", "uid-p1"])
            assert phase(stub, "elsewhere") == "Pending"

    check(scenario)


def test_pods_end_when_they_are_deleted_told_to_or_out_of_time() -> None:
    async def scenario() -> None:
        stub = ApiStub()
        async with fleet(stub, "a", duration=None):
            for name, annotations in (
                ("told", {}),
                ("timed", {DURATION: "0.05s"}),
                ("deleted", {}),
            ):
                pod = pod_object(name, "a", cpu=1)
                pod["metadata"]["annotations"] = annotations
                await stub.put(PODS, pod)

            await until(lambda: phase(stub, "timed") == "Succeeded")
            await until(lambda: phase(stub, "deleted") == phase(stub, "told") == "Running")
            ended = stub.get(PODS, "told", "default")
            await stub.put(
                PODS, {**ended, "metadata": {**ended["metadata"], "annotations": {END: "Failed"}}}
            )
            await until(lambda: phase(stub, "told") == "Failed")
            deleted = stub.get(PODS, "deleted", "default")
            metadata = {**deleted["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
            await stub.put(PODS, {**deleted, "metadata": metadata})
            await until(lambda: ("default", "deleted") not in stub.objects[PODS])
            await until(lambda: reported_uids(stub, "a") == [])

    check(scenario)


def test_no_pod_ends_once_the_fleet_has() -> None:
    async def scenario() -> None:
        stub, complaints = ApiStub(), []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: complaints.append(context)
        )
        async with fleet(stub, "a"):
            pod = pod_object("p", "a", cpu=2)
            pod["metadata"]["annotations"] = {DURATION: "0.1s"}
            await stub.put(PODS, pod)
            # on a busy machine it has ended already
            await until(lambda: phase(stub, "p") in {"Running", "Succeeded"})

        await asyncio.sleep(0.2)
        assert not complaints

    check(scenario)


def test_a_fleet_that_starts_again_keeps_what_its_pods_hold() -> None:
    async def scenario() -> None:
        stub = ApiStub()
        async with fleet(stub, "a"):
            for name in ("first", "second"):
                await stub.put(PODS, pod_object(name, "a", cpu=3))
                await until(lambda name=name: phase(stub, name) == "Running")

            await until(lambda: len(reported_uids(stub, "a")) == 2)
            await stub.delete(PODS, "first", "default")
            await until(lambda: reported_uids(stub, "a") == ["uid-second"])
            before = stub.get(TOPOLOGIES, "a")["zones"]

        async with fleet(stub, "a") as again:
            assert stub.get(TOPOLOGIES, "a")["zones"] == before
            assert str(again.nodes["a"].node.cpu.free_cpus) == "1-3,7"
            assert phase(stub, "second") == "Running"
            await stub.delete(PODS, "second", "default")
            await until(lambda: reported_uids(stub, "a") == [])

    check(scenario)


def test_earlier_reports_that_nobody_can_read_are_passed_over() -> None:
    said: list[str] = []

    async def scenario() -> None:
        stub = ApiStub()
        stub.written["DEEP"] = '{"a":' * 5000 + "1" + "}" * 5000
        for name, annotation in (("a", "["), ("b", "{}")):
            await stub.put(
                TOPOLOGIES, {"metadata": {"name": name, "annotations": {HOLDINGS: annotation}}}
            )

        await stub.put(TOPOLOGIES, {"metadata": {"name": "c", "annotations": 3}, "more": "DEEP"})
        async with fleet(stub, "a", "b", complain=said.append):
            await until(lambda: reported_uids(stub, "a") == reported_uids(stub, "b") == [])

    check(scenario)
    assert len(said) == 3
    assert all("expected" in complaint and "ignored" in complaint for complaint in said)


@pytest.mark.parametrize("statuses", [(500, 503), (429, 429), (409, 409), (429, 409)])
def test_passing_errors_of_the_server_are_said_and_tried_again(statuses) -> None:
    """Too many requests, conflicts and failures.

    The pod runs and the node is published all the same.
    """
    said: list[str] = []

    async def scenario() -> None:
        stub = ApiStub()
        async with fleet(stub, "a", complain=said.append):
            stub.refused_writes = {PODS: list(statuses[:1]), TOPOLOGIES: list(statuses[1:])}
            await stub.put(PODS, pod_object("p", "a", cpu=3))
            await until(
                lambda: phase(stub, "p") == "Running" and reported_uids(stub, "a") == ["uid-p"]
            )

    check(scenario)
    assert len(said) == 2


def test_a_node_that_the_server_does_not_take_at_first_is_registered_all_the_same() -> None:
    said: list[str] = []

    async def scenario() -> None:
        stub = ApiStub()
        stub.refused_writes = {NODES: [500]}
        async with fleet(stub, "a", "b", complain=said.append):
            assert {name for _, name in stub.objects[NODES]} == {"a", "b"}

    check(scenario)
    assert len(said) == 1


def test_a_node_whose_report_was_refused_for_good_is_published_again_when_it_changes() -> None:
    said: list[str] = []

    async def scenario() -> None:
        stub = ApiStub()
        async with fleet(stub, "a", complain=said.append):
            stub.forbidden = {TOPOLOGIES}
            await stub.put(PODS, pod_object("p", "a", cpu=1))
            await until(lambda: said and phase(stub, "p") == "Running")
            stub.forbidden = set()
            await stub.put(PODS, pod_object("q", "a", cpu=1))
            await until(lambda: reported_uids(stub, "a") == ["uid-p", "uid-q"])

    check(scenario)


def test_amounts_only_is_what_other_exporters_publish() -> None:
    async def scenario() -> None:
        stub = ApiStub()
        async with fleet(stub, "a", with_holdings=False):
            await stub.put(PODS, pod_object("p", "a", cpu=3))

            def cpus() -> str:
                return stub.get(TOPOLOGIES, "a")["zones"][0]["resources"][0]["available"]

            await until(lambda: cpus() == "0")
            assert "annotations" not in stub.get(TOPOLOGIES, "a")["metadata"]

    check(scenario)


def test_the_state_of_each_node_is_served() -> None:
    async def scenario() -> None:
        stub = ApiStub()
        async with fleet(stub, "a") as simulated, aiohttp.ClientSession() as session:
            runner, port = await serve(make_app(simulated), ("127.0.0.1", 0))
            await stub.put(PODS, pod_object("p", "a", cpu=3))
            await until(lambda: simulated.nodes["a"].node.manager.has_pod("uid-p"))
            url = f"http://127.0.0.1:{port}"
            async with session.get(f"{url}/nodes/a") as response:
                node_state = await response.json()
            assert node_state["holdings"]["pods"][0]["containers"]["main"]["cpus"] == "1-3"
            assert node_state["description"] == description()

            async with session.get(f"{url}/nodes") as response:
                assert await response.json() == {"nodes": [{"name": "a", "pods": 1}]}
            async with session.get(f"{url}/nodes/no") as response:
                assert response.status == 404
            async with session.get(f"{url}/healthz") as response:
                assert response.status == 200
            await runner.cleanup()

    check(scenario)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (b"", "no nodes in"),
        (b"{", "JSON"),
        (b"[]", "a node as a JSON object with a name"),
        (b'{"name": 3}', "a node as a JSON object with a name"),
        (b'{"name": "a", "machine": "no such"}', "node a"),
        (lines("a", "a"), "no other node has"),
    ],
)
def test_lines_that_are_no_nodes_are_refused(text, match) -> None:
    with pytest.raises(InputError, match=match):
        read_fleet(text, "nodes")


def test_pods_on_a_line_are_passed_over_with_a_warning() -> None:
    with pytest.warns(AlignupWarning, match="the pods of node a are ignored"):
        read_fleet(
            json.dumps({"name": "a", **description(), "pods": [pod_object("p")]}).encode(), "nodes"
        )


def test_a_machine_of_the_catalog_can_be_had_many_times() -> None:
    nodes = catalog_nodes("align-up-article", 3)
    assert [fleet_node.name for fleet_node in nodes] == [
        f"align-up-article-{number}" for number in range(3)
    ]
    assert nodes[0].node is not nodes[1].node


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30.0), ("0.5", 0.5), ("never", None), ("-1", None), ("inf", None)]
)
def test_durations_are_seconds(text, seconds) -> None:
    assert seconds_of(text) == seconds


def test_a_pod_that_cannot_be_aligned_is_rejected_as_a_kubelet_does() -> None:
    rejection = simulated_node().admit(watched("p", cpu=5).pod)
    status = rejected_status(rejection, "2026-01-01T00:00:00Z")
    assert (status["phase"], status["reason"]) == ("Failed", "TopologyAffinityError")
    assert (
        status["message"]
        == "Pod was rejected: Resources cannot be allocated with Topology locality"
    )


def test_whole_cores_that_cannot_be_had_have_a_reason_of_their_own() -> None:
    node_description = description(
        cpuManagerPolicyOptions={"full-pcpus-only": "true"}, topologyManagerPolicy="none"
    )
    for numa_node in node_description["machine"]["numaNodes"]:
        cpus = [core["cpus"][0] for core in numa_node["cores"]]
        numa_node["cores"] = [
            {"cpus": cpus[at : at + 2], "socket": numa_node["id"]} for at in (0, 2)
        ]
    node_description["kubelet"]["reservedSystemCPUs"] = "0,1"
    fleet_node = FleetNode("n", Node.from_dict(node_description), json.dumps(node_description))
    assert fleet_node.admit(watched("p", cpu=3).pod).reason == "SMTAlignmentError"


def test_after_the_managers_the_sums_are_checked_and_nothing_stays_taken() -> None:
    """Pods in the shared pool are not aligned, and yet more than there is cannot run."""
    fleet_node = simulated_node(topologyManagerPolicy="none")
    assert fleet_node.admit(watched("a", cpu="6500m").pod) is None
    assert fleet_node.admit(watched("b", cpu="600m").pod) == Rejection(
        "OutOfcpu",
        "Node didn't have enough resource: cpu, requested: 600, used: 6500, capacity: 7000",
    )
    assert not fleet_node.node.manager.has_pod("uid-b")
    assert fleet_node.admit(watched("c", cpu="500m").pod) is None


def test_a_pod_ends_once() -> None:
    fleet_node = simulated_node()
    fleet_node.admit(watched("p").pod)
    assert fleet_node.node.manager.has_pod("uid-p")
    assert fleet_node.end("uid-p")
    assert not fleet_node.end("uid-p")


def test_what_it_publishes_restores_it() -> None:
    fleet_node = simulated_node()
    fleet_node.admit(watched("p", cpu=2, gpu=1).pod)
    report = fleet_node.report(with_holdings=True)
    holdings = decode_holdings(report["metadata"]["annotations"]["alignup.dev/holdings"])
    restored = simulated_node()
    restored.restore(holdings)
    assert restored.report(with_holdings=True) == report
    assert "annotations" not in fleet_node.report(with_holdings=False)["metadata"]


def test_the_node_has_what_a_kubelet_reports() -> None:
    status = simulated_node().node_status("2026-01-01T00:00:00Z")
    assert status["capacity"] == {
        "pods": "110",
        "cpu": "8000m",
        "memory": str(16 << 30),
        "example.com/gpu": "2",
    }
    assert status["allocatable"]["cpu"] == "7000m"
    assert status["allocatable"]["memory"] == str(15 << 30)
    assert status["nodeInfo"]["kubeletVersion"] == "v1.37.0"
