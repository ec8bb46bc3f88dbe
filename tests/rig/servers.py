"""Starts the control plane of the rig, and alignup's own servers beside it.

Skips tests where there can be none.
"""

from __future__ import annotations

import json
import shutil
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

from rig.control_plane import ControlPlane
from rig.programs import BIN, CONTROL_PLANE, built, missing, why_not

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parents[2]
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
    "PriorityClass": "priorityclasses",
}
ALIGNUP = [sys.executable, "-m", "alignup"]


def need_rig(*programs: str) -> None:
    """Build what is missing of these programs of the rig.

    Skip the test, with the reason, where they cannot run.
    """
    if reason := why_not(*programs):
        pytest.skip(reason)
    built(*programs)


def only_where_built(*programs: str) -> pytest.MarkDecorator:
    """Return a mark of tests that are skipped, with the reason, where programs are missing.

    They are such that are built only where they are named.
    """
    left = missing(*programs)
    reason = f"{', '.join(left)} missing in {BIN}: tests/rig/build makes them"
    return pytest.mark.skipif(bool(left), reason=reason)


class Server:
    """Requests to an API server as its administrator, or with another token."""

    def __init__(self, kubeconfig: str) -> None:
        config = yaml.safe_load(Path(kubeconfig).read_text())
        self.url = config["clusters"][0]["cluster"]["server"]
        self.token = config["users"][0]["user"]["token"]
        self.context = ssl._create_unverified_context()  # noqa: S323  # our own server on loopback

    def ask(self, method: str, path: str, body: Any = None, token: str = "", kind: str = "") -> int:
        """Return the status of the answer.

        `kind` is the Content-Type, None that of JSON or of a merge patch.
        """
        return self.asked(method, path, body, token, kind)[0]

    def asked(
        self, method: str, path: str, body: Any = None, token: str = "", kind: str = ""
    ) -> tuple[int, Any]:
        """Return the status of the answer, and what it says."""
        usual = "application/json"
        if method == "PATCH":
            usual = "application/merge-patch+json"

        headers = {"Authorization": f"Bearer {token or self.token}", "Content-Type": kind or usual}
        data = None
        if body is not None:
            data = json.dumps(body).encode()

        request = urllib.request.Request(  # noqa: S310  # ours
            self.url + path, data, headers, method=method
        )
        try:
            with urllib.request.urlopen(  # noqa: S310  # ours
                request, context=self.context, timeout=30
            ) as response:
                # of a watch, the first event
                return response.status, json.loads(response.read().partition(b"\n")[0] or b"{}")
        except urllib.error.HTTPError as error:
            text = error.read()
            if text.startswith(b"{"):
                return error.code, json.loads(text)
            return error.code, {"message": text.decode()}

    def token_of(self, namespace: str, account: str, pod: str = "") -> str:
        """Return a token of a service account, such as the kubelet gets for one of its pods."""
        bound = {}
        if pod:
            bound = {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": pod}}

        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        status, answer = self.asked("POST", path, {"spec": {"audiences": [], **bound}})
        assert status == 201, answer
        return str(answer["status"]["token"])

    def get(self, path: str) -> Any:
        """Return an object or a list; an empty one if it is not there."""
        request = urllib.request.Request(  # noqa: S310  # ours
            self.url + path, headers={"Authorization": f"Bearer {self.token}"}
        )
        try:
            with urllib.request.urlopen(  # noqa: S310  # ours
                request, context=self.context, timeout=30
            ) as response:
                return json.loads(response.read())
        except urllib.error.HTTPError:
            return {}

    def apply(self, document: dict[str, Any]) -> None:
        """Create an object."""
        group, metadata = document["apiVersion"], document["metadata"]
        root = f"/apis/{group}"
        if group == "v1":
            root = "/api/v1"

        place = ""
        if "namespace" in metadata:
            place = f"/namespaces/{metadata['namespace']}"

        status, answer = self.asked("POST", f"{root}{place}/{GROUPS[document['kind']]}", document)
        assert status == 201, answer

    def deployed(self) -> None:
        """Apply accounts, rights and policies of deploy/."""
        for path in (
            DEPLOY / "namespace.yaml",
            *sorted(DEPLOY.glob("*-rbac.yaml")),
            DEPLOY / "admission.yaml",
        ):
            for document in yaml.safe_load_all(path.read_text()):
                self.apply(document)


@contextmanager
def control_plane(
    scheduler: Path = BIN / "kube-scheduler", **served: str
) -> Iterator[ControlPlane]:
    """Run a control plane in a folder of its own, with the NodeResourceTopology kind.

    `served` has further options of the API server, with underscores for dashes.
    """
    need_rig(*CONTROL_PLANE)
    folder = Path(tempfile.mkdtemp(prefix="aur"))  # a short path: sockets lie in it
    plane = ControlPlane(folder, scheduler)
    plane.served = {option.replace("_", "-"): value for option, value in served.items()}
    try:
        plane.up()
        plane.add_topology_kind()
        yield plane
    finally:
        plane.down()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def alignup(
    *arguments: object,
    ready: str,
    tls: ssl.SSLContext | None = None,
    program: Sequence[object] = ALIGNUP,
) -> Iterator[subprocess.Popen[str]]:
    """Run a server of ours until the block ends.

    `ready` is a URL that answers 200 when it is ready; `program` is another one with its arguments.
    """
    log = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed below
    command = [*map(str, program), *map(str, arguments)]
    process = subprocess.Popen(  # noqa: S603  # our own program
        command, stdout=log, stderr=log, text=True
    )

    try:
        wait_for(ready, process, log, tls)
        yield process
    finally:
        process.terminate()
        process.wait(60)
        log.seek(0)
        output = log.read()
        log.close()
        assert "Traceback" not in output, output[-5000:]


def wait_for(
    url: str, process: subprocess.Popen[str], log: Any, tls: ssl.SSLContext | None
) -> None:
    """Wait until a server is ready."""
    deadline = time.monotonic() + 120
    while True:
        try:
            # our own server
            with urllib.request.urlopen(url, timeout=5, context=tls):  # noqa: S310
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
            lines = dict(
                line.rsplit(" ", 1)
                for line in response.read().decode().splitlines()
                if line[0] != "#"
            )
        if float(lines[name]) == value:
            return
        assert time.monotonic() < deadline, lines[name]
        time.sleep(0.2)
