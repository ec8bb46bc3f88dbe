"""Where nobody measures, nothing is done with what happens; who measures is told the same."""

from __future__ import annotations

import inspect

import leasing
from alignup.agent.metrics import AgentMetrics
from alignup.agent.observer import Observer


def test_nothing_is_done_with_it():
    observer = Observer()
    observer.admitted(leasing.record(), 0.1)
    observer.refused("TopologyAffinityError", 0.1)
    observer.waited(0.1)


def test_metrics_are_told_everything():
    told = [name for name in vars(Observer) if not name.startswith("_")]
    assert all(name in vars(AgentMetrics) for name in told)
    for name in told:
        theirs = inspect.signature(getattr(AgentMetrics, name))
        assert list(theirs.parameters) == list(inspect.signature(getattr(Observer, name)).parameters)
