from collections.abc import Sequence
from typing import final

from alignup.core.cpu.cpu_group import CpuGroup

# What Cython adds to a module.
__test__: dict[str, object]
__pyx_capi__: dict[str, object]

@final
class CpuTopology:
    @property
    def cpus(self) -> int: ...
    @property
    def node_cpus(self) -> tuple[int, ...]: ...
    @property
    def node_sockets(self) -> tuple[int, ...]: ...
    @property
    def socket_cpus(self) -> tuple[int, ...]: ...
    @property
    def core_cpus(self) -> tuple[int, ...]: ...
    @property
    def outer(self) -> tuple[CpuGroup, ...]: ...
    @property
    def sockets_outer(self) -> bool: ...
    @property
    def numa_nodes(self) -> int: ...
    @property
    def cpus_per_core(self) -> int: ...
    @property
    def cpus_per_l3_group(self) -> int: ...
    def __new__(
        cls,
        outer: Sequence[CpuGroup],
        *,
        sockets_outer: bool,
        node_cpus: Sequence[int],
        node_sockets: Sequence[int],
        socket_cpus: Sequence[int],
        cpus_per_core: int,
        cpus_per_l3_group: int,
    ) -> CpuTopology: ...
    def pack(
        self,
        free: int,
        count: int,
        held: int,
        *,
        spread: bool = False,
        in_turns: bool = False,
        by_l3: bool = False,
        l3_rounds_down: bool = False,
        whole_l3_first: bool = False,
        once: bool = False,
    ) -> int: ...
    def node_order(self, free: int) -> tuple[CpuGroup, ...]: ...
    def __deepcopy__(self, _memo: object) -> CpuTopology: ...
