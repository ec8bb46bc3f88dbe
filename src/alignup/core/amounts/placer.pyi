from typing import Any, Final, final

from alignup.core.amounts.board import Distances
from alignup.core.amounts.holders import CpuHolders, DeviceHolders, MemoryHolders
from alignup.core.hints import TopologyHint
from alignup.core.shared_dict import SharedDict

MOST_SUMMED: int

@final
class Share:
    container: Final[Any]
    affinity: Final[TopologyHint | None]
    cpus: Final[int | None]
    memory_nodes: Final[int]
    devices: Final[dict[str, int] | None]
    def sizes(self) -> list[tuple[str, int]]: ...

@final
class Placer:
    def __init__(
        self,
        numa_nodes: int,
        policy: int,
        pod_scope: bool,
        distances: Distances | None,
        plain_level: object,
        devices: DeviceHolders | None,
        cpu: CpuHolders | None,
        memory: MemoryHolders | None,
    ) -> None: ...
    def copy(
        self, devices: DeviceHolders | None, cpu: CpuHolders | None, memory: MemoryHolders | None
    ) -> Placer: ...
    def place(self, pod: Any, affinities: SharedDict[str, dict[str, TopologyHint]]) -> bool: ...
    def preview(self, pod: Any) -> tuple[Share, ...] | None: ...
    def take_back(self, pod: Any, containers: tuple[Any, ...]) -> bool: ...
    def held(
        self, pod: Any, affinities: SharedDict[str, dict[str, TopologyHint]]
    ) -> tuple[Share, ...] | None: ...
