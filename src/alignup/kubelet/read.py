"""Reads the node of a kubelet: machine, configuration, devices, and the pods with what they hold.

The API objects of a node are read here, too: its pods (`kubectl get pods -o json`) and the Node
itself.

Puts together what the modules beside this one read, decides which entries of the state files count,
puts them into the providers exactly as the files say, and says in warnings what the answer lacks
because something was not there.
"""

from __future__ import annotations

import os  # noqa: TC003  # evaluated by whoever asks for the types of the options
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence  # as above
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

import msgspec

from alignup.errors import ConfigError, InputError, errors_in, warn
from alignup.kubelet.checkpoints import (
    NO_NUMA_NODE,
    DeviceCheckpoint,
    KubeletState,
    MemoryState,
    checksum_of,
    decode_checkpoint,
    read_state,
)
from alignup.kubelet.config import Configuration, read_configuration
from alignup.kubelet.layout import (
    ALLOCATED,
    CONFIG,
    CPU_STATE,
    KUBELET,
    NODE,
    PODS,
    NodeFiles,
    open_node,
)
from alignup.kubelet.pod_resources_client import find_answers
from alignup.kubernetes.kubelet_config import KubeletConfig, config_from_document
from alignup.kubernetes.manifest import resized_pod
from alignup.kubernetes.node_fit import NodeObject, node_object
from alignup.kubernetes.platform_reservations import with_platform_reservation
from alignup.kubernetes.pod import CONFIG_SOURCE, Container, Pod, QOSClass, source_of
from alignup.kubernetes.pod_documents import PodDocument, pod_document
from alignup.kubernetes.versions import (
    NEWEST,
    KubeletVersion,
    PodLevel,
    newer_release,
    parse_version,
)
from alignup.machine.cpuset import CPUSet
from alignup.machine.device_inventory import Device, Inventory, devices_near
from alignup.machine.machine import Machine  # noqa: TC001  # as above
from alignup.machine.sysfs.machine import describe, meminfo_bytes
from alignup.node.node import Node
from alignup.providers.memory.provider import RestoredMemory
from alignup.records import Record, replace
from alignup.text.json_text import decode_json
from alignup.text.typed import decode

if TYPE_CHECKING:
    from alignup.kubelet.pod_resources import Allocatable, PodResources
    from alignup.kubernetes.pod_documents import PodDocument
    from alignup.topology_manager.admission import MemoryBlock

# From this minor release on, PodResources lists no pods that have ended
# (KubeletPodResourcesListUseActivePods).
_LISTS_ACTIVE_PODS: Final = 34

_STATIC_POD: Final = re.compile("[0-9a-f]{32}")

# Of the file of what is allocated; up to Kubernetes 1.37 it names none.
_ALLOCATED_VERSIONS: Final = ("", "v2")


def read_node_pods(data: bytes, source: str = "pods.json") -> tuple[PodDocument, ...]:
    """Return the pods of a List, in its order.

    Args:
        data: a List of Pods, or one Pod, as JSON.
        source: its name in errors.

    Raises:
        InputError: it is no JSON, no List of Pods, or a Pod in it is none that an API server takes.
    """
    value: object = decode_json(data, "the JSON of a List of Pods", source)
    if not isinstance(value, dict):
        raise InputError.at(source, "a List of Pods", value)

    items = [value] if value.get("kind") == "Pod" else value.get("items")
    if items is None and str(value.get("kind", "")).endswith("List"):
        items = []  # an empty list may be left out

    if not isinstance(items, list):
        raise InputError.at(f"items in {source}", "a list of Pods", items)

    with errors_in(source):
        return tuple(pod_document(item, f"items[{index}]") for index, item in enumerate(items))


class _Allocated(msgspec.Struct):
    data: str = ""
    checksum: int = 0
    version: str = ""


def read_allocated(data: bytes, source: str = "allocated_pods_state") -> dict[str, Any]:
    """Return by uid what a kubelet has allocated to each pod.

    Of those that it has admitted and not removed yet.

    A kubelet 1.38 writes whole pods, and beside them what earlier ones wrote and read. Only the
    latter is read here: all containers of a pod are in it then.

    Args:
        data: its own file (`pkg/kubelet/allocation/state/checkpoint.go`).
        source: the file's name in errors.

    Raises:
        InputError: it is damaged, or of a version that is not known.
    """
    wire = decode_checkpoint(data, _Allocated, "the JSON of allocated resources", source)
    if wire.version not in _ALLOCATED_VERSIONS:
        known = "no version or " + " or ".join(filter(None, _ALLOCATED_VERSIONS))
        raise InputError.at(f"version in {source}", known, wire.version)

    if checksum_of(f"(string){wire.data}") != wire.checksum:
        raise InputError(f"expected another checksum than {wire.checksum} at {source}")

    plain: object = decode_json(wire.data, "the JSON of allocated resources", f"data in {source}")
    return decode(plain, _Entries, f"data in {source}").entries


class _Entries(msgspec.Struct):
    entries: dict[str, Any] = msgspec.field(default_factory=dict)


def without_pods(data: bytes) -> bytes | None:
    """Return the file of what is allocated without the whole pods that a kubelet 1.38 writes.

    These have environments, arguments and annotations. Files of earlier kubelets stay as they are.

    Args:
        data: the file; if its checksum is wrong, so is that of what is returned.

    Returns:
        The file; None: it has whole pods, and is so damaged that they cannot be taken out.
    """
    if b"podList" not in data:
        return data

    expected = "the JSON of allocated resources"
    try:
        wire = decode_checkpoint(data, _Allocated, expected, "")
        plain: object = decode_json(wire.data, expected)
        entries = decode(plain, _Entries).entries
    except InputError:
        return None

    text = msgspec.json.encode({"entries": entries}).decode()
    is_intact = checksum_of(f"(string){wire.data}") == wire.checksum
    checksum = checksum_of(f"(string){text}") if is_intact else wire.checksum
    return msgspec.json.encode({"version": wire.version, "data": text, "checksum": checksum})


def with_allocated(pod: Pod, entry: Any) -> Pod:
    """Return a pod with the CPU and memory that its kubelet has allocated.

    They may be less than it now requests.

    Raises:
        InputError: the entry is not one of this pod.
    """
    if not isinstance(entry, dict):
        return pod

    # ephemeral containers, which have none, are in it too
    names = {container.name for container in pod.all_containers}
    containers = {
        name: _amounts(resources)
        for name, resources in (entry.get("ContainerResources") or {}).items()
        if name in names or resources
    }
    whole = entry.get("PodLevelResources") if source_of(pod).raw_pod else None
    return resized_pod(pod, containers, whole and _amounts(whole))


def allocated_containers(entry: Any) -> set[str]:
    """Return the containers of a pod to which its kubelet has allocated something.

    These are all but most init ones; with Kubernetes 1.38 all, ephemeral ones too.
    """
    if not isinstance(entry, dict):
        return set()

    # 1.32 has the containers alone
    containers = entry.get("ContainerResources", entry)
    return set(containers) if isinstance(containers, dict) else set()


def _amounts(resources: Any) -> dict[str, Any]:
    return {kind: resources[kind] for kind in ("requests", "limits") if kind in resources}


def read_node_object(data: bytes, source: str = "node.json") -> NodeObject:
    """Return what a Node says.

    Args:
        data: a Node, or a List of one Node, as JSON.
        source: its name in errors.

    Raises:
        InputError: it is no JSON, or no Node.
    """
    value: object = decode_json(data, "the JSON of a Node", source)
    if (
        isinstance(value, dict)
        and isinstance(value.get("items"), list)
        and len(value["items"]) == 1
    ):
        value = value["items"][0]

    return node_object(value, source)


class NodeRecords(Record):
    """All that is known of a node, before anything is made of it.

    Attributes:
        version: the release by which the kubelet is judged.
        pods: None: it is not known which pods there are.
        listed: the answer to List; None: there is none.
        allocatable: the answer to GetAllocatableResources; None: there is none.
        allocated: by uid what was allocated to all pods that were admitted and are not removed yet;
            None: not known.
        newer: the kubelet's release, where it is newer than those known and so judged as the
            newest; empty: it is known.
        memory_capacity: see `NodeObject`; 0 where another machine than that of the files is meant.
    """

    files: NodeFiles
    version: KubeletVersion
    configuration: Configuration
    state: KubeletState
    pods: tuple[PodDocument, ...] | None
    listed: tuple[PodResources, ...] | None
    allocatable: Allocatable | None
    node_object: NodeObject | None
    allocated: Mapping[str, Any] | None = None
    newer: str = ""
    memory_capacity: int = 0


class StaleEntries(Record):
    """What the state files have of pods and containers that are gone.

    Attributes:
        pods: the uids of pods that are gone.
        containers: by pod uid the names of containers that are gone, those of gone pods too.
    """

    pods: frozenset[str] = frozenset()
    containers: Mapping[str, Sequence[str]] = MappingProxyType({})


class KubeletNode(Record):
    """A node as its kubelet has it, with the records that it was made of.

    Attributes:
        node: the node.
        records: of the node.
        stale: what the state files have of pods and containers that are gone.
    """

    node: Node
    records: NodeRecords
    stale: StaleEntries


def read_kubelet_node(
    root: str | os.PathLike[str] = "/", **options: Unpack[KubeletOptions]
) -> Node:
    """Return the node of a kubelet: machine and configuration, and its pods with what they hold.

    Entries of pods that are gone do not count, since the kubelet drops them at its next admission.
    What the answer lacks because a file is not there is warned of. See `docs/kubelet-node.md`.

    Args:
        root: the root of the machine, or of a copy, or an archive of `alignup node collect`.
        options: see `KubeletOptions`.

    Raises:
        InputError: a file is damaged, does not belong to the machine, or there is none of a
            kubelet.
        ConfigError: a kubelet would refuse to start with this configuration, or with this state.

    Examples:
        >>> from alignup import read_kubelet_node
        >>> node = read_kubelet_node("node.tar.xz", kubelet_version="1.36")    # doctest: +SKIP
    """
    return read_kubelet(root, **options).node


def read_kubelet(
    root: str | os.PathLike[str] = "/", **options: Unpack[KubeletOptions]
) -> KubeletNode:
    """Return the node of a kubelet, with the records that it is made of; see `read_kubelet_node`.

    Raises:
        InputError: as there.
        ConfigError: as there.
    """
    files = open_node(root, options.get("kubelet_dir"), options.get("node_name"))
    records = read_records(files, options)
    return make_node(records, options.get("machine") or machine_of(files), options.get("devices"))


def machine_of(files: NodeFiles) -> Machine:
    """Return the machine that the kernel's files of a node describe.

    Raises:
        InputError: there are none, or they describe none.
    """
    kernel = files.kernel
    if kernel is None:
        missing = f"no folder sys, which describes the machine, at {files.source}"
        raise InputError(
            f"{missing}; --machine FILE gives it, or `tar czf FILE -C / sys/devices/system` packs "
            "it"
        )

    return describe(kernel)


def read_records(
    files: NodeFiles,
    options: KubeletOptions,
    state_of: Callable[[KubeletVersion], KubeletState] | None = None,
) -> NodeRecords:
    """Return all records of a node.

    Args:
        files: the node's files.
        options: as those of `read_kubelet_node`; devices do not matter.
        state_of: returns the state, given the kubelet's release; None: that of the files, which
            must be intact.

    Raises:
        InputError: a file is damaged, or there is no file of a kubelet at all; or the release is
            too old.
    """
    configuration = read_configuration(
        files,
        options.get("config"),
        options.get("config_dir"),
        options.get("reserved_cpus") or "",
    )
    pods = _read(files, PODS, read_node_pods)
    node_object = _read(files, NODE, read_node_object)
    if pods is not None:
        pods = _of_one_node(pods, node_object, files.place(PODS))
        pods = tuple(map(_marked_if_static, pods))

    release = options.get("kubelet_version")
    if not release and node_object is not None:
        release = node_object.kubelet_version
    release = release or NEWEST
    version = parse_version(release)

    allocated = _allocated(files)
    if pods is not None and allocated is not None:
        pods = tuple(_with_allocated(pod, allocated.get(pod.pod.uid)) for pod in pods)

    ids = {
        identity: (document.pod.uid, name)
        for document in pods or ()
        for identity, name in document.container_ids.items()
    }
    if state_of is None:
        state = read_state(files, version).named(ids)
    else:
        state = state_of(version)
        with suppress(InputError):  # of containers that are gone
            state = state.named(ids)

    listed, allocatable = find_answers(files)
    if state.is_empty and not configuration.source and listed is None:
        missing = f"no files of a kubelet at {files.source}, such as {CONFIG} or {CPU_STATE}"
        raise InputError(f"{missing}; `alignup node collect FILE` on the node packs them")

    return NodeRecords(
        files,
        version,
        configuration,
        state,
        pods,
        listed,
        allocatable,
        node_object,
        allocated,
        newer_release(release),
        0 if options.get("machine") else _memory_capacity(files),
    )


def _marked_if_static(document: PodDocument) -> PodDocument:
    """Return a pod with the mark of a static one, which archives of earlier releases lack.

    Only a kubelet makes uids without dashes.
    """
    pod = document.pod
    if not _STATIC_POD.fullmatch(pod.uid) or CONFIG_SOURCE in pod.annotations:
        return document
    return replace(
        document, pod=pod.renamed(annotations={**pod.annotations, CONFIG_SOURCE: "file"})
    )


def _memory_capacity(files: NodeFiles) -> int:
    """Return the bytes of memory of the whole machine by its kernel; 0: it is not known."""
    kernel = files.kernel
    return 0 if kernel is None else meminfo_bytes(kernel.read("proc/meminfo"))


def _allocated(files: NodeFiles) -> dict[str, Any] | None:
    """Return what is allocated to all admitted pods, as kubelets keep it that resize pods.

    None: this one does not.
    """
    try:
        allocated: dict[str, Any] | None = _read(files, ALLOCATED, read_allocated)
    except InputError as error:
        warn(f"what was allocated to pods is not known: {error}")
        return None

    return allocated


def _with_allocated(document: PodDocument, entry: Any) -> PodDocument:
    """Return a pod with what its kubelet has allocated to it, while a resize waits."""
    with suppress(InputError, AttributeError, TypeError):  # an entry of another shape
        return replace(document, pod=with_allocated(document.pod, entry))
    return document


def _read(files: NodeFiles, path: str, read: Any) -> Any:
    """Return what a file says; None: there is no such file."""
    data = files.read(path)
    if data is None:
        return None
    return read(data, files.place(path))


def _of_one_node(
    pods: tuple[PodDocument, ...], node: NodeObject | None, place: str
) -> tuple[PodDocument, ...]:
    """Return the pods of the node; those that are bound to another one are ignored.

    Raises:
        InputError: they are bound to several nodes, and the Node's name is not known.
    """
    if node is not None and node.name:
        return tuple(pod for pod in pods if pod.node_name in {"", node.name})

    names = sorted({pod.node_name for pod in pods if pod.node_name})
    if len(names) > 1:
        raise InputError.at(
            place, "pods of one node, or a node.json beside them that names it", names
        )

    return pods


def make_node(
    records: NodeRecords,
    machine: Machine,
    devices: Inventory | None = None,
    *,
    keeps_gone: bool = False,
) -> KubeletNode:
    """Return the node that records describe.

    Args:
        records: of the node.
        machine: the node's.
        devices: by resource, the devices that plugins report; None: those of the records.
        keeps_gone: pods that are gone are on the node with what they hold. A kubelet that starts
            drops them only when it has admitted all others again (`removeStaleState` of
            `cpumanager/cpu_manager.go` waits until all sources are ready).

    Raises:
        InputError: the records contradict the machine or each other.
        ConfigError: a kubelet would refuse to start with the configuration.
    """
    config = config_of(records, machine)
    _check_policies(records, config)
    if devices is None:
        devices = _devices(records)
    node_object = records.node_object
    if records.memory_capacity:
        node_object = replace(
            node_object or NodeObject(knows_labels=False), memory_capacity=records.memory_capacity
        )
    node = Node(machine, config, devices, node_object=node_object)

    stale = stale_entries(records)

    def is_stale(uid: str, name: str | None) -> bool:
        if name:
            return name in stale.containers.get(uid, ())
        return uid in stale.pods

    state = records.state.without_nowhere(is_stale)
    if not keeps_gone:
        state = state.without(is_stale)
    restore(node, state, [pod.read_as(config.profile.pods) for pod in _pods(records, state)])
    _note_starts(node, records)
    return KubeletNode(node, records, stale)


def _note_starts(node: Node, records: NodeRecords) -> None:
    """Note of pods that run that their init containers have ended, but for sidecars."""
    running = {document.pod.uid for document in records.pods or () if document.phase == "Running"}
    for pod in node.pods:
        if pod.uid in running and node.devices is not None:
            node.devices.started(pod, pod.containers[0].name)


def config_of(records: NodeRecords, machine: Machine | None) -> KubeletConfig:
    """Return the configuration; where there is none, the policies that the state files name.

    Args:
        records: of the node.
        machine: the node's; None: not known.

    Raises:
        InputError: a field is of the wrong type.
        ConfigError: a kubelet would refuse to start with it.
    """
    fields: Mapping[str, Any] = records.configuration.fields
    if not records.configuration.source:
        missing = f"no configuration of the kubelet at {records.files.source}"
        warn(f"{missing}: the topology policy is not known, and none is taken")
        fields = _guessed_fields(records, machine)

    source = records.configuration.source or records.files.source
    with errors_in(source):
        fields = with_platform_reservation(
            fields, records.configuration.platform, source, machine, lenient=True
        )
        return config_from_document(fields, source, version=records.version, lenient=True)


def _guessed_fields(records: NodeRecords, machine: Machine | None) -> dict[str, Any]:
    """Return the fields that state files and answers tell."""
    fields: dict[str, Any] = {}
    cpu = records.state.cpu
    if cpu is not None and cpu.policy:
        fields["cpuManagerPolicy"] = cpu.policy
        if records.allocatable is not None and machine is not None:
            reserved = CPUSet.from_int(machine.cpus & ~int(records.allocatable.cpus))
            fields["reservedSystemCPUs"] = str(reserved)

    memory = records.state.memory
    if memory is not None and memory.policy == "Static":
        fields["memoryManagerPolicy"] = memory.policy
        reservations = []
        for numa_id, node in memory.nodes.items():
            sizes = {kind: node.table(kind).system_reserved for kind in memory.types}
            limits = {kind: size for kind, size in sizes.items() if size}
            if limits:
                reservations.append({"numaNode": numa_id, "limits": limits})

        fields["reservedMemory"] = reservations

    return fields


def _check_policies(records: NodeRecords, config: KubeletConfig) -> None:
    """Check that the state files are of the policies of the configuration.

    Raises:
        ConfigError: one is of another policy; a kubelet would not start.
    """
    managers = (
        ("cpu_manager_state", records.state.cpu, config.cpu_manager_policy),
        ("memory_manager_state", records.state.memory, config.memory_manager_policy),
    )

    for name, state, policy in managers:
        if state is None:
            if policy in {"static", "Static"}:
                warn(
                    f"no {name} at {records.files.source}: assuming that no container holds any of "
                    "it"
                )
        elif state.policy != policy and (state.policy or policy != "None"):
            raise ConfigError.at(
                records.files.place(f"{KUBELET}/{name}"),
                f"the policy {policy} of the configuration",
                state.policy,
            )


def _active(records: NodeRecords) -> Mapping[str, Sequence[str]] | None:
    """Return by uid the containers of the pods that can hold something.

    None: it is not known which these are.
    """
    if records.pods is not None:
        return _active_by_manifests(records, records.pods)
    if records.listed is not None:
        return _active_by_answer(records, records.listed)

    if records.state.containers():
        missing = f"neither pods.json nor PodResources answers at {records.files.source}"
        warn(f"{missing}: uids stand for names, and pods that are gone count too")

    return None


def _active_by_manifests(
    records: NodeRecords, documents: Iterable[PodDocument]
) -> dict[str, list[str]]:
    """Return what `_active` does, where the pods of the node are known."""
    # a pod that has failed holds what it has until it is terminated; PodResources lists it so long
    lists_active_pods = records.version.minor >= _LISTS_ACTIVE_PODS
    holding = {
        (pod.namespace, pod.name)
        for pod in records.listed or ()
        if lists_active_pods or pod.holds_something
    }

    return {
        document.pod.uid: [container.name for container in document.pod.all_containers]
        for document in documents
        if not document.has_ended or (document.pod.namespace, document.pod.name) in holding
    }


def _active_by_answer(
    records: NodeRecords, listed: Iterable[PodResources]
) -> dict[str, Sequence[str]]:
    """Return what `_active` does, where only the answer to List says which pods there are."""
    pods = pods_by_uid(records.state, listed, records.allocated or ())
    names = {(pod.namespace, pod.name) for pod in pods.values()}

    # init containers are not in the answer: a pod where they alone hold something is in it without
    # holdings
    containers_of_listed = []
    containers_of_silent = []
    for pod in listed:
        containers = {container.name for container in pod.containers}
        containers_of_listed.append(containers)
        if not pod.holds_something and (pod.namespace, pod.name) not in names:
            containers_of_silent.append(containers)

    def may_be_listed(uid: str, holding: Sequence[str]) -> bool:
        if records.allocated is None:
            return bool(containers_of_silent) and all(
                containers.isdisjoint(holding) for containers in containers_of_listed
            )

        # the file keeps pods that are gone until the next one is admitted, but has the names that
        # the answer has
        admitted = allocated_containers(records.allocated.get(uid))
        return any(
            containers <= admitted and containers.isdisjoint(holding)
            for containers in containers_of_silent
        )

    return {
        uid: holding
        for uid, holding in records.state.containers().items()
        if uid in pods or may_be_listed(uid, holding)
    }


def stale_entries(records: NodeRecords) -> StaleEntries:
    """Return what the state files have of pods and containers that are gone."""
    active = _active(records)
    if active is None:
        return StaleEntries()

    containers = {}
    for uid, holding in records.state.containers().items():
        names = [name for name in holding if name not in active.get(uid, ())]
        if names:
            containers[uid] = names

    return StaleEntries(records.state.uids() - active.keys(), containers)


def _devices(records: NodeRecords) -> dict[str, tuple[Device, ...]]:
    """Return by resource the devices that plugins report."""
    checkpoint = records.state.devices
    if records.allocatable is not None:
        # a resource that is registered and has no healthy device is not in the answer
        without_devices = dict.fromkeys(checkpoint.registered if checkpoint else (), ())
        return {**without_devices, **records.allocatable.devices}

    if checkpoint is None:
        return {}

    held_devices = devices_near(
        (entry.resource, identity, {numa_id} - {NO_NUMA_NODE})
        for entry in checkpoint.entries
        for numa_id, ids in entry.devices.items()
        for identity in ids
    )
    devices_by_id = {
        (resource, device.id): device
        for resource, devices in held_devices.items()
        for device in devices
    }

    registered = {
        (resource, identity) for resource, ids in checkpoint.registered.items() for identity in ids
    }
    unknown = registered - devices_by_id.keys()
    if unknown:
        missing = f"no PodResources answer at {records.files.source}"
        subject = f"the NUMA nodes of {len(unknown)} devices that nobody holds"
        warn(f"{missing}: {subject} are not known, and they count as near none")

    return {
        resource: tuple(
            devices_by_id.get((resource, identity)) or Device(identity, None)
            for identity in sorted(ids)
        )
        for resource, ids in checkpoint.registered.items()
    }


def _pods(records: NodeRecords, state: KubeletState) -> list[Pod]:
    """Return the pods of the node.

    They are those of the manifests, and one for each uid that holds something.
    """
    containers = state.containers()
    pods = [
        document.pod
        for document in records.pods or ()
        if document.pod.uid in containers
        or (not document.has_ended and (document.started or document.phase == "Running"))
    ]

    nameless = containers.keys() - {pod.uid for pod in pods}
    if nameless:
        answers = pods_by_uid(state, records.listed or ())
        for uid, names in containers.items():
            if uid in nameless:
                namespace, name = "", uid
                if uid in answers:
                    namespace, name = answers[uid].namespace, answers[uid].name
                pods.append(held_pod(uid, namespace, name, names, state))

    return pods


class KubeletOptions(TypedDict, total=False):
    """Replacements of things that are not in their place beneath the root; all may be missing.

    Attributes:
        kubelet_dir: the kubelet's folder where it is not `var/lib/kubelet` beneath the root.
        config: the kubelet's configuration where it is elsewhere.
        config_dir: the folder of its drop-ins where it is elsewhere.
        reserved_cpus: the CPUs that are reserved, in place of those of the configuration.
        machine: the machine, in place of the one that `sys` beneath the root describes.
        devices: by resource, the devices that plugins report, in place of those that the kubelet
            tells.
        node_name: the node, where an archive has several.
        kubelet_version: the kubelet's release; None: what `node.json` says, or the newest that is
            out.
    """

    kubelet_dir: str | os.PathLike[str] | None
    config: str | os.PathLike[str] | None
    config_dir: str | os.PathLike[str] | None
    reserved_cpus: str
    machine: Machine | None
    devices: Inventory | None
    node_name: str | None
    kubelet_version: KubeletVersion | str | None


_Holding = tuple[str, int, tuple[object, ...], tuple[object, ...]]


def pods_by_uid(
    state: KubeletState, pods: Iterable[PodResources], first: Collection[str] = ()
) -> dict[str, PodResources]:
    """Return the pod of each uid that some pod's answer fits.

    A pod fits a uid if both name the same CPUs, memory and devices for each of its containers, and
    any at all. Pods that hold the same amounts of memory, and nothing else, cannot be told apart;
    they are dealt out in order, those whose uids are in `first` before others.
    """
    waiting: dict[frozenset[_Holding], list[PodResources]] = {}
    for pod in pods:
        listed = [
            _holding(container.name, container.cpus, container.memory, container.devices)
            for container in pod.containers
        ]
        holdings = frozenset(filter(None, listed))
        if pod.cpus or pod.memory:
            holdings = _as_whole(pod.cpus, pod.memory, holdings)
        if holdings:
            waiting.setdefault(holdings, []).append(pod)

    matches = {}
    devices = state.device_ids()
    containers = state.containers()
    for uid in sorted(containers, key=lambda uid: uid not in first):
        written = [
            _holding(
                name, state.cpus(uid, name), state.blocks(uid, name), devices.get((uid, name), {})
            )
            for name in containers[uid]
        ]
        holdings = frozenset(filter(None, written))

        candidates = [holdings]
        if holdings not in waiting:  # init containers are not in the answers
            candidates = [fewer for fewer in waiting if fewer < holdings]
        if state.is_whole(uid):
            candidates.insert(0, _as_whole(*state.whole(uid), holdings))

        for candidate in candidates:
            if waiting.get(candidate):
                matches[uid] = waiting[candidate].pop(0)
                break

    return matches


def _as_whole(
    cpus: Iterable[int], memory: Iterable[MemoryBlock], holdings: Iterable[_Holding]
) -> frozenset[_Holding]:
    """Return the form of a pod that has CPUs or memory as a whole.

    It is these, and its containers' devices.
    """
    form: set[_Holding] = {(name, 0, (), devices) for name, _, _, devices in holdings if devices}
    whole = _holding("", CPUSet(cpus), memory, {})
    if whole is not None:
        form.add(whole)
    return frozenset(form)


def _holding(
    name: str,
    cpus: CPUSet | None,
    memory: Iterable[MemoryBlock],
    devices: Mapping[str, tuple[str, ...]],
) -> _Holding | None:
    """Return what a container holds in a form that can be compared; None: nothing."""
    blocks = tuple(
        sorted((block.type, tuple(sorted(block.numa_nodes)), block.size) for block in memory)
    )
    held_ids = tuple(sorted((resource, ids) for resource, ids in devices.items() if ids))
    if not (cpus or blocks or held_ids):
        return None
    return name, int(cpus or 0), blocks, held_ids


def restore(node: Node, state: KubeletState, pods: Sequence[Pod]) -> None:
    """Let a node hold what a state says.

    Args:
        node: a node on which nobody holds anything.
        state: what the kubelet has written.
        pods: the pods of the node; each uid in the state has one.

    Raises:
        InputError: the state is not one of this machine or configuration.
    """
    if node.cpu is not None and state.cpu is not None:
        of_containers = {
            uid: {name: int(cpus) for name, cpus in containers.items()}
            for uid, containers in state.cpu.entries.items()
        }
        of_pods = {uid: int(cpus) for uid, cpus in state.cpu.pods.items()}
        node.cpu.restore(of_containers, int(state.cpu.shared), of_pods)

    if node.memory is not None and state.memory is not None and state.memory.nodes:
        names = {pod.uid: pod.namespaced_name for pod in pods}
        restored = restored_memory(
            state.memory, node.machine.numa_node_ids, names, node.memory.allocatable
        )
        node.memory.restore(replace(restored, parts=_parts(state.memory, pods)))

    if node.devices is not None and state.devices is not None:
        by_pod: dict[str, dict[str, Mapping[str, Sequence[str]]]] = {}
        for (uid, name), ids in state.device_ids().items():
            by_pod.setdefault(uid, {})[name] = ids
        node.devices.restore(by_pod, _gone(node, state.devices))

    node.manager.restore(pods)


def _gone(node: Node, checkpoint: DeviceCheckpoint) -> dict[str, tuple[Device, ...]]:
    """Return the devices that containers hold and no plugin reports.

    They are near the NUMA nodes that the file tells.
    """
    return devices_near(
        (entry.resource, identity, {numa_id} & {*node.machine.numa_node_ids})
        for entry in checkpoint.entries
        for numa_id, ids in entry.devices.items()
        for identity in ids
        if entry.resource not in node.pools or not node.pools[entry.resource].knows(identity)
    )


def restored_memory(
    state: MemoryState, ids: Sequence[int], names: Mapping[str, str], types: Iterable[str] = ()
) -> RestoredMemory:
    """Return a memory manager's state by the positions of NUMA nodes.

    Args:
        state: what the memory manager has written.
        ids: the kernel ids of the machine's NUMA nodes.
        names: by pod uid, the pod's name in messages.
        types: further types of memory that the machine has; the kubelet has nothing of them to
            give.

    Raises:
        InputError: the state is one of other NUMA nodes.
    """
    if sorted(state.nodes) != sorted(ids):
        raise InputError.at(
            "machineState", f"the machine's NUMA nodes {list(ids)}", sorted(state.nodes)
        )

    position = {numa_id: index for index, numa_id in enumerate(ids)}
    present_ids, present_types = set(ids), set(state.types)
    blocks_on: Counter[int] = Counter()
    for (uid, _), block in _blocks(state):
        if (
            not present_ids.issuperset(block.numa_nodes)
            or not block.numa_nodes
            or block.type not in present_types
        ):
            written = (block.numa_nodes, block.type)
            raise InputError.at(f"entries of {uid}", "memory of the machine's NUMA nodes", written)
        blocks_on.update(block.numa_nodes)

    nodes = [state.nodes[numa_id] for numa_id in ids]
    groups = []
    for numa_id, node in zip(ids, nodes, strict=True):
        cells = {cell for cell in node.cells or (numa_id,) if cell in position}
        groups.append(sum(1 << position[cell] for cell in cells))

    kinds = sorted({*state.types, *types})
    return RestoredMemory(
        {kind: tuple(node.table(kind).allocatable for node in nodes) for kind in kinds},
        {kind: tuple(node.table(kind).free for node in nodes) for kind in kinds},
        _shares(state, position),
        groups,
        [
            max(0, node.assignments - blocks_on[numa_id])
            for numa_id, node in zip(ids, nodes, strict=True)
        ],
        names,
    )


def _blocks(state: MemoryState) -> Iterator[tuple[tuple[str, str], MemoryBlock]]:
    """Yield by pod uid and container the blocks that count.

    Under the container "" are those of pods with memory as a whole.
    """
    of_pods = {uid: {"": blocks} for uid, blocks in state.pods.items()}
    for uid, containers in {**state.entries, **of_pods}.items():
        for name, blocks in containers.items():
            for block in blocks:
                yield (uid, name), block


def _parts(
    state: MemoryState, pods: Sequence[Pod]
) -> dict[str, dict[str, tuple[bool, tuple[tuple[str, int], ...]]]]:
    """Return what containers have of the memory that their pods have as a whole.

    By pod uid and container: whether it ends early, and its amounts by type.
    """
    end_early = {
        (pod.uid, container.name)
        for pod in pods
        for container in pod.all_containers
        if container.is_init and not container.is_sidecar
    }

    parts = {}
    for uid in state.pods:
        parts[uid] = {
            name: ((uid, name) in end_early, tuple((block.type, block.size) for block in blocks))
            for name, blocks in state.entries.get(uid, {}).items()
        }

    return parts


def _shares(
    state: MemoryState, position: Mapping[int, int]
) -> dict[tuple[str, str], dict[str, Mapping[int, int]]]:
    """Return how many bytes each container holds on which NUMA node.

    The file says so only for containers of one node. Of the others it says the sum, and by node
    what all together hold; their bytes are dealt out so that both are met.
    """
    undealt = {
        (kind, numa_id): node.table(kind).reserved
        for numa_id, node in state.nodes.items()
        for kind in state.types
    }

    shares: dict[tuple[str, str], dict[str, Mapping[int, int]]] = {}
    for key, block in sorted(_blocks(state), key=lambda entry: len(entry[1].numa_nodes)):
        missing = block.size
        parts = dict.fromkeys((position[numa_id] for numa_id in block.numa_nodes), 0)
        for numa_id in block.numa_nodes:
            part = min(missing, undealt[block.type, numa_id])
            undealt[block.type, numa_id] -= part
            parts[position[numa_id]] += part
            missing -= part

        # the kubelet can have taken another container's bytes for this one's when that was removed
        parts[position[block.numa_nodes[0]]] += missing
        shares.setdefault(key, {})[block.type] = parts

    return shares


def held_pod(
    uid: str, namespace: str, name: str, containers: Iterable[str], state: KubeletState
) -> Pod:
    """Return a pod of which no manifest is known: its requests are what it holds."""
    devices = state.device_ids()

    return Pod(
        uid,
        name,
        namespace,
        containers=tuple(
            _held_container(state, uid, container, devices.get((uid, container), {}))
            for container in containers
        ),
        qos=QOSClass.GUARANTEED,
        pod_level=PodLevel.MANAGED if state.is_whole(uid) else PodLevel.IGNORED,
    )


def _held_container(
    state: KubeletState, uid: str, name: str, devices: Mapping[str, Sequence[str]]
) -> Container:
    cpus = len(state.cpus(uid, name) or ())
    memory = tuple(sorted({block.type: block.size for block in state.blocks(uid, name)}.items()))
    counts = tuple(sorted((resource, len(ids)) for resource, ids in devices.items()))

    amounts: dict[str, int] = {}
    if cpus:
        amounts["cpu"] = 1000 * cpus
    amounts.update(memory)
    amounts.update(counts)

    return Container(name, amounts, amounts, exclusive_cpus=cpus, memory=memory, devices=counts)
