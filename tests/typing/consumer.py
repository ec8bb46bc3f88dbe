"""A program that uses every public name, with the types that the reference promises.

mypy and pyright read it, both as strictly as they can (`.ci/run lint`). Nothing runs
it: `tests/unit/test_typed_names.py` sees that no name is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, assert_type

import alignup
from alignup import (
    REASONS,
    AlignupError,
    AlignupWarning,
    AllocationError,
    BitMask,
    Cluster,
    ConfigError,
    CPUSet,
    Device,
    Drawing,
    Evaluation,
    Explanation,
    HintList,
    HintProvider,
    InputError,
    Lease,
    Machine,
    MemoryBlock,
    Merger,
    Node,
    Observer,
    Part,
    Pod,
    PodExistsError,
    Policy,
    QOSClass,
    ResourceHints,
    RoomPlan,
    Standing,
    Suggestion,
    TopologyHint,
    UnknownPodError,
    draw,
    explain,
    lease,
    machines,
    make_policy,
    plan_room,
    read_kubelet_node,
    read_machine,
    read_pods,
    split,
)
from alignup.cluster import STRATEGIES, read_amounts, read_node_resource_topologies
from alignup.replay import RecordingProvider, replay, replay_steps

if TYPE_CHECKING:
    from pathlib import Path

    from alignup.host.device_plugins.plugins import DevicePlugins
    from alignup.node.admission_metrics import AdmissionMetrics


def errors(error: AlignupError) -> type[Warning] | None:
    """Errors are of one family, each of a standard one too."""
    kinds: list[type[AlignupError]] = [AllocationError, ConfigError, InputError]
    kinds += [PodExistsError, UnknownPodError]
    values: list[type[ValueError]] = [InputError]
    if isinstance(error, AllocationError):
        assert_type(error.reason, str)
    return AlignupWarning if kinds and values else None


def reading(path: Path) -> tuple[Machine, list[Pod], Node]:
    """What is read comes from names, paths and text."""
    assert_type(machines(), tuple[str, ...])
    machine = read_machine(machines()[0])
    pods = read_pods(path)
    assert_type(pods, list[Pod])
    assert_type(pods[0].qos, QOSClass)
    node = read_kubelet_node(path, kubelet_version="1.36")
    return assert_type(machine, Machine), pods, assert_type(node, Node)


def tables(evaluation: Evaluation, pod: Pod) -> dict[str, Any]:
    """A cluster's answers are arrays, and a table of plain values."""
    reasons: list[str] = [REASONS[int(number)] for number in evaluation.reason]
    assert reasons
    cluster = Cluster.from_nodes([])
    answers = [cluster.evaluate(pod, strategy=strategy) for strategy in STRATEGIES]
    assert_type(answers, list[Evaluation])
    published = read_node_resource_topologies(b"[]", skip_bad=True)
    assert_type(published, Cluster)
    assert read_amounts({}, "object")
    return evaluation.to_dict()


def room(cluster: Cluster, pods: Sequence[Pod]) -> tuple[Pod, ...]:
    """Evictions are planned for pods with a standing."""
    plan = plan_room(cluster, pods, standings={"uid": Standing(priority=1)}, budgets={"b": 1})
    assert_type(plan, RoomPlan)
    return plan.left_out


def explaining(node: Node, pod: Pod, path: Path) -> Iterator[str]:
    """Explanations have suggestions, and pictures."""
    explanation = explain(node, pod, suggest=True)
    assert_type(explanation, Explanation)
    for suggestion in explanation.suggestions:
        assert_type(suggestion, Suggestion)
        yield suggestion.text
    drawing = draw(explanation)
    assert_type(drawing, Drawing)
    draw(node).save(path)
    draw(node.admit(pod)).save(str(path))
    draw(node.machine).save(path)


def launching(machine: Machine) -> Mapping[str, Sequence[str]]:
    """Ranks are bound, and leases taken."""
    parts = split(machine, 2, devices={"nvidia.com/gpu": 1})
    assert_type(parts, list[Part])
    part = alignup.bind(0, 2, devices={"nvidia.com/gpu": 1}, memory="bind", report=True)
    assert_type(part.cpus, CPUSet)
    with lease(cpus=2, memory="1Gi", wait=1.5) as taken:
        assert_type(taken, Lease)
        return taken.devices


class Quiet:
    """An observer of admissions."""

    def admission(self, seconds: float, admitted: bool) -> None:
        """Look at nothing."""


def wiring(machine: Machine, provider: HintProvider) -> tuple[TopologyHint, bool]:
    """Nodes take devices, observers, and providers that are recorded."""
    observer: Observer = Quiet()
    recording: HintProvider = RecordingProvider(provider)
    devices: dict[str, list[Device | Mapping[str, Any]]] = {
        "example.com/nic": [Device("nic0", (0,)), {"id": "nic1", "numa": [1]}]
    }
    node = Node(machine, {"topologyManagerPolicy": "restricted"}, devices, observer=observer)
    hints: ResourceHints = recording.topology_hints(node.pods[0], node.pods[0].containers[0])
    policy: Policy = make_policy("best-effort", 2)
    node.manager.add_provider(recording)
    blocks: tuple[MemoryBlock, ...] = node.admit(node.pods[0]).containers["c"].memory
    assert_type(blocks[0].size, int)
    return policy.merge([hints])


def merging(lists: list[HintList]) -> tuple[TopologyHint, bool]:
    """A merger merges packed lists, many times."""
    merger = Merger(2)
    mask: BitMask | None = merger.merge(lists).affinity
    return TopologyHint(mask, True), True


def replaying(node: Node, scenario: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Scenarios are replayed, whole or on a node."""
    yield replay(scenario, with_hints=True)
    yield from replay_steps(node, [], [])


def counting(metrics: AdmissionMetrics, plugins: DevicePlugins) -> Observer:
    """Metrics observe; plugins feed a node."""
    assert plugins
    return metrics
