"""Records what a provider offers while a pod is judged, for replays and explanations; it decides nothing itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alignup.kubernetes.pod import Container, Pod
    from alignup.topology_manager.hints import TopologyHint
    from alignup.topology_manager.provider import HintProvider, ResourceHints
    from alignup.topology_manager.refusal_account import Accounts

__all__ = ["RecordingProvider"]


@dataclass(slots=True)
class RecordingProvider:
    """A provider that delegates to another one and remembers its hints for the current pod."""

    provider: HintProvider
    by_container: dict[str, ResourceHints] = field(default_factory=dict)
    by_pod: ResourceHints = None

    def forget(self) -> None:
        """Discard the hints of the current pod."""
        self.by_container.clear()
        self.by_pod = None

    def topology_hints(self, pod: Pod, container: Container) -> ResourceHints:
        """Ask the provider and remember the answer."""
        hints = self.provider.topology_hints(pod, container)
        self.by_container[container.name] = hints
        return hints

    def pod_topology_hints(self, pod: Pod) -> ResourceHints:
        """Ask the provider and remember the answer."""
        self.by_pod = self.provider.pod_topology_hints(pod)
        return self.by_pod

    def allocate(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        """Let the provider allocate."""
        self.provider.allocate(pod, container, affinity)

    def account(self, pod: Pod, container: Container | None) -> Accounts:
        """Return the provider's descriptions of requested and free amounts, if it has any."""
        account = getattr(self.provider, "account", None)
        return {} if account is None else account(pod, container)

    def release(self, pod_uid: str, container_name: str) -> None:
        """Let the provider release."""
        self.provider.release(pod_uid, container_name)
