"""Gets the PodResources answers of a node: recorded ones, or those of the kubelet that runs."""

from __future__ import annotations

from dataclasses import dataclass
from stat import S_ISSOCK
from typing import TYPE_CHECKING, Any

from alignup.errors import InputError, warn
from alignup.kubelet import pod_resources_client as client
from alignup.kubelet.layout import ALLOCATABLE, KUBELET, LIST, FolderFiles
from alignup.kubelet.pod_resources import allocatable_from_wire, plain_answer, pods_from_wire, read_answer

if TYPE_CHECKING:
    from pathlib import Path

    from alignup.kubelet.layout import NodeFiles
    from alignup.kubelet.pod_resources import Allocatable, PodResources

__all__ = ["Answers", "ask_kubelet", "find_answers", "socket_of"]

SOCKET = f"{KUBELET}/pod-resources/kubelet.sock"


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of PodResources; None where it was not asked, or has not answered."""

    listed: tuple[PodResources, ...] | None
    allocatable: Allocatable | None


def find_answers(files: NodeFiles) -> Answers:
    """Return the recorded answers of a node; without any, those of the kubelet whose socket is in its folder.

    A kubelet that does not answer, and a missing extra, are warned of.

    Raises:
        InputError: a recorded answer is damaged.
    """
    listed, allocatable = read_answer(files, LIST), read_answer(files, ALLOCATABLE)
    if listed is None and allocatable is None:
        socket = socket_of(files)
        if socket is None:
            return Answers(None, None)
        try:
            listed, allocatable = ask_kubelet(socket)
        except InputError as error:
            warn(f"no PodResources answers: {error}")
            return Answers(None, None)
        listed, allocatable = plain_answer(listed), plain_answer(allocatable)
    return Answers(
        None if listed is None else pods_from_wire(listed, files.place(LIST)),
        None if allocatable is None else allocatable_from_wire(allocatable, files.place(ALLOCATABLE)),
    )


def socket_of(files: NodeFiles) -> Path | None:
    """Return the socket of PodResources in the kubelet's folder; None: there is none."""
    if not isinstance(files, FolderFiles):
        return None
    path = files.path_of(SOCKET)
    try:
        return path if S_ISSOCK(path.stat().st_mode) else None
    except OSError:
        return None


def ask_kubelet(socket: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the answers to List and GetAllocatableResources, as protobuf's JSON.

    Raises:
        InputError: the extra `kubelet` is not installed, or nobody answers.
    """
    with client.connected(socket) as kubelet:
        return kubelet.ask(client.LIST), kubelet.ask(client.ALLOCATABLE)
