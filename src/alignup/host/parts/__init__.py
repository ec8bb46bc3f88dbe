"""A machine cut into equal parts.

There are the cut, the call that binds a rank to its part, and memory near CPUs.
"""
