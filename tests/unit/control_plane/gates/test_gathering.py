"""An event ends a pause at once, and those that come shortly after it end the next one together."""

from __future__ import annotations

import asyncio

from alignup.control_plane.gates.gathering import Gathering

NEVER = 1000.0


def test_the_first_event_after_a_quiet_time_ends_the_pause_at_once() -> None:
    async def scenario() -> None:
        gathering = Gathering(NEVER, NEVER)
        gathering.event()
        await gathering.pause()

        pause = asyncio.create_task(gathering.pause())
        gathering.event()
        await asyncio.sleep(0.01)
        assert not pause.done()
        pause.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_an_event_ends_the_pause_and_those_behind_it_end_no_other() -> None:
    async def scenario() -> None:
        gathering = Gathering(0.02, NEVER)
        gathering.event()
        gathering.event()
        await gathering.pause()
        begun = asyncio.create_task(gathering.pause())
        await asyncio.sleep(0.05)
        assert not begun.done()
        gathering.event()
        await begun

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_events_put_the_end_off_no_further() -> None:
    async def scenario() -> None:
        gathering = Gathering(0.05, NEVER)
        pause = asyncio.create_task(gathering.pause())
        while not pause.done():  # an event comes more often than the pause is long
            gathering.event()
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_pause_ends_without_an_event_too() -> None:
    async def scenario() -> None:
        gathering = Gathering(NEVER, 0.01)
        await gathering.pause()
        await gathering.pause()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_an_event_between_two_pauses_is_not_lost() -> None:
    async def scenario() -> None:
        gathering = Gathering(0.001, NEVER)
        gathering.event()
        await gathering.pause()
        gathering.event()
        await asyncio.sleep(0.01)
        await gathering.pause()

    asyncio.run(asyncio.wait_for(scenario(), 60))
