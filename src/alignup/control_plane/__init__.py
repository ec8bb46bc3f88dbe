"""What works in a running cluster: a client of its API server, answers to its scheduler, publishers of nodes."""
