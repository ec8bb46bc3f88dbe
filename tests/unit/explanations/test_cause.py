"""The cause of a refusal: one plain sentence, and the resources without which the verdict is another."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from alignup import explain, read_pod
from alignup.explanations.cause import without_requests
from alignup.node import Node
from alignup.node.holdings import holdings_of
from explaining import GPU, article, gpu_pod, in_conflict, node_of, refusals, wish
from machines import machine_of
from vectors import vectors

if TYPE_CHECKING:
    from alignup.kubernetes.pod import Pod


def test_the_articles_conflict_in_one_plain_sentence() -> None:
    explanation = explain(in_conflict(), wish("new", cpu="2", **{GPU: "1"}))

    assert not explanation
    assert explanation.cause == (
        f"{GPU} only fits on node 1, cpu only on node 0; single-numa-node needs both on one node"
    )
    assert (explanation.cause_kind, explanation.blamed) == ("conflict", (GPU, "cpu"))
    assert (explanation.reason, explanation.container) == ("TopologyAffinityError", "main")
    assert (explanation.policy, explanation.scope, explanation.qos) == ("single-numa-node", "container", "Guaranteed")


def test_the_largest_amount_on_one_node_is_told() -> None:
    node = Node.from_dict(
        {
            "machine": machine_of(2, 4),
            "kubelet": {
                "topologyManagerPolicy": "single-numa-node",
                "cpuManagerPolicy": "static",
                "memoryManagerPolicy": "Static",
                "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
            },
        }
    )
    assert explain(node, wish("x", cpu="9")).cause == (
        "no NUMA node has 9 cpu free (at most 8); single-numa-node needs one node that has all of it"
    )
    assert explain(node, wish("x", cpu="1", memory="40Gi")).cause == (
        "no NUMA node has 40Gi memory free (at most 32Gi); single-numa-node needs one node that has all of it"
    )


def test_several_causes_are_all_told() -> None:
    explanation = explain(article(), wish("x", cpu="6", **{GPU: "3"}))

    assert explanation.cause == (
        f"not enough {GPU} is free: 3 asked, the machine has 2; besides, no NUMA node has 6 cpu free "
        "(at most 4); single-numa-node needs one node that has all of it"
    )
    assert explanation.blamed == (GPU, "cpu")
    assert explanation.cause_kind == "too little"


def numbers_of(node: Node, explanation: Any, manifest_: dict[str, Any]) -> set[str]:
    """Return all numbers that are found in the node's state, the request and the names, as text."""
    state = json.dumps([holdings_of(node).to_dict(), manifest_, explanation.to_dict()["resources"]])
    numbers = {int(one) for one in re.findall(r"\d+", state)}
    pod = read_pod(manifest_)
    numbers |= {size for one in (pod, *pod.all_containers) for _, size in one.memory}
    for part in explanation.resources:
        numbers |= {part.asked or 0, part.free}
        for seen in filter(None, [part.offered]):
            numbers |= {count - 4 for count in (seen.preferred_count, seen.other_count) if count > 4}
        for places in (part.places, [one for one in part.places if one.numa_nodes]):
            numbers.add(sum(one.capacity for one in places))
        for numa_id in explanation.before.numa_node_ids:
            numbers.add(sum(one.free for one in part.places if numa_id in one.numa_nodes))
    if node.cpu is not None:
        numbers.add(node.cpu.ledger.capacity.topology.cpus_per_core)
        numbers.add(len(node.cpu.free_cpus))
    return numbers


AMOUNT = re.compile(r"(?<![\w.'/-])(\d+)(\.\d+)?(Ti|Gi|Mi|Ki)?(?![\w'/])")


def test_every_number_in_a_sentence_is_in_the_nodes_state() -> None:
    for story, wanted, explanation in refusals(seed=5, count=40):
        known = numbers_of(story.now(), explanation, wanted)
        suffixes = {"Ti": 40, "Gi": 30, "Mi": 20, "Ki": 10}
        for whole, rest, suffix in AMOUNT.findall(explanation.cause):
            if not suffix:
                assert int(whole) in known, (whole, explanation.cause)
                continue
            unit = 1 << suffixes[suffix]
            shown = float(whole + rest) * unit
            assert any(abs(one - shown) <= unit / 100 for one in known), (whole + rest + suffix, explanation.cause)


def verdict(node: Node, pod: Pod) -> tuple[bool, str, str | None, str]:
    """Return whether a pod is admitted, and if not why and where."""
    tried = node.try_admit(pod)
    container = tried.refusal.container if tried.refusal else None
    return tried.admitted, tried.reason, container, tried.message


def check_causes(case: dict[str, Any]) -> int:
    """Check that without the resources that a cause names the verdict is another; return how many were refused."""
    node = Node.from_dict(case)
    found = 0
    for step in case["steps"]:
        if "admit" not in step:
            if step.get("remove") in [pod.uid for pod in node.pods]:
                node.remove(step["remove"])
            continue
        explanation = explain(node, step["admit"], suggest=False)
        pod = node.read(read_pod(step["admit"]))
        assert explanation.admitted == node.try_admit(pod).admitted
        if not explanation.admitted:
            found += 1
            assert explanation.blamed
            fewer = without_requests(pod, explanation.container, explanation.blamed)
            assert verdict(node, fewer) != verdict(node, pod), explanation.cause
            admitted, reason, container, _ = verdict(node, fewer)
            same = (False, explanation.reason, explanation.container)
            assert (admitted, reason, container) != same, explanation.cause
        node.admit(step["admit"])
    return found


def test_without_its_cause_the_verdict_is_another() -> None:
    cases = [case for case in vectors("admission") if "configError" not in case][:30]
    assert sum(map(check_causes, cases)) > 25


@pytest.mark.slow
@pytest.mark.parametrize("name", ["admission", "wide"])
def test_without_their_causes_all_verdicts_are_others(name: str) -> None:
    assert sum(check_causes(case) for case in vectors(name) if "configError" not in case) > 50


def test_no_cause_lists_places_that_have_nothing() -> None:
    """Nor says twice how little is free: what is free, and where, of places that have some."""
    for story, wanted, explanation in refusals(seed=9, count=60):
        for sentence in (explanation.cause, story.now().try_admit(read_pod(wanted)).message):
            assert not re.search(r"\b0 (of \d+ )?(on|without) |free near|: 0\b", sentence), sentence


def test_cpus_that_must_be_reused_come_first() -> None:
    """They are why the others are of no use."""
    node = node_of(2, 2, topologyManagerPolicy="restricted", memoryManagerPolicy="None", reservedMemory=None)
    assert node.admit(gpu_pod("filler", cpu="3"))
    pod = gpu_pod("app", cpu="2")
    pod["spec"]["initContainers"] = [{"name": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]
    cause = explain(node, pod).cause
    assert re.match(
        r"container 'main': it must reuse CPU \d of init container 'i' on NUMA node 0, so cpu can now come only from "
        r"nodes 0\+1 \(2 asked, \d free, all on NUMA node 1\); restricted admits no more",
        cause,
    ), cause
