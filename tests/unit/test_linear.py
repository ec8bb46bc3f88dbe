"""What reads texts of others takes instructions in proportion to their length.

Each reader reads texts of every shape that its grammar repeats (`checks.readers`). Those that look
as if they took more than in proportion, by the clock, are counted: no load of the machine changes
a count.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from alignup.claims.selectors.syntax import CompileError
from alignup.errors import AlignupError
from checks.readers import LENGTHS, READERS, Reader

if TYPE_CHECKING:
    from checks.repeated_text import Shape

pytestmark = pytest.mark.slow

MOST = 2.3
"""Times the instructions that twice the length may take."""
COUNTED = int(os.environ.get("ALIGNUP_COUNTED_SHAPES", "4"))
"""So many shapes of each reader are counted."""
TESTS = Path(__file__).parents[1]


def seconds(reader: Reader, text: str) -> float:
    """Return how much processor time it takes to read a text, at best."""
    times = []
    for _ in range(2):
        begun = time.process_time()
        with suppress(AlignupError, CompileError):
            reader.read(text)
        times.append(time.process_time() - begun)

    return min(times)


def growth(reader: Reader, shape: Shape) -> float:
    """Return times how much a text of the longest length takes, of the shortest."""
    shortest, *_, longest = LENGTHS
    return seconds(reader, shape.text(longest)) / max(seconds(reader, shape.text(shortest)), 1e-4)


def instructions(name: str, shapes: list[Shape], folder: Path) -> list[int]:
    """Return the instructions of reading each text, those of a shape one after another."""
    command = [
        "valgrind",
        "-q",
        "--tool=callgrind",
        "--dump-before=getppid",
        f"--callgrind-out-file={folder / 'out'}",
        sys.executable,
        "-m",
        "checks.readers",
        name,
    ]
    subprocess.run(  # noqa: S603  # our own
        command,
        check=True,
        input=json.dumps(shapes),
        text=True,
        cwd=TESTS,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        timeout=900,
    )

    files = sorted(folder.glob("out.*"), key=lambda file: int(file.suffix[1:]))
    totals = []
    for file in files:
        (line,) = [line for line in file.read_text().splitlines() if line.startswith("totals:")]
        totals.append(int(line.split()[1]))

    return totals[1::2]


@pytest.mark.parametrize("name", READERS)
@pytest.mark.filterwarnings("ignore")
def test_twice_the_text_takes_twice_the_instructions(name, tmp_path) -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind, which counts instructions, is not installed")

    reader = READERS[name]
    shapes = sorted(reader.shapes(), key=lambda shape: -growth(reader, shape))[:COUNTED]
    counts = instructions(name, shapes, tmp_path)
    assert len(counts) == len(shapes) * len(LENGTHS)

    too_many = []
    for number, shape in enumerate(shapes):
        of_shape = counts[number * len(LENGTHS) : (number + 1) * len(LENGTHS)]
        # of a short text more may be passed over at once: the longest two tell
        shorter, longer = of_shape[-2:]
        if longer > MOST * shorter:
            too_many.append((round(longer / shorter, 2), of_shape, tuple(shape)))

    assert not too_many
