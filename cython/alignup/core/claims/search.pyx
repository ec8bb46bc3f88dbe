"""The search for devices that satisfy claims: the first solution in the scheduler's order, found without its detours.

The scheduler's allocator tries devices depth first: claim by claim, request by request, way by way, device by device
in ascending order within a request. The first solution that it meets is the answer. This search walks the same tree and
leaves out only what holds no solution:

- *Interchangeable devices once.* Of devices of one class that are in the same state, the first stands for all: a
  solution with a later one would be one with the first in its place.
- *Failed states.* What is left to search depends on the counts of free devices by class, on the constraints of the
  current claim, on counters and shares. A state that failed once fails again.
- *Bounds.* What is still asked for is compared with what is left: a flow from requests to classes of devices, with the
  values that constraints leave and the devices that counters leave.

An error of the allocator ends it where it is met, so the walk must meet the same ones. Where there may be errors,
bounds are off, since they leave out subtrees that were never walked; and where a claim may also grow beyond its limit
of devices, which cuts walks short, all three are off.
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Realloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

cdef enum:
    FAILED = 0
    FOUND = 1
    TOO_MANY = 2  # the claim would have more devices than it may, whatever devices its requests have
    FATAL = 3
    LIMIT = 4
    TOUCHED = 5  # a watched device came to its counters

    REFUSED = 0
    TAKEN = 1
    BROKEN = 2  # a constraint refused the device
    WATCHED = 3

    BLOCKED = 1
    FULL = 2

    MOST_RESULTS = 32
    MOST_TABLED = 512  # counters below this have a table of what can be taken of them
    EASY_STEPS = 1000  # a search shorter than this needs no bounds
    SAMPLE = 256  # how often bounds are computed before it is judged whether they help
    SELDOM = 16


cdef class _Search:
    """The tables, and the state of one walk."""

    cdef list blocks
    # sizes
    cdef Py_ssize_t devices, ways, requests, claims, constraints, counters, classes
    # the tables
    cdef int32_t *first_request
    cdef int32_t *first_way
    cdef uint8_t *has_alternatives
    cdef int32_t *request_claim
    cdef int32_t *counts
    cdef uint8_t *is_admin
    cdef int32_t *all_start
    cdef int32_t *all_devices
    cdef uint8_t *is_all
    cdef int32_t *matches
    cdef uint8_t *flags
    cdef uint8_t *taken
    cdef uint8_t *watch
    cdef uint8_t *is_shareable
    cdef uint8_t *is_shared
    cdef int32_t *room_start
    cdef int64_t *room
    cdef int64_t *needs
    cdef Py_ssize_t rooms
    cdef int64_t *left
    cdef int32_t *use_start
    cdef int32_t *use_counter
    cdef int64_t *use_amount
    cdef int32_t *user_start  # the same by counter
    cdef int32_t *user_device
    cdef int64_t *user_amount
    cdef int32_t *first_constraint
    cdef uint8_t *is_distinct
    cdef uint8_t *covers
    cdef int32_t *words
    cdef Py_ssize_t *value_start
    cdef uint64_t *values
    cdef uint8_t *is_alone
    cdef int32_t *class_of
    cdef int32_t *previous
    cdef int32_t *class_last
    cdef int32_t *constraint_last
    cdef int32_t *counter_last
    # the state
    cdef uint64_t *marks
    cdef int32_t *shares
    cdef int64_t *used
    cdef Py_ssize_t *stack_start
    cdef uint64_t *stack
    cdef int32_t *depth
    cdef int32_t *result_way
    cdef int32_t *result_device
    cdef int32_t result_count
    cdef int32_t *claim_count
    cdef int32_t fatal_way, fatal_device
    # pruning
    cdef bint once, remembers, bounds, may_overflow, forgets
    cdef Py_ssize_t admin_last  # the last request that may be served with admin access; -1: none
    cdef int32_t *last_device
    cdef int32_t *request_of
    cdef int64_t steps, most_steps, easy_steps, tries, hits
    # failed states
    cdef int64_t *key
    cdef int32_t *tail
    cdef int32_t *free
    cdef int32_t *held
    cdef int32_t *started
    cdef int64_t *arena
    cdef Py_ssize_t arena_used, arena_size, most_arena
    cdef Py_ssize_t *table
    cdef Py_ssize_t table_used, table_size
    # bounds
    cdef int32_t *edge
    cdef int32_t *flow
    cdef int32_t *class_total
    cdef int32_t *class_used
    cdef uint8_t *class_seen
    cdef int32_t *group_of
    cdef int32_t *group_total
    cdef int32_t *group_used
    cdef uint8_t *group_seen
    cdef int64_t *group_least
    cdef Py_ssize_t groups, families
    cdef int32_t *family_of
    cdef int64_t *wanted
    cdef int64_t *usable
    cdef uint8_t *is_sum
    cdef int32_t *value_count
    cdef uint64_t *feasible
    cdef Py_ssize_t *feasible_start

    def __cinit__(self):
        self.blocks = []
        self.arena = NULL
        self.table = NULL

    def __dealloc__(self):
        for address in self.blocks:
            PyMem_Free(<void *> <size_t> address)
        PyMem_Free(self.arena)
        PyMem_Free(self.table)

    cdef void *get(self, Py_ssize_t count, Py_ssize_t size) except NULL:
        """Return zeroed memory that lives as long as the search."""
        cdef void *block = PyMem_Calloc(count if count > 0 else 1, size)
        if block == NULL:
            raise MemoryError
        self.blocks.append(<size_t> block)
        return block

    cdef int32_t *numbers(self, object values) except NULL:
        cdef int32_t *found = <int32_t *> self.get(len(values), sizeof(int32_t))
        cdef Py_ssize_t place
        for place, value in enumerate(values):
            found[place] = value
        return found

    cdef int64_t *amounts(self, object values) except NULL:
        cdef int64_t *found = <int64_t *> self.get(len(values), sizeof(int64_t))
        cdef Py_ssize_t place
        for place, value in enumerate(values):
            found[place] = value
        return found

    cdef uint8_t *bits(self, object values) except NULL:
        cdef uint8_t *found = <uint8_t *> self.get(len(values), 1)
        cdef Py_ssize_t place
        for place, value in enumerate(values):
            found[place] = value
        return found

    cdef int32_t *starts(self, object lists) except NULL:
        """Return where each list begins when all are laid end to end."""
        cdef int32_t *found = <int32_t *> self.get(len(lists) + 1, sizeof(int32_t))
        cdef Py_ssize_t place
        for place, one in enumerate(lists):
            found[place + 1] = found[place] + <int32_t> len(one)
        return found

    cdef object load(self, object problem, Py_ssize_t claims):
        """Copy the tables of a `Problem`."""
        cdef Py_ssize_t way, device, place
        ways = problem.ways
        self.devices = len(problem.devices)
        self.ways = len(ways)
        self.requests = len(problem.has_alternatives)
        self.claims = claims
        self.constraints = len(problem.constraints)
        self.counters = len(problem.counters)
        self.classes = max(problem.classes, default=-1) + 1
        self.first_request = self.numbers(problem.first_request)
        self.first_way = self.numbers(problem.first_way)
        self.has_alternatives = self.bits(problem.has_alternatives)
        self.request_claim = <int32_t *> self.get(self.requests + 1, sizeof(int32_t))
        for way in range(self.ways):
            self.request_claim[ways[way].request] = ways[way].claim
        self.counts = self.numbers([min(one.count, 2**30) for one in ways])
        self.is_admin = self.bits([one.is_admin for one in ways])
        self.admin_last = max((one.request for one in ways if one.is_admin), default=-1)
        lists = [one.everything or () for one in ways]
        self.is_all = self.bits([one.everything is not None for one in ways])
        self.all_start = self.starts(lists)
        self.all_devices = self.numbers([device for one in lists for device in one])
        self.matches = self.numbers([one for row in problem.matches for one in row])
        self.flags = self.bits([
            (BLOCKED if is_blocked else 0) | (FULL if amounts is None else 0)
            for blocked, needed in zip(problem.blocked, problem.amounts)
            for is_blocked, amounts in zip(blocked, needed)
        ])
        self.taken = self.bits(problem.taken)
        self.is_shareable = self.bits(problem.is_shareable)
        self.is_shared = self.bits(problem.is_shared)
        self.room_start = self.starts(problem.room)
        self.room = self.amounts([one for row in problem.room for one in row])
        self.rooms = self.room_start[self.devices]
        self.needs = <int64_t *> self.get(self.ways * self.rooms, sizeof(int64_t))
        for way in range(self.ways):
            for device in range(self.devices):
                for place, amount in enumerate(problem.needs[way][device]):
                    self.needs[way * self.rooms + self.room_start[device] + place] = amount
        self.left = self.amounts(problem.counters)
        self.families = max(problem.families, default=-1) + 1
        self.family_of = self.numbers(problem.families)
        self.wanted = <int64_t *> self.get(self.families, sizeof(int64_t))
        self.usable = <int64_t *> self.get(self.families, sizeof(int64_t))
        self.is_sum = <uint8_t *> self.get(MOST_TABLED, 1)
        self.use_start = self.starts(problem.uses)
        self.use_counter = self.numbers([counter for row in problem.uses for counter, _ in row])
        self.use_amount = self.amounts([amount for row in problem.uses for _, amount in row])
        users = [[] for _ in problem.counters]
        for device, row in enumerate(problem.uses):
            for counter, amount in row:
                users[counter].append((device, amount))
        self.user_start = self.starts(users)
        self.user_device = self.numbers([device for row in users for device, _ in row])
        self.user_amount = self.amounts([amount for row in users for _, amount in row])
        self.load_constraints(problem)
        self.class_of = self.numbers(problem.classes)
        self.previous = <int32_t *> self.get(self.devices, sizeof(int32_t))
        last = {}
        for device in range(self.devices):
            self.previous[device] = last.get(self.class_of[device], -1)
            last[self.class_of[device]] = device
        self.load_ends()
        self.load_state()

    cdef object load_constraints(self, object problem):
        cdef Py_ssize_t constraint, device, word
        owners = [claim for claim, _ in problem.constraints]
        self.first_constraint = self.numbers(
            [sum(owner < claim for owner in owners) for claim in range(self.claims + 1)]
        )
        self.is_distinct = self.bits(problem.is_distinct)
        self.covers = self.bits([one for row in problem.covers for one in row])
        self.is_alone = self.bits([one for row in problem.is_alone for one in row])
        widths = [max(1, (max((one.bit_length() for one in row), default=0) + 63) // 64) for row in problem.values]
        self.words = self.numbers(widths)
        self.value_start = <Py_ssize_t *> self.get(self.constraints + 1, sizeof(Py_ssize_t))
        self.stack_start = <Py_ssize_t *> self.get(self.constraints + 1, sizeof(Py_ssize_t))
        self.feasible_start = <Py_ssize_t *> self.get(self.constraints + 1, sizeof(Py_ssize_t))
        for constraint in range(self.constraints):
            self.value_start[constraint + 1] = self.value_start[constraint] + self.words[constraint] * self.devices
            self.stack_start[constraint + 1] = (
                self.stack_start[constraint] + self.words[constraint] * (MOST_RESULTS + 2)
            )
            self.feasible_start[constraint + 1] = self.feasible_start[constraint] + self.words[constraint]
        self.values = <uint64_t *> self.get(self.value_start[self.constraints], sizeof(uint64_t))
        for constraint in range(self.constraints):
            for device in range(self.devices):
                mask = problem.values[constraint][device]
                for word in range(self.words[constraint]):
                    self.value_of(constraint, device)[word] = (mask >> (64 * word)) & 0xFFFFFFFFFFFFFFFF
        self.stack = <uint64_t *> self.get(self.stack_start[self.constraints], sizeof(uint64_t))
        self.feasible = <uint64_t *> self.get(self.feasible_start[self.constraints], sizeof(uint64_t))
        self.value_count = <int32_t *> self.get(64 * max(widths, default=1), sizeof(int32_t))
        self.depth = <int32_t *> self.get(self.constraints, sizeof(int32_t))
        self.forgets = problem.forgets
        self.request_of = self.numbers([way.request for way in problem.ways])
        self.last_device = self.numbers([-1] * (self.constraints * self.requests))

    cdef object load_ends(self):
        """Fill up to which request a class, a constraint and a counter matter."""
        cdef Py_ssize_t request, way, device, place
        self.class_last = <int32_t *> self.get(self.classes, sizeof(int32_t))
        self.constraint_last = <int32_t *> self.get(self.constraints, sizeof(int32_t))
        self.counter_last = <int32_t *> self.get(self.counters, sizeof(int32_t))
        for place in range(self.classes):
            self.class_last[place] = -1
        for place in range(self.constraints):
            self.constraint_last[place] = -1
        for place in range(self.counters):
            self.counter_last[place] = -1
        for request in range(self.requests):
            for way in range(self.first_way[request], self.first_way[request + 1]):
                for device in range(self.devices):
                    if self.matches[way * self.devices + device] != 0:
                        self.class_last[self.class_of[device]] = request
                        for place in range(self.use_start[device], self.use_start[device + 1]):
                            self.counter_last[self.use_counter[place]] = request
                for place in range(self.constraints):
                    if self.covers[place * self.ways + way]:
                        self.constraint_last[place] = request

    cdef object load_state(self):
        """Make room for what changes during the walk."""
        cdef Py_ssize_t place, device, most
        self.marks = <uint64_t *> self.get(self.devices, sizeof(uint64_t))
        self.shares = <int32_t *> self.get(self.devices, sizeof(int32_t))
        self.used = <int64_t *> self.get(self.rooms, sizeof(int64_t))
        self.result_way = <int32_t *> self.get(self.claims * MOST_RESULTS + 1, sizeof(int32_t))
        self.result_device = <int32_t *> self.get(self.claims * MOST_RESULTS + 1, sizeof(int32_t))
        self.claim_count = <int32_t *> self.get(self.claims + 1, sizeof(int32_t))
        most = 8 + 2 * self.classes + 2 * self.devices + self.rooms + self.counters
        for place in range(self.constraints):
            most += 1 + self.words[place]
        self.key = <int64_t *> self.get(most, sizeof(int64_t))
        self.tail = <int32_t *> self.get(self.classes, sizeof(int32_t))
        self.free = <int32_t *> self.get(self.classes, sizeof(int32_t))
        self.held = <int32_t *> self.get(self.classes, sizeof(int32_t))
        self.started = <int32_t *> self.get(self.devices, sizeof(int32_t))
        self.edge = <int32_t *> self.get(self.requests * self.classes, sizeof(int32_t))
        self.flow = <int32_t *> self.get(self.requests * self.classes, sizeof(int32_t))
        self.class_total = <int32_t *> self.get(self.classes, sizeof(int32_t))
        self.class_used = <int32_t *> self.get(self.classes, sizeof(int32_t))
        self.class_seen = <uint8_t *> self.get(self.classes, 1)
        # devices that take from the same counters are one group
        names = {}
        group_of = [-1] * self.classes
        for device in range(self.devices):
            uses = tuple(self.use_counter[place] for place in range(self.use_start[device], self.use_start[device + 1]))
            if uses and not self.is_shareable[device]:
                group_of[self.class_of[device]] = names.setdefault(uses, len(names))
        self.groups = len(names)
        self.group_of = self.numbers(group_of)
        self.group_total = <int32_t *> self.get(self.groups, sizeof(int32_t))
        self.group_used = <int32_t *> self.get(self.groups, sizeof(int32_t))
        self.group_seen = <uint8_t *> self.get(self.groups, 1)
        self.group_least = <int64_t *> self.get(self.counters, sizeof(int64_t))

    cdef inline uint64_t *value_of(self, Py_ssize_t constraint, Py_ssize_t device) noexcept nogil:
        return self.values + self.value_start[constraint] + device * self.words[constraint]

    cdef inline uint64_t *top(self, Py_ssize_t constraint) noexcept nogil:
        """Return what a constraint has come to: the values in common, or those that are taken."""
        return self.stack + self.stack_start[constraint] + self.depth[constraint] * self.words[constraint]

    # taking a device and giving it back

    cdef bint push_distinct_1_36(self, Py_ssize_t constraint, Py_ssize_t way, Py_ssize_t device) noexcept nogil:
        """Add a device to a distinctAttribute as 1.36 does: it is compared with the last device of each request."""
        cdef Py_ssize_t request, word
        cdef int32_t *last = self.last_device + constraint * self.requests
        cdef uint64_t own = 0
        for word in range(self.words[constraint]):
            own |= self.value_of(constraint, device)[word]
        if own == 0:
            return False
        for request in range(self.requests):
            if last[request] < 0 or self.depth[constraint] == 0:
                continue
            if self.is_alone[constraint * self.devices + device]:
                return False
            for word in range(self.words[constraint]):
                if self.value_of(constraint, device)[word] & self.value_of(constraint, last[request])[word]:
                    return False
        last[self.request_of[way]] = <int32_t> device
        self.depth[constraint] += 1
        return True

    cdef bint push(self, Py_ssize_t constraint, Py_ssize_t device) noexcept nogil:
        """Add a device to a constraint, if that allows it."""
        cdef uint64_t *value = self.value_of(constraint, device)
        cdef uint64_t *before = self.top(constraint)
        cdef uint64_t *after = before + self.words[constraint]
        cdef Py_ssize_t word
        cdef uint64_t own = 0, common = 0
        cdef bint is_first = self.depth[constraint] == 0
        for word in range(self.words[constraint]):
            own |= value[word]
            common |= value[word] & before[word]
        if own == 0:
            return False
        if not is_first and self.is_alone[constraint * self.devices + device]:
            return False
        if self.is_distinct[constraint]:
            if not is_first and common != 0:
                return False
            for word in range(self.words[constraint]):
                after[word] = value[word] | (0 if is_first else before[word])
        else:
            if not is_first and common == 0:
                return False
            for word in range(self.words[constraint]):
                after[word] = value[word] if is_first else value[word] & before[word]
        self.depth[constraint] += 1
        return True

    cdef void pop(self, Py_ssize_t claim, Py_ssize_t way, Py_ssize_t end) noexcept nogil:
        cdef Py_ssize_t constraint
        for constraint in range(self.first_constraint[claim], end):
            if self.covers[constraint * self.ways + way]:
                self.depth[constraint] -= 1
                self.last_device[constraint * self.requests + self.request_of[way]] = -1

    cdef bint is_open(self, Py_ssize_t claim, Py_ssize_t way, Py_ssize_t device) noexcept nogil:
        """Return whether a device is not in use, as far as that matters to a way."""
        if self.is_admin[way]:
            return not (self.marks[device] >> claim) & 1
        return not self.taken[device] and self.marks[device] == 0

    cdef bint has_counters(self, Py_ssize_t device) noexcept nogil:
        cdef Py_ssize_t place
        if self.is_shareable[device] and (self.is_shared[device] or self.shares[device] > 0):
            return True
        for place in range(self.use_start[device], self.use_start[device + 1]):
            if self.use_amount[place] > self.left[self.use_counter[place]]:
                return False
        return True

    cdef bint has_room(self, Py_ssize_t way, Py_ssize_t device) noexcept nogil:
        cdef Py_ssize_t place
        cdef int64_t *need = self.needs + way * self.rooms
        for place in range(self.room_start[device], self.room_start[device + 1]):
            if self.used[place] + need[place] > self.room[place]:
                return False
        return True

    cdef int take(self, Py_ssize_t claim, Py_ssize_t way, Py_ssize_t device) noexcept nogil:
        """Take a device, unless it is refused; the order of these checks is the allocator's."""
        cdef Py_ssize_t place, constraint
        cdef uint8_t flags = self.flags[way * self.devices + device]
        if not self.is_open(claim, way, device):
            return REFUSED
        if self.watch[device] and self.shares[device] == 0 and not self.is_shared[device]:
            self.fatal_device = <int32_t> device
            return WATCHED
        if flags & BLOCKED or not self.has_counters(device):
            return REFUSED
        for constraint in range(self.first_constraint[claim], self.first_constraint[claim + 1]):
            if not self.covers[constraint * self.ways + way]:
                continue
            if not (
                self.push_distinct_1_36(constraint, way, device)
                if self.forgets and self.is_distinct[constraint]
                else self.push(constraint, device)
            ):
                self.pop(claim, way, constraint)
                return BROKEN
        if flags & FULL or (self.is_shareable[device] and not self.has_room(way, device)):
            self.pop(claim, way, self.first_constraint[claim + 1])
            return REFUSED
        if self.is_shareable[device]:
            if self.shares[device] == 0 and not self.is_shared[device]:
                self.charge(device, 1)
            self.shares[device] += 1
            for place in range(self.room_start[device], self.room_start[device + 1]):
                self.used[place] += self.needs[way * self.rooms + place]
        else:
            self.charge(device, 1)
            self.marks[device] |= <uint64_t> 1 << claim
        self.result_way[self.result_count] = <int32_t> way
        self.result_device[self.result_count] = <int32_t> device
        self.result_count += 1
        self.claim_count[claim] += 1
        return TAKEN

    cdef void charge(self, Py_ssize_t device, int64_t sign) noexcept nogil:
        cdef Py_ssize_t place
        for place in range(self.use_start[device], self.use_start[device + 1]):
            self.left[self.use_counter[place]] -= sign * self.use_amount[place]

    cdef void give_back(self, Py_ssize_t claim, Py_ssize_t way, Py_ssize_t device) noexcept nogil:
        cdef Py_ssize_t place
        self.claim_count[claim] -= 1
        self.result_count -= 1
        if self.is_shareable[device]:
            self.shares[device] -= 1
            for place in range(self.room_start[device], self.room_start[device + 1]):
                self.used[place] -= self.needs[way * self.rooms + place]
            if self.shares[device] == 0 and not self.is_shared[device]:
                self.charge(device, -1)
        else:
            self.marks[device] &= ~(<uint64_t> 1 << claim)
            self.charge(device, -1)
        self.pop(claim, way, self.first_constraint[claim + 1])

    # the walk

    cdef int walk(
        self, Py_ssize_t claim, Py_ssize_t request, Py_ssize_t way, Py_ssize_t count, Py_ssize_t start
    ) noexcept nogil:
        """Go on from here.

        Args:
            way: the way that was chosen for the request; -1: none yet.
            count: the devices that the request has.
            start: the first device that may come next.
        """
        cdef int outcome
        cdef bint all_exceed
        self.steps += 1
        if self.steps > self.most_steps:
            return LIMIT
        if claim == self.claims:
            return FOUND
        if request == self.first_request[claim + 1]:
            outcome = self.walk(claim + 1, request, -1, 0, 0)
            return FAILED if outcome == TOO_MANY else outcome
        if way < 0:
            if not self.has_alternatives[request]:
                way = self.first_way[request]
            else:
                all_exceed = True
                for way in range(self.first_way[request], self.first_way[request + 1]):
                    outcome = self.walk(claim, request, way, 0, 0)
                    if outcome == TOO_MANY:
                        continue
                    all_exceed = False
                    if outcome != FAILED:
                        return outcome
                return TOO_MANY if all_exceed else FAILED
        if self.is_all[way] and self.counts[way] == 0:
            return FAILED
        if count >= self.counts[way]:
            return self.walk(claim, request + 1, -1, 0, 0)
        if self.counts[way] - count > MOST_RESULTS - self.claim_count[claim]:
            return TOO_MANY
        if self.is_all[way]:
            return self.take_next_of_all(claim, request, way, count)
        return self.take_any(claim, request, way, count, start)

    cdef int take_next_of_all(
        self, Py_ssize_t claim, Py_ssize_t request, Py_ssize_t way, Py_ssize_t count
    ) noexcept nogil:
        cdef Py_ssize_t device = self.all_devices[self.all_start[way] + count]
        cdef int outcome = self.take(claim, way, device)
        if outcome == WATCHED:
            return TOUCHED
        if outcome == BROKEN:
            self.fatal_way = <int32_t> way
            self.fatal_device = <int32_t> device
            return FATAL
        if outcome == REFUSED:
            return FAILED
        outcome = self.walk(claim, request, way, count + 1, 0)
        if outcome != FOUND:
            self.give_back(claim, way, device)
        return outcome

    cdef int take_any(
        self, Py_ssize_t claim, Py_ssize_t request, Py_ssize_t way, Py_ssize_t count, Py_ssize_t start
    ) noexcept nogil:
        cdef Py_ssize_t device, length = 0
        cdef int outcome
        cdef int32_t match
        cdef uint64_t digest = 0
        self.steps += self.devices >> 5
        if self.remembers:
            length = self.make_key(claim, request, way, count, start)
            digest = mixed(self.key, length)
            if self.has_failed(length, digest):
                return FAILED
        if self.bounds and self.steps > self.easy_steps and (
            self.tries < SAMPLE or SELDOM * self.hits > self.tries or self.steps % SELDOM == 0
        ):
            self.tries += 1
            self.steps += (self.requests - request) * self.devices >> 3
            if self.is_hopeless(claim, request, way, count, start):
                self.hits += 1
                return FAILED
        for device in range(start, self.devices):
            match = self.matches[way * self.devices + device]
            if match == 0 or not self.is_open(claim, way, device):
                continue
            if match < 0:
                self.fatal_way = match
                return FATAL
            if self.is_shareable[device] and not self.has_room(way, device):
                continue
            if self.once and self.was_tried(claim, device, start):
                continue
            outcome = self.take(claim, way, device)
            if outcome == WATCHED:
                return TOUCHED
            if outcome != TAKEN:
                continue
            outcome = self.walk(claim, request, way, count + 1, device + 1)
            if outcome == FOUND:
                return FOUND
            self.give_back(claim, way, device)
            if outcome != FAILED:
                return outcome
        if self.remembers:
            # the key's buffer was used again below
            length = self.make_key(claim, request, way, count, start)
            self.remember(length, digest)
        return FAILED

    cdef bint was_tried(self, Py_ssize_t claim, Py_ssize_t device, Py_ssize_t start) noexcept nogil:
        """Return whether an interchangeable device in the same state came before."""
        cdef Py_ssize_t other = self.previous[device]
        while other >= start:
            if self.is_shareable[device]:
                if (self.shares[device] > 0) == (self.shares[other] > 0) and memcmp(
                    self.used + self.room_start[device],
                    self.used + self.room_start[other],
                    (self.room_start[device + 1] - self.room_start[device]) * sizeof(int64_t),
                ) == 0:
                    return True
            elif (self.marks[device] != 0) == (self.marks[other] != 0) and not ((self.marks[other] >> claim) & 1):
                return True
            other = self.previous[other]
        return False

    # failed states

    cdef Py_ssize_t make_key(
        self, Py_ssize_t claim, Py_ssize_t request, Py_ssize_t way, Py_ssize_t count, Py_ssize_t start
    ) noexcept nogil:
        """Write what the rest of the walk depends on; return its length."""
        cdef int64_t *key = self.key
        cdef Py_ssize_t length = 2, device, place, constraint, kind, started = 0
        key[0] = way
        key[1] = count | (<int64_t> self.claim_count[claim] << 32 if self.may_overflow else 0)
        memset(self.tail, 0, self.classes * sizeof(int32_t))
        memset(self.free, 0, self.classes * sizeof(int32_t))
        memset(self.held, 0, self.classes * sizeof(int32_t))
        for device in range(self.devices):
            kind = self.class_of[device]
            if self.class_last[kind] < request:
                continue
            if self.is_shareable[device] and self.shares[device] > 0:
                self.started[started] = <int32_t> device
                started += 1
            elif self.marks[device] == 0:
                self.free[kind] += 1
                self.tail[kind] += device >= start
            elif not (self.marks[device] >> claim) & 1:
                # those with admin access may have what earlier claims hold
                self.held[kind] += 1 if device < start else 0x10000
        for kind in range(self.classes):
            if self.class_last[kind] < request:
                continue
            # later requests may have devices in front of `start`, this one may not
            key[length] = self.tail[kind] | (<int64_t> self.free[kind] << 20 if self.class_last[kind] > request else 0)
            length += 1
            if request <= self.admin_last:
                key[length] = self.held[kind]
                length += 1
        for constraint in range(self.first_constraint[claim], self.first_constraint[claim + 1]):
            if self.constraint_last[constraint] >= request:
                key[length] = self.depth[constraint] > 0
                length += 1
                if self.depth[constraint] > 0:
                    for place in range(self.words[constraint]):
                        key[length] = <int64_t> self.top(constraint)[place]
                        length += 1
        for place in range(self.counters):
            if self.counter_last[place] >= request:
                key[length] = self.left[place]
                length += 1
        self.sort_started(started, start)
        for place in range(started):
            device = self.started[place]
            key[length] = <int64_t> self.class_of[device] << 1 | (device >= start)
            length += 1
            memcpy(
                key + length,
                self.used + self.room_start[device],
                (self.room_start[device + 1] - self.room_start[device]) * sizeof(int64_t),
            )
            length += self.room_start[device + 1] - self.room_start[device]
        return length

    cdef void sort_started(self, Py_ssize_t count, Py_ssize_t start) noexcept nogil:
        """Bring shared devices into an order that does not depend on which of a class they are."""
        cdef Py_ssize_t place, other
        cdef int32_t device
        for place in range(1, count):
            device = self.started[place]
            other = place
            while other > 0 and self.comes_before(device, self.started[other - 1], start):
                self.started[other] = self.started[other - 1]
                other -= 1
            self.started[other] = device

    cdef bint comes_before(self, Py_ssize_t one, Py_ssize_t other, Py_ssize_t start) noexcept nogil:
        cdef Py_ssize_t place
        if self.class_of[one] != self.class_of[other]:
            return self.class_of[one] < self.class_of[other]
        if (one >= start) != (other >= start):
            return other >= start
        for place in range(self.room_start[one + 1] - self.room_start[one]):
            if self.used[self.room_start[one] + place] != self.used[self.room_start[other] + place]:
                return self.used[self.room_start[one] + place] < self.used[self.room_start[other] + place]
        return False

    cdef bint has_failed(self, Py_ssize_t length, uint64_t digest) noexcept nogil:
        cdef Py_ssize_t slot, place
        if self.table_size == 0:
            return False
        slot = <Py_ssize_t> (digest & <uint64_t> (self.table_size - 1))
        while self.table[slot] != 0:
            place = self.table[slot] - 1
            if (
                <uint64_t> self.arena[place] == digest
                and self.arena[place + 1] == length
                and memcmp(self.arena + place + 2, self.key, length * sizeof(int64_t)) == 0
            ):
                return True
            slot = (slot + 1) & (self.table_size - 1)
        return False

    cdef void remember(self, Py_ssize_t length, uint64_t digest) noexcept nogil:
        """Keep a failed state; where there is no memory for it, the walk is only slower."""
        cdef Py_ssize_t place = self.arena_used
        if place + length + 2 > self.arena_size or 2 * (self.table_used + 1) > self.table_size:
            with gil:
                if not self.grow(length + 2):
                    return
        self.arena[place] = <int64_t> digest
        self.arena[place + 1] = length
        memcpy(self.arena + place + 2, self.key, length * sizeof(int64_t))
        self.arena_used += length + 2
        self.table_used += 1
        self.enter(place)

    cdef void enter(self, Py_ssize_t place) noexcept nogil:
        cdef Py_ssize_t slot = <Py_ssize_t> (<uint64_t> self.arena[place] & <uint64_t> (self.table_size - 1))
        while self.table[slot] != 0:
            slot = (slot + 1) & (self.table_size - 1)
        self.table[slot] = place + 1

    cdef bint grow(self, Py_ssize_t more) noexcept:
        """Make room for more states; return whether there is."""
        cdef Py_ssize_t size = self.arena_size, place = 0
        cdef void *block
        while self.arena_used + more > size:
            size = 2 * size if size else 1 << 12
        if size > self.most_arena:
            return False
        if size != self.arena_size:
            block = PyMem_Realloc(self.arena, size * sizeof(int64_t))
            if block == NULL:
                return False
            self.arena = <int64_t *> block
            self.arena_size = size
        if 2 * (self.table_used + 1) > self.table_size:
            size = 2 * self.table_size if self.table_size else 1 << 10
            block = PyMem_Calloc(size, sizeof(Py_ssize_t))
            if block == NULL:
                return False
            PyMem_Free(self.table)
            self.table = <Py_ssize_t *> block
            self.table_size = size
            while place < self.arena_used:
                self.enter(place)
                place += self.arena[place + 1] + 2
        return True

    # bounds

    cdef bint is_hopeless(
        self, Py_ssize_t claim, Py_ssize_t request, Py_ssize_t way, Py_ssize_t count, Py_ssize_t start
    ) noexcept nogil:
        """Return whether what is left cannot serve what is still asked for, each on its own and all together."""
        cdef Py_ssize_t other
        memset(self.edge, 0, self.requests * self.classes * sizeof(int32_t))
        memset(self.flow, 0, self.requests * self.classes * sizeof(int32_t))
        memset(self.class_used, 0, self.classes * sizeof(int32_t))
        memset(self.group_used, 0, self.groups * sizeof(int32_t))
        if not self.narrow(claim, request, way, count, start):
            return True
        if self.families > 0 and not self.have_counters(request, way, count, start):
            return True
        self.count_free()
        for other in range(request, self.requests):
            if not self.is_served(claim, request, way, count, start, other):
                return True
        return False

    cdef inline Py_ssize_t from_way(self, Py_ssize_t request, Py_ssize_t way, Py_ssize_t other) noexcept nogil:
        return way if other == request else self.first_way[other]

    cdef inline Py_ssize_t to_way(self, Py_ssize_t request, Py_ssize_t way, Py_ssize_t other) noexcept nogil:
        return way + 1 if other == request else self.first_way[other + 1]

    cdef int32_t least(self, Py_ssize_t request, Py_ssize_t way, Py_ssize_t count, Py_ssize_t other) noexcept nogil:
        """Return how many devices a request still needs at least."""
        cdef Py_ssize_t one
        cdef int32_t found = MOST_RESULTS + 1
        if other == request:
            return self.counts[way] - <int32_t> count
        for one in range(self.first_way[other], self.first_way[other + 1]):
            found = min(found, self.counts[one])
        return found

    cdef bint can_have(self, Py_ssize_t way, Py_ssize_t device) noexcept nogil:
        """Return whether a way could take a device now, constraints apart."""
        if self.matches[way * self.devices + device] != 1 or self.flags[way * self.devices + device]:
            return False
        if not self.is_admin[way] and (self.taken[device] or self.marks[device] != 0):
            return False
        return self.has_counters(device) and (not self.is_shareable[device] or self.has_room(way, device))

    cdef bint narrow(
        self, Py_ssize_t claim, Py_ssize_t request, Py_ssize_t way, Py_ssize_t count, Py_ssize_t start
    ) noexcept nogil:
        """Find the values that each matchAttribute can still have, and count those of each distinctAttribute.

        Returns:
            Whether every constraint can still be met.
        """
        cdef Py_ssize_t constraint, other, one, device, word, bit, owner
        cdef uint64_t *values
        cdef uint64_t *found
        cdef int32_t need, wanted
        cdef bint is_covered
        for constraint in range(self.first_constraint[claim], self.constraints):
            if self.constraint_last[constraint] < request:
                continue
            found = self.feasible + self.feasible_start[constraint]
            owner = claim
            while constraint >= self.first_constraint[owner + 1]:
                owner += 1
            wanted = 0
            for word in range(self.words[constraint]):
                if self.is_distinct[constraint]:
                    found[word] = 0
                else:
                    found[word] = (
                        self.top(constraint)[word] if self.depth[constraint] > 0 else <uint64_t> 0xFFFFFFFFFFFFFFFF
                    )
            for other in range(max(request, self.first_request[owner]), self.first_request[owner + 1]):
                is_covered = True
                for one in range(self.from_way(request, way, other), self.to_way(request, way, other)):
                    is_covered = is_covered and self.covers[constraint * self.ways + one]
                need = self.least(request, way, count, other)
                if not is_covered or need == 0:
                    continue
                wanted += need
                memset(self.value_count, 0, 64 * self.words[constraint] * sizeof(int32_t))
                for device in range(start if other == request else 0, self.devices):
                    for one in range(self.from_way(request, way, other), self.to_way(request, way, other)):
                        if self.can_have(one, device):
                            self.count_values(constraint, device)
                            break
                for word in range(self.words[constraint]):
                    for bit in range(64):
                        if self.is_distinct[constraint]:
                            if self.value_count[64 * word + bit] > 0:
                                found[word] |= <uint64_t> 1 << bit
                        elif self.value_count[64 * word + bit] < need:
                            found[word] &= ~(<uint64_t> 1 << bit)
            if wanted == 0:
                continue
            need = 0
            for word in range(self.words[constraint]):
                if self.is_distinct[constraint] and self.depth[constraint] > 0:
                    found[word] &= ~self.top(constraint)[word]
                values = found + word
                for bit in range(64):
                    need += (values[0] >> bit) & 1
            if need < (wanted if self.is_distinct[constraint] else 1):
                return False
        return True

    cdef void count_values(self, Py_ssize_t constraint, Py_ssize_t device) noexcept nogil:
        cdef Py_ssize_t word, bit
        cdef uint64_t value
        for word in range(self.words[constraint]):
            value = self.value_of(constraint, device)[word]
            bit = 0
            while value:
                if value & 1:
                    self.value_count[64 * word + bit] += 1
                value >>= 1
                bit += 1

    cdef bint suits(self, Py_ssize_t claim, Py_ssize_t way, Py_ssize_t device, Py_ssize_t owner) noexcept nogil:
        """Return whether the constraints of a claim leave a device a chance."""
        cdef Py_ssize_t constraint, word
        cdef uint64_t own, common
        for constraint in range(self.first_constraint[owner], self.first_constraint[owner + 1]):
            if not self.covers[constraint * self.ways + way]:
                continue
            own = common = 0
            for word in range(self.words[constraint]):
                own |= self.value_of(constraint, device)[word]
                if self.is_distinct[constraint]:
                    if self.depth[constraint] > 0:
                        common |= self.value_of(constraint, device)[word] & self.top(constraint)[word]
                else:
                    common |= self.value_of(constraint, device)[word] & (
                        self.feasible[self.feasible_start[constraint] + word]
                    )
            if own == 0 or (common != 0) == self.is_distinct[constraint]:
                return False
        return True

    cdef bint have_counters(
        self, Py_ssize_t request, Py_ssize_t way, Py_ssize_t count, Py_ssize_t start
    ) noexcept nogil:
        """Return whether the counters of one name, over all sets, can carry the lightest devices for what is left."""
        cdef Py_ssize_t other, one, device, family, counter
        cdef int64_t lightest, weight, need
        memset(self.wanted, 0, self.families * sizeof(int64_t))
        memset(self.usable, 0, self.families * sizeof(int64_t))
        for family in range(self.families):
            for other in range(request, self.requests):
                lightest = -1
                for one in range(self.from_way(request, way, other), self.to_way(request, way, other)):
                    need = self.counts[one] - (count if other == request else 0)
                    for device in range(start if other == request else 0, self.devices):
                        if self.can_have(one, device):
                            weight = need * self.weight_of(device, family)
                            if lightest < 0 or weight < lightest:
                                lightest = weight
                            if weight == 0:
                                break
                self.wanted[family] += max(lightest, 0)
        for counter in range(self.counters):
            self.usable[self.family_of[counter]] += self.most_of(request, counter)
        for family in range(self.families):
            if self.wanted[family] > self.usable[family]:
                return False
        return True

    cdef int64_t weight_of(self, Py_ssize_t device, Py_ssize_t family) noexcept nogil:
        """Return what a device takes of the counters of a family; shares may take nothing."""
        cdef Py_ssize_t place
        cdef int64_t weight = 0
        if not self.is_shareable[device]:
            for place in range(self.use_start[device], self.use_start[device + 1]):
                if self.family_of[self.use_counter[place]] == family:
                    weight += self.use_amount[place]
        return weight

    cdef int64_t most_of(self, Py_ssize_t request, Py_ssize_t counter) noexcept nogil:
        """Return the most that devices which are still asked for can take of a counter, each as often as it likes."""
        cdef Py_ssize_t device, place, last = -1
        cdef int64_t left = self.left[counter], amount, total
        if left >= MOST_TABLED:
            return left
        memset(self.is_sum, 0, left + 1)
        self.is_sum[0] = 1
        for place in range(self.user_start[counter], self.user_start[counter + 1]):
            device, amount = self.user_device[place], self.user_amount[place]
            if self.marks[device] != 0 or self.class_last[self.class_of[device]] < request:
                continue
            if amount == 0 or amount > left:
                continue
            if last >= 0 and last != device and self.class_of[device] == self.class_of[last]:
                continue
            last = device
            for total in range(amount, left + 1):
                if self.is_sum[total - amount]:
                    self.is_sum[total] = 1
        while not self.is_sum[left]:
            left -= 1
        return left

    cdef void count_free(self) noexcept nogil:
        """Count the free devices of each class, and how many of each group its counters can carry."""
        cdef Py_ssize_t device, place, group
        cdef int32_t counter
        cdef int64_t most
        memset(self.class_total, 0, self.classes * sizeof(int32_t))
        for place in range(self.counters):
            self.group_least[place] = 0
        for device in range(self.devices):
            if self.taken[device] or self.marks[device] != 0 or self.is_shareable[device]:
                continue
            self.class_total[self.class_of[device]] += 1
        for group in range(self.groups):
            self.group_total[group] = 0x7FFFFFFF
            for device in range(self.devices):
                if self.group_of[self.class_of[device]] != group or self.is_shareable[device]:
                    continue
                for place in range(self.use_start[device], self.use_start[device + 1]):
                    counter = self.use_counter[place]
                    if self.group_least[counter] == 0 or self.use_amount[place] < self.group_least[counter]:
                        self.group_least[counter] = self.use_amount[place]
                    if self.use_amount[place] == 0:
                        self.group_least[counter] = -1
            for device in range(self.devices):
                if self.group_of[self.class_of[device]] != group:
                    continue
                for place in range(self.use_start[device], self.use_start[device + 1]):
                    counter = self.use_counter[place]
                    if self.group_least[counter] > 0:
                        most = self.left[counter] // self.group_least[counter]
                        if most < self.group_total[group]:
                            self.group_total[group] = <int32_t> most
                break
            for place in range(self.counters):
                self.group_least[place] = 0

    cdef bint is_served(
        self, Py_ssize_t claim, Py_ssize_t request, Py_ssize_t way, Py_ssize_t count, Py_ssize_t start, Py_ssize_t other
    ) noexcept nogil:
        """Add a request to the flow; return whether it gets all it needs."""
        cdef Py_ssize_t device, one, owner = self.request_claim[other]
        cdef int32_t need = self.least(request, way, count, other)
        cdef int32_t *edge = self.edge + other * self.classes
        for one in range(self.from_way(request, way, other), self.to_way(request, way, other)):
            if self.is_admin[one]:
                return True
        for device in range(start if other == request else 0, self.devices):
            for one in range(self.from_way(request, way, other), self.to_way(request, way, other)):
                if self.can_have(one, device) and self.suits(claim, one, device, owner):
                    if self.is_shareable[device]:
                        need -= 1
                    else:
                        edge[self.class_of[device]] += 1
                    break
        while need > 0:
            memset(self.class_seen, 0, self.classes)
            memset(self.group_seen, 0, self.groups)
            if not self.augment(request, other):
                return False
            need -= 1
        return True

    cdef bint augment(self, Py_ssize_t request, Py_ssize_t other) noexcept nogil:
        """Give a request one more device, moving others' where that helps."""
        cdef Py_ssize_t kind, rival, group, sibling
        for kind in range(self.classes):
            if (
                self.class_seen[kind]
                or self.flow[other * self.classes + kind] >= self.edge[other * self.classes + kind]
            ):
                continue
            self.class_seen[kind] = 1
            group = self.group_of[kind]
            if self.class_used[kind] < self.class_total[kind]:
                if group < 0 or self.group_used[group] < self.group_total[group]:
                    self.class_used[kind] += 1
                    if group >= 0:
                        self.group_used[group] += 1
                    self.flow[other * self.classes + kind] += 1
                    return True
                if not self.group_seen[group]:
                    self.group_seen[group] = 1
                    for sibling in range(self.classes):
                        if self.group_of[sibling] != group or (sibling != kind and self.class_seen[sibling]):
                            continue
                        self.class_seen[sibling] = 1
                        for rival in range(request, self.requests):
                            if self.flow[rival * self.classes + sibling] > 0 and self.augment(request, rival):
                                self.flow[rival * self.classes + sibling] -= 1
                                self.class_used[sibling] -= 1
                                self.class_used[kind] += 1
                                self.flow[other * self.classes + kind] += 1
                                return True
            for rival in range(request, self.requests):
                if rival != other and self.flow[rival * self.classes + kind] > 0 and self.augment(request, rival):
                    self.flow[rival * self.classes + kind] -= 1
                    self.flow[other * self.classes + kind] += 1
                    return True
        return False


cdef uint64_t mixed(const int64_t *words, Py_ssize_t count) noexcept nogil:
    """Return a digest; equal digests are compared in full."""
    cdef uint64_t digest = 0x9E3779B97F4A7C15
    cdef Py_ssize_t place
    for place in range(count):
        digest = (digest ^ <uint64_t> words[place]) * <uint64_t> 0xFF51AFD7ED558CCD
        digest ^= digest >> 32
    return digest


def search(
    problem, *, bint prune=True, int64_t easy_steps=EASY_STEPS, int64_t most_steps=20_000_000,
    Py_ssize_t most_memory=256 << 20, watch=(),
):
    """Search for the devices of all claims of a problem.

    Args:
        problem: `alignup.claims.problem.Problem`.
        prune: leave out what holds no solution; False walks every step that the allocator does.
        easy_steps: how many steps are taken before bounds are computed, which costs more than a step.
        most_steps: the bound of the walk; a step over many devices, and one whose bounds are computed, counts more.
        most_memory: bytes for failed states.
        watch: by device, whether the walk ends where this device first comes to its counters; empty: none does.

    Returns:
        outcome: `found`, `none`, `error`, `constraint`, `limit` or `touched`.
        pairs: ways and devices in order; for `error` the place in `problem.errors`, for `constraint` the way and
            device.
        steps: how many the walk took.

    Raises:
        MemoryError: there is none for the tables.
    """
    cdef _Search walk = _Search()
    cdef int outcome
    cdef Py_ssize_t place
    walk.load(problem, len(problem.claims))
    has_errors = bool(problem.errors) or any(
        way.everything is not None and any(row[number] for row in problem.covers)
        for number, way in enumerate(problem.ways)
    )
    most = [0] * len(problem.claims)
    for request in range(walk.requests):
        ways = problem.ways[problem.first_way[request]:problem.first_way[request + 1]]
        most[ways[0].claim] += max(way.count for way in ways)
    walk.may_overflow = any(count > MOST_RESULTS for count in most)
    prune = prune and not problem.forgets
    walk.once = walk.remembers = prune and not (has_errors and walk.may_overflow)
    walk.bounds = prune and not has_errors
    walk.watch = walk.bits(watch or [False] * walk.devices)
    walk.easy_steps = easy_steps
    walk.most_steps = most_steps
    walk.most_arena = most_memory // sizeof(int64_t)
    with nogil:
        outcome = walk.walk(0, 0, -1, 0, 0)
    if outcome == FOUND:
        devices = [(walk.result_way[place], walk.result_device[place]) for place in range(walk.result_count)]
        return "found", devices, walk.steps
    if outcome == FATAL:
        if walk.fatal_way < 0:
            return "error", [(-1 - walk.fatal_way, 0)], walk.steps
        return "constraint", [(walk.fatal_way, walk.fatal_device)], walk.steps
    if outcome == TOUCHED:
        return "touched", [(0, walk.fatal_device)], walk.steps
    return "limit" if outcome == LIMIT else "none", [], walk.steps
