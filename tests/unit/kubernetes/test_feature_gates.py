"""Behaviour of `alignup.kubernetes.policy_options`."""

from __future__ import annotations

import pytest

from alignup.errors import ConfigError
from alignup.kubernetes.kubelet_config import KubeletConfig
from alignup.kubernetes.policy_options import OPTION_GATES, effective_gates
from alignup.kubernetes.versions import KubeletVersion, known_names, release_of


@pytest.mark.parametrize(
    ("minor", "gate", "value", "complaint"),
    [
        (36, "MemoryManager", True, "unrecognized feature gate: MemoryManager"),
        (31, "PodLevelResources", True, "unrecognized feature gate: PodLevelResources"),
        (
            35,
            "PodLevelResourceManagers",
            False,
            "unrecognized feature gate: PodLevelResourceManagers",
        ),
        (
            33,
            "MemoryManager",
            False,
            "cannot set feature gate MemoryManager to false, feature is locked to true",
        ),
        (
            33,
            "CPUManagerPolicyOptions",
            False,
            "cannot set feature gate CPUManagerPolicyOptions to false, feature is locked to true",
        ),
        (
            36,
            "TopologyManagerPolicyOptions",
            False,
            (
                "cannot set feature gate TopologyManagerPolicyOptions to false, feature is locked "
                "to true"
            ),
        ),
    ],
)
def test_gates_that_are_locked_or_not_there_are_refused_in_the_kubelets_words(
    minor, gate, value, complaint
):
    with pytest.raises(ConfigError) as caught:
        KubeletConfig.from_dict({"featureGates": {gate: value}}, version=f"1.{minor}")
    assert str(caught.value) == f"{complaint} (featureGates of kubelet 1.{minor})"


@pytest.mark.parametrize(
    ("minor", "gate", "value"),
    [
        (31, "MemoryManager", False),
        (33, "MemoryManager", True),
        (32, "CPUManagerPolicyOptions", False),
        (35, "TopologyManagerPolicyOptions", False),
        (36, "SomethingElse", True),
    ],
)
def test_other_gates_are_taken(minor, gate, value):
    version = KubeletVersion(minor)
    gates = effective_gates({gate: value}, version)
    assert gates.get(gate, value) is value
    assert (gate in gates) is (
        gate in known_names("managerGates") and gate in release_of(version).gates
    )


def test_missing_gates_are_the_defaults_or_let_options_pass():
    version = KubeletVersion(36)
    default = effective_gates(None, version)
    assert [default[gate] for gate in OPTION_GATES] == [False, True, False, True]
    lenient = effective_gates(None, version, option_gates_on=True)
    assert lenient == {**default, **dict.fromkeys(OPTION_GATES, True)}
    assert effective_gates({}, version, option_gates_on=True) == default


def test_all_gates_of_a_stage_are_set_at_once_but_for_those_named():
    version = KubeletVersion(33)
    gates = effective_gates(
        {"AllAlpha": True, "AllBeta": False, "CPUManagerPolicyBetaOptions": True}, version
    )
    on = {"CPUManagerPolicyAlphaOptions", "PodLevelResources", "CPUManagerPolicyBetaOptions"}
    assert all(gates[gate] for gate in on)
    assert not gates["InPlacePodVerticalScaling"]


def test_without_its_gate_there_is_no_memory_manager():
    fields = {
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        "featureGates": {"MemoryManager": False},
    }
    assert KubeletConfig.from_dict(fields, version="1.31").memory_manager_policy == "None"
