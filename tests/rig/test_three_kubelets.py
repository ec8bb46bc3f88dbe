"""Three real kubelets and whatever befalls them.

The extender's yes is their yes, and its no is their no.

Names, init containers, sidecars, pods that end, static pods, deletions, restarts and changes of the
configuration are drawn at random. 60 pods by default; `ALIGNUP_RIG_PODS=300` is the whole campaign,
`ALIGNUP_RIG_SEED` another one.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from alignup.kubernetes.pod_documents import is_rejected
from rig.proof import EXTENDER
from rig.published_kubelets import PROGRAMS, RealKubelet, real_kubelets
from rig.servers import ControlPlane, Server, alignup, control_plane, need_rig, wait_for_metric
from rig.workload import node

pytestmark = [
    pytest.mark.slow,
    pytest.mark.rig,
    pytest.mark.skipif(os.geteuid() != 0, reason="a kubelet needs root"),
]

PODS = int(os.environ.get("ALIGNUP_RIG_PODS") or 60)
SEED = int(os.environ.get("ALIGNUP_RIG_SEED") or 1)
MACHINES = (0, 1, 3)
"""Of `rig_workload.node`: 2, 4 and 2 NUMA nodes.

Single-numa-node by container and by pod, restricted by pod.
"""
EVERY, LIFE = 0.5, 16.0
"""Seconds between two pods, and those that a pod stays, on average.

Some more are asked for than there is room.
"""
PATH = "/api/v1/namespaces/default/pods"
TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
NAMES = ("main", "app", "c0", "c1", "istio-proxy", "x", "0", 63 * "y")
POLICIES = ("single-numa-node", "restricted", "best-effort", "none")
GPU = "example.com/gpu"


def container(random: Random, name: str, **more: Any) -> dict[str, Any]:
    amounts = {
        "cpu": str(random.choice([1, 1, 2, 2, 3, 4])),
        "memory": f"{random.choice([1, 1, 4, 12])}Gi",
    }
    if random.random() < 0.1:
        amounts["cpu"] = "1500m"

    if random.random() < 0.3:
        amounts[GPU] = "1"

    return {
        "name": name,
        "image": "none",
        "resources": {"requests": amounts, "limits": amounts},
        **more,
    }


def drawn(random: Random, number: int) -> dict[str, Any]:
    """Return a pod of one or two containers with any names.

    It may have init containers and a sidecar.
    """
    names = random.sample(NAMES, 5)
    containers = [container(random, names[index]) for index in range(random.choice([1, 1, 1, 2]))]
    inits = []
    if random.random() < 0.3:
        inits = [
            container(random, names[2 + index], command=["true"])
            for index in range(random.choice([1, 1, 2]))
        ]

    if random.random() < 0.15:
        inits.insert(
            random.randrange(len(inits) + 1), container(random, names[4], restartPolicy="Always")
        )

    ends = random.random() < 0.15
    if ends:
        containers[0]["command"] = ["true"]

    if random.random() < 0.1:
        containers[0]["resources"] = {"requests": {"cpu": "500m", "memory": "1Gi"}}

    name = "-".join(
        [
            "p",
            str(number),
            *(random.choice(["web", "db.0", "x" * 40, "9"]) for _ in range(random.randrange(3))),
        ]
    )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "containers": containers,
            "initContainers": inits,
            "restartPolicy": "Never" if ends else "Always",
            "terminationGracePeriodSeconds": random.choice([0, 1]),
        },
    }


class Campaign:
    """Pods that come and go on a control plane with real kubelets."""

    def __init__(self, plane: ControlPlane, kubelets: list[RealKubelet], random: Random) -> None:
        self.server, self.kubelets, self.random = Server(plane.kubeconfig), kubelets, random
        self.differs: list[str] = []
        """How what a kubelet publishes and what the server says of it differed at the last look."""
        self.made: dict[str, dict[str, Any]] = {}
        self.goes: dict[str, float] = {}
        """By name, when a pod is deleted."""
        self.ran: set[str] = set()
        self.static: dict[str, RealKubelet] = {}
        self.did: Counter[str] = Counter()
        self.rejected: dict[str, list[str]] = {}
        self.story: list[str] = []
        """What happened, in order, to explain a rejection."""
        self._seen: dict[str, tuple[str, str, bool]] = {}

    def look(self) -> dict[str, dict[str, Any]]:
        """Return the pods of the server, and note what became of them."""
        pods = {pod["metadata"]["name"]: pod for pod in self.server.get(PATH)["items"]}
        for name in [*self._seen.keys() - pods.keys()]:
            self.note(f"{self._seen.pop(name)[0]}: {name} is gone")

        for name, pod in pods.items():
            status = pod.get("status", {})
            is_new = name in self.made and name not in self.ran and name not in self.rejected
            state = (
                pod["spec"].get("nodeName", ""),
                status.get("phase", ""),
                "deletionTimestamp" in pod["metadata"],
            )
            if self._seen.get(name) != state and state[0]:
                self._seen[name] = state
                self.note(f"{state[0]}: {name} {state[1]}{', leaves' if state[2] else ''}")

            if status.get("phase") in {"Running", "Succeeded"}:
                if name not in self.ran and name in self.made:
                    self.goes[name] = time.monotonic() + self.random.expovariate(1 / LIFE)
                self.ran.add(name)
            elif is_new and is_rejected(status.get("phase", ""), status.get("reason", "")):
                self.rejected[name] = self.explained(name, pod)

        return pods

    def explained(self, name: str, manifest: dict[str, Any]) -> list[str]:
        """Return what is known of a rejection.

        What happened, what the kubelet did, and what it publishes then.
        """
        node_name = manifest["spec"]["nodeName"]
        (kubelet,) = (candidate for candidate in self.kubelets if candidate.name == node_name)
        actions = kubelet.said()
        at = next(
            (place for place, (word, pod) in enumerate(actions) if word == "DENY" and pod == name),
            len(actions),
        )
        report = self.server.get(f"{TOPOLOGIES}/{node_name}")["metadata"]["annotations"][
            "alignup.dev/holdings"
        ]
        before = [line for line in self.story if node_name in line][-25:]
        containers = [*manifest["spec"].get("initContainers", ()), *manifest["spec"]["containers"]]
        requests = [(container["name"], container["resources"]) for container in containers]
        return [
            f"{node_name}: {manifest['status']['reason']}",
            str(requests),
            str(actions[max(0, at - 12) : at]),
            report,
            *before,
        ]

    def note(self, line: str) -> None:
        self.story.append(f"{time.monotonic() % 10_000:.2f} {line}")

    def step(self, *, deletes: bool = True) -> dict[str, dict[str, Any]]:
        """Delete the pods whose time is up."""
        pods = self.look()
        for name, moment in list(self.goes.items()):
            if deletes and (moment < time.monotonic()):
                self.server.ask("DELETE", f"{PATH}/{name}")
                del self.goes[name]
        return pods

    def rest(self, seconds: float, **how: bool) -> None:
        end = time.monotonic() + seconds
        while True:
            self.step(**how)
            if time.monotonic() > end:
                return
            time.sleep(0.1)

    def run(self, pods: int) -> None:
        """Create pods, and disturb the kubelets meanwhile."""
        for number in range(pods):
            pod = drawn(self.random, number)
            assert self.server.ask("POST", PATH, pod) == 201
            self.made[pod["metadata"]["name"]] = pod
            self.rest(self.random.expovariate(1 / EVERY))
            if self.random.random() < 0.08:
                self.disturb(number)

    def disturb(self, number: int) -> None:
        """Let something happen to a kubelet that nobody schedules to meanwhile.

        It is what its administrator would do.
        """
        kubelet = self.random.choice(self.kubelets)
        self.cordon(kubelet, unschedulable=True)
        self.wait_until(
            lambda: all(
                self.is_settled(manifest)
                for manifest in self.look().values()
                if on(manifest, kubelet.name)
            )
        )
        event = self.random.choice(["static", "static", "restart", "configuration", "delete all"])
        self.note(f"{kubelet.name}: {event}")
        if event == "static":
            static_names = [name for name, where in self.static.items() if where is kubelet]
            if static_names and self.random.random() < 0.5:
                kubelet.static(static_names[0], None)
                del self.static[static_names[0]]
            else:
                name = f"static-{number}"
                pod = drawn(self.random, number)
                pod["metadata"]["name"], pod["spec"]["restartPolicy"] = name, "Always"
                kubelet.static(name, pod)
                self.static[name] = kubelet

            self.rest(2.5)
        elif event == "delete all":
            for name, manifest in self.look().items():
                if on(manifest, kubelet.name) and name in self.made:
                    self.server.ask("DELETE", f"{PATH}/{name}")
        elif kubelet.will_start:
            changes = {}
            if event == "configuration":
                changes["topologyManagerPolicy"] = self.random.choice(POLICIES)
                changes["topologyManagerScope"] = self.random.choice(["pod", "container"])

            kubelet.restart_with(**changes)
            self.rest(1.0)
        else:
            event = f"{event} that the kubelet would not survive"

        self.did[event] += 1
        self.wait_until(lambda: self.is_reported(kubelet))
        self.note(f"{kubelet.name}: {event} is over")
        self.cordon(kubelet, unschedulable=False)

    def cordon(self, kubelet: RealKubelet, *, unschedulable: bool) -> None:
        body = {"spec": {"unschedulable": unschedulable}}
        assert self.server.ask("PATCH", f"/api/v1/nodes/{kubelet.name}", body) == 200

    def is_settled(self, pod: dict[str, Any]) -> bool:
        """Return whether a kubelet has decided on a pod, and is not about to end it."""
        return (
            pod.get("status", {}).get("phase") != "Pending"
            and "deletionTimestamp" not in pod["metadata"]
        )

    def is_reported(self, kubelet: RealKubelet) -> bool:
        """Return whether what a kubelet publishes is of now.

        It has its configuration, and all pods that run there and no others.

        A pod that holds nothing for itself is in none of its files: none has to be told of, and a
        static one stays.
        """
        annotations = (
            self.server.get(f"{TOPOLOGIES}/{kubelet.name}")
            .get("metadata", {})
            .get("annotations", {})
        )
        described, holdings = (
            json.loads(annotations.get(f"alignup.dev/{key}", "{}")) for key in ("node", "holdings")
        )
        config = kubelet.config
        published = {pod["name"]: pod for pod in holdings.get("pods", ())}
        pods = {name: item for name, item in self.look().items() if on(item, kubelet.name)}
        runs = {
            name
            for name, item in pods.items()
            if item.get("status", {}).get("phase") in {"Running", "Pending"}
        }
        keys = ("topologyManagerPolicy", "topologyManagerScope")
        self.differs = [
            (
                f"{kubelet.name}: {name}: published {published.get(name)}, on the server "
                f"{described_status(pods.get(name))}"
            )
            for name in sorted(
                (published.keys() - runs)
                | {name for name in runs - published.keys() if holds(pods[name])}
            )
        ] + [
            f"{kubelet.name}: {key}" for key in keys if described["kubelet"].get(key) != config[key]
        ]
        return not self.differs

    def wait_until(self, holds: Any) -> None:
        """Wait; what does not come to hold is explained.

        The files of the kubelets are kept then.
        """
        deadline = time.monotonic() + 90
        self.differs = []
        while not holds():
            if time.monotonic() > deadline:
                kept = Path(tempfile.mkdtemp(prefix="alignup-campaign-"))
                for kubelet in self.kubelets:
                    kubelet.keep(kept / kubelet.name)
                pytest.fail("\n".join([*self.differs, f"files: {kept}", *self.story[-20:]]))
            self.step()
            time.sleep(0.2)

    def quiet(self) -> list[str]:
        """Wait until nothing changes, without deletions; return the pods that wait."""
        calm, last = time.monotonic(), None
        while time.monotonic() - calm < 12:
            pods = self.look()
            now = {
                name: (pod["spec"].get("nodeName"), pod.get("status", {}).get("phase"))
                for name, pod in pods.items()
            }
            if now != last or not all(map(self.is_reported, self.kubelets)):
                calm, last = time.monotonic(), now
            time.sleep(0.3)
        return [name for name, (where, _) in last.items() if not where]

    def taken_past_the_scheduler(self, waiting: list[str]) -> list[str]:
        """Try each pod that waits on each kubelet; return those that one of them takes."""
        taken = []
        for name in waiting:
            for kubelet in self.kubelets:
                pod = json.loads(json.dumps(self.made[name]))
                pod["metadata"]["name"] = f"past-{len(taken)}-{self.did['tried']}"
                self.did["tried"] += 1
                phase = kubelet.admit(pod)["phase"]
                self.server.ask("DELETE", f"{PATH}/{pod['metadata']['name']}?gracePeriodSeconds=0")
                if phase == "Running":
                    why = self.server.get(f"{PATH}/{name}")["status"]["conditions"][0].get(
                        "message"
                    )
                    taken.append(f"{name} on {kubelet.name}: {why}: {pod['spec']}")

                self.wait_until(lambda: self.is_reported(kubelet))  # noqa: B023  # called at once

        return taken


def holds(pod: dict[str, Any]) -> bool:
    """Return whether a pod that a kubelet admitted holds something.

    Memory, if it is guaranteed, or a device.
    """
    containers = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
    asks = any(
        GPU in container.get("resources", {}).get("requests", ()) for container in containers
    )
    return asks or pod["status"].get("qosClass") == "Guaranteed"


def described_status(pod: dict[str, Any] | None) -> str:
    """Return phase and states of the containers of a pod."""
    if pod is None:
        return "nothing"
    status = pod.get("status", {})
    states = {
        container["name"]: container.get("state")
        for key in ("initContainerStatuses", "containerStatuses")
        for container in status.get(key, ())
    }
    return f"{pod['metadata']['uid']} {status.get('phase')} {status.get('reason')} {states}"


def on(pod: dict[str, Any], name: str) -> bool:
    return pod["spec"].get("nodeName") == name


def test_the_extenders_yes_and_no_are_the_kubelets(capsys) -> None:
    need_rig(*PROGRAMS)
    random = Random(SEED)
    with (
        control_plane() as plane,
        real_kubelets(plane, [node(number, random) for number in MACHINES]) as kubelets,
    ):
        arguments = ("extender", "--kubeconfig", plane.kubeconfig, "--listen", EXTENDER)
        with alignup(*arguments, ready=f"http://{EXTENDER}/healthz"):
            wait_for_metric(
                EXTENDER, 'alignup_extender_nodes{known_by="holdings"}', float(len(MACHINES))
            )
            plane.schedule_with(EXTENDER)
            campaign = Campaign(plane, kubelets, random)
            campaign.run(PODS)
            waiting = campaign.quiet()
            taken = campaign.taken_past_the_scheduler(waiting)

    numbers = {
        "pods": PODS,
        "ran": len(campaign.ran & campaign.made.keys()),
        "waited to the end": len(waiting),
    }
    with capsys.disabled():
        numbers |= {**campaign.did, "rejected": campaign.rejected}
        print(json.dumps(numbers))  # noqa: T201  # a campaign tells its numbers

    assert campaign.rejected == {}
    assert taken == []
