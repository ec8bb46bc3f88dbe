"""Gets the answers of a node's PodResources: recorded ones, or those of the kubelet that runs.

That one is asked over its unix socket, which needs the extra `kubelet`.
"""

from __future__ import annotations

import time
from contextlib import suppress
from stat import S_ISSOCK
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import InputError, needs_extra, warn
from alignup.kubelet import layout
from alignup.kubelet.pod_resources import allocatable_from_wire, pods_from_wire, read_answer

if TYPE_CHECKING:
    from pathlib import Path

    from alignup.kubelet.layout import NodeFiles
    from alignup.kubelet.pod_resources import Allocatable, PodResources

_SERVICE: Final = "/v1.PodResourcesLister/"

# As many bytes as the kubelet's own clients take.
_OPTIONS: Final = (("grpc.max_receive_message_length", 16 << 20), ("grpc.enable_retries", 0))

_SECONDS: Final = 5.0

# The kubelet answers a hundred questions a second of all who ask it, ten at once, and refuses the
# others with these words (`pkg/kubelet/apis/grpc/ratelimit.go`). gRPC has that code for other
# reasons too.
_RATE_LIMIT: Final = "rejected by rate limit"
_PAUSE: Final = 0.05
SOCKET: Final = f"{layout.KUBELET}/pod-resources/kubelet.sock"


def find_answers(files: NodeFiles) -> tuple[tuple[PodResources, ...] | None, Allocatable | None]:
    """Return the recorded answers of a node, or else those of its kubelet.

    That is the one whose socket is in the kubelet's folder. The answer to List, then that to
    GetAllocatableResources; None where it was not asked, or has not answered.

    Raises:
        InputError: a recorded answer is damaged.
    """
    list_answer = read_answer(files, layout.LIST)
    allocatable_answer = read_answer(files, layout.ALLOCATABLE)
    if list_answer is None and allocatable_answer is None:
        list_answer, allocatable_answer = answers_of_kubelet(files) or (None, None)

    pods = None
    if list_answer is not None:
        pods = pods_from_wire(list_answer, files.place(layout.LIST))

    allocatable = None
    if allocatable_answer is not None:
        place = files.place(layout.ALLOCATABLE)
        allocatable = allocatable_from_wire(allocatable_answer, place)

    return pods, allocatable


def answers_of_kubelet(files: NodeFiles) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the answers of the kubelet whose socket is in its folder; None: there is none.

    A kubelet that does not answer, and a missing extra, are warned of.
    """
    socket = socket_of(files)
    try:
        return None if socket is None else ask_kubelet(socket)
    except InputError as error:
        warn(f"no PodResources answers: {error}")
        return None


def socket_of(files: NodeFiles) -> Path | None:
    """Return the socket in a kubelet's folder; None: there is none, and so no kubelet that runs."""
    if not isinstance(files, layout.FolderFiles):
        return None

    path = files.path_of(SOCKET)
    with suppress(OSError):
        return path if S_ISSOCK(path.stat().st_mode) else None

    return None


def ask_kubelet(socket: Path, seconds: float = _SECONDS) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the answers to List and GetAllocatableResources as plain objects.

    They have the names of the `.proto` file. A kubelet that is asked by too many is asked again.

    Args:
        socket: of the kubelet.
        seconds: how long each may take.

    Raises:
        InputError: the extra `kubelet` is not installed, or nobody answers in time, or with an
            error.
    """
    with needs_extra(
        "to ask a kubelet for its PodResources takes grpcio with protobuf", "'alignup[kubelet]'"
    ):
        import grpc  # noqa: PLC0415  # an extra
        from google.protobuf.json_format import MessageToDict  # noqa: PLC0415  # an extra

        from alignup.kubelet import pod_resources_pb2 as wire  # noqa: PLC0415  # an extra

    def ask(call: str, answer: Any) -> dict[str, Any]:
        question = channel.unary_unary(
            f"{_SERVICE}{call}", wire.Nothing.SerializeToString, answer.FromString
        )
        deadline = time.monotonic() + seconds
        while True:
            try:
                message = question(wire.Nothing(), max(deadline - time.monotonic(), _PAUSE))
                break
            except grpc.RpcError as error:
                detail = error.details() or "no reason given"
                if detail == _RATE_LIMIT and time.monotonic() + _PAUSE < deadline:
                    time.sleep(_PAUSE)
                    continue

                status = error.code().name.lower()
                raise InputError(f"{call} failed: {status}: {detail} at {socket}") from None

        plain: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
        return plain

    with grpc.insecure_channel(f"unix:{socket}", options=_OPTIONS) as channel:
        return ask("List", wire.ListAnswer), ask("GetAllocatableResources", wire.AllocatableAnswer)
