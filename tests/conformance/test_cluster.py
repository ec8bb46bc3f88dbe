"""A cluster foresees what the real kubelet did.

Verdict, reason and affinity of every admission, before it happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from alignup.cluster import REASONS, Cluster
from alignup.node import Node
from alignup.replay import replay_steps
from inputs.vectors import vectors
from replays.kubelet_steps import ATTEMPTS, check_step, following_node, mask_of

if TYPE_CHECKING:
    from collections.abc import Mapping


def recorded(expected: Mapping[str, Any]) -> tuple[bool, str, int]:
    """Return verdict, reason and the affinities of all containers together.

    They are as the kubelet gave them.
    """
    affinity = 0
    if expected["admitted"]:
        for container in expected.get("containers", {}).values():
            hint = container.get("affinity")
            affinity |= 0 if hint is None or hint[0] is None else hint[0]
    return expected["admitted"], expected.get("reason", ""), affinity


def foreseen(cluster: Cluster, pod: Mapping[str, Any]) -> tuple[bool, str, int]:
    """Return the same from the cluster, with the ids of NUMA nodes in place of their positions."""
    answer = cluster.evaluate(pod, exact=True)
    assert answer.exact.all()
    ids = cluster.nodes[0].machine.numa_node_ids
    mask = int(answer.affinity[0])
    numbers = [ids[position] for position in range(mask.bit_length()) if mask >> position & 1]
    return bool(answer.admitted[0]), REASONS[answer.reason[0]], mask_of(numbers) or 0


def follow(case: dict[str, Any], attempt: int | None) -> None:
    """Replay a scenario, and ask before every step.

    The picks of devices are the recorded ones unless `attempt` is None.
    """
    if attempt is None:
        picks, node, recorders = None, Node.from_dict(case), []
    else:
        picks, node, recorders, _ = following_node(case, attempt)

    cluster = Cluster.from_nodes([node])  # made once: it sees what comes and goes
    answers = replay_steps(node, case["steps"], recorders)
    for index, (step, expected) in enumerate(zip(case["steps"], case["expect"], strict=True)):
        if picks is not None:
            picks.expected = expected.get("containers", {})
        if "admit" in step:
            assert foreseen(cluster, step["admit"]) == recorded(expected), (
                f"{case['name']} step {index}"
            )

        check_step(case, next(answers), expected if picks else without_hints(expected))


def without_hints(expected: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded step without the hints that were offered, which only recorders see."""
    admitted = {} if not expected["admitted"] else expected.get("containers", {})
    return {
        **{key: value for key, value in expected.items() if key != "podHints"},
        "containers": {
            name: {key: value for key, value in container.items() if key != "hints"}
            for name, container in admitted.items()
        },
    }


def follows_by_itself(case: dict[str, Any]) -> bool:
    """Return whether a node without recorded picks foresees and gives what is recorded.

    Its amounts decide.
    """
    try:
        follow(case, None)
    except AssertionError:
        return False
    return True


def follow_some_picks(case: dict[str, Any]) -> None:
    """Some sequence of arbitrary picks of devices must lead to all that is recorded."""
    for attempt in range(ATTEMPTS):
        try:
            follow(case, attempt)
        except AssertionError:
            if attempt == ATTEMPTS - 1 or not case.get("devices"):
                raise
        else:
            return


@pytest.mark.parametrize(
    "rest", [0, *(pytest.param(rest, marks=pytest.mark.slow) for rest in (1, 2, 3))]
)
@pytest.mark.parametrize("name", ["admission", "wide"])
def test_a_cluster_foresees_every_admission(name: str, rest: int) -> None:
    """Most scenarios without the kubelet's arbitrary picks of devices, the others with them.

    Slow: three quarters.
    """
    failures = []
    total = alone = 0
    for case in list(vectors(name))[rest::4]:
        if "configError" in case:
            continue
        total += 1
        if follows_by_itself(case):
            alone += 1
            continue

        try:
            follow_some_picks(case)
        except AssertionError as error:
            failures.append(str(error)[:2000])

    assert not failures, f"{len(failures)} of {total} differ:\n" + "\n".join(failures[:3])
    assert alone > total * 0.9
