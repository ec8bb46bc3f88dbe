"""Which NUMA nodes may be used together: the group rule of the memory manager."""

from __future__ import annotations

import pytest

from alignup.errors import AllocationError
from inputs.memory_pods import admit, container, masks, on, pod, provider


def test_a_node_used_alone_is_not_combined_and_a_group_is_only_used_whole():
    """The single- and cross-NUMA rule."""
    memory = provider(4, 4, 4, 4)
    admit(memory, "single", 1, on(0))
    admit(memory, "group", 5, on(1, 2))
    wish = container("c", 1)

    assert masks(memory.topology_hints(pod("u", wish), wish)) == {
        1: True,
        0b110: False,
        0b1000: True,
    }
    with pytest.raises(AllocationError, match="NUMA nodes 2, 3 cannot be used together"):
        memory.allocate(pod("u", wish), wish, on(2, 3, preferred=False))


def test_nodes_combine_freely_again_once_nobody_uses_them():
    """A group ends with its last container."""
    memory = provider(4, 4)
    admit(memory, "a", 5, on(0, 1))
    admit(memory, "b", 1, on(0, 1))
    wish = container("c", 1)
    memory.release("a", "c")
    assert masks(memory.topology_hints(pod("u", wish), wish)) == {3: False}

    memory.release("b", "c")
    assert masks(memory.topology_hints(pod("u", wish), wish)) == {1: True, 2: True, 3: False}


def test_a_container_alone_on_a_node_of_a_group():
    """As in the kubelet, the node leaves the group until nobody uses it."""
    memory = provider(4, 4, 4)
    admit(memory, "group", 2, on(0, 1, preferred=False))
    admit(memory, "single", 1, on(0, preferred=False))
    wish = container("c", 1)
    assert masks(memory.topology_hints(pod("u", wish), wish)) == {1: True, 4: True}

    memory.release("single", "c")
    assert masks(memory.topology_hints(pod("u", wish), wish)) == {1: True, 4: True}
    memory.release("group", "c")
    assert len(masks(memory.topology_hints(pod("u", wish), wish))) == 7
