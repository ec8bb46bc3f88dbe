"""Knows processes: which one is meant, whether it runs, whose it is, and when it ends."""
