from typing import Any, Final, Self, final

from typing_extensions import disjoint_base

from alignup.core.amounts.cpu_ledger import CpuLedger
from alignup.core.amounts.memory_ledger import MemoryHolding, MemoryLedger
from alignup.core.shared_dict import SharedDict

@disjoint_base
class CpuHolders:
    ledger: CpuLedger
    held: SharedDict[str, dict[str, int]]
    whole_pods: SharedDict[str, int]
    reusing_pod: str
    reusable: int
    def hold_as(self, other: Self) -> None: ...

@disjoint_base
class MemoryHolders:
    ledger: MemoryLedger
    holdings: SharedDict[tuple[str, str], MemoryHolding]
    names: SharedDict[tuple[str, str], str]
    init_holdings: SharedDict[str, tuple[MemoryHolding, ...]]
    pod_holdings: SharedDict[str, MemoryHolding]
    pod_parts: SharedDict[str, dict[str, tuple[bool, tuple[tuple[str, int], ...]]]]
    def hold_as(self, other: Self) -> None: ...

@final
class PodDevices:
    containers: Final[dict[str, dict[str, int]]]
    reusable: Final[dict[str, int]]
    def __init__(self, containers: dict[str, dict[str, int]], reusable: dict[str, int]) -> None: ...
    def held(self, resource: str) -> int: ...
    def with_more(
        self, name: str, chosen: dict[str, int], reusable: dict[str, int]
    ) -> PodDevices: ...

@disjoint_base
class DeviceHolders:
    pools: dict[str, Any]
    pods: SharedDict[str, PodDevices]
    last_pod: str
    def hold_as(self, other: Self) -> None: ...
