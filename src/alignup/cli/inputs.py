"""Reads the inputs of the subcommands: files, standard input, machines, configurations and pods."""

from __future__ import annotations

import gzip
import io
import os
import sys
import zlib
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from alignup.cli.completion import files, machines
from alignup.cli.terminal import counted
from alignup.errors import InputError
from alignup.kubernetes.manifest import pod_from_manifest
from alignup.machine.load import HERE, load_machine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.versions import KubeletVersion
    from alignup.node import Node

__all__ = [
    "LoadedNode",
    "config_option",
    "kubelet_node_option",
    "load_node",
    "machine_option",
    "near_cpus_option",
    "node_name_option",
    "open_input",
    "read_bytes",
    "read_lines",
    "read_mapping",
    "read_pods",
]

GZIP_MAGIC = b"\x1f\x8b"
CHUNK = 1 << 20
FILE_LIMIT = 256 << 20
"""The most bytes of a cluster or a trace: those of some hundred thousand pods."""
LINE_LIMIT = 16 << 20
"""The most bytes of a line: as many as the file of a machine may have."""
BLANK_LIMIT = 1_000_000


machine_option = click.option(
    "--machine",
    "-m",
    metavar="NAME|FILE|ROOT",
    default=HERE,
    show_default="this machine",
    shell_complete=machines,
    help="A catalog name, a JSON, snapshot or hwloc XML file, or the root of a sysfs tree.",
)
kubelet_node_option = click.option(
    "--node",
    "kubelet_node",
    metavar="ROOT|ARCHIVE",
    shell_complete=files,
    help="The node that a kubelet runs, with the pods it has: / for this machine, the root of a copy, or an archive of "
    "`alignup node collect`.",
)
near_cpus_option = click.option(
    "--near-cpus",
    is_flag=True,
    help="Devices on NUMA nodes without CPUs count as near the closest ones with CPUs (GB200).",
)
node_name_option = click.option(
    "--node-name",
    metavar="NAME",
    help="The pods of this node, and those that are bound to none; needed where pods are bound to several.",
)
config_option = click.option(
    "--config", "-c", metavar="FILE", shell_complete=files, help="A KubeletConfiguration, YAML or JSON."
)


@contextmanager
def open_input(name: str) -> Iterator[IO[bytes]]:
    """Open a file or standard input, gunzipped if it begins as gzip does.

    Raises:
        InputError: it cannot be read, then or later.
    """
    try:
        with ExitStack() as stack:
            file: Any = sys.stdin.buffer if name == "-" else stack.enter_context(Path(name).open("rb"))
            if file.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC):
                file = gzip.GzipFile(fileobj=file)
            yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"expected a whole gzip file, got {name!r}: {error}") from error
    except OSError as error:
        raise InputError(
            f"expected a readable file, got {name!r}: {os.strerror(error.errno or 0).lower()}"
        ) from error


def read_bytes(name: str, limit: int = FILE_LIMIT) -> bytes:
    """Return the bytes of a file or of standard input, gunzipped.

    Args:
        name: of the file; `-` is standard input.
        limit: the most bytes that it may hold; a longer one is not read whole.

    Raises:
        InputError: it cannot be read, or is longer.
    """
    data = io.BytesIO()  # which hands over what it has without a copy
    left = limit + 1
    with open_input(name) as file:
        while left and (chunk := file.read(min(left, CHUNK))):
            data.write(chunk)
            left -= len(chunk)
    if not left:
        raise InputError(f"expected at most {limit} bytes, got more in {name}")
    return data.getvalue()


def read_lines(file: IO[bytes], name: str, limit: int = LINE_LIMIT) -> Iterator[bytes]:
    """Yield the lines of a file, each as soon as it is there.

    Args:
        file: as `open_input` returns it.
        name: the name of the file in errors.
        limit: the most bytes that a line may have; a longer one is not read whole.

    Raises:
        InputError: a line is longer.
    """
    number = blank = 0
    while line := file.readline(limit + 1):
        number += 1
        blank = blank + 1 if line.isspace() else 0
        if blank > BLANK_LIMIT:
            raise InputError(
                f"expected at most {BLANK_LIMIT} blank lines in a row, got more at {name}:{number}"
            )
        if len(line) > limit:
            raise InputError(f"expected lines of at most {limit} bytes, got a longer one at {name}:{number}")
        yield line


def read_pods(
    names: Iterable[str],
    *,
    replicas: int | None = None,
    node_name: str | None = None,
    one_node: bool = True,
) -> list[Pod]:
    """Return the pods of all files, in order: those that have not ended.

    Args:
        names: of the files.
        replicas: how many of each; None: as many as their objects say.
        node_name: the node whose pods are meant, and those that are bound to none; None: there may be one node only.
        one_node: False: it does not matter to which nodes they are bound.

    Raises:
        InputError: a file has no pods, or they are bound to several nodes and `node_name` is None.
    """
    from alignup.kubernetes.pod_documents import expanded, live_pods, read_pod_documents
    from alignup.text.documents import TEXT_LIMIT

    found = [one for name in names for one in read_pod_documents(read_bytes(name, TEXT_LIMIT), name)]
    return expanded(live_pods(found, node_name, one_node=one_node), replicas)


@dataclass(frozen=True, slots=True)
class LoadedNode:
    """A node, with a title for people and the example pods of its machine."""

    node: Node
    title: str
    resources: frozenset[str] = frozenset()
    """Those that the node has devices of."""
    pods: tuple[Any, ...] = ()
    """Manifests of the example pods of a catalog machine."""

    @property
    def option_names(self) -> tuple[str, ...]:
        """The options of policies that are set to something but their default."""
        from alignup.kubernetes.option_values import set_options

        config = self.node.config
        return (
            *set_options(config.topology_manager_policy_options),
            *set_options(config.cpu_manager_policy_options),
        )

    def example_pods(self, replicas: int | None = None) -> list[Pod]:
        """Return the example pods, each so many times.

        Raises:
            InputError: there are none.
        """
        from alignup.kubernetes.pod_documents import PodDocument, expanded

        if not self.pods:
            raise InputError(
                "expected at least one POD.yaml, got none; only some catalog machines have example pods"
            )
        return expanded((PodDocument(pod_from_manifest(manifest)) for manifest in self.pods), replicas)


def load_node(
    machine: str,
    config: str | None,
    devices: str | None,
    selectors: Sequence[str] = (),
    *,
    near_cpus: bool = False,
    version: KubeletVersion | None = None,
    lenient: bool = False,
    kubelet_node: str | None = None,
) -> LoadedNode:
    """Return the node that the options describe.

    A catalog machine brings its devices and a configuration that aligns; both give way to the options. So do those of a
    kubelet's node.

    Args:
        machine: what `--machine` takes.
        config: the file of a KubeletConfiguration.
        devices: the file of a device inventory; it replaces the devices that come with the machine.
        selectors: PCI devices that are a resource, as `--device-resource` takes them, beside those devices.
        near_cpus: count devices on NUMA nodes without CPUs as near the closest ones with CPUs.
        version: the kubelet's release; None: the newest known.
        lenient: let options of the configuration pass whose gates are off by default.
        kubelet_node: what `--node` takes.

    Raises:
        InputError: an input is not what it should be.
    """
    if kubelet_node is not None:
        return load_kubelet_node(
            kubelet_node, machine, config, devices, selectors, near_cpus=near_cpus, version=version
        )
    from alignup.kubernetes.kubelet_config import KubeletConfig, load_config
    from alignup.kubernetes.versions import NEWEST
    from alignup.machine.with_devices import load_with_devices
    from alignup.node import Node, plugins_of
    from alignup.text.documents import TEXT_LIMIT

    loaded = load_with_devices(
        machine,
        devices=read_mapping(devices) if devices else None,
        where=devices or "devices",
        selectors=selectors,
        near_cpus=near_cpus,
    )
    release = version or NEWEST
    kubelet = (
        load_config(read_bytes(config, TEXT_LIMIT), config, version=release, lenient=lenient)
        if config
        else KubeletConfig.from_dict(loaded.kubelet, version=release)
    )
    node = Node(loaded.machine, kubelet, loaded.devices, plugins_of(loaded.preferred_sets))
    return LoadedNode(node, title_of(machine, node), frozenset(loaded.devices), loaded.pods)


def load_kubelet_node(
    root: str,
    machine: str,
    config: str | None,
    devices: str | None,
    selectors: Sequence[str] = (),
    *,
    near_cpus: bool = False,
    version: KubeletVersion | None = None,
) -> LoadedNode:
    """Return the node of a kubelet, with its pods; arguments as for `load_node`.

    Raises:
        InputError: a file is damaged, or options contradict each other.
    """
    from alignup.kubelet.layout import open_node
    from alignup.kubelet.read import machine_of, make_node, read_records
    from alignup.machine.device_inventory import decode_inventory

    if selectors or near_cpus:
        raise click.UsageError(
            "--node tells the devices; --device-resource and --near-cpus do not go with it"
        )
    files = open_node(root)
    records = read_records(files, config)
    at = machine_of(files) if machine == HERE else load_machine(machine).machine
    inventory = None if devices is None else decode_inventory(read_mapping(devices), at, devices)
    found = make_node(records, at, inventory, version).node
    resources = frozenset(found.devices.pools if found.devices else ())
    return LoadedNode(found, title_of(root, found), resources)


def read_mapping(name: str) -> dict[str, Any]:
    """Return the one mapping that a YAML or JSON file holds.

    Raises:
        InputError: it holds something else.
    """
    from alignup.text.documents import TEXT_LIMIT, read_documents

    documents = read_documents(read_bytes(name, TEXT_LIMIT), name)
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise InputError.at(name, "one mapping", documents)
    return documents[0]


def title_of(machine: str, node: Node) -> str:
    """Return the machine and configuration in one line."""
    name = "this machine" if machine == HERE else machine
    policy, config = node.manager.policy.name, node.config
    scope = "" if policy == "none" else f", scope {node.scope_name}"
    nodes, cpus = len(node.machine.numa_nodes), node.machine.cpu_count
    from alignup.kubernetes.versions import NEWEST

    kubelet = "" if config.version == NEWEST else f", kubelet {config.version}"
    return (
        f"{name}: {counted(nodes, 'NUMA node')}, {counted(cpus, 'CPU')}; policy {policy}{scope}, "
        f"CPU manager {config.cpu_manager_policy}, memory manager {config.memory_manager_policy}{kubelet}"
    )
