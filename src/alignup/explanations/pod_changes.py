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
from alignup.explanations.manifests import Manifest, asked_by, changed, in_units, quantity
from alignup.explanations.trial import tried
from alignup.kubernetes.manifest import read_pod, resized_pod
from alignup.kubernetes.node_fit import requests_of
from alignup.kubernetes.pod import Container, Pod, QOSClass, is_device, is_pinned_memory
from alignup.kubernetes.policy_options import OPTION_GATES
from alignup.kubernetes.quantity import parse_quantity
from alignup.records import Record, json_fields, replace
from alignup.topology_manager.admission import DEFERRED, Resize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from alignup.explanations.attempts import Attempts
    from alignup.explanations.cause import Cause
    from alignup.node.node import Node
    from alignup.topology_manager.admission import Admission

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

# Words of the kubelet, and what they mean.
_CAUSES: Final = (
    (
        "alongside CPU Manager",
        "the pod is Guaranteed, and the static CPU policy takes no change of its CPUs",
    ),
    (
        "alongside Memory Manager",
        "the pod is Guaranteed, and the Static memory policy takes no change of its memory",
    ),
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
            "the managers find no NUMA nodes for the new amounts that the policy accepts; the kubelet "
            "tries again later"
        ),
    ),
)


def reductions(
    attempts: Attempts, causes: Sequence[Cause], resources: Sequence[str], container: str | None
) -> Iterator[Reduction]:
    """Yield the largest request of each resource that would do, or if there is none the smallest joint reduction.

    Args:
        attempts: the node and the pod.
        causes: those that are told.
        resources: those to blame.
        container: the one that was refused; None: the pod as a whole.
    """
    containers = sorted(attempts.pod.all_containers, key=lambda one: one.name != container)
    asked = {
        (one.name, resource): amount
        for one in containers
        for resource, amount in asked_by(one).items()
    }
    found = []
    for resource in resources:
        keys = [key for key in asked if key[1] == resource][:MOST_CONTAINERS]
        amounts = {key: _largest(attempts, {}, key, asked[key]) for key in keys}
        possible = [{key: amount} for key, amount in amounts.items() if amount is not None]
        if possible:
            found.append(min(possible, key=lambda one: _lost(asked, one)))

    if not found:
        blamed = {key: amount for key, amount in asked.items() if key[1] in resources}
        joint = _joint(attempts, blamed) or _joint(attempts, asked)
        found = [joint] if joint else []

    for one in found:
        made = _reduction(attempts, causes, asked, one)
        if container is not None and {name for name, _ in one}.isdisjoint([container]):
            made = replace(
                made, text=f"{made.text}; then container {container!r} gets what it asks for"
            )

        yield _lost(asked, one), made


def _lost(asked: Mapping[Key, int], amounts: Mapping[Key, int]) -> float:
    """Return the largest share of a request that is given up."""
    return max(1 - amount / asked[key] for key, amount in amounts.items())


def _largest(attempts: Attempts, fixed: Mapping[Key, int], key: Key, asked: int) -> int | None:
    """Return the largest amount below what is asked that would be admitted, with other amounts fixed; None for none."""
    step = min(_step(attempts, key[1]), asked)
    lowest = 0 if is_device(key[1]) else 1
    count = _last(
        lambda count: _fits(attempts, {**fixed, key: count * step}), lowest, -(-asked // step) - 1
    )
    return None if count is None else count * step


def _joint(attempts: Attempts, asked: Mapping[Key, int]) -> dict[Key, int] | None:
    """Return a reduction of several requests by one factor, each then raised again as far as it can be."""
    if len(asked) <= 1:
        return None

    def scaled(count: int) -> dict[Key, int]:
        amounts = {}
        for key, amount in asked.items():
            step = min(_step(attempts, key[1]), amount)
            amounts[key] = max(
                0 if is_device(key[1]) else step, amount * count // SCALE // step * step
            )

        return amounts

    count = _last(lambda one: _fits(attempts, scaled(one)), 0, SCALE - 1)
    if count is None:
        return None

    amounts = scaled(count)
    for key, amount in asked.items():
        if _fits(attempts, {**amounts, key: amount}):
            amounts[key] = amount
        else:
            amounts[key] = max(amounts[key], _largest(attempts, amounts, key, amount) or 0)

    if not _fits(attempts, amounts):
        return None

    return {key: value for key, value in amounts.items() if value != asked[key]}


def _last(fits: Callable[[int], bool], lowest: int, highest: int) -> int | None:
    """Return the last number from `lowest` to `highest` that fits, by binary search; None if the first does not."""
    if lowest > highest or not fits(lowest):
        return None
    return lowest + bisect_left(
        range(lowest + 1, highest + 1), True, key=lambda number: not fits(number)
    )


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
    asked: Mapping[Key, int],
    amounts: Mapping[Key, int],
) -> str:
    """Return why a little more than these amounts would be refused, where the causes do not tell it."""
    key = min(amounts, key=lambda one: amounts[one] / asked[one])
    more = amounts[key] + min(_step(attempts, key[1]), asked[key])
    if more >= asked[key]:
        return ""

    trial = tried(attempts.node, read_pod(changed(attempts.manifest, {**amounts, key: more})))
    refusal = trial.admission.refusal
    if refusal is None:
        return ""

    why = cause_of(trial, refusal)
    if any(why.kind == one.kind and why.limits.items() <= one.limits.items() for one in causes):
        return ""

    which = f" {key[1]}{_in_container(attempts.pod, key[0])}" if len(amounts) > 1 else ""
    subject = "" if refusal.container in {None, key[0]} else f"container {refusal.container!r}: "
    return f"{in_units(key[1], more)}{which} would be refused: {subject}{why.sentence}"


def _reduction(
    attempts: Attempts,
    causes: Sequence[Cause],
    asked: Mapping[Key, int],
    amounts: Mapping[Key, int],
) -> Suggestion:
    """Return the suggestion of these amounts."""
    by_container: dict[str, list[tuple[str, str]]] = {}
    for (name, resource), amount in amounts.items():
        before, after = (in_units(resource, one) for one in (asked[name, resource], amount))
        words = f"{after} {resource} instead of {before}" if amount else f"no {resource}"
        by_container.setdefault(name, []).append(
            (words, f"{resource} {before} -> {after if amount else 'none'}")
        )

    parts, lines = [], []
    for name, found in by_container.items():
        whom = _in_container(attempts.pod, name)
        parts.append(" and ".join(words for words, _ in found) + whom)
        lines.append(
            f"{whom.removeprefix(' in ')}{': ' if whom else ''}{', '.join(line for _, line in found)}"
        )

    text = f"ask for {'all of these: ' if len(parts) > 1 else ''}{'; '.join(parts)}"
    if why := _more(attempts, causes, asked, amounts):
        text += f" ({why})"
        lines.append(f"({why})")

    attempt = {"pod": changed(attempts.manifest, amounts)}
    return Suggestion("request", text, attempt, changes=tuple(lines) if len(amounts) > 1 else ())


def _in_container(pod: Pod, name: str) -> str:
    return f" in container {name!r}" if len(pod.all_containers) > 1 else ""


def node_reductions(attempts: Attempts, resources: Sequence[str]) -> Iterator[Reduction]:
    """Yield the largest request of one container that would do, where the node as a whole has too little left.

    Args:
        attempts: the node and the pod.
        resources: those of which too little is left.
    """
    if len(resources) != 1 or resources == ("pods",):
        return

    [resource] = resources
    largest = max(attempts.pod.all_containers, key=lambda one: one.requests.get(resource, 0))
    asked = largest.requests.get(resource, 0)
    step = (
        1
        if resource == "cpu" and asked % 1000
        else 1000
        if resource == "cpu"
        else _step(attempts, resource)
    )
    if asked < 2 * step:
        return

    def shaped(count: int) -> Manifest:
        return changed(attempts.manifest, {(largest.name, resource): count * step}, as_whole=True)

    count = _last(lambda one: attempts.with_pod(shaped(one)) is not None, 1, -(-asked // step) - 1)
    if count is not None:
        text = (
            f"request {quantity(resource, count * step)} {resource} instead of "
            f"{quantity(resource, asked)}"
        )
        whom = _in_container(attempts.pod, largest.name)
        yield 1 - count * step / asked, Suggestion("request", text + whom, {"pod": shaped(count)})


def shapes(attempts: Attempts, container: str | None) -> Iterator[Reduction]:
    """Yield shapes that ask for no less and would be admitted; a container is split where nothing else helps.

    Args:
        attempts: the node and the pod.
        container: the one that was refused; None: the pod as a whole.
    """
    for one in attempts.pod.all_containers:
        if container in (None, one.name):
            yield from ((0.1, shape) for shape in _whole_cores(attempts, one))
            if not one.is_init:
                yield from ((LAST, shape) for shape in _split(attempts, one))


def _whole_cores(attempts: Attempts, container: Container) -> Iterator[Suggestion]:
    """Yield the request in whole cores where full-pcpus-only wants them."""
    request = container.exclusive_cpus
    whole = -(-request // attempts.cpus_together) * attempts.cpus_together
    manifest = changed(attempts.manifest, {(container.name, "cpu"): whole})
    if whole != request and attempts.with_pod(manifest):
        text = (
            f"ask for whole cores: {whole} cpu instead of {request} in container {container.name!r}"
        )
        yield Suggestion("pod", text, {"pod": manifest})


def _split(attempts: Attempts, container: Container) -> Iterator[Suggestion]:
    """Yield the smallest number of equal containers that would be admitted in place of one."""
    asked = asked_by(container)
    names = {one.name for one in attempts.pod.all_containers}
    if attempts.node.scope_name == "pod" or all(map(is_pinned_memory, asked)):
        return

    for parts in range(2, min(MOST_PARTS, len(attempts.node.machine.numa_nodes)) + 1):
        if any(
            amount % (parts * (MEBI if is_pinned_memory(name) else 1))
            for name, amount in asked.items()
        ):
            continue

        if names & {f"{container.name}-{number}" for number in range(parts)}:
            return
        share = {name: amount // parts for name, amount in asked.items()}
        amounts = {(container.name, name): amount for name, amount in share.items()}
        manifest = changed(attempts.manifest, amounts, parts=parts)
        if attempts.with_pod(manifest):
            each = ", ".join(f"{in_units(name, amount)} {name}" for name, amount in share.items())
            text = f"split container {container.name!r} into {parts} containers of {each} each"
            yield Suggestion("pod", text, {"pod": manifest})
            return


def shared_container(attempts: Attempts) -> Iterator[tuple[Suggestion, Admission]]:
    """Yield the pod with one of its smaller containers in the shared pool, as a fraction of a CPU less puts it there.

    The pod keeps its QoS class. Beside the suggestion is how it is admitted. Where fewer CPUs are
    free than the pod asks for, such a container would get too little of what is shared.
    """
    cpu = attempts.node.cpu
    if cpu is None or attempts.pod.exclusive_cpus > len(cpu.free_cpus):
        return

    own = sorted(
        (one for one in attempts.pod.all_containers if one.exclusive_cpus),
        key=lambda one: one.exclusive_cpus,
    )
    for one in own[:-1]:
        cpus = one.exclusive_cpus
        thousandths = 1000 * cpus - 100
        manifest = changed(attempts.manifest, {(one.name, "cpu"): thousandths}, as_whole=True)
        if admission := attempts.with_pod(manifest):
            words = f"request {quantity('cpu', thousandths)} cpu instead of {cpus} in"
            text = f"{words} {'init ' * one.is_init}container {one.name!r}, which then shares CPUs"
            yield Suggestion("pod", text, {"pod": manifest}), admission


def pinned_shape(attempts: Attempts) -> Iterator[Suggestion]:
    """Yield the pod as a Guaranteed one with whole CPUs, where QoS class or a fraction keep it in the shared pool."""
    pod = attempts.pod
    if attempts.node.cpu is None:
        return

    amounts: dict[tuple[str, str], int] = {}
    for one in pod.all_containers:
        cpu, memory = (
            max(one.requests.get(name, 0), one.limits.get(name, 0)) for name in ("cpu", "memory")
        )
        if not cpu or not memory:
            return  # how much it needs is unknown
        amounts[one.name, "cpu"], amounts[one.name, "memory"] = -(-cpu // 1000), memory

    fraction = any(one.requests.get("cpu", 0) % 1000 for one in pod.all_containers)
    if pod.qos is QOSClass.GUARANTEED and not fraction:
        return

    shape = changed(attempts.manifest, amounts)
    admission = attempts.with_pod(shape)
    if admission is None or any(
        one.cpus is None or (one.affinity is not None and not one.affinity.preferred)
        for one in admission.containers.values()
    ):
        return

    how = " and ".join(
        filter(None, (_equal_amounts(pod), "request whole CPUs" if fraction else ""))
    )
    yield Suggestion("pod", f"{how}: then every container gets CPUs of its own", {"pod": shape})


def _equal_amounts(pod: Pod) -> str:
    """Return in words how requests and limits of CPU and memory become equal; empty where they are."""
    if pod.qos is QOSClass.GUARANTEED:
        return ""
    limited = {name in one.limits for one in pod.all_containers for name in ("cpu", "memory")}
    if limited == {True}:
        return "request as much CPU and memory as the limits say"
    if limited == {False}:
        return "set the limits of CPU and memory to the requests"
    return "set equal requests and limits of CPU and memory"


# ---- resizes in place


class ResizeExplanation(Record):
    """Why a pod was resized or not; it is true if its resources were allocated.

    Attributes:
        pod: `namespace/name`.
        cause: a sentence; empty when allocated.
    """

    pod: str
    uid: str
    answer: Resize
    cause: str = ""
    suggestions: tuple[Suggestion, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.answer)

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation in JSON's types."""
        told = json_fields(self, "pod", "uid", "cause", "suggestions")
        return {
            **told,
            "admitted": bool(self),
            "reason": self.answer.status,
            "message": self.answer.message,
        }


def explain_resize(
    node: Node, uid: str, containers: Amounts, whole: Amounts | None = None
) -> ResizeExplanation:
    """Return why a pod would be resized in place or not; the node stays as it is. The arguments are `Node.resize`'s.

    Raises:
        UnknownPodError: no such pod is admitted.
        InputError: the API server would refuse the resize.
        TypeError: a provider of a user takes part that cannot be copied.
    """
    pod = node.manager.pod(uid)
    name, answer = pod.namespaced_name, node.copy().resize(uid, containers, whole)
    if answer:
        return ResizeExplanation(name, uid, answer)

    cause = next(meaning for words, meaning in _CAUSES if words in answer.message)
    wanted = resized_pod(pod, containers, whole)
    found = [
        *_with_gates(node, uid, containers, whole),
        *_smaller(node, pod, wanted),
        *_anew(node, wanted),
    ]
    if answer.status == DEFERRED:
        found += _removals(node, uid, containers, whole)

    return ResizeExplanation(name, uid, answer, cause, tuple(found))


def _with_gates(
    node: Node, uid: str, containers: Amounts, whole: Amounts | None
) -> Iterator[Suggestion]:
    """Yield the feature gates with which the resources would be allocated, the fewest."""
    given = node.config.feature_gates or dict.fromkeys(OPTION_GATES, True)
    for gates in (_GATES[:1], _GATES[1:], _GATES):
        other = node.copy()
        try:
            other.config = replace(
                node.config, feature_gates={**given, **dict.fromkeys(gates, True)}
            )
        except ConfigError:  # its release does not know them
            continue

        if other.resize(uid, containers, whole):
            attempt = {"kubelet": {"featureGates": dict.fromkeys(gates, True)}}
            yield Suggestion(
                "kubelet", f"turn on {' and '.join(gates)} in the kubelet's featureGates", attempt
            )
            return


def _removals(
    node: Node, uid: str, containers: Amounts, whole: Amounts | None
) -> Iterator[Suggestion]:
    """Yield the pod that requests least of those whose removal makes room."""
    others = sorted(
        (one for one in node.pods if one.uid != uid), key=lambda one: requests_of(one).get("cpu", 0)
    )
    for one in others[-MOST_REMOVALS:]:
        other = node.copy()
        other.remove(one.uid)
        if other.resize(uid, containers, whole):
            yield Suggestion(
                "remove", f"remove pod {one.namespaced_name}", {"remove": [one.uid]}, True
            )
            return


def _smaller(node: Node, pod: Pod, wanted: Pod) -> Iterator[Suggestion]:
    """Yield the largest part of the increase that would be allocated."""
    part = bisect_left(
        range(1, _PARTS),
        True,
        key=lambda part: not node.copy().resize(pod.uid, _between(pod, wanted, part)),
    )
    found = _between(pod, wanted, part)
    if part and found:
        requests = (
            (name, *item) for name, one in found.items() for item in one["requests"].items()
        )
        parts = [f"{amount} {resource} for {name}" for name, resource, amount in requests]
        yield Suggestion("request", f"request {' and '.join(parts)}", {"containers": found})


def _between(pod: Pod, wanted: Pod, part: int) -> dict[str, dict[str, dict[str, str]]]:
    """Return by container the requests and limits that lie between those of two pods; whole CPUs where both are."""
    found = {}
    for old, new in zip(pod.all_containers, wanted.all_containers, strict=True):
        kinds = {"requests": (old.requests, new.requests), "limits": (old.limits, new.limits)}
        changed = {
            kind: {
                resource: quantity(resource, amount)
                for resource, wish in after.items()
                if (amount := _between_step(resource, before.get(resource, 0), wish, part))
                != before.get(resource, 0)
            }
            for kind, (before, after) in kinds.items()
        }
        if changed["requests"]:
            found[new.name] = changed

    return found


def _between_step(resource: str, before: int, after: int, part: int) -> int:
    unit = (
        1000
        if resource == "cpu" and not (before % 1000 or after % 1000)
        else 1
        if resource == "cpu"
        else 1 << 20
    )
    return before + (after - before) * part // _PARTS // unit * unit


def _anew(node: Node, wanted: Pod) -> Iterator[Suggestion]:
    """Yield that the pod would be admitted with these resources if it was made anew."""
    other = node.copy()
    other.remove(wanted.uid)
    admission = other.admit(wanted)
    if admission:
        got = [
            f"{name} would get CPUs {one.cpus}"
            for name, one in admission.containers.items()
            if one.cpus
        ]
        more = f": {', '.join(got)}" if got else ""
        yield Suggestion(
            "pod",
            f"delete the pod and create it with these resources{more}",
            {"recreate": wanted.uid},
        )
