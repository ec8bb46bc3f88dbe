"""Devices given by claims (DRA): which devices the scheduler allocates to a pod's claims on a node, or why none."""
