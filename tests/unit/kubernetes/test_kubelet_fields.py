"""A misspelt field of a configuration is never passed over in silence."""

from __future__ import annotations

import warnings

import pytest

from alignup.errors import AlignupWarning, InputError
from alignup.kubernetes.kubelet_config import KubeletConfig, load_config
from alignup.kubernetes.versions import known_names


@pytest.mark.parametrize(
    "name", ["topologyManagerPolciy", "topologyPolicy", "topology-manager-policy"]
)
def test_a_misspelt_field_is_warned_of(name: str) -> None:
    """With the field that was meant, and the file it stands in."""
    with pytest.warns(
        AlignupWarning, match=f"'{name}' is no field .* in k.yaml; topologyManagerPolicy is"
    ):
        config = load_config(f"maxPods: 110\n{name}: restricted", "k.yaml")
    assert config == KubeletConfig()


def test_a_misspelt_field_alone_is_an_error() -> None:
    with pytest.raises(InputError, match=r"did you mean topologyManagerPolicy\?"):
        load_config("topology_manager_policy: restricted", "k.yaml")


def test_a_field_that_resembles_none_is_warned_of() -> None:
    with pytest.warns(
        AlignupWarning, match="'bogus' is no field of a KubeletConfiguration and ignored$"
    ):
        KubeletConfig.from_dict({"bogus": 1})


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("topology_manager_policy", "topologyManagerPolicy"),
        ("cpu_manager_policy_options", "cpuManagerPolicyOptions"),
        ("reserved_system_cpus", "reservedSystemCPUs"),
    ],
)
def test_an_attribute_is_no_field(name: str, field: str) -> None:
    """Who took the attributes of the record for its fields is told."""
    with pytest.raises(
        InputError, match=f"the field {field}, as in a KubeletConfiguration, got '{name}'"
    ):
        KubeletConfig.from_dict({name: "restricted"})


def test_a_whole_configuration_is_taken_without_a_word() -> None:
    """Fields that do not matter here are ignored."""
    special = {"kind", "featureGates", "kubeReserved", "systemReserved", "reservedMemory"}
    others = known_names("KubeletConfiguration") - special
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        KubeletConfig.from_dict(dict.fromkeys(others))
