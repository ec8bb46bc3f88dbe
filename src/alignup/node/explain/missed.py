"""Says which better placement an admitted pod missed, and why: resources that are spread, or not where all prefer them.

Nothing is decided here: the offers and the merged hint of each decision are looked at as those of a refusal are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alignup.errors import one_line
from alignup.node.explain.cause import Cause, merge_cause
from alignup.node.explain.placement import nodes_in_words, numa_nodes_of
from alignup.node.explain.suggest.manifests import asked_by
from alignup.topology_manager.scope import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alignup.kubernetes.pod import Container
    from alignup.node.explain.explanation import ContainerPart
    from alignup.node.explain.trial import Question, Trial

__all__ = ["admitted_cause", "missed_by"]


def admitted_cause(trial: Trial, containers: Sequence[ContainerPart]) -> Cause:
    """Return in one sentence how well the pod is aligned; its kind is `aligned`, `missed` or `not aligned`."""
    missed = [one for one in containers if one.missed]
    several = len(containers) > 1
    if missed:
        first = missed[0]
        who = f"container {first.name!r}: " if several else ""
        more = f"; and {len(missed) - 1} more" if len(missed) > 1 else ""
        return Cause(
            one_line(f"admitted, but not as well aligned as it could be: {who}{first.missed}{more}"), "missed"
        )
    if trial.policy.name == "none":
        return Cause("admitted; policy none aligns nothing", "not aligned")
    nodes = {node for one in containers if one.got for node in numa_nodes_of(trial.before, one.got)}
    if not nodes:
        return Cause("admitted; it asks for nothing that is aligned to NUMA nodes", "not aligned")
    each = ", each container where all its resources prefer to be" if several else ""
    return Cause(f"admitted, aligned on {nodes_in_words(nodes)}{each}", "aligned")


def missed_by(trial: Trial, container: Container) -> str:
    """Return the better placement that a container of an admitted pod missed, and why; empty if there is none."""
    got = trial.got.get(container.name)
    question = next(
        (one for one in trial.questions if one.container is None or one.container.name == container.name),
        None,
    )
    if got is None or question is None:
        return ""
    if got.affinity is not None and not got.affinity.preferred and question.hints:
        return _not_preferred(trial, question)
    nodes = numa_nodes_of(trial.before, got)
    if trial.policy.name == "none" and len(nodes) > 1:
        return (
            f"its resources are on {nodes_in_words(nodes)}, "
            "as policy none lets each provider take them wherever it can"
        )
    return ""


def _not_preferred(trial: Trial, question: Question) -> str:
    """Return why the merged hint is not one that every resource prefers."""
    refusal = Refusal(
        "",
        container=None if question.container is None else question.container.name,
        policy="restricted" if trial.policy.name == "best-effort" else trial.policy.name,
        best=question.affinity,
        hints=tuple(question.hints.values()),
        accounts=question.accounts,
    )
    found = merge_cause(refusal, question.holdings, asked_by(question.container or trial.pod))
    return found.sentence.rpartition("; restricted ")[0] or found.sentence
