"""Tries changes as they are replayed: another manifest, other fields of the kubelet's configuration, fewer pods.

The node that is explained is never changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from alignup.errors import AlignupError
from alignup.explanations.manifests import Manifest, quantity
from alignup.kubernetes.kubelet_config import KubeletConfig
from alignup.kubernetes.manifest import read_pod
from alignup.kubernetes.policy_options import set_options
from alignup.node.restart import restarted
from alignup.records import Record, field, json_fields, replace

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from alignup.kubernetes.pod import Pod
    from alignup.node.node import Node
    from alignup.topology_manager.admission import Admission

# So that an explanation takes bounded time; attempts beyond it find nothing.
MOST_ATTEMPTS: Final = 1000


class Attempts(Record, frozen=False):
    """A node and a pod to try changes on.

    Args:
        node: a copy of the node that is explained, or where that cannot be copied the node itself.
        pod: the pod.
        manifest: a manifest of it; empty: the pod cannot be changed.
        is_copy: whether pods may be removed from copies of the node.
        must_be_preferred: a change only counts if every container gets what it prefers.
    """

    node: Node
    pod: Pod
    manifest: Manifest
    is_copy: bool
    must_be_preferred: bool = False
    left: int = field(default=MOST_ATTEMPTS)

    @property
    def cpus_together(self) -> int:
        """The CPUs that are given together: those of a core where full-pcpus-only wants whole cores, else one."""
        cpu = self.node.cpu
        whole = cpu is not None and self.node.config.cpu_manager_policy_options.full_pcpus_only
        return cpu.ledger.capacity.topology.cpus_per_core if cpu is not None and whole else 1

    def with_pod(self, manifest: Manifest) -> Admission | None:
        """Return how this manifest would be admitted; None if it would not."""
        try:
            return self._good(self.node.try_admit(read_pod(manifest)))
        except AlignupError:
            return None

    def without(self, uids: Collection[str]) -> Admission | None:
        """Return how the pod would be admitted if these pods were removed; None if it would not."""
        if not self.is_copy:
            return None
        other = self.node.copy()
        for uid in uids:
            other.remove(uid)
        return self._good(other.try_admit(self.pod))

    def without_topology(self, resource: str) -> Admission | None:
        """Return how the pod would be admitted if a resource's plugin reported no NUMA nodes; None if it would not."""
        pool = self.node.pools.get(resource)
        if not self.is_copy or pool is None or not pool.ledger.inventory.is_aligned:
            return None
        other = self.node.copy()
        devices = [
            replace(one, numa_nodes=None, has_only_unknown_nodes=False) for one in pool.reported
        ]
        if other.devices is not None:
            other.devices.update(resource, devices)
        return self._good(other.try_admit(self.pod))

    def with_kubelet(self, fields: Mapping[str, Any], *, drained: bool = False) -> Admission | None:
        """Return how the pod would be admitted once the kubelet is configured so; None if it would not.

        The kubelet restarts with it, and every pod that is there has to stay.

        Args:
            fields: top-level keys that are laid over the configuration; None deletes one.
            drained: the node is drained before, so that the pods come again in their order, on new
                state files.
        """
        if not self.is_copy or self.left <= 0:
            return None

        own = self.node.config
        laid = {
            key: value for key, value in {**fields_of(own), **fields}.items() if value is not None
        }
        try:
            config = KubeletConfig.from_dict(laid, version=own.version, reading=own.reading)
            if drained:
                made = self.node.emptied(config)
                stays = all(made.admit(pod).admitted for pod in self.node.pods)
            else:
                again = restarted(self.node, config)
                made, stays = again.node, not again.refused

            return self._good(made.admit(self.pod)) if stays else None
        except AlignupError:  # a kubelet would not start so
            return None

    def _good(self, admission: Admission) -> Admission | None:
        self.left -= 1
        if self.left < 0 or not admission.admitted:
            return None
        if self.must_be_preferred:
            hints = [one.affinity for one in admission.containers.values()]
            return admission if all(hint is not None and hint.preferred for hint in hints) else None
        return admission


def fields_of(config: KubeletConfig) -> dict[str, Any]:
    """Return the configuration as fields of a KubeletConfiguration."""
    reserve = config.node_reserve
    fields = {
        **json_fields(
            config, "topology_manager_policy", "topology_manager_scope", "cpu_manager_policy"
        ),
        **json_fields(config, "memory_manager_policy"),
        **json_fields(reserve, "max_pods", "pods_per_core"),
        "topologyManagerPolicyOptions": set_options(config.topology_manager_policy_options),
        "cpuManagerPolicyOptions": set_options(config.cpu_manager_policy_options),
        "reservedSystemCPUs": str(config.reserved_system_cpus),
        "kubeReserved": {name: quantity(name, amount) for name, amount in reserve.amounts.items()},
        "evictionHard": {"memory.available": reserve.eviction_memory or "0"},
        "reservedMemory": [
            {"numaNode": one.numa_node, "limits": {kind: str(size) for kind, size in one.limits}}
            for one in config.reserved_memory
        ],
        "featureGates": dict(config.feature_gates),
    }
    return {name: value for name, value in fields.items() if value}
