"""The cause of a refusal: one plain sentence, and the resources that are to blame.

Without these resources the verdict is another. Of an admitted pod it says how well it is aligned,
and which better placement it missed.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from alignup import explain, read_pod
from alignup.explanations import cause as causes
from alignup.explanations.cause import without_requests
from alignup.explanations.trial import tried
from alignup.node import Node
from alignup.node.holdings import holdings_of
from fakes.hint_providers import Licences
from inputs.machines import machine_of
from inputs.refusals import (
    EXAMPLE_GPU,
    GPU,
    KUBELET,
    article,
    gpu_pod,
    in_conflict,
    node_of,
    refusals,
    wish,
)
from inputs.vectors import vectors

if TYPE_CHECKING:
    from alignup.kubernetes.pod import Pod

AMOUNT = re.compile(r"(?<![\w.'/-])(\d+)(\.\d+)?(Ti|Gi|Mi|Ki)?(?![\w'/])")


def test_the_articles_conflict_in_one_plain_sentence() -> None:
    explanation = explain(in_conflict(), wish("new", cpu="2", **{GPU: "1"}))

    assert not explanation
    assert explanation.cause == (
        f"{GPU} fits only on NUMA node 1, cpu only on NUMA node 0; single-numa-node needs both on "
        "one NUMA node"
    )
    assert (explanation.cause_kind, explanation.blamed) == ("conflict", (GPU, "cpu"))
    assert (explanation.reason, explanation.container) == ("TopologyAffinityError", "main")
    assert (explanation.policy, explanation.scope, explanation.qos) == (
        "single-numa-node",
        "container",
        "Guaranteed",
    )


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

    never = "never fits this node"
    assert explain(node, wish("x", cpu="9")).cause == (
        f"{never}: no NUMA node has 9 cpu (at most 8); single-numa-node needs one"
    )
    assert explain(node, wish("x", cpu="1", memory="40Gi")).cause == (
        f"{never}: no NUMA node has 40Gi memory (at most 32Gi); single-numa-node needs one"
    )


def test_several_causes_are_all_told() -> None:
    explanation = explain(article(), wish("x", cpu="6", **{GPU: "3"}))

    assert explanation.cause == (
        f"never fits this node: 3 {GPU} asked, the machine has 2; besides, no NUMA node has 6 cpu "
        "(at most 4); single-numa-node needs one"
    )
    assert explanation.blamed == (GPU, "cpu")
    assert explanation.cause_kind == "too little"


@pytest.mark.parametrize("most", [1, 2])
def test_no_more_causes_are_looked_for_than_some(monkeypatch, most) -> None:
    monkeypatch.setattr(causes, "MOST_CAUSES", most)
    node = article()
    trial = tried(node, node.read(wish("x", cpu="6", **{GPU: "3"})))
    blamed = [cause.resources for cause in causes.causes_of(node, trial)]
    assert blamed == [(GPU,), ("cpu",)][:most]


def numbers_of(node: Node, explanation: Any, manifest_: dict[str, Any]) -> set[str]:
    """Return all numbers that are found in the node's state, the request and the names, as text."""
    state = json.dumps([holdings_of(node).to_dict(), manifest_, explanation.to_dict()["resources"]])
    numbers = {int(number) for number in re.findall(r"\d+", state)}
    pod = read_pod(manifest_)
    numbers |= {size for requester in (pod, *pod.all_containers) for _, size in requester.memory}
    for part in explanation.resources:
        numbers |= {part.asked or 0, part.free}
        for seen in filter(None, [part.offered]):
            numbers |= {
                count - 4 for count in (seen.preferred_count, seen.other_count) if count > 4
            }

        for places in (part.places, [place for place in part.places if place.numa_nodes]):
            numbers.add(sum(place.capacity for place in places))
        for numa_id in explanation.before.numa_node_ids:
            numbers.add(sum(place.free for place in part.places if numa_id in place.numa_nodes))

    if node.cpu is not None:
        numbers.add(node.cpu.ledger.capacity.topology.cpus_per_core)
        numbers.add(len(node.cpu.free_cpus))

    return numbers


def test_every_number_in_a_sentence_is_in_the_nodes_state() -> None:
    for story, manifest, explanation in refusals(seed=5, count=40, suggest=False):
        numbers = numbers_of(story.now(), explanation, manifest)
        if explanation.never_fits:
            numbers |= numbers_of(
                story.node(), explain(story.node(), manifest, suggest=False), manifest
            )
        suffixes = {"Ti": 40, "Gi": 30, "Mi": 20, "Ki": 10}
        for whole, rest, suffix in AMOUNT.findall(explanation.cause):
            if not suffix:
                assert int(whole) in numbers, (whole, explanation.cause)
                continue

            unit = 1 << suffixes[suffix]
            shown = float(whole + rest) * unit
            assert any(abs(number - shown) <= unit / 100 for number in numbers), (
                whole + rest + suffix,
                explanation.cause,
            )


def verdict(node: Node, pod: Pod) -> tuple[bool, str, str | None, str]:
    """Return whether a pod is admitted, and if not why and where."""
    tried = node.try_admit(pod)
    container = tried.refusal.container if tried.refusal else None
    return tried.admitted, tried.reason, container, tried.message


def check_causes(case: dict[str, Any]) -> int:
    """Check that without the resources that a cause names the verdict is another.

    Return how many were refused.
    """
    node = Node.from_dict(case)
    sentences = 0
    for step in case["steps"]:
        if "admit" not in step:
            if step.get("remove") in [pod.uid for pod in node.pods]:
                node.remove(step["remove"])
            continue

        explanation = explain(node, step["admit"], suggest=False)
        pod = node.read(read_pod(step["admit"]))
        assert explanation.admitted == node.try_admit(pod).admitted
        if not explanation.admitted:
            sentences += 1
            assert explanation.blamed
            without = verdict(
                node, without_requests(pod, explanation.container, explanation.blamed)
            )
            assert without != verdict(node, pod), explanation.cause
            assert without[:3] != (False, explanation.reason, explanation.container), (
                explanation.cause
            )

        node.admit(step["admit"])

    return sentences


def test_without_its_cause_the_verdict_is_another() -> None:
    cases = [case for case in vectors("admission") if "configError" not in case][:15]
    assert sum(map(check_causes, cases)) > 12


@pytest.mark.slow
@pytest.mark.parametrize("name", ["admission", "wide"])
def test_without_their_causes_all_verdicts_are_others(name: str) -> None:
    assert sum(check_causes(case) for case in vectors(name) if "configError" not in case) > 50


@pytest.fixture(scope="module")
def refused() -> list[Any]:
    """60 random refusals."""
    return list(refusals(seed=9, count=60, suggest=False))


def test_no_cause_lists_places_that_have_nothing(refused) -> None:
    """Nor says twice how little is free: what is free, and where, of places that have some."""
    for story, manifest, explanation in refused:
        for sentence in (explanation.cause, story.now().try_admit(read_pod(manifest)).message):
            assert not re.search(r"\b0 (of \d+ )?(on|without) |free near|: 0\b", sentence), sentence


def test_cpus_that_must_be_reused_come_first() -> None:
    """They are why the others are of no use."""
    node = node_of(
        2, 2, topologyManagerPolicy="restricted", memoryManagerPolicy="None", reservedMemory=None
    )
    assert node.admit(gpu_pod("filler", cpu="3"))
    pod = gpu_pod("app", cpu="2")
    pod["spec"]["initContainers"] = [
        {"name": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    ]

    cause = explain(node, pod).cause
    assert re.match(
        r"container 'main': it must reuse CPU \d of init container 'i' on NUMA node 0, so cpu can "
        r"now come only from NUMA nodes 0\+1 \(2 asked, \d free, all on NUMA node 1\); "
        r"restricted refuses a pod that would span more",
        cause,
    ), cause


class TestNeverFits:
    """What the node would refuse without any other pod too is said first.

    It is said only where that is known.
    """

    def test_the_amount_that_is_too_much_is_named_and_what_others_hold_comes_after_it(self) -> None:
        node = node_of()
        assert node.admit(gpu_pod("a", gpus=2, cpu="2"))
        assert node.admit(gpu_pod("b", gpus=2, cpu="2"))
        explanation = explain(node, gpu_pod("x", gpus=1, cpu="17"))

        assert explanation.causes == (
            "never fits this node: 17 cpu asked, the machine has 16",
            f"right now, not enough {EXAMPLE_GPU} is free: 1 asked, 0 free",
        )
        assert explanation.to_dict()["neverFits"] is explanation.never_fits is True
        assert set(explanation.blamed) == {"cpu", EXAMPLE_GPU}
        assert not [
            suggestion for suggestion in explanation.suggestions if suggestion.kind == "remove"
        ]

    def test_a_policy_that_refuses_on_the_empty_node_is_named(self) -> None:
        node = node_of(
            topologyManagerPolicy="restricted", memoryManagerPolicy=None, reservedMemory=None
        )
        explanation = explain(node, gpu_pod("x", gpus=1, cpu="10"))
        assert explanation.cause == (
            "never fits this node: 1 example.com/gpu needs 1 NUMA node, 10 cpu need 2 NUMA "
            "nodes; restricted refuses unless both need the same NUMA nodes"
        )

    def test_another_container_than_the_refused_one_can_be_too_large(self) -> None:
        node = node_of()
        assert node.admit(gpu_pod("a", gpus=2, cpu="2"))
        assert node.admit(gpu_pod("b", gpus=2, cpu="2"))
        pod = gpu_pod("x", gpus=1, cpu="2")
        [first] = pod["spec"]["containers"]
        large = {"name": "large", "resources": {"limits": {"cpu": "17", "memory": "1Gi"}}}
        pod["spec"]["containers"] = [first, large]
        explanation = explain(node, pod)

        assert explanation.container == "main"
        assert explanation.causes == (
            (
                "container 'large' never fits this node: 17 cpu asked, the machine has 16, of "
                "which the pod's other "
                "containers take 2"
            ),
            f"right now, container 'main': not enough {EXAMPLE_GPU} is free: 1 asked, 0 free",
        )

    def test_what_a_later_container_lacks_is_told_with_its_name(self) -> None:
        """The first one would be refused however much is free; without that, another one is."""
        node = node_of(topologyManagerPolicy="none", memoryManagerPolicy=None, reservedMemory=None)
        assert node.admit(gpu_pod("a", cpu="5"))
        pod = gpu_pod("x", gpus=9, cpu="2")
        pod["spec"]["containers"].append(
            {"name": "second", "resources": {"limits": {"cpu": "12", "memory": "1Gi"}}}
        )

        assert explain(node, pod).causes == (
            f"container 'main' never fits this node: 9 {EXAMPLE_GPU} asked, the machine has 4",
            "right now, container 'second': not enough cpu is free: 12 asked, 9 free",
        )

    def test_what_is_reserved_and_what_cannot_be_aligned_is_told(self) -> None:
        apart = [{"id": "g0", "numa": [0]}, {"id": "g1", "numa": None}]
        node = Node.from_dict(
            {
                "machine": machine_of(2, 4),
                "kubelet": {**KUBELET, "reservedSystemCPUs": "0-1"},
                "devices": {EXAMPLE_GPU: apart},
            }
        )

        explanation = explain(node, gpu_pod("x", gpus=2, cpu="16", memory="64Gi"))
        assert explanation.cause == (
            "never fits this node: 2 example.com/gpu asked, the machine has 1 with a NUMA "
            "node (the device plugin reports none for 1 more); 16 cpu asked, the machine has 14 "
            "(16 less 2 reserved); "
            "besides, 64Gi memory asked, the machine has 63Gi (64Gi less 1Gi reserved)"
        )

    @pytest.mark.parametrize("healthy", [True, False])
    def test_sick_devices_may_recover(self, *, healthy: bool) -> None:
        devices = {GPU: [{"id": "a", "numa": 0}, {"id": "b", "numa": 0, "healthy": healthy}]}
        node = Node.from_dict({"machine": machine_of(2, 4), "devices": devices})
        assert explain(node, wish("x", cpu="1", **{GPU: "2"})).admitted is healthy
        assert not explain(node, wish("x", cpu="1", **{GPU: "2"})).never_fits
        assert explain(node, wish("x", cpu="1", **{GPU: "3"})).never_fits

    def test_a_plugin_without_devices_may_come_back(self) -> None:
        node = Node.from_dict(
            {"machine": machine_of(2, 4), "devices": {GPU: [{"id": "a", "numa": 0}]}}
        )
        node.devices.update(GPU, [])
        explanation = explain(node, wish("x", cpu="1", **{GPU: "1"}))
        assert (explanation.admitted, explanation.never_fits) == (False, False)

    def test_with_a_users_provider_nothing_is_foretold(self) -> None:
        node = Node.from_dict(
            {"machine": machine_of(2, 4), "kubelet": KUBELET}, providers=[Licences([9, 9])]
        )
        explanation = explain(node, gpu_pod("x", cpu="99"))
        assert (explanation.admitted, explanation.never_fits) == (False, False)


def test_what_an_explanation_calls_hopeless_is_refused_by_the_empty_node(refused) -> None:
    hopeless = 0
    for story, manifest, explanation in refused:
        hopeless += explanation.never_fits
        if explanation.never_fits:
            assert not story.node().admit(manifest)
        elif explanation.cause_kind not in {"whole cores", "pod policy"}:
            assert story.node().admit(manifest), explanation.cause
    assert hopeless > 10


def asking(node: Node, **limits: str) -> list[str]:
    """Return the suggestions to ask for less."""
    suggestions = explain(node, wish("x", **limits)).suggestions
    return [suggestion.text for suggestion in suggestions if suggestion.kind == "request"]


def test_a_remedy_smaller_than_what_the_cause_tells_says_why_no_more_will_do() -> None:
    node = node_of(topologyManagerPolicy="restricted")
    for uid in ("a", "b"):
        assert node.admit(gpu_pod(uid, gpus=1, cpu="1"))

    assert node.admit(gpu_pod("c", gpus=1, cpu="5"))

    assert asking(node, cpu="1", **{EXAMPLE_GPU: "6"}) == [
        (
            f"ask for 1 {EXAMPLE_GPU} instead of 6 (2 would be refused: "
            f"not enough {EXAMPLE_GPU} is free: 2 asked, 1 free)"
        )
    ]
    [text] = asking(node_of(), cpu="17")
    assert text.startswith(
        "ask for 8 cpu instead of 17 (9 would be refused: no NUMA node has 9 cpu (at most 8); "
    )
    alone = node_of(
        topologyManagerPolicy="restricted", memoryManagerPolicy=None, reservedMemory=None
    )
    assert asking(alone, cpu="17") == ["ask for 16 cpu instead of 17"]


def test_an_admitted_pod_says_where_it_is() -> None:
    explanation = explain(article(), wish("x", cpu="2"))

    assert explanation.admitted
    assert (explanation.cause, explanation.cause_kind) == (
        "admitted, aligned on NUMA node 0",
        "aligned",
    )
    assert explanation.suggestions == ()


def test_an_admitted_pod_says_what_it_missed_and_why() -> None:
    node = Node.from_dict(
        {
            "machine": machine_of(2, 2),
            "kubelet": {"topologyManagerPolicy": "best-effort", "cpuManagerPolicy": "static"},
        }
    )
    node.admit(wish("a", cpu="2"))
    node.admit(wish("b", cpu="3"))
    explanation = explain(node, wish("x", cpu="3"))

    assert explanation.admitted
    assert explanation.cause_kind == "missed"
    assert explanation.containers[0].missed == ("3 cpu need 2 NUMA nodes (at most 2 free on one)")


def test_containers_on_different_nodes_are_named_though_some_share_one() -> None:
    node = node_of(topologyManagerPolicy="single-numa-node")
    spec = {
        "containers": [
            {"name": name, "resources": {"limits": {"cpu": cpu, "memory": "1Gi"}}}
            for name, cpu in (("a", "4"), ("b", "3"), ("c", "6"))
        ]
    }
    explanation = explain(node, {"metadata": {"name": "p", "uid": "p"}, "spec": spec})
    assert explanation.cause == (
        "admitted, aligned on NUMA node 0 (a), NUMA node 0 (b), NUMA node 1 (c), "
        "every container with all its resources on its preferred NUMA nodes"
    )


def test_a_device_near_to_several_nodes_is_on_none_of_them() -> None:
    node = Node.from_dict(
        {
            "machine": machine_of(2, 2),
            "kubelet": {"topologyManagerPolicy": "best-effort"},
            "devices": {
                "x/near": [{"id": "a", "numa": [1]}],
                "x/between": [{"id": "b", "numa": [0, 1]}],
            },
        }
    )

    assert (
        explain(node, wish("x", **{"x/near": "1", "x/between": "1"})).cause
        == "admitted, aligned on NUMA node 1"
    )


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted"])
@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("odd", [0, 1, 2])
def test_of_several_containers_the_one_that_asks_for_no_whole_cores_is_told(
    policy: str, scope: str, odd: int
) -> None:
    node = node_of(
        topologyManagerPolicy=policy,
        topologyManagerScope=scope,
        cpuManagerPolicyOptions={"full-pcpus-only": "true"},
    )
    cpus = [2, 2, 2]
    cpus[odd] = 3
    containers = [
        {"name": f"c{number}", "resources": {"limits": {"cpu": count, "memory": "1Gi"}}}
        for number, count in enumerate(cpus)
    ]
    explanation = explain(node, {"metadata": {"name": "p"}, "spec": {"containers": containers}})
    assert explanation.cause == (
        f"container 'c{odd}': 3 cpu asked, but the CPU manager's option full-pcpus-only gives "
        "whole cores only: multiples of 2 CPUs"
    )


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_of_several_containers_the_amounts_are_of_the_one_that_was_refused(scope: str) -> None:
    node = node_of(
        topologyManagerPolicy="none",
        topologyManagerScope=scope,
        cpuManagerPolicyOptions={"full-pcpus-only": "true"},
    )
    containers = [
        {"name": f"c{number}", "resources": {"limits": {"cpu": count, "memory": "1Gi"}}}
        for number, count in enumerate([2, 2, 40])
    ]
    explanation = explain(node, {"metadata": {"name": "p"}, "spec": {"containers": containers}})
    assert explanation.container == "c2"
    [cpus] = [part for part in explanation.resources if part.resource == "cpu"]
    assert (cpus.container, cpus.asked) == ("c2", 40)
