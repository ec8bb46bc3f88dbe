"""What a scheduler asks of a cluster that is watched: the extender, and programs that mend placements."""
