"""Reads, watches and changes objects of an API server."""
