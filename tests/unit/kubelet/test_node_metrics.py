"""A kubelet's node as metrics."""

from __future__ import annotations

import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from alignup.errors import InputError
from alignup.kubelet.node_metrics import prometheus_text
from alignup.kubelet.read import read_kubelet
from alignup.kubernetes.pod import Container, Pod
from alignup.records import replace
from inputs.kubelet_files import EXAMPLE


@pytest.fixture(scope="module")
def kubelet():
    return read_kubelet(EXAMPLE / "root.tar.xz")


def test_metrics_tell_what_is_free_and_how_containers_are_aligned(kubelet):
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(prometheus_text(kubelet))
        for sample in family.samples
    }

    free = "alignup_node_resource_free"
    assert samples[free, ("numa_nodes", "3"), ("resource", "cpu")] == 12
    assert samples[free, ("numa_nodes", "none"), ("resource", "example.com/nic")] == 1

    memory_held = ("alignup_node_resource_held", ("numa_nodes", "0"), ("resource", "memory"))
    assert samples[memory_held] == 9 * 2**30

    spread = {
        value for key, value in samples.items() if key[0] == "alignup_node_container_numa_nodes"
    }
    assert spread == {1.0}


def test_a_container_that_holds_nothing_lies_nowhere(kubelet):
    node = kubelet.node.copy()
    assert node.admit(Pod("uid", "shared", "default", containers=(Container("c"),)))
    text = prometheus_text(replace(kubelet, node=node))
    assert 'pod="shared"' not in text
    assert text == prometheus_text(kubelet)


def test_a_missing_extra_is_named(kubelet, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(InputError, match=r"pip install 'alignup\[metrics\]'"):
        prometheus_text(kubelet)
