"""The programs of the rig: real components of Kubernetes, and small ones of `cmd`.

They are those in the folder `ALIGNUP_RIG_BIN`. By default that is `alignup-rig` among temporary
files, where `build` puts what is missing; that takes Go, and minutes once. `ALIGNUP_RIG_RELEASE`
names the release of what is built, such as the preview 1.38.0-beta.0, which goes to a folder of its
own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from running.outside import outside_environment

__all__ = ["BIN", "CONTROL_PLANE", "KUBELET", "built", "missing", "why_not"]

RELEASE = os.environ.get("ALIGNUP_RIG_RELEASE", "")
BIN = Path(
    os.environ.get("ALIGNUP_RIG_BIN")
    or Path(tempfile.gettempdir()) / "-".join(filter(None, ("alignup-rig", RELEASE)))
)
BUILD = Path(__file__).with_name("build")
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-scheduler")
KUBELET = ("kubelet", "fake-cri", "device-plugin", "pod-resources")
"""Takes root as well."""


def missing(*names: str) -> list[str]:
    """Return the programs that have to be built."""
    return [name for name in names if not (BIN / name).exists()]


def why_not(*names: str) -> str:
    """Return why these programs cannot run here; empty if they can."""
    if "kubelet" in names and os.geteuid() != 0:
        return "a kubelet needs root"
    if missing(*names) and shutil.which("go") is None:
        return (
            f"{', '.join(missing(*names))} missing in {BIN} (ALIGNUP_RIG_BIN), and Go to build them"
        )
    return ""


def built(*names: str) -> Path:
    """Return the folder of the programs, when these are built.

    Raises:
        subprocess.CalledProcessError: they cannot be built.
    """
    if left := missing(*names):
        release = [RELEASE] if RELEASE else []
        command = ["nice", BUILD, BIN, *release, *left]
        subprocess.run(command, check=True, env=outside_environment())  # noqa: S603  # our own
    return BIN
