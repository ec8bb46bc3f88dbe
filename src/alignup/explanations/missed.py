"""Says how well an admitted pod is aligned, and which better placement it missed and why.

Nothing is decided here: the offers and the merged hint of each decision are looked at as those of a refusal are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.errors import one_line
from alignup.explanations.cause import Cause, merge_cause
from alignup.explanations.manifests import asked_by
from alignup.text.counting import named, some_of
from alignup.topology_manager.scope import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alignup.explanations.explanation import ContainerPart
    from alignup.explanations.trial import Question, Trial
    from alignup.kubernetes.pod import Container
    from alignup.node.holdings import Holdings
    from alignup.topology_manager.admission import ContainerAllocation

# The most containers whose NUMA nodes a sentence names.
MOST_SHOWN: Final = 4


def admitted_cause(trial: Trial, containers: Sequence[ContainerPart]) -> Cause:
    """Return in one sentence how well the pod is aligned; its kind is `aligned`, `missed` or `not aligned`."""
    evicted = ", ".join(trial.admission.preempted)
    room = f"; the kubelet evicts {evicted} to make room" if evicted else ""
    missed = [one for one in containers if one.missed]
    several = len(containers) > 1
    if missed:
        first = missed[0]
        who = f"container {first.name!r}: " if several else ""
        more = f"; and {len(missed) - 1} more" if len(missed) > 1 else ""
        sentence = one_line(f"admitted, but not as well aligned as it could be: {who}{first.missed}{more}")
        return Cause(sentence + room, "missed")
    if trial.policy.name == "none":
        return Cause(f"admitted; policy none aligns nothing{room}", "not aligned")
    where = places_in_words(trial.before, {one.name: one.got for one in containers if one.got})
    if not where:
        return Cause(f"admitted; it requests nothing that is aligned to NUMA nodes{room}", "not aligned")
    each = ", each container where all its resources prefer to be" if several else ""
    return Cause(f"admitted, aligned {where}{each}{room}", "aligned")


def missed_by(trial: Trial, container: Container) -> str:
    """Return the better placement that a container of an admitted pod missed, and why; empty if there is none."""
    got = trial.got.get(container.name)
    question = next(
        (one for one in trial.questions if one.container is None or one.container.name == container.name), None
    )
    if got is None or question is None:
        return ""
    if got.affinity is not None and not got.affinity.preferred and question.hints:
        return _not_preferred(trial, question)
    nodes = numa_nodes_of(trial.before, got)
    if trial.policy.name == "none" and len(nodes) > 1:
        where = named("NUMA node", sorted(nodes))
        return f"its resources are on {where}, as policy none lets each provider take them wherever it can"
    if spare := spare_caches(trial.l3_groups, got):
        count = len(got.cpus or ())
        return f"its {count} CPUs are in more L3 caches than they need ({spare} more), though whole ones are preferred"
    return ""


def spare_caches(l3_groups: Sequence[int], got: ContainerAllocation) -> int:
    """Return in how many more L3 caches a container's CPUs are than would hold them; 0 where that does not matter."""
    cpus = int(got.cpus or 0)
    if not l3_groups or not cpus:
        return 0
    largest = max(group.bit_count() for group in l3_groups)
    return sum(bool(group & cpus) for group in l3_groups) - -(-cpus.bit_count() // largest)


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


def numa_nodes_of(there: Holdings, got: ContainerAllocation) -> set[int]:
    """Return the ids of the NUMA nodes that a container's CPUs, memory and devices lie in.

    A device that is near to several NUMA nodes lies in none of them alone, and does not count.
    """
    found = {node for block in got.memory if block.size for node in block.numa_nodes}
    cpus = int(got.cpus or 0)
    found |= {node for node, bits in there.node_cpus.items() if bits & cpus}
    for resource, ids in got.devices.items():
        amounts = there.amounts(resource)
        places = {} if amounts is None else amounts.devices
        found |= {nodes[0] for one in ids if len(nodes := places.get(one, ())) == 1}
    return found


def places_in_words(there: Holdings, containers: Mapping[str, ContainerAllocation]) -> str:
    """Return which NUMA nodes containers are on: all on the same ones, or container by container; empty if on none."""
    found = {name: nodes for name, got in containers.items() if (nodes := numa_nodes_of(there, got))}
    if not found:
        return ""
    first, *others = found.values()
    if all(nodes == first for nodes in others):
        return f"on {named('NUMA node', sorted(first))}"
    parts = [f"{named('NUMA node', sorted(nodes))} ({name})" for name, nodes in found.items()]
    return f"on {some_of(parts, MOST_SHOWN)}"
