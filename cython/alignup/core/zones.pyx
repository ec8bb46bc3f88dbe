"""Read the zones of a NodeResourceTopology object as exporters write them: amounts in columns, and costs.

Only the usual form is read here, as fast as a scheduler that is told of every change needs it: plain dicts and lists,
whole amounts of few digits, zones that are numbered. For everything else the answer is None, and the careful reader in
`alignup.node_resource_topology.read` says what it means or what is wrong with it.
"""

from libc.stdint cimport int64_t

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    const unsigned char* PyUnicode_1BYTE_DATA(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1

cdef enum:
    MOST_ZONES = 64
    MOST_DIGITS = 16        # any number of so many digits is an amount that a zone may have
    MOST_PLACES = 9         # digits of a zone's number
    UNUSUAL = -1


def plain_zones(list zones not None, not_aligned, int64_t largest_cost, int unknown_cost):
    """Return what usual zones of type Node say, in the order of their numbers; None if anything is unusual.

    Args:
        zones: the zones, as JSON has them.
        not_aligned: names of resources that are passed over.
        largest_cost: a cost beyond it is unusual.
        unknown_cost: stands for a cost that a zone does not tell.

    Returns:
        How many zones there are; by resource the capacity, the allocatable and the available amount of each zone; and
        a row of costs for each zone, None where no zone has any.
    """
    cdef list ordered = in_order(zones), names
    cdef dict columns = {}
    cdef int place
    if ordered is None:
        return None
    for place in range(len(ordered)):
        if not read_resources(<dict>ordered[place], place, len(ordered), not_aligned, columns):
            return None
    names = [(<dict>zone)["name"] for zone in ordered]
    rows = []
    costs_known = False
    for zone in ordered:
        costs = (<dict>zone).get("costs")
        row = costs_of(costs, names, largest_cost, unknown_cost)
        if row is None:
            return None
        costs_known = costs_known or bool(costs)
        rows.append(row)
    found = {name: (tuple(one), tuple(two), tuple(three)) for name, (one, two, three) in columns.items()}
    return len(ordered), found, tuple(rows) if costs_known else None


cdef list in_order(list zones):
    """Return the zones of type Node by their numbers; None if one is unusual, or two have the same number."""
    cdef dict numbered = {}
    cdef int64_t number
    for zone in zones:
        if type(zone) is not dict:
            return None
        kind = (<dict>zone).get("type", "Node")
        name = (<dict>zone).get("name")
        if type(kind) is not str or type(name) is not str:
            return None
        if kind != "Node":
            continue
        number = number_of(name)
        if number == UNUSUAL or number in numbered:
            return None
        numbered[number] = zone
    if not 1 <= len(numbered) <= MOST_ZONES:
        return None
    return [numbered[key] for key in sorted(numbered)]


cdef int64_t number_of(str name):
    """Return the number at the end of a zone's name."""
    cdef const unsigned char* text
    cdef Py_ssize_t length = PyUnicode_GET_LENGTH(name), start
    if not PyUnicode_IS_COMPACT_ASCII(name):
        return UNUSUAL
    text = PyUnicode_1BYTE_DATA(name)
    start = length
    while start and c"0" <= text[start - 1] <= c"9":
        start -= 1
    return digits(text + start, length - start, MOST_PLACES)


cdef int64_t digits(const unsigned char* text, Py_ssize_t length, Py_ssize_t most) noexcept:
    """Return a number of up to `most` digits; UNUSUAL for any other text."""
    cdef int64_t number = 0
    cdef Py_ssize_t index
    if not 1 <= length <= most:
        return UNUSUAL
    for index in range(length):
        if not c"0" <= text[index] <= c"9":
            return UNUSUAL
        number = 10 * number + (text[index] - c"0")
    return number


cdef int64_t amount_of(object value):
    """Return a whole amount, from text or a number; UNUSUAL for any other value."""
    if type(value) is str and PyUnicode_IS_COMPACT_ASCII(value):
        return digits(PyUnicode_1BYTE_DATA(value), PyUnicode_GET_LENGTH(value), MOST_DIGITS)
    if type(value) is int and 0 <= value < 10**MOST_DIGITS:
        return <int64_t>value
    return UNUSUAL


cdef bint read_resources(dict zone, int place, int zones, not_aligned, dict columns) except -1:
    """Write the amounts of a zone in its place of each column; return whether all of it is usual.

    What is left out of an amount is what the next larger one says.
    """
    cdef int64_t capacity, allocatable, available
    resources = zone.get("resources")
    if resources is None:
        return True
    if type(resources) is not list:
        return False
    for resource in <list>resources:
        if type(resource) is not dict:
            return False
        name = (<dict>resource).get("name")
        if type(name) is not str:
            return False
        if name in not_aligned:
            continue
        whole, given, left = (
            (<dict>resource).get("capacity"), (<dict>resource).get("allocatable"), (<dict>resource).get("available")
        )
        capacity = 0 if whole is None else amount_of(whole)
        allocatable = capacity if given is None or given is whole else amount_of(given)
        available = allocatable if left is None else amount_of(left)
        if capacity == UNUSUAL or allocatable == UNUSUAL or available == UNUSUAL:
            return False
        if whole is None:
            capacity = allocatable = allocatable if given is not None else available
        column = columns.get(name)
        if column is None:
            column = columns[name] = ([0] * zones, [0] * zones, [0] * zones)
        (<list>(<tuple>column)[0])[place] = capacity
        (<list>(<tuple>column)[1])[place] = allocatable
        (<list>(<tuple>column)[2])[place] = available
    return True


cdef tuple costs_of(object costs, list names, int64_t largest, int unknown):
    """Return the costs from a zone to those of some names; None if they are unusual."""
    cdef list values = []
    cdef bint in_order
    if costs is None:
        costs = []
    if type(costs) is not list:
        return None
    in_order = len(<list>costs) == len(names)
    for place, cost in enumerate(<list>costs):
        if type(cost) is not dict:
            return None
        name, value = (<dict>cost).get("name"), (<dict>cost).get("value")
        if type(name) is not str or not is_cost(value, largest):
            return None
        in_order = in_order and <str>name == <str>names[place]
        values.append(value)
    if in_order:
        return tuple(values)
    told = {(<dict>cost)["name"]: value for cost, value in zip(<list>costs, values)}
    return tuple([told.get(name, unknown) for name in names])


cdef inline bint is_cost(object value, int64_t largest) except -1:
    cdef int overflow
    cdef long long number
    if type(value) is not int:
        return False
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    return not overflow and 0 <= number <= largest
