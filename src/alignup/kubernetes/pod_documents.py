"""Finds the pods in documents that `kubectl` prints or applies: Pods, Lists, and the objects that make pods.

Says how many pods an object makes, which pods have ended, and on which node they are. A single manifest is decoded
by `alignup.kubernetes.manifest`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import InputError, warn
from alignup.kubernetes.manifest import pod_from_manifest
from alignup.text.documents import read_documents

if TYPE_CHECKING:
    from alignup.kubernetes.pod import Pod

__all__ = ["PodDocument", "expanded", "live_pods", "read_pod_documents"]

MOST_REPLICAS: Final = 10_000
"""The most pods that are made of one object."""

_TEMPLATES: Final = {
    **dict.fromkeys(
        ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController", "Job"),
        ("spec", "template"),
    ),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
"""Where the objects that make pods keep the pod."""

_WITHOUT_PODS: Final = frozenset(
    """
    ClusterRole ClusterRoleBinding ConfigMap CustomResourceDefinition Endpoints EndpointSlice Event
    HorizontalPodAutoscaler Ingress Lease LimitRange Namespace NetworkPolicy Node PersistentVolume PersistentVolumeClaim
    PodDisruptionBudget PriorityClass ResourceClaim ResourceClaimTemplate ResourceQuota Role RoleBinding RuntimeClass
    Secret Service ServiceAccount StorageClass
    """.split()  # noqa: SIM905  # so many names read better without quotes
)
"""Kinds that often stand beside pods and have none."""

_ENDED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class PodDocument:
    """A pod as it was found, with what a kubelet would not look at."""

    pod: Pod
    count: int = 1
    """The number of such pods that its object makes."""
    is_numbered: bool = False
    """A single pod is numbered too, as those of a StatefulSet are."""
    node_name: str = ""
    """The node that it is bound to; empty: none yet."""
    phase: str = ""
    """From its status; empty: not known."""
    is_generated: bool = False
    """Its name, and uid, would be made up by the API server."""


def read_pod_documents(text: str | bytes, source: str) -> list[PodDocument]:
    """Return the pods in a text, in order; objects that have none are warned of.

    Args:
        text: YAML with any number of documents, or JSON: Pods, Lists, Deployments, StatefulSets, Jobs and so on.
        source: the name of the text in errors and warnings.

    Raises:
        InputError: the text is no YAML or JSON, has no pods, or something else than Kubernetes objects.
    """
    documents = read_documents(text, source)
    found: list[PodDocument] = []
    for number, document in enumerate(documents, 1):
        which = f"document {number} of {source}" if len(documents) > 1 else source
        try:
            found += _found(document, "", which)
        except InputError as error:
            raise type(error)(f"{error} in {which}") from None
    if not found:
        raise InputError(f"expected a Pod manifest, got nothing in {source}")
    return list(_generated(found))


def _found(document: object, place: str, which: str) -> Iterator[PodDocument]:
    """Yield the pods in one object."""
    if document is None and not place:
        return
    if not isinstance(document, Mapping):
        raise InputError.at(place or "the top", "a Pod manifest, which is a mapping", document)
    kind = document.get("kind")
    if isinstance(kind, str) and kind.endswith("List"):
        items = document.get("items")
        where = f"{place}.items" if place else "items"
        if not isinstance(items, list):
            raise InputError.at(where, "a list of Pods", items)
        for index, item in enumerate(items):
            yield from _found(item, f"{where}[{index}]", which)
    elif kind in _TEMPLATES:
        yield _made(document, kind, place)
    elif kind in _WITHOUT_PODS:
        warn(f"a {kind} makes no pods and is ignored in {which}")
    else:
        spec, status = _mapping(document, "spec"), _mapping(document, "status")
        yield PodDocument(
            pod_from_manifest(document, place),
            node_name=str(spec.get("nodeName") or ""),
            phase=str(status.get("phase") or ""),
            is_generated=_is_generated(_mapping(document, "metadata")),
        )


def _made(document: Mapping[str, Any], kind: str, place: str) -> PodDocument:
    """Return the pod that an object makes, named after the object."""
    before = f"{place}." if place else ""
    template: object = document
    for step in _TEMPLATES[kind]:
        template = template.get(step) if isinstance(template, Mapping) else None
    where = before + ".".join(_TEMPLATES[kind])
    if not isinstance(template, Mapping):
        raise InputError.at(f"{where} of kind {kind}", "a Pod template", template)
    own, metadata = _mapping(document, "metadata"), _mapping(template, "metadata")
    names = {key: own[key] for key in ("name", "generateName", "namespace") if own.get(key) is not None}
    manifest = {"metadata": {**metadata, **names, "uid": None}, "spec": template.get("spec")}
    pod = pod_from_manifest(manifest, where)
    spec = _mapping(document, "spec")
    if kind == "CronJob":
        spec = _mapping(_mapping(spec, "jobTemplate"), "spec")
    return PodDocument(
        pod,
        _count(spec, kind, before),
        kind == "StatefulSet",
        str(_mapping(template, "spec").get("nodeName") or ""),
        is_generated=_is_generated(own),
    )


def _is_generated(metadata: Mapping[str, Any]) -> bool:
    return not (metadata.get("name") or metadata.get("uid")) and bool(metadata.get("generateName"))


def _count(spec: Mapping[str, Any], kind: str, before: str) -> int:
    """Return how many pods an object makes at one time; a DaemonSet makes one on each node."""
    if kind == "DaemonSet":
        return 1
    if kind not in {"Job", "CronJob"}:
        return _number(spec, "replicas", f"{before}spec")
    at_once = _number(spec, "parallelism", f"{before}spec")
    return min(at_once, _number(spec, "completions", f"{before}spec", at_once))


def _number(spec: Mapping[str, Any], key: str, where: str, default: int = 1) -> int:
    value = spec.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_REPLICAS:
        raise InputError.at(f"{where}.{key}", f"a whole number of at most {MOST_REPLICAS}", value)
    return value


def _mapping(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the mapping under a key; empty if there is none, which whoever needs it complains of."""
    found = document.get(key)
    return found if isinstance(found, Mapping) else {}


def _generated(found: Iterable[PodDocument]) -> Iterator[PodDocument]:
    """Yield the documents with the pods of one generated name numbered, as the API server tells them apart."""
    seen: Counter[str] = Counter()
    for one in found:
        number = seen[one.pod.uid]
        if one.is_generated:
            seen[one.pod.uid] += 1
        if one.is_generated and number:
            name, uid = (f"{text.removesuffix('0')}{number}" for text in (one.pod.name, one.pod.uid))
            yield replace(one, pod=replace(one.pod, name=name, uid=uid))
        else:
            yield one


def live_pods(
    documents: Iterable[PodDocument], node_name: str | None = None, *, one_node: bool = True
) -> list[PodDocument]:
    """Return the pods of one node that have not ended; the others are told in warnings.

    Args:
        documents: as `read_pod_documents` returns them, of all files together.
        node_name: the node; pods that are bound to none are kept. None: there may be one node only.
        one_node: False: pods of any nodes are returned.

    Raises:
        InputError: `node_name` is None and the pods are bound to several nodes.
    """
    alive: list[PodDocument] = []
    for one in documents:
        if one.phase in _ENDED:
            warn(f"pod {one.pod.namespace}/{one.pod.name} has ended ({one.phase}) and is passed over")
        else:
            alive.append(one)
    nodes = sorted({one.node_name for one in alive if one.node_name})
    if node_name is None:
        if len(nodes) > 1 and one_node:
            named = ", ".join(nodes[:3]) + (" and others" if len(nodes) > 3 else "")  # noqa: PLR2004
            raise InputError(f"expected pods of one node, got pods of {named}: --node-name chooses one")
        return alive
    kept = [one for one in alive if one.node_name in {"", node_name}]
    if len(kept) < len(alive):
        others = len(alive) - len(kept)
        warn(f"{others} pod{'' if others == 1 else 's'} of other nodes than {node_name} passed over")
    return kept


def expanded(documents: Iterable[PodDocument], replicas: int | None = None) -> list[Pod]:
    """Return all pods; several of one object have a number at the end of name and uid.

    Args:
        documents: the pods and how many of each there are.
        replicas: how many of each instead; they then come in rounds, one of each.
    """
    listed = list(documents)
    if replicas is None:
        return [
            _copy(one.pod, number if one.count > 1 or one.is_numbered else None)
            for one in listed
            for number in range(one.count)
        ]
    numbered = replicas > 1
    return [
        _copy(one.pod, number if numbered or one.is_numbered else None)
        for number in range(replicas)
        for one in listed
    ]


def _copy(pod: Pod, number: int | None) -> Pod:
    return pod if number is None else replace(pod, name=f"{pod.name}-{number}", uid=f"{pod.uid}-{number}")
