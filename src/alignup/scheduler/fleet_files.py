"""Reads the nodes of a fleet: JSON lines as for `alignup rank --nodes`, or a machine of the catalog many times.

What a node publishes about itself is its line without name and pods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from alignup.errors import AlignupError, InputError, warn
from alignup.scheduler.fleet_node import FleetNode
from alignup.scheduler.report import Description
from alignup.text.json_lines import errors_at, numbered_lines
from alignup.text.json_text import decode_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["catalog_nodes", "read_fleet"]


def read_fleet(text: bytes, source: str) -> list[FleetNode]:
    """Return the nodes in a text, one a line.

    Args:
        text: JSON lines; the key `pods` is passed over with a warning.
        source: what an error calls the text.

    Raises:
        InputError: a line is no node, a name comes twice, or there is no line.
        ConfigError: a kubelet would refuse to start on one of the nodes.
    """
    nodes = list(_made(_lines(text, source)))
    if not nodes:
        raise InputError(f"expected at least one node, got none in {source}")
    return nodes


def catalog_nodes(machine: str, count: int) -> list[FleetNode]:
    """Return nodes of one machine of the catalog, called as it is, with a number.

    Raises:
        InputError: there is no such machine.
    """
    return list(
        _made(
            (f"--machine {machine}", {"name": f"{machine}-{number}", "machine": machine})
            for number in range(count)
        )
    )


def _lines(text: bytes, source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for where, line in numbered_lines(text, source):
        with errors_at(where):
            found: Any = decode_json(line, "a node as a JSON object")
            if not isinstance(found, dict) or not isinstance(found.get("name"), str):
                raise InputError.at("name", "a node as a JSON object with a name", found)
        yield where, found


def _made(lines: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[FleetNode]:
    descriptions = Description()
    names: set[str] = set()
    for where, line in lines:
        name = line["name"]
        if line.get("pods"):
            warn(f"the pods of node {name} are ignored: pods of a fleet come from the API server")
        described = {key: value for key, value in line.items() if key not in {"name", "pods"}}
        text = msgspec.json.encode(described).decode()
        with errors_at(where):
            if name in names:
                raise InputError.at("name", "a name that no other node has", name)
            names.add(name)
            try:
                node = descriptions.template(text, {})
            except AlignupError as error:
                raise InputError(f"node {name}: {error}") from error
        yield FleetNode(name, node.copy(), text)
