"""Reads machines from texts that people paste into reports."""
