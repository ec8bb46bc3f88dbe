"""Places one request on a machine, given what others hold: what it gets, or why it gets nothing, and who has it.

The decision is made in `alignup.leases.lease_node`; what others hold is restored there, not decided again. Writing the
lease down is left to `alignup.leases.acquire`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from alignup.errors import AllocationError
from alignup.kubernetes.versions import NEWEST
from alignup.leases.lease_node import LeaseNode, Tenant
from alignup.leases.record import LeaseRecord, holders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alignup.leases.local_machine import Site
    from alignup.leases.process import ProcessIdentity
    from alignup.leases.request import Request

__all__ = ["Placer"]


class Placer:
    """Places one request on a machine.

    Args:
        site: the machine and its devices.
        request: what is asked for.

    Raises:
        InputError: the machine cannot be asked for that, such as a part of more parts than it has CPUs.
    """

    __slots__ = ("_node", "_request")

    def __init__(self, site: Site, request: Request) -> None:
        self._request = request
        resources = [resource for resource, _ in request.devices]
        self._node = LeaseNode(
            site, resources, has_memory=request.memory > 0, version=request.kubelet_version or NEWEST
        )
        if request.part is not None:
            self._node.part_of(request)

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
        for lease in leases:
            self._node.adopt(lease)
        tenant = Tenant(os.urandom(8).hex(), name, holder, command)
        try:
            return self._node.place(self._request, tenant, leases)
        except AllocationError as error:
            held = f"; held now: {holders(leases)}" if leases else ""
            raise AllocationError(f"{error.detail}{held}", error.reason) from None
