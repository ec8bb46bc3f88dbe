"""A PerformanceProfile becomes what OpenShift's operator makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from alignup.errors import AlignupWarning, InputError
from alignup.kubernetes.config_documents import configuration_fields
from alignup.kubernetes.performance_profile import kubelet_of_profile

FORMATS = Path(__file__).parents[2] / "reports" / "k8s" / "00-formats"
SNIPPET = "kubeletconfig.experimental"
ANNOTATION = f"the annotation {SNIPPET} of p"

RESERVES = {
    "evictionHard": {"memory.available": "100Mi"},
    "kubeReserved": {"memory": "500Mi"},
    "systemReserved": {"memory": "500Mi"},
}

MEMORY = [{"numaNode": 0, "limits": {"memory": str(1100 << 20)}}]


@pytest.mark.parametrize(
    ("spec", "annotations", "fields"),
    [
        ({}, {}, {**RESERVES, "topologyManagerPolicy": "best-effort"}),
        (
            {"cpu": {"reserved": "0"}, "numa": {"topologyPolicy": "restricted"}},
            {},
            {
                **RESERVES,
                "topologyManagerPolicy": "restricted",
                "reservedSystemCPUs": "0",
                "memoryManagerPolicy": "Static",
                "reservedMemory": MEMORY,
            },
        ),
        (
            {"cpu": {"reserved": "0", "shared": "2-3"}, "workloadHints": {"mixedCpus": True}},
            {},
            {**RESERVES, "topologyManagerPolicy": "best-effort", "reservedSystemCPUs": "0,2-3"},
        ),
        (
            {"numa": {"topologyPolicy": "single-numa-node"}},
            {
                "kubeletconfig.experimental": json.dumps(
                    {
                        "systemReserved": {"memory": "1Gi", "cpu": "1"},
                        "cpuManagerPolicyOptions": {"full-pcpus-only": "false"},
                        "topologyManagerScope": "pod",
                    }
                )
            },
            {
                **RESERVES,
                "systemReserved": {"memory": "1Gi", "cpu": "1"},
                "cpuManagerPolicyOptions": {"full-pcpus-only": "false"},
                "topologyManagerScope": "pod",
                "topologyManagerPolicy": "single-numa-node",
                "memoryManagerPolicy": "Static",
                "reservedMemory": [{"numaNode": 0, "limits": {"memory": str((600 + 1024) << 20)}}],
            },
        ),
    ],
)
def test_a_performance_profile_is_what_its_operator_makes_of_it(spec, annotations, fields):
    profile = {
        "kind": "PerformanceProfile",
        "metadata": {"name": "p", "annotations": annotations},
        "spec": spec,
    }
    assert configuration_fields(json.dumps(profile), "k") == {
        "cpuManagerPolicy": "static",
        **fields,
    }


def test_options_of_a_profile_that_are_left_out_are_named():
    with pytest.warns(AlignupWarning) as caught:
        fields = configuration_fields((FORMATS / "performanceprofile.yaml").read_bytes(), "k")
    assert fields["cpuManagerPolicyOptions"] == {"full-pcpus-only": "true"}
    assert [str(warning.message) for warning in caught] == [
        (
            "passed over in k: spec.cpu.isolated, spec.hugepages, spec.nodeSelector, "
            "spec.realTimeKernel of PerformanceProfile cnf"
        )
    ]


def profile(spec, annotations=None, **snippet):
    """Return a profile whose annotation sets these fields."""
    annotations = dict(annotations or {})
    if snippet:
        annotations[SNIPPET] = json.dumps(snippet)
    return {"metadata": {"annotations": annotations}, "spec": spec}


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
def test_memory_is_static_and_cores_are_whole_as_the_policy_has_it(policy):
    fields, _ = kubelet_of_profile(profile({"numa": {"topologyPolicy": policy}}), "p")

    assert fields["topologyManagerPolicy"] == policy
    assert ("memoryManagerPolicy" in fields) is (policy in {"restricted", "single-numa-node"})
    assert ("reservedMemory" in fields) is ("memoryManagerPolicy" in fields)
    assert ("cpuManagerPolicyOptions" in fields) is (policy == "single-numa-node")


def test_shared_cpus_are_reserved_only_where_mixed_cpus_are_on():
    cpu = {"reserved": "0", "shared": "2-3"}
    for hints in ({}, {"mixedCpus": False}, {"mixedCpus": None}):
        fields, _ = kubelet_of_profile(profile({"cpu": cpu, "workloadHints": hints}), "p")
        assert fields["reservedSystemCPUs"] == "0"

    fields, _ = kubelet_of_profile(profile({"cpu": {}, "workloadHints": {"mixedCpus": True}}), "p")
    assert "reservedSystemCPUs" not in fields


def test_memory_that_the_annotation_reserves_stays_as_it_is():
    memory = [{"numaNode": 1, "limits": {"memory": "3Gi"}}]
    options = {"strict-cpu-reservation": "true"}
    annotated = profile(
        {"numa": {"topologyPolicy": "single-numa-node"}},
        reservedMemory=memory,
        cpuManagerPolicyOptions=options,
    )

    fields, _ = kubelet_of_profile(annotated, "p")

    assert fields["reservedMemory"] == memory
    assert fields["cpuManagerPolicyOptions"] == {**options, "full-pcpus-only": "true"}


def test_what_is_null_is_not_set():
    """In the profile as in its annotation."""
    spec = {"cpu": None, "numa": {"topologyPolicy": None}, "workloadHints": None}
    fields, left_out = kubelet_of_profile(profile(spec, kubeReserved=None, maxPods=None), "p")

    assert fields == {
        **RESERVES,
        "cpuManagerPolicy": "static",
        "topologyManagerPolicy": "best-effort",
    }
    assert left_out == []


def test_what_is_not_followed_is_named():
    """Also an annotation of newer operators; other annotations are nobody's business here."""
    annotations = {"kubeletconfig.prefer-align-cpus-by-uncorecache": "{}", "note": "x"}
    spec = {
        "cpu": {"reserved": "0", "isolated": "1-3"},
        "numa": {"topologyPolicy": "restricted"},
        "hugepages": {},
    }

    _, left_out = kubelet_of_profile(profile(spec, annotations), "p")

    assert left_out == [
        "annotation kubeletconfig.prefer-align-cpus-by-uncorecache",
        "spec.cpu.isolated",
        "spec.hugepages",
    ]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "expected the field 'spec', which is missing at p"),
        ({"spec": {"numa": {"topologyPolicy": 3}}}, "got 3 at p.spec.numa.topologyPolicy"),
        ({"spec": {"cpu": {"reserved": "3-1"}}}, "got '3-1' at spec.cpu.reserved of p"),
        (
            profile(
                {"cpu": {"reserved": "0", "shared": "x"}, "workloadHints": {"mixedCpus": True}}
            ),
            "got 'x' at spec.cpu.shared of p",
        ),
        (profile({}, {SNIPPET: "{"}), f"the JSON of a KubeletConfiguration.* at {ANNOTATION}"),
        (profile({}, {SNIPPET: "[]"}), rf"a KubeletConfiguration, got \[\] at {ANNOTATION}"),
        (
            profile({}, evictionHard="x"),
            f"a mapping, got 'x' at evictionHard in {ANNOTATION}",
        ),
        (
            profile({"numa": {"topologyPolicy": "restricted"}}, kubeReserved={"memory": "lots"}),
            rf"a quantity .* got 'lots' at kubeReserved\[\"memory\"\] in {ANNOTATION}",
        ),
    ],
)
def test_what_is_no_profile_is_one_line_with_a_place(document, message):
    with pytest.raises(InputError, match=f"{message}$") as caught:
        kubelet_of_profile(document, "p")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["evictionHard", "kubeReserved", "cpuManagerPolicyOptions"])
@pytest.mark.parametrize("value", [[], "", 0, False, ["memory"]])
def test_an_empty_value_that_is_no_mapping_is_refused_too(name: str, value: object) -> None:
    document = profile({"numa": {"topologyPolicy": "single-numa-node"}}, **{name: value})
    with pytest.raises(InputError, match=f"expected a mapping, got .* at {name} in {ANNOTATION}"):
        kubelet_of_profile(document, "p")
