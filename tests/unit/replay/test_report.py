"""Reports add up."""

from __future__ import annotations

import json

import pytest

from alignup.replay.scenario import read_steps
from alignup.replay.summary import Counts, NodeReport, Report, summarized
from inputs.traces import scenario


def reports(count: int) -> list[NodeReport]:
    made = [scenario(seed) for seed in range(count)]
    return [summarized(document, read_steps(document)) for document in made]


def test_the_total_is_the_sum_of_the_nodes() -> None:
    nodes = reports(3)
    total = Report(nodes).total

    assert total.arrivals == sum(node.counts.arrivals for node in nodes)
    assert total.reasons.total() == total.refused == sum(node.counts.refused for node in nodes)
    assert total.preferred_share == pytest.approx(total.preferred / total.aligned)


def test_shares_of_one_node_are_its_own() -> None:
    [node] = reports(1)
    report = Report([node])

    assert report.stranded == pytest.approx(node.stranded)
    cpus = [use for use in node.uses if use.resource == "cpu"]
    in_use = sum(use.mean * use.allocatable for use in cpus)
    assert report.utilisation["cpu"] == pytest.approx(in_use / sum(use.allocatable for use in cpus))


def test_nothing_is_divided_by_nothing() -> None:
    empty = Report([NodeReport("a", Counts())])

    assert empty.total.preferred_share is empty.total.mean_numa_nodes is None
    assert empty.stranded == empty.utilisation == {}
    assert json.loads(json.dumps(empty.to_dict()))["total"]["preferredShare"] is None


def test_the_configuration_is_named_where_there_is_one() -> None:
    assert "configuration" not in Report([]).to_dict()
    assert Report([], "none").to_dict()["configuration"] == "none"
