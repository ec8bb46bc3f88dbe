"""The Store: keeps the affinity decided for each container, so that providers and users can ask for it later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alignup.topology_manager.hints import TopologyHint

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Store"]

NOTHING_DECIDED = TopologyHint(None, False)


class Store:
    """Affinities by pod uid and container name, and the container ids associated with them."""

    __slots__ = ("_affinities", "_containers")

    def __init__(self) -> None:
        self._affinities: dict[str, dict[str, TopologyHint]] = {}
        self._containers: dict[str, tuple[str, str]] = {}

    def copy(self) -> Store:
        """Return an independent store with the same affinities and container ids."""
        other = Store()
        other._affinities = {uid: dict(affinities) for uid, affinities in self._affinities.items()}
        other._containers = self._containers.copy()
        return other

    def set(self, pod_uid: str, container_name: str, affinity: TopologyHint) -> None:
        """Keep the affinity of a container."""
        self._affinities.setdefault(pod_uid, {})[container_name] = affinity

    def affinity(self, pod_uid: str, container_name: str) -> TopologyHint:
        """Return the affinity of a container; no mask and not preferred if none was decided."""
        return self._affinities.get(pod_uid, {}).get(container_name, NOTHING_DECIDED)

    def pod_affinities(self, pod_uid: str) -> Mapping[str, TopologyHint]:
        """Return the affinities of a pod by container name."""
        return self._affinities.get(pod_uid, {})

    def forget_pod(self, pod_uid: str) -> None:
        """Forget all affinities and container ids of a pod."""
        self._affinities.pop(pod_uid, None)
        for container_id in [known for known, (uid, _) in self._containers.items() if uid == pod_uid]:
            del self._containers[container_id]

    def add_container(self, pod_uid: str, container_name: str, container_id: str) -> None:
        """Associate a container id with a container of a pod."""
        self._containers[container_id] = (pod_uid, container_name)

    def remove_container(self, container_id: str) -> None:
        """Forget a container id, and the affinity with it unless a newer id stands for the same container.

        A restarted container has a new id before the old one is removed; its affinity must outlive the old id.
        """
        known = self._containers.pop(container_id, None)
        if known is None or known in self._containers.values():
            return
        pod_uid, container_name = known
        containers = self._affinities.get(pod_uid, {})
        containers.pop(container_name, None)
        if not containers:
            self._affinities.pop(pod_uid, None)
