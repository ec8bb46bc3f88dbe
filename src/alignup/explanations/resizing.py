"""Says why a kubelet does not resize a pod in place, and what would help; all of it was tried on a copy."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import ConfigError
from alignup.explanations.explanation import Suggestion
from alignup.explanations.manifests import quantity
from alignup.kubernetes.manifest import resized_pod
from alignup.kubernetes.node_fit import requests_of
from alignup.kubernetes.policy_options import OPTION_GATES
from alignup.records import Record, json_fields, replace
from alignup.topology_manager.admission import DEFERRED, Resize

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from alignup.kubernetes.pod import Pod
    from alignup.node.node import Node

    # As `Node.resize` takes them.
    Amounts = Mapping[str, Any]

# On a node of more pods the removal of only so many, those that request most, is tried.
MOST_REMOVALS: Final = 100
# A smaller resize is looked for in steps of this part of the increase.
_PARTS: Final = 64
_GATES: Final = ("InPlacePodVerticalScalingExclusiveCPUs", "InPlacePodVerticalScalingExclusiveMemory")
# Words of the kubelet, and what they mean.
_CAUSES: Final = (
    ("alongside CPU Manager", "the pod is Guaranteed, and the static CPU policy takes no change of its CPUs"),
    ("alongside Memory Manager", "the pod is Guaranteed, and the Static memory policy takes no change of its memory"),
    ("is disabled", "the feature gate for such a resize is off"),
    ("have enough capacity", "the pod would request more than the whole node has"),
    ("have enough allocatable", "the pod would request more than the whole node has, so the API server refuses it"),
    ("have enough resource", "the other pods request the rest of the node; the kubelet tries again when that changes"),
    ("", "the managers find no NUMA nodes for the new amounts that the policy accepts; the kubelet tries again later"),
)


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
        return {**told, "admitted": bool(self), "reason": self.answer.status, "message": self.answer.message}


def explain_resize(node: Node, uid: str, containers: Amounts, whole: Amounts | None = None) -> ResizeExplanation:
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
    found = [*_with_gates(node, uid, containers, whole), *_smaller(node, pod, wanted), *_anew(node, wanted)]
    if answer.status == DEFERRED:
        found += _removals(node, uid, containers, whole)
    return ResizeExplanation(name, uid, answer, cause, tuple(found))


def _with_gates(node: Node, uid: str, containers: Amounts, whole: Amounts | None) -> Iterator[Suggestion]:
    """Yield the feature gates with which the resources would be allocated, the fewest."""
    given = node.config.feature_gates or dict.fromkeys(OPTION_GATES, True)
    for gates in (_GATES[:1], _GATES[1:], _GATES):
        other = node.copy()
        try:
            other.config = replace(node.config, feature_gates={**given, **dict.fromkeys(gates, True)})
        except ConfigError:  # its release does not know them
            continue
        if other.resize(uid, containers, whole):
            attempt = {"kubelet": {"featureGates": dict.fromkeys(gates, True)}}
            yield Suggestion("kubelet", f"turn on {' and '.join(gates)} in the kubelet's featureGates", attempt)
            return


def _removals(node: Node, uid: str, containers: Amounts, whole: Amounts | None) -> Iterator[Suggestion]:
    """Yield the pod that requests least of those whose removal makes room."""
    others = sorted((one for one in node.pods if one.uid != uid), key=lambda one: requests_of(one).get("cpu", 0))
    for one in others[-MOST_REMOVALS:]:
        other = node.copy()
        other.remove(one.uid)
        if other.resize(uid, containers, whole):
            yield Suggestion("remove", f"remove pod {one.namespaced_name}", {"remove": [one.uid]}, True)
            return


def _smaller(node: Node, pod: Pod, wanted: Pod) -> Iterator[Suggestion]:
    """Yield the largest part of the increase that would be allocated."""
    part = bisect_left(
        range(1, _PARTS), True, key=lambda part: not node.copy().resize(pod.uid, _between(pod, wanted, part))
    )
    found = _between(pod, wanted, part)
    if part and found:
        parts = [
            f"{amount} {resource} for {name}"
            for name, one in found.items()
            for resource, amount in one["requests"].items()
        ]
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
                if (amount := _step(resource, before.get(resource, 0), wish, part)) != before.get(resource, 0)
            }
            for kind, (before, after) in kinds.items()
        }
        if changed["requests"]:
            found[new.name] = changed
    return found


def _step(resource: str, before: int, after: int, part: int) -> int:
    unit = 1000 if resource == "cpu" and not (before % 1000 or after % 1000) else 1 if resource == "cpu" else 1 << 20
    return before + (after - before) * part // _PARTS // unit * unit


def _anew(node: Node, wanted: Pod) -> Iterator[Suggestion]:
    """Yield that the pod would be admitted with these resources if it was made anew."""
    other = node.copy()
    other.remove(wanted.uid)
    admission = other.admit(wanted)
    if admission:
        got = [f"{name} would get CPUs {one.cpus}" for name, one in admission.containers.items() if one.cpus]
        more = f": {', '.join(got)}" if got else ""
        yield Suggestion("pod", f"delete the pod and create it with these resources{more}", {"recreate": wanted.uid})
