"""Loads the machine to place work on, with its devices.

It is restricted to the CPUs and memory that this process may use. Reading the machine and its
devices is left to `alignup.machine.load`; here it is decided whether the machine is the one at
hand, and how leases of it are told from those of another.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from alignup.errors import InputError
from alignup.host.leases.agent_messages import Grant
from alignup.host.leases.record import LeaseRecord, MachineIdentity, Seen
from alignup.host.leases.request import CLAIM
from alignup.host.parts.usable import MemoryRule, equal_cores, reachable, usable
from alignup.host.parts.visible_devices import (
    VISIBLE,
    HostFiles,
    Rank,
    Sight,
    is_uuid,
    listed_devices,
    runtime_resource,
    sight,
    visible_variables,
    whole_gpu,
)
from alignup.host.processes.identity import host_identity
from alignup.kubernetes.policy_options import CpuOptions
from alignup.machine.cpuset import CPUSet
from alignup.machine.device_inventory import LoadedMachine
from alignup.machine.load import HERE, AskDriver, load_with_devices, with_usual_devices
from alignup.machine.nvidia import GPU_RESOURCE
from alignup.records import Record, field, replace
from alignup.text.counting import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from alignup.claims.read import Resources
    from alignup.machine.device_inventory import Device
    from alignup.machine.machine import Machine

__all__ = ["HERE", "Hidden", "Site", "fingerprint", "load_site", "only_seen", "seen_by_client"]


_UNALIGNED: Final = "none"
_CUDA_VARIABLE: Final = VISIBLE[GPU_RESOURCE]
# What lets the leases of a process have devices that it does not see.
ALL_DEVICES: Final = "--all-devices"


class Site(Record):
    """A machine that work can be placed on.

    Attributes:
        machine: as work may be placed on it: see `usable` and `reachable`.
        is_here: True if this process runs on it; only then can processes be bound to its CPUs.
        whole: the machine with the CPUs and memory that this process may not use too; None: it may
            use all.
        pair: resources whose devices are chosen together, as `Node` takes them.
        layout: how `split_machine` lays out parts.
        claims: the objects of claims; None: none may be asked for.
        idle_siblings: work gets whole cores, and is bound to the first CPU of each.
        as_kubelet: memory is given by the rules of a kubelet's memory manager, and CPUs by its idea
            of a core.
        seen: by resource, the devices that a request for a lease of this process may get; of
            others, all.
        sights: by resource, the devices of which this process sees some only; see `only_seen`.
        environment: that variables of a grant are added to; empty: not known.
    """

    machine: Machine
    identity: MachineIdentity
    is_here: bool
    inventory: Mapping[str, Sequence[Device]] = field(default_factory=dict)
    preferred_sets: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    whole: Machine | None = None
    pair: tuple[str, ...] = ()
    cpu_options: CpuOptions = field(default_factory=CpuOptions)
    layout: str = ""
    claims: Resources | None = None
    idle_siblings: bool = False
    memory_rule: MemoryRule = field(default_factory=MemoryRule)
    as_kubelet: bool = False
    seen: Mapping[str, Seen] = field(default_factory=dict)
    sights: Mapping[str, Sight] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    def memory_nodes(self, lease: LeaseRecord) -> tuple[int, ...]:
        """Return the kernel's ids of the nodes to bind memory to, the nearest first.

        They are those of the memory that was asked for. Where none was, they are those of the CPUs,
        as far as they have memory; under policy none there are none, and memory is not to be bound.
        """
        node_ids = dict.fromkeys(share.numa_node for share in lease.memory if share.size)
        if node_ids or lease.policy == _UNALIGNED:
            return tuple(node_ids)

        nodes = zip(self.machine.numa_nodes, self.machine.node_cpus, strict=True)
        return tuple(node.id for node, cpus in nodes if cpus & int(lease.cpus) and node.memory)

    @property
    def placed(self) -> Machine:
        """The machine that a node gives CPUs of.

        It has cores of one size where whole cores are promised.
        """
        gives_cores = self.idle_siblings or self.cpu_options.full_pcpus_only
        if gives_cores and not self.as_kubelet:
            return equal_cores(self.machine)
        return self.machine

    @property
    def threads(self) -> int:
        """CPUs that are held for one that is asked for."""
        if not self.idle_siblings:
            return 1

        cores = (core for node in self.placed.numa_nodes for core in node.cores)
        return max(len(core.cpus) for core in cores)

    def grant(
        self, lease: LeaseRecord, inventory: Mapping[str, Sequence[Device]], state: Path
    ) -> Grant:
        """Return what the holder of a lease is told: the CPUs are those that work is to run on.

        Args:
            lease: the lease.
            inventory: the devices of now.
            state: the file of leases.

        Raises:
            InputError: there is a GPU that CUDA has no number for.
        """
        cuda = self.visible(lease.devices, inventory)
        bound_lease = msgspec.structs.replace(lease, cpus=self.bound(lease.cpus))
        return Grant(
            bound_lease, self.identity, str(state), self.memory_nodes(lease), self.is_here, cuda
        )

    def visible(
        self, devices: Mapping[str, Sequence[str]], inventory: Mapping[str, Sequence[Device]]
    ) -> dict[str, str]:
        """Return the variables by which CUDA and ROCm see some devices, and no other GPU.

        NVIDIA's device plugin has UUIDs for ids, under names such as nvidia.com/gpu.shared and
        nvidia.com/mig-1g.10gb too; `UUID::N` is one of several shares of a GPU.

        Args:
            devices: ids by resource.
            inventory: the devices of now.

        Raises:
            InputError: there is a GPU that CUDA has no number for.
        """
        uuids: dict[str, None] = {}
        others = dict(devices)
        for resource, ids in devices.items():
            is_of_other_runtime = VISIBLE.get(resource, _CUDA_VARIABLE) != _CUDA_VARIABLE
            if not is_of_other_runtime and all(map(is_uuid, ids)):
                uuids |= dict.fromkeys(map(whole_gpu, ids))
                del others[resource]

        environment: dict[str, str] = {}
        if others:
            numbered = {resource: view.numbered for resource, view in self.sights.items()}
            environment = visible_variables(
                others, inventory, self.machine, numbered, self.environment
            )
        if uuids:
            environment[_CUDA_VARIABLE] = ",".join(uuids)
        return environment

    def bound(self, cpus: CPUSet) -> CPUSet:
        """Return those of some CPUs that work is to run on."""
        if not self.idle_siblings:
            return cpus

        cores = (core for node in self.machine.numa_nodes for core in node.cores)
        cpus_by_core = (cpus & CPUSet(core.cpus) for core in cores)
        return CPUSet(min(core_cpus) for core_cpus in cpus_by_core if core_cpus)

    @property
    def limit(self) -> str:
        """Words about the CPUs that this process may use; empty if it may use all."""
        if self.whole is None:
            return ""

        allowed_cpus = CPUSet.from_int(self.machine.cpus)
        all_cpus = CPUSet.from_int(self.whole.cpus)
        return (
            f"this process may use only CPUs {allowed_cpus} of {all_cpus}, by its affinity mask or "
            "cpuset"
        )


def load_site(
    source: str | Machine = HERE,
    *,
    resources: Iterable[str] = (),
    selectors: Iterable[str] = (),
    devices: object = None,
    where: str = "devices",
    all_resources: bool = False,
    tell: Callable[[str], None] = lambda _: None,
    isolated: bool = False,
    reserve: CPUSet = CPUSet(),  # noqa: B008  # immutable
    **rules: Any,
) -> Site:
    """Return a machine, and its devices of the resources that will be asked for.

    Devices are those of `devices`, or without it those that come with the machine; PCI devices that
    `selectors` select take the place of those of the same resource. Where `nvidia.com/gpu` is asked
    for and still missing on the machine at hand, NVIDIA's driver is asked for GPUs. Where all
    resources are, it is asked only if there are GPUs of NVIDIA, and need not answer: a device
    plugin may offer them. A device near NUMA nodes without CPUs counts as near the closest ones
    with CPUs.

    Args:
        source: a machine as `--machine` takes it, `/` being the machine at hand; or its record.
        resources: the resources that will be asked for.
        selectors: PCI devices of resources, as `--device-resource` takes them.
        devices: an inventory: resource -> [{"id", "numa"}], or records.
        where: the name of the inventory in errors.
        all_resources: keep all devices that there are, GPUs that NVIDIA's driver knows included.
        tell: called with a sentence about GPUs that are left out since the driver does not answer,
            and about CPUs on which nothing is placed since they are in no NUMA node.
        isolated: place work on the CPUs that the kernel's scheduler leaves alone, and only there.
        reserve: CPUs on which nothing is placed.
        rules: the fields of `Site` that say how work is placed.

    Raises:
        InputError: an argument is of another form, the machine has no such resource, or this
            process may use no CPU of the machine at hand.
    """
    names = list(resources)
    is_here = source == HERE
    ask: AskDriver = "never"
    if is_here and all_resources:
        ask = "if there"
    elif is_here and GPU_RESOURCE in names:
        ask = "if missing"

    loaded = load_with_devices(
        source,
        devices=devices,
        where=where,
        selectors=selectors,
        nvidia=ask,
        near_cpus=True,
        tell=tell,
    )
    if loaded.machine.unassigned_cores:
        unassigned_cpus = CPUSet(
            cpu for core in loaded.machine.unassigned_cores for cpu in core.cpus
        )
        tell(f"CPUs {unassigned_cpus} are in no NUMA node: nothing is placed on them")

    machine = usable(loaded.machine, isolated=isolated, reserve=int(reserve))
    cut = reachable(machine) if is_here else machine
    description = f"{machine.cpu_count} CPUs, {counted(len(machine.numa_nodes), 'NUMA node')}"
    return Site(
        machine=cut,
        identity=MachineIdentity(fingerprint(machine, is_here=is_here), description),
        is_here=is_here,
        inventory=loaded.devices if all_resources else _of_resources(loaded, names),
        preferred_sets=loaded.preferred_sets,
        whole=machine if cut is not machine else None,
        **rules,
    )


class Hidden(Record):
    """What is said of devices that a process does not see.

    Attributes:
        sentences: for each resource of which some are hidden.
        notes: about what cannot be told.
    """

    sentences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def only_seen(
    site: Site,
    counts: Mapping[str, int],
    environment: Mapping[str, str],
    rank: Rank,
    files: HostFiles | None = None,
    *,
    option: str = ALL_DEVICES,
) -> tuple[Site, Hidden]:
    """Return a machine of which only those devices are given out that this process sees.

    Args:
        site: the machine at hand; another is returned as it is.
        counts: by resource, how many devices are asked for.
        environment: of this process.
        rank: which of how many ranks it is.
        files: the kernel's files about devices; None: those of this machine.
        option: what lifts it, for sentences.

    Raises:
        InputError: it sees none of a resource.
    """
    if not site.is_here:
        return site, Hidden()

    loaded = LoadedMachine(site.machine, site.inventory)
    seen: dict[str, Seen] = {}
    sights: dict[str, Sight] = {}
    sentences: list[str] = []
    notes: list[str] = []
    for resource, devices in site.inventory.items():
        count = counts.get(resource, 0)
        view = _view(loaded, resource, environment, replace(rank, count=count), files)
        notes += view.notes
        if view.is_whole:
            continue
        if not view.seen and count:
            raise _hidden_error(resource, view.reason, option)

        sights[resource] = view
        sentence = _sentence(view, devices, resource, option)
        if sentence:
            seen[resource] = Seen(view.names, view.reason)
            sentences.append(sentence)

    seen_site = replace(site, seen=seen, sights=sights, environment=environment)
    return seen_site, Hidden(tuple(sentences), tuple(notes))


def seen_by_client(
    counts: Mapping[str, int],
    environment: Mapping[str, str],
    rank: Rank,
    files: HostFiles | None = None,
    loaded: LoadedMachine | None = None,
    *,
    option: str = ALL_DEVICES,
) -> tuple[dict[str, Seen], Hidden]:
    """Return by resource the devices that an agent may choose for this process.

    A resource of which it sees all is not there.

    Args:
        counts: by resource, how many devices are asked for.
        environment: of this process.
        rank: which of how many ranks it is.
        files: the kernel's files about devices; None: those of this machine.
        loaded: the machine at hand, with the devices that this process knows; None: it is read if
            it is needed.
        option: what lifts it, for sentences.

    Raises:
        InputError: this process sees none of a resource.
    """
    kinds = {resource: runtime_resource(resource) for resource in counts}
    kinds = {resource: kind for resource, kind in kinds.items() if kind}
    if not kinds:
        return {}, Hidden()
    if loaded is None:
        # it may be a container that does not show the machine: then variables alone tell
        with suppress(InputError):
            loaded = with_usual_devices(load_with_devices(HERE), set(kinds.values()), is_here=True)

    seen: dict[str, Seen] = {}
    sentences: list[str] = []
    notes: list[str] = []
    for resource, kind in kinds.items():
        devices = loaded.devices.get(kind, ()) if loaded is not None else ()
        if loaded is not None and devices:
            asking = replace(rank, count=counts[resource])
            view = _view(loaded, kind, environment, asking, files)
            notes += view.notes
            if not view.is_whole:
                seen[resource] = Seen(view.names, view.reason)
                sentences.append(_sentence(view, devices, resource, option))
        else:
            uuids, words = listed_devices(kind, environment)
            if uuids is not None:
                seen[resource] = Seen(uuids, words)
            elif words:
                notes.append(
                    f"the agent chooses among all devices of {resource}, whatever {words} lists: "
                    "nothing here tells which these are"
                )

        if resource in seen and not seen[resource].names:
            raise _hidden_error(resource, seen[resource].reason, option)

    return seen, Hidden(tuple(filter(None, sentences)), tuple(notes))


def _view(
    loaded: LoadedMachine,
    resource: str,
    environment: Mapping[str, str],
    rank: Rank,
    files: HostFiles | None,
) -> Sight:
    """Return what this process sees of a resource: all that there are, where nothing tells."""
    asking = replace(rank, is_certain=False)
    return sight(loaded, resource, environment, asking, files or HostFiles())


def _sentence(view: Sight, devices: Sequence[Device], resource: str, option: str) -> str:
    """Return a sentence about the devices that a process does not see; empty: it sees them all."""
    names = set(view.names)
    left = sum(not names.isdisjoint({device.id, *device.id.split("/")[:1]}) for device in devices)
    if left == len(devices):
        return ""

    return (
        f"{left} of the {len(devices)} {resource} are to choose from, since {view.reason}; "
        f"{option} lifts that"
    )


def _hidden_error(resource: str, reason: str, option: str) -> InputError:
    """Return the error that says that a process sees no device of a resource."""
    return InputError(f"this process sees no {resource}: {reason}; {option} lifts that")


def _of_resources(loaded: LoadedMachine, names: Iterable[str]) -> dict[str, Sequence[Device]]:
    """Return the devices of some resources; claims are passed over.

    Raises:
        InputError: the machine does not have one of them.
    """
    resources = [name for name in names if not name.startswith(CLAIM)]
    for resource in resources:
        if resource not in loaded.devices:
            raise _missing_resource(loaded, resource)

    return {resource: loaded.devices[resource] for resource in resources}


def _missing_resource(loaded: LoadedMachine, resource: str) -> InputError:
    """Return the error that says that a machine has no such resource, and what it could have."""
    from alignup.machine.pci_devices import usual_selectors  # noqa: PLC0415  # an error only

    selectors = usual_selectors(loaded.machine, resource)
    options = " ".join(selector.option for selector in selectors)
    expected = f"one that {options or '--device-resource'} or --devices describes"
    if loaded.devices:
        names = ", ".join(sorted(loaded.devices))
        expected = f"one of {names}, or {expected}" if options else f"one of {names}"

    return InputError.at(
        "the devices of this machine", f"a resource that it has, {expected}", resource
    )


def fingerprint(machine: Machine, *, is_here: bool) -> str:
    """Return a text that is equal for equal machines.

    The machine at hand goes by its host, if that can be told from others: CPUs come and go there.
    Any other goes by its nodes, CPUs and memory.
    """
    host = host_identity() if is_here else ""
    if host:
        return f"host {host}"

    import zlib  # noqa: PLC0415  # seldom used

    nodes = zip(machine.numa_nodes, machine.node_cpus, strict=True)
    text = " ".join(f"{node.id}:{cpus:x}:{0 if is_here else node.memory}" for node, cpus in nodes)
    return f"nodes {zlib.crc32(text.encode()):08x}"
