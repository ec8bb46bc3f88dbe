"""What a process is told of the part that it has, and how it takes its place there."""

from __future__ import annotations

from pathlib import Path

import pytest

from alignup.errors import AlignupWarning, InputError
from alignup.host.parts import part as module
from alignup.host.parts.part import (
    Part,
    device_variable,
    variables,
)
from alignup.host.processes import binding
from alignup.machine.cpuset import CPUSet


def variables_of(**fields):
    return variables(**{"cpus": CPUSet(), "numa_nodes": (), "memory": 0, "devices": {}, **fields})


def test_all_that_is_had_is_told_and_nothing_else():
    """Empty variables would be taken for something."""
    assert variables_of() == {}
    assert variables_of(
        cpus=CPUSet.parse("0-3"), numa_nodes=(0, 2), memory=5, devices={"a.b/c-d": ("x", "y")}
    ) == {
        "ALIGNUP_CPUS": "0-3",
        "ALIGNUP_NUMA_NODES": "0,2",
        "ALIGNUP_MEMORY": "5",
        "ALIGNUP_DEVICE_A_B_C_D": "x,y",
    }


def test_names_of_resources_become_names_of_variables():
    """Upper case, and an underscore for whatever else."""
    assert device_variable("nvidia.com/gpu") == "ALIGNUP_DEVICE_NVIDIA_COM_GPU"
    assert device_variable("hub/é1") == "ALIGNUP_DEVICE_HUB__1"


@pytest.fixture
def bound(monkeypatch):
    """What a part binds, in order; its nodes are not all of the machine's memory."""
    calls = []
    monkeypatch.setattr(binding, "bind_threads", lambda cpus: calls.append(str(cpus)))
    monkeypatch.setattr(binding, "bind_cpus", lambda cpus: calls.append(f"{cpus}, one thread"))
    monkeypatch.setattr(
        binding, "set_memory", lambda nodes, mode: calls.append((tuple(nodes), mode)) or ""
    )
    monkeypatch.setattr(module, "_is_all_memory", lambda _: False)
    return calls


def part_of(*memory):
    return Part(2, CPUSet.parse("0-3"), (0, 3), memory, {"a.b/c": ("x", "y")}, 8, {"SEEN": "1"})


def test_a_child_is_told_of_its_part():
    """Its memory is the sum over the nodes, and what its GPUs are seen by comes last."""
    assert part_of((0, 5), (3, 6)).environment() == {
        "ALIGNUP_PART": "2/8",
        "ALIGNUP_CPUS": "0-3",
        "ALIGNUP_NUMA_NODES": "0,3",
        "ALIGNUP_MEMORY": "11",
        "ALIGNUP_DEVICE_A_B_C": "x,y",
        "SEEN": "1",
    }


def test_cpus_are_bound_before_memory(bound):
    """Those of the other threads too, unless they are left out."""
    part_of((0, 5), (3, 6)).bind("interleave")
    part_of((0, 5)).bind(threads=False)
    assert bound == ["0-3", ((0, 3), "interleave"), "0-3, one thread", ((0,), "preferred")]


def test_a_part_without_memory_can_only_be_local(bound):
    part_of().bind("interleave")
    part_of().bind("local")
    assert bound == ["0-3", "0-3", ((), "local")]


def test_nodes_with_all_memory_need_no_preference(bound, monkeypatch):
    """The kernel prefers them anyway; other modes are set all the same."""
    monkeypatch.setattr(module, "_is_all_memory", lambda nodes: nodes == [0, 3])
    part_of((0, 5), (3, 6)).bind()
    part_of((0, 5)).bind()
    part_of((0, 5), (3, 6)).bind("weighted-interleave")
    assert bound == ["0-3", "0-3", ((0,), "preferred"), "0-3", ((0, 3), "weighted-interleave")]


def test_an_unknown_memory_policy_binds_nothing(bound):
    with pytest.raises(InputError, match="got 'near' at memory"):
        part_of((0, 5)).bind("near")
    assert bound == []


def test_memory_that_runs_out_is_warned_of(bound):
    """Under `bind` only: the kernel kills."""
    part = Part(0, CPUSet([0]), (0,), ((0, 1 << 60),), parts=1)
    part.bind("preferred")
    if not Path("/sys/devices/system/node/node0/meminfo").exists():
        pytest.skip("a kernel with NUMA nodes")
    with pytest.warns(
        AlignupWarning, match=r"NUMA nodes 0 have \d+ MiB left of the \d+ MiB of this part"
    ):
        part.bind("bind")
    assert bound[-1] == ((0,), "bind")


@pytest.mark.usefixtures("bound")
def test_memory_that_cannot_be_bound_is_a_warning(monkeypatch):
    monkeypatch.setattr(binding, "set_memory", lambda *_: "not permitted")
    with pytest.warns(AlignupWarning, match="not permitted; going on with CPUs 0"):
        Part(0, CPUSet([0]), (0,), ((0, 1),)).bind()
