"""`alignup node show`, `export` and `collect`."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from alignup.cli import node as node_module
from alignup.cli.node import ask_cluster
from alignup.control_plane.api_server.api_client import CLAIMS, Api
from alignup.kubelet.collect import collect
from alignup.kubelet.config import Configuration, settings_of
from alignup.kubelet.layout import open_node
from alignup.kubernetes.config_documents import read_flags
from alignup.kubernetes.kubelet_config import KubeletConfig
from fakes.api_server import NODES, ApiStub, served
from inputs.kubelet_files import EXAMPLE, guaranteed
from inputs.small_claims import DRIVER, claim_named, class_of, slice_of, template
from inputs.watched_objects import pod_object

ARCHIVE = EXAMPLE / "root.tar.xz"


def test_tables_tell_what_there_is_and_who_holds_it(alignup):
    ended = alignup("node", "show", "--node", ARCHIVE)
    assert ended.status == 0
    assert "policy restricted" in ended.out
    assert "default/p51-01-node-real" in ended.out
    assert "memory 10Gi on NUMA node 2" in ended.out
    assert "shared pool: CPUs 0,16-23,29,39-47" in ended.out


def test_json_is_one_line(alignup):
    (line,) = alignup("node", "show", "--node", ARCHIVE, "--json").lines
    assert line["sharedCpus"] == "0,16-23,29,39-47"
    assert len({container["uid"] for container in line["containers"]}) == 7


def test_what_is_in_effect_is_told_with_its_source(alignup, tmp_path):
    """A drop-in overrides the file, and null takes a field away.

    AllBeta sets the gates of its stage.
    """
    root = tmp_path / "root"
    folder = root / "var/lib/kubelet"
    (folder / "config.d").mkdir(parents=True)
    (folder / "config.yaml").write_text(
        "cpuManagerPolicy: static\ncpuManagerPolicyOptions: {full-pcpus-only: 'true'}\n"
        "reservedSystemCPUs: '0'\ntopologyManagerPolicy: restricted\ntopologyManagerScope: pod\n"
    )
    (folder / "config.d/10.conf").write_text(
        "topologyManagerPolicy: best-effort\ntopologyManagerScope: null\n"
        "featureGates: {AllBeta: false, CPUManagerPolicyAlphaOptions: true}\n"
    )

    arguments = ("node", "show", "--node", root, "-m", "xeon-2s", "--kubelet-version", "1.34")
    (line,) = alignup(*arguments, "--json").lines
    settings = {
        setting["name"]: (setting["value"], setting["from"].rpartition("/")[2])
        for setting in line["settings"]
    }

    assert settings["cpuManagerPolicy"] == ("static", "config.yaml")
    assert settings["topologyManagerPolicy"] == ("best-effort", "10.conf")
    assert settings["topologyManagerScope"] == ("container", "default of 1.34")
    assert settings["memoryManagerPolicy"] == ("None", "default of 1.34")
    assert settings["cpuManagerPolicyOptions.full-pcpus-only"] == ("true", "config.yaml")
    assert settings["cpuManagerPolicyOptions.align-by-socket"] == ("false", "default of 1.34")
    assert settings["topologyManagerPolicyOptions.max-allowable-numa-nodes"] == (
        "8",
        "default of 1.34",
    )
    assert settings["featureGates.CPUManagerPolicyAlphaOptions"] == ("true", "10.conf")
    assert settings["featureGates.CPUManagerPolicyBetaOptions"] == ("false", "10.conf")
    assert settings["featureGates.TopologyManagerPolicyAlphaOptions"] == (
        "false",
        "default of 1.34",
    )

    shown = alignup(*arguments).out
    assert "cpuManagerPolicyOptions.full-pcpus-only" in shown
    assert "align-by-socket" not in shown


def test_flags_of_the_kubelet_are_named_and_state_files_where_there_is_no_configuration():
    flags = read_flags(
        ["--topology-manager-policy=restricted", "--feature-gates=PodLevelResourceManagers=true"]
    ).over({})

    file = {"topologyManagerPolicy": "none", "cpuManagerPolicy": "static"}
    both = Configuration(
        {**file, **flags}, (("config.yaml", file), ("the flags of process 7", flags))
    )
    config = KubeletConfig.from_dict(flags)

    origins = {setting.name: setting.origin for setting in settings_of(both, config)}
    assert (
        origins["topologyManagerPolicy"]
        == origins["featureGates.PodLevelResourceManagers"]
        == "the flags of process 7"
    )
    assert origins["cpuManagerPolicy"] == "config.yaml"

    kubelet_origins = {
        setting.name: setting.origin for setting in settings_of(Configuration({}), config)
    }
    assert kubelet_origins["cpuManagerPolicy"] == "the state files"
    assert kubelet_origins["topologyManagerPolicy"] == "default of 1.37"


def test_pictures_are_written(alignup, tmp_path):
    ended = alignup(
        "node",
        "show",
        "--node",
        ARCHIVE,
        "--svg",
        tmp_path / "x.svg",
        "--html",
        tmp_path / "x.html",
    )

    assert ended.status == 0
    assert "p51-01-node-real" in (tmp_path / "x.svg").read_text()
    assert (tmp_path / "x.html").read_text().startswith("<!DOCTYPE html>")
    assert alignup("node", "show", "--node", ARCHIVE, "--svg", "-").out.startswith("<svg")


def test_watching_shows_the_node_when_it_has_changed(alignup, monkeypatch):
    """Twice nothing has changed; then the user ends it."""
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(node_module.time, "sleep", sleep)
    ended = alignup("node", "show", "--node", ARCHIVE, "--watch", "0.5", "--json")
    assert (ended.status, len(ended.lines), slept) == (130, 1, [0.5] * 3)


@pytest.mark.parametrize(
    ("options", "name"), [((), "node-real"), (("--node-name", "node-x"), "node-x")]
)
def test_the_object_of_the_node_has_its_name(alignup, options, name):
    ended = alignup("node", "export", "--node", ARCHIVE, *options)
    assert json.loads(ended.out)["metadata"]["name"] == name


def test_metrics_are_text(alignup):
    assert (
        "# TYPE alignup_node_resource_free gauge"
        in alignup("node", "export", "--node", ARCHIVE, "--format", "prometheus").out
    )


def test_a_node_is_collected_and_what_is_missing_is_said(alignup, tmp_path, write):
    pods = write("pods.json", {"items": [guaranteed("a", (1, 1))]})
    ended = alignup("node", "collect", "--node", ARCHIVE, "--pods", pods, tmp_path / "out.tar.xz")
    assert (ended.status, ended.out) == (0, "")
    assert "packed" in ended.err
    root = tmp_path / "root"
    (root / "var/lib/kubelet").mkdir(parents=True)
    (root / "var/lib/kubelet/config.yaml").write_text("cpuManagerPolicy: static\n")
    ended = alignup("node", "collect", "--node", root, tmp_path / "lean.tar.xz")
    assert ended.status == 0
    assert "missing from the archive: PodResources (podresources/allocatable.json)" in ended.err
    assert "missing from the archive: sys" in ended.err


def test_claims_that_matter_on_a_node_are_collected_and_read(alignup, tmp_path, write, monkeypatch):
    mine = {**claim_named("mine"), "status": allocated("n", "d1")}
    mine["spec"]["devices"]["config"] = [{"opaque": {"parameters": {"password": "hunter2"}}}]
    far = {**claim_named("far"), "status": allocated("other", "d0")}
    objects = [slice_of([0, 1]), slice_of([0], node="other"), class_of(), mine, far, template()]
    pod_manifest = pod_object("p", cpu=1)
    pod_manifest["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimTemplateName": "t"}]
    pod_manifest["spec"]["containers"][0]["resources"]["claims"] = [{"name": "c"}]

    async def cluster():
        stub = ApiStub()
        await stub.put(NODES, {"kind": "Node", "metadata": {"name": "n"}})
        for cluster_object in objects:
            kind = cluster_object["kind"].lower()
            await stub.put(
                f"{CLAIMS}/{kind}{'es' if kind.endswith('s') else 's'}",
                {**cluster_object, "kind": None},
            )

        async with served(stub) as api:

            @asynccontextmanager
            async def connect(_kubeconfig):
                yield api

            async def ready(_kubeconfig):
                return connect(_kubeconfig)

            monkeypatch.setattr(Api, "connect", ready)
            return await ask_cluster("k", "n")

    pods, node, claims = asyncio.run(cluster())
    assert [claim["metadata"]["name"] for claim in claims["items"]] == [
        "n-gpu.example.com",
        "gpu.example.com",
        "mine",
        "t",
    ]
    target = tmp_path / "node.tar.xz"
    names = collect(open_node(ARCHIVE), target, pods=pods, node=node, claims=claims)
    files = open_node(target)
    assert all(b"hunter2" not in (files.read(name) or b"") for name in names)
    pod_path = write("pod.json", pod_manifest)
    (line,) = alignup("admit", "--node", target, "--json", pod_path).lines
    assert [(device["device"], device["numaNodes"]) for device in line["claims"]["devices"]] == [
        ("d0", [0])
    ]
    assert "claims" not in alignup("admit", "--node", ARCHIVE, "--json", pod_path).lines[0]
    assert "n/d0, NUMA node 0" in alignup("claims", "--node", target, pod_path).out
    others = write(
        "others.json", {"kind": "List", "items": [slice_of([1]), class_of(), template()]}
    )
    assert (
        "n/d0, NUMA node 1"
        in alignup("claims", "--node", target, "--resources", others, pod_path).out
    )
    without = alignup("claims", "--node", ARCHIVE, pod_path)
    assert (without.status, "needs --resources, or a --node with objects" in without.err) == (
        2,
        True,
    )


def allocated(node, device):
    result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": device}
    return {"allocation": {"devices": {"results": [result]}}}


def test_options_that_do_not_go_together_are_wrong_usage(alignup, tmp_path):
    target = tmp_path / "x.tar.xz"
    ended = alignup("node", "collect", "--node", ARCHIVE, "--kubeconfig", "k", target)
    assert ended.status == 2
    assert "--node-name" in ended.err
    assert alignup(
        "node", "collect", "--node", ARCHIVE, "--pods", tmp_path / "none", target
    ).complains("none")
    assert not target.exists()
