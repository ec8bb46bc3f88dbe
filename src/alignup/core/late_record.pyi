from collections.abc import Callable
from typing import Any, Self

from typing_extensions import disjoint_base

@disjoint_base
class LateRecord:
    @classmethod
    def later(
        cls, known: str, value: object, make: Callable[..., Self], *arguments: Any
    ) -> Self: ...
