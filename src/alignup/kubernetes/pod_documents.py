"""Finds the pods in documents that `kubectl` prints or applies: Pods, Lists, and the objects that make pods.

Objects that make pods are those of Kubernetes and of anybody else: what has `spec.containers` in
some template is a pod. Says how many pods an object makes, which pods have ended and why, and on
which node they are. A single manifest is decoded by `alignup.kubernetes.manifest`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from alignup.errors import InputError, errors_in, warn
from alignup.kubernetes.manifest import WORKLOADS, read_pod
from alignup.kubernetes.pod import POLICIES, Pod, QOSClass
from alignup.kubernetes.versions import known_names
from alignup.records import Record, field, replace
from alignup.text.counting import counted, some_of
from alignup.text.documents import read_documents
from alignup.text.known_keys import unknown_keys

# The annotation with the uid by which a kubelet knows a static pod; the API server gives its copy
# another one.
STATIC_UID: Final = "kubernetes.io/config.hash"
# The most pods that are made of one object.
MOST_REPLICAS: Final = 10_000
# The levels of an object below which nobody keeps a template of a pod.
_MOST_LEVELS: Final = 12
# The fields beside a template that say how many pods it makes; Jobs run as many as the lower of the
# last two.
_COUNTS: Final = ("replicas", "parallelism", "completions")
# Kinds that may describe pods, or quote one, and make none.
_WITHOUT_TEMPLATES: Final = frozenset({"CustomResourceDefinition", "Event"})
_QOS_CLASSES: Final = frozenset(map(str, QOSClass))
_ENDED: Final = ("Succeeded", "Failed")


class PodDocument(Record):
    """A pod as it was found, with what a kubelet would not look at.

    Attributes:
        count: the number of such pods that its object makes.
        is_numbered: a single pod is numbered too, as those of a StatefulSet are.
        node_name: the node that it is bound to; empty: none yet.
        runtime_class: the name of its RuntimeClass; empty: it has none.
        phase: from its status; empty: not known.
        is_generated: its name, and uid, would be made up by the API server.
        reason: from its status: why it has failed.
        message: from its status.
        started: when its kubelet took note of it, as RFC 3339 has it; empty: not known, or not yet.
        created: when it was created.
        container_ids: by the runtime's id, without its scheme, the container's name.
    """

    pod: Pod
    count: int = 1
    is_numbered: bool = False
    node_name: str = ""
    runtime_class: str = ""
    phase: str = ""
    is_generated: bool = False
    reason: str = ""
    message: str = ""
    started: str = ""
    created: str = ""
    container_ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_ended(self) -> bool:
        """Whether it runs no more."""
        return self.phase in _ENDED

    @property
    def was_rejected(self) -> bool:
        """Whether its kubelet did not admit it."""
        return is_rejected(self.phase, self.reason)


def is_rejected(phase: str, reason: str) -> bool:
    """Return whether a pod of this status is one that its kubelet did not admit."""
    return phase == "Failed" and (reason in known_names("rejections") or reason.startswith("OutOf"))


class _Template(Record):
    """A pod within an object.

    Attributes:
        name: what tells it from the others of its object; empty: nothing has to.
    """

    manifest: Mapping[str, Any]
    place: str
    name: str
    count: int


def read_pod_documents(text: str | bytes, source: str) -> list[PodDocument]:
    """Return the pods in a text, in order: see `read_pods`."""
    return read_pods([(text, source)])


def read_pods(texts: Iterable[tuple[str | bytes, str]]) -> list[PodDocument]:
    """Return the pods in some texts, in order; objects that make none are told in a warning, as are unknown keys.

    A pod whose RuntimeClass is in any of the texts and names a policy, by the annotation
    `POLICIES`, gets it as its own.

    Args:
        texts: each YAML with any number of documents, JSON, or JSON lines: Pods, Lists, whatever
            has templates of pods, or RuntimeClasses that name policies; with its name in errors and
            warnings.

    Raises:
        InputError: a text is no YAML or JSON, has none of these, or something else than Kubernetes
            objects; or there is no pod in any.
    """
    found: list[PodDocument] = []
    classes: dict[str, str] = {}
    sources = []
    for text, source in texts:
        documents = read_documents(text, source)
        pods: list[PodDocument] = []
        ignored: Counter[str] = Counter()
        named: dict[str, str] = {}
        for number, document in enumerate(documents, 1):
            with errors_in(f"document {number} of {source}" if len(documents) > 1 else source):
                pods += _found(document, "", ignored, named)

        if ignored:
            kinds = ", ".join(
                f"{kind} ({count})" if count > 1 else kind for kind, count in ignored.items()
            )
            warn(f"{source}: ignored objects that make no pods: {kinds}")

        if not pods and not named:
            of_machine = any(kind.startswith("VirtualMachine") for kind in ignored)
            hint = (
                "; KubeVirt's are in `kubectl get pods -l kubevirt.io=virt-launcher -o yaml`"
                if of_machine
                else ""
            )
            raise InputError(f"there is no Pod in {source}{hint}")

        found += pods
        classes |= named
        sources.append(source)

    if not found:
        raise InputError(f"there is no Pod in {', '.join(sources)}")

    return [_with_policy(one, classes.get(one.runtime_class)) for one in _generated(found)]


def _with_policy(one: PodDocument, policy: str | None) -> PodDocument:
    """Return a pod with the policy of its RuntimeClass, unless it names policies itself."""
    if policy is None or POLICIES in one.pod.annotations:
        return one
    return replace(one, pod=one.pod.renamed(annotations={**one.pod.annotations, POLICIES: policy}))


def _found(  # noqa: C901  # a kind of objects each
    document: object, place: str, ignored: Counter[str], classes: dict[str, str]
) -> Iterator[PodDocument]:
    """Yield the pods in one object; count the kinds of objects without any, and note the policies of RuntimeClasses."""
    if document is None and not place:
        return
    if not isinstance(document, Mapping):
        raise InputError.at(place or "the top", "a Pod manifest, which is a mapping", document)

    kind = document.get("kind")
    if isinstance(kind, str) and kind.endswith("List") and "items" in document:
        items = document.get("items")
        where = _at(place, "items")
        if not isinstance(items, list):
            raise InputError.at(where, "a list of Pods", items)
        for index, item in enumerate(items):
            yield from _found(item, f"{where}[{index}]", ignored, classes)
    elif kind is None or kind == "Pod":
        metadata = _mapping(document, "metadata")
        _warn_of_keys(document, place, _named(metadata))
        yield pod_document(document, place)
    elif kind == "RuntimeClass" and POLICIES in _mapping(
        metadata := _mapping(document, "metadata"), "annotations"
    ):
        classes[str(metadata.get("name"))] = str(_mapping(metadata, "annotations")[POLICIES])
    elif not isinstance(kind, str):
        raise InputError.at(_at(place, "kind"), "a string", kind)
    else:
        templates = [] if kind in _WITHOUT_TEMPLATES else list(_templates(document, place, "", 1))
        if kind in WORKLOADS and not templates:
            templates = [_own_template(document, kind, place)]
        if not templates:
            ignored[kind] += 1
        for template in templates:
            yield _made(document, template, kind, alone=len(templates) == 1)


def pod_document(document: Mapping[str, Any], place: str) -> PodDocument:
    """Return a pod that is there by itself.

    Raises:
        InputError: it is none that an API server takes.
    """
    pod = read_pod(document, place)
    metadata, status = _mapping(document, "metadata"), _mapping(document, "status")
    uid = pod.annotations.get(STATIC_UID)
    # static pods have no status
    stored = status.get("qosClass") if metadata.get("uid") and uid is None else None
    if stored in _QOS_CLASSES and (stored != pod.qos or pod.made_of is not None):
        if stored != pod.qos:
            what = (
                f"pod {pod.namespaced_name} is {stored} by its status, and {pod.qos} by its "
                "resources"
            )
            warn(f"{what}; a kubelet goes by the status")

        pod = read_pod(document, place, QOSClass(stored))

    containers = [
        one
        for kind in ("containerStatuses", "initContainerStatuses")
        for one in status.get(kind) or ()
    ]
    told = {
        str(one["containerID"]): one.get("name") or ""
        for one in containers
        if one.get("containerID")
    }
    return PodDocument(
        pod if uid is None or uid == pod.uid else pod.renamed(uid=uid),
        node_name=str(_mapping(document, "spec").get("nodeName") or ""),
        runtime_class=str(_mapping(document, "spec").get("runtimeClassName") or ""),
        phase=str(status.get("phase") or ""),
        is_generated=_is_generated(metadata),
        reason=str(status.get("reason") or ""),
        message=str(status.get("message") or ""),
        started=str(status.get("startTime") or ""),
        created=str(metadata.get("creationTimestamp") or ""),
        container_ids={identity.rpartition("//")[2]: name for identity, name in told.items()},
    )


def _templates(
    value: object, place: str, name: str, count: int, level: int = 0
) -> Iterator[_Template]:
    """Yield the pods that an object makes, wherever they are in it.

    Args:
        value: the object, or a part of it.
        place: where that part is.
        name: what tells the part from others alike: a key that somebody chose, or a name in a list.
        count: how many times what holds the part makes it.
        level: how deep in the object it is.
    """
    if level > _MOST_LEVELS:
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            own = item.get("name") if isinstance(item, Mapping) else None
            yield from _templates(
                item, f"{place}[{index}]", own if isinstance(own, str) else name, count, level + 1
            )

        return

    if not isinstance(value, Mapping):
        return

    spec = value.get("spec")
    if level and isinstance(spec, Mapping) and isinstance(spec.get("containers"), list):
        yield _Template(value, place, name, count)
        return
    if level and isinstance(value.get("container"), Mapping) and "containers" not in value:
        # a step of an Argo workflow is one container, which the controller puts into a pod
        container = {"name": "main", **value["container"]}
        keys = {
            key: value[key]
            for key in ("initContainers", "nodeSelector", "tolerations")
            if key in value
        }
        manifest = {"metadata": value.get("metadata"), "spec": {"containers": [container], **keys}}
        yield _Template(manifest, place, name, count)
        return

    own_count = count * _count(value, place)
    for key, part in value.items():
        if key in {"status", "metadata"} or not isinstance(key, str):
            continue
        told = _name_of(key) if place.endswith("ReplicaSpecs") or key.endswith("Template") else ""
        yield from _templates(
            part, _at(place, key), told or name, own_count * _members(value, key), level + 1
        )


def _own_template(document: Mapping[str, Any], kind: str, place: str) -> _Template:
    """Return the template of an object of Kubernetes that has none with containers.

    Raises:
        InputError: there is no template at all.
    """
    template: object = document
    for step in WORKLOADS[kind]:
        template = template.get(step) if isinstance(template, Mapping) else None
    where = _at(place, ".".join(WORKLOADS[kind]))
    if not isinstance(template, Mapping):
        raise InputError.at(f"{where} of kind {kind}", "a Pod template", template)
    return _Template(template, where, "", 1)


def _named(metadata: Mapping[str, Any]) -> str:
    """Return namespace and name as warnings have them."""
    return f"{metadata.get('namespace') or 'default'}/{metadata.get('name') or metadata.get('generateName') or '?'}"


def _name_of(key: str) -> str:
    """Return a key as a part of a pod's name: `Worker` as worker, `leaderTemplate` as leader."""
    stem = key.removesuffix("Template")
    return "" if stem in {"job", "pod", ""} or (stem.endswith("leaderWorker")) else stem.lower()


def _members(value: Mapping[str, Any], key: str) -> int:
    """Return how many pods of a group a template of a LeaderWorkerSet makes; 1 for all else."""
    size = value.get("size")
    if key == "workerTemplate" and isinstance(size, int) and not isinstance(size, bool):
        return max(0, size - ("leaderTemplate" in value))
    return 1


def _count(value: Mapping[str, Any], place: str) -> int:
    """Return how many pods, or groups, a mapping with a template makes at one time."""
    found: dict[str, int] = {key: value[key] for key in _COUNTS if value.get(key) is not None}
    for key, number in found.items():
        if (
            not isinstance(number, int)
            or isinstance(number, bool)
            or not 0 <= number <= MOST_REPLICAS
        ):
            raise InputError.at(
                _at(place, key), f"a whole number of at most {MOST_REPLICAS}", number
            )

    if "parallelism" in found or "completions" in found:
        at_once = found.get("parallelism", 1)
        return min(at_once, found.get("completions", at_once))

    return found.get("replicas", 1)


def _made(
    document: Mapping[str, Any], template: _Template, kind: str, *, alone: bool
) -> PodDocument:
    """Return the pod that an object makes of a template, named after the object."""
    own, metadata = _mapping(document, "metadata"), _mapping(template.manifest, "metadata")
    names = {
        key: own[key] for key in ("name", "generateName", "namespace") if own.get(key) is not None
    }
    if not alone and template.name and isinstance(names.get("name"), str):
        names["name"] = f"{names['name']}-{template.name}"

    manifest = {
        "metadata": {**metadata, **names, "uid": None},
        "spec": template.manifest.get("spec"),
    }
    if template.count > MOST_REPLICAS:
        raise InputError.at(
            template.place, f"at most {MOST_REPLICAS} pods of one template", template.count
        )

    _warn_of_keys(template.manifest, template.place, f"{kind} {_named(own)}")
    count = 1 if kind == "DaemonSet" else template.count
    is_generated = _is_generated(own)
    found = pod_document(manifest, template.place)
    return replace(found, count=count, is_numbered=kind == "StatefulSet", is_generated=is_generated)


def _warn_of_keys(manifest: Mapping[str, Any], place: str, whose: str) -> None:
    """Warn of keys of a pod that Kubernetes does not know, with the known one that is probably meant."""
    spec = _mapping(manifest, "spec")
    places = [(place, manifest, "Pod"), (_at(place, "spec"), spec, "spec")]
    places.append((_at(place, "spec.resources"), _mapping(spec, "resources"), "resources"))
    for kind in ("initContainers", "containers"):
        listed = spec.get(kind)
        for index, container in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(container, Mapping):
                where = _at(place, f"spec.{kind}[{index}]")
                places.append((where, container, "container"))
                places.append((f"{where}.resources", _mapping(container, "resources"), "resources"))

    for where, mapping, kind in places:
        for key, meant in unknown_keys(mapping, known_names(kind)):
            hint = f"; did you mean {meant!r}?" if meant else ""
            warn(f"{whose}: the key {_at(where, key)} is unknown and ignored{hint}")


def _at(place: str, key: str) -> str:
    """Return the place of what is at a key in a place, which is empty for the top."""
    return f"{place}.{key}" if place else key


def _is_generated(metadata: Mapping[str, Any]) -> bool:
    return not (metadata.get("name") or metadata.get("uid")) and bool(metadata.get("generateName"))


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
            name, uid = (
                f"{text.removesuffix('0')}{number}" for text in (one.pod.name, one.pod.uid)
            )
            yield replace(one, pod=one.pod.renamed(name=name, uid=uid))
        else:
            yield one


def live_pods(
    documents: Iterable[PodDocument],
    node_name: str | None = None,
    *,
    one_node: bool = True,
    rejected: bool = False,
) -> list[PodDocument]:
    """Return the pods of one node that have not ended; the others are told in warnings.

    Args:
        documents: as `read_pod_documents` returns them, of all files together.
        node_name: the node; pods that are bound to none are kept. None: there may be one node only.
        one_node: False: pods of any nodes are returned.
        rejected: return pods that were rejected by their kubelets, too.

    Raises:
        InputError: `node_name` is None and the pods are bound to several nodes.
    """
    alive: list[PodDocument] = []
    for one in documents:
        if one.has_ended and not (rejected and one.was_rejected):
            why = f", {one.reason}" if one.reason else ""
            warn(f"pod {one.pod.namespaced_name} has ended ({one.phase}{why}) and is ignored")
        else:
            alive.append(one)

    nodes = sorted({one.node_name for one in alive if one.node_name})
    if node_name is None:
        if len(nodes) > 1 and one_node:
            raise InputError(
                f"these are pods of several nodes ({some_of(nodes, 3)}): --node-name chooses one"
            )

        return alive

    kept = [one for one in alive if one.node_name in {"", node_name}]
    if len(kept) < len(alive):
        warn(f"{counted(len(alive) - len(kept), 'pod')} of other nodes than {node_name} ignored")

    return kept


def expanded(documents: Iterable[PodDocument], replicas: int | None = None) -> list[Pod]:
    """Return all pods; several of one object have a number at the end of name and uid.

    Args:
        documents: the pods and how many of each there are.
        replicas: how many of each instead; they then come in rounds, one of each.
    """
    listed = list(documents)
    if replicas is None:
        numbers = [(one, number, one.count) for one in listed for number in range(one.count)]
    else:
        numbers = [(one, number, replicas) for number in range(replicas) for one in listed]

    ends = [
        (one.pod, f"-{number}" if count > 1 or one.is_numbered else "")
        for one, number, count in numbers
    ]
    return [
        pod.renamed(name=f"{pod.name}{end}", uid=f"{pod.uid}{end}") if end else pod
        for pod, end in ends
    ]
