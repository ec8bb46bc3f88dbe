"""Parts of whole cores, where cores are of several sizes."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup import split
from alignup.errors import AlignupWarning, InputError
from alignup.host.parts import whole_cores
from alignup.host.parts.cut import shared_cores, split_cores, split_machine
from alignup.host.parts.whole_cores import WholeCores
from alignup.machine.machine import Core, Machine, NumaNode
from inputs.strategies import seeds
from models.whole_cores import best_cut

GI = 1 << 30


def no_cache(_place, _index):
    return None


def machine_of(places, l3_of=no_cache):
    """Return a machine whose nodes have cores of these sizes."""
    nodes = []
    first = 0
    for place, sizes in enumerate(places):
        cores = []
        for index, size in enumerate(sizes):
            cpus = tuple(range(first, first + size))
            cores.append(Core(cpus, place, l3_of(place, index)))
            first += size

        distances = tuple(10 if place == other else 20 for other in range(len(places)))
        nodes.append(NumaNode(place, GI, tuple(cores), (), distances))

    return Machine(tuple(nodes))


def cut(places, parts, cpus, **options):
    """Return the parts as sets of CPUs, and on how many nodes each is."""
    made = split_machine(machine_of(places), parts, cpus_per_part=cpus, **options)
    return [int(part.cpus) for part in made], [len(part.numa_nodes) for part in made]


def random_places(random, most_cores=8):
    count = random.choice((1, 1, 2, 2, 3))
    largest = random.choice((2, 2, 3, 4))
    return [
        [random.randint(1, largest) for _ in range(random.randint(1, most_cores // count + 1))]
        for _ in range(count)
    ]


def check(places, parts, cpus, *, full_cores):
    """Compare with the plain search: whole cores, parts on one node, and nodes of all parts."""
    machine = machine_of(places)
    best = best_cut(places, parts, cpus, is_exact=full_cores)
    try:
        made, node_counts = cut(places, parts, cpus, full_cores=full_cores)
    except InputError:
        assert full_cores
        assert best is None
        return

    assert [part.bit_count() for part in made] == [cpus] * parts
    assert bool(shared_cores(machine, made)) == (best is None)
    assert not full_cores or not split_cores(machine, made)
    if best is not None:
        assert (node_counts.count(1), sum(node_counts)) == best


def try_machine(seed):
    random = Random(seed)
    places = random_places(random)
    parts = random.randint(1, min(5, sum(map(len, places))))
    cpus = random.randint(1, sum(map(sum, places)) // parts)
    check(places, parts, cpus, full_cores=random.random() < 0.3)


@pytest.mark.parametrize("batch", seeds(3, 100))
def test_random_machines(batch):
    """Odd sizes, up to five parts."""
    for seed in range(100 * batch, 100 * batch + 100):
        try_machine(seed)


@pytest.mark.parametrize(
    ("places", "parts", "cpus"),
    [
        # six cores of two CPUs, ten of one
        ([[2] * 6 + [1] * 10], 6, 3),
        # siblings that are offline
        ([[2, 2, 1, 2], [2, 2, 2, 1]], 4, 3),
        ([[4, 4, 3, 1], [4, 2, 4, 4]], 4, 5),
        # two parts fit one node each only if the small core stays with the large one
        ([[2, 1], [1, 2, 1], [1, 2, 1]], 2, 4),
        ([[4, 2], [3, 2, 2, 1]], 1, 7),
        # on two nodes, though most cores are on the three
        ([[1, 4, 2], [2], [2, 2]], 1, 10),
        ([[1, 2, 1], [2, 2, 2], [1, 2, 1]], 2, 7),
    ],
)
def test_a_cut_that_exists_is_made(places, parts, cpus):
    made, node_counts = cut(places, parts, cpus)
    assert not shared_cores(machine_of(places), made)
    assert (node_counts.count(1), sum(node_counts)) == best_cut(places, parts, cpus)


def test_full_cores_combines_sizes():
    """A core of two CPUs and one of one are three, and nothing of them is idle."""
    places = [[2] * 6 + [1] * 10]
    made, _ = cut(places, 6, 3, full_cores=True)
    assert not split_cores(machine_of(places), made)
    with pytest.raises(InputError, match="6 parts of 3 CPUs are not whole cores"):
        cut([[2] * 9 + [1] * 5], 6, 3, full_cores=True)
    assert cut([[2] * 9 + [1] * 5], 6, 3)[1] == [1] * 6


def test_parts_of_mixed_cores_are_spread_over_nodes_and_follow_devices():
    places = [[2, 2, 2, 1, 1, 1, 1, 1]] * 2
    made, _ = cut(places, 4, 3)
    assert [bool(part >> 11) for part in made] == [False, False, True, True]

    inventory = {"x": [{"id": "a", "numa": 1}, {"id": "b", "numa": 1}, {"id": "c", "numa": 0}]}
    parts = split(machine_of(places), 3, cpus_per_part=3, devices={"x": 1}, inventory=inventory)
    assert [part.numa_nodes for part in parts] == [(1,), (1,), (0,)]
    assert [part.devices["x"] for part in parts] == [("a",), ("b",), ("c",)]


def test_parts_of_mixed_cores_keep_to_caches():
    """Each of three caches has a core of two CPUs and four of one, for two parts of three."""
    places = [[2, 1, 1, 1, 1] * 3]
    machine = machine_of(places, lambda _, index: index // 5)
    parts = split_machine(machine, 6, cpus_per_part=3, same_l3=True)
    assert [{cpu // 6 for cpu in part.cpus} for part in parts] == [{0}, {0}, {1}, {1}, {2}, {2}]

    # where one more is asked for than fit a cache each, it is of what the others leave
    places = [[2, 2, 1] * 3]
    machine = machine_of(places, lambda _, index: index // 3)
    parts = split_machine(machine, 4, cpus_per_part=3, same_l3=True)
    assert not shared_cores(machine, [int(part.cpus) for part in parts])
    assert sorted(len({cpu // 5 for cpu in part.cpus}) for part in parts) == [1, 1, 1, 2]


@pytest.mark.parametrize("layout", ["numa", "socket", "l3", "core"])
def test_layouts_of_mixed_cores(layout):
    """Part after part is of the next place, and no core of two."""
    places = [[2, 2, 1, 1, 1], [2, 1, 1, 1, 1]]
    machine = machine_of(places, lambda place, _: place)
    parts = split_machine(machine, 4, cpus_per_part=3, layout=layout)
    assert not shared_cores(machine, [int(part.cpus) for part in parts])
    if layout != "core":
        assert [part.numa_nodes for part in parts] == [(0,), (1,), (0,), (1,)]


def test_a_layout_without_room_is_refused():
    with pytest.raises(InputError, match="the layout numa has no places for 1 part of 5 cores"):
        cut([[2, 1], [2, 1, 1]], 1, 5, layout="numa")
    with pytest.raises(InputError, match="expected one of numa, socket, l3, core, got 'x'"):
        cut([[2, 1], [2, 1]], 2, 3, layout="x")


@pytest.mark.parametrize(("sizes", "cpus"), [((2, 1), 3), ((4, 2, 1), 6), ((8, 5, 3), 7)])
@given(st.data())
def test_the_most_parts_of_some_cores(sizes, cpus, data):
    """One more is not possible by the plain search."""
    numbers = [data.draw(st.integers(0, 9 // len(sizes))) for _ in sizes]
    cores = [size for size, number in zip(sizes, numbers, strict=True) for _ in range(number)]
    whole = WholeCores(sizes, cpus)
    most = whole.most(tuple(numbers), 9)
    assert most == max(
        (parts for parts in range(10) if parts == 0 or best_cut([cores], parts, cpus)), default=0
    )
    packed = whole.packed(tuple(numbers), most)
    assert len(packed) == most
    assert all(whole.total(taken) >= cpus for taken in packed)
    assert whole.packed(tuple(numbers), most + 1) is None


def test_a_machine_of_many_nodes_is_cut():
    """Where not all sets of nodes are tried, by those that are near."""
    places = [[2, 1, 1]] * 12
    made, node_counts = cut(places, 7, 6)
    assert not shared_cores(machine_of(places), made)
    assert node_counts == [2] * 6 + [3] or sum(node_counts) <= 7 * 2 + 2


def test_a_search_that_takes_too_long_is_given_up(monkeypatch):
    """Then cores are shared, as where there is no cut, and it is said."""
    places = [[2] * 6 + [1] * 10]
    monkeypatch.setattr(whole_cores, "_MOST_STEPS", 3)
    with pytest.warns(AlignupWarning, match="cores in common: cores are of so many sizes that"):
        made, _ = cut(places, 6, 3)
    assert shared_cores(machine_of(places), made)


@pytest.mark.filterwarnings("ignore:several parts have some cores in common")
@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8, 13])
def test_wherever_a_search_is_given_up_there_are_parts(monkeypatch, steps):
    """All of them, of all their CPUs, and none twice."""
    monkeypatch.setattr(whole_cores, "_MOST_STEPS", steps)
    for seed in range(100):
        random = Random(seed)
        places = random_places(random)
        parts = random.randint(1, min(5, sum(map(len, places))))
        cpus = random.randint(1, sum(map(sum, places)) // parts)
        made, _ = cut(places, parts, cpus)
        assert [part.bit_count() for part in made] == [cpus] * parts
        assert sum(made).bit_count() == cpus * parts


def test_what_may_be_left_is_bounded(monkeypatch):
    """A cut is found all the same."""
    places = [[4, 3, 2, 1, 1], [4, 3, 3, 2, 1]]
    monkeypatch.setattr(whole_cores, "_WIDEST_FRONT", 1)
    made, _ = cut(places, 4, 5)
    assert not shared_cores(machine_of(places), made)


def of_powers(random):
    """Return sizes of cores that divide each other, how many parts, and of how many CPUs."""
    sizes = random.choice(((1, 2), (1, 2, 4), (1, 2, 4, 8), (2, 4), (1, 3), (2, 6), (1, 4)))
    cores = [random.choice(sizes) for _ in range(random.randint(1, 8))]
    parts = random.randint(1, min(5, len(cores)))
    cpus = random.randint(1, max(1, sum(cores) // parts))
    return cores, parts, cpus


@pytest.mark.parametrize("batch", seeds(2, 50))
def test_sizes_that_divide_each_other_are_counted(batch):
    """Beside the plain search."""
    random = Random(f"powers {batch}")
    for _ in range(100):
        cores, parts, cpus = of_powers(random)
        is_exact = random.random() < 0.5
        whole = WholeCores(cores, cpus, is_exact=is_exact)
        packed = whole.packed(tuple(map(cores.count, whole.sizes)), parts)
        best = best_cut([cores], parts, cpus, is_exact=is_exact)
        assert (packed is None) == (best is None), (cores, parts, cpus, is_exact)


@pytest.mark.parametrize("seed", seeds(20, 2000))
def test_the_search_does_not_fail_where_sizes_divide_each_other(seed, monkeypatch):
    """Not on large machines either: it takes a step for each part."""
    random = Random(f"large {seed}")
    sizes = random.choice(((1, 2), (1, 2, 4), (1, 2, 4, 8)))
    weights = [random.random() ** 3 + 1e-3 for _ in sizes]
    cores = random.choices(sizes, weights, k=random.choice((16, 64, 192, 256)))
    parts = random.randint(1, 48)
    cpus = max(1, sum(cores) // parts - random.choice((0, 0, 0, 1, 2)))
    whole = WholeCores(cores, cpus, is_exact=random.random() < 0.5)
    monkeypatch.setattr(whole_cores, "_MOST_STEPS", 20 * parts)
    whole.packed(tuple(map(cores.count, whole.sizes)), parts)
    assert not whole.gave_up


# sizes that do not divide each other: there is no cut, and a short search does not tell
SIZES_OF_FOUR_THREADS = [[4] * 180 + [3] * 46 + [1] * 30]


def test_a_search_that_ends_early_says_so(monkeypatch):
    """With --full-cores it is an error."""
    monkeypatch.setattr(whole_cores, "_MOST_STEPS", 1000)
    with pytest.raises(InputError, match="would be split; cores are of so many sizes that the"):
        cut(SIZES_OF_FOUR_THREADS, 48, 17, full_cores=True)


def test_what_is_left_over_is_of_whole_cores():
    """One CPU of six cores of two is left over, if at all, with a core of one."""
    assert WholeCores([2], 11, is_exact=True).packed((6,), 1) is None
    whole = WholeCores([2, 1], 11, is_exact=True)
    assert whole.packed((5, 1), 1) == ((5, 1),)
    assert whole.packed((5, 2), 1) == ((5, 1),)
