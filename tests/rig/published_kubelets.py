"""Real kubelets of the rig as nodes of a control plane.

`alignup node publish` publishes each.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alignup.kubelet.check import check_node
from alignup.kubelet.layout import FolderFiles
from rig.kubelet import Kubelet
from rig.pretend_machine import files_of
from rig.processes import RigError
from rig.programs import CONTROL_PLANE, KUBELET
from rig.servers import ALIGNUP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rig.control_plane import ControlPlane

PROGRAMS = (*CONTROL_PLANE, *KUBELET)
_SAID = re.compile(
    r'"(?:SyncLoop (?P<word>ADD|REMOVE)" source="api" pods=\[(?P<pods>[^]]*)]'
    r'|Pod admission denied" .*?pod="(?P<denied>[^"]*)")'
)


class RealKubelet(Kubelet):
    """A kubelet that runs as a node, with its device plugins and its publisher.

    Args:
        plane: the control plane where it is a node.
        described: the node, as a line of `alignup fleet --nodes`.
    """

    def __init__(self, plane: ControlPlane, described: dict[str, Any]) -> None:
        folder = Path(tempfile.mkdtemp(prefix="auk"))  # a short path: sockets lie in it
        devices = {
            resource: [{"id": device["id"], "numa": [device["numa"]]} for device in listed_devices]
            for resource, listed_devices in described["devices"].items()
        }
        files = files_of(described["machine"])
        super().__init__(folder, files, described["kubelet"], devices, plane, described["name"])
        self._publish = ["node", "publish", "--kubeconfig", plane.kubeconfig, "--name", self.name]

    def up(self) -> None:
        """Start all of it."""
        super().up()
        options = ["--root", self.root, "--config", self.config_file, "--interval", "0.1"]
        self.processes.start("publish", [*ALIGNUP, *self._publish, *options])

    def down(self) -> None:
        """End all of it, and remove its files."""
        super().down()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def will_start(self) -> bool:
        """Whether the kubelet will take its own files when it is started again.

        Its books of memory can differ.
        """
        with tempfile.TemporaryDirectory() as folder:
            problems = check_node(
                FolderFiles(self.copy(Path(folder, "root"))), {"config": self.config_file}
            )
        return not any("does not start" in problem.effect for problem in problems)

    def restart_with(self, **changes: Any) -> None:
        """Stop the kubelet and start it, with other fields of its configuration.

        Wait for its devices.
        """
        self.config_file.write_text(json.dumps(self.config | changes))
        self.restart()

    def keep(self, folder: Path) -> None:
        """Copy what explains a failure: logs, state files, answers, pods."""
        folder.mkdir(parents=True)
        with suppress(RigError, OSError):
            self.copy(folder / "root")
        for part in ("log", "static"):
            shutil.copytree(self.folder / part, folder / part)

    def said(self) -> list[tuple[str, str]]:
        """Return what the kubelet did, in order: ADD, REMOVE or DENY, and the name of the pod."""
        actions = []
        for match in _SAID.finditer(self.log):
            if match["denied"]:
                actions.append(("DENY", match["denied"].rpartition("/")[2]))
            else:
                actions += [
                    (match["word"], pod.strip('"').rpartition("/")[2])
                    for pod in match["pods"].split(",")
                    if pod
                ]
        return actions


@contextmanager
def real_kubelets(plane: ControlPlane, nodes: list[dict[str, Any]]) -> Iterator[list[RealKubelet]]:
    """Run a real kubelet for each node that is described."""
    kubelets = [RealKubelet(plane, described) for described in nodes]
    with ExitStack() as stack:
        for kubelet in kubelets:
            stack.callback(kubelet.down)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(RealKubelet.up, kubelets))
        yield kubelets


def misses(kubelet: RealKubelet, bound: list[str]) -> list[str]:
    """Return each pod that a kubelet denied, with what happened between its binding and that.

    Args:
        kubelet: the kubelet.
        bound: the pods that were bound to it, in the order in which the server took the bindings.
    """
    actions = kubelet.said()
    added = [name for word, name in actions if word == "ADD"]
    order = "in another order"
    if added == [name for name in bound if name in set(added)]:
        order = "as bound"

    denials = []
    for place, (word, name) in enumerate(actions):
        if word == "DENY":
            before = actions[max(0, place - 12) : place]
            denials.append(f"{kubelet.name}: {name} (pods came {order}): {before}")

    return denials
