"""Reads a machine from the files of the Linux kernel, one module for each group of files."""
