"""Holds reports on replays: what came of the pods of one node, and of all nodes together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from alignup.records import Record, field

STRANDED = (
    "free but unusable capacity: the part of the allocatable amount that was free when a pod was refused although the "
    "node had enough of every resource in total; averaged over all pods that arrived"
)
"""The definition of stranded capacity, for help and pages."""

_DIGITS = 6


class Place(Record):
    """One resource in one place of a node."""

    resource: str
    numa_nodes: tuple[int, ...]
    """Kernel ids; several, or none, for devices only."""
    allocatable: int
    """What pods can have in all: CPUs, bytes, devices."""


class Use(Record):
    """How much of one resource in one place was held, as parts of what is allocatable."""

    place: Place
    mean: float
    """Over all steps, each counted with what was held after it."""
    peak: float
    curve: tuple[float, ...]
    """After steps that are spread evenly over the scenario."""


class Counts(Record, frozen=False):
    """Numbers of pods and containers; two of them can be added."""

    steps: int = 0
    arrivals: int = 0
    admitted: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """Refused pods by the kubelet's reason."""
    resources: Counter[str] = field(default_factory=Counter)
    """Refused pods by resource; one that was refused because of several counts for each."""
    fitting: int = 0
    """Refused pods although the node had enough of every resource in total."""
    aligned: int = 0
    """Containers that got an affinity."""
    preferred: int = 0
    """Those whose affinity is preferred."""
    placed: int = 0
    """Containers that hold CPUs, memory or devices in NUMA nodes."""
    numa_nodes: int = 0
    """The NUMA nodes of these, added up."""

    @property
    def refused(self) -> int:
        """The number of pods that were refused."""
        return self.arrivals - self.admitted

    @property
    def preferred_share(self) -> float | None:
        """The part of containers with an affinity whose affinity is preferred; None if there are none."""
        return self.preferred / self.aligned if self.aligned else None

    @property
    def mean_numa_nodes(self) -> float | None:
        """In how many NUMA nodes a container's resources lie, on average; None if there are none."""
        return self.numa_nodes / self.placed if self.placed else None

    def add(self, other: Counts) -> None:
        """Count what another counted too."""
        self.reasons.update(other.reasons)
        self.resources.update(other.resources)
        for name in ("steps", "arrivals", "admitted", "fitting", "aligned", "preferred", "placed", "numa_nodes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers in JSON's types."""
        return {
            "steps": self.steps,
            "arrivals": self.arrivals,
            "admitted": self.admitted,
            "refused": self.refused,
            "reasons": dict(sorted(self.reasons.items())),
            "resources": dict(sorted(self.resources.items())),
            "refusedThoughEnoughInSum": self.fitting,
            "preferredShare": _rounded(self.preferred_share),
            "meanNumaNodes": _rounded(self.mean_numa_nodes),
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)


class NodeReport(Record):
    """What came of one scenario."""

    name: str
    counts: Counts
    uses: tuple[Use, ...] = ()
    stranded: Mapping[str, float] = field(default_factory=dict)
    """By resource; see `STRANDED`."""
    config_error: str = ""
    """Why the kubelet would not start; nothing was replayed then."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report in JSON's types."""
        if self.config_error:
            return {"name": self.name, "configError": self.config_error}
        return {
            "name": self.name,
            **self.counts.to_dict(),
            "stranded": {name: _rounded(part) for name, part in self.stranded.items()},
            "utilisation": [
                {
                    "resource": use.place.resource,
                    "numaNodes": list(use.place.numa_nodes),
                    "mean": _rounded(use.mean),
                    "peak": _rounded(use.peak),
                    "overTime": [round(part, 3) for part in use.curve],
                }
                for use in self.uses
            ],
        }


class Report(Record):
    """What came of several scenarios under one configuration."""

    nodes: Sequence[NodeReport]
    configuration: str = ""
    """`policy/scope`; empty: that of each scenario."""

    @property
    def total(self) -> Counts:
        """The numbers of all nodes together."""
        total = Counts()
        for node in self.nodes:
            total.add(node.counts)
        return total

    @property
    def stranded(self) -> dict[str, float]:
        """Stranded capacity of all nodes, by resource: the mean over the pods that came to nodes which have it."""
        return _means(
            (resource, part, node.counts.arrivals) for node in self.nodes for resource, part in node.stranded.items()
        )

    @property
    def utilisation(self) -> dict[str, float]:
        """The mean part of each resource that was held, over all nodes; each place counts by what it has."""
        uses = (use for node in self.nodes for use in node.uses)
        return _means((use.place.resource, use.mean, use.place.allocatable) for use in uses)

    def to_dict(self) -> dict[str, Any]:
        """Return the report in JSON's types."""
        return {
            **({"configuration": self.configuration} if self.configuration else {}),
            "total": {
                **self.total.to_dict(),
                "stranded": {name: _rounded(part) for name, part in self.stranded.items()},
                "utilisation": {name: _rounded(part) for name, part in self.utilisation.items()},
            },
            "nodes": [node.to_dict() for node in self.nodes],
        }


def _means(parts: Iterable[tuple[str, float, int]]) -> dict[str, float]:
    """Return by name the mean of parts, each of which counts by its weight."""
    sums: dict[str, tuple[float, int]] = {}
    for name, part, weight in parts:
        total, weights = sums.get(name, (0.0, 0))
        sums[name] = total + part * weight, weights + weight
    return {name: total / max(1, weights) for name, (total, weights) in sums.items()}
