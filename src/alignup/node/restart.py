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
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alignup.errors import ConfigError
from alignup.kubernetes.node_fit import misfit_of, node_capacity, node_reservation, reserved_by_type
from alignup.kubernetes.pod import Pod, is_pinned_memory
from alignup.machine.cpuset import CPUSet
from alignup.node.inputs import policy_of
from alignup.records import Record
from alignup.text.counting import format_bytes
from alignup.topology_manager.scope import KUBELET, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from alignup.kubernetes.kubelet_config import KubeletConfig
    from alignup.machine.machine import Machine
    from alignup.node.node import Node


class Restarted(Record):
    """A node after its kubelet has restarted.

    Attributes:
        node: only the pods that stay are on it.
        refused: by uid, the pods that ran before and are refused.
    """

    node: Node
    refused: Mapping[str, Refusal]


def restarted(node: Node, config: KubeletConfig) -> Restarted:
    """Return a node after a restart of its kubelet with a configuration of the same release.

    This node stays as it is. Providers of users are left out.

    Raises:
        ConfigError: the kubelet would not start with it, or not on the state files that it has.
    """
    restarted_node = node.emptied(config)
    for old, new in ((node.cpu, restarted_node.cpu), (node.memory, restarted_node.memory)):
        if (old is None) is not (new is None):
            raise ConfigError("a state file is of another policy")

    for name in ("cpu", "memory", "devices"):
        old_provider = getattr(node, name)
        new_provider = getattr(restarted_node, name)
        if old_provider is not None and new_provider is not None:
            new_provider.inherit(old_provider)

    restarted_node.manager.restore(node.pods)
    return admit_again(restarted_node, node.pods)


def check_start(machine: Machine, config: KubeletConfig) -> None:
    """Check that a kubelet starts with these reservations on this machine.

    The order is that of the kubelet (`NewContainerManager`).

    Raises:
        ConfigError: it does not; the message is its own.
    """
    online = CPUSet.from_int(machine.cpus)
    reserved = node_reservation(machine, config)
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

    for name, capacity in node_capacity(machine).items():
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


def admit_again(node: Node, pods: Iterable[Pod]) -> Restarted:
    """Admit the pods of a node again, and remove those that are refused.

    Args:
        node: with the pods and what they hold, as they are after the state files have been read; it
            is changed.
        pods: all of them, in the order in which they were made.
    """
    providers = [
        provider for provider in node.manager.providers if provider in (node.cpu, node.memory)
    ]
    kept: list[Pod] = []
    refused: dict[str, Refusal] = {}
    with node.manager.lock:
        for pod in pods:
            refusal = node.manager.allocate_again(pod, providers)
            if refusal is None and node.whole_verdict:
                misfit = misfit_of(node.counted(pod), kept, node.limits(pod))
                if misfit.reason:
                    refusal = Refusal(
                        misfit.reason, misfit.message, provider=KUBELET, resources=misfit.resources
                    )

            if refusal is None:
                kept.append(node.counted(pod))
            else:
                refused[pod.uid] = refusal

        for uid in refused:
            node.remove(uid)

    return Restarted(node, refused)
