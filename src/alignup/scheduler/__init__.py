"""What schedulers ask of a cluster that is watched: the extender, simulated kubelets, and what both report."""
