"""Selectors of devices: expressions in CEL, as the API server and the scheduler evaluate them."""
