"""Claims, foretold and then tried.

Real scheduler, API server and kubelets, and a DRA driver beside each kubelet.
"""

from __future__ import annotations

import io
import json
import os
import time
from contextlib import ExitStack, redirect_stdout
from random import Random

import pytest

from alignup import read_machine
from alignup.cli.program import program
from alignup.machine.cpuset import CPUSet
from inputs.small_claims import DRIVER, NUMA, class_of, slice_of
from rig.dra_driver import Driver
from rig.proof import EXTENDER
from rig.published_kubelets import PROGRAMS, real_kubelets
from rig.servers import Server, alignup, control_plane, need_rig, wait_for_metric
from rig.workload import node

pytestmark = [
    pytest.mark.slow,
    pytest.mark.rig,
    pytest.mark.skipif(os.geteuid() != 0, reason="a kubelet needs root"),
]

PODS = int(os.environ.get("ALIGNUP_RIG_PODS") or 60)
GROUP = "/apis/resource.k8s.io/v1"
CLAIMS, POD_LIST = f"{GROUP}/namespaces/default/resourceclaims", "/api/v1/namespaces/default/pods"
PATIENCE = 30


class Cluster:
    """A control plane with kubelets, a driver on each, and what is asked of it all."""

    def __init__(self, plane, kubelets, drivers, folder) -> None:
        self.plane, self.drivers, self.folder = plane, drivers, folder
        self.server = Server(plane.kubeconfig)
        self.resources = folder / "resources.json"
        self.kubelets = {one.name: one for one in kubelets}

    def note_resources(self):
        """Write a file with all objects of claims, as kubectl prints them."""
        items = []
        for kind in ("ResourceSlice", "DeviceClass", "ResourceClaim"):
            plural = f"{kind.lower()}es" if kind == "DeviceClass" else f"{kind.lower()}s"
            found = self.server.get(f"{GROUP}/{plural}")["items"]
            items += [{"apiVersion": "resource.k8s.io/v1", "kind": kind, **one} for one in found]
        self.resources.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    def foretold(self, name, pod):
        """Return what `alignup admit` says of a pod on a node, of which it reads the kubelet's own files."""
        kubelet = self.kubelets[name]
        path = self.folder / "pod.json"
        path.write_text(json.dumps(pod))
        kubelet.record()
        pods = [
            one for one in self.server.get(POD_LIST)["items"] if one["spec"].get("nodeName") == name
        ]
        (kubelet.root / "pods.json").write_text(
            json.dumps({"apiVersion": "v1", "kind": "PodList", "items": pods})
        )
        (kubelet.root / "node.json").write_text(
            json.dumps(self.server.get(f"/api/v1/nodes/{name}"))
        )
        words = ["admit", "--node", kubelet.root, "--config", kubelet.config_file, "--json", path]
        told = io.StringIO()
        with redirect_stdout(told):
            program.main(
                [*map(str, words), "--resources", str(self.resources)], standalone_mode=False
            )

        return json.loads(told.getvalue())

    def create(self, claim, pod):
        assert self.server.ask("POST", CLAIMS, claim) == 201
        assert self.server.ask("POST", POD_LIST, pod) == 201

    def decided(self, name):
        """Return the node and the phase of a pod, once they are decided; no node: it has none."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found = self.server.get(f"{POD_LIST}/{name}")
            at, phase = found["spec"].get("nodeName", ""), found["status"].get("phase")
            conditions = {one["type"]: one for one in found["status"].get("conditions", [])}
            if not at and conditions.get("PodScheduled", {}).get("reason") == "Unschedulable":
                return "", conditions["PodScheduled"]["message"]
            if at and phase in {"Running", "Failed"}:
                return at, phase
            time.sleep(0.05)
        raise AssertionError(f"nothing became of {name}: {found['status']}")

    def held(self, at, name):
        """Return the CPUs by container, and the devices of its claims, that a pod has."""
        answer = self.kubelets[at].ask("get", "default", name)["pod_resources"]
        cpus = {
            one["name"]: sorted(map(int, one.get("cpu_ids", []))) for one in answer["containers"]
        }
        devices = {
            (one["pool_name"], one["device_name"])
            for container in answer["containers"]
            for dynamic in container.get("dynamic_resources", [])
            for one in dynamic.get("claim_resources", [])
        }
        return cpus, devices

    def is_near(self, at, name):
        """Return whether the devices of a pod are near the CPUs of each container that uses them."""
        cpus, devices = self.held(at, name)
        machine = read_machine(self.kubelets[at].root)
        slices = [one["spec"] for one in self.server.get(f"{GROUP}/resourceslices")["items"]]
        near = {
            one["attributes"][NUMA]["int"]
            for spec in slices
            for one in spec["devices"]
            if (spec["pool"]["name"], one["name"]) in devices
        }
        spec = self.server.get(f"{POD_LIST}/{name}")["spec"]
        own = dict(zip(machine.numa_node_ids, machine.node_cpus, strict=True))
        return all(
            near
            <= {
                numa
                for numa, those in own.items()
                if any(those >> cpu & 1 for cpu in cpus[one["name"]])
            }
            for one in spec["containers"]
            if one["resources"].get("claims")
        )

    def allocated(self, namespace, name):
        status = self.server.get(f"{GROUP}/namespaces/{namespace}/resourceclaims/{name}").get(
            "status", {}
        )
        return status.get("allocation", {}).get("devices", {}).get("results", [])

    def remove(self, name):
        """Take a pod away with its claim, as the controllers would, and wait until the kubelet has forgotten it."""
        at = self.server.get(f"{POD_LIST}/{name}")["spec"].get("nodeName", "")
        self.server.ask("DELETE", f"{POD_LIST}/{name}", {"gracePeriodSeconds": 0 if not at else 1})
        uid = self.server.get(f"{CLAIMS}/{name}")["metadata"]["uid"]
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            listed = (
                {one["name"] for one in self.kubelets[at].ask("list").get("pod_resources", [])}
                if at
                else set()
            )
            is_prepared = at and uid in self.drivers[at].prepared
            if name not in listed and not is_prepared and not self.server.get(f"{POD_LIST}/{name}"):
                break
            time.sleep(0.05)
        else:
            raise AssertionError(f"{name} stays")

        self.server.ask("PATCH", f"{CLAIMS}/{name}", {"metadata": {"finalizers": None}})
        self.server.ask("DELETE", f"{CLAIMS}/{name}")
        while self.server.get(f"{CLAIMS}/{name}"):
            time.sleep(0.05)

        time.sleep(0.2)  # until the scheduler knows


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    need_rig(*PROGRAMS)
    random = Random(4)
    nodes = [{**node(number, random), "devices": {}} for number in (0, 1, 3)]
    with control_plane() as plane, real_kubelets(plane, nodes) as kubelets, ExitStack() as stack:
        server, drivers = Server(plane.kubeconfig), {}
        made = Cluster(plane, kubelets, drivers, tmp_path_factory.mktemp("claims"))
        for one in kubelets:
            driver = Driver(DRIVER, one.root / "var/lib/kubelet", made.allocated)
            driver.start()
            stack.callback(driver.stop)
            drivers[one.name] = driver

        deadline = time.monotonic() + PATIENCE
        while not all(one.registered for one in drivers.values()):
            assert time.monotonic() < deadline, "a kubelet has not registered its driver"
            time.sleep(0.1)

        assert server.ask("POST", f"{GROUP}/deviceclasses", class_of()) == 201
        for described in nodes:
            count = len(described["machine"]["numaNodes"])
            places = [random.randrange(count) for _ in range(2 * count)]
            assert (
                server.ask(
                    "POST", f"{GROUP}/resourceslices", slice_of(places, node=described["name"])
                )
                == 201
            )

        yield made


def drawn(random, name):
    """Return a claim and a pod that uses it, drawn at random."""
    requests = []
    for number in range(random.choice((1, 1, 2))):
        asked = {"deviceClassName": DRIVER, "count": random.choice((1, 1, 1, 2))}
        if random.random() < 0.3:
            asked["selectors"] = [
                {
                    "cel": {
                        "expression": (
                            'device.attributes["resource.kubernetes.io"].numaNode == '
                            f"{random.randrange(3)}"
                        )
                    }
                }
            ]

        requests.append({"name": f"r{number}", "exactly": asked})

    constraints = [{"matchAttribute": NUMA}] if random.random() < 0.3 else []
    metadata = {"name": name, "namespace": "default"}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata}
    claim["spec"] = {"devices": {"requests": requests, "constraints": constraints}}
    containers = []
    for number in range(random.choice((1, 1, 2))):
        amounts = {
            "cpu": str(random.choice((1, 2, 2, 3, 4, 6, 8))),
            "memory": f"{random.choice((1, 2, 4, 8))}Gi",
        }
        uses = {"claims": [{"name": "c"}]} if not number or random.random() < 0.5 else {}
        resources = {"limits": amounts, "requests": amounts, **uses}
        containers.append({"name": f"m{number}", "image": "none", "resources": resources})

    spec = {
        "containers": containers,
        "terminationGracePeriodSeconds": 1,
        "resourceClaims": [{"name": "c", "resourceClaimName": name}],
    }
    return claim, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_devices_and_cpus_are_those_that_admit_foretells(cluster, capsys) -> None:
    random, there, counts = (
        Random(27),
        [],
        {"admitted": 0, "refused by a kubelet": 0, "unschedulable": 0, "far": 0},
    )
    cluster.plane.schedule_with(None)
    for number in range(PODS):
        name = f"p{number}"
        claim, pod = drawn(random, name)
        assert cluster.server.ask("POST", CLAIMS, claim) == 201
        cluster.note_resources()
        foretold = {at: cluster.foretold(at, pod) for at in cluster.kubelets}
        assert cluster.server.ask("POST", POD_LIST, pod) == 201
        at, phase = cluster.decided(name)
        if not at:
            assert not [one for one, said in foretold.items() if said["admitted"]], (
                name,
                phase,
                foretold,
            )
            counts["unschedulable"] += 1
            cluster.remove(name)
            for _ in range(min(2, len(there))):
                cluster.remove(there.pop(random.randrange(len(there))))
            continue

        there.append(name)
        said = foretold[at]
        given = {(one["pool"], one["device"]) for one in cluster.allocated("default", name)}
        assert (phase == "Running") is said["admitted"], (name, at, phase, said)
        counts["admitted" if said["admitted"] else "refused by a kubelet"] += 1
        if said["admitted"]:
            assert {(one["pool"], one["device"]) for one in said["claims"]["devices"]} == given
            cpus, devices = cluster.held(at, name)
            assert cpus == {
                one: list(CPUSet.parse(got["cpus"] or ""))
                for one, got in said["containers"].items()
            }
            assert devices == given
            counts["far"] += said["claims"]["meet"] is False

        while there and (phase == "Failed" or random.random() < 0.35 or len(there) > 12):
            cluster.remove(there.pop(-1 if phase == "Failed" else random.randrange(len(there))))
            phase = ""

    with capsys.disabled():
        print(json.dumps(counts))  # noqa: T201  # a campaign tells its numbers

    for name in there:
        cluster.remove(name)

    assert counts["admitted"] > PODS / 3


def test_with_the_extender_pods_get_devices_near_their_cpus(cluster, capsys) -> None:
    random, there, counts = Random(28), [], {"near": 0, "nowhere": 0}
    words = (
        "--kubeconfig",
        cluster.plane.kubeconfig,
        "--listen",
        EXTENDER,
        "--require-dra-alignment",
    )
    with alignup("extender", *words, ready=f"http://{EXTENDER}/healthz"):
        wait_for_metric(
            EXTENDER, 'alignup_extender_nodes{known_by="holdings"}', float(len(cluster.kubelets))
        )
        cluster.plane.schedule_with(EXTENDER)
        for number in range(PODS // 3):
            name = f"q{number}"
            cluster.create(*drawn(random, name))
            at, phase = cluster.decided(name)
            assert (
                phase == "Running"
                if at
                else "devices of its claims" in phase or "NUMA" in phase or "cannot" in phase
            )
            counts["near" if at else "nowhere"] += 1
            if at:
                assert cluster.is_near(at, name), (name, at)
            there.append(name)
            if not at:
                cluster.remove(there.pop())
            if there and (not at or random.random() < 0.3):
                cluster.remove(there.pop(random.randrange(len(there))))

    with capsys.disabled():
        print(json.dumps(counts))  # noqa: T201  # as above

    assert counts["near"] > PODS / 9
