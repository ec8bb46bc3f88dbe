"""The search for devices that satisfy claims.

It finds the first solution in the scheduler's order, without its detours.

The scheduler's allocator tries devices depth first: claim by claim, request by request, way by way,
device by device in ascending order within a request. The first solution that it meets is the
answer. This search walks the same tree and leaves out only what holds no solution:

- *Interchangeable devices once.* Of devices of one class that are in the same state, the first
  stands for all: a solution with a later one would be one with the first in its place.
- *Failed states.* What is left to search depends on the counts of free devices by class, on the
  constraints of the current claim, on counters and shares. A state that failed once fails again.
- *Bounds.* What is still asked for is compared with what is left: a flow from requests to classes
  of devices, with the values that constraints leave and the devices that counters leave.

An error of the allocator ends it where it is met, so the walk must meet the same ones. Where there
may be errors, bounds are off, since they leave out subtrees that were never walked; and where a
claim may also grow beyond its limit of devices, which cuts walks short, all three are off.

This module is the Python interface: it copies the tables of a problem. `walk.pyx` beside it walks.
"""

from cpython.mem cimport PyMem_Free
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from alignup.core.blocks cimport zeroed
from alignup.core.claims.failed_states cimport drop_states, longest_key
from alignup.core.claims.state cimport BLOCKED, FULL, MOST_RESULTS, Point, Tables
from alignup.core.claims.walk cimport FATAL, FOUND, LIMIT, TOUCHED, Outcome, Walk, walk_from

cdef enum:
    MOST_CLAIMS = 64        # as the bits of a mark
    MOST_COUNT = 1 << 30    # devices that a request asks for; more than any claim may have
    EASY_STEPS = 1000       # a search shorter than this needs no bounds


cdef list flat(object rows, Py_ssize_t count, Py_ssize_t width):
    """Lay the rows of a table end to end."""
    if len(rows) != count or any([len(row) != width for row in rows]):
        raise ValueError(
            f"expected {count} rows of {width}, got rows of {[len(row) for row in rows]}"
        )
    return [entry for row in rows for entry in row]


cdef void find_ends(
    const Tables* tables, int32_t* class_last, int32_t* constraint_last, int32_t* counter_last
) noexcept nogil:
    """Find the last request for which each class, constraint and counter matters."""
    cdef Py_ssize_t way, device, place

    memset(class_last, -1, tables.classes * sizeof(int32_t))
    memset(constraint_last, -1, tables.constraints * sizeof(int32_t))
    memset(counter_last, -1, tables.counters * sizeof(int32_t))
    for way in range(tables.ways):
        for device in range(tables.devices):
            if not tables.matches[way * tables.devices + device]:
                continue

            class_last[tables.class_of[device]] = tables.request_of[way]
            for place in range(tables.use_start[device], tables.use_start[device + 1]):
                counter_last[tables.use_counter[place]] = tables.request_of[way]

        for place in range(tables.constraints):
            if tables.covers[place * tables.ways + way]:
                constraint_last[place] = tables.request_of[way]


cdef class _Search:
    """A walk, and the memory of its tables and of its state.

    Raises:
        MemoryError: there is none for them.
        ValueError: the tables do not fit together.
    """

    cdef Walk walk
    cdef list blocks

    def __cinit__(self, problem, watch):
        self.blocks = []

        self.walk.tables.claims = len(problem.claims)
        self.walk.tables.requests = len(problem.has_alternatives)
        self.walk.tables.ways = len(problem.ways)
        self.walk.tables.devices = len(problem.devices)
        self.walk.tables.counters = len(problem.counters)
        self.walk.tables.constraints = len(problem.constraints)
        if self.walk.tables.claims > MOST_CLAIMS:
            raise ValueError(
                f"expected at most {MOST_CLAIMS} claims, got {self.walk.tables.claims}"
            )

        self.read_requests(problem)
        self.read_devices(problem, watch)
        self.read_ways(problem)
        self.read_counters(problem)
        self.read_constraints(problem)

        self.set_ends()
        self.make_room_for_allocation(problem)
        self.make_room_for_pruning()

    def __dealloc__(self):
        drop_states(&self.walk.failed)
        for address in self.blocks:
            PyMem_Free(<void*><size_t>address)

    # Memory that lives as long as the search

    cdef void* get(self, Py_ssize_t count, Py_ssize_t size) except NULL:
        """Return zeroed memory."""
        cdef void* block = zeroed(count, size)
        self.blocks.append(<size_t>block)
        return block

    cdef int32_t* new_numbers(self, Py_ssize_t count) except NULL:
        return <int32_t*>self.get(count, sizeof(int32_t))

    cdef int64_t* new_amounts(self, Py_ssize_t count) except NULL:
        return <int64_t*>self.get(count, sizeof(int64_t))

    cdef int32_t* numbers(
        self, list values, Py_ssize_t count, int64_t least, int64_t end
    ) except NULL:
        """Copy so many numbers from `least` up to, not with, `end`."""
        cdef int32_t* numbers = self.new_numbers(count)
        cdef Py_ssize_t place
        cdef int64_t value

        if len(values) != count:
            raise ValueError(f"expected {count} numbers, got {len(values)}")

        for place in range(count):
            value = values[place]
            if not least <= value < end:
                raise ValueError(
                    f"expected numbers from {least} up to, not with, {end}, got {value}"
                )

            numbers[place] = <int32_t>value

        return numbers

    cdef int64_t* amounts(self, list values, Py_ssize_t count) except NULL:
        cdef int64_t* amounts = self.new_amounts(count)
        cdef Py_ssize_t place
        if len(values) != count:
            raise ValueError(f"expected {count} amounts, got {len(values)}")
        for place in range(count):
            amounts[place] = values[place]
        return amounts

    cdef uint8_t* bits(self, list values, Py_ssize_t count) except NULL:
        """Copy so many booleans or flags."""
        cdef uint8_t* bits = <uint8_t*>self.get(count, 1)
        cdef Py_ssize_t place
        if len(values) != count:
            raise ValueError(f"expected {count} booleans, got {len(values)}")
        for place in range(count):
            bits[place] = values[place]
        return bits

    cdef int32_t* starts(self, list lists) except NULL:
        """Return where each list begins when all are laid end to end."""
        cdef int32_t* starts = self.new_numbers(len(lists) + 1)
        cdef Py_ssize_t place
        for place in range(len(lists)):
            starts[place + 1] = starts[place] + <int32_t>len(lists[place])
        return starts

    cdef int32_t* firsts(self, list values, Py_ssize_t count, Py_ssize_t end) except NULL:
        """Copy where each of `count` begins in a list of `end`."""
        if values[:1] != [0] or values[count:] != [end] or values != sorted(values):
            raise ValueError(f"expected ascending numbers from 0 to {end}, got {values}")
        return self.numbers(values, count + 1, 0, end + 1)

    # The tables

    cdef int read_requests(self, object problem) except -1:
        cdef Tables* tables = &self.walk.tables
        cdef Py_ssize_t request

        ways = problem.ways
        firsts = problem.first_way
        tables.first_request = self.firsts(problem.first_request, tables.claims, tables.requests)
        tables.first_way = self.firsts(firsts, tables.requests, tables.ways)
        tables.has_alternatives = self.bits(problem.has_alternatives, tables.requests)
        groups = [ways[firsts[request]:firsts[request + 1]] for request in range(tables.requests)]
        if not all(groups):
            raise ValueError("expected a way for each request, got none")

        tables.claim_of = self.numbers(
            [group[0].claim for group in groups], tables.requests, 0, tables.claims
        )
        most_devices = [0] * tables.claims
        for group in groups:
            most_devices[group[0].claim] += max([way.count for way in group])

        tables.may_overflow = max(most_devices, default=0) > MOST_RESULTS
        return 0

    cdef int read_devices(self, object problem, list watch) except -1:
        cdef Tables* tables = &self.walk.tables
        cdef Py_ssize_t device

        tables.is_taken = self.bits(problem.taken, tables.devices)
        tables.is_watched = self.bits(watch or [False] * tables.devices, tables.devices)
        tables.is_shareable = self.bits(problem.is_shareable, tables.devices)
        tables.is_shared = self.bits(problem.is_shared, tables.devices)

        rooms = [
            room if shareable else () for room, shareable in zip(problem.room, problem.is_shareable)
        ]
        tables.room_start = self.starts(rooms)
        tables.rooms = tables.room_start[tables.devices]
        tables.room = self.amounts([capacity for room in rooms for capacity in room], tables.rooms)

        tables.classes = max(problem.classes, default=-1) + 1
        tables.class_of = self.numbers(problem.classes, tables.devices, 0, tables.classes)

        last = {}
        previous = []
        for device, kind in enumerate(problem.classes):
            previous.append(last.get(kind, -1))
            last[kind] = device

        tables.previous = self.numbers(previous, tables.devices, -1, tables.devices)
        return 0

    cdef int read_ways(self, object problem) except -1:
        cdef Tables* tables = &self.walk.tables
        cdef Py_ssize_t count = tables.ways, way, device, place
        cdef int64_t* needs

        ways = problem.ways
        everything = [record.everything or [] for record in ways]
        if any(
            [
                record.everything is not None and record.count != len(record.everything)
                for record in ways
            ]
        ):
            raise ValueError("expected as many devices as are asked for in allocation mode All")

        tables.request_of = self.numbers(
            [record.request for record in ways], count, 0, tables.requests
        )
        tables.counts = self.numbers(
            [min(record.count, MOST_COUNT) for record in ways], count, 0, MOST_COUNT + 1
        )

        tables.is_admin = self.bits([record.is_admin for record in ways], count)
        tables.admin_last = max([record.request for record in ways if record.is_admin], default=-1)

        tables.is_all = self.bits([record.everything is not None for record in ways], count)
        tables.all_start = self.starts(everything)
        tables.all_devices = self.numbers(
            [device for row in everything for device in row],
            tables.all_start[count],
            0,
            tables.devices,
        )

        tables.matches = self.numbers(
            flat(problem.matches, count, tables.devices),
            count * tables.devices,
            INT32_MIN,
            INT32_MAX,
        )

        blocked = flat(problem.blocked, count, tables.devices)
        needed = flat(problem.amounts, count, tables.devices)
        tables.flags = self.bits(
            [
                (BLOCKED if is_blocked else 0) | (FULL if amounts is None else 0)
                for is_blocked, amounts in zip(blocked, needed)
            ],
            count * tables.devices,
        )

        needs = self.new_amounts(count * tables.rooms)
        for way in range(count):
            for device in range(tables.devices):
                for place, amount in enumerate(problem.needs[way][device]):
                    if place >= tables.room_start[device + 1] - tables.room_start[device]:
                        raise ValueError(
                            f"expected no more amounts than device {device} has capacities"
                        )

                    needs[way * tables.rooms + tables.room_start[device] + place] = amount

        tables.needs = needs
        return 0

    cdef int read_counters(self, object problem) except -1:
        cdef Tables* tables = &self.walk.tables
        cdef Py_ssize_t device

        uses = problem.uses
        tables.families = max(problem.families, default=-1) + 1
        tables.family_of = self.numbers(problem.families, tables.counters, 0, tables.families)
        tables.use_start = self.starts(uses)

        places = tables.use_start[tables.devices]
        tables.use_counter = self.numbers(
            [counter for row in uses for counter, _ in row], places, 0, tables.counters
        )
        tables.use_amount = self.amounts([amount for row in uses for _, amount in row], places)

        users = [[] for _ in problem.counters]
        for device, row in enumerate(uses):
            for counter, amount in row:
                users[counter].append((device, amount))

        tables.user_start = self.starts(users)
        tables.user_device = self.numbers(
            [device for row in users for device, _ in row], places, 0, tables.devices
        )
        tables.user_amount = self.amounts([amount for row in users for _, amount in row], places)
        self.read_groups(problem)

        return 0

    cdef int read_groups(self, object problem) except -1:
        """Find the classes that take from the same counters.

        Note the least that their devices take of each.
        """
        cdef Tables* tables = &self.walk.tables

        groups = {}
        least_amounts = []
        group_of = [-1] * tables.classes
        for uses, kind, shareable in zip(problem.uses, problem.classes, problem.is_shareable):
            if not uses or shareable:
                continue

            group = group_of[kind] = groups.setdefault(
                tuple([counter for counter, _ in uses]), len(groups)
            )
            if group == len(least_amounts):
                least_amounts.append(dict(uses))

            for counter, amount in uses:
                least_amounts[group][counter] = min(least_amounts[group][counter], amount)

        bounding = [
            [(counter, amount) for counter, amount in row.items() if amount]
            for row in least_amounts
        ]

        tables.groups = len(groups)
        tables.group_of = self.numbers(group_of, tables.classes, -1, tables.groups)
        tables.least_start = self.starts(bounding)

        places = tables.least_start[tables.groups]
        tables.least_counter = self.numbers(
            [counter for row in bounding for counter, _ in row], places, 0, tables.counters
        )
        tables.least_amount = self.amounts(
            [amount for row in bounding for _, amount in row], places
        )

        return 0

    cdef int read_constraints(self, object problem) except -1:
        cdef Tables* tables = &self.walk.tables
        cdef Py_ssize_t constraint, device, word, count = tables.constraints
        cdef Py_ssize_t* word_start = <Py_ssize_t*>self.get(count + 1, sizeof(Py_ssize_t))
        cdef uint64_t* values

        owners = [claim for claim, _ in problem.constraints]
        if owners != sorted(owners):
            raise ValueError(f"expected constraints in the order of their claims, got {owners}")

        tables.first_constraint = self.numbers(
            [sum([owner < claim for owner in owners]) for claim in range(tables.claims + 1)],
            tables.claims + 1,
            0,
            count + 1,
        )

        tables.is_distinct = self.bits(problem.is_distinct, count)
        tables.covers = self.bits(flat(problem.covers, count, tables.ways), count * tables.ways)
        tables.is_alone = self.bits(
            flat(problem.is_alone, count, tables.devices), count * tables.devices
        )
        tables.faults = self.numbers(
            flat(problem.faults, count, tables.devices), count * tables.devices, INT32_MIN, 1
        )
        tables.forgets = problem.forgets

        masks = flat(problem.values, count, tables.devices)
        widths = [
            max(1, max([mask.bit_length() + 63 for mask in row], default=0) // 64)
            for row in problem.values
        ]
        tables.words = self.numbers(widths, count, 1, INT32_MAX)
        for constraint in range(count):
            word_start[constraint + 1] = word_start[constraint] + tables.words[constraint]

        tables.word_start = word_start
        values = <uint64_t*>self.get(word_start[count] * tables.devices, sizeof(uint64_t))
        tables.values = values
        for constraint in range(count):
            for device in range(tables.devices):
                mask = masks[constraint * tables.devices + device]
                for word in range(tables.words[constraint]):
                    values[0] = (mask >> (64 * word)) & 0xFFFFFFFFFFFFFFFF
                    values += 1

        return 0

    cdef int set_ends(self) except -1:
        cdef Tables* tables = &self.walk.tables
        cdef int32_t* class_last = self.new_numbers(tables.classes)
        cdef int32_t* constraint_last = self.new_numbers(tables.constraints)
        cdef int32_t* counter_last = self.new_numbers(tables.counters)

        find_ends(tables, class_last, constraint_last, counter_last)
        tables.class_last = class_last
        tables.constraint_last = constraint_last
        tables.counter_last = counter_last
        return 0

    # The state

    cdef int make_room_for_allocation(self, object problem) except -1:
        cdef const Tables* tables = &self.walk.tables
        cdef Py_ssize_t words = tables.word_start[tables.constraints]
        cdef Py_ssize_t most_results = tables.claims * MOST_RESULTS

        self.walk.allocation.marks = <uint64_t*>self.get(tables.devices, sizeof(uint64_t))
        self.walk.allocation.shares = self.new_numbers(tables.devices)
        self.walk.allocation.used = self.new_amounts(tables.rooms)
        self.walk.allocation.remaining = self.amounts(problem.counters, tables.counters)

        self.walk.allocation.depth = self.new_numbers(tables.constraints)
        self.walk.allocation.sets = <uint64_t*>self.get(
            words * (MOST_RESULTS + 2), sizeof(uint64_t)
        )
        self.walk.allocation.last_device = self.new_numbers(tables.constraints * tables.requests)
        memset(
            self.walk.allocation.last_device,
            -1,
            tables.constraints * tables.requests * sizeof(int32_t),
        )

        self.walk.allocation.claim_count = self.new_numbers(tables.claims + 1)
        self.walk.allocation.result_way = self.new_numbers(most_results)
        self.walk.allocation.result_device = self.new_numbers(most_results)

        return 0

    cdef int make_room_for_pruning(self) except -1:
        """Make room for the key of a state, and for what bounds are computed in."""
        cdef const Tables* tables = &self.walk.tables
        cdef Py_ssize_t constraint, widest = 1

        self.walk.failed.key = self.new_amounts(longest_key(tables))
        self.walk.failed.tail = self.new_numbers(tables.classes)
        self.walk.failed.free = self.new_numbers(tables.classes)
        self.walk.failed.claimed = self.new_numbers(tables.classes)
        self.walk.failed.started = self.new_numbers(tables.devices)

        self.walk.bounds.edge = self.new_numbers(tables.requests * tables.classes)
        self.walk.bounds.flow = self.new_numbers(tables.requests * tables.classes)

        self.walk.bounds.class_total = self.new_numbers(tables.classes)
        self.walk.bounds.class_used = self.new_numbers(tables.classes)
        self.walk.bounds.class_seen = <uint8_t*>self.get(tables.classes, 1)

        self.walk.bounds.group_total = self.new_amounts(tables.groups)
        self.walk.bounds.group_used = self.new_amounts(tables.groups)
        self.walk.bounds.group_seen = <uint8_t*>self.get(tables.groups, 1)

        self.walk.bounds.needed = self.new_amounts(tables.families)
        self.walk.bounds.usable = self.new_amounts(tables.families)
        for constraint in range(tables.constraints):
            widest = max(widest, tables.words[constraint])

        self.walk.bounds.value_count = self.new_numbers(64 * widest)
        self.walk.bounds.feasible = <uint64_t*>self.get(
            tables.word_start[tables.constraints], sizeof(uint64_t)
        )
        return 0

    cdef list results(self):
        """Return the ways and devices that were taken."""
        cdef Py_ssize_t place
        return [
            (self.walk.allocation.result_way[place], self.walk.allocation.result_device[place])
            for place in range(self.walk.allocation.results)
        ]


def search(
    problem,
    *,
    bint prune=True,
    int64_t easy_steps=EASY_STEPS,
    int64_t most_steps=20_000_000,
    Py_ssize_t most_memory=256 << 20,
    watch=(),
):
    """Search for the devices of all claims of a problem.

    Args:
        problem: its `alignup.claims.search_tables.SearchTables`.
        prune: leave out what holds no solution; False walks every step that the allocator does.
        easy_steps: how many steps are taken before bounds are computed, which costs more than a
            step.
        most_steps: the bound of the walk; a step over many devices, and one whose bounds are
            computed, counts more.
        most_memory: bytes for failed states.
        watch: by device, whether the walk ends where this device first comes to its counters;
            empty: none does.

    Returns:
        outcome: `found`, `none`, `error`, `constraint`, `limit` or `touched`.
        pairs: ways and devices in order; for `error` the place in `problem.errors`, for
            `constraint` the way and device.
        steps: how many the walk took.

    Raises:
        MemoryError: there is none for the tables.
        ValueError: the tables of the problem do not fit together.
    """
    cdef _Search state = _Search(problem, list(watch))
    cdef Walk* walk = &state.walk
    cdef Outcome outcome

    has_errors = (
        bool(problem.errors)
        or any(
            way.everything is not None and any(row[number] for row in problem.covers)
            for number, way in enumerate(problem.ways)
        )
    )

    prune = prune and not walk.tables.forgets
    walk.once = walk.remembers = prune and not (has_errors and walk.tables.may_overflow)
    walk.bounded = prune and not has_errors

    walk.easy_steps = easy_steps
    walk.most_steps = most_steps
    walk.failed.most_room = most_memory // sizeof(int64_t)
    with nogil:
        outcome = walk_from(walk, Point(0, 0, -1, 0, 0))

    if outcome == FOUND:
        return "found", state.results(), walk.steps

    if outcome == FATAL:
        if walk.fatal_way < 0:
            return "error", [(-1 - walk.fatal_way, 0)], walk.steps

        return "constraint", [(walk.fatal_way, walk.fatal_device)], walk.steps

    if outcome == TOUCHED:
        return "touched", [(0, walk.fatal_device)], walk.steps

    return "limit" if outcome == LIMIT else "none", [], walk.steps
