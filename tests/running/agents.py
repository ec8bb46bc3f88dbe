"""An agent in a thread of this process, and clients of it."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager, suppress

from alignup.host.agent.agent import Agent, AgentOptions
from alignup.host.agent.ownership import Ownership
from alignup.host.leases.file import LeaseFile
from alignup.host.leases.source import AgentSource
from inputs import leasing

LONG = 60.0
"""Seconds that nothing takes unless something is broken."""


def eventually(holds):
    """Wait until something is so."""
    end = time.monotonic() + LONG
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextmanager
def running_agent(folder, site=None, **options):
    """Run an agent whose file, socket and plugins are in a folder with a short path."""
    said = []
    # those of the tests' own commands stay as they are
    options.setdefault("cgroups", "cgroup" in options)
    file = LeaseFile(folder / "leases.json", said.append)
    chosen = site or leasing.site()
    path = folder / "agent.sock"
    ownership = Ownership(file)
    try:
        table = ownership.take_over(chosen.identity, path, said.append)
        agent = Agent(file, chosen, AgentOptions(path, **options), ownership, table)
        ended, loops = [], []

        async def run():
            loops.append(asyncio.get_running_loop())
            ended.append(await agent.run())

        thread = threading.Thread(target=lambda: asyncio.run(run()))
        thread.start()
        try:
            assert agent.is_ready.wait(LONG)
            agent.said = said
            yield agent
        finally:
            with suppress(RuntimeError):  # it has ended by itself
                loops[0].call_soon_threadsafe(agent.end.set)
            thread.join(LONG)
    finally:
        ownership.close()

    assert ended == [0]


def client(folder, patience=LONG):
    """Return a client of the agent of a folder."""
    return AgentSource(folder / "agent.sock", lambda _: None, patience)
