"""CPUs as sets of machine words: how a machine groups them, and which free ones are taken."""
