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
        sentence = _of_node(trial, trial.limits, refusal)
        return Cause(one_line(sentence), "node", refusal.resources)

    question = trial.questions[-1] if trial.questions else None
    if question is None or (refusal.detail and not question.failed):
        return Cause(one_line(refusal.detail), "pod policy")

    amounts: dict[str, Amounts] = {}
    main_cause = _empty_pool(trial, question)
    if main_cause is None:
        amounts = _amounts_in(trial, question)
        if question.failed:
            main_cause = _of_allocation(trial, question, refusal, amounts)
        else:
            main_cause = _of_merge(trial, question, refusal, amounts)

    limits: dict[str, int | None] = {}
    if main_cause.kind != "conflict":
        is_of_one = main_cause.kind in {"one node", "spread"}
        for name in main_cause.resources:
            if name in amounts:
                limits[name] = amounts[name].on_one_node if is_of_one else amounts[name].free

    sentence = one_line(main_cause.sentence)
    if not trial.admission.exact:
        sentence += LIMIT_REACHED
    return replace(main_cause, sentence=sentence, limits=limits)


def _of_merge(
    trial: Trial, question: Question, refusal: Refusal, amounts: Mapping[str, Amounts]
) -> Cause:
    """Return why the policy refused what the hints are merged into."""
    merge = merge_cause(refusal, question.holdings.numa_node_ids, amounts)
    if "cpu" not in merge.resources:
        return merge

    left_behind = _left_behind(trial.pod, question)
    if not left_behind:
        return merge

    conjunction = "and" if merge.kind == "conflict" else "so"
    return replace(merge, sentence=f"{left_behind}, {conjunction} {merge.sentence}")


def _left_behind(pod: Pod, question: Question) -> str:
    """Return which CPUs of init containers the container must reuse, as the beginning of a cause.

    Empty if it must reuse none.
    """
    if question.container is None:
        return ""

    ended = {container.name for container in pod.init_containers if not container.is_sidecar}
    ended.discard(question.container.name)
    parts = []
    for holding in question.holdings.containers:
        if holding.pod_uid != pod.uid or holding.container not in ended or not holding.cpus:
            continue

        bits = int(holding.cpus)
        nodes = [node for node, cpus in question.holdings.node_cpus.items() if cpus & bits]
        noun = "CPUs" if len(holding.cpus) > 1 else "CPU"
        parts.append(
            f"{noun} {holding.cpus} of init container {holding.container!r} on "
            f"{named('NUMA node', nodes)}"
        )

    if not parts:
        return ""
    return f"it must reuse {' and '.join(parts)}"


def _of_node(trial: Trial, limits: NodeObject, refusal: Refusal) -> str:
    """Return why the kubelet's own checks refused the pod, though its managers admitted it."""
    demands = trial.pod.constraints
    if refusal.resources:
        text = "; ".join(_lacking(trial, limits, name) for name in refusal.resources)
        if not trial.others:
            return text

        if is_critical(trial.pod):
            text += ", and evicting every pod that this critical pod may evict frees too little"
        return f"too little is left on the node as a whole: {text}"

    if refusal.reason == "NodeName":
        return f"the pod is bound to node {demands.node_name}, and this is node {limits.name}"

    if refusal.reason not in NODE_CAUSES:
        return f"the pod is for {demands.os or demands.os_label}, and the node runs linux"

    text = NODE_CAUSES[refusal.reason]
    if refusal.reason == "NodePorts":
        users = {port: pod for pod in trial.others for port in pod.constraints.host_ports}
        taken_ports = [
            f"{port[2]}/{port[0]} ({users[port].namespaced_name})"
            for port in demands.host_ports
            if port in users
        ]
        if taken_ports:
            text += f": {', '.join(taken_ports)}"

    return text


def _lacking(trial: Trial, limits: NodeObject, resource: str) -> str:
    """Return what `lacking_in_words` does, of the pod that was tried."""
    used = sum(requests_of(pod).get(resource, 0) for pod in trial.others)
    if resource == "pods":
        used = len(trial.others)

    request = requests_of(trial.pod).get(resource, 0)
    return lacking_in_words(resource, request, used, limits.allocatable.get(resource, 0))


def lacking_in_words(resource: str, request: int, used: int, capacity: int) -> str:
    """Return what is requested and left of a resource of the node as a whole.

    Amounts of CPU are given in thousandths.
    """
    if resource == "pods":
        return f"it takes {counted(capacity, 'pod')}, and has {used}"

    remaining = max(0, capacity - used)
    if is_pinned_memory(resource) or resource == "ephemeral-storage":
        unit = shared_unit([(request, [remaining, capacity])])
        request_text = amount_in(unit, request, up=True)
        remaining_text = amount_in(unit, remaining)
        capacity_text = amount_in(unit, capacity)
    elif resource == "cpu":
        request_text = f"{request / 1000:g}"
        remaining_text = f"{remaining / 1000:g}"
        capacity_text = f"{capacity / 1000:g}"
    else:
        request_text, remaining_text, capacity_text = map(str, (request, remaining, capacity))

    stock = f"{remaining_text} of {capacity_text} left" if used else f"the node has {capacity_text}"
    return f"{request_text} {resource} requested, {stock}"


def merge_cause(
    refusal: Refusal, numa_node_ids: Sequence[int], amounts: Mapping[str, Amounts] | None = None
) -> Cause:
    """Return why the policy found no set of NUMA nodes good enough; takes what `cause` does."""
    kind, offers = kind_of(refusal)
    sentence = cause(refusal, numa_node_ids, amounts)
    return Cause(sentence, kind, tuple(name for offer in offers for name in offer.resources))


def _amounts_in(trial: Trial, question: Question) -> dict[str, Amounts]:
    """Return by resource what was asked for and free."""
    refusal = trial.admission.refusal
    requester: Container | Pod = question.container or trial.pod
    if question.container is None and question.failed and refusal is not None:
        requester = _container_or_pod(trial.pod, refusal.container)

    return {
        name: _amounts(trial, question.holdings, name, amount, is_allocation=bool(question.failed))
        for name, amount in asked_by(requester).items()
    }


def _container_or_pod(pod: Pod, container: str | None) -> Container | Pod:
    """Return the container of that name, or if there is none the pod."""
    for candidate in pod.all_containers:
        if candidate.name == container:
            return candidate
    return pod


def _amounts(
    trial: Trial, holdings: Holdings, resource: str, request: int, *, is_allocation: bool
) -> Amounts:
    """Return what is asked for and free of a resource."""
    amounts = holdings.amounts(resource)
    places = () if amounts is None else amounts.places
    on_one_node = max(
        sum(place.free for place in places if node in place.numa_nodes)
        for node in holdings.numa_node_ids
    )
    # a device manager allocates what is near no NUMA node, but gives no hint for it
    usable_places = tuple(place for place in places if place.numa_nodes or is_allocation)
    if amounts is None or not usable_places:
        return Amounts(request, None, on_one_node)

    usable = replace(amounts, places=usable_places)
    is_known = not (amounts.unhealthy or trial.counts_use_as_reserved)
    return Amounts(
        request,
        usable.free,
        on_one_node,
        allocatable=usable.allocatable if is_known else None,
        is_alone=not trial.others,
        reserved=usable.capacity - usable.allocatable,
        unaligned=amounts.free - usable.free,
    )


def _empty_pool(trial: Trial, question: Question) -> Cause | None:
    """Return that nothing would be left to share, if that is why a pod as a whole was refused."""
    pod = trial.pod
    if not pod.has_shared_pool or question.container is not None:
        return None

    for name, total in (("cpu", {"cpu": pod.exclusive_cpus}), ("memory", dict(pod.memory))):
        if name not in question.hints or not any(total.values()):
            continue
        if sentence := empty_shared_pool(pod, total):
            return Cause(sentence, "allocation", (name,))

    return None


def _of_allocation(
    trial: Trial, question: Question, refusal: Refusal, amounts: Mapping[str, Amounts]
) -> Cause:
    """Return why a provider could not allocate."""
    blamed = refusal.resources
    sentence = refusal.detail
    if refusal.reason == SMT_ALIGNMENT_ERROR:
        requester = _container_or_pod(trial.pod, refusal.container)
        return whole_cores(requester.exclusive_cpus, trial.cpus_per_core, sentence)

    is_short = bool(blamed) and all(
        name in amounts and amounts[name].is_too_little for name in blamed
    )
    # what a device manager itself says counts devices without a NUMA node, too: it allocates them
    # as well
    says_amounts = question.failed in {"cpu", "memory"} and " are free: " in sentence
    if says_amounts or (is_short and question.failed in {"cpu", "devices", "memory"}):
        sentence = too_little(blamed, in_words(question.failed_accounts), amounts)

    return Cause(sentence, "allocation", blamed)


def whole_cores(request: int, cpus_per_core: int, too_few: str) -> Cause:
    """Return why full-pcpus-only refuses a request.

    `too_few` says it of a request that is a number of whole cores.
    """
    sentence = too_few
    if request % cpus_per_core:
        sentence = (
            f"{request} cpu asked, but the CPU manager's option full-pcpus-only gives whole cores "
            f"only: multiples of {cpus_per_core} CPUs"
        )

    return Cause(sentence, "whole cores", ("cpu",))


def causes_of(node: Node, trial: Trial) -> tuple[Cause, ...]:
    """Return why the pod was refused, the first cause first; each holds without those before it."""
    causes: list[Cause] = []
    pod = trial.pod
    refusal = trial.admission.refusal
    container = refusal.container if refusal else None
    while (refusal := trial.admission.refusal) is not None and refusal.container == container:
        next_cause = cause_of(trial, refusal)
        causes.append(next_cause)
        fewer = without_requests(pod, container, next_cause.resources)
        if fewer == pod or len(causes) == MOST_CAUSES:
            break

        pod = fewer
        trial = tried(node, pod)

    return tuple(causes)


def prognosis(
    node: Node, pod: Pod, container: str | None, causes: tuple[Cause, ...]
) -> tuple[Cause, ...]:
    """Return the causes of a refusal, those first that hold without any other pod too.

    The first of each names the container where there are several.
    """
    lasting_causes: tuple[Cause, ...] = ()
    lasting_container = None
    if not (node.counts_use_as_reserved or has_users_providers(node)):
        lasting_causes, lasting_container = _causes_and_container(emptied(node), pod)

    blamed: tuple[str, ...] = ()
    if lasting_causes and lasting_causes[0].kind in _OF_AMOUNTS | _OF_POLICY:
        blamed = lasting_causes[0].resources

    # a plugin that reports no device may come back
    if not blamed or any(name in node.pools and not node.pools[name].reported for name in blamed):
        return _of_container(causes, pod, container)

    lasting = _of_container(lasting_causes, pod, lasting_container, "never fits this node")
    if lasting_container != container:
        lasting = lasting[:1]
        passing = _of_container(causes, pod, container)
    else:
        passing = _passing(node, pod, container, causes, lasting_causes)

    return (
        *lasting,
        *(replace(cause, sentence=f"right now, {cause.sentence}") for cause in passing),
    )


def _passing(
    node: Node,
    pod: Pod,
    container: str | None,
    causes: tuple[Cause, ...],
    lasting_causes: tuple[Cause, ...],
) -> tuple[Cause, ...]:
    """Return the causes of a refusal that are not those which hold on the empty node too."""
    # what is more than the machine has would come again, whatever is free
    short = [
        name for cause in lasting_causes if cause.kind in _OF_AMOUNTS for name in cause.resources
    ]
    fewer = without_requests(pod, container, short)
    refused = container
    if fewer != pod:
        causes, refused = _causes_and_container(node, fewer)
    if causes and refused != container:
        causes = _of_container(causes, pod, refused)

    lasting = {(cause.kind, name) for cause in lasting_causes for name in cause.resources}
    return tuple(
        cause
        for cause in causes
        if not lasting.issuperset((cause.kind, name) for name in cause.resources)
    )


def _causes_and_container(node: Node, pod: Pod) -> tuple[tuple[Cause, ...], str | None]:
    """Return why a node refuses a pod, and at which container; no cause: it does not."""
    trial = tried(node, pod)
    container = trial.admission.refusal.container if trial.admission.refusal else None
    return causes_of(node, trial), container


def _of_container(
    causes: tuple[Cause, ...], pod: Pod, container: str | None, never: str = ""
) -> tuple[Cause, ...]:
    """Return causes of which the first names the container, if there are several.

    It says that the pod never fits, if `never` does.
    """
    subject = []
    if container is not None and len(pod.all_containers) > 1:
        subject.append(f"container {container!r}")
    if never:
        subject.append(never)

    first, *others = causes
    sentence = ": ".join(filter(None, (" ".join(subject), first.sentence)))
    return (replace(first, sentence=sentence, is_lasting=bool(never)), *others)


def without_requests(pod: Pod, container: str | None, resources: Collection[str]) -> Pod:
    """Return the pod as if some resources were not asked for.

    Args:
        pod: the pod.
        container: the one that does not ask for them; None: all of them.
        resources: the resources.
    """

    def kept(requests: Mapping[str, int]) -> dict[str, int]:
        return {name: amount for name, amount in requests.items() if name not in resources}

    def stripped(candidate: Container) -> Container:
        if container not in (None, candidate.name):
            return candidate

        fractional_memory = candidate.fractional_memory
        return replace(
            candidate,
            requests=kept(candidate.requests),
            exclusive_cpus=0 if "cpu" in resources else candidate.exclusive_cpus,
            memory=tuple(kept(dict(candidate.memory)).items()),
            devices=tuple(kept(dict(candidate.devices)).items()),
            fractional_memory="" if fractional_memory in resources else fractional_memory,
        )

    init_containers = tuple(map(stripped, pod.init_containers))
    containers = tuple(map(stripped, pod.containers))
    by_containers = {kind for container in pod.containers for kind, _ in container.memory}
    cpus, memory, devices = effective_request(
        init_containers,
        containers,
        counts_init_only=not dict(pod.memory).keys() <= by_containers,
    )
    demands = pod.constraints
    return replace(
        pod,
        init_containers=init_containers,
        containers=containers,
        all_containers=init_containers + containers,
        exclusive_cpus=cpus,
        memory=memory,
        devices=devices,
        constraints=replace(
            demands, requests=kept(demands.requests), overhead=kept(demands.overhead)
        ),
    )


def admitted_cause(
    trial: Trial, containers: Sequence[ContainerPart], extent: str, *, is_open: bool
) -> Cause:
    """Return in one sentence how well the pod is aligned.

    The kind is `aligned`, `missed` or `not aligned`. The sentence begins with `admitted` and the
    extent, which says how far the verdict goes where something is unknown; `is_open`: a manager
    would align some of that.
    """
    cause = _alignment(trial, containers, is_whole=not is_open)
    if not extent:
        return cause

    rest = cause.sentence.removeprefix("admitted").lstrip(",; ")
    return replace(cause, sentence=f"admitted, {extent}; {rest}")


def _alignment(trial: Trial, containers: Sequence[ContainerPart], *, is_whole: bool) -> Cause:
    """Return in one sentence how well the pod is aligned; `is_whole`: all that it requests."""
    room = ""
    if trial.admission.preempted:
        room = f"; the kubelet evicts {', '.join(trial.admission.preempted)} to make room"

    far = ""
    if trial.far_devices:
        far = f"the devices of its claims are near {named('NUMA node', trial.far_devices)}"
        room = f"; {far}{room}"

    several = len(containers) > 1
    missed = [container for container in containers if container.missed]
    if missed:
        first = missed[0]
        subject = f"container {first.name!r}: " if several else ""
        more = f"; and {len(missed) - 1} more" if len(missed) > 1 else ""
        sentence = one_line(
            f"admitted, but not as well aligned as it could be: {subject}{first.missed}{more}"
        )
        return Cause(sentence + room, "missed")

    if trial.policy.name == "none":
        return Cause(f"admitted; policy none aligns nothing{room}", "not aligned")

    allocations = {container.name: container.got for container in containers if container.got}
    places = places_in_words(trial.before, allocations)
    if not places:
        what = "nothing" if is_whole else "nothing else"
        return Cause(
            f"admitted; it requests {what} that is aligned to NUMA nodes{room}", "not aligned"
        )

    if far:
        return Cause(f"admitted, but not aligned with its claims: it is {places}{room}", "missed")

    each = ", every container with all its resources on its preferred NUMA nodes" if several else ""
    return Cause(f"admitted, aligned {places}{each}{room}", "aligned")


def missed_by(trial: Trial, container: Container) -> str:
    """Return the better placement that a container of an admitted pod missed, and why.

    Empty if there is none.
    """
    allocation = trial.allocations.get(container.name)
    question = next(
        (
            question
            for question in trial.questions
            if question.container is None or question.container.name == container.name
        ),
        None,
    )
    if allocation is None or question is None:
        return ""
    if allocation.affinity is not None and not allocation.affinity.preferred and question.hints:
        return _not_preferred(trial, question)

    nodes = numa_nodes_of(trial.before, allocation)
    if trial.policy.name == "none" and len(nodes) > 1:
        return (
            f"its resources are on {named('NUMA node', sorted(nodes))}, as policy none lets each "
            "provider take them wherever it can"
        )

    if spare := spare_caches(trial.l3_groups, allocation):
        count = len(allocation.cpus or ())
        return (
            f"its {count} CPUs are in more L3 caches than they need ({spare} more), though "
            "whole ones are preferred"
        )

    return ""


def spare_caches(l3_groups: Sequence[int], allocation: ContainerAllocation) -> int:
    """Return in how many more L3 caches a container's CPUs are than would hold them.

    0 where that does not matter.
    """
    cpus = int(allocation.cpus or 0)
    if not l3_groups or not cpus:
        return 0

    largest = max(group.bit_count() for group in l3_groups)
    used = sum(bool(group & cpus) for group in l3_groups)
    needed = -(-cpus.bit_count() // largest)
    return used - needed


def _not_preferred(trial: Trial, question: Question) -> str:
    """Return why the merged hint is not one that every resource prefers."""
    policy = "restricted" if trial.policy.name == "best-effort" else trial.policy.name
    refusal = refusal_of(question, policy)
    amounts = _amounts_in(trial, question)
    sentence = merge_cause(refusal, question.holdings.numa_node_ids, amounts).sentence
    return sentence.rpartition("; restricted ")[0] or sentence


def refusal_of(question: Question, policy: str) -> Refusal:
    """Return the facts about a decision as if the policy had refused by it."""
    hints = tuple(question.hints.values())
    return Refusal(
        "", policy=policy, best=question.affinity, hints=hints, accounts=question.accounts
    )


def numa_nodes_of(holdings: Holdings, allocation: ContainerAllocation) -> set[int]:
    """Return the ids of the NUMA nodes of an allocation; see `Node.numa_nodes`."""
    numa_nodes = {node for block in allocation.memory if block.size for node in block.numa_nodes}
    numa_nodes |= cpu_nodes_of(holdings, allocation)
    for resource, ids in allocation.devices.items():
        amounts = holdings.amounts(resource)
        if amounts is None:
            continue

        for identity in ids:
            device_nodes = amounts.devices.get(identity, ())
            if len(device_nodes) == 1:
                numa_nodes.add(device_nodes[0])

    return numa_nodes


def cpu_nodes_of(holdings: Holdings, allocation: ContainerAllocation) -> set[int]:
    """Return the ids of the NUMA nodes that a container's CPUs lie in."""
    cpus = int(allocation.cpus or 0)
    return {node for node, bits in holdings.node_cpus.items() if bits & cpus}


def places_in_words(holdings: Holdings, containers: Mapping[str, ContainerAllocation]) -> str:
    """Return which NUMA nodes containers are on.

    All are on the same ones, or it is said container by container. Empty if they are on none.
    """
    nodes_of = {}
    for name, allocation in containers.items():
        if nodes := numa_nodes_of(holdings, allocation):
            nodes_of[name] = nodes

    if not nodes_of:
        return ""

    first, *others = nodes_of.values()
    if all(nodes == first for nodes in others):
        return f"on {named('NUMA node', sorted(first))}"

    parts = [f"{named('NUMA node', sorted(nodes))} ({name})" for name, nodes in nodes_of.items()]
    return f"on {some_of(parts, MOST_SHOWN)}"
