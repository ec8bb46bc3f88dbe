"""Real kubelets of the rig as nodes of a control plane, each published by `alignup node publish`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alignup.errors import InputError
from alignup.kubelet.check import check_node
from alignup.kubelet.layout import FolderFiles
from alignup.kubelet.pod_resources import allocatable_from_wire, ask_kubelet
from rigged import ALIGNUP, BIN, ControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAMS = (
    "etcd", "kube-apiserver", "kube-scheduler", "kubelet", "fake-cri", "device-plugin", "pod-resources",
)  # fmt: skip
_SAID = re.compile(
    r'"(?:SyncLoop (?P<word>ADD|REMOVE)" source="api" pods=\[(?P<pods>[^]]*)]'
    r'|Pod admission denied" .*?pod="(?P<denied>[^"]*)")'
)


class RealKubelet:
    """A kubelet that runs, with its device plugins and its publisher.

    Args:
        plane: the control plane where it is a node.
        described: the node, as a line of `alignup fleet --nodes`.
    """

    def __init__(self, plane: ControlPlane, described: dict[str, Any]) -> None:
        self.name: str = described["name"]
        self._plane, self._described = plane, described
        self._folder = Path(tempfile.mkdtemp(prefix="auk"))  # a short path: sockets lie in it
        self._directory = self._folder / "k"
        self.root = self._folder / "root"
        self.config = self._directory / "kubelet.json"
        self._publisher: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start all of it."""
        folder, described, rig = self._folder, self._described, self._plane.rig
        (folder / "machine.json").write_text(json.dumps(described["machine"]))
        static = {"staticPodPath": str(self._directory / "static"), "fileCheckFrequency": "1s"}
        (folder / "overlay.json").write_text(json.dumps(static | described["kubelet"]))
        rig(
            "kubelet", "up", self._directory, "--bin", BIN, "--machine", folder / "machine.json", "--config",
            folder / "overlay.json", "--control-plane", self._plane.folder, "--name", self.name,
        )  # fmt: skip
        for resource, devices in described["devices"].items():
            plugin = resource.rpartition("/")[2]
            inventory = folder / f"{plugin}.json"
            listed = [{"id": one["id"], "numa": [one["numa"]]} for one in devices]
            inventory.write_text(json.dumps({"resource": resource, "devices": listed}))
            rig("kubelet", "plugin", self._directory, plugin, "--inventory", inventory)
        (self.root / "var/lib").mkdir(parents=True)
        for name, target in (("sys", "machine/sys"), ("proc", "machine/proc"), ("var/lib/kubelet", "kubelet")):
            (self.root / name).symlink_to(self._directory / target)
        words = ["node", "publish", "--kubeconfig", self._plane.kubeconfig, "--name", self.name]
        words += ["--root", str(self.root), "--config", str(self.config), "--interval", "0.1"]
        with (folder / "publish.log").open("wb") as log:
            self._publisher = subprocess.Popen([*ALIGNUP, *words], stdout=log, stderr=log)  # noqa: S603  # ours

    def stop(self) -> None:
        """End all of it, and remove its files."""
        try:
            if self._publisher is not None:
                self._publisher.terminate()
                self._publisher.wait(30)
        finally:
            if self._publisher is not None:
                self._publisher.kill()
            self._plane.rig("kubelet", "down", self._directory)
            shutil.rmtree(self._folder, ignore_errors=True)

    def admit(self, *pods: dict[str, Any]) -> list[dict[str, Any]]:
        """Bind pods past the scheduler; return what the kubelet decided, and what their containers hold."""
        path = self._folder / "pods.jsonl"
        path.write_text("\n".join(map(json.dumps, pods)))
        return [json.loads(one) for one in self._plane.rig("kubelet", "admit", self._directory, path).splitlines()]

    @property
    def will_start(self) -> bool:
        """Whether the kubelet will take its own files when it is started again: its books of memory can differ."""
        out = Path(tempfile.mkdtemp(dir=self._folder))
        self._plane.rig("kubelet", "root", self._directory, out)
        return not any("does not start" in one.effect for one in check_node(FolderFiles(out), {}))

    def restart(self, **changes: Any) -> None:
        """Stop the kubelet and start it, with other fields of its configuration, and wait for its devices."""
        config = json.loads(self.config.read_text()) | changes
        self.config.write_text(json.dumps(config, indent=1))
        self._plane.rig("kubelet", "restart", self._directory)
        expected = {(resource, one["id"]) for resource, some in self._described["devices"].items() for one in some}
        socket = self._directory / "kubelet/pod-resources/kubelet.sock"
        deadline = time.monotonic() + 60
        while True:
            with suppress(InputError):
                found = allocatable_from_wire(ask_kubelet(socket)[1])
                if {(resource, one.id) for resource, some in found.devices.items() for one in some} == expected:
                    return
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def static(self, name: str, manifest: dict[str, Any] | None) -> None:
        """Hand over a static pod, or take it away."""
        path = self._directory / "static" / f"{name}.json"
        if manifest is None:
            path.unlink()
            return
        hidden = path.with_name(f".{path.name}")
        hidden.write_text(json.dumps(manifest))
        hidden.rename(path)  # never half a file

    def keep(self, folder: Path) -> None:
        """Copy what explains a failure: logs, state files, answers, pods."""
        folder.mkdir(parents=True)
        with suppress(AssertionError):
            self._plane.rig("kubelet", "root", self._directory, folder / "root")
        files = (self.root / "var/lib/kubelet").glob("*_state")
        logs = (self._directory / "log/kubelet.log", self._directory / "cri.jsonl", self._folder / "publish.log")
        for path in (*files, *logs):
            shutil.copy(path, folder)
        shutil.copytree(self._directory / "static", folder / "static")

    def said(self) -> list[tuple[str, str]]:
        """Return what the kubelet did, in order: ADD, REMOVE or DENY, and the name of the pod."""
        found = []
        for said in _SAID.finditer((self._directory / "log/kubelet.log").read_text(errors="replace")):
            if said["denied"]:
                found.append(("DENY", said["denied"].rpartition("/")[2]))
            else:
                found += [(said["word"], pod.strip('"').rpartition("/")[2]) for pod in said["pods"].split(",") if pod]
        return found


@contextmanager
def real_kubelets(plane: ControlPlane, nodes: list[dict[str, Any]]) -> Iterator[list[RealKubelet]]:
    """Run a real kubelet for each node that is described."""
    made = [RealKubelet(plane, one) for one in nodes]
    with ExitStack() as stack:
        for one in made:
            stack.callback(one.stop)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(RealKubelet.start, made))
        yield made


def misses(kubelet: RealKubelet, bound: list[str]) -> list[str]:
    """Return each pod that a kubelet denied, with what happened between its binding and that.

    Args:
        kubelet: the kubelet.
        bound: the pods that were bound to it, in the order in which the server took the bindings.
    """
    said = kubelet.said()
    added = [name for word, name in said if word == "ADD"]
    order = "as bound" if added == [name for name in bound if name in set(added)] else "in another order"
    found = []
    for place, (word, name) in enumerate(said):
        if word == "DENY":
            before = said[max(0, place - 12) : place]
            found.append(f"{kubelet.name}: {name} (pods came {order}): {before}")
    return found
