"""PID namespaces of the kernel at hand for tests, as containers have them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
"""The words before those of a command that is to be process 1 of a PID namespace of its own."""


def why_no_namespaces():
    """Return why no PID namespace can be made; empty if one can."""
    if shutil.which("unshare") is None:
        return "there is no unshare"
    command = [*UNSHARE, "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if not done.returncode:
        return ""
    return done.stderr.strip()


WHY_NOT = why_no_namespaces()
needs_namespaces = pytest.mark.skipif(
    bool(WHY_NOT), reason=f"no PID namespace can be made: {WHY_NOT}"
)
