"""The judgement of one pod on one node."""

from libc.stdint cimport uint8_t, uint64_t

from alignup.core.amounts.trial cimport (
    Answer,
    Hint,
    NodeRow,
    Offers,
    Outcome,
    PodRequest,
    Request,
    Trial,
)


cdef struct Room:
    # Room for the largest of some nodes.
    size_t cpus
    size_t memory
    size_t devices
    int words                   # of a set of CPUs, or of devices
    int taking_amounts          # amounts of one container's memory


cdef void widen(Room* room, const NodeRow* row, int resources) noexcept nogil
cdef size_t scratch_bytes(const Room* room, const PodRequest* pod) noexcept nogil
cdef void place_scratch(
    Trial* trial, const Room* room, const PodRequest* pod, char* scratch
) noexcept nogil
cdef bint asks_for_anything(const Trial* trial, const Request* request) noexcept nogil
cdef void start_trial(Trial* trial, const NodeRow* row, int policy) noexcept nogil
cdef void judge(Trial* trial, const NodeRow* row, int policy, Answer* answer) noexcept nogil
cdef void judge_row(
    Trial* trial,
    const NodeRow* row,
    int policy,
    int strategy,
    uint8_t* admitted,
    uint8_t* reason,
    uint64_t* affinity,
    uint8_t* preferred,
    double* score,
    uint8_t* exact,
) noexcept nogil
cdef Outcome decide(
    const Trial* trial, const Request* request, Offers* offers, Hint* hint
) noexcept nogil
