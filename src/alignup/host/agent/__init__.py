"""Places work on this machine for many users at once, without a kubelet.

It has device plugins, durable leases and metrics. Needs the extra `agent`. `device_plugins` is a
library of its own: it feeds the device provider of any node.
"""
