"""A process ends when it is told to, whatever it does."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

# what is still under way when the process is told to end; without a bound each of them would go on
BUSY = {
    "a task that does not end": """
async def work():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass
""",
    "a thread": """
async def work():
    await asyncio.to_thread(time.sleep, 3600)
""",
    "a clean-up": """
async def work():
    try:
        await asyncio.sleep(3600)
    finally:
        await asyncio.sleep(3600)
""",
}
PROGRAM = """
import asyncio, time
from alignup.control_plane import process
process.GRACE = 1
{work}
asyncio.run(process.run_until_told(work(), lambda: print("runs", flush=True)))
"""


@pytest.mark.parametrize("busy", BUSY)
def test_a_process_that_is_told_to_end_ends(busy: str) -> None:
    """Whatever is under way."""
    with subprocess.Popen(  # noqa: S603  # ours
        [sys.executable, "-c", PROGRAM.format(work=BUSY[busy])], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        process.terminate()
        assert process.wait(60) == -signal.SIGALRM
