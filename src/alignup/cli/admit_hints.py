"""Shows the hints behind the admissions of `alignup admit --hints`: what each provider offered to each container."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alignup.cli.terminal import make_table, print_whole, safe
from alignup.node.explain.trial import tried
from alignup.replay.scenario import hints_dict
from alignup.topology_manager.refusal_message import listed, view_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from alignup.kubernetes.pod import Pod
    from alignup.node import Node
    from alignup.topology_manager.provider import ResourceHints

__all__ = ["PodHints", "add_hints", "hints_of", "show_hints"]

PodHints = dict[str | None, dict[str, "ResourceHints"]]
"""By container (None: the pod as a whole) and name of the provider."""


def hints_of(node: Node, pod: Pod) -> PodHints:
    """Return what the providers would offer to the pod now, as far as they would be asked."""
    return {
        None if asked.container is None else asked.container.name: asked.hints
        for asked in tried(node, pod).questions
        if asked.hints
    }


def add_hints(answer: dict[str, Any], hints: PodHints, numa_node_ids: Sequence[int]) -> None:
    """Add the hints to an answer in JSON's types, where `alignup replay --hints` has them."""
    for name, offered in hints.items():
        told = {provider: hints_dict(resources, numa_node_ids) for provider, resources in offered.items()}
        if name is None:
            answer["podHints"] = told
        else:
            answer["containers"].setdefault(name, {})["hints"] = told


def show_hints(console: Console, hints: PodHints, numa_node_ids: Sequence[int]) -> None:
    """Print what was offered to a pod."""
    table = make_table("container", "hints for", "preferred", "not preferred")
    for name, offered in hints.items():
        for resources in offered.values():
            for resource, listed_hints in (resources or {}).items():
                seen = view_of(resource, listed_hints, numa_node_ids)
                preferred = (
                    "any"
                    if seen.anywhere
                    else listed(seen.preferred, seen.preferred_count, is_whole=seen.is_whole)
                )
                other = listed(seen.other, seen.other_count, is_whole=seen.is_whole)
                table.add_row(
                    "the whole pod" if name is None else safe(name),
                    safe(resource),
                    preferred or "-",
                    other or "-",
                )
    if table.row_count:
        print_whole(console, table)
    else:
        console.print("  no hints: it asks for nothing that is aligned")
