"""What later containers of a pod take over from its init containers' memory."""

from __future__ import annotations

from alignup.topology_manager.admission import MemoryBlock
from inputs.memory_pods import GI, PAGES, container, masks, on, pod, provider


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
