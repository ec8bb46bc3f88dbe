"""What works in a running cluster.

That is a client of its API server, answers to its scheduler, and publishers of nodes.
"""
