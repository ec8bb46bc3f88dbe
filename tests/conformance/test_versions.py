"""Nodes and clusters decide as kubelets of older releases did.

These are the scenarios that those releases decide otherwise than 1.36.
"""

from __future__ import annotations

from typing import Any

import pytest

from alignup import read_pod
from alignup.cluster import REASONS, Cluster
from alignup.node import Node
from alignup.replay import replay
from alignup.replay.scenario import admission_dict
from checks.many_cases import check_each
from inputs.vectors import vectors, vectors_file
from replays.kubelet_answers import check_case
from replays.kubelet_steps import compact_container

VERSIONS = ("1.29", "1.30", "1.31", "1.32", "1.33", "1.34", "1.35")


def cases_of(version: str) -> list[dict[str, Any]]:
    name = f"versions/{version}"
    if not vectors_file(name).exists():
        pytest.skip(f"no vectors of kubelet {version}: {vectors_file(name)} does not exist")
    return list(vectors(name))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_scenario_ends_as_in_that_release(version: str) -> None:
    """Verdicts, allocations and every hint; where the kubelet did not start, its words."""
    failures = []
    cases = cases_of(version)
    for case in cases:
        try:
            check_case(case)
            if "configError" in case:
                assert replay(case)["configError"].startswith(
                    'unknown CPU Manager Policy option: "'
                )
        except AssertionError as error:
            failures.append(str(error)[:2000])

    assert not failures, f"{len(failures)} of {len(cases)} differ:\n" + "\n".join(failures[:3])


def test_the_words_about_a_single_unknown_option_are_that_kubelets() -> None:
    """Of several the kubelet names any one, and we the first."""
    compared = 0
    for version in VERSIONS:
        for case in cases_of(version):
            options = case["kubelet"].get("cpuManagerPolicyOptions", {})
            if "configError" in case and len(options) == 1:
                compared += 1
                assert replay(case)["configError"].startswith(case["configError"])
    assert compared


def test_a_cluster_of_mixed_releases_judges_as_each_of_them() -> None:
    """Verdict and affinity are the recorded ones at every step, next to a node of another release.

    A scenario is followed until the kubelet picked other devices of an unordered set than we do.
    """
    cases = [case for version in VERSIONS for case in cases_of(version) if "expect" in case]
    compared = 0
    for index, case in enumerate(cases):
        node, neighbour = Node.from_dict(case), Node.from_dict(cases[index - 60])
        cluster = Cluster.from_nodes([node, neighbour])
        for step, expected in zip(case["steps"], case["expect"], strict=True):
            if "remove" in step:
                if any(pod.uid == step["remove"] for pod in node.pods):
                    node.remove(step["remove"])
                continue

            compared += 1
            pod = read_pod(step["admit"])
            answer = cluster.evaluate(pod, exact=True)
            recorded = (expected["admitted"], expected.get("reason", ""))
            assert (bool(answer.admitted[0]), REASONS[answer.reason[0]]) == recorded, case["name"]
            admission = node.admit(pod)
            got = admission_dict(node, pod, admission)["containers"]
            if expected["admitted"]:
                assert int(answer.affinity[0]) == union_of(node, expected), case["name"]
            if any(
                not is_same(case, got.get(name), container)
                for name, container in expected.get("containers", {}).items()
            ):
                break

    assert compared > 1000


def union_of(node: Node, expected: dict[str, Any]) -> int:
    """Return all NUMA nodes of the recorded affinities, by position."""
    union = 0
    for container in expected["containers"].values():
        mask = (container.get("affinity") or [None])[0] or 0
        union |= sum(
            1 << position
            for position, identity in enumerate(node.machine.numa_node_ids)
            if mask >> identity & 1
        )
    return union


def is_same(case: dict[str, Any], got: dict[str, Any] | None, recorded: dict[str, Any]) -> bool:
    """Return whether a container got what is recorded, device by device where that is known."""
    if "cpus" not in recorded:
        return True
    if got is None:
        return False
    compact = compact_container(case, got)
    return all(compact[key] == recorded[key] for key in ("cpus", "memory", "devices")) and all(
        got["devices"][resource] == ids for resource, ids in recorded.get("deviceIds", {}).items()
    )


def test_pods_with_resources_or_a_status_of_their_own_are_read_as_in_that_release() -> None:
    """By Node, hints included; and a cluster of nodes foresees each verdict."""
    check_each(
        decides_as_its_release,
        [(case["name"], (case,)) for case in vectors("versions/pods", own=True)],
    )


def decides_as_its_release(case: dict[str, Any]) -> None:
    check_case(case)
    node = Node.from_dict(case)
    cluster = Cluster.from_nodes([node])
    for step, expected in zip(case["steps"], case["expect"], strict=True):
        if "remove" in step:
            if step["remove"] in {pod.uid for pod in node.pods}:
                node.remove(step["remove"])
            continue
        pod = read_pod(step["admit"])
        answer = cluster.evaluate(pod, exact=True)
        assert bool(answer.admitted[0]) == expected["admitted"]
        assert REASONS[answer.reason[0]] == expected.get("reason", "")
        node.admit(pod)
