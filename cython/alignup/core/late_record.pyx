"""The base of records that are made when somebody reads them.

Most are only asked whether they are true.
"""

from cpython.object cimport PyObject_GenericGetAttr, PyObject_GenericSetAttr


cdef class LateRecord:
    """A record of which nothing but what is given at once is there until another field is read."""

    cdef object make
    cdef tuple arguments

    @classmethod
    def later(cls, str known not None, value, make, *arguments):
        """Return a record whose other fields are made when one of them is read.

        Args:
            known: the name of the field that is there at once.
            value: its value.
            make: called with the arguments; returns a record of the same class. Whatever it
                looks at must not change.
        """
        cdef LateRecord record = cls.__new__(cls)
        record.make = make
        record.arguments = arguments
        PyObject_GenericSetAttr(record, known, value)
        return record

    def __getattr__(self, str name):
        make = self.make
        arguments = self.arguments
        fields = type(self).__record_fields__
        if make is None or name not in fields:  # or another thread has made it meanwhile
            return PyObject_GenericGetAttr(self, name)
        whole = make(*arguments)
        for field in fields:
            PyObject_GenericSetAttr(self, field, getattr(whole, field))
        self.make = self.arguments = None
        return getattr(whole, name)
