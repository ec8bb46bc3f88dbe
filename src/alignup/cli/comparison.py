"""Shows what kubelets of several releases decide for the same pods, and where they part, for `admit` and `replay`.

What releases do differently is known to `alignup.kubernetes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from alignup.cli.terminal import nodes_text, print_json, safe
from alignup.errors import ConfigError
from alignup.text.byte_sizes import short_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from alignup.cli.inputs import LoadedNode
    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.versions import KubeletVersion
    from alignup.node import Node


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


def option_stages(names: Iterable[str], version: KubeletVersion) -> dict[str, str | None]:
    """Return the stage of policy options in a release; None for those that it does not know."""
    from alignup.kubernetes.versions import release_of

    stages = {**release_of(version).cpu_options, **release_of(version).topology_options}
    return {name: stages.get(name) for name in sorted(names)}


def changed_options(names: Iterable[str], versions: Sequence[KubeletVersion]) -> Iterator[str]:
    """Yield a line for each option whose stage is not the same in all of the releases."""
    for name in sorted(names):
        texts = {version: option_stages([name], version)[name] or "unknown" for version in versions}
        if len(set(texts.values())) > 1:
            yield from difference_lines(f"option {name}", texts)


def compare_versions(
    versions: Sequence[KubeletVersion],
    load: Callable[[KubeletVersion], LoadedNode],
    pods: Callable[[LoadedNode], Sequence[Pod]],
    answer: Callable[[Node, Pod], dict[str, Any]],
    *,
    as_json: bool,
) -> bool:
    """Print what each release decides; return whether every one of them starts and admits every pod.

    Args:
        versions: the releases, in the order of the output.
        load: returns the node with a kubelet of a release.
        pods: returns the pods; called once.
        answer: admits a pod and returns the answer in JSON's types.
        as_json: print one JSON object a release.
    """
    found: dict[KubeletVersion, dict[str, Any]] = {one: {"kubeletVersion": str(one)} for one in versions}
    admitted: Sequence[Pod] | None = None
    options: set[str] = set()
    for version, answers in found.items():
        try:
            loaded = load(version)
        except ConfigError as error:
            answers["configError"] = str(error)
            continue
        admitted = pods(loaded) if admitted is None else admitted
        options.update(loaded.option_names)
        answers["pods"] = [answer(loaded.node, pod) for pod in admitted]
    for version, answers in found.items():
        answers["options"] = option_stages(options, version)
    if as_json:
        for one in found.values():
            print_json(one)
    else:
        _show(found, admitted or (), options)
    return all("pods" in one and all(answers["admitted"] for answers in one["pods"]) for one in found.values())


def _show(found: dict[KubeletVersion, dict[str, Any]], admitted: Sequence[Pod], options: Iterable[str]) -> None:
    """Print where the releases part."""
    for version, one in found.items():
        if "configError" in one:
            click.echo(safe(f"kubelet {version} would not start: {one['configError']}"))
    for line in changed_options(options, list(found)):
        click.echo(line)
    started = {version: one["pods"] for version, one in found.items() if "pods" in one}
    for index, pod in enumerate(admitted):
        texts = {version: answer_text(verdicts[index]) for version, verdicts in started.items()}
        for line in difference_lines(f"{pod.namespace}/{pod.name}", texts):
            click.echo(line)
