"""Tells which pods are the members of one group, and how many of them have to run together.

Whoever makes pods in groups writes it in a way of its own; these are read, the first that a pod
has:

| who | the group | how many |
|---|---|---|
| alignup | label `alignup.dev/group`, or the Job of the pod | annotation `alignup.dev/group-size` |
| Kubernetes 1.37 | `spec.schedulingGroup.podGroupName` | `minCount` of the PodGroup, gang policy |
| LeaderWorkerSet | its name and group index | annotation `leaderworkerset.sigs.k8s.io/size` |
| Volcano | annotation `scheduling.k8s.io/group-name` | `minMember` of its PodGroup |
| Kueue | label `kueue.x-k8s.io/pod-group-name` | `kueue.x-k8s.io/pod-group-total-count` |
| JobSet | label `jobset.sigs.k8s.io/jobset-name` | the pods of its replicated jobs |

A LeaderWorkerSet that Volcano or Kueue counts as well is told by itself, as only it says in which
order its pods are made.

A group whose members are not made together waits for nobody, or it would wait for ever:

- a LeaderWorkerSet that starts its workers once the leader is ready;
- a JobSet that starts its jobs in order or has jobs that depend on others;
- both with exclusive placement, where other pods are made once a leader has a node (JobSet v0.10.1,
  pkg/webhooks/pod_admission_webhook.go; LWS v0.8.0, pkg/controllers/pod_controller.go);
- a group that Kueue admits by its first pod, as it does for a StatefulSet, which makes one pod
  after another (Kueue v0.17.0, pkg/controller/jobs/statefulset).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from alignup.errors import InputError
from alignup.kubernetes.wire import Metadata
from alignup.records import Record, replace
from alignup.text.digits import number_of
from alignup.text.json_text import decode_json

if TYPE_CHECKING:
    from collections.abc import Iterable

GROUP_LABEL: Final = "alignup.dev/group"
SIZE_ANNOTATION: Final = "alignup.dev/group-size"

# The kind of groups that are PodGroups of scheduling.k8s.io.
POD_GROUP: Final = "podgroup"
_VOLCANO: Final = "volcano podgroup"

# Where Volcano looks for the name of a pod's PodGroup, in this order (volcano.sh/apis v1.12.1,
# pkg/apis/scheduling/v1beta1/labels.go).
_VOLCANO_ANNOTATIONS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")

_KUEUE_LABEL: Final = "kueue.x-k8s.io/pod-group-name"
_KUEUE_SIZE: Final = "kueue.x-k8s.io/pod-group-total-count"
_KUEUE_FAST: Final = "kueue.x-k8s.io/pod-group-fast-admission"
_LWS_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
_LWS_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
_LWS_SIZE: Final = "leaderworkerset.sigs.k8s.io/size"
_LWS_EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/exclusive-topology"
_JOB_SET: Final = "jobset.sigs.k8s.io/jobset-name"
_JOB_SET_EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_JOB_SET_NODE_SELECTOR: Final = "alpha.jobset.sigs.k8s.io/node-selector"
_JOB: Final = "batch.kubernetes.io/job-name"

_LABELS: Final = frozenset({GROUP_LABEL, _KUEUE_LABEL, _LWS_NAME, _JOB_SET, _JOB})

# Pods of one group, in any field of these objects.
_MOST_MEMBERS: Final = 100_000


class Membership(Record):
    """The group of a pod.

    Attributes:
        kind: who made the group: `alignup`, `job`, `podgroup`, `volcano podgroup`,
            `kueue`, `leaderworkerset`, `jobset`.
        name: of the group, within its namespace and kind.
        size: how many members have to run together, as the pod itself says; 0: an object says it.
        object_name: the name of that object.
        fault: why the number of members cannot be read; empty: it can.
    """

    kind: str
    namespace: str
    name: str
    size: int = 0
    object_name: str = ""
    fault: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Equal for the members of one group."""
        return self.kind, self.namespace, self.name


def is_member(labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
    """Return whether a pod may be a member of a group by what stands in it: most are not."""
    return not _LABELS.isdisjoint(labels) or bool(_volcano_group(annotations))


def membership_or_fault(
    namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str], pod_group: str = ""
) -> Membership | None:
    """Return what `membership_of` does; where that fails, a group that never has its members.

    A pod holds what it holds, whatever stands in its labels.
    """
    try:
        return membership_of(namespace, labels, annotations, pod_group)
    except InputError as error:
        name = labels.get(GROUP_LABEL) or labels.get(_KUEUE_LABEL) or labels.get(_LWS_NAME) or ""
        return Membership("unreadable", namespace, name, fault=str(error))


def membership_of(
    namespace: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    pod_group: str = "",
) -> Membership | None:
    """Return the group of a pod; None: it goes alone.

    Args:
        namespace: of the pod.
        labels: of the pod.
        annotations: of the pod.
        pod_group: `spec.schedulingGroup.podGroupName`.

    Raises:
        InputError: a number of members cannot be read.
    """
    group = labels.get(GROUP_LABEL)
    job = labels.get(_JOB)
    if SIZE_ANNOTATION in annotations and (group or job):
        size = _count(annotations[SIZE_ANNOTATION], SIZE_ANNOTATION)
        kind, name = ("alignup", group) if group else ("job", job)
        return _unless_alone(Membership(kind, namespace, name or "", size))
    if group:
        raise InputError.at(
            f"metadata.annotations[{SIZE_ANNOTATION}]", "how many members the group has", None
        )
    if not pod_group and _LWS_NAME in labels and _LWS_SIZE in annotations:
        name = labels[_LWS_NAME]
        size = _count(annotations[_LWS_SIZE], _LWS_SIZE)
        group_name = f"{name}/{labels.get(_LWS_INDEX, '')}"
        return _unless_alone(Membership("leaderworkerset", namespace, group_name, size, name))
    if object_name := pod_group or _volcano_group(annotations):
        kind = POD_GROUP if pod_group else _VOLCANO
        return Membership(kind, namespace, object_name, object_name=object_name)
    if _KUEUE_LABEL in labels and _KUEUE_FAST not in annotations:
        size = _count(annotations.get(_KUEUE_SIZE, ""), _KUEUE_SIZE)
        return _unless_alone(Membership("kueue", namespace, labels[_KUEUE_LABEL], size))
    if _JOB_SET in labels:
        name = labels[_JOB_SET]
        return Membership("jobset", namespace, name, object_name=name)

    return None


def membership_of_manifest(
    manifest: Mapping[str, Any], kind: str = "Pod", name: str = ""
) -> Membership | None:
    """Return the group of a pod in a manifest; None: it goes alone.

    One that cannot be told is a group that never has its members.

    Args:
        manifest: of the pod, or the template of one, as plain objects.
        kind: of the object that makes the pod; what its controller writes on pods counts, too.
        name: of that object.
    """
    metadata = _mapping(manifest, "metadata")
    labels = {**_texts(metadata, "labels")}
    owner_label = {"Job": _JOB, "JobSet": _JOB_SET}.get(kind)
    if owner_label:
        labels[owner_label] = name

    annotations = _texts(metadata, "annotations")
    scheduling_group = _mapping(_mapping(manifest, "spec"), "schedulingGroup")
    pod_group = str(scheduling_group.get("podGroupName") or "")
    if not pod_group and not is_member(labels, annotations):
        return None

    namespace = str(metadata.get("namespace") or "default")
    return membership_or_fault(namespace, labels, annotations, pod_group)


def group_object(manifest: Mapping[str, Any], where: str = "") -> GroupObject | None:
    """Return an object that says how many members a group has; None: it is no such object.

    Args:
        manifest: as plain objects.
        where: its place, for errors.

    Raises:
        InputError: it cannot be read.
    """
    kind = object_type(str(manifest.get("apiVersion") or ""), str(manifest.get("kind")))
    if kind is None:
        return None
    return decode_json(msgspec.json.encode(manifest), f"a {kind.__name__}", where, kind=kind)


def _mapping(mapping: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = mapping.get(key)
    return value if isinstance(value, Mapping) else {}


def _texts(mapping: Mapping[str, Any], key: str) -> Mapping[str, str]:
    """Return the texts by name under a key; whoever needs them checks them."""
    texts = _mapping(mapping, key)
    return {str(name): text for name, text in texts.items() if isinstance(text, str)}


def _volcano_group(annotations: Mapping[str, str]) -> str:
    names = (annotations.get(annotation, "") for annotation in _VOLCANO_ANNOTATIONS)
    return next(filter(None, names), "")


def _unless_alone(membership: Membership) -> Membership | None:
    return None if membership.size == 1 else membership


def _count(text: str, annotation: str) -> int:
    count = number_of(text, _MOST_MEMBERS)
    if not count:
        raise InputError.at(
            f"metadata.annotations[{annotation}]",
            f"a number of pods, from 1 to {_MOST_MEMBERS}",
            text,
        )
    return count


class _Gang(msgspec.Struct, rename="camel"):
    min_count: int = 1


class _Policy(msgspec.Struct):
    gang: _Gang | None = None


class _PodGroupSpec(msgspec.Struct, rename="camel"):
    scheduling_policy: _Policy = msgspec.field(default_factory=_Policy)


class PodGroup(msgspec.Struct):
    """A PodGroup of scheduling.k8s.io."""

    metadata: Metadata
    spec: _PodGroupSpec = msgspec.field(default_factory=_PodGroupSpec)

    @property
    def size(self) -> int:
        """How many members have to run together; 1: each goes alone."""
        gang = self.spec.scheduling_policy.gang
        return 1 if gang is None else max(1, gang.min_count)


class _VolcanoSpec(msgspec.Struct, rename="camel"):
    min_member: int = 1


class VolcanoPodGroup(msgspec.Struct):
    """A PodGroup of scheduling.volcano.sh."""

    metadata: Metadata
    spec: _VolcanoSpec = msgspec.field(default_factory=_VolcanoSpec)

    @property
    def size(self) -> int:
        """How many members have to run together; 1: each goes alone."""
        return max(1, self.spec.min_member)


class _JobSpec(msgspec.Struct):
    parallelism: int | None = None
    completions: int | None = None

    @property
    def pods(self) -> int:
        """How many pods run at once."""
        parallelism = 1 if self.parallelism is None else self.parallelism
        return parallelism if self.completions is None else min(parallelism, self.completions)


class _JobTemplate(msgspec.Struct):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: _JobSpec = msgspec.field(default_factory=_JobSpec)


class _ReplicatedJob(msgspec.Struct, rename="camel"):
    replicas: int = 1
    template: _JobTemplate = msgspec.field(default_factory=_JobTemplate)
    depends_on: list[Any] | None = None


class _StartupPolicy(msgspec.Struct, rename="camel"):
    startup_policy_order: str = ""


class _JobSetSpec(msgspec.Struct, rename="camel"):
    replicated_jobs: list[_ReplicatedJob] = []
    startup_policy: _StartupPolicy = msgspec.field(default_factory=_StartupPolicy)


class JobSet(msgspec.Struct):
    """A JobSet."""

    metadata: Metadata
    spec: _JobSetSpec = msgspec.field(default_factory=_JobSetSpec)

    @property
    def size(self) -> int:
        """How many members have to run together; 1: each goes alone."""
        jobs = self.spec.replicated_jobs
        is_in_order = self.spec.startup_policy.startup_policy_order == "InOrder"
        if is_in_order or any(job.depends_on for job in jobs):
            return 1
        if any(map(_follows_leader, (self.metadata, *(job.template.metadata for job in jobs)))):
            return 1
        return max(1, sum(job.replicas * job.template.spec.pods for job in jobs))


def _follows_leader(metadata: Metadata) -> bool:
    """Return whether pods of jobs are made once the first one of their job has a node."""
    annotations = metadata.annotations or {}
    return _JOB_SET_EXCLUSIVE in annotations and _JOB_SET_NODE_SELECTOR not in annotations


class _LeaderWorkerSetSpec(msgspec.Struct, rename="camel"):
    startup_policy: str = ""


class LeaderWorkerSet(msgspec.Struct):
    """A LeaderWorkerSet; its pods say themselves how many they are."""

    metadata: Metadata
    spec: _LeaderWorkerSetSpec = msgspec.field(default_factory=_LeaderWorkerSetSpec)

    @property
    def size(self) -> int:
        """1: each member goes alone, as workers are made once the leader is ready, or bound."""
        is_exclusive = _LWS_EXCLUSIVE in (self.metadata.annotations or {})
        if is_exclusive or self.spec.startup_policy == "LeaderReady":
            return 1
        return _MOST_MEMBERS


GroupObject = PodGroup | VolcanoPodGroup | JobSet | LeaderWorkerSet

# By their kind in manifests, the objects that say how many members a group has.
GROUP_KINDS: Final[dict[str, type[GroupObject]]] = {
    kind.__name__: kind for kind in (PodGroup, JobSet, LeaderWorkerSet)
}
# By their API groups, the PodGroups that are read; one that names none is of Kubernetes.
_POD_GROUPS: Final[dict[str, type[GroupObject]]] = {
    "": PodGroup,
    "scheduling.k8s.io": PodGroup,
    "scheduling.volcano.sh": VolcanoPodGroup,
}
_KINDS: Final[dict[type[GroupObject], str]] = {
    PodGroup: POD_GROUP,
    VolcanoPodGroup: _VOLCANO,
    JobSet: "jobset",
    LeaderWorkerSet: "leaderworkerset",
}

# By the kind of a membership, the type of the objects that say how many members a group has, and
# their path.
GROUP_OBJECTS: Final[dict[str, tuple[type[GroupObject], str]]] = {
    POD_GROUP: (PodGroup, "/apis/scheduling.k8s.io/v1beta1/podgroups"),
    _VOLCANO: (VolcanoPodGroup, "/apis/scheduling.volcano.sh/v1beta1/podgroups"),
    "jobset": (JobSet, "/apis/jobset.x-k8s.io/v1alpha2/jobsets"),
    "leaderworkerset": (LeaderWorkerSet, "/apis/leaderworkerset.x-k8s.io/v1/leaderworkersets"),
}


def object_type(api_version: str, kind: str) -> type[GroupObject] | None:
    """Return the type of a manifest that says how many members a group has; None: it is none."""
    if kind == PodGroup.__name__:  # which others have, too, of their own
        return _POD_GROUPS.get(api_version.partition("/")[0])
    return GROUP_KINDS.get(kind)


class GroupSizes:
    """What the objects of groups say of how many members have to run together."""

    def __init__(self) -> None:
        self._sizes: dict[tuple[str, str, str], int] = {}

    def size(self, membership: Membership) -> int:
        """Return how many members have to run together.

        0: the object that tells it was not seen yet, or the pod cannot be read; 1: each member
        goes alone.
        """
        key = membership.kind, membership.namespace, membership.object_name
        if not membership.object_name:
            return membership.size
        if not membership.size:
            return self._sizes.get(key, 0)
        return min(membership.size, self._sizes.get(key, membership.size))

    def resized(self, membership: Membership) -> Membership | None:
        """Return a membership with the number that the objects say; None: such a pod goes alone."""
        return _unless_alone(replace(membership, size=self.size(membership)))

    def listed(self, kind: type[GroupObject], items: Iterable[GroupObject]) -> None:
        """Take in all objects of one kind."""
        name = _KINDS[kind]
        self._sizes = {key: size for key, size in self._sizes.items() if key[0] != name}
        for item in items:
            self.seen(item)

    def seen(self, item: GroupObject) -> None:
        """Take in an object that is new or changed."""
        self._sizes[_key_of(item)] = item.size

    def gone(self, item: GroupObject) -> None:
        """Take in that an object was deleted."""
        self._sizes.pop(_key_of(item), None)


def _key_of(item: GroupObject) -> tuple[str, str, str]:
    return _KINDS[type(item)], item.metadata.namespace, item.metadata.name
