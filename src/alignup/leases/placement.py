"""Decides which CPUs, memory and devices of a machine a request gets, given what others hold, or why none.

The decision is a node's, with a static CPU manager and, if memory is asked for, a Static memory manager;
what others hold is restored into them, not decided again. A request for a part of the machine gets exactly
that part. Writing the lease down is left to `alignup.leases.acquire`.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, TypeAlias

from alignup.errors import AllocationError, InputError
from alignup.kubernetes.kubelet_config import KubeletConfig, ReservedMemory, TopologyOptions
from alignup.kubernetes.option_values import DEFAULT_MAXIMUM
from alignup.kubernetes.pod import Container, Pod, QOSClass
from alignup.kubernetes.policy_options import TOPOLOGY_OPTION_STAGES, option_stage
from alignup.leases.record import LeaseRecord, MemoryShare, holders
from alignup.machine.cpuset import CPUSet
from alignup.node import Node, plugins_of
from alignup.topology_manager.hints import MAX_NUMA_NODES, BitMask, TopologyHint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from alignup.leases.local_machine import Site
    from alignup.leases.machine_parts import Part
    from alignup.leases.process import ProcessIdentity
    from alignup.leases.request import Request

__all__ = ["Placer"]

_Given: TypeAlias = "tuple[CPUSet, Mapping[str, tuple[str, ...]]]"
"""CPUs, and device ids by resource."""

_CONTAINER: Final = "command"
_MEMORY: Final = "memory"
_PAGE: Final = 4096
"""The bytes of memory that are reserved: a Static memory manager does not start without a reservation."""


class Placer:
    """Places one request on a machine.

    Args:
        site: the machine and its devices.
        request: what is asked for.

    Raises:
        InputError: the machine cannot be asked for that, such as a part of more parts than it has CPUs.
    """

    __slots__ = ("_node", "_part", "_request", "_site")

    def __init__(self, site: Site, request: Request) -> None:
        self._site = site
        self._request = request
        self._node = _node(site, request)
        self._part: Part | None = None
        if request.part is not None:
            from alignup.leases.machine_parts import split_machine  # noqa: PLC0415  # startup counts

            self._part = split_machine(
                site.machine,
                request.part.parts,
                cpus_per_part=request.cpus,
                devices=dict(request.devices),
                inventory=site.inventory,
                preferred_sets=site.preferred_sets,
            )[request.part.rank]

    def place(
        self, holder: ProcessIdentity, name: str, command: str, leases: Sequence[LeaseRecord]
    ) -> LeaseRecord:
        """Return the lease that the request gets. To be called once.

        Args:
            holder: the process that will hold it.
            name: the name of the lease.
            command: its command line, for people.
            leases: those of others.

        Raises:
            AllocationError: the request cannot be met; the sentence says why, and names those who hold something.
            InputError: others hold devices of a resource by other names than those known here.
        """
        self._restore(leases)
        lease_id = os.urandom(8).hex()
        try:
            if self._part is None:
                cpus, devices = self._admit(lease_id, name)
            else:
                cpus, devices = self._take_part(lease_id, name, leases, self._part)
        except AllocationError as error:
            held = f"; held now: {holders(leases)}" if leases else ""
            raise AllocationError(f"{error.detail}{held}", error.reason) from None
        shares = {} if self._node.memory is None else self._node.memory.shares(lease_id, _CONTAINER)
        return LeaseRecord(
            id=lease_id,
            name=name,
            process=holder,
            command=command,
            taken_at=int(time.time()),
            policy=self._request.policy,
            cpus=cpus,
            numa_nodes=self._numa_nodes(cpus, shares, devices),
            memory=tuple(
                MemoryShare(numa_id, kind, size)
                for kind, taken in shares.items()
                for numa_id, size in taken.items()
            ),
            devices={resource: ids for resource, ids in devices.items() if ids},
        )

    def _restore(self, leases: Iterable[LeaseRecord]) -> None:
        """Give the providers the CPUs, memory and devices that the leases of others hold."""
        node = self._node
        for lease in leases:
            if node.cpu is not None:
                node.cpu.adopt(lease.id, _CONTAINER, int(lease.cpus))
            if node.memory is not None and lease.memory:
                node.memory.adopt(lease.id, _CONTAINER, lease.memory_by_node)
            if node.devices is not None:
                known = self._site.inventory
                node.devices.adopt(
                    lease.id,
                    _CONTAINER,
                    {
                        resource: self._known(lease, resource)
                        for resource in lease.devices
                        if resource in known
                    },
                )

    def _known(self, lease: LeaseRecord, resource: str) -> tuple[str, ...]:
        """Return the ids of a resource that a lease has.

        Raises:
            InputError: one of them is not in the inventory, so that one device may go by two names.
        """
        ids = lease.devices[resource]
        strange = set(ids) - {device.id for device in self._site.inventory[resource]}
        if strange:
            raise InputError(
                f"expected devices of {resource} by the names under which lease {lease.name!r} has them "
                f"({', '.join(sorted(strange))}), got others: use the same --device-resource or --devices"
            )
        return ids

    def _admit(self, lease_id: str, name: str) -> _Given:
        """Return the CPUs and devices that the node decides on.

        Raises:
            AllocationError: the node refuses.
        """
        request = self._request
        memory = ((_MEMORY, request.memory),) if request.memory else ()
        container = Container(_CONTAINER, exclusive_cpus=request.cpus, memory=memory, devices=request.devices)
        pod = Pod(
            uid=lease_id,
            name=name,
            containers=(container,),
            qos=QOSClass.GUARANTEED,
            exclusive_cpus=request.cpus,
            memory=memory,
            devices=request.devices,
        )
        admission = self._node.admit(pod)
        if admission.refusal is not None:
            from alignup.topology_manager.refusal_message import cause  # noqa: PLC0415  # startup counts

            refusal = admission.refusal
            why = cause(refusal, self._site.machine.numa_node_ids)
            raise AllocationError(refusal.detail or f"policy {refusal.policy}: {why}", admission.reason)
        got = admission.containers[_CONTAINER]
        return got.cpus or CPUSet(), got.devices

    def _take_part(self, lease_id: str, name: str, leases: Iterable[LeaseRecord], part: Part) -> _Given:
        """Return the CPUs and devices of the part, if no lease has any of them.

        Raises:
            AllocationError: a lease does, or there is too little memory.
        """
        number = f"part {part.rank} of the machine (CPUs {part.cpus})"
        for other in leases:
            twice = other.cpus & part.cpus
            if twice:
                raise AllocationError(
                    f"expected {number} to be free, got CPUs {twice} in use by {other.name!r}"
                )
            for resource, ids in part.devices.items():
                both = sorted(set(ids) & set(other.devices.get(resource, ())))
                if both:
                    got = f"{resource} {', '.join(both)}"
                    raise AllocationError(f"expected {number} to be free, got {got} in use by {other.name!r}")
        if self._node.memory is not None:
            machine = self._site.machine
            mask = BitMask([machine.position(numa_id) for numa_id in part.numa_nodes])
            container = Container(_CONTAINER, memory=((_MEMORY, self._request.memory),))
            pod = Pod(uid=lease_id, name=name, containers=(container,))
            self._node.memory.allocate(pod, container, TopologyHint(mask, True))
        return part.cpus, part.devices

    def _numa_nodes(
        self, cpus: CPUSet, shares: Mapping[str, Mapping[int, int]], devices: Mapping[str, tuple[str, ...]]
    ) -> tuple[int, ...]:
        """Return the ids of the nodes of some CPUs and memory; without either, those near some devices."""
        machine = self._site.machine
        nodes = {
            numa_id
            for numa_id, there in zip(machine.numa_node_ids, machine.node_cpus, strict=True)
            if there & int(cpus)
        }
        nodes |= {numa_id for taken in shares.values() for numa_id, size in taken.items() if size}
        return tuple(sorted(nodes or self._near(devices)))

    def _near(self, devices: Mapping[str, tuple[str, ...]]) -> set[int]:
        """Return the nodes that some devices are near to."""
        return {
            numa_id
            for resource, ids in devices.items()
            for device in self._site.inventory[resource]
            if device.id in ids
            for numa_id in device.numa_nodes or ()
        }


def _node(site: Site, request: Request) -> Node:
    """Return the node that decides: the kubelet's managers, preferring close nodes where distances are known.

    Raises:
        InputError: memory is asked for, and there is none.
    """
    machine = site.machine
    reserved: tuple[ReservedMemory, ...] = ()
    if request.memory:
        roomy = max(machine.numa_nodes, key=lambda node: node.memory)
        if roomy.memory <= _PAGE:
            raise InputError.at("memory", "a machine with memory that this process may use", request.memory)
        reserved = (ReservedMemory(roomy.id, ((_MEMORY, _PAGE),)),)
    version = request.kubelet_version
    wide = option_stage(TOPOLOGY_OPTION_STAGES["max-allowable-numa-nodes"], version) is not None
    config = KubeletConfig(
        topology_manager_policy=request.policy,
        topology_manager_policy_options=TopologyOptions(
            prefer_closest_numa_nodes=machine.distance_matrix is not None,
            max_allowable_numa_nodes=MAX_NUMA_NODES if wide else DEFAULT_MAXIMUM,
        ),
        cpu_manager_policy="static",
        memory_manager_policy="Static" if request.memory else "None",
        reserved_memory=reserved,
        version=version,
    )
    inventory = {resource: site.inventory[resource] for resource, _ in request.devices}
    sets = {resource: sets for resource, sets in site.preferred_sets.items() if resource in inventory}
    return Node(machine, config, inventory, plugins_of(sets), keep_refused_bindings=False)
