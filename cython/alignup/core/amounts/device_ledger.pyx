"""Keep the devices of one resource on one machine.

This is the Python interface to `alignup.core.amounts.device_allocation`. A set of devices is an
int: bit i is the i-th device of the inventory. Ids, pods and plugins are known to
`alignup.providers.devices`.
"""

cimport cython
from cpython.mem cimport PyMem_Free
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from alignup.core.amounts.device_allocation cimport (
    DEVICES_ASK_ANY,
    DEVICES_ASK_NEAR,
    DEVICES_NONE_HEALTHY,
    DEVICES_TOO_FEW,
    DeviceOutcome,
    copy_devices,
    count_free,
    device_bytes,
    device_family,
    finish_choice,
    mark_devices,
    place_devices,
    start_choice,
)
from alignup.core.amounts.fewest_numa_nodes cimport smallest_device_size
from alignup.core.bits cimport NARROW_NODES, all_nodes, popcount
from alignup.core.blocks cimport leave, room_for, zeroed
from alignup.core.hints cimport HintList

from alignup.core.feasible import feasible_hints, smallest_size

cdef enum:
    SHORT_SET = 16      # words of sets that lie on the stack: up to 1024 devices


cdef int write_set(object devices, uint64_t* words, int count) except -1:
    """Write a set as words."""
    cdef bytes text
    if count == 1:
        words[0] = devices
        return 0
    text = (<object>devices).to_bytes(8 * count, "little")
    memcpy(words, <const char*>text, 8 * count)
    return 0


cdef object read_words(const uint64_t* words, int count):
    """Return the set that words stand for."""
    if count == 1:
        return words[0]
    return int.from_bytes((<const char*>words)[: 8 * count], "little")


@cython.final
cdef class DeviceInventory:
    """The devices that a plugin reports of one resource, and those that are gone but still held.

    Nodes that are equal share them.

    Args:
        numa_nodes: how many NUMA nodes the machine has.
        places: for each device the mask of the NUMA nodes that it is near to; None: the plugin
            reported no topology.
        healthy: the set of the devices that are healthy.
        reported: how many devices the plugin reports; those after them are gone.
        over_all_nodes: offer masks of all nodes, not only of those that a device is near to
            (kubelets before 1.36).
        is_aligned: devices count as aligned even if none of them is near to a node: then no
            mask has enough.

    Raises:
        ValueError: a mask names nodes that the machine does not have.
    """

    def __cinit__(self):
        self.block = NULL

    def __init__(
        self,
        int numa_nodes,
        list places not None,
        healthy,
        int reported,
        *,
        bint over_all_nodes=False,
        bint is_aligned=False,
    ):
        cdef int words = max(1, (len(places) + 63) // 64), place
        cdef list masks = list(dict.fromkeys([mask for mask in places if mask]))
        cdef uint64_t* at

        if self.block is not NULL:
            raise TypeError("expected a new inventory, got one that is made already")
        if not 1 <= numa_nodes <= 64 or not 0 <= reported <= len(places):
            raise ValueError(
                f"expected 1 to 64 NUMA nodes, and at most {len(places)} devices reported"
            )
        if masks and (min(masks) < 0 or max(masks) >> numa_nodes):
            raise ValueError(
                f"expected masks of {numa_nodes} NUMA nodes, got {min(masks)} to {max(masks)}"
            )
        if healthy >> len(places):
            raise ValueError(
                f"expected a set of {len(places)} devices that are healthy, got {healthy}"
            )

        self.block = <char*>zeroed(
            len(masks) * (words + 2) + 4 * words + numa_nodes + 1, sizeof(uint64_t)
        )

        at = <uint64_t*>self.block
        self.layout.nodes = numa_nodes
        self.layout.words = words
        self.layout.places = len(masks)

        self.layout.place = at
        self.layout.totals = <int64_t*>(at + len(masks))
        self.layout.members = at + 2 * len(masks)

        at = self.layout.members + len(masks) * words
        self.layout.present = at
        self.layout.healthy = at + words
        self.layout.without_place = at + 2 * words
        self.layout.nowhere = at + 3 * words
        self.layout.largest_sums = <int64_t*>(at + 4 * words)

        for place in range(len(masks)):
            self.layout.place[place] = masks[place]

        self.last_word = ((<object>1 << len(places)) - 1) >> (64 * (words - 1))

        # of any number: no C shift
        write_set((<object>1 << reported) - 1, self.layout.present, words)
        write_set(healthy, self.layout.healthy, words)
        self.layout.any_healthy = healthy != 0
        self.layout.reported = reported

        self.sort_by_place(places)
        if (over_all_nodes or not self.layout.universe) and (is_aligned or self.layout.universe):
            self.layout.universe = all_nodes(numa_nodes)

        self.sum_largest()

    @staticmethod
    def from_counts(list totals not None, *, bint over_all_nodes=False):
        """Return an inventory of which only counts are known.

        They are the devices near to each NUMA node.
        """
        cdef DeviceInventory inventory = DeviceInventory.__new__(DeviceInventory)
        cdef int node, nodes = len(totals)
        cdef uint64_t* at

        if not 1 <= nodes <= 64 or min(totals) < 0:
            raise ValueError(f"expected counts of 1 to 64 NUMA nodes, got {totals}")

        inventory.block = <char*>zeroed(3 * nodes + 1, sizeof(uint64_t))
        at = <uint64_t*>inventory.block

        inventory.layout.nodes = inventory.layout.places = nodes
        inventory.layout.place = at
        inventory.layout.totals = <int64_t*>(at + nodes)
        inventory.layout.largest_sums = <int64_t*>(at + 2 * nodes)

        inventory.layout.single_places = True
        inventory.layout.in_order = True
        inventory.layout.any_healthy = True
        for node in range(nodes):
            inventory.layout.place[node] = (<uint64_t>1) << node
            inventory.layout.totals[node] = totals[node]
            inventory.layout.reported += inventory.layout.totals[node]
            if totals[node]:
                inventory.layout.universe |= inventory.layout.place[node]

        if over_all_nodes and inventory.layout.universe:
            inventory.layout.universe = all_nodes(nodes)

        inventory.sum_largest()
        return inventory

    cdef void sort_by_place(self, list places):
        """Sort the devices by place."""
        cdef int index, place, words = self.layout.words
        cdef uint64_t bit

        numbers = {self.layout.place[place]: place for place in range(self.layout.places)}
        self.layout.universe = 0
        self.layout.single_places = True
        self.layout.in_order = self.layout.places == self.layout.nodes
        for place in range(self.layout.places):
            self.layout.in_order = (
                self.layout.in_order and self.layout.place[place] == (<uint64_t>1) << place
            )

        for index, mask in enumerate(places):
            bit = (<uint64_t>1) << (index & 63)
            if not mask:
                self.layout.without_place[index >> 6] |= bit
                if mask is not None:
                    self.layout.nowhere[index >> 6] |= bit

                continue

            place = numbers[mask]
            self.layout.members[place * words + (index >> 6)] |= bit
            if self.layout.present[index >> 6] & bit:
                self.layout.totals[place] += 1
                self.layout.universe |= self.layout.place[place]

            self.layout.single_places = (
                self.layout.single_places and popcount(self.layout.place[place]) == 1
            )

    cdef void sum_largest(self):
        """Sum the nodes with the most devices, where every place is one node."""
        cdef int node, place

        totals = sorted(
            [self.layout.totals[place] for place in range(self.layout.places)], reverse=True
        )
        for node in range(self.layout.nodes):
            self.layout.largest_sums[node + 1] = self.layout.largest_sums[node]
            if node < len(totals):
                self.layout.largest_sums[node + 1] += <int64_t>totals[node]

    def __dealloc__(self):
        PyMem_Free(self.block)

    @property
    def is_aligned(self):
        """Whether any device is near to some node, or they count as aligned.

        Otherwise there is nothing to align.
        """
        return self.layout.universe != 0

    def places(self):
        """Return (mask, set of devices) for each set of NUMA nodes.

        The devices that are near to none come last, as (0, set).
        """
        cdef int place, words = self.layout.words
        placed = [
            (self.layout.place[place], read_words(self.layout.members + place * words, words))
            for place in range(self.layout.places)
        ]
        return [*placed, (0, read_words(self.layout.without_place, words))]

    @property
    def present(self):
        """The devices that the plugin reports."""
        return read_words(self.layout.present, self.layout.words)

    @property
    def healthy(self):
        """The devices that the plugin reports as healthy."""
        return read_words(self.layout.healthy, self.layout.words)


@cython.final
cdef class DeviceLedger:
    """Which devices of an inventory are given.

    `given` is the set of the devices that are given already.
    """

    def __cinit__(self, DeviceInventory inventory not None, given=0):
        self.state.allocated = NULL
        self.own(inventory)
        write_set(given, self.state.allocated, inventory.layout.words)
        count_free(&self.state)

    @staticmethod
    def from_counts(DeviceInventory inventory not None, list available not None):
        """Return a ledger of which only counts are known.

        They are the free devices near to each NUMA node.
        """
        cdef DeviceLedger ledger
        cdef int place

        if (
            inventory.layout.words
            or len(available) != inventory.layout.places
            or min(available, default=0) < 0
        ):
            raise ValueError(
                f"expected counts of {inventory.layout.places} NUMA nodes, got {available}"
            )

        ledger = DeviceLedger.__new__(DeviceLedger, inventory)
        ledger.state.free_in_all = 0
        for place in range(inventory.layout.places):
            ledger.state.free[place] = available[place]
            ledger.state.free_in_all += ledger.state.free[place]

        return ledger

    cdef int own(self, DeviceInventory inventory) except -1:
        if inventory.block is NULL:
            raise ValueError("expected an inventory, got one that is not made yet")
        self.inventory = inventory
        self.state.layout = &inventory.layout
        place_devices(&self.state, <char*>zeroed(1, device_bytes(&inventory.layout)))
        return 0

    def __dealloc__(self):
        PyMem_Free(self.state.allocated)

    def copy(self):
        """Return an independent ledger in which the same devices are given."""
        cdef DeviceLedger ledger = DeviceLedger.__new__(DeviceLedger, self.inventory)
        copy_devices(&ledger.state, &self.state, <char*>ledger.state.allocated)
        return ledger

    cdef int read_set(self, object devices, uint64_t* words) except -1:
        cdef int last = self.state.layout.words - 1

        if last < 0:
            raise ValueError(
                "expected an inventory whose devices are known, got one of which only counts are"
            )
        if (
            write_set(devices, words, self.state.layout.words)
            or words[last] & ~self.inventory.last_word
        ):
            raise ValueError(f"expected a set of the devices of the inventory, got {devices}")

    cdef object set_of(self, const uint64_t* words):
        return read_words(words, self.state.layout.words)

    @property
    def given(self):
        """The devices that are held."""
        return self.set_of(self.state.allocated)

    @property
    def free(self):
        """The devices that are healthy and that nobody holds."""
        return self.inventory.healthy & ~self.given

    def give(self, devices):
        """Mark devices as given."""
        self.mark(devices, True)

    def take_back(self, devices):
        """Mark devices as no longer given; they are free if they are healthy."""
        self.mark(devices, False)

    cdef int mark(self, object devices, bint give) except -1:
        cdef uint64_t[SHORT_SET] short
        cdef uint64_t* words = room_for(self.state.layout.words, short, SHORT_SET)

        try:
            self.read_set(devices, words)
            mark_devices(&self.state, words, give)
        finally:
            leave(words, short)
        return 0

    def hints(self, int64_t request, reusable=0, held=None):
        """Return the masks near which enough devices are; None where no device has a place.

        A mask counts the devices of either set that are near to one of its nodes, and must be near
        to every reusable device. Preferred masks have the size that sufficed if nobody held any
        device.

        Args:
            request: how many devices are needed.
            reusable: devices that the container takes over from earlier ones of its pod.
            held: the devices to count; None: the free ones.
        """
        cdef int place
        cdef uint64_t[SHORT_SET] short
        cdef int64_t[64] amounts
        cdef uint64_t* sets
        cdef HintList hints

        if not self.state.layout.universe:
            return None

        if held is None and not reusable and self.state.layout.nodes <= NARROW_NODES:
            if self.state.free_in_all < request:
                return HintList.empty()

            hints = HintList.__new__(HintList)
            device_family(
                self.state.layout,
                self.state.free,
                NULL,
                request,
                smallest_device_size(self.state.layout, request),
                &hints.family,
            )
            return hints

        # nobody can take over a device that is not there any more
        reusable &= self.inventory.present
        pool = (self.free if held is None else held) | reusable
        if pool.bit_count() < request:
            return HintList.empty()

        counts = [(pool & members).bit_count() for mask, members in self.inventory.places() if mask]
        if self.state.layout.nodes > NARROW_NODES or len(counts) > 64:
            return self.wide_hints(counts, reusable, request)

        for place in range(self.state.layout.places):
            amounts[place] = counts[place]

        sets = room_for(self.state.layout.words, short, SHORT_SET)
        hints = HintList.__new__(HintList)
        try:
            self.read_set(reusable, sets)
            device_family(
                self.state.layout,
                amounts,
                sets if reusable else NULL,
                request,
                smallest_device_size(self.state.layout, request),
                &hints.family,
            )
        finally:
            leave(sets, short)

        return hints

    cdef HintList wide_hints(self, list counts, object reusable, int64_t request):
        """Describe the hints beyond 8 nodes, or of more places than are counted on the stack."""
        cdef int size = smallest_device_size(self.state.layout, request), place
        cdef list places = [
            self.state.layout.place[place] for place in range(self.state.layout.places)
        ]
        cdef list touching = [
            mask for mask, members in self.inventory.places() if mask and members & reusable
        ]

        if reusable & read_words(self.state.layout.nowhere, self.state.layout.words):
            touching.append(0)

        if not size:
            totals = [self.state.layout.totals[place] for place in range(self.state.layout.places)]
            size = smallest_size(
                self.state.layout.nodes, ((places, totals, request),), self.state.layout.universe
            )
            size = size or popcount(self.state.layout.universe)

        return feasible_hints(
            self.state.layout.nodes,
            ((places, counts, request),),
            universe=self.state.layout.universe,
            preferred_size=size,
            touching=touching,
        )

    def choose(self, int64_t request, reusable, mask, advise=None):
        """Return the devices that a container gets, not yet marked as given.

        Where they cannot be had it is a `DeviceShortage`.

        Args:
            request: how many devices are asked for.
            reusable: devices that earlier containers of the pod leave to this one.
            mask: the affinity's NUMA nodes; None: anywhere.
            advise: asked where there is a choice, with (choice, chosen, request); returns what
                is chosen then.
        """
        cdef int words = self.state.layout.words
        cdef uint64_t[SHORT_SET] short
        cdef uint64_t* sets = room_for(3 * words, short, SHORT_SET)
        cdef uint64_t* chosen = sets + words
        cdef uint64_t* choice = sets + 2 * words
        cdef uint64_t near = 0 if mask is None else mask
        cdef DeviceOutcome outcome

        try:
            self.read_set(reusable, sets)
            outcome = start_choice(
                &self.state, request, sets if reusable else NULL, mask is None, near, chosen, choice
            )
            if outcome == DEVICES_NONE_HEALTHY or outcome == DEVICES_TOO_FEW:
                return DeviceShortage(
                    "none healthy" if outcome == DEVICES_NONE_HEALTHY else "too few"
                )

            if outcome == DEVICES_ASK_NEAR or outcome == DEVICES_ASK_ANY:
                if advise is not None:
                    self.read_set(
                        self.advised(advise, self.set_of(choice), self.set_of(chosen), request),
                        chosen,
                    )

                finish_choice(&self.state, outcome, request, mask is None, chosen, choice)

            return self.set_of(chosen)
        finally:
            leave(sets, short)

    cdef object advised(self, object advise, object choice, object chosen, int64_t request):
        """Return the devices chosen before, and those of the choice that the adviser adds."""
        answer = advise(choice, chosen, request)
        if chosen & ~answer or answer & ~(choice | chosen) or answer.bit_count() > request:
            raise ValueError(
                f"expected at most {request} devices of {choice | chosen} with {chosen}, "
                f"got {answer}"
            )
        return answer


@cython.final
cdef class DeviceShortage:
    """Why a container's devices cannot be had: `cause` is `none healthy` or `too few`."""

    cdef readonly str cause

    def __init__(self, str cause not None):
        self.cause = cause
