"""Says in lines what kubelets of several releases decide for the same pods, for `admit` and `replay`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alignup.cli.terminal import nodes_text, safe
from alignup.text.byte_sizes import short_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from alignup.kubernetes.versions import KubeletVersion


def answer_text(answer: Mapping[str, Any]) -> str:
    """Return verdict and allocations of one pod, as JSON has them, in a line."""
    if not answer["admitted"]:
        return f"refused, {answer['reason']}"
    got = "; ".join(container_text(name, one, whole=True) for name, one in answer["containers"].items())
    return f"admitted, {got}" if got else "done"


def container_text(name: str, container: Mapping[str, Any], *, whole: bool = False) -> str:
    """Return what one container got, in a few words; `whole`: with the memory, and whether it is preferred."""
    affinity = container.get("affinity") or {}
    parts = [f"NUMA {nodes_text(affinity.get('numaNodes'))}"]
    if whole and affinity and not affinity["preferred"]:
        parts.append("not preferred")
    parts.append(f"CPUs {container['cpus'] or 'shared'}")
    parts += [
        f"{block['type']} {short_bytes(block['size'])} @ {nodes_text(block['numaNodes'])}"
        for block in container["memory"]
        if whole and block["size"]
    ]
    parts += [f"{resource} {','.join(ids)}" for resource, ids in container["devices"].items() if ids]
    return f"{name}: {', '.join(parts)}"


def difference_lines(label: str, texts: Mapping[KubeletVersion, str]) -> Iterator[str]:
    """Yield what the releases say about one thing: one line if all agree, else one for each group that does."""
    if len(set(texts.values())) == 1:
        yield safe(f"{label}: the same, {next(iter(texts.values()))}")
        return
    yield safe(f"{label}:")
    for text in dict.fromkeys(texts.values()):
        agreeing = [str(version) for version, one in texts.items() if one == text]
        yield safe(f"  {', '.join(agreeing)}: {text}")
