"""Explains why a pod would be admitted or refused on a node: runs it on a copy and makes the record of what happened.

`alignup.explanations.trial` runs it, `cause` beside it finds the sentence, `suggestions` what would
help.
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
from alignup.explanations.product import Choice, product_of, reachable
from alignup.explanations.suggestions import suggestions_for
from alignup.explanations.trial import Question, Trial, tried
from alignup.kubernetes.pod import Pod, is_pinned_memory, why_shared
from alignup.topology_manager.policy import is_as_written
from alignup.topology_manager.refusal_message import view_of

if TYPE_CHECKING:
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
    """Return why `Node.admit` would admit or refuse the pod, and what would help; the node stays exactly as it is.

    >>> from alignup import Node, explain, read_machine
    >>> node = Node(read_machine("align-up-article"), {"topologyManagerPolicy": "restricted"})
    >>> resources = {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
    >>> pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "resources": resources}]}}
    >>> explain(node, pod).admitted
    True

    Args:
        node: the node.
        pod: a `Pod`, or a manifest; of a manifest, suggestions show a changed one.
        suggest: look for changes under which the pod would be admitted, or aligned better.

    Raises:
        InputError: the manifest is not one of a pod.
        PodExistsError: a pod of this uid is admitted already.
    """
    manifest = pod if isinstance(pod, Mapping) else None
    pod = node.read(pod)
    trial = tried(node, pod)
    containers = tuple(_container_parts(trial, is_static=node.cpu is not None))
    admission = trial.admission
    refused_in = admission.refusal.container if admission.refusal else None
    causes = causes_of(node, trial) if admission.refusal else (admitted_cause(trial, containers),)
    blamed = tuple(dict.fromkeys(resource for cause in causes for resource in cause.resources))
    told = prognosis(node, pod, refused_in, causes) if admission.refusal else causes
    questions = ((one, asked_by(one.container or pod)) for one in trial.questions)
    return Explanation(
        pod=pod.namespaced_name, uid=pod.uid, admitted=admission.admitted, reason=admission.reason,
        causes=tuple(one.sentence for one in told), cause_kind=told[0].kind, blamed=blamed, container=refused_in,
        never_fits=told[0].is_lasting,
        policy=trial.policy.name, scope=trial.scope, qos=str(pod.qos),
        steps=tuple(step_of(question, trial.policy, asked) for question, asked in questions), containers=containers,
        before=trial.before, after=trial.after, exact=admission.exact, preempted=admission.preempted,
        suggestions=suggestions_for(node, trial, told, blamed, manifest) if suggest else (), machine=node.machine,
    )  # fmt: skip


def step_of(question: Question, policy: Policy, asked: Mapping[str, int]) -> Step:
    """Return the record of one decision; `asked` is by resource, as far as that is known."""
    name, ids = policy.name, question.holdings.numa_node_ids
    merges = bool(question.hints)
    as_written = is_as_written(policy)
    found = reachable(question.hints, name, as_written=as_written) if merges else None
    return Step(
        None if question.container is None else question.container.name,
        tuple(_resource_parts(question, asked)),
        RULES.get(name, f"policy {name} decides"),
        question.affinity if merges else None,
        None if found is None else tuple(Choice.of(one, ids) for one in found[:KEPT]),
        None if found is None else len(found),
        product_of(question.hints, name, ids, as_written=as_written) if merges else None,
    )


def _resource_parts(question: Question, asked: Mapping[str, int]) -> Iterator[ResourcePart]:
    """Yield what a container, or the pod as a whole, asked for: CPUs, memory, devices, and what else was offered."""
    name = None if question.container is None else question.container.name
    offered = {
        resource: (provider, view_of(resource, hints, question.holdings.numa_node_ids))
        for provider, resources in question.hints.items()
        for resource, hints in (resources or {}).items()
    }
    for resource in [*asked, *(one for one in offered if one not in asked)]:
        amounts = question.holdings.amounts(resource)
        manager = (
            "cpu" if resource == "cpu" else "memory" if is_pinned_memory(resource) else "devices"
        )
        provider, view = offered.get(resource, ("" if amounts is None else manager, None))
        places = () if amounts is None else tuple(_places(question.holdings, amounts))
        yield ResourcePart(resource, name, provider, asked.get(resource), places, view)


def _places(holdings: Holdings, amounts: ResourceAmounts) -> Iterator[PlacePart]:
    """Yield the places of a resource, each with those who hold some of it there."""
    for place in amounts.places:
        found = holdings.holders(amounts, place.numa_nodes)
        holders = tuple(
            Holder(one.pod, one.container, amount, reused) for one, amount, reused in found
        )
        yield PlacePart(place.numa_nodes, place.capacity, place.reserved, place.free, holders)


def _container_parts(trial: Trial, *, is_static: bool) -> Iterator[ContainerPart]:
    """Yield the containers of the pod in the order of their admission."""
    for one in trial.pod.all_containers:
        yield ContainerPart(
            one.name, "sidecar" if one.is_sidecar else "init" if one.is_init else "container",
            one.exclusive_cpus if is_static else 0, why_shared(trial.pod, one) if is_static else NO_CPU_MANAGER,
            trial.got.get(one.name), missed_by(trial, one) if trial.admission.admitted else "",
        )  # fmt: skip
