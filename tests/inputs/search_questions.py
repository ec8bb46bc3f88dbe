"""Small questions to the search for devices, as manifests and as tables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from inputs.small_claims import DRIVER


def exactly(name: str, *devices: str) -> dict[str, Any]:
    """Return a request for one of these devices."""
    expression = f"device.attributes['{DRIVER}'].name in {list(devices)}"
    return {
        "name": name,
        "exactly": {"deviceClassName": DRIVER, "selectors": [{"cel": {"expression": expression}}]},
    }


def claim(name: str, *requests: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": list(requests)}},
    }


def one_request(devices: int, count: int) -> SimpleNamespace:
    """Return tables in which one request asks for devices that have nothing but a number."""
    way = SimpleNamespace(claim=0, request=0, count=count, everything=None, is_admin=False)
    all_false = [False] * devices
    all_empty = [[]] * devices

    return SimpleNamespace(
        devices=[None] * devices,
        claims=[None],
        ways=[way],
        first_way=[0, 1],
        first_request=[0, 1],
        has_alternatives=[False],
        classes=list(range(devices)),
        matches=[[1] * devices],
        blocked=[[False] * devices],
        amounts=[[{}] * devices],
        needs=[[()] * devices],
        errors=[],
        forgets=False,
        taken=all_false,
        is_shareable=all_false,
        is_shared=all_false,
        room=all_empty,
        uses=all_empty,
        counters=[],
        families=[],
        constraints=[],
        is_distinct=[],
        covers=[],
        values=[],
        is_alone=[],
        faults=[],
    )


def several_requests(devices: int, *counts: int) -> SimpleNamespace:
    """Return such tables of one claim with several requests, each for so many devices."""
    tables = one_request(devices, counts[0])
    tables.ways = [
        SimpleNamespace(claim=0, request=request, count=count, everything=None, is_admin=False)
        for request, count in enumerate(counts)
    ]
    tables.first_way = list(range(len(counts) + 1))
    tables.first_request = [0, len(counts)]
    tables.has_alternatives = [False] * len(counts)
    for name in ("matches", "blocked", "amounts", "needs"):
        row = getattr(tables, name)[0]
        setattr(tables, name, [row] * len(counts))

    return tables
