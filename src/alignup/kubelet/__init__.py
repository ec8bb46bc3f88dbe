"""Reads, checks, shows and exports the node of a running kubelet, from its own files and answers."""
