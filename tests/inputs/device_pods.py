"""Device providers of small machines, pods that ask them for devices, and what they answer."""

from __future__ import annotations

from alignup.kubernetes.pod import Container, Pod
from alignup.machine.machine import Core, Machine, NumaNode
from alignup.providers.devices.provider import Device, DeviceProvider
from alignup.topology_manager.hints import BitMask, TopologyHint

GPU, NIC = "example.com/gpu", "example.com/nic"
ANYWHERE = TopologyHint(None, False)


def machine(*ids):
    return Machine(tuple(NumaNode(node_id, 0, (Core((i,), 0),)) for i, node_id in enumerate(ids)))


def provider(*places, ids=(0, 1, 2, 3), **options):
    """A provider of GPUs `0`, `1`, ... near to the given nodes: a tuple, one id, or None."""
    return DeviceProvider(machine(*ids), {GPU: gpus(*places)}, **options)


def gpus(*places):
    return [
        Device(str(i), place if place is None or isinstance(place, tuple) else (place,))
        for i, place in enumerate(places)
    ]


def wish(name, count, *, init=False, sidecar=False, resource=GPU):
    return Container(
        name, is_init=init or sidecar, is_sidecar=sidecar, devices=((resource, count),)
    )


def pod(*containers, uid="u", devices=()):
    return Pod(uid, uid, devices=devices, all_containers=containers)


def on(*nodes):
    return TopologyHint(BitMask(nodes), True)


def give(made, count, affinity=ANYWHERE, *, uid="u", name="c"):
    """Allocate for a container of its own pod; return the ids it got."""
    container = wish(name, count)
    made.allocate(pod(container, uid=uid), container, affinity)
    return "".join(made.devices(uid, name).get(GPU, ()))


def hints(made, count, *, uid="u", name="c"):
    """The hints of a container as {mask: preferred}, None for no preference."""
    container = wish(name, count)
    return masks(made.topology_hints(pod(container, uid=uid), container)[GPU])


def masks(hints):
    if hints is None:
        return None
    return {int(hint.affinity): hint.preferred for hint in hints}
