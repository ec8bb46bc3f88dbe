"""`alignup fleet` whose nodes report late: what happens there is reported after 5 to 30 seconds.

Each report is written 5 to 15 seconds after it was made, and says what held then; what happens
meanwhile is in the next one, which is made when this one is written.
Run as a program with the arguments of `alignup fleet`.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from alignup.cli import main
from alignup.control_plane.api_server import api_client

SOONEST, LATEST = 5.0, 15.0


def delay_reports() -> None:
    """Let what writes reports wait first."""
    random = Random(5)  # delays, not secrets
    write = api_client.write_object

    async def write_late(api: api_client.Api, collection: str, name: str, body: Any) -> bytes:
        if collection == api_client.TOPOLOGIES:
            await asyncio.sleep(random.uniform(SOONEST, LATEST))
        return await write(api, collection, name, body)

    api_client.write_object = write_late


if __name__ == "__main__":
    delay_reports()
    main()
