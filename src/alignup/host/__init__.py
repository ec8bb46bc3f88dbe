"""This machine without a kubelet: leases of CPUs, memory and devices, and the agent that keeps them."""
