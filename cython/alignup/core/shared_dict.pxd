"""The class of mappings that copies share, for compiled modules that read and write them."""


cdef class SharedDict:
    cdef dict entries
    cdef dict own(self)
