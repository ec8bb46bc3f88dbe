"""Reads the inputs of the subcommands, and writes files.

Inputs are files, standard input, machines, configurations and pods.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
import warnings
import zlib
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import IO, TYPE_CHECKING, Any

import click

from alignup.cli import options
from alignup.cli.failures import complain
from alignup.errors import ConfigError, InputError, errors_in, system_errors
from alignup.records import Record, field
from alignup.text.counting import counted, some_of
from alignup.text.output_files import write_output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from alignup.claims.read import Resources
    from alignup.host.leases.local_machine import Site
    from alignup.host.leases.record import Seen
    from alignup.kubelet.read import KubeletNode, KubeletOptions
    from alignup.kubernetes.groups import Membership
    from alignup.kubernetes.kubelet_config import KubeletConfig
    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.pod_documents import PodDocument
    from alignup.kubernetes.versions import KubeletVersion
    from alignup.machine.machine import Machine
    from alignup.node import Node
    from alignup.pictures.picture import Scene
    from alignup.replay.scenario import Resize

_SPREADS = ("cores", "numa")
# What `--machine` and `--node` name for this machine.
HERE = "/"
GZIP_MAGIC = b"\x1f\x8b"
CHUNK = 1 << 20
# The most bytes of a cluster or a trace: those of some hundred thousand pods.
FILE_LIMIT = 256 << 20
# The most bytes of a line: as many as the file of a machine may have.
LINE_LIMIT = 16 << 20
BLANK_LIMIT = 1_000_000
# Of what one node is asked to take, and of one pod: more would take longer than somebody waits.
POD_LIMIT = 5_000
CONTAINER_LIMIT = 1_000
# What may be done where a kubelet refuses a configuration, by a part of its words.
_WAYS_OUT = {
    "unrecognized feature gate": "; --lenient passes over it",
    "the static policy requires": (
        "; reservedSystemCPUs reserves some; if CPUs are reserved elsewhere, --reserved-cpus gives "
        "them"
    ),
}


@contextmanager
def open_input(name: str) -> Iterator[IO[bytes]]:
    """Open a file or standard input, gunzipped if it begins as gzip does.

    Raises:
        InputError: it cannot be read, then or later.
    """
    try:
        with _raw_input(name) as file:
            if file.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC):
                import gzip  # startup counts

                uncompressed: Any = gzip.GzipFile(fileobj=file)
                yield uncompressed
            else:
                yield file
    except (EOFError, zlib.error, OSError) as error:
        number = getattr(error, "errno", None)  # an error of gzip has none
        if number is None:
            raise InputError(f"{name!r} is not a whole gzip file: {error}") from error
        raise InputError(f"cannot read {name!r}: {os.strerror(number).lower()}") from error


def _raw_input(name: str) -> AbstractContextManager[Any]:
    """Return a file or standard input, which stays open."""
    if name == "-":
        return nullcontext(sys.stdin.buffer)
    return open(name, "rb")  # noqa: PTH123  # pathlib is slow to import


def read_bytes(name: str, limit: int = FILE_LIMIT) -> bytes:
    """Return the bytes of a file or of standard input, gunzipped.

    Args:
        name: of the file; `-` is standard input.
        limit: the most bytes that it may hold; a longer one is not read whole.

    Raises:
        InputError: it cannot be read, or is longer.
    """
    data = io.BytesIO()  # which hands over what it has without a copy
    remaining = limit + 1
    with open_input(name) as file:
        while remaining and (chunk := file.read(min(remaining, CHUNK))):
            data.write(chunk)
            remaining -= len(chunk)

    if not remaining:
        raise InputError(f"{name} has more than {limit} bytes")

    return data.getvalue()


class _Utf8(io.RawIOBase):
    """A file of UTF-16 as UTF-8, as far as it is there; what is no character is replaced."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-16")("replace")
        self._unread = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        is_end = False
        while not self._unread and not is_end:
            chunk = self._file.read1(CHUNK)
            is_end = not chunk
            self._unread = self._decoder.decode(chunk, final=is_end).encode()

        count = min(len(buffer), len(self._unread))
        buffer[:count] = self._unread[:count]
        self._unread = self._unread[count:]
        return count


def as_utf8(file: Any) -> IO[bytes]:
    """Return a file as UTF-8, where it begins as a text of UTF-16 does; else as it is.

    Args:
        file: as `open_input` returns it.
    """
    from alignup.text.documents import is_utf_16

    if not is_utf_16(file.peek(2)[:2]):
        return file  # type: ignore[no-any-return]
    return io.BufferedReader(_Utf8(file), CHUNK)


def read_lines(file: IO[bytes], name: str) -> Iterator[bytes]:
    """Yield the lines of a file, each as soon as it is there.

    A line of more than `LINE_LIMIT` bytes is not read whole.

    Args:
        file: as `open_input` returns it.
        name: the name of the file in errors.

    Raises:
        InputError: a line is longer, or too many in a row are blank.
    """
    number = 0
    blank_count = 0
    while line := file.readline(LINE_LIMIT + 1):
        number += 1
        if line.isspace():
            blank_count += 1
        else:
            blank_count = 0

        if blank_count > BLANK_LIMIT:
            raise InputError(f"more than {BLANK_LIMIT} blank lines in a row at {name}:{number}")
        if len(line) > LINE_LIMIT:
            raise InputError(f"a line of more than {LINE_LIMIT} bytes at {name}:{number}")
        yield line


def read_pods(names: Iterable[str]) -> list[PodDocument]:
    """Return the pods of all files, in order.

    Raises:
        InputError: a file has no pods.
    """
    from alignup.kubernetes.pod_documents import read_pods
    from alignup.text.documents import TEXT_LIMIT

    return read_pods((read_bytes(name, TEXT_LIMIT), name) for name in names)


def read_resources(names: Iterable[str]) -> Resources:
    """Return the objects of claims in some files; see `read_claims`."""
    return read_claims({name: read_bytes(name) for name in names})


def read_claims(texts: Mapping[str, bytes]) -> Resources:
    """Return the objects of claims in some texts.

    Pods that are read from now on may have claims without a warning.

    Raises:
        InputError: a text is not what it should be.
    """
    from alignup.claims.read import Resources, read_resources
    from alignup.kubernetes.manifest import IGNORED_CLAIMS

    warnings.filterwarnings("ignore", IGNORED_CLAIMS)
    return sum((read_resources(text, name) for name, text in texts.items()), start=Resources())


class SiteSource(options.Gathered):
    """The machine and the devices of which work is given parts, and by which rules."""

    machine: str = options.machine
    selectors: tuple[str, ...] = options.selectors
    inventory: str | None = options.inventory
    resources: tuple[str, ...] = options.resources
    pair: tuple[str, ...] = options.several(
        "Choose devices of two resources in pairs, nearest in the PCIe tree first. With "
        "`:required`, refuse pairs that do not share a PCIe root.",
        "RESOURCE,RESOURCE[:required]",
    )
    full_cores: bool = options.flag("Give whole cores only (full-pcpus-only).")
    spread: str | None = options.word(
        "Spread CPUs over cores or NUMA nodes (distribute-cpus-across-...).", _SPREADS
    )
    same_l3: bool = options.flag(
        "Prefer CPUs that share an L3 cache (prefer-align-cpus-by-uncorecache).", "--same-l3"
    )
    same_socket: bool = options.flag("Align CPUs by socket, not by NUMA node (align-by-socket).")
    layout: str | None = options.word(
        "Place ranks in turn on NUMA nodes, sockets or L3 caches, or on one core after the other, "
        "like mpirun's --map-by.",
        ("numa", "socket", "l3", "core"),
    )
    idle_siblings: bool = options.flag("Use one CPU of each core and keep its siblings idle.")
    memory_from: str | None = options.value(
        "NUMA nodes that memory comes from. near: those of the CPUs, then the nearest others; "
        "cpus: those of the CPUs only; any: wherever most is free; or a list such as 0,2.",
        metavar="near|cpus|any|NODES",
        shell_complete=options.one_of("near", "cpus", "any"),
    )
    memory_kind: str | None = options.word(
        "The kind of memory to use.  [default: any kind except memory of GPUs]",
        ("dram", "hbm", "any"),
    )
    as_kubelet: bool = options.flag(
        "Allocate memory and cores like a kubelet's managers, not by the rules for a machine "
        "without one."
    )
    isolated: bool = options.flag("Use the CPUs of isolcpus and nohz_full, and no others.")
    reserve: str = options.value(
        "Place nothing on these CPUs, such as 0,64.", default="", metavar="CPUS"
    )

    def load(self, resources: Iterable[str] = (), **settings: Any) -> Site:
        """Return the machine with the devices of some resources.

        Args:
            resources: the resources.
            settings: what `load_site` takes.

        Raises:
            InputError: there is no such machine or resource, or it cannot be read; or a rule is
                none.
        """
        from alignup.host.leases.local_machine import load_site  # startup counts
        from alignup.host.parts.usable import MemoryRule
        from alignup.kubernetes.policy_options import CpuOptions
        from alignup.machine.cpuset import CPUSet
        from alignup.providers.devices.pairs import read_pairs

        if self.spread not in {None, *_SPREADS}:
            raise InputError.at("--spread", f"one of {', '.join(_SPREADS)}", self.spread)

        read_pairs(self.pair, "--pair")
        cpu_options = CpuOptions(
            full_pcpus_only=self.full_cores,
            prefer_align_cpus_by_uncorecache=self.same_l3,
            distribute_cpus_across_numa=self.spread == "numa",
            distribute_cpus_across_cores=self.spread == "cores",
            align_by_socket=self.same_socket,
        )
        return load_site(
            self.machine,
            resources=resources,
            selectors=self.selectors,
            pair=self.pair,
            cpu_options=cpu_options,
            devices=read_mapping(self.inventory) if self.inventory else None,
            where=self.inventory or "devices",
            claims=read_resources(self.resources) if self.resources else None,
            layout=self.layout or "",
            idle_siblings=self.idle_siblings,
            as_kubelet=self.as_kubelet,
            memory_rule=MemoryRule.parse(self.memory_from, self.memory_kind),
            isolated=self.isolated,
            reserve=CPUSet.parse(self.reserve, "--reserve"),
            **{"tell": complain, **settings},
        )

    def load_seen(self, counts: Mapping[str, int], resources: Iterable[str]) -> Site:
        """Return the machine with only those devices to give out that this process sees.

        Say which are hidden.

        Args:
            counts: by resource, how many devices are asked for.
            resources: as `load` takes them.

        Raises:
            InputError: as `load`, or the process sees no device of a resource.
        """
        from alignup.host.leases.local_machine import only_seen  # startup counts
        from alignup.host.parts.visible_devices import launched_rank

        rank = launched_rank(os.environ)
        site, hidden = only_seen(self.load(resources), counts, os.environ, rank)
        for sentence in (*hidden.notes, *hidden.sentences):
            complain(sentence)

        return site

    @property
    def set_options(self) -> str:
        """The options that say something about the machine, its devices or rules.

        An agent is started with its own.
        """
        defaults = type(self)()
        names = []
        for name, declared in self.declared().items():
            if getattr(self, name) not in {None, False, getattr(defaults, name)}:
                names.append(declared.option_names(name)[0])

        return ", ".join(names)


def seen_by_this_process(counts: Mapping[str, int]) -> dict[str, Seen]:
    """Return by resource the devices that an agent may choose; say which are hidden.

    Args:
        counts: by resource, how many devices are asked for.

    Raises:
        InputError: this process sees none of a resource.
    """
    # startup counts
    from alignup.host.leases.local_machine import seen_by_client
    from alignup.host.parts.visible_devices import launched_rank

    seen, hidden = seen_by_client(counts, os.environ, launched_rank(os.environ))
    for sentence in (*hidden.notes, *hidden.sentences):
        complain(sentence)

    return seen


class KubeletSource(options.Gathered):
    """The options by which the subcommands of `alignup node` find a node."""

    root: str = options.node
    kubelet_dir: str | None = options.kubelet_dir
    config: str | None = options.config
    reserved_cpus: str = options.reserved_cpus
    machine: str | None = options.a_machine("A machine in place of the one beneath the root.")
    version: KubeletVersion | None = options.kubelet_version
    node_name: str | None = options.value(
        "Which node, if an archive or a cluster has several.", metavar="NAME"
    )

    def read(self) -> KubeletNode:
        """Return the node.

        Raises:
            InputError: a file is damaged, or there is none of a kubelet.
        """
        from alignup.kubelet.read import read_kubelet

        return read_kubelet(self.root, **self.how())

    def how(self) -> KubeletOptions:
        """Return what is to be read in place of what is beneath the root.

        Raises:
            InputError: there is no such machine, or it cannot be read.
        """
        from alignup.machine.load import load_machine

        machine = None
        if self.machine is not None:
            machine = load_machine(self.machine, self.node_name).machine

        return {
            "kubelet_dir": self.kubelet_dir,
            "config": self.config,
            "reserved_cpus": self.reserved_cpus,
            "machine": machine,
            "node_name": self.node_name,
            "kubelet_version": self.version,
        }


class NodeSource(options.Gathered):
    """The options of a node with its configuration, devices and pods."""

    machine: str = options.machine
    kubelet_node: str | None = options.kubelet_node
    config: str | None = options.config
    reserved_cpus: str = options.reserved_cpus
    inventory: str | None = options.inventory
    selectors: tuple[str, ...] = options.selectors
    near_cpus: bool = options.near_cpus
    resources: tuple[str, ...] = options.resources
    dra_hints: bool = options.flag(
        "Let devices of claims give hints like devices of plugins. No kubelet does this."
    )
    lenient: bool = options.flag(
        "Accept configuration options whose feature gates are off by default, with a warning."
    )
    ignore_unknown: bool = options.flag(
        "Exit with 0 although a pod requests devices, or pinned memory, that nothing here tells of."
    )
    managers_only: bool = options.flag(
        "Skip what a kubelet checks outside its managers: totals of all pods, their number, node "
        "name, selector, taints, ports and operating system."
    )
    beyond_kubelet: bool = options.flag(
        "Obey the policies in a pod's annotation alignup.dev/policies or in its RuntimeClass. "
        "Kubelets ignore both."
    )
    reading: str = options.reading
    replicas: int | None = options.number(
        "Take N copies of every pod.  [default: as its Deployment, StatefulSet or Job says]",
        maximum=10_000,
    )
    node_name: str | None = options.value(
        "Take the pods of this node and unbound pods. Needed if the pods, or the files of an "
        "archive, are from several nodes.",
        metavar="NAME",
    )
    kubeconfig: str | None = options.file(
        "Read the node --node-name from this cluster.", "--kubeconfig"
    )


class AskedPods(Record):
    """The pods that a command is asked about.

    Attributes:
        pods: those to decide on, in order.
        present: those that are on the node already, as the node knows them.
        rejected: those that their kubelet rejected, newest first.
        before: those of the input that nobody asks about, and that come before the one that is
            asked about.
        memberships: by uid of those to decide on and those that are present, the groups whose
            members they are; none where some of the input are not asked about.
    """

    pods: tuple[Pod, ...] = ()
    present: tuple[Pod, ...] = ()
    rejected: tuple[PodDocument, ...] = ()
    before: tuple[Pod, ...] = ()
    memberships: Mapping[str, Membership] = field(default_factory=dict)


class LoadedNode(Record):
    """A node, with a title for people and the example pods of its machine.

    Attributes:
        pods: manifests of the example pods of a catalog machine.
        pod_list: the List of the pods of a kubelet's node, where there is one.
        claims: the objects of claims that were collected with it; None: there are none, or others
            are given.
    """

    node: Node
    title: str
    pods: tuple[Any, ...] = ()
    pod_list: bytes | None = None
    claims: Resources | None = None


def load_node(source: NodeSource, version: KubeletVersion | None = None) -> LoadedNode:
    """Return the node that the options describe.

    A catalog machine brings its devices and a configuration that aligns; both give way to the
    options. So do those of a kubelet's node.

    Args:
        source: the options.
        version: the kubelet's release; None: the newest that is out.

    Raises:
        InputError: an input is not what it should be.
    """
    claims = read_resources(source.resources) if source.resources else None
    if source.kubelet_node is not None:
        loaded = load_kubelet_node(source.kubelet_node, source, version)
    elif source.kubeconfig is not None:
        published = load_cluster_node(source.kubeconfig, source.node_name)
        loaded = LoadedNode(published, title_of(str(source.node_name), published))
    else:
        loaded = load_described_node(source, version)

    node = loaded.node
    node.whole_verdict = not source.managers_only
    node.beyond_kubelet = source.beyond_kubelet

    claims = claims or loaded.claims
    if claims is not None:
        node.know_claims(claims, name=source.node_name or "", dra_hints=source.dra_hints)

    return loaded


def load_described_node(source: NodeSource, version: KubeletVersion | None = None) -> LoadedNode:
    """Return the node of a machine and a configuration."""
    from alignup.kubernetes.kubelet_config import KubeletConfig
    from alignup.kubernetes.versions import NEWEST
    from alignup.machine.load import load_with_devices
    from alignup.node import Node, plugins_of
    from alignup.node.node import UNKNOWN_DEVICES

    loaded = load_with_devices(
        source.machine,
        devices=read_mapping(source.inventory) if source.inventory else None,
        where=source.inventory or "devices",
        selectors=source.selectors,
        near_cpus=source.near_cpus,
        node_name=source.node_name,
    )
    release = version or NEWEST
    if source.config:
        kubelet = read_config(source.config, source, release, loaded.machine)
    else:
        fields = loaded.kubelet
        if source.reserved_cpus:
            fields = {**fields, "reservedSystemCPUs": source.reserved_cpus}
        kubelet = KubeletConfig.from_dict(fields, version=release, reading=source.reading)

    node = Node(loaded.machine, kubelet, loaded.devices, plugins_of(loaded.preferred_sets))
    node.knows_devices = loaded.machine.knows_devices
    # commands say so of each pod
    warnings.filterwarnings("ignore", UNKNOWN_DEVICES)
    return LoadedNode(node, title_of(source.machine, node), loaded.pods)


def read_config(
    name: str, source: NodeSource, version: KubeletVersion, machine: Machine
) -> KubeletConfig:
    """Return the configuration in a file, with which a kubelet starts on a machine.

    Args:
        name: of the file.
        source: the other options.
        version: the kubelet's release.
        machine: the machine.

    Raises:
        InputError: the file holds no configuration.
        ConfigError: a kubelet would not start with it.
    """
    from alignup.kubernetes.kubelet_config import load_config
    from alignup.node.restart import check_start
    from alignup.text.documents import TEXT_LIMIT

    try:
        kubelet = load_config(
            read_bytes(name, TEXT_LIMIT),
            name,
            version=version,
            lenient=source.lenient,
            reading=source.reading,
            machine=machine,
            reserved_cpus=source.reserved_cpus,
        )
        if not source.lenient:
            with errors_in(name):
                check_start(machine, kubelet)
    except ConfigError as error:
        way_out = next((way for text, way in _WAYS_OUT.items() if text in str(error)), "")
        raise ConfigError(f"{error}{way_out}") from error

    return kubelet


def asked_pods(
    names: Sequence[str],
    source: NodeSource,
    loaded: LoadedNode,
    *,
    chosen: str | None = None,
    rejected: bool = False,
) -> AskedPods:
    """Return the pods in some files.

    Without files they are the example pods of the machine, or the rejected ones of its node.

    Args:
        names: of the files.
        source: the options of the command.
        loaded: the node; pods that it has already are told apart.
        chosen: `namespace/name` of the only pod that is asked about, or its name; None: all.
        rejected: return those that their kubelet rejected, too; False: they are ignored, as all
            that have ended.

    Raises:
        InputError: there are none, or a file is not what it should be.
    """
    from alignup.kubernetes.manifest import read_pod
    from alignup.kubernetes.pod_documents import (
        PodDocument,
        expanded,
        expanded_documents,
        live_pods,
    )

    of_node = not names and rejected and source.kubelet_node is not None
    if names:
        documents = read_pods(names)
    elif of_node:
        documents = _rejected_documents(source, loaded)
    elif loaded.pods:
        examples = [PodDocument(read_pod(manifest)) for manifest in loaded.pods]
        return AskedPods(tuple(expanded(examples, source.replicas)))
    else:
        raise InputError("name at least one POD.yaml; only some catalog machines have example pods")

    node_name = source.node_name
    if not node_name and loaded.node.node_object:
        node_name = loaded.node.node_object.name

    chosen_uids = {document.pod.uid for document in documents}
    if chosen is not None:
        noun = "rejected pod" if of_node else "pod"
        chosen_documents = _chosen_documents(documents, chosen, noun)
        chosen_uids = {document.pod.uid for document in chosen_documents}
        documents = [
            document
            for document in documents
            if document.pod.uid in chosen_uids or not document.has_ended
        ]
        node_name = node_name or chosen_documents[-1].node_name

    live = live_pods(documents, node_name or None, rejected=rejected)
    pods_on_node = {pod.uid: pod for pod in loaded.node.pods}
    present = [
        pods_on_node[document.pod.uid]
        for document in live
        if document.pod.uid in pods_on_node and document.pod.uid in chosen_uids
    ]
    rejections = [document for document in live if document.was_rejected]
    rejections.sort(key=lambda document: document.started or document.created, reverse=True)

    arriving = [
        document
        for document in live
        if document.pod.uid not in pods_on_node and not document.was_rejected
    ]
    positions = [
        position for position, document in enumerate(arriving) if document.pod.uid in chosen_uids
    ]
    asked_documents = [arriving[position] for position in positions]
    until_last = arriving[: positions[-1]] if positions else arriving
    earlier = [document for document in until_last if document.pod.uid not in chosen_uids]
    _check_amounts(earlier, None)
    _check_amounts(asked_documents, source.replicas)
    arrivals = expanded_documents(asked_documents, source.replicas)
    memberships = {}
    if chosen is None:
        of_groups = [
            *(document for document in live if document.pod.uid in pods_on_node),
            *arrivals,
        ]
        memberships = {
            document.pod.uid: document.membership
            for document in of_groups
            if document.membership is not None
        }

    pods = AskedPods(
        pods=tuple(document.pod for document in arrivals),
        present=tuple(present),
        rejected=tuple(rejections),
        before=tuple(expanded(earlier)),
        memberships=memberships,
    )
    if pods.pods or pods.present or pods.rejected:
        return pods
    if documents:
        raise InputError("no pod is left")
    raise InputError(f"no pod of {source.kubelet_node} was rejected")


def _rejected_documents(source: NodeSource, loaded: LoadedNode) -> list[PodDocument]:
    """Return the pods that the kubelet of a node has rejected.

    Raises:
        InputError: the node has no list of pods.
    """
    from alignup.kubernetes.pod_documents import read_pod_documents

    if loaded.pod_list is None:
        raise InputError(
            f"{source.kubelet_node} has no list of pods (pods.json); name a POD.yaml, or an "
            "archive with pods: `alignup node collect FILE --pods PODS.json` packs one"
        )

    documents = read_pod_documents(loaded.pod_list, "pods.json")
    return [document for document in documents if document.was_rejected]


def _check_amounts(documents: Sequence[PodDocument], replicas: int | None) -> None:
    """Check that pods are no more than a node is asked about, and no larger.

    Args:
        documents: those of the pods.
        replicas: how many of each; None: as many as each says.

    Raises:
        InputError: they are.
    """
    count = sum(document.count if replicas is None else replicas for document in documents)
    if count > POD_LIMIT:
        raise InputError.at("the input", f"at most {POD_LIMIT} pods for one node", count)

    for document in documents:
        container_count = len(document.pod.all_containers)
        if container_count > CONTAINER_LIMIT:
            expected = f"at most {CONTAINER_LIMIT} containers"
            raise InputError.at(f"pod {document.pod.namespaced_name}", expected, container_count)


def _chosen_documents(
    documents: Sequence[PodDocument], chosen: str, noun: str
) -> list[PodDocument]:
    """Return the pods of a name, or of a namespace and a name.

    Raises:
        InputError: there are none.
    """
    chosen_documents = [
        document
        for document in documents
        if chosen in {document.pod.name, document.pod.namespaced_name}
    ]
    if not chosen_documents:
        names = some_of([document.pod.namespaced_name for document in documents], 8)
        raise InputError(f"no {noun} {chosen!r} is in the input, which has {names or 'none'}")

    return chosen_documents


def asked_resizes(names: Sequence[str], source: NodeSource, loaded: LoadedNode) -> list[Resize]:
    """Return the resizes that files of pods ask for.

    Each pod is on the node, and has the resources that are wanted.

    Raises:
        InputError: there are none, a pod is not on the node, or a file is not what it should be.
    """
    from alignup.kubernetes.manifest import resources_of
    from alignup.kubernetes.pod_documents import live_pods
    from alignup.replay.scenario import Resize

    if source.kubelet_node is None:
        raise click.UsageError("--resize needs --node, whose pods are resized")
    if not names:
        raise click.UsageError("--resize needs a POD.yaml with the resources that are wanted")

    by_uid = {pod.uid: pod for pod in loaded.node.pods}
    by_name = {(pod.namespace, pod.name): pod for pod in loaded.node.pods}
    resizes = []
    for document in live_pods(read_pods(names), source.node_name, one_node=False):
        changed_pod = document.pod
        name = changed_pod.namespace, changed_pod.name
        pod = by_uid.get(changed_pod.uid) or by_name.get(name)
        if pod is None:
            expected = "pods that are on the node"
            raise InputError.at("--resize", expected, changed_pod.namespaced_name)

        resizes.append(Resize(pod.uid, *resources_of(changed_pod)))

    return resizes


def load_cluster_node(kubeconfig: str, name: str | None) -> Node:
    """Return a node as it publishes itself in a cluster.

    Raises:
        AlignupError: there is no name, or no such node, or the cluster cannot be asked.
    """
    from alignup.control_plane.scheduler.ask import ask, read_cluster

    if name is None:
        raise click.UsageError("--kubeconfig needs --node-name")
    return ask(kubeconfig, read_cluster).node(name)


def load_kubelet_node(
    root: str, source: NodeSource, version: KubeletVersion | None = None
) -> LoadedNode:
    """Return the node of a kubelet, with its pods; `root` is what `--node` takes.

    Raises:
        InputError: a file is damaged, or options contradict each other.
    """
    from alignup.kubelet.layout import CLAIMS, PODS, open_node
    from alignup.kubelet.read import machine_of, make_node, read_records
    from alignup.machine.device_inventory import decode_inventory
    from alignup.machine.load import load_machine
    from alignup.node.restart import check_start

    if source.reading != "kubelet":
        raise click.UsageError(
            "--reading documents cannot be used with --node: that node decides like its kubelet"
        )

    if source.selectors or source.near_cpus:
        raise click.UsageError(
            "--device-resource and --near-cpus cannot be used with --node, which has the devices"
        )

    files = open_node(root, None, source.node_name)
    collected = None if source.resources else files.read(CLAIMS)
    claims = None
    if collected is not None:
        claims = read_claims({files.place(CLAIMS): collected})

    other_machine: Machine | None = None
    if source.machine != HERE:
        other_machine = load_machine(source.machine, source.node_name).machine
    records = read_records(
        files,
        {
            "config": source.config,
            "reserved_cpus": source.reserved_cpus,
            "kubelet_version": version,
            "machine": other_machine,
        },
    )
    machine = other_machine or machine_of(files)
    devices = None
    if source.inventory is not None:
        mapping = read_mapping(source.inventory)
        devices = decode_inventory(mapping, machine, source.inventory)

    node = make_node(records, machine, devices).node
    if source.config and not source.lenient:
        with errors_in(source.config):
            check_start(machine, node.config, records.memory_capacity)

    return LoadedNode(node, title_of(root, node), pod_list=files.read(PODS), claims=claims)


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
    from alignup.kubernetes.versions import NEWEST

    name = "this machine" if machine == HERE else machine
    nodes = counted(len(node.machine.numa_nodes), "NUMA node")
    cpus = counted(node.machine.cpu_count, "CPU")

    config = node.config
    parts = [f"policy {node.manager.policy.name}"]
    if node.manager.policy.name != "none":
        parts.append(f"scope {node.scope_name}")

    parts.append(f"CPU manager {config.cpu_manager_policy}")
    parts.append(f"memory manager {config.memory_manager_policy}")
    if config.version != NEWEST:
        parts.append(f"kubelet {config.version.title}")

    return f"{name}: {nodes}, {cpus}; {', '.join(parts)}"


def write_text(name: str, text: str) -> None:
    """Write a text file, or to standard output for `-`.

    Raises:
        InputError: the file cannot be written.
    """
    if name == "-":
        click.echo(text, nl=False)
        return

    with system_errors("cannot write a file", name):
        write_output(name, text.encode())


class Pictures(options.Gathered):
    """The options of pictures."""

    svg: str | None = options.svg
    html: str | None = options.html

    def __bool__(self) -> bool:
        return self.svg is not None or self.html is not None

    @property
    def take_the_output(self) -> bool:
        """Whether a picture goes to standard output, where nothing else is printed then."""
        return "-" in (self.svg, self.html)

    def draw(self, scene: Scene) -> None:
        """Write the pictures of a machine that are asked for, with what its containers hold.

        Raises:
            InputError: a file cannot be written.
        """
        from alignup.pictures.picture import drawing_of, machine_page

        self.write(lambda: drawing_of(scene), lambda: machine_page(scene))

    def write(self, svg: Callable[[], str], html: Callable[[], str]) -> None:
        """Write the files that are asked for, with what functions return.

        Raises:
            InputError: a file cannot be written.
        """
        for name, make in ((self.svg, svg), (self.html, html)):
            if name is not None:
                write_text(name, make())
