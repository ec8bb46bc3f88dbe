"""A real kubelet on a machine that is not there.

It has device plugins, and a runtime that runs nothing. It runs in a mount namespace of its own, in
which the machine's files, its state folder and its logs lie where it looks for them. It needs root
and cgroups. Of the machine that it runs on, nothing changes but that the empty folder
/var/lib/kubelet is made.
"""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from inputs.kernel_trees import NODE
from rig.control_plane import free_address
from rig.pretend_machine import BOOT_ID, lay_out, mounts
from rig.processes import Processes, RigError
from rig.programs import BIN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rig.control_plane import ControlPlane

__all__ = ["NODE_NAME", "Kubelet"]

NODE_NAME = "node-real"
PODS = "/api/v1/namespaces/default/pods"
PATIENCE = 180
"""Seconds: at 8 NUMA nodes a kubelet merges three lists of hints for long on a busy machine."""

NEW_MERGES, MANY_NODES = 38, 4
"""From which minor release on a kubelet says a line for each combination, and with how many NUMA
nodes these are too many."""

MOUNT = 'while [ "$1" != -- ]; do mount --bind "$1" "$2"; shift 2; done; shift; exec "$@"'


def port() -> int:
    """Return a port of loopback where nobody listens."""
    return int(free_address().rpartition(":")[2])


class Kubelet:
    """A kubelet, and what belongs to it.

    Args:
        folder: an empty one of a short path, as sockets lie in it.
        files: the machine's files, by path; x86 only, with at most 8 NUMA nodes.
        overlay: fields of its configuration; None takes one away.
        devices: by resource, devices such as `{"id": "gpu0", "numa": [0]}`.
        plane: the control plane where it is a node; None: it stands alone, and its pods are static
            ones.
        name: of the node.
    """

    def __init__(
        self,
        folder: Path,
        files: Mapping[str, str],
        overlay: Mapping[str, Any] | None = None,
        devices: Mapping[str, list[dict[str, Any]]] | None = None,
        plane: ControlPlane | None = None,
        name: str = NODE_NAME,
    ) -> None:
        self.folder, self.name = folder, name
        self.root = lay_out(folder / "machine", files)
        self.state = self.root / "var/lib/kubelet"
        self.config_file = folder / "kubelet.json"
        self.processes = Processes(folder / "log")
        self._devices, self._plane = devices or {}, plane
        for path in (self.state, folder / "var-log", folder / "static", folder / "empty"):
            path.mkdir(parents=True)

        fields = {**self._usual(), **(overlay or {})}
        self.config_file.write_text(
            json.dumps({key: value for key, value in fields.items() if value is not None})
        )

    def _usual(self) -> dict[str, Any]:
        """Return the configuration: managers that allocate, and what lets it run here."""
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "cpuManagerPolicy": "static",
            "cpuManagerReconcilePeriod": "1s",
            "reservedSystemCPUs": "0",
            "memoryManagerPolicy": "Static",
            # the sum of the two below
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
            "systemReserved": {"memory": "924Mi"},
            "evictionHard": {"memory.available": "100Mi"},
            "topologyManagerPolicy": "single-numa-node",
            "topologyManagerScope": "container",
            "maxPods": 500,
            "address": "127.0.0.1",
            "port": port(),
            "healthzBindAddress": "127.0.0.1",
            "healthzPort": port(),
            "readOnlyPort": 0,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{self.folder}/cri.sock",
            "staticPodPath": str(self.folder / "static"),
            "fileCheckFrequency": "1s",
            "syncFrequency": "5s",
            "nodeStatusUpdateFrequency": "1s",
            "podLogsDir": str(self.folder / "pod-logs"),
            "volumePluginDir": str(self.folder / "volume-plugins"),
            "resolvConf": "",
            "makeIPTablesUtilChains": False,
            "failCgroupV1": False,
            "failSwapOn": False,
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "localStorageCapacityIsolation": False,
            "enableControllerAttachDetach": self._plane is not None,
        }

    def __enter__(self) -> Self:
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def up(self) -> None:
        """Start all of it."""
        self._start_runtime()
        self.start()
        for resource, devices in self._devices.items():
            self._offer(resource, devices)

    def _start_runtime(self) -> None:
        socket = self.folder / "cri.sock"
        self.processes.start("fake-cri", [BIN / "fake-cri", socket])
        self.processes.wait_for("fake-cri", "it serves", socket.exists)

    def down(self) -> None:
        """End all of it."""
        self.processes.stop_all()

    def start(self) -> None:
        """Start the kubelet alone, and wait until it serves.

        Raises:
            RigError: it ends.
        """
        options = [f"--config={self.config_file}", f"--hostname-override={self.name}"]
        options += [f"-v={self.verbosity()}"]
        options += [f"--cert-dir={self.folder / 'pki'}"]
        if self._plane is not None:
            options += [f"--kubeconfig={self._plane.kubeconfig}"]

        command = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", MOUNT, "mount"]
        command += [*self._mounts(), "--", BIN / "kubelet", *options]
        self.processes.start("kubelet", command, self.folder / "empty")
        socket = self.state / "device-plugins/kubelet.sock"
        self.processes.wait_for(
            "kubelet", "it is healthy", lambda: self._is_healthy() and socket.exists()
        )
        if self._plane is not None:
            self.processes.wait_for("kubelet", "its node is ready", self._is_ready)

    def verbosity(self) -> int:
        """Return at which level the kubelet logs: 4, at which it says all that `alignup` reads.

        From 1.38 on it then says a line for each combination of hints that it merges: at 8 NUMA
        nodes minutes of them.
        """
        nodes = len(list((self.root / NODE).glob("node[0-9]*")))
        version = subprocess.run(  # noqa: S603  # ours
            [BIN / "kubelet", "--version"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.rpartition("v")[2]
        minor = int(version.split(".")[1])
        return 2 if minor >= NEW_MERGES and nodes > MANY_NODES else 4

    def stop(self) -> None:
        """End the kubelet alone."""
        self.processes.stop("kubelet")

    def restart(self) -> None:
        """Stop and start the kubelet; its plugins register again by themselves."""
        self.stop()
        self.start()
        self._wait_for_devices()

    def _wait_for_devices(self) -> None:
        expected = {
            (resource, device["id"])
            for resource, devices in self._devices.items()
            for device in devices
        }
        self._until(lambda: self._listed_devices() == expected, "its devices have not come back")

    def boot(self, files: Mapping[str, str] | None = None) -> None:
        """Stop everything and start the runtime, which has no container then, and the kubelet.

        The device plugins do not run: `offer_again` starts them.

        Args:
            files: all of the machine's files as it comes up; None: as before.

        Raises:
            RigError: the kubelet ends.
        """
        self.processes.stop_all()
        if files is not None:
            shutil.rmtree(self.root / "sys")
            lay_out(self.root, files)

        (self.root / BOOT_ID).write_text(f"{uuid4()}\n")
        for socket in (self.folder / "cri.sock", self.state / "device-plugins/kubelet.sock"):
            socket.unlink(missing_ok=True)

        self._start_runtime()
        self.start()

    def offer_again(self) -> None:
        """Start the device plugins, and wait until their devices are there."""
        for resource, devices in self._devices.items():
            self._offer(resource, devices)

        self._wait_for_devices()

    def _mounts(self) -> list[Path]:
        """Return what is mounted where, in pairs."""
        state = Path("/var/lib/kubelet")
        state.mkdir(parents=True, exist_ok=True)
        pairs = []
        for source, target in (
            *mounts(self.root),
            (self.state, state),
            (self.folder / "var-log", Path("/var/log")),
        ):
            if target.exists():
                pairs += [source, target]
            elif source.is_dir() and any(source.iterdir()):
                raise RigError(f"this kernel has no {target}")

        return pairs

    def _offer(self, resource: str, devices: list[dict[str, Any]]) -> None:
        """Start a device plugin."""
        name = f"plugin-{resource.rpartition('/')[2]}"
        inventory, calls = self.folder / f"{name}.json", self.folder / f"{name}.jsonl"
        inventory.write_text(json.dumps({"resource": resource, "devices": devices}))
        options = ["-folder", self.state / "device-plugins", "-inventory", inventory, "-log", calls]
        self.processes.start(name, [BIN / "device-plugin", *options])
        self.processes.wait_for(
            name, "it was asked for devices", lambda: "ListAndWatch" in calls.read_text()
        )

    @property
    def config(self) -> dict[str, Any]:
        """Its configuration."""
        return json.loads(self.config_file.read_text())

    @property
    def log(self) -> str:
        """What it has said since it was started last."""
        return self.processes.log_of("kubelet").read_text(errors="replace")

    @property
    def version(self) -> str:
        """Such as `v1.36.3`."""
        done = subprocess.run(  # noqa: S603  # ours
            [BIN / "kubelet", "--version"], capture_output=True, text=True, check=True
        )
        return done.stdout.split()[-1]

    def ask(self, *question: str) -> Any:
        """Return an answer of PodResources, as the JSON of its message.

        `list`, `allocatable`, or `get` with a pod.

        It is not served at once, and not often at a time.
        """
        command = [BIN / "pod-resources", self.state / "pod-resources/kubelet.sock", *question]

        def answer() -> bytes:
            done = subprocess.run(  # noqa: S603  # ours
                list(map(str, command)), capture_output=True, check=False
            )
            return done.stdout

        return json.loads(self._until(answer, f"{question} is not answered"))

    def pods(self) -> dict[str, Any]:
        """Return its pods, as a List."""
        context = ssl._create_unverified_context()  # noqa: S323  # its certificate is its own
        url = f"https://127.0.0.1:{self.config['port']}/pods"
        with urllib.request.urlopen(url, timeout=10, context=context) as answer:
            return json.load(answer)

    def status(self, name: str) -> dict[str, Any] | None:
        """Return the status of a pod; None: there is no such pod."""
        if self._plane is not None:
            pod = self._plane.client.get(f"{PODS}/{name}")
            if pod is None:
                return None
            return pod["status"]

        statuses = {
            entry["metadata"]["name"]: entry["status"] for entry in self.pods().get("items") or []
        }
        return statuses.get(f"{name}-{self.name}")

    def admit(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Hand over a pod past the scheduler; return its status when the kubelet has decided."""
        name = manifest["metadata"]["name"]
        if self._plane is None:
            self.static(name, manifest)
        else:
            bound = {**manifest, "spec": {**manifest["spec"], "nodeName": self.name}}
            status, answer = self._plane.client.request("POST", PODS, bound)
            assert status == 201, answer
        return self.decided(name)

    def decided(self, name: str) -> dict[str, Any]:
        """Return the status of a pod, when the kubelet has decided."""

        def verdict() -> dict[str, Any] | None:
            status = self.status(name)
            if status is not None and status.get("phase") in {"Running", "Failed"}:
                return status
            return None

        return self._until(verdict, f"no verdict on {name}")

    def static(self, name: str, manifest: dict[str, Any] | None) -> None:
        """Hand over a static pod, or take it away."""
        path = self.folder / "static" / f"{name}.json"
        if manifest is None:
            path.unlink()
            return
        hidden = path.with_name(f".{path.name}")
        hidden.write_text(json.dumps(manifest))
        hidden.rename(path)  # never half a file

    def remove(self, name: str) -> None:
        """Take a static pod away, and wait until the kubelet has forgotten it."""
        self.static(name, None)
        self._until(lambda: self.status(name) is None, f"{name} is not gone")

    def record(self, root: Path | None = None) -> Path:
        """Write its pods and answers beside the machine's files, or beside a copy of these.

        Return the root of it all.

        What reads the node afterwards takes them for what the kubelet says.
        """
        root = root or self.root
        (root / "podresources").mkdir(exist_ok=True)
        for question in ("list", "allocatable"):
            (root / f"podresources/{question}.json").write_text(json.dumps(self.ask(question)))
        (root / "pods.json").write_text(json.dumps(self.pods()))
        return root

    def copy(self, root: Path) -> Path:
        """Copy the files of its machine, and what it says, into a folder that is made.

        Return the folder.
        """
        shutil.copytree(self.root, root, symlinks=True, ignore=shutil.ignore_patterns("*.sock"))
        return self.record(root)

    def _is_healthy(self) -> bool:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.config['healthzPort']}/healthz", timeout=2
        ) as answer:
            return answer.status == 200

    def _is_ready(self) -> bool:
        node = self._plane.client.get(f"/api/v1/nodes/{self.name}") or {"status": {}}
        conditions = {
            condition["type"]: condition["status"]
            for condition in node["status"].get("conditions", ())
        }
        return conditions.get("Ready") == "True"

    def _listed_devices(self) -> set[tuple[str, str]]:
        devices = self.ask("allocatable").get("devices", ())
        return {
            (listing["resource_name"], device)
            for listing in devices
            for device in listing["device_ids"]
        }

    def _until(self, probe: Callable[[], Any], failure: str) -> Any:
        """Return what a probe finds, once that is true."""
        deadline = time.monotonic() + PATIENCE
        while not (value := probe()):
            if time.monotonic() > deadline:
                raise RigError(f"{failure} within {PATIENCE} s:\n{self.log[-3000:]}")
            time.sleep(0.03)
        return value
