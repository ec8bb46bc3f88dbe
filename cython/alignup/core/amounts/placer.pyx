"""Place a pod with the three managers of a node in one call.

What each container gets is decided and taken here. `alignup.core.amounts.judge` decides, as for a
cluster; the kernels of the managers choose and take; who holds what is noted in their `holders`.
The providers are not asked one by one, so this is for nodes that have no others. Whatever is not
plain is left to them: init containers, device plugins with a preference, pods that a manager knows
already, decisions that take a search, and every refusal, since only they can say why.
"""

cimport cython
from libc.stdint cimport uint64_t
from libc.string cimport memset

from alignup.core.amounts.board cimport Distances
from alignup.core.amounts.cpu_allocation cimport (
    CPUS_CHOSEN,
    NEVER_IRREGULAR,
    CpuLayout,
    CpuOutcome,
    CpuState,
    check_whole_cores,
    choice_sets,
    choose_cpus,
    mark_cpus,
)
from alignup.core.amounts.device_allocation cimport (
    DEVICES_NONE_HEALTHY,
    DEVICES_TOO_FEW,
    DeviceOutcome,
    finish_choice,
    start_choice,
)
from alignup.core.amounts.device_ledger cimport DeviceLedger, read_words
from alignup.core.amounts.fewest_numa_nodes cimport smallest_memory_size
from alignup.core.amounts.holders cimport CpuHolders, DeviceHolders, MemoryHolders, PodDevices
from alignup.core.amounts.judge cimport decide
from alignup.core.amounts.memory_allocation cimport (
    MEMORY_CHOSEN,
    MemoryHints,
    MemoryOutcome,
    best_memory_hint,
    choose_memory,
    copy_memory,
    holds_memory,
    take_memory,
)
from alignup.core.amounts.memory_ledger cimport MemoryHolding, MemoryLedger
from alignup.core.amounts.memory_state cimport MOST_TYPES, MemoryRequest, MemoryState
from alignup.core.amounts.trial cimport (
    ADMITTED,
    MOST_RESOURCES,
    POLICY_NONE,
    Hint,
    NodeRow,
    Offers,
    Request,
    Trial,
    read_memory_request,
)
from alignup.core.bits cimport NARROW_NODES
from alignup.core.blocks cimport leave, room_for
from alignup.core.cpu.topology cimport cpus_of
from alignup.core.hints cimport TopologyHint, hint_of
from alignup.core.shared_dict cimport SharedDict

from alignup.core.amounts.memory_ledger import LARGEST_REQUEST

MOST_SUMMED = NARROW_NODES
"""NUMA nodes up to which distances can decide."""

cdef enum:
    # words of sets that lie on the stack: all sets of a choice on machines of up to 512 CPUs
    SHORT_SET = 128


@cython.final
@cython.freelist(8)
cdef class Share:
    """What one container of a pod gets; it never changes.

    Attributes:
        container: the container.
        affinity: the merged hint; None under policy none.
        cpus: those that it has for itself, as an int; None: none.
        memory_nodes: the mask of the NUMA nodes of its memory; 0: it has none.
        devices: by resource, as ints.
    """

    cdef readonly object container
    cdef readonly TopologyHint affinity
    cdef readonly object cpus
    cdef readonly uint64_t memory_nodes
    cdef readonly dict devices
    cdef MemoryHolding holding

    def sizes(self):
        """Return the type and the bytes of each type of memory that the container has, by type."""
        if self.holding is not None:
            return self.holding.sizes()
        return sorted(self.container.memory) if self.memory_nodes else []


cdef bint are_among(dict holdings, tuple containers) except -1:
    """Return whether all that is held is held by these containers."""
    cdef Py_ssize_t count = 0
    if holdings is None:
        return True
    for container in containers:
        count += container.name in holdings
    return count == len(holdings)


@cython.final
cdef class Placer:
    """Places pods on a node that has no other providers than these.

    Args:
        numa_nodes: how many NUMA nodes the machine has.
        policy: the number of the Topology Manager policy: none, best-effort, restricted,
            single-numa-node.
        pod_scope: whether pods are judged as a whole.
        distances: those that decide between masks of one size; None: none do.
        plain_level: the `pod_level` of pods that have no resources of their own.
        devices, cpu, memory: the managers; None: there is none.
    """

    cdef int nodes
    cdef int policy
    cdef bint pod_scope
    cdef Distances distances
    cdef object plain_level
    cdef DeviceHolders devices
    cdef CpuHolders cpu
    cdef MemoryHolders memory

    def __init__(
        self,
        int numa_nodes,
        int policy,
        bint pod_scope,
        Distances distances,
        plain_level,
        DeviceHolders devices,
        CpuHolders cpu,
        MemoryHolders memory,
    ):
        if not 1 <= numa_nodes <= 64 or not 0 <= policy < 4:
            raise ValueError(
                f"expected 1 to 64 NUMA nodes and one of 4 policies, got {numa_nodes} and {policy}"
            )
        if distances is not None and (distances.nodes != numa_nodes or numa_nodes > NARROW_NODES):
            raise ValueError(
                f"expected distances of up to {NARROW_NODES} NUMA nodes, "
                f"got those of {distances.nodes}"
            )

        self.nodes = numa_nodes
        self.policy = policy
        self.pod_scope = pod_scope
        self.distances = distances
        self.plain_level = plain_level
        self.devices = devices
        self.cpu = cpu
        self.memory = memory

    def copy(self, DeviceHolders devices, CpuHolders cpu, MemoryHolders memory):
        """Return the same for a copy of the node."""
        return Placer(
            self.nodes,
            self.policy,
            self.pod_scope,
            self.distances,
            self.plain_level,
            devices,
            cpu,
            memory,
        )

    def place(self, pod, SharedDict affinities not None):
        """Give each container of a pod its share, and note it.

        Return whether that was done; otherwise nothing was.

        Args:
            pod: a `Pod` that is not admitted yet.
            affinities: by pod uid and container, where the merged hints are noted.
        """
        cdef list shares = self.shares(pod, True)
        if shares is None:
            return False
        self.note(pod, shares, affinities)
        return True

    def preview(self, pod):
        """Return the shares that `place` would give; None where it would give none."""
        cdef list shares = self.shares(pod, False)
        return None if shares is None else tuple(shares)

    def held(self, pod, SharedDict affinities not None):
        """Return the shares that a pod has; None where they are not as plain."""
        cdef str uid = pod.uid
        cdef dict hints, cpus = None
        cdef PodDevices devices = None
        cdef Share share
        cdef list shares = []

        if pod.init_containers or pod.pod_level is not self.plain_level:
            return None

        hints = affinities.entries.get(uid)
        if self.cpu is not None:
            cpus = self.cpu.held.entries.get(uid)

        if self.devices is not None:
            devices = self.devices.pods.entries.get(uid)

        if self.memory is not None and uid in self.memory.pod_parts.entries:
            return None

        for container in <tuple?>pod.all_containers:
            name = container.name
            share = Share.__new__(Share)
            share.container = container
            share.affinity = None if hints is None else hints.get(name)
            share.cpus = None if cpus is None else cpus.get(name)
            share.devices = None if devices is None else devices.containers.get(name)
            if self.memory is not None:
                share.holding = self.memory.holdings.entries.get((uid, name))
                share.memory_nodes = 0 if share.holding is None else share.holding.taking.mask

            shares.append(share)

        return tuple(shares)

    def take_back(self, pod, tuple containers not None):
        """Take back all that a pod holds, and return True.

        Where the pod is not as plain, do nothing and return False. What was taken back before is
        passed over.

        Args:
            pod: a `Pod`.
            containers: its containers, in the order of their release.
        """
        cdef str uid = pod.uid
        cdef dict cpus = None
        cdef PodDevices devices = None
        cdef DeviceLedger ledger
        cdef MemoryHolding holding

        if pod.init_containers or pod.pod_level is not self.plain_level:
            return False

        if self.cpu is not None:
            cpus = self.cpu.held.entries.get(uid)
            if uid in self.cpu.whole_pods.entries or not are_among(cpus, containers):
                return False

        if self.devices is not None:
            devices = self.devices.pods.entries.get(uid)
            if (
                devices is not None
                and (devices.reusable or not are_among(devices.containers, containers))
            ):
                return False

        if self.memory is not None:
            if uid in self.memory.pod_holdings.entries or uid in self.memory.init_holdings.entries:
                return False

            for container in containers:
                key = (uid, container.name)
                holding = self.memory.holdings.entries.get(key)
                if holding is not None:
                    self.memory.names.own().pop(key, None)
                    self.memory.ledger.take_back(holding)
                    del self.memory.holdings.own()[key]

        if cpus is not None:
            for allocated in cpus.values():
                self.cpu.ledger.mark(allocated, False)
                if self.cpu.reusable and self.cpu.reusing_pod == uid:
                    self.cpu.reusable &= ~allocated

            del self.cpu.held.own()[uid]

        if devices is not None:
            for resources in devices.containers.values():
                for resource, allocated in (<dict?>resources).items():
                    ledger = self.devices.pools[resource].ledger
                    ledger.mark(allocated, False)

            del self.devices.pods.own()[uid]

        return True

    # Whether a pod is plain

    cdef bint is_plain(self, pod, str uid) except -1:
        """Return whether no manager knows the pod, and none of them needs to be asked."""
        if pod.init_containers or pod.pod_level is not self.plain_level:
            return False
        if self.devices is not None and uid in self.devices.pods.entries:
            return False

        if self.cpu is not None:
            if uid in self.cpu.held.entries or (self.cpu.reusable and self.cpu.reusing_pod == uid):
                return False
            if not self.counts_cpus(pod, self.cpu.ledger.state.layout):
                return False

        if self.memory is not None:
            return (
                uid not in self.memory.init_holdings.entries
                and uid not in self.memory.pod_holdings.entries
            )

        return True

    cdef bint counts_cpus(self, pod, const CpuLayout* layout) except -1:
        """Return whether every container is given CPUs that are counted as free, by `choose_cpus`.

        Others are given where a socket or core is larger than the average, and a request so large
        that it may be taken as a whole.
        """
        if layout.distributes:
            return False
        if layout.irregular_size == NEVER_IRREGULAR:
            return True

        for container in <tuple?>pod.all_containers:
            if container.exclusive_cpus >= layout.irregular_size:
                return False

        return True

    cdef bint read(self, requester, Trial* trial, Request* request, list pools) except -1:
        """Read what a container, or a pod as a whole, asks for.

        Return whether that is all that has to be known.
        """
        cdef DeviceLedger ledger
        cdef int index = 0

        request.cpus = 0 if self.cpu is None else min(requester.exclusive_cpus, LARGEST_REQUEST)
        request.types = request.resources = 0
        if self.memory is not None:
            for kind, size in <tuple?>requester.memory:
                if index == MOST_TYPES or size < 0:
                    return False

                number = self.memory.ledger.capacity.numbers.get(kind)
                trial.type[index] = -1 if number is None else number
                request.type[index] = index
                request.size[index] = min(size, LARGEST_REQUEST)
                index += 1

            request.types = index

        if self.devices is None:
            return request.cpus >= 0

        index = 0
        for resource, count in <tuple?>requester.devices:
            pool = self.devices.pools.get(resource)
            if pool is None:
                continue
            if index == MOST_RESOURCES or count < 0:
                return False

            ledger = pool.ledger
            trial.devices[index] = &ledger.state
            request.resource[index] = index
            request.count[index] = min(count, LARGEST_REQUEST)
            pools.append((resource, pool, ledger))
            index += 1

        request.resources = index
        return request.cpus >= 0

    # Deciding and taking

    cdef list shares(self, pod, bint keep):
        """Decide on each container of a pod, and take its share.

        Without `keep` everything is as before in the end.
        """
        cdef Trial trial
        cdef NodeRow row
        cdef Request request
        cdef Hint hint
        cdef MemoryLedger previous_memory = None
        cdef tuple containers = pod.all_containers
        cdef Py_ssize_t index, last = len(containers) - 1
        cdef bint by_pod = self.pod_scope and self.policy != POLICY_NONE, whole = False
        cdef list shares = [], pools
        cdef Share share

        if not self.is_plain(pod, pod.uid):
            return None

        self.start(&trial, &row)
        if (
            by_pod
            and not (self.read(pod, &trial, &request, []) and self.decided(&trial, &request, &hint))
        ):
            return None

        if last > 0 and self.memory is not None:
            previous_memory = self.memory.ledger.copy()

        try:
            for index in range(last + 1):
                container = containers[index]
                pools = []
                if (
                    not self.is_new(pod, container, shares)
                    or not self.read(container, &trial, &request, pools)
                ):
                    return None
                if not by_pod and not self.decided(&trial, &request, &hint):
                    return None

                share = self.take(container, &trial, &request, &hint, pools, keep or index < last)
                if share is None:
                    return None

                if keep or index < last:
                    shares.append(share)

            whole = keep
        finally:
            if not whole:
                self.give_back(shares, previous_memory)

        return shares if keep or last < 0 else [*shares, share]

    cdef void start(self, Trial* trial, NodeRow* row):
        """Let a trial look at the node as it is; only what a decision reads is set."""
        memset(trial, 0, sizeof(Trial))
        memset(row, 0, sizeof(NodeRow))
        row.nodes = self.nodes
        row.policy = self.policy
        row.distances = NULL if self.distances is None else self.distances.sums
        trial.row = row
        trial.policy = self.policy
        trial.cpu = NULL if self.cpu is None else &self.cpu.ledger.state
        trial.memory = NULL if self.memory is None else &self.memory.ledger.state

    cdef bint decided(self, Trial* trial, const Request* request, Hint* hint) noexcept:
        """Return whether the policy admits a request, with the merged hint."""
        cdef Offers offers
        return decide(trial, request, &offers, hint) == ADMITTED

    cdef bint is_new(self, pod, container, list shares) except -1:
        """Return whether a container asks for whole bytes, and nothing is held under its name."""
        cdef Share share

        name = container.name
        for share in shares:
            if share.container.name == name:
                return False
        if self.memory is None:
            return True
        return (
            not container.fractional_memory and (pod.uid, name) not in self.memory.holdings.entries
        )

    cdef Share take(
        self,
        container,
        const Trial* trial,
        const Request* request,
        const Hint* hint,
        list pools,
        bint keep,
    ):
        """Choose what a container gets near the hint, and take it if it is kept.

        Return None where some of it cannot be had.
        """
        cdef Share share = Share.__new__(Share)
        cdef uint64_t[SHORT_SET] short
        cdef CpuState* cpus = NULL
        cdef MemoryState* memory
        cdef MemoryRequest amounts
        cdef DeviceLedger ledger
        cdef CpuOutcome outcome
        cdef int words = 0
        cdef uint64_t* sets = NULL

        share.container = container
        if self.policy != POLICY_NONE:
            share.affinity = hint_of(hint.mask, hint.anywhere, hint.preferred)

        if request.resources and not self.choose_devices(share, request, hint, pools):
            return None

        if request.types:
            read_memory_request(trial, request, &amounts)
            share.memory_nodes = self.memory_nodes(&amounts, hint)
            if not share.memory_nodes:
                return None

        if request.cpus:
            cpus = &self.cpu.ledger.state
            words = cpus.layout.groups.words
            sets = room_for((choice_sets() + 2) * words, short, SHORT_SET)

        try:
            if cpus != NULL:
                outcome = check_whole_cores(cpus, request.cpus)
                if outcome != CPUS_CHOSEN:
                    return None

                outcome = choose_cpus(
                    cpus,
                    request.cpus,
                    NULL,
                    hint.anywhere,
                    hint.mask,
                    sets + words,
                    sets + 2 * words,
                )
                if outcome != CPUS_CHOSEN:
                    return None

                share.cpus = cpus_of(self.cpu.ledger.capacity.topology, sets + words)

            if not keep:
                return share

            if share.memory_nodes:
                memory = &self.memory.ledger.state
                share.holding = MemoryHolding.__new__(
                    MemoryHolding, self.memory.ledger.capacity, share.memory_nodes
                )
                take_memory(memory, &amounts, NULL, 0, &share.holding.taking)

            if cpus != NULL:
                mark_cpus(cpus, sets + words, True)

            for resource, _, ledger in pools:
                if share.devices is not None and resource in share.devices:
                    ledger.mark(share.devices[resource], True)

            return share
        finally:
            if sets != NULL:
                leave(sets, short)

    cdef bint choose_devices(
        self, Share share, const Request* request, const Hint* hint, list pools
    ) except -1:
        """Choose the devices of each resource.

        Return whether they can be had without asking a plugin.
        """
        cdef uint64_t[SHORT_SET] short
        cdef uint64_t* sets
        cdef DeviceOutcome outcome
        cdef DeviceLedger ledger
        cdef int index, words

        for index in range(request.resources):
            resource, pool, ledger = pools[index]
            words = ledger.state.layout.words
            sets = room_for(2 * words, short, SHORT_SET)
            try:
                outcome = start_choice(
                    &ledger.state,
                    request.count[index],
                    NULL,
                    hint.anywhere,
                    hint.mask,
                    sets,
                    sets + words,
                )
                if (
                    outcome == DEVICES_NONE_HEALTHY
                    or outcome == DEVICES_TOO_FEW
                    or pool.preference is not None
                ):
                    return False

                if outcome:
                    finish_choice(
                        &ledger.state,
                        outcome,
                        request.count[index],
                        hint.anywhere,
                        sets,
                        sets + words,
                    )

                chosen = read_words(sets, words)
            finally:
                leave(sets, short)

            if not chosen:
                continue

            if share.devices is None:
                share.devices = {}
            elif resource in share.devices:
                return False

            share.devices[resource] = chosen

        return True

    cdef uint64_t memory_nodes(self, const MemoryRequest* request, const Hint* hint) noexcept:
        """Return the NUMA nodes that a container's memory comes from.

        It is 0 where it cannot be had, or takes a search.
        """
        cdef const MemoryState* state = &self.memory.ledger.state
        cdef uint64_t mask = 0 if hint.anywhere else hint.mask
        cdef MemoryHints hints
        cdef MemoryOutcome outcome

        if self.nodes > NARROW_NODES and (hint.anywhere or not holds_memory(state, request, mask)):
            return 0

        hints.state = state
        hints.request = request
        hints.donors = NULL
        hints.donor_count = 0
        hints.preferred_size = smallest_memory_size(state.layout, request)
        outcome = choose_memory(
            state, request, best_memory_hint, &hints, hint.anywhere, hint.preferred, &mask
        )

        return mask if outcome == MEMORY_CHOSEN else 0

    cdef int give_back(self, list shares, MemoryLedger previous_memory) except -1:
        """Take back what shares were given; memory is as it was before."""
        cdef Share share
        cdef DeviceLedger ledger

        for share in shares:
            if share.cpus is not None:
                self.cpu.ledger.mark(share.cpus, False)

            for resource, devices in (share.devices or {}).items():
                ledger = self.devices.pools[resource].ledger
                ledger.mark(devices, False)

        if previous_memory is not None and shares:
            copy_memory(
                &self.memory.ledger.state,
                &previous_memory.state,
                <char*>self.memory.ledger.state.free,
            )

        return 0

    cdef int note(self, pod, list shares, SharedDict affinities) except -1:
        """Note who holds what, as the managers would."""
        cdef str uid = pod.uid
        cdef Share share
        cdef dict hints = {}, cpus = {}, devices = {}

        called = f"{pod.namespace}/{pod.name}"
        for share in shares:
            name = share.container.name
            if share.affinity is not None:
                hints[name] = share.affinity

            if share.cpus is not None:
                cpus[name] = share.cpus

            if share.devices is not None:
                devices[name] = share.devices

            if share.holding is not None:
                key = (uid, name)
                self.memory.holdings.own()[key] = share.holding
                self.memory.names.own()[key] = called

        if hints:
            affinities.own()[uid] = hints

        if cpus:
            self.cpu.held.own()[uid] = cpus
            self.cpu.reusing_pod = uid
            self.cpu.reusable = 0

        if devices:
            self.devices.pods.own()[uid] = PodDevices(devices, {})

        if self.devices is not None and shares:
            self.devices.last_pod = uid

        return 0
