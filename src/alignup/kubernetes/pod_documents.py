"""Finds the pods in documents that `kubectl` prints or applies.

They are Pods, Lists, and the objects that make pods: those of Kubernetes and of anybody else, as
what has `spec.containers` in some template is a pod. Says how many pods an object makes, which pods
have ended and why, and on which node they are. A single manifest is decoded by
`alignup.kubernetes.manifest`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import InputError, errors_in, warn
from alignup.kubernetes.manifest import WORKLOADS, read_pod
from alignup.kubernetes.pod import POLICIES, Pod, QOSClass
from alignup.kubernetes.versions import is_rejection, known_names
from alignup.records import Record, field, replace
from alignup.text.counting import counted, some_of
from alignup.text.documents import read_documents
from alignup.text.known_keys import unknown_keys

if TYPE_CHECKING:
    from alignup.kubernetes.groups import GroupObject, Membership

# The annotation with the uid by which a kubelet knows a static pod; the API server gives its copy
# another one.
STATIC_UID: Final = "kubernetes.io/config.hash"
# The most pods that are made of one object.
MOST_REPLICAS: Final = 10_000
# The levels of an object below which nobody keeps a template of a pod.
_MOST_LEVELS: Final = 12
# So many unknown keys of a mapping are named.
_MOST_TOLD: Final = 100
# The fields beside a template that say how many pods it makes; Jobs run as many as the lower of the
# last two.
_COUNTS: Final = ("replicas", "parallelism", "completions")
# Kinds that say how many members a group has.
_OF_GROUPS: Final = frozenset({"PodGroup", "JobSet", "LeaderWorkerSet"})
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
        membership: the group whose member it is; None: it goes alone.
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
    membership: Membership | None = None

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
    return phase == "Failed" and is_rejection(reason)


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
    """Return the pods in some texts, in order.

    Objects that make none are told in a warning, as are unknown keys. A pod whose RuntimeClass is
    in any of the texts and names a policy, by the annotation `POLICIES`, gets it as its own.

    Args:
        texts: each YAML with any number of documents, JSON, or JSON lines: Pods, Lists, whatever
            has templates of pods, or RuntimeClasses that name policies; with its name in errors and
            warnings.

    Raises:
        InputError: a text is no YAML or JSON, has none of these, or something else than Kubernetes
            objects; or there is no pod in any.
    """
    # its expressions take longer to compile than a process without manifests has
    from alignup.kubernetes.recognition import (  # noqa: PLC0415
        objects_recognised,
        refuse_what_is_no_manifest,
    )

    all_pods: list[PodDocument] = []
    group_objects: list[GroupObject] = []
    policies: dict[str, str] = {}
    sources = []
    for text, source in texts:
        refuse_what_is_no_manifest(text, source)
        objects = _Objects()
        documents = read_documents(text, source)
        without_kind = [
            document
            for document in documents
            if isinstance(document, Mapping) and "kind" not in document
        ]
        noun = objects_recognised(without_kind)
        if noun:
            raise InputError(f"{source} is {noun}")

        for number, document in enumerate(documents, 1):
            with errors_in(f"document {number} of {source}" if len(documents) > 1 else source):
                _take(document, "", objects)

        if objects.ignored:
            kinds = ", ".join(
                f"{kind} ({count})" if count > 1 else kind
                for kind, count in objects.ignored.items()
            )
            warn(f"{source}: ignored objects that make no pods: {kinds}")

        if not objects.pods and not objects.policies and not objects.groups:
            noun = objects_recognised(documents)
            hint = f": it has {noun}" if noun else ""
            if any(kind.startswith("VirtualMachine") for kind in objects.ignored):
                hint = "; KubeVirt's are in `kubectl get pods -l kubevirt.io=virt-launcher -o yaml`"
            raise InputError(f"there is no Pod in {source}{hint}")

        all_pods += objects.pods
        group_objects += objects.groups
        policies |= objects.policies
        sources.append(source)

    if not all_pods:
        raise InputError(f"there is no Pod in {', '.join(sources)}")

    return [
        _with_policy(document, policies.get(document.runtime_class))
        for document in _generated(_resized(all_pods, group_objects))
    ]


def _resized(documents: list[PodDocument], items: list[GroupObject]) -> list[PodDocument]:
    """Return pods with the numbers of members that objects of their groups say."""
    if not items:
        return documents

    from alignup.kubernetes.groups import GroupSizes  # noqa: PLC0415  # most texts have no groups

    sizes = GroupSizes()
    for item in items:
        sizes.seen(item)

    return [
        document
        if document.membership is None
        else replace(document, membership=sizes.resized(document.membership))
        for document in documents
    ]


def _with_policy(document: PodDocument, policy: str | None) -> PodDocument:
    """Return a pod with the policy of its RuntimeClass, unless it names policies itself."""
    annotations = document.pod.annotations
    if policy is None or POLICIES in annotations:
        return document
    return replace(
        document, pod=document.pod.renamed(annotations={**annotations, POLICIES: policy})
    )


class _Objects(Record, frozen=False):
    """What the objects of a text are.

    Attributes:
        ignored: by kind, how many objects make no pods.
        policies: by RuntimeClass, the policy that it names.
        groups: those that say how many members a group has.
    """

    pods: list[PodDocument] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    policies: dict[str, str] = field(default_factory=dict)
    groups: list[GroupObject] = field(default_factory=list)


def _take(document: object, place: str, objects: _Objects) -> None:
    """Take one object, or those in a List."""
    if document is None and not place:
        return
    if not isinstance(document, Mapping):
        raise InputError.at(place or "the top", "a Pod manifest, which is a mapping", document)

    kind = document.get("kind")
    if kind is None or kind == "Pod":
        _warn_of_keys(document, place, _named(_mapping(document, "metadata")))
        objects.pods.append(pod_document(document, place))
        return
    if not isinstance(kind, str):
        raise InputError.at(_at(place, "kind"), "a string", kind)

    if kind.endswith("List") and "items" in document:
        items = document.get("items")
        where = _at(place, "items")
        if not isinstance(items, list):
            raise InputError.at(where, "a list of Pods", items)
        for index, item in enumerate(items):
            _take(item, f"{where}[{index}]", objects)
        return

    metadata = _mapping(document, "metadata")
    annotations = _mapping(metadata, "annotations")
    is_used = kind in _OF_GROUPS and _take_group(document, place, objects)
    if kind == "RuntimeClass" and POLICIES in annotations:
        objects.policies[str(metadata.get("name"))] = str(annotations[POLICIES])
    elif kind != "PodGroup" or not is_used:
        _take_templates(document, kind, place, objects)


def _take_group(document: Mapping[str, Any], place: str, objects: _Objects) -> bool:
    """Take what an object says of how many members a group has; return whether it says that."""
    # few texts have groups
    from alignup.kubernetes.groups import group_object  # noqa: PLC0415

    item = None
    with suppress(InputError):  # its templates may be read all the same
        item = group_object(document, place)
    if item is not None:
        objects.groups.append(item)
    return item is not None


def _take_templates(document: Mapping[str, Any], kind: str, place: str, objects: _Objects) -> None:
    """Take the pods that an object makes of its templates."""
    templates: list[_Template] = []
    if kind not in _WITHOUT_TEMPLATES:
        templates = list(_templates(document, place, "", 1))
    if kind in WORKLOADS and not templates:
        templates = [_own_template(document, kind, place)]

    if not templates:
        objects.ignored[kind] += 1
    for template in templates:
        objects.pods.append(_pod_of(document, template, kind, alone=len(templates) == 1))


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
            warn(
                f"pod {pod.namespaced_name} is {stored} by its status, and {pod.qos} by its "
                "resources; a kubelet goes by the status"
            )

        pod = read_pod(document, place, QOSClass(stored))

    if uid is not None and uid != pod.uid:
        pod = pod.renamed(uid=uid)

    container_ids = {}
    for kind in ("containerStatuses", "initContainerStatuses"):
        for container in status.get(kind) or ():
            if container.get("containerID"):
                container_id = str(container["containerID"]).rpartition("//")[2]
                container_ids[container_id] = container.get("name") or ""

    spec = _mapping(document, "spec")
    return PodDocument(
        pod,
        node_name=str(spec.get("nodeName") or ""),
        runtime_class=str(spec.get("runtimeClassName") or ""),
        phase=str(status.get("phase") or ""),
        is_generated=_is_generated(metadata),
        reason=str(status.get("reason") or ""),
        message=str(status.get("message") or ""),
        started=str(status.get("startTime") or ""),
        created=str(metadata.get("creationTimestamp") or ""),
        container_ids=container_ids,
        membership=_membership(document),
    )


def _membership(
    manifest: Mapping[str, Any], kind: str = "Pod", name: str = ""
) -> Membership | None:
    """Return the group of a pod; None: it goes alone."""
    metadata = _mapping(manifest, "metadata")
    spec = _mapping(manifest, "spec")
    if kind == "Pod" and not (
        metadata.get("labels") or metadata.get("annotations") or spec.get("schedulingGroup")
    ):
        return None

    # few pods are members
    from alignup.kubernetes.groups import membership_of_manifest  # noqa: PLC0415

    return membership_of_manifest(manifest, kind, name)


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
            item_name = _name_of_item(item, default=name)
            yield from _templates(item, f"{place}[{index}]", item_name, count, level + 1)

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

        part_name = name
        if place.endswith("ReplicaSpecs") or key.endswith("Template"):
            part_name = _name_of(key) or name
        part_count = own_count * _members(value, key)
        yield from _templates(part, _at(place, key), part_name, part_count, level + 1)


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
    name = metadata.get("name") or metadata.get("generateName") or "?"
    return f"{metadata.get('namespace') or 'default'}/{name}"


def _name_of_item(item: object, default: str) -> str:
    """Return the name of an item of a list."""
    name = item.get("name") if isinstance(item, Mapping) else None
    return name if isinstance(name, str) else default


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
    counts: dict[str, int] = {key: value[key] for key in _COUNTS if value.get(key) is not None}
    for key, number in counts.items():
        if (
            not isinstance(number, int)
            or isinstance(number, bool)
            or not 0 <= number <= MOST_REPLICAS
        ):
            raise InputError.at(
                _at(place, key), f"a whole number of at most {MOST_REPLICAS}", number
            )

    if "parallelism" in counts or "completions" in counts:
        at_once = counts.get("parallelism", 1)
        return min(at_once, counts.get("completions", at_once))

    return counts.get("replicas", 1)


def _pod_of(
    document: Mapping[str, Any], template: _Template, kind: str, *, alone: bool
) -> PodDocument:
    """Return the pod that an object makes of a template, named after the object."""
    metadata = _mapping(document, "metadata")
    names = {
        key: metadata[key]
        for key in ("name", "generateName", "namespace")
        if metadata.get(key) is not None
    }
    if not alone and template.name and isinstance(names.get("name"), str):
        names["name"] = f"{names['name']}-{template.name}"

    if template.count > MOST_REPLICAS:
        raise InputError.at(
            template.place, f"at most {MOST_REPLICAS} pods of one template", template.count
        )

    _warn_of_keys(template.manifest, template.place, f"{kind} {_named(metadata)}")
    manifest = {
        "metadata": {**_mapping(template.manifest, "metadata"), **names, "uid": None},
        "spec": template.manifest.get("spec"),
    }
    return replace(
        pod_document(manifest, template.place),
        count=1 if kind == "DaemonSet" else template.count,
        is_numbered=kind == "StatefulSet",
        is_generated=_is_generated(metadata),
        membership=_membership(manifest, kind, str(metadata.get("name") or "")),
    )


def _warn_of_keys(manifest: Mapping[str, Any], place: str, subject: str) -> None:
    """Warn of keys of a pod that Kubernetes does not know.

    With the known one that is probably meant.
    """
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
        unknown = unknown_keys(mapping, known_names(kind))
        for key, meant in islice(unknown, _MOST_TOLD):
            hint = f"; did you mean {meant!r}?" if meant else ""
            warn(f"{subject}: the key {_at(where, key)} is unknown and ignored{hint}")

        more = sum(1 for _ in unknown)
        if more:
            warn(
                f"{subject}: {more} more keys of {where or 'the document'} are unknown and ignored"
            )


def _at(place: str, key: str) -> str:
    """Return the place of what is at a key in a place, which is empty for the top."""
    return f"{place}.{key}" if place else key


def _is_generated(metadata: Mapping[str, Any]) -> bool:
    return not (metadata.get("name") or metadata.get("uid")) and bool(metadata.get("generateName"))


def _mapping(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the mapping under a key; empty if there is none.

    Whoever needs one complains of that.
    """
    value = document.get(key)
    return value if isinstance(value, Mapping) else {}


def _generated(documents: Iterable[PodDocument]) -> Iterator[PodDocument]:
    """Yield the documents with the pods of one generated name numbered.

    So the API server tells them apart.
    """
    counts: Counter[str] = Counter()
    for document in documents:
        pod = document.pod
        number = counts[pod.uid]
        if document.is_generated:
            counts[pod.uid] += 1

        if document.is_generated and number:
            name = f"{pod.name.removesuffix('0')}{number}"
            uid = f"{pod.uid.removesuffix('0')}{number}"
            yield replace(document, pod=pod.renamed(name=name, uid=uid))
        else:
            yield document


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
    for document in documents:
        if document.has_ended and not (rejected and document.was_rejected):
            why = f", {document.reason}" if document.reason else ""
            name = document.pod.namespaced_name
            warn(f"pod {name} has ended ({document.phase}{why}) and is ignored")
        else:
            alive.append(document)

    nodes = sorted({document.node_name for document in alive if document.node_name})
    if node_name is None:
        if len(nodes) > 1 and one_node:
            raise InputError(
                f"these are pods of several nodes ({some_of(nodes, 3)}): --node-name chooses one"
            )

        return alive

    kept = [document for document in alive if document.node_name in {"", node_name}]
    if len(kept) < len(alive):
        warn(f"{counted(len(alive) - len(kept), 'pod')} of other nodes than {node_name} ignored")

    return kept


def expanded(documents: Iterable[PodDocument], replicas: int | None = None) -> list[Pod]:
    """Return all pods; several of one object have a number at the end of name and uid.

    Args:
        documents: the pods and how many of each there are.
        replicas: how many of each instead; they then come in rounds, one of each.
    """
    return [document.pod for document in expanded_documents(documents, replicas)]


def expanded_documents(
    documents: Iterable[PodDocument], replicas: int | None = None
) -> list[PodDocument]:
    """Return a document for each of all pods; arguments as for `expanded`."""
    if replicas is None:
        return [
            _numbered(document, number, document.count)
            for document in documents
            for number in range(document.count)
        ]

    templates = list(documents)
    return [
        _numbered(document, number, replicas)
        for number in range(replicas)
        for document in templates
    ]


def _numbered(document: PodDocument, number: int, count: int) -> PodDocument:
    """Return one of several pods of an object."""
    pod = document.pod
    if count > 1 or document.is_numbered:
        pod = pod.renamed(name=f"{pod.name}-{number}", uid=f"{pod.uid}-{number}")
        return replace(document, pod=pod)
    return document
