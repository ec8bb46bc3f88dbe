"""Tests pass or fail alike on an idle machine and on a busy one."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import none

from inputs.strategies import QUICK

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

# read when grpc is imported, whose handlers of forks end the children of a process with threads of
# grpc
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"

# no test speaks to a server that this machine's authorities certify, and each client would read all
# of them
os.environ["SSL_CERT_FILE"] = os.environ["SSL_CERT_DIR"] = os.devnull

# each process that imports numpy would start threads that look for work for some hundredths of a
# second
os.environ["OPENBLAS_NUM_THREADS"] = "1"

# the width of the window from which the tests are started; workers of pytest-xdist get one that
# nobody has
os.environ.pop("COLUMNS", None)

# tests write tens of thousands of small files, many of which are synchronized with a disk, where
# there is one
MEMORY = Path("/dev/shm")  # noqa: S108 - tempfile makes a folder of our own there
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK):
    filesystem = os.statvfs(MEMORY)
    if filesystem.f_bavail * filesystem.f_frsize > 1 << 30 and not filesystem.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

# hundreds of tests start the program, and each process collects all tests: they are compiled once
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

settings.register_profile(
    "any load", max_examples=QUICK, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("nightly", settings.get_profile("any load"), max_examples=60 * QUICK)
settings.register_profile("emulated", settings.get_profile("any load"), max_examples=QUICK // 3)
settings.load_profile("any load")


THRESHOLDS = (10_000, 10, 1000)
"""How many objects a search for young, for older and for old garbage waits for."""

LONGEST = (
    "tests/campaign/test_many_runs.py",
    "tests/conformance/test_claims.py",
    "tests/conformance/test_kubelet.py",
    "tests/conformance/test_versions.py",
    "tests/test_examples.py",
    "tests/test_pages.py",
    "tests/unit/cli/test_agent.py",
    "tests/unit/cli/test_program.py",
    "tests/unit/cli/test_run.py",
    "tests/unit/cluster/test_agreement.py",
    "tests/unit/control_plane/publishers/test_hostile_surroundings.py",
    "tests/unit/control_plane/scheduler/test_extender_server.py",
    "tests/unit/control_plane/test_serving.py",
    "tests/unit/host/agent/test_agent.py",
    "tests/unit/host/processes/test_enclosures.py",
    "tests/unit/node/test_interruptions.py",
)
"""Files that take longest: begun first, so that no process ends alone with one of them."""


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Make thousands of tests without looking for garbage among them, then and later.

    The garbage of tests is young: what they keep, such as thousands of recorded scenarios, is
    hardly looked through. Each process that shares the work begins elsewhere, so that in a new
    clone each file is compiled by one of them.
    """
    config = session.config
    if hasattr(config, "workerinput") and config.args == config.getini("testpaths"):
        files = sorted(str(path) for path in Path(__file__).parent.rglob("test_*.py"))
        begin = (
            len(files)
            * int(config.workerinput["workerid"][2:])
            // config.workerinput["workercount"]
        )
        config.args = files[begin:] + files[:begin]

    # hypothesis makes its generator of random numbers now: it would not find who refers to it among
    # frozen objects
    settings(max_examples=1, database=None)(given(none())(lambda _: None))()
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Look for garbage as before.

    An extender that a test ran in this process let far more of it come together.
    """
    gc.set_threshold(*THRESHOLDS)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Find the garbage that is left.

    Pytest and the interpreter look a dozen times more at what remains tracked.
    """
    gc.collect()
    gc.freeze()


def place_of(item: pytest.Item) -> tuple[bool, int, str]:
    """Return when to begin with the file of a test."""
    name = item.nodeid.partition("::")[0]
    return not name.startswith(LONGEST), crc32(name.encode()), name


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, and mix the others.

    That is so where several processes share the work. Files of one folder are alike: where all
    processes have tests that wait, as those of servers do, the cores idle.
    """
    if hasattr(config, "workerinput"):
        items.sort(key=place_of)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return one process more than there are cores.

    A third of the longest tests wait for programs of their own.
    """
    return len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a file in one process, unless the command line says otherwise.

    Examples of the README go on where those above them ended. The option `--dist=loadfile` among
    those in pyproject.toml would do the same, but pytest-benchmark takes it for a run in several
    processes and measures nothing.
    """
    if config.getoption("dist") != "load":
        return None
    # the tests run without pytest-xdist, too
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415

    config.option.loadscopereorder = False  # which would begin with the files of the most tests
    return LoadFileScheduling(config, log)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let this process and those it starts be interrupted.

    They can be also where the tests were started with SIGINT ignored.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
