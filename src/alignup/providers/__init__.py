"""The hint providers of the kubelet: CPUs, memory and devices, each with its own allocator."""
