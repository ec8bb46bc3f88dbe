"""Runs the program in copies of this process.

Without the second that Python needs to start and to import it.
"""

from __future__ import annotations

import io
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings

from alignup.cli import main
from fakes.device_plugins import LONG


class ForkedRun:
    """The program with some arguments, in a copy of this process."""

    def __init__(self, arguments, err, out=None, variables=None):
        with warnings.catch_warnings():
            # the threads of pytest-xdist only wait
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()

        if self.pid == 0:
            status = 70
            try:
                if out is not None:
                    os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                sys.stdout, sys.stderr = (
                    io.TextIOWrapper(io.FileIO(number, "w"), write_through=True)
                    for number in (1, 2)
                )
                os.environ.update(variables or {})
                sys.argv = ["alignup", *arguments]
                main()
            except SystemExit as end:
                status = end.code or 0
            except BaseException:  # noqa: BLE001  # as the interpreter would
                os.write(2, traceback.format_exc().encode())
            finally:
                os._exit(status)

    def wait(self, timeout=3 * LONG):
        """Wait for the end and return the status as `subprocess` has it."""
        descriptor = os.pidfd_open(self.pid)
        try:
            if not select.select([descriptor], [], [], timeout)[0]:
                os.kill(self.pid, signal.SIGKILL)
        finally:
            os.close(descriptor)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def alignup(*arguments, **variables):
    """Run the program to its end, and return how that was."""
    texts = [str(word) for word in arguments]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        status = ForkedRun(texts, err, out, variables).wait()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(texts, status, out.read().decode(), err.read().decode())
