"""Collects the changes that would help, each of which was tried, the best first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from alignup.node.explain.attempts import Attempts
from alignup.node.explain.kubelet_changes import more_pods, options
from alignup.node.explain.manifests import asked_by, manifest_of
from alignup.node.explain.pod_changes import node_reductions, pinned_shape, reductions, shapes
from alignup.node.explain.removals import removal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from alignup.node.explain.explanation import Suggestion
    from alignup.node.explain.trial import Trial
    from alignup.node.node import Node

MOST_SUGGESTIONS: Final = 5


def suggestions_for(
    node: Node, trial: Trial, blamed: Sequence[str], manifest: Mapping[str, Any] | None
) -> tuple[Suggestion, ...]:
    """Return what would help, the best first, each confirmed by trying it; the node stays as it is.

    For a refused pod these are changes under which it would be admitted; for one that missed a better placement,
    changes under which every container gets what it prefers, or CPUs of its own.

    Args:
        node: the node.
        trial: what the pod came upon there.
        blamed: the resources to blame for a refusal.
        manifest: the pod's manifest, if there is one.
    """
    attempts = _attempts(node, trial, manifest)
    if trial.admission.admitted:
        found = list(_for_admitted(attempts, trial))
    else:
        found = list(_for_refused(attempts, trial, blamed))
    return tuple(one for _, one in sorted(found, key=lambda one: one[0])[:MOST_SUGGESTIONS])


def _attempts(node: Node, trial: Trial, manifest: Mapping[str, Any] | None) -> Attempts:
    """Return the node and the pod to try changes on."""
    try:
        subject, is_copy = node.copy(), True
        if subject.memory is not None:
            subject.memory.says_why = False
    except TypeError:  # a user's provider has no copy()
        subject, is_copy = node, False
    return Attempts(subject, trial.pod, manifest_of(trial.pod, manifest), is_copy, aims_higher=trial.admission.admitted)


def _for_admitted(attempts: Attempts, trial: Trial) -> Iterator[tuple[float, Suggestion]]:
    """Yield changes under which every container gets what it prefers, or CPUs of its own."""
    if not all(got.affinity is not None and got.affinity.preferred for got in trial.got.values()):
        yield from _for_refused(attempts, trial, ())
    attempts.aims_higher = False
    yield from ((0.0, one) for one in pinned_shape(attempts))


def _for_refused(attempts: Attempts, trial: Trial, blamed: Sequence[str]) -> Iterator[tuple[float, Suggestion]]:
    """Yield changes, each with a number: the lower, the less is given up."""
    refusal = trial.admission.refusal
    if trial.limits is not None:
        yield from _for_node(attempts, trial, blamed)
        return
    container = refusal.container if refusal else None
    yield from ((0.1, one) for one in shapes(attempts, container))
    resources = blamed or tuple(dict.fromkeys(name for one in trial.pod.all_containers for name in asked_by(one)))
    yield from ((0.2 + 0.6 * lost, one) for lost, one in reductions(attempts, resources, container))
    removed = removal(attempts, trial.before, blamed)
    if removed is not None:
        yield 0.35 + min(0.4, 0.05 * len(removed.attempt["remove"])), removed
    if not _has_users_providers(attempts.node):
        yield from ((0.3 + 0.6 * lost, one) for lost, one in options(attempts, trial.before, blamed))


def _for_node(attempts: Attempts, trial: Trial, blamed: Sequence[str]) -> Iterator[tuple[float, Suggestion]]:
    """Yield changes for a pod that the kubelet's own checks refused."""
    yield from ((0.2 + 0.6 * lost, one) for lost, one in node_reductions(attempts, blamed))
    removed = removal(attempts, trial.before, blamed, as_whole=True)
    if removed is not None:
        yield 0.35 + min(0.4, 0.05 * len(removed.attempt["remove"])), removed
    if "pods" in blamed:
        yield from ((0.1, one) for one in more_pods(attempts, len(trial.others) + 1))


def _has_users_providers(node: Node) -> bool:
    """Return whether providers of a user take part, which a node of another configuration would lack."""
    own = (node.devices, node.cpu, node.memory)
    return any(all(provider is not one for one in own) for provider in node.manager.providers)
