"""Documents of the field, decoded once: manifests, requests, pods, quantities, KubeletConfiguration."""
