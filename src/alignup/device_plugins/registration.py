"""Serves Registration of the device plugin protocol on a socket in the folder that plugins look at.

It checks who registers, and hands the registration on. Connecting to plugins is left to
`alignup.device_plugins.plugins`.
"""

from __future__ import annotations

import logging
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import grpc

from alignup.device_plugins import device_plugin_pb2 as wire
from alignup.device_plugins.device_plugin_pb2_grpc import (
    RegistrationServicer,
    add_RegistrationServicer_to_server,
)
from alignup.device_plugins.messages import registration_of
from alignup.errors import InputError
from alignup.leases.private_file import make_folders
from alignup.leases.socket_path import LONGEST_PATH, check_free, remove

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from alignup.device_plugins.messages import Registration

__all__ = ["SOCKET_NAME", "RegistrationServer"]

_LOG: Final = logging.getLogger(__name__)
SOCKET_NAME: Final = "kubelet.sock"
"""Plugins know it by this name, and watch it."""
_THREADS: Final = 4
_LARGEST_REQUEST: Final = 1 << 16


class RegistrationServer:
    """The registration socket of a folder.

    Args:
        folder: where plugins have their sockets; made if it is not there.
        accept: called, from a thread of the server, with each registration; raises InputError to refuse it.
    """

    def __init__(self, folder: Path, accept: Callable[[Registration], None]) -> None:
        self._socket = folder / SOCKET_NAME
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS, thread_name_prefix="registration"),
            options=(("grpc.max_receive_message_length", _LARGEST_REQUEST), ("grpc.so_reuseport", 0)),
            maximum_concurrent_rpcs=4 * _THREADS,
        )
        add_RegistrationServicer_to_server(_Registration(accept), self._server)

    def start(self) -> None:
        """Serve, and thereby let the plugins of the folder register again: its old sockets are removed before.

        Raises:
            InputError: the folder cannot be used, or a kubelet or another agent serves it.
        """
        folder = self._socket.parent
        if len(bytes(self._socket)) > LONGEST_PATH:
            raise InputError.at("the folder of device plugins", "a path of up to 94 bytes", str(folder))
        try:
            make_folders(folder)
            check_free(self._socket, "the folder of device plugins")
            for path in folder.iterdir():
                if stat.S_ISSOCK(path.lstat().st_mode):
                    path.unlink()
            self._server.add_insecure_port(f"unix:{self._socket}")
            self._server.start()
            self._socket.chmod(0o600)
        except (OSError, RuntimeError) as error:
            why = (getattr(error, "strerror", None) or str(error) or "an error").lower()
            raise InputError(f"expected a folder for device plugins, got {why!r} at {folder}") from error

    def stop(self) -> None:
        """Serve no longer, and remove the socket."""
        self._server.stop(grace=None).wait()
        remove(self._socket)


class _Registration(RegistrationServicer):
    """What the server does with a call."""

    def __init__(self, accept: Callable[[Registration], None]) -> None:
        self._accept = accept

    def Register(self, request: wire.RegisterRequest, context: grpc.ServicerContext) -> wire.Empty:  # noqa: N802  # the protocol's name
        """Take a registration, or refuse it with a reason."""
        try:
            self._accept(registration_of(request))
        except InputError as error:
            _LOG.warning("the registration of a device plugin is refused: %s", error)
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return wire.Empty()
