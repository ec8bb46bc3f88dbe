"""`alignup explain`: says why pods are admitted or refused on a machine, and what would help.

`alignup.cli.explain_view` prints an explanation.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from alignup.cli.admit import same_refusal, say_what_is_ignored
from alignup.cli.inputs import NodeSource, Pictures, asked_pods, load_node
from alignup.cli.options import (
    file_arguments,
    file_option,
    flag,
    gathered,
    json_option,
    kubelet_version_option,
    option,
    subcommand,
)
from alignup.errors import one_line
from alignup.text.byte_sizes import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alignup.cli.inputs import AskedPods
    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.pod_documents import PodDocument
    from alignup.kubernetes.versions import KubeletVersion
    from alignup.node import Node
    from alignup.node.explain.explanation import Explanation
    from alignup.topology_manager.admission import Admission


@subcommand("explain", "0 if every pod is admitted; 1 if one is refused")
def command(
    *,
    source: NodeSource = gathered(NodeSource),
    version: KubeletVersion | None = kubelet_version_option,
    chosen: str | None = option(
        "Explain this pod of the input only, or of the node's rejected ones.", "--pod", metavar="NAMESPACE/NAME"
    ),
    nodes: str | None = file_option(
        "Other nodes, as `alignup rank` takes them: of a refused pod, say which of them would take it now.",
        *("--nodes", "-n"),
    ),
    product: bool = flag("Show the cross product of the hints, row by row, up to 200 rows."),
    as_json: bool = json_option("a pod"),
    pictures: Pictures = gathered(Pictures),
    pods: tuple[str, ...] = file_arguments("[POD.yaml]..."),
) -> int:
    """Say why pods are admitted or refused on a machine, one after the other, and what would help.

    The pods are those of `alignup admit`. Each one is explained on the machine as the pods before it left it, and then
    admitted there if it fits. A pod that its kubelet rejected (its status has the phase Failed and a reason such as
    TopologyAffinityError) is explained as of now, after all others: why it was rejected, and whether there is room now.
    With --node and without a file, the rejected pods of that node are explained, newest first.

    Every change that is suggested was tried. `-` reads standard input. A picture shows the first pod that is refused,
    or else the last one; a page shows all.
    """
    loaded = load_node(source, version)
    asked = asked_pods(pods, source, loaded, chosen=chosen, rejected=True)
    rejected = [one.pod for one in asked.rejected]
    say_what_is_ignored(loaded, [*asked.pods, *rejected], is_configured=bool(source.config or source.kubelet_node))
    others = None if nodes is None else OtherNodes(nodes, version)
    teller = Teller(others, product=product, as_json=as_json, quiet=pictures.take_the_output)
    for pod in asked.there:
        teller.tell_there(pod)
    found = explain_all(loaded.node, asked, teller)
    if not as_json and not teller.quiet:
        teller.note(loaded.title)
    if pictures and found:
        pictures.write(lambda: picture_of(found), lambda: page_of(found))
    return 0 if all(found) else 1


def picture_of(found: Sequence[Explanation]) -> str:
    """Return the picture of the first refusal, or of the last explanation."""
    from alignup.node.pictures.explanation_page import explanation_scene
    from alignup.node.pictures.picture import drawing_of

    return drawing_of(explanation_scene(next((one for one in found if not one), found[-1])))


def page_of(found: Sequence[Explanation]) -> str:
    """Return the page of all explanations."""
    from alignup.node.pictures.explanation_page import explanations_page

    return explanations_page("Why pods are admitted or refused", found)


def explain_all(node: Node, asked: AskedPods, teller: Teller) -> list[Explanation]:
    """Explain each pod and then admit it, and after all of them those that their kubelet rejected.

    Of pods that differ in their names only, and are refused for the same words one after the other, the first is
    explained.
    """
    found: list[Explanation] = []
    last: tuple[Pod, Admission] | None = None
    for pod in asked.pods:
        tried = node.try_admit(pod) if last is not None else None
        if last is not None and tried is not None and same_refusal(*last, pod, tried):
            explanation = replace(found[-1], pod=f"{pod.namespace}/{pod.name}", uid=pod.uid)
            teller.tell_alike(pod, explanation)
        else:
            explanation = node.explain(pod)
            teller.tell(pod, explanation)
        found.append(explanation)
        admission = node.admit(pod)
        last = None if admission else (pod, admission)
    teller.end_of_alike()
    for one in asked.rejected:
        explanation = node.explain(one.pod)
        teller.tell(one.pod, explanation, was=one)
        found.append(explanation)
    return found


class Teller:
    """Prints explanations, each as soon as it is there."""

    def __init__(self, others: OtherNodes | None, *, product: bool, as_json: bool, quiet: bool) -> None:
        self._others = others
        self._product = product
        self._as_json = as_json
        self.quiet = quiet
        """Print nothing, since a picture goes to standard output."""
        self._count = 0
        self._alike: list[Pod] = []

    def tell(self, pod: Pod, explanation: Explanation, was: PodDocument | None = None) -> None:
        """Print an explanation; `was` is the pod's document if its kubelet has rejected it before."""
        self.end_of_alike()
        if self.quiet:
            return
        taking = None if self._others is None or explanation.admitted else self._others.taking(pod)
        if self._as_json:
            told = explanation.to_dict(product=self._product) | ({"cluster": taking} if taking else {})
            if was is not None:
                told["was"] = {"reason": was.reason, "message": was.message}
            click.echo(json.dumps(told, separators=(",", ":")))
            return
        from alignup.cli.explain_view import show_explanation, show_rejection

        click.echo(nl=self._count > 0)
        self._count += 1
        if was is not None:
            show_rejection(explanation, was)
        show_explanation(explanation, product=self._product)
        if taking:
            self.note(taking_words(taking))

    def tell_alike(self, pod: Pod, explanation: Explanation) -> None:
        """Print the same explanation for another pod, or count it where a person reads."""
        if self._as_json:
            self.tell(pod, explanation)
        else:
            self._alike.append(pod)

    def end_of_alike(self) -> None:
        """Say how many pods were explained alike."""
        alike, self._alike = self._alike, []
        if alike and not self.quiet:
            names = alike[0].name if len(alike) == 1 else f"{alike[0].name} to {alike[-1].name}"
            self.note(f"and {counted(len(alike), 'more pod')} alike: {names}")

    def tell_there(self, pod: Pod) -> None:
        """Say that a pod is on the node already."""
        label = f"{pod.namespace}/{pod.name}"
        if self._as_json:
            told = {"pod": label, "namespace": pod.namespace, "uid": pod.uid, "admitted": True, "reason": ""}
            click.echo(json.dumps(told | {"cause": THERE, "isThere": True}, separators=(",", ":")))
        elif not self.quiet:
            click.echo(one_line(f"{label}: {THERE}"))
            self._count += 1

    def note(self, text: str) -> None:
        """Print a line by itself."""
        from alignup.cli.explain_view import show_note

        show_note(text)


MOST_NODES: Final = 10
THERE: Final = "it is on the node already"


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
    names = ", ".join(one["node"] + ("" if one["exact"] else " (only amounts are known)") for one in taking["best"])
    more = taking["admitting"] - len(taking["best"])
    nodes = counted(taking["nodes"], "other node")
    return (
        f"{taking['admitting']} of {nodes} would take it now"
        + (f": {names}" if names else "")
        + (f" and {more} more" if more > 0 else "")
    )
