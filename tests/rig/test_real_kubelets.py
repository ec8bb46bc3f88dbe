"""Real kubelets beside simulated ones, with the real scheduler and API server.

The extender's yes is the kubelet's yes.

And what `alignup node collect` packs of one of them with the pods that the API server lists.

50 nodes and 160 pods by default; `ALIGNUP_RIG_NODES=200` and `ALIGNUP_RIG_PODS=2000` are the whole
campaign.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tarfile
from contextlib import ExitStack

import pytest

from alignup.kubelet.node_resource_topology.report import holdings_of
from alignup.kubelet.read import read_kubelet
from alignup.machine.cpuset import CPUSet
from rig.outcome import Outcome, play
from rig.proof import EXTENDER, FLEET, cycles, questions
from rig.published_kubelets import PROGRAMS, misses, real_kubelets
from rig.servers import ALIGNUP, alignup, control_plane, need_rig, wait_for_metric
from rig.workload import allocatable, span_for, workload, write_nodes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.rig,
    pytest.mark.skipif(os.geteuid() != 0, reason="a kubelet needs root"),
]

NODES = int(os.environ.get("ALIGNUP_RIG_NODES") or 50)
PODS = int(os.environ.get("ALIGNUP_RIG_PODS") or 160)
REAL = 5
SECONDS = 8.0
LABEL = "alignup.dev/fleet"
"""Of simulated nodes only."""


@pytest.fixture(scope="module")
def plane():
    need_rig(*PROGRAMS)
    with control_plane() as control:
        yield control


@pytest.fixture(scope="module")
def nodes():
    return workload(NODES, 0, SECONDS)[0]


@pytest.fixture(scope="module")
def kubelets(plane, nodes):
    """Real kubelets on machines of 2, 4, 8, 2 and 4 NUMA nodes.

    Each has another policy or scope.
    """
    with real_kubelets(plane, nodes[:REAL]) as running_kubelets:
        yield running_kubelets


def spans(pod):
    """Return whether a container asks for two GPUs.

    Only one of the real kubelets would have a place for them.
    """
    return any(
        container["resources"]["requests"].get("example.com/gpu") == "2"
        for container in pod["spec"]["containers"]
    )


def on_real_nodes(pod):
    """Let a pod run on real kubelets only."""
    term = {"matchExpressions": [{"key": LABEL, "operator": "DoesNotExist"}]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    pod["spec"]["affinity"] = {"nodeAffinity": affinity}


def test_the_extenders_yes_is_the_kubelets_yes(plane, nodes, kubelets, capsys) -> None:
    """Half of the pods may run on real kubelets only, so that these are as busy as they can be."""
    _, pods = workload(0, PODS, SECONDS, seed=5)
    busy = [pod for pod in pods[:400] if not spans(pod)][::2]
    for pod in busy:
        on_real_nodes(pod)

    outcome = Outcome(allocatable=allocatable(nodes))
    listen = ("--kubeconfig", plane.kubeconfig, "--listen")
    path = write_nodes(plane.folder, nodes[REAL:])
    with ExitStack() as stack:
        for name, where, *options in (("fleet", FLEET, "--nodes", path), ("extender", EXTENDER)):
            stack.enter_context(
                alignup(name, *listen, where, *options, ready=f"http://{where}/healthz")
            )

        wait_for_metric(EXTENDER, 'alignup_extender_nodes{known_by="holdings"}', float(NODES))
        plane.schedule_with(EXTENDER)
        span = span_for(nodes[:REAL], busy, SECONDS, 0.9)
        names = frozenset(kubelet.name for kubelet in kubelets)
        asyncio.run(play(plane.kubeconfig, pods, span, outcome, 60, names))
        measured = {"questions": questions(EXTENDER), **cycles(plane)}

    placed = {kubelet.name: outcome.bound_to(kubelet.name) for kubelet in kubelets}
    all_misses = [miss for kubelet in kubelets for miss in misses(kubelet, placed[kubelet.name])]
    numbers = {
        **outcome.summary(),
        **measured,
        "on real kubelets": {name: len(names) for name, names in placed.items()},
    }
    with capsys.disabled():
        print(json.dumps(numbers))  # noqa: T201  # a campaign tells its numbers

    assert all_misses == []
    assert outcome.summary()["rejected"] == {}
    assert all(len(pods) > 5 for pods in placed.values())


def asking(name, **amounts):
    """Return a pod of two containers alike."""
    containers = [
        {
            "name": container_name,
            "image": "none",
            "resources": {"limits": amounts, "requests": amounts},
        }
        for container_name in "ab"
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": {"secret": "hunter2"}},
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 1},
    }


def collect(plane, kubelet, target, node_name):
    arguments = ["node", "collect", "--node", kubelet.root, "--config", kubelet.config_file]
    arguments += ["--kubeconfig", plane.kubeconfig, "--node-name", node_name, target]
    command = [*ALIGNUP, *map(str, arguments)]
    return subprocess.run(  # noqa: S603  # ours
        command, capture_output=True, text=True, check=False
    )


def test_a_node_is_collected_with_its_pods_from_the_api_server(plane, kubelets, tmp_path) -> None:
    kubelet = kubelets[1]
    pods = [asking("kept", cpu="2", memory="1Gi"), asking("other", cpu="1", memory="2Gi")]
    assert [kubelet.admit(pod)["phase"] for pod in pods] == ["Running", "Running"]
    target = tmp_path / "node.tar.xz"
    done = collect(plane, kubelet, target, kubelet.name)
    assert done.returncode == 0, done.stderr
    assert "no pods in it" not in done.stderr
    node_read = read_kubelet(target)
    holdings = {pod.name: pod for pod in holdings_of(node_read.node).pods}
    for name in ("kept", "other"):
        listed = kubelet.ask("get", "default", name)["pod_resources"]["containers"]
        assert {
            container: set(CPUSet.parse(holding.cpus))
            for container, holding in holdings[name].containers.items()
        } == {container["name"]: set(map(int, container["cpu_ids"])) for container in listed}

    assert str(node_read.node.config.version) == "1.36"
    with tarfile.open(target) as archive:
        files = {
            member.name: archive.extractfile(member).read() for member in archive if member.isfile()
        }

    assert json.loads(files["node.json"])["metadata"]["name"] == kubelet.name
    assert {pod["spec"]["nodeName"] for pod in json.loads(files["pods.json"])["items"]} == {
        kubelet.name
    }
    assert not any(b"hunter2" in content for content in files.values())


def test_a_node_that_the_cluster_does_not_know_is_refused_in_one_line(
    plane, kubelets, tmp_path
) -> None:
    done = collect(plane, kubelets[0], tmp_path / "node.tar.xz", "nobody")
    assert done.returncode != 0
    assert done.stderr.count("\n") == 1
    assert '404: nodes "nobody" not found' in done.stderr
    assert not (tmp_path / "node.tar.xz").exists()
