"""Reads NodeResourceTopology objects from JSON text, in one pass that keeps only what is needed.

Whatever is out of the ordinary (a number that is no plain quantity, a field of another type, a key
twice, an escape in a name, letters beyond ASCII) is not judged here: the object is left to the
reader of plain objects, which says what is wrong, and where.

It is no general parser, and stays because nothing else is fast enough: where msgspec decodes typed
structs and compiled code reads columns from these, an object takes 26 microseconds in the place of
10, 15 of them in msgspec alone, so that a changed object takes 34 where 25 are allowed.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeASCII
from libc.stdint cimport int64_t
from libc.string cimport memcmp, memcpy, memset


cdef extern from *:
    """
    #if defined(__SSE2__)
    #include <emmintrin.h>
    #endif

    enum { HAS_ESCAPES = 1, IS_BEYOND_ASCII = 2, HAS_VARIANTS = 4 };

    static CYTHON_INLINE int alignup_is_hex(char letter) {
        return (letter >= '0' && letter <= '9') || ((letter | 32) >= 'a' && (letter | 32) <= 'f');
    }

    /* The quote that ends a string, or NULL where it is malformed. `marks` are added to: escapes,
       letters beyond ASCII, escapes of what can be written otherwise too. Halves of surrogate pairs
       are left to the other reader. */
    static CYTHON_INLINE const char* string_end(const char* at, const char* end, int* marks) {
        while (at < end) {
    #if defined(__SSE2__)
            if (end - at >= 16) {
                const __m128i block = _mm_loadu_si128((const __m128i*)at);
                const __m128i quotes = _mm_cmpeq_epi8(block, _mm_set1_epi8('"'));
                const __m128i escapes = _mm_cmpeq_epi8(block, _mm_set1_epi8('\\\\'));
                /* signed, so that these are letters beyond ASCII as well */
                const __m128i controls = _mm_cmplt_epi8(block, _mm_set1_epi8(' '));
                const int stops = _mm_movemask_epi8(
                    _mm_or_si128(_mm_or_si128(quotes, escapes), controls));
                if (!stops) {
                    at += 16;
                    continue;
                }
                at += __builtin_ctz(stops);
            }
    #endif
            if (*at == '"') return at;
            if ((unsigned char)*at >= 0x80) {
                *marks |= IS_BEYOND_ASCII;
                at++;
            } else if ((unsigned char)*at < ' ') {
                return NULL;
            } else if (*at != '\\\\') {
                at++;
            } else {
                *marks |= HAS_ESCAPES;
                if (end - at < 7) return NULL;
                switch (at[1]) {
                    case '"': case '\\\\': case 'b': case 'f': case 'n': case 'r': case 't':
                        at += 2;
                        break;
                    case '/':
                        *marks |= HAS_VARIANTS;
                        at += 2;
                        break;
                    case 'u':
                        if (!(alignup_is_hex(at[2]) && alignup_is_hex(at[3])
                              && alignup_is_hex(at[4]) && alignup_is_hex(at[5]))
                            || ((at[2] | 32) == 'd' && at[3] > '7')) return NULL;
                        *marks |= HAS_VARIANTS;
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
    enum:
        IS_BEYOND_ASCII
        HAS_VARIANTS
    const char* string_end(const char* at, const char* end, int* marks) noexcept nogil


cdef enum:
    MOST_ZONES = 64
    MOST_NAMES = 64         # resources of an object
    MOST_WORDS = 8          # attributes of the Topology Manager, which come twice at most
    MOST_KEYS = 256         # of all objects that are open, those aside that are read here
    MOST_DEPTH = 400        # fewer levels than the other reader's limit
    MOST_DIGITS = 17
    # of a number that is passed over, since a longer one may be out of range
    MOST_LETTERS = 64
    MOST_EXPONENT_DIGITS = 2
    # bytes of a cost or of a resource, as short as can be
    SHORTEST_COST = 22
    SHORTEST_RESOURCE = 12
    UNKNOWN_DISTANCE = 255
    # instead of an amount
    NULL_AMOUNT = -1
    ODD = -2
    MALFORMED = -3
    # instead of a resource's number
    UNCOUNTED = -1
    TOO_MANY = -2

cdef enum:
    # what comes next in a list or object
    NOTHING = 0
    ENTRY = 1
    BROKEN = -1

cdef enum:
    # keys that are read here, and all others
    NAME = 1 << 0
    VALUE = 1 << 1
    CAPACITY = 1 << 2
    ALLOCATABLE = 1 << 3
    AVAILABLE = 1 << 4
    TYPE = 1 << 5
    COSTS = 1 << 6
    RESOURCES = 1 << 7
    METADATA = 1 << 8
    ZONES = 1 << 9
    KIND = 1 << 10
    API_VERSION = 1 << 11
    POLICIES = 1 << 12
    ATTRIBUTES = 1 << 13
    ITEMS = 1 << 14
    OTHER = 1 << 15

# of one zone, so that the sum over all of them is an amount
cdef int64_t LARGEST_AMOUNT = <int64_t>1 << 55
cdef int64_t LARGEST_COST = (<int64_t>1 << 31) - 1


cdef struct Word:
    const char* start
    Py_ssize_t length
    int marks


cdef struct Text:
    const char* at
    const char* end         # a zero byte
    bint is_lax             # what is passed over is read by the other reader: its end matters alone
    int keys
    Word[MOST_KEYS] key     # of the objects that are open, those aside that are read here


cdef struct Keys:
    # The keys that an object has.
    int bits
    int first               # of those that are not read here, in the text


cdef struct Cost:
    Word name
    int64_t value


cdef struct Amounts:
    int name                # of the names of an object, or UNCOUNTED
    int zone
    int64_t capacity
    int64_t allocatable
    int64_t available


cdef struct Zone:
    Word name
    int64_t number          # at the end of the name
    int costs               # the first one, and the end
    int costs_end


cdef struct Contents:
    # What one object says; costs and amounts lie beside it.
    Word name
    Word legacy
    bint has_legacy
    int words
    Word[MOST_WORDS] word   # name and value of attributes, in turn
    int zones
    Zone[MOST_ZONES] zone
    int costs
    int amounts
    int names
    Word[MOST_NAMES] resource


cdef inline bint same(const Word* word, const char* letters, Py_ssize_t length) noexcept nogil:
    return word.length == length and not memcmp(word.start, letters, length)


cdef inline bint alike(const Word* first, const Word* second) noexcept nogil:
    return same(first, second.start, second.length)


cdef inline bint starts(const Word* word, const char* letters, Py_ssize_t length) noexcept nogil:
    return word.length >= length and not memcmp(word.start, letters, length)


cdef inline bint ends(const Word* word, const char* letters, Py_ssize_t length) noexcept nogil:
    return (
        word.length >= length
        and not memcmp(word.start + word.length - length, letters, length)
    )


# JSON, strictly: what is malformed is left to the other reader, to be complained about

cdef inline void start_text(Text* text, bytes source) noexcept:
    text.at = PyBytes_AS_STRING(source)
    text.end = text.at + PyBytes_GET_SIZE(source)
    text.is_lax = False
    text.keys = 0


cdef inline void skip_space(Text* text) noexcept nogil:
    while text.at[0] == c" " or text.at[0] == c"\n" or text.at[0] == c"\r" or text.at[0] == c"\t":
        text.at += 1


cdef inline bint read_word(Text* text, Word* word) noexcept nogil:
    """Read a string, without what escapes in it mean."""
    cdef const char* end
    word.marks = 0
    if text.at[0] != c'"':
        return False

    end = string_end(text.at + 1, text.end, &word.marks)
    if end == NULL:
        return False

    word.start = text.at + 1
    word.length = end - word.start
    text.at = end + 1
    return True


cdef inline bint read_name(Text* text, Word* word) noexcept nogil:
    """Read a string that is ASCII and has no escapes."""
    return read_word(text, word) and not word.marks


cdef inline int next_entry(Text* text, char end, bint is_first) noexcept nogil:
    """Go to the next entry of a list or object, or behind its end."""
    skip_space(text)
    if text.at[0] == end:
        text.at += 1
        return NOTHING

    if not is_first:
        if text.at[0] != c",":
            return BROKEN
        text.at += 1
        skip_space(text)

    return ENTRY


cdef inline Keys no_keys(const Text* text) noexcept nogil:
    """Begin with the keys of an object; `next_key` forgets them at its end."""
    cdef Keys keys
    keys.bits = 0
    keys.first = text.keys
    return keys


cdef inline bint note(Keys* keys, int key) noexcept nogil:
    """Note that an object has a key; return whether it is there for the first time."""
    cdef bint is_new = not keys.bits & key
    keys.bits |= key
    return is_new


cdef inline bint have(const Keys* keys, int bits) noexcept nogil:
    return keys.bits & bits == bits


cdef bint note_other(Text* text, Keys* keys, const Word* key) noexcept nogil:
    """Note a key that is not read here; return whether it is surely there for the first time."""
    cdef int index
    note(keys, OTHER)
    if text.is_lax:
        return True
    if key.marks & (IS_BEYOND_ASCII | HAS_VARIANTS) or text.keys == MOST_KEYS:
        return False

    for index in range(keys.first, text.keys):
        if alike(&text.key[index], key):
            return False

    text.key[text.keys] = key[0]
    text.keys += 1
    return True


cdef inline int next_key(Text* text, Keys* keys, Word* key) noexcept nogil:
    """Go to the value of the next key of an object, in the manner of `next_entry`."""
    cdef int entry = next_entry(text, c"}", keys.bits == 0)
    if entry == NOTHING:
        text.keys = keys.first
    if entry != ENTRY:
        return entry

    if not read_word(text, key):
        return BROKEN

    skip_space(text)
    if text.at[0] != c":":
        return BROKEN

    text.at += 1
    skip_space(text)
    return ENTRY


cdef inline bint opens(Text* text, char bracket) noexcept nogil:
    if text.at[0] != bracket:
        return False
    text.at += 1
    return True


cdef inline bint skip_literal(Text* text, const char* word) noexcept nogil:
    cdef int place = 0
    while word[place]:
        # they differ at the end of the text at the latest, which is a zero byte
        if text.at[place] != word[place]:
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
    """Pass over a number that is not out of range, whatever it is."""
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
        if text.at - exponent > MOST_EXPONENT_DIGITS and not text.is_lax:
            return False

    return text.at - start <= MOST_LETTERS or text.is_lax


cdef inline bint skip_string(Text* text) noexcept nogil:
    """Pass over a string; bytes beyond ASCII may be no letters, which the other reader knows."""
    cdef Word word
    return read_word(text, &word) and (text.is_lax or not word.marks & IS_BEYOND_ASCII)


cdef bint skip_value(Text* text, int depth) noexcept nogil:
    """Pass over a value, below so many lists and objects."""
    cdef Word key
    cdef Keys keys
    cdef int entry
    cdef bint is_first = True
    if text.at[0] == c'"':
        return skip_string(text)
    if depth >= MOST_DEPTH and (text.at[0] == c"{" or text.at[0] == c"["):
        return False

    if opens(text, c"["):
        while True:
            entry = next_entry(text, c"]", is_first)
            if entry != ENTRY:
                return entry == NOTHING
            is_first = False
            if not skip_value(text, depth + 1):
                return False

    if opens(text, c"{"):
        keys = no_keys(text)
        while True:
            entry = next_key(text, &keys, &key)
            if entry != ENTRY:
                return entry == NOTHING
            if not skip_entry(text, &keys, &key, depth + 1):
                return False

    return (
        skip_null(text)
        or skip_literal(text, b"true")
        or skip_literal(text, b"false")
        or skip_number(text)
    )


cdef bint skip_entry(Text* text, Keys* keys, const Word* key, int depth) noexcept nogil:
    """Pass over the value of a key that is not read here."""
    return note_other(text, keys, key) and skip_value(text, depth)


# What objects have

cdef int64_t scale(int64_t amount, const char* suffix, Py_ssize_t length) noexcept nogil:
    """Return an amount with its suffix in whole units, rounded up; ODD where that is no amount."""
    cdef const char* prefixes = b"kMGTPE"
    cdef int64_t step = 1000
    cdef int64_t unit = 1
    cdef int power
    if not length:
        if amount > LARGEST_AMOUNT:
            return ODD
        return amount

    if length == 1:
        if suffix[0] == c"m":
            unit = 1000
        elif suffix[0] == c"u":
            unit = 1000000
        elif suffix[0] == c"n":
            unit = 1000000000
        if unit > 1:
            return scale((amount + unit - 1) // unit, suffix, 0)
    elif length == 2 and suffix[1] == c"i":
        prefixes = b"KMGTPE"
        step = 1024
    else:
        return ODD

    for power in range(6):
        unit *= step
        if suffix[0] == prefixes[power]:
            if amount > LARGEST_AMOUNT // unit:
                return ODD
            return amount * unit

    return ODD


cdef int64_t read_amount(Text* text) noexcept nogil:
    """Read a quantity of at least 0 in whole units, or a value that stands for something else."""
    cdef const char* start = text.at
    cdef const char* digits
    cdef const char* suffix
    cdef int64_t amount = 0
    cdef bint is_text = start[0] == c'"'
    if skip_null(text):
        return NULL_AMOUNT

    if is_text:
        text.at += 1
    digits = text.at
    while c"0" <= text.at[0] <= c"9" and text.at - digits < MOST_DIGITS:
        amount = 10 * amount + (text.at[0] - c"0")
        text.at += 1

    suffix = text.at
    if suffix != digits and is_text:
        while (
            text.at - suffix < 3
            and (c"A" <= text.at[0] <= c"Z" or c"a" <= text.at[0] <= c"z")
        ):
            text.at += 1

        amount = scale(amount, suffix, text.at - suffix)
        if text.at[0] == c'"':
            text.at += 1
            return amount
    elif suffix != digits and not (digits[0] == c"0" and suffix - digits > 1):
        if text.at[0] == c"," or text.at[0] == c"}" or text.at[0] == c" " or text.at[0] == c"\n":
            return scale(amount, suffix, 0)

    text.at = start
    if skip_value(text, 0):
        return ODD
    return MALFORMED


cdef bint read_cost(Text* text, Cost* cost) noexcept nogil:
    cdef Word key
    cdef Keys keys = no_keys(text)
    cdef int entry
    if not opens(text, c"{"):
        return False

    while True:
        entry = next_key(text, &keys, &key)
        if entry != ENTRY:
            return entry == NOTHING and have(&keys, NAME | VALUE)

        if same(&key, b"name", 4):
            if not note(&keys, NAME) or not read_name(text, &cost.name):
                return False
        elif same(&key, b"value", 5):
            if not note(&keys, VALUE) or text.at[0] == c'"':
                return False
            cost.value = read_amount(text)
            if not 0 <= cost.value <= LARGEST_COST:
                return False
        elif not skip_entry(text, &keys, &key, 0):
            return False


cdef bint read_costs(Text* text, Contents* contents, Cost* costs, int room) noexcept nogil:
    cdef int entry
    cdef bint is_first = True
    if skip_null(text):
        return True
    if not opens(text, c"["):
        return False

    while True:
        entry = next_entry(text, c"]", is_first)
        if entry != ENTRY:
            return entry == NOTHING

        is_first = False
        if contents.costs == room or not read_cost(text, &costs[contents.costs]):
            return False
        contents.costs += 1


cdef inline int number_of(Contents* contents, const Word* name, int guess) noexcept nogil:
    """Return the number of a resource's name, a new one if need be, or UNCOUNTED or TOO_MANY."""
    cdef int number
    if guess < contents.names and alike(&contents.resource[guess], name):
        return guess

    if (
        same(name, b"pods", 4)
        or same(name, b"storage", 7)
        or same(name, b"ephemeral-storage", 17)
    ):
        return UNCOUNTED

    for number in range(contents.names):
        if alike(&contents.resource[number], name):
            return number

    if contents.names == MOST_NAMES:
        return TOO_MANY

    contents.resource[contents.names] = name[0]
    contents.names += 1
    return contents.names - 1


cdef bint read_resource(Text* text, Word* name, Amounts* amounts) noexcept nogil:
    """Read a name and amounts, as they are there."""
    cdef Word key
    cdef Keys keys = no_keys(text)
    cdef int64_t* amount
    cdef int entry, bit
    amounts.capacity = amounts.allocatable = amounts.available = NULL_AMOUNT
    if not opens(text, c"{"):
        return False

    while True:
        entry = next_key(text, &keys, &key)
        if entry != ENTRY:
            return entry == NOTHING and have(&keys, NAME)

        if same(&key, b"name", 4):
            if not note(&keys, NAME) or not read_name(text, name):
                return False
            continue

        if same(&key, b"capacity", 8):
            bit = CAPACITY
            amount = &amounts.capacity
        elif same(&key, b"allocatable", 11):
            bit = ALLOCATABLE
            amount = &amounts.allocatable
        elif same(&key, b"available", 9):
            bit = AVAILABLE
            amount = &amounts.available
        elif skip_entry(text, &keys, &key, 0):
            continue
        else:
            return False

        if not note(&keys, bit):
            return False
        amount[0] = read_amount(text)
        if amount[0] == MALFORMED:
            return False


cdef bint complete_amounts(Amounts* amounts) noexcept nogil:
    """Set a missing amount to the next larger one that is there; return whether none is odd."""
    if amounts.capacity == ODD or amounts.allocatable == ODD or amounts.available == ODD:
        return False

    if amounts.capacity == NULL_AMOUNT:
        amounts.capacity = amounts.allocatable
    if amounts.capacity == NULL_AMOUNT:
        amounts.capacity = amounts.available
    if amounts.capacity == NULL_AMOUNT:
        amounts.capacity = 0

    if amounts.allocatable == NULL_AMOUNT:
        amounts.allocatable = amounts.capacity
    if amounts.available == NULL_AMOUNT:
        amounts.available = amounts.allocatable
    return True


cdef bint read_resources(
    Text* text, Contents* contents, int zone, Amounts* amounts, int room
) noexcept nogil:
    """Read what a zone has."""
    cdef Word name
    cdef Amounts* current
    cdef int entry
    cdef int guess = 0
    cdef bint is_first = True
    if skip_null(text):
        return True
    if not opens(text, c"["):
        return False

    while True:
        entry = next_entry(text, c"]", is_first)
        if entry != ENTRY:
            return entry == NOTHING

        is_first = False
        if contents.amounts == room:
            return False

        current = &amounts[contents.amounts]
        current.zone = zone
        if not read_resource(text, &name, current):
            return False

        current.name = number_of(contents, &name, guess)
        guess = current.name + 1
        if current.name == TOO_MANY:
            return False
        if current.name == UNCOUNTED:
            continue

        if not complete_amounts(current):
            return False
        contents.amounts += 1


cdef bint read_attribute(Text* text, Word* name, Word* value) noexcept nogil:
    cdef Word key
    cdef Keys keys = no_keys(text)
    cdef int entry
    if not opens(text, c"{"):
        return False

    while True:
        entry = next_key(text, &keys, &key)
        if entry != ENTRY:
            return entry == NOTHING and have(&keys, NAME | VALUE)

        if same(&key, b"name", 4):
            if not note(&keys, NAME) or not read_name(text, name):
                return False
        elif same(&key, b"value", 5):
            if not note(&keys, VALUE) or not read_name(text, value):
                return False
        elif not skip_entry(text, &keys, &key, 3):
            return False


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


cdef inline bint is_later(const Word* first, const Word* second) noexcept nogil:
    """Return whether the first of two names comes after the second."""
    cdef int order = memcmp(first.start, second.start, min(first.length, second.length))
    return order > 0 or (order == 0 and first.length > second.length)


cdef inline bint comes_after(const Zone* first, const Zone* second) noexcept nogil:
    """Order zones by the number at the end of their names, then by name."""
    if first.number != second.number:
        return first.number > second.number
    return is_later(&first.name, &second.name)


cdef inline str text_of(const Word* word):
    return PyUnicode_DecodeASCII(word.start, word.length, NULL)


cdef inline bint is_text(str text, const Word* word) except -1:
    cdef Py_ssize_t length
    cdef const char* start = PyUnicode_AsUTF8AndSize(text, &length)
    return same(word, start, length)


cdef tuple numbers(const int64_t* amounts, int count):
    cdef tuple values = PyTuple_New(count)
    cdef object number
    cdef int index
    for index in range(count):
        number = amounts[index]
        Py_INCREF(number)
        PyTuple_SET_ITEM(values, index, number)
    return values


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
    cdef Contents contents

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
            The name, how many zones are NUMA nodes, the first of the older list of policies or
            None, names and values of the Topology Manager's attributes in turn, the amounts by
            resource (capacity, allocatable, available), and the distances or None.
        """
        cdef Text source
        start_text(&source, text)
        self.make_room(PyBytes_GET_SIZE(text))
        skip_space(&source)
        if not self.scan(&source):
            return None

        skip_space(&source)
        if source.at != source.end:
            return None
        return self.record()

    def read_list(self, bytes text not None):
        """Return what each object of a List says, or its text; None: it is no List."""
        cdef Text source
        cdef Word key
        cdef Word kind
        cdef Keys keys
        cdef int entry
        cdef list items = []
        start_text(&source, text)
        keys = no_keys(&source)
        skip_space(&source)
        if not opens(&source, c"{"):
            return None

        self.make_room(PyBytes_GET_SIZE(text))
        while True:
            entry = next_key(&source, &keys, &key)
            if entry != ENTRY:
                break

            if same(&key, b"kind", 4):
                if not note(&keys, KIND) or not read_name(&source, &kind):
                    return None
                if not ends(&kind, b"List", 4):
                    return None
            elif same(&key, b"items", 5):
                if not note(&keys, ITEMS) or not self.read_items(&source, items):
                    return None
            elif not skip_entry(&source, &keys, &key, 1):
                return None

        skip_space(&source)
        if entry != NOTHING or not have(&keys, KIND | ITEMS) or source.at != source.end:
            return None
        return items

    cdef bint read_items(self, Text* text, list items) except -1:
        """Add what each object of a list says, or its text; return whether it is a list."""
        cdef const char* start
        cdef int entry
        cdef int keys = text.keys
        cdef bint is_first = True
        cdef tuple record
        if not opens(text, c"["):
            return False

        while True:
            entry = next_entry(text, c"]", is_first)
            if entry != ENTRY:
                return entry == NOTHING

            is_first = False
            start = text.at
            record = None
            if self.scan(text):
                record = self.record()
            if record is not None:
                items.append(record)
                continue

            text.at = start
            text.keys = keys
            text.is_lax = True
            if not skip_value(text, 2):
                return False
            text.is_lax = False
            items.append(start[:text.at - start])

    cdef bint scan(self, Text* text) noexcept nogil:
        """Find what is needed in an object."""
        cdef Contents* contents = &self.contents
        cdef Word key
        cdef Word word
        cdef Keys keys = no_keys(text)
        cdef int entry
        contents.has_legacy = False
        contents.words = contents.zones = contents.costs = 0
        contents.amounts = contents.names = 0
        if not opens(text, c"{"):
            return False

        while True:
            entry = next_key(text, &keys, &key)
            if entry != ENTRY:
                break

            if same(&key, b"metadata", 8):
                if not note(&keys, METADATA) or not self.scan_metadata(text):
                    return False
            elif same(&key, b"zones", 5):
                if not note(&keys, ZONES) or not self.scan_zones(text):
                    return False
            elif same(&key, b"kind", 4):
                if not note(&keys, KIND) or not read_name(text, &word):
                    return False
                if not same(&word, b"NodeResourceTopology", 20):
                    return False
            elif same(&key, b"apiVersion", 10):
                if not note(&keys, API_VERSION) or not read_name(text, &word):
                    return False
                if not starts(&word, b"topology.node.k8s.io", 20):
                    return False
                if word.length > 20 and word.start[20] != c"/":
                    return False
            elif same(&key, b"topologyPolicies", 16):
                if not note(&keys, POLICIES) or not self.scan_policies(text):
                    return False
            elif same(&key, b"attributes", 10):
                if not note(&keys, ATTRIBUTES) or not self.scan_attributes(text):
                    return False
            elif not skip_entry(text, &keys, &key, 1):
                return False

        if entry != NOTHING or not have(&keys, METADATA | ZONES):
            return False
        return contents.name.length != 0 and contents.zones != 0

    cdef bint scan_metadata(self, Text* text) noexcept nogil:
        cdef Word key
        cdef Keys keys = no_keys(text)
        cdef int entry
        if not opens(text, c"{"):
            return False

        while True:
            entry = next_key(text, &keys, &key)
            if entry != ENTRY:
                return entry == NOTHING and have(&keys, NAME)

            if same(&key, b"name", 4):
                if not note(&keys, NAME) or not read_name(text, &self.contents.name):
                    return False
            elif not skip_entry(text, &keys, &key, 2):
                return False

    cdef bint scan_policies(self, Text* text) noexcept nogil:
        """Find the first policy of the older list."""
        cdef Word word
        cdef int entry
        cdef bint is_first = True
        if skip_null(text):
            return True
        if not opens(text, c"["):
            return False

        while True:
            entry = next_entry(text, c"]", is_first)
            if entry != ENTRY:
                return entry == NOTHING
            if not read_name(text, &word):
                return False
            if is_first:
                self.contents.legacy = word
                self.contents.has_legacy = True
                is_first = False

    cdef bint scan_attributes(self, Text* text) noexcept nogil:
        """Find the attributes of the Topology Manager."""
        cdef Contents* contents = &self.contents
        cdef Word name
        cdef Word value
        cdef int entry
        cdef bint is_first = True
        if skip_null(text):
            return True
        if not opens(text, c"["):
            return False

        while True:
            entry = next_entry(text, c"]", is_first)
            if entry != ENTRY:
                return entry == NOTHING

            is_first = False
            if not read_attribute(text, &name, &value):
                return False

            if (
                same(&name, b"topologyManagerPolicy", 21)
                or same(&name, b"topologyManagerScope", 20)
            ):
                if contents.words == MOST_WORDS:
                    return False
                contents.word[contents.words] = name
                contents.word[contents.words + 1] = value
                contents.words += 2

    cdef bint scan_zones(self, Text* text) noexcept nogil:
        """Find the zones that are NUMA nodes, as they come."""
        cdef int entry
        cdef bint is_first = True
        if not opens(text, c"["):
            return False

        while True:
            entry = next_entry(text, c"]", is_first)
            if entry != ENTRY:
                return entry == NOTHING

            is_first = False
            if self.contents.zones == MOST_ZONES or not self.scan_zone(text):
                return False

    cdef bint scan_zone(self, Text* text) noexcept nogil:
        """Find what is in a zone; of one that is no NUMA node nothing is kept."""
        cdef Contents* contents = &self.contents
        cdef Zone* zone = &contents.zone[contents.zones]
        cdef Word key
        cdef Word kind
        cdef Keys keys = no_keys(text)
        cdef int amounts = contents.amounts
        cdef int names = contents.names
        cdef int entry
        zone.costs = contents.costs
        kind.start = b"Node"
        kind.length = 4
        if not opens(text, c"{"):
            return False

        while True:
            entry = next_key(text, &keys, &key)
            if entry != ENTRY:
                break

            if same(&key, b"name", 4):
                if not note(&keys, NAME) or not read_name(text, &zone.name):
                    return False
            elif same(&key, b"type", 4):
                if not note(&keys, TYPE) or not read_name(text, &kind):
                    return False
            elif same(&key, b"costs", 5):
                if not note(&keys, COSTS):
                    return False
                if not read_costs(text, contents, self.costs, self.cost_room):
                    return False
            elif same(&key, b"resources", 9):
                if not note(&keys, RESOURCES):
                    return False
                if not read_resources(
                    text, contents, contents.zones, self.amounts, self.amount_room
                ):
                    return False
            elif not skip_entry(text, &keys, &key, 3):
                return False

        if entry != NOTHING or not have(&keys, NAME):
            return False

        if not same(&kind, b"Node", 4):
            contents.costs = zone.costs
            contents.amounts = amounts
            contents.names = names
            return True

        zone.costs_end = contents.costs
        zone.number = trailing_number(&zone.name)
        contents.zones += 1
        return True

    cdef tuple record(self):
        """Return what an object says; None: zones of one name are none of this reader's."""
        cdef Contents* contents = &self.contents
        cdef int[MOST_ZONES] order      # the zones in their order
        cdef int[MOST_ZONES] places     # of each of them
        cdef int zone, place, index
        cdef str legacy = None
        for zone in range(contents.zones):
            place = zone
            while place and comes_after(&contents.zone[order[place - 1]], &contents.zone[zone]):
                order[place] = order[place - 1]
                place -= 1
            order[place] = zone

        for place in range(contents.zones):
            places[order[place]] = place
            if place and alike(
                &contents.zone[order[place]].name, &contents.zone[order[place - 1]].name
            ):
                return None

        if contents.has_legacy:
            legacy = text_of(&contents.legacy)

        return (
            text_of(&contents.name),
            contents.zones,
            legacy,
            tuple([text_of(&contents.word[index]) for index in range(contents.words)]),
            self.columns(places),
            self.distances_of(order),
        )

    cdef dict columns(self, const int* places):
        """Return the amounts by resource, in the order of their names."""
        cdef Contents* contents = &self.contents
        cdef int[MOST_NAMES] order
        cdef int64_t[3][MOST_ZONES] column
        cdef Amounts* amounts
        cdef Py_ssize_t size = contents.zones * sizeof(int64_t)
        cdef int name, place, index
        cdef dict by_resource = {}
        del self.names[contents.names:]
        for name in range(contents.names):
            place = name
            while (
                place
                and is_later(&contents.resource[order[place - 1]], &contents.resource[name])
            ):
                order[place] = order[place - 1]
                place -= 1
            order[place] = name

            if name == len(self.names):
                self.names.append(text_of(&contents.resource[name]))
            elif not is_text(self.names[name], &contents.resource[name]):
                self.names[name] = text_of(&contents.resource[name])

        for place in range(contents.names):
            name = order[place]
            memset(column, 0, sizeof(column))
            for index in range(contents.amounts):
                amounts = &self.amounts[index]
                if amounts.name == name:
                    column[0][places[amounts.zone]] = amounts.capacity
                    column[1][places[amounts.zone]] = amounts.allocatable
                    column[2][places[amounts.zone]] = amounts.available

            capacity = numbers(column[0], contents.zones)
            allocatable = capacity
            if memcmp(column[0], column[1], size):
                allocatable = numbers(column[1], contents.zones)
            available = allocatable
            if memcmp(column[1], column[2], size):
                available = numbers(column[2], contents.zones)

            by_resource[self.names[name]] = (capacity, allocatable, available)

        return by_resource

    cdef tuple distances_of(self, const int* order):
        """Return the costs between the zones; None: no zone has any. The others are far."""
        cdef Contents* contents = &self.contents
        cdef int count = contents.zones
        cdef Py_ssize_t size = count * sizeof(int64_t)
        cdef bint has_costs = False
        cdef bint is_new = self.zones != count
        cdef int64_t[MOST_ZONES] distances
        cdef int64_t* last = self.distances
        cdef Zone* zone
        cdef int row, column, index
        for row in range(count):
            zone = &contents.zone[order[row]]
            has_costs = has_costs or zone.costs != zone.costs_end
            for column in range(count):
                distances[column] = UNKNOWN_DISTANCE

            for index in range(zone.costs, zone.costs_end):
                # most zones name all of them, in their order
                column = self.column_of(order, &self.costs[index].name, index - zone.costs)
                if column < count:
                    distances[column] = self.costs[index].value

            is_new = is_new or memcmp(last, distances, size) != 0
            memcpy(last, distances, size)
            last += count

        if is_new:
            self.zones = count
            self.last_distances = tuple(
                [numbers(self.distances + row * count, count) for row in range(count)]
            )
        if not has_costs:
            return None
        return self.last_distances

    cdef inline int column_of(self, const int* order, const Word* name, int guess) noexcept nogil:
        """Return the place of the zone of that name; beyond the last: there is none."""
        cdef int place
        if guess < self.contents.zones and alike(&self.contents.zone[order[guess]].name, name):
            return guess

        for place in range(self.contents.zones):
            if alike(&self.contents.zone[order[place]].name, name):
                return place
        return self.contents.zones
