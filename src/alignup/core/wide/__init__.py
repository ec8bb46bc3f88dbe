"""Families of masks of 9 to 64 NUMA nodes, which are described and searched, never enumerated."""
