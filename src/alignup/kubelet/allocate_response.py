"""Reads the device files that a device plugin gave to a container out of the answer that the kubelet keeps.

Needs the extra `kubelet`; the checkpoint itself is read in `alignup.kubelet.device_checkpoint`.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from alignup.kubelet.allocate_response_pb2 import AllocateResponse

__all__ = ["device_paths"]


def device_paths(response: bytes) -> tuple[str, ...]:
    """Return the paths of device files in the container; none where the answer cannot be read, as in the kubelet."""
    try:
        answer = AllocateResponse.FromString(response)
    except DecodeError:
        return ()
    return tuple(one.container_path for one in answer.devices)
