"""Reads NodeResourceTopology objects straight from JSON text, in one pass that keeps only what is needed.

Whatever is out of the ordinary (a number that is no plain quantity, a field of another type, a key twice, an escape in
a name) is not judged here: the object is left to the reader of plain objects, which says what is wrong, and where.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeASCII, PyUnicode_AsUTF8AndSize
from libc.stdint cimport int64_t
from libc.string cimport memcmp, memcpy, memset


cdef extern from *:
    """
    #if defined(__SSE2__)
    #include <emmintrin.h>
    #endif
    static CYTHON_INLINE int alignup_is_hex(char one) {
        return (one >= '0' && one <= '9') || ((one | 32) >= 'a' && (one | 32) <= 'f');
    }
    /* The quote that ends a string, or NULL where it is malformed; `odd` gets bits for escapes (1), letters beyond
       ASCII (2) and escapes of what can be written otherwise (4). Halves of surrogate pairs are left to the other
       reader. */
    static CYTHON_INLINE const char* string_end(const char* at, const char* end, int* odd) {
        while (at < end) {
    #if defined(__SSE2__)
            if (end - at >= 16) {
                const __m128i block = _mm_loadu_si128((const __m128i*)at);
                const int stops = _mm_movemask_epi8(_mm_or_si128(
                    _mm_or_si128(
                        _mm_cmpeq_epi8(block, _mm_set1_epi8('"')), _mm_cmpeq_epi8(block, _mm_set1_epi8('\\\\'))),
                    _mm_cmplt_epi8(block, _mm_set1_epi8(' '))));    /* also what is beyond ASCII */
                if (!stops) { at += 16; continue; }
                at += __builtin_ctz(stops);
            }
    #endif
            if (*at == '"') return at;
            if ((unsigned char)*at >= 0x80) {
                *odd |= 2;
                at++;
            } else if ((unsigned char)*at < ' ') {
                return NULL;
            } else if (*at != '\\\\') {
                at++;
            } else {
                *odd |= 1;
                if (end - at < 7) return NULL;
                switch (at[1]) {
                    case '/':
                        *odd |= 4;
                        at += 2;
                        break;
                    case '"': case '\\\\': case 'b': case 'f': case 'n': case 'r': case 't':
                        at += 2;
                        break;
                    case 'u':
                        if (!(alignup_is_hex(at[2]) && alignup_is_hex(at[3])
                              && alignup_is_hex(at[4]) && alignup_is_hex(at[5]))
                            || ((at[2] | 32) == 'd' && at[3] > '7')) return NULL;
                        *odd |= 4;
                        at += 6;
                        break;
                    default:
                        return NULL;
                }
            }
        }
        return NULL;
    }
    """
    const char* string_end(const char* at, const char* end, int* odd) noexcept nogil


cdef enum:
    MOST_ZONES = 64
    MOST_NAMES = 64         # resources of an object
    MOST_WORDS = 8          # attributes of the Topology Manager, which come twice at most
    MOST_KEYS = 256         # of all objects that are open, those aside that are read here
    MOST_DEPTH = 400        # fewer levels than the other reader's limit
    MOST_LETTERS = 64       # of a number that is passed over, and digits of its exponent: others may be out of range
    MOST_EXPONENT = 2
    MOST_DIGITS = 17
    SHORTEST_COST = 22      # bytes of a cost or of a resource, as short as can be
    SHORTEST_RESOURCE = 12
    UNKNOWN_DISTANCE = 255
    # bits of the keys that an object has
    OTHER_KEY = 6
    # instead of an amount
    NULL_AMOUNT = -1
    ODD = -2
    MALFORMED = -3

cdef int64_t LARGEST_AMOUNT = <int64_t>1 << 55      # of one zone, so that the sum over all of them is an amount
cdef int64_t LARGEST_COST = (<int64_t>1 << 31) - 1


cdef struct Word:
    const char* start
    Py_ssize_t length
    int odd


cdef struct Text:
    const char* at
    const char* end         # a zero byte
    bint is_lax             # what is passed over goes to the other reader: only its end matters
    int keys
    Word[MOST_KEYS] key     # of objects that are open, those aside that are read here


cdef struct Keys:
    # Which keys an object has.
    int seen                # bits
    int first               # of those that are not read here, in the text's


cdef struct Cost:
    Word name
    int64_t value


cdef struct Amounts:
    int name                # of the names of an object; -1: none is counted by NUMA node
    int zone
    int64_t capacity
    int64_t allocatable
    int64_t available


cdef struct Zone:
    Word name
    int64_t number          # at the end of the name
    int costs               # the first one, and the end
    int costs_end


cdef struct Found:
    # What is found in one object.
    Word name
    Word legacy
    bint has_legacy
    int words
    Word word[MOST_WORDS]   # name and value of attributes, in turn
    int zones
    Zone zone[MOST_ZONES]
    int costs
    int amounts
    int names
    Word resource[MOST_NAMES]


cdef inline bint same(const Word* word, const char* other, Py_ssize_t length) noexcept nogil:
    return word.length == length and not memcmp(word.start, other, length)


cdef inline bint alike(const Word* one, const Word* other) noexcept nogil:
    return same(one, other.start, other.length)


cdef inline bint starts(const Word* word, const char* other, Py_ssize_t length) noexcept nogil:
    return word.length >= length and not memcmp(word.start, other, length)


# JSON, strictly: what is malformed is left to the other reader, to be complained about

cdef inline void skip_space(Text* text) noexcept nogil:
    while text.at[0] == c" " or text.at[0] == c"\n" or text.at[0] == c"\r" or text.at[0] == c"\t":
        text.at += 1


cdef inline bint read_word(Text* text, Word* word) noexcept nogil:
    """Read a string, without what escapes in it mean."""
    cdef const char* end
    word.odd = 0
    if text.at[0] != c'"':
        return False
    end = string_end(text.at + 1, text.end, &word.odd)
    if end == NULL:
        return False
    word.start, word.length = text.at + 1, end - text.at - 1
    text.at = end + 1
    return True


cdef inline bint read_name(Text* text, Word* word) noexcept nogil:
    """Read a string that is ASCII and has no escapes."""
    return read_word(text, word) and not word.odd


cdef inline int next_entry(Text* text, char end, bint is_first) noexcept nogil:
    """Go to the next entry of a list or object: 1; 0: that was its end; -1: malformed."""
    skip_space(text)
    if text.at[0] == end:
        text.at += 1
        return 0
    if not is_first:
        if text.at[0] != c",":
            return -1
        text.at += 1
        skip_space(text)
    return 1


cdef inline Keys open_keys(const Text* text) noexcept nogil:
    cdef Keys keys
    keys.seen = 0
    keys.first = text.keys
    return keys


cdef inline bint note(Keys* keys, int bit) noexcept nogil:
    """Note that an object has a key; return whether it is there for the first time."""
    cdef bint is_new = not keys.seen >> bit & 1
    keys.seen |= 1 << bit
    return is_new


cdef bint note_other(Text* text, Keys* keys, const Word* key) noexcept nogil:
    """Note a key that is not read here; return whether it is surely there for the first time."""
    cdef int index
    note(keys, OTHER_KEY)
    if text.is_lax:
        return True
    if key.odd & 6 or text.keys == MOST_KEYS:
        return False
    for index in range(keys.first, text.keys):
        if alike(&text.key[index], key):
            return False
    text.key[text.keys] = key[0]
    text.keys += 1
    return True


cdef inline int next_key(Text* text, Keys* keys, Word* key) noexcept nogil:
    """Go to the value of the next key of an object, in the manner of `next_entry`."""
    cdef int found = next_entry(text, c"}", keys.seen == 0)
    if found == 0:
        text.keys = keys.first
    if found != 1:
        return found
    if not read_word(text, key):
        return -1
    skip_space(text)
    if text.at[0] != c":":
        return -1
    text.at += 1
    skip_space(text)
    return 1


cdef inline bint opens(Text* text, char bracket) noexcept nogil:
    if text.at[0] != bracket:
        return False
    text.at += 1
    return True


cdef inline bint skip_literal(Text* text, const char* word) noexcept nogil:
    cdef int place = 0
    while word[place]:
        if text.at[place] != word[place]:     # at the end of the text at the latest, which is a zero byte
            return False
        place += 1
    text.at += place
    return True


cdef inline bint skip_null(Text* text) noexcept nogil:
    return skip_literal(text, b"null")


cdef inline bint skip_digits(Text* text) noexcept nogil:
    cdef const char* start = text.at
    while c"0" <= text.at[0] <= c"9":
        text.at += 1
    return text.at != start


cdef bint skip_number(Text* text) noexcept nogil:
    cdef const char* start = text.at
    cdef const char* exponent
    if text.at[0] == c"-":
        text.at += 1
    if text.at[0] == c"0":
        text.at += 1
    elif not skip_digits(text):
        return False
    if text.at[0] == c".":
        text.at += 1
        if not skip_digits(text):
            return False
    if text.at[0] == c"e" or text.at[0] == c"E":
        text.at += 1
        if text.at[0] == c"+" or text.at[0] == c"-":
            text.at += 1
        exponent = text.at
        if not skip_digits(text):
            return False
        if text.at - exponent > MOST_EXPONENT and not text.is_lax:
            return False
    return text.at - start <= MOST_LETTERS or text.is_lax


cdef bint skip_string(Text* text) noexcept nogil:
    """Pass over a string; letters beyond ASCII may be none, which the other reader knows."""
    cdef Word word
    return read_word(text, &word) and (text.is_lax or not word.odd & 2)


cdef bint skip_value(Text* text, int depth) noexcept nogil:
    """Pass over a value, below so many lists and objects."""
    cdef Word key
    cdef Keys keys
    cdef int found
    cdef bint is_first = True
    if text.at[0] == c'"':
        return skip_string(text)
    if depth >= MOST_DEPTH and (text.at[0] == c"{" or text.at[0] == c"["):
        return False
    if opens(text, c"["):
        while True:
            found = next_entry(text, c"]", is_first)
            if found != 1:
                return found == 0
            is_first = False
            if not skip_value(text, depth + 1):
                return False
    if opens(text, c"{"):
        keys = open_keys(text)
        while True:
            found = next_key(text, &keys, &key)
            if found != 1:
                return found == 0
            if not note_other(text, &keys, &key) or not skip_value(text, depth + 1):
                return False
    return skip_null(text) or skip_literal(text, b"true") or skip_literal(text, b"false") or skip_number(text)


cdef bint skip_entry(Text* text, Keys* keys, const Word* key, int depth) noexcept nogil:
    """Pass over the value of a key that is not read here."""
    return note_other(text, keys, key) and skip_value(text, depth)


# What objects have

cdef int64_t scale(int64_t amount, const char* suffix, Py_ssize_t length) noexcept nogil:
    """Return an amount with its suffix in whole units, rounded up; ODD where that is no amount."""
    cdef const char* large = b"kMGTPE"
    cdef int64_t unit = 1
    cdef int power
    if not length:
        return amount if amount <= LARGEST_AMOUNT else <int64_t>ODD
    if length == 1 and (suffix[0] == c"m" or suffix[0] == c"u" or suffix[0] == c"n"):
        unit = 1000 if suffix[0] == c"m" else 1000000 if suffix[0] == c"u" else 1000000000
        return scale((amount + unit - 1) // unit, suffix, 0)
    for power in range(6):
        unit *= 1000 if length == 1 else 1024
        if suffix[0] == large[power] or (length == 2 and power == 0 and suffix[0] == c"K"):
            if length == 1 or (length == 2 and suffix[1] == c"i" and suffix[0] != c"k"):
                return amount * unit if amount <= LARGEST_AMOUNT // unit else <int64_t>ODD
    return ODD


cdef int64_t read_amount(Text* text) noexcept nogil:
    """Read a quantity of at least 0 in whole units, or one of the values that stand for something else."""
    cdef const char* start = text.at
    cdef const char* digits
    cdef const char* suffix
    cdef int64_t amount = 0
    cdef bint is_text = start[0] == c'"'
    if start[0] == c"n":
        return NULL_AMOUNT if skip_null(text) else <int64_t>MALFORMED
    if is_text:
        text.at += 1
    digits = text.at
    while c"0" <= text.at[0] <= c"9" and text.at - digits < MOST_DIGITS:
        amount = 10 * amount + (text.at[0] - c"0")
        text.at += 1
    suffix = text.at
    if suffix != digits and is_text:
        while text.at - suffix < 3 and (c"A" <= text.at[0] <= c"Z" or c"a" <= text.at[0] <= c"z"):
            text.at += 1
        amount = scale(amount, suffix, text.at - suffix)
        if text.at[0] == c'"':
            text.at += 1
            return amount
    elif suffix != digits and not (digits[0] == c"0" and suffix - digits > 1):
        if text.at[0] == c"," or text.at[0] == c"}" or text.at[0] == c" " or text.at[0] == c"\n":
            return scale(amount, suffix, 0)
    text.at = start
    return ODD if skip_value(text, 0) else <int64_t>MALFORMED


cdef bint read_costs(Text* text, Found* found, Cost* costs, int room) noexcept nogil:
    cdef Word key
    cdef Cost* cost
    cdef int entry, field
    cdef Keys keys
    cdef bint is_first = True
    if skip_null(text):
        return True
    if not opens(text, c"["):
        return False
    while True:
        entry = next_entry(text, c"]", is_first)
        if entry != 1:
            return entry == 0
        is_first = False
        if found.costs == room or not opens(text, c"{"):
            return False
        cost = &costs[found.costs]
        found.costs += 1
        keys = open_keys(text)
        while True:
            field = next_key(text, &keys, &key)
            if field != 1:
                break
            if same(&key, b"name", 4):
                if not note(&keys, 0) or not read_name(text, &cost.name):
                    return False
            elif same(&key, b"value", 5):
                if not note(&keys, 1) or text.at[0] == c'"':
                    return False
                cost.value = read_amount(text)
                if not 0 <= cost.value <= LARGEST_COST:
                    return False
            else:
                if not skip_entry(text, &keys, &key, 0):
                    return False
        if field or keys.seen & 3 != 3:
            return False


cdef inline int number_of(Found* found, const Word* name, int guess) noexcept nogil:
    """Return the number of a resource's name, a new one if need be; -1: it is not counted; -2: there are too many."""
    cdef int number
    if guess < found.names and alike(&found.resource[guess], name):
        return guess
    if same(name, b"pods", 4) or same(name, b"storage", 7) or same(name, b"ephemeral-storage", 17):
        return -1
    for number in range(found.names):
        if alike(&found.resource[number], name):
            return number
    if found.names == MOST_NAMES:
        return -2
    found.resource[found.names] = name[0]
    found.names += 1
    return found.names - 1


cdef bint read_resources(Text* text, Found* found, int zone, Amounts* amounts, int room) noexcept nogil:
    """Read what a zone has; a missing amount equals the next larger one that is there."""
    cdef Word key, name
    cdef Amounts* one
    cdef int entry, field, guess = 0
    cdef Keys keys
    cdef bint is_first = True
    if skip_null(text):
        return True
    if not opens(text, c"["):
        return False
    while True:
        entry = next_entry(text, c"]", is_first)
        if entry != 1:
            return entry == 0
        is_first = False
        if found.amounts == room or not opens(text, c"{"):
            return False
        one = &amounts[found.amounts]
        one.zone = zone
        one.capacity = one.allocatable = one.available = NULL_AMOUNT
        keys = open_keys(text)
        while True:
            field = next_key(text, &keys, &key)
            if field != 1:
                break
            if same(&key, b"name", 4):
                if not note(&keys, 0) or not read_name(text, &name):
                    return False
            elif same(&key, b"capacity", 8):
                one.capacity = read_amount(text) if note(&keys, 1) else <int64_t>MALFORMED
            elif same(&key, b"allocatable", 11):
                one.allocatable = read_amount(text) if note(&keys, 2) else <int64_t>MALFORMED
            elif same(&key, b"available", 9):
                one.available = read_amount(text) if note(&keys, 3) else <int64_t>MALFORMED
            else:
                if not skip_entry(text, &keys, &key, 0):
                    return False
            if one.capacity == MALFORMED or one.allocatable == MALFORMED or one.available == MALFORMED:
                return False
        if field or not keys.seen & 1:
            return False
        one.name = number_of(found, &name, guess)
        guess = one.name + 1
        if one.name == -2:
            return False
        if one.name == -1:
            continue
        if one.capacity == ODD or one.allocatable == ODD or one.available == ODD:
            return False
        if one.capacity == NULL_AMOUNT:
            one.capacity = one.available if one.allocatable == NULL_AMOUNT else one.allocatable
            if one.capacity == NULL_AMOUNT:
                one.capacity = one.available = 0
        if one.allocatable == NULL_AMOUNT:
            one.allocatable = one.capacity
        if one.available == NULL_AMOUNT:
            one.available = one.allocatable
        found.amounts += 1


cdef int64_t trailing_number(const Word* name) noexcept nogil:
    """Return the number at the end of a name, of which 18 digits count; 0: none is there."""
    cdef int64_t number = 0
    cdef Py_ssize_t start = name.length
    cdef Py_ssize_t place
    while start and c"0" <= name.start[start - 1] <= c"9":
        start -= 1
    for place in range(start, min(name.length, start + 18)):
        number = 10 * number + (name.start[place] - c"0")
    return number


cdef inline bint is_later(const Word* one, const Word* other) noexcept nogil:
    cdef int order = memcmp(one.start, other.start, min(one.length, other.length))
    return order > 0 or (order == 0 and one.length > other.length)


cdef inline bint comes_after(const Zone* one, const Zone* other) noexcept nogil:
    """Order zones by the number at the end of their names, then by name."""
    return one.number > other.number or (one.number == other.number and is_later(&one.name, &other.name))


cdef inline str text_of(const Word* word):
    return PyUnicode_DecodeASCII(word.start, word.length, NULL)


cdef inline bint is_text(str text, const Word* word) except -1:
    cdef Py_ssize_t length
    cdef const char* start = PyUnicode_AsUTF8AndSize(text, &length)
    return same(word, start, length)


cdef tuple numbers(const int64_t* amounts, int count):
    cdef tuple made = PyTuple_New(count)
    cdef object number
    cdef int index
    for index in range(count):
        number = amounts[index]
        Py_INCREF(number)
        PyTuple_SET_ITEM(made, index, number)
    return made


# A list of objects, or one

@cython.final
cdef class TopologyText:
    """Reads one text; what objects have in common is made once."""

    cdef Cost* costs
    cdef Amounts* amounts
    cdef int64_t* distances     # [zones * zones]
    cdef int cost_room
    cdef int amount_room
    cdef int zones              # of the last distances
    cdef tuple last_distances
    cdef list names             # of the resources of the last object
    cdef Found found

    def __cinit__(self):
        self.costs = NULL
        self.amounts = NULL
        self.distances = NULL
        self.names = []

    def __dealloc__(self):
        PyMem_Free(self.costs)
        PyMem_Free(self.amounts)
        PyMem_Free(self.distances)

    cdef int make_room(self, Py_ssize_t size) except -1:
        """Make room for what a text of so many bytes can have in one object."""
        if self.costs is not NULL:
            raise TypeError("expected a new reader, got one that has read a text")
        self.cost_room = min(MOST_ZONES * MOST_ZONES, size // SHORTEST_COST + 1)
        self.amount_room = min(MOST_ZONES * MOST_NAMES, size // SHORTEST_RESOURCE + 1)
        self.costs = <Cost*>PyMem_Malloc(self.cost_room * sizeof(Cost))
        self.amounts = <Amounts*>PyMem_Malloc(self.amount_room * sizeof(Amounts))
        self.distances = <int64_t*>PyMem_Malloc(MOST_ZONES * MOST_ZONES * sizeof(int64_t))
        if self.costs is NULL or self.amounts is NULL or self.distances is NULL:
            raise MemoryError
        return 0

    def read_object(self, bytes text not None):
        """Return what a text of one object says; None: the other reader has to say it.

        Returns:
            The name, how many zones are NUMA nodes, the first of the older list of policies or None, names and values
            of the Topology Manager's attributes in turn, the amounts by resource (capacity, allocatable, available),
            and the distances or None.
        """
        cdef Text at
        at.at = PyBytes_AS_STRING(text)
        at.end = at.at + PyBytes_GET_SIZE(text)
        at.is_lax = False
        at.keys = 0
        self.make_room(PyBytes_GET_SIZE(text))
        skip_space(&at)
        if not self.scan(&at):
            return None
        skip_space(&at)
        return self.told() if at.at == at.end else None

    def read_list(self, bytes text not None):
        """Return what each object of a List says, or its text; None: it is no such List, or malformed."""
        cdef Text at
        cdef Word key, kind = Word(NULL, 0, 0)
        cdef const char* start
        cdef int field, entry, others
        cdef Keys keys
        cdef bint is_first
        cdef list items = []
        at.at = PyBytes_AS_STRING(text)
        at.end = at.at + PyBytes_GET_SIZE(text)
        at.is_lax = False
        at.keys = 0
        skip_space(&at)
        if not opens(&at, c"{"):
            return None
        keys = open_keys(&at)
        self.make_room(PyBytes_GET_SIZE(text))
        while True:
            field = next_key(&at, &keys, &key)
            if field != 1:
                break
            if same(&key, b"kind", 4):
                if not note(&keys, 0) or not read_name(&at, &kind):
                    return None
                if kind.length < 4 or memcmp(kind.start + kind.length - 4, b"List", 4):
                    return None
            elif same(&key, b"items", 5):
                if not note(&keys, 1) or not opens(&at, c"["):
                    return None
                is_first = True
                while True:
                    entry = next_entry(&at, c"]", is_first)
                    if entry != 1:
                        break
                    is_first = False
                    start = at.at
                    others = at.keys
                    made = self.told() if self.scan(&at) else None
                    if made is None:
                        at.at = start
                        at.keys = others
                        at.is_lax = True
                        if not skip_value(&at, 2):
                            return None
                        at.is_lax = False
                        made = start[:at.at - start]
                    items.append(made)
                if entry:
                    return None
            else:
                if not skip_entry(&at, &keys, &key, 1):
                    return None
        skip_space(&at)
        return None if field or keys.seen & 3 != 3 or at.at != at.end else items

    cdef bint scan(self, Text* text) noexcept nogil:
        """Find what is needed in an object."""
        cdef Found* found = &self.found
        cdef Word key, word = Word(NULL, 0, 0)
        cdef int field
        cdef Keys keys = open_keys(text)
        found.has_legacy = False
        found.words = found.zones = found.costs = found.amounts = found.names = 0
        if not opens(text, c"{"):
            return False
        while True:
            field = next_key(text, &keys, &key)
            if field != 1:
                break
            if same(&key, b"metadata", 8):
                if not note(&keys, 0) or not self.scan_metadata(text):
                    return False
            elif same(&key, b"zones", 5):
                if not note(&keys, 1) or not self.scan_zones(text):
                    return False
            elif same(&key, b"kind", 4):
                if not note(&keys, 2) or not read_name(text, &word) or not same(&word, b"NodeResourceTopology", 20):
                    return False
            elif same(&key, b"apiVersion", 10):
                if not note(&keys, 3) or not read_name(text, &word) or not starts(&word, b"topology.node.k8s.io", 20):
                    return False
                if word.length > 20 and word.start[20] != c"/":
                    return False
            elif same(&key, b"topologyPolicies", 16):
                if not note(&keys, 4) or not self.scan_policies(text):
                    return False
            elif same(&key, b"attributes", 10):
                if not note(&keys, 5) or not self.scan_attributes(text):
                    return False
            else:
                if not skip_entry(text, &keys, &key, 1):
                    return False
        return field == 0 and keys.seen & 3 == 3 and found.name.length != 0 and found.zones != 0

    cdef bint scan_metadata(self, Text* text) noexcept nogil:
        cdef Word key
        cdef int field
        cdef Keys keys = open_keys(text)
        if not opens(text, c"{"):
            return False
        while True:
            field = next_key(text, &keys, &key)
            if field != 1:
                return field == 0 and keys.seen & 1
            if same(&key, b"name", 4):
                if not note(&keys, 0) or not read_name(text, &self.found.name):
                    return False
            else:
                if not skip_entry(text, &keys, &key, 2):
                    return False

    cdef bint scan_policies(self, Text* text) noexcept nogil:
        cdef Word word
        cdef int entry
        cdef bint is_first = True
        if skip_null(text):
            return True
        if not opens(text, c"["):
            return False
        while True:
            entry = next_entry(text, c"]", is_first)
            if entry != 1:
                return entry == 0
            if not read_name(text, &word):
                return False
            if is_first:
                self.found.legacy = word
                self.found.has_legacy = True
                is_first = False

    cdef bint scan_attributes(self, Text* text) noexcept nogil:
        cdef Word key, name, value
        cdef int entry, field
        cdef Keys keys
        cdef bint is_first = True
        if skip_null(text):
            return True
        if not opens(text, c"["):
            return False
        while True:
            entry = next_entry(text, c"]", is_first)
            if entry != 1:
                return entry == 0
            is_first = False
            if not opens(text, c"{"):
                return False
            keys = open_keys(text)
            while True:
                field = next_key(text, &keys, &key)
                if field != 1:
                    break
                if same(&key, b"name", 4):
                    if not note(&keys, 0) or not read_name(text, &name):
                        return False
                elif same(&key, b"value", 5):
                    if not note(&keys, 1) or not read_name(text, &value):
                        return False
                else:
                    if not skip_entry(text, &keys, &key, 3):
                        return False
            if field or keys.seen & 3 != 3:
                return False
            if same(&name, b"topologyManagerPolicy", 21) or same(&name, b"topologyManagerScope", 20):
                if self.found.words == MOST_WORDS:
                    return False
                self.found.word[self.found.words] = name
                self.found.word[self.found.words + 1] = value
                self.found.words += 2

    cdef bint scan_zones(self, Text* text) noexcept nogil:
        """Find the zones that are NUMA nodes, in their order."""
        cdef Found* found = &self.found
        cdef Zone zone
        cdef Word key, kind
        cdef int entry, field, amounts, names
        cdef Keys keys
        cdef bint is_first = True
        if not opens(text, c"["):
            return False
        while True:
            entry = next_entry(text, c"]", is_first)
            if entry != 1:
                break
            is_first = False
            if found.zones == MOST_ZONES or not opens(text, c"{"):
                return False
            keys = open_keys(text)
            amounts, names = found.amounts, found.names
            zone.costs = found.costs
            kind.start, kind.length = b"Node", 4
            while True:
                field = next_key(text, &keys, &key)
                if field != 1:
                    break
                if same(&key, b"name", 4):
                    if not note(&keys, 0) or not read_name(text, &zone.name):
                        return False
                elif same(&key, b"type", 4):
                    if not note(&keys, 1) or not read_name(text, &kind):
                        return False
                elif same(&key, b"costs", 5):
                    if not note(&keys, 2) or not read_costs(text, found, self.costs, self.cost_room):
                        return False
                elif same(&key, b"resources", 9):
                    if not note(&keys, 3):
                        return False
                    if not read_resources(text, found, found.zones, self.amounts, self.amount_room):
                        return False
                else:
                    if not skip_entry(text, &keys, &key, 3):
                        return False
            if field or not keys.seen & 1:
                return False
            if not same(&kind, b"Node", 4):
                found.costs, found.amounts, found.names = zone.costs, amounts, names
                continue
            zone.costs_end = found.costs
            zone.number = trailing_number(&zone.name)
            found.zone[found.zones] = zone
            found.zones += 1
        return entry == 0

    cdef tuple told(self):
        """Return what was found; None: zones of one name are none of this reader's."""
        cdef Found* found = &self.found
        cdef int[MOST_ZONES] order      # the zones in their order, and the place of each of them
        cdef int[MOST_ZONES] places
        cdef int zone, place
        for zone in range(found.zones):
            place = zone
            while place and comes_after(&found.zone[order[place - 1]], &found.zone[zone]):
                order[place] = order[place - 1]
                place -= 1
            order[place] = zone
        for place in range(found.zones):
            places[order[place]] = place
            if place and alike(&found.zone[order[place]].name, &found.zone[order[place - 1]].name):
                return None
        return (
            text_of(&found.name), found.zones, text_of(&found.legacy) if found.has_legacy else None,
            tuple([text_of(&found.word[place]) for place in range(found.words)]),
            self.columns(places), self.distances_of(order),
        )

    cdef dict columns(self, const int* places):
        """Return the amounts by resource, in the order of their names."""
        cdef Found* found = &self.found
        cdef int[MOST_NAMES] order
        cdef int64_t[3][MOST_ZONES] column
        cdef Amounts* one
        cdef int name, place, index
        cdef dict made = {}
        del self.names[found.names:]
        for name in range(found.names):
            place = name
            while place and is_later(&found.resource[order[place - 1]], &found.resource[name]):
                order[place] = order[place - 1]
                place -= 1
            order[place] = name
            if name == len(self.names):
                self.names.append(text_of(&found.resource[name]))
            elif not is_text(self.names[name], &found.resource[name]):
                self.names[name] = text_of(&found.resource[name])
        for index in range(found.names):
            memset(column, 0, sizeof(column))
            for place in range(found.amounts):
                one = &self.amounts[place]
                if one.name == order[index]:
                    column[0][places[one.zone]] = one.capacity
                    column[1][places[one.zone]] = one.allocatable
                    column[2][places[one.zone]] = one.available
            capacity = numbers(column[0], found.zones)
            allocatable = capacity
            if memcmp(column[0], column[1], found.zones * sizeof(int64_t)):
                allocatable = numbers(column[1], found.zones)
            available = allocatable
            if memcmp(column[1], column[2], found.zones * sizeof(int64_t)):
                available = numbers(column[2], found.zones)
            made[self.names[order[index]]] = (capacity, allocatable, available)
        return made

    cdef tuple distances_of(self, const int* order):
        """Return the costs between the zones; None: no zone has any. Those that are not told are far."""
        cdef Found* found = &self.found
        cdef Zone* zone
        cdef int row, column, index
        cdef bint is_known = False, is_other = self.zones != found.zones
        cdef int64_t* at = self.distances
        cdef int64_t[MOST_ZONES] told
        for row in range(found.zones):
            zone = &found.zone[order[row]]
            is_known = is_known or zone.costs != zone.costs_end
            for column in range(found.zones):
                told[column] = UNKNOWN_DISTANCE
            for index in range(zone.costs, zone.costs_end):
                column = index - zone.costs     # where it is if all are told in their order
                if column >= found.zones or not alike(&found.zone[order[column]].name, &self.costs[index].name):
                    for column in range(found.zones):
                        if alike(&found.zone[order[column]].name, &self.costs[index].name):
                            break
                    else:
                        continue
                told[column] = self.costs[index].value
            is_other = is_other or memcmp(at, told, found.zones * sizeof(int64_t)) != 0
            memcpy(at, told, found.zones * sizeof(int64_t))
            at += found.zones
        if is_other:
            self.zones = found.zones
            self.last_distances = tuple([
                numbers(self.distances + row * found.zones, found.zones) for row in range(found.zones)
            ])
        return self.last_distances if is_known else None
