"""Explains why a pod would be admitted or refused on a node.

It is run on a copy, and what happened becomes a record. `alignup.explanations.trial` runs it,
`cause` beside it finds the sentence, `suggestions` what would help.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from alignup.explanations.cause import admitted_cause, causes_of, missed_by, prognosis
from alignup.explanations.explanation import (
    ContainerPart,
    Explanation,
    Holder,
    PlacePart,
    ResourcePart,
    Step,
)
from alignup.explanations.manifests import asked_by
from alignup.explanations.product import Choice, merged_score, product_of, reachable
from alignup.explanations.removals import kept_after_init
from alignup.explanations.suggestions import kinds_tried, suggestions_for
from alignup.explanations.trial import Question, Trial, tried
from alignup.explanations.words import extent_in_words, shared_pool_notes
from alignup.kubernetes.pod import Container, Pod, is_pinned_memory, why_shared
from alignup.records import replace
from alignup.topology_manager.policy import is_as_written
from alignup.topology_manager.refusal_message import view_of

if TYPE_CHECKING:
    from alignup.explanations.cause import Cause
    from alignup.explanations.explanation import Suggestion
    from alignup.node.holdings import Holdings, ResourceAmounts
    from alignup.node.node import Node
    from alignup.topology_manager.policy import Policy

# The results of a merge that are listed; their number is given beside them.
KEPT = 64

NO_CPU_MANAGER = "the CPU manager's policy is none, so no container gets CPUs of its own"

# By policy, the rule that decides.
RULES = {
    "none": "policy none aligns nothing: each manager allocates wherever it can",
    "best-effort": "best-effort takes the best set of NUMA nodes that every resource offers, "
    "and refuses no pod for its alignment",
    "restricted": "restricted admits only with a set of NUMA nodes that every resource prefers: "
    "as few nodes as it would need on the empty machine",
    "single-numa-node": (
        "single-numa-node admits only with one NUMA node that every resource prefers"
    ),
}


def explain(node: Node, pod: Pod | Mapping[str, Any], *, suggest: bool = True) -> Explanation:
    """Return why `Node.admit` would admit or refuse the pod, and what would help.

    The node stays exactly as it is.

    Args:
        node: the node.
        pod: a `Pod`, or a manifest; of a manifest, suggestions show a changed one.
        suggest: look for changes under which the pod would be admitted, or aligned better.

    Raises:
        InputError: the manifest is not one of a pod.
        PodExistsError: a pod of this uid is admitted already.

    Examples:
        >>> from alignup import Node, explain, read_machine
        >>> node = Node(read_machine("align-up-article"), {"topologyManagerPolicy": "restricted"})
        >>> amounts = {"cpu": "2", "memory": "1Gi"}
        >>> container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
        >>> pod = {"metadata": {"name": "a"}, "spec": {"containers": [container]}}
        >>> explain(node, pod).admitted
        True
    """
    if isinstance(node, Mapping | Pod):
        raise TypeError("explain takes the node first, and then the pod")

    manifest = pod if isinstance(pod, Mapping) else None
    pod = node.read(pod)
    trial = tried(node, pod)
    containers = tuple(_container_parts(trial, is_static=node.cpu is not None))

    admission = trial.admission
    refused_container = None
    unknown = node.unknown_requests(pod)
    is_open = node.leaves_open(unknown)
    extent = extent_in_words(node, pod, unknown)
    if admission.refusal is None:
        causes: tuple[Cause, ...] = (admitted_cause(trial, containers, extent, is_open=is_open),)
        shown_causes = causes
    else:
        refused_container = admission.refusal.container
        causes = causes_of(node, trial)
        shown_causes = prognosis(node, pod, refused_container, causes)

        first = shown_causes[0]
        kept = kept_after_init(node.pods, trial.before, first.resources)
        if kept and not first.is_lasting and trial.limits is None:
            shown_causes = (replace(first, sentence=f"{first.sentence}; {kept}"), *shown_causes[1:])

    blamed = tuple(dict.fromkeys(resource for cause in causes for resource in cause.resources))
    steps = tuple(
        step_of(
            question,
            trial.policy,
            asked_by(question.container or pod),
            claimed_of(pod, question.container),
        )
        for question in trial.questions
    )
    suggestions: tuple[Suggestion, ...] = ()
    kinds: tuple[str, ...] = ()
    if suggest:
        suggestions = suggestions_for(node, trial, shown_causes, blamed, manifest)
        if not (suggestions or admission.admitted):
            kinds = kinds_tried(node, trial, manifest)

    notes: tuple[str, ...] = ()
    if admission.admitted:
        is_shared = any(container.shared_because for container in containers)
        notes = shared_pool_notes(node, trial.after.shared_cpus, is_used=is_shared)

    return Explanation(
        pod=pod.namespaced_name,
        uid=pod.uid,
        admitted=admission.admitted,
        reason=admission.reason,
        causes=tuple(cause.sentence for cause in shown_causes),
        cause_kind=shown_causes[0].kind,
        blamed=blamed,
        container=refused_container,
        never_fits=shown_causes[0].is_lasting,
        policy=trial.policy.name,
        scope=trial.scope,
        qos=str(pod.qos),
        steps=steps,
        containers=containers,
        before=trial.before,
        after=trial.after,
        exact=admission.exact,
        preempted=admission.preempted,
        suggestions=suggestions,
        machine=node.machine,
        notes=notes,
        tried=kinds,
        unknown=unknown,
        is_open=is_open,
        extent=extent,
    )


def claimed_of(pod: Pod, container: Container | None) -> frozenset[str]:
    """Return the extended resources of a container, or of all, for which a claim stands."""
    return frozenset(
        resource
        for name, resource in pod.constraints.claimed_devices
        if container is None or name == container.name
    )


def step_of(
    question: Question,
    policy: Policy,
    requests: Mapping[str, int],
    claimed: frozenset[str] = frozenset(),
) -> Step:
    """Return the record of one decision.

    Args:
        question: what was asked.
        policy: that decided.
        requests: by resource, as far as that is known.
        claimed: the resources for which a claim stands.
    """
    container = None if question.container is None else question.container.name
    parts = tuple(_resource_parts(question, requests, claimed))
    rule = RULES.get(policy.name, f"policy {policy.name} decides")
    if not question.hints:
        return Step(container, parts, rule)

    ids = question.holdings.numa_node_ids
    as_written = is_as_written(policy)
    choices, choice_count = None, None
    results = reachable(question.hints, policy.name, as_written=as_written)
    if results is not None:
        choices = tuple(Choice.of(result, ids) for result in results[:KEPT])
        choice_count = len(results)

    scores = question.scores
    best_score = None
    if scores is not None and question.affinity is not None:
        best_score = merged_score(question.hints, policy.name, question.affinity, scores, len(ids))

    return Step(
        container,
        parts,
        rule,
        best=question.affinity,
        best_score=best_score,
        reachable=choices,
        reachable_count=choice_count,
        product=product_of(question.hints, policy.name, ids, as_written=as_written, scores=scores),
    )


def _resource_parts(
    question: Question, requests: Mapping[str, int], claimed: frozenset[str]
) -> Iterator[ResourcePart]:
    """Yield what a container, or the pod as a whole, asked for, and what else was offered."""
    name = None if question.container is None else question.container.name
    offers = {
        resource: (provider, view_of(resource, hints, question.holdings.numa_node_ids))
        for provider, resources in question.hints.items()
        for resource, hints in (resources or {}).items()
    }
    for resource in dict.fromkeys([*requests, *offers]):
        amounts = question.holdings.amounts(resource)
        provider, view = offers.get(resource, ("", None))
        if resource not in offers and resource in claimed:
            provider, amounts = "claims", None
        elif resource not in offers and amounts is not None:
            provider = _manager_of(resource)

        places = () if amounts is None else tuple(_places(question.holdings, amounts))
        yield ResourcePart(resource, name, provider, requests.get(resource), places, view)


def _manager_of(resource: str) -> str:
    """Return the name of the provider that gives out a resource."""
    if resource == "cpu":
        return "cpu"
    if is_pinned_memory(resource):
        return "memory"
    return "devices"


def _places(holdings: Holdings, amounts: ResourceAmounts) -> Iterator[PlacePart]:
    """Yield the places of a resource, each with those who hold some of it there."""
    for place in amounts.places:
        holders = tuple(
            Holder(holding.pod, holding.container, amount, reused)
            for holding, amount, reused in holdings.holders(amounts, place.numa_nodes)
        )
        yield PlacePart(place.numa_nodes, place.capacity, place.reserved, place.free, holders)


def _container_parts(trial: Trial, *, is_static: bool) -> Iterator[ContainerPart]:
    """Yield the containers of the pod in the order of their admission."""
    for container in trial.pod.all_containers:
        exclusive_cpus = 0
        shared_because = NO_CPU_MANAGER
        if is_static:
            exclusive_cpus = container.exclusive_cpus
            shared_because = why_shared(trial.pod, container)

        yield ContainerPart(
            container.name,
            _kind_of(container),
            exclusive_cpus,
            shared_because,
            trial.allocations.get(container.name),
            missed_by(trial, container) if trial.admission.admitted else "",
        )


def _kind_of(container: Container) -> str:
    """Return what kind a container is: `init`, `sidecar` or `container`."""
    if container.is_sidecar:
        return "sidecar"
    if container.is_init:
        return "init"
    return "container"
