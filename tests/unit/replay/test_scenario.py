"""Scenarios become answers: step by step, as plain data, with what was offered on request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from alignup.errors import InputError
from alignup.node import Node
from alignup.replay.scenario import (
    MOST_SHOWN_HINTS,
    RecordingProvider,
    Remove,
    Restart,
    Start,
    admission_dict,
    hints_dict,
    read_step,
    read_steps,
    replay,
    replay_steps,
    steps_of,
)
from alignup.topology_manager.admission import Admission
from alignup.topology_manager.hints import BitMask, HintList, TopologyHint, feasible_hints
from fakes.hint_providers import Licences, hint, pod_of
from inputs.machines import machine_of, manifest
from inputs.vectors import vectors

SCENARIO: dict[str, Any] = {
    "name": "s",
    "machine": machine_of(2, 4),
    "kubelet": {
        "topologyManagerPolicy": "restricted",
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
    },
    "devices": {
        f"example.com/{kind}": [{"id": f"{kind}0", "numa": [1]}] for kind in ("gpu", "nic")
    },
}


def answers_to(*steps: Any, **changes: Any) -> list[dict[str, Any]]:
    """Replay steps, and return their answers, which JSON must be able to hold."""
    answer = replay({**SCENARIO, **changes, "steps": list(steps)}, with_hints=True)
    assert json.loads(json.dumps(answer)) == answer
    return answer["steps"]


def test_pods_come_and_go() -> None:
    came, went, again = answers_to(
        {"admit": manifest("p", 2, 1, 1)}, {"remove": "p"}, {"admit": manifest("p", 2, 1, 1)}
    )

    assert came == again
    assert came["containers"]["c0"]["cpus"] == "4,12"
    assert came["containers"]["c0"]["devices"] == {
        "example.com/gpu": ["gpu0"],
        "example.com/nic": ["nic0"],
    }
    assert went == {
        "admitted": True,
        "reason": "",
        "message": "",
        "sharedCpus": "0-15",
        "containers": {},
    }


def test_hints_are_those_of_the_pod_at_hand() -> None:
    """What was offered to the pod before is forgotten."""
    plain = manifest("r", 1, 1, 0)
    for kind in ("gpu", "nic"):
        del plain["spec"]["containers"][0]["resources"]["limits"][f"example.com/{kind}"]

    first, refused, second = answers_to(
        {"admit": manifest("p", 2, 1, 1)}, {"admit": manifest("q", 2, 1, 1)}, {"admit": plain}
    )

    assert first["containers"]["c0"]["hints"]["devices"]["example.com/gpu"][0] == {
        "numaNodes": [1],
        "preferred": True,
    }
    assert refused["containers"] == {"c0": {"hints": refused["containers"]["c0"]["hints"]}}
    assert refused["containers"]["c0"]["hints"]["devices"] == {
        "example.com/gpu": [],
        "example.com/nic": [],
    }
    assert second["containers"]["c0"]["hints"]["devices"] == {}
    assert second["containers"]["c0"]["affinity"] == {"numaNodes": [0], "preferred": True}


def test_containers_that_were_never_reached_have_no_hints() -> None:
    pod = manifest("p", 99, 1, 0)
    pod["spec"]["containers"].append({**pod["spec"]["containers"][0], "name": "late"})
    [refused] = answers_to({"admit": pod})

    assert list(refused["containers"]) == ["c0"]


def test_policy_none_asks_nobody() -> None:
    [step] = answers_to({"admit": manifest("p", 1, 1, 0)}, kubelet={})

    assert step["containers"]["c0"] == {"affinity": None, "cpus": None, "memory": [], "devices": {}}
    assert step["sharedCpus"] == ""
    assert "podHints" not in step


def test_a_kubelet_that_would_not_start() -> None:
    answer = replay(
        {**SCENARIO, "kubelet": {"topologyManagerPolicy": "bogus"}, "steps": [{"admit": {}}]}
    )

    assert set(answer) == {"name", "configError"}
    assert answer["name"] == "s"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"steps": None}, "a list of steps, got None"),
        ({"steps": "ab"}, "a list of steps, got 'ab'"),
        ({"steps": [3]}, r"^steps\[0\]: expected either"),
        ({"steps": [{"admit": {}, "remove": "p"}]}, r"^steps\[0\]: expected either"),
        ({"steps": [{"remove": "p"}]}, r"^steps\[0\]: no pod of uid 'p' is admitted"),
        ({"steps": [{"start": "p", "remove": "p"}]}, r"^steps\[0\]: expected either"),
        (
            {"steps": [{"start": "p"}]},
            r"^steps\[0\]: expected the name of a container of the pod, got None at container",
        ),
        (
            {"steps": [{"start": 3, "container": "c0"}]},
            r"^steps\[0\]: expected the uid of a pod, got 3 at start",
        ),
        (
            {"steps": [{"start": "p", "container": "c0"}]},
            r"^steps\[0\]: no pod of uid 'p' is admitted",
        ),
        (
            {"steps": [{"admit": manifest("p", 1, 1, 0)}, {"start": "p", "container": "x"}]},
            r"^steps\[1\]: expected a container of the pod \(c0\), got 'x' at container",
        ),
        ({"steps": [{"remove": {}}]}, r"^steps\[0\]: expected the uid of a pod, got \{\}"),
        (
            {"steps": [{"admit": manifest("p", 1, 1, 0)}] * 2},
            r"^steps\[1\]: .*'p' is admitted already",
        ),
        ({"steps": [{"admit": {"spec": {}}}]}, r"^steps\[0\]: .*metadata.name"),
        ({"machine": None}, "got None at machine"),
    ],
)
def test_errors_name_the_step(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        replay({**SCENARIO, **changes})


@pytest.mark.parametrize("scenario", [None, [], "words"])
def test_what_is_no_scenario(scenario: Any) -> None:
    with pytest.raises(InputError, match="the scenario"):
        replay(scenario)


def test_a_scenario_may_lack_all_but_the_machine() -> None:
    assert replay({"machine": machine_of(1, 1)}) == {"name": "", "steps": []}


def test_a_refused_pod_is_removed_once() -> None:
    """The kubelet forgets it after that.

    A pod of the same uid that is admitted later is a new one.
    """
    refused, fits = {"admit": manifest("p", 99, 1, 0)}, {"admit": manifest("p", 1, 1, 0)}

    assert [
        step["admitted"] for step in answers_to(refused, {"remove": "p"}, fits, {"remove": "p"})
    ] == [
        False,
        True,
        True,
        True,
    ]
    with pytest.raises(InputError, match=r"steps\[2\]"):
        answers_to(refused, {"remove": "p"}, {"remove": "p"})


def test_a_pod_that_was_refused_before_is_removed_as_any_other() -> None:
    """Once it is admitted, removing it takes back what it holds, whatever came of it earlier."""
    neighbour, late = {"admit": manifest("q", 2, 1, 1)}, {"admit": manifest("p", 2, 1, 1)}

    steps = answers_to(neighbour, late, {"remove": "q"}, late, {"remove": "p"}, neighbour)

    assert [step["admitted"] for step in steps] == [True, False, True, True, True, True]


def test_recording_changes_nothing() -> None:
    """A recorder passes on what it is asked and told."""
    licences = Licences([1, 0])
    recorder = RecordingProvider(licences)
    pod = pod_of("p")
    [container] = pod.containers

    assert (
        recorder.topology_hints(pod, container) == recorder.by_container["c0"] == licences.hints()
    )
    assert recorder.pod_topology_hints(pod) == recorder.by_pod == licences.hints()
    recorder.allocate(pod, container, hint(True, 0))
    assert licences.free == [0, 0]
    recorder.release("p", "c0")
    assert licences.free == [1, 0]
    recorder.forget()
    assert (recorder.by_container, recorder.by_pod) == ({}, None)


def test_hints_as_plain_data() -> None:
    """NUMA nodes by id; null for no preference; a user's plain list as well as a packed one."""
    assert hints_dict(None, [0]) is None
    assert hints_dict({}, [0]) == {}
    hints = {"b": None, "a": [hint(True, 1), TopologyHint(None, False)], "c": HintList.empty()}
    assert hints_dict(hints, [4, 7]) == {
        "a": [{"numaNodes": [7], "preferred": True}, {"numaNodes": None, "preferred": False}],
        "b": None,
        "c": [],
    }


def test_endless_lists_are_shown_in_part() -> None:
    """Beyond 12 NUMA nodes there are too many to show; their number is there."""
    everything = feasible_hints(20, [(None, [1] * 20, 1)], universe=(1 << 20) - 1, preferred_size=1)
    shown = hints_dict({"cpu": everything}, range(20))["cpu"]

    assert len(shown) == MOST_SHOWN_HINTS + 1
    assert shown[-1] == {"sampled": MOST_SHOWN_HINTS, "total": (1 << 20) - 1}


def test_a_search_that_ended_at_its_limit_says_so() -> None:
    """`exact` is there only when it is false."""
    node = Node.from_dict(SCENARIO)
    admission = node.admit(manifest("p", 1, 1, 0))
    assert "exact" not in admission_dict(node, node.pods[0], admission)

    class Cut(Admission):
        exact = False

    assert admission_dict(node, node.pods[0], Cut(True))["exact"] is False


def test_the_first_vectors_in_full() -> None:
    """Without hints the answers are the same.

    The whole files are compared in tests/conformance.
    """
    for _, case in zip(range(20), vectors("admission"), strict=False):
        plain, recorded = replay(case), replay(case, with_hints=True)
        assert set(plain) == set(recorded)
        for step, recorded_step in zip(
            plain.get("steps", ()), recorded.get("steps", ()), strict=True
        ):
            assert {key: step[key] for key in ("admitted", "reason", "message", "sharedCpus")} == {
                key: recorded_step[key] for key in ("admitted", "reason", "message", "sharedCpus")
            }
            for name, got in step["containers"].items():
                assert got == {
                    key: value
                    for key, value in recorded_step["containers"][name].items()
                    if key != "hints"
                }


def test_masks_are_positions_and_ids_are_ids() -> None:
    assert hints_dict({"r": [TopologyHint(BitMask([1]), True)]}, [3, 250])["r"][0]["numaNodes"] == [
        250
    ]


def init_pod(name: str, memory: str, init: str | None = None) -> dict[str, Any]:
    """Return a pod of one CPU with so much memory.

    It has an init container with as much as `init` says.
    """
    pod = {
        "metadata": {"name": name, "uid": name},
        "spec": {
            "containers": [{"name": "app", "resources": {"limits": {"cpu": "1", "memory": memory}}}]
        },
    }
    if init:
        limits = {"cpu": "1", "memory": init}
        pod["spec"]["initContainers"] = [{"name": "init", "resources": {"limits": limits}}]
    return pod


@pytest.mark.parametrize(
    "starts", [[], [{"start": "a", "container": "init"}], [{"start": "a", "container": "app"}]]
)
def test_memory_of_ended_init_containers_is_free_once_the_next_container_starts(
    starts: list[Any],
) -> None:
    """What the real memory manager did.

    After `AddContainer` of the app, 2Gi of 3Gi are there for the next pod.
    """
    machine = {
        "numaNodes": [{"id": 0, "memory": 4 << 30, "cores": [{"cpus": [0, 1, 2, 3], "socket": 0}]}]
    }
    kubelet = {
        "topologyManagerPolicy": "none",
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    }
    steps = answers_to(
        {"admit": init_pod("a", "1Gi", init="2Gi")},
        *starts,
        {"admit": init_pod("b", "2Gi")},
        machine=machine,
        kubelet=kubelet,
        devices={},
    )

    assert steps[0]["admitted"]
    app_runs = starts == [{"start": "a", "container": "app"}]
    assert steps[-1]["admitted"] is app_runs
    if starts:
        assert steps[1] == {
            "admitted": True,
            "reason": "",
            "message": "",
            "sharedCpus": "",
            "containers": {},
        }


def test_a_refused_pod_is_neither_started_nor_resized_and_may_be_removed() -> None:
    resize = {"resize": "p", "containers": {"c0": {"limits": {"cpu": "1", "memory": "1Gi"}}}}
    steps = answers_to(
        {"admit": manifest("p", 99, 1, 0)},
        {"start": "p", "container": "c0"},
        resize,
        {"remove": "p"},
    )

    assert [step["admitted"] for step in steps] == [False, False, False, True]
    assert steps[1]["reason"] == steps[2]["reason"] == steps[0]["reason"] != ""
    assert steps[1]["message"] == steps[2]["message"] != ""
    assert not steps[1]["containers"]


def test_a_pod_that_gave_way_is_not_there_to_be_started() -> None:
    """A critical pod preempts it: the reason in its status is then `Preempting`."""
    machine = {
        "numaNodes": [{"id": 0, "memory": 4 << 30, "cores": [{"cpus": [0, 1, 2, 3], "socket": 0}]}]
    }
    critical = init_pod("b", "3Gi")
    critical["spec"].update({"priority": 2 * 10**9, "priorityClassName": "system-node-critical"})
    start = {"start": "a", "container": "app"}
    steps = answers_to(
        *({"admit": init_pod("a", "2Gi")}, start, {"admit": critical}, start, {"remove": "a"}),
        machine=machine,
        kubelet={},
        devices={},
        wholeVerdict=True,
    )

    assert [(step["admitted"], step["reason"]) for step in steps[:4]] == [
        *((True, ""), (True, ""), (True, ""), (False, "Preempting"))
    ]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ({}, "either"),
        ([], "either"),
        ({"admit": {}, "remove": "x"}, "either"),
        ({"remove": 3}, "the uid of a pod"),
        ({"start": "x"}, "the name of a container"),
        ({"admit": {"spec": 1}}, "expected"),
        ({"restart": 1}, "expected true, got 1 at restart"),
        ({"restart": True, "uid": "x"}, "no keys but restart and kubeletVersion, got .*'uid'"),
        ({"restart": True, "kubeletVersion": 1}, "the version of a kubelet"),
    ],
)
def test_a_malformed_step_is_refused(step, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        read_step(step)


def test_the_step_is_named() -> None:
    with pytest.raises(InputError, match=r"^steps\[1\]: expected either"):
        read_steps({"steps": [{"remove": "x"}, {}]})


def test_steps_are_a_list() -> None:
    assert steps_of({}) == []
    with pytest.raises(InputError, match="a list of steps"):
        steps_of({"steps": "admit"})


def test_steps_are_records() -> None:
    assert read_steps({"steps": [{"start": "x", "container": "c"}, {"remove": "x"}]}) == [
        Start("x", "c"),
        Remove("x"),
    ]
    assert read_steps({"steps": [{"restart": True}]}) == [Restart()]


WHOLE = {
    "resources": {amounts: {"cpu": "4", "memory": "2Gi"} for amounts in ("limits", "requests")},
    "containers": [
        {"name": "c0", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}},
        {"name": "c1"},
    ],
}
WHOLE_POD = {"metadata": {"name": "w", "uid": "w"}, "spec": WHOLE}
WHOLE_KUBELET = {
    **SCENARIO["kubelet"],
    "topologyManagerPolicy": "best-effort",
    "topologyManagerScope": "pod",
    "featureGates": {"PodLevelResourceManagers": True},
}
RESTART = {"restart": True}


def cpus_of(answer: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the CPUs of the first container of each pod that was admitted again."""
    return [(pod["uid"], pod["containers"]["c0"]["cpus"]) for pod in answer["again"]]


def test_after_a_restart_pods_are_admitted_again_in_their_order() -> None:
    """Devices are those of before; their plugins have not registered yet, so there are no hints."""
    *_, refused, restart, removed = answers_to(
        {"admit": manifest("p", 2, 1, 1)},
        {"admit": manifest("q", 1, 1, 0)},
        {"admit": manifest("r", 2, 1, 1)},
        RESTART,
        {"remove": "r"},
    )

    assert (refused["admitted"], removed["admitted"]) == (False, True)
    assert (restart["admitted"], restart["sharedCpus"]) == (True, refused["sharedCpus"])
    assert cpus_of(restart) == [("p", "4,12"), ("q", "5")]
    again = restart["again"][0]["containers"]["c0"]
    assert again["devices"] == {"example.com/gpu": ["gpu0"], "example.com/nic": ["nic0"]}
    assert again["hints"]["devices"] == {"example.com/gpu": None, "example.com/nic": None}
    assert [hint["numaNodes"] for hint in again["hints"]["cpu"]["cpu"]] == [[1], [0, 1]]


def test_a_kubelet_that_does_not_start_answers_nothing_until_one_does() -> None:
    """A kubelet 1.37 loses CPUs of pods that have some as a whole, and refuses its own state."""
    admit = {"admit": WHOLE_POD}
    later = {"admit": manifest("p", 1, 0, 0)}
    steps = [admit, RESTART, RESTART, later, {"remove": "w"}]
    came, first, second, refused, removed = answers_to(*steps, kubelet=WHOLE_KUBELET)

    assert came["containers"]["c0"]["cpus"] == "1,9"
    assert cpus_of(first) == [("w", "3,11")]
    message = (
        'the kubelet does not start: current set of available CPUs "0-15" doesn\'t match with CPUs '
        'in state "0,3-8,11-15"'
    )
    for answer in (second, refused, removed):
        assert (answer["admitted"], answer["reason"], answer["message"]) == (False, "", message)
        assert answer["sharedCpus"] == "0,5-8,13-15"

    assert (second["again"], "again" in refused) == ([], False)


def test_a_kubelet_is_upgraded_by_a_restart() -> None:
    """What it finds it restores, if the one before has not lost it."""
    upgrade = {**RESTART, "kubeletVersion": "1.38"}
    _, upgraded, later = answers_to({"admit": WHOLE_POD}, upgrade, RESTART, kubelet=WHOLE_KUBELET)
    assert cpus_of(upgraded) == cpus_of(later) == [("w", "1,9")]
    hint = upgraded["again"][0]["podHints"]["cpu"]["cpu"][0]
    assert hint["numaNodes"] == [0]
    assert "score" in hint

    _, unknown, back = answers_to(
        {"admit": manifest("p", 1, 0, 0)},
        {**RESTART, "kubeletVersion": "1.30"},
        RESTART,
        kubelet={
            **SCENARIO["kubelet"],
            "cpuManagerPolicyOptions": {"prefer-align-cpus-by-uncorecache": "true"},
        },
    )
    assert "prefer-align-cpus-by-uncorecache" in unknown["message"]
    assert back["admitted"]


def test_a_pod_that_a_restart_refuses_is_gone() -> None:
    """It may be removed, and a container of it cannot start."""
    steps = [{"admit": WHOLE_POD}, RESTART, {"start": "w", "container": "c0"}, {"remove": "w"}]
    kubelet = {**WHOLE_KUBELET, "topologyManagerPolicy": "restricted"}
    _, restart, started, removed = answers_to(*steps, kubelet=kubelet)

    assert [(pod["admitted"], pod["reason"]) for pod in restart["again"]] == [
        (False, "TopologyAffinityError")
    ]
    assert restart["again"][0]["sharedCpus"] == "0,3-8,11-15"
    assert restart["sharedCpus"] == "0-15"
    assert (started["admitted"], started["reason"]) == (False, "TopologyAffinityError")
    assert removed["admitted"]


def test_a_users_recorders_are_made_anew_for_the_node_after_a_restart() -> None:
    recorders: list[tuple[str, RecordingProvider]] = []

    def record(provider: Any) -> RecordingProvider:
        recorders.append((provider.name, RecordingProvider(provider)))
        return recorders[-1][1]

    node = Node.from_dict(SCENARIO, wrap=record)
    earlier_recorders = list(recorders)
    steps = [{"admit": manifest("p", 2, 1, 1)}, RESTART]
    _, restart = replay_steps(node, steps, recorders)
    assert [name for name, _ in recorders] == [name for name, _ in earlier_recorders]
    assert not {id(recorder) for _, recorder in recorders} & {
        id(recorder) for _, recorder in earlier_recorders
    }
    assert restart["again"][0]["containers"]["c0"]["hints"]["cpu"]["cpu"]
