"""The kubelet's feature gates and policy options by release, in configurations of both kinds."""

from __future__ import annotations

import json

import pytest

from alignup import read_machine
from alignup.errors import AlignupWarning, ConfigError
from alignup.kubernetes.kubelet_config import KubeletConfig, load_config
from alignup.kubernetes.policy_options import (
    OPTION_GATES,
    CpuOptions,
    TopologyOptions,
    effective_gates,
    gate_complaints,
    gate_is_on,
)
from alignup.kubernetes.versions import (
    KNOWN_VERSIONS,
    NEWEST,
    OLDEST,
    KubeletVersion,
    known_names,
    release_of,
)
from alignup.node import Node

ALPHA = "CPU Manager Policy Alpha-level Options not enabled, but option"

COUNTS = {29: 160, 30: 167, 31: 165, 32: 177, 33: 189, 34: 206, 35: 216, 36: 240, 37: 252, 38: 241}


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


@pytest.mark.parametrize(
    ("minor", "gate", "value", "complaint"),
    [
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


@pytest.mark.parametrize(
    ("minor", "gates", "complaint"),
    [
        (
            33,
            {"CPUManager": False},
            (
                "unrecognized feature gate: CPUManager "
                "(featureGates of kubelet 1.33, where it is on for good)"
            ),
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
            38,
            {"NodeSwap": True},
            (
                "unrecognized feature gate: NodeSwap (featureGates of kubelet 1.38 "
                "(a preview: 1.38.0-beta.0), where it is on for good)"
            ),
        ),
        (
            38,
            {"PodGroupPreemptionPolicy": True},
            (
                "unrecognized feature gate: PodGroupPreemptionPolicy (featureGates of kubelet 1.38 "
                "(a preview: 1.38.0-beta.0))"
            ),
        ),
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
    ("gates", "others"),
    [
        ({"NodeSwap": True, "AllBeta": True, "MemoryQoS": True}, ""),
        ({"NodeSwap": True, "KubeletTracing": True}, "; nor does it know NodeSwap"),
        (
            {"InPlacePodVerticalScaling": True, "NodeSwap": True, "KubeletTracing": False},
            "; nor does it know KubeletTracing, NodeSwap",
        ),
    ],
)
def test_all_gates_that_stop_a_kubelet_are_named(gates, others):
    """A kubelet names one, and the next once that is taken out."""
    with pytest.raises(ConfigError) as caught:
        KubeletConfig.from_dict({"featureGates": gates}, version="1.38", option_gates_on=False)

    sentence, is_on, end = str(caught.value).partition("where it is on for good)")
    assert sentence.startswith("unrecognized feature gate: ")
    assert is_on
    assert end == others


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


@pytest.mark.parametrize(
    ("minor", "gate", "settings", "is_on"),
    [
        (34, "InPlacePodVerticalScaling", {"InPlacePodVerticalScaling": False}, False),
        (37, "InPlacePodVerticalScaling", {}, True),
        (38, "InPlacePodVerticalScaling", {}, True),
        (38, "WindowsHostNetwork", {}, False),
        (38, "InPlacePodVerticalScalingExclusiveCPUs", {}, False),
        (38, "NoSuchGate", {}, False),
    ],
)
def test_a_gate_that_went_after_it_was_ga_counts_as_on(minor, gate, settings, is_on):
    assert gate_is_on(gate, settings, KubeletVersion(minor)) is is_on


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
