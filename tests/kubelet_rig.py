"""Drives a real kubelet on a pretend machine, with the programs of the rig, for slow tests.

The rig is the folder in `ALIGNUP_RIG`, else `../shared/rig` beside the clone. Its programs are those in
`ALIGNUP_RIG_BIN`, else they are built once into the folder for temporary files, which takes Go and some minutes. A
kubelet needs root. Where one of these is missing, `why_not` says so.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

from alignup.kubelet.read import read_kubelet
from kernel_trees import write

__all__ = ["KubeletRig", "why_not"]

RIG = Path(os.environ.get("ALIGNUP_RIG") or Path(__file__).parents[2] / "shared" / "rig").resolve()
PROGRAMS = ("kubelet", "fake-cri", "device-plugin", "pod-resources")
ENVIRONMENT = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}  # the rig's folder is not ours to write in
NODE_NAME = "node-real"
PATIENCE = 180
"""Seconds: at 8 NUMA nodes a kubelet merges three lists of hints for seconds, and longer on a busy machine."""

READINGS = 20
"""So many times what a kubelet says is read until it says the same before and after."""


def unordered(answer):
    """Return an answer of PodResources with its lists in an order of their own; the kubelet's is that of a map."""
    if isinstance(answer, dict):
        return {key: unordered(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return sorted((unordered(one) for one in answer), key=repr)
    return answer


def binaries():
    return Path(os.environ.get("ALIGNUP_RIG_BIN") or Path(tempfile.gettempdir()) / "alignup-rig")


def why_not():
    """Return why no kubelet can be run here; empty if one can."""
    if not (RIG / "kubelet").is_file():
        return f"no rig at {RIG} (ALIGNUP_RIG)"
    if os.geteuid() != 0:
        return "a kubelet needs root"
    if all((binaries() / name).exists() for name in PROGRAMS):
        return ""
    return "" if shutil.which("go") else "no Go, and no programs of the rig in ALIGNUP_RIG_BIN"


def built():
    """Return the folder with the programs of the rig, built if they are not there."""
    folder = binaries()
    missing = [name for name in PROGRAMS if not (folder / name).exists()]
    if missing:
        command = ["nice", RIG / "build", folder, *missing]
        subprocess.run(command, check=True, env=ENVIRONMENT)  # noqa: S603  # the rig's own program
    return folder


class KubeletRig:
    """A kubelet that stands alone, whose pods are static ones.

    Args:
        directory: its folder, of a short path: sockets lie in it.
        files: the machine's files, by path.
        overlay: fields of its configuration.
        inventories: by resource, devices as the rig's plugins take them.
    """

    def __init__(self, directory, files, overlay=None, inventories=None):
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.inventories = inventories or {}
        machine = write(self.directory / "given", files)
        (self.directory / "overlay.json").write_text(json.dumps({"maxPods": 500, **(overlay or {})}))
        for resource, devices in self.inventories.items():
            (self.directory / f"{self.plugin(resource)}.json").write_text(
                json.dumps({"resource": resource, "devices": devices})
            )
        self.run("up", "--bin", built(), "--machine", machine, "--config", self.directory / "overlay.json")
        self.config = json.loads((self.directory / "kubelet.json").read_text())
        self.root = self.directory / "machine"
        self.state = self.directory / "kubelet"
        for resource in self.inventories:
            self.start_plugin(resource)

    @staticmethod
    def plugin(resource):
        return resource.rpartition("/")[2]

    def run(self, what, *arguments):
        command = [RIG / "kubelet", what, self.directory, *arguments]
        done = subprocess.run(  # noqa: S603  # the rig's own program
            list(map(str, command)), capture_output=True, text=True, env=ENVIRONMENT, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{what}: {done.stderr.strip()[-3000:]}")
        return done.stdout

    def start_plugin(self, resource):
        name = self.plugin(resource)
        self.run("plugin", name, "--inventory", self.directory / f"{name}.json")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.run("down")

    @property
    def version(self):
        """Of the kubelet, as in `v1.36.3`."""
        command = [built() / "kubelet", "--version"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1]  # noqa: S603  # ours

    def log(self):
        """Return what the kubelet has said since it was started last."""
        return (self.directory / "log/kubelet.log").read_text(errors="replace")

    def stop(self):
        """End the kubelet only."""
        record = json.loads((self.directory / "run/kubelet.json").read_text())
        os.kill(record["pid"], 15)
        while self.is_running(record):
            time.sleep(0.05)

    @staticmethod
    def is_running(record):
        try:
            fields = Path(f"/proc/{record['pid']}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return False
        return fields[0] != "Z" and int(fields[19]) == record["started"]

    def restart(self):
        """Stop and start the kubelet; plugins register again by themselves."""
        self.run("restart")
        self.wait_for_devices()

    def wait_for_devices(self, seconds=PATIENCE):
        expected = {(r, one["id"]) for r, devices in self.inventories.items() for one in devices}
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            answer = self.ask("allocatable")
            told = {
                (one["resource_name"], identity) for one in answer.get("devices", []) for identity in one["device_ids"]
            }
            if told == expected:
                return
            time.sleep(0.1)
        raise RuntimeError(f"devices have not come back: {expected - told}")

    def ask(self, what, seconds=PATIENCE):
        """Return an answer of PodResources, as protobuf's JSON; it is not served at once, and not often at a time."""
        command = [binaries() / "pod-resources", self.state / "pod-resources/kubelet.sock", what]
        deadline = time.monotonic() + seconds
        while True:
            done = subprocess.run(list(map(str, command)), capture_output=True, check=False)  # noqa: S603  # as above
            if done.returncode == 0:
                return json.loads(done.stdout)
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what}: {done.stderr.decode()[-500:]}\n{self.log()[-3000:]}")
            time.sleep(0.1)

    def pods(self):
        """Return the kubelet's pods, as a List."""
        context = ssl._create_unverified_context()  # noqa: S323  # its certificate is its own
        url = f"https://127.0.0.1:{self.config['port']}/pods"
        with urllib.request.urlopen(url, context=context, timeout=10) as answer:
            return json.load(answer)

    def status(self, name):
        for pod in self.pods().get("items") or []:
            if pod["metadata"]["name"] == f"{name}-{NODE_NAME}":
                return pod["status"]
        return None

    def admit(self, manifest, seconds=PATIENCE):
        """Hand over a pod, and return its status when the kubelet has decided."""
        name = manifest["metadata"]["name"]
        path = self.directory / "static" / f"{name}.json"
        hidden = path.with_name(f".{path.name}")
        hidden.write_text(json.dumps(manifest))
        hidden.rename(path)  # never half a file
        return self.decided(name, seconds)

    def decided(self, name, seconds=PATIENCE):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            status = self.status(name)
            if status and status.get("phase") in {"Running", "Failed"}:
                return status
            time.sleep(0.03)
        raise RuntimeError(f"no verdict on {name} within {seconds} s")

    def remove(self, name, seconds=PATIENCE):
        """Take a pod away, and wait until the kubelet has forgotten it."""
        (self.directory / "static" / f"{name}.json").unlink()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.status(name) is None:
                return
            time.sleep(0.03)
        raise RuntimeError(f"{name} is not gone within {seconds} s")

    def record(self):
        """Write the kubelet's pods and answers beside the machine, and return the root of it all."""
        (self.root / "podresources").mkdir(exist_ok=True)
        for what in ("list", "allocatable"):
            (self.root / "podresources" / f"{what}.json").write_text(json.dumps(self.ask(what)))
        (self.root / "pods.json").write_text(json.dumps(self.pods()))
        return self.root

    def read(self):
        """Return the node as it is read from the kubelet's files, at a moment when it holds still.

        Its answers and its files are read one after the other, and in between it may free what a refused pod was given.
        """
        for _ in range(READINGS):
            root = self.record()
            read = read_kubelet(root, kubelet_dir=self.state, config=self.directory / "kubelet.json")
            before = json.loads((root / "podresources" / "list.json").read_text())
            after = self.ask("list")
            if unordered(before) == unordered(after):
                return read
        raise RuntimeError(f"what PodResources lists changed {READINGS} times while the files were read")

    def copy_to(self, root):
        """Lay the node out as on a machine, and return the root."""
        self.record()
        shutil.copytree(self.root, root, symlinks=True, dirs_exist_ok=True)
        state = Path(root) / "var/lib/kubelet"
        (state / "device-plugins").mkdir(parents=True, exist_ok=True)
        names = ("cpu_manager_state", "memory_manager_state", "device-plugins/kubelet_internal_checkpoint")
        for name in names:
            if (self.state / name).exists():
                shutil.copy(self.state / name, state / name)
        shutil.copy(self.directory / "kubelet.json", state / "config.yaml")
        return Path(root)
