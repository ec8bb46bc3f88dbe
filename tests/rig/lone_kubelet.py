"""A kubelet of the rig that stands alone, and the node that we read from its files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from alignup.kubelet.read import read_kubelet
from rig import programs
from rig.kubelet import NODE_NAME, Kubelet
from rig.programs import KUBELET, built

if TYPE_CHECKING:
    from alignup.kubelet.read import KubeletNode

__all__ = ["NODE_NAME", "KubeletRig", "why_not"]

READINGS = 20
"""So many times what a kubelet says is read until it says the same before and after."""


def why_not() -> str:
    """Return why no kubelet can be run here; empty if one can."""
    return programs.why_not(*KUBELET)


def unordered(answer: Any) -> Any:
    """Return an answer of PodResources with its lists in an order of their own.

    The kubelet's is that of a map.
    """
    if isinstance(answer, dict):
        return {key: unordered(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return sorted((unordered(item) for item in answer), key=repr)
    return answer


class KubeletRig(Kubelet):
    """A kubelet whose programs are built when it starts."""

    def up(self) -> None:
        """Start all of it."""
        built(*KUBELET)
        super().up()

    def read(self) -> KubeletNode:
        """Return the node as it is read from the kubelet's files, at a moment when it holds still.

        Its answers and its files are read one after the other, and in between it may free what a
        refused pod was given.
        """
        for _ in range(READINGS):
            root = self.record()
            read = read_kubelet(root, config=self.config_file)
            before = json.loads((root / "podresources" / "list.json").read_text())
            after = self.ask("list")
            if unordered(before) == unordered(after):
                return read

        raise RuntimeError(
            f"what PodResources lists changed {READINGS} times while the files were read"
        )
