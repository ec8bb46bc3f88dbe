"""The types of Kubernetes objects have the fields that these have on the wire."""

from __future__ import annotations

import re

import msgspec
import pytest

from alignup.kubernetes import wire
from alignup.kubernetes.versions import known_names

STRUCTS = [
    kind
    for kind in vars(wire).values()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind is not msgspec.Struct
]

POD = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"generateName": "web-", "namespace": "shop", "managedFields": [{}]},
    "spec": {
        "initContainers": [{"name": "i", "restartPolicy": "Always"}],
        "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": 2}}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
        "hostNetwork": True,
        "priorityClassName": "high",
    },
    "status": {
        "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "1"}}],
        "nodeAllocatableResourceClaimStatuses": [
            {"containers": ["c"], "mapping": [{"name": "cpu", "perPod": "1", "perContainer": 2}]}
        ],
    },
}


@pytest.mark.parametrize("kind", STRUCTS)
def test_fields_are_called_as_on_the_wire(kind):
    """Words are joined by capitals, as the API has it; CPUs alone are in capitals as a whole."""
    for field in msgspec.structs.fields(kind):
        joined = re.sub(r"_([a-z])", lambda match: match[1].upper(), field.name)
        assert field.encode_name == joined.replace("Cpus", "CPUs")


@pytest.mark.parametrize("kind", STRUCTS)
def test_what_is_not_there_has_a_default(kind):
    """But for the names of claims and resources, which no object lacks."""
    needed = set()
    if kind in {wire.ClaimWire, wire.ClaimAmountWire}:
        needed.add("name")

    assert {field.name for field in msgspec.structs.fields(kind) if field.required} == needed


def test_a_pod_is_read_with_the_fields_that_matter():
    """Quantities are texts or numbers, and fields of no matter here are passed over."""
    pod = msgspec.convert(POD, wire.PodWire)

    assert (pod.kind, pod.api_version) == ("Pod", "v1")
    assert (pod.metadata.generate_name, pod.metadata.namespace) == ("web-", "shop")
    assert pod.metadata.name is None

    (init,) = pod.spec.init_containers
    (container,) = pod.spec.containers
    assert (init.restart_policy, container.restart_policy) == ("Always", None)
    assert container.resources == wire.ResourcesWire(limits={"cpu": 2})
    assert pod.spec.resource_claims == [wire.ClaimWire("gpu", resource_claim_template_name="t")]
    assert (pod.spec.host_network, pod.spec.priority_class_name) == (True, "high")

    (status,) = pod.status.container_statuses
    (claimed,) = pod.status.node_allocatable_resource_claim_statuses
    assert status.allocated_resources == {"cpu": "1"}
    assert claimed.mapping == [wire.ClaimAmountWire("cpu", per_pod="1", per_container=2)]


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"metadata": {"labels": {"a": 1}}}, r"\$\.metadata\.labels\[\.\.\.\]"),
        ({"spec": {"containers": {}}}, r"\$\.spec\.containers"),
        ({"spec": {"nodeSelector": []}}, r"\$\.spec\.nodeSelector"),
        ({"spec": {"resourceClaims": [{}]}}, r"\$\.spec\.resourceClaims\[0\]"),
        ({"status": {"containerStatuses": [3]}}, r"\$\.status\.containerStatuses\[0\]"),
    ],
)
def test_a_field_of_another_type_is_refused_with_its_place(document, place):
    with pytest.raises(msgspec.ValidationError, match=f"`{place}`$"):
        msgspec.convert(document, wire.PodWire)


def test_metadata_of_any_object_are_in_the_default_namespace():
    owner = {"kind": "Job", "name": "j", "uid": "u", "controller": True, "apiVersion": "batch/v1"}
    metadata = msgspec.convert({"name": "a", "ownerReferences": [owner]}, wire.Metadata)

    assert metadata.namespaced_name == "default/a"
    assert metadata.owner_references == [wire.Owner("Job", "j", "u", True)]
    assert wire.Metadata(name="a", namespace="shop").namespaced_name == "shop/a"


def test_the_fields_of_a_configuration_are_those_of_kubelets():
    """Of which more are known than are read."""
    fields = set(wire.CONFIGURATION_FIELDS)

    assert len(fields) == len(wire.CONFIGURATION_FIELDS)
    assert fields < known_names("KubeletConfiguration")
    assert {"reservedSystemCPUs", "topologyManagerPolicyOptions"} <= fields
