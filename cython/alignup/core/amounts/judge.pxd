"""The judgement of one pod on one node."""

from libc.stdint cimport uint64_t

from alignup.core.amounts.trial cimport NodeRow, Outcome, PodRequest, Request, Trial


cdef struct Answer:
    Outcome outcome
    uint64_t affinity       # of all containers together
    uint64_t asked          # of those that ask for anything that a provider gives
    bint aligned            # each of these has an affinity of its own
    bint preferred


cdef struct Room:
    # Room for the largest of some nodes.
    size_t cpus
    size_t memory
    size_t devices
    int words                   # of a set of CPUs, or of devices
    int taken                   # amounts of one container's memory


cdef void widen(Room* room, const NodeRow* row, int resources) noexcept nogil
cdef size_t scratch_bytes(const Room* room, const PodRequest* pod) noexcept nogil
cdef void place_scratch(Trial* trial, const Room* room, const PodRequest* pod, char* scratch) noexcept nogil
cdef bint asks_for_anything(const Trial* trial, const Request* request) noexcept nogil
cdef void start_trial(Trial* trial, const NodeRow* row, int policy) noexcept nogil
cdef void judge(Trial* trial, const NodeRow* row, int policy, Answer* answer) noexcept nogil
