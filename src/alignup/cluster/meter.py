"""Measures what a simulated cluster uses, over time, and what of its free resources is stranded, at some moments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from alignup.cluster.node_totals import Totals

__all__ = ["Meter"]


class Meter:
    """Measures what is used, over time, and what is stranded, at some moments.

    It is read and written at every event, for few resources: plain numbers are faster than arrays here.

    Args:
        totals: the sums of the nodes.
    """

    __slots__ = (
        "_elapsed",
        "_most",
        "_samples",
        "_strands",
        "_there",
        "_time",
        "_totals",
        "_used",
        "_weighted",
    )

    def __init__(self, totals: Totals) -> None:
        self._totals = totals
        self._there: list[int] = np.maximum(totals.allocatable.sum(axis=0), 1).tolist()
        self._time: float | None = None
        self._elapsed = 0.0
        self._weighted = [0.0] * len(self._there)
        self._used = totals.used_in_all.copy()
        self._most = self._used.copy()
        self._strands = np.zeros(len(self._there))
        self._samples = 0

    def advance(self, time: float) -> None:
        """Let time pass, with everything as it was noted last."""
        if self._time is not None and time > self._time:
            passed = time - self._time
            for number, (used, there) in enumerate(zip(self._used, self._there, strict=True)):
                self._weighted[number] += used / there * passed
            self._elapsed += passed
        self._time = time if self._time is None else max(time, self._time)

    def note(self) -> None:
        """Note what is used now."""
        self._used = self._totals.used_in_all.copy()
        for number, used in enumerate(self._used):
            self._most[number] = max(self._most[number], used)

    def strand(self, fits: npt.NDArray[np.bool_], admitted: npt.NDArray[np.bool_]) -> None:
        """Measure what is free on nodes that have room in sum and would refuse."""
        free = self._totals.free
        self._strands += free[fits & ~admitted].sum(axis=0) / np.maximum(free.sum(axis=0), 1)
        self._samples += 1

    def _parts(self, used: list[int]) -> npt.NDArray[np.float64]:
        return np.array([amount / there for amount, there in zip(used, self._there, strict=True)])

    @property
    def peak(self) -> npt.NDArray[np.float64]:
        """The largest part in use."""
        return self._parts(self._most)

    @property
    def mean(self) -> npt.NDArray[np.float64]:
        """The mean part in use; what it is now if no time passed."""
        return np.array(self._weighted) / self._elapsed if self._elapsed else self._parts(self._used)

    @property
    def stranded(self) -> npt.NDArray[np.float64]:
        """The mean part of what was free that was stranded."""
        return self._strands / max(1, self._samples)
