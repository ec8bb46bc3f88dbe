"""The files of a node, in folders, in archives, and in what support tools collect."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
import zipfile
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from alignup import read_machine
from alignup.errors import AlignupWarning, InputError
from alignup.kubelet.config import read_configuration
from alignup.kubelet.layout import (
    CONFIG,
    CONFIG_FOLDER,
    CPU_STATE,
    PODS,
    ArchiveFiles,
    FolderFiles,
    must_gather_files,
    open_node,
    read_file,
)
from alignup.kubelet.read import read_kubelet
from alignup.machine.sysfs.machine import describe
from alignup.records import replace
from inputs.kubelet_files import EXAMPLE

if TYPE_CHECKING:
    from collections.abc import Mapping

FILES = ArchiveFiles(EXAMPLE / "root.tar.xz")

MACHINE_CONFIGS = "cluster-scoped-resources/machineconfiguration.openshift.io/machineconfigs"

KUBELET_CONF = b"kind: KubeletConfiguration\ntopologyManagerPolicy: restricted\n"


def filled(root):
    for name, data in (
        (CONFIG, "a"),
        (f"{CONFIG_FOLDER}/10.conf", "b"),
        (PODS, "c"),
        ("etc/shadow", "d"),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(data)
    return root


@pytest.fixture(params=["folder", "archive", "archive of a folder"])
def files(request, tmp_path):
    root = filled(tmp_path / "root")
    if request.param == "folder":
        return open_node(root)
    with tarfile.open(tmp_path / "x.tar.xz", "w:xz") as archive:
        archive.add(root, "node-a" if request.param == "archive of a folder" else ".")
    return open_node(tmp_path / "x.tar.xz")


def test_files_are_found_by_their_place(files):
    assert (files.read(CONFIG), files.read(PODS), files.read(CPU_STATE)) == (b"a", b"c", None)
    assert files.names(CONFIG_FOLDER) == ["10.conf"]
    assert not files.names("nowhere")
    assert files.kernel is None


def test_an_archive_gives_only_files_of_a_node(tmp_path):
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as archive:
        archive.add(filled(tmp_path / "root"), ".")
    assert ArchiveFiles(tmp_path / "x.tar.gz").read("etc/shadow") is None


def test_the_kubelets_folder_can_be_elsewhere(tmp_path):
    (tmp_path / "k").mkdir()
    (tmp_path / "k/cpu_manager_state").write_text("x")
    files = FolderFiles(tmp_path / "root", tmp_path / "k")
    assert files.read(CPU_STATE) == b"x"
    assert files.place(CPU_STATE) == str(tmp_path / "k/cpu_manager_state")


def test_no_link_leads_out_of_the_folder(tmp_path):
    root = filled(tmp_path / "root")
    (tmp_path / "secret").write_text("x")
    (root / "pods.json").unlink()
    (root / "pods.json").symlink_to(tmp_path / "secret")
    with pytest.raises(InputError, match="leads out of the node's files"):
        FolderFiles(root).read(PODS)


def test_a_link_within_the_folder_is_followed(tmp_path):
    """As distributions that keep the configuration elsewhere have it."""
    root = filled(tmp_path / "root")
    (root / "var/lib/kubelet/config.yaml").rename(root / "var/lib/kubelet/real.yaml")
    (root / "var/lib/kubelet/config.yaml").symlink_to("real.yaml")
    assert FolderFiles(root).read(CONFIG) == b"a"


def test_what_is_no_plain_file_is_refused_at_once(tmp_path):
    root = filled(tmp_path / "root")
    (root / "pods.json").unlink()
    os.mkfifo(root / "pods.json")
    with pytest.raises(InputError, match="a plain file"):
        FolderFiles(root).read(PODS)


def test_what_is_neither_folder_nor_archive_is_one_line(tmp_path):
    with pytest.raises(InputError, match="no machine's root folder or archive at"):
        open_node(tmp_path / "nowhere")
    (tmp_path / "x").write_text("{}")
    with pytest.raises(InputError, match="a node's archive, but the file is damaged"):
        open_node(tmp_path / "x")


def test_a_file_that_is_far_too_large_takes_no_memory(tmp_path) -> None:
    path = tmp_path / "pods.json"
    with path.open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(InputError, match="is larger than"):
        read_file(path)


@cache
def members_of(nested: bool = False) -> Mapping[str, bytes]:
    """Return the members of the example, with or without the kubelet's files."""
    with tarfile.open(EXAMPLE / "root.tar.xz") as archive:
        members = {
            member.name.removeprefix("./"): archive.extractfile(member).read()
            for member in archive
            if member.isreg()
        }  # type: ignore[union-attr]
    kept = {
        path: data
        for path, data in members.items()
        if not nested or path.startswith(("sys", "proc"))
    }
    return MappingProxyType(kept)


def packed(members: Mapping[str, bytes]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for path, content in members.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return data.getvalue()


@cache
def packed_system() -> bytes:
    """Return the kernel's files as the collector of a must-gather packs them."""
    return packed({f"./{path}": data for path, data in members_of(nested=True).items()})


def must_gather(
    top: str = "must-gather.local.1/quay-io-sha256-0/", nodes: tuple[str, ...] = ("w-0", "w-0-b")
):
    """Return the files of a must-gather, with `sys` of each node."""
    members = {}
    for number, name in enumerate(nodes):
        rendered = f"rendered-{number}"
        annotation = f"machineconfiguration.openshift.io/currentConfig: {rendered}"
        source = f"{{source: 'data:,{quote(KUBELET_CONF)}'}}"
        file = f"{{path: /etc/kubernetes/kubelet.conf, contents: {source}}}"
        node_files = {
            f"nodes/{name}/sysinfo.tgz": packed_system(),
            f"cluster-scoped-resources/core/nodes/{name}.yaml": (
                f"kind: Node\nmetadata: {{name: {name}, annotations: {{{annotation}}}}}\n"
                "status: {nodeInfo: {kubeletVersion: v1.33.4}}\n"
            ).encode(),
            f"{MACHINE_CONFIGS}/{rendered}.yaml": (
                f"kind: MachineConfig\nmetadata: {{name: {rendered}}}\n"
                f"spec: {{config: {{storage: {{files: [{file}]}}}}}}\n"
            ).encode(),
        }
        members |= {top + path: data for path, data in node_files.items()}

    for namespace, name in (("a", "w-0"), ("b", "w-0-b")):
        metadata = f"{{name: p, namespace: {namespace}, uid: {namespace}}}"
        pod = f"{{metadata: {metadata}, spec: {{nodeName: {name}, containers: [{{name: c}}]}}}}"
        members[f"{top}namespaces/{namespace}/core/pods.yaml"] = (
            f"kind: PodList\nitems: [{pod}]\n".encode()
        )

    return members


def write_members(path, members, kind):
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in members.items():
                archive.writestr(name, data)
    elif kind == "tar":
        path.write_bytes(packed(members))
    else:
        for name, data in members.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)
    return path


@pytest.mark.parametrize("kind", ["zip", "tar", "folder"])
@pytest.mark.filterwarnings("ignore:.*(no cpu_manager_state|no memory_manager_state|PodResources)")
def test_a_must_gather_has_the_machine_configuration_and_pods_of_each_node(tmp_path, kind):
    path = write_members(tmp_path / "x", must_gather(), kind)
    for name, namespace in (("w-0", "a"), ("w-0-b", "b")):
        kubelet_node = read_kubelet(path, node_name=name)
        assert kubelet_node.node.machine == describe(FILES.kernel)
        assert str(kubelet_node.records.version) == "1.33"
        assert kubelet_node.node.config.topology_manager_policy == "restricted"
        assert [document.pod.namespace for document in kubelet_node.records.pods or ()] == [
            namespace
        ]

    for name in (None, "w-1"):
        with pytest.raises(
            InputError, match=r"one node, got those of .*w-0.*--node-name NAME chooses one"
        ):
            open_node(path, node_name=name)

    assert read_machine(
        write_members(tmp_path / "one", must_gather(nodes=("w-0",)), kind)
    ) == describe(FILES.kernel)


@pytest.mark.parametrize("kind", ["zip", "tar", "folder"])
@pytest.mark.parametrize("prefix", ["", "./", "sosreport-w-0-2026-11-25-abcdef/", "a/deep/folder/"])
def test_a_node_is_found_beneath_any_folder(tmp_path, kind, prefix):
    path = write_members(
        tmp_path / "x", {f"{prefix}{name}": data for name, data in members_of().items()}, kind
    )
    files = open_node(path, node_name="w-0")
    assert describe(files.kernel) == describe(FILES.kernel)
    assert files.read(CONFIG) == FILES.read(CONFIG)


@pytest.mark.parametrize(
    "names",
    [
        ("sosreport-w-0-2026-11-25-abc", "sosreport-w-1-0123-2026-11-25-abc"),
        ("w-0.example.com", "w-1"),
        ("x/w-0.tar.xz", "w-1.tgz"),
    ],
)
def test_files_of_two_nodes_are_never_mixed(tmp_path, names):
    members = {}
    for number, name in enumerate(names):
        node_files = {**members_of(), CONFIG: b"maxPods: %d" % number}
        if name.endswith("z"):
            members[name] = packed(node_files)
        else:
            members |= {f"{name}/{path}": data for path, data in node_files.items()}

    path = write_members(tmp_path / "x.tar", members, "tar")
    assert open_node(path, node_name="w-1").read(CONFIG) == b"maxPods: 1"
    assert open_node(path, node_name="w-0").read(CONFIG) == b"maxPods: 0"
    with pytest.raises(InputError, match="--node-name NAME chooses one"):
        open_node(path)


def test_what_a_sosreport_has_of_sys_is_the_machine(tmp_path):
    """Its plugins `processor` and `numa` copy these; PCI devices are not among them."""
    kept = re.compile(
        r"proc/(cpuinfo|meminfo)|sys/devices/system/cpu/.*|"
        r"sys/devices/system/node/node\d+/(cpulist|meminfo|distance|hugepages/hugepages-[^/]+/.*)"
    )
    members = {
        f"sosreport-w/{path}": data for path, data in members_of().items() if kept.fullmatch(path)
    }
    assert read_machine(write_members(tmp_path / "x.tar", members, "tar")) == replace(
        describe(FILES.kernel), pci_devices=()
    )


@pytest.mark.parametrize(
    ("path", "text", "policy"),
    [
        ("etc/kubernetes/kubelet.conf", KUBELET_CONF, "restricted"),
        ("etc/kubernetes/kubelet.conf", b"kind: Config\nclusters: []\n", None),
        (
            "etc/rancher/rke2/config.yaml",
            b"kubelet-arg: [topology-manager-policy=best-effort]\n",
            "best-effort",
        ),
    ],
)
def test_the_configuration_is_found_where_distributions_have_it(tmp_path, path, text, policy):
    members = {**members_of(nested=True), path: text, "var/lib/kubelet/cpu_manager_state": b""}
    where = write_members(tmp_path / "x", members, "folder")
    configuration = read_configuration(open_node(where))
    assert configuration.fields.get("topologyManagerPolicy") == policy
    assert bool(configuration.source) == (policy is not None)


def test_a_zip_that_cannot_be_read_is_one_line(tmp_path):
    whole = write_members(tmp_path / "x.zip", members_of(), "zip").read_bytes()
    for number, data in enumerate(
        (whole[:-30], whole[:100], whole.replace(b"sys/", b"\xff\xff\xff\xff", 3))
    ):
        (tmp_path / f"{number}.zip").write_bytes(data)
        with pytest.raises(InputError) as error:
            ArchiveFiles(tmp_path / f"{number}.zip")
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("cut", [0.3, 0.999])
def test_a_damaged_archive_of_a_node_is_passed_over_whole(tmp_path, cut):
    """A machine of half its CPUs would be a wrong answer.

    An archive of something else is not looked at.
    """
    members = must_gather()
    damaged = next(path for path in members if path.endswith("w-0/sysinfo.tgz"))
    members[damaged] = members[damaged][: int(len(members[damaged]) * cut)]
    members["must-gather.local.1/quay-io-sha256-0/logs.tar.gz"] = packed({"x.log": b"x"})
    path = write_members(tmp_path / "x", members, "tar")
    with pytest.warns(
        AlignupWarning, match=r"passed over, since it is damaged: .*w-0/sysinfo\.tgz"
    ):
        files = open_node(path, node_name="w-0-b")
    assert describe(files.kernel) == describe(FILES.kernel)
    with pytest.warns(AlignupWarning), pytest.raises(InputError, match="one node"):
        open_node(path, node_name="w-0")


def test_what_is_missing_is_named_with_the_command_that_packs_it(tmp_path):
    only = write_members(tmp_path / "sys.tgz", members_of(nested=True), "tar")
    with pytest.raises(
        InputError, match=r"no files of a kubelet .*cpu_manager_state; `alignup node collect FILE`"
    ):
        read_kubelet(only)
    others = {
        path: data for path, data in members_of().items() if not path.startswith(("sys", "proc"))
    }
    with pytest.raises(
        InputError, match=r"no folder sys, .*--machine FILE gives it, or `tar czf FILE"
    ):
        read_kubelet(write_members(tmp_path / "var.zip", others, "zip"))


@pytest.mark.parametrize("node", ["", "[]", "x", "metadata: 3", "{metadata: {annotations: [1]}}"])
@pytest.mark.parametrize("pods", ["", "items: 3", "items: [1, {spec: a}]", "a"])
def test_objects_of_another_shape_are_no_crash(node, pods):
    members = {
        "cluster-scoped-resources/core/nodes/a.yaml": node,
        "namespaces/n/core/pods.yaml": f"{pods} # a",
    }
    files = {path: text.encode() for path, text in members.items()}
    node_files = must_gather_files(files, "a")
    assert must_gather_files(files, "another") == node_files  # there is one only
    assert json.loads(node_files["pods.json"]) == {"items": []}
