"""A node that is read, against the real kubelet that wrote it.

At every step of many pods that come and go.

Fewer pods by default; `ALIGNUP_RIG_PODS=200` is the whole campaign.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path

import pytest

from alignup.kubelet.check import check_node
from alignup.kubelet.collect import collect
from alignup.kubelet.layout import FolderFiles
from alignup.kubelet.pod_resources import allocatable_from_wire, pods_from_wire
from alignup.kubelet.pod_resources_client import SOCKET, ask_kubelet
from alignup.kubelet.read import make_node, read_kubelet
from alignup.records import replace
from inputs.kernel_trees import server
from rig.lone_kubelet import NODE_NAME, KubeletRig, why_not

pytestmark = [
    pytest.mark.slow,
    pytest.mark.rig,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

PODS = int(os.environ.get("ALIGNUP_RIG_PODS") or 40)
PATIENCE = 5
"""Seconds until the kubelet's files say what it says."""

CASES = {
    2: ({"topologyManagerPolicy": "single-numa-node"}, {"sockets": 2, "cores": 8, "nodes": 2}),
    4: ({"topologyManagerPolicy": "restricted"}, {"sockets": 2, "cores": 12, "nodes": 4}),
    8: (
        {"topologyManagerPolicy": "best-effort", "topologyManagerScope": "pod"},
        {"sockets": 2, "cores": 16, "nodes": 8},
    ),
}


def gpus(nodes):
    return [{"id": f"gpu{i}", "numa": [i % nodes]} for i in range(2 * nodes)] + [{"id": "loose"}]


@pytest.fixture
def folder():
    made = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))  # sockets need a short path
    yield made
    shutil.rmtree(made, ignore_errors=True)


def wish(rng, *, small=False):
    cpus = 1
    memory = 1
    if not small:
        cpus = rng.choice([1, 1, 2, 2, 3, 4])
        memory = rng.choice([1, 1, 2, 4, 12, 20])

    amounts = {"cpu": str(cpus), "memory": f"{memory}Gi"}
    if rng.random() < 0.1:
        amounts["cpu"] = "1500m"
    if rng.random() < 0.2:
        amounts["hugepages-2Mi"] = f"{rng.choice([2, 64, 256])}Mi"
    if rng.random() < 0.35:
        amounts["nvidia.com/gpu"] = str(rng.choice([1, 1, 2]))
    return amounts


def container(name, amounts, **more):
    return {
        "name": name,
        "image": "none",
        "resources": {"requests": amounts, "limits": amounts},
        **more,
    }


def random_pod(rng, number, nodes=2):
    """Return a pod; at 8 NUMA nodes without four kinds of resources.

    A kubelet merges the hints of these for 20 minutes.
    """
    containers = [container(f"c{i}", wish(rng)) for i in range(rng.choice([1, 1, 1, 2]))]
    inits = []
    if rng.random() < 0.25:
        inits = [container(f"i{i}", wish(rng), command=["true"]) for i in range(rng.choice([1, 2]))]

    if rng.random() < 0.1:
        inits.append(container("side", wish(rng, small=True), restartPolicy="Always"))

    if rng.random() < 0.15:  # burstable
        del containers[0]["resources"]["limits"]
        containers[0]["resources"] = {"requests": {"cpu": "500m", "memory": "1Gi"}}

    resources = [member["resources"] for member in (*containers, *inits)]
    amounts = [part for parts in resources for part in parts.values()]
    if nodes == 8 and any("nvidia.com/gpu" in part for part in amounts):
        for part in amounts:
            part.pop("hugepages-2Mi", None)

    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"p{number:03}", "namespace": "default"},
        "spec": {"containers": containers, "initContainers": inits, "restartPolicy": "Always"},
    }


def check_holdings(read):
    """The node holds what PodResources says, container by container.

    Nobody holds anything who was refused: the kubelet gives that to the next pod.
    """
    ended = {record.pod.uid for record in read.records.pods if record.has_ended}
    assert ended.isdisjoint(pod.uid for pod in read.node.pods)
    uids = {
        f"{record.pod.namespace}/{record.pod.name}": record.pod.uid for record in read.records.pods
    }
    for pod in read.records.listed:
        uid = uids[f"{pod.namespace}/{pod.name}"]
        for listed in pod.containers:
            allocation = read.node.allocation(uid, listed.name)
            assert set(allocation.cpus or ()) == set(listed.cpus), (pod.name, listed.name)
            assert sorted((b.type, b.numa_nodes, b.size) for b in allocation.memory) == sorted(
                (b.type, b.numa_nodes, b.size) for b in listed.memory
            ), (pod.name, listed.name)
            assert allocation.devices == listed.devices, (pod.name, listed.name)


def agreed(rig):
    """Return the node when it holds what PodResources says.

    The kubelet frees what a refused pod was given some time later, first in memory, then in its
    files: a busy machine holds up either.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        read = rig.read()
        try:
            check_holdings(read)
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return read


def verdicts(read, manifest):
    """Yield the verdict on a pod, and those while what refused pods were given is not free yet.

    The kubelet frees it some time later, of one pod after the other.
    """
    yield read.node.try_admit(manifest)
    gone = sorted(read.stale.pods)
    for count in range(1, len(gone) + 1):
        for kept in combinations(gone, count):

            def is_freed(uid, _name, kept=kept):
                return uid in read.stale.pods and uid not in kept

            state = read.records.state.without(is_freed)
            records = replace(read.records, state=state)
            yield make_node(records, read.node.machine, keeps_gone=True).node.try_admit(manifest)


def judge(rig, manifest):
    """Read the node, compare its holdings, and its verdict on the next pod with the kubelet's.

    Return the kubelet's reason to refuse it; empty: it did not.
    """
    read = agreed(rig)
    verdict, *later_verdicts = verdicts(read, manifest)
    status = rig.admit(manifest)
    reason = status.get("reason") or ""
    # the kubelet's own fit check comes after its managers; for a static pod it then looks for
    # others to preempt
    if reason.startswith("OutOf") or "preemption" in status.get("message", ""):
        assert verdict.admitted
        return reason or "preemption"

    given = {}
    if status["phase"] == "Running":
        listed_pods = {pod.name: pod for pod in rig.read().records.listed}
        listed = listed_pods[f"{manifest['metadata']['name']}-{NODE_NAME}"]
        given = {member.name: facts_of(member) for member in listed.containers}

    def told(verdict):
        allocations = verdict.containers if verdict.admitted else {}
        return (
            verdict.admitted,
            verdict.reason,
            {name: facts_of(allocations[name]) for name in given if name in allocations},
        )

    seen = status["phase"] == "Running", reason, given
    if seen not in map(told, later_verdicts):
        assert told(verdict) == seen, (status, manifest)
    return reason


def facts_of(held):
    """Return the CPUs and the memory of a container, as it was judged or as it is listed."""
    blocks = sorted((block.type, block.numa_nodes, block.size) for block in held.memory)
    return set(held.cpus or ()), blocks


def will_start(rig):
    """Return whether the kubelet will take its own files at a restart.

    Where containers on one NUMA node and on several mix, its books of memory can come to differ
    from what it works out of its entries when it starts; then it does not start, or at some starts.
    `alignup node check` says so beforehand.
    """
    files = FolderFiles(rig.record())
    problems = check_node(files, {"config": rig.config_file})
    return not any("the kubelet does not start" in problem.effect for problem in problems)


def settled(rig, running):
    """Restart the kubelet; return the pods that still run.

    It takes pods up again before its plugins have registered, and refuses those with devices that
    must be allocated again, such as an init container's that has ended. What they held is free when
    they are terminated.
    """
    rig.restart()
    failed = {name for name in running if rig.decided(name)["phase"] == "Failed"}
    for name in failed:
        rig.remove(name)
    return [name for name in running if name not in failed]


@pytest.mark.parametrize("nodes", CASES)
def test_holdings_and_verdicts_are_the_kubelets_at_every_step(folder, nodes):
    overlay, shape = CASES[nodes]
    rng = random.Random(nodes)
    running, refused, restarted, reasons = [], [], False, set()
    with KubeletRig(
        folder, server(memory=16 << 20, **shape), overlay, {"nvidia.com/gpu": gpus(nodes)}
    ) as rig:
        for number in range(PODS):
            if number >= PODS // 2 and not restarted and will_start(rig):
                running, restarted = settled(rig, running), True
            while running and (len(running) > 3 * nodes or rng.random() < 0.3):
                rig.remove(running.pop(rng.randrange(len(running))))
            manifest = random_pod(rng, number, nodes)
            name = manifest["metadata"]["name"]
            reason = judge(rig, manifest)
            if reason:
                refused.append(name)
                reasons.add(reason)
            else:
                running.append(name)
            if len(refused) > 20:
                rig.remove(refused.pop(0))

        if not restarted:
            for name in running:
                rig.remove(name)
            agreed(rig)
            if will_start(rig):  # what refused pods left may still keep it from that
                settled(rig, [])
                restarted = True

        agreed(rig)

    # too few pods would let a policy pass that refuses nothing
    assert "TopologyAffinityError" in reasons or overlay["topologyManagerPolicy"] == "best-effort"
    counts = f"{PODS} pods, {len(refused)} refusals at the end, {sorted(reasons)}, {restarted=}"
    print(f"{nodes} NUMA nodes: {counts}")  # noqa: T201  # with -s


def test_a_kubelet_is_read_over_its_socket_and_collected(folder):
    """The messages on the wire are the kubelet's; the archive is the node."""
    machine = server(sockets=2, cores=8, nodes=2, memory=16 << 20)
    with KubeletRig(folder, machine, {}, {"nvidia.com/gpu": gpus(2)}) as rig:
        rng = random.Random(1)
        phases = [rig.admit(random_pod(rng, number))["phase"] for number in range(5)]
        recorded = rig.read()
        shutil.rmtree(rig.root / "podresources")
        files = FolderFiles(rig.root)
        live = read_kubelet(rig.root, config=rig.config_file)
        collect(files, folder / "node.tar.xz", config=rig.config_file)
        packed = read_kubelet(folder / "node.tar.xz")
        for node_read in (live, packed):
            check_holdings(node_read)
            assert sorted(node_read.records.listed, key=str) == sorted(
                recorded.records.listed, key=str
            )
            assert node_read.records.allocatable == recorded.records.allocatable
            assert node_read.node.devices.free == recorded.node.devices.free
            assert node_read.node.cpu.free_cpus == recorded.node.cpu.free_cpus

        # a pod that is refused after it was given CPUs leaves them in the file for a while
        kinds = [problem.kind for problem in check_node(files, {"config": rig.config_file})]
        assert kinds == ["stale-cpus"] * len(kinds)
        assert len(kinds) <= phases.count("Failed")


class Watcher(threading.Thread):
    """Asks a kubelet and checks its files, again and again, until `done` is set."""

    def __init__(self, rig):
        super().__init__()
        self.rig, self.done = rig, threading.Event()
        self.answers, self.stops = [], []

    def run(self):
        files = FolderFiles(self.rig.root)
        while not self.done.is_set():
            self.answers.append(ask_kubelet(files.path_of(SOCKET)))
            findings = check_node(files, {"config": self.rig.config_file})
            self.stops += [problem for problem in findings if problem.stops]


def test_a_kubelet_is_checked_while_pods_come_and_go(folder):
    """No answer gives anything to two containers, and no file is said to be wrong.

    The kubelet writes what it gives a container in several steps, and lists a pod while it admits
    it. Seen of 1.36.3 and 1.38.0-beta.0.
    """
    machine = server(sockets=2, cores=8, nodes=2, memory=16 << 20)
    rng = random.Random(3)
    with KubeletRig(folder, machine, {}, {"nvidia.com/gpu": gpus(2)}) as rig:
        watcher = Watcher(rig)
        watcher.start()
        try:
            for number in range(0, PODS, 4):
                batch = [random_pod(rng, number + place) for place in range(4)]
                with ThreadPoolExecutor(4) as threads:
                    list(threads.map(rig.admit, batch))
                    list(threads.map(rig.remove, (pod["metadata"]["name"] for pod in batch)))
        finally:
            watcher.done.set()
            watcher.join()

    assert watcher.stops == []
    assert any(pods_from_wire(listed) for listed, _ in watcher.answers)
    for listed, allocatable in watcher.answers:
        holders = [member for pod in pods_from_wire(listed) for member in pod.containers]
        usable = allocatable_from_wire(allocatable)
        cpus = [cpu for member in holders for cpu in member.cpus]
        assert len(set(cpus)) == len(cpus)
        assert set(cpus) <= set(usable.cpus)
        devices = [
            device for member in holders for ids in member.devices.values() for device in ids
        ]
        assert len(set(devices)) == len(devices)


def test_a_kubelet_without_managers_is_read(folder):
    """Policies none and None leave state files that hold nothing."""
    overlay = {
        "cpuManagerPolicy": "none",
        "memoryManagerPolicy": "None",
        "reservedMemory": None,
        "topologyManagerPolicy": "none",
    }
    with KubeletRig(folder, server(memory=16 << 20), overlay) as rig:
        rig.admit(random_pod(random.Random(2), 1))
        node_read = rig.read()
        assert (node_read.node.cpu, node_read.node.memory, node_read.node.devices) == (
            None,
            None,
            None,
        )
        assert len(node_read.node.pods) == 1
        assert check_node(FolderFiles(rig.root), {"config": rig.config_file}) == []
