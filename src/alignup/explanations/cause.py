"""Says in one plain sentence why a pod was refused, and names the resources to blame.

Which resources are to blame is found in `alignup.topology_manager.refusal_message`; the amounts are
those of the moment of the refusal. To find the next cause, the pod is tried again without the
resources that this cause names. So the container, or the pod as a whole, would pass if it requested
none of the resources named.

Of an admitted pod it says how well it is aligned, and which better placement it missed and why: the
offers and the merged hint of each decision are looked at as those of a refusal are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from alignup.errors import one_line
from alignup.explanations.manifests import asked_by
from alignup.explanations.trial import Question, Trial, emptied, has_users_providers, tried
from alignup.kubernetes.node_fit import NodeObject, is_critical, requests_of
from alignup.kubernetes.pod import Container, Pod, effective_request, is_pinned_memory
from alignup.providers.cpu.provider import SMT_ALIGNMENT_ERROR
from alignup.providers.pod_pool import empty_shared_pool
from alignup.records import Record, field, replace
from alignup.text.counting import amount_in, counted, named, shared_unit, some_of
from alignup.topology_manager.refusal_account import in_words
from alignup.topology_manager.refusal_message import (
    LIMIT_REACHED,
    Amounts,
    cause,
    kind_of,
    too_little,
)
from alignup.topology_manager.scope import Refusal

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from alignup.explanations.explanation import ContainerPart
    from alignup.node.holdings import Holdings
    from alignup.node.node import Node
    from alignup.topology_manager.admission import ContainerAllocation

# By reason, why the kubelet's own checks refuse a pod, where that needs no more words.
NODE_CAUSES: Final = {
    "NodeAffinity": (
        "the node's labels do not match the pod's node selector or required node affinity"
    ),
    "NodePorts": "host ports of the pod are taken",
    "TaintToleration": "the pod does not tolerate a NoExecute taint of the node",
}

MOST_CAUSES: Final = 8

# Kinds of causes of which it is told if they hold on the empty node too: of amounts, and of the
# policy.
_OF_AMOUNTS: Final = frozenset({"too little", "allocation", "node"})

_OF_POLICY: Final = frozenset({"one node", "spread", "conflict"})

# The most containers whose NUMA nodes a sentence names.
MOST_SHOWN: Final = 4


class Cause(Record):
    """Why a pod was refused.

    Attributes:
        kind: as `alignup.topology_manager.refusal_message.kind_of` has it, or `allocation`: a
            provider could not allocate, or `whole cores`: not as full-pcpus-only wants. `pod
            policy`: the policy that the pod brings. `node`: the kubelet's own checks, of the node
            as a whole.
        resources: the resources to blame. Of a conflict each one is needed for it; otherwise each
            is enough by itself.
        limits: of each of these how much is free, or where it says so, at most on one NUMA node;
            empty of a conflict.
        is_lasting: it holds on the empty node too.
    """

    sentence: str
    kind: str
    resources: tuple[str, ...] = ()
    limits: Mapping[str, int | None] = field(default_factory=dict, hash=False)
    is_lasting: bool = False


def cause_of(trial: Trial, refusal: Refusal) -> Cause:
    """Return why the pod was refused."""
    if trial.limits is not None:
        return Cause(one_line(_of_node(trial, trial.limits, refusal)), "node", refusal.resources)

    question = trial.questions[-1] if trial.questions else None
    if question is None or (refusal.detail and not question.failed):
        return Cause(one_line(refusal.detail), "pod policy")

    pool = _empty_pool(trial, question)
    amounts = {} if pool else _amounts_in(trial, question)
    if pool:
        found = pool
    elif question.failed:
        found = _of_allocation(trial, question, refusal, amounts)
    else:
        found = merge_cause(refusal, question.holdings.numa_node_ids, amounts)
        if "cpu" in found.resources:
            left = _left_behind(trial.pod, question)
            join = ", and " if found.kind == "conflict" else ", so "
            found = replace(
                found, sentence=f"{left}{join}{found.sentence}" if left else found.sentence
            )

    limit = "" if trial.admission.exact else LIMIT_REACHED
    is_of_one = found.kind in {"one node", "spread"}
    known = {
        name: amounts[name]
        for name in found.resources
        if name in amounts and found.kind != "conflict"
    }
    limits = {name: one.on_one_node if is_of_one else one.free for name, one in known.items()}
    return replace(found, sentence=one_line(found.sentence) + limit, limits=limits)


def _left_behind(pod: Pod, question: Question) -> str:
    """Return which CPUs of init containers the container must reuse, as the beginning of a cause; empty: none."""
    if question.container is None:
        return ""

    ended = {one.name for one in pod.init_containers if not one.is_sidecar} - {
        question.container.name
    }
    left = [
        (
            f"CPU{'s' * (len(one.cpus) > 1)} {one.cpus} of init container {one.container!r} on "
            f"{named('NUMA node', nodes)}"
        )
        for one in question.holdings.containers
        if one.pod_uid == pod.uid and one.container in ended and one.cpus
        for nodes in [
            [node for node, cpus in question.holdings.node_cpus.items() if cpus & int(one.cpus)]
        ]
    ]
    return f"it must reuse {' and '.join(left)}" if left else ""


def _of_node(trial: Trial, limits: NodeObject, refusal: Refusal) -> str:
    """Return why the kubelet's own checks refused the pod, though its managers admitted it."""
    demands = trial.pod.constraints
    if refusal.resources:
        words = "; ".join(_lacking(trial, limits, name) for name in refusal.resources)
        if trial.others and is_critical(trial.pod):
            words += ", and evicting every pod that this critical pod may evict frees too little"
        return f"too little is left on the node as a whole: {words}" if trial.others else words

    taken = {port: one for one in trial.others for port in one.constraints.host_ports}
    held = [
        f"{one[2]}/{one[0]} ({taken[one].namespaced_name})"
        for one in demands.host_ports
        if one in taken
    ]
    if refusal.reason == "NodeName":
        return f"the pod is bound to node {demands.node_name}, and this is node {limits.name}"

    words = NODE_CAUSES.get(
        refusal.reason, f"the pod is for {demands.os or demands.os_label}, and the node runs linux"
    )
    return f"{words}: {', '.join(held)}" if refusal.reason == "NodePorts" and held else words


def _lacking(trial: Trial, limits: NodeObject, resource: str) -> str:
    """Return what is requested and left of a resource of the node as a whole."""
    used = (
        len(trial.others)
        if resource == "pods"
        else sum(requests_of(one).get(resource, 0) for one in trial.others)
    )
    return lacking_in_words(
        resource, requests_of(trial.pod).get(resource, 0), used, limits.allocatable.get(resource, 0)
    )


def lacking_in_words(resource: str, asked: int, used: int, capacity: int) -> str:
    """Return what is requested and left of a resource of the node as a whole; of CPU in thousandths."""
    if resource == "pods":
        return f"it takes {counted(capacity, 'pod')}, and has {used}"

    left = max(0, capacity - used)
    amounts = [
        f"{amount / 1000:g}" if resource == "cpu" else f"{amount}"
        for amount in (asked, left, capacity)
    ]
    if is_pinned_memory(resource) or resource == "ephemeral-storage":
        unit = shared_unit([(asked, [left, capacity])])
        amounts = [
            amount_in(unit, amount, up=up)
            for amount, up in ((asked, True), (left, False), (capacity, False))
        ]

    first, last, most = amounts
    return (
        f"{first} {resource} requested, "
        f"{f'{last} of {most} left' if used else f'the node has {most}'}"
    )


def merge_cause(
    refusal: Refusal, numa_node_ids: Sequence[int], amounts: Mapping[str, Amounts] | None = None
) -> Cause:
    """Return why the policy found no set of NUMA nodes good enough; the arguments are those of `cause`."""
    kind, offers = kind_of(refusal)
    sentence = cause(refusal, numa_node_ids, amounts)
    return Cause(sentence, kind, tuple(name for offer in offers for name in offer.resources))


def _amounts_in(trial: Trial, question: Question) -> dict[str, Amounts]:
    """Return by resource what was asked for and free."""
    refusal = trial.admission.refusal
    failed = (
        one
        for one in trial.pod.all_containers
        if refusal and question.failed and one.name == refusal.container
    )
    asked = asked_by(question.container or next(failed, trial.pod))
    there, is_allocation = question.holdings, bool(question.failed)
    return {
        name: _amounts(trial, there, name, amount, is_allocation=is_allocation)
        for name, amount in asked.items()
    }


def _amounts(
    trial: Trial, holdings: Holdings, resource: str, asked: int, *, is_allocation: bool
) -> Amounts:
    """Return what is asked for and free of a resource."""
    known = holdings.amounts(resource)
    places = () if known is None else known.places
    on_one_node = max(
        sum(place.free for place in places if node in place.numa_nodes)
        for node in holdings.numa_node_ids
    )
    # a device manager allocates what is near no NUMA node, but gives no hint for it
    told = tuple(one for one in places if one.numa_nodes or is_allocation)
    if known is None or not told:
        return Amounts(asked, None, on_one_node)

    seen = replace(known, places=told)
    there = None if known.unhealthy or trial.counts_use_as_reserved else seen.allocatable
    reserved, apart = seen.capacity - seen.allocatable, known.free - seen.free
    return Amounts(asked, seen.free, on_one_node, there, not trial.others, reserved, apart)


def _empty_pool(trial: Trial, question: Question) -> Cause | None:
    """Return that nothing would be left for containers to share, if that is why a pod as a whole was refused."""
    pod = trial.pod
    if not pod.has_shared_pool or question.container is not None:
        return None
    for name, total in (("cpu", {"cpu": pod.exclusive_cpus}), ("memory", dict(pod.memory))):
        if (
            name in question.hints
            and any(total.values())
            and (words := empty_shared_pool(pod, total))
        ):
            return Cause(words, "allocation", (name,))
    return None


def _of_allocation(
    trial: Trial, question: Question, refusal: Refusal, amounts: Mapping[str, Amounts]
) -> Cause:
    """Return why a provider could not allocate."""
    blamed, words = refusal.resources, refusal.detail
    if refusal.reason == SMT_ALIGNMENT_ERROR:
        container = next(
            (one for one in trial.pod.all_containers if one.name == refusal.container), trial.pod
        )
        return whole_cores(container.exclusive_cpus, trial.cpus_per_core, words)

    is_short = bool(blamed) and all(
        name in amounts and amounts[name].is_too_little for name in blamed
    )
    # what a device manager itself says counts devices without a NUMA node, too: it allocates them
    # as well
    may = question.failed in {"cpu", "memory"} and " are free: " in words
    if may or (is_short and question.failed in {"cpu", "devices", "memory"}):
        words = too_little(blamed, in_words(question.failed_accounts), amounts)

    return Cause(words, "allocation", blamed)


def whole_cores(asked: int, cpus_per_core: int, too_few: str) -> Cause:
    """Return why full-pcpus-only refuses a request; `too_few` says it of one that is a number of whole cores."""
    words = (
        f"{asked} cpu asked, but the CPU manager's option full-pcpus-only gives whole cores "
        "only: multiples of"
    )
    return Cause(
        f"{words} {cpus_per_core} CPUs" if asked % cpus_per_core else too_few,
        "whole cores",
        ("cpu",),
    )


def causes_of(node: Node, trial: Trial) -> tuple[Cause, ...]:
    """Return why the pod was refused, the first cause first; each holds without those before it."""
    found: list[Cause] = []
    pod = trial.pod
    refusal = trial.admission.refusal
    where = refusal.container if refusal else None
    while (refusal := trial.admission.refusal) is not None and refusal.container == where:
        cause = cause_of(trial, refusal)
        found.append(cause)
        if not cause.resources or len(found) == MOST_CAUSES:
            break
        fewer = without_requests(pod, where, cause.resources)
        if fewer == pod:
            break
        pod, trial = fewer, tried(node, fewer)

    return tuple(found)


def prognosis(
    node: Node, pod: Pod, container: str | None, causes: tuple[Cause, ...]
) -> tuple[Cause, ...]:
    """Return the causes of a refusal, after those why the node would refuse the pod without any other pod too.

    The first of each names the container where there are several.
    """
    always: tuple[Cause, ...] = ()
    if not (node.counts_use_as_reserved or has_users_providers(node)):
        always, where = _causes_and_container(emptied(node), pod)

    blamed = always[0].resources if always and always[0].kind in _OF_AMOUNTS | _OF_POLICY else ()
    # a plugin that reports no device may come back
    if not blamed or any(name in node.pools and not node.pools[name].reported for name in blamed):
        return _of_container(causes, pod, container)

    lasting = _of_container(always, pod, where, "never fits this node")
    if where != container:
        lasting, passing = lasting[:1], _of_container(causes, pod, container)
    else:
        # what is more than the machine has would come again, whatever is free
        short = [name for one in always if one.kind in _OF_AMOUNTS for name in one.resources]
        fewer = without_requests(pod, container, short)
        told = {(one.kind, name) for one in always for name in one.resources}
        found, where = (causes, container) if fewer == pod else _causes_and_container(node, fewer)
        found = _of_container(found, pod, where) if found and where != container else found
        passing = tuple(
            one for one in found if not told.issuperset((one.kind, name) for name in one.resources)
        )

    return (*lasting, *(replace(one, sentence=f"right now, {one.sentence}") for one in passing))


def _causes_and_container(node: Node, pod: Pod) -> tuple[tuple[Cause, ...], str | None]:
    """Return why a node refuses a pod, and at which container; no cause: it does not."""
    trial = tried(node, pod)
    return causes_of(node, trial), getattr(trial.admission.refusal, "container", None)


def _of_container(
    causes: tuple[Cause, ...], pod: Pod, container: str | None, never: str = ""
) -> tuple[Cause, ...]:
    """Return causes of which the first names the container, if there are several, and says that it never fits."""
    whose = (
        f"container {container!r}" if container is not None and len(pod.all_containers) > 1 else ""
    )
    words = ": ".join(filter(None, (" ".join(filter(None, (whose, never))), causes[0].sentence)))
    return (replace(causes[0], sentence=words, is_lasting=bool(never)), *causes[1:])


def without_requests(pod: Pod, container: str | None, resources: Collection[str]) -> Pod:
    """Return the pod as if some resources were not asked for.

    Args:
        pod: the pod.
        container: the one that does not ask for them; None: all of them.
        resources: the resources.
    """

    def kept(requests: Mapping[str, int]) -> dict[str, int]:
        return {name: amount for name, amount in requests.items() if name not in resources}

    def strip(one: Container) -> Container:
        if container not in (None, one.name):
            return one
        return replace(
            one, requests=kept(one.requests), exclusive_cpus=0 if "cpu" in resources else one.exclusive_cpus,
            memory=tuple(item for item in one.memory if item[0] not in resources),
            devices=tuple(item for item in one.devices if item[0] not in resources),
            fractional_memory="" if one.fractional_memory in resources else one.fractional_memory,
        )  # fmt: skip

    init_containers, containers = (
        tuple(map(strip, pod.init_containers)),
        tuple(map(strip, pod.containers)),
    )
    cpus, memory, devices = effective_request(init_containers, containers)
    demands = pod.constraints
    return replace(
        pod, init_containers=init_containers, containers=containers, all_containers=init_containers + containers,
        exclusive_cpus=cpus, memory=memory, devices=devices,
        constraints=replace(demands, requests=kept(demands.requests), overhead=kept(demands.overhead)),
    )  # fmt: skip


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
        sentence = one_line(
            f"admitted, but not as well aligned as it could be: {who}{first.missed}{more}"
        )
        return Cause(sentence + room, "missed")

    if trial.policy.name == "none":
        return Cause(f"admitted; policy none aligns nothing{room}", "not aligned")

    where = places_in_words(trial.before, {one.name: one.got for one in containers if one.got})
    if not where:
        return Cause(
            f"admitted; it requests nothing that is aligned to NUMA nodes{room}", "not aligned"
        )

    each = ", every container with all its resources on its preferred NUMA nodes" if several else ""
    return Cause(f"admitted, aligned {where}{each}{room}", "aligned")


def missed_by(trial: Trial, container: Container) -> str:
    """Return the better placement that a container of an admitted pod missed, and why; empty if there is none."""
    got = trial.got.get(container.name)
    question = next(
        (
            one
            for one in trial.questions
            if one.container is None or one.container.name == container.name
        ),
        None,
    )
    if got is None or question is None:
        return ""
    if got.affinity is not None and not got.affinity.preferred and question.hints:
        return _not_preferred(trial, question)

    nodes = numa_nodes_of(trial.before, got)
    if trial.policy.name == "none" and len(nodes) > 1:
        where = named("NUMA node", sorted(nodes))
        return (
            f"its resources are on {where}, as policy none lets each provider take them "
            "wherever it can"
        )

    if spare := spare_caches(trial.l3_groups, got):
        count = len(got.cpus or ())
        return (
            f"its {count} CPUs are in more L3 caches than they need ({spare} more), though "
            "whole ones are preferred"
        )

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
    policy = "restricted" if trial.policy.name == "best-effort" else trial.policy.name
    found = merge_cause(
        refusal_of(question, policy), question.holdings.numa_node_ids, _amounts_in(trial, question)
    )
    return found.sentence.rpartition("; restricted ")[0] or found.sentence


def refusal_of(question: Question, policy: str) -> Refusal:
    """Return the facts about a decision as if the policy had refused by it."""
    hints = tuple(question.hints.values())
    return Refusal(
        "", policy=policy, best=question.affinity, hints=hints, accounts=question.accounts
    )


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
    found = {
        name: nodes for name, got in containers.items() if (nodes := numa_nodes_of(there, got))
    }
    if not found:
        return ""
    first, *others = found.values()
    if all(nodes == first for nodes in others):
        return f"on {named('NUMA node', sorted(first))}"
    parts = [f"{named('NUMA node', sorted(nodes))} ({name})" for name, nodes in found.items()]
    return f"on {some_of(parts, MOST_SHOWN)}"
