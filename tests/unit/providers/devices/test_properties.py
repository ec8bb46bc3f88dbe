"""What holds of `alignup.providers.devices.provider` whatever is asked.

Devices given once, hints as counted.
"""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import AllocationError
from alignup.providers.devices.provider import Device
from inputs.device_pods import ANYWHERE, GPU, give, gpus, masks, on, pod, provider, wish
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
