"""Tries changes as they are replayed.

A change is another manifest, other fields of the kubelet's configuration, another release of the
kubelet, or fewer pods. The node that is explained is never changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from alignup.errors import AlignupError
from alignup.explanations.manifests import Manifest, pod_of, quantity
from alignup.kubernetes.kubelet_config import KubeletConfig
from alignup.kubernetes.policy_options import ALL_OF, set_options
from alignup.kubernetes.versions import release_of
from alignup.node.restart import restarted
from alignup.records import Record, field, json_fields, replace

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.versions import KubeletVersion
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
    attempts_left: int = field(default=MOST_ATTEMPTS)

    @property
    def cpus_together(self) -> int:
        """The CPUs that are given together.

        They are those of a core where full-pcpus-only wants whole cores, else one.
        """
        cpu = self.node.cpu
        if cpu is None or not self.node.config.cpu_manager_policy_options.full_pcpus_only:
            return 1
        return cpu.ledger.capacity.topology.cpus_per_core

    def with_pod(self, manifest: Manifest) -> Admission | None:
        """Return how this manifest would be admitted; None if it would not."""
        try:
            return self._accepted(self.node.try_admit(pod_of(manifest)))
        except AlignupError:
            return None

    def without(self, uids: Collection[str]) -> Admission | None:
        """Return how the pod would be admitted if these pods were removed; None if it would not."""
        if not self.is_copy:
            return None

        node = self.node.copy()
        for uid in uids:
            node.remove(uid)

        return self._accepted(node.try_admit(self.pod))

    def without_topology(self, resource: str) -> Admission | None:
        """Return how the pod would be admitted if a resource's plugin reported no NUMA nodes.

        None if it would not.
        """
        pool = self.node.pools.get(resource)
        if not self.is_copy or pool is None or not pool.ledger.inventory.is_aligned:
            return None

        devices = [
            replace(device, numa_nodes=None, has_only_unknown_nodes=False)
            for device in pool.reported
        ]
        node = self.node.copy()
        if node.devices is not None:
            node.devices.update(resource, devices)

        return self._accepted(node.try_admit(self.pod))

    def with_kubelet(self, fields: Mapping[str, Any], *, drained: bool = False) -> Admission | None:
        """Return how the pod would be admitted once the kubelet is configured so.

        None if it would not. The kubelet restarts with it, and every pod that is there has to stay.

        Args:
            fields: top-level keys that are laid over the configuration; None deletes one.
            drained: the node is drained before, so that the pods come again in their order, on new
                state files.
        """
        try:
            node = self._configured(fields, drained=drained)
            return None if node is None else self._accepted(node.admit(self.pod))
        except AlignupError:  # a kubelet would not start so
            return None

    def meets_claims(self, fields: Mapping[str, Any], *, drained: bool = False) -> bool:
        """Return whether the pod would be admitted near the devices of its claims.

        That is once the kubelet is configured so; see `with_kubelet`.
        """
        try:
            node = self._configured(fields, drained=drained)
            if node is None or node.claims is None:
                return False

            admission = self._accepted(node.admit(self.pod))
            if admission is None:
                return False
            return node.claims.are_aligned(self.pod, admission.containers) is True
        except AlignupError:
            return False

    def _configured(self, fields: Mapping[str, Any], *, drained: bool) -> Node | None:
        """Return the node once its kubelet is configured so; None: not all pods stay.

        Raises:
            AlignupError: a kubelet would not start so.
        """
        if not self.is_copy or self.attempts_left <= 0:
            return None

        old_config = self.node.config
        all_fields = {**fields_of(old_config), **fields}
        written = {key: value for key, value in all_fields.items() if value is not None}
        config = KubeletConfig.from_dict(
            written, version=old_config.version, reading=old_config.reading
        )
        return self._drained(config) if drained else self._restarted(config)

    def on_release(self, version: KubeletVersion, *, drained: bool = False) -> Node | None:
        """Return the node once its kubelet is of another release.

        Feature gates that this release does not know, with which it does not start, are taken out
        of the configuration; see `gates_left`. Every pod that is there has to stay.

        Args:
            version: the release.
            drained: the node is drained before; see `with_kubelet`.

        Returns:
            The node; None: the kubelet does not start, or not all pods stay.
        """
        if not self.is_copy or self.attempts_left <= 0:
            return None

        old_config = self.node.config
        fields = fields_of(old_config)
        gates = gates_left(old_config, version)
        fields.pop("featureGates", None)
        if gates:
            fields["featureGates"] = gates

        try:
            config = KubeletConfig.from_dict(fields, version=version, reading=old_config.reading)
            return self._drained(config) if drained else self._restarted(config)
        except AlignupError:
            return None

    def pod_on(self, node: Node) -> Pod:
        """Return the pod as the kubelet of another node reads it."""
        source = self.pod.made_of
        return self.pod if source is None else source.read(node.config.profile.pods)

    def on(self, node: Node) -> Admission | None:
        """Return how the pod would be admitted on another node; None if it would not."""
        try:
            return self._accepted(node.try_admit(self.pod_on(node)))
        except AlignupError:
            return None

    def _drained(self, config: KubeletConfig) -> Node | None:
        """Return the node of this configuration to which all pods came again; None: not all can."""
        node = self.node.emptied(config)
        if self.node.claims is not None:
            node.claims = self.node.claims.copy()
            node.claims.held = {}
            node.manager.add_provider(node.claims)

        if all(node.admit(pod).admitted for pod in self.node.pods):
            return node
        return None

    def _restarted(self, config: KubeletConfig) -> Node | None:
        """Return the node after its kubelet restarted so; None if a pod does not stay."""
        restart = restarted(self.node, config)
        if restart.refused:
            return None
        return restart.node

    def _accepted(self, admission: Admission) -> Admission | None:
        """Return the admission if it counts; None if not."""
        self.attempts_left -= 1
        if self.attempts_left < 0 or not admission.admitted:
            return None

        if self.must_be_preferred:
            hints = [allocation.affinity for allocation in admission.containers.values()]
            if any(hint is None or not hint.preferred for hint in hints):
                return None

        return admission


def gates_left(config: KubeletConfig, version: KubeletVersion) -> dict[str, bool]:
    """Return the feature gates of a configuration that a release knows."""
    known_gates = release_of(version).gates
    return {
        name: is_on
        for name, is_on in config.feature_gates.items()
        if name in known_gates or name in ALL_OF
    }


def fields_of(config: KubeletConfig) -> dict[str, Any]:
    """Return the configuration as fields of a KubeletConfiguration."""
    reserve = config.node_reserve
    fields = {
        **json_fields(
            config,
            "topology_manager_policy",
            "topology_manager_scope",
            "cpu_manager_policy",
            "memory_manager_policy",
        ),
        **json_fields(reserve, "max_pods", "pods_per_core"),
        "topologyManagerPolicyOptions": set_options(config.topology_manager_policy_options),
        "cpuManagerPolicyOptions": set_options(config.cpu_manager_policy_options),
        "reservedSystemCPUs": str(config.reserved_system_cpus),
        "kubeReserved": {name: quantity(name, amount) for name, amount in reserve.amounts.items()},
        "evictionHard": {"memory.available": reserve.eviction_memory or "0%"},
        "reservedMemory": [
            {
                "numaNode": reservation.numa_node,
                "limits": {kind: str(size) for kind, size in reservation.limits},
            }
            for reservation in config.reserved_memory
        ],
        "featureGates": dict(config.feature_gates),
    }

    return {name: value for name, value in fields.items() if value}
