"""The compiled core: masks, hints and their merge, searches beyond 8 NUMA nodes, and the amounts of a node.

Few modules import it: each compiled class has one home among the Python modules, which says what it
is for.
"""
