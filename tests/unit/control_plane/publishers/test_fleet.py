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
    catalog_nodes,
    make_app,
    read_fleet,
    seconds_of,
)
from alignup.control_plane.serving import serve
from alignup.errors import AlignupWarning, InputError
from alignup.kubelet.node_resource_topology.report import HOLDINGS, NODE, decode_holdings
from fakes.api_server import LEASES, NODES, PODS, ApiStub, running, served, until
from inputs.watched_objects import description, pod_object


def lines(*names: str) -> bytes:
    return "\n".join(json.dumps({"name": name, **description()}) for name in names).encode()


@asynccontextmanager
async def fleet(stub: ApiStub, *names: str, complain=lambda _: None, **options):
    """A fleet of these nodes that has registered them."""
    async with served(stub, complain) as api:
        made = Fleet(api, read_fleet(lines(*names), "nodes"), **options)
        async with running(made.run()):
            await until(lambda: made.is_synced)
            yield made


def phase(stub: ApiStub, name: str) -> str:
    return stub.get(PODS, name, "default")["status"].get("phase", "")


def held(stub: ApiStub, node: str) -> list[str]:
    """The uids of the pods that a node reports."""
    annotations = stub.get(TOPOLOGIES, node)["metadata"].get("annotations", {})
    return [one.uid for one in decode_holdings(annotations[HOLDINGS]).pods]


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
            await until(lambda: held(stub, "a") == ["uid-p0", "uid-p1"])
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
            told = stub.get(PODS, "told", "default")
            await stub.put(
                PODS, {**told, "metadata": {**told["metadata"], "annotations": {END: "Failed"}}}
            )
            await until(lambda: phase(stub, "told") == "Failed")
            deleted = stub.get(PODS, "deleted", "default")
            metadata = {**deleted["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
            await stub.put(PODS, {**deleted, "metadata": metadata})
            await until(lambda: ("default", "deleted") not in stub.objects[PODS])
            await until(lambda: held(stub, "a") == [])

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

            await until(lambda: len(held(stub, "a")) == 2)
            await stub.delete(PODS, "first", "default")
            await until(lambda: held(stub, "a") == ["uid-second"])
            before = stub.get(TOPOLOGIES, "a")["zones"]

        async with fleet(stub, "a") as again:
            assert stub.get(TOPOLOGIES, "a")["zones"] == before
            assert str(again.nodes["a"].node.cpu.free_cpus) == "1-3,7"
            assert phase(stub, "second") == "Running"
            await stub.delete(PODS, "second", "default")
            await until(lambda: held(stub, "a") == [])

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
            await until(lambda: held(stub, "a") == held(stub, "b") == [])

    check(scenario)
    assert len(said) == 3
    assert all("expected" in one and "ignored" in one for one in said)


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
            await until(lambda: phase(stub, "p") == "Running" and held(stub, "a") == ["uid-p"])

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
            await until(lambda: held(stub, "a") == ["uid-p", "uid-q"])

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
        async with fleet(stub, "a") as made, aiohttp.ClientSession() as session:
            runner, port = await serve(make_app(made), ("127.0.0.1", 0))
            await stub.put(PODS, pod_object("p", "a", cpu=3))
            await until(lambda: made.nodes["a"].node.manager.has_pod("uid-p"))
            url = f"http://127.0.0.1:{port}"
            async with session.get(f"{url}/nodes/a") as response:
                found = await response.json()
            assert found["holdings"]["pods"][0]["containers"]["main"]["cpus"] == "1-3"
            assert found["description"] == description()
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
    assert [one.name for one in nodes] == [f"align-up-article-{number}" for number in range(3)]
    assert nodes[0].node is not nodes[1].node


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30.0), ("0.5", 0.5), ("never", None), ("-1", None), ("inf", None)]
)
def test_durations_are_seconds(text, seconds) -> None:
    assert seconds_of(text) == seconds
