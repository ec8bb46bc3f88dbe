"""Gives leases memory near their CPUs, by the order of `alignup.host.parts.near_memory`; no kubelet does so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.errors import AllocationError, InputError
from alignup.host.parts.near_memory import take_near
from alignup.machine.bits import ids_of
from alignup.records import replace
from alignup.topology_manager.hints import feasible_hints, smallest_size
from alignup.topology_manager.refusal_account import MemoryAccount, in_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alignup.host.parts.near_memory import MemoryRule
    from alignup.kubernetes.pod import Container, Pod
    from alignup.machine.machine import Machine
    from alignup.topology_manager.hints import TopologyHint
    from alignup.topology_manager.provider import ResourceHints
    from alignup.topology_manager.refusal_account import Accounts

_MEMORY: Final = "memory"


class NearMemory:
    """The hint provider of memory without groups of nodes: a set of nodes will do if enough is free there in all.

    It gives none by itself: `take` does, once the CPUs are known.

    Args:
        machine: whose memory is given out.
        rule: which nodes give some.

    Raises:
        InputError: the machine has no memory that may be given.
    """

    __slots__ = ("_capacity", "_given", "_held", "_machine", "_rule")

    name = _MEMORY

    def __init__(self, machine: Machine, rule: MemoryRule) -> None:
        places = rule.open_nodes(machine)
        if not places:
            raise InputError.at("memory", "a machine with memory that this process may use", 0)
        self._machine, self._rule = machine, rule
        self._capacity = [
            node.memory_by_type[_MEMORY] if places >> position & 1 else 0
            for position, node in enumerate(machine.numa_nodes)
        ]
        self._given = [0] * len(self._capacity)
        self._held: dict[str, dict[int, int]] = {}

    def topology_hints(self, pod: Pod, container: Container) -> ResourceHints:  # noqa: ARG002  # as every provider's
        """Return the sets of nodes where enough is free."""
        return self._hints(container.memory)

    def pod_topology_hints(self, pod: Pod) -> ResourceHints:
        """Return the same for a pod."""
        return self._hints(pod.memory)

    def _hints(self, requests: tuple[tuple[str, int], ...]) -> ResourceHints:
        size = dict(requests).get(_MEMORY)
        if not size:
            return None
        count, everywhere = len(self._capacity), (1 << len(self._capacity)) - 1
        fewest = smallest_size(count, [(None, self._capacity, size)], everywhere) or count
        demands = [(None, self._free(), size)]
        return {_MEMORY: feasible_hints(count, demands, universe=everywhere, preferred_size=fewest)}

    def allocate(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        """Do nothing: see `take`."""

    def take(self, lease_id: str, size: int, home: int, policy: str, *, strict: bool) -> None:
        """Give memory to a lease, nearest first.

        Args:
            lease_id: whose it is.
            size: bytes.
            home: positions of the nodes of its CPUs, as a bit set; 0: it has none.
            policy: for the words of a refusal.
            strict: refuse what is not on these nodes.

        Raises:
            AllocationError: too little is free.
        """
        rule = replace(self._rule, source="cpus") if strict else self._rule
        taken = take_near(self._machine, rule, home, self._free(), size)
        if sum(taken.values()) < size:
            here = ", ".join(map(str, ids_of(home, self._machine.numa_node_ids)))
            near = f" on the NUMA nodes of its CPUs ({here})" if rule.source == "cpus" and home else ""
            why = f", and policy {policy} takes none elsewhere" if strict and near else ""
            raise AllocationError(f"too little memory is free{near}{why}: {in_words(self._account(size))[_MEMORY]}")
        self._hold(lease_id, taken)

    def adopt(self, lease_id: str, shares: Mapping[int, int]) -> None:
        """Note memory, by kernel node id, that a lease was given before; nodes that the machine lacks are ignored."""
        ids = self._machine.numa_node_ids
        self._hold(lease_id, {ids.index(node): size for node, size in shares.items() if node in ids})

    def _hold(self, lease_id: str, taken: dict[int, int]) -> None:
        self._held[lease_id] = taken
        for position, size in taken.items():
            self._given[position] += size

    def release(self, pod_uid: str, container_name: str) -> None:  # noqa: ARG002  # as every provider's
        """Take back what a lease holds, if anything."""
        for position, size in self._held.pop(pod_uid, {}).items():
            self._given[position] -= size

    def shares(self, lease_id: str) -> dict[str, dict[int, int]]:
        """Return by type and kernel node id the bytes that a lease holds, the nearest first."""
        taken, ids = self._held.get(lease_id, {}), self._machine.numa_node_ids
        return {_MEMORY: {ids[position]: size for position, size in taken.items()}} if taken else {}

    def account(self, pod: Pod, container: Container | None) -> Accounts:
        """Return the bytes asked for, and those free on each node; see `HintProvider`."""
        size = dict(pod.memory if container is None else container.memory).get(_MEMORY)
        return self._account(size) if size else {}

    def _account(self, size: int) -> dict[str, MemoryAccount]:
        return {_MEMORY: MemoryAccount(size, tuple(self._free()), self._machine.numa_node_ids)}

    def _free(self) -> list[int]:
        """Return the bytes that are free, by position; a lease of other rules can hold what this one does not give."""
        return [max(0, there - given) for there, given in zip(self._capacity, self._given, strict=True)]
