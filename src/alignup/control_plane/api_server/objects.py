"""Decodes the fields of watched Kubernetes objects that matter here.

It makes the records of pods from them. Objects come as JSON from an API server or a scheduler;
other fields are ignored while they are decoded, so that a hundred thousand pods stay small.
NodeResourceTopology objects are read in `alignup.kubelet.node_resource_topology.report`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence  # msgspec reads annotations
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from alignup.errors import InputError, warn
from alignup.kubernetes.groups import (
    Membership,
    is_member,
    membership_or_fault,
)
from alignup.kubernetes.manifest import IGNORED_CLAIMS, read_pod
from alignup.kubernetes.node_fit import meets
from alignup.kubernetes.pod import CONFIG_SOURCE, MIRROR, REQUIRED, NodeConstraints, Pod
from alignup.kubernetes.pod_documents import STATIC_UID
from alignup.kubernetes.wire import ClaimWire, Metadata  # noqa: TC001  # msgspec reads annotations
from alignup.records import Record, field, replace
from alignup.text.json_text import check_levels, decode_json

if TYPE_CHECKING:
    from alignup.cluster.evictions import Rules
    from alignup.errors import AlignupError

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_POLICY_PREFIX: Final = "scheduling.koordinator.sh/"
# The annotation of a pod behind the gate, or let go, that names the nodes of its place, parted by
# commas.
PLACE: Final = "alignup.dev/place"

_ENDED: Final = frozenset({"Succeeded", "Failed"})
_MOST_TEMPLATES: Final = 10_000
# Bytes of the texts that these are told apart by; their records take about eight times as much.
_MOST_BYTES: Final = 32 << 20
# Kinds of controllers that make no other pod, or only on the same node; empty: there is none.
_NEVER_MOVED: Final = frozenset({"", "DaemonSet", "Node"})


class Container(msgspec.Struct, rename="camel", gc=False):
    """A container of a pod."""

    name: str
    resources: dict[str, Any] | None = None
    restart_policy: str | None = None
    ports: list[Any] | None = None


class SchedulingGroup(msgspec.Struct, rename="camel", gc=False):
    """Which PodGroup of scheduling.k8s.io a pod is a member of."""

    pod_group_name: str | None = None


class PodSpec(msgspec.Struct, rename="camel", gc=False):
    """The specification of a pod."""

    containers: list[Container] = []
    init_containers: list[Container] | None = None
    resources: dict[str, Any] | None = None
    node_name: str = ""
    priority: int | None = None
    affinity: dict[str, Any] | None = None
    topology_spread_constraints: list[dict[str, Any]] | None = None
    node_selector: dict[str, str] | None = None
    resource_claims: list[ClaimWire] | None = None
    overhead: dict[str, Any] | None = None
    termination_grace_period_seconds: int | None = None
    scheduling_group: SchedulingGroup | None = None

    @property
    def is_particular(self) -> bool:
        """Whether it must be near some pods or away from them, or must have some nodes."""
        if not self.affinity and not self.topology_spread_constraints:  # as most pods
            return False

        for terms in (self.affinity or {}).values():
            if isinstance(terms, dict) and terms.get(REQUIRED):
                return True

        return any(
            constraint.get("whenUnsatisfiable") == "DoNotSchedule"
            for constraint in self.topology_spread_constraints or ()
        )


class PodStatus(msgspec.Struct, rename="camel", gc=False):
    """The status of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: str | None = None
    resource_claim_statuses: list[ClaimWire] | None = None


class PodObject(msgspec.Struct, rename="camel", gc=False):
    """A Pod."""

    metadata: Metadata
    spec: PodSpec
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def has_ended(self) -> bool:
        """Whether the pod is in a phase from which it never comes back."""
        return self.status.phase in _ENDED


class NodeObject(msgspec.Struct, rename="camel", gc=False):
    """A Node."""

    metadata: Metadata


class _Expression(msgspec.Struct, gc=False):
    key: str
    operator: str
    values: list[str] | None = None


class _Selector(msgspec.Struct, rename="camel", gc=False):
    match_labels: dict[str, str] | None = None
    match_expressions: list[_Expression] | None = None


class _BudgetSpec(msgspec.Struct, gc=False):
    selector: _Selector | None = None


class _BudgetStatus(msgspec.Struct, rename="camel", gc=False):
    disruptions_allowed: int = 0


class Budget(msgspec.Struct, gc=False):
    """A PodDisruptionBudget."""

    metadata: Metadata
    spec: _BudgetSpec = msgspec.field(default_factory=_BudgetSpec)
    status: _BudgetStatus = msgspec.field(default_factory=_BudgetStatus)

    def protects(self, pod: WatchedPod) -> bool:
        """Return whether a pod is one of those that it is about."""
        selector = self.spec.selector
        if selector is None or self.metadata.namespace != pod.pod.namespace:
            return False

        labels = selector.match_labels or {}
        if any(pod.labels.get(key) != value for key, value in labels.items()):
            return False

        return all(
            meets(pod.labels.get(expression.key), expression.operator, expression.values or ())
            for expression in selector.match_expressions or ()
        )


_ENCODER: Final = msgspec.json.Encoder()


def decode_pod(data: bytes | msgspec.Raw | PodObject) -> PodObject:
    """Return a Pod that an API server sent, also if it is decoded already.

    Raises:
        InputError: it is none.
    """
    if isinstance(data, PodObject):
        return data
    return decode_json(data, "a Pod", kind=PodObject)


def decode_node(data: bytes | msgspec.Raw | NodeObject) -> NodeObject:
    """Return a Node that an API server sent, also if it is decoded already.

    Raises:
        InputError: it is none.
    """
    if isinstance(data, NodeObject):
        return data
    return decode_json(data, "a Node", kind=NodeObject)


def decode_budget(data: bytes | msgspec.Raw) -> Budget:
    """Return a PodDisruptionBudget that an API server sent.

    Raises:
        InputError: it is none.
    """
    return decode_json(data, "a PodDisruptionBudget", kind=Budget)


def rules_of(pods: Iterable[WatchedPod], budgets: Sequence[Budget]) -> Rules:
    """Return who of some pods may go for others."""
    from alignup.cluster import evictions  # noqa: PLC0415  # what only reads objects needs no numpy

    standings = {}
    for pod in pods:
        since = datetime.fromisoformat(pod.since).timestamp() if pod.since else 0.0
        protecting = [budget.metadata.namespaced_name for budget in budgets if budget.protects(pod)]
        # nobody knows here whether there is a place for one that does not take every node
        is_choosy = pod.is_particular or pod.has_selector
        comes_back = pod.owner not in _NEVER_MOVED and not is_choosy
        standings[pod.pod.uid] = evictions.Standing(
            pod.priority, since, tuple(protecting), comes_back=comes_back
        )

    allowed = {
        budget.metadata.namespaced_name: budget.status.disruptions_allowed for budget in budgets
    }
    return evictions.Rules(standings, allowed)


class WatchedPod(Record):
    """A pod, with the facts that its requests do not tell.

    Attributes:
        node: the node it is bound to; empty: none yet, or it has ended.
        is_leaving: whether its deletion was asked for.
        owner: the kind of the controller that replaces it; empty: none does.
        is_particular: whether it must be near some pods or away from them, or must have some nodes,
            of which nothing is known here.
        has_selector: whether a node selector leaves only some nodes to it.
        since: when its kubelet took it up, or else when it was made; in the form of the API, which
            sorts as text.
        has_ended: whether it is in a phase from which it never comes back.
        is_copy: whether it is the API server's copy of a static pod, which a kubelet runs on when
            the copy is deleted, and makes anew.
        grace: seconds within which its containers have to end once they are told to.
        membership: the group whose member it is; None: it goes alone.
        is_ungated: whether it came to its node without a place from the keeper of the gates, though
            it asks for something exclusive; told by that keeper's reader only.
    """

    pod: Pod
    priority: int = 0
    node: str = ""
    is_leaving: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""
    is_particular: bool = False
    has_selector: bool = False
    since: str = ""
    has_ended: bool = False
    is_copy: bool = False
    grace: int = 0
    membership: Membership | None = None
    is_ungated: bool = False


class Memo(dict[_Key, _Value]):
    """What was worked out before; all of it goes where another key would be one too many.

    Args:
        most: keys at once.
        most_bytes: of what is kept with its length (`keep`), as anybody may write long ones.
    """

    def __init__(self, most: int, most_bytes: int = 0) -> None:
        super().__init__()
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0

    def __setitem__(self, key: _Key, value: _Value) -> None:
        if len(self) == self._most and key not in self:
            self.clear()

        super().__setitem__(key, value)

    def keep(self, key: _Key, value: _Value, length: int) -> None:
        """Keep a value by a new key of some bytes."""
        if self._bytes + length > self._most_bytes:
            self.clear()

        self[key] = value
        self._bytes += length

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        self._bytes = 0


def pod_without_requests(pod_object: PodObject, error: AlignupError) -> WatchedPod:
    """Return the record of a pod that cannot be read: it asks for nothing, with a warning why."""
    metadata = pod_object.metadata
    warn(f"the requests of pod {metadata.namespaced_name} are ignored: {error}")
    return WatchedPod(
        Pod(metadata.uid, metadata.name, metadata.namespace),
        node="" if pod_object.has_ended else pod_object.spec.node_name,
        has_ended=pod_object.has_ended,
    )


class PodReader:
    """Makes the records of pods.

    They share equal requests, labels and words, as most pods of a cluster are copies.
    """

    def __init__(self) -> None:
        self._templates: Memo[bytes, Pod] = Memo(_MOST_TEMPLATES, _MOST_BYTES)
        self._labels: Memo[tuple[tuple[str, str], ...], Mapping[str, str]] = Memo(
            _MOST_TEMPLATES, _MOST_BYTES
        )

    def read(self, pod_object: PodObject) -> WatchedPod:
        """Return the record of a pod.

        Raises:
            InputError: the API server would refuse the pod for one of the fields that matter here.
        """
        metadata = pod_object.metadata
        spec = pod_object.spec
        owners = metadata.owner_references or ()
        annotations = metadata.annotations or {}
        kept_annotations = {
            key: value
            for key, value in annotations.items()
            if key.startswith(_POLICY_PREFIX) or key == CONFIG_SOURCE
        }

        # a kubelet knows a static pod by an annotation of its copy; the annotations alone could be
        # anybody's, and only a node may make an object that a Node owns
        is_copy = MIRROR in annotations and any(owner.kind == "Node" for owner in owners)
        uid = metadata.uid or metadata.namespaced_name
        if is_copy:
            uid = annotations.get(STATIC_UID) or uid

        pod = self._template(
            {
                "containers": spec.containers,
                "initContainers": spec.init_containers,
                "resources": spec.resources,
                "resourceClaims": spec.resource_claims,
                "overhead": spec.overhead,
            }
        )
        # with the names of the claims that were made of templates
        if spec.resource_claims is not None:
            names = {
                status.name: status.resource_claim_name
                for status in pod_object.status.resource_claim_statuses or ()
            }
            claims = tuple(
                replace(claim, claim=claim.claim or names.get(claim.name) or "")
                for claim in pod.constraints.claims
            )
            pod = pod.with_claims(claims)

        labels = metadata.labels or {}
        namespace = sys.intern(metadata.namespace)
        pod = pod.renamed(
            uid=uid,
            name=metadata.name,
            namespace=namespace,
            annotations=kept_annotations,
        )
        node = "" if pod_object.has_ended else sys.intern(spec.node_name)
        is_leaving = metadata.deletion_timestamp is not None

        controller = ""
        for owner in owners:
            if owner.controller:
                controller = sys.intern(owner.kind)
                break

        since = sys.intern(pod_object.status.start_time or metadata.creation_timestamp or "")
        # by place, which takes half as long as by name
        key = tuple(labels.items())
        shared = self._labels.get(key)
        if shared is None:
            shared = labels
            self._labels.keep(key, labels, sum(len(name) + len(value) for name, value in key))

        facts = (
            controller,
            spec.is_particular,
            bool(spec.node_selector),
            since,
            pod_object.has_ended,
            is_copy,
            _grace(spec, metadata),
            _membership(spec, metadata),
        )
        return WatchedPod(pod, spec.priority or 0, node, is_leaving, shared, *facts)

    def demands_of(
        self,
        node_selector: Mapping[str, str] | None,
        affinity: Mapping[str, Any] | None,
        tolerations: Sequence[Mapping[str, Any]] | None,
    ) -> NodeConstraints:
        """Return what a pod with such fields in its spec demands of the node that it goes to.

        Raises:
            InputError: the API server would refuse them.
        """
        fields = {
            "containers": [{"name": "any"}],
            "nodeSelector": node_selector,
            "affinity": affinity,
            "tolerations": tolerations,
        }
        return self._template(fields).constraints

    def _template(self, fields: Mapping[str, Any]) -> Pod:
        """Return a pod with these fields in its spec, whatever its name.

        Raises:
            InputError: the API server would refuse them.
        """
        try:
            # without their names, which takes less time: no two lists of fields are as long
            key = _ENCODER.encode(list(fields.values()))
            template = self._templates.get(key)
            if template is None:
                check_levels(key, "resources as amounts by name")
                spec = msgspec.to_builtins(fields)
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", IGNORED_CLAIMS)
                    template = read_pod({"metadata": {"name": "template"}, "spec": spec})

                self._templates.keep(key, template, len(key))
        except RecursionError as error:
            raise InputError.at(
                "resources", "amounts by name", "values that are nested too deeply"
            ) from error

        return template


def _membership(spec: PodSpec, metadata: Metadata) -> Membership | None:
    labels = metadata.labels or {}
    annotations = metadata.annotations or {}
    group = spec.scheduling_group
    pod_group = (group.pod_group_name or "") if group is not None else ""
    if not pod_group and not is_member(labels, annotations):
        return None
    return membership_or_fault(metadata.namespace, labels, annotations, pod_group)


def _grace(spec: PodSpec, metadata: Metadata) -> int:
    """Return the seconds that a kubelet may give a pod to end.

    They are those of its deletion, where it was asked for, or else of its spec: the kubelet goes by
    these when the object is gone at once (`calculateEffectiveGracePeriod` of its pod workers).
    """
    periods = spec.termination_grace_period_seconds, metadata.deletion_grace_period_seconds
    return max(0, *(period or 0 for period in periods))
