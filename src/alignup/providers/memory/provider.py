"""The memory manager with the Static policy: which container holds memory of which NUMA nodes.

Keeps the holdings of pods and containers. From which nodes memory comes is decided, as the kubelet
does for memory and hugepages of every size together, in the compiled
`alignup.core.amounts.memory_allocation`; allocatable is all memory less `reservedMemory`.
"""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from alignup.core.amounts.holders import MemoryHolders
from alignup.core.amounts.memory_ledger import (
    MemoryCapacity,
    MemoryHolding,
    MemoryLedger,
    MemoryShortage,
)
from alignup.core.shared_dict import SharedDict
from alignup.errors import AllocationError, ConfigError
from alignup.kubernetes.pod import Container, Pod, QOSClass
from alignup.kubernetes.versions import PodLevel, VersionProfile
from alignup.machine.bits import bit_numbers, ids_of
from alignup.providers.pod_pool import check_shared_pool, empty_shared_pool
from alignup.records import Record, field
from alignup.text.counting import format_bytes, named
from alignup.topology_manager.admission import MemoryBlock
from alignup.topology_manager.hints import BitMask, HintList, TopologyHint, feasible_hints
from alignup.topology_manager.refusal_account import Accounts, MemoryAccount, Ties, in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from alignup.kubernetes.kubelet_config import ReservedMemory
    from alignup.machine.machine import Machine
    from alignup.topology_manager.provider import ResourceHints

MEMORY: Final = "memory"

# More types than this are only looked at one by one and all together.
_MOST_TYPES: Final = 4

_NAMES_SHOWN: Final = 3


class RestoredMemory(Record):
    """The state of a kubelet's memory manager, by the positions of NUMA nodes.

    Attributes:
        allocatable: by type, the bytes that each NUMA node has to give.
        free: by type, the bytes that nobody holds; not always what the holdings leave, see
            `MemoryProvider`.
        holdings: by pod uid and container name: type -> {position: bytes}.
        bound: the mask of NUMA nodes that each one is bound to, where it is in use.
        more_users: by NUMA node, how many users it has beyond the holdings.
        names: by pod uid, the pod's name in messages.
        parts: by pod uid and container name, of pods that have memory as a whole (a holding without
            a container's name): whether the container ends before the others start, and what it has
            of the pod's memory.
    """

    allocatable: Mapping[str, Sequence[int]]
    free: Mapping[str, Sequence[int]]
    holdings: Mapping[tuple[str, str], dict[str, Mapping[int, int]]]
    bound: Sequence[int]
    more_users: Sequence[int]
    names: Mapping[str, str]
    parts: Mapping[str, dict[str, tuple[bool, Requests]]] = field(default_factory=dict, hash=False)


class MemoryProvider(MemoryHolders):
    """Gives Guaranteed containers the memory of as few NUMA nodes as can hold it.

    A pod that is not Guaranteed has no memory requests in its record, and gets nothing here.

    As in the kubelet, a NUMA node on which a container sat alone stays out of its group until
    nobody uses that node, even if the container was refused later on.

    One difference from kubelets since 1.32 is deliberate: a release returns every byte to the node
    it came from. Those kubelets return it to the lowest nodes of the mask, which another container
    of the group may hold: a later one can be given such a node alone, and memory be lost elsewhere.
    Older kubelets are followed in this, too.

    Args:
        machine: the machine whose memory is given away.
        reserved: the bytes that are kept back for the system.
        profile: what the kubelet's release does where releases differ.

    Raises:
        ConfigError: a kubelet would not start with these reservations, or they do not fit the
            machine.
    """

    __slots__ = ("_checks_groups", "_ids", "_only_where_requested", "says_why")

    name = "memory"

    def __init__(
        self,
        machine: Machine,
        reserved: Iterable[ReservedMemory],
        *,
        profile: VersionProfile | None = None,
    ) -> None:
        self._ids = machine.numa_node_ids
        profile = profile or VersionProfile()
        self._checks_groups = profile.memory_groups_checked
        self._only_where_requested = profile.memory_only_where_requested
        capacity = memory_capacity(machine, tuple(reserved), checks_groups=self._checks_groups)
        self.ledger = MemoryLedger(capacity)
        # False where nobody reads why memory cannot be had: the sentence looks at every NUMA node.
        self.says_why = True

    def copy(self) -> MemoryProvider:
        """Return an independent provider with the same holdings."""
        other = MemoryProvider.__new__(MemoryProvider)
        other._ids = self._ids
        other._checks_groups = self._checks_groups
        other._only_where_requested = self._only_where_requested
        other.hold_as(self)
        other.says_why = self.says_why
        return other

    @property
    def allocatable(self) -> dict[str, tuple[int, ...]]:
        """Bytes of each type that there are to give, by position of the NUMA node."""
        return self.ledger.capacity.amounts()

    @property
    def free(self) -> dict[str, tuple[int, ...]]:
        """Bytes of each type that nobody holds, by position of the NUMA node."""
        return self.ledger.free

    def topology_hints(self, pod: Pod, container: Container) -> ResourceHints:
        """Return the masks that can hold all the container asks for; each type has the same ones.

        None, no preference, for a request that is no whole number of bytes, which `allocate`
        refuses.

        The mapping is empty when no mask can: the kubelet's answer, which a merge takes for no
        preference at all, so that the refusal comes from `allocate`.
        """
        requests = container.memory
        if not requests:
            return {} if self._places_nothing(pod) else None
        if container.fractional_memory:
            return None
        if (held := self.holdings.get((pod.uid, container.name))) is not None:
            return _hints_as_held(held, requests)

        return self._hints(pod.uid, requests)

    def pod_topology_hints(self, pod: Pod) -> ResourceHints:
        """Return the same for all containers of the pod together."""
        requests = pod.memory
        if not requests or any(one.fractional_memory for one in pod.all_containers):
            return None
        if pod.has_shared_pool and empty_shared_pool(pod, dict(requests)):
            return {kind: HintList.empty() for kind, _ in requests}
        if self.holdings:
            for container in pod.all_containers:
                if (held := self.holdings.get((pod.uid, container.name))) is not None:
                    return _hints_as_held(held, requests)
        return self._hints(pod.uid, requests)

    def _hints(self, pod_uid: str, requests: tuple[tuple[str, int], ...]) -> ResourceHints:
        hints = self.ledger.hints(requests, self.init_holdings.get(pod_uid, ()))
        return {kind: hints for kind, _ in requests} if hints else {}

    def allocate(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        """Give the container its memory on the nodes of `affinity`, or on more if those do not suffice.

        Memory of earlier init containers of the pod on the same nodes is handed over first.

        Raises:
            AllocationError: no nodes have enough free, or only nodes that the affinity or the group
                rule exclude, or a request is no whole number of bytes; nothing was given to this
                container.
        """
        requests = container.memory
        key = (pod.uid, container.name)
        if not requests:
            if self._places_nothing(pod):  # as older kubelets do
                if affinity.affinity is None:
                    raise AllocationError(
                        "a container without an affinity that requests no memory has no NUMA nodes"
                    )

                self._take(self.ledger.copy(), pod.uid, ((MEMORY, 0),), affinity, SharedDict(), "")

            return

        if key in self.holdings:
            return
        if container.fractional_memory:
            raise _fraction_error(container)

        got = self._take(self.ledger, pod.uid, requests, affinity, self.holdings, key)
        self.names[key] = pod.namespaced_name
        if container.is_init and not container.is_sidecar:
            self.init_holdings[pod.uid] = (*self.init_holdings.get(pod.uid, ()), got)

    def _places_nothing(self, pod: Pod) -> bool:
        """Return whether this kubelet looks for a place for containers of a pod that request no memory.

        Only a pod with resources of its own can be Guaranteed and have such a container.
        """
        if self._only_where_requested or pod.qos is not QOSClass.GUARANTEED:
            return False
        return pod.pod_level in (PodLevel.SETS_QOS, PodLevel.MANAGED)

    def allocate_pod(self, pod: Pod, affinity: TopologyHint) -> None:
        """Give a pod with resources of its own its memory, and divide it among its containers.

        All containers use the same NUMA nodes. Those that would be Guaranteed by themselves have
        their requests, all others share the rest; init containers that end have theirs from what
        sidecars leave.

        Raises:
            AllocationError: as for `allocate`, or nothing would be left to share
                (`EmptyPodSharedPoolError`).
        """
        if not pod.memory or pod.qos is not QOSClass.GUARANTEED or pod.uid in self.pod_holdings:
            return

        check_shared_pool(pod, dict(pod.memory))
        self._take(self.ledger, pod.uid, pod.memory, affinity, self.pod_holdings, pod.uid)
        self.pod_parts[pod.uid] = _divided(pod)
        self.names[pod.uid, ""] = pod.namespaced_name

    def _take(
        self,
        ledger: MemoryLedger,
        pod_uid: str,
        requests: Requests,
        affinity: TopologyHint,
        into: SharedDict[Any, MemoryHolding],
        key: object,
    ) -> MemoryHolding:
        """Take memory for a pod or one of its containers from a ledger, and keep it under a key.

        Raises:
            AllocationError: it cannot be had; nothing was taken.
        """
        mask = affinity.affinity
        donors = self.init_holdings.get(pod_uid, ())
        got = ledger.allocate(
            requests, donors, None if mask is None else int(mask), affinity.preferred, into, key
        )
        if isinstance(got, MemoryShortage):
            raise self._error(got, pod_uid, requests)

        return got

    def release(self, pod_uid: str, container_name: str) -> None:
        """Take back what the container holds, if anything; a call that was cut short can be repeated."""
        if pod_uid in self.pod_holdings:
            kept = {
                name: one
                for name, one in self.pod_parts.get(pod_uid, {}).items()
                if name != container_name
            }
            if kept:  # the memory stays the pod's until its last container is gone
                self.pod_parts[pod_uid] = kept
                return

            self.names.pop((pod_uid, ""), None)
            self.pod_parts.pop(pod_uid, None)
            self.ledger.release(self.pod_holdings[pod_uid], self.pod_holdings, pod_uid)
            return

        holding = self.holdings.get((pod_uid, container_name))
        if holding is None:
            return

        self.names.pop((pod_uid, container_name), None)
        left = tuple(
            [donor for donor in self.init_holdings.pop(pod_uid, ()) if donor is not holding]
        )
        if left:
            self.init_holdings[pod_uid] = left

        self.ledger.release(holding, self.holdings, (pod_uid, container_name))

    def started(self, pod: Pod, container_name: str) -> None:
        """Take back what the init containers before this one hold: they have ended, but for sidecars."""
        for container in pod.init_containers:
            if container.name == container_name:
                break
            if not container.is_sidecar:
                self.release(pod.uid, container.name)

    def blocks(self, pod_uid: str, container_name: str) -> tuple[MemoryBlock, ...]:
        """Return what the container holds, by type; an init container no longer holds what it handed on."""
        if pod_uid in self.pod_parts:
            ids = self._ids_of(self.pod_holdings[pod_uid])
            _, parts = self.pod_parts[pod_uid].get(container_name, (False, ()))
            return tuple([MemoryBlock(ids, kind, size) for kind, size in parts])
        holding = self.holdings.get((pod_uid, container_name))
        return () if holding is None else self._blocks_of(holding)

    def pod_blocks(self, pod_uid: str) -> tuple[MemoryBlock, ...]:
        """Return what a pod holds as a whole, by type; empty if its containers hold theirs one by one."""
        holding = self.pod_holdings.get(pod_uid)
        return () if holding is None else self._blocks_of(holding)

    def _blocks_of(self, holding: MemoryHolding) -> tuple[MemoryBlock, ...]:
        """Return what a holding is, by type."""
        ids = self._ids_of(holding)
        return tuple([MemoryBlock(ids, kind, size) for kind, size in holding.sizes()])

    def _ids_of(self, holding: MemoryHolding) -> tuple[int, ...]:
        """Return the kernel's ids of the nodes of a holding."""
        mask = holding.mask
        if mask & (mask - 1) == 0:
            return (self._ids[mask.bit_length() - 1],)
        return tuple([self._ids[position] for position in holding.positions()])

    def shares(self, pod_uid: str, container_name: str) -> dict[str, dict[int, int]]:
        """Return by type the bytes that the container holds on each node of its set, by kernel node id.

        In a pod that has memory as a whole, the memory that containers share is listed for the
        first of them only, init containers that end have no entry, and the empty name has the
        memory that is left.
        """
        if pod_uid in self.pod_parts:
            return self._pod_shares(pod_uid).get(container_name, {})

        holding = self.holdings.get((pod_uid, container_name))
        if holding is None:
            return {}

        ids = [self._ids[position] for position in holding.positions()]
        return {
            kind: dict(zip(ids, taken, strict=True)) for kind, taken in holding.shares().items()
        }

    def _pod_shares(self, pod_uid: str) -> dict[str, dict[str, dict[int, int]]]:
        """Return the shares of all containers of a pod that has memory as a whole, by name."""
        holding = self.pod_holdings[pod_uid]
        ids = [self._ids[position] for position in holding.positions()]
        left = {kind: list(taken) for kind, taken in holding.shares().items()}
        found: dict[str, dict[str, dict[int, int]]] = {}
        for name, (ends, parts) in self.pod_parts[pod_uid].items():
            for kind, size in () if ends else parts:
                missing, given = size, {}
                for index, numa_id in enumerate(ids):
                    given[numa_id] = part = min(missing, left[kind][index])
                    left[kind][index] -= part
                    missing -= part

                if any(given.values()):
                    found.setdefault(name, {})[kind] = given

        rest = {
            kind: dict(zip(ids, amounts, strict=True))
            for kind, amounts in left.items()
            if any(amounts)
        }
        return {**found, "": rest} if rest else found

    def adopt(
        self,
        pod_uid: str,
        container_name: str,
        shares: Mapping[str, Mapping[int, int]],
        called: str = "",
    ) -> None:
        """Note memory, as `shares` tells it, that the container was given before this provider was made.

        Where a node has less left than that (hugepages can be set aside at any time), it counts as
        full. Nodes and types that the machine does not have are ignored. `called` is the pod's name
        in words about who holds memory; by default it is the uid.

        Raises:
            AllocationError: the container has memory already.
        """
        if (pod_uid, container_name) in self.holdings:
            raise AllocationError(f"container {container_name!r} holds memory already")
        if (holding := self._adopted(shares)) is not None:
            self.holdings[pod_uid, container_name] = holding
            self.names[pod_uid, container_name] = called or pod_uid

    def adopt_pod(self, pod: Pod, shares: Mapping[str, Mapping[int, int]]) -> None:
        """Note memory that a pod was given as a whole, for its containers to divide; see `adopt`."""
        if (holding := self._adopted(shares)) is not None:
            self.pod_holdings[pod.uid], self.pod_parts[pod.uid] = holding, _divided(pod)
            self.names[pod.uid, ""] = pod.namespaced_name

    def _adopted(self, shares: Mapping[str, Mapping[int, int]]) -> MemoryHolding | None:
        position = {numa_id: index for index, numa_id in enumerate(self._ids)}
        return self.ledger.adopt(
            {
                kind: {
                    position[numa_id]: size
                    for numa_id, size in taken.items()
                    if numa_id in position
                }
                for kind, taken in shares.items()
            }
        )

    def restore(self, state: RestoredMemory) -> None:
        """Take over the state of a kubelet's memory manager, in place of what is held now.

        The allocatable memory follows the state too: a kubelet looks at the machine's memory when
        it starts.
        """
        if state.allocatable != self.allocatable:
            capacity = MemoryCapacity(state.allocatable, checks_groups=self._checks_groups)
            self.ledger = MemoryLedger(capacity)

        restored = self.ledger.restore(
            dict(state.free),
            list(state.bound),
            list(state.more_users),
            list(state.holdings.values()),
        )
        held = {
            key: holding
            for key, holding in zip(state.holdings, restored, strict=True)
            if holding is not None
        }
        self.holdings = SharedDict({key: one for key, one in held.items() if key[1]})
        self.names = SharedDict({key: state.names.get(key[0], key[0]) for key in held})
        self.pod_holdings = SharedDict({uid: one for (uid, name), one in held.items() if not name})
        self.pod_parts = SharedDict(
            {uid: dict(state.parts.get(uid, {})) for uid in self.pod_holdings}
        )
        self.init_holdings = SharedDict()

    def inherit(self, other: MemoryProvider) -> None:
        """Take over what the state file of the kubelet before a restart says; `other` is as it was then.

        Raises:
            ConfigError: another amount is reserved now; a kubelet does not start on that state.
        """
        if self.allocatable != other.allocatable:
            raise ConfigError(
                "the state file has other amounts of memory than the machine less its reservations"
            )
        self.ledger = other.ledger.copy()
        self.holdings, self.names = other.holdings.copy(), other.names.copy()
        self.pod_holdings, self.pod_parts = other.pod_holdings.copy(), other.pod_parts.copy()

    def account(self, pod: Pod, container: Container | None) -> Accounts:
        """Return by type the bytes asked for, and those free on each NUMA node; see `HintProvider`."""
        return self._accounts(pod.uid, pod.memory if container is None else container.memory)

    def _accounts(
        self, pod_uid: str, requests: tuple[tuple[str, int], ...], mask: int = 0
    ) -> dict[str, MemoryAccount]:
        """Return the account of each type now; `mask` are nodes that would do if nobody held memory there."""
        ties: Callable[[], Ties] = tuple
        ledger, donors = self.ledger, self.init_holdings.get(pod_uid, ())
        everything = {
            **self.holdings,
            **{(uid, ""): held for uid, held in self.pod_holdings.items()},
        }
        if everything:
            wanted = (
                partial(int, mask)
                if mask
                else partial(_wanted_mask, ledger.copy(), donors, requests)
            )
            ties = partial(
                _ties,
                [(held, self.names[key]) for key, held in everything.items()],
                wanted,
                self._ids,
            )

        families = {}
        if len(requests) > 1:
            sizes = (
                *(range(1, len(requests)) if len(requests) <= _MOST_TYPES else (1,)),
                len(requests),
            )
            parts = (part for size in sizes for part in combinations(requests, size))
            families = {
                frozenset(kind for kind, _ in part): ledger.hints(part, donors) for part in parts
            }

        return {
            kind: MemoryAccount(amount, ledger.free_of(kind), self._ids, families, ties)
            for kind, amount in requests
        }

    def _error(self, got: MemoryShortage, pod_uid: str, requests: Requests) -> AllocationError:
        """Return the error that says why the memory cannot be had."""
        if not self.says_why:
            return AllocationError(got.cause)

        is_bound = got.cause == "bound otherwise"
        accounts = self._accounts(pod_uid, requests, got.mask if is_bound else 0)
        lacking = _lacking(accounts)
        names = named("NUMA node", ids_of(got.mask, self._ids), ", ")
        told = in_words(accounts if is_bound else lacking)
        what = next(iter(told)) if len(told) == 1 and not is_bound else ""
        amounts = "; ".join(words if what else f"{kind}: {words}" for kind, words in told.items())
        if is_bound:
            why = "memory of some of them is already in use on another set of nodes"
            words = f"{names} cannot be used together: {why}; {amounts}"
        else:
            smallest = "smallest possible " if got.cause == "not preferred" else ""
            within = (
                f" that includes {names}"
                if got.mask and not any(map(_is_scarce, accounts.values()))
                else ""
            )
            words = (
                f"no {smallest}set of NUMA nodes{within} has enough {what or 'memory'}: {amounts}"
            )

        return AllocationError(words, resources=tuple(lacking))


def _fraction_error(container: Container) -> AllocationError:
    """Return the refusal of a request with a fraction of a byte."""
    kind = container.fractional_memory
    asked = dict(container.memory)[kind]
    words = f"{kind} is requested with a fraction of a byte: {asked} bytes, rounded up"
    return AllocationError(words, resources=(kind,))


def _divided(pod: Pod) -> dict[str, tuple[bool, Requests]]:
    """Return whether each container of a pod ends before the others start, and what it has of the pod's memory."""
    left = dict(pod.memory)
    found: dict[str, Requests] = {}
    for container in pod.all_containers:
        ends = container.is_init and not container.is_sidecar
        if container.memory:
            # the pod as a whole has no entry for what is asked for with an amount of zero
            found[container.name] = tuple(
                [item for item in container.memory if item[1] and item[0] in left]
            )
            for kind, size in () if ends else found[container.name]:
                left[kind] -= size
        elif ends:
            found[container.name] = tuple([item for item in left.items() if item[1]])

    rest = tuple([item for item in left.items() if item[1]])
    return {
        one.name: (one.is_init and not one.is_sidecar, found.get(one.name, rest))
        for one in pod.all_containers
    }


def _wanted_mask(
    ledger: MemoryLedger, donors: tuple[MemoryHolding, ...], requests: tuple[tuple[str, int], ...]
) -> int:
    """Return the nodes that would be taken were it not for the group rule; 0: it changes nothing."""
    free = ledger.free
    if any(kind not in free for kind, _ in requests):
        return 0
    ruled = ledger.hints(requests, donors).best()
    demands = [(None, free[kind], amount) for kind, amount in requests]
    nodes = len(next(iter(free.values())))
    best = feasible_hints(nodes, demands, universe=(1 << nodes) - 1, preferred_size=-1).best()
    return 0 if best is None or (ruled is not None and best[0] == ruled[0]) else best[0]


def _hints_as_held(held: MemoryHolding, requests: tuple[tuple[str, int], ...]) -> ResourceHints:
    """Return the hint that repeats what is held; no preference if that is not what is asked for now."""
    if tuple(held.sizes()) != requests:
        return None
    hints = HintList([TopologyHint(BitMask.from_int(held.mask), True)])
    return {kind: hints for kind, _ in requests}


# (type, bytes), by type.
Requests = tuple[tuple[str, int], ...]


def _ties(
    holdings: Sequence[tuple[MemoryHolding, str]], wanted: Callable[[], int], ids: Sequence[int]
) -> Ties:
    """Return the sets of nodes that touch the wanted ones and are in use, each with the pods that hold memory there.

    Args:
        holdings: what containers hold, each with the name of its pod.
        wanted: returns the mask of the nodes that would do if nobody held memory there.
        ids: of the NUMA nodes, by position.
    """
    holders: dict[int, dict[str, None]] = {}
    mask = wanted()
    for held, pod in holdings:
        if held.mask & mask:
            holders.setdefault(held.mask, {})[pod] = None

    found = []
    for used, names in sorted(holders.items()):
        more = [f"{len(names) - _NAMES_SHOWN} more"] if len(names) > _NAMES_SHOWN else []
        found.append(
            (
                tuple(ids[position] for position in bit_numbers(used)),
                (*list(names)[:_NAMES_SHOWN], *more),
            )
        )

    return tuple(found)


def _lacking(accounts: Mapping[str, MemoryAccount]) -> dict[str, MemoryAccount]:
    """Return the types whose request cannot be met even alone; all types if there is none.

    Those are the types with less free on all nodes together than requested; if there is none, those
    that no set of nodes which may be used together can hold.
    """
    scarce = {kind: one for kind, one in accounts.items() if _is_scarce(one)}
    # a lone type has no hints to look at; beyond 16 NUMA nodes there can be too many to count
    unplaced = {
        kind: one
        for kind, one in accounts.items()
        if one.families and not one.families[frozenset([kind])]
    }
    return scarce or unplaced or dict(accounts)


def _is_scarce(account: MemoryAccount) -> bool:
    """Return whether more is asked for than is free on all nodes together."""
    return account.free is None or sum(account.free) < account.asked


@lru_cache(maxsize=64)
def memory_capacity(
    machine: Machine, reserved: tuple[ReservedMemory, ...], *, checks_groups: bool = True
) -> MemoryCapacity:
    """Return the bytes of each type that pods can have; nodes of the same machine and reservations share the answer.

    Memory that was set aside as hugepages is not there as `memory`. A page size that only some
    nodes have counts as nothing on the others.

    Args:
        machine: the machine whose nodes are meant.
        reserved: bytes that are kept back, by kernel node id and type.
        checks_groups: as in `MemoryCapacity`.

    Raises:
        ConfigError: No memory is reserved at all (the kubelet's static policy does not start then),
            or a reservation names a node or a type that the machine lacks, comes twice, or is
            larger than what the node has.
    """
    types = dict.fromkeys(machine.memory_by_type, 0)
    present = {node.id: {**types, **node.memory_by_type} for node in machine.numa_nodes}
    kept: dict[tuple[int, str], int] = {}
    for reservation in reserved:
        node_id = reservation.numa_node
        if node_id not in present:
            known = ", ".join(map(str, sorted(present)))
            raise ConfigError.at(
                "reservedMemory", f"a NUMA node of this machine ({known})", node_id
            )

        there = present[node_id]
        for kind, amount in reservation.limits:
            if (node_id, kind) in kept:
                raise ConfigError(f"reservedMemory has {kind} of NUMA node {node_id} twice")
            if kind not in there:
                raise ConfigError.at(
                    f"reservedMemory, NUMA node {node_id}",
                    f"one of {', '.join(sorted(there))}",
                    kind,
                )

            if amount > there[kind]:
                where, most = (
                    f"reservedMemory, NUMA node {node_id}, {kind}",
                    format_bytes(there[kind]),
                )
                raise ConfigError.at(where, f"at most the {most} bytes there", format_bytes(amount))

            kept[node_id, kind] = amount
            there[kind] -= amount

    if not any(kept.get((node_id, MEMORY)) for node_id in present):
        raise ConfigError.at("reservedMemory", "some memory reserved on a NUMA node", 0)

    allocatable = {kind: tuple(node[kind] for node in present.values()) for kind in sorted(types)}
    return MemoryCapacity(allocatable, checks_groups=checks_groups)
