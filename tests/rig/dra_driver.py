"""A DRA driver for a real kubelet.

It registers, and says of every claim that its devices are prepared.

The messages are those of `pluginregistration/v1` and `dra/v1` of k8s.io/kubelet, by their numbers
on the wire.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_PACKAGE = "alignup.tests.dra"
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Empty": {},
    "PluginInfo": {
        "type": (1, ""),
        "name": (2, ""),
        "endpoint": (3, ""),
        "supported_versions": (4, "*"),
    },
    "Claim": {"namespace": (1, ""), "uid": (2, ""), "name": (3, "")},
    "Request": {"claims": (1, "*Claim")},
    "Device": {"request_names": (1, "*"), "pool_name": (2, ""), "device_name": (3, "")},
    "Prepared": {"devices": (1, "*Device"), "error": (2, "")},
    # a map on the wire
    "Entry": {"key": (1, ""), "value": (2, "Prepared")},
    "Response": {"claims": (1, "*Entry")},
}
"""By message and field, the number and the type; none: text; *: any number of it."""


def _made() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="dra.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            made = message.field.add(
                name=field, number=number, label=3 if kind.startswith("*") else 1, type=9
            )
            if kind.strip("*"):
                made.type, made.type_name = 11, f".{_PACKAGE}.{kind.strip('*')}"

    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _MESSAGES
    }


WIRE = _made()


class Driver:
    """A driver on one node.

    Args:
        name: of the driver.
        folder: `/var/lib/kubelet` as it lies here.
        allocated: returns the allocated devices of a claim, by its namespace and name, as its
            status lists them.
    """

    def __init__(
        self, name: str, folder: Path, allocated: Callable[[str, str], list[dict[str, Any]]]
    ) -> None:
        self.name, self._allocated = name, allocated
        self.registered: list[bool] = []
        self.prepared: dict[str, list[str]] = {}
        """By the uid of a claim, its devices."""
        self._server = grpc.server(ThreadPoolExecutor(4))
        for service, methods in (
            (
                "pluginregistration.Registration",
                {"GetInfo": self._info, "NotifyRegistrationStatus": self._notified},
            ),
            (
                "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
                {"NodePrepareResources": self._prepare, "NodeUnprepareResources": self._unprepare},
            ),
        ):
            handlers = {
                method: grpc.unary_unary_rpc_method_handler(
                    handler,
                    request_deserializer=WIRE[
                        "Request" if service.endswith("DRAPlugin") else "Empty"
                    ].FromString,
                    response_serializer=lambda found: found.SerializeToString(),
                )
                for method, handler in methods.items()
            }
            self._server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(service, handlers),)
            )

        registry = folder / "plugins_registry"
        registry.mkdir(exist_ok=True)
        self._server.add_insecure_port(f"unix:{registry}/{name}.sock")

    def start(self) -> None:
        """Serve."""
        self._server.start()

    def stop(self) -> None:
        """Serve no longer."""
        self._server.stop(0).wait()

    def _info(self, _request: Any, _context: Any) -> Any:
        return WIRE["PluginInfo"](
            type="DRAPlugin", name=self.name, supported_versions=["v1.DRAPlugin"]
        )

    def _notified(self, _request: Any, _context: Any) -> Any:
        self.registered.append(True)
        return WIRE["Empty"]()

    def _prepare(self, request: Any, _context: Any) -> Any:
        answer = WIRE["Response"]()
        for claim in request.claims:
            prepared = answer.claims.add(key=claim.uid).value
            for device in self._allocated(claim.namespace, claim.name):
                names = [device["request"]]
                prepared.devices.add(
                    request_names=names, pool_name=device["pool"], device_name=device["device"]
                )
            self.prepared[claim.uid] = [device.device_name for device in prepared.devices]
        return answer

    def _unprepare(self, request: Any, _context: Any) -> Any:
        answer = WIRE["Response"]()
        for claim in request.claims:
            self.prepared.pop(claim.uid, None)
            answer.claims.add(key=claim.uid).value.SetInParent()
        return answer
