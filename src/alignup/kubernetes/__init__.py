"""Documents of Kubernetes, decoded once: manifests, pods, quantities, KubeletConfiguration."""
