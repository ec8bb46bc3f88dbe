"""Manifests of a pod, written from its record."""

from __future__ import annotations

import json

import pytest

from alignup import explain, read_pod
from alignup.explanations.manifests import changed, manifest_of, pod_of
from inputs.claims_on_nodes import pod_with_claim
from inputs.refusals import by_kind, gpu_pod, node_of


def test_the_manifest_is_that_of_the_same_pod() -> None:
    node = node_of()
    manifest = gpu_pod("x", cpu="9")
    manifest["metadata"] |= {"namespace": "team", "annotations": {"a": "b"}}
    [suggestion] = by_kind(node, manifest)["request"]
    read = read_pod(suggestion.attempt["pod"])

    assert (read.uid, read.name, read.namespace, read.annotations) == ("x", "x", "team", {"a": "b"})
    json.dumps(suggestion.attempt)


def test_a_pod_whose_manifest_cannot_be_told_gets_no_other_manifest() -> None:
    """A record does not keep `spec.resources`; the manifest does."""
    manifest = gpu_pod("x", cpu="2", gpus=5)
    manifest["spec"]["resources"] = {"limits": {"cpu": "4", "memory": "2Gi"}}
    pod = read_pod(manifest)

    assert manifest_of(pod) is None
    assert manifest_of(pod, manifest)["spec"]["resources"] == manifest["spec"]["resources"]
    assert "request" in by_kind(node_of(), manifest)
    assert all(suggestion.kind != "request" for suggestion in explain(node_of(), pod).suggestions)


def test_claims_are_written_with_the_containers_that_use_them() -> None:
    pod = pod_with_claim(cpu=2)
    manifest = manifest_of(pod)
    assert manifest is not None
    assert pod_of(manifest).constraints.claims == pod.constraints.claims
    named = pod_with_claim(cpu=2, reference={"resourceClaimName": "mine"})
    manifest = manifest_of(named)
    assert manifest["spec"]["resourceClaims"] == [{"name": "c", "resourceClaimName": "mine"}]
    assert manifest["spec"]["containers"][0]["resources"]["claims"] == [{"name": "c"}]


@pytest.mark.parametrize(
    ("requests", "limits", "as_whole", "changed_requests", "changed_limits"),
    [
        ({"cpu": "4"}, {"cpu": "4"}, False, {"cpu": "2"}, {"cpu": "2"}),
        ({"cpu": "3"}, {"cpu": "4"}, False, {"cpu": "2"}, {"cpu": "2"}),
        ({"cpu": "4"}, {"cpu": "4"}, True, {"cpu": "2m"}, {"cpu": "2m"}),
        ({}, {"cpu": "4"}, True, {"cpu": "2m"}, {"cpu": "2m"}),
        ({"cpu": "3"}, {"cpu": "4"}, True, {"cpu": "2m"}, {"cpu": "4"}),
        ({"cpu": "4"}, {}, True, {"cpu": "2m"}, {}),
    ],
)
def test_a_limit_follows_a_request_of_the_whole_node_that_it_was(
    requests, limits, as_whole, changed_requests, changed_limits
) -> None:
    containers = [
        {"name": "c", "resources": {"requests": requests, "limits": limits}},
        {"name": "other"},
    ]
    manifest = {"spec": {"containers": containers}}
    container, other = changed(manifest, {("c", "cpu"): 2}, as_whole=as_whole)["spec"]["containers"]
    assert container["resources"] == {"requests": changed_requests, "limits": changed_limits}
    assert other == {"name": "other"}
    assert manifest == {"spec": {"containers": containers}}
