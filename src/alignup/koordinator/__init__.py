"""NUMA topology policies that pods bring.

They follow Koordinator's design document, or its released scheduler.

On one node, `node_policies` judges annotated pods over the node's own providers. For a scheduler,
`scheduling` takes a pod past a node under one of its two profiles. The rules that both share are in
`effective` and `occupancy`.
"""
