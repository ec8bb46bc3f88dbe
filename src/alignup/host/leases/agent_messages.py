"""Holds the messages between a command and the agent, and frames them.

A frame is four bytes of length, then JSON. What is told of leases is the same where a file keeps
them: a `Grant`, `Leases`, `Parts`.

Both ends read what somebody else wrote, so lengths have bounds and every field has a type.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from alignup.errors import InputError
from alignup.host.leases.record import (
    LeaseRecord,
    MachineIdentity,
    Request,
    Seen,
    Waiter,
    encode_leases,
    lease_decoder,
)
from alignup.host.parts.part import Part, variables
from alignup.host.processes.identity import ProcessIdentity  # noqa: TC001  # for msgspec to read
from alignup.machine.cpuset import CPUSet  # noqa: TC001  # as above
from alignup.text.json_text import decode_json

# Names the socket of the agent to ask; empty: none.
AGENT_VARIABLE: Final = "ALIGNUP_AGENT"
HEADER: Final = 4
LARGEST_REQUEST: Final = 1 << 16
LARGEST_REPLY: Final = 64 << 20


class Ask(Request, frozen=True, tag="ask", omit_defaults=True):
    """Asks for a lease; the reply is Grant, Refused or Failed.

    The same request gets the same lease.

    Attributes:
        id: of the lease that is to be made: 16 hexadecimal digits, never used before.
        wait: seconds; below 0: as long as it takes.
    """

    id: str
    holder: ProcessIdentity
    command: str
    stem: str
    keeper: ProcessIdentity | None = None
    wait: float = 0.0


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
    """Asks for the machine in equal parts; the reply is Parts or Failed.

    Attributes:
        seen: see `Request.seen`.
    """

    parts: int
    cpus_per_part: int = 0
    devices: dict[str, int] = msgspec.field(default_factory=dict)
    seen: dict[str, Seen] = msgspec.field(default_factory=dict)


class Grant(msgspec.Struct, frozen=True, tag="granted", omit_defaults=True):
    """A lease that was made, and what its holder needs to know beside it.

    Attributes:
        state: the file of leases that it is in, or that the agent has taken over.
        memory_nodes: kernel ids of the NUMA nodes to bind memory to; none: it is not to be bound.
        is_here: the lease is of the machine at hand, so that processes can be bound to it.
        notes: what may surprise the holder, in a sentence each.
        agent: the socket of the agent that gave it; whoever asked fills this in, and the next
            fields.
        is_own: given by this user: from a file, or by an agent of this user. Another user's agent
            may set no variable that makes a program run other code.
        is_trusted: given by this user or by root: else nothing is mounted for it, since a mount can
            be another program.
    """

    lease: LeaseRecord
    machine: MachineIdentity
    state: str
    memory_nodes: tuple[int, ...]
    is_here: bool
    cuda: dict[str, str] = msgspec.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    agent: str = ""
    is_own: bool = True
    is_trusted: bool = True

    def environment(self) -> dict[str, str]:
        """Return the variables of a command that has the lease.

        Those that device plugins ask for come first: the names that are alignup's own stay its own.
        What plugins answered for a container (mounts, device nodes, annotations, CDI names) is in
        ALIGNUP_DEVICE_ANSWER, as JSON; the CDI names are in ALIGNUP_CDI_DEVICES too, with commas
        between them.
        """
        # startup counts
        from alignup.host.leases.evidence import (  # noqa: PLC0415
            VARIABLE,
            evidence_of,
            evidence_text,
        )

        lease = self.lease
        environment: dict[str, str] = {}
        answer = lease.answer
        if answer is not None:
            environment.update(self._allowed(answer.environment))
            container_answer = msgspec.structs.replace(answer, environment={})
            if container_answer:
                answer_text = msgspec.json.encode(container_answer).decode()
                environment["ALIGNUP_DEVICE_ANSWER"] = answer_text
            if answer.cdi_devices:
                environment["ALIGNUP_CDI_DEVICES"] = ",".join(answer.cdi_devices)

        evidence = evidence_of(lease, self.machine, Path(self.state))
        environment |= {
            "ALIGNUP_NAME": lease.name,
            "ALIGNUP_STATE": self.state,
            VARIABLE: evidence_text(evidence),
        }
        environment |= variables(
            cpus=lease.cpus,
            numa_nodes=lease.numa_nodes,
            memory=sum(lease.memory_sizes.values()),
            devices=lease.devices,
        )
        environment |= self._allowed(self.cuda)
        if self.agent:
            environment[AGENT_VARIABLE] = self.agent

        return environment

    def _allowed(self, environment: dict[str, str]) -> dict[str, str]:
        """Return those of some variables that whoever gave the lease may set."""
        if self.is_own:
            return environment
        return {name: value for name, value in environment.items() if may_be_set(name)}


_NEVER: Final = r"""
      (ALIGNUP|BASH_FUNC|CONDA|COR|CORECLR|CURL|DBUS|DOTNET|DYLD)_.*
    | (GEM|GIT|GTK|JULIA|LD|LUA|MALLOC|NODE|NPM)_.*
    | (OPENSSL|PIP|QT|R|SSH|SSL|SUDO|SYSTEMD|UV|XDG)_.*
    | (PERL|PHP|PYTHON|RUBY|VIRTUAL_ENV).*
    | BASH_ENV | BASHOPTS | CDPATH | CLASSPATH | CUDA_INJECTION(32|64)_PATH | EDITOR | ENV
    | FPATH | GCONV_PATH | GETCONF_DIR | GLIBC_TUNABLES | GLOBIGNORE | HOME | HOSTALIASES
    | IFS | INFOPATH | JAVA_TOOL_OPTIONS | JDK_JAVA_OPTIONS | _JAVA_OPTIONS | LESSCLOSE
    | LESSOPEN | LOCALDOMAIN | LOCPATH | LOGNAME | MAIL | MANPATH | NIS_PATH | NLSPATH
    | OLDPWD | OMP_TOOL_LIBRARIES | PAGER | PATH | PROMPT_COMMAND | PS[1-4] | PWD
    | RES_OPTIONS | RESOLV_HOST_CONF | SHELL | SHELLOPTS | TCLLIBPATH | TERMCAP
    | TERMINFO(_DIRS)? | TERMPATH | TE?MP(DIR)? | TZDIR | USER | VISUAL | ZDOTDIR
"""


def may_be_set(name: str) -> bool:
    """Return whether a variable may be set by another user's agent, or by a plugin that it asks.

    Not those by which a program runs other code or finds other files: the loader's, interpreters',
    shells', and those of the session. `docs/security.md` has the list.
    """
    return not re.fullmatch(_NEVER, name, re.VERBOSE)


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """There is no lease now."""

    detail: str
    reason: str = ""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The request is invalid, or the agent cannot carry it out."""

    detail: str


class Done(msgspec.Struct, frozen=True, tag="done"):
    """It is done.

    Attributes:
        lease: what has ended.
    """

    lease: LeaseRecord | None = None


class KnownLease(msgspec.Struct, frozen=True):
    """A lease as a user may see it, and whether its processes run.

    Of others' leases a user sees neither name nor process nor command.
    """

    lease: LeaseRecord
    state: str


class Leases(msgspec.Struct, frozen=True, tag="leases", omit_defaults=True):
    """All leases, and the queue in order of arrival.

    Of other users' requests there is neither name nor process nor command.
    """

    leases: tuple[KnownLease, ...]
    waiting: tuple[Waiter, ...] = ()


class KnownPart(msgspec.Struct, frozen=True):
    """A part of the machine (see `alignup.host.parts.part.Part`).

    Attributes:
        cuda: the variables that make CUDA see its GPUs.
    """

    rank: int
    cpus: CPUSet
    numa_nodes: tuple[int, ...]
    memory: tuple[tuple[int, int], ...]
    devices: dict[str, tuple[str, ...]]
    cuda: dict[str, str]

    @classmethod
    def of(cls, part: Part) -> KnownPart:
        """Return the same of a part."""
        return cls(
            part.rank,
            part.cpus,
            part.numa_nodes,
            part.memory,
            dict(part.devices),
            dict(part.visible),
        )


class Parts(msgspec.Struct, frozen=True, tag="parts"):
    """The machine, cut."""

    parts: tuple[KnownPart, ...]


AnyRequest: TypeAlias = Ask | GiveBack | Release | List | Cut
Reply: TypeAlias = Grant | Refused | Failed | Done | Leases | Parts

_REQUEST: Final[Callable[[Any], AnyRequest]] = lease_decoder(
    AnyRequest  # type: ignore[arg-type]  # a union
).decode
_REPLY: Final[Callable[[Any], Reply]] = lease_decoder(
    Reply  # type: ignore[arg-type]  # as above
).decode


def frame(message: AnyRequest | Reply) -> bytes:
    """Return a message as it goes through a socket.

    Raises:
        InputError: there is text in it that is not UTF-8.
    """
    try:
        text = encode_leases(message)
    except UnicodeEncodeError as error:
        raise InputError.at(
            "a message to or from the agent", "text of UTF-8", error.object
        ) from None
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


def decode_request(text: bytes) -> AnyRequest:
    """Return a request.

    Raises:
        InputError: it is none.
    """
    return decode_json(text, "a request to the agent", decode=_REQUEST, once=True)


def decode_reply(text: bytes) -> Reply:
    """Return a reply.

    Raises:
        InputError: it is none.
    """
    return decode_json(text, "a reply of the agent", decode=_REPLY)
