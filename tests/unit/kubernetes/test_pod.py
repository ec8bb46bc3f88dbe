"""What the managers make of a pod's requests and limits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup import read_pod
from alignup.errors import InputError
from alignup.kubernetes.pod import (
    QOSClass,
    is_device,
    is_hugepages,
    is_pinned_memory,
    qos_class,
    why_shared,
)
from alignup.kubernetes.versions import PodLevel, PodReading, StatusRequests

AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "hugepages-2Mi", "example.com/gpu"]),
    st.integers(0, 3),
    max_size=4,
)

AS_1_36 = PodReading(empty_pod_resources_ignored=False, pod_limits_defaulted_by_api_server=False)

BOTH = {"cpu": "2", "memory": "2"}

ONE = ({}, {"cpu": 1, "memory": 1})

WHOLE = {"limits": {"cpu": "2", "memory": "1Gi"}}


def section(amounts):
    """The quantities of small numbers."""
    quantities = {}
    for name, number in amounts.items():
        quantities[name] = f"{2 * number}Mi" if "huge" in name else f"{number}"
    return quantities


def manifest(init=(), containers=(), pod=None):
    """A manifest of containers given as (requests, limits).

    Of init containers there is a third: whether it is a sidecar.
    """
    spec = {"initContainers": [], "containers": []}
    for index, (requests, limits, *sidecar) in enumerate([*init, *containers]):
        resources = {"requests": section(requests), "limits": section(limits)}
        container = {"name": f"c{index}", "resources": resources}
        if sidecar and sidecar[0]:
            container["restartPolicy"] = "Always"

        if index < len(init):
            spec["initContainers"].append(container)
        else:
            spec["containers"].append(container)

    if pod is not None:
        spec["resources"] = pod
    return {"metadata": {"name": "p"}, "spec": spec}


@pytest.mark.parametrize(
    ("init", "containers", "qos"),
    [
        ([], [({}, {})], "BestEffort"),
        ([], [({"cpu": 0, "memory": 0}, {"cpu": 0})], "BestEffort"),
        ([], [({}, {"example.com/gpu": 1})], "BestEffort"),
        ([], [({}, {"cpu": 1, "memory": 1})], "Guaranteed"),
        ([], [({"cpu": 1, "memory": 1}, {"cpu": 1, "memory": 1})], "Guaranteed"),
        ([], [({"cpu": 1, "memory": 1}, {"cpu": 2, "memory": 1})], "Burstable"),
        ([], [({"cpu": 0}, {"cpu": 1, "memory": 1})], "Burstable"),
        ([], [({}, {"cpu": 1})], "Burstable"),
        ([], [({"cpu": 1, "memory": 1}, {})], "Burstable"),
        ([], [({}, {"cpu": 1, "memory": 1}), ({}, {})], "Burstable"),
        ([({}, {}, False)], [({}, {"cpu": 1, "memory": 1})], "Burstable"),
        ([({}, {"cpu": 1, "memory": 2}, True)], [({}, {"cpu": 1, "memory": 1})], "Guaranteed"),
    ],
)
def test_qos_follows_the_api(init, containers, qos):
    assert read_pod(manifest(init, containers)).qos == qos


@pytest.mark.parametrize(
    ("requests", "exclusive", "qos"),
    [
        ("2", 2, "Guaranteed"),
        ("1500m", 0, "Guaranteed"),
        ("2000m", 2, "Guaranteed"),
        ("1999.9999m", 2, "Guaranteed"),
        ("0", 0, "Burstable"),
    ],
)
def test_only_whole_cpus_are_exclusive(requests, exclusive, qos):
    amounts = {"cpu": requests, "memory": "1Gi"}
    resources = {"requests": amounts, "limits": amounts}
    spec = {"containers": [{"name": "c", "resources": resources}]}
    pod = read_pod({"metadata": {"name": "p"}, "spec": spec})
    assert (pod.exclusive_cpus, pod.containers[0].exclusive_cpus, pod.qos) == (
        exclusive,
        exclusive,
        qos,
    )


def test_a_burstable_pod_gets_devices_and_nothing_else():
    pod = read_pod(manifest([], [({"cpu": 1}, {"cpu": 2, "memory": 1, "example.com/gpu": 2})]))
    assert pod.qos is QOSClass.BURSTABLE
    assert (pod.exclusive_cpus, pod.memory, pod.devices) == (0, (), (("example.com/gpu", 2),))
    assert pod.containers[0].requests == {"cpu": 1000, "memory": 1, "example.com/gpu": 2}


def test_zero_amounts_stay_in_the_record_as_the_managers_see_them():
    """The memory manager computes hints for zero pages, and the device manager for zero devices."""
    limits = {"cpu": 1, "memory": 1, "hugepages-2Mi": 0, "example.com/gpu": 0}
    container = read_pod(manifest([], [({}, limits)])).containers[0]
    assert container.memory == (("hugepages-2Mi", 0), ("memory", 1))
    assert container.devices == (("example.com/gpu", 0),)


def guaranteed(amounts):
    """The positive amounts, with CPU and memory among them."""
    return {"cpu": 1, "memory": 1} | {name: number for name, number in amounts.items() if number}


def peak(init, containers, resource):
    """The definition of KEP-753: the most that is needed at one time, walked moment by moment."""
    sidecars = 0
    moments = []
    for amounts, is_sidecar in init:
        moments.append(sidecars + amounts.get(resource, 0))
        if is_sidecar:
            sidecars += amounts.get(resource, 0)
    moments.append(sidecars + sum(amounts.get(resource, 0) for amounts in containers))
    return max(moments)


@given(
    st.lists(st.tuples(AMOUNTS, st.booleans()), max_size=4),
    st.lists(AMOUNTS, min_size=1, max_size=3),
)
def test_the_pod_asks_for_what_is_needed_at_one_time(init, containers):
    """The effective request is the model's.

    For whatever mix of init containers, sidecars and others.
    """
    init = [(guaranteed(amounts), sidecar) for amounts, sidecar in init]
    containers = [guaranteed(amounts) for amounts in containers]
    pod = read_pod(
        manifest(
            [({}, amounts, sidecar) for amounts, sidecar in init],
            [({}, amounts) for amounts in containers],
        )
    )

    assert pod.qos is QOSClass.GUARANTEED
    assert pod.exclusive_cpus == peak(init, containers, "cpu")
    assert dict(pod.devices).get("example.com/gpu", 0) == peak(init, containers, "example.com/gpu")
    assert dict(pod.memory)["memory"] == peak(init, containers, "memory")

    pages = 0
    if any("hugepages-2Mi" in amounts for amounts in containers):
        pages = peak(init, containers, "hugepages-2Mi") * 2 * 2**20

    assert dict(pod.memory).get("hugepages-2Mi", 0) == pages
    assert pod.memory == tuple(sorted(pod.memory))

    assert [container.is_sidecar for container in pod.init_containers] == [
        sidecar for _, sidecar in init
    ]
    assert all(container.is_init for container in pod.init_containers)
    assert pod.all_containers == pod.init_containers + pod.containers


@pytest.mark.parametrize(
    ("pod", "container", "api_36", "api_37", "static_36", "static_37"),
    [
        ({}, ONE, "BestEffort", "Guaranteed", "BestEffort", "Guaranteed"),
        ({"limits": BOTH}, ({}, {}), "Guaranteed", "Guaranteed", "Guaranteed", "Burstable"),
        (
            {"limits": {"cpu": "1", "memory": "1"}},
            ONE,
            "Guaranteed",
            "Guaranteed",
            "Guaranteed",
            "Burstable",
        ),
        ({"limits": {"cpu": "2"}}, ONE, "Burstable", "Burstable", "Burstable", "Burstable"),
        ({"requests": BOTH}, ONE, "Burstable", "Guaranteed", "Burstable", "Burstable"),
        ({"requests": {"memory": "1"}}, ONE, "Burstable", "Guaranteed", "Burstable", "Burstable"),
        (
            {"requests": BOTH},
            ({}, {"memory": 1}),
            "Burstable",
            "Burstable",
            "Burstable",
            "Burstable",
        ),
        (
            {"requests": BOTH, "limits": BOTH},
            ONE,
            "Guaranteed",
            "Guaranteed",
            "Guaranteed",
            "Guaranteed",
        ),
    ],
)
def test_the_class_of_a_pod_with_resources_follows_release_and_origin(
    pod, container, api_36, api_37, static_36, static_37
):
    """As real API servers and kubelets 1.36.3 and 1.37.2 did."""
    through_api = manifest([], [container], pod)
    static = manifest([], [container], pod)
    static["metadata"]["annotations"] = {"kubernetes.io/config.source": "file"}
    read = [
        read_pod(made).read_as(reading).qos
        for made in (through_api, static)
        for reading in (AS_1_36, PodReading())
    ]
    assert read == [api_36, api_37, static_36, static_37]


def test_a_pod_under_another_name_is_read_alike():
    original = read_pod(manifest([], [ONE], {"requests": BOTH}))
    renamed = original.renamed(uid="other")
    for reading in (AS_1_36, PodReading(), PodReading(PodLevel.MANAGED)):
        assert renamed.read_as(reading) == replace(original.read_as(reading), uid="other")


@pytest.mark.parametrize(
    ("pod", "containers", "qos"),
    [
        ({}, [({}, {"cpu": 1, "memory": 1})], "BestEffort"),
        ({"limits": {"cpu": "2", "memory": "2"}}, [({}, {})], "Guaranteed"),
        ({"limits": {"cpu": "2", "memory": "2"}}, [({}, {"cpu": 1, "memory": 1})], "Burstable"),
        ({"limits": {"cpu": "2", "memory": "2"}}, [({"cpu": 2, "memory": 2}, {})], "Guaranteed"),
        ({"limits": {"memory": "2"}}, [({"cpu": 2}, {})], "Burstable"),
        ({"limits": {"memory": "2"}}, [({}, {})], "Burstable"),
        ({"requests": {"cpu": "2", "memory": "2"}}, [({}, {})], "Burstable"),
    ],
)
def test_pods_with_resources_of_their_own_stay_in_the_shared_pool(pod, containers, qos):
    """Pod Level Resources decide the class, and keep the CPU and memory managers away."""
    made = read_pod(manifest([], containers, pod)).read_as(AS_1_36)
    assert made.qos == qos
    assert (made.exclusive_cpus, made.memory) == (0, ())
    assert (made.containers[0].exclusive_cpus, made.containers[0].memory) == (0, ())


def test_sums_that_no_kubelet_can_hold_are_refused():
    container = {"resources": {"limits": {"cpu": "1", "memory": "7Ei"}}}
    spec = {"containers": [{"name": name, **container} for name in "ab"]}
    with pytest.raises(
        InputError, match=r"^expected memory of all containers to add up to at most .* at spec$"
    ):
        read_pod({"metadata": {"name": "p"}, "spec": spec})


def test_kinds_of_resources_are_told_apart():
    assert [is_device(name) for name in ("cpu", "storage", "hugepages-1Gi", "example.com/gpu")] == [
        False,
        False,
        False,
        True,
    ]
    assert is_pinned_memory("memory")
    assert is_pinned_memory("hugepages-1Gi")
    assert not is_pinned_memory("cpu")
    assert is_hugepages("hugepages-2Mi")


@pytest.mark.parametrize(
    ("memory", "kind"),
    [("512m", "memory"), ("1500m", "memory"), ("1", ""), ("1000m", ""), ("0.5Gi", "")],
)
def test_memory_of_guaranteed_pods_may_be_no_whole_number_of_bytes(memory, kind):
    """The API takes it; a Static memory manager fails to allocate it."""
    limits = {"cpu": "1", "memory": memory}
    manifest = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    }
    assert [container.fractional_memory for container in read_pod(manifest).all_containers] == [
        kind
    ]

    manifest["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "100m"}
    assert [container.fractional_memory for container in read_pod(manifest).all_containers] == [""]


def test_cpus_that_only_the_status_has_count_for_the_container_and_not_for_the_pod():
    """A kubelet 1.33 sums over containers whose spec requests CPUs.

    And it gives what the status says.
    """
    made = manifest([], [({}, {})], {"requests": BOTH, "limits": BOTH})
    made["status"] = {
        "containerStatuses": [{"name": "c0", "allocatedResources": {"cpu": "2", "memory": "1"}}]
    }
    reading = PodReading(PodLevel.SETS_QOS, StatusRequests.CONTAINERS, False, False)
    pod = read_pod(made).read_as(reading)
    assert (pod.containers[0].exclusive_cpus, pod.exclusive_cpus) == (2, 0)


@pytest.mark.parametrize(
    ("resources", "qos"),
    [
        ([({}, {})], "BestEffort"),
        ([({"cpu": 0, "memory": 0}, {"cpu": 0})], "BestEffort"),
        ([({}, {"example.com/gpu": 1})], "BestEffort"),
        ([({"cpu": 1, "memory": 1}, {"cpu": 1, "memory": 1})], "Guaranteed"),
        ([({"cpu": 1, "memory": 1}, {"cpu": 2, "memory": 1})], "Burstable"),
        ([({"cpu": 1}, {"cpu": 1})], "Burstable"),
        ([({"cpu": 1, "memory": 1}, {})], "Burstable"),
        ([({"cpu": 1, "memory": 1}, {"cpu": 1, "memory": 1}), ({}, {})], "Burstable"),
        # sums are compared, not one container after another
        (
            [
                ({"cpu": 1, "memory": 1}, {"cpu": 2, "memory": 1}),
                ({"cpu": 2, "memory": 1}, {"cpu": 1, "memory": 1}),
            ],
            "Guaranteed",
        ),
    ],
)
def test_qos_is_that_of_sums(resources, qos):
    assert qos_class(resources) == qos


def pod_of(*resources, **spec):
    """Return a pod with these containers."""
    containers = [
        {"name": f"c{number}", "resources": section} for number, section in enumerate(resources)
    ]
    return read_pod({"metadata": {"name": "p"}, "spec": {"containers": containers, **spec}})


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (pod_of(WHOLE), ""),
        (pod_of({}), "its pod is BestEffort: container 'c0' has no limit of cpu"),
        (
            pod_of(WHOLE, {"limits": {"cpu": "1"}}),
            "its pod is Burstable: container 'c1' has no limit of memory",
        ),
        (
            pod_of(WHOLE, {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}),
            "its pod is Burstable: container 'c1' requests less cpu than its limit",
        ),
        (
            pod_of({"limits": {"cpu": "2500m", "memory": "1Gi"}}),
            "it requests 2500m CPU, which is not a whole number",
        ),
        (
            pod_of(WHOLE, resources={}).read_as(PodReading(empty_pod_resources_ignored=False)),
            (
                "its pod is BestEffort: the resources of the pod as a whole (spec.resources) "
                "decide that"
            ),
        ),
        (
            pod_of(WHOLE, resources={"limits": {"cpu": "4", "memory": "2Gi"}}),
            (
                "its pod is Burstable: the resources of the pod as a whole (spec.resources) decide "
                "that"
            ),
        ),
        (
            pod_of(WHOLE, resources=WHOLE),
            (
                "the kubelet uses spec.resources or the status of its pod instead of the "
                "container's own requests"
            ),
        ),
    ],
)
def test_the_first_container_is_told_why_it_shares(pod, reason):
    assert why_shared(pod, pod.containers[0]) == reason


@pytest.mark.parametrize(
    ("level", "is_shared"),
    [(PodLevel.MANAGED, True), (PodLevel.SETS_QOS, False)],
)
def test_the_managers_may_give_to_a_pod_as_a_whole(level, is_shared):
    made = read_pod(manifest([], [ONE], {"limits": BOTH}))
    assert made.read_as(PodReading(level)).has_shared_pool is is_shared


@pytest.mark.parametrize(
    ("init", "expected", "counted"),
    [
        ({"hugepages-2Mi": "4Mi"}, {"memory": 1}, {"memory": 1, "hugepages-2Mi": 4 << 20}),
        ({"hugepages-2Mi": "0"}, {"memory": 1}, {"memory": 1, "hugepages-2Mi": 0}),
        ({}, {"memory": 1}, None),
    ],
)
def test_memory_for_which_only_init_containers_ask_counts_from_1_38_on(init, expected, counted):
    limits = {"cpu": "1", "memory": "1"}
    spec = {
        "initContainers": [{"name": "i", "resources": {"limits": {**limits, **init}}}],
        "containers": [{"name": "c", "resources": {"limits": limits}}],
    }
    pod = read_pod({"metadata": {"name": "p"}, "spec": spec})
    newest = pod.read_as(PodReading(init_only_memory_counts=True))
    assert dict(pod.memory) == expected
    assert dict(newest.memory) == (counted or expected)
    assert (pod.readings is None) is (counted is None)


@pytest.mark.parametrize(("zero_limits_are_none", "limits"), [(False, {"memory": 4}), (True, {})])
def test_a_limit_of_zero_is_none_from_1_38_on(zero_limits_are_none: bool, limits) -> None:
    containers = [({"memory": 1}, {"memory": 1}), ({}, {"memory": 0})]
    pod = read_pod(manifest([], containers, {"requests": {"memory": "4"}}))

    level = pod.read_as(PodReading(zero_limits_are_none=zero_limits_are_none)).constraints.level
    assert level is not None
    assert {name: amount // 10**9 for name, amount in level.limits.items()} == limits
