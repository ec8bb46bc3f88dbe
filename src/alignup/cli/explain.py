"""`alignup explain`: says why pods are admitted or refused on a machine, and what would help.

`alignup.cli.explain_view` prints an explanation.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from alignup.cli.admit import say_what_is_ignored
from alignup.cli.inputs import asked_pods, load_node, write_text
from alignup.cli.options import (
    files,
    html_option,
    json_option,
    kubelet_version_option,
    node_source_options,
    svg_option,
)
from alignup.text.byte_sizes import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alignup.cli.inputs import LoadedNode
    from alignup.cli.options import NodeSource
    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.versions import KubeletVersion
    from alignup.node.explain.explanation import Explanation

__all__ = ["command"]


@click.command(
    name="explain",
    epilog="Exit status: 0 if every pod is admitted; 1 if one is refused; 2 bad usage or bad input.",
)
@node_source_options
@kubelet_version_option
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
@json_option("a pod")
@svg_option
@html_option
@click.argument("pods", nargs=-1, metavar="[POD.yaml]...", shell_complete=files)
@click.pass_context
def command(
    ctx: click.Context,
    source: NodeSource,
    version: KubeletVersion | None,
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
    loaded = load_node(source, version)
    asked = asked_pods(pods, source, loaded)
    say_what_is_ignored(loaded, asked, is_configured=bool(source.config or source.kubelet_node))
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


MOST_NODES: Final = 10


class OtherNodes:
    """The nodes in a file, as `alignup rank` takes them.

    Raises:
        InputError: the file holds none.
    """

    def __init__(self, name: str, version: KubeletVersion | None) -> None:
        from alignup.cli.rank import load_cluster
        from alignup.cluster.node_totals import Fit

        self._cluster = load_cluster(name, version)
        self._fit = Fit(self._cluster)

    def taking(self, pod: Pod) -> dict[str, Any]:
        """Return how many nodes there are, how many of them would take the pod, and the best ones, in JSON's types."""
        from alignup.cli.rank import placements
        from alignup.cluster.ranking import rank

        answer = self._cluster.evaluate(pod)
        ranking = rank(self._cluster, pod, answer, self._fit)
        return {
            "nodes": len(self._cluster),
            "admitting": len(ranking.order),
            "best": placements(self._cluster, answer, ranking, MOST_NODES),
        }


def taking_words(taking: dict[str, Any]) -> str:
    """Return the same as a line for people."""
    names = ", ".join(
        one["node"] + ("" if one["exact"] else " (only amounts are known)") for one in taking["best"]
    )
    more = taking["admitting"] - len(taking["best"])
    nodes = counted(taking["nodes"], "other node")
    return (
        f"{taking['admitting']} of {nodes} would take it now"
        + (f": {names}" if names else "")
        + (f" and {more} more" if more > 0 else "")
    )
