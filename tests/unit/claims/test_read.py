"""Objects of `resource.k8s.io` from documents."""

from __future__ import annotations

import json
import warnings

import pytest

from alignup import read_pod
from alignup.claims.objects import Toleration
from alignup.claims.read import Resources, claims_of_pod, read_resources
from alignup.errors import AlignupWarning, InputError

SLICE = """
apiVersion: resource.k8s.io/{version}
kind: ResourceSlice
metadata: {{name: s}}
spec:
  driver: gpu.example.com
  nodeName: node-a
  pool: {{name: node-a, generation: 1, resourceSliceCount: 1}}
  devices:
  - name: gpu-0
    {device}
"""
INNER = "attributes: {model: {string: a}}, capacity: {memory: {value: 80Gi}}"


@pytest.mark.parametrize(
    ("version", "device"),
    [
        ("v1", INNER.replace(", c", "\n    c")),
        ("v1beta2", INNER.replace(", c", "\n    c")),
        ("v1beta1", f"basic: {{{INNER}}}"),
    ],
)
def test_slices_of_all_versions_are_one_record(version, device) -> None:
    (resource_slice,) = read_resources(
        SLICE.format(version=version, device=device), "slices"
    ).slices
    assert (resource_slice.name, resource_slice.node_name, resource_slice.pool.name) == (
        "s",
        "node-a",
        "node-a",
    )
    (gpu,) = resource_slice.devices
    assert gpu.attributes["model"].values == ("a",)
    assert gpu.capacity["memory"].value == 80 * 2**30 * 10**9


def claim(version: str) -> dict[str, object]:
    exactly = {
        "deviceClassName": "gpu",
        "count": 2,
        "tolerations": [{"key": "k", "operator": "Exists"}],
    }
    request = (
        {"name": "r", **exactly} if version == "v1beta1" else {"name": "r", "exactly": exactly}
    )
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "n"},
        "spec": {"devices": {"requests": [request], "constraints": None}},
    }


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_claims_of_all_versions_are_one_record(version) -> None:
    (record,) = read_resources(
        json.dumps({"kind": "List", "items": [claim(version)]}), "claims"
    ).claims
    (request,) = record.requests
    assert str(record) == "n/c"
    assert request.exactly is not None
    assert (request.exactly.device_count, request.exactly.tolerations) == (
        2,
        (Toleration("k", "Exists"),),
    )


def test_an_allocation_is_read() -> None:
    results = [
        {
            "request": "r",
            "driver": "d",
            "pool": "p",
            "device": "x",
            "shareID": "1",
            "consumedCapacity": {"memory": "1Gi"},
        }
    ]

    document = {**claim("v1"), "status": {"allocation": {"devices": {"results": results}}}}
    (record,) = read_resources(json.dumps(document), "claims").claims
    assert record.allocated is not None
    assert record.allocated[0].consumed_capacity == {"memory": 2**30 * 10**9}


def test_a_pod_has_the_claims_that_it_names_and_those_of_its_templates() -> None:
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t", "namespace": "n"},
        "spec": {"spec": claim("v1")["spec"]},
    }
    resources = read_resources(
        json.dumps({"kind": "List", "items": [claim("v1"), template]}), "all"
    )
    references = [
        {"name": "a", "resourceClaimTemplateName": "t"},
        {"name": "b", "resourceClaimName": "c"},
    ]
    container = {"name": "c", "resources": {"claims": [{"name": "b"}]}}
    manifest = {
        "metadata": {"name": "pod", "namespace": "n"},
        "spec": {"resourceClaims": references, "containers": [container]},
    }
    with pytest.warns(AlignupWarning, match="are ignored"):
        pod = read_pod(manifest)

    assert [reference.containers for reference in pod.constraints.claims] == [(), ("c",)]
    assert [str(record) for record in claims_of_pod(pod, resources)] == ["n/pod-a", "n/c"]
    with pytest.raises(InputError, match="which is missing"):
        claims_of_pod(pod, Resources())


def test_what_decides_nothing_is_ignored_and_taint_rules_are_named() -> None:
    assert read_resources("kind: ConfigMap\n---\n", "file") == Resources()
    with pytest.warns(AlignupWarning, match="DeviceTaintRule"):
        read_resources("kind: DeviceTaintRule\nspec: {deviceSelector: {}}", "file")


@pytest.mark.parametrize(
    "spec", ["", "spec:", "spec: {taint: {key: a}}", "spec: {deviceSelector: null}"]
)
def test_a_taint_rule_without_selector_is_for_no_device(spec) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_resources(f"kind: DeviceTaintRule\n{spec}", "file")


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "kind: List\nitems: 3",
        "kind: List\nitems: [3]",
        "kind: ResourceSlice\napiVersion: v1",
        "kind: ResourceSlice\napiVersion: resource.k8s.io/v1alpha3\nmetadata: {name: a}",
        "kind: ResourceSlice\napiVersion: resource.k8s.io/v1\nspec: 3",
        "kind: ResourceSlice\napiVersion: resource.k8s.io/v1\nmetadata: {name: a}",
        SLICE.format(version="v1", device="capacity: {memory: {value: much}}"),
        SLICE.format(version="v1", device="attributes: {a: {int: 1.5}}"),
        SLICE.format(version="v1", device="attributes: 3"),
        (
            "kind: ResourceClaim\napiVersion: resource.k8s.io/v1\nmetadata: {name: a}\nspec: "
            "{devices: {requests: 3}}"
        ),
        (
            "kind: ResourceClaim\napiVersion: resource.k8s.io/v1\nmetadata: {name: a}\nspec: "
            "{devices: {requests: [{}]}}"
        ),
        (
            "kind: ResourceClaim\napiVersion: resource.k8s.io/v1\nmetadata: {name: a}\nstatus: "
            "{allocation: {devices: 1}}"
        ),
        "kind: DeviceClass\napiVersion: resource.k8s.io/v1\nmetadata: {name: a}\nspec: "
        + "[" * 60
        + "]" * 60,
    ],
)
def test_what_is_malformed_is_refused_in_one_line(text) -> None:
    with pytest.raises(InputError) as error:
        read_resources(text, "file")
    assert "\n" not in str(error.value)
