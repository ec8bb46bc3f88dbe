from typing import TypeAlias, final

_Amounts: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
_Contents: TypeAlias = tuple[
    str, int, str | None, tuple[str, ...], dict[str, _Amounts], tuple[tuple[int, ...], ...] | None
]

@final
class TopologyText:
    def read_object(self, text: bytes) -> _Contents | None: ...
    def read_list(self, text: bytes) -> list[_Contents | bytes] | None: ...
