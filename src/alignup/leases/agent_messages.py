"""Holds the messages between a command and the agent, and frames them: four bytes of length, then JSON.

Both ends read what somebody else wrote, so lengths have bounds and every field has a type.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from alignup.errors import InputError
from alignup.leases.record import LeaseRecord, MachineIdentity, Waiter, encode_leases, lease_decoder
from alignup.machine.cpuset import CPUSet  # noqa: TC001  # as above
from alignup.processes.identity import ProcessIdentity  # noqa: TC001  # msgspec reads annotations

HEADER: Final = 4
LARGEST_REQUEST: Final = 1 << 16
LARGEST_REPLY: Final = 64 << 20


class Ask(msgspec.Struct, frozen=True, tag="ask", omit_defaults=True):
    """Asks for a lease; the reply is Granted, Refused or Failed. The same request gets the same lease."""

    id: str
    """Of the lease that is to be made: 16 hexadecimal digits, never used before."""
    holder: ProcessIdentity
    command: str
    stem: str
    keeper: ProcessIdentity | None = None
    cpus: int = 0
    memory: int = 0
    devices: dict[str, int] = msgspec.field(default_factory=dict)
    policy: str = "best-effort"
    name: str = ""
    part: tuple[int, int] | None = None
    """(rank, parts)"""
    kubelet_version: str = ""
    """The release whose managers are to decide, which must be the agent's; empty: the agent's."""
    wait: float = 0.0
    """Seconds; below 0: as long as it takes."""


class GiveBack(msgspec.Struct, frozen=True, tag="give-back"):
    """Ends a lease of the user's own by its id; the reply is Done."""

    id: str


class Release(msgspec.Struct, frozen=True, tag="release"):
    """Ends a lease by its name; the reply is Done, Refused or Failed."""

    name: str
    force: bool = False


class List(msgspec.Struct, frozen=True, tag="list"):
    """Asks for all leases and the queue; the reply is Leases."""


class Cut(msgspec.Struct, frozen=True, tag="cut", omit_defaults=True):
    """Asks for the machine in equal parts; the reply is Parts or Failed."""

    parts: int
    cpus_per_part: int = 0
    devices: dict[str, int] = msgspec.field(default_factory=dict)


class Granted(msgspec.Struct, frozen=True, tag="granted"):
    """A lease was made."""

    lease: LeaseRecord
    machine: MachineIdentity
    state: str
    """The lease file that the agent has taken over."""
    memory_nodes: tuple[int, ...]
    """Kernel ids of the NUMA nodes to bind memory to."""
    is_here: bool
    """The lease is of the machine that the agent runs on."""
    cuda: dict[str, str] = msgspec.field(default_factory=dict)


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """There is no lease now."""

    detail: str
    reason: str = ""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The request is invalid, or the agent cannot carry it out."""

    detail: str


class Done(msgspec.Struct, frozen=True, tag="done"):
    """It is done."""

    lease: LeaseRecord | None = None
    """What has ended."""


class Shown(msgspec.Struct, frozen=True):
    """A lease as a user may see it: of others', neither name nor process nor command."""

    lease: LeaseRecord
    state: str


class Leases(msgspec.Struct, frozen=True, tag="leases", omit_defaults=True):
    """All leases, and the queue; of other users' requests, neither name nor process nor command."""

    leases: tuple[Shown, ...]
    waiting: tuple[Waiter, ...] = ()


class PartShown(msgspec.Struct, frozen=True):
    """A part of the machine; see `alignup.machine_parts.Part`."""

    rank: int
    cpus: CPUSet
    numa_nodes: tuple[int, ...]
    memory: tuple[tuple[int, int], ...]
    devices: dict[str, tuple[str, ...]]
    cuda: dict[str, str]


class Parts(msgspec.Struct, frozen=True, tag="parts"):
    """The machine, cut."""

    parts: tuple[PartShown, ...]


Request: TypeAlias = Ask | GiveBack | Release | List | Cut
Reply: TypeAlias = Granted | Refused | Failed | Done | Leases | Parts

_REQUEST: Final = lease_decoder(Ask | GiveBack | Release | List | Cut).decode  # type: ignore[arg-type]  # a union
_REPLY: Final = lease_decoder(Granted | Refused | Failed | Done | Leases | Parts).decode  # type: ignore[arg-type]


def frame(message: Request | Reply) -> bytes:
    """Return a message as it goes through a socket.

    Raises:
        InputError: there is text in it that is not UTF-8.
    """
    try:
        text = encode_leases(message)
    except UnicodeEncodeError as error:
        raise InputError.at("a message to or from the agent", "text of UTF-8", error.object) from None
    return len(text).to_bytes(HEADER, "big") + text


def length_of(header: bytes | bytearray, largest: int) -> int:
    """Return how many bytes follow the first four.

    Raises:
        InputError: more than the largest message has.
    """
    length = int.from_bytes(header[:HEADER], "big")
    if length > largest:
        raise InputError.at("the length of a message", f"up to {largest} bytes", length)
    return length


def decode_request(text: bytes) -> Request:
    """Return a request.

    Raises:
        InputError: it is none.
    """
    try:
        request: Request = _REQUEST(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InputError(f"expected a request to the agent, got another message: {error}") from None
    return request


def decode_reply(text: bytes) -> Reply:
    """Return a reply.

    Raises:
        InputError: it is none.
    """
    try:
        reply: Reply = _REPLY(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InputError(f"expected a reply of the agent, got another message: {error}") from None
    return reply
