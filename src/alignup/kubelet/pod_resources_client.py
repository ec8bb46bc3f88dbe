"""Asks a running kubelet for its PodResources answers, over the unix socket in its folder.

Needs the extra `kubelet`. What the answers mean is read in `alignup.kubelet.pod_resources`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import InputError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

__all__ = ["ALLOCATABLE", "LIST", "PodResourcesClient", "connected"]

LIST: Final = "List"
ALLOCATABLE: Final = "GetAllocatableResources"

_SERVICE: Final = "/v1.PodResourcesLister/"
_OPTIONS: Final = (("grpc.max_receive_message_length", 16 << 20), ("grpc.enable_retries", 0))
"""As many bytes as the kubelet's own clients take."""
_SECONDS: Final = 5.0


class PodResourcesClient:
    """The calls of one connection; made by `connected`."""

    def __init__(self, channel: Any, socket: str) -> None:
        self._channel, self._socket = channel, socket

    def ask(self, call: str, seconds: float = _SECONDS) -> dict[str, Any]:
        """Return the answer to a call as plain objects, with the names of the `.proto` file.

        Args:
            call: `LIST` or `ALLOCATABLE`.
            seconds: how long it may take.

        Raises:
            InputError: nobody answers in time, or with an error.
        """
        import grpc  # noqa: PLC0415  # an extra
        from google.protobuf.json_format import MessageToDict  # noqa: PLC0415  # an extra

        from alignup.kubelet import pod_resources_pb2 as wire  # noqa: PLC0415  # an extra

        answer: Any = {LIST: wire.ListAnswer, ALLOCATABLE: wire.AllocatableAnswer}[call]
        question = self._channel.unary_unary(
            f"{_SERVICE}{call}",
            request_serializer=wire.Nothing.SerializeToString,
            response_deserializer=answer.FromString,
        )
        try:
            found = question(wire.Nothing(), timeout=seconds)
        except grpc.RpcError as error:
            why = f"{error.code().name.lower()}: {error.details()}"
            raise InputError(f"expected an answer to {call}, got {why[:200]} at {self._socket}") from None
        told: dict[str, Any] = MessageToDict(found, preserving_proto_field_name=True)
        return told


@contextmanager
def connected(socket: str | os.PathLike[str]) -> Iterator[PodResourcesClient]:
    """Yield a client of the kubelet behind a socket, and close its connection.

    Raises:
        InputError: the extra `kubelet` is not installed.
    """
    try:
        import google.protobuf  # noqa: F401, PLC0415  # an extra
        import grpc  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise InputError(
            "expected grpcio and protobuf to ask a kubelet for its PodResources, which are not installed: "
            "pip install 'alignup[kubelet]'"
        ) from error
    channel = grpc.insecure_channel(f"unix:{socket}", options=_OPTIONS)
    try:
        yield PodResourcesClient(channel, str(socket))
    finally:
        channel.close()
