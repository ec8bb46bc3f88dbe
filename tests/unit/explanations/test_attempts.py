"""A configuration as a record, written as fields again."""

from __future__ import annotations

from alignup.explanations.attempts import fields_of
from inputs.refusals import KUBELET, node_of


def test_a_configuration_is_written_as_it_was_read() -> None:
    kubelet = {
        **KUBELET,
        "topologyManagerScope": "pod",
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
        "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"},
        "kubeReserved": {"cpu": "1500m"},
        "featureGates": {"CPUManagerPolicyAlphaOptions": True},
    }
    node = node_of(**kubelet)
    assert node_of(**{**dict.fromkeys(kubelet), **fields_of(node.config)}).config == node.config
