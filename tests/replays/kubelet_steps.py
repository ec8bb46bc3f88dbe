"""Replays a recorded scenario on a node step by step.

Each step is compared with what the real kubelet answered.
"""

from __future__ import annotations

from functools import cache
from itertools import starmap
from random import Random
from typing import TYPE_CHECKING, Any

from alignup.node import Node
from alignup.replay import RecordingProvider, replay_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from alignup.kubernetes.pod import Container, Pod
    from alignup.topology_manager.hints import TopologyHint

ATTEMPTS = 1000
"""How many sequences of arbitrary device picks are tried before a scenario counts as different."""


def mask_of(nodes: list[int] | None) -> int | None:
    if nodes is None:
        return None
    return _mask_of(tuple(nodes))


@cache
def _mask_of(nodes: tuple[int, ...]) -> int:
    return sum(1 << node for node in nodes)


def compact_hints(resources: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return hints in an order of their own.

    Each is (mask over NUMA node ids, -1 for any; -1 if preferred, else 0).
    """
    if resources is None:
        return None

    compact: dict[str, Any] = dict.fromkeys(resources)
    for resource, hints in resources.items():
        if hints is not None:
            pairs = [(mask_of(hint["numaNodes"]), hint["preferred"]) for hint in hints]
            compact[resource] = sorted(starmap(mask_order, pairs))

    return compact


def mask_order(mask: int | None, preferred: int) -> tuple[int, int]:
    return (-1 if mask is None else mask, -preferred)


def expected_hints(providers: dict[str, Any] | None) -> dict[str, Any]:
    """Return recorded hints in the same order."""
    expected: dict[str, Any] = dict.fromkeys(providers or {})
    for name, resources in (providers or {}).items():
        if resources is not None:
            expected[name] = {
                resource: None if hints is None else sorted(starmap(mask_order, hints))
                for resource, hints in resources.items()
            }

    return expected


def where(case: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return, by resource and device id, the NUMA set that a device is near."""
    return {
        resource: {
            device["id"]: "any" if device["numa"] is None else ",".join(map(str, device["numa"]))
            for device in devices
        }
        for resource, devices in case.get("devices", {}).items()
    }


def compact_container(case: dict[str, Any], got: dict[str, Any]) -> dict[str, Any]:
    """Return what a container got as the vectors write it."""
    near = where(case)
    counts: dict[str, dict[str, int]] = {}
    for resource, ids in got["devices"].items():
        for device in ids:
            place = near[resource][device]
            counts.setdefault(resource, {})[place] = counts.get(resource, {}).get(place, 0) + 1

    affinity = got["affinity"]
    if affinity is not None:
        affinity = [mask_of(affinity["numaNodes"]), int(affinity["preferred"])]

    return {
        "affinity": affinity,
        "cpus": got["cpus"],
        "memory": sorted(
            ({"numa": b["numaNodes"], "type": b["type"], "size": b["size"]} for b in got["memory"]),
            key=lambda block: block["type"],
        ),
        "devices": counts,
    }


def check_step(case: dict[str, Any], step: dict[str, Any], expected: dict[str, Any]) -> None:
    """Compare one step with what the kubelet answered; after a restart, to each of its pods."""
    assert [pod["uid"] for pod in step.get("again", ())] == [
        pod["uid"] for pod in expected.get("again", ())
    ]
    for pod, expected_pod in zip(step.get("again", ()), expected.get("again", ()), strict=True):
        check_step(case, pod, expected_pod)

    assert (step["admitted"], step["reason"]) == (expected["admitted"], expected.get("reason", ""))
    assert step["sharedCpus"] == expected["sharedCpus"]
    assert bool(step["message"]) == bool(expected.get("message"))
    assert step.get("podCpus") == expected.get("podCpus")
    blocks = [{**block, "numa": block["numaNodes"]} for block in step.get("podMemory", ())]
    for block in blocks:
        del block["numaNodes"]

    by_type = {"key": lambda block: block["type"]}
    assert sorted(blocks, **by_type) == sorted(expected.get("podMemory", ()), **by_type)
    if "podHints" in expected:
        offered = {name: compact_hints(hints) for name, hints in step["podHints"].items()}
        assert offered == expected_hints(expected["podHints"])

    for name, recorded in expected.get("containers", {}).items():
        got = step["containers"][name]
        if step["admitted"]:
            compact = compact_container(case, got)
            amounts = {key: recorded[key] for key in ("cpus", "memory", "devices")}
            assert compact == {"affinity": recorded.get("affinity"), **amounts}
            for resource, ids in recorded.get("deviceIds", {}).items():
                assert got["devices"][resource] == ids

        if "hints" in recorded:
            offered = {name: compact_hints(hints) for name, hints in got["hints"].items()}
            assert offered == expected_hints(recorded["hints"])


class Picks:
    """Answers as a device plugin with the ids that the kubelet happened to pick.

    Where more devices are as good as each other than are needed the kubelet takes them from an
    unordered set, so that its pick differs from run to run, and all that follows with it. Any pick
    is right; the recorded one is handed to our device manager the way a plugin would, and
    everything else must then agree. Where none is recorded the pick is drawn from `random`.
    """

    def __init__(self, case: dict[str, Any], attempt: int) -> None:
        self.near = where(case)
        self.attempt = attempt
        self.random = Random(attempt)
        self.expected: dict[str, Any] = {}
        self.container = ""

    def plugin(self, resource: str) -> Callable[..., list[str]]:
        def preferred_allocation(
            available: Sequence[str], must_include: Sequence[str], size: int
        ) -> list[str]:
            recorded = self.expected.get(self.container, {})
            if resource in recorded.get("deviceIds", {}):
                return recorded["deviceIds"][resource]
            counts = dict(recorded.get("devices", {}).get(resource, {}))
            picked = []
            others = sorted(set(available) - set(must_include))
            devices = [*must_include, *self.random.sample(others, len(others))]
            if self.attempt and "devices" not in recorded:  # of a pod that is refused later on
                return devices[:size]

            for device in devices:
                if counts.get(self.near[resource][device], 0) > 0:
                    counts[self.near[resource][device]] -= 1
                    picked.append(device)

            return picked[:size]

        return preferred_allocation


class Following(RecordingProvider):
    """Tells `Picks` which container is being served."""

    picks: Picks

    def allocate(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        self.picks.container = container.name
        super().allocate(pod, container, affinity)


def following_node(
    case: dict[str, Any], attempt: int
) -> tuple[Picks, Node, list[tuple[str, RecordingProvider]], Callable[[Any], Following]]:
    """Return a node with the kubelet's arbitrary picks of devices.

    With it come who makes the picks, what records the hints, and what puts both in the place of a
    provider.
    """
    picks = Picks(case, attempt)
    if attempt:
        shuffled = {
            r: picks.random.sample(devices, len(devices)) for r, devices in case["devices"].items()
        }
        case = {**case, "devices": shuffled}

    recorders: list[tuple[str, RecordingProvider]] = []

    def follow(provider: Any) -> Following:
        recorder = Following(provider)
        recorder.picks = picks
        recorders.append((provider.name, recorder))
        return recorder

    node = Node.from_dict(
        case, plugins={r: picks.plugin(r) for r in case.get("devices", {})}, wrap=follow
    )
    return picks, node, recorders, follow


def replay_following(case: dict[str, Any], attempt: int) -> Iterator[dict[str, Any]]:
    """Yield the answers to the steps of a scenario.

    The picks of devices are the kubelet's arbitrary ones.
    """
    picks, node, recorders, follow = following_node(case, attempt)
    answers = replay_steps(node, case["steps"], recorders, wrap=follow)
    for expected in case["expect"]:
        picks.expected = expected.get("containers", {})
        yield next(answers)
