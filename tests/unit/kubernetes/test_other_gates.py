"""Behaviour of `alignup.kubernetes.policy_options`, and of configurations that set such gates."""

from __future__ import annotations

import pytest

from alignup.errors import AlignupWarning, ConfigError
from alignup.kubernetes.kubelet_config import KubeletConfig, load_config
from alignup.kubernetes.policy_options import gate_complaints
from alignup.kubernetes.versions import KNOWN_VERSIONS, KubeletVersion, release_of

COUNTS = {29: 160, 30: 167, 31: 165, 32: 177, 33: 189, 34: 206, 35: 216, 36: 240, 37: 252}


@pytest.mark.parametrize(
    ("minor", "gates", "complaint"),
    [
        (
            33,
            {"CPUManager": False},
            "unrecognized feature gate: CPUManager (featureGates of kubelet 1.33)",
        ),
        (
            30,
            {"CPUManager": False},
            (
                "cannot set feature gate CPUManager to false, feature is locked to true "
                "(featureGates of kubelet 1.30)"
            ),
        ),
        (
            36,
            {"CPUManagerPolicyAlphaOption": True},
            (
                "unrecognized feature gate: CPUManagerPolicyAlphaOption "
                "(featureGates of kubelet 1.36); CPUManagerPolicyAlphaOptions is one"
            ),
        ),
        (36, {"": True}, "unrecognized feature gate:  (featureGates of kubelet 1.36)"),
        (
            36,
            {"PodLevelResources": False},
            (
                "InPlacePodLevelResourcesVerticalScaling is enabled, but depends on features that "
                "are disabled: [PodLevelResources] (featureGates of kubelet 1.36)"
            ),
        ),
        (
            36,
            {"AllBeta": False, "PodLevelResourceManagers": True},
            (
                "PodLevelResourceManagers is enabled, but depends on features that are disabled: "
                "[PodLevelResources] (featureGates of kubelet 1.36)"
            ),
        ),
    ],
)
def test_what_a_kubelet_refuses_is_said_in_its_words(minor, gates, complaint):
    assert next(gate_complaints(gates, KubeletVersion(minor))) == complaint


@pytest.mark.parametrize(
    ("minor", "gates"),
    [
        (29, {"CPUManager": True, "AllAlpha": True}),
        (34, {"PodLevelResources": False}),
        (36, {"AllBeta": False}),
        (36, {"MemoryQoS": True, "ContextualLogging": False}),
        (36, {"PodLevelResourceManagers": True}),
    ],
)
def test_what_a_kubelet_takes_is_taken(minor, gates):
    assert list(gate_complaints(gates, KubeletVersion(minor))) == []


@pytest.mark.parametrize("version", KNOWN_VERSIONS)
def test_the_gates_of_each_release_are_all_there(version):
    """The numbers are those of the kubelets' own lists, without AllAlpha and AllBeta."""
    assert len(release_of(version).gates) == COUNTS[version.minor]


def test_documents_are_refused_and_descriptions_warned_of():
    text = "kind: KubeletConfiguration\nfeatureGates: {NoSuchGate: true}\n"
    with pytest.raises(
        ConfigError, match=r"unrecognized feature gate: NoSuchGate .* in config\.yaml"
    ):
        load_config(text, "config.yaml")
    with pytest.warns(AlignupWarning, match="accepted, although .*NoSuchGate"):
        load_config(text, "config.yaml", lenient=True)
    with pytest.warns(
        AlignupWarning, match="accepted, although a kubelet rejects it: unrecognized .*NoSuchGate"
    ):
        KubeletConfig.from_dict({"featureGates": {"NoSuchGate": True}})


@pytest.mark.parametrize(
    ("version", "gates", "message"),
    [
        (
            "1.32",
            {"SidecarContainers": False},
            r"SidecarContainers=false of kubelet 1\.32 is not followed",
        ),
        ("1.29", {"AllBeta": False}, r"SidecarContainers=false of kubelet 1\.29 is not followed"),
    ],
)
def test_gates_that_are_not_followed_are_said(version, gates, message):
    with pytest.warns(AlignupWarning, match=message):
        KubeletConfig.from_dict({"featureGates": gates}, version=version)
    if "AllBeta" not in gates:
        opposite = {name: not value for name, value in gates.items()}
        KubeletConfig.from_dict({"featureGates": opposite}, version=version)
