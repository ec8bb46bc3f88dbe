"""What a scheduler asks of a watched cluster: the extender, and programs that mend placements."""
