"""Puts the holdings of a kubelet's state files into the providers of a node, exactly as the files say.

Which entries count, and whose they are, is decided in `alignup.kubelet.read`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from alignup.errors import InputError
from alignup.kubernetes.pod import Container, Pod
from alignup.kubernetes.qos import QOSClass
from alignup.kubernetes.versions import PodLevel
from alignup.machine.device_inventory import Device, devices_near
from alignup.providers.memory.provider import RestoredMemory
from alignup.records import replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from alignup.kubelet.checkpoints import DeviceCheckpoint, KubeletState, MemoryState
    from alignup.node import Node
    from alignup.topology_manager.admission import MemoryBlock


def restore(node: Node, state: KubeletState, pods: Sequence[Pod]) -> None:
    """Let a node hold what a state says.

    Args:
        node: a node on which nobody holds anything.
        state: what the kubelet has written.
        pods: the pods of the node; each uid in the state has one.

    Raises:
        InputError: the state is not one of this machine or configuration.
    """
    names = {pod.uid: f"{pod.namespace}/{pod.name}" for pod in pods}
    if node.cpu is not None and state.cpu is not None:
        held = {
            uid: {name: int(cpus) for name, cpus in containers.items()} for uid, containers in state.cpu.entries.items()
        }
        whole = {uid: int(cpus) for uid, cpus in state.cpu.pods.items()}
        node.cpu.restore(held, int(state.cpu.shared), whole)
    if node.memory is not None and state.memory is not None and state.memory.nodes:
        known = node.memory.allocatable
        restored = restored_memory(state.memory, node.machine.numa_node_ids, names, known)
        node.memory.restore(replace(restored, parts=_parts(state.memory, pods)))
    if node.devices is not None and state.devices is not None:
        by_pod: dict[str, dict[str, Mapping[str, Sequence[str]]]] = {}
        for (uid, name), ids in state.device_ids().items():
            by_pod.setdefault(uid, {})[name] = ids
        node.devices.restore(by_pod, _gone(node, state.devices))
    node.manager.restore(pods)


def _gone(node: Node, checkpoint: DeviceCheckpoint) -> dict[str, tuple[Device, ...]]:
    """Return the devices that containers hold and no plugin reports, near the NUMA nodes that the file tells."""
    pools = node.devices.pools if node.devices else {}
    return devices_near(
        (entry.resource, identity, {numa_id} & {*node.machine.numa_node_ids})
        for entry in checkpoint.entries
        for numa_id, ids in entry.devices.items()
        for identity in ids
        if entry.resource not in pools or not pools[entry.resource].knows(identity)
    )


def restored_memory(
    state: MemoryState, ids: Sequence[int], names: Mapping[str, str], known: Iterable[str] = ()
) -> RestoredMemory:
    """Return a memory manager's state by the positions of NUMA nodes.

    Args:
        state: what the memory manager has written.
        ids: the kernel ids of the machine's NUMA nodes.
        names: by pod uid, the pod's name in messages.
        known: further types of memory that the machine has; the kubelet has nothing of them to give.

    Raises:
        InputError: the state is one of other NUMA nodes.
    """
    if sorted(state.nodes) != sorted(ids):
        raise InputError.at("machineState", f"the machine's NUMA nodes {list(ids)}", sorted(state.nodes))
    position = {numa_id: index for index, numa_id in enumerate(ids)}
    present, types = set(ids), set(state.types)
    for (uid, _), block in _blocks(state):
        if not present.issuperset(block.numa_nodes) or not block.numa_nodes or block.type not in types:
            told = (block.numa_nodes, block.type)
            raise InputError.at(f"entries of {uid}", "memory of the machine's NUMA nodes", told)
    cells = [[one for one in state.nodes[numa_id].cells or (numa_id,) if one in position] for numa_id in ids]
    blocks_on = Counter(numa_id for _, block in _blocks(state) for numa_id in block.numa_nodes)
    kinds = sorted({*state.types, *known})
    return RestoredMemory(
        {kind: tuple(state.nodes[numa_id].table(kind).allocatable for numa_id in ids) for kind in kinds},
        {kind: tuple(state.nodes[numa_id].table(kind).free for numa_id in ids) for kind in kinds},
        _shares(state, position),
        [sum(1 << position[one] for one in set(cell)) for cell in cells],
        [max(0, state.nodes[numa_id].assignments - blocks_on[numa_id]) for numa_id in ids],
        names,
    )


def _blocks(state: MemoryState) -> Iterator[tuple[tuple[str, str], MemoryBlock]]:
    """Yield by pod uid and container the blocks that count; under "" those of pods with memory as a whole."""
    for uid, containers in {**state.entries, **{uid: {"": blocks} for uid, blocks in state.pods.items()}}.items():
        yield from (((uid, name), block) for name, blocks in containers.items() for block in blocks)


def _parts(state: MemoryState, pods: Sequence[Pod]) -> dict[str, dict[str, tuple[bool, tuple[tuple[str, int], ...]]]]:
    """Return of pods that have memory as a whole what each container has of it, and whether it ends early."""
    ends = {(pod.uid, one.name): one.is_init and not one.is_sidecar for pod in pods for one in pod.all_containers}
    return {
        uid: {
            name: (ends.get((uid, name), False), tuple((one.type, one.size) for one in blocks))
            for name, blocks in state.entries.get(uid, {}).items()
        }
        for uid in state.pods
    }


def _shares(state: MemoryState, position: Mapping[int, int]) -> dict[tuple[str, str], dict[str, Mapping[int, int]]]:
    """Return how many bytes each container holds on which NUMA node.

    The file says so only for containers of one node. Of the others it says the sum, and by node what all together
    hold; their bytes are dealt out so that both are met.
    """
    left = {(kind, numa_id): node.table(kind).reserved for numa_id, node in state.nodes.items() for kind in state.types}
    found: dict[tuple[str, str], dict[str, Mapping[int, int]]] = {}
    for key, block in sorted(_blocks(state), key=lambda entry: len(entry[1].numa_nodes)):
        missing = block.size
        parts = dict.fromkeys((position[numa_id] for numa_id in block.numa_nodes), 0)
        for numa_id in block.numa_nodes:
            part = min(missing, left[block.type, numa_id])
            left[block.type, numa_id] -= part
            parts[position[numa_id]] += part
            missing -= part
        # the kubelet can have taken another container's bytes for this one's when that was removed
        parts[position[block.numa_nodes[0]]] += missing
        found.setdefault(key, {})[block.type] = parts
    return found


def held_pod(uid: str, namespace: str, name: str, containers: Iterable[str], state: KubeletState) -> Pod:
    """Return a pod of which no manifest is known: its requests are what it holds."""
    devices = state.device_ids()
    return Pod(
        uid,
        name,
        namespace,
        containers=tuple(_held_container(state, uid, one, devices.get((uid, one), {})) for one in containers),
        qos=QOSClass.GUARANTEED,
        pod_level=PodLevel.MANAGED if state.is_whole(uid) else PodLevel.IGNORED,
    )


def _held_container(state: KubeletState, uid: str, name: str, devices: Mapping[str, Sequence[str]]) -> Container:
    cpus = len(state.cpus(uid, name) or ())
    memory = {block.type: block.size for block in state.blocks(uid, name)}
    counts = {resource: len(ids) for resource, ids in devices.items()}
    amounts = {**({"cpu": 1000 * cpus} if cpus else {}), **memory, **counts}
    return Container(
        name,
        amounts,
        amounts,
        exclusive_cpus=cpus,
        memory=tuple(sorted(memory.items())),
        devices=tuple(sorted(counts.items())),
    )
