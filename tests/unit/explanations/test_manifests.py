"""Manifests of a pod, written from its record."""

from __future__ import annotations

import json

from alignup import explain, read_pod
from alignup.explanations.manifests import manifest_of
from inputs.refusals import by_kind, gpu_pod, node_of


def test_the_manifest_is_that_of_the_same_pod() -> None:
    node = node_of()
    wanted = gpu_pod("x", cpu="9")
    wanted["metadata"] |= {"namespace": "team", "annotations": {"a": "b"}}
    [one] = by_kind(node, wanted)["request"]
    read = read_pod(one.attempt["pod"])

    assert (read.uid, read.name, read.namespace, read.annotations) == ("x", "x", "team", {"a": "b"})
    json.dumps(one.attempt)


def test_a_pod_whose_manifest_cannot_be_told_gets_no_other_manifest() -> None:
    """A record does not keep `spec.resources`; the manifest does."""
    wanted = gpu_pod("x", cpu="2", gpus=5)
    wanted["spec"]["resources"] = {"limits": {"cpu": "4", "memory": "2Gi"}}
    pod = read_pod(wanted)

    assert manifest_of(pod) is None
    assert manifest_of(pod, wanted)["spec"]["resources"] == wanted["spec"]["resources"]
    assert "request" in by_kind(node_of(), wanted)
    assert all(one.kind != "request" for one in explain(node_of(), pod).suggestions)
