"""Gives leases from wherever they are kept: from the agent of this machine where there is one, else from a file.

Both do the same for the commands. Where an agent keeps the leases, nothing is ever given beside it, whether it runs or
not.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from alignup.errors import AllocationError, InputError
from alignup.leases.grant import AGENT_VARIABLE, Grant, KnownLease, KnownPart
from alignup.leases.lease_liveness import lease_liveness
from alignup.leases.process import Liveness
from alignup.leases.store import AgentOwnsError, LeaseFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from alignup.leases.acquire import Claim
    from alignup.leases.grant import LeaseSource
    from alignup.leases.local_machine import Site
    from alignup.leases.record import LeaseRecord
    from alignup.leases.request import Request

__all__ = ["FileSource", "agent_socket", "open_source"]

_STATE_VARIABLE: Final = "ALIGNUP_STATE"
_SYSTEM_SOCKET: Final = Path("/run/alignup/agent.sock")


class FileSource:
    """Leases in a file.

    Args:
        file: the file.
        load_site: returns the machine, with the devices of some resources; not called before it is needed.
    """

    def __init__(self, file: LeaseFile, load_site: Callable[[list[str]], Site]) -> None:
        self._file = file
        self._load_site = load_site
        self._site: Site | None = None

    def prepare(self, request: Request, *, binds: bool) -> None:
        """See `LeaseSource`."""
        self._site = self._load_site([resource for resource, _ in request.devices])
        if binds and not self._site.is_here:
            raise InputError(
                "expected this machine, or --no-bind next to another one, got another at --machine"
            )

    def acquire(self, claim: Claim, wait: float | None = None) -> Grant:
        """See `LeaseSource`."""
        from alignup.leases.acquire import acquire, give_back  # noqa: PLC0415  # startup counts
        from alignup.leases.binding import memory_nodes  # noqa: PLC0415  # as above
        from alignup.leases.environment import cuda_variables  # noqa: PLC0415  # as above

        site = self._site or self._load_site([resource for resource, _ in claim.request.devices])
        try:
            lease = acquire(self._file, site, claim, wait)
        except AgentOwnsError as error:
            return self._agent(error).acquire(claim, wait)
        try:
            cuda = cuda_variables(lease.devices, site.inventory, site.machine)
        except InputError:
            give_back(self._file, lease)
            raise
        nodes = memory_nodes(lease, site.machine)
        return Grant(lease, site.identity, self._file.path, nodes, site.is_here, cuda)

    def give_back(self, lease: LeaseRecord) -> None:
        """See `LeaseSource`; an agent may have taken over the file since it was given."""
        from alignup.leases.acquire import give_back  # noqa: PLC0415  # startup counts

        try:
            give_back(self._file, lease)
        except AgentOwnsError as error:
            self._agent(error).give_back(lease)

    def leases(self) -> list[KnownLease]:
        """See `LeaseSource`."""
        return [KnownLease(lease, lease_liveness(lease).value) for lease in self._file.read().leases]

    def release(self, name: str, *, force: bool) -> KnownLease:
        """See `LeaseSource`."""
        with self._file.change() as change:
            lease = change.named(name)
            if lease is None:
                raise AllocationError(f"expected the name of a lease, got {name!r}: see `alignup ps`")
            alive = lease_liveness(lease)
            if not force and alive is not Liveness.GONE:
                words = (
                    "running"
                    if alive is Liveness.RUNNING
                    else "on another host or in another container, or cannot be looked at now"
                )
                holder = f"pid {lease.process.pid}, which is {words}"
                raise AllocationError(f"lease {name!r} is held by {holder}; --force frees it")
            change.drop(lease.id)
        return KnownLease(lease, alive.value)

    def parts(self, count: int, cpus_per_part: int, devices: Mapping[str, int]) -> list[KnownPart]:
        """See `LeaseSource`; the sentence says if this process may use only some of the machine's CPUs."""
        from alignup.leases.environment import cuda_variables  # noqa: PLC0415  # startup counts
        from alignup.leases.machine_parts import split_machine  # noqa: PLC0415  # as above

        site = self._load_site([resource for resource, wanted in devices.items() if wanted])
        try:
            cut = split_machine(
                site.machine,
                count,
                cpus_per_part=cpus_per_part,
                devices=devices,
                inventory=site.inventory,
                preferred_sets=site.preferred_sets,
            )
        except InputError as error:
            raise InputError(f"{error}; {site.limit}" if site.limit else str(error)) from None
        return [KnownPart(part, cuda_variables(part.devices, site.inventory, site.machine)) for part in cut]

    def _agent(self, error: AgentOwnsError) -> LeaseSource:
        """Return the agent that has taken over the file."""
        from alignup.leases.agent_client import AgentSource  # noqa: PLC0415  # only where there is one

        source: LeaseSource = AgentSource(Path(error.socket), self._file.tell)
        return source


def agent_socket(state: Path | None, tell: Callable[[str], None]) -> str:
    """Return the socket of the agent to ask; empty if the leases are in a file.

    The agent that ALIGNUP_AGENT names, unless another file is asked for; for the default file that of the system; or
    the one that has taken over the file.

    Args:
        state: the file of leases that was asked for; None: none was.
        tell: called with a sentence if the file is damaged.

    Raises:
        InputError: the file cannot be read.
    """
    named = os.environ.get(AGENT_VARIABLE)
    is_default = state is None or str(state) == os.environ.get(_STATE_VARIABLE)
    if named is not None and is_default:
        return named
    if state is None and _SYSTEM_SOCKET.exists():
        return str(_SYSTEM_SOCKET)
    return LeaseFile(state, tell).agent()


def no_site(_resources: list[str]) -> Site:
    """Stand for a machine where none is needed."""
    raise NotImplementedError


def open_source(
    state: Path | None,
    tell: Callable[[str], None],
    load_site: Callable[[list[str]], Site] = no_site,
    told: str = "",
) -> LeaseSource:
    """Return whoever keeps the leases.

    Args:
        state: the file of leases that was asked for; None: none was.
        tell: called with a sentence when something takes long, or a file is damaged.
        load_site: returns the machine, with the devices of some resources, where no agent has them.
        told: the options that say something about the machine or its devices, which an agent knows itself.

    Raises:
        InputError: the file cannot be read, or an agent is told about its machine.
    """
    socket = agent_socket(state, tell)
    if socket:
        from alignup.leases.agent_client import AgentSource  # noqa: PLC0415  # only where there is one

        if told:
            raise InputError.at(
                told, f"nothing beside the agent at {socket}, which is told itself when it is started", told
            )
        return AgentSource(Path(socket), tell)
    return FileSource(LeaseFile(state, tell), load_site)
