"""What a whole cluster takes of an extender until all is listed: processor seconds and memory.

    python benches/whole_cluster.py FOLDER [NODES] [PODS]

serves lists of a made-up cluster from a process of its own, which keeps them as bytes, and starts
`alignup extender`. Nodes have 2, 4 and 8 NUMA nodes, publish their holdings, and have pods of 3.4
kB as an API server sends them, of whom up to three on a node hold CPUs, memory and devices.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen
from zlib import crc32

import msgspec

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from alignup import read_pod
from alignup.control_plane.api_server.api_client import NODES, PODS, TOPOLOGIES
from alignup.control_plane.publishers.fleet import read_fleet
from rig.workload import node, pod

PAGE = 500
SIZE = 3_400
WORKLOADS = 400


def pod_object(
    number: int, name: str, containers: list[dict[str, Any]], random: Random
) -> dict[str, Any]:
    """Return a pod of a Deployment as an API server sends it."""
    app = f"app-{random.randrange(WORKLOADS)}"
    moment = "2026-01-02T03:04:05Z"
    uid = f"{random.getrandbits(128):032x}"
    kind = f"{crc32(app.encode()):010x}"
    token = f"kube-api-access-{uid[:5]}"
    status = [
        {
            "name": container["name"],
            "ready": True,
            "restartCount": 0,
            "started": True,
            "image": f"registry.local/{app}:1",
            "imageID": f"registry.local/{app}@sha256:{uid}{uid}",
            "containerID": f"containerd://{uid}{uid}",
            "state": {"running": {"startedAt": moment}},
            "lastState": {},
        }
        for container in containers
    ]
    manifest = {
        "metadata": {
            "name": f"{app}-{kind}-{number:05}",
            "generateName": f"{app}-{kind}-",
            "namespace": f"team-{app[-1]}",
            "uid": f"{uid[:8]}-{uid[8:12]}-{uid[12:16]}-{uid[16:20]}-{uid[20:]}",
            "resourceVersion": str(10_000 + number),
            "creationTimestamp": moment,
            "labels": {
                "app.kubernetes.io/name": app,
                "pod-template-hash": kind,
                "team": f"team-{app[-1]}",
            },
            "annotations": {
                "kubectl.kubernetes.io/restartedAt": moment,
                "prometheus.io/scrape": "true",
            },
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"{app}-{kind}",
                    "uid": uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [],
        },
        "spec": {
            "volumes": [
                {
                    "name": token,
                    "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]},
                }
            ],
            "containers": [
                {
                    **container,
                    "env": [
                        {"name": f"SETTING_{place}", "value": f"value-{place}"}
                        for place in range(5)
                    ],
                    "volumeMounts": [
                        {"name": token, "readOnly": True, "mountPath": "/var/run/secrets"}
                    ],
                    "terminationMessagePath": "/dev/termination-log",
                    "imagePullPolicy": "IfNotPresent",
                }
                for container in containers
            ],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "nodeName": name,
            "serviceAccountName": "default",
            "schedulerName": "default-scheduler",
            "priority": 0,
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
            ],
        },
        "status": {
            "phase": "Running",
            "startTime": moment,
            "qosClass": "Burstable",
            "podIP": "10.0.0.1",
            "hostIP": "10.1.0.1",
            "conditions": [
                {
                    "type": kind,
                    "status": "True",
                    "lastProbeTime": None,
                    "lastTransitionTime": moment,
                }
                for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "containerStatuses": status,
        },
    }
    fields = {f'k:{{"type":"field-{place}"}}': {".": {}, "f:status": {}} for place in range(60)}
    while len(json.dumps(manifest)) < SIZE and fields:
        key, value = fields.popitem()
        entry = {"manager": "kubelet", "fieldsV1": {key: value}}
        manifest["metadata"]["managedFields"].append(entry)

    return manifest


def shared(random: Random) -> list[dict[str, Any]]:
    """Return the containers of a pod that holds nothing of its own."""
    requests = {
        "cpu": f"{random.choice([50, 100, 250, 500])}m",
        "memory": f"{random.choice([128, 256, 512])}Mi",
    }
    return [{"name": "main", "image": "none", "resources": {"requests": requests}}]


def write(folder: Path, nodes: int, pods: int) -> None:
    """Write the pages of all lists of a cluster."""
    random = Random(1)
    objects: dict[str, list[bytes]] = {NODES: [], PODS: [], TOPOLOGIES: []}
    for fleet_node in read_fleet(
        "\n".join(json.dumps(node(number, random)) for number in range(nodes)).encode(), "nodes"
    ):
        labels = {
            "kubernetes.io/hostname": fleet_node.name,
            "kubernetes.io/os": "linux",
            "topology.kubernetes.io/zone": "a",
        }
        objects[NODES].append(
            msgspec.json.encode(
                {"metadata": {"name": fleet_node.name, "labels": labels, "uid": fleet_node.name}}
            )
        )
        holding = random.randint(0, 3)
        for number in range(pods // nodes):
            containers = (
                pod(number, 1.0, random)["spec"]["containers"]
                if number < holding
                else shared(random)
            )
            manifest = pod_object(len(objects[PODS]), fleet_node.name, containers, random)
            fleet_node.admit(read_pod(manifest))
            objects[PODS].append(msgspec.json.encode(manifest))

        objects[TOPOLOGIES].append(msgspec.json.encode(fleet_node.report(with_holdings=True)))

    for path, items in objects.items():
        for start in range(0, len(items), PAGE):
            more = str(start + PAGE) if start + PAGE < len(items) else ""
            head = json.dumps(
                {"kind": "List", "metadata": {"resourceVersion": "1000000", "continue": more}}
            )[:-1]
            text = head.encode() + b', "items": [' + b",".join(items[start : start + PAGE]) + b"]}"
            (folder / f"{path.rpartition('/')[2]}-{start}").write_bytes(text)

    sizes = {
        path.rpartition("/")[2]: sum(map(len, items)) // max(len(items), 1)
        for path, items in objects.items()
    }
    print(json.dumps({"bytes an object": sizes}))


async def serve(folder: Path) -> None:
    """Answer lists with the pages in a folder, and watches with nothing, until ended."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            url = urlsplit(head.split(b" ", 2)[1].decode())
            query = parse_qs(url.query)
            if "watch" in query:
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                    b"Transfer-Encoding: chunked\r\n\r\n"
                )
                await asyncio.sleep(3600)

            page = folder / f"{url.path.rpartition('/')[2]}-{query.get('continue', ['0'])[0]}"
            body = (
                page.read_bytes()
                if page.exists()
                else b'{"metadata": {"resourceVersion": "1"}, "items": []}'
            )
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                % len(body)
            )
            writer.write(body)
            await writer.drain()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def kubeconfig(folder: Path, port: int) -> Path:
    """Return a file that says where the stand-in is."""
    path = folder / "kubeconfig"
    cluster = {"server": f"http://127.0.0.1:{port}"}
    path.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    return path


def status_of(pid: int) -> dict[str, int]:
    """Return what the kernel counts of a process's memory, in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith("Vm")}


def processor_seconds(pid: int) -> float:
    """Return what a process has had of processors."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(folder: Path) -> dict[str, float]:
    """Start an extender, wait until it is ready, and return what it took."""
    stub = subprocess.Popen(  # noqa: S603
        [sys.executable, __file__, "serve", str(folder)], stdout=subprocess.PIPE, text=True
    )
    port = int(stub.stdout.readline())
    command = [
        sys.executable,
        "-m",
        "alignup",
        "extender",
        "--kubeconfig",
        str(kubeconfig(folder, port)),
        "--listen",
    ]
    start = time.monotonic()
    process = subprocess.Popen(  # noqa: S603
        [*command, "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        address = process.stdout.readline().rpartition(" ")[2].strip()
        while True:
            with urlopen(f"http://{address}/metrics") as answer:
                lines = dict(
                    line.rsplit(" ", 1)
                    for line in answer.read().decode().splitlines()
                    if line[0] != "#"
                )

            if float(lines["alignup_extender_lists"]) >= 6:
                break
            time.sleep(0.05)

        ready = {
            "seconds": time.monotonic() - start,
            "processor seconds": processor_seconds(process.pid),
        }
        memory = status_of(process.pid)
        counts = {
            key: float(lines[f"alignup_extender_{key}"])
            for key in ("pods", 'nodes{known_by="holdings"}')
        }
        return {**counts, **ready, "MiB": memory["VmRSS"] >> 10, "most MiB": memory["VmHWM"] >> 10}
    finally:
        process.terminate()
        process.wait()
        stub.terminate()
        stub.wait()
        process.stdout.close()
        stub.stdout.close()


def main(folder: Path, nodes: int = 5_000, pods: int = 100_000) -> None:
    """Write the cluster if it is not there yet, and print what it takes."""
    if not (folder / "nodes-0").exists():
        folder.mkdir(parents=True, exist_ok=True)
        write(folder, nodes, pods)
    print(json.dumps(measure(folder)))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        asyncio.run(serve(Path(sys.argv[2])))
    else:
        main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
