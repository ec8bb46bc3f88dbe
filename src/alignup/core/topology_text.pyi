from typing import TypeAlias, final

Amounts: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
Told: TypeAlias = tuple[str, int, str | None, tuple[str, ...], dict[str, Amounts], tuple[tuple[int, ...], ...] | None]

@final
class TopologyText:
    def read_object(self, text: bytes) -> Told | None: ...
    def read_list(self, text: bytes) -> list[Told | bytes] | None: ...
