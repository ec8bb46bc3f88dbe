"""Configurations as people have them, from many platforms: a pod of 50 CPUs on nodes of 48.

Rebuilt small from public reports (bottlerocket#4750, eksctl#795, deckhouse#7199,
karpenter-provider-aws#2271, karpenter#1518, kubernetes#114673, crc-org/snc#382) and from the
documentation of the platforms. Each sets single-numa-node, so the pod is refused, unless its line
says otherwise.
"""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "reports/configurations"
INPUTS = {"machine.txt", "pod.yaml"}

REFUSED = "refused: TopologyAffinityError"
OPENSHIFT = "OpenShift itself reserves 500m CPU and 1Gi of memory"
EKS = "EKS itself reserves 310m CPU"
MISSING = "--reserved-cpus CPUS gives it"
NO_CPU = "greater than zero"

# By file the status and parts of what is said; others: 1, and the refusal alone.
OTHERS = {
    "aks-linuxkubeletconfig.json": (2, ["AKS makes it itself", MISSING]),
    "aks-nodepool.json": (2, ["passed over in", "'count', 'vmSize'", MISSING]),
    "deckhouse-misspelt.yaml": (2, ["'topologyManager.polcy' of NodeGroup worker may decide"]),
    "deckhouse.yaml": (1, ["Deckhouse itself reserves 1124Mi on NUMA node 0", REFUSED]),
    "ec2nodeclass-al2023.yaml": (1, [EKS, REFUSED]),
    "eks-nodeconfig.yaml": (1, [EKS, REFUSED]),
    "eksctl-bottlerocket.yaml": (1, [EKS, REFUSED]),
    "gke-computeclass.yaml": (1, ["GKE itself reserves 310m CPU", REFUSED]),
    "gke.yaml": (1, ["scope pod", "memory manager Static", REFUSED]),
    "machineconfig-unit.yaml": (1, ["cpu=${SYSTEM_RESERVED_CPU}", OPENSHIFT, REFUSED]),
    "main.tf": (2, ["proxy/configz"]),
    "openshift-kubeletconfig.yaml": (1, [OPENSHIFT, REFUSED]),
    "reservedCpus.yaml": (2, ["reservedSystemCPUs is", NO_CPU]),
    "rke2.yaml": (2, [NO_CPU]),
    "shoot.yaml": (0, ["Gardener itself reserves 80m CPU", "admitted"]),
    "talos.yaml": (1, ["Talos itself reserves 50m CPU", REFUSED]),
    "talos-excerpt.yaml": (1, ["Talos itself reserves 50m CPU", REFUSED]),
}


def names():
    return sorted(path.name for path in FOLDER.iterdir() if path.name not in INPUTS)


def admit(alignup, name, *options):
    machine, pod = FOLDER / "machine.txt", FOLDER / "pod.yaml"
    return alignup("admit", "-m", machine, "-c", FOLDER / name, *options, pod)


@pytest.mark.parametrize("name", names())
def test_a_configuration_is_read_or_refused_with_the_way_out(alignup, name):
    status, parts = OTHERS.get(name, (1, [REFUSED]))
    ended = admit(alignup, name)
    text = ended.out + ended.err

    assert ended.status == status, text
    assert [part for part in parts if part not in text] == [], text
    assert (name in OTHERS) or "is a part of a configuration" not in text


@pytest.mark.parametrize("name", [*sorted(OTHERS)[:2], "rke2.yaml", "openshift-kubeletconfig.yaml"])
def test_reserved_cpus_are_the_way_out(alignup, name):
    ended = admit(alignup, name, "--reserved-cpus", "0-1")
    assert (ended.status, REFUSED in ended.out) == (1, True)
    assert "46 on NUMA node 0" in ended.out
    assert "itself" not in ended.err
