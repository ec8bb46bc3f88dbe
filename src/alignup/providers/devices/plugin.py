"""Declares what a device plugin may say about the choice of devices: GetPreferredAllocation of KEP-693.

A plugin only advises; the choice is made in `alignup.providers.devices.pool`, where an answer that makes no
sense is passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["DevicePlugin", "Preference", "PreferredSets", "preference_of"]

Preference: TypeAlias = "Callable[[Sequence[str], Sequence[str], int], Sequence[str]]"
"""(available, must_include, size) -> the preferred ids, as `DevicePlugin.preferred_allocation`."""


@runtime_checkable
class DevicePlugin(Protocol):
    """Somebody who knows which devices of a resource work well together."""

    def preferred_allocation(
        self, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> Sequence[str]:
        """Return the `size` ids out of `available` that are best had together.

        Args:
            available: Ids to choose from: those that the affinity admits, and those of `must_include`.
            must_include: Ids that the container has already.
            size: How many it is to have in all.
        """


class PreferredSets:
    """A plugin that knows sets of devices that belong together, such as GPUs joined by a link.

    Starting from the ids that must be included, it goes through the sets in order and adds each one that is
    wholly available and still fits; then it fills up with the remaining ids in ascending order.

    >>> pairs = PreferredSets([["gpu-0", "gpu-3"], ["gpu-1", "gpu-2"]])
    >>> pairs.preferred_allocation(["gpu-1", "gpu-2", "gpu-3"], [], 2)
    ['gpu-1', 'gpu-2']
    """

    __slots__ = ("sets",)

    def __init__(self, sets: Iterable[Iterable[str]]) -> None:
        self.sets = tuple(frozenset(ids) for ids in sets)

    def preferred_allocation(
        self, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> Sequence[str]:
        """Return the preferred ids, ascending; see the class for the rule."""
        choice = frozenset(available)
        chosen = set(must_include)
        for ids in self.sets:
            if ids <= choice and len(ids | chosen) <= size:
                chosen |= ids
        for device in sorted(choice - chosen)[: max(0, size - len(chosen))]:
            chosen.add(device)
        return sorted(chosen)


def preference_of(plugin: DevicePlugin | Preference) -> Preference:
    """Return the function to ask, of a plugin object or of a plain callable.

    Raises:
        TypeError: `plugin` is neither.
    """
    if isinstance(plugin, DevicePlugin):
        return plugin.preferred_allocation
    if callable(plugin):
        return plugin
    raise TypeError(f"expected a callable or an object with preferred_allocation, got {plugin!r}")
