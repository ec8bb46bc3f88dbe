"""Random selectors beside cel-go in the environment of Kubernetes 1.37.2.

ALIGNUP_CEL_ORACLE is a program that reads lines of the form of tests/vectors/claims/cel.jsonl.gz
and answers each with `name`, one of `match`, `error`, `compileError` and `panic`, and `cost`.
ALIGNUP_CEL_EXPRESSIONS (2,000) says how many expressions are made, ALIGNUP_CEL_SEED which.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from itertools import cycle, islice
from pathlib import Path

import pytest

from alignup.claims.scenarios import answer_selector
from inputs.selector_expressions import Expressions

ORACLE = os.environ.get("ALIGNUP_CEL_ORACLE")
COUNT = int(os.environ.get("ALIGNUP_CEL_EXPRESSIONS", "2000"))
SEED = int(os.environ.get("ALIGNUP_CEL_SEED", "1"))
VECTORS = Path(__file__).parents[1] / "vectors" / "claims" / "cel-fresh.jsonl.gz"


@pytest.mark.skipif(
    ORACLE is None,
    reason="ALIGNUP_CEL_ORACLE names no program that evaluates selectors as cel-go does",
)
def test_selectors_beside_cel_go() -> None:
    with gzip.open(VECTORS, "rt", encoding="utf-8") as file:
        devices = {line["name"].rpartition("-")[2]: line for line in map(json.loads, file)}

    made = islice((text for text in Expressions(SEED).selectors() if len(text) < 3000), COUNT)
    lines = [
        {**device, "name": str(number), "expression": text}
        for number, (text, device) in enumerate(zip(made, cycle(devices.values()), strict=False))
    ]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    done = subprocess.run(  # noqa: S603  # the oracle
        [str(ORACLE), "-cel"], input=text, capture_output=True, text=True, check=True
    )
    wrong = []
    for line, expected in zip(lines, map(json.loads, done.stdout.splitlines()), strict=True):
        answer = answer_selector(line, "the expression")
        keys = ("match", "cost", "name")
        is_same = answer.keys() == expected.keys() and all(
            answer.get(key) == expected.get(key) for key in keys
        )
        if not is_same and "panic" not in expected:
            wrong.append((line["expression"], expected, answer))

    assert wrong == []
