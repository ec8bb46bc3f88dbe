"""Device plugins of Kubernetes (v1beta1), without a kubelet.

Who registers, what they report, what they answer. Needs the extra `agent` (grpcio, protobuf).
`plugins.py` is the door; `device_plugin.proto` is the protocol.
"""
