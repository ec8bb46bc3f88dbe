"""What platforms reserve themselves."""

from __future__ import annotations

import pytest

from alignup.errors import AlignupWarning, ConfigError
from alignup.kubernetes.kubelet_config import load_config
from alignup.kubernetes.platform_reservations import with_platform_reservation
from alignup.kubernetes.versions import read_table
from alignup.machine.machine import Machine

GIB = 1 << 30
STATIC = {"cpuManagerPolicy": "static"}


def machine(cpus, memory=64 * GIB):
    """Return a machine of one NUMA node, whose kernel number is 1."""
    cores = [{"cpus": [cpu], "socket": 0} for cpu in range(cpus)]
    return Machine.from_dict({"numaNodes": [{"id": 1, "memory": memory, "cores": cores}]})


def test_amounts_are_said_for_people():
    fields = {**STATIC, "memoryManagerPolicy": "Static"}
    words = r"reserves 70m CPU, 1\.8Gi of memory and 2\.4Gi on NUMA node 1 for the memory manager "
    with pytest.warns(AlignupWarning, match=words):
        with_platform_reservation(fields, "Deckhouse", "f", machine(8))


def completed(fields, platform, node):
    """Return the fields after their only warning."""
    with pytest.warns(AlignupWarning, match=f"^f is a part of a configuration: {platform} itself"):
        return with_platform_reservation(fields, platform, "f", node)


@pytest.mark.parametrize(
    ("platform", "cpus", "reserved"),
    [
        ("OpenShift", 96, {"cpu": "500m", "memory": str(GIB)}),
        ("OpenShift with autoSizingReserved", 4, {"cpu": "500m"}),
        ("OpenShift with autoSizingReserved", 96, {"cpu": "1200m"}),
        ("Talos", 2, {"cpu": "50m", "memory": str(384 << 20)}),
        ("EKS", 1, {"cpu": "60m"}),
        ("EKS", 2, {"cpu": "70m"}),
        ("EKS", 16, {"cpu": "110m"}),
        ("EKS", 96, {"cpu": "310m"}),
        ("EKS", 448, {"cpu": "1190m"}),
        ("GKE", 16, {"cpu": "110m", "memory": str(int(5611.52 * (1 << 20)))}),
        ("AKS", 1, {"cpu": "60m"}),
        ("AKS", 2, {"cpu": "100m"}),
        ("AKS", 4, {"cpu": "140m"}),
        ("AKS", 8, {"cpu": "180m"}),
        ("AKS", 16, {"cpu": "260m"}),
        ("AKS", 32, {"cpu": "420m"}),
        ("AKS", 64, {"cpu": "740m"}),
        ("Gardener", 8, {"cpu": "80m", "memory": str(GIB)}),
        ("Deckhouse", 8, {"cpu": "70m", "memory": str(int(1814.04 * (1 << 20)))}),
    ],
)
def test_what_platforms_reserve(platform, cpus, reserved):
    fields = completed(STATIC, platform, machine(cpus))
    assert fields == {**STATIC, read_table("platform_reservations")[platform]["field"]: reserved}


@pytest.mark.parametrize("platform", read_table("platform_reservations"))
def test_every_row_says_where_it_is_from(platform):
    row = read_table("platform_reservations")[platform]
    assert row["source"]
    assert row["field"] in {"kubeReserved", "systemReserved"}
    assert ("cpu" in row) != ("cpuSteps" in row)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"cpuManagerPolicy": "none"},
        {**STATIC, "reservedSystemCPUs": "0"},
        {**STATIC, "systemReserved": {"cpu": "2"}},
        {**STATIC, "systemReserved": "cpu=2"},
        {**STATIC, "evictionHard": 3},
    ],
)
def test_nothing_is_added_where_nothing_lacks(fields):
    assert with_platform_reservation(fields, "OpenShift", "f", machine(8)) == fields


def test_amounts_of_the_file_stay():
    fields = {**STATIC, "systemReserved": {"memory": "3Gi"}, "kubeReserved": {"cpu": "1"}}
    assert completed(fields, "OpenShift", machine(8)) == {
        **fields,
        "systemReserved": {"cpu": "500m", "memory": "3Gi"},
    }


def test_a_map_of_the_file_takes_the_place_of_talos_own():
    fields = {**STATIC, "systemReserved": {"memory": "3Gi"}}
    assert with_platform_reservation(fields, "Talos", "f", machine(8)) == fields


@pytest.mark.parametrize(("platform", "cpus"), [("AKS", 65), ("the provider of Karpenter", 4)])
def test_a_reservation_that_is_not_known_is_said(platform, cpus):
    message = f"is missing: {platform} makes it itself, .*--reserved-cpus CPUS gives it"
    with pytest.raises(ConfigError, match=message):
        with_platform_reservation(STATIC, platform, "f", machine(cpus))

    for node, lenient in ((None, False), (machine(cpus), True)):
        with pytest.warns(AlignupWarning, match=message):
            assert with_platform_reservation(STATIC, platform, "f", node, lenient=lenient) == STATIC


def test_memory_is_reserved_for_the_static_memory_manager():
    fields = {**STATIC, "kubeReserved": {"cpu": "1", "memory": "1Gi"}}
    fields["memoryManagerPolicy"] = "Static"
    total = GIB + (100 << 20)
    assert completed(fields, "GKE", machine(8))["reservedMemory"] == [
        {"numaNode": 1, "limits": {"memory": str(total)}}
    ]


def test_deckhouse_sets_the_threshold_too():
    fields = completed({**STATIC, "memoryManagerPolicy": "Static"}, "Deckhouse", machine(8))
    threshold = int(64 * GIB * 0.01)
    total = int(fields["systemReserved"]["memory"]) + threshold
    assert fields["evictionHard"] == {"memory.available": str(threshold)}
    assert fields["reservedMemory"] == [{"numaNode": 1, "limits": {"memory": str(total)}}]


def test_without_a_platform_the_kubelets_own_words_stay():
    assert load_config("cpuManagerPolicy: static", "f", machine=machine(4)).reserved_cpu_count == 0


def test_memory_of_openshift_counts_beside_its_own_cpus():
    fields = {
        **STATIC,
        "memoryManagerPolicy": "Static",
        "systemReserved": {"cpu": "2"},
        "reservedMemory": [{"numaNode": 1, "limits": {"memory": "1124Mi"}}],
    }
    reserved = completed(fields, "OpenShift", machine(8))["systemReserved"]
    assert reserved == {"cpu": "2", "memory": str(GIB)}


@pytest.mark.parametrize("eviction", ["100Mi", None])
def test_memory_that_is_not_known_is_what_the_reserved_memory_implies(eviction):
    fields = {
        **STATIC,
        "memoryManagerPolicy": "Static",
        "systemReserved": {"memory": "1Gi"},
        "reservedMemory": [
            {"numaNode": 1, "limits": {"memory": "1124Mi"}},
            {"numaNode": 2, "limits": {"memory": "2Gi"}},
        ],
    }
    if eviction is not None:
        fields["evictionHard"] = {"memory.available": eviction}

    assert completed(fields, "EKS", machine(8))["kubeReserved"] == {
        "cpu": "90m",
        "memory": str(2 * GIB),
    }


OPENSHIFT = """
kind: KubeletConfig
spec:
  kubeletConfig: {cpuManagerPolicy: static, topologyManagerPolicy: single-numa-node}
"""


def test_a_text_is_completed_and_reserved_cpus_win():
    with pytest.warns(AlignupWarning, match="OpenShift itself reserves 500m CPU and 1Gi of memory"):
        config = load_config(OPENSHIFT, "f", machine=machine(4))
    assert config.reserved_cpu_count == 1

    config = load_config(OPENSHIFT, "f", machine=machine(4), reserved_cpus="0-1")
    assert str(config.reserved_system_cpus) == "0-1"
