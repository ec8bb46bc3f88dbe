"""Describe what the CPU, device and memory managers of a node offer for one request.

Each offer is a list of hints: which single NUMA nodes suffice, and from what the larger masks follow. Most decisions
need no more than that; `families_of` lists all masks where they do.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, memset

from alignup.core.amounts.cpus cimport CpuState, add_reusable, cpu_family, cpu_size, sockets_for
from alignup.core.amounts.devices cimport DeviceLayout, DeviceState, device_family, device_size
from alignup.core.amounts.halves cimport nodes_with, sum_of_all
from alignup.core.amounts.memory cimport (
    MemoryHints, has_memory_hint, memory_family, memory_size, suffices_with_reuse,
)
from alignup.core.amounts.memory_state cimport MemoryRequest, MemoryState, MemoryTaking
from alignup.core.amounts.trial cimport Request, Trial, has_devices, read_memory_request
from alignup.core.bits cimport NARROW_MASKS, WIDEST, is_single, lowest, popcount
from alignup.core.narrow.family cimport Family


cdef void collect_offers(const Trial* trial, const Request* request, Offers* offers) noexcept nogil:
    """Describe every list of hints that takes part in the merge; providers without a preference do not change it."""
    cdef int index
    offers.count = 0
    offers.spoiled = offers.has_memory = False
    if trial.cpu != NULL and request.cpus:
        offer_cpus(trial, request, offers)
    for index in range(request.resources):
        if has_devices(trial, request.resource[index]):
            offer_devices(trial, request, index, offers)
    if trial.memory != NULL and request.types:
        offer_memory(trial, request, offers)


# CPUs

cdef void offer_cpus(const Trial* trial, const Request* request, Offers* offers) noexcept nogil:
    cdef const CpuState* state = trial.cpu
    cdef Offer* offer = &offers.offer[offers.count]
    cdef int64_t total = state.free_in_all
    cdef uint64_t must = 0
    cdef int nodes = trial.row.nodes
    offer.amounts = state.free
    offer.by_node = True
    if trial.reuses_cpus:
        memcpy(offer.counted, state.free, nodes * sizeof(int64_t))
        offer.amounts = offer.counted
        must = add_reusable(state, trial.reusable_cpus, offer.counted, &total)
        offer.by_node = must == 0
    if total < request.cpus:
        offers.spoiled = True
        return
    offer.request = request.cpus
    offer.universe = state.layout.universe
    offer.size = cpu_size(state.layout, request.cpus)
    offer.sockets = sockets_for(state.layout, offer.size) if state.layout.sockets else -1
    offer.resource = -1
    offer.singles = nodes_with(offer.amounts, nodes, request.cpus) & offer.universe
    if must:
        offer.singles = offer.singles & must if is_single(must) else 0
    offer.preferred_singles = offer.singles if offer.size == 1 else 0
    if offer.sockets >= 0 and offer.size != 1:
        offer.preferred_singles = touching(state, offer.singles, offer.sockets)
    offers.count += 1


cdef uint64_t touching(const CpuState* state, uint64_t singles, int sockets) noexcept nogil:
    """Return those of the nodes that have CPUs of exactly so many sockets."""
    cdef uint64_t found = 0, bit
    cdef int socket, touched
    while singles:
        bit = singles & (~singles + 1)
        singles ^= bit
        touched = 0
        for socket in range(state.layout.sockets):
            touched += state.layout.socket_nodes[socket] & bit != 0
        if touched == sockets:
            found |= bit
    return found


# Devices

cdef int64_t reusable_in(const Trial* trial, int resource) noexcept nogil:
    """Return how many devices earlier init containers leave that the plugin still reports."""
    cdef const DeviceLayout* layout = trial.devices[resource].layout
    cdef int64_t count = 0
    cdef int word
    for word in range(layout.words):
        count += popcount(trial.reusable_devices[resource][word] & layout.present[word])
    return count


cdef int64_t count_at(const Trial* trial, int resource, int place) noexcept nogil:
    """Return how many devices count at a place: free ones, and those that are left by init containers."""
    cdef const DeviceState* state = trial.devices[resource]
    cdef const DeviceLayout* layout = state.layout
    cdef int64_t amount = state.free[place]
    cdef int word
    if (trial.reuses_devices >> resource) & 1:
        for word in range(layout.words):
            amount += popcount(
                trial.reusable_devices[resource][word] & layout.present[word]
                & layout.members[place * layout.words + word]
            )
    return amount


cdef void offer_devices(const Trial* trial, const Request* request, int index, Offers* offers) noexcept nogil:
    cdef int resource = request.resource[index]
    cdef const DeviceState* state = trial.devices[resource]
    cdef const DeviceLayout* layout = state.layout
    cdef Offer* offer = &offers.offer[offers.count]
    cdef bint reuses = (trial.reuses_devices >> resource) & 1
    if not layout.universe:
        return
    if state.free_in_all + (reusable_in(trial, resource) if reuses else 0) < request.count[index]:
        offers.spoiled = True
        return
    offer.by_node = layout.single_places and not reuses
    offer.request = request.count[index]
    offer.universe = layout.universe
    offer.size = device_size(layout, request.count[index])
    offer.sockets = -1
    offer.resource = resource
    if not offer.by_node:
        offer.singles = near_singles(trial, resource, request.count[index])
    else:
        offer.amounts = state.free if layout.in_order else counted_by_node(state, offer.counted)
        offer.singles = nodes_with(offer.amounts, layout.nodes, offer.request) & layout.universe
        if not offer.singles and sum_of_all(offer.amounts, layout.nodes) < offer.request:
            offers.spoiled = True  # the others are near to no node, so that no mask has enough
            return
    offer.preferred_singles = offer.singles if offer.size == 1 else 0
    offers.count += 1


cdef const int64_t* counted_by_node(const DeviceState* state, int64_t* counted) noexcept nogil:
    """Count what is free by node, where every place is one node."""
    cdef int place
    memset(counted, 0, state.layout.nodes * sizeof(int64_t))
    for place in range(state.layout.places):
        counted[lowest(state.layout.place[place])] = state.free[place]
    return counted


cdef uint64_t near_singles(const Trial* trial, int resource, int64_t request) noexcept nogil:
    """Return the nodes near to each of which enough devices are, and every one that must be taken over."""
    cdef const DeviceLayout* layout = trial.devices[resource].layout
    cdef uint64_t found, rest
    cdef int64_t near[WIDEST]
    cdef int64_t amount
    cdef int place, word
    found = layout.universe
    memset(near, 0, layout.nodes * sizeof(int64_t))
    for place in range(layout.places):
        rest = layout.place[place]
        amount = count_at(trial, resource, place)
        while rest:
            near[lowest(rest)] += amount
            rest &= rest - 1
    if (trial.reuses_devices >> resource) & 1:
        for word in range(layout.words):
            rest = trial.reusable_devices[resource][word] & layout.present[word]
            if rest & layout.nowhere[word]:
                return 0
            for place in range(layout.places):
                if rest & layout.members[place * layout.words + word]:
                    found &= layout.place[place]
    return found & nodes_with(near, layout.nodes, request)


# Memory

cdef void offer_memory(const Trial* trial, const Request* request, Offers* offers) noexcept nogil:
    cdef const MemoryState* state = trial.memory
    cdef uint64_t fitting = state.alone
    cdef int index, donor, nodes = trial.row.nodes
    read_memory_request(trial, request, &offers.memory)
    if offers.memory.unknown_type:
        return
    for index in range(offers.memory.types):
        fitting &= nodes_with(state.free + offers.memory.type[index] * nodes, nodes, offers.memory.size[index])
    for donor in range(trial.holders):
        if is_single(trial.donors[donor].mask) and not fitting & trial.donors[donor].mask:
            if suffices_with_reuse(state, &offers.memory, trial.donors, trial.holders, trial.donors[donor].mask):
                fitting |= trial.donors[donor].mask
    offers.memory_singles = fitting
    offers.has_memory = fitting != 0 or has_has_memory_hint(trial, &offers.memory)
    if offers.has_memory:
        offers.memory_size = memory_size(state.layout, &offers.memory)


cdef bint has_has_memory_hint(const Trial* trial, const MemoryRequest* request) noexcept nogil:
    """Return whether the memory manager has any hint of several nodes: the largest masks are enough to look at."""
    cdef const MemoryState* state = trial.memory
    cdef int index
    if has_memory_hint(state, request, 0):
        return True
    for index in range(trial.holders):
        if suffices_with_reuse(state, request, trial.donors, trial.holders, trial.donors[index].mask):
            return True
    return False


# Families

cdef inline void make_impossible(Family* family) noexcept nogil:
    """Make the family of a list without hints: it joins any other hint and spoils its preference."""
    memset(family, 0, sizeof(Family))
    family.any_other = True


cdef int families_of(const Trial* trial, const Request* request, const Offers* offers, Family* families) noexcept nogil:
    """List all masks of every offer; return how many lists there are."""
    cdef MemoryHints hints
    cdef int index, count = 0
    for index in range(offers.count):
        if not family_of(trial, &offers.offer[index], &families[count]):
            make_impossible(&families[count])
        count += 1
    if offers.spoiled:
        make_impossible(&families[count])
        count += 1
    if offers.has_memory:
        hints.state = trial.memory
        hints.request = &offers.memory
        hints.preferred_size = offers.memory_size
        hints.donors = <MemoryTaking**>trial.donors
        hints.donor_count = trial.holders
        memory_family(&hints, &families[count])
        for index in range(1, offers.memory.types):
            families[count + index] = families[count]
        count += offers.memory.types
    return count


cdef bint family_of(const Trial* trial, const Offer* offer, Family* family) noexcept nogil:
    cdef int64_t amounts[NARROW_MASKS]
    cdef int64_t total = 0
    cdef const DeviceLayout* layout
    cdef uint64_t must = 0
    cdef int node, place
    if offer.resource < 0:
        if trial.reuses_cpus:
            for node in range(trial.row.nodes):
                amounts[node] = 0
            must = add_reusable(trial.cpu, trial.reusable_cpus, amounts, &total)
        return cpu_family(trial.cpu.layout, offer.amounts, must, offer.request, family)
    layout = trial.devices[offer.resource].layout
    for place in range(layout.places):
        amounts[place] = count_at(trial, offer.resource, place)
    return device_family(
        layout, amounts,
        trial.reusable_devices[offer.resource] if (trial.reuses_devices >> offer.resource) & 1 else NULL,
        offer.request, offer.size, family,
    )
