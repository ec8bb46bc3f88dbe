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
from alignup.kubernetes.versions import VersionProfile
from alignup.machine.bits import bit_numbers, ids_of, union
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

_OTHER_STATE: Final = "[memorymanager] the expected machine state is different from the real one"

# (type, bytes), by type.
Requests = tuple[tuple[str, int], ...]


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

    __slots__ = (
        "_checks_groups",
        "_finds_nothing_placed",
        "_hints_by_container",
        "_ids",
        "_only_where_requested",
        "_pod_level",
        "_restores_pods",
        "readmits_pods",
        "says_why",
    )

    name = "memory"

    def __init__(
        self,
        machine: Machine,
        reserved: Iterable[ReservedMemory],
        *,
        profile: VersionProfile | None = None,
    ) -> None:
        profile = profile or VersionProfile()
        self._ids = machine.numa_node_ids
        self._checks_groups = profile.memory_groups_checked
        self._only_where_requested = profile.memory_only_where_requested
        self._pod_level = profile.pods.pod_level
        # Whether the state that was found has entries of containers that request no memory.
        self._finds_nothing_placed = self._places_for_nothing
        self._restores_pods = profile.pod_resources_restored
        self._hints_by_container = profile.restored_memory_hints_by_container
        # Whether the kubelet has restarted and admits the pods again that it finds in its state.
        self.readmits_pods = False
        # False where nobody reads why memory cannot be had: the sentence looks at every NUMA node.
        self.says_why = True

        capacity = memory_capacity(machine, tuple(reserved), checks_groups=self._checks_groups)
        self.ledger = MemoryLedger(capacity)

    def copy(self) -> MemoryProvider:
        """Return an independent provider with the same holdings."""
        duplicate = MemoryProvider.__new__(MemoryProvider)
        duplicate._ids = self._ids
        duplicate._checks_groups = self._checks_groups
        duplicate._only_where_requested = self._only_where_requested
        duplicate._pod_level = self._pod_level
        duplicate._finds_nothing_placed = self._finds_nothing_placed
        duplicate._restores_pods = self._restores_pods
        duplicate._hints_by_container = self._hints_by_container
        duplicate.readmits_pods = self.readmits_pods
        duplicate.says_why = self.says_why
        duplicate.hold_as(self)
        return duplicate

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
        if (holding := self.holdings.get((pod.uid, container.name))) is not None:
            return _hints_as_held(holding.mask, tuple(holding.sizes()), requests)

        return self._hints(pod.uid, requests)

    def pod_topology_hints(self, pod: Pod) -> ResourceHints:
        """Return the same for all containers of the pod together.

        Where some of it is held already, after a restart of the kubelet, the hint is that of the
        first container that holds some, or of the pod that holds it as a whole.
        """
        requests = pod.memory
        if not requests:
            return None
        if any(container.fractional_memory for container in pod.all_containers):
            return None
        if pod.has_shared_pool and empty_shared_pool(pod, dict(requests)):
            return {kind: HintList.empty() for kind, _ in requests}

        if pod.has_shared_pool and (sizes := self._pod_sizes(pod)) is not None:
            return _hints_as_held(self.pod_holdings[pod.uid].mask, sizes, requests)

        if self.holdings:
            for container in pod.all_containers:
                if (holding := self.holdings.get((pod.uid, container.name))) is not None:
                    compared = container.memory if self._hints_by_container else requests
                    return _hints_as_held(holding.mask, tuple(holding.sizes()), compared)

        return self._hints(pod.uid, requests)

    def _pod_sizes(self, pod: Pod) -> Requests | None:
        """Return what a pod has as a whole, as a kubelet sees it after a restart; None: nothing.

        A kubelet that restores nothing takes what the first container has for what the pod has.
        """
        holding = self.pod_holdings.get(pod.uid)
        if holding is None:
            return None
        if self._restores_pods:
            return tuple(holding.sizes())

        parts = self.pod_parts[pod.uid]
        names = [container.name for container in pod.all_containers if container.name in parts]
        return parts[names[0]][1] if names else None

    def _hints(self, pod_uid: str, requests: Requests) -> ResourceHints:
        hints = self.ledger.hints(requests, self.init_holdings.get(pod_uid, ()))
        if not hints:
            return {}
        return {kind: hints for kind, _ in requests}

    def allocate(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        """Give the container its memory on the nodes of `affinity`, or on more where these lack it.

        Memory of earlier init containers of the pod on the same nodes is handed over first.

        Raises:
            AllocationError: no nodes have enough free, or only nodes that the affinity or the group
                rule exclude, or a request is no whole number of bytes; nothing was given to this
                container.
        """
        requests = container.memory
        key = (pod.uid, container.name)
        if not requests:
            # as older kubelets do; what was placed before a restart has an entry, an empty one
            is_placed = self.readmits_pods and self._finds_nothing_placed
            if self._places_nothing(pod) and not is_placed:
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

        holding = self._take(self.ledger, pod.uid, requests, affinity, self.holdings, key)
        self.names[key] = pod.namespaced_name
        if container.is_init and not container.is_sidecar:
            self.init_holdings[pod.uid] = (*self.init_holdings.get(pod.uid, ()), holding)

    def _places_nothing(self, pod: Pod) -> bool:
        """Return whether this kubelet finds a place for containers that request no memory.

        Only a pod with resources of its own can be Guaranteed and have such a container.
        """
        if self._only_where_requested or pod.qos is not QOSClass.GUARANTEED:
            return False
        return pod.pod_level.allows_bare_containers

    @property
    def _places_for_nothing(self) -> bool:
        """Whether this kubelet does so for pods of which it reads such resources."""
        return not self._only_where_requested and self._pod_level.allows_bare_containers

    def allocate_pod(self, pod: Pod, affinity: TopologyHint) -> None:
        """Give a pod with resources of its own its memory, and divide it among its containers.

        All containers use the same NUMA nodes. Those that would be Guaranteed by themselves have
        their requests, all others share the rest; init containers that end have theirs from what
        sidecars leave.

        After a restart of the kubelet the pod keeps what it has, or, of kubelets that restore
        nothing, is given memory anew: nobody has the old one any more, and it is not free.

        Raises:
            AllocationError: as for `allocate`, or nothing would be left to share
                (`EmptyPodSharedPoolError`).
        """
        if not pod.memory or pod.qos is not QOSClass.GUARANTEED:
            return
        if pod.uid in self.pod_holdings and (self._restores_pods or not self.readmits_pods):
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
        mask = None if affinity.affinity is None else int(affinity.affinity)
        donors = self.init_holdings.get(pod_uid, ())
        holding = ledger.allocate(requests, donors, mask, affinity.preferred, into, key)
        if isinstance(holding, MemoryShortage):
            raise self._error(holding, pod_uid, requests)

        return holding

    def release(self, pod_uid: str, container_name: str) -> None:
        """Take back what the container holds, if anything.

        A call that was cut short can be repeated.
        """
        if pod_uid in self.pod_holdings:
            remaining_parts = {
                name: part
                for name, part in self.pod_parts.get(pod_uid, {}).items()
                if name != container_name
            }
            if remaining_parts:  # the memory stays the pod's until its last container is gone
                self.pod_parts[pod_uid] = remaining_parts
                return

            self.names.pop((pod_uid, ""), None)
            self.pod_parts.pop(pod_uid, None)
            self.ledger.release(self.pod_holdings[pod_uid], self.pod_holdings, pod_uid)
            return

        holding = self.holdings.get((pod_uid, container_name))
        if holding is None:
            return

        self.names.pop((pod_uid, container_name), None)
        donors = tuple(
            [donor for donor in self.init_holdings.pop(pod_uid, ()) if donor is not holding]
        )
        if donors:
            self.init_holdings[pod_uid] = donors

        self.ledger.release(holding, self.holdings, (pod_uid, container_name))

    def started(self, pod: Pod, container_name: str) -> None:
        """Take back what the init containers before this one hold, but for sidecars.

        They have ended.
        """
        for container in pod.init_containers:
            if container.name == container_name:
                break
            if not container.is_sidecar:
                self.release(pod.uid, container.name)

    def blocks(self, pod_uid: str, container_name: str) -> tuple[MemoryBlock, ...]:
        """Return what the container holds, by type.

        An init container no longer holds what it handed on.
        """
        if pod_uid in self.pod_parts:
            ids = self._ids_of(self.pod_holdings[pod_uid])
            _, parts = self.pod_parts[pod_uid].get(container_name, (False, ()))
            return tuple([MemoryBlock(ids, kind, size) for kind, size in parts])

        holding = self.holdings.get((pod_uid, container_name))
        if holding is None:
            return ()
        return self._blocks_of(holding)

    def pod_blocks(self, pod_uid: str) -> tuple[MemoryBlock, ...]:
        """Return what a pod holds as a whole, by type.

        Empty if its containers hold theirs one by one.
        """
        holding = self.pod_holdings.get(pod_uid)
        if holding is None:
            return ()
        return self._blocks_of(holding)

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
        """Return by type the bytes that the container holds on each node of its set.

        Nodes are given by the kernel's ids. In a pod that has memory as a whole, the memory that
        containers share is listed for the first of them only, init containers that end have no
        entry, and the empty name has the memory that is left.
        """
        if pod_uid in self.pod_parts:
            return self._pod_shares(pod_uid).get(container_name, {})

        holding = self.holdings.get((pod_uid, container_name))
        if holding is None:
            return {}

        ids = [self._ids[position] for position in holding.positions()]
        return {
            kind: dict(zip(ids, amounts, strict=True)) for kind, amounts in holding.shares().items()
        }

    def _pod_shares(self, pod_uid: str) -> dict[str, dict[str, dict[int, int]]]:
        """Return the shares of all containers of a pod that has memory as a whole, by name."""
        holding = self.pod_holdings[pod_uid]
        ids = [self._ids[position] for position in holding.positions()]
        remaining = {
            kind: dict(zip(ids, amounts, strict=True)) for kind, amounts in holding.shares().items()
        }

        container_shares: dict[str, dict[str, dict[int, int]]] = {}
        for name, (ends, parts) in self.pod_parts[pod_uid].items():
            if ends:
                continue

            for kind, size in parts:
                missing = size
                share = {}
                for numa_id in ids:
                    share[numa_id] = min(missing, remaining[kind][numa_id])
                    remaining[kind][numa_id] -= share[numa_id]
                    missing -= share[numa_id]

                if any(share.values()):
                    container_shares.setdefault(name, {})[kind] = share

        unshared = {kind: amounts for kind, amounts in remaining.items() if any(amounts.values())}
        if unshared:
            container_shares[""] = unshared

        return container_shares

    def adopt(
        self,
        pod_uid: str,
        container_name: str,
        shares: Mapping[str, Mapping[int, int]],
        called: str = "",
    ) -> None:
        """Note memory that the container was given before this provider was made.

        Where a node has less left than that (hugepages can be set aside at any time), it counts as
        full. Nodes and types that the machine does not have are ignored.

        Args:
            pod_uid: the container's pod.
            container_name: the container.
            shares: by type and kernel node id, the bytes that it was given.
            called: the pod's name in messages about who holds memory; by default it is the uid.

        Raises:
            AllocationError: the container has memory already.
        """
        if (pod_uid, container_name) in self.holdings:
            raise AllocationError(f"container {container_name!r} holds memory already")

        if (holding := self._adopted(shares)) is not None:
            self.holdings[pod_uid, container_name] = holding
            self.names[pod_uid, container_name] = called or pod_uid

    def adopt_pod(self, pod: Pod, shares: Mapping[str, Mapping[int, int]]) -> None:
        """Note memory that a pod was given as a whole, and divide it; see `adopt`."""
        if (holding := self._adopted(shares)) is not None:
            self.pod_holdings[pod.uid] = holding
            self.pod_parts[pod.uid] = _divided(pod)
            self.names[pod.uid, ""] = pod.namespaced_name

    def _adopted(self, shares: Mapping[str, Mapping[int, int]]) -> MemoryHolding | None:
        position = {numa_id: index for index, numa_id in enumerate(self._ids)}
        amounts: dict[str, Mapping[int, int]] = {
            kind: {
                position[numa_id]: size for numa_id, size in sizes.items() if numa_id in position
            }
            for kind, sizes in shares.items()
        }
        return self.ledger.adopt(amounts)

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

        holdings = {}
        pod_holdings = {}
        names = {}
        for key, holding in zip(state.holdings, restored, strict=True):
            if holding is None:
                continue

            uid, container_name = key
            names[key] = state.names.get(uid, uid)
            if container_name:
                holdings[key] = holding
            else:
                pod_holdings[uid] = holding

        self.holdings = SharedDict(holdings)
        self.names = SharedDict(names)
        self.pod_holdings = SharedDict(pod_holdings)
        self.pod_parts = SharedDict({uid: dict(state.parts.get(uid, {})) for uid in pod_holdings})
        self.init_holdings = SharedDict()

    def inherit(self, predecessor: MemoryProvider, *, knows_pods: bool = True) -> None:
        """Take over what the state file of the kubelet before a restart says.

        Args:
            predecessor: the provider as it was then.
            knows_pods: whether this kubelet reads what pods have as a whole; if not, it adds up
                what their containers have.

        Raises:
            ConfigError: a kubelet does not start on that state: another amount is reserved now, or
                what is free or bound there does not follow from what is held, since a kubelet has
                lost memory, or a refused pod left a binding behind.
        """
        if self.allocatable != predecessor.allocatable or not predecessor.has_exact_books:
            raise ConfigError(_OTHER_STATE)

        self._finds_nothing_placed = predecessor._places_for_nothing
        self.ledger = predecessor.ledger.copy()
        self.holdings = predecessor.holdings.copy()
        self.names = predecessor.names.copy()
        if knows_pods:
            self.pod_holdings = predecessor.pod_holdings.copy()
            self.pod_parts = predecessor.pod_parts.copy()
            return

        for uid, holding in predecessor.pod_holdings.items():
            parts = predecessor.pod_parts[uid]
            names = [name for name, (_, sizes) in parts.items() if sizes]
            if len(names) != 1 or parts[names[0]][1] != tuple(holding.sizes()):
                raise ConfigError(_OTHER_STATE)

            self.holdings[uid, names[0]] = holding
            self.names[uid, names[0]] = self.names[uid, ""]

    @property
    def has_exact_books(self) -> bool:
        """Whether all that is taken or bound is taken or bound by somebody who holds memory.

        A kubelet starts on such a state only (`validateState` of
        `memorymanager/policy_static.go`); where memory of several groups of NUMA nodes lies on one
        node, it starts at some times and not at others, and counts as starting here.
        """
        all_holdings = [*self.holdings.values(), *self.pod_holdings.values()]
        taken = dict.fromkeys(self.allocatable, 0)
        for holding in all_holdings:
            for kind, size in holding.sizes():
                taken[kind] += size

        free = self.free
        if any(
            sum(amounts) - sum(free[kind]) != taken[kind]
            for kind, amounts in self.allocatable.items()
        ):
            return False

        masks = {holding.mask for holding in all_holdings}
        used = union(masks)
        every_node = (1 << len(self._ids)) - 1
        if self.ledger.unused != every_node & ~used:
            return False

        # a node of a group that is bound to itself, though nobody has memory of it alone
        return all(1 << node in masks for node in bit_numbers(self.ledger.alone & used))

    def account(self, pod: Pod, container: Container | None) -> Accounts:
        """Return by type the account of the bytes asked for and free; see `HintProvider`."""
        requests = pod.memory if container is None else container.memory
        return self._accounts(pod.uid, requests)

    def _accounts(
        self, pod_uid: str, requests: Requests, mask: int = 0
    ) -> dict[str, MemoryAccount]:
        """Return the account of each type now.

        Args:
            pod_uid: the pod.
            requests: what it asks for.
            mask: the nodes that would do if nobody held memory there; 0: they are looked for.
        """
        ledger = self.ledger
        donors = self.init_holdings.get(pod_uid, ())
        holdings = [(holding, self.names[key]) for key, holding in self.holdings.items()]
        holdings += [(holding, self.names[uid, ""]) for uid, holding in self.pod_holdings.items()]

        ties: Callable[[], Ties] = tuple
        if holdings and mask:
            ties = partial(_ties, holdings, partial(int, mask), self._ids)
        elif holdings:
            wanted_mask = partial(_wanted_mask, ledger.copy(), donors, requests)
            ties = partial(_ties, holdings, wanted_mask, self._ids)

        families = {}
        if len(requests) > 1:
            sizes = [1, len(requests)]
            if len(requests) <= _MOST_TYPES:
                sizes = list(range(1, len(requests) + 1))

            for size in sizes:
                for family in combinations(requests, size):
                    kinds = frozenset(kind for kind, _ in family)
                    families[kinds] = ledger.hints(family, donors)

        return {
            kind: MemoryAccount(amount, ledger.free_of(kind), self._ids, families, ties)
            for kind, amount in requests
        }

    def _error(self, shortage: MemoryShortage, pod_uid: str, requests: Requests) -> AllocationError:
        """Return the error that says why the memory cannot be had."""
        if not self.says_why:
            return AllocationError(shortage.cause)

        is_bound = shortage.cause == "bound otherwise"
        accounts = self._accounts(pod_uid, requests, shortage.mask if is_bound else 0)
        lacking = _lacking(accounts)
        nodes = named("NUMA node", ids_of(shortage.mask, self._ids), ", ")
        if is_bound:
            texts = in_words(accounts)
            amounts = "; ".join(f"{kind}: {text}" for kind, text in texts.items())
            return AllocationError(
                f"{nodes} cannot be used together: memory of some of them is already in use on "
                f"another set of nodes; {amounts}",
                resources=tuple(lacking),
            )

        texts = in_words(lacking)
        if len(texts) == 1:
            ((noun, amounts),) = texts.items()
        else:
            noun = "memory"
            amounts = "; ".join(f"{kind}: {text}" for kind, text in texts.items())

        smallest = "smallest possible " if shortage.cause == "not preferred" else ""
        within = ""
        if shortage.mask and not any(map(_is_scarce, accounts.values())):
            within = f" that includes {nodes}"

        return AllocationError(
            f"no {smallest}set of NUMA nodes{within} has enough {noun}: {amounts}",
            resources=tuple(lacking),
        )


def _fraction_error(container: Container) -> AllocationError:
    """Return the refusal of a request with a fraction of a byte."""
    kind = container.fractional_memory
    amount = dict(container.memory)[kind]
    return AllocationError(
        f"{kind} is requested with a fraction of a byte: {amount} bytes, rounded up",
        resources=(kind,),
    )


def _divided(pod: Pod) -> dict[str, tuple[bool, Requests]]:
    """Return how a pod's memory is divided among its containers.

    Of each container: whether it ends before the others start, and what it has.
    """
    remaining = dict(pod.memory)
    parts: dict[str, Requests] = {}
    for container in pod.all_containers:
        ends = container.is_init and not container.is_sidecar
        if container.memory:
            # the pod as a whole has no entry for what is asked for with an amount of zero
            parts[container.name] = tuple(
                [(kind, size) for kind, size in container.memory if size and kind in remaining]
            )
            if not ends:
                for kind, size in parts[container.name]:
                    remaining[kind] -= size
        elif ends:
            parts[container.name] = tuple(
                [(kind, size) for kind, size in remaining.items() if size]
            )

    shared = tuple([(kind, size) for kind, size in remaining.items() if size])
    return {
        container.name: (
            container.is_init and not container.is_sidecar,
            parts.get(container.name, shared),
        )
        for container in pod.all_containers
    }


def _wanted_mask(
    ledger: MemoryLedger, donors: tuple[MemoryHolding, ...], requests: Requests
) -> int:
    """Return the nodes that would be taken were it not for the group rule.

    0: the rule changes nothing.
    """
    free = ledger.free
    if any(kind not in free for kind, _ in requests):
        return 0

    nodes = len(next(iter(free.values())))
    demands = [(None, free[kind], amount) for kind, amount in requests]
    best = feasible_hints(nodes, demands, universe=(1 << nodes) - 1, preferred_size=-1).best()
    if best is None:
        return 0

    ruled = ledger.hints(requests, donors).best()
    if ruled is not None and best[0] == ruled[0]:
        return 0
    return best[0]


def _hints_as_held(mask: int, sizes: Requests, requests: Requests) -> ResourceHints:
    """Return the hint that repeats what is held (`regenerateHints`).

    No preference if that is not what is asked for now.

    Args:
        mask: the NUMA nodes that it lies on.
        sizes: what is held.
        requests: what is asked for.
    """
    if sizes != requests:
        return None

    hints = HintList([TopologyHint(BitMask.from_int(mask), True)])
    return {kind: hints for kind, _ in requests}


def _ties(
    holdings: Sequence[tuple[MemoryHolding, str]],
    wanted_mask: Callable[[], int],
    ids: Sequence[int],
) -> Ties:
    """Return the sets of nodes in use that touch the wanted ones, each with the pods that hold it.

    Args:
        holdings: what containers hold, each with the name of its pod.
        wanted_mask: returns the mask of the nodes that would do if nobody held memory there.
        ids: of the NUMA nodes, by position.
    """
    mask = wanted_mask()
    pods_of: dict[int, dict[str, None]] = {}
    for holding, pod in holdings:
        if holding.mask & mask:
            pods_of.setdefault(holding.mask, {})[pod] = None

    ties = []
    for used_mask, pods in sorted(pods_of.items()):
        node_ids = tuple(ids[position] for position in bit_numbers(used_mask))
        names = list(pods)[:_NAMES_SHOWN]
        if len(pods) > _NAMES_SHOWN:
            names.append(f"{len(pods) - _NAMES_SHOWN} more")
        ties.append((node_ids, tuple(names)))

    return tuple(ties)


def _lacking(accounts: Mapping[str, MemoryAccount]) -> dict[str, MemoryAccount]:
    """Return the types whose request cannot be met even alone; all types if there is none.

    Those are the types with less free on all nodes together than requested; if there is none, those
    that no set of nodes which may be used together can hold.
    """
    scarce = {kind: account for kind, account in accounts.items() if _is_scarce(account)}
    # a lone type has no hints to look at; beyond 16 NUMA nodes there can be too many to count
    unplaced = {
        kind: account
        for kind, account in accounts.items()
        if account.families and not account.families[frozenset([kind])]
    }
    return scarce or unplaced or dict(accounts)


def _is_scarce(account: MemoryAccount) -> bool:
    """Return whether more is asked for than is free on all nodes together."""
    return account.free is None or sum(account.free) < account.requested


@lru_cache(maxsize=64)
def memory_capacity(
    machine: Machine, reserved: tuple[ReservedMemory, ...], *, checks_groups: bool = True
) -> MemoryCapacity:
    """Return the bytes of each type that pods can have.

    Nodes of the same machine and reservations share the answer.

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
    remaining = {node.id: {**types, **node.memory_by_type} for node in machine.numa_nodes}
    reserved_amounts: dict[tuple[int, str], int] = {}
    for reservation in reserved:
        node_id = reservation.numa_node
        if node_id not in remaining:
            node_ids = ", ".join(map(str, sorted(remaining)))
            raise ConfigError.at(
                "reservedMemory", f"a NUMA node of this machine ({node_ids})", node_id
            )

        node_memory = remaining[node_id]
        for kind, amount in reservation.limits:
            if (node_id, kind) in reserved_amounts:
                raise ConfigError(f"reservedMemory has {kind} of NUMA node {node_id} twice")
            if kind not in node_memory:
                raise ConfigError.at(
                    f"reservedMemory, NUMA node {node_id}",
                    f"one of {', '.join(sorted(node_memory))}",
                    kind,
                )
            if amount > node_memory[kind]:
                raise ConfigError.at(
                    f"reservedMemory, NUMA node {node_id}, {kind}",
                    f"at most the {format_bytes(node_memory[kind])} bytes there",
                    format_bytes(amount),
                )

            reserved_amounts[node_id, kind] = amount
            node_memory[kind] -= amount

    if not any(reserved_amounts.get((node_id, MEMORY)) for node_id in remaining):
        raise ConfigError.at("reservedMemory", "some memory reserved on a NUMA node", 0)

    allocatable = {
        kind: tuple(node_memory[kind] for node_memory in remaining.values())
        for kind in sorted(types)
    }
    return MemoryCapacity(allocatable, checks_groups=checks_groups)
