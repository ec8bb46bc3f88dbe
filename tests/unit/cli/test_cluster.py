"""`alignup extender`, `fleet`, `reconcile` and `rebalance`: bad usage ends in one line.

A served extender ends in order when it is told to.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import urllib.request
from types import SimpleNamespace

import pytest

from alignup.cli.cluster import keep_from_collection, sockets_of
from alignup.cluster.evictions import RoomPlan, Step
from alignup.control_plane.scheduler import ask, rebalance
from alignup.errors import InputError
from alignup.kubernetes.manifest import read_pod
from inputs.cluster_files import node_line, pod_manifest


@pytest.fixture
def kubeconfig(write):
    """A kubeconfig of a server that is not there."""
    return write(
        "kubeconfig",
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        },
    )


def test_it_serves_until_it_is_told_to_end(kubeconfig) -> None:
    process = subprocess.Popen(  # noqa: S603  # our own program
        [
            sys.executable,
            "-m",
            "alignup",
            "extender",
            "--kubeconfig",
            kubeconfig,
            "--listen",
            "127.0.0.1:0",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        said = process.stdout.readline()
        assert said.startswith("listening on 127.0.0.1:")

        args = {
            "Pod": {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}},
            "NodeNames": ["a"],
        }
        request = urllib.request.Request(
            f"http://{said.split()[-1]}/filter",
            json.dumps(args).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as response:  # noqa: S310  # our own server
            assert json.load(response) == {"Error": "alignup has not listed the whole cluster yet"}

        process.send_signal(signal.SIGTERM)
        _, complaints = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "Traceback" not in complaints
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--strategy", "no"], ["--strategy", "least-numa-nodes"]),
        (["--listen", "nowhere"], ["HOST:PORT", "nowhere"]),
        (["--listen", "1.2.3.4:99999"], ["HOST:PORT"]),
        (["--listen", "1.2.3.4:" + "9" * 5000], ["HOST:PORT"]),
        (["--listen", "[]:8080"], ["HOST:PORT", "[]:8080"]),
        (["--listen", "\udcff:5"], ["cannot listen on", r"\udcff:5: no host can have the name"]),
        (["--listen", "a..b:5"], ["cannot listen on", "a..b:5: no host can have the name"]),
        (["--strategy", "\udcff"], ["--strategy"]),
        (["--tls-cert", "cert"], ["a certificate and its key are given together"]),
        (["--client-ca", "ca"], ["--client-ca needs a certificate and its key"]),
        (["--lease", "name"], ["NAMESPACE/NAME", "--lease"]),
        (
            ["--tls-cert", "cert", "--tls-key", "key"],
            ["cannot use the certificate cert and its key key"],
        ),
    ],
)
def test_bad_usage_of_the_extender_is_one_line(alignup, kubeconfig, arguments, parts) -> None:
    assert alignup("extender", "--kubeconfig", kubeconfig, *arguments).complains(*parts)


def test_a_kubeconfig_that_is_none_is_one_line(alignup, tmp_path, write) -> None:
    missing = tmp_path / "no"
    assert alignup("extender", "--kubeconfig", missing).complains(f"in {missing}: no such file")
    assert alignup("extender", "--kubeconfig", write("bad", "[")).complains(
        "cannot use the credentials"
    )


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        ({"certificate-authority-data": "aGVsbG8="}, {}),
        ({"server": 5}, {}),
        ({}, {"token": "a\nb"}),
        ({}, {"exec": {"command": "/no/such/program", "apiVersion": "v1"}}),
    ],
)
def test_wrong_values_in_a_kubeconfig_are_one_line(alignup, write, cluster, user) -> None:
    path = write(
        "kubeconfig",
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9", **cluster}}],
            "users": [{"name": "u", "user": user}],
        },
    )
    assert alignup("extender", "--kubeconfig", path).complains(
        f"cannot use the credentials in {path}: "
    )


@pytest.mark.parametrize("name", ["a/b/c", "", "a/"])
def test_a_pod_that_is_none_is_refused_before_a_cluster_is_looked_for(alignup, name) -> None:
    assert alignup("why", name).complains("expected POD or NAMESPACE/POD")


def test_outside_a_pod_a_kubeconfig_is_needed(alignup, monkeypatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert alignup("extender").complains(
        "no cluster to ask: give --kubeconfig FILE, set $KUBECONFIG"
    )


# ---- fleet


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["either --nodes or --machine"]),
        (["--nodes", "no-such-file"], ["no-such-file"]),
        (["--machine", "no such"], ["one of the catalog"]),
        (["--machine", "align-up-article", "--nodes", "x"], ["either --nodes or --machine"]),
        (["--machine", "align-up-article", "--label", "x"], ["KEY=VALUE"]),
        (["--machine", "align-up-article", "--label", "=x"], ["KEY=VALUE"]),
        (["--machine", "no such", "--label", "x=", "--label", "y=a=b"], ["one of the catalog"]),
        (["--machine", "align-up-article", "--listen", "x"], ["HOST:PORT"]),
        (
            ["--machine", "align-up-article", "--podresources-dir", "/x" * 60],
            ["up to 107 bytes", "--podresources-dir"],
        ),
        (["--machine", "\udcff"], ["expected UTF-8", "--machine"]),
        (["--machine", "align-up-article", "--label", "a=\udcff"], ["expected UTF-8", "--label"]),
        (["--machine", "align-up-article", "--label", "\udcff=a"], ["expected UTF-8", "--label"]),
    ],
)
def test_bad_usage_of_a_fleet_is_one_line(alignup, arguments, parts) -> None:
    ended = alignup("fleet", "--kubeconfig", "no-such-kubeconfig", *arguments)
    assert ended.status == 2
    assert all(part in ended.err for part in parts)
    assert "Traceback" not in ended.err


def test_a_host_that_a_fleet_cannot_listen_on_is_one_line(alignup, write) -> None:
    path = write(
        "kubeconfig",
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c"}}],
            "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        },
    )
    arguments = ("--machine", "align-up-article", "--listen", "\udcff:5")
    assert alignup("fleet", "--kubeconfig", path, *arguments).complains(
        r"\udcff:5: no host can have the name"
    )


def test_a_node_of_a_fleet_has_a_socket_of_its_name(tmp_path) -> None:
    nodes = [SimpleNamespace(name=name) for name in ("a", "b")]
    assert sockets_of(nodes, tmp_path) == {
        tmp_path / "a.sock": nodes[0],
        tmp_path / "b.sock": nodes[1],
    }

    with pytest.raises(InputError, match="without a slash, got 'a/b'"):
        sockets_of([SimpleNamespace(name="a/b")], tmp_path)


def test_what_is_kept_from_collection_is_all_so_far() -> None:
    thresholds = gc.get_threshold()
    gc.set_threshold(100_000)
    try:
        keep_from_collection()
        assert gc.get_freeze_count() > 1000
        assert gc.get_threshold()[0] < 100_000
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


# ---- reconcile and rebalance


@pytest.fixture
def full_node(write):
    """Return the file of a node with one pod on it."""
    return write("nodes.jsonl", node_line("n0", pods=[pod_manifest("old", cpus=6)]))


def test_a_plan_says_who_goes_and_who_comes(alignup, full_node, write) -> None:
    """A pod of 7 CPUs finds place on the other NUMA node; one that is too large finds none."""
    small = write("small.json", pod_manifest("small", cpus=7))
    planned = alignup("rebalance", "--nodes", full_node, small)
    assert planned.status == 0
    assert [line.split() for line in planned.out.splitlines()[2:]] == [
        ["place", "default/small", "n0", "1"],
        ["1", "pod", "placed,", "0", "evictions"],
    ]

    large = write("large.json", pod_manifest("large", cpus=64))
    refused = alignup("rebalance", "--nodes", full_node, small, large)
    assert refused.status == 1
    assert refused.out.splitlines()[-1] == "no place for default/large"

    [plan] = alignup("rebalance", "--nodes", full_node, "--json", small).lines
    assert [step["pod"] for step in plan["steps"]] == ["small"]


POD = read_pod(pod_manifest("waits"))
PLACED = RoomPlan((Step("place", POD, "n0", (0, 1)),), (), proven=True)
LEFT_OUT = RoomPlan((Step("evict", POD, "n0"),), (POD,), proven=False)


@pytest.fixture
def planned(monkeypatch):
    """Let a cluster's plan be a given one, and be carried out or not; return what is done."""
    steps = []

    def of(plan, is_carried_out=True):
        async def plan_cluster(_api):
            return plan

        async def apply_plan(_api, asked_plan, say, patience):
            say("a step")
            steps.append((asked_plan is plan, patience))
            return is_carried_out

        async def rebalance_for_ever(_api, *, say, **options):
            say("a round")
            steps.append(options)

        functions = (plan_cluster, apply_plan, rebalance_for_ever)
        for function in functions:
            monkeypatch.setattr(rebalance, function.__name__, function)

        monkeypatch.setattr(ask, "ask", lambda _, work: asyncio.run(work(None)))
        return steps

    return of


@pytest.mark.parametrize(
    ("plan", "options", "is_carried_out", "status"),
    [
        (PLACED, (), True, 0),
        (LEFT_OUT, (), True, 1),
        (PLACED, ("--apply",), True, 0),
        (PLACED, ("--apply",), False, 1),
        (LEFT_OUT, ("--apply",), True, 1),
    ],
)
def test_the_status_says_whether_a_clusters_pods_get_a_place(
    alignup, planned, plan, options, is_carried_out, status
) -> None:
    steps = planned(plan, is_carried_out)
    ended = alignup("rebalance", *options)
    assert (ended.status, ended.err) == (status, "")
    assert steps == ([(True, 120)] if options else [])
    assert ("a step" in ended.out) is bool(options)
    assert ("no place for default/waits" in ended.out) is (plan is LEFT_OUT)
    assert ("1 eviction, not proven to be the fewest" in ended.out) is (plan is LEFT_OUT)


def test_steps_of_a_plan_in_json_are_told_beside_it(alignup, planned) -> None:
    planned(PLACED)
    ended = alignup("rebalance", "--apply", "--json")
    assert (ended.status, ended.err) == (0, "a step\n")
    assert ended.lines == [PLACED.to_dict()]


def test_room_is_made_until_the_end_as_it_is_asked_for(alignup, planned) -> None:
    steps = planned(PLACED)
    options = ("--apply", "--continuous", "--interval", "2", "--per-hour", "3", "--patience", "4")
    ended = alignup("rebalance", *options)
    assert (ended.status, ended.out) == (0, "a round\n")
    assert alignup("rebalance", "--apply", "--continuous", "--json").lines == [
        {"message": "a round"}
    ]
    assert steps == [
        {"per_hour": 3, "interval": 2, "patience": 4},
        {"per_hour": 20, "interval": 30, "patience": 120},
    ]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--nodes", "n.jsonl"), "--nodes goes with files of pods"),
        (("--nodes", "n.jsonl", "--apply", "pod.yaml"), "without --kubeconfig, --apply"),
        (("--nodes", "n.jsonl", "--kubeconfig", "k", "pod.yaml"), "without --kubeconfig"),
        (("pod.yaml",), "POD.yaml files need --nodes"),
        (("--continuous",), "--continuous needs --apply"),
    ],
)
def test_options_of_rebalance_that_do_not_go_together(alignup, arguments, part) -> None:
    ended = alignup("rebalance", *arguments)

    assert (ended.status, ended.out) == (2, "")
    assert part in " ".join(ended.err.split())


@pytest.mark.parametrize("command", ["reconcile", "rebalance"])
def test_a_cluster_that_cannot_be_reached_is_one_line(alignup, tmp_path, command: str) -> None:
    ended = alignup(command, "--kubeconfig", tmp_path / "none")

    assert ended.complains("no such file", "none")
