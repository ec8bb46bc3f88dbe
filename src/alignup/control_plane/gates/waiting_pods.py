"""Reads pods that wait behind the keeper's gate, and those that it has let go.

A place that was given stands in the pod: an annotation names its nodes, and the required node
affinity pins the pod to these, or to nodes with a label of the pod's own. So a keeper that starts
anew knows of it.
"""

from __future__ import annotations

from collections.abc import Mapping  # msgspec reads annotations
from typing import TYPE_CHECKING, Any, Final

import msgspec

from alignup.cluster.node_totals import demand_key
from alignup.control_plane.api_server import objects
from alignup.control_plane.api_server.objects import PLACE
from alignup.control_plane.gates.node_affinity import GATE, has_label, required_terms, unpinned
from alignup.errors import AlignupError
from alignup.kubernetes.manifest import required_node_terms
from alignup.kubernetes.node_fit import FIELD_NAME, requests_of
from alignup.kubernetes.pod import REQUIRED
from alignup.kubernetes.wire import Metadata
from alignup.records import Record, replace
from alignup.text.json_text import decode_json

if TYPE_CHECKING:
    from alignup.control_plane.api_server.objects import WatchedPod
    from alignup.kubernetes.pod import Pod

# What the key of the label begins with by which a pod gets another place later: its uid follows. No
# kubelet may give its node a label of this prefix (the admission plugin NodeRestriction).
PLACE_LABEL: Final = "alignup.node-restriction.kubernetes.io/place-"

# The annotation of a pod that says which leader has seen it first.
SEEN_BY: Final = "alignup.dev/seen-by"

DEFAULT_SCHEDULER: Final = "default-scheduler"

# Kinds of owners whose pods come back to the node on which they end.
OF_A_NODE: Final = frozenset({"DaemonSet", "Node"})

_GATED: Final = "SchedulingGated"
_MOST_KINDS: Final = 10_000

# No node takes so many.
_MOST_PODS: Final = 1 << 31

# Nodes that a pod is let go to of which its scheduler knows more than the keeper does.
CANDIDATES: Final = 3

# Bytes of a pod's node selector, affinity and tolerations as JSON, and of the names of resources
# that it requests: they are gone through for each node, in the loop that gives all places. The
# names of a thousand nodes are shorter.
_LONGEST_CONSTRAINTS: Final = 32 << 10

# Bytes of what kinds are told apart by that are kept at most.
_MOST_BYTES: Final = 32 << 20


class _Gate(msgspec.Struct, gc=False):
    name: str


class _Volume(msgspec.Struct, rename="camel", gc=False):
    """A volume, as far as it can bind a pod to some nodes."""

    persistent_volume_claim: Any = None
    ephemeral: Any = None


class _Condition(msgspec.Struct, gc=False):
    type: str
    status: str
    reason: str = ""


class GatedSpec(objects.PodSpec, rename="camel", gc=False):
    """The specification of a pod, with what a scheduler looks at."""

    scheduling_gates: list[_Gate] | None = None
    scheduler_name: str = DEFAULT_SCHEDULER
    tolerations: list[dict[str, Any]] | None = None
    volumes: list[_Volume] | None = None
    preemption_policy: str = ""


class GatedStatus(objects.PodStatus, rename="camel", gc=False):
    """The status of a pod, with its conditions."""

    conditions: list[_Condition] | None = None


class GatedMetadata(Metadata, rename="camel", gc=False):
    """The metadata of a pod, with how often its spec was changed."""

    # 1: never. An API server sets it (Kubernetes 1.33); 0: it did not.
    generation: int = 0


class GatedPodObject(objects.PodObject, rename="camel", gc=False):
    """A Pod of which a scheduler's fields are read, too."""

    metadata: GatedMetadata
    spec: GatedSpec
    status: GatedStatus = msgspec.field(default_factory=GatedStatus)


class Kind(Record, eq=False):
    """What pods have in common of which each may go wherever another one may.

    Attributes:
        pod: one of them, as its kubelet sees it.
        constrained: the same one with what it demands of a node before it is bound to one: node
            selector, node affinity, tolerations. A pod that was let go by a label is of the kind
            that it was of before.
        demand: what its kubelet sees of them (`demand_key`). Bound pods are read the same way, so
            pods that differ in their constraints only are copies once they are on a node.
        requests: what a scheduler counts, in the units of `requests_of`.
        length: the bytes of their constraints (as JSON) and of the names of their resources.
    """

    pod: Pod
    constrained: Pod
    demand: object
    requests: Mapping[str, int]
    length: int = 0

    def most_in(self, free: Mapping[str, int]) -> int:
        """Return for how many such pods some amounts are enough."""
        return min(
            (
                max(0, free.get(resource, 0)) // amount
                for resource, amount in self.requests.items()
                if amount
            ),
            default=_MOST_PODS,
        )


class WaitingPod(Record):
    """A pod that is bound to no node.

    Attributes:
        watched: the pod, as one that is bound would be read.
        kind: what it has in common with others.
        version: its resourceVersion.
        created: when it was made, in the form of the API, which sorts as text.
        is_gated: whether the keeper's gate is on it.
        other_gates: further gates.
        affinity: `spec.affinity`.
        unseen: what a scheduler looks at and the keeper does not, in words.
        needs_place: whether it is the keeper's to give it a place.
        place: the names of the nodes that it was let go to; empty: none were named.
        is_refused: whether its scheduler has said that no node takes it.
        planned: the node that it is to get with its group, as long as it has the gate; empty: none.
        may_evict: whether less important pods may be evicted for it.
        fault: why it gets no place, whatever comes free; empty: it may get one.
        seen_by: the leader that has written into it when it began to lead, as `<identity>/<term>`;
            empty: none has.
    """

    watched: WatchedPod
    kind: Kind
    version: str = ""
    created: str = ""
    is_gated: bool = False
    other_gates: tuple[str, ...] = ()
    affinity: Mapping[str, Any] | None = None
    unseen: tuple[str, ...] = ()
    needs_place: bool = True
    place: tuple[str, ...] = ()
    is_refused: bool = False
    planned: str = ""
    may_evict: bool = True
    fault: str = ""
    seen_by: str = ""

    @property
    def uid(self) -> str:
        """The uid of the pod."""
        return self.watched.pod.uid

    @property
    def label(self) -> str:
        """The key of the label of nodes that are a place of this pod."""
        return PLACE_LABEL + self.uid

    @property
    def follows_label(self) -> bool:
        """Whether its affinity lets it go to nodes that have its label."""
        return any(has_label(term, self.label) for term in required_terms(self.affinity))

    @property
    def goes_by_label_only(self) -> bool:
        """Whether its affinity lets it go nowhere else."""
        terms = required_terms(self.affinity)
        return bool(terms) and all(has_label(term, self.label) for term in terms)

    @property
    def waits(self) -> bool:
        """Whether nothing but the keeper's gate keeps it from being scheduled."""
        return self.has_only_our_gate and not self.fault

    @property
    def has_only_our_gate(self) -> bool:
        """Whether the keeper's gate is on it and no other one, and it is to stay."""
        return self.is_gated and not self.other_gates and not self.watched.is_leaving


class GatedPodReader:
    """Makes the records of pods, bound or not; equal ones share what they are made of.

    Args:
        scheduler: the name of the scheduler whose pods get places.
    """

    def __init__(self, scheduler: str = DEFAULT_SCHEDULER) -> None:
        self._scheduler = scheduler
        self._reader = objects.PodReader()
        self._kinds: objects.Memo[object, Kind] = objects.Memo(_MOST_KINDS, _MOST_BYTES)

    def decode(self, data: bytes | msgspec.Raw | GatedPodObject) -> WatchedPod | WaitingPod:
        """Return the record of a Pod.

        One that cannot be read asks for nothing, with a warning; if it has the gate, it keeps it.

        Raises:
            InputError: it is none.
        """
        if isinstance(data, GatedPodObject):
            pod_object = data
        else:
            pod_object = decode_json(data, "a Pod", kind=GatedPodObject)

        is_bound = bool(pod_object.spec.node_name) or pod_object.has_ended
        try:
            return self._bound(pod_object) if is_bound else self._waiting(pod_object)
        except AlignupError as error:
            watched = objects.pod_without_requests(pod_object, error)
            gates = _gates(pod_object.spec)
            if is_bound or GATE not in gates:
                return watched

            return WaitingPod(
                watched,
                Kind(watched.pod, watched.pod, None, {}),
                pod_object.metadata.resource_version,
                is_gated=True,
                other_gates=tuple(name for name in gates if name != GATE),
                fault=f"the pod cannot be read: {error}",
            )

    def _bound(self, pod_object: GatedPodObject) -> WatchedPod:
        watched = self._reader.read(pod_object)
        if (
            pod_object.spec.node_name
            and pod_object.spec.scheduler_name == self._scheduler
            and asks_exclusively(watched.pod)
            and watched.owner not in OF_A_NODE
            and not watched.is_copy
            and not _place(pod_object)
        ):
            return replace(watched, is_ungated=True)
        return watched

    def _waiting(self, pod_object: GatedPodObject) -> WaitingPod:
        metadata = pod_object.metadata
        annotations = metadata.annotations or {}
        spec = pod_object.spec
        watched = self._reader.read(pod_object)
        pod = watched.pod
        unseen = tuple(_unseen(spec))
        needs_place = (
            asks_exclusively(pod)
            and watched.owner != "DaemonSet"
            and spec.scheduler_name == self._scheduler
        )

        gates = _gates(spec)
        affinity: Mapping[str, Any] | None = spec.affinity
        if GATE not in gates and affinity:  # the node that it goes to has the label
            required_node_terms(affinity, "spec.affinity")
            affinity = unpinned(affinity, PLACE_LABEL + metadata.uid)

        kind = self._kind(pod, spec, affinity, is_unseen=bool(unseen))
        is_too_long = needs_place and kind.length > _LONGEST_CONSTRAINTS
        conditions = pod_object.status.conditions or ()
        return WaitingPod(
            watched,
            kind,
            metadata.resource_version,
            metadata.creation_timestamp or "",
            GATE in gates,
            tuple(name for name in gates if name != GATE),
            spec.affinity,
            unseen,
            needs_place,
            _place(pod_object) if needs_place and GATE not in gates else (),
            any(
                condition.type == "PodScheduled"
                and condition.status == "False"
                and condition.reason != _GATED
                for condition in conditions
            ),
            annotations.get(PLACE, "") if GATE in gates else "",
            spec.preemption_policy != "Never",
            _too_long(kind.length) if is_too_long else "",
            annotations.get(SEEN_BY, ""),
        )

    def _kind(
        self, pod: Pod, spec: GatedSpec, affinity: Mapping[str, Any] | None, *, is_unseen: bool
    ) -> Kind:
        fields = spec.node_selector, affinity, spec.tolerations
        encoded = msgspec.json.encode(fields)
        demand = demand_key(pod)
        key = demand, encoded, is_unseen
        kind = self._kinds.get(key)
        if kind is None:
            demands = self._reader.demands_of(*fields)
            constraints = replace(
                pod.constraints,
                node_selector=demands.node_selector,
                node_affinity=demands.node_affinity,
                tolerations=demands.tolerations,
            )
            constrained = replace(pod, constraints=constraints)
            requests = requests_of(pod)
            length = len(encoded) + sum(map(len, requests))
            kind = Kind(pod, constrained, demand, requests, length)
            self._kinds.keep(key, kind, length)

        return kind


def _gates(spec: GatedSpec) -> list[str]:
    return [gate.name for gate in spec.scheduling_gates or ()]


def _too_long(length: int) -> str:
    return (
        f"node selector, affinity, tolerations and names of resources have {length} bytes: a pod "
        f"gets a place of at most {_LONGEST_CONSTRAINTS}"
    )


def asks_exclusively(pod: Pod) -> bool:
    """Return whether a pod asks for something that no other pod may have with it."""
    return bool(
        pod.exclusive_cpus
        or pod.devices
        or pod.memory
        or any(container.memory for container in pod.all_containers)
    )


def _unseen(spec: GatedSpec) -> list[str]:
    """Return what of a pod only its scheduler looks at, and what may forbid it a node."""
    unseen = []
    if any(
        constraint.get("whenUnsatisfiable") == "DoNotSchedule"
        for constraint in spec.topology_spread_constraints or ()
    ):
        unseen.append("topology spread constraints")

    affinity = spec.affinity or {}
    if any(
        isinstance(affinity.get(kind), dict) and affinity[kind].get(REQUIRED)
        for kind in ("podAffinity", "podAntiAffinity")
    ):
        unseen.append("affinity to pods")

    if any(volume.persistent_volume_claim or volume.ephemeral for volume in spec.volumes or ()):
        unseen.append("volumes")
    if spec.resource_claims:
        unseen.append("claims of devices")
    return unseen


def _place(pod_object: GatedPodObject) -> tuple[str, ...]:
    """Return the nodes that a pod was let go to, where its affinity does pin it to these.

    The annotation alone could be anybody's, who would have nodes kept by it. So it counts only as
    the keeper writes it: by a change of the spec, of a few nodes, and with terms of which each has
    the label of the pod's uid, which nobody knows who makes a pod, or names one of them. Without
    that label all of them are named.
    """
    metadata = pod_object.metadata
    names = (metadata.annotations or {}).get(PLACE, "")
    terms = required_terms(pod_object.spec.affinity)
    place = tuple(names.split(",", CANDIDATES))
    if not names or not terms or metadata.generation == 1 or len(place) > CANDIDATES:
        return ()

    label = PLACE_LABEL + metadata.uid
    unlabelled = [term for term in terms if not has_label(term, label)]
    pinned_to = [_named(term) for term in unlabelled]
    if not all(name in place for name in pinned_to):
        return ()

    is_whole = len(unlabelled) < len(terms) or set(pinned_to) == set(place)
    return place if is_whole else ()


def _named(term: Mapping[str, Any]) -> str:
    """Return the one node that a term asks for by its name; empty: it asks for none so."""
    for requirement in term.get("matchFields") or ():
        if requirement.get("key") == FIELD_NAME and requirement.get("operator") == "In":
            values = list(requirement.get("values") or ())
            return str(values[0]) if len(values) == 1 else ""

    return ""
