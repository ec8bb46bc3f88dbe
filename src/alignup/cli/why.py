"""`alignup why`: says why a pod of a cluster is refused, or was rejected, and what would help.

`alignup explain --pod` does the same where neither a node nor a file is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from alignup.cli import options
from alignup.cli.explain_view import View, explanation_dict, show_explanation, show_note
from alignup.cli.rank import answer_dict, placements, say_what_is_unknown, show
from alignup.cli.terminal import print_json
from alignup.errors import InputError
from alignup.text.counting import counted

if TYPE_CHECKING:
    from alignup.control_plane.api_server.api_client import Api
    from alignup.control_plane.scheduler.ask import AskedCluster
    from alignup.kubernetes.pod_documents import PodDocument

TOP: Final = 10
NOT_KNOWN: Final = (
    "From what nodes publish. Not looked at: taints, affinity, spread constraints, volumes, and what other plugins of "
    "the scheduler refuse."
)


class Question(View):
    """Which pod is asked about, and how."""

    pod: str = options.argument("[NAMESPACE/]POD")
    namespace: str | None = options.value(
        "The namespace of the pod.  [default: the context's namespace]", "--namespace", "-n", metavar="NAME"
    )
    context: str | None = options.value(
        "The context of the kubeconfig.  [default: its current context]", metavar="NAME"
    )
    kubeconfig: str | None = options.asked_kubeconfig
    node_name: str | None = options.value("Explain the pod on this node in full.", metavar="NAME")
    as_json: bool = options.json()


@options.subcommand("why", "0 if some node would admit the pod, or it runs; 1 if none would")
def command(*, question: Question = options.all_of(Question)) -> int:
    """Say why a pod of a cluster is refused, or was rejected by its node, and what would help.

        kubectl alignup why ml/trainer-0
        alignup why trainer-0 --namespace ml --node-name node1

    It knows nodes by what they publish (`alignup node publish`). It only reads: pods, nodes, NodeResourceTopology
    objects and PodDisruptionBudgets.
    """
    return why(question)


def why(question: Question) -> int:
    """Answer a question, and return the exit status."""
    from alignup.control_plane.scheduler.ask import ask, read_cluster, read_pod
    from alignup.explanations.why import explain

    namespace, _, name = question.pod.rpartition("/")
    if "/" in namespace or not name:
        raise InputError.at("the pod", "POD or NAMESPACE/POD", question.pod)

    async def read(api: Api) -> tuple[dict[str, Any], PodDocument, AskedCluster]:
        manifest, found = await read_pod(api, namespace or question.namespace or api.namespace, name)
        return manifest, found, await read_cluster(api)

    manifest, found, asked = ask(question.kubeconfig, read, question.context)
    say_what_is_unknown(asked)
    name = question.node_name or found.node_name
    if found.node_name and not found.has_ended and question.node_name in {None, found.node_name}:
        told = {"pod": found.pod.name, "namespace": found.pod.namespace, "admitted": True, "node": found.node_name}
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


def rank_and_explain(question: Question, manifest: dict[str, Any], found: PodDocument, asked: AskedCluster) -> int:
    """Say what all nodes would say to a pod, and explain the first of those that refuse it for the commonest cause."""
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
        plan = plan_room(cluster, [pod], standings=asked.rules.standings, budgets=asked.rules.budgets)
    best = placements(cluster, answer, ranking, TOP)
    told = answer_dict(cluster, pod, ranking, best, {"strategy": "least-numa-nodes"})
    if question.as_json:
        told |= {"phase": found.phase, "unknown": list(asked.unknown), "byAmounts": sorted(asked.by_amounts)}
        told |= {"example": {"node": example, **explanation.to_dict()}} if explanation is not None else {}
        print_json(told | ({"room": plan.to_dict()} if plan is not None else {}))
    else:
        show(told, TOP)
        if explanation is not None:
            show_note(f"On node {example}:")
            show_explanation(explanation, view=question)
        if plan is not None and not plan.left_out:
            gone = ", ".join(f"{step.pod.namespaced_name} on {step.node}" for step in plan.evictions)
            words = counted(len(plan.evictions), "eviction")
            show_note(f"With {words} it has a place on {plan.placements[0].node}: {gone} (see `alignup rebalance`)")
        show_note(NOT_KNOWN)
    return 0 if len(ranking.order) else 1
