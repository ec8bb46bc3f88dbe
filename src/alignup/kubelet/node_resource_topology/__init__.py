"""NodeResourceTopology objects (`topology.node.k8s.io/v1alpha2`): everything that writes and reads them."""
