"""Small questions to the allocator of claims, made of objects of the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alignup.claims.question import Question, question_of
from alignup.claims.read import Resources, read_claim, read_class, read_slice
from alignup.claims.scheduler_gates import NEWEST, gates_of
from alignup.kubernetes.node_fit import NodeObject
from inputs.small_claims import DRIVER, class_of

Manifest = dict[str, Any]


def devices_of(*devices: Manifest, pool: str = "n", slices: int = 1, **spec: Any) -> Manifest:
    """Return a slice of a pool that the node `n` reaches, with devices as they are given."""
    return {
        "metadata": {"name": f"{pool}-{len(devices)}"},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": slices},
            "nodeName": "n",
            "devices": list(devices),
            **spec,
        },
    }


def request(name: str = "r", count: int = 1, **fields: Any) -> Manifest:
    """Return a request for so many devices of the driver's class."""
    return {"name": name, "exactly": {"deviceClassName": DRIVER, "count": count, **fields}}


def claim(*requests: Manifest, name: str = "c", constraints: Sequence[Manifest] = ()) -> Manifest:
    """Return a claim of these requests."""
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": list(requests), "constraints": list(constraints)}},
    }


def holder(*devices: str, **result: Any) -> Manifest:
    """Return another pod's claim, which has devices of the pool `n`."""
    results = [
        {"request": "r", "driver": DRIVER, "pool": "n", "device": name, **result}
        for name in devices
    ]
    return {
        **claim(request(), name="held"),
        "status": {"allocation": {"devices": {"results": results}}},
    }


def question(
    slices: Sequence[Manifest],
    claims: Sequence[Manifest],
    *,
    holders: Sequence[Manifest] = (),
    release: str = NEWEST,
    **features: bool,
) -> Question:
    """Return what is asked for claims on the node `n`, which is in the zone `a`."""
    resources = Resources(
        tuple(read_slice(part, "slice") for part in slices),
        (read_class(class_of(), "class"),),
        tuple(read_claim(other_claim, "holder") for other_claim in holders),
    )

    return question_of(
        NodeObject("n", {"zone": "a"}),
        resources,
        [read_claim(waiting, "claim") for waiting in claims],
        gates_of(release, features),
    )
