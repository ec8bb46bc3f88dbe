"""The records of a pod and its containers: names, and requests as numbers.

Nothing here parses a string; manifests are read in `alignup.kubernetes.manifest`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from alignup.kubernetes.qos import QOSClass
from alignup.kubernetes.versions import PodLevel, PodReading
from alignup.records import Record, field, replace

__all__ = ["ANY_NODE", "OS_LABEL", "POLICIES", "Container", "NodeConstraints", "Pod", "PodClaim", "PodReadings"]

OS_LABEL: Final = "kubernetes.io/os"
# The annotation of a pod by which its containers name policies of their own, or of a RuntimeClass with one for the
# containers of its pods; no kubelet reads it.
POLICIES: Final = "alignup.dev/policies"


class Container(Record):
    """One container and its requests.

    >>> resources = {"limits": {"cpu": "2", "memory": "1Gi"}}
    >>> pod = read_pod({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}})
    >>> pod.containers[0].exclusive_cpus, pod.containers[0].memory
    (2, (('memory', 1073741824),))

    `requests` and `limits` map resource names to whole numbers: `cpu` in thousandths of a CPU, all else in
    units (bytes, devices). The last four fields are derived from them once, for the managers:

    Attributes:
        is_init: an init container of either kind.
        is_sidecar: a restartable init container: it keeps what it gets while the pod runs.
        exclusive_cpus: whole CPUs that the static CPU manager allocates exclusively; 0: it runs in the shared pool.
        memory: (`memory` or `hugepages-<size>`, bytes) that a Static memory manager would pin, by name.
        devices: (resource, count) of extended resources in its limits, by name; any may be a device plugin's.
        fractional_memory: the first type in `memory` whose request is no whole number of bytes (`512m`): a Static
            memory manager fails.
    """

    name: str
    requests: Mapping[str, int] = field(default_factory=dict, hash=False)
    limits: Mapping[str, int] = field(default_factory=dict, hash=False)
    is_init: bool = False
    is_sidecar: bool = False
    exclusive_cpus: int = 0
    memory: tuple[tuple[str, int], ...] = ()
    devices: tuple[tuple[str, int], ...] = ()
    fractional_memory: str = ""


class PodReadings(Protocol):
    """What kubelets make of a pod, by the way in which they read pods."""

    def read(self, reading: PodReading) -> Pod:
        """Return the pod as such a kubelet reads it."""

    def renamed(self, identity: Mapping[str, Any]) -> PodReadings:
        """Return the readings of the pod with other values in some of its fields."""


class PodClaim(Record):
    """A claim of a pod (`spec.resourceClaims`), by which the scheduler gives it devices.

    Attributes:
        claim: the name of the ResourceClaim; empty: it is not made yet.
        template: the name of the ResourceClaimTemplate of which it is made; empty: the claim is there by itself.
        containers: those that use it.
    """

    name: str
    claim: str = ""
    template: str = ""
    containers: tuple[str, ...] = ()


class NodeConstraints(Record):
    """What a pod's spec demands of a node as a whole, beyond what the resource managers look at.

    Attributes:
        node_affinity: the required terms of the node affinity, of which one has to match; None: there are none.
        host_ports: (protocol, IP address, port).
        os: `spec.os.name`; empty: not given.
        os_label: the pod's own label `kubernetes.io/os`; empty: not given.
        requests: the requests of the pod as a whole (`spec.resources`), in the units of `Container.requests`.
        overhead: `spec.overhead`, in the same units.
    """

    node_name: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict, hash=False)
    node_affinity: tuple[Mapping[str, Any], ...] | None = field(default=None, hash=False)
    tolerations: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    host_ports: tuple[tuple[str, str, int], ...] = ()
    os: str = ""
    os_label: str = ""
    priority: int | None = None
    requests: Mapping[str, int] = field(default_factory=dict, hash=False)
    overhead: Mapping[str, int] = field(default_factory=dict, hash=False)
    claims: tuple[PodClaim, ...] = ()


# The constraints of a pod that demands nothing.
ANY_NODE = NodeConstraints()


class Pod(Record):
    """A pod; `exclusive_cpus`, `memory` and `devices` are its effective request, as for a container.

    >>> pod = read_pod({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    >>> pod.namespaced_name, str(pod.qos)
    ('default/p', 'BestEffort')

    Attributes:
        all_containers: init containers, then the others: the order in which they are admitted. Filled in if not given.
        constraints: what the pod demands of the node as a whole: only `whole_verdict` of a node looks at it.
        pod_level: the meaning of the resources that the pod has as a whole (`spec.resources`); `IGNORED` also if it has
            none.
        readings: the same pod as kubelets of other releases and gates read it; None: they all read it so, or this is a
            reading.
        made_of: what this reading was made of, where readings differ.
    """

    uid: str
    name: str
    namespace: str = "default"
    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
    qos: QOSClass = QOSClass.BEST_EFFORT
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)
    exclusive_cpus: int = 0
    memory: tuple[tuple[str, int], ...] = ()
    devices: tuple[tuple[str, int], ...] = ()
    all_containers: tuple[Container, ...] = ()
    constraints: NodeConstraints = field(default=ANY_NODE, repr=False, compare=False)
    pod_level: PodLevel = PodLevel.IGNORED
    readings: PodReadings | None = field(default=None, repr=False, compare=False)
    made_of: PodReadings | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.all_containers:
            # frozen records are set this way while they are being made
            object.__setattr__(self, "all_containers", self.init_containers + self.containers)

    def read_as(self, reading: PodReading) -> Pod:
        """Return the pod as a kubelet reads it that reads pods in this way."""
        return self if self.readings is None else self.readings.read(reading)

    def renamed(self, **identity: Any) -> Pod:
        """Return the pod under another `uid`, `name`, `namespace`, or with other `annotations`."""
        made_of = None if self.made_of is None else self.made_of.renamed(identity)
        return replace(self, **identity, readings=None if self.readings is None else made_of, made_of=made_of)

    @property
    def namespaced_name(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def has_shared_pool(self) -> bool:
        """True if the managers give CPUs and memory to the pod as a whole, for its containers to share."""
        return self.pod_level is PodLevel.MANAGED
