"""`alignup explain`: says why pods are admitted or refused on a machine, and what would help."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from alignup.cli.admit import say_what_is_ignored
from alignup.cli.completion import files
from alignup.cli.inputs import (
    config_option,
    kubelet_node_option,
    load_node,
    machine_option,
    near_cpus_option,
    node_name_option,
    read_pods,
)
from alignup.cli.options import (
    device_resource_option,
    devices_option,
    kubelet_version_option,
    lenient_option,
    replicas_option,
)
from alignup.cli.output_files import html_option, svg_option, write_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alignup.cli.inputs import LoadedNode
    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.versions import KubeletVersion
    from alignup.node.explain.explanation import Explanation

__all__ = ["command"]


@click.command(
    name="explain",
    epilog="Exit status: 0 if every pod is admitted; 1 if one is refused; 2 bad usage or bad input.",
)
@machine_option
@kubelet_node_option
@config_option
@devices_option
@device_resource_option
@near_cpus_option
@replicas_option("Explain")
@node_name_option
@kubelet_version_option
@lenient_option
@click.option(
    "--nodes",
    "-n",
    metavar="FILE",
    shell_complete=files,
    help="Other nodes, as `alignup rank` takes them: of a refused pod, say which of them would take it now.",
)
@click.option(
    "--product", is_flag=True, help="Show the cross product of the hints, row by row, up to 200 rows."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a pod, and nothing else.")
@svg_option
@html_option
@click.argument("pods", nargs=-1, metavar="[POD.yaml]...", shell_complete=files)
@click.pass_context
def command(
    ctx: click.Context,
    machine: str,
    kubelet_node: str | None,
    config: str | None,
    inventory: str | None,
    selectors: tuple[str, ...],
    near_cpus: bool,
    replicas: int | None,
    node_name: str | None,
    version: KubeletVersion | None,
    lenient: bool,
    nodes: str | None,
    product: bool,
    as_json: bool,
    svg: str | None,
    html: str | None,
    pods: tuple[str, ...],
) -> None:
    """Say why pods are admitted or refused on a machine, one after the other, and what would help.

    The pods are those of `alignup admit`. Each one is explained on the machine as the pods before it left it, and then
    admitted there if it fits. Every change that is suggested was tried. `-` reads standard input. A picture shows the
    first pod that is refused, or else the last one; a page shows all.
    """
    loaded = load_node(
        machine,
        config,
        inventory,
        selectors,
        kubelet_node=kubelet_node,
        near_cpus=near_cpus,
        version=version,
        lenient=lenient,
    )
    asked = read_pods(pods, replicas=replicas, node_name=node_name) if pods else loaded.example_pods(replicas)
    say_what_is_ignored(loaded, asked, is_configured=bool(config or kubelet_node))
    quiet = "-" in (svg, html)
    found = explain_all(loaded, asked, nodes, version, product=product, as_json=as_json, quiet=quiet)
    if svg is not None or html is not None:
        draw(found, svg, html)
    ctx.exit(0 if all(found) else 1)


def draw(found: Sequence[Explanation], svg: str | None, html: str | None) -> None:
    """Write the picture of one explanation, and the page of all.

    Raises:
        InputError: a file cannot be written.
    """
    from alignup.node.pictures.explanation_page import explanation_scene, explanations_page
    from alignup.node.pictures.picture import drawing_of

    if svg is not None:
        chosen = next((one for one in found if not one), found[-1])
        write_text(svg, drawing_of(explanation_scene(chosen)))
    if html is not None:
        write_text(html, explanations_page("Why pods are admitted or refused", found))


def explain_all(
    loaded: LoadedNode,
    pods: Sequence[Pod],
    nodes: str | None,
    version: KubeletVersion | None,
    *,
    product: bool,
    as_json: bool,
    quiet: bool,
) -> list[Explanation]:
    """Explain each pod and then admit it; `quiet`: print nothing."""
    from alignup.cli.explain_nodes import OtherNodes, taking_words
    from alignup.cli.explain_view import show_explanation, show_note

    others = None if nodes is None else OtherNodes(nodes, version)
    found = []
    for number, pod in enumerate(pods):
        explanation = loaded.node.explain(pod)
        loaded.node.admit(pod)
        found.append(explanation)
        if quiet:
            continue
        taking = None if others is None or explanation.admitted else others.taking(pod)
        if as_json:
            told = explanation.to_dict(product=product) | ({"cluster": taking} if taking else {})
            click.echo(json.dumps(told, separators=(",", ":")))
            continue
        click.echo(nl=number > 0)
        show_explanation(explanation, product=product)
        if taking:
            show_note(taking_words(taking))
    if not as_json and not quiet:
        show_note(loaded.title)
    return found
