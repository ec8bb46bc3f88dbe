"""Admits the same pods on nodes that differ only in their kubelet's release, and prints what an upgrade changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from alignup.cli.comparison import answer_text, changed_options, difference_lines, option_stages
from alignup.cli.terminal import safe
from alignup.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from alignup.cli.inputs import LoadedNode
    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.versions import KubeletVersion
    from alignup.node import Node

__all__ = ["compare_versions"]


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
            click.echo(json.dumps(one, separators=(",", ":")))
    else:
        _show(found, admitted or (), options)
    return all(
        "pods" in one and all(answers["admitted"] for answers in one["pods"]) for one in found.values()
    )


def _show(
    found: dict[KubeletVersion, dict[str, Any]], admitted: Sequence[Pod], options: Iterable[str]
) -> None:
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
