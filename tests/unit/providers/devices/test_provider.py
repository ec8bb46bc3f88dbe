"""Behaviour of `alignup.providers.devices.provider` and of the pools beneath it, case by case."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import AlignupWarning, AllocationError, InputError
from alignup.kubernetes.pod import Container
from alignup.node import Node
from alignup.providers.devices.inventory import PreferredSets
from alignup.providers.devices.provider import Device, DeviceProvider
from inputs.device_pods import (
    ANYWHERE,
    GPU,
    NIC,
    give,
    gpus,
    hints,
    machine,
    masks,
    on,
    pod,
    provider,
    wish,
)
from inputs.machines import machine_of
from inputs.strategies import examples

PLACES = st.one_of(
    st.none(), st.sets(st.integers(0, 3), max_size=2).map(lambda nodes: tuple(sorted(nodes)))
)
ACTIONS = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ias")), min_size=1, max_size=3),
        st.one_of(st.none(), st.sets(st.integers(0, 3), min_size=1)),
        st.one_of(st.none(), st.lists(st.booleans(), min_size=6, max_size=6)),
    ),
    max_size=20,
)


def test_hints_are_the_masks_near_which_enough_devices_are():
    """The smallest possible masks are preferred; nodes without devices are in no mask."""
    made = provider(0, 0, 1, 3)
    assert hints(made, 2) == {1: True, 3: False, 9: False, 10: False, 11: False}
    assert hints(made, 3) == {3: True, 9: True, 11: False}
    assert hints(made, 5) == {}
    assert hints(made, 0) == {1: True, 2: True, 8: True, 3: False, 9: False, 10: False, 11: False}


def test_preference_counts_devices_in_use_as_well():
    """A mask is as small as possible if no smaller one could ever have enough."""
    made = provider(0, 0, 1)
    give(made, 1, on(0), uid="other")
    assert hints(made, 2) == {3: False}


def test_a_device_near_to_several_nodes_counts_for_each():
    """Any of its nodes will do."""
    assert hints(provider((0, 1), (1, 2)), 2) == {2: True, 3: False, 5: False, 6: False, 7: False}


def test_devices_without_nodes_have_no_preference_alone_and_help_no_mask():
    """A resource with no topology at all has none; beside others such devices do not count."""
    assert hints(provider(None, None), 1) is None
    assert hints(provider((), None), 1) is None
    assert hints(provider(0, None), 2) == {}
    assert hints(provider(0, 0, None), 2) == {1: True}


def test_devices_on_unknown_nodes_only_are_aligned_and_near_to_no_mask():
    """As in a kubelet: whoever asks for them under a strict policy is refused."""
    with pytest.warns(AlignupWarning, match="no hint"):
        made = DeviceProvider(machine(0, 1), {GPU: [Device("a", (-1,)), Device("b", None)]})
    assert hints(made, 1) == {}
    with pytest.warns(AlignupWarning, match="ignored"):
        beside = DeviceProvider(machine(0, 1), {GPU: [Device("a", (-1,)), Device("b", (0,))]})
    assert hints(beside, 1)
    assert hints(beside, 2) == {}


def test_masks_are_of_positions_and_not_of_kernel_ids():
    """The node that the kernel calls 255 is at position 1."""
    assert hints(provider(0, 255, ids=(0, 255)), 1) == {1: True, 2: True, 3: False}


def test_other_resources_are_none_of_its_business():
    """Neither hints nor allocation mention a resource that no plugin has."""
    made = provider(0)
    container = wish("c", 1, resource=NIC)
    made.allocate(pod(container), container, ANYWHERE)

    assert made.topology_hints(pod(container), container) == {}
    assert made.pod_topology_hints(pod(container, devices=((NIC, 1),))) == {}
    assert made.devices("u", "c") == {}


def test_a_container_without_devices_gets_none():
    """Nothing to ask for, nothing to hold."""
    made = provider(0)
    made.allocate(pod(Container("c")), Container("c"), ANYWHERE)
    assert made.devices("u", "c") == {}


def test_near_devices_come_first_then_those_with_nodes_then_the_rest():
    """Within each the order of the inventory decides."""
    made = provider(None, 1, 0, (0, 1), 1, ())
    assert [give(made, n, on(0), uid=f"u{n}") for n in (1, 2)] == ["2", "13"]
    assert give(made, 2, on(0)) == "04"
    made = provider(None, 1, 0, (0, 1), 1)
    assert give(made, 3, ANYWHERE) == "012"


def test_too_few_devices_are_a_refusal_that_says_where_they_are():
    """The message names the resource, what was asked, and what is free near to which nodes."""
    made = provider(0, 5, (0, 5), None, ids=(0, 5))
    give(made, 1, on(0), uid="other")
    with pytest.raises(AllocationError) as refusal:
        give(made, 4)

    assert refusal.value.reason == "UnexpectedAdmissionError"
    assert refusal.value.detail == (
        "too few devices of example.com/gpu are free: 4 asked, 3 of 4 free: "
        "1 on NUMA node 5, 1 on NUMA nodes 0+5, 1 without a NUMA node"
    )


def test_a_refusal_gives_nothing_of_any_resource():
    """A container gets all its resources or none."""
    made = DeviceProvider(machine(0), {GPU: gpus(0), NIC: []})
    container = Container("c", devices=((GPU, 1), (NIC, 1)))
    with pytest.raises(
        AllocationError, match=r"no device of example.com/nic is healthy: .*the plugin reports none"
    ):
        made.allocate(pod(container), container, ANYWHERE)

    assert made.devices("u", "c") == {}
    assert made.free == {GPU: ("0",), NIC: ()}


def test_unhealthy_devices_are_not_given_but_count_for_the_smallest_mask():
    """They are there, only not now."""
    made = provider(0, 0, 1)
    made.update(GPU, [Device("0", (0,), healthy=False), *gpus(0, 0, 1)[1:]])
    assert hints(made, 2) == {3: False}
    with pytest.raises(AllocationError, match=r"3 asked, 2 of 3 free.* 1 unhealthy"):
        give(made, 3)
    assert give(made, 2) == "12"


def test_the_plugin_chooses_among_near_devices():
    """The pairs of KEP-693, on a machine with four GPUs near to each of two nodes."""
    pairs = PreferredSets([["0", "3"], ["1", "2"], ["4", "7"], ["5", "6"]])
    made = provider(0, 0, 0, 0, 1, 1, 1, 1, plugins={GPU: pairs})
    taken = [give(made, 2, on(node), uid=f"u{i}") for i, node in enumerate((0, 1, 1, 0))]
    assert taken == ["03", "47", "56", "12"]


def test_the_plugin_chooses_among_the_others_when_all_near_ones_are_taken():
    """It is told which ones the container has already."""
    calls = []

    def last(available, must_include, size):
        calls.append((available, must_include, size))
        return [*must_include, *reversed(available)][:size]

    made = provider(0, 1, 1, None, plugins={GPU: last})
    assert give(made, 2, on(0)) == "03"
    assert calls == [(("0", "1", "2", "3"), ("0",), 2)]
    assert give(made, 2, uid="rest") == "12"


def test_a_plugin_is_not_asked_where_there_is_no_choice():
    """All near devices are needed."""
    made = provider(0, 0, plugins={GPU: lambda *_: pytest.fail("asked")})
    assert give(made, 2, on(0)) == "01"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ([], "01"),
        (["3", "9"], "01"),
        (["2"], "02"),
        (["2", "2", "1", "0"], "12"),
        (["0", "1", "2"], "01"),
    ],
)
def test_a_plugins_answer_is_only_advice(answer, expected):
    """Unknown, far and too many ids are passed over, and missing ones are filled up."""
    assert give(provider(0, 0, 0, 1, plugins={GPU: lambda *_: answer}), 2, on(0)) == expected


def test_a_plugin_that_fails_refuses_the_container():
    """As in the kubelet, where the call's error does."""
    made = provider(0, 0, plugins={GPU: lambda *_: 1 // 0})
    with pytest.raises(
        AllocationError, match=r"the plugin of example.com/gpu has no preferred allocation: .*zero"
    ):
        give(made, 1)


def test_a_plugin_that_fails_without_a_word_is_said_by_the_name_of_its_error():
    def fail(*_):
        raise TimeoutError

    made = provider(0, 0, plugins={GPU: fail})
    with pytest.raises(AllocationError, match=r"has no preferred allocation: TimeoutError"):
        give(made, 1)


def test_an_init_containers_devices_are_taken_over_first():
    """Later containers get them before any other; hints must then touch all of their nodes."""
    made = provider(0, 1, 2)
    init, first, second = wish("i", 2, init=True), wish("a", 1), wish("b", 2)
    both = pod(init, first, second)
    made.allocate(both, init, on(0, 1))
    assert masks(made.topology_hints(both, first)[GPU]) == {3: False, 7: False}

    made.allocate(both, first, on(0, 1))
    assert masks(made.topology_hints(both, second)[GPU]) == {6: True, 7: False}
    made.allocate(both, second, on(1, 2))
    assert [made.devices("u", name)[GPU] for name in "iab"] == [("0", "1"), ("0",), ("1", "2")]


def test_a_sidecar_takes_over_and_keeps():
    """A restartable init container leaves nothing to those after it."""
    made = provider(0, 0, 0)
    init, sidecar, app = wish("i", 2, init=True), wish("s", 1, sidecar=True), wish("a", 2)
    every = pod(init, sidecar, app)
    for each in every.all_containers:
        made.allocate(every, each, on(0))

    assert [made.devices("u", name)[GPU] for name in "isa"] == [("0", "1"), ("0",), ("1", "2")]


def test_reuse_of_devices_without_nodes():
    """A device with no topology limits no mask.

    One whose plugin lists no node at all can be near to none.
    """
    for place, expected in ((None, {1: True}), ((), {})):
        made = provider(place, 0)
        init, app = wish("i", 1, init=True), wish("a", 1)
        made.allocate(pod(init, app), init, ANYWHERE)
        assert masks(made.topology_hints(pod(init, app), app)[GPU]) == expected


def test_only_the_pod_itself_reuses():
    """Another pod sees the devices as taken, and pod hints count no reuse."""
    made = provider(0, 1)
    init, app = wish("i", 1, init=True), wish("a", 1)
    made.allocate(pod(init, app), init, on(0))

    assert hints(made, 1, uid="other") == {2: True, 3: False}
    assert masks(made.pod_topology_hints(pod(uid="other", devices=((GPU, 2),)))[GPU]) == {}


@pytest.mark.parametrize(
    ("between", "device"),
    [(wish("b", 1), "2"), (Container("b"), "1")],
    ids=["with devices", "without"],
)
def test_what_init_containers_left_is_forgotten_once_another_pod_has_come(between, device):
    """The kubelet remembers reusable devices of the pod only that it allocated for last."""
    made = provider(0, 0, 0)
    init, app = wish("i", 1, init=True), wish("a", 1)
    own = pod(init, app)
    made.allocate(own, init, on(0))
    made.allocate(pod(between, uid="other"), between, on(0))
    made.allocate(own, app, on(0))

    assert [made.devices("u", name)[GPU] for name in "ia"] == [("0",), (device,)]


def test_a_device_of_two_containers_is_free_when_both_are_gone():
    """An init container's release leaves to the others what they took over, in either order."""
    for order, free in (("ia", ("1", "2")), ("ai", ("2",))):
        made = provider(0, 0, 0)
        init, app = wish("i", 2, init=True), wish("a", 1)
        for each in (init, app):
            made.allocate(pod(init, app), each, on(0))
        made.release("u", order[0])
        assert made.free[GPU] == free
        made.release("u", order[1])
        made.release("u", order[1])
        made.release("u", "unknown")
        assert made.free[GPU] == ("0", "1", "2")
        assert not made.pods


def test_a_container_that_holds_devices_gets_its_own_hints_again():
    """Asking and allocating twice changes nothing; another number is impossible."""
    made = provider(0, 1, 2)
    give(made, 1, on(1))
    assert give(made, 1, on(0)) == "1"
    assert hints(made, 1) == {2: True, 3: False, 6: False, 7: False}
    assert hints(made, 2) == {}
    assert masks(made.pod_topology_hints(pod(devices=((GPU, 1),)))[GPU]) == {
        2: True, 3: False, 6: False, 7: False,
    }  # fmt: skip
    with pytest.raises(AllocationError, match=r"holds 1 of example.com/gpu and now requests 2"):
        give(made, 2)


def test_a_resource_without_topology_has_no_preference_when_held():
    """Nor when it is not."""
    made = provider(None)
    give(made, 1)
    assert hints(made, 1) is None


def test_no_devices_are_given_where_none_are_asked_for():
    """A request of zero is fine as long as some device is healthy."""
    made = provider(0)
    assert give(made, 0) == ""
    made.update(GPU, [])
    with pytest.raises(AllocationError, match=r"no device of example.com/gpu is healthy"):
        give(made, 0)


def test_a_device_that_turns_unhealthy_stays_given():
    """It is free after its release only if healthy then.

    Whoever holds it cannot be admitted again.
    """
    made = provider(0, 0)
    assert give(made, 1) == "0"
    made.update(GPU, [Device("0", (0,), healthy=False), Device("1", (0,))])
    assert made.devices("u", "c") == {GPU: ("0",)}
    with pytest.raises(AllocationError, match="that the container holds are not healthy: 0"):
        give(made, 1)

    made.release("u", "c")
    assert made.free[GPU] == ("1",)
    made.update(GPU, gpus(0, 0))
    assert made.free[GPU] == ("0", "1")


def test_a_device_that_vanishes_stays_given_and_is_given_once_when_it_returns():
    """Its holder keeps it; on its return it is still taken."""
    made = provider(0, 1)
    assert give(made, 1, on(1)) == "1"
    made.update(GPU, [Device("2", (1,)), Device("0", (0,))])
    assert made.devices("u", "c") == {GPU: ("1",)}
    assert made.given == {GPU: ("1",)}
    assert made.free == {GPU: ("2", "0")}
    assert hints(made, 1, uid="other") == {1: True, 2: True, 3: False}

    made.update(GPU, gpus(0, 1, 1))
    assert made.free == {GPU: ("0", "2")}
    made.release("u", "c")
    assert made.free == {GPU: ("0", "1", "2")}


def test_a_vanished_device_is_forgotten_after_its_release():
    """Nor can a later container of the pod take it over."""
    made = provider(0, 0)
    init, app = wish("i", 1, init=True), wish("a", 1)
    made.allocate(pod(init, app), init, on(0))
    made.update(GPU, gpus(0, 0)[1:])
    made.allocate(pod(init, app), app, on(0))
    assert made.devices("u", "a") == {GPU: ("1",)}

    made.release("u", "i")
    made.update(GPU, gpus(0, 0)[1:])
    assert made.given == {GPU: ("1",)}
    assert [device.id for device in made.pools[GPU].devices] == ["1"]


def test_a_new_resource_can_come_later():
    """A plugin that registers while pods run."""
    made = DeviceProvider(machine(0), {})
    made.update(GPU, gpus(0))
    assert give(made, 1) == "0"


def test_a_device_must_come_once():
    """Twice is an error that changes nothing."""
    made, wrong = provider(0, 1), [*gpus(0), *gpus(1)]
    with pytest.raises(InputError, match=r"devices\['example.com/gpu'\]"):
        made.update(GPU, wrong)
    with pytest.raises(InputError):
        DeviceProvider(machine(0, 1), {GPU: wrong})
    assert made.free == {GPU: ("0", "1")}


def test_a_node_that_does_not_exist_is_ignored_with_a_warning():
    """As by the kubelet: the device is there, near no node that a hint can name."""
    made = provider(0, 1)
    with pytest.warns(
        AlignupWarning, match=r"devices\['example.com/gpu'\] .* does not have: 9; ignored"
    ):
        made.update(GPU, gpus(9, 1))
    assert made.free == {GPU: ("0", "1")}
    assert hints(made, 1) == {2: True}
    assert hints(made, 2) == {}


def test_a_released_device_is_no_longer_kept_for_the_rest_of_the_pod():
    """Else the pod could be given a device that another one has by then."""
    made = provider(0, 1)
    init, second, late = wish("i", 1, init=True), wish("other", 1), wish("late", 1)
    whole = pod(init, second, late)
    made.allocate(whole, init, on(0))
    made.update(NIC, gpus(0))
    nic = wish("other", 1, resource=NIC)
    made.allocate(whole, nic, on(0))
    made.release("u", "i")
    assert give(made, 1, on(0), uid="v") == "0"
    assert hints(made, 1, name="late") == {2: True, 3: False}
    made.allocate(whole, late, on(0))
    assert made.devices("u", "late") == {GPU: ("1",)}


def test_what_an_init_container_left_is_taken_over_though_the_plugin_lists_it_elsewhere_by_then():
    made = provider(0, 0, 0)
    init, app = wish("i", 1, init=True), wish("a", 1)
    made.allocate(pod(init, app), init, on(0))
    made.update(GPU, gpus(0, 0, 0)[::-1])
    made.allocate(pod(init, app), app, on(0))
    assert made.devices("u", "i") == made.devices("u", "a") == {GPU: ("0",)}


def drawn_pod(uid, wishes):
    """Return the pod of a drawn list of containers: how many GPUs each, and of what kind it is."""
    return pod(
        *(wish(f"c{i}", n, init=k == "i", sidecar=k == "s") for i, (n, k) in enumerate(wishes)),
        uid=uid,
    )


def admitted(made, every, affinity):
    """Allocate for all containers of a pod; a refusal must leave everything as it was."""
    before = made.given
    try:
        for each in every.all_containers:
            made.allocate(every, each, affinity)
            assert len(made.devices(every.uid, each.name).get(GPU, ())) == dict(each.devices)[GPU]
    except AllocationError:
        remove(made, reversed(every.all_containers), every.uid)
        assert made.given == before
        return False
    return True


def remove(made, containers, uid):
    for each in containers:
        made.release(uid, each.name)


def assert_given_once(made, running):
    """Running pods hold disjoint sets, together all that is given.

    What is free is the healthy rest.
    """
    allocated = [
        {i for each in every.all_containers for i in made.devices(uid, each.name).get(GPU, ())}
        for uid, every in running.items()
    ]
    assert not any(first & second for first, second in combinations(allocated, 2))
    assert set().union(*allocated) == set(made.given[GPU])
    healthy = {d.id for d in made.pools[GPU].devices if d.healthy}
    assert set(made.free[GPU]) == healthy - set(made.given[GPU])


@examples(60)
@given(st.lists(PLACES, min_size=1, max_size=6), ACTIONS)
def test_no_device_is_given_twice_and_all_come_back(places, actions):
    """Given and free are apart and add up.

    Whatever is admitted, refused, removed or turns unhealthy.
    """
    made = provider(*places)
    running = {}
    for slot, wishes, affinity, health in actions:
        uid = f"u{slot}"
        if health is not None:
            made.update(
                GPU,
                [
                    Device(str(i), p, healthy)
                    for i, (p, healthy) in enumerate(zip(places, health, strict=False))
                ],
            )
        elif uid in running:
            remove(made, running.pop(uid).all_containers, uid)
        else:
            every = drawn_pod(uid, wishes)
            if admitted(made, every, ANYWHERE if affinity is None else on(*affinity)):
                running[uid] = every

        assert_given_once(made, running)

    for uid, every in running.items():
        remove(made, every.all_containers, uid)

    made.update(GPU, gpus(*places))
    assert len(made.free[GPU]) == len(places)
    assert not made.pods


@examples(80)
@given(
    st.lists(PLACES, min_size=1, max_size=6),
    st.integers(0, 4),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_hints_agree_with_counting_over_every_mask(places, request, reused, others):
    """The definition: count near devices for each mask; all reusable ones must be near."""
    made = provider(*places)
    init, app = wish("i", min(reused, len(places)), init=True), wish("a", request)
    made.allocate(pod(init, app), init, ANYWHERE)
    count = min(others, len(made.free[GPU]))
    give(made, count, uid="other")
    got = masks(made.topology_hints(pod(init, app), app)[GPU])

    near = [None if p is None else set(p) for p in places]
    universe = set().union(*(p or set() for p in near))
    reusable = [int(i) for i in made.devices("u", "i").get(GPU, ())]
    usable = [int(i) for i in made.free[GPU]] + reusable
    every = [set(c) for n in range(1, 5) for c in combinations(sorted(universe), n)]
    enough = [m for m in every if sum(bool((p or set()) & m) for p in near) >= request]
    least = min((len(m) for m in enough), default=len(universe))
    expected = {
        sum(1 << node for node in mask): len(mask) == least
        for mask in every
        if all(near[i] is None or near[i] & mask for i in reusable)
        and sum(bool((near[i] or set()) & mask) for i in usable) >= request
    }
    assert got == (expected if universe else None)


def test_a_pod_that_holds_nothing_has_no_devices_and_no_numa_nodes():
    devices = provider(0)
    assert devices.devices("nobody", "c") == {}
    assert devices.numa_nodes("nobody", "c") == 0


class TestClaimedDevices:
    """Devices of a claim stand for a resource: the plugin of its name gives none (KEP-5004)."""

    @staticmethod
    def admitted(version, mappings, *, gpus=("g0", "g1"), **options):
        node = Node.from_dict(
            {
                "machine": machine_of(2, 4),
                "kubelet": {"topologyManagerPolicy": "restricted", **options},
                "devices": {GPU: [{"id": name, "numa": [1]} for name in gpus]},
                "kubeletVersion": version,
            }
        )
        limits = {"cpu": "1", "memory": "1Gi", GPU: "1"}
        pod = {
            "metadata": {"name": "p", "uid": "u"},
            "spec": {
                "containers": [{"name": name, "resources": {"limits": limits}} for name in "ab"]
            },
            "status": {
                "extendedResourceClaimStatus": {
                    "resourceClaimName": "claim",
                    "requestMappings": [
                        {"containerName": name, "resourceName": resource, "requestName": "r"}
                        for name, resource in mappings
                    ],
                }
            },
        }
        node.whole_verdict = True
        preview = node.try_admit(pod)
        admission = node.admit(pod)
        assert preview == admission
        return admission

    @pytest.mark.parametrize(
        ("version", "options", "is_left_out"),
        [
            ("1.34", {}, False),
            ("1.35", {}, False),
            ("1.35", {"featureGates": {"DRAExtendedResource": True}}, True),
            ("1.36", {}, True),
            ("1.36", {"featureGates": {"DRAExtendedResource": False}}, False),
            ("1.37", {}, True),
            ("1.38", {}, True),
        ],
    )
    def test_are_left_out_from_some_release_on(self, version, options, is_left_out):
        """Managers of 1.38.0-beta.0 answered so; the container's hints are as they were."""
        admission = self.admitted(version, [("a", GPU), ("b", "example.com/other")], **options)
        devices = {name: dict(given.devices) for name, given in admission.containers.items()}
        assert devices == {
            "a": {} if is_left_out else {GPU: ("g0",)},
            "b": {GPU: ("g0",) if is_left_out else ("g1",)},
        }
        assert int(admission.containers["a"].affinity.affinity) == 0b10

    def test_need_none_of_the_plugin(self):
        """A plugin that has gone has no device, and its resource is still known."""
        mappings = [("a", GPU), ("b", GPU)]
        admission = self.admitted("1.38", mappings, gpus=())
        assert admission
        assert not any(given.devices for given in admission.containers.values())
        assert not self.admitted("1.34", mappings, gpus=())


class TestReadmission:
    """After a restart of the kubelet, before plugins have registered again."""

    def test_gives_no_hints_and_leaves_devices_where_they_are(self):
        made = provider(0, 1)
        held = give(made, 1, on(1), uid="p")
        made.readmits_pods = True
        container = wish("c", 1)
        again = pod(container, uid="p", devices=((GPU, 1), (NIC, 1)))
        assert made.topology_hints(again, container) == {GPU: None}
        assert made.pod_topology_hints(again) == {GPU: None}

        made.allocate(again, container, on(0))
        assert made.devices("p", "c") == {GPU: (held,)}

    def test_refuses_an_init_container_that_has_ended(self):
        """No device is healthy yet, and the container does not run."""
        made = provider(0, 1)
        ended, sidecar = wish("i", 1, init=True), wish("s", 1, sidecar=True)
        again = pod(ended, sidecar, wish("c", 0), uid="p")
        for container in again.all_containers:
            made.allocate(again, container, ANYWHERE)

        made.started(again, "s")
        successor = provider(0, 1)
        successor.inherit(made.copy())
        successor.readmits_pods = True
        with pytest.raises(AllocationError, match=r"^no healthy devices present"):
            successor.allocate(again, ended, ANYWHERE)

        successor.allocate(again, sidecar, ANYWHERE)
        for container in again.all_containers:
            successor.release("p", container.name)
        successor.allocate(again, ended, ANYWHERE)


@given(
    st.lists(PLACES, min_size=1, max_size=6),
    st.sets(st.integers(0, 5)),
    st.integers(0, 4),
    st.lists(st.integers(0, 5), max_size=3, unique=True),
    st.one_of(st.none(), st.sets(st.integers(0, 3), min_size=1)),
)
@examples(300)
def test_what_is_hidden_is_given_to_nobody_and_then_as_before(
    places, hidden, count, given_before, affinity
):
    """Meanwhile the node decides as if the hidden devices were not well."""
    devices = [Device(f"d{i}", nodes) for i, nodes in enumerate(places)]
    hidden_ids = {f"d{i}" for i in hidden if i < len(places)}
    held = [f"d{i}" for i in given_before if i < len(places)]
    made, model = (DeviceProvider(machine(0, 1, 2, 3), {GPU: devices}) for _ in range(2))
    for each in (made, model):
        each.adopt("before", "c", {GPU: held})
    model.update(GPU, [Device(d.id, d.numa_nodes, healthy=d.id not in hidden_ids) for d in devices])

    outcomes = []
    container = wish("c0", count)
    wanted = pod(container, uid="p")
    where = ANYWHERE if affinity is None else on(*affinity)
    with made.hiding({GPU: (hidden_ids, "for a reason")}):
        for each in (made, model):
            offered = masks(each.topology_hints(wanted, container)[GPU])
            try:
                each.allocate(wanted, container, where)
                chosen = each.devices("p", "c0")
            except AllocationError as error:
                hidden_count = len(hidden_ids)
                words = f"{hidden_count} hidden (for a reason)"
                detail = error.detail.replace(words, f"{hidden_count} unhealthy")
                chosen = detail.replace("may be chosen", "is healthy")
            outcomes.append((offered, chosen))

    assert outcomes[0] == outcomes[1]
    own = set(made.devices("p", "c0").get(GPU, ()))
    assert not own & hidden_ids
    assert set(made.given[GPU]) == {*held, *own}
    assert set(made.free[GPU]) == {d.id for d in devices} - {*held, *own}
    made.release("p", "c0")
    made.release("before", "c")
    assert len(made.free[GPU]) == len(devices)
