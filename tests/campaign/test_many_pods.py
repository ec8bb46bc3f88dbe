"""A hundred thousand watched pods fit into a small process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from inputs.watched_objects import pod_object

COUNT = 100_000
PAGE = 500
KINDS = 40
MOST_BYTES = 1 << 30


async def answer(request: web.Request) -> web.StreamResponse:
    """Be an API server that has many pods, no nodes, and no news."""
    if "watch" in request.query:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(3600)
        return response
    start = int(request.query.get("continue") or 0)
    stop = start
    more = ""
    if request.path.endswith("/pods"):
        stop = min(start + PAGE, COUNT)
        if stop < COUNT:
            more = str(stop)

    items = [numbered_pod(number) for number in range(start, stop)]
    return web.json_response(
        {"metadata": {"resourceVersion": "1", "continue": more}, "items": items}
    )


def numbered_pod(number: int) -> dict:
    """Return a pod as large as an API server's usually are, one of a few kinds."""
    pod = pod_object(f"pod-{number}", f"node-{number % 1000}", cpu=1 + number % KINDS)
    pod["metadata"]["labels"] = {f"label-{place}": f"value-{number}-{place}" for place in range(10)}
    pod["status"] = {
        "phase": "Running",
        "conditions": [{"type": str(place), "status": "True"} for place in range(5)],
    }
    return pod


@pytest.mark.slow
def test_a_hundred_thousand_pods_take_less_than_a_gibibyte(tmp_path, capsys) -> None:
    async def scenario() -> int:
        app = web.Application()
        app.router.add_get("/{any:.*}", answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()

        server = f"http://127.0.0.1:{runner.addresses[0][1]}"
        config = tmp_path / "kubeconfig"
        config.write_text(
            json.dumps(
                {
                    "current-context": "c",
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "clusters": [{"name": "c", "cluster": {"server": server}}],
                    "users": [{"name": "u", "user": {}}],
                }
            )
        )

        process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "alignup",
                "extender",
                "--kubeconfig",
                str(config),
                "--listen",
                "127.0.0.1:0",
            ),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        try:
            port = (await process.stdout.readline()).split(b":")[-1].decode().strip()
            await all_are_known(port)
            return peak_of(process.pid)
        finally:
            process.terminate()
            await process.wait()
            await runner.cleanup()

    peak = asyncio.run(scenario())
    with capsys.disabled():
        # a campaign tells its numbers
        print(f"{COUNT} pods: {peak / (1 << 20):.0f} MiB")  # noqa: T201

    assert peak < MOST_BYTES


async def all_are_known(port: str) -> None:
    """Wait until an extender knows all pods."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(300):
        while True:
            async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
                if f"alignup_extender_pods {float(COUNT)}" in await response.text():
                    return
            await asyncio.sleep(0.5)


def peak_of(pid: int) -> int:
    """Return the most bytes of memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(
        next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]
    )
