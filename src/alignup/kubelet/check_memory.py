"""Finds what is wrong with a memory manager's state: against itself, the machine, the configuration.

Follows `validateState` of `pkg/kubelet/cm/memorymanager/policy_static.go`, and its messages letter for letter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alignup.kubelet.findings import finding
from alignup.kubelet.memory_state import MemoryTable, NumaNodeState
from alignup.text.byte_sizes import short_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from alignup.kubelet.findings import Finding
    from alignup.kubelet.memory_state import MemoryState
    from alignup.kubernetes.kubelet_config import KubeletConfig
    from alignup.machine.machine import Machine

__all__ = ["check_memory", "fresh_nodes"]


def check_memory(
    state: MemoryState, file: str, config: KubeletConfig, machine: Machine | None
) -> Iterator[Finding]:
    """Yield what is wrong.

    Args:
        state: what is written.
        file: its name.
        config: the kubelet's configuration.
        machine: the machine; None: not known.
    """
    policy = config.memory_manager_policy
    if state.policy != policy:
        message = f'[memorymanager] configured policy "{policy}" differs from state checkpoint policy "{state.policy}"'
        yield finding(
            "memory-policy", file, f"written under the policy {state.policy or 'of no name'}", message
        )
        return
    if policy != "Static" or not state.nodes:
        return
    fresh = state.nodes if machine is None else fresh_nodes(machine, config)
    unknown = list(_unknown(state, file, fresh))
    yield from unknown
    changed = list(_changed(state, file, fresh))
    yield from changed
    if not unknown and not changed:
        yield from _books(state, file)


def fresh_nodes(machine: Machine, config: KubeletConfig) -> dict[int, NumaNodeState]:
    """Return the state that a memory manager writes on an empty node (`getDefaultMachineState`)."""
    kept = {(one.numa_node, kind): size for one in config.reserved_memory for kind, size in one.limits}
    found = {}
    for node in machine.numa_nodes:
        pages = {f"hugepages-{one.size}": one.size_bytes * one.count for one in node.hugepages}
        tables: dict[str, MemoryTable | None] = {}
        for kind, total in (*pages.items(), ("memory", node.memory)):
            reserved = kept.get((node.id, kind), 0)
            there = total - reserved - (sum(pages.values()) if kind == "memory" else 0)
            tables[kind] = MemoryTable(total, reserved, there, 0, there)
        found[node.id] = NumaNodeState(assignments=0, tables=tables, cells=(node.id,))
    return found


def _unknown(state: MemoryState, file: str, nodes: Mapping[int, NumaNodeState]) -> Iterator[Finding]:
    """Yield blocks on NUMA nodes, or of types, that the machine does not have."""
    for uid, containers in state.entries.items():
        for name, blocks in containers.items():
            for block in blocks:
                where = f"container {name} of pod {uid} has {block.type}"
                told = f"[memorymanager] (pod: {uid}, container: {name}) the memory assignment uses"
                strange = [one for one in block.numa_nodes if one not in nodes]
                if strange:
                    text = f"{where} of NUMA node {strange[0]}, which the machine does not have"
                    yield finding("memory-unknown", file, text, f"{told} the NUMA that does not exist")
                elif any(block.type not in (nodes[one].tables or {}) for one in block.numa_nodes):
                    text = f"{where}, which the machine does not have"
                    yield finding("memory-unknown", file, text, f"{told} memory resource that does not exist")


def _changed(state: MemoryState, file: str, fresh: Mapping[int, NumaNodeState]) -> Iterator[Finding]:
    """Yield what there is on the machine, or reserved, and is not what was written."""
    for numa_id in sorted({*state.nodes, *fresh}):
        if numa_id not in fresh or numa_id not in state.nodes:
            who = "the machine has no" if numa_id not in fresh else "the file has no"
            yield finding("memory-changed", file, f"{who} NUMA node {numa_id}")
            continue
        then, now = state.nodes[numa_id], fresh[numa_id]
        for kind in sorted({*(then.tables or {}), *(now.tables or {})}):
            before, after = then.table(kind), now.table(kind)
            for what, old, new in (
                (kind, before.total, after.total),
                (f"{kind} that is reserved", before.system_reserved, after.system_reserved),
                (f"{kind} for pods", before.allocatable, after.allocatable),
            ):
                if old != new:
                    yield finding("memory-changed", file, _difference(numa_id, what, new, old))
                    break
            else:
                if (kind in (then.tables or {})) != (kind in (now.tables or {})):
                    yield finding(
                        "memory-changed",
                        file,
                        f"NUMA node {numa_id} has {kind} in one of file and machine only",
                    )


def _difference(numa_id: int, what: str, now: int, then: int) -> str:
    """Return two amounts in words; in bytes where short ones look alike."""
    new, old = short_bytes(now), short_bytes(then)
    if new == old:
        new, old = f"{now} bytes", f"{then} bytes"
    return f"NUMA node {numa_id} has {new} of {what}, and had {old} when the file was written"


def _books(state: MemoryState, file: str) -> Iterator[Finding]:
    """Yield where free and held memory do not follow from the blocks of containers."""
    held = _held(state)
    for numa_id, node in sorted(state.nodes.items()):
        count = sum(numa_id in one for blocks in held.values() for one, _, _ in blocks)
        if count != node.assignments:
            text = f"NUMA node {numa_id} has {node.assignments} assignments, and {count} blocks lie on it"
            yield finding("memory-books", file, text)
            continue
        cells = [one for one in node.cells or () if one in state.nodes]
        for kind in node.tables or {}:
            reserved = sum(state.nodes[one].table(kind).reserved for one in cells)
            free = sum(state.nodes[one].table(kind).free for one in cells)
            there = sum(state.nodes[one].table(kind).allocatable for one in cells)
            sizes = sum(
                size
                for blocks in held.values()
                for one, type_, size in blocks
                if type_ == kind and {*one} & {*cells}
            )
            if reserved != min(sizes, there) or free != there - reserved:
                where = ",".join(map(str, cells))
                text = (
                    f"of {kind} on NUMA nodes {where}, {reserved} bytes count as held and {free} as free; "
                    f"containers hold {sizes} of {there}"
                )
                yield finding("memory-books", file, text)


def _held(state: MemoryState) -> dict[str, list[tuple[tuple[int, ...], str, int]]]:
    """Return by pod uid the blocks that count: those of the pod as a whole, or of its containers."""
    return {
        uid: [
            (block.numa_nodes, block.type, block.size)
            for blocks in ([state.pods[uid]] if uid in state.pods else containers.values())
            for block in blocks
        ]
        for uid, containers in state.entries.items()
    }
