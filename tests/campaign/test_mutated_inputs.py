"""Mutated inputs for every reader.

Each is read, or refused in one line, within seconds and some hundred megabytes.

ALIGNUP_FUZZ_INPUTS (100,000) and ALIGNUP_FUZZ_SECONDS (300) bound the campaign, whichever is
reached first; ALIGNUP_FUZZ_SEED chooses other inputs. An input depends on the seed, the reader's
name and its number alone.
"""

from __future__ import annotations

import mmap
import os
import random
import resource
import signal
import time
import traceback
import warnings

import pytest

from alignup import errors
from inputs.reader_cases import READERS

SEED = os.environ.get("ALIGNUP_FUZZ_SEED", "12")
INPUTS = int(os.environ.get("ALIGNUP_FUZZ_INPUTS", "100000"))
SECONDS = float(os.environ.get("ALIGNUP_FUZZ_SECONDS", "300"))
CPU_SECONDS = 5
MEMORY = 500 << 20
WEIGHTS = {
    "cpulist": 4,
    "quantity": 4,
    "inventory": 2,
    "trace": 2,
    "snapshot": 0.5,
    "lease files": 0.2,
}


class TooSlowError(BaseException):
    """Raised after so many seconds of a reader's own time."""


def too_slow(_number, _frame):
    """Handle the timer."""
    raise TooSlowError


def read_one(reader, number):
    """Make and read an input; return whether it was accepted."""
    make, read = READERS[reader]
    content = make(random.Random(f"{SEED} {reader} {number}"))
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        read(content)
    except errors.AlignupError as error:
        check(str(error))
        return False
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return True


def check(sentence):
    """Make sure that a refusal is a line that a person can read."""
    assert sentence.isprintable(), sentence
    assert len(sentence) < 4000, f"{len(sentence)} letters: {sentence[:200]}"


def work(reader, first, count, until, progress):
    """Read inputs in this process, which is the campaign's own.

    Write down how far it got and what was accepted.
    """
    signal.signal(signal.SIGPROF, too_slow)
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123  # short
        size = int(file.read().split()[0]) * resource.getpagesize()

    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    accepted = 0
    for number in range(first, first + count):
        if time.monotonic() > until:
            break
        used = resource.getrusage(resource.RUSAGE_SELF)
        # for a compiled loop that no timer interrupts
        limit = int(used.ru_utime + used.ru_stime) + 3 * CPU_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        progress[0:16] = number.to_bytes(8, "little") + accepted.to_bytes(8, "little")
        accepted += read_one(reader, number)
        progress[0:16] = (number + 1).to_bytes(8, "little") + accepted.to_bytes(8, "little")


def run_apart(reader, first, count, until):
    """Read inputs in a process of their own.

    Return the number of the next, how many were accepted, and what failed.
    """
    progress = mmap.mmap(-1, 16)
    progress[0:8] = first.to_bytes(8, "little")
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", getattr(errors, "AlignupWarning", BytesWarning))
            work(reader, first, count, until, progress)
        except BaseException:  # noqa: BLE001  # all are findings
            os.write(writing, traceback.format_exc()[-3000:].encode(errors="replace"))
        finally:
            os._exit(0)

    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        report = file.read().decode()

    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    failure = report
    if status and not report:
        failure = f"ended by signal {-status}"

    return (
        int.from_bytes(progress[0:8], "little"),
        int.from_bytes(progress[8:16], "little"),
        failure,
    )


def campaign(reader, count, seconds):
    """Read so many inputs, and show every failure with what makes the input again."""
    until = time.monotonic() + seconds
    failures, number, accepted = [], 0, 0
    while number < count and time.monotonic() < until and len(failures) < 5:
        number, more, failure = run_apart(reader, number, count - number, until)
        accepted += more
        if failure:
            failures.append(f"seed {SEED!r}, reader {reader!r}, input {number}: {failure}")
            number += 1

    # shown with -s
    print(f"seed {SEED}, {reader}: {number} of {count} inputs, {accepted} accepted")  # noqa: T201
    assert not failures, "\n".join(failures)
    return number


@pytest.mark.parametrize("reader", READERS)
def test_some_mutated_inputs(reader):
    """A few of each, at every change."""
    assert campaign(reader, 15, 60) > 0


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_many_mutated_inputs(reader):
    """As many as there is time for."""
    share = WEIGHTS.get(reader, 1) / sum(WEIGHTS.get(name, 1) for name in READERS)
    campaign(reader, round(INPUTS * share), SECONDS / len(READERS))
