"""What support tools collect.

Must-gather and sosreport, zipped or unpacked, of one node or of several.
"""

from __future__ import annotations

import io
import json
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
from alignup.kubelet.layout import ArchiveFiles, must_gather_files, open_node
from alignup.kubelet.read import read_kubelet
from alignup.machine.sysfs.machine import describe
from alignup.records import replace
from inputs.kubelet_files import EXAMPLE

if TYPE_CHECKING:
    from collections.abc import Mapping

FILES = ArchiveFiles(EXAMPLE / "root.tar.xz")
KUBELET = "var/lib/kubelet/config.yaml"
MACHINE_CONFIGS = "cluster-scoped-resources/machineconfiguration.openshift.io/machineconfigs"
CONFIG = b"kind: KubeletConfiguration\ntopologyManagerPolicy: restricted\n"


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
        file = (
            f"{{path: /etc/kubernetes/kubelet.conf, contents: {{source: 'data:,{quote(CONFIG)}'}}}}"
        )
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


def written(path, members, kind):
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
    path = written(tmp_path / "x", must_gather(), kind)
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

    assert read_machine(written(tmp_path / "one", must_gather(nodes=("w-0",)), kind)) == describe(
        FILES.kernel
    )


@pytest.mark.parametrize("kind", ["zip", "tar", "folder"])
@pytest.mark.parametrize("prefix", ["", "./", "sosreport-w-0-2026-11-25-abcdef/", "a/deep/folder/"])
def test_a_node_is_found_beneath_any_folder(tmp_path, kind, prefix):
    path = written(
        tmp_path / "x", {f"{prefix}{name}": data for name, data in members_of().items()}, kind
    )
    files = open_node(path, node_name="w-0")
    assert describe(files.kernel) == describe(FILES.kernel)
    assert files.read(KUBELET) == FILES.read(KUBELET)


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
        node_files = {**members_of(), KUBELET: b"maxPods: %d" % number}
        if name.endswith("z"):
            members[name] = packed(node_files)
        else:
            members |= {f"{name}/{path}": data for path, data in node_files.items()}

    path = written(tmp_path / "x.tar", members, "tar")
    assert open_node(path, node_name="w-1").read(KUBELET) == b"maxPods: 1"
    assert open_node(path, node_name="w-0").read(KUBELET) == b"maxPods: 0"
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
    assert read_machine(written(tmp_path / "x.tar", members, "tar")) == replace(
        describe(FILES.kernel), pci_devices=()
    )


@pytest.mark.parametrize(
    ("path", "text", "policy"),
    [
        ("etc/kubernetes/kubelet.conf", CONFIG, "restricted"),
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
    where = written(tmp_path / "x", members, "folder")
    from alignup.kubelet.config import read_configuration  # noqa: PLC0415

    configuration = read_configuration(open_node(where))
    assert configuration.fields.get("topologyManagerPolicy") == policy
    assert bool(configuration.source) == (policy is not None)


def test_a_zip_that_cannot_be_read_is_one_line(tmp_path):
    whole = written(tmp_path / "x.zip", members_of(), "zip").read_bytes()
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
    path = written(tmp_path / "x", members, "tar")
    with pytest.warns(
        AlignupWarning, match=r"passed over, since it is damaged: .*w-0/sysinfo\.tgz"
    ):
        files = open_node(path, node_name="w-0-b")
    assert describe(files.kernel) == describe(FILES.kernel)
    with pytest.warns(AlignupWarning), pytest.raises(InputError, match="one node"):
        open_node(path, node_name="w-0")


def test_what_is_missing_is_named_with_the_command_that_packs_it(tmp_path):
    only = written(tmp_path / "sys.tgz", members_of(nested=True), "tar")
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
        read_kubelet(written(tmp_path / "var.zip", others, "zip"))


@pytest.mark.parametrize("node", ["", "[]", "x", "metadata: 3", "{metadata: {annotations: [1]}}"])
@pytest.mark.parametrize("pods", ["", "items: 3", "items: [1, {spec: a}]", "a"])
def test_objects_of_another_shape_are_no_crash(node, pods):
    members = {
        "cluster-scoped-resources/core/nodes/a.yaml": node,
        "namespaces/n/core/pods.yaml": f"{pods} # a",
    }
    node_files = must_gather_files({path: text.encode() for path, text in members.items()}, "a")
    assert json.loads(node_files["pods.json"]) == {"items": []}
