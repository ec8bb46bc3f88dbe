"""Devices given by claims (DRA): which ones the scheduler allocates on a node, or why none."""
