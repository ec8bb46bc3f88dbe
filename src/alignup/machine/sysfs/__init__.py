"""Reads a machine from the files of the Linux kernel."""
