"""Shows what kubelets of several releases decide for the same pods, and where they part.

`alignup admit` and `alignup replay` bring the answers; what releases do differently is known to `alignup.kubernetes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alignup.cli.terminal import nodes_text, safe
from alignup.text.byte_sizes import short_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from alignup.kubernetes.versions import KubeletVersion

__all__ = ["answer_text", "changed_options", "difference_lines", "option_stages"]


def answer_text(answer: Mapping[str, Any]) -> str:
    """Return verdict and allocations of one pod, as JSON has them, in a line."""
    if not answer["admitted"]:
        return f"refused, {answer['reason']}"
    got = "; ".join(_container_text(name, one) for name, one in answer["containers"].items())
    return f"admitted, {got}" if got else "done"


def _container_text(name: str, container: Mapping[str, Any]) -> str:
    affinity = container.get("affinity") or {}
    parts = [f"NUMA {nodes_text(affinity.get('numaNodes'))}"]
    if affinity and not affinity["preferred"]:
        parts.append("not preferred")
    parts.append(f"CPUs {container['cpus'] or 'shared'}")
    parts += [
        f"{block['type']} {short_bytes(block['size'])} @ {nodes_text(block['numaNodes'])}"
        for block in container["memory"]
        if block["size"]
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


def option_stages(names: Iterable[str], version: KubeletVersion) -> dict[str, str | None]:
    """Return the stage of policy options in a release; None for those that it does not know."""
    from alignup.kubernetes.policy_options import CPU_OPTION_STAGES, TOPOLOGY_OPTION_STAGES, option_stage

    stages = {**CPU_OPTION_STAGES, **TOPOLOGY_OPTION_STAGES}
    return {name: option_stage(stages.get(name, ()), version) for name in sorted(names)}


def changed_options(names: Iterable[str], versions: Sequence[KubeletVersion]) -> Iterator[str]:
    """Yield a line for each option whose stage is not the same in all of the releases."""
    for name in sorted(names):
        texts = {version: option_stages([name], version)[name] or "unknown" for version in versions}
        if len(set(texts.values())) > 1:
            yield from difference_lines(f"option {name}", texts)
