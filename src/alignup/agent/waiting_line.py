"""Keeps those who wait for leases in the order in which they came, by the kinds of things that they ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alignup.leases.record import Waiter

__all__ = ["WaitingLine"]


class WaitingLine:
    """Those who wait, in one line for each kind of thing; who asks for several kinds stands in several lines."""

    __slots__ = ("_by_id", "_by_kind")

    def __init__(self) -> None:
        self._by_id: dict[str, Waiter] = {}
        self._by_kind: dict[str, dict[str, Waiter]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Waiter]:
        return iter(self._by_id.values())

    def __contains__(self, waiter_id: object) -> bool:
        return waiter_id in self._by_id

    def join(self, waiter: Waiter) -> bool:
        """Put somebody at the end; return whether they were not in it yet."""
        if waiter.id in self._by_id:
            return False
        self._by_id[waiter.id] = waiter
        for kind in waiter.kinds:
            self._by_kind.setdefault(kind, {})[waiter.id] = waiter
        return True

    def leave(self, waiter_id: str) -> bool:
        """Take somebody out; return whether they were in it."""
        waiter = self._by_id.pop(waiter_id, None)
        if waiter is None:
            return False
        for kind in waiter.kinds:
            line = self._by_kind[kind]
            del line[waiter_id]
            if not line:
                del self._by_kind[kind]
        return True

    def ahead_of(self, waiter: Waiter) -> list[Waiter]:
        """Return the first of each kind that the waiter asks for, who may be in the line or not, but not the waiter."""
        first = {}
        for kind in waiter.kinds:
            for one in self._by_kind.get(kind, {}).values():
                if one.id != waiter.id:
                    first[one.id] = one
                break
        return list(first.values())

    def heads(self) -> list[Waiter]:
        """Return those with nobody before them, in the order in which they came."""
        firsts = {next(iter(line)) for line in self._by_kind.values()}
        return [
            one
            for one in self._by_id.values()
            if not one.kinds or (one.id in firsts and not self.ahead_of(one))
        ]
