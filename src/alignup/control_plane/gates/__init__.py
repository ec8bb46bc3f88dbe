"""Pods that wait behind a scheduling gate until there is room for them."""
