"""Whoever may only make pods ends neither the keeper nor the extender, and stops nobody else."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from alignup.control_plane.api_server.objects import PodReader, decode_pod
from alignup.control_plane.gates.decisions import Label, Release, patch_of
from alignup.control_plane.gates.keeper import Keeper
from alignup.control_plane.gates.placeholders import CLUSTER_AUTOSCALER, KARPENTER, placeholder_of
from alignup.control_plane.gates.preemption import Preemption
from alignup.control_plane.gates.reasons import Reasons, standing
from alignup.control_plane.gates.wait_reasons import WaitReasons
from alignup.control_plane.scheduler.cluster_state import ClusterState
from alignup.control_plane.scheduler.extender_answers import Answers
from alignup.errors import AlignupError
from alignup.kubelet.node_resource_topology.report import Description
from alignup.kubernetes.node_fit import NodeObject
from inputs.hostile_pods import ABOVE_ALL, DEVICE_NAMES, hostile_pod
from inputs.keepers import ROOM, given
from inputs.waiting_pods import GATED_READER, waiting_pod
from inputs.watched_objects import description, report, watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from alignup.control_plane.gates.decisions import Decision

QUICK_RUNS = 30
RUNS = 1500

DEVICES = {name: [{"id": "x", "numa": 0}, {"id": "y", "numa": 1}] for name in DEVICE_NAMES}
DESCRIBED = description() | {"devices": DEVICES}
EMPTY = Description().template(json.dumps(DESCRIBED), {})
AMOUNTS = {**ROOM, **dict.fromkeys(DEVICES, 2), "hugepages-2Mi": 1 << 30}

pytestmark = pytest.mark.filterwarnings("ignore::alignup.errors.AlignupWarning")


class Course:
    """A keeper's days in a small cluster into which only such pods come."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = 0.0
        self.pods: dict[str, dict[str, Any]] = {}
        self.node_names = "abcd"[: random.randint(1, 4)]
        self.keeper = Keeper(
            ClusterState(), patience=random.choice([0, 5, 30]), relabels=random.random() < 0.7
        )
        self.keeper.pods_listed([], 0)
        for name in self.node_names:
            self.node_comes(name)

        self.preemption = Preemption(self.keeper)
        self.reasons = Reasons(self.keeper)
        self.wait_reasons = WaitReasons(self.keeper)

    def node_comes(self, name: str) -> None:
        self.node_changes(name)
        self.keeper.state.report_seen(report(name, described=DESCRIBED, holdings=EMPTY), self.now)

    def node_changes(self, name: str) -> None:
        labels = {"zone": self.random.choice(["east", "west"]), "at": str(self.now)}
        self.keeper.node_seen(NodeObject(name, allocatable=AMOUNTS, labels=labels), self.now)

    def step(self) -> None:
        """Let some time go by, and everything happen that can."""
        random, keeper = self.random, self.keeper
        self.now += random.choice([0.1, 1, 5, 20, 40])
        for _ in range(random.choice([0, 1, 3])):
            name = f"p{len(self.pods)}-{self.now}"
            self.pods[name] = hostile_pod(random, name)
            self.seen(self.pods[name])

        if random.random() < 0.3:
            self.node_changes(random.choice(self.node_names))
        for decision in keeper.decide(self.now):
            self.carry_out(decision)

        for name in list(self.pods):
            if random.random() < 0.05:
                self.ends(name)

        self.look()
        if random.random() < 0.1:
            pods = [GATED_READER.decode(json.dumps(pod).encode()) for pod in self.pods.values()]
            keeper.pods_listed(pods, self.now)
        if random.random() < 0.05:
            keeper.begin_term(self.now)

    def seen(self, pod: dict[str, Any]) -> None:
        self.keeper.pod_seen(GATED_READER.decode(json.dumps(pod).encode()), self.now)

    def ends(self, name: str) -> None:
        self.pods.pop(name, None)  # a victim may have been deleted already
        end: Callable[[str, float], None] = self.random.choice(
            [self.keeper.pod_gone, self.keeper.pod_vanished]
        )
        end(f"uid-{name}", self.now)

    def carry_out(self, decision: Decision) -> None:
        """Write a decision into its pod, or refuse it; a scheduler mostly binds who is let go."""
        random = self.random
        if isinstance(decision, Label):
            return
        if random.random() < 0.15:
            self.keeper.refused(decision.pod, self.now, for_good=random.random() < 0.5)
            return

        pod = self.pods[decision.pod.watched.pod.name]
        metadata = pod["metadata"]
        patch = patch_of(decision)
        metadata |= {"resourceVersion": str(int(metadata["resourceVersion"]) + 1), "generation": 2}
        metadata["annotations"] |= patch["metadata"].get("annotations", {})
        if isinstance(decision, Release):
            pod["spec"] |= patch["spec"]
            self.seen(pod)
            if random.random() < 0.8:
                pod["spec"]["nodeName"] = (*decision.nodes, random.choice(self.node_names))[0]

        self.seen(pod)

    def look(self) -> None:
        """Ask all that is asked beside the decisions."""
        keeper = self.keeper
        keeper.state.tick(self.now)
        eviction = self.preemption.plan((), self.now)
        if eviction is not None:
            for victim in eviction.victims:
                self.ends(victim.pod.name)

        self.wait_reasons.look()
        self.wait_reasons.counts(0)
        assert all(sentence for _, sentence in self.reasons.due(self.now))
        for pod in keeper.queue.overdue(self.now, 5):
            for autoscaler in (KARPENTER, CLUSTER_AUTOSCALER):
                json.dumps(placeholder_of(pod, autoscaler, self.node_names))

        for group in keeper.groups:
            if group.waiting:
                keeper.group_places.left_out(group)
        for manifest in self.pods.values():
            standing(manifest, [])


@pytest.mark.parametrize(
    "runs", [QUICK_RUNS, pytest.param(RUNS, marks=pytest.mark.slow)], ids=["quick", "slow"]
)
def test_the_keeper_goes_on_and_another_pod_gets_its_place(runs) -> None:
    for run in range(runs):
        course = Course(Random(run))
        for _ in range(course.random.choice([6, 15, 30])):
            course.step()

        course.node_comes("new")
        course.keeper.pod_seen(waiting_pod("honest", cpu=2, priority=ABOVE_ALL), course.now)
        assert "honest" in given(course.keeper.decide(course.now)), f"run {run}"


@pytest.mark.parametrize(
    "runs", [QUICK_RUNS, pytest.param(RUNS, marks=pytest.mark.slow)], ids=["quick", "slow"]
)
def test_the_extender_answers_or_says_what_is_wrong(runs) -> None:
    reader = PodReader()
    for run in range(runs):
        random = Random(run)
        sentences = []
        answers = Answers(ClusterState())
        names = ["a", "b", "amounts"]
        for name in names[:2]:
            answers.state.report_seen(report(name, described=DESCRIBED, holdings=EMPTY), 0)
        answers.state.report_seen(report("amounts"), 0)

        for number in range(random.choice([3, 10])):
            made = hostile_pod(random, f"p{number}", is_gated=False)
            try:
                pod = reader.read(decode_pod(json.dumps(made).encode()))
                passed = answers.filter(pod, names, number).passed
                answers.prioritize(pod, names)
                answers.preempt(pod, {name: [] for name in names})
            except AlignupError as error:
                sentences.append(str(error))
                continue

            if passed and random.random() < 0.7:
                made["spec"]["nodeName"] = passed[0]
                answers.state.pod_seen(reader.read(decode_pod(json.dumps(made).encode())), number)
                answers.forget(pod.pod.uid)
            answers.woken(number)

        assert all(sentences)
        honest = watched("honest", cpu=2)
        answers.state.report_seen(report("new", described=DESCRIBED, holdings=EMPTY), 99)
        assert answers.filter(honest, [*names, "new"], 99).passed
