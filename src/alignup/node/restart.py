"""A start of the kubelet: it checks its reservations, reads its state files, and admits pods again.

These are all pods that run. A container that is in a state file keeps what it holds (`Allocate` of
`cpumanager/policy_static.go` and `memorymanager/policy_static.go`), but the Topology Manager merges
its hints anew, so a running pod can be refused. Three things differ from other admissions
(`HandlePodAdditions` of `pkg/kubelet/kubelet.go`):

- Nothing is given back before all pods have been seen, since `removeStaleState` waits until all
  sources are ready.
- Device plugins have not registered again, so devices give no hints, and containers that run keep
  theirs.
- Init containers that have ended are asked about too; the memory manager has forgotten them, and
  gives them memory.

After a boot of the machine no container runs. The kubelet still has its state files, and admits the
pods in the same order, but no device plugin has registered, and it refuses each container that
names devices (`devicesToAllocate` of `devicemanager/manager.go`). Of another boot id it tells with
an event, `Rebooted`, and does nothing else about it (`MachineInfo` of `nodestatus/setters.go`).

A pod that has CPUs and memory as a whole (PodLevelResourceManagers) keeps them from 1.38 on.
Earlier kubelets allocate it anew, and nobody has what it had before: at its next start such a
kubelet refuses its own state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.errors import ConfigError
from alignup.kubernetes.node_fit import misfit_of, node_capacity, node_reservation, reserved_by_type
from alignup.kubernetes.pod import Pod, is_pinned_memory
from alignup.kubernetes.versions import PodLevel, release_of
from alignup.machine.cpuset import CPUSet
from alignup.node.inputs import policy_of
from alignup.records import Record
from alignup.text.counting import format_bytes
from alignup.topology_manager.scope import KUBELET, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from alignup.kubernetes.kubelet_config import KubeletConfig
    from alignup.machine.machine import Machine
    from alignup.node.node import Node
    from alignup.topology_manager.provider import HintProvider


_CPU_STATE: Final = "cpu_manager_state"


class Restarted(Record):
    """A node after its kubelet has restarted.

    Attributes:
        node: only the pods that stay are on it.
        refused: by uid, the pods that ran before and are refused.
    """

    node: Node
    refused: Mapping[str, Refusal]


class Readmission(Record):
    """The answer to a pod that a restarted kubelet admits again.

    Attributes:
        pod: as this kubelet reads it.
        refusal: None: it stays.
    """

    pod: Pod
    refusal: Refusal | None


def restarted(node: Node, config: KubeletConfig) -> Restarted:
    """Return a node after a restart of its kubelet.

    This node stays as it is. Providers of users are left out.

    Args:
        node: the node; its state files are what its managers hold.
        config: the configuration with which the kubelet starts, perhaps of another release.

    Raises:
        ConfigError: the kubelet would not start with it, or not on the state files that it has;
            the message is its own.
    """
    restarted_node = successor(node, config)
    return admit_again(restarted_node, restarted_node.pods)


def successor(
    node: Node,
    config: KubeletConfig,
    *,
    wrap: Callable[[HintProvider], HintProvider] | None = None,
) -> Node:
    """Return a node whose kubelet has started on the state of this one, and admitted no pod yet.

    Its pods are those of this node, as the kubelet reads them; `admit_again` admits them.

    Args:
        node: the node; it stays as it is.
        config: the configuration with which the kubelet starts.
        wrap: called with each built-in provider; returns the provider to use in its place.

    Raises:
        ConfigError: as `restarted`.
    """
    restarted_node = node.emptied(config, wrap=wrap)
    _check_policies(node.config, config)
    knows_pods = _knows_pods(node.config, config)
    if node.cpu is not None and restarted_node.cpu is not None:
        restarted_node.cpu.inherit(node.cpu, knows_pods=knows_pods)
    if node.memory is not None and restarted_node.memory is not None:
        restarted_node.memory.inherit(node.memory, knows_pods=knows_pods)
    if node.devices is not None and restarted_node.devices is not None:
        restarted_node.devices.inherit(node.devices)

    if node.claims is not None:
        restarted_node.claims = node.claims.copy()
        restarted_node.manager.add_provider(restarted_node.claims)

    reading = config.profile.pods
    restarted_node.manager.restore(
        pod if pod.made_of is None else pod.made_of.read(reading) for pod in node.pods
    )
    return restarted_node


def _check_policies(old: KubeletConfig, new: KubeletConfig) -> None:
    """Check that the state files were written under the policies of a configuration.

    Raises:
        ConfigError: one was not; the message is the kubelet's.
    """
    managers = (
        ("", new.cpu_manager_policy, old.cpu_manager_policy),
        ("[memorymanager] ", new.memory_manager_policy, old.memory_manager_policy),
    )
    for manager, policy, written_policy in managers:
        if policy != written_policy:
            raise ConfigError(
                f'{manager}configured policy "{policy}" differs from state checkpoint policy '
                f'"{written_policy}"'
            )


def _knows_pods(old: KubeletConfig, new: KubeletConfig) -> bool:
    """Return whether a kubelet reads in the state files what pods have as a whole.

    It does so with PodLevelResourceManagers on. From 1.37 on kubelets write what earlier ones read,
    and all else in a part of its own; 1.36 writes a format that earlier ones do not read.

    Args:
        old: the configuration with which the files were written.
        new: that with which the kubelet starts.

    Raises:
        ConfigError: it does not start on such files; the message is its own.
    """
    written_format = release_of(old.version).checkpoints[_CPU_STATE][-1]
    is_known = written_format in release_of(new.version).checkpoints[_CPU_STATE]
    was_managed = old.profile.pods.pod_level is PodLevel.MANAGED
    if was_managed and written_format == "V3" and not is_known:
        raise ConfigError("could not restore state from checkpoint: checkpoint is corrupted")

    return is_known and new.profile.pods.pod_level is PodLevel.MANAGED


def check_start(machine: Machine, config: KubeletConfig, memory_capacity: int = 0) -> None:
    """Check that a kubelet starts with these reservations on this machine.

    The order is that of the kubelet (`NewContainerManager`).

    Args:
        machine: the machine.
        config: the kubelet's configuration.
        memory_capacity: see `NodeObject`.

    Raises:
        ConfigError: it does not; the message is its own.
    """
    online = CPUSet.from_int(machine.cpus)
    reserved = node_reservation(machine, config, memory_capacity)
    if not config.reserved_system_cpus <= online:
        raise ConfigError(
            f"reserved-cpus: {config.reserved_system_cpus} is not a subset of online-cpus: {online}"
        )

    policy_of(config, machine)
    if config.cpu_manager_policy == "static" and not reserved["cpu"]:
        needed = "systemreserved.cpu + kubereserved.cpu to be greater than zero"
        raise ConfigError(f"[cpumanager] the static policy requires {needed}")

    if config.memory_manager_policy == "Static" and machine.knows_memory:
        _check_reserved_memory(machine, config, reserved)

    for name, capacity in node_capacity(machine, memory_capacity).items():
        if reserved.get(name, 0) > capacity:
            reservation = _quantity(name, reserved[name])
            raise ConfigError(
                f'invalid Node Allocatable configuration. Resource "{name}" has a reservation of '
                f"{reservation} but capacity of {_quantity(name, capacity)}. Expected capacity >= "
                "reservation."
            )


def _quantity(resource: str, amount: int) -> str:
    """Return an amount as the API writes it: CPU in thousandths, all else in bytes."""
    return f"{amount}m" if resource == "cpu" else format_bytes(amount)


def _check_reserved_memory(
    machine: Machine, config: KubeletConfig, reserved: Mapping[str, int]
) -> None:
    """Check that `reservedMemory` adds up to what is reserved of the node as a whole.

    The kubelet does so in `validateReservedMemory`.

    Raises:
        ConfigError: it does not, or names a NUMA node that is not there.
    """
    for reservation in config.reserved_memory:
        if reservation.numa_node not in machine.numa_node_ids:
            lost = f"a NUMA node {reservation.numa_node} that does not exist on this machine"
            raise ConfigError(f"the reserved memory configuration references {lost}")

    by_type = reserved_by_type(config)
    capacity = node_capacity(machine)
    for kind in sorted({*by_type, *filter(is_pinned_memory, capacity)}):
        configured = by_type.get(kind, 0)
        expected = reserved.get(kind, 0) if kind in capacity else 0
        if configured != expected:
            value = f'the value "{format_bytes(expected)}" determined by Node Allocatable feature'
            raise ConfigError(
                f'the total amount "{format_bytes(configured)}" of type "{kind}" is not equal to '
                f"{value}"
            )


def admit_again(node: Node, pods: Iterable[Pod], *, after_boot: bool = False) -> Restarted:
    """Admit the pods of a node again, and remove those that are refused.

    Args:
        node: with the pods and what they hold, as they are after the state files have been read; it
            is changed.
        pods: all of them, in the order in which they were made.
        after_boot: the machine was booted, so that no container runs.
    """
    readmissions = list(readmitted(node, pods, after_boot=after_boot))
    refused = {
        readmission.pod.uid: readmission.refusal
        for readmission in readmissions
        if readmission.refusal is not None
    }
    return Restarted(node, refused)


def readmitted(
    node: Node, pods: Iterable[Pod], *, after_boot: bool = False
) -> Iterator[Readmission]:
    """Admit the pods of a node again, one after the other, and yield the answer to each.

    What a refused pod holds it gives back after the last one.

    Args:
        node: as for `admit_again`.
        pods: likewise.
        after_boot: likewise.
    """
    managers = [
        provider for provider in (node.devices, node.cpu, node.memory) if provider is not None
    ]
    # one that records may stand for a manager
    providers = [
        provider
        for provider in node.manager.providers
        if getattr(provider, "provider", provider) in managers
    ]
    kept: list[Pod] = []
    refused_uids: list[str] = []
    with node.manager.lock.guard() as guard, guard.take():
        for manager in managers:
            manager.readmits_pods = True

        if node.devices is not None:
            node.devices.containers_ended = after_boot

        try:
            for pod in pods:
                refusal = node.manager.allocate_again(pod, providers)
                if refusal is None and node.whole_verdict:
                    refusal = _whole_refusal(node, pod, kept)

                if refusal is None:
                    kept.append(node.counted(pod))
                else:
                    refused_uids.append(pod.uid)

                yield Readmission(pod, refusal)
        finally:
            for manager in managers:
                manager.readmits_pods = False

            if node.devices is not None:
                node.devices.containers_ended = False

        for uid in refused_uids:
            node.remove(uid)


def _whole_refusal(node: Node, pod: Pod, neighbours: Sequence[Pod]) -> Refusal | None:
    """Return why the kubelet's own checks refuse a pod that the managers have admitted again."""
    misfit = misfit_of(node.counted(pod), neighbours, node.limits(pod))
    if not misfit.reason:
        return None

    return Refusal(misfit.reason, misfit.message, provider=KUBELET, resources=misfit.resources)
