"""Extended resources that classes of devices serve; see tests/conformance for the scheduler's."""

from __future__ import annotations

from random import Random

import pytest

from alignup import Node, read_machine, read_pod
from alignup.claims.extended_resources import ExtendedResources, with_resources
from alignup.claims.objects import DeviceClass
from alignup.claims.preview import preview_claims
from alignup.claims.scheduler_gates import gates_of
from inputs.small_claims import DRIVER, NUMA, class_of, slice_of

GPU = "example.com/gpu"
IMPLICIT = f"deviceclass.resource.kubernetes.io/{DRIVER}"
NEWEST = gates_of("1.37")
SERVED = ExtendedResources({GPU: DRIVER, IMPLICIT: DRIVER})


def serving(name: str, created: str = "", resource: str = GPU) -> DeviceClass:
    return DeviceClass(name, extended_resource_name=resource, created=created)


def container(name: str, count: int, resource: str = GPU, **fields) -> dict:
    limits = {"cpu": "1", "memory": "1Gi", resource: str(count)}
    return {"name": name, "image": "i", "resources": {"limits": limits}, **fields}


def pod_of(*containers: dict, init=(), **metadata):
    spec = {"containers": list(containers), "initContainers": list(init)}
    return read_pod({"metadata": {"name": "p", **metadata}, "spec": spec})


def asked_for(pod, served=SERVED, offered=lambda _: None):
    """Return the requests of the claim for a pod, and who uses which."""
    pod = served.on_node(pod, offered)
    requests = {
        request.name: request.exactly.count
        for request in served.claim(pod).requests
        if request.exactly
    }
    return requests, {(use.container, use.request) for use in served.uses(pod)}


def node_of(*documents: dict, devices=None, **fields) -> Node:
    serving_class = class_of()
    serving_class["spec"]["extendedResourceName"] = GPU
    machine = read_machine("xeon-2s")
    data = {"machine": machine.to_dict(), "devices": devices or {}, **fields}
    return Node.from_dict({**data, "resources": [serving_class, *documents]})


@pytest.mark.parametrize("seed", range(10))
def test_the_youngest_class_serves_a_resource_and_of_these_the_first_by_name(seed) -> None:
    classes = [
        serving("old", "2026-01-01T00:00:00Z"),
        serving("b", "2026-01-02T00:00:00Z"),
        serving("c", "2026-01-02T00:00:00Z"),
        DeviceClass("plain"),
    ]
    Random(seed).shuffle(classes)
    served = ExtendedResources.of(classes, NEWEST).classes
    assert served.pop(GPU) == "b"
    assert served == {
        f"deviceclass.resource.kubernetes.io/{name}": name for name in ("old", "b", "c", "plain")
    }


@pytest.mark.parametrize(
    ("release", "is_served"), [("1.34", False), ("1.35", False), ("1.36", True), ("1.38", True)]
)
def test_it_goes_by_a_gate_of_the_release(release: str, *, is_served: bool) -> None:
    assert bool(ExtendedResources.of([serving("gpu")], gates_of(release)).classes) is is_served
    gates = gates_of(release, {"DRAExtendedResource": not is_served})
    assert bool(ExtendedResources.of([serving("gpu")], gates).classes) is not is_served


def test_1_34_knows_no_implicit_names_and_lets_no_container_use_anothers_devices() -> None:
    gates = gates_of("1.34", {"DRAExtendedResource": True})
    served = ExtendedResources.of([serving("gpu"), DeviceClass("plain")], gates)
    assert served.classes == {GPU: "gpu"}

    pod = pod_of(container("c", 2), init=[container("i", 2)])
    requests, _ = asked_for(pod, served)
    assert requests == {"container-0-request-1": 2, "container-1-request-1": 2}
    assert asked_for(pod, served, offered=lambda _: 0) == ({}, set())
    assert asked_for(pod, offered=lambda _: 0)[0] == {"container-1-request-1": 2}


@pytest.mark.parametrize("resource", ["kubernetes.io/gpu", "a.kubernetes.io/b", "requests.x/gpu"])
def test_names_of_kubernetes_own_are_not_served(resource: str) -> None:
    served = ExtendedResources.of([serving("gpu", resource=resource)], NEWEST)
    assert list(served.classes) == ["deviceclass.resource.kubernetes.io/gpu"]


def test_a_request_is_named_by_the_places_of_container_and_resource() -> None:
    pod = pod_of(container("a", 1), container("b", 2), container("c", 1, IMPLICIT))
    requests, uses = asked_for(pod)
    assert requests == {
        "container-0-request-1": 1,
        "container-1-request-1": 2,
        "container-2-request-1": 1,
    }
    assert uses == {(name, f"container-{place}-request-1") for place, name in enumerate("abc")}


def test_requests_are_ordered_by_name_and_not_by_place() -> None:
    pod = pod_of(*(container(f"c{number}", 1) for number in range(12)))
    served = SERVED.on_node(pod, lambda _: None)
    names = [request.name for request in SERVED.claim(served).requests]
    assert names[:3] == ["container-0-request-1", "container-1-request-1", "container-10-request-1"]


def test_init_containers_use_what_later_ones_have_and_share_the_rest() -> None:
    pod = pod_of(
        container("c", 2),
        container("d", 1),
        init=[
            container("small", 1),
            container("side", 1, restartPolicy="Always"),
            container("large", 5),
            container("larger", 6),
        ],
    )
    requests, uses = asked_for(pod)
    assert requests == {
        "container-1-request-1": 1,
        "container-3-request-1": 3,
        "container-4-request-1": 2,
        "container-5-request-1": 1,
    }
    by_container = {
        name: sorted(request for user, request in uses if user == name)
        for name in ("small", "side", "large", "larger")
    }
    shared = [f"container-{place}-request-1" for place in (3, 4, 5)]
    assert by_container == {
        "small": ["container-1-request-1"],
        "side": ["container-1-request-1"],
        "large": shared,
        "larger": shared,
    }


def test_a_pod_without_such_resources_stays_as_it_is() -> None:
    plain = pod_of(container("c", 1, "example.com/other"))
    assert SERVED.on_node(plain, lambda _: None) is plain
    asking = pod_of(container("c", 1))
    assert SERVED.on_node(asking, lambda _: 4) is asking
    assert not SERVED.problem(asking)


@pytest.mark.parametrize(
    ("pod", "are_asked"),
    [
        (pod_of(container("c", 1)), True),
        (pod_of(container("c", 0), container("d", 2)), True),
        (pod_of(container("c", 0)), False),
        (pod_of(container("c", 1, "example.com/nic")), False),
    ],
)
def test_a_pod_asks_for_such_resources_by_count(pod, are_asked: bool) -> None:
    assert SERVED.are_asked_by(pod) is are_asked
    assert not ExtendedResources().are_asked_by(pod)


def test_a_pod_is_read_for_one_node_after_another() -> None:
    pod = pod_of(container("c", 1))
    first = SERVED.on_node(pod, lambda _: None)
    assert SERVED.on_node(first, lambda _: None).constraints == first.constraints
    assert SERVED.on_node(first, lambda _: 4).constraints == pod.constraints


def status_of(claim_name: str) -> dict:
    mapping = {"containerName": "c", "resourceName": GPU, "requestName": "container-0-request-1"}
    status = {"resourceClaimName": claim_name, "requestMappings": [mapping]}
    return {"extendedResourceClaimStatus": status}


def made_claim(device: str) -> dict:
    result = {"request": "container-0-request-1", "driver": DRIVER, "pool": "n", "device": device}
    exactly = {"deviceClassName": DRIVER, "count": 1}
    requests = [{"name": "container-0-request-1", "exactly": exactly}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "p-extended-resources-x", "namespace": "default"},
        "spec": {"devices": {"requests": requests}},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }


def test_the_claim_that_a_status_names_is_kept_if_it_is_there() -> None:
    manifest = {
        "metadata": {"name": "p"},
        "spec": {"containers": [container("c", 1)]},
        "status": status_of("p-extended-resources-x"),
    }
    with_claim = node_of(slice_of([0, 1]), made_claim("d1"))
    assert with_claim.admit(manifest)
    assert with_claim.claims is not None
    (device,) = with_claim.claims.devices("default/p")
    assert (device.claim, device.id.device) == ("default/p-extended-resources-x", "d1")

    without = node_of(slice_of([0, 1]))
    assert without.admit(manifest)
    assert without.claims is not None
    (device,) = without.claims.devices("default/p")
    assert (device.claim, device.id.device) == ("default/p-extended-resources", "d0")


def test_devices_that_a_claim_stands_for_are_not_asked_of_a_plugin() -> None:
    sick = [{"id": "g0", "numa": 0, "healthy": False}]
    node = node_of(slice_of([0, 1]), devices={GPU: sick})
    admission = node.admit(pod_of(container("c", 2)))
    assert admission
    assert admission.containers["c"].devices == {}
    assert node.claims is not None
    assert [device.id.device for device in node.claims.devices("default/p")] == ["d0", "d1"]

    refusal = node.admit(pod_of(container("c", 1), uid="another"))
    assert (refusal.reason, refusal.message) == (
        "Unschedulable",
        "container 'c': cannot allocate all claims",
    )
    node.remove("default/p")
    assert node.admit(pod_of(container("c", 1), uid="another"))


def test_a_plugin_that_has_devices_serves_them() -> None:
    node = node_of(slice_of([0, 1]), devices={GPU: [{"id": "g0", "numa": 0}]})
    admission = node.admit(pod_of(container("c", 1)))
    assert admission.containers["c"].devices == {GPU: ("g0",)}
    assert node.claims is not None
    assert not node.claims.devices("default/p")


def test_the_node_object_says_what_plugins_offer() -> None:
    node_object = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {GPU: "0"}}}
    devices = {GPU: [{"id": "g0", "numa": 0}]}
    node = node_of(slice_of([0, 1]), devices=devices, nodeObject=node_object)
    assert node.admit(pod_of(container("c", 1))).containers["c"].devices == {}


def test_a_pod_with_claims_whose_resources_a_plugin_offers_is_not_bound() -> None:
    """A fault of kube-scheduler, of 1.35 to 1.38.0-beta.0."""
    own = {**made_claim("d1"), "metadata": {"name": "own", "namespace": "default"}}
    manifest = {
        "metadata": {"name": "p"},
        "spec": {
            "containers": [container("c", 1)],
            "resourceClaims": [{"name": "x", "resourceClaimName": "own"}],
        },
    }
    node = node_of(slice_of([0, 1]), own, devices={GPU: [{"id": "g0", "numa": 0}]})
    with pytest.warns(match="resource claims"):
        pod = read_pod(manifest)

    refusal = node.try_admit(pod)
    assert refusal.reason == "Unschedulable"
    assert "nil or empty request mappings, no update of pod default/p" in refusal.message
    assert node.claims is not None
    assert node.claims.why_not(node.read(pod)).startswith("nil or empty request mappings")
    assert node_of(slice_of([0, 1]), own).try_admit(pod)


def test_each_container_is_near_the_devices_that_it_uses_or_it_is_not() -> None:
    """Each has CPUs, and a device, of another NUMA node."""
    kubelet = {
        "topologyManagerPolicy": "single-numa-node",
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
    }
    machine = read_machine("xeon-2s")
    most = machine.node_cpus[1].bit_count()
    large = container("b", 1)
    large["resources"]["limits"]["cpu"] = str(most)
    small = container("a", 1)
    small["resources"]["limits"]["cpu"] = "2"
    for numa_nodes, meets in (([0, 1], True), ([1, 0], False)):
        node = node_of(slice_of(numa_nodes), kubelet=kubelet)
        pod = node.read(pod_of(small, large))
        admission = node.admit(pod)
        assert admission
        assert node.claims is not None
        assert node.claims.are_aligned(pod, admission.containers) is meets


def test_requests_are_called_by_resource_and_containers() -> None:
    pod = SERVED.on_node(pod_of(container("c", 1), init=[container("i", 1)]), lambda _: None)
    text = "claim x, request container-1-request-1; container-1-request-11"
    assert with_resources(text, SERVED.uses(pod)) == (
        f"claim x, request {GPU} of containers c and i; container-1-request-11"
    )


def test_what_brings_devices_and_cpus_together_is_told_of_a_claim_of_the_pods_own() -> None:
    """Nobody can add a constraint to the claim that the scheduler makes."""
    kubelet = {
        "topologyManagerPolicy": "single-numa-node",
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
    }
    node = node_of(slice_of([0, 1, 0]), kubelet=kubelet)
    outcome = preview_claims(node, pod_of(container("c", 2), init=[container("i", 1)]))
    assert outcome is not None
    assert outcome.meet is False
    advice = [text for text in outcome.helps if "matchAttribute" in text]
    added = f"add the constraint matchAttribute {NUMA} in default/p-extended-resources"
    assert advice == [f"ask by a ResourceClaim in place of {GPU}, and {added}"]
    assert f"ask for at most 1 {GPU} a container in default/p-extended-resources" in outcome.helps

    # as told
    exactly = {"deviceClassName": DRIVER, "count": 2}
    own = {**made_claim("d0"), "metadata": {"name": "own", "namespace": "default"}, "status": {}}
    own["spec"]["devices"] = {
        "requests": [{"name": "r", "exactly": exactly}],
        "constraints": [{"matchAttribute": NUMA}],
    }
    limits = {"cpu": "1", "memory": "1Gi"}
    manifest = {
        "metadata": {"name": "p"},
        "spec": {
            "containers": [
                {"name": "c", "resources": {"limits": limits, "claims": [{"name": "x"}]}}
            ],
            "resourceClaims": [{"name": "x", "resourceClaimName": "own"}],
        },
    }
    with pytest.warns(match="resource claims"):
        pod = read_pod(manifest)

    changed = preview_claims(node_of(slice_of([0, 1, 0]), own, kubelet=kubelet), pod)
    assert changed is not None
    assert changed.meet is True
