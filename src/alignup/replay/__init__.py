"""Replays scenarios, and reports on many.

A report says what was admitted, how well aligned, and how full the nodes got.
`from alignup.replay import replay, replay_steps, RecordingProvider` is public; the rest is imported
by module.
"""

from alignup.replay.scenario import RecordingProvider, replay, replay_steps

__all__ = ["RecordingProvider", "replay", "replay_steps"]
