"""Reports on replays: what came of the pods of one node, and of all nodes together.

Every step is applied, perhaps under another configuration, and only numbers are kept. How full NUMA
nodes are is read from the providers' free amounts, since `Holdings` cost more than an admission.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from alignup.errors import ConfigError, InputError
from alignup.kubernetes.kubelet_config import TOPOLOGY_POLICIES, TOPOLOGY_SCOPES
from alignup.kubernetes.pod import Pod, is_pinned_memory
from alignup.machine.bits import bit_set
from alignup.machine.load import machine_with_devices_from_dict
from alignup.node import Node
from alignup.node.holdings import holdings_of
from alignup.node.restart import admit_again
from alignup.records import Record, field, json_fields, replace
from alignup.replay.scenario import (
    Admit,
    PodStep,
    Restart,
    Step,
    apply_step,
    errors_of_step,
    next_node,
)
from alignup.text.counting import number_in
from alignup.topology_manager.refusal_message import blamed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from alignup.kubernetes.versions import KubeletVersion
    from alignup.topology_manager.admission import Admission
    from alignup.topology_manager.scope import Refusal


# The definition of stranded capacity, for help and pages.
STRANDED = (
    "free but unusable capacity: the part of the allocatable amount that was free when a pod was "
    "refused although the node had enough of every resource in total; averaged over all pods that "
    "arrived"
)

_DIGITS = 6

# The number of steps between reports of progress.
_TICK: Final = 256

# How many moments a curve over time has at most.
SAMPLES: Final = 100


class Use(Record):
    """How much of one resource in one place of a node was held, as parts of what is allocatable.

    Attributes:
        numa_nodes: kernel ids; several, or none, for devices only.
        allocatable: what pods can have in all: CPUs, bytes, devices.
        mean: over all steps, each counted with what was held after it.
        curve: after steps that are spread evenly over the scenario.
    """

    resource: str
    numa_nodes: tuple[int, ...]
    allocatable: int
    mean: float
    peak: float
    curve: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the use in JSON's types."""
        return {
            **json_fields(self, "resource", "numa_nodes"),
            **_rounded({"mean": self.mean, "peak": self.peak}),
            "overTime": [round(part, 3) for part in self.curve],
        }


class Counts(Record, frozen=False):
    """Numbers of pods and containers; two of them can be added.

    Attributes:
        reasons: refused pods by the kubelet's reason.
        resources: refused pods by resource; one that was refused because of several counts for
            each.
        fitting: refused pods although the node had enough of every resource in total.
        aligned: containers that got an affinity.
        preferred: those whose affinity is preferred.
        placed: containers that hold CPUs, memory or devices in NUMA nodes.
        numa_nodes: the NUMA nodes of these, added up.
    """

    steps: int = 0
    arrivals: int = 0
    admitted: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    resources: Counter[str] = field(default_factory=Counter)
    fitting: int = 0
    aligned: int = 0
    preferred: int = 0
    placed: int = 0
    numa_nodes: int = 0

    @property
    def refused(self) -> int:
        """The number of pods that were refused."""
        return self.arrivals - self.admitted

    @property
    def preferred_share(self) -> float | None:
        """The part of the containers with an affinity whose affinity is preferred; None: none."""
        if not self.aligned:
            return None

        return self.preferred / self.aligned

    @property
    def mean_numa_nodes(self) -> float | None:
        """In how many NUMA nodes a container's resources lie, on average; None: none do."""
        if not self.placed:
            return None

        return self.numa_nodes / self.placed

    def add(self, counts: Counts) -> None:
        """Add the numbers of another."""
        for name in self.__record_fields__:
            setattr(self, name, getattr(self, name) + getattr(counts, name))

    def cells(self) -> tuple[str, ...]:
        """Return the numbers in cells of a table, below `HEADINGS`."""
        return (
            str(self.arrivals),
            str(self.admitted),
            str(self.refused),
            str(self.fitting),
            number_in(self.preferred_share),
            number_in(self.mean_numa_nodes, ".2f"),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers in JSON's types."""
        means = {"preferredShare": self.preferred_share, "meanNumaNodes": self.mean_numa_nodes}
        return {
            **json_fields(self, "steps", "arrivals", "admitted", "refused"),
            "reasons": dict(sorted(self.reasons.items())),
            "resources": dict(sorted(self.resources.items())),
            "refusedThoughEnoughInSum": self.fitting,
            **_rounded(means),
        }


HEADINGS: Final = (
    "pods",
    "admitted",
    "refused",
    "enough in total",
    "preferred",
    "NUMA nodes a container",
)


def _rounded(values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {
        name: None if value is None else round(value, _DIGITS) for name, value in values.items()
    }


class NodeReport(Record):
    """What came of one scenario.

    Attributes:
        stranded: by resource; see `STRANDED`.
        config_error: why the kubelet would not start; nothing was replayed then.
    """

    name: str
    counts: Counts
    uses: tuple[Use, ...] = ()
    stranded: Mapping[str, float] = field(default_factory=dict)
    config_error: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the report in JSON's types."""
        if self.config_error:
            return {"name": self.name, "configError": self.config_error}

        return {
            "name": self.name,
            **self.counts.to_dict(),
            "stranded": _rounded(self.stranded),
            "utilisation": [use.to_dict() for use in self.uses],
        }


class Report(Record):
    """What came of several scenarios under one configuration.

    Attributes:
        configuration: `policy/scope`; empty: that of each scenario.
    """

    nodes: Sequence[NodeReport]
    configuration: str = ""

    @property
    def total(self) -> Counts:
        """The numbers of all nodes together."""
        total = Counts()
        for node in self.nodes:
            total.add(node.counts)

        return total

    @property
    def stranded(self) -> dict[str, float]:
        """Stranded capacity of all nodes, by resource.

        It is the mean over the pods that came to nodes which have the resource.
        """
        return _means(
            (resource, part, node.counts.arrivals)
            for node in self.nodes
            for resource, part in node.stranded.items()
        )

    @property
    def utilisation(self) -> dict[str, float]:
        """The mean part of each resource that was held, over all nodes.

        Each place counts by what it has.
        """
        uses = (use for node in self.nodes for use in node.uses)
        return _means((use.resource, use.mean, use.allocatable) for use in uses)

    def to_dict(self) -> dict[str, Any]:
        """Return the report in JSON's types."""
        report: dict[str, Any] = {}
        if self.configuration:
            report["configuration"] = self.configuration

        report["total"] = {
            **self.total.to_dict(),
            "stranded": _rounded(self.stranded),
            "utilisation": _rounded(self.utilisation),
        }
        report["nodes"] = [node.to_dict() for node in self.nodes]
        return report


def _means(parts: Iterable[tuple[str, float, int]]) -> dict[str, float]:
    """Return by name the mean of parts, each of which counts by its weight."""
    sums: dict[str, tuple[float, int]] = {}
    for name, part, weight in parts:
        total, weights = sums.get(name, (0.0, 0))
        sums[name] = total + part * weight, weights + weight

    return {name: total / max(1, weights) for name, (total, weights) in sums.items()}


def with_kubelet(scenario: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario whose kubelet has other values of some fields.

    The machine may bring the kubelet's other fields.

    Raises:
        InputError: the scenario describes no machine.
    """
    if "machine" not in scenario:
        return dict(scenario)

    kubelet = machine_with_devices_from_dict(scenario).kubelet
    return {**scenario, "kubelet": {**kubelet, **fields}}


def summarized(
    scenario: Mapping[str, Any],
    steps: Sequence[Step],
    *,
    kubelet_version: KubeletVersion | str | None = None,
    tick: Callable[[int], None] = lambda _: None,
) -> NodeReport:
    """Return what came of a scenario.

    Args:
        scenario: the node.
        steps: what happens on it.
        kubelet_version: the kubelet's release, in place of the key `kubeletVersion`.
        tick: called now and then with the number of steps that were done since.

    Raises:
        InputError: the scenario is malformed, or a step cannot be.
    """
    name = str(scenario.get("name", ""))
    try:
        node = Node.from_dict(scenario, kubelet_version=kubelet_version)
    except ConfigError as error:
        tick(len(steps))
        return NodeReport(name, Counts(), config_error=str(error))

    tally = _Tally(node, len(steps))
    refused: dict[str, str] = {}
    for index, step in enumerate(steps, 1):
        with errors_of_step(index - 1):
            if isinstance(step, Restart):
                try:
                    node = next_node(node, step)
                except ConfigError as error:
                    tick(len(steps) - (index - 1) // _TICK * _TICK)
                    return replace(tally.report(name), config_error=str(error))

                refusals = admit_again(node, node.pods).refused
                refused.update({uid: refusal.reason for uid, refusal in refusals.items()})
                tally.restarted(node)
            else:
                tally.note(step, apply_step(node, step, refused))
        if index % _TICK == 0:
            tick(_TICK)

    tick(len(steps) % _TICK)
    return tally.report(name)


class _Tally:
    """Counts what happens on a node, reads what is free after each step, and adds up.

    Args:
        node: the node.
        steps: how many there will be.
    """

    def __init__(self, node: Node, steps: int) -> None:
        self._node = node
        self._counts = Counts()
        resources = holdings_of(node).resources
        # The order of `_read`: CPUs, memory by kind, devices by place.
        self._places = [
            (holding.resource, place) for holding in resources for place in holding.places
        ]
        self._memory_kinds = [
            holding.resource for holding in resources if is_pinned_memory(holding.resource)
        ]
        # Of each place with devices: the resource, and the devices in that place as bits.
        self._device_bits: list[tuple[str, int]] = []
        for holding in resources:
            if holding.resource not in node.pools:
                continue

            devices = node.pools[holding.resource].devices
            for place in holding.places:
                near = [
                    bit
                    for bit, device in enumerate(devices)
                    if holding.devices[device.id] == place.numa_nodes
                ]
                self._device_bits.append((holding.resource, bit_set(near)))

        # By place: what was free after each step, added up; and the smallest amount that was.
        self._totals = [0] * len(self._places)
        self._smallest = [place.allocatable for _, place in self._places]
        self._curves: list[list[int]] = []
        self._every = -(-steps // SAMPLES) or 1
        self._free = self._read()

        sums = self._in_all(self._smallest)
        self._allocatable = {resource: amount for resource, amount in sums.items() if amount > 0}
        self._stranded = dict.fromkeys(self._allocatable, 0.0)

    def _read(self) -> list[int]:
        """Return what is free in each place now."""
        node = self._node
        amounts: list[int] = []
        if node.cpu is not None:
            free_cpus = node.cpu.ledger.capacity.allocatable & ~node.cpu.ledger.given
            amounts += [(cpus & free_cpus).bit_count() for cpus in node.machine.node_cpus]

        if node.memory is not None:
            by_kind = node.memory.free
            for kind in self._memory_kinds:
                amounts += by_kind[kind]

        pools = node.pools
        amounts += [
            (pools[resource].ledger.free & bits).bit_count() for resource, bits in self._device_bits
        ]
        return amounts

    def _in_all(self, amounts: Sequence[int]) -> dict[str, int]:
        """Return of amounts, one of each place, the sum of each resource."""
        sums: dict[str, int] = {}
        for (resource, _), amount in zip(self._places, amounts, strict=True):
            sums[resource] = sums.get(resource, 0) + amount

        return sums

    def restarted(self, node: Node) -> None:
        """Count a restart of the kubelet, after which there is another node."""
        self._node = node
        self.note(None, None)

    def note(self, step: PodStep | None, admission: Admission | None) -> None:
        """Count a step, and the verdict on the pod that came; None: of a restart."""
        counts = self._counts
        counts.steps += 1
        if isinstance(step, Admit) and admission is not None:
            counts.arrivals += 1
            if admission.refusal is None:
                counts.admitted += 1
                self._note_placement(step.pod, admission)
            else:
                self._note_refusal(step.pod, admission.refusal)

        if admission is None or admission.admitted:
            self._free = self._read()
            self._smallest = list(map(min, self._smallest, self._free))

        self._totals = [total + free for total, free in zip(self._totals, self._free, strict=True)]
        if counts.steps % self._every == 0:
            self._curves.append(self._free)

    def _note_placement(self, pod: Pod, admission: Admission) -> None:
        """Count how well the containers of an admitted pod are aligned."""
        counts = self._counts
        for name, allocation in admission.containers.items():
            if allocation.affinity is not None:
                counts.aligned += 1
                counts.preferred += allocation.affinity.preferred

            numa_nodes = self._node.numa_nodes(pod.uid, name)
            if numa_nodes:
                counts.placed += 1
                counts.numa_nodes += numa_nodes.bit_count()

    def _note_refusal(self, pod: Pod, refusal: Refusal) -> None:
        """Count why a pod was refused, and what was stranded if the node had enough in total."""
        counts = self._counts
        counts.reasons[refusal.reason] += 1
        counts.resources.update(set(_resources_of(refusal)))

        free = self._in_all(self._free)
        requested_amounts = _requested_amounts(self._node, pod)
        if all(
            amount <= free.get(resource, amount) for resource, amount in requested_amounts.items()
        ):
            counts.fitting += 1
            for resource, allocatable in self._allocatable.items():
                self._stranded[resource] += free[resource] / allocatable

    def report(self, name: str) -> NodeReport:
        """Return what was counted; places that pods can have nothing of are left out."""
        arrivals = max(1, self._counts.arrivals)
        steps = self._counts.steps
        stranded = {resource: total / arrivals for resource, total in self._stranded.items()}

        uses = []
        for index, (resource, place) in enumerate(self._places):
            whole = place.allocatable
            if whole <= 0:
                continue

            mean = 1 - self._totals[index] / steps / whole if steps else 0.0
            peak = 1 - self._smallest[index] / whole
            curve = tuple(1 - free[index] / whole for free in self._curves)
            uses.append(Use(resource, place.numa_nodes, whole, mean, peak, curve))

        return NodeReport(name, self._counts, tuple(uses), stranded)


def _requested_amounts(node: Node, pod: Pod) -> dict[str, int]:
    """Return what a pod asks for of the resources that the managers of this node give out."""
    pod = pod.read_as(node.config.profile.pods)
    requested_amounts = dict(pod.devices)
    if node.memory is not None:
        requested_amounts.update(pod.memory)

    if node.cpu is not None:
        requested_amounts["cpu"] = pod.exclusive_cpus

    return requested_amounts


def _resources_of(refusal: Refusal) -> Sequence[str]:
    """Return the resources because of which a pod was refused.

    A provider that names none stands for its own.
    """
    if not refusal.provider:
        return [resource for offer in blamed(refusal) for resource in offer.resources]
    return refusal.resources or [refusal.provider]


def parse_configurations(text: str) -> dict[str, dict[str, str]]:
    """Return the configurations that `--compare` lists, each a policy and perhaps a scope.

    Duplicates count once.

    Returns:
        the fields of a KubeletConfiguration by `policy/scope`, or by the policy alone; all else
        stays as it is.

    Raises:
        InputError: a policy or a scope is unknown.
    """
    configurations = {}
    for part in text.split(","):
        policy, slash, scope = part.strip().partition("/")
        if policy not in TOPOLOGY_POLICIES:
            raise InputError.at(
                "--compare", f"one of {', '.join(TOPOLOGY_POLICIES)}, perhaps with a scope", part
            )

        if slash and scope not in TOPOLOGY_SCOPES:
            raise InputError.at(
                "--compare", f"one of {', '.join(TOPOLOGY_SCOPES)} after the slash", part
            )

        fields = {"topologyManagerPolicy": policy}
        if scope:
            fields["topologyManagerScope"] = scope

        configurations[part.strip()] = fields

    return configurations
