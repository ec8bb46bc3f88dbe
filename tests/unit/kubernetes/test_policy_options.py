"""Behaviour of `alignup.kubernetes.policy_options`.

Options by release, in configurations of both kinds.
"""

from __future__ import annotations

import json

import pytest

from alignup import read_machine
from alignup.errors import AlignupWarning, ConfigError
from alignup.kubernetes.kubelet_config import KubeletConfig, load_config
from alignup.kubernetes.policy_options import CpuOptions, TopologyOptions, gate_is_on
from alignup.kubernetes.versions import NEWEST, OLDEST
from alignup.node import Node

ALPHA = "CPU Manager Policy Alpha-level Options not enabled, but option"


def fields(*options, gates=None, **topology):
    """Return a static policy with these CPU options, all true."""
    configuration = {
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": dict.fromkeys(options, "true"),
    }
    if topology:
        configuration |= {
            "topologyManagerPolicy": "restricted",
            "topologyManagerPolicyOptions": topology["options"],
        }

    if gates is not None:
        configuration["featureGates"] = gates
    return configuration


@pytest.mark.parametrize(
    ("version", "option", "is_known"),
    [
        ("1.30", "distribute-cpus-across-cores", False),
        ("1.31", "distribute-cpus-across-cores", True),
        ("1.31", "strict-cpu-reservation", False),
        ("1.32", "strict-cpu-reservation", True),
        ("1.31", "prefer-align-cpus-by-uncorecache", False),
        ("1.29", "full-pcpus-only", True),
    ],
)
def test_cpu_options_of_a_release(version, option, is_known):
    if is_known:
        assert KubeletConfig.from_dict(fields(option), version=version)
    else:
        with pytest.raises(ConfigError) as caught:
            KubeletConfig.from_dict(fields(option), version=version)
        assert str(caught.value).startswith(f'unknown CPU Manager Policy option: "{option}"')


def test_older_releases_have_no_maximum_of_numa_nodes():
    many = fields(options={"max-allowable-numa-nodes": "16"})
    with pytest.raises(
        ConfigError, match=r'^unknown Topology Manager Policy option: "max-allowable-numa-nodes"'
    ):
        KubeletConfig.from_dict(many, version="1.30")
    assert KubeletConfig.from_dict(many, version="1.31")


def test_a_document_has_the_default_gates_and_a_mapping_has_option_gates_on():
    alpha = fields("align-by-socket")
    assert KubeletConfig.from_dict(alpha).cpu_manager_policy_options.align_by_socket
    with pytest.raises(ConfigError) as caught:
        load_config(json.dumps(alpha), "k.yaml")
    assert str(caught.value).startswith(f'{ALPHA} "align-by-socket" provided')
    assert str(caught.value).endswith("in k.yaml")
    on = fields("align-by-socket", gates={"CPUManagerPolicyAlphaOptions": True})
    assert load_config(json.dumps(on), "k.yaml").cpu_manager_policy_options.align_by_socket


def test_given_gates_are_the_gates():
    """Where a mapping has featureGates, those that it leaves out have their defaults."""
    with pytest.raises(ConfigError, match=ALPHA):
        KubeletConfig.from_dict(fields("align-by-socket", gates={"PodLevelResources": True}))
    off = fields("full-pcpus-only", gates={"CPUManagerPolicyBetaOptions": False})
    with pytest.raises(ConfigError, match=r"^CPU Manager Policy Beta-level Options not enabled"):
        KubeletConfig.from_dict(off, version="1.32")


def test_options_need_the_gate_of_all_options():
    off = fields("full-pcpus-only", gates={"CPUManagerPolicyOptions": False})
    sentence = (
        "CPU Manager policy options map[full-pcpus-only:true] require feature gates "
        '"CPUManager", "CPUManagerPolicyOptions" enabled'
    )
    with pytest.raises(ConfigError) as caught:
        KubeletConfig.from_dict(off, version="1.32")
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("settings", [{}, {"InPlacePodLevelResourcesVerticalScaling": True}])
def test_a_gate_that_a_release_lacks_is_off(settings):
    """Whatever a configuration says of it."""
    gate = "InPlacePodLevelResourcesVerticalScaling"
    assert not gate_is_on(gate, settings, OLDEST)
    assert gate_is_on(gate, settings, NEWEST)


def test_lenient_lets_pass_and_says_so():
    text = json.dumps(fields("align-by-socket"))
    with pytest.warns(
        AlignupWarning, match=rf"^accepted, although kubelet 1\.37 rejects it by default: {ALPHA}"
    ):
        config = load_config(text, "k.yaml", lenient=True)
    assert config.cpu_manager_policy_options.align_by_socket
    with pytest.raises(ConfigError, match="unknown CPU Manager Policy option"):
        load_config(
            json.dumps(fields("strict-cpu-reservation")), "k.yaml", version="1.31", lenient=True
        )


def test_records_are_checked_as_well():
    with pytest.raises(
        ConfigError, match='unknown CPU Manager Policy option: "strict-cpu-reservation"'
    ):
        KubeletConfig(
            version="1.31", cpu_manager_policy_options=CpuOptions(strict_cpu_reservation=True)
        )

    with pytest.raises(
        ConfigError, match='unknown Topology Manager Policy option: "max-allowable-numa-nodes"'
    ):
        KubeletConfig(
            version="v1.30.2",
            topology_manager_policy_options=TopologyOptions(max_allowable_numa_nodes=9),
        )

    assert str(KubeletConfig(version="v1.30.2").version) == "1.30"


def test_a_nodes_version_goes_before_that_of_its_configuration():
    machine = read_machine("align-up-article")
    config = KubeletConfig.from_dict(fields("strict-cpu-reservation"), version="1.35")
    assert str(Node(machine, config).config.version) == "1.35"
    assert str(Node(machine, config, kubelet_version="1.33").config.version) == "1.33"
    for configuration in (config, fields("strict-cpu-reservation")):
        with pytest.raises(ConfigError, match=r"kubelet 1\.31 does not know it"):
            Node(machine, configuration, kubelet_version="1.31")

    with pytest.raises(ConfigError, match=r"kubelet 1\.31 does not know it"):
        Node.from_dict(
            {
                "machine": "align-up-article",
                "kubelet": fields("strict-cpu-reservation"),
                "kubeletVersion": "1.31",
            }
        )
