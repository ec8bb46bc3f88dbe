"""The memory manager's Static policy: who holds which memory of which NUMA nodes."""
