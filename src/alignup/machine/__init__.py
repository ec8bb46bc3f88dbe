"""The record of a machine and its devices, and the sources that such records are read from."""
