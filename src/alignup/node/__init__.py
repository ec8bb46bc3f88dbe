"""A machine that admits pods as a kubelet would, and what can be asked of it.

`from alignup.node import Node` is public; the other modules of this package are imported by their
full names.
"""

from alignup.node.inputs import plugins_of
from alignup.node.node import Node

__all__ = ["Node", "plugins_of"]
