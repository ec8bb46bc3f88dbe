"""What a pod's claims would come to is told before the pod is there, with changes that help."""

from __future__ import annotations

from typing import Any

import pytest

from alignup import read_pod
from alignup.claims.preview import ClaimsOutcome, preview_claims
from alignup.node import Node
from inputs.claims_on_nodes import node_with_claims, pod_with_claim
from inputs.small_claims import DRIVER, NUMA, class_of, slice_of, template


def cpu_slice(*, grouped: bool) -> dict[str, Any]:
    """Return what a driver of CPUs publishes: a device for each CPU, or for each NUMA node."""
    if not grouped:
        return slice_of([0, 0, 0, 1, 1, 1], driver="dra.cpu")

    published = slice_of([0, 1], driver="dra.cpu")
    for device in published["spec"]["devices"]:
        device |= {"allowMultipleAllocations": True, "capacity": {"dra.cpu/cpu": {"value": "32"}}}

    return published


@pytest.mark.parametrize("grouped", [False, True])
def test_the_driver_of_cpus_helps_where_it_has_enough_on_one_node(grouped: bool) -> None:
    at = node_with_claims(
        [slice_of([1]), class_of(), class_of("dra.cpu"), cpu_slice(grouped=grouped), template()]
    )
    preview = preview_claims(at, pod_with_claim(cpu=2))
    assert preview is not None
    (line,) = (advice for advice in preview.helps if "dra.cpu" in advice)
    amount = "a device with capacity dra.cpu/cpu of 2" if grouped else "2 devices"
    assert (
        f"request for {amount} of class dra.cpu and the constraint matchAttribute {NUMA} in "
        "default/p-c"
    ) in line
    asking = template(1 if grouped else 2, "dra.cpu", name="t")["spec"]["spec"]["devices"][
        "requests"
    ][0]
    if grouped:
        asking["exactly"]["capacity"] = {"requests": {"dra.cpu/cpu": "2"}}

    helped = template()
    helped["spec"]["spec"]["devices"]["requests"].append({**asking, "name": "cpus"})
    helped["spec"]["spec"]["devices"]["constraints"] = [{"matchAttribute": NUMA}]
    improved = node_with_claims(
        [slice_of([1]), class_of(), class_of("dra.cpu"), cpu_slice(grouped=grouped), helped]
    )
    bare = preview_claims(improved, pod_with_claim(cpu=2))
    assert bare is not None
    assert {device.numa_nodes for device in bare.devices} == {(1,)}


def test_the_driver_of_cpus_is_no_help_where_it_has_too_few() -> None:
    at = node_with_claims(
        [slice_of([1]), class_of(), class_of("dra.cpu"), cpu_slice(grouped=False), template()]
    )
    preview = preview_claims(at, pod_with_claim(cpu=4))
    assert preview is not None
    assert preview.meet is False
    assert not [advice for advice in preview.helps if "dra.cpu" in advice]


def test_a_misalignment_is_foretold_and_each_help_helps() -> None:
    resources = [slice_of([1, 0]), class_of(), template()]
    at = node_with_claims(resources)
    preview = preview_claims(at, pod_with_claim())
    assert preview is not None
    assert ([device.numa_nodes for device in preview.devices], preview.meet) == ([(1,)], False)
    selector = 'device.attributes["resource.kubernetes.io"].numaNode == 0'
    assert any(selector in advice for advice in preview.helps)
    assert any("draHints" in advice for advice in preview.helps)
    assert not at.pods  # nothing has changed

    helped = [*resources[:2], template(selectors=[{"cel": {"expression": selector}}])]
    better = preview_claims(node_with_claims(helped), pod_with_claim())
    assert better is not None
    assert (better.meet, better.helps) == (True, ())

    hinted = preview_claims(node_with_claims(resources, hints=True), pod_with_claim())
    assert hinted is not None
    assert hinted.meet is True


def test_a_smaller_request_may_help() -> None:
    preview = preview_claims(
        node_with_claims([slice_of([0, 1]), class_of(), template(2)]), pod_with_claim()
    )
    assert preview is not None
    assert preview.meet is False
    assert any(advice.startswith("ask for at most 1 devices") for advice in preview.helps)


def test_constraints_join_devices_of_several_drivers() -> None:
    nic = "nic.example.com"
    resources = [
        slice_of([0]),
        slice_of([1, 0], driver=nic),
        class_of(),
        class_of(nic),
        template(1, DRIVER, nic),
    ]
    preview = preview_claims(node_with_claims(resources), pod_with_claim())
    assert preview is not None
    assert preview.meet is False
    assert any(f"matchAttribute {NUMA}" in advice for advice in preview.helps)


def test_where_nothing_is_exclusive_it_cannot_be_told() -> None:
    shared = pod_with_claim(cpu=2).renamed(uid="x")
    resources = [slice_of([1]), class_of(), template()]
    at = Node.from_dict(
        {"machine": "xeon-2s", "kubelet": {}, "devices": {}, "resources": resources}
    )
    preview = preview_claims(at, shared)
    assert preview is not None
    assert preview.meet is None
    unknown = preview_claims(
        node_with_claims([slice_of([None]), class_of(), template()]), pod_with_claim()
    )
    assert unknown is not None
    assert unknown.meet is None


def test_a_refusal_says_what_was_free() -> None:
    preview = preview_claims(
        node_with_claims([slice_of([0]), class_of(), template(2)]), pod_with_claim()
    )
    assert preview is not None
    assert "of 1 devices: 1 free" in preview.refusal
    assert "ask for 1" in preview.refusal


def test_a_pod_without_claims_has_no_outcome() -> None:
    at = node_with_claims([slice_of([0]), class_of(), template()])
    plain = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    assert preview_claims(at, read_pod(plain)) is None
    without_provider = Node.from_dict({"machine": "xeon-2s", "kubelet": {}, "devices": {}})
    assert preview_claims(without_provider, pod_with_claim()) is None


def test_changes_are_looked_for_on_request_only() -> None:
    at = node_with_claims([slice_of([1]), class_of(), template()])
    outcome = preview_claims(at, pod_with_claim(), suggest=False)
    assert outcome is not None
    assert (outcome.meet, outcome.helps) == (False, ())


def test_fewer_cpus_may_help() -> None:
    """The reserved CPU is near the device: only far from it all CPUs of a NUMA node are free."""
    at = node_with_claims([slice_of([0]), class_of(), template()])
    outcome = preview_claims(at, pod_with_claim(cpu=64))
    assert outcome is not None
    assert (outcome.meet, outcome.helps) == (False, ("ask for 63 CPUs in container main",))


def test_an_outcome_is_plain_data() -> None:
    at = node_with_claims([slice_of([0, 1]), class_of(), template()])
    outcome = preview_claims(at, pod_with_claim())
    assert outcome is not None

    assert outcome.to_dict() == {
        "devices": [
            {
                "claim": "default/p-c",
                "request": "gpu",
                "driver": DRIVER,
                "pool": "n",
                "device": "d0",
                "numaNodes": [0],
            }
        ],
        "meet": True,
        "helps": [],
    }
    assert ClaimsOutcome(refusal="no").to_dict()["refusal"] == "no"
