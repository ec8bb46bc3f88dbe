"""`alignup explain` and `why`: say why pods are admitted or refused, and what would help.

The pods are on a machine or in a cluster. `explain --pod` does the same as `why` where neither a
node nor a file is given. `alignup.cli.explain_view` prints an explanation.
"""

from __future__ import annotations

from collections import Counter
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
from alignup.cli.explain_view import (
    View,
    explanation_dict,
    show_explanation,
    show_note,
    show_verdict,
)
from alignup.cli.failures import need_extra
from alignup.cli.terminal import first_to_last, make_console, print_json, print_line
from alignup.errors import InputError
from alignup.text.counting import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from alignup.claims.preview import ClaimsOutcome
    from alignup.cluster.evictions import RoomPlan
    from alignup.control_plane.api_server.api_client import Api
    from alignup.control_plane.scheduler.ask import AskedCluster
    from alignup.explanations.explanation import Explanation
    from alignup.kubernetes.groups import Membership
    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.pod_documents import PodDocument
    from alignup.kubernetes.versions import KubeletVersion
    from alignup.node import Node
    from alignup.replay.scenario import Resize
    from alignup.topology_manager.admission import Admission

MOST_NODES: Final = 10
PRESENT: Final = "it is on the node already"

NOT_KNOWN: Final = (
    "From what nodes publish. Not looked at: taints, affinity, spread constraints, volumes, and "
    "what other plugins of the scheduler refuse."
)

# By whether the node's devices for a pod's claims are near its CPUs and memory.
_NEARNESS: Final = {
    True: " (near the devices of its claims)",
    False: " (far from the devices of its claims)",
}


@options.subcommand(
    "explain", "0 if every pod is admitted; 1 if one is refused, or requests what is unknown here"
)
def command(
    *,
    source: inputs.NodeSource = options.all_of(inputs.NodeSource),
    version: KubeletVersion | None = options.kubelet_version,
    chosen: str | None = options.value(
        "Explain only this pod, after the pods before it in the input. Without an input, a pod of "
        "the cluster that kubectl uses (see `alignup why`).",
        "--pod",
        metavar="NAMESPACE/NAME",
    ),
    nodes: str | None = options.file(
        "Other nodes, in the formats of `alignup rank`. Of a pod that is refused, or far from the "
        "devices of its claims, say which of them would take it now.",
        *("--nodes", "-n"),
    ),
    log: str | None = options.file(
        "The log of a kubelet: explain what it refused, or why it does not start.", "--log"
    ),
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

    Pods are explained in turn, and admitted if they fit; refused ones are printed first. With
    --node and no file, those that this node's kubelet rejected are explained, newest first. Each
    suggested change was tried.

    --log, without other inputs, explains each refused pod from a kubelet's log: the hints of each
    provider, what they merge into, the cause, and what no log says. Of a kubelet that does not
    start it says why, and how to mend that. `journalctl -u kubelet |
    alignup explain --log -`

    Manifests are those of `alignup admit`; `-` reads standard input. Of a group it is said how many
    members fit, and what the next one lacks. A pod that its kubelet has
    rejected (phase Failed, a reason such as TopologyAffinityError) is explained after all others,
    against the node as it is now: why it was rejected, and whether there is room by now. --svg
    draws the first pod that is refused, or else the last pod; --html shows all pods.
    """
    if log is not None:
        from alignup.cli.explain_log import explain_log

        return explain_log(log, chosen, view, (*pods, nodes, source.kubelet_node), as_json=as_json)

    has_machine = source.kubelet_node is not None or source.machine != inputs.HERE
    if chosen is not None and not pods and not has_machine:
        need_extra("cluster")
        question = Question(
            pod=chosen,
            kubeconfig=source.kubeconfig,
            node_name=source.node_name,
            as_json=as_json,
            product=view.product,
            tables=view.tables,
        )
        return answer_question(question)

    loaded = inputs.load_node(source, version)
    if resize:
        resizes = inputs.asked_resizes(pods, source, loaded)
        return explain_resizes(loaded, resizes, as_json=as_json)

    requested = inputs.asked_pods(pods, source, loaded, chosen=chosen, rejected=True)
    rejected_pods = [document.pod for document in requested.rejected]
    say_what_is_ignored(loaded, [*requested.pods, *rejected_pods], source)
    other_nodes = None if nodes is None else OtherNodes(nodes, version, source.resources)
    groups = ToldGroups(requested.memberships)
    teller = Teller(other_nodes, view, groups, as_json=as_json)
    if pictures.take_the_output:
        explanations = [case.explanation for case in explained(loaded.node, requested)]
    else:
        explanations = tell_all(teller, loaded.node, requested)
        if not as_json:
            show_note(loaded.title)

    if pictures and explanations:
        from alignup.pictures.drawing import explanation_scene, explanations_page
        from alignup.pictures.picture import drawing_of

        title = "Why pods are admitted or refused"
        refused = (explanation for explanation in explanations if not explanation.admitted)
        subject = next(refused, explanations[-1])
        pictures.write(
            lambda: drawing_of(explanation_scene(subject)),
            lambda: explanations_page(title, explanations),
        )

    is_open = any(explanation.is_open for explanation in explanations)
    if is_open and not source.ignore_unknown:
        return 1
    return 0 if all(explanations) else 1


def tell_all(teller: Teller, node: Node, requested: inputs.AskedPods) -> list[Explanation]:
    """Print the explanation of each pod, and return all of them in the order of the input."""
    for pod in requested.present:
        teller.tell_present(pod)

    explanations = []
    for case in explained(node, requested):
        explanations.append(case.explanation)
        teller.tell(case)

    teller.end()
    return explanations


def explain_resizes(loaded: inputs.LoadedNode, resizes: Sequence[Resize], *, as_json: bool) -> int:
    """Explain resizes one after the other, and return the exit status.

    Each is explained on the node as those before it left it.
    """
    from alignup.explanations.pod_changes import explain_resize

    status = 0
    for request in resizes:
        explanation = explain_resize(loaded.node, request.uid, request.containers, request.pod)
        loaded.node.resize(request.uid, request.containers, request.pod)
        if not explanation:
            status = 1

        if as_json:
            print_json(explanation.to_dict())
            continue

        answer = explanation.answer
        sentence = f"{explanation.pod} resize: {answer.status}"
        if answer.message:
            sentence += f", {answer.message}"

        print_line(sentence)
        if explanation.cause:
            print_line(f"  {explanation.cause}")

        for sentence in explanation.kept:
            print_line(f"  but {sentence}")

        for suggestion in explanation.suggestions:
            print_line(f"  would help: {suggestion.text}")

    return status


class Explained(NamedTuple):
    """A pod and its explanation.

    Attributes:
        is_alike: it differs from the pod before in its name only, and is refused for the same
            words.
        rejection: the pod's document, if its kubelet has rejected it before.
        outcome: what its claims come to.
        fault: the known fault that its kubelet comes upon, as JSON has it.
    """

    pod: Pod
    explanation: Explanation
    is_alike: bool = False
    rejection: PodDocument | None = None
    outcome: ClaimsOutcome | None = None
    fault: Mapping[str, str] = {}

    @property
    def is_settled(self) -> bool:
        """Whether the pod is admitted, and nothing is left to look after."""
        if self.outcome is not None and (self.outcome.refusal or self.outcome.meet is False):
            return False
        return self.rejection is None and self.explanation.admitted and not self.explanation.is_open


def explained(node: Node, requested: inputs.AskedPods) -> Iterator[Explained]:
    """Explain each pod and then admit it, and after them those that their kubelet rejected."""
    from alignup.explanations.why import explain

    for pod in requested.before:
        node.admit(pod)

    last_refusal: tuple[Pod, Admission, Explanation] | None = None
    for pod in requested.pods:
        explanation = None
        if last_refusal is not None and same_refusal(last_refusal, (pod, node.try_admit(pod))):
            _, _, last_explanation = last_refusal
            explanation = last_explanation.of_alike(pod)

        is_alike = explanation is not None
        if explanation is None:
            explanation = explain(node, pod)

        fault = fault_of(node, pod)
        yield Explained(pod, explanation, is_alike, outcome=claims_on(node, pod), fault=fault)

        admission = node.admit(pod)
        last_refusal = None if admission else (pod, admission, explanation)

    for document in requested.rejected:
        pod = document.pod
        explanation = explain(node, pod)
        yield Explained(pod, explanation, rejection=document, outcome=claims_on(node, pod))


class ToldGroups:
    """How many members of each group of the input fit on the node, beside what comes before them.

    The argument is the group of each member, by its uid.
    """

    def __init__(self, memberships: Mapping[str, Membership]) -> None:
        self._memberships = memberships
        self._totals = Counter(membership.key for membership in memberships.values())
        self._outcomes: dict[tuple[str, str, str], list[tuple[str, str]]] = {}

    def taken(self, pod: Pod, cause: str = "") -> dict[str, Any]:
        """Take in that a pod fits, or why it does not.

        Return what came of its group, in JSON's types, with the last of its members; else nothing.
        """
        membership = self._memberships.get(pod.uid)
        if membership is None:
            return {}

        outcomes = self._outcomes.setdefault(membership.key, [])
        outcomes.append((pod.name, cause))
        if len(outcomes) < self._totals[membership.key]:
            return {}
        return {"group": _group_dict(membership, outcomes)}


def _group_dict(membership: Membership, outcomes: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return what came of a group in JSON's types.

    Args:
        membership: that of any member.
        outcomes: by member the name, and why it does not fit; empty: it does.
    """
    from alignup.cluster.pod_groups import fitting_in_words, presence_in_words

    members = len(outcomes)
    needed = membership.size or members
    fitting = sum(not cause for _, cause in outcomes)
    words = fitting_in_words(fitting, members)
    if membership.fault:
        words = membership.fault
    elif members < needed:
        words = f"{presence_in_words(members, needed)}; {words}"

    lacking = next(((name, cause) for name, cause in outcomes if cause), None)
    if lacking is not None:
        words += f"; {lacking[0]} lacks a place: {lacking[1]}"

    return {
        "name": f"{membership.namespace}/{membership.name}",
        "kind": membership.kind,
        "members": members,
        "needed": needed,
        "fitting": fitting,
        "reason": words,
    }


class Teller:
    """Prints explanations, each as soon as it is there, but for people the admitted pods last.

    Beside refused ones an admitted pod is one line. Refused pods that are alike are counted. Of a
    pod that is refused, or has claims whose devices are not near its CPUs and memory, it says which
    of some other nodes would take it.
    """

    def __init__(
        self, other_nodes: OtherNodes | None, view: View, groups: ToldGroups, *, as_json: bool
    ) -> None:
        self._other_nodes = other_nodes
        self._groups = groups
        self._group_lines: list[str] = []
        self._view = view
        self._as_json = as_json
        self._count = 0
        self._alike: list[Pod] = []
        self._admitted: list[Explained] = []
        self._has_refused = False

    def tell(self, case: Explained) -> None:
        """Print an explanation, and which other nodes would take the pod."""
        group = {}
        if case.rejection is None:
            cause = case.explanation.cause or case.explanation.reason
            group = self._groups.taken(case.pod, "" if case.explanation.admitted else cause)
            self._note_group(group)

        if self._as_json:
            self._print_json(case, group)
        elif case.is_alike:
            self._alike.append(case.pod)
        elif case.is_settled:
            self._admitted.append(case)
        else:
            self._has_refused = True
            self._show(case)

    def _note_group(self, group: Mapping[str, Any]) -> None:
        for outcome in group.values():
            self._group_lines.append(f"Group {outcome['name']}: {outcome['reason']}")

    def _print_json(self, case: Explained, group: Mapping[str, Any]) -> None:
        fields = explanation_dict(case.explanation, case.rejection, product=self._view.product)
        fields |= claims_dict(case.outcome)
        taking = self._taking(case)
        if taking:
            fields["cluster"] = taking

        print_json({**fields, **case.fault, **group})

    def _show(self, case: Explained) -> None:
        self._end_of_alike()
        click.echo(nl=self._count > 0)
        self._count += 1
        show_explanation(case.explanation, case.rejection, self._view)
        for number, line in enumerate(outcome_lines(case.outcome)):
            if number == 0:
                show_note(line)
            else:
                print_line(line)

        taking = self._taking(case)
        if taking:
            show_note(taking_words(taking))

    def end(self) -> None:
        """Print what is still to be said, of the admitted pods too."""
        self._end_of_alike()
        if self._admitted and self._has_refused:
            click.echo()

        for case in self._admitted:
            if self._has_refused:
                show_verdict(make_console(), case.explanation)
            else:
                self._show(case)

        if not self._as_json:
            for line in self._group_lines:
                show_note(line)

    def _taking(self, case: Explained) -> dict[str, Any] | None:
        """Return which other nodes would take a pod; None: it needs none, or there are none."""
        if self._other_nodes is None:
            return None

        has_far_devices = case.outcome is not None and case.outcome.meet is False
        is_settled = case.explanation.admitted and not case.explanation.is_open
        if is_settled and not has_far_devices:
            return None
        return self._other_nodes.taking(case.pod)

    def _end_of_alike(self) -> None:
        """Say how many pods were explained alike."""
        alike, self._alike = self._alike, []
        if not alike:
            return

        names = first_to_last(pod.name for pod in alike)
        show_note(f"and {counted(len(alike), 'more pod')} alike: {names}")

    def tell_present(self, pod: Pod) -> None:
        """Say that a pod is on the node already."""
        label = pod.namespaced_name
        group = self._groups.taken(pod)
        self._note_group(group)
        if self._as_json:
            print_json(
                {
                    "pod": label,
                    "namespace": pod.namespace,
                    "uid": pod.uid,
                    "admitted": True,
                    "reason": "",
                    "cause": PRESENT,
                    "isThere": True,
                    **group,
                }
            )
        else:
            print_line(f"{label}: {PRESENT}")
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
        from alignup.cluster.shortages import Fit

        self._cluster = load_cluster(name, version, resources=resources)
        self._fit = Fit(self._cluster)

    def taking(self, pod: Pod) -> dict[str, Any]:
        """Return how many nodes there are, how many would take the pod, and the best ones.

        It is in JSON's types.
        """
        from alignup.cli.rank import placements
        from alignup.cluster.ranking import rank

        answer = self._cluster.evaluate(pod)
        ranking = rank(self._cluster, pod, answer, self._fit)
        best = placements(self._cluster, answer, ranking, MOST_NODES)
        return {"nodes": len(self._cluster), "admitting": len(ranking.order), "best": best}


def taking_words(taking: dict[str, Any]) -> str:
    """Return the same as a line for people."""
    count = counted(taking["nodes"], "other node")
    sentence = f"{taking['admitting']} of {count} would take it now"

    labels = []
    for placement in taking["best"]:
        label = placement["node"]
        if not placement["exact"]:
            label += " (only amounts are known)"

        labels.append(label + _NEARNESS.get(placement.get("draAligned"), ""))

    if labels:
        sentence += f": {', '.join(labels)}"
        more = taking["admitting"] - len(labels)
        if more:
            sentence += f" and {more} more"

    return sentence


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
    from alignup.control_plane.gates.reasons import standing, without_gate
    from alignup.control_plane.scheduler.ask import ask, read_cluster, read_pod
    from alignup.explanations.why import explain

    namespace, _, name = question.pod.rpartition("/")
    if "/" in namespace or not name:
        raise InputError.at("the pod", "POD or NAMESPACE/POD", question.pod)

    async def read(api: Api) -> tuple[dict[str, Any], PodDocument, AskedCluster]:
        pod_namespace = namespace or question.namespace or api.namespace
        manifest, document = await read_pod(api, pod_namespace, name)
        return manifest, document, await read_cluster(api)

    manifest, document, cluster = ask(question.kubeconfig, read, question.context)
    say_what_is_unknown(cluster)

    pod = document.pod
    is_on_node = document.node_name and not document.has_ended
    if is_on_node and question.node_name in {None, document.node_name}:
        if question.as_json:
            print_json(
                {
                    "pod": pod.name,
                    "namespace": pod.namespace,
                    "admitted": True,
                    "node": document.node_name,
                }
            )
        else:
            show_note(f"{pod.namespaced_name} is on node {document.node_name}, {document.phase}")

        return 0

    node_name = question.node_name or document.node_name
    if not node_name:
        return rank_and_explain(
            question, manifest, document, cluster, standing(manifest, cluster.waiting)
        )

    explanation = explain(cluster.node(node_name), _unbound(manifest))
    rejection = None
    if document.was_rejected and node_name == document.node_name:
        rejection = document

    # where nobody uses the gates, a pod without one is nothing to be told
    hint = without_gate(manifest) if rejection and cluster.has_places else ""
    is_exact = node_name not in cluster.by_amounts
    if question.as_json:
        fields = explanation_dict(explanation, rejection, product=question.product)
        fields |= {"standing": hint} if hint else {}
        print_json(fields | {"node": node_name, "exact": is_exact})
    else:
        show_explanation(explanation, rejection, question)
        if hint:
            show_note(hint)
        extent = "all holdings are" if is_exact else "only amounts are"
        show_note(f"Node {node_name}, of which {extent} known. {NOT_KNOWN}")

    return 0 if explanation.admitted else 1


def _unbound(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest of a pod as it was before a node had it, under another uid."""
    metadata = {**manifest.get("metadata", {})}
    metadata["uid"] = f"{metadata.get('uid')}/again"
    spec = {key: value for key, value in manifest.get("spec", {}).items() if key != "nodeName"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def rank_and_explain(
    question: Question,
    manifest: dict[str, Any],
    document: PodDocument,
    asked_cluster: AskedCluster,
    standing: str,
) -> int:
    """Say what all nodes would say to a pod, and return the exit status.

    If none would take it, explain the first of those that refuse it for the commonest cause.
    """
    from alignup.cli.rank import answer_dict, placements, show
    from alignup.cluster.evictions import plan_room
    from alignup.cluster.ranking import rank
    from alignup.cluster.shortages import Fit
    from alignup.explanations.why import explain

    cluster = asked_cluster.cluster()
    pod = document.pod
    evaluation = cluster.evaluate(pod)
    evaluation.exact[[cluster.index(name) for name in asked_cluster.by_amounts]] = False
    ranking = rank(cluster, pod, evaluation, Fit(cluster))

    example = None
    explanation = None
    plan = None
    if not ranking.order and ranking.groups:
        example = ranking.groups[0].nodes[0]
        explanation = explain(asked_cluster.nodes[example], _unbound(manifest))
        if len(asked_cluster.by_amounts) < len(asked_cluster.nodes):
            rules = asked_cluster.rules
            plan = plan_room(cluster, [pod], standings=rules.standings, budgets=rules.budgets)

    best = placements(cluster, evaluation, ranking, MOST_NODES)
    fields = answer_dict(cluster, pod, ranking, best, {"strategy": "least-numa-nodes"})
    if question.as_json:
        fields["phase"] = document.phase
        fields["unknown"] = list(asked_cluster.unknown)
        fields["byAmounts"] = sorted(asked_cluster.by_amounts)
        if standing:
            fields["standing"] = standing
        if explanation is not None:
            fields["example"] = {"node": example, **explanation.to_dict()}
        if plan is not None:
            fields["room"] = plan.to_dict()

        print_json(fields)
    else:
        show(fields, MOST_NODES)
        if standing:
            show_note(standing)
        if explanation is not None:
            show_note(f"On node {example}:")
            show_explanation(explanation, view=question)

        if plan is not None and not plan.left_out:
            show_note(_plan_in_words(plan))

        show_note(NOT_KNOWN)

    return 0 if ranking.order else 1


def _plan_in_words(plan: RoomPlan) -> str:
    """Return the evictions after which a pod has a place, as a line."""
    count = counted(len(plan.evictions), "eviction")
    evictions = ", ".join(f"{step.pod.namespaced_name} on {step.node}" for step in plan.evictions)
    place = plan.placements[0].node
    return f"With {count} it has a place on {place}: {evictions} (see `alignup rebalance`)"
