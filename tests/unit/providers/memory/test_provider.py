"""The memory manager's static policy: capacity, hints, allocation, and what containers hand on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import AllocationError, ConfigError
from alignup.kubernetes.kubelet_config import ReservedMemory
from alignup.kubernetes.pod import Container, Pod, QOSClass
from alignup.kubernetes.versions import PodLevel, VersionProfile
from alignup.machine.machine import Core, HugePages, Machine, NumaNode
from alignup.providers.memory.provider import MemoryProvider, memory_capacity
from alignup.records import replace
from alignup.topology_manager.admission import MemoryBlock
from alignup.topology_manager.hints import BitMask, TopologyHint
from inputs.memory_pods import ANYWHERE, GI, PAGES, admit, container, masks, on, pod, provider
from inputs.strategies import examples

HUGEPAGE_MACHINE = Machine(
    (
        NumaNode(
            2,
            8 * GI,
            (Core((0,), 0),),
            (HugePages.of_bytes(2 << 20, 512), HugePages.of_bytes(GI, 1)),
        ),
        NumaNode(5, 4 * GI, (), (HugePages.of_bytes(2 << 20, 0),)),
    )
)


ACTIONS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.lists(
            st.tuples(st.integers(1, 9), st.integers(0, 2), st.sampled_from("ias")),
            min_size=1,
            max_size=3,
        ),
        st.one_of(st.none(), st.integers(1, 15)),
        st.booleans(),
    ),
    max_size=25,
)


def test_a_request_is_preferred_on_as_few_nodes_as_could_hold_it():
    """Every mask with enough free memory is offered; the smallest possible ones are preferred."""
    memory = provider(4, 4, 4)
    small, large = container("c", 3), container("d", 6)

    assert masks(memory.topology_hints(pod("u", small), small)) == {
        1: True, 2: True, 4: True, 3: False, 5: False, 6: False, 7: False,
    }  # fmt: skip
    assert masks(memory.topology_hints(pod("u", large), large)) == {
        3: True,
        5: True,
        6: True,
        7: False,
    }


def test_preference_counts_what_the_nodes_could_hold_when_empty():
    """A mask is as small as possible if no smaller one could ever hold the request, used or not."""
    memory = provider(4, 4)
    admit(memory, "a", 3, on(0))
    admit(memory, "b", 1, on(1))
    wish = container("c", 4)
    assert memory.topology_hints(pod("u", wish), wish) == {}

    memory.release("b", "c")
    assert masks(memory.topology_hints(pod("u", wish), wish)) == {2: True}


def test_all_types_must_fit_and_have_the_same_hints():
    """Memory and hugepages are looked for together."""
    memory = MemoryProvider(
        Machine(
            (
                NumaNode(0, 5 * GI, (Core((0,), 0),)),
                NumaNode(1, 5 * GI, (Core((1,), 0),), (HugePages.of_bytes(2 << 20, 512),)),
            )
        ),
        (ReservedMemory(0, (("memory", GI),)),),
    )
    wish = container("c", 4, pages=512)
    hints = memory.topology_hints(pod("u", wish), wish)

    assert masks(hints) == masks(hints, PAGES) == {2: True, 3: False}


def test_a_pod_that_is_not_guaranteed_has_no_preference_and_gets_nothing():
    """Without parsed requests there is nothing to align."""
    memory = provider(4)
    wish = Container("c")
    made = pod("u", wish)
    memory.allocate(made, wish, ANYWHERE)

    assert memory.topology_hints(made, wish) is None
    assert memory.pod_topology_hints(made) is None
    assert memory.blocks("u", "c") == ()


def test_too_large_a_request_has_no_preference_and_is_refused():
    """The hints are then empty, which a merge takes for no preference.

    Allocating says what is wrong.
    """
    memory = provider(4, 4, ids=(3, 7))
    wish = container("c", 9, pages=1)
    made = pod("u", wish, memory=wish.memory)

    assert memory.topology_hints(made, wish) == memory.pod_topology_hints(made) == {}
    with pytest.raises(
        AllocationError,
        match=r"no set of NUMA nodes has enough memory: "
        r"hugepages-2Mi: 2Mi asked, the machine has none; "
        r"memory: 9Gi asked, free: 4Gi on each of NUMA nodes 3, 7",
    ) as refusal:
        memory.allocate(made, wish, ANYWHERE)

    assert refusal.value.reason == "UnexpectedAdmissionError"
    assert memory.free == memory.allocatable


def test_blocks_name_the_kernels_nodes():
    """Blocks come by type, with kernel node ids."""
    memory = provider(4, 4, ids=(3, 7), pages=512)
    wish = container("c", 4, pages=512)
    memory.allocate(pod("u", wish), wish, on(0, 1, preferred=False))

    assert memory.blocks("u", "c") == (
        MemoryBlock((3, 7), PAGES, GI),
        MemoryBlock((3, 7), "memory", 4 * GI),
    )
    assert memory.free == {PAGES: (0, GI), "memory": (0, 2 * GI)}


def test_no_affinity_means_the_smallest_nodes_first():
    """The default hint is the best of the provider's own."""
    memory = provider(2, 4, 4)
    admit(memory, "a", 3, ANYWHERE)

    assert memory.blocks("a", "c")[0].numa_nodes == (1,)


def test_no_affinity_that_is_preferred_wants_a_preferred_default():
    """A preferred affinity does not accept a larger set than necessary."""
    memory = provider(4, 4, 4)
    for index in range(3):
        admit(memory, f"p{index}", 2, on(index))

    memory.release("p1", "c")
    memory.release("p2", "c")
    admit(memory, "b", 5, on(1, 2))
    wish = container("c", 3)

    with pytest.raises(
        AllocationError, match="no smallest possible set of NUMA nodes has enough memory"
    ):
        memory.allocate(pod("u", wish), wish, TopologyHint(None, True))

    memory.allocate(pod("u", wish), wish, ANYWHERE)
    assert memory.blocks("u", "c")[0].numa_nodes == (1, 2)


def test_an_affinity_that_is_too_narrow_is_extended():
    """Merging can leave fewer nodes than memory needs.

    The best mask that includes them is taken.
    """
    memory = provider(4, 4, 8)
    admit(memory, "a", 6, on(1, preferred=False))

    assert memory.blocks("a", "c")[0].numa_nodes == (0, 1)


def test_extending_fails_without_a_larger_mask_or_without_a_preferred_one():
    """The refusal names the nodes that had to be included."""
    memory = provider(4, 4, 8)
    wish = container("c", 6)
    with pytest.raises(
        AllocationError, match="no smallest possible set of NUMA nodes that includes NUMA node 1"
    ):
        memory.allocate(pod("u", wish), wish, on(1))
    admit(memory, "a", 1, on(1))
    with pytest.raises(AllocationError, match="no set of NUMA nodes that includes NUMA node 1 has"):
        memory.allocate(pod("u", wish), wish, on(1, preferred=False))
    assert memory.blocks("u", "c") == ()


def test_a_container_that_holds_memory_gets_its_own_hint_again():
    """Asking or allocating twice changes nothing; a changed request has no preference."""
    memory = provider(4, 4)
    made = admit(memory, "a", 3, on(1))
    memory.allocate(made, made.containers[0], on(0))
    again = Pod("a", "a", memory=(("memory", 3 * GI),), all_containers=made.all_containers)
    changed = container("c", 2)

    assert masks(memory.topology_hints(made, made.containers[0])) == {2: True}
    assert masks(memory.pod_topology_hints(again)) == {2: True}
    assert memory.topology_hints(made, changed) is None
    assert memory.free["memory"] == (4 * GI, GI)


def test_pod_hints_are_for_all_containers_together():
    """The pod's effective request is looked for at once."""
    memory = provider(4, 4)
    wish = container("c", 3)
    made = pod("u", wish, wish, memory=(("memory", 6 * GI),))

    assert masks(memory.pod_topology_hints(made)) == {3: True}


def test_releasing_what_nobody_holds_is_no_error():
    """Unknown names and a second release change nothing."""
    memory = provider(4)
    admit(memory, "a", 1, on(0))
    memory.release("a", "other")
    memory.release("a", "c")
    memory.release("a", "c")
    assert memory.free == memory.allocatable


def test_machines_of_more_than_eight_nodes():
    """Nothing is enumerated there, and the rules are the same."""
    memory = provider(*[4] * 34)
    admit(memory, "single", 1, on(0))
    admit(memory, "group", 5, on(1, 2, preferred=False))
    admit(memory, "best", 5, ANYWHERE)
    admit(memory, "extended", 6, on(7, preferred=False))
    huge = container("c", 34 * 4 + 1)

    assert memory.topology_hints(pod("u", huge), huge) == {}
    assert memory.blocks("best", "c")[0].numa_nodes == (3, 4)
    assert memory.blocks("extended", "c")[0].numa_nodes == (5, 7)
    with pytest.raises(AllocationError, match="no set of NUMA nodes has enough memory"):
        memory.allocate(pod("u", huge), huge, ANYWHERE)


@pytest.mark.parametrize(("holders", "more"), [(2, []), (3, []), (4, ["1 more"])])
def test_an_account_names_up_to_three_pods_that_tie_numa_nodes_together(holders, more):
    memory = provider(5, 5)
    names = [admit(memory, uid, 1, on(0)).namespaced_name for uid in "abcd"[:holders]]
    wish = container("c", 6)
    assert memory.account(pod("u", wish), wish)["memory"].ties() == (((0,), (*names[:3], *more)),)


def test_odd_requests_do_not_pile_up():
    """What is remembered about requests, beyond 8 nodes, is bounded."""
    memory = provider(*[4] * 9)
    for size in range(600):
        wish = Container("c", memory=(("memory", size),))
        memory.topology_hints(pod("u", wish), wish)
    assert 0 < len(memory.ledger.smallest) <= 512


def total_held(memory, containers):
    """Bytes held by type, as the blocks tell it."""
    sizes = {"memory": 0, PAGES: 0}
    for uid, name in containers:
        for block in memory.blocks(uid, name):
            sizes[block.type] += block.size
    return sizes


def drawn_pod(uid, wishes):
    """Return the pod of a drawn list of containers.

    GiB, hundreds of pages, and of what kind each is.
    """
    return pod(
        uid,
        *(
            container(f"c{i}", size, init=kind == "i", sidecar=kind == "s", pages=pages * 100)
            for i, (size, pages, kind) in enumerate(wishes)
        ),
    )


@examples(60)
@given(ACTIONS)
def test_nothing_is_given_twice_and_all_comes_back(actions):
    """Given and free add up to allocatable, and removing all restores all.

    A refused pod takes no memory.
    """
    memory = provider(4, 6, 3, 5, pages=512)
    most = {kind: sum(amounts) for kind, amounts in memory.allocatable.items()}
    running = {}
    for slot, wishes, affinity, preferred in actions:
        uid = f"u{slot}"
        before = memory.free
        if uid in running:
            for each in running.pop(uid).all_containers:
                memory.release(uid, each.name)
        else:
            made = drawn_pod(uid, wishes)
            hint = TopologyHint(None if affinity is None else BitMask.from_int(affinity), preferred)
            try:
                for each in made.all_containers:
                    memory.allocate(made, each, hint)
                running[uid] = made
            except AllocationError:
                for each in reversed(made.all_containers):
                    memory.release(uid, each.name)
                assert memory.free == before

        allocated = total_held(
            memory, [(u, c.name) for u, p in running.items() for c in p.all_containers]
        )
        assert {kind: sum(free) + allocated[kind] for kind, free in memory.free.items()} == most
        assert all(
            0 <= f <= a
            for k in most
            for f, a in zip(memory.free[k], memory.allocatable[k], strict=True)
        )

    for uid, made in running.items():
        for each in made.all_containers:
            memory.release(uid, each.name)

    assert memory.free == memory.allocatable
    assert memory.ledger.unused == memory.ledger.alone == 15
    assert not memory.holdings
    assert not memory.init_holdings


def reserve(*entries):
    """Reservations from (node id, type, bytes)."""
    return [ReservedMemory(node_id, ((kind, amount),)) for node_id, kind, amount in entries]


def test_reservations_and_hugepages_are_taken_off():
    """Memory is what hugepages and the system leave of it.

    Hugepages lose only their own reservation.
    """
    reserved = reserve((2, "memory", GI), (2, "hugepages-2Mi", GI // 2))
    assert memory_capacity(HUGEPAGE_MACHINE, tuple(reserved)).amounts() == {
        "hugepages-1Gi": (GI, 0),
        "hugepages-2Mi": (GI // 2, 0),
        "memory": (5 * GI, 4 * GI),
    }


@pytest.mark.parametrize(
    ("reserved", "message"),
    [
        ([], "some memory reserved on a NUMA node"),
        (reserve((2, "memory", 0)), "some memory reserved on a NUMA node"),
        (reserve((2, "hugepages-1Gi", GI)), "some memory reserved on a NUMA node"),
        (
            reserve((2, "memory", GI), (0, "memory", GI)),
            r"a NUMA node of this machine \(2, 5\), got 0",
        ),
        (reserve((2, "memory", 7 * GI)), "at most the 6Gi bytes there, got '7Gi'"),
        (reserve((2, "memory", GI), (5, "hugepages-2Mi", 1)), "at most the 0 bytes there, got '1'"),
        (
            reserve((2, "memory", GI), (2, "hugepages-64Ki", GI)),
            "one of hugepages-1Gi, hugepages-2Mi, memory",
        ),
        (
            reserve((2, "memory", GI), (2, "memory", GI)),
            "reservedMemory has memory of NUMA node 2 twice",
        ),
    ],
)
def test_impossible_reservations_are_refused(reserved, message):
    """What a kubelet would not start with, or would compute nonsense from, is a ConfigError."""
    with pytest.raises(ConfigError, match=message):
        memory_capacity(HUGEPAGE_MACHINE, tuple(reserved))


def test_what_an_init_container_held_goes_to_the_next():
    """An init container's block shrinks by what later containers of its pod take over."""
    memory = provider(4, 4)
    init, app, second = container("i", 3, init=True), container("a", 2), container("b", 2)
    made = pod("u", init, app, second)
    for each in made.all_containers:
        hints = masks(memory.topology_hints(made, each))
        assert 1 in hints
        memory.allocate(made, each, on(0))

    assert [memory.blocks("u", name)[0].size // GI for name in "iab"] == [0, 2, 2]
    assert memory.free["memory"] == (0, 4 * GI)
    for name in "bai":
        memory.release("u", name)

    assert memory.free == memory.allocatable


def test_reuse_counts_on_exactly_the_same_nodes():
    """What an init container holds on one node helps neither another node nor a larger mask."""
    memory = provider(4, 4)
    init, app = container("i", 3, init=True), container("a", 4)
    made = pod("u", init, app)
    memory.allocate(made, init, on(0))
    assert masks(memory.topology_hints(made, app)) == {1: True, 2: True}
    assert masks(memory.topology_hints(pod("v", app), app)) == {2: True}

    memory.allocate(made, app, on(1))
    assert memory.blocks("u", "i")[0].size == 3 * GI


def test_reuse_needs_every_type():
    """What the init container did not hold must be free."""
    memory = provider(4, pages=512)
    init, app = container("i", 2, init=True), container("a", 2, pages=512)
    made = pod("u", init, app)
    memory.allocate(made, init, on(0))
    memory.allocate(made, app, on(0))

    assert memory.free == {PAGES: (0,), "memory": (GI,)}
    assert {block.type: block.size for block in memory.blocks("u", "i")} == {"memory": 0}


def test_a_sidecar_keeps_what_it_has():
    """A restartable init container takes over, and leaves nothing to those after it."""
    memory = provider(8)
    init, sidecar, app = (
        container("i", 2, init=True),
        container("s", 1, sidecar=True),
        container("a", 2),
    )
    made = pod("u", init, sidecar, app)
    for each in made.all_containers:
        memory.allocate(made, each, on(0))

    assert [memory.blocks("u", name)[0].size // GI for name in "isa"] == [0, 1, 2]
    assert memory.free["memory"] == (5 * GI,)


def test_an_affinity_that_only_fits_with_reuse_is_kept():
    """The kubelet looks at free memory alone first; its extended hint then is the same mask."""
    memory = provider(4, 4)
    init, app = container("i", 3, init=True), container("a", 4)
    made = pod("u", init, app)
    memory.allocate(made, init, on(0))
    memory.allocate(made, app, on(0))

    assert memory.blocks("u", "a") == (MemoryBlock((0,), "memory", 4 * GI),)


def test_an_init_container_that_goes_leaves_what_the_others_hand_on():
    """The one that goes is forgotten, and no other one."""
    memory = provider(8)
    first, second, app = (
        container("i", 2, init=True),
        container("j", 3, init=True),
        container("a", 3),
    )
    made = pod("u", first, second, app)
    memory.allocate(made, first, on(0))
    memory.allocate(made, second, on(0))
    memory.release("u", "i")
    memory.allocate(made, app, on(0))

    assert [memory.blocks("u", name)[0].size // GI for name in "ja"] == [0, 3]
    assert memory.free["memory"] == (5 * GI,)


def whole_pod(*containers, gibibytes):
    """Return a Guaranteed pod that has so much memory as a whole."""
    return replace(
        pod("u", *containers, memory=(("memory", gibibytes * GI),)),
        qos=QOSClass.GUARANTEED,
        pod_level=PodLevel.MANAGED,
    )


def sharing(name):
    return Container(name)


RESTORING = VersionProfile(pod_resources_restored=True, restored_memory_hints_by_container=True)


def test_a_pod_that_has_memory_as_a_whole_keeps_it_over_a_restart():
    memory = provider(4, 4, profile=RESTORING)
    made = whole_pod(container("a", 1), sharing("b"), gibibytes=3)
    memory.allocate_pod(made, on(1))
    memory.readmits_pods = True

    assert masks(memory.pod_topology_hints(made)) == {2: True}
    memory.allocate_pod(made, on(0))
    assert memory.pod_blocks("u") == (MemoryBlock((1,), "memory", 3 * GI),)
    assert memory.free == {"memory": (4 * GI, GI)}
    assert memory.has_exact_books


def test_an_earlier_kubelet_gives_such_a_pod_other_memory_and_loses_what_it_had():
    """What the first container has is compared with what the pod requests."""
    memory = provider(4, 4)
    made = whole_pod(container("a", 1), sharing("b"), gibibytes=3)
    memory.allocate_pod(made, on(1))
    memory.allocate_pod(made, on(0))  # while the kubelet runs nothing changes
    assert memory.free == {"memory": (4 * GI, GI)}

    memory.readmits_pods = True
    assert memory.pod_topology_hints(made) is None
    memory.allocate_pod(made, on(0))
    assert memory.pod_blocks("u") == (MemoryBlock((0,), "memory", 3 * GI),)
    assert memory.free == {"memory": (GI, GI)}

    for name in ("a", "b"):
        memory.release("u", name)
    assert memory.free == {"memory": (4 * GI, GI)}
    assert not memory.has_exact_books
    with pytest.raises(ConfigError, match="the expected machine state is different from the real"):
        provider(4, 4).inherit(memory)


def test_an_earlier_kubelet_has_a_hint_where_the_first_container_has_all():
    memory = provider(4, 4)
    made = whole_pod(sharing("a"), gibibytes=3)
    memory.allocate_pod(made, on(1))
    assert masks(memory.pod_topology_hints(made)) == {2: True}
    memory.release("u", "a")
    assert masks(memory.pod_topology_hints(made)) == {1: True, 2: True, 3: False}


@pytest.mark.parametrize(("profile", "offered"), [(None, None), (RESTORING, {2: True})])
def test_hints_of_a_pod_after_a_restart_are_those_of_its_first_container(profile, offered):
    """Earlier kubelets compare what it has with what the pod requests."""
    memory = provider(4, 4, profile=profile)
    first, second = container("a", 1), container("b", 2)
    made = pod("u", first, second, memory=(("memory", 3 * GI),))
    memory.allocate(made, first, on(1))
    memory.allocate(made, second, on(1))

    hints = memory.pod_topology_hints(made)
    assert (hints and masks(hints)) == offered


def test_a_binding_that_a_refused_pod_left_keeps_a_kubelet_from_starting():
    """Node 1 stays bound to itself, and the container that is left has memory of both nodes."""
    memory = provider(4, 4)
    admit(memory, "wide", 6, on(0, 1))
    assert memory.has_exact_books
    admit(memory, "lone", 1, on(1))
    assert memory.has_exact_books  # it starts at some times
    memory.release("lone", "c")
    assert not memory.has_exact_books
    memory.release("wide", "c")
    assert memory.has_exact_books
