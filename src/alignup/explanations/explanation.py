"""The records of an explanation: what was asked, there, offered and decided, and what would help.

They are data first: `Explanation.to_dict` is what `docs/explanation.schema.json` describes. Nothing
is worked out here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from alignup.kubernetes.pod import Pod, is_pinned_memory
from alignup.records import Record, Shown, field, json_fields, json_of, replace
from alignup.topology_manager.admission import ContainerAllocation, affinity_dict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alignup.explanations.product import Choice, Product
    from alignup.machine.machine import Machine
    from alignup.node.holdings import ContainerHolding, Holdings
    from alignup.topology_manager.hints import TopologyHint
    from alignup.topology_manager.refusal_message import ResourceView

# Raised when a key of `Explanation.to_dict` changes its meaning or goes; new keys do not raise it.
VERSION: Final = 1


class Holder(Record):
    """A container that holds some of a resource in one place.

    Attributes:
        pod: `namespace/name`.
        reused: the part of the amount that an earlier container of its pod, an init container, is
            counted for already.
    """

    pod: str
    container: str
    amount: int
    reused: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the holder in JSON's types; `reused` is there only if it is not 0."""
        names = ["pod", "container", "amount"]
        if self.reused:
            names.append("reused")
        return json_fields(self, *names)


class PlacePart(Record):
    """One place of a resource: what exists there, what is free, and who holds the rest.

    Attributes:
        numa_nodes: kernel ids. One for CPUs and memory; devices may be near to several NUMA nodes,
            or to none.
        reserved: the amount that no container can have: reserved for the system, or of unhealthy
            devices.
    """

    numa_nodes: tuple[int, ...]
    capacity: int
    reserved: int
    free: int
    holders: tuple[Holder, ...] = ()


class ResourcePart(Record):
    """One resource that a container, or the pod as a whole, asked for.

    Attributes:
        container: None: the pod as a whole.
        provider: the name of the provider that answered, `claims` where a claim stands for the
            resource; empty where no provider on this node allocates it.
        asked: CPUs, bytes or devices; None: it is a user's provider that spoke of it.
        places: what was there when it was asked for.
        offered: the sets of NUMA nodes that were offered; None where no provider was asked for
            hints.
    """

    resource: str
    container: str | None
    provider: str
    asked: int | None
    places: tuple[PlacePart, ...] = ()
    offered: ResourceView | None = None

    @property
    def unit(self) -> str:
        """`CPUs`, `bytes` or `devices`."""
        if self.resource == "cpu":
            return "CPUs"
        if is_pinned_memory(self.resource):
            return "bytes"
        return "devices"

    @property
    def free(self) -> int:
        """The amount that was free in all places together."""
        return sum(place.free for place in self.places)

    def to_dict(self) -> dict[str, Any]:
        """Return the part in JSON's types."""
        view = self.offered
        offered = None
        if view is not None:
            view_names = ("preferred", "preferred_count", "other", "other_count", "anywhere")
            offered = {**json_fields(view, *view_names), "complete": view.is_whole}

        names = ("resource", "container", "provider", "unit", "asked", "free", "places")
        return {**json_fields(self, *names), "offered": offered}


class Step(Record):
    """One decision: for a container, or for the pod as a whole.

    Attributes:
        container: None: the pod as a whole.
        rule: the rule that decided, as a sentence.
        best: the best result of the merge; None where nothing is merged.
        best_score: its score; None: hints of the release have none, or it is not known.
        reachable: the results that the merge could reach, the best first. None: there are too many
            sets of NUMA nodes to list them, or nothing was merged.
        product: the cross product of all offers, row by row; None where nothing is merged.
    """

    container: str | None
    resources: tuple[ResourcePart, ...]
    rule: str
    best: TopologyHint | None = None
    reachable: tuple[Choice, ...] | None = None
    reachable_count: int | None = None
    product: Product | None = None
    best_score: int | None = None

    def to_dict(self, numa_node_ids: tuple[int, ...], *, product: bool) -> dict[str, Any]:
        """Return the step in JSON's types; see `Explanation.to_dict`."""
        names = ["container", "rule", "reachable", "reachable_count", "resources"]
        if product:
            names.append("product")

        best = affinity_dict(self.best, numa_node_ids)
        if best is not None and self.best_score is not None:
            best["score"] = self.best_score
        return {**json_fields(self, *names), "best": best}


class ContainerPart(Record):
    """One container of the pod: what kind it is, where its CPUs come from, and what it got.

    Attributes:
        kind: `init`, `sidecar` or `container`.
        exclusive_cpus: CPUs that it asks for itself; 0: it runs in the shared pool.
        shared_because: why it runs in the shared pool, as a sentence; empty if it gets CPUs of its
            own.
        got: what it was given, even where a refusal took it back; None: it was never reached.
        missed: the better placement that it missed and why, as a sentence; empty if there is none.
    """

    name: str
    kind: str
    exclusive_cpus: int
    shared_because: str
    got: ContainerAllocation | None
    missed: str = ""

    def to_dict(self, numa_node_ids: tuple[int, ...]) -> dict[str, Any]:
        """Return the container in JSON's types."""
        got = None if self.got is None else self.got.to_dict(numa_node_ids)
        return {
            **json_fields(self, "name", "kind", "exclusive_cpus", "shared_because", "missed"),
            "got": got,
        }


class Suggestion(Record):
    """A change under which the pod would be admitted, or aligned better: tried, and found to be so.

    Attributes:
        kind: `request`, `pod`, `kubelet`, `plugin`, `remove` or `update`.
        attempt: has one of the keys `pod`, `kubelet`, `excludeTopology`, `remove` and
            `kubeletVersion`, beside the last perhaps `kubelet`; `docs/explain.md` says how to
            replay it.
        minimal: for `remove`: whether no smaller set of pods would do.
        changes: where it changes several amounts, a line for each container, such as `cpu 4 -> 2,
            memory 8Gi -> 4Gi`.
        after: for `kubelet` and `update`: `restart` if it holds once the kubelet has restarted with
            it, and all pods stay; `drain` if the node has to be drained before.

    Examples:
        >>> kubelet = {"topologyManagerPolicy": "restricted", "cpuManagerPolicy": "static"}
        >>> node = Node(read_machine("xeon-2s"), kubelet)
        >>> container = {"name": "c", "resources": {"limits": {"cpu": "200", "memory": "1Gi"}}}
        >>> pod = {"metadata": {"name": "p"}, "spec": {"containers": [container]}}
        >>> explain(node, pod).suggestions[0].text
        'ask for 128 cpu instead of 200'
    """

    kind: str
    text: str
    attempt: dict[str, Any]
    minimal: bool | None = None
    after: str | None = None
    changes: tuple[str, ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        return f"<Suggestion: {self.text}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the suggestion in JSON's types."""
        fields: dict[str, Any] = {
            "kind": self.kind,
            "text": self.text,
            "try": self.attempt,
            "verified": True,
            "after": self.after,
        }
        if self.minimal is not None:
            fields["minimal"] = self.minimal
        return fields


class Explanation(Shown):
    """Why a pod would be admitted or refused on a node now, and what would help.

    Attributes:
        pod: `namespace/name`.
        reason: the reason in the pod's status; empty if it is admitted.
        causes: plain sentences, the first cause first; each holds without those before it.
        cause_kind: as `alignup.explanations.cause.Cause` has it; for an admitted pod `aligned`,
            `missed` or `not aligned`.
        blamed: the resources to blame for a refusal.
        container: the container that was refused; None: none, or the pod as a whole.
        steps: the decisions, in the order in which they were made; a refusal is about the last one.
        before: who held what before the pod came.
        never_fits: the node would refuse the pod without any other pod too; False: it would not, or
            that is unknown.
        exact: False: a search over more than 8 NUMA nodes reached its limit.
        preempted: `namespace/name` of the pods that a kubelet evicts to admit this critical one;
            see `Node.whole_verdict`.
        after: who would hold what once the pod is admitted; if it is refused, who held what when
            that was decided, earlier containers of the pod among them.
        machine: for pictures.
        tried: of a refused pod that nothing helps, which kinds of changes were tried.
        unknown: what the pod requests of which nothing is known here, by the name of the resource;
            see `Node.unknown_requests`.
        is_open: a manager could refuse the pod for what is unknown.
        extent: how far the verdict goes where something is unknown, in words; empty: all the way.
        notes: what else matters once the pod is admitted, in sentences: which CPUs it shares.
        log: of a refusal that a kubelet's log tells of: the kubelet's `message`, the `best` hint of
            the decision that refused, what its hints are `merged` into, whether that `agrees`
            (None: not known), and what is `unknown`.

    Examples:
        >>> node = Node(read_machine("xeon-2s"))
        >>> pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        >>> explanation = explain(node, pod)
        >>> explanation.admitted, explanation.cause
        (True, 'admitted; policy none aligns nothing')
    """

    pod: str
    uid: str
    admitted: bool
    reason: str
    causes: tuple[str, ...]
    cause_kind: str
    blamed: tuple[str, ...]
    container: str | None
    policy: str
    scope: str
    qos: str
    steps: tuple[Step, ...]
    containers: tuple[ContainerPart, ...]
    before: Holdings = field(repr=False)
    suggestions: tuple[Suggestion, ...] = ()
    never_fits: bool = False
    exact: bool = True
    preempted: tuple[str, ...] = ()
    after: Holdings | None = field(default=None, repr=False)
    machine: Machine | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()
    tried: tuple[str, ...] = field(default=(), repr=False)
    log: Mapping[str, Any] = field(default_factory=dict, repr=False)
    unknown: Mapping[str, int] = field(default_factory=dict)
    is_open: bool = False
    extent: str = field(default="", repr=False)

    @property
    def cause(self) -> str:
        """All causes in one plain sentence."""
        return "; besides, ".join(self.causes)

    @property
    def relevant_steps(self) -> tuple[Step, ...]:
        """The decisions that matter: of a refusal the one that refused, else all of them."""
        if self.admitted:
            return self.steps
        return self.steps[-1:]

    @property
    def resources(self) -> tuple[ResourcePart, ...]:
        """What was asked for: of a refusal, in the decision that refused; else in all of them."""
        return tuple(part for step in self.relevant_steps for part in step.resources)

    @property
    def named_first(self) -> frozenset[str]:
        """Among holders: the pod itself and those whose removal is suggested."""
        uids = {
            uid for suggestion in self.suggestions for uid in suggestion.attempt.get("remove", ())
        }
        removed = {holding.pod for holding in self.before.containers if holding.pod_uid in uids}
        return frozenset({self.pod, *removed})

    @property
    def neighbours(self) -> tuple[ContainerHolding, ...]:
        """What the containers of other pods hold."""
        return tuple(holding for holding in self.before.containers if holding)

    def of_alike(self, pod: Pod) -> Explanation:
        """Return the explanation of a pod that differs from this one's in name and uid only."""
        suggestions = []
        for suggestion in self.suggestions:
            attempt = suggestion.attempt
            if manifest := attempt.get("pod"):
                metadata = {**manifest["metadata"], "name": pod.name, "uid": pod.uid}
                attempt = {**attempt, "pod": {**manifest, "metadata": metadata}}
            suggestions.append(replace(suggestion, attempt=attempt))

        return replace(self, pod=pod.namespaced_name, uid=pod.uid, suggestions=tuple(suggestions))

    def __bool__(self) -> bool:
        return self.admitted

    def __repr__(self) -> str:
        verdict = "admitted" if self else f"refused, {self.reason}"
        return f"<Explanation: {self.pod} {verdict}: {self.cause}>"

    def to_dict(self, *, product: bool = False) -> dict[str, Any]:
        """Return the explanation in JSON's types, as `docs/explanation.schema.json` describes it.

        Args:
            product: add to each step the cross product of its offers, up to 200 rows.
        """
        ids = self.before.numa_node_ids
        names = (
            "pod",
            "uid",
            "admitted",
            "reason",
            "cause",
            "cause_kind",
            "never_fits",
            "blamed",
            "container",
            "policy",
            "scope",
            "qos",
            "exact",
            "preempted",
            "notes",
            "resources",
            "neighbours",
            "suggestions",
        )
        fields = {
            "version": VERSION,
            "namespace": self.pod.partition("/")[0],
            **json_fields(self, *names),
            "numaNodes": list(ids),
            "steps": [step.to_dict(ids, product=product) for step in self.steps],
            "containers": [container.to_dict(ids) for container in self.containers],
            "memoryGroups": json_of(self.before.memory_groups),
        }

        if self.log:
            fields["log"] = self.log
        if self.unknown:
            fields["unknown"] = dict(self.unknown)
        return fields
