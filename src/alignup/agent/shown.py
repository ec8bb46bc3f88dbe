"""Says what a user may see: all of their own leases, what others hold but not who they are, the machine in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from alignup.leases.agent_messages import Parts, PartShown, Shown
from alignup.leases.environment import cuda_variables
from alignup.leases.machine_parts import split_machine
from alignup.leases.process import Liveness, ProcessIdentity

if TYPE_CHECKING:
    from collections.abc import Callable

    from alignup.agent.ledger import Ledger
    from alignup.leases.agent_messages import Cut
    from alignup.leases.local_machine import Site
    from alignup.leases.record import LeaseRecord

__all__ = ["leases_shown", "machine_shown"]

_NOBODY: Final = ProcessIdentity(0, 0, "", 0)


def leases_shown(ledger: Ledger, uid: int, state_of: Callable[[str], Liveness]) -> tuple[Shown, ...]:
    """Return all leases as a user may see them; `state_of` says of an id whether a process of that lease runs."""
    sees_all = ledger.is_admin(uid)
    return tuple(
        Shown(lease, state_of(lease.id).value)
        if sees_all or ledger.owner_of(lease) == uid
        else Shown(_redacted(lease, ledger.owner_of(lease)), Liveness.RUNNING.value)
        for lease in ledger.leases.values()
    )


def machine_shown(request: Cut, ledger: Ledger, site: Site) -> Parts:
    """Return the machine in parts.

    Raises:
        InputError: it cannot be cut so.
    """
    inventory = ledger.node.inventory
    cut = split_machine(
        site.machine,
        request.parts,
        cpus_per_part=request.cpus_per_part,
        devices=request.devices,
        inventory=inventory,
        preferred_sets=site.preferred_sets,
    )
    return Parts(
        tuple(
            PartShown(
                part.rank,
                part.cpus,
                part.numa_nodes,
                part.memory,
                dict(part.devices),
                cuda_variables(part.devices, inventory, site.machine),
            )
            for part in cut
        )
    )


def _redacted(lease: LeaseRecord, uid: int) -> LeaseRecord:
    """Return a lease without what is nobody else's business."""
    return msgspec.structs.replace(
        lease, id="", name=f"(user {uid})", process=_NOBODY, keeper=None, command="", answer=None, cgroup=""
    )
