"""A mapping that its copies share until one of them is written to.

A copy costs the same however long it is.
"""

cimport cython
from cpython.object cimport PyObject

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject* item) noexcept nogil


@cython.final
cdef class SharedDict:
    """A dict that is copied when it is written to.

    Whoever writes while a copy or an iteration still looks at the same entries gets entries of its
    own.

    Examples:
        >>> entries = SharedDict({"a": 1})
        >>> copy = entries.copy()
        >>> copy["b"] = 2
        >>> len(entries), len(copy)
        (1, 2)
    """

    def __init__(self, entries=()):
        self.entries = dict(entries)

    cdef dict own(self):
        """Return the entries, which nobody else looks at, to be written to."""
        if Py_REFCNT(<PyObject*>self.entries) > 1:
            self.entries = self.entries.copy()
        return self.entries

    def copy(self):
        """Return a mapping of the same entries that is independent of this one."""
        cdef SharedDict duplicate = SharedDict.__new__(SharedDict)
        duplicate.entries = self.entries
        return duplicate

    def __len__(self):
        return len(self.entries)

    def __iter__(self):
        return iter(self.entries)

    def __contains__(self, key):
        return key in self.entries

    def __getitem__(self, key):
        return self.entries[key]

    def __setitem__(self, key, value):
        self.own()[key] = value

    def __delitem__(self, key):
        del self.own()[key]

    def __repr__(self):
        return f"SharedDict({self.entries!r})"

    def get(self, key, default=None):
        """Return the value of a key, or the default."""
        return self.entries.get(key, default)

    def pop(self, key, default=None):
        """Remove a key, and return its value, or the default if it is not there."""
        return self.own().pop(key, default) if key in self.entries else default

    def keys(self):
        """Return a view of the keys as they are now."""
        return self.entries.keys()

    def values(self):
        """Return a view of the values as they are now."""
        return self.entries.values()

    def items(self):
        """Return a view of the keys and values as they are now."""
        return self.entries.items()

    def update(self, entries):
        """Take over the entries of another mapping."""
        self.own().update(entries)
