"""Finds the files of a node beneath a root folder or in an archive of one.

They are read in bounded size. The layout is that of a machine, with recorded answers beside it:

    sys/  proc/meminfo  proc/cpuinfo
    var/lib/kubelet/config.yaml  config.d/*.conf  cpu_manager_state  memory_manager_state
    var/lib/kubelet/allocated_pods_state
    var/lib/kubelet/device-plugins/kubelet_internal_checkpoint
    podresources/list.json  podresources/allocatable.json  pods.json  node.json  resources.json

OpenShift's must-gather has the objects of a cluster, and of each node an archive of `sys` and
`proc`. There the Node says by an annotation which MachineConfig it runs, and that has the file of
the kubelet's configuration. Pods are those of all namespaces that are bound to the node. The state
files of the kubelet are not collected.

What the files say is left to the modules beside this one.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

from alignup.errors import InputError, errors_in, system_errors
from alignup.kubelet.processes import RunningKubelet, find_kubelet
from alignup.machine.archive import (
    ROOT_TOPS,
    is_pci_link,
    kernel_file_size,
    kernel_tree,
    read_archive,
)
from alignup.machine.sysfs.tree import DirectoryTree, KernelTree
from alignup.text.counting import some_of
from alignup.text.documents import read_documents

_MUST_GATHER_TOPS: Final = frozenset({"cluster-scoped-resources", "namespaces"})
_NODES: Final = "cluster-scoped-resources/core/nodes/"
_CONFIGS: Final = "cluster-scoped-resources/machineconfiguration.openshift.io/machineconfigs/"
_PODS: Final = re.compile(r"namespaces/[^/]+/core/pods\.ya?ml")
_CURRENT: Final = "machineconfiguration.openshift.io/currentConfig"
_SHOWN: Final = 6

KUBELET: Final = "var/lib/kubelet"
CONFIG: Final = f"{KUBELET}/config.yaml"

# Where OpenShift, EKS, RKE2 and k3s have a kubelet's configuration, and a word of it: kubeadm has a
# kubeconfig of the first name.
CONFIGS_ELSEWHERE: Final[Mapping[str, bytes]] = {
    "etc/kubernetes/kubelet.conf": b"KubeletConfiguration",
    "etc/kubernetes/kubelet/config.json": b"KubeletConfiguration",
    "etc/kubernetes/kubelet/kubelet-config.json": b"KubeletConfiguration",
    "etc/rancher/rke2/config.yaml": b"kubelet-arg",
    "etc/rancher/k3s/config.yaml": b"kubelet-arg",
}

CONFIG_FOLDER: Final = f"{KUBELET}/config.d"
CPU_STATE: Final = f"{KUBELET}/cpu_manager_state"
MEMORY_STATE: Final = f"{KUBELET}/memory_manager_state"
ALLOCATED: Final = f"{KUBELET}/allocated_pods_state"
DEVICE_CHECKPOINT: Final = f"{KUBELET}/device-plugins/kubelet_internal_checkpoint"
LIST: Final = "podresources/list.json"
ALLOCATABLE: Final = "podresources/allocatable.json"
PODS: Final = "pods.json"
NODE: Final = "node.json"

# The objects of claims (DRA) that matter on the node.
CLAIMS: Final = "resources.json"

FILES: Final = frozenset(
    (
        CONFIG,
        CPU_STATE,
        MEMORY_STATE,
        ALLOCATED,
        DEVICE_CHECKPOINT,
        LIST,
        ALLOCATABLE,
        PODS,
        NODE,
        CLAIMS,
    )
)

# Of one file: the pods of a node with thousands of them.
_MOST_BYTES: Final = 32 << 20

_CHUNK: Final = 1 << 20
_WHAT: Final = "a node's archive"
_MISSING: Final = (FileNotFoundError, NotADirectoryError)


def must_gather_files(files: Mapping[str, bytes], name: str) -> dict[str, bytes]:
    """Return the files of a node by the paths of the layout.

    None if these are not of a must-gather.

    Args:
        files: those of the must-gather that are wanted.
        name: the node's; where there is one only, it may be another.

    Raises:
        InputError: there are several nodes, and none has that name; or a file is no YAML.
    """
    nodes = {
        path.removeprefix(_NODES).removesuffix(".yaml"): path
        for path in files
        if path.startswith(_NODES)
    }
    if not nodes:
        return {}

    if name not in nodes:
        if len(nodes) > 1:
            names = some_of(list(nodes), _SHOWN)
            raise InputError(
                f"expected the files of one node, got those of {names}; --node-name NAME chooses "
                "one"
            )
        [name] = nodes

    documents = read_documents(files[nodes[name]], nodes[name])
    files_of_node = {"node.json": _json(documents[0] if documents else None)}

    config = f"{_CONFIGS}{_at(documents, 0, 'metadata', 'annotations', _CURRENT)}.yaml"
    if config in files:
        files_of_node["var/lib/kubelet/config.yaml"] = files[config]

    lists = [path for path in files if _PODS.fullmatch(path)]
    if lists:
        pods = [pod for path in lists for pod in _pods_of_node(files[path], path, name)]
        files_of_node["pods.json"] = _json({"items": pods})

    return files_of_node


def _pods_of_node(data: bytes, path: str, name: str) -> Iterator[Any]:
    """Yield the pods in a file of Lists that are bound to a node."""
    if name.encode() not in data:
        return

    for document in read_documents(data, path):
        items = _at(document, "items")
        if isinstance(items, list):
            yield from (pod for pod in items if _at(pod, "spec", "nodeName") == name)


def _at(value: Any, *path: str | int) -> Any:
    """Return what lies at a path of an object; None: it has no such place."""
    try:
        for key in path:
            value = value[key]
    except (LookupError, TypeError):
        return None
    return value


def _json(value: Any) -> bytes:
    return json.dumps(value, default=str).encode()


# What names a file or a folder.
AnyPath: TypeAlias = str | os.PathLike[str]


_TOPS: Final = ROOT_TOPS | _MUST_GATHER_TOPS | {name.partition("/")[0] for name in FILES}
_ROOTS: Final = (
    "sys",
    "proc",
    "var",
    "etc",
    *(name.partition("/")[0] for name in (LIST, PODS, NODE)),
)


class FolderFiles:
    """The files of a node beneath a folder.

    Args:
        root: the folder; `/` is the machine at hand.
        kubelet_dir: the kubelet's folder where it is not `var/lib/kubelet` beneath the root.
        kubelet: the kubelet that runs on the machine; None: none does, or it does not matter.
    """

    def __init__(
        self,
        root: AnyPath = "/",
        kubelet_dir: AnyPath | None = None,
        kubelet: RunningKubelet | None = None,
    ) -> None:
        self.kubelet = kubelet
        self.source = os.fspath(root)
        self.root = Path(root)
        self.kubelet_dir = self.root / KUBELET if kubelet_dir is None else Path(kubelet_dir)

    @property
    def kernel(self) -> KernelTree | None:
        """The kernel's files, where there is a folder `sys`."""
        return DirectoryTree(self.root) if (self.root / "sys").is_dir() else None

    def path_of(self, path: str) -> Path:
        """Return where a file of the layout is."""
        if path.startswith(f"{KUBELET}/"):
            return self.kubelet_dir / path.removeprefix(f"{KUBELET}/")
        return self.root / path

    def place(self, path: str) -> str:
        """Return where a file is, for an error."""
        return str(self.path_of(path))

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None: there is no such file.

        Raises:
            InputError: it cannot be read, is no file, is too large, or is reached by a link out of
                the root.
        """
        file = self.path_of(path)
        top = self.kubelet_dir if path.startswith(f"{KUBELET}/") else self.root
        with (
            system_errors("cannot read a file of the node", file, RuntimeError),
            suppress(*_MISSING),
        ):
            real = file.resolve(strict=True)
            if not real.is_relative_to(top.resolve()):
                raise InputError(f"{file} leads out of the node's files, to {str(real)!r}")
            return read_file(real)

        return None

    def names(self, path: str) -> Sequence[str]:
        """Return the names in a folder, sorted; none if there is no such folder."""
        with (
            system_errors("cannot read a folder of the node", self.place(path)),
            suppress(*_MISSING),
        ):
            folder = self.path_of(f"{path}/x").parent
            return sorted(os.listdir(folder))  # noqa: PTH208  # names are wanted, not paths

        return ()


def read_file(path: Path) -> bytes:
    """Return the content of a plain file of bounded size.

    Raises:
        OSError: it cannot be read.
        InputError: it is no plain file, or too large.
    """
    # a pipe must not be waited for
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path} is not a plain file")

        data = b""
        size = status.st_size
        while size <= _MOST_BYTES:
            chunk = os.read(descriptor, max(_CHUNK, size + 1))
            if not chunk:
                break
            data += chunk
            size = max(size, len(data))  # files of the kernel have no size
    finally:
        os.close(descriptor)

    if size > _MOST_BYTES:
        raise InputError(f"{path} is larger than {_MOST_BYTES} bytes")

    return data


class ArchiveFiles:
    """The files of a node in an archive, as `alignup node collect` writes it.

    Args:
        path: the archive, or a folder with the same in it.
        node_name: the node, where there are several.

    Attributes:
        kubelet: see `FolderFiles`.

    Raises:
        InputError: it is no archive, or is damaged or too large, or it has several nodes.
    """

    kubelet: RunningKubelet | None = None

    def __init__(self, path: AnyPath, node_name: str | None = None) -> None:
        self.source = os.fspath(path)
        archive = read_archive(path, _TOPS, _most_bytes, is_pci_link, _WHAT, node_name)
        with errors_in(self.source):
            self._files = {
                **must_gather_files(archive.files, node_name or archive.folder),
                **archive.files,
            }
        self.kernel = kernel_tree(archive, self.source)

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None: there is no such file."""
        return self._files.get(path)

    def names(self, path: str) -> Sequence[str]:
        """Return the names of the files in a folder, sorted."""
        return sorted(
            name.removeprefix(f"{path}/") for name in self._files if name.rpartition("/")[0] == path
        )

    def place(self, path: str) -> str:
        """Return where a file is, for an error."""
        return f"{self.source}:{path}"


def _most_bytes(path: str) -> int | None:
    """Return how many bytes a file of an archive may have; None: it is no file of a node."""
    is_in_layout = (
        path in FILES or path.rpartition("/")[0] == CONFIG_FOLDER or path in CONFIGS_ELSEWHERE
    )
    is_of_must_gather = path.startswith((_NODES, _CONFIGS)) or _PODS.fullmatch(path) is not None
    if is_in_layout or is_of_must_gather:
        return _MOST_BYTES
    return kernel_file_size(path)


# The files of a node, by their paths in the layout.
NodeFiles = FolderFiles | ArchiveFiles


def open_node(
    root: AnyPath, kubelet_dir: AnyPath | None = None, node_name: str | None = None
) -> NodeFiles:
    """Return the files of a node: a folder's, or those in an archive.

    Args:
        root: the folder or the archive; a folder that is no root of a machine is read as an archive
            is.
        kubelet_dir: the kubelet's folder; None: the one that the kubelet which runs there was told,
            else `var/lib/kubelet`.
        node_name: the node, where an archive has several.

    Raises:
        InputError: there is neither, or the kubelet has a flag that no kubelet takes.
    """
    path = Path(root)
    is_root = path.is_dir() and (
        kubelet_dir is not None or any((path / name).exists() for name in _ROOTS)
    )
    if is_root:
        kubelet = find_kubelet(root)
        if kubelet_dir is None and kubelet is not None and kubelet.flags.root_dir:
            kubelet_dir = Path(root, kubelet.flags.root_dir.lstrip("/"))
        return FolderFiles(root, kubelet_dir, kubelet)

    if not path.exists():
        raise InputError(f"no machine's root folder or archive at {os.fspath(root)!r}")
    if kubelet_dir is not None:
        raise InputError.at(
            "the kubelet's folder", "none beside an archive", os.fspath(kubelet_dir)
        )

    return ArchiveFiles(root, node_name)
