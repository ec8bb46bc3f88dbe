"""What follows from a lease for the process that has it: its environment, and how its memory is bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.leases.environment import variables
from alignup.leases.recovery import VARIABLE, Evidence, evidence_text

if TYPE_CHECKING:
    from pathlib import Path

    from alignup.leases.local_machine import Site
    from alignup.leases.record import LeaseRecord

__all__ = ["evidence_of", "is_strict", "lease_variables", "memory_nodes"]

_STRICT: Final = frozenset({"restricted", "single-numa-node"})
_UNALIGNED: Final = "none"


def is_strict(lease: LeaseRecord) -> bool:
    """Return whether memory must come from the lease's nodes: what a policy promises of CPUs, memory keeps."""
    return lease.policy in _STRICT


def memory_nodes(lease: LeaseRecord, site: Site) -> tuple[int, ...]:
    """Return the kernel's ids of the nodes to have memory of; none if the memory is not to be bound.

    They are those of the memory that was asked for. Where none was, they are those of the CPUs, as far as
    they have memory; under policy none they are none.
    """
    asked = {share.numa_node for share in lease.memory if share.size}
    if asked:
        return tuple(sorted(asked))
    if lease.policy == _UNALIGNED:
        return ()
    cpus = int(lease.cpus)
    machine = site.machine
    return tuple(
        node.id
        for node, there in zip(machine.numa_nodes, machine.node_cpus, strict=True)
        if there & cpus and node.memory
    )


def lease_variables(lease: LeaseRecord, site: Site, state: Path) -> dict[str, str]:
    """Return the environment variables of a command that has the lease."""
    return {
        "ALIGNUP_NAME": lease.name,
        "ALIGNUP_STATE": str(state),
        VARIABLE: evidence_text(evidence_of(lease, site, state)),
        **variables(
            site,
            cpus=lease.cpu_list,
            numa_nodes=lease.numa_nodes,
            memory=sum(lease.memory_sizes.values()),
            devices=lease.devices,
        ),
    }


def evidence_of(lease: LeaseRecord, site: Site, state: Path) -> Evidence:
    """Return what the process shows of its lease; see `alignup.leases.recovery`."""
    return Evidence(str(state), site.identity, lease)
