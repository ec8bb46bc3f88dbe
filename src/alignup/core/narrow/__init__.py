"""Families of masks of up to 8 NUMA nodes, 256 bits each, and their merge."""
