"""The labels by which nodes are places of single pods, as far as they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alignup.control_plane.gates.decisions import Label
from alignup.control_plane.gates.waiting_pods import PLACE_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet


class PlaceLabels:
    """What labels of places nodes have, and what was asked of them and is not seen yet.

    What is asked for is asked once, until it is seen, has become needless, or was refused.
    """

    def __init__(self) -> None:
        # By the key of a label, the nodes that have it.
        self._nodes: dict[str, set[str]] = {}
        # By node and key, what was asked and is not seen yet, and what of that was refused.
        self._under_way: dict[tuple[str, str], bool] = {}
        self._refused: set[tuple[str, str]] = set()
        # Of what was refused, that for which the node had changed meanwhile.
        self._outdated: set[tuple[str, str]] = set()
        # By node, the version that was seen last.
        self._versions: dict[str, str] = {}

    def __bool__(self) -> bool:
        """Return whether a node has a label, or was asked to get or lose one."""
        return bool(self._nodes or self._under_way)

    def seen(self, name: str, labels: Mapping[str, str], version: str = "") -> list[str]:
        """Take in the labels that a node has; return the uids of the pods whose place it is.

        Args:
            name: that of the node.
            labels: all that it has.
            version: its resourceVersion.
        """
        if self._versions.get(name) != version:
            self._versions[name] = version
            self._ask_again({refused for refused in self._outdated if refused[0] == name})

        keys = {key for key in labels if key.startswith(PLACE_LABEL)}
        for key, names in list(self._nodes.items()):
            if key not in keys and name in names:
                names.discard(name)
                self._under_way.pop((name, key), None)
                if not names:
                    del self._nodes[key]

        for key in keys:
            self._nodes.setdefault(key, set()).add(name)
            if self._under_way.get((name, key)):
                del self._under_way[name, key]

        return [key.removeprefix(PLACE_LABEL) for key in keys]

    def node_gone(self, name: str) -> None:
        """Take in that a node was deleted, and with it what was asked of it and was not seen."""
        self.seen(name, {})
        self._versions.pop(name, None)
        self._under_way = {
            (node, key): is_set for (node, key), is_set in self._under_way.items() if node != name
        }

    def nodes_with(self, key: str) -> AbstractSet[str]:
        """Return the names of the nodes that have a label."""
        return self._nodes.get(key, frozenset())

    def to_write(self, wishes: Iterable[tuple[str, str]]) -> list[Label]:
        """Return what nodes lack, or have too much, and was not asked yet.

        Args:
            wishes: the labels that are to be there, each a node and a key.
        """
        wanted = set(wishes)
        present = {(name, key) for key, names in self._nodes.items() for name in names}
        labels = []
        for name, key in sorted(wanted ^ present):
            is_set = (name, key) in wanted
            if self._under_way.get((name, key)) is not is_set:
                self._under_way[name, key] = is_set
                labels.append(Label(name, key, is_set, self._versions.get(name, "")))

        return labels

    def refused(self, label: Label, *, is_outdated: bool = False) -> None:
        """Take in that the API server did not change a label.

        Args:
            label: as it was asked for.
            is_outdated: the node has changed meanwhile: it is asked again once it is seen so.
        """
        refused = label.node, label.key
        self._refused.add(refused)
        if is_outdated:
            self._outdated.add(refused)
            if self._versions.get(label.node) != label.version:
                self._ask_again({refused})

    def ask_refused_again(self) -> None:
        """Let what was refused be asked once more."""
        self._ask_again(self._refused)

    def _ask_again(self, refused: AbstractSet[tuple[str, str]]) -> None:
        """Let some of what was refused be asked once more."""
        for node_and_key in refused:
            self._under_way.pop(node_and_key, None)
        self._outdated -= refused
        self._refused -= refused

    def forget_requests(self) -> None:
        """Take what was asked and is not seen yet to have come to nothing."""
        self._under_way.clear()
