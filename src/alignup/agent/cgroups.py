"""Makes a cgroup (v2) for each command that has a lease, puts the command into it, and removes it when it is empty.

Whatever the command starts is in it too, whoever becomes its parent and whatever session it is in. By default it is
below the cgroup that the command is in already: the limits and the end of the user's session, of a service or of a
container hold for it as before. Below one cgroup for all, which the administrator names, they do not. When cgroups are
empty is noticed in `alignup.agent.cgroup_watch`.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from alignup.errors import InputError
from alignup.leases.lease_liveness import has_processes
from alignup.leases.process import runs_here

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from alignup.leases.process import ProcessIdentity

__all__ = ["Cgroups", "cgroup_of", "remove_cgroup"]

_LOG: Final = logging.getLogger(__name__)
_PREFIX: Final = "alignup-"
_PROCESSES: Final = "cgroup.procs"
_EVENTS: Final = "cgroup.events"
_DELEGATED: Final = (_PROCESSES, "cgroup.subtree_control", "cgroup.threads")
"""The files of a cgroup that its owner writes to, to divide it further."""
_UNIFIED: Final = "0::"
_TYPE: Final = "cgroup2"
_MODE: Final = 0o755
# positions in a line of mountinfo
_ROOT: Final = 3
_POINT: Final = 4


class Cgroups:
    """The cgroups of leases.

    Args:
        base: the cgroup below which they are made, by an absolute path; it is made itself if it is not there. None:
            that of each command.

    Raises:
        InputError: none can be made there.
    """

    def __init__(self, base: Path | None = None) -> None:
        if base is not None and not base.is_absolute():
            # leases outlive the agent, and the next one may have another working directory
            raise InputError.at("the cgroup of all leases", "an absolute path", str(base))
        self.base = base
        place = base or cgroup_of("self")
        is_new = not place.exists()
        try:
            if base is not None:
                _make(base)
            is_cgroup = _tells_of_its_end(place)
            if is_new and not is_cgroup:
                place.rmdir()
        except OSError as error:
            raise InputError(
                f"expected a cgroup that others can be made in, got {_why(error)!r} at {place}"
            ) from error
        if not is_cgroup:
            raise InputError(f"expected a cgroup of version 2, got another folder at {place}")

    def enclose(
        self, lease_id: str, process: ProcessIdentity, left: Callable[[str], None] = lambda _: None
    ) -> str:
        """Make the cgroup of a lease and put a process into it; return its path. A second time, do the same.

        Args:
            lease_id: the lease.
            process: its command.
            left: called with the cgroup if that fails, and somebody is in it.

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
                left(str(cgroup))
            raise
        return str(cgroup)

    def strays(self, known: Container[str]) -> Iterator[str]:
        """Yield the cgroups of leases that are not known: of those that an agent began with, and was killed.

        Only those below one base are found. Others are below cgroups that go away themselves.
        """
        if self.base is None:
            return
        with suppress(OSError):
            for found in self.base.iterdir():
                if found.name.startswith(_PREFIX) and str(found) not in known:
                    yield str(found)


def _tells_of_its_end(place: Path) -> bool:
    """Return whether a cgroup that is made here says when it is empty, as those of version 2 do.

    Raises:
        OSError: nothing can be made here.
    """
    trial = place / f"{_PREFIX}trial-{os.getpid()}"
    trial.mkdir()
    try:
        return (trial / _EVENTS).exists()
    finally:
        trial.rmdir()


def _make(cgroup: Path) -> None:
    """Make a cgroup, if it is not there, for the owner of the one above it, and for everybody to look into.

    So users find their processes, and go on to divide what was delegated to them, whatever the umask of an agent.

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
        # an agent that is not root owns what it makes, and kernels before 4.14 lack one of the files
        with suppress(OSError):
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _put(process: ProcessIdentity, cgroup: Path) -> None:
    """Put a process into a cgroup.

    Raises:
        OSError: it cannot be put there, or has ended. One that has got its number meanwhile is put back, if it can be.
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
                "pid %d is in the cgroup again that it was in: it is another process now", process.pid
            )
    raise ProcessLookupError


def _move(pid: int, cgroup: Path) -> None:
    (cgroup / _PROCESSES).write_text(f"{pid}\n")


def remove_cgroup(path: str) -> bool:
    """Remove a cgroup, with those below it; return whether it is gone: it is not while there are processes in it."""
    try:
        os.rmdir(path)  # noqa: PTH106  # of text
    except FileNotFoundError:
        return True
    except OSError:
        try:
            if has_processes(path):
                return False
        except OSError:
            return False
    else:
        return True
    # a command may have made some of its own below it
    for folder, _, _ in os.walk(path, topdown=False):
        with suppress(OSError):
            os.rmdir(folder)  # noqa: PTH106  # as above
    return not os.path.exists(path)  # noqa: PTH110  # as above


def cgroup_of(process: str, proc: Path = Path("/proc")) -> Path:
    """Return the folder of the cgroup (v2) of a process, by its number or `self`.

    Raises:
        InputError: it has none, or it is not mounted where this process sees it.
    """
    try:
        lines = (proc / process / "cgroup").read_text("utf-8", "replace").splitlines()
        mounts = (proc / "self" / "mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError as error:
        raise InputError(
            f"expected to read which cgroup a process is in, got {_why(error)!r} at {proc / process}"
        ) from error
    own = next((line.removeprefix(_UNIFIED) for line in lines if line.startswith(_UNIFIED)), None)
    if own is None:
        raise InputError("expected cgroups of version 2, got none")
    for mount in mounts:
        fields = mount.split()
        # outside of this process's cgroup namespace it starts with /..
        if fields[fields.index("-") + 1] == _TYPE and ".." not in own.split("/"):
            with suppress(ValueError):
                return Path(fields[_POINT]) / PurePosixPath(own).relative_to(fields[_ROOT])
    raise InputError(f"expected cgroups of version 2 to be mounted, got no such mount that shows {own}")


def _why(error: OSError) -> str:
    return (error.strerror or "an error").lower()
