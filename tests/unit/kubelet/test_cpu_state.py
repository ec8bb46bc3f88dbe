"""cpu_manager_state in all versions."""

from __future__ import annotations

import json

import pytest

from alignup.errors import InputError
from alignup.kubelet.checkpoints import read_cpu_state
from alignup.kubernetes.versions import KubeletVersion
from alignup.machine.cpuset import CPUSet


def text(**fields):
    return json.dumps(
        {"policyName": "static", "defaultCpuSet": "0-7", "checksum": 0, **fields}
    ).encode()


def test_version_2_is_keyed_by_pod_and_container():
    state = read_cpu_state(text(defaultCpuSet="0,4-7", entries={"u": {"c": "1-3"}}))
    assert (state.version, state.policy) == (2, "static")
    assert state.shared == CPUSet.parse("0,4-7")
    assert state.entries == {"u": {"c": CPUSet.parse("1-3")}}


def test_version_1_needs_to_know_whose_containers_they_are():
    """As in the kubelet, which takes the containers from its runtime."""
    state = read_cpu_state(text(entries={"abc": "1-3"}), version=KubeletVersion(36))
    assert state.version == 1
    assert state.named({"abc": ("u", "c")}).entries == {"u": {"c": CPUSet.parse("1-3")}}
    with pytest.raises(InputError, match="ids of containers that are known, got 'abc'"):
        state.named({})


def test_version_1_is_not_read_by_newer_kubelets():
    with pytest.raises(
        InputError, match=r"kubelet 1\.37 reads states of version 2 or later, and this is version 1"
    ):
        read_cpu_state(text(entries={"abc": "1-3"}), version=KubeletVersion(37))


def test_version_3_has_cpus_of_pods_and_a_sum_over_them():
    """The sum is told apart from that of version 2 even where no pod has any."""
    fields = {"entries": {"u": {"c": "1"}}, "podEntries": {"u": {"cpuSet": "1-3"}}}
    state = read_cpu_state(text(**fields))
    assert (state.version, state.pods) == (3, {"u": CPUSet.parse("1-3")})
    again = read_cpu_state(text(**fields, checksum=state.expected_checksum))
    assert (again.version, again.is_intact) == (3, True)


def test_a_state_without_a_checksum_counts_as_intact():
    assert read_cpu_state(text()).is_intact


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b'{"policyName":"static","defaultC', "JSON of a CPU manager's state"),
        (b"[]", "a mapping"),
        (text(defaultCpuSet="0-x"), "defaultCpuSet in cpu_manager_state"),
        (text(entries={"u": {"c": "3-1"}}), "the CPUs of 'c'"),
        (text(entries={"u": {"c": "1"}, "abc": "2"}), "entries of one version"),
        (text(entries={"u": 1}), "in cpu_manager_state"),
    ],
)
def test_damage_is_one_line(data, message):
    with pytest.raises(InputError, match=message) as caught:
        read_cpu_state(data)
    assert "\n" not in str(caught.value)
