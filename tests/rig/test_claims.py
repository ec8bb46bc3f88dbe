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
        self.kubelets = {kubelet.name: kubelet for kubelet in kubelets}

    def note_resources(self):
        """Write a file with all objects of claims, as kubectl prints them."""
        items = []
        for kind in ("ResourceSlice", "DeviceClass", "ResourceClaim"):
            plural = f"{kind.lower()}s"
            if kind == "DeviceClass":
                plural = f"{kind.lower()}es"

            objects = self.server.get(f"{GROUP}/{plural}")["items"]
            items += [
                {"apiVersion": "resource.k8s.io/v1", "kind": kind, **document}
                for document in objects
            ]
        self.resources.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    def foretold(self, name, pod):
        """Return what `alignup admit` says of a pod on a node.

        It reads the kubelet's own files of that.
        """
        kubelet = self.kubelets[name]
        path = self.folder / "pod.json"
        path.write_text(json.dumps(pod))
        kubelet.record()
        pods = [
            listed
            for listed in self.server.get(POD_LIST)["items"]
            if listed["spec"].get("nodeName") == name
        ]
        (kubelet.root / "pods.json").write_text(
            json.dumps({"apiVersion": "v1", "kind": "PodList", "items": pods})
        )
        (kubelet.root / "node.json").write_text(
            json.dumps(self.server.get(f"/api/v1/nodes/{name}"))
        )
        arguments = [
            "admit",
            "--node",
            kubelet.root,
            "--config",
            kubelet.config_file,
            "--json",
            path,
        ]
        output = io.StringIO()
        with redirect_stdout(output):
            program.main(
                [*map(str, arguments), "--resources", str(self.resources)], standalone_mode=False
            )

        return json.loads(output.getvalue())

    def create(self, claim, pod):
        assert self.server.ask("POST", CLAIMS, claim) == 201
        assert self.server.ask("POST", POD_LIST, pod) == 201

    def decided(self, name):
        """Return the node and the phase of a pod, once they are decided; no node: it has none."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            pod = self.server.get(f"{POD_LIST}/{name}")
            node_name, phase = pod["spec"].get("nodeName", ""), pod["status"].get("phase")
            conditions = {
                condition["type"]: condition for condition in pod["status"].get("conditions", [])
            }
            if (
                not node_name
                and conditions.get("PodScheduled", {}).get("reason") == "Unschedulable"
            ):
                return "", conditions["PodScheduled"]["message"]
            if node_name and phase in {"Running", "Failed"}:
                return node_name, phase
            time.sleep(0.05)
        raise AssertionError(f"nothing became of {name}: {pod['status']}")

    def held(self, at, name):
        """Return the CPUs by container, and the devices of its claims, that a pod has."""
        answer = self.kubelets[at].ask("get", "default", name)["pod_resources"]
        cpus = {}
        devices = set()
        for container in answer["containers"]:
            cpus[container["name"]] = sorted(map(int, container.get("cpu_ids", [])))
            for dynamic in container.get("dynamic_resources", []):
                devices |= {
                    (device["pool_name"], device["device_name"])
                    for device in dynamic.get("claim_resources", [])
                }

        return cpus, devices

    def is_near(self, at, name):
        """Return whether devices of a pod are near the CPUs of each container that uses them."""
        cpus, devices = self.held(at, name)
        machine = read_machine(self.kubelets[at].root)
        near = set()
        for resource_slice in self.server.get(f"{GROUP}/resourceslices")["items"]:
            offered = resource_slice["spec"]
            near |= {
                device["attributes"][NUMA]["int"]
                for device in offered["devices"]
                if (offered["pool"]["name"], device["name"]) in devices
            }

        spec = self.server.get(f"{POD_LIST}/{name}")["spec"]
        cpus_of_nodes = dict(zip(machine.numa_node_ids, machine.node_cpus, strict=True))
        for container in spec["containers"]:
            numa_ids = {
                numa_id
                for numa_id, node_cpus in cpus_of_nodes.items()
                if any(node_cpus >> cpu & 1 for cpu in cpus[container["name"]])
            }
            if container["resources"].get("claims") and not near <= numa_ids:
                return False

        return True

    def allocated(self, namespace, name):
        status = self.server.get(f"{GROUP}/namespaces/{namespace}/resourceclaims/{name}").get(
            "status", {}
        )
        return status.get("allocation", {}).get("devices", {}).get("results", [])

    def remove(self, name):
        """Take a pod away with its claim, as the controllers would.

        Wait until the kubelet has forgotten it.
        """
        node_name = self.server.get(f"{POD_LIST}/{name}")["spec"].get("nodeName", "")
        self.server.ask(
            "DELETE", f"{POD_LIST}/{name}", {"gracePeriodSeconds": 0 if not node_name else 1}
        )
        uid = self.server.get(f"{CLAIMS}/{name}")["metadata"]["uid"]
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            listed = set()
            if node_name:
                listing = self.kubelets[node_name].ask("list")
                listed = {listed_pod["name"] for listed_pod in listing.get("pod_resources", [])}

            is_prepared = node_name and uid in self.drivers[node_name].prepared
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
        built_cluster = Cluster(plane, kubelets, drivers, tmp_path_factory.mktemp("claims"))
        for kubelet in kubelets:
            driver = Driver(DRIVER, kubelet.root / "var/lib/kubelet", built_cluster.allocated)
            driver.start()
            stack.callback(driver.stop)
            drivers[kubelet.name] = driver

        deadline = time.monotonic() + PATIENCE
        while not all(driver.registered for driver in drivers.values()):
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

        yield built_cluster


def drawn(random, name):
    """Return a claim and a pod that uses it, drawn at random."""
    requests = []
    for number in range(random.choice((1, 1, 2))):
        request = {"deviceClassName": DRIVER, "count": random.choice((1, 1, 1, 2))}
        if random.random() < 0.3:
            request["selectors"] = [
                {
                    "cel": {
                        "expression": (
                            'device.attributes["resource.kubernetes.io"].numaNode == '
                            f"{random.randrange(3)}"
                        )
                    }
                }
            ]

        requests.append({"name": f"r{number}", "exactly": request})

    constraints = []
    if random.random() < 0.3:
        constraints.append({"matchAttribute": NUMA})

    metadata = {"name": name, "namespace": "default"}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata}
    claim["spec"] = {"devices": {"requests": requests, "constraints": constraints}}
    containers = []
    for number in range(random.choice((1, 1, 2))):
        amounts = {
            "cpu": str(random.choice((1, 2, 2, 3, 4, 6, 8))),
            "memory": f"{random.choice((1, 2, 4, 8))}Gi",
        }
        resources = {"limits": amounts, "requests": amounts}
        if not number or random.random() < 0.5:
            resources["claims"] = [{"name": "c"}]

        containers.append({"name": f"m{number}", "image": "none", "resources": resources})

    spec = {
        "containers": containers,
        "terminationGracePeriodSeconds": 1,
        "resourceClaims": [{"name": "c", "resourceClaimName": name}],
    }
    return claim, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_devices_and_cpus_are_those_that_admit_foretells(cluster, capsys) -> None:
    random = Random(27)
    present = []
    counts = {"admitted": 0, "refused by a kubelet": 0, "unschedulable": 0, "far": 0}
    cluster.plane.schedule_with(None)
    for number in range(PODS):
        name = f"p{number}"
        claim, pod = drawn(random, name)
        assert cluster.server.ask("POST", CLAIMS, claim) == 201
        cluster.note_resources()
        foretold = {node_name: cluster.foretold(node_name, pod) for node_name in cluster.kubelets}
        assert cluster.server.ask("POST", POD_LIST, pod) == 201
        node_name, phase = cluster.decided(name)
        if not node_name:
            assert not [node for node, answer in foretold.items() if answer["admitted"]], (
                name,
                phase,
                foretold,
            )
            counts["unschedulable"] += 1
            cluster.remove(name)
            for _ in range(min(2, len(present))):
                cluster.remove(present.pop(random.randrange(len(present))))
            continue

        present.append(name)
        answer = foretold[node_name]
        allocated = {
            (device["pool"], device["device"]) for device in cluster.allocated("default", name)
        }
        assert (phase == "Running") is answer["admitted"], (name, node_name, phase, answer)
        if not answer["admitted"]:
            counts["refused by a kubelet"] += 1
        else:
            counts["admitted"] += 1
            assert {
                (device["pool"], device["device"]) for device in answer["claims"]["devices"]
            } == allocated
            cpus, devices = cluster.held(node_name, name)
            assert cpus == {
                container_name: list(CPUSet.parse(container["cpus"] or ""))
                for container_name, container in answer["containers"].items()
            }
            assert devices == allocated
            counts["far"] += answer["claims"]["meet"] is False

        while present and (phase == "Failed" or random.random() < 0.35 or len(present) > 12):
            cluster.remove(present.pop(-1 if phase == "Failed" else random.randrange(len(present))))
            phase = ""

    with capsys.disabled():
        print(json.dumps(counts))  # noqa: T201  # a campaign tells its numbers

    for name in present:
        cluster.remove(name)

    assert counts["admitted"] > PODS / 3


def test_with_the_extender_pods_get_devices_near_their_cpus(cluster, capsys) -> None:
    random, present, counts = Random(28), [], {"near": 0, "nowhere": 0}
    options = (
        "--kubeconfig",
        cluster.plane.kubeconfig,
        "--listen",
        EXTENDER,
        "--require-dra-alignment",
    )
    with alignup("extender", *options, ready=f"http://{EXTENDER}/healthz"):
        wait_for_metric(
            EXTENDER, 'alignup_extender_nodes{known_by="holdings"}', float(len(cluster.kubelets))
        )
        cluster.plane.schedule_with(EXTENDER)
        for number in range(PODS // 3):
            name = f"q{number}"
            cluster.create(*drawn(random, name))
            node_name, phase = cluster.decided(name)
            if node_name:
                assert phase == "Running"
                counts["near"] += 1
                assert cluster.is_near(node_name, name), (name, node_name)
            else:
                assert "devices of its claims" in phase or "NUMA" in phase or "cannot" in phase
                counts["nowhere"] += 1

            present.append(name)
            if not node_name:
                cluster.remove(present.pop())
            if present and (not node_name or random.random() < 0.3):
                cluster.remove(present.pop(random.randrange(len(present))))

    with capsys.disabled():
        print(json.dumps(counts))  # noqa: T201  # as above

    assert counts["near"] > PODS / 9
