"""Claims whose devices count as CPU, memory or hugepages of the node (KEP-5517).

Kubernetes 1.37 has that behind a gate.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup import read_pod
from alignup.claims.objects import Allocated, Amount, Claim, Device, DeviceId
from alignup.claims.on_node import node_resources
from alignup.claims.question import AllocationError
from alignup.claims.scheduler_gates import gates_of
from alignup.errors import InputError
from alignup.kubernetes.node_fit import requests_of
from alignup.kubernetes.versions import PodReading
from alignup.node import Node
from alignup.text.typed import decode
from inputs.claims_on_nodes import is_told, outcome
from inputs.small_claims import class_of, slice_of, template
from inputs.vectors import vectors

GATE = "DRANodeAllocatableResources"
GIBI = 2**30
ONE = 10**9


def quiet(manifest: dict[str, Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read_pod(manifest)


def pod(
    name: str = "p", *, claim: dict[str, str] | None = None, whole: dict[str, Any] | None = None
) -> Any:
    """Return a pod of two containers with 2 CPUs each, both of which use its claim."""
    amounts = {"cpu": 2, "memory": "1Gi"}
    container = {"resources": {"claims": [{"name": "c"}], "requests": amounts, "limits": amounts}}
    spec: dict[str, Any] = {
        "resourceClaims": [{"name": "c", **(claim or {"resourceClaimTemplateName": "t"})}],
        "containers": [{"name": "main", **container}, {"name": "other", **container}],
    }
    return quiet(
        {"metadata": {"name": name}, "spec": spec | ({"resources": whole} if whole else {})}
    )


def counting(how: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    """Return the objects of a driver whose devices count so."""
    slices = slice_of([0, 0, 1, 1])
    for device in slices["spec"]["devices"]:
        device |= {"nodeAllocatableResources": how, **more}
    return [slices, class_of(), template()]


def node(resources: list[dict[str, Any]], *, gate: bool = True, cpu: str = "10") -> Node:
    made = Node.from_dict(
        {
            "machine": "xeon-2s",
            "kubeletVersion": "1.37",
            "kubelet": {"topologyManagerPolicy": "none", "featureGates": {GATE: gate}},
            "devices": {},
            "resources": resources,
            "nodeObject": {
                "kind": "Node",
                "metadata": {"name": "n"},
                "status": {"allocatable": {"cpu": cpu}},
            },
        }
    )

    made.whole_verdict = True
    return made


def test_a_device_that_is_cpus_counts_once_for_each_claim() -> None:
    resources = counting({"cpu": {"mapping": {"deviceMultiplier": "3"}}})
    at = node(resources)
    assert at.admit(pod())  # 4 of its containers, 3 of its claim
    refused = at.admit(pod("q"))
    assert refused.reason == "OutOfcpu"
    assert refused.refusal is not None
    assert refused.refusal.detail == (
        "Node didn't have enough resource: cpu, requested: 7000, used: 7000, capacity: 10000"
    )
    assert node(resources, gate=False).admit(pod())
    off = node(resources, gate=False)
    assert [bool(off.admit(pod(name))) for name in ("p", "q")] == [True, True]


def test_overhead_counts_for_the_pod_and_for_each_container_that_uses_the_claim() -> None:
    at = node(counting({"cpu": {"overhead": {"perPod": "1", "perContainer": "2500m"}}}))
    refused = at.try_admit(pod())
    assert refused
    short = node(counting({"cpu": {"overhead": {"perPod": "1", "perContainer": "2501m"}}}))
    refused = short.try_admit(pod())
    assert refused.refusal is not None
    assert "requested: 10002, used: 0, capacity: 10000" in refused.refusal.detail


def test_a_device_counts_by_what_is_taken_of_its_capacity() -> None:
    how = {"cpu": {"mapping": {"capacityKey": "example.com/cores", "capacityMultiplier": "2"}}}
    shared = {"allowMultipleAllocations": True, "capacity": {"example.com/cores": {"value": "8"}}}
    resources = counting(how, **shared)
    request = resources[-1]["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    request["capacity"] = {"requests": {"example.com/cores": "3"}}
    assert node(resources).try_admit(pod())
    request["capacity"] = {"requests": {"example.com/cores": "4"}}
    refused = node(resources).try_admit(pod())
    assert refused.reason == "OutOfcpu"

    alone = node(counting(how)).try_admit(pod())
    assert alone.refusal is not None
    assert (
        "ConsumedCapacity is nil, but Capacity key 'example.com/cores' is set"
        in alone.refusal.detail
    )


def test_a_claim_that_is_cpus_is_not_shared_and_one_with_overhead_is() -> None:
    named = {"resourceClaimName": "own"}
    claim = {
        **template()["spec"],
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "own"},
    }

    mapped = node([*counting({"cpu": {"mapping": {"deviceMultiplier": "1"}}})[:2], claim], cpu="90")
    assert mapped.admit(pod(claim=named))
    refused = mapped.admit(pod("q", claim=named))
    assert refused.reason == "Unschedulable"
    assert refused.refusal is not None
    assert (
        "claim own has a mapped device and cannot be shared across pods" in refused.refusal.detail
    )

    beside = node([*counting({"cpu": {"overhead": {"perPod": "1"}}})[:2], claim], cpu="90")
    assert [bool(beside.admit(pod(name, claim=named))) for name in ("p", "q")] == [True, True]


@pytest.mark.parametrize(("cpu", "fits"), [("7", True), ("6", False)])
def test_resources_of_the_pod_as_a_whole_have_to_cover_its_claims(cpu: str, fits: bool) -> None:
    amounts = {"cpu": cpu, "memory": "4Gi"}
    at = node(counting({"cpu": {"mapping": {"deviceMultiplier": "3"}}}), cpu="7")
    attempt = at.try_admit(pod(whole={"requests": amounts, "limits": amounts}))
    assert bool(attempt) is fits
    if attempt.refusal is not None:
        assert "pod level request for cpu is insufficient to cover" in attempt.refusal.detail


def test_the_status_of_a_pod_tells_what_its_claims_count_as() -> None:
    status = {
        "nodeAllocatableResourceClaimStatuses": [
            {
                "resourceClaimName": "c",
                "containers": ["main", "other"],
                "mapping": [{"name": "cpu", "quantity": "1500m"}],
                "overhead": [
                    {"name": "memory", "perPod": "1Gi", "perContainer": "2Gi"},
                    {"name": "cpu"},
                ],
            },
            {"resourceClaimName": "d", "mapping": [{"name": "cpu", "quantity": "250m"}]},
        ]
    }

    made = quiet(
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}]}, "status": status}
    )
    assert requests_of(made) == {}
    assert requests_of(made.read_as(PodReading(claims_count=True))) == {
        "cpu": 1750,
        "memory": 5 * GIBI,
    }


def test_pods_request_what_the_scheduler_and_the_kubelet_count() -> None:
    """Recorded of `PodRequests` of k8s.io/component-helpers 0.37.2, with the gate on."""
    compared = 0
    for case in vectors("claims/requests", own=True):
        pod = quiet(case["pod"]).read_as(PodReading(claims_count=True))
        assert requests_of(pod) == case["requests"], case["pod"]
        compared += bool(pod.constraints.claimed)
    assert compared > 100


def test_devices_of_a_pool_that_is_being_updated_count_for_claims_that_have_them() -> None:
    resources = counting({"cpu": {"mapping": {"deviceMultiplier": "3"}}})[:2]
    driver = resources[0]["spec"]["driver"]
    result = {"request": "r", "driver": driver, "pool": "n", "device": "d0"}
    own = {**template()["spec"], "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    own |= {
        "metadata": {"name": "own"},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }
    resources[0]["spec"]["pool"]["resourceSliceCount"] = 2
    claimant = pod(claim={"resourceClaimName": "own"})
    assert node([*resources, own], cpu="7").try_admit(claimant)
    assert node([*resources, own], cpu="6").try_admit(claimant).reason == "OutOfcpu"


def test_other_releases_have_no_such_devices() -> None:
    assert gates_of("1.37", {GATE: True}).node_resources
    assert not gates_of("1.37").node_resources
    with pytest.raises(InputError, match=GATE):
        gates_of("1.36", {GATE: True})


amounts_ = st.integers(0, 5 * ONE)
ways = st.fixed_dictionaries(
    {},
    optional={
        "mapping": st.one_of(
            st.builds(lambda n: {"deviceMultiplier": f"{n}n"}, amounts_),
            st.builds(lambda n: {"capacityKey": "k", "capacityMultiplier": f"{n}n"}, amounts_),
        ),
        "overhead": st.fixed_dictionaries(
            {},
            optional={
                "perPod": amounts_.map("{}n".format),
                "perContainer": amounts_.map("{}n".format),
            },
        ),
    },
)


@given(
    devices=st.lists(st.dictionaries(st.sampled_from(["cpu", "memory"]), ways), max_size=3),
    taken=st.none() | st.fixed_dictionaries({}, optional={"k": amounts_}),
    users=st.integers(0, 3),
)
def test_amounts_are_sums_over_devices(
    devices: list[dict[str, Any]], taken: dict[str, int] | None, users: int
) -> None:
    records = {
        DeviceId("d", "p", str(place)): decode(
            {"name": str(place), "nodeAllocatableResources": how}, Device, "device", own=Amount
        )
        for place, how in enumerate(devices)
    }
    got = None if taken is None else {name: Amount(amount) for name, amount in taken.items()}
    claim = Claim("c", allocated=tuple(Allocated(*id_, consumed_capacity=got) for id_ in records))
    text = json.dumps(devices)
    if got is None and "capacityKey" in text:
        with pytest.raises(AllocationError, match="ConsumedCapacity is nil"):
            node_resources(claim, records, users, gates_of())
        return

    expected = {"cpu": 0, "memory": 0}
    for device in devices:
        for name, how in device.items():
            mapping, overhead = how.get("mapping", {}), how.get("overhead", {})
            whole = {
                key: int(value[:-1])
                for key, value in {**mapping, **overhead}.items()
                if key != "capacityKey"
            }
            expected[name] += whole.get("perPod", 0) + users * whole.get("perContainer", 0)
            expected[name] += whole.get("deviceMultiplier", 0)
            expected[name] += -(
                -(taken or {}).get("k", 0) * whole.get("capacityMultiplier", 0) // ONE
            )

    assert {
        name: amount
        for name, amount in node_resources(claim, records, users, gates_of()).items()
        if amount
    } == {name: amount for name, amount in expected.items() if amount}


def test_resources_of_the_pod_as_a_whole_are_checked_as_by_the_scheduler() -> None:
    """Recorded of `DynamicResources` of kube-scheduler 1.37.2; `rig/cmd/allocator` asks it."""
    kinds = Counter[str]()
    for case in vectors("claims/levels", own=True):
        refusal, requests = outcome(case)
        assert is_told(case["expect"], refusal, requests), (case["pod"], refusal, requests)
        kinds[" ".join(refusal.split()[:3])] += 1
    assert kinds["pod level limit"] > 20
    assert kinds["pod level request"] > 100
    assert kinds[""] > 100


@pytest.mark.parametrize(("limit", "fits"), [("5500m", True), ("5499m", False)])
def test_a_container_and_the_claims_that_it_uses_stay_within_the_limit_of_the_pod(
    limit: str, fits: bool
) -> None:
    """It may have 2 CPUs, and 3.5 of its claim; what is requested is less."""
    at = node(
        counting(
            {"cpu": {"mapping": {"deviceMultiplier": "3"}, "overhead": {"perContainer": "500m"}}}
        ),
        cpu="20",
    )
    amounts = {"requests": {"cpu": "5", "memory": "4Gi"}, "limits": {"cpu": limit, "memory": "4Gi"}}
    resources = {
        "requests": {"cpu": "100m", "memory": "1Gi"},
        "limits": {"cpu": 2, "memory": "1Gi"},
    }
    spec = {
        "resources": amounts,
        "resourceClaims": [{"name": "c", "resourceClaimTemplateName": "t"}],
        "containers": [{"name": "main", "resources": {**resources, "claims": [{"name": "c"}]}}],
    }

    attempt = at.try_admit(quiet({"metadata": {"name": "p"}, "spec": spec}))
    assert bool(attempt) is fits
    if attempt.refusal is not None:
        assert (
            "pod level limit for cpu is insufficient to cover the limit and DRA overhead for "
            "container main"
        ) in (attempt.refusal.detail)
