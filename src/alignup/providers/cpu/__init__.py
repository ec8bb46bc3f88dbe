"""The CPU manager's static policy: who holds which CPUs, and which of the free ones are taken."""
