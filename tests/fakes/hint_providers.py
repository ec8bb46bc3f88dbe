"""Hint providers as users write them: plain classes that know nothing of alignup's own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from alignup.errors import AllocationError
from alignup.kubernetes.pod import Container, Pod
from alignup.topology_manager.hints import BitMask, TopologyHint

if TYPE_CHECKING:
    from collections.abc import Sequence


def hint(preferred: bool, *nodes: int) -> TopologyHint:
    """Return a hint for these nodes; without nodes, for any."""
    return TopologyHint(BitMask(nodes) if nodes else None, preferred)


def pod_of(uid: str, *names: str, init: Sequence[str] = ()) -> Pod:
    """Return a pod that asks for nothing, with containers of these names."""
    return Pod(
        uid,
        uid,
        init_containers=tuple(Container(name, is_init=True) for name in init),
        containers=tuple(Container(name) for name in names or ("c0",)),
    )


@dataclass
class Saying:
    """Offers the same hints to everybody, and gives nothing."""

    hints: Any

    def topology_hints(self, pod: Pod, container: Container) -> Any:  # noqa: ARG002 - a protocol's
        return self.hints

    def pod_topology_hints(self, pod: Pod) -> Any:  # noqa: ARG002 - a protocol's
        return self.hints

    def allocate(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        pass

    def release(self, pod_uid: str, container_name: str) -> None:
        pass


@dataclass
class Licences:
    """Has so many licences in each NUMA node, and gives one to each container.

    It logs what it is asked.
    """

    free: list[int]
    log: list[tuple[Any, ...]] = field(default_factory=list)
    name: str = "licences"
    fails_for: str | None = None
    """The container for which `allocate` fails, with `error`."""
    error: BaseException = field(
        default_factory=lambda: AllocationError("the licence server is down")
    )
    held: dict[tuple[str, str], int] = field(default_factory=dict)

    def hints(self) -> dict[str, list[TopologyHint]]:
        return {self.name: [hint(True, node) for node, free in enumerate(self.free) if free]}

    def topology_hints(self, pod: Pod, container: Container) -> Any:  # noqa: ARG002 - a protocol's
        self.log.append(("hints", self.name, container.name))
        return self.hints()

    def pod_topology_hints(self, pod: Pod) -> Any:  # noqa: ARG002 - a protocol's
        self.log.append(("pod hints", self.name))
        return self.hints()

    def allocate(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        self.log.append(("allocate", self.name, container.name))
        if container.name == self.fails_for:
            raise self.error
        near = range(len(self.free)) if affinity.affinity is None else affinity.affinity
        for node in near:
            if self.free[node]:
                self.free[node] -= 1
                self.held[pod.uid, container.name] = node
                return
        raise AllocationError(f"no {self.name} left near NUMA nodes {list(near)}")

    def release(self, pod_uid: str, container_name: str) -> None:
        self.log.append(("release", self.name, container_name))
        node = self.held.pop((pod_uid, container_name), None)
        if node is not None:
            self.free[node] += 1


@dataclass
class Wrapped:
    """Passes every question on to another provider: what `wrap` of a node is for."""

    inner: Any

    def topology_hints(self, pod: Pod, container: Container) -> Any:
        return self.inner.topology_hints(pod, container)

    def pod_topology_hints(self, pod: Pod) -> Any:
        return self.inner.pod_topology_hints(pod)

    def allocate(self, pod: Pod, container: Container, affinity: TopologyHint) -> None:
        self.inner.allocate(pod, container, affinity)

    def release(self, pod_uid: str, container_name: str) -> None:
        self.inner.release(pod_uid, container_name)
