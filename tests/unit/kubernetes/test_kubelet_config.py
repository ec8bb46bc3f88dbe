"""Behaviour of `alignup.kubernetes.kubelet_config`."""

from __future__ import annotations

import json
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import AlignupWarning, ConfigError, InputError
from alignup.kubernetes.kubelet_config import (
    KubeletConfig,
    NodeReserve,
    ReservedMemory,
    load_config,
)
from alignup.kubernetes.policy_options import (
    CPU_OPTIONS,
    CpuOptions,
    TopologyOptions,
    parse_cpu_options,
    parse_topology_options,
)
from alignup.kubernetes.versions import NEWEST_KNOWN, known_names
from alignup.machine.cpuset import CPUSet

GET = "`kubectl get --raw /api/v1/nodes/NODE/proxy/configz` prints the one that is in effect"

STATIC = "cpuManagerPolicy: static"

OPTIONS = "cpuManagerPolicyOptions"

QUANTITY = "a quantity such as 2, 500m or 4Gi"

FULL = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "maxPods": 10,
    "topologyManagerPolicy": "restricted",
    "topologyManagerScope": "pod",
    "topologyManagerPolicyOptions": {
        "prefer-closest-numa-nodes": "true",
        "max-allowable-numa-nodes": "16",
    },
    "cpuManagerPolicy": "static",
    "cpuManagerPolicyOptions": {"full-pcpus-only": "T", "strict-cpu-reservation": "0"},
    "reservedSystemCPUs": "0,4-5",
    "memoryManagerPolicy": "Static",
    "reservedMemory": [
        {"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-2Mi": "4Mi"}},
        {"numaNode": 33, "limits": {"memory": "1.5k"}},
    ],
    "featureGates": {"PodLevelResources": True},
}

REFUSED = [
    (
        {"topologyManagerPolicy": "strict"},
        "one of none, best-effort, restricted, single-numa-node, got 'strict'",
    ),
    ({"topologyManagerScope": "node"}, "one of container, pod, got 'node' at topologyManagerScope"),
    ({"cpuManagerPolicy": "dynamic"}, "one of none, static, got 'dynamic' at cpuManagerPolicy"),
    (
        {"memoryManagerPolicy": "BestEffort"},
        "one of None, Static, got 'BestEffort' at memoryManagerPolicy",
    ),
    (
        {"topologyManagerPolicy": "restricted", "topologyManagerPolicyOptions": {"fast": "true"}},
        (
            'unknown Topology Manager Policy option: "fast" (expected options among '
            "prefer-closest-numa-nodes, "
        ),
    ),
    ({"cpuManagerPolicyOptions": {"fast": "true"}}, 'unknown CPU Manager Policy option: "fast"'),
    ({"cpuManagerPolicyOptions": {"full-pcpus-only": "yes"}}, '"true" or "false", got \'yes\''),
    (
        {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}},
        "no options next to cpuManagerPolicy none",
    ),
    ({"reservedSystemCPUs": "0 - 3"}, "got '0 - 3' at reservedSystemCPUs"),
    ({"reservedSystemCPUs": "0-7:2"}, "got '0-7:2' at reservedSystemCPUs"),
    (
        {"reservedSystemCPUs": "3-1"},
        "expected a range that ascends, got '3-1' at reservedSystemCPUs",
    ),
    ({"kubeReserved": {"cpu": "-1"}}, "not negative"),
    *(
        ({"evictionHard": {"memory.available": text}}, f"of at most 100%, got '{text[:30]}")
        for text in ("٣%", "%", ".%", "1_0%", "5 %", "-5%", "nan%", "inf%", "0x1p2%")
    ),
    *(
        ({"evictionHard": {"memory.available": text}}, f"of at most 100%, got '{text[:30]}")
        for text in ("101%", "100.001%", "1e3%", "9" * 50 + "%", "9" * 5_000 + "%", "1e9999%")
    ),
    ({"evictionHard": {"memory.available": "-1Gi"}}, "a quantity that is not negative, got '-1Gi'"),
    (
        {"evictionHard": {"memory.avail": "1Gi"}},
        "pid.available, got 'memory.avail' at evictionHard",
    ),
    ({"evictionHard": {"nodefs.available": "-1"}}, "a quantity that is not negative, got '-1'"),
    *(
        ({name: count}, f"a whole number from 0 to 2147483647, got {count} at {name}")
        for name in ("maxPods", "podsPerCore")
        for count in (-1, 1 << 31)
    ),
    *(
        (
            {"reservedSystemCPUs": "0", name: "/system"},
            f"no such cgroup next to reservedSystemCPUs, got '/system' at {name}",
        )
        for name in ("systemReservedCgroup", "kubeReservedCgroup")
    ),
    *(
        ({part: {name: "-4"}}, f"a quantity that is not negative, got '-4' at {part}[\"{name}\"]")
        for part in ("kubeReserved", "systemReserved")
        for name in ("cpu", "memory", "ephemeral-storage", "pid")
    ),
    *(
        (
            {"systemReserved": {name: "4"}},
            f"one of cpu, memory, ephemeral-storage, pid, got '{name}' at systemReserved",
        )
        for name in ("hugepages-2Mi", "example.com/nic", "CPU")
    ),
    ({"memoryManagerPolicy": "Static"}, "expected memory of at least one NUMA node"),
    ({"reservedMemory": [{"numaNode": -1}]}, "at reservedMemory[0].numaNode"),
    ({"reservedMemory": [{"limits": {"cpu": "1"}}]}, "memory or hugepages-<size>, got 'cpu'"),
    (
        {"reservedMemory": [{"limits": {"memory": "0"}}]},
        "above zero, got '0' at reservedMemory[0].limits[\"memory\"]",
    ),
    (
        {"reservedMemory": [{"limits": {"memory": "1"}}] * 2},
        "expected NUMA node 0 to reserve memory once",
    ),
    (
        {
            "topologyManagerPolicy": "single-numa-node",
            "cpuManagerPolicy": "static",
            "cpuManagerPolicyOptions": {"align-by-socket": "true"},
            "featureGates": {"CPUManagerPolicyAlphaOptions": True},
        },
        "align-by-socket, got 'single-numa-node' at topologyManagerPolicy",
    ),
]


def test_a_configuration_is_read_whole():
    config = KubeletConfig.from_dict(FULL)
    assert config == KubeletConfig(
        topology_manager_policy="restricted",
        topology_manager_scope="pod",
        topology_manager_policy_options=TopologyOptions(True, 16),
        cpu_manager_policy="static",
        cpu_manager_policy_options=CpuOptions(full_pcpus_only=True),
        reserved_system_cpus=CPUSet([0, 4, 5]),
        memory_manager_policy="Static",
        reserved_memory=(
            ReservedMemory(0, (("hugepages-2Mi", 4 * 2**20), ("memory", 2**30))),
            ReservedMemory(33, (("memory", 1500),)),
        ),
        feature_gates={"PodLevelResources": True},
        node_reserve=NodeReserve(max_pods=FULL["maxPods"]),
    )

    assert load_config(json.dumps(FULL), "t") == config
    assert load_config("---\n" + json.dumps(FULL) + "\n---\n", "t") == config


@pytest.mark.parametrize(
    "nothing",
    [
        {},
        dict.fromkeys(FULL),
        {"topologyManagerPolicy": "", "reservedSystemCPUs": "", "cpuManagerPolicyOptions": {}},
    ],
)
def test_what_is_absent_is_the_kubelets_default(nothing):
    config = KubeletConfig.from_dict(nothing)
    assert config == KubeletConfig()
    assert config.topology_manager_policy == config.cpu_manager_policy == "none"
    assert config.topology_manager_scope == "container"
    assert config.memory_manager_policy == "None"
    assert config.topology_manager_policy_options.max_allowable_numa_nodes == 8
    assert config.reserved_system_cpus == set()


@pytest.mark.parametrize(
    ("reserved", "count"),
    [
        ({}, 0),
        ({"kubeReserved": {"memory": "1Gi"}}, 0),
        ({"kubeReserved": {"cpu": "500m"}}, 1),
        ({"kubeReserved": {"cpu": "500m"}, "systemReserved": {"cpu": "500m"}}, 1),
        ({"kubeReserved": {"cpu": "500m"}, "systemReserved": {"cpu": 1}}, 2),
        ({"kubeReserved": {"cpu": "3"}, "reservedSystemCPUs": "7"}, 0),
        ({"kubeReserved": {"cpu": "not read"}, "reservedSystemCPUs": "7"}, 0),
    ],
)
def test_cpus_may_be_reserved_by_number(reserved, count):
    assert KubeletConfig.from_dict(reserved).reserved_cpu_count == count


@pytest.mark.parametrize("name", CPU_OPTIONS)
def test_each_cpu_option_sets_its_field(name):
    field = name.replace("-", "_")
    assert parse_cpu_options({name: "true"}) == CpuOptions(**{field: True})
    assert parse_cpu_options({name: "False"}) == CpuOptions()


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ("full-pcpus-only", "distribute-cpus-across-cores", False),
        ("distribute-cpus-across-numa", "distribute-cpus-across-cores", False),
        ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores", False),
        ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa", False),
        ("full-pcpus-only", "distribute-cpus-across-numa", True),
        ("full-pcpus-only", "prefer-align-cpus-by-uncorecache", True),
        ("align-by-socket", "distribute-cpus-across-cores", True),
    ],
)
def test_options_that_exclude_each_other(first, second, together):
    both = {first: "true", second: "true"}
    if together:
        assert parse_cpu_options(both)
    else:
        with pytest.raises(ConfigError, match=f"{first} and {second} exclude each other"):
            parse_cpu_options(both)

    assert parse_cpu_options({first: "true", second: "false"})


@pytest.mark.parametrize(("text", "number"), [("8", 8), ("+16", 16), ("1000", 1000)])
def test_the_maximum_of_numa_nodes_is_read(text, number):
    assert parse_topology_options({"max-allowable-numa-nodes": text}) == TopologyOptions(
        False, number
    )


@pytest.mark.parametrize("text", ["7", "-8", "0x10", "eight", "", "8.0", " 8", "9" * 30])
def test_a_maximum_that_the_kubelet_refuses(text):
    with pytest.raises(
        ConfigError,
        match=r'^expected a whole number of at least 8, got .*max-allowable-numa-nodes"\]$',
    ):
        parse_topology_options({"max-allowable-numa-nodes": text})


@pytest.mark.parametrize(("configuration", "message"), REFUSED)
def test_what_a_kubelet_would_not_start_with(configuration, message):
    """Each message names what was expected and where.

    The place is not repeated by the source's name.
    """
    with pytest.raises(ConfigError) as caught:
        KubeletConfig.from_dict(configuration)
    assert message in str(caught.value)
    with pytest.raises(ConfigError) as in_text:
        load_config(json.dumps(configuration), "kubelet.yaml")
    assert str(in_text.value) == f"{caught.value} in kubelet.yaml"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Pod", f"expected a KubeletConfiguration, got a Pod in k.yaml; {GET}"),
        ("", f"expected a KubeletConfiguration, got nothing in k.yaml; {GET}"),
        (
            f"{STATIC}\n---\ncpuManagerPolicy: none",
            (
                "expected one KubeletConfiguration, got a KubeletConfiguration, a "
                "KubeletConfiguration at 2 in k.yaml; leave one of them in it"
            ),
        ),
        (
            "- a",
            f"expected a KubeletConfiguration, got something that is no mapping in k.yaml; {GET}",
        ),
        (
            "apiVersion: v9\nkind: KubeletConfiguration",
            "expected kubelet.config.k8s.io/v1beta1, got 'v9' at apiVersion in k.yaml",
        ),
        (
            "apiVersion: kubelet.config.k8s.io/v1\nkind: KubeletConfiguration",
            (
                "expected kubelet.config.k8s.io/v1beta1, got 'kubelet.config.k8s.io/v1' at "
                "apiVersion in k.yaml"
            ),
        ),
        ("maxPods: 1:30", "expected a whole number, got '1:30' at maxPods in k.yaml"),
        (
            "kubeReserved: {cpu: ' 1'}",
            f"expected {QUANTITY}, got ' 1' at kubeReserved[\"cpu\"] in k.yaml",
        ),
        ("topologyManagerPolicy: 3", "expected a string, got 3 at topologyManagerPolicy in k.yaml"),
        ("reservedSystemCPUs: 3", "expected a string, got 3 at reservedSystemCPUs in k.yaml"),
        (
            "reservedMemory: [{numaNode: a}]",
            "expected a whole number, got 'a' at reservedMemory[0].numaNode in k.yaml",
        ),
        (
            "featureGates: {A: maybe}",
            "expected true or false, got 'maybe' at featureGates[\"A\"] in k.yaml",
        ),
        (
            "cpuManagerPolicyOptions: {full-pcpus-only: true}",
            f'expected a string such as "true", got True at {OPTIONS}["full-pcpus-only"] in k.yaml',
        ),
        (
            "reservedMemory: [{limits: {memory: lots}}]",
            f"expected {QUANTITY}, got 'lots' at reservedMemory[0].limits[\"memory\"] in k.yaml",
        ),
    ],
)
def test_malformed_configurations_are_one_line(text, message):
    with pytest.raises(InputError) as caught:
        load_config(text, "k.yaml")
    assert str(caught.value) == message
    assert not isinstance(caught.value, ConfigError)


def test_options_do_not_matter_under_policy_none():
    """The kubelet makes its none policy before it looks at the options."""
    config = KubeletConfig.from_dict({"topologyManagerPolicyOptions": {"fast": "true"}})
    assert config.topology_manager_policy_options == TopologyOptions()


def test_the_first_wrong_option_is_reported_whatever_the_order():
    for options in ({"b": "1", "a": "1"}, {"a": "1", "b": "1"}):
        with pytest.raises(ConfigError, match="got 'a'"):
            parse_cpu_options(options)


@pytest.mark.filterwarnings("ignore::alignup.errors.AlignupWarning")
@given(
    st.sampled_from(sorted(FULL)),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
        ),
        max_leaves=4,
    ),
)
def test_junk_anywhere_gives_a_configuration_or_one_line(field, junk):
    message = None
    try:
        KubeletConfig.from_dict({**FULL, field: junk})
    except InputError as error:
        message = str(error)
    # an unknown option is refused in the kubelet's words
    assert message is None or (
        message.startswith(("expected ", "unknown ")) and "\n" not in message
    )


@pytest.mark.parametrize("configuration", [5, "static", [1], True])
def test_a_configuration_that_is_no_mapping_is_a_clear_error(configuration):
    """Wherever it comes from."""
    with pytest.raises(
        InputError, match=r"expected a mapping of fields, got .* at the configuration"
    ):
        KubeletConfig.from_dict(configuration)


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


@pytest.mark.parametrize("name", ["clientCertificateKeyAlgorithm", "serverCertificateKeyAlgorithm"])
def test_a_field_of_a_later_release_is_warned_of(name: str) -> None:
    with pytest.warns(
        AlignupWarning, match=rf"{name}' is no field .* kubelet 1\.37 and ignored; kubelet 1\.38"
    ):
        KubeletConfig.from_dict({name: "RSA-2048"}, version="1.37")
    KubeletConfig.from_dict({name: "RSA-2048"}, version="1.38")


def test_a_behaviour_with_swap_is_checked_where_the_gate_is_gone() -> None:
    fields = {"memorySwap": {"swapBehavior": "UnlimitedSwap"}}
    assert KubeletConfig.from_dict(fields, version="1.37") == KubeletConfig()
    with pytest.raises(
        ConfigError, match=r'swapBehavior "UnlimitedSwap" must be one of: "", "LimitedSwap" or "No'
    ):
        KubeletConfig.from_dict(fields, version="1.38")
    for behaviour in ({}, {"swapBehavior": ""}, {"swapBehavior": "LimitedSwap"}, None):
        KubeletConfig.from_dict({"memorySwap": behaviour}, version="1.38")


def test_a_misspelt_field_alone_is_an_error() -> None:
    with pytest.raises(InputError, match=r"did you mean topologyManagerPolicy\?"):
        load_config("topology_manager_policy: restricted", "k.yaml")


@pytest.mark.parametrize("name", ["bogus", "bo_gus"])
def test_a_field_that_resembles_none_is_warned_of(name: str) -> None:
    with pytest.warns(
        AlignupWarning, match=f"'{name}' is no field of a KubeletConfiguration and ignored$"
    ):
        KubeletConfig.from_dict({name: 1})


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
        KubeletConfig.from_dict(dict.fromkeys(others), version=NEWEST_KNOWN)


@pytest.mark.parametrize(
    ("version", "thresholds", "kept"),
    [
        ("1.33", {"nodefs.available": "10%"}, "100Mi"),
        ("1.33", {}, "100Mi"),
        ("1.33", {"memory.available": "1Gi"}, "1Gi"),
        ("1.32", {"nodefs.available": "10%"}, ""),
    ],
)
def test_default_thresholds_are_put_beside_those_that_are_given(version, thresholds, kept):
    """By `mergeDefaultEvictionSettings`, which kubelets have from 1.33 on."""
    fields = {"evictionHard": thresholds, "mergeDefaultEvictionSettings": True}
    config = KubeletConfig.from_dict(fields, version=version)
    assert config.node_reserve.eviction_memory == kept
