"""The keeper with an API server: what it writes, and what it does about answers of any kind."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from alignup.control_plane.api_server.api_client import TOPOLOGIES, Api, ApiError, pod_path
from alignup.control_plane.api_server.leader import Leader, Terms
from alignup.control_plane.gates import gated_pods, keeper_service
from alignup.control_plane.gates.decisions import Release, patch_of
from alignup.control_plane.gates.keeper import Keeper
from alignup.control_plane.gates.keeper_service import KeeperService, decode_node
from alignup.control_plane.gates.waiting_pods import PLACE, PLACE_LABEL, SEEN_BY, GatedPodReader
from alignup.control_plane.scheduler import cluster_watch
from alignup.control_plane.scheduler.cluster_state import REPORT_DELAY, ClusterState
from alignup.kubernetes.node_fit import NodeObject
from fakes.api_server import LEASES, NODES, PODS, ApiStub, merge, running, served, until
from inputs.waiting_pods import gated_object, waiting_pod
from inputs.watched_objects import description, pod_object, topology

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOM = {"cpu": "7", "memory": "15Gi", "pods": "110", "example.com/gpu": "2"}


def node_object(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "kind": "Node",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"allocatable": ROOM},
    }


class Cluster:
    """A server, and what was complained of."""

    def __init__(self, stub: ApiStub, api: Api, complaints: list[str]) -> None:
        self.stub = stub
        self.api = api
        self.complaints = complaints

    def service(self, **options: Any) -> KeeperService:
        return KeeperService(self.api, Keeper(ClusterState()), GatedPodReader(), **options)

    def pod(self, name: str) -> dict[str, Any]:
        return self.stub.get(PODS, name, "default")

    def is_gated(self, name: str) -> bool:
        return bool(self.pod(name)["spec"].get("schedulingGates"))

    def place(self, name: str) -> str:
        return (self.pod(name)["metadata"].get("annotations") or {}).get(PLACE, "")

    async def bind(self, name: str, node: str) -> None:
        await self.stub.put(PODS, merge(self.pod(name), {"spec": {"nodeName": node}}))


@asynccontextmanager
async def cluster(*names: str) -> AsyncIterator[Cluster]:
    """Serve nodes of two NUMA nodes that publish that nothing is there."""
    stub = ApiStub()
    for name in names:
        await stub.put(NODES, node_object(name))
        await stub.put(TOPOLOGIES, topology(name, described=description()))

    complaints: list[str] = []
    async with served(stub, complaints.append) as api:
        yield Cluster(stub, api, complaints)


def with_cluster(*names: str):
    """Return what runs a scenario on such a server."""

    def decorated(scenario):
        async def run() -> None:
            async with asyncio.timeout(60), cluster(*names) as there:
                await scenario(there)

        asyncio.run(run())

    return decorated


@pytest.fixture(autouse=True)
def _without_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the keeper decide only when something has happened, or time alone would mend all."""
    monkeypatch.setattr(keeper_service, "_LONGEST_PAUSE", 1000.0)


def test_a_pod_is_let_go_to_its_node_and_the_next_one_when_that_is_free() -> None:
    @with_cluster("a")
    async def _(there: Cluster) -> None:
        await there.stub.put(PODS, gated_object("p", cpu=4))
        service = there.service()
        async with running(service.run()):
            await until(lambda: not there.is_gated("p"))
            terms = there.pod("p")["spec"]["affinity"]["nodeAffinity"][
                "requiredDuringSchedulingIgnoredDuringExecution"
            ]["nodeSelectorTerms"]
            named = {"key": "metadata.name", "operator": "In", "values": ["a"]}
            label = {
                "key": f"{PLACE_LABEL}uid-p",
                "operator": "Exists",
            }
            assert terms == [{"matchFields": [named]}, {"matchExpressions": [label]}]
            assert there.place("p") == "a"

            await there.stub.put(PODS, gated_object("q", cpu=4))
            await there.bind("p", "a")
            await until(lambda: service.keeper.queue and not service.keeper.places)
            ended = {"status": {"phase": "Succeeded"}}
            await there.stub.put(PODS, merge(there.pod("p"), ended))
            await until(lambda: not there.is_gated("q"))
            assert there.complaints == []


@pytest.mark.parametrize("is_waited_for", [False, True])
def test_it_is_decided_about_changes_that_somebody_waits_for(monkeypatch, is_waited_for) -> None:
    moments: list[float] = []

    def decide(keeper: Keeper, now: float) -> list[object]:
        moments.append(now)
        return _decide(keeper, now)

    _decide = Keeper.decide
    monkeypatch.setattr(Keeper, "decide", decide)

    @with_cluster("a")
    async def _(there: Cluster) -> None:
        service = there.service()
        if is_waited_for:
            await there.stub.put(PODS, pod_object("holder", "a", cpu=4))
            await there.stub.put(PODS, gated_object("p", cpu=4))
        async with running(service.run()):
            await until(lambda: moments)
            await asyncio.sleep(0.1)
            moments.clear()
            bound = service.keeper.state.pods
            for number in range(3):
                await there.stub.put(PODS, pod_object(f"p{number}", "a", cpu=1))
                await until(lambda number=number: f"uid-p{number}" in bound)
                await there.stub.delete(PODS, f"p{number}", "default")
                await until(lambda number=number: f"uid-p{number}" not in bound)
                await asyncio.sleep(0.05)

    assert bool(moments) == is_waited_for


def test_who_fits_no_empty_node_is_let_go_as_soon_as_another_node_has_reported() -> None:
    @with_cluster("a")
    async def _(there: Cluster) -> None:
        await there.stub.put(PODS, gated_object("p", cpu=5))
        service = there.service()
        async with running(service.run()):
            await until(lambda: service.keeper.pods.hopeless_kinds)
            await there.stub.put(NODES, node_object("b"))
            await until(lambda: "b" in service.keeper.nodes.objects)
            await asyncio.sleep(0.05)
            described = description(topologyManagerPolicy="best-effort")
            await there.stub.put(TOPOLOGIES, topology("b", described=described))
            await until(lambda: not there.is_gated("p"))
            assert there.place("p") == "b"


def test_a_deleted_pod_is_looked_for_and_is_free_when_no_report_has_come(monkeypatch) -> None:
    """Its kubelet may have taken it before, and takes its time to end it."""
    monkeypatch.setattr(cluster_watch, "_TICK_SECONDS", 0.01)
    monkeypatch.setattr(keeper_service, "_LONGEST_PAUSE", 0.05)  # no event tells of it

    @with_cluster("a")
    async def _(there: Cluster) -> None:
        ahead = [0.0]
        service = there.service()
        service.clock = service.watch.clock = lambda: time.monotonic() + ahead[0]
        await there.stub.put(PODS, pod_object("p", "a", cpu=4))
        await there.stub.put(PODS, gated_object("q", cpu=4))
        async with running(service.run()):
            await service.watch.synced()
            await there.stub.delete(PODS, "p", "default")
            await until(lambda: not service.keeper.state.pods)
            request = "GET", pod_path("default", "p")
            await until(lambda: request in there.stub.requests)
            await asyncio.sleep(0.1)
            assert there.is_gated("q")
            ahead[0] = REPORT_DELAY + 1
            await until(lambda: not there.is_gated("q"))
            assert there.complaints == []


def test_a_node_that_is_deleted_takes_no_pod_any_more() -> None:
    """Its report may stay behind."""

    @with_cluster("a", "b")
    async def _(there: Cluster) -> None:
        service = there.service()
        async with running(service.run()):
            await service.watch.synced()
            await there.stub.delete(NODES, "a")
            await until(lambda: "a" not in service.keeper.nodes.objects)
            for name in "pq":
                await there.stub.put(PODS, gated_object(name, cpu=4))
            await until(lambda: any(not there.is_gated(name) for name in "pq"))
            assert [place.nodes for place in service.keeper.places] == [("b",)]


def test_a_pod_that_was_said_to_be_gone_and_is_there_is_seen_again() -> None:
    @with_cluster("a")
    async def _(there: Cluster) -> None:
        stub = there.stub
        await stub.put(PODS, pod_object("p", "a", cpu=4))
        service = there.service()
        async with running(service.run()):
            await service.watch.synced()
            pod = service.keeper.state.pods["uid-p"]
            async with stub.changed:
                stub.version += 1
                stored = stub.get(PODS, "p", "default")
                stub.events.append((stub.version, PODS, "DELETED", stored, stored))
                stub.changed.notify_all()
            await until(lambda: ("GET", pod_path("default", "p")) in stub.requests)
            await until(lambda: service.keeper.state.pods == {"uid-p": pod})
            await stub.put(PODS, gated_object("q", cpu=4))
            await until(lambda: service.keeper.queue)
            assert service.keeper.decide(service.clock()) == []


def test_a_list_of_what_the_server_remembers_is_said_to_be_one() -> None:
    @with_cluster("a")
    async def _(there: Cluster) -> None:
        service = there.service()
        cached = []

        def note(*_args: object, is_cached: bool) -> None:
            cached.append(is_cached)

        service.keeper.pods_listed = note
        async with running(service.run()):
            await service.watch.synced()
            await service.watch.pods.list_again(cached=True)
            await service.watch.pods.list_again()
        assert cached == [False, True, False]


def test_a_pod_without_anything_exclusive_is_let_go_as_it_is() -> None:
    @with_cluster("a")
    async def _(there: Cluster) -> None:
        pod = gated_object("p")
        pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
        await there.stub.put(PODS, pod)
        async with running(there.service().run()):
            await until(lambda: not there.is_gated("p"))
            assert "affinity" not in there.pod("p")["spec"]
            assert there.place("p") == ""


@pytest.mark.parametrize("statuses", [[409], [503, 409], [500], [429, 504]])
def test_a_patch_that_is_not_taken_is_sent_again(statuses) -> None:
    @with_cluster("a")
    async def _(there: Cluster) -> None:
        service = there.service()
        async with running(service.run()):
            await service.watch.synced()
            there.stub.refused_writes[PODS] = list(statuses)
            await there.stub.put(PODS, gated_object("p", cpu=4))
            await until(lambda: there.stub.refused_writes[PODS] == [])
            # whoever has changed the pod has made another version
            await there.stub.put(PODS, there.pod("p"))
            await until(lambda: not there.is_gated("p"))
            assert len(service.keeper.places) == 1


def test_a_pod_that_may_not_be_changed_gives_its_place_up() -> None:
    @with_cluster("a")
    async def _(there: Cluster) -> None:
        service = there.service()
        async with running(service.run()):
            await service.watch.synced()
            there.stub.refused_writes[PODS] = [403]
            await there.stub.put(PODS, gated_object("p", cpu=4))
            await until(lambda: there.complaints)
            assert "403" in there.complaints[0]
            await there.stub.put(PODS, gated_object("q", cpu=4))
            await until(lambda: not there.is_gated("q"))
            assert there.is_gated("p")


def test_a_pod_that_has_changed_and_cannot_be_read_gives_its_place_up() -> None:
    @with_cluster("a")
    async def _(there: Cluster) -> None:
        class NothingIsReadAfterwards(list[int]):
            def pop(self, index: int = -1) -> int:
                there.stub.forbidden.add(PODS)
                return super().pop(index)

        service = there.service()
        async with running(service.run()):
            await service.watch.synced()
            there.stub.refused_writes[PODS] = NothingIsReadAfterwards([409])
            await there.stub.put(PODS, gated_object("p", cpu=4))
            await until(lambda: there.complaints)
            assert "403" in there.complaints[0]
            assert service.keeper.counts.refused == 1
            assert not service.keeper.places


def test_a_pod_that_was_let_go_though_the_answer_got_lost_keeps_its_place() -> None:
    @with_cluster("a")
    async def _(there: Cluster) -> None:
        service = there.service()
        pod = waiting_pod("p", cpu=4)
        await there.stub.put(PODS, gated_object("p", cpu=4))
        stored = there.pod("p")
        released = Release(pod, ("a",), pod.label)
        async with running(service.watch.run()):
            await service.watch.synced()
            (decision,) = service.keeper.decide(service.clock())
            await there.stub.put(PODS, merge(stored, strip(patch_of(released))), silently=True)
            await service._carry_out(decision)  # at this moment
            assert service.keeper.places["uid-p"].is_open
            assert there.complaints == []


def strip(patch: dict[str, Any]) -> dict[str, Any]:
    """Return a patch that names no version."""
    del patch["metadata"]["resourceVersion"]
    return patch


def test_a_cordoned_node_gives_way_to_another_one_by_a_label() -> None:
    @with_cluster("a", "b")
    async def _(there: Cluster) -> None:
        await there.stub.put(PODS, gated_object("p", cpu=4))
        service = there.service()
        async with running(service.run()):
            await until(lambda: there.place("p") == "a")
            await until(lambda: service.keeper.places["uid-p"].is_open)
            await there.stub.put(NODES, node_object("a", unschedulable=True))

            def labels() -> dict[str, str]:
                return there.stub.get(NODES, "b")["metadata"].get("labels") or {}

            await until(labels)
            assert labels() == {f"{PLACE_LABEL}uid-p": "true"}
            await there.bind("p", "b")
            await until(lambda: not labels())
            await until(lambda: not service._labelling)


def test_a_node_that_takes_pods_again_gets_one_at_once() -> None:
    @with_cluster()
    async def _(there: Cluster) -> None:
        await there.stub.put(NODES, node_object("a", unschedulable=True))
        await there.stub.put(TOPOLOGIES, topology("a", described=description()))
        service = there.service()
        async with running(service.run()):
            await service.watch.synced()
            await there.stub.put(PODS, gated_object("p", cpu=4))
            await until(lambda: service.keeper.queue)
            await asyncio.sleep(0.1)
            await there.stub.put(NODES, node_object("a"))
            await until(lambda: not there.is_gated("p"))


def test_a_deleted_node_gives_way_to_another_one_at_once() -> None:
    @with_cluster("a", "b")
    async def _(there: Cluster) -> None:
        await there.stub.put(PODS, gated_object("p", cpu=4))
        service = there.service()
        async with running(service.run()):
            await until(lambda: there.place("p") == "a")
            await until(lambda: service.keeper.places["uid-p"].is_open)
            await there.stub.delete(NODES, "a")
            await until(lambda: there.stub.get(NODES, "b")["metadata"].get("labels"))


def test_a_label_is_there_before_a_pod_that_reaches_its_node_by_it_only() -> None:
    @with_cluster("a")
    async def _(there: Cluster) -> None:
        term = {"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        spec = {"affinity": {"nodeAffinity": required}}
        service = there.service()
        async with running(service.run()):
            await service.watch.synced()
            there.stub.refused_writes[NODES] = [503, 503]
            await there.stub.put(PODS, gated_object("p", cpu=4, spec=spec))
            await until(lambda: not there.is_gated("p"))

        writes = [path for method, path in there.stub.requests if method == "PATCH"]
        assert writes == ["/api/v1/nodes/a"] * 3 + ["/api/v1/namespaces/default/pods/p"]


def test_a_label_that_may_not_be_set_is_complained_of_and_tried_again() -> None:
    @with_cluster("a", "b")
    async def _(there: Cluster) -> None:
        await there.stub.put(PODS, gated_object("p", cpu=4))
        service = there.service()
        async with running(service.run()):
            await until(lambda: "uid-p" in service.keeper.places)
            await until(lambda: service.keeper.places["uid-p"].is_open)
            there.stub.refused_writes[NODES] = [403]
            await there.stub.put(NODES, node_object("a", unschedulable=True))
            await until(lambda: there.stub.get(NODES, "b")["metadata"].get("labels"))
            assert len(there.complaints) == 1


def test_only_the_leader_writes_and_fences_what_was_sent_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # a keeper that begins to lead learns it when it looks again
    monkeypatch.setattr(keeper_service, "_LONGEST_PAUSE", 1.0)

    """The lease is that of a process that is not there any more."""

    @with_cluster("a")
    async def _(there: Cluster) -> None:
        await there.stub.put(PODS, gated_object("p", cpu=4))
        old = waiting_pod("p", cpu=4)
        late = patch_of(Release(old, ("a",), old.label))
        late["metadata"]["resourceVersion"] = there.pod("p")["metadata"]["resourceVersion"]

        terms = Terms(lease=2, renew=1.0, retry=0.1)
        lease = {
            "metadata": {"name": "gates", "namespace": "alignup"},
            "spec": {"holderIdentity": "first", "leaseDurationSeconds": 2},
        }
        await there.stub.put(LEASES, lease)
        second = Leader(there.api, "alignup", "gates", "second", terms=terms)
        standby = there.service(leader=second)
        async with running(standby.run()):
            await until(lambda: second.holder)
            await standby.watch.synced()
            await asyncio.sleep(0.3)
            assert there.is_gated("p")
            # nothing of a large pod keeps it from being touched
            await there.stub.put(PODS, gated_object("large", cpu=7))
            await until(lambda: not there.is_gated("p"))
            touched = there.pod("large")["metadata"]["annotations"][SEEN_BY]
            assert touched.startswith("second/")
            with pytest.raises(ApiError) as raised:
                await there.api.request("PATCH", pod_path("default", "p"), late)
            assert raised.value.status == 409


@pytest.mark.parametrize("holder", ["first", "second", None])
def test_a_leader_whose_clock_stood_still_sees_by_the_pods_that_another_one_leads(holder) -> None:
    """As that of a machine that was paused. Its lease would be read in a minute only."""

    @with_cluster("a")
    async def _(there: Cluster) -> None:
        await there.stub.put(PODS, gated_object("large", cpu=7))
        terms = Terms(lease=200, renew=150, retry=100)
        leader = Leader(there.api, "alignup", "gates", "first", terms=terms, clock=lambda: 1000.0)
        service = there.service(leader=leader)
        async with running(service.run()):
            await until(lambda: service.leads)
            lease = there.stub.get(LEASES, "gates", "alignup")
            if holder is None:
                await there.stub.delete(LEASES, "gates", "alignup")
            else:
                lease["spec"]["holderIdentity"] = holder
                await there.stub.put(LEASES, lease)
            small = gated_object("small", cpu=2)
            small["metadata"]["annotations"] = {SEEN_BY: "second/1"}
            await there.stub.put(PODS, small)
            if holder == "first":  # somebody has copied a manifest
                await until(lambda: not there.is_gated("small"))
                assert service.leads
            else:
                await until(lambda: not service.leads)
                await asyncio.sleep(0.1)
                assert there.is_gated("small")


def test_what_earlier_leaders_wrote_is_no_reason_to_doubt() -> None:
    @with_cluster("a")
    async def _(there: Cluster) -> None:
        manifest = gated_object("large", cpu=7)
        manifest["metadata"]["annotations"] = {SEEN_BY: "before/3"}
        await there.stub.put(PODS, manifest)
        lease = {
            "metadata": {"name": "gates", "namespace": "alignup"},
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": "2026-01-01"},
        }
        await there.stub.put(LEASES, lease)
        terms = Terms(lease=200, renew=150, retry=100)
        leader = Leader(there.api, "alignup", "gates", "first", terms=terms)
        service = there.service(leader=leader)
        async with running(service.run()):
            await until(lambda: service.leads)
            assert leader.was_handed_over
            await there.stub.put(PODS, gated_object("first", cpu=2))
            await until(lambda: not there.is_gated("first"))
            requests = len(there.stub.requests)
            await there.stub.put(PODS, manifest)
            await there.stub.put(PODS, gated_object("small", cpu=2))
            await until(lambda: not there.is_gated("small"))
            asked = [
                request for request in there.stub.requests[requests:] if "leases" in str(request)
            ]
            assert asked == []


def hold_label(there: Cluster) -> list[dict[str, Any]]:
    """Let the next patch of a node be on its way for long; it will be in the list."""
    held: list[dict[str, Any]] = []
    answer = there.stub.one

    async def one(method: str, kind: str, *arguments: Any) -> Any:
        if (method, kind) != ("PATCH", NODES):
            return await answer(method, kind, *arguments)
        there.stub.one = answer  # type: ignore[method-assign]
        held.append(arguments[-1])
        await asyncio.Event().wait()
        return None

    there.stub.one = one  # type: ignore[method-assign]
    return held


def node_metadata(there: Cluster, name: str, part: str) -> dict[str, str]:
    """Return the labels, or annotations, of a node."""
    return dict(there.stub.get(NODES, name)["metadata"].get(part) or {})


OWN_TERMS = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}
                ]
            }
        }
    }
}


@pytest.mark.usefixtures("_looks_often")
@pytest.mark.parametrize("has_terms", [False, True])
def test_a_late_label_of_a_former_leader_gives_nobody_a_node_that_another_one_has(
    has_terms,
) -> None:
    """With the gate, it is for a pod that reaches its nodes by the label only."""

    @with_cluster("a", "b")
    async def _(there: Cluster) -> None:
        tainted = node_object("c", taints=[{"key": "k", "effect": "NoSchedule"}])
        await there.stub.put(NODES, tainted)
        terms = Terms(lease=2, renew=1.0, retry=0.1)
        first, second = (
            Leader(there.api, "alignup", "gates", name, terms=terms) for name in ("first", "second")
        )
        service = there.service(leader=first)
        async with running(service.run()):
            await until(lambda: service.leads)
            held = hold_label(there)
            spec = OWN_TERMS if has_terms else {}
            await there.stub.put(PODS, gated_object("p", cpu=4, spec=spec))
            if not has_terms:
                await until(lambda: "uid-p" in service.keeper.places)
                await until(lambda: service.keeper.places["uid-p"].is_open)
                await there.stub.put(NODES, node_object("a", unschedulable=True))
            await until(lambda: held)

        # what the label makes wrong: both nodes have their pods
        await there.stub.put(NODES, node_object("a"))
        labelled = "a" if has_terms else "b"
        service = there.service(leader=second)
        async with running(service.run()):
            await until(lambda: service.leads)
            await there.stub.put(PODS, gated_object("q", cpu=4))
            await until(lambda: not there.is_gated("q") and not there.is_gated("p"))
            assert {there.place("p"), there.place("q")} == {"a", "b"}
            with pytest.raises(ApiError) as raised:
                await there.api.request("PATCH", f"{NODES}/{labelled}", held[0])
            assert raised.value.status == 409
            for name in ("a", "b"):
                assert node_metadata(there, name, "annotations") == {SEEN_BY: "second/1"}
            assert node_metadata(there, "c", "annotations") == {}


@pytest.mark.usefixtures("_looks_often")
def test_nodes_are_not_written_into_where_no_pod_follows_a_label() -> None:
    @with_cluster("a")
    async def _(there: Cluster) -> None:
        await there.stub.put(PODS, gated_object("p", cpu=4))
        leader = Leader(there.api, "alignup", "gates", "first", terms=Terms(60, 40.0, 0.1))
        service = there.service(leader=leader)
        async with running(service.run()):
            await until(lambda: not there.is_gated("p"))
            assert node_metadata(there, "a", "annotations") == {}
            assert service.watch.nodes.lists == 1


@pytest.mark.usefixtures("_looks_often")
def test_nodes_that_cannot_be_written_into_keep_no_leader_from_beginning() -> None:
    """As under a policy that is older than the keeper."""

    @with_cluster("a", "b")
    async def _(there: Cluster) -> None:
        await there.stub.put(PODS, gated_object("p", cpu=4, spec=OWN_TERMS))
        there.stub.refused_writes[NODES] = [422, 422]
        leader = Leader(there.api, "alignup", "gates", "first", terms=Terms(60, 40.0, 0.1))
        service = there.service(leader=leader)
        async with running(service.run()):
            await until(lambda: not there.is_gated("p"))
            (complaint,) = there.complaints
            assert complaint.startswith("2 of 2 nodes cannot be written into: ")


@pytest.mark.usefixtures("_looks_often")
def test_a_label_that_has_no_answer_in_one_term_is_refused_in_the_next_of_the_same_process() -> (
    None
):
    @with_cluster("a", "b")
    async def _(there: Cluster) -> None:
        leader = Leader(there.api, "alignup", "gates", "first", terms=Terms(60, 59.0, 0.1))
        service = there.service(leader=leader)
        async with running(service.run()):
            await there.stub.put(PODS, gated_object("p", cpu=4))
            await until(lambda: "uid-p" in service.keeper.places)
            await until(lambda: service.keeper.places["uid-p"].is_open)
            held = hold_label(there)
            await there.stub.put(NODES, node_object("a", unschedulable=True))
            await until(lambda: held)
            leader._renewed = float("-inf")
            leader.was_handed_over = True  # another one led meanwhile
            await until(lambda: leader.term == 2 and service.leads)
            with pytest.raises(ApiError) as raised:
                await there.api.request("PATCH", f"{NODES}/b", held[0])
            assert raised.value.status == 409


def test_a_label_whose_node_has_changed_is_set_as_soon_as_that_is_seen() -> None:
    @with_cluster("a", "b")
    async def _(there: Cluster) -> None:
        await there.stub.put(PODS, gated_object("p", cpu=4))
        service = there.service()
        async with running(service.run()):
            await until(lambda: "uid-p" in service.keeper.places)
            await until(lambda: service.keeper.places["uid-p"].is_open)
            change_before_patches(there, "b", 5)
            await there.stub.put(NODES, node_object("a", unschedulable=True))
            await until(lambda: node_metadata(there, "b", "labels"))
            assert there.stub.get(NODES, "b")["metadata"]["changes"] == 5
            assert there.complaints == []


def change_before_patches(there: Cluster, name: str, most: int) -> None:
    """Let a node change right before each of the next patches of it, as by its kubelet."""
    answer = there.stub.one

    async def one(method: str, kind: str, key: tuple[str, str], *arguments: Any) -> Any:
        node = there.stub.get(NODES, name)
        changes = node["metadata"].get("changes", 0)
        if (method, kind, key[1]) == ("PATCH", NODES, name) and changes < most:
            await there.stub.put(NODES, merge(node, {"metadata": {"changes": changes + 1}}))
        return await answer(method, kind, key, *arguments)

    there.stub.one = one  # type: ignore[method-assign]


def test_a_pod_is_not_let_go_while_another_node_has_its_label() -> None:
    """As by a leader that ended between both."""

    @with_cluster("a", "b")
    async def _(there: Cluster) -> None:
        labelled = merge(
            node_object("b", unschedulable=True),
            {"metadata": {"labels": {f"{PLACE_LABEL}uid-p": "true"}}},
        )
        await there.stub.put(NODES, labelled)
        await there.stub.put(PODS, gated_object("p", cpu=4, spec=OWN_TERMS))
        change_before_patches(there, "b", 1)
        service = there.service()
        async with running(service.run()):
            await until(lambda: service.keeper.pods.parked)
            assert there.is_gated("p")
            await until(lambda: not node_metadata(there, "b", "labels"))


@pytest.mark.usefixtures("_looks_often")
def test_a_leader_whose_clock_stood_still_sees_by_nodes_that_another_one_leads() -> None:
    @with_cluster("a", "b")
    async def _(there: Cluster) -> None:
        terms = Terms(lease=200, renew=150, retry=100)
        leader = Leader(there.api, "alignup", "gates", "first", terms=terms, clock=lambda: 1000.0)
        service = there.service(leader=leader)
        async with running(service.run()):
            await until(lambda: service.leads)
            lease = there.stub.get(LEASES, "gates", "alignup")
            lease["spec"]["holderIdentity"] = "second"
            await there.stub.put(LEASES, lease)
            written = {"metadata": {"annotations": {SEEN_BY: "second/1"}}}
            await there.stub.put(NODES, merge(node_object("a"), written))
            await until(lambda: not service.leads)


def test_a_lease_that_was_given_back_needs_no_fence() -> None:
    @with_cluster("a")
    async def _(there: Cluster) -> None:
        await there.stub.put(PODS, gated_object("large", cpu=7))
        terms = Terms(lease=2, renew=1.0, retry=0.1)
        leaders = [
            Leader(there.api, "alignup", "gates", name, terms=terms) for name in ("first", "second")
        ]
        async with running(leaders[0].run()):
            await until(lambda: leaders[0].leads)
            assert not leaders[0].was_handed_over

        service = there.service(leader=leaders[1])
        async with running(service.run()):
            await until(lambda: service.leads)
            assert leaders[1].was_handed_over
            assert SEEN_BY not in (there.pod("large")["metadata"].get("annotations") or {})
            assert service.watch.nodes.lists == 1


@pytest.mark.usefixtures("_looks_often")
def test_labels_that_the_leader_before_has_set_are_known_before_a_term_begins() -> None:
    """The watch of nodes may be silent."""

    @with_cluster("a", "b")
    async def _(there: Cluster) -> None:
        terms = Terms(lease=2, renew=1.0, retry=0.1)
        leaders = [
            Leader(there.api, "alignup", "gates", name, terms=terms) for name in ("first", "second")
        ]
        service = there.service(leader=leaders[1])
        async with running(leaders[0].run()):
            await until(lambda: leaders[0].leads)
            task = asyncio.ensure_future(service.run())
            await service.watch.synced()
            pod = gated_object("p", cpu=4)
            release = Release(waiting_pod("p", cpu=4), ("a",), f"{PLACE_LABEL}uid-p")
            pod = merge(pod, patch_of(release))
            pod["metadata"]["generation"] = 2
            await there.stub.put(PODS, pod)
            labels = {"metadata": {"labels": {f"{PLACE_LABEL}uid-p": "true"}}}
            await there.stub.put(NODES, merge(node_object("b"), labels), silently=True)

        await until(lambda: service.leads)
        assert leaders[1].was_handed_over
        assert set(service.keeper.places["uid-p"].nodes) == {"a", "b"}
        assert node_metadata(there, "a", "annotations") == {}
        task.cancel()


@pytest.fixture
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a keeper learn soon that it leads: no event says so."""
    monkeypatch.setattr(keeper_service, "_LONGEST_PAUSE", 0.05)


def leases_read(there: Cluster) -> int:
    return sum(
        method == "GET" and path.endswith("/leases/gates") for method, path in there.stub.requests
    )


@pytest.mark.usefixtures("_looks_often")
@pytest.mark.parametrize("statuses", [[429] * 9, [503], [409], [422], [403]])
def test_a_pod_that_a_new_leader_may_not_write_into_stops_no_other(statuses) -> None:
    @with_cluster("a")
    async def _(there: Cluster) -> None:
        for name in ("large", "larger"):
            await there.stub.put(PODS, gated_object(name, cpu=7))
        there.stub.refused_writes[PODS] = list(statuses)
        leader = Leader(there.api, "alignup", "gates", "first", terms=Terms(60, 40.0, 0.1))
        service = there.service(leader=leader)
        async with running(service.run()):
            await until(lambda: service.leads)
            written = [
                SEEN_BY in (there.pod(name)["metadata"].get("annotations") or {})
                for name in ("large", "larger")
            ]
            assert written.count(False) == (statuses[0] in {403, 422})
            assert len(there.complaints) == 1
            assert service.watch.pods.lists == 3


@pytest.mark.usefixtures("_looks_often")
def test_a_new_leader_goes_on_without_a_pod_that_cannot_be_written_into_for_long() -> None:
    """As where somebody whom the server asks about it does not answer."""

    @with_cluster("a")
    async def _(there: Cluster) -> None:
        for name in ("large", "larger"):
            await there.stub.put(PODS, gated_object(name, cpu=7))
        fail_writes_of(there, "large", 500)
        leader = Leader(there.api, "alignup", "gates", "first", terms=Terms(1, 0.7, 0.1))
        service = there.service(leader=leader)
        async with running(service.run()):
            await until(lambda: service.leads)
            assert len(there.complaints) == 2
            assert there.complaints[1].startswith("1 of 2 pods that wait cannot be written into: ")


@pytest.mark.usefixtures("_looks_often")
def test_a_pod_whose_turn_comes_late_is_written_into_again_after_an_error() -> None:
    """Where many pods wait, a server may take longer for them than a lease lasts."""

    @with_cluster("a")
    async def _(there: Cluster) -> None:
        for name in ("large", "larger"):
            await there.stub.put(PODS, gated_object(name, cpu=7))
        leader = Leader(there.api, "alignup", "gates", "first", terms=Terms(60, 40.0, 0.1))
        service = there.service(leader=leader)
        service._patches.turns = asyncio.Semaphore(0)
        async with running(service.run()):
            await until(lambda: service._patches.turns.locked() and service._patches.turns._waiters)
            begun = service.clock()
            service.clock = lambda: begun + 100.0
            there.stub.refused_writes[PODS] = [500, 500]
            service._patches.turns.release()
            await until(lambda: service.leads)
            for name in ("large", "larger"):
                assert SEEN_BY in there.pod(name)["metadata"]["annotations"]


def fail_writes_of(there: Cluster, name: str, status: int) -> None:
    """Let the server answer all writes of a pod with an error."""
    answer = there.stub.one

    async def one(method: str, kind: str, key: Any, sub: Any, body: Any) -> Any:
        if method == "PATCH" and key[1] == name:
            return there.stub.status(status, "as the test wants it")
        return await answer(method, kind, key, sub, body)

    there.stub.one = one  # type: ignore[method-assign]


@pytest.mark.usefixtures("_looks_often")
def test_a_new_leader_who_may_write_into_no_pod_does_not_begin_until_it_may() -> None:
    @with_cluster("a")
    async def _(there: Cluster) -> None:
        await there.stub.put(PODS, gated_object("large", cpu=7))
        there.stub.refused_writes[PODS] = [403, 403]
        leader = Leader(there.api, "alignup", "gates", "first", terms=Terms(60, 40.0, 0.1))
        service = there.service(leader=leader)
        async with running(service.run()):
            await until(lambda: service.leads)
            assert SEEN_BY in there.pod("large")["metadata"]["annotations"]
            assert len(there.complaints) == 2


@pytest.mark.usefixtures("_looks_often")
def test_what_no_keeper_has_planned_is_taken_away_where_it_may_be_too_long_to_stay() -> None:
    """The policy in `deploy` lets a keeper change no pod that would have a long one afterwards."""

    @with_cluster("a")
    async def _(there: Cluster) -> None:
        pod = gated_object("large", cpu=7)
        pod["metadata"]["annotations"] = {PLACE: "x" * 3000}
        await there.stub.put(PODS, pod)
        leader = Leader(there.api, "alignup", "gates", "first", terms=Terms(60, 40.0, 0.1))
        service = there.service(leader=leader)
        async with running(service.run()):
            await until(lambda: service.leads)
            assert there.pod("large")["metadata"]["annotations"] == {SEEN_BY: "first/1"}


@pytest.mark.usefixtures("_looks_often")
def test_a_leader_that_ends_before_all_is_fenced_does_not_give_its_lease_back() -> None:
    """The next one would fence nothing, and what the one before has sent may come later still."""

    @with_cluster("a")
    async def _(there: Cluster) -> None:
        await there.stub.put(PODS, gated_object("large", cpu=7))
        there.stub.refused_writes[PODS] = [503] * 100_000
        leader = Leader(there.api, "alignup", "gates", "first", terms=Terms(60, 40.0, 0.1))
        async with running(there.service(leader=leader).run()):
            await until(lambda: len(there.stub.refused_writes[PODS]) < 100_000)
        spec = there.stub.get(LEASES, "gates", "alignup")["spec"]
        assert spec["holderIdentity"] == "first"


def test_a_pod_that_another_leader_has_written_into_is_not_tried_again() -> None:
    """The patch is refused; the watch has been silent, and the clock has stood still."""

    @with_cluster("a")
    async def _(there: Cluster) -> None:
        await there.stub.put(NODES, node_object("a", unschedulable=True))
        await there.stub.put(PODS, gated_object("p", cpu=4))
        terms = Terms(lease=200, renew=150, retry=100)
        leader = Leader(there.api, "alignup", "gates", "first", terms=terms, clock=lambda: 1000.0)
        service = there.service(leader=leader)
        async with running(service.run()):
            await until(lambda: service.leads)
            lease = there.stub.get(LEASES, "gates", "alignup")
            lease["spec"]["holderIdentity"] = "second"
            await there.stub.put(LEASES, lease)
            written = {"metadata": {"annotations": {SEEN_BY: "second/1"}}}
            await there.stub.put(PODS, merge(there.pod("p"), written), silently=True)
            await there.stub.put(NODES, node_object("a"))
            await until(lambda: not service.leads or not there.is_gated("p"))
            assert there.is_gated("p")


def test_what_waits_for_its_turn_is_not_sent_by_one_who_leads_no_more() -> None:
    @with_cluster("a")
    async def _(there: Cluster) -> None:
        leader = Leader(there.api, "alignup", "gates", "first", terms=Terms(60, 40.0, 30.0))
        service = there.service(leader=leader)
        async with running(service.run()):
            await until(lambda: service.leads)
            service._patches.turns = asyncio.Semaphore(0)
            await there.stub.put(PODS, gated_object("p", cpu=4))
            await until(lambda: service._requests)
            leader._renewed = float("-inf")
            service._patches.turns.release()
            await until(lambda: not service._requests)
            assert there.is_gated("p")
            assert ("PATCH", pod_path("default", "p")) not in there.stub.requests


@pytest.mark.usefixtures("_looks_often")
@pytest.mark.parametrize("status", [409, 422])
def test_an_answer_to_a_patch_of_an_earlier_term_ends_no_place_of_this_one(status) -> None:
    """The patch of this term may be taken still, and nobody else is to get the node."""

    @with_cluster("a")
    async def _(there: Cluster) -> None:
        answers = [asyncio.Event(), asyncio.Event()]
        held: list[str] = []
        answer = there.stub.one

        async def one(method: str, kind: str, key: Any, sub: Any, body: Any) -> Any:
            if (method, key[1]) != ("PATCH", "p") or "spec" not in body:
                return await answer(method, kind, key, sub, body)

            held.append(body["metadata"]["resourceVersion"])
            number = len(held)
            await answers[number - 1].wait()
            if number == 1:
                return there.stub.status(status, "refused")
            return await answer(method, kind, key, sub, body)

        there.stub.one = one  # type: ignore[method-assign]
        leader = Leader(there.api, "alignup", "gates", "first", terms=Terms(60, 40.0, 0.1))
        service = there.service(leader=leader)
        async with running(service.run()):
            await there.stub.put(PODS, gated_object("p", cpu=4))
            await until(lambda: held)
            leader._renewed = float("-inf")  # it renews it late
            await until(lambda: len(held) == 2)
            assert leader.term == 2

            answers[0].set()
            await until(lambda: len(service._requests) == 1)
            await there.stub.put(PODS, gated_object("q", cpu=4, priority=1))
            await until(lambda: service.keeper.pods.is_waiting("uid-q"))
            await asyncio.sleep(0.1)
            assert there.is_gated("q")
            assert service.keeper.places["uid-p"].nodes == ("a",)
            answers[1].set()
            await until(lambda: not there.is_gated("p"))


def test_pods_that_the_server_cannot_change_keep_no_other_from_its_turn() -> None:
    """As those of a namespace whose webhook does not answer, as many as have turns."""

    @with_cluster("a", "b")
    async def _(there: Cluster) -> None:
        service = there.service()
        service._patches.turns = asyncio.Semaphore(1)
        fail_writes_of(there, "refused", 500)
        async with running(service.run()):
            await service.watch.synced()
            await there.stub.put(PODS, gated_object("refused", cpu=4))
            await until(lambda: len(there.complaints) > 1)
            await there.stub.put(PODS, gated_object("p", cpu=4))
            await until(lambda: not there.is_gated("p"))
            assert there.is_gated("refused")


NO_WEBHOOK = (
    'Internal error occurred: failed calling webhook "x.y": failed to call webhook: refused'
)


@pytest.mark.parametrize(
    ("first_status", "message", "gives_up"),
    [
        (500, NO_WEBHOOK, True),
        (429, NO_WEBHOOK, True),
        (500, "etcdserver: request timed out", False),
        (500, f"etcdserver: {NO_WEBHOOK}", False),
        (503, NO_WEBHOOK, False),
    ],
)
def test_a_pod_whose_webhook_fails_for_long_gives_its_place_up(
    first_status, message, gives_up
) -> None:
    """Only where nothing that was sent can be carried out late."""

    @with_cluster("a")
    async def _(there: Cluster) -> None:
        service = there.service()
        answer = there.stub.one
        statuses = [first_status]
        is_failing = True

        async def one(method: str, kind: str, key: Any, sub: Any, body: Any) -> Any:
            if method == "PATCH" and key[1] == "refused" and is_failing:
                return there.stub.status(statuses.pop() if statuses else 500, message)
            return await answer(method, kind, key, sub, body)

        there.stub.one = one  # type: ignore[method-assign]
        async with running(service.run()):
            await service.watch.synced()
            await there.stub.put(PODS, gated_object("refused", cpu=4))
            await until(lambda: len(there.complaints) > 1)
            await there.stub.put(PODS, gated_object("p", cpu=4))
            begun = service.clock()
            service.clock = lambda: begun + 59.0
            said = len(there.complaints)
            await until(lambda: len(there.complaints) > said + 1)
            assert there.is_gated("p")

            service.clock = lambda: begun + 61.0
            if not gives_up:
                said = len(there.complaints)
                await until(lambda: len(there.complaints) > said + 2)
                assert there.is_gated("p")
                return

            await until(lambda: not there.is_gated("p"))
            await there.stub.delete(PODS, "p", "default")
            is_failing = False
            service.clock = lambda: begun + 95.0
            await until(lambda: not there.is_gated("refused"))


def test_what_is_no_leader_or_was_one_earlier_is_not_asked_about_again() -> None:
    @with_cluster("a")
    async def _(there: Cluster) -> None:
        terms = Terms(lease=200, renew=150, retry=100)
        leader = Leader(there.api, "alignup", "gates", "first", terms=terms)
        service = there.service(leader=leader)
        async with running(service.run()):
            await until(lambda: service.leads)
            before = leases_read(there)
            for number, name in enumerate(["x/1", "x/1", "y" * 600, "x/1", "z/1"]):
                pod = gated_object("large", cpu=7)
                pod["metadata"]["annotations"] = {SEEN_BY: name}
                await there.stub.put(PODS, pod)
                await there.stub.put(PODS, gated_object(f"idle{number}", cpu=0))
                await until(lambda number=number: not there.is_gated(f"idle{number}"))
            assert leases_read(there) == before + 2
            assert service.leads


@pytest.mark.parametrize("answer", ["<html></html>", "{}", "", '{"metadata": 3}'])
def test_a_patch_is_sent_again_where_something_else_than_the_pod_is_answered(answer) -> None:
    """As by a proxy in between, with the status 200."""

    @with_cluster("a")
    async def _(there: Cluster) -> None:
        service = there.service()
        async with running(service.run()):
            await service.watch.synced()
            answer_once(there, "PATCH", answer)
            await there.stub.put(PODS, gated_object("p", cpu=4))
            await until(lambda: not there.is_gated("p"))
            (complaint,) = there.complaints
            assert "expected the object that was patched, got" in complaint


def answer_once(there: Cluster, method: str, text: str) -> None:
    """Let the server answer the next request of a method about an object with a text."""
    answer = there.stub.one

    async def one(asked: str, *arguments: Any) -> Any:
        if asked != method:
            return await answer(asked, *arguments)
        there.stub.one = answer  # type: ignore[method-assign]
        return web.Response(text=text)

    there.stub.one = one  # type: ignore[method-assign]


def test_a_pod_that_has_changed_and_is_not_answered_with_is_tried_again(monkeypatch) -> None:
    monkeypatch.setattr(keeper_service, "_LONGEST_PAUSE", 0.1)
    monkeypatch.setattr(gated_pods, "LATE_SECONDS", 0.1)

    @with_cluster("a")
    async def _(there: Cluster) -> None:
        service = there.service()
        async with running(service.run()):
            await service.watch.synced()
            there.stub.refused_writes[PODS] = [409]
            answer_once(there, "GET", "<html></html>")
            await there.stub.put(PODS, gated_object("p", cpu=4))
            await until(lambda: not there.is_gated("p"))
            assert len(there.complaints) == 1


@pytest.mark.parametrize(
    ("statuses", "is_settled"),
    [([504], False), ([429], True), ([409], True), ([504, 429], False), ([504, 403], False)],
)
def test_a_lease_is_not_given_back_while_a_patch_may_still_be_carried_out(
    statuses, is_settled
) -> None:
    @with_cluster("a")
    async def _(there: Cluster) -> None:
        leader = Leader(there.api, "alignup", "gates", "first", terms=Terms(2, 1.0, 0.1))
        service = there.service(leader=leader)
        async with running(service.run()):
            await until(lambda: service.leads)
            assert await leader.settle()
            there.stub.refused_writes[PODS] = [*statuses[:-1], *statuses[-1:] * 1000]
            await there.stub.put(PODS, gated_object("p", cpu=4))
            await until(lambda: len(there.stub.refused_writes[PODS]) < 1000)
            service._term = -1  # as if another one led
            assert await leader.settle() is is_settled


def test_a_node_is_read_as_its_scheduler_sees_it() -> None:
    text = (
        b'{"kind": "Node", "metadata": {"name": "a", "labels": {"z": "1"}, "resourceVersion": "7", '
        b'"annotations": {"alignup.dev/seen-by": "x/1"}}, "spec": {"taints": [{"key": "k", '
        b'"effect": "NoSchedule"}], "unschedulable": true}, "status": {"allocatable":'
        b' {"cpu": "1500m", "pods": "3"}}}'
    )
    watched = decode_node(text)
    assert watched.node == NodeObject(
        "a",
        {"z": "1"},
        allocatable={"cpu": 1500, "pods": 3},
        taints=({"key": "k", "effect": "NoSchedule"},),
        is_unschedulable=True,
    )
    assert (watched.node.version, watched.seen_by) == ("7", "x/1")


def test_an_ungated_pod_beside_gated_ones_is_warned_of_once(monkeypatch) -> None:
    monkeypatch.setattr(keeper_service, "_LOOK_SECONDS", 0.01)

    @with_cluster("a")
    async def _(there: Cluster) -> None:
        await there.stub.put(PODS, pod_object("u", "a", cpu=1))
        await there.stub.put(PODS, gated_object("p", cpu=5))
        service = there.service()
        async with running(service.run()):
            await until(lambda: there.complaints)
            await asyncio.sleep(0.1)
            (warning,) = there.complaints
            assert warning.startswith("1 pod with exclusive CPUs, memory or devices came to nodes ")
            _, text = service.pages["/metrics"]()
            assert "\nalignup_gates_ungated_pods 1\n" in text
            by_reason = 'alignup_gates_waiting_by_reason_pods{reason="no_node_aligns"} 1'
            assert f"\n{by_reason}\n" in text
