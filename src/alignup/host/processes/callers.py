"""Finds the process at the other end of a connection.

It maps process ids between the PID namespace of that process and this one. A client in a container
has a PID namespace of its own, and calls its processes by numbers of that. The kernel knows the
client by its number in the agent's namespace, if it is in one below that; from there, those that it
has started are found. Nobody can name other processes in this way than themselves and these.
Whether a client is in a container the kernel says too: what it says of itself counts for nothing,
since it learns from its lease how it is called here.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from alignup.errors import InputError
from alignup.host.proc_files import start_of
from alignup.host.processes.identity import ProcessIdentity, identify, runs_here
from alignup.host.trusted_files import Connection, peer

# Since Linux 6.5; where it differs (parisc, sparc) it is not asked for.
_SO_PEERPIDFD: Final = 77
_MACHINES: Final = ("x86_64", "aarch64", "riscv64", "ppc64", "ppc64le", "s390x", "loongarch64")
_INT: Final = 4
# `alignup run` starts a keeper, and that the command.
_DEPTH: Final = 2
_NAMESPACE: Final = "/proc/self/ns/pid"
_LARGEST: Final = 1 << 16
# The most files of /proc that are read to find one process; all other requests wait meanwhile. The
# caller itself comes first, and what `alignup run` starts soon after, so that both are found among
# many threads and children.
_MOST: Final = 256
# Bytes of a list of processes; one of `alignup run` has a few.
_LONGEST_LIST: Final = 4096


class Caller:
    """The process at the other end of a connection.

    Args:
        connection: the socket.
    """

    __slots__ = ("_connection", "_is_elsewhere", "_pid", "uid")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._pid, self.uid = peer(connection)
        self._is_elsewhere: bool | None = None

    def is_elsewhere(self) -> bool:
        """Return whether the caller is in another PID namespace than this process.

        Or it is not to be seen from here.
        """
        if self._is_elsewhere is None:
            # it is in one namespace for life, and has a number in each from this one down to that
            self._is_elsewhere = len(self._peer()) != 1

        return self._is_elsewhere

    def own_process(self, pid: int) -> ProcessIdentity | None:
        """Return the process that the caller has by a number of its own PID namespace.

        It is as this process sees it. It must be the caller itself, or one that it has started, in
        the same namespace. None: there is none, or the caller is not to be seen from here.
        """
        caller = self._peer()
        return descendant(caller[0], pid) if caller else None

    def _peer(self) -> list[int]:
        """Return the caller's numbers, as `_numbers` does; none if it is not seen from here."""
        if os.uname().machine not in _MACHINES:
            return self._numbers_by_credentials()

        try:
            option = self._connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, _INT)
        except OSError:
            return self._numbers_by_credentials()

        descriptor = int.from_bytes(option, sys.byteorder)
        try:
            text = start_of(f"/proc/self/fdinfo/{descriptor}", _LARGEST)
        finally:
            os.close(descriptor)

        numbers = _numbers_in(text, b"\nNSpid:") or _numbers_in(text, b"\nPid:")
        return numbers if numbers[:1] > [0] else []

    def _numbers_by_credentials(self) -> list[int]:
        """Return its numbers, which may be another's by now: then that one's user is looked at."""
        knows_namespaces = os.path.exists(_NAMESPACE)  # noqa: PTH110  # of text
        return _numbers(self._pid) if knows_namespaces else [self._pid]


def descendant(caller: int, pid: int) -> ProcessIdentity | None:
    """Return the process with a number in the PID namespace of another one.

    It is that one, or one that it has started.

    Args:
        caller: the process whose namespace it is, by its number here.
        pid: the number there.
    """
    depth = len(_numbers(caller))
    for number in _with_children(caller):
        if not _is_called(number, pid, depth):
            continue

        with suppress(InputError):
            identity = identify(number)
            # it was that one before and after its start time was read
            if _is_called(number, pid, depth) and runs_here(identity):
                return identity

    return None


def _is_called(number: int, pid: int, depth: int) -> bool:
    """Return whether a process has a number in the namespace at a depth below that of the kernel.

    It must not have a deeper one.
    """
    numbers = _numbers(number)
    return len(numbers) == depth and numbers[-1:] == [pid]


def _numbers(number: int) -> list[int]:
    """Return the numbers of a process, from this namespace down to its own.

    There are none if it has ended.
    """
    with suppress(OSError):
        return _numbers_in(start_of(f"/proc/{number}/status", _LARGEST), b"\nNSpid:")

    return []


def _numbers_in(text: bytes, name: bytes) -> list[int]:
    """Return the numbers of a line that starts with a name; none if there is no such line."""
    _, _, after_name = text.partition(name)
    line, _, _ = after_name.partition(b"\n")
    return [int(word) for word in line.split()]


def _with_children(number: int) -> Iterator[int]:
    """Yield a process and those that it has started, and so on down to some depth.

    They end when some number of files has been read.
    """
    budget = iter(range(_MOST))
    level = [number]
    for _ in range(_DEPTH + 1):
        for _, process in zip(budget, level, strict=False):  # each will be looked at by one file
            yield process

        level = [child for parent in level for child in _children(parent, budget)]


def _children(number: int, budget: Iterator[int]) -> list[int]:
    """Return the processes that the threads of a process have started.

    There are none where the kernel does not list them. Each list that is read takes one of the
    budget.
    """
    children: list[int] = []
    with suppress(OSError), os.scandir(f"/proc/{number}/task") as threads:
        for _, thread in zip(budget, threads, strict=False):
            with suppress(OSError):
                text = start_of(f"{thread.path}/children", _LONGEST_LIST)
                # the last number may be cut off
                children += map(int, text[: text.rfind(b" ") + 1].split())

    return children
