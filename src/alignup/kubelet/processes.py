"""Reads from `/proc` where processes may run, and where their memory is.

In which container they are, too, and which of them is a kubelet. What a kubelet's flags mean is
known to `alignup.kubernetes.config_documents`, what processes should have to
`alignup.kubelet.verify`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from alignup.errors import warn
from alignup.kubernetes.config_documents import KubeletFlags, read_flags
from alignup.machine.cpuset import CPUSet
from alignup.records import Record, field

_LONGEST: Final = 16 << 20
_STATUS: Final = re.compile(
    r"^(Name|PPid|Cpus_allowed_list|Mems_allowed_list|Kthread):[ \t]*(.*)$", re.MULTILINE
)
_PAGES: Final = re.compile(r"N(\d{1,5})=(\d{1,15})")
_PAGE_SIZE: Final = re.compile(r"kernelpagesize_kB=(\d{1,9})")
_POD: Final = re.compile(r"pod([0-9a-f]{8}[-_]?(?:[0-9a-f]{4}[-_]?){3}[0-9a-f]{12})")
_CONTAINER: Final = re.compile(r"([0-9a-f]{64}|[\w.-]+)(?:\.scope)?$")


class Process(Record):
    """One process.

    Attributes:
        cpus: those it may run on.
        mems: the ids of the NUMA nodes that it may have memory of.
        pod_uid: the uid of the pod whose cgroup the process is in; empty: none.
        container_id: the last part of that cgroup, without what a runtime puts before it.
        memory: by NUMA node, the bytes of its own (anonymous) memory there; empty: not known.
    """

    pid: int
    name: str
    parent: int
    cpus: CPUSet
    mems: CPUSet
    pod_uid: str = ""
    container_id: str = ""
    memory: Mapping[int, int] = field(default_factory=dict)


def all_processes(root: Path) -> Iterator[Process]:
    """Return the processes of a machine, by id; threads of the kernel are left out."""
    return filter(None, (read_process(root, pid) for pid in process_ids(root)))


def process_ids(root: Path) -> list[int]:
    """Return the ids of the processes of a machine, ascending; none if it has no `proc`."""
    try:
        names = os.listdir(root / "proc")  # noqa: PTH208  # names are wanted, not paths
    except OSError:
        return []
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def status_of(folder: Path) -> dict[str, str]:
    """Return the fields that matter here of `status` in a process's folder of `proc`.

    There are none if it cannot be read.
    """
    return dict(_STATUS.findall(text_of(folder / "status")))


def read_process(root: Path, pid: int) -> Process | None:
    """Return a process; None: it has ended, is a thread of the kernel, or is out of our sight."""
    folder = root / "proc" / str(pid)
    status = status_of(folder)
    if "Cpus_allowed_list" not in status or status.get("Kthread") == "1":
        return None

    pod_uid, container_id = _container(text_of(folder / "cgroup"))
    return Process(
        pid,
        name=status.get("Name", ""),
        parent=int(status.get("PPid", "0") or 0),
        cpus=CPUSet.parse(status["Cpus_allowed_list"]),
        mems=CPUSet.parse(status.get("Mems_allowed_list", "")),
        pod_uid=pod_uid,
        container_id=container_id,
        memory=_memory(text_of(folder / "numa_maps")),
    )


def text_of(path: Path) -> str:
    """Return the text of a file; empty if it cannot be read."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(_LONGEST).decode("utf-8", "replace")
    return ""


def _container(cgroup: str) -> tuple[str, str]:
    """Return the pod's uid and the container's id that a cgroup names.

    As either cgroup driver of a kubelet names it.
    """
    for line in cgroup.splitlines():
        path = line.rpartition(":")[2]
        pod = _POD.search(path)
        if pod is None:
            continue

        last = path[pod.end() :].strip("/").rpartition("/")[2] or path.rpartition("/")[2]
        # cri-containerd-ID.scope, crio-ID.scope, or the id alone
        container = _CONTAINER.search(last.removesuffix(".scope"))
        container_id = container[1].rpartition("-")[2] if container else ""
        return pod[1].replace("_", "-"), container_id

    return "", ""


def _memory(numa_maps: str) -> dict[int, int]:
    """Return the bytes of anonymous memory on each NUMA node."""
    sizes: dict[int, int] = {}
    for line in numa_maps.splitlines():
        page_size = _PAGE_SIZE.search(line)
        if page_size and ("anon=" in line or " huge" in line):
            for node, pages in _PAGES.findall(line):
                size = int(pages) * int(page_size[1]) * 1024
                sizes[int(node)] = sizes.get(int(node), 0) + size

    return sizes


def sees_device(root: Path, pid: int, path: str) -> bool:
    """Return whether a process sees a device file at a path."""
    with suppress(OSError):
        return bool((root / "proc" / str(pid) / "root" / path.lstrip("/")).stat().st_rdev)
    return False


class RunningKubelet(Record):
    """A kubelet's process."""

    pid: int
    flags: KubeletFlags = KubeletFlags()  # immutable


def find_kubelet(root: str | os.PathLike[str]) -> RunningKubelet | None:
    """Return the kubelet that runs on a machine; None where there is none, or more than one.

    The latter is warned of.

    Args:
        root: the folder with `proc` in it.

    Raises:
        InputError: a flag that matters has a value that no kubelet takes.
    """
    command_lines = {}
    for pid in process_ids(Path(root)):
        folder = Path(root, "proc", str(pid))
        if text_of(folder / "comm").strip() == "kubelet":
            arguments = text_of(folder / "cmdline").split("\0")
            if arguments[0]:  # a zombie has none
                command_lines[pid] = arguments

    if len(command_lines) > 1:
        pids = ", ".join(map(str, sorted(command_lines)))
        warn(f"several kubelets run here (processes {pids}); their command lines are ignored")
        return None
    if not command_lines:
        return None

    [(pid, arguments)] = command_lines.items()
    return kubelet_of(pid, arguments)


def kubelet_of(pid: int, arguments: Sequence[str]) -> RunningKubelet:
    """Return the kubelet of a command line.

    Raises:
        InputError: a flag that matters has a value that no kubelet takes.
    """
    return RunningKubelet(pid, read_flags(arguments[1:]))
