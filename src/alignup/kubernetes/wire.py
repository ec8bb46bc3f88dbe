"""The types of Kubernetes objects as decoded JSON or YAML, for msgspec.

Their readers say what they mean. They are apart from their readers because msgspec is slow to
import, and who makes a node of records needs none of them.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec


class Owner(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """An owner reference."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(msgspec.Struct, rename="camel", gc=False):
    """The metadata of any object."""

    name: str = ""
    namespace: str = "default"
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    owner_references: list[Owner] | None = None

    @property
    def namespaced_name(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class ReservedMemoryWire(msgspec.Struct, rename="camel"):
    """An entry of reservedMemory on the wire."""

    numa_node: int | None = None
    limits: dict[str, Any] | None = None


class ConfigurationWire(msgspec.Struct, rename="camel"):
    """A KubeletConfiguration on the wire."""

    api_version: str | None = None
    kind: str | None = None
    topology_manager_policy: str | None = None
    topology_manager_scope: str | None = None
    topology_manager_policy_options: dict[str, Any] | None = None
    cpu_manager_policy: str | None = None
    cpu_manager_policy_options: dict[str, Any] | None = None
    reserved_system_cpus: str | None = msgspec.field(name="reservedSystemCPUs", default=None)
    kube_reserved: dict[str, Any] | None = None
    system_reserved: dict[str, Any] | None = None
    memory_manager_policy: str | None = None
    reserved_memory: list[ReservedMemoryWire] | None = None
    feature_gates: dict[str, bool] | None = None
    eviction_hard: dict[str, Any] | None = None
    merge_default_eviction_settings: bool | None = None
    max_pods: int | None = None
    pods_per_core: int | None = None


class NodeInfoWire(msgspec.Struct, rename="camel"):
    """The part of a Node's status about its kubelet."""

    kubelet_version: str | None = None


class NodeSpecWire(msgspec.Struct):
    """A Node's spec."""

    taints: list[dict[str, Any]] | None = None
    unschedulable: bool | None = None


class NodeStatusWire(msgspec.Struct, rename="camel"):
    """A Node's status."""

    capacity: dict[str, Any] | None = None
    allocatable: dict[str, Any] | None = None
    node_info: NodeInfoWire | None = None


class NodeWire(msgspec.Struct):
    """A Node on the wire."""

    kind: str = "Node"
    metadata: NodeMetadataWire | None = None
    spec: NodeSpecWire | None = None
    status: NodeStatusWire | None = None


class ClaimWire(msgspec.Struct, rename="camel", gc=False):
    """A claim of a pod on the wire, what its status says of it, or the use of it by a container."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class ClaimAmountWire(msgspec.Struct, rename="camel", gc=False):
    """What a claim counts as of one resource on the wire."""

    name: str
    quantity: Any = None
    per_pod: Any = None
    per_container: Any = None


class ClaimAmountsWire(msgspec.Struct, gc=False):
    """What a claim of a pod counts as, by the pod's status on the wire."""

    containers: list[str] | None = None
    mapping: list[ClaimAmountWire] | None = None
    overhead: list[ClaimAmountWire] | None = None


class ResourcesWire(msgspec.Struct, gc=False):
    """A resources section on the wire; quantities are strings or numbers there."""

    requests: dict[str, Any] | None = None
    limits: dict[str, Any] | None = None
    claims: list[ClaimWire] | None = None


class ContainerWire(msgspec.Struct, rename="camel", gc=False):
    """A container on the wire."""

    name: str | None = None
    resources: ResourcesWire | None = None
    restart_policy: str | None = None
    ports: list[dict[str, Any]] | None = None


class PodSpecWire(msgspec.Struct, rename="camel", gc=False):
    """A pod's spec on the wire."""

    containers: list[ContainerWire] | None = None
    init_containers: list[ContainerWire] | None = None
    resources: ResourcesWire | None = None
    resource_claims: list[ClaimWire] | None = None
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: dict[str, Any] | None = None
    tolerations: list[dict[str, Any]] | None = None
    host_network: bool | None = None
    os: dict[str, Any] | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    overhead: dict[str, Any] | None = None


class ContainerStatusWire(msgspec.Struct, rename="camel", gc=False):
    """The status of a container, as it is on the wire."""

    name: str | None = None
    allocated_resources: dict[str, Any] | None = None


class ClaimedResourceWire(msgspec.Struct, rename="camel", gc=False):
    """An extended resource of a container that the devices of a claim stand for, on the wire."""

    container_name: str | None = None
    resource_name: str | None = None
    request_name: str | None = None


class ExtendedResourceClaimWire(msgspec.Struct, rename="camel", gc=False):
    """The claim that stands for extended resources of a pod, by its status on the wire."""

    request_mappings: list[ClaimedResourceWire] | None = None
    resource_claim_name: str | None = None


class PodStatusWire(msgspec.Struct, rename="camel", gc=False):
    """A pod's status on the wire."""

    container_statuses: list[ContainerStatusWire] | None = None
    init_container_statuses: list[ContainerStatusWire] | None = None
    resource_claim_statuses: list[ClaimWire] | None = None
    node_allocatable_resource_claim_statuses: list[ClaimAmountsWire] | None = None
    extended_resource_claim_status: ExtendedResourceClaimWire | None = None


class MetadataWire(msgspec.Struct, rename="camel", gc=False):
    """A pod's metadata on the wire."""

    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class NodeMetadataWire(MetadataWire, rename="camel", gc=False):
    """A Node's metadata on the wire."""

    resource_version: str | None = None


class PodWire(msgspec.Struct, rename="camel", gc=False):
    """A Pod on the wire."""

    kind: str | None = None
    api_version: str | None = None
    metadata: MetadataWire | None = None
    spec: PodSpecWire | None = None
    status: PodStatusWire | None = None


# The names of the fields of a KubeletConfiguration that are read.
CONFIGURATION_FIELDS: Final = tuple(
    field.encode_name for field in msgspec.structs.fields(ConfigurationWire)
)
