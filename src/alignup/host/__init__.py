"""This machine without a kubelet: leases of its resources, and the agent that keeps them.

Resources are CPUs, memory and devices.
"""
