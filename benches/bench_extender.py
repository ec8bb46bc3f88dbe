"""The extender over its own HTTP on loopback: filter and prioritize for 5,000 nodes whose holdings are known."""

from __future__ import annotations

import asyncio
import json
import time
from random import Random
from types import SimpleNamespace

import aiohttp
import msgspec
import pytest

from alignup.cluster.scheduler.extender_answers import Answers
from alignup.cluster.scheduler.extender_server import make_app
from alignup.cluster.scheduler.extender_service import PodDecoder
from alignup.cluster.scheduler.fleet_files import read_fleet
from alignup.cluster.scheduler.report import decode_report
from alignup.cluster.scheduler.serving import serve
from alignup.cluster.scheduler.state import ClusterState
from alignup.kubernetes.pod import Pod
from rig_workload import node, pod

NODES = 5_000
PODS = 50


@pytest.fixture(scope="module")
def state():
    """Nodes of 2, 4 and 8 NUMA nodes and all policies, with up to three pods each."""
    random = Random(1)
    lines = [json.dumps(node(number, random)) for number in range(NODES)]
    made = ClusterState()
    for one in read_fleet("\n".join(lines).encode(), "nodes"):
        for number in range(random.randint(0, 3)):
            manifest = pod(number, 1.0, random)
            manifest["metadata"] = {"name": f"old-{number}", "uid": f"{one.name}-{number}"}
            one.admit(Pod.from_manifest(manifest))
        made.report_seen(decode_report(msgspec.json.encode(one.report(with_holdings=True))), 0)
    return made


def test_filter_and_prioritize_on_the_wire(benchmark, state) -> None:
    """Each answer is checked against the nodes themselves before anything is timed."""
    random = Random(2)
    extender = SimpleNamespace(
        answers=Answers(state), state=state, clock=time.monotonic, is_synced=True, followers=(),
        read=PodDecoder().reader.read,
    )  # fmt: skip
    names = list(state.members)
    pods = [pod(number, 1.0, random) for number in range(PODS)]
    for number, one in enumerate(pods):
        one["metadata"]["uid"] = f"new-{number}"
    loop = asyncio.new_event_loop()
    runner, port = loop.run_until_complete(serve(make_app(extender), ("127.0.0.1", 0)))

    async def connect() -> aiohttp.ClientSession:
        return aiohttp.ClientSession()

    session = loop.run_until_complete(connect())

    async def ask(one) -> dict:
        url = f"http://127.0.0.1:{port}"
        body = msgspec.json.encode({"Pod": one, "Nodes": None, "NodeNames": names})
        async with session.post(f"{url}/filter", data=body) as response:
            found = msgspec.json.decode(await response.read())
        body = msgspec.json.encode({"Pod": one, "Nodes": None, "NodeNames": found["NodeNames"]})
        async with session.post(f"{url}/prioritize", data=body) as response:
            scores = msgspec.json.decode(await response.read())
        assert len(scores) == len(found["NodeNames"])
        return found

    some = random.sample(names, 200)
    for one in pods[:5]:
        passed = set(loop.run_until_complete(ask(one))["NodeNames"])
        for name in some:
            assert bool(state.members[name].node.try_admit(one)) == (name in passed)
    turn = iter(range(1_000_000))
    benchmark.pedantic(
        lambda: loop.run_until_complete(ask(pods[next(turn) % PODS])), rounds=200, warmup_rounds=5
    )
    times = sorted(benchmark.stats.stats.data)
    benchmark.extra_info["p99 ms"] = round(1000 * times[len(times) * 99 // 100], 1)
    loop.run_until_complete(session.close())
    loop.run_until_complete(runner.cleanup())
    loop.close()
