"""Makes a cgroup (v2) for a command, puts the command into it, and removes it once it is empty.

Whatever the command starts is in it too, whoever becomes its parent and whatever session it is in.
By default it is below the cgroup that the command is in already: the limits and the end of the
user's session, of a service or of a container hold for it as before. Below one cgroup for all,
which the administrator names, they do not.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

from alignup.errors import InputError, system_errors
from alignup.host.processes.identity import EVENTS, ProcessIdentity, has_processes, runs_here

_LOG: Final = logging.getLogger(__name__)
_PREFIX: Final = "alignup-"
_PROCESSES: Final = "cgroup.procs"
# The files of a cgroup that its owner writes to, to divide it further.
_DELEGATED: Final = (_PROCESSES, "cgroup.subtree_control", "cgroup.threads")
_UNIFIED: Final = "0::"
_TYPE: Final = "cgroup2"
_MODE: Final = 0o755
# Seconds between two tries to remove a cgroup that is not empty, at first and at most.
_AGAIN: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
# positions in a line of mountinfo
_ROOT: Final = 3
_POINT: Final = 4


class Cgroups:
    """The cgroups of leases.

    Args:
        base: the cgroup below which they are made, by an absolute path; it is made itself if it is
            not there. None: that of each command.

    Raises:
        InputError: none can be made there.
    """

    def __init__(self, base: Path | None = None) -> None:
        self.base = base
        place = base or cgroup_of("self")
        is_new = not place.exists()
        with system_errors("cannot make cgroups", place):
            if base is not None:
                _make(base)
            is_cgroup = _tells_of_its_end(place)
            if is_new and not is_cgroup:
                place.rmdir()

        if not is_cgroup:
            raise InputError(f"{place} is not a cgroup of version 2")

    def enclose(
        self,
        lease_id: str,
        process: ProcessIdentity,
        report_occupied: Callable[[str], None] = lambda _: None,
    ) -> str:
        """Make the cgroup of a lease and put a process into it; return its path.

        A second time, do the same.

        Args:
            lease_id: the lease.
            process: its command.
            report_occupied: called with the cgroup if that fails, and somebody is in it.

        Raises:
            OSError: it cannot be made, or the process cannot be put into it, or has ended.
            InputError: it is in no cgroup that can be seen from here.
        """
        place = self.base or cgroup_of(str(process.pid))
        name = f"{_PREFIX}{lease_id}"
        cgroup = place if place.name == name else place / name
        _make(cgroup)
        try:
            _put(process, cgroup)
        except OSError:
            if not remove_cgroup(str(cgroup)):
                report_occupied(str(cgroup))

            raise

        return str(cgroup)

    def strays(self, lasting: Container[str]) -> Iterator[str]:
        """Yield the cgroups that are not those of leases that last.

        An agent made them and was killed before it recorded the lease. Only those below one base
        are found. Others are below cgroups that go away themselves.
        """
        if self.base is None:
            return

        with suppress(OSError):
            for folder in self.base.iterdir():
                if folder.name.startswith(_PREFIX) and str(folder) not in lasting:
                    yield str(folder)


def _tells_of_its_end(place: Path) -> bool:
    """Return whether a cgroup that is made here says when it is empty, as those of version 2 do.

    Raises:
        OSError: nothing can be made here.
    """
    trial = place / f"{_PREFIX}trial-{os.getpid()}"
    trial.mkdir()
    try:
        return (trial / EVENTS).exists()
    finally:
        trial.rmdir()


def _make(cgroup: Path) -> None:
    """Make a cgroup, if it is not there.

    It is for the owner of the one above it, and for everybody to look into. So users find their
    processes, and go on to divide what was delegated to them, whatever the umask of an agent.

    Raises:
        OSError: it cannot be made.
    """
    try:
        cgroup.mkdir()
    except FileExistsError:
        return

    owner = cgroup.parent.stat()
    with suppress(OSError):
        cgroup.chmod(_MODE)

    for path in (*(cgroup / name for name in _DELEGATED), cgroup):
        # an agent that is not root owns what it makes, and kernels before 4.14 lack one of the
        # files
        with suppress(OSError):
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _put(process: ProcessIdentity, cgroup: Path) -> None:
    """Put a process into a cgroup.

    Raises:
        OSError: it cannot be put there, or has ended. One that has got its number meanwhile is put
            back, if it can be.
    """
    if not runs_here(process):
        raise ProcessLookupError

    before: Path | None = None
    with suppress(InputError):
        before = cgroup_of(str(process.pid))

    _move(process.pid, cgroup)
    if runs_here(process):
        return

    if before is not None:
        with suppress(OSError):
            _move(process.pid, before)
            _LOG.warning(
                "pid %d is in the cgroup again that it was in: it is another process now",
                process.pid,
            )

    raise ProcessLookupError


def _move(pid: int, cgroup: Path) -> None:
    (cgroup / _PROCESSES).write_text(f"{pid}\n")


def remove_cgroup(path: str) -> bool:
    """Remove a cgroup, with those below it; return whether it is gone.

    It is not while there are processes in it.
    """
    with suppress(OSError):
        if not has_processes(path):
            # a command may have made some of its own below it
            for folder, _, _ in os.walk(path, topdown=False):
                with suppress(OSError):
                    os.rmdir(folder)  # noqa: PTH106  # of text

    return not os.path.exists(path)  # noqa: PTH110  # as above


def cgroup_of(process: str, proc: Path = Path("/proc")) -> Path:
    """Return the folder of the cgroup (v2) of a process, by its number or `self`.

    Raises:
        InputError: it has none, or it is not mounted where this process sees it.
    """
    with system_errors("cannot read which cgroup a process is in", proc / process):
        lines = (proc / process / "cgroup").read_text("utf-8", "replace").splitlines()
        mounts = (proc / "self" / "mountinfo").read_text("utf-8", "replace").splitlines()

    unified = (line.removeprefix(_UNIFIED) for line in lines if line.startswith(_UNIFIED))
    cgroup = next(unified, None)
    if cgroup is None:
        raise InputError("this process is in no cgroup of version 2")

    for mount in mounts:
        fields = mount.split()
        # outside of this process's cgroup namespace it starts with /..
        if fields[fields.index("-") + 1] == _TYPE and ".." not in cgroup.split("/"):
            with suppress(ValueError):
                return Path(fields[_POINT]) / PurePosixPath(cgroup).relative_to(fields[_ROOT])

    raise InputError(f"no mount of cgroups of version 2 shows {cgroup}")


class Enclosures:
    """Cgroups as an event loop uses them: a thread of its own waits for the kernel.

    Moving a process into a cgroup may take many milliseconds. A command that cannot be put into one
    goes without.

    Args:
        cgroups: makes them; None: there are none, but those of an earlier agent are removed.
    """

    def __init__(self, cgroups: Cgroups | None) -> None:
        self._cgroups = cgroups
        self._loop = asyncio.get_running_loop()
        # one thread: what is done to one cgroup is done in order
        self._thread = ThreadPoolExecutor(1, "cgroups")

    def takes(self, *, in_container: bool) -> bool:
        """Return whether commands are put into cgroups.

        A command of a container is not, if that were to let it out.
        """
        cgroups = self._cgroups
        return cgroups is not None and (cgroups.base is None or not in_container)

    async def enclose(self, name: str, process: ProcessIdentity) -> str:
        """Return the cgroup, of a name, that a command is in from now on.

        The text is empty if the command cannot be put into one.
        """
        assert self._cgroups is not None  # noqa: S101  # `takes` was asked
        making = self._thread.submit(self._cgroups.enclose, name, process, self.discard)
        try:
            return await asyncio.shield(asyncio.wrap_future(making))
        except OSError as error:
            trouble = (error.strerror or "it has ended").lower()
        except InputError as error:
            trouble = str(error)
        except asyncio.CancelledError:
            making.add_done_callback(self._discard_made)
            raise

        _LOG.warning("the command of pid %d has no cgroup: %s", process.pid, trouble)
        return ""

    def discard(self, cgroup: str, pause: float = _AGAIN) -> None:
        """Remove a cgroup, now or once there are no processes in it any more.

        Do nothing if the text is empty. From any thread. When this is closed already, the cgroup
        stays. `pause` is how many seconds later to try again.
        """
        if cgroup:
            with suppress(RuntimeError):  # closed
                self._thread.submit(self._remove, cgroup, pause)

    def sweep(self, lasting: frozenset[str], ended: Iterable[str] = ()) -> None:
        """Remove the cgroups of leases that are not known: an agent made them, and was killed.

        Args:
            lasting: those of leases that last.
            ended: those of leases that ended while there was no agent.
        """
        cgroups = set(ended)
        if self._cgroups is not None:
            cgroups.update(self._cgroups.strays(lasting))

        for cgroup in cgroups - lasting:
            self.discard(cgroup)

    def close(self) -> None:
        """Do what has been begun, and no more."""
        self._thread.shutdown()

    def _discard_made(self, making: Future[str]) -> None:
        """Remove a cgroup that was about to be made when nobody wanted it any more."""
        if making.exception() is None:
            self.discard(making.result())

    def _remove(self, cgroup: str, pause: float) -> None:
        """Remove a cgroup, or try again later, each time after a longer pause.

        Called in the thread.
        """
        if not remove_cgroup(cgroup):
            next_pause = min(2 * pause, _LONGEST_PAUSE)
            with suppress(RuntimeError):  # the event loop has been closed since
                self._loop.call_soon_threadsafe(
                    self._loop.call_later, pause, self.discard, cgroup, next_pause
                )
