"""What people paste into public reports, and what they ask next, rebuilt small.

The files of a report are in `tests/reports/asked`; its issue is in a comment. Configurations of
platforms and lists of devices have tests of their own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

REPORTS = Path(__file__).parents[2] / "reports/asked"

UNKNOWN_MEMORY = "as far as CPUs go; {} memory unknown here (`numactl -H`)"

CASES = [
    # libxsmm#737
    ("01-a64fx-lscpu machine -m machine.txt", 0, ["4 NUMA nodes", "48 CPUs"]),
    # sglang#18520
    ("03-lscpu-empty-node machine -m machine.txt", 0, ["1 NUMA node,", "there is one NUMA node"]),
    ("03-lscpu-empty-node machine -m e.txt", 0, ["1 NUMA node,", "there is one NUMA node"]),
    # dask-cuda#1381
    (
        "06-topo-blank-affinity admit -m machine.txt -c kubelet.yaml pod2.yaml",
        1,
        ["p2 refused: TopologyAffinityError", "1 on NUMA node 0, 1 on NUMA node 1"],
    ),
    # ROCm#4740
    (
        "11-rocm-smi admit -m machine.txt -c kubelet.yaml pod.yaml",
        1,
        ["refused: TopologyAffinityError", "4 on NUMA node 0, 4 on NUMA node 1"],
    ),
    # rocm-systems#9244
    ("12-amd-smi-numa split 8 -m machine.txt -d amd.com/gpu=1", 0, ["84-95,180-191", "GPU7"]),
    (
        "12-amd-smi-numa admit -m machine.txt -c kubelet.yaml pod.yaml",
        1,
        ["refused: TopologyAffinityError", "4 on NUMA node 0, 4 on NUMA node 1"],
    ),
    # learning-kubernetes#65
    (
        "16-three-static-pods explain -m machine.txt -c flags.txt pods.yaml",
        1,
        ["debug2 admitted", UNKNOWN_MEMORY.format("1Gi"), "ask for 8 cpu instead of 10"],
    ),
    # volcano#2861
    ("17-volcano-job admit -m machine.txt -c flags.txt job.yaml", 0, ["vj-test-1 admitted"]),
    (
        "17-volcano-job admit -m machine.txt -c flags.txt kinds.yaml",
        1,
        ["and 1 more pod alike: lws-1\n", "and 1 more pod alike: ro\n"],
    ),
    # k8s-snap#1879
    (
        (
            "21-pods-on-reserved explain -m machine.txt -c flags.txt --kubelet-version 1.32 "
            "coredns.yaml"
        ),
        0,
        ["the reserved 0-9,64-74 included", "strict-cpu-reservation", "(alpha in 1.32"],
    ),
    ("21-pods-on-reserved admit -m machine.txt -c charm.yaml coredns.yaml", 2, ["configz"]),
    # kubernetes#131253, kubernetes#109996
    (
        "22-memory-after-reboot node check --node root -m machine.json --kubelet-version 1.32",
        1,
        ["differs a little from boot to boot", "repair: drain the node, stop the kubelet, delete"],
    ),
    (
        "22-memory-after-reboot explain --log kubelet.log",
        1,
        ["does not start (memory manager)", "there is no setting to put back"],
    ),
    # kubernetes#140031
    (
        "24-resize-gate explain --node root -m machine.json --resize resized.json",
        0,
        ["keeps its 1 exclusive CPU (1), and does not get the 2", "delete the pod and create it"],
    ),
    (
        "24-resize-gate explain --node root -m machine.json --resize resized.json -c gate-off.json",
        1,
        ["Infeasible", "delete the pod and create it"],
    ),
    (
        "24c-resize-memory explain --node root -m machine.json --resize resized.json",
        0,
        ["stays pinned to NUMA node 0 with its 8Gi"],
    ),
    (
        (
            "24c-resize-memory explain --node root -m machine.json --resize resized.json "
            "-c gate-off.json"
        ),
        1,
        ["Infeasible"],
    ),
    # kubernetes#113537
    (
        "25-half-cores-reserved explain -m machine.json -c kubelet.json pods.json --managers-only",
        1,
        ["SMTAlignmentError", "cores with a reserved CPU do not count", "eight admitted"],
    ),
    # kubernetes#125579
    (
        "26-reboot-devices node restart --node root -m machine.json --reboot",
        1,
        ["no healthy devices present"],
    ),
    # kubernetes#139982
    (
        (
            "27-dra-sriov-other-node explain -m machine.json -c kubelet.json -r resources.json "
            "pod.json --tables none"
        ),
        0,
        ["but not aligned with its claims: it is on NUMA node 1"],
    ),
    (
        (
            "27-dra-sriov-other-node explain -m machine.json -c kubelet.json -r resources.json "
            "pod.json --dra-hints"
        ),
        1,
        ["reservedSystemCPUs 4", "ask for 3 cpu instead of 4", "topologyManagerPolicy best-effort"],
    ),
    (
        (
            "27-dra-sriov-other-node explain -m machine.json -c "
            "kubelet.json --devices devices.json plugin-pod.yaml"
        ),
        1,
        ["reservedSystemCPUs 4: it would run on NUMA node 0, fully aligned"],
    ),
    (
        (
            "27b-dra-hints-held explain -m machine.json -c "
            "kubelet.json -r resources.json --dra-hints pods.json --pod default/virt-launcher-vm"
        ),
        1,
        ["1. remove pod default/other"],
    ),
    # dra-driver-cpu#114
    (
        (
            "28-dra-list-pcieroot claims -r resources.json --node-object node.json --release 1.37 "
            "claim.json"
        ),
        1,
        ["pci0000:80: cpu 0 of 1", "turn on the feature gate DRAListTypeAttributes"],
    ),
    (
        (
            "28-dra-list-pcieroot claims -r resources.json --node-object node.json --release 1.37 "
            "--feature-gate DRAListTypeAttributes=true claim.json"
        ),
        0,
        ["allocated"],
    ),
    (
        (
            "28-dra-list-pcieroot claims -r resources.json --node-object node.json --release 1.35 "
            "--feature-gate DRAListTypeAttributes=true claim.json"
        ),
        2,
        ["unrecognized feature gate: DRAListTypeAttributes", "1.36 has it"],
    ),
    # k8s-gpu-dra-driver#92
    *(
        (
            (
                "30-dra-vendor-numa admit -m machine.json -c kubelet.json "
                f"-r resources-{driver}.json pod.json"
            ),
            0,
            [sentence],
        )
        for driver, sentence in {
            "amd": "the devices are not aligned",
            "bare": "the devices are not aligned",
            "cpu": "the devices are not aligned",
            "dranet": "the devices are not aligned",
            "nvidia-list": "the devices are not aligned",
            "intel": "the devices may or may not be aligned",
        }.items()
    ),
    # mpibind#45
    (
        (
            "33-mi300a-cpx split 4 -m root.tar.xz -d amd.com/gpu=1 "
            "--device-resource amd.com/gpu=1002:*,class=12 --env"
        ),
        0,
        [f"ROCR_VISIBLE_DEVICES={number}\n" for number in (0, 6, 12, 18)],
    ),
    # sonar#450
    ("35-no-distance-file machine -m root.tar.xz", 0, ["1 NUMA node, 2 sockets"]),
    # tp-libvirt#883
    ("37-power-smt-off machine -m machine.txt", 0, ["20 cores, 20 CPUs", "512Gi memory"]),
    # util-linux#950
    ("38-hex-lscpu machine -m machine.txt", 2, ["0xffff000000000000ffff"]),
    # rke2#4775
    *(
        (
            f"40-strict-empty-pool {command} -m machine.json -c strict.json pods.json {option}",
            0,
            ["the shared pool is empty", "default cpuset cannot be empty"],
        )
        for command, option in (
            ("admit", ""),
            ("admit", "--json"),
            ("explain", ""),
            ("explain", "--json"),
            ("explain", "--tables none"),
        )
    ),
    # kubernetes#84333, lokomotive#1578
    (
        "42-start-logs explain --log cpus-added.log",
        1,
        ["the kubelet does not start (CPU manager)", "delete the file"],
    ),
    (
        "42-start-logs explain --log no-reservation.log",
        1,
        ["the kubelet does not start (CPU manager)", "set reservedSystemCPUs"],
    ),
    # generic-device-plugin#33
    ("43-events explain --log kubelet.log", 1, ["no healthy devices present"]),
    ("43-events explain --log unavailable.log", 1, ["1 asked, 0 free"]),
    ("43-events explain describe.txt", 2, ["UnexpectedAdmissionError", "kubectl get pod zigbee-"]),
    # dra-driver-nvidia-gpu#738
    *(
        (
            (
                f"45-dra-extended-resource {command} -m machine.json -c kubelet.json "
                f"-r resources.json {pod}"
            ),
            status,
            [part],
        )
        for command in ("admit", "explain")
        for pod, status, part in (
            ("pod6.json", 1, "asks for 6 of class gpu.nvidia.com; of 4 devices: 4 free"),
            ("pod2.json", 0, "gpu-1, NUMA node 0"),
        )
    ),
    # kubernetes#110306: the CPU of the init container is used again, on the other NUMA node
    (
        "60-init-cpu-reused explain -m machine.txt -c kubelet.yaml pods.yaml",
        1,
        ["it must reuse CPU 3 of init container", "topologyManagerScope pod"],
    ),
    # kubernetes#128669
    (
        "61-memory-of-two-nodes explain -m machine.txt -c flags.txt pods.yaml",
        2,
        ['"2Gi" of type "memory" is not equal to the value "2148Mi"'],
    ),
    (
        "61-memory-of-two-nodes explain -m machine.txt -c flags2.txt pods.yaml",
        1,
        ["9Gi memory needs 2 NUMA nodes", "ask for 8Gi memory instead of 9Gi"],
    ),
    # talos#9121: a virtual machine, whose GPUs are near all NUMA nodes
    ("62-gpus-near-both-nodes admit -m machine.txt -c talos.yaml pod.yaml", 0, ["gpu admitted"]),
    (
        "62-gpus-near-both-nodes admit -m machine.txt -c talos.yaml pod2.yaml",
        1,
        ["as far as CPUs and nvidia.com/gpu go; 64Gi memory and 4 rdma/ib unknown here"],
    ),
    # kubernetes#102073
    (
        "63-lowercase-memory-policy admit -m machine.txt -c flags.txt pod.yaml",
        2,
        ["expected one of None, Static, got 'static'"],
    ),
    ("63-lowercase-memory-policy admit -m machine.txt -c flags2.txt pod.yaml", 0, ["1Gi @ 0"]),
    # kubernetes#84869
    ("64-table-of-pods explain table.txt", 2, ["27dzq: Topology Affinity Error", "-o yaml"]),
    # gpu-manager#37
    (
        "65-described-pod explain describe.txt",
        2,
        ["UnexpectedAdmissionError", "Nvidia node mismatch for pod"],
    ),
    # kubernetes#114797
    (
        "66-pod-scope-odd-cpus explain -m machine.txt -c flags.txt pod.yaml",
        2,
        ["greater than zero", "--reserved-cpus gives them"],
    ),
    (
        "66-pod-scope-odd-cpus explain -m machine.txt -c flags2.txt pod.yaml",
        1,
        ["3 cpu need 2 NUMA nodes, 400Mi memory needs 1", "topologyManagerScope container"],
    ),
    # performance-addon-operators#160
    (
        (
            "67-reserved-near-devices explain -m machine.txt -c pp.yaml --devices devices.json "
            "pod.yaml"
        ),
        1,
        ["no NUMA node has 8 cpu (at most 6)", "1. configure the kubelet with other CPUs reserved"],
    ),
    # volcano#2892
    (
        "68-wrapped-numactl explain -m machine.txt -c kubelet.yaml pods.yaml",
        1,
        ["two admitted", "three refused: TopologyAffinityError", "remove pod default/one"],
    ),
    (
        "68-wrapped-numactl node check --node root -m machine.txt",
        1,
        ["the text is truncated", "delete the file"],
    ),
    # talos#7504
    (
        "69-talos-log explain --log talos.log",
        1,
        ["the kubelet's policy is static, and the file was written under none", "delete the file"],
    ),
    ("69-talos-log admit -m machine.txt -c talos.yaml pods.yaml", 1, ["Talos itself reserves"]),
    # rancher#32783
    ("70-rancher-policy-changed explain --log docker.log", 1, ["the file was written under none"]),
    (
        "70-rancher-policy-changed admit -m machine.txt -c rancher.yaml pods.yaml",
        1,
        ["two admitted", "three refused"],
    ),
    # bottlerocket#1465
    ("71-bottlerocket-log explain --log kubelet.log", 1, ["the file was written under none"]),
]
"""The command line, the status, and parts of the output.

A command line is the report, the command and further words, its files among them.
"""


@pytest.mark.parametrize(("line", "status", "parts"), CASES)
def test_what_was_asked_is_answered(alignup, line, status, parts):
    report, *words = line.split()
    folder = REPORTS / report
    ended = alignup(*(str(folder / word) if (folder / word).exists() else word for word in words))
    text = ended.out + ended.err
    assert ended.status == status, text
    assert [part for part in parts if part not in text.replace('\\"', '"')] == [], text
