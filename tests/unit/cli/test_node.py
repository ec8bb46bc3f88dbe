"""`alignup node`: `show`, `export`, `collect`, `check`, `verify` and `publish`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import tarfile
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import pytest

from alignup.cli import node as node_module
from alignup.cli.node import ask_cluster, unhealthy_notes
from alignup.control_plane.api_server.api_client import CLAIMS, Api
from alignup.host.leases.agent_messages import KnownLease, Leases
from alignup.host.leases.file import LeaseFile
from alignup.host.leases.request import LeaseRequest, make_request
from alignup.host.leases.source import FileSource
from alignup.host.processes.identity import ProcessIdentity, identify
from alignup.kubelet.collect import collect
from alignup.kubelet.config import Configuration, settings_of
from alignup.kubelet.layout import open_node
from alignup.kubernetes.config_documents import read_flags
from alignup.kubernetes.kubelet_config import KubeletConfig
from alignup.machine.cpuset import CPUSet
from alignup.machine.load import read_machine
from alignup.node import Node
from alignup.node.holdings import holdings_of
from fakes.api_server import NODES, ApiStub, served
from fakes.device_plugins import short_folder
from inputs import leasing
from inputs.kubelet_files import EXAMPLE, guaranteed
from inputs.small_claims import DRIVER, claim_named, class_of, slice_of, template
from inputs.watched_objects import pod_object
from running.agents import client, running_agent

if TYPE_CHECKING:
    from pathlib import Path

ARCHIVE = EXAMPLE / "root.tar.xz"


def test_free_unhealthy_devices_are_told_as_the_node_object_counts_them():
    status = {
        "capacity": {"nvidia.com/gpu": "8", "a.b/nic": "2"},
        "allocatable": {"nvidia.com/gpu": "5", "a.b/nic": "2"},
    }
    devices = {"nvidia.com/gpu": [{"id": "g0", "numa": 0}, {"id": "g1", "healthy": False}]}
    node = Node(
        read_machine("xeon-2s"),
        devices=devices,
        node_object={"metadata": {"name": "n"}, "status": status},
    )
    (note,) = unhealthy_notes(node, holdings_of(node).resources)
    assert note.startswith("nvidia.com/gpu: 2 free devices unhealthy by the Node object (no file")
    assert unhealthy_notes(Node(read_machine("xeon-2s")), ()) == []


def test_tables_tell_what_there_is_and_who_holds_it(alignup):
    ended = alignup("node", "show", "--node", ARCHIVE)
    assert ended.status == 0
    assert "policy restricted" in ended.out
    assert "default/p51-01-node-real" in ended.out
    assert "memory 10Gi on NUMA node 2" in ended.out
    assert "shared pool: CPUs 0,16-23,29,39-47" in ended.out


def test_a_boot_is_foretold(alignup):
    words = ("node", "restart", "--node", ARCHIVE, "--reboot")
    ended = alignup(*words)
    assert ended.status == 1
    assert "after the reboot" in ended.out
    assert "example.com/nic, nvidia.com/gpu: wait until the device plugin has registered" in (
        ended.out
    )
    assert "the machine may come up otherwise than it is now" in ended.out
    fields = json.loads(alignup(*words, "--json").out)
    assert fields["reboot"]
    assert fields["awaited"] == ["example.com/nic", "nvidia.com/gpu"]
    assert {risk["kind"] for risk in fields["risks"]} == {"cpus-changed", "memory-changed"}
    restart = json.loads(alignup(*words[:-1], "--json").out)
    assert (restart["reboot"], restart["awaited"], restart["risks"]) == (False, [], [])


def test_unhealthy_devices_are_shown(alignup, tmp_path):
    """The plugin of a pod's devices is gone; the kubelet names none that nobody holds."""
    ended = alignup("node", "show", "--node", ARCHIVE)
    assert "unhealthy" not in ended.out
    held = re.search(r"example.com/nic (\S+)", ended.out)[1].split(",")[0]
    root = tmp_path / "root"
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(root, filter="data")
    answer = json.loads((root / "podresources/allocatable.json").read_text())
    answer["devices"] = [
        entry for entry in answer["devices"] if entry["resource_name"] != "example.com/nic"
    ]
    (root / "podresources/allocatable.json").write_text(json.dumps(answer))

    ended = alignup("node", "show", "--node", root)
    assert re.search(r"held +free +unhealthy\n", ended.out)
    rows = re.findall(r"example.com/nic +\S+ +(\d+) +(\d+) +(\d+) +(\d+)\n", ended.out)
    assert [allocatable for allocatable, _, _, _ in rows] == ["0"] * len(rows)
    assert sum(int(count) for _, count, _, _ in rows) >= 1
    assert all(count == unhealthy for _, count, _, unhealthy in rows)
    assert re.search(r"cpu .* -\n", ended.out)
    (line,) = alignup("node", "show", "--node", root, "--json").lines
    (nic,) = (amounts for amounts in line["resources"] if amounts["resource"] == "example.com/nic")
    assert held in nic["unhealthy"]


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


# ---- check


@pytest.fixture
def root(tmp_path):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path / "root", filter="data")
    return tmp_path / "root"


def test_a_sound_node_has_no_findings(alignup):
    ended = alignup("node", "check", "--node", ARCHIVE)
    assert (ended.status, ended.out) == (0, "nothing is wrong with the kubelet's files\n")
    ended = alignup("node", "check", "--node", ARCHIVE, "--json")
    assert (ended.status, ended.out) == (0, "")


def test_findings_are_told_with_effect_and_repair(alignup, root):
    path = root / "var/lib/kubelet/cpu_manager_state"
    path.write_text(json.dumps({**json.loads(path.read_text()), "checksum": 1}))
    ended = alignup("node", "check", "--node", root, "--json")
    (line,) = ended.lines
    assert ended.status == 1
    assert line.keys() == {"kind", "file", "text", "effect", "repair"}
    assert (line["kind"], line["file"]) == ("cpu-checksum", str(path))
    ended = alignup("node", "check", "--node", root)
    assert ended.status == 1
    assert "the next start: the kubelet does not start" in ended.out
    assert "repair: drain the node" in ended.out


def test_bad_input_is_one_line(alignup, tmp_path):
    assert alignup("node", "check", "--node", tmp_path).complains("no files of a kubelet")
    assert alignup("node", "check", "--node", tmp_path / "x").complains(
        "no machine's root folder or archive"
    )
    assert alignup("node", "check", "--node", ARCHIVE, "--machine", "nowhere").complains(
        "unknown machine 'nowhere'"
    )


def test_the_group_knows_its_subcommands(alignup):
    ended = alignup("node", "--help")
    assert "check" in ended.out
    assert alignup("node", "chekc").status == 2


def test_what_is_packed_and_missing_is_told_as_json(alignup, root, tmp_path):
    (root / "var/lib/kubelet/memory_manager_state").unlink()
    target = tmp_path / "node.tar.gz"
    ended = alignup("node", "collect", "--node", root, target, "--json")
    [report] = ended.lines
    with tarfile.open(target) as archive:
        assert sorted(report["files"]) == sorted(archive.getnames())
    assert (ended.status, report["archive"]) == (0, str(target))
    assert "var/lib/kubelet/memory_manager_state" in [
        missing["path"] for missing in report["missing"]
    ]


def test_an_object_is_exported_on_one_line(alignup):
    [node_object] = alignup("node", "export", "--node", ARCHIVE, "--json").lines
    assert node_object == json.loads(alignup("node", "export", "--node", ARCHIVE).out)
    assert (
        alignup("node", "export", "--node", ARCHIVE, "--json", "--format", "prometheus").status == 2
    )


# ---- verify


UID = "bb3dd3329dbfbb9821512e830261d032"


def process(root, pid, cpus, identity):
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True)
    (folder / "status").write_text(
        f"Name:\twork\nPPid:\t1\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t0\n"
    )
    uid = f"{UID[:8]}-{UID[8:12]}-{UID[12:16]}-{UID[16:20]}-{UID[20:]}"
    (folder / "cgroup").write_text(f"0::/kubepods/pod{uid}/{identity}\n")


def test_processes_that_sit_well_and_badly(alignup, root):
    process(root, 70, "1-2,25-26", "container-000002")
    ended = alignup("node", "verify", "--node", root)
    assert (ended.status, ended.out) == (0, "1 process checked: all are placed as recorded\n")
    process(root, 71, "0-47", "container-000002")
    ended = alignup("node", "verify", "--node", root)
    assert ended.status == 1
    assert ended.out.startswith(
        "default/p51-00-node-real/c0: process 71 (work) may run on CPUs 0,3-24,27-47"
    )
    ended = alignup("node", "verify", "--node", root, "--json", "70", "71")
    assert [(finding["kind"], finding["pid"]) for finding in ended.lines] == [("cpus", 71)]
    assert alignup("node", "verify", "--node", root, "72").complains("process 72 does not run")


def test_leases_are_verified_by_their_file(alignup, root, tmp_path):
    file = tmp_path / "leases.json"
    lease = leasing.record("mine", cpus=CPUSet.parse("1"))
    leasing.put(LeaseFile(file, pytest.fail), lease)
    pid = lease.process.pid
    process(root, pid, "5", "x")
    ended = alignup("node", "verify", "--node", root, "--leases", "--state", file)
    assert ended.status == 1
    assert ended.out.startswith(f"mine: process {pid} (work) may run on CPUs 5")


def test_leases_are_verified_by_the_agent(alignup, root, monkeypatch):
    """Its file has none of them, by whatever way the agent is chosen."""
    monkeypatch.delenv("ALIGNUP_STATE", raising=False)
    process(root, os.getpid(), "0-47", "x")
    request = LeaseRequest(make_request(cpus=1), identify(os.getpid()), command="c", name="mine")
    verify = ("node", "verify", "--node", root, "--leases")
    with short_folder() as folder, running_agent(folder):
        file = folder / "leases.json"
        ended = alignup(*verify, "--state", file)
        assert (ended.status, ended.out) == (0, "0 processes checked: none has a lease\n")

        lease = client(folder).acquire(request).lease
        for options in (("--state", file), ()):
            monkeypatch.setenv("ALIGNUP_AGENT", "" if options else str(folder / "agent.sock"))
            ended = alignup(*verify, *options)
            assert ended.status == 1
            assert ended.out.startswith(f"mine: process {os.getpid()} (work) may run on CPUs")
            assert ended.out.endswith(f"and has CPUs {lease.cpus} for itself\n")

        (root / f"proc/{os.getpid()}/status").write_text(f"Cpus_allowed_list: {lease.cpus}\n")
        ended = alignup(*verify)
        assert (ended.status, ended.out) == (0, "1 process checked: all are placed as recorded\n")


def test_leases_of_other_users_cannot_be_verified(alignup, root, tmp_path, monkeypatch):
    hidden = leasing.record("(user 1000)", cpus=CPUSet.parse("1"))
    hidden = msgspec.structs.replace(hidden, id="", process=ProcessIdentity(0, 0, "", 0))
    listed = Leases((KnownLease(hidden, "running"), KnownLease(leasing.record(), "gone")), ())
    monkeypatch.setattr(FileSource, "overview", lambda _: listed)
    process(root, 1, "0-47", "x")
    process(root, os.getpid(), "0-47", "x")
    ended = alignup("node", "verify", "--node", root, "--leases", "--state", tmp_path / "l.json")
    assert (ended.status, ended.out) == (0, "0 processes checked: none has a lease\n")
    assert ended.err == "alignup: 1 lease of other users not checked: ask as root\n"


def test_an_archive_has_no_processes(alignup):
    assert alignup("node", "verify", "--node", EXAMPLE / "root.tar.xz").complains(
        "the root of a machine"
    )


def container(tmp_path, cpus: str, *, numa_node: int = 0) -> Path:
    """Return the root of a machine as a container sees it.

    It has two NUMA nodes, a GPU and a network adapter.
    """
    files = {
        "sys/devices/system/cpu/online": "0-3",
        "sys/devices/system/node/online": "0-1",
        "proc/self/status": f"Name:\tx\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t0-1\n",
        "proc/driver/nvidia/gpus/0000:18:00.0/information": "Model: X\nDevice Minor: \t 2\n",
        "proc/driver/nvidia/gpus/0000:19:00.0/information": "Model: X\nDevice Minor: \t 3\n",
        "dev/nvidia2": "",
    }
    for node, own in ((0, "0-1"), (1, "2-3")):
        files[f"sys/devices/system/node/node{node}/cpulist"] = own
        files[f"sys/devices/system/node/node{node}/meminfo"] = "Node 0 MemTotal: 1024 kB"

    for cpu in range(4):
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/core_id"] = str(cpu)

    for address, node in (("0000:18:00.0", 0), ("0000:19:00.0", 1), ("0000:1a:00.0", numa_node)):
        files[f"sys/bus/pci/devices/{address}/class"] = "0x030200"
        files[f"sys/bus/pci/devices/{address}/numa_node"] = str(node)

    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    adapter = tmp_path / "sys/class/net/eth0"
    adapter.mkdir(parents=True)
    (adapter / "device").symlink_to(tmp_path / "sys/bus/pci/devices/0000:1a:00.0")
    return tmp_path


@pytest.mark.parametrize(
    ("cpus", "numa_node", "aligned", "status"),
    [
        ("0-1", 0, True, 0),
        ("0-1", 1, False, 1),
        ("2", 1, False, 1),
        ("0-3", 0, False, 1),
        ("0", -1, None, 2),
        ("9", 0, None, 2),
    ],
)
def test_a_container_asks_about_itself(
    alignup, tmp_path, cpus: str, numa_node: int, aligned, status: int
) -> None:
    """It needs no rights for its own affinity, and for where its devices are."""
    ended = alignup(
        "node",
        "verify",
        "--self",
        "--node",
        container(tmp_path, cpus, numa_node=numa_node),
        "--json",
    )

    verdict = ended.lines[0]
    assert (ended.status, verdict["aligned"], verdict["memoryNumaNodes"]) == (
        status,
        aligned,
        [0, 1],
    )
    assert [(device["address"], device["from"]) for device in verdict["devices"]] == [
        ("0000:18:00.0", "/dev/nvidia2"),
        ("0000:1a:00.0", "net eth0"),
    ]


def test_device_plugins_name_devices_in_the_environment(alignup, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PCIDEVICE_INTEL_COM_SRIOV", "0000:19:00.0,0000:1a:00.0")
    ended = alignup("node", "verify", "--self", "--node", container(tmp_path, "0-1"))
    assert ended.status == 1
    assert "0000:19:00.0 (PCIDEVICE_INTEL_COM_SRIOV): NUMA node 1" in ended.out
    assert "not aligned: a device is on another NUMA node than the CPUs" in ended.out


def test_this_process_can_ask_about_itself(alignup) -> None:
    """On whatever machine this is."""
    assert alignup("node", "verify", "--self").status in {0, 1, 2}


# ---- publish


@pytest.mark.parametrize("name", ["\udcff", "a\udc80"])
def test_a_name_of_a_node_that_is_no_text_is_one_line(alignup, name) -> None:
    ended = alignup("node", "publish", "--name", name, "--kubeconfig", "no-such-kubeconfig")
    assert ended.complains("expected UTF-8, got", "--name")


def test_cpus_that_a_platform_reserves_by_flags_can_be_given_to_each_reader(
    alignup, tmp_path
) -> None:
    """An archive has what lies on the node; which CPUs are reserved may stand elsewhere."""
    root = tmp_path / "root"
    kubelet = root / "var/lib/kubelet"
    kubelet.mkdir(parents=True)
    (kubelet / "config.yaml").write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\n"
        "kind: KubeletConfiguration\n"
        "cpuManagerPolicy: static\n"
    )
    cores = [{"cpus": [cpu], "socket": 0} for cpu in range(8)]
    machine = tmp_path / "machine.json"
    machine.write_text(json.dumps({"numaNodes": [{"id": 0, "memory": 1 << 33, "cores": cores}]}))
    archive = tmp_path / "node.tar.xz"
    assert alignup("node", "collect", "--node", root, archive).status == 0

    ended = alignup("node", "check", "--node", archive, "-m", machine)
    assert ended.status == 1
    assert "give them here with --reserved-cpus" in ended.out

    words = ("--node", archive, "-m", machine, "--reserved-cpus", "0-1")
    assert "static policy requires" not in alignup("node", "check", *words).out
    shown = alignup("node", "show", "--json", *words).lines[0]
    assert shown["sharedCpus"] == "0-7"
    pod = tmp_path / "pod.json"
    resources = {"limits": {"cpu": "6", "memory": "1Gi"}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    pod.write_text(json.dumps({"kind": "Pod", "metadata": {"name": "p"}, "spec": spec}))
    for command in ("admit", "explain"):
        assert "2-7" in alignup(command, *words, pod).out
