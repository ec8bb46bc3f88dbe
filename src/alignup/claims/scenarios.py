"""Answers recorded questions line by line: claims on a node, and selectors on a device.

The lines and the answers have the form of the vectors in `tests/vectors/claims`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from alignup.claims.allocation import allocate
from alignup.claims.objects import Allocated, Amount, Claim, Device, Wire
from alignup.claims.question import AllocationError, question_of
from alignup.claims.read import Resources, read_claim, read_class, read_slice, without_nulls
from alignup.claims.scheduler_gates import NEWEST, gates_of
from alignup.claims.selectors.evaluate import program_of, variables_of
from alignup.claims.selectors.syntax import CompileError, NotUnderstood
from alignup.claims.selectors.values import EvaluationError, StoppedError
from alignup.kubernetes.node_fit import node_object
from alignup.text.typed import decode


class _Scenario(msgspec.Struct):
    """A question on the wire."""

    name: str
    node: dict[str, Any]
    slices: list[dict[str, Any]] = []
    classes: list[dict[str, Any]] = []
    claims: list[dict[str, Any]] = []
    allocated: list[dict[str, Any]] = []
    release: str = NEWEST
    features: dict[str, bool] = {}


class _Selector(msgspec.Struct, rename="camel"):
    """A question about a selector on the wire."""

    name: str
    expression: str
    device: dict[str, Any]
    driver: str = ""


def answer_scenario(line: object, place: str) -> dict[str, Any]:
    """Return the answer to a scenario: `name`, `result`, `ms`; with an error `error` and `class`.

    Raises:
        InputError: the scenario is malformed.
    """
    wire = decode(without_nulls(line), _Scenario, place)
    gates = gates_of(wire.release, wire.features)
    node = node_object({"kind": "Node", **wire.node}, f"{place}: node")
    slices = [
        read_slice(document, f"{place}: slices[{index}]")
        for index, document in enumerate(wire.slices)
    ]
    classes = [
        read_class(document, f"{place}: classes[{index}]")
        for index, document in enumerate(wire.classes)
    ]
    claims = [
        read_claim(document, f"{place}: claims[{index}]")
        for index, document in enumerate(wire.claims)
    ]
    allocated = [
        read_claim(document, f"{place}: allocated[{index}]")
        for index, document in enumerate(wire.allocated)
    ]

    answer: dict[str, Any] = {"name": wire.name, "result": None}
    start = time.perf_counter()
    try:
        resources = Resources(tuple(slices), tuple(classes), tuple(allocated))
        answer["result"] = answer_of(allocate(question_of(node, resources, claims, gates)))
    except AllocationError as error:
        answer |= {"error": str(error), "class": error.kind}

    return {**answer, "ms": round((time.perf_counter() - start) * 1000, 3)}


def answer_of(claims: Sequence[Claim] | None) -> list[dict[str, Any]] | None:
    """Return allocated claims as plain objects."""
    if claims is None:
        return None

    answers = []
    for claim in claims:
        devices = [_device(device) for device in claim.allocated or ()]
        answer: dict[str, Any] = {"claim": str(claim), "devices": devices}
        if claim.allocated_nodes is not None:
            answer["nodeSelector"] = _plain(claim.allocated_nodes)

        answers.append(answer)

    return answers


def _device(device: Allocated) -> dict[str, Any]:
    answer: dict[str, Any] = {"request": device.request, **_plain(device)}
    if answer.pop("shareID", None):
        answer["shared"] = True

    return answer


def _plain(value: Wire) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=quantity_text))


def quantity_text(amount: int) -> str:
    """Return an amount in billionths as a quantity."""
    for suffix, unit in (("", 10**9), ("m", 10**6), ("u", 10**3)):
        if amount % unit == 0:
            return f"{amount // unit}{suffix}"

    return f"{amount}n"


def answer_selector(line: object, place: str) -> Mapping[str, Any]:
    """Return the answer to a question about a selector.

    It has `name`, one of `match`, `error`, `compileError` and `notUnderstood`, and with the first
    two `cost`.

    Raises:
        InputError: the question is malformed.
    """
    wire = decode(without_nulls(line), _Selector, place)
    device = decode({"name": "", **wire.device}, Device, f"{place}: device", own=Amount)
    program = program_of(wire.expression)
    try:
        if isinstance(program, Exception):
            raise program

        match, cost = program.matches(variables_of(wire.driver, device))
    except CompileError as error:
        return {"name": wire.name, "compileError": str(error)}
    except (EvaluationError, StoppedError) as error:
        return {"name": wire.name, "error": str(error), "cost": error.cost}
    except NotUnderstood as error:
        return {"name": wire.name, "notUnderstood": str(error)}

    return {"name": wire.name, "match": match, "cost": cost}
