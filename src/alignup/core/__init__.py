"""The compiled core: masks, hints and their merge, wide searches, and the amounts of a node.

Wide searches are those beyond 8 NUMA nodes. Few modules import it: each compiled class has one home
among the Python modules, which says what it is for.
"""
