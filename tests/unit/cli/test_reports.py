"""Public reports of refused, misplaced or crashing pods, rebuilt small.

Each is answered as it was resolved.

The files of a report are in `tests/reports/k8s`; its issue is in a comment.
"""

from __future__ import annotations

from pathlib import Path

import pytest

REPORTS = Path(__file__).parents[2] / "reports/k8s"

CASES = [
    # kubernetes#84597: by design, preferred is judged against an empty node
    (
        "explain 01-restricted-fragmented --node root new.json",
        1,
        ["refused: TopologyAffinityError", "remove pod d/a"],
    ),
    (
        "explain 01-restricted-fragmented --node root new.json",
        1,
        ["topologyManagerPolicy best-effort: it would run on"],
    ),
    # bottlerocket#4754
    (
        "admit 03-reserved-hugepages -c kubelet.yaml pod.json",
        2,
        ['the total amount "10Mi" of type "hugepages-2Mi" is not equal to the value "0"'],
    ),
    (
        "node-check 03-reserved-hugepages --node root",
        1,
        ['"0" determined by Node Allocatable feature'],
    ),
    (
        "node-restart 03-reserved-hugepages --node root",
        1,
        ["the kubelet does not start", "repair: correct reserved"],
    ),
    # kubernetes#129078
    (
        "node-restart 04-smt-restart --node root --kubelet-version 1.36",
        1,
        ["SMTAlignmentError", "comes again, it is adm"],
    ),
    ("node-restart 04-smt-restart --node root --kubelet-version 1.37", 0, ["d/api", "stays"]),
    # kubernetes#131610
    ("admit 05-uncore-odd -c kubelet.yaml --kubelet-version 1.34 pod7.json", 0, ["9-15"]),
    (
        "admit 05-uncore-odd -c kubelet.yaml --kubelet-version 1.33 --lenient pod7.json",
        0,
        ["0-5,9"],
    ),
    (
        "explain 05-uncore-odd -c kubelet.yaml --kubelet-version 1.33 --lenient pod7.json",
        0,
        ["its 7 CPUs are in more L3 caches than they need (1 more)", "ask for 8 cpu instead of 7"],
    ),
    # kubevirt/user-guide#745
    (
        "explain 06-kubevirt-emulator -c kubelet.yaml virt-launcher.yaml",
        1,
        ["SMTAlignmentError", "ask for whole cores: 4 cpu instead of 3", "without full-pcpus-only"],
    ),
    # kubernetes#123530
    (
        "explain 07-sidecar-guaranteed -c kubelet.yaml --devices devices.json pod.json",
        0,
        [
            "NUMA node 1 (side)",
            "request 1900m cpu instead of 2 in container 'side', which then shares CPUs",
        ],
    ),
    # pytorch/ci-infra#696
    (
        "explain 08-h100-fragmented -c kubelet.yaml --devices devices.json pods.json",
        1,
        ["no NUMA node has 4 nvidia.com/gpu free (at most 3)", "remove pod d/one-b"],
    ),
    # kubevirt#17248
    ("admit 13-kubevirt-two-nodes -c kubelet.yaml pod.json", 0, ["0,1", "1-12,14-27,29-40,42-55"]),
    # kubernetes#109766
    (
        "admit 14-memory-hugepages-one-node -c kubelet.yaml --devices devices-null.json pod.json",
        0,
        ["admitted"],
    ),
    (
        "explain 14-memory-hugepages-one-node -c kubelet.yaml --devices devices.json pod.json",
        1,
        ["let the device plugin of intel.com/amazon_ena report no NUMA nodes (excludeTopology)"],
    ),
    # kubernetes#83311
    (
        "explain 17-single-numa-12 -c kubelet.yaml pod.yaml",
        1,
        [
            "no NUMA node has 12 cpu (at most 10)",
            "topologyManagerPolicy restricted: it would run on NUMA nodes 0+1",
        ],
    ),
    # kubernetes#104147
    ("admit 19-strict-reservation -c kubelet.yaml pod.json", 0, ["shared pool: CPUs 2-7"]),
    ("admit 19-strict-reservation -c kubelet-off.yaml pod.json", 0, ["shared pool: CPUs 0-7"]),
    (
        "admit 19-strict-reservation -c kubelet.yaml --kubelet-version 1.31 pod.json",
        2,
        ['unknown CPU Manager Policy option: "strict-cpu-reservation"'],
    ),
    # kubernetes#106270
    (
        "explain 22-best-effort-dpdk -c kubelet.yaml --devices devices.json pods.json",
        0,
        [
            "prefers NUMA node 0, cpu prefers NUMA node 1",
            "(excludeTopology): it would run on NUMA node 1, with",
        ],
    ),
    # kubernetes#125579, squat/generic-device-plugin#33 and #63, project-akri/akri#849
    (
        "node-restart 51-reboot-devices --node root --reboot",
        1,
        [
            "after the reboot",
            "no healthy devices present; cannot allocate unhealthy devices squat.ai/serial",
            "wait until the device plugin has registered",
            "then delete the rejected pod, which stays Failed",
        ],
    ),
    ("node-restart 51-reboot-devices --node root", 0, ["stays"]),
    # kubernetes#131253, #109996
    (
        "node-restart 52-reboot-memory --node root --reboot --kubelet-version 1.32",
        1,
        ["memory_manager_state", "nothing is to be drained"],
    ),
    # kubernetes/website#31721
    (
        "node-restart 26-policy-changed --node root",
        1,
        [
            'configured policy "static" differs from state checkpoint policy "none"',
            "delete the file",
        ],
    ),
    # kubernetes#84333
    (
        "node-check 27-cpus-added --node root",
        1,
        [
            'available CPUs "0-7" doesn\'t match with CPUs in state "0-3"',
            "repair: drain the node, stop the kubelet",
        ],
    ),
    ("node-restart 29-edited-state --node root", 1, ["could not restore state from checkpoint"]),
    # kubernetes#117955
    (
        "explain 35-failed-list -c kubelet.yaml pods.json",
        1,
        ["no NUMA node has 4 cpu free (at most 3)"],
    ),
    # kubernetes#112234: devices with a topology of no NUMA node; up to 1.25 a kubelet took them for
    # none at all
    (
        "explain 41-plugin-of-no-node --log kubelet.log",
        1,
        [
            "(single-numa-node, scope container)",
            "device plugin may name no NUMA node that is there",
            "the logged hints merge to the same",
        ],
    ),
    (
        "explain 41-plugin-of-no-node -c kubelet.json --devices devices.json pod.json",
        0,
        ["d/demo admitted"],
    ),
    # telco-reference#930
    (
        "explain 42-database-of-one-cpu --log kubelet.log",
        1,
        [
            "full-pcpus-only gives whole cores only: multiples of 2 CPUs",
            "not in the log: the hints",
        ],
    ),
    (
        "explain 42-database-of-one-cpu -c kubelet.json pod.json",
        1,
        ["ask for whole cores: 2 cpu instead of 1"],
    ),
    # kubernetes#128708
    (
        "explain 43-memory-of-both-nodes --log kubelet.log",
        1,
        [
            "UnexpectedAdmissionError",
            "failed to find NUMA nodes to extend",
            "best hint in the log: NUMA node 0; the logged hints merge to",
        ],
    ),
    (
        "explain 43-memory-of-both-nodes -c kubelet.json --kubelet-version 1.31 pods.json",
        1,
        [
            "d/wide refused: UnexpectedAdmissionError",
            "NUMA node 0 can only be used by itself while d/small holds memory",
            "after draining the node and deleting /var/lib/kubelet/memory_manager_state",
        ],
    ),
    # kubernetes#120733: each fits into a NUMA node, but for what is reserved on one of them
    (
        "explain 44-two-of-85-gib -c kubelet.json pods.json",
        1,
        [
            "d/two refused: UnexpectedAdmissionError",
            "87Gi asked, free: 85.9Gi on NUMA node 0",
            "remove pod d/one",
        ],
    ),
    # kubernetes#123816
    (
        "explain 45-init-on-the-other-node -c kubelet.json pods.json",
        1,
        [
            "d/second refused: TopologyAffinityError",
            "it must reuse CPU 35 of init container 'init' on NUMA node 0",
            "topologyManagerScope pod: it would run on NUMA node 1",
        ],
    ),
    # kubernetes#140495
    (
        "explain 46-hybrid-cores -c kubelet.json pod.json",
        0,
        [
            "gives CPUs twice: container 'c' gets CPUs 0",
            "whole cores reserved: reservedSystemCPUs 0-1",
        ],
    ),
    # kubernetes#132187: preferred is judged against the empty machine, of which no CPU is reserved
    (
        "explain 47-one-reserved-on-each-node -c kubelet.json --devices devices.json pod.json",
        1,
        ["span more NUMA nodes than it needs on an empty machine", "cpu 112 -> 105"],
    ),
    # kubernetes#124066
    (
        "explain 48-sibling-offline -c kubelet.json pod.json",
        0,
        [
            "gives CPUs twice: container 'c' gets CPUs 25",
            "whole cores reserved: reservedSystemCPUs 24-25,47,72-73",
        ],
    ),
    # kubernetes#138495
    (
        "explain 49-containers-of-one-pod -c kubelet.json --devices devices.json pod.json",
        1,
        ["d/p refused: UnexpectedAdmissionError", "container 'wide'"],
    ),
    # kubernetes#112228
    (
        "explain 50-cpus-left-by-init -c kubelet.json pods.json",
        1,
        [
            "d/p2 admitted",
            "d/p3 refused: UnexpectedAdmissionError",
            "container 'init': not enough cpu is free",
        ],
    ),
]
"""The command line, the status, and parts of the output.

A command line is the command, the report and further words, its files among them.
"""


def run(alignup, line: str):
    command, report, *arguments = line.split()
    folder = REPORTS / report
    named = [str(folder / word) if (folder / word).exists() else word for word in arguments]
    machine = () if "--log" in arguments else ("-m", folder / "machine.json")
    return alignup(*command.split("-"), *machine, *named)


@pytest.mark.parametrize(("line", "status", "parts"), CASES)
def test_a_report_is_answered_as_it_was_resolved(alignup, line, status, parts):
    ended = run(alignup, line)
    complaints = ended.out + ended.err
    assert ended.status == status, complaints
    assert [part for part in parts if part not in complaints] == [], complaints


def test_no_change_is_suggested_that_does_not_hold_while_pods_keep_their_cpus(alignup):
    """Under restricted the pod is refused as before.

    Both pods keep their CPUs over the restart.
    """
    text = run(alignup, "explain 32-suggested-policy --node root new.json").out
    assert "topologyManagerPolicy best-effort" in text
    assert "restricted" not in text


@pytest.mark.parametrize(
    ("root", "status"), [("r-restricted", 1), ("r-best-effort", 0), ("r-none", 0)]
)
def test_a_restarted_kubelet_decides_as_was_suggested(alignup, root, status):
    report = REPORTS / "32-suggested-policy"
    node = report / root
    config = node / "var/lib/kubelet/config.yaml"
    options = ("-m", report / "machine.json", "--node", node, "-c", config)
    assert alignup("admit", *options, report / "new.json").status == status


def test_the_cpus_of_a_file_are_not_brought_back_where_the_machine_has_more(alignup):
    assert "bring the CPUs back" not in run(alignup, "node-check 27-cpus-added --node root").out
