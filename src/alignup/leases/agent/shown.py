"""Says what a user may see of the leases: all of their own, and of others' what they hold but not who they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from alignup.leases.agent.wire import Shown
from alignup.leases.lease_liveness import lease_liveness
from alignup.leases.process import Liveness, ProcessIdentity

if TYPE_CHECKING:
    from alignup.leases.agent.ledger import Ledger
    from alignup.leases.record import LeaseRecord

__all__ = ["leases_shown"]

_NOBODY: Final = ProcessIdentity(0, 0, "", 0)


def leases_shown(ledger: Ledger, uid: int) -> tuple[Shown, ...]:
    """Return all leases as a user may see them."""
    sees_all = ledger.is_admin(uid)
    return tuple(
        Shown(lease, lease_liveness(lease).value)
        if sees_all or ledger.owner_of(lease) == uid
        else Shown(_redacted(lease, ledger.owner_of(lease)), Liveness.RUNNING.value)
        for lease in ledger.leases.values()
    )


def _redacted(lease: LeaseRecord, uid: int) -> LeaseRecord:
    """Return a lease without what is nobody else's business."""
    return msgspec.structs.replace(
        lease, id="", name=f"(user {uid})", process=_NOBODY, keeper=None, command="", answer=None, cgroup=""
    )
