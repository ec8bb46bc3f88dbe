"""Finds changes to a pod under which it would be admitted: smaller requests, or another shape.

The largest request that would do, resource by resource, and the smallest joint reduction are binary
searches over admissions; where more can fit although less does not (memory groups, whole cores),
they may miss it. Other shapes are a container split into several, whole cores, and Guaranteed
instead of Burstable. Whatever is returned was admitted.

Says why a kubelet does not resize a pod in place, too, and what would help; all of it was tried on
a copy.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import ConfigError
from alignup.explanations.cause import cause_of
from alignup.explanations.explanation import Suggestion
from alignup.explanations.manifests import (
    Manifest,
    asked_by,
    changed,
    in_units,
    pod_of,
    quantity,
)
from alignup.explanations.trial import tried
from alignup.kubernetes.manifest import resized_pod
from alignup.kubernetes.node_fit import requests_of
from alignup.kubernetes.pod import Container, Pod, QOSClass, is_device, is_pinned_memory
from alignup.kubernetes.policy_options import OPTION_GATES
from alignup.kubernetes.quantity import parse_quantity
from alignup.kubernetes.versions import KubeletVersion
from alignup.node.resize import kept_amounts
from alignup.records import Record, json_fields, replace
from alignup.topology_manager.admission import DEFERRED, Resize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from alignup.explanations.attempts import Attempts
    from alignup.explanations.cause import Cause
    from alignup.node.node import Node
    from alignup.topology_manager.admission import Admission, ContainerAllocation

    # As `Node.resize` takes them.
    Amounts = Mapping[str, Any]

# The share of the requests that is given up, from 0 to 1, and the suggestion.
Reduction = tuple[float, Suggestion]

# (container, resource).
Key = tuple[str, str]

# Given up by who rewrites a pod: more than by a drain.
LAST: Final = 3.0
MOST_CONTAINERS: Final = 4
MOST_PARTS: Final = 8
SCALE: Final = 64
MEBI: Final = 1 << 20

# On a node of more pods the removal of only so many, those that request most, is tried.
MOST_REMOVALS: Final = 100

# A smaller resize is looked for in steps of this part of the increase.
_PARTS: Final = 64

_GATES: Final = (
    "InPlacePodVerticalScalingExclusiveCPUs",
    "InPlacePodVerticalScalingExclusiveMemory",
)

_KEEPS_CPUS: Final = "the pod is Guaranteed, and the static CPU policy takes no change of its CPUs"
# A node of 1.35 declares GuaranteedQoSPodCPUResize, where its gate NodeDeclaredFeatures is on
# (nodedeclaredfeatures of k8s.io/component-helpers 0.35.4; 0.36.3 and later have no such feature).
_LAST_DECLARED: Final = KubeletVersion(35)
_NOT_DECLARED: Final = (
    "; whether it does, no node of 1.36 or later declares (GuaranteedQoSPodCPUResize was 1.35's "
    "alone), so the API server takes the resize and only the kubelet refuses it"
)
_KEEPS_MEMORY: Final = (
    "the pod is Guaranteed, and the Static memory policy takes no change of its memory"
)

# Words of the kubelet, and what they mean; those of 1.38 and of releases before it.
_CAUSES: Final = (
    ("alongside CPU Manager", _KEEPS_CPUS),
    ("CPU allocation mode is exclusive", _KEEPS_CPUS),
    ("alongside Memory Manager", _KEEPS_MEMORY),
    ("memory allocation mode is exclusive", _KEEPS_MEMORY),
    ("is disabled", "the feature gate for such a resize is off"),
    ("have enough capacity", "the pod would request more than the whole node has"),
    (
        "have enough allocatable",
        "the pod would request more than the whole node has, so the API server refuses it",
    ),
    (
        "have enough resource",
        "the other pods request the rest of the node; the kubelet tries again when that changes",
    ),
    (
        "",
        (
            "the managers find no NUMA nodes for the new amounts that the policy accepts; the "
            "kubelet tries again later"
        ),
    ),
)


def reductions(
    attempts: Attempts, causes: Sequence[Cause], resources: Sequence[str], container: str | None
) -> Iterator[Reduction]:
    """Yield the largest request of each resource that would do.

    If there is none, yield the smallest joint reduction.

    Args:
        attempts: the node and the pod.
        causes: those that are told.
        resources: those to blame.
        container: the one that was refused; None: the pod as a whole.
    """
    containers = sorted(
        attempts.pod.all_containers, key=lambda candidate: candidate.name != container
    )
    requests = {
        (candidate.name, resource): amount
        for candidate in containers
        for resource, amount in asked_by(candidate).items()
    }

    reduced = []
    for resource in resources:
        keys = [key for key in requests if key[1] == resource][:MOST_CONTAINERS]
        largest = {key: _largest(attempts, {}, key, requests[key]) for key in keys}
        possible = [{key: amount} for key, amount in largest.items() if amount is not None]
        if possible:
            reduced.append(min(possible, key=lambda amounts: _lost(requests, amounts)))

    if not reduced:
        blamed = {key: amount for key, amount in requests.items() if key[1] in resources}
        joint = _joint(attempts, blamed) or _joint(attempts, requests)
        if joint:
            reduced.append(joint)

    for amounts in reduced:
        suggestion = _reduction(attempts, causes, requests, amounts)
        if container is not None and container not in {name for name, _ in amounts}:
            text = f"{suggestion.text}; then container {container!r} gets what it asks for"
            suggestion = replace(suggestion, text=text)

        yield _lost(requests, amounts), suggestion


def _lost(requests: Mapping[Key, int], amounts: Mapping[Key, int]) -> float:
    """Return the largest share of a request that is given up."""
    return max(1 - amount / requests[key] for key, amount in amounts.items())


def _largest(attempts: Attempts, fixed: Mapping[Key, int], key: Key, request: int) -> int | None:
    """Return the largest amount below the request that would be admitted; None for none.

    Other amounts are `fixed`.
    """
    step = min(_step(attempts, key[1]), request)
    lowest = 0 if is_device(key[1]) else 1
    highest = -(-request // step) - 1
    count = _last(lambda count: _fits(attempts, {**fixed, key: count * step}), lowest, highest)
    if count is None:
        return None
    return count * step


def _joint(attempts: Attempts, requests: Mapping[Key, int]) -> dict[Key, int] | None:
    """Return a reduction of several requests by one factor.

    Each is then raised again as far as it can be.
    """
    if len(requests) <= 1:
        return None

    def scaled(count: int) -> dict[Key, int]:
        amounts = {}
        for key, amount in requests.items():
            step = min(_step(attempts, key[1]), amount)
            lowest = 0 if is_device(key[1]) else step
            amounts[key] = max(lowest, amount * count // SCALE // step * step)

        return amounts

    count = _last(lambda count: _fits(attempts, scaled(count)), 0, SCALE - 1)
    if count is None:
        return None

    amounts = scaled(count)
    for key, amount in requests.items():
        if _fits(attempts, {**amounts, key: amount}):
            amounts[key] = amount
        else:
            amounts[key] = max(amounts[key], _largest(attempts, amounts, key, amount) or 0)

    if not _fits(attempts, amounts):
        return None

    return {key: amount for key, amount in amounts.items() if amount != requests[key]}


def _last(fits: Callable[[int], bool], lowest: int, highest: int) -> int | None:
    """Return the last number from `lowest` to `highest` that fits, by binary search.

    None if the first does not.
    """
    if lowest > highest or not fits(lowest):
        return None

    numbers = range(lowest + 1, highest + 1)
    return lowest + bisect_left(numbers, True, key=lambda number: not fits(number))


def _fits(attempts: Attempts, amounts: Mapping[Key, int]) -> bool:
    return attempts.with_pod(changed(attempts.manifest, amounts)) is not None


def _step(attempts: Attempts, resource: str) -> int:
    """Return the unit in which a request is lowered: whole cores, whole pages, MiB, or one."""
    if resource == "cpu":
        return attempts.cpus_together
    if resource == "memory":
        return MEBI
    if resource.startswith("hugepages-"):
        return parse_quantity(resource.partition("-")[2], resource) // 10**9
    return 1


def _more(
    attempts: Attempts,
    causes: Sequence[Cause],
    requests: Mapping[Key, int],
    amounts: Mapping[Key, int],
) -> str:
    """Return why a little more than these amounts would be refused.

    Empty where the causes tell it.
    """
    key = min(amounts, key=lambda candidate: amounts[candidate] / requests[candidate])
    container, resource = key
    larger_amount = amounts[key] + min(_step(attempts, resource), requests[key])
    if larger_amount >= requests[key]:
        return ""

    trial = tried(
        attempts.node, pod_of(changed(attempts.manifest, {**amounts, key: larger_amount}))
    )
    refusal = trial.admission.refusal
    if refusal is None:
        return ""

    next_cause = cause_of(trial, refusal)
    for cause in causes:
        if next_cause.kind == cause.kind and next_cause.limits.items() <= cause.limits.items():
            return ""

    noun = ""
    if len(amounts) > 1:
        noun = f" {resource}{_in_container(attempts.pod, container)}"
    subject = ""
    if refusal.container not in {None, container}:
        subject = f"container {refusal.container!r}: "
    amount = in_units(resource, larger_amount)
    return f"{amount}{noun} would be refused: {subject}{next_cause.sentence}"


def _reduction(
    attempts: Attempts,
    causes: Sequence[Cause],
    requests: Mapping[Key, int],
    amounts: Mapping[Key, int],
) -> Suggestion:
    """Return the suggestion of these amounts."""
    by_container: dict[str, dict[str, int]] = {}
    for (name, resource), amount in amounts.items():
        by_container.setdefault(name, {})[resource] = amount

    parts = []
    lines = []
    for name, container_amounts in by_container.items():
        wishes = []
        changes = []
        for resource, amount in container_amounts.items():
            before = in_units(resource, requests[name, resource])
            after = in_units(resource, amount)
            if amount:
                wishes.append(f"{after} {resource} instead of {before}")
                changes.append(f"{resource} {before} -> {after}")
            else:
                wishes.append(f"no {resource}")
                changes.append(f"{resource} {before} -> none")

        place = _in_container(attempts.pod, name)
        parts.append(f"{' and '.join(wishes)}{place}")
        heading = f"{place.removeprefix(' in ')}: " if place else ""
        lines.append(f"{heading}{', '.join(changes)}")

    text = "; ".join(parts)
    if len(parts) > 1:
        text = f"all of these: {text}"
    text = f"ask for {text}"

    if reason := _more(attempts, causes, requests, amounts):
        text += f" ({reason})"
        lines.append(f"({reason})")

    attempt = {"pod": changed(attempts.manifest, amounts)}
    return Suggestion("request", text, attempt, changes=tuple(lines) if len(amounts) > 1 else ())


def _in_container(pod: Pod, name: str) -> str:
    if len(pod.all_containers) <= 1:
        return ""
    return f" in container {name!r}"


def node_reductions(attempts: Attempts, resources: Sequence[str]) -> Iterator[Reduction]:
    """Yield the largest request of one container that would do on the node as a whole.

    Args:
        attempts: the node and the pod.
        resources: those of which too little is left.
    """
    if len(resources) != 1 or resources == ("pods",):
        return

    [resource] = resources
    largest = max(
        attempts.pod.all_containers, key=lambda container: container.requests.get(resource, 0)
    )
    request = largest.requests.get(resource, 0)
    if resource != "cpu":
        step = _step(attempts, resource)
    elif request % 1000:
        step = 1
    else:
        step = 1000

    if request < 2 * step:
        return

    def shaped(count: int) -> Manifest:
        return changed(attempts.manifest, {(largest.name, resource): count * step}, as_whole=True)

    count = _last(
        lambda count: attempts.with_pod(shaped(count)) is not None, 1, -(-request // step) - 1
    )
    if count is not None:
        after = quantity(resource, count * step)
        before = quantity(resource, request)
        place = _in_container(attempts.pod, largest.name)
        text = f"request {after} {resource} instead of {before}{place}"
        yield 1 - count * step / request, Suggestion("request", text, {"pod": shaped(count)})


def shapes(attempts: Attempts, container: str | None) -> Iterator[Reduction]:
    """Yield shapes that ask for no less and would be admitted.

    That a container is split comes last.

    Args:
        attempts: the node and the pod.
        container: the one that was refused; None: the pod as a whole.
    """
    for candidate in attempts.pod.all_containers:
        if container not in (None, candidate.name):
            continue

        for suggestion in _whole_cores(attempts, candidate):
            yield 0.1, suggestion
        if not candidate.is_init:
            for suggestion in _split(attempts, candidate):
                yield LAST, suggestion


def _whole_cores(attempts: Attempts, container: Container) -> Iterator[Suggestion]:
    """Yield the request in whole cores where full-pcpus-only wants them."""
    request = container.exclusive_cpus
    rounded_up = -(-request // attempts.cpus_together) * attempts.cpus_together
    manifest = changed(attempts.manifest, {(container.name, "cpu"): rounded_up})
    if rounded_up != request and attempts.with_pod(manifest):
        text = (
            f"ask for whole cores: {rounded_up} cpu instead of {request} in container "
            f"{container.name!r}"
        )
        yield Suggestion("pod", text, {"pod": manifest})


def _split(attempts: Attempts, container: Container) -> Iterator[Suggestion]:
    """Yield the smallest number of equal containers that would be admitted in place of one."""
    requests = asked_by(container)
    if attempts.node.scope_name == "pod" or all(map(is_pinned_memory, requests)):
        return

    names = {candidate.name for candidate in attempts.pod.all_containers}
    for parts in range(2, min(MOST_PARTS, len(attempts.node.machine.numa_nodes)) + 1):
        if not all(_is_divisible(name, amount, parts) for name, amount in requests.items()):
            continue
        if names & {f"{container.name}-{number}" for number in range(parts)}:
            return

        share = {name: amount // parts for name, amount in requests.items()}
        amounts = {(container.name, name): amount for name, amount in share.items()}
        manifest = changed(attempts.manifest, amounts, parts=parts)
        if attempts.with_pod(manifest):
            share_text = ", ".join(
                f"{in_units(name, amount)} {name}" for name, amount in share.items()
            )
            text = (
                f"split container {container.name!r} into {parts} containers of {share_text} each"
            )
            yield Suggestion("pod", text, {"pod": manifest})
            return


def _is_divisible(resource: str, amount: int, parts: int) -> bool:
    """Return whether an amount has so many equal parts, of bytes in whole MiB."""
    unit = MEBI if is_pinned_memory(resource) else 1
    return amount % (parts * unit) == 0


def shared_container(attempts: Attempts) -> Iterator[tuple[Suggestion, Admission]]:
    """Yield the pod with one of its smaller containers in the shared pool.

    A fraction of a CPU less puts it there. The pod keeps its QoS class. Beside the suggestion is
    how it is admitted. Where fewer CPUs are free than the pod asks for, such a container would get
    too little of what is shared.
    """
    cpu = attempts.node.cpu
    if cpu is None or attempts.pod.exclusive_cpus > len(cpu.free_cpus):
        return

    exclusive = [container for container in attempts.pod.all_containers if container.exclusive_cpus]
    exclusive.sort(key=lambda container: container.exclusive_cpus)
    for container in exclusive[:-1]:
        cpus = container.exclusive_cpus
        thousandths = 1000 * cpus - 100
        manifest = changed(attempts.manifest, {(container.name, "cpu"): thousandths}, as_whole=True)
        if admission := attempts.with_pod(manifest):
            noun = "init container" if container.is_init else "container"
            text = (
                f"request {quantity('cpu', thousandths)} cpu instead of {cpus} in {noun} "
                f"{container.name!r}, which then shares CPUs"
            )
            yield Suggestion("pod", text, {"pod": manifest}), admission


def pinned_shape(attempts: Attempts) -> Iterator[Suggestion]:
    """Yield the pod as a Guaranteed one with whole CPUs.

    It is looked for where the QoS class or a fraction of a CPU keeps it in the shared pool.
    """
    pod = attempts.pod
    if attempts.node.cpu is None:
        return

    amounts: dict[tuple[str, str], int] = {}
    for container in pod.all_containers:
        cpu = max(container.requests.get("cpu", 0), container.limits.get("cpu", 0))
        memory = max(container.requests.get("memory", 0), container.limits.get("memory", 0))
        if not cpu or not memory:
            return  # how much it needs is unknown

        amounts[container.name, "cpu"] = -(-cpu // 1000)
        amounts[container.name, "memory"] = memory

    has_fraction = any(container.requests.get("cpu", 0) % 1000 for container in pod.all_containers)
    if pod.qos is QOSClass.GUARANTEED and not has_fraction:
        return

    shape = changed(attempts.manifest, amounts)
    admission = attempts.with_pod(shape)
    if admission is None or not all(map(_is_pinned, admission.containers.values())):
        return

    steps = []
    if pod.qos is not QOSClass.GUARANTEED:
        steps.append(_equal_amounts(pod))
    if has_fraction:
        steps.append("request whole CPUs")

    text = f"{' and '.join(steps)}: then every container gets CPUs of its own"
    yield Suggestion("pod", text, {"pod": shape})


def _is_pinned(allocation: ContainerAllocation) -> bool:
    """Return whether a container has CPUs of its own, and is not where it does not prefer to be."""
    hint = allocation.affinity
    return allocation.cpus is not None and (hint is None or hint.preferred)


def _equal_amounts(pod: Pod) -> str:
    """Return in words how requests and limits of CPU and memory become equal."""
    is_limited = {
        name in container.limits for container in pod.all_containers for name in ("cpu", "memory")
    }
    if is_limited == {True}:
        return "request as much CPU and memory as the limits say"
    if is_limited == {False}:
        return "set the limits of CPU and memory to the requests"
    return "set equal requests and limits of CPU and memory"


# ---- resizes in place


class ResizeExplanation(Record):
    """Why a pod was resized or not; it is true if its resources were allocated.

    Attributes:
        pod: `namespace/name`.
        cause: a sentence; empty when allocated.
        kept: what containers keep of their own though they ask for other amounts, once the resize
            is allocated.
    """

    pod: str
    uid: str
    answer: Resize
    cause: str = ""
    suggestions: tuple[Suggestion, ...] = ()
    kept: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.answer)

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation in JSON's types."""
        return {
            **json_fields(self, "pod", "uid", "cause", "kept", "suggestions"),
            "admitted": bool(self),
            "reason": self.answer.status,
            "message": self.answer.message,
        }


def explain_resize(
    node: Node, uid: str, containers: Amounts, whole: Amounts | None = None
) -> ResizeExplanation:
    """Return why a pod would be resized in place or not; the node stays as it is.

    The arguments are those of `Node.resize`.

    Raises:
        UnknownPodError: no such pod is admitted.
        InputError: the API server would refuse the resize.
        TypeError: a provider of a user takes part that cannot be copied.
    """
    pod = node.manager.pod(uid)
    name = pod.namespaced_name
    resized_node = node.copy()
    answer = resized_node.resize(uid, containers, whole)
    resized = resized_pod(pod, containers, whole)
    if answer:
        kept = kept_amounts(resized_node, pod)
        remedies = tuple(_anew(node, resized)) if kept else ()
        return ResizeExplanation(name, uid, answer, suggestions=remedies, kept=kept)

    cause = next(meaning for phrase, meaning in _CAUSES if phrase in answer.message)
    if cause == _KEEPS_CPUS and node.config.version > _LAST_DECLARED:
        cause += _NOT_DECLARED

    suggestions = [
        *_with_gates(node, uid, containers, whole),
        *_smaller(node, pod, resized),
        *_anew(node, resized),
    ]
    if answer.status == DEFERRED:
        suggestions += _removals(node, uid, containers, whole)

    return ResizeExplanation(name, uid, answer, cause, tuple(suggestions))


def _gives_all(node: Node, pod: Pod, containers: Amounts, whole: Amounts | None = None) -> bool:
    """Return whether a node resizes a pod, and its containers then have what they ask for."""
    return bool(node.resize(pod.uid, containers, whole)) and not kept_amounts(node, pod)


def _with_gates(
    node: Node, uid: str, containers: Amounts, whole: Amounts | None
) -> Iterator[Suggestion]:
    """Yield the feature gates with which the containers would have what they ask for, the fewest.

    With some the resize is only "allocated", and CPUs and memory stay: these help nobody.
    """
    feature_gates = node.config.feature_gates or dict.fromkeys(OPTION_GATES, True)
    for names in (_GATES[:1], _GATES[1:], _GATES):
        gates = dict.fromkeys(names, True)
        changed_node = node.copy()
        try:
            changed_node.config = replace(node.config, feature_gates={**feature_gates, **gates})
        except ConfigError:  # its release does not know them
            continue

        if _gives_all(changed_node, node.manager.pod(uid), containers, whole):
            text = f"turn on {' and '.join(names)} in the kubelet's featureGates"
            yield Suggestion("kubelet", text, {"kubelet": {"featureGates": gates}})
            return


def _removals(
    node: Node, uid: str, containers: Amounts, whole: Amounts | None
) -> Iterator[Suggestion]:
    """Yield the pod that requests least of those whose removal makes room."""
    others = sorted(
        (pod for pod in node.pods if pod.uid != uid),
        key=lambda pod: requests_of(pod).get("cpu", 0),
    )
    for pod in others[-MOST_REMOVALS:]:
        changed_node = node.copy()
        changed_node.remove(pod.uid)
        if _gives_all(changed_node, node.manager.pod(uid), containers, whole):
            text = f"remove pod {pod.namespaced_name}"
            yield Suggestion("remove", text, {"remove": [pod.uid]}, minimal=True)
            return


def _smaller(node: Node, pod: Pod, resized: Pod) -> Iterator[Suggestion]:
    """Yield the largest part of the increase that would be allocated."""
    part = bisect_left(
        range(1, _PARTS),
        True,
        key=lambda part: not node.copy().resize(pod.uid, _between(pod, resized, part)),
    )

    containers = _between(pod, resized, part)
    if part and containers and _gives_all(node.copy(), pod, containers):
        wishes = [
            f"{amount} {resource} for {name}"
            for name, amounts in containers.items()
            for resource, amount in amounts["requests"].items()
        ]
        text = f"request {' and '.join(wishes)}"
        yield Suggestion("request", text, {"containers": containers})


def _between(pod: Pod, resized: Pod, part: int) -> dict[str, dict[str, dict[str, str]]]:
    """Return by container the requests and limits that lie between those of two pods.

    They are whole CPUs where both are.
    """
    changes = {}
    for old, new in zip(pod.all_containers, resized.all_containers, strict=True):
        requests = _amounts_between(old.requests, new.requests, part)
        limits = _amounts_between(old.limits, new.limits, part)
        if requests:
            changes[new.name] = {"requests": requests, "limits": limits}

    return changes


def _amounts_between(
    before: Mapping[str, int], after: Mapping[str, int], part: int
) -> dict[str, str]:
    """Return the amounts between two that differ from the first, as a manifest has them."""
    amounts = {}
    for resource, new_amount in after.items():
        old_amount = before.get(resource, 0)
        amount = _between_step(resource, old_amount, new_amount, part)
        if amount != old_amount:
            amounts[resource] = quantity(resource, amount)

    return amounts


def _between_step(resource: str, before: int, after: int, part: int) -> int:
    unit = MEBI
    if resource == "cpu":
        unit = 1 if before % 1000 or after % 1000 else 1000

    return before + (after - before) * part // _PARTS // unit * unit


def _anew(node: Node, resized: Pod) -> Iterator[Suggestion]:
    """Yield that the pod would be admitted with these resources if it was made anew."""
    changed_node = node.copy()
    changed_node.remove(resized.uid)
    admission = changed_node.admit(resized)
    if not admission:
        return

    text = "delete the pod and create it with these resources"
    gains = [
        f"{name} would get CPUs {allocation.cpus}"
        for name, allocation in admission.containers.items()
        if allocation.cpus
    ]
    if gains:
        text += f": {', '.join(gains)}"
    yield Suggestion("pod", text, {"recreate": resized.uid})
