"""The Topology Manager itself: manager, scopes, policies, hints and Store.

No resource is known here.
"""
