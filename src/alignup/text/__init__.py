"""Bounded, typed reading of the text formats that users bring: JSON and YAML."""
