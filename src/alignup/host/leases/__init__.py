"""Leases of CPUs, memory and devices, kept in one file per user.

They are what places work on the machine at hand. One module a noun: the record of a lease, the
process that holds it, the file that keeps them, the machine that they are cut from, the choice of
what a request gets, the binding of a process to it, and the command that runs with it.
"""
