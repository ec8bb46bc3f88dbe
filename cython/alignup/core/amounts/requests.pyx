"""Read the requests of containers, and add them up: what `alignup.core.amounts.board` judges a pod by."""

from libc.stdint cimport int64_t

from alignup.core.amounts.trial cimport Request

from alignup.core.amounts.memory_capacity import LARGEST_REQUEST


cdef void add_request(Request* total, const Request* request) noexcept nogil:
    """Add what a container asks for; each sum stops at the largest request, which no node can meet."""
    cdef int64_t largest = ((<int64_t>1) << 61) + 1
    cdef int index, place
    total.cpus = min(total.cpus + request.cpus, largest)
    for index in range(request.types):
        place = place_in(total.type, total.types, request.type[index])
        if place == total.types:
            total.type[place] = request.type[index]
            total.types += 1
        total.size[place] = min(total.size[place] + request.size[index], largest)
    for index in range(request.resources):
        place = place_in(total.resource, total.resources, request.resource[index])
        if place == total.resources:
            total.resource[place] = request.resource[index]
            total.resources += 1
        total.count[place] = min(total.count[place] + request.count[index], largest)


cdef inline int place_in(const int* numbers, int count, int number) noexcept nogil:
    """Return where a number is, or the count if it is not there."""
    cdef int place
    for place in range(count):
        if numbers[place] == number:
            return place
    return count


cdef int read_request(Request* request, tuple asked, list types, list resources) except -1:
    """Read what a pod or container asks for; resources that no node has are passed over."""
    cpus, sizes, counts, hands_on = asked
    if min([cpus] + [amount for _, amount in (*sizes, *counts)]) < 0:
        raise ValueError(f"expected requests that are not negative, got {asked}")
    if len(dict(sizes)) != len(sizes) or len(dict(counts)) != len(counts):
        raise ValueError(f"expected each type and resource once, got {asked}")
    request.cpus, request.hands_on = min(cpus, LARGEST_REQUEST), hands_on
    for name, size in sizes:
        request.type[request.types] = types.index(name)
        request.size[request.types] = min(size, LARGEST_REQUEST)
        request.types += 1
    for name, count in counts:
        if name in resources:
            request.resource[request.resources] = resources.index(name)
            request.count[request.resources] = min(count, LARGEST_REQUEST)
            request.resources += 1
    return 0
