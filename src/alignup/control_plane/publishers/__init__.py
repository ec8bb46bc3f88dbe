"""Publishes the nodes of real and of simulated kubelets."""
