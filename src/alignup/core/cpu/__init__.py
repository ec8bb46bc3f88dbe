"""CPUs as sets of machine words: how a machine groups them, and which of the free ones are taken."""
