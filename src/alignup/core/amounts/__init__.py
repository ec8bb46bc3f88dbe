"""Decisions over a node that is kept as amounts: hints, preferred sizes, verdicts and scores."""
