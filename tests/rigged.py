"""Starts the rig's real control plane, and alignup's own servers beside it; tests without a rig are skipped.

`ALIGNUP_RIG` is the rig's folder (by default `shared/rig` beside this checkout), `ALIGNUP_RIG_BIN` the folder of its
programs (by default `alignup-rig` among temporary files); they are built there if they are missing and Go is
installed, which takes minutes once.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
RIG = Path(os.environ.get("ALIGNUP_RIG", ROOT.parent / "shared" / "rig"))
BIN = Path(os.environ.get("ALIGNUP_RIG_BIN") or Path(tempfile.gettempdir()) / "alignup-rig")
DEPLOY = ROOT / "deploy"
GROUPS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Namespace": "namespaces",
    "ServiceAccount": "serviceaccounts",
}
PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler")
ALIGNUP = [sys.executable, "-m", "alignup"]


def need_rig(*programs: str) -> None:
    """Skip the test, with the reason, where the rig cannot run."""
    if not (RIG / "control-plane").exists():
        pytest.skip(f"no rig at {RIG} (set ALIGNUP_RIG)")
    missing = [name for name in programs or PROGRAMS if not (BIN / name).exists()]
    if missing and shutil.which("go") is None:
        pytest.skip(f"{', '.join(missing)} missing in {BIN} (set ALIGNUP_RIG_BIN), and Go to build them")
    if missing:
        built = run([str(RIG / "build"), str(BIN), *missing])
        if built.returncode:
            pytest.skip(f"the rig cannot be built here: {built.stderr.strip().splitlines()[-1:]}")


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a program of the rig to its end."""
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # the rig's own


def free_address() -> str:
    """Return an address of this machine where nobody listens."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{made.getsockname()[1]}"


class ControlPlane:
    """A real etcd, kube-apiserver and kube-scheduler."""

    def __init__(self, folder: Path, binaries: Path = BIN) -> None:
        self.folder, self._binaries = folder, binaries
        self.kubeconfig = str(folder / "kubeconfig")

    def rig(self, script: str, *words: object) -> str:
        """Run one of the rig's scripts for this control plane."""
        command = [str(RIG / script), *map(str, words)]
        done = run(command)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def up(self) -> None:
        """Start what does not run."""
        self.rig("control-plane", "up", self.folder, "--bin", self._binaries)

    def schedule_with(self, address: str | None) -> None:
        """Start the scheduler anew, with an extender at an address or without one."""
        extender = {
            "urlPrefix": f"http://{address}",
            **{f"{verb}Verb": verb for verb in ("filter", "prioritize", "preempt", "bind")},
            "weight": 5,
            "httpTimeout": "10s",
            "nodeCacheCapable": True,
        }
        self.schedule({} if address is None else {"extenders": [extender], "percentageOfNodesToScore": 100})

    def schedule(self, overlay: dict[str, Any]) -> None:
        """Start the scheduler anew, with some fields of its configuration."""
        path = self.folder / "scheduler-overlay.json"
        path.write_text(json.dumps(overlay))
        self.rig("control-plane", "scheduler", self.folder, "--scheduler", path)

    def end(self, name: str) -> None:
        """Let one program crash; `up` starts it again."""
        record = json.loads((self.folder / "run" / f"{name}.json").read_text())
        os.kill(record["pid"], 9)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and Path(f"/proc/{record['pid']}/cmdline").exists():
            if not Path(f"/proc/{record['pid']}/cmdline").read_bytes():
                break  # a zombie of the rig's
            time.sleep(0.05)


class Server:
    """Requests to an API server as its administrator, or with another token."""

    def __init__(self, kubeconfig: str) -> None:
        found = yaml.safe_load(Path(kubeconfig).read_text())
        self.url = found["clusters"][0]["cluster"]["server"]
        self.token = found["users"][0]["user"]["token"]
        self.context = ssl._create_unverified_context()  # noqa: S323  # our own server on loopback

    def ask(self, method: str, path: str, body: Any = None, token: str = "", kind: str = "") -> int:
        """Return the status of the answer; `kind` is the Content-Type, None that of JSON or of a merge patch."""
        return self.asked(method, path, body, token, kind)[0]

    def asked(self, method: str, path: str, body: Any = None, token: str = "", kind: str = "") -> tuple[int, Any]:
        """Return the status of the answer, and what it says."""
        usual = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {token or self.token}", "Content-Type": kind or usual}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)  # noqa: S310  # ours
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=30) as response:  # noqa: S310  # ours
                # of a watch, the first event
                return response.status, json.loads(response.read().partition(b"\n")[0] or b"{}")
        except urllib.error.HTTPError as error:
            text = error.read()
            return error.code, json.loads(text) if text.startswith(b"{") else {"message": text.decode()}

    def token_of(self, namespace: str, account: str, pod: str = "") -> str:
        """Return a token of a service account, such as the kubelet gets for one of its pods."""
        bound = {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": pod}} if pod else {}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        status, found = self.asked("POST", path, {"spec": {"audiences": [], **bound}})
        assert status == 201, found
        return str(found["status"]["token"])

    def get(self, path: str) -> Any:
        """Return an object or a list; an empty one if it is not there."""
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self.token}"})  # noqa: S310  # ours
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=30) as response:  # noqa: S310  # ours
                return json.loads(response.read())
        except urllib.error.HTTPError:
            return {}

    def apply(self, document: dict[str, Any]) -> None:
        """Create an object."""
        group, metadata = document["apiVersion"], document["metadata"]
        root = "/api/v1" if group == "v1" else f"/apis/{group}"
        place = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
        status, found = self.asked("POST", f"{root}{place}/{GROUPS[document['kind']]}", document)
        assert status == 201, found

    def deployed(self) -> None:
        """Apply accounts, rights and policies of deploy/."""
        for path in (DEPLOY / "namespace.yaml", *sorted(DEPLOY.glob("*-rbac.yaml")), DEPLOY / "admission.yaml"):
            for document in yaml.safe_load_all(path.read_text()):
                self.apply(document)


@contextmanager
def control_plane(binaries: Path = BIN) -> Iterator[ControlPlane]:
    """Run a control plane in a folder of its own, with the NodeResourceTopology kind."""
    need_rig()
    folder = Path(tempfile.mkdtemp(prefix="aur"))  # a short path: sockets lie in it
    made = ControlPlane(folder, binaries)
    try:
        made.up()
        made.rig("cluster", folder, "crd")
        yield made
    finally:
        made.rig("control-plane", "down", folder)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def alignup(*words: object, ready: str, tls: ssl.SSLContext | None = None) -> Iterator[subprocess.Popen[str]]:
    """Run a server of ours until the block ends; `ready` is a URL that answers 200 when it is ready."""
    log = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed below
    command = [*ALIGNUP, *map(str, words)]
    process = subprocess.Popen(command, stdout=log, stderr=log, text=True)  # noqa: S603  # our own program
    try:
        wait_for(ready, process, log, tls)
        yield process
    finally:
        process.terminate()
        process.wait(60)
        log.seek(0)
        said = log.read()
        log.close()
        assert "Traceback" not in said, said[-5000:]


def wait_for(url: str, process: subprocess.Popen[str], log: Any, tls: ssl.SSLContext | None) -> None:
    """Wait until a server is ready."""
    deadline = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5, context=tls):  # noqa: S310  # our own server
                return
        except (urllib.error.URLError, OSError):
            if process.poll() is not None or time.monotonic() > deadline:
                log.seek(0)
                raise AssertionError(f"not ready: {log.read()[-2000:]}") from None
            time.sleep(0.1)


def wait_for_metric(server: str, name: str, value: float) -> None:
    """Wait until a server of ours shows a number, labels in its name."""
    deadline = time.monotonic() + 60
    while True:
        with urllib.request.urlopen(f"http://{server}/metrics", timeout=5) as response:
            lines = dict(line.rsplit(" ", 1) for line in response.read().decode().splitlines() if line[0] != "#")
        if float(lines[name]) == value:
            return
        assert time.monotonic() < deadline, lines[name]
        time.sleep(0.2)
