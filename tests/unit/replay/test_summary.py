"""A summary says the same as a slow count over the answers to each step, and reports add up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from alignup import Node
from alignup.errors import InputError
from alignup.node.holdings import holdings_of
from alignup.replay import replay
from alignup.replay.scenario import Admit, apply_step, read_steps
from alignup.replay.summary import (
    Counts,
    NodeReport,
    Report,
    Use,
    parse_configurations,
    summarized,
    with_kubelet,
)
from inputs.machines import machine_of
from inputs.traces import scenario

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")


def summary(document: dict) -> NodeReport:
    return summarized(document, read_steps(document))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(5))
def test_counts_are_those_of_the_answers(policy: str, seed: int) -> None:
    document = scenario(seed, policy=policy)
    counts = summary(document).counts
    answers = [
        answer
        for step, answer in zip(document["steps"], replay(document)["steps"], strict=True)
        if "admit" in step
    ]
    refused = [answer for answer in answers if not answer["admitted"]]
    hints = [
        container["affinity"]
        for answer in answers
        for container in answer["containers"].values()
        if container["affinity"]
    ]

    assert counts.steps == len(document["steps"])
    assert (counts.arrivals, counts.refused) == (len(answers), len(refused))
    assert counts.reasons.total() == len(refused)
    assert counts.aligned == len(hints)
    assert counts.preferred == sum(hint["preferred"] for hint in hints)
    assert (counts.preferred_share is None) == (policy == "none")


@pytest.mark.parametrize("policy", POLICIES)
def test_use_is_what_the_holdings_say(policy: str) -> None:
    document = scenario(7, policy=policy)
    report = summary(document)
    node, refused = Node.from_dict(document), {}
    seen: dict[tuple, list[float]] = {}
    for step in read_steps(document):
        apply_step(node, step, refused)
        for amounts in holdings_of(node).resources:
            for place in amounts.places:
                if place.allocatable:
                    key = (amounts.resource, place.numa_nodes)
                    seen.setdefault(key, []).append(place.held / place.allocatable)

    assert {(use.resource, use.numa_nodes) for use in report.uses} == set(seen)
    for use in report.uses:
        parts = seen[use.resource, use.numa_nodes]
        assert use.mean == pytest.approx(sum(parts) / len(parts))
        assert use.peak == pytest.approx(max(parts))
        assert use.curve == pytest.approx(parts)


@pytest.mark.parametrize("seed", range(8))
def test_stranded_is_what_was_free_at_refusals_that_had_enough_in_sum(seed: int) -> None:
    document = scenario(seed, policy="single-numa-node")
    report = summary(document)
    node, refused, arrivals, fitting, stranded = Node.from_dict(document), {}, 0, 0, 0.0
    for step in read_steps(document):
        admission = apply_step(node, step, refused)
        if not isinstance(step, Admit):
            continue
        arrivals += 1
        holdings = holdings_of(node)
        amounts = {
            "cpu": step.pod.exclusive_cpus,
            **dict(step.pod.memory),
            **dict(step.pod.devices),
        }
        if not admission.admitted and all(
            holdings.amounts(name).free >= count for name, count in amounts.items()
        ):
            fitting += 1
            stranded += holdings.amounts("cpu").free / holdings.amounts("cpu").allocatable

    assert report.counts.fitting == fitting
    assert report.stranded["cpu"] == pytest.approx(stranded / arrivals)


def test_the_resource_that_is_short_is_blamed() -> None:
    document = scenario(0)
    gpu = {"metadata": {"name": "g"}, "spec": {"containers": [{"name": "c"}]}}
    gpu["spec"]["containers"][0]["resources"] = {
        "limits": {"cpu": "1", "memory": "1Gi", "example.com/gpu": "3"}
    }

    for policy, reason in (
        ("restricted", "TopologyAffinityError"),
        ("none", "UnexpectedAdmissionError"),
    ):
        node = with_kubelet(
            {**document, "steps": [{"admit": gpu}]}, {"topologyManagerPolicy": policy}
        )
        counts = summary(node).counts
        assert dict(counts.resources) == {"example.com/gpu": 1}
        assert dict(counts.reasons) == {reason: 1}


@pytest.mark.parametrize(
    ("cpus", "memory", "blamed"), [("9", "1Gi", "cpu"), ("1", "400Gi", "memory")]
)
def test_what_cannot_be_allocated_is_blamed(cpus: str, memory: str, blamed: str) -> None:
    big = {"metadata": {"name": "b"}, "spec": {"containers": [{"name": "c"}]}}
    big["spec"]["containers"][0]["resources"] = {"limits": {"cpu": cpus, "memory": memory}}
    counts = summary(scenario(0, policy="none", steps=0) | {"steps": [{"admit": big}]}).counts

    assert dict(counts.resources) == {blamed: 1}


def test_a_kubelet_that_would_not_start_is_reported() -> None:
    report = summary(
        scenario(0)
        | {"kubelet": {"topologyManagerPolicy": "restricted", "reservedSystemCPUs": "99"}}
    )

    assert report.to_dict().keys() <= {"name", "configError", *report.to_dict()}
    report = summary(
        scenario(0) | {"kubelet": {"cpuManagerPolicy": "static", "reservedSystemCPUs": "99"}}
    )
    assert set(report.to_dict()) == {"name", "configError"}
    assert not report.counts.steps


def test_a_step_that_cannot_be_is_named() -> None:
    with pytest.raises(InputError, match=r"^steps\[0\]: "):
        summary(scenario(0, steps=0) | {"steps": [{"remove": "nobody"}]})


def test_progress_is_told_in_full() -> None:
    document, seen = scenario(3, steps=600), []
    summarized(document, read_steps(document), tick=seen.append)

    assert sum(seen) == 600
    assert len(seen) > 2


def test_other_fields_are_laid_over_those_of_the_machine() -> None:
    made = with_kubelet({"machine": "align-up-article"}, {"topologyManagerPolicy": "none"})

    assert made["kubelet"]["topologyManagerPolicy"] == "none"
    assert made["kubelet"]["cpuManagerPolicy"] == "static"


def test_policies_and_scopes() -> None:
    configurations = parse_configurations("none, restricted/pod,none")

    assert list(configurations) == ["none", "restricted/pod"]
    assert configurations["restricted/pod"] == {
        "topologyManagerPolicy": "restricted",
        "topologyManagerScope": "pod",
    }
    assert configurations["none"] == {"topologyManagerPolicy": "none"}


@pytest.mark.parametrize("text", ["", "nothing", "none,", "restricted/", "restricted/node"])
def test_unknown_ones_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="at --compare"):
        parse_configurations(text)


def reports(count: int) -> list[NodeReport]:
    return [summary(scenario(seed)) for seed in range(count)]


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


@pytest.mark.parametrize(("allocatable", "mean"), [(0, 0), (1, 0.75), (2, 0.75)])
def test_the_mean_of_the_only_place_is_its_own(allocatable: int, mean: float) -> None:
    """However little it has."""
    use = Use("gpu", (0,), allocatable, 0.75, 1, ())
    counts = Counts(arrivals=allocatable)
    report = Report([NodeReport("a", counts, (use,), {"gpu": 0.75})])
    assert report.utilisation == report.stranded == {"gpu": mean}


def test_nothing_is_divided_by_nothing() -> None:
    empty = Report([NodeReport("a", Counts())])

    assert empty.total.preferred_share is empty.total.mean_numa_nodes is None
    assert empty.stranded == empty.utilisation == {}
    assert json.loads(json.dumps(empty.to_dict()))["total"]["preferredShare"] is None


def test_the_configuration_is_named_where_there_is_one() -> None:
    assert "configuration" not in Report([]).to_dict()
    assert Report([], "none").to_dict()["configuration"] == "none"


def restarting(*, whole: bool) -> dict[str, Any]:
    """Return a scenario of a pod on a kubelet 1.37 that restarts twice."""
    resources = {"limits": {"cpu": "4", "memory": "1Gi"}}
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    if whole:
        spec["resources"] = {**resources, "requests": resources["limits"]}

    return {
        "name": "n",
        "machine": machine_of(2, 4),
        "kubelet": {
            "topologyManagerPolicy": "best-effort",
            "topologyManagerScope": "pod",
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": "0",
            "featureGates": {"PodLevelResourceManagers": True},
        },
        "kubeletVersion": "1.37",
        "steps": [
            {"admit": {"metadata": {"name": "p", "uid": "p"}, "spec": spec}},
            {"restart": True},
            {"restart": True},
            {"remove": "p"},
        ],
    }


def test_a_restart_is_a_step() -> None:
    document = restarting(whole=False)
    report = summary(document)
    assert (report.counts.steps, report.counts.arrivals, report.config_error) == (4, 1, "")
    assert [use.mean for use in report.uses] == [pytest.approx(4 * 3 / 4 / 7), 0]


def test_a_report_ends_where_the_kubelet_does_not_start() -> None:
    seen: list[int] = []
    document = restarting(whole=True)
    report = summarized(document, read_steps(document), tick=seen.append)
    assert report.counts.steps == 2
    assert report.config_error.startswith("current set of available CPUs")
    assert sum(seen) == 4


def test_a_pod_that_a_restart_refuses_may_be_removed() -> None:
    document = restarting(whole=True)
    document["kubelet"]["topologyManagerPolicy"] = "restricted"
    del document["steps"][2]
    spec = document["steps"][0]["admit"]["spec"]
    spec["containers"].append({"name": "d", "image": "i"})
    spec["containers"][0]["resources"] = {"limits": {"cpu": "2", "memory": "512Mi"}}
    assert summary(document).counts.steps == 3
