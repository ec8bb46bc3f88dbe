"""Places work on this machine for many users at once, without a kubelet: device plugins, durable leases, metrics.

Needs the extra `agent`. `device_plugins` is a library of its own: it feeds the device provider of
any node.
"""
