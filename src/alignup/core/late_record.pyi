from collections.abc import Callable
from typing import Any, Self

class LateRecord:
    @classmethod
    def later(cls, known: str, value: object, make: Callable[..., Self], *arguments: Any) -> Self: ...
