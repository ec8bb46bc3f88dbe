"""`alignup explain` and `why`: say why pods are admitted or refused, on a machine or in a cluster, and what would help.

`explain --pod` does the same as `why` where neither a node nor a file is given.
`alignup.cli.explain_view` prints an explanation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from alignup.cli import inputs, options
from alignup.cli.admit import (
    claims_dict,
    claims_on,
    fault_of,
    outcome_lines,
    same_refusal,
    say_what_is_ignored,
)
from alignup.cli.explain_view import View, explanation_dict, show_explanation, show_note
from alignup.cli.failures import need_extra
from alignup.cli.terminal import print_json
from alignup.errors import InputError, one_line
from alignup.text.counting import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from alignup.claims.on_node import ClaimsOutcome
    from alignup.control_plane.api_server.api_client import Api
    from alignup.control_plane.scheduler.ask import AskedCluster
    from alignup.explanations.explanation import Explanation
    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.pod_documents import PodDocument
    from alignup.kubernetes.versions import KubeletVersion
    from alignup.node import Node
    from alignup.replay.scenario import Resize
    from alignup.topology_manager.admission import Admission

MOST_NODES: Final = 10
THERE: Final = "it is on the node already"

NOT_KNOWN: Final = (
    "From what nodes publish. Not looked at: taints, affinity, spread constraints, volumes, and "
    "what other plugins of "
    "the scheduler refuse."
)


@options.subcommand("explain", "0 if every pod is admitted; 1 if one is refused")
def command(
    *,
    source: inputs.NodeSource = options.all_of(inputs.NodeSource),
    version: KubeletVersion | None = options.kubelet_version,
    chosen: str | None = options.value(
        "Explain only this pod, after the pods before it in the input. Without an input, a pod of "
        "the cluster that "
        "kubectl uses (see `alignup why`).",
        "--pod",
        metavar="NAMESPACE/NAME",
    ),
    nodes: str | None = options.file(
        "Other nodes, in the formats of `alignup rank`. Of a pod that is refused, or far from the "
        "devices of its "
        "claims, say which of them would take it now.",
        *("--nodes", "-n"),
    ),
    log: str | None = options.file("The log of a kubelet: explain what it refused.", "--log"),
    resize: bool = options.flag(
        "Explain resizes in place; the input is that of `alignup admit --resize`."
    ),
    view: View = options.all_of(View),
    as_json: bool = options.json("pod"),
    pictures: inputs.Pictures = options.all_of(inputs.Pictures),
    pods: tuple[str, ...] = options.files("[POD.yaml]..."),
) -> int:
    """Say why pods are admitted or refused on a machine, and what would help.

        alignup explain --node node1.tar.xz
        alignup explain --machine xeon-2s --config kubelet.yaml pod.yaml

    Each pod is explained in turn, and admitted if it fits. With --node and without a file, the pods
    that this node's kubelet rejected are explained, newest first. Each suggested change was tried.

    --log, without other inputs, explains each refused pod from a kubelet's log: the hints of each
    provider, what they merge into, the cause, and what no log says. `journalctl -u kubelet |
    alignup explain --log -`

    Manifests are those of `alignup admit`; `-` reads standard input. A pod that its kubelet has
    rejected (phase Failed, a reason such as TopologyAffinityError) is explained after all others,
    against the node as it is now: why it was rejected, and whether there is room by now. --svg
    draws the first pod that is refused, or else the last pod; --html shows all pods.
    """
    if log is not None:
        from alignup.cli.explain_log import explain_log

        return explain_log(log, chosen, view, (*pods, nodes, source.kubelet_node), as_json=as_json)

    if (
        chosen is not None
        and not pods
        and source.kubelet_node is None
        and source.machine == inputs.HERE
    ):
        need_extra("cluster")
        given = {"kubeconfig": source.kubeconfig, "node_name": source.node_name}
        return answer_question(
            Question(pod=chosen, **given, as_json=as_json, product=view.product, tables=view.tables)
        )

    loaded = inputs.load_node(source, version)
    if resize:
        return (
            0
            if explain_resizes(loaded, inputs.asked_resizes(pods, source, loaded), as_json=as_json)
            else 1
        )

    asked = inputs.asked_pods(pods, source, loaded, chosen=chosen, rejected=True)
    say_what_is_ignored(loaded, [*asked.pods, *(one.pod for one in asked.rejected)], source)
    others = None if nodes is None else OtherNodes(nodes, version, source.resources)
    found: list[Explanation] = []
    teller = Teller(others, view, as_json=as_json)
    for pod in () if pictures.take_the_output else asked.there:
        teller.tell_there(pod)

    for one in explained(loaded.node, asked):
        found.append(one.explanation)
        if not pictures.take_the_output:
            teller.tell(one)

    if not pictures.take_the_output:
        teller.end_of_alike()
        if not as_json:
            show_note(loaded.title)

    if pictures and found:
        from alignup.pictures.drawing import explanation_scene, explanations_page
        from alignup.pictures.picture import drawing_of

        drawn = next((one for one in found if not one), found[-1])
        title = "Why pods are admitted or refused"
        pictures.write(
            lambda: drawing_of(explanation_scene(drawn)), lambda: explanations_page(title, found)
        )

    return 0 if all(found) else 1


def explain_resizes(loaded: inputs.LoadedNode, asked: Sequence[Resize], *, as_json: bool) -> bool:
    """Explain resizes one after the other, each as those before it left the node; return whether all are allocated."""
    from alignup.explanations.pod_changes import explain_resize

    found = []
    for one in asked:
        explanation = explain_resize(loaded.node, one.uid, one.containers, one.pod)
        loaded.node.resize(one.uid, one.containers, one.pod)
        found.append(explanation)
        if as_json:
            print_json(explanation.to_dict())
            continue

        answer = explanation.answer
        message = f", {answer.message}" if answer.message else ""
        click.echo(one_line(f"{explanation.pod} resize: {answer.status}{message}"))
        causes = [explanation.cause] if explanation.cause else []
        for line in (*causes, *(f"would help: {one.text}" for one in explanation.suggestions)):
            click.echo(one_line(f"  {line}"))

    return all(found)


class Explained(NamedTuple):
    """A pod and its explanation.

    Attributes:
        is_alike: it differs from the pod before in its name only, and is refused for the same
            words.
        was: the pod's document, if its kubelet has rejected it before.
        outcome: what its claims come to.
        fault: the known fault that its kubelet comes upon, as JSON has it.
    """

    pod: Pod
    explanation: Explanation
    is_alike: bool = False
    was: PodDocument | None = None
    outcome: ClaimsOutcome | None = None
    fault: Mapping[str, str] = {}


def explained(node: Node, asked: inputs.AskedPods) -> Iterator[Explained]:
    """Explain each pod and then admit it, and after all of them those that their kubelet rejected."""
    from alignup.explanations.why import explain

    last: tuple[Pod, Admission, Explanation] | None = None
    for pod in asked.before:
        node.admit(pod)

    for pod in asked.pods:
        alike = (
            last if last is not None and same_refusal(last, (pod, node.try_admit(pod))) else None
        )
        explanation = explain(node, pod) if alike is None else alike[2].of_alike(pod)
        fault = fault_of(node, pod)
        yield Explained(
            pod, explanation, alike is not None, outcome=claims_on(node, pod), fault=fault
        )
        admission = node.admit(pod)
        last = None if admission else (pod, admission, explanation)

    for one in asked.rejected:
        yield Explained(one.pod, explain(node, one.pod), was=one, outcome=claims_on(node, one.pod))


class Teller:
    """Prints explanations, each as soon as it is there; those that are alike are counted where a person reads.

    Of a pod that is refused, or has claims whose devices are not near its CPUs and memory, it says
    which of some other nodes would take it.
    """

    def __init__(self, others: OtherNodes | None, view: View, *, as_json: bool) -> None:
        self._others = others
        self._view = view
        self._as_json = as_json
        self._count = 0
        self._alike: list[Pod] = []

    def tell(self, one: Explained) -> None:
        """Print an explanation, and which other nodes would take the pod."""
        if one.is_alike and not self._as_json:
            self._alike.append(one.pod)
            return

        self.end_of_alike()
        explanation, was, outcome = one.explanation, one.was, one.outcome
        seeks_another = not explanation.admitted or (outcome is not None and outcome.meet is False)
        taking = (
            self._others.taking(one.pod) if self._others is not None and seeks_another else None
        )
        if self._as_json:
            told = explanation_dict(explanation, was, product=self._view.product) | claims_dict(
                outcome
            )
            print_json({**told, **({"cluster": taking} if taking else {}), **one.fault})
            return

        click.echo(nl=self._count > 0)
        self._count += 1
        show_explanation(explanation, was, self._view)
        if lines := list(outcome_lines(outcome)):
            show_note(lines[0])
            for line in lines[1:]:
                click.echo(one_line(line))

        if taking:
            show_note(taking_words(taking))

    def end_of_alike(self) -> None:
        """Say how many pods were explained alike."""
        alike, self._alike = self._alike, []
        if alike:
            names = alike[0].name if len(alike) == 1 else f"{alike[0].name} to {alike[-1].name}"
            show_note(f"and {counted(len(alike), 'more pod')} alike: {names}")

    def tell_there(self, pod: Pod) -> None:
        """Say that a pod is on the node already."""
        label = pod.namespaced_name
        if self._as_json:
            told = {
                "pod": label,
                "namespace": pod.namespace,
                "uid": pod.uid,
                "admitted": True,
                "reason": "",
            }
            print_json(told | {"cause": THERE, "isThere": True})
        else:
            click.echo(one_line(f"{label}: {THERE}"))
            self._count += 1


class OtherNodes:
    """The nodes in a file, as `alignup rank` takes them.

    Raises:
        InputError: the file holds none.
    """

    def __init__(
        self, name: str, version: KubeletVersion | None, resources: Sequence[str] = ()
    ) -> None:
        from alignup.cli.rank import load_cluster
        from alignup.cluster.node_totals import Fit

        self._cluster = load_cluster(name, version, resources=resources)
        self._fit = Fit(self._cluster)

    def taking(self, pod: Pod) -> dict[str, Any]:
        """Return how many nodes there are, how many of them would take the pod, and the best ones, in JSON's types."""
        from alignup.cli.rank import placements
        from alignup.cluster.ranking import rank

        answer = self._cluster.evaluate(pod)
        ranking = rank(self._cluster, pod, answer, self._fit)
        best = placements(self._cluster, answer, ranking, MOST_NODES)
        return {"nodes": len(self._cluster), "admitting": len(ranking.order), "best": best}


def taking_words(taking: dict[str, Any]) -> str:
    """Return the same as a line for people."""
    words = {
        True: " (near the devices of its claims)",
        False: " (far from the devices of its claims)",
    }
    names = ", ".join(
        one["node"]
        + ("" if one["exact"] else " (only amounts are known)")
        + words.get(one.get("draAligned"), "")
        for one in taking["best"]
    )
    more = taking["admitting"] - len(taking["best"])
    where = f": {names}{f' and {more} more' if more else ''}" if names else ""
    return (
        f"{taking['admitting']} of {counted(taking['nodes'], 'other node')} would take it "
        f"now{where}"
    )


# ---- of a cluster


class Question(View):
    """Which pod is asked about, and how."""

    pod: str = options.argument("[NAMESPACE/]POD")
    namespace: str | None = options.value(
        "The namespace of the pod.  [default: the context's namespace]",
        "--namespace",
        "-n",
        metavar="NAME",
    )
    context: str | None = options.value(
        "The context of the kubeconfig.  [default: its current context]", metavar="NAME"
    )
    kubeconfig: str | None = options.asked_kubeconfig
    node_name: str | None = options.value("Explain the pod on this node in full.", metavar="NAME")
    as_json: bool = options.json()


@options.subcommand("why", "0 if some node would admit the pod, or it runs; 1 if none would")
def why(*, question: Question = options.all_of(Question)) -> int:
    """Say why a pod of a cluster is refused, or was rejected by its node, and what would help.

        kubectl alignup why ml/trainer-0
        alignup why trainer-0 --namespace ml --node-name node1

    It knows nodes by what they publish (`alignup node publish`). It only reads: pods, nodes,
    NodeResourceTopology objects and PodDisruptionBudgets.
    """
    return answer_question(question)


def answer_question(question: Question) -> int:
    """Answer a question, and return the exit status."""
    from alignup.cli.rank import say_what_is_unknown
    from alignup.control_plane.scheduler.ask import ask, read_cluster, read_pod
    from alignup.explanations.why import explain

    namespace, _, name = question.pod.rpartition("/")
    if "/" in namespace or not name:
        raise InputError.at("the pod", "POD or NAMESPACE/POD", question.pod)

    async def read(api: Api) -> tuple[dict[str, Any], PodDocument, AskedCluster]:
        manifest, found = await read_pod(
            api, namespace or question.namespace or api.namespace, name
        )
        return manifest, found, await read_cluster(api)

    manifest, found, asked = ask(question.kubeconfig, read, question.context)
    say_what_is_unknown(asked)
    name = question.node_name or found.node_name
    if found.node_name and not found.has_ended and question.node_name in {None, found.node_name}:
        told = {
            "pod": found.pod.name,
            "namespace": found.pod.namespace,
            "admitted": True,
            "node": found.node_name,
        }
        if question.as_json:
            print_json(told)
        else:
            show_note(f"{found.pod.namespaced_name} is on node {found.node_name}, {found.phase}")

        return 0

    if name:
        explanation = explain(asked.node(name), _unbound(manifest))
        was = found if found.was_rejected and name == found.node_name else None
        if question.as_json:
            told = explanation_dict(explanation, was, product=question.product)
            print_json(told | {"node": name, "exact": name not in asked.by_amounts})
        else:
            show_explanation(explanation, was, question)
            known = "only amounts are" if name in asked.by_amounts else "all holdings are"
            show_note(f"Node {name}, of which {known} known. {NOT_KNOWN}")

        return 0 if explanation.admitted else 1

    return rank_and_explain(question, manifest, found, asked)


def _unbound(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest of a pod as it was before a node had it, under another uid."""
    metadata = {**manifest.get("metadata", {})}
    metadata["uid"] = f"{metadata.get('uid')}/again"
    spec = {key: value for key, value in manifest.get("spec", {}).items() if key != "nodeName"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def rank_and_explain(
    question: Question, manifest: dict[str, Any], found: PodDocument, asked: AskedCluster
) -> int:
    """Say what all nodes would say to a pod, and explain the first of those that refuse it for the commonest cause."""
    from alignup.cli.rank import answer_dict, placements, show
    from alignup.cluster.evictions import plan_room
    from alignup.cluster.node_totals import Fit
    from alignup.cluster.ranking import rank
    from alignup.explanations.why import explain

    cluster, pod = asked.cluster(), found.pod
    answer = cluster.evaluate(pod)
    answer.exact[[cluster.index(name) for name in asked.by_amounts]] = False
    ranking = rank(cluster, pod, answer, Fit(cluster))
    example = None if len(ranking.order) or not ranking.groups else ranking.groups[0].nodes[0]
    explanation = None if example is None else explain(asked.nodes[example], _unbound(manifest))
    plan = None
    if example is not None and len(asked.by_amounts) < len(asked.nodes):
        plan = plan_room(
            cluster, [pod], standings=asked.rules.standings, budgets=asked.rules.budgets
        )

    best = placements(cluster, answer, ranking, MOST_NODES)
    told = answer_dict(cluster, pod, ranking, best, {"strategy": "least-numa-nodes"})
    if question.as_json:
        told |= {
            "phase": found.phase,
            "unknown": list(asked.unknown),
            "byAmounts": sorted(asked.by_amounts),
        }
        told |= (
            {"example": {"node": example, **explanation.to_dict()}}
            if explanation is not None
            else {}
        )
        print_json(told | ({"room": plan.to_dict()} if plan is not None else {}))
    else:
        show(told, MOST_NODES)
        if explanation is not None:
            show_note(f"On node {example}:")
            show_explanation(explanation, view=question)

        if plan is not None and not plan.left_out:
            gone = ", ".join(
                f"{step.pod.namespaced_name} on {step.node}" for step in plan.evictions
            )
            words = counted(len(plan.evictions), "eviction")
            show_note(
                f"With {words} it has a place on {plan.placements[0].node}: {gone} (see `alignup "
                "rebalance`)"
            )

        show_note(NOT_KNOWN)

    return 0 if len(ranking.order) else 1
