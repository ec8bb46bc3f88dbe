"""What a kubelet's log says of refused pods.

Logs of real kubelets, and lines as each release writes them.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup import Node, explain
from alignup.cli.explain_log import explain_logged
from alignup.errors import InputError
from alignup.kubelet import log
from alignup.kubelet.log import FailedStart, LoggedHint, log_line, read_log
from alignup.kubelet.messages import meaning_of_start
from alignup.topology_manager.hints import BitMask, TopologyHint
from checks.many_cases import check_each
from inputs.machines import machine_of
from inputs.strategies import examples
from models.topology_manager import merged

LOGS = Path(__file__).parents[2] / "logs"
TEXT, POD, BEST = (
    LOGS / f"1.36-{name}"
    for name in ("restricted.log", "single-numa-node-pod.json", "best-effort.json")
)

BY_MERGE = "TopologyAffinityError"

# What the kubelets said to the API server, and the causes in our words.
REAL = {
    TEXT: {
        "wide": (
            "TopologyAffinityError",
            (
                "cpu needs 2 NUMA nodes, memory needs 1 NUMA node; restricted refuses unless both "
                "need the same"
            ),
        ),
        "gpus": ("TopologyAffinityError", "not enough example.com/gpu is free: 3 asked, 1 free"),
        "mem": ("UnexpectedAdmissionError", "[memorymanager] failed to find NUMA nodes to extend"),
        "cpus": ("TopologyAffinityError", "not enough cpu is free"),
    },
    POD: {
        "wide": (
            "TopologyAffinityError",
            "cpu does not fit into one NUMA node (it would take NUMA nodes 0+1)",
        ),
        "gpus": ("TopologyAffinityError", "not enough example.com/gpu is free: 3 asked, 1 free"),
        "mem": ("UnexpectedAdmissionError", "[memorymanager] failed to find NUMA nodes to extend"),
    },
    BEST: {
        "gpus": ("UnexpectedAdmissionError", "not enough example.com/gpu is free: 3 asked, 1 free"),
        "odd": ("UnexpectedAdmissionError", "not enough cpu is free: 5 asked, 2 free"),
        "two": ("UnexpectedAdmissionError", "not enough cpu is free: 4 asked, 2 free"),
    },
}

HOSTILE = [
    None,
    True,
    -1,
    1 << 70,
    1.5,
    "x",
    [],
    [1],
    {"a": 1},
    {"NUMANodeAffinity": -1, "Preferred": 1},
]

KEYS = (
    "pod",
    "object",
    "containerName",
    "hints",
    "bestHint",
    "topology",
    "topologyPolicyOptions",
    "topologyScopeName",
    "resource",
    "request",
    "available",
    "err",
    "podUID",
    "reason",
    "message",
    "operation",
)

MESSAGES = (
    "Creating topology manager with policy per scope",
    "Detected CPU topology",
    "TopologyHints",
    "Best TopologyHint",
    "Topology Affinity",
    "Allocate error",
    "Pod admission denied",
    "Event occurred",
    "Unable to generate topology hints: requested number of devices unavailable",
)


def explained(lines):
    """Return the explanations of the refusals in some lines."""
    encoded = [line if isinstance(line, bytes) else line.encode() for line in lines]
    log = read_log(encoded, "LOG")
    return [explain_logged(log, refusal) for refusal in log.refusals.values()]


def text(message, file="scope_container.go:83", /, **values):
    """Return a line of klog's text."""
    pairs = "".join(
        f" {name}={json.dumps(value, separators=(',', ':'))}" for name, value in values.items()
    )
    return f'I1125 10:00:00.000001     100 {file}] "{message}"{pairs}\n'


def as_json(message, file="scope_container.go:83", /, pod=None, **values):
    """Return the same as `--logging-format=json` writes it."""
    entry = {"ts": 1.5, "caller": f"topologymanager/{file}", "msg": message, "v": 0}
    if pod is not None:
        namespace, name = pod.split("/")
        entry["pod"] = {"namespace": namespace, "name": name}

    return json.dumps(entry | values) + "\n"


def hint(mask, preferred):
    return {"NUMANodeAffinity": mask, "Preferred": preferred}


def scored(mask, preferred, score):
    return {**hint(mask, preferred), "Score": score}


def decision(lists, best, pod="d/a", write=text, **more):
    """Return the lines of a decision: the hints of each provider, and what the kubelet merged."""
    for hints in lists:
        yield write("TopologyHints", hints=hints, pod=pod, **more)
    yield write("Best TopologyHint", bestHint=best, pod=pod, **more)


NOT_PREFERRED = [{}, {"cpu": [hint(3, True)]}, {"memory": [hint(1, True), hint(2, True)]}]


class TestRealLogs:
    @pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
    def test_each_refused_pod_is_explained(self, path):
        explanations = explained(path.read_bytes().splitlines(keepends=True))
        assert [explanation.pod.removeprefix("default/") for explanation in explanations] == list(
            REAL[path]
        )
        for explanation, (reason, cause) in zip(explanations, REAL[path].values(), strict=True):
            assert explanation.reason == reason
            assert explanation.cause.startswith(cause)
            assert explanation.log["agrees"] is True
            assert explanation.steps
            assert explanation.uid

    @pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
    @pytest.mark.parametrize(
        "wrap",
        [
            lambda line: f"Nov 25 10:00:00 node1 kubelet[100]: {line}\n",
            lambda line: f"2026-11-25T10:00:00.123456+00:00 node1 kubenswrapper[100]: {line}\n",
            lambda line: f"[pod/kubelet-node1/kubelet] {line}\n",
            lambda line: f"2026-11-25T10:00:00.123456789Z stderr F {line}\n",
            lambda line: (
                json.dumps({"_COMM": "kubelet", "__REALTIME_TIMESTAMP": "1", "MESSAGE": line})
                + "\n"
            ),
            lambda line: json.dumps({"log": line + "\n", "stream": "stderr"}) + "\n",
            lambda line: json.dumps({"log": json.dumps({"MESSAGE": line})}) + "\n",
        ],
        ids=[
            "journal",
            "kubenswrapper",
            "prefix",
            "container",
            "journal-json",
            "docker",
            "collected",
        ],
    )
    def test_what_stands_around_lines_does_not_matter(self, path, wrap):
        lines = path.read_text().splitlines()
        assert explained(map(wrap, lines)) == explained(line + "\n" for line in lines)

    @pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
    def test_a_log_that_lacks_parts_is_read_as_far_as_it_goes(self, path):
        lines = path.read_bytes().splitlines(keepends=True)

        def is_read(seed):
            chance = Random(seed)
            kept = [line for line in lines if chance.random() < 0.9]
            for index in chance.sample(range(len(kept)), 5):
                kept[index] = kept[index][: chance.randrange(len(kept[index]))] + b"\n"

            for explanation in explained(kept):
                assert explanation.pod.removeprefix("default/") in {*REAL[path], "a"}
                json.dumps(explanation.to_dict(product=True))

        check_each(is_read, [(f"seed {seed}", (seed,)) for seed in range(20)])


@given(data=st.data())
@examples(120)
def test_the_merge_is_replayed_and_a_best_hint_that_differs_is_told(data):
    """The best hint is the plain model's."""
    nodes = data.draw(st.integers(1, 4))
    masks = st.tuples(st.integers(1, (1 << nodes) - 1), st.booleans())
    names = ("example.com/gpu", "cpu", "memory")
    lists = [
        data.draw(st.none() | st.lists(masks, max_size=4, unique_by=lambda pair: pair[0]))
        for _ in names
    ]
    policy = data.draw(st.sampled_from(("restricted", "single-numa-node", "best-effort")))
    offers = []
    for name, pairs in zip(names, lists, strict=True):
        if pairs is None:
            offers.append({})
        else:
            offers.append({name: [hint(*pair) for pair in pairs]})

    every = {"CPUDetails": {str(node): {"NUMANodeID": node} for node in range(nodes)}}
    mask, preferred, admitted = best_of(policy, nodes, dict(zip(names, lists, strict=True)))
    startup = [
        text(
            "Creating topology manager with policy per scope",
            topologyPolicyName=policy,
            topologyScopeName="container",
        ),
        text("Detected CPU topology", topology=every),
    ]
    denied = text(
        "Pod admission denied", podUID="u", pod="d/a", reason="TopologyAffinityError", message="m"
    )

    write = data.draw(st.sampled_from((text, as_json)))
    lines = [
        *startup,
        *decision(offers, hint(mask, preferred), write=write, containerName="c"),
        denied,
    ]
    [explanation] = explained(lines)
    assert explanation.log["agrees"] is True

    differing = decision(offers, hint(mask, not preferred), containerName="c")
    [disagreement] = explained([*startup, *differing, denied])
    assert disagreement.log["agrees"] is False

    if not admitted:
        assert explanation.cause_kind in {"too little", "one node", "spread", "conflict"}


def best_of(policy, nodes, lists):
    """Return the mask and the preference of the best hint, and whether that admits.

    By the plain model of the merge.
    """
    hints = {
        name: pairs and [TopologyHint(BitMask.from_int(mask), good) for mask, good in pairs]
        for name, pairs in lists.items()
    }
    offers = [pairs if pairs is None else {name: pairs} for name, pairs in hints.items()]
    return merged(policy, nodes, offers)


class TestReleases:
    """What releases log differs in words and in what they leave out."""

    def test_up_to_1_30_a_decision_that_is_not_carried_out_is_a_refusal(self):
        [explanation] = explained(
            [
                *decision(NOT_PREFERRED, hint(1, False), containerName="c"),
                text("Other", "kubelet.go:1"),
            ]
        )
        assert (explanation.pod, explanation.reason, explanation.policy, explanation.scope) == (
            "d/a",
            "TopologyAffinityError",
            "restricted",
            "container",
        )
        assert any("policy" in sentence for sentence in explanation.log["unknown"])

    def test_a_decision_without_a_mask_is_of_single_numa_node(self):
        [explanation] = explained(decision([{"cpu": [hint(3, True)]}], hint(None, False)))
        assert (explanation.policy, explanation.scope) == ("single-numa-node", "pod")

    def test_a_decision_that_is_carried_out_is_none(self):
        lines = [
            *decision(NOT_PREFERRED, hint(1, False)),
            text("Topology Affinity", bestHint=hint(1, False), pod="d/a"),
        ]
        assert explained(lines) == []

    def test_an_event_tells_of_a_refusal_from_verbosity_3_on(self):
        event = {"object": "d/a", "kind": "Pod", "type": "Warning"}
        lines = [
            text("Other", "kubelet.go:1"),
            text("Event occurred", "event.go:307", **event, reason="FailedMount", message="m"),
            text("Event occurred", "event.go:307", **event, reason="OutOfcpu", message="m"),
        ]
        [explanation] = explained(lines)
        assert (explanation.pod, explanation.reason, explanation.cause) == ("d/a", "OutOfcpu", "m")

    def test_up_to_1_30_an_error_tells_of_an_allocation_that_failed(self):
        error = "not enough cpus available to satisfy request: requested=4, available=2"
        lines = [
            *decision([{"cpu": [hint(1, True)]}], hint(1, True), containerName="c"),
            text("Topology Affinity", bestHint=hint(1, True), pod="d/a", containerName="c"),
            text("Allocate error", "cpu_manager.go:260", err=error),
        ]
        [explanation] = explained(lines)
        assert (explanation.reason, explanation.cause) == (
            "UnexpectedAdmissionError",
            "not enough cpu is free: 4 asked, 2 free",
        )

        event = {
            "object": "d/a",
            "kind": "Pod",
            "reason": "UnexpectedAdmissionError",
            "message": f"Allocate failed: {error}",
        }
        assert len(explained([*lines, text("Event occurred", "event.go:307", **event)])) == 1

    @pytest.mark.parametrize("key", ["resource", "resourceName"])
    def test_devices_of_which_too_few_are_free_are_counted(self, key):
        message = "Unable to generate topology hints: requested number of devices unavailable"
        lines = [
            text(
                message, "topology_hints.go:74", **{key: "example.com/nic"}, request=4, available=1
            ),
            *decision([{"example.com/nic": []}, {"cpu": [hint(1, True)]}], hint(1, False)),
        ]
        [explanation] = explained(lines)
        assert (explanation.cause, explanation.blamed) == (
            "not enough example.com/nic is free: 4 asked, 1 free",
            ("example.com/nic",),
        )

    def test_hints_as_go_prints_them(self):
        lines = [
            text("TopologyHints", pod="d/a", containerName="c").replace(
                " pod=",
                " hints=map[cpu:[{NUMANodeAffinity:11 Preferred:true}] hugepages-1Gi:[]] pod=",
            ),
            text("Best TopologyHint", pod="d/a", containerName="c").replace(
                " pod=", " bestHint={NUMANodeAffinity:<nil> Preferred:false} pod="
            ),
        ]

        [explanation] = explained(lines)
        assert (explanation.policy, explanation.blamed, explanation.log["agrees"]) == (
            "single-numa-node",
            ("hugepages-1Gi",),
            True,
        )

    @pytest.mark.parametrize("write", [text, as_json])
    def test_hints_of_1_38_have_scores(self, write):
        """And at -v=4 a line for each combination, which tells nothing more."""
        offers = [
            {"example.com/gpu": [scored(2, True, 40)]},
            {"cpu": [scored(1, True, 81), scored(3, False, 31)]},
            {"memory": [scored(4, False, 0), scored(6, False, 0)]},
        ]
        combination = "Merged hint includes aggregated score"
        lines = [
            *(write("TopologyHints", hints=hints, pod="d/a") for hints in offers),
            *[write(combination, "policy.go:97", score=35)] * 4,
            write("Best TopologyHint", bestHint=scored(2, False, 35), pod="d/a"),
            write("Pod admission denied", podUID="u", pod="d/a", reason=BY_MERGE, message="m"),
        ]
        [explanation] = explained(lines)
        best = {"numaNodes": [1], "preferred": False, "score": 35}
        assert (explanation.log["best"], explanation.log["merged"]) == (best, best)
        step = explanation.to_dict(product=True)["steps"][0]
        assert step["best"] == best
        # of the memory of NUMA node 2 alone, nothing is in common
        row = step["product"]["rows"][3]
        assert [choice["score"] for choice in row["hints"]] == [40, 31, 0]
        assert (row["merged"], row["score"]) == ([1], 35)

    def test_a_log_of_combinations_only_is_a_kubelets(self):
        assert explained([text("Merged hint includes aggregated score", score=1)]) == []

    def test_a_pod_that_is_not_resized_stays(self):
        denied = {
            "podUID": "u",
            "pod": "d/a",
            "reason": "TopologyAffinityError",
            "message": "m",
            "operation": "resize",
        }
        lines = [*decision(NOT_PREFERRED, hint(1, False)), text("Pod admission denied", **denied)]
        assert explained(lines) == []

    def test_the_last_refusal_of_a_pod_counts(self):
        lines = [
            *decision(NOT_PREFERRED, hint(1, False)),
            *decision(NOT_PREFERRED, hint(1, False), pod="d/b"),
            *decision([{"cpu": []}], hint(1, False)),
        ]
        assert [(explanation.pod, explanation.cause_kind) for explanation in explained(lines)] == [
            ("d/b", "conflict"),
            ("d/a", "too little"),
        ]

    def test_containers_are_decided_on_one_after_the_other(self):
        passed = [
            *decision([{"cpu": [hint(1, True)]}], hint(1, True), containerName="first"),
            text("Topology Affinity", bestHint=hint(1, True), pod="d/a", containerName="first"),
        ]
        [explanation] = explained(
            [*passed, *decision(NOT_PREFERRED, hint(1, False), containerName="second")]
        )
        assert (explanation.container, [step.container for step in explanation.steps]) == (
            "second",
            ["first", "second"],
        )

    def test_numa_nodes_have_ids_that_are_no_positions(self):
        lines = decision(
            [{"cpu": [hint(1 << 8, True)]}, {"example.com/gpu": [hint(1, True)]}], hint(1, False)
        )
        [explanation] = explained(lines)
        assert explanation.cause.startswith(
            "cpu prefers NUMA node 8, example.com/gpu prefers NUMA node 0"
        )

    def test_distances_are_not_in_a_log(self):
        options = {"PreferClosestNUMA": True, "MaxAllowableNUMANodes": 8}
        values = {
            "topologyPolicyName": "restricted",
            "topologyScopeName": "pod",
            "topologyPolicyOptions": options,
        }
        lines = [text("Creating topology manager with policy per scope", **values)]
        [explanation] = explained([*lines, *decision(NOT_PREFERRED, hint(2, False))])
        assert explanation.log["agrees"] is None
        assert any("distances" in sentence for sentence in explanation.log["unknown"])

    def test_hints_that_are_cut_out_are_told(self):
        lines = list(decision(NOT_PREFERRED, hint(1, False)))
        lines[1] = lines[1].replace(":3,", ":...,")
        [explanation] = explained(lines)
        assert explanation.log["agrees"] is None
        assert any("cut off" in sentence for sentence in explanation.log["unknown"])

    @pytest.mark.parametrize(
        ("reason", "message", "cause", "kind"),
        [
            (
                "SMTAlignmentError",
                "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2",
                (
                    "3 cpu asked, but the CPU manager's option full-pcpus-only gives whole cores "
                    "only: multiples of 2 CPUs"
                ),
                "whole cores",
            ),
            (
                "SMTAlignmentError",
                (
                    "SMT Alignment Error: not enough: available physical CPUs = 4, requested CPUs "
                    "= 6, CPUs per core = 2"
                ),
                (
                    "too few CPUs are free in whole cores: 6 asked, 4 free; cores with a reserved "
                    "CPU do not count"
                ),
                "whole cores",
            ),
            (
                "OutOfmemory",
                (
                    "Node didn't have enough resource: memory, requested: 4294967296, used: 0, "
                    "capacity: 1073741824"
                ),
                "too little is left on the node as a whole: 4Gi memory requested, the node has 1Gi",
                "node",
            ),
            (
                "OutOfpods",
                "Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2",
                "it takes 2 pods",
                "node",
            ),
            (
                "NodeAffinity",
                "Predicate NodeAffinity failed",
                "the node's labels do not match",
                "node",
            ),
            (
                "Evicted",
                "The node had condition: [DiskPressure].",
                "The node had condition",
                "unknown",
            ),
        ],
    )
    def test_the_kubelets_words_in_ours(self, reason, message, cause, kind):
        [explanation] = explained(
            [text("Pod admission denied", podUID="u", pod="d/a", reason=reason, message=message)]
        )
        assert cause in explanation.cause
        assert explanation.cause_kind == kind

    @pytest.mark.parametrize(
        ("reason", "message"),
        [
            ("SMTAlignmentError", "SMT Alignment Error: requested {} cpus not multiple of 2"),
            (
                "OutOfcpu",
                "Node didn't have enough resource: cpu, requested: {}, used: 0, capacity: 1",
            ),
        ],
    )
    def test_numbers_of_more_digits_than_are_read_stay_the_kubelets_words(self, reason, message):
        printed = message.format("9" * 5_000)
        [explanation] = explained(
            [text("Pod admission denied", podUID="u", pod="d/a", reason=reason, message=printed)]
        )
        assert explanation.cause


@pytest.mark.parametrize(
    ("cpus", "kubelets"),
    [
        (3, "requested 3 cpus not multiple cpus per core = 2"),
        (16, "not enough: available physical CPUs = 14, requested CPUs = 16, CPUs per core = 2"),
    ],
)
def test_a_log_says_of_whole_cores_what_the_node_says(cpus, kubelets):
    kubelet = {
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
        "reservedSystemCPUs": "0",
    }
    limits = {"cpu": f"{cpus}", "memory": "1Gi"}
    pod = {
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    }
    by_node = explain(Node.from_dict({"machine": machine_of(2, 4), "kubelet": kubelet}), pod)
    message = f"SMT Alignment Error: {kubelets}"
    [by_log] = explained(
        [
            text(
                "Pod admission denied",
                podUID="u",
                pod="d/a",
                reason="SMTAlignmentError",
                message=message,
            )
        ]
    )

    assert (by_log.causes, by_log.cause_kind, by_log.blamed) == (
        by_node.causes,
        by_node.cause_kind,
        by_node.blamed,
    )


def test_another_programs_log_is_none():
    lines = [
        text(
            "Event occurred", "event.go:1", object="d/a", kind="Pod", reason="OutOfcpu", message="m"
        )
    ]
    with pytest.raises(InputError, match="journalctl -u kubelet"):
        explained([*lines, "apiserver: hello\n", "\xff\x00{\n"])


def test_messages_that_the_journal_leaves_out_are_counted():
    omitted = json.dumps({"__REALTIME_TIMESTAMP": "1", "MESSAGE": None}) + "\n"
    assert read_log([omitted.encode(), text("Other", "kubelet.go:1").encode()], "LOG").omitted == 1


@given(
    line=st.text(max_size=80)
    | st.from_regex(r'I1125 10:00:00\.000001 1 a\.go:1\] "TopologyHints" .{0,60}')
)
@examples(200)
def test_any_text_is_a_line(line):
    log_line(line)
    with pytest.raises(InputError):
        read_log([log_line.__name__.encode()], "LOG")


@given(data=st.data())
@examples(150)
def test_values_of_any_type_do_no_harm(data):
    """Whoever writes a log may write anything."""
    any_value = st.sampled_from(HOSTILE)
    lines = [text("Other", "kubelet.go:1")]
    for message in data.draw(st.lists(st.sampled_from(MESSAGES), max_size=8)):
        values = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, any_value)))
        if values:
            lines.append(json.dumps({"msg": message, **values}) + "\n")
        else:
            lines.append(as_json(message))

    for explanation in explained(lines):
        json.dumps(explanation.to_dict(product=True))


# ---- kubelets that do not start

HEAD = "Oct 24 14:37:24 node1 kubelet: E1024 14:37:24.053451    9720"
CPUS_CHANGED = 'current set of available CPUs "0-7" doesn\'t match with CPUs in state "0-3"'
NO_RESERVATION = "[cpumanager] unable to determine reserved CPU resources for static policy"
OTHER_MEMORY = "[memorymanager] the expected machine state is different from the real one"


def failed_starts(*lines: str) -> dict[str, FailedStart]:
    return read_log([line.encode() for line in lines], "log").failed_starts


def ended(error: str, message: str = "Failed to start ContainerManager", file="kubelet.go") -> str:
    return f'{HEAD} {file}:1541] "{message}" err={json.dumps(error)}'


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (ended(f"start cpu manager error: {CPUS_CHANGED}"), CPUS_CHANGED),
        (
            ended(f"failed to run Kubelet: {NO_RESERVATION}", "command failed", "run.go"),
            NO_RESERVATION,
        ),
        (
            ended(
                f"failed to run Kubelet: new static policy error: {NO_RESERVATION}",
                "Failed to run kubelet",
            ),
            NO_RESERVATION,
        ),
        (ended(CPUS_CHANGED, "Policy start error", "cpu_manager.go"), CPUS_CHANGED),
        # as fatal lines of older releases have it
        (
            f"F0104 02:14:39.1 8371 server.go:273] failed to run Kubelet: {NO_RESERVATION}\n",
            NO_RESERVATION,
        ),
        (
            (
                "F0104 02:14:39.1 8371 kubelet.go:1383] Failed to start ContainerManager start cpu "
                f"manager error: {CPUS_CHANGED}"
            ),
            CPUS_CHANGED,
        ),
        # k3s
        (
            'time="2026-01-04T02:14:39Z" level=fatal msg="kubelet exited: failed to run Kubelet: '
            + CPUS_CHANGED.replace('"', '\\"')
            + '"',
            CPUS_CHANGED,
        ),
        (
            json.dumps(
                {
                    "ts": 1.0,
                    "caller": "kubelet.go:1541",
                    "msg": "Failed to start ContainerManager",
                    "err": f"start memory manager error: {OTHER_MEMORY}",
                }
            ),
            OTHER_MEMORY,
        ),
    ],
)
def test_the_words_by_which_a_kubelet_ends_are_found(line, words):
    assert list(failed_starts(line)) == [words]
    assert meaning_of_start(words) is not None


NAMED = 'configured policy "static" differs from state checkpoint policy "none"'
RESERVED = 'the total amount "0" of type "memory" is not equal to the value "993Mi"'


@pytest.mark.parametrize(
    ("line", "component"),
    [
        # kubernetes#79603: the words go on in another line
        (
            (
                "Jul 01 14:56:11 n kubelet[5374]: F0701 14:56:11.909515    5374 server.go:266] "
                "failed to run Kubelet: could not initialize checkpoint manager: could not "
                f"restore state from checkpoint: {NAMED}"
            ),
            "CPU manager",
        ),
        # kubernetes#95041
        (
            (
                "Jan 24 08:07:28 n kubelet[1]: F0124 08:07:28.168281  285886 kubelet.go:1371] "
                "Failed to start ContainerManager start cpu manager error: could not restore "
                f"state from checkpoint: {NAMED}, please drain this node and delete the CPU "
                'manager checkpoint file "/var/lib/kubelet/cpu_manager_state" before restarting '
                "Kubelet"
            ),
            "CPU manager",
        ),
        # kubernetes#109766: without the time
        (
            '29867 server.go:292] "Failed to run kubelet" err='
            + json.dumps(
                f"failed to run Kubelet: {RESERVED} determined by Node Allocatable feature"
            ),
            "memory manager",
        ),
        # FootprintAI/Containarium#1456: without time and bracket, and with a broken line
        (
            (
                'kubelet.go:1688 "Failed to start ContainerManager" err="invalid Node '
                "Allocatable configuration."
            ),
            "kubelet",
        ),
        # siderolabs/talos#7504
        (
            "10.0.0.9: "
            + json.dumps(
                {
                    "ts": 1690001513203.121,
                    "caller": "kubelet/kubelet.go:1480",
                    "msg": "Failed to start ContainerManager",
                    "err": f"start cpu manager error: could not restore state from checkpoint: "
                    f"{NAMED}, please drain this node and delete the CPU manager checkpoint file "
                    '"/var/lib/kubelet/cpu_manager_state" before restarting Kubelet',
                },
                separators=(",", ":"),
            ),
            "CPU manager",
        ),
    ],
)
def test_lines_of_public_reports_are_read(line, component):
    [words] = failed_starts(line)
    error = meaning_of_start(words)
    assert error is not None
    assert error.message.component == component


def test_starts_that_fail_for_the_same_words_are_counted():
    lines = [
        ended(
            CPUS_CHANGED,
            "Static policy invalid state, please drain node and remove policy state file",
        ),
        ended(CPUS_CHANGED, "Policy start error", "cpu_manager.go"),
        ended(f"start cpu manager error: {CPUS_CHANGED}"),
    ]
    [failed] = failed_starts(*lines * 3).values()
    assert (failed.count, failed.started_since) == (3, False)

    [failed] = failed_starts(*lines, f'{HEAD} kubelet.go:1] "SyncLoop ADD" source="api"').values()
    assert failed.started_since


def test_other_programs_that_fail_are_not_kubelets():
    hello = f'{HEAD} kubelet.go:1] "Hello"'
    assert not failed_starts(hello, ended("listen: address in use", "command failed", "run.go"))
    assert failed_starts(hello, ended("failed to run Kubelet: swap", "command failed", "run.go"))


@pytest.mark.parametrize(
    ("difference", "sentence", "repair"),
    [
        (
            (
                'resource="memory" field="TotalMemSize" node=2 TotalMemSize1=135233794048 '
                "TotalMemSize2=135277490176"
            ),
            "NUMA node 2 has 126.0Gi of memory, and had 125.9Gi when the file was written",
            "there is no setting to put back",
        ),
        (
            (
                'resource="hugepages-2Mi" field="TotalMemSize" node=0 TotalMemSize1=1048576 '
                "TotalMemSize2=2097152"
            ),
            "NUMA node 0 has 2Mi of hugepages-2Mi, and had 1Mi",
            "set the hugepages back",
        ),
        (
            'node=1 resource="memory" field="SystemReserved" SystemReserved1=1 SystemReserved2=2',
            "of NUMA node 1, 2 of memory is reserved, and 1 was",
            "set reservedMemory back",
        ),
        (
            'field="TotalMemSize" TotalMemSize1=1073741825 TotalMemSize2=1073741826',
            "a NUMA node has 1073741826 bytes of memory, and had 1073741825 bytes",
            "delete the file",
        ),
        ('field="TotalMemSize"', "", ""),
    ],
)
def test_what_differs_of_the_memory_is_told(difference, sentence, repair):
    message = "Memory states for the NUMA node and resource are different"
    [failed] = failed_starts(
        f'{HEAD} policy_static.go:718] "{message}" {difference}',
        ended(f"start memory manager error: {OTHER_MEMORY}"),
    ).values()
    assert sentence in failed.difference
    assert repair in failed.repair
    assert bool(failed.difference) == bool(sentence)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('"Node state didn\'t have node ID" nodeID=3', "the machine has no NUMA node 3"),
        (
            '"Node states were different" lengthNode1=2 lengthNode2=4',
            "the machine has 4 NUMA nodes, and the file 2",
        ),
        (
            (
                '"NUMA node and resource had different memory states" node=0 resource="memory" '
                'field="free" free1=1024 free2=2048'
            ),
            "NUMA node 0 has 1Ki of memory free in the file, and 2Ki by its containers",
        ),
    ],
)
def test_what_differs_of_the_nodes_is_told(line, sentence):
    [failed] = failed_starts(
        f"{HEAD} policy_static.go:7] {line}", ended(f"start memory manager error: {OTHER_MEMORY}")
    ).values()
    assert sentence in failed.difference
    assert "delete the file" in failed.repair


@pytest.mark.parametrize("fields", ['field="Other" Other1=1 Other2=2', 'field="TotalMemSize"'])
def test_a_difference_that_does_not_tell_is_not_that_of_a_later_start(fields):
    differs = f'{HEAD} policy_static.go:718] "Node states were different" %s'
    ends = ended(f"start memory manager error: {OTHER_MEMORY}")
    [failed] = failed_starts(
        differs % fields, ends, differs % "lengthNode1=2 lengthNode2=4", ends
    ).values()
    assert (failed.count, failed.difference) == (
        2,
        "the machine has 4 NUMA nodes, and the file 2",
    )


def test_as_many_containers_as_one_likes_are_looked_up_each_at_once() -> None:
    """To look through all for each took time that grew with the square: 30,000 took 20 seconds."""
    compared = []

    class Name(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            compared.append(other)
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    reading = log._Reading("")  # the names are ours
    for number in range(200):
        values = {"pod": "a/b", "containerName": f"c{number}"}
        decision = reading._current(values)
        decision.container = Name(decision.container)
        decision.best = LoggedHint(1, preferred=False)

    assert len(reading._decisions) == 200
    assert len(compared) <= 400


@pytest.mark.parametrize("score", ["1e999", "-1e999", "NaN", '"a"', "{}"])
def test_a_score_that_is_no_number_of_a_kubelet_is_passed_over(score: str) -> None:
    head = "I1127 10:00:00.000000       1 scope_container.go:100] "
    hint = f'{{"NUMANodeAffinity":1,"Preferred":true,"Score":{score}}}'
    line = f'{head}"TopologyHints" pod="a/b" containerName="c" hints={{"cpu":[{hint}]}}\n'
    assert not read_log([line.encode()], "LOG").refusals
