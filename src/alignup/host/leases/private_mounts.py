"""Shows a process, and nobody else, files at the paths that device plugins name.

They may be folders and device files too. For containers a runtime does it. Here the process gets a
mount namespace of its own, which goes with the last process in it: mounts of the host are still
seen in it, those made in it nowhere else, and nothing is written to the host's file systems. Which
mounts and device files there are is what plugins answered (`alignup.host.device_plugins.answer`).
"""

from __future__ import annotations

import ctypes
import errno
import os
import posixpath
import stat
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from alignup.errors import InputError
from alignup.host.device_plugins.answer import DeviceAnswer, DeviceNode, Mount
from alignup.host.proc_files import opened

_CLONE_NEWNS: Final = 0x20000
_MS_NOSUID: Final = 2
_MS_BIND: Final = 4096
_MS_REC: Final = 16384
_MS_PRIVATE: Final = 1 << 18
_MS_SLAVE: Final = 1 << 19
# system calls since Linux 5.2 and 5.12, with the same numbers on all architectures
_OPEN_TREE: Final = 428
_MOVE_MOUNT: Final = 429
_MOUNT_SETATTR: Final = 442
_MOUNT_ATTR_RDONLY: Final = 1
_OPEN_TREE_CLONE: Final = 1
_AT_RECURSIVE: Final = 0x8000
_AT_FDCWD: Final = -100
_MOVE_MOUNT_F_EMPTY_PATH: Final = 4
_CAP_SYS_ADMIN: Final = 21
_ACCESS: Final = {"r": os.R_OK, "w": os.W_OK}


def needed_mounts(answer: DeviceAnswer) -> tuple[Mount, ...]:
    """Return the mounts that a process of the host needs to see what plugins answered.

    There is none for what it sees anyway. Device files are mounts too. Those above others come
    first.

    Raises:
        InputError: there is nothing at a path on the host.
    """
    listed = [
        *answer.mounts,
        *(Mount(device.container_path, device.host_path) for device in answer.devices),
    ]
    needed = []
    for mount in listed:
        if not os.path.exists(mount.host_path):  # noqa: PTH110  # of text
            raise InputError(
                f"a device plugin asks for {mount.host_path}, which does not exist here"
            )

        target = posixpath.normpath(mount.container_path)
        if mount.read_only or target != posixpath.normpath(mount.host_path):
            needed.append(Mount(target, mount.host_path, mount.read_only))

    return tuple(sorted(needed, key=lambda mount: mount.container_path.count("/")))


def closed_devices(answer: DeviceAnswer) -> list[DeviceNode]:
    """Return the device files that this user may not open as the plugin says.

    Their own permissions forbid it. A runtime would open them to a container. No mount can, nor can
    one take from a process what it may do otherwise.
    """
    closed = []
    for device in answer.devices:
        mode = sum(_ACCESS.get(letter, 0) for letter in set(device.permissions))
        if not os.access(device.host_path, mode):
            closed.append(device)

    return closed


def may_mount(status: Path = Path("/proc/self/status")) -> bool:
    """Return whether this process may mount in a namespace of its own: it has CAP_SYS_ADMIN."""
    for line in status.read_text("utf-8", "replace").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1)

    return False


def mount_privately(mounts: Sequence[Mount]) -> None:
    """Give the calling process a mount namespace of its own with some mounts.

    It must have one thread, on Linux 5.2 or later; 5.12 where something is read-only, or covered.
    Where nothing is at the path of a mount, the closest folder above it is covered by one that
    shows the same, and the path too. That one is read-only: what were written into it would be
    lost. What is below it stays writable.

    Raises:
        OSError: that cannot be; the error names the path. The namespace may have some of the
            mounts.
        InputError: a path is missing right below the root, which cannot be covered, or the kernel
            is too old.
    """
    try:
        folder = os.getcwd()  # noqa: PTH109  # of text
    except FileNotFoundError:
        folder = ""  # it has been removed, and stays the one it is

    _call("unshare", "/", ctypes.c_int(_CLONE_NEWNS))
    # mounts of the host go on to appear here, and none of these there
    _mount("none", "/", "", _MS_REC | _MS_SLAVE)

    # copied before the first one is mounted, which may be at the path that another one is taken
    # from
    copies = [_copy_of(mount.host_path) for mount in mounts]
    covers: list[str] = []
    for mount, copy in zip(mounts, copies, strict=True):
        _make_target(mount, covers)
        _put(copy, mount.container_path)
        if mount.read_only:
            # none of the host's appear below it any more
            _make_read_only(mount.container_path, _AT_RECURSIVE, _MS_PRIVATE)

    for cover in covers:
        _make_read_only(cover)

    with suppress(OSError):
        os.chdir(folder)  # it may be covered: this is the one on top


def _make_target(mount: Mount, covers: list[str]) -> None:
    """Make what a mount is to be put upon, if it is not there."""
    if os.path.exists(mount.container_path):  # noqa: PTH110  # of text
        is_folder = os.path.isdir(mount.container_path)  # noqa: PTH112  # as above
        if is_folder != os.path.isdir(mount.host_path):  # noqa: PTH112  # as above
            number = errno.EISDIR if is_folder else errno.ENOTDIR
            raise OSError(number, os.strerror(number), mount.container_path)

        return

    above, below = posixpath.split(mount.container_path)
    missing = [below]
    while not os.path.isdir(above):  # noqa: PTH112  # as above
        above, below = posixpath.split(above)
        missing.append(below)

    if above not in covers:
        if above == "/":
            problem = f"cannot create {mount.container_path} for a device plugin"
            raise InputError(f"{problem}: its first folder does not exist")

        _cover(above)
        covers.append(above)

    *folders, last = reversed(missing)
    for name in folders:
        above = posixpath.join(above, name)
        os.mkdir(above)  # noqa: PTH102  # as above

    _make_like(mount.host_path, posixpath.join(above, last))


def _cover(folder: str) -> None:
    """Cover a folder by one in memory that shows what is in it."""
    status = os.stat(folder)  # noqa: PTH116  # as above
    with opened(folder, os.O_PATH | os.O_DIRECTORY) as covered:
        options = f"mode={stat.S_IMODE(status.st_mode):o},uid={status.st_uid},gid={status.st_gid}"
        _mount("tmpfs", folder, "tmpfs", _MS_NOSUID, options)
        for name in os.listdir(f"/proc/self/fd/{covered}"):  # noqa: PTH208  # names are wanted
            source = f"/proc/self/fd/{covered}/{name}"
            target = posixpath.join(folder, name)
            if os.path.islink(source):  # noqa: PTH114  # as above
                os.symlink(os.readlink(source), target)  # noqa: PTH115, PTH211  # as above
                continue

            # what has just been removed has nothing to show
            with suppress(FileNotFoundError):
                _make_like(source, target)
                _mount(source, target, "", _MS_BIND | _MS_REC)


def _make_like(source: str, target: str) -> None:
    """Make an empty folder or file that something of its kind can be mounted upon."""
    if os.path.isdir(source):  # noqa: PTH112  # as above
        os.mkdir(target)  # noqa: PTH102  # as above
    else:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _copy_of(path: str) -> int:
    """Return a descriptor of a copy of what is mounted at a path, with what is mounted below it."""
    source = ctypes.c_int(_AT_FDCWD), os.fsencode(path)
    flags = ctypes.c_uint(_OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_RECURSIVE)
    return _call("syscall", path, ctypes.c_long(_OPEN_TREE), *source, flags)


def _put(copy: int, path: str) -> None:
    """Mount a copy at a path, and close its descriptor."""
    source = ctypes.c_int(copy), b""
    target = ctypes.c_int(_AT_FDCWD), os.fsencode(path)
    flags = ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH)
    try:
        _call("syscall", path, ctypes.c_long(_MOVE_MOUNT), *source, *target, flags)
    finally:
        os.close(copy)


def _make_read_only(path: str, flags: int = 0, propagation: int = 0) -> None:
    """Let nobody write through a mount; its other attributes stay.

    If it is recursive, nobody writes through those below it either.

    Raises:
        OSError: the kernel refuses.
        InputError: it is older than Linux 5.12.
    """
    target = ctypes.c_int(_AT_FDCWD), os.fsencode(path), ctypes.c_uint(flags)
    attributes = struct.pack("=4Q", _MOUNT_ATTR_RDONLY, 0, propagation, 0)
    size = ctypes.c_size_t(len(attributes))
    try:
        _call("syscall", path, ctypes.c_long(_MOUNT_SETATTR), *target, attributes, size)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise

        raise InputError(
            f"a read-only mount needs Linux 5.12 or later, and this kernel is older: {path}"
        ) from None


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount.

    Raises:
        OSError: the kernel refuses; it names the target.
    """
    texts: Iterable[bytes | None] = (
        os.fsencode(text) if text else None for text in (source, target, kind)
    )
    _call("mount", target, *texts, ctypes.c_ulong(flags), os.fsencode(options) if options else None)


def _call(name: str, path: str, *arguments: object) -> int:
    """Call a function of the C library, and return what it returns.

    Raises:
        OSError: that is -1; the error names the path.
    """
    result: int = getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments)
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)

    return result
