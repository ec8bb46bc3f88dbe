"""Everything that writes and reads NodeResourceTopology objects.

Their version is `topology.node.k8s.io/v1alpha2`.
"""
