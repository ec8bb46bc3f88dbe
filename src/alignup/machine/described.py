"""Reads a machine with its devices from decoded JSON: a machine object, a name of the catalog, or a scenario.

Text is parsed by the callers; the parts are decoded by `alignup.machine.machine` and
`alignup.machine.device_inventory`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from alignup.errors import InputError
from alignup.machine.loaded import LoadedMachine
from alignup.machine.machine import machine_from_dict

__all__ = ["described_machine", "machine_with_devices_from_dict"]


def described_machine(described: object, where: str = "machine") -> LoadedMachine:
    """Return the machine that a name of the catalog or a machine object describes.

    Args:
        described: a name, or an object as `Machine.from_dict` takes it, with any of `EXTRA_KEYS`.
        where: the name of the machine in errors.

    Raises:
        InputError: there is no machine of that name, or the object is not of its form.
    """
    if isinstance(described, str):
        from alignup.machine.catalog import catalog_entries  # noqa: PLC0415  # most documents name no entry

        entries = catalog_entries()
        if described not in entries:
            expected = f"a machine object, or one of the catalog: {', '.join(entries)}"
            raise InputError.at(where, expected, described)
        return entries[described]
    if not isinstance(described, Mapping):
        raise InputError.at(where, "a mapping", described)
    return LoadedMachine(machine_from_dict(described, where)).completed(described, f"{where}.")


def machine_with_devices_from_dict(data: Mapping[str, Any], source: str = "") -> LoadedMachine:
    """Return the machine under `machine`, with `devices`, `preferredSets`, `kubelet` and `pods` beside it.

    All but `machine` may be missing or null. The first three are then those that come with the machine; devices of
    their own bring their own preferred sets, or none.

    Args:
        data: a decoded document; other keys are ignored.
        source: the name of the document in errors; empty: they name the place in it only.

    Raises:
        InputError: one of the parts is not of its form; see `described_machine`, `decode_inventory` and
            `decode_preferred_sets`.
    """
    before = f"{source}: " if source else ""
    found = described_machine(data["machine"], f"{before}machine").completed(data, before)
    return replace(found, pods=tuple(data["pods"])) if data.get("pods") else found
