"""Memory providers of small machines, pods that ask them for memory, and what they answer."""

from __future__ import annotations

from alignup.kubernetes.kubelet_config import ReservedMemory
from alignup.kubernetes.pod import Container, Pod
from alignup.machine.machine import Core, HugePages, Machine, NumaNode
from alignup.providers.memory.provider import MemoryProvider
from alignup.topology_manager.hints import BitMask, TopologyHint

GI = 1 << 30
ANYWHERE = TopologyHint(None, False)
PAGES = "hugepages-2Mi"


def machine(*gibibytes, ids=None, pages=0):
    """Nodes with so much memory each, hugepages included."""
    return Machine(
        tuple(
            NumaNode(
                node_id,
                size * GI,
                (Core((i,), 0),),
                (HugePages.of_bytes(2 << 20, pages),) if pages else (),
            )
            for i, (node_id, size) in enumerate(
                zip(ids or range(len(gibibytes)), gibibytes, strict=True)
            )
        )
    )


def provider(*gibibytes, ids=None, pages=0, **options):
    """A provider on such a machine; the first node has one GiB more, which is reserved."""
    first, *rest = gibibytes
    made = machine(first + 1, *rest, ids=ids, pages=pages)
    reserved = (ReservedMemory(made.numa_nodes[0].id, (("memory", GI),)),)
    return MemoryProvider(made, reserved, **options)


def container(name, gibibytes, *, init=False, sidecar=False, pages=0):
    requests = (("memory", gibibytes * GI),)
    if pages:
        requests = ((PAGES, pages << 21), *requests)
    return Container(name, is_init=init or sidecar, is_sidecar=sidecar, memory=requests)


def pod(uid, *containers, memory=()):
    inits = tuple(c for c in containers if c.is_init)
    apps = tuple(c for c in containers if not c.is_init)
    return Pod(
        uid,
        uid,
        init_containers=inits,
        containers=apps,
        memory=memory,
        all_containers=(*inits, *apps),
    )


def on(*nodes, preferred=True):
    return TopologyHint(BitMask(nodes), preferred)


def masks(hints, kind="memory"):
    """The hints of one type as {mask: preferred}."""
    return {int(hint.affinity): hint.preferred for hint in hints[kind]}


def admit(memory, uid, gibibytes, affinity):
    """Allocate for a pod of one container."""
    made = pod(uid, container("c", gibibytes))
    memory.allocate(made, made.containers[0], affinity)
    return made
