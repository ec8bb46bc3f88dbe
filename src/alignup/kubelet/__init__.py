"""Reads, checks, shows and exports a running kubelet's node, from its own files and answers."""
